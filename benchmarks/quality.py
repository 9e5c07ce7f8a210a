"""The quality scores: how fast, beside datatrove's filters, and how good, beside a fitted probe; in one run.

    python benchmarks/quality.py --data '../shared/data/real/real-*.parquet'

Speed: one core, the same documents, after a warm-up.
datatrove runs Gopher repetition, Gopher quality, C4 and FineWeb on each document, as FineWeb's pipeline does for one
that passes all, with its own English tokenizer (spaCy); of our signals every one is counted for every document.
Verdicts: the share of documents on which each rule's verdict is datatrove's.
Quality: main content against whole pages (wcxb; AUC), and the share of clean text by GPT-4's line labels
(fineweb_gpt4_lines; Spearman). Nothing of the heuristic is fitted to these labels; the probes are, in five-fold cross
validation, a page's two texts never on both sides.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from scipy.stats import spearmanr

from datamask.config import EncoderSettings as EncoderSettings
from datamask.encoders.choose import fit_static_encoder as fit_encoder
from datamask.encoders.load import load_encoder
from datamask.encoders.pin import pin_model
from datamask.quality import RULES
from datamask.quality.documents import Documents
from datamask.quality.fit import Agreement, Labels, agreement, out_of_fold, read_labels
from datamask.quality.probe import features
from datamask.quality.rules import SIGNALS, score_rules


def load(data: str) -> list[dict[str, Any]]:
    """Rows with text, in the corpus's order."""
    query = f"select text, source, quality, language, meta from read_parquet('{data}') where trim(text) <> ''"
    found = duckdb.sql(query).to_arrow_table().to_pylist()
    return [row for row in found if not row["text"].isspace()]


def heuristics(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Signals (n, signals) and scores (n,)."""
    signals = Documents(np.arange(len(texts)), texts).signals
    return signals, score_rules(signals)


# ---------------------------------------------------------------- speed and verdicts


def speed(texts: list[str], repeats: int = 3) -> None:
    from datatrove.data import Document
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    pipeline = [
        GopherRepetitionFilter(),
        GopherQualityFilter(),
        C4QualityFilter(filter_no_terminal_punct=False),
        FineWebQualityFilter(),
    ]

    def datatrove() -> None:
        for text in texts[: len(texts) // 10]:
            for step in pipeline:
                step.filter(Document(text=text, id="0"))

    def ours() -> None:
        heuristics(texts)

    rows = []
    for name, run, documents in (("datamask", ours, len(texts)), ("datatrove", datatrove, len(texts) // 10)):
        heuristics(texts[:50])
        seconds = []
        for _ in range(repeats if name == "datamask" else 1):
            began = time.process_time()
            run()
            seconds.append(time.process_time() - began)
        size = sum(len(text.encode()) for text in texts[:documents])
        rows.append((name, documents, size / documents, documents / min(seconds), size / 1e6 / min(seconds)))
    print("\n| | documents | bytes each | documents/s | MB/s | times |\n|---|---|---|---|---|---|")
    for name, documents, each, rate, bandwidth in rows:
        print(f"| {name} | {documents:,} | {each:,.0f} | {rate:,.0f} | {bandwidth:.1f} | {rate / rows[-1][3]:.1f} |")


def agreement_with_datatrove(texts: list[str]) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.quality.peers import filters, verdicts

    judges = filters()
    signals = [dict(zip(SIGNALS, row, strict=True)) for row in heuristics(texts)[0]]
    ours = np.array([[not rule.passes(row[rule.signal]) for rule in RULES] for row in signals])
    theirs = [verdicts(text, judges) for text in texts]
    print(f"\n{'rule':40}{'we fail':>9}{'they fail':>11}{'agree %':>9}")
    for place, rule in enumerate(RULES):
        known = [rule.name in failed for failed in theirs]
        skip = np.array([f"{rule.name}?" in failed for failed in theirs])  # one verdict hid another
        same = ((ours[:, place] == known) | skip).mean()
        print(f"{rule.name:40}{ours[:, place].sum():>9,}{sum(known):>11,}{100 * same:>9.2f}")


# ---------------------------------------------------------------- quality


def static_vectors(texts: list[str], corpus: list[str], folder: str) -> np.ndarray:
    """The default encoder's vectors, fitted on the corpus."""
    settings = EncoderSettings()
    fit_encoder(corpus[: settings.fit_documents], settings, folder)
    model = load_encoder(pin_model(settings.model_copy(update={"model": folder}), f"{folder}-work"), "cpu")
    return model.compute(model.tokenise(texts), settings.batch_tokens).vectors


def quality(rows: list[dict[str, Any]], folder: str) -> None:
    texts = [row["text"] for row in rows]
    source = np.array([row["source"] for row in rows])
    page = np.array([json.loads(row["meta"] or "{}").get("page", "") for row in rows])
    wcxb = np.isin(source, ["wcxb_main", "wcxb_page"])
    lines = source == "fineweb_gpt4_lines"
    chosen = np.flatnonzero(wcxb | lines)
    some = [texts[i] for i in chosen]
    vectors = static_vectors(some, [texts[i] for i in np.random.default_rng(0).permutation(len(texts))], folder)
    _, heuristic = heuristics(some)
    length = np.array([len(text) for text in some], dtype=np.float64)
    print("\n| score | wcxb_main against wcxb_page, AUC | GPT-4's clean lines, Spearman | with length, the same two |")
    print("|---|---|---|---|")
    tasks: list[tuple[np.ndarray, Labels]] = [
        (wcxb[chosen], read_labels(source[wcxb].tolist(), page[wcxb].tolist(), "wcxb_main", "wcxb")),
        (lines[chosen], read_labels([rows[i]["quality"] for i in np.flatnonzero(lines)], None, None, "lines")),
    ]
    predictions: dict[str, list[np.ndarray]] = {"heuristic": [], "length": []}
    folds = []
    for inputs, name in ((None, "probe, signals"), (vectors, "probe, signals + static embedding")):
        for mask, labels in tasks:
            documents = Documents(np.arange(mask.sum()), [some[i] for i in np.flatnonzero(mask)])
            part = features(None if inputs is None else inputs[mask], documents)
            predicted, fold = out_of_fold(part, labels, 0, "benchmark")
            predictions.setdefault(name, []).append(predicted)
            folds.append(fold)
    for mask, _ in tasks:
        predictions["heuristic"].append(heuristic[mask])
        predictions["length"].append(length[mask])

    for name, found in predictions.items():
        cells = [
            shown(agreement(one, labels, fold)) for one, (_, labels), fold in zip(found, tasks, folds, strict=False)
        ]
        lengths = [f"{spearmanr(one, length[mask])[0]:.2f}" for one, (mask, _) in zip(found, tasks, strict=True)]
        print(f"| {name} | {cells[0]} | {cells[1]} | {' / '.join(lengths)} |")
    print("(over all documents; lowest and highest of five folds in brackets)")


def shown(found: Agreement) -> str:
    return f"{found.pooled:.3f} [{min(found.folds):.3f}, {max(found.folds):.3f}]"


def languages(rows: list[dict[str, Any]]) -> None:
    news = [row for row in rows if row["source"] == "masakhanews"]
    found = heuristics([row["text"] for row in news])[1]
    language = np.array([row["language"] for row in news])
    medians = {name: float(np.median(found[language == name])) for name in np.unique(language)}
    print("\nmedian score of human-edited news by language: " + ", ".join(f"{k} {v:.2f}" for k, v in medians.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="glob of parquet files")
    parser.add_argument("--documents", type=int, default=4000, help="for speed; a tenth of them for datatrove")
    parser.add_argument("--verdicts", type=int, default=600, help="documents for the comparison rule by rule")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = load(options.data)
    print(f"{len(rows):,} documents, {sum(len(row['text']) for row in rows) / len(rows):,.0f} characters on average")
    chosen = [row["text"] for row in rows if len(row["text"]) < 100_000][: options.documents]
    speed(chosen)
    agreement_with_datatrove([text for text in chosen if len(text) < 30_000][: options.verdicts])
    with tempfile.TemporaryDirectory() as folder:
        quality(rows, str(Path(folder) / "encoder"))
    languages(rows)


if __name__ == "__main__":
    main()
