"""A server that is killed goes on from what it saved, with the same answers."""

import json
import tempfile
import unittest
import urllib.request

from server import Server

SYSTEM = {"role": "system", "content": "You answer in one short sentence. " * 4}
PLACES = ["France", "Italy", "Spain", "Germany", "Japan", "Poland"]
TURNS = 20
# Distance of saves.
STEP = 64


def ask(server, messages):
    body = {"messages": messages, "reasoning_effort": "none", "max_tokens": 24}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as response:
        answer = json.load(response)
    return answer["choices"][0]["message"]["content"], answer["usage"]


class Restart(unittest.TestCase):
    def converse(self, start, killed=()):
        """A conversation's answers; before each turn in `killed` the server is killed and started again."""
        server, messages, answers = start(), [SYSTEM], []
        try:
            for turn in range(TURNS):
                messages.append({"role": "user", "content": f"What is the capital of {PLACES[turn % 6]}?"})
                if turn in killed:
                    server.kill()
                    server = start()
                answer, usage = ask(server, messages)
                evaluated = usage["prompt_tokens_details"]["cache_write_tokens"]
                if turn in killed:
                    # The save before the last may be all that was written to its end.
                    self.assertLess(evaluated, 3 * STEP, (turn, usage))
                elif turn > 0:
                    self.assertLess(evaluated, 32, (turn, usage))
                messages.append({"role": "assistant", "content": answer})
                answers.append(answer)
        finally:
            server.kill()
        return answers

    def test_a_killed_server_goes_on_from_its_last_checkpoint(self):
        with tempfile.TemporaryDirectory(prefix="q36-restart-") as folder:
            saving = ["--kv-disk-dir", folder, "--kv-cache-min-tokens", "32"]
            saving += ["--kv-cache-continued-interval-tokens", str(STEP), "--kv-cache-boundary-align-tokens", "16"]
            answers = self.converse(lambda: Server("--temp", "0", *saving), killed=(5, 11, 12, 17))
        self.assertEqual(answers, self.converse(lambda: Server("--temp", "0")))
        self.assertIn("Paris", answers[0])


if __name__ == "__main__":
    unittest.main()
