//! A prompt as files are compared with it: its rendered bytes, and where markers stand among them.

use std::ops::Range;

/// A rendered prompt. Bytes alone cannot tell a marker from the same letters in somebody's message, so a text matches
/// only when its added tokens stand where the prompt has markers, and nowhere else.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// The rendered bytes.
    pub bytes: &'a [u8],
    /// Byte offsets of its control markers, ascending.
    pub markers: &'a [usize],
    /// Stretches of replayed tool calls, where either form will do: the model may have spelled a marker.
    pub replayed: &'a [Range<usize>],
}

impl Prompt<'_> {
    /// Whether a text of `len` bytes with these markers is a beginning of this prompt, its bytes being equal.
    pub fn has_markers(&self, markers: &[usize], len: usize) -> bool {
        let strict = |at: &&usize| !self.replayed.iter().any(|range| range.contains(*at));
        let own = self.markers.iter().take_while(|&&at| at < len).filter(strict);
        own.eq(markers.iter().filter(strict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_below_the_length_must_be_the_same_but_for_replayed_calls() {
        let replay = Range { start: 20, end: 30 };
        let prompt = Prompt { bytes: &[], markers: &[0, 10, 25, 40], replayed: &[replay] };
        for (markers, len, expected) in [
            (&[0, 10][..], 20, true),
            (&[0, 10, 25], 30, true),
            (&[0, 10], 30, true),
            (&[0, 10, 22, 28], 30, true),
            (&[0, 10, 35], 40, false),
            (&[0], 20, false),
            (&[0, 9], 20, false),
            (&[0, 10], 41, false),
            (&[0, 10, 40], 41, true),
        ] {
            assert_eq!(prompt.has_markers(markers, len), expected, "{markers:?} of {len}");
        }
    }
}
