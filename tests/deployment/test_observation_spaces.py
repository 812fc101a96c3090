"""Each observation space with each algorithm: train, load, act on one observation and on many."""

import gymnasium
import numpy as np
import pytest

import kytolly
from kytolly.agent.make_agent import make_agent
from kytolly.environment.gym.adapter import make_host_env
from kytolly.environment.registry import tensor_environment
from kytolly.trainer import Trainer
from tests.deployment.test_raw_observations import SPACES, Beside, Shows
from tests.helpers.cases import rest_learning
from tests.loop.configs import SMALL, small_config

KINDS = "number table bits nested tuple".split() + ["tuple in dict", "masked tuple", "beside"]
MAKERS = {kind: lambda kind=kind: Shows(SPACES[kind]) for kind in KINDS[:-1]}
MAKERS["beside"] = lambda: Beside(SPACES["tuple"])  # its mask is in the info
MAKERS["cards"] = lambda: gymnasium.make("Blackjack-v1")
CASES = [(kind, algorithm) for kind in MAKERS for algorithm in SMALL]
QUICK = [("tuple in dict", "ppo"), ("beside", "dqn"), ("cards", "pqn")]


def observed(make, seed):
    """The first observation, with the mask beside it where it has one."""
    obs, info = make().reset(seed=seed)
    return {"observation": obs, **info} if "action_mask" in info else obs


@pytest.mark.parametrize(("kind", "algorithm"), rest_learning(CASES, QUICK))
def test_what_an_environment_returns_is_learned_from_and_acted_on(kind, algorithm, tmp_path):
    make = MAKERS[kind]
    cfg = small_config(
        algorithm,
        total_env_steps=64,
        evaluation_episodes=2,
        evaluation_interval_env_steps=32,
        final_evaluation_episodes=3,
        xla=False,
    )
    result = Trainer(tmp_path / "run", progress=False).train(cfg, make)
    assert result.evaluation.episodes == 3
    observations = [observed(make, seed) for seed in range(5)]
    loaded = kytolly.load(tmp_path / "run")
    alone = [loaded.act(obs) for obs in observations]
    assert [result.agent.act(obs) for obs in observations] == alone
    assert all(type(action) is int for action in alone)
    if isinstance(observations[0], dict | tuple):
        assert loaded.act(observations).tolist() == alone
    if kind != "beside":
        vector = gymnasium.vector.SyncVectorEnv([make] * 5)
        batch, _ = vector.reset(seed=[*range(5)])
        assert loaded.act(batch).tolist() == alone
    report = kytolly.export(loaded, "saved_model", tmp_path / "file", env=make)
    assert "from playing" in report.observed
    assert report.equal_actions + report.near_ties == report.observations


def test_numbers_of_numpy_are_numbers():
    number, numbers = (
        make_agent(small_config("dqn"), make_host_env(MAKERS[kind]()).spec)
        for kind in ("number", "tuple")
    )
    for one in (np.int8(1), np.uint64(1), np.array(1), np.array(1, np.int32)):
        assert number.act(one) == number.act(1)
    assert numbers.act((np.int64(0), np.array(1), np.uint8(3))) == numbers.act((0, 1, 3))


def test_an_agent_of_tensor_code_acts_on_what_the_package_returns(tmp_path):
    pytest.importorskip("popgym")
    cfg = small_config("ppo", total_env_steps=64, final_evaluation_episodes=2, xla=False)
    result = Trainer(tmp_path / "run", progress=False).train(cfg, "popgym-AutoencodeEasy-v0")
    game = gymnasium.make("popgym-AutoencodeEasy-v0")
    obs, _ = game.reset(seed=1)
    loaded = kytolly.load(tmp_path / "run")
    assert isinstance(obs, tuple) and result.agent.act(obs) == loaded.act(obs)
    env = tensor_environment("popgym-AutoencodeEasy-v0")
    assert result.agent.env_spec.obs == env.spec.obs
