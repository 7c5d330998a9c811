"""Muon for the matrices (in float32, all of one shape at once), AdamW for the rest."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised by Newton-Schulz, and scaled so that learning rates of AdamW can be used."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update all parameters; those of equal shape are processed together."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                by_shape[parameter.shape].append(parameter)
            for shape, parameters in by_shape.items():
                updates = orthogonal(torch.stack([self._update(p, group["momentum"]) for p in parameters]))
                scale = 0.2 * max(shape) ** 0.5 * group["lr"]
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.mul_(1 - 0.02 * group["lr"]).sub_(update, alpha=scale)

    def _update(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        assert parameter.grad is not None
        state = self.state[parameter]
        buffer = state.setdefault("momentum", torch.zeros_like(parameter))
        buffer.lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(buffer, momentum)


def orthogonal(x: Tensor, rounds: int = 5) -> Tensor:
    """Approximately the nearest orthogonal matrix to each matrix of a stack (quintic Newton-Schulz)."""
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


def optimizers(network: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices, AdamW for the embedding and the norms."""
    matrices = [p for name, p in network.named_parameters() if p.dim() == 2 and "embed" not in name]
    others = [p for name, p in network.named_parameters() if p.dim() != 2 or "embed" in name]
    return [Muon(matrices, lr), torch.optim.AdamW(others, lr, betas=(0.9, 0.95), weight_decay=0.0)]
