"""Reads the text that a broker shows to Prometheus. Pure, and only as much as `skep top` needs."""

import re
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

Labels: TypeAlias = frozenset[tuple[str, str]]
Metrics: TypeAlias = Mapping[str, Mapping[Labels, float]]
"""Values by the name of the sample (`x_bucket`, `x_total`) and its labels."""

_SAMPLE: Final = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


def read_exposition(text: str, names: Collection[str]) -> Metrics:
    """Return the samples of these names; lines that are none of them are passed over."""
    found: dict[str, dict[Labels, float]] = {name: {} for name in names}
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample is not None and sample["name"] in found:
            found[sample["name"]][_labels(sample["labels"] or "")] = float(sample["value"])
    return found


def _labels(text: str) -> Labels:
    return frozenset((name, _unescape(value)) for name, value in _LABEL.findall(text))


def _unescape(value: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value)


def total(samples: Mapping[Labels, float], **labels: str) -> float:
    """Add up the samples that have these labels."""
    wanted = set(labels.items())
    return sum(value for of, value in samples.items() if wanted <= of)


def by_label(samples: Mapping[Labels, float], label: str) -> dict[str, float]:
    """Add up samples by the value of one label."""
    sums: dict[str, float] = {}
    for labels, value in samples.items():
        key = dict(labels).get(label, "")
        sums[key] = sums.get(key, 0.0) + value
    return sums
