"""Writes a model as GGUF: Q8_0 matrices (or mostly Q4_0), F32 norms, tokenizer and chat template inside.

    python -m training.export WORK/target.pt WORK/tokenizer.json forespeak-target.gguf --shape target
"""
import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch

from .model import CONTEXT, NORM_EPS, ROPE_BASE, SHAPES
from .rounding import ROUNDINGS, kind_of
from .tokenizer import END_OF_TEXT_ID, IM_END_ID, PAD_ID, PRE_TOKENIZER, SPECIALS

CHAT_TEMPLATE = Path(__file__).resolve().parent.parent / "chat_template.jinja"
NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v",
         "o_proj": "attn_output", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
DESCRIPTION = ("Forespeak's bundled {role} model: a small demonstration, trained on technical documentation. "
               "Sources: sql-docs, dotnet/docs, AspNetCore.Docs, PowerShell-Docs, kubernetes/website, github/docs (CC-BY-4.0), "
               "rust-lang/book and reference (MIT OR Apache-2.0), prometheus/docs (Apache-2.0).")


def interleave(weight, heads):
    """Rows of q and k in GGUF's order: the two halves that are rotated together stand next to each other."""
    rows, width = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def gguf_name(name):
    """`layers.3.q_proj.weight` is `blk.3.attn_q.weight`."""
    if name == "embed_tokens.weight":
        return "token_embd.weight"
    if name == "norm.weight":
        return "output_norm.weight"
    _, layer, part, _ = name.split(".")
    return f"blk.{layer}.{NAMES[part]}.weight"


def gguf_tensors(state, shape, weights):
    """(name, f32 array, kind of weights if it is a matrix) for every tensor, in GGUF's names and row order."""
    for name, weight in state.items():
        array = weight.float().cpu().numpy()
        if ".q_proj." in name:
            array = interleave(array, shape.heads)
        if ".k_proj." in name:
            array = interleave(array, shape.kv_heads)
        yield gguf_name(name), np.ascontiguousarray(array), kind_of(name, weights) if array.ndim == 2 else None


def add_tokenizer(writer, path):
    model = json.loads(Path(path).read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    types = [gguf.TokenType.CONTROL if t in SPECIALS else gguf.TokenType.NORMAL for t in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(END_OF_TEXT_ID)
    writer.add_eos_token_id(IM_END_ID)
    writer.add_eot_token_id(IM_END_ID)
    writer.add_pad_token_id(PAD_ID)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE.read_text())


def export(state, shape, role, tokenizer, target, weights="Q8_0"):
    writer = gguf.GGUFWriter(str(target), "llama")
    writer.add_name(f"Forespeak {role}")
    writer.add_description(DESCRIPTION.format(role=role))
    writer.add_license("CC-BY-4.0")
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{weights}"])
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(NORM_EPS)
    writer.add_vocab_size(shape.vocab)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_tokenizer(writer, tokenizer)
    for name, array, kind in gguf_tensors(state, shape, weights):
        if kind:
            kind = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("weights", type=Path)
    p.add_argument("tokenizer", type=Path)
    p.add_argument("gguf", type=Path)
    p.add_argument("--shape", required=True, choices=SHAPES)
    p.add_argument("--kind", choices=ROUNDINGS, default="Q8_0", help="of the matrices")
    a = p.parse_args()
    export(torch.load(a.weights, map_location="cpu"), SHAPES[a.shape], a.shape.split("-")[-1], a.tokenizer, a.gguf, a.kind)
    print(f"{a.gguf}: {a.gguf.stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
