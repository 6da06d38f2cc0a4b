"""Contexts whose answer stands in known sentences, among sentences of real film reviews.

Kinds of evidence: "one" sentence holds the answer; "two" sentences say it, either suffices;
"halves": two sentences hold one half each, both are needed. Facts are generated, so no model knows
them from its training.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import unescape
from random import Random
from typing import NamedTuple

from greedypig.core.errors import InvalidInput
from greedypig.network.assets_folder import assets_folder
from greedypig.text.prompt import sentences

KINDS = ("one", "two", "halves")
LENGTHS = (10, 40)
"""The fewest and the most sentences of a context; short ones are drawn more often (log-uniform)."""
CHARACTERS = (30, 60)
"""The shortest and the longest sentence of a review that is taken."""
WORDS = {
    "name": "Maria Peter Anna John Laura David Emma Robert Julia Thomas Sophie Daniel Clara Martin "
    "Alice Henry",
    "city": "Oslo Lisbon Vienna Madrid Dublin Prague Athens Warsaw Berlin Rome Cairo Toronto",
    "colour": "red blue green yellow white black purple orange brown",
    "thing": "box door boat car bicycle suitcase house tent kite lamp",
    "job": "doctor pilot painter baker lawyer farmer teacher nurse carpenter plumber",
    "rank": "captain cook doctor pilot painter singer",
    "animal": "horse parrot rabbit turtle goat hamster pony snake",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "number": "12 15 18 24 27 31 36 42 48 53 64 75 87 93",
}
"""What stands in for {name}, {city} and so on; {name2} is another name than {name}."""
FILLERS = (
    "a an and are both called cost costs has have his her in is it name named names of on own "
    "owned owns that the their they this was were where which who"
)
"""Words that add nothing to an answer."""


class Template(NamedTuple):
    """Two sentences, a question about them, and what a right answer holds."""

    first: str
    second: str
    question: str
    keys: str
    """Words that answer the question."""
    subject: str
    """Words that say what the answer is about."""


FACTS = (
    Template(
        "The {thing} of {name} is {colour}.",
        "{name} has a {colour} {thing}.",
        "What is the color of {name}'s {thing}?",
        "{colour}",
        "{name}",
    ),
    Template(
        "{name} lives in {city}.",
        "The home of {name} is in {city}.",
        "In which city does {name} live?",
        "{city}",
        "{name}",
    ),
    Template(
        "{name} works as a {job}.",
        "The profession of {name} is {job}.",
        "What is the profession of {name}?",
        "{job}",
        "{name}",
    ),
    Template(
        "The price of the {thing} is {number} dollars.",
        "The {thing} costs {number} dollars.",
        "How many dollars does the {thing} cost?",
        "{number}",
        "{thing}",
    ),
    Template(
        "{name} is {number} years old.",
        "The age of {name} is {number} years.",
        "How old is {name}?",
        "{number}",
        "{name}",
    ),
    Template(
        "The pet of {name} is a {animal}.",
        "{name} owns a {animal}.",
        "Which animal does {name} own?",
        "{animal}",
        "{name}",
    ),
    Template(
        "The party of {name} is on {day}.",
        "{name} will give a party on {day}.",
        "On which day is the party of {name}?",
        "{day}",
        "{name}",
    ),
)
"""Two sentences that say the same."""
HALVES = (
    Template(
        "The {rank} of the ship is called {name}.",
        "The {rank2} of the ship is called {name2}.",
        "What are the names of the {rank} and the {rank2} of the ship?",
        "{name} {name2}",
        "{rank} {rank2}",
    ),
    Template(
        "{name} lives in {city}.",
        "{name2} lives in {city2}.",
        "In which cities do {name} and {name2} live?",
        "{city} {city2}",
        "{name} {name2}",
    ),
    Template(
        "The {thing} of {name} is {colour}.",
        "The {thing2} of {name} is {colour2}.",
        "What are the colors of {name}'s {thing} and {thing2}?",
        "{colour} {colour2}",
        "{thing} {thing2}",
    ),
    Template(
        "{name} works as a {job}.",
        "{name2} works as a {job2}.",
        "What are the professions of {name} and {name2}?",
        "{job} {job2}",
        "{name} {name2}",
    ),
    Template(
        "{name} owns a {animal}.",
        "{name2} owns a {animal2}.",
        "Which animals do {name} and {name2} own?",
        "{animal} {animal2}",
        "{name} {name2}",
    ),
)
"""Two sentences of which the question needs both."""


@dataclass(frozen=True)
class Context:
    """Sentences, a question about them, and where its answer stands."""

    kind: str
    sentences: tuple[str, ...]
    question: str
    keys: tuple[str, ...]
    """Words that a right answer holds: the answer's own, and what it is about."""
    evidence: tuple[int, ...]
    """The true sentences, in the order of their templates."""

    def answer_in(self, text: str) -> str:
        """The first sentence of what the model says."""
        spans = sentences(text)
        return text[slice(*spans[0])] if spans else text

    def is_right(self, answer: str) -> bool:
        """Does the answer hold every key, and nothing that the question and the true sentences do
        not say?"""
        said = _words(answer)
        told = _words(" ".join([self.question, *(self.sentences[i] for i in self.evidence)]))
        return _words(" ".join(self.keys)) <= said <= told | _words(FILLERS)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def make_context(kind: str, seed: int, number: int, distractors: Sequence[str]) -> Context:
    """Context `number` of a kind and seed: facts at random places among distractors."""
    if kind not in KINDS:
        raise InvalidInput(f"Expected kind to be one of {', '.join(KINDS)} (got {kind!r}).")
    random = Random(f"{kind} {seed} {number}")
    template = random.choice(HALVES if kind == "halves" else FACTS)
    words = _draw(random)
    first, second, question, keys, subject = (each.format(**words) for each in template)
    facts = [random.choice((first, second))] if kind == "one" else [first, second]
    low, high = LENGTHS
    length = int(low * ((high + 1) / low) ** random.random())
    texts = random.sample(list(distractors), length - len(facts))
    places = random.sample(range(length), len(facts))
    for place, fact in sorted(zip(places, facts, strict=True)):
        texts.insert(place, fact)
    wanted = (*keys.split(), *subject.split())
    return Context(kind, tuple(texts), question, wanted, tuple(places))


def _draw(random: Random) -> dict[str, str]:
    """A word for every name of a template, those of one kind different."""
    words = {}
    for kind, choices in WORDS.items():
        words[kind], words[f"{kind}2"] = random.sample(choices.split(), 2)
    return words


def review_sentences(reviews: Sequence[str]) -> list[str]:
    """The short sentences of reviews, each once."""
    low, high = CHARACTERS
    parts = [text[a:b] for text in reviews for a, b in sentences(text)]
    return list(dict.fromkeys(part for part in parts if low <= len(part) <= high))


def read_reviews(most: int | None = None, *, raw: bool = False) -> list[tuple[str, int]]:
    """Film reviews of `make assets ONLY=imdb`, the first or all, and 1 for positive ones.

    raw: with their markup.
    """
    path = assets_folder() / "imdb" / "reviews.jsonl.gz"
    if not path.is_file():
        raise InvalidInput(
            f"Expected film reviews in {path} (got none). Try make assets ONLY=imdb."
        )
    reviews = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            text = record["text"] if raw else plain(record["text"])
            reviews.append((text, int(record["label"])))
            if len(reviews) == most:
                break
    return reviews


def plain(text: str) -> str:
    """A text without HTML tags and repeated spaces."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())
