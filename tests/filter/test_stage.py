"""The stage over shards: what falls, to what, whatever the shards, partitions and reruns; earlier releases."""

import errno
import os
import pickle
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask import storage
from datamask.config import Config, validate
from datamask.errors import ConfigError, StorageError
from datamask.filter import duplicate_candidates as candidates
from datamask.filter import duplicate_rounds as rounds
from datamask.filter import duplicates as stage
from datamask.filter import held_texts, postings
from datamask.filter import verify_pairs as verify
from datamask.filter.duplicates import find_duplicates, wanted
from datamask.filter.shingles import likeness, shingles
from datamask.filter.signatures import sign_shard
from datamask.maps import Threads, here
from datamask.pipeline import STAGES
from datamask.stages import ShardFiles, record
from tests.filter.test_programs import POWERS

WORDS = ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=3 + n % 7)) for n in range(3000)]


def document(seed: int, words: int = 120) -> str:
    chosen = random.Random(f"document {seed}").choices(WORDS, k=words)
    return ". ".join(" ".join(chosen[i : i + 10]).capitalize() for i in range(0, words, 10)) + "."


def noisy(text: str, share: float, seed: int = 0) -> str:
    generator = random.Random(f"noise {seed}")
    return " ".join(generator.choice(WORDS) if generator.random() < share else word for word in text.split(" "))


def corpus(
    folder: Path,
    shards: list[list[str]],
    languages: list[list[str]] | None = None,
    scores: list[list[float]] | None = None,
    **settings,
) -> tuple:
    """Shards of texts with the files the stage reads, and settings."""
    from datamask.corpus.convert import convert_shard
    from datamask.corpus.shards import plan_shards

    (folder / "in").mkdir(parents=True)
    for number, texts in enumerate(shards):
        columns = {"text": texts}
        if languages:
            columns["language"] = languages[number]
        pq.write_table(pa.table(columns), folder / f"in/s{number}.parquet", row_group_size=7)
    given = {"corpus": {"input": [str(folder / "in")], "group_bytes": 0}} | settings
    config, work = Config.model_validate(given), str(folder / "work")
    found = []
    for number, (shard, texts) in enumerate(zip(plan_shards(config.corpus, work).shards, shards, strict=True)):
        quality = pa.array(scores[number] if scores else [0.0] * len(texts), pa.float32())
        ids = pa.array(range(len(texts)), pa.int64())

        def put(name: str, columns: dict, shard_name: str = shard.name) -> storage.Output:
            table = pa.table(columns)
            return storage.write_output(
                f"{work}/{name}/{shard_name}.parquet", f"{name}{shard_name}", table.schema, [table]
            )

        nothing = pa.array([None] * len(texts), pa.string())
        index = {"chunk_id": ids, "id": ids.cast(pa.string()), "reason": nothing}
        files = ShardFiles(
            convert_shard(shard, config, work),
            index=put("index", index),
            scores=put("scores", {"chunk_id": ids, "quality_score": quality}),
            filters=put("filters", {"chunk_id": ids, "reason": nothing}),
        )
        found.append(replace(files, signatures=sign_shard(files.shard, config, work)))
    return found, config, work


def falls(files: list[ShardFiles], outputs: list[storage.Output]) -> dict:
    names = {f.shard.name: number for number, f in enumerate(files)}
    found = {}
    for f, output in zip(files, outputs, strict=True):
        for row in storage.read_table(output.path).to_pylist():
            place = names[f.shard.name], row["chunk_id"]
            found[place] = ((names.get(row["duplicate_of_shard"]), row["duplicate_of"]), row)
    return found


def many(count: int = 60) -> list[list[str]]:
    originals = [document(n) for n in range(count)]
    changed = [
        [noisy(text, 0.03, 1), noisy(text, 0.1, 2), text.upper(), text[: len(text) // 2], "Home | News\n" + text][n % 5]
        for n, text in enumerate(originals[: count // 2])
    ]
    return [originals[::2], originals[1::2] + changed[::2], [document(1000 + n) for n in range(10)] + changed[1::2]]


def test_every_fall_is_to_one_that_stays_at_the_recorded_likeness_of_the_whole_texts(tmp_path):
    shards = many()
    files, config, work = corpus(tmp_path, shards)
    found = falls(files, find_duplicates(files, config, work))
    assert len(found) == 30
    for (shard, chunk), ((other, of), row) in found.items():
        assert (other, of) not in found
        like = likeness(shingles(shards[shard][chunk]), shingles(shards[other][of]))
        expected = like.containment if row["kind"] == "contained" else like.jaccard
        assert row["similarity"] == np.float32(expected)
    assert {row["kind"] for _, row in found.values()} == {"exact", "near", "contained"}


def test_bytes_are_the_same_for_any_partitions_order_and_rerun(tmp_path, monkeypatch):
    files, config, work = corpus(tmp_path, many())
    first = find_duplicates(files, config, work)
    again = find_duplicates(files[::-1], config, work)[::-1]
    assert [output.path for output in again] == [output.path for output in first]
    assert all(output.cached for output in again)
    monkeypatch.setattr(postings, "PARTITION", 500)
    monkeypatch.setattr(stage, "PARTITION", 500)
    monkeypatch.setattr(rounds, "ROOM", 30)
    monkeypatch.setattr(verify, "ROOM", 5000)
    monkeypatch.setattr(held_texts, "TEXT_BYTES", 2000)
    monkeypatch.setattr(held_texts, "HELD", 3000)
    other = find_duplicates(files[::-1], config, str(tmp_path / "other"))[::-1]
    for a, b in zip(first, other, strict=True):
        assert Path(a.path).read_bytes() == Path(b.path).read_bytes()
    assert not list((tmp_path / "other/rounds").iterdir())


@pytest.mark.slow
def test_bytes_are_the_same_after_a_worker_was_lost_in_any_round(tmp_path, monkeypatch):
    files, config, work = corpus(tmp_path, many())
    expected = {Path(o.path).name: Path(o.path).read_bytes() for o in find_duplicates(files, config, work)}
    monkeypatch.setattr(stage, "PARTITION", 1500)
    monkeypatch.setattr(stage, "groups", lambda ordered: [(place,) for place in range(len(ordered))])
    monkeypatch.setattr(verify, "ROOM", 5000)
    rounds = []

    def counted(work, state, items, rows=None):
        rounds.append(work)
        return here(work, state, items)

    find_duplicates(files, config, str(tmp_path / "counted"), counted)
    assert 8 <= len(rounds) <= STAGES["duplicates"].rounds
    for failing in range(1, 1 + len(rounds)):
        other, calls = str(tmp_path / f"failed-{failing}"), iter(range(1, 100))

        def broken(work, state, items, rows=None, calls=calls, failing=failing):
            items = pickle.loads(pickle.dumps(list(items)))
            if next(calls) == failing:
                here(work, state, items[:-1])
                raise ConnectionResetError("a worker was lost")
            return Threads(3)(work, pickle.loads(pickle.dumps(state)), items)

        with pytest.raises(ConnectionResetError):
            find_duplicates(files, config, other, broken)
        found = find_duplicates(files, config, other, Threads(2))
        assert {Path(o.path).name: Path(o.path).read_bytes() for o in found} == expected
        assert not list(Path(other, "rounds").iterdir())


def test_a_template_is_no_duplicate_and_its_true_copies_are(tmp_path):
    notice = document(1, 60)
    forms = [f"{notice} {document(100 + n, 30)}" for n in range(20)]
    copies = [form.replace(". ", "; ", 1) + " Ad." for form in forms[:3]]
    files, config, work = corpus(tmp_path, [forms, copies])
    found = falls(files, find_duplicates(files, config, work))
    assert len(found) == 3
    for (shard, chunk), ((other, of), _) in found.items():
        assert shard != other and chunk == of


def test_what_many_have_by_chance_is_no_template_in_a_large_corpus_and_a_template_is_one(tmp_path, monkeypatch):
    """Every six words of the documents are in some thirty of them; a form's words are in ten, together."""
    draw = random.Random(3)
    phrases = [" ".join(draw.choices(WORDS, k=6)) for _ in range(120)]
    mixed = [" ".join(draw.choices(phrases, k=25)) for _ in range(160)]
    forms = [noisy(document(1), 0.1, 100 + n) for n in range(10)]  # filled in by a word here and there
    copies = [noisy(text, 0.08, n) for n, text in enumerate(mixed[:12])]
    files, config, work = corpus(tmp_path, [mixed + forms, copies])
    small = falls(files, find_duplicates(files, config, work))
    monkeypatch.setattr(candidates, "CORPUS", 20)  # as if there were thousands of times as many
    shutil.rmtree(f"{work}/duplicates")
    found = falls(files, find_duplicates(files, config, work))
    pairs = {frozenset([place, stays]) for place, (stays, _) in found.items()}
    assert len(small) < 3 and len(found) >= 9
    assert pairs <= {frozenset([(0, n), (1, n)]) for n in range(12)}


def test_a_large_family_keeps_one(tmp_path):
    text = document(5)
    family = [noisy(text, 0.005, n) for n in range(80)]
    files, config, work = corpus(tmp_path, [family[:40] + [document(7)], family[40:]])
    found = falls(files, find_duplicates(files, config, work))
    assert len(found) == 79
    assert len({row["cluster"] for _, row in found.values()}) == 1


def test_what_is_filtered_out_takes_nobody_out(tmp_path):
    files, config, work = corpus(tmp_path, [[document(1), document(2)], [document(1) + " More here.", document(3)]])
    out = pa.table({"chunk_id": pa.array([0, 1], pa.int64()), "reason": ["language", None]})
    filters = storage.write_output(f"{work}/filters/other.parquet", "other", out.schema, [out])
    files[0] = replace(files[0], filters=filters)
    assert not falls(files, find_duplicates(files, config, work))


def test_a_new_shard_leaves_the_files_of_old_ones(tmp_path):
    shards = many()
    files, config, work = corpus(tmp_path, shards)
    before = find_duplicates(files[:2], config, work)
    after = find_duplicates(files, config, work)
    same = [a.path == b.path for a, b in zip(before, after, strict=False)]
    rows = [storage.read_table(a.path).equals(storage.read_table(b.path)) for a, b in zip(before, after, strict=False)]
    assert same == rows


def test_what_an_earlier_release_selected_stays_and_its_copies_fall_here(tmp_path):
    earlier, config, work = corpus(tmp_path / "earlier", [[document(1), document(2), document(3)]])
    masks = pa.table({"chunk_id": pa.array([0, 1, 2], pa.int64()), "selected": [True, False, True]})
    output = storage.write_output(f"{work}/masks/m.parquet", "m", masks.schema, [masks])
    embedded = storage.write_output(f"{work}/embeddings/e.parquet", "e", masks.schema, [masks])
    earlier = [replace(earlier[0], masks=output, embeddings=embedded)]
    record(work, earlier, config)
    (tmp_path / "moved").mkdir()  # a folder has another name from another working directory
    Path(work).rename(tmp_path / "moved" / "work")
    against = {"duplicates": {"against": [str(tmp_path / "moved")]}}
    shards = [[noisy(document(1), 0.03), document(2), document(3) + " And a sentence more.", document(9)]]
    files, config, work = corpus(tmp_path / "now", shards, **against)
    rows = storage.read_table(find_duplicates(files, config, work)[0].path).to_pylist()
    assert [row["chunk_id"] for row in rows] == [0, 2]
    assert [row["duplicate_of"] for row in rows] == [0, 2]
    assert all(row["duplicate_of_shard"].startswith(str(tmp_path / "moved")) for row in rows)


@pytest.mark.parametrize("score", [0.0, 0.9])
def test_a_copy_with_a_clause_more_stays_whatever_else_differs(tmp_path, score):
    words = document(1, 400).split(" ")
    changed = [word[:-1] + "qq" if place % 50 == 20 else word for place, word in enumerate(words)]
    version = " ".join([*changed[:200], *WORDS[7:23], *changed[200:]])
    files, config, work = corpus(tmp_path, [[document(1, 400), version]], scores=[[0.9, score]])
    rows = storage.read_table(find_duplicates(files, config, work)[0].path).to_pylist()
    assert [row["chunk_id"] for row in rows] == [0]


def test_settings_of_the_alarm_are_refused_but_for_what_earlier_runs_record():
    assert validate({"duplicates": {"alarm": "warn", "alarm_share": 0.5}}) == Config()
    for gone in ({"alarm": "stop"}, {"alarm_share": 0.3}):
        with pytest.raises(ConfigError, match=f"duplicates.{[*gone][0]}"):
            validate({"duplicates": gone})


def test_the_stage_is_wanted_unless_near_duplicates_are_to_stay():
    assert wanted(Config())
    assert not wanted(Config.model_validate({"select": {"semantic_duplicates": None}}))
    off = {"jaccard": None, "containment": None}
    assert not wanted(Config.model_validate({"duplicates": off}))


def test_duplicates_by_embeddings_name_what_leaves_them_out_instead():
    with pytest.raises(ConfigError, match="select.solver: semdedup"):
        validate({"duplicates": {"semantic": "drop"}})
    assert validate({"duplicates": {"semantic": "off"}}) == Config()  # as earlier releases record it


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="free some space"):
        storage.scratch_array(str(tmp_path / "a"), np.float16, (10, 10))
    files, config, work = corpus(tmp_path / "c", many())
    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(StorageError, match="free some space"):
        find_duplicates(files, config, work)


def lines(seed: int, words: int) -> str:
    return document(seed, words).replace(". ", ".\n")


def menu(seed: int, entries: int) -> str:
    return "\n".join(" ".join(random.Random(f"menu {seed} {n}").choices(WORDS, k=2)) for n in range(entries))


def program(seed: int, statements: int) -> str:
    rows = "".join(
        f"    {random.Random(f'{seed} {n}').choice(WORDS)}_{n} = read({n}, {seed});\n" for n in range(statements)
    )
    return f"function part{seed}() {{\n{rows}}}\n"


def test_a_program_that_holds_another_stays(tmp_path):
    """Whatever their scores: it is no packaging of the other."""
    small = program(1, 60)
    shards = [[small], [program(2, 20) + small + program(3, 20)], [lines(100 + n, 80) for n in range(40)]]
    files, config, work = corpus(tmp_path, shards, scores=[[0.9], [0.1], [n / 40 for n in range(40)]])
    found = falls(files, find_duplicates(files, config, work))
    assert [(shard, other) for (shard, _), ((other, _), _) in found.items()] == [(0, 1)]


@pytest.mark.parametrize(
    ("name", "better", "around", "falls_to"),
    [
        (
            "the page around a better text falls",
            0.3,
            lambda text: menu(1, 30) + "\n" + text + "\n" + menu(2, 30),
            {1: 0},
        ),
        ("scores as near as copies' say nothing", 0.01, lambda text: menu(1, 60) + "\n" + text, {0: 1}),
        ("the half falls, though it scores better", 0.3, lambda text: text + "\n" + lines(77, 120), {0: 1}),
        ("the half falls, though it scores far better", 0.9, lambda text: text + "\n" + lines(77, 100), {0: 1}),
        ("a quotation falls", 0.01, lambda text: text + "\n" + lines(77, 600), {0: 1}),
        ("the licence falls, not the program", 0.3, lambda text: f"/*\n{text}\n*/\n{POWERS * 3}", {0: 1}),
        ("a part falls, though it scores better", 0.3, lambda text: text + "\n" + lines(77, 600), {0: 1}),
    ],
)
@pytest.mark.parametrize("swap", [False, True])
def test_which_of_a_contained_pair_falls(tmp_path, name, better, around, falls_to, swap):
    text = lines(5, 120)
    shards, scores = [[text], [around(text)], [lines(100 + n, 80) for n in range(40)]], [[0.0], [0.0], []]
    scores[0][0], scores[1][0], scores[2] = 0.05 + better, 0.05, [n / 40 for n in range(40)]
    if swap:
        shards[:2], scores[:2] = shards[1::-1], scores[1::-1]
        falls_to = {1 - a: 1 - b for a, b in falls_to.items()}
    files, config, work = corpus(tmp_path, shards, scores=scores)
    found = falls(files, find_duplicates(files, config, work))
    assert {shard: other for (shard, _), ((other, _), _) in found.items()} == falls_to, name
    for (shard, chunk), ((other, of), row) in found.items():
        assert row["kind"] == "contained"
        like = likeness(shingles(shards[shard][chunk]), shingles(shards[other][of]))
        assert row["similarity"] == np.float32(like.containment)
