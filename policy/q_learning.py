"""Q-learning with a target network: a head says what is learned, a selection what follows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kytolly.config.dqn import DQNConfig
from kytolly.environment.fusion_barrier import is_straight
from kytolly.environment.mask import without_mask
from kytolly.environment.spec import EnvSpec
from kytolly.policy.action_values import (
    ActionValues,
    action_values_for,
    reward_scale,
    take_action,
)
from kytolly.policy.base import ActionReader, Loss, Policy, masked_params
from kytolly.policy.batch import Obs, Transition
from kytolly.policy.few_columns import means
from kytolly.policy.heads import Head, Levels, Next, Scalar
from kytolly.policy.hyper import Hyper, Number
from kytolly.policy.selection import Greedy, Selection
from kytolly.policy.value_learning import huber_delta
from kytolly.policy.weights import FlatWeights, Weights

NOISE_DRAWS = 2  # of a noisy network's noise in an update, for its two networks
ONLINE, TARGET = 1, 2  # places among `uniforms`


class QLearningPolicy(Policy):
    """Learning of the actions' returns towards a target network that lags behind.

    Called, the network maps [B, *obs] to action values [B, A], by which an agent acts; a head of a
    distribution learns what another method of the network gives. The target network is a second
    vector of weights for the same Keras model, and what is evaluated and saved may be a third: an
    average of the target's over a share of the updates so far.

    A subclass of yours overrides `bootstrap`, the targets, or `loss`.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning".
    """

    metric_names = ("loss", "td_error", "q_mean", "grad_norm")
    gives_td_error = True
    takes_masks = True
    cfg: DQNConfig
    head_type: type[Head] = Scalar

    def __init__(
        self,
        network: keras.Model,
        distribution: ActionReader,
        optimizer: keras.optimizers.Optimizer,
        cfg: DQNConfig,
    ):
        super().__init__(network, distribution, optimizer, cfg)
        self.head, self.selection = self.head_type.of(cfg), self.make_selection(cfg)
        self.target_vector = tf.Variable(self.weights.vector, trainable=False, name="target")
        self.sync = tf.function(self._sync, jit_compile=cfg.xla, autograph=False)

    @classmethod
    def distribution_for(cls, cfg: DQNConfig, env_spec: EnvSpec) -> ActionValues:
        """Action values, which only Discrete actions have."""
        return action_values_for(cfg.algorithm, env_spec)

    @classmethod
    def check_network(cls, network: keras.Model, cfg: DQNConfig) -> None:
        """Refuse a network whose distributions are not those from which the algorithm learns."""
        method = cls.head_type.network_method
        if method and not hasattr(network, method):
            raise ValueError(
                f"The model {network.name!r} has no method {method}, expected one, as "
                f"{cfg.algorithm} learns distributions and the outputs of a call are their means. "
                "Give a network of kytolly.model.distributional_mlp or "
                "kytolly.model.implicit_quantiles with your layers as its torso, or train by dqn."
            )
        for name, setting in cls.head_type.network_settings:
            actual, expected = getattr(network, name, None), getattr(cfg, setting)
            if actual not in (None, expected):
                raise ValueError(
                    f"The model {network.name!r} has {name} {actual}, expected {expected}: "
                    f"{setting} of {cfg.algorithm}. Give both the same."
                )

    def make_selection(self, cfg: DQNConfig) -> Selection:
        """The next action that targets suppose, by the config's `double` and `munchausen`."""
        if not cfg.munchausen:
            return Greedy(cfg.double)
        from kytolly.policy.munchausen import Soft

        return Soft(cfg.double)

    def make_weights(self, network: keras.Model) -> FlatWeights:
        """The weights of the network, with noise where the config says so."""
        if not self.cfg.noisy:
            return super().make_weights(network)
        from kytolly.policy.noisy_weights import NoisyWeights

        return NoisyWeights(network, self.may_be_wide)

    @property
    def hyper(self) -> Hyper:
        """As for every policy; `reward_scale` is the network's where the config has none."""
        scale, given = reward_scale(self.cfg, self.network), super().hyper
        by_row = tf.is_tensor(scale) and self.head_type is Scalar
        delta = given.huber_delta or (None if by_row else 1.0)
        return given._replace(reward_scale=scale, huber_delta=delta, target_mix=self.cfg.mix)

    def take_reward_scale(self, factor: tf.Tensor) -> None:
        """Learn from rewards times a factor, which the network keeps if it can."""
        if getattr(self.network, "learns_scale", False):
            self.network.reward_scale.assign(factor)

    @property
    def num_uniforms(self) -> int:
        """Levels of quantiles, then `NOISE_DRAWS` draws of a noisy network's noise."""
        return self.head.num_levels + NOISE_DRAWS * self.weights.noise_count

    def uniforms(self, batch: Transition) -> list[tf.Tensor]:
        """The batch's numbers for levels, and those of each draw of a noisy network's noise."""
        sizes = [self.head.num_levels] + NOISE_DRAWS * [self.weights.noise_count]
        if not sum(sizes):
            return [tf.zeros([0])] * len(sizes)
        if batch.noise is None:
            raise ValueError(
                f"{self.cfg.algorithm} got a batch without noise, expected [1, {sum(sizes)}] "
                "random numbers in [0, 1): give them as Transition(..., noise=numbers)."
            )
        return tf.split(batch.noise[0], sizes)

    def noisy(self, weights: Weights, batch: Transition | None, draw: int) -> Weights:
        """The weights with one of the draws of a batch's noise, where the network has noise."""
        if not self.weights.noise_count or batch is None:
            return weights
        return self.weights.drawn_weights(weights, self.uniforms(batch)[1:], draw - ONLINE)

    def levels(self, batch: Transition) -> tuple[Levels, Levels]:
        """The levels of the quantiles of the batch's estimates and of its targets, if any."""
        return self.head.levels(self.uniforms(batch)[0])

    def target_weights(self, batch: Transition | None = None) -> Weights:
        """The weights of the target network, with the batch's noise for them."""
        return self.noisy(self.weights.split(self.target_vector), batch, TARGET)

    def target_q(self, obs: Obs, batch: Transition | None = None) -> tf.Tensor:
        """[B, A] action values of the target network, with the noise of the batch, if any."""
        return self.outputs(obs, self.target_weights(batch))[0]

    def forward(
        self, weights: Weights, obs: Obs, method: str = "", **options: bool | tf.Tensor
    ) -> tf.Tensor:
        """[B, A] action values of the network, masked, or what one of its methods gives."""
        if not method:
            return self.outputs(obs, weights, **options)[0]
        function = getattr(self.network, method)
        return self.weights.call(weights, without_mask(obs), function, **options)

    def bootstrap(self, batch: Transition, weights: Weights, hyper: Hyper) -> Any:
        """The targets: what another rule of learning overrides, and mostly nothing else.

        [B] values for a scalar head; else what `Head.target` gives. No gradient passes.
        """
        target = functools.partial(self.forward, self.target_weights(batch))
        outputs = self.head.outputs(target, batch.next_obs, self.levels(batch)[1])
        q = self.head.action_values(target, batch.next_obs, outputs)
        q = masked_params(q, self.distribution, batch.next_obs)
        selection_values, reward = q, batch.reward
        if self.selection.double:
            online = self.noisy(weights, batch, ONLINE)
            selection_values = self.outputs(batch.next_obs, online)[0]
        bonus = self.selection.bonus(lambda: target(batch.obs), batch.action, hyper)
        if bonus is not None:
            reward += bonus
        always = self.updates >= 0
        following = Next(reward, batch.discount, outputs, q, selection_values, always)
        return self.head.target(following, self.selection, hyper)

    def loss(self, batch: Transition, weights: Weights, hyper: Hyper) -> Loss:
        """The head's loss; metrics: loss, mean size of errors, mean estimate, and the head's."""
        if self.unrolled is not None:
            from kytolly.policy.sequence_q import sequence_loss

            return sequence_loss(self, batch, weights, hyper)
        target = self.bootstrap(batch, weights, hyper)
        network = functools.partial(self.forward, self.noisy(weights, batch, ONLINE))
        levels = self.levels(batch)[0]
        outputs = self.head.outputs(network, batch.obs, levels, training=True)
        hyper = hyper._replace(huber_delta=huber_delta(hyper.huber_delta, batch.reward))
        rows = self.head.loss(take_action(outputs, batch.action), levels, target, hyper)
        td_error = rows.target - rows.estimate
        weighted = rows.loss if batch.weight is None else batch.weight * rows.loss
        loss, *others = means(weighted, tf.abs(td_error), rows.estimate, *rows.metrics)
        priority = td_error if rows.priority is None else rows.priority
        return Loss(loss, priority, tf.stack([loss, *others]))

    def microbatch_gradients(self, batch: Transition, hyper: Hyper) -> tuple[list[tf.Tensor], Loss]:
        """As for every policy, from the rewards times `reward_scale`."""
        scaled = batch._replace(reward=hyper.reward_scale * batch.reward)
        return super().microbatch_gradients(scaled, hyper)

    def apply(self, vector: tf.Tensor, hyper: Hyper | None = None) -> None:
        """One step of the optimizer, then the target network's change if it is due."""
        hyper = hyper or self.hyper
        super().apply(vector, hyper)
        due = tf.equal(self.updates % self.cfg.target_sync_updates, 0)
        if is_straight():
            self._sync(hyper.target_mix, due)
        else:
            tf.cond(due, lambda: self._sync(hyper.target_mix), lambda: None)

    @property
    def published(self) -> tf.Variable:
        """As for every policy; without an average the target network where that is one."""
        is_target = self.average_vector is None and self.cfg.mix < 1.0
        return self.target_vector if is_target else super().published

    def set_weights(self, weights: Sequence[np.ndarray]) -> None:
        """As for every policy; the target network gets them too."""
        super().set_weights(weights)
        self.target_vector.assign(self.weights.vector)

    def _fit_step(self, batch: Transition, weight: tf.Tensor | None = None) -> Loss:
        """As for every policy; a [B] weight of the rows goes before the batch's own."""
        return super()._fit_step(batch if weight is None else batch._replace(weight=weight))

    def _sync(self, mix: Number | None = None, due: tf.Tensor | None = None) -> None:
        """Move the target network towards the online one, and the average after it, if due."""
        changed = self.changed_target(self.hyper.target_mix if mix is None else mix)
        vectors = [(self.target_vector, changed)]
        if self.average_vector is not None:
            average = self.changed_average(self.average_vector, changed, self.changes)
            vectors.append((self.average_vector, average))
        for vector, new in vectors:
            vector.assign(new if due is None else tf.where(due, new, vector))

    @property
    def changes(self) -> tf.Tensor:
        """[] int64 changes of the target network so far."""
        return self.updates // self.cfg.target_sync_updates

    def changed_target(self, mix: Number) -> tf.Tensor:
        """[W] the target network's weights after a change."""
        old, new = self.target_vector, self.weights.vector
        copies = isinstance(mix, float) and mix == 1.0
        return tf.convert_to_tensor(new) if copies else old + mix * (new - old)
