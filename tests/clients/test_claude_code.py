"""A conversation as Claude Code sends it: ten turns, of which every one evaluates what is new in it and no more.

What makes that hard is all here: a billing line that changes with every request, marks for a cache that wander to the
newest message, thoughts with signatures, calls and their results, reminders inside and between turns, tokens counted
before every turn, and a request for a title beside the first one. The client keeps what the server streams and sends it
back, as the real one does; only what its user and its tools say was made up.
"""

import json
import tempfile
import unittest

from server import CONFIG, MODEL, Server, schema
from wire import events, most_evaluated, post

TURNS = 10
SYSTEM = """You are an agent that works on software in a terminal.

# Tone
Answer in one short sentence. Do not explain what you did. Do not add remarks before or after the answer.

# Doing tasks
- Read a file before you say what is in it. Never guess what a file holds.
- Prefer the tools to what you remember. When a tool fails, say so and stop.
- Run the tests of the project after a change, and report what failed.
- Never commit a change unless the user asks for it.

# Tools
- `read` reads one file, `list` one directory, and `bash` runs one command.
- Independent calls may be made together in one turn.
- The output of a tool may hold a `<system-reminder>`: it comes from the program and not from the user.

# Environment
Working directory: /home/user/project
Platform: linux
"""
REMINDER = "<system-reminder>\nThe list of tasks is empty. Do not mention this to the user.\n</system-reminder>"
CONTEXT = "<system-reminder>\nNotes of the project: the port is set in config.json and nowhere else.\n</system-reminder>"
QUESTIONS = [
    "What is the port in config.json?",
    "What is the capital of France?",
    "How many lines has notes.txt?",
    "What is 17 + 25?",
    "Is debug on in config.json?",
    "What is the host in config.json?",
    "What is the capital of Italy?",
]
RESULTS = {
    "read": CONFIG,
    "list": "main.py\nnotes.txt",
    "bash": "42 notes.txt",
}


def tool(name):
    description, parameters = schema(name)
    return {"name": name, "description": description, "input_schema": parameters}


class Client:
    """The agent: its history, and what it adds to it."""

    def __init__(self):
        self.messages, self.requests, self.replies = [], 0, []
        self.questions = iter(QUESTIONS)

    def system(self):
        """Three blocks, of which the first is another one each time."""
        self.requests += 1
        bill = f"x-anthropic-billing-header: cc_version=2.1.{self.requests}; cch={self.requests * 7919:05x};"
        return [{"type": "text", "text": text} for text in [bill, "You are a careful agent.", SYSTEM]]

    def body(self):
        """The next request, with the marks where they are this time."""
        system, messages = self.system(), json.loads(json.dumps(self.messages))
        for block in [system[-1], messages[-1]["content"][-1]]:
            block["cache_control"] = {"type": "ephemeral"}
        tools = [tool(name) for name in ["read", "bash", "list"]]
        tools[self.requests % len(tools)]["cache_control"] = {"type": "ephemeral"}
        return {
            "model": "claude-sonnet-4-5", "max_tokens": 400, "system": system, "messages": messages, "tools": tools,
            "thinking": {"type": "enabled", "budget_tokens": 300}, "temperature": 0,
            "metadata": {"user_id": f"user_{self.requests}"},
        }  # fmt: skip

    def say(self):
        """Adds the client's part of a turn, results of calls or the next question; returns its texts."""
        calls = [block for block in self.replies[-1] if block["type"] == "tool_use"] if self.replies else []
        if calls:
            texts = [RESULTS[call["name"]] for call in calls]
            content = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": text}]}
                for call, text in zip(calls, texts)
            ]
        else:
            texts = [next(self.questions)]
            content = [{"type": "text", "text": texts[0]}]
        turn = len(self.replies)
        if turn == 0:
            content.insert(0, {"type": "text", "text": CONTEXT})
        if turn % 3 == 1:
            # Behind the results, or beside the question.
            content.append({"type": "text", "text": REMINDER})
            texts.append(REMINDER)
        self.messages.append({"role": "user", "content": content})
        if turn == 5:
            # In a message of its own, which later turns still have.
            self.messages.append({"role": "system", "content": [{"type": "text", "text": "The branch is now `fix`."}]})
            texts.append("<system-reminder>\nThe branch is now `fix`.\n</system-reminder>")
        return texts

    def interrupt(self):
        """The user has stopped the reply, of which nothing is kept, and asks something else; returns the new texts."""
        texts = ["[Request interrupted by user]", "What is the capital of Spain?"]
        self.messages.append({"role": "user", "content": [{"type": "text", "text": text} for text in texts]})
        return texts

    def take(self, stream):
        """Keeps a streamed reply; returns its usage."""
        blocks, usage, names = [], {}, []
        for name, event in stream:
            names.append(name)
            if name == "message_start":
                usage = event["message"]["usage"]
            elif name == "content_block_start":
                blocks.append({**event["content_block"], "json": ""})
            elif name == "content_block_delta":
                delta, block = event["delta"], blocks[event["index"]]
                kind = delta["type"]
                if kind == "input_json_delta":
                    block["json"] += delta["partial_json"]
                else:
                    key = kind.removesuffix("_delta")
                    block[key] += delta[key]
            elif name == "message_delta":
                usage = {**usage, **event["usage"]}
                stop = event["delta"]["stop_reason"]
        assert names[-1] == "message_stop", names
        for block in blocks:
            arguments = block.pop("json")
            if block["type"] == "tool_use":
                block["input"] = json.loads(arguments)
        has_calls = any(block["type"] == "tool_use" for block in blocks)
        assert stop == ("tool_use" if has_calls else "end_turn"), (stop, blocks)
        # An empty text would be refused by the API's own servers, so the client drops it.
        blocks = [block for block in blocks if block.get("text") != ""]
        self.replies.append(blocks)
        self.messages.append({"role": "assistant", "content": blocks})
        return usage


def title(server):
    """A request beside the conversation: short, without tools, not streamed."""
    body = {
        "model": "claude-haiku-4-5", "max_tokens": 20, "temperature": 0, "thinking": {"type": "disabled"},
        "system": [{"type": "text", "text": "Write a title of three words for the conversation."}],
        "messages": [{"role": "user", "content": QUESTIONS[0]}],
    }  # fmt: skip
    status, answer = post(server, "/v1/messages?beta=true", body)
    assert status == 200, answer


def leave(server, body):
    """Asks, hears a part of the reply, and goes."""
    stream = events(server, "/v1/messages?beta=true", body)
    deltas = (name for name, _ in stream if name == "content_block_delta")
    for _ in range(5):
        next(deltas)
    stream.close()


class ClaudeCode(unittest.TestCase):
    def converse(self, start, restart_before=(), titles=(0,), interrupted=(), restart_in=()):
        """Ten turns; returns what was said, without ids."""
        server, client = start(), Client()
        try:
            for turn in range(TURNS):
                texts = client.say()
                if turn in restart_before:
                    self.assertEqual(server.stop(), 0)
                    server = start()
                body = client.body()
                status, counted = post(server, "/v1/messages/count_tokens", body)
                self.assertEqual(status, 200, counted)
                if turn in titles:
                    title(server)
                if turn in restart_in:
                    leave(server, body)
                    self.assertEqual(server.stop(), 0)
                    server = start()
                if turn in interrupted:
                    leave(server, body)
                    texts = client.interrupt()
                    body = client.body()
                usage = client.take(events(server, "/v1/messages?beta=true", {**body, "system": client.system()}))
                evaluated = usage["input_tokens"] + usage["cache_creation_input_tokens"]
                if turn == 0:
                    self.assertEqual(counted["input_tokens"], evaluated + usage["cache_read_input_tokens"])
                    self.assertGreater(evaluated, 600, "long enough for files")
                else:
                    most = most_evaluated(server, texts)
                    self.assertLessEqual(evaluated, most, (turn, usage, texts, client.replies[-2:]))
        finally:
            server.stop()
        calls = [block["name"] for reply in client.replies for block in reply if block["type"] == "tool_use"]
        self.assertGreaterEqual(len(calls), 4, calls)
        self.assertTrue(all(reply[0]["type"] == "thinking" for reply in client.replies))
        return [[{**block, "id": None} for block in reply] for reply in client.replies]

    def test_every_turn_evaluates_only_what_is_new(self):
        self.converse(lambda: Server("-c", "8192", "--batched-session", "2"))

    def test_an_interrupted_reply_costs_only_what_is_said_next(self):
        # After a question, and after results, whose calls were thought about.
        self.converse(lambda: Server("-c", "8192"), titles=(), interrupted=(2, 4, 7))

    def test_a_title_in_the_only_session_costs_the_conversation_nothing(self):
        with tempfile.TemporaryDirectory(prefix="q36-agent-") as folder:
            start = lambda: Server("-c", "8192", "--kv-disk-dir", folder)
            self.converse(start, titles=(0, 3, 4, 8))

    def test_a_restart_in_the_middle_of_a_reply_costs_only_that_reply(self):
        with tempfile.TemporaryDirectory(prefix="q36-agent-") as folder:
            self.converse(lambda: Server("-c", "8192", "--kv-disk-dir", folder), titles=(), restart_in=(2, 4, 7))

    def test_a_restart_between_turns_is_not_noticed(self):
        with tempfile.TemporaryDirectory(prefix="q36-agent-") as folder:
            start = lambda: Server("-c", "8192", "--batched-session", "2", "--kv-disk-dir", folder)
            said = self.converse(start, restart_before=(1, 2, 5, 6, 9))
        self.assertEqual(said, self.converse(lambda: Server("-c", "8192", "--batched-session", "2")))


if __name__ == "__main__":
    unittest.main()
