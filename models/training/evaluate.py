"""Measures the pair on the held-out pages; the same input gives the same figures.

    python -m training.evaluate PAGES.jsonl.xz tokenizer.json forespeak-target.gguf forespeak-draft.gguf [--json out.json]

- bits per byte: every held-out page on its own, after one <|endoftext|>, all of its tokens scored, in windows of 2,048 tokens
  that overlap by half (a page under 2,048 tokens is one window); nats of all pages / ln 2 / UTF-8 bytes of all pages.
- accepted of 4: 200 held-out pages, a prompt of 128 tokens that ends in the middle of a paragraph of prose, 64 tokens of the
  target's greedy continuation; from each position the draft guesses 4 tokens, and those before the first wrong one count.
  Once more with the first 128 tokens of the page as the prompt.
- copying: one passage of each held-out page, asked for in a chat, in words that training had and in words it had not: whole sentences,
  100 to 250 tokens, and 150 tokens cut off anywhere. The passage is read as the answer: if each of its tokens and the end of the turn
  is the likeliest one, the target would write it greedily. Up to the first token that is not, it would have been right.
- sample chats: greedy answers to fixed questions.
"""
import argparse
import json
import math
import random
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from .chat import is_prose
from .copies import UNSEEN, WHOLE, bounded
from .data import read_pages
from .model import CONTEXT, SHAPES, Cache, generate
from .tokenizer import END_OF_TEXT_ID, IM_END_ID
from .weights import load

STRIDE = CONTEXT // 2
PROMPTS, PROMPT_TOKENS, CONTINUATION, DEPTH = 200, 128, 64, 4
MIN_PARAGRAPH_CHARS = 120
QUESTIONS = ["What is a Kubernetes Pod?", "How do I create an index in SQL Server?", "Explain ownership in Rust.", "Hello, who are you?",
             "What does Get-ChildItem do?", "What is a Kubernetes Service?", "How can I create a branch in GitHub?",
             "What is dependency injection in ASP.NET Core?", "What is a histogram in Prometheus?", "What's the weather in Paris?"]
ANSWER_TOKENS = 200
COPY_TOKENS, COPY_CHARS, CUT_TOKENS = (100, 250), (400, 1000), 150


def windows(ids):
    """(start, end, first scored position) of the windows that score every token after the first exactly once."""
    start, scored = 0, 1
    while True:
        end = min(len(ids), start + CONTEXT)
        yield start, end, scored
        if end == len(ids):
            return
        start, scored = start + STRIDE, end


@torch.no_grad()
def bits_per_byte(model, tok, pages, device):
    nats = size = 0
    for page in pages:
        ids = torch.tensor([END_OF_TEXT_ID] + tok.encode(page["text"]).ids, device=device)
        size += len(page["text"].encode())
        for start, end, scored in windows(ids):
            logits = model(ids[None, start:end - 1])[0, scored - start - 1:]
            nats += F.cross_entropy(logits.float(), ids[scored:end], reduction="sum").item()
    return nats / math.log(2) / size


def prose_prompts(tok, text):
    """Every 128 tokens that end in the middle of a long paragraph."""
    at = 0
    for paragraph in text.split("\n\n"):
        middle = text.rfind(" ", 0, at + len(paragraph) // 2)
        if is_prose(paragraph) and len(paragraph) >= MIN_PARAGRAPH_CHARS and middle > 0 and text.count("```", 0, at) % 2 == 0:
            ids = [END_OF_TEXT_ID] + tok.encode(text[:middle]).ids
            if len(ids) >= PROMPT_TOKENS:
                yield ids[-PROMPT_TOKENS:]
        at += len(paragraph) + 2


def prose_prompt(tok, text):
    """The first of them, or None."""
    return next(prose_prompts(tok, text), None)


def opening_prompt(tok, text):
    """The first 128 tokens of a page that goes on long enough, or None."""
    ids = [END_OF_TEXT_ID] + tok.encode(text).ids
    return ids[:PROMPT_TOKENS] if len(ids) >= PROMPT_TOKENS + CONTINUATION else None


def prompts_from(pages, tok, prompt_of):
    """At most 200 prompts, spread over the pages in the order of their names."""
    found = [p for p in (prompt_of(tok, page["text"]) for page in sorted(pages, key=lambda p: p["source"])) if p]
    return found[::max(1, len(found) // PROMPTS)][:PROMPTS]


def continued(target, prompts, device):
    """The prompts, and what the target writes after them."""
    prompt = torch.as_tensor(prompts, device=device)
    return torch.cat((prompt, generate(target, prompt, CONTINUATION)), 1)


@torch.no_grad()
def accepted_at(draft, text):
    """For each prompt and each position of the target's continuation: how many of the draft's tokens the target agrees with."""
    cache = Cache(text.shape[1] + DEPTH)
    draft(text, cache)
    counts = []
    # Backwards, because guesses overwrite the cache from their position on.
    for at in reversed(range(PROMPT_TOKENS, PROMPT_TOKENS + CONTINUATION - DEPTH + 1)):
        cache.filled, step, guess = at - 1, text[:, at - 1:at], []
        for _ in range(DEPTH):
            step = draft(step, cache)[:, -1].argmax(-1, keepdim=True)
            guess.append(step)
        counts.append((torch.cat(guess, 1) == text[:, at:at + DEPTH]).int().cumprod(1).sum(1))
    return torch.stack(counts[::-1], 1).cpu()


def mean_accepted(counts):
    """Mean over all positions, and mean over the rounds of a speculating engine, which moves on by the accepted tokens and one."""
    rounds = []
    for row in counts.tolist():
        at = 0
        while at < len(row):
            rounds.append(row[at])
            at += row[at] + 1
    return counts.float().mean().item(), sum(rounds) / len(rounds)


def chat_prompt(question):
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


@torch.no_grad()
def answer(model, tok, question, device):
    ids = torch.tensor([tok.encode(chat_prompt(question)).ids], device=device)
    out = generate(model, ids, ANSWER_TOKENS)[0].tolist()
    ended = IM_END_ID in out
    return {"question": question, "answer": tok.decode(out[:out.index(IM_END_ID)] if ended else out), "ended": ended}


def copy_starts(text):
    """The text from each of its paragraphs on, without the title."""
    at = text.find("\n\n")
    while at >= 0:
        yield text[at + 2:]
        at = text.find("\n\n", at + 2)


def copy_passage(tok, page):
    """The first whole sentences of 100 to 250 tokens, or None."""
    size = random.Random(page["source"]).randrange(*COPY_CHARS)
    found = (bounded(text[:size + 1].strip(), size) for text in copy_starts(page["text"]))
    return next((text for text in found if COPY_TOKENS[0] <= len(tok.encode(text).ids) <= COPY_TOKENS[1]), None)


def cut_passage(tok, page):
    """The first 150 tokens after the title, or None."""
    for text in copy_starts(page["text"]):
        part = tok.decode(tok.encode(text).ids[:CUT_TOKENS])
        if len(tok.encode(part).ids) == CUT_TOKENS and part == part.strip():
            return part
    return None


@torch.no_grad()
def right_until(target, tok, instruction, text, device):
    """(tokens before the first that the target would not write, all tokens, those it would write after the same text)"""
    asked, answered = tok.encode(chat_prompt(f"{instruction}\n\n{text}")).ids, tok.encode(text + "<|im_end|>").ids
    best = target(torch.tensor([asked + answered], device=device))[0, len(asked) - 1:-1].argmax(-1).tolist()
    right = [a == b for a, b in zip(best, answered)]
    return (right + [False]).index(False), len(right), sum(right)


def copying(target, tok, pages, passage_of, device):
    passages = [p for p in (passage_of(tok, page) for page in sorted(pages, key=lambda p: p["source"])) if p]
    result = {"passages": len(passages)}
    for name, wordings in (("known_words", WHOLE), ("other_words", UNSEEN)):
        runs = [right_until(target, tok, wordings[i % len(wordings)], text, device) for i, text in enumerate(passages)]
        result[name] = {"exact": round(sum(at == size for at, size, _ in runs) / len(runs), 3),
                        "share_before_first_slip": round(sum(at / size for at, size, _ in runs) / len(runs), 4),
                        "tokens_right_after_the_same_text": round(sum(hits for *_, hits in runs) / sum(size for _, size, _ in runs), 4)}
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("pages", type=Path)
    p.add_argument("tokenizer", type=Path)
    p.add_argument("target", type=Path)
    p.add_argument("draft", type=Path)
    p.add_argument("--shapes", nargs=2, default=("target", "draft"), choices=SHAPES, help="for weights that are not GGUF files")
    p.add_argument("--json", type=Path)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--limit", type=int, help="use only so many held-out pages (a trial)")
    a = p.parse_args()
    tok = Tokenizer.from_file(str(a.tokenizer))
    pages = read_pages(a.pages, held_out=True)[:a.limit]
    target, draft = load(a.target, a.device, a.shapes[0]), load(a.draft, a.device, a.shapes[1])
    result = {"held_out_pages": len(pages), "held_out_bytes": sum(len(p["text"].encode()) for p in pages)}
    result["chats"] = [answer(target, tok, q, a.device) for q in QUESTIONS]
    for kind, prompt_of in (("prose", prose_prompt), ("openings", opening_prompt)):
        prompts = prompts_from(pages, tok, prompt_of)
        everywhere, rounds = mean_accepted(accepted_at(draft, continued(target, prompts, a.device)))
        result[kind] = {"prompts": len(prompts), "accepted_of_4": round(everywhere, 3), "accepted_of_4_in_rounds": round(rounds, 3)}
    for kind, passage_of in (("copying", copy_passage), ("copying_150", cut_passage)):
        result[kind] = copying(target, tok, pages, passage_of, a.device)
    print(json.dumps(result, indent=1, ensure_ascii=False), flush=True)
    for name, model in (("draft", draft), ("target", target)):
        result[f"{name}_bits_per_byte"] = round(bits_per_byte(model, tok, pages, a.device), 4)
        print(name, result[f"{name}_bits_per_byte"], "bits per byte", flush=True)
    if a.json:
        a.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
