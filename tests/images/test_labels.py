"""Classes by index, name and WordNet id, and the class that a path tells."""

from __future__ import annotations

import pytest

import greedypig as gp
from greedypig.images.class_names import class_names, find_class, label_of, wordnet_ids

IMAGENET = class_names()


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("n01440764/photo.jpg", 0),
        ("train/n01443537/images/photo.jpg", 1),
        ("imagenet_14_129.jpg", 129),
        ("ILSVRC2012_val_00000001_n01751748.JPEG", 65),
        ("photo_n01440764.JPEG", 0),
        ("n01440764_10026.JPEG", 0),
        ("n01443537/n01440764_10026.JPEG", 0),
        ("N01440764/photo.jpg", 0),
        ("n00000001/photo.jpg", None),
        ("photo_n00000001.jpg", None),
        ("photo.jpg", None),
        ("imagenet_14.jpg", None),
        ("14_129.jpg", None),
        ("n014407641/photo.jpg", None),
        ("plan01440764.jpg", None),
    ],
)
def test_path_tells_the_class(path, label):
    assert label_of(path) == label


def test_every_wordnet_id_leads_to_its_class():
    assert len(set(wordnet_ids())) == len(IMAGENET) == 1000
    for i, wordnet_id in enumerate(wordnet_ids()):
        assert label_of(f"{wordnet_id}/x.jpg") == find_class(wordnet_id, IMAGENET) == i


def test_every_unique_name_leads_to_its_class():
    for i, name in enumerate(IMAGENET):
        if IMAGENET.count(name) == 1:
            assert find_class(name, IMAGENET) == i


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (281, 281),
        ("281", 281),
        (" 0 ", 0),
        ("TABBY", 281),
        ("egyptian_cat", 285),
        ("Egyptian  Cat", 285),
        ("N01440764", 0),
    ],
)
def test_spelling_of_a_query_does_not_matter(query, index):
    assert find_class(query, IMAGENET) == index


def test_synonyms_are_names_too():
    classes = ("tabby, tabby cat", "tiger cat", "box, chest", "chest")
    assert find_class("tabby", classes) == 0
    assert find_class("Tabby-Cat", classes) == 0
    # A whole name goes before a synonym.
    assert find_class("chest", classes) == 3


@pytest.mark.parametrize(
    ("query", "pattern"),
    [
        ("crane", r"2 classes are called: 134 \"crane\" \(n02012849\), 517 .*Try its index"),
        ("tabbi", r"1,000 classes \(got 'tabbi'\)\. Try 281 \"tabby\""),
        ("panda", r"Try .*388 \"giant panda\""),
        ("retriever", r"Try .*\"golden retriever\""),
        ("xqzzvw", r"Try its index"),
        ("", r"Expected one of"),
        (1000, r"from 0 to 999 \(got 1000\)"),
        (-1, r"from 0 to 999 \(got -1\)"),
        ("n00000001", r"Expected one of"),
    ],
)
def test_what_fits_nothing_or_several_is_answered_with_what_might_be_meant(query, pattern):
    with pytest.raises(gp.InvalidInput, match=pattern):
        find_class(query, IMAGENET)


def test_without_names_only_an_index_will_do():
    assert find_class("12", None) == 12
    with pytest.raises(gp.InvalidInput, match="index of a class"):
        find_class("cat", None)
    with pytest.raises(gp.InvalidInput, match="at least 0"):
        find_class(-3, None)


@pytest.mark.parametrize("query", [None, 1.5, True, ["cat"]])
def test_other_types_are_refused(query):
    with pytest.raises(gp.InvalidType, match="got"):
        find_class(query, IMAGENET)
