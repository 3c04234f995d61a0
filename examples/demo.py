"""A program with turns, constraints, a select and a fork, shown while it runs.

    python examples/demo.py [CITY]

Dim text is the program's, green text the model's own choice, and cyan text what a constraint left no choice
about. The model is a small one: its form is always right, its facts are not.
"""

from __future__ import annotations

import sys
from typing import Literal

import treille as tr
from treille.show import show

# Each question, and how its answer begins.
QUESTIONS = {
    "What is it famous for?": "It is famous for",
    "What should I eat there?": "You should try",
    "What should I see there?": "Do not miss",
}
SENTENCE = r" [A-Za-z ,']{3,120}\."


@tr.program
def guide(s: tr.State, city: str) -> None:
    """A filled-in form, then three questions answered side by side, then a last word."""
    s += tr.system("You are a travel guide. You answer in one sentence.")
    s += tr.user(f"Tell me about {city}.")
    with s.assistant():
        s += f"City: {city}\nCountry: " + tr.gen("country", regex=r"[A-Z][a-z]+")
        s += "\nContinent: " + tr.select("continent", ["Africa", "America", "Asia", "Europe"])
        s += "\nPopulation: " + tr.gen("population", regex=r"[1-9][0-9]?\.[0-9] million")

    # The branches share everything above: it is computed once, and each adds its own question.
    with s.fork(len(QUESTIONS)) as branches:
        for branch, (question, opening) in zip(branches, QUESTIONS.items(), strict=True):
            branch += tr.user(question)
            with branch.assistant(), branch.capture("answer"):
                branch += opening + tr.gen(regex=SENTENCE)

    s += tr.user("How long should I stay?")
    s += tr.assistant("Days: " + tr.gen("days", type=Literal[1, 2, 3, 5, 7]))


def main(city: str) -> None:
    """Load the embedded model and run the program on it, greedily."""
    print("Loading SmolLM2-135M-Instruct", flush=True)
    with tr.Engine("smollm2-135m") as engine:
        show(guide, engine, city=city, temperature=0)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "Rome")
