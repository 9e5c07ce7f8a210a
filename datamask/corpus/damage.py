"""What libraries say of broken files, as errors that name the file and what helps."""

from __future__ import annotations

import contextlib
import lzma
import zipfile
import zlib
from collections.abc import Iterator

import pyarrow as pa

from datamask.errors import DatamaskError, InputError, one_line
from datamask.storage import storage_errors


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
