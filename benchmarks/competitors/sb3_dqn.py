"""Stable-Baselines3's DQN on Gymnasium's CartPole-v1.

One update per `--train-interval` env steps, as everywhere here. The clock starts when the warm-up
(random steps, then `SETTLING_UPDATES` updates) is over, and stops when training ends; both stamps
fall between an update and the next rollout, so that the span holds whole cycles only.

PyTorch gets one thread per operation unless told otherwise: for networks this small a second one
brings nothing (two cores, torch 2.13: 3,500 env steps/s with one thread, 3,200 with two and twice
the CPU time), and much less than nothing where another process wants the second core.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from kytolly.benchmarks.competitors import (
    Span,
    make_parser,
    make_result,
    parse,
    print_result,
    versions,
)
from kytolly.benchmarks.competitors.packages import require
from kytolly.benchmarks.competitors.settings import Settings

SETTLING_UPDATES = 100  # PyTorch's first calls allocate; they are not the steady state


def make_clock(untimed: int) -> Any:
    """A callback that stamps the first rollout after `untimed` env steps and the end."""
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

    return Clock()


def make_model(settings: Settings, total_env_steps: int) -> Any:
    """Their DQN with the given settings, exploration at its final value after the warm-up."""
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_vec_env

    kwargs = {"disable_env_checker": True, "render_mode": None}
    arguments = dqn_arguments(settings, total_env_steps)
    return DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", settings.num_envs, env_kwargs=kwargs),
        policy_kwargs={"net_arch": list(settings.hidden)},
        **arguments,
    )


def dqn_arguments(settings: Settings, total_env_steps: int) -> dict[str, Any]:
    """The arguments of their DQN beside the network and the environment."""
    return {
        "learning_rate": settings.learning_rate,
        "buffer_size": settings.buffer,
        "learning_starts": settings.warmup_env_steps,
        "batch_size": settings.batch_size,
        "gamma": settings.gamma,
        "train_freq": settings.train_interval // settings.num_envs,
        "gradient_steps": 1,
        "target_update_interval": settings.target_sync_env_steps,
        "exploration_fraction": settings.warmup_env_steps / total_env_steps,
        "exploration_final_eps": settings.epsilon_final,
        "max_grad_norm": settings.max_grad_norm,
        "seed": settings.seed,
        "device": "cpu",
    }


def run(
    settings: Settings,
    threads: int,
    make: Callable[[Settings, int], Any] = make_model,
    what: str = "Gymnasium's CartPole-v1 under DummyVecEnv and Monitor, as by default",
) -> dict[str, Any]:
    """Train, time the steady state, and return the result.

    Args:
        settings: What to run.
        threads: PyTorch's threads within one operation.
        make: Makes the model, of the settings and the env steps in all.
        what: What it plays, for the note.
    """
    torch, _, _ = require("torch", "gymnasium", "stable_baselines3")
    torch.set_num_threads(threads)
    interval = settings.train_interval
    untimed = settings.warmup_env_steps + SETTLING_UPDATES * interval
    untimed += -untimed % interval
    total = untimed + settings.env_steps + -settings.env_steps % interval

    clock, model = make_clock(untimed), make(settings, total)
    model.learn(total, callback=clock, log_interval=None)
    if clock.first is None:
        raise RuntimeError("Training ended before its warm-up did; nothing was timed.")
    return make_result(
        name="stable-baselines3 DQN",
        versions=versions("stable-baselines3", "torch", "gymnasium", "numpy"),
        env_steps=clock.last[0] - clock.first[0],
        updates=clock.last[1] - clock.first[1],
        span=clock.span,
        compile_seconds=0.0,
        settings={
            **dataclasses.asdict(settings),
            "torch_threads": threads,
            "episodes": model._episode_num,
        },
        note=(
            f"{what}. Off: logging, "
            "evaluation, progress bar, Gymnasium's environment checker. Nothing is compiled. "
            f"Timed after {clock.first[0]} env steps, with exploration at its final value."
        ),
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = make_parser("sb3_dqn", __doc__, env_steps=20_000)
    parser.add_argument("--threads", type=int, default=1, help="PyTorch threads per operation")
    settings, arguments = parse(parser, argv)
    print_result(run(settings, arguments.threads))
    return 0


if __name__ == "__main__":
    sys.exit(main())
