"""Contaminated documents in a release: the reason, the item and the span; decisions without stay as they were."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from datamask.filter.filters import filter_corpus
from datamask.filter.leaks import find_leaks
from datamask.release.explain import explain, read_dropped
from datamask.release.merge import DECISIONS, DETAIL
from datamask.release.publication import publish
from datamask.release.release_folder import ReleaseFolder
from datamask.release.staging import export
from datamask.release.verify import verify
from tests.release.made import PROVENANCE, documents, make_masks, make_shard, released, settings

ITEM = "How many grams of salt dissolve in one litre of water at twenty degrees before no more of it will go in"


def test_the_item_and_the_span_are_in_the_decisions(tmp_path):
    quiz = tmp_path / "quiz.jsonl"
    quiz.write_text(json.dumps({"question": f"Question: {ITEM}?\nAnswer:", "answer": "359"}) + "\n")
    config = settings(filter={"decontaminate": [str(quiz)]})
    out = str(tmp_path / "out")
    all_files = []
    for number in range(2):
        table = documents(60, number)
        texts = table["text"].to_pylist()
        texts[2] = texts[40] = f"{texts[2]}\n{ITEM.upper()}!\nmore"  # copies of one another: both hold it
        files = make_shard(tmp_path, f"s{number}", table.set_column(0, "text", pa.array(texts)))
        all_files.append(replace(files, leaks=find_leaks(files.shard, config, f"{out}/work")))
    filters = filter_corpus(all_files, config, f"{out}/work")
    files = [make_masks(replace(f, filters=o), tmp_path, 0.5) for f, o in zip(all_files, filters, strict=True)]
    release = publish(export(files, config, out, PROVENANCE))
    total = release.manifest()["conservation"]["total"]
    assert total["filtered"]["contaminated"] == 4
    table = release.decisions("s1")
    assert table.schema.names == [*DECISIONS.names, DETAIL.name]
    rows = [row for row in table.to_pylist() if row["reason"] == "contaminated"]
    assert [row["chunk_id"] for row in rows] == [2, 40]
    assert all(row["detail"] is None for row in table.to_pylist() if row["reason"] != "contaminated")
    told = json.loads(rows[0]["detail"])
    assert told == {"item": "quiz.jsonl:1", "part": "question", "words": 22, "found": 22, "span": ITEM.upper()}
    assert explain(release, "s1/2")[0].detail == told
    listed, number, _ = read_dropped(release, "contaminated", 10)
    assert number == 4 and all(one.detail["item"] == "quiz.jsonl:1" for one in listed)
    assert verify(release).problems == []
    again = filter_corpus(all_files, config, f"{out}/work")
    assert [output.key for output in again] == [output.key for output in filters]


def test_decisions_without_detail_are_as_they_were(tmp_path):
    _, release = released(tmp_path, settings())
    assert isinstance(release, ReleaseFolder)
    assert pq.read_schema(f"{release.path}/decisions/s0.parquet").names == DECISIONS.names
