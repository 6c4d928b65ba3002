#!/usr/bin/env python3
"""Runs our engine and llama.cpp in turns on the same files and prints the ratios as Markdown.

Both sides run as fresh processes, one after the other, `--rounds` times; a figure is the best of its
rounds, because whatever disturbs a shared machine only ever makes it slower.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "release/examples"
ROWS = [  # figure, title, what it must reach on Q8_0
    ("prefill_512", "prefill 512", 1.0),
    ("decode", "decode", 0.9),
    ("decode_at_2048", "decode at depth 2,048", 0.9),
    ("decode_8_streams", "8 streams batched", 1.2),
]


RATIO = "verify_4_over_decode"  # the median of a run's neighbouring steps, both under the same conditions


def busy_share():
    """Share of the machine's processor time that was not idle during the last second."""
    def read():
        fields = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]))
        return fields[3] + fields[4], sum(fields)
    idle, total = read()
    time.sleep(1)
    idle_later, total_later = read()
    return 1 - (idle_later - idle) / max(1, total_later - total)


def wait_for_quiet(limit=120):
    deadline = time.monotonic() + limit
    while (share := busy_share()) > 0.05:
        if time.monotonic() > deadline:
            print(f"note: the machine is {share:.0%} busy; these figures are not quiet ones", file=sys.stderr)
            return


def run(command, pin=None):
    if pin is not None:
        command = ["taskset", "-c", pin, *command]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def ours(model, *extra):
    return run([str(EXAMPLES / "speed"), str(model), "--threads", "2", *extra])


def theirs(model, *extra):
    return run([sys.executable, str(HERE / "llama_cpp_speed.py"), str(model), "--threads", "2", *extra])


def best(into, figures):
    for name, value in figures.items():
        if name == RATIO:
            into.setdefault(name, []).append(value)
        else:
            lower_is_better = name.endswith("_bytes")
            into[name] = (min if lower_is_better else max)(into.get(name, value), value)


def compare(model, rounds, steps, kept):
    """Adds rounds to those that were `kept` of earlier runs: a short quiet time is enough for one."""
    sides = kept.setdefault(model.stem, {"rounds": 0, "us": {}, "them": {}})
    wait_for_quiet()
    for _ in range(rounds):
        best(sides["us"], ours(model, "--steps", str(steps)))
        best(sides["them"], theirs(model, "--steps", str(steps)))
        sides["rounds"] += 1
    return sides


def table(name, kind, sides, file_bytes):
    us, them = sides["us"], sides["them"]
    print(f"\n### {name} {kind} (best of {sides['rounds']})\n")
    print("| | Forespeak | llama.cpp | ratio | at least |\n|---|---|---|---|---|")
    for key, title, bound in ROWS:
        aim = f"{bound}" if kind == "q8_0" else "report"
        print(f"| {title}, tokens/s | {us[key]:.1f} | {them[key]:.1f} | **{us[key] / them[key]:.2f}** | {aim} |")
    ratio, their_ratio = us["decode"] / us["verify_4"], them["decode"] / them["verify_4"]
    print(f"| verifying 4 tokens / decoding 1 | {ratio:.2f} | {their_ratio:.2f} | | {'<= 1.25' if kind == 'q8_0' else 'report'} |")
    medians = [statistics.median(side[RATIO]) for side in (us, them)]
    print(f"| the same, median of neighbouring steps | {medians[0]:.2f} | {medians[1]:.2f} | | |")
    resident = us["resident_bytes"] - us["kv_bytes"]
    print(f"| resident memory without KV / file | {resident / file_bytes:.2f} | | | <= 1.15 |")


def contended(model, steps):
    """Decode speed while another process keeps one of the two cores busy, as a share of the quiet speed."""
    quiet = {"us": ours(model, "--steps", str(steps))["decode_mean"], "them": theirs(model, "--steps", str(steps))["decode_mean"]}
    hog = subprocess.Popen(["taskset", "-c", "1", sys.executable, "-c", "while True: pass"])
    try:
        loud = {"us": ours(model, "--steps", str(steps))["decode_mean"], "them": theirs(model, "--steps", str(steps))["decode_mean"]}
    finally:
        hog.kill()
        hog.wait()
    print("\n### One of two cores taken by another process (mean decode speed, 200m q8_0)\n")
    print("| | quiet | contended | share |\n|---|---|---|---|")
    for side, title in (("us", "Forespeak"), ("them", "llama.cpp")):
        print(f"| {title} | {quiet[side]:.1f} | {loud[side]:.1f} | {loud[side] / quiet[side]:.0%} |")


def over_http(model, rounds):
    """Eight concurrent streams through HTTP against the engine's own batched figure, in the same process."""
    wait_for_quiet()
    figures = {}
    for _ in range(rounds):
        best(figures, run([str(EXAMPLES / "http_speed"), str(model), "--threads", "2"]))
    ratio = figures["http_8_streams"] / figures["engine_8_streams"]
    print("\n### Through HTTP, 8 concurrent streams (200m q8_0)\n")
    print("| engine alone, tokens/s | through HTTP | ratio | at least |\n|---|---|---|---|")
    print(f"| {figures['engine_8_streams']:.1f} | {figures['http_8_streams']:.1f} | **{ratio:.2f}** | 0.85 |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models-folder", type=Path, required=True)
    parser.add_argument("--models", default="200m,1b")
    parser.add_argument("--kinds", default="q8_0,q4_k,bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", default="tables,contended,http")
    parser.add_argument("--keep", type=Path, help="file with the rounds of earlier runs, which these are added to")
    args = parser.parse_args()
    parts = args.parts.split(",")
    kept = json.loads(args.keep.read_text()) if args.keep and args.keep.exists() else {}
    print(f"2 threads, in turns; {time.strftime('%Y-%m-%d')}")
    for name in args.models.split(",") if "tables" in parts else []:
        for kind in args.kinds.split(","):
            file = args.models_folder / f"random-{name}-{kind}.gguf"
            sides = compare(file, args.rounds, 32 if name == "200m" else 12, kept)
            if args.keep:
                args.keep.write_text(json.dumps(kept))
            table(name, kind, sides, file.stat().st_size)
            sys.stdout.flush()
    reference = args.models_folder / "random-200m-q8_0.gguf"
    if "contended" in parts:
        contended(reference, 32)
    if "http" in parts:
        over_http(reference, args.rounds)


if __name__ == "__main__":
    main()
