"""From the settings to an EncoderRef: fits the static encoder, or finds a model, checks it, and pins what it is.

encoder = prepare_encoder(shards, config, work)

The static encoder can be fitted in two steps, so that documents are counted by its tokens while its vectors are made:

counter = prepare_tokenizer(shards, config, work)     # for `load_tokenizer`, and so for the index
encoder = prepare_encoder(shards, config, work)       # goes on from there
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from datamask import extensions, storage
from datamask.config import Config
from datamask.config import EncoderSettings as Settings
from datamask.corpus.plan import Shard
from datamask.corpus.quarantine import why_no_text
from datamask.corpus.read import sample_texts
from datamask.encoders import static
from datamask.encoders.static import Counted
from datamask.errors import ConfigError, InputError
from datamask.maps import read_arrays, remove_folder, write_arrays
from datamask.models.encoder_ref import EncoderRef
from datamask.models.locate import local_folder
from datamask.models.tokens import clean_text
from datamask.pipeline import STAGES
from datamask.stages import ROUNDS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from datamask.encoders.static import Fitted

COMPLETE = "modules.json"  # the last file of a model folder to appear
TOKENIZER = "tokenizer.json"
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
    _check_head(settings)
    if settings.model == "static":
        return _prepare_static(shards, config, work, previous)
    from datamask.encoders.pin import pin_column, pin_model, pin_own  # loads torch

    if settings.model == "column":
        return pin_column(shards, config)
    if own := extensions.find_extension("encoder", settings.model):
        return pin_own(own, settings)
    return pin_model(settings, work)


def _check_head(settings: Settings) -> None:
    if settings.quality_head and settings.model in ("static", "column"):
        raise ConfigError(
            f"encoder.quality_head needs a transformer as encoder.model, which is {settings.model!r}; "
            f"name the model the classifier was trained on"
        )


# ---------------------------------------------------------------- static


def prepare_tokenizer(
    shards: Sequence[Shard], config: Config, work: str, previous: EncoderRef | None = None
) -> EncoderRef:
    """The static encoder as far as `load_tokenizer` needs it, for a model of encoder.model "static".

    Publishes work/tokenizer/<name>/tokenizer.json, unless the encoder is there, and leaves the counted texts to
    `prepare_encoder`.

    :param shards, previous: as `prepare_encoder`'s.
    :raises InputError: there is no text to fit on.
    :raises ConfigError: a quality head without a transformer.
    """
    _check_head(config.encoder)
    ref = _static(shards, config, work, previous)
    if storage.exists(storage.join(ref.path, COMPLETE)):
        return ref
    folder = storage.join(work, "tokenizer", _name(ref.path))
    url = storage.join(folder, TOKENIZER)
    if not storage.exists(url):
        tokenizer, counted = _fit_tokens(shards, config)
        if config.reads_vectors:  # `prepare_encoder` goes on from here
            matrix = counted.tokens
            write_arrays(
                _left(work, ref),
                data=matrix.data,
                indices=matrix.indices,
                indptr=matrix.indptr,
                shape=np.array(matrix.shape),
                languages=counted.languages,
                kinds=counted.kinds,
            )
        storage.write_content(url, tokenizer.to_str(pretty=True))
    return replace(ref, path=folder)


def _prepare_static(shards: Sequence[Shard], config: Config, work: str, previous: EncoderRef | None) -> EncoderRef:
    ref = _static(shards, config, work, previous)
    if storage.exists(storage.join(ref.path, COMPLETE)):
        return ref
    if previous is not None and previous.kind == "static":
        why = "it was fitted by other settings or an earlier version of datamask"
        if _name(previous.path).startswith(STAGES["encoder"].key(config)):
            why = "its files are gone"
        LOGGER.warning(
            "the static encoder of the last release, %s, cannot be kept: %s. A new one is fitted, and every "
            "document is embedded again",
            _name(previous.path),
            why,
        )
    tokenizer, counted = _begun(work, ref) or _fit_tokens(shards, config)
    vectors = static.vectors_of(counted, config.encoder.dimensions, SEED)
    _publish(static.Fitted(tokenizer, vectors), ref.path)
    return ref


def _static(shards: Sequence[Shard], config: Config, work: str, previous: EncoderRef | None) -> EncoderRef:
    """The last release's encoder, if it can be kept, or the one of these shards, fitted or not."""
    settings, how = config.encoder, STAGES["encoder"].key(config)
    if previous is not None and previous.kind == "static" and _name(previous.path).startswith(how):
        ref = _static_ref(settings, previous.path)
        if storage.exists(storage.join(ref.path, COMPLETE)):
            return ref
        tokenizer = storage.join(work, "tokenizer", _name(previous.path), TOKENIZER)
        if not config.reads_vectors and storage.exists(tokenizer):  # it counts tokens, and no vectors were made by it
            return _static_ref(settings, storage.join(work, "encoder", _name(previous.path)))
    name = f"{how}-{storage.key(sorted(shard.fingerprint for shard in shards))}"
    return _static_ref(settings, storage.join(work, "encoder", name))


def _fit_tokens(shards: Sequence[Shard], config: Config) -> tuple[Tokenizer, Counted]:
    settings = config.encoder
    texts = sample_texts(shards, config, settings.fit_documents, SEED)
    if not texts:
        raise InputError(why_no_text(shards, config))
    return _tokens_of(texts, settings)


def _tokens_of(texts: Sequence[str], settings: Settings) -> tuple[Tokenizer, Counted]:
    texts = [clean_text(text) for text in texts]
    if not texts:
        raise InputError("no text to fit the static encoder on")
    return static.fit_tokens(texts, settings.vocabulary, settings.max_length, SEED)


def _left(work: str, ref: EncoderRef) -> str:
    """Where `prepare_tokenizer` leaves the counted texts."""
    return storage.join(work, ROUNDS, f"encoder-{_name(ref.path)}", "counts.npz")


def _begun(work: str, ref: EncoderRef) -> tuple[Tokenizer, Counted] | None:
    """What `prepare_tokenizer` made, which goes; None: nothing, or it is gone."""
    import scipy.sparse
    from tokenizers import Tokenizer

    folder, url = storage.join(work, "tokenizer", _name(ref.path)), _left(work, ref)
    if not storage.exists(storage.join(folder, TOKENIZER)) or not storage.exists(url):
        return None
    tokenizer = Tokenizer.from_file(str(Path(local_folder(folder)) / TOKENIZER))
    data, indices, indptr, shape, *groups = read_arrays(url, "data", "indices", "indptr", "shape", "languages", "kinds")
    remove_folder(url.rsplit("/", 1)[0])
    return tokenizer, Counted(scipy.sparse.csr_array((data, indices, indptr), shape=tuple(shape)), *groups)


def _name(folder: str) -> str:
    return folder.rstrip("/").rsplit("/", 1)[-1]


def fit_static_encoder(texts: Sequence[str], settings: Settings, folder: str) -> None:
    """Fits the static encoder on `texts` and publishes its sentence-transformers folder, whole or not at all.

    :raises InputError: no text.
    """
    tokenizer, counted = _tokens_of(texts, settings)
    _publish(static.Fitted(tokenizer, static.vectors_of(counted, settings.dimensions, SEED)), folder)


def _publish(fitted: Fitted, folder: str) -> None:
    with tempfile.TemporaryDirectory(prefix="datamask-encoder-") as temporary:
        static.save_static(Path(temporary), fitted)
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
