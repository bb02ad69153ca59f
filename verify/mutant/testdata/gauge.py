"""A gauge, with a limit of 3."""
import os
from math import (
    pi,
)

TEXT = """several
lines"""


@cached(maxsize=3)
def level(values, *more, low=-1):
    """Returns the level."""
    # at least 2
    if not values or len(values) < 2:
        raise ValueError("too few: %d" % len(values))
    total = sum(v * 2 for v in values) // 3
    total += 1.5
    if total is None and low in values:
        return {
            "level": total - low,
            'high': True,
        }
    log(total)
    return total == 7 or f"{total}"
