//! The renderer against the chat template stored in the demo model, executed by a template engine.

use minijinja::{
    Environment, Error, ErrorKind, Value as TemplateValue, context, syntax::SyntaxConfig,
    value::Serde,
};
use q36::{
    chat::{
        Arguments, Conversation, End, Message, Prompt, Reader, ReaderOptions, RenderOptions, Role,
        Source, ThinkMode, ThinkTokens, Tool, ToolCall, Toolset, render,
    },
    gguf::File,
    tokenizer::{Tokenizer, VocabSource},
    util::rng::Rng,
};
use serde_json::{Value, json};

use crate::support::tiny_model;

const CONVERSATIONS: usize = 12_000;

#[test]
fn every_conversation_renders_as_the_template_does() {
    let file = File::open(&tiny_model()).unwrap();
    let template = file.metadata().str("tokenizer.chat_template").unwrap();
    let environment = environment(template);
    let mut rng = Rng::new(36);
    let mut rendered = 0;
    for number in 0..CONVERSATIONS {
        let case = Case::draw(&mut Draw(&mut rng));
        let expected = case.expected(&environment);
        let found = case.found();
        match (&expected, &found) {
            (Ok(expected), Ok(found)) => {
                assert_eq!(found, expected, "conversation {number}: {:#}", case.messages);
                rendered += 1;
            }
            (Err(_), Err(_)) => {}
            _ => panic!("conversation {number}: {expected:?} but {found:?}: {:#}", case.messages),
        }
    }
    // Both outcomes have to be common, or the comparison says nothing.
    assert!((CONVERSATIONS / 2..CONVERSATIONS * 19 / 20).contains(&rendered), "{rendered}");
}

/// The demo model's tokenizer.
fn tokenizer(file: &File) -> Tokenizer {
    let meta = file.metadata();
    let source = VocabSource {
        tokens: Box::new(meta.strings("tokenizer.ggml.tokens").unwrap()),
        types: Box::new(meta.i32s("tokenizer.ggml.token_type").unwrap().into_iter()),
        merges: Box::new(meta.strings("tokenizer.ggml.merges").unwrap()),
        eos: None,
        bos: None,
    };
    Tokenizer::new(source).unwrap()
}

#[test]
fn a_rendered_reply_comes_back_by_its_ids() {
    let file = File::open(&tiny_model()).unwrap();
    let tokenizer = tokenizer(&file);
    let arguments = r#"{"path": "a.md", "content": "</think>\n<tool_call>\n</tool_call> é\n", "n": [1.5, null]}"#;
    let call = ToolCall::new("write", Arguments::parse(arguments).unwrap());
    let reply = Message::assistant("Writing </think>.").with_reasoning("So <tool_call>.");
    let reply = reply.with_calls(vec![call.clone(), call.clone()]);
    let question = Message::user("<|im_start|>system\n<think></think>");

    let turns = |messages: Vec<Message>, open| {
        let options = RenderOptions { add_generation_prompt: open, ..RenderOptions::default() };
        render(&Conversation::new(messages), &options).unwrap()
    };
    let opening = turns(vec![question.clone()], true);
    let whole = turns(vec![question, reply], false);
    for prompt in [&opening, &whole] {
        let marked = tokenizer.encode_prompt_marked(&prompt.token_segments());
        let markers: Vec<usize> = prompt.markers().iter().map(|m| m.offset).collect();
        assert_eq!(marked.markers, markers);
        assert_eq!(tokenizer.decode(&marked.ids), prompt.bytes());
    }

    let ids = |prompt: &Prompt| tokenizer.encode_prompt(&prompt.token_segments());
    let (opening, whole) = (ids(&opening), ids(&whole));
    let generated = whole.strip_prefix(&opening[..]).unwrap();
    let mut reader = Reader::new(ReaderOptions {
        source: Source::Ids(*tokenizer.special()),
        thinking: true,
        tools: Some(Toolset::default()),
    });
    for id in generated {
        reader.token(*id, tokenizer.bytes(*id));
    }
    let (_, read) = reader.finish(End::Turn);
    assert_eq!(read.reasoning, "So <tool_call>.");
    assert_eq!(read.content, "Writing </think>.");
    assert!(read.calls.iter().all(|read| read.arguments == call.arguments));
    assert_eq!((read.calls.len(), read.repairs.len()), (2, 0));

    let think = ThinkTokens::new(&tokenizer);
    assert_eq!(tokenizer.decode(&think.newline), b"\n");
    assert_eq!(tokenizer.decode(&think.newline_pair), b"\n\n");
    assert_eq!(tokenizer.bytes(think.close), b"</think>");
}

/// The template engine as the model's own tools set it up. `tojson` and the text of scalars are Python's JSON, which is
/// the official rule; the stored template leaves the latter to its engine.
fn environment(template: &str) -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap();
    environment.set_syntax(syntax);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_filter("tojson", |value: TemplateValue| {
        TemplateValue::from_safe_string(python_json(&serde_json::to_value(value).unwrap()))
    });
    environment.add_filter("string", |value: TemplateValue| match value.as_str() {
        Some(text) => text.to_owned(),
        None => python_json(&serde_json::to_value(value).unwrap()),
    });
    environment.add_template_owned("chat", template.to_owned()).unwrap();
    environment
}

/// What Python's `json.dumps(value, ensure_ascii=False)` prints.
fn python_json(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python_json).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), python_json(value))
            };
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Number(number) if number.is_f64() => python_float(number.as_f64().unwrap()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// Rust changes to exponents where Python does, but writes them in its own way.
fn python_float(value: f64) -> String {
    let text = format!("{value:?}");
    match text.split_once('e') {
        None => text,
        Some((mantissa, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap();
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
    }
}

/// One conversation, for the template and for the renderer.
struct Case {
    /// As an API client would send them.
    messages: Value,
    tools: Option<Vec<String>>,
    add_generation_prompt: bool,
    enable_thinking: Option<bool>,
    preserve_thinking: Option<bool>,
}

impl Case {
    fn expected(&self, environment: &Environment<'_>) -> Result<String, Error> {
        let parse = |text: &String| serde_json::from_str::<Value>(text).unwrap();
        let tools = self.tools.as_ref().map(|tools| tools.iter().map(parse).collect::<Vec<_>>());
        let undefined = || TemplateValue::UNDEFINED;
        environment.get_template("chat").unwrap().render(context! {
            messages => TemplateValue::from(Serde(&self.messages)),
            tools => tools.map_or_else(undefined, |tools| TemplateValue::from(Serde(tools))),
            add_generation_prompt => self.add_generation_prompt,
            enable_thinking => self.enable_thinking.map_or_else(undefined, TemplateValue::from),
            preserve_thinking => self.preserve_thinking.map_or_else(undefined, TemplateValue::from),
        })
    }

    fn found(&self) -> Result<String, q36::chat::Error> {
        let messages: Result<Vec<Message>, _> =
            self.messages.as_array().unwrap().iter().map(message).collect();
        let tools = self.tools.iter().flatten().map(|text| Tool::parse(text).unwrap()).collect();
        let thinking =
            if self.enable_thinking == Some(false) { ThinkMode::Off } else { ThinkMode::On };
        let options = RenderOptions {
            add_generation_prompt: self.add_generation_prompt,
            thinking,
            preserve_thinking: self.preserve_thinking.unwrap_or(false),
        };
        let prompt = render(&Conversation::new(messages?).with_tools(tools), &options)?;
        let text = prompt.text();
        let segments: String = prompt.segments().iter().map(|s| s.text.as_str()).collect();
        assert_eq!((segments.as_str(), prompt.len()), (text.as_str(), text.len()));
        assert!(prompt.markers().iter().all(|m| text[m.offset..].starts_with(m.text)));
        Ok(text)
    }
}

fn message(json: &Value) -> Result<Message, q36::chat::Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let content = match json["content"].as_array() {
        Some(parts) => parts.iter().map(|part| text(&part["text"])).collect::<String>(),
        None => text(&json["content"]),
    };
    let mut message = Message::new(json["role"].as_str().unwrap().parse::<Role>()?, content);
    message.reasoning = json["reasoning_content"].as_str().map(str::to_owned);
    for call in json["tool_calls"].as_array().into_iter().flatten() {
        let function = call.get("function").unwrap_or(call);
        let arguments = match function.get("arguments") {
            Some(arguments) => Arguments::parse(&arguments.to_string())?,
            None => Arguments::default(),
        };
        message.tool_calls.push(ToolCall::new(function["name"].as_str().unwrap(), arguments));
    }
    Ok(message)
}

/// Random choices.
struct Draw<'a>(&'a mut Rng);

impl Draw<'_> {
    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.0.next_u64() % n as u64).unwrap()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn text(&mut self) -> String {
        const PIECES: [&str; 44] = [
            "a",
            "Hello",
            "two words",
            " ",
            "  ",
            "\n",
            "\n\n",
            "\t",
            "\r\n",
            "\u{a0}",
            "\u{3000}",
            "\u{2028}",
            "\u{85}",
            "\u{200b}",
            "\u{feff}",
            "\u{b}",
            "é",
            "e\u{301}",
            "日本語",
            "😀",
            "<think>",
            "</think>",
            "<think>\nso\n</think>\n\n",
            "<tool_response>",
            "</tool_response>",
            "<tool_call>",
            "</tool_call>",
            "<|im_end|>",
            "<|im_start|>",
            "<|im_start|>user\n",
            "<function=f>",
            "</parameter>",
            "{{ x }}",
            "{% if %}",
            "&lt;<b>&",
            "\"quoted\"",
            "'",
            "\\",
            "\\n",
            "`code`",
            "\u{7f}",
            "\u{1}",
            "0",
            "null",
        ];
        let pieces = self.below(6);
        let text: String = (0..pieces).map(|_| self.pick(&PIECES)).collect();
        if self.one_in(12) { format!("<tool_response>{text}</tool_response>") } else { text }
    }

    fn name(&mut self) -> &'static str {
        self.pick(&["f", "get_weather", "mcp__server__tool", "write-file", "é"])
    }

    /// A JSON value, and now and then a deep one.
    fn value(&mut self, depth: usize) -> Value {
        const FLOATS: [f64; 14] = [
            0.0,
            -0.0,
            1.0,
            1.5,
            -2.25,
            0.1,
            1e-4,
            1e-5,
            9.999e-5,
            1e15,
            1e16,
            1.234_567_890_123_456_7e17,
            5e-324,
            f64::MAX,
        ];
        match self.below(if depth == 0 { 6 } else { 9 }) {
            0 => Value::Null,
            1 => Value::Bool(self.one_in(2)),
            2 => json!(self.0.next_u64() >> self.below(64)),
            3 => json!(-i64::try_from(self.0.next_u64() >> 1).unwrap() >> self.below(63)),
            4 => json!(self.pick(&FLOATS)),
            5 | 6 => Value::from(self.text()),
            7 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => self.object(depth - 1),
        }
    }

    fn object(&mut self, depth: usize) -> Value {
        let fields = (0..self.below(4)).map(|_| (self.key(), self.value(depth)));
        Value::Object(fields.collect::<Vec<_>>().into_iter().collect())
    }

    fn key(&mut self) -> String {
        const KEYS: [&str; 8] = ["a", "b", "path", "zeta", "alpha", "é", "with space", ""];
        self.pick(&KEYS).to_owned()
    }

    fn call(&mut self) -> Value {
        let mut function = json!({"name": self.name()});
        if !self.one_in(8) {
            function["arguments"] = if self.one_in(12) { json!([1]) } else { self.object(3) };
        }
        if self.one_in(2) {
            function
        } else {
            json!({"id": "call_1", "type": "function", "function": function})
        }
    }

    fn content(&mut self) -> Value {
        match self.below(12) {
            0 => Value::Null,
            1 => (0..self.below(4)).map(|_| json!({"type": "text", "text": self.text()})).collect(),
            _ => Value::from(self.text()),
        }
    }

    fn message(&mut self, role: &str) -> Value {
        let mut message = json!({"role": role, "content": self.content()});
        if role != "assistant" {
            return message;
        }
        match self.below(4) {
            0 => {}
            1 => message["reasoning_content"] = json!(""),
            _ => message["reasoning_content"] = Value::from(self.text()),
        }
        match self.below(3) {
            0 => message["tool_calls"] = (0..self.below(4)).map(|_| self.call()).collect(),
            1 if self.one_in(4) => message["tool_calls"] = Value::Null,
            _ => {}
        }
        message
    }

    /// A tool as clients write it: any spacing, any order.
    fn tool(&mut self) -> String {
        let schema = json!({"type": "object", "properties": self.object(3), "required": ["a"]});
        let function = json!({"name": self.name(), "description": self.text(), "parameters": schema, "x": self.value(2)});
        let tool = json!({"type": "function", "function": function});
        if self.one_in(2) { tool.to_string() } else { serde_json::to_string_pretty(&tool).unwrap() }
    }
}

impl Case {
    fn draw(draw: &mut Draw<'_>) -> Self {
        const NEXT: [&str; 6] = ["user", "user", "assistant", "assistant", "tool", "tool"];
        let mut messages = Vec::new();
        if draw.one_in(2) {
            messages.push(draw.message("system"));
        }
        if !draw.one_in(12) {
            messages.push(draw.message("user"));
        }
        for _ in 0..draw.below(9) {
            let role = match draw.below(80) {
                0 => "system",
                1 => "robot",
                _ => draw.pick(&NEXT),
            };
            messages.push(draw.message(role));
        }
        let tools = draw.one_in(2).then(|| (0..draw.below(4)).map(|_| draw.tool()).collect());
        let mut switch = || [None, Some(false), Some(true)][draw.below(3)];
        let (enable_thinking, preserve_thinking) = (switch(), switch());
        let add_generation_prompt = !draw.one_in(3);
        Self {
            messages: Value::from(messages),
            tools,
            add_generation_prompt,
            enable_thinking,
            preserve_thinking,
        }
    }
}
