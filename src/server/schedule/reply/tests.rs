//! The state machine of a reply without an engine: what is drawn is written down.

use super::*;
use crate::chat::{Arguments, Tool};
use crate::tokenizer::Tokenizer;

mod property;

pub(super) fn tokenizer() -> Tokenizer {
    Tokenizer::stand_in(400).unwrap()
}

pub(super) fn tools() -> Toolset {
    let schema = r#"{"name": "f", "parameters": {"properties":
        {"s": {"type": "string"}, "n": {"type": "integer"}}}}"#;
    Toolset::new(&[Tool::parse(schema).unwrap()])
}

/// A reply of at most 1000 tokens that neither thinks nor calls.
pub(super) fn plain() -> Setup {
    let tokenizer = tokenizer();
    Setup {
        api: Api::Chat,
        special: *tokenizer.special(),
        think: ThinkTokens::new(&tokenizer),
        begins: Begins::Answer,
        budget: None,
        recover_calls: true,
        tools: None,
        opening: Vec::new(),
        single_call: false,
        formed: false,
        strict: BTreeSet::new(),
        stop: Vec::new(),
        room: 1000,
    }
}

fn with_tools() -> Setup {
    Setup { tools: Some(tools()), ..plain() }
}

fn thinking() -> Setup {
    Setup { begins: Begins::Thought, ..with_tools() }
}

/// What came of a reply.
pub(super) struct Done {
    pub(super) updates: Vec<Update>,
    pub(super) written: Written,
    /// The text of everything that was fed.
    pub(super) fed: String,
}

/// Drives a reply by a control text; behind it the model ends its turn. The close token is never likely.
fn run(setup: Setup, script: &str) -> Done {
    drive(setup, &tokenizer().encode_control(script.as_bytes()), usize::MAX)
}

pub(super) fn drive(setup: Setup, script: &[TokenId], rank: usize) -> Done {
    let tokenizer = tokenizer();
    let mut script = script.iter().copied();
    let mut writing = Writing::new(setup);
    let (mut updates, mut fed_ids) = (Vec::new(), Vec::new());
    loop {
        match writing.next() {
            Next::Draw => {
                let id = script.next().unwrap_or(tokenizer.special().im_end);
                writing.drawn((id, tokenizer.bytes(id)), None, || rank);
            }
            Next::Feed(fed) => {
                fed_ids.push(fed.id);
                updates.extend(writing.fed(tokenizer.bytes(fed.id)));
            }
            Next::Over => break,
        }
    }
    let (last, written) = writing.finish();
    updates.extend(last);
    check(&updates, &written);
    let fed = String::from_utf8_lossy(&tokenizer.decode(&fed_ids)).into_owned();
    assert_eq!(written.outcome.usage.output_tokens, fed_ids.len());
    Done { updates, written, fed }
}

/// What was streamed and what is reported at the end agree.
fn check(updates: &[Update], written: &Written) {
    let outcome = &written.outcome;
    let (mut text, mut reasoning) = (String::new(), String::new());
    let mut calls: Vec<(String, String, String)> = Vec::new();
    let mut complete = 0;
    for update in updates {
        match update {
            Update::Text(piece) => text.push_str(piece),
            Update::Reasoning(piece) => reasoning.push_str(piece),
            Update::CallBegin { id, name } => {
                calls.push((id.clone(), name.clone(), String::new()));
            }
            Update::CallArguments(piece) => calls.last_mut().unwrap().2.push_str(piece),
            Update::CallEnd => complete += 1,
            Update::Logprob(_) => {}
            Update::Waiting(_) | Update::Begin(_) | Update::End(_) | Update::Failed(_) => {
                panic!("{update:?}")
            }
        }
    }
    assert_eq!((&text, &reasoning), (&outcome.text, &outcome.reasoning));
    assert_eq!(complete, outcome.calls.len());
    let all = outcome.calls.iter().chain(&outcome.open_call);
    let all: Vec<_> = all.map(|c| (c.id.clone(), c.name.clone(), c.json.clone())).collect();
    assert_eq!(calls, all);
    for call in &outcome.calls {
        assert_eq!(Arguments::parse(&call.json).unwrap(), call.arguments);
    }
    // The invariant of server.md 4.6.
    assert_eq!(
        outcome.finish == Finish::Calls,
        !outcome.calls.is_empty() && outcome.open_call.is_none()
    );
}

const CALL: &str = "<tool_call>\n<function=f>\n<parameter=s>\na\"b\n</parameter>\n<parameter=n>\n5\n\
                    </parameter>\n</function>\n</tool_call>";
const JSON: &str = r#"{"s":"a\"b","n":5}"#;

fn json(done: &Done) -> Vec<&str> {
    done.written.outcome.calls.iter().map(|call| call.json.as_str()).collect()
}

#[test]
fn a_thought_an_answer_and_a_call_are_told_apart() {
    let done = run(thinking(), &format!("So.\n</think>\n\nLooking.\n\n{CALL}"));
    let outcome = &done.written.outcome;
    assert_eq!((outcome.reasoning.as_str(), outcome.text.as_str()), ("So.", "Looking."));
    assert_eq!((outcome.finish.clone(), json(&done)), (Finish::Calls, vec![JSON]));
    assert_eq!(outcome.usage.reasoning_tokens, 4, "the newline before the end is a part of it");
    let (block, calls) = done.written.block.as_ref().unwrap();
    assert_eq!((block.text(), calls.len()), (format!("\n\n{CALL}").as_str(), 1));
}

#[test]
fn a_string_goes_out_while_it_is_written() {
    let done = run(with_tools(), CALL);
    let piece = |update: &Update| {
        let Update::CallArguments(piece) = update else { return None };
        Some(piece.clone())
    };
    let pieces: Vec<String> = done.updates.iter().filter_map(piece).collect();
    assert_eq!(pieces, ["{\"s\":\"", "a", "\\\"", "b", "\"", ",\"n\":", "5", "}"]);
}

#[test]
fn without_a_thought_the_answer_is_no_reasoning() {
    let done = run(plain(), "Paris.");
    assert_eq!(done.written.outcome.text, "Paris.");
    assert_eq!(done.written.outcome.reasoning, "");
    assert_eq!(done.written.outcome.finish, Finish::Stop);
}

#[test]
fn a_call_inside_the_thought_closes_the_thought_first() {
    let done = run(thinking(), &format!("I will call {CALL}"));
    assert_eq!(done.written.outcome.reasoning, "I will call");
    assert_eq!((json(&done), done.written.outcome.text.as_str()), (vec![JSON], ""));
    assert!(done.fed.starts_with("I will call \n</think>\n\n<tool_call>\n"), "{}", done.fed);
    assert_eq!(done.written.closed.unwrap().kind, CloseKind::Call);
}

#[test]
fn an_end_inside_the_thought_closes_it() {
    let done = run(thinking(), "Hm<|im_end|>So it is.");
    assert_eq!(done.written.outcome.reasoning, "Hm");
    assert_eq!(done.written.outcome.text, "So it is.");
    assert_eq!(done.fed, "Hm\n</think>\n\nSo it is.");
}

#[test]
fn text_behind_a_call_ends_the_reply() {
    let done = run(with_tools(), &format!("{CALL}\n\nand then some"));
    assert_eq!((done.written.outcome.finish.clone(), json(&done)), (Finish::Calls, vec![JSON]));
    assert_eq!(done.fed, format!("{CALL}\n\na"), "no more is drawn");
    assert!(!done.written.keeps_last, "the letter is no part of the turn");
}

#[test]
fn parallel_calls_are_several_or_one() {
    let two = format!("{CALL}\n{CALL}");
    assert_eq!(json(&run(with_tools(), &two)), [JSON, JSON]);
    let done = run(Setup { single_call: true, ..with_tools() }, &two);
    assert_eq!((json(&done), done.fed.as_str()), (vec![JSON], CALL));
    assert!(done.written.keeps_last, "the end of the call was not evaluated, but belongs to it");
    assert!(done.written.block.is_some());
}

#[test]
fn a_limit_inside_a_call_leaves_it_open() {
    let at = CALL.find("b\n").unwrap();
    let tokens = tokenizer().encode_control(&CALL.as_bytes()[..at]).len();
    let done = run(Setup { room: tokens, ..with_tools() }, CALL);
    let outcome = &done.written.outcome;
    assert_eq!((outcome.finish.clone(), outcome.calls.len()), (Finish::Length, 0));
    let open = outcome.open_call.as_ref().unwrap();
    assert_eq!(open.json, r#"{"s":"a\""#, "nothing with a finished look");
    assert!(open.arguments.is_empty());
}

#[test]
fn a_limit_behind_a_call_is_no_matter() {
    let tokens = tokenizer().encode_control(CALL.as_bytes()).len();
    let done = run(Setup { room: tokens, ..with_tools() }, &format!("{CALL}\n{CALL}"));
    assert_eq!((done.written.outcome.finish.clone(), json(&done)), (Finish::Calls, vec![JSON]));
    let done = run(Setup { room: tokens + 40, ..with_tools() }, &format!("{CALL}\n{CALL}"));
    assert_eq!(done.written.outcome.finish, Finish::Length, "the second one must not be executed");
}

#[test]
fn the_end_of_a_turn_inside_a_call_leaves_it_open() {
    let done = run(with_tools(), "<tool_call>\n<function=f>\n<parameter=s>\nab");
    assert_eq!(done.written.outcome.finish, Finish::Length);
    assert_eq!(done.written.outcome.open_call.as_ref().unwrap().json, r#"{"s":"ab"#);
}

#[test]
fn a_block_that_is_no_call_is_text() {
    let done = run(with_tools(), "Well.\n\n<tool_call>\nnothing\n</tool_call> So.");
    let outcome = &done.written.outcome;
    assert_eq!(outcome.finish, Finish::Stop);
    assert_eq!(outcome.text, "Well.\n\n<tool_call>\nnothing\n</tool_call> So.");
    assert_eq!(done.written.failure, Some(ErrorKind::UnexpectedText));
}

#[test]
fn a_function_that_breaks_off_ends_the_reply() {
    let done = run(with_tools(), "<tool_call>\n<function=f>\nnonsense and more");
    assert_eq!(done.written.outcome.finish, Finish::Length);
    assert_eq!(done.written.outcome.open_call.as_ref().unwrap().name, "f");
    assert!(done.fed.ends_with("f>\nn"), "{}", done.fed);
}

#[test]
fn a_call_that_must_come_is_opened_when_the_thought_is_over() {
    let opening = tokenizer().encode_control(b"<tool_call>\n<function=f>");
    let forced = |setup: Setup, script: &str| {
        let done = run(Setup { opening: opening.clone(), ..setup }, script);
        let calls: Vec<String> = json(&done).into_iter().map(str::to_owned).collect();
        (done.fed, calls)
    };
    let rest = "\n</function>\n</tool_call>";
    let whole = format!("<tool_call>\n<function=f>{rest}");
    let one = vec!["{}".to_owned()];
    assert_eq!(forced(with_tools(), rest), (whole.clone(), one.clone()));
    let closed = format!("Hm\n</think>\n\n{whole}");
    assert_eq!(forced(thinking(), &format!("Hm\n</think>{rest}")), (closed.clone(), one.clone()));
    assert_eq!(forced(thinking(), &format!("Hm<|im_end|>{rest}")), (closed.clone(), one.clone()));
    assert_eq!(forced(thinking(), &format!("Hm<tool_call>{rest}")), (closed, one));
    let tight = Setup { room: 5, ..with_tools() };
    assert_eq!(forced(tight, "no room").0, "no ro");
}

#[test]
fn a_stop_text_ends_the_answer_and_only_the_answer() {
    let stop = |setup: Setup, script: &str| {
        let done = run(Setup { stop: vec!["END".into()], ..setup }, script);
        (done.written.outcome.finish.clone(), done.written.outcome.text.clone(), done.fed)
    };
    let (finish, text, fed) = stop(plain(), "one END two");
    assert_eq!((finish, text.as_str()), (Finish::StopText("END".into()), "one "));
    assert_eq!(fed, "one END", "what was drawn is in the session");
    let (finish, text, _) = stop(thinking(), "not END here</think>\n\nbut EN here");
    assert_eq!((finish, text.as_str()), (Finish::Stop, "but EN here"));
    let call = CALL.replace("a\"b", "END");
    assert_eq!(stop(with_tools(), &call).0, Finish::Calls);
}

#[test]
fn a_stop_text_at_the_very_end_counts() {
    let setup = Setup { stop: vec!["a\n".into()], ..plain() };
    let done = run(setup, "bca\n");
    assert_eq!(done.written.outcome.finish, Finish::StopText("a\n".into()));
    assert_eq!(done.written.outcome.text, "bc");
}

#[test]
fn a_budget_closes_the_thought_softly_or_hard() {
    let budget = Some(Budget { tokens: 10, soft: 5, hard: 0, top_rank: 3 });
    let script = tokenizer().encode_control(b"0123456789abcdef");
    let setup = || Setup { budget, ..thinking() };
    let hard = drive(setup(), &script, 4);
    assert_eq!(hard.written.closed.unwrap().kind, CloseKind::Hard);
    assert_eq!(hard.written.outcome.reasoning, "0123456789");
    let soft = drive(setup(), &script, 3);
    assert_eq!(soft.written.closed.unwrap().kind, CloseKind::Soft);
    assert_eq!(soft.written.outcome.reasoning, "01234");
}

#[test]
fn raw_text_passes_as_it_is() {
    let done =
        run(Setup { begins: Begins::Plain, ..plain() }, "\n\n <think>x</think> <tool_call> \n");
    assert_eq!(done.written.outcome.text, "\n\n <think>x</think> <tool_call> \n");
}

#[test]
fn a_limit_of_nothing_writes_nothing() {
    let done = run(Setup { room: 0, ..plain() }, "text");
    assert_eq!((done.fed.as_str(), done.written.outcome.finish.clone()), ("", Finish::Length));
}

#[test]
fn only_prose_and_values_are_counted_for_penalties() {
    let tokenizer = tokenizer();
    let mut writing = Writing::new(with_tools());
    for id in tokenizer.encode_control(CALL.as_bytes()) {
        assert_eq!(writing.next(), Next::Draw);
        writing.drawn((id, tokenizer.bytes(id)), None, || 9);
        writing.fed(tokenizer.bytes(id));
    }
    let count = |byte: u8| writing.seen().get(&TokenId(u32::from(byte))).copied();
    assert_eq!((count(b'b'), count(b'5')), (Some(1), Some(1)));
    assert_eq!(count(b'<'), Some(2), "the first letter of a closing tag is not yet known as such");
    assert_eq!(count(b'p'), None);
}

#[test]
fn logprobs_are_those_of_the_answer() {
    let tokenizer = tokenizer();
    let mut writing = Writing::new(thinking());
    let mut updates = Vec::new();
    for id in tokenizer.encode_control(b"So</think>\n\nA<tool_call>\n<function=f>\n") {
        let token =
            crate::server::Ranked { id, bytes: tokenizer.bytes(id).to_vec(), logprob: -1.0 };
        let logprob = Some(Logprob { token, top: Vec::new() });
        writing.drawn((id, tokenizer.bytes(id)), logprob, || 9);
        updates.extend(writing.fed(tokenizer.bytes(id)));
    }
    let bytes = |update: &Update| {
        let Update::Logprob(logprob) = update else { return None };
        Some(logprob.token.bytes.clone())
    };
    let bytes: Vec<u8> = updates.iter().filter_map(bytes).flatten().collect();
    assert_eq!(bytes, b"\n\nA");
}
