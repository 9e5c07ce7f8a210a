"""Input and output on an object store: paths are URLs, and everything else stays as it is.

pip install 'datamask[s3]'; AWS_ENDPOINT_URL and the usual AWS_* variables say which store
python examples/object_store.py s3://BUCKET/FOLDER
"""

import sys
import tempfile
from pathlib import Path

import fsspec
from made_corpus import SMALL, write_dump

from datamask import Release, curate


def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        dump = write_dump(Path(folder))
        fsspec.filesystem("s3").put_file(str(dump), f"{url}/dumps/{dump.name}")
    curate(f"{url}/dumps/*.parquet", f"{url}/out", config=SMALL)
    release = Release(f"{url}/out/latest")
    print(release)
    print(release.dataset().count_rows(), "documents;", release.verify() or "verified")


if __name__ == "__main__":
    main(sys.argv[1])
