"""Times the scatter family: ovir, OpenVINO, onnxruntime, torch and numpy in turns, in one process.

    python tools/bench_scatter.py [FILTER] [--threads 1 2] [--rounds 30] [--library libovir_capi.so]

Outputs are preallocated where a library can do that; ovir writes into the memory of its request. Everybody reads
inputs of their own. A row shows the 10th percentile of each in microseconds, ovir's ratio to the best of the others, and
the share of the limit: a copy of the data by as many threads, measured in the same rounds, and reading indices and
updates at 20 GB/s. Peers that are not installed, or that do not have the operation, show `-`. ScatterND sums of
onnxruntime race with two threads and are left out there.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from ovir_capi import CompiledModel, find_library
from scatter_fixtures import single_layer

try:
    import openvino
except ImportError:
    openvino = None
try:
    import torch
except ImportError:
    torch = None
try:
    import onnxruntime
except ImportError:
    onnxruntime = None

RANDOM = np.random.default_rng(1)
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).resolve().parent.parent / "target"))


@dataclass
class Row:
    """One row of the table: a layer and the functions of the peers."""

    name: str
    kind: str
    attributes: dict[str, Any]
    inputs: list[np.ndarray]
    axis: int = 0
    state: bool = False

    def layer(self) -> tuple[list[np.ndarray], tuple[int, ...]]:
        """The inputs of the layer and the ports of those that are constant."""
        axis = np.array([self.axis], np.int64)
        if self.kind == "SliceScatter":
            data, places, updates = self.inputs
            ends = places[:1], places[-1:] + 1
            return [data, updates, *ends, np.array([1], np.int64), axis], (2, 3, 4, 5)
        if self.kind == "ScatterNDUpdate":
            return self.inputs, ()
        return [*self.inputs, axis], (3,)

    def given(self) -> list[np.ndarray]:
        """The inputs that are no constants."""
        inputs, constant = self.layer()
        return [array for port, array in enumerate(inputs) if port not in constant]

    def own(self) -> Row:
        """The same with copies of the inputs, so that nobody finds in a cache what somebody else has just read."""
        return replace(self, inputs=[array.copy() for array in self.inputs])

    def limit_us(self, copy_us: float) -> float:
        return copy_us + sum(a.nbytes for a in self.inputs[1:3]) / 20e3


def rows() -> list[Row]:
    """The grid of the measurements that the goals were set by."""
    f32, f16, i64 = np.float32, np.float16, np.int64
    table: list[Row] = []

    def update(name, shape, axis, n, dtype=f32):
        index = np.sort(RANDOM.choice(shape[axis], n, replace=False)).astype(i64)
        updates = np.ones(shape[:axis] + (n,) + shape[axis + 1 :], dtype)
        table.append(Row(f"SU {name} n={n}", "ScatterUpdate", {}, [np.ones(shape, dtype), index, updates], axis))

    def elements(name, shape, index, axis, reduction, dtype=f32):
        attributes = {"reduction": reduction, "use_init_val": "true"}
        inputs = [np.ones(shape, dtype), np.ascontiguousarray(index, i64), np.ones(index.shape, dtype)]
        table.append(Row(f"SEU {reduction} {name}", "ScatterElementsUpdate", attributes, inputs, axis))

    def blocks(name, shape, index, reduction):
        inputs = [np.ones(shape, f32), index.astype(i64), np.ones(index.shape[:-1] + shape[index.shape[-1] :], f32)]
        table.append(Row(f"SND {reduction} {name}", "ScatterNDUpdate", {"reduction": reduction}, inputs))

    for name, shape, n in (
        ("1KB", (16, 16), 1),
        ("64KB", (256, 64), 4),
        ("1MB", (4096, 64), 16),
        ("16MB", (65536, 64), 64),
    ):
        update(f"rows {name}", shape, 0, n)
    update("rows 256MB", (1 << 20, 64), 0, 64)
    for n in (1, 4, 16, 64):
        update("KV f32", (1, 32, 2048, 128), 2, n)
    update("KV f16", (1, 32, 2048, 128), 2, 1, f16)
    update("KV i64", (1, 32, 1024, 128), 2, 16, i64)
    cache = [np.ones((1, 32, 2048, 128), f32), np.arange(500, 516, dtype=i64), np.ones((1, 32, 16, 128), f32)]
    table.append(Row("SliceScatter KV f32 n=16", "SliceScatter", {}, cache, 2))
    wide = (100_000, 64)
    draw = lambda *shape: RANDOM.integers(0, 100_000, shape)
    row = np.repeat(draw(15_625, 1), 64, axis=1)
    elements("ax0 rows random", wide, row, 0, "sum")
    elements("ax0 rows sorted", wide, np.sort(row, axis=0), 0, "sum")
    elements("ax0 elements random", wide, draw(15_625, 64), 0, "sum")
    elements("ax0 all equal", wide, np.full((15_625, 64), 7), 0, "sum")
    last = RANDOM.integers(0, 64, (100_000, 10))
    elements("ax1 random", wide, last, 1, "sum")
    elements("ax1 sorted", wide, np.sort(last, axis=1), 1, "sum")
    elements("ax1 all equal", wide, np.full((100_000, 10), 7), 1, "sum")
    elements("f16 ax0 rows random", wide, row, 0, "sum", f16)
    elements("i64 ax0 rows random", wide, row, 0, "sum", i64)
    elements("ax0 elements random", wide, draw(15_625, 64), 0, "none")
    permuted = np.argsort(RANDOM.random(wide), axis=1)[:, :10]
    elements("ax1 permuted", wide, permuted, 1, "none")
    elements("i64 ax1 permuted", wide, permuted, 1, "none", i64)
    elements("1KB", (256,), RANDOM.permutation(256)[:16], 0, "none")
    elements("1-D 1M random", (1_000_000,), RANDOM.integers(0, 1_000_000, 1_000_000), 0, "sum")
    elements("histogram 16", (16,), RANDOM.integers(0, 16, 1_000_000), 0, "sum")
    slices = RANDOM.permutation(65536)[:4096].reshape(-1, 1)
    blocks("[65536,256] slices", (65536, 256), slices, "none")
    blocks("[65536,256] slices", (65536, 256), slices, "sum")
    flat = RANDOM.permutation(1 << 24)[: 1 << 20]
    tuples = lambda places: np.stack([places // 4096, places % 4096], axis=1)
    blocks("[4096,4096] random", (4096, 4096), tuples(flat), "none")
    blocks("[4096,4096] sorted", (4096, 4096), tuples(np.sort(flat)), "none")
    blocks("[4096,4096] random", (4096, 4096), tuples(flat), "sum")
    blocks("1KB slices", (16, 16), RANDOM.permutation(16)[:4].reshape(-1, 1), "none")
    return table


Runner = Callable[[], Any]


def ir_of(row: Row, folder: Path) -> Path:
    """The layer as IR, with a constant axis."""
    inputs, constant = row.layer()
    opset = {"ScatterUpdate": "opset3", "ScatterElementsUpdate": "opset12"}.get(row.kind, "opset15")
    xml, weights = single_layer(row.kind, opset, row.attributes, inputs, constant)
    path = folder / "model.xml"
    path.write_text(xml)
    path.with_suffix(".bin").write_bytes(weights)
    return path


def of_openvino(row: Row, path: Path, threads: int) -> Runner | None:
    if openvino is None:
        return None
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(path, "CPU", options).create_infer_request()
    for index, array in enumerate(row.given()):
        request.set_input_tensor(index, openvino.Tensor(array, shared_memory=True))
    return request.infer


def of_onnxruntime(row: Row, threads: int) -> Runner | None:
    names = {"none": None, "sum": "add"}
    reduction = names[row.attributes.get("reduction", "none")]
    is_racing = row.kind == "ScatterNDUpdate" and reduction and threads > 1
    if onnxruntime is None or is_racing or row.kind == "SliceScatter" or row.inputs[0].dtype == np.float16:
        return None
    from onnx import TensorProto, helper

    kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
    data, indices, updates = row.inputs
    operator, attributes = "ScatterND", {}
    if row.kind != "ScatterNDUpdate":
        operator, attributes = "ScatterElements", {"axis": row.axis}
    if row.kind == "ScatterUpdate":
        shape = tuple(len(indices) if i == row.axis else 1 for i in range(data.ndim))
        indices = np.ascontiguousarray(np.broadcast_to(indices.reshape(shape), updates.shape))
    if reduction:
        attributes["reduction"] = reduction
    arrays = {"data": data, "indices": indices, "updates": updates}
    infos = [helper.make_tensor_value_info(n, kinds[a.dtype.name], list(a.shape)) for n, a in arrays.items()]
    out = helper.make_tensor_value_info("out", kinds[data.dtype.name], list(data.shape))
    node = helper.make_node(operator, list(arrays), ["out"], **attributes)
    graph = helper.make_graph([node], "g", infos, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in arrays.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    binding.bind_ortvalue_output("out", onnxruntime.OrtValue.ortvalue_from_numpy(np.empty_like(data)))
    return lambda: session.run_with_iobinding(binding)


def of_torch(row: Row) -> Runner | None:
    if torch is None:
        return None
    data, indices, updates = map(torch.from_numpy, row.inputs)
    out = torch.empty_like(data)
    is_sum = row.attributes.get("reduction") == "sum"
    if row.kind == "SliceScatter":
        view = out[:, :, int(indices[0]) : int(indices[-1]) + 1]
        return lambda: (out.copy_(data), view.copy_(updates))
    if row.kind == "ScatterUpdate":
        return lambda: out.copy_(data).index_copy_(row.axis, indices, updates)
    if row.kind == "ScatterNDUpdate":
        places = tuple(indices.T.contiguous())
        return lambda: out.copy_(data).index_put_(places, updates, accumulate=is_sum)
    if row.axis == 0 and indices.dim() == 2 and bool((indices == indices[:, :1]).all()):
        rows_ = indices[:, 0].contiguous()
        return lambda: out.copy_(data).index_add_(0, rows_, updates)
    if is_sum:
        return lambda: out.copy_(data).scatter_add_(row.axis, indices, updates)
    return lambda: out.copy_(data).scatter_(row.axis, indices, updates)


def of_numpy(row: Row) -> Runner | None:
    data, indices, updates = row.inputs
    out = np.empty_like(data)
    is_sum = row.attributes.get("reduction") == "sum"
    if row.kind == "SliceScatter":
        place = (slice(None),) * row.axis + (slice(int(indices[0]), int(indices[-1]) + 1),)
    elif row.kind == "ScatterUpdate":
        place = (slice(None),) * row.axis + (indices,)
    elif row.kind == "ScatterNDUpdate":
        place = tuple(indices.T)
    else:
        grid = np.ogrid[tuple(map(slice, indices.shape))]
        place = tuple(indices if i == row.axis else g for i, g in enumerate(grid))

    def run():
        np.copyto(out, data)
        if is_sum:
            np.add.at(out, place, updates)
        else:
            out[place] = updates

    return run


def of_copy(row: Row, threads: int, pool: ThreadPoolExecutor) -> Runner:
    """A copy of the data by so many threads (numpy releases the interpreter's lock while it copies)."""
    data = row.inputs[0].reshape(-1)
    out = np.empty_like(data)
    if threads == 1 or data.nbytes < 1 << 20:
        return lambda: np.copyto(out, data)
    parts = list(zip(np.array_split(out, threads), np.array_split(data, threads)))
    return lambda: list(pool.map(lambda part: np.copyto(*part), parts))


def measure(runners: dict[str, Runner], rounds: int, seconds: float) -> dict[str, float]:
    """The 10th percentile of each runner in microseconds, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in runners}
    began = time.perf_counter()
    while len(times["copy"]) < 5 or (len(times["copy"]) < rounds and time.perf_counter() - began < seconds):
        for name, run in runners.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.percentile(values, 10)) * 1e6 for name, values in times.items()}


def show(row: Row, library: Path, threads: int, options: argparse.Namespace, pool: ThreadPoolExecutor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = ir_of(row, Path(folder))
        with CompiledModel(library, path, threads=threads) as model:
            model.set_inputs({f"x{i}": array for i, array in enumerate(row.given())})
            # Some peers read the arrays where they are, so that these have to live as long.
            owned = [row.own() for _ in range(5)]
            runners = {
                "ovir": model.run,
                "openvino": of_openvino(owned[0], path, threads),
                "ort": of_onnxruntime(owned[1], threads),
                "torch": of_torch(owned[2]),
                "numpy": of_numpy(owned[3]),
                "copy": of_copy(owned[4], threads, pool),
            }
            found = measure({k: v for k, v in runners.items() if v}, options.rounds, options.seconds)
    peers = {k: v for k, v in found.items() if k not in ("ovir", "copy")}
    best = min(peers, key=peers.get)
    cells = [f"{found[k]:9.1f}" if k in found else f"{'-':>9}" for k in runners]
    share = 100 * row.limit_us(found["copy"]) / found["ovir"]
    ratio = found["ovir"] / peers[best]
    print(f"{row.name:<34}{threads}T " + " ".join(cells) + f" {ratio:6.2f} {best:<9}{share:4.0f}%", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("filter", nargs="?", default="")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each row and number of threads")
    parser.add_argument("--library", type=Path)
    options = parser.parse_args()
    library = find_library(options.library, TARGET)
    if library is None:
        parser.error("libovir_capi is not built: cargo build --release -p ovir-capi")
    heads = ("ovir", "openvino", "ort", "torch", "numpy", "copy")
    print(f"{'us, 10th percentile':<37}" + " ".join(f"{h:>9}" for h in heads) + "  ratio best     limit")
    for threads in options.threads:
        if torch is not None:
            torch.set_num_threads(threads)
        with ThreadPoolExecutor(threads) as pool:
            for row in rows():
                if options.filter in row.name:
                    show(row, library, threads, options, pool)


if __name__ == "__main__":
    main()
