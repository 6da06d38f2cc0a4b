"""The few sentences that a text model's output rests on.

    python examples/text.py

A classifier of film reviews, and a language model that answers from sources. `make assets` brings
both models.
"""

from __future__ import annotations

import greedypig as gp

REVIEW = (
    "I was not looking forward to this film. The first half hour drags, and the music is too loud. "
    "But then the story catches fire. It is one of the best films of the year."
)
SOURCES = [
    "The house by the lake has three rooms.",
    "Maria keeps her keys in the blue drawer.",
    "Peter likes to fish on Sundays.",
    "The keys of Maria are in the blue drawer.",
]


def main() -> None:
    try:
        a = gp.explain_text("minilm-imdb", REVIEW, features="sentences")
        print(f"{a.about.label}: {a.reach()} of {a.features.count} sentences are enough")
        question = "Where does Maria keep her keys?"
        b = gp.explain_text("smollm2-135m-instruct", context=SOURCES, question=question)
    except FileNotFoundError as error:  # The models are not here; the message says what to do.
        print(error)
        return
    print(f"The model says: {b.about.answer_text}\nIt rests on: {b.top(b.reach() or 1)}")
    for twin, selected in b.about.twins:
        print(f"The same says: {SOURCES[twin]} ({SOURCES[selected]})")


if __name__ == "__main__":
    main()
