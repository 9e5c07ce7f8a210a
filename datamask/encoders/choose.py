"""From the settings to an EncoderRef: fits the static encoder, or finds a model, checks it, and pins what it is."""

from __future__ import annotations

import logging
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from datamask import extensions, storage
from datamask.config import Config
from datamask.config import EncoderSettings as Settings
from datamask.corpus.plan import Shard
from datamask.corpus.read import sample_texts
from datamask.errors import ConfigError, InputError
from datamask.models.encoder_ref import EncoderRef
from datamask.pipeline import STAGES

COMPLETE = "modules.json"  # the last file of a model folder to appear
SEED = 0  # of the sample and of the random projections
LOGGER = logging.getLogger(__name__)


def prepare_encoder(
    shards: Sequence[Shard], config: Config, work: str, previous: EncoderRef | None = None
) -> EncoderRef:
    """The encoder of `config.encoder`, ready to be loaded by `embed_shard` in any process.

    :param shards: the corpus, converted; `static` is fitted on a sample of it
    :param previous: the encoder of the last release. A refresh keeps the one fitted then, so that what is embedded
        stays embedded; a changed setting makes a new one.
    :raises ModelError: a model is missing or does not fit the settings.
    :raises InputError: there is no text to fit on.
    :raises ConfigError: a quality head without a transformer.
    """
    settings = config.encoder
    if settings.quality_head and settings.model in ("static", "column"):
        raise ConfigError(
            f"encoder.quality_head needs a transformer as encoder.model, which is {settings.model!r}; "
            f"name the model the classifier was trained on"
        )
    if settings.model == "static":
        return _prepare_static(shards, config, work, previous)
    from datamask.encoders.pin import pin_column, pin_model, pin_own  # loads torch

    if settings.model == "column":
        return pin_column(shards, config)
    if own := extensions.find("encoder", settings.model):
        return pin_own(own, settings)
    return pin_model(settings, work)


# ---------------------------------------------------------------- static


def _prepare_static(shards: Sequence[Shard], config: Config, work: str, previous: EncoderRef | None) -> EncoderRef:
    settings = config.encoder
    how = STAGES["encoder"].key(config)
    if previous is not None and previous.kind == "static" and _name(previous.path).startswith(how):
        ref = _static_ref(settings, previous.path)
        if storage.exists(storage.join(ref.path, COMPLETE)):
            return ref
    folder = storage.join(work, "encoder", f"{how}-{storage.key(sorted(shard.fingerprint for shard in shards))}")
    if not storage.exists(storage.join(folder, COMPLETE)):
        if previous is not None and previous.kind == "static":
            why = "its files are gone"
            if not _name(previous.path).startswith(how):
                why = "it was fitted by other settings or an earlier version of datamask"
            LOGGER.warning(
                "the static encoder of the last release, %s, cannot be kept: %s. A new one is fitted, and every "
                "document is embedded again",
                _name(previous.path),
                why,
            )
        fit(sample_texts(shards, config, settings.fit_documents, SEED), settings, folder)
    return _static_ref(settings, folder)


def _name(folder: str) -> str:
    return folder.rstrip("/").rsplit("/", 1)[-1]


def fit(texts: Sequence[str], settings: Settings, folder: str) -> None:
    """Fits the static encoder on `texts` and publishes its sentence-transformers folder, whole or not at all.

    :raises InputError: no text.
    """
    from datamask.encoders import static
    from datamask.models.tokens import clean

    texts = [clean(text) for text in texts]
    if not texts:
        raise InputError("the corpus has no text to fit the static encoder on: every row is null, empty or undecodable")
    fitted = static.fit_static(texts, settings.vocabulary, settings.dimensions, settings.max_length, SEED)
    with tempfile.TemporaryDirectory(prefix="datamask-encoder-") as temporary:
        static.save(Path(temporary), fitted)
        publish_folder(Path(temporary), folder)


def _static_ref(settings: Settings, folder: str) -> EncoderRef:
    return EncoderRef(
        kind="static",
        name="static",
        path=folder,  # its name stands for its content
        revision=None,
        fingerprint=storage.key("static", _name(folder), settings.long_documents, settings.prompt),
        dimensions=settings.dimensions,
        max_length=settings.max_length,
        long_documents=settings.long_documents,
        prompt=settings.prompt,
        dtype="float32",
    )


# ---------------------------------------------------------------- folders


def publish_folder(local: Path, url: str) -> None:
    """Copies a finished folder to `url`, where it appears whole: by one rename, or modules.json last."""
    if storage.is_remote(url):
        fs, path = storage.filesystem(url)
        files = [file for file in local.rglob("*") if file.is_file()]
        for file in sorted(files, key=lambda file: file.name == COMPLETE):
            fs.put_file(str(file), f"{path}/{file.relative_to(local).as_posix()}")
        return
    target = Path(storage.filesystem(url)[1])
    with storage.storage_errors(url, "write"):
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}.tmp"
        try:
            for file in sorted(local.rglob("*")):  # copytree would hide an error's number, and so that the disk is full
                if file.is_file():
                    place = hidden / file.relative_to(local)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, place)
            if not (target / COMPLETE).exists():
                hidden.rename(target)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
