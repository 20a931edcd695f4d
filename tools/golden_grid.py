"""The grid: cases made from those of a table for what the table never exercised.

`extend` looks at what a pack's cases lack against `operation_facts.py` (as `golden_report.py` does) and varies a case of the table: an
input gets another element type, a Parameter an interval, dynamic or unranked shape, an axis is counted from the end, an attribute gets another
value or is left out, an optional input is dropped.

A case in another element type has a *twin*: the same numbers in f32, i32 or u8, which the oracles compute in
themselves. Where they do not know the type itself, the twin's outputs, converted, are what is expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from golden_report import EXTENTS, Seen, missing, see_case
from operation_facts import CLASSES, FLOATS, INTEGERS, Facts, enum_values, facts_of

DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "boolean": np.dtype(np.bool_),
    **{name: np.dtype(("uint" if name[0] == "u" else "int") + name[1:]) for name in INTEGERS},
}

ROUNDED = {
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "AdaptiveAvgPool",
    "AvgPool",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "GridSample",
    "Interpolate",
    "Log",
    "Power",
    "ReduceL2",
    "ReduceMean",
    "Sigmoid",
    "Sin",
    "Sinh",
    "Sqrt",
    "Tan",
    "Tanh",
}
"""Operations whose results for integers are rounded: a twin and a reference in other types say nothing of that."""

DISPUTED = {
    **{
        f"NonMaxSuppression-opset{version}/inputs_3": "OpenVINO suppresses boxes apart where iou_threshold is absent"
        for version in (1, 3, 4, 5, 9)
    },
    **{
        f"MulticlassNms-opset{version}/absent": "OpenVINO suppresses boxes apart where iou_threshold is absent"
        for version in (8, 9)
    },
    "CTCLoss-opset4/absent": "OpenVINO takes an absent ctc_merge_repeated for false",
    "ExperimentalDetectronPriorGridGenerator-opset6/absent": "OpenVINO takes an absent flatten for false",
}
"""Variations that are not made, with the reason."""

KNOWN_DIMS = {"NonMaxSuppression": {0: (2,)}}
"""Axes of inputs whose sizes OpenVINO must know, by type and input."""

LARGEST = 400
"""A case with more elements than this is not varied."""


@dataclass
class Call:
    """What a table said of one case of one operation."""

    name: str
    inputs: list[np.ndarray]
    attributes: dict[str, Any]
    constant: set[int]
    shapes: dict[int, Any] = field(default_factory=dict)
    outputs: Any = None
    reference: Any = None

    def is_plain(self) -> bool:
        """Whether the case can be varied: small, finite, of numbers, with all outputs."""
        size = sum(a.size for a in self.inputs)
        numbers = all(a.dtype in DTYPES.values() for a in self.inputs)
        finite = numbers and all(np.isfinite(a.astype(np.float64)).all() for a in self.inputs)
        return size <= LARGEST and finite and self.outputs is None


def extend(pack) -> None:
    """Add the cases of the grid to a pack whose table has been read."""
    facts = facts_of(pack.kind, pack.version)
    calls = [c for c in pack.calls if c.is_plain()]
    if facts is None or not calls:
        return
    for vary in (_element_types, _extents, _values, _fewer_inputs, _negative_axis, _absent):
        seen = _seen(pack)
        lacking = missing(pack.kind, pack.version, seen) or {}
        vary(pack, facts, calls, lacking)


def recast(array: np.ndarray, name: str) -> np.ndarray:
    """The numbers of an array in another type, changed where that cannot hold them."""
    target = DTYPES[name]
    if target.kind in "fV":
        return array.astype(target)
    if target == np.bool_:
        return array if array.dtype == np.bool_ else np.rint(array.astype(np.float64)) % 2 == 1
    values = array.astype(np.float64)
    if array.dtype.kind in "fV":
        largest, least = float(np.abs(values).max(initial=0)), float(values.min(initial=0))
        values = np.trunc(values) if largest <= 1 and least < 0 else np.rint(values)
        if array.size and (array > 0).all():
            values = np.maximum(values, 1)
    if target.kind == "u":
        values = np.abs(values)
    return np.minimum(values, np.iinfo(target).max).astype(target)


def _seen(pack) -> Seen:
    seen = Seen()
    for case in pack.cases:
        folder = pack.folder / case.name
        if not case.problem:
            blob = (folder / "model.bin").read_bytes()
            see_case(seen, pack.kind, pack.version, (folder / "model.xml").read_bytes(), blob, case.steps)
    return seen


def _add(pack, name: str, call: Call, **changes: Any) -> None:
    """A varied case: what `changes` do not say is the call's."""
    facts = {
        "attributes": call.attributes,
        "constant": call.constant,
        "shapes": call.shapes,
        "reference": call.reference if callable(call.reference) else None,
    }
    if f"{pack.kind}-{pack.version}/{name}" in DISPUTED:
        return
    facts.update(changes)
    inputs = facts.pop("inputs", call.inputs)
    pack.case(f"grid_{name}", inputs, facts.pop("attributes"), is_varied=True, **facts)


def _groups(facts: Facts, count: int) -> dict[int, list[int]]:
    """The inputs that share an element type, by the first of them."""
    groups: dict[int, list[int]] = {}
    types = facts.port_types()
    for port in range(count):
        kind = types[port] if port < len(types) else types[-1]
        groups.setdefault(port if isinstance(kind, tuple) else kind, []).append(port)
    return groups


def _element_types(pack, facts: Facts, calls: list[Call], lacking: dict[str, list]) -> None:
    wanted = {p: list(lacking.get(f"types of input {p}", [])) for p in range(len(facts.port_types()))}
    rounds = max((len(v) for v in wanted.values()), default=0)
    for index in range(rounds):
        chosen = {p: names[index] for p, names in wanted.items() if index < len(names)}
        call = _base(facts, calls, chosen)
        if call is not None:
            _retyped(pack, facts, call, chosen)


def _base(facts: Facts, calls: list[Call], chosen: dict[int, str]) -> Call | None:
    """The call that is nearest in kind of numbers, with the inputs in question, and smallest."""

    def distance(call: Call) -> tuple:
        kinds = sum(_strangeness(call.inputs[port], name) for port, name in chosen.items())
        size = sum(a.size for a in call.inputs)
        return (kinds, bool(call.shapes), size < 4, call.inputs[0].ndim not in (2, 3, 4), size)

    able = [c for c in calls if all(p < len(c.inputs) for p in chosen) and all(a.size for a in c.inputs)]
    return min(able, key=distance, default=None)


def _strangeness(array: np.ndarray, name: str) -> int:
    """How far the numbers of an array are from what another type holds."""
    dtype, target = array.dtype, DTYPES[name]
    if name == "boolean" or dtype == np.bool_:
        return 2 * (target != dtype)
    return 2 * ((target.kind in "fV") != (dtype.kind in "fV")) + (
        target.kind == "u" and dtype.kind == "i" and bool((array < 0).any())
    )


def _retyped(pack, facts: Facts, call: Call, chosen: dict[int, str]) -> None:
    inputs, twin = list(call.inputs), list(call.inputs)
    groups = _groups(facts, len(inputs))
    for port, name in chosen.items():
        kinds = facts.port_types()[port]
        for member in groups.get(port, []):
            inputs[member] = recast(call.inputs[member], name)
            twin[member] = inputs[member].astype(_twin_type(kinds, name, call.inputs[member].dtype))
    if pack.kind in ("Cos", "Sin", "Tan") and chosen.get(0, "").startswith("u"):
        # Larger angles have negative results, which no unsigned type holds.
        inputs[0], twin[0] = np.minimum(inputs[0], 1), np.minimum(twin[0], 1)
    is_rounded = pack.kind in ROUNDED and any(n in INTEGERS for p, n in chosen.items() if p == 0)
    name = "_".join(["type", *(f"{port}{kind}" for port, kind in chosen.items())])
    changes: dict[str, Any] = {"inputs": inputs, "twin": twin}
    if is_rounded:
        changes.update(reference=None, oracles=("evaluate",))
    if "output_type" in call.attributes and pack.kind == "RandomUniform" and 1 in chosen:
        changes.update(attributes={**call.attributes, "output_type": chosen[1]}, twin=None)
    _add(pack, name, call, **changes)


def _twin_type(kinds: tuple[str, ...], name: str, base: np.dtype) -> np.dtype:
    if name in FLOATS:
        return DTYPES["f32"]
    if name == "boolean":
        return DTYPES["u8" if "u8" in kinds else "boolean"]
    if kinds in (CLASSES["integer"], CLASSES["index"]) and base.kind in "iu":
        return base
    return DTYPES["i32"]


def _extents(pack, facts: Facts, calls: list[Call], lacking: dict[str, list]) -> None:
    able = [c for c in calls if not c.shapes and all(a.size for a in c.inputs)]
    call = min(able, key=_distance_from_ranked, default=None)
    if call is None:
        return
    constant = call.constant if len(call.constant) < len(call.inputs) else set()
    free = [i for i in range(len(call.inputs)) if i not in constant]
    known = KNOWN_DIMS.get(pack.kind, {})
    for extent in lacking.get("flags", []):
        if extent in EXTENTS:
            shapes = {i: _shape(call.inputs[i].shape, extent, known.get(i, ())) for i in free}
            _add(pack, extent, call, constant=constant, shapes=shapes, twin=call.inputs)


def _distance_from_ranked(call: Call) -> tuple:
    """A case is the better for varying shapes if some Parameter has dims to vary and few inputs are absent."""
    ranks = [a.ndim for i, a in enumerate(call.inputs) if i not in call.constant]
    return (
        max(ranks, default=0) == 0,
        -len(call.inputs),
        call.inputs[0].ndim not in (2, 3, 4),
        sum(a.size for a in call.inputs),
    )


def _shape(shape: tuple[int, ...], extent: str, known: tuple[int, ...]) -> Any:
    if extent == "unranked":
        return "..."
    wide = [-1 if extent == "dynamic" else (min(d, max(d - 1, 1)), d + 2) for d in shape]
    return [d if axis in known else wide[axis] for axis, d in enumerate(shape)]


def _values(pack, facts: Facts, calls: list[Call], lacking: dict[str, list]) -> None:
    able = [c for c in calls if all(a.size for a in c.inputs)]
    for name in enum_values(facts):
        for value in lacking.get(f"values of {name}", []):
            call = min(able, key=lambda c: (name not in c.attributes, sum(a.size for a in c.inputs)), default=None)
            if call is None:
                continue
            attribute = {"true": True, "false": False}.get(value, value)
            changes = {"reference": None, "attributes": {**call.attributes, name: attribute}}
            _add(pack, f"{name}_{value}".replace(".", "_"), call, **changes)


def _fewer_inputs(pack, facts: Facts, calls: list[Call], lacking: dict[str, list]) -> None:
    for count in lacking.get("numbers of inputs", []):
        able = [c for c in calls if len(c.inputs) > count and all(a.size for a in c.inputs)]
        call = min(able, key=lambda c: sum(a.size for a in c.inputs), default=None)
        if call is not None:
            constant = {i for i in call.constant if i < count}
            _add(pack, f"inputs_{count}", call, inputs=call.inputs[:count], constant=constant, reference=None)


def _negative_axis(pack, facts: Facts, calls: list[Call], lacking: dict[str, list]) -> None:
    if "negative axis" not in lacking.get("flags", []):
        return
    for call in sorted(_ranked(calls), key=lambda c: sum(a.size for a in c.inputs)):
        rank = call.inputs[0].ndim + (pack.kind in ("OneHot", "Unsqueeze"))
        if isinstance(facts.axis, str):
            named = {n: call.attributes[n] for n in facts.axis.split() if n in call.attributes}
            if not named:
                continue
            patch = {n: str(int(v) - rank if int(v) >= 0 else int(v)) for n, v in named.items()}
            return _add(pack, "negative_axis", call, patch=patch)
        if facts.axis < len(call.inputs) and call.inputs[facts.axis].dtype.kind == "i":
            inputs = list(call.inputs)
            inputs[facts.axis] = inputs[facts.axis] - inputs[facts.axis].dtype.type(rank)
            return _add(pack, "negative_axis", call, inputs=inputs)


def _ranked(calls: list[Call]) -> Iterator[Call]:
    return (c for c in calls if c.inputs[0].ndim > 1 and all(a.size for a in c.inputs))


def _absent(pack, facts: Facts, calls: list[Call], lacking: dict[str, list]) -> None:
    names = lacking.get("never absent", [])
    able = [c for c in calls if all(a.size for a in c.inputs)]
    call = min(able, key=lambda c: (bool(c.shapes), sum(a.size for a in c.inputs)), default=None)
    if names and call is not None:
        _add(pack, "absent", call, reference=None, strip=tuple(names))
