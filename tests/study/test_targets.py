"""Targets read from files, bad ones refused by name, those that stand in the pool found."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from datamask.config import load_config
from datamask.errors import InputError
from datamask.filter.leaks import items_of
from datamask.selection.cover.counting import read_target
from datamask.study import Item, Target, read_targets
from datamask.study.run import without_overlap

LONG = [
    f"Item {n} asks which of the {n} rivers of country {n} flows north into lake number {n} and why" for n in range(20)
]


def lines(path: Path, rows: list) -> str:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    return str(path)


def test_json_lines_plain_and_packed_are_read(tmp_path):
    rows = [{"question": f"q{n}\u2028x", "answer": f"a{n}"} for n in range(9)]  # a line separator is no line feed
    plain = lines(tmp_path / "plain.jsonl", rows)
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(Path(plain).read_bytes()))
    text = tmp_path / "prose.txt"
    text.write_text("\n\n".join("word " * 100 for _ in range(10)))
    found = read_targets([plain, str(packed), str(text)])
    assert [target.name for target in found] == ["plain", "packed", "prose"]
    assert {item.whole for item in found[0].items} == {f"q{n}\u2028x a{n}".encode() for n in range(9)}
    assert found[0].items == found[1].items and len(found[2].items) == 10 and not found[2].items[0].answer


def test_an_array_in_one_line_is_read_as_its_items(tmp_path):
    rows = [{"question": f"q{n}", "answer": f"a{n}"} for n in range(9)]
    (tmp_path / "array.json").write_text(json.dumps(rows))
    assert {item.whole for item in read_targets([str(tmp_path / "array.json")])[0].items} == {
        f"q{n} a{n}".encode() for n in range(9)
    }


@pytest.mark.parametrize("name", ["a.jsonl", "A.JSONL", "a.ndjson", "a.json", "a.ndjson.gz", "a.jsonl.1"])
def test_a_name_of_json_lines_means_the_same_wherever_texts_are_named(tmp_path, name):
    rows = [{"question": f"Which river is number {n}?", "answer": f"river {n}"} for n in range(9)]
    path = Path(lines(tmp_path / name, rows))
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    texts = {f"{row['question']} {row['answer']}" for row in rows}
    assert {item.whole.decode() for item in read_targets([str(path)])[0].items} == texts
    assert set(read_target([str(path)]).texts) == texts
    found = items_of(load_config(None, [f"filter.decontaminate=[{path}]"]))
    assert {text for part, text in zip(found.parts, found.texts, strict=True) if "and" in part} == texts


def test_a_limit_takes_items_in_an_order_of_their_own_not_the_first(tmp_path):
    path = lines(tmp_path / "t.jsonl", [{"text": f"{n:03d}" * 10} for n in range(100)])
    some = read_targets([path], limit=900)[0]
    assert len(some.items) == 30 and some.items == read_targets([path], limit=900)[0].items
    assert some.items != read_targets([path], limit=900, seed=1)[0].items
    assert set(some.items) < set(read_targets([path])[0].items)


@pytest.mark.parametrize(
    "name,content,message",
    [
        ("a.jsonl", b"", "a.jsonl is empty"),
        ("a.txt", b" \n\n ", "a.txt is empty"),
        ("a.jsonl", b'{"question": "x"}\n', "line 1: has question; a target's lines need `question` and `answer`"),
        ("a.jsonl", b'{"text": "x"}\n{"te', "line 2 is not JSON"),
        ("a.jsonl", b"[1]\n", "line 1: has no fields"),
        (
            "a.json",
            b'[\n{"text": "x"}\n]',
            "line 1 is not JSON (Expecting value: line 1 column 2 (char 1)); each line must be an object",
        ),
        ("a.jsonl", b'{"text": "x"}\n', "target a has 1 items that hold text"),
        ("a.txt", b"\xff\xfe\x00", "a.txt is not UTF-8"),
        ("a.jsonl.gz", b"not packed", "cannot be unpacked"),
        ("a.jsonl.gz", gzip.compress(b"x" * 1000, mtime=0)[:-12], "cannot be unpacked"),
    ],
)
def test_bad_targets_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="target") as error:
        read_targets([str(tmp_path / name)])
    assert message in str(error.value)


def test_missing_none_and_twice(tmp_path):
    with pytest.raises(Exception, match=r"nowhere\.txt"):
        read_targets([str(tmp_path / "nowhere.txt")])
    with pytest.raises(InputError, match="no targets"):
        read_targets([])
    path = lines(tmp_path / "t.jsonl", [{"text": f"text {n}"} for n in range(9)])
    with pytest.raises(InputError, match="two targets are called t"):
        read_targets([path, path])


def test_items_that_stand_in_the_pool_are_found_whatever_the_case_and_left_out():
    target = Target("quiz", tuple(Item(text.encode(), b"") for text in LONG))
    pool = [b"nothing of it", b"xx " + LONG[3].upper().replace(" ", "\n").encode() + b" yy", LONG[7].encode()]
    kept, found = without_overlap([target], pool, ["a:0", "a:1", "a:2"])
    assert set(target.items) - set(kept[0].items) == {target.items[3], target.items[7]}
    assert (found["quiz"].items, found["quiz"].of, found["quiz"].document) == (2, 20, "a:1")
    assert without_overlap([target], [b"nothing", b""], ["a", "b"]) == ([target], {})


def test_a_target_that_stands_in_the_pool_is_an_error_that_names_it():
    target = Target("quiz", tuple(Item(text.encode()) for text in LONG))
    with pytest.raises(InputError, match=r"target quiz stands in the pool: 20 of 20 items.*document shard:5"):
        without_overlap([target], ["\n".join(LONG).encode()], ["shard:5"])


def test_runs_are_thirteen_words_and_short_items_need_all_of_theirs():
    words = [f"w{n}" for n in range(30)]
    item = Item(" ".join(words).encode())
    short, tiny = Item(" ".join(words[:9]).encode()), Item(b"w0 w1 w2")
    rest = tuple(Item(f"other {n} thing".encode()) for n in range(9))
    target = Target("t", (item, short, tiny, *rest))
    runs = {n: " ".join(words[10 : 10 + n]).encode() for n in (12, 13)}
    assert not without_overlap([target], [runs[12]], ["a"])[1]
    assert without_overlap([target], [runs[13]], ["a"])[1]["t"].items == 1
    assert without_overlap([target], [" ".join(words[:9]).encode()], ["a"])[1]["t"].items == 1
    assert not without_overlap([target], [" ".join(words[:8]).encode()], ["a"])[1]


def test_the_order_of_words_counts():
    words = np.array(LONG[3].split())
    target = Target("quiz", tuple(Item(text.encode()) for text in LONG))
    other = " ".join(np.random.default_rng(0).permutation(words)).encode()
    assert not without_overlap([target], [other], ["a"])[1]
