import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from kytolly.agent.algorithms import ALGORITHMS, part
from kytolly.benchmarks.tables import TABLES
from kytolly.command import entry
from kytolly.config.words import OTHER_NAMES
from kytolly.record.version import __version__

ROOT = Path(__file__).parents[2]


def test_every_field_is_a_flag_with_help_and_unit(capsys):
    with pytest.raises(SystemExit) as stop:
        entry.main(["train", "dqn", "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "--learning-rate" in text and "--total-env-steps" in text and "--reward-threshold" in text
    )
    assert "length of training, all environments together [env steps; default 50000]" in text


def help_of(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        entry.main([*argv, "--help"])
    assert stop.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_help_of_an_algorithm_lists_its_own_settings(capsys):
    ppo = help_of(["train", "ppo"], capsys)
    own = "--rollout-steps --gae-lambda --clip-range --target-kl --normalize-rewards".split()
    assert all(flag in ppo for flag in own) and "--total-env-steps" in ppo
    foreign = "--replay-capacity --epsilon-start --target-sync-updates --n-step".split()
    assert not any(flag in ppo for flag in foreign)
    assert "steps of each environment per iteration; more where they are below 8" in ppo
    dqn = help_of(["train", "dqn"], capsys)
    assert all(flag in dqn for flag in foreign) and not any(flag in dqn for flag in own)
    shared = help_of(["train"], capsys)
    assert not any(flag in shared for flag in [*own, *foreign])
    assert "all environments together [env steps; default by algorithm]" in shared
    assert "discount per env step" in shared and "--device" in shared
    assert "ppo-kl" not in shared and "--kl-coef" not in shared  # only Python trains it


def test_a_help_text_stands_alone():
    for name in ALGORITHMS:
        for field in dataclasses.fields(part(name, "config")):
            words = field.metadata["help"].split()
            assert words[0] not in ("of", "by", "between", "as", "over", "from"), field.name


@pytest.mark.parametrize("command", entry.COMMANDS)
def test_every_command_has_help_and_json(command, capsys):
    assert "--json" in help_of([command], capsys)


@pytest.mark.parametrize(
    "argv, absent",
    [
        ("train dqn", "kytolly.config.ppo kytolly.command.evaluate tensorflow numpy"),
        ("train ppo", "kytolly.config.dqn kytolly.command.doctor tensorflow numpy"),
        ("evaluate", "kytolly.config.dqn kytolly.config.ppo kytolly.command.train tensorflow"),
        ("doctor", "kytolly.config.run kytolly.agent yaml tensorflow"),
        ("", "kytolly.command.train kytolly.agent yaml tensorflow"),
    ],
)
def test_the_command_line_loads_what_the_command_needs(argv, absent):
    program = (
        "import sys; from kytolly.command.entry import main\n"
        f"try: main({[*argv.split(), '--help']!r})\n"
        "except SystemExit: pass\n"
        f"found = [name for name in {absent.split()!r} if name in sys.modules]\n"
        "sys.exit(f'loaded: {found}' if found else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        entry.main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out == f"kytolly {__version__}\n"


@pytest.mark.parametrize(
    "typed, meant",
    [
        ("--lr", "--learning-rate"),
        ("--buffer-size", "--replay-capacity"),
        ("--total-timesteps", "--total-env-steps"),
        ("--learning-rat", "--learning-rate"),
    ],
)
def test_a_name_of_another_library_is_understood(typed, meant, capsys):
    assert entry.main(["train", "dqn", "--env", "CartPole-v1", typed, "1"]) == 2
    assert f"Did you mean '{meant}'?" in capsys.readouterr().err


def test_every_name_of_another_library_stands_for_a_setting():
    known = {
        field.name for name in ALGORITHMS for field in dataclasses.fields(part(name, "config"))
    }
    assert set(OTHER_NAMES.values()) <= known | {"log_dir"}


def test_the_help_of_the_benchmark_lists_its_tables(capsys):
    text = help_of(["benchmark"], capsys)
    assert all(f" {name} {table.measures}" in text for name, table in TABLES.items())


def test_a_shell_completes_commands_algorithms_and_flags(capsys, tmp_path):
    assert entry.main(["completion", "bash"]) == 0
    (tmp_path / "completion.bash").write_text(capsys.readouterr().out)
    found = {}
    for words in ("tr", "train d", "train dqn --learning-rate-"):
        typed = ["kytolly", *words.split()]
        script = (
            f"source {tmp_path}/completion.bash; COMP_WORDS=({' '.join(typed)}); "
            f"COMP_CWORD={len(typed) - 1}; _shtab_kytolly; echo ${{COMPREPLY[@]}}"
        )
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
        found[words] = done.stdout.split()
    assert list(found.values()) == [["train"], ["dqn", "ddqn"], ["--learning-rate-final"]]
