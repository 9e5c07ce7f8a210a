"""The judges on real text: choices against random draws; one half of the corpus chooses, the other one reports.

    python benchmarks/judge.py arms  --corpus out/real --targets '../shared/data/tasks/*.jsonl.gz' --to out/judge
    python benchmarks/encoders_real.py embed --to out/judge --model minilm ../models/all-mpnet-base-v2
    python benchmarks/judge.py arms  --corpus out/real --targets … --to out/judge --encoder minilm all-mpnet-base-v2
    python benchmarks/judge.py read  --corpus out/real --targets … --to out/judge --controls
    python benchmarks/judge.py read  --corpus out/real --targets … --to out/judge --controls --judge network
    python benchmarks/judge.py table --to out/judge

Every choice and every reading is a file in `--to`, so that each command resumes where it stopped. `--corpus` is an
output folder of `datamask curate`, whose embeddings and scores are used; its English documents (said to be, or nothing
said and a share of English function words) are the population.

**What is split, before any run.** The population's sources, the pages and the main texts of one benchmark being one
source, in the order of their bytes, are dealt to the halves `choosing`, `reporting`, `reporting`, `choosing`, and so
on. Of the target sets in alphabetical order the second and every third after it report, the others choose. A choice for
a target is told the items of the choosing sets which no judge reads. So a setting is chosen by the choosing half and
the choosing sets, and said by the reporting half and the reporting sets.

Of a half BEFORE bytes, drawn at random, stand in no pool: the network reads them before every choice. A pool is a
random part of the rest, of POOL_BYTES. Each choice is SHARE of that, cut to --bytes.
"""

from __future__ import annotations

import argparse
import pickle
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from judge_cover import covered, saturating_cover

from datamask.config import Select
from datamask.errors import DatamaskError
from datamask.selection.arrays import select
from datamask.storage import expand_patterns
from datamask.study.coder import BUCKETS, Coder, Ngrams, words_of
from datamask.study.embedded import load_corpus
from datamask.study.inference import Contrast, Trial, agreement, holm
from datamask.study.network import SIZES, Network
from datamask.study.run import without_overlap
from datamask.study.targets import CONTROLS as CONTROLS_OF
from datamask.study.targets import RANDOM, SHUFFLED, Item, Target, _items, _name, bytes_of, choices, read_targets
from datamask.study.verdict import controls
from datamask.text.ngrams import count_ngrams

HALVES = ("choosing", "reporting")
FAMILIES = {"wcxb_main": "wcxb", "wcxb_page": "wcxb"}  # the main texts of the pages, and the pages themselves
EVERY = 3  # of the target sets in alphabetical order the second and every third after it report
POOLS, POOL_BYTES, BYTES, SHARE = 2, 30_000_000, 1_800_000, 0.06
BEFORE = 8_200_000  # bytes of a half that the network reads before every choice
DRAWS, CONTROLS = 8, 3
DEFAULT, BY_DOCUMENTS, ALONE = "words λ 0.7", "words λ 0.7, documents", "target λ 0.3"
TOLD = ("arc_easy", "gsm8k", "piqa")  # sets told one at a time, to choose by the choosing sets that were not told
NAMED = (  # the contrasts, named before any run
    (DEFAULT, RANDOM),
    (BY_DOCUMENTS, RANDOM),
    (DEFAULT, "top-quality"),
    (ALONE, RANDOM),
    (ALONE, "target and embedding 1:1 λ 0.3"),
    (ALONE, "dsir"),
    ("pairwise λ 0.5, mpnet", RANDOM),
)
REAL = {"minilm": "minilm", "all-mpnet-base-v2": "mpnet"}  # vectors' file -> name in an arm's
FUNCTION_WORDS = re.compile(r"\b(?:the|of|and|to|in|is|that|for|it|with|as|was|on|are|by)\b", re.IGNORECASE)


def english(text: str, language: object) -> bool:
    start = text[:20_000]
    share = len(FUNCTION_WORDS.findall(start)) / max(1, len(start.split()))
    return str(language) in ("en", "eng", "None") and share > 0.1


# ---------------------------------------------------------------- halves and pools


def population(corpus: str, to: Path) -> dict[str, Any]:
    """The English documents of a curated corpus: vectors, quality, tokens, texts, sources; kept in `to`."""
    kept = to / "population.pickle"
    if not kept.exists():
        whole = load_corpus(corpus, 1_000_000)
        texts = [row["text"] for row in whole.sample.columns(whole.rows, ["text"])]
        language = whole.groups["language"]
        rows = np.array([english(text, stated) for text, stated in zip(texts, language, strict=True)])
        part = whole.subset(rows)
        found = {
            "static": part.features,
            "quality": part.quality,
            "tokens": part.tokens,
            "source": np.array([FAMILIES.get(str(name), str(name)) for name in part.groups["source"]]),
            "texts": [text.encode() for text, english_ in zip(texts, rows, strict=True) if english_],
        }
        kept.write_bytes(pickle.dumps(found))
    found = pickle.loads(kept.read_bytes())
    for file, name in REAL.items():
        if vectors := sorted(to.glob(f"vectors-{file}-*.npy")):
            found[name] = np.load(vectors[0], mmap_mode="r")
    return dict(found)


def half_of(whole: dict[str, Any]) -> Any:
    """(N,) the half that each document's source was dealt to."""
    sizes = np.array([len(text) for text in whole["texts"]])
    names, places = np.unique(whole["source"], return_inverse=True)
    order = np.argsort(-np.bincount(places, weights=sizes), kind="stable")
    dealt = np.empty(len(names), dtype=object)
    for number, place in enumerate(order):
        dealt[place] = HALVES[(number + 1) // 2 % 2]
    return dealt[places]


def split(whole: dict[str, Any], half: str) -> tuple[Any, Any]:
    """A half's rows: those that the network reads before every choice, and those that pools are drawn from."""
    rows = np.flatnonzero(half_of(whole) == half)
    rows = np.random.default_rng([HALVES.index(half), 113]).permutation(rows)
    sizes = np.cumsum([len(whole["texts"][row]) for row in rows])
    apart = int(np.searchsorted(sizes, BEFORE)) + 1
    return rows[:apart], np.sort(rows[apart:])


def pool_rows(whole: dict[str, Any], half: str, number: int) -> Any:
    """The rows of a pool, ascending."""
    _, among = split(whole, half)
    rows = np.random.default_rng([HALVES.index(half), number, 67]).permutation(among)
    sizes = np.cumsum([len(whole["texts"][row]) for row in rows])
    return np.sort(rows[: int(np.searchsorted(sizes, POOL_BYTES))])


def pool_of(whole: dict[str, Any], half: str, number: int) -> dict[str, Any]:
    """A pool's documents; of each encoder the vectors, where all of them are there."""
    rows = pool_rows(whole, half, number)
    pool: dict[str, Any] = {name: whole[name][rows] for name in ("static", "quality", "tokens", "source")}
    vectors = {name: np.asarray(whole[name][rows]) for name in REAL.values() if name in whole}
    pool |= {name: found for name, found in vectors.items() if np.isfinite(found).all()}
    return {**pool, "texts": [whole["texts"][row] for row in rows]}


def sets_of(targets: Sequence[Target]) -> tuple[list[str], list[str]]:
    """The names of the target sets that choose, and of those that report."""
    names = sorted(target.name for target in targets)
    reporting = names[1::EVERY]
    return [name for name in names if name not in reporting], reporting


def targets_of(options: argparse.Namespace, whole: dict[str, Any]) -> tuple[list[Target], list[Target]]:
    """What judges read: items of all sets that do not stand in the corpus; and what a choice for a target is told."""
    kept = options.to / "targets.pickle"
    if not kept.exists():
        paths = expand_patterns([options.targets])
        targets = read_targets(paths)
        outside, found = without_overlap(targets, whole["texts"], [str(row) for row in range(len(whole["texts"]))])
        print({name: f"{there.items} of {there.of} items stand in the corpus" for name, there in found.items()})
        kept.write_bytes(pickle.dumps((outside, told_of(paths, targets))))
    read, told = pickle.loads(kept.read_bytes())
    return list(read), list(told)


def told_of(paths: Sequence[str], targets: Sequence[Target]) -> list[Target]:
    """The items of the choosing sets that no judge reads, where there are any."""
    choosing, _ = sets_of(targets)
    found = []
    for path, target in zip(paths, targets, strict=True):
        read = set(target.items)
        rest: tuple[Item, ...] = tuple(item for item in _items(path) if item not in read)
        if rest and target.name in choosing:
            found.append(Target(_name(path), rest))
    return found


# ---------------------------------------------------------------- arms


def cover(lamb: float, **atoms: float) -> dict[str, Any]:
    return {"algorithm": "coverage", "lamb": lamb, "coverage": {"atoms": atoms}}


def arms() -> dict[str, dict[str, Any]]:
    """Name -> changes of the settings, and of what is not one of them; budgets in tokens unless the name says so."""
    documents = {"budget": "documents"}
    found: dict[str, dict[str, Any]] = {
        DEFAULT: cover(0.7, ngrams=1),
        BY_DOCUMENTS: {**cover(0.7, ngrams=1), **documents},
        "top-quality": {"solver": "top-quality"},
        "random, the default's source × length × quality": {"solver": "alike"},
        "random above the median of quality": {"solver": "above", "floor": 0.5},
        "dsir": {"solver": "dsir"},
        "words λ 0.3": cover(0.3, ngrams=1),
    }
    for lamb in (0.1, 0.3, 0.5, 0.7):
        found[f"target λ {lamb:g}"] = cover(lamb, target=1)
    found["target and words 2:1 λ 0.3"] = cover(0.3, target=2, ngrams=1)
    found["target and words 1:1 λ 0.3"] = cover(0.3, target=1, ngrams=1)
    for buckets in (14, 16, 18):
        found[f"words in 2^{buckets} λ 0.7"] = {**cover(0.7, ngrams=1), "buckets": buckets}
        found[f"saturating 2^{buckets}, floor 0.5"] = {"solver": "saturating", "buckets": buckets, "floor": 0.5}
    for lamb in (0.1, 0.3, 0.5):
        found[f"saturating 2^18 λ {lamb:g}"] = {"solver": "saturating", "buckets": 18, "floor": 0, "lamb": lamb}
    for floor in (0.0, 0.25, 0.75):
        found[f"saturating 2^18, floor {floor:g}"] = {"solver": "saturating", "buckets": 18, "floor": floor}
    for name in ("static", *REAL.values()):
        vectors = {"vectors": name}
        found |= {
            f"target and embedding 1:1 λ 0.3{of(name)}": {**cover(0.3, target=1, embedding=1), **vectors},
            f"target and embedding 3:1 λ 0.3{of(name)}": {**cover(0.3, target=3, embedding=1), **vectors},
            f"pairwise λ 0.5, {name}": {"algorithm": "pairwise", "lamb": 0.5, **vectors},
            f"pairwise λ 0.3, {name}": {"algorithm": "pairwise", "lamb": 0.3, **vectors},
            f"disf λ 0.5, {name}": {"algorithm": "disf", "lamb": 0.5, **vectors},
            f"facility λ 0.5, {name}": {"algorithm": "facility", "lamb": 0.5, **vectors},
            f"semdedup, documents, {name}": {"solver": "semdedup", **documents, **vectors},
            f"coverage of {name} λ 0.5": {**cover(0.5, embedding=1), **vectors},
        }
        for share in (1, 3, 5):
            found[f"words and {name} {share}:1 λ 0.7"] = {**cover(0.7, ngrams=share, embedding=1), **vectors}
        centred = {
            f"pairwise λ 0.5, {name}, centred": {"algorithm": "pairwise", "lamb": 0.5},
            f"words and {name} 1:1 λ 0.7, centred": cover(0.7, ngrams=1, embedding=1),
            f"words and {name} 3:1 λ 0.7, centred": cover(0.7, ngrams=3, embedding=1),
        }
        found |= {arm: {**changes, **vectors, "centred": True} for arm, changes in centred.items()}
    curve = {"curve": "saturating", "buckets": 1 << 18}  # the solver's; the prototype's arms are those above
    parts = {"words": {"ngrams": 1}, "target and words 2:1": {"target": 2, "ngrams": 1}}
    for name, atoms in (parts | {"words and static 3:1": {"ngrams": 3, "embedding": 1}}).items():
        changes = {"algorithm": "coverage", "lamb": 0.3, "coverage": {"atoms": atoms, **curve}, "buckets": 18}
        found[f"solver's saturating, {name} λ 0.3"] = changes
    for told in TOLD:
        parts = {"target": {"target": 1}, "target and words 2:1": {"target": 2, "ngrams": 1}}
        parts |= {"target and words 1:1": {"target": 1, "ngrams": 1}}
        parts |= {"target and embedding 1:1": {"target": 1, "embedding": 1}}
        found |= {f"{name} λ 0.3, told {told}": {**cover(0.3, **of), "told": told} for name, of in parts.items()}
        found |= {f"target λ 0.1, told {told}": {**cover(0.1, target=1), "told": told}}
        found |= {f"dsir, told {told}": {"solver": "dsir", "told": told}}
    return found


def of(vectors: str) -> str:
    return "" if vectors == "static" else f", {vectors}"


def choose(pool: dict[str, Any], changes: Mapping[str, Any], seed: int, limit: int) -> Any:
    """A mask that holds `limit` bytes: SHARE of the tokens or documents, and more where those hold fewer bytes."""
    changes = dict(changes)
    if told := changes.pop("told", None):
        pool = {**pool, "told": [target for target in pool["told"] if target.name == told]}
        pool.pop("log_weight", None)
    own = {"dsir": dsir, "above": above, "alike": alike, "saturating": saturating}.get(str(changes.get("solver")))
    share = SHARE * 1.02
    for _ in range(8):
        mask = own(pool, changes, share, seed) if own else solved(pool, changes, share, seed)
        held = bytes_of(pool["texts"], mask)
        if held >= limit:
            return mask
        share *= 1.03 * limit / held
    raise SystemExit(f"{changes}: no share of the pool holds {limit:,} bytes")


def solved(pool: dict[str, Any], changes: Mapping[str, Any], share: float, seed: int) -> Any:
    """What the product selects with these settings."""
    changes = dict(changes)
    vectors, centred = pool[changes.pop("vectors", "static")], changes.pop("centred", False)
    buckets = changes.pop("buckets", None)
    if changes.pop("budget", "tokens") == "documents":
        budget = {"budget_documents": round(share * len(pool["tokens"]))}
    else:
        budget = {"budget_tokens": round(share * float(pool["tokens"].sum()))}
    settings = Select.model_validate({"seed": seed, "select_ratio": None, **budget, **changes})
    if centred:
        vectors = np.asarray(vectors, dtype=np.float32)
        vectors = vectors - vectors.mean(axis=0)
    words: dict[str, Any] = {}
    if changes.get("algorithm") == "coverage":
        words["atoms"] = counts(pool, buckets)
        if "target" in changes["coverage"]["atoms"]:
            words["target"] = [
                item.whole.decode("utf-8", "replace") for target in pool["told"] for item in target.items
            ]
    return select(vectors, pool["quality"], tokens=pool["tokens"], settings=settings, **words).selected


def counts(pool: dict[str, Any], buckets: int | None) -> Any:
    """(N, J) the documents' words and pairs, counted once a pool; in the product's table, or in one of 2^buckets."""
    kept = pool.setdefault("counts", {})
    if buckets not in kept:
        texts = (text.decode("utf-8", "replace") for text in pool["texts"])
        kept[buckets] = count_ngrams(texts, 1 << buckets) if buckets else count_ngrams(texts)
    return kept[buckets]


def filled(pool: dict[str, Any], order: Any, share: float) -> Any:
    """The mask of the first documents in an order within a share of the pool's tokens."""
    mask = np.zeros(len(pool["tokens"]), dtype=bool)
    mask[order[np.cumsum(pool["tokens"][order]) <= share * pool["tokens"].sum()]] = True
    return mask


def saturating(pool: dict[str, Any], changes: Mapping[str, Any], share: float, seed: int) -> Any:
    """Greedy cover of words and pairs, each worth half as much at every hit, by documents above a floor of quality.

    With λ, quality is maximised beside it, both measured from a random choice to the best one.
    """
    quality, tokens, words = pool["quality"].astype(np.float64), pool["tokens"], counts(pool, changes["buckets"])
    allowed = quality >= np.quantile(quality, changes["floor"])
    budget = share * float(tokens.sum())
    found = saturating_cover(words, tokens, allowed, budget)
    if not (lamb := changes.get("lamb", 0.0)):
        return found
    drawn = filled(pool, np.random.default_rng([seed, 127]).permutation(len(tokens)), share)
    best = filled(pool, np.argsort(-quality, kind="stable"), share)
    gained = np.average(quality[best], weights=tokens[best]) - np.average(quality, weights=tokens)
    scale = (covered(words, found) - covered(words, drawn)) / gained
    return saturating_cover(words, tokens, allowed, budget, lamb / (1 - lamb) * scale * quality / budget)


def above(pool: dict[str, Any], changes: Mapping[str, Any], share: float, seed: int) -> Any:
    """A random choice of the documents above a quantile of quality."""
    order = np.random.default_rng([seed, 107]).permutation(len(pool["tokens"]))
    order = order[pool["quality"][order] >= np.quantile(pool["quality"], changes["floor"])]
    return filled(pool, order, share)


def alike(pool: dict[str, Any], changes: Mapping[str, Any], share: float, seed: int) -> Any:
    """A random choice in the default's shares of source × thirds of length × thirds of quality, by tokens."""
    chosen = solved(pool, arms()[DEFAULT], share, seed)
    thirds = [
        np.digitize(values, np.quantile(values, [1 / 3, 2 / 3]))
        for values in (pool["tokens"], pool["quality"])
    ]  # fmt: skip
    source = np.unique(pool["source"], return_inverse=True)[1]
    cells = np.unique(np.stack([source, *thirds]), axis=1, return_inverse=True)[1].ravel()
    mask = np.zeros(len(chosen), dtype=bool)
    generator = np.random.default_rng([seed, 109])
    for cell in np.unique(cells):
        rows = generator.permutation(np.flatnonzero(cells == cell))
        wanted = pool["tokens"][chosen & (cells == cell)].sum()
        before = np.cumsum(pool["tokens"][rows]) - pool["tokens"][rows]
        mask[rows[before + generator.random() * pool["tokens"][rows] < wanted]] = True
    return mask


def ngrams(text: bytes) -> Any:
    """The buckets of a text's words and pairs of words in one bag, DSIR's features."""
    words = words_of(text)
    return np.concatenate([words, (words[:-1] * 40_503 + words[1:] + 7) % BUCKETS])


def dsir(pool: dict[str, Any], changes: Mapping[str, Any], share: float, seed: int) -> Any:
    """Importance resampling (arXiv 2302.03169): log-ratio of hashed n-grams, target to pool, and Gumbel noise."""
    if "log_weight" not in pool:
        bags = [np.bincount(ngrams(text), minlength=BUCKETS) for text in pool["texts"]]
        raw = np.sum(bags, axis=0) + 1.0
        aims = [np.concatenate([ngrams(item.whole) for item in target.items]) for target in pool["told"]]
        aimed = np.sum([np.bincount(aim, minlength=BUCKETS) for aim in aims], axis=0) + 1.0
        ratio = np.log(aimed / aimed.sum()) - np.log(raw / raw.sum())
        pool["log_weight"] = np.array([float(bag @ ratio) for bag in bags])
    noise = np.random.default_rng([seed, 71]).gumbel(size=len(pool["log_weight"]))
    return filled(pool, np.argsort(-(pool["log_weight"] + noise)), share)


def make_arms(options: argparse.Namespace, whole: dict[str, Any], told: list[Target]) -> None:
    for half in options.half:
        for number in options.pool:
            pool: dict[str, Any] = {}
            for name, changes in arms().items():
                kept = options.to / f"arm-{half}-{number}-{slug(name)}.npz"
                if kept.exists() or not wanted(name, options.arm):
                    continue
                pool = pool or {**pool_of(whole, half, number), "told": told}
                if changes.get("vectors", "static") not in pool:
                    continue
                started = time.process_time()
                try:
                    mask = choose(pool, changes, number, options.bytes)
                except DatamaskError as error:
                    print(f"{half} {number}  {name}: {error}", flush=True)
                    continue
                seconds = time.process_time() - started
                np.savez(kept, mask=mask, seconds=seconds)
                print(f"{half} {number}  {name}: {mask.sum():,} documents, {seconds:.1f} processor s", flush=True)


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.λ×^:]+", "_", name.lower())


def wanted(name: str, parts: Sequence[str] | None) -> bool:
    return not parts or any(re.fullmatch(part, name) for part in parts)


# ---------------------------------------------------------------- reading


def read(options: argparse.Namespace, whole: dict[str, Any], targets: list[Target]) -> None:
    for half in options.half:
        readers = {name: judge_of(name, options, whole, half) for name in options.judge}
        for number in options.pool:
            pool = pool_of(whole, half, number)
            masks = {name: np.load(path)["mask"] for name, path in chosen_arms(options, half, number)}
            drawn = options.only if options.controls else 0
            seed = [HALVES.index(half), number]
            for arm, draw, choice in choices(pool["texts"], masks, options.bytes, options.draws, seed, drawn):
                for judge, reader in readers.items():
                    kept = options.to / f"read-{half}-{number}-{slug(reader.name)}-{slug(arm)}-{draw}.pickle"
                    if kept.exists():
                        continue
                    started = time.process_time()
                    found = reader.read(choice, targets)
                    seconds = time.process_time() - started
                    told = {"judge": judge, "kind": reader.kind, "half": half, "pool": number, "arm": arm, "draw": draw}
                    kept.write_bytes(pickle.dumps({**told, "read": found, "seconds": seconds}))
                    mean = np.mean([coded.bits_per_byte for coded in found.values()])
                    print(f"{judge}  {half} {number}  {arm} {draw}: {mean:.4f}  {seconds:.1f} s", flush=True)


def chosen_arms(options: argparse.Namespace, half: str, number: int) -> Iterator[tuple[str, Path]]:
    for name in arms():
        path = options.to / f"arm-{half}-{number}-{slug(name)}.npz"
        if path.exists() and wanted(name, options.arm):
            yield name, path


def judge_of(name: str, options: argparse.Namespace, whole: dict[str, Any], half: str) -> Any:
    if name != "network":
        return {"coder": Coder, "n-grams": Ngrams}[name]()
    before, rest = split(whole, half)
    texts = [whole["texts"][row] for row in np.concatenate([before, rest])]
    network = Network(SIZES[options.size], texts, "cpu", before=texts[: len(before)])
    kept = options.to / f"start-{half}-{slug(network.name)}.pickle"
    if kept.exists():
        network.starts = pickle.loads(kept.read_bytes())
    else:
        network._start(0)
        kept.write_bytes(pickle.dumps(network.starts))
    return network


# ---------------------------------------------------------------- the tables


def table(options: argparse.Namespace) -> None:
    """Markdown of what was read: each half, each judge, on the choosing and on the reporting sets."""
    found = [pickle.loads(path.read_bytes()) for path in sorted(options.to.glob("read-*.pickle"))]
    for half in options.half:
        columns: dict[str, dict[str, Contrast]] = {}
        named: dict[str, list[Contrast]] = {}
        means: dict[str, dict[str, float]] = {}
        by_judge: dict[str, Any] = {}
        for judge in [judge for judge in options.judge if any(told["judge"] == judge for told in found)]:
            by_arm: dict[str, dict[int, dict[int, Any]]] = {}
            for told in found:
                if (told["half"], told["judge"]) == (half, judge) and told["pool"] in options.pool:
                    by_arm.setdefault(told["arm"], {}).setdefault(told["pool"], {})[told["draw"]] = told["read"]
            if RANDOM not in by_arm:
                continue
            some = next(iter(next(iter(by_arm[RANDOM].values())).values()))
            names = sorted(some)
            reporting = names[1::EVERY]
            for said, own in (("choosing", reporting), ("reporting", [n for n in names if n not in reporting])):
                column = f"{judge}, {said} sets"
                trials = list(trials_of(by_arm, own, options.arm, options.minus))
                if not trials:
                    continue
                columns[column] = {
                    arm: trial.contrast(arm, options.minus)
                    for trial in reversed(trials)  # an arm of several trials is told by the one with most arms
                    if options.minus in trial.readings
                    for arm in trial.readings
                    if arm not in (options.minus, *CONTROLS_OF)
                }
                named[column] = corrected(trials)
                means[column] = {arm: trials[0].mean(arm) for arm in trials[0].readings}
                spread = trials[0].components()
                print(f"{half}, {column}: {trials[0].pools} pools, SD of a pool {spread.pool:.4f}, ", end="")
                print(f"of a draw {spread.draw:.4f}, of the items {spread.item:.4f}")
            show_controls(half, judge, by_arm)
            by_judge[judge] = by_arm
        show_transfer(half, by_judge)
        show(half, columns, options.minus)
        show_named(named)
        print(f"\nKendall's τ, {half}:", end=" ")
        pairs = [(a, b) for a in means for b in means if a < b and a.split(", ")[1] == b.split(", ")[1]]
        print("; ".join(f"{a} and {b.split(',')[0]} {agreement(means[a], means[b]):.2f}" for a, b in pairs))


def trials_of(
    by_arm: Mapping[str, Any], own: Sequence[str], parts: Sequence[str] | None, minus: str = RANDOM
) -> Iterator[Trial]:
    """A trial of the arms that were read on the same pools, most arms first; random draws are in each."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for arm in by_arm:
        if arm not in (RANDOM, *CONTROLS_OF) and wanted(arm, parts) and ", told " not in arm:
            groups.setdefault(tuple(sorted(set(by_arm[arm]) & set(by_arm[RANDOM]))), []).append(arm)
    for pools, names in sorted(groups.items(), key=lambda item: -len(item[1])):
        if pools:
            wide = [arm for arm in by_arm if set(by_arm[arm]) >= set(pools) and arm not in CONTROLS_OF]
            kept = dict.fromkeys([RANDOM, *names, *(arm for arm in wide if arm in (DEFAULT, BY_DOCUMENTS, minus))])
            yield Trial({arm: [list(by_arm[arm][p].values()) for p in pools] for arm in kept}, own=own)


def corrected(trials: Sequence[Trial]) -> list[Contrast]:
    """The contrasts named before the run that a trial can make, with Holm's correction over all of them."""
    pairs = dict.fromkeys((a, b) for a, b in NAMED for trial in trials if {a, b} <= set(trial.readings))
    first = {pair: next(trial for trial in trials if set(pair) <= set(trial.readings)) for pair in pairs}
    found = [trial.contrast(*pair) for pair, trial in first.items()]
    adjusted = holm([contrast.p for contrast in found])
    return [
        Contrast(c.first, c.second, c.difference, c.half_width, c.p, c.targets, p)
        for c, p in zip(found, adjusted, strict=True)
    ]


def show_transfer(half: str, by_judge: Mapping[str, Mapping[str, Any]]) -> None:
    """Choices that were told one of the choosing sets, on the choosing sets that they were not told; means of TOLD."""
    rows: dict[str, dict[str, list[str]]] = {}
    for judge, by_arm in by_judge.items():
        for arm in by_arm:
            name, _, told = arm.rpartition(", told ")
            if name:
                pools = sorted(set(by_arm[arm]) & set(by_arm[RANDOM]))
                some = next(iter(by_arm[RANDOM][pools[0]].values()))
                own = [each for each in some if each == told or each in sorted(some)[1::EVERY]]
                trial = Trial({a: [list(by_arm[a][p].values()) for p in pools] for a in (RANDOM, arm)}, own=own)
                found = rows.setdefault(name, {}).setdefault(judge, [])
                found.append(f"{trial.mean(arm) - trial.mean(RANDOM):+.4f}")
    if rows:
        print(f"\n{half} half: told one of {', '.join(TOLD)}; on the choosing sets not told, minus random\n")
        print(f"| arm | {' | '.join(by_judge)} |\n|---|" + "--:|" * len(by_judge))
        for name, told_of_judge in rows.items():
            print(f"| {name} | " + " | ".join(", ".join(told_of_judge.get(judge, [])) for judge in by_judge) + " |")


def show(half: str, columns: Mapping[str, Mapping[str, Contrast]], minus: str) -> None:
    print(f"\n### {half} half: bits a byte minus {minus}\n\n| arm | {' | '.join(columns)} |")
    print("|---|" + "--:|" * len(columns))
    names = dict.fromkeys(arm for column in columns.values() for arm in column)
    lead = next(iter(columns.values()))
    for arm in sorted(names, key=lambda arm: lead[arm].difference if arm in lead else 9.0):
        cells = [column[arm].interval if arm in column else "" for column in columns.values()]
        print(f"| {arm} | {' | '.join(cells)} |")


def show_named(named: Mapping[str, Sequence[Contrast]]) -> None:
    print(f"\n| contrast | {' | '.join(named)} |\n|---|" + "--:|" * len(named))
    pairs = dict.fromkeys((c.first, c.second) for found in named.values() for c in found)
    for pair in pairs:
        cells = []
        for found in named.values():
            there = [c for c in found if (c.first, c.second) == pair]
            cells.append(f"{there[0].says}, {there[0].interval}, p {there[0].adjusted:.1g}" if there else "")
        print(f"| {pair[0]} − {pair[1]} | {' | '.join(cells)} |")


def show_controls(half: str, judge: str, by_arm: Mapping[str, Any]) -> None:
    pools = [p for p in by_arm[RANDOM] if all(p in by_arm.get(arm, {}) for arm in CONTROLS_OF)]
    there = {}  # the draws of all pools as one pool's: two pools alone have a single degree of freedom
    for arm in (RANDOM, *CONTROLS_OF):
        draws = [list(by_arm[arm][p].values()) for p in pools]
        several = [len(by_arm[SHUFFLED][p]) for p in pools]  # first those that a control's draws belong to
        first = [draw for own, count in zip(draws, several, strict=True) for draw in own[:count]]
        rest = [draw for own, count in zip(draws, several, strict=True) for draw in own[count:]]
        there[arm] = [[*first, *rest]]
    for control in controls(there) if pools else []:
        print(f"{half}, {judge}, control {control.name}: {'passed' if control.passed else 'FAILED'}, {control.said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["arms", "read", "table"])
    parser.add_argument("--corpus")
    parser.add_argument("--targets")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--half", nargs="+", choices=HALVES, default=list(HALVES))
    parser.add_argument("--pool", type=int, nargs="+", default=list(range(POOLS)))
    parser.add_argument("--size", default="tiny", help="of the network")
    parser.add_argument("--bytes", type=int, default=BYTES)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--controls", action="store_true")
    parser.add_argument("--only", type=int, default=CONTROLS, help="draws of each control")
    parser.add_argument("--judge", nargs="*", default=["coder", "n-grams"], help="network too")
    parser.add_argument("--arm", nargs="*", help="regular expressions of whole names")
    parser.add_argument("--minus", default=RANDOM, help="the arm that others are compared with in the table")
    options = parser.parse_args()
    if options.what == "table":
        table(options)
        return
    if not (options.corpus and options.targets):
        parser.error("--corpus and --targets are needed")
    options.to.mkdir(parents=True, exist_ok=True)
    whole = population(options.corpus, options.to)
    targets, told = targets_of(options, whole)
    for half in HALVES:
        rows = np.concatenate(split(whole, half))
        sources = ", ".join(np.unique(whole["source"][rows]))
        size = sum(len(whole["texts"][row]) for row in rows)
        print(f"{half}: {len(rows):,} documents, {size:,} bytes, of {sources}", flush=True)
    if options.what == "arms":
        order = [pool_rows(whole, half, number) for number in options.pool for half in HALVES]
        np.save(options.to / "order.npy", np.concatenate(order))  # in which `encoders_real.py embed` embeds
        make_arms(options, whole, told)
    else:
        read(options, whole, targets)


if __name__ == "__main__":
    main()
