"""An exported file beside the agent: outputs, microseconds for an action, returns of episodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kytolly.agent.acting import HostActor, HostObs
from kytolly.deployment.act_function import (
    NEXT_MEMORY,
    ActFunction,
    ActingParts,
    Run,
    forbidden,
    rows,
)
from kytolly.deployment.observations import closing_playground
from kytolly.environment.gym.step import GymSource, HostEnv
from kytolly.environment.mask import MASKED_LOGIT

LIMIT = 1e-4  # largest relative difference in float32
MAX_EPISODE_ENV_STEPS = 10_000  # env steps of an episode whose return is measured
BLOCKS, BLOCK_SECONDS = 5, 0.02  # a time is that of the fastest block


class Comparison(NamedTuple):
    """Differences between the outputs of a file and those expected.

    Attributes:
        largest_difference: Of values, or of params and value. What the mask forbids is left out.
        relative_difference: The same, of each output divided by its largest number where that is
            above 1: float32 has 7 digits. Infinite where an output is not finite.
        equal_actions: Rows with the same action; of continuous ones, up to `LIMIT`.
        near_ties: Other rows, where the values agree to `LIMIT` and so were nearly the same.
        action_difference: Of continuous actions, the largest; None for discrete ones.
        forbidden: Rows with an action that the mask forbids.
    """

    largest_difference: float
    relative_difference: float
    equal_actions: int
    near_ties: int
    action_difference: float | None
    forbidden: int


def compare(
    parts: ActingParts, outputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> Comparison:
    """Differences between the outputs of a file and those of the network."""
    largest, relative = largest_differences(outputs, expected)
    params = "values" if "values" in expected else "params"
    action = outputs["action"]
    equal = equal_rows(action, expected["action"])
    distribution = parts.distribution
    recomputed = distribution.host_to_env(distribution.host_mode(outputs[params]))
    near_ties = equal_rows(action, recomputed) & ~equal & (relative <= LIMIT)
    continuous = expected["action"].dtype.kind == "f"
    return Comparison(
        largest,
        relative,
        int(equal.sum()),
        int(near_ties.sum()),
        float(np.abs(action - expected["action"]).max()) if continuous else None,
        forbidden(parts, expected[params], action),
    )


def largest_differences(
    outputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> tuple[float, float]:
    """The largest difference and the relative one, as in `Comparison`."""
    largest = relative = 0.0
    for name in expected.keys() - {"action"}:
        allowed = expected[name] > MASKED_LOGIT / 2
        size = max(1.0, float(np.abs(expected[name][allowed]).max(initial=0.0)))
        difference = np.abs(outputs[name] - expected[name])[allowed]
        if not np.isfinite(difference).all():
            return float("inf"), float("inf")
        largest = max(largest, float(difference.max(initial=0.0)))
        relative = max(relative, float(difference.max(initial=0.0)) / size)
    return largest, relative


def equal_rows(action: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """[B] whether actions are the same; continuous ones up to the limit."""
    size = np.maximum(1.0, np.abs(expected)) if expected.dtype.kind == "f" else 0.0
    same = np.asarray(np.abs(action - expected) <= LIMIT * size)
    return np.all(same.reshape(len(same), -1), axis=-1)


def require_agreement(result: Comparison, count: int, path: Path, quantize: str | None) -> None:
    """ValueError where a file, compared on `count` observations, must not be kept."""
    unequal = count - result.equal_actions - result.near_ties
    if result.forbidden:
        wrong = f"takes {result.forbidden} of {count:,} actions that the mask forbids"
    elif quantize is None and result.relative_difference > LIMIT:
        wrong = f"differs by {result.relative_difference:.1e} from the agent, relatively"
    elif quantize is None and unequal:
        wrong = f"takes {unequal} of {count:,} actions that are not the agent's"
    else:
        return
    help_text = "Take another format" if quantize is None else "Export it without quantization"
    raise ValueError(
        f"{path} was not kept: the file {wrong}, expected at most {LIMIT:.0e} and the agent's "
        f"actions. {help_text}."
    )


def action_times(
    parts: ActingParts, act: ActFunction, obs: HostObs, runs: Mapping[str, Run]
) -> dict[str, float]:
    """Microseconds for the action of one observation, by the agent and by each of the `runs`."""
    obs = rows(obs, slice(0, 1))
    actor = HostActor(parts.network, parts.distribution, parts.obs_spec)
    inputs = act.named_inputs(obs)
    times = {"agent": microseconds(lambda: actor.greedy(obs))}
    return times | {name: microseconds(lambda r=run: r(inputs)) for name, run in runs.items()}


def microseconds(call: Callable[[], object]) -> float:
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
    parts: ActingParts,
    act: ActFunction,
    env: GymSource | None,
    run: Run,
    episodes: int,
    seed: int,
) -> dict[str, dict[str, Any]] | None:
    """Returns of the same episodes by the agent and by the file; None where nobody can play."""
    actor = HostActor(parts.network, parts.distribution, parts.obs_spec)
    actions = {
        "agent": actor.greedy,
        "file": lambda obs: action_of(run(act.named_inputs(obs))),
    }
    returns = {}
    for name, action in actions.items():
        with closing_playground(parts, env, seed) as playground:
            if isinstance(playground, str):
                return None
            returns[name] = measure_returns(playground, action, episodes)
    return returns


def action_of(outputs: Mapping[str, np.ndarray]) -> Any:
    """What an environment takes: an action, with the next memory where there is one."""
    memory = outputs.get(NEXT_MEMORY)
    return outputs["action"] if memory is None else (outputs["action"], memory)


def measure_returns(
    env: HostEnv, act: Callable[[HostObs], np.ndarray], episodes: int
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
