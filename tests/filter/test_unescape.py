"""What texts are compared by, whatever covers them: escapes, tags, letters that look like others, figures."""

import html
import json
import quopri
import urllib.parse
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from datamask.filter.shingles import shingles
from datamask.text.unescape import unescape

TEXTS = {
    "Latin": 'Füße & "Straße": the quick brown fox — jumps, as they say, over the lazy dog’s tail.',
    "Cyrillic": "Съешь ещё этих мягких французских булок, да выпей же чаю. Широкая электрификация — благо.",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ο Σωκράτης ήρθε στην Αθήνα το πρωί.",
    "Arabic": "ذهب الولد إلى المدرسة في الصباح الباكر ثم عاد إلى البيت ليقرأ كتابا عن البحر.",
    "Hebrew": "הילד הלך לבית הספר בבוקר ואחר כך חזר הביתה לקרוא ספר על הים הגדול.",
    "Devanagari": "लड़का सुबह स्कूल गया और फिर घर लौटकर समुद्र के बारे में एक किताब पढ़ने लगा।",
    "Bengali": "ছেলেটি সকালে স্কুলে গেল এবং তারপর বাড়ি ফিরে সমুদ্র নিয়ে একটি বই পড়ল।",
    "Thai": "เด็กชายไปโรงเรียนในตอนเช้าแล้วกลับบ้านมาอ่านหนังสือเกี่ยวกับทะเล",
    "Ethiopic": "ልጁ ጠዋት ወደ ትምህርት ቤት ሄደ ከዚያም ስለ ባሕር መጽሐፍ ለማንበብ ወደ ቤት ተመለሰ።",
    "Chinese": "男孩早上去了学校，然后回家读了一本关于大海的书。他很喜欢这个故事。",
    "Japanese": "少年は朝、学校へ行き、それから家に帰って海についての本を読みました。",
    "Korean": "소년은 아침에 학교에 갔다가 집으로 돌아와 바다에 관한 책을 읽었다.",
    "Gothic and signs": "𐌰𐍄𐍄𐌰 𐌿𐌽𐍃𐌰𐍂 𐌸𐌿 𐌹𐌽 𐌷𐌹𐌼𐌹𐌽𐌰𐌼 😀 𐍅𐌴𐌹𐌷𐌽𐌰𐌹 𐌽𐌰𐌼𐍉 𐌸𐌴𐌹𐌽",
}


def numbered(text: str) -> str:
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode()


ENCODINGS: dict[str, Callable[[str], str]] = {
    "entities": numbered,
    "hexadecimal entities": lambda text: "".join(f"&#x{ord(c):X};" if ord(c) > 127 else c for c in text),
    "tags": lambda text: f'<div class="a">\n<p>{text[:30]}</p><br/><b>{text[30:]}</b></div><!-- made -->',
    "JSON": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "Python": lambda text: text.encode("unicode_escape").decode(),
    "bytes": lambda text: repr(text.encode()),
    "octal": lambda text: "".join(f"\\{byte:03o}" if byte > 127 else chr(byte) for byte in text.encode()),
    "Rust": lambda text: "".join(f"\\u{{{ord(c):x}}}" if ord(c) > 127 else c for c in text),
    "percent": urllib.parse.quote,
    "quoted-printable": lambda text: quopri.encodestring(text.encode()).decode(),
    "mojibake": lambda text: text.encode().decode("latin-1"),
    "entities of entities": lambda text: html.escape(numbered(text)),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("script", TEXTS)
def test_a_text_behind_an_encoding_says_the_same(script: str, encoding: str) -> None:
    text, covered = TEXTS[script], ENCODINGS[encoding](TEXTS[script])
    one, other = shingles(text), shingles(covered if encoding != "bytes" else covered[1:])
    assert np.array_equal(one, other)


def plain(text: str) -> str:
    return unescape(text)[0]


def test_named_characters_are_those_of_html() -> None:
    text = "&eacute;&nbsp;&rarr; &ngE; &frac12;"
    assert plain(text) == html.unescape(text)


@pytest.mark.parametrize(
    "text",
    [
        "a < b and c > d; AT&T; &nope; 50 %; C:\\dir\\; x=1; \\u12 \\xZZ &#; &#xZ; &",
        "<https://example.org/a> <someone@example.org> #include <stdio.h>",
        "« été » : « É » “Straße” „Spaß“ À « X »",
        "=====\n======\n%",
    ],
)
def test_what_is_no_escape_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


@hypothesis_settings(deadline=None)
@given(st.text("<>&;#x%=\\uU0dA3 \n!/[]éÃâ€™", max_size=60))
@example("<![0000€")
def test_any_signs_are_read_and_a_text_is_read_alike_whatever_stands_beside_it(text: str) -> None:
    texts = ["word", text, "&amp"]
    made = [shingles(each).tolist() for each in texts]
    assert plain(text).encode() is not None and made == [shingles(each).tolist() for each in texts]


def test_letters_that_look_like_others_are_those_others() -> None:
    text = "The Captain Kept His Men At The Port, and Xavier Became a soCiety of One."
    looks = str.maketrans("aceopxyijsABCEHIKMOPSTX", "асеорхуіјѕАВСЕНІКМОРЅТХ")
    assert np.array_equal(shingles(text), shingles(text.translate(looks)))
    full = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)
    assert np.array_equal(shingles(text), shingles(full))
    assert np.array_equal(shingles("an eﬃcient ﬂat ﬁle"), shingles("an efficient flat file"))


@pytest.mark.parametrize("script", ["Cyrillic", "Greek"])
def test_a_text_in_capitals_is_the_same_in_scripts_that_look_like_latin(script: str) -> None:
    text = TEXTS[script]
    assert np.array_equal(shingles(text), shingles(text.upper()))


def test_figures_count_as_one_sign() -> None:
    assert np.array_equal(shingles("March 2011 (5) and 12/3"), shingles("March 7 (12,000) and 1"))
    assert np.array_equal(shingles("chapter ١٢ of ३"), shingles("chapter 4 of 17"))
    assert not np.array_equal(shingles("March 2011"), shingles("March"))
