"""Does an encoder work inside every language? Unrelated documents apart, topics together; beside other encoders.

    python benchmarks/encoders_languages.py --data '../shared/data/real/real-*.parquet' [--beside FOLDER …]
                                            [--small] [--length 64]

The static encoder is fitted on 15,000 documents, as `datamask curate` would. For each language with 50 documents or
more: the median cosine of 4,000 random pairs, and the share of documents of --topics whose nearest other document of
the language has their label. FOLDER is any other sentence-transformers model, an earlier static encoder for one;
--small sets all-MiniLM-L6-v2 (English, 22 M parameters) beside; --length is of these models, in tokens. The fit does
not see the languages.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
from encoders_static import small_model

from datamask.config import EncoderSettings as Settings
from datamask.encoders.choose import fit_static_encoder
from datamask.encoders.load import load_encoder
from datamask.encoders.pin import pin_model

LEAST = 50  # documents of a language
PAIRS = 4000


def encode(texts: list[str], folder: str, work: str, **settings: object) -> np.ndarray:
    """float32 [texts, dimensions], by the model of a folder."""
    chosen = Settings(model=folder, **settings)
    encoder = load_encoder(pin_model(chosen, work), "cpu")
    return encoder.compute(encoder.tokenise(texts), chosen.batch_tokens).vectors


def median_cosine(vectors: np.ndarray) -> float:
    one, other = np.random.default_rng(0).integers(len(vectors), size=(2, PAIRS))
    apart = one != other
    return float(np.median((vectors[one[apart]] * vectors[other[apart]]).sum(axis=1)))


def nearest_agrees(vectors: np.ndarray, labels: np.ndarray) -> float:
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -2)
    return float(np.mean(labels[cosines.argmax(axis=1)] == labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="parquet files with text, id, source, language and label")
    parser.add_argument("--topics", default="masakhanews", help="the source whose labels are topics")
    parser.add_argument("--beside", nargs="*", default=[], help="folders of other models")
    parser.add_argument("--small", action="store_true", help="all-MiniLM-L6-v2 too")
    parser.add_argument("--length", type=int, default=256, help="tokens of the other models")
    parser.add_argument("--each", type=int, default=2000, help="documents of a language at most")
    arguments = parser.parse_args()
    whole = f"from read_parquet('{arguments.data}') where length(trim(text)) > 0 order by md5(id), id"
    sample = [text for (text,) in duckdb.sql(f"select text {whole} limit 15000").fetchall()]
    rows = duckdb.sql(
        f"select text, language, source = '{arguments.topics}', coalesce(label, '') from (select *, row_number() over "
        f"(partition by language order by md5(id), id) as number, count(*) over (partition by language) as size "
        f"{whole}) where language is not null and size >= {LEAST} and number <= {arguments.each} order by size desc, 2"
    ).fetchall()
    texts = [row[0] for row in rows]
    languages, topics, labels = (np.array(column) for column in list(zip(*rows, strict=True))[1:])
    found = {}
    with tempfile.TemporaryDirectory() as work:
        began = time.perf_counter()
        fit_static_encoder(sample, Settings(), f"{work}/static")
        print(f"fitted in {time.perf_counter() - began:.1f} s; {len(texts)} documents judged")
        for folder in arguments.beside:
            found[Path(folder).name] = encode(texts, folder, work, max_length=arguments.length)
        found["static"] = encode(texts, f"{work}/static", work)
        if arguments.small:
            found["all-MiniLM-L6-v2"] = encode(texts, small_model(), work, dimensions=384, max_length=arguments.length)
    names = list(found)
    print("| language | documents | " + " | ".join(f"median cosine, {name}" for name in names), end=" | ")
    print(" | ".join(f"nearest has the label, {name}" for name in names) + " |\n" + "|---" * (2 + 2 * len(names)) + "|")
    sums: list[list[float]] = []
    for language in dict.fromkeys(languages):
        own = languages == language
        cells = [f"{median_cosine(found[name][own]):.2f}" for name in names]
        of_topic = own & topics
        if of_topic.sum() >= LEAST:
            sums.append([nearest_agrees(found[name][of_topic], labels[of_topic]) for name in names])
            cells += [f"{share:.3f}" for share in sums[-1]]
        else:
            cells += [""] * len(names)
        print(f"| {language} | {own.sum()} | " + " | ".join(cells) + " |", flush=True)
    means = " | ".join(f"{share:.3f}" for share in np.mean(sums, axis=0))
    print(f"| mean of {len(sums)} with topics | | " + "| " * len(names) + means + " |")


if __name__ == "__main__":
    main()
