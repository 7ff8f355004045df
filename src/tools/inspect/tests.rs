//! The report of the demo model, its JSON, and what verification and comparison find.

use std::path::{Path, PathBuf};

use super::*;
use crate::gguf::{Header, Value, Writer};
use crate::quant::TensorType;

fn demo(name: &str) -> InspectOptions {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models").join(name);
    InspectOptions { kv_k: TensorType::Q8_0, kv_v: TensorType::Q4_0, ..InspectOptions::new(&path) }
}

fn text(options: &InspectOptions) -> (String, Finding) {
    let mut out = Vec::new();
    let finding = inspect(options, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), finding)
}

fn json(options: &InspectOptions) -> serde_json::Value {
    let options = InspectOptions { json: true, ..options.clone() };
    serde_json::from_str(&text(&options).0).unwrap()
}

/// The line that begins with a name, without the name.
fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let found = text.lines().find_map(|l| l.trim_start().strip_prefix(name));
    found.unwrap_or_else(|| panic!("no line {name} in\n{text}")).trim()
}

/// Writes a file of one matrix, whose first row is `row`.
fn write_foreign(path: &Path, name: &str, row: &[f32]) {
    let mut header = Header::new();
    header.set("general.name", Value::String(name.as_bytes()));
    header.tensor("a", &[4, 2], TensorType::F32);
    let mut writer = Writer::create(path, header).unwrap();
    writer.part(bytemuck::cast_slice(row)).unwrap();
    writer.part(bytemuck::cast_slice(&[1.0f32; 4])).unwrap();
    writer.commit().unwrap();
}

#[test]
fn people_see_the_demo_model() {
    let (text, finding) = text(&demo("q36-tiny.gguf"));
    assert_eq!(finding, Finding::Clean);
    assert_eq!(line(&text, "name"), "Tiny Qwen3.6 q2");
    assert_eq!(line(&text, "runs"), "yes");
    assert_eq!(line(&text, "parameters"), "34,156,592 (34.16 million)");
    assert_eq!(line(&text, "layers"), "8: 6 recurrent, 2 with full attention (every 4th)");
    assert_eq!(line(&text, "eos"), "4065 <|im_end|>");
    assert_eq!(line(&text, "weights, sum").split_whitespace().next(), Some("12,170,448"));
    assert!(text.contains("\nmemory: 8,192 tokens, q8_0/q4_0 K/V, 1 session\n"));
    assert!(!text.contains("blk.7.attn_q.weight") && !text.contains("verified"));
    assert!(text.lines().all(|l| l.trim_end() == l), "no space at the end of a line");
    let (long, _) = self::text(&InspectOptions { tensors: true, ..demo("q36-tiny.gguf") });
    assert_eq!(line(&long, "blk.7.attn_q.weight").split_whitespace().last(), Some("2048"));
}

#[test]
fn programs_see_the_same() {
    let options = InspectOptions { ctx: Some(1024), sessions: 3, ..demo("q36-tiny.gguf") };
    let report = json(&InspectOptions { scratch_bytes: Some(|s| s.hidden as u64), ..options });
    assert_eq!(report["runnable"], true);
    assert_eq!(report["model"]["shape"]["rms_eps"], 1e-6);
    assert_eq!(report["tensors"].as_array().unwrap().len(), 149);
    assert_eq!(report["metadata"].as_array().unwrap().len(), 36);
    assert_eq!(report["mtp"]["block"], "absent");
    assert_eq!(report["tokenizer"]["kinds"]["control"], 21);
    let memory = &report["memory"];
    let number = |key: &str| memory[key].as_u64().unwrap();
    // Two layers of K and V rows: 512 values in 16 blocks of 34 and of 18 bytes.
    assert_eq!(number("kv_per_session"), 1024 * 2 * (16 * 34 + 16 * 18));
    assert_eq!((number("sessions"), number("slots"), number("scratch")), (3, 4, 256));
    // Six layers: 4 heads of 128 x 128, 4 rows of 1024 channels.
    assert_eq!(number("slot"), 6 * 4 * (4 * 128 * 128 + 4 * 1024));
    assert_eq!(number("beyond_weights") + number("weights"), number("total"));
    let decode = &report["decode"]["weights_by_group"];
    assert_eq!(decode[0], serde_json::json!({"name": "embedding", "bytes": 272}));
}

#[test]
fn a_support_file_and_a_foreign_file_say_what_they_are() {
    let (mtp, finding) = text(&demo("q36-tiny-mtp.gguf"));
    assert_eq!(finding, Finding::Clean);
    assert_eq!(line(&mtp, "runs"), "no: this is an MTP support file");
    assert_eq!(line(&mtp, "MTP"), "a complete support file, for `--mtp`");
    assert!(!mtp.contains("\nmemory"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    write_foreign(&path, "\x1b[2J", &[1.0; 4]);
    let (foreign, _) = text(&InspectOptions::new(&path));
    assert_eq!(line(&foreign, "name"), r"\u{1b}[2J");
    let reason = "no: required metadata key is missing: general.architecture";
    assert_eq!(line(&foreign, "runs"), reason);
    let missing = InspectOptions::new(&dir.path().join("b.gguf"));
    let message = inspect(&missing, &mut Vec::new()).unwrap_err().to_string();
    assert!(message.contains("b.gguf: cannot open model"), "{message}");
}

#[test]
fn verification_finds_what_is_not_finite() {
    let clean = InspectOptions { verify: true, ..demo("q36-tiny.gguf") };
    let (shown, finding) = text(&clean);
    assert_eq!(finding, Finding::Clean);
    assert_eq!(line(&shown, "read"), "16,823,232 (16.0 MiB), 475,568 floats and scales");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    write_foreign(&path, "a", &[1.0, f32::NAN, 2.0, f32::INFINITY]);
    let options = InspectOptions { verify: true, ..InspectOptions::new(&path) };
    let (shown, finding) = text(&options);
    assert_eq!(finding, Finding::Problems);
    assert_eq!(line(&shown, "BAD"), "a: 2 not finite, first in row 0");
    assert_eq!(json(&options)["verify"]["bad"][0]["values"], 2);
}

#[test]
fn a_broken_scale_of_any_block_type_is_found() {
    use TensorType::{BF16, F16, IQ2_XXS, Q2_K, Q4_0, Q4_K, Q5_K, Q6_K, Q8_0};
    let scale_at = [
        (F16, 0),
        (BF16, 0),
        (Q4_0, 0),
        (Q8_0, 0),
        (Q2_K, 82),
        (Q4_K, 2),
        (Q5_K, 0),
        (Q6_K, 208),
        (IQ2_XXS, 0),
    ];
    for (ty, at) in scale_at {
        let mut header = Header::new();
        header.tensor("t", &[256, 4], ty);
        let mut data = vec![0; 4 * ty.row_bytes(256).unwrap()];
        let row = 3 * data.len() / 4;
        // Not a number in every float type, read from either half of the type.
        data[row + at..row + at + 2].copy_from_slice(&[0xff, 0x7f]);
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, header).unwrap();
        writer.tensor("t", &data).unwrap();
        writer.finish().unwrap();
        let file = crate::gguf::File::parse("t", &out).unwrap();
        let found = verify(&file);
        assert_eq!(
            found.bad,
            [verify::Bad { tensor: "t".into(), values: 1, first_row: 3 }],
            "{ty}"
        );
    }
}

#[test]
fn differences_are_named_and_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (left, right) = (dir.path().join("l.gguf"), dir.path().join("r.gguf"));
    write_foreign(&left, "left", &[3.0, 0.0, 0.0, 0.0]);
    write_foreign(&right, "right", &[3.0, 1.0, 0.0, 0.0]);
    let options = InspectOptions { diff: Some(right), ..InspectOptions::new(&left) };
    let (shown, finding) = text(&options);
    assert_eq!(finding, Finding::Problems);
    assert_eq!(line(&shown, "key"), "general.name: \"left\" -> \"right\"");
    // A difference of 1 against values of 3, 1, 1, 1, 1.
    let rms = (1.0f64 / 13.0).sqrt();
    let expected = format!("a: f32 [4, 2] -> f32 [4, 2], relative rms {rms:.3e}");
    assert_eq!(line(&shown, "tensor  "), expected);
    assert_eq!(line(&shown, "equal"), "0 keys and 0 tensors");
    let same = InspectOptions { diff: Some(left), ..options };
    assert_eq!(text(&same).1, Finding::Clean);
    let mtp =
        InspectOptions { diff: Some(demo("q36-tiny-mtp.gguf").file), ..demo("q36-tiny.gguf") };
    let report = json(&mtp);
    let changes = report["diff"]["tensors"].as_array().unwrap();
    let absent = |side: &str| changes.iter().filter(|c| c[side].is_null()).count();
    assert_eq!((absent("right"), absent("left")), (146, 20));
    assert_eq!(report["diff"]["equal_tensors"], 3);
}
