"""Reads a GGUF file back: shape, weights as the engine will see them (dequantised), tokenizer."""
import re

import torch

from .model import SHAPES, Llama, Shape


def field(reader, key):
    return reader.fields[key].contents()


def deinterleave(weight, heads):
    """Rows of q and k in Hugging Face's order again; the reverse of `export.interleave`."""
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).transpose(0, 2, 1, 3).reshape(rows, width)


def hf_name(name):
    """`blk.3.attn_q.weight` is `layers.3.q_proj.weight`."""
    from .export import NAMES
    if name == "token_embd.weight":
        return "embed_tokens.weight"
    if name == "output_norm.weight":
        return "norm.weight"
    layer, part = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name).groups()
    return f"layers.{layer}.{ {v: k for k, v in NAMES.items()}[part] }.weight"


def read_gguf(path):
    """(shape, state dict in f32, metadata reader)"""
    import gguf
    reader = gguf.GGUFReader(str(path))
    shape = Shape(width=field(reader, "llama.embedding_length"), layers=field(reader, "llama.block_count"),
                  heads=field(reader, "llama.attention.head_count"), kv_heads=field(reader, "llama.attention.head_count_kv"),
                  feed_forward=field(reader, "llama.feed_forward_length"), vocab=len(field(reader, "tokenizer.ggml.tokens")))
    state = {}
    for t in reader.tensors:
        array = gguf.quants.dequantize(t.data, t.tensor_type)
        name = hf_name(t.name)
        if ".q_proj." in name:
            array = deinterleave(array, shape.heads)
        if ".k_proj." in name:
            array = deinterleave(array, shape.kv_heads)
        state[name] = torch.from_numpy(array.copy()).float()
    return shape, state, reader


def load(path, device, shape=None):
    """A model from a GGUF file, or from trained weights."""
    if str(path).endswith(".gguf"):
        shape, state, _ = read_gguf(path)
    else:
        shape = SHAPES[shape]
        state = {k: v.float() for k, v in torch.load(path, map_location="cpu").items()}
    model = Llama(shape)
    model.load_state_dict(state)
    return model.to(device).eval()
