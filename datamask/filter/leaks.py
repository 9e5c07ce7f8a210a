"""The stage `leaks`: where a shard's documents hold runs of words of test items (`filter.decontaminate`).

    output = find_leaks(shard, config, work)      # a row per document that holds some, with the words around

What that means for a document is judged when all shards have been looked at (`contamination`).
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.corpus.quarantine import score_columns
from datamask.corpus.reading import ShardReading
from datamask.corpus.text_files import holds_json_lines, json_objects, read_text_file
from datamask.errors import InputError
from datamask.filter.word_rows import ROW, WordRows
from datamask.pipeline import STAGES
from datamask.stages import Progress, silent
from datamask.storage import Output
from datamask.text.ngrams import hashed_words, word_bounds

SPAN = 400  # characters kept of a stretch of words
RUN = pa.struct([("first", pa.uint32()), ("last", pa.uint32()), ("text", pa.string())])
SCHEMA = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("gram", pa.list_(pa.uint32())),  # of `Items.rows`
        ("place", pa.list_(pa.uint32())),  # the document's word it begins with
        ("runs", pa.list_(RUN)),  # stretches of words that an item's rows cover: first and last word, and their text
    ]
)
# what evaluation harnesses write around a question and an answer
_BEFORE = re.compile(r"^\s*(?:question|passage|context|q)\s*:\s*", re.IGNORECASE)
_ADDRESS = re.compile(r"\bhttps?://[^\s<>\"')\]]+", re.IGNORECASE)
_AFTER = re.compile(r"\s*(?:answer|a)\s*:\s*$", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Items:
    """The parts of test items. A leak holds one of them: a text, a question, an answer, or question and answer."""

    names: tuple[str, ...]  # file:line
    parts: tuple[str, ...]  # text, question, answer, question and answer
    texts: tuple[str, ...]
    key: str

    @cached_property
    def rows(self) -> WordRows:
        """The runs of words that are searched for, of all parts."""
        return WordRows(self.texts)


def items_of(config: Config) -> Items:
    """The items of filter.decontaminate, read once.

    :raises InputError: a file is missing, is no text, or a line has neither text nor question; names it.
    """
    paths = tuple(config.filter.decontaminate)
    for path in paths:
        if not storage.exists(path):
            raise InputError(f"filter.decontaminate: no such file: {path}")
    return _read(paths, tuple(storage.fingerprint(path) for path in paths))


def find_leaks(
    shard: Shard, config: Config, work: str, progress: Progress = silent, reading: ShardReading | None = None
) -> Output:
    """Publishes work/leaks/<shard>-<key>.parquet: a row per document that holds words in a row of an item.

    :raises InputError: see `items_of`.
    """
    items = items_of(config)
    key = STAGES["leaks"].key(config, shard.fingerprint, score_columns(config), items.key)
    url = storage.join(work, "leaks", f"{shard.name}-{key}.parquet")

    def tables() -> Iterator[pa.Table]:
        for batch in (reading or ShardReading(shard, config)).batches(["text"]):
            ids, texts = batch.documents.rows["chunk_id"], list(map(without_addresses, batch.documents.strings))
            first = 0
            for single, _, document, count in hashed_words(texts):
                found = _hits(items.rows, single, document, texts[first : first + count], ids[first:])
                if found:
                    yield pa.Table.from_pylist(found, SCHEMA)
                first += count
            progress(len(batch))

    return storage.find_or_write(url, key, SCHEMA, tables())


def _hits(
    rows: WordRows, single: np.ndarray, document: np.ndarray, texts: Sequence[str], ids: pa.Array
) -> list[dict[str, Any]]:
    gram, at = rows.find(single, document)
    told = rows.varied[gram]
    gram, at = gram[told], at[told]
    order = np.argsort(at, kind="stable")
    gram, at = gram[order], at[order]
    of = document[at]
    found = []
    for text in np.unique(of).tolist():
        mine = slice(*np.searchsorted(of, [text, text + 1]))
        place = at[mine] - np.searchsorted(document, text)
        spans = _by_item(rows, gram[mine], place)
        found.append(
            {
                "chunk_id": ids[text].as_py(),
                "gram": gram[mine].tolist(),
                "place": place.tolist(),
                "runs": _quoted(texts[text], spans),
            }
        )
    return found


def _by_item(rows: WordRows, gram: np.ndarray, place: np.ndarray) -> list[tuple[int, int]]:
    """The stretches of each item that has some of the rows, as an item may lie beside another in a document."""
    own: dict[int, list[int]] = defaultdict(list)
    for number, each in enumerate(gram.tolist()):
        for text in {text for text, _ in rows.texts_with(each)}:
            own[text].append(number)
    last = place + rows.length[gram] - 1
    return sorted({span for numbers in own.values() for span in _stretches(place[numbers], last[numbers])})


def _stretches(first: np.ndarray, last: np.ndarray) -> list[tuple[int, int]]:
    """Where rows (first and last words, by first) lie without a gap."""
    spans: list[tuple[int, int]] = []
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        if spans and begin <= spans[-1][1] + 1:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((begin, end))
    return spans


def _quoted(text: str, spans: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    starts, ends = word_bounds(text)
    whole = unicodedata.normalize("NFKC", text)
    return [
        {"first": first, "last": last, "text": " ".join(whole[starts[first] : ends[last]].split())[:SPAN]}
        for first, last in spans
    ]


def without_addresses(text: str) -> str:
    """The text with spaces in place of web addresses, whose words repeat from page to page and tell nothing."""
    return _ADDRESS.sub(lambda found: " " * len(found.group()), text) if "://" in text else text


# ---------------------------------------------------------------- test items


@lru_cache(maxsize=2)
def _read(paths: tuple[str, ...], fingerprints: tuple[str, ...]) -> Items:
    names, parts, texts = [], [], []
    for path in paths:
        items = [(number, item) for number, item in _lines(path) if item]
        if not items:
            raise InputError(f"filter.decontaminate: {path} is empty; leave it out, or name one that holds test items")
        for number, item in items:
            for part, text in item.items():
                names.append(f"{path.rstrip('/').rsplit('/', 1)[-1]}:{number}")
                parts.append(part)
                texts.append(without_addresses(text))
    return Items(tuple(names), tuple(parts), tuple(texts), STAGES["leaks"].key(None, "items", list(fingerprints)))


def _lines(path: str) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, parts) of each item; of plain text each paragraph."""
    text = read_text_file(path, "filter.decontaminate")
    if holds_json_lines(path):
        for number, row in json_objects(text, f"filter.decontaminate: {path}"):
            yield number, _parts(row, number, path)
    else:
        number = 1
        for paragraph in re.split(r"(\n\s*\n)", text):
            if paragraph.strip():
                yield number, {"text": paragraph}
            number += paragraph.count("\n")


def _parts(row: Mapping[str, Any], number: int, path: str) -> dict[str, str]:
    held = {name: row[name] for name in ("text", "question", "answer") if isinstance(row.get(name), str)}
    if "question" in held:
        question = _AFTER.sub("", _BEFORE.sub("", held["question"]))
        answer = held.get("answer", "")
        found = {"question": question, "answer": answer, "question and answer": f"{question} {answer}"}
        if len(answer.split()) < ROW:  # "rise in the east and set in the west": a phrase of everybody's
            del found["answer"]
        return {name: text for name, text in found.items() if text.strip() and (answer or name == "question")}
    if "text" in held:
        return {"text": held["text"]}
    raise InputError(
        f"filter.decontaminate: {path}, line {number} has {', '.join(sorted(row)) or 'no fields'}; "
        "lines need `question` (and `answer`), or `text`, as strings"
    )
