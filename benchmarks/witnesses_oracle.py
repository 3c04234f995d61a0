"""What `jsonschema` says of a value, with exact numbers; and what it would say if patterns were ECMA-262's.

`jsonschema` searches with Python's `re`, in which `\\d`, `\\w`, `$` and more mean something else than the
specification has it. Where node is installed a verdict may be asked for again, with node's expressions.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from jsonschema_specifications import REGISTRY

from treille.runtime.schema.drafts import Draft
from treille.runtime.schema.formats import FORMATS
from treille.runtime.schema.json_text import dumps

CLASSES: dict[Draft, Any] = {
    Draft.D4: jsonschema.Draft4Validator,
    Draft.D6: jsonschema.Draft6Validator,
    Draft.D7: jsonschema.Draft7Validator,
    Draft.D2019: jsonschema.Draft201909Validator,
    Draft.D2020: jsonschema.Draft202012Validator,
}
MAX_EXPONENT = 5000
_NODE = """
require("readline").createInterface({input: process.stdin}).on("line", line => {
  const [pattern, text] = JSON.parse(line);
  let found = null;
  for (const flags of ["u", ""]) {
    try { found = new RegExp(pattern, flags).test(text); break; } catch (error) { }
  }
  console.log(JSON.stringify(found));
});
"""

Errors = Iterator[ValidationError]
Search = Callable[[str, str], bool]


@dataclass(frozen=True)
class Verdict:
    """`faults`: the keywords that reject a value for `jsonschema`. The others may differ from what that says:
    whether it is valid where patterns are ECMA's, and where besides no format is asserted."""

    faults: frozenset[str]
    ecma: bool
    formless: bool

    @property
    def is_valid(self) -> bool:
        """What `jsonschema` says."""
        return not self.faults


class Oracle:
    """The verdicts on one schema. `schema` has Decimals for its fractions."""

    def __init__(self, schema: Any, draft: Draft, ecma: EcmaSearch) -> None:
        self.draft = draft
        base = CLASSES[draft]
        schema = _without_drafts(schema)
        known = FORMATS & base.FORMAT_CHECKER.checkers.keys()
        formats = jsonschema.FormatChecker(sorted(known))
        self._plain = _extended(base, None)(schema, registry=REGISTRY, format_checker=formats)
        self._ecma = _extended(base, ecma.search)(schema, registry=REGISTRY, format_checker=formats)
        self._has_patterns = ecma.is_installed and uses_patterns(dumps(schema))
        self._formless = _extended(base, ecma.search if self._has_patterns else None)(
            schema, registry=REGISTRY
        )

    def verdict(self, value: Any, *, expected: bool) -> Verdict:
        """The verdict on a value; more is asked only where it is not the `expected` one."""
        faults = _keywords(self._plain, value)
        if expected != bool(faults):
            return Verdict(faults, expected, expected)
        ecma = not (_keywords(self._ecma, value) if self._has_patterns else faults)
        return Verdict(faults, ecma, not _keywords(self._formless, value))


class EcmaSearch:
    """Searches as node has them, in one process that answers line by line."""

    def __init__(self) -> None:
        self.is_installed = shutil.which("node") is not None
        self._process: subprocess.Popen[str] | None = None
        self._known: dict[tuple[str, str], bool] = {}

    def search(self, pattern: str, text: str) -> bool:
        """Whether the pattern is found; raises `ValueError` for what is no pattern."""
        key = (pattern, text)
        if key not in self._known:
            answer = self._ask(pattern, text)
            if answer is None:
                raise ValueError(f"{pattern} is no pattern")
            self._known[key] = answer
        return self._known[key]

    def _ask(self, pattern: str, text: str) -> bool | None:
        if self._process is None:
            command = ["node", "-e", _NODE]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8")
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("node has no pipes")
        process.stdin.write(json.dumps([pattern, text]) + "\n")
        process.stdin.flush()
        answer: bool | None = json.loads(process.stdout.readline())
        return answer

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _keywords(validator: Any, value: Any) -> frozenset[str]:
    """The keywords at the leaves of the errors: below `anyOf` and the like stands what really failed."""
    found: set[str] = set()
    pending: list[ValidationError] = list(validator.iter_errors(value))
    while pending:
        error = pending.pop()
        if error.context:
            pending.extend(error.context)
        found.add(str(error.validator))
    return frozenset(found)


def _extended(base: Any, search: Search | None) -> Any:
    """The class with exact numbers, and with another search than `re`'s if one is given. `dependencies`,
    which the last drafts split in two, means there what it always did: the engine enforces it."""
    keywords: dict[str, Any] = {"multipleOf": _multiple_of}
    if "dependencies" not in base.VALIDATORS:
        keywords["dependencies"] = CLASSES[Draft.D7].VALIDATORS["dependencies"]
    if search is not None:
        keywords |= _pattern_keywords(search)
    checker = base.TYPE_CHECKER
    if base is not CLASSES[Draft.D4]:
        checker = checker.redefine("integer", _is_integer)
    return extend(base, validators=keywords, type_checker=checker)


def _without_drafts(schema: Any) -> Any:
    """The schema without `$schema`, at which `jsonschema` would go on with a class that is not extended."""
    if isinstance(schema, list):
        return [_without_drafts(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_drafts(one)
        for key, one in schema.items()
        if key != "$schema" or not isinstance(one, str)
    }


def _is_integer(checker: Any, value: Any) -> bool:
    """1.0 is an integer, in all drafts but 4."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return False
    if isinstance(value, int):
        return True
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        return False
    return exponent >= 0 or not value or (-exponent < MAX_EXPONENT and Fraction(value).denominator == 1)


def _multiple_of(validator: Any, divisor: Any, value: Any, schema: Any) -> Errors:
    if not validator.is_type(value, "number"):
        return
    if isinstance(value, Decimal) and abs(value.adjusted()) > MAX_EXPONENT:
        raise OverflowError("a number too long to divide")
    if (Fraction(value) / Fraction(divisor)).denominator != 1:
        yield ValidationError(f"{value} is not a multiple of {divisor}")


def _pattern_keywords(search: Search) -> dict[str, Any]:
    def pattern(validator: Any, text: str, value: Any, schema: Any) -> Errors:
        if isinstance(value, str) and not search(text, value):
            yield ValidationError(f"{value!r} does not match {text!r}")

    def pattern_properties(validator: Any, patterns: Any, value: Any, schema: Any) -> Errors:
        for text, below in patterns.items() if isinstance(value, dict) else ():
            for key, member in value.items():
                if search(text, key):
                    yield from validator.descend(member, below, path=key, schema_path=text)

    def additional_properties(validator: Any, below: Any, value: Any, schema: Any) -> Errors:
        named = schema.get("properties", {})
        patterns = schema.get("patternProperties", {})
        for key, member in value.items() if isinstance(value, dict) else ():
            if key not in named and not any(search(text, key) for text in patterns):
                yield from validator.descend(member, below, path=key)

    return {
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
    }


def uses_patterns(text: str) -> bool:
    """Whether a schema's text has a pattern at all."""
    return re.search(r'"(pattern|patternProperties)"', text) is not None
