"""Compressed files are read to their very end, or the message says where reading stopped and why.

The rows expected are those that the tests wrote; xz, gzip, bzip2 and zstd of the system are not asked.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from datamask.errors import InputError
from tests.corpus import build

LINES = [(json.dumps({"id": f"{n}", "text": f"Document {n} speaks of {n * n}."}) + "\n").encode() for n in range(100)]
PARTS = [b"".join(LINES[first : first + 25]) for first in range(0, 100, 25)]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
SKIPPABLE = struct.pack("<II", 0x184D2A50, 7) + b"\x28\xb5\x2f\xfd..."


def ids(tmp_path: Path, name: str, data: bytes) -> list[str]:
    path = tmp_path / "in" / name
    path.parent.mkdir()
    path.write_bytes(data)
    return [row["id"] for row in build.read(tmp_path, path)]


def streams(kind: str) -> list[bytes]:
    return [PACK[kind](part) for part in PARTS]


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("padding", [0, 4, 512, 100_001])
def test_every_stream_of_a_file_is_read_and_zero_bytes_are_padding(tmp_path: Path, kind: str, padding: int) -> None:
    data = bytes(padding).join(streams(kind)) + bytes(padding)
    assert ids(tmp_path, f"x.jsonl.{kind}", data) == [f"{n}" for n in range(100)]


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("behind", [b"garbage", b"\0\0\0garbage", b"\n", b"\xff" * 70_000])
def test_what_stands_behind_the_last_stream_is_said_with_its_place(tmp_path: Path, kind: str, behind: bytes) -> None:
    whole = b"".join(streams(kind))
    place = len(whole) + len(behind) - len(behind.lstrip(b"\0"))
    with pytest.raises(InputError, match=rf"x.jsonl.{kind}: .*at byte {place:,}, behind 4 .*head -c {place} "):
        ids(tmp_path, f"x.jsonl.{kind}", whole + behind)


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("between", [b"garbage", b"\xff" * 70_000])
def test_no_message_tells_to_cut_off_what_has_rows(tmp_path: Path, kind: str, lost: int, between: bytes) -> None:
    packed = streams(kind)
    with pytest.raises(InputError, match="copy it again from its source$"):
        ids(tmp_path, f"x.jsonl.{kind}", b"".join(packed[:lost]) + between + b"".join(packed[lost:]))


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_damaged_stream_is_named_wherever_it_stands(tmp_path: Path, kind: str, number: int) -> None:
    found = streams(kind)
    place = sum(map(len, found[:number]))
    middle = len(found[number]) // 2
    found[number] = found[number][:middle] + bytes(16) + found[number][middle + 16 :]
    with pytest.raises(InputError, match=rf"damaged or truncated .*begins at byte {place:,}.*copy it again"):
        ids(tmp_path, f"x.jsonl.{kind}", b"".join(found))


@pytest.mark.parametrize("kind", PACK)
def test_a_lost_block_that_takes_the_head_of_a_stream_is_no_padding(tmp_path: Path, kind: str) -> None:
    first, *others = streams(kind)
    with pytest.raises(InputError, match="damaged or truncated .at byte"):
        ids(tmp_path, f"x.jsonl.{kind}", first + bytes(64) + b"".join(others)[64:])


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("lost", [1, 4, 9, 60])
def test_a_last_stream_that_is_cut_short_is_truncated(tmp_path: Path, kind: str, lost: int) -> None:
    with pytest.raises(InputError, match="damaged or truncated .it ends at byte"):
        ids(tmp_path, f"x.jsonl.{kind}", b"".join(streams(kind))[:-lost])


def test_a_wrong_checksum_of_zstandard_is_damage(tmp_path: Path) -> None:
    found = streams("zst")
    found[1] = found[1][:-1] + bytes([found[1][-1] ^ 1])
    with pytest.raises(InputError, match=r"second of the file: .*checksum"):
        ids(tmp_path, "x.jsonl.zst", b"".join(found))


@pytest.mark.parametrize("place", range(5))
def test_skippable_frames_of_zstandard_are_passed_over(tmp_path: Path, place: int) -> None:
    found = streams("zst")
    found.insert(place, SKIPPABLE)
    assert len(ids(tmp_path, "x.jsonl.zst", b"".join(found))) == 100


def test_a_skippable_frame_that_is_cut_short_is_truncated(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ends within the zstandard frame"):
        ids(tmp_path, "x.jsonl.zst", b"".join(streams("zst")) + SKIPPABLE[:-2])


@pytest.mark.parametrize("packed", [False, True])
def test_a_dictionary_that_stands_in_the_file_is_used(tmp_path: Path, packed: bool) -> None:
    """As ArchiveTeam's .warc.zst have it, itself compressed or not."""
    dictionary = zstandard.train_dictionary(2048, LINES * 20)
    held = dictionary.as_bytes()
    held = zstandard.compress(held) if packed else held
    packer = zstandard.ZstdCompressor(dict_data=dictionary)
    data = struct.pack("<II", 0x184D2A5D, len(held)) + held + b"".join(map(packer.compress, LINES))
    assert len(ids(tmp_path, "x.jsonl.zst", data)) == 100


def test_a_dictionary_that_is_damaged_is_the_cause_that_is_said(tmp_path: Path) -> None:
    held = b"\x37\xa4\x30\xecjunk"
    frame = (0x184D2A5D).to_bytes(4, "little") + len(held).to_bytes(4, "little") + held
    with pytest.raises(InputError, match="the zstandard dictionary in its first frame"):
        ids(tmp_path, "x.jsonl.zst", frame + zstandard.compress(WHOLE))


def test_a_dictionary_that_is_elsewhere_is_the_cause_that_is_said(tmp_path: Path) -> None:
    packer = zstandard.ZstdCompressor(dict_data=zstandard.train_dictionary(2048, LINES * 20))
    with pytest.raises(InputError, match=r"compressed with a zstandard dictionary.*zstd -d -D") as told:
        ids(tmp_path, "x.jsonl.zst", packer.compress(b"".join(LINES)))
    assert "again from its source" not in str(told.value)


def test_windows_beyond_the_decoders_default_are_read(tmp_path: Path) -> None:
    """`zstd --long=31`, as Reddit's dumps are written. The frame's head asks for the window; the data need not."""
    settings = zstandard.ZstdCompressionParameters(window_log=28)
    packer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    data = b"".join(packer.compress(line) for line in LINES) + packer.flush()
    assert zstandard.get_frame_parameters(data[:18]).window_size == 1 << 28
    assert len(ids(tmp_path, "x.jsonl.zst", data)) == 100


@pytest.mark.parametrize("kind", PACK)
def test_a_name_that_promises_compression_where_there_is_none(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InputError, match=f"not compressed; rename it without .{kind}"):
        ids(tmp_path, f"x.jsonl.{kind}", b"".join(LINES))


@pytest.mark.parametrize(("kind", "other"), [("gz", "zst"), ("zst", "gz"), ("xz", "bz2"), ("bz2", "xz")])
def test_a_name_that_promises_another_compression(tmp_path: Path, kind: str, other: str) -> None:
    with pytest.raises(InputError, match=f"rename it to .{other}"):
        ids(tmp_path, f"x.jsonl.{kind}", PACK[other](PARTS[0]))


@pytest.mark.parametrize("kind", PACK)
def test_what_is_packed_twice_or_in_a_tar_says_so(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InputError, match=f"inside {kind}; unpack it once"):
        ids(tmp_path, f"x.jsonl.{kind}", PACK[kind](PACK["gz"](PARTS[0])))
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.jsonl"), io.BytesIO())
    (tmp_path / "tar").mkdir()
    with pytest.raises(InputError, match="a tar archive inside .*tar -xf"):
        ids(tmp_path / "tar", f"x.jsonl.{kind}", PACK[kind](sink.getvalue()))


# ---------------------------------------------------------------- zip


def zipped(*members: tuple[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", how) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return sink.getvalue()


WHOLE = b"".join(LINES)


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_one_member_however_packed(tmp_path: Path, how: int) -> None:
    members = [("a.jsonl", WHOLE), ("__MACOSX/._a.jsonl", b"\0\5\x16\7")]
    assert len(ids(tmp_path, "x.jsonl.zip", zipped(*members, how=how))) == 100


def test_an_encrypted_archive_says_so(tmp_path: Path) -> None:
    data = bytearray(zipped(("a.jsonl", WHOLE)))
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    with pytest.raises(InputError, match="an encrypted archive"):
        ids(tmp_path, "x.jsonl.zip", bytes(data))


def test_a_method_that_python_lacks_says_so(tmp_path: Path) -> None:
    data = bytearray(zipped(("a.jsonl", WHOLE)))
    data[8] = data[data.index(b"PK\1\2") + 10] = 9  # deflate64
    with pytest.raises(InputError, match="packed in a way that cannot be undone here"):
        ids(tmp_path, "x.jsonl.zip", bytes(data))


@pytest.mark.parametrize("second", [WHOLE, b"other"])
def test_two_archives_in_one_file_are_not_the_last_alone(tmp_path: Path, second: bytes) -> None:
    data = zipped(("a.jsonl", WHOLE)) + zipped(("b.jsonl", second))
    with pytest.raises(InputError, match="holds more than its archive's directory lists"):
        ids(tmp_path, "x.jsonl.zip", data)


def test_an_archive_with_a_torn_one_behind_it_is_not_the_first_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds more than its archive's directory lists"):
        ids(tmp_path, "x.jsonl.zip", zipped(("a.jsonl", WHOLE)) + zipped(("b.jsonl", WHOLE))[:-30])


def test_a_member_with_a_wrong_checksum_is_damage(tmp_path: Path) -> None:
    data = bytearray(zipped(("a.jsonl", WHOLE), how=zipfile.ZIP_STORED))
    data[data.index(b"speaks")] ^= 1
    with pytest.raises(InputError, match="damaged or truncated .*CRC"):
        ids(tmp_path, "x.jsonl.zip", bytes(data))


# ---------------------------------------------------------------- pointers

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a" * 16 + b"\nsize 1234567\n"
ANNEX = b"/annex/objects/SHA256E-s1234567--4d7a.jsonl\n"
ENDS = "jsonl jsonl.gz jsonl.zst csv csv.zip tsv txt txt.xz parquet arrow feather json warc warc.gz wet.bz2".split()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("pointer", "what", "remedy"),
    [
        (LFS, "a Git LFS pointer, not the file of 1,234,567 bytes", "git lfs pull"),
        (LFS.replace(b"\n", b"\r\n"), "a Git LFS pointer", "git lfs pull"),
        (b"\xef\xbb\xbf" + LFS, "a Git LFS pointer", "git lfs pull"),
        (LFS.replace(b"git-lfs.github", b"hawser.github"), "a Git LFS pointer", "git lfs pull"),
        (ANNEX, "a git-annex pointer", "git annex get"),
        (b"../.git" + ANNEX.strip(), "a git-annex pointer", "git annex get"),
        (b"# xet version 0\nfilesize = 5\n", "a Git Xet pointer", "git lfs pull"),
    ],
    ids=["lfs", "crlf", "bom", "hawser", "annex", "annex-link", "xet"],
)
def test_a_pointer_is_told_by_its_first_line(tmp_path: Path, end: str, pointer: bytes, what: str, remedy: str) -> None:
    (tmp_path / f"b.{end}").write_bytes(pointer)
    (tmp_path / "a.jsonl").write_bytes(WHOLE)
    planned, _, _ = build.plan(tmp_path / "out", tmp_path)
    [failed] = planned.failures
    assert failed.path.endswith(f"b.{end}") and what in failed.error and remedy in failed.error
    assert "again from its source" not in failed.error


def test_a_link_of_git_annex_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").symlink_to(".git/annex/objects/xx/yy/SHA256E-s1--4d7a/SHA256E-s1--4d7a.jsonl")
    (tmp_path / "a.jsonl").write_bytes(WHOLE)
    planned, _, _ = build.plan(tmp_path / "out", tmp_path)
    [failed] = planned.failures
    assert "git annex get" in failed.error


# ---------------------------------------------------------------- JSON that is not one object a line

OBJECTS = [{"id": f"{n}", "text": f"A text, number {n}."} for n in range(30)]


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(OBJECTS[0], indent=2),
        "\n".join(json.dumps(item, indent=2) for item in OBJECTS),
        "".join(json.dumps(item, indent=1) for item in OBJECTS),
        "\ufeff" + json.dumps(OBJECTS[0], indent=4).replace("\n", "\r\n"),
        '{"id": "1",\n "text": "a"}\n',
        "\n\n{\n" + '"text": broken',
    ],
)
def test_objects_over_several_lines_are_told_with_the_remedy(tmp_path: Path, data: str) -> None:
    with pytest.raises(InputError, match=r"objects over several lines .*jq -c \."):
        ids(tmp_path, "x.json", data.encode())


def test_joined_objects_are_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"several JSON objects on one line .*jq -c \."):
        ids(tmp_path, "x.jsonl", "".join(map(json.dumps, OBJECTS)).encode())


def test_an_object_that_wraps_the_documents_is_told_with_the_remedy(tmp_path: Path) -> None:
    for indent in (None, 2):
        folder = tmp_path / f"{indent}"
        folder.mkdir()
        with pytest.raises(InputError, match=r"'data' holds 30 objects.*jq -c '\.\[\"data\"\]\[\]'"):
            ids(folder, "x.json", json.dumps({"version": "1", "data": OBJECTS}, indent=indent).encode())


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"no json\nnor this\n", "2 broken_json .*row 0 begins 'no json'"),
        (b'"a"\n"b"\n"c"\n', "3 not_an_object"),
        (b'\n\x1e{"text": "a"}\n\x1e{"text": "b"}\n', "row 1 begins"),
    ],
)
def test_a_file_without_a_sound_row_fails_by_name(tmp_path: Path, data: bytes, told: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(WHOLE)
    (tmp_path / "b.jsonl").write_bytes(data)
    planned, _, _ = build.plan(tmp_path / "out", tmp_path)
    [failed] = planned.failures
    assert re.search(f"none of its .*{told}", failed.error)


def test_lines_that_a_carriage_return_ends(tmp_path: Path) -> None:
    assert len(ids(tmp_path, "x.jsonl", WHOLE.replace(b"\n", b"\r"))) == 100
