"""Calls at bad moments and values of wrong kinds: an answer or a clear error, and nobody waits for ever."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from oracles.history_model import HistoryModel, request

from treille.runtime.errors import EngineClosed, InvalidRequest
from treille.runtime.params import SamplingParams
from treille.runtime.types import Failed


class Held(HistoryModel):
    """Computes a step only once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def forward(self, inputs, kv):
        self.begun.set()
        assert self.may_go_on.wait(10)
        return super().forward(inputs, kv)


def test_a_flush_that_meets_a_close_ends(make_engine) -> None:
    model = Held()
    engine, _ = make_engine(model)
    stream = engine.submit(request(max_tokens=5))
    assert model.begun.wait(10)
    ends: list[BaseException | int] = []

    def flush() -> None:
        try:
            ends.append(engine.flush_cache())
        except EngineClosed as error:
            ends.append(error)

    threads = [threading.Thread(target=flush, daemon=True) for _ in range(2)]
    threads.append(threading.Thread(target=engine.close, daemon=True))
    for thread in threads[:2]:
        thread.start()
    while len(engine._answers) < 2:
        pass
    threads[2].start()
    while engine.is_alive:
        pass
    model.may_go_on.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert len(ends) == 2 and all(isinstance(end, EngineClosed) for end in ends)
    *_, end = stream
    assert isinstance(end, Failed) and isinstance(end.error, EngineClosed)


@pytest.mark.parametrize("name", ["stop", "stop_token_ids", "logit_bias", "choices"])
@pytest.mark.parametrize("value", [5, True, 1.5])
def test_values_that_are_no_lists(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        SamplingParams(**{name: value})
    assert caught.value.field == name


@pytest.mark.parametrize("name", ["stop", "stop_token_ids", "logit_bias"])
def test_none_is_no_list(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        SamplingParams(**{name: None})


FORGETFUL = """
import treille as tr
from treille.runtime.types import Request
engine = tr.Engine("smollm2-135m", max_seq_len=64, kv_memory="64MiB")
engine.generate(["a"], tr.SamplingParams(max_tokens=2))
engine.submit(Request(prompt_ids=(5,), params=tr.SamplingParams(max_tokens=40)))
print("end")
"""


def test_a_program_that_never_closes_its_engine_ends_well(smollm2_folder) -> None:
    """It was aborted at its end: the engine's thread outlived the interpreter."""
    done = subprocess.run([sys.executable, "-c", FORGETFUL], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
