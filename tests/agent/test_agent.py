import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.agent.reward_scale import RewardScale
from kytolly.config.ppo import PPOConfig
from kytolly.environment.spec import Discrete, EnvSpec, MultiDiscrete
from kytolly.policy.batch import Rollout
from tests.helpers.on_policy_probes import (
    FORBIDDEN_REWARD,
    ContinuousAction,
    DictObservation,
    MaskedAction,
    MaskedKinds,
)

VECTOR = EnvSpec("vector", tf.TensorSpec([3]), Discrete(2))
DEFAULTS = {"num_envs": 2, "rollout_steps": 3, "num_minibatches": 1, "hidden_units": (8,)}


def make_config(**settings):
    return PPOConfig(**{**DEFAULTS, **settings})


def make_rollout(reward, last, discount=0.5):
    reward, last = tf.constant(reward, tf.float32), tf.constant(last)
    shape = reward.shape
    zeros = tf.zeros([*shape, 3])
    action = tf.zeros(shape, tf.int32)
    return Rollout(zeros, action, reward, tf.fill(shape, discount), zeros, last, tf.zeros(shape))


def test_a_row_discounts_by_gamma_but_not_beyond_a_termination():
    agent, terminated = make_agent(make_config(gamma=0.9), VECTOR), np.array([True, False])
    for found in (agent.discount(terminated), agent.discount(tf.constant(terminated))):
        np.testing.assert_allclose(found, [0.0, 0.9], rtol=1e-6)
        assert found.dtype == "float32"


def test_rewards_are_scaled_by_the_deviation_of_discounted_returns():
    scale = RewardScale(2, gamma=0.5, clip=10.0)
    # Returns so far, G = 0.5 G + r, from 0 after an end. Copy 0: 4, 4, 8; copy 1: 2, 1, then the
    # end, so 8 and not 8.5.
    reward, last = (
        [[4.0, 2.0], [2.0, 0.0], [6.0, 8.0]],
        [[False, False], [False, True], [False] * 2],
    )
    found = scale.divide(make_rollout(reward, last))
    deviation = np.std([4.0, 4.0, 8.0, 2.0, 1.0, 8.0])
    np.testing.assert_allclose(found, np.array(reward) / deviation, rtol=1e-3)
    # The returns go on in the next rollout: copy 0 from 8: 4 + 1 = 5; copy 1 from 8: 4 - 4 = 0
    found = scale.divide(make_rollout([[1.0, -4.0]], [[False, False]]))
    deviation = np.std([4.0, 4.0, 8.0, 2.0, 1.0, 8.0, 5.0, 0.0])
    np.testing.assert_allclose(found, [[1.0 / deviation, -4.0 / deviation]], rtol=1e-3)


def test_an_end_at_the_last_step_begins_the_next_rollout_from_nothing():
    scale = RewardScale(2, gamma=0.5, clip=10.0)
    scale.divide(make_rollout([[4.0, 2.0]], [[True, False]]))
    np.testing.assert_allclose(scale.discounted, [0.0, 2.0])


def test_scaled_rewards_are_clipped():
    scale = RewardScale(2, gamma=0.99, clip=2.0)
    reward = np.zeros((100, 2))
    reward[50] = [900.0, -900.0]
    found = scale.divide(make_rollout(reward, np.ones((100, 2), bool)))
    assert found.numpy().max() == 2.0 and found.numpy().min() == -2.0


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**20])
def test_scaled_rewards_do_not_depend_on_the_unit(unit):
    numbers = np.random.default_rng(0).standard_normal((2, 100, 2)).astype(np.float32)
    numbers[0, :90] = 0.0  # no reward until late
    found = []
    for factor in (1.0, unit):
        scale = RewardScale(2, gamma=0.99, clip=10.0)
        rollouts = [make_rollout(factor * part, np.zeros((100, 2), bool)) for part in numbers]
        found.append([scale.divide(rollout).numpy() for rollout in rollouts])
    np.testing.assert_array_equal(*found)
    assert np.std(found[0][1]) > 0.1


def test_rewards_that_are_all_0_stay_so():
    scale = RewardScale(2, gamma=0.99, clip=10.0)
    rollout = make_rollout(np.zeros((3, 2)), np.zeros((3, 2), bool))
    np.testing.assert_array_equal(scale.divide(rollout), 0.0)


def test_the_learning_rate_falls_linearly_over_the_run():
    cfg = make_config(learning_rate=0.01, learning_rate_final=0.002, total_env_steps=24)
    agent = make_agent(cfg, VECTOR)
    rollout, rates = make_rollout(np.zeros((3, 2)), np.zeros((3, 2), bool)), []
    for _ in range(6):
        agent.observe(rollout)
        rates.append(float(agent.policy.optimizer.learning_rate))
    # 6 env steps a rollout, of 24: from 0.01 in quarters to 0.002, and no further
    np.testing.assert_allclose(rates, [0.01, 0.008, 0.006, 0.004, 0.002, 0.002], rtol=1e-5)
    assert int(agent.env_steps) == 36


def test_the_learning_rate_falls_with_loss_scaling_too():
    cfg = make_config(
        learning_rate=0.01, learning_rate_final=0.0, total_env_steps=12, precision="mixed_float16"
    )
    agent = make_agent(cfg, VECTOR)
    rollout = make_rollout(np.zeros((3, 2)), np.zeros((3, 2), bool))
    for _ in range(2):
        agent.observe(rollout)
    np.testing.assert_allclose(agent.policy.optimizer.learning_rate, 0.005)


def test_statistics_of_observations_count_all_rows_but_no_mask():
    agent = make_agent(make_config(normalize_observations=True), MaskedAction().spec)
    place = np.random.default_rng(0).normal(2.0, 3.0, (3, 2, 3)).astype(np.float32)
    obs = {"place": tf.constant(place), "action_mask": tf.ones([3, 2, 4], tf.bool)}
    rollout = make_rollout(np.zeros((3, 2)), np.zeros((3, 2), bool))._replace(obs=obs)
    agent.finish_iteration(rollout)
    mean, variance, count = (w.numpy() for w in agent.policy.network.non_trainable_weights)
    np.testing.assert_allclose(mean, place.mean(axis=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(variance, place.var(axis=(0, 1)), rtol=1e-4)
    assert count == 6


def noise_of(env_spec, bits, **settings):
    agent = make_agent(make_config(**settings), env_spec)
    return agent.exploration.noise(bits, agent.env_steps)


def test_noise_of_continuous_actions_is_correlated_if_asked_for_and_of_choices_never():
    bits = tf.reshape(
        make_agent(make_config(), VECTOR).random_stream.random_bits(3 * 2 * 2), [3, 2, 2]
    )
    plain = noise_of(ContinuousAction.spec, bits)
    correlated = noise_of(ContinuousAction.spec, bits, noise_correlation=0.6)
    np.testing.assert_allclose(correlated[1], 0.6 * plain[0] + 0.8 * plain[1], rtol=1e-5)
    kinds = noise_of(MaskedKinds.spec, bits, noise_correlation=0.6)
    assert kinds.numpy().min() >= 0 and kinds.numpy().max() < 1


@pytest.mark.parametrize(
    "make_env, one",
    [(MaskedAction, ()), (MaskedKinds, (2,)), (ContinuousAction, (2,)), (DictObservation, ())],
)
def test_act_takes_one_observation_or_a_batch_of_them(make_env, one):
    env = make_env()
    agent = make_agent(make_config(), env.spec)
    state = env.reset(tf.random.uniform([6, env.reset_uniforms], seed=1))
    obs = tf.nest.map_structure(lambda part: part.numpy(), env.observe(state))
    batch = agent.act(obs)
    assert batch.shape == (6, *one)
    for row in range(6):
        single = agent.act(tf.nest.map_structure(lambda part, row=row: part[row], obs))
        assert isinstance(single, int) if one == () else single.shape == one
        np.testing.assert_allclose(single, batch[row], rtol=1e-5)
    if env.spec.masked:
        reward = env.step(state, tf.constant(batch, tf.int32), tf.zeros([6, 0]))[1]
        assert reward.numpy().min() > FORBIDDEN_REWARD


def test_act_gives_the_most_likely_action_within_the_bounds():
    # bounds -2 to 2 and -1 to 2: half of the way from the second one's centre is 0.5 + 0.5 * 1.5
    for bounds, expected in (("scale", [2.0, 1.25]), ("clip", [2.0, 0.5])):
        agent = make_agent(make_config(action_bounds=bounds), ContinuousAction.spec)
        agent.policy.network.policy_head.bias.assign([9.0, 0.5])
        np.testing.assert_allclose(agent.act(np.zeros(1)), expected, atol=0.05)
    squashing = make_agent(make_config(action_bounds="squash"), ContinuousAction.spec)
    squashing.policy.network.policy_head.bias.assign([9.0, 0.0])
    np.testing.assert_allclose(squashing.act(np.zeros(1)), [2.0, 0.5], atol=0.05)  # its centre


@pytest.mark.parametrize(
    "obs, words",
    [
        ({"place": np.zeros(3)}, "without action_mask, expected a dict with place, action_mask"),
        (np.zeros(3), "without action_mask, place"),
        ({"place": np.zeros(3), "action_mask": np.zeros(4)}, "forbids all actions,"),
        ({"place": np.zeros(4), "action_mask": np.ones(4)}, "batch axis first."),
        (
            {"place": 1, "action_mask": np.ones(4)},
            "place (), action_mask (4,), expected place (3,)",
        ),
        ({"place": 1, "action_mask": np.ones(4)}, "one-hot: np.eye(3)[x]"),
    ],
)
def test_act_refuses_what_it_cannot_use(obs, words):
    agent = make_agent(make_config(), MaskedAction.spec)
    with pytest.raises(ValueError, match="act\\(\\) got an") as error:
        agent.act(obs)
    assert words in str(error.value)


def test_a_mask_that_leaves_a_component_no_action_is_refused():
    obs = {"place": tf.TensorSpec([3]), "action_mask": tf.TensorSpec([5], tf.bool)}
    agent = make_agent(make_config(), EnvSpec("two components", obs, MultiDiscrete((3, 2))))
    place = np.zeros(3)
    assert agent.act({"place": place, "action_mask": [0, 1, 0, 0, 1]}).tolist() == [1, 1]
    for mask, component in (([1, 0, 0, 0, 0], 1), ([0, 0, 0, 1, 1], 0)):
        with pytest.raises(ValueError, match=f"forbids all actions of component {component},"):
            agent.act({"place": place, "action_mask": mask})
