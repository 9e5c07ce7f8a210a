"""Coverage by rounds over groups of shards: against the joint solve, every selection there is, and other workers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from datamask.config import Config, Quota, resolve
from datamask.errors import InputError
from datamask.maps import Threads, here
from datamask.selection import groups, stage
from datamask.selection import price_rounds as driver
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.cover import atoms
from datamask.selection.cover import cover_shards as rounds
from datamask.selection.extension import extend_prices
from datamask.selection.groups import UndecidedTooFew
from datamask.selection.problem.pool import Pool
from datamask.selection.stage import learn_prices, mask_shard
from tests.selection.cover.test_stage import configured, texts_of, write_shard

PARTS = {"ngrams": {"ngrams": 1.0}, "embedding": {"embedding": 1.0}, "both": {"ngrams": 0.5, "embedding": 0.5}}
WITH_CURVE = ["embedding", "ngrams", "both", "saturating"]


@dataclass
class Rows:
    rows: np.ndarray
    counts: csr_array
    quality: np.ndarray
    tokens: np.ndarray
    groups: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def features(self) -> np.ndarray:
        return self.rows

    def ngrams(self) -> csr_array:
        return self.counts


def documents(count: int, topics: int = 12, kinds: int = 80, seed: int = 0) -> tuple[Rows, np.ndarray]:
    """Documents of topics, each with words and a direction of its own."""
    generator = np.random.default_rng(seed)
    topic = generator.integers(0, topics, count)
    words = generator.dirichlet(np.full(kinds, 0.1), topics)
    counts = np.stack([generator.multinomial(30, words[each]) for each in topic]).astype(np.float32)
    features = 1.5 * generator.standard_normal((topics, 12))[topic] + generator.standard_normal((count, 12))
    whole = Rows(
        features.astype(np.float32),
        csr_array(counts),
        generator.random(count) + 0.05 * topic,
        generator.integers(5, 40, count).astype(float),
        {"domain": (topic % 3).astype(str)},
    )
    return whole, topic


def taken(whole: Rows, at: np.ndarray) -> Rows:
    groups = {name: values[at] for name, values in whole.groups.items()}
    return Rows(whole.rows[at], whole.counts[at], whole.quality[at], whole.tokens[at], groups)


def settings_of(part: str = "ngrams", **more):
    curve = "saturating" if part == "saturating" else "likelihood"
    coverage = {"atoms": PARTS["both" if part == "saturating" else part], "anchors": 9, "curve": curve}
    return resolve(None, {"algorithm": "coverage", "coverage": coverage, **more}, tokens=False)


def by_rounds(whole: Rows, order: np.ndarray, count: int, settings, folder: Path, room: int | None = None, maps=here):
    """What the rounds find, and their mask in the documents' own order."""
    parts = np.array_split(order, count)
    shards = [taken(whole, at) for at in parts]
    found = rounds.CoverRounds(shards, Config(select=settings), str(folder), maps, room).run()
    mask = np.zeros(len(order), bool)
    mask[order] = np.concatenate([each.read("selected")[0] for each in found.decided])
    return found, mask


def joint(whole: Rows, settings):
    return make_problem(Pool(whole.rows, whole.quality, whole.tokens, whole.groups, ngrams=whole.counts), settings)


@pytest.mark.parametrize("weighed", ["quality", "equal"])
def test_documents_count_by_quality_as_in_the_joint_solve(weighed, monkeypatch, tmp_path):
    """The quantiles are those of the same documents, however the corpus is dealt to shards."""
    monkeypatch.setattr(atoms, "JUDGED", 60)
    whole, _ = documents(300, seed=4)
    coverage = {"atoms": PARTS["both"], "anchors": 9, "document_weights": weighed}
    settings = resolve(None, {"algorithm": "coverage", "coverage": coverage, "calibrate": False}, tokens=False)
    problem = joint(whole, settings)
    found, mask = by_rounds(whole, np.random.default_rng(1).permutation(300), 5, settings, tmp_path)
    assert found.facts["objective"] == pytest.approx(problem.objective.evaluate(torch.from_numpy(mask)).objective)


def test_one_score_far_off_does_not_make_the_others_alike():
    quality = np.append(np.linspace(0, 1, 999), 1e9)[:, None]
    found = atoms.word_worth(quality, np.ones(1), atoms.quality_ranges(quality))
    assert found[[0, 474, 999]].tolist() == pytest.approx([0, 0.5, 1], abs=0.01)
    assert (atoms.word_worth(quality * 0, np.ones(1), atoms.quality_ranges(quality * 0)) == 1).all()
    below = atoms.word_worth(quality[:999] - 5, np.ones(1), atoms.quality_ranges(quality[:999] - 5))
    assert below[[0, 499, 998]].tolist() == pytest.approx([0, 0.5, 1], abs=0.01)


DOCUMENTS, TOKENS = {"select_ratio": 0.1}, {"select_ratio": None, "budget_tokens": 2000}
OF_TOKENS = [pytest.param(part, TOKENS, marks=[pytest.mark.slow] * (part != "embedding")) for part in WITH_CURVE]


@pytest.mark.parametrize(("part", "budget"), [*((part, DOCUMENTS) for part in WITH_CURVE), *OF_TOKENS])
def test_topic_sorted_shards_come_near_the_joint_solve(part, budget, tmp_path, in_memory):
    whole, topic = documents(1000)
    settings = settings_of(part, **budget)
    problem = joint(whole, settings)
    best = solve_problem(problem)
    length = 30 * (part != "embedding") + 9 * (part != "ngrams")
    order = np.argsort(topic, kind="stable")
    found, mask = by_rounds(whole, order, 7, settings, tmp_path, room=250 * length)
    assert found.facts["undecided"] < 750
    assert problem.objective.evaluate(torch.from_numpy(mask)).objective > 0.98 * best.objective
    assert max(found.facts["objective"], found.facts["relaxed"]) <= found.facts["upper_bound"] + 1e-9
    assert found.facts["upper_bound"] - found.facts["relaxed"] < 0.01
    assert not problem.limits.violations(mask)
    assert all(((p := each.read("probability")[0]) >= 0).all() and (p <= 1).all() for each in found.decided)


@pytest.mark.parametrize("part", WITH_CURVE)
def test_with_room_for_all_rounds_are_the_joint_solve(part, tmp_path):
    """Uncalibrated, so that both have one objective: the same bound, fractional optimum and, to a swap, mask."""
    whole, _ = documents(200, seed=3)
    settings = settings_of(part, calibrate=False, lamb=0.05)
    problem = joint(whole, settings)
    best = solve_problem(problem)
    found, mask = by_rounds(whole, np.arange(200), 1, settings, tmp_path)
    assert found.facts["undecided"] == 200
    if part != "ngrams":  # anchors, and with them the atoms, are the same documents
        assert found.facts["upper_bound"] == pytest.approx(best.upper_bound, abs=2e-4)
    assert found.facts["objective"] == pytest.approx(problem.objective.evaluate(torch.from_numpy(mask)).objective)
    assert found.facts["objective"] == pytest.approx(best.objective, abs=2e-3)


@pytest.mark.parametrize("seed", range(12))
def test_no_selection_there_is_exceeds_the_bound(seed, tmp_path, monkeypatch, in_memory):
    """Twelve documents in several groups, with room for a few: every selection, under every kind of limit."""
    monkeypatch.setattr(groups, "UNSOLVED", np.inf)
    generator = np.random.default_rng(seed)
    whole, _ = documents(12, topics=4, kinds=15, seed=seed)
    kinds = [
        {"budget_documents": 4},
        {"budget_tokens": 90},
        {"budget_documents": 4, "quotas": [Quota(column="domain", maximum={"0": 0.5})]},
        {"budget_documents": 5, "length_tolerance": 0.3},
    ]
    more = kinds[seed % 4] | {"select_ratio": None, "lamb": float(generator.choice([0.0, 0.3, 0.7, 1.0]))}
    settings = settings_of(WITH_CURVE[1:][seed // 4], calibrate=seed % 3 > 0, **more)
    problem = joint(whole, settings)
    order = generator.permutation(12)
    found, mask = by_rounds(whole, order, int(generator.integers(1, 5)), settings, tmp_path, room=80)
    facts = found.facts
    masks = ((np.arange(1 << 12)[:, None] >> np.arange(12)) & 1).astype(bool)
    allowed = [each for each in masks if each.any() and not problem.limits.violations(each)]
    names = [*(term.name for term in problem.objective.terms)]
    values = []
    for each in (mask, *allowed):
        raw = problem.objective.evaluate(torch.from_numpy(each)).statistics
        values.append(sum(facts["scales"][n]["scale"] * (raw[n] - facts["scales"][n]["zero"]) for n in names))
    assert not problem.limits.violations(mask)
    assert facts["objective"] == pytest.approx(values[0], abs=1e-6)
    assert max(values) <= facts["upper_bound"] + 1e-7
    assert facts["relaxed"] <= facts["upper_bound"] + 1e-7


def test_a_rounded_optimum_that_is_near_is_not_searched(tmp_path, monkeypatch, in_memory):
    whole, _ = documents(800, seed=8)
    settings, order = settings_of(), np.arange(800)
    searched, _ = by_rounds(whole, order, 3, settings, tmp_path / "searched", room=9000)
    monkeypatch.setattr(rounds, "to_mask", lambda *given: pytest.fail("searched"))
    with pytest.raises(pytest.fail.Exception):  # of so few documents rounding loses too much
        by_rounds(whole, order, 3, settings, tmp_path / "few", room=9000)
    for module, name in ((driver, "ACCURACY"), (groups, "UNSOLVED"), (rounds, "UNDECIDED")):
        monkeypatch.setattr(module, name, 3.0)
    found, mask = by_rounds(whole, order, 3, settings, tmp_path / "near", room=9000)
    assert mask.sum() == 80
    assert found.facts["objective"] < searched.facts["objective"] <= searched.facts["upper_bound"]


def test_a_room_too_small_for_the_optimum_is_told(tmp_path, monkeypatch, in_memory):
    whole, topic = documents(1000)
    settings, order = settings_of(select_ratio=0.1), np.argsort(topic, kind="stable")
    found, _ = by_rounds(whole, order, 7, settings, tmp_path / "enough", room=30 * 250)
    assert found.facts["upper_bound"] - found.facts["relaxed"] < 0.01
    monkeypatch.setattr(rounds.CoverRounds, "descend", lambda rounds, at: at)
    with pytest.raises(UndecidedTooFew, match=r"room=300 numbers.*Pass a greater room"):
        by_rounds(whole, order, 7, settings, tmp_path / "few", room=300)


def test_the_rooms_own_size_grows_where_it_holds_too_few(tmp_path, monkeypatch, in_memory):
    whole, topic = documents(1000)
    settings, order = settings_of(select_ratio=0.1), np.argsort(topic, kind="stable")
    posed = []
    solve_one = rounds.Covering.solve
    monkeypatch.setattr(
        rounds.Covering, "solve", lambda state, part: posed.append(len(part.linear)) or solve_one(state, part)
    )
    monkeypatch.setattr(rounds.CoverRounds, "descend", lambda rounds, at: at * np.where(np.arange(len(at)) % 2, 3, 0))
    monkeypatch.setattr(driver, "SHORTER", ())
    monkeypatch.setattr(rounds, "FEW", 20)
    found, mask = by_rounds(whole, order, 7, settings, tmp_path / "grown")
    assert mask.sum() == 100 and posed[0] < 60 < 1000 == posed[-1]
    assert found.facts["upper_bound"] - found.facts["relaxed"] < 0.01
    posed.clear()
    monkeypatch.setattr(rounds, "FEW", 500)
    found, _ = by_rounds(whole, order, 7, settings, tmp_path / "few")
    assert 400 <= posed[0] < 700 and found.facts["upper_bound"] - found.facts["relaxed"] < 0.01


@pytest.mark.slow
def test_limits_hold_across_groups(tmp_path, in_memory):
    whole, topic = documents(800, seed=5)
    quotas = [Quota(column="domain", maximum={"1": 0.2}, minimum={"2": 0.5})]
    settings = settings_of(quotas=quotas, length_tolerance=0.05)
    found, mask = by_rounds(whole, np.argsort(topic, kind="stable"), 5, settings, tmp_path, room=8000)
    problem = joint(whole, settings)
    assert not problem.limits.violations(mask) and mask.sum() == 80
    assert found.facts["upper_bound"] - found.facts["relaxed"] < 0.02


# ---------------------------------------------------------------- from shards' files


@pytest.fixture
def corpus(tmp_path: Path) -> list:
    return [write_shard(tmp_path / "corpus", f"part-{n}", texts_of(n, 40 + 10 * n)) for n in range(4)]


@pytest.fixture
def in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "JOINT_NUMBERS", 0)
    monkeypatch.setattr(
        stage, "groups", lambda ordered, bounds=None: [(0,), (1, 2), *((place,) for place in range(3, len(ordered)))]
    )
    monkeypatch.setattr(rounds, "FEW", 60)
    monkeypatch.setattr(groups, "UNSOLVED", np.inf)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts_of(77, 20)))
    return path


def decided(work: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for stage in ("prices", "masks") for path in (work / stage).iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("covers", ["pool", "target"])
def test_the_same_bytes_on_any_workers_and_after_a_failure(corpus, target, in_groups, tmp_path, covers):
    config = configured(target) if covers == "target" else Config(select=settings_of(select_ratio=0.2))
    prices = learn_prices(corpus, config, str(tmp_path / "plain"))
    expected = decided(tmp_path / "plain")
    assert len(expected) == 5 and prices.facts["undecided"] < 220
    assert not list((tmp_path / "plain" / "rounds").iterdir())
    masks = [mask_shard(files, prices, config, str(tmp_path / "plain")) for files in corpus]
    assert sum(mask.facts["selected"] for mask in masks) == prices.facts["selected"] == round(0.2 * 220)
    assert sum(mask.facts["documents"] for mask in masks) == 220
    for count in (1, 3):
        learn_prices(corpus[::-1], config, str(tmp_path / f"threads-{count}"), Threads(count))
        assert decided(tmp_path / f"threads-{count}") == expected

    calls = []

    def counted(work, state, items, rows=None):
        calls.append(work.__name__)
        return here(work, state, items)

    learn_prices(corpus, config, str(tmp_path / "counted"), counted)
    for failing in range(0, len(calls), 6):  # a worker is lost; the next run goes on where it stopped
        work, left = str(tmp_path / f"failed-{failing}"), iter(range(len(calls)))

        def broken(work, state, items, rows=None, left=left, failing=failing):
            items = list(items)
            if next(left) == failing:
                here(work, state, items[:-1])
                raise ConnectionResetError("a worker was lost")
            return here(work, state, items)

        with pytest.raises(ConnectionResetError):
            learn_prices(corpus, config, work, broken)
        learn_prices(corpus, config, work)
        assert decided(Path(work)) == expected


@pytest.mark.parametrize("part", PARTS)
def test_a_weight_of_quality_means_the_same_by_rounds(part, tmp_path, in_memory):
    """The rounds calibrate on a sample. λ .5 weighs quality as the joint calibration does within .06 of .5."""
    whole, topic = documents(2000)
    settings = settings_of(part, select_ratio=0.1, lamb=0.5)
    scales = joint(whole, settings).objective.scales
    length = 30 * (part != "embedding") + 9 * (part != "ngrams")
    found, _ = by_rounds(whole, np.argsort(topic, kind="stable"), 7, settings, tmp_path, room=700 * length)
    ratio = {name: scale["scale"] / scales[name]["scale"] for name, scale in found.facts["scales"].items()}
    quality = ratio.pop("quality")
    assert quality == pytest.approx(1)  # the corpus's own, whatever the sample
    for other in ratio.values():
        assert quality / (quality + other) == pytest.approx(0.5, abs=0.06)


def test_a_shard_that_the_rounds_did_not_see_is_selected_beside_the_others(corpus, in_groups, tmp_path):
    config = Config(select=settings_of(select_ratio=0.2, lamb=0.8))
    work = str(tmp_path / "work")
    prices = learn_prices(corpus, config, work)
    before = sum(mask_shard(files, prices, config, work).facts["selected"] for files in corpus)
    fresh = write_shard(tmp_path / "new", "new", texts_of(9, 50))
    extended = extend_prices([*corpus, fresh], prices, config, work)
    assert mask_shard(fresh, extended, config, work).facts["selected"] == round(0.2 * (5 * before + 50)) - before
    assert extended.facts["gap"] < prices.facts["gap"] + 0.05


def test_a_bad_row_is_named(corpus, in_groups, tmp_path):
    whole, _ = documents(60)
    whole.rows[7] = 0
    with pytest.raises(InputError, match="row 7 are not finite or all zero|row.*7"):
        by_rounds(whole, np.arange(60), 1, settings_of(), tmp_path)


@pytest.mark.parametrize("part", PARTS)
def test_the_descent_alone_comes_near_the_optimum(part, tmp_path, monkeypatch, in_memory):
    """The bound at its state against that of the joint solve, and the pool's own mixture, from which it begins."""
    whole, topic = documents(1000)
    settings = settings_of(part, select_ratio=0.1)
    bounds = {}
    descend, begin, check = (getattr(rounds.CoverRounds, name) for name in ("descend", "begin", "check_optimum"))

    def told(self, at):
        state = descend(self, at)
        bounds["first"], bounds["last"] = (self.price(name, each)[0].bound for name, each in (("a", at), ("b", state)))
        return state

    def whole_room(self, at):
        self.room = self.greatest_room = rounds.JOINT_NUMBERS
        begin(self, at)

    def checked(self):
        bounds["least"], bounds["span"] = self.solved.value, self.objective_span
        check(self)

    for name, function in (("descend", told), ("begin", whole_room), ("check_optimum", checked)):
        monkeypatch.setattr(rounds.CoverRounds, name, function)
    monkeypatch.setattr(rounds, "FEW", 20)
    by_rounds(whole, np.argsort(topic, kind="stable"), 7, settings, tmp_path)
    off = {name: (bounds[name] - bounds["least"]) / bounds["span"] for name in ("first", "last")}
    assert 0 <= off["last"] < 0.01 and off["last"] < off["first"] / 4, off


@pytest.mark.parametrize(
    ("tilt", "topics", "tokens"),
    [(0.5, 4, 4000), pytest.param(0.3, 40, 4000, marks=pytest.mark.slow), (0.05, 40, 40_000)],
)
def test_where_a_random_choice_covers_nearly_all_the_descent_goes_on_to_a_choice(
    tilt, topics, tokens, tmp_path, in_memory
):
    """The bound is then near its least long before the documents above the cut cover anything.

    Of long documents that are nearly alike the term's scale is 17,000: as of 1.5 M documents.
    """
    generator = np.random.default_rng(1)
    topic = generator.integers(0, topics, 6000)
    words = (1 - tilt) * generator.dirichlet(np.full(80, 2.0)) + tilt * generator.dirichlet(np.full(80, 0.1), topics)
    counts = np.stack([generator.multinomial(tokens, words[each]) for each in topic]).astype(np.float32)
    whole = Rows(
        generator.standard_normal((6000, 12)).astype(np.float32),
        csr_array(counts),
        1 + 0.1 * generator.random(6000) + 0.1 * topic,
        np.full(6000, 400.0),
    )
    length = int(np.diff(whole.counts.indptr).mean())
    settings = settings_of(select_ratio=0.2, lamb=0.7)
    found, mask = by_rounds(whole, np.argsort(topic, kind="stable"), 7, settings, tmp_path, room=100 * length)
    assert mask.sum() == 1200 and found.facts["undecided"] <= 100
    assert found.facts["gap"] < 0.02
