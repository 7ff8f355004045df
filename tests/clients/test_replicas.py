"""Two servers with one folder of saved sessions behind a balancer, as the README shows it."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

from server import ROOT, Server, free_port, rest

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
HAPROXY = shutil.which("haproxy", path=PATH)
CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Germany": "Berlin"}
# Distance of saves, and more tokens than a question and its answer have.
STEP, TURN = 64, 40


def readme_configuration():
    """What the README has people write into haproxy.cfg."""
    return re.search(r"```haproxy\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]


@unittest.skipIf(HAPROXY is None, "haproxy is not installed")
class Replicas(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="q36-replicas-")
        self.addCleanup(self.folder.cleanup)
        self.kv = str(Path(self.folder.name) / "kv")
        self.ports = [free_port(), free_port()]
        self.replicas = [self.start(port) for port in self.ports]
        self.url = self.start_balancer()
        for name in "ab":
            self.until_seen(name, "UP")

    def start(self, port):
        saving = ["--kv-disk-dir", self.kv, "--kv-cache-min-tokens", "32"]
        saving += ["--kv-cache-continued-interval-tokens", str(STEP), "--kv-cache-boundary-align-tokens", "16"]
        replica = Server("--temp", "0", "--port", str(port), *saving)
        self.addCleanup(replica.kill)
        return replica

    def start_balancer(self):
        front = free_port()
        # In sequence: a port that was given must not be taken for one that is to be replaced.
        names = {"127.0.0.1:8000": front, "127.0.0.1:8001": self.ports[0], "127.0.0.1:8002": self.ports[1]}
        text = re.sub(r"127\.0\.0\.1:800\d", lambda found: f"127.0.0.1:{names[found[0]]}", readme_configuration())
        # What it sees of the servers, for the test.
        self.stats = str(Path(self.folder.name) / "stats.sock")
        file = Path(self.folder.name) / "haproxy.cfg"
        file.write_text(f"global\n    stats socket {self.stats} level admin\n{text}")
        balancer = subprocess.Popen([HAPROXY, "-db", "-f", str(file)], stderr=subprocess.PIPE, text=True)

        def stop():
            balancer.kill()
            balancer.wait(30)
            balancer.stderr.close()

        self.addCleanup(stop)
        end = time.monotonic() + 30
        while not os.path.exists(self.stats):
            if balancer.poll() is not None or time.monotonic() > end:
                self.fail(f"haproxy does not start: {balancer.stderr.read()}")
            time.sleep(0.02)
        return f"http://127.0.0.1:{front}"

    def until_seen(self, name, state):
        """Waits until the balancer sees a server so."""
        end = time.monotonic() + 60
        while True:
            with socket.socket(socket.AF_UNIX) as stream:
                stream.connect(self.stats)
                stream.sendall(b"show stat\n")
                lines = stream.makefile().read().splitlines()
            row = next(line.split(",") for line in lines if line.startswith(f"replicas,{name},"))
            if row[17].startswith(state):
                return
            self.assertLess(time.monotonic(), end, f"{name} is {row[17]}, not {state}")
            time.sleep(0.05)

    def ask(self, session, messages):
        body = {"messages": messages, "thinking": False, "max_tokens": 24, "chat_template_kwargs": {"preserve_thinking": True}}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(), {"X-Session-Id": session})
        with urllib.request.urlopen(request, timeout=120) as response:
            answer = json.load(response)
        return answer["choices"][0]["message"]["content"], answer["usage"]

    def tokens(self):
        """Tokens that each living replica holds."""
        held = []
        for replica in self.replicas:
            with urllib.request.urlopen(replica.url + "/slots", timeout=60) as response:
                held.append(json.load(response)["slots"][0]["tokens"])
        return held

    def turn(self, session, messages, number):
        place = list(CAPITALS)[number % len(CAPITALS)]
        messages.append({"role": "user", "content": f"What is the capital of {place}?"})
        answer, usage = self.ask(session, messages)
        self.assertIn(CAPITALS[place], answer)
        messages.append({"role": "assistant", "content": answer})
        return usage["prompt_tokens_details"]["cache_write_tokens"]

    def test_a_conversation_stays_with_its_server_and_goes_on_at_the_other_when_that_dies(self):
        self.assertEqual(self.tokens(), [0, 0])
        messages = [{"role": "system", "content": "You answer in one short sentence. " * 4}]
        for number in range(8):
            evaluated = self.turn("one", messages, number)
            if number > 0:
                self.assertLess(evaluated, TURN)
        held = self.tokens()
        self.assertEqual(sorted(tokens > 0 for tokens in held), [False, True], "all turns at one of them")
        home = 0 if held[0] else 1
        rest(self.kv)
        self.replicas[home].kill()
        # The request that finds out is passed on, and nobody waits for the check of health.
        evaluated = self.turn("one", messages, 8)
        self.assertLess(evaluated, STEP + TURN, "the saves of the dead one are found")
        self.assertLess(self.turn("one", messages, 9), TURN)
        self.until_seen("ab"[home], "DOWN")
        # A server that is back is asked once it is ready.
        port = self.ports[home]
        self.replicas[home] = self.start(port)
        self.until_seen("ab"[home], "UP")
        self.assertLess(self.turn("one", messages, 10), STEP + 2 * TURN)

    def test_conversations_are_spread(self):
        for number in range(12):
            self.turn(f"session-{number}", [], number)
        self.assertTrue(all(tokens > 0 for tokens in self.tokens()), self.tokens())

    def test_a_server_that_stops_is_left_alone_before_it_is_gone(self):
        self.replicas[0].process.terminate()
        self.replicas[0].process.wait(60)
        for number in range(4):
            self.turn(f"session-{number}", [], number)


if __name__ == "__main__":
    unittest.main()
