"""The network, tiny: the same twice, better on what it read, its bits those of its own losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from datamask.errors import InputError
from datamask.study import Item, Target, cut_texts
from datamask.study.network import SIZES, Network, ProxySettings, Size, batches, build_model
from tests.study.test_verdict import documents, noise

SHAPE = ProxySettings(vocabulary=300, width=32, layers=1, heads=2, context=32, batch=4, device="cpu")
TINY = Size("test", SHAPE, rates=(1e-2, 3e-3, 1e-4), passes=1)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def network() -> Network:
    return Network(TINY, documents(0, 60), "cpu")


@pytest.fixture(scope="module")
def asked() -> list[Target]:
    return [Target("t", tuple(Item(text[:60], text[60:]) for text in documents(9, 20, 3)))]


@pytest.mark.slow
def test_it_is_the_same_twice_keeps_the_random_state_and_prefers_what_is_like_the_target(network, asked):
    state = torch.random.get_rng_state()
    sense, nonsense = cut_texts(documents(1, 80), 12_000), cut_texts(noise(1, 80), 12_000)
    first, other = network.read(sense, asked)["t"], network.read(nonsense, asked)["t"]
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.bits_per_byte + 0.5 < other.bits_per_byte
    np.testing.assert_array_equal(network.read(sense, asked)["t"].bits, first.bits)
    trained = network.trained[0]
    assert set(trained.by_rate) == {1e-2, 3e-3, 1e-4} and trained.by_rate[trained.best] == min(trained.by_rate.values())
    assert trained.by_rate[1e-4][0] > trained.by_rate[1e-2][0]  # a very small rate has learned less of so little
    assert trained.by_rate[trained.best][0] == pytest.approx(first.bits_per_byte)
    assert "best rates" in network.notes()


def test_seeds_are_averaged_and_differ(asked):
    network = Network(replace(TINY, rates=(1e-2,), seeds=3), documents(0, 60), "cpu")
    read = network.read(cut_texts(documents(1, 40), 8_000), asked)["t"]
    values = network.trained[0].by_rate[1e-2]
    assert len(set(values)) == 3 and read.bits_per_byte == pytest.approx(np.mean(values))
    assert "SD of a seed" in network.notes()


def test_bits_are_the_models_own_losses_token_by_token(network):
    """Against the logits of one sequence at a time, no windows packed, no padding."""
    model = build_model(SHAPE, 0)
    texts = documents(3, 3, 5)
    target = Target("t", tuple(Item(text[:40], text[40:]) for text in texts))
    found = network._cost(model, target)
    end = network.tokenizer.token_to_id("<|end|>")
    for number, item in enumerate(target.items):
        given = network.tokenizer.encode(item.given.decode()).ids
        answer = network.tokenizer.encode(item.answer.decode()).ids
        tokens, costs = [end, *given, *answer], []
        for start in range(0, len(tokens) - 1, SHAPE.context):
            part = torch.tensor([tokens[start : start + SHAPE.context + 1]])
            with torch.inference_mode():
                logits = model(input_ids=part[:, :-1]).logits.float().log_softmax(-1)
            costs += (-logits[0].gather(1, part[0, 1:, None])[:, 0]).tolist()
        assert found.bits[number] == pytest.approx(sum(costs) / np.log(2), rel=2e-2)  # bfloat16 where there is any
        assert found.answer_bits[number] == pytest.approx(sum(costs[len(given) :]) / np.log(2), rel=2e-2)


def test_the_last_five_checkpoints_are_averaged(network, monkeypatch):
    """With a rate of zero all checkpoints are the start: their mean is the start, not a fifth or twice of it."""
    blocks = network._blocks(cut_texts(documents(1, 40), 8_000))
    frozen = network._run(network._start(5), blocks, 0.0, len(blocks) // SHAPE.batch, 5, falls=True)
    for trained, start in zip(frozen.parameters(), build_model(SHAPE, 5).parameters(), strict=True):
        torch.testing.assert_close(trained, start, rtol=1e-5, atol=1e-6)


def test_batches_see_every_block_before_any_twice():
    seen = torch.cat(list(batches(10, 4, 10, 0)))
    assert torch.bincount(seen).tolist() == [4] * 10


def test_a_choice_shorter_than_a_batch_and_a_pool_without_text_are_refused(network, asked):
    with pytest.raises(InputError, match="less than one batch"):
        network.read(b"too little", asked)
    with pytest.raises(InputError, match="no text to train a tokenizer on"):
        Network(TINY, [b"", b""], "cpu")


def test_sizes_are_what_they_say():
    for name, low, high in (("tiny", 0.1e6, 0.3e6), ("small", 0.7e6, 1.0e6), ("large", 20e6, 100e6)):
        size = SIZES[name]
        count = sum(p.numel() for p in build_model(replace(size.model, device="cpu"), 0).parameters())
        assert low < count < high and bool(size.before) == (name != "large")
    assert len(size.rates) == 3 and min(size.rates) < max(size.rates) / 10


@pytest.mark.slow
def test_choices_start_from_what_was_read_before_and_its_notes_say_so(asked):
    """From a start like the target a choice costs less than from noise; every choice starts from the same weights."""
    size = replace(TINY, rates=(1e-2,), before=20_000)
    cold, warm = Network(size, documents(0, 60), "cpu"), Network(size, documents(0, 60), "cpu", before=documents(5, 60))
    choice = cut_texts(documents(1, 60), 6_000)
    assert warm.read(choice, asked)["t"].bits_per_byte + 0.2 < cold.read(choice, asked)["t"].bits_per_byte
    start = {name: value.clone() for name, value in warm.starts[0].items()}
    warm.read(cut_texts(noise(1, 60), 6_000), asked)
    assert all(torch.equal(start[name], value) for name, value in warm.starts[0].items())
    again = Network(size, documents(0, 60), "cpu", before=documents(5, 60))
    np.testing.assert_array_equal(again.read(choice, asked)["t"].bits, warm.read(choice, asked)["t"].bits)
    assert "of other text" in warm.notes() and "of other text" not in cold.notes() and not cold.starts


def test_the_rate_falls_to_nothing_only_on_the_choice(network):
    """A start is trained at a constant rate; on a choice the last step moves the weights hardly at all."""
    blocks = network._blocks(cut_texts(documents(1, 60), 8_000))
    moves = {}
    for falls in (True, False):
        ends = []
        for steps in (59, 60):  # one run stopped a step before the other's end
            model = build_model(SHAPE, 0)
            network._run(model, blocks, 1e-2, steps, 0, falls)
            ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        moves[falls] = float((ends[1] - ends[0]).norm())
    assert moves[True] < moves[False]
