"""A plain Llama, so that any engine can run the export: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

The output layer is the embedding, transposed: at this size a second vocabulary matrix would be an eighth of the model.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

CONTEXT = 2048
NORM_EPS = 1e-5
ROPE_BASE = 10000.0


@dataclass(frozen=True)
class Shape:
    width: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocab: int = 8192

    @property
    def head_width(self):
        return self.width // self.heads


SHAPES = {
    # As large as both files together may be (27 MiB), less the draft.
    "target": Shape(width=384, layers=12, heads=6, kv_heads=2, feed_forward=1088),
    # Three layers, not four: a fourth costs 12 % of a step on two cores, a wider feed-forward part of the same size 2 %.
    "draft": Shape(width=192, layers=3, heads=3, kv_heads=1, feed_forward=736),
    # For trying the whole pipeline on a laptop within a minute or two.
    "mini-target": Shape(width=128, layers=3, heads=2, kv_heads=1, feed_forward=256),
    "mini-draft": Shape(width=64, layers=2, heads=1, kv_heads=1, feed_forward=128),
}


def rotate(x, cos, sin):
    """Rotary positions in the half-split layout of Hugging Face; the export reorders rows for GGUF."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, s: Shape, dropout=0.0):
        super().__init__()
        self.shape, self.dropout = s, dropout
        kv_width = s.kv_heads * s.head_width
        self.q_proj = nn.Linear(s.width, s.width, bias=False)
        self.k_proj = nn.Linear(s.width, kv_width, bias=False)
        self.v_proj = nn.Linear(s.width, kv_width, bias=False)
        self.o_proj = nn.Linear(s.width, s.width, bias=False)
        self.gate_proj = nn.Linear(s.width, s.feed_forward, bias=False)
        self.up_proj = nn.Linear(s.width, s.feed_forward, bias=False)
        self.down_proj = nn.Linear(s.feed_forward, s.width, bias=False)
        self.input_layernorm = nn.RMSNorm(s.width, eps=NORM_EPS)
        self.post_attention_layernorm = nn.RMSNorm(s.width, eps=NORM_EPS)

    def forward(self, x, cos, sin, cache=None):
        s = self.shape
        b, t, _ = x.shape
        y = self.input_layernorm(x)
        q = rotate(self.q_proj(y).view(b, t, s.heads, s.head_width).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(y).view(b, t, s.kv_heads, s.head_width).transpose(1, 2), cos, sin)
        v = self.v_proj(y).view(b, t, s.kv_heads, s.head_width).transpose(1, 2)
        if cache is not None:
            k, v = cache.append(self, k, v)
        # One query sees all keys; several see what stands before them (a prompt always starts an empty cache).
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=True)
        x = x + self.dropped(self.o_proj(y.transpose(1, 2).reshape(b, t, s.width)))
        y = self.post_attention_layernorm(x)
        return x + self.dropped(self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y)))

    def dropped(self, x):
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class Cache:
    """Keys and values of the tokens seen so far, in buffers of a fixed length."""

    def __init__(self, length):
        self.length, self.filled, self.buffers = length, 0, {}

    def append(self, block, k, v):
        if block not in self.buffers:
            b, h, _, w = k.shape
            self.buffers[block] = k.new_empty(2, b, h, self.length, w)
        keys, values = self.buffers[block]
        end = self.filled + k.shape[2]
        keys[:, :, self.filled:end] = k
        values[:, :, self.filled:end] = v
        return keys[:, :, :end], values[:, :, :end]


class Llama(nn.Module):
    def __init__(self, shape: Shape, dropout=0.0):
        super().__init__()
        self.shape = shape
        # Training sets bf16: the residual stream is what it moves most through memory. Evaluation keeps the weights' type.
        self.stream_dtype = None
        self.embed_tokens = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList(Block(shape, dropout) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=NORM_EPS)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * shape.layers) if into_residual else 1))
        frequency = ROPE_BASE ** (-torch.arange(0, shape.head_width, 2).float() / shape.head_width)
        angle = torch.arange(CONTEXT).float()[:, None] * frequency[None]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def hidden(self, ids, cache=None):
        start = cache.filled if cache else 0
        x = self.embed_tokens(ids)
        if self.stream_dtype:
            x = x.to(self.stream_dtype)
        cos, sin = (a[start:start + ids.shape[1]].to(x.dtype) for a in (self.cos, self.sin))
        for layer in self.layers:
            x = layer(x, cos, sin, cache)
        if cache:
            cache.filled += ids.shape[1]
        return self.norm(x)

    def forward(self, ids, cache=None):
        return F.linear(self.hidden(ids, cache), self.embed_tokens.weight)


@torch.no_grad()
def generate(model, prompt, count, temperature=0.0):
    """`count` tokens after each row of `prompt`; a temperature per row or one for all, zero meaning the likeliest token."""
    cache = Cache(prompt.shape[1] + count)
    heat = torch.as_tensor(temperature, device=prompt.device, dtype=torch.float32).expand(prompt.shape[0])
    out, step = [], prompt
    for _ in range(count):
        logits = model(step, cache)[:, -1].float()
        step = logits.argmax(-1, keepdim=True)
        if (heat > 0).any():
            drawn = torch.multinomial((logits / heat.clamp(min=0.05)[:, None]).softmax(-1), 1)
            step = torch.where(heat[:, None] > 0, drawn, step)
        out.append(step)
    return torch.cat(out, 1)
