"""Trainings of one algorithm on one environment in one program, each a run in its own folder."""

from __future__ import annotations

import contextlib
import copy
import math
import shutil
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.make_agent import make_agent, make_network
from kytolly.agent.parts import Model
from kytolly.agent.randomness import EVALUATION, FINAL_EVALUATION, stream_seed
from kytolly.callback.base import warn
from kytolly.config.run import RunConfig
from kytolly.experiment.pbt import Exploit, PopulationBased
from kytolly.experiment.seed_statistics import return_text
from kytolly.experiment.varied import varied_numbers
from kytolly.loop.device import DeviceLoop, TensorEnvRunner
from kytolly.loop.limits import training_step_limit
from kytolly.loop.mapped_population import MappedEvaluator, MappedPopulation
from kytolly.loop.population import Population, PopulationEvaluator, Rows
from kytolly.loop.recovery import NotWritten
from kytolly.loop.reinforcement import AgentReport
from kytolly.loop.session import Evaluate, Parts, Request, Train
from kytolly.loop.signals import deferred_signals
from kytolly.loop.turns import EvaluatorInTurns, PopulationInTurns
from kytolly.policy.adam import follows_schedule
from kytolly.record.checkpoint import FOLDER, checkpoints, prune
from kytolly.record.saved_checkpoint import DAMAGE, check_files
from kytolly.record.saved_run import read_result
from kytolly.training_run import TrainingRun, TrainResult

KEPT = 2  # checkpoints of a run
SAVE_SECONDS = 30.0  # between two checkpoints, where the config says no interval
LINE_SECONDS = 5.0  # between two lines of progress

Say = Callable[[str], None]  # shows a line of progress
# The members that end after so many env steps, given the returns of their evaluations.
WeakMembers = Callable[[int, dict[int, float]], Collection[int]]


def population_type(device: str | None, memory: str | None = None) -> type[Population]:
    """How members train on a device: at once on a GPU, in turns on a CPU or with a memory.

    The steps of a memory's gradient cannot be mapped.
    """
    mapped = device is not None and "GPU" in device and memory is None
    return MappedPopulation if mapped else PopulationInTurns


class PopulationTraining:
    """Trains members whose configs differ by their seeds and by what may vary alone.

    Args:
        configs: Config of each member, fitted to the environment.
        runner: The environment.
        folders: Folder of each member's run.
        device: Where to train; None: on the CPU.
        model: The user's network, as `Trainer.train` takes it.
        resume: Continue the runs in the folders; those with a result stay as they are.
        init_run: The run whose weights all members begin with; None: random ones.
        say: Shows a line of progress.
        wanted: The members that train; None: all. The others' places in the program stay idle.
        pbt: What makes weak members continue from strong ones; None: nothing does.

    Attributes:
        weak_members: Says which members end after an evaluation; None: none does.
    """

    unit = "env_steps"

    def __init__(
        self,
        configs: Sequence[RunConfig],
        runner: TensorEnvRunner,
        folders: Sequence[Path],
        device: str | None = None,
        model: Model | None = None,
        resume: bool = False,
        init_run: Path | None = None,
        say: Say = print,
        wanted: Sequence[int] | None = None,
        pbt: PopulationBased | None = None,
    ):
        self.configs, self.runner, self.folders = list(configs), runner, list(folders)
        parents = {folder.parent for folder in folders}
        self._names = [folder.name if len(parents) == 1 else run_name(folder) for folder in folders]
        self.device, self.model, self.say = device, model, say
        self.resume, self.init_run = resume, init_run
        self.wanted = range(len(self.configs)) if wanted is None else wanted
        varied = varied_numbers(self.configs) if pbt is None else pbt.numbers_of(self.configs)
        self._numbers = varied  # as they are now
        self.pbt = pbt
        self._exploit: Exploit | None = None  # decided, and done before the next rollout
        with tf.device(device):
            agent = make_agent(self.configs[0], runner.spec, model)
            scheduled = agent.scheduled.schedules
            rows: dict[str, Any] = {k: v for k, v in varied.items() if k not in scheduled}
            rows |= schedule_rows(scheduled, self.configs)
            if pbt is None and follows_schedule(agent.policy.optimizer):
                rows |= self._fall_rows(agent)
            self.loop = DeviceLoop(agent, runner.env, device)
            kind = population_type(device, configs[0].memory)
            self._is_mapped = kind is MappedPopulation
            self.population: Population = kind(self.loop, len(self.configs), rows)
        self.agent = agent
        self.weak_members: WeakMembers | None = None
        self.problems: dict[int, str] = {}  # why a member has no result
        self.results: dict[int, TrainResult] = {}
        self._evaluator: PopulationEvaluator | None = None  # during training
        self._final_evaluators: dict[bool, PopulationEvaluator] = {}  # by whether all play at once
        self._final_limit: int | None = None  # env steps, where no episode ended in evaluations
        self._scores: dict[int, float] = {}  # of the newest evaluation
        self._warned: set[tuple[int, str]] = set()
        self._requests: dict[int, Any] = {}  # of the members that have not ended
        self._waiting: dict[int, Any] = {}  # what each of them asks for
        self._best: dict[int, list[Any]] = {}  # best weights of those that train no more
        self._member = 0
        self._saved_at, self._saves, self._was_saved = time.monotonic(), False, False
        self._line_at = 0.0

    def train(self) -> list[TrainResult | None]:
        """The results, None of a member that failed; `problems` says why."""
        began = time.perf_counter()
        if self.resume:
            self._begin_together()
        with deferred_signals() as raise_pending:
            try:
                for member in self.wanted:
                    raise_pending()
                    self._start(member, began)
                if self.pbt is not None and self.resume and self._waiting:
                    numbers, self._exploit = self.pbt.go_back(self.population.env_steps)
                    self._set_numbers(numbers or self._numbers)
                while self._waiting:
                    raise_pending()
                    self._serve()
            except KeyboardInterrupt:
                self._interrupt()
                raise
        return [self.results.get(member) for member in range(len(self.configs))]

    def _fall_rows(self, agent: KytollyAgent) -> dict[str, Rows]:
        """The learning rates that fall over updates, where the members have different ones."""
        ends = [(cfg.learning_rate, cfg.learning_rate_final) for cfg in self.configs]
        if len(set(ends)) == 1 or agent.part_names:
            return {}
        from kytolly.loop.member_rate import follow_member_rates

        follow_member_rates(agent.policy)
        starts, finals = np.array(ends, np.float32).T
        return {"learning_rate": (starts, finals)}

    @contextlib.contextmanager
    def parts(self, cfg: RunConfig, init_run: Path | None) -> Iterator[Parts]:
        """The agent of the member that starts, as it is before it has trained."""
        self._reset(cfg, init_run)
        agent = copy.copy(self.agent)
        agent.cfg, agent.policy = cfg, copy.copy(agent.policy)
        agent.policy.publish = lambda: None  # `Population.select` has done so
        if agent.fixed_rate is not None:
            agent.fixed_rate = cfg.learning_rate
        report = AgentReport(self.runner, self.runner, agent, self.loop, self.device)
        yield Parts(agent, self.loop, report)

    def _set_numbers(self, numbers: dict[str, list[float]]) -> None:
        self._numbers = numbers
        for name, values in numbers.items():
            self.population.set_number(name, values)

    def _reset(self, cfg: RunConfig, init_run: Path | None) -> None:
        """Give the agent and its loop the state of a member at its beginning."""
        agent = self.agent
        self.population.select(self._member)
        with tf.device(self.device):
            if not isinstance(self.model, tf.Module):
                with tf.device("/CPU:0"):  # a GPU takes three times as long, op by op
                    network = make_network(cfg, self.runner.spec, self.model)
                agent.policy.set_weights(network.get_weights())
            if init_run is not None:
                from kytolly.deployment.initial_weights import load_initial_weights

                load_initial_weights(agent, init_run)
            agent.random_stream.key[0].assign(cfg.seed)
            first = self.loop.first_state(cfg.seed)
            tf.nest.map_structure(lambda old, new: old.assign(new), self.loop.env_state, first)
            if agent.fixed_rate is not None or "learning_rate" in agent.scheduled.schedules:
                agent.policy.optimizer.learning_rate = cfg.learning_rate

    def _begin_together(self) -> None:
        """Take the members that have not ended back to the newest checkpoint of all of them."""
        going = [self.folders[m] for m in self.wanted if read_result(self.folders[m]) is None]
        steps = [readable_checkpoints(folder) for folder in going]
        common = max(set.intersection(*steps), default=0) if steps else 0
        for folder in going:
            if not common:  # each begins anew
                shutil.rmtree(folder / FOLDER, ignore_errors=True)
            elif (folder / FOLDER).is_dir():
                prune(folder / FOLDER, common, KEPT)

    def _start(self, member: int, began: float) -> None:
        self._member = member
        folder = self.folders[member]
        if self.resume and read_result(folder) is not None:
            return
        resume = self.resume and (folder / "config.yaml").is_file()
        run = TrainingRun(
            self,
            self.configs[member],
            (),
            folder,
            resume,
            self.init_run,
            may_save=self._may_save_now,
        )
        self._requests[member] = run.requests(began)
        self._go_on(member, lambda requests: next(requests))
        self.population.put(member)  # as it was made, or read from its checkpoint

    def _go_on(self, member: int, step: Callable[[Any], Request]) -> None:
        """Let a member's session work on the host until it asks for more."""
        try:
            with self._named_warnings(member):
                request = self._waiting[member] = step(self._requests[member])
            if isinstance(request, Evaluate) and request.state is None:
                self._best[member] = self.agent.policy.network.get_weights()
        except StopIteration as end:
            result = self.results[member] = end.value
            if result.unwritten:
                self.problems[member] = str(NotWritten(result.run_dir, result.unwritten))
            self._end(member)
        except Exception as error:
            self.problems[member] = " ".join(str(error).split()) or type(error).__name__
            warn(f"{self._names[member]}: {self.problems[member]}")
            self._end(member)

    @contextlib.contextmanager
    def _named_warnings(self, member: int) -> Iterator[None]:
        """Say once, and of which member, what its session warns of."""
        caught: list[warnings.WarningMessage] = []
        try:
            with warnings.catch_warnings(record=True) as caught:
                yield
        finally:  # also where the session ends, which is an exception
            found = {(str(each.message), each.category): each for each in caught}
            for (text, kind), each in found.items():
                if not issubclass(kind, UserWarning):  # of a package: the same in all members
                    warnings.warn_explicit(text, kind, each.filename, each.lineno)
                elif (member, text) not in self._warned:
                    self._warned.add((member, text))
                    warn(f"{self._names[member]}: {text}")

    def _end(self, member: int) -> None:
        self._waiting.pop(member, None)
        del self._requests[member]

    def _answer(self, member: int, answer: Any) -> None:
        self.population.select(member)
        self._go_on(member, lambda requests: requests.send(answer))

    def _serve(self) -> None:
        """Do on the device what the members wait for; all ask for the same, sooner or later.

        A member that ends before the others has its result at once: whoever resumes them need not
        bring it back.
        """
        evaluated = self._asking(Evaluate)
        during = [member for member in evaluated if self._waiting[member].state is not None]
        training = self._asking(Train)
        if during:
            self._evaluate(during)
        elif evaluated:
            self._evaluate_best(evaluated, at_once=self._is_mapped and not training)
        else:
            self._train(training)

    def _asking(self, kind: type) -> list[int]:
        return [m for m, request in self._waiting.items() if isinstance(request, kind)]

    def _train(self, members: list[int]) -> None:
        request: Any = self._waiting[members[0]]
        if self._exploit is not None:
            self.population.copy(self._exploit.sources)
            self._set_numbers(self._exploit.numbers)
            self._exploit = None
        self._decide_saving()
        self._show_progress(members)
        for member, metrics in self.population.run_each(request.amount, members):
            self._go_on(member, lambda requests, metrics=metrics: requests.send(metrics))

    def _decide_saving(self) -> None:
        """Let all members save after this call, or none: they are resumed from the same moment."""
        now = time.monotonic()
        if self._was_saved:
            self._saved_at, self._was_saved = now, False
        is_set = self.configs[0].checkpoint_interval_env_steps is not None
        self._saves = is_set or now - self._saved_at >= SAVE_SECONDS

    def _may_save_now(self) -> bool:
        self._was_saved |= self._saves
        return self._saves

    def _evaluate(self, members: list[int]) -> None:
        state: Any = self._waiting[members[0]].state
        states: list[Any] = [self._waiting[member].state for member in members]
        limit = max(map(training_step_limit, states))
        if self._evaluator is None:
            episodes = state.config.evaluation_episodes
            self._evaluator = self._make_evaluator(EVALUATION, episodes, self._is_mapped, limit)
        self._evaluator.limit.follow(limit)
        evaluations = self._evaluator.evaluate(state.progress, members)
        limits = [evaluation.limit_of_endless for evaluation in evaluations.values()]
        self._final_limit = limit if all(limits) else None
        if self.pbt is not None:  # noted before any member can save what it has now
            scores = [-math.inf] * len(self.configs)
            for member in members:
                scores[member] = evaluations[member].score
            self._exploit = self.pbt.decide(state.progress, scores, self._numbers)
        for member in members:
            self._scores[member] = evaluations[member].return_mean
            self._answer(member, evaluations[member])
        if self.weak_members is not None:
            scores = {member: evaluations[member].return_mean for member in members}
            for member in self.weak_members(state.progress, scores):
                self._stop(member)

    def _evaluate_best(self, members: list[int], at_once: bool) -> None:
        """Evaluate the best weights of members that train no more."""
        for member in members:
            self.population.select(member)
            self.agent.policy.set_weights(self._best[member])
            self.population.put(member)
        if at_once not in self._final_evaluators:
            episodes = self.configs[0].final_evaluation_episodes
            evaluator = self._make_evaluator(FINAL_EVALUATION, episodes, at_once, self._final_limit)
            evaluator.limit.has_warned = self._final_limit is not None
            self._final_evaluators[at_once] = evaluator
        evaluations = self._final_evaluators[at_once].evaluate(0, members)
        for member in members:
            self._answer(member, evaluations[member])

    def _make_evaluator(
        self, purpose: int, episodes: int, at_once: bool, step_limit: int | None = None
    ) -> PopulationEvaluator:
        one = self.runner.evaluator(
            self.agent.policy.network,
            episodes,
            0,
            xla=self.loop.xla,
            device=self.device,
            step_limit=step_limit,
        )
        seeds = [stream_seed(cfg.seed, purpose) for cfg in self.configs]
        kind: Any = MappedEvaluator if at_once else EvaluatorInTurns
        return kind(self.population, one, seeds)

    def _show_progress(self, members: list[int]) -> None:
        now = time.monotonic()
        if now - self._line_at < LINE_SECONDS:
            return
        self._line_at = now
        done, total = self.population.env_steps, self.configs[0].total_env_steps
        others = len(self.configs) - len(members)
        ended = f", {others} have ended" if others else ""
        count = f"{len(members)} member{'s' * (len(members) > 1)}"
        self.say(f"{count}, {done:,} of {total:,} env steps each{ended}{self._scores_text()}")

    def _scores_text(self) -> str:
        """The newest evaluation of those that train, for a line of progress."""
        scores = [self._scores[m] for m in self._asking(Train) if m in self._scores]
        if not scores:
            return ""
        return f", evaluation return {return_text(float(np.mean(scores)))} on average"

    def _interrupt(self) -> None:
        """Let every member save what it has."""
        for member in list(self._requests):
            self._stop(member)

    def _stop(self, member: int) -> None:
        """Let a member, if it has not ended, save what it has, and end without a result."""
        if member not in self._requests:
            return
        self.population.select(member)
        with contextlib.suppress(KeyboardInterrupt, StopIteration):
            self._requests[member].throw(KeyboardInterrupt)
        self._end(member)


def run_name(folder: Path) -> str:
    """Name of a run among those of several groups of seeds, such as `clip_range=0.1/seed-3`."""
    return f"{folder.parent.name}/{folder.name}"


def readable_checkpoints(folder: Path) -> set[int]:
    """Env steps of a run's checkpoints whose files are whole, and 0, where it can begin anew."""
    whole = {0}
    for step, path in checkpoints(folder / FOLDER):
        with contextlib.suppress(*DAMAGE):
            check_files(path)
            whole.add(step)
    return whole


def schedule_rows(names: Collection[str], configs: Sequence[RunConfig]) -> dict[str, Rows]:
    """[P, ...] numbers of each of the schedules that are not the same in all configs."""
    from kytolly.agent.custom_parts import scheduled_numbers

    members = [scheduled_numbers(cfg) for cfg in configs]
    rows = {}
    for name in names:
        parts = zip(*(schedules[name].numbers for schedules in members), strict=True)
        stacked = tuple(np.stack(part) for part in parts)
        if any((part != part[:1]).any() for part in stacked):
            rows[name] = stacked
    return rows
