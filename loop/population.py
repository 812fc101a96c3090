"""Many agents of one algorithm, each with environments of its own, as one program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from kytolly.agent.kytolly import KytollyAgent
from kytolly.callback.base import Evaluation
from kytolly.environment.fusion_barrier import mapped
from kytolly.loop.device import DeviceEvaluator, DeviceLoop, Episodes
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.member_state import MemberState
from kytolly.loop.program import Program
from kytolly.policy.adam import inner_optimizer

Nest = TypeVar("Nest")


class Population:
    """The state of `P` agents, and the program that trains all of them at once.

    An agent's iteration is mapped over the agents, so that a GPU launches for all what it would
    launch for one. On a CPU `loop.turns.PopulationInTurns` is faster.

    One agent and its loop, `loop` and `loop.agent`, stand for one member at a time: they have the
    state of the member that was selected last. All else that an agent can do is done by them.

    Counters, which are the same for all members, are kept once. What a counter counts for a member
    that has ended before the others is of no meaning.

    Args:
        loop: Loop of an agent on an environment in tensor code. Its state becomes that of every
            member.
        size: Members, `P`.
        varied: [P] numbers of the config by name, where the members have different ones; they may
            be changed while the members train.
    """

    def __init__(
        self, loop: DeviceLoop, size: int, varied: Mapping[str, Sequence[float]] | None = None
    ):
        self.loop, self.agent, self.size = loop, loop.agent, size
        self.varied = {
            name: tf.Variable(tf.constant(values, tf.float32), trainable=False)
            for name, values in (varied or {}).items()
        }
        variables = member_variables(loop)
        self.state = MemberState(variables)
        self.is_shared = [self.shares(variable) for variable in variables]
        self.rows = [
            tf.Variable(one if shared else tf.repeat(one[None], size, axis=0), trainable=False)
            for one, shared in zip(variables, self.is_shared, strict=True)
        ]
        xla, device = loop.agent.cfg.xla, loop.program.device
        number = [tf.TensorSpec([], tf.int32)]
        self.program = Program(self._run, number, xla, device)
        self._select, self._put = (
            Program(function, number, xla, device) for function in (self._read, self._write)
        )
        sources = [tf.TensorSpec([size], tf.int32)]
        self._copy = Program(self._gather, sources, xla, device)

    def run(self, amount: int, deadline: float = math.inf) -> LoopMetrics:
        """As of a loop, for all members: [P, ...] metrics on the host."""
        iterations = -(-amount // self.loop.env_steps_per_iteration)
        return self.program(tf.constant(iterations, tf.int32)).on_host()

    def shares(self, variable: tf.Variable) -> bool:
        """True for a counter that counts the same in all members, and is kept once."""
        return is_shared(variable, self.agent)

    def run_each(self, amount: int, members: Sequence[int]) -> Iterator[tuple[int, LoopMetrics]]:
        """Run, and then select one of the members after the other, with its metrics."""
        metrics = self.run(amount)
        for member in members:
            self.select(member)
            yield member, LoopMetrics(*(np.asarray(part)[member] for part in metrics))

    @property
    def env_steps(self) -> int:
        """Env steps so far, of each member that has not ended."""
        return int(np.max(self.rows[self._index_of(self.agent.env_steps)]))

    def select(self, member: int) -> None:
        """Give the agent and its loop, and the Keras network, the state of a member."""
        self._select(tf.constant(member))

    def put(self, member: int) -> None:
        """Give a member the state that the agent and its loop have."""
        self._put(tf.constant(member))

    def copy(self, sources: Sequence[int]) -> None:
        """Give each member the state of the member that is named in its place.

        Numbers that vary stay; the random stream stays each member's own.
        """
        self._copy(tf.constant(sources, tf.int32))

    def set_number(self, name: str, values: Sequence[float]) -> None:
        """Give the members [P] values of a number of the config."""
        if name == "learning_rate":  # which the optimizer has
            rate: Any = inner_optimizer(self.agent.policy.optimizer)._learning_rate
            self.rows[self._index_of(rate.value)].assign(tf.cast(values, tf.float32))
        if name in self.varied:
            self.varied[name].assign(values)

    def _index_of(self, variable: tf.Variable) -> int:
        return next(i for i, one in enumerate(self.state.variables) if one is variable)

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

        @tf.autograph.experimental.do_not_convert
        def one(row: tuple[Any, list[tf.Tensor], list[tf.Tensor]]) -> tuple[Nest, list[tf.Tensor]]:
            part, state, numbers = row
            states = iter(state)
            before = [
                value if shared else next(states)
                for value, shared in zip(values, self.is_shared, strict=True)
            ]
            policy = self.agent.policy
            with mapped(), self.state.replaced(before):
                policy.varied = lambda: dict(zip(self.varied, numbers, strict=True))
                try:
                    results = function(part)
                finally:
                    policy.varied = dict
            # A result that is an argument would be no result of the map.
            return tf.nest.map_structure(tf.identity, (results, self.state.values))

        parts = (rows, own, [values.read_value() for values in self.varied.values()])
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

    def _read(self, member: tf.Tensor) -> None:
        for one, row, shared in zip(self.state.variables, self.rows, self.is_shared, strict=True):
            one.assign(row if shared else tf.gather(row, member))
        self.agent.policy.publish()

    def _gather(self, sources: tf.Tensor) -> None:
        own = self.agent.random_stream.key, self.agent.episodes
        for one, row, shared in zip(self.state.variables, self.rows, self.is_shared, strict=True):
            if not shared and not any(one is variable for variable in own):
                row.assign(tf.gather(row, sources))

    def _write(self, member: tf.Tensor) -> None:
        for one, row, shared in zip(self.state.variables, self.rows, self.is_shared, strict=True):
            if shared:
                row.assign(one)
            else:
                row.scatter_nd_update([[member]], one[tf.newaxis])


class PopulationEvaluator:
    """Plays the episodes of all members at once, each with its own weights.

    Args:
        population: Whose members play.
        evaluator: How one of them would.
        seeds: [P] seeds of the members' episodes.
    """

    def __init__(self, population: Population, evaluator: DeviceEvaluator, seeds: Sequence[int]):
        self.population, self.evaluator = population, evaluator
        stream = evaluator.random_stream
        self.stream_state = MemberState([stream.key, stream.counter])
        purpose = int(stream.key[1])
        self.keys = tf.constant([[seed, purpose] for seed in seeds], tf.int64)
        old, number = evaluator.program, [tf.TensorSpec([], tf.int64)]
        self.program = Program(self._play, number, old.xla, old.device)

    def evaluate(self, number: int, members: Sequence[int]) -> dict[int, Evaluation]:
        """As `DeviceEvaluator.evaluate`, of each of the members."""
        returns, lengths, ended = self.program(tf.constant(number << 32, tf.int64))
        evaluator = self.evaluator
        if not np.all(ended) and evaluator.env.spec.max_episode_steps is None:
            evaluator.limit.warn_of_cut()
        returns, lengths = returns.numpy(), lengths.numpy()
        return {m: Evaluation.of_episodes(returns[m], lengths[m]) for m in members}

    def _play(self, counter: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """[P, N] returns and lengths of the episodes, and whether they ended."""
        evaluator = self.evaluator
        limit = evaluator.step_limit
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


def member_variables(loop: DeviceLoop) -> list[tf.Variable]:
    """All variables of an agent and its loop but the network's own copy of what is learned."""
    agent = loop.agent
    policy = agent.policy
    network, learned = policy.network, {id(w.value) for w in policy.network.trainable_variables}
    found = [*agent.variables, *loop.variables]
    found += [v.value for v in (*network.variables, *policy.optimizer.variables)]
    return list({id(v): v for v in found if id(v) not in learned}.values())


def is_shared(variable: tf.Variable, agent: KytollyAgent) -> bool:
    """True for a counter that counts the same in all members."""
    own = [agent.episodes]
    if getattr(agent.cfg, "target_kl", None) is not None:  # which may end a member's updates
        iterations: Any = agent.policy.optimizer.iterations
        own += [agent.policy.updates, iterations.value]
    counts = variable.dtype == tf.int64 and not variable.shape.rank
    return counts and not any(variable is one for one in own)
