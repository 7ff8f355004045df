"""Bare sockets: broken requests, clients that leave, clients that read slowly, many at once. Needs no package."""

import gzip
import json
import random
import socket
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from server import ENDS, Server

APIS = {"/v1/chat/completions": "messages", "/v1/completions": "prompt", "/v1/responses": "input", "/v1/messages": "messages"}
PARIS = [{"role": "user", "content": "What is the capital of France?"}]


def post(path, body, *headers):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def good(path, **more):
    """A body that the API takes."""
    value = {"messages": PARIS, "prompt": "Hello", "input": "Hello"}[APIS[path]]
    return {APIS[path]: value, "max_tokens": 1, **more}


# --- what is broken: each kind makes (bytes, statuses that are right; None for a closed connection) ----------------------


def broken_head(draw):
    name = "".join(draw.choices("abcdefgh-", k=8))
    return draw.choice(
        [
            (bytes(draw.choices(range(128, 256), k=40)) + b"\r\n\r\n", {400}),
            (b"GET\r\n\r\n", {400}),
            (b"GET  / HTTP/1.1\r\n\r\n", {400}),
            (f"{name}\r\n\r\n".encode(), {400}),
            (f"GET / HTTP/{draw.randint(3, 9)}.0\r\n\r\n".encode(), {400, 505}),
            (f"GET / HTTP/1.1\r\n{name}\r\n\r\n".encode(), {400}),
            (f"GET / HTTP/1.1\r\n{name} : x\r\n\r\n".encode(), {400}),
            (b"GET / HTTP/1.1\r\nA: \x00\r\n\r\n", {400}),
            (f"GET /{'a' * draw.randint(70_000, 90_000)} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), {414, 431}),
            (f"GET / HTTP/1.1\r\nHost: x\r\n{name}: {'b' * draw.randint(70_000, 90_000)}\r\n\r\n".encode(), {431}),
        ]
    )


def broken_framing(draw):
    head = f"POST {draw.choice(list(APIS))} HTTP/1.1\r\nHost: x\r\n"
    return draw.choice(
        [
            (f"{head}Content-Length: -{draw.randint(1, 99)}\r\n\r\n{{}}".encode(), {400}),
            (f"{head}Content-Length: two\r\n\r\n{{}}".encode(), {400}),
            (f"{head}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}".encode(), {400}),
            (f"{head}Content-Length: {draw.randint(1 << 27, 1 << 40)}\r\n\r\n".encode(), {413}),
            (f"{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n".encode(), {400}),
            (f"{head}Transfer-Encoding: chunked\r\n\r\n-2\r\n{{}}\r\n0\r\n\r\n".encode(), {400}),
            (f"{head}Transfer-Encoding: nonsense\r\n\r\n{{}}".encode(), {400, 501}),
        ]
    )


def wrong_place(draw):
    path = draw.choice(["/v1", "/v1/", "/v2/models", "/v1/messages/", "/v1/messages/count", "/..", "/%2e%2e/etc/passwd", "/slots/1", "/v1/responses/a/b"])
    method = draw.choice(["GET", "POST"])
    wrong = draw.choice([("GET", "/v1/chat/completions"), ("PUT", "/v1/messages"), ("DELETE", "/v1/models"), ("POST", "/"), ("PATCH", "/health")])
    return draw.choice(
        [
            (f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode(), {404}),
            (f"{wrong[0]} {wrong[1]} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode(), {405}),
        ]
    )


def broken_json(draw):
    path = draw.choice(list(APIS))
    text = json.dumps(good(path))
    cut = draw.randint(1, len(text) - 1)
    return draw.choice(
        [
            (post(path, b""), {400}),
            (post(path, text[:cut].encode()), {400}),
            (post(path, (text + draw.choice("]}x,")).encode()), {400}),
            (post(path, bytes(draw.choices(range(256), k=draw.randint(1, 60)))), {400}),
            (post(path, draw.choice([b"null", b"[]", b"1", b'"text"', b"true"])), {400}),
            (post(path, b"[" * draw.randint(200, 100_000)), {400}),
            (post(path, b'{"a":' * draw.randint(200, 50_000)), {400}),
            (post(path, text.replace("a", "\xff").encode("latin-1")), {400}),
            (post(path, gzip.compress(text.encode())[:-9], "Content-Encoding: gzip"), {400}),
            (post(path, text.encode(), "Content-Encoding: br"), {400}),
        ]
    )


def broken_field(draw):
    path = draw.choice(list(APIS))
    body = good(path)
    odd = draw.choice([{}, {"a": 1}, 7, True, [7], [[]], [{"role": "nobody", "content": "x"}], [{"role": "user", "content": 5}]])
    kind = draw.randrange(4)
    if kind == 0:
        body.pop(APIS[path])
    elif kind == 1:
        body[APIS[path]] = [[1, "x"]] if path == "/v1/completions" else odd
        if path == "/v1/responses" and odd == [7]:
            body["input"] = {}
    elif kind == 2:
        body["temperature"] = draw.choice(["hot", -1, [], {}])
    else:
        body["stream"] = draw.choice(["yes", 1, [], {}])
    return post(path, body), {400}


KINDS = [broken_head, broken_framing, wrong_place, broken_json, broken_field]


class Bare(unittest.TestCase):
    """Tests with one server."""

    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--temp", "0", *cls.flags)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, (status, cls.server.log[-5:])

    def connect(self, buffer=None):
        stream = socket.socket()
        if buffer:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        stream.settimeout(60)
        stream.connect((self.server.host, self.server.port))
        return stream

    def exchange(self, data):
        """Sends, and reads one whole answer or to the end: status and body."""
        with self.connect() as stream:
            try:
                stream.sendall(data)
            except OSError:
                pass  # the answer may be there already
            return self.answer(stream)

    def answer(self, stream):
        data = b""
        while True:
            head, found, body = data.partition(b"\r\n\r\n")
            if found:
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if lengths and len(body) >= int(lengths[0].split(b":")[1]):
                    break
            piece = stream.recv(1 << 16)
            if not piece:
                break
            data += piece
        if not data:
            return None, b""
        return int(data.split(b" ")[1]), data.partition(b"\r\n\r\n")[2]

    def ask(self, path="/v1/chat/completions", **more):
        status, body = self.exchange(post(path, good(path, **more)))
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def slots(self):
        return json.loads(self.exchange(b"GET /slots HTTP/1.1\r\nHost: x\r\n\r\n")[1])

    def until_idle(self, seconds=20):
        end = time.monotonic() + seconds
        while (now := self.slots())["queued"] or any(slot["state"] != "idle" for slot in now["slots"]):
            self.assertLess(time.monotonic(), end, f"still busy: {now}")
            time.sleep(0.02)

    def until(self, what, there):
        end = time.monotonic() + 30
        while not there():
            self.assertLess(time.monotonic(), end, f"never: {what}")
            time.sleep(0.001)

    def endless(self, stream, path="/v1/completions"):
        """A request whose reply lasts long."""
        return post(path, good(path, stream=stream, logit_bias=ENDS) | {"max_tokens": 3500})


class Raw(Bare):
    flags = ("--batched-session", "4", "--metrics")

    def test_a_thousand_broken_requests_get_the_right_status(self):
        seed = random.randrange(1 << 32)

        def check(number):
            draw = random.Random(seed + number)
            kind = KINDS[number % len(KINDS)]
            data, right = kind(draw)
            status, body = self.exchange(data)
            if status not in right:
                return f"seed {seed + number} {kind.__name__}: {status}, not {right}: {data[:150]!r}: {body[:300]!r}"
            if kind in (wrong_place, broken_json, broken_field):
                error = json.loads(body)
                anthropic = data.split(b" ")[1].startswith(b"/v1/messages")
                if (error.get("type") == "error") != anthropic or not error["error"]["message"]:
                    return f"seed {seed + number}: {error}"
            return None

        with ThreadPoolExecutor(8) as pool:
            wrong = [text for text in pool.map(check, range(1000)) if text]
        self.assertEqual(wrong, [])
        self.assertIn("Paris", self.ask(max_tokens=30, thinking=False)["choices"][0]["message"]["content"])
        self.assertNotIn("panicked", "".join(self.server.log))

    def test_bodies_that_end_early_are_no_requests(self):
        for _ in range(20):
            with self.connect() as stream:
                stream.sendall(post("/v1/messages", good("/v1/messages"))[:-5])
        self.until_idle()

    def test_clients_that_vanish_are_not_served_on(self):
        for streams in [False, True]:
            for half in [False, True]:
                sockets = [self.connect() for _ in range(10)]
                for stream in sockets:
                    stream.sendall(self.endless(streams))
                end = time.monotonic() + 30
                while all(slot["state"] == "idle" for slot in self.slots()["slots"]):
                    self.assertLess(time.monotonic(), end, "nothing began")
                for stream in sockets:
                    if half:
                        stream.shutdown(socket.SHUT_WR)
                    else:
                        stream.close()
                self.until_idle(5)
                for stream in sockets:
                    stream.close()
        began = time.monotonic()
        self.ask()
        self.assertLess(time.monotonic() - began, 10)

    def test_a_slow_reader_slows_nobody_but_itself(self):
        with self.connect(buffer=4096) as slow:
            body = good("/v1/completions", stream=True, logit_bias=ENDS, max_tokens=600)
            slow.sendall(post("/v1/completions", body, "Connection: close"))
            text = slow.recv(500)
            for _ in range(3):
                self.ask()
            slow.settimeout(60)
            while piece := slow.recv(2000):
                text += piece
                time.sleep(0.002)
        self.assertIn(b"data: [DONE]\n\n", text)
        self.assertEqual(text.count(b'"finish_reason":"length"'), 1)

    def test_two_hundred_connections_at_once(self):
        answers, failures, gate = [], [], threading.Barrier(200)

        def one(index):
            try:
                with self.connect() as stream:
                    stream.settimeout(300)
                    gate.wait(60)
                    streams = index % 2 == 0
                    stream.sendall(post("/v1/chat/completions", good("/v1/chat/completions", stream=streams, thinking=False), "Connection: close"))
                    status, body = self.answer(stream)
                    complete = body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") if streams else b'"choices"' in body
                    answers.append((status, complete))
            except OSError as error:
                failures.append(error)

        threads = [threading.Thread(target=one, args=(index,)) for index in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((failures, len(answers)), ([], 200))
        self.assertEqual(set(answers), {(200, True)})
        metrics = self.exchange(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")[1].decode()
        self.assertIn("/v1/chat/completions", metrics)


class Left(Bare):
    """One session, so that whoever comes waits for whoever was there."""

    flags = ("--batched-session", "1")

    def state(self):
        return self.slots()["slots"][0]["state"]

    def begun(self, streams, path="/v1/completions"):
        """A client whose reply is being written."""
        stream = self.connect()
        stream.sendall(self.endless(streams, path))
        self.until("a reply", lambda: self.state() == "decode")
        return [stream]

    def reading(self, streams):
        """A client whose prompt is being read; another one each time, or nothing of it were new."""
        prompt = f"{random.random()} " + "The fox met the bear at the river. " * 330
        stream = self.connect()
        stream.sendall(post("/v1/completions", good("/v1/completions", stream=streams) | {"prompt": prompt}))
        self.until("a prompt", lambda: self.state() == "prefill")
        return [stream]

    def waiting(self, streams):
        """A client in the queue, and the one that it waits for."""
        stream = self.connect()
        (first,) = self.begun(streams)
        stream.sendall(post("/v1/completions", good("/v1/completions", stream=streams)))
        self.until("a queue", lambda: self.slots()["queued"] == 1)
        return [stream, first]

    def served_soon_after(self, phase):
        """The next client must not wait for what those of a phase have asked for and no longer want."""
        took = []
        for _ in range(3):
            for stream in phase():
                stream.close()
            left = time.monotonic()
            self.ask()
            took.append(time.monotonic() - left)
        self.assertLess(sorted(took)[1], 1, took)

    def test_the_next_client_is_served_within_a_second_of_one_that_left(self):
        for phase in [self.waiting, self.reading]:
            for streams in [False, True]:
                with self.subTest(phase=phase.__name__, streams=streams):
                    self.served_soon_after(lambda: phase(streams))

    def test_a_reply_of_any_api_ends_when_its_client_leaves(self):
        for path in APIS:
            for streams in [False, True]:
                with self.subTest(path=path, streams=streams):
                    self.served_soon_after(lambda: self.begun(streams, path))

    def test_tokens_are_counted_while_a_reply_is_written(self):
        counted = good("/v1/messages", system="You answer in one short sentence. " * 50)
        usage = self.ask("/v1/messages", **counted)["usage"]
        right = usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
        self.assertGreater(right, 300)
        for streams in [False, True]:
            with self.subTest(streams=streams):
                (writer,) = self.begun(streams)
                (before,) = self.slots()["slots"]
                took = []
                for _ in range(5):
                    began = time.monotonic()
                    status, body = self.exchange(post("/v1/messages/count_tokens", counted))
                    took.append(time.monotonic() - began)
                    self.assertEqual((status, json.loads(body)), (200, {"input_tokens": right}))
                self.assertLess(sorted(took)[2], 1, took)
                # Whoever had to wait for the session would find another request there, or none.
                (after,) = self.slots()["slots"]
                self.assertEqual((after["state"], after["request_id"]), ("decode", before["request_id"]))
                writer.close()
                self.until_idle()

    def test_who_leaves_the_queue_ends_nobody_elses_reply(self):
        for streams in [False, True]:
            waiting, first = self.waiting(streams)
            waiting.close()
            self.until("an empty queue", lambda: self.slots()["queued"] == 0)
            self.assertEqual(self.state(), "decode")
            first.close()
            self.until_idle()


class Company(Bare):
    """Four sessions, of which none begins where an earlier one stopped: only company can make a difference."""

    flags = ("--batched-session", "4", "--state-anchors", "0", "--prefill-chunk", "64")
    seeds = range(1, 9)

    def draw(self, seed):
        """What is drawn with a seed for a prompt of several chunks; nothing of it may be known."""
        messages = [{"role": "user", "content": "The fox met the bear at the river. " * 20 + "What did the bear say?"}]
        answer = self.ask(messages=messages, seed=seed, temperature=0.8, max_tokens=64, logit_bias=ENDS)
        self.assertEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0, answer)
        return answer["choices"][0]["message"]

    def test_seeded_replies_are_the_same_alone_and_in_company(self):
        alone = {seed: self.draw(seed) for seed in self.seeds}
        with ThreadPoolExecutor(len(alone)) as pool:
            drawn = {seed: pool.submit(self.draw, seed) for seed in alone}
            self.until("company", lambda: [slot["state"] for slot in self.slots()["slots"]].count("decode") > 1)
            together = {seed: one.result() for seed, one in drawn.items()}
        for seed, reply in alone.items():
            with self.subTest(seed=seed):
                self.assertEqual(together[seed], reply)
        self.assertEqual(len({json.dumps(reply) for reply in alone.values()}), len(alone), "seeds that draw the same")


class Full(Bare):
    flags = ("--max-queue", "1")

    def test_a_full_queue_is_said_so(self):
        busy = [self.connect() for _ in range(6)]
        for stream in busy:
            stream.sendall(self.endless(False))
            time.sleep(0.1)
        status, body = self.exchange(post("/v1/messages", good("/v1/messages")))
        self.assertEqual((status, json.loads(body)["error"]["type"]), (429, "rate_limit_error"))
        for stream in busy:
            stream.close()
        self.until_idle()
        self.ask()


if __name__ == "__main__":
    unittest.main()
