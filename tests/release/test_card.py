"""The card is one that the hub accepts, and the release is what the usual readers read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask.release import release_folder as layout
from datamask.release.card import SIZES, render_card
from datamask.release.publication import publish
from datamask.release.release_folder import Picture
from tests.release.made import documents, make_shard, released, settings, staged


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    named = {"name": 'Curated: "río" & co', "license": "odc-by"}
    config = settings(release={"rows_per_file": 40, "row_group_rows": 10, **named})
    return released(tmp_path_factory.mktemp("release"), config)[1]


def rows_of(release):
    rows = [
        row for path in sorted(Path(release.path).glob("data/*/*.parquet")) for row in pq.read_table(path).to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["shard"], row["chunk_id"]))


def test_header_is_what_the_hub_reads(release):
    from huggingface_hub import DatasetCard

    card = DatasetCard.load(f"{release.path}/README.md", ignore_metadata_errors=False)
    data = card.data.to_dict()
    assert data["license"] == "odc-by"
    assert data["pretty_name"] == 'Curated: "río" & co'
    assert data["size_categories"] == ["n<1K"]
    assert data["task_categories"] == ["text-generation"]
    assert set(data["language"]) == {"en", "fr", "zh"}
    assert "arxiv:2512.24265" in data["tags"]
    names = [config["config_name"] for config in data["configs"]]
    assert names == ["default", "CC-MAIN-2020-05", "CC-MAIN-2021-04", "unspecified"]
    for config in data["configs"]:
        [files] = config["data_files"]
        assert files["split"] == "train" and list(Path(release.path).glob(files["path"]))


def test_norwegian_is_a_language(release):
    from huggingface_hub import DatasetCard

    draft = release.manifest()
    languages = {"no": 5, "en": 4, "yes": 3, "on": 2, "off": 1, "nan": 1}
    card = DatasetCard(render_card({**draft, "key": "k", "languages": languages}))
    assert sorted(card.data.language) == sorted(languages)
    assert all(isinstance(code, str) for code in card.data.language)


def test_the_body_carries_numbers_settings_licence_and_citation(release):
    text = Path(release.path, "README.md").read_text()
    total = release.manifest()["conservation"]["total"]
    for part in (
        f"| read | {total['rows']:,} | {total['tokens_read']:,} |",
        f"**{total['selected']:,}**",
        f"| filtered: exact_duplicate | {total['filtered']['exact_duplicate']:,} |",
        "| quarantined: null_text | 3 |",
        "| gap | 0.001 |",
        "token_ratio: 0.1",
        "eprint={2512.24265}",
        "(odc-by)",
        "| `text` | string |",
    ):
        assert part in text, part
    assert "four more" not in text  # shard, chunk_id, quality_score, probability, and topic, where there are topics
    assert "\n\n\n" not in text.split("## Settings")[0]
    assert text.count("```") % 2 == 0


def test_own_filters_and_repeats_are_named(release):
    draft = {**release.manifest(), "key": "k"}
    asked = draft["settings"]
    own = {"filter": asked["filter"] | {"own": ["mine:Long", {"use": "mine:Short", "name": "brief"}]}}
    card = render_card({**draft, "settings": asked | own | {"select": asked["select"] | {"repeat": 3}}})
    assert "own filter mine:Long; own filter brief" in card
    assert "tokens, repeats counted)" in card and "repeats counted" not in render_card(draft)


def test_pictures_are_shown_and_listed(tmp_path):
    _, stage = staged(tmp_path)
    picture = Path(stage.folder, "plots", "sources.png")
    picture.parent.mkdir()
    picture.write_bytes(b"\x89PNG")
    Path(stage.folder, "report.html").write_text("<html>")
    Path(stage.folder, "stray.tmp").write_text("not ours")
    release = publish(stage, [Picture("plots/sources.png", "Sources")])
    text = Path(release.path, "README.md").read_text()
    assert "![Sources](plots/sources.png)\n" in text
    assert {"plots/sources.png", "report.html"} <= {item["path"] for item in release.manifest()["files"]}
    assert not Path(release.path, "stray.tmp").exists()


def test_size_categories_are_the_hubs():
    assert [size for _, size in SIZES][:3] == ["n<1K", "1K<n<10K", "10K<n<100K"]
    assert all(limit == 10 ** (3 + place) for place, (limit, _) in enumerate(SIZES))


def test_the_card_depends_on_the_draft_alone(tmp_path):
    from datamask import storage

    _, stage = staged(tmp_path)
    draft = storage.read_json(stage.draft)
    assert render_card(draft) == render_card(dict(reversed(draft.items())))


# ---------------------------------------------------------------- readers


def test_load_dataset_whole_streaming_and_columns(release, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    expected = rows_of(release)
    whole = datasets.load_dataset(release.path, split="train", cache_dir=str(tmp_path / "cache"))
    assert sorted(whole, key=lambda row: (row["shard"], row["chunk_id"])) == expected
    stream = datasets.load_dataset(release.path, split="train", streaming=True)
    assert sorted(stream, key=lambda row: (row["shard"], row["chunk_id"])) == expected
    assert stream.features == whole.features
    some = datasets.load_dataset(release.path, split="train", streaming=True, columns=["text", "quality_score"])
    assert sorted(row["text"] for row in some) == sorted(row["text"] for row in expected)
    assert set(next(iter(some))) == {"text", "quality_score"}
    one = datasets.load_dataset(release.path, "CC-MAIN-2020-05", split="train", streaming=True)
    assert {row["dump"] for row in one} == {"CC-MAIN-2020-05"}


def test_latest_is_never_read_from_what_datasets_kept_of_an_earlier_release(tmp_path):
    """`datasets` keeps what it has read by the folder's name and what the card says of its files."""
    datasets = pytest.importorskip("datasets")
    for name, count in (("one", 60), ("two", 80)):
        files = [make_shard(tmp_path / name, "s", documents(count, dumps=("d",)))]
        _, release = released(tmp_path / name, files=files)
        latest = Path(release.path).parent.parent / "latest"
        whole = datasets.load_dataset(str(latest), split="train", cache_dir=str(tmp_path / "cache"))
        assert sorted(whole, key=lambda row: (row["shard"], row["chunk_id"])) == rows_of(release)


def test_duckdb_reads_it(release):
    import duckdb

    rows = duckdb.sql(f"SELECT * FROM '{release.path}/data/*/*.parquet' ORDER BY shard, chunk_id").to_arrow_table()
    assert rows.to_pylist() == rows_of(release)
    joined = duckdb.sql(
        f"SELECT count(*) FROM '{release.path}/decisions/*.parquet' d "
        f"LEFT JOIN '{release.path}/data/*/*.parquet' USING (shard, chunk_id) "
        "WHERE outcome = 'selected' AND text IS NOT NULL"
    ).fetchall()
    assert joined == [(len(rows_of(release)),)]


def test_datatrove_reads_it(release):
    readers = pytest.importorskip("datatrove.pipeline.readers")
    reader = readers.ParquetReader(f"{release.path}/data", glob_pattern="*/*.parquet", text_key="text", id_key="id")
    found = list(reader())
    assert sorted(document.text for document in found) == sorted(row["text"] for row in rows_of(release))
    assert all("quality_score" in document.metadata for document in found)


def test_a_corpus_of_text_alone_is_a_release_too(tmp_path):
    datasets = pytest.importorskip("datasets")
    table = pa.table({"content": [f"document number {n}" for n in range(30)]})
    files = make_shard(tmp_path, "s", table.rename_columns(["text"]))
    _, release = released(tmp_path, files=[files], share=1.0)
    data = datasets.load_dataset(release.path, split="train", streaming=True)
    assert [row["id"] for row in data][:2] == ["s/000000", "s/000001"]
    assert [path.parent.name for path in Path(release.path).glob("data/*/*")] == ["unspecified"]


def test_a_release_can_be_curated_again(tmp_path):
    """A release as input: its quality_score, probability, shard and chunk_id are carried as <name>_original."""
    _, first = released(tmp_path / "one", files=[make_shard(tmp_path / "one", "s", documents(60, dumps=("d",)))])
    [path] = Path(first.path).glob("data/*/*.parquet")
    table = pq.read_table(path)
    _, second = released(tmp_path / "two", files=[make_shard(tmp_path / "two", "t", table)], share=1.0)
    [row, *_] = rows_of(second)
    assert row["shard"] == "t" and row["shard_original"] == "s"
    assert layout.find_release(str(tmp_path / "two/out")).version == second.version


def test_no_licence_is_made_up(tmp_path):
    from huggingface_hub import DatasetCard

    _, release = released(tmp_path, files=[make_shard(tmp_path, "s", documents(60))])
    card = DatasetCard.load(f"{release.path}/README.md", ignore_metadata_errors=False)
    assert "license" not in card.data.to_dict()
    assert "licence, which was not stated when this was made" in card.text
