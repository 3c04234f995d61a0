"""`treille schema`, and `treille grammar --schema`: what they print, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from treille import cli

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{2}$"},
        "n": {"type": "integer", "minLength": 1},
    },
    "required": ["id"],
    "additionalProperties": False,
    "x-more": True,
}


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "ticket.json"
    path.write_text(json.dumps(SCHEMA))
    return path


def called(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, stdout with single spaces, stderr without the line about waiting."""
    with pytest.raises(SystemExit) as caught:
        cli.main([*map(str, words)])
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines(keepends=True) if "compiled loops" not in line]
    assert isinstance(caught.value.code, int)
    return caught.value.code, re.sub(" +", " ", captured.out), "".join(lines)


def test_help_and_misuse_load_nothing() -> None:
    code = """
import sys
from treille.cli import main
for words, wanted in (["--help"], 0), (["x.json", "--formats", "off"], 2), (["nope.json"], 1):
    try:
        main(["schema", *words])
    except SystemExit as end:
        assert end.code == wanted, (words, end.code)
print("loaded:", sorted({"torch", "numpy", "numba", "tokenizers"} & set(sys.modules)))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("loaded: []\n"), result.stdout[-80:]
    assert "--witnesses" in result.stdout and "must be assert or annotation" in result.stderr
    assert "nope.json does not exist" in result.stderr


def test_the_report(capsys: pytest.CaptureFixture[str], schema_file: Path) -> None:
    code, out, err = called(capsys, "schema", schema_file, "--witnesses", 4)
    assert (code, err) == (0, "")
    assert re.search(r"^verdict enforced exactly *$", out, re.MULTILINE)
    assert re.search(r"^compiled in \d+\.\d+ m?s *\nfirst mask in \d+\.\d+ m?s", out, re.MULTILINE)
    assert re.search(
        r'^#/properties/id/pattern "\^\[A-Z\]\{2\}\$" an automaton over the value', out, re.MULTILINE
    )
    assert re.search(r"^#/properties/n/minLength 1 says nothing: it is about strings", out, re.MULTILINE)
    assert "x-more at # not a keyword: it says nothing" in out
    assert 'objects with the key "id"; perhaps "n"; no other key' in out
    examples = out.partition("Examples:\n")[2].splitlines()
    assert len(examples) == 4
    for text in examples:
        jsonschema.validate(json.loads(text), SCHEMA)


def test_options_are_named_and_used(
    capsys: pytest.CaptureFixture[str], schema_file: Path, tmp_path: Path
) -> None:
    words = ["--property-order", "any", "--whitespace", '{"indent": 2}', "--escapes", "any", "--witnesses", 0]
    code, out, _ = called(capsys, "schema", schema_file, *words)
    assert code == 0 and "Examples" not in out
    spaces = "whitespace as json.dumps(indent=2, separators=(',', ': '))"
    assert f"ticket.json, {spaces}, property order any, escapes any" in out
    dated = tmp_path / "dated.json"
    dated.write_text('{"type": "string", "format": "date"}')
    assert "strings that match the format date" in called(capsys, "schema", dated)[1]
    out = called(capsys, "schema", dated, "--formats", "annotation")[1]
    assert "format at # an annotation" in out and re.search(r"^ strings$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            {"properties": {"a": {"pattern": "(a)\\1"}}},
            "refused: back-reference at #/properties/a/pattern cannot be",
        ),
        ({"type": "string", "minLength": 2, "maxLength": 1}, "refused: "),
        ({"type": 3}, "refused: #/type: 3 is neither a type nor a list of types"),
        ([1], "refused: an array is no schema"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], tmp_path: Path, schema: object, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(schema))
    code, out, err = called(capsys, "schema", path)
    assert (code, err) == (1, "") and f"verdict {words}" in out and "Examples" not in out
    assert "how it is enforced" not in out


def test_what_terminals_would_act_upon_is_shown_as_pictures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "escape.json"
    path.write_text(json.dumps({"enum": ["\x1b[31m\x7f"], "pattern": "\x1b"}))
    code, out, _ = called(capsys, "schema", path)
    assert code == 0 and not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out)


class TestGrammar:
    """The same command as for other constraints."""

    def test_a_text_that_fits(self, capsys: pytest.CaptureFixture[str], schema_file: Path) -> None:
        text = '{"id": "AB", "n": 3}'
        code, out, err = called(capsys, "grammar", "--schema", schema_file, "--text", text)
        assert (code, err) == (0, "")
        assert "constraint JSON Schema ticket.json" in out and "whole automaton a pushdown" in out
        assert re.search(r"^text accepted", out, re.MULTILINE)
        spaced = ["--whitespace", "compact"]
        code, out, _ = called(capsys, "grammar", "--schema", schema_file, "--text", text, *spaced)
        assert code == 1 and "JSON Schema ticket.json, whitespace compact" in out

    def test_a_text_that_does_not(self, capsys: pytest.CaptureFixture[str], schema_file: Path) -> None:
        code, out, _ = called(capsys, "grammar", "--schema", schema_file, "--text", '{"id": "Ab')
        assert code == 1 and "not accepted: byte 9 (0x62, of the character b) is not allowed" in out
        assert re.search(r"^allowed there A-Z *$", out, re.MULTILINE)
        code, out, _ = called(capsys, "grammar", "--schema", schema_file, "--text", '{"id": "AB"')
        assert code == 1 and "it ends too soon" in out

    def test_it_is_not_drawn(
        self, capsys: pytest.CaptureFixture[str], schema_file: Path, tmp_path: Path
    ) -> None:
        picture = tmp_path / "a.dot"
        code, _, err = called(capsys, "grammar", "--schema", schema_file, "--draw", picture)
        assert code == 1 and err.startswith("treille: cannot draw ") and "nest" in err
        assert not picture.exists()

    def test_a_schema_that_is_refused(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        path = tmp_path / "bad.json"
        path.write_text('{"properties": {"a": {"pattern": "(a)\\\\1"}}}')
        code, out, err = called(capsys, "grammar", "--schema", path)
        assert (code, out) == (1, "") and "#/properties/a/pattern" in err and err.count("\n") == 1
