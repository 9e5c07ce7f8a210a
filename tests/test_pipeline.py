"""What a changed setting makes again: the stages whose keys change, and no others."""

import shutil
from dataclasses import replace

import pytest

from datamask import storage
from datamask.config import Config, load_config
from datamask.corpus.convert import convert_shard
from datamask.corpus.identify import identify_shard
from datamask.corpus.index import index_shard
from datamask.corpus.shards import plan_shards
from datamask.encoders.choose import prepare_encoder
from datamask.encoders.embed import embed_shard
from datamask.filter.duplicates import find_duplicates
from datamask.filter.filters import filter_corpus
from datamask.filter.leaks import find_leaks
from datamask.filter.signatures import sign_shard
from datamask.pipeline import INDIFFERENT, STAGES
from datamask.quality import prepare_quality, score_shard
from datamask.selection.cover.counting import with_atoms
from datamask.selection.stage import learn_prices, mask_shard
from datamask.stages import ShardFiles
from tests.flows.conftest import SMALL, write_shard

READ = {"languages", "signatures", "encoder", "quality", "index"}
UNFITTED = {"atoms", "leaks"}  # with signatures: of the text alone
SCORED = {"embed", "score"}
DECIDED = {"filter", "duplicates", "prices", "mask"}
OTHERWISE = {  # of the indifferent settings, another value
    "encoder.device": "cpu",
    "encoder.batch_tokens": 128,
    "select.device": "cpu",
    "filter.memory_limit": "2GB",
}
CHANGES = {
    "corpus.columns={url: link}": READ | UNFITTED | SCORED | DECIDED,
    "corpus.drop=[date]": (READ | UNFITTED | SCORED | DECIDED) - {"encoder"},
    "encoder.vocabulary=501": {"encoder", "index"} | SCORED | DECIDED,
    "encoder.prompt='a: '": {"index"} | SCORED | DECIDED,
    "quality.scorers=[{kind: heuristic}]": {"quality", "score"} | DECIDED,
    "filter.min_tokens=1": {"filter"},  # no row's reason changes, so nothing after it does
    "filter.min_tokens=90": DECIDED,
    "filter.contamination=0.6": {"filter"},
    "duplicates.jaccard=0.36": {"duplicates"},
    "select.lamb=0.6": {"prices", "mask"},
    "select.seed=1": {"prices", "mask"},
    "select.semantic_duplicates=0.06": set(),  # by embeddings, which are not asked for
    "release.name=other": set(),
    "run.workers=1": set(),
    **{f"{setting}={value}": set() for setting, value in OTHERWISE.items()},
}


def keys(config: Config, work: str) -> dict[str, set[str]]:
    """The keys of each stage's files, made by plain calls where they are not there."""
    shards = [convert_shard(shard, config, work) for shard in plan_shards(config.corpus, work).shards]
    shards = [identify_shard(shard, config, work) for shard in shards]
    encoder = prepare_encoder(shards, config, work)
    quality = prepare_quality(shards, encoder, config, work)
    all_files = []
    for shard in shards:
        files = ShardFiles(shard, signatures=sign_shard(shard, config, work))
        files = replace(files, index=index_shard(shard, encoder, config, work))
        files = replace(files, embeddings=embed_shard(files, encoder, config, work))
        files = replace(files, scores=score_shard(files, quality, encoder, config, work))
        all_files.append(replace(with_atoms(files, config, work), leaks=find_leaks(files.shard, config, work)))
    filtered = filter_corpus(all_files, config, work)
    all_files = [replace(files, filters=output) for files, output in zip(all_files, filtered, strict=True)]
    duplicates = find_duplicates(all_files, config, work)
    all_files = [replace(files, duplicates=output) for files, output in zip(all_files, duplicates, strict=True)]
    prices = learn_prices(all_files, config, work)
    masks = [mask_shard(files, prices, config, work) for files in all_files]
    found = {"encoder": {encoder.path.rsplit("/", 1)[1]}, "quality": {quality.fingerprint}, "prices": {prices.key}}
    found |= {"languages": {shard.beside.fingerprint for shard in shards}, "mask": {mask.key for mask in masks}}
    kinds = {"index": "index", "embed": "embeddings", "score": "scores", "signatures": "signatures", "atoms": "atoms"}
    kinds |= {"leaks": "leaks"}
    found |= {stage: {getattr(files, kind).key for files in all_files} for stage, kind in kinds.items()}
    for stage in ("filter", "duplicates"):  # of the corpus: a shard's file is named by its own rows
        folder = storage.filesystem(f"{work}/{STAGES[stage].folder}")
        found[stage] = {path.rsplit("/", 1)[1] for path in folder[0].glob(f"{folder[1]}/corpus-*.json")}
    return found


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rekeyed")
    write_shard(folder / "corpus", 0, count=40)
    (folder / "items.txt").write_text("the quick brown fox jumps over the lazy dog and runs away into the dark wood\n")
    settings = [f"corpus.input=[{folder / 'corpus'}]", f"filter.decontaminate=[{folder / 'items.txt'}]"]
    settings += [*SMALL, "filter.identify=always"]
    return settings, str(folder / "work"), keys(load_config(overrides=settings), str(folder / "work"))


@pytest.mark.parametrize("change", CHANGES)
def test_a_setting_makes_again_what_depends_on_it_and_no_more(corpus, change, tmp_path):
    settings, work, before = corpus
    shutil.copytree(work, tmp_path / "work")
    after = keys(load_config(overrides=[*settings, change]), str(tmp_path / "work"))
    assert {stage for stage in after if not after[stage] <= before[stage]} == CHANGES[change]


def test_what_is_declared_is_a_setting():
    config = Config().model_dump()
    for stage in STAGES.values():
        for name in (*stage.settings, *stage.without):
            section, _, setting = name.partition(".")
            assert setting in config[section] or not setting, name
        assert all(name.partition(".")[0] in stage.settings for name in stage.without)
    assert INDIFFERENT - {"corpus.input"} == OTHERWISE.keys()


def test_a_key_is_of_the_stage_its_version_its_settings_and_what_it_is_given():
    stage, config = STAGES["prices"], Config()
    key = stage.key(config, ["a"])
    assert key == stage.key(load_config(overrides=["select.device=cpu", "release.name=other"]), ["a"])
    others = [replace(stage, version=99), replace(stage, name="mask"), replace(stage, settings=("filter",))]
    assert key not in [other.key(config, ["a"]) for other in others]
    assert key not in [
        stage.key(config, ["b"]),
        stage.key(load_config(overrides=["select.seed=1"]), ["a"]),
        stage.key(None, ["a"]),
    ]
