#!/usr/bin/env python3
"""Compare shape inference: the cases' IRs with the shapes of their Parameters changed at random, read by OpenVINO and by ovir.

`shape_grid.py [NAME...]` takes cases of the packs in `tests/golden`, gives their Parameters interval, dynamic, unranked or other static
shapes, and lists where the two disagree: ovir refuses what OpenVINO takes (`refused`), takes what it refuses (`taken`), infers
dims that exclude OpenVINO's (`incompatible`) or wider ones (`looser`). Narrower dims are no disagreement. OpenVINO reads in child
processes, since some shapes crash it.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
import zipfile
import zlib
from collections import defaultdict
from pathlib import Path

TOOLS = Path(__file__).resolve().parent

UNBOUNDED = 2**62
"""The upper end of a dim that has none."""

LARGE = 2**48
"""OpenVINO divides and multiplies the upper end of an unbounded dim as if it were a size."""

Shape = list[tuple[int, int]] | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="Type-opsetN or Type")
    parser.add_argument("--golden", type=Path, default=TOOLS.parent / "tests" / "golden")
    parser.add_argument("--ovir", type=Path, default=TOOLS.parent / "target" / "release" / "ovir")
    parser.add_argument("--cases", type=int, default=12, help="cases of a pack")
    parser.add_argument("--changes", type=int, default=8, help="changes of a case")
    parser.add_argument("--examples", type=int, default=3, help="examples of each disagreement that are shown")
    parser.add_argument("--keep", type=Path, help="write the IRs of the shown examples into this folder")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return _worker()
    total = 0
    for path in sorted(arguments.golden.glob("*.zip")):
        kind = path.stem.rsplit("-", 1)[0]
        if not arguments.names or kind in arguments.names or path.stem in arguments.names:
            total += check_pack(path, arguments)
    print(f"{total} disagreements")
    return 0


def check_pack(path: Path, arguments: argparse.Namespace) -> int:
    """Compare the changed cases of one pack and print what disagrees."""
    with tempfile.TemporaryDirectory() as temporary:
        files = changed_models(path, Path(temporary), arguments.cases, arguments.changes)
        theirs = ask_openvino(files)
        found: dict[str, list[tuple[Path, str]]] = defaultdict(list)
        for file in files:
            difference = _compare(theirs.get(str(file)), ask_ovir(arguments.ovir, file))
            if difference:
                found[difference[0]].append((file, difference[1]))
        for label, entries in found.items():
            print(f"{path.stem}: {label} {len(entries)} of {len(files)}", flush=True)
            for number, (file, told) in enumerate(entries[: arguments.examples]):
                print(f"    {file.parent.name} {_inputs(file)}: {told}")
                if arguments.keep:
                    _keep(file, arguments.keep / f"{path.stem}-{label}-{number}")
    return sum(len(entries) for entries in found.values())


def changed_models(path: Path, folder: Path, cases: int, changes: int) -> list[Path]:
    """IRs of a pack's cases with other shapes; the first of each case has its own."""
    chance = random.Random(zlib.crc32(path.stem.encode()))
    files = []
    with zipfile.ZipFile(path) as archive:
        names = [c["name"] for c in json.loads(archive.read("cases.json"))]
        for name in chance.sample(names, min(cases, len(names))):
            target = folder / name
            target.mkdir()
            xml = archive.read(f"{name}/model.xml")
            for number in range(changes):
                tree = ET.parse(io.BytesIO(xml))
                _change(tree, chance if number else None)
                files.append(target / f"{number}.xml")
                tree.write(files[-1], encoding="unicode")
                files[-1].with_suffix(".bin").write_bytes(archive.read(f"{name}/model.bin"))
    return files


def _change(tree: ET.ElementTree, chance: random.Random | None) -> None:
    """Give Parameters other shapes; declare no shapes elsewhere, so that both sides infer them."""
    layers = tree.getroot().find("layers")
    for layer in layers:
        parameter = layer.get("type") == "Parameter"
        if parameter and chance:
            data = layer.find("data")
            data.set("shape", _other_shape(data.get("shape"), chance))
        if layer.get("type") == "Const":
            continue
        for port in [*layer.findall("output/port"), *layer.findall("input/port")]:
            for dim in port.findall("dim"):
                port.remove(dim)
        if parameter:
            _declare(layer)


def _declare(layer: ET.Element) -> None:
    shape = layer.find("data").get("shape")
    if shape and shape != "...":
        for word in shape.split(","):
            ET.SubElement(layer.find("output/port"), "dim").text = word if word.isdigit() else "-1"


def _other_shape(shape: str, chance: random.Random) -> str:
    if shape == "..." or chance.random() < 0.12:
        return "..."
    words = [w for w in shape.split(",") if w]
    if chance.random() < 0.05:
        words = words[1:] if words and chance.random() < 0.5 else ["1", *words]
    return ",".join(_other_dim(w, chance) for w in words)


def _other_dim(word: str, chance: random.Random) -> str:
    if not word.isdigit():
        return word
    size, roll = int(word), chance.random()
    if roll < 0.45:
        return word
    if roll < 0.65:
        return "?"
    if roll < 0.9:
        low = max(0, size - chance.randrange(3))
        return f"{low}..{size + chance.randrange(4)}" if chance.random() < 0.8 else f"{low}.."
    return str(max(0, size + chance.choice([-1, 1, 1, 2])))


def ask_openvino(files: list[Path]) -> dict[str, list[Shape] | str]:
    """The inferred shapes of the outputs, or why the IR was refused, by file."""
    answers: dict[str, list[Shape] | str] = {}
    rest = [str(f) for f in files]
    while rest:
        command = [sys.executable, str(Path(__file__).resolve()), "--worker"]
        done = subprocess.run(command, input="\n".join(rest), capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        for file, answer in lines:
            answers[file] = answer if isinstance(answer, str) else [_shape(text) for text in answer]
        if len(lines) < len(rest):
            answers[rest[len(lines)]] = "crashed"
        rest = rest[len(lines) + 1 :]
    return answers


def ask_ovir(binary: Path, file: Path) -> list[Shape] | str:
    """What ovir infers or objects."""
    done = subprocess.run([binary, "info", "--format", "json", file], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        told = json.loads(done.stdout)
        if not told["errors"]:
            return [_shape(output["shape"]) for output in told["outputs"]]
    shown = subprocess.run([binary, "validate", file], capture_output=True, text=True, check=False)
    text = shown.stdout + shown.stderr
    error = re.search(r"error.*", text)
    return error.group(0) if error else text.strip()[-200:]


def _worker() -> int:
    """The child: a file a line on stdin, its outputs' shapes or the refusal as JSON on stdout."""
    import openvino

    core = openvino.Core()
    for line in sys.stdin:
        file = line.strip()
        try:
            model = core.read_model(file)
            answer = [str(output.partial_shape) for output in model.outputs]
        except Exception as error:  # noqa: BLE001 - the refusal is the answer
            answer = " ".join(str(error).split())[-300:]
        print(json.dumps([file, answer]), flush=True)
    return 0


def _compare(theirs: list[Shape] | str | None, ours: list[Shape] | str) -> tuple[str, str] | None:
    if theirs is None or theirs == "crashed" or "unknown operation" in str(ours):
        return None
    if isinstance(theirs, str):
        return None if isinstance(ours, str) else ("taken", f"{_told(ours)}, OpenVINO: {theirs}")
    if isinstance(ours, str):
        return "refused", f"{ours}, OpenVINO: {_told(theirs)}"
    told = f"{_told(ours)}, OpenVINO: {_told(theirs)}"
    if len(theirs) != len(ours) or any(not _meet(a, b) for a, b in zip(ours, theirs)):
        return "incompatible", told
    if any(_is_looser(a, b) for a, b in zip(ours, theirs)):
        return "looser", told
    return None


def _meet(a: Shape, b: Shape) -> bool:
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(max(p[0], q[0]) <= min(p[1], q[1]) for p, q in zip(a, b))


def _is_looser(ours: Shape, theirs: Shape) -> bool:
    if ours is None or theirs is None:
        return ours is None and theirs is not None
    return any(p[0] < q[0] or p[1] > q[1] for p, q in zip(ours, theirs))


def _shape(text: str) -> Shape:
    if "..." in text.replace("....", ""):
        return None
    dims = []
    for word in text.strip("[]{}").split(","):
        low, dots, high = word.strip().partition("..")
        if low in ("?", "-1"):
            dims.append((0, UNBOUNDED))
        elif low or dots:
            last = int(high) if high else (UNBOUNDED if dots else int(low))
            dims.append((int(low or 0), UNBOUNDED if last >= LARGE else last))
    return dims


def _told(shapes: list[Shape]) -> str:
    return " ".join("..." if s is None else "[" + ",".join(map(_dim, s)) + "]" for s in shapes)


def _dim(dim: tuple[int, int]) -> str:
    if dim[0] == dim[1]:
        return str(dim[0])
    return "?" if dim == (0, UNBOUNDED) else f"{dim[0]}..{'' if dim[1] == UNBOUNDED else dim[1]}"


def _inputs(file: Path) -> str:
    layers = ET.parse(file).getroot().find("layers")
    shapes = [e.find("data").get("shape") for e in layers if e.get("type") == "Parameter"]
    return " ".join(f"[{s}]" for s in shapes)


def _keep(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".xml", ".bin"):
        target.with_name(target.name + suffix).write_bytes(file.with_suffix(suffix).read_bytes())


if __name__ == "__main__":
    sys.exit(main())
