"""Networks of the user: what fits, but would learn nothing, and what is no network yet."""

import threading
import warnings

import keras
import pytest

from kytolly import DQNConfig, PPOConfig
from kytolly.agent import make_agent as making
from kytolly.agent.make_agent import make_agent
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.environment.tensor.pendulum import Pendulum


def actor_critic(activation, outputs=2, inputs=4):
    obs = keras.Input((inputs,))
    return keras.Model(
        obs, (keras.layers.Dense(outputs, activation)(obs), keras.layers.Dense(1)(obs))
    )


def said(cfg, spec, model):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make_agent(cfg, spec, model)
    return [str(one.message) for one in found if one.category is UserWarning]


def test_probabilities_in_place_of_logits_are_named():
    (text,) = said(PPOConfig(), CartPole().spec, actor_critic("softmax"))
    assert "gives probabilities of actions, expected logits" in text
    for activation in (None, "relu"):
        assert said(PPOConfig(), CartPole().spec, actor_critic(activation)) == []
    values = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, "softmax")])
    assert said(DQNConfig(), CartPole().spec, values) == []
    assert said(PPOConfig(), Pendulum().spec, actor_critic("softmax", 2, 3)) == []


@keras.saving.register_keras_serializable()
class Sized(keras.Model):
    def __init__(self, units):
        super().__init__()
        self.dense = keras.layers.Dense(units)

    def call(self, obs):
        return self.dense(obs)


def test_a_class_in_place_of_a_model_is_named():
    with pytest.raises(Exception) as refusal:
        make_agent(DQNConfig(), CartPole().spec, Sized)
    (note,) = refusal.value.__notes__
    assert "model is the class Sized" in note and "Give an instance, Sized(...)" in note


def test_an_error_of_a_function_that_makes_a_model_gets_no_note():
    with pytest.raises(ZeroDivisionError) as refusal:
        make_agent(DQNConfig(), CartPole().spec, lambda spec: 1 / 0)
    assert not hasattr(refusal.value, "__notes__")


def test_a_class_in_place_of_a_model_with_a_memory_is_named_too():
    with pytest.raises(Exception) as refusal:
        make_agent(DQNConfig(memory="model", memory_units=3), CartPole().spec, Sized)
    assert "model is the class Sized" in refusal.value.__notes__[0]


def in_another_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_one_thread_at_a_time_builds_a_network(monkeypatch):
    """The seed and the precision are the process's: runs in threads would mix them up."""
    free = []

    def look():
        free.append(making.BUILDING.acquire(blocking=False))
        if free[-1]:
            making.BUILDING.release()

    def build(*_):
        in_another_thread(look)
        raise RuntimeError("no network")

    monkeypatch.setattr(making, "default_network", build)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no network"):
            make_agent(PPOConfig(), CartPole().spec)
    in_another_thread(look)
    assert free == [False, False, True]


def test_a_function_that_makes_a_model_may_make_an_agent():
    """As one does that begins with what another run learned."""

    def model(_):
        return make_agent(DQNConfig(), CartPole().spec).policy.network

    made = make_agent(DQNConfig(), CartPole().spec, model).policy.network
    assert made(keras.ops.zeros((1, 4))).shape == (1, 2)
