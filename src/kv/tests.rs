//! Whole files: what is written is read, and what was changed on the way is refused with a reason.

use std::io::{Cursor, Read, Seek, SeekFrom};

use proptest::prelude::*;

use super::*;
use crate::engine::StateSource as _;
use crate::model::StateLayout;
use crate::quant::TensorType;
use crate::tokenizer::TokenId;

const MODEL: [u8; 20] = *b"a model's fingerprin";
const CTX: usize = 8;

fn layout() -> StateLayout {
    StateLayout {
        vocab: 8,
        layers: 4,
        full_interval: 4,
        kv_heads: 1,
        head_dim: 256,
        conv_taps: 4,
        conv_channels: 8,
        state_dim: 4,
        value_heads: 2,
        kv_k: TensorType::Q8_0,
        kv_v: TensorType::Q4_0,
    }
}

/// What a session would hold.
#[derive(Debug, Clone, PartialEq)]
struct State {
    tokens: Vec<TokenId>,
    logits: Vec<f32>,
    parts: Vec<u8>,
}

fn state() -> State {
    let parts = layout().bytes(3);
    State {
        tokens: [1, 7, 0].map(TokenId).to_vec(),
        logits: (0_u8..8).map(|i| f32::from(i) - 3.5).collect(),
        parts: (0..parts).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect(),
    }
}

fn payload(state: &State) -> Vec<u8> {
    let layout = layout();
    let head = StateHead::new(&layout, 100, 16, state.tokens.len());
    let mut bytes = head.encode();
    bytes.extend(state.tokens.iter().flat_map(|id| id.0.to_le_bytes()));
    bytes.extend(state.logits.iter().flat_map(|x| x.to_le_bytes()));
    // Three recurrent layers, then the one with rows.
    let recurrent = 3 * layout.recurrent_bytes();
    bytes.extend(&state.parts[..recurrent]);
    bytes.extend(u32::try_from(state.tokens.len()).unwrap().to_le_bytes());
    bytes.extend(&state.parts[recurrent..]);
    assert_eq!(bytes.len() as u64, head.payload_bytes(&layout));
    bytes
}

fn frame(payload_bytes: usize, tokens: usize) -> Frame {
    let mut sections = Sections {
        tools: vec![ToolBlock { id: b"call_7".to_vec(), block: b"\n<tool_call>".to_vec() }],
        title: Some(b"Title".to_vec()),
        tagged: Vec::new(),
    };
    sections.set_markers(&[0, 9]);
    Frame {
        header: Header {
            reason: Reason::Cold,
            tokens: u32::try_from(tokens).unwrap(),
            payload_bytes: payload_bytes as u64,
            ..super::header::tests::sample()
        },
        fingerprint: MODEL,
        text: b"<|im_end|>some text".to_vec(),
        sections,
    }
}

fn file_of(payload: &[u8]) -> Vec<u8> {
    let frame = frame(payload.len(), 3);
    let mut encoder = Encoder::begin(Vec::new(), &frame).unwrap();
    for piece in payload.chunks(100) {
        encoder.payload(piece).unwrap();
    }
    let file = encoder.finish().unwrap();
    assert_eq!(file.len() as u64, frame.file_bytes());
    file
}

fn file() -> Vec<u8> {
    file_of(&payload(&state()))
}

/// Does what an engine does with a source, and hands out what it would have adopted.
fn import<R: Read + Seek>(mut source: Source<'_, R>) -> Result<State, Refusal> {
    let layout = layout();
    let tokens = source.tokens().to_vec();
    let mut logits = vec![0.0; layout.vocab];
    let mut parts = Vec::new();
    let mut fill = || {
        if !source.logits(&mut logits) {
            return false;
        }
        for layer in 0..layout.layers {
            for part in layout.parts(layer, tokens.len(), 512) {
                let mut bytes = vec![0; layout.part_bytes(&part)];
                if !source.part(layer, &part, &mut bytes) {
                    return false;
                }
                parts.extend(bytes);
            }
        }
        source.end()
    };
    if fill() {
        return Ok(State { tokens, logits, parts });
    }
    Err(source.into_refusal().expect("a source says why"))
}

fn load(bytes: &[u8]) -> Result<State, Refusal> {
    let mut file = Container::open(Cursor::new(bytes))?;
    file.check_model(&MODEL)?;
    match file.load(&layout(), CTX)? {
        Loaded::State(source) => import(source),
        Loaded::Tokens(tokens) => Ok(State { tokens, logits: Vec::new(), parts: Vec::new() }),
    }
}

#[test]
fn a_file_comes_back_whole() {
    let bytes = file();
    assert_eq!(load(&bytes).unwrap(), state());
    let mut open = Container::open(Cursor::new(&bytes[..])).unwrap();
    let (sections, dropped) = open.sections().unwrap();
    assert_eq!((sections, dropped), (frame(0, 3).sections, vec![]));
    let mut digest = [0; 20];
    digest.copy_from_slice(&<sha1::Sha1 as sha1::Digest>::digest(&frame(0, 3).text));
    assert_eq!(open.verify(Some(&digest)).unwrap(), Vec::<String>::new());
    let name = open.verify(Some(&[0; 20])).unwrap_err().to_string();
    assert_eq!(name, "the file name: it is not the digest of the text");
    assert!(open.text_begins(b"<|im_end|>some text and more").unwrap());
    assert!(!open.text_begins(b"<|im_end|>some texT and more").unwrap());
    assert!(!open.text_begins(b"<|im_end|>some").unwrap());
}

#[test]
fn tokens_alone_are_read() {
    let mut old = b"Q36 ".to_vec();
    old.extend([1_u32, 3, 5, 6, 7].iter().flat_map(|n| n.to_le_bytes()));
    assert_eq!(load(&file_of(&old)).unwrap().tokens, [5, 6, 7].map(TokenId));
    old[16] = 8;
    let outside = load(&file_of(&old)).unwrap_err().to_string();
    assert_eq!(outside, "the token ids: 8 at position 1, the vocabulary has 8");
}

/// A payload with the checksums that belong to it, changed before it was written.
fn refused(change: impl Fn(&mut Vec<u8>)) -> (Class, String) {
    let mut payload = payload(&state());
    change(&mut payload);
    let refusal = load(&file_of(&payload)).unwrap_err();
    (refusal.class(), refusal.to_string())
}

#[test]
fn a_contradiction_is_refused_by_its_field() {
    let damaged = |why: &str| (Class::Damaged, why.to_owned());
    let foreign = |why: &str| (Class::Foreign, why.to_owned());
    let count = refused(|p| p[16] = 4);
    assert_eq!(count, damaged("the token count: 3 in the header, 4 in the payload"));
    let layers =
        "KV checkpoint was written for a different q36 layout: the layer count is 5, expected 4";
    assert_eq!(refused(|p| p[24] = 5), foreign(layers));
    let id = refused(|p| p[68] = 8);
    assert_eq!(id, damaged("the token ids: 8 at position 1, the vocabulary has 8"));
    let nan = refused(|p| p[76 + 4..76 + 8].copy_from_slice(&f32::NAN.to_le_bytes()));
    assert_eq!(nan, damaged("the logits: NaN at 1"));
    let at = 64 + 12 + 32 + 3 * layout().recurrent_bytes();
    let rows = "KV checkpoint full-attention length mismatch: 2 in layer 3, expected 3";
    assert_eq!(refused(|p| p[at] = 2), damaged(rows));
    let (class, long) = refused(|p| p.push(0));
    assert_eq!(class, Class::Damaged);
    assert!(long.contains("trailing bytes in session payload"), "{long}");
    let (class, short) = refused(|p| p.truncate(p.len() - 1));
    assert_eq!(class, Class::Damaged);
    assert!(short.starts_with("the payload's length"), "{short}");
}

#[test]
fn a_file_of_another_model_or_without_checksums_is_foreign() {
    let mut open = Container::open(Cursor::new(file())).unwrap();
    let other = open.check_model(&[9; 20]).unwrap_err();
    assert_eq!(other.class(), Class::Foreign);
    assert!(other.to_string().starts_with("KV checkpoint was written for a different model"));
    assert!(open.load(&layout(), 3).is_err_and(|e| e.class() == Class::Foreign), "no room");
    let mut plain = file();
    plain[6] &= 0x7f;
    let mut open = Container::open(Cursor::new(plain)).unwrap();
    assert!(open.load(&layout(), CTX).is_err_and(|e| e.class() == Class::Foreign));
}

/// A file of any size that is zero but for its beginning.
struct Huge {
    head: Vec<u8>,
    pos: u64,
}

impl Read for Huge {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        for byte in out.iter_mut() {
            let at = usize::try_from(self.pos).unwrap();
            *byte = self.head.get(at).copied().unwrap_or(0);
            self.pos += 1;
        }
        Ok(out.len())
    }
}

impl Seek for Huge {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.pos = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(_) => 1 << 50,
            SeekFrom::Current(by) => self.pos.checked_add_signed(by).unwrap(),
        };
        Ok(self.pos)
    }
}

#[test]
fn lengths_of_a_file_are_no_reason_to_allocate() {
    let header = Header {
        extensions: Extensions(16),
        tokens: u32::MAX,
        payload_bytes: 1 << 49,
        text_bytes: u32::MAX,
        ..super::header::tests::sample()
    };
    let mut open = Container::open(Huge { head: header.encode().to_vec(), pos: 0 }).unwrap();
    assert_eq!(open.text(100).unwrap().len(), 100);
    assert!(!open.text_begins(b"short").unwrap());
    assert!(open.head().is_err() && open.sections().is_err() && open.verify(None).is_err());
    let head = StateHead::new(&layout(), 0, 0, u32::MAX as usize);
    assert!(head.check(&layout(), CTX).is_err());
    assert!(!head.may_have(1 << 49));
}

/// A change to a file.
#[derive(Debug, Clone)]
enum Change {
    Flip(prop::sample::Index, u8),
    Word(prop::sample::Index, u32),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Swap(prop::sample::Index, prop::sample::Index, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<prop::sample::Index>;
    let word = prop_oneof![any::<u32>(), 0_u32..70_000, Just(u32::MAX), Just(1 << 31)];
    prop_oneof![
        4 => (index(), 0_u8..8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        4 => (index(), word).prop_map(|(at, word)| Change::Word(at, word)),
        1 => index().prop_map(Change::Cut),
        1 => (index(), prop::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (index(), 1_usize..40).prop_map(|(at, len)| Change::Remove(at, len)),
        1 => (index(), index(), 1_usize..40).prop_map(|(a, b, len)| Change::Swap(a, b, len)),
    ]
}

/// Half of the changes hit the two ends of the file, where the fields are.
fn place(index: prop::sample::Index, len: usize) -> usize {
    let at = index.index(4 * len);
    match at / len {
        0 => at % 130 % len,
        1 => len - 1 - at % 180 % len,
        _ => at % len,
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    if bytes.is_empty() {
        return;
    }
    let len = bytes.len();
    match change {
        Change::Flip(at, bit) => bytes[place(*at, len)] ^= 1 << bit,
        Change::Word(at, word) => {
            let at = place(*at, len);
            let end = (at + 4).min(len);
            bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
        }
        Change::Cut(at) => bytes.truncate(place(*at, len)),
        Change::Insert(at, new) => {
            let at = place(*at, len);
            bytes.splice(at..at, new.iter().copied());
        }
        Change::Remove(at, n) => {
            let at = place(*at, len);
            bytes.drain(at..(at + n).min(len));
        }
        Change::Swap(a, b, n) => {
            let (a, b) = (place(*a, len), place(*b, len));
            (0..*n).take_while(|i| a.max(b) + i < len).for_each(|i| bytes.swap(a + i, b + i));
        }
    }
}

/// Makes the checksums of header, text and payload right again, so that what they protect is looked at.
fn reseal(bytes: &mut [u8]) {
    let file = bytes.len() as u64;
    let Ok(header) = Header::parse(bytes, file) else { return };
    let kck = super::integrity::section_bytes(header.extensions);
    let range = |from: u64, to: u64| usize::try_from(from).unwrap()..usize::try_from(to).unwrap();
    let Some(at) = file.checked_sub(kck).filter(|&at| at >= header.sections_at()) else { return };
    let raw: [u8; HEADER_BYTES] = bytes[..HEADER_BYTES].try_into().unwrap();
    let text = crc32c::crc32c(&bytes[range(HEADER_BYTES as u64, header.payload_at())]);
    let payload = crc32c::crc32c(&bytes[range(header.payload_at(), header.sections_at())]);
    let sums = [super::integrity::header_sum(&raw), text, payload].map(u32::to_le_bytes).concat();
    let at = usize::try_from(at).unwrap() + 24;
    bytes[at..at + 12].copy_from_slice(&sums);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_file_is_refused_with_a_reason_or_gives_a_sound_state(
        changes in prop::collection::vec(change(), 1..4),
        sealed in any::<bool>(),
    ) {
        let mut bytes = file();
        for change in &changes {
            apply(&mut bytes, change);
        }
        if sealed {
            reseal(&mut bytes);
        }
        if let Ok(mut open) = Container::open(Cursor::new(&bytes[..])) {
            if let Err(refusal) = open.verify(None) {
                prop_assert!(!refusal.to_string().is_empty());
            }
            let _ = open.sections();
        }
        match load(&bytes) {
            // Checksums leave nothing but the counters and the sections to change.
            Ok(found) if !sealed => prop_assert_eq!(found, state()),
            Ok(found) => {
                let n = found.tokens.len();
                prop_assert!(n > 0 && n < CTX && found.tokens.iter().all(|id| id.0 < 8));
                prop_assert!(found.logits.iter().all(|x| x.is_finite()));
                prop_assert!(found.parts.len() as u64 == layout().bytes(n) || found.logits.is_empty());
            }
            Err(refusal) => prop_assert!(!refusal.to_string().is_empty()),
        }
    }
}
