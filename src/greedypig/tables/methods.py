"""What method=None takes for the columns of a table: one column a round, 5 midpoints.

There are few features, and copies must not be taken together.
"""

from __future__ import annotations

from ..core.methods import GreedyPIG

FOR_COLUMNS = GreedyPIG(per_round=1, steps=5, schedule="equal")
