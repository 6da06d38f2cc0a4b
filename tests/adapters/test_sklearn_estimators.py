"""FeatureSelector with scikit-learn's linear models and perceptrons, alone and in pipelines: the
columns they use are known, and the losses are those that the models themselves give."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import greedypig as gp

pytest.importorskip("sklearn")
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.utils.estimator_checks import parametrize_with_checks


class Tanh(nn.Module):
    """A torch model of any number of columns."""

    def forward(self, x):
        return torch.tanh(x @ torch.linspace(1, 2, x.shape[1], dtype=x.dtype)).unsqueeze(1)


def small(perceptron, **settings):
    return perceptron(hidden_layer_sizes=(4,), max_iter=20, **settings)


CHECKED = [
    None,
    Tanh(),
    LogisticRegression(),
    LinearRegression(),
    Ridge(),
    RidgeClassifier(),
    LinearSVC(),
    LinearSVR(),
    SGDClassifier(loss="log_loss"),
    LinearDiscriminantAnalysis(),
    small(MLPClassifier),
    small(MLPRegressor),
    make_pipeline(StandardScaler(), LogisticRegression()),
    make_pipeline(StandardScaler(with_mean=False), LinearSVC()),
    make_pipeline(StandardScaler(), RidgeClassifier()),
    make_pipeline(StandardScaler(), Ridge()),
]
WEIGHTS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
)


def expected_failures(selector):
    """What the model itself does not promise: weights as good as repeated rows."""
    why = {
        SGDClassifier: "its steps depend on the number of rows",
        LinearDiscriminantAnalysis: "it takes no weights",
    }
    reason = why.get(type(selector.model))
    return dict.fromkeys(WEIGHTS, reason) if reason else {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [gp.FeatureSelector(model) for model in CHECKED], expected_failed_checks=expected_failures
)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def cells():
    """All corners of {−1, 1}⁴, 20 rows each, sorted by class; P(y = 1) = 0.5 + 0.3 x₁ + 0.15 x₃.

    Columns are uncorrelated with mean 0 and variance 1, and their covariances with ±1 for the
    class are 0, 0.6, 0, 0.3.
    """
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    ones = np.rint(20 * (0.5 + 0.3 * corners[:, 1] + 0.15 * corners[:, 3])).astype(int)
    X = np.concatenate([corners.repeat(20 - ones, 0), corners.repeat(ones, 0)])
    return X, np.repeat([0, 1], [(20 - ones).sum(), ones.sum()])


def three_classes():
    """Three normal clouds that differ in columns 2 and 0, sorted by class."""
    random = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 60)
    X = random.standard_normal((180, 5))
    X[:, 2] += 3.0 * y
    X[:, 0] += 2.0 * (y == 1)
    return X, y


def plane():
    """All corners of {−1, 1}⁴, 10 rows each; y = 5 + 3 x₁ − 2 x₃."""
    X = np.array(list(itertools.product([-1.0, 1.0], repeat=4))).repeat(10, 0)
    return X, 5 + 3 * X[:, 1] - 2 * X[:, 3]


def own_loss(model, X, y):
    """The loss of a fitted model, from its own predictions."""
    if hasattr(model, "predict_proba"):
        return log_loss(y, model.predict_proba(X), labels=model.classes_)
    if not hasattr(model, "classes_"):
        return ((model.predict(X) - y) ** 2).mean()
    scores = model.decision_function(X)
    if scores.ndim == 1:
        signs = np.where(y == model.classes_[1], 1.0, -1.0)[:, None]
    else:
        signs = np.where(y[:, None] == model.classes_, 1.0, -1.0)
    margins = signs * scores.reshape(len(y), -1)
    name = type(model[-1] if hasattr(model, "steps") else model).__name__
    losses = {
        "RidgeClassifier": (1 - margins) ** 2,
        "LinearSVC": np.maximum(0, 1 - margins) ** 2,
        "SGDClassifier": np.maximum(0, 1 - margins),
    }
    return losses[name].sum(1).mean()


CLASSIFIERS = [
    LogisticRegression(),
    RidgeClassifier(),
    LinearSVC(random_state=0),
    SGDClassifier(loss="log_loss", alpha=0.01, random_state=0),
    LinearDiscriminantAnalysis(),
    MLPClassifier((8,), random_state=0, max_iter=300),
]
HINGE = SGDClassifier(alpha=0.01, random_state=0)  # Of the corners it needs x₁ alone.
REGRESSORS = [
    LinearRegression(),
    Ridge(),
    LinearSVR(random_state=0),
    MLPRegressor(hidden_layer_sizes=(8,), random_state=0, max_iter=300),
]
SCALERS = [None, StandardScaler(), StandardScaler(with_mean=False), RobustScaler(), MinMaxScaler()]
SCALERS += [MaxAbsScaler(), "passthrough"]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scaler", SCALERS, ids=str)
@pytest.mark.parametrize(
    ("model", "data"),
    [
        *itertools.product(CLASSIFIERS, [cells, three_classes]),
        (HINGE, three_classes),
        *itertools.product(REGRESSORS, [plane]),
    ],
    ids=lambda given: getattr(given, "__name__", None) or str(given),
)
def test_the_used_columns_are_selected_and_g_is_the_model_s_own_loss(model, data, scaler):
    X, y = data()
    model = clone(model)
    if scaler is not None:
        model = make_pipeline(scaler if isinstance(scaler, str) else clone(scaler), model)
    selector = gp.FeatureSelector(model, n_features_to_select=2).fit(X, y)
    best = [2, 0] if data is three_classes else [1, 3]
    assert selector.order_[0] == best[0]
    assert set(selector.get_support(indices=True)) == set(best)
    fitted, picked = selector.model_, np.zeros(X.shape[1], bool)
    path = [-own_loss(fitted, np.where(picked, X, X.mean(0)), y)]
    for column in selector.order_[:2]:
        picked[column] = True
        path.append(-own_loss(fitted, np.where(picked, X, X.mean(0)), y))
    assert selector.scores_path_ == pytest.approx(path, rel=1e-5)
    whole = -own_loss(fitted, X, y)
    assert selector.attribution_.full_value == pytest.approx(whole, rel=1e-5)


def test_the_path_of_a_ridge_classifier_in_closed_form():
    X, y = cells()
    selector = gp.FeatureSelector(RidgeClassifier(alpha=32.0), n_features_to_select=2).fit(X, y)
    first, second = 0.6 * 320 / 352, 0.3 * 320 / 352  # The regression of ±1, shrunk.
    gains = [2 * 0.6 * first - first**2, 2 * 0.3 * second - second**2]
    assert selector.scores_path_ == pytest.approx([-1, -1 + gains[0], -1 + sum(gains)])
    assert selector.scores_[[1, 3]] == pytest.approx(gains, rel=1e-6)


def test_a_named_loss_takes_scores_without_probabilities_as_logits():
    X, y = cells()
    model = LinearSVC().fit(X, y)
    selector = gp.FeatureSelector(model, loss="cross-entropy").fit(X, np.array(y))
    p = 1 / (1 + np.exp(-model.decision_function(X)))
    assert selector.attribution_.full_value == pytest.approx(-log_loss(y, p))


def test_a_loss_of_one_s_own_gets_classes_as_numbers():
    X, y = cells()
    model = LogisticRegression().fit(X, np.array(["no", "yes"])[y])

    def wrong(outputs, labels):
        return ((outputs[:, 0] > 0) != (labels == 1)).double()

    selector = gp.FeatureSelector(model, loss=wrong, method="marginal-gains").fit(
        X, np.array(["no", "yes"])[y]
    )
    assert selector.attribution_.full_value == pytest.approx(model.score(X, model.classes_[y]) - 1)


def test_the_best_model_of_a_search_is_asked():
    X, y = cells()
    search = GridSearchCV(make_pipeline(StandardScaler(), LinearSVC()), {"linearsvc__C": [0.1, 1]})
    selector = gp.FeatureSelector(search, n_features_to_select=2).fit(X, y)
    assert selector.order_[:2].tolist() == [1, 3]
    weights = 1.0 + y
    weighted = clone(selector).fit(X, y, sample_weight=weights)
    best = weighted.model_.best_estimator_
    expected = clone(best).fit(
        X, y, standardscaler__sample_weight=weights, linearsvc__sample_weight=weights
    )
    assert best[-1].coef_ == pytest.approx(expected[-1].coef_)


# Sorted rows.


def test_a_column_that_moves_only_in_the_last_rows_is_not_taken_for_constant():
    X = np.zeros((400, 3))
    X[300:, 1] = 1.0  # The last class, and what tells it apart.
    X[:, 2] = np.tile([-1.0, 1.0], 200)
    y = (X[:, 1] == 1).astype(int)
    model = nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 4.0, 0.1]]))
        model.bias.fill_(-2.0)
    with pytest.warns(UserWarning, match="'0' are constant|'1' equal the label") as told:
        selector = gp.FeatureSelector(model, n_features_to_select=1, batch_size=4).fit(X, y)
    assert len(told) == 2  # And none of a label that is the same in all rows.
    assert selector.get_support(indices=True).tolist() == [1]
    nothing = np.log1p(np.exp(-2 + 4 * 0.25)) - 0.25 * (-2 + 4 * 0.25)
    with_it = np.log1p(np.exp(-2))
    means = selector.scores_path_
    assert means == pytest.approx([-nothing, -with_it], rel=1e-5)


def test_one_class_far_away_does_not_hide_how_a_model_makes_probabilities():
    random = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [100, 200, 200])
    X = random.standard_normal((500, 3))
    X[:, 0] += np.where(y == 0, -60.0, 0.0)
    X[:, 1] += np.where(y == 2, 1.0, 0.0)
    model = SGDClassifier(loss="log_loss", random_state=0).fit(X, y)
    # Probabilities of the first class's rows are 1 and 0, with a softmax or without.
    model.coef_ = np.array([[-1.0, 0, 0], [1, -1, 0], [1, 1, 0]])
    model.intercept_ = np.array([-30.0, 0, 0])
    selector = gp.FeatureSelector(model, n_features_to_select=2).fit(X, y)
    assert selector.attribution_.full_value == pytest.approx(
        -log_loss(y, model.predict_proba(X)), rel=1e-4
    )


# Weights.


def crosses():
    """y = x₀ + x₁: rows (±2, 0), then rows (0, ±1)."""
    X = np.array([[2.0, 0], [-2, 0], [0, 1], [0, -1]]).repeat(10, 0)
    return X, X.sum(1), np.repeat([1.0, 9.0], 20)


def plus() -> nn.Module:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(1.0)
        model.bias.zero_()
    return model


@pytest.mark.parametrize("parts", [None, 2, 5])
def test_weights_decide_which_column_is_worth_more(parts):
    X, y, weights = crosses()
    equal = gp.FeatureSelector(plus(), n_features_to_select=2).fit(X, y)
    assert equal.order_.tolist() == [0, 1]
    assert equal.scores_path_ == pytest.approx([-2.5, -0.5, 0], abs=1e-6)
    selector = gp.FeatureSelector(plus(), 2, batch_size=7, loss="squared-error")
    if parts is None:
        selector.fit(X, y, sample_weight=weights)
    else:
        for at in np.array_split(np.arange(40), parts):
            some = None if (weights[at] == 1).all() else weights[at]
            selector.partial_fit(X[at], y[at], sample_weight=some)
    assert selector.order_.tolist() == [1, 0]
    assert selector.scores_path_ == pytest.approx([-1.3, -0.4, 0], abs=1e-6)


def test_rows_of_weight_zero_are_not_there():
    X, y, _ = crosses()
    weights = np.repeat([1.0, 0.0], 20)
    one = gp.FeatureSelector(plus(), loss="squared-error").fit(X, y, sample_weight=weights)
    assert one.scores_path_ == pytest.approx([-4, 0], abs=1e-6)
    odd = np.where(weights > 0, y > 0, 7).astype(int)  # Nor are their classes.
    kept = gp.FeatureSelector(LogisticRegression()).fit(X, odd, sample_weight=weights)
    assert kept.model_.classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"sample_weight|Sample weights"):
        gp.FeatureSelector(plus()).fit(X, y, sample_weight=np.zeros(40))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        gp.FeatureSelector(plus()).fit(X, y, sample_weight=-weights)


@pytest.mark.parametrize("routing", [False, True])
def test_models_that_are_fitted_here_are_fitted_by_the_weights(routing):
    random = np.random.default_rng(0)
    X, weights = random.standard_normal((80, 3)), random.random(80)
    y = X[:, 0] + X[:, 1] ** 2
    plain = gp.FeatureSelector(Ridge()).fit(X, y, sample_weight=weights)
    assert plain.model_.coef_ == pytest.approx(Ridge().fit(X, y, weights).coef_)
    with sklearn.config_context(enable_metadata_routing=routing):
        steps = StandardScaler(), Ridge()
        if routing:
            steps = [step.set_fit_request(sample_weight=True) for step in steps]
        line = gp.FeatureSelector(make_pipeline(*steps)).fit(X, y, sample_weight=weights)
    scaled = StandardScaler().fit(X, sample_weight=weights)
    assert line.model_[0].mean_ == pytest.approx(scaled.mean_)
    expected = Ridge().fit(scaled.transform(X), y, weights)
    assert line.model_[-1].coef_ == pytest.approx(expected.coef_)
    with sklearn.config_context(enable_metadata_routing=routing):
        perceptron = gp.FeatureSelector().fit(X, y, sample_weight=weights)
    assert perceptron.model_[0].mean_ == pytest.approx(scaled.mean_)


def test_a_model_that_takes_no_weights_is_told():
    X, y = cells()
    weights = 1.0 + y
    with pytest.warns(UserWarning, match="LinearDiscriminantAnalysis takes no sample_weight") as w:
        selector = gp.FeatureSelector(LinearDiscriminantAnalysis()).fit(X, y, sample_weight=weights)
    assert {each.filename for each in w} == {__file__}
    expected = -log_loss(y, selector.model_.predict_proba(X), sample_weight=weights)
    assert selector.attribution_.full_value == pytest.approx(expected)


def test_weights_reach_a_selector_in_a_pipeline():
    X, y, weights = crosses()
    line = make_pipeline(gp.FeatureSelector(plus(), n_features_to_select=1), LinearRegression())
    line.fit(X, y, featureselector__sample_weight=weights)
    assert line[0].get_support().tolist() == [False, True]
    with sklearn.config_context(enable_metadata_routing=True):
        selector = gp.FeatureSelector(plus(), n_features_to_select=1)
        selector.set_fit_request(sample_weight=True)
        last = LinearRegression().set_fit_request(sample_weight=False)
        line = make_pipeline(selector, last).fit(X, y, sample_weight=weights)
    assert line[0].get_support().tolist() == [False, True]


# Classes of a stream.


def test_classes_tell_which_outputs_the_first_labels_are():
    X = np.random.default_rng(0).standard_normal((90, 3))
    y = np.array(["a", "b", "c"])[X.argmax(1)]
    order = np.argsort(y, kind="stable")[::-1]  # c, then b, then a.
    X, y = X[order], y[order]
    model = nn.Linear(3, 3)
    with torch.no_grad():
        model.weight.copy_(2 * torch.eye(3))
        model.bias.zero_()
    parts = gp.FeatureSelector(model, n_features_to_select=1)
    parts.partial_fit(X[:40], y[:40], classes=["c", "a", "b"])
    p = torch.softmax(2 * torch.from_numpy(X[:40]), 1).numpy()
    expected = -log_loss(y[:40], p, labels=["a", "b", "c"])
    assert parts.attribution_.full_value == pytest.approx(expected, rel=1e-5)
    parts.partial_fit(X[40:], y[40:])
    whole = clone(parts).fit(X, y)
    assert parts.scores_path_ == pytest.approx(whole.scores_path_)
    with pytest.raises(gp.InvalidInput, match=r"among the model's 3 classes"):
        parts.partial_fit(X[:2], ["a", "d"])
    assert parts.partial_fit(X[:2], y[:2]).get_support().sum() == 1  # Wrong rows are not kept.
    with pytest.raises(gp.InvalidInput, match=r"first call, a, b, c \(got a, b\)"):
        parts.partial_fit(X[:2], ["a", "b"], classes=["a", "b"])
    with pytest.raises(gp.InvalidInput, match=r"all the model's 3 classes \(got 2\)"):
        clone(parts).partial_fit(X[:40], y[:40])


def test_classes_make_many_whole_numbers_classes():
    X = np.random.default_rng(0).standard_normal((120, 2))
    y = np.arange(120) % 60
    assert isinstance(gp.FeatureSelector().partial_fit(X, y).model_[-1], MLPRegressor)
    selector = gp.FeatureSelector().partial_fit(X, y, classes=np.arange(60))
    assert isinstance(selector.model_[-1], MLPClassifier)
    number = gp.FeatureSelector(loss="squared-error").partial_fit(X, y, classes=np.arange(60))
    assert isinstance(number.model_[-1], MLPRegressor)


# Sparse rows.


def thin(rows=300, columns=40):
    """0.1 of the cells are not 0; y = 3 x₇ − 2 x₂₀."""
    X = sparse.random(rows, columns, density=0.1, format="csr", random_state=0)
    return X, 3 * X[:, [7]].toarray()[:, 0] - 2 * X[:, [20]].toarray()[:, 0]


def weighted_sum(columns=40) -> nn.Module:
    model = nn.Linear(columns, 1)
    with torch.no_grad():
        model.weight.zero_()
        model.weight[0, 7], model.weight[0, 20] = 3.0, -2.0
        model.bias.zero_()
    return model


MODELS = [
    weighted_sum(),
    Ridge(),
    make_pipeline(StandardScaler(with_mean=False), Ridge()),
    None,
]


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix])
@pytest.mark.parametrize("model", MODELS, ids=["torch", "ridge", "pipeline", "none"])
def test_sparse_rows_are_selected_from_as_dense_ones_are(model, make):
    X, y = thin()
    wanted = {"n_features_to_select": 2, "batch_size": 64}
    selector = gp.FeatureSelector(model, **wanted).fit(make(X), y)
    assert selector.order_[:2].tolist() == [7, 20]
    if model is not None:  # A dense table is centred before a perceptron is fitted.
        dense = gp.FeatureSelector(model, **wanted).fit(X.toarray(), y)
        assert selector.scores_path_ == pytest.approx(dense.scores_path_, rel=1e-5, abs=1e-9)
    small = selector.transform(make(X))
    assert sparse.issparse(small)
    assert np.array_equal(small.toarray(), X[:, [7, 20]].toarray())


class Largest(TorchDispatchMode):
    """The number of entries of the largest tensor that is made."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.entries = max(self.entries, made.numel())
        return made


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS[:3], ids=["torch", "ridge", "pipeline"])
def test_no_more_than_a_batch_of_sparse_rows_is_dense_at_a_time(model, monkeypatch):
    X, y = thin(350)
    model = clone(model).fit(X, y) if hasattr(model, "fit") else model
    rows = []
    for kind in (sparse.csr_matrix, sparse.csr_array):
        whole = kind.toarray

        def watched(self, *args, whole=whole, **named):
            rows.append(self.shape[0])
            return whole(self, *args, **named)

        monkeypatch.setattr(kind, "toarray", watched)
    with Largest() as seen:
        selector = gp.FeatureSelector(model, n_features_to_select=2, batch_size=5).fit(X, y)
    assert selector.order_[:2].tolist() == [7, 20]
    assert max(rows) == 5
    assert seen.entries < 14_000 / 4  # A square of all columns is allowed, all rows are not.


def test_parts_may_be_sparse_and_are_sampled():
    X, y = thin(400)
    parts = gp.FeatureSelector(weighted_sum(), n_features_to_select=2, max_rows=50)
    for lo in range(0, 400, 100):
        parts.partial_fit(X[lo : lo + 100], y[lo : lo + 100])
    assert parts.order_[:2].tolist() == [7, 20]
    dense = clone(parts)
    for lo in range(0, 400, 100):
        dense.partial_fit(X[lo : lo + 100].toarray(), y[lo : lo + 100])
    assert parts.scores_path_ == pytest.approx(dense.scores_path_, rel=1e-5, abs=1e-9)


def test_a_model_that_cannot_be_fitted_to_sparse_rows_says_so():
    X, y = thin()
    for model in (LinearDiscriminantAnalysis(), make_pipeline(StandardScaler(), Ridge())):
        with pytest.raises((TypeError, ValueError), match=r"[Ss]parse"):
            gp.FeatureSelector(model).fit(X, y > 0)
    fitted = LinearDiscriminantAnalysis().fit(X.toarray(), y > 0)
    assert 7 in gp.FeatureSelector(fitted, 2).fit(X, y > 0).get_support(indices=True)


# Names and randomness.


def test_random_state_decides_what_is_random():
    X, y = cells()
    model = MLPClassifier((4,), max_iter=5)  # No random_state of its own.

    def weights(random_state, model=model):
        with pytest.warns(ConvergenceWarning):
            fitted = gp.FeatureSelector(model, random_state=random_state).fit(X, y)
        return fitted.model_.coefs_[0]

    assert np.array_equal(weights(0), weights(0))
    assert not np.array_equal(weights(0), weights(1))
    assert np.array_equal(weights(np.random.RandomState(3)), weights(np.random.RandomState(3)))
    assert not np.array_equal(weights(None), weights(None))
    own = MLPClassifier((4,), max_iter=5, random_state=7)
    assert np.array_equal(weights(0, own), weights(1, own))
    assert model.random_state is None
    with pytest.raises(ValueError, match="cannot be used to seed"):
        gp.FeatureSelector(model, random_state="x").fit(X, y)
