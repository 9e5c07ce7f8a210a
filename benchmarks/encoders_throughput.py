"""Documents and tokens a second on this machine, beside plain `SentenceTransformer.encode`, in one run.

    python benchmarks/encoders_throughput.py --data '../shared/data/real/real-*.parquet' --documents 128

The model is BERT-base's architecture (12 layers, 768 dimensions, 110 M parameters) with random weights; the texts are
real, the greatest length is the same for all. The share is of the rate that this machine's bfloat16 matrix product
reaches on the model's own shapes, measured between the methods; operations are 2 per weight and token, plus attention.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable

import duckdb
import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from datamask.config import Config, Quality, ScorerSettings
from datamask.config import EncoderSettings as Settings
from datamask.devices import pick_device, pick_dtype
from datamask.encoders.load import load_encoder
from datamask.encoders.pin import pin_model
from datamask.quality.documents import Documents
from datamask.quality.scorers import load_scorer, pin_scorer

LAYERS, WIDTH = 12, 768
ROUNDS = 2
WEIGHTS = LAYERS * 12 * WIDTH * WIDTH  # of the matrices a token passes through


Method = Callable[[list[str]], np.ndarray]


def read(pattern: str, documents: int) -> list[str]:
    rows = duckdb.sql(
        f"select text from read_parquet('{pattern}') where length(trim(text)) > 0 "
        f"order by md5(id), id limit {documents}"
    )
    return [text for (text,) in rows.fetchall()]


def build(folder: str, texts: list[str]) -> None:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=30_522, special_tokens=special, show_progress=False)
    raw.train_from_iterator((text[:20_000] for text in texts), trainer)
    raw.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=512, **names)
    torch.manual_seed(0)
    classifier = BertForSequenceClassification(BertConfig.from_dict({"vocab_size": 30_522, "num_labels": 1}))
    for part, name in ((classifier.bert, "body"), (classifier, "classifier")):
        part.save_pretrained(f"{folder}/{name}")
        tokenizer.save_pretrained(f"{folder}/{name}")
    modules = [Transformer(f"{folder}/body"), Pooling(WIDTH), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(f"{folder}/model", create_model_card=False)


class MatrixRate:
    """Operations a second of a layer's matrix products (four of 768 × 768, 768 × 3072 and back, 8,192 tokens),
    each the fastest of all its runs; `measure` again beside what is compared with it."""

    SHAPES = ((WIDTH, WIDTH, 4), (WIDTH, 4 * WIDTH, 1), (4 * WIDTH, WIDTH, 1))  # inputs, outputs, times in a layer
    TOKENS = 8192

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self._device = device
        self._layers = [torch.nn.Linear(i, o, device=device, dtype=dtype) for i, o, _ in self.SHAPES]
        self._inputs = [torch.randn(self.TOKENS, i, device=device).to(dtype) for i, _, _ in self.SHAPES]
        self._best = [float("inf")] * len(self.SHAPES)

    @torch.inference_mode()
    def measure(self, runs: int = 10) -> None:
        for _ in range(runs):
            for place, (layer, tokens) in enumerate(zip(self._layers, self._inputs, strict=True)):
                began = time.perf_counter()
                layer(tokens)
                if self._device != "cpu":
                    torch.cuda.synchronize()
                self._best[place] = min(self._best[place], time.perf_counter() - began)

    def rate(self) -> float:
        operations = sum(2 * self.TOKENS * i * o * times for i, o, times in self.SHAPES)
        return operations / sum(best * times for best, (_, _, times) in zip(self._best, self.SHAPES, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="parquet files with text and id")
    parser.add_argument("--documents", type=int, default=128)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[16_384])
    arguments = parser.parse_args()
    device = str(pick_device(arguments.device))
    fast = pick_dtype("auto", torch.device(device))
    texts = read(arguments.data, arguments.documents)

    with tempfile.TemporaryDirectory() as folder:
        build(folder, texts)

        def plain(dtype: str) -> Method:
            options = {"dtype": getattr(torch, dtype)}
            model = SentenceTransformer(f"{folder}/model", device=device, model_kwargs=options)
            model.max_seq_length = arguments.max_length
            options = {"batch_size": 32, "show_progress_bar": False, "convert_to_tensor": True}
            return lambda texts: model.encode(texts, **options).float().cpu().numpy()

        def ours(dtype: str, batch_tokens: int, **more: str) -> Method:
            options = {"model": f"{folder}/model", "dtype": dtype, "max_length": arguments.max_length, **more}
            chosen = Settings(**options)
            encoder = load_encoder(pin_model(chosen, folder), device)
            return lambda texts: encoder.compute(encoder.tokenise(texts), batch_tokens).vectors

        tokenizer = SentenceTransformer(f"{folder}/model", device="cpu").tokenizer
        encoded = tokenizer(texts, truncation=True, max_length=arguments.max_length)["input_ids"]
        lengths = np.array([len(ids) for ids in encoded])
        operations = float((2 * WEIGHTS * lengths + 4 * LAYERS * WIDTH * lengths.astype(float) ** 2).sum())
        peak, exact = MatrixRate(getattr(torch, fast), device), MatrixRate(torch.float32, device)
        average = sum(map(len, texts)) / len(texts)
        print(f"{len(texts)} documents of {average:.0f} characters and {lengths.mean():.0f} tokens")
        print(f"(of at most {arguments.max_length}) on average; {device}, {torch.get_num_threads()} threads")
        methods = {"SentenceTransformer.encode, float32": plain("float32")}
        if fast != "float32":
            methods[f"SentenceTransformer.encode, {fast}"] = plain(fast)
        for budget in arguments.batch_tokens:
            methods[f"datamask, {fast}, {budget} tokens a batch"] = ours(fast, budget)
        head = f"{folder}/classifier"
        scored = Settings(max_length=arguments.max_length, device=device)
        scorer = ScorerSettings(kind="transformer", model=head, max_length=arguments.max_length)
        config = Config(encoder=scored, quality=Quality(scorers=[scorer]))
        loaded = load_scorer(pin_scorer(scorer, config), config)
        embed = ours(fast, scored.batch_tokens)

        def apart(texts: list[str]) -> np.ndarray:
            loaded.score(Documents(np.arange(len(texts)), texts))
            return embed(texts)

        methods["vector, and score of a classifier: two passes"] = apart
        methods["vector, and score of a classifier: one pass"] = ours(fast, scored.batch_tokens, quality_head=head)
        best, vectors = dict.fromkeys(methods, float("inf")), {}
        for method in methods.values():
            method(texts[:8])
        for _ in range(ROUNDS):  # taking turns, so that whatever else the machine does meets all alike
            for name, method in methods.items():
                peak.measure()
                exact.measure(3)
                began = time.perf_counter()
                vectors[name] = method(texts)
                best[name] = min(best[name], time.perf_counter() - began)
        print(f"matrix products in {fast}: {peak.rate() / 1e9:.0f} GFLOPS, in float32: {exact.rate() / 1e9:.0f}")
        print(f"the best of {ROUNDS} rounds\n")
        print("| method | docs/s | tokens/s | times as fast | share of the matrix rate | least cosine to float32 |")
        print("|---|---|---|---|---|---|")
        first = next(iter(methods))
        for name, seconds in best.items():
            cosine = float((vectors[name] * vectors[first]).sum(axis=1).min())
            rates = f"{len(texts) / seconds:.1f} | {lengths.sum() / seconds:,.0f} | {best[first] / seconds:.2f}"
            print(f"| {name} | {rates} | {operations / seconds / peak.rate():.0%} | {cosine:.5f} |")


if __name__ == "__main__":
    main()
