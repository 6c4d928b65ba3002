"""Token arrays on disk, and batches out of them.

A page is preceded by <|endoftext|>. Each epoch shuffles the pages anew and cuts the row of them into windows, so that every
token is seen once an epoch and never twice in the same surroundings. Chat rows start at a conversation, because that is
where a server's prompt starts; what the user says carries no loss.

    python -m training.data PAGES.jsonl.xz WORK [--only docs|chat|copies]        tokenizer.json must be in WORK
"""
import argparse
import hashlib
import json
import lzma
import random
from pathlib import Path

import numpy as np
import torch

from . import chat, copies
from .clean import is_held_out
from .tokenizer import END_OF_TEXT_ID

# Set on tokens that are read but not learned: ids need 13 bits, a word has 16.
UNLEARNED = 1 << 15
IGNORE = -100
# Conversations that ask for a text again.
COPIES = 100_000


def read_pages(path, held_out):
    """The pages to train on, or those never to be trained on."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        pages = (json.loads(line) for line in lines)
        return [p for p in pages if is_held_out(p["source"]) == held_out]


def is_watched(source):
    """Pages kept aside for watching a run while it goes, so that nothing is ever chosen by the held-out ones."""
    return int.from_bytes(hashlib.sha256(b"watch " + source.encode()).digest()[:8], "big") % 400 == 0


def encode_all(tok, texts):
    """Ids of each text."""
    out = []
    for i in range(0, len(texts), 4096):
        out += [np.array(e.ids, dtype=np.uint16) for e in tok.encode_batch(texts[i:i + 4096], add_special_tokens=False)]
    return out


def save_rows(path, rows):
    """Concatenated rows and where each begins."""
    starts = np.cumsum([0] + [len(r) for r in rows])
    np.savez(path, ids=np.concatenate(rows), starts=starts)


def prepare(pages_path, work, only=None, pages_limit=None, count=COPIES):
    from tokenizers import Tokenizer
    tok = Tokenizer.from_file(str(work / "tokenizer.json"))
    train = read_pages(pages_path, held_out=False)[:pages_limit]
    watched = [p for p in train if is_watched(p["source"])]
    train = [p for p in train if not is_watched(p["source"])]
    if only in (None, "docs"):
        save_pages(work / "docs.npz", tok, train)
        save_pages(work / "probe.npz", tok, watched)
    if only in (None, "chat"):
        save_talks(work / "chat.npz", tok, chat.all_conversations(train, random.Random(0)))
    if only in (None, "copies"):
        save_talks(work / "copies.npz", tok, copies.all_copies(train, count, random.Random(1)))
        save_talks(work / "copies-probe.npz", tok, copies.all_copies(watched, 512, random.Random(2)))


def save_pages(path, tok, pages):
    head, texts = np.array([END_OF_TEXT_ID], dtype=np.uint16), [p["text"] for p in pages]
    rows = [np.concatenate((head, r)) for r in encode_all(tok, texts)]
    save_rows(path, rows)
    report(path.stem, rows, texts)


def save_talks(path, tok, talks):
    head = np.array([END_OF_TEXT_ID], dtype=np.uint16)
    pieces = encode_all(tok, [text for talk in talks for text, _ in talk])
    rows, at = [], 0
    for talk in talks:
        parts = []
        for _, learned in talk:
            parts.append(pieces[at] if learned else pieces[at] | UNLEARNED)
            at += 1
        rows.append(np.concatenate(parts + [head]))
    save_rows(path, rows)
    report(path.stem, rows, ["".join(text for text, _ in talk) for talk in talks])


def report(name, rows, texts):
    tokens = sum(map(len, rows))
    print(f"{name}: {len(rows)} rows, {tokens / 1e6:.2f}M tokens, {sum(len(t.encode()) for t in texts) / tokens:.2f} bytes a token", flush=True)


class Rows:
    """Token rows held on the device."""

    def __init__(self, path, device):
        data = np.load(path)
        self.ids = torch.from_numpy(data["ids"].astype(np.int32)).to(device)
        self.starts = torch.from_numpy(data["starts"].astype(np.int64)).to(device)
        self.device = device

    def shuffled(self, generator):
        """All tokens, the rows in a new order."""
        lengths = self.starts[1:] - self.starts[:-1]
        order = torch.randperm(len(lengths), generator=generator).to(self.device)
        lengths, begin = lengths[order], self.starts[:-1][order]
        place = torch.cumsum(lengths, 0) - lengths
        offset = torch.arange(len(self.ids), device=self.device) - torch.repeat_interleave(place, lengths)
        return self.ids[torch.repeat_interleave(begin, lengths) + offset]


class Pages:
    """Windows over the shuffled pages, epoch after epoch."""

    def __init__(self, path, device, seed):
        self.rows, self.epoch, self.at, self.generator = Rows(path, device), 0, 0, torch.Generator().manual_seed(seed)
        self.stream = self.rows.shuffled(self.generator)

    def take(self, count, context):
        need = count * context + 1
        if self.at + need > len(self.stream):
            self.epoch += 1
            self.stream = self.rows.shuffled(self.generator)
            # Cut elsewhere than last time.
            self.at = int(torch.randint(0, min(context, len(self.stream) - need), (1,), generator=self.generator))
        chunk = self.stream[self.at:self.at + need].long()
        self.at += count * context
        return chunk[:-1].view(count, context), chunk[1:].view(count, context)


class Talks:
    """Rows that begin with a conversation and go on with those that follow it in a random order."""

    def __init__(self, path, device, seed):
        self.rows, self.generator = Rows(path, device), torch.Generator().manual_seed(seed)

    def take(self, count, context):
        reach = torch.arange(context + 1, device=self.rows.device)
        last = int(torch.searchsorted(self.rows.starts, len(self.rows.ids) - context - 1))
        pick = torch.randint(0, max(1, last - 1), (count,), generator=self.generator).to(self.rows.device)
        x = self.rows.ids[self.rows.starts[pick][:, None] + reach]
        goal = torch.where(x[:, 1:] >= UNLEARNED, IGNORE, x[:, 1:])
        return (x[:, :-1] % UNLEARNED).long(), goal.long()


def probe_windows(path, device, context=1024):
    ids = Rows(path, device).ids.long()
    return ids[:len(ids) // context * context].view(-1, context)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("pages", type=Path)
    p.add_argument("work", type=Path)
    p.add_argument("--only", choices=("docs", "chat", "copies"))
    p.add_argument("--limit", type=int, help="use only so many pages (a trial)")
    p.add_argument("--copies", type=int, default=COPIES)
    a = p.parse_args()
    prepare(a.pages, a.work, a.only, a.limit, a.copies)


if __name__ == "__main__":
    main()
