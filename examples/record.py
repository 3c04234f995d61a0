"""From a text to an instance of a pydantic model, watched while it is written.

    python examples/record.py [MODEL]

The schema is enforced token by token: whatever the model says, what comes out is a `Ticket`. MODEL is an
alias, a folder, a GGUF file or a hub id; smollm2-135m unless given.
"""

from __future__ import annotations

import sys
from datetime import date
from enum import Enum
from typing import Annotated

from pydantic import BaseModel, Field

import treille as tr
from treille.dsl.events import PartialEvent

MAIL = "Since Monday, 4 March 2024, nobody in the Paris office can log in. Please help!"


class Kind(Enum):
    """What a ticket is about."""

    BUG = "bug"
    QUESTION = "question"
    BILLING = "billing"


class Ticket(BaseModel):
    """A form for the model to fill in."""

    title: str = Field(min_length=5, max_length=60)
    kind: Kind
    urgency: int = Field(ge=1, le=5)
    since: date
    offices: list[Annotated[str, Field(max_length=20)]] = Field(min_length=1, max_length=3)


@tr.program
def sort(s: tr.State, mail: str) -> None:
    """The text becomes JSON, and the JSON a Ticket."""
    s += tr.system("You turn mails into tickets. Answer with JSON.")
    s += tr.user(mail)
    with s.assistant():
        s += tr.gen("ticket", schema=Ticket, whitespace="compact", number_style="plain", max_tokens=1500)


def main(model: str) -> None:
    """Shows the fields as they come, then the ticket."""
    with tr.Engine(model) as engine:
        stream = sort.stream(mail=MAIL, backend=engine, temperature=0)
        seen: set[str] = set()
        for event in stream:
            if isinstance(event, PartialEvent) and isinstance(event.value, Ticket):
                for name in sorted(event.value.model_fields_set - seen):
                    print(f"{name} has begun after {len(event.raw)} characters")
                seen |= event.value.model_fields_set
    ticket = stream.state["ticket"]
    assert isinstance(ticket, Ticket)
    print(repr(ticket))
    print(stream.state.raw("ticket"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m")
