"""Judges a draft by the pages kept aside, so that choices are made without a look at the held-out ones.

    python -m training.judge WORK PAGES.jsonl.xz forespeak-target.gguf forespeak-draft.gguf [--sampled 2048]

Accepted of 4 as in `training.evaluate`, on more prompts of 128 tokens than there are pages, because the steps forward are
smaller than the noise of 200 prompts: every paragraph of prose; one prompt every 192 tokens from anywhere; and 64 tokens of a
page with 64 drawn from the target after them, of which there is no end. And the loss on the pages, in nats a token.
"""
import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

from .data import Rows, is_watched, probe_windows, read_pages
from .evaluate import PROMPT_TOKENS, accepted_at, continued, mean_accepted, prose_prompts
from .model import generate
from .train import probe_loss
from .weights import load
from .write import SAMPLING_HEAT

STRIDE = 192
GIVEN = PROMPT_TOKENS // 2


def prose(pages, tok):
    return [prompt for page in pages for prompt in prose_prompts(tok, page["text"])]


def anywhere(ids):
    return ids.unfold(0, PROMPT_TOKENS, STRIDE)


def sampled(target, ids, count):
    begin = torch.randint(0, len(ids) - GIVEN, (count,), generator=torch.Generator().manual_seed(77)).to(ids.device)
    torch.manual_seed(11)
    start = ids[begin[:, None] + torch.arange(GIVEN, device=ids.device)]
    return torch.cat((start, generate(target, start, PROMPT_TOKENS - GIVEN, SAMPLING_HEAT)), 1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work", type=Path)
    p.add_argument("pages", type=Path)
    p.add_argument("target", type=Path)
    p.add_argument("draft", type=Path)
    p.add_argument("--sampled", type=int, default=2048)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    tok = Tokenizer.from_file(str(a.work / "tokenizer.json"))
    pages = [page for page in read_pages(a.pages, held_out=False) if is_watched(page["source"])]
    target, draft = load(a.target, a.device), load(a.draft, a.device, "draft")
    ids = Rows(a.work / "probe.npz", a.device).ids.long()
    result = {"loss": round(probe_loss(draft, probe_windows(a.work / "probe.npz", a.device)), 4)}
    draft.eval()
    for name, prompts in (("prose", prose(pages, tok)), ("anywhere", anywhere(ids)), ("sampled", sampled(target, ids, a.sampled))):
        everywhere, rounds = mean_accepted(accepted_at(draft, continued(target, prompts, a.device)))
        result[name] = {"prompts": len(prompts), "accepted_of_4": round(everywhere, 3), "accepted_of_4_in_rounds": round(rounds, 3)}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
