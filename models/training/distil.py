"""Distils the draft from the target.

    python -m training.distil WORK --write             the target writes texts of its own: WORK/written.npz
    python -m training.distil WORK --minutes 6         the draft learns the target's distribution on pages, talk and those texts

What counts for a draft is how often it guesses what the target would write *on the target's own text*, so a share of the
rows is exactly that: continuations of pages and answers to questions, half of them greedy and half sampled.
"""
import time

import numpy as np
import torch

from .data import Pages, Rows, Talks, probe_windows, save_rows
from .model import SHAPES, Llama, generate
from .tokenizer import END_OF_TEXT_ID, IM_END_ID
from .train import Phase, arguments, compiled, fastest_attention, load_model, mixed, probe_loss, run
from .weights import load

# Share of rows that are talk, and of the rest the share that the target wrote.
PHASES = [Phase(0.8, 1024, 0.12), Phase(1.0, 2048, 0.12)]
WRITTEN_SHARE = 0.35
# Weight of the total-variation term: the probability that a sampled draft token is rejected.
VARIATION = 1.0
SAMPLING_HEAT = 0.8
CONTINUATION, ANSWER = 320, 200


def distil_loss(teacher, model, ids):
    """Cross-entropy to the target's distribution, plus how much of the two distributions does not overlap."""
    with torch.no_grad():
        goal = teacher(ids).float().softmax(-1)
    log_guess = model(ids).float().log_softmax(-1)
    entropy_to = -(goal * log_guess).sum(-1).mean()
    variation = 0.5 * (goal - log_guess.exp()).abs().sum(-1).mean()
    return entropy_to + VARIATION * variation


def write(model, prompts, count, rng):
    """Continuations of equally long prompts, each row greedy or sampled."""
    heat = (torch.rand(len(prompts), generator=rng) < 0.5).float().to(prompts.device) * SAMPLING_HEAT
    return torch.cat((prompts, generate(model, prompts, count, heat)), 1).cpu().numpy().astype(np.uint16)


def cut_after(row, prompt_length, token):
    """The row up to and with the first `token` after the prompt."""
    ends = np.flatnonzero(row[prompt_length:] == token)
    return row[:prompt_length + ends[0] + 1] if len(ends) else row


def page_prompts(rows, length):
    """The openings of all pages that are long enough, as one array."""
    starts = rows.starts[:-1][(rows.starts[1:] - rows.starts[:-1]) > length + 64]
    return rows.ids[starts[:, None] + torch.arange(length, device=rows.device)].long()


def question_prompts(rows):
    """Prompts up to the first answer, grouped by length."""
    ids, starts = rows.ids.cpu().numpy(), rows.starts.cpu().numpy()
    groups = {}
    for begin, end in zip(starts[:-1], starts[1:]):
        row = ids[begin:end]
        learned = np.flatnonzero(row < 1 << 15)
        if len(learned) and learned[0] < 96:
            groups.setdefault(int(learned[0]), []).append(row[:learned[0]] % (1 << 15))
    return {n: torch.from_numpy(np.stack(g)).long() for n, g in groups.items() if len(g) >= 8}


def load_target(args):
    """The target as it was trained, or as it is served."""
    if args.target:
        return load(args.target, args.device)
    return load_model(args.target_shape, args.work / "target.pt", args.device).eval()


def write_group(model, prompts, count, batch, deadline, device, rng):
    """Rows for prompts of one length, in a random order, until the time is over."""
    for pick in torch.randperm(len(prompts), generator=rng).split(batch):
        if time.time() > deadline:
            return
        yield from write(model, prompts[pick.to(prompts.device)].to(device), count, rng)


def write_all(args, batch, seconds):
    """Texts by the target: answers for a third of the time, then continuations of pages from three prompt lengths."""
    model = load_target(args)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for every length, and here each step is a new length
    if args.device == "cuda":
        model = model.bfloat16()
    pages, talks = Rows(args.work / "docs.npz", args.device), Rows(args.work / "chat.npz", args.device)
    rng, began, out = torch.Generator().manual_seed(5), time.time(), []
    for length, prompts in sorted(question_prompts(talks).items(), key=lambda item: -len(item[1])):
        rows = write_group(model, prompts, ANSWER, batch, began + seconds / 3, args.device, rng)
        out += [cut_after(r, length, IM_END_ID) for r in rows]
    for i, length in enumerate((32, 96, 192)):
        deadline = began + seconds * (5 + 2 * i) / 9
        out += write_group(model, page_prompts(pages, length), CONTINUATION, batch, deadline, args.device, rng)
    end = np.array([END_OF_TEXT_ID], dtype=np.uint16)
    save_rows(args.work / "written.npz", [r if r[0] == END_OF_TEXT_ID else np.concatenate((end, r)) for r in out])
    print(f"written: {len(out)} texts, {sum(map(len, out)) / 1e6:.1f}M tokens in {time.time() - began:.0f} s", flush=True)


def feed_of(args):
    pages, talks = Pages(args.work / "docs.npz", args.device, 6 + args.resume), Talks(args.work / "chat.npz", args.device, 7 + args.resume)
    written = Pages(args.work / "written.npz", args.device, 8 + args.resume)

    def feed(phase):
        x, y = mixed(pages, talks, phase, args.batch_tokens)
        own = max(1, round(len(x) * WRITTEN_SHARE))
        wx, wy = written.take(own, phase.context)
        return torch.cat((x[own:], wx))[torch.randperm(len(x))], y
    return feed


def main():
    p = arguments(__doc__, "draft")
    p.add_argument("--write", action="store_true")
    p.add_argument("--write-seconds", type=float, default=45)
    p.add_argument("--write-batch", type=int, default=2048)
    p.add_argument("--target", help="a GGUF file to distil from instead of WORK/target.pt")
    p.add_argument("--start", help="a GGUF file of a draft to go on from")
    p.add_argument("--target-shape", default="target", choices=SHAPES)
    args = p.parse_args()
    torch.manual_seed(3 + args.resume)
    torch.set_float32_matmul_precision("high")
    if args.write:
        return write_all(args, args.write_batch, args.write_seconds)
    fastest_attention(args.device)
    teacher = load_target(args)
    if args.device == "cuda":
        teacher = teacher.bfloat16()
    model = load(args.start, args.device).train() if args.start else Llama(SHAPES[args.shape]).to(args.device)
    loss = compiled(lambda m, ids: distil_loss(teacher, m, ids), args.device)
    windows = probe_windows(args.work / "probe.npz", args.device)
    run("draft", args, model, lambda m, ids, _: loss(m, ids), feed_of(args), PHASES, micro_tokens=64 * 1024, probe=lambda m: probe_loss(m, windows))


if __name__ == "__main__":
    main()
