"""A table learns of each state alone, and is what a Discrete observation gets."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from kytolly.agent.algorithms import part
from kytolly.agent.make_agent import make_agent
from kytolly.config.c51 import C51Config
from kytolly.config.dqn import DQNConfig
from kytolly.config.files import read_settings
from kytolly.config.munchausen import MunchausenConfig
from kytolly.config.ppo import PPOConfig
from kytolly.environment.encoding import Encoding
from kytolly.environment.gym.spaces import ObservationForm
from kytolly.environment.spec import Box, Discrete, EnvSpec
from kytolly.model.q_table import STEP, QTable
from kytolly.policy.batch import Transition
from kytolly.policy.distributions import Categorical

NUM_STATES = 3


NUMBERED = (("", Encoding((), (NUM_STATES,), (0,))),)


def one_state(encodings=NUMBERED):
    return EnvSpec("Three-v0", tf.TensorSpec([NUM_STATES], tf.float32), Discrete(2), None, None,
                   encodings=encodings)  # fmt: skip


def test_values_begin_at_zero_and_an_update_changes_the_state_that_was_seen():
    cfg = DQNConfig(warmup_env_steps=128, reward_scale=1.0, learning_rate=0.01, xla=False)
    cfg = cfg.fitted_to(one_state())
    agent = make_agent(cfg, one_state())
    eye = np.eye(NUM_STATES, dtype=np.float32)
    np.testing.assert_array_equal(agent.policy.network(eye), 0.0)
    obs = tf.repeat(eye[1:2], 128, axis=0)
    rows = Transition(obs, tf.ones([128], tf.int32), -tf.ones([128]), tf.zeros([128]), obs)
    agent.policy.update(rows, agent.hyper())
    values = agent.policy.weights.vector.numpy()
    # Adam's first step is the learning rate, whatever the gradient; the table's entry is STEP times
    # the weight.
    expected = np.zeros((NUM_STATES, 2))
    expected[1, 1] = -0.01
    np.testing.assert_allclose(values[: expected.size].reshape(expected.shape), expected, atol=1e-6)


def test_an_entry_is_a_multiple_of_its_weight(tmp_path):
    network = QTable(2, learns_scale=True)
    eye = np.eye(NUM_STATES, dtype=np.float32)
    network(eye)
    kernel = np.arange(6, dtype=np.float32).reshape(3, 2)
    network.q_values.set_weights([kernel])
    network.reward_scale.assign(0.25)
    np.testing.assert_array_equal(network(eye), STEP * kernel)
    network.save(tmp_path / "table.keras")
    loaded = keras.models.load_model(tmp_path / "table.keras")
    np.testing.assert_array_equal(loaded(eye), STEP * kernel)
    assert float(loaded.reward_scale) == 0.25


@pytest.mark.parametrize(
    ("cfg", "network", "n_step", "repeat"),
    [
        (DQNConfig(), "table", 1, 1),
        (MunchausenConfig(), "table", 1, 1),
        (DQNConfig(n_step=3, exploration_repeat=4), "table", 3, 4),
        (DQNConfig(network="mlp"), "mlp", 5, None),
        (DQNConfig(hidden_units=(8,)), "auto", 5, None),  # who names layers wants some
        (DQNConfig(noisy=True), "auto", 5, None),
        (C51Config(), "auto", 5, None),
    ],
)
def test_a_numbered_state_gets_a_table_where_the_algorithm_can(cfg, network, n_step, repeat):
    fitted = cfg.fitted_to(one_state())
    assert (fitted.network, fitted.n_step, fitted.exploration_repeat) == (network, n_step, repeat)
    assert fitted.normalize_observations is False
    assert fitted.fitted_to(one_state()) == fitted  # a resumed run asks again
    vector = cfg.fitted_to(one_state(encodings=()))
    assert (vector.network, vector.n_step) == (cfg.network, 3 if vector.layer_norm else cfg.n_step)
    assert vector.normalize_observations is True


@pytest.mark.parametrize(
    "cfg, states, cuts",
    [
        (DQNConfig(), False, False),
        (DQNConfig(double=True, n_step=5), False, False),
        (DQNConfig(network="mlp"), True, True),  # which would learn how good random actions are
        (DQNConfig(layer_norm=False), False, True),
        (C51Config(), False, True),
        (MunchausenConfig(), False, True),
        (DQNConfig(memory="gru"), False, True),
        (DQNConfig(cut_at_exploration=True), False, True),
        (C51Config(cut_at_exploration=False), True, False),
    ],
)
def test_rows_end_before_random_actions_where_those_would_be_learned_from(cfg, states, cuts):
    spec = one_state() if states else one_state(())
    assert cfg.fitted_to(spec).cuts_n_step is cuts
    assert cfg.fitted_to(spec, own_network=True).cuts_n_step is (
        cfg.cut_at_exploration is not False
    )


@pytest.mark.parametrize("shape", [[10, 10, 4], [84, 84, 1]])
def test_images_and_grids_are_learned_from_less_often(shape):
    spec = one_state(())._replace(obs=tf.TensorSpec(shape, tf.uint8))
    fitted = DQNConfig().fitted_to(spec)
    assert (fitted.n_step, fitted.updates_per_interval) == (1, 8)
    assert fitted.fitted_to(spec) == fitted  # a resumed run asks again
    entries = spec._replace(obs={"map": spec.obs, "speed": tf.TensorSpec([2])})
    assert DQNConfig().fitted_to(entries).n_step == 1
    given = DQNConfig(n_step=5, updates_per_interval=24).fitted_to(spec)
    assert (given.n_step, given.updates_per_interval) == (5, 24)
    stacked = one_state(())._replace(obs=tf.TensorSpec([4, 3], tf.float32))
    for vectors in (one_state(()), stacked):
        fitted = DQNConfig().fitted_to(vectors)
        assert (fitted.n_step, fitted.updates_per_interval) == (3, 24)


@pytest.mark.parametrize("cfg", [DQNConfig(memory="gru"), MunchausenConfig(memory="lru")])
def test_sequences_are_learned_from_less_often(cfg):
    fitted = cfg.fitted_to(one_state(()))
    assert (fitted.n_step, fitted.updates_per_interval) == (5, 8)
    assert fitted.fitted_to(one_state(())) == fitted  # a resumed run asks again
    assert cfg.fitted_to(one_state(()), own_network=True).updates_per_interval == 8
    given = dataclasses.replace(cfg, updates_per_interval=24).fitted_to(one_state(()))
    assert given.updates_per_interval == 24


def test_the_vectors_of_a_dict_are_normalized_beside_what_is_one_hot():
    days = ("day", Encoding((), (7,), (0,)))
    entries = {
        "day": tf.TensorSpec([7]),
        "stock": tf.TensorSpec([2]),
        "picture": tf.TensorSpec([36, 36, 1], tf.uint8),
    }
    mixed = one_state(())._replace(obs=entries, encodings=(days,))
    assert DQNConfig().fitted_to(mixed).normalize_observations is True
    numbers = {name: spec for name, spec in entries.items() if name != "picture"}
    make_network = part("ppo", "network")
    for obs in (entries, numbers):
        spec = mixed._replace(obs=obs)
        cfg = PPOConfig().fitted_to(spec)
        network = make_network(cfg, spec.network_input(), Categorical(2))
        network({name: tf.zeros([2, *one.shape], one.dtype) for name, one in obs.items()})
        assert list(network.features.normalizers) == ["stock"]
    for names in (["day"], ["picture"], ["day", "picture"]):
        obs, encodings = {name: entries[name] for name in names}, (days,) * ("day" in names)
        without = mixed._replace(obs=obs, encodings=encodings)
        assert DQNConfig().fitted_to(without).normalize_observations is False


@pytest.mark.parametrize(
    "space, are_bools",
    [
        (spaces.MultiBinary(3), True),
        (spaces.Box(0, 1, (3,), np.bool_), True),
        (spaces.Box(0, 1, (3,), np.float32), False),
        (spaces.Box(0, 1, (3,), np.int8), False),  # counts, for all that anybody says
        (spaces.MultiBinary((2, 3)), False),
    ],
)
def test_bools_are_not_normalized(space, are_bools):
    """Rare ones would become numbers of 10."""
    form = ObservationForm(space, "bools")
    assert form.grids == (("",) if are_bools else ())
    spec = one_state(())._replace(obs=form.spec, grids=form.grids)
    real = len(space.shape) == 1 and not are_bools
    assert PPOConfig().fitted_to(spec).normalize_observations is real
    assert PPOConfig().fitted_to(spec).gae_lambda_value == (0.99 if real else None)
    entries = {"bools": form.spec, "x": tf.TensorSpec([2])}
    beside = spec._replace(obs=entries, grids=("bools",) * are_bools)
    assert PPOConfig().fitted_to(beside).normalize_observations is True


def test_several_numbers_are_no_state():
    pair = (("", Encoding((2,), (2, 1), (0, 0))),)
    assert DQNConfig().fitted_to(one_state(pair)).network == "auto"
    assert PPOConfig().fitted_to(one_state()).network == "auto"


def test_values_learn_from_longer_returns_where_vectors_ask_for_a_choice():
    vectors = one_state(())._replace(obs=tf.TensorSpec([4], tf.float32))
    images = vectors._replace(obs=tf.TensorSpec([84, 84, 3], tf.uint8))
    forces = vectors._replace(action=Box((-1.0,), (1.0,)))
    both = vectors._replace(obs={"speed": vectors.obs, "view": images.obs})
    specs = vectors, images, forces, one_state(), both
    found = [PPOConfig().fitted_to(spec).gae_lambda_value for spec in specs]
    assert found == [0.99, None, None, None, None]
    assert PPOConfig().fitted_to(forces, own_network=True).gae_lambda_value is None
    given = PPOConfig(gae_lambda_value=0.99).fitted_to(one_state())
    assert given.gae_lambda_value == 0.99 and given.fitted_to(one_state()) == given
    assert PPOConfig(gae_lambda_value=None).fitted_to(vectors).gae_lambda_value is None


def test_a_table_is_refused_where_it_cannot_be():
    with pytest.raises(ValueError, match="expected a Discrete observation space"):
        DQNConfig(network="table").fitted_to(one_state(encodings=()))
    for cfg, wrong in ((C51Config, {}), (DQNConfig, {"noisy": True})):
        with pytest.raises(ValueError, match="network is 'table' with"):
            cfg(network="table", **wrong)


def test_the_run_of_a_kytolly_without_tables_keeps_its_network(tmp_path):
    file = tmp_path / "config.yaml"
    lines = ["settings:", " algorithm: dqn", " network: auto", " n_step: 5"]
    spec = ["spec:", " encodings:", "  '': {shape: [], counts: [3], starts: [0]}"]
    file.write_text("\n".join(lines + spec))
    settings, _ = read_settings(file)
    assert (settings["network"], settings["cut_at_exploration"]) == ("mlp", False)
    file.write_text("\n".join(lines))
    assert read_settings(file)[0]["network"] == "auto"
    file.write_text("\n".join([*lines, " cut_at_exploration: true", *spec]))
    assert read_settings(file)[0]["network"] == "auto"
    assert dataclasses.replace(DQNConfig(), network="table").n_step == 1
