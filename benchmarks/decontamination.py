"""Test items in the pool: what is found of planted ones, and what is found where none was planted; beside datatrove.

    python benchmarks/decontamination.py '../shared/data/real/*.parquet' '../shared/data/tasks/*.jsonl.gz' \\
        [--documents 10000] [--plant 40] [--hits hits.txt]
    python benchmarks/decontamination.py '../shared/data/real/*.parquet' --paragraphs 4000 --hits hits.txt

Into documents of the pool it writes, of each test set, items whole, in capitals without punctuation, their first half,
and paraphrased (every sixth, every third word another); the rest is as it was. `--hits` writes what was found there.
`--paragraphs` takes, in place of test sets, paragraphs of the pool's own documents as test items, which stand in other
documents of it as real text repeats itself: quoted, in part, as a notice, as a phrase. What is found, to be read.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from datamask import storage
from datamask.config import Config
from datamask.corpus.convert import convert_shard
from datamask.corpus.shards import plan_shards
from datamask.filter import contamination
from datamask.filter.contamination import common_rows, contaminated
from datamask.filter.leaks import find_leaks, items_of
from datamask.stages import ShardFiles

KINDS = ("whole", "capitals", "half", "sixth", "third")


def altered(text: str, kind: str, draw: random.Random) -> str:
    words = text.split()
    if kind == "capitals":
        return " ".join("".join(c for c in word if c.isalnum()) for word in words).upper()
    if kind == "half":
        return " ".join(words[: -(-len(words) // 2)])
    if kind in ("sixth", "third"):
        step = 6 if kind == "sixth" else 3
        return " ".join(
            word if n % step else draw.choice(("thing", "about", "such", "some")) for n, word in enumerate(words)
        )
    return text


def pool(
    corpus: str, items: Any, documents: int, plant: int
) -> tuple[list[dict[str, Any]], dict[int, tuple[str, str, int]]]:
    """(rows, planted: row → (test set, kind, words))."""
    tables = [pq.read_table(path, columns=["text", "id", "source"]) for path in storage.expand_patterns([corpus])]
    rows = [row for row in pa.concat_tables(tables).to_pylist() if row["text"].strip()][:documents]
    draw = random.Random(7)
    if not plant:
        return rows, {}
    sets: dict[str, list[int]] = defaultdict(list)
    for number, (name, part) in enumerate(zip(items.names, items.parts, strict=True)):
        if part in ("question", "text") and items.rows.words[number] >= 8:
            sets[name.split(":")[0]].append(number)
    planted: dict[int, tuple[str, str, int]] = {}
    free = list(range(len(rows)))
    draw.shuffle(free)
    for name, numbers in sorted(sets.items()):
        for kind in KINDS:
            for number in draw.sample(numbers, min(plant, len(numbers))):
                row = free.pop()
                text = rows[row]["text"]
                cut = text.find("\n", len(text) // 2) % len(text)
                rows[row]["text"] = f"{text[:cut]}\n{altered(items.texts[number], kind, draw)}\n{text[cut:]}"
                planted[row] = name, kind, int(items.rows.words[number])
    return rows, planted


def ours(
    rows: list[dict[str, Any]], config: Config, work: str, but: Sequence[int] = ()
) -> tuple[dict[int, str], float]:
    """(document: what it holds, seconds). but: of each item the document that it was taken from, which does not count.

    Whole items that a document holds beside its own are found; the best alone is told, so own items are passed over.
    """
    [shard] = plan_shards(config.corpus, work).shards
    shard = convert_shard(shard, config, work)
    schema = pa.schema([("chunk_id", pa.int64()), ("reason", pa.string())])
    table = pa.table([pa.array(range(len(rows)), pa.int64()), pa.nulls(len(rows), pa.string())], schema)
    index = storage.write_output(f"{work}/index/x.parquet", "x", schema, [table])
    began = time.perf_counter()
    files = ShardFiles(shard, index=index)
    files = ShardFiles(shard, index=index, leaks=find_leaks(files.shard, config, work))
    common = common_rows([files], config)
    found = contaminated(files, config, common)
    if but:
        items = items_of(config)
        own = defaultdict(set)
        for part, row in enumerate(but):
            own[row].add(part)
        others = {}
        for leak in contamination._rows(files):
            kept = [g for g in leak["gram"] if not own[leak["chunk_id"]] & {p for p, _ in items.rows.texts_with(g)}]
            left = set(kept)
            places = [p for g, p in zip(leak["gram"], leak["place"], strict=True) if g in left]
            verdict = contamination._judge(
                {**leak, "gram": kept, "place": places}, items, common, config.filter.contamination
            )
            if verdict:
                others[leak["chunk_id"]] = json.dumps(verdict)
        found = others
    return found, time.perf_counter() - began


def datatrove(rows: list[dict[str, Any]], tests: list[str]) -> Iterator[tuple[int, str]]:
    """Its filter with its own settings (12 words of the answer, or of both) and with the questions' words too."""
    from datatrove.data import Document
    from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter, NGramsDecontIndexer

    own = NGramsDecontFilter("/tmp", NGramsDecontConfig(find_query_ngrams=True))
    hashed = own.hash_func  # of the installed xxhash it takes bytes alone
    own.hash_func = lambda text: hashed(text.encode())
    indexer = SimpleNamespace(config=own.config, tokenizer=own.tokenizer, hash_func=own.hash_func)
    own._index_hashes = {}
    for path in tests:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                item = json.loads(line)
                for value in NGramsDecontIndexer.compute_hashes(indexer, item["answer"], item["question"]):
                    own._index_hashes[value] = Path(path).name
    for number, row in enumerate(rows):
        document = Document(text=row["text"], id=str(number))
        if own.filter(document) is not True:
            yield number, f"{document.metadata['contaminated_task']}: {document.metadata['contaminated_ngram']}"


def paragraphs(corpus: str, documents: int, number: int, hits: str, seed: int) -> None:
    """Writes a line for each document that holds another's paragraph, at most two for each paragraph: JSON.

    A page and its main text are one document.
    """
    rows, _ = pool(corpus, None, documents, 0)
    draw = random.Random(seed)
    owned = [(row, text) for row, each in enumerate(rows) for text in dict.fromkeys(each["text"].split("\n"))]
    of = {}
    for row, text in draw.sample(owned, len(owned)):
        if 20 <= len(text.split()) <= 150 and len(of) < number:
            of.setdefault(text, row)
    with tempfile.TemporaryDirectory() as work:
        source, test = f"{work}/pool.parquet", f"{work}/items.jsonl"
        pq.write_table(pa.Table.from_pylist(rows), source)
        Path(test).write_text("".join(json.dumps({"text": text}) + "\n" for text in of))
        config = Config.model_validate({"corpus": {"input": [source]}, "filter": {"decontaminate": [test]}})
        found, took = ours(rows, config, work, but=list(of.values()))
    texts, written = list(of), Counter[str]()
    with Path(hits).open("w") as out:
        for row in draw.sample(sorted(found), len(found)):
            told = json.loads(found[row])
            item = texts[int(told["item"].split(":")[1]) - 1]
            ids = {"id": rows[row]["id"], "of": rows[of[item]]["id"]}
            if page(ids["id"]) == page(ids["of"]):
                continue
            written[item] += 1
            if written[item] <= 2:
                out.write(json.dumps({**ids, **told, "text": item, "document": rows[row]["text"]}) + "\n")
    print(
        f"{len(rows):,} documents, {len(of):,} paragraphs, {len(found):,} documents hold one of another; {took:.0f} s"
    )


def page(name: str) -> str:
    """What a page and its main text, in either part of wcxb, have in common; of others the whole id."""
    return name.split(":")[2] if name.startswith("wcxb:") else name


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("tests", nargs="?")
    parser.add_argument("--paragraphs", type=int)
    parser.add_argument("--seed", type=int, default=11, help="of the paragraphs")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--plant", type=int, default=40)
    parser.add_argument("--hits")
    parser.add_argument("--alone", action="store_true", help="without datatrove, which takes twenty times as long")
    given = parser.parse_args()
    if given.paragraphs:
        paragraphs(given.corpus, given.documents, given.paragraphs, given.hits, given.seed)
        return
    tests = storage.expand_patterns([given.tests])
    with tempfile.TemporaryDirectory() as work:
        source = f"{work}/pool.parquet"
        config = Config.model_validate({"corpus": {"input": [source]}, "filter": {"decontaminate": tests}})
        items = items_of(config)
        rows, planted = pool(given.corpus, items, given.documents, given.plant)
        pq.write_table(pa.Table.from_pylist(rows), source)
        found, took = ours(rows, config, work)
        began = time.perf_counter()
        theirs = {} if given.alone else dict(datatrove(rows, tests))
        their_time = time.perf_counter() - began
    size = sum(len(row["text"].encode()) for row in rows) / 1e6
    print(f"{len(rows):,} documents ({size:.0f} MB), {len(set(items.names)):,} test items, {len(planted):,} planted\n")
    print("| found of planted | " + " | ".join(KINDS) + " | where none was planted | seconds |")
    print("|---|" + "---:|" * (len(KINDS) + 2))
    for name, hits, seconds in (("datamask", found, took), ("datatrove, 12 words", theirs, their_time)):
        counts, all_ = Counter(), Counter(kind for _, kind, _ in planted.values())
        counts.update(planted[row][1] for row in hits if row in planted)
        others = sum(row not in planted for row in hits)
        cells = " | ".join(f"{counts[kind] / all_[kind]:.3f}" for kind in KINDS)
        print(f"| {name} | {cells} | {others:,} | {seconds:.1f} |")
    print("\n| planted whole, by test set | items | datamask | datatrove |\n|---|---:|---:|---:|")
    for name in sorted({name for name, _, _ in planted.values()}):
        mine = [row for row, (of, kind, _) in planted.items() if (of, kind) == (name, "whole")]
        print(f"| {name} | {len(mine)} | {sum(r in found for r in mine)} | {sum(r in theirs for r in mine)} |")
    if given.hits:
        with Path(given.hits).open("w") as out:
            for who, hits in (("datamask", found), ("datatrove", theirs)):
                for row, told in hits.items():
                    if row not in planted:
                        out.write(f"{who}\t{rows[row]['source']}\t{rows[row]['id']}\t{told}\n")


if __name__ == "__main__":
    main()
