"""Deep Q-learning with a target network."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.base import Loss, Policy
from kytolly.policy.batch import Transition

ESTIMATE, TARGET, PICKS = range(3)  # draws of a noisy network's noise in an update


class ActionValues(NamedTuple):
    """Reads `num_params` action values [B, A]; the most likely action is the best one."""

    num_params: int

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """[B] int32 best actions."""
        return tf.argmax(params, axis=-1, output_type=tf.int32)

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """`mode` in NumPy."""
        return np.argmax(params, axis=-1)

    def to_env(self, action: Any) -> Any:
        """The action itself."""
        return action

    host_to_env = to_env


class DQNPolicy(Policy):
    """Action values, learned towards a target network that lags behind.

    The network maps [B, *obs] to action values [B, A]. The target network is a second vector of
    weights for the same Keras model.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning".
    """

    metric_names = ("loss", "td_error", "q_mean", "grad_norm")
    gives_td_error = True

    def __init__(self, network: Any, distribution: Any, optimizer: Any, cfg: Any):
        super().__init__(network, distribution, optimizer, cfg)
        self.target_vector = tf.Variable(self.weights.vector, trainable=False, name="target")
        self.sync = tf.function(self._sync, jit_compile=cfg.xla, autograph=False)

    @classmethod
    def distribution_for(cls, cfg: Any, env_spec: EnvSpec) -> ActionValues:
        """Action values, which only Discrete actions have, and none of them masked."""
        if not isinstance(env_spec.action, Discrete) or env_spec.masked:
            from kytolly.policy.unfit import unfit_environment

            raise unfit_environment(cfg.algorithm, env_spec)
        return ActionValues(env_spec.action.count)

    @property
    def double(self) -> bool:
        """Whether the online network picks the next action of a target."""
        return self.cfg.double

    @property
    def noise_draws(self) -> int:
        """Draws of a noisy network's noise: for estimates, targets and `double`'s picks."""
        return 3 if self.double else 2

    def noisy(self, weights: list[tf.Tensor], batch: Transition | None, draw: int) -> Any:
        """The weights with one of the draws of a batch's noise, where the network has noise."""
        if not self.weights.noise_count or batch is None:
            return weights
        if isinstance(batch.network_noise, tuple):
            size = self.noise_draws * self.weights.noise_count
            raise ValueError(
                f"{self.cfg.algorithm} got a batch without noise for its noisy network, expected "
                f"[1, {size}] random numbers in [0, 1): give them as Transition(..., "
                "network_noise=numbers)."
            )
        numbers = tf.split(batch.network_noise[0], self.noise_draws)[draw]
        return self.weights.noisy_weights(weights, numbers)

    def target_weights(self, batch: Transition | None = None) -> list[tf.Tensor]:
        """The weights of the target network, with the batch's noise for them."""
        return self.noisy(self.weights.split(self.target_vector), batch, TARGET)

    def target_q(self, obs: Any, batch: Transition | None = None) -> tf.Tensor:
        """[B, A] action values of the target network, with the noise of the batch, if any."""
        return self.outputs(obs, self.target_weights(batch))[0]

    def picks(self, batch: Transition, weights: list[tf.Tensor]) -> tf.Tensor:
        """[B, A] values by which `double` picks the next action: those of the online network."""
        return self.outputs(batch.next_obs, self.noisy(weights, batch, PICKS))[0]

    def bootstrap(self, batch: Transition, weights: list[tf.Tensor]) -> tf.Tensor:
        """[B] targets: what another rule of learning overrides, and mostly nothing else."""
        next_q = self.target_q(batch.next_obs, batch)
        if not self.double:
            return q_target(batch.reward, batch.discount, next_q)
        from kytolly.policy.targets import double_q_target

        picks = self.picks(batch, weights)
        return double_q_target(batch.reward, batch.discount, picks, next_q)

    def loss(self, batch: Transition, weights: list[tf.Tensor]) -> Loss:
        """Huber loss of the temporal differences; metrics: loss, mean size, mean estimate."""
        target = self.bootstrap(batch, weights)
        q, _ = self.outputs(batch.obs, self.noisy(weights, batch, ESTIMATE), training=True)
        taken = tf.one_hot(batch.action, q.shape[-1])
        estimate = tf.reduce_sum(q * taken, axis=-1)  # a gather's gradient is a scatter: slower
        td_error = target - estimate
        weight = 1.0 if isinstance(batch.weight, tuple) else batch.weight
        loss = weighted_huber(td_error, weight, self.cfg.huber_delta)
        size = tf.reduce_mean(tf.abs(td_error))
        return Loss(loss, td_error, tf.stack([loss, size, tf.reduce_mean(estimate)]))

    def part_gradients(self, batch: Transition) -> tuple[Any, Loss]:
        """As for every policy, from the rewards times `reward_scale`."""
        scaled = batch._replace(reward=self.cfg.reward_scale * batch.reward)
        return super().part_gradients(scaled)

    def apply(self, vector: tf.Tensor) -> None:
        """One step of the optimizer, then the target network's change if it is due."""
        super().apply(vector)
        due = tf.equal(self.updates % self.cfg.target_sync_updates, 0)
        tf.cond(due, self._sync, lambda: None)

    def set_weights(self, weights: list[Any]) -> None:
        """As for every policy; the target network gets them too."""
        super().set_weights(weights)
        self.target_vector.assign(self.weights.vector)

    def _fit_step(self, batch: Transition, weight: tf.Tensor | None = None) -> Loss:
        """As for every policy; a [B] weight of the rows goes before the batch's own."""
        return super()._fit_step(batch if weight is None else batch._replace(weight=weight))

    def _sync(self) -> None:
        """Move the target network towards the online one by `target_mix`, on the device."""
        mix, old, new = self.cfg.target_mix, self.target_vector, self.weights.vector
        old.assign(new if mix == 1.0 else old + mix * (new - old))


def q_target(reward: tf.Tensor, discount: tf.Tensor, next_q: tf.Tensor) -> tf.Tensor:
    """Target that evaluates the next state at its best action.

    Args:
        reward: [B] sum of the n discounted rewards, in reward units.
        discount: [B] weight of what follows: gamma**n, or 0 where the episode
            terminated. A time limit is not a termination.
        next_q: [B, A] target network's action values at `next_obs`.

    Returns:
        [B] targets, in reward units. No gradient passes through them.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", eq. 1.
    """
    return tf.stop_gradient(reward + discount * tf.reduce_max(next_q, axis=-1))


def weighted_huber(td_error: tf.Tensor, weight: tf.Tensor | float, delta: float) -> tf.Tensor:
    """[] mean over rows of weight times Huber loss, in squared reward units.

    Quadratic up to `delta`, linear beyond: one surprising row moves the weights by a bounded
    amount.

    Args:
        td_error: [B] target minus estimate, in reward units.
        weight: [B] importance weight; 1 for uniform replay.
        delta: Where the loss turns linear, in reward units.

    Source: Huber 1964, "Robust Estimation of a Location Parameter"; Mnih et al. 2015 clip the
    error term to [-1, 1], which is this loss with delta = 1.
    """
    size = tf.abs(td_error)
    quadratic = tf.minimum(size, delta)
    return tf.reduce_mean(weight * (0.5 * quadratic * quadratic + delta * (size - quadratic)))
