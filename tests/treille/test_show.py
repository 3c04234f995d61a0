"""How a run looks on the terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from treille.dsl.backends.scripted import ScriptedBackend
from treille.dsl.events import FinishedEvent, TextEvent, VariableEvent
from treille.dsl.expressions import assistant, gen, user
from treille.dsl.program import program
from treille.dsl.protocol import UsageCounts
from treille.dsl.state import State
from treille.show import Screen, show, show_on, summary, type_name


def console(*, colours: bool = False) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=colours, width=80, color_system="standard" if colours else None
    )


def written(target: Console) -> str:
    file = target.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def text(piece: str, *branch: int, kind="sampled", variable: str | None = None, role=None) -> TextEvent:
    return TextEvent(text=piece, kind=kind, role=role, variable=variable, branch=branch)


def done(name: str, *branch: int) -> VariableEvent:
    return VariableEvent(name=name, value="", raw="", branch=branch)


def shown(*events) -> str:
    target = console()
    screen = Screen(target)
    for event in events:
        screen.add(event)
    screen.close()
    return written(target)


@program
def greeting(s: State, name: str) -> None:
    s += user(f"I am {name}.")
    s += assistant(gen("reply", max_tokens=20))


@program
def ideas(s: State) -> None:
    s += "Ideas:\n"
    branches = s.fork(3)
    for branch in branches:
        branch += "- " + gen("idea", max_tokens=30) + "\n"
    best = branches[0]["idea"]
    s += f"Best: {best}"


def test_a_run() -> None:
    target = console()
    state = show_on(target, greeting, ScriptedBackend(["Hello, Ann!"]), {"name": "Ann"})
    assert state["reply"] == "Hello, Ann!"
    screen, table = written(target).split("┏", 1)
    assert screen == "[user]\nI am Ann.\n[assistant]\nHello, Ann!\n"
    assert re.search(r"reply +│ str +│ Hello, Ann!", table)
    assert re.search(r"prefilled +┃ reused from cache ┃ generated +┃ tokens/s", table)
    assert re.search(r"│ 11 +│ \d", table)
    assert "\x1b" not in written(target)


def test_show_prints_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(greeting, ScriptedBackend(["Hi"]), name="Bo")["reply"] == "Hi"
    assert "I am Bo.\n[assistant]\nHi\n" in capsys.readouterr().out


def test_branches_are_listed_by_number() -> None:
    target = console()
    found = [done("a"), done("x", 2), done("x", 0), done("x", 1, 1), done("x", 1, 0), done("b"), done("y", 0)]
    target.print(summary(found, UsageCounts(), 1.0))
    names = re.findall(r"│ ([a-z](?: \(branch [\d.]+\))?) +│", written(target))
    assert names == [
        "a",
        *(f"x (branch {n})" for n in ("0", "1.0", "1.1", "2")),
        "b",
        "y (branch 0)",
    ]


def test_three_colours() -> None:
    target = console(colours=True)
    screen = Screen(target)
    for kind in ("given", "forced", "sampled"):
        screen.add(text(kind, kind=kind))
    assert written(target) == "\x1b[2mgiven\x1b[0m\x1b[36mforced\x1b[0m\x1b[1;32msampled\x1b[0m"


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    target = console(colours=True)
    Screen(target).add(text("x"))
    assert "32" not in written(target)


def test_branches_are_not_mixed() -> None:
    target = console()
    texts = iter(["a red boat", "a blue house", "a green tree"])
    show_on(target, ideas, ScriptedBackend(lambda prompt, options: next(texts), piece=2), {})
    screen = written(target).split("┏", 1)[0]
    assert screen.startswith("Ideas:\n── branch 0\n- ")
    for idea in ("a red boat", "a blue house", "a green tree"):
        assert f"- {idea}\n" in screen, "each idea stands in one piece"
    assert screen.count("── branch 1") == screen.count("── branch 2") == 1
    assert screen.index("── branch 2") < screen.index("── the program goes on\nBest: ")


def test_a_branch_waits_until_the_live_one_has_its_variable() -> None:
    screen = shown(
        text("start "),
        text("a1", 0, variable="x"),
        text("b1", 1, variable="x"),
        text("a2", 0, variable="x"),
        text("b2", 1, variable="x"),
        done("x", 0),
        text("b3", 1, variable="x"),
        done("x", 1),
        text("end"),
        FinishedEvent(usage=UsageCounts()),
    )
    assert screen == "start \n── branch 0\na1a2\n── branch 1\nb1b2b3\n── the program goes on\nend\n"


def test_a_question_and_its_answer_stay_together() -> None:
    screen = shown(
        text("Q0 ", 0, kind="given"),
        text("Q1 ", 1, kind="given"),
        text("A0", 0, variable="x"),
        text("A1", 1, variable="x"),
        done("x", 1),
        done("x", 0),
    )
    assert screen == "── branch 0\nQ0 A0\n── branch 1\nQ1 A1\n"


def test_branches_without_variables() -> None:
    given = [text(f"{index}", index, kind="given") for index in range(3)]
    assert shown(*given, text("end")) == (
        "── branch 0\n0\n── branch 1\n1\n── branch 2\n2\n── the program goes on\nend\n"
    )


def test_nothing_is_lost_when_a_run_breaks_off() -> None:
    screen = shown(text("a", 0, variable="x"), text("b", 1, variable="x"), text("c", 1, 2, variable="x"))
    assert screen == "── branch 0\na\n── branch 1\nb\n── branch 1.2\nc\n"


def test_a_text_cannot_steer_the_terminal() -> None:
    assert shown(text("a\x1b[31mb\x07\x9b\r\tc\n")) == "a␛[31mb␇�␍\tc\n"
    target = console(colours=True)
    show_on(target, greeting, ScriptedBackend(["\x1b]0;x\x07"]), {"name": "[bold]"})
    assert "\x1b]0" not in written(target) and "[bold]" in written(target)


def test_long_text_is_not_broken() -> None:
    assert shown(text("word " * 100)) == "word " * 100 + "\n"


def test_an_error_comes_after_the_text_before_it() -> None:
    @program
    def broken(s: State) -> None:
        s += "before"
        raise ZeroDivisionError("no")

    target = console()
    with pytest.raises(ZeroDivisionError):
        show_on(target, broken, ScriptedBackend(), {})
    assert written(target) == "before\n"


@pytest.mark.parametrize(
    ("value", "name"), [("a", "str"), (1, "int"), (["a"], "list[str]"), ([], "list"), (None, "NoneType")]
)
def test_type_names(value: object, name: str) -> None:
    assert type_name(value) == name
