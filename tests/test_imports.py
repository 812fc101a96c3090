"""The import table of the architecture, enforced: data flows one way, imports the other."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOORS = ("gpu_optimize", "train_optimized", "scripts")
SPEC = {
    "environment.spec",
    "environment.mask",
    "environment.fusion_barrier",
    "environment.memory",
    "environment.memory_spec",
    "environment.encoding",
}
LIBRARY = {"agent", "callback", "config", "deployment", "environment", "loop", "machine", "model"}
LIBRARY |= {"policy", "record", "trainer", "training_run"}
MAY_IMPORT = {
    "config": {"environment.spec"},
    "model": set(),
    "environment": set(),
    "machine": {"config"},
    "record": {"config"},
    "policy": {"model", "config"} | SPEC,
    "agent": {"policy", "model", "config", "environment.state_variable"} | SPEC,
    "callback": {"config", "record", "machine.gpu"},
    "loop": {"agent", "policy", "environment", "callback.base", "config"},
    "deployment": {"agent", "policy", "model", "environment", "config", "record", "machine"},
    "training_run": LIBRARY - {"trainer"},
    "trainer": LIBRARY | {"experiment.members"},
    "experiment": LIBRARY,
    "command": LIBRARY | {"experiment", "benchmarks"},
    "benchmarks": LIBRARY | {"experiment", "command"},
}
USABLE = LIBRARY | {"experiment"}
# The rooms of the guest: they may import the library, which imports none of them.
TEXTS = {"search.config", "search.model", "search.index", "search.text"}
SEARCH = TEXTS | {"search.reformulate", "search.chain", "search.ranker_training"}
SEARCH |= {"search.command", "search.benchmark", "search.scripts"}
MAY_IMPORT |= {
    "search.config": {"config"},
    "search.model": {"model"},
    "search.index": {"config", "machine", "record"},
    "search.text": USABLE | TEXTS,
    "search.reformulate": USABLE | TEXTS,
    "search.command": USABLE | SEARCH | {"command"},
    "search.benchmark": USABLE | SEARCH | {"command", "benchmarks"},
    "search.scripts": USABLE | SEARCH | {"command", "benchmarks"},
    "search": USABLE | SEARCH,
}
TOP = ("trainer", "training_run")  # files, not rooms
ROOMS = [room for room in MAY_IMPORT if room not in TOP and "." not in room]


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module):
    """The room of a module; within `search` one of its own."""
    inner = ".".join(module.split(".")[:2])
    return inner if inner in MAY_IMPORT else module.split(".")[0]


def files():
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    return {module_name(path): path for path in [*paths, *(ROOT / f"{name}.py" for name in TOP)]}


def imported_modules(path):
    """Modules of ours that a file imports, without the name of the package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [
                name if name.removeprefix("kytolly.") in FILES else node.module for name in whole
            ]
        else:
            continue
        for name in names:
            top = name.split(".")[0]
            assert top not in MAY_IMPORT, f"{path} imports {name}, expected kytolly.{name}"
            assert top not in DOORS, f"{path} imports {name}, which is not in the package"
            if top == "kytolly":
                yield name.removeprefix("kytolly").removeprefix(".")


def allowed(room, name):
    if room_of(name) == room:
        return True
    return any(name == rule or name.startswith(rule + ".") for rule in MAY_IMPORT[room])


FILES = files()


@pytest.mark.parametrize("module", FILES)
def test_a_room_imports_only_what_it_may(module):
    room = room_of(module)
    wrong = [name for name in imported_modules(FILES[module]) if not allowed(room, name)]
    assert not wrong, f"{module} imports {wrong}; {room} may import {MAY_IMPORT[room]}"


def test_no_imports_run_in_a_circle():
    edges = {module: {n for n in imported_modules(FILES[module]) if n in FILES} for module in FILES}
    left = dict(edges)
    while left:
        free = [module for module, needs in left.items() if not needs & set(left) - {module}]
        assert free, f"these import each other: {sorted(left)}"
        for module in free:
            del left[module]


def test_every_room_is_part_of_the_package():
    links = {
        path.name: path.readlink() for path in (ROOT / "kytolly").iterdir() if path.is_symlink()
    }
    tops = (f"{name}.py" for name in TOP)
    expected = {*ROOMS, *tops, "configs", "zoo"}  # the last two hold no code
    guest = set() if (ROOT / "search").exists() else {"search"}
    assert links.keys() - guest == expected - guest
    assert all(str(target) == f"../{name}" for name, target in links.items())


def test_the_rule_itself_can_fail():
    assert not allowed("model", "policy.dqn")
    assert not allowed("agent", "environment.tensor.stepping")
    assert allowed("agent", "environment.spec")
    assert not allowed("loop", "callback.progress")
    assert not allowed("command", "search.command.search")
    assert allowed("search.text", "search.index.bm25")
    assert not allowed("search.index", "search.text.rows")


def classes_asked_for(tree):
    """Names of the classes that a file's isinstance and issubclass calls ask for."""
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if is_call and node.func.id in ("isinstance", "issubclass"):
            for part in ast.walk(node.args[1]):
                if isinstance(part, (ast.Name, ast.Attribute)):
                    yield part.id if isinstance(part, ast.Name) else part.attr


def compares_the_algorithm(node):
    """Whether a comparison of an algorithm with a name in the code decides something."""
    parts = list(ast.walk(node)) if isinstance(node, ast.Compare) else []
    asks = any(isinstance(part, ast.Attribute) and part.attr == "algorithm" for part in parts)
    return asks and any(isinstance(getattr(part, "value", None), str) for part in parts)


KINDS = re.compile(
    r"(.*(Config|Agent|Policy|Loop|Buffer)|(Multi)?Categorical|(Squashed)?Gaussian"
    r"|(Host|Device)Queries)$"
)
NO_KINDS = [
    module
    for module in FILES
    if module.split(".")[0] in (*TOP, *"agent loop policy model experiment search command".split())
]


@pytest.mark.parametrize("module", NO_KINDS)
def test_nobody_asks_which_kind_of_config_agent_policy_distribution_or_loop_it_got(module):
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    wrong = [name for name in classes_asked_for(tree) if KINDS.match(name)]
    assert not wrong, f"{module} asks isinstance of {wrong}: let the object answer for itself"


@pytest.mark.parametrize("module", [name for name in NO_KINDS if name != "agent.algorithms"])
def test_only_the_table_knows_which_algorithm_runs(module):
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    lines = [node.lineno for node in ast.walk(tree) if compares_the_algorithm(node)]
    assert not lines, f"{module} compares the algorithm with a name, lines {lines}"


def test_these_rules_can_fail_too():
    bad = (
        "isinstance(x, (int, dqn.DQNPolicy)) or issubclass(y, RunConfig) or isinstance(z, Gaussian)"
    )
    found = [name for name in classes_asked_for(ast.parse(bad)) if KINDS.match(name)]
    assert found == ["DQNPolicy", "RunConfig", "Gaussian"]
    for bad in ("cfg.algorithm == 'ppo'", "'dqn' != self.cfg.algorithm", "a.algorithm in ('dqn',)"):
        assert any(map(compares_the_algorithm, ast.walk(ast.parse(bad)))), bad


def test_nothing_is_called_utils():
    assert not [p for p in ROOT.rglob("util*.py") if ".venv" not in p.parts]
