"""A model whose next token depends on every token that it can see through the page table, and nothing else.

Wrong pages, slots, copies or positions change what it says, so the engine's whole path is tested in
milliseconds against brute force.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import tokenizers
import torch

from treille.kernels.api import KVCache
from treille.runtime.engine import Engine
from treille.runtime.models.config import ModelConfig, RopeConfig
from treille.runtime.models.llama import ModelInputs
from treille.runtime.params import SamplingParams
from treille.runtime.tokenizer import Tokenizer
from treille.runtime.types import Request

EOS = 256
VOCAB = 257
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


class HistoryModel:
    """Keeps token ids where keys would be; logits are noise seeded by the whole context, plus `bias`."""

    def __init__(self, bias: Sequence[float] | None = None, *, num_tokens: int = VOCAB) -> None:
        self.num_tokens = num_tokens
        self.config = ModelConfig(
            architecture="LlamaForCausalLM",
            vocab_size=num_tokens + 7,  # wider than the tokenizer, as padded models are
            hidden_size=8,
            intermediate_size=8,
            num_layers=1,
            num_heads=1,
            num_kv_heads=1,
            head_dim=8,
            rms_norm_eps=1e-6,
            rope=RopeConfig(),
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            windows=(None,),
        )
        self.dtype = torch.float32
        self.device = torch.device("cpu")
        self.bias = np.zeros(num_tokens) if bias is None else np.asarray(bias, dtype=np.float64)
        self.steps: list[list[int]] = []  # new tokens of each sequence, a step
        self.fail_with: Exception | None = None

    def page_bytes(self, page_size: int) -> int:
        return page_size * 64

    def new_kv(self, num_pages: int, page_size: int) -> KVCache:
        pages = torch.full((num_pages, page_size), -1, dtype=torch.int64)
        return KVCache((pages,), (pages,), num_pages, page_size, 1, 8)

    def copy_pages(self, kv: KVCache, pairs: Sequence[tuple[int, int]]) -> None:
        for source, target in pairs:
            kv.keys[0][target] = kv.keys[0][source]

    def forward(self, inputs: ModelInputs, kv: KVCache) -> torch.Tensor:
        if self.fail_with is not None:
            raise self.fail_with
        ragged = inputs.ragged
        starts = ragged.query_start.tolist()
        self.steps.append([b - a for a, b in itertools.pairwise(starts)])
        kv.keys[0].view(-1)[ragged.slots] = inputs.token_ids
        found = []
        for row in inputs.logit_rows.tolist():
            seq = int(np.searchsorted(starts, row, side="right")) - 1
            length = int(ragged.context_lens[seq]) - (starts[seq + 1] - 1 - row)
            assert int(ragged.positions[row]) == length - 1
            context = kv.keys[0][ragged.page_table[seq].long()].reshape(-1)[:length]
            assert int(context.min()) >= 0, "read a slot that was never written"
            found.append(self.logits(context.tolist()))
        padding = np.full((len(found), self.config.vocab_size - self.num_tokens), 1e6)
        rows = np.concatenate([np.reshape(found, (-1, self.num_tokens)), padding], axis=1)
        return torch.from_numpy(rows.astype(np.float32))

    def logits(self, context: Iterable[int]) -> np.ndarray:
        """float64 [num_tokens] after a context."""
        seed = zlib.crc32(np.asarray(list(context), dtype=np.int32).tobytes())
        return np.random.default_rng(seed).standard_normal(self.num_tokens) + self.bias

    def greedy(self, prompt: Sequence[int], count: int, *, stop_at_eos: bool = True) -> list[int]:
        """What a greedy engine must answer, by brute force."""
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(self.logits(tokens).argmax()))
            if stop_at_eos and tokens[-1] == EOS:
                break
        return tokens[len(prompt) :]


class Speaker(HistoryModel):
    """Wants to say a text after a prompt of any length that does not end with it, byte by byte."""

    def __init__(self, said: bytes) -> None:
        super().__init__()
        self.said = said

    def logits(self, context: Iterable[int]) -> np.ndarray:
        tokens = bytes(token for token in context if token < EOS)
        done = max(n for n in range(len(self.said) + 1) if tokens.endswith(self.said[:n]))
        logits = super().logits(tokens)
        logits[self.said[done] if done < len(self.said) else EOS] += 100
        return logits


class Reciter(HistoryModel):
    """Says `script`, token by token, after a prompt of `start` tokens, whatever that is."""

    def __init__(self, script: Sequence[int], *, start: int, num_tokens: int = VOCAB) -> None:
        super().__init__(num_tokens=num_tokens)
        self.script = tuple(script)
        self.start = start

    def logits(self, context: Iterable[int]) -> np.ndarray:
        tokens = list(context)
        logits = super().logits(tokens)
        said = len(tokens) - self.start
        logits[self.script[said] if 0 <= said < len(self.script) else EOS] += 100
        return logits


def byte_tokenizer(chat_template: str | None = None, words: Sequence[bytes] = ()) -> Tokenizer:
    """One token a byte, `<eos>`, and from id VOCAB on the words. A text is only encoded to those in ASCII."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet(), key=_byte_of)
    spelled = ["".join(alphabet[byte] for byte in word) for word in words]
    vocab = {token: index for index, token in enumerate([*alphabet, "<eos>", *spelled])}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens([tokenizers.AddedToken("<eos>", special=True)])
    backend.add_tokens([word.decode() for word in words if word.isascii()])
    return Tokenizer(backend, chat_template=chat_template, eos_ids=[EOS])


def _byte_of(char: str) -> int:
    """The byte that a character of the byte-level alphabet stands for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if ord(char) < 256:
        return ord(char)
    hidden = [byte for byte in range(256) if byte not in printable]
    return hidden[ord(char) - 256]


def random_prompts(count: int, low: int, high: int, shared: int = 0, seed: int = 0) -> list[tuple[int, ...]]:
    """Prompts of random bytes that begin alike for `shared` tokens."""
    rng = np.random.default_rng(seed)
    head = rng.integers(0, 256, shared).tolist()
    return [(*head, *rng.integers(0, 256, rng.integers(low, high)).tolist()) for _ in range(count)]


def request(prompt: str | bytes | Sequence[int] = "abc", **params: object) -> Request:
    """A greedy request for a text of bytes, with other parameters."""
    ids = tuple(prompt.encode()) if isinstance(prompt, str) else tuple(prompt)
    return Request(prompt_ids=ids, params=SamplingParams(**({"temperature": 0} | params)))


def idle(engine: Engine) -> bool:
    """Whether nothing runs or waits and every page is free or cached."""
    stats = engine.stats()
    return stats["running"] == stats["waiting"] == stats["unfinished_requests"] == 0 and (
        stats["free_pages"] + stats["cached_pages"] == stats["pages"]
    )
