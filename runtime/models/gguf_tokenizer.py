"""The tokenizer inside a GGUF file, written out as the files of a tokenizer folder.

GGUF metadata holds the vocabulary, the merges or scores, and the *name* of a pre-tokeniser; what that
name means is known to the programs that read such files. Only the names in `PRE_TOKENIZERS` are
understood here; another one is refused, since a near miss would change every prompt unnoticed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from treille.runtime.errors import ModelError, UnsupportedModel

# GGUF's token types.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Llama 3 and Qwen 2 cut text alike, but for how many digits stay together.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE_TOKENIZERS: Mapping[str, str] = {
    "smollm": "smollm",
    "llama-bpe": "llama3",
    "llama3": "llama3",
    "llama-v3": "llama3",
    "qwen2": "qwen2",
    "deepseek-r1-qwen": "qwen2",
    "gpt-2": "gpt2",
    "default": "gpt2",
}


class GgufField(Protocol):
    """One metadata entry, as `gguf.GGUFReader` gives it."""

    def contents(self) -> Any: ...


class GgufMetadata(Protocol):
    """The part of `gguf.GGUFReader` that is needed here."""

    @property
    def fields(self) -> Mapping[str, GgufField]: ...


def tokenizer_files_from_gguf(reader: GgufMetadata) -> dict[str, bytes]:
    """File name -> content: tokenizer.json, tokenizer_config.json, generation_config.json.

    Raises `ModelError` if the file holds no tokenizer, `UnsupportedModel` for a kind of tokenizer that
    is not implemented.
    """
    entries = _Entries(reader)
    kind = entries.text("model")
    if kind == "gpt2":
        backend = _byte_level(entries)
    elif kind == "llama":
        backend = _sentencepiece(entries)
    else:
        raise UnsupportedModel(f"the GGUF tokenizer {kind!r} is not supported: only gpt2 and llama are")
    backend.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in entries.of(CONTROL, UNKNOWN)]
    )
    backend.add_tokens([AddedToken(t, special=False, normalized=False) for t in entries.of(USER_DEFINED)])
    bos = entries.token("bos")
    if entries.adds_bos() and bos is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A",
            pair=f"{bos} $A {bos} $B",
            special_tokens=[(bos, entries.id("bos"))],
        )
    return {
        "tokenizer.json": backend.to_str().encode(),
        "tokenizer_config.json": _dump(_tokenizer_config(entries)),
        "generation_config.json": _dump(_generation_config(entries)),
    }


class _Entries:
    """The `tokenizer.*` metadata, checked where it is read."""

    def __init__(self, reader: GgufMetadata) -> None:
        self._fields = reader.fields
        self.tokens: list[str] = self._list("tokens")
        if not self.tokens:
            raise ModelError("the GGUF file holds no tokenizer (no tokenizer.ggml.tokens)")
        # Files without types date from before control tokens were told apart.
        self.types: list[int] = self._list("token_type") or [NORMAL] * len(self.tokens)
        if len(self.types) != len(self.tokens):
            raise ModelError(f"the GGUF file has {len(self.tokens)} tokens and {len(self.types)} token types")

    def get(self, key: str, default: Any = None) -> Any:
        field = self._fields.get(f"tokenizer.{key}")
        return default if field is None else field.contents()

    def _list(self, key: str) -> list[Any]:
        return list(self.get(f"ggml.{key}", ()))

    def text(self, key: str) -> str:
        return str(self.get(f"ggml.{key}", ""))

    def id(self, name: str) -> int | None:
        """The id of a special token such as `bos`, if the file names one that exists."""
        token_id = self.get(f"ggml.{name}_token_id")
        return int(token_id) if token_id is not None and 0 <= int(token_id) < len(self.tokens) else None

    def token(self, name: str) -> str | None:
        token_id = self.id(name)
        return None if token_id is None else self.tokens[token_id]

    def of(self, *types: int) -> list[str]:
        """The tokens of these types, by id."""
        return [token for token, kind in zip(self.tokens, self.types, strict=True) if kind in types]

    def vocab(self) -> dict[str, int]:
        """Every token but the unused ones, which only fill up the embedding matrix."""
        numbered = enumerate(zip(self.tokens, self.types, strict=True))
        return {token: i for i, (token, kind) in numbered if kind != UNUSED}

    def merges(self) -> list[tuple[str, str]]:
        pairs = [tuple(merge.split(" ", 1)) for merge in self._list("merges")]
        if any(len(pair) != 2 for pair in pairs):
            raise ModelError("the GGUF file holds a merge that is not two tokens")
        return [(left, right) for left, right in pairs]

    def scores(self) -> list[float]:
        return [float(score) for score in self._list("scores")]

    def adds_bos(self) -> bool:
        """Where the file is silent: SentencePiece vocabularies and Llama 3 do, the others do not."""
        by_kind = self.text("model") == "llama" or PRE_TOKENIZERS.get(self.text("pre")) == "llama3"
        return bool(self.get("ggml.add_bos_token", by_kind))


def _byte_level(entries: _Entries) -> tokenizers.Tokenizer:
    name = entries.text("pre") or "default"
    scheme = PRE_TOKENIZERS.get(name)
    if scheme is None:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise UnsupportedModel(f"the GGUF pre-tokeniser {name!r} is not supported: only {known} are")
    # Llama 3 takes a word that is a token as it is, without going through its merges.
    model = models.BPE(vocab=entries.vocab(), merges=entries.merges(), ignore_merges=scheme == "llama3")
    backend = tokenizers.Tokenizer(model)
    if scheme in ("llama3", "qwen2"):
        words = _WORDS.format(digits=r"\p{N}{1,3}" if scheme == "llama3" else r"\p{N}")
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(words), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    else:
        whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, whole]) if scheme == "smollm" else whole
    if scheme == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(entries: _Entries) -> tokenizers.Tokenizer:
    vocab = entries.vocab()
    merges = entries.merges() or _merges_from_scores(entries, vocab)
    unknown = entries.of(UNKNOWN)
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=merges,
            unk_token=unknown[0] if unknown else None,
            fuse_unk=True,
            byte_fallback=bool(entries.of(BYTE)),
        )
    )
    marker = normalizers.Replace(" ", "▁")
    undo = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if entries.get("ggml.add_space_prefix", True):
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), marker])
        backend.decoder = decoders.Sequence([*undo, decoders.Strip(" ", 1, 0)])
    else:
        backend.normalizer = marker
        backend.decoder = decoders.Sequence(undo)
    return backend


def _merges_from_scores(entries: _Entries, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every way to make a piece from two others, best-scored piece first.

    SentencePiece joins the neighbours whose piece has the highest score; a merge list says the same by
    its order.
    """
    scores = entries.scores()
    if len(scores) != len(entries.tokens):
        raise ModelError(f"the GGUF file has {len(entries.tokens)} tokens and {len(scores)} scores")
    joined: Sequence[int] = [
        i for i, kind in enumerate(entries.types) if kind == NORMAL and len(entries.tokens[i]) > 1
    ]
    normal = {entries.tokens[i] for i, kind in enumerate(entries.types) if kind == NORMAL}
    merges: list[tuple[str, str]] = []
    for token_id in sorted(joined, key=lambda i: -scores[i]):
        piece = entries.tokens[token_id]
        splits = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        pairs = [pair for pair in splits if pair[0] in normal and pair[1] in normal]
        merges.extend(sorted(pairs, key=lambda pair: (vocab[pair[0]], vocab[pair[1]])))
    return merges


def _tokenizer_config(entries: _Entries) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": entries.adds_bos(),
        "clean_up_tokenization_spaces": False,
    }
    for ours, theirs in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token = entries.token(theirs)
        if token is not None:
            config[f"{ours}_token"] = token
    template = entries.get("chat_template")
    if template:
        config["chat_template"] = str(template)
    return config


def _generation_config(entries: _Entries) -> dict[str, Any]:
    """`eot` and `eom` end a turn or a message, which ends the text as `eos` does."""
    ends = [entries.id(name) for name in ("eos", "eot", "eom")]
    config: dict[str, Any] = {"eos_token_id": sorted({end for end in ends if end is not None})}
    for ours, theirs in (("bos", "bos"), ("pad", "padding")):
        token_id = entries.id(theirs)
        if token_id is not None:
            config[f"{ours}_token_id"] = token_id
    return config


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode()
