"""Calibrate the certainty of a trained checkpoint on its own thinking.

The training documents contain synthetic mistakes. At temperature .6 the model makes other mistakes, and fewer. So it thinks
about new problems, and only its answers at random cuts of these traces are trained, on the correct answers. Some training
documents are mixed in, without their answers, so that the form of the thinking does not change.

    python -m training.calibrate --out runs/train
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as processes
from tokenizers import Tokenizer

from cgr.model.problems import LEVELS
from training.documents import MAX_THINKING, Document, Writer, batch, problem_for_training
from training.network import Network
from training.optimizer import optimizers
from training.outside import outside_for_training
from training.sample import think
from training.train import OUTSIDE, TOKENS_PER_STEP, documents_for, join, save, start, train_step

BATCH = 64
CUTS = 24
TEMPERATURE = 0.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the training folder")
    parser.add_argument("--traces", type=Path, help="own.json of another model, to train a probe model on its traces")
    parser.add_argument("--problems", type=int, default=1536)
    parser.add_argument("--lr", type=float, default=0.0003)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mix", type=float, default=0.3, help="share of training documents that are mixed in")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rank, count = join()
    network, _, step = start(options.out, options.lr)
    writer = Writer(Tokenizer.from_file(str(options.out / "tokenizer.json")))
    kept = options.traces or options.out / ("own.json" if count == 1 else f"own-{rank}-of-{count}.json")
    if not kept.exists():
        documents = own_documents(network.eval(), writer, options.problems // count, options.seed + 1_000_000 * rank)
        kept.write_text(json.dumps([[document.trunk, document.trained_from, document.branches] for document in documents]))
    documents = [Document(*one) for one in json.loads(kept.read_text())]
    train_on(network.train(), writer, documents, options, step)


def own_documents(network: Network, writer: Writer, count: int, seed: int) -> list[Document]:
    """Documents from the network's own traces on new problems and on questions that it does not know."""
    rng = random.Random(f"calibrate:{seed}")
    documents: list[Document] = []
    began = time.monotonic()
    while len(documents) < count:
        questions = [_question(rng) for _ in range(min(BATCH, count - len(documents)))]
        prompts = [writer.prompt(text, rng.random() < 0.5) for text, _ in questions]
        stops = {writer.end, writer.end_think}
        traces = think(network, prompts, stops, MAX_THINKING, TEMPERATURE, seed * 100_000 + len(documents))
        answers = [answer for _, answer in questions]
        documents += [_own_document(writer, *one, rng) for one in zip(answers, prompts, traces, strict=True)]
        print(f"thought about {len(documents)} problems in {time.monotonic() - began:.0f} s", flush=True)
    return documents


def _question(rng: random.Random) -> tuple[str, int | None]:
    """The text and the answer of a new problem, or a question that the model does not know."""
    if rng.random() < OUTSIDE:
        return outside_for_training(rng), None
    problem = problem_for_training(rng, max(LEVELS))
    return problem.text, problem.answer


def _own_document(writer: Writer, answer: int | None, prompt: list[int], trace: list[int], rng: random.Random) -> Document:
    """The network's own trace as an untrained trunk, with the correct answer as a branch at each cut."""
    branches = writer.branches(prompt, trace, answer, rng, CUTS)
    return Document(prompt + trace, len(prompt) + len(trace), branches)


def train_on(network: Network, writer: Writer, documents: list[Document], options: argparse.Namespace, step: int) -> None:
    """Train one epoch on these documents and save the result to the folder `calibrated`."""
    rank = processes.get_rank() if processes.is_initialized() else 0
    tools = optimizers(network, options.lr)
    rng = random.Random(f"order:{options.seed}")
    groups = _groups(documents, rng)
    steps = agree(len(groups))
    for number, group in enumerate(groups[:steps]):
        lr = options.lr * min(1.0, (number + 1) / 20) * (1 - number / steps)
        if random.Random(f"mix:{number}").random() < options.mix:
            others = documents_for(10_000_000 + number, options.seed + 1_000_000 * rank, writer)
            train_step(network, tools, batch(others, branch_weight=0.0), lr)  # their mistakes are not the model's own
        _, branch = train_step(network, tools, batch(group), lr)
        if number % 10 == 0 and rank == 0:
            print(f"{number}/{steps} lr {lr:.6f} branch {branch:.4f}", flush=True)
    if rank:
        return
    folder = options.out / "calibrated"
    folder.mkdir(exist_ok=True)
    shutil.copy(options.out / "tokenizer.json", folder / "tokenizer.json")
    save(folder, network, tools, step)


def agree(steps: int) -> int:
    """The number of steps that every process can make."""
    fewest = torch.tensor(steps)
    if processes.is_initialized():
        processes.all_reduce(fewest, op=processes.ReduceOp.MIN)
    return int(fewest)


def _groups(documents: list[Document], rng: random.Random) -> list[list[Document]]:
    """Batches of documents of similar length, in random order."""
    groups: list[list[Document]] = [[]]
    for document in sorted(documents, key=len):
        if groups[-1] and (len(groups[-1]) + 1) * len(document) > TOKENS_PER_STEP:
            groups.append([])
        groups[-1].append(document)
    rng.shuffle(groups)
    return groups


if __name__ == "__main__":
    main()
