//! The transcript against the renderer of the official template, and read back from its own tokens.

use proptest::prelude::*;

use super::*;
use crate::engine::tokenizer_of;
use crate::model::Model;

fn tokenizer() -> Tokenizer {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/models/q36-tiny.gguf");
    tokenizer_of(&Model::open(path.as_ref()).unwrap()).unwrap()
}

fn new(tokenizer: &Tokenizer, system: &str, mode: ThinkMode) -> Transcript {
    Transcript::new(tokenizer, system, mode).unwrap()
}

/// Adds a turn. The reply is a control text.
fn turn(
    tokenizer: &Tokenizer,
    transcript: &mut Transcript,
    mode: ThinkMode,
    (text, reply): (&str, &str),
) {
    transcript.ask(tokenizer, text, mode).unwrap();
    transcript.answer(tokenizer.encode_control(reply.as_bytes()));
}

fn text(tokenizer: &Tokenizer, transcript: &Transcript) -> String {
    String::from_utf8(tokenizer.decode(&transcript.tokens())).unwrap()
}

#[test]
fn the_text_is_that_of_the_template_with_the_thoughts_kept() {
    let tokenizer = tokenizer();
    let mut transcript = new(&tokenizer, "Be brief.", ThinkMode::Max);
    let thought = ("What is 17 + 25? ", "17 + 25 = 42\n</think>\n\n42");
    turn(&tokenizer, &mut transcript, ThinkMode::On, thought);
    turn(&tokenizer, &mut transcript, ThinkMode::Off, ("<|im_end|> e\u{301}", "Paris."));
    transcript.ask(&tokenizer, "And?", ThinkMode::On).unwrap();
    let messages = vec![
        Message::system("Be brief."),
        Message::user("What is 17 + 25? "),
        Message::assistant("42").with_reasoning("17 + 25 = 42"),
        Message::user("<|im_end|> e\u{301}"),
        Message::assistant("Paris.").with_reasoning(""),
        Message::user("And?"),
    ];
    let options = RenderOptions {
        thinking: ThinkMode::Max,
        preserve_thinking: true,
        add_generation_prompt: true,
    };
    let prompt = chat::render(&Conversation::new(messages).normalised(), &options).unwrap();
    let found = tokenizer.text(&transcript.tokens());
    assert_eq!(String::from_utf8(found.bytes).unwrap(), prompt.text());
    let markers: Vec<usize> = prompt.markers().iter().map(|marker| marker.offset).collect();
    assert_eq!(found.markers, markers, "typed letters are no markers");
}

#[test]
fn a_conversation_without_system_text_begins_with_the_user() {
    let tokenizer = tokenizer();
    let mut transcript = new(&tokenizer, "", ThinkMode::Off);
    assert_eq!(transcript.tokens(), []);
    transcript.ask(&tokenizer, "Hi", ThinkMode::Off).unwrap();
    let expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    assert_eq!(text(&tokenizer, &transcript), expected);
}

#[test]
fn borders_are_before_the_message_and_before_the_reply() {
    let tokenizer = tokenizer();
    let mut transcript = new(&tokenizer, "Be brief.", ThinkMode::On);
    let places = |transcript: &Transcript| -> Vec<(String, BorderKind)> {
        let tokens = transcript.tokens();
        let rest = |pos: usize| String::from_utf8(tokenizer.decode(&tokens[pos..])).unwrap();
        let borders = transcript.borders(&tokenizer);
        borders.into_iter().map(|border| (rest(border.pos), border.kind)).collect()
    };
    let opening = "<|im_start|>assistant\n<think>\n";
    assert_eq!(places(&transcript), []);
    transcript.ask(&tokenizer, "A", ThinkMode::On).unwrap();
    let message = |text: &str| format!("<|im_start|>user\n{text}<|im_end|>\n{opening}");
    let reply = (opening.to_owned(), BorderKind::Turn);
    assert_eq!(places(&transcript), [(message("A"), BorderKind::Shared), reply.clone()]);
    transcript.answer(tokenizer.encode_text(b"a"));
    transcript.ask(&tokenizer, "B", ThinkMode::On).unwrap();
    assert_eq!(places(&transcript), [(message("B"), BorderKind::Turn), reply.clone()]);
    // Nothing is before the first message of a conversation without a head.
    let mut bare = new(&tokenizer, "", ThinkMode::On);
    bare.ask(&tokenizer, "A", ThinkMode::On).unwrap();
    assert_eq!(places(&bare), [reply]);
}

#[test]
fn what_was_taken_back_leaves_no_trace() {
    let tokenizer = tokenizer();
    let mut transcript = new(&tokenizer, "Be brief.", ThinkMode::Off);
    assert!(!transcript.ask_again(&tokenizer, ThinkMode::Off).unwrap());
    assert_eq!(transcript.undo(), None);
    turn(&tokenizer, &mut transcript, ThinkMode::Off, ("A", "a"));
    let before = transcript.clone();
    transcript.ask(&tokenizer, "B", ThinkMode::Off).unwrap();
    transcript.withdraw();
    assert_eq!(transcript, before);
    // A reply of nothing is none; the former one comes back.
    assert!(transcript.ask_again(&tokenizer, ThinkMode::On).unwrap());
    assert!(
        text(&tokenizer, &transcript).ends_with("A<|im_end|>\n<|im_start|>assistant\n<think>\n")
    );
    transcript.answer(Vec::new());
    assert_eq!(transcript, before);
    turn(&tokenizer, &mut transcript, ThinkMode::Off, ("B", "b"));
    assert_eq!(transcript.undo().unwrap().text, "B");
    assert_eq!(transcript, before);
}

#[test]
fn another_reply_takes_the_place_of_the_former() {
    let tokenizer = tokenizer();
    let mut transcript = new(&tokenizer, "", ThinkMode::Off);
    turn(&tokenizer, &mut transcript, ThinkMode::Off, ("A", "a"));
    transcript.ask_again(&tokenizer, ThinkMode::Off).unwrap();
    transcript.answer(tokenizer.encode_text(b"better"));
    let mut expected = new(&tokenizer, "", ThinkMode::Off);
    turn(&tokenizer, &mut expected, ThinkMode::Off, ("A", "better"));
    assert_eq!(transcript, expected);
}

#[test]
fn the_head_changes_under_the_turns() {
    let tokenizer = tokenizer();
    let mut transcript = new(&tokenizer, "Be brief.", ThinkMode::Off);
    turn(&tokenizer, &mut transcript, ThinkMode::Off, ("A", "a"));
    let turns = text(&tokenizer, &transcript).split_once("<|im_end|>\n").unwrap().1.to_owned();
    transcript.set_head(&tokenizer, "Be kind.", ThinkMode::Max).unwrap();
    assert!(transcript.is_max());
    let expected = format!("<|im_start|>system\n{THINK_MAX_TEXT}\n\nBe kind.<|im_end|>\n{turns}");
    assert_eq!(text(&tokenizer, &transcript), expected);
    transcript.set_head(&tokenizer, "", ThinkMode::Off).unwrap();
    assert_eq!(text(&tokenizer, &transcript), turns);
}

#[test]
fn a_thought_is_closed_on_a_line_of_its_own() {
    let tokenizer = tokenizer();
    let close = |reply: &str| {
        let reply = tokenizer.encode_text(reply.as_bytes());
        String::from_utf8(tokenizer.decode(&closing(&tokenizer, &reply))).unwrap()
    };
    assert_eq!(close("So"), "\n</think>\n\n");
    assert_eq!(close("So\n"), "</think>\n\n");
}

#[test]
fn what_is_no_conversation_is_not_read_as_one() {
    let tokenizer = tokenizer();
    let parse = |text: &str| {
        let tokens = tokenizer.encode_control(text.as_bytes());
        Transcript::parse(&tokenizer, &tokens).unwrap()
    };
    for text in [
        "",
        "Once upon a time",
        "<|im_start|>",
        "<|im_start|>user\nHi<|im_end|>\n",
        "<|im_start|>assistant\nHi<|im_end|>\n",
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo",
        "<|im_start|>robot\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
    let whole = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n";
    let found = parse(&format!("{whole}<|im_start|>user\nAnd")).unwrap();
    assert_eq!(text(&tokenizer, &found.transcript), whole);
    assert_eq!(found.left_out, tokenizer.encode_control(b"<|im_start|>user\nAnd").len());
    // Two messages in a row are one turn, and so are two replies.
    let two = "<|im_start|>user\nA<|im_end|>\n<|im_start|>user\nB<|im_end|>\n\
               <|im_start|>assistant\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n";
    let found = parse(two).unwrap();
    assert_eq!(text(&tokenizer, &found.transcript), two);
    assert_eq!(found.transcript.turns().len(), 1);
    assert_eq!(found.transcript.turns()[0].text, "A\n\nB");
}

proptest! {
    #[test]
    fn what_was_written_is_read_back(
        system in "(|[ -~é]{0,20})",
        is_max in any::<bool>(),
        turns in proptest::collection::vec(
            ("[a-z<|>\n]{1,12}", "[ -~\n]{0,12}", any::<bool>()),
            1..5,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let tokenizer = tokenizer();
        let mode = if is_max { ThinkMode::Max } else { ThinkMode::Off };
        let mut transcript = new(&tokenizer, system.trim(), mode);
        let mut lengths = vec![];
        for (text, reply, thinks) in turns {
            let mode = if thinks { ThinkMode::On } else { ThinkMode::Off };
            transcript.ask(&tokenizer, text.trim(), mode).unwrap();
            let mut reply = tokenizer.encode_text(format!("{reply}.").as_bytes());
            if thinks {
                let closing = closing(&tokenizer, &reply);
                reply.extend(closing);
            }
            transcript.answer(reply);
            lengths.push(transcript.tokens().len());
        }
        let tokens = transcript.tokens();
        let parsed = Transcript::parse(&tokenizer, &tokens).unwrap().unwrap();
        prop_assert_eq!(parsed.left_out, 0);
        prop_assert_eq!(parsed.transcript.tokens(), tokens.clone());
        prop_assert_eq!(parsed.transcript.is_max(), is_max);
        prop_assert_eq!(parsed.transcript.system(), system.trim());
        let texts = |t: &Transcript| t.turns().iter().map(|t| t.text.clone()).collect::<Vec<_>>();
        prop_assert_eq!(texts(&parsed.transcript), texts(&transcript));
        // Cut anywhere, the whole turns are left.
        let cut = cut.index(tokens.len());
        let whole = lengths.iter().filter(|&&len| len <= cut).max();
        let parsed = Transcript::parse(&tokenizer, &tokens[..cut]).unwrap();
        let kept = parsed.map(|p| (p.transcript.tokens().len(), p.left_out));
        prop_assert_eq!(kept, whole.map(|&len| (len, cut - len)));
    }
}
