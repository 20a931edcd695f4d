"""Times one layer of every operation: ovir and OpenVINO's CPU plugin in turns, in one process.

    python tools/bench_operations.py [FILTER ...] [--threads 1] [--seconds 0.6] [--library libovir_capi.so]
                                     [--json out.json] [--above 1.5] [--random SEED COUNT]

A row of `bench_operation_rows.py` is a layer between Parameters, constants and Results. Its line shows the medians in
microseconds, their ratio (above 1: ovir is slower) and the largest relative difference of the outputs where it is worth a
look. Rows run in child processes, so that a crash costs its row only, and the table is sorted by ratio. A FILTER is part
of the type or of `TYPE NAME`. The types of `tests/operations.json` without a row, and rows that one side cannot run, are listed last.
With `--random`, the layers are those that `bench_random_rows.py` draws.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from bench_operation_rows import FAMILIES, Row, rows_of
from bench_random_rows import random_rows
from golden_pack import make_constant, make_model, make_node, make_parameter
from oracle import SETTINGS
from ovir_capi import CompiledModel, find_library

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))

WITHOUT_WORK = {"Assign", "Const", "Parameter", "ReadValue", "Result"}
"""Types that compute nothing."""


def main() -> int:
    arguments = parse_arguments()
    if arguments.child is not None:
        family, first = arguments.child
        measure_rows(family, int(first), arguments)
        return 0
    lines: list[dict] = []
    for family in ["random"] if arguments.random else FAMILIES:
        first = 0
        while first is not None:
            first = ask_child(family, first, lines, arguments)
    measured = sorted((line for line in lines if "ratio" in line), key=lambda line: -line["ratio"])
    print(f"{'row':48} {'ovir us':>10} {'OpenVINO':>10} {'ratio':>7}")
    for line in measured:
        if line["ratio"] >= arguments.above:
            print(shown(line))
    if measured:
        mean = np.exp(np.mean([np.log(line["ratio"]) for line in measured]))
        print(f"\ngeometric mean of {len(measured)} rows: {mean:.3f}")
    report_rest(lines, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(lines, indent=1))
    return 0


def shown(line: dict) -> str:
    if "error" in line:
        return f"{line['row']:48} {line['error']}"
    difference = f"   differs by {line['difference']:.1e}" if line["difference"] > 1e-4 else ""
    return f"{line['row']:48} {line['ovir']:10.0f} {line['openvino']:10.0f} {line['ratio']:7.2f}{difference}"


def report_rest(lines: list[dict], arguments: argparse.Namespace) -> None:
    """Say which rows failed, and which operations have none."""
    failures = [f"{line['row']}: {line['error']}" for line in lines if "error" in line]
    if failures:
        print("\nnot measured:", *failures, sep="\n  ")
    if not arguments.filters and not arguments.random:
        listed = {entry["type"] for entry in json.loads((ROOT / "tests/operations.json").read_text())}
        missing = sorted(listed - {line["row"].split("-")[0] for line in lines} - WITHOUT_WORK)
        print("\nwithout a row:", ", ".join(missing))


def ask_child(family: str, first: int, lines: list[dict], arguments: argparse.Namespace) -> int | None:
    """Add the lines of a family from its row `first` on; the row to go on with if the child process ended early."""
    command = [sys.executable, __file__, *sys.argv[1:], "--child", family, str(first)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    begun: dict = {}
    for text in child.stdout:
        if not text.startswith("{"):
            continue
        line = json.loads(text)
        if line.keys() == {"row", "index"}:
            begun = line
            continue
        begun = {}
        lines.append(line)
        if arguments.progress:
            print(shown(line), file=sys.stderr, flush=True)
    if child.wait() == 0 or not begun:
        return None
    lines.append({"row": begun["row"], "error": f"the process ended with {child.returncode}"})
    return begun["index"] + 1


def measure_rows(family: str, first: int, arguments: argparse.Namespace) -> None:
    """Print a line for each row of a family, and one before each, so that a crash has a name."""
    rows = random_rows(*arguments.random) if arguments.random else rows_of(family)
    for index, row in enumerate(rows):
        label = f"{row.kind}-{row.version[5:]} {row.name}"
        is_wanted = not arguments.filters or any(text in f"{row.kind} {label}" for text in arguments.filters)
        if index < first or not is_wanted:
            continue
        print(json.dumps({"row": label, "index": index}), flush=True)
        try:
            result = measure(row, arguments)
        except Exception as error:  # noqa: BLE001 - the table names the row
            result = {"error": str(error).strip().splitlines()[-1][:200] if str(error).strip() else repr(error)}
        print(json.dumps({"row": label, **result}), flush=True)


def measure(row: Row, arguments: argparse.Namespace) -> dict:
    """The medians of alternating inferences, in microseconds, and how the outputs differ."""
    import openvino

    library = find_library(arguments.library, TARGET)
    if library is None:
        raise SystemExit("libovir_capi is not built")
    inputs = {f"x{i}": array for i, array in enumerate(row.inputs) if i not in row.constant}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.xml"
        openvino.serialize(build(row), str(path), str(path.with_suffix(".bin")))
        settings = {**SETTINGS, "INFERENCE_NUM_THREADS": str(arguments.threads)}
        request = openvino.Core().compile_model(str(path), "CPU", settings).create_infer_request()
        for name, array in inputs.items():
            request.set_tensor(name, openvino.Tensor(np.ascontiguousarray(array).reshape(array.shape)))
        with CompiledModel(library, path, threads=arguments.threads) as model:
            model.set_inputs(inputs)
            ours, theirs = in_turns(model.run, request.infer, arguments.seconds)
            difference = largest_difference(model.outputs(), request)
    return {"ovir": ours, "openvino": theirs, "ratio": ours / theirs, "difference": difference}


def build(row: Row):
    """The model of a row."""
    nodes, parameters = [], []
    for index, array in enumerate(row.inputs):
        if index in row.constant:
            nodes.append(make_constant(array))
            continue
        nodes.append(make_parameter(array.dtype, list(array.shape), f"x{index}"))
        parameters.append(nodes[-1])
    node = make_node(row.kind, row.version, nodes, row.attributes)
    chosen = range(node.get_output_size()) if row.outputs is None else row.outputs
    return make_model([node.output(i) for i in chosen], parameters)


def in_turns(ours, theirs, seconds: float) -> tuple[float, float]:
    """The medians of both, in microseconds; of one inference each where five take far longer than the time there is."""
    times: tuple[list[float], list[float]] = ([], [])

    def once() -> None:
        for run, kept in zip((ours, theirs), times):
            start = time.perf_counter()
            run()
            kept.append(time.perf_counter() - start)

    start = time.perf_counter()
    once()
    now = time.perf_counter()
    if now < start + 10 * seconds:
        times[0].clear(), times[1].clear()
    while now < start + 10 * seconds and (len(times[0]) < 5 or (now < start + seconds and len(times[0]) < 2000)):
        once()
        now = time.perf_counter()
    return float(np.median(times[0]) * 1e6), float(np.median(times[1]) * 1e6)


def largest_difference(outputs: dict[str, np.ndarray], request) -> float:
    """The largest difference relative to the largest value, or infinity where shapes differ."""
    worst = 0.0
    for index, ours in enumerate(outputs.values()):
        theirs = request.get_output_tensor(index).data
        if ours.shape != theirs.shape:
            return float("inf")
        if ours.size:
            with np.errstate(all="ignore"):
                scale = np.nanmax(np.abs(np.where(np.isfinite(theirs), theirs, 0).astype(np.float64))) or 1.0
                gap = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
                worst = max(worst, float(np.nanmax(np.nan_to_num(gap, nan=0.0, posinf=0.0)) / scale))
    return worst


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("filters", nargs="*", metavar="FILTER")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.6, help="time spent on a row")
    parser.add_argument("--library", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--above", type=float, default=0.0, help="least ratio that is shown")
    parser.add_argument("--random", nargs=2, type=int, metavar=("SEED", "COUNT"), help="layers drawn at random")
    parser.add_argument("--progress", action="store_true", help="show each row when it is measured")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
