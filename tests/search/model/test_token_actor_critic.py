"""The policy over next tokens is the sequence-to-sequence network that it was made of."""

import keras
import numpy as np
import pytest

from kytolly.search.model.sequence_to_sequence import SequenceToSequence
from kytolly.search.model.token_actor_critic import TokenActorCritic
from tests.search.model.test_sequence_to_sequence import SOURCE, make_network

BEGIN = 1
WRITTEN = np.array([[8, 9, 0], [0, 0, 0]])


@pytest.fixture(scope="module", params=[True, False], ids=["attention", "no-attention"])
def pair(request):
    network = make_network(attention=request.param)
    made = TokenActorCritic.from_config(network.get_config())
    made.build()
    made.take(network)
    return network, made


def test_its_logits_are_those_after_what_is_written(pair):
    network, made = pair
    logits, value = made({"source": SOURCE, "written": WRITTEN})
    whole = np.asarray(network(SOURCE, np.array([[BEGIN, 8, 9], [BEGIN, 8, 9]])))
    np.testing.assert_allclose(logits[0], whole[0, 2], atol=1e-5)
    np.testing.assert_allclose(logits[1], whole[1, 0], atol=1e-5)
    assert np.asarray(value).tolist() == [0.0, 0.0]
    full, _ = made({"source": SOURCE, "written": np.array([[8, 9, 4], [5, 0, 0]])})
    assert np.isfinite(np.asarray(full)).all()


def test_its_weights_are_its_own_and_a_file_keeps_them(pair, tmp_path):
    network, made = pair
    assert len(made.weights) == len(network.weights) + 2
    before = np.asarray(network(SOURCE, WRITTEN))
    copy = TokenActorCritic.from_config(made.get_config())
    copy.build()
    copy.take(made)
    copy.bias.assign(copy.bias + 1.0)
    copy.value.set_weights([np.ones((5, 1)), np.ones(1)])
    np.testing.assert_array_equal(network(SOURCE, WRITTEN), before)
    copy.save(tmp_path / "a.keras")
    loaded = keras.models.load_model(tmp_path / "a.keras")
    obs = {"source": SOURCE, "written": WRITTEN}
    for found, expected in zip(loaded(obs), copy(obs), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert isinstance(loaded, SequenceToSequence)
    assert np.abs(np.asarray(copy(obs)[1])).min() > 1e-3
