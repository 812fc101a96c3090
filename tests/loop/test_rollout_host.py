import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kytolly.agent.factory import make_agent
from kytolly.config.ppo import PPOConfig
from kytolly.environment.gym.adapter import EnvironmentFault, make_host_groups
from kytolly.loop.rollout_host import RolloutHostLoop
from tests.environment.masked import SOURCES, Masked
from tests.environment.predictable import Predictable
from tests.loop.rollouts import assert_consecutive, joined, watched

SETTINGS = {
    "rollout_steps": 10,
    "num_minibatches": 2,
    "epochs": 2,
    "hidden_units": (8,),
    "gamma": 0.9,
    "learning_rate": 0.01,
}


def make_loop(env, num_envs=2, async_envs=False, model=None, **settings):
    groups = make_host_groups(env, num_envs, seed=0, masks=True, async_envs=async_envs)
    copies = sum(group.num_envs for group in groups)
    cfg = PPOConfig(**{**SETTINGS, **settings, "num_envs": copies, "async_envs": async_envs})
    return RolloutHostLoop(make_agent(cfg, groups[0].spec, model), groups)


def watched_run(env, env_steps, num_envs=2, **settings):
    loop = make_loop(env, num_envs, xla=False, **settings)
    seen = watched(loop.agent)
    metrics = loop.run(env_steps)
    loop.close()
    rollout, log_prob = joined(seen)
    np.testing.assert_allclose(loop.agent.policy.updates, metrics.updates)
    return metrics, rollout, log_prob


def assert_predictable(rollout):
    """Rows are steps of `Predictable`: one more each, paid for the action, ended as foretold."""
    copy, episode, step = np.moveaxis(rollout.obs, -1, 0)
    np.testing.assert_array_equal(rollout.next_obs, rollout.obs + [0, 0, 1])  # never after a reset
    np.testing.assert_array_equal(rollout.reward, 100 * episode + 10 * step + rollout.action)
    np.testing.assert_array_equal(rollout.last, step + 1 == 2 + (copy + episode) % 3)
    terminated = rollout.last & (episode % 2 == 0)
    np.testing.assert_allclose(rollout.discount, np.where(terminated, 0.0, 0.9), rtol=1e-6)
    assert terminated.any() and (rollout.last & ~terminated).any()
    # Each column is one copy; after an end comes the first step of its next episode.
    assert (copy == copy[0]).all() and len(set(copy[0])) == copy.shape[1]
    ended = rollout.last[:-1]
    assert (step[1:][ended] == 0).all() and (np.diff(episode, axis=0)[ended] == 1).all()


def test_rollouts_are_true_transitions_acted_by_the_weights_that_learn_from_them():
    metrics, rollout, _ = watched_run(Predictable, 60)
    assert rollout.obs.shape == (30, 2, 3)
    assert_predictable(rollout)
    assert_consecutive(rollout)
    assert int(metrics.updates) == 3 * 2 * 2  # 3 rollouts of 20 env steps, 2 epochs, 2 minibatches
    assert metrics.episodes == rollout.last.sum()
    # lengths of the episodes that ended, and their returns
    assert metrics.episode_length == (rollout.obs[..., 2] + 1)[rollout.last].sum()
    whole = sum(
        rollout.reward[: np.flatnonzero(rollout.last[:, e])[-1] + 1, e].sum() for e in range(2)
    )
    assert metrics.episode_return == whole


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_dummy_steps_of_a_vector_environment_never_enter_a_rollout(mode):
    def make():
        return SyncVectorEnv([Predictable] * 3, autoreset_mode=mode)

    _, rollout, _ = watched_run(make, 90, None)
    assert rollout.obs.shape == (30, 3, 3)
    assert_predictable(rollout)
    for start in (0, 10, 20):  # between rollouts the faster copies may lose steps
        part = type(rollout)(*(column[start : start + 10] for column in rollout[:6]))
        assert_consecutive(part)


def test_copies_in_processes_step_in_two_groups():
    groups = make_host_groups(Predictable, 4, seed=0, async_envs=True)
    assert [group.num_envs for group in groups] == [2, 2]
    cfg = PPOConfig(**SETTINGS, num_envs=4, async_envs=True, xla=False)
    loop = RolloutHostLoop(make_agent(cfg, groups[0].spec), groups)
    seen = watched(loop.agent)
    metrics = loop.run(80)
    loop.close()
    rollout, _ = joined(seen)
    assert rollout.obs.shape == (20, 4, 3) and int(metrics.updates) == 8
    assert_predictable(rollout)
    assert_consecutive(rollout)
    assert metrics.episodes == rollout.last.sum()
    assert len({tuple(column) for column in rollout.action.T}) == 4  # no two copies act alike


@pytest.mark.parametrize("source", SOURCES)
def test_no_forbidden_action_is_ever_taken(source):
    _, rollout, log_prob = watched_run(functools.partial(Masked, source), 120, 3)
    mask = rollout.obs["action_mask"]
    assert mask.shape == (40, 3, 4) and not mask.all()
    assert np.take_along_axis(mask, rollout.action[..., None], axis=-1).all()
    assert np.isfinite(log_prob).all()
    place = rollout.obs["place" if source == "entry" else "observation"]
    np.testing.assert_array_equal(mask.argmin(axis=-1), place.sum(axis=-1) % 4)


class Numbers(gymnasium.Env):
    """Two numbers are wanted, and shown again: what the environment got is its observation."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 3], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.array(action, np.float32), float(action[0]), False, False, {}


@pytest.mark.parametrize("bounds", ["clip", "squash"])
def test_numbers_are_remembered_as_drawn_and_act_within_their_bounds(bounds):
    _, rollout, log_prob = watched_run(
        Numbers, 120, 3, action_bounds=bounds, log_std_init=0.7, num_minibatches=3
    )
    if bounds == "clip":
        taken = np.clip(rollout.action, [-1, 0], [1, 3])
    else:
        taken = np.array([0.0, 1.5]) + np.tanh(rollout.action) * np.array([1.0, 1.5])
    np.testing.assert_allclose(rollout.next_obs, taken, atol=1e-5)
    assert (np.abs(rollout.action) > 3).any()
    assert rollout.action.std() > 1.5  # exp(0.7) is 2
    assert np.isfinite(log_prob).all()


def test_correlated_noise_follows_itself_in_time_and_not_across_copies():
    _, rollout, _ = watched_run(
        Numbers, 2_000, 4, noise_correlation=0.9, rollout_steps=100, learning_rate=1e-6
    )
    noise = rollout.action[:, :, 0]
    assert np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1] > 0.75
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < 0.5


def test_one_seed_gives_one_run_bit_for_bit_however_it_is_cut_into_calls():
    def trained(calls, seed=0):
        loop = make_loop("CartPole-v1", seed=seed)
        for env_steps in calls:
            loop.run(env_steps)
        loop.close()
        return loop.agent.policy.network.get_weights()

    whole, pieces, other = trained([120]), trained([20, 60, 21]), trained([120], seed=1)
    for a, b in zip(whole, pieces, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(whole[0], other[0])


@pytest.mark.parametrize("num_envs", [1, 256])
def test_any_number_of_copies_runs(num_envs):
    metrics, rollout, _ = watched_run(Predictable, 20 * num_envs, num_envs)
    assert rollout.obs.shape == (20, num_envs, 3) and int(metrics.updates) == 8
    assert_consecutive(rollout)


def test_images_and_other_networks_without_a_numpy_twin_train():
    class Image(Predictable):
        observation_space = spaces.Box(0, 255, (12, 12, 1), np.uint8)

        def observed(self):
            return np.full((12, 12, 1), self.steps, np.uint8)

    loop = make_loop(Image, xla=False)
    assert loop.actor.twin is None
    seen = watched(loop.agent)
    metrics = loop.run(40)
    loop.close()
    assert int(metrics.updates) == 8 and joined(seen)[0].obs.dtype == np.uint8


def test_statistics_are_those_of_all_rollouts_and_the_numpy_twin_acts_with_them():
    loop = make_loop("CartPole-v1", xla=False, normalize_observations=True)
    seen = watched(loop.agent)
    loop.run(100)
    loop.close()
    rollout, _ = joined(seen)
    network, rows = loop.agent.policy.network, rollout.obs.reshape(-1, 4)
    mean, variance, count = network.non_trainable_weights
    np.testing.assert_allclose(mean, rows.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(variance, rows.var(axis=0), rtol=1e-4)
    assert float(count) == 100
    np.testing.assert_allclose(loop.actor.outputs(rows[:7]), network(rows[:7])[0], atol=1e-5)


def test_an_environment_that_fails_is_reported():
    class Broken(Predictable):
        def step(self, action):
            if self.episode == 5:
                raise ArithmeticError("the robot fell over")
            return super().step(action)

    loop = make_loop(Broken, 1, xla=False)
    with pytest.raises(EnvironmentFault, match="the robot fell over"):
        loop.run(1_000)
    loop.close()
    assert int(loop.agent.env_steps) == 10  # the rollout before the fault is kept
