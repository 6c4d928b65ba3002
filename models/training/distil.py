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
from .rounding import ROUNDINGS, shipped
from .train import Phase, arguments, compiled, fastest_attention, probe_loss, run
from .weights import load

# Share of the long rows that are talk.
PHASES = [Phase(0.8, 1024, 0.12), Phase(1.0, 2048, 0.12)]
# A draft that has been trained before begins with long rows at once.
LATER_PHASES = [Phase(1.0, 2048, 0.12)]
BATCH_TOKENS = 192 * 1024
# Guesses in a round, as the engine makes them.
DEPTH = 4
# Tokens over which a round is felt in those after it.
HORIZON = 12


@dataclass
class Aim:
    """What a batch is made of, and what its loss asks for beside the likelihood; pairs are for long rows and for written ones.

    `variation` weighs the probability that a sampled draft token is rejected, `chance` the greedy tokens that are not accepted.
    Both make for more accepted tokens and cost likelihood, so most of them is asked for on the target's own text.
    """
    written: float = 0.5  # share of the tokens
    variation: tuple = (0.5, 3.0)
    chance: tuple = (0.0, 0.0)
    # Greedy guesses ask which token is first, not by how much: the chance is that of a distribution so many times as sharp, which
    # leaves alone what is settled or out of reach.
    sharp: float = 1.0
    rounds: bool = False  # whether places count as an engine meets them, or all alike


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


def round_weight(hit, follows):
    """The same for the rounds of an engine, one after the other: a round begins behind the token that ended the last one.

    `state[k]` is the chance that a place is the k-th guess of its round (the last: that it is the token after a round without a
    miss), `rest[k]` how many rounds begin from there on. The weight is the rounds that being right saves, put in accepted tokens
    a round, as above.
    """
    right = hit * follows
    state = torch.full((DEPTH + 1, len(hit)), 1 / (DEPTH + 1), device=hit.device)
    ahead = torch.zeros(DEPTH + 1, len(hit), device=hit.device)
    for _ in range(HORIZON):
        on = state[:DEPTH] * right
        state = F.pad(torch.cat((1 - on.sum(0, keepdim=True), on))[:, :-1], (1, 0))
        state[0, 0] = 1
        anew = ahead[:1]
        rest = torch.cat((anew + right * (ahead[1:] - anew), anew))
        rest[0] += 1
        ahead = F.pad(rest[:, 1:], (0, 1))
    length = 1 / state[0].mean()
    saved = (state[:DEPTH] * (ahead[:1] - ahead[1:])).sum(0)
    # Where the text goes another way, what would have come after is not known: one token is saved, at the usual price.
    return torch.where(follows > 0, saved, state[:DEPTH].sum(0) / length) * length ** 2


def hits(guess, goal, sharp):
    """The target's best token of each place, the draft's chance of naming it, and the logarithm of what its chances add up to."""
    best, guess = goal.argmax(-1, keepdim=True), guess.float() * sharp
    log_sum = guess.logsumexp(-1, keepdim=True)
    return best, (guess.gather(-1, best) - log_sum).exp()[:, 0], log_sum


def loss_and_slope(guess, goal, best, hit, log_sum, variation, chance, sharp):
    """Cross-entropy to the target's distribution, plus how much of the two distributions does not overlap, plus the tokens that
    would not be accepted, and the gradient for the draft's logits. All in one pass: autograd would carry the vocabulary through
    memory several times more."""
    p, log_q = goal.float().softmax(-1), guess.float().log_softmax(-1)
    q = log_q.exp()
    side = 0.5 * torch.sign(q - p)
    lean = (q * side).sum(-1, keepdim=True)
    loss = (-(p * log_q).sum(-1) + variation * (side * (q - p)).sum(-1) + chance * (1 - hit)).mean()
    is_best = torch.arange(guess.shape[-1], device=guess.device) == best
    keen = (guess.float() * sharp - log_sum).exp()
    slope = q - p + variation[:, None] * q * (side - lean) + (sharp * chance * hit)[:, None] * (keen - is_best.float())
    return loss, (slope / len(guess)).to(guess.dtype)


class HandedSlope(torch.autograd.Function):
    """A loss whose gradient is known; it must be the last step, because the slope is handed on as it is."""

    @staticmethod
    def forward(ctx, guess, loss, slope):
        ctx.save_for_backward(slope)
        return loss.clone()

    @staticmethod
    def backward(ctx, _):
        return *ctx.saved_tensors, None, None


class DistilLoss:
    """The loss of a batch that is made of several parts, each with its weights."""

    def __init__(self, device):
        self.device = device
        self.hits, self.both, self.everywhere = (compiled(f, device) for f in (hits, loss_and_slope, chance_weight))

    def __call__(self, guess, goal, parts, variation, chance, sharp=1.0, rounds=False):
        """`parts` are the rows of tokens, one after the other, that `guess` and `goal` are about."""
        with torch.no_grad():
            sharp = torch.full((), sharp, device=self.device)  # not a number: each would be compiled anew
            best, hit, log_sum = self.hits(guess, goal, sharp)
            sizes, weigh = [ids.numel() for ids in parts], round_weight if rounds else self.everywhere
            follows = (torch.cat([following(ids) for ids in parts]) == best[:, 0]).float()
            weights = [c * weigh(h, f) if c else torch.zeros_like(h) for c, h, f in zip(chance, hit.split(sizes), follows.split(sizes))]
            overlap = torch.cat([torch.full((size,), v, device=self.device) for size, v in zip(sizes, variation)])
            loss, slope = self.both(guess, goal, best, hit, log_sum, overlap, torch.cat(weights), sharp)
        return HandedSlope.apply(guess, loss, slope)


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


def learner(model, teacher, long, written, device, batch_tokens, aim, weights):
    """A function that leaves the gradients of one batch and returns its loss and its tokens; the draft reads it with its `weights` as shipped."""
    features, loss_of = compiled(lambda m, ids: m.hidden(ids), device), DistilLoss(device)

    def learn(phase):
        own = max(1, round(batch_tokens * aim.written / written.ids.shape[1]))
        rows = max(1, round(batch_tokens * (1 - aim.written) / phase.context))
        parts, hidden = zip(long.take(rows, phase), written.take(own))
        goal = teacher.logits(torch.cat([h.flatten(0, 1) for h in hidden]))
        with shipped(model, weights):
            with torch.autocast(device, torch.bfloat16):
                guess = F.linear(torch.cat([features(model, ids).flatten(0, 1) for ids in parts]), model.embed_tokens.weight)
            loss = loss_of(guess, goal, parts, aim.variation, aim.chance, aim.sharp, aim.rounds)
            loss.backward()
        return loss.detach(), len(guess)
    return learn


def main():
    p = arguments(__doc__, "draft")
    p.set_defaults(batch_tokens=BATCH_TOKENS)
    p.add_argument("--target", required=True, help="the GGUF file that is served")
    p.add_argument("--start", help="an earlier draft to go on from, a GGUF file or trained weights")
    p.add_argument("--written", type=float, default=Aim.written, help="share of the tokens that the target wrote")
    p.add_argument("--variation", type=float, nargs=2, default=Aim.variation, help="weight on long rows, on written rows")
    p.add_argument("--chance", type=float, nargs=2, default=Aim.chance, help="weight on long rows, on written rows")
    p.add_argument("--sharp", type=float, default=Aim.sharp, help="how much sharper the chance is than the draft's distribution")
    p.add_argument("--rounds", action="store_true", help="weigh the chance by the rounds of an engine")
    p.add_argument("--copies", type=float, default=0.0, help="share of the long rows that ask for a text again")
    p.add_argument("--weights", choices=ROUNDINGS, default="Q8_0", help="what the matrices will be shipped as")
    args = p.parse_args()
    torch.manual_seed(3 + args.resume)
    torch.set_float32_matmul_precision("high")
    fastest_attention(args.device)
    teacher, model = Teacher(args.target, args.device), load(args.start, args.device, args.shape).train() if args.start else Llama(SHAPES[args.shape]).to(args.device)
    # A resumed run draws with another seed: the rest of the pass is not worth the book-keeping.
    long, written = lessons_of(teacher, args.work, args.device, 7 + args.resume, args.copies > 0)
    windows = probe_windows(args.work / "probe.npz", args.device)
    learn = learner(model, teacher, long, written, args.device, args.batch_tokens, Aim(args.written, args.variation, args.chance, args.sharp, args.rounds), args.weights)

    def probe(m):
        with shipped(m, args.weights):
            return probe_loss(m, windows)
    phases = [replace(phase, copies=args.copies) for phase in (LATER_PHASES if args.start else PHASES)]
    run("draft", args, model, learn, phases, probe)


if __name__ == "__main__":
    main()
