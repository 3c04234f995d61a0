"""Formats against `datetime`, `ipaddress`, `base64`, `uuid`, `idna`, node and arithmetic."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import itertools
import json
import random
import re
import unicodedata
import uuid
from datetime import date, datetime, timedelta

import idna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.format_texts import has_format, members
from oracles.node_regex import NodeRegex, is_installed

from treille.runtime.errors import UnsupportedConstraint
from treille.runtime.grammar.parse_ecma import parse_ecma

_quick = settings(max_examples=200, deadline=None)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def test_every_day_of_some_years() -> None:
    for year in (1, 4, 100, 400, 1900, 1999, 2000, 2023, 2024, 2096, 2100, 9999):
        for month, day in itertools.product(range(14), range(33)):
            text = f"{year:04}-{month:02}-{day:02}"
            assert has_format("date", text) == _is_date(text), text


def test_every_year_has_the_right_february() -> None:
    for year in range(1, 10000):
        assert has_format("date", f"{year:04}-02-29") == _is_date(f"{year:04}-02-29")
    assert has_format("date", "0000-02-29")


@_quick
@given(st.text("0123456789-", min_size=8, max_size=11))
def test_texts_like_dates(text: str) -> None:
    expected = re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None and text >= "0001" and _is_date(text)
    assert has_format("date", text) == (expected or (text[:4] == "0000" and _is_date("2000" + text[4:])))


@_quick
@given(st.datetimes(), st.integers(-1439, 1439), st.sampled_from(["", ".5", ".000001"]))
def test_times_with_offsets(moment: datetime, offset: int, fraction: str) -> None:
    sign, minutes = "+-"[offset < 0], abs(offset)
    zone = f"{sign}{minutes // 60:02}:{minutes % 60:02}"
    for ending in (zone, "Z"):
        text = f"{moment:%H:%M:%S}{fraction}{ending}"
        assert has_format("time", text)
        assert has_format("date-time", f"{moment.date().isoformat()}T{text}")


@pytest.mark.parametrize("sign", [1, -1])
def test_leap_seconds_are_at_midnight_in_utc(sign: int) -> None:
    """Every offset with the right local time, and with some wrong ones."""
    rng = random.Random(sign)
    ends = [datetime(2016, 12, 31, 23, 59), datetime(2015, 6, 30, 23, 59)]
    for minutes in range(1440):
        offset = f"{'+' if sign > 0 else '-'}{minutes // 60:02}:{minutes % 60:02}"
        for end in ends:
            right = end + sign * timedelta(minutes=minutes)
            wrong = right + timedelta(minutes=rng.choice((1, -1, 10, -10, 60, -60, 600)))
            assert has_format("time", f"{right:%H:%M}:60{offset}")
            assert not has_format("time", f"{wrong:%H:%M}:60{offset}")
            assert has_format("date-time", f"{right:%Y-%m-%dT%H:%M}:60.5{offset}")
            for other in (wrong, right + timedelta(days=1), right - timedelta(days=1)):
                assert not has_format("date-time", f"{other:%Y-%m-%dT%H:%M}:60{offset}")


def test_every_local_time_has_its_leap_second() -> None:
    """All digits of the hours, and of some minutes, with all hours of the offset."""
    for hour, minute, other, sign in itertools.product(range(30), (0, 29, 59, 60), range(25), (1, -1)):
        offset = sign * ((sign * (minute + 1)) % 60 + 60 * other)
        text = f"{hour:02}:{minute:02}:60{'+' if sign > 0 else '-'}{other:02}:{abs(offset) % 60:02}"
        is_time = hour < 24 and minute < 60 and other < 24
        assert has_format("time", text) == (is_time and (60 * hour + minute - offset) % 1440 == 1439), text


@_quick
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**128 - 1))
def test_addresses(small: int, large: int) -> None:
    four, six = ipaddress.IPv4Address(small), ipaddress.IPv6Address(large)
    assert has_format("ipv4", str(four))
    assert not has_format("ipv6", str(four))
    sparse = ipaddress.IPv6Address(large & random.Random(large).getrandbits(128) & (2**128 - 2**70 + 2**30))
    for text in (str(six), six.exploded, str(sparse), str(sparse).upper(), f"::ffff:{four}"):
        assert has_format("ipv6", text)
        assert not has_format("ipv4", text)
        assert has_format("uri", f"http://[{text}]:80/")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["1", "ab", "0000", "12345", "::", ":", "1.2.3.4", ".", "g"]), max_size=17))
def test_texts_like_addresses(parts: list[str]) -> None:
    text = "".join(parts)
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        assert not has_format("ipv6", text)
    else:
        assert has_format("ipv6", text)


def test_octets() -> None:
    for number in range(1100):
        assert has_format("ipv4", f"1.{number}.2.3") == (number < 256)
        assert not has_format("ipv4", f"1.2.3.0{number}")


@_quick
@given(st.binary(max_size=40), st.text("ABab01+/=", max_size=9))
def test_base64(data: bytes, text: str) -> None:
    assert has_format("byte", base64.b64encode(data).decode())
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        assert not has_format("byte", text)
    else:
        # Python also takes what comes after the padding, if it is empty.
        assert has_format("byte", text) == (len(text) % 4 == 0)


@_quick
@given(st.uuids())
def test_uuids(value: uuid.UUID) -> None:
    assert has_format("uuid", str(value))
    assert has_format("uuid", str(value).upper())
    assert not has_format("uuid", value.hex)


@_quick
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=4), max_size=4), st.integers(0, 10**20))
def test_pointers(keys: list[str], up: int) -> None:
    pointer = "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)
    assert has_format("json-pointer", pointer)
    assert has_format("relative-json-pointer", f"{up}{pointer}")
    assert not has_format("json-pointer", pointer + "/~")


@_quick
@given(st.lists(st.text("aAxXnN0-", min_size=1, max_size=7), min_size=1, max_size=4))
def test_host_names(labels: list[str]) -> None:
    plain = [
        re.fullmatch("[^-](?:.*[^-])?", label) and not label.lower().startswith("xn--") for label in labels
    ]
    assert has_format("hostname", ".".join(labels)) == all(plain)


def _is_idn(name: str) -> bool:
    """Whether each label is right for `idna`, the name for the Bidi rule, and nothing is too long."""
    labels = re.split("[.\u3002\uff0e\uff61]", name)
    runs_left = any(unicodedata.bidirectional(one) in ("R", "AL", "AN") for one in name)
    octets = len(labels) - 1
    try:
        for label in labels:
            if label.isascii():
                assert re.fullmatch("[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?", label), label
                assert label[2:4] != "--"
                octets += len(label)
            else:
                idna.check_label(label)
                octets += len(idna.alabel(label))
            if runs_left:
                idna.check_bidi(label, check_ltr=True)
    except idna.IDNAError:
        return False
    return octets <= 253


def test_names_in_unicode_are_right() -> None:
    drawn = members("idn-hostname", 2000, seed=5)
    assert sum(not name.isascii() for name in drawn) > 500
    assert [name for name in drawn if not _is_idn(name)] == []


_SCRIPTS = "abz09-·lßéαβ͵אב׳״بي٠١۰۱कम्\u200c\u200dアぁ・丈실\u0301\u0323\u0483ไุ่ஆாெ.。"


@settings(max_examples=700, deadline=None)
@given(st.text(_SCRIPTS, min_size=1, max_size=7))
def test_names_like_names_in_unicode(name: str) -> None:
    if has_format("idn-hostname", name):
        assert _is_idn(name)


def test_punycode_is_never_too_long() -> None:
    """Labels of the greatest length, with the characters far apart and jumping about."""
    rng = random.Random(1)
    for _ in range(3000):
        low = rng.random() < 0.5
        codes = (
            (0xDF, 0x3C9, 0x450, 0x7A5, 0x103, 0x61) if low else (0xDF, 0x4E00, 0x9FA5, 0xD7A3, 0x3042, 0x61)
        )
        label = "".join(chr(rng.choice(codes) + rng.randint(0, 3 * low)) for _ in range(17 if low else 11))
        assert len(label.encode("punycode")) <= 59
        if has_format("idn-hostname", label):
            assert len(idna.alabel(label)) <= 63


def test_patterns_are_patterns_of_ours() -> None:
    for pattern in members("regex", 1500, seed=2):
        try:
            parse_ecma(pattern)
        except UnsupportedConstraint as error:
            assert "look" in error.keyword, pattern  # what looks ahead inside of a look-behind


@pytest.mark.skipif(not is_installed(), reason="node is not installed")
def test_patterns_are_patterns() -> None:
    with NodeRegex() as node:
        drawn = members("regex", 2000, seed=3)
        assert sum(len(json.dumps(pattern)) > 20 for pattern in drawn) > 200
        assert [pattern for pattern in drawn if node.ask(pattern, ["a"]) is None] == []
