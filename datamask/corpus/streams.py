"""Compressed files to their bytes: every stream, member and frame, to the very end of the file.

    with open_stream("a.jsonl.xz", "jsonl.xz") as stream:
        stream.read(1 << 20)

What a decoder of the libraries passes over without a word is an error here: a second stream that is damaged, bytes
behind the last one, a file that ends within one. Zero bytes between and behind streams are padding (xz's format has
it; tapes and block devices add it to the others).
"""

from __future__ import annotations

import bz2
import contextlib
import io
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import zstandard

from datamask.errors import DatamaskError, InputError, one_line
from datamask.storage import open_input, storage_errors

INPUT_BYTES = 64 << 10  # read at a time: what follows a stream's end is copied once for every stream
ZSTD_INPUT_BYTES = 16 << 10  # its decoder returns all that its input gives: at most 32,768 times as much
OUTPUT_BYTES = 256 << 10
MAX_WINDOW = 1 << 31  # of zstandard: what `zstd --long=31` writes, the format's greatest
MAGIC = {
    "gz": (b"\x1f\x8b",),
    "bz2": (b"BZh",),
    "xz": (b"\xfd7zXZ\0", b"\x5d\0\0"),  # the second: LZMA as it was before xz
    "zst": (b"\x28\xb5\x2f\xfd",),
}
NAMES = {"gz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "zstandard"}
# the longer beginnings, which do not stand in other bytes by chance
_BEGINNINGS = {**MAGIC, "gz": (b"\x1f\x8b\x08",), "bz2": (b"1AY&SY",), "xz": MAGIC["xz"][:1]}
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_DICTIONARY = 0x184D2A5D  # the skippable frame that holds it in a .warc.zst (IIPC, WARC specifications)
_BROKEN = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, ValueError, EOFError)


@contextlib.contextmanager
def damage(path: str) -> Iterator[None]:
    """Turns what pyarrow says of broken data into an `InputError` that names the file; storage errors likewise.

    :raises InputError: see above.
    :raises StorageError, TransientError: see `storage.storage_errors`.
    """
    try:
        with storage_errors(path):
            yield
    except DatamaskError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not {error.encoding}, in which it was to be read ({one_line(error)}); "
            "name another: --set corpus.encoding=…"
        ) from error
    except (pa.ArrowException, OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: damaged or truncated ({one_line(error)}); copy it again from its source") from error


@contextlib.contextmanager
def raw_stream(path: str, format_: str) -> Iterator[Any]:
    """The file's bytes, decompressed as they are read; use it inside `damage`, which names a torn file.

    :raises InputError: while it is read: the file is damaged, is truncated, or holds other bytes than its name says.
    """
    compression = format_.partition(".")[2]
    with open_input(path) as file:
        if compression == "zip":
            with _only_member(file, path) as stream:
                yield stream
        elif compression:
            yield io.BufferedReader(PiecesStream(Decompressed(file, path, compression).pieces()), OUTPUT_BYTES)
        else:
            yield pa.PythonFile(file, mode="r")


@contextlib.contextmanager
def open_stream(path: str, format_: str, encoding: str = "utf-8") -> Iterator[Any]:
    """The same as UTF-8, whatever it is in; bytes that are none in UTF-8 pass as they are."""
    with raw_stream(path, format_) as stream:
        if encoding == "utf-8":
            yield stream
        else:
            source = stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="r")
            try:
                yield pa.transcoding_input_stream(source, encoding, "utf-8")
            except UnicodeDecodeError as error:
                error.encoding = encoding  # Python calls all tables of one byte "charmap"
                raise


class PiecesStream(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._ready = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and (piece := next(self._pieces, None)) is not None:
            self._ready = memoryview(piece)
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


class Decompressed:
    """The bytes of a file that is one compressed stream after another.

    :param kind: gz, bz2, xz or zst.
    """

    def __init__(self, file: Any, path: str, kind: str) -> None:
        self._file, self._path, self._kind = file, path, kind
        self._new: Callable[[], Any] = {
            "gz": _Gzip, "bz2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor, "zst": _Zstandard,
        }[kind]  # fmt: skip
        self._step = ZSTD_INPUT_BYTES if kind == "zst" else INPUT_BYTES
        self._taken = 0  # bytes of the file that were read
        self._input = b""  # those not yet given to a decoder
        self._decoder: Any = None
        self._streams = 0
        self._start = 0  # the place in the file where the current stream begins

    def pieces(self) -> Iterator[bytes]:
        while self._decoder is not None or self._begin():
            decoder = self._decoder
            if decoder.needs_input and not self._input:
                self._fill(1)
            try:
                data: bytes = decoder.decompress(self._input, OUTPUT_BYTES)
            except _BROKEN as error:
                raise self._broken(error) from error
            ended = decoder.needs_input and not self._input
            self._input = b""
            if decoder.eof:
                self._input, self._decoder = decoder.unused_data, None
            elif ended and not data:
                said = f"within the {NAMES[self._kind]} stream that begins at byte {self._start:,}"
                raise self._damaged(f"it ends at byte {self._taken:,}, {said}")
            if data:
                yield data

    def _fill(self, size: int) -> bool:
        """Reads on until `size` bytes wait; False: the file ends before."""
        while len(self._input) < size:
            more = self._file.read(self._step)
            if not more:
                return False
            self._taken += len(more)
            self._input += more
        return True

    def _begin(self) -> bool:
        """Starts the decoder of the next stream; False: there is none."""
        padding = self._streams > 0
        while True:
            if padding:
                self._input = self._input.lstrip(b"\0")
            if not self._input:
                if not self._fill(1):
                    return False
                continue
            self._fill(8)
            if self._kind != "zst" or int.from_bytes(self._input[:4], "little") not in _SKIPPABLE:
                break
            self._skip_frame()
            padding = True
        self._start = self._taken - len(self._input)
        if not self._input.startswith(MAGIC[self._kind]):
            raise self._unlike()
        if self._kind == "zst":
            self._fill(18)  # a frame's head, which says what it asks for
        self._decoder = self._new()
        self._streams += 1
        return True

    def _skip_frame(self) -> None:
        """Passes over a zstandard frame that holds no data, or takes the dictionary that it holds."""
        start = self._taken - len(self._input)
        number, size = struct.unpack("<II", self._input[:8])
        held = number == _DICTIONARY and not self._streams
        content, left = [], size + 8
        while left:
            if not self._input and not self._fill(1):
                raise self._damaged(f"it ends within the zstandard frame that begins at byte {start:,}")
            content.append(self._input[:left] if held else b"")
            taken = min(left, len(self._input))
            self._input, left = self._input[taken:], left - taken
        if held:
            data = b"".join(content)[8:]
            try:
                if data.startswith(MAGIC["zst"]):
                    data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
                dictionary = zstandard.ZstdCompressionDict(data)
                _Zstandard(dictionary)
            except _BROKEN as error:
                said = f"the zstandard dictionary in its first frame: {one_line(error)}"
                raise self._damaged(said) from error
            self._new = lambda: _Zstandard(dictionary)

    def _broken(self, error: Exception) -> InputError:
        name = NAMES[self._kind]
        said = one_line(error).removeprefix("zstd decompressor error: ")
        if "ictionary" in said:
            return InputError(
                f"{self._path}: compressed with a zstandard dictionary, which is not in the file; unpack it with that "
                "dictionary: zstd -d -D DICTIONARY FILE"
            )
        where = f"the {name} stream that begins at byte {self._start:,}"
        if self._streams > 1:
            where += f", {'the second' if self._streams == 2 else f'number {self._streams:,}'} of the file"
        return self._damaged(f"{where}: {said}")

    def _damaged(self, what: str) -> InputError:
        return InputError(f"{self._path}: damaged or truncated ({what}); copy it again from its source")

    def _stream_follows(self) -> bool:
        """Whether another stream seems to begin behind this place: to cut the file here would lose its rows."""
        magic = re.compile(b"|".join(map(re.escape, _BEGINNINGS[self._kind])))
        while not magic.search(self._input):
            self._input = self._input[-16:]
            if not self._fill(len(self._input) + 1):
                return False
        return True

    def _unlike(self) -> InputError:
        """What stands at a place where a stream should begin."""
        name, begins = NAMES[self._kind], self._input[:16]
        if self._streams:
            remedy = f" or, if that has the same bytes, cut them off: head -c {self._start} FILE > NEW"
            return InputError(
                f"{self._path}: damaged or truncated (at byte {self._start:,}, behind {self._streams:,} {name} "
                f"{'stream' if self._streams == 1 else 'streams'}, stands what is no {name}: {begins!r}); copy it "
                f"again from its source{'' if self._stream_follows() else remedy}"
            )
        other = next((kind for kind, magic in MAGIC.items() if begins.startswith(magic[0])), None)
        if begins.startswith(b"PK\x03\x04"):
            other = "zip"
        seems = f"{NAMES.get(other, other)}; rename it to .{other}" if other else "no such data"
        if not other and begins.isascii() and b"\0" not in begins:
            page = begins.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml"))
            remedy = "copy it again from its source" if page else f"rename it without .{self._kind}"
            seems = f"{'a page of HTML or XML (what a server answers?)' if page else 'not compressed'}; {remedy}"
        return InputError(f"{self._path}: its name says {name}, but it is {seems} (it begins with {begins!r})")


class _Gzip:
    """zlib's decoder with the face of bz2's and lzma's."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def __getattr__(self, name: str) -> Any:  # eof, unused_data
        return getattr(self._inner, name)

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: bytes, limit: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, limit)


class _Zstandard:
    """zstandard's decoder with the face of bz2's and lzma's; it returns all that its input gives."""

    needs_input = True

    def __init__(self, dictionary: zstandard.ZstdCompressionDict | None = None) -> None:
        decoder = zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=MAX_WINDOW)
        self._inner = decoder.decompressobj()

    def __getattr__(self, name: str) -> Any:  # eof, unused_data
        return getattr(self._inner, name)

    def decompress(self, data: bytes, limit: int) -> bytes:
        return self._inner.decompress(data)


# ---------------------------------------------------------------- zip


@contextlib.contextmanager
def _only_member(file: Any, path: str) -> Iterator[Any]:
    """The one file of a zip archive; what other systems add beside it (__MACOSX, .DS_Store) is none.

    :raises InputError: it has none or several, is encrypted, is packed in a way that Python cannot undo, or holds
        files that its directory does not list.
    """
    with zipfile.ZipFile(file) as archive:
        members = [info for info in archive.infolist() if not info.is_dir() and not _is_hidden(info.filename)]
        if len(members) != 1:
            raise InputError(f"{path}: an archive of {len(members)} files, not of one; unpack it into a folder")
        [member] = members
        if member.flag_bits & 1:
            raise InputError(f"{path}: an encrypted archive; unpack it with its password: unzip -P PASSWORD FILE")
        if len(archive.infolist()) == 1:
            _check_unlisted(file, path, archive, member)
        try:
            stream = archive.open(member)
        except (NotImplementedError, RuntimeError) as error:
            raise InputError(
                f"{path}: packed in a way that cannot be undone here ({one_line(error)}); unpack it: 7z x FILE"
            ) from error
        with stream:
            yield stream


def _is_hidden(name: str) -> bool:
    return name.startswith("__MACOSX/") or name.rsplit("/", 1)[-1].startswith(("._", ".DS_Store"))


def _check_unlisted(file: Any, path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Whether another archive stands before or behind: Python reads the last directory alone.

    :raises InputError: one does.
    """
    place = file.tell()
    file.seek(0)
    before = file.read(4) == b"PK\x03\x04" and member.header_offset > 0
    file.seek(archive.start_dir)
    behind = b"".join(iter(lambda: file.read(INPUT_BYTES), b""))
    ends = behind.find(b"PK\x05\x06")
    behind = behind[ends + 22 + len(archive.comment) :]
    file.seek(place)
    if before or behind.strip(b"\0"):
        raise InputError(
            f"{path}: holds more than its archive's directory lists (two archives in one file?); unpack it: 7z x FILE"
        )
