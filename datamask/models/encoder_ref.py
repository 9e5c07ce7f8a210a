"""What the other stages know of an encoder: an EncoderRef, small, frozen and JSON-able."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

Kind = Literal["static", "model", "column", "own"]
VERSION = 1  # of the references that `encoders.pin` makes; the stage's own is that of what it fits


@dataclass(frozen=True)
class EncoderRef:
    """A prepared encoder. `fingerprint` stands for everything that determines the vectors: the model's files and
    the settings below, but neither the device nor `batch_tokens`, which move them by rounding only."""

    kind: Kind
    name: str  # as the user wrote it: "static", a hub name, a folder, or a column's name
    path: str  # what is loaded: a folder, or a hub name
    revision: str | None  # the commit of a hub model
    fingerprint: str
    dimensions: int
    max_length: int  # tokens of a window, special tokens included
    long_documents: Literal["first", "mean"]
    prompt: str = ""  # none
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    backend: Literal["torch", "onnx", "openvino"] = "torch"
    trust_remote_code: bool = False
    quality_head: str | None = None  # path of the classifier whose score comes with the vector
    quality_head_revision: str | None = None
    options: str = ""  # of an encoder of the user's own, as JSON

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the manifest's entry."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EncoderRef:
        """The inverse of `as_dict`; what an older version did not write has its default."""
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})
