"""Many agents that take turns in one compiled program, for a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf

from kytolly.callback.base import Evaluation
from kytolly.loop.device import DeviceEvaluator
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.population import Population


class PopulationInTurns(Population):
    """A population whose members train one after the other, by the program of one of them.

    A CPU is no faster with many small networks at once than with one whose numbers stay in its
    caches; and a member learns bit for bit what it learns alone.
    """

    def run_each(self, amount: int, members: Sequence[int]) -> Iterator[tuple[int, LoopMetrics]]:
        """Select one of the members after the other, train it and give its metrics."""
        for member in members:
            self.select(member)
            metrics = self.loop.run(amount).on_host()
            self.put(member)
            yield member, metrics

    def _write(self, member: tf.Tensor) -> None:
        super()._write(member)
        self.agent.policy.publish()


class EvaluatorInTurns:
    """Evaluates one member after the other.

    Args:
        population: Whose members play.
        evaluator: Plays with the agent's network.
        seeds: [P] seeds of the members' episodes.
    """

    def __init__(self, population: Population, evaluator: DeviceEvaluator, seeds: Sequence[int]):
        self.population, self.evaluator, self.seeds = population, evaluator, seeds
        self.limit = evaluator.limit

    def evaluate(self, number: int, members: Sequence[int]) -> dict[int, Evaluation]:
        """As `DeviceEvaluator.evaluate`, of each of the members."""
        evaluations = {}
        for member in members:
            self.population.select(member)
            self.evaluator.random_stream.key[0].assign(self.seeds[member])
            evaluations[member] = self.evaluator.evaluate(number)
        return evaluations
