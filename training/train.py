"""Train the embedded model: `make train`. It can be resumed: the data of a step depend only on the seed and the step.

    python -m training.train --out runs/train --steps 6000 --decay-from 4500

On busy cores, processes of one thread each are faster than threads, which wait for each other at every operation:

    torchrun --nproc-per-node 2 -m training.train --threads 1 ...
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import time
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import torch
import torch.distributed as processes
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from training import tokenizer as words
from training.documents import Batch, Document, Writer, batch, problem_for_training
from training.layout import read_hf
from training.network import SIZES, Network, Shape
from training.optimizer import optimizers
from training.outside import outside_for_training

TOKENS_PER_STEP = 4600
WARM_UP = 50
POOL = 6
COMPARE_FROM = 3000
OUTSIDE = 0.08  # share of documents of questions that the model does not know
ALL_PASSES = 40  # more than any document has


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    rank, count = join()
    if rank == 0 and options.weights and not (options.out / "checkpoint.pt").exists():
        begin_from(options.weights, options.out, options.lr, options.from_step)
    if count > 1:
        processes.barrier()
    network, tools, step = start(options.out, options.lr, options.size)
    writer = Writer(Tokenizer.from_file(str(options.out / "tokenizer.json")))
    began, seen = time.monotonic(), 0
    while step < options.steps:
        data = batch(documents_for(step, options.seed + 1_000_000 * rank, writer))
        lr = options.lr * rate(step, options.from_step, options.decay_from, options.steps)
        trunk, branch = train_step(network, tools, data, lr)
        step, seen = step + 1, seen + count * data.ids.numel()
        if rank:
            continue
        if step % 10 == 0:
            speed = seen / (time.monotonic() - began)
            print(f"{step} lr {lr:.5f} trunk {trunk:.4f} branch {branch:.4f} {speed:.0f} tok/s", flush=True)
        if step % 50 == 0 or step == options.steps:
            save(options.out, network, tools, step)


def join() -> tuple[int, int]:
    """The number of this process among those that torchrun started, and their count."""
    if "WORLD_SIZE" not in os.environ:
        return 0, 1
    processes.init_process_group("gloo")
    return processes.get_rank(), processes.get_world_size()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--decay-from", type=int, default=4500)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--size", choices=SIZES, default="model", help="size of a new network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--weights", type=Path, help="start from this folder of safetensors, such as src/cgr/model/hf")
    parser.add_argument("--from-step", type=int, default=0, help="with --weights: the step to begin at")
    return parser.parse_args()


def start(out: Path, lr: float, size: str = "model") -> tuple[Network, list[torch.optim.Optimizer], int]:
    """The saved network, its optimizers and its step; a new network if none is saved."""
    path = out / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path)) if path.exists() else words.build(path)
    saved = out / "checkpoint.pt"
    state = torch.load(saved, weights_only=True) if saved.exists() else {}
    network = Network(Shape(**state.get("shape", {"vocabulary": tokenizer.get_vocab_size(), **SIZES[size]})))
    tools = optimizers(network, lr)
    if not state:
        return network, tools, 0
    network.load_state_dict(state["network"])
    for tool, tool_state in zip(tools, state["tools"], strict=True):
        tool.load_state_dict(tool_state)
    return network, tools, int(state["step"])


def begin_from(weights: Path, out: Path, lr: float, step: int) -> None:
    """Write a first checkpoint with the weights of an exported model."""
    shutil.copy(weights / "tokenizer.json", out / "tokenizer.json")
    network, tools, _ = start(out, lr)
    network.load_state_dict(read_hf(weights))
    save(out, network, tools, step)


def save(out: Path, network: Network, tools: list[torch.optim.Optimizer], step: int) -> None:
    """Write the checkpoint; an interruption leaves the old one."""
    state = {"network": network.state_dict(), "tools": [tool.state_dict() for tool in tools], "step": step}
    state["shape"] = asdict(network.shape)
    torch.save(state, out / "checkpoint.tmp")
    (out / "checkpoint.tmp").replace(out / "checkpoint.pt")


def documents_for(step: int, seed: int, writer: Writer) -> list[Document]:
    """Documents of similar length for this step; only easy problems at first, all levels from step 1,000."""
    return _groups(step // POOL, seed, writer)[step % POOL]


@lru_cache(maxsize=1)
def _groups(pool: int, seed: int, writer: Writer) -> list[list[Document]]:
    """The documents of POOL consecutive steps, drawn together and sorted into groups of similar length."""
    step = pool * POOL
    rng = random.Random(f"{seed}:{pool}")
    level = min(6, 1 + step // 200)
    drawn = sorted((_document(step, level, writer, rng) for _ in range(64)), key=len)
    groups: list[list[Document]] = [[]]
    for document in drawn:
        if groups[-1] and (len(groups[-1]) + 1) * len(document) > TOKENS_PER_STEP:
            groups.append([])
        groups[-1].append(document)
    places = random.Random(f"order:{pool}").sample(
        range(100), POOL
    )  # of similar lengths in every process, so that none waits
    return [groups[place * len(groups) // 100] for place in places]


def _document(step: int, level: int, writer: Writer, rng: random.Random) -> Document:
    problem = problem_for_training(rng, level)
    if rng.random() < OUTSIDE:
        return writer.outside_document(outside_for_training(rng), problem, rng)
    return writer.document(problem, rng, passes(step, rng))


def passes(step: int, rng: random.Random) -> int:
    """The maximum number of passes of a document. Early in training most documents have one pass: a second pass can be
    copied from the first and teaches little arithmetic. Comparing results is learned later."""
    shares = (0.6, 0.15, 0.15, 0.1) if step < COMPARE_FROM else (0.3, 0.3, 0.2, 0.2)
    return rng.choices((1, 2, 4, ALL_PASSES), shares)[0]


def rate(step: int, first: int, decay_from: int, steps: int) -> float:
    """The factor on the learning rate: linear warm-up, constant, linear decay."""
    if step < first + WARM_UP:
        return (step - first + 1) / WARM_UP
    return 1.0 if step < decay_from else max(0.01, (steps - step) / (steps - decay_from))


def train_step(network: Network, tools: list[torch.optim.Optimizer], data: Batch, lr: float) -> tuple[float, float]:
    """One optimizer step; returns the mean loss of the trunks and of the branches."""
    losses = loss_of(network, data)
    loss = (losses * data.weights).sum() / data.weights.sum()
    loss.backward()
    if processes.is_initialized():
        average_gradients(network)
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    for tool in tools:
        for group in tool.param_groups:
            group["lr"] = lr
        tool.step()
        tool.zero_grad(set_to_none=True)
    detached = losses.detach()
    return float(detached[~data.is_branch].mean()), float(detached[data.is_branch].mean())


def average_gradients(network: Network) -> None:
    """Replace the gradients by their mean over all processes."""
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    together = torch.cat([gradient.flatten() for gradient in gradients])
    processes.all_reduce(together)
    together /= processes.get_world_size()
    for gradient, mean in zip(gradients, together.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def loss_of(network: Network, data: Batch) -> Tensor:
    """The loss of each trained token."""
    hidden = network(data.ids, data.positions, data.mask, trunk=data.trunk)
    return F.cross_entropy(network.logits(hidden.flatten(0, 1)[data.rows]), data.targets, reduction="none")


if __name__ == "__main__":
    main()
