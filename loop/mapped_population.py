"""Many agents at once in one program: an agent's iteration, mapped over the agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from kytolly.callback.base import Evaluation
from kytolly.environment.fusion_barrier import mapped
from kytolly.loop.device import DeviceEvaluator, DeviceLoop, Episodes
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.mapped_loops import shared_loops_stay
from kytolly.loop.member_state import MemberState
from kytolly.loop.population import Population, Rows
from kytolly.loop.program import Program

Nest = TypeVar("Nest")


class MappedPopulation(Population):
    """A population whose members train at once, so that a GPU launches for all what one needs.

    Counters, which are the same for all members, are kept once. What a counter counts for a member
    that has ended before the others is of no meaning. The arguments are those of `Population`.
    """

    def __init__(self, loop: DeviceLoop, size: int, varied: Mapping[str, Rows] | None = None):
        super().__init__(loop, size, varied)
        self.state = MemberState(self.variables)
        number = [tf.TensorSpec([], tf.int32)]
        self.program = Program(self._run, number, self.agent.cfg.xla, loop.program.device)

    def shares(self, variable: tf.Variable) -> bool:
        """True for a counter that counts the same in all members."""
        agent = self.agent
        own = [agent.episodes]
        if getattr(agent.cfg, "target_kl", None) is not None:  # which may end a member's updates
            iterations: Any = agent.policy.optimizer.iterations
            own += [agent.policy.updates, iterations.value]
        counts = variable.dtype == tf.int64 and not variable.shape.rank
        return counts and not any(variable is one for one in own)

    def run(self, amount: int) -> LoopMetrics:
        """As of a loop, for all members: [P, ...] metrics on the host."""
        iterations = -(-amount // self.loop.env_steps_per_iteration)
        return self.program(tf.constant(iterations, tf.int32)).on_host()

    def run_each(self, amount: int, members: Sequence[int]) -> Iterator[tuple[int, LoopMetrics]]:
        """Train all, and then select one of the members after the other, with its metrics."""
        metrics = self.run(amount)
        for member in members:
            self.select(member)
            yield member, LoopMetrics(*(np.asarray(part)[member] for part in metrics))

    def map_members(
        self, function: Callable[[Any], Nest], rows: Any, values: list[tf.Tensor]
    ) -> tuple[Nest, list[tf.Tensor]]:
        """The results [P, ...] of a function of one agent, and the state after it.

        Args:
            function: Of one member's part of `rows`; may read and assign the agent's variables.
            rows: A nest of [P, ...] tensors.
            values: The state before, in the order of `rows`.
        """
        own = [value for value, shared in zip(values, self.is_shared, strict=True) if not shared]
        device = tf.constant(0).device  # which a map within a compiled program does not take over

        @tf.autograph.experimental.do_not_convert
        def one(row: tuple[Any, list[tf.Tensor], dict[str, Any]]) -> tuple[Nest, list[tf.Tensor]]:
            part, state, numbers = row
            states = iter(state)
            before = [
                value if shared else next(states)
                for value, shared in zip(values, self.is_shared, strict=True)
            ]
            policy = self.agent.policy
            with mapped(), self.state.replaced(before), tf.device(device):
                selected, policy.varied = policy.varied, lambda: numbers
                try:
                    results = function(part)
                finally:
                    policy.varied = selected
            # A result that is an argument would be no result of the map.
            return tf.nest.map_structure(tf.identity, (results, self.state.values))

        numbers = tf.nest.map_structure(lambda rows: rows.read_value(), self.varied)
        parts = (rows, own, numbers)
        with shared_loops_stay():
            results, after = tf.vectorized_map(one, parts, fallback_to_while_loop=False)
        # The counters of all members are the same.
        return results, [
            value[0] if shared else value
            for value, shared in zip(after, self.is_shared, strict=True)
        ]

    def _run(self, iterations: tf.Tensor) -> LoopMetrics:
        loop = self.loop
        zeros = LoopMetrics.zeros(self.agent)
        metrics = tf.nest.map_structure(
            lambda zero: tf.repeat(zero[tf.newaxis], self.size, axis=0), zeros
        )
        carried = (tf.constant(0), [row.read_value() for row in self.rows], metrics)
        if self.agent.cfg.first_update_env_steps:
            with self.state.replaced(carried[1]):  # of which only counters are looked at
                warm = tf.minimum(iterations, loop.iterations_before_updates())
            carried = self._iterate(carried, warm, update_enabled=False)
        _, values, metrics = self._iterate(carried, iterations, update_enabled=True)
        for row, value in zip(self.rows, values, strict=True):
            row.assign(value)
        return metrics

    def _iterate(self, carried: Any, until: tf.Tensor, update_enabled: bool) -> Any:
        loop, episodes = self.loop, self.agent.episodes

        def iteration(metrics: LoopMetrics) -> LoopMetrics:
            before = metrics.episodes
            start = tf.nest.map_structure(tf.convert_to_tensor, loop.env_state)
            after, metrics = loop.iteration(start, metrics, update_enabled)
            tf.nest.map_structure(lambda old, new: old.assign(new), loop.env_state, after)
            episodes.assign_add(tf.cast(metrics.episodes - before, tf.int64))
            return metrics

        def turn(done: tf.Tensor, values: list[tf.Tensor], metrics: LoopMetrics) -> Any:
            metrics, values = self.map_members(iteration, metrics, values)
            return done + 1, values, metrics

        return tf.while_loop(lambda done, *_: done < until, turn, carried)


class MappedEvaluator:
    """Plays the episodes of all members at once, each with its own weights.

    Args:
        population: Whose members play.
        evaluator: How one of them would.
        seeds: [P] seeds of the members' episodes.
    """

    def __init__(
        self, population: MappedPopulation, evaluator: DeviceEvaluator, seeds: Sequence[int]
    ):
        self.population, self.evaluator, self.limit = population, evaluator, evaluator.limit
        stream = evaluator.random_stream
        self.stream_state = MemberState([stream.key, stream.counter])
        purpose = int(stream.key[1])
        self.keys = tf.constant([[seed, purpose] for seed in seeds], tf.int64)
        old, number = evaluator.program, [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int32)]
        self.program = Program(self._play, number, old.xla, old.device)

    def evaluate(self, number: int, members: Sequence[int]) -> dict[int, Evaluation]:
        """As `DeviceEvaluator.evaluate`, of each of the members."""
        counter, limit = tf.constant(number << 32, tf.int64), self.limit.env_steps
        returns, lengths, ended = self.program(counter, tf.constant(limit))
        if not np.all(ended):
            self.limit.warn_of_cut()
        returns, lengths = returns.numpy(), lengths.numpy()
        return {m: Evaluation.of_episodes(returns[m], lengths[m], False, limit) for m in members}

    def _play(self, counter: tf.Tensor, limit: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """[P, N] returns and lengths of the episodes, and whether they ended."""
        evaluator = self.evaluator
        begun, counter = self._map(lambda *_: evaluator.begin(), None, counter)

        def turn(time: tf.Tensor, episodes: Episodes, counter: tf.Tensor) -> Any:
            episodes, counter = self._map(evaluator.step, episodes, counter)
            return time + 1, episodes, counter

        _, episodes, _ = tf.while_loop(
            lambda time, episodes, _: (time < limit) & ~tf.reduce_all(episodes.ended),
            turn,
            (tf.constant(0), begun, counter),
        )
        return episodes.returns, episodes.lengths, episodes.ended

    def _map(
        self, function: Callable[..., Episodes], episodes: Episodes | None, counter: tf.Tensor
    ) -> tuple[Episodes, tf.Tensor]:
        """The episodes [P, ...] of a function of one member's and its network; the counter."""
        population, policy = self.population, self.population.agent.policy

        def network(obs: Any) -> Any:
            return policy.weights.call(policy.weights.split(policy.published), obs)

        def of_member(row: tuple[tf.Tensor, Any]) -> tuple[Episodes, tf.Tensor]:
            key, own = row
            with self.stream_state.replaced([key, counter]):
                after = function(own, network)
                return after, self.stream_state.values[1]

        rows = (self.keys, self.keys if episodes is None else episodes)
        values = [row.read_value() for row in population.rows]
        (after, counters), _ = population.map_members(of_member, rows, values)
        return after, counters[0]
