"""A small corpus of made-up documents, and the command line run inside this process on one throw-away server."""

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask import cli
from tests.conftest import drawn

SMALL = ["corpus.group_bytes=0", "encoder.dimensions=32", "encoder.vocabulary=500", "encoder.fit_documents=200"]
SMALL += ["select.select_ratio=0.2", "select.coverage.search=0.1", "run.retry_delay=0.01", "run.workers=2"]
TOPICS = {
    "sea": "ship wave harbour captain storm anchor sail tide island fish",
    "law": "court judge statute contract appeal clause verdict party rights evidence",
    "cell": "protein enzyme membrane tissue receptor gene nucleus blood muscle nerve",
    "code": "function variable loop integer string array return compile debug pointer",
}


def documents(start, count, seed=0):
    """FineWeb rows; one text in ten is empty, one in eleven repeats the one before."""
    rng = np.random.default_rng([seed, start])
    rows = []
    for number in range(start, start + count):
        topic = list(TOPICS)[number % len(TOPICS)]
        words = [*TOPICS[topic].split(), *"the of and to in that it is was for on with as by at from".split()]
        sentences = [" ".join(rng.choice(words, rng.integers(6, 14))).capitalize() + "." for _ in range(9)]
        text = "" if number % 10 == 7 else rows[-1]["text"] if number % 11 == 10 and rows else "\n".join(sentences)
        rows.append(
            {"text": text, "id": f"d{number}", "dump": "CC-2026-01", "source": topic, "language": "en"}
            | {"url": f"https://{topic}.example/{number}", "token_count": len(text.split())}
        )
    return rows


def write_shard(folder, number, count=60, seed=0):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"shard-{number:02d}.parquet"
    pq.write_table(pa.Table.from_pylist(documents(number * 1000, count, seed)), path)
    return path


SETTINGS = [part for setting in SMALL for part in ("--set", setting)]


@pytest.fixture(scope="session")
def curated(prefect_server, tmp_path_factory):
    """A folder with a corpus of three shards (two of parquet, one of JSON lines) and what `datamask curate` made of it:
    corpus/, out/, found.json."""
    folder = tmp_path_factory.mktemp("curated") / "live"
    write_shard(folder / "corpus", 0)
    write_shard(folder / "corpus", 1)
    lines = [json.dumps(row) for row in documents(2000, 60)]
    (folder / "corpus" / "shard-02.jsonl").write_text("\n".join(lines) + "\n")
    with drawn(), (folder / "found.json").open("w") as out, contextlib.redirect_stdout(out):
        with pytest.raises(SystemExit) as end:
            cli.main(["curate", "-i", str(folder / "corpus"), "-o", str(folder / "out"), "--json", *SETTINGS])
    assert not end.value.code
    shutil.copytree(folder, folder.with_name("kept"), symlinks=True)
    return folder


@pytest.fixture
def live(curated):
    """The folder as it was, at the same path: a refresh knows files by their path."""
    shutil.rmtree(curated)
    return Path(shutil.copytree(curated.with_name("kept"), curated, symlinks=True))


@pytest.fixture
def corpus(live):
    return live / "corpus"


@pytest.fixture
def out(live):
    return live / "out"


@pytest.fixture
def found(curated):
    """The JSON object of that run."""
    return json.loads((curated / "found.json").read_text())


@pytest.fixture
def call(prefect_server, capsys):
    """call("curate", …) runs the command and gives (status, stdout, stderr)."""

    def run(command, *arguments, small=True):
        with pytest.raises(SystemExit) as end:
            cli.main([command, *map(str, arguments), *(SETTINGS if small else ())])
        captured = capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def curate(call):
    """curate(input, output, …) gives the JSON object of a run that must succeed."""

    def run(input_, output, *arguments):
        status, out, err = call("curate", "--input", input_, "--output", output, "--json", *arguments)
        assert status == 0, err
        return json.loads(out)

    return run
