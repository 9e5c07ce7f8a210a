"""Addresses in one spelling: hosts in lower case and IDNA's letters, without `www.`, port, user and last dot.

normalise_addresses(pa.array(["HTTP://www.Example.com:80/a/#top"]))     # example.com/a, and the host example.com
normalise_host("*.Bücher.example.")                                    # xn--bcher-kva.example
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import idna
import pyarrow as pa
import pyarrow.compute as pc

# RFC 3986, section 3: scheme, user, host, port; what follows up to the fragment
ADDRESS = (
    r"^\s*(?:[A-Za-z][A-Za-z0-9+.\-]*:)?(?://)?(?:[^/?#@\s]*@)?"
    r"(?P<host>\[[^\]]*\]|[^/?#:\s]*)(?::\d*)?(?P<rest>[^#\s]*)"
)
HOST = r"^[a-z][a-z0-9+.-]*://(?:[^/?#@]*@)?(?:www\.)?(?P<host>[^/:?#@\s]+)"  # of what has a scheme


def normalise_host(host: str) -> str:
    """A host name in lower case and ASCII (UTS 46), without a wildcard, `www.` or dots at its ends."""
    found = host.strip().lower().removeprefix("*").strip(".")
    if not found.isascii():
        try:
            found = idna.encode(found, uts46=True).decode()
        except idna.IDNAError:
            return found
    return re.sub(r"^www\d?\.(?=.*\.)", "", found)


def hosts_of(urls: pa.Array) -> pa.Array:
    """The host that each URL names, in small letters, without www., port and user; null: it names none."""
    found = pc.struct_field(pc.extract_regex(pc.utf8_lower(urls), HOST), "host")
    return pc.utf8_rtrim(found, ".")


def normalise_addresses(addresses: pa.Array) -> tuple[pa.Array, pa.DictionaryArray]:
    """(addresses without scheme, port, fragment and last slash; their hosts), (n,) each, null where there is none."""
    parts = pc.extract_regex(addresses.cast(pa.string()), ADDRESS)
    coded = pc.struct_field(parts, "host").dictionary_encode()
    hosts = pa.array([normalise_host(host) for host in coded.dictionary.to_pylist()], pa.string())
    rest = pc.utf8_rtrim(pc.struct_field(parts, "rest"), "/")
    named = pa.DictionaryArray.from_arrays(coded.indices, hosts)
    return pc.binary_join_element_wise(hosts.take(coded.indices), rest, ""), named


def domains_of(host: str) -> Iterator[str]:
    """The host and the domains that it lies in, the nearest first."""
    while host:
        yield host
        host = host.partition(".")[2]
