"""The static encoder: an ordinary sentence-transformers folder, the same bytes every time, topics apart."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer

from datamask.encoders import static
from datamask.encoders.prepare import fit
from datamask.encoders.tokens import DocumentTokenizer
from datamask.errors import InputError
from tests.encoders.conftest import sentences, settings

TOPICS = {
    "sea": "ship sail wave harbour captain salt anchor gull tide rope deck storm".split(),
    "code": "function return variable loop compile error stack pointer memory array string class".split(),
    "food": "bread butter oven flour sugar knead bake crust salt dough recipe spoon".split(),
}
COMMON = "the a of and to in is it that was for on".split()


def topics(count: int, seed: int) -> tuple[list[str], list[str]]:
    generator = np.random.default_rng(seed)
    labels = [list(TOPICS)[i % 3] for i in range(count)]
    texts = [
        " ".join(generator.permutation([*generator.choice(TOPICS[label], 6), *generator.choice(COMMON, 20)]))
        for label in labels
    ]
    return texts, labels


def folder_hash(folder: Path) -> str:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return hashlib.sha256(b"".join(str(f.relative_to(folder)).encode() + f.read_bytes() for f in files)).hexdigest()


def test_it_tells_topics_apart(tmp_path: Path) -> None:
    texts, _ = topics(300, 0)
    fit(texts, settings().encoder, str(tmp_path / "model"))
    held_out, labels = topics(90, 1)
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    vectors = model.encode(held_out)
    assert vectors.shape == (90, 64)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -2)
    nearest = similarity.argmax(axis=1)
    assert np.mean([labels[i] == labels[j] for i, j in enumerate(nearest)]) > 0.95


def test_same_sample_same_bytes_in_any_process(tmp_path: Path) -> None:
    code = (
        "import sys; from tests.encoders.conftest import sentences, settings;"
        "from datamask.encoders.prepare import fit;"
        "fit(sentences(200), settings().encoder, sys.argv[1])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "1")], check=True, env=environment)
    fit(sentences(200), settings().encoder, str(tmp_path / "2"))
    assert folder_hash(tmp_path / "1") == folder_hash(tmp_path / "2")


@pytest.mark.parametrize("texts", [["one text alone"], ["a b c", "d e f"], ["\x00"], ["same words"] * 30])
def test_fewer_documents_than_dimensions(tmp_path: Path, texts: list[str]) -> None:
    fit(texts, settings(dimensions=768).encoder, str(tmp_path / "model"))
    vectors = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode([*texts, "words never seen 😀"])
    assert vectors.shape == (len(texts) + 1, 768)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)


def test_unseen_texts_have_directions_of_their_own(tmp_path: Path) -> None:
    fit(sentences(200), settings().encoder, str(tmp_path / "model"))
    vectors = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(
        ["漢字仮名", "ελληνικά", "😀🎉", "漢字仮名"]
    )
    similarity = vectors @ vectors.T
    assert np.isclose(similarity[0, 3], 1, atol=1e-5)
    assert similarity[0, 1] < 0.99 and similarity[0, 2] < 0.99


def test_it_is_lsa(tmp_path: Path) -> None:
    """Cosines follow those of TF-IDF + SVD on the same tokens, straight from scikit-learn."""
    texts, _ = topics(400, 0)
    tokenizer = static.fit_tokenizer(texts, 600)
    vectors = static.fit_vectors(texts, DocumentTokenizer(tokenizer), 16, 512, seed=0)
    counts = static.count_matrix(DocumentTokenizer(tokenizer), texts, 512)
    ours = counts @ vectors
    ours /= np.linalg.norm(ours, axis=1, keepdims=True)

    from sklearn.decomposition import TruncatedSVD

    split = lambda text: tokenizer.encode(text).tokens  # noqa: E731
    weighted = TfidfVectorizer(tokenizer=split, lowercase=False, token_pattern=None, sublinear_tf=True).fit_transform(
        texts
    )
    theirs = TruncatedSVD(17, random_state=0).fit_transform(weighted)[:, 1:]  # ours has the mean taken off
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    upper = np.triu_indices(len(texts), 1)
    assert np.corrcoef((ours @ ours.T)[upper], (theirs @ theirs.T)[upper])[0, 1] > 0.9


def test_no_text_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text to fit"):
        fit([], settings().encoder, str(tmp_path / "model"))
    assert not (tmp_path / "model").exists()


def test_a_full_disk_is_said_once_and_leaves_nothing(tmp_path, monkeypatch):
    import errno
    import shutil

    from datamask.encoders.prepare import publish_folder
    from datamask.errors import StorageError

    def full(*paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "modules.json").write_text("[]")
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StorageError, match=r"^cannot write .*: No space left on device; free some space") as found:
        publish_folder(tmp_path / "model", str(tmp_path / "out" / "key"))
    assert not found.value.retryable
    assert not list((tmp_path / "out").iterdir())
