"""Scores files: every document once, the same bytes however it is read, on one scale, and an error that names names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from datamask import storage
from datamask.config import validate
from datamask.errors import ConfigError, ConservationError, InputError, ModelError
from datamask.quality import QualityRef, prepare_quality, score, score_shard
from datamask.quality.rules import SIGNALS, explain
from tests.quality import build
from tests.quality.test_heuristic import PROSE


def records(count: int) -> list[dict]:
    generator = np.random.default_rng(0)
    words = PROSE.split()
    made = []
    for number in range(count):
        text = " ".join(generator.choice(words, size=int(generator.integers(3, 200))))
        made.append({"text": text, "rating": float(generator.normal()), "stars": int(generator.integers(5))})
    made[3]["text"] = ""
    made[7]["text"] = None
    made[11]["text"] = "😀" * 40
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return build.corpus(tmp_path / "in", records(300))


def test_a_row_per_document_with_its_signals(path: Path, tmp_path: Path) -> None:
    config, work = build.configure(path, scorers=[{"kind": "heuristic"}]), str(tmp_path / "work")
    files = build.shards(config, work)
    done: list[int] = []
    quality = prepare_quality([one.shard for one in files], build.ENCODER, config, work)
    output = score_shard(files[0], quality, build.ENCODER, config, work, done.append)
    assert output.rows == sum(done) == 298 and not output.cached
    table = storage.read_table(output.path)
    assert table.column_names == ["chunk_id", "heuristic", *(f"heuristic.{name}" for name in SIGNALS), "quality_score"]
    assert table["chunk_id"].to_pylist() == [n for n in range(300) if n not in (3, 7)]
    assert table["quality_score"].to_pylist() == table["heuristic"].to_pylist()
    assert output.facts["documents"] == 298
    first = {name: table[f"heuristic.{name}"][9].as_py() for name in SIGNALS}
    assert any(reason.startswith("gopher_stop_words: 0 is less than 2") for reason in explain(first))

    again = score_shard(files[0], quality, build.ENCODER, config, work)
    assert again.cached and again.facts == json.loads(json.dumps(output.facts))


def test_the_bytes_do_not_depend_on_the_windows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for number, rows in enumerate((2048, 7)):
        monkeypatch.setattr(score, "WINDOW_DOCUMENTS", rows)
        config, work = build.configure(path), str(tmp_path / f"work{number}")
        scored = build.scored(config, work, build.shards(config, work))
        found.append(Path(scored[0].scores.path).read_bytes())
    assert found[0] == found[1]


def test_columns_are_combined_by_weight(path: Path, tmp_path: Path) -> None:
    scorers = [
        {"kind": "column", "name": "rating", "column": "rating", "weight": 2},
        {"kind": "column", "column": "stars"},
    ]
    config, work = build.configure(path, scorers=scorers), str(tmp_path / "work")
    table = build.table(build.scored(config, work, build.shards(config, work)))
    rating, stars = table["rating"].to_numpy(), table["column"].to_numpy()
    np.testing.assert_allclose(table["quality_score"].to_numpy(), 2 * rating + stars, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("combine", ["standard", "rank"])
def test_scales_are_fitted_on_the_corpus_and_not_on_a_shard(tmp_path: Path, combine: str) -> None:
    rows = sorted(records(600), key=lambda row: row["rating"])
    for part in range(3):
        build.corpus(tmp_path / "in", rows[200 * part : 200 * part + 200], f"part{part}.parquet")
    scorers = [{"kind": "column", "name": "a", "column": "rating"}, {"kind": "column", "name": "b", "column": "stars"}]
    config, work = build.configure(tmp_path / "in", scorers=scorers, combine=combine), str(tmp_path / "work")
    files = build.shards(config, work)
    assert len(files) == 3
    table = build.table(build.scored(config, work, files))
    quality = table["quality_score"].to_numpy()
    kept = [row for row in rows if row["text"]]
    if combine == "standard":
        expected = sum((v - v.mean()) / v.std() for v in (np.array([r[c] for r in kept]) for c in ("rating", "stars")))
    else:
        from scipy.stats import rankdata

        expected = sum(
            (rankdata(v) - 1) / (len(v) - 1) for v in (np.array([r[c] for r in kept]) for c in ("rating", "stars"))
        )
    np.testing.assert_allclose(quality, expected, atol=2e-3)


def test_a_refresh_keeps_the_scale(tmp_path: Path) -> None:
    scorers = [{"kind": "column", "name": "a", "column": "rating"}]
    first = build.corpus(tmp_path / "in", records(200))
    config, work = build.configure(tmp_path / "in", scorers=scorers, combine="standard"), str(tmp_path / "work")
    old = build.shards(config, work)
    quality = prepare_quality([one.shard for one in old], build.ENCODER, config, work)
    assert first.exists()
    build.corpus(tmp_path / "in", [{**row, "rating": row["rating"] + 9} for row in records(200)], "more.parquet")
    new = build.shards(config, work)
    kept = prepare_quality([one.shard for one in new], build.ENCODER, config, work, previous=quality)
    assert kept == quality and len(new) == 2
    assert prepare_quality([one.shard for one in new], build.ENCODER, config, work) != quality
    other = build.configure(
        tmp_path / "in", scorers=[{"kind": "column", "name": "a", "column": "stars"}], combine="standard"
    )
    assert (
        prepare_quality([one.shard for one in new], build.ENCODER, other, work, quality).statistics
        != quality.statistics
    )


def test_the_reference_survives_json(path: Path, tmp_path: Path) -> None:
    scorers = [{"kind": "heuristic"}, {"kind": "column", "name": "a", "column": "rating"}]
    config, work = build.configure(path, scorers=scorers, combine="rank"), str(tmp_path / "work")
    shards = [one.shard for one in build.shards(config, work)]
    quality = prepare_quality(shards, build.ENCODER, config, work)
    again = QualityRef.from_dict(json.loads(json.dumps(quality.as_dict())))
    assert again == quality and again.fingerprint == quality.fingerprint
    assert storage.read_json(f"{work}/quality/{quality.fingerprint}.json") == quality.as_dict()


def test_the_encoders_own_score(path: Path, tmp_path: Path) -> None:
    config, work = build.configure(path, scorers=[{"kind": "encoder"}]), str(tmp_path / "work")
    files = build.shards(config, work)
    with pytest.raises(ConfigError, match="set encoder.quality_head"):
        prepare_quality([one.shard for one in files], build.ENCODER, config, work)
    encoder = replace(build.ENCODER, quality_head="classifier")
    given = np.random.default_rng(1).normal(size=298).astype(np.float32)
    files = [build.embed(files[0], work, np.eye(8)[np.arange(298) % 8], given)]
    table = build.table(build.scored(config, work, files, encoder))
    np.testing.assert_array_equal(table["encoder"].to_numpy(), given)


def test_embeddings_of_other_documents_are_refused(path: Path, tmp_path: Path) -> None:
    config, work = build.configure(path, scorers=[{"kind": "encoder"}]), str(tmp_path / "work")
    encoder = replace(build.ENCODER, quality_head="classifier")
    (files,) = build.shards(config, work)
    other = build.embed(files, work, np.ones((298, 8)), np.ones(298))
    table = storage.read_table(other.embeddings.path)
    pq.write_table(table.slice(1), other.embeddings.path)
    with pytest.raises(ConservationError, match="not of the same documents"):
        build.scored(config, work, [other], encoder)


@pytest.mark.parametrize("combine", ["sum", "standard", "rank"])
def test_a_row_without_a_score_is_quarantined(tmp_path: Path, combine: str) -> None:
    rows = records(100)
    rows[20]["rating"], rows[30]["rating"], rows[40]["rating"] = float("nan"), None, float("inf")
    path = build.corpus(tmp_path / "in", rows)
    scorers = [{"kind": "column", "column": "rating"}, {"kind": "content"}]
    config, work = build.configure(path, scorers=scorers, combine=combine), str(tmp_path / "work")
    files = build.shards(config, work)
    assert files[0].index.facts["reasons"] == {"empty_text": 1, "no_score": 3, "null_text": 1}
    table = build.table(build.scored(config, work, files))
    assert set(table["chunk_id"].to_pylist()) == set(range(100)) - {3, 7, 20, 30, 40}
    other = build.configure(path, combine=combine)  # a column that is no score may be null
    assert build.shards(other, work)[0].index.facts["reasons"] == {"empty_text": 1, "null_text": 1}


def test_a_model_that_gives_no_number_names_its_documents(path: Path, tmp_path: Path) -> None:
    config, work = build.configure(path, scorers=[{"kind": "encoder"}]), str(tmp_path / "work")
    encoder = replace(build.ENCODER, quality_head="classifier")
    given = np.zeros(298, dtype=np.float32)
    given[[18, 25]] = np.nan
    files = [build.embed(build.shards(config, work)[0], work, np.eye(8)[np.arange(298) % 8], given)]
    with pytest.raises(ModelError, match=r"gives no number for 2 document\(s\) of shard .*: chunk_id 20, 27\."):
        build.scored(config, work, files, encoder)
    assert not list(Path(work).glob("scores/*"))


def test_a_column_that_is_not_there_or_no_number(path: Path, tmp_path: Path) -> None:
    work = str(tmp_path / "work")
    config = build.configure(path, scorers=[{"kind": "column", "column": "ratings"}])
    with pytest.raises(InputError, match='no column ratings for scorer column; did you mean "rating"'):
        prepare_quality([one.shard for one in build.shards(config, work)], build.ENCODER, config, work)
    config = build.configure(path, scorers=[{"kind": "column", "column": "text"}])
    with pytest.raises(InputError, match="column text is of type string; a score is a number"):
        prepare_quality([one.shard for one in build.shards(config, work)], build.ENCODER, config, work)


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        ({"kind": "fasttext"}, "needs model"),
        ({"kind": "column"}, "needs column"),
        ({"kind": "fasttext", "model": "m", "preparation": "ultra-fineweb"}, "needs tokenizer"),
        ({"name": "quality_score"}, "cannot be named"),
        ({"name": "token_count"}, "cannot be named token_count, which is a column that datamask makes"),
        ({"name": "a.b"}, "match pattern"),
    ],
)
def test_settings_that_cannot_be(scorer: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate({"quality": {"scorers": [scorer]}})
