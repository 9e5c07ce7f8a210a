"""Tokens a second of `datamask tokens` beside datatrove's `DocumentTokenizer`: the same release, tokenizer and format.

    python benchmarks/tokens.py OUT --vocabulary 32000 --repeat 3

Each run is a process of its own with one thread, by turns; seconds are of the processor, without the loading of
modules, and the least of the runs counts. datatrove reads the release's data files by its own reader; both shuffle. The
tokenizer is a byte-level BPE, fitted on the release's first texts.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.tokens import DocumentTokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from datamask.maps import here
from datamask.release.release_folder import find_release
from datamask.release.tokens.token_files import TokenOptions, verify_tokens, write_tokens

END = "<|endoftext|>"


def fit(release: str, folder: Path, vocabulary: int, texts: int) -> None:
    files = [file["path"] for file in find_release(release).manifest()["files"] if file["path"].startswith("data/")]
    found: list[str] = []
    for path in files:
        found += pq.read_table(f"{find_release(release).path}/{path}", columns=["text"])["text"].to_pylist()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(found[:texts], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def ours(release: str, tokenizer: str, target: str) -> None:
    write_tokens(find_release(release), tokenizer, TokenOptions("nanoset"), target, here)


def checked(release: str, tokenizer: str, target: str) -> None:
    (folder,) = Path(target).parent.glob("ours-0/nanoset-*")
    assert verify_tokens(str(folder), find_release(release)) == []


def datatrove(release: str, tokenizer: str, target: str) -> None:
    reader = ParquetReader(f"{find_release(release).path}/data", glob_pattern="*/*.parquet", text_key="text")
    writer = DocumentTokenizer(target, f"{tokenizer}/tokenizer.json", eos_token=END, seed=0)
    writer.run(reader.run(rank=0, world_size=1))


WAYS = {"datamask tokens": ours, "datatrove DocumentTokenizer": datatrove, "datamask verify --tokens": checked}


def tokens_in(folder: Path) -> tuple[int, int]:
    """Tokens and documents of a folder of .ds files."""
    ends = [np.fromfile(path, "<u8") for path in folder.rglob("*.ds.index")]
    return sum(int(one[-1]) for one in ends), sum(map(len, ends))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release")
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--texts", type=int, default=1000, help="the tokenizer is fitted on")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--at", nargs=2, metavar=("TOKENIZER", "TARGET"))
    given = parser.parse_args()
    if given.way:
        before = resource.getrusage(resource.RUSAGE_SELF)
        WAYS[given.way](given.release, *given.at)
        after = resource.getrusage(resource.RUSAGE_SELF)
        print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        fit(given.release, folder / "bpe", given.vocabulary, given.texts)
        names = dict(zip(WAYS, ("ours", "theirs", "check"), strict=True))
        spent: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(given.repeat):
            for way in WAYS:
                target = str(folder / f"{names[way]}-{turn}")
                command = [sys.executable, __file__, given.release, "--way", way, "--at", str(folder / "bpe"), target]
                done = subprocess.run(
                    command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
                spent[way].append(float(done.stdout.split()[-1]))
        assert tokens_in(folder / "ours-0") == tokens_in(folder / "theirs-0")
        tokens, documents = tokens_in(folder / "ours-0")
        print("| way | documents | tokens | processor s | tokens/s |\n|---|--:|--:|--:|--:|")
        for way, seconds in spent.items():
            print(f"| {way} | {documents:,} | {tokens:,} | {min(seconds):.1f} | {tokens / min(seconds):,.0f} |")


if __name__ == "__main__":
    main()
