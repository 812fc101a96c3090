"""The device loop, with an algorithm that replays and one that learns from each rollout."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.loop.device import DeviceLoop
from kytolly.loop.learn import LoopMetrics
from tests.helpers.cases import learning
from tests.helpers.on_policy_probes import (
    FORBIDDEN_REWARD,
    ContinuousAction,
    DictObservation,
    MaskedAction,
    MaskedKinds,
)
from tests.helpers.q_learning_probes import Ring
from tests.loop.configs import assert_same_state, small_config
from tests.loop.rollouts import assert_consecutive, join, watch

both = pytest.mark.parametrize("algorithm", ["dqn", "ppo"])


def make_loop(algorithm="dqn", env=None, **settings):
    env = env or CartPole()
    return DeviceLoop(make_agent(small_config(algorithm, **settings), env.spec), env)


def make_trained_loop(algorithm):
    return make_loop(algorithm, learning_rate=0.01, learning_rate_final=None)


def watched_run(algorithm, env, env_steps, **settings):
    loop = make_loop(algorithm, env, xla=False, **settings)
    seen = watch(loop.agent)
    loop.run(env_steps)
    return loop, *join(seen)


@pytest.fixture(scope="module", params=["dqn", "ppo"])
def trained(request):
    """One compiled loop of each algorithm, called three times."""
    loop = make_trained_loop(request.param)
    return request.param, loop, [loop.run(0), loop.run(160), loop.run(161)]


def test_a_call_runs_whole_iterations_and_counts_them(trained):
    algorithm, loop, (nothing, first, second) = trained
    assert int(nothing.updates) == 0 and int(nothing.episodes) == 0
    # DQN: iterations of 8 env steps, of which the first 4 end below the warm-up of 40, with 2
    # updates each. PPO: of 16, with 2 epochs of 2 minibatches.
    env_steps, updates = {"dqn": (168, (32, 42)), "ppo": (176, (40, 44))}[algorithm]
    assert loop.env_steps_per_iteration == {"dqn": 8, "ppo": 16}[algorithm]
    assert int(loop.agent.env_steps) == 160 + env_steps
    assert (int(first.updates), int(second.updates)) == updates
    assert int(loop.agent.policy.updates) == sum(updates)
    assert loop.xla and loop.program._ready is not None


def test_episodes_are_counted_with_their_returns(trained):
    _, loop, calls = trained
    episodes = sum(int(call.episodes) for call in calls)
    assert episodes == int(loop.agent.episodes) > 0
    total = sum(float(call.episode_return) for call in calls)
    assert total == sum(int(call.episode_length) for call in calls)  # reward 1 a step
    assert total < int(loop.agent.env_steps)


def test_metrics_of_a_call_have_names_and_are_finite(trained):
    algorithm, loop, (nothing, first, _) = trained
    row, names = first.averages(loop.agent), "loss grad_norm episode_return episode_length"
    own = {
        "dqn": "td_error q_mean epsilon searching",
        "ppo": "policy_loss value_loss entropy approximate_kl clip_fraction explained_variance",
    }
    assert set(row) == {*names.split(), *own[algorithm].split()}
    assert all(np.isfinite(value) for value in row.values())
    assert np.isnan(nothing.averages(loop.agent)["loss"])
    if algorithm == "ppo":
        assert 0.0 < row["entropy"] <= np.log(2) + 1e-6 and row["explained_variance"] <= 1.0


@pytest.mark.parametrize("precision", ["float32", "mixed_float16"])
def test_a_skipped_update_is_left_out_of_the_means(precision):
    """Only float16 skips updates; elsewhere what is not finite is there to stay, and shows."""
    agent = make_loop("dqn", precision=precision, xla=False).agent
    sums = LoopMetrics.zeros(agent)
    for metrics in ([1.0, 2.0, 3.0, 4.0], [3.0, 4.0, np.inf, np.nan], [5.0, 6.0, 7.0, 8.0]):
        sums = sums.with_update(tf.constant(metrics)).plus(LoopMetrics.zeros(agent))
    row = [sums.averages(agent)[name] for name in agent.policy.metric_names]
    expected = [3.0, 4.0, 5.0, 6.0] if precision == "mixed_float16" else [3.0, 4.0, np.inf, np.nan]
    np.testing.assert_allclose(row, expected)
    assert int(sums.updates) == 3


def test_sums_of_a_run_of_before_go_on_where_it_had_other_latest_metrics():
    zeros = LoopMetrics.zeros(make_loop("dqn", xla=False).agent).on_host()
    before = zeros._replace(updates=3, latest=np.arange(7.0))
    both = before.plus(zeros._replace(updates=4, latest=zeros.latest + 1.0))
    assert both.updates == 7 and both.latest.tolist() == [1.0] * len(zeros.latest)


def test_the_memory_of_dqn_holds_the_rows_in_the_order_of_time(trained):
    algorithm, loop, _ = trained
    if algorithm != "dqn":
        pytest.skip("a rollout is not kept")
    size, env = int(loop.agent.memory.size), CartPole()
    assert size == 328
    columns = [column.numpy()[:size] for column in loop.agent.memory.columns[:5]]
    obs, action, reward, discount, next_obs = columns
    expected, expected_reward, terminated = env.step(obs, action, tf.zeros([size, 0]))
    np.testing.assert_allclose(next_obs, expected, atol=1e-6)
    np.testing.assert_allclose(reward, expected_reward)
    np.testing.assert_allclose(discount, np.where(terminated, 0.0, 0.9), rtol=1e-6)
    goes_on = discount[:-2] > 0
    assert np.any(terminated)
    np.testing.assert_array_equal(next_obs[:-2][goes_on], obs[2:][goes_on])
    assert np.abs(obs[2:][~goes_on]).max() < 0.05  # a reset


@both
def test_rollouts_are_true_transitions_acted_by_the_weights_that_learn_from_them(algorithm):
    env = CartPole()
    _, rollout, log_prob = watched_run(algorithm, env, 160, learning_rate=0.01)
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
    if algorithm == "ppo":
        np.testing.assert_allclose(rollout.log_prob, log_prob, atol=1e-5)
    else:
        assert rollout.log_prob is None


@pytest.mark.parametrize(
    "algorithm, rollout_steps", [("dqn", 4), ("ppo", 3), learning(("ppo", 4)), learning(("ppo", 7))]
)
def test_a_time_limit_keeps_its_discount_and_the_observation_before_the_reset(
    algorithm, rollout_steps
):
    """Episodes of 4 steps, cut once in a rollout, or twice."""
    own = {"rollout_steps": rollout_steps, "num_minibatches": 1} if algorithm == "ppo" else {}
    _, rollout, _ = watched_run(algorithm, Ring(), 84, **own)
    np.testing.assert_allclose(rollout.discount, 0.9, rtol=1e-6)
    np.testing.assert_array_equal(np.flatnonzero(rollout.last[:, 0])[:4], [3, 7, 11, 15])
    place, after = rollout.obs.argmax(axis=-1), rollout.next_obs.argmax(axis=-1)
    np.testing.assert_array_equal(after, (place + 1) % 3)
    assert_consecutive(rollout)


@pytest.mark.parametrize("make_env", [learning(MaskedAction), MaskedKinds])
def test_no_forbidden_action_is_ever_taken(make_env):
    _, rollout, log_prob = watched_run("ppo", make_env(), 640, num_envs=16, learning_rate=0.05)
    assert rollout.reward.min() > FORBIDDEN_REWARD
    action = rollout.action.reshape(640, -1) + np.array([0, 2])[: rollout.action.ndim - 1]
    mask = rollout.obs["action_mask"].reshape(640, -1)
    assert np.take_along_axis(mask, action, axis=1).all()
    assert np.isfinite(log_prob).all()
    np.testing.assert_allclose(rollout.log_prob, log_prob, atol=1e-5)


@pytest.mark.parametrize("bounds", ["scale", "clip"])
def test_continuous_actions_are_remembered_as_drawn_and_act_within_their_bounds(bounds):
    env, settings = ContinuousAction(), {"action_bounds": bounds, "log_std_init": 1.0}
    _, rollout, log_prob = watched_run("ppo", env, 320, num_envs=4, **settings)
    low, high = np.array(env.spec.action.low), np.array(env.spec.action.high)
    assert (rollout.action < low).any() and (rollout.action > high).any()  # not yet clipped
    np.testing.assert_allclose(rollout.log_prob, log_prob, atol=1e-4)
    taken = rollout.action if bounds == "clip" else [0.0, 0.5] + rollout.action * [2.0, 1.5]
    taken = np.clip(taken, low, high).reshape(-1, 2).astype(np.float32)
    _, reward, _ = env.step(tf.constant(rollout.obs.reshape(-1, 1)), tf.constant(taken), None)
    np.testing.assert_allclose(rollout.reward.reshape(-1), reward, atol=1e-5)


def test_statistics_are_those_of_all_rollouts_and_change_only_between_them():
    loop, rollout, log_prob = watched_run(
        "ppo", CartPole(), 160, normalize_observations=True, learning_rate=0.01
    )
    mean, variance, count = loop.agent.policy.network.non_trainable_weights
    rows = rollout.obs.reshape(-1, 4)
    np.testing.assert_allclose(mean, rows.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(variance, rows.var(axis=0), rtol=1e-4)
    assert float(count) == 160
    np.testing.assert_allclose(rollout.log_prob, log_prob, atol=1e-5)  # still those of the acting


def test_one_seed_gives_one_run_bit_for_bit_however_it_is_cut_into_calls(trained):
    """Another seed begins with other weights and other observations."""
    algorithm, whole, _ = trained
    pieces, other = make_trained_loop(algorithm), make_loop(algorithm, seed=1)
    start = pieces.agent.policy.weights.vector.numpy()
    assert not np.array_equal(start, other.agent.policy.weights.vector)
    assert not np.array_equal(pieces.env_state[1], other.env_state[1])  # observations
    for env_steps in (16, 144, 8, 160):
        pieces.run(env_steps)
    assert_same_state(whole, pieces)
    assert not np.array_equal(start, pieces.agent.policy.weights.vector)


def test_accumulated_minibatches_make_the_run_of_larger_ones():
    larger = make_loop("ppo", num_minibatches=2, xla=False)
    parts = make_loop("ppo", num_minibatches=8, gradient_accumulation=4, xla=False)
    for loop in (larger, parts):
        assert int(loop.run(48).updates) == 12
    found, expected = (loop.agent.policy.weights.vector for loop in (parts, larger))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_target_kl_ends_the_epochs_of_a_rollout_with_the_update_that_went_too_far():
    settings = {"learning_rate": 0.1, "epochs": 4, "xla": False}
    assert int(make_loop("ppo", target_kl=100.0, **settings).run(48).updates) == 3 * 8
    # The first update finds the weights that acted; the second finds those after a large step.
    held = make_loop("ppo", target_kl=1e-3, **settings)
    assert int(held.run(48).updates) == 3 * 2 == int(held.agent.policy.updates)


def test_dicts_of_observations_train():
    loop = make_loop("ppo", DictObservation(), normalize_observations=True, xla=False)
    assert int(loop.run(48).updates) == 12
    assert np.isfinite(loop.agent.policy.weights.vector).all()


@both
@pytest.mark.parametrize("num_envs", [learning(1), 1024])
def test_any_number_of_environments_runs(algorithm, num_envs):
    own = {"dqn": {"replay_capacity": 10_000, "updates_per_interval": 1}, "ppo": {}}[algorithm]
    loop = make_loop(algorithm, num_envs=num_envs, xla=False, **own)
    loop.run(2 * num_envs)
    assert int(loop.agent.env_steps) >= 2 * num_envs
    assert np.isfinite(loop.agent.policy.weights.vector).all()
