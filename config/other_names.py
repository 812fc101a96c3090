"""The names of our settings in other libraries, for messages about unknown ones."""

from __future__ import annotations

# Stable-Baselines3's and CleanRL's names, where ours are not near enough to be found by spelling.
SETTINGS = {
    "buffer_size": "replay_capacity",
    "learning_starts": "warmup_env_steps",
    "train_frequency": "train_interval_env_steps",
    "train_freq": "train_interval_env_steps",
    "gradient_steps": "updates_per_interval",
    "target_update_interval": "target_sync_updates",
    "target_network_frequency": "target_sync_updates",
    "tau": "target_mix",
    "exploration_fraction": "exploration_env_steps",
    "exploration_initial_eps": "epsilon_start",
    "exploration_final_eps": "epsilon_final",
    "start_e": "epsilon_start",
    "end_e": "epsilon_final",
    "total_timesteps": "total_env_steps",
    "n_steps": "rollout_steps",
    "num_steps": "rollout_steps",
    "n_epochs": "epochs",
    "update_epochs": "epochs",
    "clip_coef": "clip_range",
    "clip_range_vf": "clip_range_value",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_coef",
    "norm_adv": "normalize_advantage",
    "net_arch": "hidden_units",
    "policy_kwargs": "hidden_units",
    "n_envs": "num_envs",
    "use_sde": "state_dependent_std",
    "n_eval_episodes": "evaluation_episodes",
    "eval_freq": "evaluation_interval_env_steps",
    "tensorboard_log": "log_dir",
}
