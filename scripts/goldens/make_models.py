"""Makes one tiny random model per architecture and writes what transformers computes with it.

    make_models.py OUT

OUT/<name> is a Hugging Face folder plus `golden.json` (tokens, and the rows kept) and `logits.f32`. Some also become
GGUF files. Run make_tokenizers.py first.
"""

import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from make_tokenizers import describe_byte_level
from tokenizers import Tokenizer
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SHAPE = dict(
    vocab_size=288, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=256, bos_token_id=None, eos_token_id=2, pad_token_id=None,
)
LLAMA3_ROPE = dict(
    rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64,
)
MODELS = {
    "llama2": (
        LlamaForCausalLM,
        LlamaConfig(**{**SHAPE, "num_key_value_heads": 4}, tie_word_embeddings=False, attention_bias=True,
                    rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)),
    ),
    "llama3": (LlamaForCausalLM, LlamaConfig(**SHAPE, tie_word_embeddings=True, rope_parameters=LLAMA3_ROPE)),
    "mistral": (MistralForCausalLM, MistralConfig(**SHAPE, tie_word_embeddings=False, sliding_window=8)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SHAPE, tie_word_embeddings=True)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SHAPE, tie_word_embeddings=False, head_dim=16)),
}
KQUANT_SHAPE = {**SHAPE, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "num_key_value_heads": 1}
TOKENS = [(7 + 31 * i * i) % SHAPE["vocab_size"] for i in range(40)]
# Rows whose logits are kept: the first ones, and those around the borders of windows and KV blocks.
ROWS = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 38, 39]


class HalfCache(DynamicCache):
    """Keeps keys and values as the engine does: in half precision."""

    def update(self, key, value, *args, **kwargs):
        return super().update(key.half().float(), value.half().float(), *args, **kwargs)


def randomise(model):
    """Larger than an untrained model's weights, so that every part of the arithmetic shows in the logits."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(1 + 0.2 * torch.randn_like(weight))
            elif name.endswith("bias"):
                weight.copy_(0.3 * torch.randn_like(weight))
            else:
                weight.copy_(torch.randn_like(weight) / weight.shape[-1] ** 0.5)


def logits(model):
    with torch.no_grad():
        out = model(torch.tensor([TOKENS]), past_key_values=HalfCache(), use_cache=True)
    return out.logits[0].numpy().astype("<f4")


def write_golden(folder, values):
    (folder / "golden.json").write_text(json.dumps({"tokens": TOKENS, "rows": ROWS}))
    (folder / "logits.f32").write_bytes(values[ROWS].tobytes())


def interleave(weight, heads):
    """The order in which GGUF's Llama stores rows of queries and keys."""
    rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return rows.swapaxes(1, 2).reshape(weight.shape)


def gguf_tensors(model):
    config = model.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.named_parameters():
        weight = weight.detach().numpy()
        if config.model_type == "llama" and ".q_proj." in name:
            weight = interleave(weight, config.num_attention_heads)
        if config.model_type == "llama" and ".k_proj." in name:
            weight = interleave(weight, config.num_key_value_heads)
        yield names.get_name(name, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(weight)


def describe(writer, config, tokenizer):
    writer.add_name("golden")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    describe_byte_level(writer, tokenizer)


def write_gguf(path, model, tokenizer, encode):
    """`encode(name, weight)` gives a tensor's encoded array and its type."""
    writer = gguf.GGUFWriter(str(path), model.config.model_type)
    describe(writer, model.config, tokenizer)
    if model.config.rope_parameters["rope_type"] == "llama3":
        head_dim = model.config.hidden_size // model.config.num_attention_heads
        plain = model.config.rope_parameters["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
        scaled = model.model.rotary_emb.inv_freq.numpy()
        writer.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))
    for name, weight in gguf_tensors(model):
        data, kind = encode(name, weight) if weight.ndim == 2 else (weight, Type.F32)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def random_k_blocks(rng, rows, columns, kind):
    """Random quants under scales that keep the values small: gguf-py cannot quantise to these types."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows * columns // block, size), dtype=np.uint8)
    scale = lambda base: (base * rng.uniform(0.5, 1.5, (len(blocks), 1))).astype(np.float16).view(np.uint8)
    if kind == Type.Q4_K:
        blocks[:, 0:2] = scale(0.0004)
        blocks[:, 2:4] = scale(0.003)
    else:
        blocks[:, 192:208] = rng.integers(20, 60, (len(blocks), 16), dtype=np.uint8)
        blocks[:, 208:210] = scale(0.00008)
    return blocks.reshape(rows, columns // block * size)


def k_quant_model(out, tokenizer):
    """Encodings mixed as in real files: Q6_K where rounding hurts most, Q4_K elsewhere."""
    config = LlamaConfig(**KQUANT_SHAPE, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0))
    config._attn_implementation = "eager"
    model = LlamaForCausalLM(config).eval()
    randomise(model)
    rng = np.random.default_rng(5)
    encoded = {}

    def encode(name, weight):
        kind = Type.Q6_K if any(part in name for part in ("token_embd", "attn_v", "ffn_down")) else Type.Q4_K
        encoded[name] = (random_k_blocks(rng, *weight.shape, kind), kind)
        return encoded[name]

    folder = out / "llama-k-quants"
    folder.mkdir(parents=True, exist_ok=True)
    write_gguf(folder / "model.gguf", model, tokenizer, encode)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            stored = encoded.get(names.get_name(name, try_suffixes=(".weight", ".bias")))
            if stored is None:
                continue
            values = gguf.quants.dequantize(*stored)
            heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
            for part, count in heads.items():
                if part in name:
                    rows = values.reshape(count, values.shape[0] // count // 2, 2, values.shape[1])
                    values = rows.swapaxes(1, 2).reshape(values.shape)
            weight.copy_(torch.from_numpy(np.ascontiguousarray(values)))
    write_golden(folder, logits(model))


def main():
    out = Path(sys.argv[1])
    tokenizer_file = out / "byte-level" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    as_f32 = lambda _, weight: (weight, Type.F32)
    as_q8_0 = lambda _, weight: (gguf.quants.quantize(weight, Type.Q8_0), Type.Q8_0)
    for index, (name, (cls, config)) in enumerate(MODELS.items()):
        torch.manual_seed(index)
        config._attn_implementation = "eager"
        model = cls(config).eval()
        randomise(model)
        folder = out / name
        model.save_pretrained(folder)
        shutil.copy(tokenizer_file, folder)
        write_golden(folder, logits(model))
        if name in ("llama3", "qwen2"):
            write_gguf(folder / "f32.gguf", model, tokenizer, as_f32)
            write_gguf(folder / "q8_0.gguf", model, tokenizer, as_q8_0)
    torch.manual_seed(len(MODELS))
    k_quant_model(out, tokenizer)


if __name__ == "__main__":
    main()
