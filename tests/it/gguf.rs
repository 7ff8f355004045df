//! The committed model files, opened and checked.

use q36::model::Model;

use crate::support;

#[test]
fn demo_model_is_accepted() {
    let model = Model::open(&support::tiny_model()).unwrap();
    assert_eq!(model.file.tensors().len(), 149);
    assert_eq!(model.shape.tensor_count(), 149);
    assert_eq!(model.expert_bits(), 2);
    assert_eq!(model.vocabulary().unwrap().tokens.len(), 4096);
}
