"""The tags of Stable-Baselines3, so that its dashboards show our runs.

Source: https://stable-baselines3.readthedocs.io/en/master/common/logger.html
"""

from __future__ import annotations

from collections.abc import Mapping

from kytolly.callback.base import TrainState

SB3_TAGS = {
    "episode_return": "rollout/ep_rew_mean",
    "episode_length": "rollout/ep_len_mean",
    "epsilon": "rollout/exploration_rate",
    "env_steps_per_second": "time/fps",
    "approximate_kl": "train/approx_kl",
    "policy_loss": "train/policy_gradient_loss",
    "process_memory_mb": "memory/process_mb",
    "process_memory_peak_mb": "memory/process_peak_mb",
    "device_memory_mb": "memory/device_mb",
    "device_memory_peak_mb": "memory/device_peak_mb",
}
SB3_EVALUATION = {"return_mean": "eval/mean_reward", "length_mean": "eval/mean_ep_length"}


def sb3_points(
    state: TrainState, row: Mapping[str, float], evaluation: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Metrics by tag; those that Stable-Baselines3 does not have keep their names."""
    if evaluation is not None:
        points = {SB3_EVALUATION.get(k, f"eval/{k}"): v for k, v in evaluation.items()}
        return points | {sb3_tag(name): value for name, value in row.items()}
    points = {sb3_tag(name): value for name, value in row.items() if name != "entropy"}
    if "entropy" in row:
        points["train/entropy_loss"] = -row["entropy"]  # the loss falls as the entropy rises
    return points | {
        "time/total_timesteps": state.env_steps,
        "time/episodes": state.episodes,
        "time/time_elapsed": state.wall_seconds,
        "train/n_updates": state.updates,
    }


def sb3_tag(name: str) -> str:
    """The tag of a metric; a name with a slash has its group already."""
    return SB3_TAGS.get(name, name if "/" in name else f"train/{name}")
