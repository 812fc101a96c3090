"""Trainer: from a configuration and an environment to a trained agent and a run on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from kytolly.machine.facts import device_name, device_names, require_tensorflow_backend, xla_enabled

require_tensorflow_backend()

# ruff: noqa: E402  Keras reads its backend when it is imported
import keras

from kytolly.agent.algorithms import make_config
from kytolly.agent.parts import CustomParts, MakeOptimizer, Model, Optimizer
from kytolly.callback.base import Callback, Evaluation
from kytolly.config.run import RunConfig
from kytolly.loop.env_runner import configured_source, make_env_runner
from kytolly.policy.base import Policy
from kytolly.training_run import AgentTraining, TrainingRun, TrainResult, fitted_config

if TYPE_CHECKING:
    from kytolly.config.supervised import SupervisedConfig
    from kytolly.loop.base import EnvSource
    from kytolly.loop.supervised import Task

Settings = RunConfig | Mapping[str, Any]
Callbacks = Sequence[Callback | keras.callbacks.Callback]


class TrainOptions(TypedDict, total=False):
    """Further arguments of `Trainer.train`, which describes them."""

    model: Model | None
    optimizer: Optimizer | MakeOptimizer | None
    policy: type[Policy] | None
    evaluation_env: EnvSource | None
    resume: bool
    init: str | Path | None


class Trainer:
    """Trains agents, and evaluates runs.

    Args:
        log_dir: The run's folder. One that holds a run already is refused, unless that run is
            resumed. None makes a new folder under `runs/` for each training.
        progress: Show a progress bar on standard error.
    """

    def __init__(self, log_dir: str | Path | None = None, progress: bool = True):
        self.log_dir = None if log_dir is None else Path(os.path.expanduser(log_dir))
        self.progress = progress

    def train(
        self,
        train_cfg: Settings,
        env: EnvSource,
        cb: Callbacks = (),
        *,
        model: Model | None = None,
        optimizer: Optimizer | MakeOptimizer | None = None,
        policy: type[Policy] | None = None,
        evaluation_env: EnvSource | None = None,
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
        began = time.perf_counter()
        cfg, callbacks = make_config(train_cfg), as_callbacks(cb)
        device, devices = device_name(cfg.device), device_names(cfg.device)
        env = configured_source(cfg, env)
        with contextlib.ExitStack() as closing:
            if cfg.actors:
                from kytolly.machine.cluster import joined

                closing.enter_context(joined("ray", cfg.actors))
            runner = evaluation_runner = make_env_runner(cfg, env)
            closing.callback(runner.close)
            cfg = fitted_config(cfg, runner, model)
            parent = None
            if init is not None or resume:
                from kytolly.deployment.initial_weights import resolve_init_run

                parent = resolve_init_run(init, self.log_dir, resume)
            if evaluation_env is not None:
                from kytolly.loop.evaluation import make_evaluation_runner

                evaluation_runner = make_evaluation_runner(cfg, evaluation_env, runner)
                closing.callback(evaluation_runner.close)
            custom = CustomParts(optimizer, policy, first_rate=cfg.learning_rate)
            training = AgentTraining(runner, evaluation_runner, device, model, custom, devices)
            run = TrainingRun(training, cfg, callbacks, self.log_dir, resume, parent, self.progress)
            return run.train(began)

    def train_population(
        self,
        configs: Sequence[Settings],
        env: EnvSource,
        *,
        model: Model | None = None,
        resume: bool = False,
        init: str | Path | None = None,
    ) -> list[TrainResult]:
        """Train many agents in one program, each a run in a folder of its own.

        The folders are `seed-N`, or `member-K` where seeds repeat, in `log_dir`.

        Args:
            configs: One for each member. They differ by their seeds, and by numbers such as
                `gae_lambda` and `clip_range`: `experiment.varied.VARIED` has all.
            env: Id of an environment that exists as tensor code, or an environment in tensor code.
            model: As for `train`. All members begin with the weights of a model that is given;
                of a function that makes one, each with its own.
            resume: Continue the runs in `log_dir`; those with a result stay as they are.
            init: As for `train`.

        Returns:
            The results in the order of the configs. A member whose loss is no longer finite has
            one too: `stopped_by` is non_finite, and `agent` None where it had no weights before.

        Raises:
            ValueError: The members cannot be one program, do not fit the memory, or one of them
                failed; the others' results are in their folders.
        """
        from kytolly.experiment.members import print_progress, quiet, train_population

        checked = [make_config(cfg) for cfg in configs]
        say = print_progress if self.progress else quiet
        return train_population(
            checked, env, self.log_dir, say, model=model, resume=resume, init=init
        )

    def train_dqn(
        self,
        train_cfg: Settings,
        env: EnvSource,
        cb: Callbacks = (),
        **options: Unpack[TrainOptions],
    ) -> TrainResult:
        """`train` for the DQN family; a mapping without `algorithm` means dqn."""
        return self.train(make_config(train_cfg, "dqn"), env, cb, **options)

    def train_ppo(
        self,
        train_cfg: Settings,
        env: EnvSource,
        cb: Callbacks = (),
        **options: Unpack[TrainOptions],
    ) -> TrainResult:
        """`train` for PPO; a mapping without `algorithm` means ppo."""
        return self.train(make_config(train_cfg, "ppo"), env, cb, **options)

    def train_supervised(
        self,
        train_cfg: SupervisedConfig,
        task: Task,
        cb: Callbacks = (),
        *,
        resume: bool = False,
    ) -> TrainResult:
        """Train a network on rows of data: a `loop.supervised.Task`, by a `SupervisedConfig`."""
        from kytolly.loop.supervised import SupervisedTraining

        began = time.perf_counter()
        callbacks, device = as_callbacks(cb), device_name(train_cfg.device)
        make_loop = None
        if devices := device_names(train_cfg.device):
            from kytolly.loop.replicas import supervised_loops

            make_loop = supervised_loops(devices)
        cfg = dataclasses.replace(train_cfg, xla=train_cfg.xla and xla_enabled())
        training = SupervisedTraining(task, device, make_loop)
        run = TrainingRun(training, cfg, callbacks, self.log_dir, resume, None, self.progress)
        return run.train(began)

    def evaluate(
        self,
        run: str | Path,
        episodes: int = 100,
        seed: int | None = None,
        env: EnvSource | None = None,
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
        from kytolly.loop.evaluation import evaluate_network

        trained = read_run(run)
        cfg = trained.cfg
        source = trained.environment() if env is None else env
        network = read_best(trained.folder.path, cfg)
        device, seen = device_name(cfg.device), trained.saved.spec
        return evaluate_network(network, cfg, source, episodes, seed, device, seen)


def as_callbacks(cb: Callbacks) -> list[Callback]:
    """The callbacks as `callback.keras_bridge` makes them; none of none, at no cost."""
    if cb is None or (isinstance(cb, (list, tuple)) and not cb):
        return []
    from kytolly.callback import keras_bridge

    return keras_bridge.as_callbacks(cb)


def train_dqn(
    train_cfg: Settings, env: EnvSource, cb: Callbacks = (), **options: Unpack[TrainOptions]
) -> TrainResult:
    """`Trainer().train_dqn`, in a new folder under `runs/`."""
    return Trainer().train_dqn(train_cfg, env, cb, **options)


def train_ppo(
    train_cfg: Settings, env: EnvSource, cb: Callbacks = (), **options: Unpack[TrainOptions]
) -> TrainResult:
    """`Trainer().train_ppo`, in a new folder under `runs/`."""
    return Trainer().train_ppo(train_cfg, env, cb, **options)
