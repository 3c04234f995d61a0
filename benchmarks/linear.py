"""How fast are linear layers in each dtype? SmolLM2's projections, ours and PyTorch's.

    make bench-linear                    # processor time of one thread
    python benchmarks/linear.py --rows 1 64 --peers

Weights take turns until they are `--mib` of memory, so that they come from memory and not from a cache.
`--peers` adds PyTorch's products, in int8 and int4 its packed ones. Microseconds a call, the least of the
rounds; GB/s count the weights' bytes. Ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor

from treille.kernels.quantize import GROUP, quantize
from treille.kernels.select import select_cpu_kernels

SHAPES = {"qkv": (960, 576), "gate_up": (3072, 576), "down": (576, 1536), "lm_head": (49152, 576)}
Layer = Callable[[Tensor], Tensor]


def ours(name: str, weight: Tensor) -> tuple[Layer, int]:
    """The layer, and the bytes of its weight."""
    kernels = select_cpu_kernels()
    if name in ("float32", "bfloat16"):
        dtype = torch.float32 if name.endswith("float32") else torch.bfloat16
        return kernels.pack_linear(weight.to(dtype)), weight.numel() * dtype.itemsize
    layer = kernels.pack_quantized(quantize(weight, 8 if name == "int8" else 4), dtype=torch.bfloat16)
    return layer, layer.num_bytes


def peers(name: str, weight: Tensor) -> tuple[Layer, int]:
    """PyTorch's own products, and its packed ones."""
    if name in ("torch float32", "torch bfloat16"):
        plain = weight.to(getattr(torch, name.removeprefix("torch ")))
        return lambda x: torch.nn.functional.linear(x, plain), weight.numel() * plain.element_size()
    if name == "torch int8":
        rounded = quantize(weight, 8)
        values, scales = rounded.values, rounded.scales[:, 0].bfloat16()
        return lambda x: torch.ops.aten._weight_int8pack_mm(x, values, scales), weight.numel()
    rounded = quantize(weight, 4)
    whole = (rounded.values + 8).int()
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(whole, 1)
    scales = rounded.scales.T[:, :, None].repeat(1, 1, 2).bfloat16().contiguous()
    scales[:, :, 1] = 0
    size = weight.numel() // 2 + scales.numel() * 2
    return lambda x: torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, scales), size


def microseconds(layers: list[Layer], x: Tensor, rounds: int) -> float:
    """Processor time of a call, the least of the rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.thread_time()
        for layer in layers:
            layer(x)
        best = min(best, (time.thread_time() - start) / len(layers))
    return best * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64, 512])
    parser.add_argument("--shape", action="append", choices=SHAPES)
    parser.add_argument("--mib", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)

    names = ["float32", "bfloat16", "int8", "int4"]
    names += [f"torch {name}" for name in names] if args.peers else []
    found = []
    for shape in args.shape or SHAPES:
        weight = torch.randn(*SHAPES[shape], generator=torch.Generator().manual_seed(0)) / 24
        print(f"\n{shape:14} {'GB/s of 1':>10}" + "".join(f"{f'{rows} rows':>12}" for rows in args.rows))
        for name in names:
            make = peers if name.startswith("torch") else ours
            _, size = make(name, weight)
            copies = max(1, min(args.mib * 2**20 // size, 200))
            layers = [make(name, weight)[0] for _ in range(copies)]
            times = []
            for rows in args.rows:
                x = torch.randn(rows, weight.shape[1], generator=torch.Generator().manual_seed(1))
                x = x.to(torch.float32 if name.endswith("float32") else torch.bfloat16)
                times.append(microseconds(layers[: max(1, len(layers) // rows)], x, args.rounds))
            speed = size / times[0] / 1e3
            print(f"{name:14} {speed:10.1f}" + "".join(f"{t:12.0f}" for t in times), flush=True)
            found.append({"shape": shape, "dtype": name, "bytes": size, "microseconds": times})
    print(json.dumps({"benchmark": "linear", "rows": args.rows, "results": found}))


if __name__ == "__main__":
    main()
