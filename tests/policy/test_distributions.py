import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf

from kytolly.agent.randomness import RandomStream, uniform
from kytolly.policy.continuous import (
    Gaussian,
    ScaledGaussian,
    SquashedGaussian,
    standard_normal,
)
from kytolly.policy.distributions import Categorical, MultiCategorical, choice, running_sums

both = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
NEARLY_ONE = 1.0 - 2.0**-24  # the largest draw
LOG = np.log([0.2, 0.5, 0.3]).astype(np.float32) + 7.0  # unnormalized
TWO_KINDS = MultiCategorical((2, 3))
BOX = {"low": (-2.0, 1.0), "high": (2.0, 4.0)}  # another width and another center
BOX_PARAMS = np.array([[0.5, -0.3, math.log(0.7), math.log(1.5)]], np.float32)


def draws(rows, columns, seed=0):
    return tf.reshape(uniform(RandomStream(seed).random_bits(rows * columns)), [rows, columns])


def test_categorical_log_prob_and_entropy_are_those_of_the_softmax():
    params = tf.constant([LOG, LOG, LOG])
    log_prob = Categorical(3).log_prob(params, tf.constant([0, 1, 2]))
    np.testing.assert_allclose(np.exp(log_prob), [0.2, 0.5, 0.3], rtol=1e-5)
    expected = -(0.2 * math.log(0.2) + 0.5 * math.log(0.5) + 0.3 * math.log(0.3))  # 1.0297 nats
    np.testing.assert_allclose(Categorical(3).entropy(params), [expected] * 3, rtol=1e-5)
    assert Categorical(3).mode(params).numpy().tolist() == [1, 1, 1]


@both
@pytest.mark.parametrize("count", [3, 12], ids=["column by column", "by a product"])
def test_categorical_draws_each_action_as_often_as_it_is_likely(maybe_compile, compiled, count):
    probability = np.arange(1.0, count + 1) / np.arange(1.0, count + 1).sum()
    params = tf.tile(tf.constant(np.log(probability)[np.newaxis], tf.float32), [40_000, 1])
    sample = maybe_compile(Categorical(count).sample, compiled)
    counts = np.bincount(sample(params, draws(40_000, 1)), minlength=count)
    # 12 degrees of freedom at most: a chi-square above 33 happens once in a thousand
    assert scipy.stats.chisquare(counts, 40_000 * probability).statistic < 33


@both
def test_draws_invert_the_cumulative_distribution_and_reach_the_ends(maybe_compile, compiled):
    # cumulated 0.2, 0.7, 1: half a step to either side of each
    points = tf.constant([[0.0], [0.19], [0.21], [0.69], [0.71], [NEARLY_ONE]])
    sample = maybe_compile(Categorical(3).sample, compiled)
    found = sample(tf.constant([LOG] * 6), points)
    assert found.dtype == tf.int32 and found.numpy().tolist() == [0, 0, 1, 1, 2, 2]


@both
@pytest.mark.parametrize("count", [5, 9, 51])
def test_a_masked_action_is_never_drawn_not_even_by_the_first_or_the_last_number(
    maybe_compile, compiled, count
):
    rng = np.random.default_rng(count)
    mask = rng.random((3_000, count)) < 0.4
    mask[:1_000, :2] = False  # leading
    mask[1_000:2_000, -2:] = False  # trailing
    mask[~mask.any(axis=1), 2] = True
    logits = rng.normal(size=(3_000, count)).astype(np.float32) * 5
    kind = Categorical(count)
    params = kind.mask(tf.constant(logits), tf.constant(mask))
    sample = maybe_compile(kind.sample, compiled)
    for u in (0.0, 2.0**-24, 0.5, NEARLY_ONE):
        noise = np.full((3_000, 1), u, np.float32)
        assert mask[np.arange(3_000), sample(params, noise).numpy()].all(), u
    assert mask[np.arange(3_000), kind.mode(params)].all()


def masked_weights(count, rows=4_000):
    """Weights in [0, 1] of which many are 0: the first, the last, or both in a third of the rows.

    The running sums are wrong in every way that rounding can make them wrong, and more: they fall
    in places, they rise where a weight is 0, and the last is not the largest.
    """
    rng = np.random.default_rng(count)
    weight = rng.random((rows, count)).astype(np.float32) * (rng.random((rows, count)) < 0.4)
    weight[: rows // 3, :2] = weight[rows // 4 : rows // 2, -2:] = 0.0
    weight[~weight.any(axis=1), count // 2] = 1.0
    sums = np.cumsum(weight, axis=1) + rng.normal(scale=0.3, size=weight.shape)
    sums[: rows // 5] += rng.normal(scale=30.0, size=(rows // 5, count))  # far off, some negative
    return weight, sums.astype(np.float32)


@both
@pytest.mark.parametrize("count", [17, 51])
def test_no_action_of_weight_0_is_chosen_whatever_the_running_sums(maybe_compile, compiled, count):
    weight, sums = masked_weights(count)
    assert (np.diff(sums, axis=1) < 0).any() and (sums[:, -1] < sums.max(axis=1)).any()
    choose = maybe_compile(choice, compiled)
    for u in (0.0, 0.3, NEARLY_ONE):
        uniform = np.full((len(weight), 1), u, np.float32)
        found = choose(weight, sums, uniform).numpy()
        assert (weight[np.arange(len(weight)), found] > 0).all(), u


def test_the_first_sum_above_the_share_is_chosen_and_else_the_last_allowed_action():
    weight = np.array([[0.0, 1.0, 0.0, 1.0, 0.0]] * 4, np.float32)
    # Share 0.5 of a total of 2 is 1. Row 0: exact; row 1: a sum rose at a weight of 0; row 2: it
    # fell back later; row 3: the total is the largest, and no action of positive weight is above.
    sums = np.array(
        [[0, 1, 1, 2, 2], [0, 1, 2, 2, 2], [0, 1.5, 1, 2, 2], [0, 0.5, 0.5, 1, 2]], np.float32
    )
    uniform = np.full((4, 1), 0.5, np.float32)
    assert choice(weight, sums, uniform).numpy().tolist() == [3, 3, 1, 3]


class Extremes:
    """A generator of uniform numbers whose draws are the smallest and the largest there are."""

    def random(self, shape, dtype):
        return np.random.default_rng(0).choice(np.array([0.0, NEARLY_ONE], dtype), shape)


@pytest.mark.parametrize("rng", [np.random.default_rng(1), Extremes()], ids=["usual", "extreme"])
def test_on_the_host_a_masked_action_is_never_drawn(rng):
    masks = np.random.default_rng(2).random((20_000, 5)) < 0.4
    masks[~masks.any(axis=1), 2] = True
    logits = np.random.default_rng(3).normal(size=masks.shape).astype(np.float32) * 5
    kind = Categorical(5)
    params = kind.mask(logits, masks).numpy()
    (noise,) = kind.host_noise(rng, (1, 20_000))
    assert np.isfinite(noise).all()
    assert masks[np.arange(20_000), kind.host_sample(params, noise)].all()


def test_on_the_host_actions_are_drawn_with_the_probabilities_of_the_softmax():
    probabilities = np.array([[0.1, 0.2, 0.7, 0.6, 0.4]])  # of three actions, and of two
    params = np.log(probabilities).astype(np.float32) + np.float32([[3, 3, 3, -9, -9]])
    kind, rows = MultiCategorical((3, 2)), 100_000
    noise = kind.host_noise(np.random.default_rng(4), (1, rows))
    action = kind.host_sample(params, noise[0])
    shares = [
        np.bincount(column, minlength=count) / rows
        for column, count in zip(action.T, (3, 2), strict=True)
    ]
    np.testing.assert_allclose(np.concatenate(shares), probabilities[0], atol=0.006)  # 4 deviations
    assert abs(np.corrcoef(action.T)[0, 1]) < 0.015
    one = Categorical(3).host_sample(params[:, :3], noise[0][:, :3])
    np.testing.assert_array_equal(one, action[:, 0])


@both
def test_a_masked_action_has_probability_0_gradient_0_and_no_entropy(maybe_compile, compiled):
    logits = tf.constant([[100.0, *LOG[:2], -300.0]])
    mask = tf.constant([[False, True, True, False]])
    kind = Categorical(4)

    def metrics(logits):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(logits)
            params = kind.mask(logits, mask)
            log_prob, entropy = kind.log_prob(params, tf.constant([1])), kind.entropy(params)
        both = tape.gradient(log_prob, logits), tape.gradient(entropy, logits)
        return tf.nn.softmax(params), log_prob, entropy, both

    probability, log_prob, entropy, gradients = maybe_compile(metrics, compiled)(logits)
    assert probability[0, 0] == 0 and probability[0, 3] == 0
    p, q = 2 / 7, 5 / 7  # 0.2 and 0.5 of what is left of them
    np.testing.assert_allclose(probability[0, 1:3], [p, q], rtol=1e-5)
    np.testing.assert_allclose(log_prob, [math.log(p)], rtol=1e-5)
    h = -p * math.log(p) - q * math.log(q)  # 0.598; over four actions it could be more
    np.testing.assert_allclose(entropy, [h], rtol=1e-5)
    # d log p / d logit = 1 - p for the action taken, -q for the other
    np.testing.assert_allclose(gradients[0][0, 1:3], [1 - p, -q], atol=1e-6)
    np.testing.assert_allclose(gradients[1][0, 1], -p * (math.log(p) + h), atol=1e-6)
    for gradient in gradients:
        assert gradient[0, 0] == 0 and gradient[0, 3] == 0


def test_one_allowed_action_is_certain():
    mask = tf.constant([[False, False, True]])
    params = Categorical(3).mask(tf.constant([LOG]), mask)
    assert float(Categorical(3).log_prob(params, tf.constant([2]))[0]) == 0
    assert float(Categorical(3).entropy(params)[0]) == 0


def test_kinds_are_independent_and_add_up():
    # kind 0: 1/4, 3/4; kind 1: 0.2, 0.5, 0.3
    params = tf.constant([np.concatenate([np.log([1.0, 3.0]), LOG])] * 2, tf.float32)
    log_prob = TWO_KINDS.log_prob(params, tf.constant([[0, 1], [1, 2]]))
    np.testing.assert_allclose(np.exp(log_prob), [0.25 * 0.5, 0.75 * 0.3], rtol=1e-5)
    first = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    second = float(Categorical(3).entropy(params[:1, 2:])[0])
    np.testing.assert_allclose(TWO_KINDS.entropy(params), [first + second] * 2, rtol=1e-5)
    assert TWO_KINDS.mode(params).numpy().tolist() == [[1, 1]] * 2
    assert (TWO_KINDS.num_params, TWO_KINDS.num_uniforms) == (5, 2)


@both
def test_every_pair_of_kinds_is_drawn_as_often_as_both_are_likely(maybe_compile, compiled):
    params = tf.tile(tf.constant([[*np.log([1.0, 3.0]), *LOG]], tf.float32), [40_000, 1])
    drawn = maybe_compile(TWO_KINDS.sample, compiled)(params, draws(40_000, 2)).numpy()
    counts = np.bincount(drawn[:, 0] * 3 + drawn[:, 1], minlength=6)
    expected = 40_000 * np.outer([0.25, 0.75], [0.2, 0.5, 0.3]).ravel()
    assert scipy.stats.chisquare(counts, expected).statistic < 20.5  # once in a thousand


def test_the_masks_of_the_kinds_lie_one_after_the_other():
    mask = tf.constant([[False, True, True, False, True]])  # kind 0: only 1; kind 1: not 1
    params = TWO_KINDS.mask(tf.constant([[9.0, 0.0, *LOG]]), mask)
    log_prob = TWO_KINDS.log_prob(params, tf.constant([[1, 0]]))
    np.testing.assert_allclose(np.exp(log_prob), [0.2 / 0.5], rtol=1e-5)
    expected = -0.4 * math.log(0.4) - 0.6 * math.log(0.6)  # of 0.2 and 0.3
    np.testing.assert_allclose(TWO_KINDS.entropy(params), [expected], rtol=1e-5)
    for u in (0.0, 0.39):
        assert TWO_KINDS.sample(params, tf.constant([[u, u]])).numpy().tolist() == [[1, 0]]
    for u in (0.41, NEARLY_ONE):
        assert TWO_KINDS.sample(params, tf.constant([[u, u]])).numpy().tolist() == [[1, 2]]


def test_gaussian_log_prob_and_entropy_are_scipys():
    kind = Gaussian(**BOX)
    action = np.array([[-1.0, 2.5]], np.float32)
    normal = scipy.stats.norm([0.5, -0.3], [0.7, 1.5])
    np.testing.assert_allclose(
        kind.log_prob(tf.constant(BOX_PARAMS), action)[0], normal.logpdf(action).sum(), rtol=1e-5
    )
    np.testing.assert_allclose(kind.entropy(BOX_PARAMS)[0], normal.entropy().sum(), rtol=1e-5)
    np.testing.assert_allclose(kind.mode(tf.constant(BOX_PARAMS)), [[0.5, -0.3]])


def test_gaussian_actions_reach_the_environment_clipped_and_are_evaluated_unclipped():
    kind = Gaussian(**BOX)
    raw = tf.constant([[-5.0, 9.0], [1.5, 1.25]])
    np.testing.assert_allclose(kind.to_env(raw), [[-2.0, 4.0], [1.5, 1.25]])
    params = tf.constant(np.tile(BOX_PARAMS, (2, 1)))
    assert kind.log_prob(params, raw)[0] < kind.log_prob(params, kind.to_env(raw))[0] - 10
    unbounded = Gaussian((-math.inf, 0.0), (math.inf, math.inf))
    np.testing.assert_allclose(unbounded.to_env(raw), [[-5.0, 9.0], [1.5, 1.25]])


@both
def test_standard_normal_numbers_are_finite_symmetric_and_normal(maybe_compile, compiled):
    normal = maybe_compile(standard_normal, compiled)
    ends = normal(tf.constant([0.0, 2.0**-24, NEARLY_ONE - 2.0**-24, NEARLY_ONE])).numpy()
    # probability 2**-25 beyond the lowest; adding half a step to the last draw would round it to 1
    np.testing.assert_allclose(ends[:2], scipy.stats.norm.ppf([2.0**-25, 3 * 2.0**-25]), rtol=1e-3)
    assert 5.1 < ends[2] < ends[3] < 5.5
    many = normal(draws(100_000, 1))[:, 0].numpy()
    assert scipy.stats.kstest(many, "norm").statistic < 1.95 / math.sqrt(100_000)
    assert np.corrcoef(many[:-1], many[1:])[0, 1] < 0.013


@both
@pytest.mark.parametrize("make", [Gaussian, ScaledGaussian, SquashedGaussian])
def test_box_samples_have_the_means_and_deviations_of_the_params(maybe_compile, compiled, make):
    kind, params = make(**BOX), tf.tile(tf.constant(BOX_PARAMS), [40_000, 1])
    drawn = maybe_compile(lambda params, draws: kind.sample(params, kind.noise(draws)), compiled)(
        params, draws(40_000, 2)
    ).numpy()
    for column, (mean, std) in enumerate([(0.5, 0.7), (-0.3, 1.5)]):
        found = scipy.stats.kstest(drawn[:, column], scipy.stats.norm(mean, std).cdf).statistic
        assert found < 1.95 / math.sqrt(40_000)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.02


@both
@pytest.mark.parametrize("make", [Gaussian, SquashedGaussian])
def test_a_deviation_out_of_its_range_is_led_back_and_never_further_out(
    maybe_compile, compiled, make
):
    kind = make((-1.0,), (1.0,))
    log_std = [3.0, 3.0, -21.0, 1.0, 1.0]
    params = tf.constant([[0.0, each] for each in log_std])
    action = tf.constant([[0.5], [50.0], [0.5], [0.5], [50.0]])

    def slope(params):
        with tf.GradientTape() as tape:
            tape.watch(params)
            loss = -kind.log_prob(params, action)
        return tape.gradient(loss, params)[:, 1]

    found = maybe_compile(slope, compiled)(params)
    # 1 - z**2 with z = action / std: the std is e**2 in rows 0 and 1, where row 1 would widen it,
    # e**-20 in row 2, and e in the rows within the range, which go where they like.
    within = [1 - (each / math.e) ** 2 for each in (0.5, 50.0)]
    expected = [1 - (0.5 / math.e**2) ** 2, 0.0, -((0.5 * math.e**20) ** 2), *within]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_scaled_actions_fill_the_bounds_and_stop_at_them():
    kind = ScaledGaussian(low=(-2.0, 100.0, 0.0), high=(4.0, 200.0, 1e-3))
    raw = np.array([[-1.0, -1.0, -1.0], [0.0, 0.5, 0.5], [3.0, -7.0, 1.0]], np.float32)
    # -2 to 4 has its centre at 1 and reaches 3 from there; 100 to 200: 150 and 50
    expected = [[-2.0, 100.0, 0.0], [1.0, 175.0, 7.5e-4], [4.0, 100.0, 1e-3]]
    np.testing.assert_allclose(kind.to_env(raw), expected, rtol=1e-6)
    np.testing.assert_allclose(kind.host_to_env(raw), expected, rtol=1e-6)
    np.testing.assert_allclose(kind.host_from_env(kind.host_to_env(raw[:2])), raw[:2], atol=1e-6)


def test_scaled_density_and_entropy_are_those_of_what_the_environment_gets():
    kind = ScaledGaussian(low=(-2.0, 100.0), high=(4.0, 200.0))  # centres 1 and 150, 3 and 50 wide
    params = np.array([[0.5, -0.3, math.log(0.7), math.log(1.5)]], np.float32)
    each = scipy.stats.norm([1 + 3 * 0.5, 150 - 50 * 0.3], [3 * 0.7, 50 * 1.5])
    raw = np.array([[0.25, 1.5]], np.float32)
    scaled = [1 + 3 * 0.25, 150 + 50 * 1.5]  # the second one beyond its bound, before clipping
    np.testing.assert_allclose(kind.log_prob(params, raw), [each.logpdf(scaled).sum()], rtol=1e-5)
    np.testing.assert_allclose(kind.entropy(params), [each.entropy().sum()], rtol=1e-5)


@pytest.mark.parametrize("far", [math.inf, 3.4e38, 1e7])
def test_what_has_no_bound_is_not_scaled(far):
    kind = ScaledGaussian(low=(-far, 0.0, -3.0), high=(far, far, 3.0))
    raw = np.array([[2.5, -2.0, 0.5]], np.float32)
    np.testing.assert_array_equal(kind.to_env(raw), [[2.5, 0.0, 1.5]])


@pytest.mark.parametrize("reach", [1e-3, 0.3, 0.1, 1e5])
def test_scaled_actions_are_never_rounded_to_beyond_a_bound(reach):
    low, high = np.float32([-0.7 * reach]), np.float32([reach])
    kind = ScaledGaussian(low, high)
    reached = kind.to_env(np.float32([[-1.0], [1.0]])).numpy()
    assert low <= reached[0] and reached[1] <= high


def test_squashed_actions_lie_within_the_bounds_and_fill_them():
    kind = SquashedGaussian(**BOX)
    raw = tf.constant([[-50.0, 50.0], [0.0, 0.0], [math.atanh(0.5), math.atanh(-0.5)]])
    # tanh 0.5 is three quarters of the way up: -2 + 0.75 * 4 = 1; -0.5 a quarter: 1 + 0.25 * 3
    np.testing.assert_allclose(kind.to_env(raw), [[-2.0, 4.0], [0.0, 2.5], [1.0, 1.75]], rtol=1e-6)


@pytest.mark.parametrize("mean, std", [(0.5, 0.7), (-0.3, 1.5), (2.0, 0.3)])
def test_squashed_density_of_what_the_environment_gets_integrates_to_one(mean, std):
    kind = SquashedGaussian((-1.0,), (5.0,))
    params = np.array([[mean, math.log(std)]], np.float32)
    # Evenly spaced in what the environment gets; its center is 2 and half its width 3.
    edges = np.linspace(-1.0, 5.0, 400_001)
    reached = 0.5 * (edges[:-1] + edges[1:])
    raw = np.arctanh((reached - 2.0) / 3.0).astype(np.float32)[:, np.newaxis]
    density = np.exp(kind.log_prob(np.tile(params, (len(raw), 1)), raw))
    assert abs((density * 6.0 / 400_000).sum() - 1.0) < 2e-3
    # The share below 3.5, where tanh is 0.5, is the normal's below atanh(0.5).
    below = (density * 6.0 / 400_000)[reached < 3.5].sum()
    assert abs(below - scipy.stats.norm(mean, std).cdf(math.atanh(0.5))) < 2e-3


@pytest.mark.parametrize("mean, std", [(0.0, 1.0), (0.5, 0.7), (-0.3, 1.5), (2.0, 0.3), (6.0, 0.1)])
def test_squashed_entropy_is_minus_the_mean_log_density(mean, std):
    kind = SquashedGaussian((-1.0,), (5.0,))
    params = tf.constant([[mean, math.log(std)]])

    def integrand(x):
        log_slope = math.log(3.0) + 2 * (math.log(2.0) - x - np.logaddexp(0.0, -2.0 * x))
        normal = scipy.stats.norm(mean, std)
        return -normal.pdf(x) * (normal.logpdf(x) - log_slope)

    expected, _ = scipy.integrate.quad(integrand, mean - 12 * std, mean + 12 * std, limit=400)
    np.testing.assert_allclose(kind.entropy(params), [expected], atol=2e-3)
    raw = kind.sample(tf.tile(params, [100_000, 1]), kind.noise(draws(100_000, 1)))
    found = -tf.reduce_mean(kind.log_prob(params, raw))
    np.testing.assert_allclose(kind.entropy(params), [found], atol=0.03)


def test_squashed_numbers_add_up_and_far_ones_stay_finite():
    kind, one = SquashedGaussian(**BOX), SquashedGaussian((1.0,), (4.0,))
    other = SquashedGaussian((-2.0,), (2.0,))
    raw = tf.constant([[1.0, -2.0]])
    params = tf.constant(BOX_PARAMS)
    parts = [
        other.log_prob(tf.gather(params, [0, 2], axis=1), raw[:, :1]),
        one.log_prob(tf.gather(params, [1, 3], axis=1), raw[:, 1:]),
    ]
    np.testing.assert_allclose(kind.log_prob(params, raw), sum(parts), rtol=1e-6)
    far = tf.Variable([[40.0, -40.0]])  # 1 - tanh(40)**2 is 0 in float32
    with tf.GradientTape() as tape:
        log_prob = kind.log_prob(params, far)
    assert np.isfinite(log_prob).all() and np.isfinite(tape.gradient(log_prob, far)).all()


def test_numbers_have_no_mask():
    for kind in (Gaussian(**BOX), ScaledGaussian(**BOX), SquashedGaussian(**BOX)):
        with pytest.raises(ValueError, match="remove the mask"):
            kind.mask(tf.zeros([1, 4]), tf.ones([1, 2], tf.bool))


KINDS = {
    "categorical": (Categorical(3), LOG[np.newaxis]),
    "many": (Categorical(12), np.linspace(-3, 3, 12, dtype=np.float32)[np.newaxis]),
    "kinds": (TWO_KINDS, np.array([[0.0, 1.0, *LOG]], np.float32)),
    "gaussian": (Gaussian(**BOX), BOX_PARAMS),
    "scaled": (ScaledGaussian(**BOX), BOX_PARAMS),
    "squashed": (SquashedGaussian(**BOX), BOX_PARAMS),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_numpy_twins_agree(name):
    kind, params = KINDS[name]
    params = np.repeat(params, 500, axis=0)
    params += np.random.default_rng(1).normal(size=params.shape).astype(np.float32)
    noise = kind.host_noise(np.random.default_rng(0), (2, 500))
    assert noise.shape[:2] == (2, 500) and noise.dtype == np.float32
    action = kind.host_sample(params, noise[1])
    if kind.num_scales:  # choices are drawn in another way on the host
        np.testing.assert_allclose(action, kind.sample(params, noise[1]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        kind.host_to_env(action), kind.to_env(tf.constant(action)), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(kind.host_mode(params), kind.mode(params), rtol=1e-6)


def test_noise_is_gumbel_for_choices_and_normal_for_numbers():
    rng = np.random.default_rng(3)
    gumbel = Categorical(4).host_noise(rng, (50, 100))
    assert abs(gumbel.mean() - 0.5772) < 0.03 and abs(gumbel.std() - math.pi / 6**0.5) < 0.03
    normal = Gaussian(**BOX).host_noise(rng, (5_000, 4))
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1.0) < 0.02


@both
def test_running_sums_of_many_choices_are_those_of_numpy(maybe_compile, compiled):
    weight = np.random.default_rng(0).random((3, 700)).astype(np.float32)
    found = maybe_compile(running_sums, compiled)(tf.constant(weight))
    np.testing.assert_allclose(found, weight.astype(np.float64).cumsum(axis=1), rtol=1e-5)
    one = tf.constant(np.where(np.arange(700) == 613, 0.0, -1e9), tf.float32)  # action of all
    points = tf.constant([[0.0], [0.5], [NEARLY_ONE]])
    sample = maybe_compile(Categorical(700).sample, compiled)
    assert sample(tf.stack([one] * 3), points).numpy().tolist() == [613] * 3
