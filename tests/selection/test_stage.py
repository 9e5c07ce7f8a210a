"""The stages `prices` and `mask` on shards' files written here."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask import config as settings
from datamask import storage
from datamask.corpus.plan import Part, Shard
from datamask.errors import ConfigError, ConservationError, InputError
from datamask.maps import Threads, here
from datamask.selection import stage
from datamask.selection.extension import extend_prices
from datamask.selection.stage import learn_prices, mask_shard
from datamask.stages import ShardFiles

WIDTH = 12


def write_shard(
    work: Path, name: str, seed: int, rows: int = 80, topic: int | None = None, width: int = WIDTH
) -> ShardFiles:
    generator = np.random.default_rng(seed)
    centre = np.random.default_rng(100 + (seed if topic is None else topic)).standard_normal(width)
    features = generator.standard_normal((rows, width)) + 2 * centre
    features = (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float16)
    ids = pa.array(np.arange(rows) + 1, pa.int64())  # row 0 is in quarantine
    array = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel(), pa.float16()), width)

    def put(stage: str, table: pa.Table) -> storage.Output:
        return storage.write_output(str(work / stage / f"{name}.parquet"), f"{stage}{seed}", table.schema, [table])

    index = pa.table(
        {
            "chunk_id": pa.array(np.arange(rows + 1), pa.int64()),
            "token_count": pa.array([0, *generator.integers(10, 500, rows).tolist()], pa.int64()),
            "reason": pa.array(["empty", *[None] * rows], pa.string()),
        }
    )
    reason = [None] * rows
    reason[3] = "language"
    scores = pa.table({"chunk_id": ids, "quality_score": pa.array(generator.random(rows), pa.float32())})
    return ShardFiles(
        Shard(name, (Part("x", "parquet", "f", 1),), f"print{seed}"),
        index=put("index", index),
        embeddings=put("embeddings", pa.table({"chunk_id": ids, "feature_arr": array})),
        scores=put("scores", scores),
        filters=put("filters", pa.table({"chunk_id": ids, "reason": pa.array(reason, pa.string())})),
        duplicates=put("duplicates", pa.table({"chunk_id": pa.array([8], pa.int64()), "kind": ["near"]})),
    )


@pytest.fixture
def shards(tmp_path: Path) -> list[ShardFiles]:
    return [write_shard(tmp_path / "work", f"part-{number}", number) for number in range(4)]


def configured(**select: object) -> settings.Config:
    return settings.Config(select=settings.Select(**{"algorithm": "Pair_simi", "select_ratio": 0.25, **select}))


def bytes_of(work: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for stage in ("prices", "masks") for path in (work / stage).iterdir()}


def test_masks_hold_the_budget_and_every_row(shards, tmp_path):
    work, config = str(tmp_path / "work"), configured()
    prices = learn_prices(shards, config, work)
    masks = [mask_shard(files, prices, config, work) for files in shards]
    tables = [storage.read_table(mask.path) for mask in masks]
    assert [table.num_rows for table in tables] == [80] * 4
    assert sum(int(table["selected"].to_numpy().sum()) for table in tables) == round(0.25 * 78 * 4)
    for table, mask in zip(tables, masks, strict=True):
        reason = table["reason"].to_pylist()
        assert reason[3] == "filter:language" and reason[7] == "filter:near_duplicate"
        assert all((why is None) == chosen for why, chosen in zip(reason, table["selected"].to_pylist(), strict=True))
        assert mask.facts["filtered"] == {"language": 1, "near_duplicate": 1}
    assert prices.facts["objective"] <= prices.facts["upper_bound"] + 1e-9
    assert 0 <= prices.facts["gap"] < 0.2


def test_second_run_is_cached_and_any_order_gives_the_same_bytes(shards, tmp_path):
    work, config = str(tmp_path / "work"), configured()
    first = learn_prices(shards, config, work)
    again = learn_prices(shards[::-1], config, work)
    assert again.cached and again.key == first.key
    mask = mask_shard(shards[0], first, config, work)
    before = Path(mask.path).read_bytes()
    assert not mask.cached and mask_shard(shards[0], again, config, work).cached
    Path(mask.path).unlink()
    assert (
        Path(mask_shard(shards[0], learn_prices(shards[::-1], config, work), config, work).path).read_bytes() == before
    )


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["pairwise", "DiSF"])
def test_rounds_give_the_same_bytes_on_any_workers_and_after_a_failure(shards, tmp_path, monkeypatch, algorithm):
    config = configured(algorithm=algorithm)
    alone = learn_prices(shards, config, str(tmp_path / "alone"))
    monkeypatch.setattr(stage, "JOINT_DOCUMENTS", 100)
    monkeypatch.setattr(stage, "groups", lambda ordered: [(0,), (1, 2), (3,)])
    plain = learn_prices(shards, config, str(tmp_path / "plain"))
    expected = bytes_of(tmp_path / "plain")
    assert len(expected) == 5
    assert plain.facts["objective"] == pytest.approx(alone.facts["objective"], rel=0.02)
    assert plain.facts["selected"] == alone.facts["selected"]
    assert not list((tmp_path / "plain" / "rounds").iterdir())

    for failing in range(1, 9):  # a worker is lost in each round; the next run goes on where it stopped
        work = tmp_path / f"failed-{failing}"
        calls = iter(range(1, 100))

        def broken(work, state, items, rows=None, rest=False, calls=calls, failing=failing):
            items = list(items)
            if next(calls) == failing:
                here(work, state, items[:-1])
                raise ConnectionResetError("a worker was lost")
            return Threads(3)(work, state, [pickle.loads(pickle.dumps(item)) for item in items])

        with pytest.raises(ConnectionResetError):
            learn_prices(shards, config, str(work), broken)
        learn_prices(shards, config, str(work), Threads(2))
        assert bytes_of(work) == expected


def test_a_shard_that_the_prices_have_not_decided_on_is_refused(shards, tmp_path):
    work, config = str(tmp_path / "work"), configured(algorithm="pairwise")
    prices = learn_prices(shards[:3], config, work)
    with pytest.raises(InputError, match="has not decided on the shard part-3"):
        mask_shard(shards[3], prices, config, work)


def test_shard_scope_selects_each_shard_alone(shards, tmp_path):
    work, config = str(tmp_path / "work"), configured(scope="shard")
    facts = [mask_shard(files, None, config, work).facts for files in shards]
    assert [found["selected"] for found in facts] == [round(0.25 * 78)] * 4
    with pytest.raises(ConfigError, match="select_ratio"):
        mask_shard(shards[0], None, configured(scope="shard", select_ratio=None, budget_documents=9), work)
    mask = mask_shard(shards[0], None, configured(scope="shard", select_ratio=None, token_ratio=0.25), work)
    index, table = storage.read_table(shards[0].index.path), storage.read_table(mask.path)
    tokens = dict(zip(index["chunk_id"].to_pylist(), index["token_count"].to_pylist(), strict=True))
    held = [tokens[row] for row in table["chunk_id"].to_pylist()]
    chosen = np.asarray(held) @ table["selected"].to_numpy()
    candidates = np.asarray(held)[
        [reason is None or reason == "not_selected" for reason in table["reason"].to_pylist()]
    ]
    assert 0.2 < chosen / candidates.sum() <= 0.25


def test_files_that_do_not_fit_are_refused(shards, tmp_path):
    work, config = str(tmp_path / "work"), configured()
    with pytest.raises(ConservationError, match="part-0"):
        learn_prices([replace(shards[0], scores=write_shard(tmp_path / "o", "x", 9, rows=70).scores)], config, work)
    table = pa.table({"chunk_id": [1, 1], "feature_arr": [[1.0, 2.0], [2.0, 1.0]]})
    twice = storage.write_output(str(tmp_path / "twice.parquet"), "k", table.schema, [table])
    with pytest.raises(InputError, match="chunk_id 1 occurs more than once"):
        learn_prices([replace(shards[0], embeddings=twice)], config, work)


def test_shards_of_two_widths_are_refused(shards, tmp_path):
    other = write_shard(tmp_path / "work", "part-9", 9, width=8)
    with pytest.raises(
        InputError, match="of 12 and of 8 dimensions are in one corpus; embed all shards with one encoder"
    ):
        learn_prices([*shards, other], configured(), str(tmp_path / "work"))
    assert not list((tmp_path / "work").glob("prices/*"))


def test_rows_of_two_widths_in_a_shard_are_refused(shards, tmp_path):
    table = pa.table({"chunk_id": range(1, 81), "feature_arr": [[1.0] * (12 - number % 2) for number in range(80)]})
    ragged = storage.write_output(str(tmp_path / "ragged.parquet"), "k", table.schema, [table])
    with pytest.raises(InputError, match=r"ragged.parquet: feature_arr has 12 numbers in row 0 and 11 in row 1"):
        learn_prices([replace(shards[0], embeddings=ragged)], configured(), str(tmp_path / "work"))


def test_a_new_shard_of_another_width_is_refused(shards, tmp_path):
    work, config = str(tmp_path / "work"), configured(algorithm="coverage", coverage={"atoms": {"embedding": 1.0}})
    prices = learn_prices(shards, config, work)
    with pytest.raises(InputError, match="features of 8 and of 12 dimensions"):
        extend_prices([*shards, write_shard(tmp_path / "work", "new", 9, width=8)], prices, config, work)


METRIC = """
import numpy as np
import torch

class Kinds:
    name = "kinds"
    columns = ("kind",)

    def __init__(self, pool, weights, size):
        names, kind = np.unique(pool.groups["kind"], return_inverse=True)
        self.part = torch.eye(len(names), dtype=torch.float64)[torch.from_numpy(kind)] / size

    def value(self, masks):
        return (masks.double() @ self.part).clamp_min(0).sqrt().sum(1)

    def relaxed(self, mask):
        share = (mask.double() @ self.part).clamp_min(1e-9)
        return float(share.sqrt().sum()), self.part @ (0.5 / share.sqrt())
"""


def test_a_metric_of_ones_own_reads_a_column_that_has_no_quota(shards, tmp_path):
    (tmp_path / "kinds.py").write_text(METRIC)
    placed = []
    for number, files in enumerate(shards):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"text": ["a document"] * 81, "kind": ["x", *["y"] * 8] * 9}), path)
        part = Part(str(path), "parquet", f"f{number}", path.stat().st_size, None, 81)
        placed.append(replace(files, shard=replace(files.shard, parts=(part,))))
    work = str(tmp_path / "work")
    for lamb, least in ((0.0, 30), (1.0, 0)):
        config = configured(algorithm=f"{tmp_path}/kinds.py:Kinds", lamb=lamb, select_ratio=0.25)
        prices = learn_prices(placed, config, work)
        tables = [storage.read_table(mask_shard(files, prices, config, work).path) for files in placed]
        rows = [row for table in tables for row in table.filter(table["selected"])["chunk_id"].to_pylist()]
        of_x = sum(row % 9 == 0 for row in rows)
        assert of_x >= least and (lamb == 0 or of_x < 20), (lamb, of_x, len(rows))


def test_a_quota_counts_a_shard_without_its_column_as_without_a_value(shards, tmp_path):
    """As where the value is null; only a column that no shard has is an error, of `check_settings`."""
    placed = []
    for number, files in enumerate(shards):
        rows = {"text": ["a document"] * 81} | ({"kind": ["x", "y", "y"] * 27} if number else {})
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table(rows), path)
        part = Part(str(path), "parquet", f"f{number}", path.stat().st_size, None, 81)
        placed.append(replace(files, shard=replace(files.shard, parts=(part,))))
    config = configured(quotas=[{"column": "kind", "minimum": {"x": 0.5}}])
    prices = learn_prices(placed, config, str(tmp_path / "work"))
    chosen = {"x": 0, "y": 0, "": 0}
    for number, files in enumerate(placed):
        table = storage.read_table(mask_shard(files, prices, config, str(tmp_path / "work")).path)
        for row in table.filter(table["selected"])["chunk_id"].to_pylist():
            chosen["xyy"[row % 3] if number else ""] += 1
    assert chosen["x"] >= 39 and sum(chosen.values()) == 78
