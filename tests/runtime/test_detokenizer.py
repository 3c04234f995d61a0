"""Incremental text against `bytes.decode` of the whole; reported fault B32."""

from __future__ import annotations

import codecs

import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from treille.runtime.detokenizer import Detokenizer
from treille.runtime.token_bytes import byte_alphabet
from treille.runtime.tokenizer import Tokenizer


def byte_tokenizer() -> Tokenizer:
    """Id b is byte b; 256 is a control token, 257 is `水`, 258 the end of `水` and the start of `é`."""
    vocab = dict(byte_alphabet())
    spelled = {byte: character for character, byte in vocab.items()}
    for n, data in enumerate(["水".encode(), b"\xb4\xc3"]):
        vocab["".join(spelled[byte] for byte in data)] = 257 + n
    vocab["<end>"] = 256
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, special_ids=[256])


TOKENIZER = byte_tokenizer()


def deltas(ids, prompt=()):
    stream = Detokenizer(TOKENIZER, prompt)
    return [*map(stream.push, ids), stream.flush()]


# Bytes that make characters, halves of them, and nonsense.
some_bytes = st.lists(
    st.sampled_from(
        [0x41, 0x80, 0x82, 0xAC, 0xBF, 0xC3, 0xE0, 0xE2, 0xED, 0xA0, 0xEF, 0xBD, 0xF0, 0x9F, 0x98, 0xF5]
    )
    | st.integers(0, 255),
    max_size=12,
)
some_ids = st.lists(st.sampled_from([256, 257, 258, 0xE6, 0xB0]) | st.integers(0, 258), max_size=12)


@settings(max_examples=500, deadline=None)
@given(ids=some_ids | some_bytes)
def test_deltas_add_up_to_the_decoded_bytes(ids):
    data = b"".join(TOKENIZER.token_bytes[i] or b"" for i in ids)
    assert "".join(deltas(ids)) == data.decode("utf-8", "replace")


@settings(max_examples=500, deadline=None)
@given(prompt=some_bytes, ids=some_bytes)
def test_a_prompt_lends_at_most_the_start_of_one_character(prompt, ids):
    pending, _ = _decoder_after(bytes(prompt)).getstate()
    alone = bytes(ids).decode("utf-8", "replace")
    lent = (pending + bytes(ids)).decode("utf-8", "replace")
    goes_on = bool(ids) and not _breaks(pending + bytes(ids[:1]))
    assert "".join(deltas(ids, prompt)) == (lent if goes_on else alone)


def _decoder_after(data):
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return decoder


def _breaks(data):
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(data)
    except UnicodeDecodeError:
        return True
    return False


class TestB32:
    def test_a_character_is_streamed_once(self):
        ids = [*b"B ", *"水".encode()[:2], *"水".encode()[2:], *b"cd"]
        assert [delta for delta in deltas(ids) if delta] == ["B", " ", "水", "c", "d"]

    def test_a_prompt_that_ends_inside_a_character(self):
        prompt = [*b"secret ", 0xE2, 0x82]
        assert deltas([0xAC], prompt) == ["€", ""]
        assert deltas([0xAC, 0x41], prompt) == ["€", "A", ""]

    def test_the_prompts_text_never_comes_out(self):
        prompt = [*b"secret ", 0xE2, 0x82]
        assert deltas([0x41], prompt) == ["A", ""]
        assert deltas([], prompt) == [""]
        assert deltas([256, 0x41], prompt) == ["", "A", ""]


def test_half_a_character_waits_for_the_other():
    assert deltas([0xE6, 0xB0, 258, 0xA9, 257]) == ["", "", "水", "é", "水", ""]


def test_an_unfinished_character_at_the_end():
    assert deltas([0x41, 0xE6, 0xB0]) == ["A", "", "", "�"]


def test_control_tokens_and_unknown_ids_give_no_text():
    assert deltas([0x41, 256, 0x42, 9999, -1]) == ["A", "", "B", "", "", ""]
    assert deltas([0xE6, 256, 0xB0, 0xB4]) == ["", "", "", "水", ""]


def test_a_control_token_ends_what_the_prompt_lends():
    assert deltas([0x82], [0xE2, 256]) == ["�", ""]


def test_a_genuine_replacement_character_is_kept():
    assert deltas([0xBD], [0xEF, 0xBF]) == ["�", ""]


def sentencepiece() -> Tokenizer:
    vocab = {"<s>": 0, "▁": 1, "a": 2, "▁a": 3, "<0xC3>": 4, "<0xA9>": 5}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("▁", "a")], byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(backend, bos_id=0, add_bos=True)


def test_sentencepiece_drops_the_space_before_a_text_and_no_other():
    tokenizer = sentencepiece()

    def text(ids, prompt):
        stream = Detokenizer(tokenizer, prompt)
        return "".join([*map(stream.push, ids), stream.flush()])

    assert text([3, 3, 4, 5], [0]) == "a aé"
    assert text([3, 3], [0, 3]) == " a a"
    assert text([4, 5, 3], []) == "é a"
