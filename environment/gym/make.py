"""From a Gymnasium id to an environment, or to a message that helps."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence

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
    except (Exception, SystemExit) as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        raise refusal(spec, kinds, str(error), getattr(error, "name", None)) from error


def refusal(spec: EnvSpec, kinds: Sequence[str], text: str, missing: str | None) -> Exception:
    """What to raise where the environment of a spec cannot be made.

    Args:
        spec: Of the environment.
        kinds: Names of the classes of what was raised, its own first.
        text: What it says.
        missing: The module that an ImportError did not find.
    """
    if "ImportError" not in kinds and "DependencyNotInstalled" not in kinds:
        return EnvironmentFault(f"{spec.id} cannot be made, {kinds[0]}: {text}")
    advice = f"Install it: pip install {missing}. (Found: {text})" if missing else text
    for module, extra in _EXTRAS.items():
        if str(spec.entry_point).startswith(module):
            advice = f'Install it: pip install "gymnasium[{extra}]". (Found: {text})'
    return ValueError(f"{spec.id} needs a package that is not installed. {advice}")


def _import_module(module: str, name: str, package: str | None = None) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{name} comes from the module {module}, which cannot be imported ({error}). "
            f"Install it: pip install {package or module.partition('.')[0]}."
        ) from error
