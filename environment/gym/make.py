"""From a Gymnasium id to an environment, or to a message that helps."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import os
import re
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from kytolly.environment.faults import EnvironmentFault, RemoteError, display_text, one_line
from kytolly.environment.registry import TENSOR_ENVIRONMENTS

# Packages that register their ids when imported: namespace, module, name to install.
_PLUGINS = {"ALE": ("ale_py", '"kytolly[atari]"')}
# Gymnasium's own optional parts: start of the entry point's module, extra.
_EXTRAS = {
    "gymnasium.envs.box2d": "box2d",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.toy_text": "toy-text",
    "gymnasium.envs.classic_control": "classic-control",
    "gymnasium.envs.phys2d": "jax",
    "gymnasium.envs.tabular": "jax",
}


FEW = 8  # ids that a message names
LIKE = 0.7  # of 1, from which an id may be what was meant


def registered_spec(name: str) -> EnvSpec:
    """The spec of an id in Gymnasium's registry; of `"module:id"`, the module is imported first.

    Raises:
        ValueError: Nothing is registered; the message names similar ids, or what to install.
    """
    module, _, name = name.rpartition(":")
    loaded = import_module(module, name) if module else None
    namespace = name.partition("/")[0] if "/" in name else None
    if namespace in _PLUGINS and name not in gymnasium.registry:
        import_module(_PLUGINS[namespace][0], name, _PLUGINS[namespace][1])
    if "NoVel-v" in name and name in TENSOR_ENVIRONMENTS and name not in gymnasium.registry:
        import_module("kytolly.environment.gym.no_velocity", name)
    if name.startswith("popgym-") and importlib.util.find_spec("popgym"):
        import_module("popgym", name)
    if name in gymnasium.registry:
        return gymnasium.registry[name]
    if name in TENSOR_ENVIRONMENTS:
        raise ValueError(
            f"{display_text(name)} exists as tensor code alone, expected loop 'auto' or 'device', "
            "and no wrappers. Leave the loop and the wrappers out."
        )
    nearest, text = nearest_names(name), display_text(name)
    hint = f"Nearest names: {', '.join(nearest)}." if nearest else "No name is similar."
    if loaded is not None:
        hint += (
            f" The module {module} registers none of that name.{registration_advice(loaded, name)}"
        )
    elif namespace not in (*_PLUGINS, "MinAtar", "kytolly"):
        hint += (
            " An environment of another package needs that package imported first, as in "
            f"'package:{text[1:-1]}'."
        )
    raise ValueError(f"unknown environment {text}. {hint}")


def registration_advice(loaded: Any, name: str) -> str:
    """What to do where a module that is imported registers no environment of a name."""
    module, start, text = loaded.__name__, name.partition("-v")[0], ""
    own = {
        spec.id: str(spec.entry_point)
        for spec in gymnasium.registry.values()
        if re.match(rf"{re.escape(module)}[.:]", str(spec.entry_point))
    }
    if 0 < len(own) <= FEW:
        text = f" It registers {', '.join(own)}."
    if callable(vars(loaded).get(start)) and f"{module}:{start}" not in own.values():
        text += (
            f" It has {start}: register it there, as in gymnasium.register('{start}-v0', "
            f"'{module}:{start}'), and give '{module}:{start}-v0'."
        )
    elif not own and hasattr(loaded, "__path__"):
        part = f"{module}.envs"
        if importlib.util.find_spec(part):
            text = f" Perhaps its part does: {display_text(f'{part}:{name}')}."
    return text


def nearest_names(name: str) -> list[str]:
    """At most three ids that are like a name, or like its part behind the namespace."""
    if importlib.util.find_spec("ale_py"):
        importlib.import_module("ale_py")
    known = dict.fromkeys([*gymnasium.registry, *TENSOR_ENVIRONMENTS])
    # The older ids of Atari's games, such as PongNoFrameskip-v4, are made without preprocessing.
    old = {
        spec.id
        for spec in gymnasium.registry.values()
        if str(spec.entry_point).startswith("ale_py") and spec.namespace is None
    }

    def likeness(id: str) -> tuple[float, float]:
        wanted, offered = re.sub("noframeskip|deterministic", "", name.lower()), id.lower()
        whole = difflib.SequenceMatcher(None, wanted, offered).ratio()
        behind = wanted.rpartition("/")[2], offered.rpartition("/")[2]
        return max(whole, difflib.SequenceMatcher(None, *behind).ratio()), whole

    ranked = sorted(((likeness(id), id) for id in known if id not in old), reverse=True)
    return [id for (degree, _), id in ranked[:3] if degree >= LIKE]


def make_env(spec: EnvSpec, **arguments: object) -> gymnasium.Env:
    """The environment of a spec, without Gymnasium's checker, which costs time at every step.

    Args:
        spec: Of the environment.
        **arguments: Of the environment, such as `render_mode`.

    Raises:
        ValueError: It needs a package that is not installed.
        EnvironmentFault: It cannot be made for another reason.
    """
    try:
        return env_factory(spec)(**arguments)
    except (Exception, SystemExit) as error:
        raise creation_error(spec, RemoteError.of(error)) from error


def env_factory(spec: EnvSpec) -> Callable[..., gymnasium.Env]:
    """A function that makes the environment of a spec, in any process; Atari is preprocessed."""
    if not spec.id.startswith("ALE/"):
        return functools.partial(gymnasium.make, spec, disable_env_checker=True)
    from kytolly.environment.gym.atari import make_atari

    return functools.partial(make_atari, spec)


def creation_error(spec: EnvSpec, error: RemoteError) -> Exception:
    """The exception to raise where making the environment of a spec raised `error`."""
    kinds, text, missing = error.kinds, error.text, error.missing
    if spec.id.startswith("ALE/") and kinds[0] == "ValueError":  # an argument of the preprocessing
        return ValueError(text)
    if "ImportError" not in kinds and "DependencyNotInstalled" not in kinds:
        text = f"{spec.id} cannot be made, {kinds[0]}: {text}{error.place}"
        if "argument" in error.text and kinds[0] == "TypeError":
            text += ". Its arguments are given as --env-kwargs NAME=VALUE, or as env_kwargs."
        return EnvironmentFault(text)
    advice = f"Install the one that has the module {missing}. (Found: {text})" if missing else text
    for module, extra in _EXTRAS.items():
        if str(spec.entry_point).startswith(module):
            advice = f'Install it: pip install "gymnasium[{extra}]". (Found: {text})'
    return ValueError(f"{spec.id} needs a package that is not installed. {advice}")


def import_module(module: str, name: str, package: str | None = None) -> Any:
    """Import the module from which an environment or a wrapper comes.

    Args:
        module: Its full name.
        name: What comes from it, for messages.
        package: What to install where it is missing; None for a module that only its user knows.

    Raises:
        ValueError: There is no such module, or it lacks another one.
        EnvironmentFault: It raised something else.
    """
    name, module = display_text(name)[1:-1], module.strip()
    if not module or module.startswith("."):
        raise ValueError(
            f"{name} comes from the module {module!r}, expected the full name of one: module:id."
        )
    shown = display_text(module)[1:-1]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        text = f"{name} comes from the module {shown}, which cannot be imported"
        missing, reason = getattr(error, "name", None), one_line(str(error), 200)
        if package:
            raise ValueError(f"{text} ({reason}). Install it: pip install {package}.") from error
        if missing and (module == missing or module.startswith(f"{missing}.")):
            file = shown.replace(".", "/")
            raise ValueError(
                f"{text}: there is neither {file}.py in {os.getcwd()} or another folder of "
                "sys.path, nor an installed package of that name. Go to the folder that holds the "
                "file, or give the name that it has now."
            ) from error
        raise ValueError(
            f"{text} ({reason}), expected that it can. Mend it, or install what it needs."
        ) from error
    except (Exception, SystemExit) as error:
        raise EnvironmentFault(
            f"the module {shown}, from which {name} comes, raised {type(error).__name__} when it "
            f"was imported: {error}"
        ) from error
