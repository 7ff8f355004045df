"""A server that is killed goes on from what it saved."""

import json
import tempfile
import unittest
import urllib.request

from server import CONFIG, QUESTION, Server, rest, schema

SYSTEM = {"role": "system", "content": "You answer in one short sentence. " * 4}
CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Germany": "Berlin"}
PLACES = list(CAPITALS)
TURNS = 20
# Distance of saves.
STEP = 64

class Capitals:
    """One question after the other."""

    # More tokens than one of them and its answer have.
    turn_tokens = 40
    # Before which turns the server is killed, and whether it has come to rest by then.
    kills = {5: True, 11: True, 12: False, 17: False}
    body = {"max_tokens": 24}

    def say(self, turn, messages):
        messages.append({"role": "user", "content": f"What is the capital of {PLACES[turn % len(PLACES)]}?"})


def function(name):
    description, parameters = schema(name)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


class Agent:
    """Questions that take a call each, most of them, and the results of the calls."""

    # A result has most of them, and the call before it.
    turn_tokens = 80
    # Both before results of calls and before questions.
    kills = {1: True, 4: True, 9: True, 13: False, 14: True, 18: False}
    body = {"max_tokens": 64, "tools": [function(name) for name in ("list", "bash", "read")]}
    questions = [QUESTION, "What is the capital of France?", "How many lines has notes.txt?", "Is debug on in config.json?"]

    def say(self, _, messages):
        calls = messages[-1].get("tool_calls") or []
        for call in calls:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": CONFIG})
        if not calls:
            asked = sum(message["role"] == "user" for message in messages)
            messages.append({"role": "user", "content": self.questions[asked % len(self.questions)]})


def ask(server, messages, talk, preserve):
    """The reply, as its client sends it back, and what it cost."""
    body = {"messages": messages, "reasoning_effort": "none", **talk.body}
    body["chat_template_kwargs"] = {"preserve_thinking": preserve}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as response:
        answer = json.load(response)
    return answer["choices"][0]["message"], answer["usage"]


def said(reply):
    """What a reply says, without the ids of its calls, which nobody can foresee."""
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in reply.get("tool_calls") or []]
    return calls or reply["content"]


class Restart(unittest.TestCase):
    def converse(self, talk, start, preserve, folder=None):
        """What the replies of a conversation say; where there is a folder of saves the server is killed on the way."""
        server, messages, answers = start(), [SYSTEM], []
        try:
            for turn in range(TURNS):
                talk.say(turn, messages)
                is_killed = folder and turn in talk.kills
                if is_killed:
                    if talk.kills[turn]:
                        rest(folder)
                    server.kill()
                    server = start()
                reply, usage = ask(server, messages, talk, preserve)
                evaluated = usage["prompt_tokens_details"]["cache_write_tokens"]
                if is_killed:
                    # Without rest the save before the last may be all that was written to its end.
                    saves = 1 if talk.kills[turn] else 2
                    self.assertLess(evaluated, saves * STEP + talk.turn_tokens, (turn, usage))
                elif turn > 0:
                    self.assertLess(evaluated, talk.turn_tokens, (turn, usage))
                messages.append(reply)
                answers.append(said(reply))
        finally:
            server.kill()
        return answers

    def converse_with_kills(self, talk, preserve):
        with tempfile.TemporaryDirectory(prefix="q36-restart-") as folder:
            saving = ["--kv-disk-dir", folder, "--kv-cache-min-tokens", "32"]
            saving += ["--kv-cache-continued-interval-tokens", str(STEP), "--kv-cache-boundary-align-tokens", "16"]
            return self.converse(talk, lambda: Server("--temp", "0", *saving), preserve, folder)

    def test_where_thoughts_stay_in_the_prompt_a_kill_changes_no_answer(self):
        # Even empty ones: the tokens are then the same, whether they were evaluated or loaded.
        for talk in (Capitals(), Agent()):
            with self.subTest(type(talk).__name__):
                answers = self.converse_with_kills(talk, preserve=True)
                self.assertEqual(answers, self.converse(talk, lambda: Server("--temp", "0"), preserve=True))
                calls = sum(isinstance(answer, list) for answer in answers)
                self.assertTrue(calls >= 6 if isinstance(talk, Agent) else calls == 0, answers)

    def test_where_thoughts_leave_the_prompt_a_killed_server_finds_its_saves_by_what_is_left(self):
        # A live session still holds them, and turns that are evaluated anew do not: answers may differ in words.
        for turn, answer in enumerate(self.converse_with_kills(Capitals(), preserve=False)):
            self.assertIn(CAPITALS[PLACES[turn % len(PLACES)]], answer)
        answers = self.converse_with_kills(Agent(), preserve=False)
        self.assertIn("8123", answers[1], answers)


if __name__ == "__main__":
    unittest.main()
