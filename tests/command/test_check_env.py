"""`kytolly check-env`."""

import json

from kytolly.command.entry import main


def test_findings_are_printed_and_returned_as_json(capsys):
    assert main(["check-env", "CartPole-v1", "--steps", "50", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["ok"] and found["environment"] == "CartPole-v1"
    assert {finding["level"] for finding in found["findings"]} == {"ok"}
    lines = [line for line in printed.err.splitlines() if line.startswith("ok ")]
    assert len(lines) == len(found["findings"]) and "does what it promises" in printed.err


def test_an_environment_that_cannot_be_used_is_exit_status_1(capsys):
    assert main(["check-env", "Blackjack-v1", "--steps", "5"]) == 1
    assert "FlattenObservation" in capsys.readouterr().out


def test_an_unknown_environment_is_exit_status_2(capsys):
    assert main(["check-env", "CarPole-v1"]) == 2
    assert "CartPole-v1" in capsys.readouterr().err
