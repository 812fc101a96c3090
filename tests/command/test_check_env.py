"""`kytolly check-env`."""

import json

from kytolly.command.entry import main


def test_findings_are_printed_and_returned_as_json(capsys):
    assert main(["check-env", "CartPole-v1", "--steps", "50", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "CartPole-v1 does what it promises."
    found = json.loads(lines[-1])
    assert [f["level"] for f in found] == ["ok"] * len(found)
    assert len(lines) == len(found) + 2


def test_an_environment_that_cannot_be_used_is_exit_status_1(capsys):
    assert main(["check-env", "Blackjack-v1", "--steps", "5"]) == 1
    assert "FlattenObservation" in capsys.readouterr().out


def test_an_unknown_environment_is_exit_status_2(capsys):
    assert main(["check-env", "CarPole-v1"]) == 2
    assert "CartPole-v1" in capsys.readouterr().err
