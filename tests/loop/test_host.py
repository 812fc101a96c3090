"""The host loop, with an algorithm that replays and one that learns from each rollout."""

import functools
import subprocess
import sys
import threading
from concurrent.futures import Future

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from kytolly.agent.make_agent import make_agent
from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.gym.adapter import make_host_groups
from kytolly.loop.host import HostLoop
from tests.environment.masked import SOURCES, Masked
from tests.environment.predictable import Predictable
from tests.helpers.cases import rest_learning
from tests.loop.configs import assert_same_state, small_config
from tests.loop.rollouts import assert_consecutive, assert_predictable, join, watch

GAMMA = 0.9
both = pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
learning = pytest.mark.learning
ACTING = {"dqn": {"acting_interval_env_steps": 1}, "ppo": {}}  # an iteration at a time


def make_loop(algorithm="dqn", env=Predictable, num_envs=2, model=None, groups=None, **settings):
    masks, asynchronous = algorithm == "ppo", settings.get("async_envs", False)
    number = groups or 1
    groups = make_host_groups(env, num_envs, number, seed=0, masks=masks, async_envs=asynchronous)
    settings = {**ACTING[algorithm], **settings}
    cfg = small_config(
        algorithm, **{**settings, "num_envs": sum(group.num_envs for group in groups)}
    )
    return HostLoop(make_agent(cfg, groups[0].spec, model), groups)


def watched_run(algorithm, env, env_steps, num_envs=2, **settings):
    loop = make_loop(algorithm, env, num_envs, xla=False, **settings)
    seen = watch(loop.agent)
    metrics = loop.run(env_steps)
    loop.close()
    rollout, log_prob = join(seen)
    assert int(loop.agent.policy.updates) == int(metrics.updates)
    return metrics, rollout, log_prob


def replayed(loop):
    """The columns of a replay buffer that never overflowed, [T, E, ...]."""
    memory = loop.agent.memory
    size, num_envs = int(memory.size), loop.agent.cfg.num_envs
    columns = [column.numpy()[:size] for column in (*memory.columns[:5], memory.last)]
    return [x.reshape(size // num_envs, num_envs, *x.shape[1:]) for x in columns]


@both
def test_rollouts_are_true_transitions_and_time_limits_keep_their_discount(algorithm):
    env_steps = {"dqn": 104, "ppo": 96}[algorithm]
    metrics, rollout, _ = watched_run(algorithm, Predictable, env_steps)
    # watching, the program is traced once with nothing to learn from: it is not run
    assert rollout.obs.shape == (env_steps // 2, 2, 3)
    assert_predictable(rollout, GAMMA)
    assert_consecutive(rollout)
    # DQN: 13 iterations of 8 env steps, learning from the fifth on, 2 updates each. PPO: 6 of 16,
    # 2 epochs of 2 minibatches.
    assert int(metrics.updates) == {"dqn": 18, "ppo": 24}[algorithm]
    assert metrics.episodes == rollout.last.sum()
    # lengths of the episodes that ended, and their returns
    assert metrics.episode_length == (rollout.obs[..., 2] + 1)[rollout.last].sum()
    whole = sum(
        rollout.reward[: np.flatnonzero(rollout.last[:, e])[-1] + 1, e].sum() for e in range(2)
    )
    assert metrics.episode_return == whole


def vector_of_three(mode):
    return SyncVectorEnv([Predictable] * 3, autoreset_mode=mode)


def stepped_by_hand(env_id, actions):
    """Rows of one `Predictable` that takes the given actions, without any adapter."""
    env, rows = Predictable(), []
    obs, _ = env.reset(seed=int(env_id))
    for action in actions:
        next_obs, reward, terminated, truncated, _ = env.step(action)
        discount = 0.0 if terminated else GAMMA
        rows.append((obs, action, reward, discount, next_obs, terminated or truncated))
        obs = env.reset()[0] if terminated or truncated else next_obs
    return [np.array(column, np.float32) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize(
    "acting_interval, mode",
    [
        pytest.param(1, AutoresetMode.NEXT_STEP, marks=learning),
        (48, AutoresetMode.NEXT_STEP),
        (48, AutoresetMode.SAME_STEP),
        pytest.param(48, AutoresetMode.DISABLED, marks=learning),
        pytest.param(1, AutoresetMode.SAME_STEP, marks=learning),
        pytest.param(1, AutoresetMode.DISABLED, marks=learning),
    ],
)
def test_replayed_rows_of_a_vector_environment_are_all_steps_in_the_order_of_time(
    acting_interval, mode
):
    """No dummy step, nothing lost, each environment in its own column, whatever the mode."""
    loop = make_loop(
        env=lambda: vector_of_three(mode),
        num_envs=None,
        n_step=3,
        cut_at_exploration=False,
        xla=False,
        acting_interval_env_steps=acting_interval,
        train_interval_env_steps=24,
    )
    metrics = [loop.run(env_steps) for env_steps in (48, 144, 96)]
    loop.close()
    columns = replayed(loop)
    assert columns[0].shape == (96, 3, 3) and columns[5].sum() > 80
    for env in range(3):
        expected = stepped_by_hand(columns[0][0, env, 0], columns[1][:, env])
        for found, wanted in zip(columns, expected, strict=True):
            np.testing.assert_allclose(found[:, env], wanted, rtol=1e-6)
    # The metrics count episodes as they end; rows that are kept for later have been played too.
    assert sum(int(m.episodes) for m in metrics) >= columns[5].sum()
    # Rows of three steps, from the one-step rows above.
    starts = np.arange(0, 90 * 3)
    reward, discount, last = (columns[n].reshape(-1) for n in (2, 3, 5))
    sums, weights, ends = np.zeros(270), np.ones(270), starts.copy()
    alive = np.ones(270, bool)
    for step in range(3):
        row = starts + 3 * step
        sums[alive] += (weights * reward[row])[alive]
        weights[alive] *= discount[row][alive]
        ends[alive] = row[alive]
        alive &= ~last[row].astype(bool)
    found = loop.agent.memory.rows(tf.constant(starts, tf.int32))
    np.testing.assert_allclose(found.reward, sums, rtol=1e-5)
    np.testing.assert_allclose(found.discount, weights, rtol=1e-5)
    np.testing.assert_array_equal(found.next_obs, columns[4].reshape(-1, 3)[ends])


@pytest.mark.parametrize("mode", rest_learning([*AutoresetMode], [AutoresetMode.NEXT_STEP]))
def test_rollouts_of_a_vector_environment_have_no_dummy_steps_and_lose_the_surplus(mode):
    _, rollout, _ = watched_run("ppo", lambda: vector_of_three(mode), 192, None)
    assert rollout.obs.shape == (64, 3, 3)
    _, episode, step = np.moveaxis(rollout.obs, -1, 0)
    np.testing.assert_array_equal(rollout.reward, 100 * episode + 10 * step + rollout.action)
    np.testing.assert_array_equal(rollout.next_obs, rollout.obs + [0, 0, 1])
    gaps = 0
    for start in range(0, 64, 8):
        part = type(rollout)(*(column[start : start + 8] for column in rollout[:6]))
        assert_consecutive(part)
        if start:
            follows = np.where(
                rollout.last[start - 1],
                (rollout.obs[start, :, 1] == rollout.obs[start - 1, :, 1] + 1),
                (rollout.obs[start] == rollout.next_obs[start - 1]).all(axis=-1),
            )
            assert follows.any()  # the slowest environment has no surplus
            gaps += (~follows).sum()
    assert (gaps > 0) == (mode is AutoresetMode.NEXT_STEP)
    time_of = 10 * episode + step  # episodes are shorter than 10 steps
    assert (np.diff(time_of, axis=0) > 0).all()  # nothing twice


def test_an_environment_that_runs_ahead_loses_whole_episodes_and_no_rows_pile_up():
    lengths = (30, 2)  # the second spends every third step on a reset
    makers = [functools.partial(Predictable, length=length) for length in lengths]
    vector = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP)
    loop = make_loop("dqn", vector, None, xla=False)
    loop.run(0)
    (collector,) = loop.collectors
    before = None
    for _ in range(60):
        collector.begin_rollout(loop._state)
        collector.take_steps()
        rollout = collector.rollout()
        assert_consecutive(rollout)
        if before is not None:
            follows = (rollout.obs[0] == before.next_obs[-1]).all(axis=-1)
            np.testing.assert_array_equal(follows, ~before.last[-1])
        before = rollout
        assert len(collector._rows) <= collector.steps + 2 * max(lengths)
    loop.close()


def test_environments_in_processes_step_in_two_groups():
    loop = make_loop("ppo", num_envs=4, groups=2, async_envs=True, xla=False)
    assert [group.num_envs for group in loop.groups] == [2, 2]
    seen = watch(loop.agent)
    metrics = loop.run(64)
    loop.close()
    rollout, _ = join(seen)
    assert rollout.obs.shape == (16, 4, 3) and int(metrics.updates) == 8
    assert_predictable(rollout, GAMMA)
    assert_consecutive(rollout)
    assert metrics.episodes == rollout.last.sum()
    assert len({tuple(column) for column in rollout.action.T}) == 4  # no two act alike


@pytest.mark.parametrize("source", rest_learning(SOURCES, ["info"]))
def test_no_forbidden_action_is_ever_taken(source):
    _, rollout, log_prob = watched_run("ppo", functools.partial(Masked, source), 120, 3)
    mask = rollout.obs["action_mask"]
    assert mask.shape == (40, 3, 4) and not mask.all()
    assert np.take_along_axis(mask, rollout.action[..., None], axis=-1).all()
    assert np.isfinite(log_prob).all()
    place = rollout.obs["place" if source == "entry" else "observation"]
    np.testing.assert_array_equal(mask.argmin(axis=-1), place.sum(axis=-1) % 4)


class Numbers(gymnasium.Env):
    """Two numbers are wanted, and shown again: what the environment got is its observation."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 3], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.array(action, np.float32), float(action[0]), False, False, {}


@pytest.mark.parametrize("bounds", ["scale", "clip", "squash"])
def test_continuous_actions_are_remembered_as_drawn_and_act_within_their_bounds(bounds):
    _, rollout, log_prob = watched_run(
        "ppo", Numbers, 120, 3, action_bounds=bounds, log_std_init=0.7, num_minibatches=3
    )
    if bounds == "clip":
        taken = np.clip(rollout.action, [-1, 0], [1, 3])
    elif bounds == "scale":
        taken = np.clip([0.0, 1.5] + rollout.action * [1.0, 1.5], [-1, 0], [1, 3])
    else:
        taken = np.array([0.0, 1.5]) + np.tanh(rollout.action) * np.array([1.0, 1.5])
    np.testing.assert_allclose(rollout.next_obs, taken, atol=1e-5)
    assert (np.abs(rollout.action) > 3).any()
    assert rollout.action.std() > 1.5  # exp(0.7) is 2
    assert np.isfinite(log_prob).all()


def test_correlated_noise_follows_itself_in_time_and_not_across_environments():
    _, rollout, _ = watched_run(
        "ppo", Numbers, 2_000, 4, noise_correlation=0.9, rollout_steps=100, learning_rate=1e-6
    )
    noise = rollout.action[:, :, 0]
    assert np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1] > 0.75
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < 0.5


@pytest.mark.parametrize(
    "algorithm, xla",
    [("dqn", True), *(pytest.param("ppo", xla, marks=learning) for xla in (False, True))],
)
def test_one_seed_gives_one_run_bit_for_bit_however_it_is_cut_into_calls(algorithm, xla):
    """Another seed begins with other weights."""
    loops = []
    for calls in ([96], [16, 48, 32]):
        loop = make_loop(algorithm, "CartPole-v1", xla=xla)
        for env_steps in calls:
            loop.run(env_steps)
        loop.close()
        loops.append(loop)
    assert_same_state(*loops)
    assert loops[0].xla == xla and int(loops[0].agent.policy.updates) > 0
    other = make_loop(algorithm, "CartPole-v1", seed=1)
    start = make_loop(algorithm, "CartPole-v1").agent.policy.weights.vector
    assert not np.array_equal(start, other.agent.policy.weights.vector)
    assert not np.array_equal(start, loops[0].agent.policy.weights.vector)


def test_replay_acts_with_the_weights_from_before_the_iteration_that_is_learned_from(monkeypatch):
    options = {"warmup_env_steps": 8, "n_step": 1, "updates_per_interval": 1}
    loop = make_loop(**options, learning_rate=0.01, xla=False)
    loop.run(0)
    used, collect = [], loop._collect

    def remember():
        used.append(loop.actor.numpy_network.weights[0].copy())
        return collect()

    monkeypatch.setattr(loop, "_collect", remember)
    weights = loop.agent.policy.weights
    learned = [weights.split(weights.vector)[0].numpy()]
    for _ in range(4):
        loop.run(8)
        learned.append(weights.split(weights.vector)[0].numpy())
    loop.close()
    # iteration k acts with what was learned from the iterations up to k - 2
    for position, found in enumerate(used):
        np.testing.assert_array_equal(found, learned[max(0, position - 1)])
    assert len({array.tobytes() for array in learned}) == 5


def test_a_rollout_is_acted_by_the_newest_weights(monkeypatch):
    loop = make_loop("ppo", learning_rate=0.01, xla=False)
    loop.run(0)
    used, collect = [], loop._collect

    def remember():
        weights = loop.agent.policy.weights
        newest = weights.split(weights.vector)[4].numpy()  # the head: no observation saturates it
        used.append((loop.actor.numpy_network.weights[4].copy(), newest))
        return collect()

    monkeypatch.setattr(loop, "_collect", remember)
    loop.run(48)
    loop.close()
    for acting, newest in used:
        np.testing.assert_array_equal(acting, newest)
    assert len({newest.tobytes() for _, newest in used}) == 3


class LateCallbacks(Future):
    """A future whose callbacks come long after its result: when somebody calls them."""

    call_back = Future._invoke_callbacks

    def _invoke_callbacks(self):
        pass


class LateThread:
    """Runs one function after another, and tells that one is done when the next begins."""

    previous: LateCallbacks | None = None

    def submit(self, function):
        if self.previous is not None:
            self.previous.call_back()
        future = self.previous = LateCallbacks()
        threading.Thread(target=lambda: future.set_result(function()), daemon=True).start()
        return future

    def shutdown(self, wait):
        pass


def test_the_end_of_one_call_cannot_wake_the_next():
    """A machine under load may run the callback of a learner when the next call has begun."""
    loop = make_loop(xla=False)
    loop.run(8)
    loop.overlap._thread = LateThread()
    calls = threading.Thread(target=lambda: [loop.run(8) for _ in range(4)], daemon=True)
    calls.start()
    calls.join(timeout=20)
    assert not calls.is_alive() and int(loop.agent.env_steps) == 40


def make_group_normalized(spec):
    layers = [keras.layers.GroupNormalization(1), keras.layers.Dense(spec.num_actions)]
    return keras.Sequential(layers)


def test_a_network_without_a_numpy_form_trains_in_turns():
    loop = make_loop(model=make_group_normalized, xla=False)
    assert loop.actor.numpy_network is None and loop.overlap is None
    metrics = loop.run(104)
    loop.close()
    assert int(metrics.updates) == 18


def test_a_network_without_a_numpy_form_acts_with_the_weights_that_learn():
    loop = make_loop(model=make_group_normalized, xla=False, learning_rate=0.1)
    loop.run(104)
    obs = np.ones((3, 3), np.float32)
    acting = loop.actor.params(obs)
    assert np.abs(acting - loop.agent.q_values(obs)).max() > 1e-3  # not published yet
    loop.agent.policy.publish()
    loop.close()
    np.testing.assert_allclose(acting, loop.agent.q_values(obs), rtol=1e-5)


@pytest.mark.learning
def test_a_network_without_a_numpy_form_trains_where_there_is_one_thread():
    """A learner that waits for rows must not hold the thread that TensorFlow acts on."""
    program = (
        "import tensorflow as tf\n"
        "tf.config.threading.set_inter_op_parallelism_threads(1)\n"
        "from tests.loop.test_host import make_loop, make_group_normalized\n"
        "loop = make_loop(model=make_group_normalized, xla=False)\n"
        "print(int(loop.run(104).updates))\n"
        "loop.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "18", done.stderr


class Broken(Predictable):
    def step(self, action):
        if self.episode == 5:
            raise ArithmeticError("the robot fell over")
        return super().step(action)


@pytest.mark.parametrize("algorithm", ["dqn", pytest.param("ppo", marks=learning)])
def test_an_environment_that_fails_is_reported_and_ends_the_learner(algorithm):
    loop = make_loop(algorithm, Broken, 1, xla=False)
    with pytest.raises(EnvironmentFault, match="the robot fell over"):
        loop.run(1_000)
    loop.close()
    assert int(loop.agent.env_steps) == 8  # the iteration before the fault is kept


@both
@pytest.mark.parametrize("num_envs", [pytest.param(1, marks=learning), 64])
def test_any_number_of_environments_runs(algorithm, num_envs):
    own = {"dqn": {"train_interval_env_steps": 8 * num_envs, "replay_capacity": 10_000}, "ppo": {}}
    metrics, rollout, _ = watched_run(
        algorithm, Predictable, 16 * num_envs, num_envs, **own[algorithm]
    )
    assert rollout.obs.shape == (16, num_envs, 3)
    assert int(metrics.updates) == {"dqn": 0 if num_envs == 1 else 4, "ppo": 8}[algorithm]
    assert_consecutive(rollout)


@pytest.mark.parametrize("algorithm", ["dqn", pytest.param("ppo", marks=learning)])
def test_images_train(algorithm):
    class Image(Predictable):
        observation_space = spaces.Box(0, 255, (12, 12, 1), np.uint8)

        def observed(self):
            return np.full((12, 12, 1), self.steps, np.uint8)

    metrics, rollout, _ = watched_run(algorithm, Image, 48)
    assert int(metrics.updates) == {"dqn": 4, "ppo": 12}[algorithm]
    assert rollout.obs.dtype == np.uint8 and rollout.obs.max() == 3


def test_discrete_observations_are_one_hot():
    _, rollout, _ = watched_run("dqn", "FrozenLake-v1", 48, 1)
    assert rollout.obs.shape == (48, 1, 16) and (rollout.obs.sum(axis=-1) == 1).all()


def test_statistics_are_those_of_all_rollouts_and_the_numpy_twin_acts_with_them():
    loop = make_loop("ppo", "CartPole-v1", xla=False, normalize_observations=True)
    seen = watch(loop.agent)
    loop.run(96)
    loop.close()
    loop.agent.policy.weights.publish()  # the newest, which act, and not their average
    rollout, _ = join(seen)
    network, rows = loop.agent.policy.network, rollout.obs.reshape(-1, 4)
    mean, variance, count = network.non_trainable_weights
    np.testing.assert_allclose(mean, rows.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(variance, rows.var(axis=0), rtol=1e-4)
    assert float(count) == 96
    np.testing.assert_allclose(loop.actor.params(rows[:7]), network(rows[:7])[0], atol=1e-5)


def test_a_resumed_run_joins_no_row_to_the_episode_that_its_end_cut_off():
    """Without a mark, windows of 3 steps would go on in the new episodes: see `test_rows.py`."""
    loop = make_loop(n_step=3, xla=False)
    loop.run(120)
    loop.close()
    groups = make_host_groups(Predictable, 2, 1, seed=0)
    resumed = HostLoop(loop.agent, groups)
    resumed.run(96)
    resumed.close()
    count = 120 + 96 - 2 * 2
    rows = loop.agent.memory.rows(tf.range(count))
    (_, episode, step), (_, end_episode, end_step) = rows.obs.numpy().T, rows.next_obs.numpy().T
    np.testing.assert_array_equal(episode, end_episode)
    assert set(end_step - step) == {1, 2, 3}
