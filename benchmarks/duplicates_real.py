"""What falls of a real corpus as a duplicate, whom it hits, whether it is right, and what other tools find there.

    python benchmarks/duplicates_real.py outcome OUT --before OLD    # language × outcome, an earlier version beside it
    python benchmarks/duplicates_real.py sample OUT --seed 1 > pairs.txt       # 200 pairs, to be read
    python benchmarks/duplicates_real.py peers OUT --python ENV/bin/python     # seconds, documents, all pairs ≥ .8

OUT and OLD are output folders of `datamask curate` on the same input. Nothing is run again by outcome and sample: they
read the releases' decisions. `peers` runs signatures and duplicates anew in a scratch folder, by the run's own scores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from duplicates import SPACED, fallen, run, table

from datamask import storage
from datamask.corpus.read import read_batches
from datamask.filter.resolve import REASONS
from datamask.filter.shingles import likeness, shingles
from datamask.release.differences import Parts, compare
from datamask.stages import recorded

Place = tuple[str, int]  # a shard and a row of it
LEAST = 20  # documents of a language that is shown


def read(out: str, columns: list[str]) -> dict[Place, dict[str, Any]]:
    """Columns of every document of a run's corpus."""
    all_files, config, _ = recorded(out)
    found = {}
    for files in all_files:
        for batch in read_batches(files.shard, config, columns):
            for row in batch.to_pylist():
                found[files.shard.name, row["chunk_id"]] = row
    return found


def duplicates(out: str) -> dict[Place, dict[str, Any]]:
    """Of every document that fell as a duplicate: kind, similarity, and the document that stays."""
    all_files, _, _ = recorded(out)
    return {
        (files.shard.name, row["chunk_id"]): row
        for files in all_files
        for row in storage.read_table(files.duplicates.path).to_pylist()
    }


def reasons(out: str) -> dict[Place, str]:
    """The reason of every document that was left out of the latest release, whatever version made it."""
    found = {}
    for path in sorted(Path(out, "latest", "decisions").rglob("*.parquet")):
        for row in pq.read_table(path, columns=["shard", "chunk_id", "reason"]).to_pylist():
            if row["reason"]:
                found[row["shard"], row["chunk_id"]] = row["reason"]
    return found


# ---------------------------------------------------------------- whom it hits


def outcome(out: str, before: str | None) -> None:
    """Documents that fall by language; confirmed: those whose pair shares 5-grams of words, counted another way."""
    rows, now = read(out, ["text", "language"]), duplicates(out)
    old = {place for place, reason in reasons(before).items() if reason in REASONS.values()} if before else set()
    count, was, fall, confirmed, justified = Counter(), Counter(), Counter(), Counter(), Counter()
    for place, row in rows.items():
        language = row["language"] or "none"
        count[language] += 1
        was[language] += place in old
        if place not in now:
            continue
        fall[language] += 1
        other = rows[now[place]["duplicate_of_shard"], now[place]["duplicate_of"]]
        mine, theirs = (grams(text, language.split("_")[0]) for text in (row["text"], other["text"]))
        common = len(np.intersect1d(mine, theirs, assume_unique=True)) / max(1, min(len(mine), len(theirs)))
        confirmed[language] += common >= CONFIRMED
        justified[language] += place in old and common >= CONFIRMED
    lines = [
        [
            language,
            documents,
            was[language],
            fall[language],
            confirmed[language],
            was[language] / documents,
            fall[language] / documents,
            confirmed[language] / documents,
            "yes" if fall[language] > 2 * confirmed[language] else "no",
        ]
        for language, documents in count.items()
        if documents >= LEAST
    ]
    lines.sort(key=lambda line: (-line[5], -line[6], line[0]))
    table(
        ["language", "documents", "fell before", "fall now", "confirmed", "before", "now", "confirmed", "twice over"],
        lines,
    )
    print(f"all: {sum(was.values())} → {sum(fall.values())}, of these {sum(confirmed.values())} confirmed;", end=" ")
    print(f"fell before and now, confirmed: {sum(justified.values())}")
    print(
        "languages that lose over twice what is confirmed:", [line[0] for line in lines if line[-1] == "yes"] or "none"
    )


CONFIRMED = 0.4  # of the shorter text's 5-grams: with one word in ten replaced .9⁵ = .59 are left


def grams(text: str, language: str) -> np.ndarray:
    """Hashes of 5-grams of words, of letters in scripts without spaces; whatever the case and the marks."""
    made = "".join(c if c.isalnum() else " " for c in text.lower())
    words = list("".join(made.split())) if language in SPACED else made.split()
    return np.unique(np.array([hash(tuple(words[at : at + 5])) for at in range(max(1, len(words) - 4))], np.int64))


# ---------------------------------------------------------------- whether it is right


def sample(out: str, count: int, seed: int, pages: int) -> None:
    """Pairs at random, of each stratum about as many, as text: what only one of the two says stands in ⟦ ⟧.

    :param pages: of the pairs, pages and their own main text.
    """
    now, rows = duplicates(out), read(out, ["text", "language", "source", "meta"])
    strata: dict[str, list[Place]] = defaultdict(list)
    for place, row in sorted(now.items()):
        strata[stratum(row, rows[place], rows[row["duplicate_of_shard"], row["duplicate_of"]])].append(place)
    quota = dict.fromkeys(strata, 0)
    quota[PAGE] = min(pages, len(strata.get(PAGE, [])))
    while sum(quota.values()) < min(count, len(now) - len(strata.get(PAGE, [])) + quota[PAGE]):
        for name in sorted(strata):  # one each in turn, so that small strata are read whole
            if name != PAGE and quota[name] < len(strata[name]) and sum(quota.values()) < count:
                quota[name] += 1
    print(f"seed {seed}; of {len(now)} that fell:")
    for name in sorted(strata):
        print(f"  {name}: {quota[name]} of {len(strata[name])}")
    rng, number = random.Random(seed), 0
    for name in sorted(strata):
        for place in rng.sample(strata[name], quota[name]):
            number += 1
            row = now[place]
            one, two = rows[place], rows[row["duplicate_of_shard"], row["duplicate_of"]]
            like = likeness(shingles(one["text"]), shingles(two["text"]))
            found = compare(one["text"], two["text"])
            lengths = " and ".join(str(len(side["text"].split())) for side in (one, two))
            print(
                f"\n## {number} {name}: {row['similarity']:.3f} (J {like.jaccard:.2f}, C {like.containment:.2f}) "
                f"{one['source']} {one['language']} / {two['source']} {two['language']}, {lengths} words"
            )
            print(f"falls: {marked(found.first)}\nstays: {marked(found.second)}")


PAGE = "page and its main text"


def stratum(row: dict[str, Any], one: dict[str, Any], two: dict[str, Any]) -> str:
    addresses = [json.loads(side["meta"] or "{}").get("page") for side in (one, two)]
    if addresses[0] and addresses[0] == addresses[1] and one["source"] != two["source"]:
        return PAGE
    band = "" if row["kind"] != "near" else " ≥ .77" if row["similarity"] >= 0.77 else " < .77"
    return f"{row['kind']}{band}, {one['source'] if one['source'] == two['source'] else 'two sources'}"


def marked(parts: Parts) -> str:
    shown = {"same": "{}", "only": "⟦{}⟧", "gap": " […{}…] "}
    return "".join(shown[kind].format(text) for kind, text in parts)


# ---------------------------------------------------------------- peers


def five_grams(text: str, numbers: bool) -> np.ndarray:
    """datatrove's shingles: hashes of the 5-grams of the words of its normalised text, which has every number as 0.

    numbers: they stay as they are.
    """
    import xxhash
    from datatrove.utils.text import TextNormConfig, ngrams, simplify_text

    words = simplify_text(text, TextNormConfig(norm_numbers=not numbers)).split()
    return np.unique(
        np.array([xxhash.xxh3_64_intdigest(" ".join(gram).encode()) for gram in set(ngrams(words, 5))], np.uint64)
    )


def alike(sets: dict[Place, np.ndarray]) -> list[tuple[Place, Place]]:
    """All pairs at a Jaccard of .8 or more.

    They share one of their 24 smallest hashes but for one pair in 10⁹.
    """
    index = defaultdict(list)
    for place, hashes in sets.items():
        for value in hashes[:24].tolist():
            index[value].append(place)
    seen = {
        (min(a, b), max(a, b)) for members in index.values() for i, a in enumerate(members) for b in members[i + 1 :]
    }
    found = []
    for a, b in sorted(seen):
        small, large = sorted((len(sets[a]), len(sets[b])))
        if small < 0.8 * large:
            continue
        common = len(np.intersect1d(sets[a], sets[b], assume_unique=True))
        if common and common >= 0.8 * (small + large - common):
            found.append((a, b))
    return found


def peers(out: str, python: str, asked: Sequence[str]) -> None:
    """Of all pairs with a Jaccard of word 5-grams of .8 or more, those of which one falls: ours and other tools."""
    all_files, config, recorded_work = recorded(out)
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(f"{recorded_work}/quality", f"{work}/quality")  # the counts that tell the intact copy
        [pool] = Path(work, "quality").glob("pool-*.safetensors")  # a record holds no facts
        facts = {"pool": f"quality/{pool.name}"}
        bare = replace(all_files[0], signatures=None, filters=None, duplicates=None, masks=None)  # what is made anew
        files = [replace(bare, shard=f.shard, index=f.index, scores=replace(f.scores, facts=facts)) for f in all_files]
        now, seconds = run(files, config, work)
        gone = fallen(now)
    rows = read(out, ["text"])
    texts = {
        place: row["text"]
        for place, row in rows.items()
        if row["text"] and row["text"].strip() and gone.get(place, {}).get("kind") != "exact_duplicate"
    }
    true = {}
    for numbers in (True, False):
        sets = {place: five_grams(text, numbers) for place, text in texts.items()}
        true[numbers] = alike(sets)
        left = [(a, b) for a, b in true[numbers] if a not in gone and b not in gone]
        print(f"numbers {'as they are' if numbers else 'as 0'}: {len(true[numbers])} pairs at ≥ .8, {len(left)} stay")
        for a, b in left[:20]:
            like = likeness(shingles(texts[a]), shingles(texts[b]))
            begins = [repr(texts[place][:90]) for place in (a, b)]
            print(f"  {len(sets[a])} and {len(sets[b])} 5-grams, J {like.jaccard:.3f}, {a} {b}:", *begins)
    print({name: round(value, 1) for name, value in seconds.items()}, flush=True)
    lines = []

    def told(name: str, fell: set[Place], wall: float, cpu: float) -> None:
        shares = [sum(a in fell or b in fell for a, b in found) / max(1, len(found)) for found in true.values()]
        lines.append([name, wall, cpu, len(fell), *shares])
        print(lines[-1], flush=True)

    ours = [sum(seconds[f"{stage}{kind}"] for stage in ("signatures", "duplicates")) for kind in ("", " cpu")]
    told("datamask, signatures and duplicates", {place for place in texts if place in gone}, *ours)
    places = list(texts)
    tools = {
        "datatrove": ("datatrove MinHash (14 × 8)", datatrove),
        "text-dedup": ("text-dedup MinHash (128, 9 × 13)", lambda texts: text_dedup(texts, python)),
        "rensa": ("rensa (128, 16 bands)", lambda texts: rensa(texts, python)),
    }
    for name, tool in (tools[one] for one in asked):
        kept, wall, cpu = tool(list(texts.values()))
        told(name, {place for number, place in enumerate(places) if number not in kept}, wall, cpu)
    table(["", "wall s", "CPU s", "documents fall", "of the pairs ≥ .8, not both stay", "numbers as 0"], lines)


def datatrove(texts: list[str]) -> tuple[set[int], float, float]:
    """Which documents datatrove's MinHash keeps, and its seconds, one process as ours."""
    import xxhash
    from datatrove.data import Document
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.utils.hashing import HashConfig

    config = MinhashConfig(hash_config=HashConfig(precision=64))
    documents = [Document(text=t, id=str(n)) for n, t in enumerate(texts)]
    with tempfile.TemporaryDirectory() as f:
        before = time.perf_counter(), time.process_time()
        signature = MinhashDedupSignature(f"{f}/signatures", config)
        signature._hash_func = lambda gram: xxhash.xxh64_intdigest(gram.encode())  # theirs wants xxhash < 4
        list(signature.run(iter(documents), 0, 1) or [])
        for bucket in range(config.num_buckets):
            MinhashDedupBuckets(f"{f}/signatures", f"{f}/buckets", config=config).run(None, bucket, config.num_buckets)
        MinhashDedupCluster(f"{f}/buckets", f"{f}/remove", config=config).run(None, 0, 1)
        kept = {int(d.id) for d in MinhashDedupFilter(f"{f}/remove").run(iter(documents), 0, 1)}
        spent = time.perf_counter() - before[0], time.process_time() - before[1]
    return kept, *spent


def text_dedup(texts: list[str], python: str) -> tuple[set[int], float, float]:
    """text-dedup's MinHash by its own command; start-up and its reading of a JSON file are in the seconds."""
    command = "-m text_dedup.minhash --path json --split train --column text --ngram 5 --threshold 0.8 --num_perm 128"
    command += " --b 9 --r 13 --hash_func xxh3 --hash_bits 32 --num_proc 1 --seed 1 --min_length 0"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in.jsonl").write_text(lines_of(texts))
        given = [*command.split(), "--data_files", f"{folder}/in.jsonl", "--output", f"{folder}/out"]
        wall, cpu = spent([python, *given, "--cache_dir", f"{folder}/cache"])
        script = f"import datasets; print(*datasets.load_from_disk('{folder}/out')['number'])"
        kept = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout
    return set(map(int, kept.split())), wall, cpu


RENSA = """
import json, re, sys
from rensa import RMinHash, RMinHashLSH
index, kept = RMinHashLSH(threshold=0.8, num_perm=128, num_bands=16), []
signatures = {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    words = re.findall(r"\\w+", row["text"].lower())
    grams = {" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))}
    made = RMinHash(num_perm=128, seed=42)
    made.update(list(grams))
    if not any(made.jaccard(signatures[other]) >= 0.8 for other in index.query(made)):
        index.insert(row["number"], made)
        signatures[row["number"]] = made
        kept.append(row["number"])
json.dump(kept, open(sys.argv[2], "w"))
"""


def rensa(texts: list[str], python: str) -> tuple[set[int], float, float]:
    """rensa's index of MinHashes in one pass: a document falls to an earlier one, estimated at .8."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in.jsonl").write_text(lines_of(texts))
        wall, cpu = spent([python, "-c", RENSA, f"{folder}/in.jsonl", f"{folder}/kept.json"])
        return set(json.loads(Path(folder, "kept.json").read_text())), wall, cpu


def lines_of(texts: list[str]) -> str:
    rows = ({"number": number, "text": text} for number, text in enumerate(texts))
    return "".join(json.dumps(row) + "\n" for row in rows)


def spent(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of a command, which must end well."""
    began, before = time.perf_counter(), os.times()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]}: {done.stderr[-2000:]}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["outcome", "sample", "peers"])
    parser.add_argument("out", help="an output folder of `datamask curate`")
    parser.add_argument("--before", help="outcome: the output folder of an earlier version on the same input")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--pages", type=int, default=40, help="sample: pairs that are a page and its own main text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", default="python3", help="peers: an interpreter that has text-dedup and rensa")
    parser.add_argument("--tools", default="datatrove,text-dedup,rensa", help="peers: which ones beside ours")
    given = parser.parse_args()
    if given.what == "outcome":
        outcome(given.out, given.before)
    elif given.what == "sample":
        sample(given.out, given.count, given.seed, given.pages)
    else:
        peers(given.out, given.python, given.tools.split(","))


if __name__ == "__main__":
    main()
