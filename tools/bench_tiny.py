"""Times one operation over a handful of elements: ovir and OpenVINO's CPU plugin in turns, in one process.

    python tools/bench_tiny.py [KIND ...] [--rounds 25] [--library libovir_capi.so]

Two chains of such operations, of 100 and of 300, are run on one thread. The difference of their times by the number of
operations is what one costs beside what an inference costs anyway. A line shows it in microseconds: the lower quintile of
the rounds, since whatever else the machine does can only add to it. Chains of Transposes alone would be taken out, so an
activation stands between any two, and the line is for both.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from golden_pack import make_constant, make_model, make_node, make_parameter
from oracle import SETTINGS
from ovir_capi import CompiledModel, find_library

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
LENGTHS = (100, 300)
SAMPLE_SECONDS = 0.004


def elementwise(value, step: int):
    """Add, ReLU, Multiply, Sigmoid by turns."""
    constant = make_constant(np.full([1, 16], 1.0 + step / 1000, np.float32))
    kind = ("Add", "ReLU", "Multiply", "Sigmoid")[step % 4]
    return make_node(kind, "opset1", [value, constant] if kind in ("Add", "Multiply") else [value])


def gather(value, step: int):
    """Gather of 16 elements in another order."""
    order = np.random.default_rng(step).permutation(16).astype(np.int64)
    return make_node("Gather", "opset8", [value, order, np.array(1, np.int64)], {"batch_dims": 0})


def transpose(value, step: int):
    """Transpose of 4 x 4, and an activation."""
    turned = make_node("Transpose", "opset1", [value, np.array([1, 0], np.int64)])
    return make_node("Tanh", "opset1", [turned])


def matmul(value, step: int):
    """MatMul of a row with a constant of 16 x 16."""
    weights = np.random.default_rng(step).normal(0, 0.25, [16, 16]).astype(np.float32)
    return make_node("MatMul", "opset1", [value, weights], {"transpose_a": False, "transpose_b": False})


def softmax(value, step: int):
    """SoftMax of a row."""
    return make_node("Softmax", "opset8", [value], {"axis": 1})


def concat(value, step: int):
    """Concat of both halves the other way round, and the Split before it."""
    split = make_node("Split", "opset1", [value, np.array(1, np.int64)], {"num_splits": 2})
    return make_node("Concat", "opset1", [split.output(1), split.output(0)], {"axis": 1})


def reduce(value, step: int):
    """ReduceMean, and its subtraction."""
    mean = make_node("ReduceMean", "opset1", [value, np.array([1], np.int64)], {"keep_dims": True})
    return make_node("Subtract", "opset1", [value, mean])


KINDS = {
    "elementwise": ([1, 16], elementwise),
    "Gather": ([1, 16], gather),
    "Transpose+Tanh": ([4, 4], transpose),
    "MatMul": ([1, 16], matmul),
    "SoftMax": ([1, 16], softmax),
    "Split+Concat": ([1, 16], concat),
    "ReduceMean+Subtract": ([1, 16], reduce),
}
"""For each kind: the shape of its values, and what adds its operations to a chain."""


def main() -> int:
    arguments = parse_arguments()
    library = find_library(arguments.library, TARGET)
    if library is None:
        raise SystemExit("libovir_capi is not built")
    print(f"{'operation':20} {'ovir us':>9} {'OpenVINO':>9} {'ratio':>7}")
    for kind in arguments.kinds or KINDS:
        ours, theirs = measure(kind, library, arguments.rounds)
        print(f"{kind:20} {ours:9.3f} {theirs:9.3f} {ours / theirs:7.2f}", flush=True)
    return 0


def measure(kind: str, library: Path, rounds: int) -> tuple[float, float]:
    """Microseconds of one step of a chain, in ovir and in OpenVINO."""
    import openvino

    core = openvino.Core()
    settings = {**SETTINGS, "INFERENCE_NUM_THREADS": "1", "PERFORMANCE_HINT": "LATENCY"}
    shape, add = KINDS[kind]
    data = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    runs: list[Callable[[], None]] = []
    with tempfile.TemporaryDirectory() as folder:
        for length in LENGTHS:
            path = Path(folder) / f"{length}.xml"
            openvino.serialize(chain(shape, add, length), str(path), str(path.with_suffix(".bin")))
            model = CompiledModel(library, path, threads=1)
            model.set_inputs({"x": data})
            request = core.compile_model(str(path), "CPU", settings).create_infer_request()
            request.set_tensor("x", openvino.Tensor(data))
            runs += [model.run, request.infer]
        times = in_turns(runs, rounds)
    steps = LENGTHS[1] - LENGTHS[0]
    return (times[2] - times[0]) / steps, (times[3] - times[1]) / steps


def chain(shape: list[int], add, length: int):
    """A model of `length` times the operation."""
    parameter = value = make_parameter(np.float32, shape, "x")
    for step in range(length):
        value = add(value, step)
    return make_model([value], [parameter])


def in_turns(runs: list[Callable[[], None]], rounds: int) -> list[float]:
    """The lower quintiles of the times of one run each, in microseconds."""
    counts = []
    for run in runs:
        start = time.perf_counter()
        for _ in range(20):
            run()
        counts.append(max(1, int(SAMPLE_SECONDS * 20 / (time.perf_counter() - start))))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, count, kept in zip(runs, counts, times):
            start = time.perf_counter()
            for _ in range(count):
                run()
            kept.append((time.perf_counter() - start) / count * 1e6)
    return [float(np.quantile(kept, 0.2)) for kept in times]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", choices=[*KINDS, []])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--library", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
