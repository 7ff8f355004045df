//! How to bring a session to a prompt: a pure decision about prefixes.
//!
//! Full-attention rows are append-only and can be cut anywhere; the recurrent state can not. So a
//! session continues only from where it stands or from a position whose state was kept.

use super::report::{Border, Miss, Reuse, Target};
use super::text::{self, Place};
use crate::tokenizer::{TokenId, Tokenizer};

/// Where evaluation starts, and what the session holds in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SyncPlan {
    pub(super) start: Start,
    pub(super) reuse: Reuse,
    pub(super) miss: Option<Miss>,
    /// Tokens that stay.
    pub(super) reused: usize,
    /// Tokens of the session that the prompt has too.
    pub(super) common: usize,
    /// All tokens of the session in the end; the first `reused` are those it holds.
    pub(super) tokens: Vec<TokenId>,
    /// Borders behind the start.
    pub(super) borders: Vec<Border>,
}

/// The state that evaluation continues from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Live,
    /// This one of the kept positions.
    Kept(usize),
    Empty,
}

/// What a session can restart from.
pub(super) struct Restarts<'a> {
    /// Its tokens.
    pub(super) live: &'a [TokenId],
    /// Whether the logits behind the last token are there.
    pub(super) has_logits: bool,
    /// Positions whose state was kept.
    pub(super) kept: &'a [Kept],
}

/// A position whose state was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) pos: usize,
    pub(super) has_logits: bool,
    /// Whether a caller asked to remember it.
    pub(super) is_snapshot: bool,
}

/// Chooses the start that leaves least to evaluate. A start that needs no evaluation at all is only
/// good with logits.
pub(super) fn plan(tokenizer: &Tokenizer, from: &Restarts<'_>, target: &Target<'_>) -> SyncPlan {
    let (live, prompt) = (from.live, target.tokens);
    let same = live.iter().zip(prompt).take_while(|(a, b)| a == b).count();
    let places = if target.by_text && same < live.len() {
        text::places(tokenizer, live, prompt)
    } else {
        (0..=same).map(|token| Place { token, bytes: 0 }).collect()
    };
    let common = places.len() - 1;
    // Whether nothing is left to evaluate from there.
    let is_end = |pos: usize| places[pos].token == prompt.len();
    let miss = match live.len() {
        0 => Some(Miss::NoLiveState),
        n if common == n && (from.has_logits || !is_end(n)) => None,
        n if common == n => Some(Miss::NoLogits),
        _ if is_end(common) => Some(Miss::ShorterPrompt),
        _ => Some(Miss::TokenMismatch { at: common }),
    };
    let usable = |kept: &Kept| kept.pos <= common && (kept.has_logits || !is_end(kept.pos));
    let kept = from.kept.iter().enumerate().filter(|(_, kept)| usable(kept));
    let best = kept.max_by_key(|(_, kept)| kept.pos);
    let (start, reused, reuse) = match (miss, best) {
        (None, _) if live.len() == same => (Start::Live, live.len(), Reuse::Live),
        (None, _) => (Start::Live, live.len(), Reuse::LiveText),
        (Some(_), Some((i, kept))) => {
            let reuse = if kept.is_snapshot { Reuse::Snapshot } else { Reuse::Anchor };
            (Start::Kept(i), kept.pos, reuse)
        }
        (Some(_), None) => (Start::Empty, 0, Reuse::Cold),
    };
    let (rest, own) = text::rest(tokenizer, prompt, places[reused]);
    let tokens = [&live[..reused], &rest].concat();
    let borders = borders_behind(target.borders, prompt.len(), (reused, tokens.len()), own);
    SyncPlan { start, reuse, miss, reused, common, tokens, borders }
}

/// Borders behind the start, where they are in the tokens that the session will hold. Those in text that was tokenized
/// anew are no borders any more: positions are counted from the end, and there both have the same tokens.
fn borders_behind(
    borders: &[Border],
    prompt: usize,
    (reused, total): (usize, usize),
    own: usize,
) -> Vec<Border> {
    let behind = borders.iter().filter(|b| b.pos <= prompt && prompt - b.pos <= own);
    behind
        .map(|b| Border { pos: total - (prompt - b.pos), ..*b })
        .filter(|b| b.pos > reused)
        .collect()
}

/// Where the evaluation of positions `from..to` stops next: at a border, or at a multiple of `chunk` counted from the
/// start of the sequence. So cuts depend on the prompt alone, and a warm start cuts where a cold one does.
pub(super) fn next_cut(from: usize, to: usize, chunk: usize, borders: &[Border]) -> usize {
    let border = borders.iter().map(|b| b.pos).find(|&pos| pos > from).unwrap_or(to);
    ((from / chunk + 1) * chunk).min(border).min(to)
}

#[cfg(test)]
mod tests {
    use super::super::report::BorderKind;
    use super::*;

    fn ids(text: &str) -> Vec<TokenId> {
        text.bytes().map(|b| TokenId(u32::from(b))).collect()
    }

    fn tokenizer() -> Tokenizer {
        Tokenizer::stand_in(400).unwrap()
    }

    /// Kept positions with logits, one of which is a snapshot: the last.
    fn check(live: &str, has_logits: bool, kept: &[usize], prompt: &str) -> SyncPlan {
        let last = kept.len().saturating_sub(1);
        let kept: Vec<_> = kept
            .iter()
            .enumerate()
            .map(|(i, &pos)| Kept { pos, has_logits: true, is_snapshot: i == last })
            .collect();
        let (live, prompt) = (ids(live), ids(prompt));
        let restarts = Restarts { live: &live, has_logits, kept: &kept };
        let plan = plan(&tokenizer(), &restarts, &Target::tokens(&prompt));
        assert_eq!(plan.tokens, prompt);
        plan
    }

    #[track_caller]
    fn expect(plan: &SyncPlan, start: Start, reused: usize, miss: Option<Miss>) {
        assert_eq!((plan.start, plan.reused, plan.miss), (start, reused, miss));
    }

    #[test]
    fn extends_rewinds_or_starts_anew() {
        expect(&check("", false, &[], "abc"), Start::Empty, 0, Some(Miss::NoLiveState));
        expect(&check("ab", true, &[], "abc"), Start::Live, 2, None);
        expect(&check("ab", false, &[], "abc"), Start::Live, 2, None);
        expect(&check("abc", true, &[], "abc"), Start::Live, 3, None);
        // The same prompt without logits cannot be answered from the live state.
        expect(&check("abc", false, &[], "abc"), Start::Empty, 0, Some(Miss::NoLogits));
        expect(&check("abc", true, &[], "ab"), Start::Empty, 0, Some(Miss::ShorterPrompt));
        expect(&check("abc", true, &[2], "ab"), Start::Kept(0), 2, Some(Miss::ShorterPrompt));
        let differs = Some(Miss::TokenMismatch { at: 2 });
        let plan = check("abcd", true, &[1, 2, 4], "abx");
        expect(&plan, Start::Kept(1), 2, differs);
        assert_eq!(plan.reuse, Reuse::Anchor);
        expect(&check("abcd", true, &[3], "abx"), Start::Empty, 0, differs);
        assert_eq!(check("abcd", true, &[2], "abx").reuse, Reuse::Snapshot);
    }

    #[test]
    fn a_state_without_logits_is_no_end() {
        let kept = [1, 3].map(|pos| Kept { pos, has_logits: false, is_snapshot: false });
        let (live, prompt) = (ids("abcde"), ids("abc"));
        let restarts = Restarts { live: &live, has_logits: true, kept: &kept };
        let plan = plan(&tokenizer(), &restarts, &Target::tokens(&prompt));
        expect(&plan, Start::Kept(0), 1, Some(Miss::ShorterPrompt));
    }

    #[test]
    fn by_text_tokens_stay_and_borders_move() {
        // `(300)` was drawn as one token and comes back in five.
        let live = [TokenId(97), TokenId(300)];
        let prompt = ids("a(300)bc");
        let borders = [3, 6, 7].map(|pos| Border { pos, kind: BorderKind::Turn });
        let restarts = Restarts { live: &live, has_logits: false, kept: &[] };
        let exactly = Target { borders: &borders, ..Target::tokens(&prompt) };
        let cold = plan(&tokenizer(), &restarts, &exactly);
        expect(&cold, Start::Empty, 0, Some(Miss::TokenMismatch { at: 1 }));
        assert_eq!(cold.borders, borders);
        let found = plan(&tokenizer(), &restarts, &Target { by_text: true, ..exactly });
        expect(&found, Start::Live, 2, None);
        assert_eq!((found.reuse, found.common), (Reuse::LiveText, 2));
        assert_eq!(found.tokens, [TokenId(97), TokenId(300), TokenId(98), TokenId(99)]);
        // The border at 6 is where the session stands, the one at 3 is inside a token of it.
        assert_eq!(found.borders, [Border { pos: 3, kind: BorderKind::Turn }]);
    }

    #[test]
    fn cuts_do_not_depend_on_where_evaluation_starts() {
        let cuts = |from, to, chunk, borders: &[usize]| {
            let border = |&pos| Border { pos, kind: BorderKind::Stop };
            let borders: Vec<_> = borders.iter().map(border).collect();
            let next = |&pos: &usize| (pos < to).then(|| next_cut(pos, to, chunk, &borders));
            std::iter::successors(Some(from), next).skip(1).collect::<Vec<_>>()
        };
        assert_eq!(cuts(0, 10, 4, &[]), [4, 8, 10]);
        assert_eq!(cuts(5, 10, 4, &[]), [8, 10]);
        assert_eq!(cuts(8, 8, 4, &[]), [0; 0]);
        assert_eq!(cuts(8, 9, 1, &[]), [9]);
        assert_eq!(cuts(0, 10, 4, &[3, 4, 9]), [3, 4, 8, 9, 10]);
        assert_eq!(cuts(4, 10, 4, &[3, 4, 9, 12]), [8, 9, 10]);
    }

    use proptest::prelude::*;

    /// Tokens whose texts are parts of each other's, and a marker.
    fn tokens() -> impl Strategy<Value = Vec<TokenId>> {
        let marker = tokenizer().special().im_end;
        let bytes = b"(301)x<|im_end|>".map(|b| TokenId(u32::from(b)));
        let all =
            [&bytes[..], &[TokenId(300), TokenId(301), TokenId(300), marker, marker]].concat();
        prop::collection::vec(prop::sample::select(all), 0..12)
    }

    proptest! {
        #[test]
        fn whatever_stays_the_text_and_its_markers_are_those_of_the_prompt(
            common in tokens(),
            (live, prompt) in (tokens(), tokens()),
            kept in prop::collection::vec((0usize..20, any::<bool>()), 0..4),
            (has_logits, by_text) in (any::<bool>(), any::<bool>()),
        ) {
            let tokenizer = tokenizer();
            // The common part is spelled in other tokens: letter by letter where it is no marker.
            let spell = |id: &TokenId| {
                if tokenizer.kind(*id).is_added() {
                    return vec![*id];
                }
                ids(std::str::from_utf8(tokenizer.bytes(*id)).expect("ASCII"))
            };
            let spelled = common.iter().flat_map(spell).collect::<Vec<_>>();
            let (live, prompt) = ([common, live].concat(), [spelled, prompt].concat());
            let kept = kept.into_iter().filter(|(pos, _)| (1..=live.len()).contains(pos));
            let kept: Vec<_> =
                kept.map(|(pos, has_logits)| Kept { pos, has_logits, is_snapshot: false }).collect();
            let restarts = Restarts { live: &live, has_logits, kept: &kept };
            let borders: Vec<_> =
                (0..prompt.len() + 2).map(|pos| Border { pos, kind: BorderKind::Stop }).collect();
            let target = Target { tokens: &prompt, borders: &borders, by_text };
            let plan = plan(&tokenizer, &restarts, &target);
            prop_assert_eq!(&plan.tokens[..plan.reused], &live[..plan.reused]);
            let (found, expected) = (tokenizer.text(&plan.tokens), tokenizer.text(&prompt));
            prop_assert_eq!((found.bytes, found.markers), (expected.bytes, expected.markers));
            prop_assert!(by_text || plan.tokens == prompt);
            // Nothing to evaluate needs logits.
            let is_whole = plan.reused == plan.tokens.len() && !prompt.is_empty();
            let start_has_logits = match plan.start {
                Start::Live => has_logits,
                Start::Kept(i) => kept[i].has_logits,
                Start::Empty => false,
            };
            prop_assert!(!is_whole || start_has_logits);
            // Borders lie behind the start, and what follows them is what follows them in the prompt.
            for border in plan.borders {
                prop_assert!(plan.reused < border.pos && border.pos <= plan.tokens.len());
                let left = plan.tokens.len() - border.pos;
                prop_assert_eq!(&plan.tokens[border.pos..], &prompt[prompt.len() - left..]);
            }
        }
    }
}
