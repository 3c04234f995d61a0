"""`format`: what strings a known format has, as trees.

Each tree matches whole decoded strings, and no more of them than the format has. `NARROWED` says where it has less:
such a tree must not be negated.
"""

from __future__ import annotations

from functools import lru_cache

from treille.runtime.grammar.parse_ecma import parse_ecma
from treille.runtime.grammar.tree import Tree
from treille.runtime.schema import format_dates, format_hosts, format_uris

_HEX = "[0-9A-Fa-f]"
_UUID = f"{_HEX}{{8}}-{_HEX}{{4}}-@{_HEX}{{3}}-#{_HEX}{{3}}-{_HEX}{{12}}"
_BASE64 = "[A-Za-z0-9+/]"

_PATTERNS = {
    "date-time": format_dates.DATE_TIME,
    "date": format_dates.DATE,
    "time": format_dates.TIME,
    "duration": format_dates.DURATION,
    "email": format_hosts.EMAIL,
    "idn-email": format_hosts.IDN_EMAIL,
    "hostname": format_hosts.HOSTNAME,
    "idn-hostname": format_hosts.HOSTNAME,
    "ipv4": format_hosts.IPV4,
    "ipv6": format_hosts.IPV6,
    "uri": format_uris.URI,
    "uri-reference": format_uris.URI_REFERENCE,
    "iri": format_uris.IRI,
    "iri-reference": format_uris.IRI_REFERENCE,
    "uri-template": format_uris.URI_TEMPLATE,
    "uuid": _UUID.replace("@", _HEX).replace("#", _HEX),
    "json-pointer": format_uris.JSON_POINTER,
    "relative-json-pointer": format_uris.RELATIVE_JSON_POINTER,
    "regex": r"[^\\()\[\]{}*+?|]*",
    "byte": f"(?:{_BASE64}{{4}})*(?:{_BASE64}{{2}}==|{_BASE64}{{3}}=)?",
}

FORMATS = frozenset(_PATTERNS)

NARROWED: dict[str, str] = {
    "hostname": "no label that begins with xn--",
    "idn-hostname": "no label that begins with xn--",
    "regex": "groups nested at most three deep",
}


@lru_cache(maxsize=len(FORMATS))
def format_tree(name: str) -> Tree:
    """The tree of a format's whole strings. Raises `KeyError` for a name that is not in `FORMATS`."""
    return parse_ecma(_PATTERNS[name])
