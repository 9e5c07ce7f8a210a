"""`datamask select` and `python -m datamask.train_mask`: the published flags, the output, and bad input."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask import cli, train_mask

N, D = 60, 8
FLAGS = (
    "--device cpu --n_epochs 20 --algorithm DiSF --partial 0.1 --max_lr 10 --min_lr 1 --n_rollout 128 "
    "--select_ratio 0.3 --init quality --lamb 0.5"
).split()


def table(n=N, **changes):
    generator = np.random.default_rng(0)
    features = generator.normal(size=(n, D)).astype(np.float32)
    columns = {
        "chunk_id": np.arange(n) * 7,
        "quality_score": generator.random(n),
        "feature_arr": list(features),
        "token_count": generator.integers(10, 100, n),
        "domain": np.where(np.arange(n) % 3 == 0, "news", "web"),
    }
    return pa.table({name: value for name, value in {**columns, **changes}.items() if value is not None})


@pytest.fixture
def run(tmp_path, capsys):
    def call(*arguments, pool=None, fails=False):
        pq.write_table(table() if pool is None else pool, tmp_path / "in.parquet")
        places = ["--input", str(tmp_path / "in.parquet"), "--output", str(tmp_path / "out.parquet")]
        with pytest.raises(SystemExit) as exit_:
            cli.main(["select", *places, *arguments])
        out, err = capsys.readouterr()
        assert bool(exit_.value.code) == fails, err
        if fails:
            assert not (tmp_path / "out.parquet").exists()
            assert err.count("\n") == 1 and "Traceback" not in err
            return err
        return out, pq.read_table(tmp_path / "out.parquet")

    return call


def test_the_output_has_a_row_per_row_in_order(run):
    _, mask = run("--select_ratio", "0.3", "--keep-duplicates")
    assert mask.column_names == ["chunk_id", "selected", "probability"]
    assert mask["chunk_id"].to_pylist() == [7 * i for i in range(N)]
    assert sum(mask["selected"].to_pylist()) == 18


def test_a_quota_of_a_value_that_no_document_has_is_told(tmp_path, capsys):
    pq.write_table(table(), tmp_path / "in.parquet")
    places = ["--input", str(tmp_path / "in.parquet"), "--output", str(tmp_path / "out.parquet")]
    with pytest.raises(SystemExit):
        cli.main(["select", *places, "--quiet", "--set", "select.quotas=[{column: domain, maximum: {newz: 0.1}}]"])
    assert capsys.readouterr().err == (
        'datamask: no document has domain newz, so a maximum of select.quotas bounds nothing; did you mean "news"?\n'
    )


def test_json_is_one_object(run):
    out, mask = run("--json", "--solver", "relaxation", "--keep-duplicates", "--select_ratio", "0.1")
    found = json.loads(out)
    assert {"objective", "terms", "upper_bound", "gap", "seconds", "history"} <= found.keys()
    assert found["objective"] <= found["upper_bound"]
    assert found["selected"] == sum(mask["selected"].to_pylist()) == 6


@pytest.mark.parametrize("algorithm", ["DiSF", "Pair_simi"])
def test_published_flags_work_unchanged(run, algorithm):
    out, mask = run(*train_mask.PUBLISHED, *FLAGS, "--algorithm", algorithm, "--json")
    found = json.loads(out)
    assert found["solver"] == "policy-gradient"
    assert found["history"][-1]["step"] == 20
    assert sum(mask["selected"].to_pylist()) == 18
    quality = table()["quality_score"].to_numpy()
    raw = 0.5 * quality[mask["selected"].to_numpy()].mean() + 0.5 * found["statistics"][next(reversed(found["terms"]))]
    assert found["objective"] == pytest.approx(raw)  # the raw sum, not calibrated


@pytest.mark.slow
def test_train_mask_runs_as_a_module(tmp_path):
    pq.write_table(table(), tmp_path / "in.parquet")
    places = ["--input", str(tmp_path / "in.parquet"), "--output", str(tmp_path / "out.parquet")]
    command = [sys.executable, "-m", "datamask.train_mask", *places, *FLAGS]
    done = subprocess.run(command, cwd=Path(train_mask.__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sum(pq.read_table(tmp_path / "out.parquet")["selected"].to_pylist()) == 18


def test_cuda_asked_for_and_absent(run, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "use device cpu" in run(*train_mask.PUBLISHED, *FLAGS, "--device", "cuda:0", fails=True)


def test_same_seed_same_bytes(run, tmp_path):
    arguments = [*train_mask.PUBLISHED, *FLAGS, "--seed", "3"]
    run(*arguments)
    one = (tmp_path / "out.parquet").read_bytes()
    run(*arguments)
    assert (tmp_path / "out.parquet").read_bytes() == one


def test_near_duplicates_are_left_out_and_the_better_one_stays(run):
    features = np.random.default_rng(1).normal(size=(20, D)).astype(np.float32).repeat(3, axis=0)
    quality = np.random.default_rng(2).random(60)
    pool = table(feature_arr=list(features), quality_score=quality)
    out, mask = run("--select-ratio", "1", "--json", pool=pool)
    assert json.loads(out)["semantic_duplicates"] == 40
    assert mask["selected"].to_numpy().reshape(20, 3).sum(1).tolist() == [1] * 20
    assert (mask["selected"].to_numpy().reshape(20, 3).argmax(1) == quality.reshape(20, 3).argmax(1)).all()
    assert run("--select-ratio", "1", "--keep-duplicates", pool=pool)[1]["selected"].to_numpy().all()


def test_token_budget_and_quota(run):
    tokens = table()["token_count"].to_numpy()
    _, mask = run("--budget-tokens", "500", "--set", "select.quotas=[{column: domain, maximum: {news: 0.2}}]")
    chosen = mask["selected"].to_numpy()
    news = table()["domain"].to_numpy() == "news"
    assert 400 < tokens[chosen].sum() <= 500
    assert tokens[chosen & news].sum() <= 0.2 * 500 + tokens.max()


def test_several_quality_columns(run):
    pool = table(edu=np.arange(N, dtype=float))
    weights = ["--quality", "quality_score=0", "--quality", "edu=2", "--lamb", "1"]
    _, mask = run(*weights, "--keep-duplicates", "--select_ratio", "0.1", pool=pool)
    assert mask["selected"].to_numpy().nonzero()[0].tolist() == list(range(54, 60))


NAN = np.ones((N, D), dtype=np.float32)
NAN[4, 2] = np.nan
ZERO = np.ones((N, D), dtype=np.float32)
ZERO[9] = 0


@pytest.mark.parametrize(
    ("changes", "arguments", "says"),
    [
        ({"chunk_id": [1] * N}, [], "chunk_id occur more than once (1)"),
        ({"quality_score": None}, [], "no column quality_score"),
        ({"feature_arr": None}, [], "no column feature_arr"),
        ({"chunk_id": None}, [], "no column chunk_id"),
        ({"quality_score": [None] + [1.0] * (N - 1)}, [], "1 rows have no quality_score (the first: row 0)"),
        ({"quality_score": ["good"] * N}, [], "quality_score is string"),
        ({"quality_score": [float("nan")] * N}, [], "is not a finite number"),
        ({"feature_arr": list(NAN)}, [], "features of row 4 are not finite or all zero"),
        ({"feature_arr": list(ZERO)}, [], "features of row 9 are not finite or all zero"),
        ({"feature_arr": [[1.0] * (D + i % 2) for i in range(N)]}, [], "8 numbers in row 0 and 9 in row 1"),
        ({"feature_arr": [None] + [[1.0]] * (N - 1)}, [], "feature_arr of row 0 is null"),
        ({"token_count": None}, ["--budget-tokens", "10"], "no column token_count"),
        ({}, ["--algorithm", "cosine"], "valid: DiSF, Facility, Pair_simi"),
        ({}, ["--solver", "magic"], "valid: relaxation, policy-gradient, greedy"),
        ({}, ["--init", "random"], "'same' or 'quality'"),
        ({}, ["--select_ratio", "0"], "select_ratio"),
        ({}, ["--select_ratio", "0.001", "--keep-duplicates"], "is not one document"),
        ({}, ["--budget-documents", "61"], "more than the pool's 60 documents"),
        ({}, ["--budget-documents", "5", "--budget-tokens", "5"], "keep one"),
        ({}, ["--device", "tpu"], "unknown device 'tpu'"),
        ({}, ["--quality", "edu"], "no column edu"),
        ({}, ["--quality", "quality_score=high"], "expected a column, or column=weight"),
        ({}, ["--solver", "policy-gradient", "--budget-tokens", "100"], "cannot hold a budget in tokens"),
        ({}, ["--set", "select.quotas=[{column: topic, maximum: {news: 0.2}}]"], "no column topic"),
    ],
)
def test_bad_input_is_one_clear_message(run, changes, arguments, says):
    found = run(*arguments, pool=table(**changes), fails=True)
    assert says in found, found


def test_files_that_are_none(run, tmp_path, capsys):
    (tmp_path / "text.parquet").write_text("not parquet")
    pq.write_table(table()[:0], tmp_path / "empty.parquet")
    for name, says in [
        ("text.parquet", "not a parquet file"),
        ("absent.parquet", "no such file"),
        ("empty.parquet", "no rows"),
    ]:
        with pytest.raises(SystemExit) as exit_:
            cli.main(["select", "--input", str(tmp_path / name), "--output", str(tmp_path / "out.parquet")])
        assert exit_.value.code
        assert says in capsys.readouterr().err
