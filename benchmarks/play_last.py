"""Plays the last weights of a run, from its newest checkpoint.

    python -m kytolly.benchmarks.play_last RUN --episodes 100

It prints the mean and the interquartile mean of the returns, as `kytolly evaluate` does, which
plays the best weights instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from typing import Any

from kytolly.benchmarks.program import print_result

EPISODES = 100


def play_last(run: str, episodes: int, trust: bool = False) -> dict[str, Any]:
    """Play greedy episodes with the weights in a run's newest checkpoint; returns the metrics."""
    from kytolly.agent.make_agent import make_agent
    from kytolly.agent.randomness import FINAL_EVALUATION, stream_seed
    from kytolly.deployment.trained_run import read_run
    from kytolly.experiment.seed_statistics import interquartile_mean
    from kytolly.loop.env_runner import make_env_runner
    from kytolly.record.resume import restore

    trained = read_run(run)
    cfg = trained.cfg
    runner = make_env_runner(cfg, trained.environment(trust))
    agent = make_agent(cfg, runner.spec)
    seed = stream_seed(cfg.seed, FINAL_EVALUATION)
    loop = runner.loop(agent, None)
    try:
        trackables = {"agent": agent, **loop.trackables}
        network = agent.policy.network
        checkpoint = restore(trained.folder.path, trackables, network=network).path
        agent.policy.publish()
        evaluator = runner.evaluator(agent.policy.network, episodes, seed, xla=cfg.xla, device=None)
        metrics = dataclasses.asdict(evaluator.evaluate())
    finally:
        loop.close()
        runner.close()
    iqm = interquartile_mean(metrics.pop("returns"))
    return {
        **metrics,
        "weights": "last",
        "return_iqm": iqm,
        "env_steps": int(agent.env_steps.numpy()),
        "checkpoint": checkpoint,
    }


def main(argv: list[str] | None = None) -> int:
    """Play a run's last weights and print the metrics as one line of JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m kytolly.benchmarks.play_last",
        description="play the last weights of a run greedily",
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="episodes to play")
    parser.add_argument("--trust", action="store_true", help="import the modules that RUN names")
    arguments = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from kytolly.machine.configure import configure_gpu_optimization

    configure_gpu_optimization(verbose=False)
    print_result(play_last(arguments.run, arguments.episodes, arguments.trust))
    return 0


if __name__ == "__main__":
    sys.exit(main())
