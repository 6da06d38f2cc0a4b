"""The command lines of all commands: what each does, its options and examples.

Nothing here imports torch, so that --help is printed at once. What a command does is in its own
module.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..core.registry import (
    BASELINES,
    COLUMNS,
    EDGES,
    FEATURES,
    METHODS,
    MODELS,
    NODES,
    OBJECTIVES,
    PHOTOS,
    TEXTS,
    serving,
)
from . import options


@dataclass(frozen=True)
class Command:
    """A command as its help shows it."""

    line: str
    """What it does, in a line of the list of commands."""
    description: str
    """--help shows the first paragraph, --help-all the others too."""
    examples: str
    configure: Callable[[argparse.ArgumentParser], None]
    """Adds its options, in the groups "input", "model", "method" and "output"."""
    rare: frozenset[str] = frozenset()
    """Options that only --help-all shows, besides `options.RARE`."""


EXPLAIN = """\
Explain which features of a photo a network uses. Prints the class, its probability, and the
probability with only the best 1, 5 and 10 % of the features. Writes photo.gpig (the result) and
photo.html (a page).

Objective softmax is the probability of the class, log-likelihood the photo's own prediction,
counterfactual a change of the prediction. Features are one colour of a pixel (elements), pixels,
squares (grid), overlapping squares (windows), or regions along edges (superpixels). The default
method is steady-pig for photos of 128 pixels or more with --objective softmax, sequential-gradient
with log-likelihood, and greedy-pig otherwise: about 100 gradients per photo. With --rounds or
--steps a --budget does not change the method: it stops early. A network of your own is a factory
without arguments, in a module of the current directory too. A photo whose name begins with a dash
goes behind --."""
EXPLAIN_EXAMPLES = """\
  greedypig explain photo.jpg
  greedypig explain holiday/ --out results --judge mobilenet-v2
  greedypig explain photo.jpg --class tabby --objective margin:lynx --json"""


def explain(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `greedypig explain`."""
    options.add_photos(parser)
    options.add_model(parser)
    options.add_method(parser)
    options.add_hardware(parser)
    words = "folder of the results; for one photo also x.gpig or x.html"
    options.add_output(parser, words, "PATH")
    add = options.group(parser, "output").add_argument
    add("--no-html", action="store_true", help="write no pages")
    words = "write PNG files too: kept, heatmap, overlay, order, curve"
    add("--pictures", action="store_true", help=words)


COMPARE = """\
Compare methods on photos by SIC AUC (area under the curve of the probability with only the best
features, higher is better), LIC AUC (that of the distance from the prediction, lower is better),
gradients and seconds.

Tables, a figure, a page and every result are written. With several photos both areas are of the
median curve. One-shot methods rank features by absolute score, as in the paper. Method paper is
Greedy PIG in the paper's setting (100 rounds of 20 gradients, slow), regions is Greedy PIG on
superpixels. With --budget every method takes about N gradients, by more or fewer rounds and steps;
paper never takes more than its own."""
COMPARE_EXAMPLES = """\
  greedypig compare photo.jpg
  greedypig compare holiday/ --judge mobilenet-v2 --out results
  greedypig compare photo.jpg --methods steady-pig,greedy-pig,ig --budget 100"""
COMPARED = (*options.METHODS, "paper", "regions")
"""The methods as they are typed."""


def compare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `greedypig compare`."""
    options.add_photos(parser)
    options.add_model(parser)
    usual = (*serving(METHODS, PHOTOS, compared=True), "regions")
    _add_methods(parser, COMPARED, usual, options.names_of(COMPARED))
    options.add_features(parser)
    add = options.group(parser, "method").add_argument
    words = "about N gradients for every method (default: each its own)"
    add("--budget", type=options.whole, metavar="N", help=words)
    options.add_hardware(parser)
    options.add_output(parser, "folder of the results (default: PHOTO-comparison)")


def _add_methods(
    parser: argparse.ArgumentParser,
    names: Sequence[str],
    usual: Sequence[str],
    read: Callable[[str], tuple[str, ...]],
) -> None:
    """The methods of a comparison. usual: those that run by default. read: the option's type."""
    words = f"{', '.join(names)} (default: {_default(names, usual)})"
    add = options.group(parser, "method").add_argument
    add("--methods", type=read, default=usual, metavar="A,B,…", help=words)


def _default(names: Sequence[str], usual: Sequence[str]) -> str:
    """The usual ones of these names, or all but the others."""
    others = [name for name in names if name not in usual]
    return f"all but {', '.join(others)}" if len(others) < len(usual) else ", ".join(usual)


SELECT = """\
Rank the columns of a table by what a network uses (trained here, or yours), and check the ranking:
fresh networks are trained on the top k columns, beside integrated gradients and random columns.
Writes tables, a figure, a page and the result.

Tables are CSV, TSV (also .gz), Parquet or Arrow; they are read piece by piece and need not fit in
memory. Criteo's files are recognised. By default k is those of 5,10,20,30 that are fewer than all,
or 1,2,3,5,7,10 of up to 20 columns. --drop and
--categorical may be given again; a row number is ranked if it is --categorical. By default a tenth
of the rows validates, more of a small table. The factory of
--model may take the table's schema. Every finished round and training is kept; --resume goes on.
On several processes, with the same result:
torchrun --nproc-per-node 4 -m greedypig select train.parquet --label y"""
SELECT_EXAMPLES = """\
  greedypig select train.parquet --label clicked --k 5,10,20,30
  greedypig select 'days/*.parquet' --valid last.parquet --label clicked
  greedypig select people.csv --label income --drop id --categorical zip"""
TASKS: dict[str, Any] = {"classification": "classes", "regression": "number"}


def select(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `greedypig select`."""
    count: dict[str, Any] = {"type": options.whole, "metavar": "N"}
    texts: dict[str, Any] = {"metavar": "A,B", "action": "append", "default": []}
    add = options.group(parser, "input").add_argument
    add("tables", nargs="+", metavar="TABLE", help="a file, a folder or a quoted pattern")
    add("--label", metavar="NAME", help="the column to predict")
    words = "validation rows (default: some of the table's rows)"
    add("--valid", metavar="TABLE", help=words)
    add("--drop", **texts, help="leave these columns out")
    words = "take these columns as categories"
    add("--categorical", **texts, help=words)
    words = "(default: found from the label's values)"
    add("--task", choices=TASKS, help=f"{' or '.join(TASKS)} {words}", metavar="NAME")

    add = options.group(parser, "model").add_argument
    words = "package.module:factory of your trained model; runs its code (default: one is trained)"
    add("--model", metavar="NAME", help=words)
    words = "most epochs; training ends when the validation loss does not fall"
    add("--epochs", **count, help=f"{words} (default: 20, of small tables 3,000 batches)")

    add = options.group(parser, "method").add_argument
    add("--k", type=_ks, default=(), metavar="N,M,…", help="how many columns to keep")
    usual = serving(METHODS, COLUMNS, compared=True)
    _add_methods(parser, serving(METHODS, COLUMNS), usual, _column_methods)
    add("--seeds", **count, default=3, help="trainings of each set of columns (default: 3)")
    options.add_hardware(parser, batch_size=False)
    options.add_output(parser, "folder of the results (default: TABLE-selection)")


def _ks(text: str) -> tuple[int, ...]:
    """The type of --k."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(sorted({options.whole(part) for part in parts or [text]}))


def _column_methods(text: str) -> tuple[str, ...]:
    """The type of --methods."""
    names = options.names_of(serving(METHODS, COLUMNS))(text)
    if names[0] == "random":
        raise options.WrongValue("methods of which the first one ranks columns", text)
    return names


COMPRESS = """\
Keep the best edges of a graph, ordered by Greedy PIG. Compares accuracy, agreement with the full
graph's predictions and G (the mean log-probability) with PIG, sampling by 1/√(DᵢDⱼ) and random
edges. Writes the graph of the kept edges, a table, a figure, a page and the result.

The paper's graph network is trained first (or use --model and --weights). All methods are measured
at 0, 5, … 100 % of the edges; the edges of the first one are kept. A graph is graph.npz, tensors as
.pt or .safetensors, a table of edges beside one of nodes, a folder of both, or an OGB folder."""
COMPRESS_EXAMPLES = """\
  greedypig compress graph.npz --keep 0.5
  greedypig compress edges.csv --nodes nodes.csv --label topic --keep 0.3
  greedypig compress graph.npz --model my_models:build --weights gcn.pt"""
TRAINING = {
    "hidden": "width of the GCN (default: 64; 256 in large graphs)",
    "layers": "its layers (default: 3)",
    "epochs": "epochs of training (default: 300; large graphs: 100)",
}
"""Options of a network that is trained here."""


def compress(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `greedypig compress`."""
    add = options.group(parser, "method").add_argument
    words = "share of the edges to keep (default: 0.5)"
    add("--keep", type=_share, default=0.5, metavar="SHARE", help=words)
    names, usual = serving(METHODS, EDGES), serving(METHODS, EDGES, compared=True)
    _add_methods(parser, names, usual, options.names_of(names))
    _add_graph(parser, folder="compressed", rounds="33", steps="3")
    parser.set_defaults(objective="log-probability")


def _share(text: str) -> float:
    """The type of --keep."""
    with suppress(ValueError):
        if 0 < float(text) <= 1:
            return float(text)
    raise options.WrongValue("a share above 0 and up to 1, such as 0.5", text)


def _add_graph(parser: argparse.ArgumentParser, *, folder: str, rounds: str, steps: str) -> None:
    """All options that the graph commands share.

    folder: how the default folder's name ends. rounds, steps: the defaults, in words.
    """
    add = options.group(parser, "input").add_argument
    add(
        "graph", metavar="GRAPH", help="graph.npz, .pt, .safetensors, a table of edges, or a folder"
    )
    words = "the table of nodes, for an edge list as CSV or Parquet"
    add("--nodes", metavar="FILE", help=words)
    words = "its column of classes (default: label, y or class)"
    add("--label", metavar="NAME", help=words)
    words = "keep the directions of edges (default: an edge in one direction counts as both)"
    add("--directed", action="store_true", help=words)
    add = options.group(parser, "model").add_argument
    words = "package.module:factory for your own, called as model(x, edge_index, edge_weight)"
    add(
        "--model",
        metavar="NAME",
        help=f"{words}; runs its code (default: the paper's GCN, trained here)",
    )
    words = "weights of the model, .safetensors or .pt: no training"
    add("--weights", metavar="FILE", help=words)
    for name, words in TRAINING.items():
        add(f"--{name}", type=options.whole, metavar="N", help=words)
    add = options.group(parser, "method").add_argument
    objectives = serving(OBJECTIVES, NODES)
    words = f"what to maximise: {', '.join(objectives)} (default: log-probability)"
    add("--objective", choices=objectives, metavar="NAME", help=words)
    options.add_rounds(parser, NODES, rounds, steps)
    options.add_hardware(parser, batch_size=False)
    options.add_output(parser, f"folder of the results (default: GRAPH-{folder})")


EXPLAIN_NODE = """\
Explain a graph network's prediction for one node by a connected subgraph of its k best edges, with
the probability of its class after each edge, and the same for random subgraphs. Writes the result,
a drawing and a page.

The paper's network is trained first (or use --model and --weights). Objective log-probability is
that of the predicted class; log-likelihood matches the probabilities of all classes, and is the
default for models that weights do not remove edges from (attention). A graph is graph.npz, tensors
as .pt or .safetensors, a table of edges beside one of nodes, a folder of both, or an OGB folder."""
EXPLAIN_NODE_EXAMPLES = """\
  greedypig explain-node graph.npz --node 42 --k 20
  greedypig explain-node edges.csv --nodes nodes.csv --node paper-17 --json"""


def explain_node(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `greedypig explain-node`."""
    _add_graph(parser, folder="nodes", rounds="one for every edge", steps="20")
    words = "the node's number from 0, or its name"
    options.group(parser, "input").add_argument("--node", required=True, metavar="NODE", help=words)
    numbers = {
        "k": (20, "edges to select (default: 20)"),
        "hops": (None, "steps from the node (default: the network's depth)"),
        "draws": (10, "random subgraphs to compare with (default: 10)"),
    }
    for name, (default, text) in numbers.items():
        add = options.group(parser, "method").add_argument
        add(f"--{name}", type=options.whole, default=default, metavar="N", help=text)


EXPLAIN_TEXT = """\
Explain which few words, sentences or documents the output of a text model rests on: the class of a
text, or the answer of a language model. Prints the text with the selected parts in order, and the
output with only these, with the rest really deleted, and without these. Writes NAME.gpig and
NAME.html.

A text is given as it is, as a file, or as - for standard input; a .json file with messages is a
chat. A plain text goes to the classifier minilm-imdb. A context with a question, a chat, or a text
with --answer, --part or --per-sentence goes to smollm2-135m-instruct, whose own answer is explained
where none is given.
Objectives are those of greedypig explain for classifiers, and log-probability for language models.
Absent features are masked in the attention, or have neutral embeddings. With --method, --rounds or
--steps all features are ranked. --compare runs several methods and writes the folder
NAME-comparison."""
EXPLAIN_TEXT_EXAMPLES = """\
  greedypig explain-text review.txt
  greedypig explain-text --context docs/ --question Who?
  greedypig explain-text chat.json --per-sentence --json"""
LANGUAGE, CLASSIFIER = serving(MODELS, TEXTS)
"""The models for questions, chats and answers, and for plain texts."""
TEXT_METHODS = serving(METHODS, TEXTS)
TEXT_RARE = frozenset(
    (
        "--class",
        "--objective",
        "--absent",
        "--methods",
        "--per-sentence",
        "--truncate",
        "--seed",
        "--device",
    )
)
"""Options that only --help-all shows, besides those of all commands."""


def explain_text(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `greedypig explain-text`."""
    add = options.group(parser, "input").add_argument
    words = "quoted texts, files, chats as .json, or - (stdin)"
    add("texts", nargs="*", metavar="TEXT", help=words)
    words = "documents to answer from: files, or folders of text files"
    add("--context", nargs="+", metavar="PATH", help=words)
    add("--question", metavar="TEXT", help="to answer from the context; or give it as TEXT")
    add("--truncate", action="store_true", help="leave out what does not fit the model")
    add = options.group(parser, "model").add_argument
    default = f"{CLASSIFIER}, or {LANGUAGE} for answers"
    words = f"a folder of transformers, or a name (default: {default})"
    add("--model", metavar="NAME", help=words)
    add("--answer", metavar="TEXT", help="an answer to explain (default: the model's own)")
    words = "explain this text in the answer, or its Nth sentence"
    add("--part", metavar="TEXT|N", help=words)
    add("--per-sentence", action="store_true", help="explain each sentence of the answer by itself")
    add("--class", dest="class_", metavar="CLASS", help="class by number or name (default: top)")
    words = "what to maximise; two-sided[:NAME] asks for necessity too (default: softmax, or "
    add("--objective", metavar="NAME", help=f"{words}log-probability of an answer)")
    absent = serving(BASELINES, TEXTS)
    words = f"how features are absent: {', '.join(absent)} (default: {absent[0]})"
    add("--absent", choices=absent, default=absent[0], metavar="NAME", help=words)
    add("--device", metavar="NAME", default="cpu", help="cpu, cuda, mps (default: cpu)")
    add = options.group(parser, "method").add_argument
    features = serving(FEATURES, TEXTS)
    words = f"{', '.join(features)} (default: chosen)"
    add("--features", choices=features, metavar="NAME", help=words)
    words = f"{', '.join(TEXT_METHODS)} (default: greedy-pig)"
    add("--method", choices=TEXT_METHODS, metavar="NAME", help=words)
    words = "select N features (default: until the output is reached)"
    add("--k", type=options.whole, metavar="N", help=words)
    add("--budget", type=options.whole, metavar="N", help="take at most N gradients")
    add("--compare", action="store_true", help="run several methods and compare them")
    usual = serving(METHODS, TEXTS, compared=True)
    words = f"methods of --compare (default: {_default(TEXT_METHODS, usual)})"
    add("--methods", type=options.names_of(TEXT_METHODS), metavar="A,B,…", help=words)
    options.add_rounds(parser, TEXTS, "6", "4", "measured")
    add("--seed", type=options.seed, metavar="N", default=0, help="seed of everything random")
    options.add_output(parser, "folder, or NAME.html of one text (default: here)", "PATH")


REPORT = """\
Write the page of saved results again. Everything on it comes from the .gpig file: no model, no
photo and no network connection are needed. With a folder, index.html links all pages."""
REPORT_EXAMPLES = """\
  greedypig report photo.gpig --open
  greedypig report results/*.gpig --out pages"""


def report(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `greedypig report`."""
    words = "a .gpig file, or a folder"
    options.group(parser, "input").add_argument("results", nargs="+", metavar="RESULT", help=words)
    add = options.group(parser, "output").add_argument
    words = "folder of the pages; for one result also a file, x.html (default: beside the result)"
    add("--out", metavar="PATH", help=words)
    add("--open", action="store_true", help="show the page in the browser")


COMMANDS = {
    "explain": Command(
        "which features of a photo a network uses, and its probability with only those",
        EXPLAIN,
        EXPLAIN_EXAMPLES,
        explain,
    ),
    "compare": Command(
        "several methods on the same photos: curves, AUC, gradients, seconds",
        COMPARE,
        COMPARE_EXAMPLES,
        compare,
    ),
    "select": Command(
        "which columns of a table a model uses, checked by retraining on them",
        SELECT,
        SELECT_EXAMPLES,
        select,
    ),
    "compress": Command(
        "keep the few edges of a graph that a network's predictions use",
        COMPRESS,
        COMPRESS_EXAMPLES,
        compress,
    ),
    "explain-node": Command(
        "the few edges that a graph network's prediction for one node uses",
        EXPLAIN_NODE,
        EXPLAIN_NODE_EXAMPLES,
        explain_node,
    ),
    "explain-text": Command(
        "the few words or sources that a text's class or an answer rests on",
        EXPLAIN_TEXT,
        EXPLAIN_TEXT_EXAMPLES,
        explain_text,
        TEXT_RARE,
    ),
    "report": Command(
        "the interactive page again, from a result's file alone",
        REPORT,
        REPORT_EXAMPLES,
        report,
    ),
}
"""The commands, in the order of their list."""
