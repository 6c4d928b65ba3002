#!/usr/bin/env python3
"""What a router costs: ours and others in front of the same two workers, which answer at once and always the same.

Every cell starts a fresh router, warms it up, and then takes the processor time of the router's processes alone. Chats are
prose of some ten thousand different words, new in every request but for the system message that chats share; they are written
before the clock starts, by the same load generator for all. Latencies stand beside those of the workers without any router.
Rounds go through all routers in turn. Prints Markdown; figures are the median of the rounds, with their range.
"""
import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import harness
from harness import ROOT, free_port

# A chat is a system message that it shares with others, and a question of its own. A word of prose has 6.2 bytes.
PROSE = ["--text", "prose", "--output-tokens", 32]
SMALL = [*PROSE, "--prompt-tokens", 625, "--shared-tokens", 560, "--groups", 64]
LARGE = [*PROSE, "--prompt-tokens", 64000, "--shared-tokens", 63400, "--groups", 4]
CELLS = {  # how many requests, how many at once, what they are
    "4 kB": (16000, 16, [*SMALL, "--no-stream"]),
    "4 kB in 32 chunks": (2000, 32, SMALL),
    "400 kB": (800, 4, [*LARGE, "--no-stream"]),
}
WARM_UP = 200
# `forespeak` routes on token ids, `forespeak-text` on blocks of text, as it does for a model without a tokenizer.
ROUTERS = ["direct", "forespeak", "vllm-router", "smg", "sglang-router"]
RIVALS = ["vllm-router", "smg", "sglang-router"]


def venv(name):
    made = subprocess.run([ROOT / "scripts/venv", name], check=True, capture_output=True, text=True)
    return Path(made.stdout.strip()) / "bin"


def command(router, port, urls, folder):
    if router.startswith("forespeak"):
        tokenizer = None if router == "forespeak-text" else ROOT / "models/forespeak-draft.gguf"
        return harness.forespeak(port, [{"url": url} for url in urls], folder, tokenizer=tokenizer)
    flags = ["--host", "127.0.0.1", "--port", port, "--worker-urls", *urls, "--policy", "cache_aware",
             "--prometheus-host", "127.0.0.1", "--prometheus-port", free_port()]
    flags += ["--worker-startup-check-interval", 1]
    if router == "smg":
        return [venv("smg") / "smg", "launch", *flags]
    if router == "vllm-router":
        return [venv("vllm-router") / "vllm-router", *flags]
    return [venv("sglang-router") / "python", "-m", "sglang_router.launch_router", *flags]


@contextlib.contextmanager
def running(router, urls):
    """A fresh router; gives its URL and process."""
    if router == "direct":
        yield urls[0], None
        return
    with tempfile.TemporaryDirectory() as folder:
        port, log = free_port(), Path(folder) / "log"
        with harness.process(command(router, port, urls, Path(folder)), log, cwd=folder) as started:
            url = f"http://127.0.0.1:{port}"
            harness.wait_ready(url, started, log)
            yield url, started


def measure(router, cell, urls):
    requests, at_once, arguments = CELLS[cell]
    load = lambda count, seed: harness.bench(
        url, *arguments, "--requests", count, "--concurrency", at_once, "--seed", seed)
    with running(router, urls) as (url, started):
        load(min(requests, WARM_UP), 2)
        before = harness.cpu_seconds(started.pid) if started else 0
        figures = load(requests, 1)
        used = harness.cpu_seconds(started.pid) - before if started else 0
        if figures["failed"]:
            print(f"note: {router} failed {figures['failed']} requests: {figures['outcomes']}", file=sys.stderr)
        return {
            "cpu_ms_per_1000": used * 1e6 / max(1, figures["completed"]),
            "p50_ms": figures["e2e_ms"]["median"], "p99_ms": figures["e2e_ms"]["p99"],
            "ttft_p50_ms": figures["ttft_ms"]["median"],
            "requests_per_second": figures["requests_per_second"],
            "rss_mb": harness.resident_bytes(started.pid) / 2**20 if started else 0,
            "failed": figures["failed"],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--routers", default=",".join(ROUTERS), help="also: forespeak-text, which compares prompts as text")
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--keep", type=Path, metavar="FILE",
                        help="add each measurement to FILE and show all that it holds, so that rounds can be made in several quiet spells")
    options = parser.parse_args()
    results = {}
    if options.keep and options.keep.exists():
        for line in options.keep.read_text().splitlines():
            take(results, json.loads(line))
    with harness.mocks("--constant", "--count", 2) as workers:
        urls = [worker["url"] for worker in workers]
        for number in range(options.rounds):
            for cell in options.cells.split(","):
                for router in options.routers.split(","):
                    figures = {"cell": cell, "router": router, **measure(router, cell, urls)}
                    take(results, figures)
                    print(f"{number + 1}/{options.rounds} {cell:>17} {router:>14} "
                          f"{figures['cpu_ms_per_1000']:8.1f} ms CPU, p99 {figures['p99_ms']:.2f} ms", file=sys.stderr)
                    if options.keep:
                        with options.keep.open("a") as kept:
                            kept.write(json.dumps(figures) + "\n")
    print(table(results))
    print(verdict(results))


def take(results, figures):
    results.setdefault((figures["cell"], figures["router"]), []).append(figures)


def verdict(results):
    """Ours against the best of the others, cell by cell."""
    lines = [""]
    for cell in CELLS:
        for name, unit in [("cpu_ms_per_1000", "ms CPU per 1,000"), ("p99_ms", "ms p99")]:
            of = lambda router: harness.spread([run[name] for run in results[cell, router]])[0]
            rivals = [(of(router), router) for router in RIVALS if (cell, router) in results]
            if not rivals or (cell, "forespeak") not in results:
                continue
            ours, (best, rival) = of("forespeak"), min(rivals)
            lines.append(f"- {cell}: {ours:.2f} {unit} against {best:.2f} ({rival}), "
                         f"{'below' if ours < best else 'NOT BELOW'}: {ours / best - 1:+.1%}")
    return "\n".join(lines)


def table(results):
    lines = ["| requests | router | CPU ms per 1,000 (range) | p50 ms | p99 ms (range) | requests/s | RSS MB | failed |",
             "|---|---|---:|---:|---:|---:|---:|---:|"]
    order = lambda key: (list(CELLS).index(key[0]), (ROUTERS + [key[1]]).index(key[1]))
    for (cell, router), runs in sorted(results.items(), key=lambda item: order(item[0])):
        of = lambda name: harness.spread([run[name] for run in runs])
        cpu, p99 = of("cpu_ms_per_1000"), of("p99_ms")
        shown = "" if router == "direct" else f"{cpu[0]:.0f} ({cpu[1]:.0f}-{cpu[2]:.0f})"
        rss = "" if router == "direct" else f"{of('rss_mb')[0]:.0f}"
        lines.append(f"| {cell} | {router} | {shown} | {of('p50_ms')[0]:.2f} | {p99[0]:.2f} ({p99[1]:.2f}-{p99[2]:.2f}) "
                     f"| {of('requests_per_second')[0]:.0f} | {rss} | {sum(run['failed'] for run in runs)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
