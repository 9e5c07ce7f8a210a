"""fastText classifiers: DCLM's and Ultra-FineWeb's, text prepared as their makers prepare it, or any other.

DCLM (mlfoundations/fasttext-oh-eli5): Li et al. 2024, arXiv 2406.11794, `classify_fasttext_hq_prob`.
Ultra-FineWeb (openbmb/Ultra-FineWeb-classifier): Wang et al. 2025, arXiv 2505.05427, its fasttext preprocessing.
"""

from __future__ import annotations

import mmap
import re
import struct
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datamask import storage
from datamask.config import Config, ScorerSettings
from datamask.errors import MissingExtraError, ModelError, nearest
from datamask.models.load import loading
from datamask.models.locate import local_path, locate
from datamask.quality.documents import Documents, Scorer, Scores, plain_scores
from datamask.quality.quality_ref import ScorerRef

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LABEL = "__label__"
# the label whose probability is one minus the score, by preparation
NEGATIVE = {"dclm": "__label__cc", "ultra-fineweb": "__label__neg"}
MAGIC, VERSION = 793712314, 12
_SUPERVISED = 3


def prepare_plain(text: str) -> str:
    """One line, which is what fastText reads."""
    return " ".join(text.splitlines())


def prepare_dclm(text: str) -> str:
    """DCLM's: the lines of the stripped text joined by spaces."""
    return " ".join(text.strip().splitlines())


def prepare_ultra_fineweb(text: str, tokenizer: Tokenizer, pieces: dict[int, str] | None = None) -> str:
    """Ultra-FineWeb's: at most two newlines in a row, lowercase, NFKD without combining marks, tokens joined by spaces,
    line breaks and tabs written as two characters, runs of spaces squeezed.

    :param pieces: text by token id, filled as tokens are met
    """
    pieces = {} if pieces is None else pieces
    text = re.sub(r"\n{3,}", "\n\n", text).lower()
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c) != "Mn")
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    for token in ids:
        if token not in pieces:
            pieces[token] = tokenizer.decode([token], skip_special_tokens=False)
    joined = " ".join([pieces[token] for token in ids])
    joined = joined.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return re.sub(r" +", " ", joined).strip()


class FastTextScorer(Scorer):
    """The probability of the positive label, in [0, 1]: of `label` where one is named, else 1 − p where the
    preparation's negative label is on top and p where another is.

    :raises ModelError: the file is missing, broken or no classifier, or has no such label.
    :raises MissingExtraError: fastText is not installed.
    """

    @classmethod
    def pin(cls, settings: ScorerSettings, config: Config) -> ScorerRef:
        path = local_path(str(settings.model))
        require_file(path)
        prepared = None if settings.tokenizer is None else locate(settings.tokenizer, None)[2]
        facts = [settings.preparation, settings.label, prepared]
        return ScorerRef(settings, path, None, storage.key("fasttext", storage.fingerprint(path), facts))

    @classmethod
    def load(cls, ref: ScorerRef, config: Config, work: str) -> FastTextScorer:
        return cls(ref.path, ref.settings)

    def __init__(self, path: str, settings: ScorerSettings) -> None:
        self._model, label, preparation = load_model(path), settings.label, settings.preparation
        self._prepare: Callable[[str], str] = prepare_dclm if preparation == "dclm" else prepare_plain
        if preparation == "ultra-fineweb":
            tokenizer, pieces = _tokenizer(str(settings.tokenizer)), dict[int, str]()
            self._prepare = lambda text: prepare_ultra_fineweb(text, tokenizer, pieces)
        labels = list(self._model.labels)
        self._label = None if label is None else LABEL + label.removeprefix(LABEL)
        self._negative = NEGATIVE.get(preparation)
        known = ", ".join(name.removeprefix(LABEL) for name in labels)
        if self._label is not None and self._label not in labels:
            raise ModelError(
                f"fastText model {path} has no label {label}{nearest(self._label, labels)} (its labels: {known})"
            )
        if self._label is None and self._negative not in labels:
            asked = "" if self._negative is None else f"; preparation {preparation} expects {self._negative}"
            raise ModelError(f"fastText model {path}: name the positive label, one of {known}{asked}")

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`: the positive label's probability."""
        return plain_scores(np.array([self._one(text) for text in documents.texts], dtype=np.float32))

    def _one(self, text: str) -> float:
        line = self._prepare(text).encode("utf-8", "replace").decode("utf-8").replace("\n", " ") + "\n"
        if self._label is None:
            ((probability, label),) = self._model.f.predict(line, 1, 0.0, "strict") or ((np.nan, ""),)
            probability = min(probability, 1.0)  # fastText's sums may exceed it by rounding
            return 1 - probability if label == self._negative else probability
        found = self._model.f.predict(line, -1, 0.0, "strict")
        return min(next((p for p, label in found if label == self._label), 0.0 if found else np.nan), 1.0)


def load_model(path: str) -> Any:
    """The fastText classifier of a file, checked to be whole first: fastText itself loads a truncated one, silently.

    :raises ModelError: see FastTextScorer.
    """
    try:
        import fasttext
    except ImportError as error:
        raise MissingExtraError("a fastText scorer", "fasttext") from error
    require_file(path)
    check_file(path)
    try:
        model = fasttext.load_model(path)
    except (ValueError, RuntimeError, MemoryError) as error:
        raise ModelError(f"fastText model {path} is broken: {error}") from error
    if not model.get_labels():
        raise ModelError(f"fastText model {path} has no labels: word vectors, not a classifier")
    return model


def require_file(path: str) -> None:
    """
    :raises ModelError: there is no such file; says how to get one.
    """
    if not Path(path).is_file():
        raise ModelError(
            f"fastText model {path}: no such file. On a machine with access, run e.g. "
            f"`hf download mlfoundations/fasttext-oh-eli5 --local-dir models`, copy it here, and give the .bin's path"
        )


def _tokenizer(name: str) -> Any:
    """A `tokenizers.Tokenizer`, of a folder or hub name."""
    from tokenizers import Tokenizer

    path, revision, _ = locate(name, None)
    file = Path(path) / "tokenizer.json"
    if file.is_file():
        try:
            return Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exceptions
            raise ModelError(f"tokenizer {file} is broken: {error}") from error
    from transformers import AutoTokenizer

    with loading("tokenizer", path, revision):
        return AutoTokenizer.from_pretrained(path, revision=revision).backend_tokenizer


# ---------------------------------------------------------------- whether a file is whole
# fastText reads past the end of a truncated file and answers with zeros. Layout: fastText 0.9.2, src/fasttext.cc,
# dictionary.cc, densematrix.cc, quantmatrix.cc, productquantizer.cc.


def check_file(path: str) -> None:
    """Walks through the file's parts.

    :raises ModelError: it is no fastText classifier, or too short.
    """
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        if size < 8 or struct.unpack("<ii", file.read(8)) != (MAGIC, VERSION):
            raise ModelError(f"fastText model {path}: not a fastText file of version {VERSION} (.bin or .ftz)")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                supervised = _walk(data)
            except (struct.error, OverflowError) as error:
                raise ModelError(
                    f"fastText model {path} is broken: it ends after {size:,} bytes, in the middle; fetch it again"
                ) from error
    if not supervised:
        raise ModelError(f"fastText model {path} holds word vectors, not a classifier")


def _walk(data: mmap.mmap) -> bool:
    """Whether it is a classifier; else what follows is not looked at."""
    place = 8

    def take(layout: str) -> tuple:
        """Values of `struct`'s codes; of "x" none, so many bytes are skipped."""
        nonlocal place
        values = struct.unpack_from("<" + layout, data, place)
        place += struct.calcsize("<" + layout)
        return values

    def skip_quantiser() -> None:
        dimensions, _, _, _ = take("4i")
        take(f"{4 * 256 * dimensions}x")

    def skip_matrix(quantised: bool) -> None:
        if not quantised:
            rows, columns = take("qq")
            take(f"{4 * rows * columns}x")
            return
        normalised, rows, _, codes = take("?qqi")
        take(f"{codes}x")
        skip_quantiser()
        if normalised:
            take(f"{rows}x")
            skip_quantiser()

    if take("12id")[7] != _SUPERVISED:  # dim, ws, epoch, minCount, neg, wordNgrams, loss, model, …, t
        return False
    entries, _, _, _, pruned = take("iiiqq")
    for _ in range(entries):
        end = data.find(b"\0", place)  # −1, and so an error of `struct`, where none ends
        take(f"{end + 1 - place}x9x")  # the word; its count int64, its type int8
    take(f"{8 * max(pruned, 0)}x")
    (quantised,) = take("?")
    skip_matrix(quantised)
    (quantised_output,) = take("?")
    skip_matrix(quantised and quantised_output)
    return True
