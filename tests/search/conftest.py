import numpy as np
import pytest

from kytolly.search.reformulate.context_cache import VARIABLE
from kytolly.search.reformulate.gain_model import GainModel


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """A cache of indexes that is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("search_cache")))
        yield


@pytest.fixture
def every_change_pays(monkeypatch):
    """`pretrained` changes all queries, whatever gain is expected."""
    model = GainModel.read()._replace(margins=np.array([-9.0, -9.0]))
    monkeypatch.setattr(GainModel, "read", lambda path=None: model)
