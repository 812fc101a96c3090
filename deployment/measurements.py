"""Measurements of an export: microseconds for an action, and returns of episodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kytolly.agent.acting import HostActor
from kytolly.deployment.act_function import ActFunction, ActingParts, rows
from kytolly.deployment.observations import closing_playground
from kytolly.environment.gym.step import HostEnv

MAX_EPISODE_ENV_STEPS = 10_000  # env steps of an episode whose return is measured
BLOCKS, BLOCK_SECONDS = 5, 0.02  # a time is that of the fastest block


def action_times(
    parts: ActingParts, act: ActFunction, obs: Any, runs: dict[str, Callable]
) -> dict[str, float]:
    """Microseconds for the action of one observation, by the agent and by each of the `runs`."""
    one = rows(obs, slice(0, 1))
    actor = HostActor(parts.network, parts.distribution, parts.obs_spec)
    inputs = act.named_inputs(one)
    times = {"agent": microseconds(lambda: actor.greedy(one))}
    return times | {name: microseconds(lambda r=run: r(inputs)) for name, run in runs.items()}


def microseconds(call: Callable[[], Any]) -> float:
    """Time of a call, by the fastest of several blocks of calls."""
    count = 1
    best = float("inf")
    for block in range(-1, BLOCKS):
        began = time.perf_counter()
        for _ in range(count):
            call()
        each = (time.perf_counter() - began) / count
        if block >= 0:
            best = min(best, each)
        count = max(1, min(10_000, int(BLOCK_SECONDS / max(each, 1e-9))))
    return 1e6 * best


def compare_returns(
    parts: ActingParts, act: ActFunction, env: Any, run: Callable, episodes: int, seed: int
) -> dict[str, dict[str, Any]] | None:
    """Returns of the same episodes by the agent and by the file; None where nobody can play."""
    actor = HostActor(parts.network, parts.distribution, parts.obs_spec)
    players = {
        "agent": actor.greedy,
        "file": lambda obs: run(act.named_inputs(obs))["action"],
    }
    returns = {}
    for name, player in players.items():
        with closing_playground(parts, env, seed) as playground:
            if isinstance(playground, str):
                return None
            returns[name] = measure_returns(playground, player, episodes)
    return returns


def measure_returns(
    env: HostEnv, act: Callable[[Any], np.ndarray], episodes: int
) -> dict[str, Any]:
    """Returns and lengths of episodes, each environment its share of them.

    An episode that goes on for `MAX_EPISODE_ENV_STEPS` env steps ends the measurement.
    """
    quota = np.full(env.num_envs, episodes // env.num_envs)
    quota[: episodes % env.num_envs] += 1
    obs = env.reset()
    ends = []
    length = np.zeros(env.num_envs, int)
    while quota.any() and length.max() < MAX_EPISODE_ENV_STEPS:
        step = env.step(act(obs))
        obs = step.obs
        length = np.where(step.ended, 0, length + 1)
        for index in np.flatnonzero(step.ended & step.valid & (quota > 0)):
            quota[index] -= 1
            ends.append((float(step.episode_return[index]), float(step.episode_length[index])))
    if not ends:
        return {"episodes": 0, "return_mean": None, "return_std": None, "length_mean": None}
    returns, lengths = np.array(ends).T
    return {
        "episodes": len(ends),
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "length_mean": float(lengths.mean()),
    }
