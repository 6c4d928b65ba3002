//! Models load from every kind of source, say what is wrong with broken ones, and run.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails loudly, and shows what it measured"
)]

use std::path::Path;
use std::sync::Arc;

use forespeak_model::{
    Batch, Compute, KvType, LoadOptions, LoadedModel, Logits, Model, ModelError, ModelSource,
    Quantize, Specials, Tier, Workspace,
};
use testkit::tiny_models::{TinyFormat, TinyModel};

fn load_with(source: &ModelSource, quantize: Option<Quantize>) -> Result<LoadedModel, ModelError> {
    Model::load(
        source,
        &LoadOptions {
            quantize,
            chat_template: None,
            compute: Arc::new(Compute::new(Tier::detect(), 2)),
            progress: &|progress| assert!(progress.done <= progress.total),
        },
    )
}

fn load(path: &Path) -> Result<LoadedModel, ModelError> {
    load_with(&ModelSource::Path(path.to_owned()), None)
}

fn load_bytes(bytes: Vec<u8>) -> Result<LoadedModel, ModelError> {
    let source = ModelSource::Bytes {
        name: "tiny",
        bytes: bytes.leak(),
    };
    load_with(&source, None)
}

/// Logits of every token of one sequence, fed in chunks of `chunk` tokens.
fn logits(model: &Model, tokens: &[u32], chunk: usize) -> Vec<Vec<f32>> {
    let table: Vec<u32> = (0..8).rev().collect();
    let mut cache = model.new_cache(8, KvType::F16).unwrap();
    let mut workspace = Workspace::default();
    let mut out = Logits::default();
    let mut all = Vec::new();
    let mut batch = Batch::default();
    for (index, part) in tokens.chunks(chunk).enumerate() {
        batch.clear();
        batch
            .push(part, index * chunk, &table)
            .for_each(|row| batch.want(row));
        model
            .forward(&batch, &mut cache, &mut workspace, &mut out)
            .unwrap();
        all.extend((0..part.len()).map(|row| out.row(row).to_vec()));
    }
    all
}

const TOKENS: [u32; 40] = {
    let mut tokens = [0; 40];
    let mut i = 0;
    while i < tokens.len() {
        tokens[i] = (i * 37 % 259) as u32;
        i += 1;
    }
    tokens
};

#[test]
fn a_file_and_a_folder_of_the_same_weights_agree_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    for tied in [false, true] {
        let tiny = TinyModel {
            tied,
            ..TinyModel::default()
        };
        let gguf = folder.path().join("tiny.gguf");
        tiny.write_gguf(&gguf).unwrap();
        let hf = folder.path().join("hf");
        tiny.write_folder(&hf).unwrap();
        let (from_gguf, from_folder) = (load(&gguf).unwrap(), load(&hf).unwrap());
        assert_eq!(from_gguf.config(), from_folder.config());
        assert_eq!(
            logits(&from_gguf.model, &TOKENS, 40),
            logits(&from_folder.model, &TOKENS, 40)
        );
        assert_eq!(from_gguf.tokenizer.eos(), from_folder.tokenizer.eos());
        for text in [
            "Hello world, the answer of <|im_end|>\n  ünï 12345",
            "",
            " ",
        ] {
            let encode = |model: &LoadedModel| {
                let tokenizer = &model.tokenizer;
                let parsed = tokenizer.encode(text, Specials::PARSE_AND_ADD).unwrap();
                let literal = tokenizer.encode(text, Specials::NONE).unwrap();
                assert_eq!(tokenizer.decode(&parsed, false), text);
                assert_eq!(tokenizer.decode(&literal, true), text);
                (parsed, literal)
            };
            assert_eq!(encode(&from_gguf), encode(&from_folder));
        }
    }
}

#[test]
fn progress_ends_when_all_is_packed() {
    for tied in [false, true] {
        let tiny = TinyModel {
            tied,
            ..TinyModel::default()
        };
        let last = std::cell::Cell::new((0, 0));
        let source = ModelSource::Bytes {
            name: "tiny",
            bytes: tiny.gguf_bytes().leak(),
        };
        let options = LoadOptions {
            quantize: None,
            chat_template: None,
            compute: Arc::new(Compute::new(Tier::Scalar, 1)),
            progress: &|progress| {
                assert!(progress.done > last.get().0);
                last.set((progress.done, progress.total));
            },
        };
        Model::load(&source, &options).unwrap();
        let (done, total) = last.get();
        assert!(done > 0 && done == total, "{done} of {total}");
    }
}

#[test]
fn a_folder_may_be_split_into_several_files() {
    let tiny = TinyModel::default();
    let folder = tempfile::tempdir().unwrap();
    tiny.write_folder(folder.path()).unwrap();
    let whole = logits(&load(folder.path()).unwrap().model, &TOKENS, 40);
    let single = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&single).unwrap();
    std::fs::remove_file(&single).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes)
        .unwrap()
        .tensors();
    let mut map = serde_json::Map::new();
    for (index, part) in tensors.chunks(7).enumerate() {
        let file = format!("model-{index}.safetensors");
        for (name, _) in part {
            map.insert(name.clone(), file.clone().into());
        }
        let views = part.iter().map(|(name, view)| (name, view));
        std::fs::write(
            folder.path().join(file),
            safetensors::serialize(views, None).unwrap(),
        )
        .unwrap();
    }
    let index = serde_json::json!({ "weight_map": map });
    let index_file = folder.path().join("model.safetensors.index.json");
    std::fs::write(&index_file, index.to_string()).unwrap();
    assert!(logits(&load(folder.path()).unwrap().model, &TOKENS, 40) == whole);
    std::fs::remove_file(folder.path().join("model-1.safetensors")).unwrap();
    let error = load(folder.path()).err().unwrap().to_string();
    assert!(error.contains("model-1.safetensors"), "{error}");
    std::fs::remove_file(index_file).unwrap();
    let error = load(folder.path()).err().unwrap().to_string();
    assert!(
        error.contains("has neither model.safetensors nor"),
        "{error}"
    );
}

#[test]
fn chunks_and_neighbours_do_not_change_a_bit() {
    let model = load_bytes(
        TinyModel {
            format: TinyFormat::Q8_0,
            ..TinyModel::default()
        }
        .gguf_bytes(),
    )
    .unwrap()
    .model;
    let whole = logits(&model, &TOKENS, 40);
    for chunk in [1, 3, 16, 17] {
        assert!(logits(&model, &TOKENS, chunk) == whole, "chunks of {chunk}");
    }
    let mut cache = model.new_cache(8, KvType::F16).unwrap();
    let (mut workspace, mut out) = (Workspace::default(), Logits::default());
    let mut batch = Batch::default();
    let first = batch.push(&TOKENS[..20], 0, &[5, 1]);
    let second = batch.push(&TOKENS, 0, &[0, 2, 4]);
    batch.want(first.end - 1);
    batch.want(second.start + 7);
    batch.want(second.end - 1);
    model
        .forward(&batch, &mut cache, &mut workspace, &mut out)
        .unwrap();
    assert!(out.row(0) == whole[19]);
    assert!(out.row(1) == whole[7]);
    assert!(out.row(2) == whole[39]);
}

#[test]
fn a_step_without_wanted_rows_only_stores() {
    let model = load_bytes(TinyModel::default().gguf_bytes()).unwrap().model;
    let whole = logits(&model, &TOKENS, 40);
    let mut cache = model.new_cache(8, KvType::F16).unwrap();
    let (mut workspace, mut out) = (Workspace::default(), Logits::default());
    let mut batch = Batch::default();
    batch.push(&TOKENS[..39], 0, &[0, 1, 2]);
    model
        .forward(&batch, &mut cache, &mut workspace, &mut out)
        .unwrap();
    batch.clear();
    batch.push(&TOKENS[39..], 39, &[0, 1, 2]);
    batch.want(0);
    model
        .forward(&batch, &mut cache, &mut workspace, &mut out)
        .unwrap();
    assert!(out.row(0) == whole[39]);
}

#[test]
fn quantizing_while_loading_keeps_the_answer_close() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = TinyModel {
        dim: 256,
        feed_forward: 256,
        ..TinyModel::default()
    };
    tiny.write_folder(folder.path()).unwrap();
    let source = ModelSource::Path(folder.path().to_owned());
    let exact = load_with(&source, None).unwrap().model;
    let expected = logits(&exact, &TOKENS, 40);
    let mut sizes = vec![exact.weight_bytes()];
    for (quantize, bound) in [(Quantize::Q8_0, 0.1), (Quantize::Q4K, 0.7)] {
        let model = load_with(&source, Some(quantize)).unwrap().model;
        let found = logits(&model, &TOKENS, 40);
        let error = relative_error(&expected, &found);
        println!("{quantize:?}: {error}");
        assert!(error < bound, "{quantize:?}: {error}");
        sizes.push(model.weight_bytes());
    }
    assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
}

fn relative_error(expected: &[Vec<f32>], found: &[Vec<f32>]) -> f32 {
    let pairs = || expected.iter().flatten().zip(found.iter().flatten());
    let difference: f32 = pairs().map(|(a, b)| (a - b).powi(2)).sum();
    let size: f32 = pairs().map(|(a, _)| a.powi(2)).sum();
    (difference / size).sqrt()
}

#[test]
fn unsound_batches_are_refused() {
    let model = load_bytes(TinyModel::default().gguf_bytes()).unwrap().model;
    let mut cache = model.new_cache(2, KvType::F16).unwrap();
    let (mut workspace, mut out) = (Workspace::default(), Logits::default());
    let mut sound = Batch::default();
    sound.push(&[1, 2, 3], 0, &[0]);
    let breaks: [fn(&mut Batch); 7] = [
        |batch| batch.clear(),
        |batch| batch.tokens[0] = 1 << 20,
        |batch| batch.positions[2] = 1 << 20,
        |batch| batch.positions[2] = 7,
        |batch| batch.tables[0] = 2,
        |batch| batch.outputs.push(3),
        |batch| batch.spans[0].rows.end = 2,
    ];
    for (index, break_it) in breaks.iter().enumerate() {
        let mut batch = sound.clone();
        break_it(&mut batch);
        let result = model.forward(&batch, &mut cache, &mut workspace, &mut out);
        assert!(matches!(result, Err(ModelError::Batch(_))), "{index}");
    }
    model
        .forward(&sound, &mut cache, &mut workspace, &mut out)
        .unwrap();
}

fn error_of(bytes: Vec<u8>) -> String {
    match load_bytes(bytes) {
        Ok(_) => panic!("loaded"),
        Err(error) => error.to_string(),
    }
}

/// Replaces the first occurrence of `from`, which must be there, by the equally long `to`.
fn patched(from: &str, to: &str) -> Vec<u8> {
    let mut bytes = TinyModel::default().gguf_bytes();
    let at = bytes
        .windows(from.len())
        .position(|window| window == from.as_bytes());
    bytes[at.unwrap()..][..from.len()].copy_from_slice(to.as_bytes());
    bytes
}

#[test]
fn broken_files_are_named_with_their_tensor() {
    let whole = TinyModel::default().gguf_bytes();
    let truncated = error_of(whole[..whole.len() - 64].to_vec());
    assert!(
        truncated.starts_with("tiny: tensor `output.weight` reaches to byte"),
        "{truncated}"
    );
    assert!(error_of(whole[..100].to_vec()).starts_with("tiny: claims"));
    assert!(error_of(whole[..20].to_vec()).starts_with("tiny: ends inside the header"));
    let missing = error_of(patched("blk.1.ffn_up", "blk.7.ffn_up"));
    assert_eq!(
        missing,
        "tiny: tensor `blk.1.ffn_up.weight` is missing; the download may be incomplete"
    );
    let twice = error_of(patched("blk.1.ffn_up", "blk.0.ffn_up"));
    assert_eq!(twice, "tiny: tensor `blk.0.ffn_up.weight` is there twice");
    let unknown = error_of(patched("llama", "mamba"));
    assert!(
        unknown.contains("architecture `mamba` is not supported; supported are"),
        "{unknown}"
    );
}

#[test]
fn a_tensor_of_the_wrong_shape_is_refused_before_packing() {
    let tiny = TinyModel::default();
    let folder = tempfile::tempdir().unwrap();
    tiny.write_folder(folder.path()).unwrap();
    let config = folder.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace("\"intermediate_size\": 128", "\"intermediate_size\": 160");
    std::fs::write(&config, text).unwrap();
    let error = load(folder.path()).err().unwrap().to_string();
    assert!(
        error.contains(
            "model.safetensors: tensor `model.layers.0.mlp.gate_proj.weight` has shape [128, 64]"
        ),
        "{error}"
    );
}

#[test]
fn a_model_without_a_template_says_what_to_do() {
    let bytes = patched("tokenizer.chat_template", "tokenizer.no_template__");
    let loaded = load_bytes(bytes).unwrap();
    let error = loaded.template().err().unwrap().to_string();
    assert!(
        error.contains("--chat-template FILE") && error.contains("/v1/completions"),
        "{error}"
    );
}

#[test]
fn a_missing_path_is_an_error() {
    let error = load(Path::new("no/such/file.gguf")).err().unwrap();
    assert!(
        error
            .to_string()
            .starts_with("cannot read no/such/file.gguf"),
        "{error}"
    );
}
