"""What an export is worth: microseconds for an action, and returns of episodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kytolly.agent.acting import HostActor
from kytolly.deployment.act_function import ActFunction, ActingParts, rows
from kytolly.deployment.observations import closing_playground, play_episodes

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
    count, best = 1, float("inf")
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
            returns[name] = play_episodes(playground, player, episodes)
    return returns
