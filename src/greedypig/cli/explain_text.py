"""`greedypig explain-text`: the words, sentences or sources that a text model's output rests on."""

from __future__ import annotations

import argparse
import warnings
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import greedypig as gp

from .. import report
from ..core.methods import as_method, with_knobs
from ..core.stopping import Stop
from ..results.wording import count
from ..tensors.methods import within
from ..text import models
from ..text.api import LONGEST_ANSWER, TooManyTokens
from ..text.gates import NoSuchSentence, answer_of
from ..text.methods import choose_for_text, pig_for_text
from ..text.prompt import make_prompt, sentences
from . import options, outputs
from .commands import CLASSIFIER, LANGUAGE
from .compare_text_methods import compare
from .failures import DONE, FAILED, USAGE, Unfit, UsageError, wrong_command
from .resumable import Session
from .terminal import Terminal
from .text_output import record, show
from .text_sources import Source, read_sources

FORWARDS = 40
"""About so many forward passes follow the search, for the progress bar."""


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
    sources = read_sources(args)
    stems = outputs.stems(args.out, [Path(each.name) for each in sources])
    question = _question(args, terminal, sources)
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
            reason = terminal.sentence(error)
            failed.append((source.name, reason))
            terminal.fail(f"{source.name}: {reason}")
            terminal.result({"text": source.name, "error": reason})
    if len(pages) > 1:
        report.write_index(pages, index, failed=failed)
        terminal.say(outputs.wrote([index]))
    return DONE if not failed else USAGE if len(failed) == len(sources) else FAILED


def _question(args: argparse.Namespace, terminal: Terminal, sources: list[Source]) -> Question:
    """The options with the model: the one named, else the default that fits the sources."""
    options_of_answers = {
        "--answer": args.answer is not None,
        "--part": args.part is not None,
        "--per-sentence": args.per_sentence,
    }
    given = [option for option, is_given in options_of_answers.items() if is_given]
    own = any(each.for_language_model for each in sources)
    name = args.model or (LANGUAGE if own or given else CLASSIFIER)
    question = Question(args, terminal, _load(name, args.device))
    if question.answers:
        terminal.parameters["target"] = "part"
    if (own or given) and not question.answers:
        raise UsageError(
            "Expected a language model for an answer, a chat or a context (got the classifier "
            f"{question.model.name})."
        )
    if args.class_ is not None and question.answers:
        raise UsageError(
            f"Expected a classifier for --class (got the language model {question.model.name}). "
            "Try --part for a part of its answer."
        )
    if given and not own and args.model is None:
        terminal.note(f"{given[0]} is about an answer, so the language model {name} is used.")
    return question


def _explain(question: Question, source: Source, stem: Path) -> dict[str, gp.Attribution]:
    """All results of one source, printed and written, by the names of their pages."""
    terminal, pages = question.terminal, {}
    if question.args.truncate:
        source = question.truncated(source)
    if question.args.compare:
        page, a = compare(question, source, stem)
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
            return [self.job(source, stem, self.args.answer, self.part())]
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
        session = Session(result, self.args.resume, searching=0.8)
        title = f"{source.name}, sentence {part + 1}" if several else source.name
        return Job(source, session, page, answer, part, self.args.method, title)

    def answer(self, source: Source) -> str:
        """What is given, or what the model says."""
        given = self.args.answer
        with wrong_command(), self._own_words():
            prompt = make_prompt(self.model, *self._asked(source), self.args.features)
            return answer_of(self.model, prompt, given, self.part(), LONGEST_ANSWER).text

    def explain(self, job: Job) -> gp.Attribution:
        """The result of a job, saved; Ctrl-C keeps its rounds."""

        def made(checkpoint: Path) -> gp.Attribution:
            with warnings.catch_warnings():
                # They are on the result, and are printed with it.
                warnings.simplefilter("ignore", UserWarning)
                a = self._explained(job, checkpoint)
            if a.about.command:
                return a
            generated = self.answers and self.args.answer is None
            return self._noted(a, job.source, generated=generated)

        with wrong_command(), self.terminal.bar(job.title) as bar:
            bar.follow(job.session.share, 1)
            return job.session.answer(made, f"Stopped at {job.title}.")

    def _explained(self, job: Job, checkpoint: Path) -> gp.Attribution:
        """The result, without the command's own notes."""
        args = self.args
        text, context, question = self._asked(job.source)
        target = job.part if self.answers else args.class_
        if isinstance(target, str) and not self.answers and target.isdecimal():
            target = int(target)
        with self._own_words():
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
                checkpoint=checkpoint,
                progress=job.session,
            )

    @contextmanager
    def _own_words(self) -> Iterator[None]:
        """Say what to do about a long text, and number sentences, as the command does."""
        try:
            yield
        except TooManyTokens as error:
            if error.given == "chat":
                raise
            cut = "a shorter question or answer" if self.args.truncate else "--truncate"
            raise Unfit(*error.sentence, advice=f"Try {cut}.") from error
        except NoSuchSentence as error:
            raise Unfit(
                "Expected --part to be a part of the answer, or the number of one of its "
                f"sentences, from 1 to {error.count} (got {self.args.part})."
            ) from error

    def _method(self, name: str | None) -> Any:
        """The method with its knobs, within the budget; None where it is the default as it is."""
        args = self.args
        knobs = {} if args.compare and name != "greedy-pig" else options.knobs_of(args)
        if name is None and not knobs:
            return None
        if name in (None, "greedy-pig"):
            asked = str(args.objective)
            chosen = choose_for_text if name is None else pig_for_text
            method: Any = chosen(
                two_sided=asked.startswith("two-sided"),
                absent=args.absent,
                removing=asked.endswith("counterfactual"),
            )
        else:
            method = gp.IG(48, "cubic") if name == "ig" else as_method(name)
        method = with_knobs(method, **knobs)
        if args.budget is None or {"rounds", "steps"} & set(knobs):
            return method
        return within(method, args.budget)

    def _asked(self, source: Source) -> tuple[Any, Any, str | None]:
        context = None if source.context is None else list(source.context)
        return source.text, context, source.question

    def part(self) -> Any:
        """target= of a language model: a text, or a sentence's number from 0."""
        part = self.args.part
        return int(part) - 1 if part is not None and part.isdecimal() else part

    def _noted(self, a: gp.Attribution, source: Source, **more: Any) -> gp.Attribution:
        """The result with the source's name, the command, and where the documents lie."""
        places, last = [], 0
        about: Any = a.about
        for name, text in zip(source.documents, source.context or (), strict=False):
            start = about.text.find(text.strip(), last)
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
                if len(kept) < len(text.rstrip()):
                    self._note_cut(source, kept, text)
                return replace(source, text=kept)
            if source.context is None:
                return source
            documents = list(source.context)
            while len(documents) > 1 and not self._fit(documents, source):
                documents.pop()
            if not self._fit(documents, source):
                documents = [self._first_sentences(documents[0], source)]
        left = len(source.context) - len(documents)
        if left:
            self.terminal.note(
                f"{source.name}: the last {count(left, 'document')} of {len(source.context):,} did "
                "not fit the model and are left out."
            )
        names = source.documents[: len(documents)]
        return replace(source, context=tuple(documents), documents=names)

    def _fit(self, documents: list[str], source: Source) -> bool:
        """Does the model take these documents with the question, and an answer?"""
        prompt = make_prompt(self.model, None, documents, source.question, None)
        return len(prompt.ids(self.model)) + LONGEST_ANSWER <= self.model.limit

    def _first_sentences(self, document: str, source: Source) -> str:
        """As many whole sentences of the only document as fit; at least one."""
        ends = [end for _, end in sentences(document)]
        many = bisect_left(ends, True, key=lambda end: not self._fit([document[:end]], source))
        kept = document[: ends[max(1, many) - 1]]
        self._note_cut(source, kept, document)
        return kept

    def _note_cut(self, source: Source, kept: str, whole: str) -> None:
        share = f"{len(kept):,} of {len(whole):,} characters"
        self.terminal.note(f"{source.name}: only the first {share} fit the model.")
