"""An encoder of the user's own: any class with `encode(texts)`, as `encoder.model` names it (docs/extending.md)."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence

import numpy as np

from datamask import extensions, storage
from datamask.encoders.encode import Encoded
from datamask.errors import ModelError
from datamask.models.encoder_ref import VERSION, EncoderRef
from datamask.stages import Progress, silent


class OwnEncoder:
    """The user's object behind the `Encoder` protocol: called by one thread at a time, and its answers checked."""

    def __init__(self, ref: EncoderRef) -> None:
        """:raises ConfigError: the class cannot be loaded, was edited since it was pinned, or cannot be constructed."""
        self._ref, own = ref, extensions.require("encoder", ref.name)
        own.check_key(own_key(own, ref.options, ref.dimensions), ref.fingerprint)
        self._encoder = own.make(json.loads(ref.options))
        self._lock = threading.Lock()

    def tokenise(self, texts: Sequence[str]) -> list[str]:
        """The texts as they are; the user's encoder tokenises them itself."""
        return list(texts)

    def compute(self, tokenised: list[str], batch_tokens: int, progress: Progress = silent) -> Encoded:
        """Vectors of unit length, truncated to `ref.dimensions`.

        :raises ConfigError: the encoder raises.
        :raises ModelError: the encoder gives no (texts, dimensions) array, or too few dimensions.
        """
        with self._lock, extensions.named_in_errors(f"encoder {self._ref.name}"):
            answer = self._encoder.encode(tokenised)
            found = np.asarray(answer, dtype=np.float32)
        wanted = self._ref.dimensions
        if found.ndim != 2 or len(found) != len(tokenised):
            gave = f"an array of shape {found.shape}" if found.ndim else type(answer).__name__
            raise ModelError(
                f"encoder {self._ref.name} gave {gave} for {len(tokenised)} texts; "
                f"expected ({len(tokenised)}, dimensions)"
            )
        if found.shape[1] < wanted:
            raise ModelError(
                f"encoder {self._ref.name} makes vectors of {found.shape[1]} dimensions, encoder.dimensions is "
                f"{wanted}; set encoder.dimensions={found.shape[1]}"
            )
        found = found[:, :wanted]
        length = np.linalg.norm(found, axis=1, keepdims=True)
        progress(len(tokenised))
        # a text without any direction gets the one that all such texts share, as with the encoders built in
        return Encoded(np.where(length == 0, np.float32(wanted**-0.5), found / np.where(length == 0, 1, length)))


def own_key(own: extensions.Extension, options: str, dimensions: int) -> str:
    """The fingerprint of the reference of an encoder of the user's own, by its code as it is now.

    :param options: as JSON.
    """
    return storage.key("own", VERSION, own.fingerprint(), options, dimensions)
