"""What a run takes over from a release, so that old documents keep their vectors, scores and topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from datamask import storage
from datamask.config import Config
from datamask.encoders import EncoderRef
from datamask.errors import ConfigError
from datamask.quality import QualityRef
from datamask.run import Previous


def carry_on(
    manifest: Mapping[str, Any], settings: Config, work: str, changed: Collection[str] = frozenset()
) -> Previous:
    """The release's encoder; its quality statistics and its topics, if what they depend on is the same.

    :param work: of the release, where what it fitted lies.
    :param changed: sections whose settings are not the release's.
    :raises ConfigError: its encoder runs code that a model brings, and the settings do not say that this is trusted.
    """
    identity = dict(manifest["provenance"]["encoder"])
    fitted = storage.join(work, identity["path"])
    if storage.exists(fitted):
        identity["path"] = fitted
    encoder = EncoderRef.from_dict(identity)
    if encoder.trust_remote_code and not settings.encoder.trust_remote_code:
        raise ConfigError(
            f"release {manifest['version']} was made with the model {encoder.name}, whose own code is run: "
            "say that you trust it, --set encoder.trust_remote_code=true"
        )
    reading = {"corpus", "encoder"}.isdisjoint(changed)
    kept = reading and "quality" not in changed
    quality = QualityRef.from_dict(manifest["provenance"]["quality"]) if kept else None
    topics = manifest["provenance"].get("topics", {}) if reading and "topics" not in changed else {}
    return Previous(encoder, quality, topics.get("model", ""), version=manifest["version"])
