"""Lark grammars that nobody vouches for: what is read, what is refused, in whose words, and how soon."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from lark import Lark
from lark.exceptions import LarkError

from treille.runtime.errors import InvalidConstraint, UnsupportedConstraint
from treille.runtime.grammar.lark_loader import LarkGrammar, Parser, load_lark
from treille.runtime.grammar.limits import Budget


def load(text: str, parser: Parser = "earley", start: str = "start") -> LarkGrammar:
    return load_lark(text, start, parser, Budget("grammar", seconds=20))


def test_rules_and_terminals_are_numbered() -> None:
    grammar = load('start: "a" word* | start NAME\nword: NAME\nNAME.2: /[a-z]+/i\n%ignore " "')
    names = [terminal.name for terminal in grammar.terminals]
    assert sorted(names) == ["A", "NAME", "__IGNORE_0"]
    assert grammar.rule_names[0] == "start"
    name = grammar.terminals[names.index("NAME")]
    assert (name.text, name.flags, name.priority) == (None, frozenset("i"), 2)
    assert grammar.terminals[names.index("A")].text == "a"
    assert grammar.ignored == (names.index("__IGNORE_0"),)
    assert (0, (0, ~names.index("NAME"))) in grammar.alternatives
    assert grammar.table is None
    assert load('start: "a"', "lalr").table is not None


LARKS_OWN_WORDS = [
    ("start: a", "earley"),
    ("start: [a b", "earley"),
    ('start: "a"~3..2', "earley"),
    ('start: A\nA: "a"\nA: "b"', "earley"),
    ("start: A\nA: /x*/", "earley"),
    ("start: A\nA: /x*/", "lalr"),
    ('start: x | y\nx: "a"\ny: "a"', "lalr"),
    ('a{x: "b"', "earley"),
    ('start: t{"a"}\nt{x,y}: x y', "earley"),
    ('start: "" ', "earley"),
    ('start: \x00"a"', "earley"),
    ("%import common\nstart: A", "earley"),
    ("%import common.NOPE\nstart: NOPE", "earley"),
    ("start: (", "lalr"),
    ('_start: "a" -> b\nstart: _start', "earley"),
]


@pytest.mark.parametrize(("text", "parser"), LARKS_OWN_WORDS)
def test_errors_are_larks(text: str, parser: Parser) -> None:
    with pytest.raises(LarkError) as larks:
        Lark(text, parser=parser)
    with pytest.raises(InvalidConstraint) as ours:
        load(text, parser)
    first = str(larks.value).strip().splitlines()[0].split(" in <")[0]
    assert first[:40] in str(ours.value)


def test_errors_tell_the_place() -> None:
    with pytest.raises(InvalidConstraint, match=r"line 2 column 4"):
        load('start: "a"\na: )')
    with pytest.raises(InvalidConstraint, match=r"string without an end, at line 2 column 4"):
        load('start: a\na: "x')


@pytest.mark.parametrize("text", ["", "  \n", None, 3])
def test_no_grammar(text: str) -> None:
    with pytest.raises(InvalidConstraint):
        load(text)


def test_the_start_must_be_a_rule() -> None:
    for text in ('other: "a"', 't{x}: x\nother: t{"a"}'):
        with pytest.raises(InvalidConstraint, match="no rule 't'"):
            load(text, start="t")


def test_nothing_is_read_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.lark").write_text('X: "x"')
    monkeypatch.chdir(tmp_path)
    for text in (
        "%import .secret.X\nstart: X",
        "%import secret.X\nstart: X",
        "%import .secret (X)\nstart: X",
    ):
        with pytest.raises(UnsupportedConstraint, match="secret"):
            load(text)
    monkeypatch.setattr("builtins.open", _no_files)
    monkeypatch.setattr(os, "open", _no_files)
    with pytest.raises(UnsupportedConstraint, match="only Lark's own"):
        load("%import nothing.at.all\nstart: all")


def _no_files(*_: object, **__: object) -> None:
    raise AssertionError("a file was opened")


def test_larks_own_grammars_can_be_imported() -> None:
    grammar = load(
        "%import common (ESCAPED_STRING, WS)\n%import python.name\n%import common.INT -> NUMBER\n"
        "start: ESCAPED_STRING | NUMBER name\n%ignore WS"
    )
    names = {terminal.name for terminal in grammar.terminals}
    assert names >= {"ESCAPED_STRING", "NUMBER", "WS"}
    assert "python__name" not in grammar.rule_names


def test_declared_symbols_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedConstraint, match="%declare at _INDENT"):
        load("start: _INDENT\n%declare _INDENT")
    with pytest.raises(UnsupportedConstraint, match=r"%declare at .*_INDENT"):
        load("%import python.file_input\nstart: file_input")


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?>a)b", "(a)?(?(1)a|b)c", "a++"])
def test_terminals_that_are_not_regular(pattern: str) -> None:
    with pytest.raises(UnsupportedConstraint, match="at terminal A, offset"):
        load(f"start: A\nA: /{pattern}/")


LARGE = {
    "options": "start: " + '["a"] ' * 30,
    "choices": "start: " + " ".join(['("a"|"b")'] * 40),
    "counts": 'start: ("a"|"b"|"c")~40',
    "long counts": 'start: ("a"|"b"|("c"|"d")~7)~100..200',
    "templates without end": 't{x}: "a" t{t{x}}\nstart: t{"b"}',
    "terminals": 'A0: "a"\n' + "\n".join(f"A{i + 1}: A{i} A{i}" for i in range(40)) + "\nstart: A40",
    "terminals in a chain": "\n".join(f'T{i}: T{i + 1} "x"' for i in range(2500)) + '\nT2500: "x"\nstart: T0',
    "backslashes in a string": 'start: "' + "\\" * 61,
    "backslashes in a regex": "start: /" + "\\" * 61 + "\n",
    "blank lines": 'start: "a"' + "\n" * 3000,
    "spaces": 'start: "a"' + " " * 3000 + "b",
    "nesting": "start: " + "(" * 3000 + '"a"' + ")" * 3000,
    "nested terminal": "A: " + "(" * 3000 + '"a"' + ")" * 3000 + "\nstart: A",
    "one long rule": "start: " + '"a" ' * 15000,
    "text": 'start: "a"\n// ' + "x" * 200_000,
    "recursion": "A: B B\nB: C C\nC: A A\nstart: A",
    "long recursion": "\n".join(f"A{i}: A{(i + 1) % 50} A{(i + 1) % 50}" for i in range(50)) + "\nstart: A0",
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("parser", ["earley", "lalr"])
def test_hostile_texts_end_soon(name: str, parser: Parser) -> None:
    begun = time.thread_time()
    with pytest.raises((InvalidConstraint, UnsupportedConstraint)):
        load(LARGE[name], parser)
    assert time.thread_time() - begun < 10


def test_long_alternatives_and_chains_are_refused_for_lalr() -> None:
    for text in (
        "start: " + " ".join(f'"k{i}"' for i in range(400)),
        "\n".join(f'r{i}: "k{i}" r{(i + 1) % 1500}' for i in range(1500)) + "\nstart: r0",
    ):
        with pytest.raises(UnsupportedConstraint, match=r"LALR|nested"):
            load(text, "lalr")
        assert load(text).terminals


def test_ordinary_grammars_are_not_too_large() -> None:
    assert len(load('u{x}: "a" x{u{x}}\nt{x}: u{t} x\nstart: t{"b"}').rule_names) > 2
    assert load('start: "a"~100..2000 | ("b" | "c")~3', "lalr").rule_names
    assert load('A: "a"\nB: A A\nC: B A B\nstart: C ("x" "y"?)* | [C] ["z"] // "\n').terminals
    many = "\n".join(f'K{i}: "key{i}"' for i in range(800))
    assert len(load(many + "\nstart: " + " | ".join(f"K{i}" for i in range(800))).terminals) == 800
