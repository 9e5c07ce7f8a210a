"""Copies are counted as a plain union over the verified pairs counts them, and can be asked for by name."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask import storage
from datamask.config import COPY_COLUMNS, validate
from datamask.errors import ConfigError
from datamask.filter.copy_counts import _key
from datamask.filter.forgotten import Entry, record_entries
from datamask.run import curate
from datamask.stages import recorded
from tests.filter.test_stage import document, noisy

SMALL = {
    "corpus": {"group_bytes": 0},
    "encoder": {"dimensions": 32, "vocabulary": 500, "fit_documents": 200},
    "select": {"token_ratio": 0.5, "coverage": {"search": 0.1}},
    "run": {"workers": 2},
}


def write_corpus(folder: Path, shards: int = 3, each: int = 40) -> Path:
    """Texts some of which are there again, the same, in other case, or with words replaced; null and empty ones too."""
    generator = random.Random(5)
    (folder / "in").mkdir(parents=True)
    for shard in range(shards):
        texts: list[str | None] = []
        for row in range(each):
            text = document(generator.randrange(50), 150)
            kind = generator.random()
            texts.append(text if kind < 0.4 else text.upper() if kind < 0.6 else noisy(text, 0.03, row + 100 * shard))
        texts[3], texts[4] = None, " "
        columns = {
            "text": texts,
            "url": [f"https://{'www.' if row % 2 else ''}site{row % 5}.example/{row}" for row in range(each)],
            "dump": [generator.choice(["CC-MAIN-2020-05", "CC-MAIN-2021-04", None]) for _ in range(each)],
        }
        pq.write_table(pa.table(columns), folder / f"in/s{shard}.parquet", row_group_size=16)
    return folder / "in"


def run(folder: Path, out: str = "out", **settings):
    given = {**SMALL, **{name: {**SMALL.get(name, {}), **value} for name, value in settings.items()}}
    given["corpus"] = {**SMALL["corpus"], "input": [str(folder / "in")]}
    return curate(validate(given), str(folder / out))


def counted_plainly(out: Path) -> dict:
    """(copies, sources, dumps) of each document, by sets of texts and of pairs, in plain Python."""
    all_files, _, _ = recorded(str(out))
    group, facts = {}, {}
    for files in all_files:
        rows = pq.read_table(files.shard.parts[0].path).to_pylist()
        for row, values in enumerate(rows):
            if (values["text"] or "").strip():
                place = files.shard.name, row
                group[place] = {place}
                facts[place] = (
                    " ".join(values["text"].lower().split()),
                    values["url"].split("/")[2].removeprefix("www."),
                    values["dump"],
                )
    pairs = [(a, b) for a in group for b in group if a < b and facts[a][0] == facts[b][0]]
    for files in all_files:
        for row in storage.read_table(files.duplicates.path).to_pylist():
            if row["kind"] in ("exact", "near"):
                pairs.append(((files.shard.name, row["chunk_id"]), (row["duplicate_of_shard"], row["duplicate_of"])))
    for one, other in pairs:
        if group[one] is not group[other]:
            joined = group[one] | group[other]
            for place in joined:
                group[place] = joined
    return {
        place: (
            len(members) - 1,
            len({facts[each][1] for each in members}),
            len({facts[each][2] for each in members} - {None}),
        )
        for place, members in group.items()
    }


def columns_of(release) -> dict:
    rows = release.decisions().to_pylist()
    return {(row["shard"], row["chunk_id"]): tuple(row[name] for name in COPY_COLUMNS) for row in rows}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    write_corpus(folder)
    return folder, run(folder, duplicates={"count": True})


def test_the_counts_are_those_of_a_plain_union(made):
    folder, release = made
    expected = counted_plainly(folder / "out")
    found = columns_of(release)
    assert {place: counts for place, counts in found.items() if counts[0] is not None} == expected
    assert max(counts[0] for counts in expected.values()) > 2
    assert len(set(expected.values())) > 5
    assert sum(counts == (None, None, None) for counts in found.values()) == 6  # in quarantine
    published = release.dataset(library="pyarrow").to_table()
    for row in published.to_pylist():
        assert tuple(row[name] for name in COPY_COLUMNS) == expected[row["shard"], row["chunk_id"]]
    assert release.verify() == []


@pytest.mark.slow
def test_groups_of_one_shard_each_count_the_same(made, monkeypatch):
    folder, release = made
    monkeypatch.setattr("datamask.filter.copy_counts.groups", lambda files: [(place,) for place in range(len(files))])
    monkeypatch.setattr("datamask.filter.copy_counts.PART_ROWS", 7)
    assert columns_of(run(folder, "apart", duplicates={"count": True})) == columns_of(release)


def test_they_are_counted_again_where_what_they_are_counted_from_differs(made, tmp_path):
    files, config, _ = recorded(str(made[0] / "out"))
    signed = [replace(each, signatures=replace(each.signatures, key="other")) for each in files]
    after = validate({**config.model_dump(mode="json"), "filter": {"order": "after"}})
    work = str(tmp_path / "work")
    key = _key(files, config, work)
    assert _key(signed, config, work) == key  # they are read for what must be forgotten alone
    assert _key(files, after, work) != key  # filters that come first leave fewer documents to count
    record_entries(str(tmp_path), [Entry("texts", "a text that must be forgotten", "list", 1)])
    assert _key(files, config, work) not in (key, _key(signed, config, work))


def test_a_run_without_them_has_no_such_columns(made):
    folder, _ = made
    plain = run(folder)
    assert not {*COPY_COLUMNS} & {*plain.decisions().column_names}
    assert plain.verify() == []


@pytest.mark.slow
def test_a_condition_may_name_them(made):
    folder, _ = made
    release = run(folder, filter={"where": "copies >= 2 and length(url) > 3 and quality_score > -100"})
    rows = release.decisions().to_pylist()
    stays = [row for row in rows if row["outcome"] in ("selected", "not_selected")]
    assert stays and all(row["copies"] >= 2 for row in stays)
    fell = [row for row in rows if row["reason"] == "where"]
    assert fell and all(row["copies"] < 2 for row in fell)
    assert release.verify() == []
    assert release.explain(fell[0]["id"])[0]["setting"].startswith("filter.where")


@pytest.mark.parametrize("how", ["sum", "rank"])
def test_a_scorer_may_read_them(made, how):
    folder, _ = made
    scorers = [{"kind": "content"}, {"kind": "column", "name": "agreement", "column": "copy_dumps", "weight": 0.5}]
    release = run(folder, quality={"scorers": scorers, "combine": how}, select={"lamb": 1.0})
    rows = [row for row in release.decisions().to_pylist() if row["outcome"] != "quarantined"]
    alone = {}
    for files in recorded(str(folder / "out"))[0]:
        for row in storage.read_table(files.scores.path, ["chunk_id", "quality_score"]).to_pylist():
            alone[files.shard.name, row["chunk_id"]] = row["quality_score"]
    gains = {}
    for row in rows:
        gain = row["quality_score"] - alone[row["shard"], row["chunk_id"]]
        gains.setdefault(row["copy_dumps"], set()).add(round(gain, 4))
    assert all(max(values) - min(values) < 1e-3 for values in gains.values())
    order = [min(gains[number]) for number in sorted(gains)]
    assert order == sorted(order) and order[0] < order[-1]
    report = json.loads(Path(release.path, "report.json").read_text())
    chosen = [row["quality_score"] for row in rows if row["outcome"] == "selected"]
    assert release.explain(rows[0]["id"])[0]["scores"]["quality_score"] == rows[0]["quality_score"]
    assert report["arms"][-1]["mean_quality"] == pytest.approx(sum(chosen) / len(chosen))
    assert release.verify() == []


@pytest.mark.slow
def test_a_quota_may_bound_them(made):
    folder, _ = made
    release = run(folder, select={"quotas": [{"column": "copies", "maximum": {"0": 0.1}}], "token_ratio": 0.3})
    rows = [row for row in release.decisions().to_pylist() if row["outcome"] == "selected"]
    tokens = sum(row["token_count"] for row in rows)
    assert rows and sum(row["token_count"] for row in rows if not row["copies"]) <= 0.1 * tokens


def test_they_alone_are_no_score():
    with pytest.raises(ConfigError, match="name a scorer beside it"):
        validate({"quality": {"scorers": [{"kind": "column", "column": "copies"}]}})


def test_a_second_run_counts_nothing_again(made, monkeypatch):
    folder, release = made
    monkeypatch.setattr("datamask.filter.copy_counts.read_members", None)
    assert run(folder, duplicates={"count": True}).version == release.version


def test_sources_that_are_structures_or_bytes_are_told_apart_like_any(tmp_path):
    folder = write_corpus(tmp_path, shards=1, each=60)
    [path] = folder.glob("*.parquet")
    table = pq.read_table(path)
    table = table.append_column("source", [[{"name": "web", "part": row % 2} for row in range(60)]])
    table = table.append_column("domain", [[b"caf\xe9" if row % 3 else None for row in range(60)]])
    pq.write_table(table, path, row_group_size=16)
    quota = {"column": "source", "maximum": {'{"name": "web", "part": 0}': 0.3}}
    run(tmp_path, select={"quotas": [quota], "solver": "top-quality"}, duplicates={"count": True})
    decided = pq.read_table(next((tmp_path / "out/latest/decisions").resolve().glob("*.parquet"))).to_pylist()
    chosen = [row for row in decided if row["outcome"] == "selected"]
    even = sum(row["token_count"] for row in chosen if row["chunk_id"] % 2 == 0)
    assert 0 < even <= 0.3 * sum(row["token_count"] for row in chosen) * 1.05
