"""What every policy is: a network, a distribution over actions, and a way to learn."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from kytolly.environment.mask import ACTION_MASK, without_mask
from kytolly.policy.weights import FlatWeights, clip_factor, concatenate, squared_norm

FEW_PARTS = 6  # gradients of so many weights are squared apart: that fuses with what made them


class Loss(NamedTuple):
    """What a policy makes of a batch with its weights before an update."""

    loss: Any  # [] to be minimized
    td_error: Any  # [B] target minus estimate, in reward units; () where there is none
    metrics: Any  # [F] the policy's `metric_names`; from `Policy.loss` all but the gradient's norm


class Policy(tf.Module):
    """A learning rule: a function of a batch that never sees an environment or a buffer.

    A subclass says what its loss is, and by a class method `distribution_for(cfg, env_spec)` which
    distribution an environment's actions get, or in a ValueError why there is none.

    Args:
        network: Built Keras model [B, *obs] -> params [B, P], or a pair of params and values [B].
            Of a Dict observation it gets the dict without its `action_mask`.
        distribution: Reads the params.
        optimizer: Keras optimizer, not built yet.
        cfg: Configuration.
    """

    metric_names: tuple[str, ...] = ()  # of one update, the gradient's norm last
    has_value = False  # the network returns values beside params
    keeps_log_prob = False  # a row says how probable its action was
    keeps_value = False  # a row says what value was expected, as acting gives it at no cost
    gives_td_error = False  # a loss says by how much each row's estimate is wrong
    takes_masks = False  # actions may be masked, and observations a Dict

    def __init__(self, network: keras.Model, distribution: Any, optimizer: Any, cfg: Any):
        super().__init__(name="policy")  # an algorithm may be called qr-dqn
        self.network, self.distribution, self.optimizer = network, distribution, optimizer
        self.cfg, self.weights = cfg, make_weights(network, cfg)
        optimizer.build([self.weights.variable])  # else the first update traces twice
        self.skips_overflow = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
        self.fit_step = tf.function(self._fit_step, jit_compile=cfg.xla, autograph=False)

    @property
    def noise_draws(self) -> int:
        """Draws of a noisy network's noise for an update."""
        return 0

    @property
    def network_noise(self) -> int:
        """Random numbers of a noisy network for an update; 0 where its weights have no noise."""
        count = self.weights.noise_count
        return self.noise_draws * count if count else 0

    def loss(self, batch: Any, weights: list[tf.Tensor]) -> Loss:
        """The loss of a batch with the given weights, of which the gradient is taken."""
        raise NotImplementedError

    def current_weights(self) -> list[tf.Tensor]:
        """The weights that learn, as tensors: read once where many steps act with the same."""
        return self.weights.split(self.weights.vector)

    def acting_weights(self, noise: tf.Tensor | None) -> Any:
        """The weights to act with; of a noisy network by [E, N] numbers in [0, 1)."""
        weights = self.current_weights()
        return self.weights.row_weights(weights, noise) if self.weights.noise_count else weights

    def outputs(self, obs: Any, weights: Any, **options: Any) -> tuple[tf.Tensor, Any]:
        """Params [B, P] of the distribution, masked, and values [B] or None, for [B, *obs]."""
        outputs = self.weights.call(weights, without_mask(obs), **options)
        return read_outputs(outputs, self.distribution, obs)

    def weight_gradients(self, batch: Any) -> tuple[Any, Loss]:
        """The gradient of each weight, or of all in one vector, times the loss scale, and the loss.

        With `gradient_accumulation` K the rows are taken in K parts, one after the other, which
        needs the memory of one part and gives the gradient of all rows together.
        """
        if self.cfg.gradient_accumulation == 1:
            return self.part_gradients(batch)
        from kytolly.policy.accumulation import accumulated_gradient

        count = self.cfg.gradient_accumulation
        vector, metrics, td_error = accumulated_gradient(self, batch, count)
        return vector, Loss(metrics[0], td_error, metrics)

    def part_gradients(self, batch: Any) -> tuple[Any, Loss]:
        """The gradient of each weight, times the optimizer's loss scale, and the loss."""
        weights = self.current_weights()
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            loss = self.loss(batch, weights)
            scaled = self.optimizer.scale_loss(loss.loss)
        zero = tf.UnconnectedGradients.ZERO
        return tape.gradient(scaled, weights, unconnected_gradients=zero), loss

    def gradient(self, batch: Any) -> tuple[tf.Tensor, Loss]:
        """The clipped gradient [W] of the loss, times the loss scale, and the loss."""
        parts, loss = self.weight_gradients(batch)
        vector = concatenate(parts)
        squares = [squared_norm(part) for part in (parts if len(parts) <= FEW_PARTS else [vector])]
        norm, loss_scale = tf.sqrt(tf.add_n(squares)), self.optimizer.scale_loss(1.0)
        if self.cfg.max_grad_norm is not None:
            vector *= clip_factor(norm, self.cfg.max_grad_norm * loss_scale)
        return vector, loss._replace(metrics=tf.concat([loss.metrics, [norm / loss_scale]], 0))

    def update(self, batch: Any) -> Loss:
        """One update, uncompiled: for callers that are compiled themselves."""
        vector, loss = self.gradient(batch)
        self.apply(vector)
        return loss

    def apply(self, vector: tf.Tensor) -> None:
        """One step of the optimizer with a gradient [W]."""
        self.optimizer.apply([vector], [self.weights.variable])
        self.updates.assign_add(1)

    def keep_going(self, update: Loss) -> tf.Tensor | None:
        """[] bool, whether another update of this iteration may follow; None for always."""
        return None

    def publish(self) -> None:
        """Copy the weights that learn into the Keras network, for whoever looks at it."""
        self.weights.publish()

    def set_weights(self, weights: list[Any]) -> None:
        """Give the Keras network, and what learns, the arrays of `network.get_weights()`."""
        self.network.set_weights(weights)
        self.weights.take()

    def begin_with(self, weights: list[Any]) -> None:
        """Begin training with the arrays of another run's `network.get_weights()`."""
        self.set_weights(weights)

    def _fit_step(self, batch: Any) -> Loss:
        """One update from a batch; the Keras network follows."""
        loss = self.update(batch)
        self.publish()
        return loss


def make_weights(network: keras.Model, cfg: Any) -> Any:
    """The weights of a network as a config's policy learns them."""
    if not getattr(cfg, "noisy", False):
        return FlatWeights(network)
    from kytolly.policy.noisy_weights import NoisyWeights

    return NoisyWeights(network)


def read_outputs(outputs: Any, distribution: Any, obs: Any) -> tuple[tf.Tensor, Any]:
    """Params [B, P], masked as `obs` says, and values [B] or None, from a network's outputs."""
    params, *value = (tf.cast(part, tf.float32) for part in tf.nest.flatten(outputs))
    if isinstance(obs, dict) and ACTION_MASK in obs:
        params = distribution.mask(params, obs[ACTION_MASK])
    return params, tf.reshape(value[0], [-1]) if value else None


def greedy_action(network: keras.Model, distribution: Any, obs: Any) -> tf.Tensor:
    """What [E] environments get if each takes its most likely action."""
    params, _ = read_outputs(network(without_mask(obs)), distribution, obs)
    return distribution.to_env(distribution.mode(params))
