import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.factory import make_agent
from kytolly.config.ppo import PPOConfig
from kytolly.environment.probe.on_policy import (
    FORBIDDEN_REWARD,
    ContinuousAction,
    DictObservation,
    MaskedAction,
    MaskedKinds,
)
from kytolly.environment.probe.q_learning import Ring
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.loop.metrics import averages
from kytolly.loop.rollout_device import RolloutDeviceLoop
from tests.loop.rollouts import assert_consecutive, joined, watched

SETTINGS = {
    "num_envs": 2,
    "rollout_steps": 8,
    "num_minibatches": 2,
    "epochs": 2,
    "hidden_units": (8,),
    "gamma": 0.9,
}


def make_loop(env=None, **settings):
    env = env or CartPole()
    return RolloutDeviceLoop(make_agent(PPOConfig(**{**SETTINGS, **settings}), env.spec), env)


def weights_of(loop):
    return [np.asarray(weight) for weight in loop.agent.policy.network.weights]


def state_of(loop):
    variables = [*loop.agent.variables, *loop.variables]
    return [*weights_of(loop), *(np.asarray(variable) for variable in variables)]


def watched_run(env, env_steps, **settings):
    loop = make_loop(env, xla=False, **settings)
    seen = watched(loop.agent)
    loop.run(env_steps)
    return loop, *joined(seen)


@pytest.fixture(scope="module")
def trained():
    loop = make_loop(learning_rate=0.01)
    return loop, [loop.run(0), loop.run(160), loop.run(161)]


def test_a_call_runs_whole_rollouts_and_counts_them(trained):
    loop, (nothing, first, second) = trained
    assert int(nothing.updates) == 0 and int(nothing.episodes) == 0
    # rollouts of 16 env steps: 10, then 11; 2 epochs of 2 updates from each
    assert (int(first.updates), int(second.updates)) == (40, 44)
    assert int(loop.agent.env_steps) == 160 + 176
    assert int(loop.agent.policy.updates) == 84


def test_episodes_are_counted_with_their_returns(trained):
    loop, calls = trained
    episodes = sum(int(call.episodes) for call in calls)
    assert episodes == int(loop.agent.episodes) > 0
    total = sum(float(call.episode_return) for call in calls)
    assert total == sum(int(call.episode_length) for call in calls)  # reward 1 a step
    assert total < 336


def test_figures_of_a_call_have_names_and_are_finite(trained):
    loop, (_, first, _) = trained
    row = averages(first, loop.agent)
    names = "loss policy_loss value_loss entropy approximate_kl clip_fraction grad_norm"
    assert set(names.split()) | {"explained_variance"} <= set(row)
    assert all(np.isfinite(value) for value in row.values())
    assert 0.0 < row["entropy"] <= np.log(2) + 1e-6 and row["explained_variance"] <= 1.0


def test_rollouts_are_true_transitions_acted_by_the_weights_that_learn_from_them():
    env = CartPole()
    _, rollout, log_prob = watched_run(env, 160, learning_rate=0.01)
    assert rollout.obs.shape == (80, 2, 4)
    rows = 160
    obs, action = rollout.obs.reshape(rows, 4), rollout.action.reshape(rows)
    expected, reward, terminated = env.step(
        tf.constant(obs), tf.constant(action), tf.zeros([rows, 0])
    )
    np.testing.assert_allclose(rollout.next_obs.reshape(rows, 4), expected, atol=1e-6)
    np.testing.assert_allclose(rollout.reward.reshape(rows), reward)
    np.testing.assert_array_equal(rollout.last.reshape(rows), terminated)
    np.testing.assert_allclose(
        rollout.discount.reshape(rows), np.where(terminated, 0.0, 0.9), rtol=1e-6
    )
    assert rollout.last.any()
    assert_consecutive(rollout)
    np.testing.assert_allclose(rollout.log_prob, log_prob, atol=1e-5)


@pytest.mark.parametrize("rollout_steps", [3, 4, 7])
def test_a_time_limit_keeps_its_discount_and_the_observation_before_the_reset(rollout_steps):
    """Episodes of 4 steps, cut once a rollout, or twice."""
    _, rollout, _ = watched_run(
        Ring(), 84, rollout_steps=rollout_steps, num_envs=2, num_minibatches=1
    )
    np.testing.assert_allclose(rollout.discount, 0.9, rtol=1e-6)
    np.testing.assert_array_equal(np.flatnonzero(rollout.last[:, 0])[:4], [3, 7, 11, 15])
    place, after = rollout.obs.argmax(axis=-1), rollout.next_obs.argmax(axis=-1)
    np.testing.assert_array_equal(after, (place + 1) % 3)
    assert_consecutive(rollout)


@pytest.mark.parametrize("make_env", [MaskedAction, MaskedKinds])
def test_no_forbidden_action_is_ever_taken(make_env):
    _, rollout, log_prob = watched_run(make_env(), 640, num_envs=16, learning_rate=0.05)
    assert rollout.reward.min() > FORBIDDEN_REWARD
    action = rollout.action.reshape(640, -1) + np.array([0, 2])[: rollout.action.ndim - 1]
    mask = rollout.obs["action_mask"].reshape(640, -1)
    assert np.take_along_axis(mask, action, axis=1).all()
    assert np.isfinite(log_prob).all()
    np.testing.assert_allclose(rollout.log_prob, log_prob, atol=1e-5)


def test_numbers_are_remembered_as_drawn_and_act_within_their_bounds():
    env = ContinuousAction()
    _, rollout, log_prob = watched_run(env, 320, num_envs=4, log_std_init=1.0)
    low, high = np.array(env.spec.action.low), np.array(env.spec.action.high)
    assert (rollout.action < low).any() and (rollout.action > high).any()  # not yet clipped
    np.testing.assert_allclose(rollout.log_prob, log_prob, atol=1e-4)
    taken = np.clip(rollout.action, low, high).reshape(-1, 2).astype(np.float32)
    _, reward, _ = env.step(tf.constant(rollout.obs.reshape(-1, 1)), tf.constant(taken), None)
    np.testing.assert_allclose(rollout.reward.reshape(-1), reward, atol=1e-5)


def test_statistics_are_those_of_all_rollouts_and_change_only_between_them():
    loop, rollout, log_prob = watched_run(
        CartPole(), 160, normalize_observations=True, learning_rate=0.01
    )
    mean, variance, count = loop.agent.policy.network.non_trainable_weights
    rows = rollout.obs.reshape(-1, 4)
    np.testing.assert_allclose(mean, rows.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(variance, rows.var(axis=0), rtol=1e-4)
    assert float(count) == 160
    np.testing.assert_allclose(rollout.log_prob, log_prob, atol=1e-5)  # still those of the acting


def test_one_seed_gives_one_run_bit_for_bit_however_it_is_cut_into_calls():
    whole, pieces = make_loop(learning_rate=0.01), make_loop(learning_rate=0.01)
    other = make_loop(seed=1)
    assert not np.array_equal(weights_of(whole)[0], weights_of(other)[0])
    assert not np.array_equal(whole.standing[1], other.standing[1])  # observations
    whole.run(112)
    for env_steps in (16, 32, 60):
        pieces.run(env_steps)
    for a, b in zip(state_of(whole), state_of(pieces), strict=True):
        np.testing.assert_array_equal(a, b)


def test_accumulated_minibatches_make_the_run_of_larger_ones():
    larger = make_loop(num_minibatches=2, xla=False)
    parts = make_loop(num_minibatches=8, gradient_accumulation=4, xla=False)
    for loop in (larger, parts):
        assert int(loop.run(48).updates) == 12
    for a, b in zip(weights_of(larger), weights_of(parts), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_target_kl_ends_the_epochs_of_a_rollout_with_the_update_that_went_too_far():
    settings = {"learning_rate": 0.1, "epochs": 4, "xla": False}
    assert int(make_loop(target_kl=100.0, **settings).run(48).updates) == 3 * 8
    # The first update finds the weights that acted; the second finds those after a large step.
    held = make_loop(target_kl=1e-3, **settings)
    assert int(held.run(48).updates) == 3 * 2 == int(held.agent.policy.updates)


def test_dicts_of_observations_train():
    loop = make_loop(DictObservation(), normalize_observations=True, xla=False)
    assert int(loop.run(48).updates) == 12
    assert all(np.isfinite(weight).all() for weight in weights_of(loop))


@pytest.mark.parametrize("num_envs", [1, 256])
def test_any_number_of_copies_runs(num_envs):
    loop = make_loop(num_envs=num_envs, rollout_steps=4)
    metrics = loop.run(8 * num_envs)
    assert int(loop.agent.env_steps) == 8 * num_envs and int(metrics.updates) == 8
    assert all(np.isfinite(weight).all() for weight in weights_of(loop))
