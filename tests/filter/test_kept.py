"""What a run keeps for the next: the same result as from nothing, and old shards' texts are not read again."""

import random
from pathlib import Path

import numpy as np
import pytest

from datamask.filter import decisions
from datamask.filter import duplicate_rounds as rounds
from datamask.filter import duplicates as stage
from datamask.filter.connected import groups_of_pairs
from datamask.filter.duplicate_candidates import CANDIDATE
from datamask.filter.duplicates import find_duplicates
from datamask.filter.resolve import FALL, KINDS
from datamask.maps import here, partition_of, parts_of, records_of
from tests.filter.test_stage import corpus, document, many, noisy


class Watching:
    """A Mapper that counts what is really done: files that were there say so at once."""

    def __init__(self, monkeypatch):
        self.loaded, self.read = [], []
        compared, texts_of = rounds._compared, rounds._texts_of

        def counted(source, config):
            self.loaded.append(source.name)
            return compared(source, config)

        def read(source, state, documents, rows, part):
            self.read.append((source.name, len(documents)))
            return texts_of(source, state, documents, rows, part)

        monkeypatch.setattr(rounds, "_compared", counted)
        monkeypatch.setattr(rounds, "_texts_of", read)

    def clear(self):
        self.loaded.clear()
        self.read.clear()


def contents(outputs):
    return [(Path(output.path).name, Path(output.path).read_bytes()) for output in outputs]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
@pytest.mark.parametrize("alone", [True, False])
def test_a_run_after_others_gives_what_a_run_from_nothing_gives(tmp_path, monkeypatch, seed, alone):
    if alone:  # a group for each shard
        monkeypatch.setattr(stage, "groups", lambda ordered: [(place,) for place in range(len(ordered))])
    monkeypatch.setattr(decisions, "PIECE", 7)
    generator = random.Random(seed)
    texts = [document(n, generator.choice([30, 120])) for n in range(60)]
    texts += [noisy(generator.choice(texts), generator.choice([0.0, 0.02, 0.1]), n) for n in range(60)]
    generator.shuffle(texts)
    files, config, work = corpus(tmp_path, [texts[n::6] for n in range(6)])
    for step in range(4):
        chosen = sorted(generator.sample(range(6), 3 + step % 3))
        some = [files[place] for place in chosen]
        found = find_duplicates(some, config, work)
        anew = find_duplicates(some, config, str(tmp_path / f"anew-{step}"))
        assert contents(found) == contents(anew)
    assert sum(output.rows for output in found)


def test_a_new_shard_costs_its_own_documents_and_those_it_touches(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "groups", lambda ordered: [(place,) for place in range(len(ordered))])
    shards = many()
    copied = shards[0][2]  # a document of an old shard that has a copy in another old one
    files, config, work = corpus(tmp_path, [*shards, [document(5000), document(5001), noisy(copied, 0.02, 9)]])
    watching = Watching(monkeypatch)
    before = find_duplicates(files[:3], config, work, here)
    assert len(watching.loaded) == 3 and sum(count for _, count in watching.read) > 40
    watching.clear()
    after = find_duplicates(files, config, work, here)
    assert watching.loaded == [files[3].shard.name]
    assert sum(count for _, count in watching.read) <= 3  # the new copy and those it is connected with
    assert contents(after) == contents(find_duplicates(files, config, str(tmp_path / "anew"), here))
    same = [a.path == b.path for a, b in zip(before, after, strict=False)]
    assert all(a.cached for a, stays in zip(after, same, strict=False) if stays) and sum(same) >= 2


def test_other_scores_or_rules_are_decided_anew(tmp_path, monkeypatch):
    shards = many()
    scores = [[float((n * 7 + row) % 5) for row in range(len(texts))] for n, texts in enumerate(shards)]
    files, config, work = corpus(tmp_path, shards, scores=scores)
    find_duplicates(files, config, work)
    watching = Watching(monkeypatch)
    for change in ({"jaccard": 0.5}, {"containment": 0.95}):
        other = config.model_copy(update={"duplicates": config.duplicates.model_copy(update=change)})
        watching.clear()
        found = find_duplicates(files, other, work)
        assert watching.read and not watching.loaded  # the samples are the same
        assert contents(found) == contents(find_duplicates(files, other, str(tmp_path / str(change))))


@pytest.mark.parametrize("seed", range(6))
def test_decisions_come_back_for_the_same_components_alone(tmp_path, seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    ends = np.cumsum(rng.integers(2, 5, count))
    numbers = np.sort(rng.choice(10_000, int(ends[-1]), replace=False))
    members = np.split(rng.permutation(numbers), ends[:-1])
    one, other = (np.array(side) for side in zip(*((m[0], x) for m in members for x in m[1:]), strict=True))
    one, other = np.minimum(one, other), np.maximum(one, other)
    own = rng.random(len(one)).astype(np.float32)
    about = [rng.normal(size=len(numbers)).astype(np.float32)]

    def keyed(documents, own, about):
        component = groups_of_pairs(documents[position[0]], documents[position[1]]).group.astype(np.int64)
        pairs = records_of(CANDIDATE, one=documents[position[0]], other=documents[position[1]], own=own)
        keys = decisions.keys_of(component, documents, about, 0, pairs, ["rules"])
        return component, keys

    position = [np.searchsorted(numbers, side) for side in (one, other)]
    component, keys = keyed(numbers, own, about)
    assert len(np.unique(keys, axis=0)) == count
    # of every second component something falls
    found = np.array(sorted((max(m), min(m), min(m), KINDS.index("near"), 0.5) for m in members[::2]), FALL)
    none = np.zeros(count, bool)
    records = decisions.records(found, numbers, component, keys, none)
    shuffled, pieces = records[rng.permutation(len(records))], parts_of(len(records), decisions.PIECE)
    piece = partition_of(shuffled["high"], pieces)
    decisions.save_decisions(str(tmp_path / "d"), pieces, (shuffled[piece == number] for number in range(pieces)))
    moved = numbers + 5 * np.arange(len(numbers)) + 17  # the same documents elsewhere in the corpus, in the same order
    changed = about[0].copy()
    changed[position[0][0]] += 1
    component, keys = keyed(moved, own, [changed])
    known, falls = decisions.find_decisions(str(tmp_path / "d"), keys)
    assert known.sum() == count - 1 and not known[component[position[0][0]]]
    back = decisions.falls_of(falls, moved, component, keys)
    place = dict(zip(numbers.tolist(), moved.tolist(), strict=True))
    touched = component[position[0][0]]
    expected = {
        place[document]: (place[stays], place[cluster])
        for document, stays, cluster, *_ in found.tolist()
        if component[np.searchsorted(numbers, document)] != touched
    }
    told = zip(back["document"].tolist(), back["stays"].tolist(), back["cluster"].tolist(), strict=True)
    assert {document: (stays, cluster) for document, stays, cluster in told} == expected
    assert not decisions.find_decisions(None, keys)[0].any()
