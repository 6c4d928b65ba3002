"""Pre-trains the target; conversations come in while the rate decays, and the last part sees the full context.

    python -m training.train WORK --minutes 14 [--until 0.6] [--resume] [--shape target]

A run is measured in minutes, because that is what a rented GPU is paid in. `--until 0.6` stops when 60 % of them are spent
and leaves a checkpoint; `--resume` goes on from there.
"""
import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from .data import IGNORE, Pages, Talks, probe_windows
from .model import SHAPES, Llama
from .optim import HOLD, optimisers, rate, set_rate

BATCH_TOKENS = 256 * 1024
# What one pass over the target takes at once.
MICRO_TOKENS = 128 * 1024
# A first step on a new context compiles kernels: it says nothing about speed and does not count as time.
COMPILING_STEPS = 3


@dataclass
class Phase:
    """What a batch is made of while the share of the run that is over lies under `until`."""
    until: float
    context: int
    talk: float  # share of rows that are conversations
    copies: float = 0.0  # share of rows that ask for a text again


PHASES = [Phase(0.55, 1024, 0.02), Phase(0.85, 1024, 0.12), Phase(1.0, 2048, 0.25)]


def phase_at(phases, done):
    return next((p for p in phases if done < p.until), phases[-1])


def next_token_loss(model, ids, goal):
    return F.cross_entropy(model(ids).flatten(0, 1).float(), goal.flatten(), ignore_index=IGNORE)


class Clock:
    """Time spent training, as a share of the run."""

    def __init__(self, minutes, done=0.0):
        self.total, self.spent, self.last = minutes * 60, done * minutes * 60, time.time()

    def tick(self, counts=True):
        now = time.time()
        self.spent, self.last = self.spent + (now - self.last if counts else 0), now

    @property
    def done(self):
        return self.spent / self.total


def mixed(pages, talks, phase, batch_tokens):
    """One batch: rows of pages and rows of talk, in no order."""
    rows = max(4, batch_tokens // phase.context)
    spoken = round(rows * phase.talk)
    x, y = pages.take(rows - spoken, phase.context)
    if spoken:
        more_x, more_y = talks.take(spoken, phase.context)
        order = torch.randperm(rows, device=x.device)
        x, y = torch.cat((x, more_x))[order], torch.cat((y, more_y))[order]
    return x, y


def gradients(model, loss_of, x, y, micro_rows):
    """The gradients of a batch that is too large for one pass, and its mean loss."""
    device = x.device.type
    parts = list(zip(x.split(micro_rows), y.split(micro_rows)))
    total = torch.zeros((), device=device)
    for ids, goal in parts:
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(model, ids, goal) / len(parts)
        loss.backward()
        total += loss.detach()
    return total


def update(model, opts, factor):
    """One step along the gradients."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    set_rate(opts, factor)
    for o in opts:
        o.step()
    model.zero_grad(set_to_none=True)


def fit(name, model, opts, learn, phases, clock, until, curve, report_every, probe=None, hold=HOLD):
    """Steps until the share `until` of the run is over; appends to `curve`. `learn(phase)` leaves gradients and returns loss and tokens."""
    on_gpu = next(model.parameters()).is_cuda
    steps_on = {}
    window, since, tokens, began = 0.0, 0, 0, time.time()
    while clock.done < until:
        phase = phase_at(phases, clock.done)
        loss, count = learn(phase)
        update(model, opts, rate(clock.done, hold))
        window, since, tokens = window + loss, since + 1, tokens + count
        steps_on[phase.context] = steps_on.get(phase.context, 0) + 1
        compiling = on_gpu and steps_on[phase.context] <= COMPILING_STEPS
        if compiling:
            torch.cuda.synchronize()
        clock.tick(counts=not compiling)
        if since == report_every:
            loss = float(window) / since  # waits for the GPU
            point = {"done": round(clock.done, 4), "tokens": tokens, "loss": round(loss, 4), "context": phase.context}
            if probe and (len(curve) % 5 == 4 or clock.done >= until):
                point["probe"] = round(probe(model), 4)
            curve.append(point)
            print(f"{name} {json.dumps(point)} {tokens / (time.time() - began) / 1e6:.2f}M tokens/s", flush=True)
            window, since, tokens, began = 0.0, 0, 0, time.time()


@torch.no_grad()
def probe_loss(model, windows):
    """Mean loss on pages kept aside for watching the run (not the held-out ones)."""
    total = 0.0
    model.eval()
    for w in windows.split(16):
        with torch.autocast(w.device.type, torch.bfloat16):
            total += float(next_token_loss(model, w[:, :-1], w[:, 1:])) * len(w)
    model.train()
    return total / len(windows)


def fastest_attention(device):
    """Leaves switched on whichever of the GPU's two fast attention kernels wins on our shape."""
    if device != "cuda":
        return
    times = {}
    for name in ("flash", "cudnn"):
        torch.backends.cuda.enable_flash_sdp(name == "flash")
        torch.backends.cuda.enable_cudnn_sdp(name == "cudnn")
        try:
            times[name] = attention_seconds()
        except RuntimeError as error:
            print(f"{name} attention: {str(error)[:100]}")
    best = min(times, key=times.get)
    torch.backends.cuda.enable_flash_sdp(best == "flash")
    torch.backends.cuda.enable_cudnn_sdp(best == "cudnn")
    torch.backends.cuda.enable_math_sdp(True)
    print(f"attention: {times}, using {best}", flush=True)


def attention_seconds(rows=64, context=1024):
    torch.backends.cuda.enable_math_sdp(False)
    q, k, v = (torch.randn(rows, context, h, 64, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for h in (6, 2, 2))
    for i in range(13):
        if i == 3:
            torch.cuda.synchronize()
            start = time.time()
        F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).sum().backward()
    torch.cuda.synchronize()
    return (time.time() - start) / 10


def compiled(function, device):
    """On a GPU, one fused program; on a CPU a trial run is over before a compiler would be."""
    return torch.compile(function, dynamic=False) if device == "cuda" else function


def save_model(model, path):
    torch.save(model.state_dict(), path)


def save_checkpoint(path, model, opts, clock, curve):
    torch.save({"model": model.state_dict(), "opts": [o.state_dict() for o in opts], "done": clock.done, "curve": curve}, path)


def restore_checkpoint(path, model, opts, device):
    """Puts the weights and the optimisers' state back; returns the share done and the curve."""
    kept = torch.load(path, map_location=device)
    model.load_state_dict(kept["model"])
    for o, state in zip(opts, kept["opts"]):
        o.load_state_dict(state)
    return kept["done"], kept["curve"]


def arguments(description, shape):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("work", type=Path)
    p.add_argument("--minutes", type=float, default=14)
    p.add_argument("--until", type=float, default=1.0, help="stop when this share of the minutes is spent")
    p.add_argument("--resume", action="store_true")
    p.add_argument("--shape", default=shape, choices=SHAPES)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--peak", type=float, default=1.0, help="the highest rate, as a share of the usual one")
    p.add_argument("--hold", type=float, default=HOLD, help="share of the run after which the rate falls")
    p.add_argument("--batch-tokens", type=int, default=BATCH_TOKENS)
    p.add_argument("--report-every", type=int, default=50, help="steps between two points of the curve")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p


def run(name, args, model, learn, phases, probe=None):
    """Trains with checkpoint and resume, and leaves `name`.pt and `name`-curve.json behind."""
    model.stream_dtype = torch.bfloat16
    opts = optimisers(model, peak=args.peak)
    checkpoint, done, curve = args.work / f"{name}.ckpt", 0.0, []
    if args.resume:
        done, curve = restore_checkpoint(checkpoint, model, opts, args.device)
    clock = Clock(args.minutes, done)
    fit(name, model, opts, learn, phases, clock, args.until, curve, args.report_every, probe, args.hold)
    save_checkpoint(checkpoint, model, opts, clock, curve)
    save_model(model, args.work / f"{name}.pt")
    (args.work / f"{name}-curve.json").write_text(json.dumps(curve))
    print(f"{name}: {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters, {clock.done:.0%} of {args.minutes} minutes", flush=True)


def main():
    args = arguments(__doc__, "target").parse_args()
    torch.manual_seed(1 + args.resume)
    torch.set_float32_matmul_precision("high")
    fastest_attention(args.device)
    model = Llama(SHAPES[args.shape], args.dropout).to(args.device)
    # A resumed run shuffles with another seed: the rest of the epoch is not worth the book-keeping.
    pages, talks = Pages(args.work / "docs.npz", args.device, 2 + args.resume), Talks(args.work / "chat.npz", args.device, 4 + args.resume)
    windows = probe_windows(args.work / "probe.npz", args.device)
    loss_of = compiled(next_token_loss, args.device)

    def learn(phase):
        x, y = mixed(pages, talks, phase, args.batch_tokens)
        return gradients(model, loss_of, x, y, max(1, MICRO_TOKENS // phase.context)), x.numel()
    run("target", args, model, learn, PHASES, probe=lambda m: probe_loss(m, windows))


if __name__ == "__main__":
    main()
