"""What `datamask worth` found, as people read it: a page of Markdown, tables for the terminal, JSON."""

from __future__ import annotations

from datamask import storage
from datamask.errors import several
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
    rows = [[why.replace("_", " "), count(rows)] for why, rows in found.lost.items()]
    made: list[Table] = [
        ("Rows read", ["", "rows"], [["read", count(found.rows)], *rows, ["new documents", count(found.added)]])
    ]
    heads = list(found.quality["old"])
    qualities = [
        [f"{which} documents", *(number(own[name]) for name in heads)] for which, own in found.quality.items() if own
    ]
    made.append(("Quality, on the release's scale", ["", *heads], qualities))
    for column, groups in found.groups.items():
        own = [
            [row.value, count(row.documents), count(row.tokens), count(row.chosen), percent(row.share, 2)]
            for row in groups[:SHOWN]
        ]
        made.append((f"Taken, by {column}", [column, "new documents", "tokens", "chosen", "of the choice"], own))
    if found.judged:
        judges = found.judged.judges
        head = ["judge", "bits a byte", "says", *judges[0].targets, "controls"]
        rows = [
            [
                judge.judge,
                f"{judge.difference:+.4f} ± {judge.half_width:.4f}",
                judge.says,
                *(f"{value:+.4f}" for value in judge.targets.values()),
                ", ".join(name for name, passed in judge.controls.items() if not passed) or "passed",
            ]
            for judge in judges
        ]
        bytes_ = f"{count(found.judged.bytes)} bytes, of which {count(found.judged.new_bytes)} are new"
        title = f"Read with the new, minus without: {bytes_}; less is better"
        made.append((title, head, rows))
    return made


def write_worth(folder: str, found: Worth) -> dict[str, str]:
    """Writes worth.json and worth.md; returns their paths."""
    paths = {"data": storage.join(folder, "worth.json"), "page": storage.join(folder, "worth.md")}
    storage.write_json(paths["data"], found.as_json())
    storage.write_content(paths["page"], as_markdown(found))
    return paths


def as_markdown(found: Worth) -> str:
    """The page."""
    return markdown(f"# Worth\n\n{lead(found)}", tables(found))
