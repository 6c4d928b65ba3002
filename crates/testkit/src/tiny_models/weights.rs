//! Random weights, named as Hugging Face names them and in its order of rows.

use super::TinyModel;

/// Spread of matrices. Large enough that logits differ by more than rounding does.
const SPREAD: f32 = 0.12;

pub(super) struct Tensor {
    pub(super) name: String,
    /// Outputs first; one entry for norms.
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f32>,
}

pub(super) fn random(model: &TinyModel, vocab: usize) -> Vec<Tensor> {
    let mut random = SplitMix(model.seed);
    let mut tensors = Vec::new();
    let kv_dim = model.kv_heads * model.head_dim();
    let mut matrix = |tensors: &mut Vec<Tensor>, name: String, rows: usize, columns: usize| {
        tensors.push(Tensor {
            name,
            shape: vec![rows, columns],
            values: (0..rows * columns)
                .map(|_| SPREAD * random.centred())
                .collect(),
        });
    };
    matrix(
        &mut tensors,
        "model.embed_tokens.weight".into(),
        vocab,
        model.dim,
    );
    for layer in 0..model.layers {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        tensors.push(ones(name("input_layernorm"), model.dim));
        matrix(&mut tensors, name("self_attn.q_proj"), model.dim, model.dim);
        matrix(&mut tensors, name("self_attn.k_proj"), kv_dim, model.dim);
        matrix(&mut tensors, name("self_attn.v_proj"), kv_dim, model.dim);
        matrix(&mut tensors, name("self_attn.o_proj"), model.dim, model.dim);
        tensors.push(ones(name("post_attention_layernorm"), model.dim));
        matrix(
            &mut tensors,
            name("mlp.gate_proj"),
            model.feed_forward,
            model.dim,
        );
        matrix(
            &mut tensors,
            name("mlp.up_proj"),
            model.feed_forward,
            model.dim,
        );
        matrix(
            &mut tensors,
            name("mlp.down_proj"),
            model.dim,
            model.feed_forward,
        );
    }
    tensors.push(ones("model.norm.weight".into(), model.dim));
    if !model.tied {
        matrix(&mut tensors, "lm_head.weight".into(), vocab, model.dim);
    }
    tensors
}

fn ones(name: String, len: usize) -> Tensor {
    Tensor {
        name,
        shape: vec![len],
        values: vec![1.0; len],
    }
}

/// The SplitMix64 generator: a few lines, the same everywhere.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// About normal: the sum of four uniform values, scaled to variance one.
    fn centred(&mut self) -> f32 {
        let bits = self.next();
        let sum: f32 = (0..4)
            .map(|part| ((bits >> (16 * part)) & 0xFFFF) as f32 / 65536.0 - 0.5)
            .sum();
        sum * 3.0f32.sqrt()
    }
}
