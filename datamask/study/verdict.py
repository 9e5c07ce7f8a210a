"""From readings to a verdict: controls, then the contrasts named before the run, then both kinds of judge.

    finding = conclude({"coder": JudgeReadings("counts", readings)}, named=[("default", "random")])
    finding.verdicts[0].says                             # better, worse, not told apart, or no verdict

A judge is heard only if it passes its controls: random draws must not differ from each other (A/A), and words out of
order and planted junk must lose. A verdict needs judges of two kinds that tell the arms apart the same way, since a
judge that counts n-grams may favour what was chosen by n-grams, and a small network what is easy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

from datamask.console import wide_console
from datamask.report import charts, formatting, page
from datamask.report.charts import channel, mark
from datamask.report.findings import plain_json
from datamask.report.formatting import Table, count, number
from datamask.report.sections import Figure, PageSection, chart_grid
from datamask.report.terminal import print_tables
from datamask.study.inference import LEVEL, Components, Contrast, Readings, Trial, agreement, holm
from datamask.study.targets import CLEAN, CONTROLS, JUNK, RANDOM, SHUFFLED

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


# ---------------------------------------------------------------- the finding on a page


def lead(found: Finding) -> str:
    facts: Any = found.facts
    outside = [target for target in facts["targets"] if not target["own"]]
    return (
        f"{count(facts['pools'])} pools of {count(facts['documents'])} documents of {facts['corpus']}, "
        f"{count(facts['bytes'])} bytes of each choice ({100 * facts['budget_share']:.1f} % of its pool), "
        f"{facts['draws']} random draws a pool; bits a byte on {len(outside)} targets from outside the pool, each "
        "alike; less is better. Intervals are 95 %: a two-way bootstrap over the targets' items and draws or pools."
        + (
            f" So few pools as {facts['pools']} give wide intervals; five give useful ones."
            * (facts["pools"] in (2, 3))
        )
    )


def tables(found: Finding) -> list[Table]:
    """Verdicts, contrasts, arms, controls, spread, agreement, targets; in the order of what matters."""
    made: list[Table] = [
        (
            "Verdict",
            ["contrast", "verdict", "why", "read by"],
            [
                [f"{v.first} − {v.second}", v.says, v.why, "; ".join(f"{name}: {r}" for name, r in v.reach.items())]
                for v in found.verdicts
            ],
        ),
        (
            "Contrasts named before the run",
            ["contrast", "judge", "bits a byte", "p, Holm", "says"],
            [
                [f"{c.first} − {c.second}", judge.name, c.interval, f"{c.adjusted:.3g}", c.says]
                for judge in found.judges
                for c in judge.named
            ],
        ),
    ]
    made += [_arms(judge) for judge in found.judges]
    made.append(
        (
            "Controls: a judge that fails one is not heard",
            ["judge", "control", "passed", "what was seen"],
            [[j.name, c.name, "yes" if c.passed else "no", c.said] for j in found.judges for c in j.controls],
        )
    )
    made.append(
        (
            "Where the spread of a random choice comes from (standard deviations, bits a byte)",
            ["judge", "pool", "draw", "items", "seconds a choice", "read", "notes"],
            [
                [
                    j.name,
                    *(number(value, 4) for value in (j.components.pool, j.components.draw, j.components.item)),
                    f"{j.seconds:.1f}",
                    str(j.reach or "–"),
                    j.notes or "–",
                ]
                for j in found.judges
            ],
        )
    )
    if found.agreement:
        rows = [[pair, f"{tau:+.2f}" if math.isfinite(tau) else "–"] for pair, tau in found.agreement.items()]
        made.append(("Agreement of the judges over the arms (Kendall's τ)", ["judges", "τ"], rows))
    made.append(_targets(found))
    facts: Any = found.facts
    left = [[arm, f"could not choose: {why}"] for arm, why in facts.get("refused", {}).items()]
    left += [note.split(": ", 1) for note in facts.get("notes", [])]
    if left:
        made.append(("What was left out", ["where", "what"], left))
    return made


def _arms(judge: Judged) -> Table:
    against = {contrast.first: contrast for contrast in judge.against}
    rows = [
        [
            arm,
            number(judge.means[arm], 4),
            against[arm].interval if arm in against else "–",
            number(judge.answers[arm], 4),
            number(judge.own.get(arm), 4),
        ]
        for arm in sorted(judge.means, key=lambda arm: judge.means[arm])
    ]
    head = ["arm", "bits a byte", "minus random", "answers alone", "held-out documents of the pool itself"]
    return f"{judge.name}: every arm, best first", head, rows


def _targets(found: Finding) -> Table:
    facts: Any = found.facts
    names = [target["name"] for target in facts["targets"]]
    contrasts = [(judge.name, c) for judge in found.judges for c in judge.named]
    rows = []
    for target in facts["targets"]:
        there = facts["in_the_pool"].get(target["name"])
        rows.append(
            [
                target["name"],
                count(target["items"]),
                count(target["bytes"]),
                f"{there['items']} left out" if there else "–",
                *(f"{c.targets[target['name']]:+.3f}" for _, c in contrasts),
            ]
        )
    head = ["target", "items", "bytes", "in the pool", *(f"{judge}: {c.first} − {c.second}" for judge, c in contrasts)]
    return f"The {len(names)} targets, and the contrasts on each", head, rows


def markdown(found: Finding) -> str:
    return formatting.markdown(lead(found), tables(found))


def render(found: Finding) -> str:
    arms = Figure(
        "forest",
        forest(found.judges),
        "Every arm against a random choice",
        "Left of the line the choice is better than random. Bars are 95 % intervals: one that crosses the line is "
        "not told apart. A judge that failed a control is not heard, and drawn hollow.",
    )
    glance = PageSection("forest-plot", "At a glance", [chart_grid(arms, wide=True)])
    sections, name = [glance, *page.table_sections(tables(found))], str(found.facts["corpus"])
    return page.assemble(f"{name}: judged", f"{name}: does a model learn more?", lead(found), sections)


def forest(judges: Sequence[Judged]) -> charts.Chart:
    """Arms against random, a row an arm, a colour a judge."""
    rows = [
        {
            "arm": contrast.first,
            "judge": judge.name,
            "difference": contrast.difference,
            "low": contrast.low,
            "high": contrast.high,
            "heard": judge.passed,
        }
        for judge in judges
        for contrast in judge.against
    ]
    order = [contrast.first for contrast in sorted(judges[0].against, key=lambda contrast: contrast.difference)]
    names = [judge.name for judge in judges]
    title = f"bits a byte, minus {RANDOM}: less is better"
    colour = channel("judge:N", sort=names, title=None)
    place = {"y": channel("arm:N", sort=order, title=None), "yOffset": channel("judge:N", sort=names), "color": colour}
    ends = {"x": channel("low:Q", title=title), "x2": {"field": "high"}}
    dots = {
        **place,
        "x": channel("difference:Q"),
        "fill": {"condition": {"test": "datum.heard", **colour}, "value": "transparent"},
        "tooltip": [channel("arm:N"), channel("judge:N"), channel("difference:Q", format="+.4f")],
    }
    return charts.chart(
        None,
        mark("rule", [{"zero": 0}], strokeDash=[4, 4], encoding={"x": channel("zero:Q")}),
        mark("rule", rows, strokeWidth=2, encoding={**place, **ends}),
        mark("point", rows, size=60, opacity=1, encoding=dots),
        height=max(60, len(order) * (14 * len(judges) + 10)),
    )


def write_judgement(folder: str, found: Finding) -> dict[str, str]:
    pages = {"page": (".html", render(found)), "markdown": (".md", markdown(found))}
    return page.write_pages(folder, "judge", as_json(found), **pages)


def as_json(found: Finding) -> dict[str, Any]:
    """Everything, with whether each judge passed and what each contrast says."""
    whole = asdict(found)
    for told, judge in zip(whole["judges"], found.judges, strict=True):
        told["passed"] = judge.passed
        for kind in ("against", "named"):
            for row, contrast in zip(told[kind], getattr(judge, kind), strict=True):
                row["says"] = contrast.says
    result: dict[str, Any] = plain_json(whole)
    return result


def show_finding(found: Finding, paths: Mapping[str, str]) -> None:
    console = wide_console()
    console.print(lead(found), soft_wrap=True)
    console.print()
    for place, verdict in enumerate(found.verdicts, 1):
        console.print(f"{verdict.first} against {verdict.second}: {verdict.says}", style="bold")
        if [verdict.why] != [following.why for following in found.verdicts[place : place + 1]]:  # the same why once
            console.print(f"  {verdict.why}", soft_wrap=True)
            for judge, reach in verdict.reach.items():
                console.print(f"  {judge} read {reach}", soft_wrap=True)
    print_tables(console, tables(found)[1:], paths)
