"""Files and folders of any name are read and written by that name, or refused with it; no library interprets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask import duck, storage
from datamask.corpus.inputs import find_inputs
from datamask.errors import InputError, ModelError, StorageError
from datamask.models.locate import locate
from datamask.study.targets import read_targets
from tests.corpus import build

NAMES = [
    "std::vector", "simplecache::file", "zip::y", "a{0}b", "c#1", "d?e", "f*g", "h\ni", "j\\k", "~l", "~", " m ",
    "n[1]", "o%20p", "$HOME", "q;r", "s:t", 'u"v', "Bob's", "-w", "日本 😀", "x..", "y.", "caf\\xe9", "cr\r", "t\tab",
    "http:", b"caf\xe9", b"\xff\xfe", b"\\xe9\xff", b"a\xc3\\xff\\x5c", b"\xe6\x97", "e\u0301",
]  # fmt: skip


def named(folder: Path, name: str | bytes) -> str:
    return f"{folder}/{os.fsdecode(name)}"


def write(path: str, ending: str, text: str) -> str:
    if ending == ".parquet":
        with Path(path + ending).open("wb") as file:
            pq.write_table(pa.table({"text": [text]}), file)
    else:
        Path(path + ending).write_text(json.dumps({"text": text}) + "\n" if ending == ".jsonl" else text)
    return path + ending


@pytest.mark.parametrize("ending", [".jsonl", ".txt", ".parquet"])
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_file_of_any_name_is_read_with_its_folder_and_by_itself(
    tmp_path: Path, name: str | bytes, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = named(tmp_path, name)
    Path(folder).mkdir()
    path = write(named(Path(folder), name), ending, "Words of a document.")
    monkeypatch.chdir(tmp_path)
    for number, given in enumerate([str(tmp_path), folder, path]):
        (file,) = find_inputs([given]).files
        file.path.encode()  # as every record of it is written
        texts = [row["text"] for row in build.read(tmp_path / f"_work{number}", Path(file.path))]
        assert texts == ["Words of a document."]


def test_a_name_that_is_not_utf8_is_shown_with_its_bytes(tmp_path: Path) -> None:
    write(named(tmp_path, b"caf\xe9"), ".jsonl", "Words.")
    assert [file.path for file in find_inputs([str(tmp_path)]).files] == [f"{tmp_path}/caf\\xe9.jsonl"]


@pytest.mark.parametrize("byte", [b"\xe9", b"\xff", b"\x80"])
def test_of_two_files_that_are_shown_alike_neither_is_lost(tmp_path: Path, byte: bytes) -> None:
    for name in (b"a" + byte, b"a\\x" + byte.hex().encode()):
        write(named(tmp_path, name), ".jsonl", "Words.")
    with pytest.raises(StorageError, match=r"two files .* rename one"):
        for file in find_inputs([str(tmp_path)]).files:
            storage.open_input(file.path).close()


@pytest.mark.parametrize(("sign", "other"), [("a*", "ab"), ("a[1]", "a1"), ("a?", "ab")])
def test_a_pattern_that_is_also_a_name_is_refused_if_it_matches_others(tmp_path: Path, sign: str, other: str) -> None:
    for name in (sign, other):
        write(str(tmp_path / name), ".jsonl", "Words.")
        (tmp_path / name).mkdir()
        write(str(tmp_path / name / "x"), ".jsonl", "Words.")
    for given in (f"{sign}.jsonl", sign, f"{sign}/*.jsonl"):
        with pytest.raises(InputError, match="rename it, or give the folder"):
            find_inputs([str(tmp_path / given)])
    with pytest.raises(StorageError, match="rename it, or give the folder"):
        storage.expand_patterns([str(tmp_path / f"{sign}.jsonl")])


@pytest.mark.parametrize("name", ["*", "?", "[ab]", "**"])
def test_a_folder_is_read_with_files_whose_names_are_patterns_of_others(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    for each in (name, "a", "b"):
        write(str(tmp_path / "in" / each), ".jsonl", each)
    assert sorted(row["text"] for row in build.read(tmp_path, tmp_path / "in")) == sorted([name, "a", "b"])


@pytest.mark.parametrize("name", ["n[1]", "a?", "s*t"])
def test_what_is_missing_below_a_folder_with_signs_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="matches no file"):
        find_inputs([str(tmp_path / name / "missing.jsonl")])


@pytest.mark.parametrize("name", ["n[1]", "a?", "s*t", "x::y"])
def test_a_pattern_below_a_folder_with_its_signs_finds_the_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "deep").mkdir(parents=True)
    write(str(tmp_path / name / "deep" / "b"), ".jsonl", "Words.")
    for pattern in ("deep/*.jsonl", "**/*.jsonl", "**", "de*"):
        assert [file.relative for file in find_inputs([f"{tmp_path}/{name}/{pattern}"]).files] in (
            ["deep/b.jsonl"],
            ["b.jsonl"],
        )


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(name, str)], ids=ascii)
def test_an_output_folder_of_any_name_is_written_there(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = f"./{name}"
    storage.write_json(f"{out}/work/a.json", {"a": 1})
    assert json.loads((tmp_path / name / "work" / "a.json").read_text()) == {"a": 1}
    with duck.connect("100MB", f"{out}/work") as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS n FROM range(100)")
        connection.execute("CHECKPOINT")
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_model_folder_of_any_name_is_found_or_refused_by_name(tmp_path: Path, name: str | bytes) -> None:
    folder = named(tmp_path, name)
    with pytest.raises(ModelError, match="no such folder"):
        locate(storage.shown(folder), None)
    Path(folder).mkdir()
    assert locate(storage.shown(folder), None)[0] == os.path.realpath(folder)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_target_of_any_name_is_read(tmp_path: Path, name: str | bytes) -> None:
    path = named(tmp_path, name) + ".jsonl"
    Path(path).write_text("".join(json.dumps({"text": f"Words of target {n}. " * 50}) + "\n" for n in range(20)))
    (found,) = storage.expand_patterns([storage.shown(path)])
    (target,) = read_targets([found])
    assert b"Words of target" in target.items[0].whole


@pytest.mark.parametrize("name", [*NAMES, "x" * 250, "a b", "a&b"], ids=ascii)
def test_prefect_takes_the_address_of_an_output_folder_of_any_name(tmp_path: Path, name: str | bytes) -> None:
    from prefect.assets import Asset

    from flows.artifacts import address

    keys = {Asset(key=address(named(tmp_path, name) + more)).key for more in ("", "/" + "y" * 250, "?", "#", " ")}
    assert len(keys) == 5


@pytest.mark.parametrize("arguments", [["-o", b"caf\xe9"], [b"--output=\xff"], [b"-o\xe6\x97"]])
def test_an_output_folder_that_is_not_utf8_is_refused_by_name(tmp_path: Path, arguments: list[str | bytes]) -> None:
    command = [sys.executable, "-m", "datamask", "curate", str(tmp_path), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, [*tmp_path.iterdir()]) == (2, [])
    assert "is not UTF-8; choose another --output" in done.stderr


def test_a_pattern_may_name_folders_by_a_pattern_too(tmp_path: Path) -> None:
    for place in ("a", "b", "[c]"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "x.jsonl").touch()
    under = str(tmp_path)
    every = [f"{under}/{place}/x.jsonl" for place in ("[c]", "a", "b")]
    assert storage.expand_patterns([f"{under}/*/x.jsonl"]) == storage.expand_patterns([f"{under}/*/*"]) == every
    assert storage.expand_patterns([f"{under}/[c]/*"]) == every[:1]


@pytest.mark.parametrize("given", [".", "", "..", "/", "nowhere/*/x"])
def test_what_is_no_pattern_stays_so_that_opening_it_names_it(given: str) -> None:
    assert storage.expand_patterns([given]) == [given]
