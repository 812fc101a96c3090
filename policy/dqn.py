"""Deep Q-learning with a target network."""

from __future__ import annotations

import keras
import tensorflow as tf

from kytolly.config.dqn import DQNConfig
from kytolly.policy import losses, targets
from kytolly.policy.base import FitResult
from kytolly.policy.batch import Transition, transition_spec
from kytolly.policy.clipping import clipped_by_global_norm


class DQNPolicy(tf.Module):
    """Online and target network, optimiser and the compiled step that joins them.

    Args:
        q_network: Built Keras model [B, *obs] -> [B, A].
        target_network: A built model of the same architecture; its weights are overwritten.
        optimizer: Keras optimiser.
        cfg: Settings.
        obs_spec: Shape and dtype of one observation.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning".
    """

    figure_names = ("loss", "td_error", "q_mean", "grad_norm")

    def __init__(
        self,
        q_network: keras.Model,
        target_network: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        cfg: DQNConfig,
        obs_spec: tf.TensorSpec,
    ):
        super().__init__(name="dqn")
        self.cfg = cfg
        self.online = q_network
        self.target = target_network
        self.target.set_weights(self.online.get_weights())
        self.target.trainable = False
        self.optimizer = optimizer
        self.optimizer.build(self.online.trainable_variables)  # else fit_step traces twice
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
        signature = [
            transition_spec(obs_spec, cfg.batch_size),
            tf.TensorSpec([cfg.batch_size], tf.float32),
        ]
        self.fit_step = tf.function(self.update, jit_compile=cfg.xla, input_signature=signature)
        self.sync = tf.function(self._sync, jit_compile=cfg.xla)

    @property
    def network(self) -> keras.Model:
        """The network that acts: the online one."""
        return self.online

    def bootstrap(self, batch: Transition) -> tf.Tensor:
        """[B] targets; Double DQN overrides this method and nothing else."""
        return targets.q_target(batch.reward, batch.discount, self.target(batch.next_obs))

    def gradients(self, batch: Transition, weight: tf.Tensor) -> tuple[list, FitResult]:
        """Clipped gradients of the loss for every trainable weight, and the update's figures."""
        target = self.bootstrap(batch)
        with tf.GradientTape() as tape:
            q = self.online(batch.obs, training=True)
            taken = tf.one_hot(batch.action, q.shape[-1])
            estimate = tf.reduce_sum(q * taken, axis=-1)  # a gather's gradient is a scatter: slower
            td_error = target - estimate
            loss = losses.weighted_huber(td_error, weight, self.cfg.huber_delta)
            scaled = self.optimizer.scale_loss(loss)
        grads = tape.gradient(scaled, self.online.trainable_variables)
        loss_scale = scaled / loss if self._scales_loss else 1.0
        grads, norm = clipped_by_global_norm(grads, self.cfg.max_grad_norm * loss_scale)
        result = FitResult(loss, td_error, tf.reduce_mean(estimate), norm / loss_scale)
        return grads, result

    @property
    def _scales_loss(self) -> bool:
        return isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer)

    def apply(self, grads: list) -> None:
        """One optimiser step, then the target network's change if it is due."""
        self.optimizer.apply(grads, self.online.trainable_variables)
        self.updates.assign_add(1)
        due = tf.equal(self.updates % self.cfg.target_sync_updates, 0)
        tf.cond(due, self._sync_and_zero, lambda: 0)

    def update(self, batch: Transition, weight: tf.Tensor) -> FitResult:
        """One update from one batch; `fit_step` is this method compiled."""
        grads, result = self.gradients(batch, weight)
        self.apply(grads)
        return result

    def _sync(self) -> None:
        """Move the target network towards the online one by `target_mix`, on the device."""
        mix = self.cfg.target_mix
        for old, new in zip(self.target.variables, self.online.variables, strict=True):
            old.assign(new if mix == 1.0 else old + mix * (new - old))

    def _sync_and_zero(self) -> int:
        self._sync()
        return 0
