"""The state of a Gymnasium environment as plain data: a resumed run goes on within its episodes.

Nothing is pickled: reading a state from a file can never run code. What is no plain data (a physics
engine's world, an open connection) is refused by name, except where the engine saves itself: MuJoCo
and the Arcade Learning Environment.
"""

from __future__ import annotations

import base64
import collections
import enum
import logging
import pathlib
import random
import sys
import types
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as RegisteredSpec
from gymnasium.vector import VectorEnv

PLAIN = (bool, int, float, str)
BOUND = (types.MethodType, types.BuiltinFunctionType)
# Made anew with the environment, and never changed by its steps.
CONSTANT = (
    type,
    types.ModuleType,
    types.FunctionType,
    *BOUND,
    RegisteredSpec,
    pathlib.PurePath,
    logging.Logger,
)
MODEL = "mujoco._structs.MjModel"  # the physics' constants
# Our classes by the names that runs of earlier versions have saved.
_GYM = "kytolly.environment.gym"
RENAMED = {
    f"{_GYM}.separate.SeparateEnvs": f"{_GYM}.sequential.SequentialEnvs",
    f"{_GYM}.separate.SingleEnv": f"{_GYM}.sequential.SingleEnv",
    f"{_GYM}.restarting.RestartingEnvs": f"{_GYM}.sequential.RestartingEnvs",
}
CONTAINERS = {kind.__name__: kind for kind in (tuple, list, set, frozenset)}


class NotSavable(ValueError):
    """Something that has no saved state; the message names it."""


def saved_state(env: object) -> Any:
    """The state of an environment, or of what is made of environments, as JSON can hold it.

    An object that has the methods `get_state()` and `set_state(state)` saves itself; `get_state`
    returns plain data (numbers, text, arrays, lists and dicts of them) or other objects.

    Raises:
        NotSavable: A part of it is no plain data; the message names the part.
    """
    return _Writer().code(env, type(env).__name__)


def restore_state(env: object, state: object) -> None:
    """Bring an environment that was made in the same way into a state from `saved_state`.

    Raises:
        NotSavable: The environment is made of other parts than the one that was saved.
    """
    _Reader().value(state, env, type(env).__name__)


class _Writer:
    """Writes a graph of Python objects; what appears twice is written once."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[int, Any]] = {}  # id -> number; the object, so that it lives
        self.memory: dict[int, str] = {}  # id of the array that owns it -> path

    def code(self, value: Any, path: str) -> Any:
        if value is None or type(value) in PLAIN:
            return value
        if isinstance(value, BOUND) and not isinstance(value.__self__, (*CONSTANT, type(None))):
            return {"bound": self.code(value.__self__, path)}  # such as a generator's `random`
        if isinstance(value, CONSTANT) or _kind(value) == MODEL:
            return {"keep": True}
        if isinstance(value, np.generic):
            return {"scalar": _array_code(np.asarray(value), path)}
        if id(value) in self.seen:
            return {"again": self.seen[id(value)][0]}
        self.seen[id(value)] = (len(self.seen), value)
        if isinstance(value, np.ndarray):
            self._require_own_memory(value, path)
            return {"array": _array_code(value, path)}
        if type(value) in CONTAINERS.values():
            items = [self.code(item, f"{path}[{i}]") for i, item in enumerate(value)]
            return {type(value).__name__: items}
        if type(value) is collections.deque:
            return {"deque": [self.code(item, path) for item in value], "maxlen": value.maxlen}
        if isinstance(value, dict):
            kind = {} if type(value) is dict else {"kind": _kind(value)}
            return {"dict": self._items(value, path), **kind}
        if isinstance(value, np.random.Generator):
            return {"generator": self.code(value.bit_generator.state, path)}
        if isinstance(value, (np.random.RandomState, random.Random)):
            read = value.get_state if isinstance(value, np.random.RandomState) else value.getstate
            return {"random": self.code(read(), path)}
        if isinstance(value, gymnasium.Space):
            return {"space": self._items(_space_parts(value), path), "kind": _kind(value)}
        if isinstance(value, enum.Enum):
            return {"enum": value.name, "kind": _kind(value)}
        return self._object(value, path)

    def _object(self, value: Any, path: str) -> Any:
        kind = _kind(value)
        methods = [getattr(type(value), name, None) for name in ("get_state", "set_state")]
        if all(callable(method) for method in methods):
            return {"own": self.code(value.get_state(), path), "kind": kind}
        engine = ENGINES.get(kind)
        if engine is not None:
            return {"engine": engine.save(value, path), "kind": kind}
        # A C++ library hides an object's state behind `this`, a subclass of list in the list.
        hidden = isinstance(value, (list, tuple, set, frozenset, str, bytes, int, float))
        if hidden or not hasattr(value, "__dict__") or "this" in vars(value):
            raise NotSavable(f"{path} is a {kind}, which is no plain data")
        return {"object": self._items(vars(value), path), "kind": kind}

    def _require_own_memory(self, array: np.ndarray, path: str) -> None:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        other = self.memory.setdefault(id(owner), path)
        if other != path:
            raise NotSavable(f"{path} is a view of the same memory as {other}")

    def _items(self, values: dict, path: str) -> list:
        named = [(key, value, f"{path}.{key}") for key, value in values.items()]
        return [[self.code(key, path), self.code(value, place)] for key, value, place in named]


class _Reader:
    """Reads what `_Writer` wrote, into the objects that are there."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.kinds: dict[str, type] = {}  # of the objects that were there

    def value(self, code: object, here: Any, path: str) -> Any:
        """The value of a code; `here` is what stands in its place now."""
        if not isinstance(code, dict):
            return code
        if "again" in code:
            return self.seen[code["again"]]
        if "keep" in code:
            return here
        if "bound" in code:
            self.value(code["bound"], here.__self__, path)
            return here
        if "scalar" in code:
            return _array(code["scalar"])[()]
        place = len(self.seen)
        self.seen.append(here)
        self.seen[place] = self._new_value(code, here, path, place)
        return self.seen[place]

    def _new_value(self, code: dict[str, Any], here: Any, path: str, place: int) -> Any:
        if code.get("kind") in RENAMED:
            code = {**code, "kind": RENAMED[code["kind"]]}
        if "array" in code:
            return _array(code["array"])
        for name, kind in CONTAINERS.items():
            if name in code:
                old = list(here) if isinstance(here, kind) else []
                old += [None] * (len(code[name]) - len(old))
                pairs = zip(code[name], old, strict=False)
                items = [self.value(item, at, f"{path}[{i}]") for i, (item, at) in enumerate(pairs)]
                if kind is list and isinstance(here, list):
                    here[:] = items
                    return here
                return kind(items)
        if "enum" in code:
            kind = type(here) if _kind(here) == code["kind"] else self._class(code, here, path)
            return getattr(kind, code["enum"])
        if "deque" in code:
            items = [self.value(item, None, path) for item in code["deque"]]
            return collections.deque(items, code["maxlen"])
        if "dict" in code:
            if "kind" in code:
                self._require_kind(code, here, path)
            return self._update(here if isinstance(here, dict) else {}, code["dict"], path)
        if "generator" in code:
            return self._generator(code["generator"], here, path)
        if "random" in code:
            state = self.value(code["random"], None, path)
            (here.set_state if isinstance(here, np.random.RandomState) else here.setstate)(state)
            return here
        if "space" in code:
            self._require_kind(code, here, path)
            vars(here).update(self._update(_space_parts(here), code["space"], path))
            return here
        if "object" in code and _kind(here) != code["kind"]:
            kind = self._class(code, here, path)
            self.seen[place] = here = object.__new__(kind)
        self._require_kind(code, here, path)
        self.kinds[code["kind"]] = type(here)
        if "own" in code:
            try:
                parts = here.get_state()  # objects among them are restored where they are
            except Exception:  # an environment that was never reset
                parts = None
            here.set_state(self.value(code["own"], parts, path))
        elif "engine" in code:
            ENGINES[code["kind"]].restore(here, code["engine"], path)
        else:
            self._update(vars(here), code["object"], path)
        return here

    def _generator(self, code: object, here: object, path: str) -> np.random.Generator:
        state = self.value(code, None, path)
        kind = getattr(np.random, str(state["bit_generator"]), None)
        if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
            raise NotSavable(f"{path} is no bit generator of NumPy")
        if not isinstance(here, np.random.Generator) or type(here.bit_generator) is not kind:
            here = np.random.Generator(kind(0))
        here.bit_generator.state = state
        return here

    def _update(self, values: dict, items: list, path: str) -> dict:
        old, pairs = dict(values), []
        for key, code in items:
            key = self.value(key, None, path)
            pairs.append((key, self.value(code, old.get(key), f"{path}.{key}")))
        values.clear()
        for key, value in pairs:  # a Counter's update() would count
            values[key] = value
        return values

    def _class(self, code: dict, here: object, path: str) -> type:
        """The class of an object that is not there, as where a list was longer when it was saved.

        It must be of a module from which another object is there, so that a file can name no class
        but those that the environment is made of, and be no environment: their place is fixed.
        """
        kind = code["kind"]
        known: object = self.kinds.get(kind)
        for module in {other.__module__ for other in self.kinds.values()}:
            if known is None and kind.startswith(f"{module}."):
                candidate: object = sys.modules.get(module)
                for name in kind[len(module) + 1 :].split("."):
                    candidate = getattr(candidate, name, None)
                if isinstance(candidate, type) and _kind_of(candidate) == kind:
                    known = candidate
        if not isinstance(known, type) or issubclass(known, (gymnasium.Env, VectorEnv)):
            raise NotSavable(f"{path} is a {_kind(here)}, and the saved state is of a {kind}")
        return known

    @staticmethod
    def _require_kind(code: dict, here: object, path: str) -> None:
        kind = _kind(here)
        if kind != code.get("kind"):
            raise NotSavable(f"{path} is a {kind}, and the saved state is of a {code.get('kind')}")


def _kind(value: object) -> str:
    """Module and name of a value's class."""
    return _kind_of(type(value))


def _kind_of(kind: type) -> str:
    return f"{getattr(kind, '__module__', '')}.{kind.__qualname__}"


def _space_parts(space: gymnasium.Space) -> dict[str, Any]:
    """The random state of a space, and the spaces that it is made of."""
    parts = {name: value for name, value in vars(space).items() if name == "_np_random"}
    for name, value in vars(space).items():
        inner = value.values() if isinstance(value, dict) else value
        inner = inner if isinstance(inner, (tuple, type({}.values()))) else [inner]
        if any(isinstance(part, gymnasium.Space) for part in inner):
            parts[name] = value
    return parts


def _array_code(array: np.ndarray, path: str) -> list:
    if array.dtype.hasobject:
        raise NotSavable(f"{path} is an array of Python objects, which is no plain data")
    if type(array) is not np.ndarray or array.dtype.names:
        raise NotSavable(f"{path} is a {_kind(array)} of {array.dtype}, expected a plain array")
    order = "F" if array.flags.fnc else "C"  # BLAS rounds by it
    data = base64.b64encode(array.tobytes(order)).decode("ascii")
    return [array.dtype.str, list(array.shape), data, order]


def _array(code: list) -> np.ndarray:
    dtype, shape, data, order = code
    array = np.frombuffer(base64.b64decode(data), np.dtype(dtype)).reshape(shape, order=order)
    return array.copy(order)


class _MuJoCo:
    """MuJoCo's data: its integration state, and the arrays that it computed from earlier steps."""

    @staticmethod
    def save(data: Any, path: str) -> Any:
        arrays = {name: getattr(data, name) for name in dir(data) if not name.startswith("_")}
        codes = {
            name: _array_code(array, path)
            for name, array in arrays.items()
            if isinstance(array, np.ndarray)
        }
        return {"arrays": codes, "time": data.time}

    @staticmethod
    def restore(data: Any, code: dict, path: str) -> None:
        import mujoco  # type: ignore[import-not-found]

        data.time = code["time"]
        for again in (False, True):  # the forward pass makes room for contacts, then all is copied
            for name, array in code["arrays"].items():
                target, value = getattr(data, name, None), _array(array)
                if isinstance(target, np.ndarray) and target.shape == value.shape:
                    target[...] = value
            if not again:
                mujoco.mj_forward(data.model, data)


class _Arcade:
    """The Arcade Learning Environment, with the random state that its sticky actions draw from."""

    @staticmethod
    def save(ale: Any, path: str) -> Any:
        return base64.b64encode(ale.cloneState(include_rng=True).serialize()).decode("ascii")

    @staticmethod
    def restore(ale: Any, code: str, path: str) -> None:
        from ale_py import ALEState  # type: ignore[import-not-found]

        ale.reset_game()  # the screen's buffers are no part of the state
        ale.restoreState(ALEState(base64.b64decode(code)))


ENGINES: dict[str, Any] = {
    "mujoco._structs.MjData": _MuJoCo,
    "ale_py._ale_py.ALEInterface": _Arcade,
}
