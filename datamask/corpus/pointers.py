"""Small files that stand for large ones which were not fetched: Git LFS, git-annex and Xet pointers."""

from __future__ import annotations

from datamask.errors import InputError
from datamask.storage import open_input

MAX_BYTES = 32 << 10  # of a pointer (git-annex; Git LFS writes less than 1024)
ANNEX = "/annex/objects/"  # in the target of a git-annex link
_LFS = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")
_XET = b"# xet version "


def check_pointer(path: str, size: int) -> None:
    """Whether a file is what its name says and not a pointer to it; told by its first line, whatever its format.

    :raises InputError: it is a pointer; names the command that fetches the data.
    """
    if size > MAX_BYTES:
        return
    with open_input(path) as file:
        first, _, rest = bytes(file.read(1024)).removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    if first.startswith(_LFS):
        stated = [line[5:].strip() for line in rest.split(b"\n") if line.startswith(b"size ")]
        of = f" of {int(stated[0]):,} bytes" if stated and stated[0].isdigit() else ""
        raise InputError(f"{path}: a Git LFS pointer, not the file{of} it stands for; fetch it: git lfs pull")
    if len(first) < 1024 and ANNEX.encode() in first and first.startswith((b"/annex/", b".git/", b"../")):
        raise InputError(f"{path}: a git-annex pointer, not the file it stands for; fetch it: git annex get FILE")
    if first.startswith(_XET):
        raise InputError(f"{path}: a Git Xet pointer, not the file it stands for; fetch it: git lfs pull")
