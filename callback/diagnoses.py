"""The texts of warnings while a run trains, and the faults that few runs can have.

Loaded when there may be one: `training_warnings` sees that first.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from kytolly.callback.base import Evaluation, TrainState

# The return of training (of texts, the negative loss), the score of an evaluation, its standard
# deviation over episodes, and whether both are in the same units.
TrendPoint: TypeAlias = tuple[float, float, float, bool]
IDLE_SHARE = 0.5  # of the time, above which the device waits too long
IDLE_SECONDS = 30.0  # of training, before anything is said about it
CLIPPED_SHARE = 0.05  # of the targets' probability, above which a distribution's bounds are wrong
NOISE = 2.0  # deviations of an evaluation's returns by which it must have fallen
MIN_FALL = 0.01  # of the first score, by which the last one must be lower
LATE = 0.75  # of the env steps, after which an agent is what it will be
COSTLY = 5.0  # env steps of an evaluation for each of training
MIN_GAP = 0.5  # deviations of an evaluation's returns between drawn and likeliest actions


class RareMetrics:
    """Looks at metrics of the host loop, of distributions with bounds, and of priorities."""

    def __init__(self):
        self._idle_seconds = self._seconds = 0.0  # since the first update

    def faults(self, state: TrainState, env_steps: int) -> Iterator[tuple[str, str]]:
        """A name and a text for each fault in the newest metrics, of so many env steps."""
        metrics, cfg = state.metrics, state.config
        speed = metrics.get("env_steps_per_second", 0.0)
        if "device_idle" in metrics and speed > 0:
            self._idle_seconds += metrics["device_idle"] * env_steps / speed
            self._seconds += env_steps / speed
            share = self._idle_seconds / self._seconds
            if self._seconds >= IDLE_SECONDS and share > IDLE_SHARE:
                yield (
                    "idle",
                    f"the device waited for environments {share:.0%} of the time. Raise "
                    "num_envs, set async_envs, or give an environment in tensor code.",
                )
        clipped = metrics.get("clipped_targets", 0.0)
        if clipped > CLIPPED_SHARE:
            yield (
                "bounds",
                f"{clipped:.0%} of the targets' probability lay beyond value_min {cfg.value_min:g} "
                f"and value_max {cfg.value_max:g} after {state.env_steps:,} env steps, and was "
                "clipped: returns reach further. Widen the bounds, or lower gamma.",
            )
        ignored = metrics.get("ignored_priorities", 0.0)
        if ignored > 0.0:
            yield (
                "priorities",
                f"{ignored:,.0f} errors of rows that are not finite were ignored up to env step "
                f"{state.env_steps:,}: these rows keep the priorities that they had. Look at the "
                "rewards, lower learning_rate, or set prioritized to false.",
            )


def jumped_loss(state: TrainState, name: str, value: float, usual: float, jump: float) -> str:
    """The warning about a loss of more than `jump` times its running median."""
    rate = state.metrics.get("learning_rate", math.nan)
    return (
        f"{name} is {value:.3g} after {state.progress:,} {state.units}, more than "
        f"{jump:g} times its running median {usual:.3g}, and stays there. Lower "
        f"learning_rate (now {rate:.3g}) or max_grad_norm, or set warmup_ratio."
    )


def trend_faults(
    state: TrainState, points: Sequence[TrendPoint], are_first: bool
) -> Iterator[tuple[str, str]]:
    """A name and a text for each fault in the newest evaluations.

    Args:
        state: After the last of them.
        points: One for each.
        are_first: The run has had no others.
    """
    training, scores, _, _ = zip(*points, strict=True)
    if training[0] < training[-1] and max(scores[1:]) < scores[0]:
        if text := overfitting(state, points):
            yield "trends", text
    elif are_first and (text := nothing_found(state, points)):
        yield "alike", text
    if text := better_drawn(state, points):
        yield "drawn", text
    if text := costly_evaluations(state):
        yield "evaluations", text


def overfitting(state: TrainState, points: Sequence[TrendPoint]) -> str | None:
    """The warning about evaluations that fall while training rises; None where they do not.

    Evaluations of agents that learn well go up and down, too. So each must be worse than the one
    before, the fall more than noise, and the last below the training episodes, which explore. Those
    of texts have no noise of episodes: it suffices that none comes near the first again.

    Args:
        state: After the last evaluation.
        points: One for each evaluation; training has risen since the first, and no score has.
    """
    training, scores, deviations, comparable = zip(*points, strict=True)
    when = f"over {len(points)} evaluations up to {state.units[:-1]} {state.progress:,}"
    fell = f"fell from {scores[0]:.4g} to {scores[-1]:.4g}"
    advice = "The best weights are kept"
    least = MIN_FALL * abs(scores[0])
    if not comparable[-1]:
        if scores[0] - max(scores[1:]) <= least:
            return None
        name = state.evaluation.best_metric if state.evaluation else "score"
        return (
            f"{when} the training loss fell from {-training[0]:.4g} to {-training[-1]:.4g}, and "
            f"{name} of the evaluations {fell}: the network overfits its training data. {advice}; "
            "stop early with early_stop_patience, raise weight_decay, or give more data."
        )
    rises = all(old < new for old, new in itertools.pairwise(training))
    falls = all(old > new for old, new in itertools.pairwise(scores))
    big = scores[0] - scores[-1] > max(least, NOISE * max(deviations))
    if not (rises and falls and big and scores[-1] < training[-1]):
        return None
    return (
        f"{when} the training return rose from {training[0]:.4g} to {training[-1]:.4g}, and the "
        f"evaluation return {fell}: the agent may fit its exploration or its training "
        f"environments. {advice}; look at the evaluation environment, or stop early with "
        "early_stop_patience."
    )


def nothing_found(state: TrainState, points: Sequence[TrendPoint]) -> str | None:
    """The warning about a run of which every episode so far returned the same; None elsewhere.

    Args:
        state: After the last of the run's first evaluations.
        points: One for each.
    """
    training, scores, deviations, _ = zip(*points, strict=True)
    if any(deviations) or len({f"{value:.6g}" for value in (*training, *scores)}) > 1:
        return None
    advice = "train longer, or give a reward on the way to the goal"
    if getattr(state.config, "normalize_advantage", False):
        advice = f"set normalize_advantage to false, which keeps actions random meanwhile, {advice}"
    return (
        f"every episode of training and evaluation up to env step {state.env_steps:,} returned "
        f"{scores[0]:.6g}: nothing says yet which actions are better. If it stays so, {advice}."
    )


def better_drawn(state: TrainState, points: Sequence[TrendPoint]) -> str | None:
    """The warning about a policy whose likeliest actions do worse than those of training.

    The average that is evaluated lags behind, so the worst of training must be above the best of
    the evaluations. None where it is not, or as long as much may change.

    Args:
        state: After the last evaluation.
        points: One for each evaluation.
    """
    cfg = state.config
    if state.progress < LATE * state.total:
        return None
    training, scores, deviations, comparable = zip(*points, strict=True)
    gap = statistics.mean(training) - statistics.mean(scores)
    least = max(MIN_GAP * statistics.mean(deviations), MIN_FALL * abs(statistics.mean(scores)))
    if min(training) <= max(scores) or gap <= least or not all(comparable):
        return None
    found = f"{statistics.mean(training):.4g}", f"{statistics.mean(scores):.4g}"
    when = f"over {len(points)} evaluations up to env step {state.env_steps:,} training, which"
    if not hasattr(cfg, "entropy_coef"):
        return (
            f"{when} takes random actions, too, returned {found[0]}, and the evaluations, which "
            f"take the best ones, {found[1]}: these go in circles, or repeat what changes nothing. "
            "Train longer, forbid what does nothing by an action_mask, or give it a memory."
        )
    return (
        f"{when} draws its actions, returned {found[0]}, and the evaluations, which take the "
        f"likeliest ones, {found[1]}. Where chance helps, as when an agent sees only a part, play "
        "with agent.act(obs, deterministic=False); else train longer or give it a memory."
    )


def costly_evaluations(state: TrainState) -> str | None:
    """The warning about evaluations that play far more than training does; None where they do not.

    In the device loop an env step costs next to nothing without an update.
    """
    played, cfg = state.evaluation, state.config
    if not isinstance(played, Evaluation) or state.loop != "host":
        return None
    between = state.interval("evaluation", 20)
    share = played.episodes * played.length_mean / between
    if share < COSTLY:
        return None
    return (
        f"an evaluation plays {played.episodes} episodes of {played.length_mean:,.0f} env steps, "
        f"{share:.0f} times as many env steps as training takes between two of them ({between:,}): "
        "that may take longer than training. Lower evaluation_episodes, or raise "
        f"evaluation_interval_env_steps. The last one will play {cfg.final_evaluation_episodes} "
        "(final_evaluation_episodes)."
    )


def suspects(state: TrainState) -> str:
    """The settings that may make numbers overflow, with the values found, in words."""
    rate = state.metrics.get("learning_rate", math.nan)
    clipping = getattr(state.config, "max_grad_norm", None)
    policy = getattr(state.network, "dtype_policy", None)
    precision = getattr(policy, "name", getattr(state.config, "precision", "unknown"))
    half = " (try float32 or mixed_bfloat16)" if precision == "mixed_float16" else ""
    return (
        f"learning_rate, now {rate:.3g}, and max_grad_norm {clipping} (lower them), precision "
        f"{precision}{half}"
    )
