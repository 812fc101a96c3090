"""Environments that people have, with the settings that nobody gave."""

import warnings
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
import yaml
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import (
    ClipReward,
    FrameStackObservation,
    NormalizeObservation,
    NormalizeReward,
)
from gymnasium.wrappers import vector as vectors

from kytolly.config.dqn import DQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.model.nature_cnn import GridCNN, NatureCNN
from kytolly.trainer import Trainer

SHORT = {
    "xla": False,
    "loop": "host",
    "hidden_units": (8,),
    "evaluation_episodes": 2,
    "final_evaluation_episodes": 2,
}
OWN = {
    "dqn": {"batch_size": 4, "warmup_env_steps": 16, "total_env_steps": 32}
    | {"train_interval_env_steps": 8, "updates_per_interval": 1, "replay_capacity": 64},
    "ppo": {"rollout_steps": 8, "epochs": 1, "total_env_steps": 16},
}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.learning)


class Screen(gymnasium.Env):
    """Shows random observations of any space; an episode of 5 steps pays 3 at each."""

    action_space = spaces.Discrete(3)

    def __init__(self, space=None, length=5):
        self.observation_space = space or spaces.Box(0, 255, (84, 84), np.uint8)
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        over = self.steps == self.length
        return self.observation_space.sample(), 3.0, over, False, {}


def train(algorithm, env, folder, model=None, **settings):
    settings = SHORT | OWN[algorithm] | {"algorithm": algorithm} | settings
    return Trainer(folder / "run", progress=False).train(settings, env, model=model)


def torsos(network, kind=NatureCNN):
    return [layer for layer in network._flatten_layers() if type(layer) is kind]


@pytest.mark.parametrize("algorithm", ["dqn", slow("ppo")])
def test_stacked_frames_are_channels_of_one_image(algorithm, tmp_path):
    env = FrameStackObservation(Screen(), 4)
    with pytest.warns(UserWarning, match=r"\(4, 84, 84\) is read as 4 channels of 84 x 84"):
        result = train(algorithm, env, tmp_path, total_env_steps=16)
    (torso,) = torsos(result.agent.policy.network)
    assert torso.convolutions[0].kernel.shape == (8, 8, 4, 32)
    assert result.agent.act(env.reset(seed=1)[0]) in range(3)  # as the environment shows it
    again = Trainer().evaluate(result.run_dir, 2, env=lambda: FrameStackObservation(Screen(), 4))
    assert again.return_mean == 15.0


@pytest.mark.learning
@pytest.mark.parametrize("algorithm", ["ppo", slow("dqn")])
def test_an_image_without_clear_channels_is_refused_with_what_mends_it(algorithm, tmp_path):
    env = Screen(spaces.Box(0, 255, (3, 3, 84), np.uint8))
    with pytest.raises(ValueError, match=r"TransformObservation.*moveaxis"):
        train(algorithm, env, tmp_path)
    result = train(algorithm, env, tmp_path, network="cnn", total_env_steps=16)
    assert torsos(result.agent.policy.network)[0].convolutions[0].kernel.shape[2] == 84


@pytest.mark.parametrize(
    "algorithm, dtype",
    [("dqn", np.bool_), slow("ppo", np.int64), slow("dqn", np.int64), slow("ppo", np.bool_)],
)
def test_a_grid_gets_a_small_convolution(algorithm, dtype, tmp_path):
    env = Screen(spaces.Box(0, 1, (10, 10, 4), dtype))
    result = train(algorithm, env, tmp_path)
    (torso,) = torsos(result.agent.policy.network, GridCNN)
    assert torso.convolutions[0].kernel.shape == (3, 3, 4, 16)
    again = Trainer().evaluate(result.run_dir, 2, env=lambda: env)
    assert again.return_mean == 15.0


@pytest.mark.learning
@pytest.mark.parametrize("shape, dtype", [((10, 10, 4), np.float32), slow((8, 8, 111), np.bool_)])
def test_what_is_no_grid_stays_flat(shape, dtype, tmp_path):
    result = train("dqn", Screen(spaces.Box(0, 1, shape, dtype)), tmp_path)
    assert not torsos(result.agent.policy.network, GridCNN)


def one_screen():
    return Screen(spaces.Box(-1, 1, (2,), np.float32))


def three_screens():
    return SyncVectorEnv([one_screen] * 3)


@pytest.mark.parametrize(
    "algorithm, env, count",
    [
        ("dqn", one_screen, 1),
        slow("dqn", three_screens, 3),
        slow("ppo", one_screen, 8),
        ("ppo", three_screens(), 3),
        slow("dqn", one_screen(), 1),
        slow("dqn", three_screens(), 3),
        slow("ppo", one_screen(), 1),
        slow("ppo", three_screens, 3),
    ],
)
def test_the_number_of_environments_is_that_of_what_is_given(algorithm, env, count, tmp_path):
    settings = {"rollout_steps": 7} if algorithm == "ppo" else {}
    result = train(algorithm, env, tmp_path, **settings)
    saved = yaml.safe_load((result.run_dir / "config.yaml").read_text())["settings"]
    assert saved["num_envs"] == count
    if algorithm == "ppo":
        assert (count * 7) % saved["num_minibatches"] == 0


@pytest.mark.parametrize("given", [1, 4])
def test_a_number_that_was_given_and_contradicts_is_refused(given, tmp_path):
    with pytest.raises(ValueError, match=f"num_envs is {given}, but the vector environment"):
        train("ppo", SyncVectorEnv([Screen] * 3), tmp_path, num_envs=given)


@pytest.mark.parametrize("n_step", [slow(1), 3])
def test_dqn_learns_from_dicts(n_step, tmp_path):
    space = spaces.Dict(
        image=spaces.Box(0, 255, (36, 36, 1), np.uint8),
        place=spaces.Box(-1, 1, (2,), np.float32),
    )
    env = Screen(space)
    result = train("dqn", env, tmp_path, n_step=n_step, normalize_observations=True)
    columns = result.agent.memory.columns
    assert set(columns.obs) == {"image", "place"} and columns.next_obs["image"].dtype == "uint8"
    assert result.agent.act(env.reset(seed=1)[0]) in range(3)
    assert Trainer().evaluate(result.run_dir, 2, env=lambda: env).return_mean == 15.0


@pytest.mark.parametrize(
    "loop, network",
    [slow("host", "mlp"), ("device", "dueling"), slow("host", "dueling"), slow("device", "mlp")],
)
def test_dqn_normalizes_observations_and_the_network_keeps_the_statistics(loop, network, tmp_path):
    result = train(
        "dqn", "CartPole-v1", tmp_path, loop=loop, network=network, normalize_observations=True
    )
    statistics = result.agent.policy.network.torso.normalizers[""]
    assert float(statistics.count) in (8, 16, 24, 32)  # at the best evaluation
    assert np.all(np.asarray(statistics.variance) != 1.0)
    best: Any = keras.models.load_model(result.run_dir / "best.keras")
    obs = np.ones((3, 4), np.float32)
    values = best(obs) / float(best.reward_scale)
    np.testing.assert_allclose(values, result.agent.q_values(obs), rtol=1e-5)


@pytest.mark.learning
def test_evaluations_are_in_rewards_of_the_environment(tmp_path):
    space = spaces.Box(-1, 1, (2,), np.float32)
    make = lambda: NormalizeReward(ClipReward(Screen(space), -1, 1))  # noqa: E731
    for number, env in enumerate([make, make()]):
        with pytest.warns(UserWarning, match="leave NormalizeReward, ClipReward out"):
            result = train("ppo", env, tmp_path / str(number))
        assert result.evaluation.return_mean == 15.0  # 5 steps of 3, clipped they would be 5
    vector = vectors.ClipReward(SyncVectorEnv([lambda: ClipReward(Screen(space), 0, 2)]), 0, 1)
    with pytest.warns(UserWarning, match="leave ClipReward, ClipReward out"):
        result = train("ppo", vector, tmp_path / "vector")
    assert result.evaluation.return_mean == 15.0


class Halved(gymnasium.RewardWrapper):
    def reward(self, reward):
        return float(reward) / 2


def test_a_wrapper_of_the_user_s_own_stays(tmp_path):
    space = spaces.Box(-1, 1, (2,), np.float32)
    with pytest.warns(UserWarning, match="rewards that Halved gives"):
        result = train("ppo", Halved(Screen(space)), tmp_path)
    assert result.evaluation.return_mean == 7.5


class Far(Screen):
    """Observations near 100."""

    def __init__(self):
        super().__init__(spaces.Box(99, 101, (2,), np.float32))


def test_evaluations_get_the_statistics_of_normalized_observations(tmp_path):
    seen = []

    class Look(NormalizeObservation):
        def observation(self, observation):
            result = super().observation(observation)
            if not self.update_running_mean:
                seen.append(result)
            return result

    with pytest.warns(UserWarning, match="set normalize_observations=True"):
        train("dqn", Look(Far()), tmp_path)
    assert len(seen) > 10 and np.abs(np.mean(seen)) < 2.0  # without a copy the first would be far
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*NormalizeObservation")
        train("dqn", Far(), tmp_path / "other")


@pytest.mark.parametrize("algorithm", [slow("dqn"), "ppo"])
def test_ppo_warns_of_batch_normalization(algorithm, tmp_path):
    inputs = keras.Input((2,))
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(4)(inputs))
    outputs = keras.layers.Dense(3)(hidden)
    if algorithm == "ppo":
        outputs = (outputs, keras.layers.Dense(1)(hidden))
    model = keras.Model(inputs, outputs)
    env = Screen(spaces.Box(-1, 1, (2,), np.float32))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(algorithm, env, tmp_path, model=model)
    found = [one for one in caught if "BatchNormalization" in str(one.message)]
    assert len(found) == (algorithm == "ppo")


def test_an_environment_with_arguments_and_wrappers(tmp_path):
    wrappers = ("gymnasium.wrappers:FlattenObservation",)
    result = train(
        "dqn",
        "CartPole-v1",
        tmp_path,
        loop="auto",
        env_kwargs={"sutton_barto_reward": True},
        wrappers=wrappers,
    )
    saved = yaml.safe_load((result.run_dir / "config.yaml").read_text())
    assert (saved["environment"], saved["loop"]) == ("CartPole-v1", "host")
    assert saved["settings"]["wrappers"] == [*wrappers]
    assert result.evaluation.return_mean == -1.0  # of that reward: -1 at the end
    with pytest.raises(ValueError, match="--trust"):
        Trainer().evaluate(result.run_dir, 2)
    for config in (DQNConfig, PPOConfig):
        cfg = config(**SHORT, wrappers=wrappers)
        with pytest.raises(ValueError, match="exists already"):
            Trainer(tmp_path / "other").train(cfg, gymnasium.make("CartPole-v1"))
