"""Collects rollouts from Gymnasium environments on the host."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.agent.acting import HostActor
from kytolly.agent.exploration import Exploration
from kytolly.agent.kytolly import KytollyAgent
from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.saved_state import NotSavable
from kytolly.environment.gym.step import HostEnv, HostStep
from kytolly.loop.limits import OutOfTime
from kytolly.policy.base import ActionReader
from kytolly.policy.batch import Rollout, map_columns, present, with_present

# Observations, actions, the step, and which actions were random, if anybody wants to know.
Row = tuple[Any, np.ndarray, HostStep, np.ndarray | None]


class Behavior(NamedTuple):
    """What collecting takes of an agent, whose variables it does not touch.

    Attributes:
        exploration, distribution: Of the agent.
        allows_lag: Rows that a rollout has too many may wait for the next one.
        discount: The weight of what follows, from what terminated [T, E].
    """

    exploration: Exploration
    distribution: ActionReader
    allows_lag: bool
    discount: Callable[[np.ndarray], np.ndarray]

    @classmethod
    def of(cls, agent: KytollyAgent) -> Behavior:
        """That of an agent."""
        distribution = agent.policy.distribution
        return cls(agent.exploration, distribution, agent.memory.allows_lag, agent.discount)


class EpisodeEnds:
    """What a loop asks of a collector about the episodes that ended.

    Args:
        num_envs: Environments, `E`.
    """

    def __init__(self, num_envs: int):
        self._cut, self._episodes = np.zeros(num_envs, bool), np.zeros(3)

    def take_cut(self) -> np.ndarray:
        """[E] bool, since the last call an episode ended with the last row of a rollout."""
        cut, self._cut = self._cut, np.zeros_like(self._cut)
        return cut

    def take_episodes(self) -> np.ndarray:
        """[3] count, summed returns and summed lengths of the episodes since the last call."""
        sums, self._episodes = self._episodes, np.zeros(3)
        return sums


class Collector(EpisodeEnds):
    """Acts for one group of environments and remembers their steps.

    Some vector environments spend a step on a reset (`HostEnv.has_dummy_steps`): such a row is no
    transition. It is left out: a rollout goes on until every environment has enough rows. What the
    faster ones have too many is kept for the next rollout, unless it must come from one policy. An
    environment that has another rollout's rows already loses whole episodes.

    The step of an environment that failed and was made anew is such a row, too. Its episode ends
    with the previous row, or, if another rollout has taken that one, `take_cut` says so.

    Args:
        behavior: Of the agent.
        actor: The network on the host.
        env: Adapter around the group's environments.
        rng: Source of the exploration's noise.
        steps: Length of a rollout, in steps of each environment, `T`.

    Attributes:
        deadline: `time.perf_counter()` after which no step begins: OutOfTime is raised.
    """

    collects_elsewhere = False  # a rollout may begin before the previous one has come

    def __init__(
        self,
        behavior: Behavior,
        actor: HostActor,
        env: HostEnv,
        rng: np.random.Generator,
        steps: int,
    ):
        super().__init__(env.num_envs)
        self.exploration, self.distribution = behavior.exploration, behavior.distribution
        self.actor, self.env, self.rng, self.steps = actor, env, rng, steps
        self._discount, self._keeps_rest = behavior.discount, behavior.allows_lag
        self._state = np.zeros(0)
        self._noise: Sequence[Any] = ()
        self._time = 0
        self._explored = self.exploration.explored if self.exploration.gives_explored else None
        self._step_explored: np.ndarray | None = None
        self._valid = np.zeros(env.num_envs, int)  # rows of each environment
        self.deadline = math.inf
        self.begin_episodes()

    def begin_episodes(self, seed: int | None = None) -> None:
        """Begin a new episode in every environment."""
        self._open = False  # whether a rollout has begun and is not complete
        self._obs = self.env.reset(seed)
        self._rows: list[Row] = []
        self._valid[:] = 0

    def begin_rollout(self, state: np.ndarray) -> None:
        """Draw the noise of a rollout for an exploration in the given `state`."""
        if self._open:
            raise RuntimeError("a rollout was interrupted: begin new episodes")
        if not self._keeps_rest:
            self._rows.clear()
            self._valid[:] = 0
        self._open = True
        self._state, self._time = state, 0
        self._noise = self.exploration.host_noise(self.rng, (self.steps, self.env.num_envs), state)

    @property
    def complete(self) -> bool:
        """True once every environment has its rows."""
        if self.env.has_dummy_steps:
            return bool((self._valid >= self.steps).all())
        return self._time >= self.steps

    def take_steps(self) -> None:
        """Take the steps of a rollout, one after the other."""
        if self.env.has_dummy_steps:
            while not self.complete:
                self.begin_step()
                self.finish_step()
            return
        choose, to_env = self.exploration.host_action, self.actor.to_env
        params, step, obs = self.actor.params, self.env.step, self._obs
        explored = self._explored
        if self.deadline < math.inf:
            step = self._step_in_time
        for noise in self._noise:
            action = choose(params, obs, noise)
            outcome = step(to_env(action, obs))
            self._rows.append((obs, action, outcome, explored(noise) if explored else None))
            obs = outcome.obs
        self._obs, self._time = obs, self.steps

    def begin_step(self) -> None:
        """Choose actions and let the environments begin."""
        if self.deadline < math.inf:
            self._look_at_clock()
        if self._time < self.steps:
            noise = self._noise[self._time]
        else:
            shape = (1, self.env.num_envs)
            noise = self.exploration.host_noise(self.rng, shape, self._state)[0]
        self._step_explored = self._explored(noise) if self._explored else None
        self._action = self.exploration.host_action(self.actor.params, self._obs, noise)
        self.env.begin_step(self.actor.to_env(self._action, self._obs))

    def finish_step(self) -> None:
        """Wait for the environments and remember what happened."""
        step = self.env.finish_step()
        self._time += 1
        self._rows.append((self._obs, self._action, step, self._step_explored))
        self._obs = step.obs
        if self.env.has_dummy_steps:
            self._valid += step.valid
            if step.ended.any():
                self._count_episodes([step], step.ended[np.newaxis])
                for env in np.flatnonzero(step.ended & ~step.valid):
                    self._end_previous_row(int(env))

    def rollout(self) -> Rollout:
        """The rows of the rollout, [T, E, ...] arrays."""
        observations, actions, steps, explored = zip(*self._rows, strict=True)
        outcomes = HostStep._make(zip(*steps, strict=True))
        reward = stack_time(outcomes.reward)
        columns = Rollout(
            obs=stack_time(observations),
            action=stack_time(actions),
            reward=np.sign(reward) if self.env.spec.clips_rewards else reward,
            discount=self._discount(stack_time(outcomes.terminated)),
            next_obs=stack_time(outcomes.next_obs),
            last=stack_time(outcomes.ended),
            explored=None if self._explored is None else stack_time(explored),
        )
        self._open = False
        if self.env.has_dummy_steps:
            columns = self._without_dummies(columns, stack_time(outcomes.valid))
        else:
            self._count_episodes(steps, columns.last)
            self._rows.clear()
        if self.env.spec.frame_stack:
            require_stack(columns.obs[0], columns.next_obs[0], self.env.spec.name)
        return columns

    def get_state(self) -> dict[str, Any]:
        """Everything between two rollouts that the next one depends on."""
        if self._open:
            raise NotSavable("the run was stopped within a rollout")
        rows = [
            (obs, action, tuple(step), *([] if explored is None else [explored]))
            for obs, action, step, explored in self._rows
        ]
        obs, rows = tf.nest.map_structure(np.array, (self._obs, rows))  # no views of one array
        return {"rng": self.rng, "obs": obs, "rows": rows, "env": self.env}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._obs = state["obs"]
        self._rows = [  # of older runs three columns
            (obs, action, HostStep(*step), explored[0] if explored else None)
            for obs, action, step, *explored in state["rows"]
        ]
        self._valid[:] = sum(step.valid for _, _, step, _ in self._rows)

    def _step_in_time(self, action: np.ndarray) -> HostStep:
        self._look_at_clock()
        return self.env.step(action)

    def _look_at_clock(self) -> None:
        if time.perf_counter() > self.deadline:
            raise OutOfTime

    def _end_previous_row(self, env: int) -> None:
        for index in reversed(range(len(self._rows))):
            obs, action, step, explored = self._rows[index]
            if step.valid[env]:
                ended = step.ended.copy()
                ended[env] = True
                self._rows[index] = obs, action, step._replace(ended=ended), explored
                return
        self._cut[env] = True

    def _count_episodes(self, steps: Sequence[HostStep], ended: np.ndarray) -> None:
        for row, env in zip(*ended.nonzero(), strict=True):
            step = steps[row]
            self._episodes += (1, step.episode_return[env], step.episode_length[env])

    def _without_dummies(self, columns: Rollout, valid: np.ndarray) -> Rollout:
        """The first `T` rows of every environment that are transitions."""
        places = [np.flatnonzero(valid[:, env])[: self.steps] for env in range(valid.shape[1])]
        times, envs = np.stack(places, axis=1), np.arange(valid.shape[1])
        self._forget_until(times[-1], valid, columns.last)
        return map_columns(lambda column: column[times, envs], columns)

    def _forget_until(self, taken: np.ndarray, valid: np.ndarray, ended: np.ndarray) -> None:
        """Keep what comes after the rows taken, as steps whose earlier rows are not valid."""
        left = valid & (np.arange(len(valid))[:, np.newaxis] > taken)
        for env in np.flatnonzero(left.sum(axis=0) > self.steps):
            rows = np.flatnonzero(left[:, env])
            ends = rows[ended[rows, env]]
            if len(ends):  # what is left stays consecutive: an end, and the beginning of an episode
                left[ends[0] + 1 : ends[-1] + 1, env] = False
        times = np.flatnonzero(left.any(axis=1))
        first = int(times[0]) if len(times) else len(left)
        rest, left = self._rows[first:], left[first:]
        self._rows = [
            (obs, action, step._replace(valid=row), explored)
            for (obs, action, step, explored), row in zip(rest, left, strict=True)
        ]
        self._valid = left.sum(axis=0)


def stack_time(parts: Any) -> Any:
    """[T, E, ...] from `T` arrays [E, ...], or the same for each entry of dicts."""
    if isinstance(parts[0], dict):
        return {name: stack_time([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts).reshape(len(parts), *parts[0].shape)


def collect_together(collectors: list[Collector], state: np.ndarray) -> Rollout:
    """A rollout [T, E, ...] of all groups: one group's environments step while another acts."""
    for collector in collectors:
        collector.begin_rollout(state)
    if len(collectors) == 1:
        collectors[0].take_steps()
        return collectors[0].rollout()
    for collector in collectors:
        collector.begin_step()
    waiting = list(collectors)
    while waiting:
        for collector in waiting:
            collector.finish_step()
            if not collector.complete:
                collector.begin_step()
        waiting = [collector for collector in waiting if not collector.complete]
    parts = [collector.rollout() for collector in collectors]
    columns = zip(*map(present, parts), strict=True)
    return with_present(parts[0], [np.concatenate(leaves, axis=1) for leaves in columns])


def require_stack(obs: np.ndarray, next_obs: np.ndarray, name: str) -> None:
    """Refuse [E, H, W, K] frames that the step did not move by one: the memory keeps each once."""
    if not np.array_equal(next_obs[..., :-1], obs[..., 1:]):
        raise EnvironmentFault(
            f"{name} has a space of stacked frames, and an observation does not begin with the "
            f"{obs.shape[-1] - 1} newest frames of the one before: a wrapper changes them. Let it "
            "set observation_space to a gymnasium.spaces.Box, and whole stacks are kept."
        )
