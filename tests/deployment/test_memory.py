"""Agents with a memory: trained in both loops, loaded, asked with a state, exported with it."""

import re
import shutil

import keras
import numpy as np
import pytest

from kytolly import Trainer, load
from kytolly.deployment.export import export
from kytolly.deployment.rendered import play_episodes
from kytolly.deployment.trained_run import read_run
from kytolly.environment.gym.make import make_env, registered_spec

SMALL = {
    "total_env_steps": 128,
    "evaluation_episodes": 2,
    "final_evaluation_episodes": 3,
    "hidden_units": (8, 8),
    "memory_units": 4,
    "num_envs": 2,
    "rollout_steps": 16,
    "epochs": 1,
    "num_minibatches": 2,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run by algorithm and memory, made when it is asked for."""
    made = {}

    def run(algorithm, memory, loop="device", env="CartPole-v1", **settings):
        key = (algorithm, memory, loop, env, *settings)
        if key not in made:
            cfg = {**SMALL, "algorithm": algorithm, "memory": memory, "loop": loop, **settings}
            folder = tmp_path_factory.mktemp("runs") / "run"
            made[key] = Trainer(folder, progress=False).train(cfg, env)
        return made[key]

    return run


@pytest.mark.parametrize("loop", ["device", "host"])
@pytest.mark.parametrize("memory", ["gru", "lstm", "lru"])
def test_the_state_makes_the_difference_and_a_new_episode_forgets_it(runs, memory, loop):
    result = runs("ppo", memory, loop)
    agent = load(result.run_dir)
    obs = np.array([0.1, 0.2, -0.1, 0.3], np.float32)
    start = agent.initial_state()
    first = agent.values(obs, state=start)
    action, state = agent.act(obs, state=start)
    assert action in (0, 1)
    assert np.abs(state["agent_memory"]).max() > 0
    assert agent.values(obs, state=state) != pytest.approx(first, abs=1e-6)
    _, again = agent.act(obs, state=state, first=True)
    np.testing.assert_array_equal(again["agent_memory"], state["agent_memory"])
    # The training's own agent has the same weights and gives the same.
    np.testing.assert_allclose(
        result.agent.act(obs, state=start)[1]["agent_memory"], state["agent_memory"], atol=1e-6
    )


def test_a_batch_equals_each_alone(runs):
    agent = load(runs("pqn", "gru").run_dir)
    obs = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    actions, states = agent.act(obs, state=agent.initial_state(3))
    for row in range(3):
        action, state = agent.act(obs[row], state=agent.initial_state())
        assert action == actions[row]
        np.testing.assert_allclose(state["agent_memory"][0], states["agent_memory"][row], atol=1e-6)


def test_without_a_state_the_way_to_begin_is_said(runs):
    agent = load(runs("ppo", "gru").run_dir)
    obs = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match=r"state = agent\.initial_state"):
        agent.act(obs)
    with pytest.raises(ValueError, match="for 1 observations"):
        agent.act(obs, state=agent.initial_state(2))


def test_previous_actions_and_rewards_are_part_of_the_state(runs):
    agent = load(runs("ppo", "gru", memory_inputs=True).run_dir)
    obs = np.zeros(4, np.float32)
    action, state = agent.act(obs, state=agent.initial_state())
    assert state["agent_previous_action"][0, action] == 1.0
    with pytest.raises(ValueError, match=r"reward=\.\.\."):
        agent.act(obs, state=state)
    one, other = (agent.act(obs, state=state, reward=r)[1]["agent_memory"] for r in (0.0, 5.0))
    assert np.abs(one - other).max() > 0


NAN_STATE = {"agent_memory": np.full([1, 4], np.nan), "agent_first": np.zeros(1, bool)}


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        ({"state": np.zeros([1, 4])}, "is ndarray, expected a dict with agent_memory, agent_"),
        ({"state": (0, {})}, r"is tuple.*initial_state\(1\)"),
        ({"state": {}}, r"shapes {}"),
        ({"state": NAN_STATE}, "NaN or infinite numbers in 'agent_memory'"),
        ({"first": [True, False]}, r"first=\[True, False\] for 1 observations"),
        ({"first": "yes"}, "first='yes'.*True or False"),
        ({"reward": 1.0}, "without memory_inputs"),
    ],
)
def test_what_no_memory_can_take_is_refused(runs, memory, words):
    agent = load(runs("ppo", "gru").run_dir)
    with pytest.raises(ValueError, match=words):
        agent.act(np.zeros(4, np.float32), **{"state": agent.initial_state(), **memory})


@pytest.mark.parametrize("reward", [np.nan, [1.0, 2.0], "much"])
def test_a_reward_is_a_finite_number_for_each_observation(runs, reward):
    agent = load(runs("ppo", "gru", memory_inputs=True).run_dir)
    with pytest.raises(ValueError, match=r"reward .* for 1 observations, expected 1 finite"):
        agent.act(np.zeros(4, np.float32), state=agent.initial_state(), reward=reward)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_episodes_that_begin_are_a_whole_number(runs, count):
    agent = load(runs("ppo", "gru").run_dir)
    with pytest.raises(ValueError, match="expected a whole number of episodes"):
        agent.initial_state(count)


@pytest.mark.parametrize("memory", [{"state": {}}, {"first": True}, {"reward": 1.0}])
def test_an_agent_without_memory_takes_nothing_of_one(runs, memory):
    agent = load(runs("ppo", None).run_dir)
    with pytest.raises(ValueError, match=f"act.. got {next(iter(memory))}=.*no memory"):
        agent.act(np.zeros(4, np.float32), **memory)


@pytest.mark.parametrize(
    ("now", "was"),
    [
        ({"memory_units": 6}, "memory gru, memory_units 4.*expected memory gru, memory_units 6"),
        ({"memory": "lstm"}, "memory gru, memory_units 4.*expected memory lstm"),
        ({"memory": None}, "memory gru, memory_units 4.*expected memory none"),
        ({"memory_inputs": True}, "memory_inputs false, expected .*memory_inputs true"),
    ],
)
def test_a_run_with_another_memory_is_not_where_training_begins(runs, now, was, tmp_path):
    run = runs("ppo", "gru").run_dir
    cfg = {**SMALL, "algorithm": "ppo", "memory": "gru", **now}
    with pytest.raises(ValueError, match=was):
        Trainer(tmp_path / "new", progress=False).train(cfg, "CartPole-v1", init=run)


@pytest.mark.parametrize("edited", ["memory_units: 6", "memory: none"])
def test_a_memory_that_somebody_wrote_into_a_run_is_named(runs, edited, tmp_path):
    run = shutil.copytree(runs("ppo", "gru").run_dir, tmp_path / "run")
    name = edited.partition(":")[0]
    text = re.sub(
        rf"\b{name}: \w+", edited.replace("none", "null"), (run / "config.yaml").read_text()
    )
    (run / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"a state of \d numbers.*Restore memory and memory_units"):
        load(run)
    cfg = read_run(run).cfg
    with pytest.raises(
        ValueError, match=rf"a state had 4 numbers, now .*{edited.replace(':', '')}"
    ):
        Trainer(run, progress=False).train(cfg, "CartPole-v1", resume=True)


def test_played_episodes_are_those_of_acting_with_the_state(runs):
    agent = load(runs("ppo", "lstm").run_dir)
    env = make_env(registered_spec("CartPole-v1"))
    played = next(iter(play_episodes(agent, env, 1, seed=3, show=lambda: None)))
    env.close()
    env = make_env(registered_spec("CartPole-v1"))
    obs, _ = env.reset(seed=3)
    state, length, ended = agent.initial_state(), 0, False
    while not ended:
        action, state = agent.act(obs, state=state)
        obs, _, terminated, truncated, _ = env.step(action)
        length, ended = length + 1, terminated or truncated
    assert played.length == length


@pytest.mark.parametrize("format", ["saved_model", "litert", "onnx"])
@pytest.mark.parametrize("memory", ["gru", "lru"])
def test_an_export_has_the_state_as_input_and_output(runs, memory, format, tmp_path):
    if format != "saved_model":
        pytest.importorskip({"litert": "ai_edge_litert", "onnx": "tf2onnx"}[format])
    agent = load(runs("ppo", memory).run_dir)
    report = export(agent, format, tmp_path / "file", episodes=2)
    assert report.equal_actions + report.near_ties == 1_000
    assert report.returns["agent"] == report.returns["file"]


def test_discrete_and_dict_observations_have_a_memory_too(runs):
    result = runs("ppo", "gru", "host", "Taxi-v4")
    agent = load(result.run_dir)
    mask = {"observation": 3, "action_mask": np.array([0, 0, 0, 1, 0, 0], np.int8)}
    action, _ = agent.act(mask, state=agent.initial_state())
    assert action == 3


@keras.saving.register_keras_serializable(package="kytolly_tests")
class Averages(keras.Model):
    """A user's model of one step, which keeps an average of what it saw."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.features, self.params = keras.layers.Dense(4, "tanh"), keras.layers.Dense(2)
        self.value = keras.layers.Dense(1)

    def call(self, obs, state, training=False):
        state = 0.9 * state + 0.1 * self.features(obs)
        return (self.params(state), self.value(state)), state


@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_a_model_of_ones_own_is_exported_with_its_state(format, tmp_path):
    if format == "litert":
        pytest.importorskip("ai_edge_litert")
    cfg = {**SMALL, "algorithm": "ppo", "memory": "model", "xla": False}
    Trainer(tmp_path / "run", progress=False).train(cfg, "CartPole-v1", model=Averages())
    report = export(load(tmp_path / "run"), format, tmp_path / "file")
    assert report.equal_actions + report.near_ties == 1_000
