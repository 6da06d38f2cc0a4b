"""Records of files are read by their types: a missing value, an empty one, one of another type."""

from dataclasses import dataclass

import pytest

import greedypig as gp
from greedypig.core.records import read


@dataclass(frozen=True)
class Record:
    text: str | None = None
    number: float | None = None
    flag: bool = False


def test_an_empty_text_is_a_text_and_null_is_missing():
    assert read(Record, {"text": ""}, "here").text == ""
    assert read(Record, {"text": None}, "here").text is None
    assert read(Record, {}, "here").text is None


ODD = {"text": [1, [], False], "number": ["", "1", True, 10**400, -(10**400)], "flag": ["", 1, []]}


@pytest.mark.parametrize("key", ODD)
def test_values_of_another_type_are_named(key):
    for value in ODD[key]:
        with pytest.raises(gp.InvalidInput, match=rf"^Expected {key} in here as .*\(got "):
            read(Record, {key: value}, "here")
    assert read(Record, {"number": 3}, "here").number == 3.0
