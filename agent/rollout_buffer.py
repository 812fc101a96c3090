"""The memory of an on-policy learner: one rollout, and its rows in a random order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import tensorflow as tf

from kytolly.agent.shuffle import keys_per_order, random_order
from kytolly.environment.fusion_barrier import is_mapped, on_gpu
from kytolly.environment.spec import EnvSpec
from kytolly.policy.batch import Obs, Rollout, merge_time
from kytolly.policy.returns import explained_variance

if TYPE_CHECKING:
    from kytolly.agent.kept_rollouts import KeptRollouts
    from kytolly.agent.reward_scale import RewardScale
    from kytolly.config.ppo import PPOConfig
    from kytolly.config.pqn import PQNConfig
    from kytolly.policy.words import PackedRows

Rows: TypeAlias = tuple[Any, ...]  # a named tuple of columns [N, ...], as `policy.batch` makes it


class RolloutBuffer(tf.Module):
    """Makes rows with targets of a rollout, and hands them out once in each epoch.

    It remembers nothing between two iterations but the scale of rewards and what is `kept`.

    Args:
        rows_per_update: Rows of an update; divides those of all rollouts that are kept.
        updates_per_epoch: Updates in one pass over them.
        epochs: Passes.
        cut_at_most_once: No environment is truncated twice within a rollout, which saves work.
        reward_scale: `RewardScale` that divides the rewards; None leaves them.
        kept: `KeptRollouts`, whose rows are learned from; None: the newest rollout's alone.
    """

    metric_names = ("explained_variance",)  # what the values explained before learning
    allows_lag = False  # a rollout must come from the policy that learns

    def __init__(
        self,
        rows_per_update: int,
        updates_per_epoch: int,
        epochs: int,
        cut_at_most_once: bool = False,
        reward_scale: RewardScale | None = None,
        kept: KeptRollouts | None = None,
    ):
        super().__init__(name="rollout_buffer")
        self.rows_per_update, self.updates_per_epoch = rows_per_update, updates_per_epoch
        self.epochs, self.updates = epochs, epochs * updates_per_epoch
        self.num_random_words = epochs * keys_per_order()
        self.cut_at_most_once, self.reward_scale = cut_at_most_once, reward_scale
        self.kept = kept

    @classmethod
    def for_config(cls, cfg: PPOConfig | PQNConfig, env_spec: EnvSpec, noise: int = 0) -> Self:
        """The buffer that a configuration asks for; no network with noise learns from it."""
        return cls(**cls.options(cfg, env_spec))

    @classmethod
    def options(cls, cfg: PPOConfig | PQNConfig, env_spec: EnvSpec) -> dict[str, Any]:
        """The arguments that a configuration asks for."""
        limit = env_spec.max_episode_steps
        scale = kept = None
        if cfg.normalize_rewards:
            from kytolly.agent.reward_scale import RewardScale

            scale = RewardScale(cfg.num_envs, cfg.gamma, cfg.normalized_clip)
        if cfg.kept_rollouts > 1:
            from kytolly.agent.kept_rollouts import KeptRollouts

            kept = KeptRollouts(cfg.kept_rollouts, cfg.rollout_steps, cfg.num_envs, env_spec)
        once = env_spec.truncates_at_limit_only and (limit is None or limit >= cfg.rollout_steps)
        return {
            "rows_per_update": cfg.rows_per_update * cfg.kept_rollouts,
            "updates_per_epoch": cfg.updates_per_epoch,
            "epochs": cfg.epochs,
            "cut_at_most_once": once,
            "reward_scale": scale,
            "kept": kept,
        }

    def open(self, rollout: Rollout, policy: Any) -> tuple[Any, tf.Tensor]:
        """[T * E] rows to learn from, made with the policy's present estimates; [1] metrics.

        Of rollouts that are kept, there are the rows of all.

        Args:
            rollout: [T, E] env steps, collected with the present weights.
            policy: Gives values, and makes rows of them.
        """
        if self.kept is not None:
            rollout = self.kept.add(rollout, self.reward_scale)
        elif self.reward_scale is not None:
            rollout = rollout._replace(reward=self.reward_scale.divide(rollout))
        weights, params, value = policy.current_weights(), None, rollout.value
        if value is None:
            params, value = policy.outputs(merge_time(rollout.obs), weights)
        if policy.keeps_log_prob and rollout.log_prob is None:
            log_prob = policy.distribution.log_prob(params, merge_time(rollout.action))
            rollout = rollout._replace(log_prob=tf.reshape(log_prob, rollout.reward.shape))
        values = tf.reshape(value, rollout.reward.shape)
        next_values = self._next_values(
            rollout, values, lambda obs: policy.outputs(obs, weights)[1]
        )
        newest = rows = policy.batch(rollout, values, next_values)
        if self.kept is not None:
            rows, newest = self.kept.weighted(rows, rollout.log_prob)
        metrics = explained_variance(newest.value, newest.target)[tf.newaxis]
        if on_gpu() and not is_mapped():  # a map knows no bitcast
            from kytolly.policy.words import PackedRows

            rows = PackedRows(rows)
        return rows, metrics

    def batch(
        self, opened: Rows | PackedRows, index: int | tf.Tensor, random_bits: tf.Tensor
    ) -> Rows:
        """The rows of update `index`: every row is in exactly one update of an epoch.

        Args:
            opened: All rows, [N, ...].
            index: [] int32 update.
            random_bits: [num_random_words] uint32 words that order the rows.
        """
        slots = self.chosen(index, self.rows_per_update, random_bits)
        return self.rows(opened, slots if self.kept is None else self.kept.filled(slots))

    def chosen(self, index: int | tf.Tensor, count: int, random_bits: tf.Tensor) -> tf.Tensor:
        """[count] numbers of the rows, or of other parts of a rollout, that update `index` takes.

        Each update of an epoch takes as many, and every one is taken once.
        """
        epoch, part = index // self.updates_per_epoch, index % self.updates_per_epoch
        keys = tf.gather(tf.reshape(random_bits, [self.epochs, -1]), epoch)
        return random_order(part * count + tf.range(count), self.updates_per_epoch * count, keys)

    def rows(self, opened: Rows | PackedRows, slots: tf.Tensor) -> Rows:
        """The rows at [B] slots."""
        if not isinstance(opened, tuple):
            return opened.gather(slots)
        return tf.nest.map_structure(lambda column: tf.gather(column, slots), opened)

    def close(self, batch: Rows, td_error: tf.Tensor | None) -> None:
        """Nothing: every row has its turn."""

    def end_episodes(self, envs: Sequence[int] | np.ndarray | None = None) -> None:
        """Nothing: no row is remembered."""

    def _next_values(
        self, rollout: Rollout, values: tf.Tensor, evaluate: Callable[[Obs], tf.Tensor]
    ) -> tf.Tensor:
        """[T, E] values of what each step led to.

        They are the values of the next rows, but for the last row and where an episode was cut
        off. If no environment can be cut off twice, those are two observations for each.
        """
        if not self.cut_at_most_once:
            return tf.reshape(evaluate(merge_time(rollout.next_obs)), values.shape)
        cut = rollout.last & (rollout.discount > 0.0)
        when = tf.argmax(tf.cast(cut, tf.int32), axis=0, output_type=tf.int32)
        places = tf.stack([when, tf.range(values.shape[1])], axis=-1)

        def cut_then_last(column: tf.Tensor) -> tf.Tensor:
            return tf.concat([tf.gather_nd(column, places), column[-1]], axis=0)

        needed = tf.nest.map_structure(cut_then_last, rollout.next_obs)
        at_cut, at_end = tf.split(evaluate(needed), 2)
        following = tf.concat([values[1:], at_end[tf.newaxis]], axis=0)
        return tf.where(cut, at_cut, following)
