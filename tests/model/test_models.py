import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from kytolly.config.dqn import DQNConfig
from kytolly.model.ddqn_mlp import DuelingMLP
from kytolly.model.dqn_mlp import DQNMLP
from kytolly.model.image_torso import image_layout, image_torso, layout
from kytolly.model.impala import ImpalaCNN, SpectralConv2D, adaptive_max_pool
from kytolly.model.nature_cnn import GridCNN, NatureCNN, SmallCNN
from kytolly.model.numpy_inference import numpy_network
from kytolly.model.observation_features import ObservationFeatures

MODELS = {
    "mlp": (lambda: DQNMLP(3, (8, 6)), (4,)),
    "mlp on a matrix": (lambda: DQNMLP(3, (8,)), (2, 5)),
    "dueling": (lambda: DuelingMLP(3, (8, 6)), (4,)),
    "cnn": (lambda: DQNMLP(3, (8,), NatureCNN()), (84, 84, 4)),
    "cnn for a cpu": (lambda: DuelingMLP(3, (8,), SmallCNN()), (84, 84, 4)),
    "impala": (lambda: DQNMLP(3, (8,), ImpalaCNN(width=2)), (21, 30, 4)),
    "impala pooled": (lambda: DuelingMLP(3, (8,), ImpalaCNN(False, 1, 2, True)), (36, 36, 4)),
    "small cnn": (lambda: DuelingMLP(3, (8,), NatureCNN()), (10, 10, 4)),
    "narrow cnn": (lambda: DQNMLP(3, (8,), NatureCNN()), (40, 7, 3)),
    "channels first": (lambda: DQNMLP(3, (8,), NatureCNN(channels_first=True)), (4, 84, 84)),
    "grid": (lambda: DuelingMLP(3, (8,), GridCNN()), (10, 10, 4)),
    "grid first": (lambda: DQNMLP(3, (8,), GridCNN(channels_first=True)), (4, 10, 10)),
    "normalized": (lambda: DQNMLP(3, (8,), ObservationFeatures(normalizes=True)), (4,)),
}


def spec(shape):
    return tf.TensorSpec(shape, tf.uint8 if len(shape) == 3 else tf.float32)


def observations(shape, count=5):
    if len(shape) == 3:
        return np.random.default_rng(0).integers(0, 255, (count, *shape)).astype(np.uint8)
    return np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_values_for_every_action_and_a_copy_from_disk_that_agrees(name, tmp_path):
    make, shape = MODELS[name]
    model, obs = make(), observations(shape)
    values = model(obs)
    assert values.shape == (5, 3) and values.dtype == "float32"
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(values, again(obs), atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_build_creates_every_weight(name):
    make, shape = MODELS[name]
    built, called = make(), make()
    built.build((None, *shape))
    called(observations(shape))
    assert [w.shape for w in built.weights] == [w.shape for w in called.weights]


def test_dueling_advantages_are_centred():
    model = DuelingMLP(3, (4,))
    model.build((None, 2))
    model.set_weights([0 * weight for weight in model.get_weights()])
    model.value.bias.assign([10.0])
    model.advantage.bias.assign([1.0, 2.0, 6.0])  # mean 3
    np.testing.assert_allclose(model(np.zeros((1, 2), np.float32)), [[8.0, 9.0, 13.0]])


def test_cnn_divides_integers_by_255_and_leaves_floats():
    torso = NatureCNN()
    image = observations((10, 10, 4))
    np.testing.assert_allclose(torso(image), torso(image.astype(np.float32) / 255), atol=1e-5)


@pytest.mark.parametrize("kind", [NatureCNN, GridCNN])
def test_channels_first_gives_what_the_same_image_gives_with_its_channels_last(kind):
    first, last = kind(channels_first=True), kind()
    image = observations((4, 10, 12))
    moved = np.moveaxis(image, 1, -1)
    last(moved)
    first(image)
    first.set_weights(last.get_weights())
    np.testing.assert_allclose(first(image), last(moved), atol=1e-6)
    assert not np.allclose(first(image), first(image[..., ::-1]))


def test_a_stack_of_color_images_has_the_channels_of_all():
    torso = NatureCNN(channels_first=True)
    images = np.random.default_rng(0).integers(0, 255, (2, 3, 40, 44, 3)).astype(np.uint8)
    assert torso(images).shape == (2, torso.compute_output_shape(images.shape)[1])
    assert torso.convolutions[0].kernel.shape == (8, 8, 9, 32)


@pytest.mark.parametrize(
    ("kind", "shape", "size"),
    [
        (NatureCNN, (200, 10, 3), (25, 10)),  # 200 by strides of 4 and 2
        (NatureCNN, (10, 201, 3), (10, 26)),  # a last stride reaches into the padding
        (NatureCNN, (36, 36, 1), (1, 1)),
        (NatureCNN, (35, 35, 1), (35, 35)),
        (SmallCNN, (72, 12, 3), (6, 12)),  # 72 by strides of 6 and 2
    ],
)
def test_a_long_side_is_taken_in_steps_and_a_short_one_is_not(kind, shape, size):
    check_size(kind(), shape, size)


@pytest.mark.parametrize(
    ("kind", "shape", "size"),
    [
        (NatureCNN, (35, 16, 1), (9, 4)),
        (NatureCNN, (24, 12, 3), (6, 6)),
        (NatureCNN, (15, 8, 3), (8, 8)),
        (NatureCNN, (200, 24, 3), (25, 6)),
        (SmallCNN, (24, 9, 3), (6, 5)),
    ],
)
def test_a_short_side_is_halved(kind, shape, size):
    check_size(kind(halves=True), shape, size)
    assert kind(halves=True).get_config()["halves"] and not kind().get_config()["halves"]


@pytest.mark.parametrize(
    ("network", "saved"), [("auto", True), ("cnn", True), ("small_cnn", "small")]
)
def test_networks_that_are_made_halve_and_those_that_were_saved_before_do_not(network, saved):
    image = {"": tf.TensorSpec((24, 24, 3), tf.uint8)}
    made = image_torso(image_layout(DQNConfig(), network, image)[0])
    before = image_torso(saved)
    assert type(made) is type(before) and made.halves and not before.halves


@pytest.mark.parametrize(
    ("shapes", "kind"),
    [
        ([(7, 7, 3)], "normed_grid"),
        ([(4, 4, 16)], "normed_grid"),
        ([(3, 19, 19)], "normed_grid"),
        ([(19, 19, 3), (7, 7, 20)], "normed_grid"),
        ([(20, 19, 3)], "halving"),
        ([(3, 20, 20)], "halving"),
        ([(7, 7, 3), (84, 84, 3)], "halving"),
        ([(7, 7, 3), (4, 84, 84, 3)], "halving"),
        ([(7, 7, 3), (30, 7, 7, 3)], "normed_grid"),
    ],
)
@pytest.mark.filterwarnings("ignore:.* is read as")
def test_uint8_of_a_few_fields_is_a_grid(shapes, kind):
    entries = {str(number): tf.TensorSpec(shape, tf.uint8) for number, shape in enumerate(shapes)}
    assert image_layout(DQNConfig(), "auto", entries)[0] == kind
    assert image_layout(DQNConfig(), "cnn", entries)[0] == "halving"
    assert image_layout(DQNConfig(), "grid_cnn", entries)[0] == "grid"


def test_a_grid_of_uint8_is_read_alike_in_any_unit():
    torso = image_torso("normed_grid")
    grid = np.random.default_rng(0).integers(0, 11, (2, 7, 7, 3), np.uint8)
    np.testing.assert_allclose(torso(grid), torso(23 * grid), atol=1e-3)
    assert np.ptp(torso(grid)) > 1.0


def test_every_pixel_of_a_small_image_counts():
    for side in (8, 9, 15, 16, 23, 24, 35):
        torso = NatureCNN(halves=True)
        image = tf.Variable(np.random.default_rng(0).random((1, side, side, 1), np.float32))
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(torso(image) ** 2)
        assert np.all(tape.gradient(total, image).numpy() != 0)


def check_size(torso, shape, size):
    kind, features = type(torso), torso(observations(shape, 2))
    assert features.shape == (2, size[0] * size[1] * kind.LAYERS[-1][0])
    assert torso.compute_output_shape((2, *shape)) == features.shape


def test_a_grid_keeps_its_numbers():
    torso, grid = GridCNN(), np.ones((1, 5, 5, 2), np.int8)
    np.testing.assert_allclose(torso(grid), torso(grid.astype(np.float32)), atol=1e-6)
    assert torso(grid).shape == (1, 5 * 5 * 16)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((84, 84, 4), "last"),
        ((210, 160, 3), "last"),
        ((7, 7, 3), "last"),
        ((10, 10, 10), "last"),
        ((4, 4, 16), "last"),
        ((7, 7, 20), "last"),
        ((4, 84, 84), "first"),
        ((1, 84, 84), "first"),
        ((3, 210, 160), "first"),
        ((4, 10, 10), "first"),
        ((4, 84, 84, 3), "stack"),
        ((3, 3, 84), None),
        ((84, 4, 84), None),
        ((6, 7, 12), None),
        ((20, 30, 40), None),
        ((4, 5, 6, 3), None),
        ((84, 84), None),
    ],
)
def test_where_the_channels_of_an_image_are(shape, expected):
    assert layout(shape) == expected


def test_cnn_refuses_vectors():
    with pytest.raises(ValueError, match="network='mlp'"):
        NatureCNN().build((None, 4))


@pytest.mark.parametrize("name", ["mlp", "mlp on a matrix", "dueling"])
def test_numpy_network_agrees(name):
    make, shape = MODELS[name]
    model, obs = make(), observations(shape)
    model(obs)
    np.testing.assert_allclose(numpy_network(model, spec(shape))(obs), model(obs), atol=1e-5)


def test_numpy_network_of_a_users_sequential_model():
    layers = [keras.layers.Dense(6, "tanh"), keras.layers.Dropout(0.5), keras.layers.Dense(2)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers])
    obs = observations((3,))
    np.testing.assert_allclose(numpy_network(model, spec((3,)))(obs), model(obs), atol=1e-5)


READ = """
import pathlib, sys
from kytolly.record.network_file import load_network
for path in sys.argv[1:]:
    network = load_network(pathlib.Path(path))
    print(type(network).__name__, type(network.torso).__name__)
"""


@pytest.mark.learning  # a second start of TensorFlow
def test_another_process_reads_every_network_of_the_table(tmp_path):
    """Keras finds a class in a file only where the class has been imported."""
    paths, found = [], []
    for name, (make, shape) in MODELS.items():
        model = make()
        model(observations(shape))
        paths.append(str(tmp_path / f"{name}.keras"))
        found.append(f"{type(model).__name__} {type(model.torso).__name__}")
        model.save(paths[-1])
    command = [sys.executable, "-c", READ, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout.splitlines() == found, done.stderr


def test_no_numpy_network_of_what_we_do_not_know():
    shape = (36, 36, 4)
    model = DQNMLP(3, (8,), ImpalaCNN())
    model(observations(shape))
    assert numpy_network(model, spec(shape)) is None
    custom = keras.Sequential([keras.layers.Input((3, 2)), keras.layers.GRU(2)])
    assert numpy_network(custom, spec((3, 2))) is None


IMAGE_MODELS = [name for name in MODELS if "cnn" in name or name in ("grid", "grid first")]


@pytest.mark.parametrize("name", [*IMAGE_MODELS, "channels first"])
def test_the_numpy_network_of_convolutions_computes_the_same(name):
    make, shape = MODELS[name]
    model, rng = make(), np.random.default_rng(0)
    image = rng.integers(0, 256, (3, *shape), np.uint8)
    model(image)
    for weight in model.trainable_variables:  # biases that are not 0
        weight.assign(np.asarray(weight) + 0.01 * rng.normal(size=weight.shape))
    inference = numpy_network(model, tf.TensorSpec(shape, tf.uint8))
    assert inference is not None
    for rows in (3, 1):
        np.testing.assert_allclose(
            inference(image[:rows]), model(image[:rows]), rtol=1e-3, atol=1e-4
        )


def test_adaptive_pooling_takes_the_maximum_of_cells_that_cover_the_image():
    image = np.arange(5 * 4, dtype=np.float32).reshape(1, 5, 4, 1)
    # rows 0-2 and 2-4, columns 0-1 and 2-3: the largest number is that of the last row and column
    np.testing.assert_array_equal(adaptive_max_pool(image, 2)[0, :, :, 0], [[9, 11], [17, 19]])


def test_a_spectral_kernel_has_the_norm_1_once_its_vector_has_learned():
    wide = keras.initializers.RandomNormal(stddev=1.0, seed=0)  # a norm far from 1
    layer = SpectralConv2D(8, 3, padding="same", kernel_initializer=wide)
    layer.build((None, 5, 5, 4))
    images, start = np.ones((1, 5, 5, 4), np.float32), np.asarray(layer.vector)
    layer(images)
    np.testing.assert_array_equal(layer.vector, start)  # playing does not learn
    for _ in range(40):
        layer(images, training=True)
    matrix = np.reshape(layer.unit_kernel(False), (-1, 8))
    np.testing.assert_allclose(np.linalg.norm(matrix, 2), 1.0, rtol=1e-3)
    norm = np.linalg.norm(np.reshape(layer.kernel, (-1, 8)), 2)
    assert norm > 2.0, "the kernel itself had the norm 1: the test shows nothing"
    layer.kernel.assign(3.0 * layer.kernel)
    np.testing.assert_allclose(np.reshape(layer.unit_kernel(False), (-1, 8)), matrix, rtol=1e-4)
