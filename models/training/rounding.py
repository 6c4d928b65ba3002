"""What GGUF makes of weights, and training with weights as they will be shipped."""
from contextlib import contextmanager

import torch

BLOCK = 32


def rounded_to_8(blocks):
    """What Q8_0 makes of 32 weights: an f16 scale and whole numbers up to 127."""
    scale = blocks.abs().amax(1, keepdim=True) / 127
    return torch.where(scale > 0, blocks / scale.clamp(min=1e-30), blocks).round() * scale.half().float()


def rounded_to_4(blocks):
    """What Q4_0 makes of 32 weights: an f16 scale and whole numbers from -8, which the largest weight gets, to 7."""
    largest = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
    scale = largest / -8
    whole = (torch.where(scale != 0, blocks / scale, blocks) + 8.5).floor().clamp(0, 15) - 8
    return whole * scale.half().float()


ROUNDINGS = {"Q8_0": rounded_to_8, "Q4_0": rounded_to_4}

# Matrices of attention are few: eight bits for them cost little, whatever the others have. That they need them was not tried.
ALWAYS_Q8_0 = ("q_proj", "k_proj", "v_proj", "o_proj")


def kind_of(name, weights):
    """The kind of GGUF weights of a matrix in a model whose weights are mostly of the kind `weights`."""
    return "Q8_0" if any(part in name for part in ALWAYS_Q8_0) else weights


def rounded(weight, kind):
    """What a kind of GGUF weights makes of a matrix."""
    return ROUNDINGS[kind](weight.float().reshape(-1, BLOCK)).reshape(weight.shape)


@contextmanager
def shipped(model, weights):
    """The model computes with its matrices as they will be shipped. Gradients that are taken meanwhile are those of the full ones: where
    rounding is coarse, a model learns to live with it."""
    matrices = {name: p for name, p in model.named_parameters() if p.dim() == 2}
    full = {name: p.detach().clone() for name, p in matrices.items()}
    with torch.no_grad():
        for name, p in matrices.items():
            p.copy_(rounded(p, kind_of(name, weights)))
    try:
        yield
    finally:
        with torch.no_grad():
            for name, p in matrices.items():
                p.copy_(full[name])
