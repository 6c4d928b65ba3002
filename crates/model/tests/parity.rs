//! The forward pass computes what transformers computes, for every architecture.
//!
//! The goldens and the scripts that make them are described in `scripts/goldens/README.md`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails loudly, and shows what it measured"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forespeak_model::{
    Batch, Compute, KvType, LoadOptions, Logits, Model, ModelSource, Tier, Workspace,
};

/// Both sides add up the same f32 numbers, in another order.
const EXACT: f32 = 1e-4;

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens")
}

struct Golden {
    tokens: Vec<u32>,
    rows: Vec<usize>,
    logits: Vec<Vec<f32>>,
}

fn golden(folder: &Path) -> Golden {
    let json = std::fs::read(folder.join("golden.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let numbers = |name: &str| -> Vec<u32> {
        let numbers = json[name].as_array().unwrap().iter();
        numbers
            .map(|number| number.as_u64().unwrap() as u32)
            .collect()
    };
    let rows: Vec<usize> = numbers("rows")
        .into_iter()
        .map(|row| row as usize)
        .collect();
    let bytes = std::fs::read(folder.join("logits.f32")).unwrap();
    let values: Vec<f32> = bytes
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let vocab = values.len() / rows.len();
    Golden {
        tokens: numbers("tokens"),
        rows,
        logits: values.chunks_exact(vocab).map(<[f32]>::to_vec).collect(),
    }
}

/// The golden rows as the engine computes them, in one step.
fn computed(path: &Path, golden: &Golden, tier: Tier, kv_type: KvType) -> Vec<Vec<f32>> {
    let source = ModelSource::Path(path.to_owned());
    let options = LoadOptions {
        quantize: None,
        chat_template: None,
        compute: Arc::new(Compute::new(tier, 2)),
        progress: &|_| {},
    };
    let model = Model::load(&source, &options).unwrap().model;
    let mut cache = model.new_cache(3, kv_type).unwrap();
    let mut batch = Batch::default();
    batch.push(&golden.tokens, 0, &[2, 0, 1]);
    golden.rows.iter().for_each(|&row| batch.want(row));
    let mut logits = Logits::default();
    model
        .forward(&batch, &mut cache, &mut Workspace::default(), &mut logits)
        .unwrap();
    (0..golden.rows.len())
        .map(|row| logits.row(row).to_vec())
        .collect()
}

fn largest_difference(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    let pairs = found.iter().flatten().zip(expected.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// The mean over rows of what an answer drawn by `found` loses against `expected`, in nats.
fn divergence(expected: &[Vec<f32>], found: &[Vec<f32>]) -> f32 {
    let log_softmax = |row: &[f32]| -> Vec<f32> {
        let most = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f32 = row.iter().map(|value| (value - most).exp()).sum();
        row.iter().map(|value| value - most - sum.ln()).collect()
    };
    let rows = expected.iter().zip(found).map(|(expected, found)| {
        let pairs = log_softmax(expected).into_iter().zip(log_softmax(found));
        pairs.map(|(p, q)| p.exp() * (p - q)).sum::<f32>()
    });
    rows.sum::<f32>() / expected.len() as f32
}

fn assert_parity(name: &str) {
    let folder = goldens().join(name);
    let golden = golden(&folder);
    for tier in [Tier::Scalar, Tier::detect()] {
        let found = computed(&folder, &golden, tier, KvType::F16);
        let difference = largest_difference(&found, &golden.logits);
        println!("{name} {tier:?}: {difference:e}");
        assert!(difference < EXACT, "{name} {tier:?}: {difference}");
    }
}

#[test]
fn llama2_with_biases_and_linear_scaling() {
    assert_parity("llama2");
}

#[test]
fn llama3_with_its_scaling_and_tied_embeddings() {
    assert_parity("llama3");
}

#[test]
fn mistral_with_a_sliding_window() {
    assert_parity("mistral");
}

#[test]
fn qwen2_with_biases_on_queries_keys_and_values() {
    assert_parity("qwen2");
}

#[test]
fn qwen3_with_normed_heads_wider_than_the_stream() {
    assert_parity("qwen3");
}

#[test]
fn gguf_of_the_same_weights() {
    for name in ["llama3", "qwen2"] {
        let folder = goldens().join(name);
        let golden = golden(&folder);
        let found = computed(
            &folder.join("f32.gguf"),
            &golden,
            Tier::detect(),
            KvType::F16,
        );
        let difference = largest_difference(&found, &golden.logits);
        println!("{name} gguf: {difference:e}");
        assert!(difference < EXACT, "{name}: {difference}");
    }
}

#[test]
fn q8_0_stays_within_a_thousandth_of_a_nat() {
    for name in ["llama3", "qwen2"] {
        let folder = goldens().join(name);
        let golden = golden(&folder);
        let found = computed(
            &folder.join("q8_0.gguf"),
            &golden,
            Tier::detect(),
            KvType::F16,
        );
        let divergence = divergence(&golden.logits, &found);
        println!("{name} q8_0: {divergence:e} nats");
        assert!((0.0..1e-3).contains(&divergence), "{name}: {divergence}");
    }
}

#[test]
fn mixed_k_quants_stay_close_to_their_own_values() {
    let folder = goldens().join("llama-k-quants");
    let golden = golden(&folder);
    let found = computed(
        &folder.join("model.gguf"),
        &golden,
        Tier::detect(),
        KvType::F16,
    );
    let divergence = divergence(&golden.logits, &found);
    println!("k-quants: {divergence:e} nats");
    assert!((0.0..1e-3).contains(&divergence), "{divergence}");
}

#[test]
fn int8_keys_and_values_cost_little() {
    let folder = goldens().join("llama3");
    let golden = golden(&folder);
    let found = computed(&folder, &golden, Tier::detect(), KvType::Int8);
    let divergence = divergence(&golden.logits, &found);
    println!("int8 kv: {divergence:e} nats");
    assert!((0.0..1e-3).contains(&divergence), "{divergence}");
}
