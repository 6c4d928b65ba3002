"""Tables and a plot out of what the engine's `speculation` example kept. Started by scripts/bench/speculation."""

import argparse
import collections
import json
import re

WORKLOADS = ["prose", "questions", "copying", "random"]
RESIDENT = "goodput+resident"
COLOURS = {"goodput": "#0b7285", "threshold": "#e8590c", "off": "#868e96"}


def read(paths):
    """Cells by (model, workload, streams) and courses of the mix by (model, streams, policy), all of them; repeats of cells are added
    up, and what each engine of goodput had over off is kept."""
    cells, runs = collections.defaultdict(dict), collections.defaultdict(list)
    mixes = collections.defaultdict(list)
    for path in paths:
        with open(path) as lines:
            for line in map(json.loads, lines):
                key = line["model"], line["workload"], line["streams"]
                if line["workload"] == "mix":
                    mixes[line["model"], line["streams"], line["policy"]].append(line)
                    continue
                policies = line["policies"]
                if {"goodput", "off"} <= policies.keys():
                    runs[key] += [engine / policies["off"]["rate"] for engine in policies["goodput"]["each"]]
                for policy, found in policies.items():
                    sums = cells[key].setdefault(policy, collections.Counter())
                    sums.update({name: found[name] for name in ("tokens", "seconds", "drafted", "accepted", "steps")})
    return cells, runs, mixes


def rate(sums):
    return sums["tokens"] / sums["seconds"]


def depth(sums, streams):
    return sums["drafted"] / (sums["steps"] * streams)


def fixed_of(policies):
    return [policy for policy in policies if re.fullmatch(r"fixed:\d+", policy)]


def table(cells, runs, model):
    print(f"\n### {model}\n")
    keys = [key for key in cells if key[0] == model]
    keys.sort(key=lambda key: (WORKLOADS.index(key[1]), key[2]))
    fixed = sorted({p for key in keys for p in fixed_of(cells[key])}, key=lambda p: int(p.split(":")[1]))
    head = ["workload", "streams", "off, tokens/s", *fixed, "threshold", "**goodput**", "its engines", "depth", "accepted",
            "goodput / best of off and fixed"]
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for key in keys:
        policies = cells[key]
        off = rate(policies["off"])
        ratio = lambda policy: f"{rate(policies[policy]) / off:.2f}" if policy in policies else ""
        goodput = policies["goodput"]
        best = max([off] + [rate(policies[policy]) for policy in fixed if policy in policies])
        accepted = f"{goodput['accepted'] / goodput['drafted']:.2f}" if goodput["drafted"] else "-"
        row = [key[1], str(key[2]), f"{off:.0f}", *map(ratio, fixed), ratio("threshold"), f"**{ratio('goodput')}**",
               ", ".join(f"{run:.2f}" for run in runs[key]), f"{depth(goodput, key[2]):.1f}", accepted, f"{rate(goodput) / best:.2f}"]
        print("| " + " | ".join(row) + " |")


def mix_table(mixes, model):
    streams = sorted({key[1] for key in mixes if key[0] == model})
    if not streams:
        return
    policies = {key[2] for key in mixes if key[0] == model}
    fixed = sorted(fixed_of(policies), key=lambda p: int(p.split(":")[1]))
    order = [p for p in ["off", *fixed, "threshold", "goodput"] if p in policies]
    residents = {count: mixes[model, count, RESIDENT][-1] for count in streams if (model, count, RESIDENT) in mixes}
    head = ["streams", *order, "settled after a shift, s"]
    if residents:
        head += ["drafts as one that knew, s", "tokens/s of the first 2 s against its"]
    print(f"\n### {model}, a mix that shifts every {next(iter(mixes.values()))[-1]['phase']:.0f} s, tokens/s\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for count in streams:
        row = [str(count)]
        for policy in order:
            rates = [line["sum"]["rate"] for line in mixes.get((model, count, policy), [])]
            row.append(", ".join(f"{rate:.{0 if rate > 1000 else 1}f}" for rate in rates))
        lines, resident = mixes.get((model, count, "goodput"), []), residents.get(count)
        row.append("; ".join(numbers(settling(line)) for line in lines))
        line = lines[-1] if lines else None
        if line and resident:
            row += [numbers(catching_up(line, resident)), numbers(first_seconds(line, resident))]
        row += [""] * (len(head) - len(row))
        print("| " + " | ".join(row) + " |")


def numbers(values):
    return ", ".join(f"{value:.2f}" for value in values)


def phases_of(line):
    """The points of each phase behind a shift, by seconds since that shift."""
    phase = line["phase"]
    phases = round(line["course"][-1][0] / phase + 0.5)
    for number in range(1, phases):
        yield [(at - number * phase, rate, depth) for at, _, rate, depth, _ in line["course"]
               if number * phase - 0.01 <= at < (number + 1) * phase - 0.01]


def settling(line):
    """For each shift: seconds until the depth, in windows of a quarter of a second, first comes as near to that of the
    phase's second half as it then stays on average: within 1 or 35 %. What is said and how fast the machine is in that
    half counts, too."""
    found = []
    for points in phases_of(line):
        late = [depth for at, _, depth in points if at >= line["phase"] / 2]
        settled = sum(late) / max(1, len(late))
        found.append(next((at for at, _, depth in points if is_near(depth, settled, 1.0)), line["phase"]))
    return found


def catching_up(line, resident):
    """For each shift: seconds until the mean depth of a second is first as near (0.5 or 35 %) to that of an engine which had
    been at the same text before, in the same second of the same machine. It says nothing where both draft next to nothing."""
    found = []
    for points, knew in zip(phases_of(line), phases_of(resident)):
        seconds = ((points[first][0], mean_depth(points, first), mean_depth(knew, first)) for first in range(len(points) - 3))
        found.append(next((at for at, ours, theirs in seconds if is_near(ours, theirs, 0.5)), line["phase"]))
    return found


def first_seconds(line, resident):
    """For each shift: mean tokens/s of the windows in the first 2 s, against an engine that had been at the same text before."""
    early = lambda points: sum(rate for at, rate, _ in points if at < 2.0 - 0.01)
    return [early(points) / early(knew) for points, knew in zip(phases_of(line), phases_of(resident))]


def mean_depth(points, first):
    return sum(depth for _, _, depth in points[first:first + 4]) / 4


def is_near(depth, other, least):
    return abs(depth - other) <= max(least, 0.35 * other)


def plot(mixes, path):
    """Depth, acceptance and tokens/s over the mix at one stream, as SVG."""
    line = mixes[min(key for key in mixes if key[2] == "goodput")][-1]
    others = [mixes[key][-1] for key in mixes if key[:2] == (line["model"], line["streams"]) and key[2] in ("off", "threshold")]
    course, phase = line["course"], line["phase"]
    end = course[-1][0] + 0.25
    width, left, panel, gap = 760, 60, 120, 26
    x = lambda at: left + (width - left - 15) * at / end
    parts = []
    panels = [
        ("depth", [("goodput", [(p[0], p[3]) for p in course])], None),
        ("accepted", [("goodput", [(p[0], p[4]) for p in course if p[4] is not None])], 1.0),
        ("tokens/s", [(o["policy"], [(p[0], p[2]) for p in o["course"]]) for o in others]
         + [("goodput", [(p[0], p[2]) for p in course])], None),
    ]
    top = 30
    for name, curves, most in panels:
        most = most or max(v for _, points in curves for _, v in points) * 1.05 or 1.0
        y = lambda v: top + panel * (1 - v / most)
        parts.append(f'<rect x="{left}" y="{top}" width="{width - left - 15}" height="{panel}" fill="none" stroke="#ced4da"/>')
        parts.append(f'<text x="{left - 8}" y="{top + 10}" text-anchor="end">{most:.{0 if most > 20 else 1}f}</text>')
        parts.append(f'<text x="{left - 8}" y="{top + panel}" text-anchor="end">0</text>')
        parts.append(f'<text x="{left - 8}" y="{top + panel / 2}" text-anchor="end">{name}</text>')
        for policy, points in curves:
            drawn = " ".join(f"{x(at + 0.125):.1f},{y(v):.1f}" for at, v in points)
            parts.append(f'<polyline points="{drawn}" fill="none" stroke="{COLOURS[policy]}" stroke-width="1.3"/>')
        top += panel + gap
    bottom = top - gap
    for number in range(round(end / phase)):
        name = course[min(len(course) - 1, round(number * phase / 0.25) + 2)][1]
        parts.append(f'<line x1="{x(number * phase):.1f}" x2="{x(number * phase):.1f}" y1="30" y2="{bottom}" stroke="#adb5bd" stroke-dasharray="3,3"/>')
        parts.append(f'<text x="{x((number + 0.5) * phase):.1f}" y="20" text-anchor="middle">{name}</text>')
        parts.append(f'<text x="{x(number * phase):.1f}" y="{bottom + 14}" text-anchor="middle">{number * phase:.0f} s</text>')
    shown = [policy for policy in COLOURS if policy in ("goodput", *(other["policy"] for other in others))]
    for place, policy in enumerate(shown):
        colour = COLOURS[policy]
        parts.append(f'<text x="{left + 20 + 110 * place}" y="{bottom + 32}" fill="{colour}">&#9473; {policy}</text>')
    title = f"{line['model']}, {line['streams']} stream{'s' if line['streams'] > 1 else ''}"
    parts.append(f'<text x="{width - 15}" y="{bottom + 32}" text-anchor="end">{title}</text>')
    with open(path, "w") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 44}" '
                  'font-family="sans-serif" font-size="11" fill="#343a40">'
                  f'<rect width="{width}" height="{bottom + 44}" fill="#ffffff"/>' + "".join(parts) + "</svg>\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--svg")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    cells, runs, mixes = read(options.files)
    for model in dict.fromkeys([key[0] for key in cells] + [key[0] for key in mixes]):
        if any(key[0] == model for key in cells):
            table(cells, runs, model)
        mix_table(mixes, model)
    if options.svg and mixes:
        plot(mixes, options.svg)


main()
