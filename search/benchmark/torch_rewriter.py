"""The rewriter of `kytolly.search.benchmark.text_training` in PyTorch: seconds of one update.

Batches and first weights come from a file that `text_training --export` wrote. Before anything is
timed, the loss of the first batch with these weights must be that of the file.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kytolly.benchmarks.program import Program, Result, Span, refuse, require, run_program, versions
from kytolly.config.fields import setting
from kytolly.machine.hardware import usable_cores

if TYPE_CHECKING:
    import numpy as np
    import torch

    Memory = tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor], torch.Tensor]

BEGIN, PADDING, HIDDEN = 1, 0, -1e4
RATE, DECAY, CLIP, EPSILON = 2e-3, 0.01, 1.0, 1e-7
DROPOUT, SAMPLED = 0.3, 0.25
CLOSE = 1e-4  # of the two losses
WEIGHTS = 17  # bias, vectors, 4 x 3 of the LSTMs, queries, 2 of the merge


def make_network(saved: dict[str, np.ndarray]) -> torch.nn.Module:
    """The network with the weights of the file."""
    (torch,) = require("torch")
    nn, words, units = torch.nn, int(saved["words"]), int(saved["units"])
    arrays = [torch.from_numpy(saved[name]) for name in sorted(saved) if name.startswith("weight_")]
    dimension = arrays[1].shape[1]

    class Network(nn.Module):
        """Two layers of LSTM on both sides, with attention and tied output weights."""

        def __init__(self) -> None:
            super().__init__()
            self.vectors = nn.Embedding(words, dimension)
            self.encoder = nn.LSTM(dimension, units, 2, batch_first=True)
            self.decoder = nn.LSTM(dimension, units, 2, batch_first=True)
            self.queries = nn.Linear(units, units, bias=False)
            self.merge = nn.Linear(2 * units, dimension)
            self.bias = nn.Parameter(torch.zeros(words))

        def encode(self, source: torch.Tensor, mask: torch.Tensor) -> Memory:
            """Outputs, states and what hides padding."""
            lengths = (source != PADDING).sum(dim=1)
            packed = nn.utils.rnn.pack_padded_sequence(
                self.vectors(source) * mask, lengths, batch_first=True, enforce_sorted=False
            )
            outputs, states = self.encoder(packed)
            outputs, _ = nn.utils.rnn.pad_packed_sequence(
                outputs, batch_first=True, total_length=source.shape[1]
            )
            return outputs, states, HIDDEN * (source == PADDING).float()[:, None]

        def decode(
            self, inputs: torch.Tensor, memory: Memory, mask: torch.Tensor | float
        ) -> torch.Tensor:
            """[B, T, V] logits."""
            outputs, states, absent = memory
            outer, _ = self.decoder(self.vectors(inputs), states)
            scores = self.queries(outer) @ outputs.transpose(1, 2) + absent
            seen = torch.softmax(scores, dim=-1) @ outputs
            merged = torch.tanh(self.merge(torch.cat([outer, seen], dim=-1))) * mask
            return merged @ self.vectors.weight.T + self.bias

        def loss(self, source: torch.Tensor, target: torch.Tensor, draws: bool) -> torch.Tensor:
            """Cross-entropy; dropout and scheduled sampling where there are draws."""
            masks = torch.ones(2, source.shape[0], 1, dimension)
            if draws:
                masks = (torch.rand(masks.shape) >= DROPOUT) / (1.0 - DROPOUT)
            memory, inputs = self.encode(source, masks[0]), before(target)
            if draws:
                with torch.no_grad():
                    likely = self.decode(inputs, memory, 1.0).argmax(dim=-1)
                guessed = (torch.rand(target.shape) < SAMPLED) & (target != PADDING)
                inputs = before(torch.where(guessed, likely, target))
            logits = self.decode(inputs, memory, masks[1])
            entropy = nn.CrossEntropyLoss(ignore_index=PADDING)
            return entropy(logits.flatten(0, 1), target.flatten())

    network = Network()
    place_weights(network, arrays)
    return network


def before(target: torch.Tensor) -> torch.Tensor:
    """The token before each token."""
    (torch,) = require("torch")
    return torch.cat([torch.full_like(target[:, :1], BEGIN), target[:, :-1]], dim=1)


def place_weights(network: torch.nn.Module, arrays: list[torch.Tensor]) -> None:
    """Give the network the arrays of the Keras network, in its order."""
    if len(arrays) != WEIGHTS:
        refuse(f"the file has {len(arrays)} weights, expected {WEIGHTS}. Write it anew.")
    rest = iter(arrays)
    network.bias.data.copy_(next(rest))
    network.vectors.weight.data.copy_(next(rest))
    for lstm in (network.encoder, network.decoder):
        for layer in range(2):
            for kind in ("weight_ih", "weight_hh"):
                getattr(lstm, f"{kind}_l{layer}").data.copy_(next(rest).T)
            getattr(lstm, f"bias_ih_l{layer}").data.copy_(next(rest))  # Keras has one bias
            getattr(lstm, f"bias_hh_l{layer}").requires_grad_(False).zero_()
    network.queries.weight.data.copy_(next(rest).T)
    network.merge.weight.data.copy_(next(rest).T)
    network.merge.bias.data.copy_(next(rest))


def make_update(
    network: torch.nn.Module, loss: Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor]
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A function that makes an update from a batch, and returns its loss."""
    (torch,) = require("torch")
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.dim() >= 2], "weight_decay": DECAY},
        {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=RATE, eps=EPSILON, fused=True)

    def update(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        adamw.zero_grad(set_to_none=True)
        value = loss(source, target, True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        adamw.step()
        return value.detach()

    return update


@dataclasses.dataclass(frozen=True)
class TorchOptions:
    """The file, and how its batches are timed."""

    file: Path = setting(dataclasses.MISSING, "batches and weights of text_training --export")
    updates: int = setting(16, "updates to time in each bucket")
    compiled: bool = setting(False, "with torch.compile")


def run(options: TorchOptions) -> Result:
    """Check the loss, time the updates of each bucket, and return the result."""
    torch, numpy = require("torch", "numpy")
    torch.set_num_threads(usable_cores())
    torch.manual_seed(0)
    saved, began = dict(numpy.load(options.file)), time.perf_counter()
    updates = options.updates
    network = make_network(saved)
    shares = saved["shares"].tolist()
    buckets = [
        [torch.from_numpy(saved[f"{name}_{number}"]).long() for name in ("source", "target")]
        for number in range(len(shares))
    ]
    with torch.no_grad():
        loss = float(network.loss(*(column[0] for column in buckets[0]), draws=False))
    if abs(loss - float(saved["loss"])) > CLOSE:
        refuse(f"the loss is {loss}, expected {float(saved['loss'])}: not the same network.")
    update = make_update(network, torch.compile(network.loss) if options.compiled else network.loss)
    clocks = []
    for source, target in buckets:
        for batch in range(2):  # compiles, and warms up
            first = update(source[batch], target[batch])
        with Span() as span:
            for number in range(updates):
                last = update(source[number % len(source)], target[number % len(source)])
        clocks.append((span, float(first), float(last)))
    total = sum(shares)
    wall, cpu = (
        sum(
            getattr(span, f"{name}_seconds") * share
            for (span, *_), share in zip(clocks, shares, strict=True)
        )
        / (total * updates)
        for name in ("wall", "cpu")
    )
    return {
        "name": "PyTorch, compiled" if options.compiled else "PyTorch",
        "versions": versions("torch"),
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "seconds_in_all": time.perf_counter() - began,
        "loss": loss,
        "loss_there": float(saved["loss"]),
        "losses": [(first, last) for _, first, last in clocks],
        "usable_cores": usable_cores(),
    }


PROGRAM = Program(run, (TorchOptions,))

if __name__ == "__main__":
    sys.exit(run_program(PROGRAM, __doc__))
