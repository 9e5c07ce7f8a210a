"""Personal data: what is found of planted forms and in real text, and how fast; beside datatrove's formatter.

python benchmarks/personal.py '../shared/data/real/*.parquet' [--documents 20000] [--hits hits.txt]
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datamask.release.personal import KINDS, PersonalRules, find_personal_data, luhn
from datamask.storage import expand_patterns


def card(draw: random.Random) -> str:
    digits = draw.choice(["4", "51", "55", "2221", "6011"])
    digits += "".join(draw.choices("0123456789", k=15 - len(digits)))
    digits += next(d for d in "0123456789" if luhn(digits + d))
    return draw.choice([digits, " ".join(digits[n : n + 4] for n in range(0, 16, 4))])


def phone(draw: random.Random) -> str:
    import phonenumbers

    region = draw.choice(["US", "DE", "GB", "FR", "NG", "KE", "IN", "JP"])
    number = phonenumbers.example_number_for_type(region, phonenumbers.PhoneNumberType.MOBILE)
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.INTERNATIONAL)


def email(draw: random.Random) -> str:
    return f"{draw.choice(['jo', 'a.b', 'x_y', 'info'])}{draw.randint(1, 99)}@{draw.choice(['site', 'uni-x'])}.org"


def address(draw: random.Random) -> str:
    return ".".join(str(draw.choice(part)) for part in ((8, 93, 151, 203), range(10, 99), range(1, 254), range(1, 254)))


PLANTED = {"email": email, "ip": address, "card": card, "phone": phone}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--hits")
    given = parser.parse_args()
    tables = [pq.read_table(path, columns=["text"]) for path in expand_patterns([given.corpus])]
    texts = pa.concat_tables(tables)["text"].to_pylist()
    texts = texts[: given.documents]
    from datatrove.pipeline.formatters.pii import PIIFormatter

    theirs = PIIFormatter(email_replacement="§", ip_replacement="§")
    draw = random.Random(1)
    print("| planted, of 300 in a sentence of real text | datamask | datatrove |\n|---|---:|---:|")
    for kind in KINDS:
        mine = other = 0
        for _ in range(300):
            value = PLANTED[kind](draw)
            words = draw.choice(texts).split()[:30] or ["x"]
            text = " ".join([*words, value, "and", *words[:5]])
            at = len(" ".join(words)) + 1
            mine += (at, at + len(value), kind) in find_personal_data(text, PersonalRules(KINDS, None, True))
            other += value not in theirs.format(text)
        print(f"| {kind} | {mine / 300:.3f} | {other / 300:.3f} |")
    size = sum(len(text.encode()) for text in texts) / 1e6
    began = time.perf_counter()
    found = [(text, span) for text in texts for span in find_personal_data(text, PersonalRules(KINDS, None, True))]
    took = time.perf_counter() - began
    began = time.perf_counter()
    both = [
        (text, span) for text in texts for span in find_personal_data(text, PersonalRules(("email", "ip"), None, True))
    ]
    alike = time.perf_counter() - began
    began = time.perf_counter()
    changed = sum(theirs.format(text) != text for text in texts)
    their_time = time.perf_counter() - began
    counts = Counter(kind for _, (*_, kind) in found)
    print(f"\n{len(texts):,} real documents, {size:.0f} MB\n")
    print("| | e-mail | IP | phone | card | documents | MB/s |\n|---|---:|---:|---:|---:|---:|---:|")
    told = " | ".join(f"{counts[kind]:,}" for kind in ("email", "ip", "phone", "card"))
    print(f"| datamask | {told} | {len({id(text) for text, _ in found}):,} | {size / took:.1f} |")
    print(f"| datamask, e-mail and IP alone | | | | | {len({id(text) for text, _ in both}):,} | {size / alike:.1f} |")
    print(f"| datatrove | | | | | {changed:,} | {size / their_time:.1f} |")
    if given.hits:
        lines = [f"{kind}\t{text[max(0, a - 40) : b + 20]!r}\t{text[a:b]!r}" for text, (a, b, kind) in found]
        Path(given.hits).write_text("\n".join(lines))


if __name__ == "__main__":
    main()
