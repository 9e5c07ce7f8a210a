"""Shift of new documents: none by chance, one where there is one."""

import numpy as np
import pyarrow as pa
import pytest

from datamask.release.shift import SHIFTED, shifts, stability

KEPT = "selected"


class Shards:
    """A release as far as `shifts` reads it."""

    def __init__(self, **shards):
        self.shards = shards

    def manifest(self):
        return {"conservation": {"shards": {name: {"rows": len(rows)} for name, rows in self.shards.items()}}}

    def decisions(self, shard, columns):
        return self.shards[shard].select(columns)


def shard(seed, rows=400, mean=0.5, long=6.0, filtered=0.1):
    draw = np.random.default_rng(seed)
    fell = draw.random(rows) < filtered
    return pa.table(
        {
            "quality_score": pa.array(draw.normal(mean, 0.1, rows), pa.float32()),
            "token_count": pa.array(np.exp(draw.normal(long, 1, rows)).astype(int)),
            "outcome": np.where(fell, "filtered", KEPT),
            "reason": pa.array(["language" if one else None for one in fell]),
        }
    )


@pytest.mark.parametrize("rows", [3, 20, 200, 2000])
def test_what_is_drawn_alike_has_not_shifted(rows):
    for seed in range(40):
        assert shifts(Shards(a=shard(1), b=shard(2), c=shard(100 + seed, rows)), {"c"}) == []


@pytest.mark.parametrize(
    ("change", "column", "told"),
    [
        ({"mean": 0.4}, "quality_score", "mean 0.49"),
        ({"long": 4.5}, "token_count", "length of the 400 new documents has shifted (stability index "),
        ({"filtered": 0.6}, "outcome", "kept 90"),
    ],
)
def test_each_kind_of_shift_is_named(change, column, told):
    [found] = shifts(Shards(a=shard(1), b=shard(2), c=shard(3, **change)), {"c"})
    assert found.column == column and told in found.text and found.index > SHIFTED
    assert found.documents == 400


def test_nothing_new_or_nothing_old_or_no_scores_is_no_shift():
    assert shifts(Shards(a=shard(1)), {"a"}) == shifts(Shards(a=shard(1)), {"b"}) == []
    empty = shard(3).slice(0, 0)
    assert shifts(Shards(a=shard(1), b=empty), {"b"}) == []
    null = shard(3).set_column(0, "quality_score", pa.nulls(400, pa.float32()))
    assert shifts(Shards(a=shard(1), b=null), {"b"}) == []


def test_the_index_is_siddiqis():
    before, now = np.array([4000, 4000, 2000]), np.array([1000, 4000, 5000])
    p, q = before / before.sum(), now / now.sum()
    assert stability(before, now) == pytest.approx(((q - p) * np.log(q / p)).sum(), rel=1e-3)
    assert stability(before, before) == 0 and stability(now, before) == pytest.approx(stability(before, now))
    assert stability(np.array([5, 1]), np.array([1, 5])) == 0  # a few documents may be chance
