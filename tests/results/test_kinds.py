"""Results of every kind speak by one protocol: an answer, cautions, and the numbers behind it."""

import pytest
import torch

import greedypig as gp
from graph_seen import compressed, crowd, explained, plain_result
from greedypig.results.kinds import VIEWS, notes_of
from greedypig.results.wording import Caution
from seen import COMPARISON, photo, ranked, unmeasured
from text_seen import answered, text_result

LOSS = {"mean": 0.5, "standard_error": 0.1}
SELECTION = {
    "train_rows": 90, "valid_rows": 10, "seeds": 2, "ks": [1, 2], "loss_all": LOSS,
    "metric": "log-loss", "losses": {"greedy-pig": {"1": LOSS, "2": LOSS}},
}  # fmt: skip
ONE_OF_EACH = {
    "set function": plain_result,
    "unmeasured": lambda: unmeasured(plain_result()),
    "row": lambda: ranked((6,)),
    "photo": photo,
    "comparison": lambda: photo(about={"comparison": COMPARISON}),
    "edges": lambda: gp.explain_edges(
        gp.models.GCN(4, 2), torch.ones(3, 4), torch.tensor([[0, 1], [1, 2]])
    ),
    "compressed graph": compressed,
    "node": explained,
    "lonely node": lambda: explained(edges=()),
    "crowd": crowd,
    "table": lambda: plain_result(kind="table"),
    "selection": lambda: plain_result(kind="table", selection=SELECTION),
    "text": text_result,
    "answer": answered,
    "later kind": lambda: plain_result(kind="later"),
}


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_notes_of_every_kind_answer_and_have_a_table(name):
    a = ONE_OF_EACH[name]()
    notes = notes_of(a)
    assert notes.answer().endswith(".")
    assert all(isinstance(caution, Caution) and caution.line for caution in notes.cautions())
    heads, *rows = notes.rows()
    assert all(len(row) == len(heads) for row in rows)
    assert all(isinstance(cell, str) for row in (heads, *rows) for cell in row)


def test_every_view_is_some_kind_s():
    assert {ONE_OF_EACH[name]().about.view for name in ONE_OF_EACH} >= set(VIEWS)


def test_notes_of_another_view_are_refused():
    with pytest.raises(gp.InvalidInput, match=r"Expected a node \(got another\)"):
        notes_of(photo(), "graph-node", "a node")
