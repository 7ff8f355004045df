"""The second turn of every API that has turns, with and without a thought, with and without tools; bounds of thoughts."""

import unittest

from server import MODEL, Server, schema
from wire import WRAPPING, post, tokens

FIRST, SECOND = "What is the capital of France?", "What is the capital of Italy?"


def chat(history, thinks, tools):
    description, parameters = schema("read")
    function = {"name": "read", "description": description, "parameters": parameters}
    body = {"messages": history, "enable_thinking": thinks}
    return body | ({"tools": [{"type": "function", "function": function}]} if tools else {})


def messages(history, thinks, tools):
    description, parameters = schema("read")
    body = {"messages": history, "thinking": {"type": "enabled" if thinks else "disabled"}}
    return body | ({"tools": [{"name": "read", "description": description, "input_schema": parameters}]} if tools else {})


def responses(history, thinks, tools):
    description, parameters = schema("read")
    body = {"input": history, "store": False, "reasoning": {"effort": "high" if thinks else "none"}}
    body |= {"include": ["reasoning.encrypted_content"]}
    return body | ({"tools": [{"type": "function", "name": "read", "description": description, "parameters": parameters}]} if tools else {})


# How each API is asked, what of its answer is history, and its prompt's tokens: all, and those that were cached.
APIS = {
    "/v1/chat/completions": (
        chat,
        lambda answer: [answer["choices"][0]["message"]],
        lambda usage: (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]),
    ),
    "/v1/messages": (
        messages,
        lambda answer: [{"role": "assistant", "content": answer["content"]}],
        lambda usage: (usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]),
    ),
    "/v1/responses": (
        responses,
        lambda answer: answer["output"],
        lambda usage: (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]),
    ),
}


class Asked(unittest.TestCase):
    """Tests with one server."""

    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--temp", "0", *cls.flags)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def ask(self, path, body):
        limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
        status, answer = post(self.server, path, {"model": MODEL, limit: 300, **body})
        self.assertEqual(status, 200, answer)
        return answer


class Turns(Asked):
    def test_a_second_turn_evaluates_only_its_question(self):
        for path, (body, replayed, counts) in APIS.items():
            for thinks in [True, False]:
                for tools in [True, False]:
                    with self.subTest(path=path, thinks=thinks, tools=tools):
                        history = [{"role": "user", "content": FIRST}]
                        first = self.ask(path, body(history, thinks, tools))
                        history += [*replayed(first), {"role": "user", "content": SECOND}]
                        prompt, cached = counts(self.ask(path, body(history, thinks, tools))["usage"])
                        self.assertLessEqual(prompt - cached, tokens(self.server, SECOND) + WRAPPING)
                        self.assertGreater(cached, counts(first["usage"])[0])


# Most tokens of a thought with low effort; the demo model thinks for some more about the first question.
LOW = 8

# How each API is asked to think less, what it thought and answered, and the tokens of the thought, where it says them.
THOUGHTS = {
    "/v1/chat/completions": (
        {"messages": [{"role": "user", "content": FIRST}]},
        [{"reasoning_effort": "low"}],
        lambda answer: (answer["choices"][0]["message"]["reasoning_content"], answer["choices"][0]["message"]["content"]),
        lambda usage: usage["completion_tokens_details"]["reasoning_tokens"],
    ),
    "/v1/messages": (
        {"messages": [{"role": "user", "content": FIRST}]},
        [{"output_config": {"effort": "low"}}, {"thinking": {"type": "enabled", "budget_tokens": LOW}}],
        lambda answer: tuple(block[block["type"]] for block in answer["content"]),
        None,
    ),
    "/v1/responses": (
        {"input": FIRST},
        [{"reasoning": {"effort": "low"}}],
        lambda answer: (answer["output"][0]["summary"][0]["text"], answer["output"][1]["content"][0]["text"]),
        lambda usage: usage["output_tokens_details"]["reasoning_tokens"],
    ),
}


class Budgets(Asked):
    flags = ("--effort-budgets", f"low={LOW}")

    def think(self, path, **more):
        """What was thought and answered, and the tokens of the thought."""
        question, _, said, count = THOUGHTS[path]
        answer = self.ask(path, {**question, **more})
        thought, text = said(answer)
        by_itself = tokens(self.server, thought)
        if count:
            self.assertEqual(count(answer["usage"]), by_itself)
        self.assertIn("Paris", text)
        return thought, by_itself

    def test_a_thought_ends_at_its_budget_and_the_answer_still_comes(self):
        for path, (_, limits, _, _) in THOUGHTS.items():
            free, most = self.think(path)
            self.assertGreater(most, LOW)
            for limit in limits:
                with self.subTest(path=path, limit=limit):
                    thought, spent = self.think(path, **limit)
                    self.assertTrue(free.startswith(thought), thought)
                    self.assertTrue(0 < spent <= LOW, (thought, spent))

    def test_a_thought_has_as_many_tokens_as_it_may_and_no_more_than_it_needs(self):
        free, most = self.think("/v1/messages")
        for budget in range(1, most + 3):
            with self.subTest(budget=budget):
                thought, spent = self.think("/v1/messages", thinking={"type": "enabled", "budget_tokens": budget})
                self.assertTrue(0 < spent <= budget, (thought, spent))
                self.assertEqual(thought == free, budget >= most)
        self.assertEqual(self.think("/v1/messages", output_config={"effort": "medium"})[0], free)


if __name__ == "__main__":
    unittest.main()
