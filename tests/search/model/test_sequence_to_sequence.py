"""The network of a query rewriter."""

import keras
import numpy as np
import pytest

from kytolly.search.model.sequence_to_sequence import SequenceToSequence

SOURCE, INPUTS = np.array([[4, 5, 6], [7, 0, 0]]), np.array([[1, 8, 9], [1, 5, 4]])


def make_network(**options):
    keras.utils.set_random_seed(0)
    made = SequenceToSequence(12, dimension=4, units=5, **options)
    made.build()
    for weight in made.trainable_variables:  # no bias stays 0
        weight.assign(keras.random.normal(weight.shape, 0.0, 0.7))
    return made


@pytest.fixture(scope="module", params=[True, False], ids=["attention", "no-attention"])
def network(request):
    return make_network(attention=request.param)


def test_padding_of_the_source_changes_nothing(network):
    found = np.asarray(network(SOURCE, INPUTS))
    padded = np.pad(SOURCE, [(0, 0), (0, 4)])
    np.testing.assert_allclose(network(padded, INPUTS), found, atol=1e-5)
    alone = network(SOURCE[1:, :1], INPUTS[1:])  # a row of its own length
    np.testing.assert_allclose(alone[0], found[1], atol=1e-5)
    assert np.abs(network(SOURCE[:, ::-1], INPUTS) - found).max() > 1e-2  # the order matters


def test_no_logit_sees_later_inputs(network):
    changed = INPUTS.copy()
    changed[:, 2] = 3
    before, after = (np.asarray(network(SOURCE, part)) for part in (INPUTS, changed))
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    assert np.abs(after[:, 2] - before[:, 2]).max() > 1e-3


def test_one_step_after_the_other_is_the_whole(network):
    memory = network.encode(SOURCE)
    whole, states = np.asarray(network.decode(INPUTS, memory)), memory.states
    for at in range(INPUTS.shape[1]):
        logits, states = network.step(INPUTS[:, at], states, memory)
        np.testing.assert_allclose(logits, whole[:, at], atol=1e-5)


def test_only_attention_sees_what_the_last_states_do_not_tell():
    for attention in (True, False):
        network = make_network(attention=attention)
        memory = network.encode(SOURCE)
        other = memory._replace(outputs=memory.outputs * 2.0)
        seen = np.abs(network.decode(INPUTS, other) - network.decode(INPUTS, memory)).max()
        assert (seen > 1e-3) == attention
    assert len(make_network().trainable_variables) == 2 + 4 * 3 + 2 + 1


def test_noise_below_the_share_drops_a_number_and_the_others_grow():
    network = make_network(dropout=0.5)
    memory, noise = network.encode(SOURCE), np.zeros((2, 1, 4), np.float32)
    noise[..., :2] = 0.5  # is kept, and 0 is not
    only = np.asarray(network.decode(INPUTS, memory)) - network.bias
    first = np.asarray(network.decode(INPUTS, memory, noise)) - network.bias
    second = np.asarray(network.decode(INPUTS, memory, 0.5 - noise)) - network.bias
    np.testing.assert_allclose(first + second, 2.0 * only, atol=1e-4)  # 1 / (1 - 0.5)
    assert np.abs(first - second).max() > 1e-3
    states = [np.asarray(network.encode(SOURCE, part).outputs) for part in (noise, None)]
    assert np.abs(states[0] - states[1]).max() > 1e-3


def test_a_saved_network_is_the_same(network, tmp_path):
    network.save(tmp_path / "a.keras")
    again = keras.models.load_model(tmp_path / "a.keras", compile=False)
    np.testing.assert_array_equal(again(SOURCE, INPUTS), network(SOURCE, INPUTS))
    assert again.attention == network.attention
