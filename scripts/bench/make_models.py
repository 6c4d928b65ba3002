#!/usr/bin/env python3
"""Random-weight Llama GGUF files for measuring speed: the shapes are real, the text is noise.

    make_models.py FOLDER [200m] [1b] [1b-q8_0]

A shape alone stands for all its kinds, no name at all for everything. Q8_0 and BF16 are written by gguf-py; Q4_K_M (Q4_K mixed
with Q6_K, as real files are) is made from the BF16 file by llama.cpp's own quantiser. Files that exist are kept.
"""
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

VOCABULARY = 32_000
SHAPES = {  # width, layers, feed-forward width, query heads, key/value heads
    "200m": (1024, 12, 2816, 16, 4),
    "1b": (2048, 22, 5632, 32, 4),  # TinyLlama's shape
}


def add_tokenizer(writer):
    """A SentencePiece vocabulary: three specials, 256 bytes, and made-up words."""
    words = [f"\u2581t{i}" for i in range(VOCABULARY - 259)]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *words]
    kinds = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2, *[gguf.TokenType.BYTE] * 256, *[gguf.TokenType.NORMAL] * len(words)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(words))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def write(path, shape, kind):
    width, layers, inner, heads, kv_heads = shape
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(VOCABULARY)
    add_tokenizer(writer)

    def weight(name, rows, columns):
        values = random.standard_normal((rows, columns), dtype=np.float32) * 0.02
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def ones(name):
        writer.add_tensor(name, np.ones(width, np.float32))

    kv_width = width // heads * kv_heads
    weight("token_embd.weight", VOCABULARY, width)
    for layer in range(layers):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight")
        ones(block + "ffn_norm.weight")
        weight(block + "attn_q.weight", width, width)
        weight(block + "attn_k.weight", kv_width, width)
        weight(block + "attn_v.weight", kv_width, width)
        weight(block + "attn_output.weight", width, width)
        weight(block + "ffn_gate.weight", inner, width)
        weight(block + "ffn_up.weight", inner, width)
        weight(block + "ffn_down.weight", width, inner)
    ones("output_norm.weight")
    weight("output.weight", VOCABULARY, width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def requantize(source, path):
    import llama_cpp  # takes minutes to install, and only this needs it

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M
    params.nthread = 2
    if llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), params) != 0:
        raise SystemExit(f"llama.cpp could not quantise {source}")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[2:] or list(SHAPES)
    for name, shape in SHAPES.items():
        makers = {
            "q8_0": lambda p: write(p, shape, Type.Q8_0),
            "bf16": lambda p: write(p, shape, Type.BF16),
            "q4_k": lambda p: requantize(folder / f"random-{name}-bf16.gguf", p),
        }
        for kind, make in makers.items():
            path = folder / f"random-{name}-{kind}.gguf"
            if path.exists() or not {name, f"{name}-{kind}"} & set(wanted):
                continue
            partial = path.with_suffix(".partial")
            make(partial)
            partial.rename(path)
            print(f"made {path.name}, {path.stat().st_size / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
