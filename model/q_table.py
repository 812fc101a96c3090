"""Action values of a state that is one of a few: a table."""

from __future__ import annotations

import keras

from kytolly.model.dqn_mlp import QNetwork, learning_options

STEP = 10.0  # times the learning rate is what an update may change an entry by


@keras.saving.register_keras_serializable(package="kytolly")
class QTable(QNetwork):
    """Action values of one-hot states: [B, S] -> [B, A] float32.

    All values begin at 0. Where rewards are negative, whatever was never tried then looks best, and
    nothing that is learned of one state changes what another one has still to try.

    Args:
        num_actions: `A`.
        learns_scale: As for `QNetwork`.

    Source: Watkins 1989, *Learning from Delayed Rewards*; for values that begin too high, Sutton &
    Barto 2018, section 2.6.
    """

    def __init__(self, num_actions: int, learns_scale: bool = False, **kwargs):
        hidden = keras.layers.Rescaling(STEP)
        super().__init__(num_actions, (), hidden=hidden, learns_scale=learns_scale, **kwargs)
        self.q_values = keras.layers.Dense(
            num_actions, use_bias=False, kernel_initializer="zeros", name="q_values"
        )

    def build(self, input_shape):
        (input_shape,) = input_shape.values() if isinstance(input_shape, dict) else [input_shape]
        self.hidden.build(input_shape)
        self.q_values.build(input_shape)

    def call(self, obs, training: bool = False):
        (obs,) = obs.values() if isinstance(obs, dict) else [obs]  # beside a mask
        return keras.ops.cast(self.q_values(self.hidden(obs)), "float32")

    def get_config(self):
        config = super().get_config()
        return {name: config[name] for name in config if name not in ("hidden_units", "torso")}


def make_q_table(cfg, distribution):
    """The table that the configuration describes."""
    return QTable(distribution.num_params, **learning_options(cfg))
