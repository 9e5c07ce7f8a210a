"""Gathers what `quality_code.py` reads: files of programming languages from packages of Debian, and prose.

    python benchmarks/quality_code_samples.py samples --data '../shared/data/real/real-*.parquet'

Needs apt-get, dpkg-deb and groff, and 360 MB of packages, which are unpacked and not installed. Of each package and
language FILES files at random; markup (HTML, XML, LaTeX) is asked for nowhere. Prose is what stands in /usr/share/doc
of this machine and of the packages, manual pages in its languages, info pages, and documents of the data that are no
code and no whole web pages.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import duckdb

# by the name that Pygments gives a language: the ends of its files' names, and packages
LANGUAGES = """
Ada .ads .adb: gnat-12 libgnatcoll21-dev
C .c .h: gnulib libevent-dev libglib2.0-dev libsdl2-dev libuv1-dev zlib1g-dev
CMake .cmake: cmake-data extra-cmake-modules
CSS .css: fonts-font-awesome libjs-bootstrap libjs-bootstrap4 libjs-jquery-ui
Common-Lisp .lisp: cl-alexandria cl-babel cl-ppcre sbcl-source
Cpp .cpp .hpp .cc: libboost1.74-dev libcereal-dev libsfml-dev nlohmann-json3-dev
Crystal .cr: crystal
D .d .di: libdcontainers-dev libgphobos-11-dev libgtkd-3-dev libmir-core-dev libphobos2-ldc-shared-dev
Emacs-Lisp .el: elpa-helm elpa-magit elpa-markdown-mode elpa-transient elpa-yasnippet
Erlang .erl .hrl: erlang-src
Forth .fs: gforth-common
GAP .g .gi .gd: gap-alnuth gap-guava gap-primgrp
GLSL .glsl .frag .vert: kodi-data
Go .go: golang-github-gin-gonic-gin-dev golang-github-gorilla-mux-dev golang-github-spf13-cobra-dev \
golang-golang-x-net-dev
Haxe .hx: haxe
Java .java: tomcat10-examples
JavaScript .js .mjs: libjs-jquery node-acorn node-express node-lodash node-semver
Lua .lua: awesome lua-lpeg lua-penlight lua-socket
Makefile .mk Makefile: cdbs dpkg-dev quilt
Maxima .mac: maxima-share
Nim .nim: nim
OCaml .ml .mli: libbatteries-ocaml-dev liblwt-ocaml-dev libzarith-ocaml-dev
Octave .m: octave-image octave-signal octave-statistics
OpenSCAD .scad: openscad openscad-mcad
PHP .php: composer php-monolog php-symfony-console php-twig phpunit
Delphi .pas .pp .inc: lazarus-src-2.2
Perl .pl .pm .t: ack devscripts dh-python libdatetime-perl libdbi-perl libdpkg-perl libhtml-tree-perl \
libimage-exiftool-perl libio-socket-ssl-perl libmail-box-perl libmojolicious-perl libmoose-perl libnet-ssleay-perl \
libpod-parser-perl libspreadsheet-writeexcel-perl libtemplate-perl libtext-csv-perl libwww-perl lintian spamassassin
Pike .pike .pmod: pike8.0-core
Prolog .pl: swi-prolog-core swi-prolog-core-packages swi-prolog-nox
Python .py: mercurial-common python3-numpy python3-requests python3-sympy
QML .qml: qml-module-qtquick-controls qml-module-qtquick-controls2
R .R .r: r-cran-testthat
Racket .rkt: racket-common
Ruby .rb: ruby-activesupport ruby-mail ruby-nokogiri ruby-rack ruby-sinatra
Rust .rs: librust-clap-3-dev librust-rand-dev librust-regex-dev librust-serde-dev librust-tokio-dev
SQL .sql: postgresql-15 postgresql-15-pgtap postgresql-15-postgis-3-scripts
Scheme .scm .sld: guile-3.0-libs guile-library
Bash .sh: bash-completion dracut-core git
Tcl .tcl: bwidget tcllib tklib
TypeScript .ts .tsx: node-axios node-chart.js node-chokidar node-commander node-es-module-lexer node-eventemitter3 \
node-globby node-graphql node-immutable node-magic-string node-mj-context-menu node-p-limit node-prosemirror-model \
node-react node-redux node-sinclair-typebox node-terser node-typescript node-undici node-yargs node-zrender
VHDL .vhdl .vhd: ghdl-common
Vala .vapi: valac-0.56-vapi
Verilog .v: iverilog yosys
Vim .vim: vim-airline vim-ale vim-runtime vim-scripts vim-syntastic vim-youcompleteme
"""
FILES, LEAST, MOST = 30, 300, 400_000  # of a package and language; bytes of one
OF_A_KIND, OF_A_PACKAGE = 100, 5  # texts of prose
NO_PROSE = ("thealgorithms_python", "spdx_licenses", "wcxb_page", "tldr_pages")
DOCUMENTATION = {  # kinds, by the names of files
    "copyright": r"copyright",
    "changelog_debian": r"changelog\.debian.*",
    "changelog_upstream": r"change(log|s).*(?<!html)",
    **{kind: rf"{kind}(\.md|\.txt|\.rst|\.debian)?" for kind in ("readme", "news", "todo", "authors", "thanks", "faq")},
    "doc_txt": r"(?!cmakelists).*\.txt",
}


def unpack(package: str, trees: Path) -> Path:
    """The folder of the package's files."""
    tree = trees / package
    if not tree.exists():
        subprocess.run(["apt-get", "download", "-qq", package], cwd=trees, check=True)
        [archive] = trees.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, tree], check=True)
        archive.unlink()
    return tree


def code_of(tree: Path, ends: tuple[str, ...]) -> list[Path]:
    """FILES of the package's files at random."""
    files = [path for path in tree.rglob("*") if path.name.endswith(ends) and path.is_file() and not path.is_symlink()]
    files = sorted(path for path in files if LEAST < path.stat().st_size < MOST)
    return random.Random(tree.name).sample(files, min(FILES, len(files)))


def read(path: Path) -> str:
    return (gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()).decode("utf-8", "replace")


def documentation(roots: list[Path]) -> Iterator[tuple[str, str, str]]:
    """(kind, package, text) of documentation, at random."""
    files = [path for root in roots for path in (root / "usr/share/doc").rglob("*")]
    files = sorted(path for path in files if path.is_file() and not path.is_symlink())
    random.Random(5).shuffle(files)
    for path in files:
        name = path.name.lower().removesuffix(".gz")
        kind = next((kind for kind, form in DOCUMENTATION.items() if re.fullmatch(form, name)), None)
        if kind:
            yield kind, path.parts[path.parts.index("doc") + 1], read(path)


def manuals() -> Iterator[tuple[str, str, str]]:
    """(kind, page, text) of manual pages in each language and of info pages."""
    for folder in sorted(path for path in Path("/usr/share/man").iterdir() if path.is_dir()):
        language = "en" if folder.name.startswith("man") else folder.name
        pages = sorted(path for path in folder.rglob("*.gz") if not path.is_symlink())
        for path in random.Random(1).sample(pages, min(OF_A_KIND, len(pages))):
            source = read(path)
            if not source.startswith(".so"):
                command = ["groff", "-mandoc", "-Tutf8", "-P-c", "-Kutf8"]
                shown = subprocess.run(command, input=source.encode(), capture_output=True).stdout.decode()
                yield f"man_{language}", path.name.partition(".")[0], re.sub(".\b", "", shown)
    for path in sorted(Path("/usr/share/info").glob("*.info*.gz")):
        yield "info", path.name.partition(".")[0], read(path)


def documents(data: str) -> Iterator[tuple[str, str, str]]:
    """(kind, place, text) of the data's documents, at random."""
    query = f"select text, source, language from read_parquet('{data}') where source not in {NO_PROSE}"
    rows = duckdb.sql(query).fetchall()
    random.Random(3).shuffle(rows)
    for place, (text, source, language) in enumerate(rows):
        yield source if source == "udhr2" else f"{source} {language or ''}".strip(), str(place), text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("to", type=Path, help="folder for code/, prose/ and the packages' files")
    parser.add_argument("--data", required=True, help="glob of parquet files")
    options = parser.parse_args()
    trees = options.to / "trees"
    trees.mkdir(parents=True, exist_ok=True)
    for line in LANGUAGES.strip().splitlines():
        (language, *ends), packages = (part.split() for part in line.split(":"))
        for package in packages:
            for place, path in enumerate(code_of(unpack(package, trees), tuple(ends))):
                to = options.to / "code" / language / f"{package}--{place}"
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(path.read_bytes())
    kinds, sources = Counter[str](), Counter[tuple[str, str]]()
    roots = [Path("/"), *sorted(trees.iterdir())]
    for kind, source, text in chain(documentation(roots), manuals(), documents(options.data)):
        if len(text) >= LEAST and kinds[kind] < OF_A_KIND and sources[kind, source] < OF_A_PACKAGE:
            to = options.to / "prose" / kind / f"{source}--{sources[kind, source]}"
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(text)
            kinds[kind] += 1
            sources[kind, source] += 1


if __name__ == "__main__":
    main()
