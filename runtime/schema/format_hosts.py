r"""Names and addresses of hosts, and of people at them, as expressions.

`ipv4`: the dotted quad of RFC 2673, section 3.2. `ipv6`: RFC 4291, section 2.2, without zones. `hostname`:
RFC 1123, section 2.1, labels of at most 63 and names of at most 253 characters. `email`: the Mailbox of RFC
5321, section 4.1.2, to the letter; the lengths of section 4.5.3.1 are what a server must at least take, and
limit nothing.

A label that begins with `xn--` is the Punycode of one in Unicode (RFC 5891). Whether it is right cannot be
told with a small automaton, so `hostname` has none of them.
"""

from __future__ import annotations

from treille.runtime.grammar.parse_ecma import parse_ecma
from treille.runtime.grammar.tree import Choice, Sequence, Tree

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"

_GROUP = "[0-9A-Fa-f]{1,4}"


def _ipv6(ipv4: str, skipped: int) -> str:
    """Addresses where `::` is at least so many groups of zeros, and `ipv4` may be the last two groups."""
    options = [f"(?:{_GROUP}:){{7}}{_GROUP}", f"(?:{_GROUP}:){{6}}{ipv4}"]
    most = 8 - skipped
    for before in range(most + 1):
        start = f"{_GROUP}(?::{_GROUP}){{{before - 1}}}" if before else ""
        after = most - before
        rest = [f"{_GROUP}(?::{_GROUP}){{0,{after - 1}}}"] if after else []
        if after >= 2:
            rest.append(f"(?:{_GROUP}:){{0,{after - 2}}}{ipv4}")
        options.append(f"{start}::" + (f"(?:{'|'.join(rest)})?" if rest else ""))
    return f"(?:{'|'.join(options)})"


IPV6 = _ipv6(IPV4, 1)

_NAME_END = r"(?=[^]{1,253}$)"


def _label() -> str:
    """Up to 63 letters, digits and, inside, hyphens; a label that begins with `xn--` is left out.

    Written out, for a look-ahead costs at every step that has it in view.
    """
    sign = "[A-Za-z0-9]"

    def rest(length: int) -> str:
        """At most so many characters, of which the last is no hyphen."""
        return f"(?:[A-Za-z0-9-]{{0,{length - 1}}}{sign})"

    after_n = f"{sign}{rest(60)}?|-(?:{sign}{rest(59)}?)"
    after_x = f"[A-MO-Za-mo-z0-9]{rest(61)}?|-{rest(61)}|[Nn](?:{after_n})?"
    return f"(?:[A-WYZa-wyz0-9]{rest(62)}?|[Xx](?:{after_x})?)"


_LABEL = _label()
HOSTNAME = rf"{_NAME_END}{_LABEL}(?:\.{_LABEL})*"

# RFC 5321 lets numbers begin with zeros, and has `::` stand for two groups at least.
_SNUM = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]{1,2})"
_MAIL_IPV4 = rf"{_SNUM}(?:\.{_SNUM}){{3}}"
_LITERAL = rf"\[(?:{_MAIL_IPV4}|[Ii][Pp][Vv]6:{_ipv6(_MAIL_IPV4, 2)})\]"


def _local_part(more: str) -> str:
    """What stands before the `@`; `more` are characters that are taken as letters are."""
    atom = f"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{more}-]+"
    quoted = rf'"(?:[ !#-\[\]-~{more}]|\\[ -~])*"'
    return rf"(?:{atom}(?:\.{atom})*|{quoted})"


_SUB_DOMAIN = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN = rf"(?:{_SUB_DOMAIN}(?:\.{_SUB_DOMAIN})*|{_LITERAL})"
EMAIL = f"{_local_part('')}@{_DOMAIN}"


def idn_email_tree(domain: Tree) -> Tree:
    """The Mailbox of RFC 6531, section 3.3; `domain`: the tree of the domains with U-labels."""
    local = parse_ecma(_local_part("\\u{80}-\\u{10FFFF}") + "@")
    return Sequence((local, Choice((parse_ecma(_DOMAIN), domain))))
