"""Acting while learning by values of actions: what every exploration is, and epsilon-greedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import randint, uniform
from kytolly.agent.schedules import Schedule, linear_schedule, linear_share
from kytolly.environment.mask import ACTION_MASK, MASKED_LOGIT
from kytolly.policy.action_values import ActionValues

if TYPE_CHECKING:  # what an algorithm does not need is not loaded for it
    from kytolly.agent.acting import HostObs
    from kytolly.config.dqn import DQNConfig
    from kytolly.config.pqn import PQNConfig
    from kytolly.policy.batch import Rollout

    HostParams = Callable[..., np.ndarray]  # [E, *obs] -> [E, P], of a noisy network with its noise


ROUNDING = 1e-6  # by which epsilon may miss its end
REPEATS = (1, 1, 1, 2, 4, 8, 16, 32)  # steps that random actions may last, equally likely
# While rewards hardly differ, little says which actions are better: random ones go farther.
DIFFERENT = 10  # rewards, after which it has been found what there is to learn
SEARCHING_REPEATS = (8, 8, 16, 16, 16, 32, 32, 32)
SEARCHING_EPSILON = 0.2  # at least


class Exploration(Protocol):
    """The step from the params of a distribution to the actions of `E` environments.

    Its noise is drawn for a whole rollout, and then taken step by step.
    """

    num_random_words: int  # uint32 words for an action
    gives_log_prob: bool  # `action` says how probable its actions were
    gives_explored: bool  # `explored` says which actions were random
    metric_names: tuple[str, ...]
    final_state: np.ndarray  # as `state` when exploration has fallen

    def observe(self, rollout: Rollout) -> None:
        """Take note of what was seen."""
        ...

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[L] float32 what exploration depends on after so many env steps: its metrics."""
        ...

    def noise(self, random_bits: tf.Tensor, env_steps: tf.Tensor) -> Any:
        """A structure of [T, E, ...] tensors, from [T, E, num_random_words] words."""
        ...

    def explored(self, noise: Any) -> Any:
        """[T, E] or, of a step's noise, [E] bool which actions are random, by tensors or arrays."""
        ...

    def action(self, params: tf.Tensor, noise: Any) -> tuple[tf.Tensor, tf.Tensor | None]:
        """[E, ...] raw actions, and their [E] log-probabilities or None, from [E, P] and a step."""
        ...

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> Sequence[Any]:
        """The noise that `host_action` takes for each of the `T` steps of a `shape` (T, E)."""
        ...

    def host_action(self, params: HostParams, obs: HostObs, noise: Any) -> np.ndarray:
        """[E, ...] raw actions for [E, *obs]; `params` gives [E, P] where they are needed."""
        ...


def allowed_action(allowed: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    """[E] int32 actions at [E] places in [0, 1) among the `allowed` ones of [E, A] bool."""
    ranks = tf.cumsum(tf.cast(allowed, tf.int32), axis=-1)
    count = ranks[:, -1]
    rank = tf.minimum(tf.cast(place * tf.cast(count, tf.float32), tf.int32), count - 1)
    return tf.reduce_sum(tf.cast(ranks <= rank[:, tf.newaxis], tf.int32), axis=-1)


def host_allowed_action(allowed: np.ndarray, place: np.ndarray) -> np.ndarray:
    """`allowed_action` in NumPy."""
    ranks = np.cumsum(allowed, axis=-1)
    count = ranks[:, -1]
    rank = np.minimum((place * count).astype(int), count - 1)
    return (ranks <= rank[:, np.newaxis]).sum(axis=-1)


def deciding_steps(steps: int, repeats: Any) -> Any:
    """[T] or, for [E, 1] `repeats`, [E, T] the step whose exploration each step has."""
    return np.arange(steps) // repeats * repeats


class EpsilonGreedy(tf.Module):
    """The best action, or with probability epsilon any one: epsilon is 1 until learning begins.

    The params of `distribution` are action values, one for each action. Whether to explore, and by
    which action, holds for `exploration_repeat` steps of a rollout; without that number for one of
    `REPEATS`, drawn for each rollout and environment, for `exploration_env_steps`. Until
    `DIFFERENT` rewards differed from the first epsilon does not fall below `SEARCHING_EPSILON`, and
    the number is one of `SEARCHING_REPEATS`. Where actions are masked, what holds is a place among
    those that are allowed.

    Source: Dabney, Ostrovski & Barreto 2020, arXiv:2006.01782, "Temporally-Extended epsilon-Greedy
    Exploration", with lengths that end with the rollout.
    """

    num_random_words = 2  # uint32 words for an action: whether to explore, and which action
    gives_log_prob = False
    metric_names = ("epsilon",)

    def __init__(
        self,
        cfg: DQNConfig | PQNConfig,
        distribution: ActionValues,
        schedule: Schedule | None = None,
    ):
        """Make the exploration that a config asks for.

        Args:
            cfg: Config.
            distribution: Reads the values.
            schedule: Of epsilon once learning has begun, in place of the config's linear fall.
        """
        super().__init__(name="epsilon_greedy")
        self.cfg, self.distribution, self.schedule = cfg, distribution, schedule
        self.num_actions = distribution.num_params
        self.gives_explored = cfg.cuts_n_step
        middle = cfg.epsilon_final if cfg.epsilon_middle is None else cfg.epsilon_middle
        self.middle = middle if schedule is None else schedule.least
        self.falls_above = float(self.middle) + ROUNDING  # epsilon, while it falls fast
        self.rewards: tf.Variable | None = None  # the first one, and how many differed from it
        searches = schedule is None and cfg.exploration_repeat is None
        if searches and cfg.epsilon_final > 0.0:  # who wants no random actions gets none
            self.rewards = tf.Variable([np.nan, 0.0], trainable=False, name="rewards")
            self.metric_names = ("epsilon", "searching")
        # As `state` when exploration has fallen.
        self.final_state = np.array([cfg.epsilon_final, 0.0])[: len(self.metric_names)]

    def observe(self, rollout: Rollout) -> None:
        """Count the rewards that differ from the first; after a termination they are 0."""
        if self.rewards is not None:
            before, reward = self.rewards, rollout.reward
            first = tf.where(tf.math.is_nan(before[0]), reward[0, 0], before[0])
            differs = (reward != first) | ((rollout.discount == 0.0) & (reward != 0.0))
            count = tf.reduce_sum(tf.cast(differs, tf.float32))
            self.rewards.assign([first, before[1] + count])

    def state(self, env_steps: tf.Tensor) -> tf.Tensor:
        """[L] epsilon after so many env steps, and 1 while it searches; see `metric_names`."""
        cfg, learned = self.cfg, env_steps - self.cfg.first_update_env_steps
        if self.schedule is not None:
            scheduled = self.schedule(env_steps)
        else:
            scheduled = linear_schedule(
                cfg.epsilon_start, self.middle, cfg.exploration_env_steps, learned
            )
            if cfg.epsilon_middle is not None:
                later = cfg.first_update_env_steps + cfg.exploration_env_steps
                rest = max(cfg.total_env_steps - later, 1)
                fallen = linear_share(rest, env_steps - later)
                scheduled -= fallen * (cfg.epsilon_middle - cfg.epsilon_final)
        epsilon = tf.where(learned < 0, 1.0, scheduled)
        if self.rewards is None:
            return epsilon[tf.newaxis]
        searches = (learned >= 0) & (self.rewards[1] < DIFFERENT)
        epsilon = tf.where(searches, tf.maximum(epsilon, SEARCHING_EPSILON), epsilon)
        return tf.stack([epsilon, tf.cast(searches, tf.float32)])

    def noise(self, random_bits: tf.Tensor, env_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[T, E] bool whether to explore, and [T, E] random actions, from [T, E, 2] words.

        They are int32, or where actions are masked float32 places in [0, 1) among the allowed ones.
        """
        repeat, state = self.cfg.exploration_repeat, self.state(env_steps)
        if repeat is None:  # by the lowest bits, of which no other number is made
            drawn = tf.cast(random_bits[0, :, 0], tf.int64) % len(REPEATS)
            lengths = tf.constant(REPEATS)
            if self.rewards is not None:
                lengths = tf.where(state[1] > 0.0, SEARCHING_REPEATS, lengths)
            repeats = tf.where(state[0] > self.falls_above, tf.gather(lengths, drawn), 1)
            deciding = deciding_steps(random_bits.shape[0], repeats[:, tf.newaxis])
            by_env = tf.gather(tf.transpose(random_bits, [1, 0, 2]), deciding, batch_dims=1)
            random_bits = tf.transpose(by_env, [1, 0, 2])
        elif repeat > 1:
            random_bits = tf.gather(random_bits, deciding_steps(random_bits.shape[0], repeat))
        explores = uniform(random_bits[..., 0]) < state[0]
        if self.distribution.masked:
            return explores, uniform(random_bits[..., 1])
        return explores, randint(random_bits[..., 1], tf.constant(self.num_actions))

    def explored(self, noise: Any) -> Any:
        """[T, E] or, of a step's noise, [E] bool which actions are random."""
        return noise[0]

    def action(
        self, params: tf.Tensor, noise: tuple[tf.Tensor, tf.Tensor]
    ) -> tuple[tf.Tensor, None]:
        """[E] int32 actions from action values [E, A] and [E] noise; no log-probabilities."""
        explores, random_action = noise
        if self.distribution.masked:
            random_action = allowed_action(params > MASKED_LOGIT, random_action)
        return tf.where(explores, random_action, self.distribution.mode(params)), None

    def host_noise(
        self, rng: np.random.Generator, shape: tuple[int, int], state: np.ndarray
    ) -> list[Any]:
        """The noise that `host_action` takes for each of the `T` steps of a `shape` (T, E)."""
        explores = rng.random(shape) < state[0]
        if self.distribution.masked:
            actions = rng.random(shape, np.float32)
        else:
            actions = rng.integers(self.num_actions, size=shape)
        repeat = self.cfg.exploration_repeat
        if repeat is None:
            lengths = np.array(SEARCHING_REPEATS if state[1:].any() else REPEATS)
            drawn = lengths[rng.integers(len(lengths), size=(shape[1], 1))]
            deciding = deciding_steps(shape[0], np.where(state[0] > self.falls_above, drawn, 1)).T
            explores = np.take_along_axis(explores, deciding, 0)
            actions = np.take_along_axis(actions, deciding, 0)
        elif repeat > 1:
            deciding = deciding_steps(shape[0], repeat)
            explores, actions = explores[deciding], actions[deciding]
        return list(zip(explores, actions, strict=True))

    def host_action(
        self, params: HostParams, obs: HostObs, noise: tuple[np.ndarray, np.ndarray]
    ) -> np.ndarray:
        """[E] actions for [E, *obs]; `params` gives [E, A] values where they are needed."""
        explores, action = noise
        if self.distribution.masked:
            action = host_allowed_action(obs[ACTION_MASK], action)
        if explores.all():
            return action
        best = self.distribution.host_mode(params(obs))
        return np.where(explores, action, best) if explores.any() else best
