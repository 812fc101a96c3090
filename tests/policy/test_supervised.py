"""Schedule, loss, optimizer and gradient of supervised learning, each against arithmetic."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.config.supervised import SupervisedConfig
from kytolly.loop.supervised import update_seeds
from kytolly.policy.supervised import (
    SupervisedPolicy,
    balanced_class_weights,
    cross_entropy,
)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_cross_entropy_smooths_weighs_and_masks(compiled, maybe_compile):
    logits = tf.math.log([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
    labels = tf.constant([0, 2, 1])

    def losses(logits, labels):
        weights, mask = [1.0, 5.0, 3.0], tf.constant([True, True, False])
        return tf.stack(
            [
                cross_entropy(logits, labels),
                cross_entropy(logits, labels, smoothing=0.3),
                cross_entropy(logits, labels, class_weights=weights),
                cross_entropy(logits, labels, mask=mask),
            ]
        )

    of_label = -np.log([0.5, 0.6, 0.8])
    # With 0.3 the target of row 0 is (0.8, 0.1, 0.1): 0.7 for the label, and 0.1 for each class.
    spread = -np.log([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]]).sum(axis=1)
    expected = [
        of_label.mean(),
        (0.7 * of_label + 0.1 * spread).mean(),
        (1 * of_label[0] + 3 * of_label[1] + 5 * of_label[2]) / 9,  # of their sum, not of 3 rows
        of_label[:2].mean(),
    ]
    found = maybe_compile(losses, compiled)(logits, labels)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_cross_entropy_of_tokens_is_the_mean_over_all_that_count():
    logits = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    labels = np.array([[1, 2, 0], [3, 0, 0]])
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    counted = [log_probs[0, 0, 1], log_probs[0, 1, 2], log_probs[1, 0, 3]]
    found = cross_entropy(tf.constant(logits), tf.constant(labels), mask=labels != 0)
    assert float(found) == pytest.approx(-np.mean(counted), rel=1e-5)
    nothing = cross_entropy(tf.constant(logits), tf.constant(labels), mask=np.zeros((2, 3)))
    assert float(nothing) == 0.0


def test_rare_classes_weigh_more_and_those_without_a_row_nothing():
    # Four rows, two classes seen: 4 / (2 * 3) and 4 / (2 * 1); the mean over rows is 1.
    weights = balanced_class_weights([0, 0, 2, 0], num_classes=4)
    np.testing.assert_allclose(weights, [2 / 3, 0, 2, 0])


def make_policy(network, xla=False, total=100, **changes):
    changes = {"learning_rate": 0.1, "warmup_ratio": 0.0, "schedule": "constant"} | changes
    cfg = SupervisedConfig(batch_size=4, xla=xla, weight_decay=0.5, **changes)

    def loss(network, batch):
        error = tf.cast(network(batch["x"], training=True), tf.float32)[:, 0] - batch["y"]
        return tf.reduce_mean(tf.square(error)), {"error": tf.reduce_mean(tf.abs(error))}

    return SupervisedPolicy(network, loss, ("error",), cfg, total)


def linear_network(dropout=0.0):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(3), keras.layers.LayerNormalization()]
    layers += [keras.layers.Dropout(dropout), keras.layers.Dense(1)]
    network = keras.Sequential(layers)
    network.build((None, 2))
    return network


def batch_of(rows=4):
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=(rows, 2)), tf.float32)
    return {"x": x, "y": tf.constant(random.normal(size=rows), tf.float32)}


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]),
        ("cosine", [0.5, 1.0, 1.0, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0, 0]),
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_the_rate_rises_for_two_updates_and_falls_for_four(schedule, expected):
    settings = {"schedule": schedule, "learning_rate": 0.02, "warmup_ratio": 2 / 6}
    policy, rates = make_policy(linear_network(), total=6, **settings), []
    for _ in expected:
        rates.append(float(policy.optimizer.learning_rate))
        policy.fit_step(batch_of())
    np.testing.assert_allclose(rates, 0.02 * np.array(expected), atol=1e-8)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_without_a_warm_up_the_first_update_has_the_whole_rate(schedule):
    policy = make_policy(linear_network(), schedule=schedule, learning_rate=0.02)
    assert float(policy.optimizer.learning_rate) == pytest.approx(0.02)


def test_an_update_is_that_of_keras_adamw_without_decay_of_vectors():
    network, other = linear_network(), linear_network()
    policy, batch = make_policy(network, max_grad_norm=None), batch_of()
    adamw = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    adamw.exclude_from_weight_decay([w for w in other.trainable_variables if len(w.shape) < 2])
    for _ in range(3):
        policy.fit_step(batch)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(other(batch["x"])[:, 0] - batch["y"]))
        adamw.apply(
            tape.gradient(loss, [w.value for w in other.trainable_variables]),
            other.trainable_variables,
        )
    for value, expected in zip(network.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-6)


def test_parts_of_a_batch_give_the_gradient_of_all_its_rows():
    batch = batch_of()
    whole, parts = (make_policy(linear_network(), gradient_accumulation=n) for n in (1, 4))
    (gradient, loss), (other, same) = whole.gradient(batch), parts.gradient(batch)
    np.testing.assert_allclose(other, gradient, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(same.metrics[:2], loss.metrics[:2], rtol=1e-5)


@pytest.mark.parametrize("limit", [None, 0.01])
def test_the_gradient_is_clipped_where_a_limit_is_given(limit):
    gradient, loss = make_policy(linear_network(), max_grad_norm=limit).gradient(batch_of())
    norm = float(loss.metrics[-1])
    assert norm > 0.01 and float(tf.norm(gradient)) == pytest.approx(limit or norm, rel=1e-4)


def test_half_precision_scales_the_loss_and_skips_what_overflows():
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        network = linear_network()
    finally:
        keras.mixed_precision.set_dtype_policy(before)
    policy, batch = make_policy(network), batch_of()
    weights = policy.weights.vector.numpy()
    policy.fit_step(batch | {"y": batch["y"] * np.inf})
    np.testing.assert_array_equal(policy.weights.vector, weights)  # no step, and no decay either
    policy.fit_step(batch)
    assert np.isfinite(policy.weights.vector).all() and policy.skips_overflow
    assert not np.array_equal(policy.weights.vector, weights)


def test_dropout_draws_anew_at_every_update():
    policy, batch = make_policy(linear_network(0.5), learning_rate=1e-30), batch_of()
    losses = {float(policy.fit_step(batch).loss) for _ in range(4)}
    assert len(losses) > 1


def test_every_update_and_every_part_has_its_own_seed():
    seeds = [update_seeds(seed, tf.constant(n, tf.int64), 2) for seed in (0, 1) for n in range(5)]
    found = {tuple(row) for part in seeds for row in part.numpy().tolist()}
    assert len(found) == 2 * 5 * 2 and seeds[0].dtype == tf.int32
