"""Convolutions and poolings: everything that slides a window.

References go over output positions one by one, in f64.
"""

from __future__ import annotations

import itertools

import numpy as np

from golden_pack import Pack, pack

F32, F16, I32, I64, U8, I8 = np.float32, np.float16, np.int32, np.int64, np.uint8, np.int8

CONVOLUTION_TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def same_pads(size, kernel, stride, dilation, lower):
    """Padding of auto_pad same_upper or same_lower along one axis."""
    output = -(-size // stride)
    total = max(0, (output - 1) * stride + (kernel - 1) * dilation + 1 - size)
    small, large = total // 2, total - total // 2
    return (large, small) if lower else (small, large)


def resolved_pads(spatial, kernel, strides, dilations, begin, end, auto_pad):
    if auto_pad == "valid":
        return [0] * len(spatial), [0] * len(spatial)
    if auto_pad == "explicit":
        return list(begin), list(end)
    pairs = [same_pads(*axis, auto_pad == "same_lower") for axis in zip(spatial, kernel, strides, dilations)]
    return [p[0] for p in pairs], [p[1] for p in pairs]


def convolve(x, weights, strides, dilations, begin, end):
    """[N, C, spatial] with [O, C, kernel], in f64."""
    kernel, dimensions = weights.shape[2:], x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(begin, end)])
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    sizes = [(p - r) // s + 1 for p, r, s in zip(padded.shape[2:], reach, strides)]
    result = np.zeros((x.shape[0], weights.shape[0], *sizes))
    for position in itertools.product(*map(range, sizes)):
        window = tuple(slice(p * strides[i], p * strides[i] + reach[i], dilations[i]) for i, p in enumerate(position))
        patch = padded[(slice(None), slice(None), *window)]
        axes = list(range(1, dimensions + 2))
        result[(slice(None), slice(None), *position)] = np.tensordot(patch, weights, (axes, axes))
    return result


def convolve_back(x, weights, strides, dilations, begin, end, output):
    """[N, C, spatial] with [C, O, kernel]: scatter every input through the kernel."""
    full = [
        max((n - 1) * s + (k - 1) * d + 1, b + o + e)
        for n, s, k, d, b, o, e in zip(x.shape[2:], strides, weights.shape[2:], dilations, begin, output, end)
    ]
    result = np.zeros((x.shape[0], weights.shape[1], *full))
    for position in itertools.product(*map(range, x.shape[2:])):
        contribution = np.tensordot(x[(slice(None), slice(None), *position)], weights, ([1], [0]))
        window = tuple(
            slice(p * s, p * s + (k - 1) * d + 1, d)
            for p, s, k, d in zip(position, strides, weights.shape[2:], dilations)
        )
        result[(slice(None), slice(None), *window)] += contribution
    cut = tuple(slice(b, b + o) for b, o in zip(begin, output))
    return result[(slice(None), slice(None), *cut)]


def grouped(function):
    """Apply a convolution to each group: weights [G, first, second, kernel]."""

    def apply(x, weights, *rest):
        parts = np.split(x, weights.shape[0], axis=1)
        return np.concatenate([function(a, w, *rest) for a, w in zip(parts, weights)], axis=1)

    return apply


def attributes_of(dimensions, strides=None, dilations=None, begin=None, end=None, auto_pad="explicit"):
    ones, zeros = [1] * dimensions, [0] * dimensions
    return {
        "strides": strides or ones,
        "dilations": dilations or ones,
        "pads_begin": begin or zeros,
        "pads_end": end or zeros,
        "auto_pad": auto_pad,
    }


CONVOLUTIONS = {
    # name: data, weights [O, C, kernel], settings
    "rank3": ((2, 3, 7), (4, 3, 3), {}),
    "rank4_1x1": ((1, 5, 4, 4), (3, 5, 1, 1), {}),
    "rank4_3x3": ((1, 3, 6, 5), (4, 3, 3, 3), {}),
    "rank4_batch": ((3, 2, 4, 4), (2, 2, 3, 3), {"begin": [1, 1], "end": [1, 1]}),
    "rank5": ((1, 2, 4, 4, 3), (3, 2, 2, 3, 2), {}),
    "strides": ((1, 3, 8, 9), (2, 3, 3, 3), {"strides": [2, 3]}),
    "dilations": ((1, 2, 9, 8), (2, 2, 3, 3), {"dilations": [2, 3]}),
    "pads_unequal": ((1, 2, 5, 5), (3, 2, 3, 3), {"begin": [0, 2], "end": [1, 0]}),
    "strides_dilations_pads": (
        (1, 2, 9, 9),
        (2, 2, 3, 3),
        {"strides": [2, 2], "dilations": [2, 2], "begin": [2, 1], "end": [1, 2]},
    ),
    "same_upper": ((1, 2, 7, 6), (2, 2, 3, 4), {"strides": [2, 2], "auto_pad": "same_upper"}),
    "same_lower": ((1, 2, 7, 6), (2, 2, 3, 4), {"strides": [2, 2], "auto_pad": "same_lower"}),
    "same_upper_dilated": ((1, 2, 7, 7), (2, 2, 2, 2), {"dilations": [2, 2], "auto_pad": "same_upper"}),
    "valid": ((1, 2, 7, 6), (2, 2, 3, 3), {"begin": [1, 1], "end": [1, 1], "auto_pad": "valid"}),
    "kernel_is_image": ((1, 3, 4, 4), (5, 3, 4, 4), {}),
    "wide_channels": ((1, 20, 3, 3), (17, 20, 3, 3), {"begin": [1, 1], "end": [1, 1]}),
    "first_layer": ((1, 3, 11, 11), (16, 3, 7, 7), {"strides": [2, 2], "begin": [3, 3], "end": [3, 3]}),
}


def convolution_reference(function, settings, dimensions):
    attributes = attributes_of(dimensions, **settings)

    def reference(x, weights):
        kernel = weights.shape[-dimensions:]
        begin, end = resolved_pads(
            x.shape[2:],
            kernel,
            attributes["strides"],
            attributes["dilations"],
            attributes["pads_begin"],
            attributes["pads_end"],
            attributes["auto_pad"],
        )
        result = function(
            x.astype(np.float64), weights.astype(np.float64), attributes["strides"], attributes["dilations"], begin, end
        )
        return result.astype(x.dtype)

    return reference, attributes


def add_convolutions(p: Pack, cases, function) -> None:
    for name, (data, weights, settings) in cases.items():
        dimensions = len(data) - 2
        reference, attributes = convolution_reference(function, settings, dimensions)
        p.case(
            f"f32_{name}",
            [p.normal(*data), p.normal(*weights)],
            attributes,
            constant=(1,),
            reference=reference,
            tolerance=CONVOLUTION_TOLERANCE,
        )
    data, weights, settings = cases["pads_unequal"]
    reference, attributes = convolution_reference(function, settings, 2)
    p.case(
        "f16",
        [p.normal(*data, dtype=F16), p.normal(*weights, dtype=F16)],
        attributes,
        constant=(1,),
        reference=reference,
        tolerance={"rtol": 4e-3, "atol": 8e-3},
        example=True,
        note="numpy reference, accumulated in f64 and rounded once",
    )
    p.case(
        "weights_parameter",
        [p.normal(*data), p.normal(*weights)],
        attributes,
        reference=reference,
        tolerance=CONVOLUTION_TOLERANCE,
    )
    p.case(
        "dynamic_spatial",
        [p.normal(*data), p.normal(*weights)],
        attributes,
        constant=(1,),
        shapes={0: [-1, data[1], -1, -1]},
        reference=reference,
        tolerance=CONVOLUTION_TOLERANCE,
    )
    p.case(
        "interval_spatial",
        [p.normal(*data), p.normal(*weights)],
        attributes,
        constant=(1,),
        shapes={0: [(1, 4), data[1], (3, 9), (3, 9)]},
        reference=reference,
        tolerance=CONVOLUTION_TOLERANCE,
    )
    p.case("zero_batch", [p.normal(0, *data[1:]), p.normal(*weights)], attributes, constant=(1,), reference=reference)
    data, weights, settings = cases["same_upper"]
    reference, attributes = convolution_reference(function, settings, 2)
    p.case(
        "dynamic_same_upper",
        [p.normal(*data), p.normal(*weights)],
        attributes,
        constant=(1,),
        shapes={0: [-1, data[1], -1, -1]},
        reference=reference,
        tolerance=CONVOLUTION_TOLERANCE,
    )


@pack("Convolution-opset1")
def convolution(p: Pack) -> None:
    add_convolutions(p, CONVOLUTIONS, convolve)


@pack("GroupConvolution-opset1")
def group_convolution(p: Pack) -> None:
    cases = {
        "rank3": ((1, 4, 7), (2, 3, 2, 3), {}),
        "depthwise": ((1, 6, 6, 6), (6, 1, 1, 3, 3), {"begin": [1, 1], "end": [1, 1]}),
        "depthwise_multiplier": ((1, 3, 5, 5), (3, 2, 1, 3, 3), {}),
        "depthwise_strided": ((2, 5, 7, 7), (5, 1, 1, 3, 3), {"strides": [2, 2], "begin": [1, 1], "end": [1, 1]}),
        "depthwise_5x5": ((1, 19, 6, 6), (19, 1, 1, 5, 5), {"begin": [2, 2], "end": [2, 2]}),
        "depthwise_dilated": ((1, 4, 8, 8), (4, 1, 1, 3, 3), {"dilations": [2, 2]}),
        "one_group": ((1, 3, 4, 4), (1, 4, 3, 3, 3), {}),
        "two_groups": ((1, 4, 5, 5), (2, 3, 2, 3, 3), {}),
        "1x1": ((1, 6, 3, 3), (3, 4, 2, 1, 1), {}),
        "rank5": ((1, 4, 4, 3, 3), (2, 2, 2, 2, 2, 2), {}),
        "pads_unequal": ((1, 4, 5, 5), (2, 3, 2, 3, 3), {"begin": [0, 2], "end": [1, 0]}),
        "same_upper": ((1, 4, 7, 6), (2, 1, 2, 3, 4), {"strides": [2, 2], "auto_pad": "same_upper"}),
        "same_lower": ((1, 4, 7, 6), (2, 1, 2, 3, 4), {"strides": [2, 2], "auto_pad": "same_lower"}),
        "valid": ((1, 4, 7, 6), (4, 1, 1, 3, 3), {"auto_pad": "valid"}),
    }
    add_convolutions(p, cases, grouped(convolve))


BACKWARD = {
    # name: data, weights [C, O, kernel], settings, output_padding, output_shape
    "rank3": ((1, 3, 5), (3, 2, 3), {}, None, None),
    "rank4": ((1, 3, 4, 3), (3, 2, 3, 3), {}, None, None),
    "rank5": ((1, 2, 3, 2, 3), (2, 3, 2, 2, 2), {}, None, None),
    "strides": ((1, 3, 4, 4), (3, 4, 2, 2), {"strides": [2, 2]}, None, None),
    "strides_over_kernel": ((1, 2, 3, 3), (2, 2, 2, 2), {"strides": [3, 3]}, None, None),
    "pads": ((2, 2, 4, 4), (2, 3, 3, 3), {"strides": [2, 2], "begin": [1, 1], "end": [1, 1]}, None, None),
    "pads_unequal": ((1, 2, 4, 4), (2, 3, 3, 3), {"begin": [0, 1], "end": [1, 0]}, None, None),
    "output_padding": ((1, 2, 4, 4), (2, 3, 3, 3), {"strides": [2, 2], "begin": [1, 1], "end": [1, 1]}, [1, 1], None),
    "dilations": ((1, 2, 4, 3), (2, 2, 3, 2), {"dilations": [2, 3]}, None, None),
    "valid": ((1, 2, 3, 3), (2, 2, 3, 3), {"auto_pad": "valid"}, None, None),
    "output_shape": ((1, 2, 4, 4), (2, 3, 3, 3), {"strides": [2, 2]}, None, [8, 7]),
    "output_shape_same_upper": (
        (1, 2, 4, 4),
        (2, 3, 3, 3),
        {"strides": [2, 2], "auto_pad": "same_upper"},
        None,
        [8, 8],
    ),
    "output_shape_same_lower": (
        (1, 2, 4, 4),
        (2, 3, 3, 3),
        {"strides": [2, 2], "auto_pad": "same_lower"},
        None,
        [8, 8],
    ),
    "wide_channels": ((1, 18, 3, 3), (18, 17, 2, 2), {"strides": [2, 2]}, None, None),
}


def backward_reference(function, settings, padding, shape, dimensions, group):
    attributes = attributes_of(dimensions, **settings)
    padding = padding or [0] * dimensions

    def reference(x, weights, *_):
        kernel = weights.shape[-dimensions:]
        begin, end = list(attributes["pads_begin"]), list(attributes["pads_end"])
        if attributes["auto_pad"] == "valid":
            begin, end = [0] * dimensions, [0] * dimensions
        natural = [
            s * (n - 1) + (k - 1) * d + 1 + o
            for s, n, k, d, o in zip(attributes["strides"], x.shape[2:], kernel, attributes["dilations"], padding)
        ]
        output = shape or [n - b - e for n, b, e in zip(natural, begin, end)]
        if shape and attributes["auto_pad"] in ("same_upper", "same_lower"):
            totals = [max(0, n - o) for n, o in zip(natural, output)]
            small = [t // 2 for t in totals]
            large = [t - t // 2 for t in totals]
            begin, end = (large, small) if attributes["auto_pad"] == "same_upper" else (small, large)
        return function(
            x.astype(np.float64),
            weights.astype(np.float64),
            attributes["strides"],
            attributes["dilations"],
            begin,
            end,
            output,
        ).astype(x.dtype)

    return reference, {**attributes, "output_padding": padding}


def add_backward(p: Pack, cases, function, group: bool) -> None:
    for name, (data, weights, settings, padding, shape) in cases.items():
        dimensions = len(data) - 2
        reference, attributes = backward_reference(function, settings, padding, shape, dimensions, group)
        inputs = [p.normal(*data), p.normal(*weights)]
        if shape:
            inputs.append(np.array(shape, I64))
        p.case(f"f32_{name}", inputs, attributes, constant=(1, 2), reference=reference, tolerance=CONVOLUTION_TOLERANCE)
    data, weights, settings, padding, shape = cases["pads"]
    reference, attributes = backward_reference(function, settings, padding, shape, 2, group)
    p.case(
        "f16",
        [p.normal(*data, dtype=F16), p.normal(*weights, dtype=F16)],
        attributes,
        constant=(1,),
        reference=reference,
        tolerance={"rtol": 4e-3, "atol": 8e-3},
        example=True,
        note="numpy reference, accumulated in f64 and rounded once",
    )
    p.case(
        "dynamic",
        [p.normal(*data), p.normal(*weights)],
        attributes,
        constant=(1,),
        shapes={0: [-1, data[1], -1, -1]},
        reference=reference,
        tolerance=CONVOLUTION_TOLERANCE,
    )
    p.case(
        "weights_parameter",
        [p.normal(*data), p.normal(*weights)],
        attributes,
        reference=reference,
        tolerance=CONVOLUTION_TOLERANCE,
    )


@pack("ConvolutionBackpropData-opset1")
def convolution_backward(p: Pack) -> None:
    add_backward(p, BACKWARD, convolve_back, False)


@pack("GroupConvolutionBackpropData-opset1")
def group_convolution_backward(p: Pack) -> None:
    cases = {
        "rank3": ((1, 4, 5), (2, 2, 3, 3), {}, None, None),
        "rank4": ((1, 4, 4, 3), (2, 2, 2, 3, 3), {}, None, None),
        "depthwise": ((1, 4, 4, 4), (4, 1, 1, 2, 2), {"strides": [2, 2]}, None, None),
        "pads": ((2, 4, 4, 4), (2, 2, 3, 3, 3), {"strides": [2, 2], "begin": [1, 1], "end": [1, 1]}, None, None),
        "output_padding": (
            (1, 4, 4, 4),
            (2, 2, 1, 3, 3),
            {"strides": [2, 2], "begin": [1, 1], "end": [1, 1]},
            [1, 1],
            None,
        ),
        "output_shape": ((1, 4, 4, 4), (2, 2, 1, 3, 3), {"strides": [2, 2]}, None, [8, 7]),
    }
    add_backward(p, cases, grouped(convolve_back), True)


POOLINGS = {
    "rank3": ((1, 2, 8), {"kernel": [3], "strides": [2]}),
    "rank4": ((2, 3, 6, 5), {"kernel": [2, 2], "strides": [2, 2]}),
    "rank5": ((1, 2, 4, 5, 4), {"kernel": [2, 3, 2], "strides": [2, 1, 2]}),
    "stride1": ((1, 2, 5, 5), {"kernel": [3, 3], "strides": [1, 1]}),
    "pads": ((1, 2, 6, 6), {"kernel": [3, 3], "strides": [2, 2], "pads_begin": [1, 1], "pads_end": [1, 1]}),
    "pads_unequal": ((1, 2, 6, 6), {"kernel": [3, 3], "strides": [2, 2], "pads_begin": [0, 2], "pads_end": [1, 0]}),
    "ceil": ((1, 2, 6, 6), {"kernel": [3, 3], "strides": [2, 2], "rounding_type": "ceil"}),
    "ceil_pads": (
        (1, 2, 7, 8),
        {"kernel": [3, 3], "strides": [2, 2], "pads_begin": [1, 1], "pads_end": [1, 1], "rounding_type": "ceil"},
    ),
    "same_upper": ((1, 2, 7, 6), {"kernel": [3, 2], "strides": [2, 2], "auto_pad": "same_upper"}),
    "same_lower": ((1, 2, 6, 6), {"kernel": [3, 3], "strides": [2, 2], "auto_pad": "same_lower"}),
    "valid": ((1, 2, 7, 6), {"kernel": [3, 2], "strides": [2, 2], "auto_pad": "valid"}),
    "global": ((1, 5, 4, 4), {"kernel": [4, 4], "strides": [1, 1]}),
    "wide_channels": ((1, 19, 4, 4), {"kernel": [3, 3], "strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}),
    "stride_over_kernel": ((1, 2, 7, 7), {"kernel": [2, 2], "strides": [3, 3]}),
}
TORCH_POOLINGS = {
    "ceil_torch": ((1, 2, 6, 6), {"kernel": [3, 3], "strides": [2, 2], "rounding_type": "ceil_torch"}),
    "ceil_torch_pads": (
        (1, 1, 9, 9),
        {"kernel": [2, 2], "strides": [2, 2], "pads_begin": [1, 1], "pads_end": [1, 1], "rounding_type": "ceil_torch"},
    ),
    "ceil_torch_drops_window": (
        (1, 1, 5, 5),
        {"kernel": [2, 2], "strides": [3, 3], "pads_begin": [1, 1], "pads_end": [1, 1], "rounding_type": "ceil_torch"},
    ),
}
DILATED_POOLINGS = {
    "dilations": ((1, 2, 7, 7), {"kernel": [2, 3], "strides": [1, 2], "dilations": [2, 2]}),
    "dilations_pads": (
        (1, 2, 7, 7),
        {"kernel": [2, 2], "strides": [2, 2], "dilations": [3, 2], "pads_begin": [1, 1], "pads_end": [1, 1]},
    ),
    "dilations_same_upper": (
        (1, 2, 7, 7),
        {"kernel": [2, 2], "strides": [2, 2], "dilations": [2, 2], "auto_pad": "same_upper"},
    ),
}


def pooling_geometry(spatial, attributes):
    """Begin pads, padded bounds and output sizes of a pooling."""
    count = len(spatial)
    kernel, strides = attributes["kernel"], attributes["strides"]
    dilations = attributes.get("dilations", [1] * count)
    begin, end = resolved_pads(
        spatial,
        kernel,
        strides,
        dilations,
        attributes.get("pads_begin", [0] * count),
        attributes.get("pads_end", [0] * count),
        attributes.get("auto_pad", "explicit"),
    )
    sizes = []
    rounding = attributes.get("rounding_type", "floor")
    for i in range(count):
        room = spatial[i] + begin[i] + end[i] - (dilations[i] * (kernel[i] - 1) + 1)
        size = (room // strides[i] if rounding == "floor" else -(-room // strides[i])) + 1
        if rounding == "ceil_torch" and (size - 1) * strides[i] >= spatial[i] + begin[i]:
            size -= 1
        sizes.append(size)
    return begin, end, dilations, sizes


def pool(x, attributes, choose):
    """Go over windows: choose(values, positions, count inside padded bounds)."""
    spatial = x.shape[2:]
    begin, end, dilations, sizes = pooling_geometry(spatial, attributes)
    values = np.zeros((*x.shape[:2], *sizes))
    indices = np.zeros((*x.shape[:2], *sizes), np.int64)
    for n, c in np.ndindex(*x.shape[:2]):
        for position in itertools.product(*map(range, sizes)):
            axes = [
                [
                    position[i] * attributes["strides"][i] + k * dilations[i] - begin[i]
                    for k in range(attributes["kernel"][i])
                ]
                for i in range(len(spatial))
            ]
            padded = list(
                itertools.product(*[[a for a in axis if a < spatial[i] + end[i]] for i, axis in enumerate(axes)])
            )
            inside = [q for q in padded if all(0 <= a < s for a, s in zip(q, spatial))]
            value, index = choose([x[(n, c, *q)] for q in inside], inside, len(padded))
            values[(n, c, *position)] = value
            if index is not None:
                indices[(n, c, *position)] = np.ravel_multi_index((n, c, *index), x.shape)
    return values, indices


def average(attributes):
    def choose(values, _, padded):
        if not values:
            return 0.0, None
        return sum(values) / (len(values) if attributes["exclude-pad"] else padded), None

    return lambda x: pool(x.astype(np.float64), attributes, choose)[0].astype(x.dtype)


def maximum(attributes, indices: bool):
    def choose(values, positions, _):
        best = int(np.argmax(values))
        return values[best], positions[best]

    def reference(x):
        values, flat = pool(x.astype(np.float64), attributes, choose)
        if not indices:
            return values.astype(x.dtype)
        axis = attributes.get("axis", 0) % x.ndim
        flat = flat % int(np.prod(x.shape[axis:]))
        return [values.astype(x.dtype), flat.astype(attributes.get("index_element_type", "i64").replace("i", "int"))]

    return reference


def complete(attributes, dilated: bool):
    count = len(attributes["kernel"])
    filled = {
        "pads_begin": [0] * count,
        "pads_end": [0] * count,
        "rounding_type": "floor",
        "auto_pad": "explicit",
        **attributes,
    }
    if dilated:
        filled.setdefault("dilations", [1] * count)
    return filled


@pack("AvgPool-opset1", "AvgPool-opset14", "AvgPool-opset16")
def average_pool(p: Pack) -> None:
    cases = dict(POOLINGS)
    if p.version != "opset1":
        cases.update(TORCH_POOLINGS)
    if p.version == "opset16":
        cases.update(DILATED_POOLINGS)
    for name, (shape, attributes) in cases.items():
        for exclude in (True, False):
            if not exclude and name in ("valid", "global", "stride1", "stride_over_kernel"):
                continue
            filled = {**complete(attributes, p.version == "opset16"), "exclude-pad": exclude}
            p.case(
                f"f32_{name}_{'exclude' if exclude else 'include'}",
                [p.normal(*shape)],
                filled,
                reference=average(filled),
            )
    filled = {**complete(POOLINGS["pads"][1], p.version == "opset16"), "exclude-pad": True}
    p.case("f16", [p.normal(1, 2, 6, 6, dtype=F16)], filled, reference=average(filled))
    p.case("dynamic", [p.normal(1, 2, 6, 6)], filled, shapes={0: [-1, 2, -1, -1]}, reference=average(filled))
    p.case("interval", [p.normal(1, 2, 6, 6)], filled, shapes={0: [1, 2, (4, 8), (4, 8)]}, reference=average(filled))
    p.case("zero_batch", [p.normal(0, 2, 6, 6)], filled, reference=average(filled))


@pack("MaxPool-opset1", "MaxPool-opset8", "MaxPool-opset14")
def max_pool(p: Pack) -> None:
    indexed = p.version != "opset1"
    cases = dict(POOLINGS)
    if indexed:
        cases.update(DILATED_POOLINGS)
    if p.version == "opset14":
        cases.update(TORCH_POOLINGS)
    for name, (shape, attributes) in cases.items():
        filled = complete(attributes, indexed)
        p.case(f"f32_{name}", [p.distinct(*shape)], filled, reference=maximum(filled, indexed))
    shape, attributes = POOLINGS["pads"]
    filled = complete(attributes, indexed)
    for dtype in (F16, I32, I64, U8, I8):
        values = p.distinct(*shape, dtype=dtype) if dtype != U8 else (p.distinct(*shape) + 36).astype(U8)
        p.case(np.dtype(dtype).name, [values], filled, reference=maximum(filled, indexed))
    p.case("all_negative", [-p.positive(*shape)], filled, reference=maximum(filled, indexed), note="padding never wins")
    p.case("dynamic", [p.distinct(*shape)], filled, shapes={0: [-1, 2, -1, -1]}, reference=maximum(filled, indexed))
    p.case("zero_batch", [p.normal(0, 2, 6, 6)], filled, reference=maximum(filled, indexed))
    if not indexed:
        return
    for axis in (0, 1, 2, 3, -1, -2):
        for kind in ("i32", "i64"):
            chosen = {**filled, "axis": axis, "index_element_type": kind}
            p.case(f"axis_{axis}_{kind}", [p.distinct(2, 3, 4, 4)], chosen, reference=maximum(chosen, True))
    p.case(
        "ties",
        [np.zeros((1, 1, 4, 4), F32)],
        filled,
        reference=maximum(filled, True),
        note="the first of equal elements is chosen",
    )
    p.case(
        "values_only", [p.distinct(*shape)], filled, outputs=[0], reference=maximum(complete(attributes, False), False)
    )
