"""Python's sqlite3 with the system's SQLite.

TensorFlow's library carries a SQLite of its own, without FTS5. Where TensorFlow was imported first,
Python's module would take its functions from there (seen with TensorFlow 2.21 on Linux). So the
module is loaded in a way that prefers the libraries it was linked to. If sqlite3 itself was
imported after TensorFlow and before this file, it is too late: import sqlite3 first.
"""

from __future__ import annotations

import os
import sys

_flags = sys.getdlopenflags() if hasattr(os, "RTLD_DEEPBIND") else None  # glibc alone has it
if _flags is not None:
    sys.setdlopenflags(_flags | os.RTLD_DEEPBIND)
try:
    import sqlite3
finally:
    if _flags is not None:
        sys.setdlopenflags(_flags)

__all__ = ["sqlite3"]
