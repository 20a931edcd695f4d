"""What a golden-case table says, and how it becomes IR files.

A pack holds the cases of one operation type in one version. The tables in
`golden_cases/` fill packs through `Pack.case` (one operation between Parameters
or constants and Results) and `Pack.model` (anything larger). Building calls
OpenVINO, which may crash, so `goldens.py` builds in a child process.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from golden_grid import Call

CLASS_NAMES = {"ReLU": "Relu", "PReLU": "PRelu", "SoftMax": "Softmax", "Const": "Constant"}
"""OpenVINO's class names where they differ from the type in the XML."""

PACKS: dict[str, Callable[[Pack], None]] = {}
"""The table function of every pack, by `Type-opsetN`, in order of registration."""

FURTHER: dict[str, list[Callable[[Pack], None]]] = {}
"""Functions that add to a pack after its table, by `Type-opsetN`."""


@dataclass
class Case:
    """One golden case before an oracle has spoken.

    `steps` are the inputs of consecutive inferences. `reference` gives the
    outputs by numpy from the specification, `example` says that these are the
    specification's own numbers. `binding` marks, per output, the elements that
    an expected value binds (the rest depends on how NaN is treated).
    """

    name: str
    steps: list[dict[str, np.ndarray]]
    reference: list[dict[str, np.ndarray]] | None = None
    example: bool = False
    binding: dict[str, np.ndarray] | None = None
    tolerance: dict[str, float] | None = None
    note: str = ""
    oracles: tuple[str, ...] = ("cpu", "evaluate")
    problem: str = ""
    has_twin: bool = False
    twin_step: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class Pack:
    """The cases of one operation type and version, written below `folder`."""

    kind: str
    version: str
    folder: Path
    cases: list[Case] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seed = zlib.crc32(f"{self.kind}-{self.version}".encode())
        self.random = np.random.default_rng(self.seed)

    def normal(self, *shape: int, dtype: Any = np.float32, scale: float = 1.0) -> np.ndarray:
        """Seeded normal values; small integers for integer types."""
        dtype = np.dtype(dtype)
        if dtype == np.bool_:
            return self.random.random(shape) < 0.5
        if dtype.kind == "u":
            return self.random.integers(0, 10, shape).astype(dtype)
        if dtype.kind == "i":
            return self.random.integers(-9, 10, shape).astype(dtype)
        return np.asarray(self.random.normal(0.0, scale, shape)).astype(dtype)

    def positive(self, *shape: int, dtype: Any = np.float32) -> np.ndarray:
        """Seeded values in [0.2, 3)."""
        return np.asarray(self.random.uniform(0.2, 3.0, shape)).astype(dtype)

    def distinct(self, *shape: int, dtype: Any = np.float32) -> np.ndarray:
        """A seeded permutation: no two elements are equal."""
        count = int(np.prod(shape))
        values = self.random.permutation(count).reshape(shape)
        return (values - count // 2).astype(dtype)

    def case(
        self,
        name: str,
        inputs: Sequence[np.ndarray],
        attributes: dict[str, Any] | None = None,
        *,
        constant: Iterable[int] = (),
        shapes: dict[int, Any] | None = None,
        outputs: Sequence[int] | None = None,
        reference: Any = None,
        binding: Any = None,
        twin: Sequence[np.ndarray] | None = None,
        strip: Sequence[str] = (),
        patch: dict[str, str] | None = None,
        drop: int = 0,
        is_varied: bool = False,
        **facts: Any,
    ) -> None:
        """Add a case of the pack's operation alone.

        `constant` lists the inputs that become Const layers, `shapes` the
        partial shapes of Parameters that are not static, `outputs` the outputs
        that get a Result (all by default). `reference` is the expected value, a
        list of them, or a function of the inputs. `twin` holds the inputs in types that the
        oracles compute in themselves; its Parameters are static. OpenVINO writes defaults that a file may
        leave out and normalises what it reads: `strip` names attributes that the IR does not write, `patch`
        gives others their values, `drop` is a number of last inputs that are taken away.
        """
        arrays = [np.asarray(value) for value in inputs]
        fixed = set(constant)
        if not is_varied:
            self.calls.append(Call(name, arrays, attributes or {}, fixed, shapes or {}, outputs, reference))

        def build(arrays=arrays, shapes=shapes):
            nodes, parameters = [], []
            for index, array in enumerate(arrays):
                if index in fixed:
                    nodes.append(make_constant(array))
                    continue
                shape = (shapes or {}).get(index, list(array.shape))
                nodes.append(make_parameter(array.dtype, shape, f"x{index}"))
                parameters.append(nodes[-1])
            node = make_node(self.kind, self.version, nodes, attributes)
            chosen = range(node.get_output_size()) if outputs is None else outputs
            return make_model([node.output(i) for i in chosen], parameters)

        self.model(
            name,
            build,
            [_step(arrays, fixed)],
            reference=_named([_call(reference, arrays)]),
            binding=_names(_call(binding, arrays)),
            **facts,
        )
        if strip or patch or drop:
            self._rewrite(self.cases[-1], strip, patch or {}, drop)
        if twin is not None:
            self._add_twin(self.cases[-1], lambda: build(twin, None), arrays, twin, fixed)

    def _add_twin(self, case: Case, build, arrays, twin, fixed: set[int]) -> None:
        """Write the twin of a case beside it; it stands in for an IR that OpenVINO does not build."""
        target = self.folder / case.name / "twin"
        target.mkdir()
        try:
            _serialize(build(), target / "model.xml")
        except Exception:  # noqa: BLE001 - a case without a twin
            return
        case.has_twin = True
        case.twin_step = _step(twin, fixed)
        if case.problem:
            case.problem = ""
            retype(target, self.folder / case.name, self.kind, self.version, arrays)

    def _rewrite(self, case: Case, strip: Sequence[str], patch: dict[str, str], drop: int) -> None:
        """Change the layer of a case in its IR; it must hold one of the attributes to strip."""
        path = self.folder / case.name / "model.xml"
        if case.problem:
            return
        tree = ET.parse(path)
        (layer,) = (e for e in tree.iter("layer") if (e.get("type"), e.get("version")) == (self.kind, self.version))
        data = layer.find("data")
        attributes = data.attrib if data is not None else {}
        if strip and not any(name in attributes for name in strip):
            case.problem = "no attribute to strip"
        for name in strip:
            attributes.pop(name, None)
        attributes.update(patch)
        for _ in range(drop):
            _drop_input(tree.getroot(), layer)
        tree.write(path, encoding="unicode")

    def model(
        self,
        name: str,
        build: Callable[[], Any],
        steps: list[dict[str, np.ndarray]],
        *,
        reference: list[dict[str, np.ndarray]] | None = None,
        **facts: Any,
    ) -> None:
        """Add a case whose model `build` makes; Results are named y0, y1..."""
        if any(case.name == name for case in self.cases):
            raise ValueError(f"{self.kind}-{self.version}: two cases named {name}")
        case = Case(name, steps, reference, **facts)
        self.cases.append(case)
        target = self.folder / name
        target.mkdir(parents=True)
        try:
            _serialize(build(), target / "model.xml")
            case.problem = self._missing_operation(target / "model.xml")
        except Exception as error:  # noqa: BLE001 - the table is at fault, the log says so
            case.problem = str(error)[:1000] or type(error).__name__

    def _missing_operation(self, xml: Path) -> str:
        """The IR must hold the operation in the version the pack is named for."""
        layers = {(e.get("type"), e.get("version")) for e in ET.parse(xml).iter("layer")}
        if (self.kind, self.version) in layers:
            return ""
        return f"the IR holds {sorted(layers)}, not {self.kind}-{self.version}"


def pack(*names: str):
    """Register a table function for the packs of these `Type-opsetN` names."""

    def register(function: Callable[[Pack], None]) -> Callable[[Pack], None]:
        for name in names:
            PACKS[name] = function
        return function

    return register


def further(*names: str):
    """Register a function that adds to the packs of these names after their tables."""

    def register(function: Callable[[Pack], None]) -> Callable[[Pack], None]:
        for name in names:
            FURTHER.setdefault(name, []).append(function)
        return function

    return register


def make_parameter(dtype: Any, shape: Any, name: str):
    """A Parameter whose friendly name and tensor name are `name`."""
    import openvino
    from openvino import opset13

    node = opset13.parameter(openvino.PartialShape(shape), element_type(dtype), name=name)
    node.output(0).tensor.set_names({name})
    return node


def make_constant(array: np.ndarray):
    """A Const layer."""
    import openvino
    from openvino import op

    array = np.ascontiguousarray(array).reshape(np.shape(array))
    if not array.size:
        return _empty_constant(array)
    if array.dtype.kind == "V":
        return op.Constant(element_type(array.dtype), openvino.Shape(array.shape), array.astype(float).ravel().tolist())
    return op.Constant(openvino.Tensor(array))


def make_node(kind: str, version: str, inputs: Sequence[Any], attributes: dict | None = None):
    """A node of the type, in the version that the opset introduced."""
    from openvino.utils.node_factory import NodeFactory

    factory = NodeFactory(version)
    nodes = [make_constant(i) if isinstance(i, np.ndarray) else i for i in inputs]
    return factory.create(CLASS_NAMES.get(kind, kind), nodes, attributes or {})


def make_model(outputs: Sequence[Any], parameters: Sequence[Any], sinks: Sequence[Any] = ()):
    """A model whose outputs carry the tensor names y0, y1..."""
    import openvino
    from openvino import opset13

    results = []
    for index, output in enumerate(outputs):
        output = output.output(0) if hasattr(output, "get_output_size") else output
        output.get_tensor().set_names({f"y{index}"})
        results.append(opset13.result(output))
    if sinks:
        return openvino.Model(results, list(sinks), list(parameters), "golden")
    return openvino.Model(results, list(parameters), "golden")


def retype(source: Path, target: Path, kind: str, version: str, arrays: Sequence[np.ndarray]) -> None:
    """Copy an IR of one operation with the element types of its inputs replaced by those of `arrays`.

    Declared types of outputs stay what they were: readers infer them.
    """
    tree = ET.parse(source / "model.xml")
    weights = (source / "model.bin").read_bytes()
    layers = {e.get("id"): e for e in tree.iter("layer")}
    (node,) = (e for e in layers.values() if (e.get("type"), e.get("version")) == (kind, version))
    sources = {e.get("to-port"): e.get("from-layer") for e in tree.iter("edge") if e.get("to-layer") == node.get("id")}
    for port, array in zip(node.findall("input/port"), arrays, strict=True):
        producer = layers[sources[port.get("id")]]
        name = element_type(array.dtype).get_type_name()
        precision = {"f16": "FP16", "f32": "FP32", "f64": "FP64", "boolean": "BOOL"}.get(name, name.upper())
        producer.find("data").set("element_type", name)
        for element in (port, producer.find("output/port")):
            element.set("precision", precision)
        if producer.get("type") == "Const":
            content = np.ascontiguousarray(array).tobytes()
            producer.find("data").set("offset", str(len(weights)))
            producer.find("data").set("size", str(len(content)))
            weights += content + b"\0" * (-len(content) % 8)
    tree.write(target / "model.xml", encoding="unicode")
    (target / "model.bin").write_bytes(weights)


def save_case_list(pack_: Pack) -> None:
    """Write what the building child knows for the parent: cases.pickle-free JSON
    beside npz files of inputs, references and bindings."""
    from oracle import save_npz

    entries = []
    for case in pack_.cases:
        target = pack_.folder / case.name
        for step, arrays in enumerate(case.steps):
            save_npz(target / f"inputs-{step}.npz", arrays)
        for step, arrays in enumerate(case.reference or []):
            save_npz(target / f"reference-{step}.npz", arrays)
        if case.has_twin:
            save_npz(target / "twin" / "inputs-0.npz", case.twin_step)
        if case.binding:
            save_npz(target / "binding.npz", case.binding)
        entries.append(
            {
                "name": case.name,
                "steps": len(case.steps),
                "reference": case.reference is not None,
                "example": case.example,
                "binding": case.binding is not None,
                "twin": case.has_twin,
                "tolerance": case.tolerance,
                "note": case.note,
                "oracles": list(case.oracles),
                "problem": case.problem,
            }
        )
    text = json.dumps({"seed": pack_.seed, "cases": entries})
    (pack_.folder / "list.json").write_text(text)


def _serialize(model, path: Path) -> None:
    import openvino

    openvino.serialize(model, str(path), str(path.with_suffix(".bin")))


def element_type(dtype: Any):
    """OpenVINO's element type for a NumPy type or one of its own."""
    import openvino

    if isinstance(dtype, openvino.Type):
        return dtype
    if np.dtype(dtype).kind == "V":
        return openvino.Type.bf16
    return openvino.Type.string if np.dtype(dtype).kind == "U" else openvino.Type(np.dtype(dtype))


def _empty_constant(array: np.ndarray):
    import openvino
    from openvino import op

    return op.Constant(element_type(array.dtype), openvino.Shape(array.shape), [])


def _drop_input(root: ET.Element, layer: ET.Element) -> None:
    """Take the last input of a layer away, with its edge and the Const that it came from."""
    ports, layers, edges = layer.find("input"), root.find("layers"), root.find("edges")
    last = ports.findall("port")[-1]
    ports.remove(last)
    ends = (layer.get("id"), last.get("id"))
    (edge,) = (e for e in edges if (e.get("to-layer"), e.get("to-port")) == ends)
    edges.remove(edge)
    layers.remove(next(e for e in layers if e.get("id") == edge.get("from-layer")))


def _step(arrays: Sequence[np.ndarray], fixed: set[int]) -> dict[str, np.ndarray]:
    return {f"x{i}": a for i, a in enumerate(arrays) if i not in fixed}


def _call(value: Any, arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    """A reference or binding as a list of arrays, one for each output."""
    if callable(value):
        value = value(*arrays)
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [np.asarray(v) for v in value]
    return [np.asarray(value)]


def _names(values: list[np.ndarray] | None) -> dict[str, np.ndarray] | None:
    return None if values is None else {f"y{i}": v for i, v in enumerate(values)}


def _named(steps: list[list[np.ndarray] | None]) -> list[dict[str, np.ndarray]] | None:
    return None if steps[0] is None else [_names(values) for values in steps]
