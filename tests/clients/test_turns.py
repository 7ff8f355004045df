"""The second turn of every API that has turns, with and without a thought, with and without tools."""

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


class Turns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--temp", "0")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def ask(self, path, body):
        limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
        status, answer = post(self.server, path, {"model": MODEL, limit: 300, **body})
        self.assertEqual(status, 200, answer)
        return answer

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


if __name__ == "__main__":
    unittest.main()
