"""A network class of the user's own: its run can be loaded, or training does not begin."""

import keras
import numpy as np
import pytest

import kytolly
from tests.deployment.conftest import DQN
from tests.helpers.new_process import in_new_process

OBS = [0.1, -0.2, 0.3, -0.4]


class Ours(keras.Model):
    """A network as a user writes it, without `get_config`."""

    def __init__(self, num_actions, width=8, **options):
        super().__init__(**options)
        self.num_actions, self.width = num_actions, width
        self.hidden = keras.layers.Dense(width, activation="relu")
        self.head = keras.layers.Dense(num_actions)

    def call(self, obs, training=False):
        return self.head(self.hidden(obs))


def whole_config(network):
    return {"num_actions": network.num_actions, "width": network.width}


def network_class(config=None):
    """A class of the user's program, which Keras does not know; `config` is its `get_config`."""
    members = {"__module__": "__main__"}
    if config is not None:
        members["get_config"] = lambda network: {
            **keras.Model.get_config(network),
            **config(network),
        }
    return type("MyNetwork", (Ours,), members)


@pytest.fixture(autouse=True)
def no_new_name():
    """Keras forgets what a test registered."""
    known = dict(keras.saving.get_custom_objects())
    yield
    keras.saving.get_custom_objects().clear()
    keras.saving.get_custom_objects().update(known)


def train(folder, network):
    return kytolly.Trainer(folder, progress=False).train(DQN, "CartPole-v1", model=network)


def test_a_class_that_nobody_registered_is_registered_before_training(tmp_path):
    with pytest.warns(UserWarning, match="under the name Custom>MyNetwork"):
        result = train(tmp_path / "run", network_class(whole_config)(2))
    best, last = (kytolly.load(result.run_dir, weights) for weights in ("best", "last"))
    assert best.act(OBS) == result.agent.act(OBS) and type(last.network).__name__ == "MyNetwork"
    np.testing.assert_array_equal(best.q_values(OBS), result.agent.q_values(OBS))


@pytest.mark.learning
def test_another_program_does_not_know_the_class(tmp_path):
    with pytest.warns(UserWarning, match="under the name Custom>MyNetwork"):
        train(tmp_path / "run", network_class(whole_config)(2))
    ended = in_new_process("import sys, kytolly; kytolly.load(sys.argv[1])", tmp_path / "run")
    assert "is of the class MyNetwork" in ended.stderr
    assert "@keras.saving.register_keras_serializable() above the class" in ended.stderr


@pytest.mark.parametrize(
    "config, arguments",
    [(None, (2,)), (lambda network: {"num_actions": network.num_actions}, (2, 9))],
    ids=["no get_config", "width is not in it"],
)
def test_a_class_that_cannot_be_saved_is_refused_before_training(config, arguments, tmp_path):
    with pytest.raises((TypeError, ValueError), match="cannot be saved and loaded again"):
        train(tmp_path / "run", network_class(config)(*arguments))
    assert not (tmp_path / "run").exists()
