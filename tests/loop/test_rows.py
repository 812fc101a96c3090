"""Every row that replay can draw, against environments that tell all that happened in them."""

import dataclasses
import functools
import json
import multiprocessing
from contextlib import nullcontext

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from kytolly.agent.make_agent import make_agent
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.environment.gym.adapter import make_host_groups
from kytolly.loop import host
from tests.environment.predictable import ENDS, Recorded
from tests.helpers.cases import rest_learning
from tests.loop.configs import small_config

GAMMA, N_STEPS = 0.9, (1, 3, 5)
LARGE, SMALL = 1_000, 40  # steps of each environment in a buffer: all of them, or the latest
LIMIT = 3  # steps of an episode, where the environment is made from its id
MODES = {mode.name: mode for mode in AutoresetMode}
FORMS = ["function", "id", *(f"Sync {mode}" for mode in MODES)]
IN_PROCESSES = ["function async", "id async", *(f"Async {mode}" for mode in MODES)]
multiprocessing.set_forkserver_preload(["gymnasium.vector"])  # not once in every process

make_recorded = functools.partial(Recorded, one_array=True)


@pytest.fixture(autouse=True)
def registered():
    gymnasium.register("Recorded-v0", make_recorded, max_episode_steps=LIMIT)
    yield
    del gymnasium.registry["Recorded-v0"]


def make_vector(kind, mode, count):
    # Gymnasium itself loses the last observation of an array that is overwritten in SAME_STEP.
    make = Recorded if mode is AutoresetMode.SAME_STEP else make_recorded
    options = {"context": "forkserver"} if kind is AsyncVectorEnv else {}
    return kind([make] * count, autoreset_mode=mode, **options)


def make_groups(form, count):
    """The environments of a run, from one of the things that a user may give."""
    kind, _, mode = form.partition(" ")
    if mode in MODES:
        kind = {"Sync": SyncVectorEnv, "Async": AsyncVectorEnv}[kind]
        return make_host_groups(functools.partial(make_vector, kind, MODES[mode], count), groups=1)
    env = {"function": make_recorded, "id": "Recorded-v0"}[kind]
    return make_host_groups(env, count, 1, async_envs=mode == "async")


class Buffers:
    """Buffers with every n_step, that overflow or not, as one memory: all get the same rows."""

    metric_names, allows_lag, num_random_words = (), True, 1

    def __init__(self, cfg, env_spec):
        self.all = {}
        for n_step in N_STEPS:
            for capacity in (LARGE * cfg.num_envs, SMALL * cfg.num_envs + cfg.num_envs // 2):
                own = dataclasses.replace(cfg, n_step=n_step, replay_capacity=capacity)
                self.all[n_step, capacity] = ReplayBuffer.for_config(own, env_spec)

    def clear(self):
        """Forget everything: what is drawn without having been written is NaN."""
        for buffer in self.all.values():
            for column in buffer.columns[:5]:
                nothing = np.nan if column.dtype.is_floating else -1
                column.assign(tf.fill(column.shape, tf.constant(nothing, column.dtype)))
            buffer.last.assign(tf.zeros_like(buffer.last))
            buffer.added.assign(0)

    def open(self, rollout, policy):
        for buffer in self.all.values():
            buffer.open(rollout, policy)
        return (), tf.zeros([0])

    def end_episodes(self, envs=None):
        for buffer in self.all.values():
            buffer.end_episodes(envs)


@functools.cache
def make_shared(num_envs):
    """An agent that acts at random, and the programs that put rollouts in its memory."""
    cfg = small_config(
        num_envs=num_envs,
        gamma=GAMMA,
        xla=False,
        replay_capacity=LARGE * num_envs,
        epsilon_final=1.0,
        cut_at_exploration=False,
        train_interval_env_steps=4 * num_envs,
        acting_interval_env_steps=8 * num_envs,  # two iterations in a block
    )
    groups = make_groups("function", num_envs)
    agent = make_agent(cfg, groups[0].spec)
    agent.memory = Buffers(cfg, groups[0].spec)
    loop = host.HostLoop(agent, groups)
    loop.run(0)
    return agent, loop.program, loop.overlap


def make_loop(form, num_envs, ids):
    """The loop of a run; `ids` gets the environments' ids whenever all are reset."""
    agent, program, overlap = make_shared(num_envs)
    groups = make_groups(form, num_envs)
    reset = groups[0].reset

    def watched_reset(*seed):
        obs = reset(*seed)
        ids.append(obs[:, 0].astype(int).tolist())
        return obs

    groups[0].reset = watched_reset
    loop = host.HostLoop(agent, groups)
    loop.overlap.close()
    loop.program, loop.overlap = program, overlap
    return loop


def all_windows(buffer):
    """What the buffer can draw: the numbers from 0 to 2**32 in steps that leave out no row."""
    words = np.arange(0, 2**32, 2**32 // (2 * int(buffer.size)))
    drawn = buffer.sample(tf.constant(words, tf.uint32))
    return [np.asarray(column, np.float64) for column in drawn[:5]]


def assert_true_steps(drawn, n_step, limit):
    """Each window tells what happened in it: compare that with what the buffer made of it.

    Returns:
        [B] steps of each window, and whether the episode ended with it.
    """
    obs, action, reward, discount, next_obs = drawn
    env_id, episode, step, actions = obs.astype(int).T
    used = next_obs[:, 2].astype(int) - step
    assert used.min() >= 1 and used.max() <= n_step
    np.testing.assert_array_equal(next_obs[:, :2], obs[:, :2])
    since = next_obs[:, 3].astype(int) - actions * 4**used
    assert (since >= 0).all() and (since < 4**used).all()
    taken = since[:, np.newaxis] // 4 ** np.maximum(used[:, np.newaxis] - 1 - np.arange(5), 0) % 4
    np.testing.assert_array_equal(action, taken[:, 0])
    paid = sum(
        np.where(k < used, GAMMA**k * Recorded.reward(env_id, episode, step + k, taken[:, k]), 0)
        for k in range(5)
    )
    np.testing.assert_allclose(reward, paid, atol=1e-5)
    ended = step + used == np.minimum(Recorded.length(env_id, episode), limit)
    terminates = np.array([Recorded.end(*pair)[0] for pair in zip(env_id, episode, strict=True)])
    terminated = terminates & (step + used == Recorded.length(env_id, episode))
    np.testing.assert_allclose(discount, np.where(terminated, 0.0, GAMMA**used), rtol=1e-6)
    return used, ended


def steps_in_order(drawn, parts, limit, may_skip):
    """{(id, episode, step): (time, end of its part)} of every env step, from all rows.

    Args:
        drawn: All rows of one step.
        parts: For each time that all environments were reset: their ids, and the steps after it.
        limit: Most steps of an episode.
        may_skip: Whether whole episodes may be missing.
    """
    found, places = {tuple(row[:3]) for row in drawn[0].astype(int)}, {}
    begin = 0
    for ids, count in parts:
        assert len(set(ids)) == len(ids)
        for column, env_id in enumerate(ids):
            rows = sorted(row for row in found if row[0] == env_id)
            assert len(rows) == count
            expected = (0, 0)
            for time, (_, episode, step) in enumerate(rows):
                skips = may_skip and step == expected[1] == 0 and episode > expected[0]
                assert (episode, step) == expected or skips
                ends = step + 1 == min(Recorded.length(env_id, episode), limit)
                expected = (episode + 1, 0) if ends else (episode, step + 1)
                places[env_id, episode, step] = (begin + time, column, begin + count)
        begin += count
    assert len(places) == len(found)
    return places


def assert_no_wrong_row(memory, parts, limit, may_skip):
    """Every window of every buffer is a true one, and none is missing; `steps_in_order`."""
    num_envs = len(parts[0][0])
    total = sum(count for _, count in parts) * num_envs
    places = steps_in_order(all_windows(memory.all[1, LARGE * num_envs]), parts, limit, may_skip)
    for (n_step, capacity), buffer in memory.all.items():
        drawn = all_windows(buffer)
        used, ended = assert_true_steps(drawn, n_step, limit)
        begun = [tuple(row[:3]) for row in drawn[0].astype(int)]
        time, column, stop = np.array([places[row] for row in begun]).T
        whole = np.minimum(n_step, stop - time)
        np.testing.assert_array_equal(used[~ended], whole[~ended])
        assert (used <= whole).all()
        # The newest rows wait for their windows to be over, the oldest are overwritten.
        oldest, newest = max(0, total - capacity), total - (n_step - 1) * num_envs
        assert set(time * num_envs + column) == set(range(oldest, newest))
    return places


FORMS_OF = [(form, num_envs) for form in (*FORMS, *IN_PROCESSES) for num_envs in (1, 3, 8)]
QUICK = [*((form, 3) for form in FORMS), (next(iter(IN_PROCESSES)), 3)]
CASES = rest_learning(FORMS_OF, QUICK)


@pytest.fixture(autouse=True)
def nothing_learned(monkeypatch):
    def remember(agent, rollout, bits, metrics, update_enabled):
        agent.observe(rollout)
        return metrics

    monkeypatch.setattr(host, "learn", remember)


@pytest.mark.parametrize(("form", "num_envs"), CASES)
def test_no_window_that_replay_can_draw_is_wrong(form, num_envs):
    """While a run goes on, resumed with the environments' state, and resumed without it."""
    agent, *_ = make_shared(num_envs)
    agent.env_steps.assign(0)
    agent.memory.clear()
    limit = LIMIT if form.startswith("id") else 1_000
    may_skip = form.endswith("NEXT_STEP") and num_envs > 1
    saves = not form.startswith("Async")  # nobody can read the state of a user's processes
    parts, ids, state = [], [], {}
    for resumed, steps in ((None, [16, 32]), ("with state", [8, 16]), ("without", [16, 8])):
        loop = make_loop(form, num_envs, ids)
        begins = resumed == "without" or (resumed and not saves)
        loop.set_state(state if resumed == "with state" else {})
        with pytest.warns(UserWarning, match="begins new") if begins else nullcontext():
            loop.run(0)
        if begins or not resumed:
            parts.append([ids[-1], 0])
        for count in steps:
            loop.run(count * num_envs)
            parts[-1][1] += count
            places = assert_no_wrong_row(agent.memory, parts, limit, may_skip)
        state = json.loads(json.dumps(loop.get_state()))
        for group in loop.groups:
            group.close()
    lasts = [row for row in places if row[2] + 1 == Recorded.length(*row[:2])]
    assert {Recorded.end(*row[:2]) for row in lasts} == set(ENDS)
    assert 0 in {step for *_, step in lasts} != {0}
