"""Commands on run folders that strangers altered, each in a process of its own.

    python stranger_runs.py FOLDER KIND FIRST LAST

KIND is an algorithm and a loop, as in dqn-device. Each case alters a copy of the
same run by its number and plays it, or resumes it. One JSON object a case is printed: what was
altered, how the process ended, what it printed and the memory that it took. Each process is forked
from this one, which has imported everything and run nothing.
"""

import io
import json
import os
import pathlib
import random
import shutil
import sys
import traceback
import warnings
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KYTOLLY_XLA"] = "off"
import numpy as np
import yaml

from kytolly.command import entry
from kytolly.record.files import checksum
from kytolly.trainer import Trainer
from tests.record.killed_runs import config

ODD = [None, True, "", "evil", "evil:Env-v0", "../../outside", "x" * 5_000, "\0", "a\nb", -1, 0, 1]
ODD += [10**9, 2**63, 10**400, -(2**31) - 1, 0.5, 1e308, float("nan"), float("-inf"), [], {}, [[]]]
ODD += [[None], {"a": 1}, [1] * 50, {"class_name": "system", "module": "os", "config": "touch x"}]
ODD += [{"class_name": "Env", "module": "evil", "registered_name": None, "config": {}}]
ODD += [{"class_name": "__lambda__", "config": {"value": ["YQ==", None, None]}}]
NAMES = [
    "module",
    "class_name",
    "registered_name",
    "config",
    "units",
    "files",
    "host_state",
    "seed",
]


def altered_leaf(values, choose):
    """Nested lists and dicts in which one place, chosen at random, holds something odd."""
    places = []

    def visit(value):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in list(items):
            places.append((value, key))
            if isinstance(inner, (dict, list)) and inner:
                visit(inner)

    visit(values)
    holder, key = choose.choice(places)
    act = choose.random()
    if isinstance(holder, dict) and act < 0.15:
        del holder[key]
    elif isinstance(holder, dict) and act < 0.3:
        holder[choose.choice(NAMES)] = choose.choice(ODD)
    elif isinstance(holder, dict) and act < 0.35:
        holder[choose.choice(["../../outside", "best-/../../outside", "", "a\nb"])] = holder[key]
    else:
        holder[key] = choose.choice(ODD)
    return values


def altered_bytes(data, choose):
    """Bytes of which some were changed, removed, repeated or cut off."""
    data, act = bytearray(data), choose.randrange(6)
    for _ in range(choose.choice([1, 1, 2, 8, 64]) if act < 3 else 0):
        if data:
            data[choose.randrange(len(data))] = choose.choice([0, 255, choose.randrange(256)])
    place = choose.randrange(len(data) + 1)
    if act == 3:
        del data[place:]
    elif act == 4:
        data[place:place] = bytes(
            choose.randrange(256) for _ in range(choose.choice([1, 8, 4_096]))
        )
    elif act == 5:
        del data[place : place + choose.choice([1, 8, 512])]
    return bytes(data)


def altered_zip(path, choose):
    """Write a zip file again, with valid checksums, after a change of one of its parts."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = choose.choice(sorted(parts))
    if name.endswith(".json") and choose.random() < 0.8:
        parts[name] = json.dumps(altered_leaf(json.loads(parts[name]), choose)).encode()
    elif name.endswith(".npy") and choose.random() < 0.7:
        array = np.load(io.BytesIO(parts[name])).ravel().copy()
        if choose.random() < 0.2:
            array = array.astype(choose.choice(["O", "f4", "U5", "u1", "c8"]))
        elif array.size:
            array[choose.randrange(array.size)] = choose.choice([0, 1, 127, 200])
        buffer = io.BytesIO()
        np.save(buffer, array)
        parts[name] = buffer.getvalue()
    else:
        parts[name] = altered_bytes(parts[name], choose)
    kind = choose.choice([zipfile.ZIP_STORED] * 5 + [zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def alter(run, choose):
    """Alter one file of a run; returns what was done."""
    files = sorted(p for p in run.rglob("*") if p.is_file() and "events" not in p.name)
    files = [p for p in files if p.suffix != ".png" and p.name != ".lock"]
    newest = max((int(p.stem[5:]) for p in run.glob("checkpoints/ckpt-*.json")), default=0)
    read = (f"ckpt-{newest}", "best.keras", "config.yaml")
    read += ("reformulation.yaml", "choice.json", "index.npz", "vectors.npz")
    weights = [12 if p.name.startswith(read) else 1 for p in files]
    path = choose.choices(files, weights)[0]
    try:
        alter_file(path, choose)
    except (OSError, ValueError, LookupError, zipfile.BadZipFile, yaml.YAMLError):
        path.write_bytes(altered_bytes(path.read_bytes(), choose))  # what was altered before
    agrees = choose.random() < 0.6 and path.is_file()
    if agrees:
        agree(run, path)
    return f"{path.relative_to(run)}{' with its checksum' if agrees else ''}"


def alter_file(path, choose):
    """Alter a file as one of its kind, or as bytes."""
    how = choose.random()
    if path.suffix == ".yaml" and how < 0.8:
        values = altered_leaf(yaml.safe_load(path.read_text()), choose)
        path.write_text(yaml.safe_dump(values, sort_keys=False), "utf-8", "replace")
    elif path.suffix == ".json" and how < 0.8:
        path.write_text(json.dumps(altered_leaf(json.loads(path.read_text()), choose)))
    elif path.suffix in (".keras", ".npz") and how < 0.8:
        altered_zip(path, choose)
    elif how > 0.95:
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(altered_bytes(path.read_bytes(), choose))


def agree(run, path):
    """Let the lists of checksums say what a file is now, in both of its places."""
    copies = [path]
    if path.suffix == ".keras":
        copies = [run / "best.keras", *(run / "checkpoints").glob("best-*.keras")]
        data = path.read_bytes()
        for copy in copies:
            copy.write_bytes(data)
    for manifest in (run / "checkpoints").glob("*.json"):
        try:
            values = json.loads(manifest.read_text())
            values["files"] |= {p.name: checksum(p) for p in copies if p.name in values["files"]}
            manifest.write_text(json.dumps(values))
        except (OSError, ValueError, TypeError, KeyError):
            continue


def play(place, words):
    """Run a command in a child; returns its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        status = 98
        try:
            os.chdir(place)
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(place / name, os.O_CREAT | os.O_WRONLY), number)
            status = entry.main(words)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    _, code, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(code), usage.ru_maxrss // 1024


def commands(kind):
    algorithm = kind.split("-")[0]
    longer = ["train", algorithm, "--resume", "run", "--total-env-steps", "160", "--json"]
    return [["evaluate", "run", "--episodes", "2", "--json"], longer, longer]


def train(home, kind):
    Trainer(home / "whole", progress=False).train(config(kind), "CartPole-v1")


def make_run(home, kind, train):
    """The run that is altered, trained in a child."""
    child = os.fork()
    if child == 0:
        warnings.simplefilter("ignore")
        status = 1
        try:
            train(home, kind)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def main(train, commands):
    """Train a run, then alter and use copies of it.

    Args:
        train: Trains one of a kind in the folder `whole` of a folder.
        commands: The command lines that use one of a kind; the last reads all of its files.
    """
    home, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
    home.mkdir(exist_ok=True)
    make_run(home, kind, train)
    for number in range(int(sys.argv[3]), int(sys.argv[4])):
        choose = random.Random(f"{kind} {number}")
        place = home / "case"
        (place / "deep").mkdir(parents=True)
        (place / "evil.py").write_text("open('imported', 'w')")
        shutil.copytree(home / "whole", place / "run")
        done = [alter(place / "run", choose) for _ in range(choose.choice([1, 1, 1, 2]))]
        read_by_both = any("best.keras" in what or "config.yaml" in what for what in done)
        words = choose.choice(commands(kind)) if read_by_both else commands(kind)[-1]
        status, megabytes = play(place, words)
        known = {"evil.py", "run", "out", "err", "deep"}
        left = sorted({p.name for p in place.iterdir()} - known)
        left += sorted({p.name for p in home.iterdir()} - {"whole", "case", "tiny"})
        case = {"number": number, "altered": done, "words": words, "status": status, "left": left}
        case["out"] = (place / "out").read_text("utf-8", "replace")[-2_000:]
        case["err"] = (place / "err").read_text("utf-8", "replace")[-4_000:]
        print(json.dumps({**case, "megabytes": megabytes}), flush=True)
        shutil.rmtree(place)


if __name__ == "__main__":
    main(train, commands)
