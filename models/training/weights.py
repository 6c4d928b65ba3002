"""Reads a GGUF file back: shape, weights as the engine will see them (dequantised), tokenizer."""
import re
from contextlib import contextmanager

import torch

from .model import SHAPES, Llama, Shape

BLOCK = 32


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


def rounded_to_8(blocks):
    """What Q8_0 makes of 32 weights: an f16 scale and whole numbers up to 127."""
    scale = blocks.abs().amax(1, keepdim=True) / 127
    return torch.where(scale > 0, blocks / scale.clamp(min=1e-30), blocks).round() * scale.half().float()


def rounded_to_4(blocks):
    """What Q4_0 makes of 32 weights: an f16 scale and whole numbers from -8, which the largest weight gets, to 7."""
    largest = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
    scale = largest / -8
    whole = (torch.where(scale != 0, blocks / scale, blocks) + 8.5).floor().clamp(0, 15) - 8
    return whole * scale.half().float()


ROUNDINGS = {"Q8_0": rounded_to_8, "Q4_0": rounded_to_4}


# Matrices of attention are few and have most to lose: they have eight bits whatever the others have.
ALWAYS_Q8_0 = ("q_proj", "k_proj", "v_proj", "o_proj")


def kind_of(name, weights):
    """The kind of GGUF weights of a matrix in a model whose weights are mostly of the kind `weights`."""
    return "Q8_0" if any(part in name for part in ALWAYS_Q8_0) else weights


def rounded(weight, kind):
    """What a kind of GGUF weights makes of a matrix."""
    return ROUNDINGS[kind](weight.float().reshape(-1, BLOCK)).reshape(weight.shape)


@contextmanager
def shipped(model, weights):
    """The model computes with its matrices as they will be shipped. Gradients that are taken meanwhile are those of the full ones: where
    rounding is coarse, a model learns to live with it."""
    matrices = {name: p for name, p in model.named_parameters() if p.dim() == 2}
    full = {name: p.detach().clone() for name, p in matrices.items()}
    with torch.no_grad():
        for name, p in matrices.items():
            p.copy_(rounded(p, kind_of(name, weights)))
    try:
        yield
    finally:
        with torch.no_grad():
            for name, p in matrices.items():
                p.copy_(full[name])


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
