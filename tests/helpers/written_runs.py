"""Runs whose config.yaml and metrics.csv are written by hand: nothing trains."""

import yaml

HEAD = "env_steps,updates,episodes,wall_seconds,loss,evaluation_return_mean"


def write_run(folder, returns, environment="CartPole-v1", every=100, **settings):
    """A run of PPO that was evaluated every `every` env steps."""
    folder.mkdir(parents=True)
    config = {
        "environment": environment,
        "loop": "device",
        "versions": {"kytolly": "0.2.0"},
        "settings": {"algorithm": "ppo", "seed": 0, "gamma": 0.99, **settings},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    lines = [
        f"{every * n},{n},{n},{n},{1.0 / n},{value}" for n, value in enumerate(returns, start=1)
    ]
    (folder / "metrics.csv").write_text("\n".join([HEAD, *lines]) + "\n")
    return folder
