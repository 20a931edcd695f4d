"""Layers drawn at random for `bench_operations.py --random`: what lists of chosen sizes do not think of.

A seed always draws the same layers. Sizes are those of small models: channels from 1 to 512, lines from 1 to 112.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from bench_operation_rows import (
    BOOL,
    F16,
    F32,
    I8,
    I32,
    I64,
    ROWS,
    U8,
    Row,
    corners,
    draw,
    ints,
    label,
    normal,
    row,
    scalar,
    scores,
    uniform,
)

CHANNELS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 30, 32, 36, 40, 48, 56, 64, 72, 80, 96, 112, 120, 128, 144, 160, 192,
            224, 256, 320, 384, 512)  # fmt: skip
SIDES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 17, 19, 20, 24, 26, 28, 30, 32, 38, 40, 48, 52, 56, 60, 64, 80, 96,
         112)  # fmt: skip
PRODUCTS = (1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 16, 17, 20, 24, 31, 32, 33, 49, 50, 64, 77, 96, 100, 128, 144, 192, 196, 197,
            256, 300, 384, 512, 768, 1000, 1024)  # fmt: skip

DRAWN = np.random.default_rng(0)
"""Decides what the layers are; their values are `bench_operation_rows`'s."""


def one(*choices: Any) -> Any:
    """One of the choices, which counts as often as it is written."""
    return choices[DRAWN.integers(len(choices))]


def yes() -> bool:
    return bool(one(False, True))


def axis_of(shape: tuple[int, ...]) -> int:
    return int(DRAWN.integers(len(shape)))


def shape_of(rank: int, most: int = 400_000) -> tuple[int, ...]:
    """A shape of at least 64 elements: a batch, channels, lines and a last axis that is as long as channels are."""
    if rank == 1:
        return (one(64, 100, 1000, 5000),)
    while True:
        lines = [one(*SIDES) for _ in range(rank - 2)]
        shape = (one(1, 1, 2, 3, 4, 8, 16), one(*CHANNELS), *lines)
        shape = (*shape[: rank - 1], one(*CHANNELS))
        if 64 <= np.prod(shape) <= most:
            return shape


def window(kernel: list[int], stride: int, dilation: int, pad: int) -> dict[str, Any]:
    """The attributes of a convolution whose axes are alike but for the kernel."""
    rank = len(kernel)
    return {
        "strides": [stride] * rank,
        "dilations": [dilation] * rank,
        "pads_begin": [pad] * rank,
        "pads_end": [pad] * rank,
        "auto_pad": "explicit",
    }


def covers(size: int, kernel: int, dilation: int, pad: int) -> bool:
    return size + 2 * pad > (kernel - 1) * dilation


def convolution() -> None:
    while True:
        batch, inputs, outputs, high = one(1, 1, 1, 2), one(*CHANNELS), one(*CHANNELS), one(*SIDES)
        wide, tall = one(high, high, one(*SIDES)), one(1, 1, 3, 3, 3, 5, 7)
        across, stride = one(tall, tall, tall, 1, 3), one(1, 1, 2, 2, 3)
        dilation = 1 if tall == 1 else one(1, 1, 1, 2)
        pad = one(0, tall // 2 * dilation, tall // 2 * dilation)
        work = batch * inputs * outputs * high * wide * tall * across / stride**2
        if covers(high, tall, dilation, pad) and covers(wide, across, dilation, pad) and 1e4 < work < 2e8:
            break
    name = f"{batch}x{inputs}x{high}x{wide} to {outputs}, {tall}x{across} s{stride} d{dilation} p{pad}"
    values = [normal(batch, inputs, high, wide), normal(outputs, inputs, tall, across)]
    row("Convolution", 1, name, values, (1,), **window([tall, across], stride, dilation, pad))


def convolution_of_lines() -> None:
    while True:
        inputs, outputs, size = one(*CHANNELS), one(*CHANNELS), one(50, 99, 100, 256, 400, 1000)
        kernel, stride, dilation = one(1, 3, 5, 7, 11, 15, 31), one(1, 1, 2, 4), one(1, 1, 2, 4)
        pad = one(0, kernel // 2 * dilation)
        if inputs * outputs * size * kernel <= 2e8 and covers(size, kernel, dilation, pad):
            break
    name = f"1x{inputs}x{size} to {outputs}, {kernel} s{stride} d{dilation} p{pad}"
    values = [normal(1, inputs, size), normal(outputs, inputs, kernel)]
    row("Convolution", 1, name, values, (1,), **window([kernel], stride, dilation, pad))


def convolution_of_volumes() -> None:
    inputs, outputs = one(1, 2, 3, 4, 8, 16, 24, 32), one(1, 2, 3, 4, 8, 16, 24, 32)
    size, kernel, stride = one(4, 6, 8, 10, 16, 20), one(1, 3, 3), one(1, 1, 2)
    values = [normal(1, inputs, size, size, size), normal(outputs, inputs, kernel, kernel, kernel)]
    name = f"1x{inputs}x{size}x{size}x{size} to {outputs}, {kernel} s{stride}"
    row("Convolution", 1, name, values, (1,), **window([kernel] * 3, stride, 1, kernel // 2))


def grouped_convolution() -> None:
    while True:
        groups, inputs = one(2, 3, 4, 8, 16, 32), one(1, 2, 3, 4, 5, 8, 12, 16, 24)
        outputs = one(inputs, inputs, inputs, 2 * inputs, one(1, 2, 3, 4, 8))
        size, kernel, stride = one(*SIDES[5:]), one(1, 3, 3, 5), one(1, 1, 2)
        if groups * inputs * outputs * size**2 * kernel**2 <= 1e8:
            break
    values = [normal(1, groups * inputs, size, size), normal(groups, outputs, inputs, kernel, kernel)]
    name = f"{groups} of {inputs} to {outputs}, {size}x{size}, {kernel} s{stride}"
    row("GroupConvolution", 1, name, values, (1,), **window([kernel] * 2, stride, 1, kernel // 2))


def depthwise_convolution() -> None:
    while True:
        batch, channels, high = one(1, 1, 2), one(*CHANNELS[4:]), one(*SIDES[4:])
        wide, kernel = one(high, high, one(*SIDES[4:])), one(3, 3, 3, 5, 5, 7, 9)
        stride, dilation = one(1, 1, 2), one(1, 1, 1, 2)
        pad = one(kernel // 2, kernel // 2, 0) * dilation
        if covers(min(high, wide), kernel, dilation, pad) and channels * high * wide <= 2e6:
            break
    values = [normal(batch, channels, high, wide), normal(channels, 1, 1, kernel, kernel)]
    name = f"depthwise {batch}x{channels}x{high}x{wide}, {kernel} s{stride} d{dilation} p{pad}"
    row("GroupConvolution", 1, name, values, (1,), **window([kernel] * 2, stride, dilation, pad))


def transposed_convolution() -> None:
    while True:
        inputs, outputs, size = one(*CHANNELS), one(*CHANNELS), one(*SIDES[2:20])
        kernel, stride, pad = one(2, 3, 4, 4, 5), one(1, 2, 2, 3), one(0, 1)
        if inputs * outputs * size**2 * kernel**2 <= 2e8:
            break
    values = [normal(1, inputs, size, size), normal(inputs, outputs, kernel, kernel)]
    name = f"{inputs}x{size}x{size} to {outputs}, {kernel} s{stride} p{pad}"
    attributes = {**window([kernel] * 2, stride, 1, pad), "output_padding": [0, 0]}
    row("ConvolutionBackpropData", 1, name, values, (1,), **attributes)


def product() -> None:
    while True:
        m, k, n = one(*PRODUCTS), one(*PRODUCTS), one(*PRODUCTS)
        kind = one("constant", "plain", "turned right", "turned left", "vector", "broadcast")
        batch = one(1, 1, 2, 8) if kind == "constant" else one(2, 3, 6, 8, 12, 16)
        if 500 < m * k * n * batch < 6e7:
            break
    turned = {"transpose_a": kind == "turned left", "transpose_b": kind == "turned right"}
    left = normal(batch, k, m) if kind == "turned left" else normal(batch, m, k)
    right = {
        "plain": lambda: normal(batch, k, n),
        "turned right": lambda: normal(batch, n, k),
        "turned left": lambda: normal(batch, k, n),
        "vector": lambda: normal(k),
        "broadcast": lambda: normal(1, 4, k, n),
    }
    if kind == "constant":
        turned["transpose_b"] = yes()
        values = [left, normal(n, k) if turned["transpose_b"] else normal(k, n)]
    else:
        values = [left.reshape(batch, 1, m, k) if kind == "broadcast" else left, right[kind]()]
    row("MatMul", 1, f"{batch}x{m}x{k}x{n} {kind}", values, (1,) if kind == "constant" else (), **turned)


def softmax() -> None:
    shape = shape_of(one(2, 3, 4))
    axis, kind = axis_of(shape), one("SoftMax", "SoftMax", "LogSoftmax")
    row(kind, 8 if kind == "SoftMax" else 5, f"{label(shape)} axis {axis}", [normal(*shape)], axis=axis)


def reduction() -> None:
    shape = shape_of(one(2, 3, 4, 5))
    axes = sorted(DRAWN.permutation(len(shape))[: DRAWN.integers(1, len(shape))].tolist())
    kind = one("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceProd", "ReduceMean")
    dtype = F32 if kind == "ReduceL2" else one(F32, F32, F32, I32, F16)
    values = normal(*shape, dtype=dtype) if dtype == I32 else uniform(0.9, 1.1, *shape, dtype=dtype)
    name = f"{label(shape)} axes {axes} {np.dtype(dtype).name}"
    version = 4 if kind in ("ReduceL1", "ReduceL2") else 1
    row(kind, version, name, [values, ints(*axes)], (1,), keep_dims=yes())


def normalization() -> None:
    shape = shape_of(one(3, 4))
    axes = list(range(len(shape) - int(DRAWN.integers(1, len(shape))), len(shape)))
    attributes = {"normalize_variance": True, "eps": 1e-5, "eps_mode": "inside_sqrt"}
    row("MVN", 6, f"{label(shape)} axes {axes}", [normal(*shape), ints(*axes)], (1,), **attributes)


def length() -> None:
    shape = shape_of(one(2, 3, 4))
    axis = axis_of(shape)
    row("NormalizeL2", 1, f"{label(shape)} axis {axis}", [normal(*shape), ints(axis)], (1,), eps=1e-8, eps_mode="add")


def pooling() -> None:
    while True:
        batch, channels, high = one(1, 1, 2), one(*CHANNELS), one(*SIDES[5:])
        wide, kernel, stride = one(high, one(*SIDES[5:])), one(2, 2, 3, 3, 5), one(1, 2, 2, 3)
        pad = one(0, kernel // 2)
        if covers(min(high, wide), kernel, 1, pad):
            break
    attributes = window([kernel] * 2, stride, 1, pad)
    attributes |= {"kernel": [kernel] * 2, "rounding_type": one("floor", "ceil")}
    name = f"{batch}x{channels}x{high}x{wide}, {kernel} s{stride} p{pad}"
    values = [normal(batch, channels, high, wide)]
    if yes():
        row("MaxPool", 8, name, values, outputs=(0,), **attributes, index_element_type="i64", axis=0)
        return
    del attributes["dilations"]
    row("AvgPool", 1, name, values, **attributes, **{"exclude-pad": yes()})


def adaptive_pooling() -> None:
    channels, size, output = one(*CHANNELS), one(*SIDES[5:]), one(1, 2, 3, 5, 7)
    values = [normal(1, channels, size, size), ints(output, output)]
    row("AdaptiveAvgPool", 8, f"{channels}x{size}x{size} to {output}", values, (1,))


def interpolation() -> None:
    channels, high, wide = one(*CHANNELS[:20]), one(*SIDES[6:]), one(*SIDES[6:])
    to = [one(2 * high, one(*SIDES[6:])), one(2 * wide, one(*SIDES[6:]))]
    mode = one("linear_onnx", "nearest", "cubic", "linear", "linear_onnx")
    coordinates = one("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "nearest_mode": one("floor", "round_prefer_floor", "simple"),
        "shape_calculation_mode": "sizes",
        "antialias": False,
        "pads_begin": [0],
        "pads_end": [0],
        "cube_coeff": -0.75,
    }
    name = f"{mode} {channels}x{high}x{wide} to {to[0]}x{to[1]} {coordinates}"
    row("Interpolate", 11, name, [normal(1, channels, high, wide), ints(*to), ints(2, 3)], (1, 2), **attributes)


def grid_sample() -> None:
    channels, size, to = one(1, 3, 16, 32), one(*SIDES[8:25]), one(*SIDES[8:25])
    mode = one("bilinear", "nearest", "bicubic")
    values = [normal(1, channels, size, size), uniform(-1.1, 1.1, 1, to, to, 2)]
    attributes = {"align_corners": yes(), "mode": mode, "padding_mode": one("zeros", "border", "reflection")}
    row("GridSample", 9, f"{channels}x{size}x{size} to {to} {mode}", values, **attributes)


def transposition() -> None:
    shape = shape_of(one(2, 3, 4, 5))
    order, dtype = DRAWN.permutation(len(shape)).tolist(), one(F32, F32, F16, U8, I64)
    name = f"{label(shape)} to {order} {np.dtype(dtype).name}"
    row("Transpose", 1, name, [normal(*shape, dtype=dtype), ints(*order)], (1,))


def concatenation() -> None:
    while True:
        shape, dtype = shape_of(one(2, 3, 4), 200_000), one(F32, F32, F16, I64)
        axis = axis_of(shape)
        parts = [(*shape[:axis], one(*CHANNELS[:20]), *shape[axis + 1 :]) for _ in range(one(2, 3, 4))]
        if sum(np.prod(part) for part in parts) <= 2e6:
            break
    name = f"{label(*parts)} axis {axis} {np.dtype(dtype).name}"
    row("Concat", 1, name, [normal(*part, dtype=dtype) for part in parts], axis=axis)


def splitting() -> None:
    shape, count = shape_of(one(2, 3, 4)), one(2, 3, 4)
    axis = axis_of(shape)
    shape = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    row("Split", 1, f"{label(shape)} axis {axis} by {count}", [normal(*shape), scalar(axis)], (1,), num_splits=count)


def slicing() -> None:
    shape = shape_of(one(2, 3, 4))
    axis = axis_of(shape)
    begin = int(DRAWN.integers(0, max(1, shape[axis] // 2)))
    end, step = int(DRAWN.integers(begin + 1, shape[axis] + 1)), one(1, 1, 2)
    values = [normal(*shape), ints(begin), ints(end), ints(step), ints(axis)]
    row("Slice", 8, f"{label(shape)} axis {axis} {begin}:{end}:{step}", values, (1, 2, 3, 4))


def padding() -> None:
    shape, mode = shape_of(one(2, 3, 4)), one("constant", "constant", "edge", "reflect", "symmetric")
    before, after = ([int(DRAWN.integers(0, 3)) if size > 3 else 0 for size in shape] for _ in range(2))
    values = [normal(*shape), ints(*before), ints(*after)] + [scalar(0.5, F32)] * (mode == "constant")
    row("Pad", 1, f"{label(shape)} {before} {after} {mode}", values, (1, 2, 3)[: len(values) - 1], pad_mode=mode)


def tiling() -> None:
    shape = shape_of(one(2, 3, 4), 50_000)
    repeats = [one(1, 1, 2, 3) for _ in shape]
    row("Tile", 1, f"{label(shape)} by {repeats}", [normal(*shape), ints(*repeats)], (1,))


def broadcasting() -> None:
    shape = shape_of(one(2, 3, 4))
    before = tuple(size if yes() else 1 for size in shape)
    name = f"{label(before)} to {label(shape)}"
    row("Broadcast", 3, name, [normal(*before), ints(*shape)], (1,), mode="bidirectional")


def blocks_of_space() -> None:
    side, size = one(2, 2, 3, 4), one(*SIDES[5:25])
    channels = one(1, 3, 4, 8, 16, 32)
    kind = one("DepthToSpace", "SpaceToDepth", "ShuffleChannels")
    if kind == "SpaceToDepth":
        shape = (1, channels, size * side, size * side)
    else:
        shape = (1, channels * side**2, size, size)
    attributes = {"axis": 1, "group": side}
    if kind != "ShuffleChannels":
        attributes = {"mode": one("blocks_first", "depth_first"), "block_size": side}
    row(kind, 1, f"{label(shape)} {side}", [normal(*shape)], **attributes)


def gathering() -> None:
    shape, dtype = shape_of(one(2, 3, 4)), one(F32, F32, F16, I64, U8)
    axis, count = axis_of(shape), one(1, 5, 16, 50, 100)
    name = f"{label(shape)} axis {axis} {count} {np.dtype(dtype).name}"
    values = [normal(*shape, dtype=dtype), draw(shape[axis], count), scalar(axis)]
    row("Gather", 8, name, values, (2,), batch_dims=0)


def embedding() -> None:
    rows, wide, count = one(100, 1000, 30000), one(4, 8, 16, 64, 100), one(1, 20, 200)
    values = [normal(rows, wide), draw(rows, count), scalar(0)]
    row("Gather", 8, f"rows {rows}x{wide} {count}", values, (0, 2), batch_dims=0)


def gathering_elements() -> None:
    shape = shape_of(one(2, 3, 4))
    axis = axis_of(shape)
    taken = one(1, 3, shape[axis], 2 * shape[axis])
    indices = draw(shape[axis], *shape[:axis], taken, *shape[axis + 1 :])
    row("GatherElements", 6, f"{label(shape)} axis {axis} to {taken}", [normal(*shape), indices], axis=axis)


def places(shape: tuple[int, ...], count: int) -> np.ndarray:
    """So many indices along some of the first axes."""
    axes = int(DRAWN.integers(1, len(shape) + 1))
    return np.stack([draw(size, count) for size in shape[:axes]], -1)


def gathering_places() -> None:
    shape, count = shape_of(one(3, 4)), one(10, 100, 1000)
    indices = places(shape, count)
    row("GatherND", 8, f"{label(shape)} {label(indices.shape)}", [normal(*shape), indices], batch_dims=0)


def scattering() -> None:
    shape, reduction = shape_of(one(2, 3)), one("none", "sum", "max", "mean", "prod", "min")
    axis = axis_of(shape)
    updates = (*shape[:axis], max(1, shape[axis] // 2), *shape[axis + 1 :])
    indices = draw(shape[axis], *updates)
    if reduction == "none":
        # Of elements that are written twice, OpenVINO does not say which is kept.
        indices = np.argsort(uniform(0, 1, *shape), axis).take(range(updates[axis]), axis).astype(I64)
    values = [normal(*shape), indices, normal(*updates), scalar(axis)]
    name = f"{label(shape)} axis {axis} {updates[axis]} {reduction}"
    row("ScatterElementsUpdate", 12, name, values, (3,), reduction=reduction, use_init_val=True)


def scattering_places() -> None:
    shape, reduction = shape_of(one(2, 3)), one("sum", "max", "none", "min")
    indices = places(shape, one(10, 100, 1000))
    if reduction == "none":
        indices = np.unique(indices, axis=0)
    updates = normal(len(indices), *shape[indices.shape[1] :])
    name = f"{label(shape)} {label(indices.shape)} {reduction}"
    row("ScatterNDUpdate", 15, name, [normal(*shape), indices, updates], reduction=reduction)


def cumulation() -> None:
    shape, dtype = shape_of(one(2, 3, 4)), one(F32, F32, I64)
    axis = axis_of(shape)
    values = [normal(*shape, dtype=dtype), scalar(axis)]
    name = f"{label(shape)} axis {axis} {np.dtype(dtype).name}"
    row("CumSum", 3, name, values, (1,), exclusive=yes(), reverse=one(False, False, True))


def best() -> None:
    shape = shape_of(one(2, 3))
    axis = axis_of(shape)
    k, mode = min(shape[axis], one(1, 2, 3, 5, 10, 50, 100)), one("max", "max", "min")
    attributes = {"axis": axis, "mode": mode, "sort": one("value", "none", "index"), "stable": False}
    attributes["index_element_type"] = one("i32", "i64")
    row("TopK", 11, f"{label(shape)} axis {axis} {k} {mode}", [normal(*shape), scalar(k)], (1,), **attributes)


def one_hot() -> None:
    shape, depth, axis = (one(1, 8, 64, 300), one(1, 7, 20, 50)), one(5, 10, 32, 100, 256), one(-1, -1, 0, 1)
    values = [draw(depth, *shape), scalar(depth), scalar(1.0, F32), scalar(0.0, F32)]
    row("OneHot", 1, f"{label(shape)} {depth} axis {axis}", values, (1, 2, 3), axis=axis)


def non_zero() -> None:
    shape, share = shape_of(one(1, 2, 3, 4)), one(0.02, 0.3, 0.9)
    row("NonZero", 3, f"{label(shape)} {share}", [uniform(0, 1, *shape) < share], output_type=one("i32", "i64"))


def binary() -> None:
    kind = one("Add", "Multiply", "Subtract", "Divide", "Maximum", "Less", "Equal", "Power", "FloorMod",
               "SquaredDifference", "Select", "LogicalAnd")  # fmt: skip
    types = {"Power": (F32, F16), "Divide": (F32, F16), "FloorMod": (F32, I32), "LogicalAnd": (BOOL,)}
    dtype = one(*types.get(kind, (F32, F32, F16, I32, I64, U8)))
    if (kind, dtype) == ("Subtract", U8):
        dtype = I8
    shape = shape_of(one(2, 3, 4))
    first = tuple(size if one(False, True, True) else 1 for size in shape)
    # Each axis is whole in one of both.
    second = tuple(s if f == 1 or one(False, True, True) else 1 for s, f in zip(shape, first))
    if kind == "Select":
        condition = normal(*(size if one(False, True, True) else 1 for size in shape), dtype=BOOL)
        values = [condition, normal(*first, dtype=dtype), normal(*second, dtype=dtype)]
    else:
        left = uniform(0.1, 3, *first, dtype=dtype) if kind == "Power" else normal(*first, dtype=dtype)
        values = [left, normal(*second, dtype=dtype)]
    row(kind, 1, f"{label(*(value.shape for value in values))} {np.dtype(dtype).name}", values)


def unary() -> None:
    kind, version = one(
        ("Exp", 1), ("Tanh", 1), ("Sigmoid", 1), ("Erf", 1), ("Sqrt", 1), ("Abs", 1), ("ReLU", 1), ("Mish", 4),
        ("HSwish", 4), ("Gelu", 7), ("Swish", 4), ("SoftPlus", 4), ("Cos", 1), ("Sin", 1), ("Floor", 1), ("Sign", 1),
        ("Log", 1), ("HSigmoid", 5), ("SoftSign", 9), ("Round", 5), ("Clamp", 1), ("Elu", 1),
    )  # fmt: skip
    shape = shape_of(one(2, 3, 4))
    attributes = {
        "Gelu": {"approximation_mode": one("ERF", "TANH")},
        "Round": {"mode": "half_to_even"},
        "Clamp": {"min": -1.0, "max": 1.0},
        "Elu": {"alpha": 1.0},
    }
    values = uniform(0.1, 5, *shape) if kind in ("Sqrt", "Log") else normal(*shape)
    row(kind, version, label(shape), [values], **attributes.get(kind, {}))


def parametric() -> None:
    shape = shape_of(4)
    if yes():
        row("PReLU", 1, label(shape), [normal(*shape), normal(shape[1])], (1,))
        return
    values = [normal(*shape), *(normal(shape[1]) for _ in range(3)), uniform(0.5, 2, shape[1])]
    row("BatchNormInference", 5, label(shape), values, (1, 2, 3, 4), epsilon=1e-5)


def conversion() -> None:
    shape, before = shape_of(one(2, 3, 4)), one(F32, F16, I32, I64, U8, I8, BOOL)
    after = one("f32", "f16", "i32", "i64", "u8", "i8", "boolean")
    name = f"{label(shape)} {np.dtype(before).name} to {after}"
    row("Convert", 1, name, [normal(*shape, dtype=before)], destination_type=after)


def recurrence() -> None:
    kind, gates, states = one(("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1))
    direction = one("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    while True:
        batch, steps = one(1, 1, 2, 8), one(1, 5, 20, 50, 100)
        inputs, hidden = one(8, 16, 40, 64, 100, 128), one(8, 16, 32, 64, 100, 128, 256)
        if batch * steps * hidden * (inputs + hidden) * gates * ways <= 5e7:
            break
    resets = kind == "GRU" and yes()
    weights = [
        normal(ways, gates * hidden, inputs, scale=0.1),
        normal(ways, gates * hidden, hidden, scale=0.1),
        normal(ways, (gates + resets) * hidden, scale=0.1),
    ]
    before = [normal(batch, ways, hidden) for _ in range(states)]
    values = [normal(batch, steps, inputs), *before, np.full(batch, steps, I32), *weights]
    attributes = {
        "direction": direction,
        "activations": {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}[kind],
        "hidden_size": hidden,
        "activations_alpha": [],
        "activations_beta": [],
        "clip": 0.0,
    }
    if kind == "GRU":
        attributes["linear_before_reset"] = resets
    name = f"{batch}x{steps}x{inputs} to {hidden} {direction}"
    row(f"{kind}Sequence", 5, name, values, range(states + 1, states + 5), **attributes)


def attention() -> None:
    batch, heads, depth = one(1, 1, 2), one(1, 4, 8, 12), one(8, 16, 32, 40, 64, 80)
    keys = one(7, 16, 50, 77, 128, 197, 300)
    queries = one(keys, one(1, 7, 16, 50, 77, 128, 197))
    values = [normal(batch, heads, size, depth) for size in (queries, keys, keys)]
    name = f"{batch}x{heads}x{queries}x{keys}x{depth}"
    row("ScaledDotProductAttention", 13, name, values, causal=False)


def einsum() -> None:
    equation, shapes = one(
        ("bij,bjk->bik", ((4, 30, 40), (4, 40, 20))),
        ("bhid,bhjd->bhij", ((1, 4, 50, 16), (1, 4, 60, 16))),
        ("bijc,bjkc->bikc", ((1, 20, 20, 8), (1, 20, 20, 8))),
        ("nctv,vw->nctw", ((1, 16, 50, 25), (25, 25))),
        ("ij,ij->i", ((200, 64), (200, 64))),
        ("bnd,md->bnm", ((2, 100, 32), (64, 32))),
        ("bchw,kc->bkhw", ((1, 32, 20, 20), (10, 32))),
        ("bhwij,hjk->bhwik", ((2, 6, 6, 4, 4), (6, 4, 5))),
    )
    row("Einsum", 7, equation, [normal(*shape) for shape in shapes], equation=equation)


def suppression() -> None:
    count, classes = one(20, 100, 300, 1000, 3000), one(1, 1, 3, 20)
    most, threshold = one(10, 100, count), one(0.05, 0.3, 0.7)
    values = [corners(1, count), scores(1, classes, count), scalar(most), scalar(0.5, F32), scalar(threshold, F32)]
    attributes = {"box_encoding": "corner", "sort_result_descending": True, "output_type": "i64"}
    row("NonMaxSuppression", 9, f"{classes}x{count}, {most} above {threshold}", values, (2, 3, 4), **attributes)


def others() -> None:
    kind = one("Roll", "LRN", "ReverseSequence", "ExtractImagePatches", "Bucketize")
    if kind == "Roll":
        shape = shape_of(one(2, 3, 4))
        axis = axis_of(shape)
        row(kind, 7, f"{label(shape)} axis {axis}", [normal(*shape), scalar(3), scalar(axis)], (1, 2))
    elif kind == "LRN":
        shape = shape_of(4)
        attributes = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0, "size": 5}
        row(kind, 1, label(shape), [normal(*shape), ints(1)], (1,), **attributes)
    elif kind == "ReverseSequence":
        shape = (one(1, 2, 4), one(5, 20, 100), one(8, 64, 100))
        values = [normal(*shape), np.full(shape[0], shape[1] // 2 + 1, I32)]
        row(kind, 1, label(shape), values, batch_axis=0, seq_axis=1)
    elif kind == "ExtractImagePatches":
        shape = (1, one(1, 3, 8, 32), *[one(16, 20, 28, 56)] * 2)
        attributes = {"sizes": [3, 3], "strides": [one(1, 2, 3)] * 2, "rates": [1, 1], "auto_pad": "valid"}
        row(kind, 3, label(shape), [normal(*shape)], **attributes)
    else:
        values = [normal(one(100, 1000, 20000)), np.sort(normal(one(5, 20, 100)))]
        row(kind, 3, label(*(value.shape for value in values)), values, output_type="i64", with_right_bound=True)


KINDS: tuple[Callable[[], None], ...] = (
    convolution, convolution, convolution, convolution_of_lines, convolution_of_volumes, grouped_convolution,
    grouped_convolution, depthwise_convolution, depthwise_convolution, transposed_convolution, product, product, product,
    softmax, reduction, reduction, normalization, length, pooling, pooling, adaptive_pooling, interpolation,
    interpolation, grid_sample, transposition, transposition, concatenation, splitting, slicing, padding, tiling,
    broadcasting, blocks_of_space, gathering, embedding, gathering_elements, gathering_places, scattering,
    scattering_places, cumulation, best, best, one_hot, non_zero, binary, binary, binary, unary, unary, parametric,
    conversion, recurrence, recurrence, attention, einsum, suppression, others,
)  # fmt: skip
"""What is drawn, in turns; kinds of many ways come more often."""


def random_rows(seed: int, count: int) -> Iterator[Row]:
    """So many layers, each made when it is asked for."""
    global DRAWN
    DRAWN = np.random.default_rng(seed)
    for index in range(count):
        KINDS[index % len(KINDS)]()
        yield ROWS.pop()
