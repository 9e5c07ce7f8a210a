"""Programs are copies if their identifiers and literals are the same, whatever the comments say."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from datamask.filter import programs
from datamask.filter.programs import another_program, are_programs
from tests.filter.test_unescape import ENCODINGS, TEXTS

PROGRAM = """// Licensed under the Licence; see the file that comes with it for what you may do and what you may not.
/* Evaluates a polynomial. */
function evaluate(c, x) {{
    var total = {start};
    for (var i = 0; i < c.length; i += 1) {{
        total = {step};
    }}
    return total;
}}
module.exports = evaluate;
"""
POWERS = PROGRAM.format(start=0, step="total + c[i] * Math.pow(x, i)")
NOTICE = "/*\n * Use of this file in source and binary forms is permitted\n * as its licence says.\n */\n"
APART = {
    "Horner's rule": (POWERS, PROGRAM.format(start=0, step="total * x + c[c.length - 1 - i]")),
    "a literal": (POWERS, PROGRAM.format(start=1, step="total + c[i] * Math.pow(x, i)")),
    "a name's case": (POWERS, POWERS.replace("Math", "math")),
    "two lines exchanged": ("a = 1\nb = a\nprint(b)\n", "b = a\na = 1\nprint(b)\n"),
    "directives": (NOTICE + "# define THIRTY_TWO_BIT\n# undef X\n", NOTICE + "# undef THIRTY_TWO_BIT\n# define X\n"),
    "headers": (NOTICE + "#ifndef _A_H\n#define _A_H\n#endif\n", NOTICE + "#ifndef _B_H\n#define _B_H\n#endif\n"),
    "a name below a licence": (
        "-- Use in source and binary forms is permitted.\n" * 9 + "\nprocedure Rain;\n",
        "-- Use in source and binary forms is permitted.\n" * 9 + "\nprocedure Tour;\n",
    ),
    "tables": ("flags[] = {\n 'P','I','C',\n 'm','6',\n};\n", "flags[] = {\n 'P','I','C',\n 'D','O',\n};\n"),
    "operators": (POWERS, POWERS.replace("+= 1", "-= 1")),
    "attributes": (
        "#[derive(Parser)]\n#[command(author)]\nstruct Cli {\n    name: String,\n}\nfn main() { Cli::parse(); }\n",
        "#[derive(Parser)]\n#[clap(author)]\nstruct Cli {\n    name: String,\n}\nfn main() { Cli::parse(); }\n",
    ),
    "names below a docstring": tuple(
        f'"""\nThe gate answers as its table says, for two inputs.\n"""\ndef {gate}(a, b):\n    return a\n'
        for gate in ("disjunction", "difference")
    ),
    "Vim's comments": (
        '" Vim filetype plugin\n" Language: swiftgyb\n" Maintainer: nobody\n\nruntime! ftplugin/swift.vim\n',
        '" Vim filetype plugin\n" Language: swift\n" Maintainer: nobody\n\nruntime! ftplugin/c.vim\n',
    ),
    "calls by pointers": tuple(f"int n = (*call)(value, {rest});\nchar *s = (char *)n;\n" for rest in (1, 2)),
    "escapes": (r"    '\xa4'  # CURRENCY" + "\n", r"    '\xa6'  # CURRENCY" + "\n"),
}
ALIKE = {
    "comments": POWERS.replace("Evaluates", "Sums").replace("// Licensed", "// Copyright 2020. Licensed"),
    "comments of ML": POWERS.replace("/* Evaluates a polynomial. */", "(** Sums. *)\n(*\n powers\n*) (* all *)"),
    "white space and marks": POWERS.replace(" + ", "+").replace("\n    ", "\n\t").replace(";\n", "\n"),
}


@pytest.mark.parametrize("what", APART)
def test_programs_of_other_identifiers_and_literals_are_two(what: str) -> None:
    one, other = APART[what]
    assert are_programs([one, other]).all()
    for contained in (False, True):
        assert another_program(one, other, contained) and another_program(other, one, contained)


@pytest.mark.parametrize("what", ALIKE)
def test_comments_and_white_space_tell_no_programs_apart(what: str) -> None:
    assert not another_program(POWERS, ALIKE[what], contained=False)


def test_a_part_of_a_program_is_one_piece_of_it() -> None:
    part = POWERS[POWERS.index("    var") : POWERS.index("    return")]
    assert not another_program(part, POWERS, contained=True) and another_program(part, POWERS, contained=False)
    assert another_program(part.replace("for", "while"), POWERS, contained=True)
    assert another_program("a = 1\nc = 3\n", "a = 1\nb = 2\nc = 3\n", contained=True)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_prose_and_what_covers_it_are_no_two_programs(encoding: str) -> None:
    for text in TEXTS.values():
        assert not are_programs([text, ENCODINGS[encoding](text)]).all()


@pytest.mark.parametrize("script", TEXTS)
def test_prose_is_no_program(script: str) -> None:
    lines = "\n".join(f"* {TEXTS[script]} (see §{n}; p. {n})" for n in range(12))
    heading = "# What is asked of everybody who would like to take part this year\n\nNothing at all."
    assert are_programs([lines, POWERS, heading]).tolist() == [False, True, False]


@given(st.text('/*()<!-> #%;"\na', max_size=60))
@example("< //*")
def test_comments_that_nothing_closes_are_no_comments(text: str) -> None:
    plain = programs._TOKEN.findall(programs._COMMENT.sub(" ", text)) or programs._TOKEN.findall(text)
    assert programs.tokens_of(text) == plain


def test_many_comments_that_nothing_closes_are_read_once() -> None:
    """Each was looked for to the end of the text: two minutes."""
    assert programs.tokens_of("/* a\n" * 50_000).count("a") == 50_000
