"""What a result says it cost is what a counter in the model has seen: every door, every method.

Gradients are counted where they are taken, not where they are asked for: a hook on the model's
output fires with every backward pass through it and counts its rows. For a table the output is
the one that the loss is given, so the shortcut behind a linear first layer is counted, too.

Graphs have a fast gradient that leaves out the model. There the calls of autograd are counted, one
for each pass over the graph. The call with method="random", which pays nothing, says how many of
them are checks. The cost of Captum's methods is not known before they have run, so that a budget
cannot bind their first round; for them only the count is checked.

Without an autograd to watch, in a set function that brings its own gradient, its points count.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from greedypig.core.errors import BudgetTooSmall
from made_graphs import Undeclared, features, random_graph, seeded
from nets import cnn, mlp, picture, row
from problems import net
from tables.worlds import Plain, cut, deep, mixed, regression
from watched import WATCH, Watch, Watched, watched, watched_photos, watched_texts

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def watch() -> Watch:
    WATCH.reset()
    return WATCH


Results = gp.Attribution | list[gp.Attribution]
Call = Callable[..., Results]
FEW = {"method": gp.GreedyPIG(rounds=3, steps=3)}
CASES: dict[str, tuple[Call, dict[str, Any]]] = {}
"""Name → a door with its model and input, and the arguments of the call."""


def case(name: str, door: Call, **options: Any) -> None:
    CASES[name] = door, options


# One input, and several of them.


def explain_row(**options: Any) -> Results:
    return gp.explain(watched(mlp()), row(), **options)


def explain_picture(**options: Any) -> Results:
    return gp.explain(watched(cnn()), picture(shape=(3, 16, 14)), **options)


def explain_folded(**options: Any) -> Results:
    return gp.explain(Watched(cnn()), picture(shape=(3, 16, 14)), **options)


def explain_rows(**options: Any) -> Results:
    return list(gp.explain_many(watched(mlp()), [row(seed) for seed in range(5)], **options))


def explain_pictures(**options: Any) -> Results:
    xs = [picture(seed, (3, 16, 14)) for seed in range(3)]
    return list(gp.explain_many(Watched(cnn()), xs, **options))


ONE_SHOT = {
    "ig": gp.IG(7),
    "gradient": gp.Gradient(),
    "smooth-ig": gp.SmoothIG(gp.IG(3), 4),
    "guided-ig": gp.GuidedIG(9),
    "random": gp.Random(),
}
METHODS = ONE_SHOT | {
    "greedy-pig": gp.GreedyPIG(rounds=4, steps=3),
    "sequential-gradient": gp.SequentialGradient(),
    "two-sided-pig": gp.TwoSidedPIG(rounds=3, steps=2),
    "marginal-gains": gp.MarginalGains(),
    "leave-one-out": gp.LeaveOneOut(),
}
ROWS = METHODS | {
    "default": None,
    "measured": gp.GreedyPIG(rounds=3, schedule="measured"),
    "complete": gp.GreedyPIG(rounds=3, steps=4, complete=True),
    "greedy guided-ig": gp.Greedy(gp.GuidedIG(5), per_round=2),
    "greedy smooth-ig": gp.Greedy(gp.SmoothIG(gp.IG(2), 3), per_round=3),
}
for name, method in ROWS.items():
    case(f"explain {name}", explain_row, method=method)
    if name != "measured":
        case(f"explain two-sided {name}", explain_row, method=method, objective=gp.two_sided())
case("explain several baselines", explain_row, baseline=["zero", 0.5, 1.0], **FEW)
case("explain several baselines two-sided", explain_row, baseline=[0.0, 0.5], **FEW
     | {"objective": gp.two_sided("log-probability")})  # fmt: skip
case("explain gain", explain_row, stop=gp.Stop(gain=True), **FEW)
case("explain value", explain_row, stop=gp.Stop(value=0.4), **FEW)
case("explain small batches", explain_row, batch_size=2, **FEW)
PICTURES = ONE_SHOT | {"steady-pig": gp.SteadyPIG(rounds=3), "blur-ig": gp.BlurIG(6)}
for name, method in (PICTURES | FEW).items():
    case(f"explain picture {name}", explain_picture, method=method)
    case(f"explain folded picture {name}", explain_folded, method=method)
case("explain windows", explain_picture, features=gp.windows(4), **FEW)
for name, method in METHODS.items():
    case(f"explain_many {name}", explain_rows, method=method)
for name in ("steady-pig", "blur-ig", "smooth-ig", "ig"):
    case(f"explain_many pictures {name}", explain_pictures, method=PICTURES[name])


# Photos.


def explain_photo(**options: Any) -> Results:
    Image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    photo = Image.new("RGB", (8, 8), (200, 60, 40))
    photo.paste((20, 20, 20), (0, 0, 8, 3))
    with watched_photos() as network:
        return gp.explain_photo(photo, network, **options)


for name, method in (PICTURES | FEW).items():
    case(f"explain_photo {name}", explain_photo, method=method)
case("explain_photo counterfactual", explain_photo, objective="counterfactual", **FEW)
case("explain_photo two-sided", explain_photo, objective=gp.two_sided(), **FEW)


# Graphs.


@contextmanager
def autograd_calls() -> Iterator[list[int]]:
    """Grows by an entry with every call of autograd."""
    calls: list[int] = []
    original = torch.autograd.grad

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return original(*args, **options)

    torch.autograd.grad = counted
    try:
        yield calls
    finally:
        torch.autograd.grad = original


def on_graph(call: Call) -> Call:
    """The call, with its calls of autograd in the counter: all but those that are checks."""

    def door(**options: Any) -> Results:
        with autograd_calls() as checks:
            call(**options | {"method": "random", "stop": None})
        with autograd_calls() as calls:
            try:
                return call(**options)
            finally:
                WATCH.gradients = max(0, len(calls) - len(checks))

    return door


def graph(fast: bool) -> tuple[nn.Module, Tensor, Tensor]:
    model = seeded(gp.models.GCN, 5, 3, 8)
    return model if fast else Undeclared(model), features(40), random_graph(40, 80)[0]


@on_graph
def explain_edges(*, fast: bool = True, **options: Any) -> Results:
    return gp.explain_edges(*graph(fast), **options)


@on_graph
def explain_node(*, fast: bool = True, **options: Any) -> Results:
    return gp.explain_node(*graph(fast), 7, **{"k": 4} | options)


@on_graph
def pyg_adapter(**options: Any) -> Results:
    pytest.importorskip("torch_geometric", reason="needs the extra pyg")
    from torch_geometric.explain import Explainer
    from torch_geometric.nn.models import GCN

    from greedypig.adapters.pyg import GreedyPIGExplainer

    torch.manual_seed(0)
    model = GCN(5, 8, num_layers=2, out_channels=3).double().eval()
    ours = GreedyPIGExplainer(**options)
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    kinds = {"explanation_type": "model", "edge_mask_type": "object"}
    Explainer(model, ours, model_config=config, **kinds)(features(40), graph(True)[2], index=7)
    assert ours.attribution is not None
    return ours.attribution


GRAPHS = {name: METHODS[name] for name in METHODS if name not in ("smooth-ig", "gradient")}
for normalisation in ("recomputed", "kept"):
    asked = {"normalisation": normalisation}
    for name, method in GRAPHS.items():
        case(f"explain_edges {normalisation} {name}", explain_edges, method=method, **asked)
        case(f"explain_node {normalisation} {name}", explain_node, method=method, **asked)
    for door in (explain_edges, explain_node):
        title = "explain_edges" if door is explain_edges else "explain_node"
        hops = {} if door is explain_edges else {"hops": 2}
        case(f"{title} {normalisation} by autograd", door, fast=False, **FEW, **asked, **hops)
        both = {"objective": gp.two_sided("log-probability")}
        case(f"{title} {normalisation} two-sided", door, **both, **FEW, **asked)
    case(f"pyg {normalisation}", pyg_adapter, k=3, **asked)
case("explain_edges default", explain_edges)
case("explain_edges degree", explain_edges, method="degree")
case("explain_node recomputed default", explain_node)
case("explain_node recomputed apart", explain_node, connected=False, **FEW)


# Texts.

TEXT = "The cat sat on the mat . The dog ran . Maria was not in the film ."
CONTEXT = {"context": ["The cat sat .", "The dog ran .", "Maria ran ."], "question": "What ?"}


def explain_text(*, kind: str = "bert", adapter: bool = False, **options: Any) -> Results:
    pytest.importorskip("transformers", reason="needs the extra text")
    from greedypig.adapters.transformers import TextExplainer
    from text.tiny import model, tokenizer

    own = tokenizer(classifier=kind == "bert")
    options = {"tokenizer": own, "progress": mark} | options
    options |= {} if kind == "bert" else {"answer": "a good dog"}
    asked = {"text": None, **CONTEXT} if kind == "llama" else {"text": TEXT}
    MARKS.clear()
    with watched_texts(model(kind)):
        if adapter:
            explainer = TextExplainer(model(kind), **options)
            explainer(TEXT)
            return explainer.attribution
        return gp.explain_text(model(kind), **asked, **options)


MARKS: list[int] = []
"""Forwards before the first round of the last search, and after every round."""


def mark(*_: Any) -> None:
    MARKS.append(WATCH.forwards)


TEXTS = {name: METHODS[name] for name in METHODS if name not in ("smooth-ig", "random")}
for name, method in (TEXTS | {"default": None}).items():
    case(f"explain_text {name}", explain_text, method=method)
    case(f"explain_text context {name}", explain_text, kind="llama", method=method)
for name in ("random", "attention", "context-cite"):
    case(f"explain_text {name}", explain_text, method=name, features="sentences")
case("explain_text embedding", explain_text, absent="embedding")
case("explain_text deleted", explain_text, absent="deleted", features="sentences")
case("explain_text counterfactual", explain_text, objective="counterfactual", k=3)
case("explain_text two-sided", explain_text, objective=gp.two_sided())
case("explain_text gpt2 two-sided", explain_text, kind="gpt2", objective=gp.two_sided())
case("transformers", explain_text, adapter=True, k=3)


# Tables.

MODEL, X, Y = regression()


def squared(outputs: Tensor, labels: Tensor) -> Tensor:
    return (WATCH(outputs).squeeze(1) - labels).square()


def table(call: Call) -> Call:
    """The call, with its rows counted as passes over all of the 400 rows."""

    def door(**options: Any) -> Results:
        try:
            return call(**options)
        finally:
            whole, rest = divmod(WATCH.gradients, len(Y))
            assert not rest
            WATCH.gradients = whole

    return door


@table
def select_features(
    *, model: Any = MODEL, both: bool = False, x: Tensor = X, **options: Any
) -> Results:
    loss = gp.two_sided(squared) if both else squared
    return gp.select_features(model, cut(x, Y.to(x.dtype)), loss=loss, **options)


def unknown(x: Tensor) -> Tensor:
    """A function, whose first layer is not known."""
    return MODEL(x)


@table
def select_categories(**options: Any) -> Results:
    numbers, ids, labels = mixed(rows=len(Y))
    return gp.select_features(Plain(), cut((numbers, ids), labels), loss=squared, **options)


@table
def feature_selector(**options: Any) -> Results:
    pytest.importorskip("sklearn", reason="needs the extra sklearn")
    selector = gp.FeatureSelector(MODEL, n_features_to_select=3, loss=squared, **options)
    return selector.fit(X.numpy(), Y.numpy()).attribution_


TABLES = {name: METHODS[name] for name in METHODS if name not in ("smooth-ig", "leave-one-out")}
for name, method in (TABLES | {"default": None, "permutation": "permutation"}).items():
    case(f"select_features {name}", select_features, method=method)
    case(
        f"select_features unknown {name}", select_features, model=lambda x: MODEL(x), method=method
    )
    if name != "permutation":
        case(f"select_features two-sided {name}", select_features, both=True, method=method)
case("select_features deep", select_features, model=deep(), x=X.float())
case("select_features conditional", select_features, baseline="conditional")
case("select_features categories", select_categories, k=3)
case("select_features categories ig", select_categories, method="ig")
case("FeatureSelector", feature_selector)
case("FeatureSelector conditional", feature_selector, baseline="conditional", method="ig")


# Set functions, and methods of other people.


def maximize(**options: Any) -> Results:
    both, g = options.pop("both", False), net(17, 9).g
    objective = gp.objective(watched(g), 9, dtype=torch.float64)
    return gp.maximize(gp.two_sided(objective) if both else objective, **options)


class OwnGradient:
    """A set function that brings its own gradient, of which each mask costs one."""

    n, dtype = 9, torch.float64

    def values(self, masks: Tensor) -> Tensor:
        return WATCH(net(17, 9).g(masks))

    def gradient(self, masks: Tensor, weights: Tensor) -> Tensor:
        WATCH.gradients += len(masks)
        slopes = torch.stack([net(17, 9).gradient(mask) for mask in masks])
        return weights @ slopes


def maximize_own(**options: Any) -> Results:
    return gp.maximize(OwnGradient(), **options)


for name, method in METHODS.items():
    case(f"maximize {name}", maximize, method=method)
    case(f"maximize two-sided {name}", maximize, method=method, both=True)
    if name != "smooth-ig":
        case(f"maximize an own gradient {name}", maximize_own, method=method)


def from_captum(*, kind: str, rounds: bool = False, **options: Any) -> Results:
    attr = pytest.importorskip("captum.attr", reason="needs the extra captum")
    method = gp.from_captum(getattr(attr, kind))
    method = gp.Greedy(method, per_round=2) if rounds else method
    return gp.explain(Watched(mlp()), row(), **options | {"method": method})


for name in ("IntegratedGradients", "Saliency", "DeepLift", "GradientShap", "InputXGradient"):
    case(f"captum {name}", from_captum, kind=name)
    case(f"captum {name} in rounds", from_captum, kind=name, rounds=True)

# The tests.

FREE = (
    *("random", "marginal-gains", "leave-one-out", "degree", "permutation", "deleted"),
    *("attention", "context-cite"),
)
"""Names of calls that cost no gradients end in one of these."""
PAID = [name for name in CASES if not name.endswith(FREE) and "captum" not in name]


def gradients(results: Results) -> int:
    """What the results say."""
    several = results if isinstance(results, list) else [results]
    return sum(a.gradients_used for a in several)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_that_the_model_was_asked_for(name, watch):
    call, options = CASES[name]
    results = call(**options)
    assert gradients(results) == watch.gradients
    assert (watch.gradients == 0) == name.endswith(FREE)


@pytest.mark.parametrize("name", PAID)
@pytest.mark.parametrize("share", [0.4, 0.9])
def test_a_budget_of_gradients_is_never_exceeded(name, share, watch):
    call, options = CASES[name]
    examples = 5 if call is explain_rows else 3 if call is explain_pictures else 1
    whole = gradients(call(**options)) // examples
    budget = max(1, int(share * whole))
    watch.reset()
    stop = {"stop": gp.Stop(**{"gradients": budget} | only_limits(options.get("stop")))}
    try:
        results = call(**options | stop)
    except BudgetTooSmall:
        assert watch.gradients == 0
        return
    assert gradients(results) <= budget * examples
    assert watch.gradients <= budget * examples


def only_limits(stop: gp.Stop | None) -> dict[str, Any]:
    """The rules that a call has already."""
    return {} if stop is None else {"gain": stop.gain, "value": stop.value}


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][0] is explain_text])
def test_forwards_of_a_text_are_those_of_the_search_and_of_both_ends(name, watch):
    """G of nothing and of everything are measured before the first round. What is checked after
    the last one is no part of the search."""
    call, options = CASES[name]
    a = call(**options)
    assert isinstance(a, gp.Attribution)
    assert a.about.forwards == MARKS[-1] - MARKS[0] + 2
    assert watch.forwards > MARKS[-1]


@pytest.mark.parametrize("budget", [60, 100])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("method", [None, "ig", "sequential-gradient"])
def test_a_budget_of_batches_is_counted_in_rows(budget, both, method, watch):
    loss = gp.two_sided(squared) if both else squared
    few = gp.IG(5) if method == "ig" else method
    a = gp.select_features(MODEL, cut(X, Y, 50), loss=loss, budget=budget, method=few)
    assert watch.gradients == a.about.gradient_rows == 50 * a.about.gradient_batches
    assert a.about.gradient_batches <= budget
