#!/usr/bin/env python3
"""Ask OpenVINO what an IR computes.

OpenVINO is ovir's oracle, and a fallible one: it crashes on some valid files,
some of its kernels give other results on each run, and its CPU plugin computes
some element types in narrower ones. So every question is asked

* in a child process with a time limit, so that a crash costs one case;
* twice, in two processes that take the questions in opposite order, so that
  neither chance nor memory damaged by an earlier question passes for truth;
* of two parts of OpenVINO: the CPU plugin ("cpu") and the plain reference
  implementation `Model.evaluate` ("evaluate").

`ask` returns one `Answer` a question and leaves the verdict to the caller;
`settle` applies the usual order of truth. The CPU plugin always runs with
`SETTINGS`: full f32 precision, no dynamic quantisation.

Command line: `oracle.py MODEL.xml --inputs in.npz [--inputs next.npz]
[--outputs out.npz] [--oracle cpu|evaluate|both]`.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

SETTINGS = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
}
"""Properties of every compilation for the CPU plugin."""

NATIVE_TYPES = ("float32", "int32", "uint8", "int8", "bool")
"""Element types that the CPU plugin computes in themselves."""

SMALL = 2**20
"""The plugin narrows i64 to i32; values as small as indices survive that."""

ORACLES = ("cpu", "evaluate")

Outputs = list[dict[str, np.ndarray]]
"""The outputs of consecutive inferences, by name."""


@dataclass
class Question:
    """An IR and the inputs of one or more consecutive inferences."""

    model: Path
    inputs: list[dict[str, np.ndarray]]
    oracles: tuple[str, ...] = ORACLES


@dataclass
class Answer:
    """What the oracles said.

    `outputs` holds each oracle's first answer; an oracle that failed is in
    `failures` with its reason. `unstable` names the oracles whose two runs
    differ by a bit.
    """

    outputs: dict[str, Outputs] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    unstable: set[str] = field(default_factory=set)


@dataclass
class Verdict:
    """The outputs to believe, who vouches for them, and what spoke against."""

    outputs: Outputs | None
    oracle: str
    has_nan: bool
    deterministic: bool
    objection: str = ""


def ask(questions: list[Question], time_limit: float = 60.0) -> list[Answer]:
    """Put every question to its oracles, twice, and collect the answers.

    `time_limit` is in seconds, for one question to one oracle.
    """
    answers = [Answer() for _ in questions]
    for oracle in ORACLES:
        chosen = [i for i, q in enumerate(questions) if oracle in q.oracles]
        first = _run_all(questions, chosen, oracle, time_limit)
        second = _run_all(questions, chosen[::-1], oracle, time_limit)
        for index in chosen:
            _merge(answers[index], oracle, first[index], second[index])
    return answers


def settle(answer: Answer, tolerance: dict[str, float] | None = None) -> Verdict:
    """Apply the order of truth to an answer for which the specification gives
    no values: both oracles agreeing; else the only one that answered, the CPU
    plugin only in types that it computes natively.

    Where both answered and differ, there is no verdict but an objection.
    """
    stable = {o: v for o, v in answer.outputs.items() if o not in answer.unstable}
    if len(stable) == 2:
        difference = compare(stable["cpu"], stable["evaluate"], **(tolerance or {}))
        if difference:
            return _no_verdict(answer, f"cpu and evaluate differ: {difference}")
        return _verdict(answer, stable["evaluate"], "cpu+evaluate")
    if "evaluate" in stable:
        return _verdict(answer, stable["evaluate"], "evaluate")
    if "cpu" not in stable:
        return _no_verdict(answer, json.dumps(answer.failures))
    if not all(_native(array) for step in stable["cpu"] for array in step.values()):
        return _no_verdict(answer, "the CPU plugin computes this element type in another")
    return _verdict(answer, stable["cpu"], "cpu")


def compare(left: Outputs, right: Outputs, rtol: float = 1e-4, atol: float = 1e-5) -> str:
    """Describe the first difference of two lists of outputs; empty if none.

    Elements that are NaN on both sides are equal; integers and booleans must be
    equal; infinities must be the same.
    """
    if len(left) != len(right):
        return f"{len(left)} inferences against {len(right)}"
    for step, (a, b) in enumerate(zip(left, right)):
        if a.keys() != b.keys():
            return f"outputs {sorted(a)} against {sorted(b)}"
        for name in a:
            reason = _difference(a[name], b[name], rtol, atol)
            if reason:
                return f"inference {step}, output {name}: {reason}"
    return ""


def save_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays as npz (its keys may be any text, unlike `numpy.savez`)."""
    import io
    import zipfile

    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, value in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(value), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, buffer.getvalue())


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of an npz."""
    with np.load(path, allow_pickle=False) as archive:
        return {name: _as_bf16(archive[name]) for name in archive.files}


def _as_bf16(array: np.ndarray) -> np.ndarray:
    """NumPy has no bf16 and reads its elements as two bytes each."""
    if array.dtype != np.dtype("V2"):
        return array
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16)


def port_name(port, producer_outputs: int | None = None) -> str:
    """The name by which tools address an input or output: the lexicographically
    first tensor name; where there is none, the producer's friendly name, with
    `.port` if the producer has several outputs."""
    names = sorted(port.get_names())
    if names:
        return names[0]
    node = port.get_node()
    source = port
    if node.get_type_name() == "Result":
        source = node.input_value(0)
        node = source.get_node()
    friendly = node.get_friendly_name()
    count = producer_outputs or node.get_output_size()
    return friendly if count == 1 else f"{friendly}.{source.get_index()}"


def main() -> int:
    arguments = _parse_arguments()
    if arguments.worker:
        return _worker(arguments.worker)
    oracles = ORACLES if arguments.oracle == "both" else (arguments.oracle,)
    inputs = [load_npz(path) for path in arguments.inputs]
    (answer,) = ask([Question(arguments.model, inputs, oracles)], arguments.time_limit)
    verdict = settle(answer)
    for oracle, reason in answer.failures.items():
        print(f"{oracle}: {reason}", file=sys.stderr)
    for oracle in sorted(answer.unstable):
        print(f"{oracle}: two runs differ", file=sys.stderr)
    if verdict.outputs is None:
        print(f"no verdict: {verdict.objection}", file=sys.stderr)
        return 1
    print(f"oracle {verdict.oracle}, NaN {verdict.has_nan}, stable {verdict.deterministic}")
    for step, outputs in enumerate(verdict.outputs):
        for name, value in outputs.items():
            print(f"{step} {name} {value.dtype} {list(value.shape)}")
        if arguments.outputs:
            save_npz(_numbered(arguments.outputs, step, len(verdict.outputs)), outputs)
    return 0


def _numbered(path: Path, step: int, count: int) -> Path:
    return path if count == 1 else path.with_name(f"{path.stem}-{step}{path.suffix}")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--inputs", type=Path, action="append", default=[])
    parser.add_argument("--outputs", type=Path)
    parser.add_argument("--oracle", choices=(*ORACLES, "both"), default="both")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds")
    parser.add_argument("--worker", choices=ORACLES, help=argparse.SUPPRESS)
    return parser.parse_args()


def _native(array: np.ndarray) -> bool:
    if array.dtype == np.int64:
        return bool((np.abs(array) < SMALL).all())
    return str(array.dtype) in NATIVE_TYPES


def _verdict(answer: Answer, outputs: Outputs, oracle: str) -> Verdict:
    return Verdict(outputs, oracle, has_nan(outputs), not answer.unstable)


def _no_verdict(answer: Answer, objection: str) -> Verdict:
    return Verdict(None, "none", False, not answer.unstable, objection)


def has_nan(outputs: Outputs) -> bool:
    """Whether any floating-point output holds a NaN."""
    arrays = (a for step in outputs for a in step.values())
    return any(a.dtype.kind == "f" and bool(np.isnan(a).any()) for a in arrays)


def _difference(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> str:
    if a.dtype != b.dtype:
        return f"element type {a.dtype} against {b.dtype}"
    if a.shape != b.shape:
        return f"shape {list(a.shape)} against {list(b.shape)}"
    if a.dtype.kind not in "fV":
        unequal = a != b
    else:
        unequal = ~np.isclose(a.astype(np.float64), b.astype(np.float64), rtol, atol, equal_nan=True)
    if not unequal.any():
        return ""
    position = tuple(int(i) for i in np.argwhere(unequal)[0])
    return f"{int(unequal.sum())} of {a.size} elements, at {list(position)} {a[position]} against {b[position]}"


def _merge(answer: Answer, oracle: str, first, second) -> None:
    """Combine two runs of one oracle: a failure of either is a failure."""
    for result in (first, second):
        if isinstance(result, str):
            answer.failures[oracle] = result
            return
    answer.outputs[oracle] = first
    if compare(first, second, rtol=0.0, atol=0.0):
        answer.unstable.add(oracle)


def _run_all(questions: list[Question], order: list[int], oracle: str, limit: float) -> dict:
    """Run questions in workers; a dead worker is replaced for the rest."""
    results: dict[int, Outputs | str] = {}
    worker = None
    with tempfile.TemporaryDirectory() as folder:
        for index in order:
            worker = worker or _Worker(oracle)
            result = worker.run(questions[index], Path(folder), limit)
            results[index] = result
            if not worker.alive():
                worker = None
        if worker:
            worker.close()
    return results


class _Worker:
    """A child process that answers one question after the other."""

    def __init__(self, oracle: str):
        command = [sys.executable, os.path.abspath(__file__), "--worker", oracle]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()

    def run(self, question: Question, folder: Path, limit: float) -> Outputs | str:
        paths = []
        for step, arrays in enumerate(question.inputs):
            paths.append(str(folder / f"in-{step}.npz"))
            save_npz(Path(paths[-1]), arrays)
        job = {"model": str(question.model), "inputs": paths, "folder": str(folder)}
        try:
            self.process.stdin.write((json.dumps(job) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            return self._post_mortem()
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        if not ready:
            self.process.kill()
            self.process.wait()
            return f"no answer within {limit:g} s"
        line = self.process.stdout.readline()
        if not line:
            return self._post_mortem()
        reply = json.loads(line)
        if "error" in reply:
            return reply["error"]
        return [load_npz(Path(path)) for path in reply["outputs"]]

    def _post_mortem(self) -> str:
        self.process.wait()
        return f"died with exit code {self.process.returncode}"


def _worker(oracle: str) -> int:
    """The child: one JSON job a line on stdin, one JSON reply a line."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run = _infer_on_cpu if oracle == "cpu" else _evaluate
    for line in sys.stdin:
        job = json.loads(line)
        try:
            inputs = [load_npz(Path(path)) for path in job["inputs"]]
            paths = []
            for step, outputs in enumerate(run(Path(job["model"]), inputs)):
                paths.append(os.path.join(job["folder"], f"out-{step}.npz"))
                save_npz(Path(paths[-1]), outputs)
            reply = {"outputs": paths}
        except Exception as error:  # noqa: BLE001 - whatever OpenVINO throws is the answer
            reply = {"error": str(error)[:2000] or type(error).__name__}
        channel.write(json.dumps(reply) + "\n")
        channel.flush()
    return 0


def _infer_on_cpu(model_path: Path, steps: list[dict[str, np.ndarray]]) -> Outputs:
    import openvino

    core = openvino.Core()
    model = core.read_model(str(model_path))
    names = [port_name(output) for output in model.outputs]
    inputs = [port_name(port) for port in model.inputs]
    if any(port.partial_shape.rank.is_dynamic for port in model.inputs):
        # The plugin refuses Parameters of unknown rank.
        model.reshape({i: openvino.PartialShape(steps[0][n].shape) for i, n in enumerate(inputs)})
    request = core.compile_model(model, "CPU", SETTINGS).create_infer_request()
    outputs = []
    for arrays in steps:
        tensors = {inputs.index(k): _tensor(v, model.inputs[inputs.index(k)]) for k, v in arrays.items()}
        request.infer(tensors)
        values = [_array(request.get_output_tensor(i)) for i in range(len(names))]
        outputs.append(dict(zip(names, values)))
    return outputs


def _evaluate(model_path: Path, steps: list[dict[str, np.ndarray]]) -> Outputs:
    """Model.evaluate on shapes made static, one inference at a time.

    It writes past output tensors whose shapes it does not know, so a model that
    stays dynamic with static inputs is refused.
    """
    import openvino

    outputs = []
    for arrays in steps:
        model = openvino.Core().read_model(str(model_path))
        if any(n.get_type_name() in ("ReadValue", "Assign") for n in model.get_ops()):
            raise RuntimeError("evaluate has no states")
        inputs = [port_name(port) for port in model.inputs]
        model.reshape({i: openvino.PartialShape(arrays[n].shape) for i, n in enumerate(inputs)})
        if any(output.partial_shape.is_dynamic for output in model.outputs):
            raise RuntimeError("evaluate does not know the shape of an output")
        given = [_tensor(arrays[n], port) for n, port in zip(inputs, model.inputs)]
        taken = [openvino.Tensor(o.element_type, o.shape) for o in model.outputs]
        if not model.evaluate(taken, given):
            raise RuntimeError("evaluate failed")
        names = [port_name(output) for output in model.outputs]
        outputs.append({n: _array(t) for n, t in zip(names, taken)})
    return outputs


def _array(tensor) -> np.ndarray:
    """A copy of a tensor's elements; strings as NumPy unicode."""
    import openvino

    if tensor.element_type == openvino.Type.string:
        return np.array(tensor.str_data)
    if tensor.element_type == openvino.Type.bf16:
        return _as_bf16(np.array(tensor.data).view("V2"))
    return np.array(tensor.data)


def _tensor(array: np.ndarray, port):
    """An OpenVINO tensor of the port's element type (bf16 is given as f32)."""
    import openvino

    if port.element_type == openvino.Type.bf16:
        import ml_dtypes

        array = array.astype(ml_dtypes.bfloat16)
        tensor = openvino.Tensor(openvino.Type.bf16, openvino.Shape(array.shape))
        tensor.data[...] = array.view(tensor.data.dtype)
        return tensor
    return openvino.Tensor(np.ascontiguousarray(array).reshape(array.shape))


if __name__ == "__main__":
    sys.exit(main())
