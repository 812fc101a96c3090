"""IQN: quantiles of the return at random levels."""

from __future__ import annotations

import tensorflow as tf

from kytolly.policy.batch import Transition
from kytolly.policy.dqn import ESTIMATE
from kytolly.policy.qr_dqn import QRDQNPolicy


class IQNPolicy(QRDQNPolicy):
    """QR-DQN whose network takes the levels, drawn anew for each row: `batch.noise`.

    The next action is picked by the mean of evenly spaced quantiles, as in acting; the paper draws
    their levels too.

    Source: Dabney et al. 2018, arXiv:1806.06923, algorithm 1.
    """

    network_method = "action_quantiles"
    network_settings = (("num_levels", "num_acting_quantiles"),)

    def estimate(self, batch: Transition, weights: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, A, N] quantiles at `obs` with the weights that learn, and their levels [B, N]."""
        levels = self.levels(batch)[0]
        options = {"levels": levels, "training": True}
        found = self.distributions(batch.obs, self.noisy(weights, batch, ESTIMATE), **options)
        return tf.transpose(found, [0, 2, 1]), levels

    def next_quantiles(self, batch: Transition) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, A, M] quantiles of the target network at `next_obs`, and [B, A] action values."""
        options = {"levels": self.levels(batch)[1]}
        found = self.distributions(batch.next_obs, self.target_weights(batch), **options)
        # The even levels are the same for all rows, so their features are computed once.
        return tf.transpose(found, [0, 2, 1]), self.target_q(batch.next_obs, batch)

    def levels(self, batch: Transition) -> list[tf.Tensor]:
        """[B, N] and [B, M] levels of the estimates and of the targets."""
        counts = [self.cfg.num_quantiles, self.cfg.num_target_quantiles]
        if isinstance(batch.noise, tuple):
            raise ValueError(
                f"{self.cfg.algorithm} got a batch without noise, expected [B, {sum(counts)}] "
                "random numbers in [0, 1): give them as Transition(..., noise=numbers)."
            )
        return tf.split(batch.noise, counts, axis=1)
