"""`kytolly evaluate`: plays a run's best weights greedily."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kytolly.command.environment_options import played_environment
from kytolly.command.play import add_play_options
from kytolly.command.result import print_result
from kytolly.command.start import prepare_machine


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly evaluate`."""
    add_play_options(parser, 100, None)


def run(args: argparse.Namespace) -> int:
    """Play the episodes and print the result."""
    from kytolly.deployment.trained_run import read_run

    trained = read_run(args.run_dir)
    given = played_environment(args, trained)
    prepare_machine(trained.cfg)
    from kytolly.environment.gym.wrapped import wrapped_source
    from kytolly.experiment.seed_statistics import interquartile_mean
    from kytolly.trainer import Trainer

    env = wrapped_source(*given)
    evaluation = Trainer(progress=False).evaluate(args.run_dir, args.episodes, args.seed, env)
    result = {
        "evaluation": evaluation.summary(),
        "weights": "best",
        "return_iqm": interquartile_mean(evaluation.returns),
        "run_dir": args.run_dir,
    }
    print_result(result, args.json)
    return 0
