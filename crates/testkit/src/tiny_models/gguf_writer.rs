//! A writer of GGUF files, version 3, just large enough for tests.

use half::f16;

use super::tokenizer::{CHAT_TEMPLATE, END_OF_TEXT, END_OF_TURN, Vocabulary};
use super::{TinyFormat, TinyModel, weights};

/// Where tensor data must start, in bytes: the format's own default.
const ALIGNMENT: usize = 32;
/// Values that share a scale in Q8_0.
const Q8_0_BLOCK: usize = 32;

const TOKEN_NORMAL: i32 = 1;
const TOKEN_CONTROL: i32 = 3;

/// A metadata value of the kinds that models use.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataValue {
    /// `uint32`
    U32(u32),
    /// `float32`
    F32(f32),
    /// `bool`
    Bool(bool),
    /// `string`
    String(String),
    /// array of `string`
    Strings(Vec<String>),
    /// array of `int32`
    I32s(Vec<i32>),
    /// array of `float32`
    F32s(Vec<f32>),
}

/// Encodings the writer can name. The numbers are those of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorType {
    /// 0
    F32 = 0,
    /// 8
    Q8_0 = 8,
}

/// Collects metadata and tensors, then writes them in one go.
#[derive(Debug, Default)]
pub struct GgufWriter {
    metadata: Vec<(String, MetadataValue)>,
    tensors: Vec<(String, Vec<usize>, TensorType, Vec<u8>)>,
}

impl GgufWriter {
    /// Adds a metadata entry.
    pub fn set(&mut self, key: &str, value: MetadataValue) {
        self.metadata.push((key.to_owned(), value));
    }

    /// Adds a tensor; `shape` has outputs first, as PyTorch prints it.
    pub fn tensor(&mut self, name: &str, shape: &[usize], kind: TensorType, bytes: Vec<u8>) {
        self.tensors
            .push((name.to_owned(), shape.to_vec(), kind, bytes));
    }

    /// The finished file.
    pub fn finish(self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            string(&mut out, key);
            metadata_value(&mut out, value);
        }
        let mut offset = 0;
        for (name, shape, kind, bytes) in &self.tensors {
            string(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            for dimension in shape.iter().rev() {
                out.extend((*dimension as u64).to_le_bytes());
            }
            out.extend((*kind as u32).to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset += bytes.len().next_multiple_of(ALIGNMENT);
        }
        for (_, _, _, bytes) in &self.tensors {
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
            out.extend(bytes);
        }
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn metadata_value(out: &mut Vec<u8>, value: &MetadataValue) {
    let kind = |out: &mut Vec<u8>, kind: u32| out.extend(kind.to_le_bytes());
    let array = |out: &mut Vec<u8>, element: u32, len: usize| {
        out.extend(9u32.to_le_bytes());
        out.extend(element.to_le_bytes());
        out.extend((len as u64).to_le_bytes());
    };
    match value {
        MetadataValue::U32(value) => {
            kind(out, 4);
            out.extend(value.to_le_bytes());
        }
        MetadataValue::F32(value) => {
            kind(out, 6);
            out.extend(value.to_le_bytes());
        }
        MetadataValue::Bool(value) => {
            kind(out, 7);
            out.push(u8::from(*value));
        }
        MetadataValue::String(value) => {
            kind(out, 8);
            string(out, value);
        }
        MetadataValue::Strings(values) => {
            array(out, 8, values.len());
            values.iter().for_each(|value| string(out, value));
        }
        MetadataValue::I32s(values) => {
            array(out, 5, values.len());
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        MetadataValue::F32s(values) => {
            array(out, 6, values.len());
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
    }
}

pub(super) fn tiny_gguf(model: &TinyModel) -> Vec<u8> {
    let vocabulary = Vocabulary::new();
    let mut writer = GgufWriter::default();
    describe_model(&mut writer, model);
    describe_tokenizer(&mut writer, &vocabulary);
    for tensor in weights::random(model, vocabulary.tokens.len()) {
        let heads = match tensor.name.as_str() {
            name if name.ends_with("q_proj.weight") => Some(model.heads),
            name if name.ends_with("k_proj.weight") => Some(model.kv_heads),
            _ => None,
        };
        let values = match heads {
            Some(heads) => interleave_rows(&tensor.values, heads, model.head_dim(), model.dim),
            None => tensor.values,
        };
        let name = gguf_name(&tensor.name);
        let is_matrix = tensor.shape.len() == 2;
        if is_matrix && model.format == TinyFormat::Q8_0 {
            writer.tensor(&name, &tensor.shape, TensorType::Q8_0, q8_0(&values));
        } else {
            let bytes = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            writer.tensor(&name, &tensor.shape, TensorType::F32, bytes);
        }
    }
    writer.finish()
}

fn describe_model(writer: &mut GgufWriter, model: &TinyModel) {
    use MetadataValue::{F32, String, U32};
    writer.set("general.architecture", String("llama".into()));
    writer.set("general.name", String("tiny".into()));
    let number = |value: usize| U32(u32::try_from(value).unwrap_or(u32::MAX));
    for (key, value) in [
        ("context_length", model.context),
        ("embedding_length", model.dim),
        ("block_count", model.layers),
        ("feed_forward_length", model.feed_forward),
        ("attention.head_count", model.heads),
        ("attention.head_count_kv", model.kv_heads),
        ("rope.dimension_count", model.head_dim()),
    ] {
        writer.set(&format!("llama.{key}"), number(value));
    }
    writer.set("llama.attention.layer_norm_rms_epsilon", F32(1e-5));
    writer.set("llama.rope.freq_base", F32(10000.0));
}

fn describe_tokenizer(writer: &mut GgufWriter, vocabulary: &Vocabulary) {
    use MetadataValue::{Bool, I32s, String, Strings, U32};
    let types = (0..vocabulary.tokens.len())
        .map(|id| {
            if id < vocabulary.specials {
                TOKEN_CONTROL
            } else {
                TOKEN_NORMAL
            }
        })
        .collect();
    let merges = vocabulary
        .merges
        .iter()
        .map(|(left, right)| format!("{left} {right}"))
        .collect();
    writer.set("tokenizer.ggml.model", String("gpt2".into()));
    writer.set("tokenizer.ggml.pre", String("gpt-2".into()));
    writer.set("tokenizer.ggml.tokens", Strings(vocabulary.tokens.clone()));
    writer.set("tokenizer.ggml.token_type", I32s(types));
    writer.set("tokenizer.ggml.merges", Strings(merges));
    writer.set(
        "tokenizer.ggml.eos_token_id",
        U32(vocabulary.id(END_OF_TURN)),
    );
    writer.set(
        "tokenizer.ggml.eot_token_id",
        U32(vocabulary.id(END_OF_TEXT)),
    );
    writer.set("tokenizer.ggml.add_bos_token", Bool(false));
    writer.set("tokenizer.chat_template", String(CHAT_TEMPLATE.into()));
}

/// GGUF's Llama stores the rows of queries and keys so that the two halves of a head alternate.
fn interleave_rows(values: &[f32], heads: usize, head_dim: usize, columns: usize) -> Vec<f32> {
    let half = head_dim / 2;
    (0..heads * head_dim)
        .flat_map(|row| {
            let (head, within) = (row / head_dim, row % head_dim);
            let source = head * head_dim + (within % 2) * half + within / 2;
            &values[source * columns..(source + 1) * columns]
        })
        .copied()
        .collect()
}

fn gguf_name(name: &str) -> String {
    let renamed = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    renamed
        .iter()
        .fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

fn q8_0(values: &[f32]) -> Vec<u8> {
    debug_assert!(values.len().is_multiple_of(Q8_0_BLOCK));
    values
        .chunks(Q8_0_BLOCK)
        .flat_map(|block| {
            let largest = block
                .iter()
                .fold(0.0f32, |most, value| most.max(value.abs()));
            let scale = largest / 127.0;
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            let quants = block
                .iter()
                .map(move |value| (value * inverse).round() as i8 as u8);
            f16::from_f32(scale).to_le_bytes().into_iter().chain(quants)
        })
        .collect()
}
