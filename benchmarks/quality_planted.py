"""Junk made of real documents, a kind at a time: what `quality_words.py` plants among the intact ones.

junk = planted(texts, random.Random(0))     # {"shuffled words": [(of which document, junk), …], …}
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

UNSPACED = ("zh", "zh_TW", "ja", "th", "lo", "km", "my")


def planted(texts: list[str], generator: random.Random, language: str) -> dict[str, list[tuple[int, str]]]:
    """By kind: (place of the document it is made of, the junk); documents that a change leaves as they are are left
    out."""
    vocabulary = [word for text in texts for word in pieces(text, language)]
    joint = "" if language in UNSPACED else " "
    starts = [start for text in texts for start in re.split(r"(?<=[.!?።。])\s*", text) if len(start) > 20]
    letters = [char for text in texts for char in text if char.isalpha() and char == char.lower()]

    def shuffled(text: str) -> str:
        words = pieces(text, language)
        return joint.join(generator.sample(words, len(words)))

    kinds: dict[str, Callable[[str], str]] = {
        "random words": lambda text: joint.join(generator.choices(vocabulary, k=len(pieces(text, language)))),
        "shuffled words": shuffled,
        "mojibake (UTF-8 as cp1252)": lambda text: text.encode().decode("cp1252", "replace"),
        "mojibake (UTF-8 as Latin-1)": lambda text: text.encode().decode("latin-1"),
        "letters lost": lambda text: "".join(c for c in text if not (c.isalpha() and generator.random() < 0.08)),
        "letters replaced": lambda text: "".join(
            generator.choice(letters) if c.isalpha() and generator.random() < 0.08 else c for c in text
        ),
        "hashtags": lambda text: " ".join(f"#{w.strip('.,;:!?()')}" for w in generator.choices(vocabulary, k=80)),
        "upper case": str.upper,
        "doubled text": lambda text: f"{text}\n\n{text}",
        "each sentence twice": lambda text: " ".join(f"{part}. {part}." for part in text.split(". ")),
        "ads in the language": lambda text: ad(generator, vocabulary, len(text)),
        "ads in English": lambda text: english_ad(generator, len(text)),
        "keywords": lambda text: ", ".join(generator.choices(vocabulary, k=len(pieces(text, language)))),
        "HTML source": lambda text: html(generator, text),
        "machine log": lambda text: log(generator, len(text)),
        "archive list": lambda text: items(generator, vocabulary, text, "{0} {year} ({number})"),
        "menu": lambda text: items(generator, vocabulary, text, "{0} {1}"),
        "list of links": lambda text: items(generator, vocabulary, text, "http://www.{0}.com/{1}?id={number}"),
        "schedule": lambda text: items(generator, vocabulary, text, "{day:02}.{month:02}.{year} {hour}:15 {0} - {1}"),
        "machine table": lambda text: items(generator, vocabulary, text, "{number} | {0} | {price} | {day} | {hour}"),
        "product lines": lambda text: items(generator, vocabulary, text, "{0} {1} {number}x{day} mm, {price} EUR"),
        "JSON dump": lambda text: json_dump(generator, vocabulary, len(text)),
        "minified JavaScript": lambda text: minified(generator, len(text)),
        "template": lambda text: template(generator, vocabulary, text),
        "archive list in front": lambda text: (
            items(generator, vocabulary, text[:1500], "{0} {year} ({number})") + f"\n{text[:3000]}"
        ),
        "menu in front": lambda text: items(generator, vocabulary, text[:1500], "{0} {1}") + f"\n{text[:3000]}",
        "teasers": lambda text: "".join(f"{s[:70]}…\n" for s in generator.choices(starts, k=8 + len(text) // 70)),
    }
    return {
        kind: [(place, made) for place, text in enumerate(texts) if (made := change(text)) != text]
        for kind, change in kinds.items()
    }


def items(generator: random.Random, vocabulary: list[str], text: str, form: str) -> str:
    """Lines of one form, as long as the text, with words of the language for {0} and {1}."""
    lines: list[str] = []
    while sum(map(len, lines)) < min(len(text), 6000):
        words = [word.strip(".,;:!?()\"'").capitalize() for word in generator.choices(vocabulary, k=2)]
        numbers = {
            "number": generator.randint(1, 999),
            "price": f"{generator.randint(1, 99)}.{generator.randint(10, 99)}",
        }
        dates = {"year": generator.randint(2001, 2024), "month": generator.randint(1, 12)}
        hours = {"day": generator.randint(1, 28), "hour": generator.randint(7, 22)}
        lines.append(form.format(*words, **numbers, **dates, **hours))
    return "\n".join(lines)


def json_dump(generator: random.Random, vocabulary: list[str], length: int) -> str:
    """Records with words of the language."""
    records: list[dict[str, object]] = []
    while 90 * len(records) < min(length, 6000):
        words = generator.choices(vocabulary, k=3)
        record = {"id": generator.randint(1, 9999), "name": words[0], "price": round(generator.random(), 3)}
        records.append({**record, "ok": generator.random() < 0.5, "tags": words[1:]})
    return json.dumps(records, ensure_ascii=False)


def minified(generator: random.Random, length: int) -> str:
    """Statements of JavaScript whose names are single letters, on one line."""
    forms = (
        "function {0}({1},{2}){{return {1}.{3}({2})}}",
        "var {0}={1}.{3}||{{}};",
        "if({0}&&{0}.{3})for(var {1}=0;{1}<{0}.length;{1}++){2}[{1}]={2}({0});",
        "!function({0}){{{0}.{3}={1}}}({2}),",
    )
    parts: list[str] = []
    while sum(map(len, parts)) < min(length, 6000):
        letters = generator.choices("abcdefghijklmnopqrstuvwxyz", k=3)
        parts.append(generator.choice(forms).format(*letters, generator.choice(("push", "call", "map", "exports"))))
    return "".join(parts)


def template(generator: random.Random, vocabulary: list[str], text: str) -> str:
    """The document's first 30 words again and again, each time with two words of the language put in."""
    words, parts = text.split()[:30], []
    if len(words) < 30:  # a script without spaces
        words = list(text[:60])
    joint = " " if len(text.split()) >= 30 else ""
    while sum(map(len, parts)) < min(len(text), 6000):
        said = list(words)
        for place in generator.sample(range(len(said)), 2):
            said[place] = generator.choice(vocabulary)
        parts.append(joint.join(said))
    return "\n".join(parts)


def additions(generator: random.Random, vocabulary: list[str], language: str) -> dict[str, Callable[[str], str]]:
    """What a good text may hold: each puts one of it into a text. Tables are a fifth as long as the text."""
    joint = "" if language in UNSPACED else " "

    def words(number: int = 1) -> str:
        return joint.join(word.strip(".,;:!?()\"'") or "a" for word in generator.choices(vocabulary, k=number))

    def number(low: int, high: int) -> int:
        return generator.randint(low, high)

    def inserted(text: str, lines: str) -> str:
        middle = text.find("\n", len(text) // 2)
        if middle < 0:
            middle = text.find(". ", len(text) // 2) + 1 or len(text)
        return "\n\n".join([text[:middle], lines, text[middle:].lstrip()])

    def table(text: str, row: Callable[[], str]) -> str:
        rows: list[str] = []
        while sum(map(len, rows)) < max(200, len(text) // 5):
            rows.append(row())
        return inserted(text, "\n".join(rows))

    def head(text: str) -> str:
        name, host = words().capitalize(), words().lower()
        return (
            f"From: {name} {words().capitalize()} <{name.lower()}@{host}.example.org>\n"
            f"To: {words()}@lists.example.com\n"
            f"Date: Mon, {number(1, 28)} Mar 2003 {number(10, 23)}:{number(10, 59)}:{number(10, 59)} +0100\n"
            f"Subject: Re: [{words()}] {words(3)}\n"
            f"Message-ID: <{number(10**8, 10**9)}.{number(1000, 9999)}@{host}.org>\n\n{text}"
        )

    def quotation(text: str) -> str:
        lines = wrapped(text[: len(text) // 3]).split("\n")
        quoted = "\n".join(f"> {line}" for line in lines)
        return f"On Mon, 3 Mar 2003, {words().capitalize()} wrote:\n{quoted}\n\n{text[len(text) // 3 :]}"

    def poem(text: str) -> str:
        said = text[: max(200, len(text) // 4)].split()
        lines = [" ".join(said[at : at + 6]) for at in range(0, len(said), 6)]
        return "\n".join(line[:1].upper() + line[1:] for line in lines) + "\n\n" + text[max(200, len(text) // 4) :]

    def formulas(text: str) -> str:
        parts = text.split(". ")
        return ". ".join(
            part + f" $x_{{{n}}} = \\frac{{a_{n} + {n}}}{{b^2}}$" * (n % 6 == 0) for n, part in enumerate(parts)
        )

    def each(text: str, number: int, form: str) -> str:
        parts = text.split(". ")
        return ". ".join(form.format(part, n) if n % number == 0 else part for n, part in enumerate(parts))

    return {
        "bullets": lambda text: each(text, 1, "• {0}"),
        "pictures": lambda text: each(text, 3, "{0} 😀"),
        "byline": lambda text: f"{words(2)} | {number(1, 28)} March 2011 | {number(10, 23)}:45\n\n{text}",
        "links": lambda text: each(text, 3, "{0} [" + words() + "](https://example.org/{1}/index.html)"),
        "table with bars": lambda text: table(
            text, lambda: f"| {words(2)} | {number(1, 999)} | {number(1, 99)}.{number(0, 9)} | {words()} |"
        ),
        "table of words": lambda text: table(text, lambda: f"| {words(2)} | {words()} | {words(3)} |"),
        "table of columns": lambda text: table(
            text, lambda: f"{words(2):20}{number(1000, 9999):>12,}{number(1, 999) / 10:>12}{number(1, 99):>7}%"
        ),
        "table with tabs": lambda text: table(
            text, lambda: f"{words().capitalize()}\t{number(1900, 2020)}\t{words(2)}\t{number(1, 99)}"
        ),
        "list with bullets": lambda text: inserted(text, "\n".join(f"• {words(3)}" for _ in range(8))),
        "head of mail": head,
        "signature": lambda text: (
            f"{text}\n\n-- \n{'=' * 60}\n{words(2)}, {words(3)}\n"
            f"Tel. +{number(1, 99)} {number(100, 999)} {number(1000, 9999)}  {words().lower()}@example.org\n{'=' * 9}\n"
        ),
        "quotation": quotation,
        "poem": poem,
        "formulas": formulas,
    }


def layouts(text: str) -> dict[str, str]:
    """The same words, laid out otherwise."""
    return {
        "CRLF": text.replace("\r\n", "\n").replace("\n", "\r\n"),
        "one line": " ".join(text.split()),
        "trailing spaces": text.replace("\n", "   \n") + "  ",
        "double newlines": text.replace("\n", "\n\n"),
        "wrapped at 72": wrapped(text),
        "indented": "\n".join(f"\t{line}" for line in text.split("\n")),
    }


def wrapped(text: str) -> str:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + len(word) > 72:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


def pieces(text: str, language: str) -> list[str]:
    """Words; in a script without spaces letters."""
    return [char for char in text if not char.isspace()] if language in UNSPACED else text.split()


def ad(generator: random.Random, vocabulary: list[str], length: int) -> str:
    """Offers made of the language's own words, with prices, addresses and telephone numbers."""
    words = [word.strip(".,;:!?()\"'") for word in vocabulary]
    words = [word for word in words if len(word) > 3] or vocabulary
    parts: list[str] = []
    while sum(map(len, parts)) < min(length, 3000):
        name = " ".join(word.title() for word in generator.choices(words, k=generator.randint(2, 4)))
        parts += [
            f"{name} - {generator.randint(5, 900)},{generator.randint(10, 99)} {generator.choice('€$£¥')}!",
            f"{generator.choice(words).upper()}! {generator.choice(words).upper()}! -{generator.randint(10, 80)} %",
            f"www.{generator.choice(words).lower()}-{generator.choice(words).lower()}.com",
            f"☎ +{generator.randint(1, 99)} {generator.randint(100, 999)} {generator.randint(1000, 9999)}",
            " ".join(word.title() for word in generator.choices(words, k=5)),
        ]
    return "\n".join(parts)


def english_ad(generator: random.Random, length: int) -> str:
    offers = (
        "Buy cheap {0} online, best price guaranteed, free shipping worldwide!!!",
        "{0} discount {1} no prescription needed order now",
        "Meet hot singles in your area tonight! Live sex chat, {0} dating, {1} escorts",
        "Click here >>> http://www.{0}-{1}.biz/offer?id={2}",
        "Win ${2} today! Play {0} casino bonus, 100% free spins",
        "Replica {0} watches | {1} handbags | designer outlet {2}% OFF",
        "Call now 1-800-{2}-{2} for a free {0} quote",
        "Best {0}, cheap {0}, {0} for sale, buy {0}, {0} {1}, {1} {0} price",
    )
    goods = ["viagra", "cialis", "rolex", "gucci", "casino", "poker", "loans", "insurance", "mortgage", "xanax"]
    parts: list[str] = []
    while sum(map(len, parts)) < min(length, 3000):
        number = generator.randint(100, 999)
        parts.append(generator.choice(offers).format(generator.choice(goods), generator.choice(goods), number))
    return "\n".join(parts)


def html(generator: random.Random, text: str) -> str:
    """A page's source around the document's sentences."""
    head = (
        '<!DOCTYPE html><html><head><meta charset="utf-8"><title>{0}</title><link rel="stylesheet" '
        'href="/css/main.css?v={1}"><script src="https://cdn.example.org/js/app.min.js" async></script></head>'
        '<body class="page page-{1}"><div id="nav"><ul><li><a href="/">{0}</a></li><li><a href="/p/{1}">{0}</a></li>'
        "</ul></div>"
    )
    parts = [head.format(text[:30], generator.randint(1, 999))]
    for sentence in text[:6000].split(". "):
        number = generator.randint(1, 9999)
        parts.append(
            f'<div class="col-md-{number % 12} item" id="p{number}"><p style="margin:0">{sentence}.</p>'
            f'<a href="/article/{number}.html">&nbsp;&raquo;</a><img src="/i/{number}.jpg" alt=""/></div>'
        )
    return "\n".join([*parts, "</body></html>"])


def log(generator: random.Random, length: int) -> str:
    parts: list[str] = []
    while sum(map(len, parts)) < min(length, 6000):
        number = [generator.randint(0, 255) for _ in range(4)]
        time = f"2024-{number[0] % 12 + 1:02d}-{number[1] % 28 + 1:02d} {number[2] % 24:02d}:{number[3] % 60:02d}:07"
        address = ".".join(map(str, number))
        parts.append(
            generator.choice(
                (
                    f'{address} - - [{time}] "GET /index.php?id={number[0]}{number[1]} HTTP/1.1" 200 {number[2]}5 "-" '
                    '"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"',
                    f"{time},{number[0]:03d} INFO [worker-{number[1]}] com.example.service.Handler - request "
                    f"{generator.getrandbits(64):016x} done in {number[2]} ms",
                    f"{time} kernel: [{number[0]}.{number[1]:06d}] eth0: link up, {number[2]} Mbps, 0x{number[3]:04x}",
                    f'{{"ts": "{time}", "level": "error", "code": {number[0]}, "host": "{address}", "ok": false}}',
                )
            )
        )
    return "\n".join(parts)
