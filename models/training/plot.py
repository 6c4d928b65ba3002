"""Draws the loss curves as SVG, without a plotting library.

    python -m training.plot WORK/target-curve.json WORK/draft-curve.json loss.svg
"""
import json
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, GAP = 420, 260, 52, 34, 70
COLOURS = {"loss": "#4a6fa5", "probe": "#c0563f"}
LABELS = {"loss": "training rows", "probe": "pages kept aside"}


def points(curve, key):
    seen, out = 0, []
    for p in curve:
        seen += p["tokens"]
        if key in p:
            out.append((seen / 1e6, p[key]))
    return out


def panel(title, curve, left, low, high):
    """One chart: loss over millions of tokens."""
    most = sum(p["tokens"] for p in curve) / 1e6
    x = lambda v: left + v / most * WIDTH
    y = lambda v: TOP + (high - min(max(v, low), high)) / (high - low) * HEIGHT
    parts = [f'<text x="{left}" y="{TOP - 14}" font-weight="bold">{title}</text>']
    for i in range(6):
        value, tokens = low + (high - low) * i / 5, most * i / 5
        parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.1f}</text>')
        parts.append(f'<text x="{x(tokens):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{tokens:.0f}</text>')
    for n, key in enumerate(("loss", "probe")):
        line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points(curve, key))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[key]}" stroke-width="2"/>')
        parts.append(f'<text x="{left + WIDTH - 8}" y="{TOP + 18 + 16 * n}" text-anchor="end" fill="{COLOURS[key]}">{LABELS[key]}</text>')
    parts.append(f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 36}" text-anchor="middle">million tokens</text>')
    return "\n".join(parts)


def main():
    target, draft = (json.loads(Path(p).read_text()) for p in sys.argv[1:3])
    body = panel("target: nats per token", target, LEFT, 1.0, 4.0) + panel("draft: nats per token (training: distillation loss)", draft, LEFT + WIDTH + GAP, 2.0, 5.0)
    size = f'width="{2 * WIDTH + LEFT + GAP + 20}" height="{HEIGHT + TOP + 48}"'
    Path(sys.argv[3]).write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n'
                                 f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


if __name__ == "__main__":
    main()
