"""An exported file acts as its agent does, and no file is kept that does not."""

import json

import numpy as np
import pytest
import tensorflow as tf

import kytolly
from kytolly.agent.make_agent import make_agent
from kytolly.config.dqn import DQNConfig
from kytolly.deployment import export as export_module
from kytolly.deployment import litert, onnx, saved_model
from kytolly.deployment.act_function import (
    ActFunction,
    acting_parts,
    float32_layers,
    float32_outputs,
    input_names,
)
from kytolly.deployment.comparison import compare, require_agreement
from kytolly.deployment.loaded_agent import LoadedAgent
from kytolly.deployment.observations import random_masks, random_observations
from kytolly.environment.encoding import Encoding
from kytolly.environment.mask import without_mask
from kytolly.environment.spec import Discrete, EnvSpec
from tests.deployment.exported_agents import AGENTS, agent_of, observations
from tests.environment.masked import Masked
from tests.helpers.cases import learning

LOADERS = {"saved_model": saved_model.load, "litert": litert.load, "onnx": onnx.load}
CASES = [  # the others only confirm what these show
    ("dqn", "saved_model"),
    ("normalized", "onnx"),
    ("masked parts", "litert"),
    ("half", "saved_model"),
]
MORE = [(name, format) for name in ("dqn", "normalized", "masked parts", "dict")
        for format in LOADERS if (name, format) not in CASES]  # fmt: skip
MORE += [
    ("image", "litert"),
    ("image", "onnx"),
    ("masked", "litert"),
    ("dueling", "litert"),
    ("ppo", "onnx"),
]
MORE += [("squashed", "litert"), ("scaled", "litert")]
CASES += [pytest.param(*case, marks=pytest.mark.learning) for case in MORE]


def inputs_of(agent, obs):
    return ActFunction(acting_parts(agent)).named_inputs(obs)


@pytest.mark.parametrize(("name", "format"), CASES)
def test_an_export_equals_the_agent_on_a_thousand_observations(name, format, tmp_path):
    agent = agent_of(name)
    report = kytolly.export(agent, format, tmp_path / "file")
    assert report.equal_actions + report.near_ties == report.observations == 1_000
    assert report.relative_difference <= 1e-5
    # Once more, without what export() itself compares with: on other observations, and beside what
    # the agent says and does.
    obs = observations(agent, 1_000)
    found = LOADERS[format](tmp_path / "file")(inputs_of(agent, obs))
    with float32_layers(agent.policy.network):
        first, *value = tf.nest.flatten(
            agent.policy.network(tf.nest.map_structure(tf.constant, without_mask(obs)))
        )
        if not value:
            first = agent.q_values(obs)
    params = found["params" if value else "values"]
    allowed = obs.get("action_mask", True) if isinstance(obs, dict) else True
    np.testing.assert_allclose(
        np.where(allowed, params, 0.0), np.where(allowed, first, 0.0), atol=1e-5, rtol=1e-5
    )
    if value:
        np.testing.assert_allclose(found["value"], np.ravel(value[0]), atol=1e-5, rtol=1e-5)
    action, own = found["action"], agent.act(obs)
    assert action.shape == own.shape and (action.dtype.kind == "f") == (own.dtype.kind == "f")
    if own.dtype.kind == "f":
        np.testing.assert_allclose(action, own, atol=1e-5)
    elif AGENTS[name][0].precision == "auto":
        np.testing.assert_array_equal(action, own)
    else:  # the agent computes in half precision, which ties some of its values
        assert np.mean(action == own) > 0.9


@pytest.mark.parametrize("format", ["litert", learning("saved_model"), learning("onnx")])
def test_any_number_of_observations_may_be_given(format, tmp_path):
    agent = agent_of("masked parts")
    kytolly.export(agent, format, tmp_path / "file")
    act = LOADERS[format](tmp_path / "file")
    for count in (1, 7, 2):
        obs = observations(agent, count)
        np.testing.assert_array_equal(act(inputs_of(agent, obs))["action"], agent.act(obs))


@pytest.mark.parametrize("quantize", ["int8", learning(None), learning("float16")])
@pytest.mark.parametrize("name", [learning("masked"), "masked parts"])
def test_a_forbidden_action_is_never_taken(name, quantize, tmp_path):
    agent = agent_of(name)
    kytolly.export(agent, "litert", tmp_path / "file", quantize=quantize)
    obs = observations(agent, 1_000)
    action = litert.load(tmp_path / "file")(inputs_of(agent, obs))["action"]
    taken = action.reshape(1_000, -1) + np.array([0, 2])[: action.ndim]  # the parts' first actions
    assert np.take_along_axis(obs["action_mask"], taken, axis=1).all()
    assert not obs["action_mask"].all()
    assert np.mean(action == agent.act(obs)) > 0.8  # -1e9 among integers of 8 bits left 0.4


def test_quantized_files_are_smaller_and_their_returns_stand_beside_the_agents(tmp_path):
    agent, sizes = agent_of("dqn"), {}
    for quantize in (None, "float16", "int8"):
        report = kytolly.export(
            agent, "litert", tmp_path / f"{quantize}", quantize=quantize, episodes=4
        )
        sizes[quantize] = report.size_bytes
        assert report.observed == "from playing CartPole-v1"
        assert set(report.returns) == {"agent", "file"}
        agents, files = report.returns["agent"], report.returns["file"]
        assert agents["episodes"] == files["episodes"] == 4
        assert agents["return_mean"] == agents["length_mean"]  # CartPole's reward is 1
        if quantize is None:
            assert agents == files  # the same episodes
    assert sizes["int8"] < sizes["float16"] < sizes[None]


def test_the_report_is_json_and_names_what_was_timed(tmp_path):
    agent = agent_of("dqn")
    report = kytolly.export(agent, "litert", tmp_path / "policy.tflite")
    assert list(report.microseconds) == ["agent", "litert"]
    assert all(value > 0 for value in report.microseconds.values())
    assert json.loads(json.dumps(report.summary()))["path"] == str(tmp_path / "policy.tflite")
    assert report.size_bytes == (tmp_path / "policy.tflite").stat().st_size
    assert report.returns is None
    report = kytolly.export(agent, "saved_model", tmp_path / "saved_model")
    assert list(report.microseconds) == ["agent", "litert", "saved_model"]


def test_a_saved_model_that_lies_beside_the_export_is_not_run(tmp_path, monkeypatch):
    kytolly.export(agent_of("dqn"), "saved_model", tmp_path / "saved_model")
    monkeypatch.setattr(saved_model, "load", lambda path: pytest.fail(f"{path} was run"))
    report = kytolly.export(agent_of("dqn"), "litert", tmp_path / "policy.tflite")
    assert list(report.microseconds) == ["agent", "litert"]


def test_a_file_of_another_agent_beside_the_export_is_not_timed(tmp_path):
    kytolly.export(agent_of("normalized"), "litert", tmp_path / "policy.tflite")
    report = kytolly.export(agent_of("dqn"), "saved_model", tmp_path / "saved_model")
    assert list(report.microseconds) == ["agent", "saved_model"]


def test_a_saved_model_lies_as_tensorflow_serving_wants_it(tmp_path):
    agent = agent_of("masked parts")
    kytolly.export(agent, "saved_model", tmp_path / "model")
    assert (tmp_path / "model" / "1" / "saved_model.pb").is_file()
    body = json.loads((tmp_path / "model" / "request.json").read_text())
    assert body["signature_name"] == "serving_default" and len(body["instances"]) == 2
    assert set(body["instances"][0]) == {"place", "action_mask"}
    assert len(body["instances"][0]["place"]) == 3


def test_a_file_that_differs_is_not_kept(tmp_path, monkeypatch):
    def others(parts, obs):
        outputs = float32_outputs(parts, obs)
        return {**outputs, "values": outputs["values"] + np.float32(1e-3)}

    monkeypatch.setattr(export_module, "float32_outputs", others)
    for format in LOADERS:
        with pytest.raises(ValueError, match=r"was not kept: the file differs by .*e-0"):
            kytolly.export(agent_of("dqn"), format, tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_near_ties_are_told_from_wrong_actions(tmp_path):
    parts = acting_parts(agent_of("dqn"))
    values = np.array([[1.0, 2.0], [3.0, 3.000001], [5.0, 4.0]], np.float32)
    expected = {"action": np.array([1, 1, 0]), "values": values}
    # Row 1: the file finds the first value larger by a millionth, and so takes the other action.
    close = values + np.array([[0, 0], [4e-6, 0], [0, 0]], np.float32)
    result = compare(parts, {"action": np.array([1, 0, 0]), "values": close}, expected)
    assert (result.equal_actions, result.near_ties) == (2, 1)
    assert 3e-6 < result.largest_difference < 5e-6
    assert result.relative_difference == pytest.approx(result.largest_difference / 5.0)
    require_agreement(result, 3, tmp_path, None)
    # Here its own values say action 1, and it takes 0: no tie explains that.
    result = compare(parts, {"action": np.array([0, 1, 0]), "values": values}, expected)
    assert (result.equal_actions, result.near_ties) == (2, 0)
    with pytest.raises(ValueError, match="takes 1 of 3 actions that are not the agent's"):
        require_agreement(result, 3, tmp_path, None)
    result = compare(parts, {**expected, "values": values * np.nan}, expected)
    with pytest.raises(ValueError, match="differs by inf"):
        require_agreement(result, 3, tmp_path, None)


def test_a_forbidden_action_is_refused_even_in_a_quantized_file(tmp_path):
    parts = acting_parts(agent_of("masked"))
    params = np.array([[1.0, -1e9, 2.0, 0.0, 0.0]], np.float32)
    expected = {"action": np.array([2]), "params": params, "value": np.zeros(1, np.float32)}
    found = {**expected, "action": np.array([1])}
    with pytest.raises(ValueError, match="takes 1 of 1 actions that the mask forbids"):
        require_agreement(compare(parts, found, expected), 1, tmp_path, "int8")
    require_agreement(compare(parts, expected, expected), 1, tmp_path, "int8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "onyx"}, "onyx"),
        ({"format": "onnx", "quantize": "int8"}, "onnx does not have"),
        ({"format": "saved_model", "quantize": "float16"}, "saved_model does not have"),
        ({"format": "litert", "quantize": "int4"}, "int4"),
        ({"format": "litert", "path": None}, "no path"),
        ({"format": "litert", "path": "."}, "exists"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        kytolly.export(agent_of("dqn"), **{"path": "new", **arguments})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("format", "package"), [("litert", "ai_edge_litert"), ("onnx", "onnxruntime")]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    format, package, tmp_path, monkeypatch
):
    found = export_module.importlib.util.find_spec
    monkeypatch.setattr(
        export_module.importlib.util,
        "find_spec",
        lambda name, *rest: None if name == package else found(name, *rest),
    )
    with pytest.raises(ValueError, match=r'pip install "kytolly\[export\]"'):
        kytolly.export(agent_of("dqn"), format, tmp_path / "file")


def test_what_is_no_agent_is_refused(tmp_path):
    with pytest.raises(TypeError, match="got str, expected the agent of"):
        kytolly.export("runs/cartpole", "litert", tmp_path / "file")


def test_an_environment_that_shows_something_else_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected what the agent was trained on"):
        kytolly.export(agent_of("dqn"), "litert", tmp_path / "file", env="Pendulum-v1")


def test_an_environment_of_ones_own_is_played_with_its_masks(tmp_path):
    from kytolly.agent.make_agent import make_agent
    from kytolly.environment.gym.adapter import make_host_env

    env = make_host_env(lambda: Masked("entry"), 1, masks=True)
    env.close()
    agent = make_agent(AGENTS["masked"][0], env.spec)
    report = kytolly.export(
        agent, "litert", tmp_path / "file", env=lambda: Masked("entry"), quantize="int8", episodes=3
    )
    assert report.observed.startswith("from playing")
    assert report.returns["file"]["episodes"] == 3  # Masked raises at a forbidden action


@pytest.mark.parametrize("name", ["normalized", "normalized dqn"])
def test_numbers_are_drawn_where_the_networks_statistics_lie(name):
    agent = agent_of(name)
    drawn = random_observations(acting_parts(agent), 1_000, 0)
    # The statistics are those of 3 + 2 x, where x has mean 0 and deviation 2.
    np.testing.assert_allclose(drawn.mean(0), 3.0, atol=0.6)
    np.testing.assert_allclose(drawn.std(0), 4.0, atol=0.6)


def test_what_is_one_hot_is_drawn_so():
    days = Encoding((), (7,), (0,))
    spec = {"day": tf.TensorSpec([7]), "stock": tf.TensorSpec([2])}
    spec = EnvSpec("none", spec, Discrete(3), encodings=(("day", days),))
    agent = make_agent(DQNConfig(xla=False).fitted_to(spec), spec)
    drawn = random_observations(acting_parts(agent), 1_000, 0)["day"]
    assert set(np.unique(drawn)) == {0.0, 1.0} and (drawn.sum(axis=1) == 1.0).all()
    assert drawn.sum(axis=0).min() > 80  # of 1,000 / 7
    # Beside it the vector is normalized, and what is one-hot is not.
    assert list(agent.policy.network.torso.normalizers) == ["stock"]


def test_random_masks_allow_an_action_of_each_part():
    masks = random_masks(np.random.default_rng(0), 1_000, (2, 3))
    assert masks.shape == (1_000, 5) and 0.4 < masks.mean() < 0.8
    assert masks[:, :2].any(axis=1).all() and masks[:, 2:].any(axis=1).all()


def test_names_of_inputs_are_plain_and_differ():
    assert input_names(["far away", "far-away", "far_away", "7", "x"]) == [
        "far_away_2",
        "far_away_3",
        "far_away",
        "part_7",
        "x",
    ]


def test_half_precision_comes_back_after_an_export():
    network = agent_of("image").policy.network
    with pytest.raises(RuntimeError), float32_layers(network):
        assert {layer.compute_dtype for layer in network._flatten_layers()} == {"float32"}
        raise RuntimeError
    assert network.compute_dtype == "bfloat16"
    assert {layer.compute_dtype for layer in network._flatten_layers()} == {"bfloat16"}


def test_a_loaded_agent_writes_into_its_run(tmp_path):
    agent = agent_of("dqn")
    loaded = LoadedAgent(agent.policy.network, agent.cfg, agent.env_spec, tmp_path)
    assert kytolly.export(loaded, "litert").path == tmp_path / "policy.tflite"
    report = kytolly.export(loaded, "litert", quantize="float16", episodes=1)
    assert report.path == tmp_path / "policy.float16.tflite"
    with pytest.raises(ValueError, match=r"policy\.tflite exists"):
        kytolly.export(loaded, "litert")
