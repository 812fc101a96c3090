"""What every policy is: a network, a distribution over actions, and a way to learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from kytolly.environment.mask import ACTION_MASK, without_mask
from kytolly.environment.spec import EnvSpec
from kytolly.policy.gradient import Loss, Update, gradient
from kytolly.policy.weights import FlatWeights

if TYPE_CHECKING:
    from kytolly.policy.distributions import Distribution


class Policy(tf.Module):
    """A learning rule: a function of a batch that never sees an environment or a buffer.

    A subclass says what its loss is, and what distribution it gives to an environment's actions.

    Args:
        network: Built Keras model [B, *obs] -> params [B, P], or a pair of params and values [B].
            Of a Dict observation it gets the dict without its `action_mask`.
        distribution: Reads the params.
        optimizer: Keras optimizer, not built yet.
        cfg: Configuration.
    """

    metric_names: tuple[str, ...] = ()  # of one update, the gradient's norm last
    has_value = False  # the network returns values beside params
    takes_masks = False  # actions may be masked, and observations a Dict

    def __init__(
        self,
        network: keras.Model,
        distribution: Distribution,
        optimizer: keras.optimizers.Optimizer,
        cfg: Any,
    ):
        super().__init__(name="policy")  # an algorithm may be called qr-dqn
        self.network, self.distribution, self.optimizer = network, distribution, optimizer
        self.cfg, self.max_grad_norm = cfg, cfg.max_grad_norm
        self.gradient_accumulation: int = getattr(cfg, "gradient_accumulation", 1)
        self.updates_statistics = self.normalizes(cfg)
        self.weights = FlatWeights(network, optimizer)
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")

    @classmethod
    def normalizes(cls, cfg: Any) -> bool:
        """Whether the network keeps statistics of observations, which the agent updates."""
        return False

    @classmethod
    def distribution_for(cls, cfg: Any, env_spec: EnvSpec) -> Distribution:
        """The distribution over an environment's actions; ValueError where there is none."""
        raise NotImplementedError

    def prepare(self, batch: Any) -> Any:
        """The batch as `loss` takes it, before it is split into parts."""
        return batch

    def loss(self, batch: Any, weights: list[tf.Tensor]) -> Loss:
        """The loss of a batch with the given weights, of which the gradient is taken."""
        raise NotImplementedError

    def current_weights(self) -> list[tf.Tensor]:
        """The weights that learn, as tensors: read once where many steps act with the same."""
        return self.weights.split(self.weights.vector)

    def outputs(self, obs: Any, weights: list[tf.Tensor]) -> tuple[tf.Tensor, Any]:
        """Params [B, P] of the distribution, masked, and values [B] or None, for [B, *obs]."""
        outputs = self.weights.call(weights, without_mask(obs))
        return read_outputs(outputs, self.distribution, obs)

    def act(self, obs: Any) -> tf.Tensor:
        """Params [B, P] for [B, *obs] without a mask, with the weights as they are."""
        return tf.nest.flatten(self.weights.call(self.current_weights(), obs))[0]

    def update(self, batch: Any) -> Update:
        """One update, uncompiled: for callers that are compiled themselves."""
        vector, result = gradient(self, batch)
        self.apply(vector)
        return result

    def apply(self, vector: tf.Tensor) -> None:
        """One step of the optimizer with a gradient [W]."""
        self.weights.step(vector)
        self.updates.assign_add(1)

    def keep_going(self, update: Update) -> tf.Tensor | None:
        """[] bool, whether another update of this iteration may follow; None for always."""
        return None

    def publish(self) -> None:
        """Copy the weights that learn into the Keras network, for whoever looks at it."""
        self.weights.publish()

    def set_weights(self, weights: list[Any]) -> None:
        """Give the Keras network, and what learns, the arrays of `network.get_weights()`."""
        self.network.set_weights(weights)
        self.weights.take()


def read_outputs(outputs: Any, distribution: Distribution, obs: Any) -> tuple[tf.Tensor, Any]:
    """Params [B, P], masked as `obs` says, and values [B] or None, from a network's outputs."""
    params, *value = (tf.cast(part, tf.float32) for part in tf.nest.flatten(outputs))
    if isinstance(obs, dict) and ACTION_MASK in obs:
        params = distribution.mask(params, obs[ACTION_MASK])
    return params, tf.reshape(value[0], [-1]) if value else None


def greedy_action(network: keras.Model, distribution: Distribution, obs: Any) -> tf.Tensor:
    """What [E] environments get if each takes its most likely action."""
    params, _ = read_outputs(network(without_mask(obs)), distribution, obs)
    return distribution.to_env(distribution.mode(params))
