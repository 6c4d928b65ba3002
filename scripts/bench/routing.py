#!/usr/bin/env python3
"""Policies of the real gateway in front of eight mock workers, on recorded traces and on growing chats.

A trace is replayed smaller and faster: one token stands for `scale` of them, and the clocks of machines and trace go `faster`,
so that an hour takes two minutes while work, memory and waiting keep their proportions. Prints Markdown.
"""
import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import harness
from harness import free_port

WORKERS = 8
SCALE = 8
# Of each trace: its file, the kind of machine, how much faster than recorded round robin can still carry it on
# eight of these, and how much faster all clocks go.
TRACES = {
    "conversation": ("conversation_trace.jsonl", "h100-8b", 2.0, 18),
    "synthetic": ("synthetic_trace.jsonl", "h100-8b", 2.0, 12),
}
# Chats over documents that take several times the cache of one worker and less than half of all: chats per second
# that round robin carries, and those that `fit` must carry at the same P95.
CHATS = {"chats": 6, "documents": 1}
POLICIES = ["round_robin", "lmetric", "fit"]


def replay(policy, mock_arguments, bench_arguments, options):
    """One run: fresh workers, fresh gateway; the client's figures and the workers' own."""
    with tempfile.TemporaryDirectory() as folder, harness.mocks("--count", WORKERS, *mock_arguments) as workers:
        port, log = free_port(), Path(folder) / "log"
        # KV events speak in token ids, so whoever listens needs a tokenizer; which one does not matter for prompts of ids.
        tokenizer = harness.ROOT / "models/forespeak-draft.gguf" if options.events else None
        command = harness.forespeak(port, workers, Path(folder), policy=policy, scrape_every=f"{options.scrape}ms", tokenizer=tokenizer)
        with harness.process(command, log) as started:
            url = f"http://127.0.0.1:{port}"
            harness.wait_ready(url, started, log)
            figures = harness.bench(url, *bench_arguments)
        books = [json.loads(harness.get(worker["url"] + "/mock/books")) for worker in workers]
    machine = lambda name: sum(book["machine"][name] for book in books)
    prefill = [book["machine"]["prefill_tokens"] for book in books]
    return {
        "policy": policy, "completed": figures["completed"], "failed": figures["failed"],
        "ttft_p50": figures["ttft_from_due_ms"]["median"], "ttft_p95": figures["ttft_from_due_ms"]["p95"],
        "ttft_p99": figures["ttft_from_due_ms"]["p99"], "e2e_p95": figures["e2e_from_due_ms"]["p95"],
        "requests_per_second": figures["requests_per_second"], "duration": figures["duration"],
        "hits": machine("cached_tokens") / max(1, machine("prompt_tokens")),
        "evictions": machine("evictions"), "preemptions": machine("preemptions"),
        "hot_spot": WORKERS * max(prefill) / max(1, sum(prefill)),
    }


def trace(name, policy, options):
    file, kind, speed, faster = TRACES[name]
    folder = os.environ.get("FORESPEAK_TRACES")
    if not folder:
        raise SystemExit("FORESPEAK_TRACES does not name the folder with Mooncake's traces")
    mocks = ["--kind", kind, "--scale", SCALE, "--faster", faster, *options.events]
    load = ["--workload", "mooncake", "--trace", Path(folder) / file, "--token-ids", "--scale", SCALE,
            "--speed", (options.speed or speed) * faster]
    if options.requests:
        load += ["--requests", options.requests]
    return replay(policy, mocks, load, options)


def talk(name, policy, rate, options):
    mocks = ["--kind", "a100-8b", "--scale", SCALE, "--faster", 10, *options.events]
    load = ["--workload", name, "--rate", rate, "--duration", options.duration, "--documents", 80,
            "--document-tokens", 12_000 // SCALE, "--question-tokens", 200 // SCALE, "--output-tokens", 200 // SCALE,
            "--turns", CHATS["chats"], "--think", 1]
    return replay(policy, mocks, load, options)


def line(label, run, base):
    lower = f"{100 * (1 - run['ttft_p95'] / base['ttft_p95']):.0f} %" if base is not run else ""
    print(f"| {label} | {run['policy']} | {run['ttft_p50']:.0f} | {run['ttft_p95']:.0f} | {lower} | {run['ttft_p99']:.0f} "
          f"| {run['e2e_p95']:.0f} | {run['requests_per_second']:.1f} | {100 * run['hits']:.1f} | {run['evictions']} "
          f"| {run['preemptions']} | {run['hot_spot']:.2f} | {run['failed']} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default="conversation,synthetic,chats,documents")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--rates", default="6,18", help="chats per second")
    parser.add_argument("--speed", type=float, help="of the trace, before all clocks go faster")
    parser.add_argument("--requests", type=int, help="of the trace, from its beginning")
    parser.add_argument("--duration", type=float, default=30)
    parser.add_argument("--events", action="store_const", const=["--events"], default=[], help="workers publish their cache")
    parser.add_argument("--scrape", type=int, default=500, help="milliseconds between scrapes")
    options = parser.parse_args()
    print("| workload | policy | TTFT p50 ms | p95 | lower | p99 | E2E p95 | requests/s | hits % | evictions | preempted | hot spot | failed |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for workload in options.workloads.split(","):
        rates = [None] if workload in TRACES else [float(rate) for rate in options.rates.split(",")]
        for rate in rates:
            base = None
            for policy in options.policies.split(","):
                run = trace(workload, policy, options) if rate is None else talk(workload, policy, rate, options)
                base = base or run
                line(workload if rate is None else f"{workload}, {rate:g} a second", run, base)
                if run["failed"]:
                    print(f"note: {run['failed']} requests failed", file=sys.stderr)


if __name__ == "__main__":
    main()
