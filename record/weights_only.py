"""Says that Keras cannot save a model whole."""

from __future__ import annotations

import warnings


def warn_of_weights_only(model: str, error: Exception, files: tuple[str, str]) -> None:
    """Say that a model of a class without get_config() is kept in the second of two files."""
    reason = " ".join(str(error).split(". ")[0].split())
    warnings.warn(
        f"{files[0]} cannot be written ({reason}): only the weights are kept, in {files[1]}. "
        f"Give {model} a get_config() and train again to play this run with `kytolly evaluate`.",
        stacklevel=3,
    )
