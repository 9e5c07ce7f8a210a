"""Every kind of selection by this version and by an earlier one, from the same arrays: gaps and processor seconds.

    git archive COMMIT datamask | tar -x -C OTHER
    datamask curate --input CORPUS --output OUT
    python benchmarks/selection_before.py OUT --before OTHER --target ITEMS.jsonl.gz --documents 20000 36000 100000

More documents than the corpus has are its own documents again: their vectors with noise, their lengths within a tenth,
and nine tenths of their words. Both versions run by turns, each in a process of its own that has compiled its loops.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, load_npz, save_npz

KINDS = {"default": {}, "target": {}, "Pair_simi": {"algorithm": "Pair_simi"}, "DiSF": {"algorithm": "DiSF"}}
UNITS = {"tokens": "budget_tokens", "documents": "budget_documents"}
BUDGET = 0.1  # share of the corpus
LIMITS = {
    "no limit": {},
    "length": {"length_tolerance": 0.1},
    "quota": {"quotas": [{"column": "language", "as_pool": 0.1}]},
}
NOISE, LENGTHS, WORDS = 0.3, 0.1, 0.9  # of a perturbed document: length of the noise beside a vector's, and shares


def gather(output: str, folder: Path) -> None:
    """Saves the candidates' arrays of a curated corpus."""
    from datamask.config import load_config
    from datamask.selection.candidates import group_of, read_candidates
    from datamask.selection.stage import with_their_atoms
    from datamask.stages import recorded

    files, config, work = recorded(output)
    quota = "select.quotas=[{column: language, as_pool: 0.1}]"
    config = load_config(None, [quota], config.model_dump(mode="json"))
    ready = with_their_atoms(files, config, work)
    group = group_of(ready, [read_candidates(each, config) for each in ready], config)
    np.savez(
        folder / "whole.npz",
        features=group.features(),
        quality=group.quality,
        tokens=group.tokens,
        language=group.groups["language"],
    )
    save_npz(folder / "whole-words.npz", group.ngrams(), compressed=False)


def resize(folder: Path, count: int) -> str:
    """Saves arrays of so many documents, and returns their name."""
    arrays, words = dict(np.load(folder / "whole.npz")), csr_array(load_npz(folder / "whole-words.npz"))
    generator, whole = np.random.default_rng(count), len(arrays["quality"])
    rows = generator.permutation(max(count, whole))[:count] % whole
    made = {name: values[rows] for name, values in arrays.items()}
    words = words[rows]
    if count > whole:
        features = made["features"].astype(np.float32)
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        noise = generator.standard_normal(features.shape, np.float32) * (NOISE / features.shape[1] ** 0.5)
        made["features"] = (features + noise).astype(np.float16)
        made["tokens"] = np.maximum(1, np.rint(made["tokens"] * generator.uniform(1 - LENGTHS, 1 + LENGTHS, count)))
        kept = generator.random(len(words.data), np.float32) < WORDS
        start = np.concatenate([[0], np.cumsum(kept)])[words.indptr]
        words = csr_array((words.data[kept], words.indices[kept], start), shape=words.shape)
    np.savez(folder / f"{count}.npz", **made)
    save_npz(folder / f"{count}-words.npz", words, compressed=False)
    return str(folder / str(count))


CHILD = (
    f"BUDGET = {BUDGET}"
    + """
import json, sys, time, warnings
import numpy as np
from scipy.sparse import csr_array, load_npz
warnings.simplefilter("ignore")
from datamask import select
held = {}
for line in sys.stdin:
    name, unit, settings, target = json.loads(line)
    if name not in held:
        held = {name: (dict(np.load(name + ".npz")), csr_array(load_npz(name + "-words.npz")))}
    arrays, words = held[name]
    asked = {"groups": {"language": arrays["language"]}, "tokens": arrays["tokens"], **settings}
    whole = arrays["tokens"].sum() if unit == "budget_tokens" else len(words.indptr) - 1
    asked[unit] = round(BUDGET * float(whole))
    if settings.get("algorithm") is None:
        asked["atoms"] = words
    if target:
        asked["target"] = target
    began = time.process_time()
    found = select(arrays["features"], arrays["quality"], **asked)
    print(json.dumps([found.gap, time.process_time() - began]), flush=True)
"""
)


class Version:
    """A process that selects with the datamask of a folder."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", CHILD], cwd=folder, env=environment, **pipes)

    def select(self, name: str, unit: str, settings: dict, target: list[str] | None) -> tuple[float, float]:
        """The gap and the processor seconds."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([name, unit, settings, target]) + "\n")
        self.process.stdin.flush()
        gap, seconds = json.loads(self.process.stdout.readline())
        return gap, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="of `datamask curate`")
    parser.add_argument("--before", type=Path, required=True, help="a folder that holds the earlier datamask/")
    parser.add_argument("--target", required=True, help="a file of texts that `target` chooses for")
    parser.add_argument("--documents", type=int, nargs="+", default=[20_000])
    parser.add_argument("--only", nargs="+", choices=[*KINDS], default=[*KINDS])
    given = parser.parse_args()
    from datamask.selection.cover.counting import read_target

    texts = list(read_target([given.target]).texts)
    versions = [Version(given.before.resolve()), Version(Path(__file__).resolve().parents[1])]
    print("| documents | objective | budget | " + " | ".join(LIMITS) + " |")
    print("|--:|---|---" + "|--:" * len(LIMITS) + "|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        gather(given.output, Path(folder))
        small = resize(Path(folder), 400)
        for count in given.documents:
            name = resize(Path(folder), count)
            for kind, unit in itertools.product(given.only, UNITS):
                cells, target = [], texts if kind == "target" else None
                for limit in LIMITS.values():
                    settings = {**KINDS[kind], **limit}
                    for version in versions:
                        version.select(small, UNITS[unit], settings, target)  # its loops are compiled
                    (gap, seconds), (now, less) = (
                        version.select(name, UNITS[unit], settings, target) for version in versions
                    )
                    cells.append(f"{gap:.3%} → {now:.3%}, {seconds:.1f} → {less:.1f} s")
                print(f"| {count:,} | {kind} | {unit} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
