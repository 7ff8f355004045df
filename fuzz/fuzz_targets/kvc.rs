//! Any bytes as a saved session: a reason to refuse them, or a state that a session of a small model can hold.
//!
//! Nearly every change to a file breaks a checksum, and what lies behind would never be reached. So the bytes are read
//! twice: as they are, and with the checksums that they should have.

#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use q36::engine::StateSource as _;
use q36::kv::{Container, HEADER_BYTES, Loaded};
use q36::model::StateLayout;
use q36::quant::TensorType;

const CTX: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    if let Some(summed) = summed(bytes) {
        read(&summed);
    }
});

/// The file with the right checksums of header, text, payload, and of the section where there is one. `None` where it is
/// too short for what its header says, or has no checksums.
fn summed(bytes: &[u8]) -> Option<Vec<u8>> {
    const INTEGRITY: u8 = 128;
    const SECTIONS: u8 = 1 | 8 | 16;
    let header = bytes.get(..HEADER_BYTES)?;
    let extensions = header[6];
    let text_bytes = u32::from_le_bytes(header[48..52].try_into().ok()?) as usize;
    let payload_bytes =
        usize::try_from(u64::from_le_bytes(header[40..48].try_into().ok()?)).ok()?;
    let sections = (extensions & SECTIONS).count_ones() as usize;
    let begin = bytes.len().checked_sub(4 + 20 + 4 * (3 + sections))?;
    if extensions & INTEGRITY == 0 {
        return None;
    }
    let payload_at = HEADER_BYTES.checked_add(text_bytes)?;
    let sections_at = payload_at.checked_add(payload_bytes)?;
    let (text, payload) =
        (bytes.get(HEADER_BYTES..payload_at)?, bytes.get(payload_at..sections_at)?);
    let section = bytes.get(sections_at..begin)?;
    // Hits and last use do not count.
    let mut counted = header.to_vec();
    counted[12..16].fill(0);
    counted[32..40].fill(0);
    let mut out = bytes.to_vec();
    out[begin..begin + 4].copy_from_slice(b"KCK\x01");
    out[begin + 4..begin + 8].copy_from_slice(&header[20..24]);
    for (i, part) in [&counted[..], text, payload, section].into_iter().enumerate() {
        if i < 3 || sections == 1 {
            let at = begin + 24 + 4 * i;
            out[at..at + 4].copy_from_slice(&crc32c::crc32c(part).to_le_bytes());
        }
    }
    Some(out)
}

fn read(bytes: &[u8]) {
    let Ok(mut file) = Container::open(Cursor::new(bytes)) else { return };
    let _ = file.verify(None);
    let _ = file.text_begins(bytes.get(HEADER_BYTES..).unwrap_or_default());
    if let Ok((sections, _)) = file.sections() {
        let text_bytes = file.header().text_bytes;
        if let Some(markers) = sections.markers(text_bytes) {
            assert!(markers.iter().all(|&at| at < text_bytes as usize));
        }
    }
    let layout = StateLayout {
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
    };
    let Ok(loaded) = file.load(&layout, CTX) else { return };
    let mut source = match loaded {
        Loaded::Tokens(tokens) => {
            assert!(tokens.iter().all(|id| id.index() < layout.vocab));
            return;
        }
        Loaded::State(source) => source,
    };
    let tokens = source.tokens().len();
    assert!((1..CTX).contains(&tokens));
    let mut logits = vec![0.0; layout.vocab];
    let mut is_whole = source.logits(&mut logits);
    for layer in 0..layout.layers {
        for part in layout.parts(layer, tokens, 512) {
            let mut out = vec![0; layout.part_bytes(&part)];
            is_whole = is_whole && source.part(layer, &part, &mut out);
        }
    }
    is_whole = is_whole && source.end();
    assert_eq!(is_whole, source.into_refusal().is_none(), "a source that stops says why");
}
