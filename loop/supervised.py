"""Supervised training: many updates in each call of a program, and the session of such a run."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import keras
import tensorflow as tf

from kytolly.agent.randomness import threefry2x32
from kytolly.callback.base import TrainState
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.log_row import averages
from kytolly.loop.program import Program
from kytolly.loop.session import TrainingSession
from kytolly.policy.supervised import SupervisedPolicy

UPDATE_SEEDS = 11  # purpose: keeps the seeds of updates apart from other draws of the run's seed


@dataclasses.dataclass(frozen=True)
class TaskEvaluation:
    """What a task's `evaluate` found.

    Attributes:
        best_metric: The metric that says which of two evaluations is better.
        metrics: All metrics by name.
        cut: Never: such an evaluation is not ended by a clock.
    """

    best_metric: str
    metrics: dict[str, float]
    cut: bool = False
    digits: ClassVar[int] = 4

    @property
    def score(self) -> float:
        """The value of the best metric."""
        return self.metrics[self.best_metric]

    @property
    def text(self) -> str:
        """What the progress display says."""
        return f"{self.best_metric} {self.score:.4f}"

    def logs(self) -> dict[str, float]:
        """The metrics by the names that Keras callbacks get."""
        return {f"evaluation_{name}": value for name, value in self.metrics.items()}

    def summary(self) -> dict[str, float]:
        """The metrics that a result file holds."""
        return dict(self.metrics)


@dataclasses.dataclass(frozen=True)
class SupervisedState(TrainState):
    """As for an agent; a run counts updates, and `env_name` is the name of the data.

    Attributes:
        total_updates: Length of the run.
        updates_per_epoch: Updates in which every row has its turn.
        learner: What learns.
    """

    total_updates: int = 0
    updates_per_epoch: int = 1
    learner: Any = None
    unit: ClassVar[str] = "updates"

    @property
    def total(self) -> int:
        """Where the run ends, unless something stops it earlier."""
        return self.total_updates


class Learner:
    """What learns: a policy and its counters, as a session asks for them.

    Args:
        task: `search.text.task.Task`.
        cfg: `config.supervised.SupervisedConfig`.
        network: One that goes on to learn; None makes one.
    """

    latest_names: tuple[str, ...] = ()

    def __init__(self, task: Any, cfg: Any, network: keras.Model | None = None):
        self.task, self.cfg, self.rows = task, cfg, task.make_rows(cfg)
        self.total_updates = cfg.total_updates or cfg.epochs * self.rows.updates_per_epoch
        if network is None:
            network = make_network(task, cfg, self.rows)

        def loss(network: keras.Model, batch: Mapping[str, tf.Tensor]) -> Any:
            return task.loss(network, batch, cfg)

        self.policy = SupervisedPolicy(network, loss, task.metric_names, cfg, self.total_updates)

    @property
    def network(self) -> keras.Model:
        """The network; after training, with the best weights."""
        return self.policy.network

    @property
    def updates(self) -> int:
        """Optimizer steps so far."""
        return int(self.policy.updates)


def make_network(task: Any, cfg: Any, rows: Any) -> keras.Model:
    """The task's network, in the configured precision, built by a batch if need be."""
    keras.utils.set_random_seed(cfg.seed)
    previous = keras.mixed_precision.dtype_policy()
    precision = previous.name if cfg.precision == "auto" else cfg.precision
    keras.mixed_precision.set_dtype_policy(precision)
    try:
        network = task.make_network(cfg)
        if not network.built:
            batch = {name: column[: cfg.batch_size] for name, column in rows.example().items()}
            task.loss(network, {**batch, "seed": tf.zeros([1, 2], tf.int32)}, cfg)
    finally:
        keras.mixed_precision.set_dtype_policy(previous)
    return network


class SupervisedLoop:
    """Makes updates, many in each call, by one program for each bucket.

    Args:
        learner: What learns.
        device: Where the programs run, such as "/GPU:0"; None leaves it to TensorFlow.
    """

    env_restarts = None

    def __init__(self, learner: Learner, device: str | None = None):
        self.learner, self.device = learner, device
        self.policy, self.rows, self.xla = learner.policy, learner.rows, learner.cfg.xla
        self.compile_seconds = 0.0  # of the last call
        self._programs: dict[int, Program] = {}

    def run(self, updates: int) -> LoopMetrics | None:
        """Make at least one update and at most `updates`; None where that is 0."""
        if not updates:
            return None
        done, self.compile_seconds = self.learner.updates, 0.0
        call = self.rows.call(done, updates)
        program = self._program(call.bucket, call.arguments)
        seeds = tf.constant(done - call.first, tf.int64)
        return program(seeds, tf.constant(call.first), tf.constant(call.count), call.arguments)

    def _program(self, bucket: int, arguments: Any) -> Program:
        """The program of a bucket, compiled."""
        if bucket not in self._programs:
            began = time.perf_counter()

            def update_many(offset, first, count, arguments):
                return self._update_many(bucket, offset, first, count, arguments)

            number = tf.TensorSpec([], tf.int32)
            signature = [tf.TensorSpec([], tf.int64), number, number, self.rows.signature(bucket)]
            program = Program(update_many, signature, self.xla, self.device)
            zero = tf.constant(0)
            program(tf.constant(0, tf.int64), zero, zero, arguments)  # compiles, does nothing
            self.xla = program.xla
            self._programs[bucket] = program
            self.compile_seconds = time.perf_counter() - began
        return self._programs[bucket]

    def _update_many(
        self, bucket: int, offset: tf.Tensor, first: tf.Tensor, count: tf.Tensor, arguments: Any
    ) -> LoopMetrics:
        cfg = self.learner.cfg

        def update(index, sums):
            batch = self.rows.batch(bucket, arguments, index)
            number = offset + tf.cast(index, tf.int64)
            batch["seed"] = update_seeds(cfg.seed, number, cfg.gradient_accumulation)
            return index + 1, sums.with_update(self.policy.update(batch).metrics)

        zeros = LoopMetrics.zeros(cast(Any, self.learner))
        return tf.while_loop(lambda index, _: index < first + count, update, (first, zeros))[1]


def update_seeds(seed: int, update: tf.Tensor, parts: int) -> tf.Tensor:
    """[parts, 2] int32 seeds of an update's parts, for stateless draws; others for each update."""
    key = tf.constant(seed, tf.uint32), tf.constant(UPDATE_SEEDS, tf.uint32)
    place = tf.cast(tf.range(parts), tf.uint32)
    words = threefry2x32(key, (tf.fill([parts], tf.cast(update, tf.uint32)), place))
    return tf.bitcast(tf.stack(words, axis=-1), tf.int32)


class SupervisedSession(TrainingSession):
    """The order of a supervised run; as an agent's, but that it counts updates.

    Args:
        learner: What learns.
        loop: What trains it.
        state: The run at its beginning.
    """

    evaluation_kind: type = TaskEvaluation

    def __init__(self, learner: Learner, loop: SupervisedLoop, state: SupervisedState):
        super().__init__(cast(Any, learner), loop, cast(Any, None), (), state)

    @property
    def _evaluator(self) -> Any:
        return self.agent.task

    def run_loop(self, updates: int) -> LoopMetrics | None:
        """Make some updates; none where there is no time left."""
        limit, before = self.cfg.max_wall_seconds, self.state.wall_seconds_before
        if limit is not None and self.wall_seconds() - before >= limit:
            return None
        metrics, compiled = self.loop.run(updates), self.loop.compile_seconds
        self.compile_seconds += compiled
        # A call that compiled is no measure of speed.
        self.first_steady = math.inf if compiled else 0
        return metrics

    def log_row(self, before: TrainState, seconds: float) -> dict[str, float]:
        """The metrics of the interval that began with the state `before`."""
        row = averages(cast(LoopMetrics, self.sums), self.agent)
        row = {name: value for name, value in row.items() if not name.startswith("episode_")}
        speed = (self.state.updates - before.updates) / seconds
        row["learning_rate"] = float(self.agent.policy.optimizer.learning_rate)
        row["epoch"] = self.state.updates / self.state.updates_per_epoch
        row["updates_per_second"] = speed
        row["tokens_per_second"] = speed * self.agent.rows.tokens_per_update
        return row

    def play(self, evaluator: Any, number: int = 0) -> TaskEvaluation:
        """The task's metrics with the present weights."""
        task = evaluator
        metrics = {name: float(v) for name, v in task.evaluate(self.agent.network).items()}
        if task.best_metric not in metrics:
            raise ValueError(
                f"the evaluation gives {', '.join(metrics) or 'no metric'}, and best_metric is "
                f"{task.best_metric!r}, expected one of them. Change one of them."
            )
        return TaskEvaluation(task.best_metric, metrics)

    def evaluate_best(self) -> TaskEvaluation:
        """The evaluation of the best weights, which the network keeps."""
        if self.best_weights is not None:
            self.agent.policy.set_weights(self.best_weights)
        return self.play(self._evaluator)

    def summary(self, evaluation: Any, stopped_by: str, seconds: float) -> dict[str, Any]:
        """What `result.json` holds."""
        state, speed = self.state, self.steady_env_steps / max(self.steady_seconds, 1e-9)
        rows = self.agent.rows
        return {
            "algorithm": state.config.algorithm,
            "data": state.env_name,
            "seed": state.config.seed,
            "parameters": state.parameters,
            "updates": state.updates,
            "epochs": state.updates / state.updates_per_epoch,
            "wall_seconds": state.wall_seconds_before + seconds,
            "compile_seconds": self.compile_seconds,
            "updates_per_second": speed,
            "tokens_per_second": speed * rows.tokens_per_update,
            "padding_share": rows.sampler.padding_share(),
            "fixed_padding_share": rows.sampler.fixed_padding_share(),
            "evaluation": evaluation.summary(),
            "best_metric": evaluation.best_metric,
            "stopped_by": stopped_by,
            "run_dir": str(state.run_dir),
            "memory": self.memory(),
            **({"faults": self.faults} if self.faults else {}),
        }

    def _update_state(self) -> None:
        self.agent.policy.publish()
        self.state = dataclasses.replace(
            self.state, updates=self.agent.updates, wall_seconds=self.wall_seconds()
        )


def make_session(
    cfg: Any, task: Any, device: str | None, network: keras.Model | None = None
) -> SupervisedSession:
    """The session of a new run, which has neither a folder nor callbacks yet.

    Args:
        cfg: `config.supervised.SupervisedConfig`.
        task: `search.text.task.Task`.
        device: Where to train, such as "/GPU:0"; None leaves it to TensorFlow.
        network: The network, which the task may hold on to; None makes one.
    """
    with tf.device(device):
        learner = Learner(task, cfg, network)
    state = SupervisedState(
        run_dir=Path(),
        config=cfg,
        env_name=task.name,
        loop="device",
        device=device or "/device:CPU:0",
        trackables={"policy": learner.policy},
        network=learner.network,
        total_updates=learner.total_updates,
        updates_per_epoch=learner.rows.updates_per_epoch,
        learner=learner,
    )
    return SupervisedSession(learner, SupervisedLoop(learner, device), state)
