"""Facts about a result for people: names, predictions, curves, and all else that pages show.

Every kind of result has a frozen dataclass of its own (`greedypig.results.kinds` lists them), which
a file holds as JSON. They take no part in a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from .records import plain_fields, read

T = TypeVar("T", bound="Facts")
WORDS = {"elements": "feature", "groups": "group", "windows": "window"}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts that results of all kinds have; by itself, those about a set function."""

    kind: ClassVar[str] = "plain"
    KEYS: ClassVar[Mapping[str, str]] = {}
    picture_axes: ClassVar[tuple[int, ...]] = (3,)
    """Numbers of axes of an input that may be a picture."""
    advises: ClassVar[bool] = False
    """Is advice about the objective and a second network of use?"""
    flat_names: ClassVar[bool] = False
    """Are line breaks in the names of features shown as spaces?"""
    source: str = ""
    """Name of the file or object that was explained."""
    model: str = ""
    """Name of the model."""
    command: str = ""
    """The command that gives the result again."""
    objective: str = ""
    """Name of what was maximised."""
    baseline: str = ""
    """Name of the baseline."""
    warnings: tuple[str, ...] = ()
    """Warnings of the run, a sentence each."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Facts that a user added by `Attribution.with_notes`, and those of unknown kinds."""

    @property
    def view(self) -> str:
        """How pages and figures look: a key of `greedypig.results.kinds.VIEWS`."""
        return self.kind

    @classmethod
    def read(cls: type[T], record: Any) -> T:
        """Facts as JSON holds them, checked."""
        return read(cls, {key: record[key] for key in record if key != "kind"}, "the notes")

    def record(self) -> dict[str, Any]:
        """The facts as JSON holds them; `read` reads them back."""
        parts = plain_fields(self)
        extra = parts.pop("extra", {})
        return {"kind": self.kind, **parts, **extra}

    def feature_word(self, features: str) -> str:
        """The name of one feature. features: "elements", "groups" or "windows"."""
        return WORDS[features]
