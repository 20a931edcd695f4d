#!/usr/bin/env python3
"""Check each quantiser of a quantised model by itself.

    check_quantisers.py MODEL.xml --inputs in.npz [--library libovir_capi.so] [--who ovir|integers]

Two evaluations of a quantised model that round differently in the last bit put a value on the border of two codes
into different ones, and the layers that follow carry the step on: outputs differ by far more than roundings, and
nothing is wrong. This tool tells such steps from faults. It takes what ovir computes at the output of every
FakeQuantize and FakeConvert that reads data, cuts the model there, and lets OpenVINO compute each part in f32 from
ovir's own values. An element counts as a step if the value in front of the quantiser lies at the middle of the two
codes that ovir and OpenVINO chose, within a hundredth of their distance; anything else is a fault.

Results at the quantisers may keep ovir from computing a quantiser together with the layers beside it. So the model is
also cut in front of the quantisers: ovir and OpenVINO compute each part, its quantisers included, from the same values
(those on a border are moved off it), and what they have at the ends of the parts is compared.

`--who integers` asks the same of OpenVINO's integer kernels instead of ovir.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TOOLS = Path(__file__).resolve().parent
sys.path.insert(0, str(TOOLS))

import oracle
import ovir_capi

QUANTISERS = ("FakeQuantize", "FakeConvert")

BORDER = 0.01
"""How far from the middle of two codes, in their distance, a value may lie whose code is a matter of rounding."""

EXACT = 1e-6
"""How far apart, relative to the largest value, two values may be by rounding: of one code, or in front of quantisers
whose codes lie closer than that (those of 8-bit floats near 0)."""


@dataclass
class Verdict:
    """What was found behind one quantiser."""

    name: str
    elements: int
    steps: int
    farthest: float
    faults: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--inputs", type=Path, required=True)
    parser.add_argument("--library", type=Path, default=TOOLS.parent / "target" / "release" / "libovir_capi.so")
    parser.add_argument("--who", choices=("ovir", "integers"), default="ovir")
    parser.add_argument("--verbose", action="store_true", help="a line for each quantiser")
    arguments = parser.parse_args()
    inputs = oracle.load_npz(arguments.inputs)
    with tempfile.TemporaryDirectory() as temporary:
        probed = Path(temporary) / "probed.xml"
        names = write_probed(arguments.model, probed)
        seen = _run(arguments, probed, inputs)
        plain = _run(arguments, arguments.model, inputs)
        verdicts, outputs = check(arguments.model, names, inputs, seen)
        parts = compare_parts(arguments, Path(temporary) / "parts.xml", inputs)
    is_kept = all(np.array_equal(plain[name], seen[name]) for name in plain)
    report(verdicts, outputs, is_kept, arguments.verbose)
    name, worst = max(parts.items(), key=lambda item: item[1])
    print(f"parts from the same values: at most {worst:.1e} of the largest value, {name}")
    return 1 if any(v.faults for v in verdicts) or max(outputs, worst) > 1e-3 else 0


def quantisers(model) -> list:
    """The quantisers that read data, in order: those of weights read constants only."""
    varying = {node.get_friendly_name() for node in model.get_parameters()}
    found = []
    for node in model.get_ordered_ops():
        inputs = [value.get_node().get_friendly_name() for value in node.input_values()]
        if varying.isdisjoint(inputs):
            continue
        varying.add(node.get_friendly_name())
        if node.get_type_name() in QUANTISERS:
            found.append(node)
    return found


def write_probed(source: Path, target: Path) -> list[str]:
    """Write the model with a result on each quantiser, and give the names of the quantisers."""
    import openvino
    from openvino import opset13

    model = openvino.Core().read_model(str(source))
    nodes = quantisers(model)
    for index, node in enumerate(nodes):
        node.output(0).get_tensor().set_names({f"quantised_{index}"})
    model.add_results([opset13.result(node.output(0), name=f"quantised_{i}") for i, node in enumerate(nodes)])
    openvino.save_model(model, str(target), compress_to_fp16=False)
    return [node.get_friendly_name() for node in nodes]


def check(source: Path, names: list[str], inputs: dict, seen: dict) -> tuple[list[Verdict], float]:
    """Judge each quantiser, and how far the outputs are from OpenVINO's, relative to the largest value."""
    expected = _cut_outputs(source, inputs, seen, len(names))
    verdicts = []
    for index, name in enumerate(names):
        code = f"quantised_{index}"
        verdicts.append(judge(name, seen[code], expected[code], expected[f"before_{index}"]))
    ratios = [_ratio(seen[name], value) for name, value in expected.items() if not name.startswith(("quant", "before"))]
    return verdicts, max(ratios, default=0.0)


def compare_parts(arguments: argparse.Namespace, path: Path, inputs: dict) -> dict[str, float]:
    """How far the ends of the parts are from OpenVINO's, relative to the largest value, where parts begin at quantisers."""
    import openvino
    from openvino import opset13

    core = openvino.Core()
    model = core.read_model(str(arguments.model))
    fronts = {}
    for node in quantisers(model):
        fronts.setdefault(_label(node.input_value(0)), (node.input_value(0), []))[1].append(node)
    given = dict(inputs)
    for label, (source, readers) in list(fronts.items()):
        if source.get_node().get_type_name() == "Parameter":
            name = oracle.port_name(source)
            given[name] = _off_borders(given[name], readers)
            del fronts[label]
    for index, (source, _) in enumerate(fronts.values()):
        source.get_tensor().set_names({f"end_{index}"})
    model.add_results([opset13.result(source) for source, _ in fronts.values()])
    given |= _openvino(model, given, {"LP_TRANSFORMS_MODE": "NO"})
    parameters = []
    for index, (source, readers) in enumerate(fronts.values()):
        value, name = given[f"end_{index}"], f"start_{index}"
        start = opset13.parameter(openvino.PartialShape(list(value.shape)), source.get_element_type(), name=name)
        start.output(0).get_tensor().set_names({name})
        for reader in readers:
            reader.input(0).replace_source_output(start.output(0))
        parameters.append(start)
        given[name] = _off_borders(value, readers)
    model.add_parameters(parameters)
    model.validate_nodes_and_infer_types()
    openvino.save_model(model, str(path), compress_to_fp16=False)
    given = {oracle.port_name(port): given[oracle.port_name(port)] for port in model.inputs}
    expected = _openvino(path, given, {"LP_TRANSFORMS_MODE": "NO"})
    computed = _run(arguments, path, given)
    labels = {f"end_{index}": label for index, label in enumerate(fronts)}
    return {labels.get(name, name): _ratio(computed[name], value) for name, value in expected.items()}


def _off_borders(value: np.ndarray, readers: list) -> np.ndarray:
    """The values with those moved that lie on a border between two codes of a FakeQuantize."""
    for reader in readers:
        if reader.get_type_name() != "FakeQuantize":
            continue
        low, high = (_constant(reader.input_value(i)) for i in (1, 2))
        step = (high - low) / (reader.get_attributes()["levels"] - 1)
        # A range of nothing has one code, and no border.
        place = (value - low) / np.where(step == 0, 1, step)
        off = place - np.floor(place) - 0.5
        moved = value + np.where(off < 0, -2 * BORDER, 2 * BORDER) * step
        value = np.where((np.abs(off) < BORDER) & (step != 0), moved, value).astype(value.dtype)
    return value


def _constant(value) -> np.ndarray:
    """The numbers of a constant, which models in half precision widen."""
    node = value.get_node()
    while node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    return np.array(node.data, np.float64)


def _label(value) -> str:
    return f"{value.get_node().get_friendly_name()}.{value.get_index()}"


def judge(name: str, ours: np.ndarray, theirs: np.ndarray, before: np.ndarray) -> Verdict:
    """Compare the codes that two chose for the same values."""
    if ours.shape != theirs.shape:
        raise SystemExit(f"{name}: shape {ours.shape}, where OpenVINO has {theirs.shape}")
    ours, theirs, before = (a.astype(np.float64) for a in (ours, theirs, before))
    is_number = np.isfinite(ours) & np.isfinite(theirs)
    is_same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    strange = int((~is_number & ~is_same).sum())
    ours, theirs, before = (np.where(is_number, a, 0) for a in (ours, theirs, before))
    distance = np.abs(ours - theirs)
    differs = distance > EXACT * max(np.abs(theirs).max(initial=0), 1e-30)
    if not differs.any():
        return Verdict(name, ours.size, 0, 0.0, strange)
    off = np.abs(before - (ours + theirs) / 2)[differs]
    allowed = np.maximum(BORDER * distance[differs], EXACT * np.abs(before).max())
    farthest = float((off / distance[differs]).max())
    return Verdict(name, ours.size, int(differs.sum()), farthest, int((off > allowed).sum()) + strange)


def report(verdicts: list[Verdict], outputs: float, is_kept: bool, verbose: bool) -> None:
    for verdict in verdicts if verbose else [v for v in verdicts if v.faults]:
        print(f"  {verdict.name}: {verdict}")
    elements, steps = sum(v.elements for v in verdicts), sum(v.steps for v in verdicts)
    faults, farthest = sum(v.faults for v in verdicts), max((v.farthest for v in verdicts), default=0.0)
    print(
        f"{len(verdicts)} quantisers, {elements} values, {steps} a step apart, at most {farthest:.1e} of a step from"
        f" the border, {faults} faults; behind the last quantisers {outputs:.1e} of the largest value;"
        f" {'same bits' if is_kept else 'other values'} without the probes"
    )


def _run(arguments: argparse.Namespace, path: Path, inputs: dict) -> dict[str, np.ndarray]:
    if arguments.who == "integers":
        return _openvino(path, inputs, {})
    with ovir_capi.CompiledModel(arguments.library, path, threads=1) as compiled:
        return compiled.infer(inputs)


def _openvino(path_or_model, inputs: dict, settings: dict) -> dict[str, np.ndarray]:
    import openvino

    core = openvino.Core()
    model = core.read_model(str(path_or_model)) if isinstance(path_or_model, Path) else path_or_model
    request = core.compile_model(model, "CPU", {**oracle.SETTINGS, **settings}).create_infer_request()
    for index, port in enumerate(model.inputs):
        request.set_input_tensor(index, openvino.Tensor(np.ascontiguousarray(inputs[oracle.port_name(port)])))
    request.infer()
    names = [oracle.port_name(port) for port in model.outputs]
    return {name: np.array(request.get_output_tensor(i).data) for i, name in enumerate(names)}


def _cut_outputs(source: Path, inputs: dict, seen: dict, count: int) -> dict[str, np.ndarray]:
    """What OpenVINO computes of each part of the model from the values at the quantisers before it."""
    import openvino
    from openvino import opset13

    model = openvino.Core().read_model(str(source))
    nodes = quantisers(model)
    assert len(nodes) == count
    given, parameters, results = dict(inputs), [], []
    for index, node in enumerate(nodes):
        name, value = f"given_{index}", seen[f"quantised_{index}"]
        parameter = opset13.parameter(
            openvino.PartialShape(list(value.shape)), node.get_output_element_type(0), name=name
        )
        for reader in node.output(0).get_target_inputs():
            reader.replace_source_output(parameter.output(0))
        parameter.output(0).get_tensor().set_names({name})
        node.output(0).get_tensor().set_names({f"quantised_{index}"})
        # A quantiser without readers would be dropped, and with it the value in front of it.
        before = opset13.multiply(_in_codes(node), np.float32(1))
        before.output(0).get_tensor().set_names({f"before_{index}"})
        results += [opset13.result(node.output(0)), opset13.result(before)]
        parameters.append(parameter)
        given[name] = value
    model.add_parameters(parameters)
    model.add_results(results)
    model.validate_nodes_and_infer_types()
    return _openvino(model, given, {"LP_TRANSFORMS_MODE": "NO"})


def _in_codes(node):
    """The value in front of a quantiser, on the scale of what the quantiser gives."""
    from openvino import opset13

    value, *bounds = node.input_values()
    if node.get_type_name() != "FakeQuantize":
        return value
    low, high, given_low, given_high = (
        opset13.convert(bound, "f32") if bound.get_element_type().to_string() != "f32" else bound for bound in bounds
    )
    scale = opset13.divide(opset13.subtract(given_high, given_low), opset13.subtract(high, low))
    return opset13.add(opset13.multiply(opset13.subtract(value, low), scale), given_low)


def _ratio(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference, relative to the largest value; infinite where one has what is no number, or the shapes
    differ."""
    if ours.shape != theirs.shape:
        return float("inf")
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=0)
    is_same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    ours, theirs = ours[~is_same], theirs[~is_same]
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return float("inf")
    return float(np.abs(ours - theirs).max(initial=0) / max(largest, 1e-30))


if __name__ == "__main__":
    sys.exit(main())
