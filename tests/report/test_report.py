"""The report stage on a small corpus with every stage's files."""

from __future__ import annotations

import copy
import json
import pickle
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import altair
import numpy as np
import pytest
import vl_convert
from rich.console import Console

from datamask import storage
from datamask.config import Quota
from datamask.corpus.read import documents_at
from datamask.errors import ConservationError, InputError
from datamask.maps import Threads
from datamask.release.differences import excerpt
from datamask.release.release_folder import Staged
from datamask.report import drawing, examples, page, report, sections
from datamask.report import embedding_sample as sample
from datamask.report.embedding_sample import read_sample
from datamask.report.findings import ARMS, Findings, StageTime, choose_arms, find_findings
from datamask.report.report import write_report
from datamask.report.terminal import print_table
from tests.conftest import drawn
from tests.report.build import HOSTILE, ROWS, corpus

STAGES = [StageTime("embed", 3, 0, 12.5), StageTime("score", 0, 3, 0.0)]


def draft(staged: Staged) -> None:
    """What the stage before leaves beside the staged release, as far as the report reads it."""
    failed = [{"path": "in/torn.parquet", "error": "<b>cut</b> short"}]
    skipped = [{"path": f"in/{n}.doc", "error": "no format that is read"} for n in range(120)]
    storage.write_json(staged.draft, {"provenance": {"failed": failed}, "skipped": skipped})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("corpus")
    all_files, config, certificate = corpus(folder)
    staged = Staged(str(folder / "staging"), str(folder), "key")
    draft(staged)
    with drawn():
        written = write_report(staged, all_files, config, certificate, STAGES)
    return {
        "files": all_files,
        "config": config,
        "certificate": certificate,
        "report": written,
        "folder": Path(staged.folder),
        "findings": report.load_findings(staged.folder),
        "html": (Path(staged.folder) / "report.html").read_text(encoding="utf-8"),
    }


@pytest.mark.slow
def test_personal_data_is_told_where_it_was_looked_for(made: dict, tmp_path: Path) -> None:
    findings: Findings = made["findings"]
    assert findings.personal == {} and "Personal data" not in made["html"]
    counts = {"documents": 12, "email": 31, "ip": 4, "card": 0, "phone": 0}
    release = findings.settings["release"] | {"personal": "replace", "personal_kinds": ["email", "ip"]}
    found = replace(findings, personal=counts, settings=findings.settings | {"release": release})
    report.write_findings(str(tmp_path), found)
    assert report.load_findings(str(tmp_path)).personal == counts
    [section] = [one for one in sections.make_sections(found) if one.id == "personal"]
    assert section.blocks[0]["rows"] == [["e-mail addresses", "31"], ["IP addresses", "4"]]
    assert "12 of " in section.blocks[0]["note"] and "replaced" in section.blocks[0]["note"]
    assert "Personal data" in (tmp_path / "report.html").read_text()


def test_every_row_is_counted_once(made: dict) -> None:
    findings: Findings = made["findings"]
    assert findings.total() == sum(ROWS) == 500
    assert findings.total("quarantine") == 9
    selected = sum(
        storage.read_table(files.masks.path, ["selected"])["selected"].to_numpy().sum() for files in made["files"]
    )
    assert findings.total("selected") == selected == findings.size
    tokens = sum(
        storage.read_table(f.index.path, ["token_count"])["token_count"].to_numpy().sum() for f in made["files"]
    )
    assert findings.total(unit="tokens") == tokens


def test_files_that_disagree_are_refused(made: dict) -> None:
    from dataclasses import replace

    files = made["files"]
    with pytest.raises(ConservationError, match="part-0: masks and index name different rows"):
        read_sample([replace(files[0], masks=files[1].masks)], made["config"])


def test_arms_are_of_one_size_and_top_quality_is_what_a_threshold_keeps(made: dict) -> None:
    sample = read_sample(made["files"], made["config"])
    arms = choose_arms(sample, np.random.default_rng(0))
    assert {len(rows) for rows in arms.values()} == {made["findings"].size}
    left = np.setdiff1d(np.flatnonzero(sample.candidates), arms["top-quality"])
    assert sample.quality[arms["top-quality"]].min() >= sample.quality[left].max()
    assert [row["arm"] for row in made["findings"].arms] == list(ARMS)


def test_arms_of_a_token_budget_hold_as_many_tokens(made: dict) -> None:
    sample = read_sample(made["files"], made["config"])
    arms = choose_arms(sample, np.random.default_rng(0), tokens=True)
    budget = sample.tokens[arms["selected"]].sum()
    for rows in arms.values():
        assert budget - sample.tokens.max() < sample.tokens[rows].sum() <= budget


def test_a_larger_corpus_gives_a_uniform_sample_and_exact_sums(made: dict) -> None:
    whole, part = (read_sample(made["files"], made["config"], rows) for rows in (10_000, 200))
    assert whole.rate == 1 and part.rate == pytest.approx(200 / len(whole))
    assert part.totals == whole.totals
    assert 140 < len(part) < 260
    again = read_sample(made["files"], made["config"], 200)
    assert np.array_equal(part.chunk_id, again.chunk_id)


def test_features_and_columns_come_in_the_order_asked(made: dict) -> None:
    sample = read_sample(made["files"], made["config"])
    rows = np.array([400, 3, 250, 4])
    features, columns = sample.features(rows), sample.columns(rows, ["id", "domain", "absent"])
    for place, row in enumerate(rows):
        output = made["files"][sample.shard[row]].embeddings
        table = storage.read_table(output.path).to_pylist()
        expected = next(line["feature_arr"] for line in table if line["chunk_id"] == sample.chunk_id[row])
        assert np.array_equal(features[place], np.array(expected, dtype=np.float16))
        first = sum(ROWS[: sample.shard[row]])
        assert columns[place] == {
            "id": f"<b>{first + sample.chunk_id[row]}</b>",
            "domain": sample.groups["domain"][row],
        }


def test_documents_at_reads_only_the_row_groups_it_needs(made: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    from datamask.corpus import read as module

    read: list[tuple] = []
    real = module._batches
    monkeypatch.setattr(module, "_batches", lambda f, group, *a: read.append((group, group + 1)) or real(f, group, *a))
    shard = made["files"][0].shard
    rows = documents_at([shard], made["config"], [(shard.name, 130), (shard.name, 129), ("another", 1)], ["text"])
    assert {place: row["text"].split()[1] for place, row in rows.items()} == {
        (shard.name, 130): "130",
        (shard.name, 129): "129",
    }
    assert read == [(2, 3)]


def test_the_page_is_whole_in_itself_and_bounded(made: dict) -> None:
    html = made["html"]
    assert len(html) < 5_000_000
    code = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", code)
    assert "default-src 'none'" in html
    for title in ("What was selected from what", "Diversity", "Map of the documents", "Time and cache"):
        assert title in html
    assert html.count("<script>") == html.count("</script>") == 2


def test_what_was_not_read_stands_on_the_page(made: dict) -> None:
    html = made["html"]
    assert "Not included, because they failed: 1 file<" in html and "Met in the input and not read: 120 files" in html
    assert "in/torn.parquet" in html and "&lt;b&gt;cut&lt;/b&gt; short" in html
    assert "in/99.doc" in html and "in/100.doc" not in html and "All of them are in manifest.json." in html


def test_hostile_text_stays_text(made: dict) -> None:
    findings: Findings = copy.deepcopy(made["findings"])
    findings.examples[0]["text"] = excerpt(HOSTILE, 400)
    findings.map[-1]["document"] = excerpt(HOSTILE, 400)
    html = page.render(findings).replace(page.library(), "")
    assert "<script>alert" not in html and "<img" not in html and "</script><script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert html.count("</script>") == 2
    assert not any(c in html for c in "\u202e\x00\x07")


def test_excerpts_are_one_bounded_line() -> None:
    assert excerpt("a\n b\t\x00c\u202e" + "d" * 500, 20) == "a b c" + "d" * 14 + "…"
    assert excerpt(None, 20) == ""


def test_every_chart_is_a_valid_vega_lite_specification(made: dict) -> None:
    figures = page.figures_of(sections.make_sections(made["findings"]))
    assert {"history", "quality-heuristic", "neighbours", "lengths", "group-domain", "map-selected"} < set(figures)
    for figure in figures.values():
        specification = altair.Chart.from_dict(figure.chart).to_dict()  # validates against the schema
        assert vl_convert.vegalite_to_vega(specification)


def test_pictures_are_written_for_the_card(made: dict) -> None:
    assert [picture.path for picture in made["report"].pictures][:2] == ["plots/domain.png", "plots/quality.png"]
    for picture in made["report"].pictures:
        assert (made["folder"] / picture.path).read_bytes().startswith(b"\x89PNG")


def test_examples_are_real_disagreements(made: dict) -> None:
    findings: Findings = made["findings"]
    kept = [e for e in findings.examples if e["kind"] == "kept"]
    dropped = [e for e in findings.examples if e["kind"] == "dropped"]
    assert kept and dropped
    assert all(e["quality"] <= e["quality_cut"] and e["price"] >= e["threshold"] for e in kept)
    assert all(e["quality"] >= e["quality_cut"] for e in dropped)


@pytest.mark.parametrize("explained", [0.4, 0.95])
def test_the_page_says_how_far_gains_explain_the_choice(made: dict, explained: float) -> None:
    findings: Findings = made["findings"]
    examples_ = [{**e, "explained": explained, "price": 1.23, "threshold": 1.0} for e in findings.examples]
    assert (
        sections._examples(replace(findings, examples=[])) == []
    )  # a choice that is top-quality's, or of one document
    blocks = sections._examples(replace(findings, examples=examples_))
    told = " ".join([blocks[0]["note"], *(d["why"] for block in blocks for d in block["documents"])])
    assert "is in" not in told
    assert ("only in part: 40 %" in told) == (explained < 0.9)
    assert ("1.23 times that of the last document kept" in told) == (explained > 0.9)


def test_prices_explain_a_choice_as_far_as_the_dearest_are_chosen() -> None:
    sample = SimpleNamespace(
        candidates=np.array([True, True, True, True, False]),
        selected=np.array([True, False, False, True, False]),
        price=np.array([4.0, 3.0, 2.0, 1.0, 9.0]),
    )
    assert examples.explained_by_price(sample) == 0.5


def test_the_page_names_its_release_and_a_wide_table_says_that_it_scrolls(made: dict) -> None:
    html = (made["folder"] / "report.html").read_text()
    origin = made["findings"].release
    assert origin["version"].startswith("0001-") and re.match(r"20\d\d-\d\d-\d\d", origin["created"])
    assert all(f"<b>{value}</b>" in html for value in origin.values() if value)
    assert html.count("scroll it sideways") == html.count('<div class="scroll"')


@pytest.mark.parametrize(
    ("algorithm", "solver"),
    [
        ({"DiSF": 0.5, "Pair_simi": 0.5}, "relaxation"),
        ({"coverage": 0.5, "Facility": 0.5}, "policy-gradient"),
        ("DiSF", "relaxation"),
    ],
)
def test_the_map_shows_the_choice_of_any_metric(made: dict, algorithm: object, solver: str) -> None:
    """Not every metric has a greedy form, which the map's choice has by preference."""
    config = made["config"]
    whole = read_sample(made["files"], config, 1000)
    pool = np.flatnonzero(whole.candidates)
    asked = config.selection.model_copy(update={"algorithm": algorithm, "solver": solver})
    chosen = examples._most_diverse(whole, whole.features, pool, asked)
    share = whole.selected.sum() / whole.candidates.sum()
    assert len(chosen) == max(1, round(share * len(pool))) and set(chosen) <= set(pool)


def test_the_map_is_drawn_with_a_quota_on_a_column_that_is_no_group(
    made: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column of many values, or of few documents, is not shown as groups; its quota is one all the same."""
    monkeypatch.setattr(sample, "MAX_GROUPS", 10)
    quota = Quota(column="id", as_pool=1.0)
    config = made["config"]
    config = config.model_copy(update={"select": config.selection.model_copy(update={"quotas": [quota]})})
    whole = read_sample(made["files"], config, 1000)
    pool = np.flatnonzero(whole.candidates)
    assert "id" not in whole.groups and set(whole.pool_groups(config.select, pool)) == {"id"}
    assert len(examples._most_diverse(whole, whole.features, pool, config.selection))


def test_duplicate_groups_are_counted(made: dict) -> None:
    duplicates = made["findings"].duplicates
    assert duplicates["documents"] == duplicates["groups"] == made["findings"].total("filter:semantic_duplicate")
    assert sum(row["groups"] for row in duplicates["sizes"]) == duplicates["groups"]


def test_the_same_input_gives_the_same_data(made: dict) -> None:
    with drawn():
        again = find_findings(made["files"], made["config"], made["certificate"], STAGES)
    again = replace(again, unread=made["findings"].unread, release=made["findings"].release)  # and its date
    assert json.dumps(again.as_json(), sort_keys=True) == json.dumps(made["findings"].as_json(), sort_keys=True)


def test_a_published_release_is_left_as_it_is(made: dict) -> None:
    page_before = (made["folder"] / "report.html").stat().st_mtime_ns
    staged = Staged(str(made["folder"]), str(made["folder"].parent), "key", published="0001-abc")
    again = write_report(staged, made["files"], made["config"], made["certificate"])
    assert again == made["report"]
    assert (made["folder"] / "report.html").stat().st_mtime_ns == page_before


def test_a_folder_without_a_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no report\.json"):
        report.load_findings(str(tmp_path))
    (tmp_path / "report.json").write_text('{"name": 1}')
    with pytest.raises(InputError, match="another version"):
        report.load_findings(str(tmp_path))


def test_a_report_of_an_older_version_that_had_more_is_shown(made: dict, tmp_path: Path) -> None:
    stored = json.loads((made["folder"] / "report.json").read_text())
    (tmp_path / "report.json").write_text(json.dumps({**stored, "spectra": []}))
    assert report.load_findings(str(tmp_path)) == report.load_findings(str(made["folder"]))


def test_a_selection_without_a_certificate_still_has_a_page(made: dict) -> None:
    findings = find_findings(made["files"], made["config"], {})
    html = page.render(findings)
    assert 'id="diversity"' in html and 'id="objective"' not in html


def test_a_gap_that_whole_documents_cost_is_told_from_the_solvers() -> None:
    steps = [{"step": 0, "objective": 0.3, "relaxed": 0.5}, {"step": 1, "objective": 0.4, "relaxed": 0.7355}]
    certificate = {"objective": 0.59, "upper_bound": 0.736, "history": [*steps, {"step": 2, "objective": 0.58}]}
    (block,) = sections._fractional(certificate)
    assert "0.73550, 0.07 % below the bound" in block["text"]
    assert not sections._fractional({**certificate, "objective": 0.7352})  # what is left is as much the solver's
    assert not sections._fractional({"objective": 0.5, "upper_bound": 0.6, "history": [0.1, 0.4]})
    assert not sections._fractional({"objective": 0.5, "history": steps})


def test_a_history_may_hold_plain_objectives_and_steps_without_one(made: dict) -> None:
    findings = report.load_findings(str(made["folder"]))
    own = replace(findings, certificate={"history": [0.1, {"upper_bound": 0.9}, {"objective": 0.4}]})
    assert sections.history_rows(own) == [{"step": 0, "objective": 0.1}, {"step": 2, "objective": 0.4}]


def test_the_findings_are_the_same_whoever_reads_the_shards(made, tmp_path, monkeypatch):
    expected = find_findings(made["files"], made["config"], made["certificate"], STAGES).as_json()
    for number, size in enumerate((1, 100)):
        places = [(*range(len(made["files"])),)[n : n + size] for n in range(0, len(made["files"]), size)]
        monkeypatch.setattr(sample, "groups", lambda files, places=places: places)
        folder, calls = str(tmp_path / str(number)), iter(range(1, 100))

        def broken(work, state, items, rows=None, calls=calls):
            items = pickle.loads(pickle.dumps(list(items)))
            if next(calls) == 2:
                raise ConnectionResetError("a worker was lost")
            return Threads(3)(work, pickle.loads(pickle.dumps(state)), items)

        given = made["files"], made["config"], made["certificate"], STAGES
        with pytest.raises(ConnectionResetError):
            find_findings(*given, maps=broken, folder=folder)
        assert find_findings(*given, maps=Threads(2), folder=folder).as_json() == expected


def test_a_rows_name_is_not_broken_where_columns_are_many() -> None:
    console = Console(width=60, file=StringIO())
    print_table(console, ["choice", *["effective number"] * 6], [["top-quality", *["12.5"] * 6]])
    assert "top-quality " in console.file.getvalue()


def test_documents_of_one_vector_lie_in_one_place() -> None:
    with drawn():
        assert not drawing.place_documents(np.full((40, 8), 8**-0.5, np.float32), 1).any()  # t-SNE dies of them
