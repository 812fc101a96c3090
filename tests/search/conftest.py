import pytest

from kytolly.search.reformulate.context_cache import VARIABLE


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """A cache of indexes that is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("search_cache")))
        yield
