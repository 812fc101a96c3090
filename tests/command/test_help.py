import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from kytolly.agent.algorithms import ALGORITHMS, part
from kytolly.command import entry

ROOT = Path(__file__).parents[2]


def test_every_field_is_a_flag_with_help_and_unit(capsys):
    with pytest.raises(SystemExit) as stop:
        entry.main(["train", "--help"])
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
    assert "steps of each environment per iteration [env steps; default 128]" in ppo
    dqn = help_of(["train", "dqn"], capsys)
    assert all(flag in dqn for flag in foreign) and not any(flag in dqn for flag in own)
    both = help_of(["train"], capsys)
    assert all(flag in both for flag in [*own, *foreign])
    assert "ppo-kl" not in both and "--kl-coef" not in both  # only Python trains it


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
