import numpy as np
import pytest

from kytolly.search.text.buckets import BucketBatchSampler

LENGTHS = np.random.default_rng(0).integers(1, 40, 200)


def rows_of(groups):
    return np.concatenate([group.rows.ravel() for group in groups])


def test_the_split_that_saves_most_is_made_first():
    # One bucket costs 6 * 10 tokens; split after the 2: 2 * 2 + 4 * 10 = 44, after the 3s:
    # 4 * 3 + 2 * 10 = 32, after the 9: 5 * 9 + 10, but that leaves one row, fewer than a batch.
    sampler = BucketBatchSampler([2, 10, 3, 9, 2, 3], batch_size=2, num_buckets=2)
    assert [sorted(rows) for rows in sampler.buckets] == [[0, 2, 4, 5], [1, 3]]
    assert sampler.bucket_lengths.tolist() == [[3], [10]]
    # 29 of the 32 tokens are none of padding; with one length 29 of 60.
    assert sampler.padding_share() == pytest.approx(3 / 32)
    assert sampler.fixed_padding_share() == pytest.approx(31 / 60)


def test_each_of_two_sequences_has_its_own_length():
    lengths = [[1, 9], [1, 9], [9, 1], [9, 1]]
    sampler = BucketBatchSampler(lengths, batch_size=2, num_buckets=2)
    assert sampler.bucket_lengths.tolist() == [[1, 9], [9, 1]] and sampler.padding_share() == 0.0


def test_an_epoch_has_every_row_and_a_short_batch_repeats_rows_of_its_bucket():
    sampler = BucketBatchSampler(LENGTHS, batch_size=16, num_buckets=4)
    groups = sampler.epoch(0)
    assert set(rows_of(groups)) == set(range(200))
    assert sum(len(group.rows) for group in groups) == sampler.batches_per_epoch
    for bucket, rows in groups:
        assert rows.shape[1] == 16 and set(rows.ravel()) <= set(sampler.buckets[bucket])
        assert LENGTHS[rows].max() <= sampler.bucket_lengths[bucket][0]
    counts = np.bincount(rows_of(groups))
    assert counts.max() == 2 and counts.sum() == 16 * sampler.batches_per_epoch


def test_the_order_depends_on_the_seed_and_the_epoch_alone():
    def order(seed, epoch):
        return rows_of(BucketBatchSampler(LENGTHS, 16, 4, seed).epoch(epoch)).tolist()

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3) and order(1, 2) != order(2, 2)


def test_batches_of_a_bucket_follow_each_other_in_groups_that_are_shuffled():
    sampler = BucketBatchSampler(LENGTHS, 8, 3, group=4)
    sizes = [len(group.rows) for group in sampler.epoch(0)]
    assert max(sizes) == 4 and len(sizes) == sampler.groups_per_epoch
    buckets = [group.bucket for group in sampler.epoch(0)]
    assert buckets != sorted(buckets)


def test_ten_buckets_leave_less_than_a_quarter_of_the_padding_of_one_length():
    lengths = np.random.default_rng(1).lognormal(3.0, 0.5, 5_000).astype(int) + 1
    sampler = BucketBatchSampler(lengths, 32)
    assert len(sampler.buckets) == 10
    assert sampler.padding_share() < sampler.fixed_padding_share() / 4


def test_equal_lengths_and_few_rows_are_one_bucket():
    assert len(BucketBatchSampler([5] * 100, 4).buckets) == 1
    few = BucketBatchSampler([1, 2, 3], 16)
    assert len(few.buckets) == 1 and few.epoch(0)[0].rows.shape == (1, 16)


@pytest.mark.parametrize("settings", [([], 4), ([1], 0), ([1], 4, 0)])
def test_nothing_to_sample_is_refused(settings):
    with pytest.raises(ValueError, match="expected at least 1 of each"):
        BucketBatchSampler(*settings)
