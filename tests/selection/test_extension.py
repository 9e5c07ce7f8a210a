"""A selection carried on to new shards: what was decided stays, new documents fill what is left of the budget."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datamask import storage
from datamask.config import Config, validate
from datamask.errors import InputError
from datamask.maps import Threads, hand_on
from datamask.selection import extension
from datamask.selection.extension import MustSolve, extend_prices
from datamask.selection.stage import learn_prices, mask_shard
from tests.selection.cover.test_stage import texts_of
from tests.selection.cover.test_stage import write_shard as write_texts
from tests.selection.test_stage import configured, write_shard

WORDS = {"algorithm": "coverage", "coverage": {"atoms": {"ngrams": 0.5, "embedding": 0.5}, "anchors": 8}}
EMBEDDED = {"algorithm": "coverage", "coverage": {"atoms": {"embedding": 1.0}, "anchors": 8}}
SETTINGS = [{"select_ratio": 0.25, **WORDS}, {"select_ratio": 0.25, **EMBEDDED}]
ONE_QUICK = [pytest.param(SETTINGS[0], marks=pytest.mark.slow), SETTINGS[1]]  # seconds a case where n-grams are counted


def name_of(settings: dict) -> str:
    return "+".join(settings["coverage"]["atoms"])


def corpus(tmp_path: Path, count: int, first: int = 0) -> list:
    return [write_texts(tmp_path / "in", f"{'n' * (n + 1)}", texts_of(n, 50)) for n in range(first, first + count)]


def made(settings: dict) -> Config:
    return validate({"select": {"algorithm": "Pair_simi", "select_ratio": 0.1, **settings}})


def selected(files: list, prices: storage.Output, config: Config, work: str) -> list[np.ndarray]:
    return [storage.read_table(mask_shard(one, prices, config, work).path)["selected"].to_numpy() for one in files]


def bytes_of(work: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for stage in ("prices", "masks") for path in (work / stage).rglob("*.parquet")}


@pytest.mark.parametrize("settings", SETTINGS, ids=name_of)
def test_new_documents_fill_the_budget_and_old_files_stay_untouched(settings, tmp_path):
    files, work, config = corpus(tmp_path, 5), str(tmp_path / "work"), made(settings)
    prices = learn_prices(files[:3], config, work)
    old = selected(files[:3], prices, config, work)
    before = bytes_of(tmp_path / "work")
    for count in (4, 5):  # two days, each with a shard
        prices = extend_prices(files[:count], prices, config, work)
        now = selected(files[:count], prices, config, work)
        assert sum(mask.sum() for mask in now) == round(0.25 * 50 * count) == prices.facts["selected"]
        assert all((one == then).all() for one, then in zip(old, now, strict=False))
        assert {path: data for path, data in bytes_of(tmp_path / "work").items() if path in before} == before
        old, before = now, bytes_of(tmp_path / "work")
        assert prices.facts["budget"] == pytest.approx(1, abs=0.02) and not prices.facts["broken"]
        assert prices.facts["objective"] <= prices.facts["upper_bound"] + 1e-9
        assert prices.facts["documents"] == 50 * count
    assert len(prices.facts["decided_by"]) == 3
    assert extend_prices(files, prices, config, work).facts["decided_by"] == prices.facts["decided_by"]


@pytest.mark.parametrize("settings", ONE_QUICK, ids=name_of)
def test_any_order_any_workers_and_any_groups_give_the_same_bytes(settings, tmp_path):
    files, config = corpus(tmp_path, 4), made(settings)
    found = []
    for number, (maps, order) in enumerate(((Threads(3), 1), (Threads(1), -1))):
        work = str(tmp_path / f"work-{number}")
        prices = learn_prices(files[:3], config, work)

        def sent(work, state, items, rows=None, rest=False, maps=maps):
            return maps(work, state, [pickle.loads(pickle.dumps(item)) for item in items])

        prices = extend_prices(files[::order], prices, config, work, sent)
        selected(files, prices, config, work)
        found.append({Path(path).name: data for path, data in bytes_of(Path(work)).items()})
        assert not list((Path(work) / "rounds").iterdir())
    assert found[0] == found[1]


@pytest.mark.parametrize("settings", SETTINGS, ids=name_of)
def test_quotas_and_lengths_hold_or_all_is_solved_again(settings, tmp_path):
    files, work = corpus(tmp_path, 5), str(tmp_path / "work")
    config = made({**settings, "length_tolerance": 0.1})
    prices = learn_prices(files[:4], config, work)
    prices = extend_prices(files, prices, config, work)
    chosen, tokens = np.concatenate(selected(files, prices, config, work)), []
    for one in files:
        tokens.append(storage.read_table(one.index.path)["token_count"].to_numpy())
    tokens = np.concatenate(tokens)
    assert tokens[chosen].mean() == pytest.approx(tokens.mean(), rel=0.101)
    long = write_texts(tmp_path / "in", "long", texts_of(8, 1))
    table = storage.read_table(long.index.path)
    table = table.set_column(1, "token_count", [[100_000]])
    long = replace(long, index=storage.write_output(long.index.path + "2", "longer", table.schema, [table]))
    with pytest.raises(MustSolve, match="length|limits"):  # nothing is left that could follow the new mean
        extend_prices([*files, long], prices, config, work)


@pytest.mark.parametrize("settings", ONE_QUICK, ids=name_of)
def test_a_budget_in_tokens_is_never_overspent(settings, tmp_path):
    files, work = corpus(tmp_path, 4), str(tmp_path / "work")
    config = made({**settings, "select_ratio": None, "budget_tokens": 2000})
    prices = extend_prices(files, learn_prices(files[:3], config, work), config, work)
    chosen = selected(files, prices, config, work)
    spent = sum(
        storage.read_table(one.index.path)["token_count"].to_numpy()[mask].sum()
        for one, mask in zip(files, chosen, strict=True)
    )
    assert 1900 < spent <= 2000
    assert prices.facts["budget"] == pytest.approx(spent / 2000)


@pytest.mark.parametrize("settings", ONE_QUICK, ids=name_of)
def test_new_documents_too_few_for_one_more_change_nothing(settings, tmp_path):
    files, work, config = corpus(tmp_path, 3), str(tmp_path / "work"), made(settings)
    single = write_texts(tmp_path / "in", "single", texts_of(8, 1))
    prices = learn_prices(files, config, work)
    extended = extend_prices([*files, single], prices, config, work)
    assert [mask.sum() for mask in selected([single], extended, config, work)] == [0]
    assert extended.facts["selected"] == prices.facts["selected"]


@pytest.mark.parametrize("settings", ONE_QUICK, ids=name_of)
def test_documents_that_are_gone_are_made_up_for_or_all_is_solved_again(settings, tmp_path):
    files, work, config = corpus(tmp_path, 5), str(tmp_path / "work"), made(settings)
    prices = learn_prices(files[:4], config, work)
    left = extend_prices(files[1:], prices, config, work)
    assert left.facts["selected"] == 50
    most = sorted(range(4), key=lambda place: selected([files[place]], prices, config, work)[0].sum())[-2:]
    with pytest.raises(MustSolve):  # of two shards they take more than a quarter
        extend_prices([files[place] for place in most], prices, config, work)


def test_a_shard_whose_filters_changed_is_new(tmp_path):
    work, config = str(tmp_path / "work"), configured(**EMBEDDED)
    files = [write_shard(tmp_path / "work", f"part-{number}", number) for number in range(4)]
    prices = learn_prices(files, config, work)
    changed = [replace(files[0], scores=replace(files[0].scores, key="other")), *files[1:]]
    with pytest.raises(InputError, match="extend_prices"):
        mask_shard(changed[0], prices, config, work)
    extended = extend_prices(changed, prices, config, work)
    assert sum(mask.sum() for mask in selected(changed, extended, config, work)) == round(0.25 * 78 * 4)
    assert len(extended.facts["decided_by"]) == 2
    again = extend_prices(files, extended, config, work)  # as it was before: its decision is that of the change
    assert sum(mask.sum() for mask in selected(files, again, config, work)) == round(0.25 * 78 * 4)


def test_where_nothing_stays_all_is_solved(tmp_path):
    files, work, config = corpus(tmp_path, 4), str(tmp_path / "work"), made(SETTINGS[1])
    prices = learn_prices(files[:2], config, work)
    with pytest.raises(MustSolve, match="none of these shards"):
        extend_prices(files[2:], prices, config, work)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"select_ratio": None, "budget_tokens": 3000, "repeat": 2, **WORDS}, "not select.repeat"),
        ({"algorithm": "Pair_simi"}, "not relaxation of pairwise"),
        ({"algorithm": {"coverage": 0.5, "Pair_simi": 0.5}}, "not relaxation of"),
        ({"solver": "greedy", **EMBEDDED}, "not greedy of coverage"),
    ],
)
def test_what_is_not_selected_beside_the_others_is_solved_again(settings, said, tmp_path):
    work, config = str(tmp_path / "work"), made(settings)
    files = corpus(tmp_path, 3)
    prices = storage.Output("prices.parquet", "key", 2)
    with pytest.raises(MustSolve, match=said):
        extend_prices(files, prices, config, work)


def test_a_document_longer_than_what_has_come_free_does_not_compete(tmp_path):
    selected = np.array([True, False, False, False])
    prices, tokens = np.array([9, 3, 2, np.nan], np.float32), np.array([100.0, 125_000, 8, 5])
    own = hand_on(str(tmp_path), "stays", selected=selected, probability=prices * 0, price=prices, tokens=tokens)
    [found] = extension._competing([own], 110, True, str(tmp_path))
    assert found.read("new")[0].tolist() == [False, False, True, False]
