"""The house in numbers: modules, rooms, names and circles of imports, of two versions beside each other.

python benchmarks/code_measures.py 0a80306 HEAD
"""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

PACKAGES = ("datamask/", "tasks/", "flows/")
CONVENTIONS = {"__init__", "commands"}  # names that mean the same thing wherever they stand


@dataclass(frozen=True)
class Source:
    """A module: its dotted name, text and syntax tree."""

    name: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return ".".join(self.name.split(".")[:2])


def sources(commit: str) -> list[Source]:
    """Every module of the three packages at a commit."""
    listed = _git("ls-tree", "-r", "--name-only", commit).split()
    found = []
    for path in listed:
        if path.endswith(".py") and path.startswith(PACKAGES):
            text = _git("show", f"{commit}:{path}")
            name = path.removesuffix(".py").replace("/", ".")
            found.append(Source(name, text, ast.parse(text)))
    return found


def measures(modules: list[Source]) -> dict[str, str]:
    """What is said of a version, by name."""
    rooms = Counter(each.room for each in modules if each.name.count(".") >= 2)
    flat = Counter(each.name.rpartition(".")[0] for each in modules if each.name.count(".") >= 2)
    functions = [(node, each) for each in modules for node in ast.walk(each.tree) if isinstance(node, ast.FunctionDef)]
    lengths = sorted(((node.end_lineno or 0) - node.lineno + 1 for node, _ in functions), reverse=True)
    wide = [(node, each) for node, each in functions if _parameters(node) > 8]
    ours = [node for node, _ in wide if not _is_command(node) and not _is_loop(node)]
    names = Counter(each.name.rpartition(".")[2] for each in modules)
    classes = Counter(node.name for each in modules for node in each.tree.body if isinstance(node, ast.ClassDef))
    public = list(_public(modules))
    words = [len(each.text.split()) for each in modules]
    return {
        "modules": f"{len(modules)}",
        "words a module, median and most": f"{statistics.median(words):,.0f}, {max(words):,}",
        "longest functions, lines": ", ".join(map(str, lengths[:5])),
        "files in the fullest folder": "{1} ({0})".format(*flat.most_common(1)[0]),
        "rooms of datamask": f"{sum(room.startswith('datamask.') for room in rooms)}",
        "circles of modules that import each other": f"{_circles(_graph(modules, rooms=False))}",
        "circles of rooms": f"{_circles(_graph(modules, rooms=True))}",
        "names that two modules share": f"{sum(n > 1 for name, n in names.items() if name not in CONVENTIONS)}",
        "names that two classes share": f"{sum(n > 1 for n in classes.values())}",
        "functions of more than 8 parameters, of these no command and no compiled loop": f"{len(wide)}, {len(ours)}",
        "public functions, classes and methods with a docstring": f"{sum(map(bool, public))} of {len(public)}",
    }


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def _parameters(node: ast.FunctionDef) -> int:
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(each.arg not in ("self", "cls") for each in named)


def _is_command(node: ast.FunctionDef) -> bool:
    return any(each.annotation and "Annotated" in ast.dump(each.annotation) for each in node.args.args)


def _is_loop(node: ast.FunctionDef) -> bool:
    return any("compiled" in ast.dump(each) or "njit" in ast.dump(each) for each in node.decorator_list)


def _public(modules: list[Source]) -> Iterator[bool]:
    """Whether each has a docstring; a property or a method of a class that begins with _ is not public."""
    for each in modules:
        for node in each.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                yield ast.get_docstring(node) is not None
                if isinstance(node, ast.ClassDef):
                    for method in node.body:
                        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                            yield ast.get_docstring(method) is not None


def _graph(modules: list[Source], rooms: bool) -> dict[str, set[str]]:
    """Who imports whom when it is imported itself; of rooms, also what a function imports when it is called."""
    known = {each.name.removesuffix(".__init__") for each in modules}
    folders = {name.rpartition(".")[0] for name in known if name.count(".") >= 2}
    graph: dict[str, set[str]] = defaultdict(set)
    for each in modules:
        name = each.name.removesuffix(".__init__")
        for node in _imports(each.tree, inside=rooms):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                target = full if full in known else node.module or ""
                if target not in known:
                    continue
                if not rooms:
                    if target != name:
                        graph[name].add(target)
                else:
                    one, other = (".".join(at.split(".")[:2]) for at in (name, target))
                    if one != other and one in folders and other in folders:
                        graph[one].add(other)
    return graph


def _imports(tree: ast.AST, inside: bool) -> Iterator[ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        elif inside or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports(node, inside)


def _circles(graph: dict[str, set[str]]) -> int:
    """Strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = 0

    def visit(name: str) -> None:
        nonlocal found
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph.get(name, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            size = 0
            while stack:
                size += 1
                if stack.pop() == name:
                    break
            found += size > 1

    for name in list(graph):
        if name not in index:
            visit(name)
    return found


def main() -> None:
    sys.setrecursionlimit(10_000)
    commits = sys.argv[1:] or ["HEAD"]
    columns = [measures(sources(commit)) for commit in commits]
    print(f"| | {' | '.join(commits)} |\n|---|{'---|' * len(commits)}")
    for name in columns[0]:
        print(f"| {name} | {' | '.join(column[name] for column in columns)} |")


if __name__ == "__main__":
    main()
