"""Token files: read back by the formats' own readers, the same bytes for any workers, and no planted fault unseen."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from datamask import storage
from datamask.api import Release
from datamask.errors import ConfigError, ModelError
from datamask.filter.filters import filter_corpus
from datamask.maps import Threads, here
from datamask.release.publication import publish
from datamask.release.release_folder import find_release
from datamask.release.staging import export
from datamask.release.tokens import token_files
from datamask.release.tokens.layouts import LAYOUTS
from datamask.release.tokens.token_files import TokenOptions, verify_tokens, write_tokens
from tests.release.made import PROVENANCE, documents, make_corpus, make_masks, make_shard, released, settings

END = "<|endoftext|>"


def bpe(folder: Path, size: int, seed: int = 0, end: str = END) -> str:
    """A byte-level BPE tokenizer with a start token that its own post-processor would add."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = [text for text in documents(200, seed)["text"].to_pylist() if text]
    special = [end, "<s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.enable_truncation(8)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def released_repeatedly(folder: Path, rows: bool = False):
    """A release whose documents are taken up to three times."""
    config = settings(select={"repeat": 3}, release={"repeated_rows": rows, "rows_per_file": 40})
    files = [make_masks(each, folder, filters=False) for each in make_corpus(folder)]
    found = []
    for each in files:
        masks = storage.read_table(each.masks.path)
        times = np.where(masks["selected"].to_numpy(), 1 + masks["chunk_id"].to_numpy() % 3, 0).astype(np.int32)
        masks = masks.append_column("repeat", [times])
        url = each.masks.path.replace("masks", "repeated")
        found.append(replace(each, masks=storage.write_output(url, each.masks.key, masks.schema, [masks])))
    filters = filter_corpus(found, config, str(folder / "out" / "work"))
    found = [replace(each, filters=filters) for each, filters in zip(found, filters, strict=True)]
    return publish(export(found, config, str(folder / "out"), PROVENANCE))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A release whose documents are taken up to three times, in several files, and a tokenizer."""
    folder = tmp_path_factory.mktemp("tokens")
    release = released_repeatedly(folder)
    return release, bpe(folder / "bpe", 300)


def expected(release, tokenizer: str) -> dict[tuple[int, ...], int]:
    """How often the tokens of each text must be there: by the library, and by decisions alone."""
    loaded = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    loaded.no_truncation()
    texts = {}
    for path in Path(release.path, "data").rglob("*.parquet"):
        for row in pq.read_table(path, columns=["shard", "chunk_id", "text"]).to_pylist():
            texts[row["shard"], row["chunk_id"]] = row["text"]
    found: dict[tuple[int, ...], int] = {}
    for shard in release.manifest()["conservation"]["shards"]:
        for row in release.decisions(shard).to_pylist():
            if row["outcome"] == "selected":
                ids = loaded.encode(texts[shard, row["chunk_id"]], add_special_tokens=False).ids
                place = (*ids, loaded.token_to_id(END))
                found[place] = found.get(place, 0) + row.get("repeat", 1)
    return found


def counted(sequences) -> dict[tuple[int, ...], int]:
    found: dict[tuple[int, ...], int] = {}
    for one in sequences:
        place = tuple(int(token) for token in one)
        found[place] = found.get(place, 0) + 1
    return found


def by_megatron(folder: Path):
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    for path in sorted(folder.glob("*.idx")):
        dataset = indexed.IndexedDataset(str(path.with_suffix("")))
        assert (dataset.document_indices == np.arange(len(dataset) + 1)).all()
        yield from (dataset[n] for n in range(len(dataset)))


def by_header(folder: Path):
    """Megatron-LM's layout as its documentation has it, without our code."""
    for path in sorted(folder.glob("*.idx")):
        index = path.read_bytes()
        assert index[:9] == b"MMIDIDX\0\0" and int.from_bytes(index[9:17], "little") == 1
        kind = {4: np.int32, 8: np.uint16}[index[17]]
        count, ends = (int.from_bytes(index[n : n + 8], "little") for n in (18, 26))
        lengths = np.frombuffer(index, np.int32, count, 34)
        starts = np.frombuffer(index, np.int64, count, 34 + 4 * count)
        assert np.frombuffer(index, np.int64, ends, 34 + 12 * count).tolist() == list(range(count + 1))
        assert len(index) == 34 + 12 * count + 8 * ends
        data = path.with_suffix(".bin").read_bytes()
        yield from (np.frombuffer(data, kind, n, start) for n, start in zip(lengths, starts, strict=True))


def by_datatrove(folder: Path):
    """datatrove's reader of windows, of one token each, and its positions, which begin anew with each document."""
    dataset = pytest.importorskip("datatrove.utils.dataset")
    for path in sorted(folder.glob("*.ds")):
        size = int((folder / f"{path.name}.metadata").read_text().splitlines()[0].rsplit("|", 1)[1])
        tokens = path.stat().st_size // size
        whole = dataset.DatatroveFileDataset(str(path), tokens - 1, token_size=size, return_positions=True)
        assert len(whole) == 1
        window = whole[0]
        starts = np.flatnonzero(window["positions"].numpy() == 0)
        yield from np.split(window["input_ids"].numpy(), starts[1:])


def by_numpy(folder: Path):
    for path in sorted(folder.glob("*.offsets.npy")):
        tokens = np.load(folder / path.name.replace(".offsets", ""), mmap_mode="r")
        yield from (tokens[a:b] for a, b in np.lib.stride_tricks.sliding_window_view(np.load(path), 2))


READERS = [pytest.param("megatron", by_megatron, marks=pytest.mark.slow)]  # to load it takes 5 s
READERS += [("megatron", by_header), ("nanoset", by_datatrove), ("npy", by_numpy)]


@pytest.mark.parametrize(("layout", "reader"), READERS, ids=lambda value: getattr(value, "__name__", value))
def test_a_formats_own_reader_reads_each_document_as_often_as_decisions_say(made, tmp_path, layout, reader):
    release, tokenizer = made
    done = write_tokens(release, tokenizer, TokenOptions(layout, file_tokens=700), str(tmp_path))
    assert done.cuts > 2 and done.width == "uint16"
    wanted = expected(release, tokenizer)
    assert max(wanted.values()) > 1
    assert counted(reader(Path(done.folder))) == wanted
    assert done.documents == sum(wanted.values()) and done.tokens == sum(len(k) * n for k, n in wanted.items())
    assert verify_tokens(done.folder, release) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_wide_vocabularies_are_read_back_too(made, tmp_path, layout):
    release, narrow = made
    described = json.loads(Path(narrow, "tokenizer.json").read_text())
    model = described["model"]
    model["vocab"] = {token: n + 70_000 * (n > 255) for token, n in model["vocab"].items()}
    for added in described["added_tokens"]:
        added["id"] = model["vocab"][added["content"]]
    wide = tmp_path / "wide"
    wide.mkdir()
    (wide / "tokenizer.json").write_text(json.dumps(described))
    done = write_tokens(release, str(wide), TokenOptions(layout), str(tmp_path))
    assert done.width == ("int32" if layout == "megatron" else "uint32")
    reader = {"megatron": by_header, "nanoset": by_datatrove, "npy": by_numpy}[layout]
    assert counted(reader(Path(done.folder))) == expected(release, str(wide))
    assert verify_tokens(done.folder, release) == []


def test_nanosets_are_the_files_that_datatrove_writes(made, tmp_path):
    """Index and metadata of the same documents in the same order, byte for byte."""
    tokens = pytest.importorskip("datatrove.pipeline.tokens.tokenizer")
    release, tokenizer = made
    folder = Path(write_tokens(release, tokenizer, TokenOptions("nanoset"), str(tmp_path / "ours")).folder)
    theirs = tokens.TokenizedFile(
        str(tmp_path / "theirs"), "tokens_00000.ds", tokenizer_name_or_path="bpe", save_final_metadata=True
    )
    for document in by_datatrove(folder):
        theirs.write(document.tolist(), None)
    theirs.close()
    for path in (tmp_path / "theirs").iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name


def content(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).glob("*")}


def test_the_same_bytes_for_any_workers_cuts_of_the_input_and_order_of_work(made, tmp_path, monkeypatch):
    release, tokenizer = made
    options = TokenOptions("nanoset", seed=3, file_tokens=900)
    first = write_tokens(release, tokenizer, options, str(tmp_path / "a"), here)
    monkeypatch.setattr(token_files, "ITEM_BYTES", 1)
    monkeypatch.setattr(token_files, "BATCH_ROWS", 7)

    def backwards(work, state, items, rows=None, rest=False):
        return list(reversed([work(state, item) for item in reversed(items)]))

    for name, maps in (("b", Threads(3)), ("c", backwards)):
        again = write_tokens(release, tokenizer, options, str(tmp_path / name), maps)
        assert content(again.folder) == content(first.folder)
    other = write_tokens(release, tokenizer, TokenOptions("nanoset", seed=4, file_tokens=900), str(tmp_path / "a"))
    assert other.folder != first.folder and other.tokens == first.tokens
    ours, theirs = (np.concatenate(list(by_datatrove(Path(one.folder)))) for one in (first, other))
    assert (ours != theirs).mean() > 0.5
    assert not write_tokens(release, tokenizer, options, str(tmp_path / "a")).new


@pytest.mark.slow
def test_repeated_rows_give_the_tokens_that_the_column_gives(tmp_path, monkeypatch):
    monkeypatch.setattr(token_files, "ITEM_BYTES", 1)
    monkeypatch.setattr(token_files, "BATCH_ROWS", 2)
    tokenizer = bpe(tmp_path / "bpe", 300)
    found = []
    for rows in (False, True):
        folder = tmp_path / str(rows)
        folder.mkdir()
        release = released_repeatedly(folder, rows=rows)
        done = write_tokens(release, tokenizer, TokenOptions("npy"))
        assert done.folder.startswith(str(folder / "out" / "tokens" / "npy-"))
        assert verify_tokens(done.folder, release) == []
        found.append((Path(done.folder) / "tokens_00000.npy").read_bytes())
    assert found[0] == found[1]


def test_a_column_of_the_corpus_named_repeat_repeats_nothing(tmp_path):
    table = documents(60)
    table = table.append_column("repeat", [np.arange(60)]).append_column("topic", [["theirs"] * 60])
    files = make_masks(make_shard(tmp_path, "s0", table), tmp_path, filters=False)
    release = publish(export([files], settings(), str(tmp_path / "out"), PROVENANCE))
    done = write_tokens(release, bpe(tmp_path / "bpe", 300), TokenOptions("npy"))
    assert done.documents == release.manifest()["conservation"]["total"]["selected"]
    assert verify_tokens(done.folder, release) == []
    card = (Path(release.path) / "README.md").read_text()
    assert "how often it is to be taken" not in card and "the cluster of its vector" not in card


def test_documents_of_all_files_are_mixed_evenly(made, tmp_path):
    """Among the documents of each half of the order, every shard has its share, as a random order has it."""
    keys = token_files.order_keys(0, "s0", np.arange(40_000), np.ones(40_000, np.int64))
    assert len(set(keys.tolist())) == len(keys)
    ranks = np.argsort(np.argsort(keys)) / len(keys)
    assert abs(np.corrcoef(ranks, np.arange(len(keys)))[0, 1]) < 0.02
    counts = np.histogram(keys.astype(float) / 2**64, 100, (0, 1))[0]
    assert ((counts - 400) ** 2 / 400).sum() < 160  # χ² of 99 degrees, p < 1e-4
    copies = token_files.order_keys(0, "s0", np.arange(20_000), np.full(20_000, 2)).reshape(-1, 2)
    assert abs(np.corrcoef(copies.T.astype(float))[0, 1]) < 0.03


def test_what_text_spells_ends_no_document(tmp_path):
    table = documents(60)
    texts = [f"{text} {END} more" if text and text.strip() else text for text in table["text"].to_pylist()]
    files = [make_shard(tmp_path, "s0", table.set_column(0, "text", [texts]))]
    _, release = released(tmp_path, settings(), files)
    done = write_tokens(release, bpe(tmp_path / "bpe", 300), TokenOptions("npy"))
    tokens = np.load(f"{done.folder}/tokens_00000.npy")
    assert (tokens == done.tokenizer["end_id"]).sum() == done.documents > 10


# ---------------------------------------------------------------- interruptions

KILLED = """
import os, sys
from datamask import storage
from datamask.maps import here
from datamask.release.release_folder import find_release
from datamask.release.tokens import token_files
from datamask.release.tokens.token_files import TokenOptions, write_tokens
token_files.ITEM_BYTES = 1
left, publish = [int(sys.argv[4])], storage.publish
def dying(url, durable=True):
    left[0] -= 1
    if left[0] < 0:
        os._exit(9)
    return publish(url, durable)
storage.publish = dying
write_tokens(find_release(sys.argv[1]), sys.argv[2], TokenOptions("megatron", file_tokens=900), sys.argv[3], here)
"""


def goes_on(made, folder: Path, run) -> None:
    """Runs that publish so many files and die; what they leave is right, and the last one ends with the same bytes."""
    release, tokenizer = made
    whole = write_tokens(release, tokenizer, TokenOptions("megatron", file_tokens=900), str(folder / "whole"))
    target, ended, there = folder / "killed", [], {}
    for room in (0, 3, 9, 14, 500):
        ended.append(run(release.path, tokenizer, str(target), room))
        there = content(str(target / Path(whole.folder).name))
        assert there == {name: content(whole.folder)[name] for name in there}
        assert (token_files.RECORD in there) == ended[-1]
    assert ended == [False] * 4 + [True] and there == content(whole.folder)
    assert not list((target / ".work" / "rounds").glob("*"))


class Killed(BaseException):
    pass


def test_an_interrupted_run_goes_on_and_leaves_nothing_half(made, tmp_path, monkeypatch):
    publish = storage.publish

    def run(release, tokenizer, target, room):
        left = [room]

        def dying(url, durable=True):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return publish(url, durable)

        with monkeypatch.context() as patch:
            patch.setattr(token_files, "ITEM_BYTES", 1)
            patch.setattr(storage, "publish", dying)
            with contextlib.suppress(Killed):
                write_tokens(find_release(release), tokenizer, TokenOptions("megatron", file_tokens=900), target, here)
                return True
        return False

    goes_on(made, tmp_path, run)


@pytest.mark.slow
def test_a_killed_run_goes_on_and_leaves_nothing_half(made, tmp_path):
    def run(*arguments):
        ended = subprocess.run([sys.executable, "-c", KILLED, *map(str, arguments)]).returncode
        assert ended in (0, 9)
        return ended == 0

    goes_on(made, tmp_path, run)


# ---------------------------------------------------------------- faults


def described_anew(folder: Path) -> None:
    """As one would who hides a fault: sizes, sums and counts of tokens.json are made to fit."""
    record = json.loads((folder / "tokens.json").read_text())
    layout = LAYOUTS[record["layout"]]
    for file in record["files"]:
        data = (folder / file["path"]).read_bytes()
        file.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        if "tokens" in file:
            index = (folder / file["path"].replace(layout.tokens, layout.index)).read_bytes()
            lengths = layout.read_lengths(index)
            file.update(documents=len(lengths), tokens=int(lengths.sum()))
    for name in ("documents", "tokens"):
        record[name] = sum(file.get(name, 0) for file in record["files"])
    (folder / "tokens.json").write_text(json.dumps(record))


def rewritten(folder: Path, layout_name: str, number: int, change) -> None:
    """A file of tokens and its index with other documents: `change` takes and gives a list of arrays."""
    layout = LAYOUTS[layout_name]
    path, index = (folder / f"tokens_{number:05d}{ending}" for ending in (layout.tokens, layout.index))
    width = json.loads((folder / "tokens.json").read_text())["width"]
    lengths = layout.read_lengths(index.read_bytes())
    data = path.read_bytes()
    tokens = np.frombuffer(data[len(data) - int(lengths.sum()) * np.dtype(width).itemsize :], width)
    after = change(np.split(tokens, np.cumsum(lengths)[:-1]))
    sizes = np.array([len(one) for one in after])
    whole = np.concatenate(after).astype(width)
    path.write_bytes(layout.header(len(whole), width) + whole.tobytes())
    index.write_bytes(layout.render_index(sizes, width))
    for ending, said in layout.beside(len(whole), width, "bpe").items():
        (folder / f"tokens_{number:05d}{ending}").write_bytes(said)


def faults(rng, other: str):
    """(name, change of the documents of a file) of one fault, drawn at random."""

    def missing(found):
        del found[rng.integers(len(found))]
        return found

    def doubled(found):
        return [*found, found[rng.integers(len(found))]]

    def cut_off(found):
        place = max(range(len(found)), key=lambda n: (len(found[n]) > 2, rng.random()))
        found[place] = np.delete(found[place], rng.integers(len(found[place]) - 1))
        return found

    def no_end(found):
        place = rng.integers(len(found))
        found[place] = np.append(found[place][:-1], 5)
        return found

    def swapped_bytes(found):
        return [one.byteswap() for one in found]

    def swapped_places(found):
        a, b = rng.choice(len(found), 2, replace=False)
        while np.array_equal(found[a], found[b]):
            a, b = rng.choice(len(found), 2, replace=False)
        found[a], found[b] = found[b], found[a]
        return found

    def joined(found):
        place = rng.integers(len(found) - 1)
        return [*found[:place], np.concatenate(found[place : place + 2]), *found[place + 2 :]]

    def one_token(found):
        place = rng.integers(len(found))
        found[place] = found[place].copy()
        found[place][rng.integers(len(found[place]))] ^= 1
        return found

    return [missing, doubled, cut_off, no_end, swapped_bytes, swapped_places, joined, one_token]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_planted_fault_is_unseen(made, tmp_path, monkeypatch, layout):
    """200 faults in all: of content, described anew so that no sum tells of them, and of bytes as they happen."""
    release, tokenizer = made
    wanted = token_files._expected
    tokenise = cache(lambda seed, cuts, found: wanted(SimpleNamespace(seed=seed, cuts=cuts), release, found))
    monkeypatch.setattr(token_files, "_expected", lambda done, _, found: tokenise(done.seed, done.cuts, found))
    other = bpe(tmp_path / "other" / "bpe", 290, seed=5)
    done = write_tokens(release, tokenizer, TokenOptions(layout, file_tokens=900), str(tmp_path / "t"))
    elsewhere = write_tokens(release, other, TokenOptions(layout, file_tokens=900), str(tmp_path / "o"))
    reseeded = write_tokens(release, tokenizer, TokenOptions(layout, 1, file_tokens=900), str(tmp_path / "s"))
    whole, folder = Path(done.folder), tmp_path / Path(done.folder).name
    rng = np.random.default_rng(sorted(LAYOUTS).index(layout))
    kinds, unseen, planted = faults(rng, other), [], 0
    files = [file["path"] for file in done.files]
    for number in range(67):
        shutil.copytree(whole, folder)
        cut, kind = int(rng.integers(done.cuts)), kinds[number % len(kinds)]
        name = kind.__name__
        if number < 40:
            rewritten(folder, layout, cut, kind)
            described_anew(folder)
        elif number < 44:  # another tokenizer's, or another seed's, under this one's name
            source = (elsewhere, reseeded)[number % 2]
            name = f"of {source.folder}"
            for path in Path(source.folder).glob("tokens_*"):
                shutil.copy(path, folder)
            described_anew(folder)
        else:
            path = folder / files[rng.integers(len(files))]
            data = bytearray(path.read_bytes())
            name = f"{path.name} {number % 3}"
            if number % 3 == 0:
                path.unlink()
            elif number % 3 == 1:
                path.write_bytes(data[: int(rng.integers(len(data)))])
            else:
                data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
                path.write_bytes(bytes(data))
        planted += 1
        if not verify_tokens(str(folder), release):
            unseen.append(name)
        shutil.rmtree(folder)
    assert unseen == [] and planted == 67
    shutil.copytree(whole, folder)
    assert verify_tokens(str(folder), release) == []


def test_faults_are_named(made, tmp_path):
    release, tokenizer = made
    folder = Path(write_tokens(release, tokenizer, TokenOptions("npy"), str(tmp_path)).folder)
    keep = content(str(folder))
    for change, said in (
        (lambda found: found[1:], "1 documents are missing"),
        (lambda found: [*found, found[0]], "1 documents are there too often"),
        (lambda found: found[::-1], "its documents are in another order"),
        (lambda found: [found[0][1:], *found[1:]], "1 documents are none of the release's"),
    ):
        rewritten(folder, "npy", 0, change)
        described_anew(folder)
        assert any(said in problem for problem in verify_tokens(str(folder), release)), said
        for name, data in keep.items():
            (folder / name).write_bytes(data)
    (folder / "notes.txt").write_text("mine")
    assert verify_tokens(str(folder), release) == [f"{folder}: notes.txt was added"]
    assert "has no tokens.json" in verify_tokens(str(tmp_path), release)[0]
    (tmp_path / "two").mkdir()
    _, other = released(tmp_path / "two", settings(), make_corpus(tmp_path / "two"))
    assert "is of the release with the key" in verify_tokens(str(folder), other)[0]


# ---------------------------------------------------------------- from outside


def test_the_end_token_is_the_configurations_or_a_known_one_or_asked_for(made, tmp_path):
    release, _ = made
    named = bpe(tmp_path / "named", 280, end="[done]")
    with pytest.raises(ConfigError, match=r"names no token that ends a document; give one .*\[done\]"):
        write_tokens(release, named, TokenOptions("npy"), str(tmp_path))
    with pytest.raises(ConfigError, match="has no token <eos>"):
        write_tokens(release, named, TokenOptions("npy", end="<eos>"), str(tmp_path))
    asked = write_tokens(release, named, TokenOptions("npy", end="[done]"), str(tmp_path))
    Path(named, "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "[done]"}}))
    assert write_tokens(release, named, TokenOptions("npy"), str(tmp_path)).folder == asked.folder


def test_a_hub_name_is_read_from_the_hubs_cache(made, tmp_path, monkeypatch):
    release, plain = made
    folder = tmp_path / "hub" / "models--someone--tokenizer"
    snapshot = folder / "snapshots" / ("c" * 40)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{plain}/tokenizer.json", eos_token=END, bos_token="<s>")
    tokenizer.save_pretrained(snapshot)
    (snapshot / "config.json").write_text('{"model_type": "llama"}')
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("c" * 40)
    for module in ("constants", "file_download"):
        monkeypatch.setattr(f"huggingface_hub.{module}.HF_HUB_CACHE", str(tmp_path / "hub"), raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    done = write_tokens(release, "someone/tokenizer", TokenOptions("npy"), str(tmp_path / "named"))
    assert (done.tokenizer["name"], done.tokenizer["end"]) == ("someone/tokenizer", END)
    assert verify_tokens(done.folder, release) == []
    local = write_tokens(release, plain, TokenOptions("npy"), str(tmp_path / "local"))
    assert [(file["path"], file["tokens"]) for file in done.files if "tokens" in file] == [
        (file["path"], file["tokens"]) for file in local.files if "tokens" in file
    ]
    with pytest.raises(ModelError, match="nobody/absent"):
        write_tokens(release, "nobody/absent", TokenOptions("npy"), str(tmp_path))


def test_mistakes_are_one_message(made, tmp_path):
    release, tokenizer = made
    with pytest.raises(ConfigError, match="--format arrow: valid are megatron, nanoset, npy"):
        write_tokens(release, tokenizer, TokenOptions("arrow"), str(tmp_path))
    (tmp_path / "tokenizer.json").write_text('{"model": 1}')
    with pytest.raises(ModelError, match="is broken"):
        write_tokens(release, str(tmp_path), TokenOptions("npy"), str(tmp_path))
    (tmp_path / "empty").mkdir()
    for name, says in {"absent": "no such folder", "empty": "the folder has no tokenizer.json"}.items():
        with pytest.raises(ModelError, match=says):
            write_tokens(release, str(tmp_path / name), TokenOptions("npy"), str(tmp_path))
    copied = tmp_path / "copied"
    shutil.copytree(release.path, copied)
    with pytest.raises(ConfigError, match="--to FOLDER"):
        write_tokens(find_release(str(copied)), tokenizer, TokenOptions("npy"))


def test_command_and_python_do_the_same(made, tmp_path, capsys):
    from datamask.cli import main

    release, tokenizer = made

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return ended.value.code or 0, capsys.readouterr().out

    options = ("--tokenizer", tokenizer, "--format", "nanoset", "--to", str(tmp_path))
    status, out = call("tokens", release.path, *options, "--json")
    record = json.loads(out)
    assert status == 0 and record["new"] and record["documents"] > 0
    done = Release(release.path).tokens(tokenizer, "nanoset", str(tmp_path))
    assert done.folder == record["folder"] and not done.new
    assert "it was there already" in call("tokens", release.path, *options, "--workers", "1")[1]
    assert call("verify", release.path, "--tokens", done.folder)[0] == 0
    assert Release(release.path).verify(tokens=[done.folder]) == []
    Path(done.folder, "tokens_00000.ds").write_bytes(b"")
    status, out = call("verify", release.path, "--tokens", done.folder)
    assert status == 1 and "✗" in out


@pytest.mark.slow
def test_an_object_store_holds_the_same(made, tmp_path, store):
    release, tokenizer = made
    options = TokenOptions("nanoset", file_tokens=9000)
    local = write_tokens(release, tokenizer, options, str(tmp_path))
    remote = write_tokens(release, tokenizer, options, "s3://corpus/tokens")
    assert verify_tokens(remote.folder, release) == []
    assert remote.record() == local.record()
