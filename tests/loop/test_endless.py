"""An environment whose episodes never end: an evaluation cuts them and says so."""

import gymnasium
import numpy as np
import pytest

from kytolly import DQNConfig
from kytolly.agent.make_agent import make_agent
from kytolly.callback.base import Callback, TrainState
from kytolly.loop.env_runner import make_env_runner
from kytolly.loop.limits import training_step_limit
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


@pytest.mark.parametrize("loop", ["host", learning("device")])
def test_training_cuts_earlier_says_so_once_and_plays_whole_episodes_at_the_end(
    loop, monkeypatch, tmp_path
):
    monkeypatch.setattr("kytolly.loop.limits.STEP_LIMIT", 90)
    monkeypatch.setattr("kytolly.loop.limits.MIN_STEP_LIMIT_IN_TRAINING", 40)
    monkeypatch.setattr(EndlessReward, "spec", EndlessReward.spec._replace(max_episode_steps=None))

    class Lengths(Callback):
        def __init__(self):
            self.found = []

        def on_evaluation(self, state):
            self.found.append(state.evaluation.length_mean)

    lengths, env = Lengths(), EndlessReward() if loop == "device" else AlwaysEndless
    with pytest.warns(UserWarning, match="did not end") as warned:
        trainer = Trainer(tmp_path / "run", progress=False)
        result = trainer.train_dqn(DQNConfig(**SHORT), env, [lengths])
    assert lengths.found == [40, 40, 40] and result.evaluation.length_mean == 90
    cuts = [str(one.message) for one in warned if "did not end" in str(one.message)]
    assert [("40" in text, "90" in text) for text in cuts] == [(True, True), (False, True)]


class AlwaysEndless(Endless):
    """Reward 1 for every step, and no end."""

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        self.ends = False
        return obs, info


@pytest.mark.parametrize("interval, limit", [(2_500, 1_000), (50_000, 5_000), (10**6, 27_000)])
def test_the_limit_in_training_is_a_tenth_of_the_interval_within_bounds(interval, limit, tmp_path):
    cfg = DQNConfig(evaluation_interval_env_steps=interval)
    assert training_step_limit(TrainState(tmp_path, cfg, "", "", "")) == limit
