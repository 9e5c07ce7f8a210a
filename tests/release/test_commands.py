"""The commands on releases: diff and explain against what is known of the corpus, push that goes on."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask import cli, storage
from datamask.errors import ConfigError, InputError, StorageError
from datamask.filter.duplicate_rounds import SCHEMA
from datamask.filter.filters import filter_corpus
from datamask.release import source
from datamask.release.compare import compare
from datamask.release.explain import explain, read_dropped
from datamask.release.publication import publish
from datamask.release.push import upload_release
from datamask.release.release_folder import ReleaseFolder
from datamask.release.staging import export
from datamask.release.verify import verify
from tests.release.made import PROVENANCE, documents, make_corpus, make_masks, make_shard, released, settings


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return ended.value.code or 0, printed.out, printed.err


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two releases of one output folder: the second of another selection and a shard more."""
    folder = tmp_path_factory.mktemp("two")
    out = str(folder / "out")
    found = []
    shards = make_corpus(folder)
    for seed, shards in ((0, shards), (1, [*shards, make_shard(folder, "t", documents(60, 9))])):
        config = settings(filter={"min_tokens": 4 * seed}, release={"rows_per_file": 50})
        filters = filter_corpus(shards, config, f"{out}/work")
        files = [make_masks(replace(f, filters=o), folder, seed=seed) for f, o in zip(shards, filters, strict=True)]
        found.append((files, publish(export(files, config, out, PROVENANCE))))
    return folder, found


def selected(files):
    rows = {}
    for f in files:
        masks = storage.read_table(f.masks.path).to_pylist()
        index = storage.read_table(f.index.path).to_pylist()
        table = pq.read_table(f.shard.parts[0].path).to_pylist()
        for mask in masks:
            if mask["selected"]:
                rows[f.shard.name, mask["chunk_id"]] = table[mask["chunk_id"]] | {
                    "token_count": index[mask["chunk_id"]]["token_count"]
                }
    return rows


def test_releases_lists_them_in_order(two, capsys):
    folder, ((_, first), (_, second)) = two
    code, out, _ = run(capsys, "releases", folder / "out", "--json")
    rows = json.loads(out)["releases"]
    assert code == 0 and [row["version"] for row in rows] == [first.version, second.version]
    assert [row["latest"] for row in rows] == [False, True]
    assert rows[1]["previous"] == first.version
    code, out, _ = run(capsys, "releases", folder / "out")
    assert code == 0 and first.version in out and "latest" in out
    code, _, err = run(capsys, "releases", folder / "nothing")
    assert code == 3 and "no release in" in err


def test_verify_command(two, capsys, tmp_path):
    folder, (_, (_, release)) = two
    code, out, _ = run(capsys, "verify", folder / "out", "--against", folder / "input")
    assert code == 0 and out.startswith("✓") and "the same as in the corpus, 0 problems" in out
    broken = tmp_path / release.version
    shutil.copytree(release.path, broken)
    (broken / "extra").touch()
    code, out, _ = run(capsys, "verify", broken)
    assert code == 1 and "✗ extra was added\n" in out and "1 problems" in out
    code, out, _ = run(capsys, "verify", broken, "--json")
    assert code == 1 and json.loads(out)["problems"] == ["extra was added"]
    code, _, err = run(capsys, "verify", tmp_path / "nowhere")
    assert code == 3 and "no release at" in err


def test_diff_counts_what_moved_and_why(two, capsys):
    folder, ((before, a), (after, b)) = two
    found = compare(a, b)
    first, second = selected(before), selected(after)
    for move, places in (
        ("stayed", first.keys() & second.keys()),
        ("entered", second.keys() - first.keys()),
        ("left", first.keys() - second.keys()),
    ):
        rows = [(second | first)[place] for place in places]
        assert found.total[move] == {"documents": len(rows), "tokens": sum(row["token_count"] for row in rows)}
        for column in ("language", "dump"):
            counts = {row["value"]: row[move] for row in found.groups[column] if row[move]}
            values = [row[column] or "(none)" for row in rows]
            assert counts == {value: values.count(value) for value in set(values)}
        for group in ("length", "score"):
            assert sum(row[move] for row in found.groups[group]) == len(rows)
    new = sum(shard == "t" for shard, _ in second)
    assert found.causes["entered"]["not in the corpus"] == new
    assert sum(found.causes["entered"].values()) == found.total["entered"]["documents"]
    assert sum(found.causes["left"].values()) == found.total["left"]["documents"]
    assert found.causes["left"]["filtered: min_tokens"] > 0
    same = compare(a, a)
    assert same.total["entered"] == same.total["left"] == {"documents": 0, "tokens": 0}
    code, out, _ = run(capsys, "diff", a.path, b.path, "--json")
    assert code == 0 and json.loads(out)["total"] == found.total
    code, out, _ = run(capsys, "diff", a.path, folder / "out", "--rows", "2")
    assert code == 0 and "by language" in out and "filtered: min_tokens" in out and "2 more" in out


def test_diff_knows_documents_in_other_shards_of_the_same_files(tmp_path):
    """Another corpus.group_bytes reads the same files as other shards, which make other ids where there is none."""
    tables = [documents(rows, rows) for rows in (40, 70, 30)]
    apart = [make_shard(tmp_path, f"s{place}", table) for place, table in enumerate(tables)]
    one = make_shard(tmp_path, "together", pa.concat_tables(tables))
    together = replace(one, shard=replace(one.shard, parts=tuple(each.shard.parts[0] for each in apart)))
    found = []
    for files in (apart, [together]):
        filters = filter_corpus(files, settings(), str(tmp_path / "out" / "work"))
        masks = [make_masks(replace(f, filters=o), tmp_path) for f, o in zip(files, filters, strict=True)]
        found.append(publish(export(masks, settings(), str(tmp_path / "out"), PROVENANCE)))
    rows = []
    for release, first in zip(found, ({"s0": 0, "s1": 40, "s2": 110}, {"together": 0}), strict=True):
        of = [release.decisions(shard) for shard in sorted(first)]
        rows.append({first[d["shard"]] + d["chunk_id"]: d for table in of for d in table.to_pylist()})
    chosen = [{row for row, decision in some.items() if decision["outcome"] == "selected"} for some in rows]
    difference = compare(*found)
    assert difference.total["stayed"]["documents"] == len(chosen[0] & chosen[1]) > 10
    assert difference.total["entered"]["documents"] == len(chosen[1] - chosen[0]) > 0
    assert difference.total["left"]["documents"] == len(chosen[0] - chosen[1]) > 0
    for move, moved, other in (("entered", chosen[1] - chosen[0], rows[0]), ("left", chosen[0] - chosen[1], rows[1])):
        causes = [": ".join(filter(None, (other[row]["outcome"], other[row]["reason"]))) for row in moved]
        assert difference.causes[move] == {cause: causes.count(cause) for cause in causes}


def test_explain_selected_with_neighbours(two):
    _, (_, (files, release)) = two
    f = files[0]
    masks = [row for row in storage.read_table(f.masks.path).to_pylist() if row["selected"]]
    place = masks[3]["chunk_id"]
    [found] = explain(release, f"{f.shard.name}/{place}")
    assert found.decision["outcome"] == "selected" and found.decision["price"] == masks[3]["price"]
    [score] = [row for row in storage.read_table(f.scores.path).to_pylist() if row["chunk_id"] == place]
    assert found.scores == {name: value for name, value in score.items() if name != "chunk_id"}
    # nearest by brute force over all selected rows
    vectors = {}
    for g in files:
        chosen = {row["chunk_id"] for row in storage.read_table(g.masks.path).to_pylist() if row["selected"]}
        for row in storage.read_table(g.embeddings.path).to_pylist():
            if row["chunk_id"] in chosen:
                vectors[g.shard.name, row["chunk_id"]] = np.array(row["feature_arr"], dtype=np.float32)
    mine = vectors.pop((f.shard.name, place))
    nearest = sorted(vectors, key=lambda key: -float(vectors[key] @ mine))[:5]
    assert [(n["shard"], n["chunk_id"]) for n in found.neighbours] == nearest


def test_explain_lists_documents_of_a_filter_beside_what_was_kept(two, capsys):
    _, (_, (files, release)) = two
    code, out, _ = run(capsys, "explain", release.path, "--filter", "exact_duplicate", "--sample", "3", "--json")
    found = json.loads(out)
    total = release.manifest()["conservation"]["total"]["filtered"]["exact_duplicate"]
    assert code == 0 and found["of"] == total and len(found["rows"]) == min(3, total)
    for row in found["rows"]:
        assert row["reason"] == "exact_duplicate" and row["kept_id"] not in (None, row["id"]) or not row["kept"]
    code, out, _ = run(capsys, "explain", release.path, "--filter", "min_tokens", "--sample", "2")
    assert code == 0 and "2 of " in out.split("\n")[0] and "min_tokens" in out
    code, _, err = run(capsys, "explain", release.path, "--filter", "min_tokens", "--seed", "-1")
    assert code == 2 and "greater than or equal to 0" in err
    code, _, err = run(capsys, "explain", release.path, "--filter", "min_token")
    assert code == 3 and "valid are" in err and 'did you mean "min_tokens"' in err
    code, _, err = run(capsys, "explain", release.path)
    assert code == 2 and "--filter NAME" in err
    code, _, err = run(capsys, "explain", release.path, "--filter", "min_tokens", "--only", "tongue=am")
    assert code == 3 and ("no such column" in err or "not at hand" in err)


@pytest.mark.parametrize(
    ("column", "value", "of"),
    [
        ("length", "0 to 63 tokens", lambda row: row["token_count"] < 64),
        ("length", "64 to 255 tokens", lambda row: 64 <= row["token_count"] < 256),
        ("label", "(none)", lambda row: row["label"] is None),
        ("label", "true", lambda row: row["label"] is True),
    ],
)
def test_explain_lists_the_groups_that_warnings_name(tmp_path, monkeypatch, column, value, of):
    table = documents(120)
    table = table.append_column("label", [[(True, False, None)[row % 3] for row in range(120)]])
    table = table.set_column(table.column_names.index("token_count"), "token_count", [[row * 2 for row in range(120)]])
    config = settings(filter={"max_tokens": 150})
    files, release = released(tmp_path, config, [make_shard(tmp_path, "s0", table)])
    monkeypatch.setattr(source, "recorded", lambda out: (files, config, None))
    decisions = release.decisions("s0").to_pylist()
    fell = [row | table.slice(row["chunk_id"], 1).to_pylist()[0] for row in decisions if row["reason"] == "max_tokens"]
    listed, number, _ = read_dropped(release, "max_tokens", 200, {column: value})
    assert {one.chunk_id for one in listed} == {row["chunk_id"] for row in fell if of(row)} and number == len(listed)
    with pytest.raises(InputError, match="length=64: valid are 0 to 63 tokens, 64 to 255 tokens"):
        read_dropped(release, "max_tokens", 1, {"length": "64"})


def test_explain_reads_the_corpus_by_the_releases_own_settings(tmp_path, monkeypatch):
    """Whatever the last run in its output folder read."""
    table = documents(120).append_column("label", [[f"a{row % 3}" for row in range(120)]])
    config = settings(filter={"max_tokens": 50})
    files, release = released(tmp_path, config, [make_shard(tmp_path, "s0", table)])
    last = settings(corpus={"drop": ["label"], "columns": {"label": "url"}})
    monkeypatch.setattr(source, "recorded", lambda out: (files, last, None))
    listed, _, _ = read_dropped(release, "max_tokens", 200, {"label": "a1"})
    assert listed and all(one.chunk_id % 3 == 1 for one in listed)
    shard = replace(files[0].shard, converted_from=files[0].shard.parts)  # by what the last run names
    monkeypatch.setattr(source, "recorded", lambda out: ([replace(files[0], shard=shard)], last, None))
    with pytest.raises(InputError, match="not at hand: the last run in .* or read it otherwise: s0"):
        read_dropped(release, "max_tokens", 200, {"label": "a1"})


def test_explain_names_the_rules_a_document_breaks(capsys):
    from datamask.quality.rules import SIGNALS, failures
    from datamask.quality.scorers import reasons as failed_rules
    from datamask.quality.signals import compute
    from datamask.release.explain import Explanation
    from datamask.release.printing import show_explanation

    [signals] = compute(["{ lorem ipsum"]).tolist()
    scores = {"edu": 0.2, "mine": 0.1, **{f"mine.{name}": value for name, value in zip(SIGNALS, signals)}}
    found = failed_rules(scores)
    assert len(found) == len(failures(dict(zip(SIGNALS, signals)))) > 3
    assert found[0].startswith("gopher_few_words: ") and "is less than 50 (Rae et al. 2021" in found[0]
    assert failed_rules({"edu": 0.2, "edu.int_score": 0.0}) == []
    decision = dict.fromkeys(("id", "shard", "chunk_id", "outcome", "reason", "token_count", "quality_score"), "x")
    show_explanation(Explanation({**decision, "probability": 0.5, "price": 0.1}, scores=scores, rules=found))
    assert all(rule in capsys.readouterr().out for rule in found[:1])


def test_explain_names_what_took_a_document(two, capsys):
    _, (_, (files, release)) = two
    texts = {
        (f.shard.name, r): t
        for f in files
        for r, t in enumerate(pq.read_table(f.shard.parts[0].path)["text"].to_pylist())
    }
    outcomes = {}
    for f in files:
        for row in pq.read_table(f"{release.path}/decisions/{f.shard.name}.parquet").to_pylist():
            outcomes.setdefault(row["reason"] or row["outcome"], row)
    duplicate = outcomes["exact_duplicate"]
    for found in explain(release, duplicate["id"]):
        assert found.decision == duplicate
        copy = found.copy_of
        assert copy["outcome"] in ("selected", "not_selected")
        same = " ".join(texts[copy["shard"], copy["chunk_id"]].lower().split())
        assert same == " ".join(texts[duplicate["shard"], duplicate["chunk_id"]].lower().split())
    short = outcomes["min_tokens"]
    [found] = explain(release, f"{short['shard']}/{short['chunk_id']}")
    assert found.decision["reason"] == "min_tokens" and found.scores
    least = release.manifest()["settings"]["filter"]["min_tokens"]
    assert found.setting == f"filter.min_tokens={least}"
    code, out, _ = run(capsys, "explain", release.path, f"{short['shard']}/{short['chunk_id']}")
    assert f"taken by filter.min_tokens={least}\n" in out
    null = outcomes["null_text"]
    [found] = explain(release, f"{null['shard']}/{null['chunk_id']}")
    assert found.quarantine["row"] == 5 and found.quarantine["file"].endswith(".parquet")
    for row in (duplicate, short, null, outcomes["selected"], outcomes["not_selected"]):
        code, out, _ = run(capsys, "explain", release.path, f"{row['shard']}/{row['chunk_id']}")
        assert code == 0 and row["outcome"].replace("_", " ") in out
        code, out, _ = run(capsys, "explain", release.path, f"{row['shard']}/{row['chunk_id']}", "--json")
        assert code == 0 and json.loads(out)["rows"][0]["decision"]["outcome"] == row["outcome"]
    code, _, err = run(capsys, "explain", release.path, "no-such-id")
    assert code == 3 and "no row 'no-such-id' among the 500" in err
    for shard, chunk_id in ((null["shard"], null["chunk_id"]), ("s1", 3), ("s2", 199)):
        [found] = explain(release, f"input/{shard}.parquet:{chunk_id}")
        assert (found.decision["shard"], found.decision["chunk_id"]) == (shard, chunk_id)
    code, _, err = run(capsys, "explain", release.path, "s1.parquet:5000")
    assert code == 3 and "FILE:ROW" in err


def test_explain_says_which_text_of_a_contained_pair_fell(capsys):
    from datamask.release.explain import Explanation
    from datamask.release.printing import show_explanation

    row = {"id": "a", "shard": "s", "chunk_id": 0, "outcome": "filtered", "reason": "contained", "token_count": 90}
    row |= {"quality_score": 0.5, "probability": 0.0, "price": 0.0}
    for tokens, says in ((40, "the shorter text is in this one"), (400, "this text is in the longer one")):
        copy = {**row, "id": "b", "chunk_id": 1, "outcome": "selected", "kind": "contained", "token_count": tokens}
        show_explanation(Explanation(row, setting="duplicates.containment=0.9", copy_of=copy))
        assert f"taken by duplicates.containment=0.9: {says}" in capsys.readouterr().out


def test_every_filters_setting_is_one_that_there_is():
    from datamask.config import Config
    from datamask.filter.built_in import BUILT_IN
    from datamask.filter.resolve import REASONS
    from datamask.release.explain import SETTINGS, _setting

    assert {*BUILT_IN, *REASONS.values(), "target_leak"} == set(SETTINGS)
    settings = Config().model_dump(mode="json")
    for reason, name in SETTINGS.items():
        section, field, *_ = name.split(".")
        assert field in settings[section] and _setting(reason, settings).startswith(f"{name}=")
    assert _setting("no-captain", settings) == "filter.own=[]"


def test_explain_says_where_a_copy_lies_that_an_earlier_curation_kept(tmp_path, capsys):
    [files] = make_corpus(tmp_path, (60,))
    masks = storage.read_table(make_masks(files, tmp_path).masks.path)
    reasons = masks["reason"].to_pylist()
    row = reasons.index("not_selected")
    reasons[row], chunk_id = "filter:near_duplicate", masks["chunk_id"][row].as_py()
    masks = masks.set_column(masks.column_names.index("reason"), "reason", [reasons])
    copy = {"duplicate_of_shard": "out/before:s7", "duplicate_of": 3, "similarity": 0.9, "kind": "near"}
    fell = pa.Table.from_pylist([{"chunk_id": chunk_id, **copy}], SCHEMA)
    made = {"masks": (masks, "a" * 16), "duplicates": (fell, "b" * 16)}
    out = str(tmp_path / "out")
    outputs = {
        stage: storage.write_output(f"{out}/work/{stage}/s0-{key}.parquet", key, table.schema, [table])
        for stage, (table, key) in made.items()
    }
    release = publish(export([replace(files, **outputs)], settings(), out, PROVENANCE))
    for asked in ([f"s0/{chunk_id}"], ["--filter", "near_duplicate"]):
        code, printed, err = run(capsys, "explain", release.path, *asked)
        assert code == 0 and "out/before:s7/3" in printed, err


def test_explain_names_the_copy_that_was_kept_at_first_and_fell_later(tmp_path, capsys):
    [files] = make_corpus(tmp_path, (200,))
    [filters] = filter_corpus([files], settings(), str(tmp_path / "out" / "work"))
    files = make_masks(replace(files, filters=filters), tmp_path)
    made = files.masks
    texts, masks = (
        pq.read_table(files.shard.parts[0].path)["text"].to_pylist(),
        storage.read_table(made.path).to_pylist(),
    )
    exact = next(row for row in masks if row["reason"] == "filter:exact_duplicate")
    mine = " ".join(texts[exact["chunk_id"]].lower().split())
    for row in masks:
        same = " ".join(texts[row["chunk_id"]].lower().split()) == mine
        if same and row["reason"] != "filter:exact_duplicate":
            kept, row["reason"], row["selected"] = row["chunk_id"], "filter:contained", False
    table = pa.Table.from_pylist(masks, storage.read_table(made.path).schema)
    output = storage.write_output(f"{tmp_path}/out/work/masks/s0-{'a' * 16}.parquet", "a" * 16, table.schema, [table])
    release = publish(export([replace(files, masks=output)], settings(), str(tmp_path / "out"), PROVENANCE))
    code, printed, err = run(capsys, "explain", release.path, f"s0/{exact['chunk_id']}")
    assert code == 0 and "kept in its place at first: " in printed and f"s0/{kept} (contained)" in printed, err


def test_explain_without_the_work_folder_says_what_it_cannot_tell(two, tmp_path):
    _, (_, (_, release)) = two
    path = tmp_path / "out" / "releases" / release.version
    shutil.copytree(release.path, path)
    [found] = explain(ReleaseFolder(str(path), release.version, release.key), "s0/0")
    assert found.decision["shard"] == "s0" and not found.scores and not found.neighbours
    assert any(missing.startswith("scores:") and "is not there any more" in missing for missing in found.missing)


# ---------------------------------------------------------------- push


def test_push_skips_what_is_there_and_goes_on(two, tmp_path, capsys):
    _, (_, (_, release)) = two
    target = tmp_path / "pushed"
    shutil.copytree(release.path, target)
    (target / "manifest.json").unlink()
    (target / "README.md").unlink()
    [first, *_] = sorted(target.glob("data/*/*.parquet"))
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    pushed = upload_release(release, str(target))
    changed = first.relative_to(target).as_posix()
    assert sorted(pushed.uploaded) == sorted(["README.md", changed, "manifest.json"])
    assert verify(ReleaseFolder(str(target), release.version, release.key)).problems == []
    again = upload_release(release, str(target))
    assert again.uploaded == [] and again.bytes == 0
    code, out, _ = run(capsys, "push", release.path, target)
    assert code == 0 and "0 files uploaded" in out


@pytest.mark.parametrize("target", ["s3://", "file:///", "", "/"])
def test_push_to_no_folder_is_refused(two, tmp_path, monkeypatch, target):
    _, ((_, release), _) = two
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=f"target {target!r} names no folder; give one, such as"):
        upload_release(release, target)
    assert set(tmp_path.iterdir()) == before


def test_push_over_an_older_release_leaves_no_mixture(two, tmp_path):
    _, ((_, first), (_, second)) = two
    target = str(tmp_path / "pushed")
    upload_release(first, target)
    Path(target, "notes.md").write_text("the user's own")
    pushed = upload_release(second, target)
    found = verify(ReleaseFolder(target, second.version, second.key))
    assert found.problems == ["notes.md was added"] and "manifest.json" in pushed.removed
    back = upload_release(first, target)
    assert any(path.startswith("decisions/t") for path in back.removed)


def test_push_interrupted_is_no_release(two, tmp_path, monkeypatch):
    _, ((_, first), (_, second)) = two
    target = str(tmp_path / "pushed")
    upload_release(first, target)

    class Stopped(Exception):
        pass

    done = []

    def stop(path, size):
        done.append(path)
        if len(done) == 4:
            raise Stopped

    with pytest.raises(Stopped):
        upload_release(second, target, stop)
    with pytest.raises(InputError, match="no release at"):
        from datamask.release.release_folder import find_release

        find_release(target)
    pushed = upload_release(second, target)
    assert set(done) <= set(pushed.skipped)
    assert verify(ReleaseFolder(target, second.version, second.key)).problems == []


def test_push_leaves_files_that_no_release_brought(two, tmp_path):
    _, ((_, first), (_, second)) = two
    target = tmp_path / "mine"
    own = [target / "data" / "raw.txt", target / "plots" / "my.png", target / "data" / "en" / "a.parquet"]
    for path in own:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the user's own")
    assert upload_release(second, str(target)).removed == []

    class Stopped(Exception):
        pass

    def stop(path, size):
        raise Stopped

    with pytest.raises(Stopped):
        upload_release(first, str(target), stop)
    assert any(path.startswith("decisions/t") for path in upload_release(first, str(target)).removed)
    assert [path.read_text() for path in own] == ["the user's own"] * 3
    added = {f"{path.relative_to(target)} was added" for path in own}
    assert set(verify(ReleaseFolder(str(target), first.version, first.key)).problems) == added


def test_push_to_a_folder_with_another_manifest_is_refused(two, tmp_path):
    _, ((_, first), _) = two
    (tmp_path / "manifest.json").write_text('{"name": "an extension"}')
    with pytest.raises(StorageError, match=r"manifest\.json: no release has such a manifest.*push to another place"):
        upload_release(first, str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_push_never_goes_over_an_output_folder_or_its_releases(two, tmp_path):
    folder, ((_, first), (_, second)) = two
    out = folder / "out"
    before = storage.file_sizes(str(out))
    for target in (out, first.path, f"{first.path}/"):
        with pytest.raises(ConfigError, match="is an output folder, or a release of one; push to a folder of its own"):
            upload_release(second, str(target))
    assert storage.file_sizes(str(out)) == before
    mirror = tmp_path / "mirror" / "releases" / second.version
    upload_release(second, str(mirror))
    assert upload_release(second, str(mirror)).uploaded == []


@pytest.mark.parametrize(
    "command",
    [
        ("summary", "{out}", "--to", "{release}"),
        ("report", "{out}", "--to", "{release}/plots"),
        ("trends", "{out}", "--to", "{release}/report.html"),
        ("tokens", "{out}", "--tokenizer", "none", "--format", "npy", "--to", "{out}/latest"),
        ("sweep", "{out}", "--to", "{release}"),
        ("ablate", "{out}", "--to", "{release}"),
        ("judge", "{out}", "--targets", "none", "--to", "{release}"),
        ("worth", "none", "--against", "{out}", "--to", "{release}"),
        ("curate", "{out}/../input", "--plain", "--output", "{out}/latest"),
        ("curate", "--sample", "--plain", "--output", "{out}/latest"),
        ("sample", "{release}"),
        ("select", "--input", "none", "--output", "{release}/data/mask.parquet"),
        ("fit-quality", "--labels", "none", "--output", "{release}/probe"),
        ("clean", "{release}", "--yes"),
    ],
    ids=lambda command: command[0],
)
def test_no_command_writes_into_a_release(two, capsys, command):
    folder, ((_, release), _) = two
    before = storage.file_sizes(release.path)
    code, _, err = run(capsys, *(word.format(out=folder / "out", release=release.path) for word in command))
    assert code == 2 and "lies there, and a release never changes; name another place" in err
    assert storage.file_sizes(release.path) == before and verify(release).problems == []


def test_a_rollback_of_a_wrong_name_makes_no_folder(tmp_path, capsys):
    code, _, err = run(capsys, "rollback", tmp_path / "none")
    assert code == 3 and "has no release to roll back to" in err and not any(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["{file}", "{file}/out", "/proc/none"])
def test_an_output_that_cannot_be_written_is_named(two, tmp_path, capsys, place):
    file = tmp_path / "a.parquet"
    file.write_bytes(b"")
    out = place.format(file=file)
    code, _, err = run(capsys, "curate", two[0] / "input", "--plain", "--output", out)
    assert code == 5 and f"cannot write {out}: " in err and "; choose another --output" in err


def test_push_refuses_a_release_that_is_not_whole_and_urls_that_are_none(two, tmp_path):
    _, (_, (_, release)) = two
    broken = tmp_path / release.version
    shutil.copytree(release.path, broken)
    (broken / "README.md").unlink()
    with pytest.raises(StorageError, match="README.md is not as the manifest says"):
        upload_release(ReleaseFolder(str(broken), release.version, release.key), str(tmp_path / "x"))
    for url in ("hf://owner/name", "hf://datasets/name", "hf://spaces/owner/name"):
        with pytest.raises(StorageError, match="hf://datasets/OWNER/NAME"):
            upload_release(release, url)
