//! Steering on the device does what it does on the CPU.

use super::{F16, open_engine};
use crate::oracle::run::log_probabilities;
use crate::support::temp_dir;
use q36::engine::{BackendChoice, Engine as _, ModelEngine, SteeringChoice, Unattended};
use q36::tokenizer::TokenId;

/// Log-probabilities after the prompt, and after each of two more tokens.
fn answers(engine: &mut ModelEngine) -> Vec<Vec<f64>> {
    let text = "The fox went to the river to drink. There it met a bear, who had been waiting.";
    let prompt: Vec<TokenId> = engine.tokenizer().encode_text(text.as_bytes());
    let id = engine.open_session().unwrap();
    engine.sync(id, &prompt, &mut Unattended).unwrap();
    let mut found = vec![log_probabilities(engine.logits(id).unwrap().unwrap())];
    for &token in &prompt[3..5] {
        engine.decode(&[(id, token)]).unwrap();
        found.push(log_probabilities(engine.logits(id).unwrap().unwrap()));
    }
    found
}

/// Largest difference over the ids that are likeliest in `a`.
fn distance(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let row = |(a, b): (&Vec<f64>, &Vec<f64>)| {
        let mut ids: Vec<usize> = (0..a.len()).collect();
        ids.sort_by(|&i, &j| a[j].total_cmp(&a[i]));
        ids[..10].iter().map(|&i| (a[i] - b[i]).abs()).fold(0.0, f64::max)
    };
    a.iter().zip(b).map(row).fold(0.0, f64::max)
}

#[test]
fn device_and_cpu_steer_alike() {
    let dir = temp_dir();
    let file = dir.path().join("directions.f32");
    // One direction of 256 values for each of the 8 layers; two layers have none.
    let direction = |layer: usize| -> Vec<f32> {
        let row: Vec<f32> = (0..256).map(|i| ((i * i + layer * i) % 97) as f32 - 48.0).collect();
        let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt();
        let scale = if layer % 4 == 3 { 0.0 } else { 1.0 / norm };
        row.iter().map(|v| v * scale).collect()
    };
    let bytes: Vec<u8> = (0..8).flat_map(direction).flat_map(f32::to_le_bytes).collect();
    std::fs::write(&file, bytes).unwrap();
    let open = |backend, scales: [f32; 2], quality: bool| {
        open_engine(|o| {
            (o.backend, o.quality, o.chunk) = (backend, quality, Some(16));
            (o.kv_k, o.kv_v) = (Some(F16), Some(F16));
            let [attention, ffn] = scales;
            o.steering = Some(SteeringChoice { file: file.clone(), attention, ffn });
        })
    };
    for scales in [[0.0, 0.8], [0.6, 0.0], [0.5, -0.4]] {
        let Some(mut device) = open(BackendChoice::Vulkan, scales, true) else { return };
        let mut cpu = open(BackendChoice::Cpu, scales, true).expect("the CPU is there");
        let mut plain = open(BackendChoice::Cpu, [0.0, 0.0], true).expect("the CPU is there");
        let (device, cpu, plain) = (answers(&mut device), answers(&mut cpu), answers(&mut plain));
        let (apart, moved) = (distance(&cpu, &device), distance(&cpu, &plain));
        println!("{scales:?}: device and CPU {apart:.5} apart, steering moves {moved:.3}");
        // Both are within the bar of exact mathematics (design decision 19).
        assert!(apart < 4e-3, "{scales:?}: {apart}");
        assert!(moved > 0.05, "{scales:?}: steering moves {moved}");
        let mut fast = open(BackendChoice::Vulkan, scales, false).expect("opened above");
        let fast = distance(&cpu, &answers(&mut fast));
        assert!(fast < 0.1, "{scales:?}: {fast}");
    }
}
