"""As tests/record/stranger_runs.py, for runs that reformulate queries; KIND is reformulation."""

from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.train import train as train_reformulation
from tests.record.stranger_runs import main
from tests.search.reformulate.tiny_collection import make_options, write_collection

assert Reformulator  # what the commands import is imported before the processes are forked


def train(home, kind):
    collection = write_collection(home / "tiny")
    train_reformulation(make_options(collection), log_dir=home / "whole", say=str)


def commands(kind):
    return [["reformulate", "run", "key12 noise1"]]


if __name__ == "__main__":
    main(train, commands)
