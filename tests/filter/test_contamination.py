"""Test items in the pool: what is found, what is no leak, against a search by brute force."""

import gzip
import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask.config import Config
from datamask.errors import InputError
from datamask.filter.contamination import COMMON, common_rows, contaminated
from datamask.filter.leaks import find_leaks, items_of
from datamask.filter.word_rows import ROW, SHORTEST, WordRows
from datamask.stages import ShardFiles
from datamask.text.ngrams import hashed_words
from tests.corpus import build

WORDS = [f"w{n}" for n in range(400)]
QUESTION = (
    "A farmer has nineteen sheep and buys three dozen more on Monday, sells half of them on Tuesday and loses two "
    "in the woods on Friday; how many sheep does the farmer have at the end of the week?"
)


def prose(seed, words=120):
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def index_of(shard, config, work):
    """The index as far as reading documents needs it: no row in quarantine."""
    import pyarrow as pa

    from datamask import storage
    from datamask.corpus.read import read_batches

    rows = sum(batch.num_rows for batch in read_batches(shard, config, []))
    schema = pa.schema([("chunk_id", pa.int64()), ("reason", pa.string())])
    table = pa.table([pa.array(range(rows), pa.int64()), pa.nulls(rows, pa.string())], schema)
    return storage.write_output(f"{work}/index/{shard.name}.parquet", f"index-{shard.fingerprint}", schema, [table])


@pytest.fixture
def look(tmp_path):
    """look(texts, items, …) gives (the shard's files, config, {chunk_id: what it holds})."""

    def run(texts, items, name="quiz.jsonl", folder="a", **filters):
        path = build.write(tmp_path / folder / "x.parquet", [{"text": text} for text in texts], row_group=7)
        test = tmp_path / name
        data = "".join(json.dumps(item) + "\n" for item in items).encode()
        test.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
        shards, config, work = build.shards(tmp_path / folder, path)
        config = config.model_copy(
            update={"filter": Config.model_validate({"filter": {"decontaminate": [str(test)], **filters}}).filter}
        )
        files = ShardFiles(shards[0], index=index_of(shards[0], config, work))
        files = ShardFiles(files.shard, index=files.index, leaks=find_leaks(files.shard, config, work))
        found = contaminated(files, config, common_rows([files], config))
        return files, config, {number: json.loads(told) for number, told in found.items()}

    return run


def test_an_item_in_a_document_is_found_and_named(look):
    shouted = re.sub(r"\W+", " ... ", QUESTION).upper()
    texts = [prose(1), f"{prose(2)}\n\n{QUESTION} 27\n{prose(3)}", prose(4), shouted]
    _, _, found = look(texts, [{"question": f"Question: {QUESTION}\nAnswer:", "answer": "27"}], "quiz.jsonl.gz")
    assert found.keys() == {1, 3}
    assert found[1]["item"] == "quiz.jsonl.gz:1" and found[1]["found"] == found[1]["words"]
    assert found[1]["span"].startswith("A farmer has nineteen sheep") and found[1]["span"].endswith("the week? 27")


def test_web_addresses_are_no_words(look):
    address = "https://www.office.example/about-us/organization/of/the/great/federal/service/of/technology/and/its/transformation"
    linked = QUESTION.replace("three dozen more", f"[three dozen]({address}/a) more")
    texts = [f"{prose(1)} {address}/b {prose(2)} {address}/c", f"{prose(3)} {linked} {prose(4)}", prose(5)]
    _, _, found = look(texts, [{"text": f"{prose(6, 20)} {address}/b"}, {"text": QUESTION}])
    assert {number: (each["item"], each["found"] == each["words"]) for number, each in found.items()} == {
        1: ("quiz.jsonl:2", True)
    }


def test_the_span_is_the_items_own_beside_its_neighbours(look):
    other = " ".join(reversed(QUESTION.split()))
    text = f"{prose(1, 20)} {' '.join(prose(n, 50) for n in range(10, 14))} {QUESTION} {other}"
    items = [{"text": prose(n, 50)} for n in range(10, 14)] + [{"text": f"{QUESTION} {other}"}]
    _, _, found = look([text], items[4:] + items[:4])
    assert found[0]["item"] == "quiz.jsonl:1" and found[0]["span"].startswith("A farmer has nineteen sheep")


def test_half_of_it_is_enough_and_a_phrase_is_not(look):
    words = QUESTION.split()
    half, phrase = " ".join(words[: len(words) // 2 + 1]), " ".join(words[:14])
    texts = [f"{prose(1)} {half} {prose(2)}", f"{prose(3)} {phrase} {prose(4)}"]
    files, config, found = look(texts, [{"question": QUESTION, "answer": "27"}])
    assert found.keys() == {0} and found[0]["part"] == "question"
    assert files.leaks.rows == 2  # both hold rows of it
    assert look(texts, [{"question": QUESTION, "answer": "27"}], contamination=0.3)[2].keys() == {0, 1}


def test_three_rows_of_a_long_passage_are_too_many(look):
    passage = prose(9, 400)
    part = " ".join(passage.split()[100:145])
    _, _, found = look([f"{prose(1)} {part} {prose(2)}"], [{"text": passage}])
    assert found[0]["found"] == 45 and found[0]["words"] == 400


def test_short_items_stand_whole_or_not_at_all(look):
    short = "Which planet of ours has the most moons today"
    texts = [f"{prose(1)} {short}? {prose(2)}", f"{prose(1)} {short[:-6]} {prose(2)}"]
    _, _, found = look(texts, [{"text": short}, {"text": "too short to be told"}])
    assert found.keys() == {0}


def test_an_exact_answer_counts_from_thirteen_words_on_or_behind_its_question(look):
    answer = "Sunlight is the source of energy for nearly all of the ecosystems on this planet."
    short = "They rise in the east and set in the west"
    items = [{"question": "Why?", "answer": answer}, {"question": "What do the stars do?", "answer": short}]
    texts = [f"{prose(1)} {answer}", f"{prose(2)} {short}", f"{prose(3)} What do the stars do? {short}"]
    _, _, found = look(texts, items)
    assert {number: told["part"] for number, told in found.items()} == {0: "answer", 2: "question and answer"}


def test_common_phrases_condemn_nobody_but_copies_of_an_item_do(look):
    phrase = "all rights reserved no part of this book may be copied in any form by anybody"
    item = f"{phrase} {prose(5, 10)}"  # more than half of it is the phrase
    texts = [f"{prose(100 + n)} {phrase} {prose(200 + n)}" for n in range(COMMON + 5)]
    items = [{"text": item}, {"text": QUESTION}]
    assert look([*texts, QUESTION], items, folder="a")[2].keys() == {len(texts)}
    copies = [f"{prose(300 + n)} {QUESTION}" for n in range(COMMON + 5)]
    _, _, found = look([*texts, *copies], items, folder="b")
    assert {found[number]["item"] for number in found} == {"quiz.jsonl:2"}
    assert found.keys() == set(range(len(texts), len(texts) + len(copies)))
    short = "which of the following is the best answer here"  # an item that is a phrase itself
    _, _, found = look([f"{prose(n)} {short}" for n in range(COMMON + 1)], [{"text": short}], folder="c")
    assert not found


@pytest.mark.parametrize(
    "row",
    [
        "A B C D E F G H I J K L M N O P Q R S T",
        "а б в г д е ж з и к л м н о п р с т",
        "Mobile Application Program, ref mobile-application-program.md, Mobile Application Program (Mobile Program)",
        "4 on the 0 to 10 scale and a 0 on the 4 to 4 scale",
    ],
)
def test_a_row_of_few_different_words_tells_of_nothing(look, row):
    assert not look([f"{prose(1)} {row} {prose(2)}"], [{"text": row}, {"text": f"{row} and more of it"}])[2]


@pytest.mark.parametrize(
    "item",
    ["私は昨日の夜に駅で古い友人に会って長い話をした", "Я в саду с тобой и с ним о том и о сём всё говорил до утра"],
)
def test_words_of_one_character_count_where_they_are_words(look, item):
    assert look([f"{prose(1)} {item} {prose(2)}"], [{"text": item}])[2].keys() == {0}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["aa", "bb", "cc", "dd", "x", "7"]), max_size=30), max_size=4))
def test_varied_rows_by_force(texts):
    rows = WordRows([" ".join(words) for words in texts])
    for gram, (length, varied) in enumerate(zip(rows.length.tolist(), rows.varied.tolist(), strict=True)):
        text, at = rows.texts_with(gram)[0]
        own = {word for word in texts[text][at : at + length] if len(word) > 1}
        assert varied == (2 * len(own) >= length)


def test_what_is_no_test_is_refused(look, tmp_path):
    with pytest.raises(InputError, match=r"quiz.jsonl, line 1 has prompt; lines need `question`"):
        look([prose(1)], [{"prompt": "x"}])
    with pytest.raises(InputError, match=r"quiz.jsonl is empty"):
        look([prose(1)], [{"question": " ", "answer": ""}])
    (tmp_path / "deep.jsonl").write_text('{"text": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(InputError, match="deep.jsonl, line 1 is not JSON"):
        items_of(Config.model_validate({"filter": {"decontaminate": [str(tmp_path / "deep.jsonl")]}}))
    config = Config.model_validate({"filter": {"decontaminate": [str(tmp_path / "none.jsonl")]}})
    with pytest.raises(InputError, match="no such file"):
        items_of(config)


def by_force(items, text):
    """Every row of words that items and the text have in common: (item, its word, the text's word)."""
    own = text.split()
    found = set()
    for number, item in enumerate(items):
        words = item.split()
        for length in range(SHORTEST, ROW + 1):
            if length < ROW and len(words) != length:
                continue
            for at in range(len(words) - length + 1):
                for place in range(len(own) - length + 1):
                    if words[at : at + length] == own[place : place + length]:
                        found.add((number, at, place))
    return found


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_rows_are_those_of_a_search_by_force(random_):
    def words(least, most):
        return " ".join(random_.choices(["a1", "b2", "c3"], k=random_.randint(least, most)))

    items = [words(1, 30) for _ in range(6)]
    texts = [words(0, 60) for _ in range(4)]
    rows = WordRows(items)
    [(single, _, document, _)] = hashed_words(texts)
    gram, at = rows.find(single, document)
    starts = [sum(len(text.split()) for text in texts[:n]) for n in range(len(texts))]
    found = [set() for _ in texts]
    for one, place in zip(gram.tolist(), at.tolist()):
        for item, word in rows.texts_with(one):
            found[document[place]].add((item, word, place - starts[document[place]]))
    assert found == [by_force(items, text) for text in texts]
