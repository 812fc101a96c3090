"""Observations as environments return them: numbers of Discrete spaces, dicts and tuples."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kytolly.environment.mask import ACTION_MASK

if TYPE_CHECKING:
    from kytolly.environment.encoding import Encoding

Entries = Mapping[str, Any] | Sequence[Any]  # of a Dict or Tuple: arrays, numbers and Entries
Observation = ArrayLike | Entries  # one, or a batch of them, as an environment returns it


def entries(given: Observation, names: Collection[str], method: str) -> dict[str, ArrayLike]:
    """The entries of a Dict or Tuple observation by name; those of one within it "outer/inner".

    Raises:
        ValueError: One is missing.
    """
    if isinstance(given, list) and given and all(isinstance(one, Mapping | tuple) for one in given):
        rows = [entries(one, names, method) for one in given]
        return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in names}
    result: dict[str, ArrayLike] = {}

    def collect(values: Any, before: str) -> None:  # Entries
        for key, value in values.items() if isinstance(values, Mapping) else enumerate(values):
            if (name := f"{before}{key}") in names:
                result[name] = value
            elif isinstance(value, Mapping | tuple | list):
                collect(value, f"{name}/")

    values: Any = given if isinstance(given, Mapping | tuple | list) else {}
    beside = values.get("observation") if isinstance(values, Mapping) else None
    if isinstance(beside, Mapping) and not any(n.partition("/")[0] == "observation" for n in names):
        # A Dict, with the mask beside it.
        values = {**beside, **{k: v for k, v in values.items() if k != "observation"}}
    collect(values, "")
    if len(result) < len(names):
        missing = sorted(set(names) - result.keys())
        is_dict = all(name.partition("/")[0] != "observation" for name in names)
        parts = "**obs" if is_dict else "'observation': obs"
        hint = f" Give {{{parts}, 'action_mask': mask}}, with the mask that the environment has"
        hint += " for it, as in its info."
        is_tuple = all(name.partition("/")[0].isdecimal() for name in names)
        raise ValueError(
            f"{method}() got an observation without {', '.join(missing)}, expected a "
            f"{'tuple' if is_tuple else 'dict'} with {', '.join(names)}."
            f"{hint if ACTION_MASK in missing else ''}"
        )
    if isinstance(mask := result.get(ACTION_MASK), tuple):  # one for each component of the action
        result[ACTION_MASK] = np.concatenate([np.asarray(part) for part in mask], axis=-1)
    return result


def as_in_training(given: np.ndarray, encoding: Encoding, name: str, method: str) -> np.ndarray:
    """An environment's value of an entry as training sees it; all else as it is."""
    is_raw = given.shape == encoding.shape or (given.ndim > 0 and given.shape[1:] == encoding.shape)
    if not encoding.counts:  # numbers without an axis; [1] is one observation
        return given[..., np.newaxis] if is_raw and given.shape != (1,) else given
    if not is_raw or given.dtype.kind not in "iu":
        return given
    if (encoded := encoding.one_hot(given)) is None:
        raise ValueError(
            f"{method}() got an observation{f' {name!r}' if name else ''} of "
            f"{np.array2string(given, threshold=20)}, expected {encoding.range_text()}."
        )
    return encoded


def wrong_shape(
    method: str,
    raw: Mapping[str, ArrayLike],
    parts: Mapping[str, np.ndarray],
    expected: Mapping[str, tuple[int, ...]],
    encodings: Mapping[str, Encoding],
) -> ValueError:
    """The error for an observation whose parts have shapes that training did not see.

    Args:
        method: That was called.
        raw: The parts as they were given.
        parts: The same as arrays.
        expected: The shape of each part.
        encodings: Of the parts that are encoded, such as Discrete numbers.
    """
    found = _shapes_text({name: part.shape for name, part in parts.items()})
    hint = ""
    for name, part in parts.items():
        if part.ndim > 1 or len(expected[name]) != 1 or name == ACTION_MASK:
            continue
        if name in encodings and encodings[name].counts:
            hint += f" As the environment shows it, it is {encodings[name].range_text()}."
        elif name in encodings or np.asarray(raw[name]).dtype.kind in "iu":
            hint += f" A number x of a Discrete space is one-hot: np.eye({expected[name][0]})[x]."
    return ValueError(
        f"{method}() got an observation of shape {found}, expected {_shapes_text(expected)} or "
        f"a batch of them, with the batch axis first.{hint}"
    )


def _shapes_text(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The shapes of an observation's parts, with their names where they have some."""
    return ", ".join(f"{name} {shape}".strip() for name, shape in shapes.items())
