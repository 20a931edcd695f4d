"""What the zoo knows of one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import zoo_inputs

BUNDLED = "bundled"
"""The package name of models that live in tests/models-v10."""

MADE = "made"
"""The package name of models that are made here, with seeded weights."""


@dataclass(frozen=True)
class ZooModel:
    """One model of the zoo.

    `convert(source, seed, **options)` gives the OpenVINO model; `source` is the
    file inside the unpacked package. `samples` are the other packages that the
    inputs come from. `torch` says that the conversion needs an environment with
    torch. `quantised` says that OpenVINO runs the model in integer kernels,
    whose roundings differ: `zoo.py` then asks for less.
    """

    name: str
    package: str
    source: str
    licence: str
    convert: Callable | None
    inputs: zoo_inputs.Maker
    compress: bool = False
    options: dict | None = None
    note: str = ""
    samples: tuple[str, ...] = ("scikit-image",)
    torch: bool = False
    quantised: bool = False


def made(name: str, convert: Callable, inputs: zoo_inputs.Maker, **fields) -> ZooModel:
    """A model whose structure is written here or comes from a library that torch runs."""
    fields.setdefault("note", "seeded weights")
    fields.setdefault("samples", ())
    return ZooModel(name, MADE, fields.pop("source", ""), "none: made here", convert, inputs, **fields)
