"""Check an environment against its promises: findings, each with what to mend."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from kytolly.environment.faults import Closable, EnvironmentFault, one_line, place_text
from kytolly.environment.gym.actions import ActionForm
from kytolly.environment.gym.make import make_env, registered_spec
from kytolly.environment.gym.masks import MaskedVector, mask_source, vector_mask_source
from kytolly.environment.gym.random_play import (
    RandomActions,
    Subject,
    difference,
    mask_of,
    play,
)
from kytolly.environment.gym.saved_state import NotSavable, restore_state, saved_state
from kytolly.environment.gym.spaces import observation_form
from kytolly.environment.gym.step import EnvFactory, shape_text
from kytolly.environment.gym.time_limit import Hangs, time_limit
from kytolly.environment.gym.vector import autoreset_mode
from kytolly.environment.mask import ACTION_MASK
from kytolly.environment.spec import ActionSpace, Box

ROUNDING = 1e-6  # of a bound: what float32 cannot tell from it


class Finding(NamedTuple):
    """The outcome of one check.

    Attributes:
        check: What was looked at.
        level: "ok"; "warning": training works, with what `text` says; "error": it does not.
        text: What was found and, unless it is ok, what to mend.
    """

    check: str
    level: str
    text: str


def check_env(
    env: str | EnvFactory, steps: int = 1_000, seed: int = 0, timeout_seconds: float = 60.0
) -> list[Finding]:
    """The findings of `findings_of`, all at once."""
    return list(findings_of(env, steps, seed, timeout_seconds))


def findings_of(
    env: str | EnvFactory, steps: int = 1_000, seed: int = 0, timeout_seconds: float = 60.0
) -> Iterator[Finding]:
    """Play an environment with random actions and compare it with what it promises.

    Args:
        env: A Gymnasium id, or a function without arguments that makes an environment or a vector
            environment. Several are made: some checks compare two of them.
        steps: Env steps to play.
        seed: Seed of the environments and of the actions.
        timeout_seconds: Most that a constructor, a reset or a step may take: see
            `time_limit.time_limit` for where this holds.

    Yields:
        The findings, each as soon as it is known. Where one check raises, its finding is an error
        and the others go on, unless the environment hangs.

    Raises:
        ValueError: The environment is not known or cannot be made.
        EnvironmentFault: It hangs when it is made for the first time.
    """
    make = functools.partial(make_env, registered_spec(env)) if isinstance(env, str) else env
    raised: dict[str, str] = {}  # what an environment raised, with the first check that met it
    with time_limit(timeout_seconds) as begin_call:
        try:
            first = make()
        except Hangs as hang:
            raise EnvironmentFault(hang) from None
        spec = getattr(first, "spec", None)
        name = spec.id if spec is not None else type(first.unwrapped).__name__
        checks = VECTOR_CHECKS if isinstance(first, VectorEnv) else CHECKS
        close_quietly(first, begin_call)
        subject = Subject(make, make, name, steps, seed, begin_call)
        for title, check in checks.items():
            hangs = False
            try:
                results = run_check(check, subject)
            except (Exception, SystemExit, Hangs) as error:
                hangs = isinstance(error, Hangs)
                text = f"{error}: mend it."
                if not hangs:
                    text = f"{type(error).__name__}: {error}{place_text(error)}"
                same = raised.setdefault(text, title)
                text = text if same == title else f"the same as of {same}"
                results = [("error", one_line(text))]
            results = results or [("ok", "")]
            yield from (Finding(title, *pair) for pair in results)
            if hangs or (title == "spaces" and results[-1][0] == "error"):
                break  # nothing else can be tried


Findings = Iterator[tuple[str, str]]


def run_check(check: Callable[[Subject], Findings], subject: Subject) -> list[tuple[str, str]]:
    """The findings of a check; the environments that it made are closed, even where it raises."""
    with contextlib.ExitStack() as stack:

        def make():
            subject.begin_call()
            env = subject.factory()
            stack.callback(close_quietly, env, subject.begin_call)
            return env

        return list(check(subject._replace(make=make)))


def close_quietly(env: Closable, begin_call: Callable[[], object]) -> None:
    """Close an environment; what it raises is the finding of one check, `close_findings`."""
    begin_call()
    with contextlib.suppress(Exception, SystemExit, Hangs):
        env.close()


def space_findings(subject: Subject) -> Findings:
    """Check that agents can handle the spaces."""
    env = subject.make()
    action = ActionForm(env.action_space, subject.name).space
    form = observation_form(env.observation_space, subject.name, action)
    yield "ok", f"observations {description(form.spec)}, actions {description(action)}"
    if isinstance(action, Box) and not np.isfinite((*action.low, *action.high)).all():
        yield (
            "warning",
            "a bound of the action space is infinite: actions are then unbounded. Give finite "
            "bounds, as in spaces.Box(-1.0, 1.0, ...), if the environment has any.",
        )


def observation_findings(subject: Subject) -> Findings:
    """Check that every observation is one of its space, and a new array."""
    env = subject.make()
    outcomes = play(env, subject)
    space = env.observation_space
    found = [excess(space, outcome.obs) for outcome in outcomes]
    index = int(np.argmax(found))
    if np.isinf(found[index]):
        obs = outcomes[index].obs
        text = str(np.asarray(obs, dtype=object))[:200]
        yield (
            "error",
            f"observation {index} is {text} ({getattr(obs, 'dtype', type(obs).__name__)}), which "
            f"is not in {space}. Mend the space's bounds, shape or dtype, or what step() and "
            "reset() return.",
        )
    elif found[index] > ROUNDING:
        yield (
            "warning",
            f"observation {index} leaves the bounds of {space} by {found[index]:.2g} of them. "
            "Training goes on with it; other libraries may not. Mend the bounds, or clip.",
        )
    arrays = [o.obs for o in outcomes if isinstance(o.obs, np.ndarray)]
    if any(one is two for one, two in itertools.pairwise(arrays)):
        yield (
            "warning",
            "the environment returns one array at every step and overwrites it. We copy it; a "
            "Gymnasium vector environment loses the last observation. Return array.copy().",
        )


def excess(space: spaces.Space, obs: Any) -> float:
    """How far an observation leaves the bounds of its space, as a share of them or of 1.

    0 for a member; infinite where it has another form, or is not finite.
    """
    if isinstance(space, spaces.Dict) and isinstance(obs, dict) and obs.keys() == space.keys():
        return max(excess(inner, obs[key]) for key, inner in space.items())
    if isinstance(space, spaces.Tuple) and isinstance(obs, tuple) and len(obs) == len(space):
        return max(map(excess, space, obs))
    if space.contains(obs):
        return 0.0
    if not isinstance(space, spaces.Box) or not isinstance(obs, np.ndarray):
        return np.inf
    if obs.dtype.kind != "f" or obs.shape != space.shape or not np.can_cast(obs.dtype, space.dtype):
        return np.inf
    gaps = [(space.low - obs, space.low), (obs - space.high, space.high)]
    shares = [gap / np.maximum(1.0, np.abs(bound)) for gap, bound in gaps]
    # The share of a gap to no bound is NaN.
    return float(np.nanmax(shares)) if np.isfinite(obs).all() else np.inf


def reward_findings(subject: Subject) -> Findings:
    """Check that rewards are finite numbers and ends are booleans."""
    env = subject.make()
    outcomes = play(env, subject)
    for index, outcome in enumerate(outcomes):
        reward = outcome.reward
        number = isinstance(reward, (int, float, np.integer, np.floating))
        if not number or isinstance(reward, bool) or not abs(float(reward)) < 1e30:
            yield (
                "error",
                f"reward {index} is {reward!r}{shape_text(reward)}, expected a finite number that "
                "float32 can hold. Return float(reward), or reward.item() of an array of one, and "
                "scale what is huge.",
            )
            break
    for end in ("terminated", "truncated"):
        wrong = [o for o in outcomes if not isinstance(getattr(o, end), (bool, np.bool_))]
        if wrong:
            yield (
                "error",
                f"{end} is {getattr(wrong[0], end)!r}, expected True or False. Return bool({end}).",
            )
    if not all(isinstance(o.info, dict) for o in outcomes if o.info is not None):
        yield "error", "info is no dict. Return {} where there is nothing to say."


def episode_findings(subject: Subject) -> Findings:
    """Check that episodes end, and count by what."""
    env = subject.make()
    outcomes = play(env, subject)
    terminated = sum(bool(o.terminated) for o in outcomes)
    truncated = sum(bool(o.truncated) for o in outcomes)
    if terminated + truncated:
        yield (
            "ok",
            f"{terminated} episodes terminated, {truncated} truncated in {subject.steps} steps",
        )
    elif env.spec is not None and env.spec.max_episode_steps:
        limit = env.spec.max_episode_steps
        yield "ok", f"no episode ended in {subject.steps} steps; max_episode_steps is {limit}"
    else:
        yield (
            "warning",
            f"no episode ended in {subject.steps} steps, and nothing limits them: an evaluation "
            "would not end by itself. Register the environment with max_episode_steps, or wrap it "
            "in gymnasium.wrappers.TimeLimit.",
        )


def seed_findings(subject: Subject) -> Findings:
    """Check that a run can be repeated: two environments, the same seed, the same actions."""
    one, two, other = subject.make(), subject.make(), subject.make()
    first = play(one, subject)
    if difference(first, play(two, subject)) is not None:
        index = difference(first, play(subject.make(), subject))
        yield (
            "error",
            f"two environments with seed {subject.seed} and the same actions differ from step "
            f"{index} on, so no run can be repeated. Draw every random number from self.np_random, "
            "and call super().reset(seed=seed) at the beginning of reset().",
        )
    elif (
        difference(
            play(other, subject._replace(seed=subject.seed + 1), actions=subject.seed), first
        )
        is None
    ):
        yield "ok", "every seed gives the same episodes: the environment has no randomness"


def mask_findings(subject: Subject) -> Findings:
    """Check that action masks have the right form and leave something to do."""
    env = subject.make()
    source = mask_source(env)
    is_dict = isinstance(env.observation_space, spaces.Dict)
    if source is None and not (is_dict and ACTION_MASK in env.observation_space.spaces):
        yield "ok", "none"
        return
    for index, outcome in enumerate(play(env, subject)):
        mask = mask_of(env, outcome, source)
        # One mask, or one for each component of a MultiDiscrete action.
        allows = all(np.any(part) for part in (mask if isinstance(mask, tuple) else (mask,)))
        if not (outcome.terminated or outcome.truncated) and not allows:
            yield (
                "error",
                f"the mask after step {index} allows no action: allow one, or end the episode.",
            )
            return
    yield "ok", f"found in {source or 'the observation'}"


def process_findings(subject: Subject) -> Findings:
    """Check that the environment can be made in worker processes (async_envs)."""
    import cloudpickle

    try:
        close_quietly(pickle.loads(cloudpickle.dumps(subject.factory))(), subject.begin_call)
    except (Exception, SystemExit) as error:
        yield (
            "warning",
            f"it cannot move to other processes, {type(error).__name__}: {error}. async_envs will "
            "not work: make it in a function that can be pickled.",
        )


def resume_findings(subject: Subject) -> Findings:
    """Check that a resumed run can go on within its episodes."""
    one, two = subject.make(), subject.make()
    after = play(one, subject._replace(steps=subject.steps // 4))[-1]
    source = mask_source(two)
    try:
        state = json.loads(json.dumps(saved_state(one)))
    except (NotSavable, RecursionError) as reason:
        yield (
            "warning",
            f"a resumed run begins new episodes: {reason}. Give the environment the methods "
            "get_state(), which returns plain data, and set_state(state).",
        )
        return
    restore_state(two, state)
    index = difference(*(play(env, subject, after=after, source=source) for env in (one, two)))
    if index is not None:
        yield (
            "warning",
            f"an environment that was restored differs from step {index} on, so a resumed run is "
            "not exact. Give it the methods get_state(), which returns plain data, and "
            "set_state(state).",
        )


def close_findings(subject: Subject) -> Findings:
    """Check that an environment can be closed."""
    env = subject.factory()
    subject.begin_call()
    try:
        env.close()
    except (Exception, SystemExit) as error:
        yield (
            "warning",
            f"close() raised {type(error).__name__}: {error}. Training warns of it and goes on; "
            "what it holds may stay. Let close() end without it, also when it is called twice.",
        )


def speed_findings(subject: Subject) -> Findings:
    """Measure the speed of one environment."""
    env = subject.make()
    began = time.perf_counter()
    play(env, subject)
    yield "ok", f"{subject.steps / (time.perf_counter() - began):,.0f} env steps/s in one process"


def vector_space_findings(subject: Subject) -> Findings:
    """Check that agents can handle the spaces, and name the autoreset mode."""
    env = subject.make()
    action = ActionForm(env.single_action_space, subject.name).space
    form = observation_form(env.single_observation_space, subject.name, action)
    mode = autoreset_mode(env, subject.name).name
    yield "ok", f"observations {description(form.spec)}, actions {description(action)}, {mode}"


def autoreset_findings(subject: Subject) -> Findings:
    """Check that an episode's end goes as the declared autoreset mode says."""
    env = subject.make()
    mode = autoreset_mode(env, subject.name)
    env.action_space.seed(subject.seed)
    chooser = RandomActions(env.single_action_space, subject.name, subject.seed)
    if chooser.counts and (source := vector_mask_source(env)):
        env = MaskedVector(env, mode, source, sum(chooser.counts), subject.name)
    obs, _ = env.reset(seed=subject.seed)
    masked = chooser.counts and isinstance(obs, dict) and ACTION_MASK in obs
    ended = np.zeros(env.num_envs, bool)
    seen = 0
    for step in range(subject.steps):
        if mode is AutoresetMode.DISABLED and ended.any():
            new, _ = env.reset(options={"reset_mask": ended.copy()})
            if masked:  # of the others nothing is known here
                obs[ACTION_MASK][ended] = new[ACTION_MASK][ended]
        before = ended
        subject.begin_call()
        actions = chooser.batch(obs[ACTION_MASK]) if masked else env.action_space.sample()
        obs, reward, terminated, truncated, info = env.step(actions)
        ended = np.logical_or(terminated, truncated)
        seen += int(ended.sum())
        if mode is AutoresetMode.NEXT_STEP and before.any():
            paid = np.asarray(reward)[before]
            if paid.any() or ended[before].any():
                yield (
                    "error",
                    f"the step after an episode's end (step {step}) paid {paid} or ended again: in "
                    "NEXT_STEP mode it is only the reset, with reward 0. Declare the mode that "
                    "holds in metadata['autoreset_mode'].",
                )
                return
        if mode is AutoresetMode.SAME_STEP and ended.any() and "final_obs" not in info:
            yield (
                "error",
                f"step {step} ended an episode without info['final_obs'], which SAME_STEP "
                "promises. Put the last observations there.",
            )
            return
    yield "ok", f"{mode.name}, {seen} episodes ended"


CHECKS: dict[str, Callable[[Subject], Findings]] = {
    "spaces": space_findings,
    "observations": observation_findings,
    "rewards and ends": reward_findings,
    "episodes": episode_findings,
    "seeding": seed_findings,
    "action masks": mask_findings,
    "worker processes": process_findings,
    "exact resume": resume_findings,
    "closing": close_findings,
    "speed": speed_findings,
}
VECTOR_CHECKS = {
    "spaces": vector_space_findings,
    "autoreset mode": autoreset_findings,
    "closing": close_findings,
}


def description(part: tf.TensorSpec | dict[str, tf.TensorSpec] | ActionSpace) -> str:
    """A spec of observations or actions in words."""
    if isinstance(part, dict):
        return ", ".join(f"{name}: {description(spec)}" for name, spec in part.items())
    if isinstance(part, Box):
        return f"{len(part.low)} numbers"
    return f"{part.dtype.name} {list(part.shape)}" if isinstance(part, tf.TensorSpec) else str(part)
