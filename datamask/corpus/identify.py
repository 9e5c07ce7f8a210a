"""In which language a document is, where the corpus does not say: the stage `languages`.

    shard = identify_shard(shard, config, work)      # the shard with `language`, `language_score` beside it

By CLD2 (Sites 2013, github.com/CLD2Owners/cld2), whose model is in the package pycld2, offline. The score is the share
of the text that CLD2 lays to the language. What the corpus says itself is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.config import Config
from datamask.corpus.plan import Part, Shard
from datamask.corpus.read import BESIDE, read_batches, shard_schema
from datamask.errors import ConfigError, MissingExtraError, nearest
from datamask.pipeline import STAGES

CHARACTERS = 32_000  # of a document that are looked at
# what CLD2 refuses: no characters that a text may hold
_REFUSED = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]|[\U0001fffe-\U0001ffff]")
# CLD2's older codes: ISO 639's of today
_TODAY = {"iw": "he", "in": "id", "jw": "jv", "ji": "yi", "mo": "ro", "zh-Hant": "zh", "sr-ME": "sr", "tl": "tl"}


def wanted(config: Config) -> bool:
    settings = config.filter
    return settings.identify == "always" or (settings.identify == "needed" and bool(settings.languages))


def identify_shard(
    shard: Shard, config: Config, work: str, progress: Callable[[int], None] = lambda rows: None
) -> Shard:
    """The (converted) shard with work/languages/<shard>-<key>.parquet beside it: language and language_score of every
    row; the shard itself where the settings ask for none.

    :raises MissingExtraError: pycld2 is not installed.
    :raises ConfigError: filter.languages names none that is identified, and the corpus has no language of its own.
    """
    if not wanted(config):
        return shard
    if "language" not in shard_schema(shard, config).names:
        check_names(config.filter.languages)
    url, key = identified_to(shard, config, work)
    output = storage.find_or_write(url, key, BESIDE, _batches(shard, config, progress))
    return replace(shard, beside=Part(output.path, "parquet", key, 0, rows=output.rows))


def identified_to(shard: Shard, config: Config, work: str) -> tuple[str, str]:
    """The file of a shard's languages, and its key."""
    key = STAGES["languages"].key(config, shard.fingerprint)
    return storage.join(work, "languages", f"{shard.name}-{key}.parquet"), key


def _batches(shard: Shard, config: Config, progress: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    identify, names = identifier(), BESIDE.names[1:]
    for batch in read_batches(shard, config, ["text", *names]):
        lacking = batch["language"].is_null()
        asked = zip(batch["text"].to_pylist(), lacking.to_pylist(), strict=True)
        found = [identify(text) if unknown and text else (None, None) for text, unknown in asked]
        guessed = [
            pa.array([each[place] for each in found], BESIDE.field(name).type) for place, name in enumerate(names)
        ]
        columns = [pc.if_else(lacking, own, batch[name]) for own, name in zip(guessed, names, strict=True)]
        yield pa.RecordBatch.from_arrays([batch["chunk_id"], *columns], schema=BESIDE)
        progress(batch.num_rows)


def identifier() -> Callable[[str], tuple[str | None, float]]:
    """A function from a text to its language (ISO 639-1, else 639-3; None: none found) and the share of it.

    :raises MissingExtraError: pycld2 is not installed.
    """
    cld2 = _cld2()

    def identify(text: str) -> tuple[str | None, float]:
        data = _REFUSED.sub(" ", text[:CHARACTERS]).encode("utf-8", "replace")
        try:
            _, _, details = cld2.detect(data, isPlainText=True, bestEffort=True)
        except cld2.error:
            return None, 0.0
        _, code, percent, _ = details[0]
        if code == "un" or code.startswith("xx"):
            return None, 0.0
        return _TODAY.get(code, code), percent / 100

    return identify


def check_names(languages: Sequence[str]) -> None:
    """:raises ConfigError: a language that is not one of those that are identified; names the nearest."""
    valid = sorted({_TODAY.get(code, code) for _, code in _cld2().LANGUAGES if code != "un" and code[:2] != "xx"})
    for name in languages:
        if name not in valid:
            raise ConfigError(
                f"filter.languages: the corpus has no column language, and {name!r} is none that is identified"
                f"{nearest(name, valid)} (valid are ISO 639 codes: {', '.join(valid[:12])}, …); "
                "or map the corpus's own: --set corpus.columns.language=NAME"
            )


def _cld2() -> Any:
    try:
        import pycld2
    except ImportError as error:
        raise MissingExtraError("identifying languages (filter.languages, filter.identify)", "languages") from error
    return pycld2
