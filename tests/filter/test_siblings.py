"""Two of a kind are told from copies by titles, figures, names and the places where they differ."""

import random
import time

import pytest

from datamask.filter.siblings import _NAME, reworded, told_apart
from tests.filter.test_intact import ORIGINAL, pair, text

LAW = "Regulation on contribution rates for {year}\n" + ORIGINAL.replace(".\n", ". See the act of 12 May {year}.\n")
NOTES = "The act of 3 June 1998, page 17, section 4.\n" * 6
LOG = "Start date {day} hour {hour}. No variances were detected and the file was parsed.\n" * 4
SEEDS = "Ordinance on seed of {plant} (SO{year})\nDated: {year}-03-1{day}\nGazette: {day}6\n" + ORIGINAL
PAGE = "Function {name} in core\nfn {name}(a: vector) -> vector\n" + ORIGINAL + "\nSee {name}."


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (NOTES + LAW.format(year=2014), NOTES + LAW.format(year=2016), False),  # titles alike
        (LAW.format(year=2014) + NOTES, LAW.format(year=2016) + NOTES, True),
        (LAW.format(year=2014) + NOTES, LAW.format(year=2014) + NOTES.replace("17", "18"), False),
        (ORIGINAL + "\nSeen 7 times.", ORIGINAL + "\nSeen 8 times.", False),  # a figure says too little
        (SEEDS.format(plant="soya", year=2010, day=1), SEEDS.format(plant="wheat", year=2015, day=6), True),
        (SEEDS.format(plant="soya", year=2010, day=1), SEEDS.format(plant="wheat", year=2010, day=1), False),
        (LOG.format(day=3, hour=7), LOG.format(day=12, hour=18), False),  # messages that figures alone tell apart
        (PAGE.format(name="f32x4_eq"), PAGE.format(name="f64x2_eq"), True),
        (PAGE.format(name="equal"), PAGE.format(name="equal"), False),
    ],
)
def test_another_year_or_another_name_is_no_copy(one: str, other: str, apart: bool) -> None:
    a, b = text(one), text(other)
    assert pair(a, b).like.jaccard > 0.9
    assert told_apart(pair(a, b), contained=False) == told_apart(pair(b, a), contained=False) == apart


def test_rows_of_figures_tell_tables_apart_and_no_page_from_its_main_text() -> None:
    """A page has numbers of comments and of pages in rows of their own; its text has none, or the same."""
    counts = "".join(f"\n{number}" for number in range(1, 13))
    main, page = text(ORIGINAL), text(ORIGINAL + counts)
    rows = "".join(f"\n{place} {place * place}" for place in range(10))
    table, other = text(ORIGINAL + rows), text(ORIGINAL + rows.replace("8", "3"))
    for contained in (False, True):
        assert not told_apart(pair(main, page), contained) and not told_apart(pair(page, main), contained)
        assert told_apart(pair(table, other), contained) and not told_apart(pair(table, text(table.text)), contained)


def test_copies_differ_by_words_in_many_places_and_notices_by_few() -> None:
    generator = random.Random(3)
    words = ORIGINAL.split(" ")
    copy, notice = list(words), list(words)
    for place in range(4, len(words), 8):
        copy[place] = "".join(generator.choices("bcdfgjk", k=6))
    for place in (20, 60, 100, 140):
        notice[place : place + 6] = ["".join(generator.choices("bcdfgjk", k=6)) for _ in range(6)]
    a = text(ORIGINAL)
    assert reworded(pair(a, text(" ".join(copy))))
    assert not reworded(pair(a, text(" ".join(notice))))


def test_names_with_figures_are_found_in_one_pass() -> None:
    assert _NAME.findall("f32x4 _b1 ab_c2d ab_c a__b__3 x9") == ["f32x4", "b1", "ab_c2d", "a__b__3", "x9"]
    started = time.process_time()
    assert not _NAME.findall("a_" * 1_000_000)
    assert time.process_time() - started < 30  # at once, beside hours
