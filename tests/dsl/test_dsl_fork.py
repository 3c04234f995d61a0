"""Forks: branches that go on side by side, share what came before, and fail by themselves."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest

import treille as tr
from treille.dsl.backends.scripted import ScriptedBackend
from treille.dsl.protocol import GenOptions, Message, Prompt


def line_of(mark: str) -> int:
    """The number of this file's line that ends with a mark."""
    source = inspect.getsource(inspect.getmodule(line_of))  # type: ignore[arg-type]
    return next(n for n, line in enumerate(source.splitlines(), 1) if line.endswith("# " + mark))


def run(function: Any, backend: Any = None, **kwargs: Any) -> tr.State:
    return tr.program(function).run(backend=backend or ScriptedBackend(), **kwargs)


def echo(prompt: Prompt, options: GenOptions) -> str:
    return f"<{prompt.text[-1:]}>"


def test_branches_share_the_prefix_and_keep_their_own() -> None:
    backend = ScriptedBackend(echo)

    def tips(s: tr.State) -> list[object]:
        s += "Tips about " + tr.gen("topic") + ": "
        branches = s.fork(3)
        for index, branch in enumerate(branches):
            branch += f"{index}" + tr.gen("tip")
        s += "all: " + "".join(str(branch["tip"]) for branch in branches.join())
        return [branch["topic"] for branch in branches]

    state = run(tips, backend)
    assert state.text() == "Tips about < >: all: <0><1><2>"
    assert state.returned == ["< >"] * 3
    assert "tip" not in state
    kinds = [call.kind for call in backend.calls]
    assert kinds == ["generate", "prime", "generate", "generate", "generate"]
    prefix = "Tips about < >: "
    assert backend.calls[1].prompt.text == prefix
    assert [call.prompt.text for call in backend.calls[2:]] == [f"{prefix}{i}" for i in range(3)]
    # The prompt once for the gen, once (its new part) for the prime, and one new character a branch.
    computed = state.usage.prompt_tokens - state.usage.cached_tokens
    assert computed <= len(prefix) + 3
    assert state.usage.num_requests == 5


def test_branches_run_side_by_side() -> None:
    gathered = asyncio.Event()
    running = 0

    async def meet(prompt: Prompt, options: GenOptions) -> str:
        nonlocal running
        running += 1
        if running == 4:
            gathered.set()
        await asyncio.wait_for(gathered.wait(), 5)
        return "x"

    def many(s: tr.State) -> None:
        with s.fork(4) as branches:
            for branch in branches:
                branch += tr.gen("x")
        assert [branch["x"] for branch in branches] == ["x"] * 4

    run(many, ScriptedBackend(meet))


def test_a_branch_begins_where_the_fork_stands() -> None:
    """What the parent adds after the fork is not in the branches, however late they are."""

    def both(s: tr.State) -> tuple[str, str]:
        s += "a"
        (branch,) = s.fork(1)
        s += "b" + tr.gen("x")
        branch += "c" + tr.gen("x")
        return branch.text(), s.text()

    backend = ScriptedBackend(echo)
    assert run(both, backend).returned == ("ac<c>", "ab<b>")
    assert all(call.kind == "generate" for call in backend.calls)  # one branch: nothing to share


def test_a_branch_within_an_open_turn() -> None:
    def talk(s: tr.State) -> list[dict[str, str]]:
        s += tr.user("Q")
        with s.assistant():
            s += "A"
            branches = s.fork(2)
            for branch in branches:
                branch += tr.gen()
            with pytest.raises(tr.ProgramError, match="turns do not nest"):
                branches[0] += tr.user("no")
        s += tr.user("R")
        return branches[1].messages()

    backend = ScriptedBackend(echo)
    state = run(talk, backend)
    assert state.returned == [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A<A>"}]
    assert [message["content"] for message in state.messages()] == ["Q", "A", "R"]
    assert backend.calls[0].prompt.parts == (Message("user", "Q"), Message("assistant", "A", open=True))


def test_forks_of_forks_have_paths() -> None:
    def nest(s: tr.State) -> list[tuple[int, ...]]:
        first, second = s.fork(2), s.fork(2)
        inner = second[0].fork(2)
        return [branch.branch for branch in [*first, *second, *inner]]

    assert run(nest).returned == [(0,), (1,), (2,), (3,), (2, 0), (2, 1)]


def test_a_branch_can_be_given_to_another_thread() -> None:
    def think(branch: tr.State) -> None:
        branch += tr.gen("x")
        branch += f"{branch['x']}!"

    def threads(s: tr.State) -> list[str]:
        s += "a"
        branches = s.fork(3)
        workers = [threading.Thread(target=think, args=(branch,)) for branch in branches]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return [branch.text() for branch in branches.join()]

    assert run(threads, ScriptedBackend(echo)).returned == ["a<a><a>!"] * 3


def failing(prompt: Prompt, options: GenOptions) -> str:
    if prompt.text.endswith("!"):
        raise RuntimeError("no")
    return "x"


def test_join_raises_the_first_branch_that_failed() -> None:
    def fail(s: tr.State) -> None:
        branches = s.fork(3)
        for index, branch in enumerate(branches):
            branch += "!" * index + tr.gen("x")  # failing branch
        branches.join()

    with pytest.raises(tr.GenerationFailed) as caught:
        run(fail, ScriptedBackend(failing))
    assert str(caught.value).startswith("branch 1: gen 'x': RuntimeError: no")
    assert caught.value.branch == "1"
    assert caught.value.lineno == line_of("failing branch")


def test_a_branch_that_fails_unseen_is_raised_at_the_end() -> None:
    def fail(s: tr.State) -> None:
        for branch in s.fork(2):
            branch += "!" + tr.gen("x")

    with pytest.raises(tr.GenerationFailed, match="branch 0"):
        run(fail, ScriptedBackend(failing))


def test_a_program_may_live_on_when_a_branch_failed() -> None:
    def recover(s: tr.State) -> None:
        branches = s.fork(2)
        branches[0] += "!" + tr.gen("x")
        branches[1] += tr.gen("x")
        try:
            branches.join()
        except tr.GenerationFailed:
            s += "one failed, the other said " + str(branches[1]["x"])

    assert run(recover, ScriptedBackend(failing)).text() == "one failed, the other said x"


def test_a_parent_that_failed_takes_its_branches_along() -> None:
    def fail(s: tr.State) -> None:
        s += "!" + tr.gen("x")
        for branch in s.fork(2):
            branch += tr.gen("y")
        with pytest.raises(tr.GenerationFailed, match="gen 'x'"):
            branch["y"]

    with pytest.raises(tr.GenerationFailed, match="gen 'x'"):
        run(fail, ScriptedBackend(failing))


@pytest.mark.parametrize("n", [0, -1, 1025, True, 1.5, "2"])
def test_wrong_numbers_of_branches(n: Any) -> None:
    with pytest.raises(tr.InvalidExpression, match="fork: n must be"):
        run(lambda s: s.fork(n))


def test_a_branch_variable_read_from_the_state_says_where_it_is() -> None:
    def tips(s: tr.State) -> None:
        branches = s.fork(2)
        for branch in branches:
            branch += "a" + tr.gen("tip")
        with pytest.raises(tr.UnknownVariable, match=r"branches: read it by branches\[i\]\['tip'\]"):
            s["tip"]
        assert repr(branches[1]) == "<state of branch 1: tip>"

    state = run(tips, ScriptedBackend(["x", "y"]))
    assert repr(state) == "<state: no variables>"
    with pytest.raises(tr.UnknownVariable, match="no variable 'top'"):
        state["top"]
