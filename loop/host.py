"""Gymnasium environments on the host, learning in a graph that runs beside them.

One call of a TensorFlow function costs more than the update in it. So the learner is one call for
many rounds: a graph that loops over rounds and, between two of them, hands the acting weights to
the collector and takes the rows it collected meanwhile. Python's lock is free while it learns.

The weights that collect a round are those from before the previous round was learnt: acting lags
behind learning by exactly one train interval, whatever the machine's speed, so a run depends on
its seed alone.
"""

from __future__ import annotations

import queue
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.acting import HostActor, best_values
from kytolly.agent.kytolly import KytollyAgent
from kytolly.environment.gym.step import HostEnv, HostStep
from kytolly.loop.learn import learn_round, ready
from kytolly.loop.metrics import EndedEpisodes, LoopMetrics
from kytolly.loop.program import Program
from kytolly.policy.batch import Transition, transition_spec


class HostLoop:
    """Collects with Gymnasium environments and learns on the device, at the same time.

    Where the acting network has no NumPy twin, acting and learning take turns instead: TensorFlow
    acts on the threads that the learner's graph would hold.

    Args:
        agent: The learner; its state changes in place.
        env: Adapter around the environments.
        device: Where learning runs, such as "/GPU:0"; None leaves it to TensorFlow.
    """

    def __init__(self, agent: KytollyAgent, env: HostEnv, device: str | None = None):
        self.agent, self.env, cfg = agent, env, agent.cfg
        self.rows_per_round = cfg.num_envs * cfg.vector_steps_per_interval
        self.actor = HostActor(agent.policy.online, agent.env_spec.obs, best_values)
        rows = transition_spec(agent.replay.obs_spec, self.rows_per_round)
        self.row_specs = [*rows, tf.TensorSpec([self.rows_per_round], tf.bool)]
        count = tf.TensorSpec([], tf.int32)
        self.round = Program(self._learn_once, [count, *self.row_specs], cfg.xla, device)
        self.rounds: Any = None  # made by _start(), once the round is compiled
        self.collector = Collector(agent, env, self.row_specs)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kytolly-learner")
        self._rows: queue.SimpleQueue = queue.SimpleQueue()
        self._weights: queue.SimpleQueue = queue.SimpleQueue()

    def run(self, env_steps: int) -> LoopMetrics:
        """Collect at least `env_steps` env steps in whole rounds, and learn from them."""
        if self.rounds is None:
            self._start()
        rounds = -(-env_steps // self.rows_per_round)
        if rounds == 0:
            return LoopMetrics.zeros(self.agent)
        metrics = self._run_in_turns(rounds) if self.actor.twin is None else self._run(rounds)
        episodes = self.collector.episodes.take()
        self.agent.episodes.assign_add(episodes[0])
        counts = dict(zip(("episodes", "episode_return", "episode_length"), episodes, strict=True))
        return metrics._replace(**counts)

    def _run_in_turns(self, rounds: int) -> LoopMetrics:
        """Collect a round with the weights as they are, then learn from it."""
        metrics = LoopMetrics.zeros(self.agent)
        for _ in range(rounds):
            self.collector.epsilon = float(self.agent.epsilon())
            rows = self.collector.collect(self.actor)
            metrics = metrics.plus(self.round(tf.constant(1), *map(tf.constant, rows)))
        return metrics

    def _run(self, rounds: int) -> LoopMetrics:
        """Collect a round while the one before is learnt from."""
        learner: Future = self._thread.submit(lambda: self.rounds(tf.constant(rounds)))
        learner.add_done_callback(lambda _: self._weights.put(None))  # wakes us if it failed
        try:
            for _ in range(rounds):
                self._exchange_round(learner)
            return learner.result()
        except BaseException:
            self._rows.put(None)
            learner.exception()
            raise
        finally:
            self._weights = queue.SimpleQueue()

    @property
    def trackables(self) -> dict[str, tf.Module]:
        """What a checkpoint holds beside the agent: nothing, a resumed run begins new episodes."""
        return {}

    @property
    def xla(self) -> bool:
        """Whether learning is compiled with XLA; known after the first call."""
        return self.round.xla

    def close(self) -> None:
        """End the learning thread and close the environments."""
        self._thread.shutdown(wait=True)
        self.env.close()

    def _exchange_round(self, learner: Future) -> None:
        """Collect a round; then act with what was learnt meanwhile, and hand the rows over."""
        rows = self.collector.collect(self.actor)
        weights = self._weights.get()
        if weights is None:
            raise learner.exception() or RuntimeError("the learner ended early")
        self.collector.epsilon = float(weights[-1])
        self.actor.take(weights[:-1])
        self._rows.put(rows)
        # The learner needs Python's lock to take the rows, and would get it only once the next
        # round is collected: without this pause the two take turns (820 µs a round, not 600).
        time.sleep(1e-5)

    def _next_rows(self, weights: np.ndarray) -> list[np.ndarray]:
        """Called by the learner between two rounds."""
        self._weights.put(weights)
        rows = self._rows.get()
        if rows is None:
            raise RuntimeError("collecting ended")
        return rows

    def _start(self) -> None:
        """Compile the learning round without learning, and begin the first episodes."""
        nothing = [tf.zeros(spec.shape, spec.dtype) for spec in self.row_specs]
        self.round(tf.constant(0), *nothing)
        self.rounds = tf.function(
            self._learn_rounds, autograph=False, input_signature=[tf.TensorSpec([], tf.int32)]
        ).get_concrete_function()
        self.actor.refresh()
        self.collector.start(int(self.agent.env_steps.numpy()), float(self.agent.epsilon()))

    def _learn_rounds(self, rounds: tf.Tensor) -> LoopMetrics:
        dtypes = [spec.dtype for spec in self.row_specs]

        def one_round(done, metrics):
            columns = tf.numpy_function(self._next_rows, [self._acting()], dtypes)
            for column, spec in zip(columns, self.row_specs, strict=True):
                column.set_shape(spec.shape)
            learnt = self.round.in_graph(tf.constant(1), *columns)
            return done + 1, metrics.plus(learnt)

        return tf.while_loop(
            lambda done, _: done < rounds,
            one_round,
            (tf.constant(0), LoopMetrics.zeros(self.agent)),
            parallel_iterations=1,
        )[1]

    def _acting(self) -> tf.Tensor:
        """[W + 1] float32: what `HostActor.take` needs, then epsilon."""
        return tf.concat([self.actor.packed(), self.agent.epsilon()[tf.newaxis]], axis=0)

    def _learn_once(self, count: tf.Tensor, *columns: tf.Tensor) -> LoopMetrics:
        """Remember the rows and learn from the buffer, `count` times: 1, or 0 to compile."""
        agent, cfg = self.agent, self.agent.cfg
        *rows, last = columns

        def learn(done, metrics):
            agent.observe(Transition(*rows), last)
            bits = agent.random_stream.bits(cfg.updates_per_round * cfg.batch_size)
            learns = tf.where(ready(agent), 1, 0)
            _, metrics = tf.while_loop(
                lambda learnt, _: learnt < learns,
                lambda learnt, sums: (learnt + 1, learn_round(agent, bits, sums)),
                (tf.constant(0), metrics),
            )
            return done + 1, metrics

        _, metrics = tf.while_loop(
            lambda done, _: done < count, learn, (tf.constant(0), LoopMetrics.zeros(agent))
        )
        return metrics._replace(latest=agent.latest())


class Collector:
    """Steps the environments and lays their transitions down in the order of time.

    Args:
        agent: Gives the settings; its variables are not touched.
        env: Adapter around the environments.
        row_specs: Shapes and dtypes of one round's columns: a `Transition`'s, then `last`.
    """

    def __init__(self, agent: KytollyAgent, env: HostEnv, row_specs: list[tf.TensorSpec]):
        self.env, self.cfg, self.num_actions = env, agent.cfg, agent.env_spec.num_actions
        self.rows_per_round: int = agent.cfg.num_envs * agent.cfg.vector_steps_per_interval
        self.dtypes = [spec.dtype.as_numpy_dtype for spec in row_specs]
        self.epsilon = 1.0
        self._steps: list[tuple[np.ndarray, np.ndarray, HostStep]] = []
        self._spare: list[np.ndarray] = []
        self.episodes = EndedEpisodes()

    def start(self, env_steps: int, epsilon: float) -> None:
        """Begin episodes; a run that is resumed after `env_steps` draws other random numbers."""
        self._rng = np.random.default_rng([self.cfg.seed, 3, env_steps])
        self._obs = self.env.reset()
        self.epsilon = epsilon

    def collect(self, actor: HostActor) -> list[np.ndarray]:
        """The columns of one round of rows; dummy steps of the environments are left out."""
        rows = self._stepped(actor)
        while len(rows[0]) < self.rows_per_round:
            rows = [np.concatenate(pair) for pair in zip(rows, self._stepped(actor), strict=True)]
        self._spare = [column[self.rows_per_round :] for column in rows]
        return [column[: self.rows_per_round] for column in rows]

    def _stepped(self, actor: HostActor) -> list[np.ndarray]:
        """What was spare, and the rows of one train interval's steps of all copies."""
        shape = (self.cfg.vector_steps_per_interval, self.env.num_envs)
        explores = self._rng.random(shape) < self.epsilon
        actions = self._rng.integers(self.num_actions, size=shape)
        before, steps, obs = [], [], self._obs
        for explore, action in zip(explores, actions, strict=True):
            if not explore.all():
                np.copyto(action, actor(obs), where=~explore)
            step = self.env.step(action)
            before.append(obs)
            steps.append(step)
            obs = step.obs
        self._obs = obs
        return self._as_rows(np.concatenate(before), actions.reshape(-1), steps)

    def _as_rows(
        self, obs: np.ndarray, action: np.ndarray, steps: list[HostStep]
    ) -> list[np.ndarray]:
        joined = HostStep(*(np.concatenate(column) for column in zip(*steps, strict=True)))
        self.episodes.add(joined)
        discount = np.where(joined.terminated, 0.0, self.cfg.gamma)
        rows = (obs, action, joined.reward, discount, joined.next_obs, joined.ended)
        rows = [row.astype(dtype, copy=False) for row, dtype in zip(rows, self.dtypes, strict=True)]
        if not joined.valid.all():
            rows = [row[joined.valid] for row in rows]
        if self._spare and len(self._spare[0]):
            rows = [np.concatenate(pair) for pair in zip(self._spare, rows, strict=True)]
            self._spare = []
        return rows
