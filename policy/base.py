"""The parts of every policy: a network, a distribution over actions, and a way to learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import keras
import numpy as np
import tensorflow as tf

from kytolly.config.run import RunConfig
from kytolly.environment.fusion_barrier import on_gpu
from kytolly.environment.mask import ACTION_MASK, without_mask
from kytolly.environment.memory import has_memory
from kytolly.environment.spec import EnvSpec
from kytolly.policy.batch import Obs
from kytolly.policy.hyper import Hyper
from kytolly.policy.weights import FlatWeights, Noise, Weights, clip_factor, squared_norm

if TYPE_CHECKING:
    from kytolly.config.supervised import SupervisedConfig
    from kytolly.policy.replica import Replica

FEW_PARTS = 6  # gradients of so many weights are squared apart: that fuses with what made them
Batch = tuple[Any, ...] | Mapping[str, tf.Tensor]  # [B, ...] columns, a NamedTuple mostly


class ActionReader(Protocol):
    """The reader of params [B, P], whatever learned them.

    `policy.distributions.Distribution` and `policy.action_values.ActionValues` are such.
    """

    @property
    def num_params(self) -> int:
        """`P`."""
        ...

    def mask(self, params: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Params under which no action that [B, P] bool `mask` forbids is likely."""
        ...

    def mode(self, params: tf.Tensor) -> tf.Tensor:
        """The most likely raw actions."""
        ...

    def host_mode(self, params: np.ndarray) -> np.ndarray:
        """`mode` in NumPy."""
        ...

    def to_env(self, action: tf.Tensor) -> tf.Tensor:
        """The environment's actions for raw ones."""
        ...

    def host_to_env(self, action: np.ndarray) -> np.ndarray:
        """`to_env` in NumPy."""
        ...


class Loss(NamedTuple):
    """The loss of a batch with the weights before an update."""

    loss: tf.Tensor  # [] to be minimized
    td_error: tf.Tensor | None  # [B] target minus estimate, in reward units; None for no such
    metrics: tf.Tensor  # [F] `metric_names`; from `Policy.loss` all but the gradient's norm


class Policy(tf.Module):
    """A learning rule: a function of a batch that never sees an environment or a buffer.

    A subclass says what its loss is, and by a class method `distribution_for(cfg, env_spec)` which
    distribution an environment's actions get, or in a ValueError why there is none.

    Args:
        network: Built Keras model [B, *obs] -> params [B, P], or a pair of params and values [B].
            Of a Dict observation it gets the dict without its `action_mask`.
        distribution: Reads the params; None where there are no actions.
        optimizer: Keras optimizer, not built yet.
        cfg: Configuration.
    """

    metric_names: tuple[str, ...] = ()  # of one update, the gradient's norm last
    has_value = False  # the network returns values beside params
    keeps_log_prob = False  # a row says how probable its action was
    keeps_value = False  # a row says what value was expected, as acting gives it at no cost
    gives_td_error = False  # a loss says by how much each row's estimate is wrong
    takes_masks = False  # actions may be masked, and observations a Dict

    def __init__(
        self,
        network: keras.Model,
        distribution: ActionReader | None,
        optimizer: keras.optimizers.Optimizer,
        cfg: RunConfig | SupervisedConfig,
    ):
        super().__init__(name="policy")  # an algorithm may be called qr-dqn
        self.network, self.optimizer, self.cfg = network, optimizer, cfg
        self.distribution = cast(ActionReader, distribution)
        self.weights = self.make_weights(network)
        self.average_vector: tf.Variable | None = None
        if cfg.averaged_share:
            self.average_vector = tf.Variable(self.weights.vector, trainable=False, name="average")
        self.unrolled: Callable[..., Any] | None = None  # what calls a network with a memory
        if cfg.memory is not None:
            from kytolly.policy.sequences import Unrolled

            self.unrolled = Unrolled(network)
        # Numbers of one agent of a population; a function, so that no checkpoint has them.
        self.varied: Callable[[], Mapping[str, Any]] = dict
        self.replica: Replica | None = None  # of several devices, while its program is traced
        optimizer.build([self.weights.variable])  # else the first update traces twice
        self.skips_overflow = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
        self.fit_step = tf.function(self._fit_step, jit_compile=cfg.xla, autograph=False)

    @classmethod
    def distribution_for(cls, cfg: RunConfig, env_spec: EnvSpec) -> ActionReader:
        """The reader of the params of an environment's actions; ValueError where there is none."""
        raise NotImplementedError

    @classmethod
    def check_network(cls, network: keras.Model, cfg: RunConfig) -> None:
        """Refuse a network of the user's whose call is right, and which lacks something else."""

    @property
    def hyper(self) -> Hyper:
        """The numbers of the config, where none follows a schedule."""
        return Hyper.of(self.cfg)._replace(**self.varied())

    @property
    def num_uniforms(self) -> int:
        """Random numbers in [0, 1) that an update takes."""
        return 0

    def make_weights(self, network: keras.Model) -> FlatWeights:
        """The weights of the network, as this policy learns them."""
        return FlatWeights(network, self.may_be_wide)

    @property
    def may_be_wide(self) -> bool:
        """True where weights may have the form of wide products: in no class of the user's."""
        return type(self).__module__.startswith("kytolly.")

    def loss(self, batch: Batch, weights: Weights, hyper: Hyper) -> Loss:
        """The loss of a batch with the given weights, of which the gradient is taken."""
        raise NotImplementedError

    def current_weights(self) -> Weights:
        """The weights that learn, as tensors: read once where many steps act with the same."""
        return self.weights.split(self.weights.vector)

    def acting_weights(self, numbers: tf.Tensor | None) -> tuple[Weights, Noise | None]:
        """The weights and the noise to act with; of a noisy network by [E, N] numbers in [0, 1)."""
        return self.weights.row_noise(self.current_weights(), numbers)

    def outputs(
        self, obs: Obs, weights: Weights, noise: Noise | None = None, **options: bool | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Params [B, P] of the distribution, masked, and values [B] or None, for [B, *obs].

        A pure function of its arguments; `noise` is that of each row, of a noisy network.
        """
        return self.step(obs, weights, noise, **options)[:2]

    def step(
        self, obs: Obs, weights: Weights, noise: Noise | None = None, **options: bool | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor | None, tf.Tensor | None]:
        """The `outputs`, and [B, S] the next memory of a network that has one."""
        rows = {} if noise is None else {"noise": noise}
        outputs = self.weights.call(weights, without_mask(obs), self.unrolled, **rows, **options)
        return *read_outputs(outputs, self.distribution, obs), next_memory(outputs, obs)

    def weight_gradients(self, batch: Batch, hyper: Hyper) -> tuple[list[tf.Tensor], Loss]:
        """The gradient of each weight, or of all in one vector, times the loss scale, and the loss.

        With `gradient_accumulation` K the rows are taken in K microbatches, one after the other,
        which needs the memory of one and gives the gradient of all rows together.
        """
        if self.replica is not None:
            batch = self.replica.own_rows(batch)
        if self.cfg.gradient_accumulation == 1:
            return self.microbatch_gradients(batch, hyper)
        from kytolly.policy.accumulation import accumulated_gradients

        count = self.cfg.gradient_accumulation
        vector, td_error, means = accumulated_gradients(self, batch, hyper, count)
        return [vector], Loss(means[0], td_error, means)

    def microbatch_gradients(self, batch: Batch, hyper: Hyper) -> tuple[list[tf.Tensor], Loss]:
        """The gradient of each weight, times the optimizer's loss scale, and the loss."""
        weights = self.current_weights()
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            loss = self.loss(batch, weights, hyper)
            scaled = self.optimizer.scale_loss(loss.loss)
        zero = tf.UnconnectedGradients.ZERO
        gradients: Any = tape.gradient(scaled, weights, unconnected_gradients=zero)
        return gradients, loss

    def gradient(self, batch: Batch, hyper: Hyper | None = None) -> tuple[tf.Tensor, Loss]:
        """The clipped gradient [W] of the loss, times the loss scale, and the loss."""
        hyper = hyper or self.hyper
        parts, loss = self.weight_gradients(batch, hyper)
        vector = self.weights.join(parts)
        if self.replica is not None:
            vector, *means = self.replica.mean(vector, *loss)
            parts, loss = [vector], Loss(*means)
        apart = len(parts) <= FEW_PARTS and not on_gpu()  # where each sum would be a kernel
        squares = [squared_norm(part) for part in (parts if apart else [vector])]
        norm, loss_scale = tf.sqrt(tf.add_n(squares)), self.optimizer.scale_loss(1.0)
        if hyper.max_grad_norm is not None:
            vector *= clip_factor(norm, hyper.max_grad_norm * loss_scale)
        return vector, loss._replace(metrics=tf.concat([loss.metrics, [norm / loss_scale]], 0))

    def update(self, batch: Batch, hyper: Hyper | None = None) -> Loss:
        """One update, uncompiled: for callers that are compiled themselves.

        Args:
            batch: Rows.
            hyper: Numbers of this iteration; None: those of the config.
        """
        hyper = hyper or self.hyper
        vector, loss = self.gradient(batch, hyper)
        self.apply(vector, hyper)
        return loss

    def apply(self, vector: tf.Tensor, hyper: Hyper | None = None) -> None:
        """One step of the optimizer with a gradient [W]."""
        self.optimizer.apply([vector], [self.weights.variable])
        self.updates.assign_add(1)

    def should_continue(self, update: Loss) -> tf.Tensor | None:
        """[] bool, whether another update of this iteration may follow; None for always."""
        return None

    def changed_average(
        self, average: tf.Variable, vector: tf.Tensor, changes: tf.Tensor
    ) -> tf.Tensor:
        """[W] the average of weights after they changed to `vector` [W].

        Of t changes [], an integer, the last one counts 1 / (1 + share (t - 1)), and each earlier
        one the less the older it is: with a share of 1 all count the same.

        Source: Shamir & Zhang 2013, "Stochastic Gradient Descent for Non-smooth Optimization",
        section 4, polynomial decay.
        """
        length = 1.0 + self.cfg.averaged_share * tf.cast(tf.maximum(changes - 1, 0), tf.float32)
        return average + (vector - average) / length

    def take_reward_scale(self, factor: tf.Tensor) -> None:
        """Learn from rewards times a factor; nothing where the rule has no units."""

    @property
    def published(self) -> tf.Variable:
        """[W] the weights that the Keras network gets: the average where there is one."""
        return self.weights.vector if self.average_vector is None else self.average_vector

    def publish(self) -> None:
        """Copy the weights into the Keras network."""
        self.weights.publish(self.published)

    def set_weights(self, weights: Sequence[np.ndarray]) -> None:
        """Give the Keras network, and what learns, the arrays of `network.get_weights()`."""
        self.network.set_weights(weights)
        self.weights.take()
        if self.average_vector is not None:
            self.average_vector.assign(self.weights.vector)

    def begin_with(self, weights: Sequence[np.ndarray]) -> None:
        """Begin training with the arrays of another run's `network.get_weights()`."""
        self.set_weights(weights)

    def _fit_step(self, batch: Batch) -> Loss:
        """One update from a batch; the Keras network gets what learned, and no average."""
        loss = self.update(batch)
        self.weights.publish()
        return loss


def masked_params(params: tf.Tensor, distribution: ActionReader, obs: Obs) -> tf.Tensor:
    """Params [B, P] in which nothing that a mask in [B, *obs], if any, forbids is likely."""
    masked = isinstance(obs, Mapping) and ACTION_MASK in obs
    return distribution.mask(params, obs[ACTION_MASK]) if masked else params


def read_outputs(
    outputs: tf.Tensor | Sequence[tf.Tensor], distribution: Any, obs: Obs
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Params [B, P], masked as `obs` says, and values [B] or None, from a network's outputs."""
    if has_memory(obs):
        outputs = outputs[0]
    params, *values = (tf.cast(part, tf.float32) for part in tf.nest.flatten(outputs))
    value = tf.reshape(values[0], [-1]) if values else None
    return masked_params(params, distribution, obs), value


def next_memory(outputs: Any, obs: Obs) -> tf.Tensor | None:
    """[B, S] next memory among a network's outputs; None where it has none."""
    return outputs[1] if has_memory(obs) else None


def greedy_action(network: Callable[[Obs], Any], distribution: ActionReader, obs: Obs) -> Any:
    """What [E] environments get if each takes its most likely action."""
    outputs = network(without_mask(obs))
    action = distribution.to_env(distribution.mode(read_outputs(outputs, distribution, obs)[0]))
    return with_memory(action, next_memory(outputs, obs))


def with_memory(action: tf.Tensor, memory: tf.Tensor | None) -> Any:
    """What a tensor environment takes: the action, with the next memory where there is one."""
    return action if memory is None else (action, memory)
