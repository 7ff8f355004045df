//! Any bytes as a saved session: a reason to refuse them, or a state that a session of a small model can hold.

#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use q36::engine::StateSource as _;
use q36::kv::{Container, HEADER_BYTES, Loaded};
use q36::model::StateLayout;
use q36::quant::TensorType;

const CTX: usize = 64;

fuzz_target!(|bytes: &[u8]| {
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
});
