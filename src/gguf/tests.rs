//! Round trips, and files that are wrong in every way the reader knows.

use proptest::prelude::*;

use super::*;
use crate::quant::TensorType;

const DATA: [u8; 34] = [7; 34];

/// A small file with every value type and two tensors.
fn small() -> Vec<u8> {
    let mut h = Header::new();
    h.set_str("general.name", "small");
    for (key, value) in [
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-2)),
        ("u16", Value::U16(60_000)),
        ("i16", Value::I16(-3)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-4)),
        ("f32", Value::F32(1.5)),
        ("bool", Value::Bool(true)),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f64", Value::F64(-0.25)),
    ] {
        h.set(key, value);
    }
    h.set_strings("strings", &[b"a".as_slice(), b"", b"\xff\xfe"]);
    h.set_array("numbers", ValueType::I32, &[Value::I32(1), Value::I32(-1)]);
    h.set_array("flags", ValueType::Bool, &[Value::Bool(true), Value::Bool(false)]);
    h.tensor("first", &[3, 1], TensorType::F32);
    h.tensor("second", &[32], TensorType::Q8_0);
    let mut w = Writer::new(Vec::new(), h).unwrap();
    w.tensor("first", bytemuck::cast_slice(&[1.0f32, 2.0, 3.0])).unwrap();
    w.part(&DATA[..10]).unwrap();
    w.part(&DATA[10..]).unwrap();
    w.finish().unwrap()
}

fn error(bytes: &[u8]) -> String {
    File::parse("f.gguf", bytes).unwrap_err().to_string()
}

#[test]
fn everything_written_is_read_back() {
    let file = File::parse("f.gguf", &small()).unwrap();
    let meta = file.metadata();
    assert_eq!(meta.len(), 15);
    assert_eq!(meta.str("general.name").unwrap(), "small");
    assert_eq!(meta.u64("u8").unwrap(), 200);
    assert_eq!(meta.get("i8"), Some(Value::I8(-2)));
    assert_eq!(meta.u32("u16").unwrap(), 60_000);
    assert_eq!(meta.get("i16").unwrap().integer(), Some(-3));
    assert_eq!(meta.u32("u32").unwrap(), 4_000_000_000);
    assert_eq!(meta.f32("f32").unwrap().to_bits(), 1.5f32.to_bits());
    assert!(meta.bool("bool").unwrap());
    assert_eq!(meta.u64("u64").unwrap(), u64::MAX);
    assert_eq!(meta.get("i64"), Some(Value::I64(i64::MIN)));
    assert_eq!(meta.get("f64"), Some(Value::F64(-0.25)));
    let strings: Vec<_> = meta.strings("strings").unwrap().collect();
    assert_eq!(strings, [b"a".as_slice(), b"", b"\xff\xfe"]);
    assert_eq!(meta.i32s("numbers").unwrap(), [1, -1]);
    assert_eq!(meta.bools("flags").unwrap(), [true, false]);
    let [first, second] = file.tensors() else { panic!("two tensors") };
    assert_eq!((first.shape(), first.elements(), first.rows()), ([3].as_slice(), 3, 1));
    assert_eq!(bytemuck::cast_slice::<u8, f32>(file.data(first)), [1.0, 2.0, 3.0]);
    assert_eq!(file.data(second), DATA);
    assert!(first.offset.is_multiple_of(32) && second.offset.is_multiple_of(32));
    assert_eq!(file.tensor("second"), Some(second));
    assert_eq!(file.tensor("third"), None);
}

#[test]
fn a_copy_of_the_metadata_is_the_same_metadata() {
    let file = File::parse("f.gguf", &small()).unwrap();
    let mut h = Header::new();
    file.metadata().iter().for_each(|(key, value)| h.set(key, value));
    let copy = Writer::new(Vec::new(), h).unwrap().finish().unwrap();
    let copy = File::parse("copy.gguf", &copy).unwrap();
    assert!(copy.metadata().iter().eq(file.metadata().iter()));
}

#[test]
fn a_file_on_disk_is_the_same_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.gguf");
    let mut h = Header::new();
    h.tensor("t", &[64, 3], TensorType::Q8_0);
    let mut w = Writer::create(&path, h).unwrap();
    assert!(!path.exists(), "nothing under the name before commit");
    w.tensor("t", &[9; 204]).unwrap();
    w.commit().unwrap();
    let file = File::open(&path).unwrap();
    let tensor = file.tensor("t").unwrap();
    assert_eq!(file.data(tensor), [9; 204]);
    file.prefetch_range((tensor.offset, tensor.bytes));
    let mut seen = 0;
    file.warm(&mut |done| {
        seen = done;
        true
    });
    assert_eq!(seen, file.size() - file.data_start());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn writer_refuses_what_was_not_announced() {
    let header = |dims: &[u64], ty| {
        let mut h = Header::new();
        h.tensor("t", dims, ty);
        Writer::new(Vec::new(), h)
    };
    let text = |r: Result<(), Error>| r.unwrap_err().to_string();
    assert_eq!(
        header(&[31], TensorType::Q8_0).unwrap_err().to_string(),
        "output: cannot write GGUF: tensor t cannot have dimensions [31] as q8_0"
    );
    let mut w = header(&[2], TensorType::F32).unwrap();
    assert!(text(w.tensor("u", &[0; 8])).contains("expected 8 bytes of t, got 8 of u"));
    assert!(text(w.tensor("t", &[0; 9])).contains("got 9 of t"));
    assert!(text(w.part(&[0; 9])).contains("9 bytes for the last 8 of t"));
    w.part(&[0; 3]).unwrap();
    assert!(text(w.finish().map(drop)).contains("tensor t has 3 of 8 bytes"));
    let mut h = Header::new();
    h.set("k", Value::U8(0));
    h.set("k", Value::U8(1));
    assert!(text(Writer::new(Vec::new(), h).map(drop)).contains("duplicate metadata key k"));
}

#[test]
fn typed_access_names_key_and_types() {
    let bytes = small();
    let file = File::parse("f.gguf", &bytes).unwrap();
    let meta = file.metadata();
    let check = |found: Error, expected: &str| assert_eq!(found.to_string(), expected);
    check(meta.u32("nope").unwrap_err(), "f.gguf: required metadata key is missing: nope");
    check(meta.array("nope").unwrap_err(), "f.gguf: required metadata array is missing: nope");
    check(meta.u32("i8").unwrap_err(), "f.gguf: expected i8 to be u32, got i8 -2");
    check(
        meta.u32("u64").unwrap_err(),
        "f.gguf: expected u64 to be u32, got u64 18446744073709551615",
    );
    check(
        meta.f32("general.name").unwrap_err(),
        "f.gguf: expected general.name to be f32, got string \"small\"",
    );
    check(
        meta.strings("numbers").map(drop).unwrap_err(),
        "f.gguf: expected numbers to be array of string, got array of 2 i32",
    );
}

/// Bytes of a header, written field by field, so that any of them can be wrong.
#[derive(Default, Clone)]
struct Raw(Vec<u8>);

impl Raw {
    fn header(tensors: u64, keys: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(tensors).u64(keys)
    }

    fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }

    fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }

    fn str(self, s: &str) -> Self {
        let mut this = self.u64(s.len() as u64);
        this.0.extend(s.as_bytes());
        this
    }

    fn tensor(self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Self {
        let this = self.str(name).u32(u32::try_from(dims.len()).unwrap());
        dims.iter().fold(this, |this, &d| this.u64(d)).u32(ty).u64(offset)
    }

    /// Pads as tensor data would.
    fn error(mut self) -> String {
        self.0.extend([0; 256]);
        error(&self.0)
    }
}

fn check(raw: Raw, expected: &str) {
    let found = raw.error();
    let found = found.strip_prefix("f.gguf: ").expect("the file is named");
    assert!(found.starts_with(expected), "{found}\nexpected: {expected}");
}

#[test]
fn rejects_what_is_no_file_of_this_format() {
    assert!(error(b"GGUF").contains("model file is too small to be GGUF: 4 bytes"));
    assert!(error(&[b'x'; 40]).contains("model is not a GGUF file"));
    let version = |v: u32| {
        let mut bytes = small();
        bytes[4..8].copy_from_slice(&v.to_le_bytes());
        error(&bytes)
    };
    assert!(version(2).ends_with("only GGUF v3 is supported, found version 2"));
    assert!(version(3 << 24).ends_with("(a big-endian file)"));
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &std::path::Path| File::open(path).unwrap_err().to_string();
    assert!(open(dir.path()).ends_with("cannot open model: not a regular file"));
    assert!(open(&dir.path().join("none")).contains("none: cannot open model: No such file"));
}

#[test]
fn rejects_absurd_counts() {
    check(Raw::header(u64::MAX, 0), "impossible number of tensors: 18446744073709551615");
    check(Raw::header(0, 1 << 40), "impossible number of metadata keys: 1099511627776");
    check(Raw::header(9, 0), "impossible number of tensors: 9, this file can hold at most 8");
}

#[test]
fn rejects_bad_metadata() {
    let key = |ty| Raw::header(0, 1).str("k").u32(ty);
    check(key(13), "unknown GGUF metadata type 13 of key k");
    check(key(9).u32(99).u64(0), "unknown GGUF metadata type 99 of key k");
    check(key(9).u32(4).u64(u64::MAX), "metadata array is too large: key k, 18446744073709551615");
    check(key(9).u32(8).u64(1 << 50), "metadata array is too large: key k");
    check(key(8).u64(u64::MAX), "truncated GGUF file at byte");
    check(key(7).u32(2), "bad truth value of key k: expected 0 or 1, found 2");
    check(Raw::header(0, 1).u64(1 << 33), "bad name of metadata key 0: it is longer");
    check(Raw::header(0, 1).u64(0), "bad name of metadata key 0: it is empty");
    check(Raw::header(0, 1).u64(2).u32(0x00ff_feff), "bad name of metadata key 0: it is not UTF-8");
    let twice = Raw::header(0, 2).str("k").u32(4).u32(1).str("k").u32(4).u32(1);
    check(twice, "duplicate metadata key k");
    let nested = |levels| (1..levels).fold(key(9), |raw, _| raw.u32(9).u64(1)).u32(4).u64(0);
    check(nested(9), "metadata array nesting is too deep: key k, at most 8 levels");
    let mut deep = nested(8).0;
    deep.resize(256, 0);
    let file = File::parse("deep", &deep).unwrap();
    let Some(Value::Array(array)) = file.metadata().get("k") else { panic!("an array") };
    assert_eq!((array.element(), array.count()), (ValueType::Array, 1));
    assert!(matches!(array.iter().next(), Some(Value::Array(_))));
}

#[test]
fn rejects_bad_alignment() {
    let aligned = |v| Raw::header(0, 1).str("general.alignment").u32(4).u32(v);
    for v in [0, 1, 3, 4, 48] {
        check(aligned(v), "bad general.alignment: expected a power of two of at least 8");
    }
    let text = Raw::header(0, 1).str("general.alignment").u32(8).str("32");
    check(text, "bad general.alignment: expected a power of two of at least 8, found a value of");
    let far = Raw::header(1, 1).str("general.alignment").u32(4).u32(1 << 31);
    check(
        far.tensor("t", &[1], 0, 0),
        "tensor points outside GGUF file: t ends at byte 2147483652",
    );
}

#[test]
fn rejects_bad_tensors() {
    let one = |dims: &[u64], ty, offset| Raw::header(1, 0).tensor("t", dims, ty, offset);
    check(one(&[], 0, 0), "tensor has an unsupported number of dimensions: t, expected 1 to 8");
    check(one(&[1; 9], 0, 0), "tensor has an unsupported number of dimensions: t");
    check(one(&[4, 0], 0, 0), "tensor t has dim[1]=0");
    check(one(&[1 << 40, 1 << 40], 0, 0), "tensor element count overflow: t");
    check(one(&[1 << 62, 2], 0, 0), "tensor element count overflow: t");
    check(one(&[32], 6, 0), "unsupported tensor type q5_0 (6) for t");
    check(one(&[32], 77, 0), "unsupported tensor type 77 for t");
    check(one(&[33], 8, 0), "tensor t: a row of 33 values is no whole number of q8_0 blocks of 32");
    check(one(&[4], 0, 8), "tensor t: offset 8 is not aligned to 32 bytes");
    check(one(&[4], 0, u64::MAX - 31), "tensor offset overflow: t");
    check(one(&[4], 0, 1 << 40), "tensor points outside GGUF file: t ends at byte 1099511627");
    let two =
        |name, offset| Raw::header(2, 0).tensor("t", &[16], 0, 0).tensor(name, &[4], 0, offset);
    check(two("u", 32), "tensors t and u overlap at byte");
    check(two("t", 64), "duplicate tensor t");
    let hostile = Raw::header(1, 0).tensor("\x1b[2J\u{202e}", &[], 0, 0);
    assert!(hostile.error().contains(r"\u{1b}[2J\u{202e}"));
}

#[test]
fn every_truncation_is_an_error() {
    let whole = small();
    let end = File::parse("f", &whole).unwrap().tensors().iter().map(|t| t.offset + t.bytes).max();
    for len in 0..usize::try_from(end.unwrap()).unwrap() {
        assert!(File::parse("f", &whole[..len]).is_err(), "{len} bytes");
    }
}

/// Reads all that an accepted file offers.
fn walk(file: &File) {
    for (key, value) in file.metadata().iter() {
        value.describe();
        let _ = (file.metadata().str(key), file.metadata().i32s(key), file.metadata().bools(key));
        file.metadata().strings(key).into_iter().flatten().for_each(drop);
        if let Value::Array(array) = value {
            assert_eq!(array.iter().count() as u64, array.count());
        }
    }
    for t in file.tensors() {
        assert_eq!(file.data(t).len() as u64, t.bytes);
        assert!(file.tensor(&t.name).is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn flipped_bytes_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)
    ) {
        let mut bytes = small();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(file) = File::parse("f", &bytes) {
            walk(&file);
        }
    }

    #[test]
    fn extreme_fields_never_panic(
        at in any::<prop::sample::Index>(),
        value in prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), Just(1 << 32), 0u64..300],
    ) {
        let mut bytes = small();
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        if let Ok(file) = File::parse("f", &bytes) {
            walk(&file);
        }
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        let bytes = [b"GGUF\x03\0\0\0".as_slice(), &noise].concat();
        if let Ok(file) = File::parse("f", &bytes) {
            walk(&file);
        }
    }
}
