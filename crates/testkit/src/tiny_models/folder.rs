//! The Hugging Face form of a tiny model.

use std::io;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Map, Value, json};

use super::tokenizer::{BEGIN_OF_TURN, CHAT_TEMPLATE, END_OF_TEXT, END_OF_TURN, Vocabulary};
use super::{TinyModel, weights};

pub(super) fn write(model: &TinyModel, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let vocabulary = Vocabulary::new();
    let json_file = |name: &str, value: &Value| {
        std::fs::write(folder.join(name), serde_json::to_vec_pretty(value)?)
    };
    json_file("config.json", &config(model, &vocabulary))?;
    json_file(
        "generation_config.json",
        &json!({ "eos_token_id": [vocabulary.id(END_OF_TURN), vocabulary.id(END_OF_TEXT)] }),
    )?;
    json_file("tokenizer.json", &tokenizer(&vocabulary))?;
    json_file(
        "tokenizer_config.json",
        &json!({
            "eos_token": END_OF_TURN,
            "chat_template": CHAT_TEMPLATE,
            "tokenizer_class": "PreTrainedTokenizerFast",
        }),
    )?;
    let tensors = weights::random(model, vocabulary.tokens.len());
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|tensor| tensor.values.iter().flat_map(|v| v.to_le_bytes()).collect())
        .collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|(tensor, bytes)| {
            let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytes);
            Ok((tensor.name.as_str(), view.map_err(io::Error::other)?))
        })
        .collect::<io::Result<Vec<_>>>()?;
    let file = safetensors::serialize(views, None).map_err(io::Error::other)?;
    std::fs::write(folder.join("model.safetensors"), file)
}

fn config(model: &TinyModel, vocabulary: &Vocabulary) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model.dim,
        "intermediate_size": model.feed_forward,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "max_position_embeddings": model.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": model.tied,
        "vocab_size": vocabulary.tokens.len(),
        "eos_token_id": vocabulary.id(END_OF_TURN),
        "hidden_act": "silu",
    })
}

fn tokenizer(vocabulary: &Vocabulary) -> Value {
    let vocab: Map<String, Value> = vocabulary
        .tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), Value::from(id)))
        .collect();
    let added: Vec<Value> = [END_OF_TEXT, BEGIN_OF_TURN, END_OF_TURN]
        .into_iter()
        .map(|token| {
            json!({
                "id": vocabulary.id(token), "content": token, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false, "special": true,
            })
        })
        .collect();
    let merges: Vec<Value> = vocabulary
        .merges
        .iter()
        .map(|(left, right)| json!([left, right]))
        .collect();
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
    });
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": vocab, "merges": merges,
        },
    })
}
