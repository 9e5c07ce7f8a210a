"""Near-duplicates: what is found of planted copies, which copy stays, and how long that takes by documents.

    python benchmarks/duplicates.py planted  --corpus ../shared/data/real --scored --seed 1   # recall, copy that stays
    python benchmarks/duplicates.py scale    --corpus ../shared/data/real --seconds 180

What falls of a real corpus, and what other tools find there: `duplicates_real.py`. The stage functions are called as
the tasks call them, on files without embeddings; without --scored all scores are 0.
"""

from __future__ import annotations

import argparse
import html
import json
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask import storage
from datamask.config import Config
from datamask.corpus.convert import convert_shard
from datamask.corpus.index import SCHEMA as INDEX
from datamask.corpus.read import read_batches
from datamask.corpus.shards import plan_shards
from datamask.filter.duplicates import find_duplicates
from datamask.filter.filters import filter_corpus
from datamask.filter.programs import are_programs
from datamask.filter.signatures import sign_shard
from datamask.quality.documents import Documents
from datamask.quality.pool_model import PoolModel, fit_pool_model, sample, write_pool_model
from datamask.quality.scorers import ContentScorer
from datamask.stages import ShardFiles, required
from datamask.text.text_hashes import text_hash

LANGUAGES = ("en", "de", "fr", "fi", "tr", "ko", "ar", "hi", "am", "ta", "zh", "ja", "th", "ru", "sw", "so", "yo")
A_LANGUAGE = 24  # documents of a language that copies are made of
LETTERS = (300, 20_000)  # characters of such a document
SPACED = {"zh", "ja", "th", "lo"}  # scripts without spaces: a letter is changed where elsewhere a word is
NAVIGATION = "Home | About us | News | Products | Contact | Login | Search | Privacy | Terms of use\n"
PAGE_END = "Ten more stories\nMost read today\nCopyright 2012, all rights reserved\nPrivacy policy\nSite map\n"
LOOKS = str.maketrans("aceopxyijsABCEHIKMOPSTX", "асеорхуіјѕАВСЕНІКМОРЅТХ")
ALIKE = {"concatenation", "paragraphs"}  # of these no side is the intact one


# ---------------------------------------------------------------- the stages, on any folder of parquet


def prepared(
    folder: str, work: str, score: Mapping[str, float] | None = None, model: PoolModel | None = None
) -> tuple[list[ShardFiles], Config]:
    """The shards of a corpus, indexed and scored (no encoder is needed), and the default settings.

    score: of some texts; the others' are drawn from 0 to 1, as percentiles are. None: all are 0. model: of the scorer.
    """
    drawn = random.Random(9)
    config = Config.model_validate({"corpus": {"input": [folder], "group_bytes": 0}})
    files = []
    facts = {"pool": "quality/pool.safetensors" if model else None}
    if model:
        write_pool_model(f"{work}/quality/pool.safetensors", model)
    for shard in plan_shards(config.corpus, work).shards:
        shard = convert_shard(shard, config, work)
        parts = []
        for batch in read_batches(shard, config, ["text", "id"]):
            texts = batch["text"].to_pylist()
            good = [bool(text and text.strip()) for text in texts]

            rows = {
                "chunk_id": batch["chunk_id"].to_pylist(),
                "id": [str(i) for i in batch["id"].to_pylist()],
                "token_count": [1 if g else None for g in good],
                "characters": [len(t) if g else None for t, g in zip(texts, good, strict=True)],
                "bytes": [len(t) if g else None for t, g in zip(texts, good, strict=True)],
                "text_hash": [text_hash(t) if g else None for t, g in zip(texts, good, strict=True)],
                "reason": [None if g else "empty_text" for g in good],
                "excerpt": [None] * len(texts),
            }
            parts.append(pa.table(rows, schema=INDEX))
        table = pa.concat_tables(parts)
        kept = pa.compute.is_null(table["reason"])
        ids = table.filter(kept)["chunk_id"]
        values = [0.0] * len(ids)
        if score is not None:
            texts = [t for batch in read_batches(shard, config, ["text"]) for t in batch["text"].to_pylist()]
            good_texts = [t for t, k in zip(texts, kept.to_pylist(), strict=True) if k]
            values = [score.get(t, drawn.random()) for t in good_texts]
        scores = pa.table({"chunk_id": ids, "quality_score": pa.array(values, pa.float32())})

        def put(stage: str, rows: pa.Table, name: str = shard.name) -> storage.Output:
            return storage.write_output(
                f"{work}/{stage}/{name}.parquet", f"{stage}-{name}", rows.schema, [rows], lambda: facts
            )

        files.append(ShardFiles(shard, index=put("index", table), scores=put("scores", scores)))
    return files, config


def run(files: list[ShardFiles], config: Config, work: str) -> tuple[list[ShardFiles], dict[str, float]]:
    """Signatures, filters, duplicates: the shards with their files, and the seconds of each."""
    seconds = {}

    def timed(name, work_):
        began = time.perf_counter(), time.process_time()
        found = work_()
        seconds[name] = time.perf_counter() - began[0]
        seconds[f"{name} cpu"] = time.process_time() - began[1]
        return found

    signed = timed("signatures", lambda: [sign_shard(f.shard, config, work) for f in files])
    files = [replace(f, signatures=s) for f, s in zip(files, signed, strict=True)]
    filters = timed("filter", lambda: filter_corpus(files, config, work))
    files = [replace(f, filters=o) for f, o in zip(files, filters, strict=True)]
    found = timed("duplicates", lambda: find_duplicates(files, config, work))
    return [replace(f, duplicates=o) for f, o in zip(files, found, strict=True)], seconds


def fallen(files: list[ShardFiles]) -> dict[tuple[str, int], dict]:
    """(shard, chunk_id) of each document that fell: its row of the duplicates, or {"kind": "exact_duplicate"}."""
    found = {}
    for f in files:
        for row in storage.read_table(f.duplicates.path).to_pylist():
            found[f.shard.name, row["chunk_id"]] = row
        for row in storage.read_table(f.filters.path).to_pylist():
            if row["reason"]:
                found[f.shard.name, row["chunk_id"]] = {"kind": row["reason"]}
    return found


def table(head: list[str], rows: list[list]) -> None:
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row) + " |")
    print(flush=True)


# ---------------------------------------------------------------- planted copies


def _changed(text: str, share: float, pool: list[str], language: str, rng: random.Random, insert: bool = False) -> str:
    units = pieces(text, language)
    at = set(rng.sample(range(len(units)), max(1, round(share * len(units)))))
    made = []
    for place, unit in enumerate(units):
        if place in at:
            made.append(rng.choice(pool))
        if place not in at or insert:
            made.append(unit)
    return ("" if language in SPACED else " ").join(made)


def pieces(text: str, language: str) -> list[str]:
    """Words; in scripts without spaces letters, in Thai and Lao four of them, and Latin words whole."""
    if language not in SPACED:
        return text.split(" ")
    return re.findall(r"[A-Za-z0-9]+|[\u0e00-\u0eff]{1,4}|.", text, flags=re.DOTALL)


def _without(text: str, share: float, put: str, rng: random.Random) -> str:
    """The text with that share of the letters inside words lost, something put in their place."""
    inside = [match.start() for match in re.finditer(r"(?<=\w)\w(?=\w)", text)]
    gone = set(rng.sample(inside, max(1, round(share * len(inside))))) if inside else set()
    return "".join(put if place in gone else letter for place, letter in enumerate(text))


def changes(text: str, pool: list[str], language: str, rng: random.Random, other: str) -> dict[str, str]:
    """A copy of the text for each kind of change. other: a text of the language."""
    bare = "".join(c for c in text if c.isalnum() or c.isspace() or ord(c) > 0x2FF)
    paragraphs = [line for line in text.split("\n") if line.strip()]
    rng.shuffle(paragraphs)
    quoted = "\n".join("> " + line for line in other.split("\n"))
    return {
        "upper case": text.upper(),
        "lower case": text.lower(),
        "doubled spaces": text.replace(" ", "  "),
        "no spaces": "".join(text.split()),
        "one line": " ".join(text.split()) if "\n" in text.strip() else text,
        "no punctuation": bare,
        "2 % words replaced": _changed(text, 0.02, pool, language, rng),
        "2 % words inserted": _changed(text, 0.02, pool, language, rng, insert=True),
        "10 % words replaced": _changed(text, 0.1, pool, language, rng),
        "30 % words replaced": _changed(text, 0.3, pool, language, rng),
        "navigation line": NAVIGATION + text,
        "navigation line behind": text + "\n" + NAVIGATION,
        "first half": text[: len(text) // 2],
        "second half": text[len(text) // 2 :],
        "a tenth cut": text[: 9 * len(text) // 10],
        "said twice": text + "\n" + text,
        "2 % letters lost": _without(text, 0.02, " ", rng),
        "1 % broken letters": _without(text, 0.01, "\ufffd", rng),
        "ligatures lost": re.sub("ffi|ffl|fi|fl|ff", " ", text),
        "more quotation": f"{text}\n\nOn Monday John Smith wrote:\n{quoted}",
        "page around it": NAVIGATION.replace(" | ", "\n")
        + text
        + "\nShare this: Facebook Twitter\nRelated\n"
        + PAGE_END,
        "HTML": "".join(f"<p>{_numbered(line)}</p>\n" for line in text.split("\n")),
        "JSON": json.dumps(text),
        "percent": urllib.parse.quote(text),
        "mojibake": text.encode().decode("latin-1"),
        "Cyrillic for Latin": text.translate(LOOKS),
        "paragraphs": "\n".join(paragraphs),
        "concatenation": text + "\n" + other,
    }


def _numbered(text: str) -> str:
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode()


def scored(model: PoolModel, texts: list[str], languages: list[str]) -> dict[str, float]:
    """The content score of texts."""
    documents = Documents(np.arange(len(texts)), texts, languages=languages)
    return dict(zip(texts, ContentScorer(model).score(documents).score.tolist(), strict=True))


def planted(corpus: str, with_scores: bool, seed: int, parts: int, wanted: Sequence[str]) -> None:
    """Of each change: the share of pairs of which one falls, and of these the share in which the intact one stays."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for path in sorted(Path(corpus).glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
        by = defaultdict(list)
        for row in rows:
            if row["text"] and LETTERS[0] <= len(row["text"]) <= LETTERS[1]:
                by[(row["language"] or "").split("_")[0]].append(row["text"])
        copies = []  # text, base, kind, language
        for language in wanted:
            if not by[language]:
                continue
            programs = are_programs(by[language])  # these are copies by a rule of their own
            every = [text for text, program in zip(by[language], programs, strict=True) if not program]
            pool = [w for t in every for w in (pieces(t, language) if language in SPACED else t.split()) if w.strip()]
            for base in rng.sample(sorted(set(every)), min(A_LANGUAGE, len(set(every)))):
                # one change a document, in turn: all copies of one document would be a family
                for kind, text in changes(base, pool, language, rng, rng.choice(every)).items():
                    copies.append((text, base, kind, language))  # one that is no change is left out below
        report = []
        model = None
        real = [(row["text"], row["language"]) for row in rows if row["text"] and row["text"].strip()]
        kinds = list(dict.fromkeys(kind for _, _, kind, _ in copies))
        many = len(kinds)
        for part in range(many):  # every document once with each change, in as many corpora
            chosen = [
                copy
                for place, copy in enumerate(copies)
                if (place // many + place % many) % many == part and copy[0] != copy[1]
            ]
            score = None
            if with_scores:  # the corpus is counted with the copies in it, as a run counts it
                model = fit_pool_model(*sample([*real, *((copy, language) for copy, _, _, language in chosen)]))
                both = {text: language for copy, base, _, language in chosen for text in (copy, base)}
                score = scored(model, list(both), list(both.values()))
            report.append(_plant(rows, chosen, f"{folder}/{part}", rng, score, model))
            print(f"corpus {part}: {sum(caught for _, _, caught, _ in report[-1])} of {len(chosen)} found", flush=True)
            shutil.rmtree(f"{folder}/{part}")
            if part + 1 >= parts:
                break
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for copies_of_part in report:
        for kind, language, caught, intact in copies_of_part:
            found[kind, language].append((caught, intact))
    languages = sorted({language for _, language in found})
    number = sum(map(len, found.values()))
    print(
        f"seed {seed}, {number} copies among {len(real)} documents, in corpora of about {number // len(report)} copies"
    )
    lines = []
    for kind in kinds:
        every = [x for language in languages for x in found[kind, language]]
        if not every:
            continue
        intact = [i for c, i in every if c]
        worst = min(languages, key=lambda n: np.mean([c for c, _ in found[kind, n]] or [2]))
        least = float(np.mean([c for c, _ in found[kind, worst]]))
        caught = float(np.mean([c for c, _ in every]))
        right = float(np.mean(intact)) if intact and kind not in ALIKE else "–"
        lines.append([kind, len(every), caught, f"{worst} {least:.2f}", right])
    print(f"{len(languages)} languages: {', '.join(languages)}\n")
    table(["change", "copies", "one of the two falls", "least in", "the intact one stays"], lines)


def _plant(rows, chosen, folder, rng, score, model) -> list[tuple[str, str, bool, bool]]:
    """Adds the copies at random places among the documents; (kind, language, caught, the intact one stays) of each."""
    everything: list[tuple[str, int | None]] = []
    everything += [(row["text"], None) for row in rows if row["text"] and row["text"].strip()]
    place_of = {}
    everything += [(text, number) for number, (text, _, _, _) in enumerate(chosen)]
    rng.shuffle(everything)
    Path(f"{folder}/in").mkdir(parents=True)
    size = -(-len(everything) // 3)
    for number in range(3):
        part = everything[number * size : (number + 1) * size]
        pq.write_table(pa.table({"text": [t for t, _ in part]}), f"{folder}/in/{number}.parquet", row_group_size=1000)
    files, config = prepared(f"{folder}/in", f"{folder}/work", score, model)
    files, _ = run(files, config, f"{folder}/work")
    by_text = defaultdict(list)
    for number, f in enumerate(files):
        for chunk, (text, which) in enumerate(everything[number * size : (number + 1) * size]):
            if which is None:
                by_text[text].append((f.shard.name, chunk))
            else:
                place_of[which] = (f.shard.name, chunk)
    gone = fallen(files)
    found = []
    for number, (_, base, kind, language) in enumerate(chosen):
        originals = by_text[base]
        base_stays = any(place not in gone for place in originals)
        copy_stays = place_of[number] not in gone
        found.append((kind, language, not (base_stays and copy_stays), base_stays))
    return found


# ---------------------------------------------------------------- scale


def scale(corpus: str, seconds: int, most: int) -> None:
    """Time and memory by documents: texts mixed of real sentences, a tenth near-copies; a process for each size."""
    lines = []
    for documents in (10_000, 30_000, 100_000, 300_000, 1_000_000):
        if documents > most:
            break
        done = subprocess.run(
            [sys.executable, __file__, "one-size", "--corpus", corpus, "--documents", str(documents)],
            capture_output=True,
            text=True,
            check=True,
        )
        lines.append(done.stdout.strip().split("\t"))
        print("\t".join(lines[-1]), flush=True)
        if float(lines[-1][2]) + float(lines[-1][3]) > seconds / 3:
            break
    table(
        [
            "documents",
            "MB of text",
            "signatures s",
            "duplicates s",
            "ms a document",
            "peak memory MB",
            "before them MB",
            "fall",
        ],
        lines,
    )


def one_size(corpus: str, documents: int) -> None:
    rng = random.Random(1)
    texts = pq.read_table(sorted(Path(corpus).glob("*.parquet"))[0], columns=["text"])["text"].to_pylist()
    sentences = sorted({s.strip() for t in texts if t for s in t.replace("\n", " ").split(". ") if 30 < len(s) < 300})
    with tempfile.TemporaryDirectory() as folder:
        Path(f"{folder}/in").mkdir()
        size = 0
        shard = 25_000
        last: list[str] = []
        for number in range(-(-documents // shard)):
            rows = []
            for _ in range(min(shard, documents - number * shard)):
                if last and rng.random() < 0.1:
                    words = rng.choice(last).split(" ")
                    words[rng.randrange(len(words))] = "changed"
                    rows.append(" ".join(words))
                else:
                    # words of two sentences are interleaved, so that the same sentence seldom comes whole
                    rows.append(". ".join(_mixed(rng, sentences) for _ in range(rng.randint(3, 15))))
            last = rows[:1000]
            size += sum(map(len, rows))
            pq.write_table(pa.table({"text": rows}), f"{folder}/in/{number:04d}.parquet", row_group_size=1000)
        files, config = prepared(f"{folder}/in", f"{folder}/work")
        del last, rows
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        now, spent = run(files, config, f"{folder}/work")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        lost = sum(required(f.duplicates).rows for f in now)
    took = spent["signatures"] + spent["duplicates"]
    print(
        documents,
        round(size / 1e6),
        f"{spent['signatures']:.1f}",
        f"{spent['duplicates']:.1f}",
        f"{1000 * took / documents:.3f}",
        round(peak),
        round(base),
        lost,
        sep="\t",
    )


def _mixed(rng: random.Random, sentences: list[str]) -> str:
    one, two = rng.choice(sentences).split(), rng.choice(sentences).split()
    cut = rng.randint(1, len(one))
    return " ".join(one[:cut] + two[rng.randrange(len(two)) :])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["planted", "scale", "one-size"])
    parser.add_argument("--corpus", default="../shared/data/real")
    parser.add_argument("--scored", action="store_true", help="planted: give the texts their content score")
    parser.add_argument("--parts", type=int, default=3, help="planted: corpora, of 28; a document comes once in each")
    parser.add_argument("--languages", default=",".join(LANGUAGES), help="planted: of the documents copied")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.what == "planted":
        planted(given.corpus, given.scored, given.seed, given.parts, given.languages.split(","))
    elif given.what == "scale":
        scale(given.corpus, given.seconds, given.documents)
    else:
        one_size(given.corpus, given.documents)


if __name__ == "__main__":
    main()
