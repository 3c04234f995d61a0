"""Throughput of engines on the prefix workloads: each runs the same programs, in a process of its own.

`prefix.py --model` starts this file once an engine. Programs run all at once, each call as soon as it can,
through the engine's asynchronous API; what they are answered with is what the model says. vLLM has no call
that scores continuations of a prompt: it gets a request for one token after each, which costs it less.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from prefix_workloads import WORKLOADS, Call, Ids, Program

Ask = Callable[[Call], Awaitable[Ids]]
MAX_SEQ_LEN = 4608
MAX_NUM_SEQS = 64
KV_GIB = 2


def treille(model: str, *, caching: bool) -> Ask:
    """This project's engine."""
    import treille as tr
    from treille.runtime.types import Finished, Request, ScoreRequest

    engine = tr.Engine(
        model,
        max_seq_len=MAX_SEQ_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        kv_memory=f"{KV_GIB}GiB",
        enable_prefix_caching=caching,
    )

    async def ask(call: Call) -> Ids:
        prompt = tuple(call.prompt)
        params = tr.SamplingParams(temperature=0, max_tokens=call.new, ignore_eos=True)
        request = (
            ScoreRequest(prompt_ids=prompt, continuations=call.choices)
            if call.choices
            else Request(prompt_ids=prompt, params=params)
        )
        async for event in engine.submit(request):
            if isinstance(event, Finished):
                return list(event.completions[0].token_ids)
        return []

    return ask


def vllm(model: str) -> Ask:
    """vLLM through its asynchronous engine."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(KV_GIB))
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # it does not start on two cores otherwise
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=model,
            dtype="bfloat16",
            max_model_len=MAX_SEQ_LEN,
            max_num_seqs=MAX_NUM_SEQS,
            enable_prefix_caching=True,
        )
    )
    names = map(str, itertools.count())

    async def one(prompt: Ids, new: int) -> Ids:
        params = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True)
        answer: Ids = []
        async for output in engine.generate({"prompt_token_ids": prompt}, params, next(names)):
            answer = list(output.outputs[0].token_ids)
        return answer

    async def ask(call: Call) -> Ids:
        if call.choices:
            await asyncio.gather(*(one(call.prompt + list(choice), 1) for choice in call.choices))
            return []
        return await one(call.prompt, call.new)

    return ask


ENGINES: dict[str, Callable[[str], Ask]] = {
    "treille": lambda model: treille(model, caching=True),
    "treille, no cache": lambda model: treille(model, caching=False),
    "vllm": vllm,
}


async def play(program: Program, ask: Ask) -> None:
    """One program to its end."""
    calls = next(program)
    while True:
        answers = await asyncio.gather(*map(ask, calls))
        try:
            calls = program.send(list(answers))
        except StopIteration:
            return


async def seconds_of(engine: str, args: argparse.Namespace) -> dict[str, float]:
    """Seconds for each workload, after a few programs of another seed to warm up."""
    ask = ENGINES[engine](args.model)
    found = {}
    for seed, scale in ((args.seed + 1, 0.01), (args.seed, args.scale)):
        for workload in args.only:
            programs = WORKLOADS[workload].programs(seed, scale)
            start = time.perf_counter()
            await asyncio.gather(*(play(program, ask) for program in programs))
            found[workload] = round(time.perf_counter() - start, 3)
    return found


def compare(model: str, names: list[str], args: argparse.Namespace) -> dict[str, object]:
    """Run the engines one after another, print a row a workload, and return the seconds."""
    pythons = {"treille": sys.executable, "treille, no cache": sys.executable}
    if args.peer:
        pythons[args.peer] = args.peers_python or sys.executable
    seconds: dict[str, dict[str, float]] = {}
    for engine, python in pythons.items():
        command = [python, str(Path(__file__)), "--engine", engine, "--model", model]
        command += ["--seed", str(args.seed), "--scale", str(args.scale)]
        command += [word for name in names for word in ("--only", name)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"{engine} did not run: exit status {done.returncode}; see above")
            continue
        seconds[engine] = json.loads(done.stdout.splitlines()[-1])
    ours = seconds.get("treille", {})
    print(f"{'seconds':20}" + "".join(f"{engine:>20}{'ratio':>8}" for engine in seconds))
    for name in ours:
        cells = (f"{other[name]:20.2f}{other[name] / ours[name]:8.2f}" for other in seconds.values())
        print(f"{name:20}" + "".join(cells))
    return {"seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=list(ENGINES), required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--only", action="append", choices=list(WORKLOADS), required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0)
    args = parser.parse_args()
    package = args.engine.split(",")[0]
    if importlib.util.find_spec(package) is None:
        raise SystemExit(f"{package} is not installed for {sys.executable}: give a Python that has it")
    print(json.dumps(asyncio.run(seconds_of(args.engine, args))))


if __name__ == "__main__":
    main()
