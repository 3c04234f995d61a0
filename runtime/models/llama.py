"""The decoder of the Llama family: Llama, Mistral, Qwen2, Qwen3.

One function from token ids to logits. What differs between the families (biases, norms of q and k,
windows, rotary scaling) is data in `ModelConfig` and `ModelWeights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from treille.kernels.api import AttentionSpec, Kernels, KVCache, Ragged
from treille.kernels.cpu import CpuKernels
from treille.kernels.cpu_decoder import MAX_ROWS as CHAIN_ROWS
from treille.kernels.cpu_decoder import CpuDecoder, DecoderLayer
from treille.runtime.models.config import ModelConfig
from treille.runtime.models.rope import cos_sin_table
from treille.runtime.models.weights import ModelWeights


@dataclass(frozen=True, slots=True, eq=False)
class ModelInputs:
    """One step: `T` new tokens of several sequences laid end to end, and the rows that want logits.

    token_ids:  int64 [T]
    ragged:     where the tokens stand and where their keys and values go
    logit_rows: int64 [R], indices into the T tokens, any order; may be empty
    """

    token_ids: Tensor
    ragged: Ragged
    logit_rows: Tensor


class LanguageModel(Protocol):
    """What the engine needs of a model; tests put a scripted one here."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    def page_bytes(self, page_size: int) -> int: ...

    def new_kv(self, num_pages: int, page_size: int) -> KVCache: ...

    def copy_pages(self, kv: KVCache, pairs: Sequence[tuple[int, int]]) -> None: ...

    def forward(self, inputs: ModelInputs, kv: KVCache) -> Tensor: ...


class LlamaModel:
    """Weights and the forward pass. All memory of a sequence is in its KV pages; one
    thread at a time."""

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, kernels: Kernels, *, max_seq_len: int | None = None
    ) -> None:
        """`max_seq_len` bounds the positions that can be used; None: what the model claims."""
        self.config = config
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        self.max_seq_len = max_seq_len or config.max_position_embeddings
        self._weights = weights
        self._kernels = kernels
        kernels.warm_up(self.dtype)
        self._cos_sin = cos_sin_table(config.rope, config.head_dim, self.max_seq_len).to(self.device)
        self._specs = tuple(
            AttentionSpec(
                num_heads=config.num_heads,
                num_kv_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                scale=config.head_dim**-0.5,
                window=window,
                norm_eps=config.rms_norm_eps,
            )
            for window in config.windows
        )
        self._decoder = self._chained()

    def _chained(self) -> CpuDecoder | None:
        """All layers as one chain, where the CPU's own kernels do all of their work."""
        if not isinstance(self._kernels, CpuKernels):
            return None
        layers = []
        for layer, spec in zip(self._weights.layers, self._specs, strict=True):
            qkv, o, gate_up, down = (one.packed for one in (layer.qkv, layer.o, layer.gate_up, layer.down))
            if qkv is None or o is None or gate_up is None or down is None:
                return None
            parts = (layer.input_norm, qkv, layer.q_norm, layer.k_norm, o, layer.post_norm, gate_up, down)
            layers.append(DecoderLayer(*parts, spec))
        norm, eps = self._weights.final_norm, self.config.rms_norm_eps
        return CpuDecoder.of(self._kernels, layers, norm, self._cos_sin, eps)

    def page_bytes(self, page_size: int) -> int:
        """Bytes that one page of the cache takes over all layers."""
        return self._kernels.page_bytes(
            num_layers=self.config.num_layers,
            page_size=page_size,
            num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim,
            dtype=self.dtype,
        )

    def new_kv(self, num_pages: int, page_size: int) -> KVCache:
        """A zeroed cache of this model's shape, dtype and device."""
        return self._kernels.allocate_kv(
            num_layers=self.config.num_layers,
            num_pages=num_pages,
            page_size=page_size,
            num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim,
            dtype=self.dtype,
            device=self.device,
        )

    def copy_pages(self, kv: KVCache, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy page `src` to page `dst` in all layers for each `(src, dst)`."""
        self._kernels.copy_pages(kv, pairs)

    @torch.inference_mode()
    def forward(self, inputs: ModelInputs, kv: KVCache) -> Tensor:
        """Store the step's keys and values in `kv`; return float32 logits `[R, vocab_size]` of `logit_rows`.

        Indices are trusted; `Ragged.check` checks them. In bfloat16 the logits are rounded to bfloat16
        before they become float32, as in transformers.
        """
        weights = self._weights
        embedded = functional.embedding(inputs.token_ids, weights.embedding)
        if self._decoder is not None and embedded.shape[0] <= CHAIN_ROWS:
            hidden = self._decoder.forward(embedded, kv, inputs.ragged, inputs.logit_rows)
        else:
            hidden = self._layer_by_layer(embedded, inputs, kv)
        if inputs.logit_rows.shape[0] == 0:
            return torch.empty(0, self.config.vocab_size, dtype=torch.float32, device=self.device)
        return weights.lm_head.float32(hidden)

    def _layer_by_layer(self, residual: Tensor, inputs: ModelInputs, kv: KVCache) -> Tensor:
        """From the tokens' embeddings to the chosen rows [R, hidden] behind the last norm."""
        eps, kernels, weights = self.config.rms_norm_eps, self._kernels, self._weights
        hidden = kernels.rms_norm(residual, weights.layers[0].input_norm, eps)
        last = len(weights.layers) - 1
        for index, layer in enumerate(weights.layers):
            mixed = kernels.attention(
                index,
                layer.qkv(hidden),
                kv,
                inputs.ragged,
                self._specs[index],
                cos_sin=self._cos_sin,
                q_norm=layer.q_norm,
                k_norm=layer.k_norm,
            )
            if index == last:
                # All that the other tokens still owed were their keys and values.
                if inputs.logit_rows.shape[0] == 0:
                    break
                mixed, residual = mixed[inputs.logit_rows], residual[inputs.logit_rows]
            hidden, residual = kernels.add_rms_norm(layer.o(mixed), residual, layer.post_norm, eps)
            mixed = layer.down(kernels.silu_mul(layer.gate_up(hidden)))
            norm = weights.final_norm if index == last else weights.layers[index + 1].input_norm
            hidden, residual = kernels.add_rms_norm(mixed, residual, norm, eps)
        return hidden
