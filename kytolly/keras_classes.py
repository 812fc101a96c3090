"""Makes Kytolly's layers known to Keras, whichever of the two is imported first.

Keras finds a class in a `.keras` file among those that are registered, and imports no module that
a file names. So the classes are registered when both packages are imported, and not before: that
`import kytolly` imports Keras would cost seconds.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

ROOMS = "kytolly.model", "kytolly.search.model"


def register_with_keras() -> None:
    """Register the classes of the rooms of models now, or as soon as Keras is imported."""
    if "keras" in sys.modules:
        import_models()
    else:
        sys.meta_path.insert(0, KerasImport())


def import_models() -> None:
    """Import every module of these rooms: each registers its classes."""
    import pkgutil

    for name in ROOMS:
        if importlib.util.find_spec(name.rpartition(".")[0]) is None:
            continue  # a library without its guest
        room = importlib.import_module(name)
        for module in pkgutil.iter_modules(room.__path__):
            importlib.import_module(f"{name}.{module.name}")


class KerasImport:
    """Waits for the import of Keras, lets it pass, and calls `import_models` after it.

    It goes on waiting while others only ask where Keras lies, as TensorFlow does.
    """

    def __init__(self) -> None:
        self._asks = False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The spec that the other finders give; None for what is not Keras."""
        if fullname != "keras" or self._asks:
            return None
        from importlib import util

        self._asks = True
        try:
            spec = util.find_spec(fullname)
        finally:
            self._asks = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                sys.meta_path.remove(self)
                execute(module)
                import_models()

            spec.loader.exec_module = execute_and_register
        return spec
