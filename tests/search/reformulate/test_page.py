"""docs/query_reformulation.md: its commands and Python run, and its tables hold the defaults."""

import contextlib
import dataclasses
import functools
import re
import shlex
import sqlite3
from pathlib import Path

import pytest
import yaml

from kytolly.command import entry as cli
from kytolly.search.command import train_optimized
from kytolly.search.reformulate.options import SECTIONS, ReformulationOptions, options_from
from tests.search.reformulate.tiny_collection import SETTINGS, write_collection
from tests.test_examples import PYTHON_BLOCK

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "query_reformulation.md").read_text(encoding="utf-8")
COMMANDS = re.findall(
    r"^(?:python train_optimized\.py|kytolly reformulate) .*$", PAGE, re.MULTILINE
)


# The page says how; that something is learned, others test.
SHORT = {
    **SETTINGS,
    "training": {**SETTINGS["training"], "epochs": 1, "warm_start_epochs": 5, "held_out_folds": 0},
}


def run(command):
    """The exit status of a command of the page, in this process."""
    program, *argv = shlex.split(command)
    return train_optimized.main(argv[1:]) if program == "python" else cli.main(argv)


@pytest.mark.learning
def test_commands_and_python_run_in_order(tmp_path, monkeypatch, capsys):
    write_collection(tmp_path / "data" / "mine")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "msa_optimized_cpu.yaml").write_text(yaml.safe_dump(SHORT))
    monkeypatch.chdir(tmp_path)
    own = [command for command in COMMANDS if "runs/builtin" not in command]
    assert len(COMMANDS) == 7 and len(own) == 5
    for command in own:
        assert run(command) == 0, (command, capsys.readouterr().err)
    assert "Test: 10 queries" in capsys.readouterr().out
    assert (tmp_path / "reformulated.run").is_file()
    first, own_encoder, second = PYTHON_BLOCK.findall(PAGE)
    names: dict = {}
    exec(compile(first, "query_reformulation.md", "exec"), names)
    assert [one.query_id for one in names["many"]] == ["q1", "q2"]
    collection = names["reformulator"].context.collection
    with contextlib.closing(sqlite3.connect("docs.db")) as database:
        database.execute("CREATE VIRTUAL TABLE docs USING fts5(id UNINDEXED, text)")
        rows = zip(collection.doc_ids, collection.texts, strict=True)
        database.executemany("INSERT INTO docs VALUES (?, ?)", rows)
        database.commit()
    own_encoder = own_encoder.replace("ReformulationOptions(", "options(")
    short = options_from({"training": SHORT["training"]})
    names["options"] = functools.partial(dataclasses.replace, short)
    exec(compile(own_encoder, "query_reformulation.md", "exec"), names)
    assert names["reformulator"].context.documents.half.shape[1] == 512
    names["found"] = names["reformulator"].reformulate("key12 noise1")
    exec(compile(second, "query_reformulation.md", "exec"), names)
    assert len(names["ids"]) == 10 and names["clause"]["bool"]["should"]
    assert names["tokenizer"]("東京都の地図 maps") == [
        "東京",
        "京都",
        "都の",
        "の地",
        "地図",
        "maps",
    ]


def test_commands_for_the_built_in_collection_are_understood():
    train, use = (command for command in COMMANDS if "runs/builtin" in command)
    assert (
        train_optimized.make_parser().parse_args(shlex.split(train)[2:]).log_dir == "runs/builtin"
    )
    assert cli.parse(shlex.split(use)[1:]).run_dir == "runs/builtin"


@pytest.mark.parametrize("kind", [ReformulationOptions, *SECTIONS.values()])
def test_its_tables_hold_every_setting_with_its_default(kind):
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\w.,@+ -]+) \|", PAGE, re.MULTILINE))
    for field in dataclasses.fields(kind):
        if field.name in SECTIONS:
            continue
        default = getattr(kind(), field.name)
        if isinstance(default, bool) or default is None:
            expected = {None: "none", True: "yes", False: "no"}[default]
        elif isinstance(default, int):
            expected = f"{default:,}"
        else:
            expected = str(default).strip("()")
        assert rows[field.name] == expected, field.name


def test_its_links_lead_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[\w-]+)?\)", PAGE)
    assert links
    for link in links:
        assert (ROOT / "docs" / link).exists(), link
