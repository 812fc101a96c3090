"""A function is a verb if it has an effect, else the noun that it returns: no bare participle."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = sorted(path.name for path in (ROOT / "kytolly").iterdir() if path.is_symlink())
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
FILES += [ROOT / "trainer.py", ROOT / "training_run.py", ROOT / "kytolly" / "__init__.py"]

# Participles that do not end with "ed", without those that are verbs or nouns too (cut, put, set,
# read, split, spread, run, left).
IRREGULAR = set(
    "begun bound broken brought built chosen done drawn driven fallen felt flown forgotten found "
    "frozen given gone grown heard held hidden kept known laid learnt lent lit lost made meant met "
    "paid proven risen seen sent shown sold spent spoken stood stuck swept taken taught thought "
    "thrown told understood won worn woven written".split()
)
VERBS_AND_NOUNS = set("bed embed exceed feed heed need proceed seed shed speed succeed".split())
# "file:function": why it must be called so.
ALLOWED = {"reformulation/reformulator.py:pretrained": "the reformulator that it returns is that"}


def is_bare_participle(name):
    word = name.strip("_")
    if not word.isalpha() or word in VERBS_AND_NOUNS:
        return False
    return word.endswith("ed") or word in IRREGULAR


def is_statement(function):
    """Whether a property answers yes or no: such a name reads as a statement."""
    answers = isinstance(function.returns, ast.Name) and function.returns.id == "bool"
    decorators = [getattr(d, "id", None) for d in function.decorator_list]
    return answers and "property" in decorators


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_is_named_by_a_bare_participle(path):
    wrong = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            place = f"{path.relative_to(ROOT)}:{node.name}"
            if is_bare_participle(node.name) and not is_statement(node) and place not in ALLOWED:
                wrong.append(f"{place} (line {node.lineno})")
    assert not wrong, f"{wrong}: name them by a verb, or by the noun that they return"


def test_the_rule_itself_can_fail():
    bad = ("finished", "_learnt", "drawn", "__converted", "built")
    assert all(is_bare_participle(name) for name in bad)
    good = ("seed", "save_plot", "double_q_target", "split", "__init__", "embed", "checked_axes")
    assert not any(is_bare_participle(name) for name in good)
