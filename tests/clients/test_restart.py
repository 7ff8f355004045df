"""A server that is killed goes on from what it saved."""

import json
import tempfile
import unittest
import urllib.request

from server import Server, rest

SYSTEM = {"role": "system", "content": "You answer in one short sentence. " * 4}
CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Germany": "Berlin"}
PLACES = list(CAPITALS)
TURNS = 20
# Distance of saves, and more tokens than a question and its answer have.
STEP, TURN = 64, 40
# Before which turns the server is killed, and whether it has come to rest by then.
KILLS = {5: True, 11: True, 12: False, 17: False}


def ask(server, messages, preserve):
    body = {"messages": messages, "reasoning_effort": "none", "max_tokens": 24}
    body["chat_template_kwargs"] = {"preserve_thinking": preserve}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=120) as response:
        answer = json.load(response)
    return answer["choices"][0]["message"]["content"], answer["usage"]


class Restart(unittest.TestCase):
    def converse(self, start, preserve, folder=None):
        """A conversation's answers; where there is a folder of saves the server is killed on the way."""
        server, messages, answers = start(), [SYSTEM], []
        try:
            for turn in range(TURNS):
                messages.append({"role": "user", "content": f"What is the capital of {PLACES[turn % len(PLACES)]}?"})
                is_killed = folder and turn in KILLS
                if is_killed:
                    if KILLS[turn]:
                        rest(folder)
                    server.kill()
                    server = start()
                answer, usage = ask(server, messages, preserve)
                evaluated = usage["prompt_tokens_details"]["cache_write_tokens"]
                if is_killed:
                    # Without rest the save before the last may be all that was written to its end.
                    saves = 1 if KILLS[turn] else 2
                    self.assertLess(evaluated, saves * STEP + TURN, (turn, usage))
                elif turn > 0:
                    self.assertLess(evaluated, TURN, (turn, usage))
                messages.append({"role": "assistant", "content": answer})
                answers.append(answer)
        finally:
            server.kill()
        return answers

    def converse_with_kills(self, preserve):
        with tempfile.TemporaryDirectory(prefix="q36-restart-") as folder:
            saving = ["--kv-disk-dir", folder, "--kv-cache-min-tokens", "32"]
            saving += ["--kv-cache-continued-interval-tokens", str(STEP), "--kv-cache-boundary-align-tokens", "16"]
            return self.converse(lambda: Server("--temp", "0", *saving), preserve, folder)

    def test_where_thoughts_stay_in_the_prompt_a_kill_changes_no_answer(self):
        # Even empty ones: the tokens are then the same, whether they were evaluated or loaded.
        answers = self.converse_with_kills(preserve=True)
        self.assertEqual(answers, self.converse(lambda: Server("--temp", "0"), preserve=True))

    def test_where_thoughts_leave_the_prompt_a_killed_server_finds_its_saves_by_what_is_left(self):
        # A live session still holds them, and turns that are evaluated anew do not: answers may differ in words.
        for turn, answer in enumerate(self.converse_with_kills(preserve=False)):
            self.assertIn(CAPITALS[PLACES[turn % len(PLACES)]], answer)


if __name__ == "__main__":
    unittest.main()
