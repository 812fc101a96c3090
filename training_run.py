"""A training run: from a config to a trained network and a folder, through faults on the way."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import tensorflow as tf

from kytolly.agent.algorithms import part
from kytolly.agent.make_agent import make_agent
from kytolly.agent.parts import CustomParts, Model
from kytolly.callback.base import Callback, notify, write_or_note
from kytolly.callback.defaults import run_callbacks
from kytolly.environment.mask import without_mask
from kytolly.environment.spec import spec_to_dict
from kytolly.loop.reinforcement import AgentReport
from kytolly.loop.session import Parts, Requests, TrainingSession, serve
from kytolly.loop.signals import deferred_signals
from kytolly.machine.facts import xla_enabled
from kytolly.machine.memory import memory_use, require_memory
from kytolly.record.checkpoint import save_network
from kytolly.record.learning_curve import plot_learning_curve, save_learning_curve
from kytolly.record.run_folder import RunFolder

if TYPE_CHECKING:
    from kytolly.config.run import RunConfig
    from kytolly.config.supervised import SupervisedConfig
    from kytolly.loop.base import EnvRunner
    from kytolly.loop.recovery import Fault

Config = TypeVar("Config", "RunConfig", "SupervisedConfig")  # of an agent, or supervised
AnyConfig = TypeVar("AnyConfig", contravariant=True)  # of its kind of training


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """The outcome of a training run."""

    agent: Any  # a `KytollyAgent` or a `Learner`, with the run's best weights
    history: list[dict[str, float]] = dataclasses.field(repr=False)  # one row a log interval
    evaluation: Any  # of the best weights: an `Evaluation`, or the `TaskEvaluation` of a task
    run_dir: Path
    stopped_by: str  # total_env_steps, reward_threshold, early_stop, time or non_finite
    summary: dict[str, Any] = dataclasses.field(repr=False)  # what `result.json` holds
    unwritten: dict[str, str] = dataclasses.field(default_factory=dict)  # why, by file

    def require_written(self) -> None:
        """Raise `NotWritten` where a file is missing: for whoever goes on from the files."""
        if self.unwritten:
            from kytolly.loop.recovery import NotWritten

            raise NotWritten(self.run_dir, self.unwritten)


class Training(Protocol[AnyConfig]):
    """A kind of training: makes what a session drives.

    Attributes:
        unit: What a run counts, as in `TrainState`.
        device: Where it trains, such as "/GPU:0"; None: on the CPU.
    """

    unit: str
    device: str | None

    def parts(
        self, cfg: AnyConfig, init_run: Path | None
    ) -> contextlib.AbstractContextManager[Parts]:
        """Parts for a config, released after the block; they begin with the weights of a run."""
        ...


class TrainingRun(Generic[Config]):
    """A training from its beginning, or from its newest checkpoint, to its result.

    Args:
        training: Makes what a session drives.
        cfg: The config; a fault may change it.
        callbacks: The user's.
        log_dir: The run's folder; None for a new one.
        resume: Continue the run in it.
        init_run: The folder of the run whose weights a new run begins with; None for none.
        shows_progress: Show a progress bar on standard error.
        may_save: Of a member of a population, which holds signals back for all: says at the end
            of an interval whether it may be saved. None: the run is alone.
    """

    def __init__(
        self,
        training: Training[Config],
        cfg: Config,
        callbacks: Sequence[Callback],
        log_dir: Path | None,
        resume: bool,
        init_run: Path | None = None,
        shows_progress: bool = True,
        may_save: Callable[[], bool] | None = None,
    ):
        self.training = training
        self.cfg, self.may_save = cfg, may_save
        self.callbacks, self.shows_progress = callbacks, shows_progress
        self.log_dir, self.resume, self.init_run = log_dir, resume, init_run
        self.faults: list[Fault] = []  # after which the run went on, for `result.json`
        self.keeps_network = False  # as the newest `Parts` say
        self.progress = 0  # when the newest try ended

    def train(self, began: float) -> TrainResult:
        """Train until the end, or until a fault after which nothing helps.

        `began` is `time.perf_counter()` when the user called.
        """
        while True:
            self.progress = 0
            try:
                return serve(self.requests(began))
            except Exception as error:
                if not self._recover(error):
                    raise
            began = time.perf_counter()
            gc.collect()  # what the failed program held

    def _recover(self, error: Exception) -> bool:
        """Change the config so that the run can go on after an error; False: nothing helps."""
        from kytolly.loop.recovery import recover

        recovered = recover(self.cfg, error, self.training.device, self.keeps_network)
        if recovered is None:
            return False
        cfg, fault, change = recovered
        self.cfg = cast(Config, cfg)
        unit = self.training.unit
        self.faults.append({"fault": fault, unit: self.progress, "change": change})
        return True

    def requests(self, began: float) -> Requests[TrainResult]:
        """Train until the end or a fault, by what another does on the device."""
        with contextlib.ExitStack() as stack:
            parts = stack.enter_context(self.training.parts(self.cfg, self._run_to_load()))
            self.keeps_network = parts.keeps_network
            resume = self.resume
            folder = stack.enter_context(self._lock_folder(parts.report.name))
            self.log_dir, self.resume = folder.path, True  # for a try after this one
            state = parts.report.first_state(folder.path)
            callbacks = run_callbacks(state, self.shows_progress, self.callbacks, self.may_save)
            memory = functools.partial(memory_use, state.device)
            session = TrainingSession(parts, callbacks, state, self.faults, memory)
            try:
                if resume:
                    from kytolly.loop.session_state import restore_session
                    from kytolly.record.resume import restored_state
                    from kytolly.record.saved_run import SavedRun

                    names = dict(session.learner.part_names)
                    saved = restored_state(SavedRun(folder.path), session.state, names)
                    restore_session(session, *saved)
                return (yield from self._run_session(session, folder, began))
            finally:
                self.progress = session.state.progress

    def _lock_folder(self, environment: str) -> RunFolder:
        """The folder to train in, held by this process: a new one, or that of a run to continue."""
        if self.resume:
            from kytolly.record.saved_run import SavedRun

            return RunFolder(SavedRun.resumable(self.log_dir).path).lock_folder()
        name = f"{environment}_{self.cfg.algorithm}_{self.cfg.seed}"
        return RunFolder.create(self.log_dir, name)

    def _run_to_load(self) -> Path | None:
        """The run whose weights a new learner begins with; None where a checkpoint has others."""
        if self.init_run is None or not self.resume:
            return self.init_run
        from kytolly.record.saved_run import SavedRun

        folder = SavedRun.existing(str(self.log_dir))
        return self.init_run if folder.is_before_first_checkpoint() else None

    def _run_session(
        self, session: TrainingSession, folder: RunFolder, began: float
    ) -> Requests[TrainResult]:
        """Run the session, evaluate its best weights, and write the result."""
        spec, state = session.report.env_spec, session.state
        plain = None if spec is None else spec_to_dict(spec)
        names = dict(session.learner.part_names)
        folder.write_config(self.cfg, state.env_name, state.loop, plain, self.init_run, names)
        try:
            if self.may_save is not None:
                stopped_by = yield from session.run(lambda: None)
            else:
                with deferred_signals() as raise_pending:
                    stopped_by = yield from session.run(raise_pending)
            if stopped_by == "non_finite" and self.cfg.on_nan == "restart":
                from kytolly.loop.recovery import maybe_restart

                maybe_restart(session.faults, session.state.progress, session.state.units)
            evaluation = yield from session.evaluate_best()
        except (KeyboardInterrupt, RuntimeError) as end:
            from kytolly.record.resume import say_what_is_saved

            say_what_is_saved(end, session.state)
            raise
        summary = session.summary(evaluation, stopped_by, time.perf_counter() - began)
        path, unwritten = folder.path, session.unwritten
        if session.keeps_last:
            write_or_note("best.keras", lambda: save_network(state.network, path), path, unwritten)
        write_or_note("result.json", lambda: folder.write_result(summary), path, unwritten)
        plot = plot_learning_curve
        if evaluation.best_metric is not None:
            from kytolly.record.pictures import plot_supervised_curve

            plot = functools.partial(plot_supervised_curve, metric=evaluation.best_metric)
        if self.may_save is None:
            write_or_note(
                "learning_curve.png", lambda: save_learning_curve(path, plot), path, unwritten
            )
        notify(session.callbacks, "on_run_end", session.state, unwritten)
        return TrainResult(
            session.learner, session.history, evaluation, path, stopped_by, summary, unwritten
        )


def fitted_config(cfg: RunConfig, runner: EnvRunner, model: Model | None) -> RunConfig:
    """The config as it trains: with what the environment, XLA and the user's network decide."""
    xla = cfg.xla and xla_enabled()
    cfg = dataclasses.replace(cfg, num_envs=runner.num_envs, xla=xla)
    return cfg.fitted_to(runner.spec, own_network=model is not None)


class AgentTraining:
    """Makes what a session of reinforcement learning drives.

    Args:
        runner: Where the agent trains.
        evaluation_runner: Where evaluations play.
        device: Where to train; None: on the CPU.
        model: The user's network, as `Trainer.train` takes it.
        custom: The user's optimizer and policy.
        devices: Those that share the work, `device` first; () for one.
    """

    unit = "env_steps"

    def __init__(
        self,
        runner: EnvRunner,
        evaluation_runner: EnvRunner,
        device: str | None,
        model: Model | None = None,
        custom: CustomParts | None = None,
        devices: Sequence[str] = (),
    ):
        self.devices = devices
        self.runner, self.evaluation_runner, self.device = runner, evaluation_runner, device
        self.model, self.custom = model, custom

    @contextlib.contextmanager
    def parts(self, cfg: RunConfig, init_run: Path | None) -> Iterator[Parts]:
        """A new agent, which begins with the weights of a run, and what trains it."""
        runner, spec = self.runner, self.runner.spec
        with tf.device(self.device):
            params = part(cfg.algorithm, "policy").distribution_for(cfg, spec).num_params
            seen = without_mask(spec.obs)
            require_memory(cfg, seen, params, self.model, self.device, spec.frame_stack)
            agent = make_agent(cfg, spec, self.model, self.custom)
            if init_run is not None:
                from kytolly.deployment.initial_weights import load_initial_weights

                load_initial_weights(agent, init_run)
            if self.devices:
                from kytolly.loop.replicas import replicated_loop

                loop = replicated_loop(runner, agent, self.devices)
            else:
                loop = runner.loop(agent, self.device)
        try:
            report = AgentReport(runner, self.evaluation_runner, agent, loop, self.device)
            yield Parts(agent, loop, report)
        finally:
            runner.reclaim()
