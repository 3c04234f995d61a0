"""The bytes of tokens, from every kind of tokenizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import tokenizers
import transformers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from treille.runtime.grammar import Vocabulary, compile_regex
from treille.runtime.token_bytes import byte_alphabet


@dataclass
class OurTokenizer:
    token_bytes: list[bytes | None]
    eos_ids: frozenset[int]
    vocab_size: int


def byte_level() -> tokenizers.Tokenizer:
    vocab = dict(byte_alphabet())
    vocab |= {"Ġa": 256, "ĊĊ": 257, "Ã©": 258}
    backend = tokenizers.Tokenizer(models.BPE(vocab, [("Ġ", "a"), ("Ċ", "Ċ"), ("Ã", "©")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|im_end|>", "<|image|>"])
    backend.add_tokens([AddedToken("<think> Ġ", special=False)])
    return backend


def sentencepiece() -> tokenizers.Tokenizer:
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocab |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    vocab |= {"▁": 259, "▁a": 260, "a": 261, "▁▁▁": 262, "日": 263}
    backend = tokenizers.Tokenizer(models.BPE(vocab, [("▁", "a")], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend


def test_our_tokenizer() -> None:
    vocab = Vocabulary.from_tokenizer(OurTokenizer([b"a", None, b"b"], frozenset([1]), 3), vocab_size=40)
    assert (vocab.tokens, vocab.eos_ids, vocab.vocab_size, vocab.num_words) == (
        (b"a", None, b"b"),
        {1},
        40,
        2,
    )


def test_byte_level() -> None:
    backend = byte_level()
    vocab = Vocabulary.from_tokenizer(backend)
    assert vocab.tokens[:256] == tuple(bytes([byte]) for byte in range(256))
    assert vocab.tokens[256:] == (b" a", b"\n\n", "é".encode(), None, None, "<think> Ġ".encode())
    assert vocab.eos_ids == {backend.token_to_id("<|im_end|>")} == {259}
    assert Vocabulary.from_tokenizer(backend, eos_ids=[260]).eos_ids == {260}
    assert vocab.single_bytes.all()


def test_sentencepiece() -> None:
    vocab = Vocabulary.from_tokenizer(sentencepiece())
    assert vocab.tokens[:3] == (None, None, None) and vocab.eos_ids == {2}
    assert vocab.tokens[3:259] == tuple(bytes([byte]) for byte in range(256))
    assert vocab.tokens[259:] == (b" ", b" a", b"a", b"   ", "日".encode())


def test_transformers_tokenizer() -> None:
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level(), eos_token="<|image|>")
    vocab = Vocabulary.from_tokenizer(wrapped)
    assert vocab.eos_ids == {260} and vocab.tokens[256:260] == (b" a", b"\n\n", "é".encode(), None)


def test_what_has_no_bytes() -> None:
    with pytest.raises(ValueError, match="WordPiece"):
        Vocabulary.from_tokenizer(tokenizers.Tokenizer(models.WordPiece({"a": 0, "##b": 1, "[UNK]": 2})))
    with pytest.raises(TypeError, match="not a tokenizer"):
        Vocabulary.from_tokenizer(object())


def test_bounds() -> None:
    with pytest.raises(ValueError, match="vocab_size is 1"):
        Vocabulary([b"a", b"b"], vocab_size=1)
    with pytest.raises(ValueError, match="eos_ids"):
        Vocabulary([b"a"], eos_ids=[1])
    assert Vocabulary([b"a"], eos_ids=[3], vocab_size=4).eos_words.tolist() == [8]
    assert Vocabulary([b"a", b"b"], eos_ids=[1]).tokens == (b"a", None)  # what ends a text is no text


def test_a_large_vocabulary() -> None:
    rng = np.random.default_rng(0)
    words = {bytes([byte]) for byte in range(256)}
    while len(words) < 49_000:
        words.add(bytes(rng.choice([*range(97, 123), 32], size=int(rng.integers(2, 12))).astype(np.uint8)))
    vocab = Vocabulary([*words, None], eos_ids=[49_000])
    vocab.prepare()
    row = np.zeros(vocab.num_words, np.uint32)
    matcher = compile_regex("[a-m ]*", vocab).matcher()
    matcher.fill_mask(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little", count=vocab.vocab_size).astype(bool)
    inside = frozenset(b"abcdefghijklm ")
    want = [spelling is None or inside.issuperset(spelling) for spelling in vocab.tokens]
    assert bits.tolist() == want
