"""Gymnasium environments on the host, learning in compiled programs.

An on-policy algorithm collects a rollout with one set of weights and then learns from it in one
call. Another one learns from a rollout while the next is collected (`loop.overlap`), because
entering a compiled program costs more than a small network's update.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from kytolly.agent.acting import HostActor
from kytolly.agent.kytolly import KytollyAgent
from kytolly.environment.gym.step import HostEnv
from kytolly.loop.collector import Collector, collect_together
from kytolly.loop.learn import learn
from kytolly.loop.metrics import LoopMetrics
from kytolly.loop.overlap import Overlap
from kytolly.loop.program import Program
from kytolly.policy.batch import rollout_spec


class HostLoop:
    """Collects with Gymnasium environments and learns on the device.

    A call of the program learns from `block` iterations, one after the other. It is more than one
    where learning and collecting overlap: see `acting_interval_env_steps` of the config.

    Where the network has no NumPy twin, collecting and learning take turns: TensorFlow acts on the
    threads that a learner would hold.

    Args:
        agent: The learner; its state changes in place.
        groups: Adapters around the environments, each with equally many.
        device: Where learning runs, such as "/GPU:0"; None leaves it to TensorFlow.
    """

    def __init__(self, agent: KytollyAgent, groups: Sequence[HostEnv], device: str | None = None):
        self.agent, self.groups, cfg = agent, list(groups), agent.cfg
        policy = agent.policy
        self.actor = HostActor(
            policy.network,
            policy.distribution,
            agent.env_spec.obs,
            lambda obs: policy.outputs(obs, policy.current_weights())[0],
        )
        overlaps = agent.memory.allows_lag and self.actor.twin is not None
        self.block = cfg.iterations_between_acting_weights if overlaps else 1
        self.env_steps_per_iteration = self.block * cfg.env_steps_per_iteration
        self.specs = tf.nest.map_structure(
            lambda s: tf.TensorSpec([self.block, cfg.rollout_steps, *s.shape], s.dtype),
            rollout_spec(agent.env_spec, cfg.num_envs, keeps_log_prob=False),
        )
        signature = [tf.TensorSpec([], tf.int32), *tf.nest.flatten(self.specs)]
        self.program = Program(self._learn, signature, cfg.xla, device)
        self.overlap = Overlap(self.program, signature[1:]) if overlaps else None
        self.collectors: list[Collector] = []
        self._state = np.zeros(0)

    def run(self, env_steps: int) -> LoopMetrics:
        """Collect at least `env_steps` env steps in whole blocks, and learn; 0 only compiles."""
        if not self.collectors:
            self._start()
        blocks = -(-env_steps // self.env_steps_per_iteration)
        if blocks == 0:
            return LoopMetrics.zeros(self.agent)
        if self.overlap is not None:
            metrics = self.overlap.run(blocks, self._collect, self._take)
        else:
            metrics = LoopMetrics.zeros(self.agent)
            for _ in range(blocks):
                sums, packed = self.program(tf.constant(1), *map(tf.constant, self._collect()))
                self._take(packed.numpy())
                metrics = metrics.plus(sums)
        episodes = np.sum([collector.take_episodes() for collector in self.collectors], axis=0)
        self.agent.episodes.assign_add(int(episodes[0]))
        return metrics._replace(
            episodes=int(episodes[0]),
            episode_return=np.float32(episodes[1]),
            episode_length=int(episodes[2]),
        )

    @property
    def trackables(self) -> dict[str, tf.Module]:
        """What a checkpoint holds beside the agent: nothing, a resumed run begins new episodes."""
        return {}

    @property
    def xla(self) -> bool:
        """Whether learning is compiled with XLA; known after the first call."""
        return self.program.xla

    def close(self) -> None:
        """End the learning thread and close the environments."""
        if self.overlap is not None:
            self.overlap.close()
        for group in self.groups:
            group.close()

    def _start(self) -> None:
        """Compile without learning, and begin the first episodes."""
        nothing = [tf.zeros(spec.shape, spec.dtype) for spec in tf.nest.flatten(self.specs)]
        self._take(self.program(tf.constant(0), *nothing)[1].numpy())
        cfg, done = self.agent.cfg, int(self.agent.env_steps.numpy())
        self.agent.memory.end_episodes()
        self.collectors = [
            Collector(
                self.agent,
                self.actor,
                env,
                np.random.default_rng([cfg.seed, 4, group, done]),
                self.block * cfg.rollout_steps,
            )
            for group, env in enumerate(self.groups)
        ]

    def _collect(self) -> list[np.ndarray]:
        """The columns of a block, each [block, T, E, ...]."""
        rollout = collect_together(self.collectors, self._state)
        leaves = zip(tf.nest.flatten(rollout), tf.nest.flatten(self.specs), strict=True)
        return [
            leaf.reshape(spec.shape).astype(spec.dtype.as_numpy_dtype, copy=False)
            for leaf, spec in leaves
        ]

    def _take(self, packed: np.ndarray) -> None:
        """Act from now on with the weights and the exploration's state that `_learn` returned."""
        count = len(packed) - len(self.agent.exploration.metric_names)
        self._state = packed[count:]
        self.actor.take(packed[:count])

    def _learn(self, count: tf.Tensor, *leaves: tf.Tensor) -> tuple[LoopMetrics, tf.Tensor]:
        """Learn from a block, `count` times: 1, or 0 to compile.

        Returns the metrics, and in one vector what `_take` needs: one copy to the host.
        """
        agent = self.agent
        columns = tf.nest.pack_sequence_as(self.specs, leaves)

        def iteration(index, metrics):
            rollout = tf.nest.map_structure(lambda column: tf.gather(column, index), columns)
            bits = agent.random_stream.bits(agent.memory.draws)
            return index + 1, learn(agent, rollout, bits, metrics)

        metrics = tf.while_loop(
            lambda index, _: index < self.block * count,
            iteration,
            (tf.constant(0), LoopMetrics.zeros(agent)),
        )[1]
        state = agent.exploration.state(agent.env_steps)
        return metrics, tf.concat([agent.policy.weights.pack(), state], axis=0)
