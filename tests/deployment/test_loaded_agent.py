"""What a loaded agent does and says, by hand."""

import math

import numpy as np
import pytest

import kytolly
from kytolly.agent.algorithms import make_config
from kytolly.agent.make_agent import make_agent
from tests.deployment.conftest import PPO
from tests.helpers.on_policy_probes import ContinuousAction, MaskedKinds

LOGITS = np.log([1.0, 2.0, 3.0, 4.0])


@pytest.fixture(scope="module")
def cartpole(dqn):
    return kytolly.load(dqn.path)


@pytest.fixture(scope="module")
def chooser(masked):
    """An agent whose logits are `LOGITS` and whose value is 7, whatever it sees."""
    agent = kytolly.load(masked.path)
    for head, bias in ((agent.network.policy_head, LOGITS), (agent.network.value_head, [7.0])):
        head.kernel.assign(np.zeros(head.kernel.shape))
        head.bias.assign(bias)
    agent._actor.refresh()
    return agent


def seen(mask, rows=()):
    place, step = np.zeros((*rows, 3)), np.zeros((*rows, 9))
    return {"place": place, "step": step, "action_mask": np.broadcast_to(mask, (*rows, 4))}


def test_one_observation_or_a_batch(cartpole, chooser):
    obs = np.random.default_rng(0).normal(size=(5, 4))
    actions, values, q = cartpole.act(obs), cartpole.values(obs), cartpole.q_values(obs)
    assert actions.shape == values.shape == (5,) and q.shape == (5, 2)
    np.testing.assert_array_equal(actions, q.argmax(axis=1))
    np.testing.assert_array_equal(values, q.max(axis=1))
    assert isinstance(cartpole.act(obs[0]), int) and cartpole.act(obs[0]) == actions[0]
    assert cartpole.values(obs[0]) == pytest.approx(values[0], rel=1e-5)
    np.testing.assert_allclose(cartpole.q_values(obs[0].tolist()), q[0], rtol=1e-5)
    assert chooser.values(seen([1, 1, 1, 1])) == pytest.approx(7.0)
    np.testing.assert_allclose(chooser.values(seen([1, 1, 1, 1], rows=(2,))), [7.0, 7.0])


def test_probabilities_are_those_of_the_actions_that_the_mask_allows(chooser):
    obs = seen([1, 0, 1, 1])
    # weights 1, 0, 3, 4: of 8
    np.testing.assert_allclose(chooser.action_probabilities(obs), [1 / 8, 0, 3 / 8, 1 / 2])
    assert chooser.log_prob(obs, 2) == pytest.approx(math.log(3 / 8), rel=1e-5)
    both = chooser.log_prob(seen([1, 0, 1, 1], rows=(2,)), [0, 3])
    np.testing.assert_allclose(both, np.log([1 / 8, 1 / 2]), rtol=1e-5)
    assert chooser.act(obs) == 3 and chooser.act(seen([1, 1, 1, 0])) == 2


def test_draws_follow_the_distribution_and_the_seed(chooser):
    many = seen([1, 0, 1, 1], rows=(4000,))
    drawn = chooser.act(many, deterministic=False, seed=1)
    share = np.bincount(drawn, minlength=4) / 4000
    np.testing.assert_allclose(share, [1 / 8, 0, 3 / 8, 1 / 2], atol=0.03)
    np.testing.assert_array_equal(drawn, chooser.act(many, deterministic=False, seed=1))
    assert not np.array_equal(drawn, chooser.act(many, deterministic=False, seed=2))
    assert not np.array_equal(*(chooser.act(many, deterministic=False) for _ in range(2)))


def test_action_values_are_explored_with_the_final_epsilon(cartpole):
    obs = np.zeros((4000, 4))
    drawn = cartpole.act(obs, deterministic=False, seed=1)
    others = np.mean(drawn != cartpole.act(np.zeros(4)))
    # the other one of two actions comes with half of epsilon, 0.02 by default
    assert cartpole.cfg.epsilon_final == 0.02 and others == pytest.approx(0.01, abs=0.005)


def test_several_choices_have_their_probabilities_one_after_another():
    agent = make_agent(make_config({**PPO, "normalize_observations": False}), MaskedKinds.spec)
    obs = {
        name: np.ones(spec.shape, spec.dtype.as_numpy_dtype)
        for name, spec in MaskedKinds.spec.obs.items()
    }
    counts = MaskedKinds.spec.action.counts
    found = np.split(agent.action_probabilities(obs), np.cumsum(counts)[:-1])
    assert [len(part) for part in found] == list(counts)
    np.testing.assert_allclose([part.sum() for part in found], 1.0, rtol=1e-5)
    action = agent.act(obs)
    expected = sum(math.log(part[choice]) for part, choice in zip(found, action, strict=True))
    assert agent.log_prob(obs, action) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("bounds", ["scale", "clip", "squash"])
def test_densities_of_continuous_actions(bounds):
    cfg = make_config({**PPO, "normalize_observations": False, "action_bounds": bounds})
    agent = make_agent(cfg, ContinuousAction.spec)  # bounds -2 to 2 and -1 to 2
    network = agent.policy.network
    network.policy_head.kernel.assign(np.zeros(network.policy_head.kernel.shape))
    network.policy_head.bias.assign([0.3, -0.2])
    network.scales.assign([0.0, math.log(0.5)])
    raw = np.array([0.8, 0.1])
    # z = 0.5 / 1 and 0.3 / 0.5, so the log-density of the normal numbers is:
    expected = -0.5 * (0.5**2 + 0.6**2) - math.log(0.5) - math.log(2.0 * math.pi)
    action = raw
    if bounds == "scale":
        action = np.array([0.0, 0.5]) + raw * np.array([2.0, 1.5])
        expected -= math.log(2.0 * 1.5)
    elif bounds == "squash":
        action = np.array([-2.0, -1.0]) + (np.tanh(raw) + 1.0) * np.array([2.0, 1.5])
        expected -= np.log((1.0 - np.tanh(raw) ** 2) * np.array([2.0, 1.5])).sum()
    assert agent.log_prob(np.zeros(1), action) == pytest.approx(expected, rel=1e-4)
    drawn = agent.act(np.zeros((500, 1)), deterministic=False, seed=0)
    assert drawn.min(axis=0)[0] >= -2 and drawn.max(axis=0)[1] <= 2 and drawn.std() > 0.3
    assert np.isfinite(agent.log_prob(np.zeros((500, 1)), drawn)).all()
    assert np.isfinite(agent.log_prob(np.zeros(1), [2.0, 2.0]))  # the bounds themselves


def test_an_agent_that_learns_acts_with_the_weights_of_now(dqn):
    agent, obs = dqn.result.agent, np.ones(4)
    before, weights = agent.q_values(obs), agent.policy.network.get_weights()
    try:
        agent.policy.set_weights([*weights[:-1], weights[-1] + [100.0, 0.0]])
        scale = float(agent.policy.network.reward_scale)
        np.testing.assert_allclose(agent.q_values(obs), before + [100.0 / scale, 0.0], rtol=1e-4)
        assert agent.act(obs) == 0
    finally:
        agent.policy.set_weights(weights)


@pytest.mark.parametrize("kind", ["loaded", "trained"])
def test_what_an_agent_does_not_have_is_refused_with_what_it_has(kind, dqn, pendulum, masked):
    values, continuous, discrete = (
        kytolly.load(run.path) if kind == "loaded" else run.result.agent
        for run in (dqn, pendulum, masked)
    )
    with pytest.raises(ValueError, match=r"no distribution .* It has act, values and q_values"):
        values.log_prob(np.zeros(4), 0)
    with pytest.raises(ValueError, match=r"no distribution .* It has act, values and q_values"):
        values.action_probabilities(np.zeros(4))
    with pytest.raises(ValueError, match=r"continuous.* It has act, values and log_prob"):
        continuous.action_probabilities(np.zeros(3))
    words = r"no action values, .* It has act, values, action_probabilities and log_prob"
    with pytest.raises(ValueError, match=words):
        discrete.q_values(seen([1, 1, 1, 1]))


@pytest.mark.parametrize(
    "obs, words",
    [
        (np.zeros(3), r"of shape \(3,\), expected \(4,\) or a batch"),
        (np.zeros((2, 2, 4)), r"of shape \(2, 2, 4\)"),
        ([0.0, np.nan, 0.0, 0.0], "with NaN or infinite numbers"),
        ([0.0, np.inf, 0.0, 0.0], "with NaN or infinite numbers"),
        (np.full(4, np.nan, np.float32), "with NaN or infinite numbers"),
        (np.array([0, 0, -np.inf, 0], np.float32), "with NaN or infinite numbers"),
        (["a", "b", "c", "d"], "that is not numbers"),
        ([[0.0], [0.0, 1.0]], "that is not numbers"),
        (None, "NaN|not numbers"),
        ({"place": np.zeros(4)}, "not numbers"),
    ],
)
@pytest.mark.parametrize("method", ["act", "values", "q_values"])
def test_observations_that_no_agent_can_use_are_refused(cartpole, method, obs, words):
    with pytest.raises(ValueError, match=rf"{method}\(\) got an observation.*({words})"):
        getattr(cartpole, method)(obs)


def test_entries_and_actions_that_no_agent_can_use_are_refused(chooser, cartpole):
    obs = seen([1, 1, 1, 1])
    with pytest.raises(ValueError, match="without action_mask, step, expected a dict with"):
        chooser.act({"place": np.zeros(3)})
    with pytest.raises(ValueError, match="forbids all actions,"):
        chooser.act(seen([0, 0, 0, 0]))
    with pytest.raises(ValueError, match="'action_mask' of float64 with numbers that bool"):
        chooser.act(seen([0.5, 0, 0, 1]))
    with pytest.raises(ValueError, match=r"shape place \(3,\), step \(2, 9\), action_mask"):
        chooser.act(obs | {"step": np.zeros((2, 9))})
    with pytest.raises(ValueError, match="'place' with NaN"):
        chooser.values(obs | {"place": np.full(3, np.nan)})
    with pytest.raises(ValueError, match="whole numbers from 0 to 3"):
        chooser.log_prob(obs, 4)
    with pytest.raises(ValueError, match="whole numbers from 0 to 3"):
        chooser.log_prob(obs, 1.0)
    with pytest.raises(ValueError, match=r"actions of shape \(2,\), expected \(\)"):
        chooser.log_prob(obs, [0, 1])
    assert chooser.act({**obs, "unknown": 1}) == 3  # what the agent does not see does not matter
