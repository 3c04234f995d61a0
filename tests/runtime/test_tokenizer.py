"""The tokenizer: its files, the beginning of a text, control tokens, bytes of tokens."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from treille.runtime.errors import InvalidRequest, ModelError
from treille.runtime.token_bytes import byte_alphabet
from treille.runtime.tokenizer import Tokenizer

BOS, EOS, TOOL, UNUSED, LAST = 300, 301, 302, 303, 304


def byte_level(*, post_bos=False, post_eos=False):
    """Ids 0-255 are bytes, 256 `he`, 257 `hel`; <s>, </s> and <pad> are special, <tool> is added and not."""
    vocab = dict(byte_alphabet()) | {
        "he": 256,
        "hel": 257,
        "<s>": BOS,
        "</s>": EOS,
        "<tool>": TOOL,
        "<pad>": LAST,
    }
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("h", "e"), ("he", "l")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in ("<s>", "</s>", "<pad>")]
    )
    backend.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    if post_bos or post_eos:
        single = ("<s> " if post_bos else "") + "$A" + (" </s>" if post_eos else "")
        backend.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=[("<s>", BOS), ("</s>", EOS)]
        )
    return backend


def folder_with(path, backend, **files):
    backend.save(str(path / "tokenizer.json"))
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (path / f"{name}.{'jinja' if name == 'chat_template' else 'json'}").write_text(text, encoding="utf-8")
    return path


# Files.


def test_a_folder_without_tokenizer_json(tmp_path):
    with pytest.raises(ModelError, match=r"holds no tokenizer\.json.*save_pretrained"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, text):
    folder_with(tmp_path, byte_level())
    (tmp_path / name).write_text(text)
    with pytest.raises(ModelError, match=name):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, set()),
        ({"generation_config": {"eos_token_id": EOS}}, {EOS}),
        ({"generation_config": {"eos_token_id": [LAST, EOS]}}, {EOS, LAST}),
        ({"generation_config": {}, "config": {"eos_token_id": LAST}}, {LAST}),
        ({"generation_config": {"eos_token_id": EOS}, "config": {"eos_token_id": LAST}}, {EOS}),
        ({"tokenizer_config": {"eos_token": "</s>"}}, {EOS}),
        (
            {"tokenizer_config": {"eos_token": {"content": "</s>"}}, "config": {"eos_token_id": LAST}},
            {EOS, LAST},
        ),
        ({"special_tokens_map": {"eos_token": "</s>"}}, {EOS}),
        ({"special_tokens_map": {"eos_token": "<s>"}, "tokenizer_config": {"eos_token": "</s>"}}, {EOS}),
        ({"tokenizer_config": {"eos_token": "no such token"}}, set()),
    ],
)
def test_where_the_ends_of_text_come_from(tmp_path, files, expected):
    assert Tokenizer.from_folder(folder_with(tmp_path, byte_level(), **files)).eos_ids == expected


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({}, None),
        ({"tokenizer_config": {"chat_template": "one"}}, "one"),
        ({"tokenizer_config": {"chat_template": [{"name": "rag", "template": "x"}]}}, None),
        (
            {
                "tokenizer_config": {
                    "chat_template": [
                        {"name": "rag", "template": "x"},
                        {"name": "default", "template": "two"},
                    ]
                }
            },
            "two",
        ),
        ({"tokenizer_config": {"chat_template": "one"}, "chat_template": "three"}, "three"),
    ],
)
def test_where_the_chat_template_comes_from(tmp_path, files, source):
    template = Tokenizer.from_folder(folder_with(tmp_path, byte_level(), **files)).chat_template
    assert (None if template is None else template.source) == source


def test_declared_tokens_are_special_though_the_file_forgot(tmp_path):
    config = {"bos_token": "<s>", "additional_special_tokens": ["<tool>"]}
    tokenizer = Tokenizer.from_folder(folder_with(tmp_path, byte_level(), tokenizer_config=config))
    assert tokenizer.special_ids == {BOS, EOS, LAST, TOOL}
    assert TOOL not in tokenizer.encode("<tool>")
    assert tokenizer.encode("<tool>", parse_special=True) == [TOOL]


def test_saved_truncation_and_padding_are_dropped(tmp_path):
    backend = byte_level()
    backend.enable_truncation(3)
    backend.enable_padding(length=10)
    tokenizer = Tokenizer.from_folder(folder_with(tmp_path, backend))
    assert tokenizer.encode("abcdef") == list(b"abcdef")


# The beginning of a text.


@pytest.mark.parametrize("setting", [None, True, False])
@pytest.mark.parametrize("post_bos", [True, False])
@pytest.mark.parametrize("post_eos", [True, False])
def test_the_setting_decides_else_what_the_tokenizer_does(tmp_path, setting, post_bos, post_eos):
    config = {"bos_token": "<s>"} | ({} if setting is None else {"add_bos_token": setting})
    backend = byte_level(post_bos=post_bos, post_eos=post_eos)
    tokenizer = Tokenizer.from_folder(folder_with(tmp_path, backend, tokenizer_config=config))
    adds = post_bos if setting is None else setting
    assert tokenizer.adds_bos == adds
    assert tokenizer.encode("hi") == [BOS] * adds + list(b"hi")
    assert tokenizer.encode("") == [BOS] * adds
    assert tokenizer.encode("hi", add_bos=False) == list(b"hi")


def test_no_second_beginning():
    tokenizer = Tokenizer(byte_level(post_bos=True), bos_id=BOS)
    assert tokenizer.encode("<s>hi", parse_special=True) == [BOS, *b"hi"]
    assert tokenizer.encode("<s>hi") == [BOS, *b"<s>hi"]


def test_a_beginning_that_no_setting_names():
    tokenizer = Tokenizer(byte_level(post_bos=True))
    assert tokenizer.bos_id == BOS
    assert tokenizer.adds_bos


# Control tokens in texts.


def test_control_texts_are_text_unless_asked():
    tokenizer = Tokenizer(byte_level())
    assert tokenizer.encode("a<s>b") == list(b"a<s>b")
    assert tokenizer.encode("a<s>b", parse_special=True) == [*b"a", BOS, *b"b"]
    assert tokenizer.encode("<s><s></s>") == list(b"<s><s></s>")


def test_added_tokens_that_are_not_special_are_text():
    tokenizer = Tokenizer(byte_level())
    assert TOOL not in tokenizer.special_ids
    assert tokenizer.token_bytes[TOOL] == b"<tool>"
    for parse_special in (False, True):
        assert tokenizer.encode("a<tool>", parse_special=parse_special) == [*b"a", TOOL]


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=30) | st.text("hel<s>/tol \n", max_size=30))
def test_encoding_is_undone_by_decoding(text):
    tokenizer = WITH_BOS
    ids = tokenizer.encode(text)
    assert ids[0] == BOS
    assert tokenizer.special_ids.isdisjoint(ids[1:])
    assert tokenizer.decode(ids) == text
    assert b"".join(tokenizer.token_bytes[i] for i in ids[1:]) == text.encode()


WITH_BOS = Tokenizer(byte_level(post_bos=True))


def test_both_ways_at_once_from_many_threads():
    tokenizer = Tokenizer(byte_level())
    text = "<s>hello</s>" * 50

    def both(n):
        return BOS in tokenizer.encode(text, parse_special=bool(n % 2))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(both, range(200))) == [False, True] * 100


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(InvalidRequest, match="surrogate") as caught:
        Tokenizer(byte_level()).encode("ab\ud800")
    assert caught.value.field == "prompt"


def test_the_backend_is_copied():
    backend = byte_level()
    tokenizer = Tokenizer(backend)
    backend.add_special_tokens(["hi"])
    backend.encode_special_tokens = True
    assert tokenizer.encode("hi<s>", parse_special=True) == [*b"hi", BOS]
    assert tokenizer.vocab_size == LAST + 1


def test_added_tokens_keep_their_ids():
    backend = byte_level()
    backend.add_tokens(["new", AddedToken("<new>", special=True), "newer"])
    backend.add_special_tokens(["<newer>"])
    tokenizer = Tokenizer(backend)
    text = "<s>new<new>newer<newer><tool>x"
    assert tokenizer.encode(text, parse_special=True) == backend.encode(text).ids
    backend.encode_special_tokens = True
    assert tokenizer.encode(text) == backend.encode(text).ids


# Bytes.


def test_bytes_of_a_byte_level_vocabulary():
    tokenizer = Tokenizer(byte_level(), bos_id=BOS, eos_ids=[EOS])
    table = tokenizer.token_bytes
    assert len(table) == tokenizer.vocab_size == LAST + 1
    assert table[:258] == [*(bytes([byte]) for byte in range(256)), b"he", b"hel"]
    assert [table[i] for i in (258, BOS, EOS, TOOL, UNUSED, LAST)] == [
        None,
        None,
        None,
        b"<tool>",
        None,
        None,
    ]


def test_the_byte_alphabet_is_the_tokenizers_own():
    assert sorted(byte_alphabet()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))


def sentencepiece(*, prefix=True, metaspace=False):
    vocab = {"<unk>": 0, "<s>": 1, "▁": 2, "a": 3, "▁a": 4, **{f"<0x{b:02X}>": 5 + b for b in range(256)}}
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=[("▁", "a")], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    undo = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if metaspace:
        scheme = "first" if prefix else "never"
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        backend.decoder = decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)]
        )
    elif prefix:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        backend.decoder = decoders.Sequence([*undo, decoders.Strip(" ", 1, 0)])
    else:
        backend.normalizer = normalizers.Replace(" ", "▁")
        backend.decoder = decoders.Sequence(undo)
    backend.add_special_tokens(["<unk>", "<s>"])
    return backend


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("metaspace", [True, False])
def test_bytes_of_a_sentencepiece_vocabulary(prefix, metaspace):
    tokenizer = Tokenizer(sentencepiece(prefix=prefix, metaspace=metaspace), bos_id=1, add_bos=True)
    assert tokenizer.token_bytes[:5] == [None, None, b" ", b"a", b" a"]
    assert tokenizer.token_bytes[5:] == [bytes([byte]) for byte in range(256)]
    assert tokenizer.strips_first_space == prefix
    # Metaspace puts no space before a text that has one, so it cannot tell " a" from "a".
    for text in ["a a", "", "aé水", "<s>a"] + [" a"] * (not metaspace):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bytes_of_plain_words():
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0, "é": 1}, unk_token="a"))
    assert Tokenizer(backend).token_bytes == [b"a", "é".encode()]


def test_decoding_leaves_out_what_is_no_text():
    tokenizer = Tokenizer(byte_level())
    assert tokenizer.decode([BOS, *b"hi", UNUSED, 9999, EOS]) == "hi"
    assert tokenizer.decode([0xE6, 0xB0]) == "�"


def test_other_threads_run_while_a_long_text_is_encoded(smollm2_folder) -> None:
    tokenizer = Tokenizer.from_folder(smollm2_folder)
    ticks, over = [0], threading.Event()

    def tick() -> None:
        while not over.wait(0.001):
            ticks[0] += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        before = ticks[0]
        tokenizer.encode("a" * 500_000)
        assert ticks[0] - before > 5
    finally:
        over.set()
        ticker.join()
