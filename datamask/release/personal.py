"""Personal data in what is published: found, counted, and replaced or left and counted (`release.personal`).

    text, counts = replaced("Write to me@site.org.", PersonalRules.of(config.release))

E-mail and public IP addresses by FineWeb's rules (Penedo et al., arXiv 2406.17557; datatrove's PIIFormatter), replaced
by addresses that belong to nobody, in turn within a document (FineWeb: from one document to the next, so that its text
depends on those read before). Phone numbers as phonenumberslite, Google's libphonenumber, tells valid ones; cards by
the groups in which they are written, their issuer's digits and the check digit of ISO/IEC 7812 (Luhn).
"""

from __future__ import annotations

import ipaddress
import re
import string
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa

from datamask.config import ReleaseSettings as Settings
from datamask.errors import MissingExtraError

KINDS = ("email", "ip", "card", "phone")  # in this order: what an earlier one takes is no longer there for the next
NAMES = {  # of one, and of several
    "email": ("e-mail address", "e-mail addresses"),
    "ip": ("IP address", "IP addresses"),
    "card": ("card number", "card numbers"),
    "phone": ("phone number", "phone numbers"),
}
FIELD = pa.field("personal_data", pa.struct([(kind, pa.int32()) for kind in KINDS]))
REPLACEMENTS: Mapping[str, tuple[str, ...]] = {
    "email": ("email@example.com", "firstname.lastname@example.org"),
    "ip": ("22.214.171.124", "126.96.36.199", "188.8.131.52", "184.108.40.206", "220.127.116.11", "18.104.22.168"),
    "card": ("0000 0000 0000 0000",),
    "phone": ("+1 202-555-0100", "+1 202-555-0199"),  # kept for fiction
}
_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)"
_AT = rf"@(?:(?:{_HOST}\.)+{_HOST}|\[(?:{_BYTE}\.){{3}}{_BYTE}\])"
_AT_HOST = re.compile(_AT)
_EMAIL = re.compile(rf"\b{_LOCAL}(?:\.{_LOCAL})*{_AT}")
_LOCAL_SIGNS = frozenset(string.ascii_letters + string.digits + "!#$%&'*+/=?^_`{|}~-.")
_IP = re.compile(rf"(?:{_BYTE}\.){{3}}{_BYTE}")
# 16 digits in fours or in a row, 15 of American Express as 4-6-5 or in a row; nothing of a longer number
_CARD = re.compile(
    r"(?<![\w.,/-])(?:[2-6]\d{3}([ -]?)\d{4}\1\d{4}\1\d{4}|3[47]\d{2}([ -]?)\d{6}\2\d{5})(?![\w/-]|[.,]\d)", re.ASCII
)
_ISSUERS = re.compile(r"4|5[1-5]|2[2-7]|6(?:011|4[4-9]|5)|3[47]|35(?:2[89]|[3-8])")


@dataclass(frozen=True)
class PersonalRules:
    """Which kinds are looked for; region: of phone numbers without a country's code; replace: or count alone."""

    kinds: tuple[str, ...]
    region: str | None
    replace: bool

    @classmethod
    def of(cls, settings: Settings) -> PersonalRules | None:
        """None: personal data is left as it is, and not counted.

        :raises MissingExtraError: phone numbers are asked for, and phonenumberslite is not installed.
        """
        if settings.personal == "off":
            return None
        if "phone" in settings.personal_kinds:
            _phonenumbers()
        kinds = tuple(kind for kind in KINDS if kind in settings.personal_kinds)
        return cls(kinds, settings.personal_region, settings.personal == "replace")


def find_personal_data(text: str, rules: PersonalRules) -> list[tuple[int, int, str]]:
    """(start, end, kind) of what is personal data in the text, in order, none over another."""
    taken: list[tuple[int, int, str]] = []
    for kind in rules.kinds:
        found = []
        for start, end in _FINDERS[kind](text, rules.region):
            place = bisect_left(taken, end, key=itemgetter(0))  # the last before it begins before its end
            if not place or taken[place - 1][1] <= start:
                found.append((start, end, kind))
        taken = sorted([*taken, *found])
    return taken


def replaced(text: str, rules: PersonalRules) -> tuple[str, dict[str, int]]:
    """The text as it is published, and how many of each kind were found."""
    counts = dict.fromkeys(KINDS, 0)
    parts = []
    last = 0
    for start, end, kind in find_personal_data(text, rules):
        put = REPLACEMENTS[kind]
        parts += [text[last:start], put[counts[kind] % len(put)]]
        counts[kind] += 1
        last = end
    return ("".join([*parts, text[last:]]) if rules.replace and parts else text), counts


def published(texts: pa.Array | pa.ChunkedArray, rules: PersonalRules) -> tuple[pa.Array, pa.Array]:
    """A column of texts as published, and the column FIELD."""
    done = [replaced(text, rules) for text in texts.to_pylist()]
    return pa.array([text for text, _ in done], pa.string()), pa.array([counts for _, counts in done], FIELD.type)


def add_up(column: pa.Array | pa.ChunkedArray, sums: dict[str, int]) -> None:
    """Adds a column FIELD to documents (that hold any) and numbers by kind."""
    for row in column.to_pylist():
        found = {kind: count for kind, count in (row or {}).items() if count}
        sums["documents"] = sums.get("documents", 0) + bool(found)
        for kind, count in found.items():
            sums[kind] = sums.get(kind, 0) + count


# ---------------------------------------------------------------- kinds


def _emails(text: str, region: str | None) -> Iterator[tuple[int, int]]:
    """Around each @ alone: in a long run of letters without one, it would be looked at again and again."""
    last = 0
    for host in _AT_HOST.finditer(text):
        start = host.start()
        while start > last and text[start - 1] in _LOCAL_SIGNS:
            start -= 1
        if found := _EMAIL.search(text, start, host.end()):
            yield found.span()
            last = found.end()


def _addresses(text: str, region: str | None) -> Iterator[tuple[int, int]]:
    for found in _IP.finditer(text):
        try:
            if ipaddress.ip_address(found.group()).is_global:
                yield found.span()
        except ValueError:  # a zero before a digit
            continue


def _cards(text: str, region: str | None) -> Iterator[tuple[int, int]]:
    for found in _CARD.finditer(text):
        digits = re.sub(r"\D", "", found.group())
        if _ISSUERS.match(digits) and len(set(digits)) > 1 and luhn(digits):
            yield found.span()


def luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    values = [int(digit) for digit in reversed(digits)]
    doubled = [value * 2 - 9 * (value > 4) for value in values[1::2]]
    return (sum(values[::2]) + sum(doubled)) % 10 == 0


def _phones(text: str, region: str | None) -> Iterator[tuple[int, int]]:
    if region is None and "+" not in text:
        return
    for found in _phonenumbers().PhoneNumberMatcher(text, region, max_tries=len(text)):  # its own: 65,535 invalid ones
        yield found.start, found.end


def _phonenumbers() -> Any:
    try:
        import phonenumbers
    except ImportError as error:
        raise MissingExtraError("release.personal with phone numbers", "personal") from error
    return phonenumbers


_FINDERS = {"email": _emails, "ip": _addresses, "card": _cards, "phone": _phones}
