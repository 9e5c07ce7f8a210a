"""Stripes hold every selected row once, in order, within the bounds; folders are safe whatever a dump is called."""

import re
import threading
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from datamask.read_ahead import one_ahead, read_ahead
from datamask.release.data_files import ENOUGH, cut_stripes, folder_names

SHARDS = st.lists(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4), st.integers(1, 40)), max_size=40), max_size=5
)


@hypothesis_settings(deadline=None)
@given(SHARDS, st.integers(1, 30), st.integers(10, 300))
def test_every_row_once_in_order_and_within_bounds(shards, rows_per_file, bytes_per_file):
    selections, rows = [], {}
    for shard, documents in enumerate(shards):
        ids = np.cumsum([step for step, _, _ in documents], dtype=np.int64)
        dumps = np.array([dump for _, dump, _ in documents], dtype=np.int64)
        sizes = np.array([size for _, _, size in documents], dtype=np.int64)
        selections.append((ids, dumps, sizes))
        rows |= {(shard, int(i)): (int(d), int(s)) for i, d, s in zip(ids, dumps, sizes, strict=True)}
    stripes = list(cut_stripes(selections, rows_per_file, bytes_per_file))
    seen = []
    for number, stripe in enumerate(stripes):
        assert stripe.number == number and stripe.runs
        mine = [
            (run.shard, int(i)) for run in stripe.runs for i in selections[run.shard][0] if run.first <= i <= run.last
        ]
        assert stripe.rows == len(mine)
        for dump in {rows[place][0] for place in mine}:
            sizes = [rows[place][1] for place in mine if rows[place][0] == dump]
            assert len(sizes) <= rows_per_file
            assert sum(sizes) <= bytes_per_file or len(sizes) == 1
        seen += mine
    assert seen == sorted(rows)
    for stripe, following in zip(stripes, stripes[1:], strict=False):  # none ends before it must
        place = following.runs[0].shard, following.runs[0].first
        mine = [rows[p] for p in seen if any(r.shard == p[0] and r.first <= p[1] <= r.last for r in stripe.runs)]
        dump, size = rows[place]
        same = [s for d, s in mine if d == dump]
        if same:
            assert len(same) + 1 > rows_per_file or sum(same) + size > bytes_per_file
        else:
            assert len(mine) >= rows_per_file / ENOUGH or sum(s for _, s in mine) >= bytes_per_file / ENOUGH


def test_a_corpus_dump_by_dump_has_a_stripe_for_each():
    selections = [(np.arange(100), np.full(100, shard // 2), np.full(100, 10)) for shard in range(6)]
    assert [[run.shard for run in stripe.runs] for stripe in cut_stripes(selections, 500, 10**6)] == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]


@given(st.lists(st.one_of(st.none(), st.text(max_size=120), st.from_regex(r"[./A-Za-z-]{1,8}")), max_size=30))
def test_folder_names_are_safe_and_distinct(dumps):
    names = folder_names(dumps)
    assert names.keys() == set(dumps)
    assert len({name.casefold() for name in names.values()}) == len(names)
    for dump, name in names.items():
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name) and not name.endswith(".") and len(name) <= 100
        if dump and re.fullmatch(r"CC-MAIN-\d{4}-\d\d", dump):
            assert name == dump
    assert folder_names(reversed(dumps)) == names


def test_no_dump_is_called_as_anothers_folder_would_be():
    [odd] = folder_names(["é x"]).values()
    names = folder_names([odd, "é x"])
    assert names[odd] == odd and names["é x"].startswith("x-") and names["é x"] != odd


@pytest.mark.parametrize("readers", [1, 2, 7])
def test_read_ahead_keeps_the_order_and_the_bound(readers):
    most, now, lock = [0], [0], threading.Lock()

    def source(number):
        def items():
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            yield from ((number, item) for item in range(number % 5 * 3))
            with lock:
                now[0] -= 1

        return items

    with ExitStack() as stack:
        found = list(read_ahead([source(n) for n in range(20)], readers, stack))
    assert found == [(n, item) for n in range(20) for item in range(n % 5 * 3)]
    assert most[0] <= readers


def test_ahead_makes_one_item_while_the_last_is_used():
    made = threading.Semaphore(0)
    count = [0]

    def items():
        for number in range(6):
            count[0] += 1
            made.release()
            yield number

    found = []
    for item in one_ahead(items()):
        found.append(item)
        for _ in range(1 if item else 2):  # its own, and the next one; there is none after the last
            assert item == 5 or made.acquire(timeout=10)
        assert count[0] <= item + 2
    assert found == list(range(6))


def test_read_ahead_raises_what_a_source_raises_and_ends_when_left():
    def broken():
        yield 1
        raise OSError("torn")

    def endless():
        while True:
            yield 0

    with pytest.raises(OSError, match="torn"), ExitStack() as stack:
        list(read_ahead([lambda: [0], broken, endless], 3, stack))
    with ExitStack() as stack:
        assert next(read_ahead([endless, endless], 2, stack)) == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("datamask-ahead")]
