"""Trainings of one algorithm on one environment in one program, each a run in its own folder."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from kytolly.agent.make_agent import make_agent, make_network
from kytolly.agent.parts import Model
from kytolly.agent.randomness import EVALUATION, FINAL_EVALUATION, stream_seed
from kytolly.config.run import RunConfig
from kytolly.config.words import value_text
from kytolly.loop.device import DeviceLoop, TensorEnvRunner
from kytolly.loop.limits import training_step_limit
from kytolly.loop.population import Population, PopulationEvaluator
from kytolly.loop.reinforcement import AgentReport
from kytolly.loop.session import Evaluate, Parts, Request, Train
from kytolly.loop.signals import deferred_signals
from kytolly.record.checkpoint import FOLDER, checkpoints, prune
from kytolly.record.saved_run import read_result
from kytolly.training_run import TrainingRun, TrainResult

# Numbers of a config that members of one population may have different.
VARIED = (
    "learning_rate max_grad_norm huber_delta munchausen_scale munchausen_lowest "
    "entropy_temperature td_lambda gae_lambda clip_range value_coef entropy_coef"
).split()
KEPT = 2  # checkpoints of a run
LINE_SECONDS = 5.0  # between two lines of progress

Say = Callable[[str], None]  # shows a line of progress


class PopulationTraining:
    """Trains members whose configs differ by their seeds and by `VARIED` numbers alone.

    Args:
        configs: Config of each member, fitted to the environment.
        runner: The environment.
        folders: Folder of each member's run.
        device: Where to train; None: on the CPU.
        model: The user's network, as `Trainer.train` takes it.
        resume: Continue the runs in the folders.
        init_run: The run whose weights all members begin with; None: random ones.
        say: Shows a line of progress.
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
    ):
        self.configs, self.runner, self.folders = list(configs), runner, list(folders)
        self.device, self.model, self.say = device, model, say
        self.resume, self.init_run = resume, init_run
        varied = varied_numbers(self.configs)
        with tf.device(device):
            agent = make_agent(self.configs[0], runner.spec, model)
            self.loop = DeviceLoop(agent, runner.env, device)
            self.population = Population(self.loop, len(self.configs), varied)
        self.agent = agent
        self.problems: dict[int, str] = {}  # why a member has no result
        self.results: dict[int, TrainResult] = {}
        self._evaluator: PopulationEvaluator | None = None
        self._requests: dict[int, Any] = {}  # of the members that have not ended
        self._waiting: dict[int, Request] = {}  # what each of them asks for
        self._best: dict[int, list[Any]] = {}  # best weights of those that train no more
        self._member = 0
        self._line_at = 0.0

    def train(self) -> list[TrainResult | None]:
        """The results, None of a member that failed; `problems` says why."""
        began = time.perf_counter()
        if self.resume:
            self._begin_together()
        with deferred_signals() as raise_pending:
            try:
                for member in range(len(self.configs)):
                    self._start(member, began)
                while self._waiting:
                    raise_pending()
                    self._serve()
            except KeyboardInterrupt:
                self._interrupt()
                raise
        return [self.results.get(member) for member in range(len(self.configs))]

    @contextlib.contextmanager
    def parts(self, cfg: RunConfig, init_run: Path | None) -> Iterator[Parts]:
        """The agent of the member that starts, as it is before it has trained."""
        self._reset(cfg, init_run)
        agent = copy.copy(self.agent)
        agent.cfg, agent.policy = cfg, copy.copy(agent.policy)
        agent.policy.publish = lambda: None  # `Population.select` has done so
        if agent.fixed_rate is not None:
            agent.fixed_rate = cfg.learning_rate
        yield Parts(agent, self.loop, AgentReport(self.runner, self.runner, agent, self.loop, self.device))

    def _reset(self, cfg: RunConfig, init_run: Path | None) -> None:
        """Give the agent and its loop the state of a member at its beginning."""
        agent = self.agent
        self.population.select(self._member)
        with tf.device(self.device):
            if not isinstance(self.model, tf.Module):
                network = make_network(cfg, self.runner.spec, self.model)
                agent.policy.set_weights(network.get_weights())
            if init_run is not None:
                from kytolly.deployment.initial_weights import load_initial_weights

                load_initial_weights(agent, init_run)
            agent.random_stream.key[0].assign(cfg.seed)
            first = self.loop.first_state(cfg.seed)
            tf.nest.map_structure(lambda old, new: old.assign(new), self.loop.env_state, first)
            if agent.fixed_rate is not None:
                agent.policy.optimizer.learning_rate = cfg.learning_rate

    def _begin_together(self) -> None:
        """Take all members that have not ended back to the newest checkpoint that each of them has."""
        going = [folder for folder in self.folders if read_result(folder) is None]
        steps = [
            {step for step, _ in checkpoints(folder / FOLDER)} | {0}
            for folder in going
        ]
        common = max(set.intersection(*steps), default=0) if steps else 0
        for folder in going:
            if (folder / FOLDER).is_dir():
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
            is_member=True,
        )
        self._requests[member] = run.requests(began)
        self._go_on(member, lambda requests: next(requests))
        self.population.put(member)  # as it was made, or read from its checkpoint

    def _go_on(self, member: int, step: Callable[[Any], Request]) -> None:
        """Let a member's session work on the host until it asks for more."""
        try:
            request = self._waiting[member] = step(self._requests[member])
            if isinstance(request, Evaluate) and request.state is None:
                self._best[member] = self.agent.policy.network.get_weights()
        except StopIteration as end:
            self.results[member] = end.value
            self._end(member)
        except Exception as error:
            self.problems[member] = " ".join(str(error).split()) or type(error).__name__
            self.say(f"{self.folders[member].name}: {self.problems[member]}")
            self._end(member)

    def _end(self, member: int) -> None:
        self._waiting.pop(member, None)
        del self._requests[member]

    def _answer(self, member: int, answer: Any) -> None:
        self.population.select(member)
        self._go_on(member, lambda requests: requests.send(answer))

    def _serve(self) -> None:
        """Do on the device what the members wait for; all of them ask for the same, sooner or later.

        A member that has ended waits with its final evaluation for the others.
        """
        evaluated = self._asking(Evaluate)
        during = [member for member in evaluated if self._waiting[member].state is not None]
        training = self._asking(Train)
        if during:
            self._evaluate(during)
        elif training:
            self._train(training)
        else:
            self._evaluate_best(evaluated)

    def _asking(self, kind: type) -> list[int]:
        return [m for m, request in self._waiting.items() if isinstance(request, kind)]

    def _train(self, members: list[int]) -> None:
        request: Any = self._waiting[members[0]]
        metrics = self.population.run(request.amount)
        self._show_progress(members)
        for member in members:
            self._answer(member, type(metrics)(*(part[member] for part in metrics)))

    def _evaluate(self, members: list[int]) -> None:
        state: Any = self._waiting[members[0]].state
        if self._evaluator is None:
            episodes = state.config.evaluation_episodes
            self._evaluator = self._make_evaluator(EVALUATION, episodes, training_step_limit(state))
        evaluations = self._evaluator.evaluate(state.progress)
        for member in members:
            self._answer(member, evaluations[member])

    def _evaluate_best(self, members: list[int]) -> None:
        for member in members:
            self.population.select(member)
            self.agent.policy.set_weights(self._best[member])
            self.population.put(member)
        episodes = self.configs[0].final_evaluation_episodes
        evaluations = self._make_evaluator(FINAL_EVALUATION, episodes).evaluate()
        for member in members:
            self._answer(member, evaluations[member])

    def _make_evaluator(
        self, purpose: int, episodes: int, step_limit: int | None = None
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
        return PopulationEvaluator(self.population, one, seeds)


    def _show_progress(self, members: list[int]) -> None:
        now = time.monotonic()
        if now - self._line_at < LINE_SECONDS:
            return
        self._line_at = now
        done, total = self.population.env_steps, self.configs[0].total_env_steps
        others = len(self.configs) - len(members)
        ended = f", {others} have ended" if others else ""
        self.say(f"{len(members)} members, {done:,} of {total:,} env steps each{ended}")

    def _interrupt(self) -> None:
        """Let every member save what it has."""
        for member in list(self._requests):
            self.population.select(member)
            with contextlib.suppress(KeyboardInterrupt, StopIteration):
                self._requests[member].throw(KeyboardInterrupt)


def varied_numbers(configs: Sequence[RunConfig]) -> dict[str, list[float]]:
    """[P] values of the numbers that are not the same in all configs.

    Raises:
        ValueError: Something else differs, which one program cannot have both ways.
    """
    first, varied = configs[0], {}
    for field in dataclasses.fields(first):
        values = [getattr(cfg, field.name) for cfg in configs]
        if field.name == "seed" or all(value == values[0] for value in values):
            continue
        if field.name not in VARIED or None in values:
            raise ValueError(
                f"{field.name} is {value_text(values[0])} and {value_text(values[-1])} in one "
                "population, expected the same in all members, as the program depends on it. "
                f"Only {', '.join(VARIED)} and the seed may differ: train the others apart."
            )
        varied[field.name] = [float(value) for value in values]
    return varied
