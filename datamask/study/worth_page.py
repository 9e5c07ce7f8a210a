"""What `datamask worth` found, as people read it: a page of Markdown, tables for the terminal, JSON."""

from __future__ import annotations

from datamask.errors import several
from datamask.report import page
from datamask.report.formatting import Table, count, markdown, number, percent
from datamask.study.worth import Worth

SHOWN = 16  # topics and languages, the largest


def lead(found: Worth) -> str:
    """The finding in two sentences."""
    unit = "tokens" if found.in_tokens else "documents"
    gain = "" if found.gain is None else f"; the objective gains {found.gain:+.4f}"
    return (
        f"{found.says}: {several(found.added, 'document')} of {count(found.rows)} are new to release {found.release}. "
        f"A choice of {count(found.budget)} {unit} from both takes {percent(found.taken_share)} of its tokens from "
        f"them, which have {percent(found.pool_share)} of the candidates' tokens{gain}."
    )


def tables(found: Worth) -> list[Table]:
    """What became of the rows, quality, what is taken by topic and language, and what judges say."""
    lost = [[why.replace("_", " "), count(rows)] for why, rows in found.lost.items()]
    rows = [["read", count(found.rows)], *lost, ["new documents", count(found.added)]]
    heads = list(found.quality["old"])
    qualities = [
        [f"{name} documents", *(number(own[head]) for head in heads)] for name, own in found.quality.items() if own
    ]
    made: list[Table] = [("Rows read", ["", "rows"], rows)]
    made.append(("Quality, on the release's scale", ["", *heads], qualities))
    for column, groups in found.groups.items():
        rows = [
            [row.value, count(row.documents), count(row.tokens), count(row.chosen), percent(row.share, 2)]
            for row in groups[:SHOWN]
        ]
        made.append((f"Taken, by {column}", [column, "new documents", "tokens", "chosen", "of the choice"], rows))
    if found.judged:
        rows = []
        for judge in found.judged.judges:
            bits = f"{judge.difference:+.4f} ± {judge.half_width:.4f}"
            failed = ", ".join(name for name, passed in judge.controls.items() if not passed)
            each = (f"{value:+.4f}" for value in judge.targets.values())
            rows.append([judge.judge, bits, judge.says, *each, failed or "passed"])
        head = ["judge", "bits a byte", "says", *found.judged.judges[0].targets, "controls"]
        bytes_ = f"{count(found.judged.bytes)} bytes, of which {count(found.judged.new_bytes)} are new"
        made.append((f"Read with the new, minus without: {bytes_}; less is better", head, rows))
    return made


def write_worth(folder: str, found: Worth) -> dict[str, str]:
    """Writes worth.json and worth.md; returns their paths."""
    text = markdown(f"# Worth\n\n{lead(found)}", tables(found))
    return page.write_pages(folder, "worth", found.as_json(), page=(".md", text))
