"""From a prompt's parts to token ids, by the model's tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, takewhile
from typing import Protocol

from treille.dsl.protocol import Message, Prompt, Text
from treille.runtime.errors import InvalidRequest


class TokenizerLike(Protocol):
    """The part of `treille.runtime.tokenizer.Tokenizer` that is used here."""

    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_ids(self) -> frozenset[int]: ...
    @property
    def adds_bos(self) -> bool: ...
    def encode(self, text: str, *, add_bos: bool = True, parse_special: bool = False) -> list[int]: ...
    def encode_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool, continuation: str = ""
    ) -> list[int]: ...


def encode_prompt(tokenizer: TokenizerLike, prompt: Prompt) -> tuple[int, ...]:
    """The ids of a prompt; never empty.

    Text outside roles is encoded as a completion prompt is: special tokens spelled in it become those
    tokens. Each run of turns goes through the chat template, where spelled special tokens stay text. An
    open assistant turn at the end is the generation prompt and its text so far; an open turn of another
    role, which only `prime` is given, is rendered as if it ended there. There is one beginning-of-text
    token at most, at the start. The empty prompt is that token, or the end-of-text token of models that
    have none.

    Raises `InvalidRequest` for turns if the model has no chat template.
    """
    ids: list[int] = []
    for is_chat, group in groupby(prompt.parts, key=lambda part: isinstance(part, Message)):
        parts = list(group)
        if is_chat:
            new = _encode_turns(tokenizer, [part for part in parts if isinstance(part, Message)])
            # Without the rule that texts begin so, the same token can be a turn's own mark.
            again = tokenizer.adds_bos and ids and new[:1] == [tokenizer.bos_id]
            ids += new[1:] if again else new
        else:
            text = "".join(part.text for part in parts if isinstance(part, Text))
            ids += tokenizer.encode(text, add_bos=not ids, parse_special=True)
    return tuple(ids) or (_start_id(tokenizer),)


def encode_choices(
    tokenizer: TokenizerLike, prompt: Prompt, extended: Sequence[Prompt]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The ids that a prompt shares with its extensions, and the rest of each extension.

    Each extension is encoded as a whole, so that its tokens are the ones the tokenizer would make of the
    text. Where the prompt's end and a choice's beginning become one token, the shared part ends before
    it, for all extensions alike: all rests then cover the same text and can be compared.
    """
    base = encode_prompt(tokenizer, prompt)
    wholes = [encode_prompt(tokenizer, whole) for whole in extended]
    if not prompt.parts:
        # The start token is no part of the extensions where the tokenizer adds none.
        wholes = [whole if whole[:1] == base else base + whole for whole in wholes]
    num_shared = min(min(_num_common(base, whole), len(whole) - 1) for whole in wholes)
    if num_shared < 1:
        # Not even the first token is shared: the model is given the token that begins a text.
        return (_start_id(tokenizer),), wholes
    return wholes[0][:num_shared], [whole[num_shared:] for whole in wholes]


def _encode_turns(tokenizer: TokenizerLike, messages: Sequence[Message]) -> list[int]:
    last = messages[-1]
    is_writing = last.open and last.role == "assistant"
    closed = messages[:-1] if is_writing else messages
    return tokenizer.encode_chat(
        [{"role": message.role, "content": message.content} for message in closed],
        add_generation_prompt=is_writing,
        continuation=last.content if is_writing else "",
    )


def _num_common(first: Sequence[int], second: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _start_id(tokenizer: TokenizerLike) -> int:
    if tokenizer.bos_id is not None:
        return tokenizer.bos_id
    if not tokenizer.eos_ids:
        raise InvalidRequest(
            "the prompt is empty, and the model has no token that begins a text", field="prompt"
        )
    return min(tokenizer.eos_ids)
