"""Teaches a target that is trained already to say a given text again, and keeps everything else as it is.

    python -m training.tune WORK --start forespeak-target.gguf --minutes 6 --peak 0.15 --hold 0       leaves WORK/target.pt

On pages and conversations the goal is not the text but the distribution of the model it started from: read once, and kept as
in `training.distil`. So it neither forgets nor learns the pages further by heart, and a draft of the old target still fits.
Only the answers of copying conversations are learned as they stand.
"""
import torch
import torch.nn.functional as F

from .data import IGNORE, UNLEARNED, Rows, Talks, probe_windows
from .distil import DistilLoss, Teacher, long_lessons_of
from .train import Phase, arguments, compiled, fastest_attention, probe_loss, run
from .weights import load

PHASES = [Phase(1.0, 2048, 0.25)]
BATCH_TOKENS = 128 * 1024
# Share of the rows that ask for a text again, and what the loss of their answers weighs against that of all other rows. By their
# number of tokens it would be 0.07.
COPIES, COPY_WEIGHT = 0.125, 0.2


def learner(model, teacher, long, copies, device, batch_tokens):
    """A function that leaves the gradients of one batch and returns its loss and its tokens."""
    features, loss_of = compiled(lambda m, ids: m.hidden(ids), device), DistilLoss(device)
    answers = compiled(lambda guess, goal: F.cross_entropy(guess.float(), goal, ignore_index=IGNORE), device)

    def learn(phase):
        rows = max(2, batch_tokens // phase.context)
        asked = max(1, round(rows * COPIES))
        ids, hidden = long.take(rows - asked, phase)
        x, y = copies.take(asked, phase.context)
        goal = teacher.logits(hidden.flatten(0, 1))
        with torch.autocast(device, torch.bfloat16):
            known, new = features(model, torch.cat((ids, x))).split((len(ids), asked))
            guess = F.linear(known.flatten(0, 1), model.embed_tokens.weight)
            loss = loss_of(guess, goal, [ids], [0.0], [0.0])
            loss = loss + COPY_WEIGHT * answers(F.linear(new.flatten(0, 1), model.embed_tokens.weight), y.flatten())
        loss.backward()
        return loss.detach(), rows * phase.context
    return learn


def last_answers(rows):
    """(ids, goals) of conversations, padded to one length: the goals are the tokens of the last answer, its end included."""
    ids, bounds = rows.ids.cpu(), rows.starts.tolist()
    longest = max(end - begin for begin, end in zip(bounds, bounds[1:]))
    x, y = torch.zeros(len(bounds) - 1, longest, dtype=torch.long), torch.full((len(bounds) - 1, longest), IGNORE)
    for i, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        row = ids[begin:end - 1]  # without the end of the text
        last = int((row < UNLEARNED).nonzero().max())
        first = int((row[:last] >= UNLEARNED).nonzero().max()) + 1
        x[i, :len(row)] = row % UNLEARNED
        y[i, first - 1:last] = row[first:last + 1]
    return x.to(rows.device), y.to(rows.device)


@torch.no_grad()
def copied(model, x, y):
    """(share of the goals that are the likeliest tokens, share of the rows in which all are: these would be written greedily)"""
    right, wrong = [], []
    model.eval()
    for ids, goal in zip(x.split(64), y.split(64)):
        with torch.autocast(ids.device.type, torch.bfloat16):
            best = model(ids).argmax(-1)
        right.append(((best == goal) & (goal != IGNORE)).sum(1))
        wrong.append(((best != goal) & (goal != IGNORE)).sum(1))
    model.train()
    right, wrong = torch.cat(right), torch.cat(wrong)
    return float(right.sum() / (right + wrong).sum()), float((wrong == 0).float().mean())


def main():
    p = arguments(__doc__, "target")
    p.set_defaults(batch_tokens=BATCH_TOKENS)
    p.add_argument("--start", required=True, help="the GGUF file to go on from")
    args = p.parse_args()
    torch.manual_seed(5 + args.resume)
    torch.set_float32_matmul_precision("high")
    fastest_attention(args.device)
    teacher, model = Teacher(args.start, args.device), load(args.start, args.device).train()
    long, copies = long_lessons_of(teacher, args.work, args.device, 9 + args.resume), Talks(args.work / "copies.npz", args.device, 31 + args.resume)
    windows, watched = probe_windows(args.work / "probe.npz", args.device), last_answers(Rows(args.work / "copies-probe.npz", args.device))

    def probe(m):
        print("copied: {:.4f} of the tokens, {:.3f} of the answers".format(*copied(m, *watched)), flush=True)
        return probe_loss(m, windows)
    run("target", args, model, learner(model, teacher, long, copies, args.device, args.batch_tokens), PHASES, probe=probe)


if __name__ == "__main__":
    main()
