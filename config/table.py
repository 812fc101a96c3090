"""The settings of a table of action values, looked at together."""

from __future__ import annotations

from typing import Any


def check_table(cfg: Any) -> None:
    """Refuse a table where something needs a network, and let random actions last one step."""
    conflicts = {
        f"algorithm {cfg.algorithm!r}": cfg.outputs_per_action > 1,
        "noisy": cfg.noisy,
        "normalize_observations": cfg.normalize_observations,
    }
    for name, conflict in conflicts.items():
        if conflict:
            raise ValueError(
                f"network is 'table' with {name}, expected one of them: a table has a single "
                "number for each action. Set network='mlp', or leave the other out."
            )
    if cfg.exploration_repeat is None:
        object.__setattr__(cfg, "exploration_repeat", 1)
