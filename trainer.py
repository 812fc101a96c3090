"""Trainer: from a configuration and an environment to a trained agent and a run on disk."""

from __future__ import annotations

import dataclasses
import functools
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kytolly.machine.configure import require_tensorflow_backend, xla_enabled

require_tensorflow_backend()

# ruff: noqa: E402  Keras reads its backend when it is imported
import keras
import tensorflow as tf

from kytolly.agent.algorithms import make_config, part
from kytolly.agent.make_agent import make_agent
from kytolly.callback.base import Callback, Evaluation, TrainState, notify, write_or_note
from kytolly.callback.defaults import run_callbacks
from kytolly.callback.keras_bridge import as_callbacks
from kytolly.config.run import RunConfig
from kytolly.environment.mask import without_mask
from kytolly.environment.saved_spec import spec_to_dict
from kytolly.loop.choose import choose_session, choose_side
from kytolly.loop.result import TrainResult
from kytolly.loop.session import TrainingSession
from kytolly.machine.devices import device_name
from kytolly.machine.memory import memory_use, require_memory
from kytolly.record.learning_curve import save_learning_curve
from kytolly.record.run_folder import RunFolder


@dataclasses.dataclass
class Attempt:
    """A training, which may go on with another config after a fault.

    Attributes:
        cfg: The config.
        log_dir: The run's folder; None for a new one.
        resume: Continue the run in it.
        faults: What happened before, for `result.json`.
        loop, session: Those of the present try.
        network: What goes on to learn after a fault; None: a new one does.
        init: The run whose weights it began with.
        unit: Of what a run counts, as in `TrainState`.
        began: When the present try did.
    """

    cfg: Any
    log_dir: Path | None
    resume: bool
    faults: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    loop: Any = None
    session: Any = None
    network: Any = None
    init: Path | None = None
    unit: str = "env_steps"
    began: float = dataclasses.field(default_factory=time.perf_counter)

    def run(
        self,
        device: str | None,
        train: Callable[[], TrainResult],
        release: Callable[[], None] = lambda: None,
    ) -> TrainResult:
        """Call `train` until a result, or a fault after which nothing helps; `release` between."""
        while True:
            try:
                return train()
            except Exception as error:
                from kytolly.loop.faults import prepare_next

                if not prepare_next(self, error, device):
                    raise
            release()
            self.began = time.perf_counter()
            gc.collect()  # what the failed program held

    def give_first_weights(self, agent: Any) -> None:
        """Give a new agent the weights that it begins with, unless a checkpoint holds others."""
        if self.init is None:
            return
        if self.resume and not RunFolder.existing(str(self.log_dir)).is_before_first_checkpoint():
            return
        from kytolly.deployment.first_weights import take_run_weights

        take_run_weights(agent, self.init)


class Trainer:
    """Trains agents, and evaluates runs.

    Args:
        log_dir: The run's folder. One that holds a run already is refused, unless that run is
            resumed. None makes a new folder under `runs/` for each training.
        progress: Show a progress bar on standard error.
    """

    def __init__(self, log_dir: str | Path | None = None, progress: bool = True):
        self.log_dir = None if log_dir is None else Path(log_dir)
        self.progress = progress

    def train(
        self,
        train_cfg: RunConfig | Mapping[str, Any],
        env: Any,
        cb: Sequence[Callback | keras.callbacks.Callback] = (),
        *,
        model: Any = None,
        optimizer: Any = None,
        policy: Any = None,
        evaluation_env: Any = None,
        resume: bool = False,
        init: str | Path | None = None,
    ) -> TrainResult:
        """Train an agent with the algorithm that the configuration names.

        Args:
            train_cfg: Configuration, or a mapping with `algorithm` and the fields to change.
            env: Gymnasium id, environment, vector environment, a function that makes one, or an
                environment in tensor code (`environment.spec.TensorEnvironment`).
            cb: Callbacks, ours and Keras's.
            model: Your own Keras model, or a function that makes one from an `EnvSpec`. It maps
                [B, *obs] to action values [B, A] or, for PPO, to (params [B, P], value [B]).
            optimizer: Your own Keras optimizer, or a function of the learning rate that makes one.
            policy: Your own learning rule: a subclass of the algorithm's policy.
            evaluation_env: What evaluations play in, given as `env` is; None takes `env`.
            resume: Continue the run in `log_dir` up to `train_cfg.total_env_steps`.
            init: Folder of another run, whose best weights and statistics of observations a new
                run begins with. Counters, optimizer and memory are new.

        Raises:
            ValueError: A setting, the environment or the model does not fit; the message says
                what was found, what was expected and what to do.
        """
        began, cfg = time.perf_counter(), make_config(train_cfg)
        device, own = device_name(cfg.device), as_callbacks(cb)
        if cfg.env_kwargs or cfg.wrappers:
            from kytolly.environment.gym.wrapped import wrapped_source

            env = wrapped_source(env, cfg.env_kwargs, cfg.wrappers)
        side = playing = choose_side(cfg, env)  # what must be closed, whatever happens
        cfg = dataclasses.replace(cfg, num_envs=side.num_envs, xla=cfg.xla and xla_enabled())
        attempt = Attempt(cfg, self.log_dir, resume, began=began)
        attempt.init = run_to_begin_from(init, self.log_dir, resume)
        try:
            if evaluation_env is not None:
                from kytolly.loop.playing import evaluation_side

                playing = evaluation_side(cfg, evaluation_env, side)
            parts = {"model": model, "own": (optimizer, policy, cfg.learning_rate)}
            train = functools.partial(self._try, attempt, side, playing, parts, own, device)
            return attempt.run(device, train, lambda: reclaim(side, attempt))
        finally:
            for each in {side, playing, attempt.loop} - {None}:
                each.close()

    def _try(
        self,
        attempt: Attempt,
        side: Any,
        playing: Any,
        parts: dict[str, Any],
        own: Sequence[Callback],
        device: str | None,
    ) -> TrainResult:
        """Train with the attempt's config until the end, or until a fault."""
        cfg, resume = attempt.cfg, attempt.resume
        with tf.device(device):
            params = part(cfg.algorithm, "policy").distribution_for(cfg, side.spec).num_params
            seen, stack = without_mask(side.spec.obs), side.spec.frame_stack
            require_memory(cfg, seen, params, parts["model"], device, stack)
            agent = make_agent(cfg, side.spec, **parts)
            attempt.give_first_weights(agent)
            loop = attempt.loop = side.loop(agent, device)
        evaluator = functools.partial(playing.evaluator, agent.policy.network, device=device)
        with RunFolder.open(attempt.log_dir, cfg, side.spec.name, resume) as folder:
            attempt.log_dir, attempt.resume = folder.path, True
            state = TrainState(
                run_dir=folder.path,
                config=cfg,
                env_name=side.spec.name,
                loop=side.loop_name,
                device=device or "/device:CPU:0",
                trackables={"agent": agent, **loop.trackables},
                network=agent.policy.network,
            )
            callbacks = run_callbacks(state, self.progress, own)
            session = choose_session(cfg)(agent, loop, evaluator, callbacks, state)
            session.faults, session.memory = attempt.faults, lambda: memory_use(state.device)
            attempt.session = session
            return run_session(session, folder, resume, attempt.began, attempt.init)

    def train_dqn(self, train_cfg: Any, env: Any, cb: Any = (), **options: Any) -> TrainResult:
        """`train` for the DQN family; a mapping without `algorithm` means dqn."""
        return self.train(make_config(train_cfg, "dqn"), env, cb, **options)

    def train_ppo(self, train_cfg: Any, env: Any, cb: Any = (), **options: Any) -> TrainResult:
        """`train` for PPO; a mapping without `algorithm` means ppo."""
        return self.train(make_config(train_cfg, "ppo"), env, cb, **options)

    def train_supervised(
        self, train_cfg: Any, task: Any, cb: Any = (), *, resume: bool = False
    ) -> TrainResult:
        """Train a network on rows of data: a `search.text.task.Task`, by a `SupervisedConfig`."""
        from kytolly.loop.supervised import make_session

        own, device = as_callbacks(cb), device_name(train_cfg.device)
        cfg = dataclasses.replace(train_cfg, xla=train_cfg.xla and xla_enabled())
        attempt = Attempt(cfg, self.log_dir, resume, unit="updates")

        def train() -> TrainResult:
            cfg, resume = attempt.cfg, attempt.resume
            session = make_session(cfg, task, device, attempt.network)
            with RunFolder.open(attempt.log_dir, cfg, task.name, resume) as folder:
                attempt.log_dir, attempt.resume = folder.path, True
                state = dataclasses.replace(session.state, run_dir=folder.path)
                session.callbacks = run_callbacks(state, self.progress, own)
                session.faults, session.memory = attempt.faults, lambda: memory_use(state.device)
                session.state, attempt.session, attempt.network = state, session, state.network
                return run_session(session, folder, resume, attempt.began)

        return attempt.run(device, train)

    def evaluate(
        self, run: str | Path, episodes: int = 100, seed: int | None = None, env: Any = None
    ) -> Evaluation:
        """Play the best weights in a run's folder greedily in fresh environments.

        Args:
            run: The run's folder.
            episodes: How many.
            seed: Seed of the episodes; None takes the final evaluation's.
            env: The environment, where the run's own name does not make it; whole, with its
                wrappers.
        """
        from kytolly.deployment.loaded_agent import read_best
        from kytolly.deployment.trained_run import read_run
        from kytolly.loop.playing import evaluate_network

        trained = read_run(run)
        env, cfg = trained.environment() if env is None else env, trained.cfg
        network = read_best(trained.folder.path, cfg)
        return evaluate_network(network, cfg, env, episodes, seed, device_name(cfg.device))


def train_dqn(train_cfg: Any, env: Any, cb: Any = (), **options: Any) -> TrainResult:
    """`Trainer().train_dqn`, in a new folder under `runs/`."""
    return Trainer().train_dqn(train_cfg, env, cb, **options)


def train_ppo(train_cfg: Any, env: Any, cb: Any = (), **options: Any) -> TrainResult:
    """`Trainer().train_ppo`, in a new folder under `runs/`."""
    return Trainer().train_ppo(train_cfg, env, cb, **options)


def reclaim(side: Any, attempt: Attempt) -> None:
    """Take back what the loop of an attempt that failed has of its side."""
    if attempt.loop is not None:
        side.reclaim(attempt.loop)
    attempt.loop = None


def run_to_begin_from(init: str | Path | None, log_dir: Path | None, resume: bool) -> Path | None:
    """The folder of the run that `init` names or, where a run is resumed, that it began with."""
    if not resume and init is not None:
        from kytolly.deployment.zoo import run_path

        return run_path(init).absolute()
    if not resume:
        return None
    if init is not None:
        raise ValueError(
            f"init is {str(init)!r} and resume is true, expected one of them: a resumed run goes "
            "on with its own weights. Leave one out."
        )
    saved = RunFolder.resumable(log_dir).read_config().init
    return None if saved is None else Path(saved)


def run_session(
    session: TrainingSession,
    folder: RunFolder,
    resume: bool,
    began: float,
    init: Path | None = None,
) -> TrainResult:
    """Run the session, or what is left of it, evaluate its best weights, and write the result."""
    if resume:
        from kytolly.loop.saved_session import continue_session
        from kytolly.record.resume import restored_state

        continue_session(session, *restored_state(folder, session.state))
    seen = getattr(session.agent, "env_spec", None)  # None: it learns from rows of data
    spec = None if seen is None else spec_to_dict(seen)
    parts = dict(getattr(session.agent, "part_names", ()))
    folder.write_config(session.cfg, session.state.env_name, session.state.loop, spec, init, parts)
    try:
        stopped_by = session.run()
        if stopped_by == "non_finite" and session.cfg.on_nan == "restart":
            from kytolly.loop.faults import restart_if_allowed

            restart_if_allowed(session)
        evaluation = session.evaluate_best()
    except KeyboardInterrupt:
        from kytolly.record.resume import what_is_saved

        raise KeyboardInterrupt(what_is_saved(session.state)) from None
    summary = session.summary(evaluation, stopped_by, time.perf_counter() - began)
    path, unwritten, callbacks = folder.path, session.unwritten, session.callbacks
    write_or_note("result.json", lambda: folder.write_result(summary), path, unwritten)
    metric = getattr(evaluation, "best_metric", None)
    write_or_note("learning_curve.png", lambda: save_learning_curve(path, metric), path, unwritten)
    notify(callbacks, "on_run_end", session.state, unwritten)
    return TrainResult(
        session.agent, session.history, evaluation, path, stopped_by, summary, unwritten
    )
