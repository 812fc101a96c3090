"""The host loop with stacked frames: what is remembered, and what learning sees of the rewards."""

import gymnasium
import numpy as np
import pytest

from kytolly import DQNConfig, Trainer
from kytolly.config.ppo import PPOConfig
from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.atari import FrameStack

LENGTH = 7


class Clock(gymnasium.Env):
    """Frames that show the number of the episode and the step in it; every step pays 5 or -3."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.observation_space = FrameStack((6, 6, 4), clips_rewards=True)
        self.episode = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        self.stack = np.repeat(self.frame(), 4, axis=-1)
        return self.stack, {}

    def frame(self):
        frame = np.zeros((6, 6, 1), np.uint8)
        frame[0, 0], frame[1, 1] = self.episode % 256, self.time
        return frame

    def step(self, action):
        self.time += 1
        self.stack = np.concatenate([self.stack[..., 1:], self.frame()], axis=-1)
        ended = self.time == LENGTH
        even = self.episode % 2 == 0  # every other episode is truncated
        return self.stack, -3.0 if ended else 5.0, ended and even, ended and not even, {}


SHORT = {"evaluation_episodes": 1, "final_evaluation_episodes": 2, "hidden_units": (8,)}
SHORT |= {"evaluation_interval_env_steps": 10**6, "xla": False}
DQN = {"total_env_steps": 400, "warmup_env_steps": 100, "replay_capacity": 150, "n_step": 3}
DQN |= {"cut_at_exploration": False}  # all rows are of three steps
DQN |= {"batch_size": 8, "train_interval_env_steps": 12, "updates_per_interval": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    cfg = DQNConfig(**DQN, **SHORT, num_envs=3, network="cnn")
    return Trainer(tmp_path_factory.mktemp("runs") / "clock", progress=False).train(cfg, Clock)


def test_returns_are_the_games_own_and_learning_sees_signs(trained):
    rewards = trained.agent.memory.columns.reward.numpy()
    assert set(np.unique(rewards)) == {-1.0, 1.0}
    expected = 5.0 * (LENGTH - 1) - 3.0
    assert trained.evaluation.summary()["return_mean"] == expected
    returns = [row["episode_return"] for row in trained.history if "episode_return" in row]
    assert returns and all(abs(each - expected) < 1e-4 for each in returns if np.isfinite(each))


def test_the_memory_shows_each_row_as_it_was(trained):
    memory = trained.agent.memory
    assert memory.frames is not None and memory.columns.obs is None
    require_rows(memory, stack_axis=-1)


def require_rows(memory, stack_axis):
    """Each row shows four frames of its episode, and `next_obs` those three steps later."""
    complete = int(memory.size) - 2 * 3
    oldest = int(memory.cursor()) - int(memory.size)
    rows = memory.rows((oldest + np.arange(complete, dtype=np.int32)) % memory.capacity)
    obs, next_obs = (np.moveaxis(x.numpy(), stack_axis, -1) for x in (rows.obs, rows.next_obs))
    time, later = obs[:, 1, 1].astype(int), next_obs[:, 1, 1].astype(int)
    now = time[:, 3]
    for age in range(4):  # within an episode, and its first frame before it began
        np.testing.assert_array_equal(time[:, 3 - age], np.maximum(now - age, 0))
        np.testing.assert_array_equal(
            later[:, 3 - age], np.maximum(np.minimum(now + 3, LENGTH) - age, 0)
        )
    assert len(np.unique(now)) == LENGTH
    for stack in (obs, next_obs):
        assert (stack[:, 0, 0] == obs[:, 0, 0, 3:]).all(), "a stack crosses two episodes"


class Screen(Clock):
    """The newest frame alone."""

    def __init__(self):
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(0, 255, (6, 6), np.uint8)

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0][..., -1], {}

    def step(self, action):
        stack, *outcome = super().step(action)
        return stack[..., -1], *outcome


def test_gymnasiums_own_stacks_are_kept_whole_and_shown_as_they_were(tmp_path):
    def make():
        return gymnasium.wrappers.FrameStackObservation(Screen(), 4)

    cfg = DQNConfig(**DQN, **SHORT, num_envs=3, network="mlp")
    memory = Trainer(tmp_path / "run", progress=False).train(cfg, make).agent.memory
    assert memory.frames is None and memory.columns.obs.shape == (150, 4, 6, 6)
    require_rows(memory, stack_axis=1)


@pytest.mark.learning
def test_a_wrapper_that_skips_frames_is_refused_unless_its_space_is_a_plain_box(tmp_path):
    def skips():
        return gymnasium.wrappers.MaxAndSkipObservation(Clock(), 2)

    cfg = DQNConfig(**{**DQN, "total_env_steps": 120}, **SHORT, num_envs=3, network="mlp")
    with pytest.raises(EnvironmentFault, match="does not begin with the 3 newest frames of the"):
        Trainer(tmp_path / "a", progress=False).train(cfg, skips)

    def plain():
        space = gymnasium.spaces.Box(0, 255, (6, 6, 4), np.uint8)
        return gymnasium.wrappers.TransformObservation(skips(), lambda obs: obs, space)

    result = Trainer(tmp_path / "b", progress=False).train(cfg, plain)
    assert result.agent.memory.frames is None


@pytest.mark.learning
def test_ppo_learns_from_clipped_rewards_and_reports_the_games_own(tmp_path):
    cfg = PPOConfig(**SHORT, total_env_steps=64, num_envs=2, rollout_steps=16)
    result = Trainer(tmp_path / "ppo", progress=False).train(cfg, Clock)
    assert result.evaluation.summary()["return_mean"] == 5.0 * (LENGTH - 1) - 3.0


def test_a_memory_that_does_not_fit_is_refused_with_the_rows_that_do(monkeypatch):
    monkeypatch.setattr("kytolly.machine.facts.available_memory_bytes", lambda: 2**26)
    cfg = DQNConfig(**{**DQN, "replay_capacity": 10**7})
    with pytest.raises(ValueError, match=r"replay_capacity\. Lower that; [\d,]+ rows would fit"):
        Trainer(progress=False).train(cfg, Clock)
