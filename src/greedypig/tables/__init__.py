"""Tables that need not fit in memory: read piece by piece, encoded for a network, in batches.

table = open_table("train/*.parquet")              # CSV, TSV (also .gz), Parquet, Arrow
columns = survey(table, "clicked")                 # one pass: how each column is encoded
train = Batches(table, columns, part="train")      # ((numeric, categorical), label)
network = new_network(columns.schema, seed=0)
trained = train_network(network, train, valid, seed=0)
"""

from __future__ import annotations

from ..results.table_notes import Constant, Summary
from .column_checks import ColumnWarning
from .files import CRITEO, Table, find_tables, open_table
from .job import SelectJob
from .retraining import Retrained, Training, retrain
from .row_batches import Batches
from .schema import Label, Schema
from .schema_inference import Reading, Survey, count_rows, criteo_reading, survey
from .training import Effort, constant_answer, evaluate, new_network, train_network

__all__ = [
    "CRITEO",
    "Batches",
    "ColumnWarning",
    "Constant",
    "Effort",
    "Label",
    "Reading",
    "Retrained",
    "Schema",
    "SelectJob",
    "Summary",
    "Survey",
    "Table",
    "Training",
    "constant_answer",
    "count_rows",
    "criteo_reading",
    "evaluate",
    "find_tables",
    "new_network",
    "open_table",
    "retrain",
    "survey",
    "train_network",
]
