"""On-policy learning from Gymnasium environments on the host.

A rollout is collected with one set of weights, in NumPy where the network allows it; then one
call of a compiled program makes advantages and all epochs of updates from it. Nothing is learnt
while a rollout is collected: on-policy means that the weights stand still. Where the copies run in
processes of their own, they are two groups, and one steps while the policy acts for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.acting import HostActor, drawn_noise, sampled, to_env
from kytolly.agent.ppo_agent import PPOAgent
from kytolly.agent.rollout_buffer import RolloutBuffer
from kytolly.environment.gym.step import HostEnv, HostStep
from kytolly.loop.learn import learn_rollout, rollout_draws
from kytolly.loop.metrics import EndedEpisodes, LoopMetrics
from kytolly.loop.program import Program
from kytolly.policy.batch import Rollout


class RolloutHostLoop:
    """Collects rollouts with Gymnasium environments and learns from each in one call.

    Args:
        agent: The learner; its state changes in place.
        groups: Adapters around the environments, each with equally many copies.
        device: Where learning runs, such as "/GPU:0"; None leaves it to TensorFlow.
    """

    def __init__(self, agent: PPOAgent, groups: Sequence[HostEnv], device: str | None = None):
        self.agent, self.groups = agent, list(groups)
        cfg = agent.cfg
        self.actor = HostActor(agent.policy.network, agent.env_spec.obs, np.asarray)
        buffer = RolloutBuffer(
            agent.env_spec, cfg.num_envs, cfg.rollout_steps, keeps_log_prob=False
        )
        self.specs = buffer.rollout_spec
        signature = [tf.TensorSpec([], tf.int32), *tf.nest.flatten(self.specs)]
        self.program = Program(self._learn, signature, cfg.xla, device)
        self.collectors: list[GroupCollector] = []

    def run(self, env_steps: int) -> LoopMetrics:
        """Collect at least `env_steps` env steps in whole rollouts, and learn; 0 only compiles."""
        if not self.collectors:
            self._start()
        metrics = LoopMetrics.zeros(self.agent)
        for _ in range(-(-env_steps // self.agent.cfg.env_steps_per_rollout)):
            rollout = self._collect()
            learnt, weights = self.program(tf.constant(1), *self._tensors(rollout))
            self.actor.take(weights.numpy())
            metrics = metrics.plus(learnt)
        episodes = np.sum([c.episodes.take() for c in self.collectors], axis=0)
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
        """Close the environments."""
        for group in self.groups:
            group.close()

    def _start(self) -> None:
        """Compile without learning, and begin the first episodes."""
        nothing = tf.nest.map_structure(
            lambda s: np.zeros(s.shape, s.dtype.as_numpy_dtype), self.specs
        )
        self.program(tf.constant(0), *self._tensors(nothing))
        self.actor.refresh()
        cfg, done = self.agent.cfg, int(self.agent.env_steps.numpy())
        self.collectors = [
            GroupCollector(
                self.agent, self.actor, env, np.random.default_rng([cfg.seed, 4, i, done])
            )
            for i, env in enumerate(self.groups)
        ]

    def _collect(self) -> Rollout:
        for collector in self.collectors:
            collector.begin_rollout()
        # In turns, so that the copies of one group step while the policy acts for the next.
        for collector in self.collectors:
            collector.begin_step()
        waiting = list(self.collectors)
        while waiting:
            for collector in waiting:
                collector.finish_step()
                if not collector.complete:
                    collector.begin_step()
            waiting = [collector for collector in waiting if not collector.complete]
        parts = [collector.rollout() for collector in self.collectors]
        if len(parts) == 1:
            return parts[0]
        return tf.nest.map_structure(lambda *leaves: np.concatenate(leaves, axis=1), *parts)

    def _tensors(self, rollout: Rollout) -> list[tf.Tensor]:
        leaves, specs = tf.nest.flatten(rollout), tf.nest.flatten(self.specs)
        return [tf.constant(x, spec.dtype) for x, spec in zip(leaves, specs, strict=True)]

    def _learn(self, count: tf.Tensor, *leaves: tf.Tensor) -> tuple[LoopMetrics, tf.Tensor]:
        """Learn from one rollout, `count` times: 1, or 0 to compile; then `HostActor.packed`."""
        agent = self.agent
        rollout = tf.nest.pack_sequence_as(self.specs, leaves)
        metrics = tf.while_loop(
            lambda done, _: done < count,
            lambda done, sums: (
                done + 1,
                learn_rollout(agent, rollout, agent.random_stream.bits(rollout_draws(agent)), sums),
            ),
            (tf.constant(0), LoopMetrics.zeros(agent)),
        )[1]
        return metrics, self.actor.packed()


class GroupCollector:
    """Acts for one group of copies and remembers their steps.

    Dummy steps, which some vector environments spend on resets, are left out: a rollout goes on
    until every copy has enough rows, and what the faster copies have too many is dropped.

    Args:
        agent: Gives settings and distribution; its variables are not touched.
        actor: The network on the host.
        env: Adapter around the group's copies.
        rng: Source of the actions' noise.
    """

    def __init__(self, agent: PPOAgent, actor: HostActor, env: HostEnv, rng: np.random.Generator):
        self.actor, self.env, self.rng = actor, env, rng
        self.distribution, self.cfg = agent.policy.distribution, agent.cfg
        self._obs = env.reset()
        self._noise: Any = ()
        self._rows: list[tuple[Any, np.ndarray, HostStep]] = []
        self._steps_of_each = np.zeros(env.num_envs, int)
        self._all_valid = True
        self.episodes = EndedEpisodes()

    def begin_rollout(self) -> None:
        """Forget the last rollout and draw the noise of the next."""
        self._rows, self._all_valid = [], True
        self._steps_of_each[:] = 0
        shape = (self.cfg.rollout_steps, self.env.num_envs)
        self._noise = drawn_noise(self.distribution, shape, self.rng, self.cfg.noise_correlation)

    @property
    def complete(self) -> bool:
        """Whether every copy has its rows."""
        enough = len(self._rows) >= self.cfg.rollout_steps
        return enough and (
            self._all_valid or bool((self._steps_of_each >= self.cfg.rollout_steps).all())
        )

    def begin_step(self) -> None:
        """Act for all copies and let them begin."""
        time = len(self._rows)
        if time < self.cfg.rollout_steps:
            noise = self._noise[time]
        else:
            noise = drawn_noise(self.distribution, (1, self.env.num_envs), self.rng)[0]
        self._action = sampled(self.distribution, self.actor.outputs(self._obs), noise)
        self.env.begin_step(to_env(self.distribution, self._action))

    def finish_step(self) -> None:
        """Wait for the copies and remember what happened."""
        step = self.env.finish_step()
        self._rows.append((self._obs, self._action, step))
        self._obs = step.obs
        self._steps_of_each += step.valid
        self._all_valid = self._all_valid and bool(step.valid.all())
        self.episodes.add(step)

    def rollout(self) -> Rollout:
        """The rows of the rollout, [T, E, ...]."""
        steps = [step for _, _, step in self._rows]
        discount = np.where(np.stack([s.terminated for s in steps]), 0.0, self.cfg.gamma)
        columns = Rollout(
            obs=stacked([obs for obs, _, _ in self._rows]),
            action=np.stack([action for _, action, _ in self._rows]),
            reward=np.stack([s.reward for s in steps]),
            discount=discount.astype(np.float32),
            next_obs=stacked([s.next_obs for s in steps]),
            last=np.stack([s.ended for s in steps]),
        )
        if self._all_valid:
            return columns
        valid = np.stack([s.valid for s in steps])
        first = [
            np.flatnonzero(valid[:, e])[: self.cfg.rollout_steps] for e in range(valid.shape[1])
        ]
        times, copies = np.stack(first, axis=1), np.arange(valid.shape[1])
        return tf.nest.map_structure(lambda column: column[times, copies], columns)


def stacked(observations: list[Any]) -> Any:
    """[T, E, *obs] from `T` observations, or the same for each entry of dicts."""
    return tf.nest.map_structure(lambda *parts: np.stack(parts), *observations)
