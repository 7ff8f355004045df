"""A conversation as Codex sends it: ten turns, of which every one evaluates what is new in it and no more.

What makes that hard is all here: instructions and a developer's message, an environment in a user's message, tools of
every kind, thoughts that come back sealed and without their ids, calls that a plan goes beside, output as parts, and
either the whole history each time (`store` false) or only what is new behind `previous_response_id`. The client keeps
what the server streams; only what its user and its tools say was made up.
"""

import json
import tempfile
import unittest

from server import CONFIG, MODEL, Server, schema
from wire import events, most_evaluated, post

TURNS = 10
INSTRUCTIONS = """You are a coding agent that runs in a terminal.

# How you work
- Answer in one short sentence, in plain text.
- Read a file before you say what is in it.
- Keep working until the question of the user is answered.
- Do not guess. When a command fails, say so.

# Tools
`bash` runs a command, `read` reads a file, `list` lists a directory. Patches are applied with `apply_patch`.
"""
DEVELOPER = "<permissions instructions>\nThe sandbox lets you read everything and write to the project.\n</permissions instructions>"
ENVIRONMENT = "<environment_context>\n  <cwd>/home/user/project</cwd>\n  <shell>bash</shell>\n</environment_context>"
QUESTIONS = [
    "What is the port in config.json?",
    "What is the capital of France?",
    "How many lines has notes.txt?",
    "What is 17 + 25?",
    "Is debug on in config.json?",
    "What is the host in config.json?",
    "What is the capital of Italy?",
]
RESULTS = {"read": CONFIG, "bash": "42 notes.txt", "list": "main.py"}


def function(name):
    description, parameters = schema(name)
    return {"type": "function", "name": name, "description": description, "strict": False, "parameters": parameters}


TOOLS = [
    *(function(name) for name in ["read", "bash", "list"]),
    {"type": "custom", "name": "apply_patch", "description": "Applies a patch.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/s"}},
    {"type": "local_shell"},
    {"type": "web_search"},
]


class Client:
    """The agent: its history, and what it adds to it. `by_id` leaves the history to the server."""

    def __init__(self, by_id):
        self.by_id, self.items, self.new, self.replies, self.last = by_id, [], [], [], None
        self.questions = iter(QUESTIONS)
        self.add(self.message("developer", DEVELOPER), self.message("user", ENVIRONMENT))

    @staticmethod
    def message(role, text):
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}

    def add(self, *items):
        self.items += items
        self.new += items

    def say(self):
        """Adds the client's part of a turn; returns its texts."""
        calls = [item for item in self.replies[-1] if item["type"] == "function_call"] if self.replies else []
        if not calls:
            question = next(self.questions)
            self.add(self.message("user", question))
            return [question]
        texts = [RESULTS[call["name"]] for call in calls]
        for index, (call, text) in enumerate(zip(calls, texts)):
            # As a text, or as parts.
            output = [{"type": "input_text", "text": text}] if (len(self.replies) + index) % 2 else text
            self.add({"type": "function_call_output", "call_id": call["call_id"], "output": output})
        return texts

    def body(self):
        more = {"previous_response_id": self.last, "store": True} if self.by_id else {"store": False}
        return {
            "model": "gpt-5-codex", "instructions": INSTRUCTIONS, "tools": TOOLS, "tool_choice": "auto",
            "parallel_tool_calls": True, "reasoning": {"effort": "medium", "summary": "auto"}, "temperature": 0,
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0198a", "max_output_tokens": 1200,
            "input": self.new if self.by_id and self.last else self.items, **more,
        }  # fmt: skip

    def forget(self):
        """What a server that has restarted does not know is sent whole."""
        self.last = None

    def take(self, stream):
        """Keeps a streamed reply; returns its usage."""
        items, deltas, last = [], {}, None
        for number, (name, event) in enumerate(stream):
            assert (event["type"], event["sequence_number"]) == (name, number), (name, event)
            assert last is None, "an event behind the last one"
            if name.endswith(".delta"):
                deltas[event["item_id"]] = deltas.get(event["item_id"], "") + event["delta"]
            elif name == "response.output_item.done":
                items.append(event["item"])
            elif name in ("response.completed", "response.incomplete", "response.failed"):
                last = event["response"]
        assert last["status"] == "completed", last
        assert items == last["output"], (items, last["output"])
        for item in items:
            texts = {
                "reasoning": lambda: item["summary"][0]["text"],
                "message": lambda: item["content"][0]["text"],
                "function_call": lambda: item["arguments"],
            }
            assert deltas.get(item["id"], "") == texts[item["type"]](), (item, deltas)
        self.replies.append(items)
        self.items += [self.replayed(item) for item in items]
        self.new, self.last = [], last["id"]
        return last["usage"]

    @staticmethod
    def replayed(item):
        """Of a thought only the seal comes back, and nothing keeps its id."""
        item = {key: value for key, value in item.items() if key not in ("id", "status")}
        return {**item, "summary": [], "content": None} if item["type"] == "reasoning" else item


class Codex(unittest.TestCase):
    def converse(self, start, by_id, restart_before=()):
        """Ten turns; returns what was said, without ids."""
        server, client = start(), Client(by_id)
        try:
            for turn in range(TURNS):
                texts = client.say()
                if turn in restart_before:
                    self.assertEqual(server.stop(), 0)
                    server = start()
                    if by_id:
                        status, refusal = post(server, "/v1/responses", client.body())
                        self.assertEqual((status, refusal["error"]["code"]), (400, "previous_response_not_found"))
                        client.forget()
                usage = client.take(events(server, "/v1/responses", client.body()))
                evaluated = usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"]
                if turn == 0:
                    self.assertGreater(evaluated, 600, "long enough for files")
                else:
                    most = most_evaluated(server, texts)
                    self.assertLessEqual(evaluated, most, (turn, usage, texts, client.replies[-2:]))
        finally:
            server.stop()
        calls = [item["name"] for reply in client.replies for item in reply if item["type"] == "function_call"]
        self.assertGreaterEqual(len(calls), 4, calls)
        self.assertTrue(all(reply[0]["type"] == "reasoning" for reply in client.replies))
        return [[{**item, "id": None, "call_id": None} for item in reply] for reply in client.replies]

    def test_a_history_that_is_sent_whole_is_not_evaluated_again(self):
        said = self.converse(lambda: Server("-c", "8192"), by_id=False)
        with self.subTest("the same by ids"):
            self.assertEqual(said, self.converse(lambda: Server("-c", "8192"), by_id=True))

    def test_a_restart_between_turns_is_not_noticed(self):
        said = []
        for by_id in [False, True]:
            with tempfile.TemporaryDirectory(prefix="q36-agent-") as folder:
                start = lambda: Server("-c", "8192", "--kv-disk-dir", folder)
                said.append(self.converse(start, by_id, restart_before=(1, 2, 5, 6, 9)))
        self.assertEqual(said[0], said[1])


if __name__ == "__main__":
    unittest.main()
