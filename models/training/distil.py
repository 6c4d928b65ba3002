"""Distils the draft from the target.

    python -m training.distil WORK --target forespeak-target.gguf --minutes 14 [--start forespeak-draft.gguf --peak 0.5 --hold 0]

The target reads every row once and leaves its last hidden state for each token: its whole distribution is then one product
away, so the draft can read the row many times while the large model rests. That doubles the tokens a minute buys.
Half of the tokens come from pages and conversations, for the likelihood of text in general, and half from what the target
wrote (`training.write`), for guessing what it writes.
"""
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F

from .data import Rows, Talks, probe_windows
from .model import SHAPES, Llama
from .train import Phase, arguments, compiled, fastest_attention, probe_loss, run
from .weights import load

# Share of the long rows that are talk.
PHASES = [Phase(0.8, 1024, 0.12), Phase(1.0, 2048, 0.12)]
# A draft that has been trained before begins with long rows at once.
LATER_PHASES = [Phase(1.0, 2048, 0.12)]
BATCH_TOKENS = 192 * 1024
# Guesses in a round, as the engine makes them.
DEPTH = 4


@dataclass
class Aim:
    """What a batch is made of, and what its loss asks for beside the likelihood; pairs are for long rows and for written ones.

    `variation` weighs the probability that a sampled draft token is rejected, `chance` the greedy tokens that are not accepted.
    Both make for more accepted tokens and cost likelihood, so most of them is asked for on the target's own text.
    """
    written: float = 0.5  # share of the tokens
    variation: tuple = (0.5, 3.0)
    chance: tuple = (0.0, 0.0)


# Pages are shuffled, cut and read by the target anew after the draft has passed over them so often.
PASSES = 20
# Tokens the target reads at once.
READING = 64 * 1024


def shifted(x, by):
    """The values `by` places further on, zero beyond the ends."""
    return F.pad(x, (0, by))[by:] if by >= 0 else F.pad(x, (-by, 0))[:by]


def chance_weight(hit, follows):
    """How many more tokens are accepted, over all rounds of DEPTH guesses that reach a place, if the draft is right there.

    `hit` is its chance of naming the target's best token, and `follows` says that the text goes on with that token. A guess counts
    only if those before it were right, and lets those after it count: effort is worth most where the neighbours are within reach.
    """
    chain = hit * follows
    before, weight = torch.ones_like(hit), torch.zeros_like(hit)
    for reached in range(DEPTH):
        after = follows
        weight = weight + before
        for further in range(1, DEPTH - reached):
            weight = weight + before * after * shifted(hit, further)
            after = after * shifted(chain, further)
        before = before * shifted(chain, -reached - 1)
    return weight


def loss_and_slope(guess, goal, follow, variation, chance):
    """Cross-entropy to the target's distribution, plus how much of the two distributions does not overlap, plus the tokens that
    would not be accepted, and the gradient for the draft's logits. All in one pass: autograd would carry the vocabulary through
    memory several times more. `follow` is the text's next token, or -1 where its row ends."""
    p, log_q = goal.float().softmax(-1), guess.float().log_softmax(-1)
    q = log_q.exp()
    best = goal.argmax(-1, keepdim=True)
    hit = q.gather(-1, best)[:, 0]
    chance = chance * chance_weight(hit, (follow == best[:, 0]).float())
    side = 0.5 * torch.sign(q - p)
    lean = (q * side).sum(-1, keepdim=True)
    loss = (-(p * log_q).sum(-1) + variation * (side * (q - p)).sum(-1) + chance * (1 - hit)).mean()
    is_best = torch.arange(guess.shape[-1], device=guess.device) == best
    slope = q - p + variation[:, None] * q * (side - lean) + (chance * hit)[:, None] * (q - is_best.float())
    return loss, (slope / len(guess)).to(guess.dtype)


class DistilLoss(torch.autograd.Function):
    """`loss_and_slope` for autograd; it must be the last step, because the slope is handed on as it is."""

    @staticmethod
    def forward(ctx, guess, goal, follow, variation, chance, both):
        loss, slope = both(guess, goal, follow, variation, chance)
        ctx.save_for_backward(slope)
        return loss

    @staticmethod
    def backward(ctx, _):
        return *ctx.saved_tensors, None, None, None, None, None


class Lessons:
    """Rows of tokens, and what the target makes of every one of them; drawn without repetition until all were drawn."""

    def __init__(self, read, width, rows):
        self.ids = rows
        self.hidden = torch.empty(*rows.shape, width, dtype=torch.bfloat16, device=rows.device)
        at_once = min(len(rows), max(1, READING // rows.shape[1]))
        for i in range(0, len(rows), at_once):
            # The last part overlaps the one before it: another size would be compiled anew.
            part = slice(min(i, len(rows) - at_once), min(i, len(rows) - at_once) + at_once)
            self.hidden[part] = read(rows[part].long())
        self.order, self.at, self.passes = torch.randperm(len(rows), device=rows.device), 0, 0

    def take(self, count):
        if self.at + count > len(self.order):
            self.order, self.at, self.passes = torch.randperm(len(self.order), device=self.order.device), 0, self.passes + 1
        pick = self.order[self.at:self.at + count]
        self.at += count
        return self.ids[pick].long(), self.hidden[pick]


class LongLessons:
    """Pages and conversations in rows of a phase's context, cut anew every few passes."""

    def __init__(self, read, width, pages, talks, copies):
        self.read, self.width, self.pages, self.talks, self.copies = read, width, pages, talks, copies
        self.lessons, self.context = None, 0

    def take(self, count, phase):
        if phase.context != self.context or self.lessons.passes == PASSES:
            self.lessons, self.context = None, phase.context  # two of them would not fit
            self.lessons = Lessons(self.read, self.width, self.cut(phase))
        return self.lessons.take(count)

    def cut(self, phase):
        stream = self.pages.shuffled(self.talks.generator)
        # Cut elsewhere than last time.
        skip = int(torch.randint(0, phase.context, (1,), generator=self.talks.generator))
        rows = (len(stream) - skip) // phase.context
        windows = stream[skip:skip + rows * phase.context].view(rows, phase.context)
        total = rows / (1 - phase.talk - phase.copies)
        spoken = [source.take(round(total * share), phase.context)[0] for source, share in ((self.talks, phase.talk), (self.copies, phase.copies)) if share]
        return torch.cat([windows] + [rows.to(windows.dtype) for rows in spoken]).to(torch.int16)


class Teacher:
    """The target: reads rows once, and turns what it left there into its distribution."""

    def __init__(self, path, device):
        self.model = load(path, device)
        if device == "cuda":
            self.model = self.model.bfloat16()
            for layer in self.model.layers:
                layer.compile(dynamic=False)
        self.width = self.model.shape.width

    @torch.no_grad()
    def read(self, ids):
        return self.model.hidden(ids)

    @torch.no_grad()
    def logits(self, hidden):
        return F.linear(hidden, self.model.embed_tokens.weight.to(hidden.dtype))


def lessons_of(teacher, work, device, seed, copies):
    """Long rows, and the target's own."""
    written = torch.from_numpy(np.load(work / "written.npy").astype(np.int16)).to(device)
    return long_lessons_of(teacher, work, device, seed, copies), Lessons(teacher.read, teacher.width, written)


def long_lessons_of(teacher, work, device, seed, copies=False):
    """`copies`: whether some rows may ask for a text again."""
    pages, talks = Rows(work / "docs.npz", device), Talks(work / "chat.npz", device, seed)
    return LongLessons(teacher.read, teacher.width, pages, talks, Talks(work / "copies.npz", device, seed + 20) if copies else None)


def following(ids):
    """The next token of each place, -1 at the end of a row."""
    return F.pad(ids[:, 1:], (0, 1), value=-1).flatten()


def learner(model, teacher, long, written, device, batch_tokens, aim):
    """A function that leaves the gradients of one batch and returns its loss and its tokens."""
    features, both = compiled(lambda m, ids: m.hidden(ids), device), compiled(loss_and_slope, device)

    def learn(phase):
        own = max(1, round(batch_tokens * aim.written / written.ids.shape[1]))
        rows = max(1, round(batch_tokens * (1 - aim.written) / phase.context))
        parts = [long.take(rows, phase), written.take(own)]
        goal = teacher.logits(torch.cat([hidden.flatten(0, 1) for _, hidden in parts]))
        follow = torch.cat([following(ids) for ids, _ in parts])
        variation, chance = (torch.cat([torch.full((ids.numel(),), v, device=device) for (ids, _), v in zip(parts, weights)])
                             for weights in (aim.variation, aim.chance))
        with torch.autocast(device, torch.bfloat16):
            guess = F.linear(torch.cat([features(model, ids).flatten(0, 1) for ids, _ in parts]), model.embed_tokens.weight)
            loss = DistilLoss.apply(guess, goal, follow, variation, chance, both)
        loss.backward()
        return loss.detach(), len(guess)
    return learn


def main():
    p = arguments(__doc__, "draft")
    p.set_defaults(batch_tokens=BATCH_TOKENS)
    p.add_argument("--target", required=True, help="the GGUF file that is served")
    p.add_argument("--start", help="a GGUF file of an earlier draft to go on from")
    p.add_argument("--written", type=float, default=Aim.written, help="share of the tokens that the target wrote")
    p.add_argument("--variation", type=float, nargs=2, default=Aim.variation, help="weight on long rows, on written rows")
    p.add_argument("--chance", type=float, nargs=2, default=Aim.chance, help="weight on long rows, on written rows")
    p.add_argument("--copies", type=float, default=0.0, help="share of the long rows that ask for a text again")
    args = p.parse_args()
    torch.manual_seed(3 + args.resume)
    torch.set_float32_matmul_precision("high")
    fastest_attention(args.device)
    teacher, model = Teacher(args.target, args.device), load(args.start, args.device).train() if args.start else Llama(SHAPES[args.shape]).to(args.device)
    # A resumed run draws with another seed: the rest of the pass is not worth the book-keeping.
    long, written = lessons_of(teacher, args.work, args.device, 7 + args.resume, args.copies > 0)
    windows = probe_windows(args.work / "probe.npz", args.device)
    learn = learner(model, teacher, long, written, args.device, args.batch_tokens, Aim(args.written, args.variation, args.chance))
    phases = [replace(phase, copies=args.copies) for phase in (LATER_PHASES if args.start else PHASES)]
    run("draft", args, model, learn, phases, probe=lambda m: probe_loss(m, windows))


if __name__ == "__main__":
    main()
