"""`treille grammar`: its report, its pictures and its refusals."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers

from treille import cli, cli_grammar, cli_parts
from treille.runtime.grammar import Vocabulary, compile_regex
from treille.runtime.tokenizer import Tokenizer

ALPHABET = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
WORDS = ["IN", "INV", "12", "Ġ1", "tr"]
LARK = """
start: "[" [item ("," item)*] "]"
item: /[a-z]+/ | start
%ignore " "
"""


@pytest.fixture(scope="session")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer with a few words; its `</s>` ends a text."""
    vocab = {token: at for at, token in enumerate(dict.fromkeys([*ALPHABET, *WORDS]))}
    merges = [("I", "N"), ("IN", "V"), ("1", "2")]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken("</s>", special=True)])
    path = tmp_path_factory.mktemp("tokenizer") / "small.json"
    backend.save(str(path))
    return path


@pytest.fixture
def lark_file(tmp_path: Path) -> Path:
    path = tmp_path / "lists.lark"
    path.write_text(LARK)
    return path


def called(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, stdout with single spaces, stderr without the line about waiting."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["grammar", *map(str, words)])
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines(keepends=True) if "compiled loops" not in line]
    assert isinstance(caught.value.code, int)
    return caught.value.code, re.sub(" +", " ", captured.out), "".join(lines)


def test_help_and_misuse_load_nothing() -> None:
    code = """
import sys
from treille.cli import main
for words, wanted in (["--help"], 0), (["--regex", "a", "--draw", "a.png"], 2):
    try:
        main(["grammar", *words])
    except SystemExit as end:
        assert end.code == wanted, (words, end.code)
print("loaded:", sorted({"torch", "numpy", "numba", "tokenizers"} & set(sys.modules)))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("loaded: []\n"), result.stdout[-80:]
    assert "--tokenizer" in result.stdout and "must end in .svg or .dot" in result.stderr


def test_an_accepted_text(capsys: pytest.CaptureFixture[str], tokenizer_file: Path) -> None:
    words = ["--regex", "INV-[0-9]{2,3}", "--tokenizer", tokenizer_file, "--text", "INV-12"]
    code, out, err = called(capsys, *words)
    assert (code, err) == (0, "")
    assert "regex (python) INV-[0-9]{2,3}" in out and "261 tokens that are text, ended by 261" in out
    assert re.search(r"^compiled in \d+\.\d+ m?s", out, re.MULTILINE)
    assert re.search(r"^first mask in \d+\.\d+ m?s", out, re.MULTILINE)
    assert re.search(r"^states reached \d+ *$", out, re.MULTILINE)
    assert "minimal; 8 states between characters, 8 between bytes" in out
    assert re.search(r"^text accepted *\ncould go on with 0-9 *$", out, re.MULTILINE)
    rows = [line.split() for line in out.splitlines() if re.match(r" \d+ ", line)]
    assert [row[0] for row in rows] == ["0", "3", "4", "6"]
    assert rows[0][1] == '"INV"' and rows[0][3:5] == ["3", "1.149"] and rows[0][-1] == '"INV-"'
    assert rows[1][1] == '"-"' and rows[1][3] == "1"
    assert rows[2][3] == "11" and "may" not in rows[2]
    assert rows[3] == ["6", "10", "3.831", "may"]


def test_the_end_that_must_come(capsys: pytest.CaptureFixture[str], tokenizer_file: Path) -> None:
    code, out, _ = called(capsys, "--regex", "ab?", "--tokenizer", tokenizer_file, "--text", "ab")
    assert code == 0
    assert re.search(r"^ 2 0 0\.000 must *$", out, re.MULTILINE)
    assert "could go on with nothing" in out


def test_a_text_that_is_not_accepted(capsys: pytest.CaptureFixture[str], tokenizer_file: Path) -> None:
    words = ["--regex", "x[é-ï]?[0-9]", "--tokenizer", tokenizer_file]
    code, out, err = called(capsys, *words, "--text", "xñ1")
    assert (code, err) == (1, "")
    assert "not accepted: byte 2 (0xB1, of the character ñ) is not allowed" in out
    assert re.search(r'^after "x" *\nallowed there 0-9, é-ï *$', out, re.MULTILINE)
    assert re.search(r'^ 2 "\\xb1" not allowed ', out, re.MULTILINE)
    code, out, _ = called(capsys, *words, "--text", "x")
    assert code == 1 and "it ends too soon, after byte 1" in out
    code, out, _ = called(capsys, *words, "--text", "x12")
    assert code == 1 and "allowed there nothing, or the end of the text" in out


@pytest.mark.parametrize("parser", ["earley", "lalr"])
def test_a_lark_grammar(
    capsys: pytest.CaptureFixture[str], tokenizer_file: Path, lark_file: Path, parser: str
) -> None:
    words = [lark_file, "--parser", parser, "--tokenizer", tokenizer_file]
    code, out, err = called(capsys, *words, "--text", "[a, [bc]]")
    assert (code, err) == (0, "")
    assert f"Lark grammar lists.lark, from start, as the {parser} parser takes it" in out
    assert "whole automaton not finite, or too large to be explored" in out
    code, out, _ = called(capsys, *words, "--text", "[a,]")
    assert code == 1 and "byte 3 (0x5D, of the character ]) is not allowed" in out
    assert re.search(r"^allowed there a-z, space, \[ *$", out, re.MULTILINE)
    code, out, err = called(capsys, lark_file, "--start", "nope", "--tokenizer", tokenizer_file)
    assert code == 1 and err.count("\n") == 1 and "nope" in err


def test_a_grammar_without_an_automaton_is_not_drawn(
    capsys: pytest.CaptureFixture[str], tokenizer_file: Path, lark_file: Path
) -> None:
    picture = lark_file.with_suffix(".dot")
    code, out, err = called(capsys, lark_file, "--tokenizer", tokenizer_file, "--draw", picture)
    assert code == 1 and err.startswith("treille: cannot draw ") and "not finite" in err
    assert "% of tokens" in out and not picture.exists()


def test_dot_text(capsys: pytest.CaptureFixture[str], tokenizer_file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "a.dot"
    words = ["--regex", "a[é-ï]", "--tokenizer", tokenizer_file, "--draw", picture]
    code, out, _ = called(capsys, *words)
    assert code == 0 and "drawn: " in out
    assert 'label="é-ï"' in picture.read_text(encoding="utf-8")
    assert called(capsys, *words, "--draw-bytes")[0] == 0
    assert 'label="0xA9-0xAF"' in picture.read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs graphviz")
def test_svg(capsys: pytest.CaptureFixture[str], tokenizer_file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "a.svg"
    assert called(capsys, "--regex", "a+", "--tokenizer", tokenizer_file, "--draw", picture)[0] == 0
    assert "</svg>" in picture.read_text(encoding="utf-8")


def test_without_graphviz(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tokenizer_file: Path,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(cli_grammar.shutil, "which", lambda name: None)
    words = ["--regex", "a+", "--tokenizer", tokenizer_file, "--draw", tmp_path / "a.svg"]
    code, _, err = called(capsys, *words)
    assert code == 1 and err.count("\n") == 1
    assert "apt-get install graphviz" in err and "a.dot" in err
    assert (tmp_path / "a.dot").read_text(encoding="utf-8").startswith("digraph")
    assert not (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ([], 2, "give one of a FILE with a Lark grammar, --regex PATTERN and --schema FILE"),
        (["x.lark", "--regex", "a"], 2, "give one of a FILE"),
        (["--schema", "s.json", "--regex", "a"], 2, "give one of a FILE"),
        (["--schema", "s.json"], 1, "s.json does not exist"),
        (["--schema", "s.json", "--start", "a"], 2, "--start is for a Lark grammar, not for a JSON Schema"),
        (["--regex", "a", "--property-order", "any"], 2, "--property-order is for a JSON Schema"),
        (["--schema", "s.json", "--property-order", "abc"], 2, "--property-order must be schema or any"),
        (["--schema", "s.json", "--whitespace", "none"], 2, "--whitespace must be flexible, compact, any"),
        (["--schema", "s.json", "--whitespace", "{"], 2, "--whitespace: { is not JSON"),
        (["--schema", "s.json", "--whitespace", '{"indent": -1}'], 2, "--whitespace: indent must be"),
        (["--regex", "a", "--dialect", "perl"], 2, "python or ecma, not perl"),
        (["--regex", "a", "--parser", "lalr"], 2, "--parser is for a Lark grammar"),
        (["--regex", "a", "--start", "s"], 2, "--start is for a Lark grammar"),
        (["x.lark", "--dialect", "ecma"], 2, "--dialect is for --regex"),
        (["x.lark", "--parser", "cyk"], 2, "earley or lalr, not cyk"),
        (["--regex", "a", "--draw-bytes"], 2, "--draw OUT.svg"),
        (["--regex", "a", "--draw", "nowhere/a.svg"], 1, "nowhere is not a folder"),
        (["--regex", "a", "--text", "\udcff"], 2, "--text is not UTF-8"),
        (["nope.lark"], 1, "nope.lark does not exist"),
        (["--regex", "a", "--tokenizer", "nosuchmodel"], 1, "nosuchmodel"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], words: list[str], code: int, part: str) -> None:
    found, out, err = called(capsys, *words)
    assert (found, out) == (code, "")
    assert err.count("\n") == 1 and err.startswith("treille: ") and part in err


def test_faults_in_files_and_patterns(
    capsys: pytest.CaptureFixture[str], tokenizer_file: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    code, _, err = called(capsys, "--regex", "a", "--tokenizer", broken)
    assert code == 1 and "broken.json cannot be read as a tokenizer" in err and err.count("\n") == 1
    latin = tmp_path / "latin.lark"
    latin.write_bytes(b'start: "\xe9"')
    assert "not UTF-8 at byte 8" in called(capsys, latin, "--tokenizer", tokenizer_file)[2]
    code, _, err = called(capsys, "--regex", "ab**", "--tokenizer", tokenizer_file)
    assert code == 1 and "multiple repeat" in err and err.count("\n") == 1


def test_tokenizers_of_folders(tmp_path: Path, tokenizer_file: Path) -> None:
    shutil.copy(tokenizer_file, tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    for name in (tmp_path, tmp_path / "tokenizer.json"):
        known, vocab = cli_parts.read_vocabulary(str(name))
        assert known.eos_ids == vocab.eos_ids == {261}


def test_a_tokenizer_that_does_not_spell_the_text_gives_way_to_the_longest_tokens() -> None:
    vocab = {token: at for at, token in enumerate([*ALPHABET, "ab", "abc"])}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    spaced = Tokenizer(backend)
    known = Vocabulary.from_tokenizer(spaced, eos_ids=[])
    assert cli_grammar.token_ids(spaced, known, b"abcab") == [257, 256]
    found = cli_grammar.positions(compile_regex("abc|ab", known), [257, 256])
    assert [(one.offset, one.num_allowed, one.end, one.is_refused) for one in found] == [
        (0, 3, "", False),
        (3, 0, "must", True),
    ]
    few = Vocabulary([b"a", b"ab", *[None] * 256])
    assert cli_grammar.token_ids(spaced, few, b"abxa") == [1]
