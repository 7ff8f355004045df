"""From start to end of a server: signals, memory, a model that is put away. Bare sockets; needs no package."""

import http.client
import json
import os
import signal
import socket
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from server import ENDS, Server, memory_mib

FOX = "The fox met the bear at the river. " * 20


def call(server, path, body=None):
    """Status and JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(server.url + path, data), timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def slots(server):
    return call(server, "/slots")[1]["slots"]


def until(what, there, seconds=60):
    end = time.monotonic() + seconds
    while not there():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def head(path, length, *more):
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {length}", *more, "", ""]).encode()


def connect(server, buffer=4096):
    """A socket that takes little by itself."""
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    stream.settimeout(60)
    stream.connect((server.host, server.port))
    return stream


def endless(server, **more):
    """A stream that nobody reads, of much text for each token."""
    body = {"prompt": "Hello", "max_tokens": 3900, "stream": True, "logit_bias": ENDS, **more}
    body = json.dumps(body).encode()
    stream = connect(server)
    stream.sendall(head("/v1/completions", len(body)) + body)
    return stream


HI = [{"role": "user", "content": "Hi"}]
STOPPING = {"message": "the server is shutting down", "type": "server_error", "param": None, "code": "shutting_down"}
OVERLOADED = {"type": "overloaded_error", "message": "the server is shutting down"}
# What is asked of each API, the error that it gives when the server stops, and the last events of a reply then, from one
# with text on.
STOPS = {
    "/v1/chat/completions": ({"messages": HI}, STOPPING, ["null", "error", "event: error", "[DONE]"]),
    "/v1/completions": ({"prompt": "Hello"}, STOPPING, ["null", "error", "event: error", "[DONE]"]),
    "/v1/responses": (
        {"input": "Hi"},
        STOPPING,
        [
            "event: response.output_text.delta", "event: response.output_text.done", "event: response.content_part.done",
            "event: response.output_item.done", "event: response.failed",
        ],
    ),
    "/v1/messages": ({"messages": HI}, OVERLOADED, ["event: content_block_delta", "event: content_block_stop", "event: error"]),
}  # fmt: skip


def streamed(response):
    """Events of a stream: what each is called, or its finish reason where it has no name; and its object."""
    events = []
    for event in response.read().decode().split("\n\n"):
        name, found, data = event.rpartition("data: ")
        if found and data == "[DONE]":
            events.append((data, None))
        elif found:
            data = json.loads(data)
            events.append((name.strip() or data["choices"][0]["finish_reason"] or "null", data))
    return events


class Signals(unittest.TestCase):
    def test_the_first_signal_ends_well_and_a_second_one_at_once(self):
        for signals, status in [([signal.SIGINT], 0), ([signal.SIGTERM], 0), ([signal.SIGINT, signal.SIGINT], 130), ([signal.SIGTERM, signal.SIGINT], 130)]:
            with self.subTest(signals=signals):
                server = Server("--temp", "0")
                stream = endless(server)
                until("a reply", lambda: slots(server)[0]["state"] == "decode")
                # Its connection stays for some seconds, for the last event to be taken.
                for number in signals:
                    server.process.send_signal(number)
                    until("a line", lambda: any("a second signal ends at once" in line for line in list(server.log)))
                began = time.monotonic()
                self.assertEqual(server.process.wait(30), status, server.log[-5:])
                if status == 130:
                    self.assertLess(time.monotonic() - began, 1)
                stream.close()
                server.kill()

    def test_the_first_signal_is_told_to_whoever_is_served_or_waits(self):
        for path, (question, error, last) in STOPS.items():
            with self.subTest(path=path):
                server = Server("--temp", "0")

                def ask(streams):
                    """A connection with a request for a long reply, whose answer is still to be read."""
                    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
                    self.addCleanup(connection.close)
                    body = {**question, "stream": streams, "max_tokens": 3900, "logit_bias": ENDS, "thinking": False}
                    connection.request("POST", path, json.dumps(body))
                    return connection

                def check_error(events):
                    data = [data for _, data in events if data][-1]
                    said = data.get("response", data)["error"]
                    self.assertEqual(said, {name: error[name] for name in said})
                    self.assertIn("message", said)

                try:
                    active = ask(True).getresponse()
                    # No prompt is that long: some of the reply is written.
                    until("a text", lambda: slots(server)[0]["tokens"] > 40)
                    streams, waits = ask(True), ask(False)
                    until("a queue", lambda: call(server, "/slots")[1]["queued"] == 2)
                    server.process.send_signal(signal.SIGTERM)
                    events = streamed(active)
                    names = [name for name, _ in events]
                    self.assertEqual(names[-len(last) :], last)
                    self.assertFalse(set(names[: -len(last)]) & set(last[1:]), "it ends once")
                    check_error(events)
                    if path == "/v1/responses":
                        self.assertGreater(events[-1][1]["response"]["usage"]["output_tokens"], 0)
                    events = streamed(streams.getresponse())
                    self.assertFalse({name for name, _ in events} & set(last[:-2]), "nothing of it was written")
                    check_error(events)
                    answer = waits.getresponse()
                    self.assertEqual((answer.status, json.load(answer)["error"]), (503, error))
                    self.assertGreater(int(answer.headers["Retry-After"]), 0)
                    self.assertEqual(server.process.wait(30), 0, server.log[-5:])
                finally:
                    server.kill()


class Idle(unittest.TestCase):
    def test_an_idle_server_saves_frees_memory_and_goes_on_from_disk(self):
        with tempfile.TemporaryDirectory(prefix="q36-idle-") as folder:
            server = Server("--temp", "0", "--idle-unload", "1", "--kv-disk-dir", folder, "--kv-cache-min-tokens", "32", "--batched-session", "2")
            try:
                messages = [{"role": "user", "content": FOX + "What did the fox do?"}]
                body = {"messages": messages, "max_tokens": 20, "thinking": False, "stop": [" ", "."]}
                status, first = call(server, "/v1/chat/completions", body)
                self.assertEqual((status, first["choices"][0]["finish_reason"]), (200, "stop"), first)
                pid = server.process.pid
                busy = memory_mib(pid, "VmRSS")
                until("idle", lambda: call(server, "/health") == (200, {"status": "idle"}), 120)
                self.assertTrue([name for name in os.listdir(folder) if name.endswith(".kv")])
                self.assertEqual(call(server, "/v1/models")[0], 200)
                self.assertGreater(call(server, "/v1/messages/count_tokens", {"messages": messages})[1]["input_tokens"], 100)
                self.assertEqual(call(server, "/health"), (200, {"status": "idle"}), "none of them wakes it")
                if busy is not None:
                    self.assertLess(memory_mib(pid, "VmRSS"), busy)
                messages.append(first["choices"][0]["message"])
                messages.append({"role": "user", "content": "And the bear?"})
                status, second = call(server, "/v1/chat/completions", body)
                self.assertEqual(status, 200, second)
                self.assertLess(second["usage"]["prompt_tokens_details"]["cache_write_tokens"], 40, second)
                self.assertEqual(call(server, "/health"), (200, {"status": "ok"}))
            finally:
                self.assertEqual(server.stop(), 0)


class Memory(unittest.TestCase):
    """Bounds of what clients can make a server hold. The figures are printed with `Q36_FIGURES=1`."""

    def figures(self, what, before, after):
        if os.environ.get("Q36_FIGURES"):
            print(f"{what}: {before} MiB before, {after} MiB with them", flush=True)

    def test_a_reader_that_has_stopped_holds_a_few_mebibytes_and_pauses_alone(self):
        server = Server("--temp", "0", "--batched-session", "2")
        try:
            pid = server.process.pid
            call(server, "/v1/completions", {"prompt": "Hello", "max_tokens": 8})
            before = memory_mib(pid, "VmRSS")
            reader = endless(server, logprobs=20)
            until("paused", lambda: any(slot["state"] == "paused" for slot in slots(server)), 300)
            status, answer = call(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8})
            self.assertEqual(status, 200, answer)
            after = memory_mib(pid, "VmRSS")
            self.figures("a reader that has stopped", before, after)
            if before is not None:
                self.assertLess(after - before, 16)
            reader.close()
            until("nobody", lambda: all(slot["state"] == "idle" for slot in slots(server)))
        finally:
            self.assertEqual(server.stop(), 0)

    def test_slow_writers_share_the_memory_of_bodies(self):
        server = Server("--temp", "0", "--max-body-mb", "4")
        refused, lock = [], threading.Lock()

        def write(_):
            """Sends most of a body of four mebibytes, and holds it; whether it was taken so far."""
            stream = connect(server)
            try:
                stream.sendall(head("/v1/completions", 4 << 20) + b" " * (3 << 20))
                stream.settimeout(1)
                answer = stream.recv(4096)
            except TimeoutError:
                return stream
            except OSError:
                answer = b""
            with lock:
                refused.append(answer.split(b"\r\n")[0])
            stream.close()
            return None

        try:
            pid = server.process.pid
            before = memory_mib(pid, "VmRSS")
            with ThreadPoolExecutor(40) as pool:
                held = [stream for stream in pool.map(write, range(40)) if stream]
            after = memory_mib(pid, "VmRSS")
            self.figures("120 MiB of bodies that are not complete", before, after)
            # There is room for four of the largest.
            self.assertLessEqual(len(held), 5)
            self.assertTrue(all(line in (b"", b"HTTP/1.1 429 Too Many Requests") for line in refused), refused)
            self.assertIn(b"HTTP/1.1 429 Too Many Requests", refused)
            if before is not None:
                self.assertLess(after - before, 48)
            status, answer = call(server, "/health")
            self.assertEqual((status, answer), (200, {"status": "ok"}))
            for stream in held:
                stream.close()
            until("room", lambda: call(server, "/v1/completions", {"prompt": "Hello", "max_tokens": 1})[0] == 200)
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
