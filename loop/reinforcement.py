"""What a session of an agent evaluates, and what it says of its progress."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.randomness import EVALUATION, FINAL_EVALUATION, stream_seed
from kytolly.callback.base import Evaluation, TrainState
from kytolly.loop.learn import LoopMetrics
from kytolly.loop.limits import training_step_limit

if TYPE_CHECKING:
    from kytolly.loop.base import EnvRunner, Evaluator, Loop


class AgentEvaluations:
    """Greedy episodes of an agent.

    Args:
        runner: Where evaluations play.
        agent: Its network plays.
        loop: The loop that trains it: evaluations are compiled as it is.
        device: Where they run, such as "/GPU:0"; None leaves it to TensorFlow.
    """

    kind = Evaluation

    def __init__(self, runner: EnvRunner, agent: KytollyAgent, loop: Loop, device: str | None):
        self.runner, self.agent, self.loop, self.device = runner, agent, loop, device
        self._evaluator: Evaluator | None = None  # during training

    def evaluate(self, state: TrainState, deadline: float) -> Evaluation:
        """The evaluation at that point of the run, of which each has its own episodes."""
        if self._evaluator is None:
            cfg = self.agent.cfg
            seed = stream_seed(cfg.seed, EVALUATION)
            limit = training_step_limit(state)
            self._evaluator = self._make(cfg.evaluation_episodes, seed, limit)
        return self._evaluator.evaluate(state.progress, deadline)

    def evaluate_best(self, deadline: float) -> Evaluation:
        """Episodes whose seed keeps them apart from those that picked the weights."""
        cfg = self.agent.cfg
        seed = stream_seed(cfg.seed, FINAL_EVALUATION)
        return self._make(cfg.final_evaluation_episodes, seed, None).evaluate(0, deadline)

    def _make(self, episodes: int, seed: int, step_limit: int | None) -> Evaluator:
        return self.runner.evaluator(
            self.agent.policy.network,
            episodes,
            seed,
            xla=self.loop.xla,
            device=self.device,
            step_limit=step_limit,
        )


class AgentReport:
    """The progress of an agent's run, which is counted in env steps.

    Args:
        runner: Where the agent trains.
        agent: The learner.
        loop: The loop that trains it.
        device: Where training runs; None leaves it to TensorFlow.
    """

    def __init__(self, runner: EnvRunner, agent: KytollyAgent, loop: Loop, device: str | None):
        self.runner, self.agent, self.loop, self.device = runner, agent, loop, device
        self.env_spec, self.name = runner.spec, runner.spec.name

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

    def progress(self) -> int:
        """Env steps so far."""
        return int(self.agent.env_steps)

    def counts(self) -> dict[str, int]:
        """Env steps, updates and episodes so far."""
        return {
            "env_steps": int(self.agent.env_steps),
            "updates": int(self.agent.policy.updates),
            "episodes": int(self.agent.episodes),
        }

    def is_steady(self, progress: int) -> bool:
        """Whether updates had begun."""
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
        row["env_steps_per_second"] = (now.env_steps - before.env_steps) / seconds
        row["updates_per_second"] = (now.updates - before.updates) / seconds
        return row

    def summary(
        self, state: TrainState, speed: float, compile_seconds: float, evaluation: Evaluation
    ) -> dict[str, Any]:
        """What `result.json` says of an agent."""
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
