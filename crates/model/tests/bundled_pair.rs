//! The pair in `models/` reads, predicts and continues as llama.cpp does with the same files.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails loudly, and shows what it measured"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forespeak_model::{
    BLOCK_TOKENS, Batch, Compute, KvType, LoadOptions, LoadedModel, Logits, Model, ModelSource,
    Specials, Tier, Workspace,
};
use serde_json::Value;

const PAIR: [&str; 2] = ["target", "draft"];
/// Bound of the difference in perplexity, here in nats a token: both round activations and keys
/// differently.
const PERPLEXITY: f64 = 0.005;
/// Bound of what the halved KV cache may cost, in nats a token.
const INT8_COST: f64 = 0.01;
/// Tokens in which our greedy text and llama.cpp's may not differ.
const NO_TIES_BEFORE: usize = 32;
/// Share of tokens that must be llama.cpp's own choice after the same text; the rest are near ties.
const AGREEMENT: f64 = 0.97;

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

fn load(name: &str) -> LoadedModel {
    let path = models().join(format!("forespeak-{name}.gguf"));
    let options = LoadOptions {
        quantize: None,
        chat_template: None,
        compute: Arc::new(Compute::new(Tier::detect(), 2)),
        progress: &|_| {},
    };
    Model::load(&ModelSource::Path(path), &options).unwrap()
}

fn golden(file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(models().join("goldens").join(file)).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Logits after every token.
fn logits(model: &Model, tokens: &[u32], kv_type: KvType) -> Logits {
    let blocks = tokens.len().div_ceil(BLOCK_TOKENS);
    let table: Vec<u32> = (0..blocks as u32).collect();
    let mut cache = model.new_cache(blocks, kv_type).unwrap();
    let mut batch = Batch::default();
    let rows = batch.push(tokens, 0, &table);
    rows.for_each(|row| batch.want(row));
    let mut logits = Logits::default();
    model
        .forward(&batch, &mut cache, &mut Workspace::default(), &mut logits)
        .unwrap();
    logits
}

#[test]
fn texts_have_the_same_tokens() {
    for name in PAIR {
        let tokenizer = load(name).tokenizer;
        for case in golden("tokenizer.json").as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let found = tokenizer.encode(text, Specials::PARSE).unwrap();
            assert_eq!(found, ids(&case["ids"]), "{name} {text:?}");
        }
    }
}

/// Mean negative log-likelihood of a text, in nats a token.
fn nats_a_token(model: &Model, tokens: &[u32], kv_type: KvType) -> f64 {
    let logits = logits(model, tokens, kv_type);
    let nats = tokens.iter().skip(1).enumerate().map(|(row, &next)| {
        let row = logits.row(row);
        let most = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = row.iter().map(|value| f64::from(value - most).exp()).sum();
        sum.ln() - f64::from(row[next as usize] - most)
    });
    nats.sum::<f64>() / (tokens.len() - 1) as f64
}

#[test]
fn a_text_is_as_likely_and_int8_keys_and_values_cost_little() {
    for name in PAIR {
        let golden = golden(&format!("nll-{name}.json"));
        let mut tokens = vec![golden["first_id"].as_u64().unwrap() as u32];
        tokens.extend(ids(&golden["ids"]));
        let model = load(name).model;
        let found = nats_a_token(&model, &tokens, KvType::F16);
        let halved = nats_a_token(&model, &tokens, KvType::Int8);
        let expected = golden["mean_nll"].as_f64().unwrap();
        println!("{name}: {found:.5} nats a token, int8 {halved:.5}, llama.cpp {expected:.5}");
        assert!(
            (found - expected).abs() < PERPLEXITY,
            "{name}: {found} {expected}"
        );
        assert!(halved - found < INT8_COST, "{name}: {halved} {found}");
    }
}

#[test]
fn greedy_answers_agree_but_for_near_ties() {
    for name in PAIR {
        let model = load(name).model;
        let (mut agreed, mut all) = (0, 0);
        for case in golden(&format!("greedy-{name}.json")).as_array().unwrap() {
            let (prompt, answer) = (ids(&case["prompt_ids"]), ids(&case["ids"]));
            let tokens: Vec<u32> = prompt.iter().chain(&answer).copied().collect();
            let logits = logits(&model, &tokens, KvType::F16);
            for (index, &expected) in answer.iter().enumerate() {
                let row = logits.row(prompt.len() + index - 1).iter().enumerate();
                let best = row.max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
                let agrees = best == expected as usize;
                // The target's texts are chosen so that no near tie comes so early.
                assert!(
                    agrees || name != "target" || index >= NO_TIES_BEFORE,
                    "{index}"
                );
                if !agrees {
                    println!("{name} would part at token {index}");
                }
                agreed += usize::from(agrees);
                all += 1;
            }
        }
        println!("{name}: {agreed} of {all}");
        assert!(
            agreed as f64 >= AGREEMENT * all as f64,
            "{name}: {agreed} of {all}"
        );
    }
}

#[test]
fn a_rendered_chat_can_be_cut_before_every_special_token() {
    let model = load("draft");
    let chat = "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n";
    let seams: Vec<usize> = model.tokenizer.seams(chat).collect();
    let places: Vec<usize> = chat.match_indices("<|").map(|(at, _)| at).skip(1).collect();
    assert_eq!(seams, places);
}
