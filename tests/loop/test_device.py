import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.factory import make_agent
from kytolly.config.dqn import DQNConfig
from kytolly.environment.probe.q_learning import Ring
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.loop.device import DeviceLoop

SETTINGS = {
    "batch_size": 8,
    "hidden_units": (8,),
    "replay_capacity": 400,
    "warmup_env_steps": 40,
    "train_interval_env_steps": 4,
    "updates_per_interval": 2,
    "target_sync_updates": 5,
}


def make_loop(env=None, **settings):
    cfg = DQNConfig(**{**SETTINGS, **settings})
    env = env or CartPole()
    return DeviceLoop(make_agent(cfg, env.spec), env)


def state_of(loop):
    variables = [*loop.agent.variables, *loop.agent.policy.online.weights, *loop.variables]
    return [np.asarray(variable) for variable in variables]


@pytest.fixture(scope="module")
def trained():
    loop = make_loop(num_envs=2)
    return loop, [loop.run(0), loop.run(100), loop.run(101)]


def test_a_call_runs_whole_rounds_and_counts_them(trained):
    loop, (nothing, first, second) = trained
    assert int(nothing.updates) == 0 and int(nothing.episodes) == 0
    assert int(loop.agent.env_steps) == 100 + 104
    # 2 updates for every 4 env steps once 40 are collected: rounds 10 to 25, then 26 more
    assert (int(first.updates), int(second.updates)) == (32, 52)
    assert int(loop.agent.policy.updates) == 84
    assert int(loop.agent.replay.size) == 204


def test_episodes_are_counted_with_their_returns(trained):
    loop, calls = trained
    episodes = sum(int(call.episodes) for call in calls)
    assert episodes == int(loop.agent.episodes) > 0
    total = sum(float(call.episode_return) for call in calls)
    assert total == sum(int(call.episode_length) for call in calls)  # reward 1 a step
    assert total < 204


def test_every_row_is_a_true_transition_of_the_environment(trained):
    loop, _ = trained
    size, env = int(loop.agent.replay.size), CartPole()
    obs, action, reward, discount, next_obs = (
        column[:size] for column in loop.agent.replay.columns
    )
    expected, expected_reward, terminated = env.step(obs, action, tf.zeros([size, 0]))
    np.testing.assert_allclose(next_obs, expected, atol=1e-6)
    np.testing.assert_allclose(reward, expected_reward)
    np.testing.assert_allclose(discount, np.where(terminated, 0.0, 0.99), rtol=1e-6)
    assert np.any(terminated)


def test_the_next_row_of_a_copy_begins_where_the_last_one_ended(trained):
    loop, _ = trained
    size = int(loop.agent.replay.size)
    obs, *_, discount, next_obs = (column.numpy()[:size] for column in loop.agent.replay.columns)
    goes_on = discount[:-2] > 0
    np.testing.assert_array_equal(next_obs[:-2][goes_on], obs[2:][goes_on])
    assert np.abs(obs[2:][~goes_on]).max() < 0.05  # a reset


def test_one_seed_gives_one_run_bit_for_bit_and_another_seed_another():
    loops = [make_loop(seed=1), make_loop(seed=1), make_loop(seed=2)]
    for loop in loops:
        loop.run(120)
    one, same, other = (state_of(loop) for loop in loops)
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_size_of_the_calls_changes_nothing():
    whole, pieces = make_loop(), make_loop()
    whole.run(120)
    for env_steps in (4, 36, 80):
        pieces.run(env_steps)
    for a, b in zip(state_of(whole), state_of(pieces), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_time_limit_keeps_its_discount_and_the_observation_before_the_reset():
    loop = make_loop(Ring(), gamma=0.9)
    loop.run(60)
    replay, size = loop.agent.replay, int(loop.agent.replay.size)
    np.testing.assert_allclose(replay.columns.discount[:size], 0.9, rtol=1e-6)
    place = np.argmax(replay.columns.obs.numpy()[:size], axis=1)
    after = np.argmax(replay.columns.next_obs.numpy()[:size], axis=1)
    np.testing.assert_array_equal(after, (place + 1) % replay.columns.obs.shape[1])


@pytest.mark.parametrize("num_envs", [1, 64, 4096])
def test_any_number_of_copies_runs(num_envs):
    loop = make_loop(
        num_envs=num_envs,
        replay_capacity=20_000,
        train_interval_env_steps=max(4, num_envs),
        updates_per_interval=1,
    )
    loop.run(2 * num_envs)
    assert int(loop.agent.env_steps) >= 2 * num_envs


def test_what_xla_cannot_compile_trains_without_it_and_says_so_once():
    class Chatty(CartPole):
        def observe(self, state):
            return tf.numpy_function(lambda x: x, [state], tf.float32) + tf.zeros_like(state)

    loop = make_loop(Chatty())
    with pytest.warns(UserWarning, match="XLA cannot compile") as caught:
        loop.run(48)
    loop.run(8)
    assert len([w for w in caught if "XLA" in str(w.message)]) == 1
    assert int(loop.agent.env_steps) == 56
