"""The evaluations of an agent, and the report of its progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.randomness import EVALUATION, FINAL_EVALUATION, stream_seed
from kytolly.callback.base import Evaluation, JsonObject, Outcome, TrainState
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.limits import training_step_limit

if TYPE_CHECKING:
    from kytolly.loop.base import EnvRunner, Evaluator, Loop


class AgentReport:
    """The progress of an agent's run, counted in env steps, and its greedy episodes.

    Args:
        runner: Where the agent trains.
        evaluation_runner: Where evaluations play.
        agent: The learner.
        loop: The loop that trains it: evaluations are compiled as it is.
        device: Where all of it runs, such as "/GPU:0"; None leaves it to TensorFlow.
    """

    outcome = Evaluation

    def __init__(
        self,
        runner: EnvRunner,
        evaluation_runner: EnvRunner,
        agent: KytollyAgent,
        loop: Loop,
        device: str | None,
    ):
        self.runner, self.evaluation_runner = runner, evaluation_runner
        self.agent, self.loop, self.device = agent, loop, device
        self.env_spec, self.name = runner.spec, runner.spec.name
        self._evaluator: Evaluator | None = None  # during training
        self._final_limit: int | None = None  # env steps, where no episode ended in those

    def first_state(self, run_dir: Path) -> TrainState:
        """The run at its beginning."""
        return TrainState(
            run_dir=run_dir,
            config=self.agent.cfg,
            env_name=self.name,
            loop=self.runner.loop_name,
            device=self.device or "/device:CPU:0",
            trackables={"agent": self.agent, **self.loop.trackables},
            network=self.agent.policy.network,
        )

    def counts(self) -> dict[str, int]:
        """Env steps, updates and episodes so far."""
        return {
            "env_steps": int(self.agent.env_steps),
            "updates": int(self.agent.policy.updates),
            "episodes": int(self.agent.episodes),
        }

    def evaluate(self, state: TrainState, deadline: float) -> Evaluation:
        """The evaluation at that point of the run, of which each has its own episodes."""
        limit = training_step_limit(state)
        if self._evaluator is None:
            episodes = self.agent.cfg.evaluation_episodes
            self._evaluator = self._make_evaluator(EVALUATION, episodes, limit)
        self._evaluator.limit.follow(limit)
        evaluation = self._evaluator.evaluate(state.progress, deadline)
        self._final_limit = evaluation.limit_of_endless
        return evaluation

    def evaluate_best(self, deadline: float) -> Evaluation:
        """Episodes whose seed keeps them apart from those that picked the weights."""
        episodes = self.agent.cfg.final_evaluation_episodes
        evaluator = self._make_evaluator(FINAL_EVALUATION, episodes, self._final_limit)
        evaluator.limit.has_warned = self._final_limit is not None
        return evaluator.evaluate(0, deadline)

    def _make_evaluator(
        self, purpose: int, episodes: int, step_limit: int | None = None
    ) -> Evaluator:
        return self.evaluation_runner.evaluator(
            self.agent.policy.network,
            episodes,
            stream_seed(self.agent.cfg.seed, purpose),
            xla=self.loop.xla,
            device=self.device,
            step_limit=step_limit,
        )

    def is_steady(self, progress: int) -> bool:
        """True if updates had begun."""
        return progress >= self.agent.cfg.first_update_env_steps

    def row(
        self, sums: LoopMetrics, before: TrainState, now: TrainState, seconds: float
    ) -> dict[str, float]:
        """The metrics by name of the so many seconds between two states."""
        row = sums.averages(self.agent)
        if self.loop.env_restarts is not None:
            row["env_restarts"] = self.loop.env_restarts
        idle = self.loop.take_idle_seconds()
        if idle is not None:
            row["device_idle"] = idle / seconds
        row["learning_rate"] = float(self.agent.policy.optimizer.learning_rate)
        if self.agent.policy.weights.noise_count:
            row["weight_noise"] = float(self.agent.policy.weights.mean_deviation())
        row["env_steps_per_second"] = (now.env_steps - before.env_steps) / seconds
        row["updates_per_second"] = (now.updates - before.updates) / seconds
        return row

    def summary(
        self, state: TrainState, speed: float, compile_seconds: float, evaluation: Outcome
    ) -> JsonObject:
        """The entries of `result.json` for an agent."""
        return {
            "algorithm": state.config.algorithm,
            "environment": state.env_name,
            "loop": state.loop,
            "seed": state.config.seed,
            "parameters": state.parameters,
            "env_steps": state.env_steps,
            "updates": state.updates,
            "wall_seconds": state.wall_seconds,
            "compile_seconds": compile_seconds,
            "env_steps_per_second": speed,
            "evaluation": evaluation.summary(),
        }
