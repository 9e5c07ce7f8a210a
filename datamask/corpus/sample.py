"""A real corpus from the machine itself: the docstrings and long comments of its Python packages, in FineWeb's layout.

Nothing is imported or run: the sources are parsed by `ast`. Near-duplicates (vendored copies, templated
docstrings) and junk (licence heads, lists of numbers) stay, as in any crawl.
"""

from __future__ import annotations

import ast
import io
import os
import re
import sys
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import pyarrow as pa

from datamask.corpus.columns import FINEWEB
from datamask.errors import InputError
from datamask.libraries import no_garbage
from datamask.storage import find_output, join, key, write_output

DUMP = "PYTHON-DOCS"
MIN_CHARACTERS = 80  # shorter docstrings are one-line titles
MAX_FILE_BYTES = 1_000_000  # larger sources are tables of data
FILES = 4
VERSION = 2  # of the rules by which documents are chosen
DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
SCHEMA = pa.schema([*FINEWEB, ("source", pa.string()), ("domain", pa.string())])


@dataclass(frozen=True)
class SampleCorpus:
    files: tuple[str, ...]
    documents: int
    packages: int


def sample_corpus(folder: str, documents: int = 20_000) -> SampleCorpus:
    """Writes the corpus: FILES parquet files in `folder`, the same every time on the same machine.

    Files that are there stay, unless packages have changed.

    The sources are read in the order of a hash of their path until there are `documents`, so the choice depends on
    what is installed alone and no package comes first.

    :raises InputError: no Python source is to be found.
    :raises StorageError: `folder` cannot be written.
    """
    places = dict.fromkeys(Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))
    installed = sorted(folder.name for place in places for folder in place.glob("*.*-info"))
    output_key = key("sample", VERSION, documents, [sys.version, *installed])
    urls = [join(folder, f"sample-{number:05d}-of-{FILES:05d}.parquet") for number in range(FILES)]
    there = [found for url in urls if (found := find_output(url, output_key))]
    if len(there) == FILES:
        return SampleCorpus(tuple(urls), sum(found.rows for found in there), there[0].facts["packages"])
    with no_garbage():
        chosen = list(islice(_documents(), documents))
    if not chosen:
        raise InputError("no Python source found beside this interpreter; give text of your own: --input PATH")
    facts = {"packages": len({row["source"] for row in chosen})}
    for number, url in enumerate(urls):
        table = pa.Table.from_pylist(chosen[number::FILES], schema=SCHEMA)
        write_output(url, output_key, SCHEMA, [table], lambda: facts, row_group_rows=1000)
    return SampleCorpus(tuple(urls), len(chosen), facts["packages"])


# ---------------------------------------------------------------- sources


def _documents() -> Iterator[dict[str, str]]:
    for root, relative in _sources():
        standard = root == _standard_library()
        package = "python" if standard else relative.split("/")[0].removesuffix(".py")
        try:
            data = (root / relative).read_bytes()
            yield from _of_source(data, f"python/{relative}" if standard else relative, package)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # a template, Python 2, or a file that is broken on purpose in a test


def _sources() -> list[tuple[Path, str]]:
    """(root, path in it) of every source of the standard library and the installed packages, in a fixed mixed order."""
    roots = [_standard_library(), *map(Path, (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))]
    found: dict[str, tuple[Path, str]] = {}  # by whole path, in strings: a `Path` of each file took most of the time
    for root in dict.fromkeys(root.resolve() for root in roots):
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in ("__pycache__", "site-packages", "dist-packages")]
            inside = folder[len(str(root)) + 1 :]
            for name in names:
                if name.endswith(".py"):
                    found.setdefault(f"{folder}/{name}", (root, f"{inside}/{name}" if inside else name))
    return sorted(found.values(), key=lambda place: blake2b(place[1].encode("utf-8", "surrogateescape")).digest())


def _standard_library() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()


def _of_source(data: bytes, file_path: str, package: str) -> Iterator[dict[str, str]]:
    if len(data) > MAX_FILE_BYTES:
        return
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    text = data.decode(encoding)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's code
        tree = ast.parse(text)
    nodes = list(_spanning(tree))
    for line, docstring in sorted(_docstrings(nodes)):
        yield _row(docstring, file_path, line, package, "documentation")
    strings = [node for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno]
    inside = {line for node in strings for line in range(node.lineno + 1, (node.end_lineno or 0) + 1)}
    for line, comment in _comments(text, inside):  # in a string a # begins none
        yield _row(comment, file_path, line, package, "code")


def _row(text: str, file_path: str, line: int, source: str, domain: str) -> dict[str, str]:
    """A document, by SCHEMA. source: its package; domain: documentation or code."""
    place = {"id": f"{file_path}:{line}", "url": f"file:///{file_path}#L{line}", "file_path": file_path}
    return {"text": text, **place, "dump": DUMP, "language": "en", "source": source, "domain": domain}


def _spanning(tree: ast.AST) -> Iterator[ast.AST]:
    """The definitions, and what else goes on over several lines: one node in twelve."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for value in vars(node).values():
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST):
                    continue
                # arguments, which may have several lines, do not say where they begin and end
                in_a_line = getattr(child, "lineno", 0) == getattr(child, "end_lineno", None)
                if isinstance(child, DEFINITIONS) or not in_a_line:
                    waiting.append(child)


def _docstrings(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """(first line, text) of every docstring that is long enough."""
    for node in nodes:
        if isinstance(node, ast.Module | DEFINITIONS):
            docstring = ast.get_docstring(node)
            if docstring and len(docstring) >= MIN_CHARACTERS and _is_text(docstring):
                yield node.body[0].lineno, docstring


def _comments(text: str, inside: set[int]) -> Iterator[tuple[int, str]]:
    """(first line, text) of every run of comment lines that is long enough."""
    run: list[str] = []
    first = 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        stripped = line.strip()
        if stripped.startswith("#") and number not in inside:
            first = first if run else number
            run.append(stripped.lstrip("#").removeprefix(" "))
        elif run:
            comment = "\n".join(run).strip()
            if len(comment) >= MIN_CHARACTERS and _is_text(comment):
                yield first, comment
            run = []


def _is_text(text: str) -> bool:
    """False for a literal with escapes of lone surrogates, which no file of text can hold."""
    return re.search("[\ud800-\udfff]", text) is None
