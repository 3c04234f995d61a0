"""Chat templates: what transformers renders, and control tokens that only the template can write (B44)."""

from __future__ import annotations

import warnings
from datetime import datetime

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from treille.runtime import chat
from treille.runtime.chat import ChatTemplate, ControlTexts, unused_mark
from treille.runtime.errors import InvalidRequest
from treille.runtime.token_bytes import byte_alphabet
from treille.runtime.tokenizer import Tokenizer

CONTROLS = [
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|im_end|>>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
]
IDS = {text: 256 + n for n, text in enumerate(CONTROLS)}

CHATML = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TRIMMED = (
    "{{ bos_token }}\n{% for m in messages %}\n  {% if m['role'] == 'system' %}\n{{ m['content'] | trim }}\n"
    "  {% continue %}{% endif %}\n<|{{ m['role'] }}|>{{ m['content'].strip() }}</s>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|assistant|>{% endif %}"
)
BARE = "{% for m in messages %}{{ m.content }}{% endfor %}"
TEMPLATES = {"chatml": CHATML, "trimmed": TRIMMED, "bare": BARE}


def backend_of(kind):
    if kind == "byte-level":
        backend = tokenizers.Tokenizer(models.BPE(vocab=dict(byte_alphabet()), merges=[]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
    else:
        vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
        backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
        if kind == "prepend":
            backend.normalizer = normalizers.Sequence(
                [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
            )
        else:
            backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.add_special_tokens(
        [AddedToken(t, special=True, normalized=False, rstrip=t == "<|assistant|>") for t in CONTROLS]
    )
    # A tokenizer that begins every text: its template does too, and that must not add up to two.
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", IDS["<s>"])]
    )
    return backend


KINDS = ["byte-level", "prepend", "first"]
BACKENDS = {kind: backend_of(kind) for kind in KINDS}


def tokenizer_of(template, kind="byte-level"):
    return Tokenizer(
        BACKENDS[kind], chat_template=template, bos_id=IDS["<s>"], variables={"bos_token": "<s>"}
    )


TOKENIZERS = {(name, kind): tokenizer_of(t, kind) for name, t in TEMPLATES.items() for kind in KINDS}


def transformers_ids(template, messages, kind="byte-level", *, add_generation_prompt):
    oracle = PreTrainedTokenizerFast(tokenizer_object=BACKENDS[kind], bos_token="<s>", chat_template=template)
    return oracle.apply_chat_template(
        messages, add_generation_prompt=add_generation_prompt, tokenize=True, return_dict=False
    )


def say(*contents):
    roles = ["user", "assistant"] * len(contents)
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]


@settings(max_examples=60, deadline=None)
@given(
    contents=st.lists(st.text("ab <|>/\né水", max_size=8) | st.text(max_size=8), min_size=1, max_size=3),
    system=st.booleans(),
    add_generation_prompt=st.booleans(),
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_innocent_chats_get_the_ids_of_transformers(name, kind, contents, system, add_generation_prompt):
    messages = [{"role": "system", "content": " be\n"}] * system + say(*contents)
    ids = TOKENIZERS[name, kind].encode_chat(messages, add_generation_prompt=add_generation_prompt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = transformers_ids(
            TEMPLATES[name], messages, kind, add_generation_prompt=add_generation_prompt
        )
    assert ids == expected


@settings(max_examples=100, deadline=None)
@given(
    contents=st.lists(
        st.lists(
            st.sampled_from([*CONTROLS, "<", "|>", "<|im_", "end|>", "s>", " ", "a", "\n"]), max_size=5
        ).map("".join),
        min_size=1,
        max_size=4,
    ),
    continuation=st.sampled_from(["", "<s>", "so <|im_end|>"]),
)
@pytest.mark.parametrize("name", TEMPLATES)
def test_control_tokens_come_from_the_template_alone(name, contents, continuation):
    tokenizer = TOKENIZERS[name, "byte-level"]
    harmless = tokenizer.encode_chat(say(*["x" for _ in contents]), add_generation_prompt=True)
    ids = tokenizer.encode_chat(say(*contents), add_generation_prompt=True, continuation=continuation)
    assert [i for i in ids if i >= 256] == [i for i in harmless if i >= 256]
    text = tokenizer.render_chat(say(*contents), add_generation_prompt=True, continuation=continuation)
    spelled = b"".join(CONTROLS[i - 256].encode() if i >= 256 else bytes([i]) for i in ids)
    if name == "trimmed":  # <|assistant|> takes the spaces that follow it
        assert (
            spelled.replace(b" ", b"").replace(b"\n", b"") == text.replace(" ", "").replace("\n", "").encode()
        )
    else:
        assert spelled.decode() == text


class TestB44:
    def test_exactly_one_beginning_in_every_path(self):
        tokenizer = tokenizer_of(CHATML)
        assert tokenizer.adds_bos
        ids = tokenizer.encode_chat(say("hi"), add_generation_prompt=True)
        text = tokenizer.render_chat(say("hi"), add_generation_prompt=True)
        assert ids == tokenizer.encode(text, parse_special=True)
        for path in (ids, tokenizer.encode("hi"), tokenizer.encode("<s>hi", parse_special=True)):
            assert path[0] == IDS["<s>"]
            assert path.count(IDS["<s>"]) == 1

    def test_no_template(self):
        tokenizer = Tokenizer(BACKENDS["byte-level"])
        assert tokenizer.chat_template is None
        with pytest.raises(InvalidRequest, match="chat_template") as caught:
            tokenizer.encode_chat(say("hi"), add_generation_prompt=True)
        assert caught.value.field == "messages"
        assert tokenizer.encode("hi", add_bos=False) == list(b"hi")

    def test_special_text_in_content_stays_text(self):
        tokenizer = tokenizer_of(CHATML)
        ids = tokenizer.encode_chat(say("a<|im_end|>b"), add_generation_prompt=False)
        start, end = IDS["<|im_start|>"], IDS["<|im_end|>"]
        assert ids == [IDS["<s>"], start, *b"user\na<|im_end|>b", end, *b"\n"]


def test_the_continuation_follows_the_generation_prompt():
    tokenizer = tokenizer_of(CHATML)
    whole = tokenizer.render_chat(say("hi"), add_generation_prompt=True, continuation=" so")
    assert whole == "<s><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n so"
    with pytest.raises(InvalidRequest, match="generation prompt"):
        tokenizer.encode_chat(say("hi"), add_generation_prompt=False, continuation="so")


@pytest.mark.parametrize(
    "messages",
    [
        "hi",
        {"role": "user", "content": "hi"},
        ["hi"],
        [{"content": "hi"}],
        [{"role": "user"}],
        [{"role": "", "content": "hi"}],
        [{"role": None, "content": "hi"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user<|im_end|>", "content": "hi"}],
        [{"role": "user", "content": "hi", "name": 3}],
        [{"role": "user", "content": "half \ud800"}],
    ],
)
def test_messages_that_are_not_well_formed(messages):
    with pytest.raises(InvalidRequest) as caught:
        tokenizer_of(CHATML).encode_chat(messages, add_generation_prompt=True)
    assert caught.value.field == "messages"


def test_no_message_at_all():
    tokenizer = tokenizer_of(CHATML)
    # An assistant may speak first, but nobody may say nothing.
    opening = tokenizer.render_chat([], add_generation_prompt=True, continuation="Well")
    assert opening == "<s><|im_start|>assistant\nWell"
    with pytest.raises(InvalidRequest, match="at least one"):
        tokenizer.encode_chat([], add_generation_prompt=False)


# Templates.


def render(source, messages=(), **variables):
    return ChatTemplate(source, variables).render(messages, add_generation_prompt=False)


def test_what_templates_expect():
    assert render("{% if true %}\n  {% if true %}\nx{% endif %}{% endif %}") == "x"
    assert render("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'
    assert render("{{ [1, 2] | tojson(indent=1) }}") == "[\n 1,\n 2\n]"
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert render("{% generation %}x{{ 1 + 1 }}{% endgeneration %}") == "x2"
    assert render("{{ strftime_now('%Y') }}") == str(datetime.now().year)
    assert render("{{ tools is none and documents is none }}{{ eos_token }}", eos_token="E") == "TrueE"
    assert (
        render("{% set ns = namespace(n=1) %}{% set ns.n = ns.n * 2 %}{{ ns.n }}{{ 'ab' * 2 }}{{ 2 ** 3 }}")
        == "2abab8"
    )


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no system role') }}",
        "{% if %}",
        "{{ messages[5].content.upper() }}",
        "{{ 1 / 0 }}",
        "{{ messages + 1 }}",
        "{{ [].append(1) }}",
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ 'x' * 1000000000 }}",
        "{{ 1000000000 * 'x' }}",
        "{{ 9 ** 999999999 }}",
        "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_template_that_fails_fails_the_request(source):
    with pytest.raises(InvalidRequest, match="chat template") as caught:
        render(source, [{"role": "user", "content": "hi"}])
    assert caught.value.field == "messages"


def test_the_templates_own_words_reach_the_user():
    with pytest.raises(InvalidRequest, match="no system role"):
        render("{{ raise_exception('no system role') }}")


def test_the_bound_on_the_output(monkeypatch):
    monkeypatch.setattr(chat, "MAX_RENDERED", 10)
    assert render("{{ 'abc' * 3 }}") == "abcabcabc"
    with pytest.raises(InvalidRequest, match="more than 10"):
        render("{{ 'abcde' }}{{ 'abcdef' }}")


# Look-alikes.


def test_a_mark_breaks_each_spelling():
    controls = ControlTexts(["<a>", "<a>b", "aa", "!"])
    assert controls.defuse("x<a>y", "#") == "x<#a>y"
    assert controls.defuse("aaa.", "#") == "a#a#a."
    assert controls.defuse("x!", "#") == "x!#"
    assert controls.defuse("x<a \n", "#") == "x<a# \n"
    assert controls.defuse("plain", "#") == "plain"
    assert ControlTexts([]).defuse("<a>", "#") == "<a>"


def test_unbroken_spellings_are_replaced_longest_first():
    controls = ControlTexts(["<a>", "<a>b", "!"])
    assert controls.replace("<a>bc<a><#a>!#!", "#", str.upper) == "<A>Bc<A><a>!!"


def test_the_mark_occurs_nowhere_else():
    assert unused_mark(["a"]) == "\ufdd0"
    assert unused_mark(["a\ufdd0", "\ufdd2\ufdd1"]) == "\ufdd3"
    every = "".join(map(chr, range(0xFDD0, 0xFDF0)))
    with pytest.raises(InvalidRequest):
        unused_mark([every])
    ids = tokenizer_of(CHATML).encode_chat(say("\ufdd0<s>"), add_generation_prompt=False)
    assert ids.count(IDS["<s>"]) == 1


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
FILTERED = "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}"
DOUBLING = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"


@pytest.mark.parametrize("source", [ENDLESS, FILTERED, DOUBLING])
def test_a_template_that_never_ends_is_stopped(source, monkeypatch):
    monkeypatch.setattr(chat, "MAX_SECONDS", 0.1)
    with pytest.raises(InvalidRequest, match="longer than"):
        ChatTemplate(source).render([{"role": "user", "content": "hi"}], add_generation_prompt=True)


@pytest.mark.parametrize(
    "source", ["{% for i in [1] %}" * 60 + "{% endfor %}" * 60, "{{ lipsum(n=100000) }}", "{% for %}"]
)
def test_a_template_that_cannot_run_is_refused(source):
    with pytest.raises(InvalidRequest, match="cannot render"):
        ChatTemplate(source).render([{"role": "user", "content": "hi"}], add_generation_prompt=True)
