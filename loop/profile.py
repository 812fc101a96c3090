"""The profile of a run: seconds of its parts, timed apart after training.

Training is one program, in which no part can be timed. So after training, programs of the same
shapes are timed that do less and less of it: a whole update, one without the optimizer's step, one
without the gradient, and one without the network. Their differences, as often as they ran, are the
parts; what is left of the run's time is idle.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import tensorflow as tf

from kytolly.agent.kytolly import KytollyAgent
from kytolly.callback.base import Callback, TrainState
from kytolly.environment.memory import MEMORY
from kytolly.loop.device import DeviceLoop
from kytolly.loop.program import Program
from kytolly.loop.supervised import Learner, SupervisedState, update_seeds
from kytolly.policy.base import Batch, Loss, Policy

if TYPE_CHECKING:
    from kytolly.policy.batch import Obs
    from kytolly.policy.hyper import Hyper

Columns = Mapping[str, tf.Tensor]  # of a batch, by name
DATA, ACTING, ENVIRONMENTS = "data", "acting", "environments and memory"
FORWARD, BACKWARD, UPDATE, IDLE = "forward", "backward", "update", "idle"
LEARNING = "acting and learning"
ITERATIONS = 8  # of an agent's loop in a call that is timed
MAX_CALLS = 20  # to time one part
ENOUGH_SECONDS = 1.0


class RunKeeper(Callback):
    """Keeps a run, so that it can be profiled afterwards."""

    state: TrainState | None = None

    def on_train_begin(self, state: TrainState) -> None:
        """Keep it."""
        self.state = state

    @property
    def loop(self) -> Any:
        """The run's loop; None where it has none, and after `release`."""
        return None if self.state is None else self.state.trackables.get("loop")

    def release(self) -> None:
        """Forget the run, and so release its memory on the device."""
        self.state = None


class PartPolicy:
    """A policy whose update ends before the optimizer's step, or before the gradient.

    Args:
        policy: The policy.
        part: `FORWARD` or `BACKWARD`, the last that it does.
    """

    def __init__(self, policy: Policy, part: str):
        self._policy, self._part = policy, part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def update(self, batch: Batch, hyper: Hyper | None = None) -> Loss:
        """The loss, with the gradient's norm or a 0 in its place."""
        hyper = hyper or self._policy.hyper
        if self._part == BACKWARD:
            return self._policy.gradient(batch, hyper)[1]
        loss = self._policy.loss(batch, self._policy.current_weights(), hyper)
        return loss._replace(metrics=tf.concat([loss.metrics, [0.0]], axis=0))


class NoNetwork(PartPolicy):
    """A policy that acts without its network."""

    keeps_value = False

    def acting_weights(self, noise: tf.Tensor | None) -> tuple[list[tf.Tensor], None]:
        """No weights."""
        return [], None

    def step(
        self, obs: Obs, weights: list[tf.Tensor], noise: None = None
    ) -> tuple[tf.Tensor, None, tf.Tensor | None]:
        """Params [B, P] of 0, and the memory as it is where there is one."""
        count = tf.nest.flatten(obs)[0].shape[0]
        memory = obs.get(MEMORY) if isinstance(obs, Mapping) else None
        return tf.zeros([count, self.distribution.num_params]), None, memory


class PartAgent:
    """An agent with another policy, which may make no updates at all.

    Args:
        agent: The agent.
        policy: Its policy.
        updates: It makes updates.
    """

    def __init__(self, agent: KytollyAgent, policy: Policy | PartPolicy, updates: bool):
        self._agent, self.policy, self._updates = agent, policy, updates

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def updates_due(self) -> int | tf.Tensor:
        """As the agent's, or 0."""
        return self._agent.updates_due() if self._updates else 0


def differences(names: Sequence[str], whole: Sequence[float]) -> dict[str, float]:
    """The seconds that each program adds to the one before, at least 0."""
    before = [0.0, *whole]
    return {
        name: max(now - then, 0.0) for name, now, then in zip(names, whole, before, strict=False)
    }


def fastest_call(run: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls.

    The fastest, because a call that waits for other programs takes longer, never shorter.
    """
    calls: list[float] = []
    while len(calls) < MAX_CALLS and sum(calls) < ENOUGH_SECONDS:
        began = time.perf_counter()
        run()
        calls.append(time.perf_counter() - began)
    return min(calls)


def update_parts(learner: Learner, device: str | None) -> dict[str, float]:
    """Seconds of the parts of an update of the bucket with most batches, timed apart."""
    rows: Any = learner.rows  # whose sampler lists the batches of an epoch: only this asks for it
    policy, cfg = learner.policy, learner.cfg
    groups = rows.sampler.epoch(0)
    totals: dict[int, int] = {}
    for group in groups:
        totals[group.bucket] = totals.get(group.bucket, 0) + len(group.rows)
    bucket = max(totals, key=lambda bucket: totals[bucket])
    number = max(
        (n for n, group in enumerate(groups) if group.bucket == bucket),
        key=lambda n: len(groups[n].rows),
    )
    arguments, count = rows.arguments(number), len(groups[number].rows)

    def seconds(update: Callable[[Columns], tf.Tensor]) -> float:
        def run(arguments: Any) -> tf.Tensor:
            def step(index: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                batch = rows.batch(bucket, arguments, index)
                seeds = update_seeds(cfg.seed, tf.cast(index, tf.int64), cfg.gradient_accumulation)
                return index + 1, total + update({**batch, "seed": seeds})

            start = (tf.constant(0), tf.zeros([]))
            return tf.while_loop(lambda index, _: index < count, step, start)[1]

        program = Program(run, [rows.signature(bucket)], cfg.xla, device)
        program(arguments)
        return fastest_call(lambda: float(program(arguments))) / count

    def read(batch: Columns) -> tf.Tensor:
        columns = [column for name, column in batch.items() if name != "seed"]
        return tf.add_n([tf.reduce_sum(tf.cast(column, tf.float32)) for column in columns])

    def metrics(policy: Policy | PartPolicy) -> Callable[[Columns], tf.Tensor]:
        return lambda batch: read(batch) + tf.reduce_sum(policy.update(batch).metrics)

    policies = [PartPolicy(policy, FORWARD), PartPolicy(policy, BACKWARD), policy]
    whole = [seconds(read), *(seconds(metrics(each)) for each in policies)]
    return differences([DATA, FORWARD, BACKWARD, UPDATE], whole)


def iteration_parts(loop: DeviceLoop, split_update: bool = True) -> dict[str, float]:
    """Seconds of the parts of an iteration of an agent's device loop, timed apart.

    The agent goes on learning, but its network keeps its weights.

    Args:
        loop: The loop.
        split_update: The updates are forward, backward and update; else they are one part.
    """
    agent = loop.agent
    policy = agent.policy

    def seconds(agent: PartAgent) -> float:
        other = copy.copy(loop)
        other.agent = cast(KytollyAgent, agent)
        signature = [tf.TensorSpec([], tf.int32)]
        other.program = Program(other._run, signature, loop.xla, loop.program.device)
        other.run(0)
        run = lambda: int(other.run(ITERATIONS * loop.env_steps_per_iteration).updates)  # noqa: E731
        return fastest_call(run) / ITERATIONS

    agents = {
        ENVIRONMENTS: PartAgent(agent, NoNetwork(policy, FORWARD), updates=False),
        ACTING: PartAgent(agent, policy, updates=False),
    }
    for part in (FORWARD, BACKWARD) if split_update else ():
        agents[part] = PartAgent(agent, PartPolicy(policy, part), updates=True)
    agents[UPDATE] = PartAgent(agent, policy, updates=True)
    weights = policy.network.get_weights()
    try:
        return differences(list(agents), [seconds(each) for each in agents.values()])
    finally:
        policy.set_weights(weights)


def profile_run(
    state: TrainState, summary: Mapping[str, Any], idle: float | None
) -> dict[str, dict[str, float]]:
    """Seconds and share of each part of a run's steady state.

    Args:
        state: The run at its beginning.
        summary: The contents of `result.json`.
        idle: Share of the time that learning waited for environments; None where it does not.
    """
    count, speed = summary[state.unit], summary[f"{state.unit}_per_second"]
    whole = count / speed if speed else 0.0
    loop = cast(DeviceLoop | None, state.trackables.get("loop"))
    if isinstance(state, SupervisedState) and state.learner is not None:
        policy = state.learner.policy
        weights = policy.network.get_weights()
        try:
            parts, times = update_parts(state.learner, state.device), float(count)
        finally:
            policy.set_weights(weights)
    elif loop is not None:
        parts, times = iteration_parts(loop), count / loop.env_steps_per_iteration
    else:  # the host's environments and network
        share = idle or 0.0
        return as_profile({LEARNING: whole * (1.0 - share), IDLE: whole * share})
    parts = {name: times * seconds for name, seconds in parts.items()}
    apart = sum(parts.values())
    if apart > whole > 0.0:  # what was timed apart was slower
        parts = {name: seconds * whole / apart for name, seconds in parts.items()}
    return as_profile({**parts, IDLE: max(whole - apart, 0.0)})


def as_profile(seconds: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Seconds and shares, by part."""
    total = max(sum(seconds.values()), 1e-9)
    shares = {name: value / total for name, value in seconds.items()}
    return {"seconds": dict(seconds), "share": shares}
