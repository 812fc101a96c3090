"""The memory of a Q-learner: a ring of rows that lives on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from kytolly.agent.randomness import randint, uniform
from kytolly.environment.fusion_barrier import loop_fusion_barrier
from kytolly.environment.spec import EnvSpec
from kytolly.environment.state_variable import state_variable
from kytolly.policy.base import Policy
from kytolly.policy.batch import Rollout, Transition, merge_time, present
from kytolly.policy.value_learning import n_step_return

if TYPE_CHECKING:
    from kytolly.agent.frame_store import FrameStore
    from kytolly.agent.largest_reward import LargestReward
    from kytolly.agent.reward_scale import ReturnScale
    from kytolly.config.dqn import DQNConfig


class ReplayBuffer(tf.Module):
    """Ring of one-step transitions in `tf.Variable`s, sampled uniformly.

    Rows are stored one step long and folded into n-step rows when they are sampled, so nothing
    has to be flushed at the end of an episode. `stride` rows (one for each environment) are one
    moment in time: the successor of a row lies `stride` rows further.

    Args:
        capacity: Rows.
        obs_spec: Shape and dtype of one observation, or a dict; uint8 images stay uint8.
        stride: Environments that write in turn.
        n_step: Rewards summed before bootstrapping.
        batch_size: Rows of an update.
        updates: Updates of an iteration.
        noise: Random numbers that an update takes.
        gradient_parts: Parts of an update, each of which gets the same noise.
        cuts_explored: The n rewards of a row end before a random action.
        return_scale: Size of the returns seen, which the policy's network is told; None: nobody
            wants to know.
        frame_stack: Frames that an observation [H, W, K] stacks, each kept once; 0: it is no stack.
    """

    metric_names = ()
    allows_lag = True  # rows of an older policy are as good as new ones

    def __init__(
        self,
        capacity: int,
        obs_spec: tf.TensorSpec | dict[str, tf.TensorSpec],
        stride: int = 1,
        n_step: int = 1,
        batch_size: int = 1,
        updates: int = 1,
        noise: int = 0,
        frame_stack: int = 0,
        gradient_parts: int = 1,
        cuts_explored: bool = False,
        return_scale: LargestReward | ReturnScale | None = None,
    ):
        super().__init__(name="replay_buffer")
        self.capacity, self.stride, self.n_step = capacity, stride, n_step
        self.batch_size, self.updates, self.noise = batch_size, updates, noise
        self.gradient_parts = gradient_parts

        def column(dtype: tf.DType, *shape: int) -> Any:
            return state_variable(tf.zeros([capacity, *shape], dtype))

        def observations() -> Any:
            if frame_stack:
                return None  # the frames are kept apart
            return tf.nest.map_structure(lambda spec: column(spec.dtype, *spec.shape), obs_spec)

        self.frames: FrameStore | None = None
        if frame_stack:
            from kytolly.agent.frame_store import FrameStore

            self.frames = FrameStore(capacity, obs_spec, stride)
        # A column for each number: XLA fuses the gather of a table's rows into all that reads them.
        self.columns = Transition(
            obs=observations(),
            action=column(tf.int32),
            reward=column(tf.float32),
            discount=column(tf.float32),
            next_obs=observations(),
        )
        self.last = column(tf.bool)
        self.return_scale = return_scale
        self.explored = column(tf.bool) if cuts_explored else None
        self.added = tf.Variable(0, dtype=tf.int64, trainable=False)

    @classmethod
    def for_config(cls, cfg: DQNConfig, env_spec: EnvSpec, noise: int = 0) -> ReplayBuffer:
        """The buffer that a configuration asks for, with so much noise for an update."""
        return cls(**cls.options(cfg, env_spec), noise=noise)

    @classmethod
    def options(cls, cfg: DQNConfig, env_spec: EnvSpec) -> dict[str, Any]:
        """The arguments that a configuration asks for."""
        scale = None
        if cfg.reward_scale is None and cfg.network == "table":
            from kytolly.agent.largest_reward import LargestReward

            scale = LargestReward()
        elif cfg.reward_scale is None:
            from kytolly.agent.reward_scale import ReturnScale

            scale = ReturnScale(cfg.num_envs, cfg.gamma)
        return {
            "capacity": cfg.replay_capacity,
            "obs_spec": env_spec.obs,
            "stride": cfg.num_envs,
            "n_step": cfg.n_step,
            "batch_size": cfg.rows_per_update,
            "updates": cfg.updates_per_iteration,
            "frame_stack": env_spec.frame_stack,
            "gradient_parts": cfg.gradient_accumulation,
            "cuts_explored": cfg.cuts_n_step,
            "return_scale": scale,
        }

    @property
    def num_random_words(self) -> int:
        """uint32 words of an iteration: each row's place, and the noise of each update."""
        return self.updates * (self.batch_size + self.noise)

    @property
    def size(self) -> tf.Tensor:
        """[] int32 rows remembered."""
        return tf.cast(tf.minimum(self.added, self.capacity), tf.int32)

    def open(self, rollout: Rollout, policy: Policy) -> tuple[None, tf.Tensor]:
        """Remember [T, E] env steps in the order of time; batches then come from all rows."""
        if self.return_scale is not None:
            policy.take_reward_scale(self.return_scale.factor(rollout))
        *columns, last = map(merge_time, rollout[:6])
        explored = None if self.explored is None else merge_time(rollout.explored)
        self.add(Transition(*columns), last, explored)
        return None, tf.zeros([0])  # nothing to pass on, and no metrics

    def batch(self, opened: None, index: int | tf.Tensor, random_bits: tf.Tensor) -> Transition:
        """The rows of update `index`, drawn with the iteration's `num_random_words`."""
        words = tf.gather(tf.reshape(random_bits, [self.updates, -1]), index)
        rows = self.sample(words[self.noise :])
        if not self.noise:
            return rows
        noise = uniform(words[tf.newaxis, : self.noise])
        return rows._replace(noise=tf.repeat(noise, self.gradient_parts, axis=0))

    def close(self, batch: Transition, td_error: tf.Tensor | None) -> None:
        """Nothing: rows are drawn uniformly, whatever their errors."""

    def add(self, rows: Transition, last: tf.Tensor, explored: tf.Tensor | None = None) -> None:
        """Write [B] one-step rows over the oldest; `last` [B] bool, the episode ended there."""
        count = rows.reward.shape[0]
        if count is None or count > self.capacity:
            raise ValueError(
                f"add() got {count} rows for a buffer of {self.capacity}, expected a fixed number "
                "that fits: lower num_envs, or raise replay_capacity."
            )
        slots = ((self.cursor() + tf.range(count)) % self.capacity)[:, tf.newaxis]
        if self.frames is not None:
            self.frames.add(slots, rows.obs, rows.next_obs, last)
            rows = rows._replace(obs=None, next_obs=None)
        # XLA fuses the write of a single row into the next read, and copies the column for it.
        copies = 2 if count == 1 else 1
        for column, value in zip(present(self.columns[:5]), present(rows[:5]), strict=True):
            value = tf.repeat(tf.cast(value, column.dtype), copies, axis=0)
            column.scatter_nd_update(tf.tile(slots, [copies, 1]), value)
        if self.n_step > 1:
            self.last.scatter_nd_update(slots, last)
        if self.explored is not None:
            self.explored.scatter_nd_update(slots, explored)
        self.added.assign_add(count)

    def end_episodes(self, envs: Sequence[int] | np.ndarray | None = None) -> None:
        """New episodes begin after the newest rows of the environments `envs`, None: of all."""
        chosen = tf.range(self.stride) if envs is None else tf.constant(envs, tf.int32)
        newest = (self.cursor() - self.stride + chosen) % self.capacity
        self.last.scatter_nd_update(newest[:, tf.newaxis], tf.fill(tf.shape(chosen), True))
        if self.frames is not None:
            self.frames.end_episodes(envs)

    def sample(self, random_bits: tf.Tensor) -> Transition:
        """n-step rows, uniformly and with replacement, one for each of the [B] uint32 words."""
        incomplete = (self.n_step - 1) * self.stride  # the newest rows, whose windows are not over
        age = randint(random_bits, self.size - incomplete)
        return self.rows((self.cursor() - self.size + age + self.capacity) % self.capacity)

    def usable_slots(self, slots: tf.Tensor) -> tf.Tensor:
        """[B] slots whose rows are shown for [B] slots: newer ones where the frames are gone."""
        if self.frames is None:
            return slots
        complete = self.size - (self.n_step - 1) * self.stride
        oldest = (self.cursor() - self.size) % self.capacity
        return self.frames.usable(slots, oldest, complete)

    def rows(self, slots: tf.Tensor) -> Transition:
        """n-step rows that begin at the given [B] slots, or are shown in their place."""
        return self.rows_at(self.usable_slots(slots))

    def rows_at(self, slots: tf.Tensor) -> Transition:
        """n-step rows that begin at the given usable [B] slots."""
        obs, action, reward, discount, next_obs, *_ = self.columns
        if self.n_step == 1:
            total, weight, end = tf.gather(reward, slots), tf.gather(discount, slots), slots
        else:
            total, weight, end = self._window_return(slots)
        if self.frames is not None:
            first, following = self.frames.stacks(slots, end)
        else:
            first = tf.nest.map_structure(lambda column: tf.gather(column, slots), obs)
            following = tf.nest.map_structure(lambda column: tf.gather(column, end), next_obs)
        return Transition(first, tf.gather(action, slots), total, weight, following)

    def _window_return(self, slots: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The return of the `n_step` rows from each of the [B] slots on.

        Returns:
            [B] reward and [B] discount, as `n_step_return`, and [B] the slot of the last row used.
        """
        steps = self.stride * tf.range(self.n_step)
        window = (slots[:, tf.newaxis] + steps) % self.capacity
        columns = self.columns.reward, self.columns.discount, self.last
        reward, discount, ends = (tf.gather(column, window) for column in columns)
        if self.explored is not None:  # the return ends before a random action
            random = tf.gather(self.explored, window[:, 1:])
            ends = tf.logical_or(ends, tf.pad(random, [[0, 0], [0, 1]]))
        total, weight, used = n_step_return(reward, discount, ends)
        end = (slots + used * self.stride) % self.capacity
        # Else it is computed anew for all that it reaches.
        return loop_fusion_barrier((total, weight, end), slots[0] >= 0)

    def cursor(self) -> tf.Tensor:
        """[] int32 slot of the next row."""
        return tf.cast(self.added % self.capacity, tf.int32)
