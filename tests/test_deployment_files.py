"""compose.yaml, the charts' values, the image and the Makefile's extras fit together; no daemon is needed to see it."""

import gzip
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prefect.settings import Settings
from ruamel.yaml import YAML

from datamask import checks
from datamask.config import validate
from datamask.corpus.inputs import find_inputs
from datamask.errors import ConfigError, InputError, MissingExtraError

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def read(name):
    return YAML(typ="safe").load((ROOT / "deployments" / name).read_text())


def known_to_prefect(names):
    """Those that are no environment variable of a setting of Prefect."""
    schema = json.dumps(Settings.model_json_schema()).upper()
    return [name for name in names if name.startswith("PREFECT_") and not re.search(rf"\b{name}\b", schema)]


def test_the_services_of_compose_wait_for_what_exists_and_can_tell_that_it_is_healthy():
    services = read("compose.yaml")["services"]
    assert set(services) == {"database", "server", "register", "worker"}
    for service in services.values():
        for name, asked in service.get("depends_on", {}).items():
            if asked["condition"] == "service_healthy":
                assert services[name]["healthcheck"]["test"][0] == "CMD"
            else:
                assert services[name]["restart"] == "no"
    volumes = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])]
    assert set(volumes) == {"database", "${DATA"} and set(read("compose.yaml")["volumes"]) == {"database", "data"}


def test_every_variable_of_compose_and_the_charts_is_a_setting_of_prefect():
    names = [name for service in read("compose.yaml")["services"].values() for name in service["environment"]]
    server = read("helm/server.yaml")
    names += [entry["name"] for entry in [*server["global"]["prefect"]["env"], *server["server"]["env"]]]
    assert len(names) > 12 and not known_to_prefect(names)


def test_what_compose_starts_is_in_the_image():
    copied = re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
    assert "deployments" in " ".join(copied).split()
    command = read("compose.yaml")["services"]["register"]["command"]
    assert command[0] == "python" and (ROOT / command[1]).exists()


def test_the_image_holds_every_extra_that_installs_beside_the_constraints():
    assert "'.[all]'" in (ROOT / "Dockerfile").read_text()
    [listed] = EXTRAS["all"]
    assert set(re.findall(r"\w+", listed.split("[")[1])) == set(EXTRAS) - {"all", "dev", "openvino"}


def test_make_installs_extras_beside_the_editable_installation():
    done = subprocess.run(
        ["make", "-n", "-o", ".venv/.core", "curate", "EXTRAS=dask,ray"], cwd=ROOT, capture_output=True, text=True
    )
    assert "--editable '.[dask,ray]'" in done.stdout and "curate --sample" in done.stdout, done.stderr
    plain = subprocess.run(["make", "-n", "-o", ".venv/.core", "curate"], cwd=ROOT, capture_output=True, text=True)
    assert "pip" not in plain.stdout


@pytest.mark.parametrize(
    ("settings", "formats", "module", "extra"),
    [
        ({"run": {"engine": "dask"}}, [], "prefect_dask", "dask"),
        ({"run": {"engine": "ray"}}, [], "prefect_ray", "ray"),
        ({"filter": {"languages": ["en"]}}, [], "pycld2", "languages"),
        ({"filter": {"identify": "always"}}, [], "pycld2", "languages"),
        ({"quality": {"scorers": [{"kind": "fasttext", "model": "x.bin", "name": "f"}]}}, [], "fasttext", "fasttext"),
        ({"release": {"personal": "flag"}}, [], "phonenumbers", "personal"),
        ({}, ["jsonl", "warc.gz"], "fastwarc", "web"),
        ({}, ["wet"], "trafilatura", "web"),
    ],
)
def test_a_missing_package_is_told_before_any_work(settings, formats, module, extra, monkeypatch):
    config = validate(settings)
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == module else True)
    with pytest.raises(MissingExtraError, match=re.escape(f"pip install 'datamask[{extra}]'")) as caught:
        checks.check_packages(config, formats)
    assert caught.value.exit_code == 4 and extra in EXTRAS
    monkeypatch.setattr(checks, "find_spec", lambda name: True)
    checks.check_packages(config, formats)


@pytest.mark.parametrize("section", ["encoder", "select"])
def test_a_device_that_is_not_here_is_told_before_any_work(section):
    with pytest.raises(ConfigError, match=rf"^{section}\.device: device cuda:99 is asked for"):
        checks.check_devices(validate({section: {"device": "cuda:99"}}))
    checks.check_devices(validate({section: {"device": "cuda:99"}, "run": {"engine": "dask"}}))  # its workers have it


@pytest.mark.parametrize("given", [{"PORT": "4391"}, {}])
def test_a_second_port_beside_a_running_server_is_refused(given, tmp_path):
    """The record names this test's own process as the server that runs at 4390."""
    import psutil

    (tmp_path / "server.pid").write_text(f"{os.getpid()} {psutil.Process().create_time()} 4390")
    code = "import sys; sys.argv[1:] = ['up']; import local_server; print(local_server.PORT)"
    environment = {name: value for name, value in os.environ.items() if name != "PORT"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
        env={**environment, **given, "PREFECT_HOME": str(tmp_path), "PYTHONPATH": "deployments"},
    )  # fmt: skip
    if given:
        assert done.returncode == 1 and "runs at http://127.0.0.1:4390 already" in done.stderr
    else:
        assert done.stdout.strip() == "4390", done.stderr  # again: at the port where it runs


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"filter": {"where": "quality_scor > 0.5"}}, ConfigError, 'did you mean "quality_score"'),
        ({"filter": {"where": "langage = 'en'"}}, ConfigError, "unknown column langage"),
        ({"corpus": {"columns": {"text": "body"}}}, InputError, "no column 'body'"),
        ({"corpus": {"columns": {"url": "adress"}}}, InputError, "no file has a column 'adress'"),
        ({"select": {"quotas": [{"column": "sorce", "minimum": {"a": 0.1}}]}}, ConfigError, "'sorce'"),
    ],
)
def test_a_column_that_no_parquet_file_has_is_told_by_the_footers(settings, error, said, tmp_path):
    for name in "ab":
        table = pa.table({"text": ["a text"], "id": ["1"], "source": ["s"], "address": ["x"]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    files = find_inputs([str(tmp_path)]).files
    with pytest.raises(error, match=said):
        checks.check_footers(files, validate(settings))
    checks.check_footers(files, validate({}))


@pytest.mark.parametrize("name", ["a.jsonl", "b.csv.gz"])
def test_a_column_that_no_text_file_has_is_told_by_its_first_rows(name, tmp_path):
    """As an error if they are all, as a line if later rows may have it; what is well passes."""
    rows = [{"text": "a text", "source": f"s{number}"} for number in range(9)]
    head = "text,source\n" if "csv" in name else ""
    text = head + "".join(f"{row['text']},{row['source']}\n" if head else json.dumps(row) + "\n" for row in rows)
    pack = gzip.compress if name.endswith("gz") else bytes
    (tmp_path / name).write_bytes(pack(text.encode()))
    files = find_inputs([str(tmp_path)]).files
    for settings, said in (
        ({"filter": {"where": "sorce = 's1'"}}, "sorce"),
        ({"filter": {"where": "source === 's1'"}}, "where"),
        ({"corpus": {"columns": {"text": "body"}}}, f"{tmp_path / name}.*no column 'body'"),
        ({"select": {"quotas": [{"column": "sorce", "minimum": {"a": 0.1}}]}}, "'sorce'"),
    ):
        with pytest.raises((ConfigError, InputError), match=said):
            checks.check_heads(files, validate(settings))
    assert checks.check_heads(files, validate({"filter": {"where": "source = 's1'"}})) == ""
    (tmp_path / name).write_bytes(pack((text + (text.removeprefix(head) * 20_000)).encode()))
    files = find_inputs([str(tmp_path)]).files
    assert "later rows may have it" in checks.check_heads(files, validate({"filter": {"where": "sorce = 's1'"}}))


def test_a_file_that_is_damaged_is_left_for_the_run_to_tell(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    checks.check_footers(find_inputs([str(tmp_path)]).files, validate({"filter": {"where": "no_such > 1"}}))
