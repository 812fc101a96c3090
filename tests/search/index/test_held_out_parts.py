"""Parts of train queries that are to the others what dev queries are to all of them."""

import numpy as np
import pytest

from kytolly.search.index.held_out_parts import JudgedTexts, held_out_parts, sharing


def judged(*pairs):
    return JudgedTexts([text for text, *_ in pairs], [docs for _, *docs in pairs])


PAIRS = [(f"{word} {doc}", doc) for doc in range(12) for word in ("a", "b", "c")]
PARAPHRASES, ELSEWHERE = judged(*PAIRS), judged(("d", 99))


def test_paraphrases_stay_together_where_dev_queries_are_of_other_documents():
    parts = held_out_parts(PARAPHRASES, ELSEWHERE, 3, 0)
    assert np.bincount(parts).tolist() == [12, 12, 12]
    assert (parts.reshape(12, 3) == parts[::3, np.newaxis]).all()


def test_paraphrases_are_parted_where_dev_queries_have_the_same_documents():
    dev = judged(("d", 3), ("e", 4))
    assert sharing(dev, PARAPHRASES) == sharing(PARAPHRASES, PARAPHRASES) == 1.0
    parts = held_out_parts(PARAPHRASES, dev, 3, 0)
    assert np.bincount(parts).tolist() == [12, 12, 12]
    assert (parts.reshape(12, 3) != parts[::3, np.newaxis]).any()


def test_equal_texts_stay_together_and_a_large_group_is_parted():
    twice = judged(*PAIRS, *PAIRS[:5])
    parts = held_out_parts(twice, judged(("d", 3)), 4, 1)
    assert (parts[:5] == parts[-5:]).all() and set(parts) == {0, 1, 2, 3}
    chain = judged(*((str(place), place, place + 1) for place in range(20)))
    assert sharing(ELSEWHERE, chain) == 0.0 < sharing(chain, chain) == 1.0
    assert np.bincount(held_out_parts(chain, ELSEWHERE, 2, 0)).tolist() == [10, 10]
    one = judged(("0", 0, 1))
    assert sharing(judged(), chain) == 0.0 == sharing(one, one)


def test_fewer_groups_than_parts_are_parted():
    few = judged(*PAIRS[:6])  # of two documents
    assert np.bincount(held_out_parts(few, ELSEWHERE, 2, 0)).tolist() == [3, 3]
    assert np.bincount(held_out_parts(few, ELSEWHERE, 3, 0)).tolist() == [2, 2, 2]


def test_fewer_queries_than_parts_are_refused():
    with pytest.raises(ValueError, match="held_out_folds is 4, and only 3 different train queries"):
        held_out_parts(judged(*PAIRS[:3], PAIRS[0]), judged(), 4, 0)
