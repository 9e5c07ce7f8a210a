"""Mutated filter expressions and configurations, and what must hold of each.

Few run in the tests, many in benchmarks/fuzz_release.py.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from hypothesis import strategies as st

from datamask.config import Config, load_config, to_yaml
from datamask.duck import connect
from datamask.errors import ConfigError
from datamask.filter.where import check_expression
from tests.release.test_where import ATTACKS, SCHEMA, TABLE, WORDS

SECONDS = 20  # an example that takes longer hangs

VALID = [
    "token_count > 50 and url not like '%spam%'",
    "language in ('en', 'fr') or rules.words between 3 and 80",
    "list_filter(tags, lambda t: t = language)[1] is not null",
    "case when meta.n > 1 then rules > 0.5 else try_cast(date as date) >= date '2020-01-01' end",
    "regexp_matches(text, '(foo|bar)+') and length(text) > 10",
    "raw->>'$.k[0]' = '1' and not ('b' in tags)",
]


@contextmanager
def time_limit(what: str) -> Iterator[None]:
    def late(signum: int, frame: FrameType | None) -> None:
        raise AssertionError(f"hangs: {what[:300]!r}")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Watch:
    """What is opened, read, written or made in a folder, by any code of this process or another (inotify)."""

    ALL = 0x00000FFF

    def __init__(self, folder: Path) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.handle = self.libc.inotify_init1(os.O_NONBLOCK)
        if self.libc.inotify_add_watch(self.handle, os.fsencode(folder), self.ALL) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")

    def events(self) -> list[str]:
        """The names touched since the last call."""
        try:
            data = os.read(self.handle, 1 << 16)
        except BlockingIOError:
            return []
        names = []
        while data:
            _, _, _, length = struct.unpack_from("iIII", data)
            names.append(data[16 : 16 + length].rstrip(b"\0").decode())
            data = data[16 + length :]
        return names

    def close(self) -> None:
        os.close(self.handle)


@st.composite
def mutated(draw: st.DrawFn, seeds: list[str], pieces: list[str]) -> str:
    """A seed with some pieces taken out, doubled, exchanged, or put in; now and then two seeds in one."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(text)))
        end = min(len(text), place + draw(st.integers(0, 12)))
        change = draw(st.sampled_from(["delete", "double", "insert", "replace", "graft", "character"]))
        if change == "delete":
            text = text[:place] + text[end:]
        elif change == "double":
            text = text[:end] + text[place:end] + text[end:]
        elif change == "insert":
            text = text[:place] + " " + draw(st.sampled_from(pieces)) + " " + text[place:]
        elif change == "replace":
            text = text[:place] + draw(st.sampled_from(pieces)) + text[end:]
        elif change == "graft":
            text = text[:place] + draw(st.sampled_from(seeds)) + text[end:]
        else:
            text = text[:place] + draw(st.characters()) + text[end:]
    return text[:5000]


def expressions(secret: Path) -> st.SearchStrategy[str]:
    """Conditions and attacks, mutated; the attacks' files are one that is watched."""
    attacks = [
        a.replace("/etc/passwd", str(secret)).replace("/tmp/attack", str(secret.parent / "new")) for a in ATTACKS
    ]
    return mutated([*VALID, *(attack for attack in attacks if len(attack) < 500)], [*WORDS, f"'{secret}'"])


def try_expression(expression: str, watch: Watch) -> bool:
    """Runs one expression if it is a condition; True if it is.

    :raises AssertionError: it crashes, hangs, or touches a file.
    """
    with time_limit(expression):
        try:
            condition = check_expression(expression, SCHEMA)
            with connect("100MB") as connection:
                kept = condition.keeps(connection, TABLE)
            assert len(kept) == TABLE.num_rows
            valid = True
        except ConfigError as error:
            assert str(error).startswith("filter.where") and "\n" not in str(error), str(error)
            valid = False
    touched = watch.events()
    assert not touched, f"{expression!r} touched {touched}"
    return valid


YAML_SEEDS = [
    to_yaml(Config()),
    "select:\n  lamb: 0.7\n  quotas:\n    - column: source\n      minimum: {web: 0.1}\n",
    "corpus: {input: [a, b], columns: {text: content}}\nfilter:\n  where: token_count > 5\n",
    "quality:\n  scorers:\n    - {name: a, kind: column, column: x}\n    - {name: b, weight: 2}\n",
]
YAML_PIECES = [
    "&a", "*a", "<<: *a", "!!python/object/apply:os.system ['touch new']", "!!binary aGk=", "!!set {a, b}",
    "!!timestamp 2020-01-01", ".inf", ".nan", "-1", "1e400", "0x10", "null", "~", "yes", "[", "]", "{", "}", ":", "\n",
    "\n  ", "\t", "- ", "? ", "| ", "> ", "#", "---", "...", "%YAML 1.1", "\x00", "\ud800", "99999999999999999999", "'",
    '"', "\\", "select:", "lamb: 2", "solver: none", "9" * 5000, "[" * 3000, "{a: " * 500, "select_ratio: 0",
    "memory_limit: -1GB", "memory_limit: 1 parsec", "algorithm: nothing",
]  # fmt: skip


def configurations() -> st.SearchStrategy[bytes]:
    """Configurations, mutated as text and then as bytes."""

    def spoil(parts: tuple[str, int, bytes]) -> bytes:
        text, place, some = parts
        data = text.encode("utf-8", "surrogatepass")
        place = place % (len(data) + 1)
        return data[:place] + some + data[place:]

    noise = st.one_of(st.just(b""), st.binary(max_size=4))
    return st.tuples(mutated(YAML_SEEDS, YAML_PIECES), st.integers(0, 10**6), noise).map(spoil)


def check_configuration(data: bytes, folder: Path, watch: Watch) -> bool:
    """Loads one configuration; True if it is valid, and then it can be written and read again.

    :raises AssertionError: it crashes, hangs, or touches another file.
    """
    path = folder / "fuzzed.yaml"
    path.write_bytes(data)
    watch.events()
    with time_limit(repr(data)):
        try:
            config = load_config(path)
        except ConfigError as error:
            assert str(path) in str(error)
            config = None
    touched = set(watch.events()) - {path.name}
    assert not touched, f"{data!r} touched {touched}"
    if config is not None:
        path.write_text(to_yaml(config), encoding="utf-8")
        assert load_config(path) == config
    return config is not None
