"""Learners of action values take and count on allowed actions alone."""

import numpy as np
import pytest

from tests.helpers.cases import learning
from tests.helpers.on_policy_probes import ALLOWED, FORBIDDEN_REWARD, MaskedAction
from tests.learning.test_dqn import GAMMA, trained_agent
from tests.learning.test_dqn_family import FAMILY
from tests.learning.test_pqn import trained

OBS = {"place": np.eye(3, dtype=np.float32), "action_mask": np.array(ALLOWED, bool)}
CASES = {
    "dqn": {},
    "double": {"double": True, "network": "dueling", "n_step": 3},
    "prioritized": {"prioritized": True},
    "noisy": {"noisy": True},
    **{name: {"algorithm": name, **settings} for name, settings in FAMILY.items()},
    "soft": {"algorithm": "munchausen", "entropy_temperature": 0.003, "munchausen": False},
    "rainbow": {"algorithm": "rainbow", **FAMILY["c51"], "n_step": 1},
}


def assert_right(agent, env, atol):
    allowed = OBS["action_mask"]
    found, true = agent.q_values(OBS), env.true_q(OBS, GAMMA)
    np.testing.assert_allclose(found[allowed], true[allowed], atol=atol)
    assert np.all(found[~allowed] == -np.inf)
    np.testing.assert_array_equal(agent.act(OBS), env.best_action(OBS))
    assert all(allowed[place, agent.act(OBS, deterministic=False)[place]] for place in range(3))


@pytest.mark.parametrize("case", [name if name == "dqn" else learning(name) for name in CASES])
def test_the_dqn_family_finds_the_values_of_what_is_allowed(case):
    env = MaskedAction()
    agent = trained_agent(env, **CASES[case])
    assert_right(agent, env, 0.3 if case in ("noisy", "rainbow") else 0.2)
    rewards = agent.memory.columns.reward.numpy()[: int(agent.memory.size)]
    assert rewards.min() > FORBIDDEN_REWARD  # random actions were allowed ones, too


def test_pqn_finds_the_values_of_what_is_allowed():
    env = MaskedAction()
    assert_right(trained(env, td_lambda=0.0), env, 0.2)
