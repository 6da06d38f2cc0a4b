"""Do two checkouts of greedypig give the same numbers, and does one take longer?

    python benchmarks/before_after.py record --src CHECKOUT/src --out a.json
    python benchmarks/before_after.py compare a.json b.json [--allow 'NAME,NAME,…']
    python benchmarks/before_after.py time OLD/src NEW/src [--graph cora.npz] [--only photo,text]

`record` runs small calls of every door and method, with fixed seeds, and keeps order, scores,
values, rounds, costs and the reason to stop, every number exactly. Calls take only arguments that
every version has. The tiny models are those of this clone's tests. `compare` prints every call
whose numbers differ, and by how much. `time` runs real work in processes of its own, the two
checkouts in turn, and prints the ratio of their processor times.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
FACTS = (
    *("nothing", "kept", "removed", "curves", "probability", "class"),
    *("forwards", "answer", "counts", "enough", "only", "deleted", "without"),
    *("twins", "twin_shares", "sum_error"),
    *("held_out", "gradient_batches", "gradient_rows", "note"),
)
"""What was measured beside the run itself; found in a result's notes."""
FIELDS = (
    *("order", "selected", "feature_scores", "last_scores", "values", "full_value", "picks"),
    *("totals", "gradients_used"),
)
"""What is kept of every result."""
ONE_ROUND = "an answer that hardly depends on the text takes one round"
EXPECTED = {
    "explain_many/random": "every example draws from (seed, example), so their orders differ",
    "explain_many/smooth-ig": "every example draws from (seed, example), so their noise differs",
    "explain_many/steady-pig": "every example draws from (seed, example), so their views differ",
    "explain_node/recomputed*": "both gradients of a point are counted",
    "explain_node/indexed": "both gradients of a point are counted",
    "adapters/pyg recomputed": "both gradients of a point are counted",
    "explain_photo/callable": "curves are about what the callable measures, not about class 0",
    "explain_photo/two-sided counterfactual": "a counterfactual is measured by deletion",
    "explain_text/gpt2 default": ONE_ROUND,
    "explain_text/gpt2 sentences": ONE_ROUND,
    "explain_text/gpt2 two-sided": ONE_ROUND,
    "explain_text/llama context": ONE_ROUND,
    "explain_text/llama context two-sided": ONE_ROUND,
    "explain_text/llama embedding": ONE_ROUND,
    "adapters/captum": "50 gradients in all rounds, where n_steps is not given",
    "adapters/captum one round": "50 gradients in all rounds, where n_steps is not given",
}
"""Differences that have a reason: names of calls, * for any end, as --allow takes them."""
Calls = Iterator[tuple[str, Callable[[], Any]]]

# The calls.


def towards_the_input(objective: Any, round: Any) -> Any:
    """A scorer of one's own; older versions call it with the mask itself."""
    return (1 - getattr(round, "mask", round)) * objective.end[0]


def rows() -> Calls:
    import torch

    import greedypig as gp
    from nets import linear, mlp, row

    net, x, few = mlp(), row(), {"method": gp.GreedyPIG(per_round=1, steps=3)}

    def call(**options: Any) -> Callable[[], Any]:
        return lambda: gp.explain(net, x, **options)

    methods = "greedy-pig sequential-gradient ig gradient smooth-ig guided-ig random"
    for name in (*methods.split(), "marginal-gains", "leave-one-out", "two-sided-pig"):
        yield f"row {name}", call(method=name)
    yield "row default", call()
    for rule in ("left", "right", "trapezoid", "gauss-legendre", "gauss-radau"):
        yield f"row rule {rule}", call(method=gp.GreedyPIG(per_round=2, steps=3, rule=rule))
    yield "row complete", call(method=gp.GreedyPIG(per_round=2, steps=3, complete=True))
    yield "row schedule list", call(method=gp.GreedyPIG(schedule=[1, 2, 3], steps=2))
    yield "row schedule measured", call(method=gp.GreedyPIG(rounds=4, schedule="measured"))
    yield "row greedy guided-ig", call(method=gp.Greedy(gp.GuidedIG(8), per_round=2))
    yield "row greedy smooth-ig", call(method=gp.Greedy(gp.SmoothIG(gp.IG(2), 3), per_round=2))
    yield "row greedy random", call(method=gp.Greedy(gp.Random(), per_round=2), seed=5)
    yield "row greedy callable", call(method=gp.Greedy(towards_the_input))
    yield "row several baselines", call(baseline=["zero", 0.5, -1.0], **few)
    yield "row tensor baseline", call(baseline=row(4), **few)
    for objective in ("log-likelihood", "log-probability", "logit", "margin", "counterfactual"):
        yield f"row {objective}", call(objective=objective, **few)
    yield "row margin against", call(objective=gp.margin(against=3), **few)
    yield "row callable", call(objective=lambda z: z[:, 1] - z[:, 2], **few)
    yield "row two-sided", call(objective=gp.two_sided("softmax"), **few)
    yield "row two-sided ig", call(objective=gp.two_sided(), method="ig")
    yield "row two-sided counterfactual", call(objective=gp.two_sided("counterfactual"), **few)
    yield "row stop value", call(stop=gp.Stop(value=0.5), **few)
    yield "row stop gain", call(stop=gp.Stop(gain=True), **few)
    yield "row stop gradients", call(stop=gp.Stop(gradients=10), **few)
    yield "row k and target", call(k=3, target=2, seed=7, **few)
    yield "row groups", call(features=torch.tensor([0, 1, 1, 2, 2, 0]), **few)
    yield "row batches of 2", call(batch_size=2, **few)
    yield "binary logit", lambda: gp.explain(linear(classes=1), x, target=1, **few)
    yield "regression", lambda: gp.explain(mlp(classes=1), x, outputs="values", **few)
    yield "regression decrease", lambda: gp.explain(mlp(classes=1), x, objective="decrease")
    yield "a function", lambda: gp.explain(lambda z: net(z), x, **few)


def pictures() -> Calls:
    import greedypig as gp
    from nets import TwoInputs, cnn, picture, row, unfolded

    net, x = cnn(), picture(shape=(3, 16, 14))

    def call(model: Any = net, **options: Any) -> Callable[[], Any]:
        return lambda: gp.explain(model, x, **options)

    knobs = {
        "greedy-pig": gp.GreedyPIG(rounds=5, steps=3),
        "steady-pig": gp.SteadyPIG(rounds=4),
        "sequential-gradient": gp.SequentialGradient(rounds=8),
        "ig": gp.IG(12),
        "gradient": gp.Gradient(),
        "smooth-ig": gp.SmoothIG(gp.IG(3), 4),
        "blur-ig": gp.BlurIG(8),
        "guided-ig": gp.GuidedIG(10),
        "random": gp.Random(),
    }
    for name, method in knobs.items():
        yield f"picture {name}", call(method=method)
    yield "picture steady-pig by name", call(method="steady-pig", stop=gp.Stop(gradients=30))
    yield "picture greedy-pig unfolded", call(unfolded(net), method=knobs["greedy-pig"])
    yield "picture steady-pig pixels", call(method=knobs["steady-pig"], features="pixels")
    yield "picture steady-pig seed 3", call(method=knobs["steady-pig"], seed=3)
    # Features.
    yield "picture windows", call(features=gp.windows(4), method=knobs["greedy-pig"])
    yield "picture grid gains", call(features=gp.grid(4), method="marginal-gains", k=4)
    yield "picture grid leave-one-out", call(features=gp.grid(4), method="leave-one-out")
    yield "picture grid two-sided-pig", call(features=gp.grid(4), method="two-sided-pig")
    yield "picture superpixels", call(features=gp.superpixels(6), method=knobs["greedy-pig"])
    for name in ("gray", "black", "white", "mean", "blur"):
        yield f"picture {name}", call(baseline=name, method=knobs["greedy-pig"])
    yield "picture black and white", call(baseline=["black", "white"], method=knobs["ig"])
    both = {"method": knobs["greedy-pig"], "objective": gp.two_sided("log-probability")}
    yield "picture two-sided", call(features=gp.grid(4), **both)
    yield "picture log-likelihood", call(objective="log-likelihood", stop=gp.Stop(gradients=20))
    yield "two inputs", lambda: gp.explain(TwoInputs(), (x[:, :2, :2], row(n=5)), method="ig")


def many() -> Calls:
    import torch

    import greedypig as gp
    from nets import cnn, mlp, picture, row

    xs = torch.stack([row(seed) for seed in range(5)])
    photos = [picture(seed, (3, 16, 14)) for seed in range(3)]

    def call(model: Any, inputs: Any, **options: Any) -> Callable[[], Any]:
        return lambda: list(gp.explain_many(model, inputs, **options))

    yield "rows", call(mlp(), xs)
    yield "rows targets", call(mlp(), xs, target=[0, 1, 2, 3, None], method="ig")
    yield "rows stop value", call(mlp(), xs, stop=gp.Stop(value=0.4))
    yield "rows counterfactual", call(mlp(), xs, objective="counterfactual", k=3)
    yield "rows gains", call(mlp(), xs, method="marginal-gains")
    yield "photos", call(cnn(), photos, method=gp.GreedyPIG(rounds=4, steps=3))
    yield "steady-pig", call(cnn(), photos, method=gp.SteadyPIG(rounds=3))
    yield "random", call(mlp(), xs, method="random")
    yield "smooth-ig", call(mlp(), xs, method=gp.SmoothIG(gp.IG(3), 4))


def photos() -> Calls:
    from PIL import Image

    import greedypig as gp

    photo = Image.new("RGB", (8, 8), (20, 20, 20))
    photo.paste((230, 60, 40), (2, 2, 6, 6))

    def call(**options: Any) -> Callable[[], Any]:
        options = {"method": gp.GreedyPIG(rounds=4, steps=3)} | options
        return lambda: gp.explain_photo(photo, "tiny_models:build", **options)

    for name in ("greedy-pig", "steady-pig", "ig", "sequential-gradient", "random", "blur-ig"):
        yield name, call(method=name)
    yield "default", call(method=None, stop=gp.Stop(gradients=40))
    yield "absolute", call(method="ig", ranking="absolute")
    yield "counterfactual", call(objective="counterfactual")
    yield "two-sided", call(objective=gp.two_sided("softmax"))
    yield "two-sided counterfactual", call(objective=gp.two_sided("counterfactual"))
    yield "callable", call(objective=lambda z: z.softmax(1)[:, 2])
    yield "margin", call(objective="margin:green")
    yield "target", call(target="blue", k=60)
    yield "windows", call(features=gp.windows(2))
    yield "grid", call(features=gp.grid(2), method="marginal-gains")
    yield "baselines", call(baseline=["black", "white"])
    yield "judge", call(judge="tiny_models:other")


def graph() -> tuple[Any, Any, Any, Any]:
    """model, x, edge_index and edge_weight."""
    import greedypig as gp
    from made_graphs import features, random_graph, seeded

    edges, weight = random_graph(60, 130)
    return seeded(gp.models.GCN, 5, 3, 8), features(60), edges, weight


def edges() -> Calls:
    import greedypig as gp
    from made_graphs import Undeclared, random_graph

    net, x, columns, weight = graph()
    one_way, _ = random_graph(60, 130, symmetric=False)

    def call(model: Any = net, **options: Any) -> Callable[[], Any]:
        return lambda: gp.explain_edges(model, x, columns, weight, **options)

    slow, few = Undeclared(net), gp.GreedyPIG(rounds=5, steps=3)
    yield "default", call()
    yield "recomputed by autograd", call(slow, method=few)
    yield "kept", call(normalisation="kept", method=few)
    yield "kept by autograd", call(slow, normalisation="kept", method=few)
    yield "degree", call(method="degree")
    for name in ("random", "ig", "sequential-gradient", "marginal-gains"):
        yield name, call(method=name, k=12)
    yield "two-sided", call(objective=gp.two_sided("softmax"), method=few)
    yield "log-likelihood of nodes", call(objective="log-likelihood", nodes=[3, 8], method=few)
    yield "callable", call(objective=lambda z: z[:, 0].sum(), method=few, stop=gp.Stop(gain=True))
    yield "stop gradients", call(stop=gp.Stop(gradients=30), seed=4)
    yield "directed", lambda: gp.explain_edges(net, x, one_way, method=few)


def nodes() -> Calls:
    import greedypig as gp
    from made_graphs import Undeclared

    net, x, columns, weight = graph()

    def call(model: Any = net, node: Any = 7, **options: Any) -> Callable[[], Any]:
        options = {"k": 6} | options
        return lambda: gp.explain_node(model, x, columns, node, weight, **options)

    slow, few = Undeclared(net), gp.GreedyPIG(per_round=1, steps=4)
    yield "recomputed", call()
    yield "recomputed by autograd", call(slow, hops=2, method=few)
    yield "recomputed several nodes", call(node=[7, 12], method=few)
    yield "recomputed apart", call(connected=False, method=few)
    yield "recomputed ig", call(method="ig")
    yield "recomputed stop value", call(method=few, stop=gp.Stop(value=-0.6))
    yield "recomputed random", call(method="random", seed=3)
    yield "kept", call(normalisation="kept")
    yield "kept of a class", call(normalisation="kept", target=1, method=few)
    yield "kept gains", call(normalisation="kept", method="marginal-gains")
    both = {"objective": gp.two_sided("log-probability"), "method": few}
    yield "two-sided", call(**both)
    yield "two-sided kept", call(normalisation="kept", **both)
    yield "indexed", lambda: gp.explain_node(net, x, gp.index_edges(x, columns), 7, k=4, method=few)


def texts() -> Calls:
    import greedypig as gp
    from text.tiny import model, tokenizer

    text = "The cat sat on the mat . The dog ran under the red house . Maria was not in the film ."
    context = ["The cat sat .", "The dog ran .", "Maria was good .", "The dog ran ."]
    asked = {"context": context, "question": "What ?"}

    def call(kind: str = "bert", about: Any = text, **options: Any) -> Callable[[], Any]:
        own = tokenizer(classifier=kind == "bert", chat=options.pop("chat", False))
        if kind != "bert":
            options = {"answer": "a good dog"} | options
        return lambda: gp.explain_text(model(kind), about, tokenizer=own, **options)

    for kind in ("bert", "gpt2", "llama"):
        yield f"{kind} default", call(kind)
        yield f"{kind} sentences", call(kind, features="sentences")
        yield f"{kind} two-sided", call(kind, objective=gp.two_sided(), features="sentences")
    yield "bert deleted", call(absent="deleted", features="sentences")
    yield "bert embedding", call(absent="embedding")
    yield "bert zero-embedding", call(absent="zero-embedding", k=4)
    yield "bert counterfactual", call(objective="counterfactual", k=3)
    yield "bert class", call(target="food", method=gp.GreedyPIG(per_round=2, steps=3))
    for name in ("leave-one-out", "ig", "marginal-gains", "random", "attention", "context-cite"):
        yield f"bert {name}", call(method=name, features="sentences")
    yield "llama generated", call("llama", answer=None, k=3)
    yield "llama context", call("llama", None, **asked)
    yield "llama context deleted", call("llama", None, absent="deleted", **asked)
    yield "llama context two-sided", call("llama", None, objective=gp.two_sided(), **asked)
    yield "llama context random", call("llama", None, method="random", k=2, **asked)
    yield "llama chat", call("llama", [{"role": "user", "content": text}], chat=True, k=3)
    yield "llama callable", call("llama", objective=lambda logs: logs[:, 0], k=3)
    yield "llama embedding", call("llama", absent="embedding", stop=gp.Stop(gradients=20))


def tables() -> Calls:
    from worlds import Plain, cut, deep, mixed, regression

    import greedypig as gp

    net, x, y = regression()
    batches, numbers = cut(x, y), {"loss": "squared-error"}
    curved, (some, ids, labels) = deep(), mixed()

    def call(**options: Any) -> Callable[[], Any]:
        return lambda: gp.select_features(net, batches, **numbers | options)

    methods = "greedy-pig ig gradient sequential-gradient permutation marginal-gains random"
    for name in methods.split():
        yield name, call(method=name)
    yield "default", call()
    yield "mean", call(baseline="mean", k=3)
    yield "conditional", call(baseline="conditional")
    yield "budget", call(budget=60, seed=2)
    yield "budget permutation", call(budget=40, method="permutation")
    yield "valid", call(valid=cut(x[:100], y[:100]))
    yield "two-sided", call(loss=gp.two_sided("squared-error"), k=3)
    yield "callable loss", call(loss=lambda out, label: (out.squeeze(1) - label).abs(), k=3)
    yield "stop gain", call(stop=gp.Stop(gain=True), method=gp.GreedyPIG(per_round=2, steps=4))
    yield "without a first layer", lambda: gp.select_features(lambda z: net(z), batches, **numbers)
    yield "deep", lambda: gp.select_features(curved, cut(x.float(), (y > 0).float()))
    mix = cut((some, ids), labels)
    yield "categories", lambda: gp.select_features(Plain(), mix, names=list("abcdefg"))
    yield "categories ig", lambda: gp.select_features(Plain(), mix, method="ig", outputs="logits")


def sets() -> Calls:
    import greedypig as gp
    from problems import net, random_coverage

    smooth, cover = net(17, 9), random_coverage(3, 9, 14, 3, whole=True)
    for name in ("greedy-pig", "ig", "gradient", "smooth-ig", "guided-ig", "random"):
        yield name, lambda name=name: gp.maximize(smooth.objective(), name, seed=2)
    yield "gains", lambda: gp.maximize(cover.objective(), gp.MarginalGains(), k=4)
    one = gp.GreedyPIG(per_round=1, steps=4)
    yield "one a round", lambda: gp.maximize(smooth.objective(batch_size=3), one)
    yield "stop value", lambda: gp.maximize(smooth.objective(), one, stop=gp.Stop(value=0.5))
    yield "two-sided", lambda: gp.maximize(gp.two_sided(smooth.objective()), one)
    yield "measured", lambda: gp.maximize(smooth.objective(), gp.GreedyPIG(schedule="measured"))
    yield "rounds", lambda: _carried_out(gp.rounds(smooth.objective(), one, seed=1))


def _carried_out(run: Any) -> Any:
    for _ in run:
        pass
    return run.results()[0]


def adapters() -> Calls:
    import captum.attr
    import torch
    from sklearn.linear_model import LogisticRegression
    from torch_geometric.explain import Explainer
    from torch_geometric.nn import GCNConv
    from transformers import TextClassificationPipeline
    from worlds import regression

    import greedypig as gp
    from greedypig.adapters.captum import GreedyPIG
    from greedypig.adapters.pyg import GreedyPIGExplainer
    from greedypig.adapters.transformers import TextExplainer
    from nets import cnn, mlp, picture, row
    from text.tiny import model, tokenizer

    net, x, y = regression()
    X, Y = x.numpy(), y.numpy()
    yield "sklearn module", lambda: gp.FeatureSelector(net, n_features_to_select=3).fit(X, Y)
    yield "sklearn perceptron", lambda: gp.FeatureSelector(n_features_to_select=2).fit(X, Y)
    classes = LogisticRegression().fit(X, Y > 0)
    budget = {"budget": 40, "baseline": "conditional", "batch_size": 64, "random_state": 3}
    yield "sklearn classifier", lambda: gp.FeatureSelector(classes, **budget).fit(X, Y > 0)

    rows, photo = torch.stack([row(seed) for seed in range(3)]), picture().unsqueeze(0)
    yield "captum", lambda: GreedyPIG(mlp()).attribute(rows, target=1)
    yield "captum one round", lambda: GreedyPIG(mlp()).attribute(rows, target=[0, 1, 2], n_rounds=1)
    yield "captum picture", lambda: GreedyPIG(cnn()).attribute(photo, target=2, n_steps=3)
    for name in ("DeepLift", "Saliency", "IntegratedGradients", "GradientShap", "FeatureAblation"):
        method = gp.from_captum(getattr(captum.attr, name))
        yield f"from captum {name}", lambda method=method: gp.explain(mlp(), row(), method=method)
    greedy = gp.Greedy(gp.from_captum(captum.attr.DeepLift), per_round=2)
    yield "from captum in rounds", lambda: gp.explain(mlp(), row(), method=greedy)

    class Weighted(torch.nn.Module):
        """Two layers of PyG."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.first, self.second = GCNConv(5, 8).double(), GCNConv(8, 3).double()

        def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
            return self.second(
                self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight
            )

    _, nodes_x, columns, _ = graph()
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}

    def pyg(**options: Any) -> Callable[[], Any]:
        def explained() -> Any:
            ours = GreedyPIGExplainer(**options)
            kind = {"explanation_type": "model", "edge_mask_type": "object"}
            Explainer(Weighted(), ours, model_config=config, **kind)(nodes_x, columns, index=7)
            return ours.attribution

        return explained

    yield "pyg kept", pyg(k=5)
    yield "pyg all", pyg()
    yield "pyg recomputed", pyg(k=4, normalisation="recomputed")

    pipe = TextClassificationPipeline(model=model("bert"), tokenizer=tokenizer(classifier=True))

    def told() -> Any:
        explainer = TextExplainer(pipe, k=3)
        explainer("The cat sat on the mat . The dog ran .")
        return explainer.attribution

    yield "transformers", told


DOORS: dict[str, list[Callable[[], Calls]]] = {
    "explain": [rows, pictures],
    "explain_many": [many],
    "explain_photo": [photos],
    "explain_edges": [edges],
    "explain_node": [nodes],
    "explain_text": [texts],
    "select_features": [tables],
    "maximize": [sets],
    "adapters": [adapters],
}

# Recording and comparing.


def use(src: str) -> None:
    """Import greedypig from this folder, and the tiny models from this clone's tests."""
    tests = ROOT / "tests"
    folders = (Path(src).resolve(), tests, tests / "cli", tests / "tables", ROOT)
    sys.path[:0] = list(map(str, folders))
    import greedypig

    if Path(greedypig.__file__).parents[1] != folders[0]:
        raise SystemExit(f"Expected greedypig in {src} (got {greedypig.__file__}).")
    import torch

    torch.set_num_threads(1)


def record(src: str, out: Path) -> None:
    use(src)
    taken: dict[str, Any] = {}
    began = time.monotonic()
    for door, kinds in DOORS.items():
        for kind in kinds:
            try:
                for name, call in kind():
                    taken[f"{door}/{name}"] = recorded(call)
            except Exception as error:  # A version under way: the other doors may be recorded.
                taken[f"{door}/{kind.__name__}"] = {"error": f"{type(error).__name__}: {error}"}
    failed = [name for name, numbers in taken.items() if "error" in numbers]
    out.write_text(json.dumps(taken, indent=1))
    seconds = time.monotonic() - began
    print(f"{len(taken)} calls in {seconds:.0f} s, {len(failed)} with an error")
    for name in failed:
        print(f"  {name}: {taken[name]['error']}")


def recorded(call: Callable[[], Any]) -> dict[str, Any]:
    """The numbers of a call, by name; or its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = call()
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
    parts = result if isinstance(result, list | tuple) else [result]
    numbers: dict[str, Any] = {}
    for place, part in enumerate(parts):
        lead = f"{place}." if len(parts) > 1 else ""
        numbers |= {lead + name: value for name, value in numbers_of(part).items()}
    return numbers


def numbers_of(part: Any) -> dict[str, Any]:
    """Of an Attribution, a fitted FeatureSelector or a tensor."""
    part = getattr(part, "attribution_", part)
    if not hasattr(part, "feature_scores"):
        return {"attributions": exact(part)}
    numbers = {name: exact(getattr(part, name)) for name in FIELDS}
    numbers |= {"stop": part.stop.name, "method": part.method}
    about = part.about if isinstance(part.about, dict) else part.about.record()
    return numbers | {f"about.{f}": exact(about[f]) for f in FACTS if about.get(f)}


def exact(value: Any) -> Any:
    """A value as JSON holds it without rounding: floats in hexadecimal."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(name): exact(item) for name, item in value.items()}
    return [exact(item) for item in value] if isinstance(value, list | tuple) else value


def compare(one: Path, other: Path, allowed: Sequence[str]) -> int:
    """Print what differs; 1 if anything does that is not allowed."""
    before, after = (json.loads(path.read_text()) for path in (one, other))
    bad = 0
    names = [*before, *(name for name in after if name not in before)]
    same = 0
    for name in names:
        if name not in before or name not in after:
            lines = ["is in one file only"]
        else:
            lines = list(differences(before[name], after[name]))
        if not lines:
            same += 1
            continue
        patterns = [pattern for pattern in allowed if fnmatch(name, pattern)]
        bad += not patterns
        print(f"{name}{'  (allowed)' if patterns else ''}")
        if patterns:
            reasons = [why for known, why in EXPECTED.items() if fnmatch(name, known)]
            print(f"    because {reasons[0] if reasons else 'the caller allows it'}")
        print(*(f"    {line}" for line in lines), sep="\n")
    print(f"{same} of {len(names)} calls give the same numbers; {bad} differ and may not.")
    return int(bad > 0)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What differs of one call, and by how much."""
    if "error" in before or "error" in after:
        if before != after:
            yield f"{before.get('error', 'a result')} → {after.get('error', 'a result')}"
        return
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            yield f"{name} is {'new' if name not in before else 'gone'}"
        elif before[name] != after[name]:
            yield f"{name}: {by_how_much(before[name], after[name])}"


def by_how_much(one: Any, other: Any) -> str:
    mine, theirs = list(leaves(one)), list(leaves(other))
    if len(mine) != len(theirs):
        return f"{len(mine)} numbers → {len(theirs)}"
    differing = [
        place for place, pair in enumerate(zip(mine, theirs, strict=True)) if differ(*pair)
    ]
    if not differing:
        return "the same numbers, written otherwise"
    first = f"{mine[differing[0]]!r} → {theirs[differing[0]]!r}"
    numbers = [(mine[i], theirs[i]) for i in differing]
    if len(mine) == 1:
        return first
    if not all(isinstance(value, float) for pair in numbers for value in pair):
        return f"{len(differing)} of {len(mine)} differ, the first at {differing[0]}: {first}"
    largest = max(abs(a - b) for a, b in numbers)
    scale = max(abs(value) for pair in numbers for value in pair) or 1.0
    return (
        f"{len(differing)} of {len(mine)} differ, by at most {largest:.3g} "
        f"({largest / scale:.2g} of the largest); the first at {differing[0]}: {first}"
    )


def differ(a: Any, b: Any) -> bool:
    both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
    return not both_nan and (a != b or type(a) is not type(b))


def leaves(value: Any) -> Iterator[Any]:
    """The numbers and words of a value, floats read back from hexadecimal."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
        return
    try:
        yield float.fromhex(value) if isinstance(value, str) else value
    except ValueError:
        yield value


# Time.


def photo_work(options: argparse.Namespace) -> Callable[[], Any]:
    """60 gradients on skimage's photo of a coffee, and its curves."""
    import skimage

    import greedypig as gp

    photo = Path(skimage.__file__).parent / "data" / "coffee.png"
    model = gp.models.load(options.network)
    return lambda: gp.explain_photo(photo, model, stop=gp.Stop(gradients=60))


def graph_work(options: argparse.Namespace) -> Callable[[], Any]:
    """Ten times 99 gradients over the edges of a graph of Cora's size, of the paper's GCN."""
    import numpy as np
    import torch

    import greedypig as gp

    if options.graph:
        with np.load(options.graph) as arrays:
            x = torch.zeros(tuple(arrays["x_shape"]))
            places = torch.from_numpy(arrays["x_row"]), torch.from_numpy(arrays["x_col"])
            x[places[0].long(), places[1].long()] = torch.from_numpy(arrays["x_val"]).float()
            there = torch.from_numpy(arrays["edges"]).long()
    else:
        generator = torch.Generator().manual_seed(0)
        x = (torch.rand(2708, 1433, generator=generator) < 0.013).float()
        there = torch.randint(2708, (2, 5278), generator=generator)
        there = torch.unique(there.sort(0).values, dim=1)
        there = there[:, there[0] != there[1]]
    torch.manual_seed(0)
    model = gp.models.GCN(x.shape[1], 7, 32).eval()
    columns = torch.cat([there, there.flip(0)], 1)
    return lambda: [gp.explain_edges(model, x, columns) for _ in range(10)][-1]


def text_work(options: argparse.Namespace) -> Callable[[], Any]:
    """The words of a text of about 200 tokens."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    import greedypig as gp
    from text.tiny import WORDS, model, tokenizer

    words = [word for word in WORDS.split() if word.isalpha()]
    text = " ".join(f"{words[i * 7 % len(words)]}{' .' * (i % 12 == 11)}" for i in range(184))
    method = gp.GreedyPIG(rounds=6, steps=4, rule="cubic", complete=True)
    if options.model:
        return lambda: gp.explain_text(options.model, text, method=method)
    small = model("bert").config
    config = BertConfig(**small.to_dict() | {
        "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6,
        "intermediate_size": 1536, "max_position_embeddings": 256,
    })  # fmt: skip
    torch.manual_seed(0)
    net, own = BertForSequenceClassification(config).eval(), tokenizer(classifier=True)
    return lambda: gp.explain_text(net, text, tokenizer=own, method=method)


def table_work(options: argparse.Namespace) -> Callable[[], Any]:
    """Ten of 39 columns of 300,000 made rows, for 4,000 gradient batches."""
    import torch

    import greedypig as gp

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300_000, 39, generator=generator)
    y = (x[:, 0] - 2 * x[:, 1] * (x[:, 2] > 0) + x[:, 3] > 0).float()
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(39, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32), torch.nn.ReLU(),
        torch.nn.Linear(32, 1),
    ).eval()  # fmt: skip
    batches = [(x[i : i + 2048], y[i : i + 2048]) for i in range(0, len(x), 2048)]
    return lambda: gp.select_features(net, batches, k=10, budget=4000)


WORK = {"photo": photo_work, "graph": graph_work, "text": text_work, "table": table_work}


def work(options: argparse.Namespace) -> None:
    """In a process of its own: print the seconds of processor time of one piece of work."""
    use(options.src)
    warnings.simplefilter("ignore")
    piece = WORK[options.what](options)
    began = time.process_time()
    result = piece()
    print(json.dumps([time.process_time() - began, result.gradients_used]))


def times(options: argparse.Namespace) -> None:
    """Processor time of the two checkouts, in turn."""
    print(f"{'':8}{'old':>10}{'new':>10}{'median':>10}{'minimum':>10}   new / old; CPU seconds")
    for what in options.only.split(","):
        seconds: dict[str, list[float]] = {"old": [], "new": []}
        costs: dict[str, int] = {}
        for _ in range(options.times):
            for side in seconds:
                spent, costs[side] = one_run(options, what, getattr(options, side))
                seconds[side].append(spent)
        old, new = seconds["old"], seconds["new"]
        print(f"{what:8}{median(old):10.2f}{median(new):10.2f}", end="")
        print(f"{median(new) / median(old):10.3f}{min(new) / min(old):10.3f}", end="")
        unequal = "" if costs["old"] == costs["new"] else f"   gradients {costs} differ"
        print(f"   {costs['new']} gradients{unequal}", flush=True)


def one_run(options: argparse.Namespace, what: str, src: str) -> tuple[float, int]:
    command = [sys.executable, __file__, "work", what, "--src", src, "--network", options.network]
    command += ["--graph", options.graph] * bool(options.graph)
    command += ["--model", options.model] * bool(options.model)
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env={**os.environ, **quiet}, stdout=subprocess.PIPE, check=True)
    spent, cost = json.loads(done.stdout.splitlines()[-1])
    return spent, cost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    tasks = parser.add_subparsers(dest="task", required=True)
    recording = tasks.add_parser("record")
    recording.add_argument("--src", required=True)
    recording.add_argument("--out", type=Path, required=True)
    comparing = tasks.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--allow", default="", help="names of calls; * stands for anything")
    timing, working = tasks.add_parser("time"), tasks.add_parser("work")
    timing.add_argument("old")
    timing.add_argument("new")
    timing.add_argument("--times", type=int, default=3)
    timing.add_argument("--only", default=",".join(WORK))
    working.add_argument("what", choices=WORK)
    working.add_argument("--src", required=True)
    for each in (timing, working):
        each.add_argument("--graph", default="", help="cora.npz; made where it is not given")
        each.add_argument("--model", default="", help="of the text; a random BERT otherwise")
        each.add_argument("--network", default="efficientnet-lite0", help="of the photo")
    options = parser.parse_args()
    if options.task == "compare":
        return compare(options.before, options.after, [n for n in options.allow.split(",") if n])
    if options.task == "record":
        record(options.src, options.out)
    else:
        (times if options.task == "time" else work)(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
