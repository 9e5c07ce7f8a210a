"""Documents that may be taken several times, from masks to a verified release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from datamask.filter.filters import filter_corpus
from datamask.release.compare import compare
from datamask.release.explain import explain
from datamask.release.publication import publish
from datamask.release.release_folder import ReleaseFolder
from datamask.release.staging import export
from datamask.release.verify import verify
from datamask.selection.stage import learn_prices, mask_shard
from tests.release.made import PROVENANCE, make_corpus, settings
from tests.release.test_verify import redescribe

MOST = 3


def released(folder: Path, repeat: int = MOST, rows: bool = False) -> tuple[ReleaseFolder, int]:
    files, out = make_corpus(folder), str(folder / "out")
    tokens = sum(count or 0 for each in files for count in pq.read_table(each.index.path)["token_count"].to_pylist())
    config = settings(
        select={"budget_tokens": tokens // 3, "select_ratio": None, "repeat": repeat},
        release={"repeated_rows": rows, "rows_per_file": 40},
    )
    work = f"{out}/work"
    filters = filter_corpus(files, config, work)
    files = [replace(each, filters=found) for each, found in zip(files, filters, strict=True)]
    prices = learn_prices(files, config, work)
    files = [replace(each, masks=mask_shard(each, prices, config, work)) for each in files]
    return publish(export(files, config, out, PROVENANCE)), tokens // 3


@pytest.mark.slow
@pytest.mark.parametrize("rows", [False, True])
def test_a_document_taken_twice_is_one_row_of_the_books(tmp_path: Path, rows: bool) -> None:
    release, budget = released(tmp_path, rows=rows)
    found = verify(release, [str(tmp_path / "input" / "*.parquet")])
    assert found.problems == [] and found.compared == found.rows
    manifest = release.manifest()
    total = manifest["conservation"]["total"]
    assert compare(release, release).total["stayed"]["documents"] == total["selected"]
    assert total["rows"] == total["selected"] + total["not_selected"] + sum(total["filtered"].values()) + sum(
        total["quarantined"].values()
    )
    times, spent = {}, 0
    for shard in manifest["conservation"]["shards"]:
        decisions = release.decisions(shard)
        chosen = np.array([outcome == "selected" for outcome in decisions["outcome"].to_pylist()])
        repeat = decisions["repeat"].to_numpy()
        assert ((repeat > 0) == chosen).all() and repeat.max() <= MOST
        spent += sum(n * t for n, t in zip(repeat.tolist(), decisions["token_count"].to_pylist(), strict=True) if n)
        times |= {(shard, row): int(repeat[row]) for row in np.flatnonzero(chosen)}
    assert len(times) == total["selected"] and max(times.values()) > 1
    assert total["tokens_selected"] == spent <= budget
    published: dict[tuple[str, int], list[int]] = {}
    for file in manifest["files"]:
        if file["path"].startswith("data/"):
            for row in pq.read_table(f"{release.path}/{file['path']}").to_pylist():
                published.setdefault((row["shard"], row["chunk_id"]), []).append(row["repeat"])
    assert published.keys() == times.keys()
    for place, said in published.items():
        assert said == [times[place]] * (times[place] if rows else 1)
    shard, chunk_id = max(times, key=times.__getitem__)
    (told,) = explain(release, f"{shard}/{chunk_id}")
    assert told.decision["repeat"] == times[shard, chunk_id]


def test_verify_sees_a_copy_that_is_missing(tmp_path: Path) -> None:
    release, _ = released(tmp_path, rows=True)
    for path in sorted(Path(release.path, "data").rglob("*.parquet")):
        table = pq.read_table(path)
        places = np.flatnonzero(table["repeat"].to_numpy() > 1)
        if len(places):
            pq.write_table(table.take(np.delete(np.arange(table.num_rows), places[0])), path)
            redescribe(release, path)
            break
    assert any("not as often as they should be" in problem for problem in verify(release).problems)


def test_taken_once_nothing_is_added(tmp_path: Path) -> None:
    release, _ = released(tmp_path, repeat=1)
    manifest = release.manifest()
    assert "repeat" not in [column["name"] for column in manifest["columns"]]
    assert all("repeat" not in release.decisions(shard).column_names for shard in manifest["conservation"]["shards"])
    assert verify(release).problems == []
