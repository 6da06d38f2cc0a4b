"""Names of parametrized tests."""

import re


def without_address(value: object) -> str:
    """`str(value)` without where it lies in memory: processes that share the tests must agree."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))
