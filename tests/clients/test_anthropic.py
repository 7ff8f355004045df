"""The official package of Anthropic against the demo model."""

import unittest

from server import CONFIG, MODEL, QUESTION, Server, schema

try:
    import anthropic
except ImportError:
    anthropic = None

PARIS = [{"role": "user", "content": "What is the capital of France?"}]
OFF = {"type": "disabled"}


def tool(name):
    description, parameters = schema(name)
    return {"name": name, "description": description, "input_schema": parameters}


@unittest.skipIf(anthropic is None, "the package anthropic is not installed")
class Anthropic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--temp", "0", "--kv-disk-dir", "kv")
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key="any", max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        status = cls.server.stop()
        assert status == 0, (status, cls.server.log[-5:])

    def create(self, **more):
        return self.client.messages.create(**{"model": "claude-x", "max_tokens": 300, "messages": PARIS, **more})

    def test_models(self):
        self.assertEqual(next(iter(self.client.models.list())).id, MODEL)
        self.assertEqual(self.client.models.retrieve(MODEL).display_name, "Qwen 3.6 35B A3B")

    def test_messages(self):
        answer = self.create(thinking=OFF)
        self.assertEqual([block.type for block in answer.content], ["text"])
        self.assertEqual(answer.content[0].text, "The capital of France is Paris.")
        self.assertEqual((answer.model, answer.stop_reason), ("claude-x", "end_turn"))
        self.assertEqual(answer.usage.input_tokens, 0)
        self.assertTrue(answer._request_id.startswith("req_"))

    def test_limits_and_stops(self):
        self.assertEqual(self.create(thinking=OFF, max_tokens=2).stop_reason, "max_tokens")
        stopped = self.create(thinking=OFF, stop_sequences=[" is"])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", " is"))
        self.assertEqual(stopped.content[0].text, "The capital of France")

    def test_stream(self):
        with self.client.messages.stream(model=MODEL, max_tokens=300, messages=PARIS) as stream:
            raw = [event for event in stream if event.type.startswith(("message_", "content_block_"))]
            final = stream.get_final_message()
        kinds = [event.type for event in raw]
        self.assertEqual((kinds[0], kinds[-2:]), ("message_start", ["message_delta", "message_stop"]))
        starts = [event.content_block.type for event in raw if event.type == "content_block_start"]
        self.assertEqual(starts, ["thinking", "text"])
        open_block = None
        for event in raw:
            if event.type == "content_block_start":
                self.assertIsNone(open_block)
                open_block = event.index
            elif event.type in ("content_block_delta", "content_block_stop"):
                self.assertEqual(event.index, open_block)
                open_block = None if event.type == "content_block_stop" else open_block
        self.assertEqual([block.type for block in final.content], ["thinking", "text"])
        self.assertTrue(final.content[0].signature)
        self.assertIn("Paris", final.content[1].text)

    def test_tools_in_two_rounds(self):
        tools = [tool("read"), tool("bash")]
        messages = [{"role": "user", "content": QUESTION}]
        first = self.create(messages=messages, tools=tools)
        self.assertEqual(first.stop_reason, "tool_use")
        call = first.content[-1]
        self.assertEqual((call.type, call.name, call.input), ("tool_use", "read", {"path": "config.json"}))
        messages += [
            {"role": "assistant", "content": [block.model_dump() for block in first.content]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": CONFIG}]},
        ]
        second = self.create(messages=messages, tools=tools)
        self.assertIn("8123", second.content[-1].text)
        self.assertGreater(second.usage.cache_read_input_tokens, first.usage.cache_creation_input_tokens)

    def test_tools_streamed(self):
        with self.client.messages.stream(
            model=MODEL, max_tokens=300, messages=[{"role": "user", "content": QUESTION}], tools=[tool("read")]
        ) as stream:
            json_deltas = [event.partial_json for event in stream if event.type == "input_json"]
            final = stream.get_final_message()
        self.assertEqual(final.stop_reason, "tool_use")
        self.assertEqual(final.content[-1].input, {"path": "config.json"})
        self.assertEqual("".join(json_deltas).replace(" ", ""), '{"path":"config.json"}')

    def test_count_tokens(self):
        counted = self.client.messages.count_tokens(model=MODEL, messages=PARIS, thinking=OFF)
        usage = self.create(thinking=OFF, max_tokens=1).usage
        self.assertEqual(counted.input_tokens, usage.cache_read_input_tokens + usage.cache_creation_input_tokens)
        with_tools = self.client.messages.count_tokens(model=MODEL, messages=PARIS, tools=[tool("bash")])
        self.assertGreater(with_tools.input_tokens, counted.input_tokens + 50)

    def test_errors_are_of_their_class(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.create(messages=[{"role": "user", "content": "word " * 6000}])
        self.assertRegex(str(caught.exception), r"prompt is too long: \d+ tokens > 4096 maximum")
        with self.assertRaises(anthropic.BadRequestError):
            self.create(messages=[])
        with self.assertRaises(anthropic.NotFoundError):
            self.client.models.retrieve("claude-x")


if __name__ == "__main__":
    unittest.main()
