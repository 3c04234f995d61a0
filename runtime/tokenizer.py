"""`Tokenizer`: text to token ids and back, with one rule about control tokens.

Text is data: unless a caller says `parse_special=True`, the spelling of a control token inside a text
becomes ordinary tokens. Control ids come from the beginning-of-text rule and from a chat template.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from treille.runtime.chat import ChatTemplate, ControlTexts, check_messages, unused_mark
from treille.runtime.errors import InvalidRequest, ModelError
from treille.runtime.token_bytes import TokenText, token_bytes
from treille.runtime.tokenizer_files import read_backend, read_settings

NO_TEMPLATE = (
    "this model has no chat template: put a chat_template.jinja into its folder (or a chat_template entry "
    "into its tokenizer_config.json), or use plain completions"
)


class Tokenizer:
    """A `tokenizers` tokenizer with what the engine needs to know about it. Immutable, any thread.

    `vocab_size`     highest id + 1, added tokens included
    `bos_id`         the id that begins a text, if there is one
    `eos_ids`        ids that end a text
    `special_ids`    every control token; these have no text
    `adds_bos`       whether `encode` begins a text with control tokens (normally `bos_id` alone)
    `chat_template`  None if the model has none
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        chat_template: str | None = None,
        bos_id: int | None = None,
        eos_ids: Iterable[int] = (),
        special_ids: Iterable[int] = (),
        add_bos: bool | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`special_ids` adds to the tokens that the backend itself marks as special.

        `add_bos=None` does what the backend's post-processor does. `variables` are names for the chat
        template. Tokens added to the backend later, or steps changed in it, are not seen.
        """
        self.eos_ids = frozenset(eos_ids)
        declared = {*special_ids, *self.eos_ids, *(() if bos_id is None else (bos_id,))}
        self._parsing = _copy(backend)
        _mark_special(self._parsing, declared)
        self._vocab = self._parsing.get_vocab(with_added_tokens=True)
        added = self._parsing.get_added_tokens_decoder()
        self.vocab_size = max(self._vocab.values(), default=-1) + 1
        self._start_ids = _start_ids(self._parsing, bos_id, add_bos)
        self.bos_id: int | None = bos_id if bos_id is not None or not self._start_ids else self._start_ids[0]
        self.adds_bos = bool(self._start_ids)
        self.special_ids = frozenset(declared | {i for i, token in added.items() if token.special})
        self.chat_template = None if chat_template is None else ChatTemplate(chat_template, variables)
        self._literal, self._aliases = _literal_backend(self._parsing)
        self._alias_ids = {self._literal.token_to_id(a): i for i, a in self._aliases.items()}
        self._alias_of_text = {added[i].content: a for i, a in self._aliases.items()}
        self._controls = ControlTexts(self._alias_of_text)

    @classmethod
    def from_folder(cls, folder: str | Path) -> Tokenizer:
        """Reads tokenizer.json and, where present, the other files that transformers writes beside it.

        Raises `ModelError` if tokenizer.json is missing or a file cannot be read.
        """
        path = Path(folder)
        backend = read_backend(path)
        settings = read_settings(path, backend)
        return cls(
            backend,
            chat_template=settings.chat_template,
            bos_id=settings.bos_id,
            eos_ids=settings.eos_ids,
            special_ids=settings.special_ids,
            add_bos=settings.add_bos,
            variables=settings.variables,
        )

    def encode(self, text: str, *, add_bos: bool = True, parse_special: bool = False) -> list[int]:
        """The ids of a text.

        `add_bos` begins it with the beginning-of-text token if this tokenizer does so, never with a
        second one. `parse_special` turns spellings of control tokens into their ids.
        """
        ids = self._encode(self._parsing if parse_special else self._literal, text)
        return self._with_start(ids) if add_bos else ids

    def render_chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        add_generation_prompt: bool,
        continuation: str = "",
    ) -> str:
        """The conversation as text, as the chat template writes it. Raises as `encode_chat` does."""
        rendered, mark = self._render(messages, continuation, add_generation_prompt=add_generation_prompt)
        return rendered.replace(mark, "")

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        add_generation_prompt: bool,
        continuation: str = "",
    ) -> list[int]:
        """The conversation as ids. Control ids stand where the template put them and nowhere else.

        The template alone decides about the beginning-of-text token, as in transformers; none is added
        to the one it writes. `continuation` is the open assistant message's text so far: it follows the
        generation prompt and is encoded together with it. Raises `InvalidRequest` (field `messages`) for
        messages that are not well-formed, that the template refuses, or if there is no template.
        """
        rendered, mark = self._render(messages, continuation, add_generation_prompt=add_generation_prompt)
        if mark not in rendered:
            return self._encode(self._parsing, rendered, field="messages")
        aliased = self._controls.replace(rendered, mark, self._alias_of_text.__getitem__)
        alias_ids = self._alias_ids
        return [alias_ids.get(i, i) for i in self._encode(self._literal, aliased, field="messages")]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, the inverse of `encode`: control tokens have none, broken UTF-8 becomes `�`.

        Where the tokenizer puts a space before a text, that one is taken off again; the text that tokens
        add to a prompt is the detokenizer's business.
        """
        table = self.token_bytes
        pieces = (table[i] for i in ids if 0 <= i < len(table))
        text = b"".join(piece for piece in pieces if piece).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.strips_first_space else text

    def spelling(self, token_id: int) -> str:
        """How a token stands in the vocabulary: of a control token, what spells it in a text. Empty for an id
        without a token."""
        return self._parsing.id_to_token(token_id) or ""

    @property
    def strips_first_space(self) -> bool:
        """Whether encoding puts a space before a text, which decoding takes off again."""
        return self._text.strips_first_space

    @cached_property
    def token_bytes(self) -> list[bytes | None]:
        """The bytes of each ordinary token; None for control tokens and for ids without a token."""
        added = self._parsing.get_added_tokens_decoder()
        return token_bytes(self._vocab, self.vocab_size, added, self.special_ids, self._text)

    @cached_property
    def _text(self) -> TokenText:
        return TokenText.of(self._parsing)

    def _render(
        self, messages: Sequence[Mapping[str, str]], continuation: str, *, add_generation_prompt: bool
    ) -> tuple[str, str]:
        """The rendered text with look-alikes of control tokens broken by the mark that comes with it."""
        if self.chat_template is None:
            raise InvalidRequest(NO_TEMPLATE, field="messages")
        check_messages(messages)
        if not messages and not add_generation_prompt:
            raise InvalidRequest("messages must hold at least one message", field="messages")
        if continuation and not add_generation_prompt:
            raise InvalidRequest("a continuation needs the generation prompt before it", field="messages")
        texts = [value for message in messages for value in message.values()]
        mark = unused_mark([*texts, continuation, self.chat_template.source])
        safe = [
            {k: v if k == "role" else self._controls.defuse(v, mark) for k, v in message.items()}
            for message in messages
        ]
        rendered = self.chat_template.render(safe, add_generation_prompt=add_generation_prompt)
        return rendered + self._controls.defuse(continuation, mark), mark

    def _encode(self, backend: tokenizers.Tokenizer, text: str, *, field: str = "prompt") -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"the text holds half a surrogate pair at offset {error.start}", field=field
            ) from error
        # Of the library's calls, those for batches let other threads run meanwhile: a text can take seconds.
        ids: list[int] = backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def _with_start(self, ids: list[int]) -> list[int]:
        start = self._start_ids
        if not start or ids[: len(start)] == start or ids[:1] == [self.bos_id]:
            return ids
        return start + ids


def _copy(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A tokenizer of its own over the same model, which holds the vocabulary and never changes."""
    added = backend.get_added_tokens_decoder()
    tokens = [token for _, token in sorted(added.items())]
    # Added all at once, tokens can get other ids where the model's own ids have gaps. One at a time they
    # do not, but then the time grows with the square of their number.
    for size in (max(1, len(tokens)), 1):
        copied = tokenizers.Tokenizer(backend.model)
        for step in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
            if getattr(backend, step) is not None:
                setattr(copied, step, getattr(backend, step))
        for start in range(0, len(tokens), size):
            copied.add_tokens(tokens[start : start + size])
        if copied.get_added_tokens_decoder().keys() == added.keys():
            return copied
    raise ModelError("the tokenizer's added tokens have ids that cannot be given to them again")


def _mark_special(backend: tokenizers.Tokenizer, declared: Iterable[int]) -> None:
    """Makes declared control tokens special where the tokenizer's own file forgot to say so."""
    added = backend.get_added_tokens_decoder()
    forgotten = []
    for token_id in sorted(declared):
        text = backend.id_to_token(token_id)
        if text and not (token_id in added and added[token_id].special):
            forgotten.append(tokenizers.AddedToken(text, special=True, normalized=False))
    if forgotten:
        backend.add_special_tokens(forgotten)


def _start_ids(backend: tokenizers.Tokenizer, bos_id: int | None, add_bos: bool | None) -> list[int]:  # noqa: FBT001
    """What begins every encoded text: the setting if there is one, else what the post-processor does."""
    if add_bos is not None:
        return [bos_id] if add_bos and bos_id is not None else []
    plain: list[int] = backend.encode("a", add_special_tokens=False).ids
    whole: list[int] = backend.encode("a", add_special_tokens=True).ids
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            return whole[:start]
    return []


def _literal_backend(parsing: tokenizers.Tokenizer) -> tuple[tokenizers.Tokenizer, dict[int, str]]:
    """A copy that reads control tokens as ordinary text, and a secret alias by which each can be named.

    The aliases let a text with both kinds (a rendered chat) be encoded in one call, so that whatever the
    tokenizer does at the start of a text happens once. They are random: no input can spell one.
    """
    literal = _copy(parsing)
    literal.encode_special_tokens = True
    secret = secrets.token_hex(16)
    aliases: dict[int, str] = {}
    tokens = []
    for token_id, token in sorted(parsing.get_added_tokens_decoder().items()):
        if token.special:
            aliases[token_id] = f"\U0001fffe{secret}{token_id}\U0001ffff"
            tokens.append(
                tokenizers.AddedToken(
                    aliases[token_id],
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=False,
                    special=False,
                )
            )
    literal.add_tokens(tokens)
    return literal, aliases
