"""Agents take what an environment returns, and encode it as training does."""

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium import spaces

import kytolly
from kytolly.agent.algorithms import make_config
from kytolly.agent.make_agent import make_agent
from kytolly.config.dqn import DQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.environment.gym.actions import ActionForm
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.gym.spaces import observation_form
from kytolly.environment.saved_spec import spec_from_dict
from kytolly.environment.spec import spec_to_dict
from kytolly.trainer import Trainer
from tests.helpers.cases import rest_learning

NUMBER = spaces.Discrete(3, start=-1)
SPACES = {
    "number": NUMBER,
    "numbers": spaces.MultiDiscrete([2, 3], start=[5, 0]),
    "table": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "bits": spaces.MultiBinary(3),
    "scalar": spaces.Box(-1.0, 1.0, ()),
    "dict": spaces.Dict({"n": NUMBER, "x": spaces.Box(-1.0, 1.0, (2,)), "s": spaces.Discrete(4)}),
    "nested": spaces.Dict({"a": spaces.Dict({"n": NUMBER}), "s": spaces.Box(-1.0, 1.0, ())}),
    "mask": spaces.Dict({"observation": NUMBER, "action_mask": spaces.MultiBinary(2)}),
    "tuple": spaces.Tuple([NUMBER, spaces.Discrete(2), spaces.Discrete(4)]),
    "tuple of one": spaces.Tuple([spaces.MultiDiscrete([2, 3])]),
    "tuple in dict": spaces.Dict(
        {"a": spaces.Tuple([NUMBER, spaces.Box(-1.0, 1.0, (2,))]), "b": spaces.MultiBinary(3)}
    ),
    "dict in tuple": spaces.Tuple(
        [spaces.Tuple([NUMBER, NUMBER]), spaces.Dict({"x": spaces.Box(-1.0, 1.0, ())})]
    ),
    "masked tuple": spaces.Dict(
        {
            "observation": spaces.Tuple([NUMBER, spaces.Discrete(2)]),
            "action_mask": spaces.MultiBinary(2),
        }
    ),
}


class Shows(gymnasium.Env):
    """Observations drawn from a space; a mask allows the first action."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space, self.steps = space, 0

    def observed(self):
        obs = self.observation_space.sample()
        if isinstance(obs, dict) and "action_mask" in obs:
            obs["action_mask"][0] = 1
        return obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observed(), {}

    def step(self, action):
        self.steps += 1
        return self.observed(), float(action), self.steps == 5, False, {}


class Beside(Shows):
    """Its mask is in the info."""

    def __init__(self, space=NUMBER):
        super().__init__(space)

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"action_mask": np.array([0, 1], np.int8)}

    def step(self, action):
        return *super().step(action)[:4], {"action_mask": np.array([0, 1], np.int8)}


def encoded(space, spec, observations):
    """What training makes of the observations: [B, ...]."""
    form = observation_form(space, "name", spec.action)
    rows = np.stack([form.encode(obs) for obs in observations])
    return form.agent_view(rows)


def stacked(observations):
    """A batch as a vector environment returns it."""
    if isinstance(observations[0], tuple):
        return tuple(stacked(parts) for parts in zip(*observations, strict=True))
    if not isinstance(observations[0], dict):
        return np.stack(observations)
    return {name: stacked([obs[name] for obs in observations]) for name in observations[0]}


def row(batch, index):
    return (
        {n: part[index] for n, part in batch.items()} if isinstance(batch, dict) else batch[index]
    )


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
@pytest.mark.parametrize("kind", SPACES)
def test_raw_observations_are_encoded_as_in_training(kind, algorithm):
    env = Shows(SPACES[kind])
    spec = make_host_env(env, masks=True).spec
    agent = make_agent(make_config({"algorithm": algorithm, "hidden_units": [8]}), spec)
    env.reset(seed=1)
    observations = [env.observed() for _ in range(7)]
    batch = encoded(SPACES[kind], spec, observations)
    methods = [agent.act, agent.values]
    methods += [agent.q_values] if algorithm == "dqn" else [agent.action_probabilities]
    for method in methods:
        expected = method(batch)
        np.testing.assert_allclose(method(stacked(observations)), expected, rtol=1e-5, atol=1e-6)
        if isinstance(observations[0], dict | tuple):
            np.testing.assert_allclose(method(observations), expected, rtol=1e-5, atol=1e-6)
        for index, obs in enumerate(observations):
            np.testing.assert_allclose(method(obs), expected[index], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(
                method(row(batch, index)), expected[index], rtol=1e-5, atol=1e-6
            )
    if algorithm == "ppo":
        actions = agent.act(batch)
        expected = agent.log_prob(batch, actions)
        np.testing.assert_allclose(agent.log_prob(stacked(observations), actions), expected, 1e-5)


@pytest.mark.parametrize(
    ("kind", "given", "lacks"),
    [
        ("tuple", (0, 1), "without 2, expected a tuple with 0, 1, 2"),
        ("tuple", 1, "without 0, 1, 2, expected a tuple with"),
        (
            "tuple in dict",
            {"a": (0,), "b": [0, 1, 0]},
            "without a/1, expected a dict with a/0, a/1",
        ),
        ("tuple", (0, 1, 4), "'2' of 4, expected an integer from 0 to 3"),
        ("tuple", (0, [1, 0], [3, 2, 1]), r"shape 0 \(3,\), 1 \(2, 2\), 2 \(3, 4\)"),
    ],
)
def test_a_tuple_that_lacks_a_part_or_has_a_wrong_one_is_refused(kind, given, lacks):
    agent = make_agent(DQNConfig(hidden_units=(8,)), make_host_env(Shows(SPACES[kind])).spec)
    with pytest.raises(ValueError, match=lacks):
        agent.act(given)


def test_as_many_numbers_as_a_number_has_values_are_a_batch():
    spec = make_host_env(Shows(NUMBER)).spec
    agent = make_agent(DQNConfig(hidden_units=(8,)), spec)
    expected = [agent.act(number) for number in (0, 1, 0)]  # as integers [0, 1, 0] is one-hot, too
    assert agent.act(np.array([0, 1, 0])).tolist() == expected
    assert agent.act(np.array([0.0, 1.0, 0.0])) == agent.act(0)  # the second value, from -1


MAKERS = [Beside, lambda: Shows(SPACES["nested"]), lambda: Beside(SPACES["nested"])]


@pytest.mark.parametrize(
    "make", rest_learning(MAKERS, MAKERS[2:]), ids=["info", "nested", "info_nested"]
)
def test_a_loaded_agent_takes_what_its_environment_returns(make, tmp_path):
    cfg = PPOConfig(
        total_env_steps=16,
        num_envs=2,
        rollout_steps=8,
        num_minibatches=1,
        hidden_units=(4,),
        final_evaluation_episodes=1,
        xla=False,
    )
    result = Trainer(tmp_path / "run", progress=False).train(cfg, make)
    agents = result.agent, kytolly.load(tmp_path / "run", "last")
    obs, info = make().reset(seed=3)
    if "action_mask" in info:
        for agent in agents:
            assert agent.act({"observation": obs, **info}) == 1
            with pytest.raises(ValueError, match="mask that the environment"):
                agent.act(obs)
    else:
        np.testing.assert_allclose(
            *(agent.action_probabilities(obs) for agent in agents), rtol=1e-5
        )
    assert agents[0].env_spec.encodings == agents[1].env_spec.encodings != ()


ACTIONS = {
    "from 5": spaces.Discrete(3, start=5),
    "from -1": NUMBER,
    "numbers": SPACES["numbers"],
    "table": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 7], [1, 0]]),
    "bits": spaces.MultiBinary((2, 2)),
    "matrix": spaces.Box(-1.0, np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)),
    "scalar": spaces.Box(3.0, 4.0, ()),
    "plain": spaces.Discrete(3),
    "vector": spaces.Box(-1.0, 1.0, (2,)),
}


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")
def test_actions_are_those_of_the_environments_space(kind):
    env, space = Shows(spaces.Box(-1.0, 1.0, (2,))), ACTIONS[kind]
    env.action_space = space
    spec = make_host_env(env).spec
    plain = yaml.safe_load(yaml.safe_dump(spec_to_dict(spec)))
    assert spec_from_dict(spec.name, plain).action_encoding == spec.action_encoding
    agent = make_agent(PPOConfig(hidden_units=(8,)), spec_from_dict(spec.name, plain))
    obs = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 2)).astype(np.float32)
    drawn = agent.act(obs, deterministic=False, seed=1)
    assert all(space.contains(action) for action in drawn)
    one = agent.act(obs[0], deterministic=False, seed=1)
    assert space.contains(one) and isinstance(one, int) == isinstance(space, spaces.Discrete)
    chances = agent.log_prob(obs, drawn)
    assert agent.log_prob(obs[7], drawn[7]) == pytest.approx(chances[7], rel=1e-5)
    if not isinstance(space, spaces.Box):
        greedy = agent.act(obs)
        assert np.all(agent.log_prob(obs, greedy) >= chances - 1e-6)
        # The way that an environment of training takes: numbers from 0 through an `ActionForm`.
        encoding = spec.action_encoding
        numbers = greedy if encoding is None else encoding.numbers(greedy)
        np.testing.assert_array_equal(ActionForm(space, "name").batch(numbers), greedy)
        assert numbers.min() >= 0 and numbers.ndim == 1 + (not isinstance(space, spaces.Discrete))


def test_an_agent_of_action_values_counts_as_its_environment_does():
    env = Shows(spaces.Box(-1.0, 1.0, (2,)))
    env.action_space = spaces.Discrete(4, start=-2)
    agent = make_agent(DQNConfig(hidden_units=(8,)), make_host_env(env).spec)
    obs = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 2)).astype(np.float32)
    assert agent.act(obs).tolist() == (agent.q_values(obs).argmax(axis=-1) - 2).tolist()
    assert {agent.act(obs[0], deterministic=False) for _ in range(300)} <= {-2, -1, 0, 1}


@pytest.mark.parametrize("altered", [{"starts": [1]}, {"shape": [2]}, {"shape": "x"}])
def test_an_altered_form_of_actions_is_refused(altered):
    env = Shows(NUMBER)
    env.action_space = ACTIONS["table"]
    plain = yaml.safe_load(yaml.safe_dump(spec_to_dict(make_host_env(env).spec)))
    plain["action"] |= altered
    with pytest.raises(ValueError, match="cannot be read"):
        spec_from_dict("name", plain)


@pytest.mark.parametrize(
    ("kind", "given", "hint"),
    [
        ("number", 1.0, "As the environment shows it, it is an integer from -1 to 1"),
        ("numbers", [5.0, 0.0], r"it is integers from \[5, 0\] to \[6, 2\]"),
    ],
)
def test_numbers_of_the_wrong_kind_are_told_what_the_environment_shows(kind, given, hint):
    agent = make_agent(DQNConfig(hidden_units=(8,)), make_host_env(Shows(SPACES[kind])).spec)
    with pytest.raises(ValueError, match=hint):
        agent.act(given)


@pytest.mark.parametrize(
    ("space", "hint"),
    [
        ({"observation": NUMBER}, r"Give \{'observation': obs, 'action_mask': mask\}"),
        ({"place": NUMBER, "x": NUMBER}, r"Give \{\*\*obs, 'action_mask': mask\}"),
    ],
)
def test_who_forgets_the_mask_is_told_where_it_belongs(space, hint):
    shown = spaces.Dict({**space, "action_mask": spaces.MultiBinary(2)})
    agent = make_agent(DQNConfig(hidden_units=(8,)), make_host_env(Shows(shown), masks=True).spec)
    with pytest.raises(ValueError, match=hint):
        agent.act(dict.fromkeys(space, 0))


@pytest.mark.parametrize("number", [-2, 2, 10**12])
def test_a_number_out_of_range_is_refused(number):
    agent = make_agent(DQNConfig(hidden_units=(8,)), make_host_env(Shows(NUMBER)).spec)
    with pytest.raises(ValueError, match="integer from -1 to 1"):
        agent.act(number)


@pytest.mark.parametrize(
    "altered", [{"counts": [4]}, {"shape": [2]}, {"starts": []}, {"counts": [0]}, {"shape": "x"}]
)
def test_an_altered_encoding_is_refused(altered):
    spec = make_host_env(Shows(NUMBER)).spec
    plain = yaml.safe_load(yaml.safe_dump(spec_to_dict(spec)))
    assert spec_from_dict("name", plain).encodings == spec.encodings
    plain["encodings"][""] |= altered
    with pytest.raises(ValueError, match="cannot be read"):
        spec_from_dict("name", plain)
