"""Texts to token ids: once, only as far into a text as needed, in parallel (Rust), whatever the text holds.

tokenizer = load_tokenizer(encoder)
tokenizer.count(["one text", "another"])     # int64 [2]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from tokenizers import Tokenizer

from datamask.models.load import MODELS, loading, named_errors
from datamask.models.locate import local_folder
from datamask.text.utf8 import Texts, blocks, strings
from datamask.text.word_tokens import WordTokenizer, splits_into_words

if TYPE_CHECKING:
    from datamask.models.encoder_ref import EncoderRef

CHARACTERS_PER_TOKEN = 6  # first guess at how much of a long text to read, enough for 99 % of the real documents
NO_TOKENS = np.zeros(0, np.int32)
BLOCK_CHARACTERS = 4_000_000  # tokenised at a time: bounds the memory of the tokenizer's records

T = TypeVar("T")


@dataclass(frozen=True)
class TokenWindows:
    """Token ids of the windows of some documents, one after the other."""

    ids: np.ndarray  # int32 [tokens]
    lengths: np.ndarray  # int64 [windows]: tokens of each window
    owners: np.ndarray  # int64 [windows]: which document a window belongs to, ascending
    documents: int

    @property
    def starts(self) -> np.ndarray:
        """int64 [windows]: where a window's ids begin."""
        return np.cumsum(self.lengths) - self.lengths


def clean_text(text: str) -> str:
    """`text` with lone surrogates, which UTF-8 cannot hold, replaced by U+FFFD."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def cut_windows(ids: np.ndarray, lengths: np.ndarray, room: int, prompt: np.ndarray) -> TokenWindows:
    """Windows of at most `room` tokens of documents (ids int32 [tokens], lengths int64 [documents]); each after a
    document's first begins with the prompt again."""
    step = room - len(prompt)
    counts = 1 + np.maximum(-(-(lengths - room) // step), 0)
    owners = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)  # of a window in its document
    later = number > 0
    begins = np.where(later, room + (number - 1) * step, 0)
    sizes = np.minimum(lengths[owners] - begins, np.where(later, step, room))
    places = (np.cumsum(lengths) - lengths)[owners] + begins
    ids = np.insert(ids, np.repeat(places[later], len(prompt)), np.tile(prompt, later.sum()))
    return TokenWindows(ids, sizes + len(prompt) * later, owners, len(lengths))


class TokenCounter(Protocol):
    """What counts tokens for the index."""

    def count(self, texts: Texts) -> np.ndarray:
        """int64 [texts]: tokens of each whole text, special tokens not counted."""


def load_tokenizer(encoder: EncoderRef) -> TokenCounter:
    """The encoder's own tokenizer, without loading the model.

    :raises ModelError: it is not there.
    """

    def load() -> TokenCounter:
        folder = local_folder(encoder.path) if encoder.kind in ("static", "column") else encoder.path
        if (file := Path(folder) / "tokenizer.json").exists():
            with named_errors("tokenizer of encoder", encoder.path, encoder.revision):
                return DocumentTokenizer(Tokenizer.from_file(str(file)))
        with loading("tokenizer of encoder", encoder.path, encoder.revision):
            from transformers import AutoTokenizer

            found = AutoTokenizer.from_pretrained(
                folder, revision=encoder.revision, trust_remote_code=encoder.trust_remote_code
            )
            backend = getattr(found, "backend_tokenizer", None)
            return DocumentTokenizer(backend) if backend is not None else _PythonTokenizer(found)

    # the name of a static encoder's folder stands for its content, whether its vectors are there yet or not
    name = encoder.path.rstrip("/").rsplit("/", 1)[-1] if encoder.kind == "static" else encoder.path
    return MODELS.get(("tokenizer", name, encoder.revision), load)


class DocumentTokenizer:
    """A tokenizer from the `tokenizers` library, without its own padding, truncation and special tokens.

    :param special_as_text: what in a text spells a special token is tokenised like other text.
    """

    def __init__(self, tokenizer: Tokenizer, special_as_text: bool = False) -> None:
        self._whole = Tokenizer.from_str(tokenizer.to_str())
        self._whole.encode_special_tokens = special_as_text
        self._whole.no_truncation()
        self._whole.no_padding()
        self._words = WordTokenizer(self._whole) if splits_into_words(self._whole) else None

    def count(self, texts: Texts) -> np.ndarray:
        """int64 [texts]: tokens of each whole text, special tokens not counted."""
        return _joined([self._count(block) for block in blocks(texts, BLOCK_CHARACTERS)], np.int64)

    def first(self, texts: Sequence[str], limit: int) -> tuple[np.ndarray, np.ndarray]:
        """The first `limit` tokens of each text: ids int32 [tokens], lengths int64 [texts].

        Only the beginning of a long text is tokenised, up to white space where there is some nearby, so a token
        may differ from the whole text's tokens at the very end of a window at most.
        """
        found = [np.zeros(0, np.int32)] * len(texts)
        todo = list(range(len(texts)))
        reach = limit * CHARACTERS_PER_TOKEN
        while todo:
            beginnings = [_beginning(texts[i], reach) for i in todo]
            ids, lengths = self.all(beginnings)
            ends = np.cumsum(lengths)
            for i, start, end in zip(todo, ends - lengths, ends, strict=True):
                found[i] = ids[start : min(end, start + limit)]
            cut = zip(todo, beginnings, strict=True)
            todo = [i for i, part in cut if len(found[i]) < limit and len(texts[i]) > len(part)]
            reach *= 4
        return _joined(found, np.int32), np.array([len(ids) for ids in found], np.int64)

    def all(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """All tokens of each text: ids int32 [tokens], lengths int64 [texts]."""
        parts = [self._ids(block) for block in blocks(texts, BLOCK_CHARACTERS)]
        return _joined([ids for ids, _ in parts], np.int32), _joined([lengths for _, lengths in parts], np.int64)

    def windows(
        self, texts: Sequence[str], room: int, long_documents: str, prompt: str = "", prompt_ids: np.ndarray = NO_TOKENS
    ) -> TokenWindows:
        """The first window of at most `room` tokens of each text behind the prompt, or all of them ("mean")."""
        texts = [prompt + text for text in texts] if prompt else texts
        if long_documents == "first":
            return TokenWindows(*self.first(texts, room), np.arange(len(texts)), len(texts))
        return cut_windows(*self.all(texts), room, prompt_ids)

    def _count(self, texts: Texts) -> np.ndarray:
        if self._words is not None:
            return _readable(self._words.count, texts)
        return np.array([len(encoding) for encoding in self._encode(texts)], np.int64)

    def _ids(self, texts: Texts) -> tuple[np.ndarray, np.ndarray]:
        if self._words is not None:
            return _readable(self._words.ids, texts)
        found = [encoding.ids for encoding in self._encode(texts)]
        lengths = np.array([len(ids) for ids in found], np.int64)
        return np.fromiter(chain.from_iterable(found), np.int32, count=int(lengths.sum())), lengths

    def _encode(self, texts: Texts) -> list:
        return _readable(lambda texts: self._whole.encode_batch_fast(texts, add_special_tokens=False), strings(texts))


def _readable(call: Callable[[Any], T], texts: Texts) -> T:
    """`call` of the texts, cleaned where one holds a lone surrogate: the libraries take none."""
    try:
        return call(texts)
    except (UnicodeEncodeError, TypeError):
        return call([clean_text(text) for text in strings(texts)])


class _PythonTokenizer:
    """A transformers tokenizer without a Rust half."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def count(self, texts: Texts) -> np.ndarray:
        return np.array([len(self._tokenizer.tokenize(clean_text(text))) for text in strings(texts)], np.int64)


def _beginning(text: str, reach: int) -> str:
    if len(text) <= reach:
        return text
    for at in range(reach, reach - min(reach // 10, 200), -1):
        if text[at].isspace():
            return text[:at]
    return text[:reach]


def _joined(parts: list[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate([np.zeros(0, kind), *parts])
