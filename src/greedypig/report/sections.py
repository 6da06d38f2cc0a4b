"""The sections of a page below its picture: predictions, methods, rounds, and how it was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import isfinite
from typing import Any

from ..core.attribution import Attribution, is_one_shot
from ..results.curve import Curve
from ..results.photo_notes import COMPARED, Method, Notes
from ..results.picture import rounds_line, strengths, unit_labels, unit_word
from ..results.wording import percent
from .chart import Chart, bar_chart, line_chart
from .markup import escape, table
from .words import method_setting

LONGEST = 200
"""Rows of a table; a longer one says what it leaves out."""


def warned(sentences: Sequence[str]) -> str:
    """The warnings of the run."""
    if not sentences:
        return ""
    items = "".join(f"<li>{escape(words)}</li>" for words in sentences)
    return f'<div class="warn" role="note"><b>Warnings</b><ul>{items}</ul></div>'


def predictions(notes: Notes) -> str:
    """The classes with the highest probability for the whole input, as bars."""
    if not notes.predictions:
        return ""
    names, values = zip(*notes.predictions, strict=True)
    bars = bar_chart(names, values, [f"{v:.3f}" for v in values])
    head = '<h2>The model’s predictions</h2><p class="note">With everything present.</p>'
    return f"<section>{head}{bars}</section>"


def curves(a: Attribution, notes: Notes) -> list[Chart]:
    """Charts of the curves in the notes, else of G(S) after each round."""
    charts = []
    wanted = ("softmax", "deletion", "second-opinion")
    judged = {k: c for k, c in notes.curves.items() if k in wanted}
    off = notes.removing
    if judged:
        labels = [_curve_label(k, c, notes) for k, c in judged.items()]
        how = "with the best features switched off" if off else "with only the best features"
        chart = line_chart("curve-probability", list(judged.values()), labels,
                           quantity=f"Probability of {notes.label or 'the class'} {how}",
                           full=notes.probability, plain=off,
                           done="switched off" if off else "kept")  # fmt: skip
        charts.append(chart)
    for i, (key, line) in enumerate(notes.curves.items()):
        if key not in judged:
            loss = "Distance from the whole input’s prediction (KL, nats; 0 is the same prediction)"
            quantity = loss if key == "loss" else key
            charts.append(line_chart(f"curve-{i}", [line], [_curve_label(key, line, notes)],
                                     quantity=quantity, full=None))  # fmt: skip
    after = rounds_line(a)
    if (off or not judged) and after is not None:
        full = a.full_value if isfinite(a.full_value) else None
        charts.append(line_chart("curve-rounds", [after], ["G(S) after each round"],
                                 quantity="How far the prediction moves (KL, nats)" if off else
                                 f"The objective{_named(notes)} after each round", full=full,
                                 plain=off, done="switched off" if off else "kept"))  # fmt: skip
    return charts


def _named(notes: Notes) -> str:
    return f" ({notes.objective})" if notes.objective else ""


def _curve_label(key: str, line: Curve, notes: Notes) -> str:
    if key in ("softmax", "deletion"):
        return f"{notes.model or 'the model'} itself"
    if key == "second-opinion":
        return f"second opinion by {line.judge or 'another network'}"
    return key


def first_units(a: Attribution, count: int = 20) -> str:
    """The first units by name with bars of what they brought."""
    count = min(count, a.features.units)
    lengths, rounds, meaning = strengths(a, count)
    labels = unit_labels(a, a.order[:count].tolist())
    texts = [
        f"{x:.3g}".replace("-", "−") + (f" · round {r}" if r and len(a.picks) > 1 else "")
        for x, r in zip(lengths, rounds, strict=True)
    ]
    more = a.features.units - count
    tail = f" {more:,} more are not shown." if more else ""
    return (
        f"<section><h2>First {unit_word(a)}</h2>"
        f'<p class="note">In order of selection. A bar is the {escape(meaning)}.{tail}</p>'
        f"{bar_chart(labels, lengths, texts)}</section>"
    )


def comparison(
    methods: tuple[Method, ...], full: float | None, heading: str = "Other methods"
) -> tuple[str, list[Chart]]:
    """Methods side by side: a table, and their curves if they came along."""
    if not methods:
        return "", []
    columns = [c for c in COMPARED if any(c in m.numbers for m in methods)]
    best = {c: _best(c, methods) for c in columns}
    rows = [
        [escape(m.name), *(_cell(c, m.numbers.get(c), best[c]) for c in columns)] for m in methods
    ]
    text = table(
        ["method", *(COMPARED[c][0] for c in columns)], rows, caption="Methods side by side"
    )
    charts = _method_charts(methods, full)
    some = any(value is not None for value in best.values())
    bold = " The best of a column with an arrow is bold." if some else ""
    explained = (
        '<p class="note">SIC: probability over the share kept, higher is better. LIC: distance '
        "from the whole input’s prediction, lower is better. Above full: how much higher the "
        f"probability of some part is than that of the whole.{bold}</p>"
    )
    body = f"<h2>{heading}</h2>{explained}{text}{''.join(c.svg for c in charts)}"
    return f"<section>{body}</section>", charts


def _method_charts(methods: tuple[Method, ...], full: float | None) -> list[Chart]:
    """The methods' curves: probability, distance from the prediction, probability by a judge."""
    alone = "with only each method’s best features"
    shares, losses, judged = (
        [line for line in lines if line is not None]
        for lines in zip(*((m.curve, m.loss, m.second) for m in methods), strict=True)
    )
    judge = next((line.judge for line in judged if line.judge), "another network")
    drawn = (
        ("curve-methods", shares, f"Probability {alone}", full),
        ("curve-methods-loss", losses,
         f"Distance from the whole input’s prediction (KL, nats) {alone}", None),
        ("curve-methods-second", judged, f"Second opinion: probability by {judge} {alone}", None),
    )  # fmt: skip
    return [
        line_chart(name, lines, [line.name for line in lines], quantity=quantity, full=whole,
                   own=False)
        for name, lines, quantity, whole in drawn
        if lines
    ]  # fmt: skip


def _best(column: str, methods: tuple[Method, ...]) -> str | None:
    """The best number of a column as it is written; None where none is to be preferred."""
    head, form = COMPARED[column]
    values = [m.numbers[column] for m in methods if column in m.numbers]
    if head[-1] not in "↑↓" or len(values) < 2:
        return None
    return form.format(max(values) if head[-1] == "↑" else min(values))


def _cell(column: str, value: float | None, best: str | None) -> str:
    if value is None:
        return "–"
    text = COMPARED[column][1].format(value)
    return f"<b>{text}</b>" if text == best else text


def rounds(a: Attribution) -> str:
    """What each round took and where it led."""
    ends = list(accumulate(a.picks))
    rows = [
        [str(i + 1), f"{pick:,}", f"{end:,}", percent(end / a.features.units), _g(value), _g(total)]
        for i, (pick, end, value, total) in enumerate(
            zip(a.picks, ends, a.values[1:].tolist(), a.totals, strict=True)
        )
    ]
    left = len(rows) - LONGEST
    tail = f'<p class="note">{left:,} more rounds are not shown.</p>' if left > 0 else ""
    heads = ["round", "took", "so far", f"of all {unit_word(a)}", "G(S) after", "sum of scores"]
    body = table(heads, rows[:LONGEST], caption="What each round took")
    return f"<details><summary>Rounds ({len(rows)})</summary>{body}{tail}</details>"


def _g(value: float) -> str:
    return f"{value:.4g}" if isfinite(value) else "not measured"


def made(a: Attribution, notes: Notes) -> str:
    """Cost, settings, versions and fingerprints, and how to do it again."""
    facts: dict[str, Any] = {
        "method": method_setting(a) or None,
        "seed": a.settings.get("seed"),
        "gradients": f"{a.gradients_used:,}",
        "seconds": f"{a.seconds:.1f}",
        "stopped because": str(a.stop),
        f"{unit_word(a)} selected": f"{a.selected:,} of {a.features.units:,}",
        "model": notes.model,
        "source": notes.source,
        "baseline": notes.baseline,
    }
    cost = _pairs({k: v for k, v in facts.items() if v is not None}, "The run")
    settings = _pairs(a.settings, "Settings")
    origin = _pairs(a.provenance, "Versions and fingerprints")
    return (
        f"<section><h2>How it was made</h2>{cost}"
        f"<details><summary>Settings</summary>{settings}</details>"
        f"<details><summary>Versions and fingerprints</summary>{origin}</details>"
        f"{rounds(a)}<h3>Do it again</h3>"
        '<pre tabindex="0" aria-label="How to reproduce">'
        f"{escape(reproduce(a, notes))}</pre></section>"
    )


def _pairs(mapping: Mapping[str, Any], caption: str) -> str:
    rows = [
        [escape(key), escape(value if isinstance(value, str) else json.dumps(value, default=str))]
        for key, value in mapping.items()
    ]
    return table(["name", "value"], rows, caption=caption, words=2) if rows else ""


ARGUMENTS = ("target", "outputs", "baseline", "objective", "k", "seed")
CLASSES = {
    "greedy-pig": "GreedyPIG", "steady-pig": "SteadyPIG",
    "sequential-gradient": "SequentialGradient", "ig": "IG", "guided-ig": "GuidedIG",
    "blur-ig": "BlurIG",
}  # fmt: skip
"""Methods whose knobs are numbers and names, by their class."""
OF_ROUNDS = ("rounds", "per_round", "schedule", "ratio")
KNOBS = (*OF_ROUNDS, "steps", "rule", "views")


def reproduce(a: Attribution, notes: Notes) -> str:
    """The command, if the notes hold it; else the call with this result's settings."""
    if notes.command:
        return notes.command
    settings = a.settings
    arguments = [
        f"    {name}={settings[name]!r},"
        for name in ARGUMENTS
        if isinstance(settings.get(name), str | int | float)
    ]
    if not isinstance(settings.get("method"), str):
        return "import greedypig as gp\n\na = gp.load(…)    # this result's file"
    units = {"elements": "", "groups": "    features=…,  # the groups used here",
             "windows": _window(a)}[a.features.kind]  # fmt: skip
    lines = ["import greedypig as gp", ""]
    if notes.kind == "image" and notes.model and notes.source:
        lines += [
            "import PIL.Image",
            f"model = gp.models.load({notes.model!r})",
            f"x = model.preprocess(PIL.Image.open({notes.source!r}))",
        ]
    call = ["a = gp.explain(", "    model, x,", *arguments, f"    method={_method(a)},"]
    return "\n".join([*lines, *call, *([units] if units else []), ")"])


def _method(a: Attribution) -> str:
    """The method as it is written in Python."""
    settings, name = a.settings, a.settings["method"]
    if name not in CLASSES:
        return repr(name)
    unused = OF_ROUNDS if is_one_shot(a) else ()
    knobs = [
        f"{knob}={settings[knob]!r}"
        for knob in KNOBS
        if knob not in unused and isinstance(settings.get(knob), str | int | float | list)
    ]
    return f"gp.{CLASSES[name]}({', '.join(knobs)})"


def _window(a: Attribution) -> str:
    settings, _ = a.features.state()
    size, stride = settings.get("size"), settings.get("stride")
    step = "" if stride == 1 else f", stride={stride}"
    return f"    features=gp.windows({size}{step}),"
