"""Cases of a test of which few always run."""

import pytest


def rest_learning(cases, quick):
    """The cases for `parametrize`: those in `quick` always run, the rest with the long tests."""
    missing = [case for case in quick if case not in cases]
    assert not missing, f"{missing} are no cases"
    return [case if case in quick else learning(case) for case in cases]


def learning(case):
    """A case, a tuple where there are several arguments, that runs with the long tests."""
    arguments = case if isinstance(case, tuple) else (case,)
    return pytest.param(*arguments, marks=pytest.mark.learning)
