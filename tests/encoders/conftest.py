"""Small corpora, and small models of random weights saved as real ones are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

from datamask import storage
from datamask.config import Config, validate
from datamask.corpus.plan import Part, Shard
from datamask.encoders import static
from datamask.encoders.counts import WordSample
from datamask.stages import ShardFiles

WORDS = "the river bank of a small town holds water and boats while people walk home by night under old trees".split()


def sentences(count: int, longest: int = 80) -> list[str]:
    """Texts of many lengths, the same every time."""
    return [
        " ".join(WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(1 + (i * 37) % longest)) + f" {i}"
        for i in range(count)
    ]


def fit_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """The static encoder's tokenizer of texts of one language."""
    return static.fit_tokenizer(WordSample.of(texts, 512), np.zeros(len(texts), np.int64), vocabulary)


class Corpus:
    """A shard with its index, as the stages before leave them."""

    def __init__(self, folder: Path, texts: Sequence[str | None], quarantined: Sequence[int] = (), **columns: pa.Array):
        self.work = str(folder / "work")
        path = folder / "shard.parquet"
        pq.write_table(pa.table({"text": pa.array(texts, pa.string()), **columns}), path, row_group_size=100)
        fingerprint = storage.fingerprint(str(path))
        self.shard = Shard("shard", (Part(str(path), "parquet", fingerprint, path.stat().st_size),), fingerprint)
        reasons = ["null_text" if i in set(quarantined) else None for i in range(len(texts))]
        index = pa.table(
            {
                "chunk_id": pa.array(range(len(texts)), pa.int64()),
                "id": [f"doc-{row}" for row in range(len(texts))],
                "reason": pa.array(reasons, pa.string()),
            }
        )
        key = storage.key("index", fingerprint, reasons)
        output = storage.write_output(f"{self.work}/index/shard-{key}.parquet", key, index.schema, [index])
        self.files = ShardFiles(self.shard, index=output)


def settings(**encoder: object) -> Config:
    return validate({"encoder": {"dimensions": 64, "fit_documents": 500, "vocabulary": 600, **encoder}})


@pytest.fixture
def make_corpus(tmp_path: Path) -> Callable[..., Corpus]:
    return lambda texts, quarantined=(), **columns: Corpus(tmp_path, texts, quarantined, **columns)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """BERT's kind of tokenizer, trained on the spot."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer()
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.train_from_iterator(sentences(300), trainers.WordPieceTrainer(vocab_size=300, special_tokens=special))
    raw.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=128, **names)


def bert_config(tokenizer: PreTrainedTokenizerFast) -> BertConfig:
    return BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=128,
        initializer_range=0.2,  # outputs of different texts differ more than with 0.02
    )


def save_encoder(folder: Path, body: Path, **pooling: object) -> Path:
    """A sentence-transformers folder around the transformer saved in `body`."""
    first = Transformer(str(body))
    model = SentenceTransformer(modules=[first, Pooling(64, **pooling), Normalize()], device="cpu")
    model.save(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> Path:
    """A 2-layer BERT of 64 dimensions with mean pooling."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    BertModel(bert_config(tokenizer)).save_pretrained(folder / "body")
    tokenizer.save_pretrained(folder / "body")
    return save_encoder(folder / "model", folder / "body")


@pytest.fixture(scope="session")
def edu(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> tuple[Path, Path]:
    """As FineWeb-Edu's on arctic-embed-m: (encoder with CLS pooling, classifier with one logit on the same body)."""
    folder = tmp_path_factory.mktemp("edu")
    torch.manual_seed(1)
    config = bert_config(tokenizer)
    config.num_labels = 1
    classifier = BertForSequenceClassification(config)
    torch.nn.init.normal_(classifier.classifier.weight, std=1.0)
    classifier.save_pretrained(folder / "classifier")
    tokenizer.save_pretrained(folder / "classifier")
    body = BertModel(config)
    body.load_state_dict(classifier.bert.state_dict())
    torch.nn.init.normal_(body.pooler.dense.weight)  # the base model's own pooler is another one
    body.save_pretrained(folder / "body")
    tokenizer.save_pretrained(folder / "body")
    return save_encoder(folder / "encoder", folder / "body", pooling_mode="cls"), folder / "classifier"
