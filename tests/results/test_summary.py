"""Many results as one, and several methods side by side."""

import pytest
import torch

import greedypig as gp
from nets import cnn, mlp, picture, row

ONE = gp.GreedyPIG(per_round=1, steps=2)


def rows(count=5, **options):
    return gp.summary(gp.explain_many(mlp(), [row(s) for s in range(count)], method=ONE, **options))


def test_a_summary_is_a_sequence_of_its_results():
    summary = rows()
    assert len(summary) == 5
    assert all(isinstance(a, gp.Attribution) for a in summary)
    assert summary[-1] is summary.results[4]
    assert len(summary[1:3]) == 2
    assert repr(summary).startswith("Summary(5 results, ")


def test_tables_hold_what_each_result_says_of_each_feature():
    summary = rows()
    for i, a in enumerate(summary):
        assert torch.equal(summary.table()[i], a.feature_gains())
        assert torch.equal(summary.table("contribution")[i], a.feature_contributions().double())
        assert summary.table("rank")[i][a.order].tolist() == [1, 2, 3, 4, 5, 6]
        assert torch.equal(summary.values()[i], row(i).double())


def test_the_best_features_have_the_largest_mean_size_or_the_lowest_mean_rank():
    summary = rows()
    sizes = summary.table().abs().mean(0)[summary.best()]
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    ranks = summary.table("rank").mean(0)[summary.best("rank")]
    assert ranks.tolist() == sorted(ranks.tolist())


def test_frames_are_joined_with_the_number_of_the_result():
    table = rows(names=list("abcdef")).to_frame()
    assert table["result"].tolist() == [i for i in range(5) for _ in range(6)]
    assert table.groupby("result")["gain"].sum().tolist() == pytest.approx(
        [float(a.values[-1] - a.values[0]) for a in rows()]
    )
    assert len(gp.summary([]).to_frame()) == 0


def test_results_of_other_features_have_no_table_but_a_frame():
    mixed = gp.summary([*rows(2), gp.explain(cnn(), picture(), method=ONE, k=3)])
    assert not mixed.alike
    with pytest.raises(gp.InvalidInput, match="Expected results with the same features"):
        mixed.plot()
    assert set(mixed.to_frame()["result"]) == {0, 1, 2}
    with pytest.raises(gp.InvalidInput, match="'gain', 'contribution' or 'rank'"):
        rows().table("score")


def test_a_comparison_holds_its_results_by_name():
    a, b = gp.explain(mlp(), row(), method=ONE), gp.explain(mlp(), row(), method="ig")
    both = gp.comparison({"greedy-pig": a, "ig": b})
    assert list(both) == ["greedy-pig", "ig"]
    assert both["ig"] is b
    assert repr(both) == "Comparison(greedy-pig, ig)"


@pytest.mark.parametrize("wrong", [[1], ["a"], {"a": 1}], ids=str)
def test_what_is_no_result_is_refused(wrong):
    with pytest.raises(gp.InvalidType, match=r"^Expected .*\(got"):
        gp.summary(wrong)
    with pytest.raises(gp.InvalidType, match=r"^Expected .*\(got"):
        gp.comparison(wrong)
