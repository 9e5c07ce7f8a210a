"""Writes the figures of README, RESULTS and docs from the tables and lines of RESULTS.md, so that no two pages differ.

python benchmarks/figures.py            # rewrites what stands between `<!-- figures NAME -->` and its end
python benchmarks/figures.py --check    # ends with status 1 where a page differs from what it would write
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable

import run

BLOCK = re.compile(r"<!-- figures (?P<name>[\w-]+) -->\n(?P<body>.*?)<!-- end figures (?P=name) -->", re.DOTALL)
PAGES = ["benchmarks/RESULTS.md", "README.md", "README.zh-CN.md", "docs/judge.md"]
JUDGES = ["coder", "n-grams", "network"]
HALVES = {"choosing": "judge 2", "reporting": "judge 4"}
ARMS = {  # an arm's name in the judge's tables: in English, in Chinese
    "target λ 0.3": ("**texts named that the model shall be good at (`--target`)**", "**指定目标文本（`--target`）**"),
    "words and static 3:1 λ 0.7": ("**the default, without such texts**", "**默认设置（不指定目标文本）**"),
    "words λ 0.7, documents": ("words alone, a budget of documents", "仅词语，按文档数预算"),
    "pairwise λ 0.5, mpnet": (
        "the paper's pairwise diversity, all-mpnet-base-v2",
        "论文的 pairwise 多样性，all-mpnet-base-v2",
    ),
    "pairwise λ 0.5, static": ("the same, static encoder", "同上，静态编码器"),
    "dsir": ("DSIR, told the same texts as the first row", "DSIR，使用与第一行相同的目标文本"),
    "top-quality": ("top-quality", "只按质量"),
}
ALL_ARMS = {
    "target λ 0.3": "**target, λ 0.3: the default with a target**",
    "target and words 2:1 λ 0.3": "target and words 2 : 1, λ 0.3",
    "target and embedding 1:1 λ 0.3": "target and embedding 1 : 1, λ 0.3",
    "dsir": "DSIR, told the same",
    "words and static 3:1 λ 0.7": "**words and embedding 3 : 1, λ 0.7: the default**",
    "words λ 0.7": "words alone, λ 0.7",
    "words λ 0.7, documents": "words alone, λ 0.7, a budget of documents",
    "solver's saturating, words λ 0.3": "`curve: saturating`, words, λ 0.3",
    "random, the default's source × length × quality": "random in the default's shares",
    "pairwise λ 0.5, static": "pairwise, λ 0.5, static encoder",
    "pairwise λ 0.5, mpnet": "pairwise, λ 0.5, all-mpnet-base-v2",
    "top-quality": "top-quality",
}


TEN = """\
| a choice for a target, bits a byte of kept-back sets, by a coder | {judge 4; target λ 0.3; coder, reporting sets} \
| the default without a target {judge 4; words and static 3:1 λ 0.7; coder, reporting sets} |
| the same, by a network | {judge 4; target λ 0.3; network, reporting sets} \
| the default {judge 4; words and static 3:1 λ 0.7; network, reporting sets} |
| gap of 33,872 real documents, λ .5, pairwise | {selection_optimality 1; pairwise; 0.5; gap} \
| DiSF {selection_optimality 1; DiSF; 0.5; gap}, which is whole documents' cost |
| a million documents, 768 dimensions, pairwise, s | {selection_scale_by_size 1; 1,000,000; pairwise; seconds} \
| DiSF {selection_scale_by_size 1; 1,000,000; DiSF; seconds} |
| 34,232 real documents, raw text to release, cold, s | {nothing else running: ([0-9.]+) s, cold} \
| the version of 2026-11-25 {version of 2026-11-25 takes ([0-9.]+) s} |
| static encoder, documents a second | {encoders_static 1; static, first window (default); docs/s} \
| all-MiniLM-L6-v2 {encoders_static 1; all-MiniLM-L6-v2 (22 M parameters), 256 tokens, bfloat16; docs/s} |
| transformer, bfloat16, tokens a second | {encoders_throughput 1; datamask, bfloat16, 4096 tokens a batch; tokens/s} \
| `SentenceTransformer.encode` {encoders_throughput 1; SentenceTransformer.encode, bfloat16; tokens/s} |
| reading parquet, documents a second | {corpus_reading 1; datamask; documents/s, first run} \
| pyarrow {corpus_reading 1; pyarrow, bare; documents/s, first run}, \
datatrove {corpus_reading 1; datatrove; documents/s, first run} |
| test items planted whole, share found | {decontamination 1; datamask; whole} \
| datatrove {decontamination 1; datatrove, 12 words; whole} |
| kills of a publication after which a release was whole | {after ([0-9]+ of [0-9]+) kills} | |
"""


class Results:
    """The tables and lines of the page, by name."""

    def __init__(self, text: str) -> None:
        self.text = BLOCK.sub("", text)
        self.tables = {f"{found['name']} {found['number']}": rows(found["body"]) for found in run.MARKED.finditer(text)}

    def cell(self, table: str, row: tuple[str, ...] | str, column: str) -> str:
        """The cell of the first row that begins with these cells, and of the column of this head."""
        head, *body = self.tables[table]
        first = (row,) if isinstance(row, str) else row
        for cells in body:
            if tuple(cells[: len(first)]) == first:
                return cells[head.index(column)].replace("*", "")
        raise KeyError(f"no row {row!r} in the table {table}")

    def line(self, pattern: str) -> str:
        """What the parentheses of a pattern hold in the page's prose, on one line."""
        found = re.search(pattern, " ".join(self.text.split()))
        if found is None:
            raise KeyError(f"no line of RESULTS.md matches {pattern!r}")
        return found[1]

    def judged(self, arm: str, half: str, sets: str, judge: str) -> float | None:
        """Bits a byte minus a random choice's; None where the judge did not read the arm."""
        cell = self.cell(HALVES[half], arm, f"{judge}, {sets} sets")
        return float(cell.split("±")[0].replace("−", "-")) if cell else None

    def mean_judged(self, arm: str) -> float:
        """Over the judges and the halves, on the sets that chose nothing."""
        found = [self.judged(arm, half, "reporting", judge) for half in HALVES for judge in JUDGES]
        return sum(value for value in found if value is not None) / len(found)


def rows(body: str) -> list[list[str]]:
    """The cells of a table's lines, without the line of dashes."""
    lines = [line.strip().strip("|").split("|") for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines if not re.fullmatch(r"[-: ]*", "".join(line))]


def signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f}".replace("-", "−")


def ten(results: Results) -> str:
    """The ten figures that matter: `{table; first cells of the row; column}` or `{a line's pattern}` in TEN."""

    def figure(found: re.Match[str]) -> str:
        table, *rest = found[1].split("; ")
        return results.cell(table, tuple(rest[:-1]), rest[-1]) if rest else results.line(table)

    return "| what | figure | beside |\n|---|---|---|\n" + re.sub(r"\{(.+?)\}", figure, TEN)


def evidence(results: Results, language: int) -> str:
    """One number a choice."""
    head = ("| choice | bits a byte, minus a random choice |", "| 选择方式 | 每字节比特数，减去随机选择 |")[language]
    lines = "".join(f"| {names[language]} | {signed(results.mean_judged(arm))} |\n" for arm, names in ARMS.items())
    return f"{head}\n|---|--:|\n{lines}"


def judges(results: Results) -> str:
    """Each judge on the sets and sources that chose, and on those that report."""
    head = " | ".join(f"{judge}, {half}" for half in HALVES for judge in JUDGES)
    lines = []
    for arm, name in ALL_ARMS.items():
        cells = [signed(results.judged(arm, half, half, judge)) for half in HALVES for judge in JUDGES]
        lines.append(f"| {name} | {' | '.join(cells)} |\n")
    return f"| choice | {head} |\n|---|" + "--:|" * 6 + "\n" + "".join(lines)


BLOCKS: dict[str, Callable[[Results], str]] = {
    "ten": ten,
    "evidence": lambda results: evidence(results, 0),
    "evidence-zh": lambda results: evidence(results, 1),
    "judges": judges,
}


def filled(text: str, results: Results) -> str:
    """A page with its blocks as the tables say."""
    return BLOCK.sub(
        lambda found: (
            f"<!-- figures {found['name']} -->\n{BLOCKS[found['name']](results)}<!-- end figures {found['name']} -->"
        ),
        text,
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    results = Results(run.RESULTS.read_text(encoding="utf-8"))
    other = []
    for page in PAGES:
        path = run.ROOT / page
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if (now := filled(text, results)) != text:
            other.append(page)
            if not options.check:
                path.write_text(now, encoding="utf-8")
    if options.check and other:
        sys.exit(f"figures differ from RESULTS.md in {', '.join(other)}; python benchmarks/figures.py writes them")


if __name__ == "__main__":
    main()
