"""Interpolate. References follow the Python of Interpolate-4's specification."""

from __future__ import annotations

import math

import numpy as np

from golden_pack import Pack, pack

F32, F16, I32, I64, U8 = np.float32, np.float16, np.int32, np.int64, np.uint8

COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")


def original(mode, x, scale, resized, length):
    if mode == "half_pixel":
        return (x + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if resized > 1 else 0.0
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    return 0.0 if resized == 1 else x * (length - 1) / (resized - 1)


def nearest_pixel(mode, x, downsample):
    if mode == "round_prefer_floor":
        return math.ceil(x - 0.5)
    if mode == "round_prefer_ceil":
        return math.floor(x + 0.5)
    if mode == "floor":
        return math.floor(x)
    if mode == "ceil":
        return math.ceil(x)
    return math.ceil(x) if downsample else int(x)


def axis_weights(attributes, length, resized, scale):
    """A [resized, length] matrix of one axis; every mode here is separable."""
    matrix = np.zeros((resized, length))
    mode, coordinates = attributes["mode"], attributes["coordinate_transformation_mode"]
    for i in range(resized):
        x = original(coordinates, i, scale, resized, length)
        if mode == "nearest":
            k = nearest_pixel(attributes["nearest_mode"], x, scale < 1)
            matrix[i, min(max(k, 0), length - 1)] = 1
        elif mode == "cubic":
            base = math.floor(x)
            for k, weight in enumerate(cubic(x - base, attributes["cube_coeff"])):
                matrix[i, min(max(base + k - 1, 0), length - 1)] += weight
        elif mode == "linear_onnx":
            x = min(max(x, 0.0), length - 1.0)
            low = min(int(x), length - 1)
            high = min(low + 1, length - 1)
            matrix[i, low] += 1 - (x - low)
            matrix[i, high] += x - low
        else:
            # linear: weights outside the image are dropped and the rest normalised
            sharp = scale if attributes["antialias"] and scale < 1 else 1.0
            reach = 2 if scale > 1 else math.ceil(2 / sharp)
            centre = math.floor(x + 0.5)
            for k in range(centre - reach, centre + reach + 1):
                if 0 <= k < length:
                    matrix[i, k] += sharp * max(0.0, 1 - abs(sharp * (x - k)))
            matrix[i] /= matrix[i].sum() or 1.0
    return matrix


def cubic(s, a):
    return (
        ((a * s - 2 * a) * s + a) * s,
        ((a + 2) * s - (a + 3)) * s * s + 1,
        (((-a - 2) * s + (2 * a + 3)) * s - a) * s,
        a * s * s * (1 - s),
    )


def interpolate(attributes, sizes, scales, axes):
    def reference(x, *_):
        begin = list(attributes["pads_begin"]) + [0] * (x.ndim - len(attributes["pads_begin"]))
        end = list(attributes["pads_end"]) + [0] * (x.ndim - len(attributes["pads_end"]))
        result = np.pad(x.astype(np.float64), list(zip(begin, end)))
        for i, axis in enumerate(axes):
            length = result.shape[axis]
            if attributes["shape_calculation_mode"] == "sizes":
                resized = int(sizes[i])
                scale = resized / length
            else:
                scale = float(np.float32(scales[i]))
                resized = math.floor(np.float32(scale) * np.float32(length))
            matrix = axis_weights(attributes, length, resized, scale)
            result = np.moveaxis(np.tensordot(matrix, result, ([1], [axis])), 0, axis)
        if x.dtype.kind in "iu":
            return np.rint(result).astype(x.dtype)
        return result.astype(x.dtype)

    return reference


def complete(**given):
    return {
        "mode": "nearest",
        "shape_calculation_mode": "sizes",
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "round_prefer_floor",
        "antialias": False,
        "pads_begin": [0],
        "pads_end": [0],
        "cube_coeff": -0.75,
        **given,
    }


def bicubic_pillow(x: np.ndarray, sizes: list[int], coefficient: float) -> np.ndarray:
    """Resize the last two axes with Pillow's antialiased cubic filter."""

    def weight(distance: float) -> float:
        d, a = abs(distance), coefficient
        if d < 1:
            return ((a + 2) * d - (a + 3)) * d * d + 1
        return (((d - 5) * d + 8) * d - 4) * a if d < 2 else 0.0

    def matrix(source: int, target: int) -> np.ndarray:
        scale = source / target
        stretch = max(scale, 1.0)
        rows = np.zeros((target, source))
        for i, row in enumerate(rows):
            center = (i + 0.5) * scale
            low, high = max(int(center - 2 * stretch + 0.5), 0), min(int(center + 2 * stretch + 0.5), source)
            row[low:high] = [weight((k - center + 0.5) / stretch) for k in range(low, high)]
            row /= row.sum()
        return rows

    down, across = (matrix(source, target) for source, target in zip(x.shape[-2:], sizes))
    return (down @ x.astype(np.float64) @ across.T).astype(x.dtype)


@pack("Interpolate-opset4", "Interpolate-opset11")
def resize(p: Pack) -> None:
    new = p.version == "opset11"
    tolerance = {"rtol": 1e-4, "atol": 1e-4}

    def add(
        name,
        shape,
        axes,
        sizes=None,
        scales=None,
        dtype=F32,
        given_axes=True,
        parameters=False,
        reference=True,
        **attributes,
    ):
        mode = "sizes" if sizes is not None else "scales"
        attributes = complete(shape_calculation_mode=mode, **attributes)
        padded = [
            n + b + e
            for n, b, e in zip(shape, list(attributes["pads_begin"]) + [0] * 9, list(attributes["pads_end"]) + [0] * 9)
        ]
        sizes_in = np.array(
            sizes if sizes is not None else [math.floor(s * padded[a]) for s, a in zip(scales, axes)], I64
        )
        scales_in = np.array(scales if scales is not None else [s / padded[a] for s, a in zip(sizes, axes)], F32)
        inputs = [p.normal(*shape, dtype=dtype)]
        inputs += [sizes_in if mode == "sizes" else scales_in] if new else [sizes_in, scales_in]
        if given_axes:
            inputs.append(np.array(axes, I64))
        fixed = () if parameters else tuple(range(1, len(inputs)))
        p.case(
            name,
            inputs,
            attributes,
            constant=fixed,
            tolerance=tolerance if np.dtype(dtype) == F32 else None,
            reference=interpolate(attributes, sizes, scales, axes) if reference else None,
        )

    image, axes = (1, 2, 4, 5), (2, 3)
    for coordinates in COORDINATES:
        for nearest in NEAREST:
            add(
                f"nearest_{coordinates}_{nearest}_up",
                image,
                axes,
                sizes=(7, 11),
                coordinate_transformation_mode=coordinates,
                nearest_mode=nearest,
            )
        add(f"nearest_{coordinates}_down", (1, 1, 7, 9), axes, sizes=(3, 4), coordinate_transformation_mode=coordinates)
        for mode in ("linear", "linear_onnx", "cubic"):
            add(
                f"{mode}_{coordinates}_up",
                image,
                axes,
                sizes=(7, 9),
                mode=mode,
                coordinate_transformation_mode=coordinates,
            )
            add(
                f"{mode}_{coordinates}_down",
                (1, 1, 7, 9),
                axes,
                sizes=(3, 4),
                mode=mode,
                coordinate_transformation_mode=coordinates,
            )
    for nearest in NEAREST:
        add(f"nearest_{nearest}_down", (1, 1, 7, 9), axes, sizes=(3, 4), nearest_mode=nearest)
    for mode in ("nearest", "linear", "linear_onnx", "cubic"):
        add(f"{mode}_scales", image, axes, scales=(2.0, 1.5), mode=mode)
        add(f"{mode}_scales_down", (1, 1, 6, 8), axes, scales=(0.5, 0.25), mode=mode)
        add(f"{mode}_pads", image, axes, sizes=(9, 9), mode=mode, pads_begin=[0, 0, 1, 2], pads_end=[0, 0, 2, 1])
        add(f"{mode}_to_one", image, axes, sizes=(1, 1), mode=mode, coordinate_transformation_mode="align_corners")
        add(f"{mode}_same_size", image, axes, sizes=(4, 5), mode=mode)
        if mode != "linear_onnx":
            add(f"{mode}_one_axis", (2, 3, 5), (2,), sizes=(8,), mode=mode)
        add(f"{mode}_f16", image, axes, sizes=(6, 7), mode=mode, dtype=F16)
    add(
        "nearest_asymmetric_floor_x2",
        (1, 3, 3, 3),
        axes,
        scales=(2.0, 2.0),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    add("nearest_rank2", (4, 5), (0, 1), sizes=(6, 3))
    add("nearest_rank5", (1, 1, 2, 3, 3), (2, 3, 4), sizes=(4, 6, 5))
    add("linear_onnx_rank5", (1, 1, 2, 3, 3), (2, 3, 4), sizes=(4, 6, 5), mode="linear_onnx")
    add("linear_onnx_rank2", (4, 5), (0, 1), sizes=(6, 8), mode="linear_onnx")
    add("linear_channels_last", (1, 4, 5, 2), (1, 2), sizes=(6, 7), mode="linear")
    add("axes_unordered", image, (3, 2), sizes=(8, 6))
    add("all_axes_by_default", (2, 3), (0, 1), sizes=(4, 5), given_axes=False)
    add("cube_coefficient", image, axes, sizes=(7, 9), mode="cubic", cube_coeff=-0.5)
    for dtype in (U8, I32):
        add(f"nearest_{np.dtype(dtype).name}", image, axes, sizes=(7, 9), dtype=dtype)
    add("linear_antialias", (1, 1, 8, 8), axes, sizes=(3, 3), mode="linear", antialias=True)
    if new:
        for mode in ("bilinear_pillow", "bicubic_pillow"):
            add(f"{mode}_down", (1, 2, 8, 9), axes, sizes=(3, 4), mode=mode, cube_coeff=-0.5, reference=False)
            add(f"{mode}_up", (1, 2, 4, 5), axes, sizes=(7, 9), mode=mode, cube_coeff=-0.5, reference=False)
        p.case(
            "bicubic_pillow_coefficient",
            [p.normal(1, 1, 8, 9), np.array([3, 12], I64), np.array(axes, I64)],
            complete(mode="bicubic_pillow", cube_coeff=-0.75),
            constant=(1, 2),
            tolerance=tolerance,
            reference=lambda x, sizes, axes: bicubic_pillow(x, [int(size) for size in sizes], -0.75),
            note="the plugin takes -0.5, as Pillow does, whatever the attribute says",
        )
    dynamic = complete(mode="linear_onnx")
    sizes, scales = np.array([7, 9], I64), np.array([1.75, 1.8], F32)
    inputs = [p.normal(*image), *([sizes] if new else [sizes, scales]), np.array(axes, I64)]
    p.case(
        "dynamic",
        inputs,
        dynamic,
        constant=range(1, len(inputs)),
        shapes={0: [-1, 2, -1, -1]},
        reference=interpolate(dynamic, sizes, scales, axes),
        tolerance=tolerance,
    )
    p.case(
        "sizes_parameter",
        inputs,
        dynamic,
        constant=[len(inputs) - 1],
        reference=interpolate(dynamic, sizes, scales, axes),
        tolerance=tolerance,
    )
