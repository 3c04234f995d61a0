"""The tables of docs/json-schema.md are those of `oracles.keyword_examples`, and each of their lines is true.

`PYTHONPATH=tests python tests/runtime/schema/test_docs.py` writes the tables into the page.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from oracles.keyword_examples import DRAFTS, FORMATS, TABLES, Example

from treille.runtime.schema import formats as engine_formats

PAGE = Path(__file__).resolve().parents[3] / "docs/json-schema.md"
SECTION = re.compile(r"(<!-- (\w+): from the tests -->\n).*?(<!-- end -->)", re.DOTALL)
Accepts = Callable[..., bool]
EXAMPLES = [
    pytest.param(example, draft, id=f"{example.keyword}-{draft}")
    for table in TABLES.values()
    for example in table
    for draft in DRAFTS
    if draft in example.drafts or example.others == "ignored"
]


def oracle(schema: Any, text: str) -> bool:
    """What `jsonschema` says of a text."""
    kind = jsonschema.validators.validator_for(schema)
    return bool(kind(schema, format_checker=jsonschema.FormatChecker()).is_valid(json.loads(text)))


@pytest.mark.parametrize(("example", "draft"), EXAMPLES)
def test_every_line_is_true(accepts: Accepts, example: Example, draft: str) -> None:
    schema = {"$schema": DRAFTS[draft], **example.schema}
    texts = {example.accepted: True}
    if example.refused is not None:
        texts[example.refused] = draft not in example.drafts
    for text, verdict in texts.items():
        assert oracle(schema, text) == verdict, "jsonschema"
        assert accepts(schema, text, property_order="any") == verdict, text


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_enforced(accepts: Accepts, name: str) -> None:
    _, good, bad = FORMATS[name]
    schema = {"format": name}
    for text, verdict in ((good, True), (bad, False)):
        assert accepts(schema, json.dumps(text)) == verdict, text
        assert accepts(schema, json.dumps(text), formats="annotation")
    assert accepts(schema, "1")
    checker = jsonschema.FormatChecker()
    if name in checker.checkers and name != "time":  # its clock has no leap seconds
        assert checker.conforms(good, name)


def test_all_formats_are_in_the_table() -> None:
    assert FORMATS.keys() == engine_formats.FORMATS


def test_flexible_white_space_is_as_the_page_says(accepts: Accepts) -> None:
    blanks, line_ends, indentation = map(
        int,
        re.search(
            r"up to (\d+) blanks .* 1 or (\d+) line ends .* up to (\d+) \|", PAGE.read_text(encoding="utf-8")
        ).groups(),
    )
    for blank in " \t":
        for line_end in ("\n", "\r"):
            for text, verdict in (
                (blank * blanks, True),
                (blank * (blanks + 1), False),
                (line_end * line_ends + blank * indentation, True),
                (line_end + blank * indentation, True),
                (line_end + blank * (indentation + 1), False),
                (line_end * (line_ends + 1), False),
                (blank + line_end, False),
            ):
                assert accepts({"type": "array"}, f"[1,{text}2]") == verdict, repr(text)


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {name for _, name, _ in SECTION.findall(page)} == {"keywords", "formats"}
    assert page == filled(page), "run PYTHONPATH=tests python tests/runtime/schema/test_docs.py"


def test_the_python_of_the_page_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {"__name__": "page"})


def filled(page: str) -> str:
    """The page with its tables as they should be."""
    made = {"keywords": keyword_tables(), "formats": format_table()}
    return SECTION.sub(lambda match: match[1] + made[match[2]] + match[3], page)


def keyword_tables() -> str:
    lines: list[str] = []
    for title, table in TABLES.items():
        lines += [f"### {title}", ""]
        lines += ["| keyword | drafts | what is enforced | schema | accepts | refuses |"]
        lines += ["|---|---|---|---|---|---|"]
        for one in table:
            name = ", ".join(f"`{part}`" if " " not in part else part for part in one.keyword.split(", "))
            refused = "" if one.refused is None else code(one.refused)
            schema = code(json.dumps(one.schema, ensure_ascii=False))
            cells = (name, spread(one), one.says, schema, code(one.accepted), refused)
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def spread(example: Example) -> str:
    """The drafts that have a keyword, in words."""
    if example.since == example.until:
        return f"{example.since} only"
    if example.since == "4":
        return "all" if example.until == "2020-12" else f"up to {example.until}"
    return f"from {example.since}" if example.until == "2020-12" else f"{example.since} to {example.until}"


def format_table() -> str:
    lines = ["| format | after | accepts | refuses | less than that |", "|---|---|---|---|---|"]
    for name, (source, good, bad) in FORMATS.items():
        less = engine_formats.NARROWED.get(name, "")
        lines.append(f"| `{name}` | {source} | {code(good)} | {code(bad)} | {less} |")
    return "\n".join([*lines, ""])


def code(text: str) -> str:
    """Text as code in a table's cell."""
    return "`" + text.replace("|", "\\|") + "`"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit()
