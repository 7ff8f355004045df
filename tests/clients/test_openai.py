"""The official package of OpenAI against the demo model."""

import json
import unittest

from server import CONFIG, MODEL, QUESTION, Server, schema

try:
    import openai
except ImportError:
    openai = None

PARIS = [{"role": "user", "content": "What is the capital of France?"}]
OFF = {"thinking": False}


def chat_tool(name):
    description, parameters = schema(name)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def responses_tool(name):
    description, parameters = schema(name)
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": False}


@unittest.skipIf(openai is None, "the package openai is not installed")
class OpenAi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--batched-session", "2", "--temp", "0")
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="any", max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        status = cls.server.stop()
        assert status == 0, (status, cls.server.log[-5:])

    def test_models(self):
        names = [model.id for model in self.client.models.list()]
        self.assertEqual(names[0], MODEL)
        self.assertEqual(self.client.models.retrieve(MODEL).owned_by, "q36")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("gpt-4")
        self.assertEqual(caught.exception.code, "model_not_found")

    # --- chat/completions

    def test_chat(self):
        answer = self.client.chat.completions.create(model=MODEL, messages=PARIS, extra_body=OFF)
        choice = answer.choices[0]
        self.assertEqual(choice.message.content, "The capital of France is Paris.")
        self.assertEqual((choice.finish_reason, choice.message.tool_calls), ("stop", None))
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertTrue(answer._request_id.startswith("req_"))

    def test_chat_stream(self):
        stream = self.client.chat.completions.create(
            model=MODEL, messages=PARIS, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        self.assertEqual({(chunk.id, chunk.created, chunk.model) for chunk in chunks}, {(chunks[0].id, chunks[0].created, MODEL)})
        kinds, content = [], ""
        for chunk in chunks[:-1]:
            delta, finish = chunk.choices[0].delta, chunk.choices[0].finish_reason
            content += delta.content or ""
            thought = getattr(delta, "reasoning_content", None)
            kind = "role" if delta.role else "thought" if thought else "text" if delta.content else finish
            if not kinds or kinds[-1] != kind:
                kinds.append(kind)
        self.assertEqual(kinds, ["role", "thought", "text", "stop"])
        self.assertIn("Paris", content)
        self.assertEqual(chunks[-1].choices, [])
        self.assertGreater(chunks[-1].usage.completion_tokens_details.reasoning_tokens, 0)

    def test_chat_limits_and_stops(self):
        def ask(**more):
            choice = self.client.chat.completions.create(model=MODEL, messages=PARIS, extra_body=OFF, **more).choices[0]
            return choice.message.content, choice.finish_reason

        self.assertEqual(ask(max_tokens=2), ("The capital", "length"))
        self.assertEqual(ask(stop=[" is"]), ("The capital of France", "stop"))
        self.assertEqual(ask(max_completion_tokens=0), ("", "length"))

    def test_chat_logprobs(self):
        answer = self.client.chat.completions.create(
            model=MODEL, messages=PARIS, logprobs=True, top_logprobs=3, max_tokens=4, extra_body=OFF
        )
        content = answer.choices[0].logprobs.content
        self.assertEqual("".join(entry.token for entry in content), answer.choices[0].message.content)
        for entry in content:
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.top_logprobs[0].logprob, entry.logprob)

    def test_chat_tools_in_two_rounds(self):
        tools = [chat_tool(name) for name in ["list", "bash", "read"]]
        messages = [{"role": "user", "content": QUESTION}]
        first = self.client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
        choice = first.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        [call] = choice.message.tool_calls
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("read", {"path": "config.json"}))
        messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": CONFIG}]
        second = self.client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
        self.assertEqual(second.choices[0].finish_reason, "stop")
        self.assertIn("8123", second.choices[0].message.content)
        self.assertGreater(second.usage.prompt_tokens_details.cached_tokens, first.usage.prompt_tokens)

    def test_chat_tools_streamed(self):
        with self.client.chat.completions.stream(
            model=MODEL, messages=[{"role": "user", "content": QUESTION}], tools=[chat_tool("read"), chat_tool("bash")]
        ) as stream:
            types = [event.type for event in stream]
            final = stream.get_final_completion()
        [call] = final.choices[0].message.tool_calls
        self.assertEqual(json.loads(call.function.arguments), {"path": "config.json"})
        self.assertEqual(final.choices[0].finish_reason, "tool_calls")
        self.assertIn("tool_calls.function.arguments.delta", types)
        self.assertEqual(types.count("tool_calls.function.arguments.done"), 1)

    def test_chat_forced_calls(self):
        def ask(choice):
            answer = self.client.chat.completions.create(
                model=MODEL, messages=PARIS, tools=[chat_tool("list"), chat_tool("bash")], tool_choice=choice, max_tokens=200
            )
            return [call.function.name for call in answer.choices[0].message.tool_calls or []]

        self.assertEqual(ask({"type": "function", "function": {"name": "list"}})[:1], ["list"])
        self.assertGreaterEqual(len(ask("required")), 1)
        self.assertEqual(ask("none"), [])

    def test_chat_allowed_tools(self):
        tools = [chat_tool(name) for name in ["list", "bash", "read"]]
        allowed = [{"type": "function", "function": {"name": "list"}}, {"type": "function", "function": {"name": "bash"}}]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": allowed}}
        # The question asks for the third one.
        messages = [{"role": "user", "content": QUESTION}]
        free = self.client.chat.completions.create(model=MODEL, messages=messages, tools=tools, max_tokens=200)
        answer = self.client.chat.completions.create(
            model=MODEL, messages=messages, tools=tools, tool_choice=choice, max_tokens=200
        )
        names = {call.function.name for call in answer.choices[0].message.tool_calls}
        self.assertTrue(names and names <= {"list", "bash"}, names)
        self.assertEqual(answer.usage.prompt_tokens, free.usage.prompt_tokens)

    def test_chat_functions_of_the_older_form(self):
        description, parameters = schema("read")
        functions = [{"name": "read", "description": description, "parameters": parameters}]
        messages = [{"role": "user", "content": QUESTION}]
        first = self.client.chat.completions.create(model=MODEL, messages=messages, functions=functions)
        choice = first.choices[0]
        self.assertEqual((choice.finish_reason, choice.message.tool_calls), ("function_call", None))
        call = choice.message.function_call
        self.assertEqual((call.name, json.loads(call.arguments)), ("read", {"path": "config.json"}))
        chunks = list(self.client.chat.completions.create(model=MODEL, messages=messages, functions=functions, stream=True))
        pieces = [chunk.choices[0].delta.function_call for chunk in chunks if chunk.choices[0].delta.function_call]
        self.assertEqual((pieces[0].name, "".join(piece.arguments for piece in pieces)), ("read", call.arguments))
        messages += [
            {"role": "assistant", "content": None, "function_call": {"name": call.name, "arguments": call.arguments}},
            {"role": "function", "name": "read", "content": CONFIG},
        ]
        second = self.client.chat.completions.create(model=MODEL, messages=messages, functions=functions)
        self.assertIn("8123", second.choices[0].message.content)

    # --- completions

    def test_completions(self):
        answer = self.client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=3, temperature=0)
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual(answer.choices[0].finish_reason, "length")
        chunks = list(
            self.client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=3, temperature=0, stream=True)
        )
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks), answer.choices[0].text)
        self.assertEqual(chunks[-1].choices[0].finish_reason, "length")

    # --- responses

    def test_responses_and_what_follows_them(self):
        first = self.client.responses.create(model=MODEL, input="What is the capital of France?")
        self.assertEqual((first.status, [item.type for item in first.output]), ("completed", ["reasoning", "message"]))
        self.assertIn("Paris", first.output_text)
        second = self.client.responses.create(model=MODEL, input="Thanks!", previous_response_id=first.id)
        self.assertEqual(second.previous_response_id, first.id)
        self.assertGreater(second.usage.input_tokens_details.cached_tokens, first.usage.input_tokens)
        self.assertEqual(self.client.responses.retrieve(first.id).output_text, first.output_text)
        self.assertEqual(self.client.responses.cancel(first.id).status, "completed")
        self.client.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(first.id)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.responses.create(model=MODEL, input="x", previous_response_id=first.id)
        self.assertEqual(caught.exception.code, "previous_response_not_found")

    def test_responses_stream(self):
        with self.client.responses.stream(model=MODEL, input="What is the capital of France?") as stream:
            events = list(stream)
            final = stream.get_final_response()
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        kinds = [event.type.removeprefix("response.") for event in events]
        once = [kind for index, kind in enumerate(kinds) if kind != (kinds[index - 1] if index else None) and kind != "in_progress"]
        self.assertEqual(
            once,
            [
                "created", "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
                "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done", "output_item.added",
                "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done",
                "completed",
            ],
        )  # fmt: skip
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(text, final.output_text)

    def test_responses_tools_in_two_rounds(self):
        tools = [responses_tool("read"), responses_tool("bash")]
        first = self.client.responses.create(model=MODEL, input=QUESTION, tools=tools)
        call = first.output[-1]
        self.assertEqual((call.type, call.name, json.loads(call.arguments)), ("function_call", "read", {"path": "config.json"}))
        result = {"type": "function_call_output", "call_id": call.call_id, "output": CONFIG}
        by_id = self.client.responses.create(model=MODEL, input=[result], previous_response_id=first.id, tools=tools)
        self.assertIn("8123", by_id.output_text)
        items = [{"role": "user", "content": QUESTION}, *(item.model_dump() for item in first.output), result]
        self.assertIn("8123", self.client.responses.create(model=MODEL, input=items, tools=tools).output_text)

    # --- what goes wrong

    def test_errors_are_of_their_class(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model=MODEL, messages=[{"role": "nobody", "content": "x"}])
        self.assertEqual(caught.exception.type, "invalid_request_error")
        for create in [
            lambda text: self.client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": text}]),
            lambda text: self.client.completions.create(model=MODEL, prompt=text),
            lambda text: self.client.responses.create(model=MODEL, input=text),
        ]:
            with self.assertRaises(openai.BadRequestError) as caught:
                create("word " * 6000)
            self.assertEqual(caught.exception.code, "context_length_exceeded")
            self.assertRegex(str(caught.exception), r"maximum context length is 4096 tokens.*your prompt contains \d+ tokens")


@unittest.skipIf(openai is None, "the package openai is not installed")
class Keys(unittest.TestCase):
    def test_a_key_is_needed(self):
        server = Server("--api-key", "right", "-n", "3")
        try:
            with openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0) as client:
                with self.assertRaises(openai.AuthenticationError):
                    client.models.list()
            with openai.OpenAI(base_url=server.url + "/v1", api_key="right", max_retries=0) as client:
                self.assertEqual(next(iter(client.models.list())).id, MODEL)
                answer = client.chat.completions.create(model=MODEL, messages=PARIS)
                self.assertEqual((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 3))
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
