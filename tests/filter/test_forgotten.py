"""Lists of what must be forgotten: as people publish them, by public rules of names, matched however it is spelt."""

import bz2
import gzip
import json

import pyarrow as pa
import pytest

from datamask.corpus.web_addresses import domains_of, normalise_addresses, normalise_host
from datamask.errors import DamagedFileError, InputError
from datamask.filter import forgotten
from datamask.filter.forgotten import Entry, load_requests, read_list, record_entries
from datamask.filter.signatures import sign_texts
from datamask.text.text_hashes import text_hash
from tests.filter.test_stage import document, noisy


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("https://www.Example.COM:8080/a?b#c", "example.com"),
        ("//user:pass@example.com", "example.com"),
        ("example.com.", "example.com"),
        ("*.Bücher.example", "xn--bcher-kva.example"),
        ("http://xn--bcher-kva.example/", "xn--bcher-kva.example"),
        ("www.com", "www.com"),  # the name itself, not a prefix of one
        ("http://[2001:DB8::1]:80/x", "[2001:db8::1]"),
    ],
)
def test_a_host_has_one_spelling(written, host):
    assert normalise_addresses(pa.array([written, None]))[1].to_pylist() == [host, None]


def test_an_address_has_one_spelling():
    same = ["http://example.com/A?b=1", "HTTPS://www.EXAMPLE.com:443/A?b=1#top", " example.com/A?b=1 "]
    assert set(normalise_addresses(pa.array(same))[0].to_pylist()) == {"example.com/A?b=1"}
    others = ["http://example.com/a?b=1", "http://example.com/A?b=2", "http://example.org/A?b=1"]
    assert "example.com/A?b=1" not in normalise_addresses(pa.array(others))[0].to_pylist()
    assert list(domains_of("a.b.example.com")) == ["a.b.example.com", "b.example.com", "example.com", "com"]
    assert normalise_host("") == ""


@pytest.mark.parametrize(
    ("name", "kind", "content", "expected"),
    [
        ("a.txt", "domains", "# opt-outs\nexample.com\n\n  www.foo.org  \n", ["example.com", "www.foo.org"]),
        ("a.csv", "domains", "Domain,reason\nexample.com,robots\nfoo.org,\n", ["example.com", "foo.org"]),
        ("a.csv", "urls", 'date,url\n1,"http://a.b/c,d"\n', ["http://a.b/c,d"]),
        ("a.tsv", "ids", "id\tn\nx1\t2\n", ["x1"]),
        ("a.csv", "ids", "id\nx1\nx2\n", ["x1", "x2"]),
        ("a.jsonl", "urls", '{"url": "http://a.b/", "n": 1}\n{"url": null}\n', ["http://a.b/"]),
        ("a.jsonl", "ids", '{"anything": "x1"}\n', ["x1"]),
        ("a.jsonl", "texts", '{"id": 1, "text": "two\\nlines"}\n', ["two\nlines"]),
        ("a.txt", "ids", "url-like,with,commas\n", ["url-like,with,commas"]),
        ("a.jsonl", "ids", '{"id": 0}\n{"id": 7}\n', ["0", "7"]),
        ("a.jsonl", "texts", '{"text": "a \\ud800 b"}\n', ["a \\ud800 b"]),
        ("a.csv", "ids", '"x,1"\n# a comment\nx2\nx,3\n', ["x,1", "x2", "x,3"]),
        ("a.csv", "domains", "# a domain each\ndomain\nfoo.org\n", ["foo.org"]),
        ("a.csv", "domains", "# opt-outs, 2024\ndomain,why\nfoo.org,robots\n", ["foo.org"]),
    ],
)
@pytest.mark.parametrize("packed", ["", ".gz", ".bz2"])
def test_lists_are_read_as_they_are_published(tmp_path, name, kind, content, expected, packed):
    path = tmp_path / (name + packed)
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[packed]
    path.write_bytes(pack(content.encode()))
    found = read_list(str(path), kind)
    assert [entry.text for entry in found] == expected and not record_entries(str(tmp_path / "out"), found)
    assert {entry.list for entry in found} == {path.name}


def test_an_entry_may_be_given_itself_and_a_file_that_is_not_there_is_none(tmp_path):
    long = "a text is longer than a file's name may be " * 20
    assert [entry.text for entry in read_list(long, "texts")] == [long]
    assert read_list("example.com", "domains") == [Entry("domains", "example.com", "given", 1)]
    assert read_list("https://example.com/list.txt", "urls")[0].text == "https://example.com/list.txt"
    with pytest.raises(InputError, match="no such file"):
        read_list(str(tmp_path / "opt-out.txt"), "domains")
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"a": 1, "b": 2}))
    with pytest.raises(InputError, match=r"none of its columns \(a, b\)"):
        read_list(str(path), "domains")
    (tmp_path / "a.csv").write_text("source,key\nweb,doc-17\n")
    with pytest.raises(InputError, match=r"none of its columns \(source, key\) is one of id, "):
        read_list(str(tmp_path / "a.csv"), "ids")


def requests_of(out, *entries):
    left_out = record_entries(str(out), [Entry(kind, text, "a list", n) for n, (kind, text) in enumerate(entries, 1)])
    return left_out, load_requests(str(out / "work"))


def test_what_can_be_no_host_is_told_and_not_recorded(tmp_path):
    none = ["example.com,spam", '"example.com"', "0.0.0.0 example.com", "||example.com^"]
    kept = ["*.foo.org", "bar.org  # asked in May"]
    left_out, requests = requests_of(tmp_path, *[("domains", entry) for entry in [*none, *kept]])
    assert left_out == none
    assert sorted(requests.rows["value"].to_pylist()) == ["bar.org", "foo.org"]


def test_documents_are_matched_however_they_are_spelt(tmp_path):
    text = document(1)
    left_out, requests = requests_of(
        tmp_path,
        ("domains", "https://www.Example.com/about"),
        ("domains", "com"),  # no domain that anybody has
        ("urls", "http://other.org/page/"),
        ("ids", "<urn:uuid:1>"),
        ("texts", text),
    )
    assert left_out == ["com"]
    rows = [
        ("http://example.com/", "1", "x", "domains"),
        ("https://a.b.EXAMPLE.com:81/x", "2", "x", "domains"),
        ("https://notexample.com/", "3", "x", None),
        ("https://example.com.org/", "3", "x", None),
        ("https://www.other.org/page#here", "4", "x", "urls"),
        ("https://www.other.org/page/2", "5", "x", None),
        (None, "<urn:uuid:1>", "x", "ids"),
        (None, None, text.upper().replace(" ", "\n"), "texts"),
    ]
    hashes = pa.array([text_hash(row[2]) for row in rows], pa.binary(16))
    table = pa.table({"url": [row[0] for row in rows], "id": [row[1] for row in rows], "text_hash": hashes})
    found = requests.match(table)
    told = requests.told(found[found >= 0])
    kinds = [told[entry]["kind"] if entry >= 0 else None for entry in found.tolist()]
    assert kinds == [row[3] for row in rows]
    halves = [requests.match(table.slice(0, 3)), requests.match(table.slice(3))]
    assert [*halves[0], *halves[1]] == found.tolist()


def test_texts_are_kept_as_hashes_and_their_copies_are_known(tmp_path):
    texts = [document(number, 150) for number in range(60)]
    _, requests = requests_of(tmp_path, *(("texts", text) for text in texts))
    for file in (tmp_path / "forgotten").iterdir():
        assert b"".join(texts[0].encode().split()[:1]) not in file.read_bytes()
    assert texts[0].split()[3] not in str(requests.rows.to_pylist())
    copies = [noisy(text, 0.02, n) for n, text in enumerate(texts)]
    whole = [f"{document(900 + n, 90)} {text} {document(800 + n, 90)}" for n, text in enumerate(texts)]
    others = [document(5000 + number, 150) for number in range(60)]
    for given, least, most in ((texts, 60, 60), (copies, 57, 60), (whole, 57, 60), (others, 0, 0)):
        signed = pa.Table.from_batches([sign_texts(pa.array(range(60)), pa.array(given))])
        assert least <= (requests.match_samples(signed) >= 0).sum() <= most


def test_the_same_list_twice_is_one_and_order_does_not_matter(tmp_path):
    entries = [Entry("domains", name, "l", 1) for name in ("a.org", "b.org")]
    record_entries(str(tmp_path), entries)
    digest = forgotten.digest_of(str(tmp_path))
    record_entries(str(tmp_path), entries[::-1])
    assert forgotten.digest_of(str(tmp_path)) == digest and forgotten.is_pending(str(tmp_path))
    forgotten.mark_done(str(tmp_path), "0001")
    assert not forgotten.is_pending(str(tmp_path))
    record_entries(str(tmp_path), [Entry("domains", "c.org", "l", 1)])
    assert forgotten.is_pending(str(tmp_path))


def test_a_damaged_record_is_not_to_be_removed_and_a_damaged_note_is_none(tmp_path):
    record_entries(str(tmp_path), [Entry("domains", "a.org", "l", 1)])
    forgotten.mark_done(str(tmp_path), "0001")
    (tmp_path / "forgotten" / "done.json").write_text("")
    assert forgotten.is_pending(str(tmp_path))
    [record] = (tmp_path / "forgotten").glob("*.parquet")
    record.write_bytes(record.read_bytes()[:-20])
    with pytest.raises(DamagedFileError, match=f"^{record}: damaged .*: put a copy of it back, or remove it and give"):
        forgotten.load_requests(str(tmp_path / "work"))
