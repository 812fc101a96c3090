"""Trainer: from a configuration and an environment to a trained agent and a run on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kytolly.machine import configure

configure.require_tensorflow_backend()

# ruff: noqa: E402  Keras reads its backend when it is imported
import keras
import tensorflow as tf

from kytolly.agent.algorithms import make_config, part
from kytolly.agent.kytolly import KytollyAgent, make_agent
from kytolly.agent.randomness import FINAL_EVALUATION, stream_seed
from kytolly.callback.base import Callback, Evaluation, TrainState
from kytolly.callback.defaults import run_callbacks
from kytolly.callback.keras_bridge import as_callbacks
from kytolly.config.run import RunConfig
from kytolly.loop.choose import choose_side
from kytolly.loop.session import TrainingSession
from kytolly.machine.devices import available_bytes, device_name
from kytolly.record.checkpoint import BEST
from kytolly.record.pictures import save_learning_curve
from kytolly.record.resume import restored_state, what_is_saved
from kytolly.record.run_folder import RunFolder


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What a training run leaves."""

    agent: KytollyAgent  # with the run's best weights: `agent.act(observation)`
    history: list[dict[str, float]] = dataclasses.field(repr=False)  # one row a log interval
    evaluation: Evaluation  # greedy episodes with the best weights, at the end
    run_dir: Path
    stopped_by: str  # total_env_steps, reward_threshold, early_stop, time or non_finite
    summary: dict[str, Any] = dataclasses.field(repr=False)  # what `result.json` holds
    unwritten: dict[str, str] = dataclasses.field(default_factory=dict)  # why, by file


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
        evaluation_env: Any = None,
        resume: bool = False,
    ) -> TrainResult:
        """Train an agent with the algorithm that the configuration names.

        Args:
            train_cfg: Configuration, or a mapping with `algorithm` and the fields to change.
            env: Gymnasium id, environment, vector environment, a function that makes one, or an
                environment in tensor code (`environment.spec.TensorEnvironment`).
            cb: Callbacks, ours and Keras's.
            model: Your own Keras model, or a function that makes one from an `EnvSpec`. It maps
                [B, *obs] to action values [B, A] or, for PPO, to (params [B, P], value [B]).
            evaluation_env: What evaluations play in, given as `env` is; None takes `env`.
            resume: Continue the run in `log_dir` up to `train_cfg.total_env_steps`.

        Raises:
            ValueError: A setting, the environment or the model does not fit; the message says
                what was found, what was expected and what to do.
        """
        began = time.perf_counter()
        cfg = make_config(train_cfg)
        device, own = device_name(cfg.device), as_callbacks(cb)
        cfg = dataclasses.replace(cfg, xla=cfg.xla and configure.xla_enabled())
        side = playing = opened = choose_side(cfg, env)  # what must be closed, whatever happens
        cfg = dataclasses.replace(cfg, num_envs=side.num_envs)
        try:
            if evaluation_env is not None:
                from kytolly.loop.evaluation_env import evaluation_side

                playing = evaluation_side(cfg, evaluation_env, side)
            with tf.device(device):
                agent = make_agent(cfg, side.spec, model, available_bytes(device))
                loop = opened = side.loop(agent, device)
            evaluator = functools.partial(playing.evaluator, agent.policy.network, device=device)
            callbacks = [*run_callbacks(cfg, self.progress), *own]
            with self._folder(f"{side.spec.name}_{cfg.algorithm}_{cfg.seed}", resume) as folder:
                state = TrainState(
                    run_dir=folder.path,
                    config=cfg,
                    env_name=side.spec.name,
                    loop=side.loop_name,
                    device=device or "/device:CPU:0",
                    trackables={"agent": agent, **loop.trackables},
                    network=agent.policy.network,
                )
                saved, best_weights = restored_state(folder, state) if resume else ({}, None)
                folder.write_config(cfg, side.spec.name, side.loop_name)
                session = TrainingSession(agent, loop, evaluator, callbacks, state, saved)
                session.best_weights = best_weights
                return run_session(session, folder, began)
        finally:
            for each in {opened, playing}:
                each.close()

    def train_dqn(self, train_cfg: Any, env: Any, cb: Any = (), **options: Any) -> TrainResult:
        """`train` for the DQN family; a mapping without `algorithm` means dqn."""
        return self.train(make_config(train_cfg, "dqn"), env, cb, **options)

    def train_ppo(self, train_cfg: Any, env: Any, cb: Any = (), **options: Any) -> TrainResult:
        """`train` for PPO; a mapping without `algorithm` means ppo."""
        return self.train(make_config(train_cfg, "ppo"), env, cb, **options)

    def evaluate(
        self, run: str | Path, episodes: int = 100, seed: int | None = None, env: Any = None
    ) -> Evaluation:
        """Play the best weights in a run's folder greedily in fresh environments.

        Args:
            run: The run's folder.
            episodes: How many.
            seed: Seed of the episodes; None takes the final evaluation's.
            env: The environment, where the run's own name does not make it.
        """
        from kytolly.agent.own_network import check_network
        from kytolly.record.network_file import load_network

        folder = RunFolder.existing(run)
        saved = folder.read_config()
        env = env or folder.trusted_environment(saved, trust=False)
        cfg = make_config(saved.settings)
        device, side = device_name(cfg.device), choose_side(cfg.for_playing(), env)
        part(cfg.algorithm, "network")  # its classes must be known before a file is read
        network = load_network(folder.path / BEST)
        check_network(network, cfg, side.spec)
        first = final_seed(cfg) if seed is None else seed
        with contextlib.closing(side), tf.device(device):
            evaluator = side.evaluator(network, episodes, first, xla=cfg.xla, device=device)
            return evaluator.evaluate()

    def _folder(self, name: str, resume: bool) -> RunFolder:
        if not resume:
            return RunFolder.create(self.log_dir, name)
        return RunFolder.resumable(self.log_dir).lock_folder()


def train_dqn(train_cfg: Any, env: Any, cb: Any = (), **options: Any) -> TrainResult:
    """`Trainer().train_dqn`, in a new folder under `runs/`."""
    return Trainer().train_dqn(train_cfg, env, cb, **options)


def train_ppo(train_cfg: Any, env: Any, cb: Any = (), **options: Any) -> TrainResult:
    """`Trainer().train_ppo`, in a new folder under `runs/`."""
    return Trainer().train_ppo(train_cfg, env, cb, **options)


def final_seed(cfg: RunConfig) -> int:
    """Keeps the final episodes apart from those that picked the best weights."""
    return stream_seed(cfg.seed, FINAL_EVALUATION)


def run_session(session: TrainingSession, folder: RunFolder, began: float) -> TrainResult:
    """Run the session, evaluate its best weights, and write the result."""
    agent, cfg = session.agent, session.cfg
    try:
        stopped_by = session.run()
        if session.best_weights is not None:
            agent.policy.set_weights(session.best_weights)
        evaluation = session.make_evaluator(
            cfg.final_evaluation_episodes, final_seed(cfg), xla=session.loop.xla
        ).evaluate(deadline=session.deadline + session.grace)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(what_is_saved(folder.path, cfg.algorithm)) from None
    summary = {
        "algorithm": cfg.algorithm,
        "environment": session.state.env_name,
        "loop": session.state.loop,
        "seed": cfg.seed,
        "env_steps": session.state.env_steps,
        "updates": session.state.updates,
        "wall_seconds": session.state.wall_seconds_before + time.perf_counter() - began,
        "compile_seconds": session.compile_seconds,
        "env_steps_per_second": session.steady_env_steps / max(session.steady_seconds, 1e-9),
        "evaluation": evaluation.summary(),
        "stopped_by": stopped_by,
        "run_dir": str(folder.path),
    }
    if session.loop.env_restarts is not None:
        summary["env_restarts"] = session.loop.env_restarts
    session.write_or_note("result.json", lambda: folder.write_result(summary))
    session.write_or_note("learning_curve.png", lambda: save_learning_curve(folder.path))
    return TrainResult(
        agent, session.history, evaluation, folder.path, stopped_by, summary, session.unwritten
    )
