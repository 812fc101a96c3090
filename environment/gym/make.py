"""From a Gymnasium id to an environment, or to a message that helps."""

from __future__ import annotations

import difflib
import importlib

import gymnasium
from gymnasium.envs.registration import EnvSpec

from kytolly.environment.faults import EnvironmentFault
from kytolly.environment.probe import PROBE_ENVIRONMENTS
from kytolly.environment.registry import TENSOR_ENVIRONMENTS

# Packages that register their ids when imported: namespace, module, name to install.
_PLUGINS = {"ALE": ("ale_py", "ale-py")}
# Gymnasium's own optional parts: start of the entry point's module, extra.
_EXTRAS = {
    "gymnasium.envs.box2d": "box2d",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.toy_text": "toy-text",
    "gymnasium.envs.classic_control": "classic-control",
    "gymnasium.envs.phys2d": "jax",
    "gymnasium.envs.tabular": "jax",
}


def registered_spec(name: str) -> EnvSpec:
    """What Gymnasium has registered under an id; of `"module:id"`, the module is imported first.

    Raises:
        ValueError: Nothing is registered; the message names similar ids, or what to install.
    """
    module, _, name = name.rpartition(":")
    if module:
        _import_module(module, name)
    namespace = name.partition("/")[0] if "/" in name else None
    if namespace in _PLUGINS and name not in gymnasium.registry:
        _import_module(_PLUGINS[namespace][0], name, _PLUGINS[namespace][1])
    if name in gymnasium.registry:
        return gymnasium.registry[name]
    known = [*gymnasium.registry, *TENSOR_ENVIRONMENTS, *PROBE_ENVIRONMENTS]
    nearest = difflib.get_close_matches(name, dict.fromkeys(known), n=3, cutoff=0.6)
    hint = f"Nearest names: {', '.join(nearest)}." if nearest else "No name is similar."
    raise ValueError(
        f"unknown environment {name!r}. {hint} An environment of another package needs that "
        f"package imported first, as in 'package:{name}'."
    )


def make_env(spec: EnvSpec) -> gymnasium.Env:
    """The environment of a spec, without Gymnasium's checker, which costs time at every step.

    Raises:
        ValueError: It needs a package that is not installed.
        EnvironmentFault: It cannot be made for another reason.
    """
    try:
        return gymnasium.make(spec, disable_env_checker=True)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise ValueError(
            f"{spec.id} needs a package that is not installed. {_advice(spec, error)}"
        ) from error
    except Exception as error:
        raise EnvironmentFault(
            f"{spec.id} cannot be made, {type(error).__name__}: {error}"
        ) from error


def _advice(spec: EnvSpec, error: Exception) -> str:
    for module, extra in _EXTRAS.items():
        if str(spec.entry_point).startswith(module):
            return f'Install it: pip install "gymnasium[{extra}]". (Found: {error})'
    missing = getattr(error, "name", None)
    return f"Install it: pip install {missing}. (Found: {error})" if missing else str(error)


def _import_module(module: str, name: str, package: str | None = None) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{name} comes from the module {module}, which cannot be imported ({error}). "
            f"Install it: pip install {package or module.partition('.')[0]}."
        ) from error
