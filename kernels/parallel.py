"""Compiled workers and the threads that run them.

A *worker* is a function of one address, that of a block of int64 words: first a counter from which each
thread takes the next piece of work until none is left, then, from word `ARGS` on, what the kernel needs.
It does not matter how many threads run it, so that a machine without a team of them is served as well.

Where PyTorch uses OpenMP, workers run on its very team of threads: a second team would spin beside the
first on the same cores. Each Python thread has its own team there, so calls from several are independent.
Otherwise (no OpenMP, or one without GNU's entry point) the other threads are Python's; `ctypes` lets go of
the interpreter's lock while a worker runs.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import torch
from numba import types

SHARED_SOURCES = ("instructions.py", "simd.py", "tile.py", "gemm_tile.py", "chain.py", "parallel.py")
ARGS = 8  # the counter has a cache line of its own

WorkerSource = Callable[[int], None]


class Worker:
    """One compiled kernel. Numba caches the machine code beside the source, or in the user's cache folder
    where that is read-only (`NUMBA_CACHE_DIR` overrides both).
    """

    def __init__(self, source: WorkerSource) -> None:
        signature = types.void(types.int64)
        try:
            self._compiled: Any = numba.cfunc(signature, cache=True, error_model="numpy")(source)
        except RuntimeError:  # no folder to cache in
            self._compiled = numba.cfunc(signature, error_model="numpy")(source)
        self.address: int = self._compiled.address
        self.from_cache: bool = self._compiled.cache_hits > 0
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self.address)


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Changes with any source that kernels are compiled from, and with the compiler.

    Numba's cache looks at the file of the outermost function alone and would miss a change in what it
    calls; it does look at the variables that the function closes over, and this is one.
    """
    digest = hashlib.sha256(repr(llvm.llvm_version_info).encode())
    folder = Path(__file__).parent
    for path in [folder / name for name in SHARED_SOURCES] + sorted(folder.glob("cpu_*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def float_bits(value: float) -> int:
    """The bits of a float64 as an int64: how a kernel's block of words holds a number with a fraction."""
    bits: int = struct.unpack("q", struct.pack("d", value))[0]
    return bits


def address(tensor: torch.Tensor | None) -> int:
    """Where a tensor's numbers lie; 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()


class ThreadTeam:
    """Runs workers on up to `torch.get_num_threads()` threads of the calling one's."""

    def __init__(self) -> None:
        library = _openmp_library()
        self._openmp = None if library is None else _parallel_entry(library)
        # C functions for workers that wait for each other, as addresses; 0: there is none.
        self.count_entry = 0 if self._openmp is None else _address_of(library, "omp_get_num_threads")
        self.yield_entry = _address_of(_this_process(), "sched_yield")
        self._pool: ThreadPoolExecutor | None = None
        if self._openmp is None and torch.get_num_threads() > 1:
            self._pool = ThreadPoolExecutor(torch.get_num_threads() - 1, thread_name_prefix="treille-kernel")

    def run(self, worker: Worker, words: tuple[int, ...], *, num_threads: int) -> None:
        """Runs `worker` to its end. `words` are its arguments; `num_threads` more than 1 asks for a team."""
        block = (ctypes.c_int64 * (ARGS + len(words)))(*_BLANK, *words)
        address = ctypes.addressof(block)
        if num_threads <= 1:
            worker.call(address)
        elif self._openmp is not None:
            self._openmp(worker.address, address, num_threads, 0)
        elif self._pool is not None:
            helpers = [self._pool.submit(worker.call, address) for _ in range(num_threads - 1)]
            worker.call(address)
            for helper in helpers:
                helper.result()
        else:
            worker.call(address)


_BLANK = (0,) * ARGS


def _openmp_library() -> ctypes.CDLL | None:
    """PyTorch's own library, through which the OpenMP runtime that it was linked with is found: GNU's entry
    point is in LLVM's and Intel's too on Linux.
    """
    folder = Path(torch.__file__).parent / "lib"
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        try:
            library = ctypes.CDLL(str(folder / name))
        except OSError:
            continue
        if _address_of(library, "GOMP_parallel") and _address_of(library, "omp_get_num_threads"):
            return library
    return None


def _parallel_entry(library: ctypes.CDLL) -> Any:
    """`GOMP_parallel(function, data, num_threads, flags)`."""
    entry = library.GOMP_parallel
    entry.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    entry.restype = None
    return entry


def _this_process() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows
        return None


def _address_of(library: ctypes.CDLL | None, name: str) -> int:
    found = getattr(library, name, None)
    return 0 if found is None else ctypes.cast(found, ctypes.c_void_p).value or 0
