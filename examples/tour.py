"""The language on one screen: turns, constraints, select, forks, batches, streams.

    python examples/tour.py [MODEL]

MODEL is an alias, a folder, a GGUF file or a hub id; smollm2-135m unless given.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Literal

import treille as tr
from treille.dsl.events import TextEvent

TICKETS = (
    "The app crashes when I open AB-12.",
    "How do I change my password?",
    "I was charged twice in May.",
)


@tr.program
def triage(s: tr.State, ticket: str) -> None:
    """A select steers the program; constrained texts become typed values."""
    s += tr.system("You sort support tickets.")
    s += tr.user(ticket)
    with s.assistant():
        s += "This is a " + tr.select("kind", ["bug", "question", "billing"]) + "."
        if s["kind"] == "bug":  # reading waits; nothing else does
            s += "\nTicket id: " + tr.gen("id", regex=r"[A-Z]{2}-[0-9]{1,3}")
        s += "\nUrgent: " + tr.gen("urgent", type=Literal["yes", "no"])
        s += "\nMinutes to fix: " + tr.gen("minutes", type=Literal[5, 30, 120])


@tr.program
def tips(s: tr.State, topic: str) -> None:
    """Branches of a fork are written side by side and share what came before."""
    s += tr.user(f"Give me tips about {topic}.")
    with s.assistant():
        s += "My tips:"
        with s.fork(3) as branches:
            for number, branch in enumerate(branches, start=1):
                branch += f"\n{number}." + tr.gen("tip", max_tokens=20, stop="\n")
        s += "".join(f"\n{number}.{branch['tip']}" for number, branch in enumerate(branches, start=1))


async def watch(engine: tr.Engine) -> None:
    """Text as it is written."""
    async for event in tips.stream(topic="gardening", backend=engine, temperature=0.7, seed=1):
        if isinstance(event, TextEvent) and event.branch == ():
            print(event.text, end="", flush=True)
    print()


def main(model: str) -> None:
    """Runs each program once, in each of the three ways."""
    with tr.Engine(model) as engine:
        state = triage.run(ticket=TICKETS[0], backend=engine, temperature=0)
        print(state.messages()[-1]["content"], state.variables(), state.usage, sep="\n")
        tickets = [{"ticket": ticket} for ticket in TICKETS]
        for found in triage.batch(tickets, backend=engine, temperature=0):
            print(found["kind"], found["urgent"], found["minutes"])
        asyncio.run(watch(engine))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m")
