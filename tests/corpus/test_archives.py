"""Web archives whose headers lie: no record costs another, and a page is read as it is stored."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from datamask.corpus.archives import Record, TornArchiveError, read_records
from datamask.corpus.web import parse_answer
from tests.corpus import build
from tests.corpus.releases import load, make_release
from tests.corpus.test_web import PARAGRAPH, answer, page, record

pytest.importorskip("trafilatura")

BODY = page("Größe, naïve, 北京. " + PARAGRAPH)


def response(number: int, http: bytes, body: bytes = BODY, charset: bytes = b"") -> bytes:
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html" + charset + b"\r\n" + http + b"\r\n" + body
    return record("response", number, block, "application/http; msgtype=response")


def read(data: bytes, limit: int = 1 << 28, step: int = 1 << 22) -> list[Record]:
    class Slow(io.BytesIO):
        def read(self, size: int = -1) -> bytes:  # type: ignore[override]
            return super().read(min(size, step))

    @contextlib.contextmanager
    def opened() -> Iterator[io.BytesIO]:
        yield Slow(data)

    return list(read_records(opened, limit, lambda headers: True))


def chunked(body: bytes, size: int = 100) -> bytes:
    cut = [body[place : place + size] for place in range(0, len(body), size)]
    return b"".join(b"%x;x=y\r\n%b\r\n" % (len(one), one) for one in cut) + b"0\r\n\r\n"


def brotli(body: bytes) -> bytes:
    return pytest.importorskip("brotli").compress(body)


ANSWERS = {
    "gzip claimed": response(1, b"Content-Encoding: gzip\r\n"),
    "x-gzip claimed": response(1, b"content-encoding: X-GZip\r\n"),
    "deflate claimed": response(1, b"Content-Encoding: deflate\r\n"),
    "brotli claimed": response(1, b"Content-Encoding: br\r\n"),
    "zstd claimed": response(1, b"Content-Encoding: zstd\r\n"),
    "nonsense claimed": response(1, b"Content-Encoding: utf-8, none\r\n"),
    "chunks claimed": response(1, b"Transfer-Encoding: chunked\r\n"),
    "chunks and gzip claimed": response(1, b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n"),
    "length too small": response(1, b"Content-Length: 3\r\n"),
    "length too large": response(1, b"Content-Length: 999999\r\n"),
    "length nonsense": response(1, b"Content-Length: many\r\n"),
    "charset nonsense": response(1, b"", charset=b"; charset=none"),
    "charset idna": response(1, b"", charset=b"; charset=idna"),
    "charset hex": response(1, b"", charset=b"; charset=hex"),
    "charset utf-16": response(1, b"", charset=b"; charset=utf-16"),
    "charset latin-1": response(1, b"", charset=b'; charset="iso-8859-1"'),
    "no status line": record("response", 1, BODY, "application/http; msgtype=response"),
    "ends of lines as of Unix": record(
        "response", 1, b"HTTP/1.1 200\nContent-Type: text/html\n\n" + BODY, "application/http"
    ),
    "bytes in headers": response(1, b"X-\xff: \xfe\r\n"),
    "gzip": response(1, b"Content-Encoding: gzip\r\n", gzip.compress(BODY)),
    "gzip cut": response(1, b"Content-Encoding: gzip\r\n", gzip.compress(BODY)[:-6]),
    "deflate": response(1, b"Content-Encoding: deflate\r\n", zlib.compress(BODY)),
    "deflate raw": response(1, b"Content-Encoding: deflate\r\n", zlib.compress(BODY, wbits=-15)),
    "zstd": response(1, b"Content-Encoding: zstd\r\n", zstandard.compress(BODY)),
    "chunks": response(1, b"Transfer-Encoding: chunked\r\n", chunked(BODY)),
    "chunks cut": response(1, b"Transfer-Encoding: chunked\r\n", chunked(BODY)[:-5]),
    "chunks of gzip": response(
        1, b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n", chunked(gzip.compress(BODY))
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_page_whose_headers_lie_is_read_as_stored(tmp_path: Path, name: str) -> None:
    """As warcio reads it, wherever warcio decodes; the record behind it is there too."""
    data = ANSWERS[name]
    (tmp_path / "x.warc").write_bytes(data + answer(2, page(PARAGRAPH)))
    rows = build.read(tmp_path, tmp_path / "x.warc", columns=["text", "_reason"])
    assert [row["_reason"] for row in rows] == [None, None]
    assert "Größe, naïve, 北京." in rows[0]["text"] and "old town" in rows[1]["text"]


def test_brotli_is_read() -> None:
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: br\r\n\r\n" + brotli(BODY)
    assert parse_answer(block, 1 << 20).body == BODY


def test_bodies_are_what_warcio_makes_of_them() -> None:
    pytest.importorskip("warcio")
    from warcio.archiveiterator import ArchiveIterator

    for name, data in ANSWERS.items():
        if name.startswith(("charset", "no status", "brotli", "zstd", "bytes")):
            continue  # warcio decodes no text and no zstd, and refuses what has no status
        [theirs] = [one.content_stream().read() for one in ArchiveIterator(io.BytesIO(data), no_record_parse=False)]
        ours = parse_answer(read(data)[0].block or b"", 1 << 28).body
        assert ours == (theirs or BODY), name


def test_what_a_decoded_body_may_hold_is_bounded() -> None:
    block = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"\0" * 50_000_000)
    assert len(parse_answer(block, 1_000_000).body) <= 1_000_000


# ---------------------------------------------------------------- false records


def false_length(data: bytes, by: int) -> bytes:
    head, block = data.split(b"\r\n\r\n", 1)
    lines = head.split(b"\r\n")
    lines = [b"Content-Length: %d" % (int(line[16:]) + by) if line.startswith(b"Content-Length") else line
             for line in lines]  # fmt: skip
    return b"\r\n".join(lines) + b"\r\n\r\n" + block


FALSE = {
    "length too large": false_length(answer(5, page(PARAGRAPH)), 300),
    "length far too large": false_length(answer(5, page(PARAGRAPH)), 10**15),
    "length too small": false_length(answer(5, page(PARAGRAPH)), -200),
    "length nonsense": answer(5, page(PARAGRAPH)).replace(b"Content-Length: ", b"Content-Length: x", 1),
    "length negative": answer(5, page(PARAGRAPH)).replace(b"Content-Length: ", b"Content-Length: -", 1),
    "no length": answer(5, page(PARAGRAPH)).replace(b"Content-Length: ", b"Content-Longth: ", 1),
    "no type": answer(5, page(PARAGRAPH)).replace(b"WARC-Type: ", b"WARC-Typo: ", 1),
    "cut": answer(5, page(PARAGRAPH))[:-200],
    "cut in its header": answer(5, page(PARAGRAPH))[:60],
    "zeros": b"\0" * 5000,
    "text": b"<html>a page and no record</html>\r\n\r\n",
}


@pytest.mark.parametrize("name", FALSE)
@pytest.mark.parametrize("step", [37, 4096, 1 << 22])
@pytest.mark.parametrize("limit", [500, 1 << 28])
def test_a_false_record_costs_no_other_and_is_told_by_its_place(name: str, step: int, limit: int) -> None:
    """However the bytes arrive, and where the block is larger than is read."""
    before = [answer(number, page(PARAGRAPH)) for number in range(3)]
    after = [answer(number, page(PARAGRAPH)) for number in range(6, 9)]
    found = read(b"".join([*before, FALSE[name], *after]), limit, step)
    sound = [one.headers["warc-record-id"][-13:-1] for one in found if not one.problem]
    assert sound == [f"{number:012d}" for number in (0, 1, 2, 6, 7, 8)]
    wrong = [one.offset for one in found if one.problem]
    assert wrong[0] == sum(map(len, before)) and len(wrong) == 1


@pytest.mark.parametrize("between", [b"", b"\r\n", b"\n\n", b"\r\n\r\n\r\n\r\n"])
def test_records_are_parted_by_any_ends_of_lines(between: bytes) -> None:
    records = [answer(number, page(PARAGRAPH)).removesuffix(b"\r\n\r\n") for number in range(4)]
    assert [bool(one.problem) for one in read(between.join(records))] == [False] * 4


def test_an_archive_that_ends_within_a_record_is_torn() -> None:
    data = answer(1, page(PARAGRAPH)) + answer(2, page(PARAGRAPH))
    for cut in (30, 100, 400, len(answer(2, page(PARAGRAPH))) - 20):
        with pytest.raises(TornArchiveError):
            read(data[:-cut])
    assert not any(one.problem for one in read(data[:-4]))
    false = read(answer(1, b"x") + false_length(answer(2, b"y"), 70))  # whole, by its last bytes
    assert [bool(one.problem) for one in false] == [False, True]


def test_empty_blocks_and_large_ones_are_rows(tmp_path: Path) -> None:
    data = record("response", 1, b"", "application/http") + record("response", 2, b"", "text/html")
    (tmp_path / "x.warc").write_bytes(data + answer(3, b""))
    rows = build.read(tmp_path, tmp_path / "x.warc", columns=["_reason"])
    assert [row["_reason"] for row in rows] == ["not_html", "no_content", "no_content"]
    assert [one.block for one in read(answer(1, page(PARAGRAPH)) * 3, limit=10)] == [None] * 3


def test_a_release_of_an_archive_with_false_records(tmp_path: Path) -> None:
    data = [*ANSWERS.values(), answer(2, page(PARAGRAPH)), *FALSE.values()]
    sound = [answer(100 + number, page(f"Page {number}. {PARAGRAPH}")) for number in range(30)]
    (tmp_path / "in").mkdir()
    with gzip.open(tmp_path / "in" / "x.warc.gz", "wb") as file:
        file.write(b"".join(one for pair in zip(data, sound, strict=False) for one in pair) + b"".join(sound))
    release, _ = make_release(tmp_path, str(tmp_path / "in"))
    total = release.manifest()["conservation"]["total"]
    assert total["rows"] == total["selected"] + sum(total["quarantined"].values()) and total["quarantined"]
    assert len(load(release, tmp_path / "cache")) == total["selected"] >= 60
