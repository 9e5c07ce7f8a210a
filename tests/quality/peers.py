"""datatrove's filters, one per rule of ours, so that verdicts can be compared rule by rule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datamask.quality.signals import sentences_of_lines
from datamask.text.rule_words import RuleWords


def filters() -> dict[str, Any]:
    """Our rule's name: datatrove's filter with every other threshold off."""
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    def gopher(**threshold: Any) -> Any:
        off = dict.fromkeys(
            [
                "min_doc_words",
                "max_doc_words",
                "min_avg_word_length",
                "max_avg_word_length",
                "max_symbol_word_ratio",
                "max_bullet_lines_ratio",
                "max_ellipsis_lines_ratio",
                "max_non_alpha_words_ratio",
                "min_stop_words",
            ]
        )
        return GopherQualityFilter(**{**off, **threshold})

    def repetition(**threshold: Any) -> Any:
        off = dict.fromkeys(["dup_line_frac", "dup_para_frac", "dup_line_char_frac", "dup_para_char_frac"])
        return GopherRepetitionFilter(**{**off, "top_n_grams": (), "dup_n_grams": (), **threshold})

    def fineweb(**threshold: Any) -> Any:
        off = {"line_punct_thr": -1, "short_line_thr": 2, "char_duplicates_ratio": 2, "new_line_ratio": 1e9}
        return FineWebQualityFilter(**{**off, **threshold})

    def c4(**threshold: Any) -> Any:  # as FineWeb ran it: without the terminal-punctuation rule
        off = {"min_num_sentences": -1, "filter_lorem_ipsum": False, "filter_curly_bracket": False}
        return C4QualityFilter(filter_no_terminal_punct=False, **{**off, **threshold})

    found = {
        "gopher_few_words": gopher(min_doc_words=50),
        "gopher_many_words": gopher(max_doc_words=100_000),
        "gopher_short_words": gopher(min_avg_word_length=3),
        "gopher_long_words": gopher(max_avg_word_length=10),
        "gopher_hashes": gopher(max_symbol_word_ratio=0.1),
        "gopher_ellipses": gopher(max_symbol_word_ratio=0.1),
        "gopher_bullets": gopher(max_bullet_lines_ratio=0.9),
        "gopher_ellipsis_lines": gopher(max_ellipsis_lines_ratio=0.3),
        "gopher_letters": gopher(max_non_alpha_words_ratio=0.8),
        "gopher_stop_words": gopher(min_stop_words=2),
        "gopher_duplicate_paragraphs": repetition(dup_para_frac=0.3),
        "gopher_duplicate_paragraph_characters": repetition(dup_para_char_frac=0.2),
        "gopher_duplicate_lines": repetition(dup_line_frac=0.3),
        "gopher_duplicate_line_characters": repetition(dup_line_char_frac=0.2),
        "c4_lorem_ipsum": c4(filter_lorem_ipsum=True),
        "c4_curly_bracket": c4(filter_curly_bracket=True),
        "c4_sentences": c4(min_num_sentences=5),
        "fineweb_line_punctuation": fineweb(line_punct_thr=0.12),
        "fineweb_short_lines": fineweb(short_line_thr=0.67),
        "fineweb_duplicate_characters": fineweb(char_duplicates_ratio=0.01),
        "fineweb_newlines": fineweb(new_line_ratio=0.3),
    }
    for n, most in ((2, 0.2), (3, 0.18), (4, 0.16)):
        found[f"gopher_top_{n}_gram"] = repetition(top_n_grams=((n, most),))
    for n, most in zip(range(5, 11), (0.15, 0.14, 0.13, 0.12, 0.11, 0.10), strict=True):
        found[f"gopher_duplicate_{n}_grams"] = repetition(dup_n_grams=((n, most),))
    return found


def verdicts(text: str, peers: dict[str, Any]) -> set[str]:
    """The rules datatrove says a document fails."""
    from datatrove.data import Document

    failed = set()
    for name, peer in peers.items():
        found = peer.filter(Document(text=text, id="0"))
        if found is not True:
            reason = found[1] if isinstance(found, tuple) else "failed"
            # one filter for both symbols, which says which it was; the first hides the second
            if (name, reason) in {("gopher_hashes", "gopher_too_many_ellipsis")}:
                continue
            if (name, reason) in {("gopher_ellipses", "gopher_too_many_hashes")}:
                failed.add("gopher_ellipses?")
                continue
            failed.add(name)
    return failed


class OurWords:
    """Our way of splitting text, as a tokenizer of datatrove's."""

    def word_tokenize(self, text: str) -> list[str]:
        words = RuleWords([text])
        return [text[start - 1 : end - 1] for start, end in zip(words.start, words.end, strict=True)]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        [sentences] = sentences_of_lines(RuleWords([text]), [text.splitlines(keepends=True)])
        return [(0, 0)] * sum(sentences)


@contextmanager
def our_words(monkeypatch: Any) -> Iterator[None]:
    """Within it, datatrove splits text into words and sentences as we do."""
    from datatrove.utils import text, word_tokenizers

    with monkeypatch.context() as patch:
        patch.setattr(word_tokenizers, "load_word_tokenizer", lambda language: OurWords())
        text.split_into_parts.cache_clear()
        yield
    text.split_into_parts.cache_clear()
