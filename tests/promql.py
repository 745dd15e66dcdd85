"""Finds the metrics that an expression of Prometheus asks for, and tells whether servers expose them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

Exposed = Mapping[str, Mapping[str, Collection[str]]]
"""The values of each label of each metric."""

FUNCTIONS: Final = frozenset(
    (
        *(
            "absent",
            "and",
            "by",
            "count",
            "delta",
            "histogram_quantile",
            "increase",
            "max",
            "or",
            "rate",
            "sum",
        ),
        *("time", "vector"),
    )
)
OF_PROMETHEUS: Final[Exposed] = {"up": {}, "ALERTS": {"alertname": (), "alertstate": ()}}
"""Metrics that Prometheus makes itself."""

OF_A_TARGET: Final = frozenset({"job", "instance"})
"""Labels that Prometheus gives to everything."""


def metrics_in(expression: str) -> set[str]:
    """The names of the metrics."""
    plain = re.sub(r'\{[^}]*\}|\[[\w$]+\]|\bby \([^)]*\)|"[^"]*"', "", expression)
    return set(re.findall(r"[a-zA-Z_:]\w*", plain)) - FUNCTIONS


def complaints(expression: str, exposed: Exposed) -> list[str]:
    """Return what it asks for and nobody exposes. The value of a dashboard's variable may be anything."""
    known = {**exposed, **OF_PROMETHEUS}
    wrong = []
    for name, selector in re.findall(r"(\w+)\{([^}]*)\}", expression):
        for label, values in re.findall(r'(\w+)=~?"([^"]*)"', selector):
            if label in OF_A_TARGET or name in OF_PROMETHEUS:
                continue
            missing = set(values.split("|")) - set(known.get(name, {}).get(label, ()))
            wrong += [f"{name}{{{label}={value!r}}}" for value in sorted(missing)]
    names = metrics_in(expression)
    labels = OF_A_TARGET.union(*(known.get(name, {}) for name in names))
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        wrong += [f"by ({label})" for label in re.split(r", *", grouped) if label not in labels]
    return wrong + sorted(names - known.keys())
