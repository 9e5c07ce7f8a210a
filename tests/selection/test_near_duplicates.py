"""Near-duplicates against plain float64 code, SemDeDup's own oracle, and the stage over several shards."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask import storage
from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.selection import duplicates, near_duplicates
from datamask.selection.duplicates import find_duplicates
from datamask.selection.near_duplicates import keep_first, max_earlier_similarity, spherical_kmeans
from datamask.stages import ShardFiles


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_semdedup_oracle(block):
    """SemDeDup's published test values: its pairwise step on six small rows."""
    rows = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [1, 2, 3], [1, 2, 3]])
    expected = [0, 0.974631, 0.998190, 0.999618, 1, 1]
    assert max_earlier_similarity(rows, block).tolist() == pytest.approx(expected, abs=1e-5)


def clustered(n: int, d: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(max(1, n // 4), d, generator=generator)
    rows = centres[torch.randint(len(centres), (n,), generator=generator)]
    return torch.nn.functional.normalize(rows + 0.25 * torch.randn(n, d, generator=generator), dim=1)


def plainly(rows: np.ndarray, threshold: float) -> list[int]:
    leader: list[int] = []
    for i, row in enumerate(rows):
        kept = [j for j in range(i) if leader[j] < 0]
        best = max(kept, key=lambda j: row @ rows[j], default=-1)
        leader.append(best if best >= 0 and row @ rows[best] > threshold else -1)
    return leader


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 60), seed=st.integers(0, 999), block=st.sampled_from([1, 7, 64]))
def test_keep_first_is_the_plain_loop_at_any_block_size(n, seed, block):
    rows = clustered(n, 16, seed)
    found = keep_first(rows, 0.9, block=block)
    kept = (found.leader < 0).tolist()
    assert kept == [leader < 0 for leader in plainly(rows.double().numpy(), 0.9)]
    for i, leader in enumerate(found.leader.tolist()):
        if leader >= 0:
            assert leader < i and kept[leader]
            assert float(rows[i] @ rows[leader]) == pytest.approx(float(found.similarity[i]), abs=1e-5)


def test_kmeans_finds_separate_clusters_and_repeats_itself():
    rows = torch.cat(
        [torch.nn.functional.normalize(torch.eye(8)[i] + 0.05 * torch.randn(50, 8), dim=1) for i in range(4)]
    )
    one, two = (spherical_kmeans(rows, 4, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.allclose(one.norm(dim=1), torch.ones(4))


def shard_files(folder: str, name: str, features: np.ndarray, quality: np.ndarray, passes: np.ndarray) -> ShardFiles:
    ids = pa.array(np.arange(len(features)))
    values = pa.array(features.astype(np.float16).reshape(-1))

    def put(stage: str, columns: dict) -> storage.Output:
        table = pa.table({"chunk_id": ids, **columns})
        return storage.write_output(f"{folder}/{stage}/{name}.parquet", f"{name}-{stage}", table.schema, [table])

    return ShardFiles(
        Shard(name, (), name),
        embeddings=put("e", {"feature_arr": pa.FixedSizeListArray.from_arrays(values, features.shape[1])}),
        scores=put("s", {"quality_score": pa.array(quality, pa.float32())}),
        filters=put("f", {"reason": pa.array([None if ok else "where" for ok in passes], pa.string())}),
    )


def duplicates_of(outputs: list[storage.Output], files: list[ShardFiles]) -> dict:
    found = {}
    for output, shard in zip(outputs, files, strict=True):
        for row in storage.read_table(output.path).to_pylist():
            found[shard.shard.name, row["chunk_id"]] = (row["duplicate_of_shard"], row["duplicate_of"])
    return found


def test_the_best_of_each_group_stays_across_shards_and_filters(tmp_path):
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(30, 32))
    which = generator.integers(30, size=200)
    features = centres[which] + 0.02 * generator.normal(size=(200, 32))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    quality, passes = generator.random(200), generator.random(200) > 0.2
    files = [shard_files(str(tmp_path), f"s{n}", features[n::4], quality[n::4], passes[n::4]) for n in range(4)]
    config = Config()
    found = duplicates_of(find_duplicates(files, config, str(tmp_path / "work")), files)
    for centre in range(30):
        group = [i for i in np.flatnonzero(which == centre) if passes[i]]
        if not group:
            continue
        best = max(group, key=lambda i: np.float32(quality[i]))
        for i in group:
            place = (f"s{i % 4}", i // 4)
            assert found.get(place) == (None if i == best else (f"s{best % 4}", best // 4))
    assert not any(found.get((f"s{i % 4}", i // 4)) for i in np.flatnonzero(~passes))
    again = find_duplicates(files[::-1], config, str(tmp_path / "work"))
    assert all(output.cached for output in again)


def test_several_clusters_find_what_one_finds(tmp_path, monkeypatch):
    rows = clustered(600, 32, seed=5).numpy()
    files = [shard_files(str(tmp_path), f"s{n}", rows[n::3], np.ones(200), np.ones(200, bool)) for n in range(3)]
    config = Config.model_validate({"select": {"semantic_duplicates": 0.2}})
    whole = duplicates_of(find_duplicates(files, config, str(tmp_path / "one")), files)
    monkeypatch.setattr(duplicates, "CLUSTER_ROWS", 100)
    parts = duplicates_of(find_duplicates(files, config, str(tmp_path / "many")), files)
    assert len(whole) > 200
    assert len(whole.keys() & parts.keys()) >= 0.95 * len(whole)
    assert all(leader not in parts for leader in parts.values())


def test_equal_vectors_are_found_whatever_the_clusters(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicates, "CLUSTER_ROWS", 20)
    rows = torch.nn.functional.normalize(torch.randn(100, 16, generator=torch.Generator().manual_seed(1)), dim=1)
    both = torch.cat([rows, rows]).numpy()
    files = [shard_files(str(tmp_path), f"s{n}", both[n::2], np.zeros(100), np.ones(100, bool)) for n in range(2)]
    found = duplicates_of(
        find_duplicates(files, Config.model_validate({"select": {"semantic_duplicates": 0.001}}), str(tmp_path / "w")),
        files,
    )
    assert len(found) == 100


def test_the_margin_covers_bfloat16():
    rows = clustered(2000, 768, seed=9)
    error = (rows.bfloat16() @ rows.bfloat16().T).float() - rows @ rows.T
    assert error.abs().max() < near_duplicates.BF16_MARGIN
