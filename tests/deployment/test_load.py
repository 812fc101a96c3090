"""A run's folder becomes the agent again that training returned."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import kytolly
from kytolly.environment.saved_spec import spec_from_dict
from kytolly.environment.spec import Box, Discrete, EnvSpec, MultiDiscrete, spec_to_dict
from tests.helpers.cases import learning
from tests.helpers.new_process import in_new_process

ROOT = Path(__file__).absolute().parents[2]
NOT_NEEDED = ("loop", "callback", "trainer", "agent.kytolly", "policy.adam")


def copy_of(run, folder):
    return Path(shutil.copytree(run.path, folder / "copy"))


def change_config(path, change):
    values = yaml.safe_load((path / "config.yaml").read_text())
    change(values)
    (path / "config.yaml").write_text(yaml.safe_dump(values))


def test_best_weights_act_as_the_agent_that_training_returned(dqn):
    agent, obs = kytolly.load(dqn.path), np.random.default_rng(1).normal(size=(50, 4))
    np.testing.assert_array_equal(agent.act(obs), dqn.result.agent.act(obs))
    np.testing.assert_allclose(agent.q_values(obs), dqn.result.agent.q_values(obs), rtol=1e-6)
    assert agent.env_name == "CartPole-v1" and agent.path == dqn.path and agent.cfg.gamma == 0.99
    assert agent.obs_spec.shape == (4,) and agent.distribution.num_params == 2


def test_weights_of_a_network_that_normalizes_come_with_their_statistics(pendulum):
    agent, obs = kytolly.load(pendulum.path), np.random.default_rng(1).normal(size=(9, 3))
    own, statistics = pendulum.result.agent, agent.network.features.normalizers[""]
    assert float(statistics.count) > 0 and np.abs(statistics.mean).min() > 0
    np.testing.assert_allclose(agent.act(obs), own.act(obs), rtol=1e-5)
    np.testing.assert_allclose(agent.values(obs), own.values(obs), rtol=1e-5)


@pytest.mark.parametrize("name", ["dqn", learning("pendulum"), "masked"])
def test_last_weights_and_those_of_a_checkpoint_are_those_that_were_saved(name, request):
    run = request.getfixturevalue(name)
    saved = sorted(int(p.stem.partition("-")[2]) for p in run.path.glob("checkpoints/ckpt-*.json"))
    assert len(saved) == 2 and saved[-1] == max(run.at)
    for weights, env_steps in (("last", saved[-1]), (saved[0], saved[0]), (saved[1], saved[1])):
        found = kytolly.load(run.path, weights).network.get_weights()
        for one, other in zip(found, run.at[env_steps], strict=True):
            np.testing.assert_array_equal(one, other)
    first, last = (run.at[env_steps] for env_steps in saved)
    assert any(not np.array_equal(one, other) for one, other in zip(first, last, strict=True))


def test_last_weights_need_no_best_network(dqn, tmp_path):
    path = copy_of(dqn, tmp_path)
    (path / "best.keras").unlink()
    found = kytolly.load(path, "last").network.get_weights()
    np.testing.assert_array_equal(found[0], dqn.at[max(dqn.at)][0])
    with pytest.raises(ValueError, match="stopped before its first evaluation"):
        kytolly.load(path)


@pytest.mark.parametrize(
    "weights, words",
    [
        (100, r"no checkpoint after 100 env steps, expected one of 64, 128"),
        ("newest", "weights is 'newest', expected 'best', 'last' or the env steps"),
        (True, "weights is True, expected 'best', 'last'"),
        (None, "weights is None"),
    ],
)
def test_weights_that_are_not_there_are_refused(dqn, weights, words):
    with pytest.raises(ValueError, match=words):
        kytolly.load(dqn.path, weights)


def test_folders_without_an_agent_are_refused(dqn, tmp_path):
    with pytest.raises(ValueError, match="it does not exist"):
        kytolly.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"no config.yaml in it"):
        kytolly.load(tmp_path)
    path = copy_of(dqn, tmp_path)
    shutil.rmtree(path / "checkpoints")
    with pytest.raises(ValueError, match="has no checkpoints"):
        kytolly.load(path, "last")


def test_a_damaged_checkpoint_is_refused(dqn, tmp_path):
    path = copy_of(dqn, tmp_path)
    (file,) = path.glob("checkpoints/ckpt-64.data*")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="ckpt-64 is damaged"):
        kytolly.load(path, 64)
    kytolly.load(path, 128)


def test_weights_that_are_no_numbers_are_refused(dqn, tmp_path):
    path = copy_of(dqn, tmp_path)
    network = kytolly.load(path).network
    network.q_values.bias.assign([np.nan, 0.0])
    network.save(path / "best.keras")
    with pytest.raises(ValueError, match="are not finite"):
        kytolly.load(path)


def test_an_old_run_takes_its_spec_from_its_environment(dqn, pendulum, tmp_path):
    path = copy_of(dqn, tmp_path)
    change_config(path, lambda values: values.pop("spec"))
    assert kytolly.load(path).act(np.zeros(4)) == kytolly.load(dqn.path).act(np.zeros(4))
    other = copy_of(pendulum, tmp_path / "other")
    change_config(other, lambda values: values.pop("spec"))
    assert kytolly.load(other).env_spec.action == Box((-2.0,), (2.0,))


def test_an_old_run_imports_no_module_that_only_its_folder_names(dqn, tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    path = copy_of(dqn, tmp_path)

    def change(values):
        values.pop("spec")
        values["environment"] = "stranger:Env-v0"

    change_config(path, change)
    with pytest.raises(ValueError, match=r"cannot be made by its name .*would import the Python"):
        kytolly.load(path)
    assert "stranger" not in sys.modules


@pytest.mark.parametrize(
    "spec",
    [
        {"observation": {"shape": [4], "dtype": "float32"}},
        {"observation": {"shape": [-4], "dtype": "float32"}, "action": {"discrete": 2}},
        {"observation": {"shape": [10**9], "dtype": "float32"}, "action": {"discrete": 2}},
        {"observation": {"shape": [4], "dtype": "resource"}, "action": {"discrete": 2}},
        {"observation": {"shape": [4], "dtype": "float32"}, "action": {"discrete": "2"}},
        {"observation": {"shape": [4], "dtype": "float32"}, "action": {"low": [1], "high": []}},
        {"observation": {"entries": {"a": {"entries": {}}}}, "action": {"discrete": 2}},
        ["observation"],
    ],
)
def test_a_spec_that_training_did_not_write_is_refused(dqn, tmp_path, spec):
    path = copy_of(dqn, tmp_path)
    change_config(path, lambda values: values.update(spec=spec))
    with pytest.raises(ValueError, match=r"the spec of the .* cannot be read|\$\.spec"):
        kytolly.load(path)


def test_a_spec_is_the_same_after_yaml(dqn, masked):
    inf, dict_obs = float("inf"), masked.result.agent.env_spec.obs
    assert set(dict_obs) == {"place", "step", "action_mask"}
    for action in (Discrete(3), MultiDiscrete((2, 3)), Box((-1.0, -inf), (1.0, inf))):
        spec = EnvSpec("name", dict_obs, action)
        text = yaml.safe_dump(spec_to_dict(spec))
        assert spec_from_dict("name", yaml.safe_load(text)) == spec
    assert "shape: [4]" in (dqn.path / "config.yaml").read_text()


LOOK = """
import sys
import kytolly
before = [name for name in ("tensorflow", "keras", "numpy") if name in sys.modules]
agent = kytolly.load(sys.argv[1])
agent.act([0.0, 0.0, 0.0, 0.0])
agent.act([0.0, 0.0, 0.0, 0.0], deterministic=False)
print(before, [name for name in sys.argv[2:] if name in sys.modules])
"""


def test_loading_imports_nothing_that_trains_and_no_environment(dqn):
    names = [f"kytolly.{name}" for name in NOT_NEEDED]
    ended = in_new_process(LOOK, dqn.path, "gymnasium", "kytolly.environment.gym", *names)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split("\n")[0] == "[] []"


@pytest.mark.learning
@pytest.mark.parametrize("order", ["kytolly, keras", "keras, kytolly"])
def test_keras_loads_a_run_after_import_kytolly_in_either_order(dqn, masked, order):
    code = f"import sys, {order}\nfor path in sys.argv[1:]: keras.models.load_model(path)"
    ended = in_new_process(code, dqn.path / "best.keras", masked.path / "best.keras")
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_kytolly_is_imported_before_keras_is(dqn):
    code = "import sys, kytolly; print([n for n in ('keras', 'tensorflow') if n in sys.modules])"
    assert in_new_process(code).stdout == "[]\n"
