//! Totals over a tensor table: groups, storage types, bytes read for each decoded token
//! (model.md 2.4 and 2.5).

use std::collections::BTreeMap;

use super::layout::{Expected, Group, Role, parse_name};
use super::shape::Shape;
use crate::gguf::Tensor;
use crate::quant::TensorType;

/// Tensors, parameters and bytes of a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Total {
    /// Number of tensors.
    pub tensors: u64,
    /// Number of weights.
    pub parameters: u64,
    /// Bytes of data.
    pub bytes: u64,
}

impl Total {
    fn add(&mut self, t: &Tensor) {
        self.tensors += 1;
        self.parameters += t.elements();
        self.bytes += t.bytes;
    }
}

/// Over all tensors.
pub fn total(tensors: &[Tensor]) -> Total {
    let mut sum = Total::default();
    for t in tensors {
        sum.add(t);
    }
    sum
}

/// By storage type.
pub fn by_type(tensors: &[Tensor]) -> BTreeMap<TensorType, Total> {
    let mut sums = BTreeMap::new();
    for t in tensors {
        sums.entry(t.ty).or_insert_with(Total::default).add(t);
    }
    sums
}

/// By part of the model; tensors that are none of this model's are left out.
pub fn by_group(tensors: &[Tensor]) -> BTreeMap<Group, Total> {
    let mut sums = BTreeMap::new();
    for t in tensors {
        if let Some(Expected { role, .. }) = parse_name(&t.name) {
            sums.entry(role.group()).or_insert_with(Total::default).add(t);
        }
    }
    sums
}

/// Bytes of weights that one decoded token reads, by group: one row of the embedding, the selected
/// experts, everything else once. K and V rows and the recurrent state come on top.
pub fn bytes_per_token(tensors: &[Tensor], shape: &Shape) -> BTreeMap<Group, u64> {
    per_token(tensors, shape, |t| t.bytes)
}

/// Weights that take part in computing one token, by group.
pub fn parameters_per_token(tensors: &[Tensor], shape: &Shape) -> BTreeMap<Group, u64> {
    per_token(tensors, shape, Tensor::elements)
}

fn per_token(
    tensors: &[Tensor],
    shape: &Shape,
    size: impl Fn(&Tensor) -> u64,
) -> BTreeMap<Group, u64> {
    let mut sums = BTreeMap::new();
    for t in tensors {
        let Some(Expected { role, .. }) = parse_name(&t.name) else { continue };
        let used = match role.group() {
            Group::Embedding => size(t) / t.rows(),
            Group::RoutedExperts => size(t) / shape.experts as u64 * shape.experts_used as u64,
            Group::Head
            | Group::LayerNorms
            | Group::Recurrent
            | Group::Attention
            | Group::Router
            | Group::SharedExperts
            | Group::Mtp => size(t),
        };
        *sums.entry(role.group()).or_insert(0) += used;
    }
    sums
}

/// Bytes that one MTP draft step reads: the block's share as above, the norms and the head of the
/// main model, and one row of the embedding.
pub fn bytes_per_draft(mtp_tensors: &[Tensor], shape: &Shape) -> u64 {
    bytes_per_token(mtp_tensors, shape).values().sum()
}

/// Bytes of one routed expert of a layer: gate, up and down.
pub fn expert_bytes(tensors: &[Tensor], shape: &Shape, layer: usize) -> u64 {
    let routed = |t: &&Tensor| {
        let found = parse_name(&t.name).filter(|e| e.layer == Some(layer)).map(|e| e.role);
        matches!(found, Some(Role::ExpertGate | Role::ExpertUp | Role::ExpertDown))
    };
    tensors.iter().filter(routed).map(|t| t.bytes).sum::<u64>() / shape.experts as u64
}

#[cfg(test)]
pub(super) mod tests {
    use TensorType::{F32, IQ2_XXS, Q2_K, Q4_K, Q8_0};

    use super::*;
    use crate::model::layout;

    /// The dimensions of the published model.
    pub(in crate::model) fn published_shape() -> Shape {
        Shape::published(40)
    }

    /// A tensor table with the published types, but for the routed experts of `(layer, role)`.
    fn table(list: Vec<Expected>, routed: impl Fn(usize, Role) -> TensorType) -> Vec<Tensor> {
        let shape = published_shape();
        let tensor = |e: Expected| {
            let ty = match e.layer {
                Some(layer) if e.role.group() == Group::RoutedExperts => routed(layer, e.role),
                _ => e.role.accepted()[0],
            };
            let dims = e.role.dims(&shape);
            let rows: u64 = dims[1..].iter().product();
            let bytes = ty.row_bytes(usize::try_from(dims[0]).unwrap()).unwrap() as u64 * rows;
            Tensor { name: e.name(), dims, ty, offset: 0, bytes }
        };
        list.into_iter().map(tensor).collect()
    }

    fn q2(_: usize, role: Role) -> TensorType {
        if role == Role::ExpertDown { Q2_K } else { IQ2_XXS }
    }

    fn q2_q4(layer: usize, role: Role) -> TensorType {
        if layer >= 34 { Q4_K } else { q2(layer, role) }
    }

    fn main_table(routed: impl Fn(usize, Role) -> TensorType) -> Vec<Tensor> {
        table(layout::main_file(&published_shape()), routed)
    }

    fn mtp_table() -> Vec<Tensor> {
        table(layout::mtp_file(&published_shape()), |_, _| Q4_K)
    }

    #[test]
    fn published_files_have_the_published_sizes() {
        let check = |tensors: &[Tensor], count: u64, bytes: u64| {
            let sum = total(tensors);
            assert_eq!((sum.tensors, sum.bytes), (count, bytes));
        };
        check(&main_table(q2), 733, 11_726_326_272);
        check(&main_table(q2_q4), 733, 13_085_280_768);
        check(&main_table(|_, _| Q8_0), 733, 36_892_150_272);
        check(&mtp_table(), 23, 1_577_052_160);
        assert_eq!(published_shape().tensor_count(), 733);
        assert_eq!(total(&main_table(q2)).parameters, 34_660_610_688);
        assert_eq!(total(&mtp_table()).parameters, 1_861_761_536);
        let active: u64 = parameters_per_token(&main_table(q2), &published_shape()).values().sum();
        assert_eq!(active - 2048, 2_946_429_568);
    }

    #[test]
    fn published_groups() {
        let groups = by_group(&main_table(q2));
        let check = |group, parameters, bytes| {
            let sum = groups[&group];
            assert_eq!((sum.parameters, sum.bytes), (parameters, bytes), "{group:?}");
        };
        check(Group::Embedding, 508_559_360, 540_344_320);
        check(Group::Head, 508_561_408, 540_352_512);
        check(Group::LayerNorms, 163_840, 655_360);
        check(Group::Recurrent, 1_011_553_920, 1_077_680_640);
        check(Group::Attention, 272_634_880, 289_689_600);
        check(Group::Router, 21_053_440, 84_213_760);
        check(Group::SharedExperts, 125_829_120, 133_693_440);
        check(Group::RoutedExperts, 32_212_254_720, 9_059_696_640);
        assert!(!groups.contains_key(&Group::Mtp));
        let dense: u64 =
            groups.iter().filter(|(g, _)| **g != Group::RoutedExperts).map(|(_, t)| t.bytes).sum();
        assert_eq!(dense, 2_666_629_632);
        assert_eq!(by_group(&mtp_table())[&Group::Mtp].bytes, 8_937_472);
    }

    #[test]
    fn published_types() {
        let check = |types: &BTreeMap<TensorType, Total>, ty, tensors, bytes| {
            assert_eq!((types[&ty].tensors, types[&ty].bytes), (tensors, bytes), "{ty}");
        };
        let types = by_type(&main_table(q2));
        check(&types, Q8_0, 312, 2_577_776_640);
        check(&types, F32, 301, 88_852_992);
        check(&types, IQ2_XXS, 80, 5_536_481_280);
        check(&types, Q2_K, 40, 3_523_215_360);
        let types = by_type(&main_table(q2_q4));
        check(&types, Q8_0, 312, 2_577_776_640);
        check(&types, IQ2_XXS, 68, 4_706_009_088);
        check(&types, Q2_K, 34, 2_994_733_056);
        check(&types, Q4_K, 18, 2_717_908_992);
        let types = by_type(&mtp_table());
        assert_eq!(types.values().map(|t| t.tensors).collect::<Vec<_>>(), [10, 10, 3]);
    }

    #[test]
    fn published_traffic() {
        let shape = published_shape();
        let sum = |tensors: &[Tensor]| bytes_per_token(tensors, &shape).values().sum::<u64>();
        assert_eq!(sum(&main_table(q2)), 2_409_403_008);
        assert_eq!(sum(&main_table(q2_q4)), 2_451_870_336);
        assert_eq!(sum(&main_table(|_, _| Q8_0)), 3_195_835_008);
        let groups = bytes_per_token(&main_table(q2), &shape);
        assert_eq!(groups[&Group::Embedding], 2_176);
        assert_eq!(groups[&Group::RoutedExperts], 283_115_520);
        assert_eq!(bytes_per_draft(&mtp_table(), &shape), 597_880_960);
        assert_eq!(expert_bytes(&main_table(q2), &shape, 0), 884_736);
        assert_eq!(expert_bytes(&main_table(q2_q4), &shape, 39), 1_769_472);
    }

    #[test]
    fn names_and_roles_belong_together() {
        let shape = published_shape();
        for e in layout::main_file(&shape).into_iter().chain(layout::mtp_file(&shape)) {
            assert_eq!(parse_name(&e.name()), Some(e));
        }
        for name in ["blk.0.token_embd.weight", "attn_q.weight", "blk.x.attn_q.weight", "blk.1", ""]
        {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
