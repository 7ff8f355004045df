//! Any bytes as a GGUF file: an error or a file whose every key and tensor can be read, and nothing
//! else. Accepted files are also offered as a model.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use q36::gguf::{File, Value};
use q36::model::Model;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = File::parse("fuzz.gguf", bytes) else { return };
    for (key, value) in file.metadata().iter() {
        let _ = value.describe();
        if let Ok(strings) = file.metadata().strings(key) {
            strings.for_each(drop);
        }
        if let Value::Array(array) = value {
            array.iter().for_each(drop);
        }
    }
    for tensor in file.tensors() {
        assert_eq!(file.data(tensor).len() as u64, tensor.bytes);
    }
    if let Ok(model) = Model::from_file(Arc::new(file)) {
        model.fingerprint();
        let _ = model.vocabulary();
    }
});
