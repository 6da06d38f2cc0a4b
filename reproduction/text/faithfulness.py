"""Do the selected parts of a text carry the output?

Texts are held-out film reviews: a classifier's words and sentences, and a language model's answer
to a question about the review. Methods rank the parts; curves of G with the best k kept, and with
them removed, are measured by the model itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import accumulate, pairwise
from math import log
from random import Random
from statistics import fmean
from typing import Any

from greedypig.core.enough import ENOUGH
from greedypig.core.errors import InvalidInput
from greedypig.text.api import TextProblem
from greedypig.text.gates import generated
from greedypig.text.prompt import make_prompt, sentences, words
from tools.assets.sentiment import split

from ..experiment import (
    Experiment,
    Method,
    Record,
    Table,
    Task,
    mean_and_error,
    read_record,
    write_record,
)
from .contexts import plain, read_reviews
from .problems import Question, load

PICTURES = ()
MEASURES = {
    "sufficiency": "sufficiency ↑",
    "deletion": "deletion ↓",
    "drop10": "log p lost without 10 % ↑",
    "drop20": "without 20 % ↑",
    "smallest": "smallest set ↓",
    "sufficiency_deleted": "sufficiency, deleted ↑",
    "deletion_deleted": "deletion, deleted ↓",
}
HIGHER = ("sufficiency", "drop10", "drop20", "sufficiency_deleted")
"""Measures of which more is better."""
MODELS = {"words": "minilm-imdb", "sentences": "minilm-imdb", "answers": "smollm2-135m-instruct"}
OURS = ("greedy-pig", "two-sided", "marginal-gains")
"""How the names of our methods begin."""
EVERY = 40
"""Parts up to which every count is measured; of more, each to ten and then every fifth more."""


def reproduce(experiment: Experiment) -> None:
    """Every method on the texts of every part."""
    methods, settings = experiment.methods(), experiment.settings
    parts = experiment.args.parts or list(settings["parts"])
    if not set(parts) <= set(settings["parts"]):
        raise InvalidInput(f"Expected parts among {', '.join(settings['parts'])} (got {parts}).")
    rows: list[Record] = []
    leads: list[Record] = []
    every: list[Record] = []
    for part in parts:
        wanted = min(settings["texts"][part], experiment.args.limit or settings["texts"][part])
        numbers, tried = texts_that_count(experiment, part, wanted)
        chosen = [m for m in methods if part in _options(experiment, m).get("parts", [part])]
        tasks = [_task(experiment, chosen, part, number) for number in numbers]
        records = experiment.measure(tasks)
        own = [
            {"part": part, "text": number, **row}
            for (_, number), record in records.items()
            for row in record["methods"]
        ]
        every += own
        rows += [table_row(settings["parts"][part], method, own) for method in chosen]
        for ours in settings["ours"][part]:
            leads += paired(part, ours, own)
        for lead in leads[-1:]:
            lead["tried"] = tried
    experiment.expect(every)
    experiment.csv("text-faithfulness.csv", rows, "part", "method")
    experiment.csv("text-faithfulness-texts.csv", every, "part", "text", "method")
    experiment.csv("text-faithfulness-differences.csv", leads, "part", "measure")
    columns = {"part": "part", "title": "method", **MEASURES, "cost": "cost", "texts": "texts"}
    formats = {"cost": "{:.0f}", "texts": "{}", "smallest": "{:.1f}"}
    experiment.page(Table(columns, rows, formats), _remarks(experiment, leads))


def _options(experiment: Experiment, method: Method) -> Record:
    """How the method runs: absent, parts."""
    options: Record = experiment.settings["run"].get(method.name, {})
    return options


def _remarks(experiment: Experiment, leads: Sequence[Record]) -> list[str]:
    first = (
        f"Held-out reviews cut to {experiment.settings['words']} words, seed {experiment.seed}; "
        f"texts whose G rises by less than {experiment.settings['least']} are left out. Means ± "
        "standard error; cost in forward-equivalents, a gradient counts three. Differences below "
        "are paired by text, positive where ours is better."
    )
    return [first, *(_lead(lead) for lead in leads)]


def _lead(lead: Record) -> str:
    """A difference as a sentence; positive where ours is better."""
    error = "one text" if lead["error"] is None else f"± {lead['error']:.3f}"
    return (
        f"{lead['part']}, {lead['measure']}: {lead['ours']} against the best rival, "
        f"{lead['rival']}: {lead['gain']:+.3f} ({error})."
    )


def paired(part: str, ours: str, rows: Sequence[Record]) -> list[Record]:
    """Our method minus the rival that is best by its mean, text by text, for every measure."""
    by_method: dict[str, dict[int, Record]] = {}
    for row in rows:
        by_method.setdefault(row["method"], {})[row["text"]] = row
    mine = by_method.get(ours, {})
    rivals = {name: own for name, own in by_method.items() if not name.startswith(OURS)}
    leads = []
    for measure in MEASURES if mine and rivals else ():
        sign = 1 if measure in HIGHER else -1
        best = max(rivals, key=lambda n: sign * fmean(r[measure] for r in rivals[n].values()))
        shared = mine.keys() & rivals[best].keys()
        gains = [sign * (mine[t][measure] - rivals[best][t][measure]) for t in sorted(shared)]
        gain, error = mean_and_error(gains)
        lead = {"part": part, "measure": measure, "ours": ours, "rival": best}
        leads.append(lead | {"gain": gain, "error": error, "texts": len(gains)})
    return leads


def table_row(part: str, method: Method, rows: Sequence[Record]) -> Record:
    """Means and standard errors of one method."""
    own = [row for row in rows if row["method"] == method.name]
    row: Record = {"part": part, "title": method.title, "method": method.name, "texts": len(own)}
    for measure in MEASURES:
        row[measure], row[f"{measure}_error"] = mean_and_error([each[measure] for each in own])
    row["cost"] = fmean(each["cost"] for each in own) if own else None
    return row


# The texts.


@cache
def held_out() -> list[str]:
    """The reviews that the classifier was not trained on, without markup."""
    reviews: list[Any] = [{"text": t, "label": label} for t, label in read_reviews(raw=True)]
    return [plain(review["text"]) for review in split(reviews)[1]]


def cut(text: str, most: int) -> str:
    """The first sentences of a text, up to so many words."""
    ends = [end for _, end in sentences(text) if len(words(text[:end])) <= most]
    return text[: ends[-1]] if ends else ""


def review(experiment: Experiment, number: int) -> str:
    """The review of this number, in an order drawn by the seed."""
    order = list(range(len(held_out())))
    Random(f"reviews {experiment.seed}").shuffle(order)
    return cut(held_out()[order[number]], experiment.settings["words"])


def texts_that_count(experiment: Experiment, part: str, wanted: int) -> tuple[list[int], int]:
    """The first reviews whose output rests on their text, and how many were tried."""
    numbers: list[int] = []
    for number in range(len(held_out())):
        if len(numbers) == wanted:
            return numbers, number
        task = _ends_task(experiment, part, number)
        record = experiment.measure([task]).get(task.item, {"rise": 0})
        if record["rise"] >= experiment.settings["least"][part]:
            numbers.append(number)
    return numbers, len(held_out())


def _ends_task(experiment: Experiment, part: str, number: int) -> Task:
    depends = [experiment.settings[name] for name in ("words", "tokens", "question", "fewest")]
    path = experiment.place(f"ends-{part}", str(number), *depends, experiment.seed)
    return Task((part, number), path, f"{part} {number}", partial(ends, experiment))


def ends(experiment: Experiment, item: tuple[str, int]) -> Record:
    """G with everything minus G with nothing, and the answer of a language model."""
    part, number = item
    text = review(experiment, number)
    if len(sentences(text)) < experiment.settings["fewest"][part]:
        return {"rise": 0.0, "answer": None}
    answer = None
    if part == "answers":
        model, question = load(MODELS[part]), experiment.settings["question"]
        prompt = make_prompt(model, None, text, question, "sentences")
        said = generated(model, prompt, experiment.settings["tokens"])[2]
        answer = said[slice(*sentences(said)[0])] if said.strip() else None
        if answer is None:
            return {"rise": 0.0, "answer": None}
    problem = question_of(experiment, part, text, answer).problem()
    return {"rise": problem.rise, "answer": answer}


def question_of(experiment: Experiment, part: str, text: str, answer: str | None) -> Question:
    """What is explained of a review."""
    model = load(MODELS[part])
    if part == "answers":
        asked = experiment.settings["question"]
        return Question(model, answer, "sentences", context=text, question=asked)
    return Question(model, None, part, text=text)


# The measures.


def _task(experiment: Experiment, methods: Sequence[Method], part: str, number: int) -> Task:
    depends = [(m.name, m.knobs, _options(experiment, m)) for m in methods]
    texts = [experiment.settings[name] for name in ("words", "tokens", "question")]
    path = experiment.place(part, str(number), depends, texts, experiment.seed)
    run = partial(measure, experiment, methods)
    return Task((part, number), path, f"{part} {number}", run)


def measure(experiment: Experiment, methods: Sequence[Method], item: tuple[str, int]) -> Record:
    """Every method's measures on one text. Each method's result has a file of its own."""
    part, number = item
    answer = read_record(_ends_task(experiment, part, number).path)["answer"]
    question = question_of(experiment, part, review(experiment, number), answer)
    rows = []
    for method in methods:
        options = _options(experiment, method)
        texts = [experiment.settings[name] for name in ("words", "tokens", "question")]
        depends = method.knobs, options, texts, experiment.seed
        path = experiment.place(f"{part}/{number}", method.name, *depends)
        row = read_record(path)
        if "error" in row:
            problem = question.problem()
            both = options.get("two_sided", False)
            forwards = options.get("forwards")
            a, cost, spent = question.run(
                method.run(),
                absent=options.get("absent", "masked"),
                k=None if forwards is None else affordable(problem.objective.n, forwards, both),
                seed=experiment.seed,
                two_sided=both,
            )
            row = {"method": method.name, "cost": cost, "seconds": spent}
            row |= measures(problem, a.order.tolist())
            write_record(path, row)
        rows.append(row)
    return {"methods": rows}


def affordable(n: int, forwards: int, both: bool) -> int:
    """How many of n parts can be selected by marginal gains, at least one, for so many forwards."""
    each = 2 if both else 1
    costs = accumulate(each * (n - taken) for taken in range(n))
    return max(1, sum(cost <= forwards for cost in costs))


def counts_of(n: int) -> list[int]:
    """Counts of parts at which curves are measured, with a tenth and a fifth of all."""
    if n <= EVERY:
        return list(range(n + 1))
    counts = {*range(11), n, *(max(1, round(share * n)) for share in (0.1, 0.2))}
    count = 10.0
    while count < n:
        counts.add(round(count))
        count *= 1.25
    return sorted(counts)


def measures(problem: TextProblem, order: Sequence[int]) -> Record:
    """Curves of one order: areas, what is lost without its first parts, the smallest set."""
    n = len(order)
    counts = counts_of(n)
    row: Record = {"parts": n}
    for end, deleted in (("", False), ("_deleted", True)):
        kept = problem.values([order[:count] for count in counts], deleted=deleted)
        without = problem.values([order[count:] for count in counts], deleted=deleted)
        row[f"sufficiency{end}"] = area(counts, kept)
        row[f"deletion{end}"] = area(counts, without, kept[0], kept[-1])
        if deleted:
            continue
        bar = problem.bar(ENOUGH)
        row["smallest"] = next(c for c, v in zip(counts, kept, strict=True) if v >= bar or c == n)
        for share in (10, 20):
            removed = without[counts.index(max(1, round(share * n / 100)))]
            row[f"drop{share}"] = _log(problem, problem.full) - _log(problem, removed)
    return row


def _log(problem: TextProblem, value: float) -> float:
    """The log-probability: of a language model G itself, of a classifier that of the class."""
    return value if problem.answer is not None else log(max(value, 1e-9))


def area(
    counts: Sequence[int],
    values: Sequence[float],
    empty: float | None = None,
    full: float | None = None,
) -> float:
    """∫ (G − G(∅)) / (G(all) − G(∅)) over the share of parts, by trapezoids."""
    low, high = (values[0] if empty is None else empty), (values[-1] if full is None else full)
    points: list[tuple[float, Any]] = [
        (count / counts[-1], (value - low) / (high - low))
        for count, value in zip(counts, values, strict=True)
    ]
    return float(sum((b - a) * (v + w) / 2 for (a, v), (b, w) in pairwise(points)))
