"""From readings to a verdict: controls, then the contrasts named before the run, then both kinds of judge.

    finding = conclude({"coder": JudgeReadings("counts", readings)}, named=[("default", "random")])
    finding.verdicts[0].says                             # better, worse, not told apart, or no verdict

A judge is heard only if it passes its controls: random draws must not differ from each other (A/A), and words out of
order and planted junk must lose. A verdict needs judges of two kinds that tell the arms apart the same way, since a
judge that counts n-grams may favour what was chosen by n-grams, and a small network what is easy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from datamask.study.choices import CLEAN, CONTROLS, JUNK, RANDOM, SHUFFLED
from datamask.study.inference import LEVEL, Components, Contrast, Readings, Trial, agreement, holm

NO_VERDICT = "no verdict"
PAIRS = 3  # of a control's draws, from which their differences are drawn


@dataclass(frozen=True)
class JudgeSize:
    """How much a judge read and how large it is: a verdict says nothing of more text or of larger models."""

    bytes: int  # of each choice
    parameters: int = 0  # trained on it; a judge that counts has none
    epochs: float = 1.0  # over it

    def __str__(self) -> str:
        often = "1 epoch" if self.epochs == 1 else f"{self.epochs:g} epochs"
        size = f"{self.parameters / 1e6:.2g} M parameters" if self.parameters else "no parameters"
        return f"{self.bytes:,} bytes a choice, {size}, {often}"


@dataclass(frozen=True)
class JudgeReadings:
    """A judge's readings. kind: counts, or network."""

    kind: str
    readings: Readings
    seconds: float = float("nan")  # a choice
    reach: JudgeSize | None = None
    notes: str = ""


@dataclass(frozen=True)
class Control:
    name: str
    passed: bool
    said: str


@dataclass(frozen=True)
class Judged:
    """What one judge says. Bits a byte, the mean of the targets and pools; less is better."""

    name: str
    kind: str
    means: Mapping[str, float]  # arm ->
    answers: Mapping[str, float]  # arm -> bits a byte of the answers given their questions; nan without any
    own: Mapping[str, float]  # arm -> on the pool's held-out documents: never part of a verdict
    against: Sequence[Contrast]  # every arm against random
    named: Sequence[Contrast]  # with Holm's correction
    controls: Sequence[Control]
    components: Components
    seconds: float
    reach: JudgeSize | None = None
    notes: str = ""

    @property
    def passed(self) -> bool:
        return all(control.passed for control in self.controls)


@dataclass(frozen=True)
class Verdict:
    """What the judges say of two arms, why, and what they had read: judge -> reach, of those that spoke."""

    first: str
    second: str
    says: str
    why: str
    reach: Mapping[str, JudgeSize] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """All that was found; `facts` say on what (see `study.run`)."""

    judges: Sequence[Judged]
    agreement: Mapping[str, float]  # "coder, n-grams" -> Kendall's τ over the arms both read
    verdicts: Sequence[Verdict]
    facts: Mapping[str, object] = field(default_factory=dict)


def conclude(
    heard: Mapping[str, JudgeReadings],
    named: Sequence[tuple[str, str]],
    own: Sequence[str] = (),
    facts: Mapping[str, object] | None = None,
) -> Finding:
    """
    :param named: the contrasts, named before the run; those whose arms a judge has not read it leaves out.
    :param own: targets that are shown and never part of a mean.
    :raises InputError: a judge read one arm alone, or arms on different pools.
    """
    judges = [_judged(name, each, named, own) for name, each in heard.items()]
    pairs = {f"{a.name}, {b.name}": agreement(a.means, b.means) for a, b in combinations(judges, 2)}
    return Finding(judges, pairs, [_verdict(first, second, judges) for first, second in named], facts or {})


def _judged(name: str, heard: JudgeReadings, named: Sequence[tuple[str, str]], own: Sequence[str]) -> Judged:
    arms = {arm: by_pool for arm, by_pool in heard.readings.items() if arm not in CONTROLS}
    trial = Trial(arms, own=own)
    there = [(first, second) for first, second in named if first in arms and second in arms]
    return Judged(
        name=name,
        kind=heard.kind,
        means={arm: trial.mean(arm) for arm in arms},
        answers={arm: trial.answers(arm) for arm in arms},
        own={arm: trial.mean(arm, own[0]) for arm in arms} if own else {},
        against=[trial.contrast(arm, RANDOM) for arm in arms if arm != RANDOM],
        named=trial.named(there) if there else [],
        controls=controls(heard.readings, own),
        components=trial.components(),
        seconds=heard.seconds,
        reach=heard.reach,
        notes=heard.notes,
    )


def controls(readings: Readings, own: Sequence[str] = ()) -> list[Control]:
    """A/A, words shuffled, and planted junk, as far as they were read; one that was not read has failed."""
    found = [_random_against_random(readings, own)]
    for name, worse, better in (("words shuffled", SHUFFLED, RANDOM), ("planted junk", JUNK, CLEAN)):
        if worse not in readings or better not in readings:
            found.append(Control(name, False, "was not read"))
            continue
        count = [len(draws) for draws in readings[worse]]
        same = [draws[:n] for draws, n in zip(readings[better], count, strict=True)]
        if sum(count) < PAIRS:  # too few to tell their own spread from: by that of the random draws
            arms = {RANDOM: readings[RANDOM], **({better: same} if better != RANDOM else {}), worse: readings[worse]}
            contrast = Trial(arms, own=own).contrast(worse, better)
        else:
            trial = Trial({better: same, worse: readings[worse]}, reference=better, own=own)
            contrast = trial.contrast(worse, better, paired=True)
        passed = contrast.says == "worse"
        said = f"{worse} against {better}: {contrast.interval}, {'found' if passed else 'not found'}"
        found.append(Control(name, passed, said))
    return found


def _random_against_random(readings: Readings, own: Sequence[str]) -> Control:
    by_pool = readings[RANDOM]
    pairs = min(len(draws) for draws in by_pool) // 2
    if not pairs:
        return Control("A/A", False, "needs two random draws of every pool")
    found = []
    for pair in range(pairs):
        a, b = ([[draws[2 * pair + side]] for draws in by_pool] for side in (0, 1))
        trial = Trial({"one draw": a, "another": b, RANDOM: by_pool}, own=own)
        found.append(trial.contrast("one draw", "another", paired=len(by_pool) > 1))  # by the pair's own spread
    not_told_apart = sum(p >= LEVEL for p in holm([contrast.p for contrast in found]))
    inside = sum(contrast.low <= 0 <= contrast.high for contrast in found)
    said = f"{not_told_apart} of {pairs} pairs of random draws not told apart; {inside} of {pairs} intervals hold 0"
    return Control("A/A", not_told_apart == pairs, said)


def _verdict(first: str, second: str, judges: Sequence[Judged]) -> Verdict:
    failed = [judge for judge in judges if not judge.passed]
    told: dict[str, list[str]] = {}
    kinds: dict[str, set[str]] = {}
    reach: dict[str, JudgeSize] = {}
    for judge in judges:
        for contrast in judge.named:
            if judge.passed and (contrast.first, contrast.second) == (first, second):
                told.setdefault(contrast.says, []).append(f"{judge.name} {contrast.interval}")
                kinds.setdefault(contrast.says, set()).add(judge.kind)
                if judge.reach:
                    reach[judge.name] = judge.reach
    lost = "".join(
        f"; {judge.name} failed its control {control.name}: {control.said}"
        for judge in failed
        for control in judge.controls
        if not control.passed
    )
    if not told:
        return Verdict(first, second, NO_VERDICT, f"no judge that passed its controls read both{lost}")
    spoken = "; ".join(f"{says}: {', '.join(who)}" for says, who in told.items()) + lost
    if "better" in told and "worse" in told:
        return Verdict(first, second, NO_VERDICT, f"the judges contradict each other. {spoken}", reach)
    says = next((says for says in ("better", "worse") if says in told), "not told apart")
    if len(kinds[says]) < 2:
        needed = "a verdict needs judges of two kinds, counts and network, that say the same"
        return Verdict(first, second, NO_VERDICT, f"{needed}. {spoken}", reach)
    return Verdict(first, second, says, spoken, reach)
