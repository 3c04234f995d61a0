"""The inputs of `masks.py`: regexes that mean the same in each engine, and a text that each of them accepts.

Two sources: thirty regexes picked by hand, and the `pattern`s of JSON Schemas in a folder of MaskBench files
(`{schema, tests: [{valid, data}]}`). A schema's pattern is an ECMA-262 search; `search_to_full` writes the
regex that takes the same texts whole, with each class spelled out, for engines that know no search.
"""

from __future__ import annotations

import json
import re
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from masks_convert import NotConverted, search_to_full
from masks_texts import sample_text

PICKED = {
    "date": r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    "time": r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?",
    "e-mail": r"[a-zA-Z0-9._%+-]{1,64}@([a-zA-Z0-9-]{1,63}\.){1,4}[a-zA-Z]{2,10}",
    "url": r"https?://[a-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%-]*)*(\?[^#\s]*)?(#\S*)?",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "ipv4": r"((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])",
    "ipv6": r"([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|(([0-9a-fA-F]{1,4}:){0,6}[0-9a-fA-F]{1,4})?::"
    r"(([0-9a-fA-F]{1,4}:){0,6}[0-9a-fA-F]{1,4})?",
    "semver": r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?",
    "phone": r"(\+[0-9]{1,3}[ -]?)?(\([0-9]{2,4}\)[ -]?)?[0-9]{3,4}([ -]?[0-9]{3,4}){1,2}",
    "currency": r"[$€£¥]-?[0-9]{1,3}(,[0-9]{3}){0,4}(\.[0-9]{2})?",
    "json number": r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?",
    "json string": r'"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"',
    "identifier": r"[A-Za-z_][A-Za-z0-9_]{0,30}",
    "base64": r"([A-Za-z0-9+/]{4}){1,40}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
    "any 200": r".{0,200}",
    "word 64": r"\w{1,64}",
    "not ascii": r"[^\x00-\x7f]{1,40}",
    "words": r"\w+( \w+){0,20}[.!?]",
    "any case": r"(?i)(select|insert|update|delete) [a-z_, *]{1,80} (from|into|where) [a-z_]+;?",
    "months": r"(January|February|March|April|May|June|July|August|September|October|November|December)"
    r" ([1-9]|[12][0-9]|3[01]), [0-9]{4}",
    "nested": r"(\(([a-z]+(,[a-z]+)*)?(\[([0-9]+(;[0-9]+)*)?\])*\)){1,8}",
    "log line": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARN|ERROR) \[[\w.-]{1,40}\] .{1,160}",
    "csv row": r'([^",\r\n]*|"([^"]|"")*")(,([^",\r\n]*|"([^"]|"")*")){1,9}',
    "colour": r"#([0-9a-fA-F]{3}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})",
    "path": r"(/[^/\x00]{1,255})+|[A-Z]:(\\[^\\/:*?\"<>|\r\n]{1,100})+",
    "markdown link": r"!?\[[^\]\n]{1,80}\]\([^)\s]{1,120}( \"[^\"\n]{0,80}\")?\)",
    "html tag": r'<[a-z][a-z0-9]*( [a-z-]+="[^"<>]*")*\s*/?>',
    "quoted": r"'([^'\\\n]|\\.)*'" + r'|"([^"\\\n]|\\.)*"',
    "roman": r"M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})",
    "paragraph": r"([A-Z][a-z ]+\. ){1,20}",
}


@dataclass(frozen=True)
class Input:
    """One pattern: as the schema has it (None for a picked one), and for a full match; and a text."""

    name: str
    ecma: str | None
    full: str
    text: str


@dataclass(frozen=True)
class Inputs:
    """What is measured, and how many patterns were left out, by reason."""

    inputs: list[Input]
    left_out: dict[str, int]


@contextmanager
def seconds(limit: float) -> Iterator[None]:
    """Raises TimeoutError after so much processor time: `re` backtracks without end on some patterns."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def gather(data: Path | None, most: int | None = None) -> Inputs:
    """The picked regexes and the distinct patterns of the files in `data`; `most`: so many in all."""
    found = [Input(name, None, full, sample_text(full)) for name, full in PICKED.items()]
    left_out: dict[str, int] = {}
    patterns = list(read_patterns(data).items()) if data else []
    if most is not None:
        patterns = patterns[:: max(1, len(patterns) // max(1, most - len(found)))][: most - len(found)]
    for pattern, values in patterns:
        try:
            with seconds(2):
                full = search_to_full(pattern)
                text = next((one for one in values if re.fullmatch(full, one)), None)
                text = sample_text(full) if text is None else text
            found.append(Input(pattern, pattern, full, text))
        except NotConverted as error:
            left_out[str(error)] = left_out.get(str(error), 0) + 1
        except TimeoutError:
            left_out["no text found"] = left_out.get("no text found", 0) + 1
    return Inputs(found, left_out)


def read_patterns(data: Path) -> dict[str, list[str]]:
    """Each distinct `pattern`, and the strings of valid instances beside it, long ones first."""
    files = sorted(data.rglob("*.json"))
    if not files:
        raise SystemExit(f"{data} holds no .json files: unpack MaskBench's there")
    found: dict[str, set[str]] = {}
    for file in files:
        content = json.loads(file.read_text(encoding="utf-8"))
        patterns = {one for one in _values(content["schema"], "pattern") if isinstance(one, str)}
        texts: set[str] = set()
        for test in content["tests"] if patterns else []:
            if test["valid"]:
                texts.update(one for one in _values(test["data"]) if isinstance(one, str) and len(one) <= 200)
        for pattern in sorted(patterns):
            found.setdefault(pattern, set()).update(texts)
    return {pattern: sorted(texts, key=lambda one: (-len(one), one)) for pattern, texts in found.items()}


def _values(value: Any, key: str | None = None) -> Iterator[Any]:
    """Every value below, or those that stand under `key` in an object."""
    if key is None:
        yield value
    if isinstance(value, dict):
        if key in value:
            yield value[key]
        for one in value.values():
            yield from _values(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from _values(one, key)


def endings(full: str, prefixes: list[bytes]) -> list[bool | None]:
    """Whether each prefix is a complete text; None where it is no text or `re` takes too long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = re.compile(full)
    found: list[bool | None] = []
    for prefix in prefixes:
        try:
            with seconds(0.2):
                found.append(compiled.fullmatch(prefix.decode()) is not None)
        except (UnicodeDecodeError, TimeoutError):
            found.append(None)
    return found
