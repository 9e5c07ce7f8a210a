"""Personal data: what is found and what is not, beside datatrove's own code; the published text is still proven."""

import base64
import random
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from datamask.config import ReleaseSettings
from datamask.release.personal import _EMAIL, FIELD, KINDS, PersonalRules, find_personal_data, luhn, replaced
from datamask.release.summary.facts import summarise
from datamask.release.verify import verify
from tests.release.made import documents, make_shard, released, settings

pytest.importorskip("phonenumbers")
RULES = PersonalRules(KINDS, None, True)

FOUND = [
    ("write to Jane.Doe+news@mail.example.co.uk, please", "email", "Jane.Doe+news@mail.example.co.uk"),
    ("(jane_doe@uni-bonn.de)", "email", "jane_doe@uni-bonn.de"),
    ("from 8.8.8.8 port 53", "ip", "8.8.8.8"),
    ("call +49 228 73-0123 now", "phone", "+49 228 73-0123"),
    ("tel. +1 (650) 253-0000.", "phone", "+1 (650) 253-0000"),
    ("card 4111 1111 1111 1111, exp. 12/29", "card", "4111 1111 1111 1111"),
    ("5500-0055-5555-5559", "card", "5500-0055-5555-5559"),
    ("378282246310005 is American Express", "card", "378282246310005"),
]
NOT = [
    "version 10.0.0.1 of 192.168.1.17 and 127.0.0.1",  # private addresses, as in FineWeb
    "a @ b", "@handle", "4111 1111 1111 1112",  # the last digit is wrong
    "ISBN 978-3-16-148410-0", "1234567890123456", "0000 0000 0000 0000", "4111111111111111234", "x4111111111111111",
    "3.1415926535897932384", "2024-01-01 12:00:00", "+12 apples",
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "what"), FOUND)
def test_what_is_found(text, kind, what):
    [(start, end, found)] = find_personal_data(text, RULES)
    assert (text[start:end], found) == (what, kind)
    published, counts = replaced(text, RULES)
    assert what not in published and counts[kind] == 1 == sum(counts.values())
    assert published.startswith(text[:start]) and published.endswith(text[end:])
    flagged, same = replaced(text, PersonalRules(KINDS, None, False))
    assert flagged == text and same == counts


@pytest.mark.parametrize("text", NOT)
def test_what_is_none(text):
    assert find_personal_data(text, RULES) == [] and replaced(text, RULES)[0] is text


def test_numbers_of_a_region_and_chosen_kinds():
    text = "Telefon 0228 730123, info@uni-bonn.de"
    assert [kind for *_, kind in find_personal_data(text, RULES)] == ["email"]
    assert [kind for *_, kind in find_personal_data(text, PersonalRules(KINDS, "DE", True))] == ["phone", "email"]
    assert [kind for *_, kind in find_personal_data(text, PersonalRules(("ip",), "DE", True))] == []


def test_a_document_alone_decides_what_it_becomes():
    """FineWeb's replacements go round from document to document; ours begin anew."""
    assert replaced("a@b.org c@d.org e@f.org", RULES)[0] == (
        "email@example.com firstname.lastname@example.org email@example.com"
    )
    assert replaced("x@y.org", RULES)[0] == "email@example.com"
    again, counts = replaced(replaced("8.8.8.8 x@y.org", RULES)[0], RULES)
    assert counts["email"] == 1 and again.endswith("email@example.com")


def test_addresses_are_those_that_the_pattern_finds_from_place_to_place():
    draw = random.Random(0)
    for _ in range(20_000):
        text = "".join(draw.choices(["a", "B", "1", ".", "-", "+", "@", "@x.org", "@[8.8.8.8]", " ", "é", "/"], k=12))
        found = find_personal_data(text, PersonalRules(("email",), None, True))
        assert [(start, end) for start, end, _ in found] == [one.span() for one in _EMAIL.finditer(text)], text


@pytest.mark.slow
def test_long_documents_are_read_once_and_to_their_end():
    """An image in a notebook, the log of a server, a table of numbers: each took time as the square of its length."""
    draw = random.Random(0)
    image = base64.b64encode(draw.randbytes(300_000)).decode()
    log = " ".join(f"8.8.{n % 250}.{n // 250}" for n in range(10_000))
    numbers = "+12 apples " * 66_000
    started = time.process_time()
    found = find_personal_data(f"{image} {log} {numbers} write to a@b.org, call +49 228 73-0123", RULES)
    assert time.process_time() - started < 60  # 5 on a slow machine, beside many minutes
    assert Counter(kind for *_, kind in found) == {"ip": 10_000, "email": 1, "phone": 1}


def test_check_digits_are_those_of_a_table():
    """Luhn's doubled digits by table, digit by digit from the left."""
    doubled = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    draw = random.Random(3)
    for _ in range(500):
        digits = "".join(draw.choices("0123456789", k=draw.randint(2, 19)))
        odd = len(digits) % 2
        total = sum(int(d) if place % 2 != odd else doubled[int(d)] for place, d in enumerate(digits))
        assert luhn(digits) == (total % 10 == 0)
    assert sum(luhn(f"7992739871{d}") for d in range(10)) == 1


def test_emails_and_addresses_are_datatroves():
    pytest.importorskip("datatrove")
    from datatrove.pipeline.formatters.pii import PIIFormatter

    draw = random.Random(5)
    pieces = (
        [text for text, *_ in FOUND[:3]] + NOT[:4] + ["a.b@c.d.ee", "x@[1.2.3.4]", "1.1.1.1.1", "u@h..de", "-@-.com"]
    )
    for _ in range(300):
        text = " ".join(draw.choices(pieces, k=6))
        theirs = PIIFormatter(email_replacement="§", ip_replacement="$").format(text)
        spans = find_personal_data(text, PersonalRules(("email", "ip"), None, True))
        for start, end, kind in reversed(spans):
            text = text[:start] + {"email": "§", "ip": "$"}[kind] + text[end:]
        assert text == theirs


def corpus(folder):
    table = documents(90, 3)
    texts = [
        f"{text} mail {n}@example{n}.de and 8.8.4.{n}" if text and n % 3 == 0 else text
        for n, text in enumerate(table["text"].to_pylist())
    ]
    return [make_shard(folder, "s0", table.set_column(0, "text", pa.array(texts)))]


@pytest.mark.parametrize("how", ["flag", "replace"])
def test_a_release_counts_what_it_holds_and_is_proven(tmp_path, how):
    files = corpus(tmp_path)
    config = settings(release={"personal": how}, corpus={"input": [str(tmp_path / "input")]})
    _, release = released(tmp_path, config, files)
    manifest = release.manifest()
    tables = [
        release.batches(f["path"], ["text", FIELD.name]) for f in manifest["files"] if f["path"].startswith("data/")
    ]
    rows = [row for batches in tables for batch in batches for row in batch.to_pylist()]
    held = [row for row in rows if sum(row[FIELD.name].values())]
    assert manifest["personal"] == {"documents": len(held), "email": len(held), "ip": len(held), "card": 0, "phone": 0}
    assert held and all(("8.8.4." in row["text"]) == (how == "flag") for row in held)
    assert all(("email@example.com" in row["text"]) == (how == "replace") for row in held)
    assert verify(release, [str(tmp_path / "input")]).problems == []
    text = summarise(manifest, release.path)["text"]
    assert text["characters"] == sum(len(row["text"]) for row in rows)  # of what is published
    assert f"{len(held)} e-mail addresses" in Path(release.path, "README.md").read_text()


def test_a_text_changed_by_hand_is_seen(tmp_path):
    """verify --against: the published text must be what the rules make of the source's, and nothing else."""
    import pyarrow.parquet as pq

    from datamask.release.against import _differences
    from datamask.release.data_files import DataLayout

    files = corpus(tmp_path)
    source = pq.read_table(files[0].shard.parts[0].path)
    layout = DataLayout.of(source.schema, personal=True)
    made = [replaced(text or "", RULES) for text in source["text"].to_pylist()]
    texts = [text for text, _ in made]
    texts[3] = texts[3].replace("email@example.com", "other@example.com")
    added = {FIELD.name: pa.array([counts for _, counts in made], FIELD.type), "chunk_id": pa.array(range(len(texts)))}
    ids = pa.array(range(len(texts)), pa.int64())
    rows = pa.table({**{n: source[n] for n in layout.corpus.names}, "text": pa.array(texts), **added, "chunk_id": ids})
    clean = source.set_column(0, "text", pa.array([text or "" for text in source["text"].to_pylist()]))
    assert dict(_differences(rows, clean, layout, RULES)) == {"text": [3]}


def test_off_is_off():
    assert PersonalRules.of(ReleaseSettings()) is None
    assert PersonalRules.of(ReleaseSettings(personal="flag", personal_kinds=["ip", "email"])) == PersonalRules(
        ("email", "ip"), None, False
    )
