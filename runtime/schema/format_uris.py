r"""URIs, IRIs, templates of them, and pointers into JSON, as expressions.

RFC 3986 (appendix A), RFC 3987 (section 2.2), RFC 6570 (section 2, levels 1 to 4), RFC 6901 (section 3).
"""

from __future__ import annotations

from treille.runtime.schema.format_hosts import IPV6

_ESCAPED = "%[0-9A-Fa-f]{2}"
_UCS = r"\u{A0}-\u{D7FF}\u{F900}-\u{FDCF}\u{FDF0}-\u{FFEF}" + "".join(
    rf"\u{{{plane:X}0000}}-\u{{{plane:X}FFFD}}" for plane in range(1, 14)
)
_UCS += r"\u{E1000}-\u{EFFFD}"
_PRIVATE = r"\u{E000}-\u{F8FF}\u{F0000}-\u{FFFFD}\u{100000}-\u{10FFFD}"
_PLAIN = "A-Za-z0-9._~!$&'()*+,;=-"
_SCHEME = "[A-Za-z][A-Za-z0-9+.-]*"


def _references(more: str, private: str) -> tuple[str, str]:
    """URIs, and references: these too, or without a scheme, and then without a colon in the first segment.

    `more` characters are unreserved, `private` ones may be in queries.
    """
    plain = more + _PLAIN
    segment = f"(?:[:@{plain}]|{_ESCAPED})"
    no_colon = f"(?:[@{plain}]|{_ESCAPED})"
    literal = rf"\[(?:{IPV6}|[Vv][0-9A-Fa-f]+\.[:{_PLAIN}]+)\]"
    host = f"(?:{literal}|(?:[{plain}]|{_ESCAPED})*)"
    authority = f"(?:(?:[:{plain}]|{_ESCAPED})*@)?{host}(?::[0-9]*)?"
    rest = f"(?:/{segment}*)*"
    absolute = f"//{authority}{rest}|/(?:{segment}+{rest})?"
    tail = rf"(?:\?(?:[:@/?{plain}{private}]|{_ESCAPED})*)?(?:#(?:[:@/?{plain}]|{_ESCAPED})*)?"
    uri = f"{_SCHEME}:(?:{absolute}|{segment}+{rest})?{tail}"
    return uri, f"(?:(?:{_SCHEME}:)?(?:{absolute})?|(?:{_SCHEME}:{segment}+|{no_colon}+){rest}){tail}"


URI, URI_REFERENCE = _references("", "")
IRI, IRI_REFERENCE = _references(_UCS, _PRIVATE)

# The apostrophe is a literal by erratum 6937.
_LITERALS = rf"[!#$&'-;=?-\[\]_a-z~{_UCS}{_PRIVATE}]|{_ESCAPED}"
_NAME_CHAR = f"(?:[A-Za-z0-9_]|{_ESCAPED})"
_VARIABLE = rf"{_NAME_CHAR}(?:\.?{_NAME_CHAR})*(?:\*|:[1-9][0-9]{{0,3}})?"
URI_TEMPLATE = rf"(?:{_LITERALS}|\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"

JSON_POINTER = "(?:/(?:[^~/]|~[01])*)*"
RELATIVE_JSON_POINTER = f"(?:0|[1-9][0-9]*)(?:#|{JSON_POINTER})"
