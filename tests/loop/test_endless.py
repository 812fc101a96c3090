"""An environment whose episodes never end: an evaluation cuts them and says so."""

import gymnasium
import numpy as np
import pytest

from kytolly import DQNConfig
from kytolly.agent.make_agent import make_agent
from kytolly.environment.probe.q_learning import EndlessReward
from kytolly.loop.choose import choose_side


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
    side = choose_side(cfg, env)
    agent = make_agent(cfg, side.spec)
    try:
        evaluator = side.evaluator(agent.policy.network, 6, 3, xla=False, device=None)
        return evaluator.evaluate()
    finally:
        side.close()


@pytest.mark.parametrize("module", ["host_side", "device"])
def test_an_endless_episode_is_cut_with_a_warning(module, monkeypatch):
    monkeypatch.setattr(f"kytolly.loop.{module}.STEP_LIMIT", 50)
    monkeypatch.setattr(EndlessReward, "spec", EndlessReward.spec._replace(max_episode_steps=None))
    with pytest.warns(UserWarning, match="did not end within .* time limit"):
        found = evaluation(Endless if module == "host_side" else EndlessReward())
    if module == "host_side":
        assert set(found.returns) == {30.0, 50.0}
    assert found.episodes == 6 and len(found.returns) == 6
    assert found.length_mean <= 50
