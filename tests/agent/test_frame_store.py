"""A memory that keeps each frame once shows what one that keeps whole stacks shows."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.frame_store import ring_length
from kytolly.agent.prioritized_replay import PrioritizedReplay
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.config.dqn import DQNConfig
from kytolly.machine.memory import training_bytes
from kytolly.policy.batch import Transition
from tests.helpers.cases import learning

SIZE, STACK = (3, 2), 4
SPEC = tf.TensorSpec([*SIZE, STACK], tf.uint8)


class StackedGame:
    """Environments whose frames are random, and whose stacks begin with a frame repeated."""

    def __init__(self, num_envs, seed, end_share):
        self.rng, self.num_envs, self.end_share = np.random.default_rng(seed), num_envs, end_share
        self.obs = np.stack([self.first() for _ in range(num_envs)])

    def frame(self):
        return self.rng.integers(0, 256, SIZE, np.uint8)

    def first(self):
        return np.repeat(self.frame()[..., np.newaxis], STACK, axis=-1)

    def restart(self, env):
        """A new episode where nobody saw an end: after a fault, or a resume."""
        self.obs[env] = self.first()

    def rollout(self, steps):
        """[steps * E] rows and their ends, time-major."""
        rows = []
        for _ in range(steps):
            new = np.stack([self.frame() for _ in range(self.num_envs)])[..., np.newaxis]
            next_obs = np.concatenate([self.obs[..., 1:], new], axis=-1)
            terminated, truncated = self.rng.random((2, self.num_envs)) < self.end_share / 2
            reward = self.rng.normal(size=self.num_envs).astype(np.float32)
            discount = np.where(terminated, 0.0, 0.9).astype(np.float32)
            rows.append((self.obs, reward, discount, next_obs, terminated | truncated))
            self.obs = next_obs.copy()
            for env in np.flatnonzero(terminated | truncated):
                self.obs[env] = self.first()
        obs, reward, discount, next_obs, last = map(np.concatenate, zip(*rows, strict=True))
        action = self.rng.integers(0, 6, len(reward))
        return Transition(obs, action, reward, discount, next_obs), last


def require_equal(memories, slots):
    found, expected = (memory.rows(slots) for memory in memories)
    for one, other in zip(found[:5], expected[:5], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "num_envs,n_step,capacity", [(1, 1, 97), learning((3, 1, 96)), (3, 3, 101)]
)
def test_every_row_is_that_of_a_memory_of_whole_stacks(num_envs, n_step, capacity):
    """Through ends of both kinds, faults, and the borders of both rings."""
    pair = [ReplayBuffer(capacity, SPEC, num_envs, n_step, frame_stack=k) for k in (STACK, 0)]
    game, rng = StackedGame(num_envs, seed=num_envs, end_share=0.04), np.random.default_rng(1)
    for iteration in range(60):
        rows, last = game.rollout(steps=1 + iteration % 5)
        for memory in pair:
            memory.add(Transition(*map(tf.constant, rows[:5])), tf.constant(last))
        if iteration % 7 == 6:
            cut = rng.permutation(num_envs)[:1]
            game.restart(cut[0])
            for memory in pair:
                memory.end_episodes(cut)
        complete = int(pair[0].size) - (n_step - 1) * num_envs
        if complete > 0:
            oldest = int(pair[0].cursor()) - int(pair[0].size)
            require_equal(pair, tf.constant((oldest + np.arange(complete)) % capacity, tf.int32))


def test_new_episodes_in_all_environments_begin_new_stacks():
    pair = [ReplayBuffer(50, SPEC, 2, frame_stack=k) for k in (STACK, 0)]
    game = StackedGame(2, seed=0, end_share=0.0)
    for _ in range(2):
        rows, last = game.rollout(steps=5)
        for memory in pair:
            memory.add(Transition(*map(tf.constant, rows[:5])), tf.constant(last))
            memory.end_episodes()
        for env in range(2):
            game.restart(env)
    require_equal(pair, tf.range(20))


def test_rows_whose_frames_are_gone_are_replaced_by_rows_that_are_whole():
    """Episodes of one or two steps need more frames than the ring has."""
    pair = [ReplayBuffer(400, SPEC, 2, frame_stack=k) for k in (STACK, 0)]
    game = StackedGame(2, seed=3, end_share=0.8)
    for _ in range(50):
        rows, last = game.rollout(steps=10)
        for memory in pair:
            memory.add(Transition(*map(tf.constant, rows[:5])), tf.constant(last))
    kept, whole = pair
    slots = tf.range(400)
    shown = kept.rows(slots)
    gone = np.any(shown.reward.numpy() != whole.rows(slots).reward.numpy())
    assert gone, "the ring was long enough: the test shows nothing"
    place = {float(reward): row for row, reward in enumerate(whole.columns.reward.numpy())}
    found = tf.constant([place[float(reward)] for reward in shown.reward])
    np.testing.assert_array_equal(shown.obs, whole.rows(found).obs)
    np.testing.assert_array_equal(shown.next_obs, whole.rows(found).next_obs)


def test_an_error_goes_to_the_row_that_was_shown_in_place_of_one_without_frames():
    memory = PrioritizedReplay(400, SPEC, 2, frame_stack=STACK)
    game = StackedGame(2, seed=3, end_share=0.8)
    for _ in range(50):
        rows, last = game.rollout(steps=10)
        memory.add(Transition(*map(tf.constant, rows[:5])), tf.constant(last))
    words = np.random.default_rng(0).integers(0, 2**32, 200, np.uint32)
    batch = memory.sample(tf.constant(words))
    assert len(set(batch.slot.numpy())) < 200, "no row was replaced: the test shows nothing"
    np.testing.assert_array_equal(tf.gather(memory.columns.reward, batch.slot), batch.reward)
    errors = tf.cast(batch.slot, tf.float32)
    memory.close(batch, errors)
    priority = memory.tree.numbers(batch.slot)
    np.testing.assert_allclose(priority, np.sqrt(errors + 1e-6), rtol=1e-5)


def test_the_number_of_frames_may_pass_the_largest_integer():
    pair = [ReplayBuffer(30, SPEC, 1, frame_stack=k) for k in (STACK, 0)]
    pair[0].frames.added.assign(pair[0].frames.period - 20)
    game = StackedGame(1, seed=0, end_share=0.1)
    for _ in range(8):
        rows, last = game.rollout(steps=5)
        for memory in pair:
            memory.add(Transition(*map(tf.constant, rows[:5])), tf.constant(last))
    assert int(pair[0].frames.added) < 40
    require_equal(pair, tf.range(30))


def test_a_million_rows_of_atari_fit_into_8_gib():
    cfg = DQNConfig(replay_capacity=1_000_000, num_envs=8)
    atari = tf.TensorSpec([84, 84, 4], tf.uint8)
    frames = ring_length(cfg.replay_capacity, cfg.num_envs, 4)
    assert frames == 1_062_580
    kept = training_bytes(cfg, atari, 6, None, frame_stack=4)["replay_capacity"]
    assert frames * 84 * 84 < kept < 8 * 2**30


def test_rows_of_some_environments_alone_are_refused():
    memory = ReplayBuffer(30, SPEC, 3, frame_stack=STACK)
    rows, last = StackedGame(2, seed=0, end_share=0.0).rollout(1)
    with pytest.raises(ValueError, match="2 rows for 3 environments"):
        memory.add(Transition(*map(tf.constant, rows[:5])), tf.constant(last))
