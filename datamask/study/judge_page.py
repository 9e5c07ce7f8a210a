"""A finding as people look at it: tables, the forest plot, a page, Markdown, JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from datamask.report import charts, formatting, page
from datamask.report.charts import channel, mark
from datamask.report.findings import plain_json
from datamask.report.formatting import Table, count, number
from datamask.report.sections import Figure, PageSection, chart_grid
from datamask.study.choices import RANDOM
from datamask.study.verdict import Finding, Judged


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
    place = {
        "y": channel("arm:N", sort=order, title=None),
        "yOffset": channel("judge:N", sort=names),
        "color": colour,
    }
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
