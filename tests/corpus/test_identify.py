"""Languages where the corpus does not state them; what it states stays."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from datamask.config import Config
from datamask.corpus.identify import identifier, identify_shard
from datamask.corpus.read import corpus_schema, documents_at, read_batches
from datamask.corpus.shards import plan_shards
from datamask.errors import ConfigError
from tests import real
from tests.corpus import build

pytest.importorskip("pycld2")

ENGLISH = "The harbour of the old town was built in the twelfth century, when the river reached the walls."
GERMAN = "Der Hafen der alten Stadt wurde im zwölften Jahrhundert gebaut, als der Fluss die Mauern erreichte."
AMHARIC = "ኢትዮጵያ በምሥራቅ አፍሪካ የምትገኝ አገር ናት፤ ዋና ከተማዋም አዲስ አበባ ነው።"
TIGRINYA = "ኤርትራ ኣብ ሰሜናዊ ምብራቕ ኣፍሪቃ እትርከብ ሃገር ኮይና፡ ርእሰ ከተማኣ ኣስመራ እያ።"


def config(path, **filters):
    return Config.model_validate({"corpus": {"input": [str(path)]}, "filter": filters})


def identified(tmp_path, path, **filters):
    settings = config(path, **filters)
    work = str(tmp_path / "work")
    shards = [build.convert_shard(shard, settings, work) for shard in plan_shards(settings.corpus, work).shards]
    return [identify_shard(shard, settings, work) for shard in shards], settings


def rows_of(shards, settings, columns=("text", "language", "language_score")):
    return [row for shard in shards for batch in read_batches(shard, settings, columns) for row in batch.to_pylist()]


def test_sentences_of_four_languages():
    identify = identifier()
    assert [identify(text)[0] for text in (ENGLISH, GERMAN, AMHARIC, TIGRINYA)] == ["en", "de", "am", "ti"]
    assert identify(ENGLISH)[1] > 0.9
    assert identify("12345 6789") == (None, 0.0) and identify("\x00\x85￾ ")[0] is None
    assert identify("a\ud800b " + ENGLISH)[0] == "en"


def test_only_where_the_corpus_is_silent(tmp_path):
    texts = [ENGLISH, GERMAN, None, AMHARIC, TIGRINYA]
    stated = ["fr", None, None, None, None]
    path = build.write(tmp_path / "x.parquet", [{"text": t, "language": s} for t, s in zip(texts, stated)], row_group=2)
    shards, settings = identified(tmp_path, path, languages=["am"])
    found = rows_of(shards, settings)
    assert [row["language"] for row in found] == ["fr", "de", None, "am", "ti"]
    assert found[0]["language_score"] is None and found[3]["language_score"] > 0.9
    only = [False, False, False, False, True]
    part = list(read_batches(shards[0], settings, ["language"], only=np.array(only)))
    assert [row for batch in part for row in batch.to_pylist()] == [{"chunk_id": 4, "language": "ti"}]
    places = [(shards[0].name, 3), (shards[0].name, 1)]
    read = documents_at(shards, settings, places, ["language", "text"])
    assert [read[place]["language"] for place in places] == ["am", "de"] and read[places[1]]["text"] == GERMAN
    assert {"language", "language_score"} <= {*corpus_schema(shards, settings).names}


def test_when_it_is_done(tmp_path):
    path = build.write(tmp_path / "x.jsonl", [{"text": ENGLISH}, {"text": GERMAN}])
    assert identified(tmp_path, path)[0][0].beside is None
    assert identified(tmp_path, path, languages=["en"], identify="off")[0][0].beside is None
    shards, settings = identified(tmp_path, path, identify="always")
    assert [row["language"] for row in rows_of(shards, settings)] == ["en", "de"]
    with pytest.raises(ConfigError, match=r"'eng' is none that is identified; did you mean"):
        identified(tmp_path, path, languages=["eng"])


def test_the_same_bytes_again(tmp_path):
    path = build.write(tmp_path / "x.jsonl", [{"text": text} for text in (ENGLISH, GERMAN, AMHARIC) * 50])
    first = identified(tmp_path / "a", path, languages=["en"])[0][0].beside
    second = identified(tmp_path / "b", path, languages=["de"])[0][0].beside
    assert first.fingerprint == second.fingerprint
    assert Path(first.path).read_bytes() == Path(second.path).read_bytes()


@pytest.mark.skipif(not real.FOLDER.exists(), reason=real.ABSENT)
def test_of_real_documents():
    """Of each language 15 documents; Kirundi is told as its sister Kinyarwanda, and Nigerian Pidgin as English."""
    identify = identifier()
    tally: dict[str, Counter] = defaultdict(Counter)
    table = pq.read_table(real.FOLDER / "real-00000-of-00005.parquet", columns=["text", "language", "source"])
    for row in table.filter(~table["source"].to_pandas().eq("udhr2").to_numpy()).to_pylist():
        if row["language"] and len(row["text"]) > 200 and tally[row["language"]].total() < 15:
            tally[row["language"]][identify(row["text"])[0]] += 1
    for language in ("am", "ti", "ha", "ig", "lg", "ln", "om", "sn", "so", "sw", "xh", "yo", "en", "de", "fr"):
        assert tally[language][language] >= 14, (language, tally[language])
    assert tally["rn"].most_common(1)[0][0] == "rw" and tally["pcm"].most_common(1)[0][0] == "en"
