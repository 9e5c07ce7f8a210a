"""ProX: a small language model that writes `keep_doc()` or `drop_doc()` for a document; here, how sure it is.

Zhou et al. 2024, arXiv 2409.17115; prompt and limits of its data_gen/tasks/apply_doc_refining.py. Nothing is rewritten.
"""

from __future__ import annotations

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from datamask.config import Config
from datamask.errors import ModelError
from datamask.models.batching import plan_batches
from datamask.models.tokens import DocumentTokenizer
from datamask.quality.documents import Documents, Scores, plain_scores
from datamask.quality.quality_ref import ScorerRef
from datamask.quality.transformer import ModelScorer

MAX_LENGTH = 2000  # tokens of a prompt, as published
# Llama 2's chat template, which the published code applies whatever the model
BEFORE = "[INST] <<SYS>>\nYou are a helpful, respectful and honest assistant.\n<</SYS>>\n\n"
AFTER = " [/INST]"
KEEP, DROP = " keep_doc()", " drop_doc()"


class ProxScorer(ModelScorer):
    """P(keep) / (P(keep) + P(drop)) in [0, 1]: of the first token in which the two programs differ, what they have in
    common standing in the prompt. One pass a document.

    The published code runs the model greedily and drops where "drop" is in the answer: a score of ½ is that border,
    for a model that writes nothing else. It cuts a long prompt at its end, the closing [/INST] with it; here the
    document is cut and the closing kept.

    :raises ModelError: the model is missing or broken, or its tokenizer cannot be used.
    """

    role, automatic = "ProX model", AutoModelForCausalLM

    def __init__(self, ref: ScorerRef, config: Config) -> None:
        super().__init__(ref, config)
        tokenizer, model = self._tokenizer, self._model
        self._words = DocumentTokenizer(tokenizer.backend_tokenizer)
        begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        self._before = np.array(begin + self._ids(BEFORE), np.int32)
        keep, drop = self._ids(AFTER + KEEP), self._ids(AFTER + DROP)
        shared = next((at for at, (a, b) in enumerate(zip(keep, drop, strict=False)) if a != b), None)
        if shared is None:
            raise ModelError(f"ProX model {ref.path}: its tokenizer cannot tell keep_doc() from drop_doc()")
        self._after, self._choices = np.array(keep[:shared], np.int32), [keep[shared], drop[shared]]
        positions = getattr(model.config, "max_position_embeddings", None) or MAX_LENGTH
        self._limit = min(ref.settings.max_length or MAX_LENGTH, positions)
        self._room = self._limit - len(self._before) - len(self._after)
        if self._room < 1:
            raise ModelError(f"ProX model {ref.path}: the prompt fills all {self._limit} tokens; raise max_length")

    def _ids(self, text: str) -> list[int]:
        return [int(token) for token in self._words.all([text])[0]]

    def score(self, documents: Documents) -> Scores:
        """See `Scorer.score`."""
        ids, lengths = self._words.first([text.strip() for text in documents.texts], self._room)
        texts = np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else []
        prompts = [np.concatenate([self._before, text, self._after]) for text in texts]
        sizes = np.array([len(prompt) for prompt in prompts], np.int64)
        scores = np.zeros(len(prompts), dtype=np.float32)
        for rows, width in plan_batches(sizes, self._budget, self._limit):
            padded = np.zeros((len(rows), width), np.int64)
            for place, row in enumerate(rows):
                padded[place, : sizes[row]] = prompts[row]
            scores[rows] = self._forward(torch.from_numpy(padded), torch.from_numpy(sizes[rows]))
        return plain_scores(scores)

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, sizes: torch.Tensor) -> np.ndarray:
        """float32 [rows] of input_ids [rows, width], padded on the right, and their true sizes [rows]."""
        device = self._model.device
        mask = (torch.arange(ids.shape[1])[None, :] < sizes[:, None]).long()
        with self._lock:
            body = self._model.base_model(input_ids=ids.to(device), attention_mask=mask.to(device), use_cache=False)
            last = body.last_hidden_state[torch.arange(len(ids)), sizes.to(device) - 1]  # [rows, hidden]
            choices = torch.tensor(self._choices, device=device)
            logits = self._model.get_output_embeddings()(last).index_select(1, choices).float()
        return torch.softmax(logits, dim=1)[:, 0].cpu().numpy()
