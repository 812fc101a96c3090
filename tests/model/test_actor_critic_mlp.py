import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.model.actor_critic_mlp import ActorCriticMLP, ObservationFeatures
from kytolly.model.normalization import RunningNormalization
from kytolly.model.numpy_inference import numpy_network

RNG = np.random.default_rng(0)
VECTOR = RNG.normal(size=(5, 4)).astype(np.float32)
IMAGE = RNG.integers(0, 255, (5, 12, 12, 2)).astype(np.uint8)
DICT = {"b": VECTOR, "a": RNG.normal(size=(5, 2, 3)).astype(np.float32), "c": IMAGE}
NO_IMAGE = {name: DICT[name] for name in "ba"}


def normalized(convolutional=False):
    return ObservationFeatures(convolutional=convolutional, normalizes=True)


MODELS = {
    "vector": (lambda: ActorCriticMLP(3, (8, 6)), VECTOR),
    "shared torso": (lambda: ActorCriticMLP(3, (8,), shared_torso=True), VECTOR),
    "relu": (lambda: ActorCriticMLP(3, (8,), "relu"), VECTOR),
    "free scales": (lambda: ActorCriticMLP(4, (8,), free_scales=2, scale_init=-0.5), VECTOR),
    "normalized": (lambda: ActorCriticMLP(3, (8,), features=normalized()), VECTOR),
    "dict": (lambda: ActorCriticMLP(3, (8,), features=normalized()), NO_IMAGE),
    "flat image": (lambda: ActorCriticMLP(3, (8,)), IMAGE),
    "image": (lambda: ActorCriticMLP(3, (8,), features=ObservationFeatures(True)), IMAGE),
    "dict with image": (lambda: ActorCriticMLP(3, (8,), features=normalized(True)), DICT),
}


def shapes_of(obs):
    return tf.nest.map_structure(lambda part: (None, *part.shape[1:]), obs)


def spec_of(obs):
    return tf.nest.map_structure(lambda part: tf.TensorSpec(part.shape[1:], part.dtype), obs)


def make_built(name):
    """A model with weights that are all of some size, and its observations."""
    make, obs = MODELS[name]
    model, rng = make(), np.random.default_rng(1)
    if isinstance(obs, dict):
        model.build({key: (None, *part.shape[1:]) for key, part in obs.items()})
    else:
        model.build((None, *obs.shape[1:]))
    for weight in model.trainable_weights:
        weight.assign(rng.normal(size=weight.shape) * 0.5)
    model.update_statistics(tf.nest.map_structure(lambda part: part * 3 + 1, obs))
    return model, obs


@pytest.mark.parametrize("name", MODELS)
def test_params_and_values_and_a_copy_from_disk_that_agrees(name, tmp_path):
    model, obs = make_built(name)
    params, value = model(obs)
    assert params.shape == (5, model.num_params) and value.shape == (5,)
    assert params.dtype == value.dtype == "float32"
    assert np.std(params[:, 0]) > 0 and np.std(value) > 0  # rows are told apart
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for one, other in zip((params, value), again(obs), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, other)  # statistics too


@pytest.mark.parametrize("name", MODELS)
def test_build_creates_every_weight(name):
    make, obs = MODELS[name]
    called = make()
    called(obs)
    assert [w.shape for w in make_built(name)[0].weights] == [w.shape for w in called.weights]


@pytest.mark.parametrize("name", MODELS)
def test_the_numpy_network_agrees(name):
    model, obs = make_built(name)
    inference = numpy_network(model, spec_of(obs))
    np.testing.assert_allclose(inference(obs), model(obs)[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_scales_stay_float32_in_half_precision(precision):
    model = ActorCriticMLP(4, (8,), free_scales=2, scale_init=-1.0001, dtype=precision)
    params, _ = model(np.zeros((3, 5), np.float32))
    assert params.dtype == "float32"
    np.testing.assert_allclose(params[:, 2:], np.full((3, 2), -1.0001), rtol=1e-6)


def test_the_numpy_network_follows_new_statistics():
    model, obs = make_built("dict")
    inference = numpy_network(model, spec_of(obs))
    before = inference(obs)
    model.update_statistics(tf.nest.map_structure(lambda part: part * 50 - 7, obs))
    weights = [*model.trainable_variables, *model.non_trainable_weights]
    inference.take(np.concatenate([np.ravel(weight) for weight in weights]))
    far = {name: part * 1e4 for name, part in obs.items()}  # beyond the clip
    for seen in (obs, far):
        np.testing.assert_allclose(inference(seen), model(seen)[0], atol=1e-5)
    assert np.abs(inference(obs) - before).max() > 0.1


def gram(kernel):
    """The products of a kernel's rows or columns, whichever are fewer."""
    kernel = np.asarray(kernel)
    return kernel.T @ kernel if kernel.shape[1] <= kernel.shape[0] else kernel @ kernel.T


@pytest.mark.parametrize("shared", [False, True], ids=["separate", "shared"])
def test_kernels_are_orthogonal_times_their_gain_and_biases_zero(shared):
    model = ActorCriticMLP(3, (16, 8), shared_torso=shared)
    model.build((None, 4))
    torsos = [model.policy_torso] if shared else [model.policy_torso, model.value_torso]
    for torso in torsos:
        for layer in torso:  # gain sqrt(2)
            np.testing.assert_allclose(
                gram(layer.kernel), 2 * np.eye(len(gram(layer.kernel))), atol=1e-5
            )
    np.testing.assert_allclose(gram(model.policy_head.kernel), 1e-4 * np.eye(3), atol=1e-8)
    np.testing.assert_allclose(gram(model.value_head.kernel), [[1.0]], atol=1e-5)
    assert all(not np.any(w) for w in model.weights if len(w.shape) == 1)


def test_a_shared_torso_is_moved_by_both_losses_and_separate_ones_by_one():
    for shared in (False, True):
        model = ActorCriticMLP(3, (8,), shared_torso=shared)
        model.build((None, 4))
        assert len(model.trainable_weights) == (6 if shared else 8)
        with tf.GradientTape(persistent=True) as tape:
            params, value = model(VECTOR)
            losses = tf.reduce_sum(params), tf.reduce_sum(value)
        kernel = model.policy_torso[0].kernel
        assert tape.gradient(losses[0], kernel) is not None
        assert (tape.gradient(losses[1], kernel) is not None) == shared


def test_free_scales_are_the_same_for_every_observation_and_learned():
    model = ActorCriticMLP(4, (8,), free_scales=2, scale_init=-0.5)
    model.build((None, 4))
    params, _ = model(VECTOR)
    np.testing.assert_array_equal(params[:, 2:], np.full((5, 2), -0.5))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(VECTOR)[0][:, 2:] * [1.0, 3.0])
    np.testing.assert_allclose(tape.gradient(loss, model.scales), [5.0, 15.0])


def test_entries_of_a_dict_follow_each_other_by_name_whatever_the_order_given():
    features = ObservationFeatures()
    features.build(shapes_of(NO_IMAGE))
    expected = np.concatenate([DICT["a"].reshape(5, 6), DICT["b"]], axis=1)
    np.testing.assert_allclose(features(NO_IMAGE), expected)
    np.testing.assert_allclose(features({"a": DICT["a"], "b": DICT["b"]}), expected)
    assert features.width == 10


def test_images_are_not_normalized_and_the_rest_is():
    model, obs = make_built("dict with image")
    assert set(model.features.normalizers) == {"a", "b"} and set(model.features.images) == {"c"}
    one = model(obs)[0]
    brighter = {**obs, "c": (obs["c"] // 2).astype(np.uint8)}
    assert np.abs(one - model(brighter)[0]).max() > 1e-4  # and they are looked at


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)], ids=str)
def test_statistics_over_batches_are_numpys_over_all_rows(shape):
    layer = RunningNormalization()
    layer.build((None, *shape))
    batches = [
        np.random.default_rng(n).normal(5.0 * n, 1.0 + n, (rows, *shape)).astype(np.float32)
        for n, rows in enumerate((4, 1, 50, 7))
    ]
    update = tf.function(layer.update, autograph=False, jit_compile=True, reduce_retracing=True)
    for number, batch in enumerate(batches):
        (update if number == 2 else layer.update)(tf.constant(batch))
    rows = np.concatenate(batches)
    np.testing.assert_allclose(layer.mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(layer.variance, rows.var(axis=0), rtol=1e-4)
    assert float(layer.count) == 62
    np.testing.assert_allclose(
        layer(rows), np.clip((rows - rows.mean(0)) / rows.std(0), -10, 10), atol=1e-4
    )


def test_a_call_changes_no_statistics_and_nothing_is_changed_before_the_first_update():
    layer = RunningNormalization(clip=2.0)
    layer.build((None, 2))
    values = np.array([[0.5, -1.5], [3.0, -9.0]], np.float32)
    for training in (False, True):
        np.testing.assert_allclose(layer(values, training=training), [[0.5, -1.5], [2.0, -2.0]])
    assert float(layer.count) == 0 and not layer.trainable_weights
    layer.update(values)
    kept = layer.get_weights()
    layer(values * 100)
    for one, other in zip(kept, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_number_that_never_changes_is_normalized_to_zero():
    layer = RunningNormalization()
    layer.build((None, 1))
    layer.update(np.full((8, 1), 7.0, np.float32))
    np.testing.assert_allclose(layer(np.full((2, 1), 7.0, np.float32)), [[0.0], [0.0]])
    assert np.isfinite(layer(np.array([[7.5]], np.float32))).all()


def test_integers_are_normalized_too():
    layer = RunningNormalization()
    layer.build((None, 1))
    layer.update(np.array([[0], [4]], np.int64))
    np.testing.assert_allclose(layer(np.array([[4]], np.int64)), [[1.0]], rtol=1e-5)
