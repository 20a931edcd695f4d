#!/usr/bin/env python3
"""Writes the table of operations: `crates/OPERATIONS.md`.

    python tools/operations_table.py [--ovir target/release/ovir] [--check]

What is implemented comes from `ovir ops`, the rest from the golden cases: how many there are, the element types of the first
input (of the first output where there is none) with which they run, whether shapes are also given as intervals, open or of
unknown rank, and whether a kernel ran each of these types or the reference evaluation. `--check` only says whether the
file is as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from pathlib import Path

import golden_report

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PAGE = ROOT / "crates" / "OPERATIONS.md"
GOLDEN = ROOT / "tests" / "golden"

ORDER = (
    "boolean u1 u2 u3 u4 u6 u8 u16 u32 u64 i4 i8 i16 i32 i64 nf4 f4e2m1 f8e4m3 f8e5m2 f8e8m0 f16 bf16 f32 f64 string"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ovir", type=Path, default=TARGET / "release" / "ovir")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    page = table(options.ovir)
    if options.check:
        return 0 if PAGE.read_text() == page else 1
    PAGE.write_text(page)
    return 0


def table(binary: Path) -> str:
    done = subprocess.run([binary, "ops", "--format", "json"], check=True, capture_output=True)
    operations = json.loads(done.stdout)["operations"]
    rows = [row(binary, operation) for operation in operations]
    count = sum(operation["implemented"] for operation in operations)
    lines = [
        "# Operations",
        "",
        "Made by `tools/operations_table.py`.",
        "",
        f"{count} of {len(operations)} types and versions are implemented. *Types* are those of the first input in the golden",
        "cases (of the first output where there is no input); in **bold** those that a kernel computes, the others run by the",
        "reference evaluation. *Shapes* tells how golden cases declare inputs beside exact shapes: as intervals, with open",
        "dimensions, or of unknown rank.",
        "",
        "| operation | opsets | types | shapes | golden cases |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def row(binary: Path, operation: dict) -> str:
    name, opsets = operation["operation"], operation["opsets"]
    kind = name.rsplit("-", 1)[0]
    first, last = span(opsets)
    cases, flags, types = 0, set(), defaultdict(set)
    for pack in GOLDEN.glob(f"{kind}-opset*.zip"):
        version = pack.stem.rsplit("-", 1)[1]
        if first <= int(version.removeprefix("opset")) <= last:
            with zipfile.ZipFile(pack) as archive:
                cases += len(json.loads(archive.read("cases.json")))
                flags |= golden_report.seen_in_archive(archive, kind, version).flags
                run_cases(binary, archive, kind, types)
    words = {"interval": "interval", "dynamic": "open", "unranked": "any rank"}
    shapes = ", ".join(word for flag, word in words.items() if flag in flags)
    known = [t for t in ORDER.split() if t in types]
    told = " ".join(f"**{t}**" if "kernel" in types[t] else t for t in known)
    mark = "" if operation["implemented"] else " (not implemented)"
    return f"| {name}{mark} | {opsets} | {told} | {shapes} | {cases or ''} |"


def span(opsets: str) -> tuple[int, int]:
    """The first and the last opset of text such as `opset4..` or `opset1..opset3`."""
    numbers = [int(number) for number in re.findall(r"\d+", opsets)]
    return numbers[0], 99 if opsets.endswith("..") else numbers[-1]


def run_cases(binary: Path, archive: zipfile.ZipFile, kind: str, types: dict[str, set[str]]) -> None:
    """Adds for each element type what computed the layers of this type: `kernel` or `reference`."""
    with tempfile.TemporaryDirectory() as folder:
        archive.extractall(folder)
        for case in json.loads(archive.read("cases.json")):
            place = Path(folder) / case["name"]
            suffix = "" if case["inferences"] == 1 else "-0"
            command = [binary, "run", place / "model.xml", "--profile", "--format", "json"]
            if list(place.glob("inputs*")):
                command += ["--inputs", place / f"inputs{suffix}.npz"]
            done = subprocess.run(command, check=False, capture_output=True, timeout=60)
            element_type = type_of(place / "model.xml", kind)
            if done.returncode or element_type is None:
                continue
            found = [entry["by"] for entry in json.loads(done.stdout)["profile"] if kind in entry["type"]]
            # A layer that is no step of its own was folded or is part of another one.
            types[element_type] |= set(found) or {"folded"}


def type_of(model: Path, kind: str) -> str | None:
    """The element type of the first port of the first layer of this type."""
    for layer in golden_report.ET.parse(model).getroot().iter("layer"):
        if layer.get("type") == kind:
            ports = [*layer.findall("input/port"), *layer.findall("output/port")]
            precision = ports[0].get("precision", "") if ports else ""
            return golden_report.PRECISIONS.get(precision, precision.lower()) or None
    return None


if __name__ == "__main__":
    sys.exit(main())
