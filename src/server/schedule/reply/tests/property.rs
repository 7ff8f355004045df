//! However a reply is cut into tokens, it reads the same.

use proptest::prelude::*;

use super::*;

/// Parts of replies: prose, markers, tags, letters of several bytes.
fn script() -> impl Strategy<Value = String> {
    let parts = [
        "text ",
        "é",
        "𝄞",
        "\n",
        "\n\n",
        "<",
        "</think>",
        "<think>",
        "STOP",
        "ST",
        "```\n",
        "`",
        "<tool_call>\n<function=f>\n<parameter=s>\nväl",
        "\n</parameter>\n",
        "</function>\n",
        "</tool_call>",
        "<parameter=n>\n",
        "5\n</parameter>\n",
        "</parameter>",
        "<function=f>",
        "<tool_call>",
        "{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..14).prop_map(|p| p.concat())
}

/// A vocabulary whose rows stand for pieces of the script, so that any cut is a token.
fn pieces(script: &str, cuts: &[usize]) -> Vec<Vec<u8>> {
    let ids = tokenizer().encode_control(script.as_bytes());
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut cuts = cuts.iter().cycle();
    let mut left = 0;
    for id in ids {
        let bytes = tokenizer().bytes(id).to_vec();
        if bytes.len() > 1 {
            pieces.push(bytes);
            left = 0;
        } else if left > 0 {
            pieces.last_mut().expect("a piece is open").extend(bytes);
            left -= 1;
        } else {
            left = *cuts.next().unwrap_or(&0);
            pieces.push(bytes);
        }
    }
    pieces
}

fn whole(setup: Setup, pieces: &[Vec<u8>]) -> (Outcome, Vec<Update>) {
    let tokenizer = tokenizer();
    let mut writing = Writing::new(setup);
    let mut updates = Vec::new();
    let mut pieces = pieces.iter();
    loop {
        match writing.next() {
            Next::Draw => match pieces.next() {
                None => writing.drawn((tokenizer.special().im_end, b"<|im_end|>"), None, || 9),
                Some(piece) => {
                    let text = std::str::from_utf8(piece).ok();
                    let marker = text.and_then(|text| tokenizer.added_token(text));
                    // Any row that is no marker stands for a piece of several bytes.
                    let id = marker.unwrap_or(TokenId(u32::from(piece[0])));
                    writing.drawn((id, piece), None, || 9);
                    if let Next::Feed(_) = writing.next() {
                        updates.extend(writing.fed(piece));
                    }
                }
            },
            Next::Feed(fed) => updates.extend(writing.fed(tokenizer.bytes(fed.id))),
            Next::Over => break,
        }
    }
    let (last, written) = writing.finish();
    updates.extend(last);
    check(&updates, &written);
    (written.outcome, updates)
}

/// Everything but ids and counts of tokens.
fn essence(outcome: &Outcome) -> impl PartialEq + std::fmt::Debug {
    let call = |call: &Call| (call.name.clone(), call.json.clone());
    (
        outcome.finish.clone(),
        outcome.reasoning.clone(),
        outcome.text.clone(),
        outcome.calls.iter().map(call).collect::<Vec<_>>(),
        outcome.open_call.as_ref().map(call),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn cuts_change_nothing(
        script in script(),
        cuts in prop::collection::vec(0usize..7, 1..6),
        (thinks, calls, stops) in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let setup = || Setup {
            begins: if thinks { Begins::Thought } else { Begins::Answer },
            recover_calls: false,
            tools: calls.then(tools),
            stop: if stops { vec!["STOP".into(), "T O".into()] } else { Vec::new() },
            ..plain()
        };
        let (single, _) = whole(setup(), &pieces(&script, &[0]));
        let (cut, _) = whole(setup(), &pieces(&script, &cuts));
        prop_assert_eq!(essence(&single), essence(&cut));
    }
}
