"""`kytolly evaluate`: plays a run's best weights greedily."""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

from kytolly.agent.algorithms import make_config
from kytolly.command.environment_options import add_environment_options, import_from_here
from kytolly.command.exits import BadInput
from kytolly.command.options import add_trust, environment, episodes, path, seed
from kytolly.command.result import print_result
from kytolly.command.start import prepare_machine
from kytolly.config.fields import from_mapping
from kytolly.config.words import path_text

# Config of each kind of run that plays no episodes, and what it trains.
TEXT_MODELS = {
    "classifier": ("kytolly.config.classifier:ClassifierConfig", "a text classifier"),
    "ranker": ("kytolly.config.ranker:RankerConfig", "a re-ranker"),
    "rewriter": ("kytolly.config.rewriter:RewriterConfig", "a query rewriter"),
    "fine-tuning": ("kytolly.config.rewriting_ppo:RewritingPPOConfig", "a query rewriter, by PPO"),
}


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of `kytolly evaluate`."""
    add = parser.add_argument
    add("run_dir", type=path, metavar="RUN", help="folder of the run")
    add("--episodes", type=episodes, default=100, help="episodes to play")
    add("--env", type=environment, help="environment to play in; default: the run's own")
    add_environment_options(parser)
    add_trust(parser)
    add("--seed", type=seed, default=None, help="seed of the episodes")


def run(args: argparse.Namespace) -> int:
    """Play the episodes and print the result."""
    from kytolly.record.run_folder import RunFolder

    folder = RunFolder.existing(args.run_dir)
    saved = folder.read_config()
    refuse_text_model(saved.settings, path_text(args.run_dir))
    env = args.env or folder.trusted_environment(saved, trust=args.trust)
    wrappers = getattr(args, "wrappers", None) or folder.trusted_wrappers(saved, args.trust)
    cfg = make_config(saved.settings)
    arguments = (cfg.env_kwargs or {}) | getattr(args, "env_kwargs", {})
    prepare_machine(cfg)
    import_from_here()
    from kytolly.environment.gym.wrapped import wrapped_source
    from kytolly.trainer import Trainer

    env = wrapped_source(env, arguments, wrappers)

    evaluation = Trainer(progress=False).evaluate(args.run_dir, args.episodes, args.seed, env)
    print_result({"evaluation": evaluation.summary(), "run_dir": args.run_dir}, args.json)
    return 0


def refuse_text_model(settings: Mapping[str, Any], run_dir: str) -> None:
    """Refuse a run of a model of texts, with the command that measures it."""
    name = "fine-tuning" if "fine_tune" in settings else settings["algorithm"]
    if name not in TEXT_MODELS:
        return
    config, model = TEXT_MODELS[name]
    command = from_mapping(pkgutil.resolve_name(config), settings).command
    raise BadInput(
        f"{run_dir} is a run that trained {model}, expected one of an agent, which plays episodes. "
        f"Its metrics are in its result.json; `{command} --resume {run_dir}` measures it again."
    )
