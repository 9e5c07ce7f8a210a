"""The tokenizer that a trainer uses: a folder, a tokenizer.json, or a name on the Hugging Face hub."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from datamask.errors import ConfigError, ModelError, one_line
from datamask.models.load import MODELS, loading
from datamask.models.tokens import DocumentTokenizer

# what ends a document in published models, where the tokenizer's configuration names no eos_token
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "[SEP]")


@dataclass(frozen=True)
class FoundTokenizer:
    """A tokenizer and the token that ends a document. Picklable."""

    name: str  # on the hub, or of its folder
    text: str  # the content of its tokenizer.json
    end: str
    end_id: int
    vocabulary: int  # one more than the greatest token id

    @property
    def said(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        return {"name": self.name, "sha256": digest, "end": self.end, "end_id": self.end_id}


def find_tokenizer(name: str, end: str | None) -> FoundTokenizer:
    """The tokenizer of that name, and the token that ends a document: `end`, or its configuration's eos_token, or the
    first of `ENDS` that it has.

    :raises ModelError: it is missing or broken.
    :raises ConfigError: it has no such token.
    """
    place = Path(name).expanduser()
    file = (place / "tokenizer.json" if place.is_dir() else place).resolve()
    if not file.is_file():
        return tokenizer_of(name, *_read_hub(name), end)
    try:
        text, configured = file.read_text(encoding="utf-8"), _eos_token(file.with_name("tokenizer_config.json"))
    except (ValueError, OSError) as error:
        raise ModelError(f"tokenizer {name} is no JSON file ({one_line(error)}); give its folder", path=name) from error
    return tokenizer_of(file.parent.name if file.name == "tokenizer.json" else file.stem, text, configured, end)


def tokenizer_of(name: str, text: str, configured: str | None, end: str | None) -> FoundTokenizer:
    """`find_tokenizer`, of the content of a tokenizer.json and its configuration's eos_token."""
    try:
        vocabulary = Tokenizer.from_str(text).get_vocab(with_added_tokens=True)
    except Exception as error:  # the library's errors have no type of their own
        raise ModelError(
            f"tokenizer {name} is broken ({one_line(error)}); give a folder with the tokenizer.json that "
            "save_pretrained() writes, or that file"
        ) from error
    ending = end or next((one for one in (configured, *ENDS) if one in vocabulary), None)
    if ending is None or ending not in vocabulary:
        special = sorted(token for token in vocabulary if re.fullmatch(r"<[^<>]+>|\[[^][]+\]", token))[:20]
        what = f"has no token {end}" if end else "names no token that ends a document"
        raise ConfigError(
            f"tokenizer {name} {what}; give one that it has: --end-token TOKEN "
            f"({'its special ones: ' + ', '.join(special) if special else 'it has no special ones, so any will do'})",
            valid=special,
            next=["--end-token"],
        )
    return FoundTokenizer(name, text, ending, vocabulary[ending], 1 + max(vocabulary.values()))


def document_tokenizer(found: FoundTokenizer) -> DocumentTokenizer:
    """It, loaded once per process; what text spells is text, special tokens too."""
    key = ("tokens", found.said["sha256"])
    return MODELS.get(key, lambda: DocumentTokenizer(Tokenizer.from_str(found.text), special_as_text=True))


def _read_hub(name: str) -> tuple[str, str | None]:
    """What its tokenizer.json would hold, and its eos_token: by transformers, which knows older files too."""
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        what = "the folder has no tokenizer.json" if Path(name).expanduser().is_dir() else "no such folder or file"
        raise ModelError(f"tokenizer {name}: {what}", path=name)
    with loading("tokenizer", name):
        from transformers import AutoTokenizer

        found: Any = AutoTokenizer.from_pretrained(name)
    if getattr(found, "backend_tokenizer", None) is None:
        raise ModelError(f"tokenizer {name} has no fast version; save it with tokenizer.json")
    return found.backend_tokenizer.to_str(), found.eos_token


def _eos_token(file: Path) -> str | None:
    said = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    token = said.get("eos_token") if isinstance(said, dict) else None
    return token.get("content") if isinstance(token, dict) else token
