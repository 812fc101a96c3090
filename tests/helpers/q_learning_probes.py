"""Tiny environments whose action values are known; each asks one thing more than the last.

An agent that fails one has its fault in what the environment adds:

    ConstantReward      the loss and the optimizer reach a value at all
    ObservationReward   the observation reaches the network
    DelayedReward       values are discounted and bootstrapped
    BestAction          the better action is learned and taken
    ObservationAction   observation and action together
    EndlessReward       a time limit is no termination: its value is bootstrapped
    Corridor            n-step sums stop at a termination
    Ring                n-step sums stop at a time limit, and bootstrap from its last observation
    Gamble              a large penalty is learned, though it is rare

Each is a tensor environment with one more method, `true_q(obs [B, *obs], gamma) -> [B, A]`: the
action values of the best policy in the world without time limits, for observations that occur.
Observations are one float Box and actions Discrete throughout, all of them allowed:
`tests.helpers.on_policy_probes` continues with the others.

Source: the ladder follows Jones 2021, "Debugging RL, Without the Agonizing Pain", section "Probe
environments"; the last three are ours.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

from kytolly.environment.spec import Discrete, EnvSpec, StepOutcome, TensorEnvironment

CORRIDOR_REWARDS = (1.0, -2.0, 4.0, 0.5, 3.0)
RING_REWARDS = (3.0, -1.0, 0.5)


@runtime_checkable
class ProbeEnvironment(TensorEnvironment, Protocol):
    """A tensor environment whose action values are known."""

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """Optimal action values [B, A] of observations [B, *obs] under discount `gamma`."""
        ...


def _spec(name: str, size: int, num_actions: int, **settings: Any) -> EnvSpec:
    return EnvSpec(
        "probe/" + name, tf.TensorSpec([size], tf.float32), Discrete(num_actions), **settings
    )


class StateProbe:
    """What most probes share: observations are the state, which begins as [E, 1] zeros."""

    reset_uniforms = 0
    step_uniforms = 0

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """Zeros [E, 1]."""
        return tf.zeros([uniform.shape[0], 1])

    def observe(self, state: tf.Tensor) -> tf.Tensor:
        """The state itself."""
        return state


class SignProbe(StateProbe):
    """A probe whose state is -1 or 1."""

    reset_uniforms = 1

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """Signs [E, 1], either as likely."""
        return random_sign(uniform)


class ConstantReward(StateProbe):
    """One observation (0), one action, one step, reward 1: the value is 1."""

    spec = _spec("constant-reward", 1, 1, reward_threshold=1.0)

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Reward 1 and the end."""
        reward = tf.ones_like(state[:, 0])
        return state, reward, reward > 0.0

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """Ones [B, 1], whatever gamma is."""
        return np.ones((len(obs), 1), np.float32)


class ObservationReward(SignProbe):
    """Observation -1 or 1, one action, one step; the reward, and so the value, is the observation.

    A network that cannot tell the two apart answers 0.
    """

    spec = _spec("observation-reward", 1, 1)

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """The sign as reward, and the end."""
        return state, state[:, 0], always(state)

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """The observation itself, [B, 1]."""
        return np.array(obs, np.float32).reshape(-1, 1)


class Gamble(StateProbe):
    """Observation 0, two actions, one step: reward 1, or 2 and in one case of fifty -300."""

    spec = _spec("gamble", 1, 2)
    step_uniforms = 1

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """The reward and the end."""
        gamble = tf.where(uniform[:, 0] < 0.02, -300.0, 2.0)
        return state, tf.where(action == 0, 1.0, gamble), always(state)

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """The mean rewards, whatever gamma is."""
        return np.tile(np.float32([1.0, 0.98 * 2.0 - 0.02 * 300.0]), (len(obs), 1))


class DelayedReward(StateProbe):
    """Observation 0, then 1; one action; reward 0, then 1 and the end: values gamma, then 1."""

    spec = _spec("delayed-reward", 1, 1, reward_threshold=1.0)

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Reward 1 and the end at the second step."""
        second = state[:, 0] > 0.5
        return tf.ones_like(state), tf.cast(second, tf.float32), second

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """Gamma where the observation is 0, 1 where it is 1; [B, 1]."""
        return np.where(np.array(obs).reshape(-1, 1) > 0.5, 1.0, gamma).astype(np.float32)


class BestAction(StateProbe):
    """Observation 0, two actions, one step: reward -1 for action 0 and 1 for action 1.

    The better action is the one that a tie, or an argmax over equal values, does not pick.
    """

    spec = _spec("best-action", 1, 2, reward_threshold=1.0)

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """-1 or 1 by the action, and the end."""
        return state, 2.0 * tf.cast(action, tf.float32) - 1.0, always(state)

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """[-1, 1] in every row."""
        return np.tile(np.array([[-1.0, 1.0]], np.float32), (len(obs), 1))


class ObservationAction(SignProbe):
    """Observation -1 or 1, two actions, one step: reward 1 if the action has the sign, else -1.

    Action 0 goes with -1 and action 1 with 1, so each action alone is worth 0 on average.
    """

    spec = _spec("observation-action", 1, 2, reward_threshold=1.0)

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """The product of the two signs, and the end."""
        return state, state[:, 0] * (2.0 * tf.cast(action, tf.float32) - 1.0), always(state)

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """[-obs, obs], [B, 2]."""
        sign = np.array(obs, np.float32).reshape(-1, 1)
        return np.concatenate([-sign, sign], axis=1)


class EndlessReward(StateProbe):
    """Observation 0, one action, reward 1 at every step, cut off by a time limit of 5 steps.

    The value is 1 / (1 - gamma). An agent that takes the limit for a termination finds less: for
    gamma 0.9 at most 4.1 instead of 10.
    """

    spec = _spec("endless-reward", 1, 1, max_episode_steps=5, reward_threshold=5.0)

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Reward 1, and no end."""
        reward = tf.ones_like(state[:, 0])
        return state, reward, reward < 0.0

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """1 / (1 - gamma), [B, 1]."""
        return np.full((len(obs), 1), 1.0 / (1.0 - gamma), np.float32)


class Corridor(StateProbe):
    """Five places in a row, passed one after the other; each pays its reward, the last ends it.

    Observations are one-hot places, with one action. Episodes begin at a random place, so an
    n-step sum that runs on into the next episode, or that keeps its bootstrap beyond the end,
    finds other values: of place 4, for instance, 3 plus a mean of what the next episode pays.
    """

    spec = _spec("corridor", len(CORRIDOR_REWARDS), 1)
    reset_uniforms = 1

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """Places [E, 5] one-hot, all as likely."""
        return random_place(uniform, len(CORRIDOR_REWARDS))

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """On to the next place; leaving the last one ends the episode."""
        reward = tf.linalg.matvec(state, tf.constant(CORRIDOR_REWARDS))
        return tf.roll(state, 1, axis=-1), reward, state[:, -1] > 0.5

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """Discounted sum of the rewards from the place to the end, [B, 1]."""
        value = np.zeros(len(CORRIDOR_REWARDS) + 1)
        for place in reversed(range(len(CORRIDOR_REWARDS))):
            value[place] = CORRIDOR_REWARDS[place] + gamma * value[place + 1]
        return value[np.argmax(obs, axis=-1)][:, np.newaxis].astype(np.float32)


class Ring(StateProbe):
    """Three places in a circle, passed without end; a time limit of 4 steps cuts it into episodes.

    Observations are one-hot places, with one action. Episodes begin at a random place, mostly
    not the one after the last. Right values need n-step sums that stop at the limit and
    bootstrap from the place that it was reached at, with as many powers of gamma as steps.
    """

    spec = _spec("ring", len(RING_REWARDS), 1, max_episode_steps=4)
    reset_uniforms = 1

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """Places [E, 3] one-hot, all as likely."""
        return random_place(uniform, len(RING_REWARDS))

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """On to the next place, and no end."""
        reward = tf.linalg.matvec(state, tf.constant(RING_REWARDS))
        return tf.roll(state, 1, axis=-1), reward, tf.zeros_like(reward, tf.bool)

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """Discounted sum of one lap, over 1 minus the discount of a lap; [B, 1]."""
        count = len(RING_REWARDS)
        powers = gamma ** np.arange(count)
        laps = [np.dot(powers, np.roll(RING_REWARDS, -place)) for place in range(count)]
        value = np.array(laps) / (1.0 - gamma**count)
        return value[np.argmax(obs, axis=-1)][:, np.newaxis].astype(np.float32)


def random_sign(uniform: tf.Tensor) -> tf.Tensor:
    """-1 or 1, either as likely, of the shape of the draws in [0, 1)."""
    return tf.where(uniform < 0.5, -1.0, 1.0)


def random_place(uniform: tf.Tensor, count: int) -> tf.Tensor:
    """One-hot [E, count] from [E, 1] draws in [0, 1)."""
    place = tf.cast(uniform * float(count), tf.int32)
    return tf.cast(tf.equal(tf.range(count), place), tf.float32)


def always(state: tf.Tensor) -> tf.Tensor:
    """True [E] for a state [E, S]: every step ends the episode."""
    return tf.ones_like(state[:, 0], tf.bool)


PROBES: tuple[type[ProbeEnvironment], ...] = (
    ConstantReward,
    ObservationReward,
    DelayedReward,
    BestAction,
    ObservationAction,
    EndlessReward,
    Corridor,
    Ring,
)
