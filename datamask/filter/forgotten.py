"""What must be forgotten: lists of addresses, domains, ids and texts, kept in `<out>/forgotten/`, and what they name.

    record_entries(out, read_list("opt-out.csv", "domains"))   # a file of the record; the same list twice is one
    requests = load_requests(work)                             # None: nothing is to be forgotten
    requests.match(table)                                      # (n,) int64: the entry that names each document, or -1

Texts are kept as hashes and samples of their shingles, never as texts.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.corpus.text_files import json_objects, read_text_file
from datamask.corpus.web_addresses import domains_of, normalise_addresses
from datamask.errors import DamagedFileError, InputError, MissingFileError
from datamask.filter.signatures import SCHEMA as SIGNATURES
from datamask.filter.signatures import sample_bound, sign_texts
from datamask.text.text_hashes import text_hashes

FOLDER = "forgotten"  # of the output folder
DONE = "done.json"  # there: the record that the last release was made with
REASON = "forgotten"
GIVEN = "given"  # in place of a list's name: an entry that was given itself
KINDS = {  # of lists: the names that their column or field may have, the likeliest first
    "urls": ("url", "uri", "link", "source_url", "warc_target_uri", "page"),
    "domains": ("domain", "host", "hostname", "site", "url"),
    "ids": ("id", "doc_id", "document_id", "uuid", "warc_record_id"),
    "texts": ("text", "content"),
}
SIGNED = ["windows", "scale", "sample"]  # columns of a signature by which documents are compared
SCHEMA = pa.schema(
    [
        ("kind", pa.string()),  # of KINDS
        ("value", pa.string()),  # an address or a host, normalised; an id; a text's hash, in hexadecimal digits
        ("list", pa.string()),  # why: the list
        ("entry", pa.string()),  # and what it says there, of a text its number
        *map(SIGNATURES.field, SIGNED),  # of a text its signature, else null
    ]
)
READ = ("url", "id")  # columns by which documents are matched, beside the hash of their text
_A_FILE = re.compile(r"\.(txt|csv|tsv|jsonl?|ndjson|lst|list)(\.\w+)?$|\.(gz|zst|xz|bz2)$", re.IGNORECASE)
_CSV = re.compile(r"\.(csv|tsv)(\.\w+)?$", re.IGNORECASE)
_NO_HOST = re.compile(r"[\s\"',;|^<>\\]")  # signs that no host name has
# Likeness of the samples from which a document is a copy of a forgotten text, which is not there to be read again. With
# one word in 20 replaced a text has a Jaccard of .63 in five-word shingles; .55 finds 97 % of such copies
# (benchmarks/forget_copies.py), and some versions of a licence or a law with them. Short texts must be more alike, for
# another name makes another text. A document with the share HELD of a forgotten text's sample holds that text.
LIKE, LIKE_SHORT, SHORT = 0.55, 0.9, 200
HELD, LEAST = 0.9, 10  # share of the forgotten text's sample, of at least so many shingles
USUAL = 50  # a shingle that is in more forgotten texts tells nothing of any of them


class Entry(NamedTuple):
    """Something to forget: a row of a list."""

    kind: str
    text: str  # as it is written
    list: str
    number: int


def read_list(given: str, kind: str) -> list[Entry]:
    """The entries of a list: a file (plain lines, CSV with a header, JSON lines; packed too), or one entry itself.

    Of CSV and JSON lines the column is read that KINDS names first, else the only one.

    :raises InputError: there is no such file, it is not UTF-8, or which column is meant cannot be told.
    """
    local = not re.match(r"(?i)\s*https?://", given)
    if not (local and storage.exists(given)):
        if local and _A_FILE.search(given):
            raise InputError(f"{given}: no such file; give a list that is there, or an entry itself", path=given)
        return [Entry(kind, given, GIVEN, 1)]
    name = given.rsplit("/", 1)[-1]
    rows = enumerate(map(str.strip, _values(read_text_file(given, "list"), kind, given)), 1)
    return [Entry(kind, value, name, number) for number, value in rows if value]


def _values(text: str, kind: str, where: str) -> Iterable[str]:
    lines = text.splitlines(keepends=True)
    told = [at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")]
    first, rest = (lines[told[0]], lines[told[0] :]) if told else ("", [])
    separator = next((mark for mark in ("\t", ",", ";") if mark in first), ",")
    header = {name.strip().lower() for name in next(csv.reader([first], delimiter=separator), [])}
    is_csv = _CSV.search(where) is not None
    csv.field_size_limit(1 << 30)
    table = io.StringIO("".join(rest), newline="")
    rows: Iterable[Mapping[str, Any]]
    if first.lstrip().startswith("{"):
        rows = (row for _, row in json_objects(text, where))
    elif sum((is_csv, len(header) > 1, bool(header & {*KINDS[kind]}))) > 1:  # two signs of a table
        rows = csv.DictReader(table, delimiter=separator, restkey="")
    else:  # of CSV a first line that is no header is an entry too, and one that is names nothing
        if is_csv:
            lines = [separator.join(row) for row in csv.reader(table, delimiter=separator)]
        return ("" if line.lstrip().startswith("#") else line for line in lines)
    values = (row.get(_column(list(row), kind, where)) for row in rows)
    # a lone surrogate becomes its escape: no document has one, and of a text the rest is known all the same
    return ("" if value is None else str(value).encode(errors="backslashreplace").decode() for value in values)


def _column(names: Sequence[str], kind: str, where: str) -> str:
    """Of the names of a row's columns the one that KINDS has first, or the only one."""
    found = [theirs for name in KINDS[kind] for theirs in names if theirs.strip().lower() == name]
    if found or len(names) == 1:
        return [*found, *names][0]
    raise InputError(
        f"{where}: none of its columns ({', '.join(names)}) is one of {', '.join(KINDS[kind])}; "
        f"rename the one that holds the {kind}"
    )


# ---------------------------------------------------------------- the record


def folder_of(work: str) -> str:
    """Where the record of an output folder lies. work: its work folder."""
    return storage.join(work.removesuffix("/").removesuffix("work").rstrip("/"), FOLDER)


def record_entries(out: str, entries: Sequence[Entry]) -> list[str]:
    """Adds entries to an output folder's record, and returns those that name nothing: a domain of one word or with
    others behind it, a host with signs that none has, an empty line."""
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    texts = [entry for entry in entries if entry.kind == "texts" and entry.text]
    named = [entry for entry in entries if entry.kind != "texts" or not entry.text]
    addresses, hosts = normalise_addresses(pa.array([entry.text for entry in named], pa.string()))
    for entry, address, host in zip(named, addresses.to_pylist(), hosts.to_pylist(), strict=True):
        value = {"urls": address, "domains": host}.get(entry.kind, entry.text)
        words = entry.text.partition("#")[0].split()
        no_host = entry.kind != "ids" and _NO_HOST.search(host or "")
        no_domain = entry.kind == "domains" and ("." not in (value or "") or len(words) > 1)
        if value and not no_host and not no_domain:
            rows.append({"kind": entry.kind, "value": value, "list": entry.list, "entry": entry.text})
        else:
            left_out.append(entry.text)
    array = pa.array([entry.text for entry in texts], pa.string())
    signed = sign_texts(pa.array(range(len(texts)), pa.int64()), array).to_pylist()
    signs = zip(texts, text_hashes(array), signed, strict=True)
    rows += [text_row(hashed, entry.list, f"text {entry.number}", sign) for entry, hashed, sign in signs]
    write_rows(out, rows)
    return left_out


def text_row(text_hash: bytes, list_: str, entry: str, signature: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the record for a text. signature: of `signatures.SCHEMA`; {}: unknown."""
    signed = {name: signature.get(name) for name in SIGNED}
    return {"kind": "texts", "value": text_hash.hex(), "list": list_, "entry": entry, **signed}


def write_rows(out: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Publishes rows of the record, whole or not at all, named by their content; nothing where there are none."""
    if unique := {(row["kind"], row["value"]): row for row in reversed(rows)}:
        table = pa.Table.from_pylist([dict(row) for _, row in sorted(unique.items())], SCHEMA)
        name = storage.key("forgotten", sorted(map(list, unique)))
        storage.write_output(storage.join(out, FOLDER, f"{name}.parquet"), name, SCHEMA, [table])


def digest_of(out: str) -> str | None:
    """Of all that is to be forgotten; None: nothing."""
    names = record_files(storage.join(out, "work"))
    return storage.key("forgotten", names) if names else None


def record_files(work: str) -> list[str]:
    """Names of the record's files, sorted."""
    names = storage.list_names(folder_of(work))
    return sorted(name for name in names if re.fullmatch(r"[0-9a-f]{16}\.parquet", name))


def is_pending(out: str) -> bool:
    """Whether something was recorded that the last release was made without."""
    return digest_of(out) not in (None, read_done(out).get("digest"))


def read_done(out: str) -> dict[str, Any]:
    """What `mark_done` noted last; {}: nothing."""
    try:
        return dict(storage.read_json(storage.join(out, FOLDER, DONE)))
    except (MissingFileError, DamagedFileError):
        return {}


def mark_done(out: str, version: str) -> None:
    """Notes that a release was made with the record as it is."""
    if digest := digest_of(out):
        storage.write_json(storage.join(out, FOLDER, DONE), {"digest": digest, "version": version})


# ---------------------------------------------------------------- matching


def load_requests(work: str) -> Requests | None:
    """What an output folder's record says; None: nothing is to be forgotten. work: its work folder.

    :raises DamagedFileError: a file of it was changed.
    """
    names = tuple(record_files(work))
    return _loaded(folder_of(work), names) if names else None


@lru_cache(maxsize=2)
def _loaded(folder: str, names: tuple[str, ...]) -> Requests:
    try:
        tables = [storage.read_table(storage.join(folder, name)) for name in names]
    except DamagedFileError as error:
        raise DamagedFileError(
            f"{str(error).partition('; remove')[0]}; what it names would come back without it: put a copy of it back, "
            "or remove it and give its lists to datamask forget again"
        ) from error
    return Requests(storage.key("forgotten", list(names)), pa.concat_tables(tables).combine_chunks())


@dataclass(frozen=True, eq=False)
class Requests:
    """All that is to be forgotten. An entry is a row of the record."""

    digest: str
    rows: pa.Table  # SCHEMA

    def told(self, entries: np.ndarray) -> dict[int, dict[str, str]]:
        """Why, for each of these entries: kind, list and entry."""
        unique = np.unique(entries)
        rows = self.rows.select(["kind", "list", "entry"]).take(pa.array(unique)).to_pylist()
        return dict(zip(unique.tolist(), rows, strict=True))

    @cached_property
    def _values(self) -> dict[str, tuple[pa.Array, np.ndarray]]:
        """Of each kind: its values, and which entry each is."""
        found = {}
        for kind in KINDS:
            mine = np.flatnonzero(pc.equal(self.rows["kind"], kind).to_numpy())
            values = _joined(self.rows["value"].take(pa.array(mine)))
            if kind == "texts":
                values = pa.array([bytes.fromhex(value) for value in values.to_pylist()], pa.binary(16))
            found[kind] = values, mine
        return found

    def match(self, documents: pa.Table) -> np.ndarray:
        """(n,) int64: the entry that names each document by its address, domain, id or text; -1: none.

        :param documents: those of READ that there are, and text_hash.
        """
        asked = [np.full(documents.num_rows, -1)]
        if "id" in documents.column_names:
            asked.append(self._entries("ids", _joined(documents["id"])))
        if "url" in documents.column_names:
            addresses, hosts = normalise_addresses(_joined(documents["url"]))
            named = dict(zip(*(each.tolist() for each in self._values["domains"]), strict=True))
            known = [
                next((named[domain] for domain in domains_of(host) if domain in named), -1)
                for host in hosts.dictionary.to_pylist()
            ]
            asked += [self._entries("urls", addresses), np.array([*known, -1])[hosts.indices.fill_null(-1)]]
        if "text_hash" in documents.column_names:  # last: texts of what is named otherwise are among them
            asked.append(self._entries("texts", _joined(documents["text_hash"], pa.binary(16))))
        return reduce(lambda found, more: np.where(found < 0, more, found), asked)

    def _entries(self, kind: str, column: pa.Array) -> np.ndarray:
        """(n,) int64: the entry that each value is; -1: none."""
        values, entries = self._values[kind]
        return np.append(entries, -1)[pc.index_in(column, value_set=values).fill_null(-1)]

    # ------------------------------------------------------------ copies by samples

    @cached_property
    def _samples(self) -> tuple[list[dict[str, Any]], pa.Table]:
        """The forgotten texts that have a sample, and the shingles that few of them have: hash, text."""
        entries = self._values["texts"][1]
        signed = self.rows.take(pa.array(entries)).append_column("at", pa.array(entries))
        signed = signed.filter(pc.greater(pc.list_value_length(signed["sample"]), 0))
        shingles = _shingles(signed, "text")
        counts = pc.value_counts(shingles["hash"])
        usual = counts.field("values").filter(pc.greater(counts.field("counts"), USUAL))
        texts = signed.select([*SIGNED, "at"]).to_pylist()
        return texts, shingles.filter(pc.invert(pc.is_in(shingles["hash"], usual)))

    def match_samples(self, signatures: pa.Table) -> np.ndarray:
        """(n,) int64: the entry of the text of which each document is a copy by the samples of both; -1: none.

        :param signatures: windows, scale and sample of `signatures.SCHEMA`.
        """
        found = np.full(signatures.num_rows, -1, np.int64)
        texts, shingles = self._samples
        both = _shingles(signatures, "document").join(shingles, "hash", join_type="inner")
        met = both.group_by(["document", "text"]).aggregate([("hash", "count")])
        for pair in met.sort_by([("document", "ascending"), ("text", "ascending")]).to_pylist():
            at, text = pair["document"], texts[pair["text"]]
            if found[at] < 0 and pair["hash_count"] >= 0.5 * min(len(text["sample"]), LEAST):
                [own] = signatures.select(SIGNED).slice(at, 1).to_pylist()
                if _alike(own, text):
                    found[at] = text["at"]
        return found


def _shingles(signed: pa.Table, owner: str) -> pa.Table:
    """hash, and the number of the row whose sample has it."""
    lists = signed["sample"].combine_chunks()
    return pa.table({"hash": pc.list_flatten(lists), owner: pc.list_parent_indices(lists)})


def _alike(document: Mapping[str, Any], text: Mapping[str, Any]) -> bool:
    """Whether a document is a copy of a forgotten text, or holds it whole, at the coarser of their samples' bounds."""
    bound = sample_bound(np.array([max(document["scale"], text["scale"])]))[0]
    own, theirs = (np.array(signed["sample"], np.uint64) for signed in (document, text))
    own, theirs = own[own <= bound], theirs[theirs <= bound]
    shared = len(np.intersect1d(own, theirs))
    union = len(own) + len(theirs) - shared
    least = LIKE_SHORT if min(document["windows"], text["windows"]) < SHORT else LIKE
    return bool(shared and (shared >= least * union or (len(theirs) >= LEAST and shared >= HELD * len(theirs))))


def _joined(column: pa.ChunkedArray, kind: pa.DataType = pa.string()) -> pa.Array:
    return column.cast(kind).combine_chunks()
