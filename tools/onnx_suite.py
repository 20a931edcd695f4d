#!/usr/bin/env python3
"""ONNX's node tests, converted to IR by OpenVINO's front end and run by ovir.

    python tools/onnx_suite.py WHEEL [FILTER] [--ovir target/release/ovir] [--save REPORT.md]

WHEEL is a wheel of onnx up to 1.20.1 (`pip download --no-deps onnx==1.20.1`): later ones leave the tests' data out.
Every test is a model with inputs and the outputs that ONNX expects. A test counts if OpenVINO's front end converts it
and OpenVINO itself (the CPU plugin or `Model.evaluate`) yields what ONNX expects; of those, the ones that ovir fails are
listed with the reason. Tests with sequences or optional values are no tests of tensors and are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import oracle

PREFIX = "onnx/backend/test/data/node/"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).resolve().parent.parent / "target"))

TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}
"""ONNX's own relative tolerance; its absolute one, 1e-7, holds for no two implementations of trigonometry."""


@dataclass
class Test:
    """A node test: its IR, inputs and expected outputs by the names that the IR gives them, and what became of it."""

    name: str
    model: Path
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    expected: dict[str, np.ndarray] = field(default_factory=dict)
    refused: str = ""
    openvino: str = ""
    ovir: str = ""


def main() -> int:
    if sys.argv[1:] == ["--convert"]:
        return convert_all()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("filter", nargs="?", default="")
    parser.add_argument("--ovir", type=Path, default=TARGET / "release" / "ovir")
    parser.add_argument("--save", type=Path, help="write the report as Markdown")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tests = collect(options.wheel, options.filter, Path(folder))
        converted = [test for test in tests if not test.refused]
        for test in converted:
            test.ovir = run_ovir(options.ovir, test, Path(folder))
        ask_openvino(converted)
        report = summarise(tests)
    print(report)
    if options.save:
        options.save.write_text(report)
    return 0


def collect(wheel: Path, wanted: str, folder: Path) -> list[Test]:
    """The tests of the wheel, converted in a child process that is replaced when it dies."""
    with zipfile.ZipFile(wheel) as archive:
        names = sorted({n.removeprefix(PREFIX).split("/")[0] for n in archive.namelist() if n.startswith(PREFIX)})
        names = [name for name in names if wanted in name]
        for member in archive.namelist():
            if member.startswith(PREFIX) and wanted in member:
                archive.extract(member, folder)
    tests, child = [], None
    for name in names:
        child = child or subprocess.Popen(
            [sys.executable, __file__, "--convert"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        source = folder / PREFIX / name
        child.stdin.write(f"{source}\n".encode())
        child.stdin.flush()
        line = child.stdout.readline()
        test = Test(name, source / "model.xml")
        tests.append(test)
        if not line:
            child.wait()
            test.refused, child = f"the front end died with exit code {child.returncode}", None
            continue
        test.refused = json.loads(line)["refused"]
        if not test.refused:
            test.inputs = oracle.load_npz(source / "inputs.npz")
            test.expected = oracle.load_npz(source / "expected.npz")
    return tests


def convert_all() -> int:
    """The child: one folder a line on stdin, one JSON reply a line."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            refused = convert(Path(line.strip()))
        except Exception as error:  # noqa: BLE001 - whatever OpenVINO throws is the answer
            refused = first_line(str(error)) or type(error).__name__
        channel.write(json.dumps({"refused": refused}) + "\n")
        channel.flush()
    return 0


def convert(folder: Path) -> str:
    """Writes model.xml, inputs.npz and expected.npz; tells why not if it cannot."""
    import onnx
    import openvino

    model = onnx.load(folder / "model.onnx")
    ports = [*model.graph.input, *model.graph.output]
    if any(port.type.WhichOneof("value") != "tensor_type" for port in ports):
        return "not of tensors"
    converted = openvino.Core().read_model(folder / "model.onnx")
    openvino.save_model(converted, folder / "model.xml", compress_to_fp16=False)
    converted = openvino.Core().read_model(folder / "model.xml")
    data = folder / "test_data_set_0"
    inputs = {}
    for index, port in enumerate(model.graph.input):
        found = [p for p in converted.inputs if port.name in p.get_names()]
        if found:
            inputs[oracle.port_name(found[0])] = tensor(data / f"input_{index}.pb")
    expected = {
        oracle.port_name(port): tensor(data / f"output_{index}.pb") for index, port in enumerate(converted.outputs)
    }
    oracle.save_npz(folder / "inputs.npz", inputs)
    oracle.save_npz(folder / "expected.npz", expected)
    return ""


def tensor(path: Path) -> np.ndarray:
    """A tensor of a test; strings as NumPy unicode, elements of less than a byte as integers."""
    import onnx

    array = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
    if array.dtype == object:
        return np.array([x.decode() if isinstance(x, bytes) else x for x in array.ravel()]).reshape(array.shape)
    if array.dtype.name in ("int4", "uint4", "int2", "uint2"):
        return array.astype(np.int8 if array.dtype.name.startswith("i") else np.uint8)
    if array.dtype.kind == "V" or array.dtype.name.startswith(("float8", "float4")):
        # NumPy cannot write these types, but bytes; ovir writes them so too.
        return array.view(f"V{array.dtype.itemsize}")
    return array


def run_ovir(binary: Path, test: Test, folder: Path) -> str:
    """Why ovir fails a test; empty if it passes."""
    inputs, outputs = test.model.parent / "inputs.npz", folder / "outputs.npz"
    outputs.unlink(missing_ok=True)
    command = [binary, "run", test.model, "--outputs", outputs]
    command += ["--inputs", inputs] if test.inputs else []
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "no answer within 60 s"
    if done.returncode:
        return first_line(done.stderr) or f"exit code {done.returncode}"
    return difference(oracle.load_npz(outputs), test.expected)


def ask_openvino(tests: list[Test]) -> None:
    """Why OpenVINO fails each test; empty where a part of it passes."""
    answers = oracle.ask([oracle.Question(test.model, [test.inputs]) for test in tests])
    for test, answer in zip(tests, answers):
        found = dict(answer.failures)
        for name, (outputs,) in answer.outputs.items():
            found[name] = difference(outputs, test.expected)
        test.openvino = "" if "" in found.values() else first_line("; ".join(map(str, found.values())))


def difference(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> str:
    """The first difference; types are compared by what they hold, because the front end changes some."""
    if found.keys() != expected.keys():
        return f"outputs {sorted(found)} instead of {sorted(expected)}"
    expected = {n: bytes_of(a) for n, a in expected.items()}
    plain = {n: bytes_of(a) for n, a in found.items()}
    plain = {n: a if a.dtype == expected[n].dtype else widened(a, expected[n]) for n, a in plain.items()}
    return oracle.compare([plain], [expected], **TOLERANCE)


def bytes_of(array: np.ndarray) -> np.ndarray:
    """Elements that NumPy has no name for, as numbers."""
    if array.dtype.itemsize == 1 and array.dtype.kind not in "biu":
        return array.view(np.uint8)
    return array


def widened(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The array in another type of the same kind of values, as far as that is the front end's choice."""
    if array.dtype.kind in "biu" and like.dtype.kind in "biu":
        return array.astype(like.dtype)
    if array.dtype.kind == "V" and array.dtype.itemsize == like.dtype.itemsize:
        return array.view(like.dtype)
    return array.astype(like.dtype) if array.dtype.kind == "f" and like.dtype.kind in "fV" else array


def first_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[0][:200].replace("|", "/") if lines else ""


def summarise(tests: list[Test]) -> str:
    converted = [test for test in tests if not test.refused]
    base = [test for test in converted if not test.openvino]
    failed = [test for test in base if test.ovir]
    better = [test for test in converted if test.openvino and not test.ovir]
    both = [test for test in converted if test.openvino and test.ovir]
    share = 100 * (len(base) - len(failed)) / max(len(base), 1)
    verdict = (
        f"{len(tests)} tests; OpenVINO's front end converts {len(converted)}; OpenVINO gets {len(base)} of these right; "
        f"ovir gets {len(base) - len(failed)} of those right ({share:.1f} %), and {len(better)} that OpenVINO gets wrong."
    )
    lines = [
        "# ONNX's node tests",
        "",
        "Made by `tools/onnx_suite.py`.",
        "",
        verdict,
        "",
        "## OpenVINO right, ovir not",
        "",
        "| test | ovir |",
        "|---|---|",
        *(f"| {test.name} | {test.ovir} |" for test in failed),
        "",
        "## Neither right",
        "",
        "| test | OpenVINO | ovir |",
        "|---|---|---|",
        *(f"| {test.name} | {test.openvino} | {test.ovir} |" for test in both),
        "",
        "## ovir right, OpenVINO not",
        "",
        "| test | OpenVINO |",
        "|---|---|",
        *(f"| {test.name} | {test.openvino} |" for test in better),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
