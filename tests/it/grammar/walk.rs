//! Texts of random tokens among those that a constraint allows.

use q36::server::grammar::Constraint;
use q36::tokenizer::{TokenId, TokenMask};
use q36::util::rng::Rng;

use crate::tokenizer::published;

/// Most tokens of a walk.
const STEPS: usize = 4000;

/// What closes the value of a parameter.
pub(super) const VALUE_END: &str = "\n</parameter>";

/// How walks are brought to an end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Closing {
    /// By what closes most of JSON.
    Json,
    /// By the tag that closes a value.
    Value,
}

impl Closing {
    /// Single bytes that lead to the end of `text`, the best first.
    fn bytes(self, text: &[u8]) -> Vec<u8> {
        let tag = VALUE_END.as_bytes();
        let begun = (0..tag.len()).rev().find(|&n| text.ends_with(&tag[..n])).unwrap_or(0);
        match self {
            Self::Json => b"\"}]:,0".to_vec(),
            Self::Value => [&tag[begun..=begun], b"\"}]:,0"].concat(),
        }
    }
}

/// The token of a single byte.
pub(super) fn byte(byte: u8) -> TokenId {
    let ids = published().encode_text(&[byte]);
    assert_eq!(ids.len(), 1);
    ids[0]
}

/// All tokens of a mask.
pub(super) fn ids(mask: &TokenMask) -> Vec<TokenId> {
    (0..mask.len())
        .map(|row| TokenId(u32::try_from(row).unwrap()))
        .filter(|id| mask.contains(*id))
        .collect()
}

/// One of several things.
pub(super) fn one_of<'a, T>(some: &'a [T], rng: &mut Rng) -> &'a T {
    &some[usize::try_from(rng.next_u64() % some.len() as u64).unwrap()]
}

/// A text of random tokens; after `wild` of them those that end it are preferred. `None` for one without end.
pub(super) fn wander(
    mut constraint: Constraint,
    rng: &mut Rng,
    wild: usize,
    closing: Closing,
) -> Option<String> {
    let end = published().special().im_end;
    let mut text = Vec::new();
    for step in 0..STEPS {
        let mask = constraint.mask().unwrap();
        assert!(!mask.is_empty(), "nothing may follow {:?}", String::from_utf8_lossy(&text));
        assert_eq!(
            mask.contains(end),
            constraint.may_end(),
            "{:?}",
            String::from_utf8_lossy(&text)
        );
        if mask.contains(end) && (mask.count() == 1 || step >= wild) {
            return Some(String::from_utf8(text).expect("UTF-8"));
        }
        let bytes = if step >= wild { closing.bytes(&text) } else { Vec::new() };
        let closer = bytes.into_iter().map(byte).find(|&id| mask.contains(id));
        let id = closer.unwrap_or_else(|| {
            let mut allowed = ids(&mask);
            allowed.retain(|&id| id != end);
            *one_of(&allowed, rng)
        });
        assert!(!published().kind(id).is_added(), "a marker has no bytes");
        text.extend(published().bytes(id));
        constraint.accept(id).unwrap();
    }
    None
}
