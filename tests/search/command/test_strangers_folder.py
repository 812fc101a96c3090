import pytest

from tests.command.test_strangers_folder import check_no_import, write_stranger
from tests.search.reformulate.tiny_collection import write_collection


@pytest.mark.learning
def test_no_module_of_the_current_folder_is_imported(tmp_path):
    collection = write_collection(tmp_path / "texts")
    command = f"reformulate pretrained sea --collection {collection}"
    check_no_import(write_stranger(tmp_path), [command], tmp_path)
