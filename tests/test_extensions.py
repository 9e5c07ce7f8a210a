"""What an extension does wrong is told by its own name, file and line, never as a defect of datamask."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datamask import extensions, select
from datamask.config import Config, EncoderSettings, Filter, OwnFilter, ScorerSettings
from datamask.encoders.own import OwnEncoder
from datamask.encoders.pin import pin_own
from datamask.errors import ConfigError, ModelError, StorageError, TransientError
from datamask.filter.built_in import Own, filters_of
from datamask.quality.documents import Documents
from datamask.quality.scorers import OwnScorer

SOURCE = """\
import numpy as np

class Broken:
    def __init__(self, *given): pass
    def score(self, documents): return [1 / len(text) for text in documents.texts]
    def keep(self, documents): return documents["words"]
    def value(self, masks): return masks.nothing

class Gone:
    def score(self, documents): raise FileNotFoundError("words.txt")

class Letters:
    def score(self, documents): return ["a" for _ in documents.texts]

class Needy:
    needs = ("text",)
    def score(self, documents): return np.zeros(len(documents))

class Named:
    signals = "stops"
    def score(self, documents): return np.zeros(len(documents))
"""
DOCUMENTS = Documents(np.arange(2), ["a text", ""])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def scorer(file: Path, name: str) -> OwnScorer:
    return OwnScorer(extensions.require("scorer", f"{file}:{name}").make({}), name)


def test_a_class_that_is_not_there_is_told_with_those_that_are(file: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"mine\.py has no class Broke \(its classes: Broken, Gone, Letters, Needy, Named\)"
    ):
        extensions.require("scorer", f"{file}:Broke").load()


def test_what_a_scorer_raises_is_told_with_its_line(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.py, line 5, in .*: ZeroDivisionError: division by zero"):
        scorer(file, "Broken").score(DOCUMENTS)
    with pytest.raises(FileNotFoundError, match=r"mine\.py, line 10, in score: FileNotFoundError: words.txt"):
        scorer(file, "Gone").score(DOCUMENTS)
    file.write_text('class Folder:\n    def score(self, documents): return open("/").read()\n')
    with pytest.raises(StorageError, match=r"mine\.py, line 2, in score: IsADirectoryError: .*: '/'"):
        scorer(file, "Folder").score(DOCUMENTS)


@pytest.mark.parametrize(
    ("raised", "told", "kind"),
    [
        ("raise ConnectionResetError('peer')", "ConnectionResetError: peer", TransientError),
        ("raise SystemExit(3)", "SystemExit: 3", ConfigError),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'", ConfigError),
    ],
)
def test_what_no_line_was_told_of_is_told_with_it(tmp_path: Path, raised: str, told: str, kind: type) -> None:
    file = tmp_path / "raises.py"
    file.write_text(f"class Raises:\n    def score(self, documents):\n        {raised}\n")
    with pytest.raises(kind, match=rf"raises\.py, line 3, in score: {told}"):
        scorer(file, "Raises").score(DOCUMENTS)


def test_a_file_that_ends_python_is_told(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("raise SystemExit('usage: ends.py FILE')\n")
    with pytest.raises(ConfigError, match=r"ends\.py:X\) cannot be loaded: usage: ends\.py FILE"):
        scorer(tmp_path / "ends.py", "X")


def test_what_a_filter_or_a_metric_raises_is_told_with_its_line(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.py, line 6, in keep: KeyError"):
        Own(OwnFilter(use=f"{file}:Broken")).keep(pa.table({"text": ["a"]}))
    with pytest.raises(ConfigError, match=r"mine\.py, line 7, in value: AttributeError"):
        select(np.eye(6), np.arange(6), algorithm=f"{file}:Broken", solver="random", budget_documents=2)


def test_an_answer_that_is_none_is_told_with_the_class(file: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"scorer Letters: score\(documents\) gives \(n,\) numbers: ValueError: could not"
    ):
        scorer(file, "Letters").score(DOCUMENTS)
    (file.parent / "vectors.py").write_text("class Same:\n    def encode(self, texts): return texts\n")
    with pytest.raises(ConfigError, match=r"encoder .*vectors.py:Same: ValueError: could not convert string"):
        pin_own(extensions.require("encoder", name := f"{file.parent}/vectors.py:Same"), EncoderSettings(model=name))


@pytest.mark.parametrize(("answer", "gave"), [("None", "NoneType"), ("(t for t in documents)", "generator")])
def test_an_answer_that_is_no_array_is_told_by_its_type(tmp_path: Path, answer: str, gave: str) -> None:
    (tmp_path / "answers.py").write_text(
        f"class One:\n    def keep(self, documents): return {answer}\n    def encode(self, texts): return None\n"
    )
    with pytest.raises(ConfigError, match=f"filter.own: One gave {gave} for 1 documents"):
        Own(OwnFilter(use=f"{tmp_path}/answers.py:One")).keep(pa.table({"text": ["a"]}))
    name = f"{tmp_path}/answers.py:One"
    with pytest.raises(ModelError, match="One gave NoneType for 1 texts"):
        pin_own(extensions.require("encoder", name), EncoderSettings(model=name))


def test_scores_that_are_no_numbers_are_told_with_the_class(tmp_path: Path) -> None:
    (tmp_path / "letters.py").write_text(
        "import numpy as np\nfrom datamask.quality import Scores\n\nclass Letters:\n"
        "    def score(self, documents): return Scores(['a', 'b'], np.zeros((2, 0)))\n"
    )
    with pytest.raises(ConfigError, match=r"scorer Letters: score\(documents\) gives \(n,\) numbers: ValueError"):
        scorer(tmp_path / "letters.py", "Letters").score(DOCUMENTS)


def test_a_panic_of_a_library_in_rust_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "panics.py").write_text(
        "class PanicException(BaseException): pass\n\nclass Panics:\n"
        "    def score(self, documents): raise PanicException('index out of bounds')\n"
    )
    with pytest.raises(ConfigError, match=r"panics\.py, line 4, in score: PanicException: index out of bounds"):
        scorer(tmp_path / "panics.py", "Panics").score(DOCUMENTS)


def test_what_a_scorer_changes_in_place_no_other_scorer_sees(tmp_path: Path) -> None:
    (tmp_path / "changes.py").write_text(
        "class Changes:\n    def score(self, documents):\n        documents.texts[0] = 'another'\n"
        "        documents.vectors[:] = 0\n        documents.columns['stars'][:] = 0\n        return [1, 2]\n"
    )
    documents = Documents(np.arange(2), ["a", "b"], np.ones((2, 3)), columns={"stars": np.ones(2)})
    scorer(tmp_path / "changes.py", "Changes").score(documents)
    assert documents.texts == ["a", "b"]
    assert documents.vectors is not None and documents.vectors.all() and documents.columns["stars"].all()


def made_by(name: str) -> str:
    """What the class of a name makes, beside the key that stands for its code."""
    own = extensions.require("scorer", name)
    key = own.fingerprint()
    return f"{own.make({}).score(None)} by {key}"


def test_an_edited_module_is_imported_again_in_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "edited_package"
    package.mkdir()
    (package / "__init__.py").write_text("from edited_package.inner import Inner\n")
    source = "class Inner:\n    def score(self, documents): return {}\n"
    for name in ("edited_package:Inner", "edited_package.inner:Inner"):
        (package / "inner.py").write_text(source.format(1))
        first = made_by(name)
        (package / "inner.py").write_text(source.format(22))
        second = made_by(name)
        (package / "inner.py").write_text(source.format(1))
        assert (first[:2], second[:2]) == ("1 ", "22")
        assert made_by(name) == first != second


def test_a_module_that_was_edited_before_its_first_use_here_is_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tried_first.py").write_text("class Tried:\n    def score(self, documents): return 1\n")
    assert importlib.import_module("tried_first").Tried().score(None) == 1
    (tmp_path / "tried_first.py").write_text("class Tried:\n    def score(self, documents): return 22\n")
    assert made_by("tried_first:Tried").startswith("22")


def test_code_that_is_edited_while_a_run_runs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SOURCE + "    def encode(self, texts): return np.ones((len(texts), 4))\n")
    pinned = OwnScorer.pin(ScorerSettings(kind=f"{file}:Named"), Config())
    settings_of_encoder = EncoderSettings(model=f"{file}:Named", dimensions=4)
    encoder = pin_own(extensions.require("encoder", settings_of_encoder.model), settings_of_encoder)
    file.write_text(file.read_text().replace("np.ones", "np.zeros"))
    edited = r"mine\.py:Named.* is not the code that this run began with: it was edited meanwhile"
    with pytest.raises(ConfigError, match=f"scorer .*{edited}"):
        OwnScorer.load(pinned, Config(), "")
    with pytest.raises(ConfigError, match=f"encoder .*{edited}"):
        OwnEncoder(encoder)


METRICS = """\
import torch

class Short:
    def __init__(self, pool, weights, size): self.count = len(weights)
    def value(self, masks): return torch.zeros(3, 5)

class Array(Short):
    def value(self, masks): return masks.sum(dim=1).numpy()

class Endless(Short):
    def value(self, masks): return torch.full((len(masks),), float("nan"))

class NoArguments(Short):
    def __init__(self): pass

class NoGradient(Short):
    def value(self, masks): return masks.sum(dim=1).double()
    def relaxed(self, mask): return 1.0

class Convex(Short):
    def value(self, masks): return masks[:, ::3].sum(dim=1).double() ** 2
    def relaxed(self, mask):
        gradient = torch.zeros(self.count, dtype=torch.float64)
        gradient[::3] = 2 * mask[::3].sum()
        return float(mask[::3].sum()) ** 2, gradient

class Downhill(Short):
    def value(self, masks): return -masks[:, :20].sum(dim=1).double() ** 2
    def relaxed(self, mask): return -float(mask[:20].sum()) ** 2, 2 * mask[:20].sum() * (torch.arange(60) < 20)
"""
SOLVERS = """\
import numpy as np
import torch
from datamask.selection.problem.problem import Draft

class Nothing:
    def solve(self, problem, progress): return None

class Mask:
    def solve(self, problem, progress): return torch.ones(len(problem), dtype=torch.bool)

class Short:
    def solve(self, problem, progress): return Draft(torch.ones(3, dtype=torch.bool), torch.ones(3))
class Array:
    def solve(self, problem, progress): return Draft(np.arange(6) < 2, torch.ones(6))
class NotANumber:
    def solve(self, problem, progress): return Draft(torch.arange(6) < 2, torch.full((6,), torch.nan))
class NoProgress:
    def solve(self, problem): pass
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Short", r"value\(masks\) gave \(3, 5\); expected a tensor of shape \(2,\)"),
        ("Array", r"value\(masks\) gave ndarray; expected a tensor"),
        ("Endless", r"value\(masks\) gave what is not finite"),
        ("NoArguments", r"': TypeError: .*takes 1 positional argument but 4"),
        ("NoGradient", r"': TypeError: cannot unpack non-iterable float"),
        ("Downhill", r"the gradient that relaxed\(mask\) gives is not that of its value"),
        ("Convex", r"above its bound .* a metric's relaxed\(mask\) gives a concave function"),
    ],
)
def test_a_metric_that_answers_wrongly_is_refused_by_name(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "metrics.py").write_text(METRICS)
    generator, solver = np.random.default_rng(0), "relaxation" if name == "Convex" else "random"
    features, quality = generator.standard_normal((60, 4)), generator.random(60)
    with pytest.raises(ConfigError, match=rf"metrics\.py:{name}.*{message}"):
        select(features, quality, algorithm=f"{tmp_path}/metrics.py:{name}", solver=solver, budget_documents=12)


def test_what_a_metric_changes_in_place_is_its_own(tmp_path: Path) -> None:
    source = "class {}:\n    def __init__(self, pool, weights, size):\n        {}\n        self.shares = weights\n"
    source += "    def value(self, masks): return (masks.double() @ self.shares).sqrt()\n"
    ways = {"Copies": "weights = weights / size", "Changes": "weights /= size"}
    (tmp_path / "shares.py").write_text("".join(source.format(*way) for way in ways.items()))
    tokens = np.arange(10, 70)
    copies, changes = (
        select(
            np.eye(60), np.arange(60), algorithm=f"{tmp_path}/shares.py:{name}", solver="random", tokens=tokens,
            budget_tokens=500,
        )
        for name in ways
    )  # fmt: skip
    assert changes.objective == copies.objective


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nothing", r" gave a NoneType; .* a Draft, .* of shape \(6,\)"),
        ("Mask", r" gave a Tensor; .* a Draft, .* of shape \(6,\)"),
        ("Short", r" gave .*\[3\].*; .* a Draft, .* of shape \(6,\)"),
        ("Array", r" gave a ndarray; .* whose selected is a tensor"),
        ("NotANumber", r" gave .*\[6\].*; .* whose probability is a tensor of shape \(6,\), finite"),
        ("NoProgress", r": TypeError: .*takes 2 positional arguments but 3"),
    ],
)
def test_a_solver_that_answers_wrongly_is_refused_by_name(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "solvers.py").write_text(SOLVERS)
    with pytest.raises(ConfigError, match=rf"solvers\.py:{name}{message}"):
        select(np.eye(6), np.arange(6), solver=f"{tmp_path}/solvers.py:{name}", budget_documents=2)


@pytest.mark.parametrize("name", ["near_duplicate", "contained", "exact_duplicate", "selected", "not_selected"])
def test_a_filter_is_not_called_as_another_outcome(file: Path, name: str) -> None:
    config = Config(filter=Filter(own=[OwnFilter(use=f"{file}:Broken", name=name)]))
    with pytest.raises(ConfigError, match=f"two filters are called {name}"):
        filters_of(config, None)


def test_our_own_defects_stay_ours(file: Path) -> None:
    with pytest.raises(ZeroDivisionError), extensions.named_in_errors():
        _ = 1 / 0


def test_declarations_that_are_none_are_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="scorer Needy needs text; valid: texts, languages, vectors, encoder_scores"):
        scorer(file, "Needy")
    with pytest.raises(ConfigError, match="scorer Named: signals is 'stops'; it must be a tuple of names"):
        scorer(file, "Named")
    for declared in ("None", "7", "('a', 'b', 'a')"):
        (file.parent / "rules.py").write_text(f"class One:\n    signals = {declared}\n    def score(self, d): ...\n")
        with pytest.raises(ConfigError, match="scorer One: signals is .*; it must be a tuple of names, each once"):
            scorer(file.parent / "rules.py", "One")
    (file.parent / "rules.py").write_text(
        "class One:\n    def score(self, d): ...\n    @property\n    def needs(self): raise OSError(2, 'no words')\n"
    )
    with pytest.raises(FileNotFoundError, match=r"rules\.py, line 4, in needs"):
        scorer(file.parent / "rules.py", "One")
    (file.parent / "rules.py").write_text("class One:\n    columns = 'text'\n    def keep(self, documents): ...\n")
    with pytest.raises(ConfigError, match="filter.own: One: columns is 'text'; it must be a tuple of names"):
        Own(OwnFilter(use=f"{file.parent}/rules.py:One"))
    with pytest.raises(ConfigError, match="unknown filter 'rules.py'; valid: MODULE:CLASS$"):
        extensions.require("filter", "rules.py")
