"""The target writes texts of its own for the draft to learn from.

    python -m training.write WORK --target forespeak-target.gguf --seconds 60       leaves WORK/written.npy

What counts for a draft is how often it guesses what the target would write next, on text that the target has not learned by
heart. So every row begins with a piece of a page (or a question), goes on sampled, which leads away from the page, and then
greedily, which is how a speculating engine meets it. Greedy text soon repeats itself, and repetition is easily guessed, so a
second sampled stretch leads away once more.
"""
import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from .data import UNLEARNED, Rows
from .model import rotate
from .weights import load

# Short rows, because a short context is what a draft mostly has, and because they are quick to write.
ROW = 256
# Tokens of a row's stretches: given, sampled (under zero: none), greedy, sampled again; the rest is greedy.
GIVEN, SAMPLED, GREEDY, AGAIN = (16, 128), (-16, 64), (48, 80), (8, 32)
# How a place of a row comes by its token.
COPY, DRAW, BEST = range(3)
SAMPLING_HEAT = 0.9
TALK_SHARE = 0.2


def decode(model, token, at, caches):
    """Logits after one more token of each row. `at`, its position, is a tensor, so that one recorded graph serves every step."""
    s = model.shape
    split = (len(token), s.kv_heads, -1, s.head_width)
    x = model.embed_tokens(token)
    cos, sin = model.cos[at].to(x.dtype), model.sin[at].to(x.dtype)
    visible = (torch.arange(ROW, device=x.device) <= at)[None]
    for layer, (keys, values) in zip(model.layers, caches):
        y = layer.input_layernorm(x)
        # The queries that share a key head stand where a prompt's positions would.
        q = rotate(layer.q_proj(y).view(split), cos, sin)
        keys.index_copy_(2, at, rotate(layer.k_proj(y).view(split), cos, sin))
        values.index_copy_(2, at, layer.v_proj(y).view(split))
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=visible)
        x = x + layer.o_proj(y.reshape(x.shape))
        y = layer.post_attention_layernorm(x)
        x = x + layer.down_proj(F.silu(layer.gate_proj(y)) * layer.up_proj(y))
    return F.linear(model.norm(x), model.embed_tokens.weight)


class Writer:
    """Writes many rows in lockstep; on a GPU every step is one recorded graph."""

    def __init__(self, model, count, device):
        s, kind = model.shape, model.embed_tokens.weight.dtype
        self.model, self.at = model, torch.zeros(1, dtype=torch.long, device=device)
        self.rows = torch.zeros(count, ROW, dtype=torch.long, device=device)
        self.plan = torch.zeros(count, ROW, dtype=torch.int8, device=device)
        self.caches = [torch.zeros(2, count, s.kv_heads, ROW, s.head_width, dtype=kind, device=device) for _ in model.layers]
        self.graph = self.record() if device == "cuda" else None

    @torch.no_grad()
    def advance(self):
        logits = decode(self.model, self.rows.index_select(1, self.at)[:, 0], self.at, self.caches).float()
        best = logits.argmax(-1)
        # The largest of the logits plus Gumbel noise is a draw from their distribution.
        drawn = (logits / SAMPLING_HEAT - torch.empty_like(logits).exponential_().log()).argmax(-1)
        self.at.add_(1)
        how, copied = (a.index_select(1, self.at)[:, 0] for a in (self.plan, self.rows))
        chosen = torch.where(how == COPY, copied, torch.where(how == DRAW, drawn, best))
        self.rows.index_copy_(1, self.at, chosen[:, None])

    def record(self):
        torch.backends.cuda.enable_cudnn_sdp(False)  # it has no kernel for so few queries and a mask
        self.advance()  # libraries are loaded and memory is taken outside of the graph
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.advance()
        return graph

    def write(self, rows, plan):
        self.rows.copy_(rows)
        self.plan.copy_(plan)
        self.at.zero_()
        for _ in range(ROW - 1):
            if self.graph:
                self.graph.replay()
            else:
                self.advance()
        return self.rows.to(torch.int16)


class Openings:
    """Pieces of pages from anywhere, and questions up to their answer."""

    def __init__(self, work, device, seed):
        self.pages, self.talks = Rows(work / "docs.npz", device), Rows(work / "chat.npz", device)
        self.device, self.rng = device, torch.Generator().manual_seed(seed)
        self.reach = torch.arange(ROW, device=device)
        # From where the first answer begins: its tokens are the first that are learned.
        starts = self.talks.starts[:-1]
        starts = starts[starts < len(self.talks.ids) - ROW]
        answer = torch.cat([(self.talks.ids[part[:, None] + self.reach] < UNLEARNED).int().argmax(1) for part in starts.split(8192)])
        fits = (answer > 0) & (answer < GIVEN[1])
        self.questions, self.answers = starts[fits], answer[fits]

    def between(self, low, high, count):
        return torch.randint(low, high, (count,), generator=self.rng).to(self.device)

    def take(self, count):
        """(rows of tokens, how each place comes by its token)"""
        spoken = round(count * TALK_SHARE)
        begin = self.between(0, len(self.pages.ids) - ROW, count - spoken)
        asked = self.between(0, len(self.questions), spoken)
        rows = torch.cat((self.pages.ids[begin[:, None] + self.reach], self.talks.ids[self.questions[asked][:, None] + self.reach] % UNLEARNED))
        given = torch.cat((self.between(*GIVEN, count - spoken), self.answers[asked]))
        return rows.long(), self.planned(given, count)

    def planned(self, given, count):
        astray = given + self.between(*SAMPLED, count)
        again = torch.maximum(given, astray) + self.between(*GREEDY, count)
        back = again + self.between(*AGAIN, count)
        given, astray, again, back = (x[:, None] for x in (given, astray, again, back))
        drawn = (self.reach < astray) | ((self.reach >= again) & (self.reach < back))
        return torch.where(self.reach < given, COPY, torch.where(drawn, DRAW, BEST)).to(torch.int8)


def write_all(target, work, seconds, count, device, seed=5):
    """Rows as one array, as many as the seconds allow."""
    openings, writer = Openings(work, device, seed), Writer(target, count, device)
    began, out = time.time(), []
    while not out or time.time() - began < seconds:
        out.append(writer.write(*openings.take(count)).cpu())
    rows = torch.cat(out)[torch.randperm(count * len(out), generator=openings.rng)]
    print(f"written: {len(rows)} rows, {rows.numel() / 1e6:.1f}M tokens in {time.time() - began:.0f} s", flush=True)
    return rows.numpy().astype(np.uint16)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work", type=Path)
    p.add_argument("--target", required=True, help="the GGUF file that is served")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--rows", type=int, default=8192, help="rows written at a time")
    p.add_argument("--seed", type=int, default=5)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = p.parse_args()
    target = load(args.target, args.device)
    if args.device == "cuda":
        target = target.bfloat16()
    np.save(args.work / "written.npy", write_all(target, args.work, args.seconds, args.rows, args.device, args.seed))


if __name__ == "__main__":
    main()
