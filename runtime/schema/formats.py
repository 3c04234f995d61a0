"""`format`: what strings a known format has, as trees.

Each tree matches whole decoded strings, and only ones that the format has. `NARROWED` says where a format has
more: what does not match such a tree may still have the format, so none of them must be negated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from treille.runtime.grammar.parse_ecma import parse_ecma
from treille.runtime.grammar.tree import Tree
from treille.runtime.schema import format_dates, format_hosts, format_uris
from treille.runtime.schema.format_idn import idn_hostname_tree, mail_domain_tree
from treille.runtime.schema.format_regex import regex_tree

_HEX = "[0-9A-Fa-f]"
_BASE64 = "[A-Za-z0-9+/]"

_PATTERNS = {
    "date-time": format_dates.DATE_TIME,
    "date": format_dates.DATE,
    "time": format_dates.TIME,
    "duration": format_dates.DURATION,
    "email": format_hosts.EMAIL,
    "hostname": format_hosts.HOSTNAME,
    "ipv4": format_hosts.IPV4,
    "ipv6": format_hosts.IPV6,
    "uri": format_uris.URI,
    "uri-reference": format_uris.URI_REFERENCE,
    "iri": format_uris.IRI,
    "iri-reference": format_uris.IRI_REFERENCE,
    "uri-template": format_uris.URI_TEMPLATE,
    # RFC 4122, section 3: of any version and variant.
    "uuid": f"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    "json-pointer": format_uris.JSON_POINTER,
    "relative-json-pointer": format_uris.RELATIVE_JSON_POINTER,
    # RFC 4648, section 4. Bits of the padding may be set: decoders may take that.
    "byte": f"(?:{_BASE64}{{4}})*(?:{_BASE64}{{2}}==|{_BASE64}{{3}}=)?",
}

_BUILT: dict[str, Callable[[], Tree]] = {
    "idn-email": lambda: format_hosts.idn_email_tree(mail_domain_tree()),
    "idn-hostname": idn_hostname_tree,
    "regex": regex_tree,
}

FORMATS = frozenset({*_PATTERNS, *_BUILT})

NARROWED: dict[str, str] = {
    "hostname": "labels that begin with xn-- are left out",
    "idn-email": "domains are narrowed as for idn-hostname",
    "idn-hostname": "labels that begin with xn--, long ones, rare scripts and stacked marks are left out",
    "regex": "groups nested more than three deep, back-references and rare escapes are left out",
    "relative-json-pointer": "index manipulation is left out, which drafts up to 7 do not have",
}


@lru_cache(maxsize=len(FORMATS))
def format_tree(name: str) -> Tree:
    """The tree of a format's whole strings. Raises `KeyError` for a name that is not in `FORMATS`."""
    build = _BUILT.get(name)
    return parse_ecma(_PATTERNS[name]) if build is None else build()
