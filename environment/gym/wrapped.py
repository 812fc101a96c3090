"""An environment with arguments and wrappers that are given by name."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from kytolly.environment.faults import EnvironmentFault, display_text, one_line
from kytolly.environment.gym.make import import_module, make_env, registered_spec
from kytolly.environment.registry import tensor_environment


class WrappedSource:
    """Makes an environment with arguments and wrappers; other processes can make it as well.

    Args:
        env: A Gymnasium id, or a function that makes an environment.
        arguments: Of the environment.
        wrappers: "module:Class" or "module:Class(4, key=5)" of each, the innermost first.

    Attributes:
        env_name: The id; None for a function.
    """

    def __init__(
        self,
        env: str | Callable[..., object],
        arguments: Mapping[str, object],
        wrappers: Sequence[str],
    ):
        self.env_name = env if isinstance(env, str) else None
        self._env, self._arguments, self._wrappers = env, dict(arguments), list(wrappers)

    def whole_games(self) -> WrappedSource:
        """The same for playing: an episode of an Atari game is not a single life."""
        from kytolly.environment.gym.atari import whole_games

        return WrappedSource(self._env, whole_games(self._env, self._arguments), self._wrappers)

    def __call__(self) -> Any:
        """A new environment."""
        if isinstance(self._env, str):
            env: Any = make_env(registered_spec(self._env), **self._arguments)
        else:
            env = self._env(**self._arguments)
        for name in self._wrappers:
            wrapper, values, named = wrapper_parts(name)
            try:
                env = wrapper(env, *values, **named)
            except (Exception, SystemExit) as error:
                reason = one_line(f"{type(error).__name__}: {error}")
                raise EnvironmentFault(
                    f"the wrapper {name} cannot wrap an environment, {reason}. It is called with "
                    "the environment and what stands in parentheses, as in module:Class(size=4)."
                ) from error
        return env


def wrapped_source(
    env: object, arguments: Mapping[str, object] | None, wrappers: Sequence[str]
) -> Any:
    """The source of an environment with arguments and wrappers: `env` itself where there are none.

    Arguments of what exists as tensor code alone, such as MinAtar's games, are those of ours.

    Raises:
        ValueError: `env` exists already, or a name means nothing.
    """
    if not arguments and not wrappers:
        return env
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv) or not (
        isinstance(env, str) or callable(env)
    ):
        raise ValueError(
            f"env_kwargs or wrappers are set, and env is a {type(env).__name__} that exists "
            "already, expected a Gymnasium id or a function that makes an environment. Wrap it "
            "yourself, or give what makes it."
        )
    if isinstance(env, str):
        ours = is_ours_alone(env) and not wrappers
        tensor_env = tensor_environment(env, **(arguments or {})) if ours else None
        if tensor_env is not None:
            return tensor_env
        registered_spec(env)
    for name in wrappers:
        wrapper_parts(name)
    return WrappedSource(env, arguments or {}, wrappers)


def is_ours_alone(env: str) -> bool:
    """True for an id that Gymnasium does not know: its arguments are those of our tensor code."""
    return env not in gymnasium.registry


def wrapper_parts(name: str) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """Class, positional and named arguments of "module:Class" or "module:Class(4, key=5)".

    Raises:
        ValueError: There is no such class, or an argument is not a plain value.
    """
    path = name.partition("(")[0]
    module, _, attribute = path.rpartition(":")
    wrapper = getattr(import_module(module, path), attribute.strip(), None) if module else None
    if not callable(wrapper):
        raise ValueError(
            f"the wrapper {display_text(name)} is no class of a module that can be imported, "
            "expected module:Class, such as gymnasium.wrappers:FlattenObservation."
        )
    try:
        call = ast.parse(f"wrapper{name[len(path) :] or '()'}", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("it is no call")
        values = [ast.literal_eval(value) for value in call.args]
        named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords if word.arg}
        if len(named) < len(call.keywords):
            raise ValueError("an argument has no name")
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(
            f"the wrapper {display_text(name)} has arguments that cannot be read "
            f"({one_line(str(getattr(error, 'msg', error)), 100)}), expected plain values, as in "
            "gymnasium.wrappers:FilterObservation(filter_keys=['image', 'direction'])."
        ) from error
    return wrapper, values, named
