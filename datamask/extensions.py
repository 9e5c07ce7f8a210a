"""Extension points: a scorer, a filter, an encoder, a metric or a solver of your own is one small class.

A setting names it in one of three ways:

    length                      # the entry point of an installed package, in the group datamask.scorers
    my_package.scores:Length    # module:Class, where the module can be imported
    /home/me/scores.py:Length   # file:Class; a relative path starts at the working directory

The class is constructed with the setting's `options` as keywords (a scorer, a filter, an encoder), or as the kind
demands (a metric, a solver); docs/extending.md has an example of each. What it computes is cached like everything else:
the bytes of its source file and its attribute `version`, if it has one, are part of the cache key, so that an edited
extension is run again.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import psutil

from datamask.errors import (
    ConfigError,
    DatamaskError,
    MissingFileError,
    StorageError,
    TransientError,
    disk_full,
    is_retryable,
    nearest,
    one_line,
    out_of_memory,
)

Kind = Literal["scorer", "filter", "encoder", "metric", "solver"]

METHODS: dict[Kind, str] = {  # the one method that a class of each kind must have
    "scorer": "score(documents)",
    "filter": "keep(documents)",
    "encoder": "encode(texts)",
    "metric": "value(masks)",
    "solver": "solve(problem, progress)",
}
_METRICS = "datamask.selection.metrics"
_PAPER = "datamask.selection.paper"
BUILT_IN: dict[Kind, dict[str, str]] = {  # what is loaded in the same way as an extension
    "metric": {
        "coverage": f"{_METRICS}.coverage:EmbeddingCoverage",  # of the parts that `select.coverage.atoms` names
        "pairwise": f"{_METRICS}.moments:Pairwise",
        "disf": f"{_METRICS}.moments:DiSF",
        "facility": f"{_PAPER}.facility:FacilityLocation",
        "coverage-embedding": f"{_METRICS}.coverage:EmbeddingCoverage",
        "coverage-ngrams": f"{_METRICS}.coverage:NgramCoverage",
        "coverage-target": f"{_METRICS}.coverage:TargetCoverage",
    },
    "solver": {
        "relaxation": "datamask.selection.solvers.relaxation:Relaxation",
        "policy-gradient": f"{_PAPER}.policy_gradient:PolicyGradient",
        "greedy": f"{_PAPER}.baselines:Greedy",
        "top-quality": f"{_PAPER}.baselines:TopQuality",
        "random": f"{_PAPER}.baselines:Random",
        "semdedup": f"{_PAPER}.baselines:SemDeDup",
        "direct": f"{_PAPER}.baselines:Direct",
    },
}
_FILES: set[str] = set()  # sources of the extensions loaded by this process
_IMPORTED: dict[str, str] = {}  # digests of the sources of their modules, as they were when it imported them
_PATH = re.compile(r"(?P<module>.+):(?P<attribute>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class Extension:
    """A class that a setting names, found but not yet imported."""

    kind: Kind
    name: str  # as the setting has it
    target: str  # module:Class or file.py:Class

    @property
    def label(self) -> str:
        """What its column, its reason or its term is called: the entry point's name, or else the class's."""
        return self.target.rpartition(":")[2] if self.name == self.target else self.name

    def load(self) -> Any:
        """The class.

        :raises ConfigError: it cannot be imported, or lacks the method of its kind.
        """
        what = f"{self.kind} {self.name!r} ({self.target})"
        module, _, attribute = self.target.rpartition(":")
        own = self.target not in BUILT_IN.get(self.kind, {}).values()
        try:
            if module.endswith(".py"):
                loaded = _file(module)
            else:
                loaded = _module(module, attribute) if own else importlib.import_module(module)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            hint = ""
            if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
                hint = "; install its package, put its folder on PYTHONPATH, or name the file itself: FILE.py:CLASS"
            raise ConfigError(f"{what} cannot be loaded: {one_line(error)}{hint}") from error
        found = getattr(loaded, attribute, None)
        if found is None:
            names = [name for name, each in vars(loaded).items() if getattr(each, "__module__", "") == loaded.__name__]
            its = ", ".join(name for name in names if inspect.isclass(vars(loaded)[name])) or "none"
            raise ConfigError(f"{what} cannot be loaded: {module} has no class {attribute} (its classes: {its})")
        if own and (source := _source(loaded)):
            _FILES.add(source)
        method = METHODS[self.kind]
        if not callable(getattr(found, method.partition("(")[0], None)):
            raise ConfigError(f"{what} has no method {method}")
        return found

    def make(self, options: Mapping[str, Any]) -> Any:
        """An instance.

        :raises ConfigError: see `load`; or the constructor does not take these options, or refuses them.
        """
        found = self.load()
        try:
            return found(**options)
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            given = ", ".join(f"{name}={value!r}" for name, value in options.items()) or "none"
            raise ConfigError(
                f"{self.kind} {self.name!r} ({self.target}) cannot be constructed with its options ({given}): "
                f"{one_line(error)}"
            ) from error

    def fingerprint(self) -> str:
        """Stands for its code: a hash of its source file, and its `version`."""
        found = self.load()
        return f"{self.target.rpartition(':')[2]}-{_digest(found)}-{getattr(found, 'version', '')}"

    def check_key(self, key: str, pinned: str) -> None:
        """Holds what is loaded to what the run began with.

        :param key: of its code and options as they are now. :param pinned: as they were then.
        :raises ConfigError: they differ.
        """
        if key != pinned:
            raise ConfigError(
                f"{self.kind} {self.name!r} ({self.target}) is not the code that this run began with: it was edited "
                "meanwhile, or differs between machines; run the same command again"
            )


@cache
def registered(kind: Kind) -> dict[str, str]:
    """Targets by lower-case name, of the entry points of installed packages."""
    return {entry.name.lower(): entry.value for entry in entry_points(group=f"datamask.{kind}s")}


def extension_names(kind: Kind) -> list[str]:
    """Lower-case names: built in first, then the registered ones."""
    built_in = BUILT_IN.get(kind, {})
    return [*built_in, *(name for name in sorted(registered(kind)) if name not in built_in)]


def find_extension(kind: Kind, name: str) -> Extension | None:
    """What a setting names, or None where it is neither a path to a class nor the name of one."""
    if target := BUILT_IN.get(kind, {}).get(name.lower()) or registered(kind).get(name.lower()):
        return Extension(kind, name.lower(), target)
    return Extension(kind, name, name) if _PATH.fullmatch(name) else None


def require(kind: Kind, name: str, also: Iterable[str] = ()) -> Extension:
    """What a setting names.

    :param also: further names that are valid there
    :raises ConfigError: nothing is called so.
    """
    if found := find_extension(kind, name):
        return found
    valid = [*also, *extension_names(kind)]
    listed = f"{', '.join(valid)}, or MODULE:CLASS" if valid else "MODULE:CLASS"
    raise ConfigError(f"unknown {kind} {name!r}{nearest(name, valid)}; valid: {listed}", valid=valid)


def declared_names(extension: Any, what: str, attribute: str, default: Collection[str]) -> Collection[str]:
    """The names that an extension declares in an attribute.

    :raises ConfigError: it is something else than names, or has one twice.
    """
    with named_in_errors(f"{what}: {attribute}"):
        found = getattr(extension, attribute, default)
    names = isinstance(found, Collection) and all(isinstance(each, str) for each in found)
    if not names or isinstance(found, str) or len({*found}) < len(found):
        raise ConfigError(f"{what}: {attribute} is {found!r}; it must be a tuple of names, each once")
    return found


def fingerprints_of(kind: Kind, given: Iterable[str]) -> dict[str, str]:
    """Fingerprint by name, of those that are not built in: what a cache key takes of them."""
    found = [extension for name in given if (extension := find_extension(kind, name))]
    return {each.name: each.fingerprint() for each in found if each.name not in BUILT_IN.get(kind, {})}


@contextmanager
def named_in_errors(what: str | None = None) -> Iterator[None]:
    """Whatever an extension raises within is told with its file and line, rather than as a defect of datamask.

    A lack of memory and a full disk stay what they are: others act on their type.

    :param what: whose call and answer are all that stands within; an error without a line of its own is told so.
    :raises TransientError: an extension stopped by an error that may not come again a moment later.
    :raises MissingFileError, StorageError: by another error of the system.
    :raises ConfigError: by an error of another kind, or by sys.exit.
    """
    try:
        yield
    except DatamaskError:
        raise
    except BaseException as error:  # whatever the user's code raises; a panic of a library in Rust is no Exception
        if not isinstance(error, Exception | SystemExit) and type(error).__name__ != "PanicException":
            raise
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in _FILES]
        if not (own or what) or out_of_memory(error) or disk_full(error):
            raise
        where = f"the extension {own[-1].filename}, line {own[-1].lineno}, in {own[-1].name}" if own else what
        raise _told(error)(f"{where}: {type(error).__name__}: {one_line(error)}") from error


def _told(error: BaseException) -> type[DatamaskError]:
    if is_retryable(error):
        return TransientError
    if isinstance(error, FileNotFoundError):
        return MissingFileError
    return StorageError if isinstance(error, OSError) else ConfigError


def _source(found: Any) -> str | None:
    """The file that a module or class was read from; None where it has none."""
    try:
        return inspect.getsourcefile(found)
    except (OSError, TypeError):
        return None


def _digest(found: Any) -> str:
    """Of the bytes of the source of a module or class; of none where it is compiled: `version` alone says then that it
    changed."""
    try:
        source = Path(_source(found) or "").read_bytes()
    except OSError:
        source = b""
    return hashlib.sha256(source).hexdigest()[:32]


def _module(name: str, attribute: str) -> ModuleType:
    """The module, imported again if its source or that of its class was edited since this process did: a notebook and
    the worker of a cluster outlive an edit, and a key is of the source as it is now."""
    there = {*sys.modules}
    loaded = importlib.import_module(name)
    places = dict.fromkeys([getattr(getattr(loaded, attribute, None), "__module__", name), name])
    places.pop("__main__", None)  # a script, which cannot be imported again
    if any(_is_edited(sys.modules[place], place in there) for place in places):
        for place in places:
            loaded = importlib.reload(sys.modules[place])
    _IMPORTED.update({place: _digest(sys.modules[place]) for place in places})
    return loaded


def _is_edited(module: ModuleType, there: bool) -> bool:
    """Whether the source is another than this process imported; of a module that was there before, it may be."""
    if before := _IMPORTED.get(module.__name__):
        return _digest(module) != before
    source = _source(module)
    return there and source is not None and Path(source).stat().st_mtime > psutil.Process().create_time()


def _file(path: str) -> ModuleType:
    """The module in a file, executed once per content."""
    file = Path(path).expanduser().resolve()
    name = f"datamask_extension_{hashlib.sha256(str(file).encode() + file.read_bytes()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
