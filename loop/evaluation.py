"""Evaluations apart from training: in another environment, or of a saved network."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping

import keras
import tensorflow as tf

from kytolly.agent.networks import check_network
from kytolly.agent.randomness import FINAL_EVALUATION, stream_seed
from kytolly.callback.base import Evaluation
from kytolly.config.fields import DefaultCount
from kytolly.config.run import RunConfig
from kytolly.config.words import value_text
from kytolly.environment.spec import EnvSpec, spec_to_dict
from kytolly.loop.base import EnvRunner, EnvSource
from kytolly.loop.env_runner import make_env_runner


def make_evaluation_runner(cfg: RunConfig, env: EnvSource, trained: EnvRunner) -> EnvRunner:
    """The runner of evaluations, whose environment must look like the `trained` one."""
    others: dict[str, object] = {"loop": "auto"}
    if isinstance(env, str) or callable(env):
        names = ("async_envs", "env_threads", "on_env_fault")
        others |= {name: getattr(cfg, name) for name in names}
    runner = make_env_runner(evaluation_config(cfg, others), env)
    runner.close()  # evaluations make environments of their own
    if (runner.spec.obs, runner.spec.action) != (trained.spec.obs, trained.spec.action):
        raise ValueError(
            f"evaluation_env has observations {runner.spec.obs} and actions {runner.spec.action}, "
            f"expected those of the environment that trains: {trained.spec.obs} and "
            f"{trained.spec.action}."
        )
    return runner


def evaluate_network(
    network: keras.Model,
    cfg: RunConfig,
    env: EnvSource,
    episodes: int,
    seed: int | None,
    device: str | None,
    trained_with: Mapping[str, object] | None = None,
) -> Evaluation:
    """Greedy episodes of a Keras network; `seed` None means that of the final evaluation.

    `trained_with` is the spec of the environment that the network learned in, as plain data.
    """
    runner = make_env_runner(evaluation_config(cfg), env)
    first = stream_seed(cfg.seed, FINAL_EVALUATION) if seed is None else seed
    with contextlib.closing(runner), tf.device(device):
        try:
            check_network(network, cfg, runner.spec)
        except ValueError as error:
            raise _other_environment(runner.spec, trained_with or {}) or error from None
        return runner.evaluator(network, episodes, first, xla=cfg.xla, device=device).evaluate()


def _other_environment(spec: EnvSpec, trained_with: Mapping[str, object]) -> ValueError | None:
    """The error of an environment that differs from the one a network learned in; None for none."""
    shown = spec_to_dict(spec)
    differ = [name for name in ("observation", "action") if shown[name] != trained_with.get(name)]
    if not trained_with or not differ:
        return None
    found, expected = (
        " and ".join(f"{name} {value_text(each.get(name))}" for name in differ)
        for each in (shown, trained_with)
    )
    return ValueError(
        f"{spec.name} has {found}, expected what the run was trained with: {expected}. Play it in "
        "an environment with the same spaces."
    )


def evaluation_config(cfg: RunConfig, others: Mapping[str, object] | None = None) -> RunConfig:
    """The same with one environment, which only plays: settings of learning may not fit it.

    `others` are further settings by name.
    """
    changed = copy.copy(cfg)
    alone = {"num_envs": DefaultCount(1), "async_envs": False, "env_threads": False}
    alone |= {"on_env_fault": "stop", "actors": None}
    for name, value in {**alone, **(others or {})}.items():
        object.__setattr__(changed, name, value)
    return changed
