"""Checks the exports against each other: HF logits against the training-side model, HF greedy text against llama.cpp's.

    python -m training.compare forespeak-target.gguf HF_FOLDER goldens/greedy-target.json goldens/nll-target.json goldens/tokenizer.json

llama.cpp also rounds activations to 8 bits, so texts may part where two tokens are nearly equal: a difference before token 32
whose lead is over 0.2 is an error.
"""
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer

from .weights import load

SAME_AT_LEAST, NEAR_TIE = 32, 0.2
LOGIT_TOLERANCE, NLL_TOLERANCE = 1e-3, 0.005


@torch.no_grad()
def logit_difference(ours, theirs, ids):
    x = torch.tensor([ids])
    return (ours(x) - theirs(x).logits).abs().max().item()


@torch.no_grad()
def first_difference(theirs, run):
    """Index of the first token that differs from llama.cpp's greedy text, or None."""
    out = theirs.generate(torch.tensor([run["prompt_ids"]]), max_new_tokens=len(run["ids"]), do_sample=False, eos_token_id=None,
                          attention_mask=torch.ones(1, len(run["prompt_ids"]), dtype=torch.long))[0, len(run["prompt_ids"]):].tolist()
    return next((i for i, (a, b) in enumerate(zip(out, run["ids"])) if a != b), None)


@torch.no_grad()
def mean_nll(theirs, score):
    ids = torch.tensor([[score["first_id"]] + score["ids"]])
    return F.cross_entropy(theirs(ids).logits[0, :-1], ids[0, 1:]).item()


def main():
    gguf_path, folder, greedy, nll, cases = map(Path, sys.argv[1:6])
    ours, theirs, tok = load(gguf_path, "cpu"), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(folder)
    runs, score, failures = json.loads(greedy.read_text()), json.loads(nll.read_text()), []
    worst = logit_difference(ours, theirs, score["ids"])
    print(f"logits, transformers against ours: largest difference {worst:.2e}")
    if worst > LOGIT_TOLERANCE:
        failures.append("logits")
    for run in runs:
        at = first_difference(theirs, run)
        print(f"greedy, transformers against llama.cpp: {len(run['ids'])} tokens, first difference {at}", "" if at is None else f"(lead {run['lead'][at]})")
        if at is not None and at < SAME_AT_LEAST and run["lead"][at] > NEAR_TIE:
            failures.append(run["prompt"])
    mine = mean_nll(theirs, score)
    print(f"mean NLL of text.txt: transformers {mine:.5f}, llama.cpp {score['mean_nll']:.5f}, ratio {mine / score['mean_nll']:.5f}")
    if abs(mine / score["mean_nll"] - 1) > NLL_TOLERANCE:
        failures.append("nll")
    wrong = [c["text"] for c in json.loads(cases.read_text()) if tok.encode(c["text"], add_special_tokens=False) != c["ids"]]
    print(f"tokenizer cases that differ: {wrong}")
    chat = tok.apply_chat_template([{"role": "user", "content": "What is a Kubernetes Pod?"}], tokenize=False, add_generation_prompt=True)
    if wrong or chat != runs[0]["prompt"]:
        failures.append("tokenizer or chat template")
    sys.exit(f"failed: {failures}" if failures else 0)


if __name__ == "__main__":
    main()
