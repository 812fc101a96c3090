"""PPO with a penalty on the divergence from the network before training."""

import math

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.config.ppo import PPOConfig
from kytolly.config.ppo_kl import PPOKLConfig
from kytolly.environment.mask import MASKED_LOGIT
from kytolly.environment.spec import Box
from kytolly.policy.losses import categorical_kl
from kytolly.policy.ppo_kl import PPOKLPolicy
from tests.helpers.linear_ppo import DEFAULTS, PARAMS, VALUE, VECTOR, Linear, make_batch, softmax


def linear_policy(kind=PPOKLConfig, **settings):
    cfg = kind(**{**DEFAULTS, **settings})
    return make_agent(cfg, VECTOR, Linear(PARAMS, VALUE)).policy


def metric(update, name):
    return float(update.metrics[PPOKLPolicy.metric_names.index(name)])


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_the_divergence_is_from_the_policy_to_the_reference(maybe_compile, compiled):
    half, tilted = [math.log(0.5)] * 2, [math.log(0.8) + 3.0, math.log(0.2) + 3.0]
    masked = [0.0, MASKED_LOGIT]
    policy = tf.constant([half, tilted, half, masked])
    reference = tf.constant([tilted, half, half, masked])
    found = maybe_compile(categorical_kl, compiled)(policy, reference)
    # 0.5 ln(0.5 / 0.8) + 0.5 ln(0.5 / 0.2) = 0.2231; 0.8 ln 1.6 + 0.2 ln 0.4 = 0.1927, the other
    # way round; then equal ones, and one where only the first action is allowed.
    np.testing.assert_allclose(found, [0.2231436, 0.1927448, 0.0, 0.0], atol=1e-6)


def test_the_first_loss_is_that_of_ppo_and_the_second_adds_the_divergence():
    batch, coefficient = make_batch(), 0.7
    policy, plain = linear_policy(kl_coef=coefficient), linear_policy(PPOConfig, entropy_coef=0.0)
    first = policy.loss(batch, policy.current_weights(), policy.hyper)
    np.testing.assert_allclose(first.metrics[-1], 0.0, atol=1e-7)
    ppo = plain.loss(batch, plain.current_weights(), plain.hyper)
    np.testing.assert_allclose(first.metrics[:-1], ppo.metrics, rtol=1e-6)
    moved = [tf.constant(PARAMS + [[0.9, -0.4]], tf.float32), tf.constant(VALUE)]
    after = policy.loss(batch, moved, policy.hyper)
    ppo = plain.loss(batch, moved, plain.hyper)
    obs = np.asarray(batch.obs, np.float64)
    p, q = softmax(obs @ moved[0].numpy()), softmax(obs @ PARAMS)
    kl = (p * np.log(p / q)).sum(axis=1).mean()
    np.testing.assert_allclose(after.loss, ppo.loss + coefficient * kl, rtol=1e-5)
    np.testing.assert_allclose(after.metrics[-1], kl, rtol=1e-5)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_large_coefficient_keeps_the_policy_near_the_reference(parts):
    batch, moved = make_batch(), {}
    for coefficient in (0.0, 100.0):
        policy = linear_policy(
            kl_coef=coefficient,
            learning_rate=1e-2,
            num_minibatches=parts,
            gradient_accumulation=parts,
            xla=False,
        )
        for _ in range(100):
            update = policy.fit_step(batch)
        moved[coefficient] = metric(update, "reference_kl")
    assert moved[0.0] > 0.01 > 1e-4 > moved[100.0] >= 0.0


def test_the_reference_is_in_a_checkpoint_and_stays(tmp_path):
    policy = linear_policy(learning_rate=0.1, xla=False)
    begin = policy.reference.numpy()
    policy.fit_step(make_batch())
    np.testing.assert_array_equal(policy.reference, begin)
    assert np.any(policy.weights.vector.numpy() != begin)
    path = tf.train.Checkpoint(policy=policy).write(str(tmp_path / "c"))
    other = linear_policy(learning_rate=0.1, xla=False)
    other.reference.assign(np.zeros_like(begin))
    tf.train.Checkpoint(policy=other).read(path)
    np.testing.assert_array_equal(other.reference, begin)


def test_continuous_actions_are_refused():
    with pytest.raises(ValueError, match="are a Box, and ppo-kl needs Discrete ones"):
        make_agent(PPOKLConfig(), VECTOR._replace(action=Box((0.0,), (1.0,))))
