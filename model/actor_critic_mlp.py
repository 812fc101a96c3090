"""Action parameters and the state's value, from dense layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
from keras import ops

from kytolly.model.dense import dense
from kytolly.model.observation_features import ObservationFeatures, make_features

HIDDEN_GAIN = math.sqrt(2.0)
POLICY_GAIN = 0.01  # the first policy is nearly uniform
VALUE_GAIN = 1.0


def orthogonal_dense(units: int, gain: float, activation: str | None = None):
    """Dense layer with an orthogonal kernel and zero biases.

    Source: Engstrom et al. 2020, arXiv:2005.12729, section 3.
    """
    return dense(units, activation, kernel_initializer=keras.initializers.Orthogonal(gain))


@keras.saving.register_keras_serializable(package="kytolly")
class ActorCriticMLP(keras.Model):
    """Parameters of an action distribution, and values: [B, *obs] -> ([B, P], [B]) float32.

    Args:
        num_params: `P`, the outputs that the distribution reads.
        hidden_units: Widths of the dense layers of each torso.
        activation: Of those layers.
        shared_torso: One torso for policy and value instead of one each.
        free_scales: How many of the last params are weights that no observation changes, such as
            the log standard deviations of a Gaussian.
        scale_init: Their value at the start.
        features: `ObservationFeatures` in front of the torsos; None makes one.
    """

    def __init__(
        self,
        num_params: int,
        hidden_units: Sequence[int] = (64, 64),
        activation: str | None = "tanh",
        shared_torso: bool = False,
        free_scales: int = 0,
        scale_init: float = 0.0,
        features=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_params, self.hidden_units = num_params, tuple(hidden_units)
        self.activation, self.shared_torso = activation, shared_torso
        self.free_scales, self.scale_init = free_scales, scale_init
        if isinstance(features, dict):
            features = keras.saving.deserialize_keras_object(features)
        self.features = ObservationFeatures() if features is None else features

        def torso():
            return [orthogonal_dense(n, HIDDEN_GAIN, activation) for n in self.hidden_units]

        self.policy_torso = torso()
        self.value_torso = self.policy_torso if shared_torso else torso()
        self.policy_head = orthogonal_dense(num_params - free_scales, POLICY_GAIN)
        self.value_head = orthogonal_dense(1, VALUE_GAIN)

    def build(self, input_shape):
        if not self.features.built:  # from a file they come built
            self.features.build(input_shape)
        torsos = [self.policy_torso] if self.shared_torso else [self.policy_torso, self.value_torso]
        for torso in torsos:
            for layer, width in zip(torso, (self.features.width, *self.hidden_units), strict=False):
                layer.build((None, width))
        for head in (self.policy_head, self.value_head):
            head.build((None, self.hidden_units[-1]))
        if self.free_scales:
            initializer = keras.initializers.Constant(self.scale_init)
            self.scales = self.add_weight(
                (self.free_scales,), initializer, "float32", autocast=False, name="scales"
            )

    def wide_groups(self):
        """The layers as groups that are one product each; see `model.wide_products`."""
        from kytolly.model.wide_products import Group

        heads = (self.policy_head, self.value_head)
        if self.shared_torso:
            return [*(Group((layer,)) for layer in self.policy_torso), Group(heads)]
        pairs = zip(self.policy_torso, self.value_torso, strict=True)
        groups = [Group(pair, apart=index > 0) for index, pair in enumerate(pairs)]
        return [*groups, Group(heads, apart=True)]

    def call(self, obs, training: bool = False, wide=None):
        if wide is not None:
            from kytolly.model.wide_products import wide_outputs

            outputs = wide_outputs(self.features(obs), self.wide_groups(), wide)
            outputs = ops.cast(outputs, "float32")
            return self.with_scales(outputs[:, :-1]), outputs[:, -1]
        policy = value = self.features(obs)
        for layer in self.policy_torso:
            policy = layer(policy)
        for layer in [] if self.shared_torso else self.value_torso:
            value = layer(value)
        value = self.value_head(policy if self.shared_torso else value)
        params = self.with_scales(ops.cast(self.policy_head(policy), "float32"))
        return params, ops.cast(value, "float32")[:, 0]

    def with_scales(self, params):
        """[B, P] params of outputs of the policy's head."""
        if not self.free_scales:
            return params
        # Never cast: of a cast weight NumPy inference would know the present number only.
        scales = ops.zeros_like(params[:, : self.free_scales]) + self.scales
        return ops.concatenate([params, scales], axis=-1)

    def update_statistics(self, obs):
        """Count the rows of observations into the normalization's statistics, if there are any."""
        self.features.update(obs)

    def get_config(self):
        own = {
            "num_params": self.num_params,
            "hidden_units": self.hidden_units,
            "activation": self.activation,
            "shared_torso": self.shared_torso,
            "free_scales": self.free_scales,
            "scale_init": self.scale_init,
            "features": keras.saving.serialize_keras_object(self.features),
        }
        return {**super().get_config(), **own}


def make_actor_critic(cfg, obs_spec, distribution):
    """The network that the configuration describes."""
    return ActorCriticMLP(
        distribution.num_params,
        cfg.hidden_units,
        cfg.activation,
        cfg.shared_torso,
        free_scales=0 if cfg.state_dependent_std else distribution.num_scales,
        scale_init=cfg.log_std_init,
        features=make_features(cfg, cfg.network, obs_spec),
    )
