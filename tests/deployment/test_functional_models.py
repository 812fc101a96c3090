"""Functional models of a user: each is saved, loaded and exported."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import kytolly
from kytolly.agent.make_agent import make_agent
from kytolly.config.dqn import DQNConfig
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.record.checkpoint import save_network
from kytolly.record.network_file import load_network
from tests.deployment.exported_agents import draws
from tests.deployment.functional_models import ACTIONS, KINDS, OBS, make_model
from tests.helpers.cases import rest_learning

# What the converters of today cannot do.
REFUSED = {("grouped convolution", "onnx"), ("embedding", "litert")}
QUICK = REFUSED | {("attention", "saved_model"), ("residual", "onnx"), ("LSTM", "litert")}
CASES = [(kind, format) for kind in KINDS for format in ("saved_model", "litert", "onnx")]
SPEC = EnvSpec("none", OBS, Discrete(ACTIONS))


@pytest.mark.parametrize("kind", rest_learning([*KINDS], ["attention", "residual", "LSTM"]))
def test_a_model_that_trains_is_loaded(kind, tmp_path):
    agent = make_agent(DQNConfig(xla=False), SPEC, make_model(kind))
    network = agent.policy.network
    loaded = load_network(save_network(network, tmp_path))
    obs = draws(agent, 5, seed=0)
    np.testing.assert_allclose(loaded(obs), network(obs), rtol=1e-6)


@pytest.mark.parametrize("kind, format", rest_learning(CASES, QUICK))
def test_a_model_is_exported_in_every_format_or_refused_in_one_line(kind, format, tmp_path):
    pytest.importorskip("tf2onnx")
    agent = make_agent(DQNConfig(xla=False), SPEC, make_model(kind))
    try:
        report = kytolly.export(agent, format, tmp_path / "file")
    except ValueError as refusal:
        assert (kind, format) in REFUSED and "saved_model" in str(refusal)
        assert "\n" not in str(refusal) and not list(tmp_path.iterdir())
    else:
        assert report.equal_actions + report.near_ties == report.observations
        loops = [one for one in agent.policy.network._flatten_layers() if hasattr(one, "unroll")]
        assert not any(layer.unroll for layer in loops)  # the model stays as it was


def test_what_litert_lacks_is_one_line(tmp_path):
    inputs = keras.Input([4])
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.ops.erfinv(inputs)))
    spec = EnvSpec("none", tf.TensorSpec([4]), Discrete(2))
    agent = make_agent(DQNConfig(xla=False), spec, model)
    with pytest.raises(ValueError, match=r"has no tf.Erfinv .* Export it as onnx") as refusal:
        kytolly.export(agent, "litert", tmp_path / "policy.tflite")
    assert "\n" not in str(refusal.value) and not list(tmp_path.iterdir())
