"""`--tuned` of `kytolly train`: which of this project's settings for a task a new run takes."""

from __future__ import annotations

from typing import Any

from kytolly.command.exits import BadInput
from kytolly.config.tuned import TUNED, tuned_settings
from kytolly.config.words import nearest, value_text


def chosen_tuned_settings(wanted: bool | None, algorithm: str, env: str) -> dict[str, Any]:
    """The tuned settings of a task, or none.

    Args:
        wanted: Whether they were asked for; None takes them where there are some.
        algorithm: Name of an algorithm.
        env: Gymnasium id.

    Raises:
        BadInput: They were asked for, and there are none.
    """
    found = {} if wanted is False else tuned_settings(algorithm, env)
    if wanted and not found:
        known = TUNED.get(algorithm, {})
        tasks = f"one of {', '.join(known)}" if known else f"an algorithm of {', '.join(TUNED)}"
        raise BadInput(
            f"--tuned is given, and there are no tuned settings of {algorithm} for "
            f"{value_text(env)}, expected {tasks}.{nearest(env, known) or ' Leave --tuned out.'}"
        )
    return found


def tuned_line(cfg: Any, env: str) -> str:
    """What is said of a config's tuned settings; empty where it has none.

    Args:
        cfg: The config.
        env: Gymnasium id.
    """
    tuned = tuned_settings(cfg.algorithm, env)
    values = [f"{name} {value}" for name, value in tuned.items() if getattr(cfg, name) == value]
    if not values:
        return ""
    return f"tuned settings for {env}: {', '.join(values)}. --no-tuned leaves them out."
