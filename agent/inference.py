"""Actions and estimates of an agent, for whoever has one: nothing here trains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from kytolly.agent.acting import HostActor, HostObs, ObsSpec
from kytolly.agent.exploration import Exploration
from kytolly.agent.raw_observation import Observation, as_in_training, entries, wrong_shape
from kytolly.environment.mask import ACTION_MASK, MASKED_LOGIT, without_mask
from kytolly.environment.memory import has_memory
from kytolly.environment.spec import EnvSpec, MultiDiscrete
from kytolly.policy.base import ActionReader, read_outputs
from kytolly.policy.distributions import Distribution

if TYPE_CHECKING:
    from kytolly.agent.memory_state import MemoryStates, State

Seed = int | np.random.Generator | None


class InferencePolicy:
    """Acts, and says what it thinks of observations and actions.

    Every method takes one observation, or a batch of them, as the environment returns them: an
    array or a number, for Dict observations a dict of these, `action_mask` among them where there
    are masks, and for Tuple observations a tuple. A batch is what a vector environment returns, or
    a list of dicts or tuples. An environment that has its masks beside its observation is asked
    about {"observation": obs, "action_mask": mask}. For one observation the results lack the axis
    `B`. Whatever training does to observations (one-hot numbers, normalization) and to actions
    (masks, bounds) is inside; observations that are one-hot already, as floats, are taken too.

    Args:
        network: Built Keras model whose output, or first output, is [B, P].
        distribution: Reads the params.
        env_spec: The spec of the environment that trains the network.
        exploration: How to act where the best action is not asked for.
        learns: The network's weights may change: they are read anew at every call.
        reward_scale: Factor by which action values are larger than returns.
    """

    def __init__(
        self,
        network: keras.Model,
        distribution: ActionReader,
        env_spec: EnvSpec,
        exploration: Exploration,
        learns: bool = False,
        reward_scale: float | tf.Variable = 1.0,
    ):
        obs_spec: ObsSpec = env_spec.obs
        self.network, self.distribution, self.obs_spec = network, distribution, obs_spec
        self._memory: MemoryStates | None = None
        if has_memory(obs_spec):
            from kytolly.agent.memory_state import MemoryStates

            self._memory = MemoryStates(env_spec)
            env_spec = self._memory.plain
        self.exploration, self.learns, self.reward_scale = exploration, learns, reward_scale
        self._actor = HostActor(network, distribution, obs_spec)
        self._rng = np.random.default_rng()
        specs = env_spec.obs if isinstance(env_spec.obs, dict) else {"": env_spec.obs}
        self._forms = {
            name: (tuple(spec.shape), np.dtype(spec.dtype.as_numpy_dtype))
            for name, spec in specs.items()
        }
        self._encodings = dict(env_spec.encodings)
        self._action_encoding = env_spec.action_encoding
        counts = env_spec.action.counts if isinstance(env_spec.action, MultiDiscrete) else (0,)
        self._first_values = np.cumsum((0, *counts[:-1]))  # of an action mask's components
        batch = tf.nest.map_structure(lambda s: tf.TensorSpec([None, *s.shape], s.dtype), obs_spec)
        self._outputs = tf.function(
            lambda obs: read_outputs(network(without_mask(obs)), distribution, obs),
            autograph=False,
            input_signature=[batch],
        )

    def initial_state(self, count: int = 1) -> dict[str, np.ndarray]:
        """The state of an agent with a memory in `count` episodes that begin, for `act`."""
        if self._memory is None:
            raise ValueError(
                "initial_state() was called, and this agent has no memory, expected one that was "
                "trained with memory='gru', 'lstm' or 'lru'. Call act(obs) alone."
            )
        return self._memory.initial(count)

    def act(
        self,
        obs: Observation,
        deterministic: bool = True,
        seed: Seed = None,
        *,
        state: State | None = None,
        first: ArrayLike | None = None,
        reward: ArrayLike | None = None,
    ) -> Any:
        """The action for one observation, or [B, ...] actions, as training's environments got them.

        So a Discrete space that begins at 5 gives 5 for its first action, and a space of several
        axes an array of its shape.

        Args:
            obs: One observation, or a batch of them.
            deterministic: Take the most likely action, or the one of the highest value. Else draw
                from the policy's distribution; an agent that learns action values takes any action
                with probability `epsilon_final`, which is its exploration when training ends.
                Stable-Baselines3's `predict` does the same.
            seed: Of the draws of this call, or a `numpy.random.Generator`; None goes on with the
                agent's own generator, which nobody has seeded.
            state: What an agent with a memory remembers: `initial_state(B)`, or what the previous
                call returned.
            first: [B] bool or one for all, an episode begins: its state counts for nothing.
            reward: [B] of the previous step, for an agent that was trained with `memory_inputs`.

        Returns:
            For one observation what an environment's `step` takes: an int, or an array [D]. An
            agent with a memory gives a pair: that, and the next state.
        """
        batch, is_one = self._batch(obs, "act", state, first, reward)
        if deterministic:
            raw = self.distribution.host_mode(self._actor.params(batch))
        else:
            rng = self._rng if seed is None else np.random.default_rng(seed)
            explore = self.exploration
            noise = explore.host_noise(rng, (1, rows_of(batch)), explore.final_state)[0]
            raw = explore.host_action(self._actor.params, batch, noise)
        actions = self.distribution.host_to_env(raw)
        action = actions if self._action_encoding is None else self._action_encoding.action(actions)
        if is_one:
            action = int(action[0]) if isinstance(action[0], np.integer) else action[0]
        if self._memory is None:
            return action
        return action, self._memory.after(self._actor.next_memory(batch), actions)

    def host_action(self, obs: HostObs) -> Any:
        """What a `HostEnv` takes for its own observations [E, *obs]: the most likely actions."""
        if self.learns:
            self._actor.refresh()
        return self._actor.greedy(obs)

    def values(self, obs: Observation, *, state: State | None = None) -> float | np.ndarray:
        """[B] expected discounted return of the observations, in reward units; a float for one.

        It is what the network says of the state or, where it gives action values, the highest. With
        `normalize_rewards` it is in units of the normalized rewards, and Munchausen's bonus counts.
        """
        batch, is_one = self._batch(obs, "values", state)
        if isinstance(self.distribution, Distribution):
            values = self._outputs(batch)[1].numpy()
        else:
            values = self._actor.params(batch).max(axis=-1) / float(self.reward_scale)
        return float(values[0]) if is_one else values

    def q_values(self, obs: Observation, *, state: State | None = None) -> np.ndarray:
        """[B, A] action values, in the units of `values`; -inf of actions that a mask forbids.

        Raises:
            ValueError: The agent has learned a distribution over actions, no action values.
        """
        if isinstance(self.distribution, Distribution):
            raise ValueError(
                "q_values() was called, and this agent has no action values, expected one of the "
                f"DQN family. It has {self._methods()}."
            )
        batch, is_one = self._batch(obs, "q_values", state)
        params = self._actor.params(batch)
        values = np.where(params > MASKED_LOGIT, params / float(self.reward_scale), -np.inf)
        return values[0] if is_one else values

    def log_prob(
        self, obs: Observation, action: ArrayLike, *, state: State | None = None
    ) -> float | np.ndarray:
        """[B] log-probability, or log-density, of actions as `act` returns them; a float for one.

        Continuous actions that are clipped to their bounds count as what they are, not as the
        number beyond the bound that was drawn.

        Raises:
            ValueError: The agent has learned action values, no distribution.
        """
        distribution = self._action_distribution("log_prob")
        batch, is_one = self._batch(obs, "log_prob", state)
        params = self._actor.params(batch)
        taken = np.asarray(action)[np.newaxis] if is_one else np.asarray(action)
        encoding, expected = self._action_encoding, distribution.host_mode(params).shape
        if encoding is not None:
            expected = (len(params), *encoding.shape)
        if taken.shape != expected:
            raise ValueError(
                f"log_prob() got actions of shape {np.shape(action)}, expected "
                f"{expected[1:] if is_one else expected}: those that act() returns."
            )
        raw = distribution.host_from_env(taken if encoding is None else encoding.numbers(taken))
        log_prob = distribution.log_prob(tf.constant(params), tf.constant(raw)).numpy()
        return float(log_prob[0]) if is_one else log_prob

    def action_probabilities(self, obs: Observation, *, state: State | None = None) -> np.ndarray:
        """[B, A] probabilities of discrete actions; of MultiDiscrete ones, one after another.

        Raises:
            ValueError: Actions are continuous, or the agent has learned action values.
        """
        distribution = self._action_distribution("action_probabilities")
        if distribution.num_scales:
            raise ValueError(
                "action_probabilities() was called, and the actions of this agent are continuous: "
                f"they have densities. It has {self._methods()}."
            )
        batch, is_one = self._batch(obs, "action_probabilities", state)
        probability = distribution.host_probabilities(self._actor.params(batch))
        return probability[0] if is_one else probability

    def _methods(self) -> str:
        if not isinstance(self.distribution, Distribution):
            return "act, values and q_values"
        discrete = "" if self.distribution.num_scales else ", action_probabilities"
        return f"act, values{discrete} and log_prob"

    def _action_distribution(self, method: str) -> Distribution:
        if not isinstance(self.distribution, Distribution):
            raise ValueError(
                f"{method}() was called, and this agent has no distribution over actions, expected "
                f"one of the PPO family. It has {self._methods()}."
            )
        return self.distribution

    def _batch(
        self,
        given: Observation,
        method: str,
        state: State | None = None,
        first: ArrayLike | None = None,
        reward: ArrayLike | None = None,
    ) -> tuple[HostObs, bool]:
        """The observations as the network takes them, and whether it was one alone."""
        batch, is_one = self._checked(given, method)
        if self._memory is not None:
            beside = self._memory.beside(batch, rows_of(batch), state, first, reward, method)
            return beside, is_one
        for name, value in (("state", state), ("first", first), ("reward", reward)):
            if value is not None:
                raise ValueError(
                    f"{method}() got {name}=..., and this agent has no memory, expected none: call "
                    f"{method}(obs)."
                )
        return batch, is_one

    def _checked(self, given: Observation, method: str) -> tuple[HostObs, bool]:
        """The observations with the batch axis, in the spec's dtypes; whether it was one alone."""
        if self.learns:
            self._actor.refresh()
        if (
            type(given) is np.ndarray
            and (given.shape, given.dtype) == self._forms.get("")
            and math.isfinite(np.vdot(given, given))
        ):
            return given[np.newaxis], True  # the usual call, in half of the time
        raw = {"": given} if "" in self._forms else entries(given, self._forms, method)
        parts = {name: self._array(raw[name], name, method) for name in self._forms}
        if all(part.shape == self._forms[name][0] for name, part in parts.items()):
            is_one, parts = True, {name: part[np.newaxis] for name, part in parts.items()}
        elif len({part.shape[:1] for part in parts.values()}) == 1 and all(
            part.shape[1:] == self._forms[name][0] for name, part in parts.items()
        ):
            is_one = False
        else:
            expected = {name: shape for name, (shape, _) in self._forms.items()}
            raise wrong_shape(method, raw, parts, expected, self._encodings)
        if ACTION_MASK in parts:
            possible = np.logical_or.reduceat(parts[ACTION_MASK], self._first_values, axis=-1)
            if not possible.all():
                component = int(np.argmin(possible.reshape(-1, possible.shape[-1]).all(axis=0)))
                where = f" of component {component}" if possible.shape[-1] > 1 else ""
                raise ValueError(
                    f"{method}() got an action_mask that forbids all actions{where}, expected one "
                    "that allows an action at least."
                )
        return parts.get("", parts), is_one

    def _array(self, given: Observation, name: str, method: str) -> np.ndarray:
        """One entry in its dtype; ValueError where it is not made of finite numbers."""
        dtype, entry = self._forms[name][1], f" {name!r}" if name else ""
        if name in self._encodings:
            given = as_in_training(np.asarray(given), self._encodings[name], name, method)
        try:
            found = np.asarray(given)
            part = found if found.dtype == dtype else found.astype(dtype)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{method}() got an observation{entry} that is not numbers ({error}), expected an "
                f"array of {dtype}."
            ) from None
        if dtype.kind == "f":
            if not math.isfinite(np.vdot(part, part)) and not np.isfinite(part).all():
                raise ValueError(
                    f"{method}() got an observation{entry} with NaN or infinite numbers, expected "
                    "finite ones: look at the environment that gave it."
                )
        elif found is not part and not np.array_equal(found, part):
            raise ValueError(
                f"{method}() got an observation{entry} of {found.dtype} with numbers that {dtype} "
                f"cannot hold, expected {dtype} as in training."
            )
        return part


def rows_of(batch: HostObs) -> int:
    """Rows of a batch of observations, `B`."""
    return len(next(iter(batch.values())) if isinstance(batch, Mapping) else batch)
