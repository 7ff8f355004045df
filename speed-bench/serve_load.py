#!/usr/bin/env python3
"""Many clients at one `q36 serve`: how fast it is, how long they wait, and whether anybody gets what is not his.

    speed-bench/serve_load.py --sessions 4 --seconds 600
    speed-bench/serve_load.py --sessions 8 --seconds 600 --tie 0.5 --json load.json -- -m MODEL.gguf -c 16384

A quiet server with one session first answers a fixed set of conversations, greedily, one after the other. Then as many
clients as wanted have the same conversations for so long, all at once and streaming, with a server of few sessions, so
that sessions change hands all the time. Each answer must be the quiet one: another text is a state that was mixed up.
On a GPU a prompt that was evaluated at once and one that grew by replies differ in the last bits; `--tie` is the
difference of log-probabilities up to which another token is as good. A conversation goes on from the quiet answers, so
one difference makes no others.

Everything behind `--` goes to both servers; without it that is the demo model on the processor. Needs no package. The
exit status is 1 where an answer was wrong, a request failed, or somebody was passed over for too long.
"""

import argparse
import json
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice, takewhile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/clients"))
from server import CONFIG, DEMO, QUESTION, Server, memory_mib, schema  # noqa: E402

# Longest that a request may take from end to end, in seconds.
LIMIT = 900
OFF = {"thinking": False, "chat_template_kwargs": {"preserve_thinking": True}}
LOGPROBS = {"/v1/chat/completions": {"logprobs": True, "top_logprobs": 8}, "/v1/completions": {"logprobs": 5}}
CAPITALS = ["France", "Italy", "Spain", "Japan", "Germany", "Norway", "Greece", "Poland"]
WORDS = "the fox met bear at a river king went to old town by sea in year and saw red house under tree".split()


# --- what is said: a script is a list of steps, a step makes the body of a request from the answers before it -------------


@dataclass
class Script:
    """A conversation: `say(turn, messages)` adds what comes before the answer of a turn."""

    name: str
    path: str
    turns: int
    say: callable
    body: dict = field(default_factory=dict)

    def request(self, messages):
        if self.path == "/v1/completions":
            return {"prompt": messages[-1]["content"], "temperature": 0, "stream": True, **self.body}
        return {"messages": messages, "temperature": 0, "stream": True, **self.body}


def prose(seed, words):
    """Text that no other seed has."""
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def talk(number):
    """Several questions in a row, behind instructions of some length that only this conversation has."""

    def say(turn, messages):
        if turn == 0:
            messages.append({"role": "system", "content": f"You answer in one short sentence. {prose(number, 60 + 40 * (number % 5))}."})
        place = CAPITALS[(number + turn) % len(CAPITALS)]
        messages.append({"role": "user", "content": f"What is the capital of {place}?"})

    return Script(f"talk-{number}", "/v1/chat/completions", 4, say, {"max_tokens": 24, **OFF})


def question(number):
    """One question with a bounded thought."""

    def say(_, messages):
        messages.append({"role": "user", "content": f"{prose(1000 + number, 10 + number)}. What is the capital of {CAPITALS[number % len(CAPITALS)]}?"})

    return Script(f"question-{number}", "/v1/messages", 1, say, {"max_tokens": 64, "thinking": {"type": "enabled", "budget_tokens": 32}})


def prompt(number):
    """A plain text to be continued."""

    def say(_, messages):
        messages.append({"role": "user", "content": prose(2000 + number, 20 + 30 * number)})

    return Script(f"prompt-{number}", "/v1/completions", 1, say, {"max_tokens": 32})


def agent(number):
    """A question, a call, its result, the answer."""
    names = ["list", "bash", "read"]
    tools = []
    for name in names:
        description, parameters = schema(name)
        tools.append({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}})

    def say(turn, messages):
        if turn == 0:
            messages.append({"role": "system", "content": f"You work in the directory {prose(3000 + number, 12).replace(' ', '/')}."})
            messages.append({"role": "user", "content": QUESTION})
            return
        calls = messages[-1].get("tool_calls") or []
        for call in calls:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": CONFIG.replace("8123", str(8000 + number))})
        if not calls:
            messages.append({"role": "user", "content": "And the host?"})

    return Script(f"agent-{number}", "/v1/chat/completions", 3, say, {"max_tokens": 80, "tools": tools, **OFF})


def scripts():
    """Everything that is said: long and short, on three of the four APIs."""
    return [talk(n) for n in range(16)] + [question(n) for n in range(6)] + [prompt(n) for n in range(6)] + [agent(n) for n in range(6)]


# --- one request ----------------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """What came back, and when (seconds on the monotonic clock)."""

    thought: str = ""
    text: str = ""
    calls: list = field(default_factory=list)
    finish: str = ""
    sent: float = 0.0
    first: float = 0.0
    ended: float = 0.0
    gap: float = 0.0
    output_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    logprobs: list = field(default_factory=list)

    def said(self):
        """All that must be the same; ids of calls are random."""
        return self.thought, self.text, [(call["name"], call["arguments"]) for call in self.calls], self.finish

    def message(self):
        message = {"role": "assistant", "content": self.text}
        if self.calls:
            function = lambda call: {"name": call["name"], "arguments": call["arguments"]}  # noqa: E731
            message["tool_calls"] = [{"id": call["id"], "type": "function", "function": function(call)} for call in self.calls]
        return message


def events(response):
    """The data of each event, and nothing for keepalives."""
    for line in response:
        if line.startswith(b"data: ") and line != b"data: [DONE]\n":
            yield json.loads(line[6:])


def read_openai(answer, event):
    """Takes a chunk of chat or completions; whether it holds a piece of the reply."""
    if "error" in event:
        raise RuntimeError(f"the stream failed: {event['error']}")
    if usage := event.get("usage"):
        answer.output_tokens, answer.prompt_tokens = usage["completion_tokens"], usage["prompt_tokens"]
        answer.cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
    had = False
    for choice in event["choices"]:
        delta = choice.get("delta", choice)
        answer.finish = choice.get("finish_reason") or answer.finish
        answer.thought += delta.get("reasoning_content") or ""
        text = delta.get("content") or delta.get("text") or ""
        answer.text += text
        had = had or bool(text or delta.get("reasoning_content") or delta.get("tool_calls"))
        for call in delta.get("tool_calls") or []:
            if "id" in call:
                answer.calls.append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
            answer.calls[call["index"]]["arguments"] += call["function"].get("arguments", "")
        answer.logprobs += token_logprobs(choice.get("logprobs") or {})
    return had


def token_logprobs(told):
    """The tokens of a piece as chat tells them, whichever of the two APIs it came from."""
    if "tokens" not in told:
        return told.get("content") or []
    rows = zip(told["tokens"], told["token_logprobs"], told["top_logprobs"])
    top = lambda row: [{"token": token, "logprob": value} for token, value in row.items()]  # noqa: E731
    return [{"token": token, "logprob": value, "top_logprobs": top(row)} for token, value, row in rows]


def read_messages(answer, event):
    """Takes an event of messages; whether it holds a piece of the reply."""
    if event["type"] == "error":
        raise RuntimeError(f"the stream failed: {event['error']}")
    if event["type"] == "message_delta":
        usage = event["usage"]
        answer.finish, answer.output_tokens = event["delta"]["stop_reason"], usage["output_tokens"]
        answer.cached_tokens = usage["cache_read_input_tokens"]
        answer.prompt_tokens = usage["input_tokens"] + usage["cache_creation_input_tokens"] + answer.cached_tokens
    delta = event.get("delta", {})
    answer.thought += delta.get("thinking", "")
    answer.text += delta.get("text", "")
    return bool(delta.get("thinking") or delta.get("text"))


def ask(url, script, messages, more=None):
    """Sends one request, and reads its stream to the end."""
    body = {**script.request(messages), **(more or {})}
    if script.path != "/v1/messages":
        body["stream_options"] = {"include_usage": True}
    answer = Answer(sent=time.monotonic())
    request = urllib.request.Request(url + script.path, json.dumps(body).encode())
    take = read_messages if script.path == "/v1/messages" else read_openai
    with urllib.request.urlopen(request, timeout=LIMIT) as response:
        last = 0.0
        for event in events(response):
            if take(answer, event):
                now = time.monotonic()
                answer.first = answer.first or now
                answer.gap = max(answer.gap, now - last) if last else 0.0
                last = now
    answer.ended = time.monotonic()
    answer.first = answer.first or answer.ended
    if not answer.finish:
        raise RuntimeError("the stream ended without a finish")
    return answer


# --- what is right --------------------------------------------------------------------------------------------------------


def quiet_answers(all_scripts, flags, patience, is_exact):
    """The answer of each turn of each script, from a server that serves nothing else."""
    server = Server(*flags, model=(), patience=patience)
    try:
        known = {}
        for script in all_scripts:
            more = None if is_exact else LOGPROBS.get(script.path)
            messages, answers = [], []
            for turn in range(script.turns):
                script.say(turn, messages)
                answers.append(ask(server.url, script, messages, more))
                messages.append(answers[-1].message())
            known[script.name] = answers
        return known
    finally:
        server.stop()


def judge(quiet, other, bound):
    """What a difference is: a `tie` where the quiet server found the other token as good within `bound` at the place
    where the texts part, `unjudged` in thoughts and calls, whose probabilities are not told, else a `mismatch`."""
    if bound <= 0:
        return "mismatch"
    if not quiet.logprobs or quiet.thought != other.thought or quiet.calls or other.calls:
        return "unjudged"
    before = ""
    for token in quiet.logprobs:
        if not other.text.startswith(before + token["token"]):
            rest = other.text[len(before) :]
            good = [top["token"] for top in token["top_logprobs"] if token["logprob"] - top["logprob"] <= bound]
            return "tie" if not rest or any(rest.startswith(text) for text in good) else "mismatch"
        before += token["token"]
    return "tie"


# --- the load -------------------------------------------------------------------------------------------------------------


@dataclass
class Record:
    """What is kept of a request."""

    name: str
    answer: Answer = None
    kind: str = "same"
    said: str = ""
    error: str = None


class Load:
    """Clients that converse until the time is over."""

    def __init__(self, url, all_scripts, known, options):
        self.url, self.scripts, self.known, self.options = url, all_scripts, known, options
        self.records, self.lock = [], threading.Lock()
        self.until = time.monotonic() + options.seconds

    def client(self, number):
        """Has every conversation, in an order of its own, again and again."""
        draw = random.Random(number)
        while time.monotonic() < self.until:
            for script in draw.sample(self.scripts, len(self.scripts)):
                if time.monotonic() < self.until:
                    self.converse(script)

    def converse(self, script):
        messages = []
        for turn in range(script.turns):
            script.say(turn, messages)
            record = self.one(script, turn, messages)
            with self.lock:
                self.records.append(record)
            if record.error or time.monotonic() >= self.until:
                return
            answer = record.answer if record.kind == "same" else self.known[script.name][turn]
            messages.append(answer.message())

    def one(self, script, turn, messages):
        record = Record(f"{script.name}/{turn}")
        try:
            answer = record.answer = ask(self.url, script, messages)
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            detail = error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else ""
            record.error = f"{error} {detail}".strip()
            return record
        quiet = self.known[script.name][turn]
        if answer.said() != quiet.said():
            record.kind = judge(quiet, answer, self.options.tie)
            record.said = f"{answer.said()} instead of {quiet.said()}"
        return record

    def run(self):
        threads = [threading.Thread(target=self.client, args=(n,), daemon=True) for n in range(self.options.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self.options.seconds + LIMIT)
        return self.records


def overtakings(answers):
    """For the request that was passed most often: how many were sent after it and were answered first."""
    by_sent = sorted(answers, key=lambda answer: answer.sent)
    most = 0
    for index, answer in enumerate(by_sent):
        later = takewhile(lambda other: other.sent < answer.first, islice(by_sent, index + 1, None))
        most = max(most, sum(other.first < answer.first for other in later))
    return most


def share(values, part):
    """The value below which `part` of all are."""
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0.0


def figures(records, took, options):
    """What is reported."""
    answers = [record.answer for record in records if record.answer and not record.error]
    first = [answer.first - answer.sent for answer in answers]
    prompts = sum(answer.prompt_tokens for answer in answers)
    kinds = Counter(record.kind for record in records)
    return {
        "sessions": options.sessions,
        "clients": options.clients,
        "seconds": round(took, 1),
        "requests": len(records),
        "output_tokens_per_second": round(sum(answer.output_tokens for answer in answers) / took, 2),
        "prompt_tokens_per_second": round(prompts / took, 2),
        "prompt_share_cached": round(sum(answer.cached_tokens for answer in answers) / max(prompts, 1), 3),
        "first_token_median_s": round(share(first, 0.5), 3),
        "first_token_p99_s": round(share(first, 0.99), 3),
        "first_token_longest_s": round(max(first, default=0.0), 3),
        "gap_longest_s": round(max((answer.gap for answer in answers), default=0.0), 3),
        "overtaken_most": overtakings(answers),
        "mismatches": kinds["mismatch"],
        "ties": kinds["tie"],
        "unjudged": kinds["unjudged"],
        "errors": sum(record.error is not None for record in records),
    }


def measure(options, known=None):
    """Everything: figures, and lines about what was odd. `known` are quiet answers that are there already."""
    all_scripts = scripts()
    flags = options.flags or list(DEMO)
    if known is None:
        known = quiet_answers(all_scripts, flags, options.patience, options.tie <= 0)
    server = Server("--batched-session", str(options.sessions), *flags, model=(), patience=options.patience)
    try:
        pid = server.process.pid
        before = memory_mib(pid, "VmRSS")
        halfway = []
        timer = threading.Timer(options.seconds / 2, lambda: halfway.append(memory_mib(pid, "VmRSS")))
        timer.start()
        began = time.monotonic()
        records = Load(server.url, all_scripts, known, options).run()
        result = figures(records, time.monotonic() - began, options)
        result["memory_before_mib"], result["memory_halfway_mib"] = before, (halfway or [None])[0]
        result["memory_after_mib"], result["memory_peak_mib"] = memory_mib(pid, "VmRSS"), memory_mib(pid, "VmHWM")
    finally:
        status = server.stop()
    result["server_status"] = status
    odd = [record for record in records if record.said or record.error]
    return result, [f"{record.name}: {record.error or record.kind + ': ' + record.said}" for record in odd]


def verdict(result, options):
    """What is not as it should be. Requests are served in the order in which they come: while one waits, each of the
    other clients may be answered a few times, short ones beside a long prompt, but not again and again."""
    wrong = [name for name in ("mismatches", "errors", "server_status") if result[name] != 0]
    if result["overtaken_most"] > 2 * options.clients:
        wrong.append("overtaken_most")
    if result["requests"] == 0:
        wrong.append("requests")
    return wrong


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=4, metavar="N", help="resident sessions of the server (4)")
    parser.add_argument("--clients", type=int, default=32, metavar="N", help="clients at once (32)")
    parser.add_argument("--seconds", type=float, default=60, metavar="S", help="how long new requests are made (60)")
    parser.add_argument("--tie", type=float, default=0.0, metavar="X", help="log-probability within which tokens are as good (0)")
    parser.add_argument("--patience", type=float, default=600, metavar="S", help="seconds that a server may take to load (600)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("flags", nargs="*", metavar="-- FLAG", help="flags of q36 serve")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    result, said = measure(options)
    for line in said[:20]:
        print(line)
    for name, value in result.items():
        print(f"{name:26} {value}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    wrong = verdict(result, options)
    print("wrong: " + ", ".join(wrong) if wrong else "all is well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
