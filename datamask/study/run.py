"""A study of one embedded corpus: resampled pools, the arms' choices, and every judge on all of them.

    finding = run_study("out/real", ["tasks/*.jsonl.gz"], Settings(pools=5))
    finding.verdicts[0].says

The default arm is the corpus's own settings; beside it stand random draws, top-quality and SemDeDup at the same budget,
and arms of the caller's. A pool is a random half of (a sample of) the candidates, so that what is said holds for more
than these documents; halves overlap, so that intervals over pools are somewhat too narrow for another corpus.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from datamask.config import ResolvedSelect, resolve
from datamask.errors import ConfigError, DatamaskError, InputError, several
from datamask.filter.word_rows import WordRows
from datamask.storage import expand_patterns
from datamask.study.coder import ORDER, CodedItems, Coder, Ngrams
from datamask.study.embedded import Embedded, choose_documents, load_corpus, names_of, texts_of
from datamask.study.inference import Draw
from datamask.study.targets import (
    BYTES,
    LEAST_ITEMS,
    RANDOM,
    Item,
    Target,
    bytes_of,
    choices,
    first_rows,
    most_bytes,
    read_targets,
    target_of,
)
from datamask.study.verdict import Finding, JudgeReadings, JudgeSize, conclude
from datamask.text.ngrams import hashed_words

DEFAULT, TOP_QUALITY, SEMDEDUP = "default", "top-quality", "semdedup"
ARMS: Mapping[str, Mapping[str, Any]] = {
    DEFAULT: {},
    TOP_QUALITY: {"solver": "top-quality"},
    SEMDEDUP: {"solver": "semdedup"},
}
NAMED = ((DEFAULT, RANDOM), (DEFAULT, TOP_QUALITY), (DEFAULT, SEMDEDUP))  # the contrasts, named before any run
OWN = "held-out documents of the pool itself"
HELD_OUT, HELD_BYTES = 60, 1_500  # documents, and bytes of each
BEFORE = 0.2  # of the candidates, at most, are what the network reads before any choice
CHEAP = ("coder", "n-grams")
MOST_BYTES = 32_000_000  # of a choice, unless asked for
Tell = Callable[[str], None]
PoolChoices = tuple[Sequence[bytes], Mapping[str, npt.NDArray[np.bool_]]]  # a pool's texts, and each arm's mask


class Judge(Protocol):
    """What reads a choice and says what targets cost after it. kind: counts, or network."""

    name: str
    kind: str
    parameters: int  # trained on a choice; 0 if it counts
    epochs: float  # over a choice

    def read(self, choice: bytes, targets: Sequence[Target]) -> dict[str, CodedItems]: ...


@dataclass(frozen=True)
class Settings:
    pools: int = 5
    documents: int = 10_000  # of a pool, at most
    draws: int = 8  # random ones of each pool
    controls: int = 3  # of each control, of each pool; with one pool as many as draws
    bytes: int | None = None  # of each choice; None: the smallest arm's, at most MOST_BYTES
    target_bytes: int = BYTES  # read of each target
    judges: tuple[str, ...] = CHEAP  # coder, n-grams, network
    order: int = ORDER  # of the coder
    size: str = "small"  # of the network: tiny, small, large
    network_draws: int = 3  # random draws, and controls, that the network reads of each pool
    network_pools: int | None = None  # None: all; the first so many otherwise
    device: str = "auto"
    seed: int = 0
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> changes of the corpus's settings


def run_study(
    place: str,
    targets: Sequence[str],
    settings: Settings,
    overrides: Sequence[str] = (),
    progress: Tell = lambda line: None,
) -> Finding:
    """Chooses, reads and concludes.

    :param place: an output folder of `datamask curate`.
    :param targets: files, patterns of files too (see `targets.read_targets`).
    :param overrides: section.name=value, laid over the corpus's own settings.
    :raises ConfigError: an unknown judge or size, too few pools or draws, an arm that does not differ in settings.
    :raises InputError: bad targets (missing, empty, in the pool), or choices smaller than the bytes asked for.
    """
    check_settings(settings)
    read = read_targets(expand_patterns(targets), settings.target_bytes, settings.seed)
    whole = load_corpus(place, settings.documents * (2 if settings.pools > 1 else 1), overrides, settings.seed)
    texts = texts_of(whole)
    progress(f"looking for {several(len(read), 'target')} in {several(len(texts), 'document')}")
    kept, found = without_overlap(read, texts, names_of(whole))
    own, before, rest = _hold_out(whole, texts, settings)
    pools, refused, notes = _pools(whole, texts, rest, kept, settings, progress)
    held = {
        f"pool {number} {arm}": bytes_of(held, mask)
        for number, (held, masks) in enumerate(pools)
        for arm, mask in masks.items()
    }
    limit = settings.bytes or min(*held.values(), MOST_BYTES)
    if short := [f"{name}: {size:,}" for name, size in held.items() if size < limit]:
        raise InputError(
            f"--bytes {limit:,} is more than some choices hold ({', '.join(short[:3])}); "
            f"ask for at most {min(held.values()):,}"
        )
    heard = {}
    judged = [*kept, *own]
    for judge, draws, count in judges_of(settings, pools[0][0], before):
        heard[judge.name] = read_choices(
            judge, pools[:count], judged, limit, draws, settings.controls, settings.seed, progress
        )
    facts: dict[str, object] = {
        "corpus": whole.config.release.name,
        "algorithm": whole.config.selection.metric,
        "lamb": whole.config.selection.lamb,
        "pools": len(pools),
        "documents": len(pools[0][0]),
        "bytes": limit,
        "budget_share": float(np.mean([limit / sum(map(len, held)) for held, _ in pools])),
        "draws": settings.draws,
        "targets": [
            {"name": each.name, "items": len(each.items), "bytes": each.bytes, "own": each.own} for each in judged
        ],
        "in_the_pool": {name: asdict(each) for name, each in found.items()},
        "refused": refused,
        "notes": notes,
        "order": settings.order,
        "seed": settings.seed,
    }
    return conclude(heard, NAMED, [target.name for target in own], facts)


def check_settings(settings: Settings) -> None:
    """:raises ConfigError: settings that no study can be made with, or a device that is not there."""
    from datamask.devices import pick_device
    from datamask.study.network import SIZES

    valid = (*CHEAP, "network")
    if unknown := [name for name in settings.judges if name not in valid]:
        raise ConfigError(f"--judge {unknown[0]}: valid are {', '.join(valid)}")
    if not settings.judges:
        raise ConfigError("no judge; name one: --judge coder")
    if settings.size not in SIZES:
        raise ConfigError(f"--size {settings.size}: valid are {', '.join(SIZES)}")
    if settings.draws < 8:
        raise ConfigError(f"--draws {settings.draws}: at least 8, or the spread of random choices is not known")
    if settings.pools < 1:
        raise ConfigError(f"--pools {settings.pools}: at least 1")
    if "network" in settings.judges:
        pick_device(settings.device)


def _hold_out(
    whole: Embedded, texts: Sequence[bytes], settings: Settings
) -> tuple[list[Target], list[bytes], npt.NDArray[np.intp]]:
    """The pool's own target, texts that the network reads before any choice, and the rows left to choose from."""
    order = np.random.default_rng([settings.seed, 73]).permutation(len(whole))
    held = order[: min(HELD_OUT, len(order) // 10)]
    if len(held) < 8:
        raise InputError(f"{len(whole)} candidates are too few to judge choices of; curate 80 or more")
    items = [Item(texts[row][:HELD_BYTES]) for row in held.tolist()]
    rest = order[len(held) :]
    before: list[bytes] = []
    if "network" in settings.judges:
        from datamask.study.network import SIZES

        most = rest[: int(BEFORE * len(rest))]
        before = [texts[row] for row in first_rows(most, list(map(len, texts)), SIZES[settings.size].before)]
    return [target_of(OWN, items, settings.target_bytes, own=True)], before, np.sort(rest[len(before) :])


def _pools(
    whole: Embedded,
    texts: Sequence[bytes],
    rest: npt.NDArray[np.intp],
    judged: Sequence[Target],
    settings: Settings,
    progress: Tell,
) -> tuple[list[PoolChoices], dict[str, str], list[str]]:
    """The pools and what every arm chooses from them; the arms that could not choose, with why; and notes."""
    size = min(settings.documents, len(rest) // 2) if settings.pools > 1 else len(rest)
    arms = {**ARMS, **settings.arms}
    found: list[PoolChoices] = []
    refused: dict[str, str] = {}
    notes: list[str] = []
    for number in range(settings.pools):
        rows = np.sort(np.random.default_rng([settings.seed, number, 79]).permutation(rest)[:size])
        keep = np.zeros(len(whole), dtype=bool)
        keep[rows] = True
        corpus = replace(whole.subset(keep), share=whole.share * size / len(whole))
        held = [texts[row] for row in rows.tolist()]
        if not found:
            _check_bytes(corpus, held, arms, settings)
        masks = {}
        for name, changes in arms.items():
            if name in refused:
                continue
            started = time.perf_counter()
            told: list[str] = []
            try:
                masks[name] = choose_documents(
                    corpus, settings_of(corpus, changes, number), judged, held, note=told.append
                )
            except ConfigError as error:
                if name not in ARMS:
                    raise ConfigError(f"arm {name}: {error}") from error
                refused[name] = str(error)
                continue
            notes += [f"pool {number}, {name}: {line}" for line in told]
            progress(f"pool {number}  {name} chosen  {time.perf_counter() - started:.1f} s")
        found.append((held, masks))
    return found, refused, notes


def _check_bytes(
    corpus: Embedded, texts: Sequence[bytes], arms: Mapping[str, Mapping[str, Any]], settings: Settings
) -> None:
    """:raises InputError: more bytes are asked for than an arm's budget can hold; said before anything is chosen."""
    for name, changes in arms.items():
        most = most_bytes(texts, corpus.tokens, settings_of(corpus, changes, 0))
        if settings.bytes and settings.bytes > most:
            raise InputError(
                f"--bytes {settings.bytes:,} is more than any choice within the budget of {name} can hold; "
                f"ask for at most {most:,}, and for less than that, since few choices take the longest documents"
            )


def settings_of(corpus: Embedded, changes: Mapping[str, Any], seed: int) -> ResolvedSelect:
    """The corpus's settings with some changes; a budget among them takes the place of the corpus's."""
    return resolve(corpus.given(seed=seed, quotas=[]), changes)


def judges_of(
    settings: Settings, pool: Sequence[bytes], before: Sequence[bytes] = ()
) -> Iterator[tuple[Judge, int, int]]:
    """Each judge, how many random draws it reads of a pool, and how many pools."""
    for name in settings.judges:
        if name == "coder":
            yield Coder(settings.order), settings.draws, settings.pools
        elif name == "n-grams":
            yield Ngrams(), settings.draws, settings.pools
        else:
            from datamask.study.network import SIZES, Network

            network = Network(SIZES[settings.size], pool, settings.device, settings.seed, before)
            yield network, max(2, settings.network_draws), settings.network_pools or settings.pools


def read_choices(
    judge: Judge,
    pools: Sequence[PoolChoices],
    targets: Sequence[Target],
    limit: int,
    draws: int,
    controls: int,
    seed: int,
    progress: Tell,
) -> JudgeReadings:
    """A judge's readings of every choice of every pool."""
    readings: dict[str, list[list[Draw]]] = {}
    seconds = []
    controls = min(draws, controls) if len(pools) > 1 else draws
    for number, (texts, masks) in enumerate(pools):
        for arm, draw, choice in choices(texts, masks, limit, draws, [seed, number], controls):
            started = time.perf_counter()
            read = judge.read(choice, targets)
            seconds.append(time.perf_counter() - started)
            readings.setdefault(arm, [[] for _ in pools])[number].append(read)
            progress(f"{judge.name}  pool {number}  {arm} {draw + 1}  {seconds[-1]:.1f} s")
    notes = getattr(judge, "notes", "")
    if not all(all(by_pool) for by_pool in readings.values()):
        raise DatamaskError(f"{judge.name} did not read every arm on every pool")
    reach = JudgeSize(limit, judge.parameters, judge.epochs)
    return JudgeReadings(judge.kind, readings, float(np.mean(seconds)), reach, notes() if callable(notes) else "")


# ---------------------------------------------------------------- targets that stand in the pool
# A model that has read the question says nothing by knowing it. An item counts as found where 13 of its words stand in
# a row in a document (`filter.word_rows.WordRows`, which `filter.decontaminate` goes by too); an item of 8 to 13 words
# where all of them do. Shorter ones are not looked for.


@dataclass(frozen=True)
class Overlap:
    """Items of a target that stand in the pool, and the first of them with its document."""

    items: int
    of: int
    example: str
    document: str


def without_overlap(
    targets: Sequence[Target], texts: Sequence[bytes], names: Sequence[str]
) -> tuple[list[Target], dict[str, Overlap]]:
    """The targets without the items that stand in the pool; and what was found, by target.

    :param texts, names: the pool's documents and what to call them.
    :raises InputError: more than half of a target stands in the pool, or fewer than LEAST_ITEMS of it are left.
    """
    owners = [(place, number) for place, target in enumerate(targets) for number, _ in enumerate(target.items)]
    rows = WordRows([_text(item.whole) for target in targets for item in target.items])
    hits: dict[tuple[int, int], str] = {}
    first = 0
    for single, _, document, count in hashed_words(_text(text) for text in texts):
        gram, at = rows.find(single, document)
        for number, one in sorted({(int(of), int(g)) for g, of in zip(gram, document[at], strict=True)}):
            for item, _ in rows.texts_with(one):
                hits.setdefault(owners[item], names[first + number])
        first += count
    kept, found = [], {}
    for place, target in enumerate(targets):
        own = sorted(number for of, number in hits if of == place)
        if own:
            example = target.items[own[0]].whole.decode("utf-8", "replace")
            found[target.name] = Overlap(
                len(own), len(target.items), " ".join(example.split())[:80], hits[place, own[0]]
            )
        kept.append(_checked(target, own, found))
    return kept, found


def _checked(target: Target, own: Sequence[int], found: Mapping[str, Overlap]) -> Target:
    rest = tuple(item for number, item in enumerate(target.items) if number not in set(own))
    if own and (len(own) > len(target.items) / 2 or len(rest) < LEAST_ITEMS):
        told = found[target.name]
        raise InputError(
            f"target {target.name} stands in the pool: {told.items} of {told.of} items, the first, {told.example!r}, "
            f"in document {told.document}; a choice that holds it would win by memory, so name another target"
        )
    return replace(target, items=rest)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
