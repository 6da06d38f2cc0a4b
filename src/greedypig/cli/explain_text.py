"""`greedypig explain-text`: the words, sentences or sources that a text model's output rests on."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import greedypig as gp

from .. import report
from ..core.errors import BudgetTooSmall, GreedyPigError, InvalidInput
from ..core.methods import as_method, with_knobs
from ..core.run import Run
from ..core.stopping import Stop
from ..results.picture import unranked
from ..results.text_notes import COLUMNS, TextNotes, compared, shortened
from ..results.wording import count, kept_settings, setting
from ..tensors.methods import FOR_BOTH_SIDES_OF_TEXTS, FOR_TEXTS, within
from ..text import models
from ..text.api import LONGEST_ANSWER
from ..text.gates import answer_of
from ..text.prompt import make_prompt, sentences
from . import options, outputs
from .commands import CLASSIFIER, LANGUAGE, TEXT_METHODS
from .failures import DONE, FAILED, USAGE, Unfit, UsageError, sentence, wrong_command
from .resumable import Session
from .terminal import BOLD, DIM, Terminal, duration, styled

if TYPE_CHECKING:
    from rich.text import Text

FOR_ANSWERS = ("captum-ablation", "captum-shapley")
"""Methods for language models only."""
ENDINGS = (".txt", ".md", ".rst", ".text")
"""Files of a folder that are texts."""
AROUND, MOST = 60, 60
"""Characters shown around selected parts, and selected parts shown, in the terminal."""
FORWARDS = 40
"""About so many forward passes follow the search, for the progress bar."""
STRENGTHS = ("red", "cyan", "cyan", "bold cyan", "bold green", "bold green")
"""The colours of parts by their gain; the first is that of a loss."""


@dataclass(frozen=True)
class Source:
    """One text, chat or context, as the command line gives it."""

    name: str
    """A file's name, else "text"."""
    text: Any = None
    """A text, or a chat."""
    context: tuple[str, ...] | None = None
    documents: tuple[str, ...] = ()
    """The names of the context's texts."""
    question: str | None = None

    @property
    def for_language_model(self) -> bool:
        """Can only a language model read it?"""
        return self.context is not None or not isinstance(self.text, str)


@dataclass(frozen=True)
class Job:
    """One result: a source, the answer and the part of it, the method, and the files."""

    source: Source
    session: Session
    page: Path
    answer: str | None = None
    part: Any = None
    method: str | None = None
    title: str = ""
    """What is under way, for the progress bar and warnings."""


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read the texts, explain each, write the files."""
    _check(args)
    sources = _sources(args)
    stems = outputs.stems(args.out, [Path(each.name) for each in sources])
    own = any(each.for_language_model for each in sources)
    asked = own or args.answer is not None or args.part is not None or args.per_sentence
    name = args.model or (LANGUAGE if asked else CLASSIFIER)
    question = Question(args, terminal, _load(name, args.device))
    if asked and not question.answers:
        raise UsageError(
            "Expected a language model for an answer, a chat or a context (got the classifier "
            f"{question.model.name})."
        )
    index = stems[0].with_name("index.html")
    if len(sources) > 1 or args.per_sentence:
        outputs.refuse_foreign([index])
    pages: dict[str, gp.Attribution] = {}
    failed: list[tuple[str, str]] = []
    for source, stem in zip(sources, stems, strict=True):
        try:
            pages |= _explain(question, source, stem)
        except UsageError as error:
            if len(sources) == 1:
                raise
            failed.append((source.name, sentence(error)))
            terminal.fail(f"{source.name}: {sentence(error)}")
            terminal.result({"text": source.name, "error": sentence(error)})
    if len(pages) > 1:
        report.write_index(pages, index, failed=failed)
        terminal.say(outputs.wrote([index]))
    return DONE if not failed else USAGE if len(failed) == len(sources) else FAILED


def _explain(question: Question, source: Source, stem: Path) -> dict[str, gp.Attribution]:
    """All results of one source, printed and written, by the names of their pages."""
    terminal, pages = question.terminal, {}
    if question.args.truncate:
        source = question.truncated(source)
    if question.args.compare:
        page, a = _compare(question, source, stem)
        return {page.relative_to(stem.parent).as_posix(): a}
    for job in question.jobs(source, stem):
        a = question.explain(job)
        report.write(a, job.page)
        files = [job.session.result, job.page]
        show(terminal, a, files)
        terminal.result(record(source, a, files))
        pages[job.page.name] = a
    return pages


def _check(args: argparse.Namespace) -> None:
    """Refuse options that contradict each other."""
    if not args.texts and not args.context:
        raise UsageError(
            "Expected a text, a file, or --context with --question (got nothing). "
            "Try 'greedypig explain-text --help'."
        )
    if args.part is not None and args.per_sentence:
        raise UsageError("Expected --part or --per-sentence (got both).")
    if args.question is not None and not args.context:
        raise UsageError("Expected --context beside --question (got none).")
    if args.methods is not None and not args.compare:
        raise UsageError("Expected --compare beside --methods (got --methods alone).")
    if args.compare and (args.per_sentence or args.method):
        other = "--per-sentence" if args.per_sentence else "--method"
        raise UsageError(f"Expected --compare without {other} (got both). Try --methods or --part.")


def _sources(args: argparse.Namespace) -> list[Source]:
    """What the words of the command line mean."""
    if not args.context:
        return [_source(word) for word in args.texts]
    if len(args.texts) > (args.question is None):
        raise UsageError(f"Expected one question beside --context (got {args.texts[-1]!r} too).")
    question = args.question if args.question is not None else "".join(args.texts)
    if not question.strip():
        raise UsageError("Expected a question beside --context (got none). Try --question.")
    files = [file for path in args.context for file in _files(Path(path))]
    texts = {file: read_text(file) for file in files}
    full = {file: text for file, text in texts.items() if text.strip()}
    if not full:
        raise UsageError(f"Expected a text in {', '.join(args.context)} (got empty files).")
    first = Path(args.context[0])
    times = [file.name for file in full]
    names = tuple(f.name if times.count(f.name) == 1 else fspath(f) for f in full)
    name = first.resolve().name or "context"
    return [Source(name, None, tuple(full.values()), names, question)]


def _files(path: Path) -> list[Path]:
    """A file, or the text files of a folder in the order of their names."""
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
        if not inside:
            raise UsageError(f"Expected text files ({', '.join(ENDINGS)}) in {path} (got none).")
        return [p for p in inside if not p.name.startswith(".")]
    if not path.exists():
        raise UsageError(f"Expected a file or folder at {path} (got nothing there).")
    return [path]


def _source(word: str) -> Source:
    """A text as it is, or the content of a file."""
    if word == "-":
        return Source("text", _decoded(sys.stdin.buffer.read(), "standard input"))
    path = Path(word)
    try:
        there = path.is_file()
    except OSError:  # A text that is too long for a name.
        there = False
    if not there:
        if " " not in word and path.is_dir():
            raise UsageError(f"Expected a text or a file (got a folder, {word}). Try --context.")
        if re.fullmatch(r"\S+\.(txt|md|rst|text|json)|\.{0,2}/\S+", word):
            raise UsageError(f"Expected a file at {word} (got nothing there).")
        if not word.strip():
            raise UsageError("Expected a text to explain (got an empty one).")
        return Source("text", word)
    content = read_text(path)
    if path.suffix.lower() == ".json":
        return Source(path.name, _messages(content, path))
    return Source(path.name, content)


def read_text(path: Path) -> str:
    """The content of a text file."""
    with wrong_command():
        return _decoded(path.read_bytes(), fspath(path))


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"Expected text in UTF-8 in {name} (got another encoding at byte {error.start:,}). "
            "Try iconv -f latin1 -t utf-8."
        ) from error


def _messages(content: str, path: Path) -> list[dict[str, str]]:
    """A chat: a list of messages, or an object that holds it as "messages"."""
    try:
        chat = json.loads(content)
    except ValueError as error:
        raise UsageError(f"Expected JSON in {path} (got: {error}).") from error
    chat = chat.get("messages") if isinstance(chat, dict) else chat
    messages = chat if isinstance(chat, list) else []
    right = [isinstance(m, dict) and isinstance(m.get("content"), str) for m in messages]
    if not right or not all(right) or not all("role" in m for m in messages):
        raise UsageError(
            f'Expected a chat in {path}, as [{{"role": "user", "content": "…"}}, …] '
            "(got something else)."
        )
    return [{"role": str(m["role"]), "content": m["content"]} for m in messages]


def _objective(text: str | None) -> Any:
    """objective= for a word such as two-sided:softmax."""
    name, _, other = (text or "").partition(":")
    return gp.two_sided(other or None) if name == "two-sided" else text


def _load(name: str, device: str) -> models.TextModel:
    """The model by name or folder; whatever is wrong is a wrong command."""
    with wrong_command():
        with suppress(ImportError):  # Loading says what is missing.
            import transformers

            transformers.utils.logging.set_verbosity_error()
        loaded = models.load(name)
        place = options.device(device)
        if place != loaded.device:
            loaded.module.to(place)
        return loaded


@dataclass(frozen=True)
class Question:
    """What is asked about every text: the model, and the options of the command."""

    args: argparse.Namespace
    terminal: Terminal
    model: models.TextModel

    @property
    def answers(self) -> bool:
        """Is the model a language model?"""
        return self.model.kind == "language model"

    def jobs(self, source: Source, stem: Path) -> list[Job]:
        """One for the source, or one for each sentence of the answer."""
        if not self.args.per_sentence:
            return [self.job(source, stem, self.args.answer, self._part())]
        with wrong_command():
            answer = self.answer(source)
        spans = sentences(answer)
        return [
            self.job(source, stem.with_name(f"{stem.name}-{i}"), answer, i - 1, several=True)
            for i in range(1, len(spans) + 1)
        ]

    def job(
        self, source: Source, stem: Path, answer: str | None, part: Any, *, several: bool = False
    ) -> Job:
        """A result to be made, whose files are free or greedypig's own."""
        result, page = (stem.with_name(f"{stem.name}{end}") for end in (".gpig", ".html"))
        outputs.refuse_foreign([result, page])
        session = Session(result, self.args.resume, FORWARDS)
        title = f"{source.name}, sentence {part + 1}" if several else source.name
        return Job(source, session, page, answer, part, self.args.method, title)

    def answer(self, source: Source) -> str:
        """What is given, or what the model says."""
        prompt = make_prompt(self.model, *self._asked(source), self.args.features)
        given = self.args.answer
        return answer_of(self.model, prompt, given, self._part(), LONGEST_ANSWER).text

    def explain(self, job: Job) -> gp.Attribution:
        """The result of a job, saved; Ctrl-C keeps its rounds."""
        spent: dict[str, float] = {}

        def made(saved: gp.Attribution | None) -> gp.Attribution:
            with warnings.catch_warnings():
                # They are on the result, and are printed with it.
                warnings.simplefilter("ignore", UserWarning)
                a = self._explained(job, saved, spent)
            if (reason := unranked(a)) is not None and not a.picks:
                raise GreedyPigError(f"{reason} There is no result.")
            if saved is not None and "command" in a.about:
                return a
            own = {"generated": self.answers and self.args.answer is None}
            return self._noted(a, job.source, **own, search_seconds=spent["seconds"])

        with wrong_command(), self.terminal.bar(job.title) as bar:
            bar.follow(job.session.share, 1)
            return job.session.answer(made, f"Stopped at {job.title}.")

    def _explained(
        self, job: Job, saved: gp.Attribution | None, spent: dict[str, float]
    ) -> gp.Attribution:
        """The result; spent: is filled with the seconds of the search alone."""
        args, session = self.args, job.session

        def progress(run: Run) -> None:
            session(run)
            spent["seconds"] = run.seconds

        text, context, question = self._asked(job.source)
        saves = session.result if saved is not None and session.result.exists() else session.partial
        target = job.part if self.answers else args.class_
        if isinstance(target, str) and not self.answers and target.isdecimal():
            target = int(target)
        try:
            return gp.explain_text(
                self.model,
                text,
                context=context,
                question=question,
                answer=job.answer,
                features=args.features,
                target=target,
                objective=_objective(args.objective),
                absent=args.absent,
                method=self._method(job.method),
                k=args.k,
                stop=None if args.budget is None else Stop(gradients=args.budget),
                seed=args.seed,
                checkpoint=session.partial if session.partial.exists() else saves,
                progress=progress,
            )
        except BudgetTooSmall as error:
            raise UsageError(
                f"Expected a --budget of at least one round's {error.needed} gradients "
                f"(got {error.budget})."
            ) from None
        except InvalidInput as error:
            raise Unfit(self._translated(str(error))) from error

    def _translated(self, message: str) -> str:
        """A message of the library with options in place of parameters."""

        def from_one(match: re.Match[str]) -> str:
            last, got = (int(number) + 1 for number in match.groups())
            return f"from 1 to {last} (got {got})"

        if self.answers:  # Sentences count from 1 on the command line.
            message = re.sub(r"from 0 to (\d+) \(got (\d+)\)", from_one, message)
        message = re.sub(r"Try text=gp\.truncate_text.*", "Try --truncate.", message)
        option = "--part" if self.answers else "--class"
        return message.replace("Expected target", f"Expected {option}")

    def _method(self, name: str | None) -> Any:
        """The method with its knobs, within the budget; None where it is the default as it is."""
        args = self.args
        knobs = {} if args.compare and name != "greedy-pig" else options.knobs_of(args)
        if name in (None, "greedy-pig"):
            if name is None and not knobs and args.budget is None:
                return None
            both = str(args.objective).startswith("two-sided")
            method: Any = FOR_BOTH_SIDES_OF_TEXTS if both else FOR_TEXTS
        else:
            method = gp.IG(48, "cubic") if name == "ig" else as_method(name)
        method = with_knobs(method, **knobs)
        if args.budget is None or {"rounds", "steps"} & set(knobs):
            return method
        return within(method, args.budget)

    def _asked(self, source: Source) -> tuple[Any, Any, str | None]:
        context = None if source.context is None else list(source.context)
        return source.text, context, source.question

    def _part(self) -> Any:
        """target= of a language model: a text, or a sentence's number from 0."""
        part = self.args.part
        return int(part) - 1 if part is not None and part.isdecimal() else part

    def _noted(self, a: gp.Attribution, source: Source, **more: Any) -> gp.Attribution:
        """The result with the source's name, the command, and where the documents lie."""
        places, last = [], 0
        for name, text in zip(source.documents, source.context or (), strict=False):
            start = a.about["text"].find(text.strip(), last)
            last = start + len(text.strip())
            places.append([name, start, last])
        facts = {"source": source.name, "command": self.terminal.command_line()} | more
        return a.with_notes(facts | ({"documents": places} if places else {}))

    def truncated(self, source: Source) -> Source:
        """The source without what does not fit the model, which is printed."""
        text = source.text
        with wrong_command():
            if source.context is None and isinstance(text, str):
                kept = gp.truncate_text(self.model, text)
                if not kept:
                    raise UsageError(
                        "Expected a first sentence that fits the model (got a longer)."
                    )
                if len(kept) < len(text.rstrip()):
                    share = f"{len(kept):,} of {len(text):,} characters"
                    self.terminal.note(f"{source.name}: only the first {share} fit the model.")
                return replace(source, text=kept)
            if source.context is None:
                return source
            room, documents = self.model.limit - LONGEST_ANSWER, list(source.context)
            while len(documents) > 1:
                prompt = make_prompt(self.model, None, documents, source.question, None)
                if len(prompt.ids(self.model)) <= room:
                    break
                documents.pop()
        left = len(source.context) - len(documents)
        if left:
            self.terminal.note(
                f"{source.name}: the last {count(left, 'document')} of {len(source.context):,} did "
                "not fit the model and are left out."
            )
        names = source.documents[: len(documents)]
        return replace(source, context=tuple(documents), documents=names)


def _compare(question: Question, source: Source, stem: Path) -> tuple[Path, gp.Attribution]:
    """Several methods on one text: a table, a page, and every result.

    Returns the page, and what it shows.
    """
    terminal = question.terminal
    folder = outputs.folder(stem.with_name(f"{stem.name}-comparison"))
    page, result, table = (folder / f"comparison.{end}" for end in ("html", "gpig", "csv"))
    outputs.refuse_foreign([page, result, table])
    answer = question.answer(source) if question.answers else None
    results: dict[str, gp.Attribution] = {}
    for method in _methods(question):
        job = question.job(source, folder / method, answer, question._part())
        title = f"{source.name}, {method}"
        results[method] = question.explain(replace(job, method=method, title=title))
    rows = compared(results)
    first = results["greedy-pig"] if "greedy-pig" in results else next(iter(results.values()))
    a = first.with_notes({"methods": rows, "command": terminal.command_line()})
    a.save(result)
    report.write(a, page)
    keys = list(COLUMNS)
    cells = [[name, *(row[key] for key in keys)] for name, row in rows.items()]
    outputs.write_csv(table, [["method", *keys], *cells])
    files = [page, result, table]
    show_comparison(terminal, a, files)
    noted = {name: {key: row[key] for key in keys} for name, row in rows.items()}
    orders = {name: row["order"] for name, row in rows.items()}
    terminal.result(record(source, a, files) | {"methods": noted, "orders": orders})
    return page, a


def _methods(question: Question) -> list[str]:
    """The methods of --compare; those that were not named are left out where they do not fit."""
    if question.args.methods is not None:
        return list(question.args.methods)
    names = [name for name in TEXT_METHODS if question.answers or name not in FOR_ANSWERS]
    missing = {"captum": "captum", "context": "sklearn"}
    absent = {start for start, package in missing.items() if not importlib.util.find_spec(package)}
    if question.args.absent == "deleted":
        absent |= {"greedy", "sequential", "ig", "gradient", "captum"}
    return [name for name in names if name.partition("-")[0] not in absent]


def show(terminal: Terminal, a: gp.Attribution, files: Sequence[Path]) -> None:
    """The lines of one result."""
    notes = TextNotes.of(a)
    assert notes is not None
    _head(terminal, a, notes)
    terminal.text(passage(notes))
    terminal.say()
    terminal.say(notes.answer())
    if notes.counts:
        terminal.say(f"{notes.quantity} of {notes.what} with the best {notes.unit}:", DIM)
        heads = ["", notes.unit_of(1).partition(" ")[2], *notes.measured]
        terminal.table(heads, _rows(notes), names=2)
    for line in notes.twin_lines():
        terminal.say(f"= {line}")
    for caution in notes.cautions():
        terminal.caution(caution)
    _end(terminal, a, files)


def _head(terminal: Terminal, a: gp.Attribution, notes: TextNotes) -> None:
    source = a.about.get("source", "text")
    if notes.answer_text is None:
        terminal.say(f"{source}: {notes.explained}, probability {notes.probability or 0:.3f}", BOLD)
        return
    said = "says" if notes.generated else "is to say"
    terminal.say(f"{source}: {notes.model} {said}", BOLD)
    start, end = notes.answer_span or (0, len(notes.answer_text))
    text = styled("")
    text.append_text(styled(notes.answer_text[:start], DIM))
    text.append_text(styled(notes.answer_text[start:end], BOLD))
    text.append_text(styled(notes.answer_text[end:], DIM))
    terminal.text(text)
    terminal.say()


def passage(notes: TextNotes) -> Text:
    """The text with selected parts as [1:…], abbreviated around them."""
    chosen = notes.order[: min(notes.start, MOST)]
    text = styled("")
    for piece in notes.passage(chosen, AROUND):
        if not piece.place:
            text.append_text(styled(piece.text, DIM))
            continue
        level = notes.levels[piece.place - 1 : piece.place] or "1"
        style = STRENGTHS[int(level)]
        text.append_text(styled(f"[{piece.place}:", f"{style} reverse"))
        text.append_text(styled(piece.text, style))
        text.append_text(styled("]", f"{style} reverse"))
    return text


def _rows(notes: TextNotes) -> list[list[str]]:
    """The values with nothing, with the first features up to what is enough, and with all."""
    rows, last = [], len(notes.spans)
    for i, k in enumerate(notes.counts):
        if 0 < k < last and k > max(notes.start, 1):
            continue
        words = {0: "nothing", last: f"all {notes.unit_of(last)}"}
        name = words.get(k) or shortened(notes.name(notes.order[k - 1]), 40)
        document = notes.document(notes.order[k - 1]) if 0 < k < last else ""
        name = f"{name} ({document})" if document else name
        values = [notes.cell(each[i]) for each in notes.measured.values()]
        rows.append([f"{k:,}", name, *values])
    return rows


def _end(terminal: Terminal, a: gp.Attribution, files: Sequence[Path]) -> None:
    how = setting(kept_settings(a))
    terminal.say(
        f"{a.method} ({how}), {count(a.gradients_used, 'gradient')}, {duration(a.seconds)}; "
        f"{outputs.wrote(files)}"
    )


def show_comparison(terminal: Terminal, a: gp.Attribution, files: Sequence[Path]) -> None:
    """The table of a comparison, and what each method selects first."""
    notes = TextNotes.of(a)
    assert notes is not None
    _head(terminal, a, notes)
    heads = ["", *(head for head, _ in COLUMNS.values())]
    terminal.table(heads, [[name, *row.cells] for name, row in notes.methods.items()])
    terminal.say(notes.compared_by())
    terminal.say()
    length = max(20, min(terminal.width, 100) - 26)
    firsts = [[name, notes.first(row, length)] for name, row in notes.methods.items()]
    terminal.table(["", f"first {notes.unit}"], firsts, names=2)
    for caution in notes.cautions():
        terminal.caution(caution)
    terminal.say(f"{outputs.wrote(files)}, and every result")


def record(source: Source, a: gp.Attribution, files: Sequence[Path]) -> dict[str, Any]:
    """The object of --json for one result."""
    notes = TextNotes.of(a)
    assert notes is not None
    about: Mapping[str, Any] = a.about
    measured = ("counts", "only", "deleted", "without")
    return {
        "text": source.name,
        "model": notes.model,
        "class": notes.label,
        "probability": notes.probability,
        "answer": notes.answer_text,
        "part": None if notes.answer_text is None else notes.explained,
        "generated": notes.generated,
        "features": notes.unit,
        "count": len(notes.spans),
        "enough": notes.enough,
        "order": a.order.tolist(),
        "selected": [
            {"feature": i, "text": notes.text[slice(*notes.spans[i])], "document": d or None}
            for i in notes.order[: notes.start]
            for d in [notes.document(i)]
        ],
        "twins": [list(pair) for pair in notes.twins],
        "curve": {key: list(about.get(key, ())) for key in measured},
        "cautions": notes.cautions(),
        "method": a.method,
        "gradients": a.gradients_used,
        "forwards": about.get("forwards"),
        "seconds": a.seconds,
        "stop": a.stop.name.lower(),
        "settings": dict(a.settings),
        "files": [fspath(file) for file in files],
    }
