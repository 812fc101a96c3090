"""Tiny environments with known answers, for masks, Dict observations and other actions.

As in `tests.helpers.q_learning_probes`, an agent that fails one has its fault in what it adds:

    MaskedAction        forbidden actions are never taken, and values count on what is allowed
    MaskedKinds         the masks of a MultiDiscrete's components lie in a row
    ActionKinds         a MultiDiscrete: two choices, credited together
    ContinuousAction    continuous actions: their center, their scale, their order
    DictObservation     every entry of a dict of observations reaches the network

Each is a tensor environment with two more methods:

    true_value(obs, gamma) -> [B]   value of the best policy that takes allowed actions only
    best_action(obs)                its action, as `spec.action` says: [B] or [B, D]

for observations [B, *obs] (or a dict of them) that occur. Those with a single Discrete action
also have `true_q(obs, gamma) -> [B, A]`. In a dict of observations, the mask may be left out.

A forbidden action pays `FORBIDDEN_REWARD`, below anything that can be earned, so that one look
at the rewards tells whether any was ever taken.

Source: ours, after Jones 2021, "Debugging RL, Without the Agonizing Pain", section "Probe
environments".
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

from kytolly.environment.spec import (
    ACTION_MASK,
    Box,
    Discrete,
    EnvSpec,
    MultiDiscrete,
    StepOutcome,
    TensorEnvironment,
)
from tests.helpers.q_learning_probes import StateProbe, always, random_place, random_sign

FORBIDDEN_REWARD = -10.0
Observations = dict[str, tf.Tensor]

# MaskedAction: what the actions pay, the same everywhere, and where (row: place) each is allowed.
PAYS = (1.0, -1.0, 2.0, 4.0)
ALLOWED = ((1, 1, 1, 0), (0, 1, 0, 0), (1, 0, 0, 1))

# MaskedKinds: the same for the two actions of component 0 and, after them, three of component 1.
KIND_COUNTS = (2, 3)
KIND_PAYS = (0.0, 1.0, 2.0, 0.0, 1.0)
KIND_ALLOWED = ((1, 0, 0, 1, 1), (1, 1, 1, 1, 0), (0, 1, 0, 1, 0))

RIGHT_KINDS = ((0, 2), (1, 0), (1, 1))  # ActionKinds: the pair that pays, by place


@runtime_checkable
class ValueProbe(TensorEnvironment, Protocol):
    """A tensor environment whose best actions, and the values under them, are known."""

    def true_value(self, obs: Any, gamma: float) -> np.ndarray:
        """Optimal values [B] of observations [B, *obs] under discount `gamma`."""
        ...

    def best_action(self, obs: Any) -> np.ndarray:
        """Optimal actions: [B] or [B, D] int32, or [B, D] float32."""
        ...


class MaskedAction:
    """Three places in a row; four actions, of which each place forbids some; the last ends it.

    The action that pays 4 is allowed at the last place only, and at the second one only the
    action that loses 1 is. An agent that acts or evaluates without the mask earns
    `FORBIDDEN_REWARD`; one that values the next place by its best action, allowed or not, finds
    other values.

    Observations: "place" [E, 3] one-hot and "action_mask" [E, 4].
    """

    spec = EnvSpec(
        "probe/masked-action",
        {
            "place": tf.TensorSpec([len(ALLOWED)], tf.float32),
            ACTION_MASK: tf.TensorSpec([len(PAYS)], tf.bool),
        },
        Discrete(len(PAYS)),
    )
    reset_uniforms = 1
    step_uniforms = 0

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """Places [E, 3] one-hot, all as likely."""
        return random_place(uniform, len(ALLOWED))

    def observe(self, state: tf.Tensor) -> Observations:
        """The place [E, 3] one-hot, and what it allows [E, 4]."""
        return {"place": state, ACTION_MASK: _mask(state, ALLOWED)}

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Pay of the action and on to the next place; leaving the last one ends the episode."""
        allowed = tf.gather(_mask(state, ALLOWED), action, batch_dims=1)
        reward = tf.where(allowed, tf.gather(tf.constant(PAYS), action), FORBIDDEN_REWARD)
        return tf.roll(state, 1, axis=-1), reward, state[:, -1] > 0.5

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """Pay plus the discounted value of the next place, [B, 4].

        Forbidden actions have the value that taking them once would have.
        """
        pays = np.where(ALLOWED, PAYS, FORBIDDEN_REWARD)
        q = np.zeros((len(ALLOWED) + 1, len(PAYS)))
        for place in reversed(range(len(ALLOWED))):
            q[place] = pays[place] + gamma * q[place + 1].max()
        return q[_place(obs)].astype(np.float32)

    def true_value(self, obs: Any, gamma: float) -> np.ndarray:
        """Discounted sum of the best allowed pays from the place to the end, [B]."""
        return self.true_q(obs, gamma).max(axis=1)

    def best_action(self, obs: Any) -> np.ndarray:
        """The allowed action that pays most, [B]: 2, then 1, then 3."""
        return np.argmax(np.where(ALLOWED, PAYS, -np.inf), axis=1)[_place(obs)].astype(np.int32)


class MaskedKinds:
    """Three places; two action components, of 2 and of 3, with some forbidden; one step.

    The reward is the sum of what the two chosen actions pay, or `FORBIDDEN_REWARD` if either is
    forbidden. An agent that splits the mask at the wrong place, or in the wrong order, takes
    forbidden ones; one that ignores it prefers the second action of component 0.

    Observations: "place" [E, 3] one-hot and "action_mask" [E, 2 + 3].
    """

    spec = EnvSpec(
        "probe/masked-kinds",
        {
            "place": tf.TensorSpec([len(KIND_ALLOWED)], tf.float32),
            ACTION_MASK: tf.TensorSpec([sum(KIND_COUNTS)], tf.bool),
        },
        MultiDiscrete(KIND_COUNTS),
    )
    reset_uniforms = 1
    step_uniforms = 0

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """Places [E, 3] one-hot, all as likely."""
        return random_place(uniform, len(KIND_ALLOWED))

    def observe(self, state: tf.Tensor) -> Observations:
        """The place [E, 3] one-hot, and what it allows [E, 5]."""
        return {"place": state, ACTION_MASK: _mask(state, KIND_ALLOWED)}

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """The two pays together, and the end."""
        choice = action + tf.constant([0, KIND_COUNTS[0]])
        allowed = tf.gather(_mask(state, KIND_ALLOWED), choice, batch_dims=1)
        pay = tf.reduce_sum(tf.gather(tf.constant(KIND_PAYS), choice), axis=-1)
        reward = tf.where(tf.reduce_all(allowed, axis=-1), pay, FORBIDDEN_REWARD)
        return state, reward, always(state)

    def true_value(self, obs: Any, gamma: float) -> np.ndarray:
        """Sum of the best allowed pays of the two components, [B]."""
        first, second = np.split(self._allowed_pays(), [KIND_COUNTS[0]], axis=1)
        return (first.max(axis=1) + second.max(axis=1))[_place(obs)].astype(np.float32)

    def best_action(self, obs: Any) -> np.ndarray:
        """The allowed action of each component that pays most, [B, 2]."""
        first, second = np.split(self._allowed_pays(), [KIND_COUNTS[0]], axis=1)
        best = np.stack([first.argmax(axis=1), second.argmax(axis=1)], axis=1)
        return best[_place(obs)].astype(np.int32)

    def _allowed_pays(self) -> np.ndarray:
        return np.where(KIND_ALLOWED, KIND_PAYS, -np.inf)


class ActionKinds(StateProbe):
    """Three places, each with one right pair of a 2-fold and a 3-fold action; one step.

    The right pair pays 1 and all others 0, so neither component can be credited without the other.
    Observations are one-hot places [E, 3].
    """

    spec = EnvSpec(
        "probe/action-kinds",
        tf.TensorSpec([len(RIGHT_KINDS)], tf.float32),
        MultiDiscrete((2, 3)),
        reward_threshold=1.0,
    )
    reset_uniforms = 1

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """Places [E, 3] one-hot, all as likely."""
        return random_place(uniform, len(RIGHT_KINDS))

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """1 for the right pair, and the end."""
        right = tf.gather(tf.constant(RIGHT_KINDS), tf.argmax(state, axis=-1))
        reward = tf.cast(tf.reduce_all(tf.equal(action, right), axis=-1), tf.float32)
        return state, reward, always(state)

    def true_value(self, obs: Any, gamma: float) -> np.ndarray:
        """Ones [B], whatever gamma is."""
        return np.ones(len(obs), np.float32)

    def best_action(self, obs: Any) -> np.ndarray:
        """The right pair, [B, 2]."""
        return np.array(RIGHT_KINDS, np.int32)[np.argmax(obs, axis=-1)]


class ContinuousAction(StateProbe):
    """The observation is a number from -1 to 1, the action two numbers; one step.

    For x, the right numbers are 1.5 x and 0.5 - x; the reward is minus the squared distance from
    them. The range of the second (-1 to 2) has another width than the first (-2 to 2), and its
    center is not 0, so actions that are scaled, shifted or swapped miss. The best reward is 0; a
    policy that draws around the right numbers with standard deviations s earns minus the sum of
    s^2.
    """

    spec = EnvSpec(
        "probe/continuous-action",
        tf.TensorSpec([1], tf.float32),
        Box((-2.0, -1.0), (2.0, 2.0)),
        reward_threshold=-0.05,
    )
    reset_uniforms = 1

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """Numbers [E, 1] uniform in [-1, 1)."""
        return uniform * 2.0 - 1.0

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """Minus the squared distance from the right numbers, and the end."""
        right = tf.concat([1.5 * state, 0.5 - state], axis=-1)
        reward = -tf.reduce_sum(tf.math.squared_difference(action, right), axis=-1)
        return state, reward, always(state)

    def true_value(self, obs: Any, gamma: float) -> np.ndarray:
        """Zeros [B], whatever gamma is."""
        return np.zeros(len(obs), np.float32)

    def best_action(self, obs: Any) -> np.ndarray:
        """The right numbers, [B, 2]."""
        shown = np.array(obs, np.float32).reshape(-1, 1)
        return np.concatenate([1.5 * shown, 0.5 - shown], axis=1)


class DictObservation:
    """Two entries, a sign and a place of two; action 1 is right if they agree, else action 0.

    The right action pays 1 and the other -1. Either entry alone says nothing of which it is.

    Observations: "sign" [E, 1], and "picture" [E, 2, 1], one-hot along its first axis.
    """

    spec = EnvSpec(
        "probe/dict-observation",
        {"sign": tf.TensorSpec([1], tf.float32), "picture": tf.TensorSpec([2, 1], tf.float32)},
        Discrete(2),
        reward_threshold=1.0,
    )
    reset_uniforms = 2
    step_uniforms = 0

    def reset(self, uniform: tf.Tensor) -> tf.Tensor:
        """Two signs [E, 2], each as likely."""
        return random_sign(uniform)

    def observe(self, state: tf.Tensor) -> Observations:
        """The first sign as it is [E, 1], the second as a place [E, 2, 1]."""
        second = state[:, 1:]
        picture = tf.cast(tf.concat([second < 0.0, second > 0.0], axis=-1), tf.float32)
        return {"sign": state[:, :1], "picture": picture[:, :, tf.newaxis]}

    def step(self, state: tf.Tensor, action: tf.Tensor, uniform: tf.Tensor) -> StepOutcome:
        """1 or -1, and the end."""
        agree = state[:, 0] * state[:, 1]
        return state, agree * (2.0 * tf.cast(action, tf.float32) - 1.0), always(state)

    def true_q(self, obs: Any, gamma: float) -> np.ndarray:
        """[-1, 1] where the entries agree, [1, -1] elsewhere; [B, 2]."""
        sign = np.array(obs["sign"], np.float32)
        picture = np.array(obs["picture"], np.float32)
        agree = sign * (picture[:, 1] - picture[:, 0])
        return np.concatenate([-agree, agree], axis=1)

    def true_value(self, obs: Any, gamma: float) -> np.ndarray:
        """Ones [B], whatever gamma is."""
        return self.true_q(obs, gamma).max(axis=1)

    def best_action(self, obs: Any) -> np.ndarray:
        """1 where the entries agree, else 0; [B]."""
        return self.true_q(obs, 0.0).argmax(axis=1).astype(np.int32)


def _mask(place: tf.Tensor, allowed: tuple[tuple[int, ...], ...]) -> tf.Tensor:
    """What one-hot places [E, P] allow by a table [P, A]: [E, A] bool."""
    return tf.matmul(place, tf.constant(allowed, tf.float32)) > 0.5


def _place(obs: Any) -> np.ndarray:
    """Numbers [B] of the places of a dict of observations."""
    return np.argmax(obs["place"], axis=-1)


PPO_PROBES: tuple[type[ValueProbe], ...] = (
    MaskedAction,
    MaskedKinds,
    ActionKinds,
    ContinuousAction,
    DictObservation,
)
