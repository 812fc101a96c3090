"""An environment whose episodes never end: an evaluation cuts them and says so."""

import warnings

import gymnasium
import numpy as np
import pytest

from kytolly import DQNConfig
from kytolly.agent.make_agent import make_agent
from kytolly.callback.base import Callback, TrainState
from kytolly.callback.early_stop import EarlyStop
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.loop.env_runner import make_env_runner
from kytolly.loop.limits import EpisodeLimit, training_step_limit
from kytolly.trainer import Trainer
from tests.helpers.cases import learning
from tests.helpers.q_learning_probes import EndlessReward


class Endless(gymnasium.Env):
    """Reward 1 for every step, and no end; every second environment ends after 30 steps."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.ends = 0, bool(self.np_random.integers(2))
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), 1.0, self.ends and self.time == 30, False, {}


def evaluation(env):
    cfg = DQNConfig(xla=False, hidden_units=(4,))
    runner = make_env_runner(cfg, env)
    agent = make_agent(cfg, runner.spec)
    try:
        evaluator = runner.evaluator(agent.policy.network, 6, 3, xla=False, device=None)
        return evaluator.evaluate()
    finally:
        runner.close()


@pytest.mark.parametrize("module", ["host_side", "device"])
def test_an_endless_episode_is_cut_with_a_warning(module, monkeypatch):
    monkeypatch.setattr("kytolly.loop.limits.STEP_LIMIT", 50)
    monkeypatch.setattr(EndlessReward, "spec", EndlessReward.spec._replace(max_episode_steps=None))
    with pytest.warns(UserWarning, match="did not end within .* time limit"):
        found = evaluation(Endless if module == "host_side" else EndlessReward())
    if module == "host_side":
        assert set(found.returns) == {30.0, 50.0}
    assert found.episodes == 6 and len(found.returns) == 6
    assert found.length_mean <= 50


SHORT = {
    "xla": False,
    "hidden_units": (4,),
    "total_env_steps": 96,
    "warmup_env_steps": 32,
    "batch_size": 8,
    "train_interval_env_steps": 16,
    "evaluation_episodes": 2,
    "final_evaluation_episodes": 2,
    "evaluation_interval_env_steps": 32,
}


class Seen(Callback):
    """The mean length of each evaluation's episodes, and the best score after it."""

    def __init__(self):
        self.lengths, self.best = [], []

    def on_evaluation(self, state):
        self.lengths.append(state.evaluation.length_mean)
        self.best.append(state.best_score)


@pytest.mark.parametrize("loop", ["host", learning("device")])
def test_training_cuts_what_never_ends_and_says_so_once(loop, monkeypatch, tmp_path):
    monkeypatch.setattr("kytolly.loop.limits.STEP_LIMIT", 90)
    monkeypatch.setattr("kytolly.loop.limits.MIN_STEP_LIMIT_IN_TRAINING", 40)
    monkeypatch.setattr(EndlessReward, "spec", EndlessReward.spec._replace(max_episode_steps=None))

    lengths, env = Seen(), EndlessReward() if loop == "device" else AlwaysEndless
    with pytest.warns(UserWarning, match="did not end") as warned:
        trainer = Trainer(tmp_path / "run", progress=False)
        result = trainer.train_dqn(DQNConfig(**SHORT), env, [lengths])
    assert lengths.lengths == [40, 40, 40] and result.evaluation.length_mean == 40
    cuts = [str(one.message) for one in warned if "did not end" in str(one.message)]
    assert ["within 40 " in text and "90 at most" in text for text in cuts] == [True]


def test_the_end_plays_whole_episodes_where_some_ended(monkeypatch, tmp_path):
    """Of those, some are longer than any of training."""
    monkeypatch.setattr("kytolly.loop.limits.STEP_LIMIT", 90)
    monkeypatch.setattr("kytolly.loop.limits.MIN_STEP_LIMIT_IN_TRAINING", 40)
    lengths, settings = Seen(), {**SHORT, "evaluation_episodes": 8, "final_evaluation_episodes": 8}
    with pytest.warns(UserWarning, match="did not end"):
        result = Trainer(tmp_path, progress=False).train_dqn(
            DQNConfig(**settings), Endless, [lengths]
        )
    assert all(30 < length < 40 for length in lengths.lengths)
    assert set(result.evaluation.returns) == {30.0, 90.0}


class AlwaysEndless(Endless):
    """Reward 1 for every step, and no end."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        self.ends = False
        return obs, info


class Task(Endless):
    """Costs 1 a step, and is over after 60 steps, which nothing says before."""

    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), -1.0, False, self.time >= 60, {}


def test_evaluations_follow_the_length_of_the_episodes_of_training(monkeypatch, tmp_path):
    """Whole episodes cost more: the best weights are not those whose episodes were cut."""
    monkeypatch.setattr("kytolly.loop.limits.MIN_STEP_LIMIT_IN_TRAINING", 40)
    settings = {**SHORT, "num_envs": 1}
    first, second = Seen(), Seen()
    with pytest.warns(UserWarning, match="longer in training than the 40 env .* cut after 80"):
        trainer = Trainer(tmp_path / "run", progress=False)
        result = trainer.train_dqn(DQNConfig(**settings), Task, [first, EarlyStop(2)])
    assert first.lengths == [40, 60, 60] and first.best == [-40, -60, -60]
    assert result.evaluation.return_mean == -60
    longer = DQNConfig(**{**settings, "total_env_steps": 112})
    trainer.train_dqn(longer, Task, [second], resume=True)
    assert second.lengths == [60] and second.best == [-60]


def test_a_limit_that_the_environment_has_is_that_of_evaluations(monkeypatch, tmp_path):
    """A registered limit above 1,000 env steps cuts nothing before it."""
    monkeypatch.setattr("kytolly.loop.limits.MIN_STEP_LIMIT_IN_TRAINING", 40)
    gymnasium.register("Limited-v0", entry_point=AlwaysEndless, max_episode_steps=70)
    seen = Seen()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            trainer = Trainer(tmp_path / "run", progress=False)
            trainer.train_dqn(DQNConfig(**SHORT), "Limited-v0", [seen])
    finally:
        del gymnasium.registry["Limited-v0"]
    assert seen.lengths == [70, 70, 70]


@pytest.mark.parametrize("own, given, limit", [(70, 40, 70), (10_001, 40, 40), (None, None, 90)])
def test_only_a_limit_that_is_soon_reached_is_waited_for(own, given, limit, monkeypatch):
    monkeypatch.setattr("kytolly.loop.limits.STEP_LIMIT", 90)
    spec = EndlessReward.spec._replace(max_episode_steps=own)
    found = EpisodeLimit(spec, given)
    assert found.env_steps == limit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found.follow(80)
    assert found.env_steps == max(limit, 80 * (own != 70))


@pytest.mark.parametrize("members", [1, 2])
def test_episodes_on_the_device_are_followed_too(members, monkeypatch, tmp_path):
    monkeypatch.setattr("kytolly.loop.limits.MIN_STEP_LIMIT_IN_TRAINING", 2)
    monkeypatch.setattr(CartPole, "spec", CartPole.spec._replace(max_episode_steps=None))
    settings = {**SHORT, "total_env_steps": 256, "evaluation_interval_env_steps": 128}
    configs = [DQNConfig(**settings, seed=seed) for seed in range(members)]
    trainer = Trainer(tmp_path / "run", progress=False)
    with pytest.warns(UserWarning, match=r"longer in training than the 2\d env .* after 48"):
        if members == 1:
            results = [trainer.train_dqn(configs[0], CartPole())]
        else:
            results = trainer.train_population(configs, CartPole())
    for result in results:
        assert result.history[-1]["evaluation_length_mean"] > 2


@pytest.mark.parametrize("interval, limit", [(2_500, 1_000), (50_000, 5_000), (10**6, 27_000)])
def test_the_limit_in_training_is_a_tenth_of_the_interval_within_bounds(interval, limit, tmp_path):
    cfg = DQNConfig(evaluation_interval_env_steps=interval)
    assert training_step_limit(TrainState(tmp_path, cfg, "", "", "")) == limit


@pytest.mark.parametrize("length, limit", [(999.0, 1_000), (2_100.0, 4_000), (1e6, 27_000)])
def test_the_limit_in_training_doubles_until_training_episodes_fit(length, limit, tmp_path):
    cfg = DQNConfig(evaluation_interval_env_steps=2_500)
    state = TrainState(tmp_path, cfg, "", "", "", longest_episode=length)
    assert training_step_limit(state) == limit
