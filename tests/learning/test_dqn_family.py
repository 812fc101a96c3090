"""The algorithms of the DQN family find the known values of the probe environments."""

import numpy as np
import pytest

from tests.helpers.q_learning_probes import PROBES, Ring
from tests.learning.test_dqn import trained_values

# Atoms and quantiles of three places whose values lie in [0, 17].
FAMILY = {
    "c51": {"num_atoms": 31, "value_min": -10.0, "value_max": 20.0, "reward_scale": 1.0},
    "qr-dqn": {"num_quantiles": 8},
    "iqn": {"num_acting_quantiles": 8},
    "munchausen": {"munchausen": False},
}


@pytest.mark.learning
@pytest.mark.parametrize("algorithm", FAMILY)
def test_it_finds_the_sum_up_to_a_time_limit_and_beyond(algorithm):
    found, true = trained_values(Ring(), algorithm=algorithm, **FAMILY[algorithm])
    np.testing.assert_allclose(found, true, atol=0.2)


@pytest.mark.learning
@pytest.mark.parametrize("make_env", PROBES, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "switches",
    [{}, {"double": True, "network": "dueling", "n_step": 3}],
    ids=["plain", "double, dueling, n_step"],
)
@pytest.mark.parametrize("algorithm", FAMILY)
def test_each_finds_the_known_values(algorithm, switches, make_env):
    found, true = trained_values(make_env(), algorithm=algorithm, **FAMILY[algorithm], **switches)
    np.testing.assert_allclose(found, true, atol=0.2)
