"""Makes the packs in `tests/scatter`.

    python tools/scatter_fixtures.py grid              # our own IR; expected values by scatter_reference.py
    python tools/scatter_fixtures.py onnx WHEEL        # ONNX's node tests, from an onnx wheel up to 1.20.1
    python tools/scatter_fixtures.py frontends         # what OpenVINO's front ends make of ONNX and PyTorch graphs

`frontends` needs torch beside openvino and onnx. A pack is a zip with `cases.json`
(a list of `{name, outcome, message, function, openvino}`) and, for each case,
`model.xml`, `model.bin`, `inputs.npz` and `expected.npz`. `outcome` is `value`,
`invalid` (the model is refused) or `error` (the inference fails); `message` lists what the error
says. `function` gives arguments for the entry points, `openvino` what OpenVINO's
CPU plugin or `Model.evaluate` say against the expected values ("" where one agrees).
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import tempfile
import zipfile
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import oracle
import scatter_reference as ref

ROOT = Path(__file__).resolve().parent.parent
BF16 = ml_dtypes.bfloat16
PRECISIONS = {
    "float32": ("f32", "FP32"),
    "float64": ("f64", "FP64"),
    "float16": ("f16", "FP16"),
    "bfloat16": ("bf16", "BF16"),
    "bool": ("boolean", "BOOL"),
}
RANDOM = np.random.default_rng(20260401)


class Pack:
    """The cases of one zip."""

    def __init__(self, name: str) -> None:
        self.path = ROOT / "tests" / "scatter" / f"{name}.zip"
        self.cases: list[dict] = []
        self.files: dict[str, bytes] = {}

    def add(self, name, xml, weights, inputs, expected=None, outcome="value", message=(), function=None):
        assert all(case["name"] != name for case in self.cases), name
        case = {"name": name, "outcome": outcome, "message": list(message), "function": function, "openvino": ""}
        self.cases.append(case)
        self.files[f"{name}/model.xml"] = xml.encode() if isinstance(xml, str) else xml
        self.files[f"{name}/model.bin"] = weights
        self.files[f"{name}/inputs.npz"] = npz(inputs)
        if expected is not None:
            self.files[f"{name}/expected.npz"] = npz(expected)

    def cross_check(self) -> None:
        """Notes where OpenVINO does not agree with the expected values."""
        with tempfile.TemporaryDirectory() as folder:
            questions, cases = [], []
            for case in self.cases:
                if case["outcome"] != "value":
                    continue
                if "bfloat16" in case["name"]:
                    # An npz does not tell bf16, so that the oracle cannot be asked.
                    case["openvino"] = "not asked"
                    continue
                model = Path(folder) / case["name"] / "model.xml"
                model.parent.mkdir(parents=True)
                model.write_bytes(self.files[f"{case['name']}/model.xml"])
                model.with_suffix(".bin").write_bytes(self.files[f"{case['name']}/model.bin"])
                inputs = load(self.files[f"{case['name']}/inputs.npz"])
                questions.append(oracle.Question(model, [inputs]))
                cases.append(case)
            for case, answer in zip(cases, oracle.ask(questions)):
                expected = [load(self.files[f"{case['name']}/expected.npz"])]
                objections = dict(answer.failures)
                for name, outputs in answer.outputs.items():
                    objections[name] = oracle.compare(outputs, expected)
                agree = [name for name in oracle.ORACLES if objections.get(name) == ""]
                case["openvino"] = "" if agree else "; ".join(f"{k}: {v[:120]}" for k, v in sorted(objections.items()))

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED) as archive:
            files = {"cases.json": json.dumps(self.cases, indent=1).encode(), **self.files}
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
        counts = {o: sum(c["outcome"] == o for c in self.cases) for o in ("value", "invalid", "error")}
        against = sum(bool(c["openvino"]) for c in self.cases)
        print(f"{self.path.name}: {len(self.cases)} cases {counts}, OpenVINO against {against}")


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arrays.npz"
        oracle.save_npz(path, arrays)
        return path.read_bytes()


def load(content: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(content)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return {name: a.view(BF16) if a.dtype.kind == "V" else a for name, a in arrays.items()}


def names_of(dtype) -> tuple[str, str]:
    name = np.dtype(dtype).name
    short = name.replace("uint", "u").replace("int", "i")
    return PRECISIONS.get(name, (short, short.upper()))


def single_layer(kind, opset, attributes, inputs, constant=(), shapes=None):
    """IR of one operation between Parameters, constants and a Result, written by hand, because OpenVINO does not
    write what is invalid. `shapes` are texts such as `?,1..4` of inputs that are not static; "..." is unranked."""
    layers, edges, weights = [], [], bytearray()
    ports = ""
    for index, array in enumerate(inputs):
        element, precision = names_of(array.dtype)
        text = (shapes or {}).get(index, ",".join(map(str, array.shape)))
        dims = "".join(f"<dim>{'-1' if '?' in d or '..' in d else d}</dim>" for d in text.split(",") if d)
        dims = "" if text == "..." else dims
        ports += f'<port id="{index}" precision="{precision}">{dims}</port>'
        if index in constant:
            while len(weights) % 64:
                weights.append(0)
            data = f'element_type="{element}" shape="{text}" offset="{len(weights)}" size="{array.nbytes}"'
            kind_, opset_ = "Const", "opset1"
            weights += np.ascontiguousarray(array).tobytes()
        else:
            data = f'element_type="{element}" shape="{text}"'
            kind_, opset_ = "Parameter", "opset1"
        layers.append(
            f'<layer id="{index}" name="x{index}" type="{kind_}" version="{opset_}"><data {data}/>'
            f'<output><port id="0" precision="{precision}" names="x{index}">{dims}</port></output></layer>'
        )
        edges.append(f'<edge from-layer="{index}" from-port="0" to-layer="{len(inputs)}" to-port="{index}"/>')
    count = len(inputs)
    text = (shapes or {}).get(0, ",".join(map(str, inputs[0].shape)))
    dims = "".join(f"<dim>{'-1' if '?' in d or '..' in d else d}</dim>" for d in text.split(",") if d)
    dims = "" if text == "..." else dims
    precision = names_of(inputs[0].dtype)[1]
    data = "".join(f' {key}="{value}"' for key, value in attributes.items())
    data = f"<data{data}/>" if attributes else ""
    layers.append(
        f'<layer id="{count}" name="op" type="{kind}" version="{opset}">{data}<input>{ports}</input>'
        f'<output><port id="{count}" precision="{precision}" names="y0">{dims}</port></output></layer>'
    )
    layers.append(
        f'<layer id="{count + 1}" name="result" type="Result" version="opset1">'
        f'<input><port id="0" precision="{precision}">{dims}</port></input></layer>'
    )
    edges.append(f'<edge from-layer="{count}" from-port="{count}" to-layer="{count + 1}" to-port="0"/>')
    xml = (
        '<?xml version="1.0"?>\n<net name="scatter" version="11"><layers>'
        + "\n".join(layers)
        + "</layers><edges>"
        + "".join(edges)
        + "</edges></net>\n"
    )
    return xml, bytes(weights)


def values(shape, dtype, small=False):
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return RANDOM.random(shape) < 0.5
    if dtype.kind == "u":
        return RANDOM.integers(0, 4 if small else 200, shape).astype(dtype)
    if dtype.kind == "i":
        return RANDOM.integers(-3 if small else -100, 4 if small else 100, shape).astype(dtype)
    return np.asarray(RANDOM.normal(0, 2, shape), np.float32).astype(dtype)


def draw(shape, size, dtype, wraps, unique_axis=None):
    low = -size if wraps and np.dtype(dtype).kind == "i" else 0
    if unique_axis is None:
        return RANDOM.integers(low, max(size, 1), shape).astype(dtype)
    picked = np.argsort(
        RANDOM.random(tuple(size if i == unique_axis else d for i, d in enumerate(shape))), axis=unique_axis
    )
    return np.take(picked, np.arange(shape[unique_axis]), axis=unique_axis).astype(dtype)


TYPES = (np.float32, np.float64, np.float16, BF16, np.int8, np.int16, np.int32, np.int64)
TYPES += (np.uint8, np.uint16, np.uint32, np.uint64, np.bool_)
INDEX_TYPES = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)


class Grid:
    """The generated pack."""

    def __init__(self) -> None:
        self.pack = Pack("grid")

    def case(self, name, kind, opset, attributes, inputs, reference, constant=(), shapes=None, function=None, **rest):
        xml, weights = single_layer(kind, opset, attributes, inputs, constant, shapes)
        given = {f"x{i}": a for i, a in enumerate(inputs) if i not in constant}
        expected = None if reference is None else {"y0": reference}
        self.pack.add(name, xml, weights, given, expected, function=function, **rest)

    def update(
        self, name, shape, indices, axis, dtype=np.float32, axis_type=np.int64, constant=(3,), shapes=None, **rest
    ):
        at = axis % len(shape)
        data = values(shape, dtype)
        updates = values(shape[:at] + indices.shape + shape[at + 1 :], dtype)
        axis_input = np.array(axis, axis_type) if RANDOM.random() < 0.5 else np.array([axis], axis_type)
        reference = None if rest else ref.scatter_update(data, indices, updates, axis)
        function = {"name": "scatter_update", "axis": axis}
        inputs = [data, indices, updates, axis_input]
        self.case(
            f"update_{name}", "ScatterUpdate", "opset3", {}, inputs, reference, constant, shapes, function, **rest
        )

    def elements(
        self,
        name,
        shape,
        indices,
        axis,
        reduction="none",
        init=True,
        dtype=np.float32,
        constant=(3,),
        shapes=None,
        opset=12,
        data=None,
        updates=None,
        **rest,
    ):
        small = reduction in ("prod",)
        data = values(shape, dtype, small) if data is None else np.array(data, dtype)
        updates = values(indices.shape, dtype, small) if updates is None else np.array(updates, dtype)
        attributes = {"reduction": reduction, "use_init_val": str(init).lower()} if opset == 12 else {}
        inputs = [data, indices, updates, np.array([axis], np.int64)]
        reference = None if rest else ref.scatter_elements_update(data, indices, updates, axis, reduction, init)
        function = {"name": "scatter_elements_update", "axis": axis, "reduction": reduction, "use_init_val": init}
        self.case(
            f"elements_{name}",
            "ScatterElementsUpdate",
            f"opset{opset}",
            attributes,
            inputs,
            reference,
            constant,
            shapes,
            function,
            **rest,
        )

    def blocks(
        self,
        name,
        shape,
        indices,
        reduction="none",
        dtype=np.float32,
        shapes=None,
        opset=15,
        slot=None,
        constant=(),
        **rest,
    ):
        small = reduction in ("prod",)
        data = values(shape, dtype, small)
        updates = values(indices.shape[:-1] + shape[indices.shape[-1] :], dtype, small)
        updates = updates if slot is None else updates.reshape(slot)
        attributes = {"reduction": reduction} if opset == 15 else {}
        reference = None if rest else ref.scatter_nd_update(data, indices, updates, reduction)
        function = {"name": "scatter_nd_update", "reduction": reduction}
        version = "opset15" if opset == 15 else "opset4"
        inputs = [data, indices, updates]
        self.case(
            f"nd_{name}", "ScatterNDUpdate", version, attributes, inputs, reference, constant, shapes, function, **rest
        )

    def fill(self) -> None:
        self.updates()
        self.all_elements()
        self.all_blocks()
        self.slices()
        self.invalid()
        self.errors()

    def updates(self) -> None:
        for rank in range(1, 9):
            shape = tuple(RANDOM.integers(1, 4, rank)) if rank > 3 else tuple(RANDOM.integers(2, 6, rank))
            shape = tuple(map(int, shape))
            for axis in sorted({0, rank - 1, -1, -rank}):
                size = shape[axis]
                self.update(f"rank{rank}_axis{axis}", shape, draw((min(size, 2),), size, np.int64, False, 0), axis)
        for dtype, index in itertools.zip_longest(TYPES, INDEX_TYPES, fillvalue=np.int32):
            name = f"{np.dtype(dtype).name}_{np.dtype(index).name}"
            self.update(name, (4, 3), draw((2,), 4, index, False, 0), 0, dtype)
        for kind in INDEX_TYPES:
            self.update(f"axis_{np.dtype(kind).name}", (2, 5), draw((3,), 5, np.int64, False, 0), 1, axis_type=kind)
        for indices in ((), (2, 2), (1, 2, 1), (0,), (2, 0)):
            for axis in (0, 1):
                drawn = np.array(1) if indices == () else draw(indices, 5, np.int32, False)
                self.update(f"indices_{'x'.join(map(str, indices)) or 'scalar'}_axis{axis}", (5, 5), drawn, axis)
        self.update("duplicates", (4, 3), np.array([1, 2, 1, 1]), 0)
        self.update("empty_data", (3, 0), np.array([1]), 0)
        self.update("runtime_axis", (3, 4), np.array([1, 3]), 1, constant=())
        self.update("runtime_axis_negative", (3, 4), np.array([2]), -2, constant=())
        self.update("constant_indices", (3, 4), np.array([1, 3]), 1, constant=(1, 3))
        self.update("dynamic", (3, 4), np.array([1, 3]), 1, shapes={0: "?,?", 1: "?", 2: "?,?"})
        self.update("interval", (3, 4), np.array([1, 3]), 1, shapes={0: "1..5,4", 1: "1..4", 2: "?,2"})
        self.update("unranked", (3, 4), np.array([1, 3]), 1, shapes={0: "...", 1: "...", 2: "..."})

    def all_elements(self) -> None:
        shapes = [((5,), (4,), 0), ((4, 3), (2, 3), 0), ((4, 3), (4, 5), 1), ((2, 3, 4), (1, 3, 2), -1)]
        shapes += [((2, 3, 4), (2, 5, 4), 1), ((3, 2, 2, 3), (2, 2, 1, 3), 0), ((2, 1, 3, 1, 2), (2, 1, 2, 1, 2), -3)]
        for (shape, picked, axis), reduction in itertools.product(
            shapes, ("none", "sum", "prod", "min", "max", "mean")
        ):
            for init in (True, False) if reduction != "none" else (True,):
                drawn = draw(picked, shape[axis], np.int64, True)
                self.elements(
                    f"{reduction}_{'x'.join(map(str, shape))}_axis{axis}_{init}", shape, drawn, axis, reduction, init
                )
        for dtype, reduction in itertools.product(TYPES, ("none", "sum", "prod", "min", "max", "mean")):
            if np.dtype(dtype) == np.bool_ and reduction == "mean":
                continue
            drawn = draw((6, 3), 4, np.int32, True)
            init = bool(RANDOM.random() < 0.5) or reduction == "none"
            self.elements(f"{np.dtype(dtype).name}_{reduction}_{init}", (4, 3), drawn, 0, reduction, init, dtype)
        for kind in INDEX_TYPES:
            self.elements(f"index_{np.dtype(kind).name}", (5, 3), draw((2, 3), 5, kind, True), 0, "sum")
        for rank in (6, 7, 8):
            shape = (2,) * (rank - 2) + (3, 2)
            self.elements(f"rank{rank}", shape, draw(shape[:-1] + (1,), 3, np.int64, True), -2, "max")
        rows = np.repeat(draw((6, 1), 9, np.int64, True), 4, axis=1)
        for reduction in ("none", "sum", "mean", "min"):
            self.elements(f"rows_{reduction}", (9, 4), rows, 0, reduction, reduction != "min")
            self.elements(f"rows_f16_{reduction}", (9, 4), rows, 0, reduction, reduction != "min", np.float16)
        self.elements("version3", (4, 3), draw((2, 3), 4, np.int64, False), 0, opset=3)
        self.elements("version3_negative", (4, 3), np.array([[-1, -4, 2]]), 0, opset=3)
        inputs = [values((4,), np.float32), np.array([1, 1]), values((2,), np.float32), np.array([0])]
        reference = ref.scatter_elements_update(*inputs[:3], 0, "sum", False)
        attributes = {"reduction": "SUM", "use_init_val": "False"}
        self.case("elements_capitals", "ScatterElementsUpdate", "opset12", attributes, inputs, reference, (3,))
        self.elements("empty", (4, 3), np.zeros((0, 3), np.int64), 0, "sum")
        self.elements("empty_data", (0, 3), np.zeros((0, 3), np.int64), 0, "mean")
        self.elements("nan_max", (3,), np.array([0, 1]), 0, "max", data=[np.nan, 1, 2], updates=[1, np.nan])
        self.elements("nan_min", (3,), np.array([0, 1]), 0, "min", data=[np.nan, 1, 2], updates=[1, np.nan])
        self.elements("infinity", (2,), np.array([0, 1]), 0, "max", False, updates=[-np.inf, np.inf])
        self.elements("infinity_min", (2,), np.array([0, 1]), 0, "min", False, updates=[np.inf, -np.inf])
        for dtype, start in ((np.float16, 2048), (BF16, 256)):
            self.elements(
                f"rounds_once_{np.dtype(dtype).name}",
                (1,),
                np.zeros(4, np.int64),
                0,
                "sum",
                dtype=dtype,
                data=[start],
                updates=[1] * 4,
            )
        self.elements(
            "mean_f16_large", (1,), np.zeros(2, np.int64), 0, "mean", False, np.float16, data=[0], updates=[60000] * 2
        )
        self.elements(
            "mean_i8_wraps", (1,), np.zeros(3, np.int64), 0, "mean", False, np.int8, data=[0], updates=[100] * 3
        )
        self.elements(
            "mean_i32_floor", (2,), np.array([0, 1, 1]), 0, "mean", False, np.int32, data=[0, 0], updates=[-1, -1, -2]
        )
        self.elements("sum_i64_wide", (1,), np.array([0]), 0, "sum", dtype=np.int64, data=[1 << 40], updates=[1])
        self.elements("sum_u64_wraps", (1,), np.array([0]), 0, "sum", dtype=np.uint64, data=[2**64 - 1], updates=[2])
        self.elements("prod_i64_wraps", (1,), np.array([0]), 0, "prod", dtype=np.int64, data=[2**63 - 1], updates=[2])
        self.elements("runtime_axis", (3, 4), draw((3, 2), 4, np.int64, True), 1, "sum", constant=())
        self.elements("constant_indices", (3, 4), draw((3, 2), 4, np.int64, True), 1, "sum", constant=(1, 3))
        self.elements(
            "dynamic", (3, 4), draw((2, 4), 3, np.int64, True), 0, "sum", shapes={0: "?,?", 1: "?,4", 2: "?,?"}
        )
        self.elements(
            "interval",
            (3, 4),
            draw((2, 4), 3, np.int64, True),
            0,
            "mean",
            shapes={0: "1..9,4", 1: "..5,4", 2: "1..3,?"},
        )
        self.elements(
            "unranked", (3, 4), draw((2, 4), 3, np.int64, True), 0, "max", shapes={0: "...", 1: "...", 2: "..."}
        )

    def all_blocks(self) -> None:
        shapes = [
            ((6,), (4, 1)),
            ((4, 3), (3, 1)),
            ((4, 3), (5, 2)),
            ((2, 3, 4), (3, 2)),
            ((2, 3, 4), (2, 2, 1)),
            ((2, 3, 2, 2), (4, 3)),
        ]
        shapes += [
            ((3, 4), (2,)),
            ((5, 2), (1,)),
            ((2, 2), (2, 0)),
            ((3, 2), (0, 1)),
            ((0, 3), (0, 1)),
            ((2,) * 8, (3, 8)),
            ((2,) * 7, (3, 4)),
        ]
        for (shape, picked), reduction in itertools.product(shapes, ("none", "sum", "sub", "prod", "min", "max")):
            depth = picked[-1]
            sizes = np.array(shape[:depth], np.int64)
            drawn = (
                (RANDOM.random(picked) * 2 * sizes - sizes).astype(np.int64) if depth else np.zeros(picked, np.int64)
            )
            self.blocks(
                f"{reduction}_{'x'.join(map(str, shape))}_{'x'.join(map(str, picked))}", shape, drawn, reduction
            )
        for dtype, reduction in itertools.product(TYPES, ("none", "sum", "sub", "max")):
            self.blocks(
                f"{np.dtype(dtype).name}_{reduction}", (5, 2), draw((6, 1), 5, np.int32, True), reduction, dtype
            )
        self.blocks("version3", (5, 2), draw((3, 1), 5, np.int64, True), opset=4)
        self.blocks("version3_elements", (5, 2), np.array([[4, 1], [-5, 0], [0, -1]]), opset=4)
        self.blocks("one_slot_vector", (3, 4), np.array([1, 2]), slot=(1,))
        self.blocks("one_slot_matrix", (3, 4), np.array([1, 2]), slot=(1, 1))
        self.blocks("constant_indices", (3, 4), np.array([[1], [0]]), "sum", constant=(1,))
        self.blocks("dynamic", (3, 4), np.array([[1], [0]]), "sum", shapes={0: "?,?", 1: "?,1", 2: "?,?"})
        self.blocks("dynamic_depth", (3, 4), np.array([[1, 3], [0, 0]]), "sub", shapes={0: "?,?", 1: "?,?", 2: "..."})
        self.blocks("unranked", (3, 4), np.array([[1], [0]]), "min", shapes={0: "...", 1: "...", 2: "..."})

    def slice(
        self,
        name,
        shape,
        start,
        stop,
        step,
        axes,
        dtype=np.float32,
        constant=(2, 3, 4, 5),
        shapes=None,
        index=np.int64,
        **rest,
    ):
        data = values(shape, dtype)
        slices = [slice(None)] * len(shape)
        for a, b, c, axis in zip(start, stop, step, axes):
            slices[axis] = ref.clamped(a, b, c, shape[axis])
        updates = values(data[tuple(slices)].shape, dtype)
        parameters = [np.array(v, index) for v in (start, stop, step, axes)]
        reference = None if rest else ref.slice_scatter(data, updates, start, stop, step, axes)
        inputs = [data, updates, *parameters]
        self.case(f"slice_{name}", "SliceScatter", "opset15", {}, inputs, reference, constant, shapes, None, **rest)

    def slices(self) -> None:
        for dtype in TYPES:
            self.slice(np.dtype(dtype).name, (4, 5), [1], [4], [2], [1], dtype)
        self.slice("all", (6,), [0], [6], [1], [0])
        self.slice("backwards", (6,), [5], [-7], [-1], [0])
        self.slice("backwards_by_2", (6, 2), [-1], [0], [-2], [0])
        self.slice("two_axes", (4, 5), [0, 1], [3, 5], [2, 2], [0, 1])
        self.slice("axes_swapped", (4, 5), [1, 0], [5, 3], [2, 2], [1, 0])
        self.slice("clamped", (4, 5), [-100], [100], [3], [-1])
        self.slice("nothing", (4, 5), [3], [3], [1], [0])
        self.slice("rank8", (2,) * 8, [1], [2], [1], [4])
        self.slice("extremes", (4,), [-(2**63)], [2**63 - 1], [1], [0])
        self.slice("runtime", (4, 5), [1], [4], [2], [1], constant=())
        self.slice("runtime_dynamic", (4, 5), [1], [4], [2], [1], constant=(), shapes={0: "?,?", 1: "?,?"})
        self.slice("indices_i32", (4, 5), [1], [4], [2], [1], index=np.int32)
        self.slice("indices_i8", (4, 5), [1], [4], [2], [1], index=np.int8)

    def invalid(self) -> None:
        f32, i64 = np.float32, np.int64

        def wrong(name, kind, opset, attributes, inputs, message, constant=(), shapes=None):
            self.case(
                f"invalid_{name}",
                kind,
                opset,
                attributes,
                inputs,
                None,
                constant,
                shapes,
                outcome="invalid",
                message=message,
            )

        z = lambda *shape, dtype=f32: np.zeros(shape, dtype)
        axis = np.array([0], i64)
        su = lambda name, inputs, message, constant=(3,): wrong(
            f"update_{name}", "ScatterUpdate", "opset3", {}, inputs, message, constant
        )
        su("index_type", [z(3), z(1), z(1), axis], ["input 1", "f32", "integer"])
        su("index_boolean", [z(3), z(1, dtype=np.bool_), z(1), axis], ["boolean"])
        su("axis_type", [z(3), z(1, dtype=i64), z(1), z(1)], ["input 3", "f32"])
        su("axis_shape", [z(3), z(1, dtype=i64), z(1), np.array([0, 0])], ["[2]"], ())
        su("axis_matrix", [z(3), z(1, dtype=i64), z(1), np.array([[0]])], ["[1,1]"], ())
        su("updates_type", [z(3), z(1, dtype=i64), z(1, dtype=np.float16), axis], ["f16", "f32"])
        su("updates_rank", [z(3, 2), z(1, dtype=i64), z(1), axis], ["rank"], ())
        su("updates_shape", [z(3, 2), z(1, dtype=i64), z(1, 3), axis], ["[1,3]", "[1,2]"])
        su("axis_too_large", [z(3, 2), z(1, dtype=i64), z(1, 2), np.array([2])], ["axis 2", "[-2, 1]"])
        su("axis_too_small", [z(3, 2), z(1, dtype=i64), z(1, 2), np.array([-3])], ["axis -3"])
        su("scalar_data", [z(), z(1, dtype=i64), z(1), axis], ["scalar"], ())
        for index in (3, -1, -(2**63), 2**32 + 1):
            su(
                f"constant_index_{index}",
                [z(3), np.array([index], i64), z(1), axis],
                [f"index {index}", "[0]", "[0, 2]"],
                (1, 3),
            )
        se = lambda name, inputs, message, constant=(3,), attributes=None, shapes=None, opset="opset12": wrong(
            f"elements_{name}", "ScatterElementsUpdate", opset, attributes or {}, inputs, message, constant, shapes
        )
        se("index_boolean", [z(3), z(1, dtype=np.bool_), z(1), axis], ["boolean"])
        se("index_rank", [z(3), z(1, 1, dtype=i64), z(1, 1), axis], ["rank"])
        se("updates_shape", [z(3), z(1, dtype=i64), z(2), axis], ["[2]", "[1]"])
        se("updates_interval", [z(3, 2), z(1, 2, dtype=i64), z(3, 2), axis], ["[3,2]"], shapes={1: "1..2,2"})
        se("updates_type", [z(3), z(1, dtype=i64), z(1, dtype=np.int32), axis], ["i32"])
        se("axis_shape", [z(3), z(1, dtype=i64), z(1), np.array([0, 0])], ["[2]"], ())
        se("axis_range", [z(3), z(1, dtype=i64), z(1), np.array([1])], ["axis 1"])
        se("off_axis", [z(2, 3), z(3, 3, dtype=i64), z(3, 3), np.array([1])], ["[3,3]", "axis 0"])
        se("scalar_data", [z(), z(dtype=i64), z(), axis], ["scalar"], ())
        se(
            "mean_boolean",
            [z(3, dtype=np.bool_), z(1, dtype=i64), z(1, dtype=np.bool_), axis],
            ["mean", "boolean"],
            attributes={"reduction": "mean"},
        )
        for reduction in ("add", "sub", "average", ""):
            se(
                f"reduction_{reduction}",
                [z(3), z(1, dtype=i64), z(1), axis],
                ["reduction"],
                attributes={"reduction": reduction},
            )
        se(
            "use_init_val",
            [z(3), z(1, dtype=i64), z(1), axis],
            ["use_init_val", "maybe"],
            attributes={"use_init_val": "maybe"},
        )
        for index in (3, -4, 2**63 - 1, -(2**63)):
            se(
                f"constant_index_{index}",
                [z(3), np.array([index], i64), z(1), axis],
                [f"index {index}", "[-3, 2]"],
                (1, 3),
            )
        se("constant_index_version3", [z(3), np.array([3], i64), z(1), axis], ["index 3"], (1, 3), opset="opset3")
        sn = lambda name, inputs, message, attributes=None, constant=(): wrong(
            f"nd_{name}", "ScatterNDUpdate", "opset15", attributes or {}, inputs, message, constant
        )
        for kind in (np.int8, np.int16, np.uint8, np.uint32, np.uint64, np.bool_, f32):
            sn(f"index_{np.dtype(kind).name}", [z(3), z(1, 1, dtype=kind), z(1)], ["input 1"])
        sn("depth", [z(3), z(1, 2, dtype=i64), z(1)], ["2 coordinates"])
        sn("updates_shape", [z(3, 4), z(2, 1, dtype=i64), z(2, 3)], ["[2,3]", "[2,4]"])
        sn("updates_rank", [z(3, 4), z(2, 1, dtype=i64), z(2)], ["[2]"])
        sn("updates_type", [z(3), z(1, 1, dtype=i64), z(1, dtype=np.float64)], ["f64"])
        sn("scalar_slot", [z(3), z(1, dtype=i64), z(3)], ["[3]"])
        sn("scalar_data", [z(), z(1, dtype=i64), z(1)], ["rank 0"])
        sn("scalar_indices", [z(3), z(dtype=i64), z(3)], ["rank 0"])
        sn("mean", [z(3), z(1, 1, dtype=i64), z(1)], ["mean"], {"reduction": "mean"})
        for index in (3, -4, 2**32):
            sn(
                f"constant_index_{index}",
                [z(3), np.array([[index]], i64), z(1)],
                [f"index {index}", "[-3, 2]"],
                constant=(1,),
            )
        ss = lambda name, inputs, message, constant=(2, 3, 4, 5): wrong(
            f"slice_{name}", "SliceScatter", "opset15", {}, inputs, message, constant
        )
        one = lambda *v: np.array(v, i64)
        ss("step_zero", [z(4), z(4), one(0), one(4), one(0), one(0)], ["step"])
        ss("axis_range", [z(4), z(4), one(0), one(4), one(1), one(1)], ["axis 1"])
        ss("axes_twice", [z(4, 4), z(4, 4), one(0, 0), one(4, 4), one(1, 1), one(1, -1)], ["input 5"])
        ss("lengths", [z(4, 4), z(4, 4), one(0, 0), one(4), one(1), one(0)], ["input"])
        ss("updates_shape", [z(4), z(3), one(0), one(4), one(1), one(0)], ["[3]", "[4]"])
        ss("updates_type", [z(4), z(4, dtype=np.int32), one(0), one(4), one(1), one(0)], ["i32"])
        ss("scalar_data", [z(), z(), one(0), one(4), one(1), one(0)], ["rank"])

    def errors(self) -> None:
        """What is known only when data are there."""
        for index in (4, -1, -(2**63), 2**63 - 1, 2**32 + 1):
            message = [f"index {index}", "position [1]", "axis 0 of size 4", "[0, 3]", '"op"']
            self.update(f"error_{index}", (4, 3), np.array([0, index]), 0, outcome="error", message=message)
        for index in (4, -5, -(2**63), 2**63 - 1, 2**32):
            drawn = np.array([[0, 0, 0], [1, 2, index]])
            message = [f"index {index}", "position [1,2]", "axis 0 of size 4", "[-4, 3]", '"op"']
            self.elements(f"error_{index}", (4, 3), drawn, 0, "sum", outcome="error", message=message)
            drawn = np.array([[0, 0], [1, index]])
            message = [f"index {index}", "position [1,1]", "axis 1 of size 3", "[-3, 2]"]
            self.blocks(f"error_{index}", (4, 3), drawn, "sum", outcome="error", message=message)
        dynamic = {0: "?,?", 1: "?,?", 2: "?,?"}
        self.elements(
            "error_off_axis", (2, 3), np.zeros((3, 3), np.int64), 1, shapes=dynamic, outcome="error", message=["[3,3]"]
        )
        for kind in INDEX_TYPES:
            drawn = np.array([0, 100]).astype(kind)
            self.update(f"error_type_{np.dtype(kind).name}", (4,), drawn, 0, outcome="error", message=["index 100"])
        self.update("error_empty_data", (0, 2), np.array([0]), 0, outcome="error", message=["index 0"])
        data, index, updates = np.zeros((3, 2), np.float32), np.array([0]), np.zeros((1, 2), np.float32)
        for axis in (2, -3, 2**63 - 1):
            inputs = [data, index, updates, np.array([axis])]
            self.case(
                f"update_error_axis_{axis}",
                "ScatterUpdate",
                "opset3",
                {},
                inputs,
                None,
                (),
                outcome="error",
                message=[f"axis {axis}"],
            )
        inputs = [data, index, np.zeros((3, 1), np.float32), np.array([0])]
        self.case(
            "update_error_shape_by_axis",
            "ScatterUpdate",
            "opset3",
            {},
            inputs,
            None,
            (),
            outcome="error",
            message=["[3,1]", "[1,2]"],
        )
        one = lambda v: np.array([v])
        inputs = [np.zeros(4, np.float32), np.zeros(4, np.float32), one(0), one(4), one(0), one(0)]
        self.case(
            "slice_error_step", "SliceScatter", "opset15", {}, inputs, None, (), outcome="error", message=["step"]
        )
        inputs = [np.zeros(4, np.float32), np.zeros(3, np.float32), one(0), one(4), one(1), one(0)]
        self.case(
            "slice_error_shape",
            "SliceScatter",
            "opset15",
            {},
            inputs,
            None,
            (),
            outcome="error",
            message=["[3]", "[4]"],
        )


def converted(model) -> tuple[bytes, bytes]:
    """IR of what a front end made."""
    import openvino

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.xml"
        openvino.serialize(model, str(path), str(path.with_suffix(".bin")))
        return path.read_bytes(), path.with_suffix(".bin").read_bytes()


def onnx_node_tests(wheel: Path) -> None:
    """ONNX's own node tests, with ONNX's expected outputs: as IR, and for the entry points."""
    import onnx
    import openvino
    from onnx import numpy_helper

    pack = Pack("onnx")
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        prefix = "onnx/backend/test/data/node/"
        names = sorted(
            {n.removeprefix(prefix).split("/")[0] for n in archive.namelist() if n.startswith(f"{prefix}test_scatter")}
        )
        for name in names:
            content = archive.read(f"{prefix}{name}/model.onnx")
            model = onnx.load_model_from_string(content)
            node = model.graph.node[0]
            tensors = f"{prefix}{name}/test_data_set_0"

            def tensor(kind, i, folder=tensors):
                return numpy_helper.to_array(onnx.TensorProto.FromString(archive.read(f"{folder}/{kind}_{i}.pb")))

            inputs = {n: tensor("input", i) for i, n in enumerate(node.input)}
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            function = {
                "name": node.op_type,
                "opset": model.opset_import[0].version,
                "axis": attributes.get("axis", 0),
                "reduction": attributes.get("reduction", b"").decode() or None,
                "inputs": list(node.input),
            }
            path = Path(folder) / "model.onnx"
            path.write_bytes(content)
            xml, weights = converted(openvino.convert_model(path))
            pack.add(
                name.removeprefix("test_"),
                xml,
                weights,
                inputs,
                {node.output[0]: tensor("output", 0)},
                function=function,
            )
    pack.cross_check()
    pack.save()


def front_ends() -> None:
    pack = Pack("frontends")
    onnx_graphs(pack)
    torch_graphs(pack)
    pack.cross_check()
    pack.save()


def onnx_graphs(pack: Pack) -> None:
    """All versions and reductions of ScatterElements and ScatterND that convert."""
    import onnx
    import openvino
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    kinds = {
        "float32": TensorProto.FLOAT,
        "int64": TensorProto.INT64,
        "int32": TensorProto.INT32,
        "bool": TensorProto.BOOL,
    }
    ours = {"add": "sum", "mul": "prod", "max": "max", "min": "min", None: "none", "none": "none"}
    reductions = {
        9: [None],
        11: [None],
        13: [None],
        16: [None, "none", "add", "mul"],
        18: [None, "add", "mul", "max", "min"],
    }
    for (opset, reduction), dtype in itertools.product(
        [(o, r) for o, rs in reductions.items() for r in rs], (np.float32, np.int64)
    ):
        for operator in ("Scatter",) if opset == 9 else ("ScatterElements", "ScatterND"):
            data = values((4, 3, 2), dtype, True)
            attributes = {"reduction": reduction} if reduction else {}
            unique = 0 if reduction in (None, "none") else None
            if operator == "ScatterND":
                indices = np.array([[0, 2], [-1, 1], [2, -3]] + ([[0, 2]] if unique is None else []))
                updates = values((len(indices), 2), dtype, True)
                expected = ref.scatter_nd_update(data, indices, updates, ours[reduction])
            else:
                attributes["axis"] = 0
                indices = draw((3, 3, 2), 4, np.int64, True, unique)
                updates = values((3, 3, 2), dtype, True)
                expected = ref.scatter_elements_update(data, indices, updates, 0, ours[reduction])
            arrays = {"data": data, "indices": indices, "updates": updates}
            infos = [helper.make_tensor_value_info(n, kinds[a.dtype.name], list(a.shape)) for n, a in arrays.items()]
            node = helper.make_node(operator, list(arrays), ["out"], **attributes)
            out = helper.make_tensor_value_info("out", kinds[data.dtype.name], list(data.shape))
            model = helper.make_model(
                helper.make_graph([node], "g", infos, [out]),
                opset_imports=[helper.make_opsetid("", opset)],
                ir_version=8,
            )
            if operator != "Scatter":
                (own,) = ReferenceEvaluator(model).run(None, arrays)
                assert np.array_equal(own, expected), (operator, opset, reduction)
            served = of_onnxruntime(model.SerializeToString(), arrays)
            assert served is None or np.array_equal(served, expected), (operator, opset, reduction)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onnx"
                onnx.save(model, path)
                xml, weights = converted(openvino.convert_model(path))
            name = f"onnx{opset}_{operator}_{reduction or 'absent'}_{np.dtype(dtype).name}"
            pack.add(name, xml, weights, arrays, {"out": expected})


def of_onnxruntime(model: bytes, arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    """The output of onnxruntime with one thread, where it is installed and has a kernel."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return None
    return session.run(None, arrays)[0]


def torch_graphs(pack: Pack) -> None:
    """What torch.jit.trace and torch.export give, with torch's own results."""
    import openvino
    import torch

    index = torch.tensor([[0, 2, 1, 1], [3, 0, 0, 2]])
    rows = torch.tensor([3, 0, 3])

    def graphs(dtype):
        make = lambda *shape: torch.from_numpy(values(shape, dtype, True))
        data, src, source = make(4, 4), make(3, 5), make(3, 4)
        two = lambda f: (f, (data, index, src))
        yield "scatter_src", two(lambda x, i, s: x.scatter(0, i, s))
        yield "scatter_value", (lambda x, i: x.scatter(1, i, 2), (data, index))
        yield "scatter_reduce_add", two(lambda x, i, s: x.scatter(0, i, s, reduce="add"))
        yield "scatter_reduce_multiply", two(lambda x, i, s: x.scatter(0, i, s, reduce="multiply"))
        yield "scatter_add", two(lambda x, i, s: x.scatter_add(0, i, s))
        for reduce, include in itertools.product(("sum", "prod", "mean", "amax", "amin"), (True, False)):
            yield (
                f"scatter_reduce_{reduce}_{include}",
                two(lambda x, i, s, r=reduce, n=include: x.scatter_reduce(0, i, s, r, include_self=n)),
            )
        yield "index_add", (lambda x, i, s: x.index_add(0, i, s), (data, rows, source))
        yield "index_add_alpha", (lambda x, i, s: x.index_add(0, i, s, alpha=2), (data, rows, source))
        yield "index_add_dim1", (lambda x, i, s: x.index_add(1, i, s), (data, rows, make(4, 3)))
        yield "index_copy", (lambda x, i, s: x.index_copy(0, i, s), (data, torch.tensor([3, 0, 1]), source))
        yield "index_fill", (lambda x, i: x.index_fill(0, i, 7), (data, rows))
        yield "index_put", (lambda x, i, s: x.index_put((i,), s), (data, torch.tensor([3, -4, 1]), source))
        yield (
            "index_put_two",
            (lambda x, i, j, s: x.index_put((i, j), s), (data, torch.tensor([3, 0]), torch.tensor([-1, 2]), make(2))),
        )
        yield "index_put_accumulate", (lambda x, i, s: x.index_put((i,), s, accumulate=True), (data, rows, source))
        yield "slice_scatter", (lambda x, s: torch.slice_scatter(x, s, 1, 0, 4, 2), (data, make(4, 2)))
        yield "select_scatter", (lambda x, s: torch.select_scatter(x, s, 0, 2), (data, make(4)))
        yield "assign_column", (_assign_column, (data, torch.tensor([2, 0]), make(4, 2)))
        yield "masked_scatter", (lambda x, m, s: x.masked_scatter(m, s), (data, data > 0, make(4, 4)))

    class Wrapped(torch.nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, *arguments):
            return self.function(*arguments)

    refused = []
    for dtype in (np.float32, np.int64):
        for name, (function, inputs) in graphs(dtype):
            module = Wrapped(function).eval()
            expected = module(*[i.clone() for i in inputs]).numpy()
            for exporter in ("trace", "export"):
                label = f"torch_{exporter}_{name}_{np.dtype(dtype).name}"
                try:
                    if exporter == "trace":
                        model = openvino.convert_model(module, example_input=tuple(i.clone() for i in inputs))
                    else:
                        model = openvino.convert_model(torch.export.export(module, tuple(i.clone() for i in inputs)))
                    for number, port in enumerate(model.inputs):
                        port.get_tensor().set_names({f"x{number}"})
                    model.outputs[0].get_tensor().set_names({"y0"})
                    xml, weights = converted(model)
                    assert len(model.inputs) == len(inputs)
                except Exception as error:  # noqa: BLE001 - a front end that refuses is only counted
                    refused.append(f"{label}: {str(error).splitlines()[0][:80]}")
                    continue
                given = {f"x{i}": t.numpy() for i, t in enumerate(inputs)}
                pack.add(label, xml, weights, given, {"y0": expected})
    print(f"not converted: {len(refused)}", *refused, sep="\n  ")


def _assign_column(x, i, s):
    y = x.clone()
    y[:, i] = s
    return y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", choices=("grid", "onnx", "frontends"))
    parser.add_argument("wheel", nargs="?", type=Path)
    arguments = parser.parse_args()
    global RANDOM
    RANDOM = np.random.default_rng(zlib.crc32(arguments.pack.encode()))
    if arguments.pack == "grid":
        grid = Grid()
        grid.fill()
        grid.pack.cross_check()
        grid.pack.save()
    elif arguments.pack == "onnx":
        onnx_node_tests(arguments.wheel)
    else:
        front_ends()


if __name__ == "__main__":
    main()
