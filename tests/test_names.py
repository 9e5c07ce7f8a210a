"""A name in a docstring, a comment or a page exists: a module, what stands in it, a setting, or a file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from datamask.config import Config
from tests.test_layers import dotted, modules

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for top in ("datamask", "flows", "tasks") for path in (ROOT / top).rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOTTED = re.compile(r"(?<![\w/.`])`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?(?:[^`\w][^`]*)?`")
PLACED = re.compile(r"(?<![\w/])((?:[\w-]+/)*[\w-]+\.py):([A-Za-z_]\w*)")
LISTED = re.compile(r"`([a-z]\w*)`")
ENDINGS = {"py", "md", "json", "html", "yaml", "yml", "toml", "txt", "parquet", "npy", "npz", "jsonl", "gz", "csv"}
ENDINGS |= {"safetensors", "png", "svg", "css", "js", "xz", "zst", "arrow", "lock", "exe", "tar", "tsv", "com", "zip"}
LIBRARIES = {"datasets", "pyarrow", "tokenizers"}
FIELDS = {"documents", "pool", "problem", "sample", "files"}  # what an own class is handed, by its usual name
GROUPS = {
    f"datamask.{group}" for group in ("commands", "encoders", "filters", "metrics", "scorers", "solvers")
}  # entry points
EVENTS = re.compile(r"datamask\.[a-z.]+\*?")  # of Prefect, as flows/ and tasks/ emit them
PLACEHOLDERS = {"file.py:Class", "stops.py:FullStops"}  # a user's own file


def names_in(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """The names that statements bind, those below `if` and `try` too, each with its statement."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.partition(".")[0], node) for alias in node.names)
        elif isinstance(node, ast.If | ast.Try):
            yield from names_in([*node.body, *node.orelse])
        else:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                yield from ((one.id, node) for one in ast.walk(target) if isinstance(one, ast.Name)) if target else ()


@cache
def members(module: str) -> dict[str, ast.stmt]:
    return dict(names_in(modules()[module].body))


@cache
def classes() -> dict[str, set[str]]:
    """What the classes of each name have: methods, fields, and attributes that they set."""
    found: dict[str, set[str]] = {}
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own = found.setdefault(node.name, set())
                own |= {name for name, _ in names_in(node.body)}
                own |= {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    return found


@cache
def resolves(name: str) -> bool:
    """Whether a dotted name leads to a module of ours, what stands in it, or a member of a class or a setting."""
    parts = name.split(".")
    if (
        parts[0] in LIBRARIES | FIELDS
        or name in GROUPS | events()
        or is_setting(parts[1:] if parts[0] == "config" else parts)
    ):
        return True
    if parts[0] in classes() and (len(parts) == 1 or parts[1] in classes()[parts[0]]):
        return True
    for count in range(len(parts), 0, -1):
        prefix = ".".join(parts[:count])
        for module in modules():
            if module == prefix or module.endswith(f".{prefix}"):
                rest = parts[count:]
                if not rest or rest[0] in members(module) or rest[0] in exported(module):
                    return True
    return False


def is_setting(parts: list[str]) -> bool:
    """Whether these are a section and its setting, or a setting of settings within one."""
    sections = {name: field.annotation for name, field in Config.model_fields.items()}
    nested = {"coverage": Config.model_fields["select"].annotation.model_fields["coverage"].annotation}
    found = [one for table in (sections, nested) if (one := table.get(parts[0]))] if parts else []
    return any(len(parts) == 1 or hasattr(one, parts[1]) or parts[1] in one.model_fields for one in found)


@cache
def events() -> set[str]:
    """What stands in quotes in the code and looks like the name of an event of Prefect."""
    constants = (node.value for tree in modules().values() for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value.rstrip(".") for value in constants if isinstance(value, str) and EVENTS.fullmatch(value)}


@cache
def exported(module: str) -> set[str]:
    """The names of `__all__` and of the table that packages load lazily by."""
    found = set()
    for name, node in names_in(modules()[module].body):
        if name in ("__all__", "_HOMES") and isinstance(node, ast.Assign):
            found |= {
                one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
    return found


def words_of(path: Path) -> Iterator[tuple[int, str]]:
    """A module's docstrings and comments, with their lines."""
    for node in ast.walk(modules()[dotted(path)]):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def own_words(path: Path) -> set[str]:
    """The identifiers of a module's code: a dotted name that begins with one speaks of a variable, or of a library."""
    return {
        word
        for node in ast.walk(modules()[dotted(path)])
        for word in (
            [node.id]
            if isinstance(node, ast.Name)
            else [node.arg]
            if isinstance(node, ast.arg)
            else [node.attr]
            if isinstance(node, ast.Attribute)
            else []
        )
    }


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_in_docstrings_and_comments_exist(path: Path) -> None:
    known, wrong = own_words(path), []
    for line, text in words_of(path):
        for name in DOTTED.findall(text):
            first, last = name.split(".")[0], name.rsplit(".", 1)[1]
            if not (resolves(name) or last in ENDINGS or (first in known and not ours(first))):
                wrong.append(f"line {line}: {name}")
        wrong += [f"line {line}: {file}:{name}" for file, name in PLACED.findall(text) if not placed(file, name)]
    assert not wrong


@cache
def ours(first: str) -> bool:
    return any(module.rsplit(".", 1)[-1] == first for module in modules())


def placed(file: str, name: str) -> bool:
    """Whether a file of that path, or of such an ending, holds the name."""
    dotted = file.removesuffix(".py").replace("/", ".")
    return f"{file}:{name}" in PLACEHOLDERS or any(
        name in members(one) for one in modules() if one == dotted or one.endswith(f".{dotted}")
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_on_pages_exist(path: Path) -> None:
    wrong = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for name in DOTTED.findall(line):
            if (name.split(".")[0] in {"datamask", "flows", "tasks"} or ours(name.split(".")[0])) and not (
                resolves(name) or name.rsplit(".", 1)[1] in ENDINGS
            ):
                wrong.append(f"line {number}: {name}")
        wrong += [f"line {number}: {file}:{name}" for file, name in PLACED.findall(line) if not placed(file, name)]
    assert not wrong


PACKAGES = [path for path in SOURCES if path.name == "__init__.py"]


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_package_lists_stands_in_it(path: Path) -> None:
    module = ".".join(path.parent.relative_to(ROOT).parts)
    inside = {one.removeprefix(f"{module}.").split(".")[0] for one in modules() if one.startswith(f"{module}.")}
    known = inside | {*members(module)} | exported(module) | set().union(*classes().values())
    listed = LISTED.findall(ast.get_docstring(modules()[module]) or "")
    assert [name for name in listed if name not in known] == []
