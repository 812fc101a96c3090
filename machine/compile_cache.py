"""The cache of compiled programs: its folder for this machine, and its entries' health."""

from __future__ import annotations

import atexit
import glob
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import tempfile
import time
import zlib
from pathlib import Path

from google.protobuf import empty_pb2
from google.protobuf.message import DecodeError

from kytolly.machine import hardware
from kytolly.machine.facts import OFF_WORDS
from kytolly.machine.switches import (
    LATE,
    ReportItem,
    add_flags,
    flags_were_read,
    item_failed,
    item_off,
    item_on,
)

CACHE_FLAG = "tf_xla_persistent_cache_directory"
MIN_FREE_BYTES = 200 * 2**20  # below this the cache is only read: a failed write ends the run
MAX_CACHE_BYTES = 256 * 2**20  # every entry is read and checked at each start


def machine_description() -> str:
    """The facts that shape machine code: XLA's cache key holds the program alone."""
    files = ["/proc/driver/nvidia/version", *glob.glob("/proc/driver/nvidia/gpus/*/information")]
    texts = [Path(f).read_text(errors="replace") for f in sorted(files) if os.path.exists(f)]
    gpus = re.findall(r"^(?:Model|NVRM version):.*$", "\n".join(texts), re.M)
    chosen = (
        os.environ.get("CUDA_VISIBLE_DEVICES", "all") if hardware.nvidia_gpu_plausible() else "none"
    )
    flags = sorted(os.environ.get("XLA_FLAGS", "").split())
    return "\n".join(
        [*hardware.cpu_description(), str(hardware.usable_cores()), *gpus, chosen, *flags]
    )


def cache_folder(setting: bool | str | os.PathLike[str] = True) -> Path | None:
    """Folder of the programs compiled for this very machine; None where the cache is off.

    Args:
        setting: A folder, False for no cache, or True for what KYTOLLY_COMPILE_CACHE says (a
            folder or `off`), by default kytolly/xla in the user's cache folder.
    """
    wanted = os.environ.get("KYTOLLY_COMPILE_CACHE", "").strip() if setting is True else setting
    if wanted is False or str(wanted).lower() in OFF_WORDS:
        return None
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(wanted or Path(home) / "kytolly" / "xla").expanduser().absolute()
    try:
        version = importlib.metadata.version("tensorflow")
    except importlib.metadata.PackageNotFoundError:  # tensorflow-cpu, nightly: by its location
        spec = importlib.util.find_spec("tensorflow")
        version = hashlib.sha256(repr(spec and spec.origin).encode()).hexdigest()[:6]
    digest = hashlib.sha256(machine_description().encode()).hexdigest()
    return root / f"tf{version}-{platform.machine()}-{digest[:12]}"


def is_well_formed(data: bytes) -> bool:
    """True where bytes are a whole protocol buffer: a cut, empty or zeroed file is not."""
    try:
        empty_pb2.Empty().ParseFromString(data)  # walks over fields that it does not know
    except DecodeError:
        return False
    return data[:1] not in (b"", b"\0")


def checksums(folder: Path) -> dict[str, int]:
    """The checksum of every entry at the end of an earlier process; none where none is known."""
    try:
        return dict(json.loads((folder / "checksums.json").read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def record_checksums(folder: Path) -> None:
    """Write down the checksum of every entry, for the next start to compare."""
    known = checksums(folder)
    manifest = folder / "checksums.json"
    try:
        since = manifest.stat().st_mtime if known else 0.0
        for path in folder.glob("xla_compile_cache__*.pb"):
            if path.name not in known or path.stat().st_mtime > since:
                known[path.name] = zlib.crc32(path.read_bytes())
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
            json.dump(known, file)
        os.replace(file.name, manifest)
    except OSError:
        return


def sweep_cache(folder: Path) -> int:
    """Remove entries that are damaged, and the oldest ones beyond the size limit.

    TensorFlow raises at a damaged entry instead of compiling again: one damaged file would end
    every start. Returns the number of damaged entries.
    """
    for path in folder.glob("xla_compile_cache__*.tmp"):
        if time.time() - path.stat().st_mtime > 3600:  # a process that died while writing
            path.unlink(missing_ok=True)
    known = checksums(folder)
    damaged = 0
    total = 0
    files = sorted(folder.glob("xla_compile_cache__*.pb"), key=os.path.getmtime, reverse=True)
    for path in files:
        data = path.read_bytes()
        total += len(data)
        changed = path.name in known and known[path.name] != zlib.crc32(data)
        broken = changed or not is_well_formed(data)
        damaged += broken
        if broken or total > MAX_CACHE_BYTES:
            path.unlink(missing_ok=True)
    return damaged


def use_compile_cache(setting: bool | str | os.PathLike[str]) -> ReportItem:
    """Point TensorFlow to this machine's cache, unless the user already did."""
    name = "compile_cache"
    flags = os.environ.get("TF_XLA_FLAGS", "")
    if CACHE_FLAG in flags and setting is False:
        return item_failed(name, "Compile cache stays on", "TF_XLA_FLAGS holds it; unset that")
    if CACHE_FLAG in flags:
        return item_on(name, "Compile cache set in TF_XLA_FLAGS", flags)
    missing = "No compile cache, so each start compiles anew"
    try:
        folder = cache_folder(setting)
        if folder is None:
            return item_off(name, "Compile cache off")
        if flags_were_read():
            return item_failed(name, missing, f"TensorFlow has read its flags already; {LATE}")
        if "'" in str(folder):
            return item_failed(name, missing, f"TF_XLA_FLAGS cannot hold a quote: {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        read_only = shutil.disk_usage(folder).free < MIN_FREE_BYTES
        if not read_only:
            tempfile.TemporaryFile(dir=folder).close()  # raises where nothing can be written
        damaged = sweep_cache(folder)
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        return item_failed(name, missing, f"{error}; set KYTOLLY_COMPILE_CACHE to another folder")
    problem = add_flags(
        "TF_XLA_FLAGS",
        f"--{CACHE_FLAG}='{folder}' --tf_xla_persistent_cache_device_types=CPU,GPU"
        + " --tf_xla_persistent_cache_read_only=true" * read_only,
    )
    if problem:
        return item_failed(name, missing, problem)
    if not read_only:
        atexit.register(record_checksums, folder)
    if not hardware.nvidia_gpu_plausible() and "avx512f" in hardware.cpu_description()[1]:
        # Each load of a cached CPU program logs 4 kB of a false alarm (openxla/xla issue 44565).
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    notes = [f"{damaged} damaged entries removed"] * bool(damaged)
    notes += ["read only: the disk is full"] * read_only
    place = str(folder).replace(os.path.expanduser("~"), "~", 1)  # no user's name in notebooks
    return item_on(name, f"Compile cache in {place}" + f" ({'; '.join(notes)})" * bool(notes))
