"""Gymnasium environments on the host, learning in compiled programs.

An on-policy algorithm collects a rollout with one set of weights and then learns from it in one
call. Another one learns from a rollout while the next is collected (`loop.overlap`), because
entering a compiled program costs more than a small network's update.
"""

from __future__ import annotations

import functools
import json
import math
import time
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from kytolly.agent.acting import HostActor, packed_step, packed_weights
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.randomness import RESUMED_EPISODES, stream_seed
from kytolly.callback.base import JsonObject
from kytolly.environment.faults import one_line
from kytolly.environment.gym.saved_state import restore_state, saved_state
from kytolly.environment.gym.step import HostEnv
from kytolly.loop.collector import Behavior, Collector, collect_together
from kytolly.loop.learn import LoopMetrics, learn
from kytolly.loop.overlap import Overlap
from kytolly.loop.program import Program
from kytolly.policy.batch import Rollout, map_columns, present, rollout_spec, with_present


class HostLoop:
    """Collects with Gymnasium environments and learns on the device.

    A call of the program learns from `block` iterations, one after the other. It is more than one
    where learning and collecting overlap: see `acting_interval_env_steps` of the config.

    Where NumPy cannot compute the network, collecting and learning take turns: TensorFlow acts on
    the threads that a learner would hold.

    Args:
        agent: The learner; its state changes in place.
        groups: Adapters around the environments, each with equally many.
        device: Where learning runs, such as "/GPU:0"; None leaves it to TensorFlow.
        collector: Collects from a group.

    Attributes:
        restored: What a checkpoint holds of the state, until the loop begins.
    """

    compile_seconds = 0.0  # but for the first call

    def __init__(
        self,
        agent: KytollyAgent,
        groups: Sequence[HostEnv],
        device: str | None = None,
        collector: type[Collector] = Collector,
    ):
        self.agent, self.groups, cfg = agent, list(groups), agent.cfg
        self._collector = collector
        policy = agent.policy
        self.actor = HostActor(
            policy.network,
            policy.distribution,
            agent.env_spec.obs,
            lambda obs, noise=None: packed_step(policy, obs, noise),
        )
        inference = self.actor.numpy_network
        if inference is not None:
            inference.use_one_thread()
        overlaps = agent.memory.allows_lag and inference is not None
        wanted = (cfg.acting_interval_env_steps or 32) if overlaps else 0
        self.block = max(1, round(wanted / cfg.env_steps_per_iteration))
        self.env_steps_per_iteration = self.block * cfg.env_steps_per_iteration
        self.specs = map_columns(
            lambda s: tf.TensorSpec([self.block, cfg.rollout_steps, *s.shape], s.dtype),
            rollout_spec(
                agent.env_spec, cfg.num_envs, keeps_explored=agent.exploration.gives_explored
            ),
        )
        signature = [tf.TensorSpec([], tf.int32), *present(self.specs)]
        self.program = Program(self._learn, signature, cfg.xla, device)
        self.overlap = Overlap(self.program, signature[1:]) if overlaps else None
        self.collectors: list[Collector] = []
        self._packed = self._state = np.zeros(0)
        self.restored: JsonObject = {}
        self._idle_seconds = 0.0  # that learning waited for rows
        self._whole = True  # no block was collected and not learned from
        self._restarts = [group.restarts for group in self.groups if group.restarts is not None]

    def run(self, amount: int, deadline: float = math.inf) -> LoopMetrics:
        """Collect at least `amount` env steps in whole blocks, and learn; 0 only compiles."""
        if not self.collectors:
            self._start()
        for collector in self.collectors:
            collector.deadline = deadline
        blocks = -(-amount // self.env_steps_per_iteration)
        if blocks == 0:
            return LoopMetrics.zeros(self.agent)
        self._whole = False
        if self.overlap is not None:
            if self.collectors[0].collects_elsewhere:
                begin, finish = self._begin_block, self._finish_block
                metrics = self.overlap.run(blocks, finish, self._take, begin)
            else:
                metrics = self.overlap.run(blocks, self._collect, self._take)
            self._idle_seconds += self.overlap.take_idle_seconds()
        else:
            calls = []
            for _ in range(blocks):
                began = time.perf_counter()
                columns = [tf.constant(column) for column in self._collect()]
                self._idle_seconds += time.perf_counter() - began
                self._end_cut_episodes()
                sums, packed = self.program(tf.constant(1), *columns)
                self._take(packed.numpy())
                calls.append(sums.on_host())
            metrics = functools.reduce(LoopMetrics.plus, calls)
        self._whole = True
        episodes = np.sum([collector.take_episodes() for collector in self.collectors], axis=0)
        self.agent.episodes.assign_add(int(episodes[0]))
        return metrics._replace(
            episodes=int(episodes[0]),
            episode_return=np.float32(episodes[1]),
            episode_length=int(episodes[2]),
        )

    def bring_up_to_date(self) -> None:
        """Nothing: the state is where checkpoints look for it."""

    def take_idle_seconds(self) -> float:
        """Seconds that learning has waited for rows since the last call."""
        seconds, self._idle_seconds = self._idle_seconds, 0.0
        return seconds

    @property
    def env_restarts(self) -> int | None:
        """Environments that were made anew, also before a resume; None where a fault ends a run."""
        if not self._restarts:
            return None
        return self.restored.get("restarts", 0) + sum(restarts.total for restarts in self._restarts)

    @property
    def trackables(self) -> Mapping[str, object]:
        """The environments and what acts in them, which a checkpoint holds beside the agent."""
        return {"host": HostState(self)}

    def get_state(self) -> JsonObject:
        """All that the next rollout depends on beside the agent, as JSON can hold it."""
        if not self.collectors:
            return {}
        state: JsonObject = {}
        if self.overlap is not None:  # else acting has the newest weights, which the agent saves
            state["acting"] = saved_state({"packed": self._packed})
        if self._restarts:
            state["restarts"] = self.env_restarts
        try:
            collectors = saved_state(self.collectors)
        except Exception as error:  # an environment's own get_state may raise anything
            return {**state, "reason": one_line(str(error))}
        if not self._whole:
            return {**state, "reason": "learning failed after they had gone on"}
        return {**state, "collectors": collectors}

    def set_state(self, state: JsonObject) -> None:
        """Go on from there when the loop begins."""
        self.restored = state

    @property
    def xla(self) -> bool:
        """True if learning is compiled with XLA; known after the first call."""
        return self.program.xla

    def release(self) -> list[HostEnv]:
        """End the learning thread and give the environments back."""
        groups, self.groups = self.groups, []
        self.close()
        return groups

    def close(self) -> None:
        """End the learning thread and close the environments."""
        if self.overlap is not None:
            self.overlap.close()
        for group in self.groups:
            group.close()

    def _start(self) -> None:
        """Compile without learning, and begin the first episodes."""
        nothing = [tf.zeros(spec.shape, spec.dtype) for spec in present(self.specs)]
        self._take(self.program(tf.constant(0), *nothing)[1].numpy())
        cfg, done = self.agent.cfg, int(self.agent.env_steps.numpy())
        self.collectors = [
            self._collector(
                Behavior.of(self.agent),
                self.actor,
                env,
                np.random.default_rng([cfg.seed, 4, group, done]),
                self.block * cfg.rollout_steps,
            )
            for group, env in enumerate(self.groups)
        ]
        if done:
            self._restore()

    def _restore(self) -> None:
        """Go on within the episodes of the checkpoint, or say why new ones begin."""
        state, reason = self.restored, self.restored.get("reason")
        if "acting" in state and self.overlap is not None:
            packed = {"packed": self._packed}
            try:
                restore_state(packed, state["acting"])
                self._take(packed["packed"])
            except (TypeError, ValueError, LookupError, AttributeError) as error:
                from kytolly.loop.session_state import state_error

                raise state_error(error) from error
        if "collectors" in state:
            try:
                return restore_state(self.collectors, state["collectors"])
            except Exception as error:  # what it raises is up to the environment
                reason = one_line(str(error))
        for group, collector in enumerate(self.collectors):  # other episodes than those at step 0
            number = group + len(self.collectors) * int(self.agent.env_steps.numpy())
            collector.begin_episodes(stream_seed(self.agent.cfg.seed, RESUMED_EPISODES, number))
        self.agent.memory.end_episodes()
        warnings.warn(
            f"{self.groups[0].spec.name}: the resumed run begins new episodes; all else goes on as "
            f"it was. The state of the environments is not in the checkpoint: {reason}. Where it "
            "is no plain data, give the environment get_state(), that returns it, and set_state().",
            stacklevel=2,
        )

    def _begin_block(self) -> None:
        """Let collecting elsewhere begin, by the weights of now."""
        self.collectors[0].begin_rollout(self._state)

    def _finish_block(self) -> list[np.ndarray]:
        """The columns of the oldest block that has begun; the learner has taken those before."""
        self.collectors[0].take_steps()
        rollout = self.collectors[0].rollout()
        self._end_cut_episodes()
        return self._columns(rollout)

    def _collect(self) -> list[np.ndarray]:
        """The columns of a block, each [block, T, E, ...]."""
        return self._columns(collect_together(self.collectors, self._state))

    def _columns(self, rollout: Rollout) -> list[np.ndarray]:
        leaves = zip(present(rollout), present(self.specs), strict=True)
        return [
            leaf.reshape(spec.shape).astype(spec.dtype.as_numpy_dtype, copy=False)
            for leaf, spec in leaves
        ]

    def _take(self, packed: np.ndarray) -> None:
        """Act from now on with the weights and the exploration's state that `_learn` returned."""
        self._end_cut_episodes()
        self._packed = packed
        count = len(packed) - len(self.agent.exploration.metric_names)
        self._state = packed[count:]
        self.actor.take(packed[:count])

    def _end_cut_episodes(self) -> None:
        """Tell the memory which of its newest rows ended an episode, because a fault followed.

        Called when the learner has taken the rows before and not those after.
        """
        if self._restarts and self.collectors:
            cut = np.concatenate([collector.take_cut() for collector in self.collectors])
            if cut.any():
                self.agent.memory.end_episodes(np.flatnonzero(cut))

    def _learn(self, count: tf.Tensor, *leaves: tf.Tensor) -> tuple[LoopMetrics, tf.Tensor]:
        """Learn from a block, `count` times: 1, or 0 to compile.

        Returns the metrics, and in one vector what `_take` needs: one copy to the host.
        """
        agent = self.agent
        columns = with_present(self.specs, leaves)

        def iteration(index: tf.Tensor, metrics: LoopMetrics) -> tuple[tf.Tensor, LoopMetrics]:
            rollout = map_columns(lambda column: tf.gather(column, index), columns)
            random_bits = agent.random_stream.random_bits(agent.memory.num_random_words)
            update_enabled = warm_up_ends_within(agent, agent.cfg.env_steps_per_iteration)
            return index + 1, learn(agent, rollout, random_bits, metrics, update_enabled)

        metrics = tf.while_loop(
            lambda index, _: index < self.block * count,
            iteration,
            (tf.constant(0), LoopMetrics.zeros(agent)),
        )[1]
        state = agent.exploration.state(agent.env_steps)
        return metrics, tf.concat([packed_weights(agent.policy.weights), state], axis=0)


class HostState(tf.train.experimental.PythonState):
    """The part of a checkpoint that is no tensor: `get_state` of a loop as JSON text."""

    def __init__(self, loop: HostLoop):
        self.loop = loop

    def serialize(self) -> str:
        """The text that a checkpoint holds."""
        return json.dumps(self.loop.get_state())

    def deserialize(self, string_value: str) -> None:
        """Give the loop what a checkpoint holds."""
        self.loop.set_state(json.loads(string_value))


def warm_up_ends_within(agent: KytollyAgent, env_steps: int) -> bool | tf.Tensor:
    """[] bool, updates follow so many more env steps; True where there is no warm-up."""
    first = agent.cfg.first_update_env_steps
    return agent.env_steps + env_steps >= first if first else True
