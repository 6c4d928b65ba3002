"""Muon for the matrices, AdamW for the embedding and the norms, and the learning-rate schedule."""
import torch

MUON_RATE, ADAM_RATE = 0.02, 3e-3
# Pages are seen dozens of times: decay is meant to keep the model from learning them by heart (no run without it was made).
MUON_DECAY, EMBED_DECAY = 0.1, 0.01
# Shares of a run over which the rate rises, and after which it falls.
WARM, HOLD = 0.01, 0.4


def orthogonal(g):
    """Newton-Schulz: the nearest orthogonal matrix, roughly, for a stack of equally shaped gradients."""
    x = g.bfloat16()
    flip = x.size(-2) > x.size(-1)
    x = x.mT if flip else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if flip else x


orthogonal_on_gpu = torch.compile(orthogonal, dynamic=False)


class Muon(torch.optim.Optimizer):
    """Momentum, then an orthogonal update; matrices of one shape are handled as one stack, which keeps the GPU busy."""

    def __init__(self, params, lr=MUON_RATE, momentum=0.95, decay=MUON_DECAY):
        super().__init__(params, dict(lr=lr, momentum=momentum, decay=decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                shapes.setdefault(p.shape, []).append(p)
            for shape, ps in shapes.items():
                self.step_stack(ps, shape, group)

    def step_stack(self, ps, shape, group):
        buffers = []
        for p in ps:
            if "momentum" not in self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
            buffers.append(self.state[p]["momentum"])
        grads = [p.grad for p in ps]
        torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
        ahead = torch._foreach_lerp(grads, buffers, group["momentum"])
        nearest = orthogonal_on_gpu if ps[0].is_cuda else orthogonal
        update = nearest(torch.stack(ahead)).to(ps[0].dtype)
        torch._foreach_mul_(ps, 1 - group["lr"] * group["decay"])
        torch._foreach_add_(ps, list(update.unbind()), alpha=-group["lr"] * max(1, shape[0] / shape[1]) ** 0.5)


def optimisers(model, decay=MUON_DECAY, peak=1.0):
    named = list(model.named_parameters())
    matrices = [p for n, p in named if p.dim() == 2 and "embed" not in n]
    rest = [{"params": [p for n, p in named if "embed" in n], "weight_decay": EMBED_DECAY},
            {"params": [p for n, p in named if p.dim() == 1], "weight_decay": 0.0}]
    adam = torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), fused=True)
    opts = [Muon(matrices, decay=decay), adam]
    for o in opts:
        for g in o.param_groups:
            g["base"] = g["lr"] * peak
    return opts


def rate(done, hold=HOLD):
    """Warm up, hold, then decay to nothing in a straight line; `done` is the share of the run that is over."""
    return max(0.0, min(1.0, done / WARM, (1 - done) / (1 - hold)))


def set_rate(opts, factor):
    for o in opts:
        for g in o.param_groups:
            g["lr"] = g["base"] * factor
