"""The scikit-learn transformer: conventions, selections that are known, models of both worlds."""

import re
import warnings
from datetime import datetime

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
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)

from greedypig.adapters.sklearn_models import as_module


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
    assert selector.get_support().sum() == kept


def test_more_columns_than_there_are():
    X, y = regression()
    with pytest.warns(UserWarning, match="more than the 8 columns"):
        selector = gp.FeatureSelector(shared_weights(), n_features_to_select=99).fit(X, y)
    assert selector.get_support().all()


@pytest.mark.parametrize("wanted", [0, -1, 2.5, "all", True])
def test_a_number_of_columns_that_means_nothing(wanted):
    with pytest.raises(gp.InvalidInput, match="Expected n_features_to_select"):
        gp.FeatureSelector(shared_weights(), n_features_to_select=wanted).fit(*regression())


DATA = {"wine": load_wine, "cancer": load_breast_cancer, "diabetes": load_diabetes}
MODELS = {
    "logistic": ("cancer", LogisticRegression(C=0.1)),
    "logistic of many": ("wine", LogisticRegression(C=0.1)),
    "perceptron": ("cancer", MLPClassifier((16,), max_iter=40, random_state=0)),
    "perceptron of many": ("wine", MLPClassifier((9, 5), activation="tanh", random_state=0)),
    "regressor": (
        "diabetes",
        MLPRegressor(hidden_layer_sizes=(8,), activation="logistic", random_state=0),
    ),
    "rates": ("diabetes", MLPRegressor(loss="poisson", hidden_layer_sizes=(8,), random_state=0)),
    "linear": ("diabetes", LinearRegression()),
    "ridge": ("diabetes", Ridge()),
}
SCALERS = (StandardScaler(), MinMaxScaler(), RobustScaler(), MaxAbsScaler(), "passthrough")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scaler", SCALERS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_converted_models_give_the_same_numbers(name, scaler):
    data, model = MODELS[name]
    X, y = DATA[data](return_X_y=True)
    fitted = make_pipeline(scaler, clone(model)).fit(X, y)
    with torch.no_grad():
        outputs = as_module(fitted, X.shape[1])(torch.from_numpy(X))
    if not hasattr(fitted, "predict_proba"):
        found = outputs.squeeze(1)
        expected = fitted.predict(X)
    elif outputs.shape[1] == 1:
        found, expected = outputs.sigmoid().squeeze(1), fitted.predict_proba(X)[:, 1]
    else:
        found, expected = outputs.softmax(1), fitted.predict_proba(X)
    assert np.allclose(found, expected, atol=1e-10)


def test_fitted_models_are_used_and_others_are_fitted():
    X, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    used = gp.FeatureSelector(model, n_features_to_select=5).fit(X, y)
    assert used.model_ is model
    fresh = gp.FeatureSelector(clone(model), n_features_to_select=5)
    fresh.fit(X, y)
    assert not hasattr(fresh.model[-1], "coef_")  # The caller's is not touched.
    assert np.array_equal(fresh.order_, used.order_)


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


def test_few_columns_do_nearly_as_well():
    X, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    whole = model.fit(X[::2], y[::2]).score(X[1::2], y[1::2])
    small = make_pipeline(gp.FeatureSelector(model, n_features_to_select=5), clone(model)).fit(
        X[::2], y[::2]
    )
    assert small.score(X[1::2], y[1::2]) > whole - 0.03


@pytest.mark.slow
def test_pipelines_and_grids():
    X, y = load_wine(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    line = make_pipeline(gp.FeatureSelector(model), clone(model))
    search = GridSearchCV(line, {"featureselector__n_features_to_select": [1, 4]}, cv=3).fit(X, y)
    assert search.best_params_ == {"featureselector__n_features_to_select": 4}
    assert search.best_estimator_[0].get_support().sum() == 4


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
    from greedypig.adapters.sklearn import _Reservoir, _Rows

    hits = np.zeros(100)
    for seed in range(300):
        kept = _Reservoir(20, seed)
        for lo in range(0, 100, 7):
            rows = np.arange(lo, min(lo + 7, 100))
            X, y, _ = kept.add(_Rows(rows[:, None].astype(float), rows))
        assert len(y) == 20
        assert np.array_equal(X[:, 0], y)
        hits[y] += 1
    # 300 draws with p = 0.2: mean 60, standard deviation 6.9; the ends are no different.
    assert abs(hits - 60).max() < 30
    assert abs(hits[:20].mean() - 60) < 5
    assert abs(hits[-20:].mean() - 60) < 5


def test_models_without_a_gradient_are_refused():
    X, y = load_wine(return_X_y=True)
    with pytest.raises(gp.InvalidInput, match="gradient is not available"):
        gp.FeatureSelector(RandomForestClassifier(2)).fit(X, y)
    line = make_pipeline(PolynomialFeatures(), LogisticRegression(max_iter=5000, tol=1))
    with pytest.raises(gp.InvalidInput, match="only scalers before"):
        gp.FeatureSelector(line).fit(X[:, :2], y)
    with pytest.raises(NotFittedError):
        gp.FeatureSelector().get_support()


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


def test_a_model_that_does_more_than_its_coefficients_say_is_refused():
    from sklearn.svm import SVC

    x = np.random.default_rng(0).normal(3, 1, size=(200, 4))
    classes = np.digitize(x[:, 0], [2.5, 3.5])
    one_against_one = SVC(kernel="linear").fit(x, classes)
    with pytest.raises(gp.InvalidInput, match="SVC, whose predictions do not"):
        gp.FeatureSelector(one_against_one, n_features_to_select=2).fit(x, classes)


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
    assert set(selector.attribution_.top(3)) == {"0", "1", "2"}


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
    many = np.arange(len(y))
    if made is MLPRegressor:
        assert (
            type(gp.FeatureSelector(n_features_to_select=3, loss=loss).fit(X, many).model_[-1])
            is made
        )
    elif loss == "cross-entropy":
        of = gp.FeatureSelector(
            n_features_to_select=3, loss=loss, method=gp.SequentialGradient()
        ).fit(X[:, :4], many % 60)
        assert type(of.model_[-1]) is made


def test_an_estimator_decides_by_itself():
    X, y = load_diabetes(return_X_y=True)
    classifier = gp.FeatureSelector(
        LogisticRegression(max_iter=5), n_features_to_select=1, method="sequential-gradient"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(classifier.fit(X, y).model_.classes_) == 214
    few = gp.FeatureSelector(Ridge(), n_features_to_select=1).fit(X, (y > 100).astype(int))
    assert few.attribution_.settings["loss"] == "squared-error"


def test_a_torch_classifier_may_have_many_classes():
    X, _ = regression(204)
    selector = gp.FeatureSelector(nn.Linear(8, 60), n_features_to_select=2).fit(
        X, np.arange(204) % 60
    )
    assert selector.attribution_.settings["loss"] == "cross-entropy"


@pytest.mark.slow
@pytest.mark.parametrize("pipe", [False, True])
def test_parts_of_one_class_wait_for_another(pipe):
    X, y = load_wine(return_X_y=True)  # Sorted by class.
    plain = LogisticRegression(max_iter=5000, tol=1e-2)
    model = make_pipeline(StandardScaler(), plain) if pipe else plain
    parts = gp.FeatureSelector(model, n_features_to_select=4).fit(X, y)
    with pytest.warns(
        UserWarning, match=re.escape("two classes to fit the model (got one class in 20")
    ):
        parts.partial_fit(X[:20], y[:20])
    with pytest.raises(NotFittedError, match="Try partial_fit with rows of another class"):
        parts.transform(X)
    with pytest.warns(UserWarning, match="got one class in 50 rows") as told:
        parts.partial_fit(X[20:50], y[20:50])
    assert {w.filename for w in told} == {__file__}
    parts.partial_fit(X[50:], y[50:])
    assert np.array_equal(parts.order_, clone(parts).fit(X, y).order_)
    with pytest.raises(gp.InvalidInput, match="at least two classes"):
        clone(parts).fit(X[:20], y[:20])


def test_a_part_without_rows_is_skipped():
    pandas = pytest.importorskip("pandas")
    X, y = regression()
    frame, label = pandas.DataFrame(X, columns=list("abcdefgh")), pandas.Series(y)
    parts = gp.FeatureSelector(shared_weights(), n_features_to_select=3)
    parts.partial_fit(frame.iloc[:0], label.iloc[:0])
    with pytest.raises(NotFittedError):
        parts.get_support()
    parts.partial_fit(frame, label).partial_fit(frame.iloc[:0], label.iloc[:0])
    assert np.array_equal(parts.order_, clone(parts).fit(frame, label).order_)
    with pytest.raises(ValueError, match="feature names should match"):
        parts.partial_fit(frame.iloc[:0, ::-1], label.iloc[:0])
    with pytest.raises(ValueError, match="minimum of 1 is required"):
        parts.fit(frame.iloc[:0], label.iloc[:0])
    with pytest.raises(ValueError, match="X has 7 features"):
        clone(parts).partial_fit(X[:0], y[:0]).partial_fit(X[:, 1:], y)


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
            found = gp.FeatureSelector(model, n_features_to_select=4).fit(X, y)
    finally:
        torch.set_warn_always(always)
    assert found.get_support().sum() == 4


DATES = [datetime(2024, 1, 1 + i % 28) for i in range(40)]


@pytest.mark.parametrize(
    ("kind", "odd", "words"),
    [  # Polars makes numbers of dates by itself.
        ("pandas", {"when": DATES}, "dates in 'when'"),
        ("pandas", {"day": [DATES[0].date()] * 40, "when": DATES}, "dates in 'day', 'when'"),
        ("pandas", {"town": ["a", None] * 20, "when": DATES}, "text in 'town' and dates in 'when'"),
        ("pandas", {"town": ["a", "1.5"] * 20}, "text in 'town'"),
        ("polars", {"town": ["a", "1.5"] * 20}, "text in 'town'"),
    ],
    ids=["time", "days", "both", "text", "polars"],
)
def test_columns_that_hold_no_numbers_are_named(kind, odd, words):
    frames = pytest.importorskip(kind)
    X, y = regression(40)
    frame = frames.DataFrame({"a": X[:, 0], "b": X[:, 1]} | odd)
    for act in (
        gp.FeatureSelector(n_features_to_select=1).fit,
        gp.FeatureSelector(n_features_to_select=1).partial_fit,
    ):
        with pytest.raises(
            (gp.InvalidInput, gp.InvalidType), match=rf"\(got {words}\)\. Try .*, or leave"
        ):
            act(frame, y)


def test_columns_without_names_are_told_by_their_places():
    X, y = regression(40)
    cells = X.astype(object)
    cells[3, 2] = "a"
    for rows in (cells, cells.tolist()):
        with pytest.raises(gp.InvalidInput, match="text in '2'"):
            gp.FeatureSelector(n_features_to_select=1).fit(rows, y)


def test_missing_numbers_are_not_taken_for_text():
    pandas = pytest.importorskip("pandas")
    X, y = regression(40)
    frame = pandas.DataFrame(X).astype("Float64")
    frame.iloc[0, 0] = pandas.NA
    with pytest.raises(ValueError, match="contains NaN"):
        gp.FeatureSelector(n_features_to_select=1).fit(frame, y)


def test_a_float64_model_behind_a_function_is_asked_in_float64():
    X, y = regression()
    model = shared_weights()
    expected = gp.FeatureSelector(model, n_features_to_select=4).fit(X, y).order_
    double = shared_weights().double()
    found = gp.FeatureSelector(lambda x: double(x), n_features_to_select=4).fit(X, y)
    assert np.array_equal(found.order_, expected)
    assert np.array_equal(
        gp.FeatureSelector(lambda x: model(x).double(), n_features_to_select=4).fit(X, y).order_,
        expected,
    )
