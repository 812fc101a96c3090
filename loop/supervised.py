"""Supervised training: many updates in each call of a program, and what its session reports."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import keras
import tensorflow as tf

from kytolly.agent.make_agent import BUILDING
from kytolly.agent.randomness import threefry2x32
from kytolly.callback.base import JsonObject, Outcome, TrainState
from kytolly.config.supervised import SupervisedConfig
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.program import Program
from kytolly.loop.session import Parts
from kytolly.policy.supervised import SupervisedPolicy

UPDATE_SEEDS = 11  # purpose: keeps the seeds of updates apart from other draws of the run's seed


class Sampler(Protocol):
    """Puts the rows of an epoch into batches."""

    def padding_share(self) -> float:
        """Share of the tokens in batches that are padding."""
        ...

    def fixed_padding_share(self) -> float:
        """The same where all rows are padded to one length."""
        ...


class Call(Protocol):
    """Consecutive updates from batches of one bucket.

    Attributes:
        bucket: Its number.
        arguments: What the bucket's program takes.
        first: Index of the first batch among the `arguments`.
        count: Updates.
    """

    @property
    def bucket(self) -> int: ...

    @property
    def arguments(self) -> Any: ...

    @property
    def first(self) -> int: ...

    @property
    def count(self) -> int: ...


class Rows(Protocol):
    """Training data in batches, of which those of one bucket have the same shape."""

    @property
    def sampler(self) -> Sampler: ...

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """The variables that `batch` reads."""
        ...

    @property
    def updates_per_epoch(self) -> int:
        """Updates in which every row has its turn."""
        ...

    @property
    def tokens_per_update(self) -> float:
        """Mean over the updates of an epoch, without padding."""
        ...

    def call(self, update: int, most: int) -> Call:
        """The `Call` that begins with a number of an update, of at most so many."""
        ...

    def example(self) -> dict[str, tf.Tensor]:
        """Columns of a batch, to build a network with."""
        ...

    def signature(self, bucket: int) -> Any:
        """TensorSpecs of a `Call`'s arguments."""
        ...

    def batch(self, bucket: int, arguments: Any, index: tf.Tensor) -> dict[str, tf.Tensor]:
        """The columns [B, ...] of a batch, by name; part of the program."""
        ...


class Task(Protocol):
    """Data, a network and a loss: what `Trainer.train_supervised` asks for.

    Attributes:
        name: Name of the data, for the run's folder and the progress line.
        metric_names: The metrics that `loss` gives beside the loss.
        best_metric: The metric of `evaluate` that picks the best weights; more is better.
    """

    @property
    def name(self) -> str: ...

    @property
    def metric_names(self) -> tuple[str, ...]: ...

    @property
    def best_metric(self) -> str: ...

    def make_rows(self, cfg: Any) -> Any:
        """The training data, `Rows`."""
        ...

    def make_network(self, cfg: Any) -> keras.Model:
        """The network, which is built, or builds when it is called."""
        ...

    def loss(
        self, network: keras.Model, batch: Mapping[str, tf.Tensor], cfg: Any
    ) -> tuple[tf.Tensor, Mapping[str, tf.Tensor]]:
        """The loss [] of a batch, and the metrics [] of `metric_names`; part of the program.

        Args:
            network: To be called with `training=True`, or part by part.
            batch: The columns of `make_rows` [B, ...], and `seed` [1, 2] int32, another one for
                each update, for stateless draws.
            cfg: The run's `SupervisedConfig`.
        """
        ...

    def evaluate(self, network: keras.Model) -> Mapping[str, float]:
        """Metrics on held-out data, by name, `best_metric` among them."""
        ...


@dataclasses.dataclass(frozen=True)
class TaskEvaluation:
    """The metrics of a task's `evaluate`.

    Attributes:
        best_metric: The metric that says which of two evaluations is better.
        metrics: All metrics by name.
        cut, step_limit: Never: such an evaluation is ended by no clock, and has no env steps.
    """

    best_metric: str
    metrics: dict[str, float]
    cut: bool = False
    step_limit: int = 0

    @property
    def digits(self) -> int:
        """After the point, of any metric."""
        return 4

    @property
    def score(self) -> float:
        """The value of the best metric."""
        return self.metrics[self.best_metric]

    @property
    def text(self) -> str:
        """The text of the progress display."""
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
    learner: Learner | None = None
    unit: ClassVar[str] = "updates"

    @property
    def total(self) -> int:
        """The end of the run, unless something stops it earlier."""
        return self.total_updates


class Learner:
    """Learns from rows of data: a policy and its counters.

    Args:
        task: Data, a network and a loss.
        cfg: Configuration.
        network: One that goes on to learn; None makes one.
    """

    latest_names: tuple[str, ...] = ()
    part_names: tuple[tuple[str, str], ...] = ()
    fixed_rate: float | None = None  # the optimizer's schedule says it

    def __init__(self, task: Task, cfg: SupervisedConfig, network: keras.Model | None = None):
        self.task, self.cfg = task, cfg
        self.rows: Rows = task.make_rows(cfg)
        self.total_updates = cfg.total_updates or cfg.epochs * self.rows.updates_per_epoch
        if network is None:
            network = make_network(task, cfg, self.rows)

        def loss(
            network: keras.Model, batch: Mapping[str, tf.Tensor]
        ) -> tuple[tf.Tensor, Mapping[str, tf.Tensor]]:
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


def make_network(task: Task, cfg: SupervisedConfig, rows: Rows) -> keras.Model:
    """The task's network, in the configured precision, built by a batch if need be."""
    with BUILDING:
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

    env_restarts: int | None = None
    trackables: Mapping[str, Any] = {}  # all that changes is the learner's

    def __init__(self, learner: Learner, device: str | None = None):
        self.learner, self.device = learner, device
        self.policy, self.rows, self.xla = learner.policy, learner.rows, learner.cfg.xla
        self.compile_seconds = 0.0  # of the last call
        self._programs: dict[int, Program] = {}

    def run(self, amount: int, deadline: float = math.inf) -> LoopMetrics:
        """Make at least one update and at most `amount`; none where that is 0."""
        self.compile_seconds = 0.0
        if not amount:
            return LoopMetrics.zeros(self.learner)
        done = self.learner.updates
        call = self.rows.call(done, amount)
        program = self._program(call.bucket, call.arguments)
        seeds = tf.constant(done - call.first, tf.int64)
        return program(seeds, tf.constant(call.first), tf.constant(call.count), call.arguments)

    def bring_up_to_date(self) -> None:
        """Nothing: the learner has all state."""

    def take_idle_seconds(self) -> None:
        """None: a program that waits for nobody."""

    def close(self) -> None:
        """Nothing to release."""

    def _program(self, bucket: int, arguments: object) -> Program:
        """The program of a bucket, compiled."""
        if bucket not in self._programs:
            began = time.perf_counter()

            def update_many(
                offset: tf.Tensor, first: tf.Tensor, count: tf.Tensor, arguments: object
            ) -> LoopMetrics:
                return self._update_many(bucket, offset, first, count, arguments)

            number = tf.TensorSpec([], tf.int32)
            signature = [tf.TensorSpec([], tf.int64), number, number, self.rows.signature(bucket)]
            program = self._make_program(update_many, signature)
            zero = tf.constant(0)
            program(tf.constant(0, tf.int64), zero, zero, arguments)  # compiles, does nothing
            self.xla = program.xla
            self._programs[bucket] = program
            self.compile_seconds = time.perf_counter() - began
        return self._programs[bucket]

    def _make_program(
        self, function: Callable[..., LoopMetrics], signature: Sequence[object]
    ) -> Program:
        return Program(function, signature, self.xla, self.device)

    def _update_many(
        self, bucket: int, offset: tf.Tensor, first: tf.Tensor, count: tf.Tensor, arguments: object
    ) -> LoopMetrics:
        cfg, replica = self.learner.cfg, self.policy.replica
        parts = cfg.gradient_accumulation * (1 if replica is None else replica.count)

        def update(index: tf.Tensor, sums: LoopMetrics) -> tuple[tf.Tensor, LoopMetrics]:
            batch = self.rows.batch(bucket, arguments, index)
            number = offset + tf.cast(index, tf.int64)
            seeds = update_seeds(cfg.seed, number, parts)
            batch["seed"] = seeds if replica is None else replica.own(seeds)
            return index + 1, sums.with_update(self.policy.update(batch).metrics)

        zeros = LoopMetrics.zeros(self.learner)
        return tf.while_loop(lambda index, _: index < first + count, update, (first, zeros))[1]


def update_seeds(seed: int, update: tf.Tensor, parts: int) -> tf.Tensor:
    """[parts, 2] int32 seeds of an update's parts, for stateless draws; others for each update."""
    key = tf.constant(seed, tf.uint32), tf.constant(UPDATE_SEEDS, tf.uint32)
    counters = tf.fill([parts], tf.cast(update, tf.uint32)), tf.cast(tf.range(parts), tf.uint32)
    words = threefry2x32(key, counters)
    return tf.bitcast(tf.stack(words, axis=-1), tf.int32)


class SupervisedReport:
    """The progress of a supervised run, counted in updates, and its metrics on held-out data.

    Args:
        learner: What learns.
        loop: What trains it.
    """

    env_spec = None
    outcome = TaskEvaluation

    def __init__(self, learner: Learner, loop: SupervisedLoop):
        self.learner, self.loop, self.name = learner, loop, learner.task.name

    def first_state(self, run_dir: Path) -> SupervisedState:
        """The run at its beginning."""
        learner = self.learner
        return SupervisedState(
            run_dir=run_dir,
            config=learner.cfg,
            env_name=self.name,
            loop="device",
            device=self.loop.device or "/device:CPU:0",
            trackables={"policy": learner.policy},
            network=learner.network,
            total_updates=learner.total_updates,
            updates_per_epoch=learner.rows.updates_per_epoch,
            learner=learner,
        )

    def counts(self) -> dict[str, int]:
        """Updates so far."""
        return {"updates": self.learner.updates}

    def evaluate(self, state: TrainState, deadline: float) -> TaskEvaluation:
        """The task's metrics with the present weights."""
        return self.evaluate_best(deadline)

    def evaluate_best(self, deadline: float) -> TaskEvaluation:
        """The same; an evaluation of held-out data is not cut."""
        task = self.learner.task
        metrics = {name: float(v) for name, v in task.evaluate(self.learner.network).items()}
        if task.best_metric not in metrics:
            raise ValueError(
                f"the evaluation gives {', '.join(metrics) or 'no metric'}, and best_metric is "
                f"{task.best_metric!r}, expected one of them. Change one of them."
            )
        return TaskEvaluation(task.best_metric, metrics)

    def is_steady(self, progress: int) -> bool:
        """True if the last call compiled nothing."""
        return not self.loop.compile_seconds

    def row(
        self, sums: LoopMetrics, before: TrainState, now: TrainState, seconds: float
    ) -> dict[str, float]:
        """The metrics by name of the so many seconds between two states."""
        learner = self.learner
        row = sums.averages(learner)
        row = {name: value for name, value in row.items() if not name.startswith("episode_")}
        speed = (now.updates - before.updates) / seconds
        row["learning_rate"] = float(learner.policy.optimizer.learning_rate)
        row["epoch"] = now.updates / learner.rows.updates_per_epoch
        row["updates_per_second"] = speed
        row["tokens_per_second"] = speed * learner.rows.tokens_per_update
        return row

    def summary(
        self, state: TrainState, speed: float, compile_seconds: float, evaluation: Outcome
    ) -> JsonObject:
        """The entries of `result.json` for supervised learning."""
        rows = self.learner.rows
        return {
            "algorithm": state.config.algorithm,
            "data": state.env_name,
            "seed": state.config.seed,
            "parameters": state.parameters,
            "updates": state.updates,
            "epochs": state.updates / rows.updates_per_epoch,
            "wall_seconds": state.wall_seconds,
            "compile_seconds": compile_seconds,
            "updates_per_second": speed,
            "tokens_per_second": speed * rows.tokens_per_update,
            "padding_share": rows.sampler.padding_share(),
            "fixed_padding_share": rows.sampler.fixed_padding_share(),
            "evaluation": evaluation.summary(),
            "best_metric": evaluation.best_metric,
        }


class SupervisedTraining:
    """Makes what a session of supervised learning drives.

    Args:
        task: Data, a network and a loss.
        device: Where to train, such as "/GPU:0"; None leaves it to TensorFlow.
        make_loop: Makes what trains a learner, as on several devices; None: a `SupervisedLoop`.
    """

    unit = "updates"

    def __init__(
        self,
        task: Task,
        device: str | None,
        make_loop: Callable[[Learner], SupervisedLoop] | None = None,
    ):
        self.task, self.device, self.make_loop = task, device, make_loop
        self._network: keras.Model | None = None  # goes on to learn: the task may hold on to it

    @contextlib.contextmanager
    def parts(self, cfg: SupervisedConfig, init_run: Path | None) -> Iterator[Parts]:
        """A learner of the task's data, and what trains it; `init_run` is for agents."""
        with tf.device(self.device):
            learner = Learner(self.task, cfg, self._network)
        self._network = learner.network
        loop = (self.make_loop or (lambda one: SupervisedLoop(one, self.device)))(learner)
        yield Parts(learner, loop, SupervisedReport(learner, loop), keeps_network=True)
