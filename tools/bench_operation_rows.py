"""The rows of `bench_operations.py`: at least one layer of each operation, large enough to be worth timing.

A row is one operation between Parameters, constants and Results. Values are seeded and of ordinary size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

F32, F16, I32, I64, U8, I8 = np.float32, np.float16, np.int32, np.int64, np.uint8, np.int8
BOOL = np.bool_
RANDOM = np.random.default_rng(7)

MAPS = (1, 64, 128, 128)
"""Feature maps of a million elements."""


@dataclass
class Row:
    """A layer to be timed."""

    kind: str
    version: str
    name: str
    inputs: list[np.ndarray]
    attributes: dict[str, Any] = field(default_factory=dict)
    constant: tuple[int, ...] = ()
    outputs: tuple[int, ...] | None = None
    """The outputs that get a Result; all where it says nothing."""


ROWS: list[Row] = []
"""The rows made so far."""


def row(
    kind: str, version: int, name: str, inputs: Sequence[Any], constant: Sequence[int] = (), outputs=None, **attributes
):
    """Add a row; attributes are those of the layer."""
    arrays = [np.asarray(value) for value in inputs]
    ROWS.append(Row(kind, f"opset{version}", name, arrays, attributes, tuple(constant), outputs))


def normal(*shape: int, dtype: Any = F32, scale: float = 1.0) -> np.ndarray:
    """Normal values; small integers, not zero, for integer types."""
    dtype = np.dtype(dtype)
    if dtype == BOOL:
        return RANDOM.random(shape) < 0.5
    if dtype.kind == "u":
        return RANDOM.integers(1, 250, shape).astype(dtype)
    if dtype.kind == "i":
        return (RANDOM.integers(1, 100, shape) * RANDOM.choice([-1, 1], shape)).astype(dtype)
    return (RANDOM.standard_normal(shape, F32) * F32(scale)).astype(dtype)


def uniform(low: float, high: float, *shape: int, dtype: Any = F32) -> np.ndarray:
    return RANDOM.uniform(low, high, shape).astype(dtype)


def draw(size: int, *shape: int, dtype: Any = I64) -> np.ndarray:
    """Indices below `size`."""
    return RANDOM.integers(0, size, shape).astype(dtype)


def ints(*values: int, dtype: Any = I64) -> np.ndarray:
    return np.array(values, dtype)


def scalar(value: Any, dtype: Any = I64) -> np.ndarray:
    return np.array(value, dtype)


def corners(*lead: int, size: float = 1.0, extent: float = 0.2) -> np.ndarray:
    """Boxes [..., 4] by their corners in a square."""
    low = RANDOM.uniform(0, 1 - extent, (*lead, 2))
    return (np.concatenate([low, low + RANDOM.uniform(0.02, extent, (*lead, 2))], -1) * size).astype(F32)


def scores(*shape: int) -> np.ndarray:
    """Distinct values between 0 and 1."""
    count = int(np.prod(shape))
    return ((RANDOM.permutation(count) + 0.5) / count).reshape(shape).astype(F32)


def unary() -> None:
    for kind, version in {
        "Abs": 1, "Acosh": 4, "Asinh": 4, "Atan": 1, "Ceiling": 1, "Cos": 1, "Cosh": 1, "Erf": 1, "Exp": 1,
        "Floor": 1, "HSigmoid": 5, "HSwish": 4, "Mish": 4, "Negative": 1, "ReLU": 1, "Sigmoid": 1, "Sign": 1, "Sin": 1,
        "Sinh": 1, "SoftPlus": 4, "SoftSign": 9, "Tan": 1, "Tanh": 1, "IsFinite": 10, "IsNaN": 10, "Identity": 16,
    }.items():  # fmt: skip
        values = uniform(1.0, 5.0, *MAPS) if kind == "Acosh" else normal(*MAPS)
        row(kind, version, "f32", [values])
    for kind, version in {"Acos": 1, "Asin": 1, "Atanh": 4, "ErfInv": 17}.items():
        row(kind, version, "f32", [uniform(-0.99, 0.99, *MAPS)])
    for kind, version in {"Log": 1, "Sqrt": 1}.items():
        row(kind, version, "f32", [uniform(0.1, 9.0, *MAPS)])
    for kind in ("Abs", "Negative", "Sign", "ReLU", "Floor"):
        for dtype in (I32, I64):
            row(kind, 1, np.dtype(dtype).name, [normal(*MAPS, dtype=dtype)])
    for kind, version in {"Exp": 1, "Tanh": 1, "Sigmoid": 1}.items():
        row(kind, version, "f16", [normal(*MAPS, dtype=F16)])
    for mode in ("half_to_even", "half_away_from_zero"):
        row("Round", 5, mode, [normal(*MAPS, scale=9)], mode=mode)
    row("IsInf", 10, "f32", [normal(*MAPS)], detect_negative=True, detect_positive=True)
    for dtype in (F32, I32, I64, U8):
        row("Clamp", 1, np.dtype(dtype).name, [normal(*MAPS, dtype=dtype)], min=0.0, max=6.0)
    row("Elu", 1, "f32", [normal(*MAPS)], alpha=1.0)
    row("Gelu", 7, "erf", [normal(*MAPS)], approximation_mode="ERF")
    row("Gelu", 7, "tanh", [normal(*MAPS)], approximation_mode="TANH")
    row("Swish", 4, "f32", [normal(*MAPS)])
    row("HardSigmoid", 1, "f32", [normal(*MAPS), scalar(0.2, F32), scalar(0.5, F32)], (1, 2))
    row("Selu", 1, "f32", [normal(*MAPS), scalar(1.67, F32), scalar(1.05, F32)], (1, 2))
    row("PReLU", 1, "channel", [normal(*MAPS), normal(64)], (1,))
    row("PReLU", 1, "scalar", [normal(*MAPS), normal(1)], (1,))
    row("LogicalNot", 1, "boolean", [normal(*MAPS, dtype=BOOL)])
    for dtype in (I32, I64, U8, BOOL):
        row("BitwiseNot", 13, np.dtype(dtype).name, [normal(*MAPS, dtype=dtype)])


def binary() -> None:
    shared = ("Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum", "Mod", "FloorMod", "SquaredDifference")
    for kind in shared:
        for dtype in (F32, I32, I64, U8):
            if kind == "Subtract" and dtype == U8:
                continue
            row(kind, 1, np.dtype(dtype).name, [normal(*MAPS, dtype=dtype), normal(*MAPS, dtype=dtype)])
        row(kind, 1, "f32 channel", [normal(*MAPS), normal(1, 64, 1, 1)])
        row(kind, 1, "f32 outer", [normal(1, 64, 128, 1), normal(1, 64, 1, 128)])
    row("Power", 1, "f32", [uniform(0.1, 4, *MAPS), normal(*MAPS)])
    row("Power", 1, "f32 0.5", [uniform(0.1, 4, *MAPS), scalar(0.5, F32)], (1,))
    row("Power", 1, "f32 1.7", [uniform(0.1, 4, *MAPS), scalar(1.7, F32)], (1,))
    row("Power", 1, "i32", [normal(*MAPS, dtype=I32), draw(4, *MAPS, dtype=I32)])
    for kind in ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"):
        for dtype in (F32, I32, I64, U8):
            row(kind, 1, np.dtype(dtype).name, [normal(*MAPS, dtype=dtype), normal(*MAPS, dtype=dtype)])
        row(kind, 1, "f32 scalar", [normal(*MAPS), scalar(0.5, F32)], (1,))
    for kind in ("LogicalAnd", "LogicalOr", "LogicalXor", "Xor"):
        row(kind, 1, "boolean", [normal(*MAPS, dtype=BOOL), normal(*MAPS, dtype=BOOL)])
    for kind in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        for dtype in (I32, I64, U8, BOOL):
            row(kind, 13, np.dtype(dtype).name, [normal(*MAPS, dtype=dtype), normal(*MAPS, dtype=dtype)])
    for kind in ("BitwiseLeftShift", "BitwiseRightShift"):
        for dtype in (I32, I64, U8):
            row(kind, 15, np.dtype(dtype).name, [np.abs(normal(*MAPS, dtype=dtype)), draw(5, *MAPS, dtype=dtype)])
    condition = normal(*MAPS, dtype=BOOL)
    for dtype in (F32, I64, U8, F16):
        row("Select", 1, np.dtype(dtype).name, [condition, normal(*MAPS, dtype=dtype), normal(*MAPS, dtype=dtype)])
    row("Select", 1, "f32 mask", [normal(1, 1, 128, 128, dtype=BOOL), normal(*MAPS), scalar(-1e4, F32)], (2,))


def types() -> None:
    pairs = (
        (F32, "i32"), (F32, "i64"), (F32, "u8"), (F32, "i8"), (F32, "f16"), (F32, "boolean"), (F32, "f64"), (F16, "f32"),
        (F16, "i32"), (I32, "f32"), (I32, "i64"), (I32, "u8"), (I64, "f32"), (I64, "i32"), (I64, "u8"), (I64, "boolean"),
        (U8, "f32"), (U8, "i32"), (U8, "i64"), (U8, "f16"), (I8, "f32"), (I8, "i32"), (BOOL, "f32"), (BOOL, "i32"),
        (BOOL, "i64"), (np.uint16, "f32"), (np.int16, "f32"), (np.uint32, "f32"), (np.float64, "f32"),
    )  # fmt: skip
    for source, target in pairs:
        values = normal(*MAPS, dtype=source, scale=20)
        row("Convert", 1, f"{np.dtype(source).name} {target}", [np.abs(values)], destination_type=target)
    row("ConvertLike", 1, "f32 i32", [normal(*MAPS), ints(1, dtype=I32)], (1,))
    inputs = [normal(*MAPS), normal(*MAPS, dtype=I32)]
    row("ConvertPromoteTypes", 14, "f32 i32", inputs, promote_unsafe=True, pytorch_scalar_promotion=False)


def reductions() -> None:
    kinds = {
        "ReduceSum": 1,
        "ReduceMean": 1,
        "ReduceMax": 1,
        "ReduceMin": 1,
        "ReduceProd": 1,
        "ReduceL1": 4,
        "ReduceL2": 4,
    }
    places = {"last": [3], "middle": [1], "plane": [2, 3], "all": [0, 1, 2, 3], "first": [0, 1]}
    for kind, version in kinds.items():
        for name, axes in places.items():
            row(kind, version, f"f32 {name}", [uniform(0.99, 1.01, *MAPS), ints(*axes)], (1,), keep_dims=True)
        for dtype in (I32, I64):
            for name in ("last", "middle") if kind != "ReduceL2" else ():
                values = RANDOM.choice([-1, 1], MAPS).astype(dtype)
                row(
                    kind, version, f"{np.dtype(dtype).name} {name}", [values, ints(*places[name])], (1,), keep_dims=True
                )
    for kind in ("ReduceLogicalAnd", "ReduceLogicalOr"):
        for name in ("last", "middle", "all"):
            row(kind, 1, name, [normal(*MAPS, dtype=BOOL), ints(*places[name])], (1,), keep_dims=False)
    for name, axis in {"last": 3, "middle": 1}.items():
        row("CumSum", 3, f"f32 {name}", [normal(*MAPS), scalar(axis)], (1,), exclusive=False, reverse=False)
        row("CumSum", 3, f"i64 {name}", [draw(3, *MAPS), scalar(axis)], (1,), exclusive=True, reverse=True)
        row("SoftMax", 8, name, [normal(*MAPS)], axis=axis)
        row("LogSoftmax", 5, name, [normal(*MAPS)], axis=axis)
    segments = np.sort(draw(64, 4096))
    row("SegmentMax", 16, "rows", [normal(4096, 256), segments, scalar(64)], (1, 2), fill_mode="ZERO")


def normalization() -> None:
    row("LRN", 1, "channels", [normal(*MAPS), ints(1)], (1,), alpha=1e-4, beta=0.75, bias=1.0, size=5)
    row("LRN", 1, "plane", [normal(1, 16, 64, 64), ints(2, 3)], (1,), alpha=1e-4, beta=0.75, bias=1.0, size=5)
    row("GRN", 1, "f32", [normal(*MAPS)], bias=1e-3)
    for name, axes in {"plane": [2, 3], "all": [1, 2, 3], "last": [3], "channels": [1]}.items():
        mvn = {"normalize_variance": True, "eps": 1e-6, "eps_mode": "inside_sqrt"}
        row("MVN", 6, name, [normal(*MAPS), ints(*axes)], (1,), **mvn)
        if name != "all":
            row("NormalizeL2", 1, name, [normal(*MAPS), ints(*axes)], (1,), eps=1e-6, eps_mode="add")
    row("GroupNormalization", 12, "f32", [normal(*MAPS), normal(64), normal(64)], (1, 2), num_groups=8, epsilon=1e-5)
    parameters = [uniform(0.5, 2, 64) for _ in range(4)]
    row("BatchNormInference", 5, "f32", [normal(*MAPS), *parameters], (1, 2, 3, 4), epsilon=1e-5)
    limits = [scalar(v, F32) for v in (-2, 2, -2, 2)]
    row("FakeQuantize", 1, "tensor", [normal(*MAPS), *limits], (1, 2, 3, 4), levels=256)
    limits = [v * uniform(1, 2, 1, 64, 1, 1) for v in (-2, 2, -2, 2)]
    row("FakeQuantize", 1, "channel", [normal(*MAPS), *limits], (1, 2, 3, 4), levels=256)
    for kind in ("f8e4m3", "f8e5m2"):
        inputs = [normal(*MAPS), uniform(1, 2, 1, 64, 1, 1)]
        row("FakeConvert", 13, kind, inputs, (1,), destination_type=kind)


def movement() -> None:
    row("Transpose", 1, "NCHW NHWC", [normal(*MAPS), ints(0, 2, 3, 1)], (1,))
    row("Transpose", 1, "NHWC NCHW", [normal(1, 128, 128, 64), ints(0, 3, 1, 2)], (1,))
    row("Transpose", 1, "u8 heads", [normal(1, 1024, 16, 64, dtype=U8), ints(0, 2, 1, 3)], (1,))
    row("Transpose", 1, "matrix", [normal(1024, 1024), ints(1, 0)], (1,))
    for axis in (0, 1, 3):
        row("Concat", 1, f"axis {axis}", [normal(*MAPS), normal(*MAPS)], axis=axis)
        if axis:
            row("Split", 1, f"axis {axis}", [normal(*MAPS), scalar(axis)], (1,), num_splits=4)
            row("VariadicSplit", 1, f"axis {axis}", [normal(*MAPS), scalar(axis), ints(16, -1)], (1, 2))
            row("Reverse", 1, f"axis {axis}", [normal(*MAPS), ints(axis)], (1,), mode="index")
            row("Roll", 7, f"axis {axis}", [normal(*MAPS), ints(5), ints(axis)], (1, 2))
            row("Gather", 8, f"axis {axis}", [normal(*MAPS), draw(64, 64), scalar(axis)], (2,), batch_dims=0)
            index = draw(MAPS[axis], *MAPS, dtype=I32)
            row("GatherElements", 6, f"axis {axis}", [normal(*MAPS), index], axis=axis)
    row("Reverse", 1, "axes", [normal(*MAPS), ints(2, 3)], (1,), mode="index")
    row("Roll", 7, "planes", [normal(*MAPS), ints(3, -3), ints(2, 3)], (1, 2))
    row("Gather", 8, "embedding", [normal(32000, 256), draw(32000, 4096), scalar(0)], (2,), batch_dims=0)
    row("Gather", 8, "embedding u8", [normal(32000, 256, dtype=U8), draw(32000, 4096), scalar(0)], (2,), batch_dims=0)
    row("GatherND", 8, "pairs", [normal(512, 512, 16), draw(512, 40000, 2)], batch_dims=0)
    row("ReverseSequence", 1, "f32", [normal(64, 128, 128), draw(128, 64) + 1], batch_axis=0, seq_axis=1)
    for dtype in (F32, U8):
        row("Tile", 1, f"{np.dtype(dtype).name} rows", [normal(1024, 64, dtype=dtype), ints(1, 16)], (1,))
        row("Tile", 1, f"{np.dtype(dtype).name} elements", [normal(1024, 1, dtype=dtype), ints(4, 256)], (1,))
        row(
            "Broadcast",
            3,
            f"{np.dtype(dtype).name}",
            [normal(1, 64, 1, 128, dtype=dtype), ints(*MAPS)],
            (1,),
            mode="numpy",
        )
    for mode in ("constant", "edge", "reflect", "symmetric"):
        inputs = [normal(*MAPS), ints(0, 0, 3, 3), ints(0, 0, 3, 3), scalar(0, F32)]
        row(
            "Pad",
            12,
            mode,
            inputs[: 4 if mode == "constant" else 3],
            (1, 2, 3)[: 3 if mode == "constant" else 2],
            pad_mode=mode,
        )
    slices = {
        "step": ([0, 0, 0, 0], [1, 64, 128, 128], [1, 1, 2, 2]),
        "back": ([0, 63, 127, 0], [1, -65, -129, 128], [1, -1, -1, 1]),
    }
    for name, (starts, stops, steps) in slices.items():
        row("Slice", 8, name, [normal(*MAPS), ints(*starts), ints(*stops), ints(*steps)], (1, 2, 3))
    masks = {
        "begin_mask": [0] * 4,
        "end_mask": [0] * 4,
        "new_axis_mask": [],
        "shrink_axis_mask": [],
        "ellipsis_mask": [],
    }
    row(
        "StridedSlice",
        1,
        "step",
        [normal(*MAPS), ints(0, 0, 1, 1), ints(1, 64, 128, 128), ints(1, 2, 1, 2)],
        (1, 2, 3),
        **masks,
    )
    update = [normal(*MAPS), normal(1, 64, 64, 128), ints(0), ints(128), ints(2), ints(2)]
    row("SliceScatter", 15, "step", update, (2, 3, 4, 5))
    for mode in ("blocks_first", "depth_first"):
        row("DepthToSpace", 1, mode, [normal(*MAPS)], mode=mode, block_size=2)
        row("SpaceToDepth", 1, mode, [normal(*MAPS)], mode=mode, block_size=2)
    row("ShuffleChannels", 1, "f32", [normal(*MAPS)], axis=1, group=4)
    row(
        "BatchToSpace",
        2,
        "f32",
        [normal(4, 64, 64, 64), ints(1, 1, 2, 2), ints(0, 0, 0, 0), ints(0, 0, 0, 0)],
        (1, 2, 3),
    )
    row("SpaceToBatch", 2, "f32", [normal(*MAPS), ints(1, 1, 2, 2), ints(0, 0, 0, 0), ints(0, 0, 0, 0)], (1, 2, 3))
    row(
        "ExtractImagePatches",
        3,
        "f32",
        [normal(1, 16, 128, 128)],
        sizes=[3, 3],
        strides=[1, 1],
        rates=[1, 1],
        auto_pad="same_upper",
    )
    folding = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
    row("Col2Im", 15, "f32", [normal(1, 144, 4096), ints(64, 64), ints(3, 3)], (1, 2), **folding)
    row("ReorgYolo", 2, "f32", [normal(*MAPS)], stride=[2])
    row("OneHot", 1, "f32", [draw(1000, 4096), scalar(1000), scalar(1, F32), scalar(0, F32)], (1, 2, 3), axis=-1)
    row("OneHot", 1, "axis 1", [draw(256, 64, 128), scalar(256), scalar(1, F32), scalar(0, F32)], (1, 2, 3), axis=1)
    row("Range", 4, "f32", [scalar(0, F32), scalar(1e6, F32), scalar(1, F32)], output_type="f32")
    row("Range", 4, "i64", [scalar(0), scalar(1000000), scalar(1)], output_type="i64")
    row("Eye", 9, "f32", [scalar(1024), scalar(1024), scalar(0)], (2,), output_type="f32")
    row("NonZero", 3, "boolean", [normal(512, 1024, dtype=BOOL)], output_type="i64")
    row("NonZero", 3, "f32 4-D", [(normal(*MAPS) > 1.5).astype(F32)], output_type="i64")
    row("Unique", 10, "flat", [draw(5000, 100000)], sorted=True, index_element_type="i64", count_element_type="i64")
    row(
        "Unique", 10, "unsorted", [draw(5000, 100000)], sorted=False, index_element_type="i64", count_element_type="i64"
    )
    index = draw(32, 1, 64, 32, 128, dtype=I32)
    row(
        "ScatterElementsUpdate",
        12,
        "none",
        [normal(*MAPS), index, normal(*index.shape), scalar(2)],
        (3,),
        reduction="none",
        use_init_val=True,
    )
    row("ScatterUpdate", 3, "rows", [normal(4096, 256), np.sort(draw(4096, 512)), normal(512, 256), scalar(0)], (3,))
    row("ScatterNDUpdate", 4, "rows", [normal(4096, 256), draw(4096, 512, 1), normal(512, 256)])
    for kind, shape in {"Reshape": [64, -1], "Squeeze": [0], "Unsqueeze": [0]}.items():
        row(
            kind,
            1,
            "f32",
            [normal(*MAPS), ints(*shape)],
            (1,),
            **({"special_zero": False} if kind == "Reshape" else {}),
        )
    row("ShapeOf", 3, "f32", [normal(*MAPS)], output_type="i64")


def search() -> None:
    for name, shape, axis, count in (
        ("last", (256, 4096), 1, 40),
        ("middle", (64, 256, 64), 1, 1),
        ("one", (1, 200000), 1, 1000),
    ):
        for mode in ("max", "min"):
            top = {"axis": axis, "mode": mode, "sort": "value", "index_element_type": "i32"}
            row("TopK", 11, f"{name} {mode} {count}", [normal(*shape), scalar(count)], (1,), stable=False, **top)
    row("Bucketize", 3, "f32", [normal(*MAPS), np.sort(normal(32))], (1,), output_type="i64", with_right_bound=True)
    row(
        "Bucketize",
        3,
        "i32",
        [normal(*MAPS, dtype=I32), ints(-50, 0, 10, 50, dtype=I32)],
        (1,),
        output_type="i32",
        with_right_bound=False,
    )
    row(
        "SearchSorted",
        15,
        "rows",
        [np.sort(normal(64, 1024), -1), normal(64, 4096)],
        right_mode=False,
        output_type="i64",
    )
    row(
        "GatherTree",
        1,
        "f32",
        [draw(100, 64, 64, 16, dtype=F32), draw(16, 64, 64, 16, dtype=F32), np.full(64, 60, F32), scalar(1, F32)],
    )
    row(
        "GatherTree",
        1,
        "i32",
        [draw(100, 64, 64, 16, dtype=I32), draw(16, 64, 64, 16, dtype=I32), np.full(64, 60, I32), scalar(1, I32)],
    )


def embedding() -> None:
    table, indices, offsets = normal(20000, 128), draw(20000, 8192), np.arange(0, 8192, 8)
    row("EmbeddingBagOffsetsSum", 3, "plain", [table, indices, offsets])
    row("EmbeddingBagOffsetsSum", 3, "weights", [table, indices, offsets, scalar(0), normal(8192)], (3,))
    row("EmbeddingBagOffsets", 15, "mean", [table, indices, offsets], reduction="mean")
    row("EmbeddingBagPackedSum", 3, "weights", [table, indices.reshape(-1, 8), normal(1024, 8)])
    row("EmbeddingBagPacked", 15, "mean", [table, indices.reshape(-1, 8)], reduction="mean")
    row("EmbeddingSegmentsSum", 3, "plain", [table, indices, np.arange(8192) // 8, scalar(1024)], (3,))
    filled = np.stack([np.repeat(np.arange(0, 4000, 2), 2), np.tile([0, 1], 2000)], -1)
    row("SparseFillEmptyRows", 16, "f32", [normal(4000), ints(4000, 8), filled, scalar(0, F32)])


def pooling() -> None:
    window = {
        "strides": [2, 2],
        "pads_begin": [1, 1],
        "pads_end": [1, 1],
        "kernel": [3, 3],
        "auto_pad": "explicit",
        "rounding_type": "floor",
    }
    row("MaxPool", 1, "f32", [normal(*MAPS)], **window)
    for version in (8, 14):
        facts = {"dilations": [1, 1], "index_element_type": "i64", "axis": 0}
        row("MaxPool", version, "indices", [normal(*MAPS)], **window, **facts)
        row("MaxPool", version, "dilated", [normal(*MAPS)], outputs=(0,), **window, **{**facts, "dilations": [2, 2]})
    cube = {**window, "strides": [1, 1, 1], "pads_begin": [1] * 3, "pads_end": [1] * 3, "kernel": [3] * 3}
    row("MaxPool", 1, "3-D", [normal(1, 16, 32, 48, 48)], **cube)
    row("MaxPool", 1, "u8", [normal(*MAPS, dtype=U8)], **window)
    pool = {key: value for key, value in window.items()}
    row("AvgPool", 1, "f32", [normal(*MAPS)], **pool, **{"exclude-pad": True})
    row("AvgPool", 1, "3-D", [normal(1, 16, 32, 48, 48)], **cube, **{"exclude-pad": False})
    for kind in ("AdaptiveAvgPool", "AdaptiveMaxPool"):
        facts = {"index_element_type": "i32"} if kind == "AdaptiveMaxPool" else {}
        for size in (1, 7, 50):
            row(kind, 8, f"{size}", [normal(*MAPS), ints(size, size)], (1,), **facts)


def images() -> None:
    for mode in ("nearest", "linear_onnx", "linear", "cubic"):
        for dtype in (F32, U8):
            for name, size in {"up": [160, 200], "down": [48, 40]}.items():
                facts = {
                    "coordinate_transformation_mode": "half_pixel",
                    "nearest_mode": "round_prefer_floor",
                    "shape_calculation_mode": "sizes",
                }
                facts |= {"antialias": False, "pads_begin": [0], "pads_end": [0], "cube_coeff": -0.75}
                channels = 8 if mode == "linear" else 32
                inputs = [normal(1, channels, 96, 96, dtype=dtype), ints(*size), np.array(size, F32) / 96, ints(2, 3)]
                row("Interpolate", 4, f"{mode} {np.dtype(dtype).name} {name}", inputs, (1, 2, 3), mode=mode, **facts)
    for mode in ("bilinear_pillow", "bicubic_pillow"):
        for dtype in (F32, U8):
            facts = {
                "coordinate_transformation_mode": "half_pixel",
                "nearest_mode": "floor",
                "shape_calculation_mode": "sizes",
            }
            facts |= {"antialias": False, "pads_begin": [0], "pads_end": [0], "cube_coeff": -0.5}
            inputs = [normal(1, 3, 480, 640, dtype=dtype), ints(224, 224), ints(2, 3)]
            row("Interpolate", 11, f"{mode} {np.dtype(dtype).name}", inputs, (1, 2), mode=mode, **facts)
    hwc = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor", "shape_calculation_mode": "sizes"}
    hwc |= {"antialias": False, "pads_begin": [0], "pads_end": [0], "cube_coeff": -0.75}
    inputs = [normal(1, 480, 640, 3, dtype=U8), ints(224, 224), np.array([224 / 480, 224 / 640], F32), ints(1, 2)]
    row("Interpolate", 4, "linear_onnx u8 NHWC", inputs, (1, 2, 3), mode="linear_onnx", **hwc)
    inputs = [normal(1, 480, 640, 3), *inputs[1:]]
    row("Interpolate", 4, "linear_onnx f32 NHWC", inputs, (1, 2, 3), mode="linear_onnx", **hwc)
    for mode in ("bilinear", "nearest", "bicubic"):
        inputs = [normal(1, 32, 64, 64), uniform(-1.1, 1.1, 1, 96, 96, 2)]
        row("GridSample", 9, mode, inputs, align_corners=False, mode=mode, padding_mode="zeros")
    for kind in ("NV12", "I420"):
        for order in ("RGB", "BGR"):
            planes = (
                [(1, 480, 640, 1), (1, 240, 320, 2)]
                if kind == "NV12"
                else [(1, 480, 640, 1), (1, 240, 320, 1), (1, 240, 320, 1)]
            )
            for dtype in (U8, F32):
                full = [RANDOM.integers(0, 256, shape).astype(dtype) for shape in planes]
                row(f"{kind}to{order}", 8, f"{np.dtype(dtype).name}", full)
            row(f"{kind}to{order}", 8, "u8 one plane", [RANDOM.integers(0, 256, (1, 720, 640, 1)).astype(U8)])
    for order in ("RGB", "BGR"):
        row(f"{order}toNV12", 17, "u8", [RANDOM.integers(0, 256, (1, 480, 640, 3)).astype(U8)], single_plane=False)


def signals() -> None:
    for size in (256, 400, 240, 251):
        row("DFT", 7, f"{size}", [normal(512, size, 2), ints(1)], (1,))
        row("IDFT", 7, f"{size}", [normal(512, size, 2), ints(1)], (1,))
        row("RDFT", 9, f"{size}", [normal(512, size), ints(1)], (1,))
        row("IRDFT", 9, f"{size}", [normal(512, size // 2 + 1, 2), ints(1), ints(size)], (1, 2))
    row("DFT", 7, "planes", [normal(8, 128, 128, 2), ints(1, 2)], (1,))
    row("RDFT", 9, "planes", [normal(16, 128, 128), ints(1, 2)], (1,))
    row("IRDFT", 9, "planes", [normal(16, 128, 65, 2), ints(1, 2)], (1,))
    for size, step in ((512, 128), (400, 160)):
        row(
            "STFT",
            15,
            f"{size}",
            [normal(4, 64000), uniform(0.1, 1, size), scalar(size), scalar(step)],
            (1, 2, 3),
            transpose_frames=True,
        )
    row(
        "ISTFT",
        16,
        "512",
        [normal(4, 257, 500, 2), uniform(0.1, 1, 512), scalar(512), scalar(128)],
        (1, 2, 3),
        center=True,
        normalized=False,
    )


def products() -> None:
    plain = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "auto_pad": "explicit"}
    row("Convolution", 1, "3x3", [normal(1, 64, 56, 56), normal(64, 64, 3, 3)], (1,), **plain)
    row("GroupConvolution", 1, "depthwise", [normal(*MAPS), normal(64, 1, 1, 3, 3)], (1,), **plain)
    doubled = {**plain, "strides": [2, 2], "output_padding": [0, 0], "pads_begin": [0, 0], "pads_end": [0, 0]}
    row("ConvolutionBackpropData", 1, "2x2", [normal(1, 64, 56, 56), normal(64, 64, 2, 2)], (1,), **doubled)
    row("GroupConvolutionBackpropData", 1, "2x2", [normal(1, 64, 56, 56), normal(4, 16, 16, 2, 2)], (1,), **doubled)
    inputs = [normal(1, 64, 28, 28), normal(1, 18, 28, 28, scale=0.5), normal(64, 64, 3, 3)]
    facts = {**plain, "group": 1, "deformable_group": 1}
    row("DeformableConvolution", 8, "plain", inputs, (2,), bilinear_interpolation_pad=False, **facts)
    row(
        "DeformableConvolution",
        8,
        "mask",
        [*inputs, uniform(0, 1, 1, 9, 28, 28)],
        (2,),
        bilinear_interpolation_pad=True,
        **facts,
    )
    row("DeformableConvolution", 1, "plain", inputs, (2,), **facts)
    row("MatMul", 1, "square", [normal(512, 512), normal(512, 512)], transpose_a=False, transpose_b=False)
    row(
        "MatMul",
        1,
        "i32",
        [normal(128, 128, dtype=I32), normal(128, 128, dtype=I32)],
        transpose_a=False,
        transpose_b=False,
    )
    for equation, shapes in {
        "abc,acd->abd": [(8, 128, 64), (8, 64, 128)],
        "bhwc,hkc->bhwk": [(4, 32, 32, 64), (32, 32, 64)],
        "ij,j->i": [(1024, 1024), (1024,)],
        "abc->cab": [(64, 128, 128)],
        "aab->ab": [(64, 64, 128)],
        "i,j->ij": [(1024,), (1024,)],
        "bnqd,bnkd->bnqk": [(1, 8, 128, 64), (1, 8, 128, 64)],
    }.items():
        row("Einsum", 7, equation, [normal(*shape) for shape in shapes], equation=equation)
    row("Inverse", 14, "f32", [normal(32, 64, 64)], adjoint=False)
    attention = [normal(1, 8, 256, 64) for _ in range(3)]
    row("ScaledDotProductAttention", 13, "f32", attention, causal=False)
    row("GroupedMatMul", 17, "f32", [normal(512, 128), normal(8, 64, 128), np.arange(64, 513, 64, dtype=I32)], (2,))


def recurrent() -> None:
    batch, steps, size, hidden = 8, 40, 64, 128
    facts = {"hidden_size": hidden, "activations_alpha": [], "activations_beta": [], "clip": 0.0}
    for kind, gates, states in (("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1)):
        acts = {4: ["sigmoid", "tanh", "tanh"], 3: ["sigmoid", "tanh"], 1: ["tanh"]}[gates]
        extra = {"linear_before_reset": False} if kind == "GRU" else {}
        weights = [
            normal(gates * hidden, size, scale=0.1),
            normal(gates * hidden, hidden, scale=0.1),
            normal(gates * hidden, scale=0.1),
        ]
        start = [normal(batch, hidden) for _ in range(states)]
        last = 1 + states
        row(
            f"{kind}Cell",
            4 if kind == "LSTM" else 3 if kind == "GRU" else 1,
            "f32",
            [normal(batch, size), *start, *weights],
            (last, last + 1, last + 2),
            activations=acts,
            **facts,
            **extra,
        )
        start = [normal(batch, 1, hidden) for _ in range(states)]
        inputs = [normal(batch, steps, size), *start, np.full(batch, steps, I32), *[w[None] for w in weights]]
        row(
            f"{kind}Sequence",
            5,
            "f32",
            inputs,
            (last, last + 1, last + 2, last + 3),
            direction="forward",
            activations=acts,
            **facts,
            **extra,
        )
    data, mask = normal(200, 4, 100), np.ones((200, 4), F32)
    row("CTCGreedyDecoder", 1, "f32", [data, mask], ctc_merge_repeated=True)
    kinds = {"classes_index_type": "i32", "sequence_length_type": "i32"}
    row("CTCGreedyDecoderSeqLen", 6, "f32", [normal(4, 200, 100), np.full(4, 200, I32)], merge_repeated=True, **kinds)
    lengths = [np.full(8, 64, I32), draw(31, 8, 64, dtype=I32), np.full(8, 20, I32), scalar(31, I32)]
    loss = {"preprocess_collapse_repeated": False, "ctc_merge_repeated": True, "unique": False}
    row("CTCLoss", 4, "f32", [normal(8, 64, 32), *lengths], **loss)


def generation() -> None:
    for kind, dtype in (("f32", F32), ("i32", I32), ("i64", I64)):
        inputs = [ints(*MAPS), scalar(0, dtype), scalar(100, dtype)]
        row(
            "RandomUniform",
            8,
            kind,
            inputs,
            (0, 1, 2),
            output_type=kind,
            op_seed=3,
            global_seed=5,
            alignment="tensorflow",
        )
    inputs = [ints(*MAPS), scalar(0, F32), scalar(1, F32)]
    row(
        "RandomUniform",
        8,
        "pytorch",
        inputs,
        (0, 1, 2),
        output_type="f32",
        op_seed=3,
        global_seed=5,
        alignment="pytorch",
    )
    facts = {"convert_type": "i32", "log_probs": False, "global_seed": 1, "op_seed": 2}
    row("Multinomial", 13, "replaced", [uniform(0.1, 1, 64, 1000), scalar(64)], (1,), with_replacement=True, **facts)
    row("Multinomial", 13, "kept", [uniform(0.1, 1, 64, 1000), scalar(64)], (1,), with_replacement=False, **facts)


def regions() -> None:
    rois = np.concatenate([np.zeros((300, 1), F32), corners(300, size=600, extent=0.5)], 1)
    for method in ("max", "bilinear"):
        given = rois if method == "max" else rois / np.array([1, 600, 600, 600, 600], F32)
        facts = {"pooled_h": 7, "pooled_w": 7, "output_size": [7, 7], "output_roi": [7, 7], "spatial_scale": 1 / 16}
        row("ROIPooling", 2, method, [normal(1, 256, 38, 38), given.astype(F32)], method=method, **facts)
    position = {"output_dim": 21, "group_size": 7, "spatial_scale": 1 / 16}
    row(
        "PSROIPooling",
        1,
        "average",
        [normal(1, 1029, 38, 38), rois],
        mode="average",
        spatial_bins_x=1,
        spatial_bins_y=1,
        **position,
    )
    given = (rois / np.array([1, 600, 600, 600, 600])).astype(F32)
    bins = {
        "output_dim": 21,
        "group_size": 3,
        "spatial_scale": 1.0,
        "mode": "bilinear",
        "spatial_bins_x": 2,
        "spatial_bins_y": 2,
    }
    row("PSROIPooling", 1, "bilinear", [normal(1, 84, 38, 38), given], **bins)
    deformable = {
        **position,
        "mode": "bilinear_deformable",
        "spatial_bins_x": 4,
        "spatial_bins_y": 4,
        "trans_std": 0.1,
        "part_size": 7,
    }
    row("DeformablePSROIPooling", 1, "f32", [normal(1, 1029, 38, 38), rois, normal(300, 2, 7, 7)], **deformable)
    boxes, images = corners(300, size=600, extent=0.5), np.zeros(300, I32)
    for mode in ("avg", "max"):
        facts = {
            "pooled_h": 7,
            "pooled_w": 7,
            "sampling_ratio": 2,
            "spatial_scale": 1 / 16,
            "mode": mode,
            "aligned_mode": "half_pixel",
        }
        row("ROIAlign", 9, mode, [normal(1, 256, 38, 38), boxes, images], **facts)
    turned = np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2], normal(300, 1)], 1)
    facts = {"pooled_h": 7, "pooled_w": 7, "sampling_ratio": 2, "spatial_scale": 1 / 16, "clockwise_mode": True}
    row("ROIAlignRotated", 15, "f32", [normal(1, 256, 38, 38), turned, images], **facts)
    pyramid = [normal(1, 256, size, size) for size in (100, 50, 25, 13)]
    facts = {"output_size": 7, "sampling_ratio": 2, "pyramid_scales": [4, 8, 16, 32], "aligned": False}
    row("ExperimentalDetectronROIFeatureExtractor", 6, "f32", [boxes, *pyramid], **facts)
    for kind in (True, False):
        facts = {
            "anchors": [1.0] * 10,
            "axis": 1,
            "coords": 4,
            "classes": 80,
            "end_axis": 3,
            "num": 5 if kind else 3,
            "do_softmax": kind,
        }
        row(
            "RegionYolo",
            1,
            f"softmax {kind}",
            [normal(1, 425 if kind else 255, 52, 52)],
            mask=[] if kind else [0, 1, 2],
            **facts,
        )


def detection() -> None:
    constants = [scalar(200), scalar(0.5, F32), scalar(0.01, F32)]
    for version in (1, 4, 5, 9):
        facts = {"box_encoding": "corner", "sort_result_descending": version > 1} | (
            {"output_type": "i32"} if version > 1 else {}
        )
        row(
            "NonMaxSuppression",
            version,
            "corner",
            [corners(1, 5000), scores(1, 1 if version == 1 else 4, 5000), *constants],
            (2, 3, 4),
            **facts,
        )
    facts = {"box_encoding": "center", "sort_result_descending": True, "output_type": "i64"}
    row(
        "NonMaxSuppression",
        9,
        "many classes",
        [corners(1, 8400), scores(1, 80, 8400), scalar(100), scalar(0.5, F32), scalar(0.9, F32)],
        (2, 3, 4),
        **facts,
    )
    row(
        "NonMaxSuppression",
        9,
        "soft",
        [corners(1, 1000), scores(1, 4, 1000), *constants, scalar(0.5, F32)],
        (2, 3, 4, 5),
        **facts,
    )
    turned = np.concatenate([uniform(0, 40, 1, 500, 2), uniform(1, 9, 1, 500, 2), normal(1, 500, 1)], -1)
    inputs = [turned, scores(1, 4, 500), scalar(100), scalar(0.3, F32), scalar(0.1, F32)]
    row("NMSRotated", 13, "f32", inputs, (2, 3, 4), sort_result_descending=True, output_type="i64", clockwise=True)
    many = [corners(1, 4000), uniform(0, 1, 1, 20, 4000)]
    shared = {
        "sort_result_type": "score",
        "output_type": "i64",
        "sort_result_across_batch": False,
        "background_class": -1,
        "normalized": True,
    }
    shared |= {"nms_top_k": 400, "keep_top_k": 200, "score_threshold": 0.5}
    row("MatrixNms", 8, "f32", many, decay_function="linear", gaussian_sigma=2.0, post_threshold=0.05, **shared)
    row("MulticlassNms", 9, "f32", many, iou_threshold=0.5, nms_eta=1.0, **shared)
    base = {
        "base_size": 16,
        "pre_nms_topn": 6000,
        "post_nms_topn": 300,
        "nms_thresh": 0.7,
        "feat_stride": 16,
        "min_size": 16,
    }
    base |= {
        "ratio": [0.5, 1.0, 2.0],
        "scale": [8.0, 16.0, 32.0],
        "clip_before_nms": True,
        "clip_after_nms": False,
        "normalize": False,
    }
    base |= {"box_size_scale": 1.0, "box_coordinate_scale": 1.0, "framework": ""}
    row(
        "Proposal",
        4,
        "f32",
        [scores(1, 18, 38, 50), normal(1, 36, 38, 50, scale=0.2), np.array([600, 800, 1], F32)],
        (2,),
        **base,
    )
    info, deltas, chances = np.array([800, 800, 1], F32), normal(12, 50, 50, scale=0.2), scores(3, 50, 50)
    facts = {"min_size": 1.0, "nms_threshold": 0.7, "post_nms_count": 1000, "pre_nms_count": 6000}
    grid = corners(50, 50, 3, size=800)
    row(
        "ExperimentalDetectronGenerateProposalsSingleImage",
        6,
        "f32",
        [info, grid.reshape(-1, 4), deltas, chances],
        **facts,
    )
    row(
        "GenerateProposals",
        9,
        "f32",
        [info[None], grid, deltas[None], chances[None]],
        normalized=True,
        nms_eta=1.0,
        roi_num_type="i64",
        **facts,
    )
    row("ExperimentalDetectronTopKROIs", 6, "f32", [corners(4000, size=800), scores(4000)], max_rois=1000)
    facts = {"flatten": True, "h": 0, "w": 0, "stride_x": 0.0, "stride_y": 0.0}
    row(
        "ExperimentalDetectronPriorGridGenerator",
        6,
        "f32",
        [corners(3, size=64), normal(1, 1, 200, 200), normal(1, 1, 800, 800)],
        **facts,
    )
    facts = {
        "score_threshold": 0.05,
        "nms_threshold": 0.5,
        "max_delta_log_wh": 4.135,
        "num_classes": 81,
        "post_nms_count": 2000,
    }
    facts |= {
        "max_detections_per_image": 100,
        "class_agnostic_box_regression": False,
        "deltas_weights": [10.0, 10.0, 5.0, 5.0],
    }
    chances = RANDOM.dirichlet(np.full(81, 0.05), 1000).astype(F32)
    row(
        "ExperimentalDetectronDetectionOutput",
        6,
        "f32",
        [corners(1000, size=800), normal(1000, 324, scale=0.3), chances, np.array([[800, 800, 1]], F32)],
        **facts,
    )
    prior = corners(8732).reshape(1, 1, -1)
    chances = RANDOM.dirichlet(np.full(21, 0.05), 8732).astype(F32).reshape(1, -1)
    facts = {
        "background_label_id": 0,
        "top_k": 400,
        "variance_encoded_in_target": False,
        "keep_top_k": [200],
        "share_location": True,
    }
    facts |= {
        "code_type": "caffe.PriorBoxParameter.CENTER_SIZE",
        "nms_threshold": 0.45,
        "confidence_threshold": 0.01,
        "clip_after_nms": False,
    }
    facts |= {
        "clip_before_nms": False,
        "decrease_label_id": False,
        "normalized": True,
        "input_height": 1,
        "input_width": 1,
        "objectness_score": 0.0,
    }
    row(
        "DetectionOutput",
        8,
        "caffe",
        [normal(1, 8732 * 4, scale=0.3), chances, np.concatenate([prior, np.full_like(prior, 0.1)], 1)],
        **facts,
    )
    facts = {
        "min_size": [10.0],
        "max_size": [20.0],
        "aspect_ratio": [2.0, 3.0],
        "density": [],
        "fixed_ratio": [],
        "fixed_size": [],
        "clip": False,
    }
    facts |= {"flip": True, "step": 0.0, "offset": 0.5, "variance": [0.1, 0.1, 0.2, 0.2], "scale_all_sizes": True}
    row("PriorBox", 8, "f32", [ints(64, 64), ints(512, 512)], min_max_aspect_ratios_order=True, **facts)
    facts = {
        "step": 0.0,
        "step_w": 0.0,
        "step_h": 0.0,
        "width": [8.0] * 6,
        "height": [10.0] * 6,
        "clip": True,
        "offset": 0.5,
    }
    row("PriorBoxClustered", 1, "f32", [ints(64, 64), ints(512, 512)], variance=[0.1, 0.1, 0.2, 0.2], **facts)


def label(*shapes: Sequence[int]) -> str:
    return " ".join("x".join(map(str, shape)) for shape in shapes)


def uneven() -> None:
    """Small layers, most of whose sizes no vector divides."""
    turns = (
        ((32, 7, 96), (0, 2, 1)), ((1, 197, 768), (0, 2, 1)), ((8, 49, 49), (0, 2, 1)), ((1, 50, 12, 64), (0, 2, 1, 3)),
        ((4, 3, 100, 100), (0, 2, 3, 1)), ((4, 100, 100, 5), (0, 3, 1, 2)), ((2, 30, 31, 33), (3, 2, 1, 0)),
        ((1, 255, 13, 13), (0, 2, 3, 1)), ((64, 9, 9, 8), (0, 3, 1, 2)), ((77, 1, 100), (1, 0, 2)),
        ((2, 85, 3, 400), (0, 2, 3, 1)), ((16, 20, 20), (2, 1, 0)),
    )  # fmt: skip
    for shape, order in turns:
        for dtype in (F32, F16):
            name = f"{label(shape)} to {label(order)} {np.dtype(dtype).name}"
            row("Transpose", 1, name, [normal(*shape, dtype=dtype), ints(*order)], (1,))
    lines = (
        ((64, 7), 1), ((1000, 10), 1), ((12, 50, 50), 2), ((12, 197, 197), 2), ((1, 21, 65, 65), 1), ((8, 3, 500), 1),
        ((2, 1000, 3), 1),
    )  # fmt: skip
    best = {"mode": "max", "sort": "none", "index_element_type": "i32", "stable": False}
    for shape, axis in lines:
        name = f"{label(shape)} axis {axis}"
        row("SoftMax", 8, name, [normal(*shape)], axis=axis)
        row("LogSoftmax", 5, name, [normal(*shape)], axis=axis)
        row("TopK", 11, f"{name} best", [normal(*shape), scalar(1)], (1,), outputs=(1,), axis=axis, **best)
        row("CumSum", 3, name, [normal(*shape), scalar(axis)], (1,), exclusive=False, reverse=False)
        for kind in ("ReduceSum", "ReduceMax", "ReduceMean"):
            row(kind, 1, name, [normal(*shape), ints(axis)], (1,), keep_dims=False)
    for kind in ("Atan", "Sinh", "Cosh", "Asinh", "Atanh"):
        opset = 4 if kind in ("Asinh", "Atanh") else 1
        row(kind, opset, "7x3333", [uniform(-0.99, 0.99, 7, 3333)])
    pairs = (
        ((200, 77), (77,)), ((200, 77), (200, 1)), ((200, 1), (1, 77)), ((6, 40, 33), (6, 1, 33)),
        ((2, 19, 30, 31), (19, 1, 1)), ((1, 30, 1, 9), (8, 1, 20, 9)),
    )  # fmt: skip
    for a, b in pairs:
        for dtype in (F32, F16, I32, I64, U8):
            name = f"{label(a, b)} {np.dtype(dtype).name}"
            row("Multiply", 1, name, [normal(*a, dtype=dtype), normal(*b, dtype=dtype)])
        row("Less", 1, label(a, b), [normal(*a), normal(*b)])
        row("Select", 1, label(a, b), [normal(*a, dtype=BOOL), normal(*a), normal(*b)])
    for m, k, n in (
        (7, 33, 50),
        (50, 50, 50),
        (197, 64, 197),
        (3, 1000, 3),
        (1000, 3, 4),
        (33, 257, 65),
        (17, 768, 100),
    ):
        plain = {"transpose_a": False, "transpose_b": False}
        sizes = label((m, k, n))
        row("MatMul", 1, f"{sizes} constant", [normal(m, k), normal(k, n)], (1,), **plain)
        row("MatMul", 1, f"{sizes} batch", [normal(6, m, k), normal(6, k, n)], **plain)
        row("MatMul", 1, f"{sizes} right turned", [normal(m, k), normal(n, k)], **{**plain, "transpose_b": True})
        row("MatMul", 1, f"{sizes} left turned", [normal(3, k, m), normal(3, k, n)], **{**plain, "transpose_a": True})
    planes = (
        (3, 10, 64, 3, 2, 1), (5, 7, 33, 3, 1, 1), (13, 29, 27, 5, 1, 2), (24, 72, 14, 1, 1, 0), (6, 16, 12, 5, 1, 0),
        (30, 40, 17, 7, 3, 3), (2, 2, 100, 9, 1, 4), (1, 1, 200, 3, 1, 1),
    )  # fmt: skip
    for channels, filters, side, size, step, pad in planes:
        facts = {"strides": [step] * 2, "dilations": [1, 1], "pads_begin": [pad] * 2, "pads_end": [pad] * 2}
        inputs = [normal(2, channels, side, side), normal(filters, channels, size, size)]
        name = f"{channels} to {filters} {size}x{size}"
        row("Convolution", 1, name, inputs, (1,), auto_pad="explicit", **facts)
    for groups, each, side in ((3, 2, 64), (8, 2, 40), (50, 2, 14), (19, 1, 33)):
        facts = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
        inputs = [normal(1, groups, side, side), normal(groups, each, 1, 3, 3)]
        row("GroupConvolution", 1, f"{groups} by {each}", inputs, (1,), auto_pad="explicit", **facts)
    for groups, channels, filters, side, size in ((2, 4, 4, 52, 3), (4, 5, 1, 30, 5), (8, 12, 12, 40, 3)):
        facts = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [size // 2] * 2, "pads_end": [size // 2] * 2}
        inputs = [normal(1, groups * channels, side, side), normal(groups, filters, channels, size, size)]
        name = f"{groups} groups {channels} to {filters}"
        row("GroupConvolution", 1, name, inputs, (1,), auto_pad="explicit", **facts)
    for shape in ((16, 16, 384), (12, 50, 192)):
        name = f"{label(shape)} vector"
        plain = {"transpose_a": False, "transpose_b": False}
        row("MatMul", 1, name, [normal(*shape), normal(shape[-1])], **plain)
    for shape, size, step, pad in (((1, 72, 28, 28), 2, 2, 1), ((2, 40, 11, 11), 3, 2, 0), ((1, 64, 17, 28), 2, 1, 0)):
        facts = {"strides": [step] * 2, "pads_begin": [pad] * 2, "pads_end": [pad] * 2, "kernel": [size] * 2}
        facts |= {"rounding_type": "floor", "auto_pad": "explicit"}
        name = f"{label(shape)} {size}x{size}"
        row("AvgPool", 1, name, [normal(*shape)], **facts, **{"exclude-pad": True})
        row("MaxPool", 1, name, [normal(*shape)], **facts)


FAMILIES = {
    fill.__name__: fill
    for fill in (
        unary, binary, types, reductions, normalization, movement, search, embedding, pooling, images, signals,
        products, recurrent, generation, regions, detection, uneven,
    )
}  # fmt: skip
"""The functions that make rows, by name."""


def rows_of(family: str) -> list[Row]:
    """The rows of a family, made now, because their values fill memory."""
    ROWS.clear()
    FAMILIES[family]()
    return list(ROWS)
