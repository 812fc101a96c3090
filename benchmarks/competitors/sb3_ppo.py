"""Stable-Baselines3's PPO on Gymnasium's CartPole-v1.

The clock starts after `SETTLING_ROLLOUTS` rollouts and their updates, and stops when training
ends; both stamps fall between an update and the next rollout, so that the span holds whole cycles
only. PyTorch gets one thread per operation unless told otherwise, as in `sb3_dqn`.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from kytolly.benchmarks.competitors import make_parser, make_result, parse, print_result, versions
from kytolly.benchmarks.competitors.packages import require
from kytolly.benchmarks.competitors.sb3_dqn import make_clock
from kytolly.benchmarks.competitors.settings import PPOSettings

SETTLING_ROLLOUTS = 5  # PyTorch's first calls allocate; they are not the steady state


def make_model(settings: PPOSettings) -> Any:
    """Their PPO with the given settings, and its own default for everything else."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from torch import nn

    kwargs = {"disable_env_checker": True, "render_mode": None}
    return PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", settings.num_envs, env_kwargs=kwargs),
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
        policy_kwargs={
            "net_arch": list(settings.hidden),
            "activation_fn": {"tanh": nn.Tanh, "relu": nn.ReLU}[settings.activation],
        },
        seed=settings.seed,
        device="cpu",
    )


def updates_per_epoch(model: Any) -> int:
    """Adam's own count of its steps over SB3's count, which is one of epochs."""
    steps = {int(state["step"]) for state in model.policy.optimizer.state.values()}
    (count,) = steps  # every weight has taken part in every step
    return count // model._n_updates


def run(settings: PPOSettings, threads: int) -> dict[str, Any]:
    """Train, time the steady state, and return the result.

    Args:
        settings: What to run.
        threads: PyTorch's threads within one operation.
    """
    torch, _, _ = require("torch", "gymnasium", "stable_baselines3")
    torch.set_num_threads(threads)
    untimed = SETTLING_ROLLOUTS * settings.env_steps_per_iteration

    clock, model = make_clock(untimed), make_model(settings)
    model.learn(untimed + settings.whole_env_steps, callback=clock, log_interval=None)
    if clock.first is None:
        raise RuntimeError("Training ended before its first rollouts did; nothing was timed.")
    return make_result(
        name="stable-baselines3 PPO",
        versions=versions("stable-baselines3", "torch", "gymnasium", "numpy"),
        env_steps=clock.last[0] - clock.first[0],
        updates=(clock.last[1] - clock.first[1]) * updates_per_epoch(model),
        span=clock.span,
        compile_seconds=0.0,
        settings={**dataclasses.asdict(settings), "torch_threads": threads},
        note=(
            "Gymnasium's CartPole-v1 under DummyVecEnv and Monitor, as by default. Off: printing "
            "and writing logs, evaluation, progress bar, Gymnasium's environment checker, "
            "normalization of observations and rewards, clipping of the value. Its own: it "
            "bootstraps at the time limit, and its value loss is the mean square without a half. "
            f"Nothing is compiled. Timed after {clock.first[0]} env steps."
        ),
    )


def main(argv: list[str] | None = None) -> int:
    """Run the program."""
    parser = make_parser("sb3_ppo", __doc__, kind=PPOSettings, env_steps=20_000)
    parser.add_argument("--threads", type=int, default=1, help="PyTorch threads per operation")
    settings, arguments = parse(parser, argv)
    print_result(run(settings, arguments.threads))
    return 0


if __name__ == "__main__":
    sys.exit(main())
