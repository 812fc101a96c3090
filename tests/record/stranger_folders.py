"""Folders as a stranger may send them: each kind that a command takes, with files replaced."""

import json
import os
import random
import shutil
from pathlib import Path

import yaml
from hypothesis import strategies as st

from kytolly.deployment.zoo import run_path
from tests.helpers.written_runs import write_run

HUGE_BYTES = 2**30  # of a file with a hole: it takes no room
LINKS = ("file", "folder", "pipe", "nowhere", "/dev/zero")
numbers = st.sampled_from([-1, 0, 1, 2**63, 10**400, 0.5, 1e308, float("nan"), float("-inf")])
texts = st.sampled_from(["", "ab", "\0", "a\nb", "../../outside", "x" * 5_000, "evil:Env-v0", "1"])
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars, lambda one: st.lists(one, max_size=3) | st.dictionaries(texts, one, max_size=3)
)
deep = st.just("[" * 100_000)


def write_folders(home: Path) -> Path:
    """A folder of each kind of the library; nothing is trained."""
    agent = shutil.copytree(run_path("zoo:ppo/CartPole-v1"), home / "agent")
    run = write_run(home / "group" / "seed-0", [1.0, 2.0])
    shutil.copy(run / "metrics.csv", agent)
    counts = {"env_steps": 200, "updates": 2, "wall_seconds": 1.0, "stopped_by": "total_env_steps"}
    result = json.dumps({**counts, "evaluation": {"episodes": 2, "return_mean": 2.0}})
    (agent / "checkpoints").mkdir()
    (agent / "checkpoints" / "ckpt-100.json").write_text('{"files": {}, "host_state": {}}')
    write_run(home / "group" / "seed-1", [1.5, 2.5], seed=1)
    for name in ("seed-0", "seed-1", "."):
        (home / "group" / name / "result.json").write_text(result)
    shutil.copy(run / "config.yaml", home / "group" / "group.yaml")
    return home


def write_outside(folder: Path) -> Path:
    """What links lead to, and nothing may change."""
    (folder / "folder").mkdir(parents=True)
    (folder / "file").write_text("env_steps,updates\n20,1\n")
    (folder / "folder" / "own.txt").write_text("own")
    os.mkfifo(folder / "pipe")
    return folder


def snapshot(folder: Path) -> dict[str, tuple[float, bytes]]:
    """Everything in a folder, with its time and content."""
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


@st.composite
def replacements(draw, names, others):
    """A file, how it is replaced, and by what; `others` are files of any kind."""
    name = draw(st.sampled_from(names))
    how = draw(st.sampled_from(["link", "whole", "part", "part", "part", "other", "huge"]))
    if how == "link":
        return name, how, draw(st.sampled_from(LINKS))
    if how == "other":
        return name, how, draw(st.sampled_from(others))
    return name, how, draw(values | deep if how == "whole" else values)


def replace(home: Path, outside: Path, name: str, how: str, value) -> None:
    """Replace one file in a copy of `write_folders`."""
    path = home / name
    content = path.read_bytes()
    if how == "link":
        path.unlink()
        path.symlink_to(outside / value)  # of an absolute path, that one
    elif how == "other":
        path.write_bytes(value.read_bytes())
    elif how == "huge":
        with path.open("ab") as file:
            file.truncate(HUGE_BYTES)
    elif path.suffix == ".csv":
        lines = content.decode().splitlines()
        lines[-1 if how == "part" else 0] = f"{value},{'x' * 300_000 if value == 1 else ''}"
        path.write_text("\n".join(lines) + "\n", "utf-8", "replace")
    elif path.suffix in (".json", ".yaml"):
        is_json = path.suffix == ".json"
        whole = json.loads(content) if is_json else yaml.safe_load(content)
        if how == "part":
            holder = whole
            choose = random.Random(repr(value))
            while choose.random() < 0.5:
                inner = [one for one in holder.values() if isinstance(one, dict) and one]
                holder = choose.choice(inner) if inner else holder
            holder[choose.choice(sorted(holder))] = value
        text = value if isinstance(value, str) and how == "whole" else None
        dump = json.dumps if is_json else yaml.safe_dump
        path.write_text(text or dump(whole if how == "part" else value), "utf-8", "replace")
    else:
        path.write_bytes(content[: len(content) // 2] + repr(value)[:99].encode("utf-8", "replace"))
