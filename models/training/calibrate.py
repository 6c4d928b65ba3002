"""Sets how sure a draft is of itself.

    python -m training.calibrate WORK WORK/draft.pt --weights Q4_0        rewrites the weights

A loss that asks for accepted tokens makes a draft surer than it should be. One factor on its output norm sets that right for
text in general: no greedy guess changes by it, and the text costs fewer bits. It is found on the pages kept aside.
"""
import argparse
from pathlib import Path

import torch
import torch.nn.functional as F

from .data import probe_windows
from .model import SHAPES
from .rounding import ROUNDINGS, shipped
from .train import save_model
from .weights import load

FACTORS = [1 - i / 100 for i in range(21)]


@torch.no_grad()
def losses(model, windows):
    """Nats a token for each of the factors."""
    total = torch.zeros(len(FACTORS), dtype=torch.float64)
    for ids in windows.split(4):
        logits, goal = model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten()
        total += torch.tensor([float(F.cross_entropy(logits * factor, goal)) * len(ids) for factor in FACTORS])
    return total / len(windows)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work", type=Path)
    p.add_argument("model", type=Path)
    p.add_argument("--shape", default="draft", choices=SHAPES)
    p.add_argument("--weights", choices=ROUNDINGS, default="Q8_0", help="what the matrices will be shipped as")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    model = load(a.model, a.device, a.shape)
    with shipped(model, a.weights):
        found = losses(model, probe_windows(a.work / "probe.npz", a.device))
    best = int(found.argmin())
    with torch.no_grad():
        model.norm.weight.mul_(FACTORS[best])
    save_model(model, a.model)
    print(f"{a.model}: factor {FACTORS[best]:.2f}, {found[0]:.4f} nats a token before, {found[best]:.4f} after")


if __name__ == "__main__":
    main()
