"""Records what llama.cpp makes of the pair, so that our own engine can be tested without llama.cpp.

    python -m training.goldens forespeak-target.gguf forespeak-draft.gguf goldens/

`greedy-*.json`: for each prompt its ids and up to 64 tokens of the greedy continuation (the token that ends a turn or a page,
if it comes, is the last), with the lead of each token over the second best: where it is small, rounding may decide otherwise.
`nll-*.json`: the mean negative log-likelihood, in nats, of all tokens of text.txt after one <|endoftext|>.
Context 2,048, keys and values in f16, no flash attention, one sequence, no BOS but the one named.
"""
import json
import sys
from pathlib import Path

import numpy as np
from llama_cpp import Llama

COUNT, CONTEXT = 64, 2048
END_OF_TEXT_ID, IM_END_ID = 0, 2


def lead(logits):
    second, first = np.partition(logits, -2)[-2:]
    return round(float(first - second), 4)


def greedy(model, prompt):
    ids = model.tokenize(prompt.encode(), add_bos=False, special=True)
    model.reset()
    model.eval(ids)
    out, leads = [], []
    while len(out) < COUNT and not (out and out[-1] in (END_OF_TEXT_ID, IM_END_ID)):
        logits = model.scores[model.n_tokens - 1]
        out.append(int(logits.argmax()))
        leads.append(lead(logits))
        model.eval([out[-1]])
    text = model.detokenize(out, prev_tokens=ids, special=True).decode("utf-8", "replace")
    return {"prompt": prompt, "prompt_ids": ids, "ids": out, "text": text, "lead": leads}


def mean_nll(model, text):
    ids = model.tokenize(text.encode(), add_bos=False, special=False)
    model.reset()
    model.eval([END_OF_TEXT_ID] + ids)
    logits = model.scores[:len(ids)].astype(np.float64)
    top = logits.max(-1, keepdims=True)
    log_sum = (top + np.log(np.exp(logits - top).sum(-1, keepdims=True)))[:, 0]
    nll = log_sum - logits[np.arange(len(ids)), ids]
    return {"first_id": END_OF_TEXT_ID, "ids": ids, "mean_nll": round(float(nll.mean()), 6), "first_16_nll": [round(float(x), 5) for x in nll[:16]]}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def main():
    folder = Path(sys.argv[3])
    prompts, text = json.loads((folder / "prompts.json").read_text()), (folder / "text.txt").read_text()
    for role, path in zip(("target", "draft"), sys.argv[1:3]):
        model = Llama(path, n_ctx=CONTEXT, n_batch=512, n_threads=2, logits_all=True, flash_attn=False, verbose=False)
        runs = [greedy(model, p) for p in prompts]
        write(folder / f"greedy-{role}.json", runs)
        score = mean_nll(model, text)
        write(folder / f"nll-{role}.json", score)
        print(role, [len(r["ids"]) for r in runs], score["mean_nll"], len(score["ids"]))


if __name__ == "__main__":
    main()
