"""The state of many agents of one algorithm, each with environments of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from kytolly.callback.base import Evaluation
from kytolly.loop.device import DeviceLoop
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.limits import EpisodeLimit
from kytolly.loop.program import Program
from kytolly.policy.adam import inner_optimizer
from kytolly.policy.base import Policy

Rows = Sequence[float] | tuple[np.ndarray, ...]  # a number's [P] values, or those of its schedule


class Population:
    """The state of `P` agents; a subclass trains them.

    One agent and its loop, `loop` and `loop.agent`, stand for one member at a time: they have the
    state of the member that was selected last. All else that an agent can do is done by them.

    Args:
        loop: Loop of an agent on an environment in tensor code. Its state becomes that of every
            member.
        size: Members, `P`.
        varied: [P] numbers of the config by name, where the members have different ones; they may
            be changed while the members train. Of a number with a schedule a tuple of the [P, ...]
            numbers of the schedule.
    """

    def __init__(self, loop: DeviceLoop, size: int, varied: Mapping[str, Rows] | None = None):
        self.loop, self.agent, self.size = loop, loop.agent, size
        self.varied: dict[str, Any] = {
            name: tuple(map(make_row, values)) if isinstance(values, tuple) else make_row(values)
            for name, values in (varied or {}).items()
            if name != "learning_rate" or isinstance(values, tuple)  # else the optimizer has it
        }
        # Those of the member that is selected.
        self.numbers: dict[str, Any] = tf.nest.map_structure(
            lambda rows: make_row(rows[0]), self.varied
        )
        loop.agent.policy.varied = lambda: self.numbers
        self.variables = member_variables(loop)
        self.is_shared = [self.shares(variable) for variable in self.variables]
        self.rows = [
            tf.Variable(one if shared else tf.repeat(one[None], size, axis=0), trainable=False)
            for one, shared in zip(self.variables, self.is_shared, strict=True)
        ]
        xla, device = loop.agent.cfg.xla, loop.program.device
        number, sources = tf.TensorSpec([], tf.int32), tf.TensorSpec([size], tf.int32)
        self._select = Program(self._read, [number], xla, device)
        self._put = Program(self._write, [number], xla, device)
        self._copy = Program(self._gather, [sources], xla, device)

    def shares(self, variable: tf.Variable) -> bool:
        """True for a variable that is kept once, since it is the same in all members."""
        return False

    def run_each(self, amount: int, members: Sequence[int]) -> Iterator[tuple[int, LoopMetrics]]:
        """Train the members for at least `amount` env steps, in whole iterations.

        Gives one after the other, selected, with its metrics on the host.
        """
        raise NotImplementedError

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
        variable = self.varied.get(name)
        if variable is None:
            rate: Any = inner_optimizer(self.agent.policy.optimizer)._learning_rate
            variable = self.rows[self._index_of(rate.value)]
        variable.assign(tf.constant(values, tf.float32))

    def _index_of(self, variable: tf.Variable) -> int:
        return next(i for i, one in enumerate(self.variables) if one is variable)

    def _read(self, member: tf.Tensor) -> None:
        for one, row, shared in zip(self.variables, self.rows, self.is_shared, strict=True):
            one.assign(row if shared else tf.gather(row, member))
        pairs = zip(tf.nest.flatten(self.numbers), tf.nest.flatten(self.varied), strict=True)
        for number, rows in pairs:
            number.assign(tf.gather(rows, member))
        self.agent.policy.publish()

    def _gather(self, sources: tf.Tensor) -> None:
        own = self.agent.random_stream.key, self.agent.episodes
        for one, row, shared in zip(self.variables, self.rows, self.is_shared, strict=True):
            if not shared and not any(one is variable for variable in own):
                row.assign(tf.gather(row, sources))

    def _write(self, member: tf.Tensor) -> None:
        for one, row, shared in zip(self.variables, self.rows, self.is_shared, strict=True):
            if shared:
                row.assign(one)
            else:
                row.scatter_nd_update([[member]], one[tf.newaxis])


def make_row(values: Any) -> tf.Variable:
    """A variable [P, ...] of the members' numbers."""
    return tf.Variable(tf.constant(values, tf.float32), trainable=False)


class PopulationEvaluator(Protocol):
    """Plays greedy episodes of a population's members."""

    limit: EpisodeLimit

    def evaluate(self, number: int, members: Sequence[int]) -> dict[int, Evaluation]:
        """As `DeviceEvaluator.evaluate`, of each of the members."""
        ...


def member_variables(loop: DeviceLoop) -> list[tf.Variable]:
    """All variables of an agent and its loop but the network's own copy of what is learned."""
    return learner_variables(loop.agent.policy, [*loop.agent.variables, *loop.variables])


def learner_variables(policy: Policy, more: Sequence[tf.Variable] = ()) -> list[tf.Variable]:
    """Those of a policy, its network and optimizer, and more, without that copy."""
    network, learned = policy.network, {id(w.value) for w in policy.network.trainable_variables}
    found = [*policy.variables, *more]
    found += [v.value for v in (*network.variables, *policy.optimizer.variables)]
    return list({id(v): v for v in found if id(v) not in learned}.values())
