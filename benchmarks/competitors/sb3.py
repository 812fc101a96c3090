"""Stable-Baselines3: DQN and PPO on Gymnasium's CartPole-v1, DQN on an Atari game, and `predict`.

PPO with a memory is sb3-contrib's RecurrentPPO, which has an LSTM.

DQN makes one update per `--train-interval` env steps, as everywhere here. The clock starts after
the warm-up and `SETTLING_UPDATES` updates, or after `SETTLING_ROLLOUTS` rollouts of PPO with
theirs, and stops when training ends; both stamps fall between an update and the next rollout, so
that the span holds whole cycles only.

PyTorch gets one thread per operation unless told otherwise: for networks this small a second one
brings nothing (two cores, torch 2.13: 3,500 env steps/s with one thread, 3,200 with two and twice
the CPU time), and much less than nothing where another process wants the second core.
"""

from __future__ import annotations

import dataclasses
import sys
import time
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

from kytolly.benchmarks.acting import acting_result
from kytolly.benchmarks.program import (
    Program,
    Result,
    Span,
    make_result,
    refuse,
    require,
    run_programs,
    versions,
)
from kytolly.benchmarks.settings import (
    ATARI,
    ATARI_GAME,
    ActingSettings,
    DQNSettings,
    PPOSettings,
    RecurrentSettings,
)
from kytolly.config.fields import setting

if TYPE_CHECKING:
    import numpy as np
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.callbacks import BaseCallback

SETTLING_UPDATES = 100  # PyTorch's first calls allocate; they are not the steady state
SETTLING_ROLLOUTS = 5
ENV_KWARGS = {"disable_env_checker": True, "render_mode": None}
ACTING_MEMORY_UNITS = 64
CARTPOLE = "Gymnasium's CartPole-v1 under DummyVecEnv and Monitor, as by default"
ATARI_NOTE = "AtariWrapper, Monitor and VecFrameStack as in its zoo, one environment"


@dataclasses.dataclass(frozen=True)
class TorchOptions:
    """PyTorch's own."""

    threads: int = setting(1, "PyTorch threads per operation")


# --- training ------------------------------------------------------------------------------


def time_training(model: BaseAlgorithm, untimed: int, env_steps: int) -> BaseCallback:
    """Train, and time what comes after `untimed` env steps.

    Returns:
        A callback with the `span`, and the env steps and updates at its `first` and `last` stamp.
    """
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.span = Span()
            self.first: tuple[int, int] | None = None
            self.last = (0, 0)

        def _counts(self) -> tuple[int, int]:
            return self.model.num_timesteps, self.model._n_updates

        def _on_rollout_start(self) -> None:
            if self.first is None and self.model.num_timesteps >= untimed:
                self.first = self._counts()
                self.span.start()

        def _on_training_end(self) -> None:
            self.span.stop()
            self.last = self._counts()

        def _on_step(self) -> bool:
            return True

    clock = Clock()
    model.learn(untimed + env_steps, callback=clock, log_interval=None)
    if clock.first is None:
        raise RuntimeError("Training ended before the untimed env steps did; nothing was timed.")
    return clock


def training_result(
    name: str,
    clock: BaseCallback,
    updates_per_count: int,
    settings: dict[str, object],
    note: str,
) -> Result:
    """The result of `time_training`; SB3 counts `updates_per_count` updates as one."""
    return make_result(
        name=f"stable-baselines3 {name}",
        versions=versions("stable-baselines3", "torch", "gymnasium", "numpy"),
        env_steps=clock.last[0] - clock.first[0],
        updates=(clock.last[1] - clock.first[1]) * updates_per_count,
        span=clock.span,
        compile_seconds=0.0,
        settings=settings,
        note=f"{note} Nothing is compiled. Timed after {clock.first[0]} env steps.",
    )


def run_dqn(settings: DQNSettings, torch_options: TorchOptions) -> Result:
    """DQN on CartPole."""
    torch, _, _ = require("torch", "gymnasium", "stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(torch_options.threads)
    env = make_vec_env("CartPole-v1", settings.num_envs, env_kwargs=ENV_KWARGS)
    network = {"policy": "MlpPolicy", "policy_kwargs": {"net_arch": list(settings.hidden)}}
    return measure_dqn(settings, torch_options, CARTPOLE, env=env, **network)


def run_atari(settings: DQNSettings, torch_options: TorchOptions) -> Result:
    """DQN on an Atari game, with its own AtariWrapper and NatureCNN."""
    torch, gymnasium, ale_py, *_ = require("torch", "gymnasium", "ale_py", "cv2")
    require("stable_baselines3")
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    torch.set_num_threads(torch_options.threads)
    gymnasium.register_envs(ale_py)
    kwargs = {"disable_env_checker": True, "frameskip": 1}
    env = VecFrameStack(make_atari_env(ATARI_GAME, settings.num_envs, env_kwargs=kwargs), 4)
    return measure_dqn(settings, torch_options, ATARI_NOTE, env=env, policy="CnnPolicy")


def measure_dqn(
    settings: DQNSettings, torch_options: TorchOptions, what: str, **model: object
) -> Result:
    """Train their DQN, exploration at its final value after the warm-up, and time it.

    Args:
        settings: What to run.
        torch_options: PyTorch's own.
        what: What it plays, for the note.
        model: Environment, network and its arguments.
    """
    from stable_baselines3 import DQN

    interval = settings.train_interval
    untimed = settings.warmup_env_steps + SETTLING_UPDATES * interval
    untimed += -untimed % interval
    timed = settings.env_steps + -settings.env_steps % interval
    dqn = DQN(
        **model,
        learning_rate=settings.learning_rate,
        buffer_size=settings.buffer,
        learning_starts=settings.warmup_env_steps,
        batch_size=settings.batch_size,
        gamma=settings.gamma,
        train_freq=interval // settings.num_envs,
        gradient_steps=1,
        target_update_interval=settings.target_sync_env_steps,
        exploration_fraction=settings.warmup_env_steps / (untimed + timed),
        exploration_final_eps=settings.epsilon_final,
        max_grad_norm=settings.max_grad_norm,
        seed=settings.seed,
        device="cpu",
    )
    clock = time_training(dqn, untimed, timed)
    note = (
        f"{what}. Off: logging, evaluation, progress bar, Gymnasium's environment checker. "
        "Exploration is at its final value."
    )
    ran = {**dataclasses.asdict(settings), "torch_threads": torch_options.threads}
    return training_result("DQN", clock, 1, {**ran, "episodes": dqn._episode_num}, note)


def run_ppo(settings: PPOSettings, torch_options: TorchOptions) -> Result:
    """PPO on CartPole."""
    torch, library = require("torch", "stable_baselines3")
    return measure_ppo(
        "PPO",
        settings,
        torch_options,
        make=library.PPO,
        policy="MlpPolicy",
        policy_kwargs={
            "net_arch": list(settings.hidden),
            "activation_fn": activation(torch, settings),
        },
    )


def run_recurrent_ppo(settings: RecurrentSettings, torch_options: TorchOptions) -> Result:
    """sb3-contrib's RecurrentPPO on CartPole: a dense layer, an LSTM for both, a layer of each."""
    if settings.memory != "lstm":
        refuse(f"--memory is {settings.memory}, but sb3-contrib has an LSTM alone. Set it to lstm.")
    torch, contrib = require("torch", "sb3_contrib")
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    before, after = settings.hidden

    class DenseFeatures(BaseFeaturesExtractor):
        def __init__(self, space):
            super().__init__(space, before)
            layer = torch.nn.Linear(space.shape[0], before)
            self.layers = torch.nn.Sequential(layer, activation(torch, settings)())

        def forward(self, observations):
            return self.layers(observations)

    return measure_ppo(
        "RecurrentPPO",
        settings,
        torch_options,
        "its minibatches are made of sequences that are cut, and padded, at the ends of episodes, ",
        make=contrib.RecurrentPPO,
        policy="MlpLstmPolicy",
        policy_kwargs={
            "features_extractor_class": DenseFeatures,
            "lstm_hidden_size": settings.memory_units,
            "shared_lstm": True,
            "enable_critic_lstm": False,
            "net_arch": [after],
            "activation_fn": activation(torch, settings),
        },
    )


def activation(torch: types.ModuleType, settings: PPOSettings) -> type:
    """PyTorch's class of the activation of the hidden layers."""
    return {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[settings.activation]


def measure_ppo(
    name: str,
    settings: PPOSettings,
    torch_options: TorchOptions,
    what: str = "",
    *,
    make: Callable[..., BaseAlgorithm],
    **network: object,
) -> Result:
    """Train their PPO on CartPole and time it.

    Args:
        name: Of the algorithm.
        settings: What to run.
        torch_options: PyTorch's own.
        what: What is special about it, for the note.
        make: Class of the algorithm.
        network: Its arguments for the network.
    """
    torch, _ = require("torch", "gymnasium")
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(torch_options.threads)
    ppo = make(
        env=make_vec_env("CartPole-v1", settings.num_envs, env_kwargs=ENV_KWARGS),
        learning_rate=settings.learning_rate,
        n_steps=settings.num_steps,
        batch_size=settings.minibatch_rows,
        n_epochs=settings.epochs,
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        clip_range=settings.clip,
        ent_coef=settings.entropy_coef,
        vf_coef=settings.value_coef,
        max_grad_norm=settings.max_grad_norm,
        seed=settings.seed,
        device="cpu",
        **network,
    )
    untimed = SETTLING_ROLLOUTS * settings.env_steps_per_iteration
    clock = time_training(ppo, untimed, settings.whole_env_steps)
    (steps,) = {int(state["step"]) for state in ppo.policy.optimizer.state.values()}  # Adam's count
    note = (
        f"{CARTPOLE}. Off: printing and writing logs, evaluation, progress bar, Gymnasium's "
        "environment checker, normalization of observations and rewards, clipping of the value. "
        f"Its own: {what}it bootstraps at the time limit, and its value loss is the mean square "
        "without a half."
    )
    ran = {**dataclasses.asdict(settings), "torch_threads": torch_options.threads}
    return training_result(name, clock, steps // ppo._n_updates, ran, note)  # it counts epochs


# --- acting --------------------------------------------------------------------------------


def run_acting(settings: ActingSettings) -> Result:
    """`predict` of a loaded model, one observation at a time; its weights do not matter."""
    start = time.perf_counter()
    torch, library = require("torch", "stable_baselines3")
    torch.set_num_threads(1)
    network: dict[str, object] = {"net_arch": [64, 64]}
    packages = ["stable-baselines3", "torch", "numpy"]
    if settings.algorithm == "ppo-recurrent":
        (contrib,) = require("sb3_contrib")
        kind, policy = contrib.RecurrentPPO, "MlpLstmPolicy"
        network = {"net_arch": [64], "lstm_hidden_size": ACTING_MEMORY_UNITS}
        packages.append("sb3-contrib")
    else:
        kind = {"dqn": library.DQN, "ppo": library.PPO}[settings.algorithm]
        policy = "MlpPolicy"
    if settings.make:
        model = kind(policy, "CartPole-v1", policy_kwargs=network, device="cpu")
        model.save(settings.path)
        return {"path": settings.path}
    imported = time.perf_counter()
    model = kind.load(settings.path, device="cpu")
    moments = (start, imported, time.perf_counter())
    state: tuple[np.ndarray, ...] | None = None

    def act(obs: np.ndarray) -> None:
        nonlocal state
        _, state = model.predict(obs, state, deterministic=True)

    return acting_result(act, settings.observations, moments, packages)


PROGRAMS = {
    "dqn": Program(run_dqn, (DQNSettings, TorchOptions), {"env_steps": 20_000}),
    "ppo": Program(run_ppo, (PPOSettings, TorchOptions), {"env_steps": 20_000}),
    "ppo-recurrent": Program(
        run_recurrent_ppo,
        (RecurrentSettings, TorchOptions),
        {"env_steps": 5_000, "memory": "lstm"},
    ),
    "atari": Program(run_atari, (DQNSettings, TorchOptions), ATARI),
    "acting": Program(run_acting, (ActingSettings,)),
}

if __name__ == "__main__":
    sys.exit(run_programs(PROGRAMS, __doc__))
