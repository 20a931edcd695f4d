#!/usr/bin/env python3
"""List what the golden cases never exercised.

`golden_report.py [NAME...]` reads the packs of `tests/golden` and the facts of `operation_facts.py` and lists, for each type
and version, what no case holds: enum values, element types of a port, ranks of input 0, a size of 0, a negative axis, interval,
dynamic and unranked input shapes, numbers of inputs, attributes that may be absent and never were. `--write` writes the
list to `tests/golden/COVERAGE.md`, `--json` prints it as JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import xml.etree.ElementTree as ET
import zipfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

TOOLS = Path(__file__).resolve().parent
sys.path.insert(0, str(TOOLS))

from operation_facts import Facts, enum_values, facts_of

PRECISIONS = {"FP16": "f16", "BF16": "bf16", "FP32": "f32", "FP64": "f64", "BOOL": "boolean"}
"""IR precisions whose names are not the element type in capitals."""

EXTENTS = ("interval", "dynamic", "unranked")


@dataclass
class Seen:
    """What the cases of one type and version hold."""

    types: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    values: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    absent: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    counts: set[int] = field(default_factory=set)
    flags: set[str] = field(default_factory=set)

    def merge_layer(self, layer: Layer) -> None:
        """Add what one layer exercises."""
        self.counts.add(len(layer.inputs))
        for port, (precision, dims) in enumerate(layer.inputs):
            self.types[port].add(precision)
            if port == 0 and dims is not None:
                self.ranks.add(len(dims))
        for name, value in layer.attributes.items():
            self.values[name].add(value)
        self.flags |= layer.flags


@dataclass
class Layer:
    """One layer of the pack's type, with what its inputs are."""

    attributes: dict[str, str]
    inputs: list[tuple[str, list[int] | None]]
    flags: set[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="Type-opsetN or Type")
    parser.add_argument("--golden", type=Path, default=TOOLS.parent / "tests" / "golden")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="write COVERAGE.md beside the packs")
    arguments = parser.parse_args()
    lacking = {}
    for path in sorted(arguments.golden.glob("*.zip")):
        kind, version = path.stem.rsplit("-", 1)
        if arguments.names and kind not in arguments.names and path.stem not in arguments.names:
            continue
        with zipfile.ZipFile(path) as archive:
            found = missing(kind, version, seen_in_archive(archive, kind, version))
        if found is not None:
            lacking[path.stem] = found
    if arguments.json:
        print(json.dumps(lacking, indent=1))
    text = as_markdown(lacking)
    if arguments.write:
        (arguments.golden / "COVERAGE.md").write_text(text)
    elif not arguments.json:
        print(text, end="")
    return 0


def seen_in_archive(archive: zipfile.ZipFile, kind: str, version: str) -> Seen:
    """What the cases of a pack exercise."""
    seen = Seen()
    for case in json.loads(archive.read("cases.json")):
        suffixes = [""] if case["inferences"] == 1 else [f"-{k}" for k in range(case["inferences"])]
        steps = [_arrays(archive.read(f"{case['name']}/inputs{s}.npz")) for s in suffixes]
        weights = f"{case['name']}/model.bin"
        blob = archive.read(weights) if weights in archive.namelist() else b""
        see_case(seen, kind, version, archive.read(f"{case['name']}/model.xml"), blob, steps)
    return seen


def see_case(seen: Seen, kind: str, version: str, xml: bytes, blob: bytes, steps: list[dict]) -> None:
    """Add what one case exercises."""
    root = ET.fromstring(xml)
    facts = facts_of(kind, version)
    for net in _nets(root):
        for layer in _layers(net, kind, version, blob, steps, facts):
            seen.merge_layer(layer)
            optional = facts.optional.split() if facts else []
            seen.absent |= {name for name in optional if name not in layer.attributes}


def missing(kind: str, version: str, seen: Seen) -> dict[str, list] | None:
    """What the facts ask for and no case has; None where there are no facts."""
    facts = facts_of(kind, version)
    if facts is None:
        return None
    lacking: dict[str, list] = {}
    for name, values in enum_values(facts).items():
        had = {v.lower() for v in seen.values[name]}
        lacking[f"values of {name}"] = [v for v in values if v.lower() not in had]
    for port, types in enumerate(facts.port_types()):
        if isinstance(types, tuple):
            lacking[f"types of input {port}"] = [t for t in types if t not in seen.types[port]]
    if facts.ports:
        lacking["ranks"] = [r for r in facts.legal_ranks() if r not in seen.ranks]
        lacking["numbers of inputs"] = [n for n in facts.input_counts() if n not in seen.counts]
        # A scalar has no dims to leave open.
        extents = EXTENTS if facts.legal_ranks() != [0] else ("unranked",)
        flags = [*extents, *(["zero"] if facts.zero else []), *(["negative axis"] if facts.axis is not None else [])]
        lacking["flags"] = [f for f in flags if f not in seen.flags]
    lacking["never absent"] = [a for a in facts.optional.split() if a not in seen.absent]
    return {what: items for what, items in lacking.items() if items}


def as_markdown(lacking: dict[str, dict[str, list]]) -> str:
    """The list for people."""
    items = sum(len(v) for found in lacking.values() for v in found.values())
    whole = [name for name, found in lacking.items() if not found]
    lines = [
        "# What the golden cases never exercised",
        "",
        "Made by `tools/golden_report.py --write`; what is asked for is in `tools/operation_facts.py`.",
        f"{len(lacking)} types and versions have facts; {len(whole)} of them lack nothing; {items} items are lacking.",
        "",
        "| operation | lacking |",
        "|---|---|",
    ]
    for name, found in lacking.items():
        if found:
            told = "; ".join(f"{what}: {' '.join(map(str, values))}" for what, values in found.items())
            lines.append(f"| {name} | {told} |")
    return "\n".join(lines) + "\n"


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _nets(root: ET.Element):
    """The model and its bodies."""
    yield root
    for element in root.iter():
        if element.tag in ("body", "then_body", "else_body"):
            yield element


def _layers(net: ET.Element, kind: str, version: str, blob: bytes, steps: list[dict], facts: Facts | None):
    layers = {e.get("id"): e for e in net.find("layers")}
    edges = net.find("edges")
    sources = {(e.get("to-layer"), e.get("to-port")): e.get("from-layer") for e in (edges if edges is not None else [])}
    for identity, layer in layers.items():
        if (layer.get("type"), layer.get("version")) != (kind, version):
            continue
        ports = layer.findall("input/port")
        producers = [layers.get(sources.get((identity, port.get("id")))) for port in ports]
        data = layer.find("data")
        yield _layer(dict(data.attrib) if data is not None else {}, ports, producers, blob, steps, facts)


def _layer(attributes, ports, producers, blob, steps, facts) -> Layer:
    inputs, flags = [], set()
    for port, producer in zip(ports, producers):
        precision = PRECISIONS.get(port.get("precision"), (port.get("precision") or "").lower())
        dims = [int(d.text) for d in port.findall("dim")]
        shape = _declared_shape(producer)
        if shape == "...":
            flags.add("unranked")
        elif shape and ".." in shape:
            flags.add("interval")
        elif shape and "?" in shape:
            flags.add("dynamic")
        values = [s[producer.get("name")] for s in steps if producer is not None and producer.get("name") in s]
        if 0 in dims or any(0 in v.shape for v in values):
            flags.add("zero")
        inputs.append((precision, None if shape == "..." else dims))
    if facts and _has_negative_axis(facts, attributes, producers, blob, steps):
        flags.add("negative axis")
    return Layer(attributes, inputs, flags)


def _declared_shape(producer: ET.Element | None) -> str | None:
    if producer is None or producer.get("type") != "Parameter":
        return None
    return producer.find("data").get("shape")


def _has_negative_axis(facts: Facts, attributes, producers, blob, steps) -> bool:
    if isinstance(facts.axis, str):
        return any("-" in attributes.get(name, "") for name in facts.axis.split())
    if facts.axis is None or facts.axis >= len(producers) or producers[facts.axis] is None:
        return False
    producer = producers[facts.axis]
    values = [s[producer.get("name")] for s in steps if producer.get("name") in s]
    if producer.get("type") == "Const":
        data = producer.find("data")
        kind = data.get("element_type")
        if kind.startswith("i"):
            start, size = int(data.get("offset")), int(data.get("size"))
            width = np.dtype(f"int{kind[1:]}")
            values = [np.frombuffer(blob[start : start + size // width.itemsize * width.itemsize], width)]
    return any(bool((v < 0).any()) for v in values if v.dtype.kind == "i")


if __name__ == "__main__":
    sys.exit(main())
