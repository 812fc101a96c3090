"""Population-based training: weak members continue from strong ones, with other numbers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kytolly.config.run import RunConfig
from kytolly.config.schedules import known_names, table_text
from kytolly.config.words import value_text
from kytolly.record.files import write_text

LOG = (
    "pbt.jsonl"  # in a population's folder: a line for each time that members continued from others
)
SHARE = 0.2  # of the members that continue from as many others
FACTORS = (0.8, 1.25)  # by which a number is changed
FIRST_RANGE = 3.0  # by which the first numbers are at most larger or smaller than the config's
RESAMPLED = 0.25  # probability that a number is drawn anew instead
EVALUATIONS = 20  # of a run whose config names no interval
EXPLORED = ("learning_rate", "clip_range", "entropy_coef")  # where an algorithm has them


def evaluation_interval(cfg: RunConfig) -> int:
    """Env steps between two evaluations of a run."""
    return cfg.evaluation_interval_env_steps or max(1, cfg.total_env_steps // EVALUATIONS)


def config_for_pbt(cfg: RunConfig, interval: int, given: Collection[str] = ()) -> RunConfig:
    """A config whose numbers population-based training may change.

    Nothing falls by a schedule, which is what the training finds, and no member ends early. As
    evaluations decide, they come as often as decisions, unless the user says when.

    Args:
        cfg: What the user asks for.
        interval: Env steps between two decisions.
        given: Settings that he gave himself; one of them that does not fit is refused.
    """
    free = {"learning_rate_final": None, "warmup_ratio": 0.0, "schedules": None}
    free |= {"reward_threshold": None, "early_stop_patience": None}
    for name, value in free.items():
        if name in given and getattr(cfg, name) != value:
            raise ValueError(
                f"{name} is {value_text(getattr(cfg, name))}, expected none in population-based "
                "training, whose members go on to the end and find schedules themselves. Leave it "
                "out."
            )
    if evaluation_interval(cfg) > interval and "evaluation_interval_env_steps" not in given:
        free["evaluation_interval_env_steps"] = interval
    return dataclasses.replace(cfg, **free)


class Exploit(NamedTuple):
    """What happens between two rollouts.

    Attributes:
        env_steps: Of each member, until then.
        scores: [P] evaluations that decided.
        sources: [P] member whose state each continues from; its own place where it goes on.
        numbers: [P] numbers by name from then on.
    """

    env_steps: int
    scores: list[float]
    sources: list[int]
    numbers: dict[str, list[float]]


@dataclasses.dataclass
class PopulationBased:
    """Decides which members continue from which, and with what numbers.

    All that is random depends on the seed and the env steps alone.

    Source: Jaderberg et al. 2017, "Population Based Training of Neural Networks", arXiv:1711.09846,
    section 4: truncation selection; perturbation or a new draw.

    Attributes:
        config: Whose numbers are the middle of what is tried.
        size: Members, `P`.
        interval: Env steps of each member between two decisions.
        folder: The population's folder, which gets `pbt.jsonl`.
    """

    config: RunConfig
    size: int
    interval: int
    folder: Path

    def __post_init__(self):
        if self.interval < 1 or self.size < 2:
            raise ValueError(
                f"population-based training got a population of {self.size} and an interval of "
                f"{self.interval}, expected at least 2 members and an interval of at least 1. "
                "Raise it."
            )
        if not self.names:
            raise ValueError(
                f"{self.config.algorithm} has none of {', '.join(EXPLORED)} as a number that stays "
                "the same, expected one to change: set learning_rate_final to none."
            )
        self.events = self._read()

    @property
    def names(self) -> list[str]:
        """The numbers that are changed."""
        names = [name for name in EXPLORED if name in known_names(self.config)]
        names = [name for name in names if getattr(self.config, name, None)]  # none stays 0
        fixed = self.config.learning_rate_final is None and not self.config.warmup_ratio
        return [name for name in names if fixed or name != "learning_rate"]

    def configs(self) -> list[RunConfig]:
        """The configs of the members, with their seeds and the numbers that they begin with."""
        seeds = range(self.config.seed, self.config.seed + self.size)
        first = self._drawn(np.random.default_rng([self.config.seed, 0]))
        return [
            dataclasses.replace(
                self.config, seed=seed, **{name: float(first[name][m]) for name in first}
            )
            for m, seed in enumerate(seeds)
        ]

    def numbers_of(self, configs: Sequence[RunConfig]) -> dict[str, list[float]]:
        """[P] numbers by name that the members begin with."""
        return {name: [float(getattr(cfg, name)) for cfg in configs] for name in self.names}

    def decide(
        self, env_steps: int, scores: Sequence[float], now: dict[str, list[float]]
    ) -> Exploit | None:
        """What happens after so many env steps, which is written down; None where nothing does.

        Args:
            env_steps: Of each member.
            scores: [P] evaluations; -inf of a member that has ended. NaN is the weakest.
            now: [P] numbers by name.
        """
        last = self.events[-1].env_steps if self.events else 0
        if env_steps // self.interval == last // self.interval:
            return None
        if env_steps >= self.config.total_env_steps:
            return None
        rng = np.random.default_rng([self.config.seed, env_steps])
        keys = np.array([-np.inf if np.isnan(x) else x for x in scores])
        order = np.argsort(keys, kind="stable")
        count = max(1, round(SHARE * self.size)) if self.size < 5 else int(SHARE * self.size)
        weak, strong = order[:count], order[-count:]
        models = rng.choice(strong, size=count)
        is_better = keys[models] > keys[weak]  # a member that is as good goes on as it is
        weak, sources = weak[is_better], np.arange(self.size)
        sources[weak] = models[is_better]
        numbers = {name: np.array(values)[sources] for name, values in now.items()}
        drawn = self._drawn(rng)
        for name, values in numbers.items():
            middle = getattr(self.config, name)
            changed = values * rng.choice(FACTORS, size=self.size)
            changed = np.clip(changed, middle / 100.0, middle * 100.0)
            changed = np.where(rng.random(self.size) < RESAMPLED, drawn[name], changed)
            numbers[name] = np.where(np.isin(np.arange(self.size), weak), changed, values)
        event = Exploit(
            env_steps,
            [float(score) for score in scores],
            sources.tolist(),
            {name: values.tolist() for name, values in numbers.items()},
        )
        self.events.append(event)
        self._write()
        return event

    def go_back(self, env_steps: int) -> tuple[dict[str, list[float]] | None, Exploit | None]:
        """Forget what happened later: a population is resumed from its state after so many.

        Returns:
            The numbers then, None for those of the configs; and what was decided at that moment and
            is in no checkpoint.
        """
        self.events = [event for event in self.events if event.env_steps <= env_steps]
        self._write()
        before = [event for event in self.events if event.env_steps < env_steps]
        due = self.events[-1] if len(before) < len(self.events) else None
        return (before[-1].numbers if before else None), due

    def schedules(self, member: int, configs: Sequence[RunConfig]) -> dict[str, str]:
        """The schedules of the numbers by which a member became what it is, ancestors included."""
        total = self.config.total_env_steps
        pieces: list[tuple[int, dict[str, float]]] = []  # from an env step on, the latest first
        for event in reversed(self.events):
            numbers = {name: values[member] for name, values in event.numbers.items()}
            pieces.append((event.env_steps, numbers))
            member = event.sources[member]
        first = self.numbers_of(configs)
        pieces.append((0, {name: values[member] for name, values in first.items()}))
        pieces.reverse()
        half = 0.5 * self.config.env_steps_per_iteration  # between two rollouts nobody looks
        tables = {}
        for name in self.names:
            points = [(1.0, pieces[0][1][name])]
            for env_steps, numbers in pieces[1:]:
                if numbers[name] == points[-1][1]:
                    continue
                points.append((1.0 - (env_steps - half) / total, points[-1][1]))
                points.append((1.0 - env_steps / total, numbers[name]))
            points.append((0.0, points[-1][1]))
            remaining, values = np.array(points).T
            tables[name] = table_text(remaining, values)
        return tables

    def winner(self, member: int, configs: Sequence[RunConfig]) -> RunConfig:
        """The config by which one run repeats the numbers of a member and of its ancestors."""
        schedules = self.schedules(member, configs)
        return dataclasses.replace(configs[member], schedules=schedules)

    def _drawn(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """[P] numbers by name, evenly spread around the config's on a scale of powers."""
        return {
            name: getattr(self.config, name) * FIRST_RANGE ** rng.uniform(-1.0, 1.0, self.size)
            for name in self.names
        }

    def _read(self) -> list[Exploit]:
        file = self.folder / LOG
        if not file.is_file():
            return []
        try:
            lines = file.read_text("utf-8").splitlines()
            events = [Exploit(**json.loads(line)) for line in lines]
            if all(len(event.sources) == self.size for event in events):
                return events
        except (ValueError, TypeError):
            pass
        raise ValueError(
            f"{value_text(str(file))} does not tell how {self.size} members continued from each "
            "other, expected what population-based training wrote. Copy it back, or begin anew."
        )

    def _write(self) -> None:
        lines = [json.dumps(event._asdict()) for event in self.events]
        write_text(self.folder / LOG, "".join(f"{line}\n" for line in lines))
