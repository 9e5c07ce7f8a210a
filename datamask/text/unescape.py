"""What a text says behind an encoding, for comparison only: tags are left out, and each escape becomes its character.

Read are HTML's tags and entities, the escapes of JSON and of programming languages, percent-encoding, quoted-printable,
UTF-8 that was read as Windows-1252, and Latin ligatures; several of these one over another as well.
"""

from __future__ import annotations

import re
import unicodedata
from html.entities import html5

import numpy as np

from datamask.text.utf8 import Texts, strings

PASSES = 4  # encodings that may lie one over another
NO_MOJIBAKE = (0x700, 0x900)  # what a capital before a quotation mark looks like is taken for a capital
# the byte of each character that stands for one of 0x80 … 0xbf: Latin-1's, and Windows-1252's
BYTES = {chr(byte): byte for byte in range(0x80, 0xC0)}
BYTES |= {bytes([byte]).decode("cp1252"): byte for byte in range(0x80, 0xA0) if byte not in b"\x81\x8d\x8f\x90\x9d"}
SHOWN = {byte: character for character, byte in BYTES.items()}
NEW_LINE = re.compile(r"p$|br|li|tr|di|h[0-9]", re.IGNORECASE)  # tags that begin a paragraph, a row or a heading
SIGNS = {"n": "\n", "r": "\n", "t": " "}
HEX = "[0-9a-fA-F]"
_LATER = f"[{re.escape(''.join(BYTES))}]"
# The first sign stands apart, and each branch looks back at it, so that the search runs over all else.
ESCAPE = re.compile(
    rf"""[<&\\%=Â-ôﬀ-ﬆ](?:
      (?<=<)/?(?P<tag>[!?]|[a-zA-Z][a-zA-Z0-9-]*+(?=[\t\n\r\ />:])(?!:/))[^<>]{{0,400}}+>
    | (?<=<)(?P<section>!\[).{{6}}                                       # <![CDATA[, <![endif]
    | (?<=&)\#(?:(?P<decimal>[0-9]{{1,9}})|[xX](?P<hexadecimal>{HEX}{{1,8}}));
    | (?<=&)(?P<name>[a-zA-Z][a-zA-Z0-9]*+);
    | (?<=\\)(?P<sign>[nrt"'/\\])
    | (?<=\\)u(?P<high>[dD][89abAB]{HEX}{{2}})\\[uU](?P<low>[dD][c-fC-F]{HEX}{{2}})
    | (?<=\\)(?:u\{{(?P<braces>{HEX}{{1,7}})\}}|u(?P<four>{HEX}{{4}})|U(?P<eight>{HEX}{{8}})|x(?P<two>{HEX}{{2}}))
    | (?<=\\)(?P<octal>[0-3][0-7]{{2}})
    | (?P<shown>(?<=[Â-ß]){_LATER}|(?<=[à-ï]){_LATER}{{2}}|(?<=[ð-ô]){_LATER}{{3}})
    | (?P<soft>(?<=[^=]=)(?:\r\n|\n|\r))
    | (?P<ligature>(?<=[ﬀ-ﬆ]))
    | (?P<byte>(?<=[%=]){HEX}{{2}})
    )""",
    re.VERBOSE | re.DOTALL,
)


def unescaped(texts: Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The texts without escapes in UTF-8, uint8, a null being an empty text; where each begins there, int64
    [texts + 1]; and how many escapes each had, int64 [texts]."""
    found = [unescape(text or "") for text in strings(texts)]
    parts = [text.encode("utf-8", "surrogatepass") for text, _ in found]
    bounds = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return np.frombuffer(b"".join(parts), np.uint8), bounds, np.array([escapes for _, escapes in found], np.int64)


def unescape(text: str) -> tuple[str, int]:
    """The text without escapes, and how many these were."""
    escapes = 0
    for _ in range(PASSES):
        text, found = _replaced(text)
        escapes += found
        if not found:
            break
    return text, escapes


def _replaced(text: str) -> tuple[str, int]:
    """One pass."""
    escapes = 0

    def character(match: re.Match[str]) -> str:
        nonlocal escapes
        found = _meaning(match)
        escapes += found is not None and match.lastgroup != "ligature"
        return match.group() if found is None else found

    return ESCAPE.sub(character, text), escapes


def _meaning(match: re.Match[str]) -> str | None:
    """What an escape stands for; None: it only looks like one."""
    kind, said = str(match.lastgroup), match.group(str(match.lastgroup))
    match kind:
        case "tag":
            return "\n" if NEW_LINE.match(said) else ""
        case "section" | "soft":
            return ""
        case "ligature":
            return unicodedata.normalize("NFKC", match.group())
        case "name":
            return html5.get(f"{said};")
        case "decimal" | "hexadecimal":
            code = int(said, 10 if kind == "decimal" else 16)
            return SHOWN.get(code) or _character(code)
        case "sign":
            return SIGNS.get(said, said)
        case "low":
            return chr(0x10000 + (int(match["high"], 16) - 0xD800 << 10) + int(said, 16) - 0xDC00)
        case "octal":
            return _character(int(said, 8))
        case "shown":
            return _read_again(match.group())
        case "byte":
            code = int(said, 16)
            usual = code >= 0x80 or code in b"\t\n\r =" or match.group()[0] == "%"  # what quoted-printable escapes
            return chr(code) if usual and (code >= 32 or code in b"\t\n\r") else None
    return _character(int(said, 16))


def _character(code: int) -> str | None:
    return chr(code) if 0 < code < 0xD800 or 0xE000 <= code <= 0x10FFFF else None


def _read_again(shown: str) -> str | None:
    """A character of two to four bytes in UTF-8 of which each was read as one."""
    later = [BYTES[character] for character in shown[1:]]
    spaced = len(later) == 2 and all(byte in (0xA0, 0xAB, 0xBB) for byte in later)  # a French quotation's end
    try:
        found = bytes([ord(shown[0]), *later]).decode()
    except UnicodeDecodeError:
        return None
    return None if spaced or NO_MOJIBAKE[0] <= ord(found) < NO_MOJIBAKE[1] else found
