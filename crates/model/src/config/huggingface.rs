//! Reads `config.json` and `generation_config.json`.
//!
//! Fields that would change the arithmetic in a way that is not built are refused by name; others,
//! such as initialisation ranges, are ignored.

use serde::Deserialize;

use crate::ModelError;

use super::{Architecture, MAX_CONTEXT, ModelConfig, Rope, RopeScaling};

/// What transformers assumes when the file does not say.
const DEFAULT_THETA: f32 = 10_000.0;
const DEFAULT_NORM_EPS: f32 = 1e-6;
const DEFAULT_CONTEXT: usize = 2048;

#[derive(Deserialize)]
struct Raw {
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    vocab_size: usize,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f32>,
    rope_theta: Option<f32>,
    rope_scaling: Option<RawRope>,
    rope_parameters: Option<RawRope>,
    partial_rotary_factor: Option<f32>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    hidden_act: Option<String>,
    quantization_config: Option<serde_json::Value>,
    eos_token_id: Option<TokenIds>,
    bos_token_id: Option<TokenIds>,
}

/// `rope_scaling` of older files; newer ones put theta into the same object as `rope_parameters`.
#[derive(Deserialize)]
struct RawRope {
    rope_type: Option<String>,
    /// The name of `rope_type` before Llama 3.1.
    #[serde(rename = "type")]
    old_type: Option<String>,
    rope_theta: Option<f32>,
    factor: Option<f32>,
    low_freq_factor: Option<f32>,
    high_freq_factor: Option<f32>,
    original_max_position_embeddings: Option<f32>,
    partial_rotary_factor: Option<f32>,
}

/// Token ids that end a text are given as one number, several, or none.
#[derive(Deserialize)]
#[serde(untagged)]
enum TokenIds {
    One(u32),
    Several(Vec<u32>),
}

impl TokenIds {
    fn into_vec(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Several(ids) => ids,
        }
    }
}

/// The part of generation settings that a server needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GenerationConfig {
    pub(crate) eos: Vec<u32>,
    pub(crate) bos: Option<u32>,
}

impl GenerationConfig {
    /// Reads `generation_config.json`.
    pub(crate) fn read(file: &str, bytes: &[u8]) -> Result<Self, ModelError> {
        #[derive(Deserialize)]
        struct Raw {
            eos_token_id: Option<TokenIds>,
            bos_token_id: Option<TokenIds>,
        }
        let raw: Raw = serde_json::from_slice(bytes)
            .map_err(|error| ModelError::malformed(file, error.to_string()))?;
        Ok(Self::new(raw.eos_token_id, raw.bos_token_id))
    }

    fn new(eos: Option<TokenIds>, bos: Option<TokenIds>) -> Self {
        Self {
            eos: eos.map(TokenIds::into_vec).unwrap_or_default(),
            bos: bos.and_then(|ids| ids.into_vec().first().copied()),
        }
    }

    /// Adds what `other` knows beyond this.
    pub(crate) fn merge(&mut self, other: Self) {
        for id in other.eos {
            if !self.eos.contains(&id) {
                self.eos.push(id);
            }
        }
        self.bos = self.bos.or(other.bos);
    }
}

/// Reads `config.json`.
pub(crate) fn read(
    file: &str,
    bytes: &[u8],
) -> Result<(ModelConfig, GenerationConfig), ModelError> {
    /// Read first, so that a strange model is refused by its name and not for a field it lacks.
    #[derive(Deserialize)]
    struct Name {
        #[serde(default)]
        architectures: Vec<String>,
        model_type: Option<String>,
    }
    let malformed = |error: serde_json::Error| ModelError::malformed(file, error.to_string());
    let name: Name = serde_json::from_slice(bytes).map_err(malformed)?;
    let architecture = architecture(file, &name.architectures, name.model_type.as_deref())?;
    let raw: Raw = serde_json::from_slice(bytes).map_err(malformed)?;
    refuse_what_is_not_built(file, &raw)?;
    let (theta, scaling) = rope(file, &raw)?;
    let windows = windows(file, architecture, &raw)?;
    let attention_bias = raw.attention_bias.unwrap_or(false);
    let head_dim = match raw.head_dim {
        Some(head_dim) => head_dim,
        None => raw
            .hidden_size
            .checked_div(raw.num_attention_heads)
            .unwrap_or_default(),
    };
    let config = ModelConfig {
        architecture,
        vocab_size: raw.vocab_size,
        dim: raw.hidden_size,
        layers: raw.num_hidden_layers,
        heads: raw.num_attention_heads,
        kv_heads: raw.num_key_value_heads.unwrap_or(raw.num_attention_heads),
        head_dim,
        feed_forward: raw.intermediate_size,
        context_length: raw
            .max_position_embeddings
            .unwrap_or(DEFAULT_CONTEXT)
            .min(MAX_CONTEXT),
        norm_eps: raw.rms_norm_eps.unwrap_or(DEFAULT_NORM_EPS),
        rope: Rope { theta, scaling },
        tied: raw.tie_word_embeddings.unwrap_or(false),
        qkv_bias: attention_bias || architecture == Architecture::Qwen2,
        output_bias: attention_bias && architecture != Architecture::Qwen2,
        qk_norm: architecture == Architecture::Qwen3,
        windows,
    };
    let generation = GenerationConfig::new(raw.eos_token_id, raw.bos_token_id);
    Ok((config.checked(file)?, generation))
}

fn architecture(
    file: &str,
    classes: &[String],
    model_type: Option<&str>,
) -> Result<Architecture, ModelError> {
    let known = Architecture::ALL.into_iter().find(|known| match classes {
        [] => model_type == Some(known.to_string().as_str()),
        classes => classes.iter().any(|class| class == known.class_name()),
    });
    known.ok_or_else(|| ModelError::UnknownArchitecture {
        file: file.to_owned(),
        found: classes
            .first()
            .map(String::as_str)
            .or(model_type)
            .unwrap_or("(none)")
            .to_owned(),
    })
}

fn refuse_what_is_not_built(file: &str, raw: &Raw) -> Result<(), ModelError> {
    let rotary = [
        raw.partial_rotary_factor,
        raw.rope_parameters
            .as_ref()
            .and_then(|rope| rope.partial_rotary_factor),
    ];
    if rotary.into_iter().flatten().any(|factor| factor != 1.0) {
        return Err(ModelError::unsupported(
            file,
            "partial_rotary_factor",
            "only whole heads can be rotated",
        ));
    }
    if raw.mlp_bias == Some(true) {
        return Err(ModelError::unsupported(
            file,
            "mlp_bias",
            "it must be false",
        ));
    }
    if let Some(act) = raw.hidden_act.as_deref().filter(|act| *act != "silu") {
        return Err(ModelError::unsupported(
            file,
            format!("hidden_act `{act}`"),
            "it must be `silu`",
        ));
    }
    if raw.quantization_config.is_some() {
        return Err(ModelError::unsupported(
            file,
            "quantization_config",
            "use the unquantized folder with --quantize, or a GGUF file",
        ));
    }
    Ok(())
}

fn rope(file: &str, raw: &Raw) -> Result<(f32, RopeScaling), ModelError> {
    let scaling = raw.rope_parameters.as_ref().or(raw.rope_scaling.as_ref());
    let theta = scaling
        .and_then(|rope| rope.rope_theta)
        .or(raw.rope_theta)
        .unwrap_or(DEFAULT_THETA);
    let Some(scaling) = scaling else {
        return Ok((theta, RopeScaling::Default));
    };
    let kind = scaling.rope_type.as_ref().or(scaling.old_type.as_ref());
    let required = |value: Option<f32>, name: &str| {
        value.ok_or_else(|| ModelError::malformed(file, format!("rope scaling lacks `{name}`")))
    };
    let scaling = match kind.map_or("default", String::as_str) {
        "default" => RopeScaling::Default,
        "linear" => RopeScaling::Linear {
            factor: required(scaling.factor, "factor")?,
        },
        "llama3" => RopeScaling::Llama3 {
            factor: required(scaling.factor, "factor")?,
            low_freq_factor: required(scaling.low_freq_factor, "low_freq_factor")?,
            high_freq_factor: required(scaling.high_freq_factor, "high_freq_factor")?,
            original_context: required(
                scaling.original_max_position_embeddings,
                "original_max_position_embeddings",
            )?,
        },
        other => {
            return Err(ModelError::unsupported(
                file,
                format!("rope scaling `{other}`"),
                "default, linear and llama3 are",
            ));
        }
    };
    Ok((theta, scaling))
}

fn windows(
    file: &str,
    architecture: Architecture,
    raw: &Raw,
) -> Result<Vec<Option<usize>>, ModelError> {
    let layers = raw.num_hidden_layers.min(super::MAX_LAYERS);
    let on = match architecture {
        Architecture::Llama => false,
        Architecture::Mistral => true,
        Architecture::Qwen2 | Architecture::Qwen3 => raw.use_sliding_window == Some(true),
    };
    let Some(window) = raw.sliding_window.filter(|_| on) else {
        return Ok(vec![None; layers]);
    };
    if let Some(types) = &raw.layer_types {
        if types.len() != raw.num_hidden_layers {
            let reason = format!(
                "layer_types has {} entries for {layers} layers",
                types.len()
            );
            return Err(ModelError::malformed(file, reason));
        }
        return types
            .iter()
            .map(|kind| match kind.as_str() {
                "full_attention" => Ok(None),
                "sliding_attention" => Ok(Some(window)),
                other => Err(ModelError::unsupported(
                    file,
                    format!("layer type `{other}`"),
                    "full_attention and sliding_attention are",
                )),
            })
            .collect();
    }
    let first = match architecture {
        Architecture::Mistral => 0,
        _ => raw.max_window_layers.unwrap_or(layers),
    };
    Ok((0..layers)
        .map(|layer| (layer >= first).then_some(window))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parse(changes: Value) -> Result<(ModelConfig, GenerationConfig), ModelError> {
        let mut config = json!({
            "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": 256, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        });
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        read("config.json", &serde_json::to_vec(&config).unwrap())
    }

    #[test]
    fn head_dim_is_derived_or_taken() {
        assert_eq!(parse(json!({})).unwrap().0.head_dim, 16);
        assert_eq!(parse(json!({"head_dim": 32})).unwrap().0.q_dim(), 128);
    }

    #[test]
    fn both_spellings_of_rope_are_read() {
        let old = json!({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}});
        let new =
            json!({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}});
        let rope = parse(old).unwrap().0.rope;
        assert_eq!(rope, parse(new).unwrap().0.rope);
        assert_eq!(rope.theta, 5e5);
        assert_eq!(rope.scaling, RopeScaling::Linear { factor: 2.0 });
    }

    #[test]
    fn unknown_rope_scaling_is_refused_by_name() {
        let error =
            parse(json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}})).unwrap_err();
        assert!(error.to_string().contains("`yarn`"), "{error}");
    }

    #[test]
    fn an_unknown_architecture_lists_the_known_ones() {
        let error = parse(json!({"architectures": ["MambaForCausalLM"]})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "config.json: architecture `MambaForCausalLM` is not supported; supported are llama, \
             mistral, qwen2, qwen3"
        );
    }

    #[test]
    fn windows_follow_the_family() {
        let windows = |changes| parse(changes).unwrap().0.windows;
        assert_eq!(windows(json!({"sliding_window": 8})), vec![None; 3]);
        let mistral = json!({"architectures": ["MistralForCausalLM"], "sliding_window": 8});
        assert_eq!(windows(mistral), vec![Some(8); 3]);
        let qwen = json!({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 8,
            "use_sliding_window": true, "max_window_layers": 2});
        assert_eq!(windows(qwen), vec![None, None, Some(8)]);
        let off = json!({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 8});
        assert_eq!(windows(off), vec![None; 3]);
    }

    #[test]
    fn several_ends_of_text_are_kept() {
        let (_, mut generation) = parse(json!({"eos_token_id": 2})).unwrap();
        let more = br#"{"eos_token_id": [2, 7], "bos_token_id": 1}"#;
        generation.merge(GenerationConfig::read("generation_config.json", more).unwrap());
        assert_eq!(generation.eos, [2, 7]);
        assert_eq!(generation.bos, Some(1));
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for broken in [
            json!({"num_attention_heads": 0}),
            json!({"num_key_value_heads": 3}),
            json!({"head_dim": 15}),
            json!({"num_hidden_layers": 1_000_000_000_000u64}),
            json!({"vocab_size": u64::MAX}),
            json!({"rope_theta": -1.0}),
        ] {
            assert!(parse(broken.clone()).is_err(), "{broken}");
        }
    }
}
