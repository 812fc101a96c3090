"""Evaluations apart from training: in another environment, or of a saved network."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import tensorflow as tf

from kytolly.agent.networks import check_network
from kytolly.agent.randomness import FINAL_EVALUATION, stream_seed
from kytolly.callback.base import Evaluation
from kytolly.config.fields import Default
from kytolly.config.run import RunConfig
from kytolly.loop.choose import choose_side


def evaluation_side(cfg: RunConfig, env: Any, trained: Any) -> Any:
    """Where evaluations play; the environment must look to the agent like the `trained` one."""
    others: dict[str, Any] = {"loop": "auto"}
    if isinstance(env, str) or callable(env):
        others |= {"async_envs": cfg.async_envs, "on_env_fault": cfg.on_env_fault}
    side = choose_side(playing_config(cfg, **others), env)
    side.close()  # evaluations make environments of their own
    if (side.spec.obs, side.spec.action) != (trained.spec.obs, trained.spec.action):
        raise ValueError(
            f"evaluation_env has observations {side.spec.obs} and actions {side.spec.action}, "
            f"expected those of the environment that trains: {trained.spec.obs} and "
            f"{trained.spec.action}."
        )
    return side


def evaluate_network(
    network: Any, cfg: RunConfig, env: Any, episodes: int, seed: int | None, device: str | None
) -> Evaluation:
    """Greedy episodes of a Keras network; `seed` None means that of the final evaluation."""
    side = choose_side(playing_config(cfg), env)
    check_network(network, cfg, side.spec)
    first = stream_seed(cfg.seed, FINAL_EVALUATION) if seed is None else seed
    with contextlib.closing(side), tf.device(device):
        return side.evaluator(network, episodes, first, xla=cfg.xla, device=device).evaluate()


def playing_config(cfg: RunConfig, **others: Any) -> Any:
    """The same with one environment, which only plays: settings of learning may not fit it."""
    playing = copy.copy(cfg)
    alone = {"num_envs": Default(1), "async_envs": False, "on_env_fault": "stop"}
    for name, value in (alone | others).items():
        object.__setattr__(playing, name, value)
    return playing
