"""The import table of the architecture, enforced: data flows one way, imports the other."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = {"agent", "benchmarks", "callback", "environment", "loop", "model", "policy", "retrieval"}
REFORMULATION = {
    "reformulation",
    "reformulation_profile",
    "reformulation_report",
    "reformulation_search",
    "reformulation_training",
    "reformulator",
}
MODULES = {
    "cli",
    "config",
    "doctor",
    "gpu_optimize",
    "settings",
    "train_optimized",
    "trainer",
    "tuned",
    *REFORMULATION,
}
COMMANDS = {"cli", "train_optimized"}
MAY_IMPORT = {
    "config": {"settings"},
    "settings": set(),
    "tuned": set(),
    "model": set(),
    "environment": set(),
    "doctor": {"config"},
    "gpu_optimize": {"config", "doctor", "benchmarks"},  # benchmarks: only when run as a program
    "retrieval": {"environment", "config", "settings"},
    "policy": {"model", "config"},
    "agent": {"policy", "model", "environment.spec", "config"},
    "callback": {"config"},
    "loop": {"agent", "policy", "environment", "callback.base", "config"},
    "trainer": ROOMS - {"benchmarks", "retrieval"} | MODULES - COMMANDS - REFORMULATION,
    "reformulation": ROOMS - {"benchmarks"} | MODULES - COMMANDS - REFORMULATION,
    "reformulator": ROOMS - {"benchmarks"} | MODULES - COMMANDS - REFORMULATION | {"reformulation"},
    "reformulation_profile": {"callback", "doctor", "environment", "loop", "retrieval"},
    "reformulation_report": {"reformulator", "retrieval"},
    "reformulation_search": {"reformulation", "retrieval"},
    "reformulation_training": ROOMS - {"benchmarks"} | MODULES - COMMANDS,
    "cli": ROOMS | MODULES,
    "train_optimized": ROOMS | MODULES,
    "benchmarks": ROOMS | MODULES,
}


def imported_names(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


def files():
    for module in sorted(MODULES):
        yield module, ROOT / f"{module}.py"
    for room in sorted(ROOMS):
        for path in sorted((ROOT / room).rglob("*.py")):
            yield room, path


def allowed(room, name):
    if name.split(".")[0] == room:
        return True
    return any(name == rule or name.startswith(rule + ".") for rule in MAY_IMPORT[room])


@pytest.mark.parametrize("room, path", [pytest.param(r, p, id=p.name) for r, p in files()])
def test_a_room_imports_only_what_it_may(room, path):
    ours = ROOMS | MODULES
    wrong = [
        name
        for name in imported_names(path)
        if name.split(".")[0] in ours and not allowed(room, name)
    ]
    assert not wrong, (
        f"{path.relative_to(ROOT)} imports {wrong}; {room} may import {MAY_IMPORT[room]}"
    )


def test_the_rule_itself_can_fail():
    assert not allowed("model", "policy.dqn")
    assert not allowed("agent", "environment.device")
    assert allowed("agent", "environment.spec")
    assert not allowed("loop", "callback.checkpoint")


def test_no_file_or_function_outgrows_its_reader():
    for _, path in files():
        source = path.read_text(encoding="utf-8")
        assert source.count("\n") <= 400, f"{path.name} has more than 400 lines"
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length <= 60, f"{path.name}: {node.name} has {length} lines"


def test_nothing_is_called_utils():
    assert not [p for p in ROOT.rglob("util*.py") if ".venv" not in p.parts]
