"""Is paged attention faster than PyTorch's on a dense, padded batch of the same sequences?

Run `python benchmarks/attention.py`; the last line is JSON. `--cpu-time --threads 1` measures one thread's
processor time, for machines on which other programs run.

Each layer has a cache of its own and the layers take turns, as in a model, so that keys and values come
from memory and not from the processor's cache. PyTorch gets its best case: keys and values already dense
and equally long, queries and keys already rotated; for "mixed" it has a padded batch and a mask. Ours
includes the rotation and the store. GFLOP/s count what the mask leaves; GB/s count each key and value once.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from treille.kernels.api import AttentionSpec, KVCache, Ragged
from treille.kernels.select import select_kernels

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """`contexts[i]` tokens of sequence `i` are in the cache after the step, the last `new[i]` being new."""

    name: str
    contexts: list[int]
    new: list[int]
    num_layers: int

    def flops(self, spec: AttentionSpec) -> float:
        pairs = sum(n * (c - n) + n * (n + 1) / 2 for c, n in zip(self.contexts, self.new, strict=True))
        return 4 * spec.num_heads * spec.head_dim * pairs

    def kv_bytes(self, spec: AttentionSpec, dtype: torch.dtype) -> float:
        return 2 * sum(self.contexts) * spec.num_kv_heads * spec.head_dim * dtype.itemsize


CASES = [
    Case("prefill 8 x 1024", [1024] * 8, [1024] * 8, 1),
    Case("prefill 1 x 2048", [2048], [2048], 2),
    Case("chunk 512 after 2048", [2560], [512], 4),
    Case("decode 1 x 80", [80], [1], 30),
    Case("decode 1 x 544", [544], [1], 30),
    Case("decode 32 x 80", [80] * 32, [1] * 32, 30),
    Case("decode 32 x 544", [544] * 32, [1] * 32, 8),
    Case("decode 64 x 1024", [1024] * 64, [1] * 64, 4),
    Case("mixed 512 + 31 x 544", [512] + [544] * 31, [512] + [1] * 31, 4),
]


def ours(case: Case, spec: AttentionSpec, dtype: torch.dtype, page_size: int) -> Callable[[], object]:
    """One call of attention a layer over randomly placed pages."""
    kernels = select_kernels(CPU)
    used = [-(-length // page_size) for length in case.contexts]
    kv = kernels.allocate_kv(
        num_layers=case.num_layers,
        num_pages=sum(used),
        page_size=page_size,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        dtype=dtype,
        device=CPU,
    )
    for tensor in kv.keys + kv.values:
        tensor.normal_()
    ragged = _ragged(case, used, kv)
    cos_sin = torch.randn(max(case.contexts), spec.head_dim)
    ragged.check(kv, max_positions=cos_sin.shape[0])
    qkv = torch.randn(ragged.num_tokens, spec.qkv_width).to(dtype)

    def run() -> None:
        for layer in range(case.num_layers):
            kernels.attention(layer, qkv, kv, ragged, spec, cos_sin=cos_sin)

    return run


def _ragged(case: Case, used: list[int], kv: KVCache) -> Ragged:
    places = torch.randperm(kv.num_pages, generator=torch.Generator().manual_seed(0)).split(used)
    table = torch.nn.utils.rnn.pad_sequence(list(places), batch_first=True)
    counts = torch.tensor(case.new)
    ends = torch.tensor(case.contexts)
    positions = torch.cat([torch.arange(c - n, c) for c, n in zip(case.contexts, case.new, strict=True)])
    seq = torch.repeat_interleave(torch.arange(len(counts)), counts)
    size = kv.page_size
    return Ragged(
        query_start=torch.cat([torch.zeros(1), counts.cumsum(0)]).to(torch.int32),
        context_lens=ends.to(torch.int32),
        page_table=table.to(torch.int32).contiguous(),
        slots=table[seq, positions // size] * size + positions % size,
        positions=positions,
    )


def theirs(case: Case, spec: AttentionSpec, dtype: torch.dtype) -> Callable[[], object]:
    """`scaled_dot_product_attention` over [sequences, heads, longest, D]."""
    rows, longest = len(case.contexts), max(case.contexts)
    width = max(case.new)
    query = torch.randn(rows, spec.num_heads, width, spec.head_dim).to(dtype)
    shape = (case.num_layers, 2, rows, spec.num_kv_heads, longest, spec.head_dim)
    dense = torch.randn(shape).to(dtype)
    causal = width > 1 and width == longest
    mask = None if causal or width == 1 else _mask(case, width, longest)

    def run() -> None:
        for keys, values in dense:
            scaled_dot_product_attention(
                query, keys, values, attn_mask=mask, is_causal=causal, scale=spec.scale, enable_gqa=True
            )

    return run


def _mask(case: Case, width: int, longest: int) -> Tensor:
    """[sequences, 1, width, longest], sequences padded on the left."""
    shift = torch.tensor([longest - length for length in case.contexts])[:, None, None]
    index = torch.arange(longest)
    seen = (index <= torch.arange(longest - width, longest)[:, None]) & (index >= shift)
    seen |= torch.eye(longest, dtype=torch.bool)[-width:]  # a padding row that sees nothing would be NaN
    return seen[:, None]


def seconds(run: Callable[[], object], clock: Callable[[], float], budget: float) -> float:
    """The shortest of many runs."""
    run()
    best, end = float("inf"), time.perf_counter() + budget
    while time.perf_counter() < end:
        start = clock()
        run()
        best = min(best, clock() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dtype", choices=DTYPES, nargs="+", default=list(DTYPES))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--heads", type=int, nargs=3, default=[9, 3, 64], help="queries, keys, head size")
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds of measuring for each number")
    parser.add_argument("--cpu-time", action="store_true")
    args = parser.parse_args()
    if args.cpu_time and args.threads != 1:
        parser.error("--cpu-time is one thread's: use it with --threads 1")

    torch.set_num_threads(args.threads)
    clock = time.thread_time if args.cpu_time else time.perf_counter
    heads, kv_heads, head_dim = args.heads
    spec = AttentionSpec(heads, kv_heads, head_dim, head_dim**-0.5)
    result: dict[str, object] = {"benchmark": "attention", **vars(args)}
    for name in args.dtype:
        dtype = DTYPES[name]
        square = torch.randn(1024, 1024).to(dtype)
        peak = 2 * 1024**3 / seconds(lambda x=square: x @ x, clock, args.budget) / 1e9
        print(f"\n{name}, {args.threads} threads; torch.matmul: {peak:.0f} GFLOP/s")
        print(f"{'':22}{'ours ms':>10}{'GFLOP/s':>9}{'GB/s':>7}{'torch ms':>10}{'GFLOP/s':>9}{'ratio':>7}")
        for case in CASES:
            mine = seconds(ours(case, spec, dtype, args.page_size), clock, args.budget) / case.num_layers
            other = seconds(theirs(case, spec, dtype), clock, args.budget) / case.num_layers
            flops, size = case.flops(spec) / 1e9, case.kv_bytes(spec, dtype) / 1e9
            print(
                f"{case.name:22}{mine * 1e3:10.3f}{flops / mine:9.1f}{size / mine:7.1f}"
                f"{other * 1e3:10.3f}{flops / other:9.1f}{other / mine:7.2f}",
                flush=True,
            )
            result[f"{case.name}, {name}"] = {"ms": round(mine * 1e3, 4), "ratio": round(other / mine, 2)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
