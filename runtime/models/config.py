"""What a model is, independent of the file format that said so: frozen values, checked when made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from treille.runtime.errors import ModelError, UnsupportedModel

RopeType = Literal["default", "linear", "dynamic", "yarn", "llama3"]
ROPE_TYPES: tuple[RopeType, ...] = ("default", "linear", "dynamic", "yarn", "llama3")

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary position embedding. A field that a type does not use keeps its default.

    `factor` stretches the context (linear, dynamic, yarn, llama3); `original_length` is the context in
    tokens before it was stretched (dynamic, yarn, llama3). `low_freq_factor` and `high_freq_factor` belong
    to llama3, the betas and `truncate` to yarn. `attention_factor` multiplies cosine and sine.
    `divisors` divides the resulting frequencies one by one, `head_dim / 2` of them; empty for none.
    GGUF files state llama3 scaling that way.
    """

    type: RopeType = "default"
    theta: float = 10000.0
    factor: float = 1.0
    original_length: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    divisors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.theta <= 1:
            raise ModelError(f"rope theta must be larger than 1, not {self.theta}")
        if self.factor <= 0:
            raise ModelError(f"the rope scaling factor must be larger than 0, not {self.factor}")
        if self.type in ("dynamic", "yarn", "llama3") and self.original_length < 1:
            raise ModelError(f"rope type {self.type} needs the original context length")
        if self.type == "llama3" and not 0 < self.low_freq_factor < self.high_freq_factor:
            raise ModelError(
                f"rope type llama3 needs 0 < low_freq_factor < high_freq_factor, "
                f"not {self.low_freq_factor} and {self.high_freq_factor}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder of the Llama family.

    `windows` has one entry a layer: how many tokens, itself included, a token sees; None for all.
    `qk_norm` is an RMS norm over each head of q and k before the rotation (Qwen3). `eos_token_ids` end a
    text; `max_position_embeddings` is the context length in tokens that the model claims.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    max_position_embeddings: int
    tie_word_embeddings: bool
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int | None, ...] = ()
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise UnsupportedModel(
                f"architecture {self.architecture} is not supported; supported are {', '.join(ARCHITECTURES)}"
            )
        if self.num_heads % self.num_kv_heads:
            raise ModelError(f"{self.num_heads} heads cannot share {self.num_kv_heads} key-value heads")
        if self.rms_norm_eps < 0:
            raise ModelError(f"rms_norm_eps must not be negative, but is {self.rms_norm_eps}")
        if self.head_dim % 2:
            raise UnsupportedModel(f"a head dimension of {self.head_dim} is not supported; it must be even")
        if self.rope.divisors and len(self.rope.divisors) != self.head_dim // 2:
            raise ModelError(
                f"{len(self.rope.divisors)} rope divisors do not fit a head dimension of {self.head_dim}"
            )
        if not self.windows:
            object.__setattr__(self, "windows", (None,) * self.num_layers)
        if len(self.windows) != self.num_layers:
            raise ModelError(f"{len(self.windows)} attention windows do not fit {self.num_layers} layers")
        if any(window is not None and window < 1 for window in self.windows):
            raise ModelError("an attention window must be at least one token")

    @property
    def qkv_size(self) -> int:
        """Rows of the fused q, k, v projection."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim
