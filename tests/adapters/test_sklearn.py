"""The scikit-learn transformer: conventions, selections that are known, models of both worlds."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import greedypig as gp

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import SVC


def regression(rows: int = 200, seed: int = 0):
    """y = 3 x₀ + 2 x₁ + x₂, and x₃ … x₆ copies of x₀; x₇ is noise."""
    X = np.random.default_rng(seed).standard_normal((rows, 8))
    X[:, 3:7] = X[:, :1]
    return X, 3 * X[:, 0] + 2 * X[:, 1] + X[:, 2]


def shared_weights() -> nn.Module:
    """A trained network that spreads x₀'s weight over its copies."""
    model = nn.Linear(8, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.8, 2.0, 1.0, 0.6, 0.6, 0.6, 0.4, 0.0]]))
        model.bias.zero_()
    return model


def test_columns_are_taken_by_what_they_add():
    X, y = regression()
    ones = nn.Linear(8, 1)
    with torch.no_grad():
        ones.weight.copy_(torch.tensor([[3.0, 2, 1, 0, 0, 0, 0, 0]]))
        ones.bias.zero_()
    selector = gp.FeatureSelector(ones, n_features_to_select=3, baseline="zero").fit(X, y)
    assert selector.get_support(indices=True).tolist() == [0, 1, 2]
    assert selector.order_[:3].tolist() == [0, 1, 2]
    assert sorted(selector.order_) == list(range(8))
    assert selector.ranking_[:3].tolist() == [1, 1, 1]  # As in RFE.
    assert selector.ranking_[selector.order_[3:]].tolist() == [2, 3, 4, 5, 6]
    assert selector.scores_path_[-1] == pytest.approx(0, abs=1e-9)
    assert (np.diff(selector.scores_path_) > 0).all()
    assert np.array_equal(selector.transform(X), X[:, :3])


def test_it_answers_as_select_features_does():
    X, y = regression()
    model = shared_weights()
    selector = gp.FeatureSelector(
        model, n_features_to_select=4, baseline="zero", batch_size=64
    ).fit(X, y)
    rows, labels = torch.from_numpy(X).float(), torch.from_numpy(y)
    batches = [(rows[i : i + 64], labels[i : i + 64]) for i in range(0, 200, 64)]
    a = gp.select_features(model, batches, loss="squared-error", baseline="zero", k=4)
    assert torch.equal(a.order, selector.attribution_.order)
    assert model.weight.grad is None
    assert model.weight.requires_grad


@pytest.mark.parametrize(
    ("wanted", "kept"), [(3, 3), (0.5, 4), (0.01, 1), (None, 4), (np.int64(2), 2)], ids=str
)
def test_how_many(wanted, kept):
    X, y = regression()
    selector = gp.FeatureSelector(shared_weights(), n_features_to_select=wanted).fit(X, y)
    assert selector.get_support().sum() == selector.n_features_to_select_ == kept
    with pytest.warns(UserWarning, match="more than the 8 columns"):
        selector.set_params(n_features_to_select=99).fit(X, y)
    assert selector.get_support().all()


@pytest.mark.parametrize("wanted", [0, -1, 2.5, "all", True])
def test_a_number_of_columns_that_means_nothing(wanted):
    with pytest.raises(gp.InvalidInput, match="Expected n_features_to_select"):
        gp.FeatureSelector(shared_weights(), n_features_to_select=wanted).fit(*regression())


def test_fitted_models_are_used_and_others_are_fitted():
    X, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    used = gp.FeatureSelector(model, n_features_to_select=5).fit(X, y)
    assert used.model_ is model
    fresh = gp.FeatureSelector(clone(model), n_features_to_select=5)
    fresh.fit(X, y)
    assert not hasattr(fresh.model[-1], "coef_")  # The caller's is not touched.
    assert np.array_equal(fresh.order_, used.order_)


def test_an_estimator_s_fit_may_return_nothing():
    class Silent(LogisticRegression):
        def fit(self, X, y):
            super().fit(X, y)

    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    silent, usual = (gp.FeatureSelector(model(), 5) for model in (Silent, LogisticRegression))
    assert np.array_equal(silent.fit(X, y).order_, usual.fit(X, y).order_)


def test_labels_may_be_words():
    X, y = load_breast_cancer(return_X_y=True)
    words = np.where(y == 1, "benign", "malignant")
    plain = gp.FeatureSelector(
        make_pipeline(StandardScaler(), LogisticRegression()), n_features_to_select=5
    )
    one, other = clone(plain).fit(X, 1 - y), clone(plain).fit(X, words)
    assert one.attribution_.values.numpy() == pytest.approx(other.attribution_.values.numpy())
    with pytest.raises(gp.InvalidInput, match="among the model's 2 classes"):
        gp.FeatureSelector(other.model_, n_features_to_select=5).fit(
            X, np.where(y == 1, "benign", "other")
        )


@pytest.mark.slow
def test_pipelines_and_grids():
    X, y = load_wine(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    line = make_pipeline(gp.FeatureSelector(model), clone(model))
    search = GridSearchCV(line, {"featureselector__n_features_to_select": [1, 4]}, cv=3).fit(X, y)
    assert search.best_params_ == {"featureselector__n_features_to_select": 4}
    assert search.best_estimator_[0].get_support().sum() == 4


def test_a_torch_model_of_another_number_of_columns_is_refused_in_one_sentence():
    X, y = np.zeros((20, 3)), np.arange(20) % 2
    with pytest.raises(gp.InvalidInput, match=r"model of 3 columns.*\(1, 3\)"):
        gp.FeatureSelector(nn.Linear(5, 1)).fit(X, y)


def test_a_torch_model_survives_cloning():
    X, y = regression()
    selector = gp.FeatureSelector(shared_weights(), n_features_to_select=3)
    assert np.array_equal(clone(selector).fit(X, y).order_, selector.fit(X, y).order_)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_keep_their_names(kind):
    frames = pytest.importorskip(kind)
    X, y = regression()
    names = list("abcdefgh")
    frame = frames.DataFrame(dict(zip(names, X.T, strict=True)))
    selector = gp.FeatureSelector(shared_weights(), n_features_to_select=3).set_output(
        transform=kind
    )
    out = selector.fit(frame, y).transform(frame)
    chosen = [n for n, kept in zip(names, selector.get_support(), strict=True) if kept]
    assert list(selector.get_feature_names_out()) == chosen
    assert list(out.columns) == chosen
    assert isinstance(out, frames.DataFrame)
    assert np.array_equal(out.to_numpy(), X[:, selector.get_support()])


def test_parts_add_up():
    X, y = regression(300)
    whole = gp.FeatureSelector(shared_weights(), n_features_to_select=3).fit(X, y)
    parts = gp.FeatureSelector(shared_weights(), n_features_to_select=3)
    for lo in range(0, 300, 100):
        parts.partial_fit(X[lo : lo + 100], y[lo : lo + 100])
    assert np.array_equal(whole.order_, parts.order_)
    assert whole.scores_path_ == pytest.approx(parts.scores_path_)
    assert np.array_equal(parts.fit(X, y).order_, whole.order_)  # fit starts anew.


def test_a_uniform_sample_of_the_rows_is_kept():
    class Sampled(gp.FeatureSelector):
        def _select(self, rows, classes):
            self.rows = rows

    hits = np.zeros(100)
    for seed in range(300):
        selector = Sampled(max_rows=20, random_state=seed)
        for rows in np.array_split(np.arange(100), 5):
            selector.partial_fit(rows[:, None].astype(float), rows)
        X, y, _ = selector.rows
        assert len(y) == 20
        assert np.array_equal(X[:, 0], y)
        hits[y] += 1
    # 300 draws with p = 0.2: mean 60, standard deviation 6.9; the ends are no different.
    assert abs(hits - 60).max() < 30
    assert abs(hits[:20].mean() - 60) < 5
    assert abs(hits[-20:].mean() - 60) < 5


@pytest.mark.parametrize("kind", ["PoissonRegressor", "GammaRegressor", "TweedieRegressor"])
def test_a_regressor_with_a_log_link_is_asked_with_it(kind):
    from sklearn import linear_model

    x = np.random.default_rng(0).normal(size=(300, 4))
    y = np.exp(0.8 * x[:, 2] + 0.3 * x[:, 0]) + 0.1
    model = getattr(linear_model, kind)(**({"power": 1.5} if kind[0] == "T" else {})).fit(x, y)
    chosen = gp.FeatureSelector(model, n_features_to_select=2).fit(x, y)
    assert chosen.order_[0] == 2
    worth = -np.mean((model.predict(x) - y) ** 2)
    assert chosen.attribution_.full_value == pytest.approx(worth, rel=1e-3)


def test_warnings_and_results_call_columns_by_their_names():
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    X = pandas.DataFrame({"age": random.standard_normal(60), "flat": 1.0, "copy": 0.0})
    y = (X["age"] > 0).to_numpy().astype(int)
    X["copy"] = 2.0 * y
    model = torch.nn.Linear(3, 1)
    torch.nn.init.constant_(model.weight, 3.0)
    torch.nn.init.zeros_(model.bias)
    with pytest.warns(UserWarning, match="constant|equal the label") as told:
        selector = gp.FeatureSelector(model, n_features_to_select=1).fit(X, y)
    said = " ".join(str(w.message) for w in told)
    assert "The values of 'flat' are constant" in said
    assert "The values of 'copy' equal the label" in said
    assert {w.filename for w in told} == {__file__}
    assert set(selector.attribution_.top(3)) == {"age", "flat", "copy"}
    selector.fit(X.to_numpy(), y)  # Names are those of the rows at hand.
    assert set(selector.attribution_.top(3)) == {0, 1, 2}


def test_a_torch_model_of_probabilities_is_asked_as_such():
    random = np.random.default_rng(0)
    X = random.standard_normal((80, 3))
    y = (X @ [3.0, -2.0, 0.5] > 0).astype(int)
    logits = torch.nn.Linear(3, 1)
    with torch.no_grad():
        logits.weight[:] = torch.tensor([3.0, -2.0, 0.5])
    ends = torch.nn.Sequential(logits, torch.nn.Sigmoid())
    a = gp.FeatureSelector(ends, n_features_to_select=2, outputs="probabilities").fit(X, y)
    b = gp.FeatureSelector(logits, n_features_to_select=2).fit(X, y)
    assert a.order_.tolist() == b.order_.tolist()
    np.testing.assert_allclose(a.scores_path_, b.scores_path_, rtol=1e-4)


@pytest.mark.parametrize("pipe", [False, True])
def test_a_regressor_of_zeros_and_ones_is_judged_by_its_squared_error(pipe):
    X = np.random.default_rng(0).standard_normal((120, 3))
    y = (X @ [1.0, 0.5, 0.0] > 0).astype(int)
    model = LinearRegression().fit(X, y)
    asked = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y) if pipe else model
    selector = gp.FeatureSelector(asked, n_features_to_select=1).fit(X, y)
    assert selector.attribution_.settings["loss"] == "squared-error"
    whole = ((model.predict(X) - y) ** 2).mean()
    assert selector.attribution_.full_value == pytest.approx(-whole)


def test_many_whole_numbers_are_a_number():
    X, y = load_diabetes(return_X_y=True)
    assert len(np.unique(y)) == 214
    assert (y == np.round(y)).all()
    selector = gp.FeatureSelector(n_features_to_select=4).fit(X, y)
    assert isinstance(selector.model_[-1], MLPRegressor)
    assert selector.attribution_.settings["loss"] == "squared-error"
    assert selector.model_.score(X, y) > 0.5  # It has learnt the number, far from 0 as it is.
    assert selector.attribution_.full_value == pytest.approx(
        -((selector.model_.predict(X) - y) ** 2).mean(), rel=1e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "made"), [(50, MLPClassifier), (51, MLPRegressor)], ids=["few", "many"]
)
def test_few_whole_numbers_are_classes_as_in_greedypig_select(values, made):
    X, _ = regression(204)
    y = np.arange(204.0) % values
    assert type(gp.FeatureSelector(n_features_to_select=2).fit(X, y).model_[-1]) is made
    words = np.char.add("w", y.astype(str))
    assert (
        type(gp.FeatureSelector(n_features_to_select=2).fit(X, words).model_[-1]) is MLPClassifier
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "asked", "made"),
    [
        ("squared-error", "squared-error", MLPRegressor),
        ("binary-cross-entropy", "binary-cross-entropy", MLPClassifier),
        ("cross-entropy", "binary-cross-entropy", MLPClassifier),  # The same of two classes.
    ],
    ids=["number", "binary", "classes"],
)
def test_a_named_loss_decides_which_perceptron_is_fitted(loss, asked, made):
    X, y = load_breast_cancer(return_X_y=True)
    selector = gp.FeatureSelector(n_features_to_select=3, loss=loss).fit(X, y)
    assert type(selector.model_[-1]) is made
    assert selector.attribution_.settings["loss"] == asked


def test_a_torch_classifier_may_have_many_classes():
    X, _ = regression(204)
    selector = gp.FeatureSelector(nn.Linear(8, 60), n_features_to_select=2).fit(
        X, np.arange(204) % 60
    )
    assert selector.attribution_.settings["loss"] == "cross-entropy"


@pytest.mark.parametrize("pipe", [False, True])
def test_arrays_that_are_read_only_need_no_warning(pipe):
    X, y = regression()
    X.flags.writeable = y.flags.writeable = False  # As those of pandas 3 are.
    model = make_pipeline(StandardScaler(), RidgeCV()) if pipe else RidgeCV()
    model.fit(X, y)
    if pipe:  # As joblib's memory maps are.
        model[0].scale_.flags.writeable = False
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*not writable")
            selector = gp.FeatureSelector(model, n_features_to_select=4).fit(X, y)
    finally:
        torch.set_warn_always(always)
    assert selector.get_support().sum() == 4


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (RandomForestClassifier(2), "gradient is not available"),
        (make_pipeline(PolynomialFeatures(1), LogisticRegression()), "only scalers before"),
        (SVC(kernel="linear"), "SVC, whose predictions do not"),  # One class against another.
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_models_that_cannot_be_converted_are_refused(model, words):
    X, y = load_wine(return_X_y=True)
    with pytest.raises(gp.InvalidInput, match=words):
        gp.FeatureSelector(model).fit(X, y)
    with pytest.raises(NotFittedError):
        gp.FeatureSelector(model).get_support()
