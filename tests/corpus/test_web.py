"""WARC and WET archives: what is a document in them, and what becomes of all else."""

import gzip
import io

import pytest

from datamask.errors import InputError
from tests.corpus import build

pytest.importorskip("fastwarc")
pytest.importorskip("trafilatura")

PARAGRAPH = (
    "The harbour of the old town was built in the twelfth century, when the river still reached the walls. "
    "Merchants from the north brought salt and timber, and left with cloth and grain. "
)


def page(words: str) -> bytes:
    return (
        f"<html><head><title>t</title></head><body><nav><a href='/'>Home</a> <a href='/x'>Menu</a></nav>"
        f"<article><h1>History</h1><p>{words}</p><p>{PARAGRAPH}</p></article><footer>© 2024</footer></body></html>"
    ).encode()


def record(kind: str, number: int, body: bytes, content_type: str, **headers: str) -> bytes:
    named = {
        "WARC-Type": kind,
        "WARC-Record-ID": f"<urn:uuid:00000000-0000-0000-0000-{number:012d}>",
        "WARC-Date": "2024-02-20T21:07:49Z",
        "WARC-Target-URI": f"https://example.org/{number}",
        "Content-Type": content_type,
        "Content-Length": str(len(body)),
        **headers,
    }
    return ("WARC/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in named.items()) + "\r\n").encode() + body + b"\r\n\r\n"


def answer(number: int, body: bytes, status: str = "200 OK", kind: str = "text/html; charset=utf-8") -> bytes:
    http = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    return record("response", number, http, "application/http; msgtype=response")


def archive() -> list[bytes]:
    packed = gzip.compress(page(PARAGRAPH * 2), mtime=0)
    zipped = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Length: "
        + str(len(packed)).encode() + b"\r\n\r\n" + packed
    )  # fmt: skip
    return [
        record("warcinfo", 0, b"isPartOf: CC-MAIN-2024-10\r\n", "application/warc-fields"),
        record("request", 1, b"GET / HTTP/1.1\r\n\r\n", "application/http; msgtype=request"),
        answer(1, page(PARAGRAPH)),
        answer(2, b"", "301 Moved Permanently"),
        answer(3, b"\x89PNG", kind="image/png"),
        answer(4, b"<html><body></body></html>"),
        answer(5, page("Größe und Straße. " + PARAGRAPH).decode().encode("cp1252"), kind="text/html; charset=cp1252"),
        record("response", 6, zipped, "application/http; msgtype=response"),
        record("metadata", 7, b"x: y\r\n", "application/warc-fields"),
        answer(8, PARAGRAPH.encode(), kind="text/plain"),
    ]


@pytest.mark.parametrize("ending", ["warc", "warc.gz", "warc.xz", "warc.zst"])
def test_pages_of_a_warc(tmp_path, ending):
    records = archive()
    if ending == "warc.gz":  # a member per record, as crawlers write
        data = b"".join(gzip.compress(one, mtime=0) for one in records)
    else:
        data = b"".join(records)
        if ending == "warc.xz":
            import lzma

            data = lzma.compress(data)
        if ending == "warc.zst":
            import zstandard

            data = zstandard.compress(data)
    path = tmp_path / f"crawl.{ending}"
    path.write_bytes(data)
    rows = build.read(tmp_path, path, columns=["text", "id", "dump", "url", "date", "file_path", "_reason"])
    assert [row["_reason"] for row in rows] == [None, "http_status", "not_html", "no_content", None, None, None]
    first = rows[0]
    assert "old town was built" in first["text"] and "Menu" not in first["text"] and "<p>" not in first["text"]
    assert first["id"] == "<urn:uuid:00000000-0000-0000-0000-000000000001>"  # as in FineWeb
    assert (first["dump"], first["url"], first["date"], first["file_path"]) == (
        "CC-MAIN-2024-10", "https://example.org/1", "2024-02-20T21:07:49Z", f"crawl.{ending}",
    )  # fmt: skip
    assert "Größe und Straße" in rows[4]["text"]
    assert "Merchants" in rows[5]["text"]
    assert rows[6]["text"] == PARAGRAPH


def test_texts_of_a_wet(tmp_path):
    body = "Erste Zeile\nzweite Zeile: Größe".encode()
    extra = {"WARC-Identified-Content-Language": "deu,eng"}
    data = b"".join(
        gzip.compress(one, mtime=0)
        for one in (
            record("warcinfo", 0, b"isPartOf: CC-MAIN-2019-04\r\n", "application/warc-fields"),
            record("conversion", 1, body, "text/plain", **extra),
            record("conversion", 2, b"broken \xff\xfe text", "text/plain"),
        )
    )
    path = tmp_path / "x.warc.wet.gz"
    path.write_bytes(data)
    rows = build.read(tmp_path, path, columns=["text", "dump", "url", "content_language", "_reason"])
    assert rows[0]["text"] == body.decode() and rows[0]["content_language"] == "deu,eng"
    assert rows[0]["dump"] == "CC-MAIN-2019-04" and rows[0]["url"] == "https://example.org/1"
    assert rows[1]["text"] is None and rows[1]["_reason"] == "undecodable_text"


def test_a_torn_archive_is_refused(tmp_path):
    data = b"".join(archive())
    path = tmp_path / "x.warc"
    path.write_bytes(data[: data.index(b"History") + 20])
    with pytest.raises(InputError, match=r"x\.warc: (ends within|damaged)"):
        build.read(tmp_path, path, columns=["text"])
    packed = tmp_path / "y.warc.gz"
    packed.write_bytes(b"".join(gzip.compress(one, mtime=0) for one in archive())[:-40])
    with pytest.raises(InputError, match=r"y\.warc\.gz: (ends within|damaged)"):
        build.read(tmp_path, packed, columns=["text"])


def test_a_page_is_no_archive(tmp_path):
    path = tmp_path / "x.warc"
    path.write_bytes(page("x"))
    with pytest.raises(InputError, match="does not begin as one"):
        build.read(tmp_path, path, columns=["text"])


def test_written_by_another_library(tmp_path):
    """warcio's writer, where it is installed: chunked headers, record per member, revisit and request records."""
    pytest.importorskip("warcio")
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    path = tmp_path / "x.warc.gz"
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
        writer.write_record(writer.create_warc_record(
            "https://example.org/a", "response", payload=io.BytesIO(page(PARAGRAPH)), http_headers=headers
        ))  # fmt: skip
        writer.write_record(writer.create_revisit_record(
            "https://example.org/a", "sha1:x", "https://example.org/a", "2024-01-01T00:00:00Z"
        ))  # fmt: skip
    rows = build.read(tmp_path, path, columns=["text", "url"])
    assert len(rows) == 1 and "old town" in rows[0]["text"]
