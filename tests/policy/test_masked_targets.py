"""Targets of distributions count on the allowed actions alone."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.policy.batch import Transition
from tests.helpers.on_policy_probes import MaskedAction
from tests.loop.configs import small_config

ROWS = 4


@pytest.mark.parametrize("allowed", range(4))
@pytest.mark.parametrize("double", [False, True])
def test_the_target_is_that_of_the_only_allowed_action(allowed, double):
    cfg = small_config("qr-dqn", num_quantiles=3, double=double, reward_scale=1.0)
    policy = make_agent(cfg, MaskedAction().spec).policy
    mask = np.zeros((ROWS, 4), bool)
    mask[:, allowed] = True
    place = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]]
    obs = {"place": tf.constant(place), "action_mask": tf.constant(mask)}
    number = tf.ones([ROWS])
    batch = Transition(obs, tf.fill([ROWS], allowed), number, 0.5 * number, obs)
    target = policy.bootstrap(batch, policy.current_weights(), policy.hyper)
    quantiles = policy.network.middle_quantiles({"place": tf.constant(place)})[:, allowed]
    np.testing.assert_allclose(target, 1.0 + 0.5 * quantiles.numpy(), rtol=1e-5, atol=1e-6)
