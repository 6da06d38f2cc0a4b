"""Is the evidence of an answer found first?

Contexts of 10–40 sentences hold the answer in one sentence, in two of which either suffices, or in
two halves (`contexts.py`). Found means: the first pick is true evidence, or the first two picks are
the two halves. A method that sees redundancy also marks the other twin. An answer is right if its
first sentence holds every key, and nothing that the question and the evidence do not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from statistics import fmean
from typing import Any

from greedypig.core.enough import ENOUGH
from greedypig.core.stopping import Stop
from greedypig.text.api import twins_of
from greedypig.text.gates import generated
from greedypig.text.prompt import make_prompt

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
from .contexts import KINDS, Context, make_context, read_reviews, review_sentences
from .problems import Question, load

PICTURES = ()
COLUMNS = {
    "title": "method",
    "one": "one sentence",
    "two": "either of two",
    "halves": "both halves",
    "twin": "twin marked",
    "false_twin": "wrongly marked",
    "cost": "cost",
    "check": "check of twins",
    "cases": "cases",
}


def reproduce(experiment: Experiment) -> None:
    """Every method on the contexts that the model answers rightly."""
    methods, settings = experiment.methods(), experiment.settings
    limit = experiment.args.limit
    wanted = {kind: limit or settings["cases"][kind] for kind in KINDS}
    cases, tried = right_cases(experiment, wanted)
    tasks = []
    for kind, number, place in cases:
        run = settings["run"]
        own = [m for m in methods if place < run.get(m.name, {}).get("most", wanted[kind])]
        depends = [(m.name, m.knobs, settings["run"].get(m.name)) for m in own]
        path = experiment.place(kind, str(number), depends, experiment.seed)
        label = f"{kind} {number}"
        tasks.append(Task((kind, number), path, label, partial(measure, experiment, own)))
    records = experiment.measure(tasks)
    experiment.expect(records)
    found = [
        {"kind": kind, "context": number, **row}
        for (kind, number), record in records.items()
        for row in record["methods"]
    ]
    rows = [table_row(method, found) for method in methods]
    formats = dict.fromkeys(KINDS, "{:.2f}") | {
        "twin": "{:.2f}",
        "false_twin": "{:.2f}",
        "cost": "{:.0f}",
        "check": "{:.0f}",
        "cases": "{}",
    }
    experiment.csv("text-evidence.csv", rows, "method")
    experiment.csv("text-evidence-cases.csv", found, "kind", "context", "method")
    right = ", ".join(f"{kind} {wanted[kind]} of {tried[kind]}" for kind in KINDS)
    remark = (
        f"{settings['model']}, seed {experiment.seed}. Share of cases in which the evidence comes "
        f"first, ± standard error. Contexts that were tried until so many were answered rightly: "
        f"{right}. Cost: mean forward-equivalents of the search."
    )
    experiment.page(Table(COLUMNS, rows, formats, digits=2), [remark], model=settings["model"])


def right_cases(
    experiment: Experiment, wanted: Mapping[str, int]
) -> tuple[list[tuple[str, int, int]], dict[str, int]]:
    """(kind, number of the context, place among the cases of its kind) of what is answered rightly,
    kinds in turn, and how many contexts of each kind were tried."""
    cases: dict[str, list[int]] = {kind: [] for kind in KINDS}
    tried = dict.fromkeys(KINDS, 0)
    for number in range(experiment.settings["attempts"] * max(wanted.values())):
        open_kinds = [kind for kind in KINDS if len(cases[kind]) < wanted[kind]]
        tasks = [_answer_task(experiment, kind, number) for kind in open_kinds]
        for (kind, _), record in experiment.measure(tasks).items():
            tried[kind] += 1
            right = context_of(experiment, kind, number).is_right(record["answer"])
            cases[kind] += [number] * right
    turns = [(kind, place) for place in range(max(wanted.values())) for kind in KINDS]
    return [(k, cases[k][i], i) for k, i in turns if i < len(cases[k])], tried


def _answer_task(experiment: Experiment, kind: str, number: int) -> Task:
    depends = [experiment.settings[name] for name in ("model", "tokens", "reviews")]
    path = experiment.place("answers", f"{kind}-{number}", *depends, experiment.seed)
    return Task((kind, number), path, f"answers, {kind} {number}", partial(answer, experiment))


def answer(experiment: Experiment, item: tuple[str, int]) -> Record:
    """What the model says to a context."""
    context, model = context_of(experiment, *item), load(experiment.settings["model"])
    prompt = make_prompt(model, None, context.sentences, context.question, "documents")
    said = context.answer_in(generated(model, prompt, experiment.settings["tokens"])[2])
    return {"answer": said}


@cache
def distractors(reviews: int) -> Sequence[str]:
    """Short sentences of film reviews."""
    return review_sentences([text for text, _ in read_reviews(reviews)])


def context_of(experiment: Experiment, kind: str, number: int) -> Context:
    """The context of this seed and number."""
    sentences = distractors(experiment.settings["reviews"])
    return make_context(kind, experiment.seed, number, sentences)


def measure(experiment: Experiment, methods: Sequence[Method], item: tuple[str, int]) -> Record:
    """What every method finds in one context. Each method's result has a file of its own."""
    kind, number = item
    context = context_of(experiment, kind, number)
    said = read_record(_answer_task(experiment, kind, number).path)["answer"]
    question = Question(
        load(experiment.settings["model"]),
        said,
        "documents",
        context=context.sentences,
        question=context.question,
    )
    rows = []
    for method in methods:
        options = experiment.settings["run"].get(method.name, {})
        knobs = {name: value for name, value in options.items() if name != "most"}
        depends = method.knobs, knobs, experiment.seed, kind, number
        path = experiment.place(f"{kind}/{number}", method.name, *depends)
        row = read_record(path)
        if "error" in row:
            row = found_by(question, method, options, context, experiment.seed)
            write_record(path, row)
        rows.append(row)
    return {"methods": rows}


def found_by(
    question: Question, method: Method, options: Mapping[str, Any], context: Context, seed: int
) -> Record:
    """Does the method find the evidence, and at what cost?"""
    absent = options.get("absent", "masked")
    problem = question.problem(absent)
    value = problem.bar(ENOUGH) if options.get("reach") and problem.rise > 0 else None
    stop = Stop(value=value, gradients=options.get("gradients"))
    a, cost, spent = question.run(method.run(), absent=absent, stop=stop, seed=seed)
    order, row = a.order.tolist(), {"method": method.name, "cost": cost, "seconds": spent}
    row["first"] = " ".join(map(str, order[:3]))
    row["evidence"] = " ".join(map(str, context.evidence))
    if context.kind == "halves":
        row["found"] = float(set(order[:2]) == set(context.evidence))
    else:
        row["found"] = float(order[0] in context.evidence)
    if options.get("twins"):
        before = question.spent
        marked = twins(question, a)
        row["check"] = question.spent - before
        right = [{j, i} == set(context.evidence) for j, i, _ in marked]
        if context.kind == "two":
            row["twin"] = float(any(right))
        else:
            row["false_twin"] = float(bool(marked))
    return row | {"sentences": len(context.sentences), "tokens": len(problem.objective.ids)}


def twins(question: Question, a: Any) -> list[tuple[int, int, float]]:
    """Parts that repeat a selected one, as `gp.explain_text` finds them."""
    problem, order = question.problem(), a.order.tolist()
    counts = range(a.features.count + 1)
    enough = next(k for k in counts if problem.values([order[:k]])[0] >= problem.bar(ENOUGH))
    return twins_of(a, problem, enough) if enough else []


def table_row(method: Method, found: Sequence[Record]) -> Record:
    """Means and standard errors of one method."""
    own = [row for row in found if row["method"] == method.name]
    row: Record = {"title": method.title, "method": method.name}
    for kind in KINDS:
        values = [each["found"] for each in own if each["kind"] == kind]
        row[kind], row[f"{kind}_error"] = mean_and_error(values)
    for name in ("twin", "false_twin"):
        row[name], row[f"{name}_error"] = mean_and_error([r[name] for r in own if name in r])
    row["cost"] = fmean(each["cost"] for each in own) if own else None
    checks = [each["check"] for each in own if "check" in each]
    row["check"] = fmean(checks) if checks else None
    row["cases"] = len(own)
    return row
