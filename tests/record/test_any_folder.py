"""A stranger's folder, whatever is in it and whatever it is called, given to the commands."""

import contextlib
import io
import shutil
import sqlite3

import pytest
from hypothesis import HealthCheck, given, settings

from kytolly.command import entry
from tests.record.stranger_folders import (
    replace,
    replacements,
    snapshot,
    write_folders,
    write_outside,
)

TASK = {"algorithm": "ppo", "environment": "CartPole-v1", "space": {}, "settings": {}}
ALTERATIONS = [
    *(
        f"UPDATE study_user_attributes SET value_json = '{text}'"
        for text in ("[1]", "{}", "3", '"a"', "{", '{"algorithm": 1}')
    ),
    "UPDATE trial_params SET distribution_json = '[]'",
    "UPDATE trial_params SET distribution_json = '{'",
    "UPDATE trial_values SET value = NULL",
    "UPDATE trial_values SET value_type = 'INF_POS'",
    "UPDATE trials SET state = 'odd'",
    "UPDATE trial_user_attributes SET key = 'value'",
]


@pytest.mark.parametrize("alteration", ["", *ALTERATIONS], ids=lambda text: text[-40:])
def test_an_altered_study_is_refused_in_one_line(alteration, tmp_path):
    pytest.importorskip("optuna")
    from kytolly.experiment.study import FAILED, open_study

    study = open_study(file := tmp_path / "a.db", TASK, 0)
    for _ in range(2):
        trial = study.ask()
        trial.suggest_float("gamma", 0.9, 0.99)
        trial.set_user_attr(FAILED, "why")
        study.tell(trial, 1.0)
    del study, trial
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute(alteration)
    if not alteration:
        assert len(open_study(file, TASK, 0).get_trials()) == 2
        return
    with pytest.raises(ValueError, match=r"a\.db is no study") as error:
        open_study(file, TASK, 0)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_folders(tmp_path_factory.mktemp("folders"))


def command(*words):
    return lambda folder: entry.main([word.format(run=folder) for word in words])


ODD_NAMES = ["-x", "run[1]*?{b} a\\b'\"x $HOME ~ %20# ü 日本\u202e\nb"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_run_is_used_whatever_its_folder_is_called(name, folders, tmp_path):
    for kind in COMMANDS:
        place = tmp_path / kind / name
        place.parent.mkdir()
        shutil.copytree(folders / kind, place)
        for run in COMMANDS[kind][: 2 if kind == "agent" else None]:
            with contextlib.redirect_stdout(io.StringIO()):
                assert run(place) == 0
        with contextlib.redirect_stdout(io.StringIO()):
            if kind == "agent":
                assert command("plot", "{run}", "--out", "{run}/a[1] %d.png")(place) == 0


COMMANDS = {
    "agent": [
        command("evaluate", "{run}", "--episodes", "1", "--json"),
        command("plot", "{run}", "--out", "{run}/../a.png", "--json"),
        command("train", "ppo", "--resume", "{run}", "--json"),
        command("train", "ppo", "--resume", "{run}", "--seeds", "0,1", "--json"),
    ],
    "group": [
        command("train", "ppo", "--resume", "{run}", "--seeds", "0,1", "--json"),
        command("plot", "{run}", "--group", "--out", "{run}/../a.png", "--json"),
    ],
}


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("examples", [4, pytest.param(100, marks=pytest.mark.learning)])
def test_any_file_of_a_stranger_s_folder_is_used_or_refused_in_one_line(
    kind, examples, folders, tmp_path, monkeypatch
):
    def no_process(*args, **options):
        raise FileNotFoundError(2, "no process is started here", "python")

    monkeypatch.setattr("kytolly.experiment.processes.subprocess.Popen", no_process)
    check_any_file(kind, COMMANDS[kind], examples, folders, tmp_path)


def check_any_file(kind, runs, examples, folders, tmp_path):
    """Uses of a folder in which any file is replaced: each works, or is refused in one line."""
    outside = write_outside(tmp_path / "outside")
    before = snapshot(outside)
    others = sorted(path for path in folders.rglob("*") if path.is_file())
    names = [str(p.relative_to(folders)) for p in others if p.is_relative_to(folders / kind)]

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(replacements(names, others))
    def check(replacement):
        shutil.rmtree(tmp_path / kind, ignore_errors=True)
        shutil.copytree(folders / kind, tmp_path / kind)
        replace(tmp_path, outside, *replacement)
        for run in runs:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = run(tmp_path / kind)
            lines = err.getvalue().splitlines()
            assert status in (0, 2), lines
            if status == 2:
                ours = [line for line in lines if line.startswith("kytolly: ")]
                assert len(ours) == 1 and not out.getvalue() and len(ours[0]) < 1_100, lines
            assert snapshot(outside) == before

    check()
