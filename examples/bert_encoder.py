"""A transformer as encoder: any sentence-transformers folder or hub name; here a small BERT of random weights.

python examples/bert_encoder.py [FOLDER]
"""

import sys
from pathlib import Path

from made_corpus import COMMON, SMALL, TOPICS, write_dump
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertModel, BertTokenizerFast

from datamask import curate


def make_model(folder: Path) -> Path:
    """Saves a BERT of two layers and 64 dimensions with mean pooling; stands for one that you have downloaded."""
    words = [*COMMON, *" ".join(TOPICS.values()).split()]
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(words * 5, vocab_size=400)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    BertModel(BertConfig(vocab_size=400, max_position_embeddings=128, **sizes)).save_pretrained(folder / "body")
    BertTokenizerFast(tokenizer_object=tokenizer._tokenizer, model_max_length=128).save_pretrained(folder / "body")
    modules = [Transformer(str(folder / "body")), Pooling(64), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"), create_model_card=False)
    return folder / "model"


def main(folder: Path) -> None:
    encoder = {"model": str(make_model(folder)), "dimensions": 64, "max_length": 64}
    release = curate(write_dump(folder / "dumps"), folder / "out", encoder=encoder, select=SMALL["select"])
    print(release)
    print(release.manifest["provenance"]["encoder"]["name"])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/examples/bert_encoder"))
