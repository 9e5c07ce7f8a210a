"""The public summary's numbers are those of the data files, counted by others; Croissant's own library takes ours."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask.api import Release
from datamask.corpus.web_addresses import hosts_of
from datamask.release import manifest
from datamask.release.summary import facts
from datamask.release.summary.facts import FILES, render_summary, summary_files, with_statements
from datamask.release.verify import verify
from tests.release.made import documents, make_shard, released, settings
from tests.release.test_tokens import released_repeatedly

HOSTS = ["https://www.example.org/{}", "http://Sub.Example.org:8080/{}?q=@x", "https://user:word@b.de/{}", "c.com/{}"]
HOSTS += ["ftp://files.net./{}", "https://bücher.example/{}", "https://[2001:db8::1]/{}"]


def table(rows: int = 150) -> pa.Table:
    """The made corpus with hosts of all kinds, dates and licences."""
    made = documents(rows)
    rng = np.random.default_rng(1)
    urls = [HOSTS[n].format(row) if n < len(HOSTS) else None for row, n in enumerate(rng.integers(0, 8, rows))]
    urls = [f"https://site{row % 37}.com/{row}" if row % 2 else url for row, url in enumerate(urls)]
    dates = [(f"20{row % 20 + 10}-0{row % 9 + 1}-11T00:00:00Z", "yesterday", None)[row % 3] for row in range(rows)]
    licences = [("cc-by-4.0", "cc0-1.0", None)[row % 3] for row in range(rows)]
    made = made.set_column(made.column_names.index("url"), "url", [urls])
    return made.append_column("date", [dates]).append_column("license", [licences])


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summary")
    said = {"name": "Mine | <b>", "statements": {"provider": "Maker | Ltd.", "opt_outs": "robots.txt of each day"}}
    config = settings(release={**said, "rows_per_file": 40, "license": "odc-by", "personal": "flag"})
    return released(folder, config, [make_shard(folder, "s0", table())])[1]


def summary(release) -> dict:
    return json.loads(Path(release.path, FILES[1]).read_text())


def test_every_release_has_its_files_and_they_are_verified(release):
    listed = {file["path"] for file in release.manifest()["files"]}
    assert set(FILES) <= listed and verify(release).problems == []
    assert summary_files(release.manifest(), release.path) == {
        name: Path(release.path, name).read_text() for name in FILES
    }
    Path(release.path, FILES[0]).write_text("edited")
    assert any(FILES[0] in problem for problem in verify(release).problems)
    Path(release.path, FILES[0]).write_text(render_summary(summary(release)))
    assert verify(release).problems == []


COUNTED = """
SELECT {value} AS value, count(*)::BIGINT, sum(octet_length(encode(text)))::BIGINT
FROM '{path}/data/*/*.parquet' WHERE value IS NOT NULL GROUP BY value ORDER BY 3 DESC, 1
"""


@pytest.mark.parametrize(("label", "value"), [("languages", "language"), ("dumps", "dump"), ("licences", "license")])
def test_sizes_are_what_duckdb_counts_to_the_byte(release, label, value):
    rows = duckdb.sql(COUNTED.format(value=value, path=release.path)).fetchall()
    found = summary(release)
    assert [tuple(row.values()) for row in found[label]] == rows and len(rows) > 1
    others = [found["text"][size] - sum(row[size] for row in found[label]) for size in ("documents", "bytes")]
    assert not others[0] or "| (none stated, or not listed) | {:,} | {:,} |".format(*others) in render_summary(found)


def test_the_domain_table_is_what_duckdb_counts_to_the_byte(release):
    path = f"{release.path}/data/*/*.parquet"
    address = r"'^[a-z]+://([^/@]*@)?(www\.)?([^/:]+)'"
    rows = duckdb.sql(
        f"SELECT rtrim(regexp_extract(lower(url), {address}, 3), '.') AS host, count(*)::BIGINT, "
        f"sum(octet_length(encode(text)))::BIGINT FROM '{path}' WHERE regexp_matches(lower(url), {address}) "
        "GROUP BY host ORDER BY 3 DESC, 1"
    ).fetchall()
    found = summary(release)["domains"]
    assert found["total"] == len(rows) > 25
    assert (found["documents"], found["bytes"]) == (sum(r[1] for r in rows), sum(r[2] for r in rows))
    most = math.ceil(len(rows) / 10)
    assert [tuple(row.values()) for row in found["largest"]] == rows[:most] and most >= 3
    small = facts.summarise(with_statements(release.manifest(), {}, True), release.path)["domains"]
    assert [tuple(row.values()) for row in small["largest"]] == rows[: math.ceil(len(rows) / 20)]


def test_hosts_are_those_of_pythons_own_parser():
    urls = [url.format(1) for url in HOSTS if "[" not in url]
    for url, host in zip(urls, hosts_of(pa.array(urls)).to_pylist(), strict=True):
        expected = (urlsplit(url).hostname or "").removeprefix("www.").rstrip(".") or None
        assert host == expected, url
    assert hosts_of(pa.array(["", None, "mailto:a@b.de", "/path", "https:///x"])).to_pylist() == [None] * 5


def test_sums_are_the_manifests(release):
    found, total = summary(release), release.manifest()["conservation"]["total"]
    assert found["text"]["documents"] == total["selected"] and found["text"]["tokens"] == total["tokens_selected"]
    texts = [t for path in Path(release.path).glob("data/*/*.parquet") for t in pq.read_table(path)["text"].to_pylist()]
    assert found["text"]["bytes"] == sum(len(text.encode()) for text in texts)
    assert found["text"]["characters"] == sum(map(len, texts))
    removed = found["removed"]
    gone = sum(removed["no document"].values()) + sum(removed["filtered"].values()) + removed["not selected"]
    assert found["read"] == total["selected"] + gone
    assert Counter({row["value"]: row["documents"] for row in found["languages"]}) == release.manifest()["languages"]
    dates = [
        d[:10] for p in Path(release.path).glob("data/*/*.parquet") for d in pq.read_table(p)["date"].to_pylist() if d
    ]
    dates = [date for date in dates if date[0] == "2"]
    assert found["dates"] == {"first": min(dates), "last": max(dates)}


def test_a_document_taken_three_times_counts_once(tmp_path):
    found = []
    for rows in (False, True):
        folder = tmp_path / str(rows)
        folder.mkdir()
        one = summary(released_repeatedly(folder, rows))
        found.append([one[name] for name in ("text", "domains", "languages", "dumps")])
    assert found[0] == found[1] and found[0][0]["documents"] > 100


def test_tokens_count_once_too_and_the_summary_says_so(tmp_path):
    release = released_repeatedly(tmp_path)
    counted = "SELECT sum(token_count)::BIGINT, sum(token_count * repeat)::BIGINT FROM '{}/data/*/*.parquet'"
    [(once, chosen)] = duckdb.sql(counted.format(release.path)).fetchall()
    text = summary(release)["text"]
    assert text["tokens"] == once < chosen == release.manifest()["conservation"]["total"]["tokens_selected"]
    assert text["tokens_as_chosen"] == chosen
    said = Path(release.path, FILES[0]).read_text()
    assert f": {once:,} tokens, " in said and f"as often as they were chosen they are {chosen:,} tokens" in said


def test_what_only_the_provider_knows_is_said_or_a_blank(release):
    text = Path(release.path, FILES[0]).read_text()
    assert "Maker \\| Ltd." in text and "robots.txt of each day" in text and "Mine \\| \\<b\\>" in text
    assert text.count("[for the provider to fill in]") > 8
    again = with_statements(release.manifest(), {"crawlers": "none of ours", "opt_outs": "later"}, False)
    text = summary_files(again, release.path)[FILES[0]]
    assert "none of ours" in text and "later" in text and "robots.txt of each day" not in text and "Maker" in text


def test_what_the_provider_says_makes_no_other_release(release):
    """The data files do not depend on it, so their key does not."""
    known = release.manifest()
    other = with_statements(known, {"models": "m-1"}, True)["settings"]
    keys = [manifest.release_key(known["inputs"], each, known["provenance"]) for each in (known["settings"], other)]
    assert keys == [known["key"]] * 2


def test_a_corpus_that_states_nothing_has_a_summary(tmp_path):
    plain = documents(60).select(["text", "id"])
    _, release = released(tmp_path, settings(), [make_shard(tmp_path, "s0", plain)])
    found = summary(release)
    assert found["domains"]["total"] == 0 and found["dates"] is None and found["languages"] == []
    text = Path(release.path, FILES[0]).read_text()
    assert "The corpus states no addresses." in text and "Languages: the corpus states none." in text


def test_croissant_is_valid_and_loads_the_documents(release):
    mlcroissant = pytest.importorskip("mlcroissant")
    dataset = mlcroissant.Dataset(str(Path(release.path, FILES[2])))
    assert not dataset.metadata.ctx.issues.errors
    assert dataset.metadata.license == ["odc-by"] and "documents" in dataset.metadata.description
    read = [
        (row["documents/shard"].decode(), int(row["documents/chunk_id"]), row["documents/text"].decode())
        for row in dataset.records("documents")
    ]
    files = [pq.read_table(path) for path in Path(release.path).glob("data/*/*.parquet")]
    rows = [(row["shard"], row["chunk_id"], row["text"]) for file in files for row in file.to_pylist()]
    assert sorted(read) == sorted(rows)


def test_command_and_python_say_the_same(release, tmp_path, capsys):
    from datamask.cli import main

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return ended.value.code or 0, *capsys.readouterr()

    assert call("summary", release.path)[:2] == (0, Path(release.path, FILES[0]).read_text())
    status, out, _ = call(
        "summary", release.path, "--small", "--statement", "models=m-1", "--json", "--to", str(tmp_path)
    )
    assert json.loads(out) == Release(release.path).summary({"models": "m-1"}, True)
    assert json.loads((tmp_path / FILES[1]).read_text()) == json.loads(out) and status == 0
    assert "m-1" in (tmp_path / FILES[0]).read_text()
    status, _, err = call("summary", release.path, "--statement", "provider")
    assert status == 2 and "--statement provider: valid are provider, " in err and "each with =TEXT" in err
    status, _, err = call("summary", release.path, "--statement", "maker=m")
    assert status == 2 and "valid are provider, representative" in err
