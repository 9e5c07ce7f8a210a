"""The judges on real text: every metric, λ and budget against random draws, on resampled pools.

    python benchmarks/judge.py arms  --corpus out/real --targets '../shared/data/tasks/*.jsonl.gz' --to out/judge
    python benchmarks/judge.py read  --corpus out/real --targets … --to out/judge --controls
    python benchmarks/judge.py read  --corpus out/real --targets … --to out/judge --judge network --pool 0 1 2 5 6
    python benchmarks/judge.py table --to out/judge

Every choice and every reading is a file in `--to`, so that each command resumes where it stopped, and several may run.
`--corpus` is an output folder of `datamask curate`, whose embeddings and scores are used; its English documents (said
to be, or nothing said and a share of English function words) are the population, random halves of it the pools. Each
choice is about 6 % of a pool's bytes, cut to --bytes. DSIR and the coverage of targets are given the items of the
target sets that no judge reads.
"""

from __future__ import annotations

import argparse
import pickle
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from datamask.config import Select
from datamask.errors import DatamaskError
from datamask.report.embedded import load_corpus
from datamask.selection.arrays import select
from datamask.selection.solvers import greedy
from datamask.study.choices import CONTROLS as CONTROLS_OF
from datamask.study.choices import RANDOM, bytes_of, choices
from datamask.study.coder import Coder
from datamask.study.inference import Trial
from datamask.study.judge_page import interval
from datamask.study.network import SIZES, Network
from datamask.study.ngram_judge import BUCKETS, Ngrams, words_of
from datamask.study.run import expand
from datamask.study.targets import Item, Target, _items, _name, read_targets
from datamask.study.verdict import Heard, conclude, controls

POOLS, DOCUMENTS, BYTES, SHARE = 5, 12_300, 4_600_000, 0.06
DRAWS, CONTROLS = 8, 3
GREEDI = greedy.SHARD  # documents of a shard, by the solver's own choice
NETWORK_POOLS = 3  # the first: the network starts from what stands in none of them
METRICS, LAMBDAS = ("pairwise", "disf", "facility"), (0.0, 0.3, 0.5, 0.7, 0.9)
WORDS = {"algorithm": "coverage", "coverage": {"atoms": {"ngrams": 1}}}
HALF = {"target": 0.5, "embedding": 0.5}
COVERAGE: tuple[tuple[str, float, dict[str, float]], ...] = (
    ("embedding", 0.0, {"embedding": 1}),
    ("embedding", 0.3, {"embedding": 1}),
    ("embedding", 0.5, {"embedding": 1}),
    ("embedding", 0.7, {"embedding": 1}),
    ("n-grams", 0.3, {"ngrams": 1}),
    ("n-grams", 0.5, {"ngrams": 1}),
    ("n-grams", 0.7, {"ngrams": 1}),
    ("n-grams", 0.9, {"ngrams": 1}),
    ("n-grams, documents alike,", 0.3, {"ngrams": 1}),
    ("n-grams, documents alike,", 0.5, {"ngrams": 1}),
    ("n-grams, documents alike,", 0.7, {"ngrams": 1}),
    ("n-grams and embedding", 0.5, {"ngrams": 0.5, "embedding": 0.5}),
    ("target", 0.3, {"target": 1}),
    ("target and embedding", 0.3, HALF),
    ("target and n-grams", 0.3, {"target": 0.5, "ngrams": 0.5}),
    ("target and n-grams", 0.5, {"target": 0.5, "ngrams": 0.5}),
)
ALIKE = "documents alike"  # each counts the same in the words to be covered, whatever its quality
OTHERS = "coverage of target and embedding λ 0.3, told every other set"  # how it fares on the sets it is not told
NAMED = (  # the contrasts, named before any run: what is the default now, and what could be
    ("pairwise λ 0.5", RANDOM),
    ("top-quality", RANDOM),
    ("coverage of embedding λ 0.5", RANDOM),
    ("coverage of n-grams λ 0.7", RANDOM),
    ("coverage of n-grams and embedding λ 0.5", RANDOM),
    ("coverage of target and embedding λ 0.3", RANDOM),
)
FUNCTION_WORDS = re.compile(r"\b(?:the|of|and|to|in|is|that|for|it|with|as|was|on|are|by)\b", re.IGNORECASE)


def english(text: str, language: object) -> bool:
    start = text[:20_000]
    share = len(FUNCTION_WORDS.findall(start)) / max(1, len(start.split()))
    return str(language) in ("en", "eng", "None") and share > 0.1


# ---------------------------------------------------------------- pools


def population(corpus: str, to: Path) -> dict[str, Any]:
    """The English documents of a curated corpus: features, quality, tokens, texts; kept in `to` for the next time."""
    kept = to / "population.pickle"
    if not kept.exists():
        whole = load_corpus(corpus, 1_000_000)
        texts = [row["text"] for row in whole.sample.columns(whole.rows, ["text"])]
        language = whole.groups["language"]
        rows = np.array([english(text, stated) for text, stated in zip(texts, language, strict=True)])
        part = whole.subset(rows)
        found = {
            "features": part.features,
            "quality": part.quality,
            "tokens": part.tokens,
            "texts": [text.encode() for text, english_ in zip(texts, rows, strict=True) if english_],
        }
        kept.write_bytes(pickle.dumps(found))
    return pickle.loads(kept.read_bytes())


def rows_of(pool: int, total: int) -> Any:
    """A random half's rows; pools from POOLS on leave out what the network reads before them, as its first pools do."""
    among = reached(total) if pool >= POOLS else np.arange(total)
    return np.sort(np.random.default_rng([pool, 67]).permutation(among)[:DOCUMENTS])


def reached(total: int) -> Any:
    """The rows of the network's first pools; it starts from the others."""
    return np.unique(np.concatenate([rows_of(pool, total) for pool in range(NETWORK_POOLS)]))


def unread(paths: Sequence[str], targets: Sequence[Target]) -> list[Target]:
    """The target sets' items that no judge reads, where there are any."""
    found = []
    for path, target in zip(paths, targets, strict=True):
        read = set(target.items)
        rest: tuple[Item, ...] = tuple(item for item in _items(path) if item not in read)
        if rest:
            found.append(Target(_name(path), rest))
    return found


# ---------------------------------------------------------------- arms


def arms(every: bool = True) -> dict[str, dict[str, Any]]:
    """Name -> changes of the settings; budgets in tokens unless the name says otherwise. Dear ones come last."""
    documents, lengths = {"budget": "documents"}, {"length_tolerance": 0.1}
    found: dict[str, dict[str, Any]] = {
        "pairwise λ 0.5": {"algorithm": "pairwise"},
        "pairwise λ 0.5, documents": {"algorithm": "pairwise", **documents},
        "top-quality": {"solver": "top-quality"},
        **{
            f"coverage of {name} λ {lamb:g}": {
                "algorithm": "coverage",
                "lamb": lamb,
                "coverage": {"atoms": atoms, "document_weights": "equal" if ALIKE in name else "quality"},
            }
            for name, lamb, atoms in COVERAGE
        },
        **{
            f"coverage of n-grams λ {lamb:g}, documents": {**WORDS, "lamb": lamb, **documents}
            for lamb in (0.3, 0.5, 0.7)
        },
        "semdedup": {"solver": "semdedup", **documents},
        "dsir": {"solver": "dsir"},
        "random above the lowest tenth of quality": {"solver": "above", "floor": 0.1},
        "random above the lower half of quality": {"solver": "above", "floor": 0.5},
        OTHERS: {"algorithm": "coverage", "lamb": 0.3, "coverage": {"atoms": HALF}, "every": 2},
    }
    if every:
        found |= {
            "pairwise λ 0.5, lengths ±10 %": {"algorithm": "pairwise", **lengths},
            "top-quality, documents": {"solver": "top-quality", **documents},
            "direct, documents": {"solver": "direct", **documents},
            "greedy, pairwise λ 0.5, documents": {"solver": "greedy", "algorithm": "pairwise", **documents},
            "greedi, facility λ 0.5, documents": {
                "solver": "greedy",
                "algorithm": "facility",
                "shard": 3_000,
                **documents,
            },
        }
        for metric in METRICS:
            for lamb in LAMBDAS:
                changes = {"algorithm": metric, "lamb": lamb}
                found.setdefault(f"{metric} λ {lamb:g}", changes)
                found.setdefault(f"{metric} λ {lamb:g}, documents", {**changes, **documents})
                if lamb in (0.0, 0.7):
                    found.setdefault(f"{metric} λ {lamb:g}, lengths ±10 %", {**changes, **lengths})
    return found


def choose(pool: dict[str, Any], changes: dict[str, Any], seed: int) -> Any:
    """A mask that holds BYTES: SHARE of the tokens or documents, and more where those hold fewer bytes."""
    changes = dict(changes)
    told = pool["aims"][:: changes.pop("every", 1)]
    documents = changes.pop("budget", "tokens") == "documents"
    greedy.SHARD = changes.pop("shard", GREEDI)  # a pool of this size would not need shards
    share = SHARE * 1.02
    for _ in range(8):
        if changes.get("solver") == "dsir":
            mask = dsir(pool, share, seed)
        elif changes.get("solver") == "above":
            mask = above(pool, changes["floor"], share, seed)
        else:
            budget = (
                {"budget_documents": round(share * len(pool["tokens"])), "budget_tokens": None}
                if documents
                else {"budget_tokens": round(share * float(pool["tokens"].sum())), "budget_documents": None}
            )
            settings = Select.model_validate({"seed": seed, "select_ratio": None, **budget, **changes})
            words = covered(pool, changes, told)
            mask = select(pool["features"], pool["quality"], tokens=pool["tokens"], settings=settings, **words).selected
        held = bytes_of(pool["texts"], mask)
        if held >= BYTES:
            return mask
        share *= 1.03 * BYTES / held
    raise SystemExit(f"{changes}: no share of the pool holds {BYTES:,} bytes")


def covered(pool: dict[str, Any], changes: dict[str, Any], told: Sequence[Target]) -> dict[str, Any]:
    """What coverage of words is given: the documents' n-grams, and the target sets' items that no judge reads."""
    if changes.get("algorithm") != "coverage":
        return {}
    from datamask.corpus.ngrams import count_ngrams

    if "ngrams" not in pool:
        pool["ngrams"] = count_ngrams(text.decode("utf-8", "replace") for text in pool["texts"])
    aims = [item.whole.decode("utf-8", "replace") for target in told for item in target.items]
    return {"atoms": pool["ngrams"], **({"target": aims} if "target" in changes["coverage"]["atoms"] else {})}


def ngrams(text: bytes) -> Any:
    """The buckets of a text's words and pairs of words in one bag, DSIR's features."""
    words = words_of(text)
    return np.concatenate([words, (words[:-1] * 40_503 + words[1:] + 7) % BUCKETS])


def dsir(pool: dict[str, Any], share: float, seed: int) -> Any:
    """Importance resampling (arXiv 2302.03169): log-ratio of hashed n-grams, target to pool, and Gumbel noise."""
    if "log_weight" not in pool:
        counts = [np.bincount(ngrams(text), minlength=BUCKETS) for text in pool["texts"]]
        raw = np.sum(counts, axis=0) + 1.0
        aimed = np.sum(
            [
                np.bincount(np.concatenate([ngrams(item.whole) for item in target.items]), minlength=BUCKETS)
                for target in pool["aims"]
            ],
            axis=0,
        ) + 1.0  # fmt: skip
        ratio = np.log(aimed / aimed.sum()) - np.log(raw / raw.sum())
        pool["log_weight"] = np.array([float(count @ ratio) for count in counts])
    noise = np.random.default_rng([seed, 71]).gumbel(size=len(pool["log_weight"]))
    order = np.argsort(-(pool["log_weight"] + noise))
    taken = np.cumsum(pool["tokens"][order]) <= share * pool["tokens"].sum()
    mask = np.zeros(len(order), dtype=bool)
    mask[order[taken]] = True
    return mask


def above(pool: dict[str, Any], floor: float, share: float, seed: int) -> Any:
    """A random choice of the documents above a quantile of quality."""
    order = np.random.default_rng([seed, 107]).permutation(len(pool["tokens"]))
    order = order[pool["quality"][order] >= np.quantile(pool["quality"], floor)]
    mask = np.zeros(len(pool["tokens"]), dtype=bool)
    mask[order[np.cumsum(pool["tokens"][order]) <= share * pool["tokens"].sum()]] = True
    return mask


def make_arms(options: argparse.Namespace, whole: dict[str, Any], aims: list[Target]) -> None:
    for number in options.pool:
        pool = pool_of(whole, number)
        pool["aims"] = aims
        for name, changes in arms(options.every).items():
            kept = options.to / f"arm-{number}-{slug(name)}.npz"
            if kept.exists() or not wanted(name, options.arm):
                continue
            started = time.perf_counter()
            try:
                mask = choose(pool, changes, number)
            except DatamaskError as error:
                print(f"pool {number}  {name}: {error}", flush=True)
                continue
            seconds = time.perf_counter() - started
            np.savez(kept, mask=mask, seconds=seconds)
            print(f"pool {number}  {name}: {mask.sum():,} documents, {seconds:.1f} s", flush=True)


def pool_of(whole: dict[str, Any], number: int) -> dict[str, Any]:
    rows = rows_of(number, len(whole["tokens"]))
    return {
        "features": whole["features"][rows],
        "quality": whole["quality"][rows],
        "tokens": whole["tokens"][rows],
        "texts": [whole["texts"][row] for row in rows],
    }


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.λ±%]+", "_", name.lower())


def wanted(name: str, parts: Sequence[str] | None) -> bool:
    return not parts or name in parts


# ---------------------------------------------------------------- reading


def read(options: argparse.Namespace, whole: dict[str, Any], targets: list[Target]) -> None:
    judges = {name: judge_of(name, options, whole) for name in options.judge}
    for number in options.pool:
        pool = pool_of(whole, number)
        masks = {
            name: np.load(path)["mask"]
            for name in names_of(options.to, number)
            if (path := options.to / f"arm-{number}-{slug(name)}.npz").exists() and wanted(name, options.arm)
        }
        controls = options.only if options.controls else 0
        for arm, draw, choice in choices(pool["texts"], masks, options.bytes, options.draws, number, controls):
            if arm in CONTROLS_OF and not wanted(arm, options.arm):
                continue
            for judge, reader in judges.items():
                kept = options.to / f"read-{slug(reader.name)}-{options.bytes}-{number}-{slug(arm)}-{draw}.pickle"
                if kept.exists():
                    continue
                started = time.perf_counter()
                found = reader.read(choice, targets)
                seconds = time.perf_counter() - started
                trained = getattr(reader, "trained", None)
                told = {"judge": reader.name, "kind": reader.kind, "trained": trained[-1] if trained else None}
                kept.write_bytes(pickle.dumps({**told, "arm": arm, "read": found, "seconds": seconds}))
                mean = np.mean([coded.bits_per_byte for coded in found.values()])
                print(f"{judge}  pool {number}  {arm} {draw}: {mean:.4f}  {seconds:.1f} s", flush=True)


def judge_of(name: str, options: argparse.Namespace, whole: dict[str, Any]) -> Any:
    if name != "network":
        return {"coder": Coder, "n-grams": Ngrams}[name]()
    size = SIZES[options.size]()
    if options.before:
        size = replace(size, name=f"{size.name} after {options.before:,}", before=options.before)
    if options.passes or options.rate:
        passes, rates = options.passes or size.passes, tuple(options.rate or size.rates)
        told = f"{size.name}, {passes:g} passes at {' '.join(f'{rate:g}' for rate in rates)}"
        size = replace(size, name=told, passes=passes, rates=rates)
    total = len(whole["tokens"])
    out = np.setdiff1d(np.arange(total), reached(total))  # what no pool that the network reads can choose
    network = Network(size, whole["texts"], "cpu", before=[whole["texts"][row] for row in out])
    kept = options.to / f"start-{slug(size.name)}.pickle"
    if kept.exists():
        network.starts = pickle.loads(kept.read_bytes())
    elif size.before:
        network._start(0)
        kept.write_bytes(pickle.dumps(network.starts))
    return network


def names_of(to: Path, number: int) -> Iterator[str]:
    there = {path.name for path in to.glob(f"arm-{number}-*.npz")}
    for name in arms():
        if f"arm-{number}-{slug(name)}.npz" in there:
            yield name


# ---------------------------------------------------------------- the tables


def table(options: argparse.Namespace) -> None:
    """Markdown of what was read, each judge on the pools on which it has read every control."""
    for judge in sorted({path.name.split("-")[1] for path in options.to.glob(f"read-*-{options.bytes}-*.pickle")}):
        if judge not in [slug(name) for name in options.judge]:  # a network by the name of its readings
            continue
        readings: dict[str, dict[int, dict[int, Any]]] = {}
        seconds = []
        for path in sorted(options.to.glob(f"read-{judge}-{options.bytes}-*.pickle")):
            number, draw = int(path.name.split("-")[3]), int(path.stem.rsplit("-", 1)[1])
            told = pickle.loads(path.read_bytes())
            if number in options.pool:
                readings.setdefault(told["arm"], {}).setdefault(number, {})[draw] = told["read"]
                seconds.append(told["seconds"])
        pools = sorted(readings.get(RANDOM, {}))
        whole = {
            arm: [[by_pool[p][d] for d in sorted(by_pool[p])] for p in pools]
            for arm, by_pool in readings.items()
            if set(by_pool) >= set(pools) and arm not in CONTROLS_OF
        }
        checked = [p for p in pools if all(p in readings.get(arm, {}) for arm in CONTROLS_OF)]
        controls_of = {
            arm: [[readings[arm][p][d] for d in sorted(readings[arm][p])] for p in checked]
            for arm in (RANDOM, *CONTROLS_OF)
            if checked
        }
        if set(whole) - {RANDOM}:
            show(judge, whole, controls_of, pools, float(np.mean(seconds)))
        some = {arm: by_pool for arm, by_pool in readings.items() if arm not in (*whole, *CONTROLS_OF)}
        if some and pools:
            print(f"\n### {judge}: arms of some pools alone\n\n| arm | pools | minus random there |\n|---|--:|--:|")
            for arm, by_pool in some.items():
                there = sorted(set(by_pool) & set(pools))
                both = {name: readings[name] for name in (RANDOM, arm)}
                part = {name: [[r[p][d] for d in sorted(r[p])] for p in there] for name, r in both.items()}
                print(f"| {arm} | {len(there)} | {interval(Trial(part).contrast(arm, RANDOM))} |")


def show(judge: str, whole: dict[str, Any], checked: dict[str, Any], pools: list[int], seconds: float) -> None:
    found = conclude({judge: Heard("counts", whole, seconds)}, NAMED).judges[0]
    spread = found.components
    print(
        f"\n### {judge}: {len(pools)} pools, {seconds:.1f} s a choice\n\n| arm | bits a byte | minus random | answers |"
    )
    print("|---|--:|--:|--:|")
    against = {contrast.first: contrast for contrast in found.against}
    for arm in sorted(found.means, key=lambda arm: found.means[arm]):
        difference = interval(against[arm]) if arm in against else "–"
        print(f"| {arm} | {found.means[arm]:.4f} | {difference} | {found.answers[arm]:.3f} |")
    print("\n| contrast | bits a byte | p, Holm | says |\n|---|--:|--:|---|")
    for contrast in found.named:
        told = [interval(contrast), f"{contrast.adjusted:.3g}", contrast.says]
        print(f"| {contrast.first} − {contrast.second} | {' | '.join(told)} |")
    if OTHERS in against:
        by_target = against[OTHERS].targets
        for said, some in (("told", sorted(by_target)[::2]), ("others", sorted(by_target)[1::2])):
            print(f"\n{OTHERS}, minus random, on the sets {said}: {np.mean([by_target[name] for name in some]):+.4f}")
    print("\n| control | passed | what was seen |\n|---|---|---|")
    for control in controls(checked or whole):
        print(f"| {control.name} | {'yes' if control.passed else 'no'} | {control.said} |")
    held = [
        Trial({"one": [[draws[a]]], "two": [[draws[b]]], RANDOM: [draws]}).contrast("one", "two")
        for draws in whole[RANDOM]
        for a, b in ((0, 1), (2, 3), (4, 5), (6, 7))
        if len(draws) > b
    ]
    inside = sum(contrast.low <= 0 <= contrast.high for contrast in held)
    print(
        f"\nA/A within each pool: {inside} of {len(held)} intervals hold 0; SD of a pool {spread.pool:.4f}, of a draw"
    )
    print(f"{spread.draw:.4f}, of the items {spread.item:.4f}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["arms", "read", "table"])
    parser.add_argument("--corpus")
    parser.add_argument("--targets")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--pool", type=int, nargs="+", default=list(range(POOLS)))
    parser.add_argument("--size", default="tiny", help="of the network")
    parser.add_argument("--passes", type=float, help="of the network over a choice")
    parser.add_argument("--rate", type=float, nargs="+", help="of the network; by default its size's three")
    parser.add_argument("--before", type=int, help="bytes that the network has read before; by default its size's")
    parser.add_argument("--bytes", type=int, default=BYTES)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--controls", action="store_true")
    parser.add_argument("--only", type=int, default=CONTROLS, help="draws of each control")
    parser.add_argument("--judge", nargs="*", default=["coder", "n-grams"])
    parser.add_argument("--every", action="store_true", help="the dear arms too")
    parser.add_argument("--arm", nargs="*")
    options = parser.parse_args()
    if options.what == "table":
        table(options)
        return
    if not (options.corpus and options.targets):
        parser.error("--corpus and --targets are needed")
    options.to.mkdir(parents=True, exist_ok=True)
    paths = expand([options.targets])
    targets = read_targets(paths)
    whole = population(options.corpus, options.to)
    print(f"{len(whole['tokens']):,} documents, {sum(map(len, whole['texts'])):,} bytes", flush=True)
    if options.what == "arms":
        make_arms(options, whole, unread(paths, targets))
    else:
        read(options, whole, targets)


if __name__ == "__main__":
    main()
