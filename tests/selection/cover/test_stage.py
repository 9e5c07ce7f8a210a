"""The stage `atoms`, and coverage of a target from shards' files to masks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask import storage
from datamask.config import Config, validate
from datamask.corpus.plan import Part, Shard
from datamask.errors import InputError, StorageError
from datamask.selection.cover.counting import count_shard, read_ngrams
from datamask.selection.stage import learn_prices, mask_shard
from datamask.stages import ShardFiles
from datamask.text.ngrams import count_ngrams

WORDS = np.array("river stone light winter garden music engine paper silver morning bread window".split())
LEAK = 5  # row that holds the target's text


def texts_of(seed: int, rows: int) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, 25)) for _ in range(rows)]


def write_shard(tmp_path: Path, name: str, texts: list[str]) -> ShardFiles:
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / f"{name}.parquet"
    pq.write_table(pa.table({"text": texts}), path)
    generator = np.random.default_rng(len(name))
    rows = len(texts)
    ids = pa.array(np.arange(rows), pa.int64())
    features = generator.standard_normal((rows, 8)).astype(np.float16)
    array = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel(), pa.float16()), 8)

    def put(stage: str, table: pa.Table) -> storage.Output:
        return storage.write_output(str(tmp_path / stage / f"{name}.parquet"), f"{stage}{name}", table.schema, [table])

    tokens, none = pa.array(generator.integers(10, 90, rows)), pa.array([None] * rows, pa.string())
    hashes = pa.array([generator.bytes(16) for _ in range(rows)], pa.binary(16))
    return ShardFiles(
        Shard(name, (Part(str(path), "parquet", "f", rows),), f"print-{name}"),
        index=put("index", pa.table({"chunk_id": ids, "token_count": tokens, "text_hash": hashes, "reason": none})),
        embeddings=put("embeddings", pa.table({"chunk_id": ids, "feature_arr": array})),
        scores=put(
            "scores", pa.table({"chunk_id": ids, "quality_score": pa.array(generator.random(rows), pa.float32())})
        ),
    )


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[list[ShardFiles], Path, str]:
    target = texts_of(99, 20)
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(json.dumps({"question": text[:40], "answer": text[41:]}) for text in target[:-1]))
    texts = texts_of(1, 60)
    texts[LEAK] = "so it stands here: " + target[2]
    return (
        [write_shard(tmp_path, "a", texts), write_shard(tmp_path, "b", texts_of(2, 50))],
        path,
        str(tmp_path / "work"),
    )


def configured(target: Path, **more: object) -> Config:
    return validate({"select": {"algorithm": "coverage", "target": [str(target)], "select_ratio": 0.2, **more}})


def test_a_shards_atoms_are_its_texts_counts(corpus) -> None:
    files, path, work = corpus
    output = count_shard(files[0].shard, configured(path), work)
    texts = pq.read_table(files[0].shard.parts[0].path)["text"].to_pylist()
    rows = np.array([3, 10, 11])
    assert (read_ngrams(output.path, rows).toarray() == count_ngrams([texts[row] for row in rows]).toarray()).all()
    assert output.facts["leaks"] == 1 and count_shard(files[0].shard, configured(path), work).cached
    assert pq.read_table(output.path)["leak"].to_pylist()[LEAK] == "questions.jsonl"


def test_a_leak_is_left_out_of_the_masks_and_named(corpus) -> None:
    files, path, work = corpus
    config = configured(path)
    prices = learn_prices(files, config, work)
    told = prices.facts["target"]
    assert told["leaks"] == 1 and told["leaked"] == [{"shard": "a", "chunk_id": LEAK, "target": "questions.jsonl"}]
    assert told["words_in_pool"] > 0.9 and prices.facts["gap"] >= 0
    masks = [mask_shard(each, prices, config, work) for each in files]
    assert masks[0].facts["filtered"] == {"target_leak": 1}
    assert sum(mask.facts["selected"] for mask in masks) == round(0.2 * 109)
    kept = configured(path, coverage={"leaks": True})
    assert mask_shard(files[0], learn_prices(files, kept, work), kept, work).facts["filtered"] == {}


def test_what_is_wrong_with_a_target_is_said(corpus, tmp_path: Path) -> None:
    files, path, work = corpus
    for content, message in (
        ("", "holds no text"),
        ('{"a": 1}', "neither text nor question"),
        ("no json", "line 1 is not JSON"),
        ('{"text": "three words here"}', "has 3 words"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            learn_prices(files, configured(path), work)
    with pytest.raises(InputError, match="no such file"):
        learn_prices(files, configured(tmp_path / "absent.txt"), work)
    with pytest.raises(StorageError, match="a file is expected there; name a file in it"):
        learn_prices(files, configured(tmp_path), work)
    other = tmp_path / "greek.txt"
    other.write_text("Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. " * 3)
    with pytest.raises(InputError, match="in a language or of a kind that the pool lacks"):
        learn_prices(files, configured(other), work)


def test_scope_shard_and_words_of_the_pool(corpus) -> None:
    files, path, work = corpus
    config = validate(
        {
            "select": {
                "algorithm": "coverage",
                "coverage": {"atoms": {"ngrams": 1}},
                "scope": "shard",
                "select_ratio": 0.1,
            }
        }
    )
    output = mask_shard(files[1], None, config, work)
    assert output.facts["selected"] == 5 and "coverage-ngrams" in output.facts["terms"]


def test_what_cannot_go_by_rounds_and_no_memory_holds_is_refused_with_what_to_do(
    corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, _, work = corpus
    monkeypatch.setattr("datamask.selection.cover.counting.BYTES", 10**12)
    for more, why in (
        ({"algorithm": {"coverage": 1, "Pair_simi": 1}}, r"algorithm coverage-ngrams\+coverage-embedding\+pairwise"),
        ({"budget_tokens": 900, "select_ratio": None, "repeat": 2}, r"select\.repeat = 2"),
        ({"solver": "policy-gradient"}, "solver policy-gradient"),
    ):
        config = validate({"select": {"algorithm": "coverage", "select_ratio": 0.2, **more}})
        with pytest.raises(InputError, match=f"coverage with {why} holds .* GB, .*by rounds.*select\\.scope=shard"):
            learn_prices(files, config, work)
    alone = validate({"select": {"select_ratio": 0.2, "algorithm": "Pair_simi"}})
    assert learn_prices(files, alone, work).facts["gap"] >= 0
