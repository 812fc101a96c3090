import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.exploration import EpsilonGreedy
from kytolly.agent.noisy_greedy import NoisyGreedy
from kytolly.agent.randomness import RandomStream
from kytolly.agent.sampling import correlate
from kytolly.agent.schedules import Schedule, linear_schedule
from kytolly.config.dqn import DQNConfig
from kytolly.config.rainbow import RainbowConfig
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.policy.action_values import ActionValues
from kytolly.policy.batch import Rollout


def test_linear_schedule_falls_and_stays():
    values = [float(linear_schedule(1.0, 0.2, 8, tf.constant(done))) for done in (-5, 0, 2, 8, 99)]
    np.testing.assert_allclose(values, [1.0, 1.0, 0.8, 0.2, 0.2], rtol=1e-6)


def make_epsilon_greedy(**settings):
    epsilons = {"epsilon_start": 0.5, "epsilon_final": 0.3, "exploration_env_steps": 100}
    return EpsilonGreedy(DQNConfig(warmup_env_steps=200, **epsilons, **settings), ActionValues(3))


def test_epsilon_is_one_until_warm_up_is_over_and_falls_from_then_on():
    exploration = make_epsilon_greedy()
    found = [exploration.state(tf.constant(n, tf.int64))[0] for n in (0, 199, 200, 250, 900)]
    np.testing.assert_allclose(found, [1.0, 1.0, 0.5, 0.4, 0.3], rtol=1e-6)


def test_epsilon_falls_on_to_its_end_until_the_run_ends():
    """By hand: learning begins after 200, 0.4 is reached after 300, 0.3 after 1,300."""
    exploration = make_epsilon_greedy(epsilon_middle=0.4, total_env_steps=1_300)
    env_steps = (199, 200, 250, 300, 800, 1_050, 1_300, 9_000)
    found = [exploration.state(tf.constant(n, tf.int64))[0] for n in env_steps]
    expected = [1.0, 0.5, 0.45, 0.4, 0.35, 0.325, 0.3, 0.3]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    early, late = (
        [float(equal.sum(axis=0).max()) for equal in equal_steps(exploration, n, 4_000)]
        for n in (250, 350)
    )
    assert early == [31, 31] and max(late) < 25  # random actions last while epsilon falls fast


def test_a_run_that_is_shorter_than_the_exploration_does_not_fall_on():
    exploration = make_epsilon_greedy(epsilon_middle=0.4, total_env_steps=250)
    assert float(exploration.state(tf.constant(250, tf.int64))[0]) == pytest.approx(0.45)


@pytest.mark.parametrize("env_steps, shares", [(0, [1 / 3] * 3), (400, [0.1, 0.8, 0.1])])
def test_epsilon_greedy_acts_best_or_at_random_on_the_device_and_on_the_host(env_steps, shares):
    """The best action also comes up among the random ones: 0.7 + 0.3/3."""
    exploration, values = make_epsilon_greedy(), np.tile([[0.0, 5.0, 1.0]], [30_000, 1])
    bits = tf.reshape(RandomStream(0).random_bits(60_000), [1, 30_000, 2])
    noise = exploration.noise(bits, tf.constant(env_steps, tf.int64))
    action, log_prob = exploration.action(tf.constant(values), tf.nest.map_structure(first, noise))
    assert log_prob is None
    rng, state = np.random.default_rng(0), exploration.state(tf.constant(env_steps)).numpy()
    (noise,) = exploration.host_noise(rng, (1, 30_000), state)
    on_host = exploration.host_action(lambda obs: values, None, noise)
    for found in (action.numpy(), on_host):
        np.testing.assert_allclose(np.bincount(found) / 30_000, shares, atol=0.01)


def test_the_network_is_not_asked_where_every_environment_explores():
    exploration, rng = make_epsilon_greedy(), np.random.default_rng(0)
    (noise,) = exploration.host_noise(rng, (1, 4), np.ones(1))
    np.testing.assert_array_equal(exploration.host_action(None, None, noise), noise[1])


def test_what_explores_lasts_for_whole_blocks_of_steps_on_the_device_and_on_the_host():
    exploration = make_epsilon_greedy(exploration_repeat=3)
    bits = tf.reshape(RandomStream(0).random_bits(8 * 500 * 2), [8, 500, 2])
    on_device = exploration.noise(bits, tf.constant(0, tf.int64))
    on_host = exploration.host_noise(np.random.default_rng(0), (8, 500), np.array([0.5]))
    on_host = [np.stack(column) for column in zip(*on_host, strict=True)]
    for column in (*map(np.asarray, on_device), *on_host):
        blocks = column[:3], column[3:6], column[6:]
        for block in blocks:
            assert (block == block[0]).all()
    for column in (on_device[1].numpy(), *on_host):
        assert 100 < (column[0] != column[3]).sum() < 400


def equal_steps(exploration, env_steps, num_envs):
    """[31, E] whether a step's random action is that of the step before, on device and host."""
    bits = tf.reshape(RandomStream(0).random_bits(32 * num_envs * 2), [32, num_envs, 2])
    on_device = exploration.noise(bits, tf.constant(env_steps, tf.int64))[1].numpy()
    state = exploration.state(tf.constant(env_steps, tf.int64)).numpy()
    on_host = exploration.host_noise(np.random.default_rng(0), (32, num_envs), state)
    on_host = np.stack([actions for _, actions in on_host])
    return [column[1:] == column[:-1] for column in (on_device, on_host)]


def test_random_actions_last_for_lengths_that_are_drawn_until_epsilon_has_fallen():
    exploration = make_epsilon_greedy()

    def repeats(env_steps):
        """Of each environment, how many of 32 steps act as the step before."""
        return [equal.sum(axis=0) for equal in equal_steps(exploration, env_steps, 4_000)]

    for found in repeats(0):
        # 1 of 8 lengths is 32; of those of 16, every third draws the same action twice.
        assert abs((found == 31).mean() - (1 / 8 + 1 / 24)) < 0.02
        assert 0.3 < (found < 16).mean() < 0.4  # 3 lengths are 1: a third of 31 steps by chance
    for found in repeats(900):
        assert (found < 25).all()


def test_long_random_actions_end_where_a_schedule_does():
    schedule = Schedule(np.array([1.0, 0.5, 0.0]), np.array([1.0, 0.2, 0.2]), total=10_000)
    exploration = EpsilonGreedy(DQNConfig(), ActionValues(3), schedule)
    bits = tf.reshape(RandomStream(0).random_bits(32 * 500 * 2), [32, 500, 2])
    actions = exploration.noise(bits, tf.constant(9_000, tf.int64))[1].numpy()
    assert not (actions == actions[0]).all(axis=0).any()


def a_rollout(reward, discount=0.99, count=1):
    """Ten steps of two environments with a reward of -1, of which `count` have these."""
    rewards, discounts = np.full((10, 2), -1.0, np.float32), np.full((10, 2), 0.99, np.float32)
    rewards[1 : 1 + count, 1], discounts[1 : 1 + count, 1] = reward, discount
    return Rollout(None, None, tf.constant(rewards), tf.constant(discounts), None, None)


@pytest.mark.parametrize("reward, discount", [(-0.5, 0.99), (-1.0, 0.0)])
def test_epsilon_falls_to_its_end_once_ten_rewards_differed(reward, discount):
    """After a termination rewards are 0, which is not -1."""
    exploration = EpsilonGreedy(DQNConfig(), ActionValues(3))
    found = []
    for rollout in (None, a_rollout(-1.0), a_rollout(reward, discount, 9), a_rollout(-1.0)):
        if rollout is not None:
            exploration.observe(rollout)
        found.append(exploration.state(tf.constant(40_000, tf.int64)))
    np.testing.assert_allclose(found, [[0.2, 1.0]] * 4, rtol=1e-6)
    exploration.observe(a_rollout(reward, discount))
    for env_steps, epsilon in ((0, 1.0), (3_500, 0.52), (40_000, 0.04)):  # falls from 1,000 on
        state = exploration.state(tf.constant(env_steps, tf.int64))
        np.testing.assert_allclose(state, [epsilon, 0.0], rtol=1e-6)


def test_random_actions_last_long_while_rewards_are_the_same():
    """Not in the warm-up, which begins before any reward was seen."""
    exploration = EpsilonGreedy(DQNConfig(), ActionValues(3))

    def least_repeats(env_steps):
        """The first step at which any of the environments changes its random action."""
        both = equal_steps(exploration, env_steps, 500)
        return [np.flatnonzero(~equal.all(axis=1))[0] + 1 for equal in both]

    assert least_repeats(0) == [1, 1]
    assert least_repeats(2_000) == least_repeats(40_000) == [8, 8]
    exploration.observe(a_rollout(-0.5, count=9))
    exploration.observe(a_rollout(-0.5))
    assert least_repeats(2_000) == [1, 1]
    assert exploration.state(tf.constant(40_000, tf.int64))[0] < 0.05


def test_an_end_without_a_reward_says_nothing():
    exploration = EpsilonGreedy(DQNConfig(), ActionValues(3))
    zero = a_rollout(-1.0, 0.0, 9)._replace(reward=tf.zeros([10, 2]))
    for _ in range(3):
        exploration.observe(zero)
    assert exploration.state(tf.constant(40_000, tf.int64))[1] == 1.0
    exploration.observe(zero._replace(reward=tf.ones([10, 2])))
    assert exploration.state(tf.constant(40_000, tf.int64))[1] == 0.0


@pytest.mark.parametrize("noisy", [False, True])
def test_an_exploration_that_was_asked_for_falls_in_any_case(noisy):
    exploration = EpsilonGreedy(DQNConfig(exploration_repeat=1, noisy=noisy), ActionValues(3))
    exploration.observe(a_rollout(-1.0, 0.99))
    assert float(exploration.state(tf.constant(40_000, tf.int64))[0]) == pytest.approx(0.04)
    schedule = Schedule(np.array([1.0, 0.0]), np.array([0.1, 0.1]), total=10_000)
    exploration = EpsilonGreedy(DQNConfig(), ActionValues(3), schedule)
    exploration.observe(a_rollout(-1.0, 0.99))
    assert float(exploration.state(tf.constant(9_000, tf.int64))[0]) == pytest.approx(0.1)


@pytest.mark.parametrize("start, shares", [(1.0, (1.0, 0.1, 0.02)), (0.0, (1.0, 0.0, 0.0))])
def test_noise_explores_beside_epsilon_unless_there_is_none(start, shares):
    epsilons = {} if start else {"epsilon_start": 0.0, "epsilon_final": 0.0}
    spec = EnvSpec("any", tf.TensorSpec([4]), Discrete(2))
    cfg = RainbowConfig(total_env_steps=20_000, exploration_repeat=1, **epsilons).fitted_to(spec)
    exploration = NoisyGreedy(cfg, ActionValues(2))
    begins = cfg.first_update_env_steps
    for env_steps, share in zip((begins - 1, begins + 5_000, 20_000), shares, strict=True):
        state = exploration.state(tf.constant(env_steps, tf.int64))
        np.testing.assert_allclose(state[0], share, atol=1e-3)
        noise = exploration.host_noise(np.random.default_rng(0), (1_000, 2), state.numpy())
        assert np.mean([explores for explores, _, _ in noise]) == pytest.approx(share, abs=0.03)


def first(column):
    return column[0]


@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_correlated_noise_leans_on_the_number_before(kind):
    noise = np.array([[1.0], [2.0], [-1.0], [0.5], [3.0]], np.float32)
    # correlation 0.6, so sqrt(1 - 0.36) = 0.8 of the new number: 1; 0.6 + 1.6 = 2.2;
    # 1.32 - 0.8 = 0.52; 0.312 + 0.4 = 0.712; 0.4272 + 2.4 = 2.8272
    expected = [[1.0], [2.2], [0.52], [0.712], [2.8272]]
    given = tf.constant(noise) if kind == "tensor" else noise
    np.testing.assert_allclose(correlate(given, 0.6), expected, rtol=1e-6)


def test_correlated_noise_stays_standard_normal_at_every_time():
    noise = np.random.default_rng(0).standard_normal((32, 20_000, 1)).astype(np.float32)
    found = correlate(noise, 0.9)[:, :, 0]
    np.testing.assert_allclose(found.std(axis=1), 1.0, atol=0.03)
    np.testing.assert_allclose(found.mean(axis=1), 0.0, atol=0.03)
    for time in (1, 2, 30):
        assert abs(np.corrcoef(found[time - 1], found[time])[0, 1] - 0.9) < 0.01
