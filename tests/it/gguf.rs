//! Model files: the committed ones are accepted, every rejection of a changed one says what is wrong.

use std::sync::Arc;
use std::time::Instant;

use q36::gguf::File;
use q36::model::mtp::Mtp;
use q36::model::{Mixer, Model};
use q36::quant::TensorType;
use q36::util::rng::Rng;

use crate::support::tiny::{Meta, Parts, Tiny};
use crate::support::{repo, tiny_model};

fn open(parts: &Parts) -> Result<Model, String> {
    let file = File::parse("m.gguf", &parts.bytes()).map_err(|e| e.to_string())?;
    Model::from_file(Arc::new(file)).map_err(|e| e.to_string())
}

/// Changes a valid model and expects this message.
fn check(change: impl FnOnce(&mut Parts), expected: &str) {
    let mut parts = Tiny::default().parts();
    change(&mut parts);
    let found = open(&parts).expect_err(expected);
    let found = found.strip_prefix("m.gguf: ").expect("the file is named");
    assert!(found.starts_with(expected), "{found}\nexpected: {expected}");
}

fn check_key(key: &str, value: Meta, expected: &str) {
    check(|parts| parts.set(&format!("qwen35moe.{key}"), value), expected);
}

#[test]
fn demo_model_is_accepted() {
    let model = Model::open(&tiny_model()).unwrap();
    let s = &model.shape;
    assert_eq!((s.layers, s.hidden, s.vocab, s.experts), (8, 256, 4096, 16));
    assert_eq!(model.file.tensors().len(), 149);
    assert_eq!(s.tensor_count(), 149);
    assert_eq!(model.expert_bits(), 2);
    let kinds: Vec<_> =
        model.weights.layers.iter().map(|l| matches!(l.mixer, Mixer::Attention(_))).collect();
    assert_eq!(kinds, [false, false, false, true, false, false, false, true]);
    let vocabulary = model.vocabulary().unwrap();
    assert_eq!((vocabulary.tokens.len(), vocabulary.merges.len()), (4096, 3807));
    assert_eq!((vocabulary.eos, vocabulary.bos), (4065, Some(4063)));
    let norm = model.f32s(&model.weights.output_norm);
    assert!(norm.len() == 256 && norm.iter().all(|v| v.is_finite()));
    assert_eq!(model.row(&model.weights.embedding, 4095).len(), 272);
    let experts = &model.weights.layers[0].moe.down;
    let all = model.file.tensor("blk.0.ffn_down_exps.weight").unwrap();
    assert_eq!(model.expert(experts, 15), &model.file.data(all)[15 * experts.expert_bytes..]);
}

#[test]
fn mtp_file_fits_the_demo_model_and_is_none_itself() {
    let model = Model::open(&tiny_model()).unwrap();
    let path = repo("models/q36-tiny-mtp.gguf");
    let mtp = Mtp::open(&path, &model.shape).unwrap();
    assert_eq!((mtp.eh_proj.rows, mtp.eh_proj.cols), (256, 512));
    let text = Model::open(&path).unwrap_err().to_string();
    assert!(text.contains("this is an MTP support file\nhint: give it with `--mtp`"), "{text}");
    let text = Mtp::open(&tiny_model(), &model.shape).unwrap_err().to_string();
    assert!(text.ends_with("MTP: required tensor is missing: blk.8.attn_norm.weight"), "{text}");
}

#[test]
fn written_models_are_accepted() {
    use TensorType::{IQ2_XXS, Q2_K, Q4_K, Q8_0};
    for experts in [(IQ2_XXS, Q2_K), (Q4_K, Q4_K), (Q8_0, Q8_0)] {
        let model = open(&Tiny { experts, ..Tiny::default() }.parts()).unwrap();
        assert_eq!(model.shape, Tiny::default().shape);
        assert_eq!(model.weights.layers[3].moe.down.ty, experts.1);
    }
    let mut tiny = Tiny::default();
    tiny.shape.experts = 1;
    tiny.shape.experts_used = 1;
    let mut parts = tiny.parts();
    let model = open(&parts).unwrap();
    assert_eq!(model.weights.layers[0].moe.gate.count, 1);
    // Trailing ones may be there or not.
    for part in &mut parts.tensors {
        if part.name.ends_with("exps.weight") {
            part.dims.truncate(2);
        } else {
            part.dims.push(1);
        }
    }
    assert_eq!(open(&parts).unwrap().weights.layers[0].moe.gate.count, 1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.gguf");
    tiny.write(&path);
    assert_eq!(Model::open(&path).unwrap().shape.experts, 1);
}

#[test]
fn rejects_other_models() {
    let arch = |name: &str| Meta::Str(name.into());
    check(
        |p| p.set("general.architecture", arch("qwen3moe")),
        "expected general.architecture=qwen35moe, got qwen3moe\nhint: this program runs only",
    );
    let missing = "required metadata key is missing: general.architecture";
    check(|p| p.remove("general.architecture"), missing);
    let split = |p: &mut Parts| {
        p.set("split.no", Meta::U32(0));
        p.set("split.count", Meta::U32(3));
    };
    check(split, "split GGUF: merge it first (part 1 of 3)");
    let combined = |p: &mut Parts| {
        let mtp = Tiny::default().mtp_parts();
        p.set("qwen35moe.block_count", Meta::U32(5));
        p.set("qwen35moe.nextn_predict_layers", Meta::U32(1));
        p.tensors.extend(mtp.tensors.into_iter().filter(|t| t.name.starts_with("blk.4.")));
    };
    check(
        combined,
        "this file also contains the MTP block; use the 76-tensor main file plus `--mtp`",
    );
}

#[test]
fn rejects_missing_and_mistyped_keys() {
    let required: Vec<String> = Tiny::default()
        .parts()
        .meta
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| key.starts_with("qwen35moe."))
        .collect();
    assert_eq!(required.len(), 21);
    for key in required {
        let kind = if key.ends_with("sections") { "array" } else { "key" };
        check(|p| p.remove(&key), &format!("required metadata {kind} is missing: {key}"));
        check(|p| p.set(&key, Meta::Bool(true)), &format!("expected {key} to be "));
    }
}

#[test]
fn rejects_values_that_no_kernel_takes() {
    let bad = |key: &str, value: u32, rule: &str| {
        let expected = format!("expected qwen35moe.{key}={rule}, got {value}");
        check_key(key, Meta::U32(value), &expected);
    };
    bad("block_count", 0, "1 to 1024");
    bad("context_length", 0, "1 to 1073741824");
    bad("embedding_length", 128, "a multiple of 256 up to 65536");
    bad("attention.head_count", 0, "1 to 256");
    bad("attention.head_count_kv", 3, "a divisor of 2");
    bad("attention.key_length", 128, "256");
    bad("attention.value_length", 128, "256");
    bad("rope.dimension_count", 63, "a multiple of 2 up to 256");
    bad("full_attention_interval", 1, "2 to 4");
    bad("expert_count", 257, "1 to 256");
    bad("expert_used_count", 5, "1 to 4");
    bad("expert_feed_forward_length", 8, "a multiple of 32 up to 65536");
    bad("ssm.conv_kernel", 3, "4");
    bad("ssm.state_size", 64, "128");
    bad("ssm.group_count", 0, "1 to 512");
    bad("ssm.time_step_rank", 0, "a multiple of 1 up to 512");
    bad("ssm.inner_size", 512, "256");
    bad("nextn_predict_layers", 4, "less than block_count");
    for value in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        for key in ["rope.freq_base", "attention.layer_norm_rms_epsilon"] {
            let text = format!("expected qwen35moe.{key}=a finite positive number, got {value:?}");
            check_key(key, Meta::F32(value), &text);
        }
    }
    check_key(
        "expert_weights_scale",
        Meta::F32(2.5),
        "expected qwen35moe.expert_weights_scale=1.0, got 2.5",
    );
}

#[test]
fn rejects_arrays_that_contradict_the_shape() {
    let sections = |v: &[i32], expected: &str| {
        check_key("rope.dimension_sections", Meta::I32s(v.to_vec()), expected);
    };
    sections(&[11, 11, 10], "expected qwen35moe.rope.dimension_sections length=4, got 3");
    sections(&[11, -1, 10, 0], "unexpected qwen35moe.rope.dimension_sections[1]=-1");
    sections(&[11, 11, 12, 0], "unexpected qwen35moe.rope.dimension_sections[2]=12");
    sections(&[11, 11, 9, 0], "unexpected qwen35moe.rope.dimension_sections[3]=0, expected a sum");
    let kinds = |v: &[bool]| Meta::Bools(v.to_vec());
    let key = "attention.recurrent_layers";
    check_key(key, kinds(&[true; 3]), "expected qwen35moe.attention.recurrent_layers length=4");
    check_key(
        key,
        kinds(&[true, false, true, false]),
        "unexpected qwen35moe.attention.recurrent_layers[1]=false, expected true",
    );
    let mut parts = Tiny::default().parts();
    parts.set("qwen35moe.attention.recurrent_layers", kinds(&[true, true, true, false]));
    open(&parts).unwrap();
}

#[test]
fn rejects_tensors_that_do_not_fit() {
    check(|p| drop(p.tensors.pop()), "expected 76 tensors, got 75");
    let rename = |p: &mut Parts| p.tensor("blk.2.ssm_a").name = "blk.2.ssm_b".into();
    check(rename, "required tensor is missing: blk.2.ssm_a");
    let retype = |p: &mut Parts| {
        let t = p.tensor("blk.0.attn_qkv.weight");
        t.ty = TensorType::F16;
        t.data = vec![0; 256 * 512 * 2];
    };
    check(retype, "tensor blk.0.attn_qkv.weight has type f16, expected q8_0 or q5_k");
    check(
        |p| p.tensor("blk.3.attn_k_norm.weight").dims = vec![64, 4],
        "tensor blk.3.attn_k_norm.weight has 2 dimensions, expected 1",
    );
    check(
        |p| p.tensor("blk.3.attn_q.weight").dims = vec![512, 512],
        "tensor blk.3.attn_q.weight has dim[0]=512, expected 256",
    );
    check(
        |p| p.tensor("blk.0.ffn_up_exps.weight").dims = vec![256, 128, 8],
        "tensor blk.0.ffn_up_exps.weight has dim[1]=128, expected 256",
    );
    let mixed = |p: &mut Parts| {
        let t = p.tensor("blk.1.ffn_up_exps.weight");
        t.ty = TensorType::Q4_K;
        t.data = vec![0; 4 * 256 * 144];
    };
    check(
        mixed,
        "tensor blk.1.ffn_up_exps.weight has type q4_k, expected iq2_xxs, as the gate of the same",
    );
}

#[test]
fn rejects_tokenizers_that_do_not_fit() {
    let set = |key: &'static str, value: Meta| {
        move |p: &mut Parts| p.set(&format!("tokenizer.ggml.{key}"), value)
    };
    let text = |s: &str| Meta::Str(s.into());
    check(set("model", text("llama")), "expected tokenizer.ggml.model=gpt2, got llama");
    check(set("pre", text("qwen2")), "expected tokenizer.ggml.pre=qwen35, got qwen2");
    check(set("token_type", Meta::I32s(vec![1; 3])), "tokenizer: 3 token types for 320 tokens");
    for key in ["tokens", "token_type", "merges"] {
        let key = format!("tokenizer.ggml.{key}");
        check(|p| p.remove(&key), &format!("required metadata array is missing: {key}"));
    }
    check(
        set("tokens", Meta::Strs(vec!["a".into()])),
        "tokenizer: 1 tokens for 320 rows of the embedding",
    );
    check(
        set("eos_token_id", Meta::U32(4)),
        "tokenizer: expected id 4 = <|im_end|>, got Ą (tokenizer.ggml.eos_token_id)",
    );
    check(
        set("bos_token_id", Meta::U32(999)),
        "tokenizer: expected id 999 = <|endoftext|>, got nothing",
    );
    let mut parts = Tiny::default().parts();
    parts.remove("tokenizer.ggml.bos_token_id");
    assert_eq!(open(&parts).unwrap().vocabulary().unwrap().bos, None);
}

#[test]
fn rejects_mtp_files_that_do_not_fit() {
    let check = |change: &dyn Fn(&mut Parts), expected: &str| {
        let mut parts = Tiny::default().mtp_parts();
        change(&mut parts);
        let file = File::parse("m.gguf", &parts.bytes()).unwrap();
        match Mtp::from_file(&Arc::new(file), &Tiny::default().shape) {
            Ok(_) => assert_eq!(expected, ""),
            Err(e) => assert_eq!(e.to_string(), format!("m.gguf: MTP: {expected}")),
        }
    };
    check(&|_| (), "");
    check(
        &|p| p.tensor("blk.4.nextn.eh_proj.weight").dims = vec![256, 512],
        "tensor blk.4.nextn.eh_proj.weight has dim[0]=256, expected 512",
    );
    check(
        &|p| drop(p.tensors.pop()),
        "required tensor is missing: blk.4.nextn.shared_head_norm.weight",
    );
    let extra = |p: &mut Parts| {
        let mut t = p.tensor("output_norm.weight").clone();
        t.name = "blk.4.nextn.embed_tokens.weight".into();
        p.tensors.push(t);
    };
    check(
        &extra,
        "expected tensor count=23, got 24 tensors, one of them blk.4.nextn.embed_tokens.weight",
    );
}

/// A whole model in memory is copied for each case; its header is where the damage goes.
#[test]
fn damaged_headers_never_panic() {
    let mut tiny = Tiny::default();
    tiny.shape.experts = 2;
    let whole = tiny.parts().bytes();
    let header = usize::try_from(File::parse("m", &whole).unwrap().data_start()).unwrap();
    let mut rng = Rng::new(7);
    let mut draw = |n: usize| usize::try_from(rng.next_u64() >> 1).unwrap() % n;
    let (mut accepted, mut bytes) = (0, whole.clone());
    for _ in 0..1_000 {
        let (at, len) = (draw(header - 8), 1 + draw(8));
        let value = [0, 1, u64::MAX, draw(1 << 20) as u64, 1 << 33][draw(5)].to_le_bytes();
        bytes[at..at + len].copy_from_slice(&value[..len]);
        if let Ok(file) = File::parse("m", &bytes)
            && let Ok(model) = Model::from_file(Arc::new(file))
        {
            accepted += usize::from(model.vocabulary().is_ok());
        }
        bytes[at..at + len].copy_from_slice(&whole[at..at + len]);
    }
    println!("damaged headers: {accepted} of 1000 were still models");
}

#[test]
fn fingerprints_tell_models_apart() {
    let of = |parts: &Parts| open(parts).unwrap().fingerprint();
    let parts = Tiny::default().parts();
    let same = of(&parts);
    let mut moved = parts.clone();
    moved.tensors.reverse();
    moved.tensor("blk.0.ssm_a").dims.push(1);
    moved.set("general.name", Meta::Str("another name".into()));
    assert_eq!(of(&moved), same, "order and names mean nothing");
    let mut weights = parts.clone();
    let data = &mut weights.tensor("blk.3.attn_q.weight").data;
    let middle = data.len() / 2;
    data[middle] ^= 1;
    assert_ne!(of(&weights), same);
    assert_ne!(of(&Tiny { seed: 2, ..Tiny::default() }.parts()), same);
    let mut tokens = parts.clone();
    tokens.set("tokenizer.ggml.merges", Meta::Strs(vec!["t h".into()]));
    assert_ne!(of(&tokens), same);
    let with = |scale: &[u8]| q36::model::extend_fingerprint(same, &[b"directions", scale]);
    assert_ne!(with(b"1"), with(b"2"));
}

/// The published layout, with as many tokens and merges, as a file with holes for weights.
#[test]
fn the_published_layout_opens_at_once() {
    let mut tiny = Tiny::default();
    let s = &mut tiny.shape;
    (s.layers, s.hidden, s.vocab, s.context_length) = (40, 2048, 248_320, 262_144);
    (s.heads, s.kv_heads) = (16, 2);
    (s.key_heads, s.value_heads, s.inner, s.conv_channels) = (16, 32, 4096, 8192);
    (s.experts, s.experts_used, s.expert_ffn, s.shared_ffn) = (256, 8, 512, 512);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full.gguf");
    let merges = (0..247_587).map(|i| format!("a{i} b{i}")).collect();
    tiny.write_sparse(&path, |p| p.set("tokenizer.ggml.merges", Meta::Strs(merges)));
    let model = Model::open(&path).unwrap();
    assert_eq!(model.file.tensors().len(), 733);
    assert_eq!(model.file.tensor_bytes(), 11_726_326_272);
    assert_eq!(model.vocabulary().unwrap().merges.len(), 247_587);
    let time = |work: &dyn Fn()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let open = (0..5).map(|_| time(&|| drop(Model::open(&path).unwrap()))).min().unwrap();
    let fingerprint = time(&|| assert_eq!(model.fingerprint().len(), 20));
    println!("733 tensors, 248,320 tokens: open {open:?}, fingerprint {fingerprint:?}");
    // A few milliseconds; the bound allows for a busy machine.
    assert!(open.as_millis() < 250, "{open:?}");
}
