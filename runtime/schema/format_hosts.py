r"""Names and addresses of hosts, and of people at them, as expressions.

`ipv4`: the dotted quad of RFC 2673, section 3.2. `ipv6`: RFC 4291, section 2.2, without zones. `hostname`: RFC 1123,
section 2.1, labels of 63 and names of 253 characters. `email`: the Mailbox of RFC 5321, section 4.1.2, to the
letter; the lengths in section 4.5.3.1 are what a server must at least take, and limit nothing.

A label that begins with `xn--` is the Punycode of one in Unicode (RFC 5891). Whether it is right cannot be told
with a small automaton: `hostname` has none of them.
"""

from __future__ import annotations

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"

_GROUP = "[0-9A-Fa-f]{1,4}"


def _ipv6(ipv4: str, skipped: int) -> str:
    """Addresses where `::` stands for at least so many groups of zeros, and `ipv4` for the last two groups."""
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

_LETTER_OR_DIGIT = "[A-Za-z0-9]"
_NAME_END = r"(?=[^]{1,253}$)"
_LABEL = "(?![Xx][Nn]--)(?=[A-Za-z0-9-]{1,63}(?:\\.|$))[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
HOSTNAME = rf"{_NAME_END}{_LABEL}(?:\.{_LABEL})*"

# RFC 5321 lets numbers begin with zeros, and has `::` stand for two groups at least.
_SNUM = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]{1,2})"
_MAIL_IPV4 = rf"{_SNUM}(?:\.{_SNUM}){{3}}"
_LITERAL = rf"\[(?:{_MAIL_IPV4}|[Ii][Pp][Vv]6:{_ipv6(_MAIL_IPV4, 2)})\]"


def _mailbox(more: str, domain: str) -> str:
    """A Mailbox; `more` are characters, besides those in ASCII, that may stand for letters."""
    atom = f"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{more}-]+"
    quoted = rf'"(?:[ !#-\[\]-~{more}]|\\[ -~])*"'
    return rf"(?:{atom}(?:\.{atom})*|{quoted})@(?:{domain}|{_LITERAL})"


_SUB_DOMAIN = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
EMAIL = _mailbox("", rf"{_SUB_DOMAIN}(?:\.{_SUB_DOMAIN})*")
_WIDE_SUB_DOMAIN = (
    "[A-Za-z0-9\\u{80}-\\u{10FFFF}](?:[A-Za-z0-9\\u{80}-\\u{10FFFF}-]*[A-Za-z0-9\\u{80}-\\u{10FFFF}])?"
)
IDN_EMAIL = _mailbox("\\u{80}-\\u{10FFFF}", rf"{_WIDE_SUB_DOMAIN}(?:\.{_WIDE_SUB_DOMAIN})*")
