"""What the machine around a process lacks or imposes: streams, proxies, home folder, user name. Settled once, at start.

    settle()             # what libraries would stop at; nothing of it changes what is computed
    settle_streams()     # a command's own; a program that imports datamask sees to its own

Libraries meet these things late, in places that cannot say what to do. Imports nothing that takes time.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

from datamask.errors import MachineError, causes, one_line

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_NOTES: dict[str, None] = {}  # lines for the user, each once


def settle() -> None:
    """Gives libraries a home folder, a user's name and usable proxies, and spares loopback the proxies.

    :raises MachineError: there is no working directory, which libraries ask for.
    """
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise MachineError("the folder that this was started in is not there any more; cd to one that is") from error
    _spare_loopback()
    _find_home()
    try:
        getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user id without an entry, as in many containers
        os.environ["LOGNAME"] = f"uid{os.getuid()}"


def shown(path: str) -> str:
    """A path as text: a byte of a name that is not UTF-8 becomes `\\xe9`. `storage.filesystem` finds the file by it."""
    data = os.fsencode(path)
    try:
        return data.decode()
    except UnicodeDecodeError:  # a backslash that could be taken for such a byte is given as one too
        return data.replace(b"\\x", b"\\x5cx").decode("utf-8", "backslashreplace")


def surroundings_notes() -> list[str]:
    """What `settle` changed that a user should know; each line is given once."""
    found = list(_NOTES)
    _NOTES.clear()
    return found


# ---------------------------------------------------------------- streams


def settle_streams() -> None:
    """Standard streams that are there and take every sign: one that does not fit is replaced, rather than an error."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed by who began this process: the next file that is opened would be taken for it
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # Prefect's server writes to it too
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):  # another program's own stream
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def escaped(value: Any, indent: int | None = None) -> str:
    """`value` as JSON for standard output: signs that its encoding does not hold are escaped, so that none is lost."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=str)
    return text


# ---------------------------------------------------------------- proxies


def _spare_loopback() -> None:
    """Where proxies are set, requests to this machine itself do without; one that no client can use is left out."""
    named = [name for name in os.environ if name.lower() in PROXIES and os.environ[name]]
    if not named:
        return
    given = next((os.environ[name] for name in ("no_proxy", "NO_PROXY") if os.environ.get(name)), "")
    hosts = [host for host in (each.strip() for each in given.split(",")) if host]
    hosts += [host for host in LOOPBACK if host not in hosts and "*" not in hosts]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(hosts)
    for name in named:
        if why := _unusable(os.environ[name]):
            shown = re.sub(r"(?<=//)[^/@]*@", "…@", os.environ.pop(name))  # without its password
            _NOTES[f"{name}={shown} is left out: {why}"] = None


def _unusable(proxy: str) -> str:
    """Why no HTTP client takes this address for a proxy's; empty if they do."""
    from urllib.parse import urlsplit

    schemes = ("http", "https", "socks5", "socks5h")
    try:
        found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        _ = found.port
    except ValueError as error:
        return f"it is no address ({one_line(error)})"
    if found.scheme not in schemes:
        return f"a proxy's address begins with {', '.join(f'{scheme}://' for scheme in schemes[:-1])} or socks5h://"
    return "" if found.hostname and not re.search(r"\s", proxy) else "it names no host"


# ---------------------------------------------------------------- folders


def _find_home() -> None:
    """A home folder where there is none, and another place for Prefect where the home cannot be written."""
    home = os.path.expanduser("~")  # noqa: PTH111  # which raises nothing, unlike Path.home
    if not os.path.isdir(home):  # noqa: PTH112
        why = f"HOME={home} is no folder" if os.environ.get("HOME") else "there is no home folder (HOME)"
        os.environ["HOME"] = str(private_folder("home"))
        _NOTES[f"{why}: {os.environ['HOME']} is taken for it; set HOME to a folder that can be written"] = None
    elif not os.environ.get("PREFECT_HOME") and not writable(Path(home, ".prefect")):
        place = private_folder("prefect")
        _NOTES[f"{home}/.prefect cannot be written: Prefect's records go to {place}; set PREFECT_HOME"] = None
        os.environ["PREFECT_HOME"] = str(place)
        if os.access(profiles := Path(home, ".prefect", "profiles.toml"), os.R_OK):
            os.environ.setdefault("PREFECT_PROFILES_PATH", str(profiles))


def writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or in it once it is made."""
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def private_folder(name: str) -> Path:
    """A folder in the system's temporary folder that this user's processes share and nobody else can write to.

    :raises MachineError: somebody else has put something there, or it cannot be made.
    """
    try:
        folder = Path(tempfile.gettempdir(), f"datamask-{name}-{os.getuid()}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()  # others may foresee the name: what they made, or a link of theirs, is not ours
    except OSError as error:
        raise MachineError(f"no temporary folder can be written ({one_line(error)}); set TMPDIR to one") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise MachineError(f"{folder} is not a folder that you alone can write to; remove it, or set TMPDIR")
    return folder


def cache_folder() -> Path | None:
    """Where what is compiled and bundled is kept, outside the package: with the installation, else with the user.

    None: nowhere can be written.
    """
    installed = Path(sys.prefix, "var", "cache", "datamask")
    if writable(installed):
        return installed
    asked = os.environ.get("XDG_CACHE_HOME", "")
    places = [Path(asked if os.path.isabs(asked) else os.path.expanduser("~/.cache"), "datamask")]  # noqa: PTH111, PTH117
    with contextlib.suppress(MachineError):
        places.append(private_folder("cache"))
    return next((_seeded(place, installed) for place in places if place.is_absolute() and writable(place)), None)


def _seeded(place: Path, installed: Path) -> Path:
    """`place`, which begins with what came with an installation that cannot be written."""
    if installed.is_dir() and not place.exists():
        import shutil

        made = place.with_name(f"{place.name}.{os.getpid()}.tmp")
        try:
            shutil.copytree(installed, made)
            made.rename(place)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
    return place


# ---------------------------------------------------------------- errors


def machines_fault(error: BaseException) -> MachineError | None:
    """The message for an error that a library made of something on this machine; None: it has another cause."""
    for cause in causes(error):
        text = one_line(cause)
        if isinstance(cause, ImportError):
            own = (cause.name or "").partition(".")[0] in ("datamask", "flows", "tasks")
            what = "datamask is not whole" if own else "a library cannot be loaded"
            return MachineError(f"{what} ({text}); install datamask again: pip install --force-reinstall …")
        if isinstance(cause, RuntimeError) and "home directory" in text:
            return MachineError(f"{text}; set HOME to a folder that can be written")
        if isinstance(cause, KeyError) and "uid not found" in text:
            return MachineError(f"this user id has no name on this machine ({text}); set LOGNAME to one")
        if isinstance(cause, UnicodeEncodeError) and cause.encoding.replace("-", "").lower() not in ("utf8", "utf16"):
            return MachineError(f"this machine's encoding is {cause.encoding} ({text}); set PYTHONUTF8=1")
        if type(cause).__module__.partition(".")[0] in ("ssl", "httpx", "httpcore", "socksio"):
            what = f"the network, or what this machine sets for it, failed ({type(cause).__name__}: {text})"
            return MachineError(f"{what}; look at HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE")
        if type(cause).__module__ == "sqlite3":
            return MachineError(f"Prefect's database in {os.environ.get('PREFECT_HOME', '~/.prefect')} failed: {text}")
    return None
