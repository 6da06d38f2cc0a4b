"""Methods that only the experiments compare with: what they must agree with and what they cost."""

from dataclasses import fields

import pytest
import torch

pytest.importorskip("transformers")

import greedypig as gp
import reproduction.text.rivals  # noqa: F401  # Makes their names known.
from greedypig.core.registry import METHODS
from tests.text.tiny import model, tokenizer

TEXT = "The cat sat on the mat . The dog ran under the red house . Maria was not in the film ."


def explained(method, kind="llama", **more):
    said = {} if kind == "bert" else {"answer": "a good dog"}
    words = tokenizer(classifier=kind == "bert")
    return gp.explain_text(
        model(kind), TEXT, tokenizer=words, features="sentences", method=method, **said, **more
    )


@pytest.mark.parametrize("entry", [m for m in METHODS.values() if m.home.startswith("repro")])
def test_the_experiments_know_them_by_name(entry):
    assert entry.factory().name == entry.name
    assert tuple(field.name for field in fields(entry.factory)) == entry.knobs


@pytest.mark.filterwarnings("ignore::UserWarning")
class TestCaptum:
    pytest.importorskip("captum")

    @pytest.mark.parametrize("kind", ["llama", "gpt2"])
    def test_ablation_is_leaving_each_sentence_out_of_the_text(self, kind):
        ours = explained("leave-one-out", kind, absent="deleted")
        theirs = explained("captum-ablation", kind)
        torch.testing.assert_close(theirs.feature_scores, ours.feature_scores, atol=1e-4, rtol=0)
        # Captum measures the whole text once more.
        assert theirs.about.forwards == ours.about.forwards + 1

    def test_a_part_of_the_answer_is_its_own_tokens(self):
        ours = explained("leave-one-out", absent="deleted", target="dog")
        theirs = explained("captum-ablation", target="dog")
        torch.testing.assert_close(theirs.feature_scores, ours.feature_scores, atol=1e-4, rtol=0)

    def test_shapley_values_add_up_to_the_rise_of_the_really_deleted_text(self):
        a = explained("captum-shapley")
        rise = a.about.deleted[-1] - a.about.deleted[0]
        assert float(a.feature_scores.sum()) == pytest.approx(rise, abs=1e-3)

    def test_shapley_draws_by_the_seed_and_leaves_the_global_generator_alone(self):
        before = torch.get_rng_state()
        first, again = explained("captum-shapley", seed=3), explained("captum-shapley", seed=3)
        assert torch.equal(first.feature_scores, again.feature_scores)
        assert torch.equal(torch.get_rng_state(), before)

    @pytest.mark.parametrize("kind", ["bert", "llama"])
    def test_layer_ig_costs_a_gradient_a_step(self, kind):
        assert explained("captum-layer-ig", kind).gradients_used == 50

    def test_layer_ig_of_a_counterfactual_scores_what_removes(self):
        asked = {"objective": "counterfactual", "absent": "mask-embedding"}
        ours = explained(gp.IG(50), "bert", **asked).feature_scores
        theirs = explained("captum-layer-ig", "bert", **asked).feature_scores
        assert torch.allclose(ours, theirs, atol=0.05 * float(ours.abs().max()))

    def test_classifiers_have_no_llm_attribution(self):
        with pytest.raises(gp.InvalidInput, match="Expected a language model"):
            explained("captum-ablation", "bert")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_gradient_input_is_the_gradient_of_embeddings(kind):
    ours = explained("gradient", kind, absent="embedding")
    same = explained("gradient-input", kind)
    torch.testing.assert_close(same.feature_scores, ours.feature_scores)
    assert same.gradients_used == 1
    assert same.about.absent == "masked"  # Sets are measured as those of other methods.


def test_other_inputs_are_refused():
    with pytest.raises(gp.InvalidType, match="Expected a text for method"):
        gp.maximize(gp.objective(lambda m: m.sum(1), 3), "gradient-input")
