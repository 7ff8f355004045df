//! Graphs on a device: order, repetition, refusals, and that validation is awake.

use super::{assert_quiet, open};
use q36::kernels::norm_cvt::{Operands, RmsNorm};
use q36::vulkan::{Arena, Device, Error, Graph, Patience, Queue, Residence, Slice, Validation};
use std::sync::Arc;

const K: u32 = 256;
const ROWS: u32 = 64;
const BYTES: u64 = (K * ROWS * 4) as u64;

/// Buffers for a chain of norms: x -> a -> b, and c beside b.
struct Chain {
    device: Arc<Device>,
    queue: Queue,
    norm: RmsNorm,
    weight: Slice,
    x: Slice,
    a: Slice,
    b: Slice,
    c: Slice,
}

impl Chain {
    fn new(validation: Validation) -> Option<Self> {
        let (device, mut queue) = open(validation)?;
        let arena = Arena::new(&device, "test", Residence::Device, 1 << 20);
        let vector = |name| arena.buffer(name, BYTES).unwrap().all();
        let weight = arena.buffer("weight", u64::from(K) * 4).unwrap().all();
        let [x, a, b, c] = ["x", "a", "b", "c"].map(vector);
        let values: Vec<f32> = (0..K * ROWS).map(|i| (i as f32 * 0.7).sin()).collect();
        queue.upload(&x, bytemuck::cast_slice(&values)).unwrap();
        let weights: Vec<f32> = (0..K).map(|i| 1.0 + (i % 7) as f32).collect();
        queue.upload(&weight, bytemuck::cast_slice(&weights)).unwrap();
        let norm = RmsNorm::new(&device, K).unwrap();
        Some(Self { device, queue, norm, weight, x, a, b, c })
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new("chain");
        graph.input(&self.weight);
        graph.input(&self.x);
        graph
    }

    fn node(&self, graph: &mut Graph, from: &Slice, to: &Slice) {
        let io = Operands { weight: self.weight.clone(), x: from.clone(), y: to.clone() };
        self.norm.record(graph, "norm", ROWS, 1e-6, io);
    }

    /// Runs `graph` and reads a buffer.
    fn run(&mut self, graph: Graph, result: &Slice) -> Vec<u8> {
        let recorded = graph.record(&self.device).unwrap();
        self.queue.run(&recorded, &Patience::default()).unwrap();
        self.read(result)
    }

    fn read(&mut self, slice: &Slice) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(BYTES).unwrap()];
        self.queue.download(slice, &mut bytes).unwrap();
        bytes
    }
}

/// x -> a -> (b, c).
fn two_levels(chain: &Chain, reverse: bool) -> Graph {
    let mut graph = chain.graph();
    graph.level();
    chain.node(&mut graph, &chain.x, &chain.a);
    graph.level();
    let mut ends = [&chain.b, &chain.c];
    if reverse {
        ends.reverse();
    }
    for end in ends {
        chain.node(&mut graph, &chain.a, end);
    }
    graph
}

/// Without this the silence of the layer would prove nothing.
#[test]
fn a_missing_barrier_is_reported() {
    let Some(mut chain) = Chain::new(Validation::Synchronization) else { return };
    assert_quiet(&chain.device);
    let mut graph = chain.graph();
    graph.level();
    let (x, a, b) = (chain.x.clone(), chain.a.clone(), chain.b.clone());
    chain.node(&mut graph, &x, &a);
    chain.node(&mut graph, &a, &b);
    let recorded = graph.record_unchecked(&chain.device).unwrap();
    chain.queue.run(&recorded, &Patience::default()).unwrap();
    let messages = chain.device.instance().messages();
    assert!(
        messages.iter().any(|m| m.contains("READ_AFTER_WRITE") || m.contains("READ-AFTER-WRITE")),
        "the validation layer is silent: {messages:?}"
    );
}

#[test]
fn the_check_refuses_what_the_layer_would_report_and_what_it_would_not() {
    let Some(chain) = Chain::new(Validation::Off) else { return };
    let refused = |graph: Graph| match graph.record(&chain.device) {
        Err(Error::Graph { graph, fault }) => format!("{graph}: {fault}"),
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("recorded"),
    };
    let mut same_level = chain.graph();
    same_level.level();
    chain.node(&mut same_level, &chain.x, &chain.a);
    chain.node(&mut same_level, &chain.x, &chain.a);
    assert!(refused(same_level).contains("touch the same bytes"), "write after write");
    let mut unwritten = chain.graph();
    unwritten.level();
    chain.node(&mut unwritten, &chain.a, &chain.b);
    assert!(refused(unwritten).contains("nothing has written"));
    let mut huge = chain.graph();
    huge.level();
    let past = chain.a.buffer.slice(256, BYTES);
    chain.node(&mut huge, &chain.x, &past);
    assert!(refused(huge).contains("ends at"));
}

#[test]
fn a_replay_and_another_order_in_a_level_give_the_same_bits() {
    let Some(mut chain) = Chain::new(Validation::Synchronization) else { return };
    let (b, c) = (chain.b.clone(), chain.c.clone());
    let recorded = two_levels(&chain, false).record(&chain.device).unwrap();
    assert_eq!(recorded.dispatches(), 3);
    chain.queue.run(&recorded, &Patience::default()).unwrap();
    let first = (chain.read(&b), chain.read(&c));
    assert_eq!(first.0, first.1);
    for _ in 0..3 {
        chain.queue.run(&recorded, &Patience::default()).unwrap();
    }
    assert!((chain.read(&b), chain.read(&c)) == first, "replayed");
    let graph = two_levels(&chain, true);
    assert!(chain.run(graph, &b) == first.0, "in reverse order");
    assert_quiet(&chain.device);
}

#[test]
fn submissions_run_in_order_and_are_held_until_they_have_run() {
    let Some(mut chain) = Chain::new(Validation::Synchronization) else { return };
    let c = chain.c.clone();
    let graph = two_levels(&chain, false);
    let expected = chain.run(graph, &c);
    let mut last = None;
    for _ in 0..20 {
        // Dropped here at once: the queue keeps what runs.
        let recorded = two_levels(&chain, false).record(&chain.device).unwrap();
        let ticket = chain.queue.submit(&recorded).unwrap();
        assert!(last < Some(ticket));
        last = Some(ticket);
    }
    let last = last.unwrap();
    chain.queue.wait(last, &Patience::default()).unwrap();
    assert!(chain.queue.is_done(last).unwrap());
    assert!(chain.read(&c) == expected);
    assert_quiet(&chain.device);
}

#[test]
fn a_lost_device_is_an_error_with_the_last_label() {
    let Some(mut chain) = Chain::new(Validation::Off) else { return };
    let recorded = two_levels(&chain, false).record(&chain.device).unwrap();
    chain.queue.run(&recorded, &Patience::default()).unwrap();
    chain.queue.pretend_lost_after(&[0]);
    let error = chain.queue.submit(&recorded).unwrap_err();
    assert!(matches!(&error, Error::Lost { label, .. } if label == "chain"), "{error}");
    assert!(error.to_string().contains("lost during `chain`"), "{error}");
    assert!(matches!(chain.queue.upload(&chain.x, &[0; 4]), Err(Error::Lost { .. })));
}
