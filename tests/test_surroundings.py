"""Nothing that a user's machine can cause is told as a defect in datamask."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from datamask import surroundings
from datamask.errors import ConfigError, MachineError
from flows import prefect_settings

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in [*os.environ]:
        if "proxy" in name.lower() or name.startswith("PREFECT_"):
            del os.environ[name]
    surroundings.surroundings_notes()


# ---------------------------------------------------------------- proxies


@pytest.mark.parametrize("given", ["", "intern.example", "127.0.0.1, .example ,", "::1"])
@pytest.mark.parametrize("name", ["ALL_PROXY", "http_proxy", "HTTPS_PROXY"])
def test_loopback_goes_through_no_proxy(name, given, monkeypatch):
    monkeypatch.setenv(name, "socks5://user:secret@10.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", given)
    surroundings.settle()
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"]
    assert {"127.0.0.1", "localhost", "::1"} <= set(os.environ["NO_PROXY"].split(","))
    with httpx.Client() as client:  # httpx is the judge of it
        direct = client._transport
        for url in ("http://127.0.0.1:4200/api", "http://localhost:1", "http://[::1]:1"):
            assert client._transport_for_url(httpx.URL(url)) in (direct, None) or url.startswith("http://[::1]")
        assert given == "intern.example" or client._transport_for_url(httpx.URL("https://intern.example")) is not None
    assert not surroundings.surroundings_notes()


@pytest.mark.parametrize(
    "proxy", ["socks://10.0.0.1:9", "ftp://a:b@x:1", "http://[::1", "http://x:port", "two words", "http://"]
)
def test_a_proxy_that_no_client_can_use_is_left_out_and_said(proxy, monkeypatch):
    monkeypatch.setenv("all_proxy", proxy)
    surroundings.settle()
    [line] = surroundings.surroundings_notes()
    assert line.startswith("all_proxy=") and "is left out" in line and "a:b" not in line
    httpx.Client().close()
    assert "all_proxy" not in os.environ


def test_without_proxies_nothing_is_changed():
    surroundings.settle()
    assert "NO_PROXY" not in os.environ and not surroundings.surroundings_notes()


# ---------------------------------------------------------------- home


@pytest.mark.parametrize("home", ["/nonexistent", "", "/dev/null", "relative/of/nothing"])
def test_a_home_that_is_no_folder_is_replaced_and_said(home, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("os.path.expanduser", lambda path: path.replace("~", home or "~"))
    monkeypatch.setenv("HOME", home)
    surroundings.settle()
    assert os.environ["HOME"] == str(tmp_path / f"datamask-home-{os.getuid()}")
    assert "set HOME to a folder" in surroundings.surroundings_notes()[0]


def test_prefects_records_go_elsewhere_where_the_home_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "home" / ".prefect").mkdir(parents=True)
    (tmp_path / "home" / ".prefect" / "profiles.toml").write_text('active = "mine"\n[profiles.mine]\n')
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(surroundings, "writable", lambda folder: ".prefect" not in str(folder))
    surroundings.settle()
    assert os.environ["PREFECT_HOME"] == str(tmp_path / f"datamask-prefect-{os.getuid()}")
    assert os.environ["PREFECT_PROFILES_PATH"].endswith("home/.prefect/profiles.toml")  # the server it names is kept
    assert os.environ["HOME"] == str(tmp_path / "home") and "set PREFECT_HOME" in surroundings.surroundings_notes()[0]


def test_what_is_compiled_is_kept_outside_the_package_and_comes_with_an_installation(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    assert surroundings.cache_folder() == tmp_path / "prefix/var/cache/datamask"
    made = tmp_path / "prefix/var/cache/datamask/numba"
    made.mkdir(parents=True)
    (made / "loop.nbi").write_text("compiled")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(surroundings, "writable", lambda folder: "prefix" not in str(folder))
    found = surroundings.cache_folder()
    assert found == tmp_path / "cache/datamask" and (found / "numba/loop.nbi").read_text() == "compiled"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the XDG specification says to ignore
    assert surroundings.cache_folder() == Path("~/.cache/datamask").expanduser()


# ---------------------------------------------------------------- streams


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "POSIX", "TERM": "dumb"},
     {"LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)  # fmt: skip
def test_signs_that_a_terminal_lacks_are_replaced_and_json_loses_none(environment):
    text, value = r"'\u2713 \u03bb'", r"{'\xfc': '\u65e5\u672c \U0001f600'}"
    code = f"from datamask.surroundings import *; settle_streams(); print({text}); print(escaped({value}))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment, "PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    text, written = done.stdout.decode("utf-8").splitlines()
    assert text in ("✓ λ", "? ?") and json.loads(written) == {"ü": "日本 \U0001f600"}


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_no_error(closed):
    """Nor in a process that is started, such as Prefect's server."""
    child = "import os; [os.fstat(number) for number in range(3)]"
    settled = "import os, sys; from datamask.surroundings import *; settle_streams()"
    code = f"{settled}; os.execv(sys.executable, [sys.executable, '-c', '{child}'])"
    for command in ("-m datamask.cli config --set select.lamb=0.5", f'-c "{code}"'):
        done = subprocess.run(["bash", "-c", f"{sys.executable} {command} {closed}"], cwd=ROOT, capture_output=True)
        assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- Prefect's settings


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("prefect.toml", "[server\n", "prefect.toml, which Prefect reads settings from, cannot be read"),
        ("pyproject.toml", "= 1\n", "pyproject.toml, which Prefect reads settings from, cannot be read"),
        (".env", b"A=\xff\xfe\n", ".env, which Prefect reads settings from, cannot be read"),
    ],
)
def test_a_broken_file_of_settings_is_named(file, text, said, tmp_path, monkeypatch):
    (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        prefect_settings.api_url()


def test_the_server_is_known_with_the_place_that_names_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    assert prefect_settings.api_url() is None
    (tmp_path / "profiles.toml").write_text('active = "team"\n[profiles.team]\nPREFECT_API_URL = "http://team/api"\n')
    assert prefect_settings.api_url() == ("http://team/api", f"profile team of {tmp_path}/profiles.toml")
    (tmp_path / "pyproject.toml").write_text('[tool.prefect]\napi.url = "http://project/api"\n')
    assert prefect_settings.api_url() == ("http://project/api", "pyproject.toml")
    (tmp_path / "prefect.toml").write_text('[api]\nurl = "http://toml/api"\n')
    assert prefect_settings.api_url() == ("http://toml/api", "prefect.toml")
    (tmp_path / ".env").write_text("export PREFECT_API_URL='http://env/api'\n")
    assert prefect_settings.api_url() == ("http://env/api", ".env")
    monkeypatch.setenv("PREFECT_API_URL", "http://here/api")
    assert prefect_settings.api_url() == ("http://here/api", "the environment")


@pytest.mark.parametrize(
    ("files", "environment", "said"),
    [
        ({".env": "PREFECT_CLIENT_CUSTOM_HEADERS=no\n"}, {}, "PREFECT_CLIENT_CUSTOM_HEADERS in .env"),
        *(
            pytest.param({file: text}, {}, said, marks=pytest.mark.slow)
            for file, text, said in (
                ("pyproject.toml", '[tool.prefect]\nserver.api.port = "x"\n', "SERVER_API_PORT = 'x' in pyproject"),
                ("prefect.toml", "[client]\nmax_retries = -1\n", "PREFECT_CLIENT_MAX_RETRIES = '-1' in prefect.toml"),
            )
        ),
        ({}, {"PREFECT_SERVER_API_PORT": "many"}, "PREFECT_SERVER_API_PORT = 'many' in the environment"),
    ],
)  # fmt: skip
def test_a_wrong_setting_of_prefect_is_named_with_its_place(files, environment, said, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code = "from flows.prefect_settings import load_prefect; load_prefect()"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
        env={**kept, **environment, "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(tmp_path)},
    )  # fmt: skip
    assert "ConfigError" in done.stderr and said in done.stderr


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Could not determine home directory."),
        KeyError("getpwuid(): uid not found: 12345"),
        ModuleNotFoundError("No module named 'flows.curate'", name="flows.curate"),
        ImportError("libGL.so.1: cannot open shared object file"),
        httpx.InvalidURL("Invalid port: ':1'"),
        UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range(128)"),
    ],
)
def test_what_the_machine_causes_is_told_as_such(error):
    outer = ValueError("what a library made of it")
    outer.__cause__ = error
    for each in (error, outer):
        assert isinstance(surroundings.machines_fault(each), MachineError)
    assert surroundings.machines_fault(ZeroDivisionError()) is None
