#!/usr/bin/env python3
"""Speed of llama.cpp on one GGUF file, measured the way crates/model/examples/speed.rs measures us.

    llama_cpp_speed.py MODEL.gguf [--threads 2] [--steps 32]

Prints one JSON object: tokens per second, best of the steps (the machine is shared: the best step is
the one nobody disturbed).
"""
import argparse
import ctypes
import json
import statistics
import time

import llama_cpp as llama
import numpy as np

CHUNK = 512
DEPTH = 2048
STREAMS = 8
VERIFIED = 4


class Session:
    """A context with helpers to run batches of random tokens through it."""

    def __init__(self, model, threads, sequences):
        params = llama.llama_context_default_params()
        params.n_ctx = 4096
        params.n_batch = params.n_ubatch = CHUNK
        params.n_threads = params.n_threads_batch = threads
        params.n_seq_max = sequences
        params.kv_unified = True
        self.context = llama.llama_init_from_model(model, params)
        self.batch = llama.llama_batch_init(CHUNK, 0, 1)
        self.random = np.random.default_rng(0)

    def clear(self):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)

    def trim(self, position):
        llama.llama_memory_seq_rm(llama.llama_get_memory(self.context), 0, position, -1)

    def step(self, rows):
        """Runs rows of (position, sequence, wants logits) and returns the seconds it took."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (position, sequence, wanted) in enumerate(rows):
            batch.token[i] = int(self.random.integers(300, 31_000))
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
        start = time.perf_counter()
        if llama.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama_decode failed")
        llama.llama_get_logits(self.context)
        return time.perf_counter() - start

    def prefill(self, start, count):
        return self.step([(start + i, 0, i == count - 1) for i in range(count)])

    def close(self):
        llama.llama_batch_free(self.batch)
        llama.llama_free(self.context)


def measure(model, threads, steps):
    """The same steps as ours, in the same order and number: a best-of favours whoever gets more tries."""
    single = Session(model, threads, 1)
    figures = {}

    def best(name, seconds, tokens):
        figures[name] = max(figures.get(name, 0.0), tokens / seconds)

    for start in range(0, DEPTH, CHUNK):
        seconds = single.prefill(start, CHUNK)
        if start == 0:
            best("prefill_512", seconds, CHUNK)
    for position in range(steps):
        best("decode_at_2048", single.step([(DEPTH + position, 0, True)]), 1)
    single.clear()
    ones, severals = [], []
    for position in range(steps):
        ones.append(single.step([(position, 0, True)]))
        severals.append(single.step([(position + 1 + i, 0, True) for i in range(VERIFIED)]))
        single.trim(position + 1)
    best("decode", min(ones), 1)
    best("decode_mean", sum(ones), steps)
    best("verify_4", min(severals), 1)
    figures["verify_4_over_decode"] = statistics.median(several / one for one, several in zip(ones, severals))
    single.clear()
    best("prefill_512", single.prefill(0, CHUNK), CHUNK)
    single.close()

    several = Session(model, threads, STREAMS)
    for position in range(steps):
        best("decode_8_streams", several.step([(position, s, True) for s in range(STREAMS)]), STREAMS)
    several.close()
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=32)
    args = parser.parse_args()

    quiet = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(quiet, ctypes.c_void_p(0))
    llama.llama_backend_init()
    params = llama.llama_model_default_params()
    params.n_gpu_layers = 0
    model = llama.llama_model_load_from_file(args.model.encode(), params)
    if not model:
        raise SystemExit(f"llama.cpp could not load {args.model}")
    print(json.dumps(measure(model, args.threads, args.steps)))


if __name__ == "__main__":
    main()
