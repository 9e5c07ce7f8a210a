"""Files as they are exported in the world: separators, encodings, no header, compressed, Arrow, folders of text."""

import bz2
import csv
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from datamask.config import Config, Corpus
from datamask.corpus.convert import convert_shard
from datamask.corpus.read import read_batches
from datamask.corpus.shards import plan_shards
from datamask.corpus.sniff import _where_they_differ, sniff_reading
from datamask.errors import ConfigError, InputError
from tests.corpus import build

WORDS = "Größe café naïve Straße Übermut Señor garçon élève hôtel, and so on; or not | at all".split(" ")


GERMAN = "Die Straße führt über die Brücke zum größten Gebäude der Stadt wo früher der König wohnte"


def rows(count=40):
    texts = [" ".join(WORDS[(n + i) % len(WORDS)] for i in range(12)) for n in range(count)]
    return [(str(n), f'{text}. "Quoted" {n}') for n, text in enumerate(texts)]


def as_csv(separator=",", header=("id", "text"), quoting=csv.QUOTE_MINIMAL, count=40):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, quoting=quoting)
    if header:
        writer.writerow(header)
    writer.writerows(rows(count))
    return out.getvalue()


def texts(tmp_path, path, **settings):
    found = build.read(tmp_path, path, columns=["id", "text"], **settings)
    return [(row["id"], row["text"]) for row in found]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_separators_are_found_and_recorded(tmp_path, separator, name):
    path = tmp_path / name
    path.write_text(as_csv(separator))
    assert texts(tmp_path, path) == rows()
    reading = sniff_reading(str(path), name[2:], Corpus())
    own = {"x.csv": ",", "x.tsv": "\t"}[name]
    assert (reading is None) if separator == own else (reading.separator == separator)
    planned, _, _ = build.plan(tmp_path, path)
    assert planned.shards[0].parts[0].reading == reading


def test_what_is_shown_of_encodings_tells_them_apart(tmp_path):
    words = ["café", "Größe", "naïve", "señor", "“quoted”"]
    sample = "\n".join(f"{word} of line {number}" for number, word in enumerate(words)).encode("cp1252")
    line, place = _where_they_differ(sample, ["cp1252", "cp1250"])  # é and ß and ö are the same in both
    assert line.decode("cp1252")[place] in "ïñ"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_encodings_are_found_and_guesses_are_said(tmp_path, encoding, kind):
    path = tmp_path / f"x.{kind}"
    lines = "".join(json.dumps({"id": i, "text": t}, ensure_ascii=False) + "\n" for i, t in rows())
    path.write_bytes((as_csv() if kind == "csv" else lines).encode(encoding))
    if encoding == "cp1252":  # the words are of many languages: no other is less likely
        with pytest.raises(InputError, match=r"several other.*cp1252 '.*Größe café naïve.*corpus.encoding=cp1252"):
            texts(tmp_path, path)
        assert texts(tmp_path, path, encoding="cp1252") == rows()
        return
    assert texts(tmp_path, path) == rows()
    reading = sniff_reading(str(path), kind, Corpus())
    if encoding.startswith("utf-8"):
        assert reading is None
    else:
        assert reading.guessed == (encoding in ("utf-16-le", "utf-16-be"))
        assert texts(tmp_path, path, encoding=encoding) == rows()


def test_a_mark_before_a_quoted_header_is_no_part_of_the_name(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(as_csv(header=("text", "id"), quoting=csv.QUOTE_ALL).encode("utf-8-sig"))
    assert {row["text"] for row in build.read(tmp_path, path)} == {number for number, _ in rows()}


def test_a_few_broken_bytes_are_damage_and_no_other_encoding(tmp_path):
    path = tmp_path / "x.csv"
    data = as_csv(count=400).encode() + b"900,broken \xff here\n901,torn \xc3\n"
    path.write_bytes(data)
    assert sniff_reading(str(path), "csv", Corpus()) is None
    found = build.read(tmp_path, path, columns=["_reason"])
    assert [row["_reason"] for row in found].count("undecodable_text") == 2 and len(found) == 402


def test_the_encoding_given_is_that_of_files_that_do_not_tell_theirs(tmp_path):
    for name, encoding in {"old": "cp1252", "new": "utf-8", "excel": "utf-16", "marked": "utf-8-sig"}.items():
        build.write(tmp_path / "in" / f"{name}.csv", [])
        (tmp_path / "in" / f"{name}.csv").write_bytes(as_csv().encode(encoding))
    assert set(texts(tmp_path, tmp_path / "in", encoding="cp1252")) == set(rows())
    (tmp_path / "one.txt").write_bytes("Größe".encode("cp1252"))  # too few to guess from, yet no UTF-8
    (tmp_path / "two.txt").write_bytes("日本語".encode("iso2022_jp"))  # ASCII, as its bytes go
    assert sniff_reading(str(tmp_path / "one.txt"), "txt", Corpus(encoding="cp1252")).encoding == "cp1252"
    assert sniff_reading(str(tmp_path / "two.txt"), "txt", Corpus(encoding="iso2022_jp")).encoding == "iso2022_jp"
    assert sniff_reading(str(tmp_path / "two.txt"), "txt", Corpus(encoding="cp1252")) is None


def test_an_encoding_that_is_not_the_files_is_one_message(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(as_csv().encode("cp1252"))
    with pytest.raises(InputError, match=r"x\.csv: not utf-16.*corpus.encoding"):
        texts(tmp_path, path, encoding="utf-16-le")
    path.write_bytes(as_csv().encode("cp1252") + b"9,\x81\n")
    with pytest.raises(InputError, match=r"x\.csv: not cp1252, in which it was to be read"):
        texts(tmp_path, path, encoding="cp1252")
    with pytest.raises(ConfigError, match="corpus.encoding = 'klingon': no such encoding; e.g. utf-8"):
        texts(tmp_path, path, encoding="klingon")


def test_without_a_header_the_columns_are_numbered(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(as_csv(header=None))
    with pytest.raises(InputError) as error:
        texts(tmp_path, path)
    message = str(error.value)
    assert "its first line is no header: column1 '0'; column2 'Größe" in message
    assert "--set corpus.header=false --set corpus.columns.text=column2" in message and len(message) < 600
    settings = {"header": False, "columns": {"text": "column2", "id": "column1"}}
    planned, config, work = build.plan(tmp_path, path, **settings)
    shard = convert_shard(planned.shards[0], config, work)
    found = [row for batch in read_batches(shard, config, ["id", "text"]) for row in batch.to_pylist()]
    assert [(row["id"], row["text"]) for row in found] == rows()


def test_a_blank_line_before_rows_without_a_header_is_passed_over(tmp_path):
    (tmp_path / "x.csv").write_text("\n1,a first text\n2,another one\n")
    with pytest.raises(InputError, match=r"its first line is no header.*corpus.columns.text=column2"):
        build.read(tmp_path, tmp_path / "x.csv")


def test_a_wrong_text_column_names_the_others_and_no_document(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,story\n1," + "word " * 500 + "\n")
    with pytest.raises(InputError, match=r"no text column; columns there are: id, story\."):
        build.plan(tmp_path, path)
    path.write_text("number," + "x" * 500 + "\n1,2\n")
    with pytest.raises(InputError) as error:
        build.plan(tmp_path, path, header=True)
    assert "x" * 100 not in str(error.value)


PACK = {
    "gz": lambda data, name: gzip.compress(data),
    "bz2": lambda data, name: bz2.compress(data),
    "xz": lambda data, name: lzma.compress(data),
}


@pytest.mark.parametrize("end", "csv.gz csv.bz2 csv.xz csv.zip tsv.gz jsonl.bz2 json.xz jsonl.zip".split())
def test_compressed_files(tmp_path, end):
    kind, packing = end.split(".")
    data = as_csv("\t" if kind == "tsv" else ",").encode()
    if "json" in kind:
        data = "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in rows()).encode()
    path = tmp_path / f"x.{end}"
    if packing == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x", data)
    else:
        path.write_bytes(PACK[packing](data, "x"))
    assert texts(tmp_path, path) == rows()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="damaged or truncated"):
        texts(tmp_path / "torn", path)


def test_an_archive_of_several_files_says_what_to_do(tmp_path):
    path = tmp_path / "x.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../a.csv", as_csv())
        archive.writestr("b.csv", as_csv())
    with pytest.raises(InputError, match="an archive of 2 files, not of one; unpack it"):
        texts(tmp_path, path)


@pytest.mark.parametrize("name", ["x.arrow", "x.feather"])
@pytest.mark.parametrize("stream", [False, True])
def test_arrow_files(tmp_path, name, stream):
    table = pa.table({"id": [i for i, _ in rows()], "text": [t for _, t in rows()], "n": range(40)})
    path = tmp_path / name
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    assert texts(tmp_path, path) == rows()
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="x"):
        texts(tmp_path / "torn", path)


def test_a_saved_data_set_is_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"id": [i for i, _ in rows()], "text": [t for _, t in rows()]})
    data.save_to_disk(str(tmp_path / "saved"))
    assert texts(tmp_path, tmp_path / "saved") == rows()
    datasets.DatasetDict({"train": data, "test": data.select(range(3))}).save_to_disk(str(tmp_path / "both"))
    assert len(texts(tmp_path, tmp_path / "both")) == 43


def test_a_folder_of_text_files(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number, text in rows(5):
        (folder / f"{number}.txt").write_text(text)
    (folder / "blank.txt").write_text(" \n")
    (folder / "old.txt").write_bytes("\n".join([GERMAN] * 9).encode("cp1252"))
    found = {row["id"]: row["text"] for row in build.read(tmp_path, folder, columns=["id", "text"])}
    assert {f"{number}.txt": text for number, text in rows(5)}.items() <= found.items()
    assert found["old.txt"] == "\n".join([GERMAN] * 9)


def test_another_reading_is_another_shard(tmp_path):
    path = Path(tmp_path / "x.csv")
    path.write_bytes(as_csv(";").encode("cp1252"))
    prints = {
        build.plan(tmp_path, path, **settings)[0].shards[0].fingerprint
        for settings in ({"encoding": "cp1250"}, {"encoding": "latin-1"}, {"encoding": "cp1252", "separator": ";"})
    }
    assert len(prints) == 3


@pytest.mark.parametrize(
    "encoding, text",
    [
        ("cp1250", "Żółw i świerszcz spotkali się w lesie żeby wspólnie śpiewać piękne pieśni o jesieni i łąkach"),
        ("cp1251", "Съешь же ещё этих мягких французских булок да выпей чаю сказал старик своему другу вечером"),
        ("cp1252", GERMAN),
        ("gb18030", "学而时习之，不亦说乎？有朋自远方来，不亦乐乎？人不知而不愠，不亦君子乎？今天天气很好我们去公园"),
    ],
)
def test_other_legacy_encodings_are_guessed_where_a_language_speaks_for_them(tmp_path, encoding, text):
    path = tmp_path / "x.csv"
    path.write_bytes("".join(["id,text\n", *(f"{n},{text} {n}\n" for n in range(30))]).encode(encoding))
    assert sniff_reading(str(path), "csv", Corpus()).guessed
    assert texts(tmp_path, path) == [(str(n), f"{text} {n}") for n in range(30)]


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_an_arrow_file_whose_values_lie_outside_it_is_damaged(tmp_path, kind):
    """pyarrow reads where values begin unchecked; such a file ended in a SystemError."""
    if kind == "dictionary":
        wild = pa.Array.from_buffers(pa.int32(), 3, [None, pa.array([0, 9, 1], pa.int32()).buffers()[1]])
        text = pa.DictionaryArray.from_arrays(wild, pa.array(["a", "b"]), safe=False)
    else:
        type_ = pa.int64() if kind == "large_string" else pa.int32()
        offsets = pa.array([0, 5, -36, 9], type_).buffers()[1]
        text = pa.Array.from_buffers(getattr(pa, kind)(), 3, [None, offsets, pa.py_buffer(b"some text")])
    with pa.ipc.new_file(tmp_path / "x.arrow", pa.schema([("text", text.type)])) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([text], ["text"]))
    config = Config(corpus=Corpus(input=[str(tmp_path / "x.arrow")]))
    plan = plan_shards(config.corpus, str(tmp_path / "work"))
    with pytest.raises(InputError, match="x.arrow"):
        [convert_shard(shard, config, str(tmp_path / "work")) for shard in plan.shards]
