#!/usr/bin/env python3
"""Many clients at one `q36 serve`: how fast it is, how long they wait, and whether anybody gets what is not his.

    speed-bench/serve_load.py --sessions 4 --seconds 600
    speed-bench/serve_load.py --sessions 8 --seconds 600 --json load.json -- -m MODEL.gguf -c 16384

As many clients as wanted have a fixed set of conversations for so long, greedily, all at once and streaming, with a
server of few sessions, so that sessions change hands all the time. Then a quiet server with one session has each
conversation that came of it again, alone, and every answer must be the quiet one, to the letter: another text is a
state that was mixed up.

On a GPU a prompt that was evaluated at once and one that grew by replies differ in the last bits, and a model with
random weights makes other texts of that. So an answer may also be one that the quiet server gives where it came to the
prompt in another way: begun at an earlier turn, gone on to a later one, and from there to this one. That is all that may
differ, whatever else runs. States in files begin elsewhere: on a GPU leave `--kv-disk-dir` out.

Everything behind `--` goes to both servers, but for `--kv-disk-dir`, which the quiet one has not; without it that is the
demo model on the processor. Needs no package. The exit status is 1 where an answer was wrong, a request failed, or
somebody was passed over for too long.
"""

import argparse
import json
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/clients"))
from server import CONFIG, DEMO, QUESTION, Server, memory_mib, schema  # noqa: E402

# Longest that a request may take from end to end, in seconds.
LIMIT = 900
# A reply that is hardly the greedy one.
OTHER = {"temperature": 1, "max_tokens": 2}
OFF = {"thinking": False, "chat_template_kwargs": {"preserve_thinking": True}}
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

    def said(self):
        """All that must be the same; ids of calls are random."""
        return self.thought, self.text, tuple((call["name"], call["arguments"]) for call in self.calls), self.finish

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
    return had


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


class Way(NamedTuple):
    """How a session came to the prompt of a turn: evaluated anew at turn `start`, served up to turn `last`, whose reply
    is the conversation's, or another that gave way."""

    start: int
    last: int
    other: bool = False


def ways(turn):
    """All ways to a turn, the likeliest first: anew, live from the turn before, and what edits and other clients with the
    same conversation leave."""
    live = [Way(start, turn - 1) for start in reversed(range(turn))]
    kept = [Way(start, last, other) for last in reversed(range(turn)) for start in reversed(range(last + 1)) for other in (True, False)]
    return [Way(turn, turn), *live, *(way for way in kept if way not in live)]


class Quiet:
    """A server that serves nobody else. It runs while there are questions to it."""

    def __init__(self, flags, patience=600):
        self.flags, self.patience, self.server = without_disk(flags), patience, None
        # For each beginning of a conversation: the answers that may follow, by what they say, and the ways that were not
        # tried yet.
        self.found, self.untried = {}, {}

    def stop(self):
        if self.server:
            self.server.stop()
        self.server = None

    def same(self, script, before, answer):
        """Its own answer that is like this one behind those before it, if it can give one."""
        key = (script.name, *(one.said() for one in before))
        found = self.found.setdefault(key, {})
        untried = self.untried.setdefault(key, ways(len(before)))
        while answer.said() not in found and untried:
            own = self.converse(script, before, untried.pop(0))
            found.setdefault(own.said(), own)
        return found.get(answer.said())

    def expected(self, script, before):
        """What it was found to say there."""
        return list(self.found[(script.name, *(one.said() for one in before))])

    def converse(self, script, before, way):
        """Its answer behind those, where it comes to it in that way."""
        self.server = self.server or Server("--batched-session", "1", *self.flags, model=(), patience=self.patience)
        # The session is somebody else's until then.
        ask(self.server.url, Script("spacer", "/v1/completions", 1, None, {"max_tokens": 1}), [{"content": "Somebody else."}])
        messages = []
        for turn, answer in enumerate(before):
            script.say(turn, messages)
            if way.start <= turn <= way.last:
                ask(self.server.url, script, messages, OTHER if way.other and turn == way.last else None)
            messages.append(answer.message())
        script.say(len(before), messages)
        return ask(self.server.url, script, messages)


def without_disk(flags):
    """Flags without the folder of saved sessions."""
    pairs = zip(flags, [None, *flags])
    return [flag for flag, last in pairs if "--kv-disk-dir" not in (flag, last) and not flag.startswith("--kv-disk-dir=")]


def judge(records, all_scripts, quiet):
    """Marks the records of answers that the quiet server does not give, and stops it."""
    by_name = {script.name: script for script in all_scripts}
    before = {}
    for record in records:
        if record.error:
            continue
        # Its own answers, whose calls it knows by their ids.
        history = before.setdefault(record.conversation, [])
        own = quiet.same(by_name[record.script], history, record.answer)
        if own is None:
            expected = quiet.expected(by_name[record.script], history)
            record.said = f"{record.answer.said()} instead of {' or '.join(map(str, expected))}"
        history.append(own or record.answer)
    quiet.stop()


# --- the load -------------------------------------------------------------------------------------------------------------


@dataclass
class Record:
    """What is kept of a request."""

    script: str
    turn: int
    # Which of all conversations it belongs to.
    conversation: tuple
    answer: Answer = None
    said: str = ""
    error: str = None


class Load:
    """Clients that converse until the time is over."""

    def __init__(self, url, all_scripts, options):
        self.url, self.scripts, self.options = url, all_scripts, options
        self.records, self.lock = [], threading.Lock()
        self.until = time.monotonic() + options.seconds

    def client(self, number):
        """Has every conversation, in an order of its own, again and again."""
        draw, count = random.Random(number), 0
        while time.monotonic() < self.until:
            for script in draw.sample(self.scripts, len(self.scripts)):
                if time.monotonic() < self.until:
                    self.converse(script, (number, count))
                    count += 1

    def converse(self, script, conversation):
        messages = []
        for turn in range(script.turns):
            script.say(turn, messages)
            record = self.one(Record(script.name, turn, conversation), script, messages)
            with self.lock:
                self.records.append(record)
            if record.error or time.monotonic() >= self.until:
                return
            messages.append(record.answer.message())

    def one(self, record, script, messages):
        try:
            record.answer = ask(self.url, script, messages)
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            detail = error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else ""
            record.error = f"{error} {detail}".strip()
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
    answers = [record.answer for record in records if not record.error]
    first = [answer.first - answer.sent for answer in answers]
    prompts = sum(answer.prompt_tokens for answer in answers)
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
        "mismatches": sum(bool(record.said) for record in records),
        "errors": sum(record.error is not None for record in records),
    }


def measure(options, quiet=None):
    """Everything: figures, and lines about what was odd. `quiet` may know answers already."""
    all_scripts = scripts()
    flags = options.flags or list(DEMO)
    server = Server("--batched-session", str(options.sessions), *flags, model=(), patience=options.patience)
    try:
        pid = server.process.pid
        before = memory_mib(pid, "VmRSS")
        halfway = []
        timer = threading.Timer(options.seconds / 2, lambda: halfway.append(memory_mib(pid, "VmRSS")))
        timer.start()
        began = time.monotonic()
        records = Load(server.url, all_scripts, options).run()
        took = time.monotonic() - began
        result = {}
        result["memory_before_mib"], result["memory_halfway_mib"] = before, (halfway or [None])[0]
        result["memory_after_mib"], result["memory_peak_mib"] = memory_mib(pid, "VmRSS"), memory_mib(pid, "VmHWM")
    finally:
        status = server.stop()
    # One model at a time: the quiet server comes when the other has gone.
    judge(records, all_scripts, quiet or Quiet(flags, options.patience))
    result = {**figures(records, took, options), **result, "server_status": status}
    odd = [record for record in records if record.said or record.error]
    return result, [f"{record.script}/{record.turn}: {record.error or record.said}" for record in odd]


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
