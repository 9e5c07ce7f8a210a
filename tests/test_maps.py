"""Maps and reduces: items in any order, files that carry rows from round to round, and what a failed round leaves."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from datamask import storage
from datamask.config import Config
from datamask.corpus.plan import Part, Shard
from datamask.errors import DamagedFileError
from datamask.maps import (
    Threads,
    gather,
    groups,
    here,
    keeping,
    mapped,
    parts_of,
    read_arrays,
    read_dealt,
    rounds,
    write_array,
    write_arrays,
    write_dealt,
)
from datamask.stages import ShardFiles

RECORD = np.dtype([("hash", np.uint64), ("shard", np.int32)])


@dataclass(frozen=True)
class State:
    config: Config
    more: int


def add(state, item):
    if item < 0:
        raise ValueError(f"{item} is negative")
    return state.more + item


@pytest.mark.parametrize("maps", [here, Threads(1), Threads(5)])
def test_results_come_in_the_items_order_and_the_first_error_goes_on(maps):
    assert maps(add, State(Config(), 10), range(100)) == list(range(10, 110))
    assert maps(add, State(Config(), 10), []) == []
    with pytest.raises(ValueError, match="-3 is negative"):
        maps(add, State(Config(), 10), [1, 2, -3, 4])


@pytest.mark.parametrize("seed", range(5))
def test_every_record_comes_to_its_part_in_the_files_order(tmp_path, seed):
    rng = np.random.default_rng(seed)
    parts = int(rng.integers(1, 9))
    urls, every, target = [], [], []
    for number in range(int(rng.integers(1, 6))):
        records = np.zeros(int(rng.integers(0, 60)), RECORD)
        records["hash"] = rng.integers(0, 1 << 40, len(records))
        records["shard"] = number
        part = rng.integers(0, parts, len(records))
        urls.append(str(tmp_path / f"dealt-{number}"))
        write_dealt(urls[-1], records, part, parts)
        every.append(records)
        target.append(part)
    records, target = np.concatenate(every), np.concatenate(target)
    for number in range(parts):
        assert np.array_equal(gather(urls, RECORD, number), records[target == number])
    first, last = sorted(rng.integers(0, parts + 1, 2).tolist())
    own = np.split(target, np.cumsum([len(records) for records in every])[:-1])
    for url, records, part in zip(urls, every, own, strict=True):
        found, bounds = read_dealt(url, RECORD, first, last)
        assert sorted(found.tolist()) == sorted(records[(part >= first) & (part < last)].tolist())
        assert np.array_equal(np.diff(bounds), np.bincount(part, minlength=parts)[first:last])


def test_a_file_that_was_cut_short_is_an_error(tmp_path):
    url = tmp_path / "dealt"
    write_dealt(str(url), np.ones(10, RECORD), np.zeros(10, int), 1)
    url.write_bytes(url.read_bytes()[:-1])
    with pytest.raises(DamagedFileError, match="cut short"):
        gather([str(url)], RECORD, 0)


def test_arrays_come_back_as_they_were(tmp_path):
    write_arrays(str(tmp_path / "a.npz"), one=np.arange(3), two=np.zeros((0, 4), np.float16))
    two, one = read_arrays(str(tmp_path / "a.npz"), "two", "one")
    assert one.tolist() == [0, 1, 2] and two.shape == (0, 4) and two.dtype == np.float16


@pytest.mark.parametrize("rows", [[5] * 3, [100] * 3000, [200_000, 1, 1, 300_000], [0, 0], []])
def test_groups_hold_every_shard_once_and_tiny_ones_together(rows):
    files = [ShardFiles(Shard(f"s{n}", (Part(f"{n}", "parquet", "f", 1, rows=r),), "f")) for n, r in enumerate(rows)]
    found = groups(files)
    assert [place for group in found for place in group] == list(range(len(rows)))
    for group in found:
        assert len(group) == 1 or sum(rows[place] for place in group) <= 1 << 17
    assert len(found) <= max(2 * 64, sum(row > 4096 for row in rows)) + 1


def test_what_rounds_share_stays_after_a_failure_and_goes_at_the_end(tmp_path):
    work = str(tmp_path)
    with pytest.raises(RuntimeError), rounds(work, "filter", "k") as folder:
        write_arrays(f"{folder}/a.npz", a=np.arange(2))
        raise RuntimeError
    with rounds(work, "filter", "k") as folder:
        assert read_arrays(f"{folder}/a.npz", "a")[0].tolist() == [0, 1]
    assert not Path(folder).exists()


def test_what_rounds_share_stays_while_another_run_is_at_it(tmp_path):
    """Two runs at once write the same files into the same folder; whoever ends first leaves it to the other."""
    with rounds(str(tmp_path), "filter", "k") as first:
        with rounds(str(tmp_path), "filter", "k") as second:
            assert first == second
            write_arrays(f"{first}/a.npz", a=np.arange(3))
        assert read_arrays(f"{first}/a.npz", "a")[0].tolist() == [0, 1, 2]
    assert not Path(first).exists()


@pytest.mark.parametrize("rows", [1, 60, 1000, 30_000, 200_000])
@pytest.mark.parametrize("place", [0, 1, 77, 198, 200])
def test_a_new_shard_changes_the_group_it_comes_into_and_hardly_another(rows, place):
    def made(names):
        return [ShardFiles(Shard(name, (Part(name, "parquet", "f", 1, rows=rows),), "f")) for name in names]

    names = [f"dump-{n // 50}-{n:05d}" for n in range(200)]
    more = [*names[:place], names[place - 1] + "b", *names[place:]]
    before = {tuple(names[p] for p in group) for group in groups(made(names))}
    after = {tuple(more[p] for p in group) for group in groups(made(more))}
    assert len(after - before) <= 3


@pytest.mark.parametrize(("total", "parts"), [(0, 1), (1, 1), (10, 1), (11, 2), (20, 2), (21, 4), (41, 8)])
def test_parts_double_as_the_corpus_grows(total, parts):
    assert parts_of(total, 10) == parts


def test_what_is_kept_goes_when_nobody_has_asked_for_it_for_a_day(tmp_path):
    work, folder = str(tmp_path), tmp_path / "parts/filter"
    with keeping(work, "filter", "k", ["a", "b"]) as kept:
        for name in ("a", "b", "c"):
            write_arrays(f"{kept}/{name}", x=np.arange(2))
    assert {path.name for path in folder.iterdir()} == {"a", "b", "c", "k.json"}
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    with pytest.raises(RuntimeError), keeping(work, "filter", "k", ["a"]):
        raise RuntimeError
    assert {path.name for path in folder.iterdir()} == {"a", "b", "c", "k.json"}
    with keeping(work, "filter", "l", ["a", "absent"]):
        pass
    assert {path.name for path in folder.iterdir()} == {"a", "l.json"}
    assert storage.read_json(str(folder / "l.json")) == ["a", "absent"]


@pytest.mark.parametrize("harm", [lambda data: b"", lambda data: bytes(len(data)), lambda data: data[:-9]])
def test_a_file_that_lost_its_end_or_content_is_named_with_what_to_do(tmp_path, harm):
    path = tmp_path / "file"
    records = np.zeros(4, RECORD)
    for write, read in (
        (lambda: write_arrays(str(path), a=np.arange(9)), lambda: read_arrays(str(path), "a")),
        (lambda: write_array(str(path), np.arange(9)), lambda: mapped(str(path))),
        (lambda: write_dealt(str(path), records, np.zeros(4, int), 2), lambda: gather([str(path)], RECORD, 0)),
    ):
        write()
        path.write_bytes(harm(path.read_bytes()))
        with pytest.raises(DamagedFileError, match=f"^{path}: .*; remove it and run again"):
            read()
