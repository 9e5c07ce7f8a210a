"""What README and docs show works: every block of settings is valid, every command has the options it is shown with,
every setting that is named exists, every Python block that stands for itself runs."""

import importlib
import importlib.util
import inspect
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
import typer.main
from markdown_it import MarkdownIt
from ruamel.yaml import YAML

from datamask import cli
from datamask.config import Config, validate

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").rglob("*.md"))]
SECTIONS = Config.model_fields
# not settings: modules, files, functions and tables that are called like a section
OTHERS = {"release", "corpus", "quality", "select", "encoder", "run", "filter"}


def blocks():
    """(page:line, language, text) of every block of code, fenced or indented."""
    for page in PAGES:
        for token in MarkdownIt().parse(page.read_text()):
            if token.type in ("fence", "code_block"):
                yield f"{page.name}:{token.map[0] + 1}", token.info.strip(), token.content


BLOCKS = list(blocks())


def commands(text):
    """The shell commands of a block that call datamask."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        words = (
            shlex.split(re.sub(r"(^|\s)#.*$", "", line).replace("…", "X"), comments=False) if "datamask" in line else []
        )
        for place, word in enumerate(words):
            if word.rsplit("/", 1)[-1] == "datamask" and place + 1 < len(words) and place < 3:
                rest = words[place + 1 :]
                end = next((n for n, one in enumerate(rest) if one in ("|", ">", "&&", ";")), len(rest))
                yield rest[:end]
                break


SHOWN = [
    (where, words)
    for where, language, text in BLOCKS
    if language in ("bash", "sh", "")
    and not text.startswith(("from ", "import "))
    and re.search(r"(^|\n)\s*(\S*/)?datamask \w", text)
    for words in commands(text)
]


def test_there_is_something_to_check():
    assert len(BLOCKS) > 20 and len(SHOWN) > 6


@pytest.mark.parametrize("where, words", SHOWN, ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_commands_have_the_options_they_are_shown_with(where, words):
    name = next(word for word in words if not word.startswith("-"))
    if name == "COMMAND":
        return
    assert name in cli.COMMANDS, f"{where}: no command {name}"
    single = typer.Typer()
    single.command(name)(cli._locate(name))
    command = typer.main.get_command(single)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    assert set(given) <= {*known, "--help", "-h", "--debug"}, where
    for place, word in enumerate(words):
        if word == "--set":
            section, _, value = words[place + 1].partition("=")
            first, _, setting = section.partition(".")
            assert first in SECTIONS, f"{where}: {words[place + 1]}"
            assert setting.split(".")[0] in SECTIONS[first].annotation.model_fields, f"{where}: {words[place + 1]}"


@pytest.mark.parametrize("where, language, text", BLOCKS, ids=[where for where, _, _ in BLOCKS])
def test_blocks_are_what_they_say(where, language, text):
    if language in ("yaml", "yml"):
        data = YAML(typ="safe").load(text)
        if isinstance(data, dict) and data.keys() <= SECTIONS.keys():
            validate(data, where)
    elif language in ("bash", "sh"):
        done = subprocess.run(["bash", "-n"], input=text.replace("…", "X"), capture_output=True, text=True)
        assert done.returncode == 0, f"{where}: {done.stderr}"
    elif language == "python":
        compile(text, where, "exec")
        if "from datamask import select" in text:
            rng = np.random.default_rng(0)
            features = rng.standard_normal((200, 16)).astype(np.float32)
            exec(text, {"features": features, "quality": rng.random(200).astype(np.float32)})


def named_settings():
    for page in PAGES:
        for quoted in re.findall(r"`([^`\n]+)`", page.read_text()):
            for section, setting in re.findall(rf"(?<![\w./])({'|'.join(SECTIONS)})\.([a-z_]+)(?![\w(/])", quoted):
                yield page.name, section, setting


def test_settings_that_are_named_exist():
    wrong = []
    for page, section, setting in named_settings():
        if setting in SECTIONS[section].annotation.model_fields:
            continue
        package = section in ("corpus", "quality", "release")
        if package and importlib.util.find_spec(f"datamask.{section}.{setting}"):
            continue
        module = importlib.import_module(f"datamask.{section}") if package else None
        if not hasattr(module, setting) and setting not in ("md", "py", "json", "html", "yaml"):
            wrong.append(f"{page}: {section}.{setting}")
    assert not wrong


def test_settings_in_braces_are_valid():
    """`section.setting: {…}` and `--set 'section.setting=…'` in a sentence."""
    wrong = []
    for page in PAGES:
        for quoted in re.findall(r"`([^`\n]+)`", page.read_text()):
            found = re.fullmatch(rf"(?:--set '?)?({'|'.join(SECTIONS)})\.([a-z_]+)(?:: |=)(.+?)'?", quoted)
            if found and "…" not in quoted and not re.search(r"\b[A-Z]{2,}\b|N$", found[3]):
                value = YAML(typ="safe").load(found[3])
                try:
                    validate({found[1]: {found[2]: value}})
                except Exception as error:
                    wrong.append(f"{page.name}: {quoted}: {error}")
    assert not wrong


def test_signals_that_are_named_exist():
    from datamask.quality import rules, terms

    signals = {"content": {*terms.SIGNALS}, "heuristic": {*rules.SIGNALS}}
    named = [
        (page.name, scorer, signal)
        for page in PAGES
        for scorer, signal in re.findall(r"\b(content|heuristic)\.([a-z_0-9]+)\b(?!\()", page.read_text())
    ]
    assert len(named) >= 3
    assert [one for one in named if one[2] not in signals[one[1]]] == []


def test_files_that_are_named_are_there():
    wrong = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
            if "://" not in link and not (page.parent / link).exists():
                wrong.append(f"{page.name}: {link}")
        for path in re.findall(
            r"`((?:datamask|flows|tasks|deployments|benchmarks|tests|docs)/[\w/.-]+\.\w+)`", page.read_text()
        ):
            if not (ROOT / path).exists():
                wrong.append(f"{page.name}: {path}")
    assert not wrong


def test_tests_that_are_named_are_there():
    named = re.findall(r"`((?:\w+/)?test_\w+\.py)(?:::(\w+))?`", (ROOT / "docs" / "security.md").read_text())
    wrong = []
    for path, function in named:
        file = ROOT / "tests" / path
        if not file.exists() or (function and f"def {function}(" not in file.read_text()):
            wrong.append(f"{path}::{function}")
    assert len(named) > 30 and not wrong


def test_the_path_to_the_gradient_is_the_one_that_runs():
    """Each function of the page's list calls the next, in at most six hops through five files."""
    page = (ROOT / "docs" / "selection-driver.md").read_text()
    named = re.findall(r"^\d\. `([\w.]+):([\w.]+)`", page, re.MULTILINE)
    assert 4 <= len(named) <= 7 and len({module for module, _ in named}) <= 5
    functions = []
    for module, name in named:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        functions.append(found)
    for function, (_, called) in zip(functions, named[1:], strict=False):
        assert re.search(rf"\b{called.rsplit('.')[-1]}\(", inspect.getsource(function)), called


def test_no_page_holds_what_a_merge_left():
    pages = [*PAGES, *sorted((ROOT / "benchmarks").glob("*.md"))]
    marks = re.compile(r"^(<{7}|>{7})( |$)|^={7}$", re.MULTILINE)
    assert [page.name for page in pages if marks.search(page.read_text())] == []


def test_the_classes_shown_side_by_side_are_the_ones_that_run():
    page = (ROOT / "docs" / "extending.md").read_text().split("## One of your own beside one of ours")[1]
    sources = ("examples/own_filter.py", "examples/own_scorer.py", "examples/own_metric.py")
    sources += ("datamask/filter/built_in.py", "datamask/quality/scorers.py", "datamask/selection/metrics/moments.py")
    code = "\n".join((ROOT / source).read_text() for source in sources)
    shown = [line for block in page.split("```python\n")[1:7] for line in block.split("```")[0].splitlines()]
    assert len(shown) > 60 and all(line in code for line in shown if line.strip(" ."))
