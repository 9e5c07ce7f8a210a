"""What the static encoder costs to fit, embed with and count tokens with, of whichever datamask is on the path.

    PYTHONPATH=EARLIER python benchmarks/encoders_fit.py --data '../shared/data/real/real-*.parquet'
    PYTHONPATH=. python benchmarks/encoders_fit.py --data '../shared/data/real/real-*.parquet'

Fitted on 800 and on 15,000 documents; then 4,000 others are embedded and their tokens counted, by the larger one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import duckdb

import datamask
from datamask.config import EncoderSettings as Settings
from datamask.encoders.choose import fit
from datamask.encoders.load import load_encoder
from datamask.encoders.pin import pin_model
from datamask.models.tokens import load_tokenizer

T = TypeVar("T")


def timed(what: str, documents: int, run: Callable[[], T]) -> T:
    wall, processor = time.perf_counter(), time.process_time()
    result = run()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"| {what} | {documents:,} | {wall:.1f} | {processor:.1f} | {documents / processor:,.0f} |", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="parquet files with text and id")
    parser.add_argument("--fit", type=int, nargs="+", default=[800, 15_000])
    parser.add_argument("--judge", type=int, default=4_000)
    arguments = parser.parse_args()
    rows = duckdb.sql(
        f"select text from read_parquet('{arguments.data}') where length(trim(text)) > 0 "
        f"order by md5(id), id limit {max(arguments.fit) + arguments.judge}"
    ).fetchall()
    texts = [text for (text,) in rows]
    others = texts[-arguments.judge :]
    print(f"{Path(datamask.__file__).parent}\n| what | documents | wall s | processor s | documents/processor s |")
    print("|---|--:|--:|--:|--:|")
    settings = Settings()
    with tempfile.TemporaryDirectory() as folder:
        for documents in arguments.fit:
            place = f"{folder}/{documents}"
            timed("fit", documents, lambda: fit(texts[:documents], settings, place))  # noqa: B023
        pinned = pin_model(settings.model_copy(update={"model": place}), folder)
        encoder = load_encoder(pinned, "cpu")
        timed("embed", len(others), lambda: encoder.compute(encoder.tokenise(others), settings.batch_tokens))
        counter = load_tokenizer(pinned)
        timed("count tokens", len(others), lambda: counter.count(others))


if __name__ == "__main__":
    main()
