"""Unary and binary elementwise operations, activations, comparisons, logic.

References compute in f64 and round once to the element type.
"""

from __future__ import annotations

import math

import numpy as np

from golden_pack import Pack, pack

F32, F16, I32, I64, U8, I8 = np.float32, np.float16, np.int32, np.int64, np.uint8, np.int8

SHAPES = {
    "rank0": (),
    "rank1": (5,),
    "rank2": (2, 3),
    "rank3": (2, 1, 4),
    "rank4": (1, 2, 3, 2),
    "rank5": (2, 1, 2, 1, 3),
    "vector_tail": (67,),
    "zero_sized": (2, 0, 3),
}

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def softplus(x):
    return np.logaddexp(0.0, x)


def round_half_up(x):
    """Half away from zero, exact where adding 0.5 would not be."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


# function, domain of the values, integer element types too
UNARY = {
    "Abs-opset1": (np.abs, "any", True),
    "Acos-opset1": (np.arccos, "unit", False),
    "Acosh-opset4": (np.arccosh, "above one", False),
    "Asin-opset1": (np.arcsin, "unit", False),
    "Asinh-opset4": (np.arcsinh, "any", False),
    "Atan-opset1": (np.arctan, "any", False),
    "Atanh-opset4": (np.arctanh, "inside unit", False),
    "Ceiling-opset1": (np.ceil, "any", False),
    "Cos-opset1": (np.cos, "any", False),
    "Cosh-opset1": (np.cosh, "any", False),
    "Erf-opset1": (erf, "any", False),
    "Exp-opset1": (np.exp, "any", False),
    "Floor-opset1": (np.floor, "any", False),
    "Gelu-opset2": (lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))), "any", False),
    "HSigmoid-opset5": (lambda x: np.minimum(np.maximum(x + 3, 0), 6) / 6, "wide", False),
    "HSwish-opset4": (lambda x: x * np.minimum(np.maximum(x + 3, 0), 6) / 6, "wide", False),
    "Log-opset1": (np.log, "positive", False),
    "Mish-opset4": (lambda x: x * np.tanh(softplus(x)), "any", False),
    "Negative-opset1": (np.negative, "any", True),
    "ReLU-opset1": (lambda x: np.maximum(x, 0), "any", True),
    "Sigmoid-opset1": (sigmoid, "wide", False),
    "Sign-opset1": (np.sign, "any", True),
    "Sin-opset1": (np.sin, "any", False),
    "Sinh-opset1": (np.sinh, "any", False),
    "SoftPlus-opset4": (softplus, "wide", False),
    "SoftSign-opset9": (lambda x: x / (1 + np.abs(x)), "any", False),
    "Sqrt-opset1": (np.sqrt, "positive", False),
    "Tan-opset1": (np.tan, "inside unit", False),
    "Tanh-opset1": (np.tanh, "any", False),
}

MADE_OF_MAXIMUM = ("ReLU", "HSigmoid", "HSwish")
"""What these make of NaN is left open, as for maximum and minimum themselves."""

EXTREMES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 88.0, -88.0, 200.0, -200.0, 1.0, -1.0, 0.5, -0.5, 2.5]


def domain(p: Pack, name: str, shape, dtype=F32) -> np.ndarray:
    """Seeded values inside a function's domain."""
    if name == "positive":
        return p.positive(*shape, dtype=dtype)
    if name == "above one":
        return (p.positive(*shape) + 1.0).astype(dtype)
    if name == "unit":
        return np.asarray(p.random.uniform(-1, 1, shape)).astype(dtype)
    if name == "inside unit":
        return np.asarray(p.random.uniform(-0.9, 0.9, shape)).astype(dtype)
    return p.normal(*shape, dtype=dtype, scale=4.0 if name == "wide" else 2.0)


def in_f64(function):
    """A reference that computes in f64 and rounds once."""

    def reference(*arrays):
        with np.errstate(all="ignore"):
            exact = function(*(a.astype(np.float64) for a in arrays))
        with np.errstate(all="ignore"):
            return np.asarray(exact).astype(arrays[0].dtype)

    return reference


@pack(*UNARY)
def unary(p: Pack) -> None:
    function, where, integers = UNARY[f"{p.kind}-{p.version}"]
    reference = in_f64(function)
    for name, shape in SHAPES.items():
        p.case(f"f32_{name}", [domain(p, where, shape)], reference=reference)
    p.case("f16", [domain(p, where, (3, 5), F16)], reference=reference)
    p.case("dynamic", [domain(p, where, (2, 3))], shapes={0: [-1, -1]}, reference=reference)
    p.case("interval", [domain(p, where, (2, 3))], shapes={0: [(1, 4), 3]}, reference=reference)
    p.case("unranked", [domain(p, where, (2, 3))], shapes={0: "..."}, reference=reference)
    extremes = np.array(EXTREMES, F32)
    if p.kind == "Gelu":
        # The formula gives NaN where the limit is known; leave infinity open.
        extremes = extremes[np.isfinite(extremes)]
    bound = ~np.isnan(reference(extremes))
    p.case("extremes", [extremes], reference=reference, binding=bound, note="0, infinities, NaN, tiny and large values")
    if p.kind not in MADE_OF_MAXIMUM:
        p.case(
            "nan",
            [np.array([1.0, np.nan, 0.5, np.nan, 1.0], F32)],
            reference=reference,
            example=True,
            note="NaN propagates",
        )
    if integers:
        for dtype in (I32, I64):
            p.case(f"{np.dtype(dtype).name}", [p.normal(2, 5, dtype=dtype)], reference=reference)
    if p.kind in ("ReLU", "Ceiling", "Floor"):
        p.case("halves", [np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, -2, 3], F32)], reference=reference)
    if p.kind in ("Ceiling", "Floor"):
        p.case("int32", [p.normal(6, dtype=I32)], reference=lambda x: x)


@pack("Round-opset5")
def rounding(p: Pack) -> None:
    ties = np.array([-4.5, -2.5, -1.5, -1.2, -0.5, 0.5, 1.2, 1.5, 1.9, 2.3, 2.5, 4.5], F32)
    modes = {"half_to_even": np.rint, "half_away_from_zero": round_half_up}
    for mode, function in modes.items():
        attributes = {"mode": mode}
        p.case(f"{mode}_ties", [ties], attributes, reference=in_f64(function))
        p.case(f"{mode}_f16", [ties.astype(F16)], attributes, reference=in_f64(function))
        for name, shape in SHAPES.items():
            p.case(f"{mode}_{name}", [p.normal(*shape, scale=5)], attributes, reference=in_f64(function))
        p.case(f"{mode}_int32", [p.normal(5, dtype=I32)], attributes, reference=lambda x: x)
        p.case(
            f"{mode}_large",
            [np.array([8388609.0, 2.0**31, -(2.0**40), 3e38], F32)],
            attributes,
            reference=in_f64(function),
        )
        p.case(f"{mode}_dynamic", [ties], attributes, shapes={0: [-1]}, reference=in_f64(function))
    p.case(
        "half_away_below_half",
        [np.array([0.49999997, -0.49999997], F32)],
        {"mode": "half_away_from_zero"},
        reference=np.array([0.0, -0.0], F32),
        example=True,
        note="the largest f32 below one half rounds to zero",
    )


@pack("Gelu-opset7")
def gelu(p: Pack) -> None:
    modes = {
        "erf": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
        "tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    }
    for mode, function in modes.items():
        attributes = {"approximation_mode": mode}
        for name, shape in SHAPES.items():
            p.case(f"{mode}_{name}", [p.normal(*shape, scale=2)], attributes, reference=in_f64(function))
        p.case(f"{mode}_f16", [p.normal(3, 4, dtype=F16)], attributes, reference=in_f64(function))
        p.case(f"{mode}_dynamic", [p.normal(3, 4)], attributes, shapes={0: [-1, (2, 8)]}, reference=in_f64(function))
        p.case(f"{mode}_far", [np.array([-30, -9, -5, 5, 9, 30], F32)], attributes, reference=in_f64(function))


@pack("Clamp-opset1")
def clamp(p: Pack) -> None:
    def reference(low, high):
        return in_f64(lambda x: np.minimum(np.maximum(x, low), high))

    for name, shape in SHAPES.items():
        p.case(f"f32_{name}", [p.normal(*shape, scale=3)], {"min": -1.5, "max": 2.0}, reference=reference(-1.5, 2.0))
    p.case("f16", [p.normal(7, dtype=F16, scale=3)], {"min": -1.5, "max": 2.0}, reference=reference(-1.5, 2.0))
    p.case("relu6", [p.normal(7, scale=6)], {"min": 0.0, "max": 6.0}, reference=reference(0, 6))
    p.case("upper_infinity", [p.normal(7, scale=6)], {"min": 0.0, "max": 3.4e38}, reference=reference(0, 3.4e38))
    p.case("infinities", [np.array([np.inf, -np.inf, 0.0], F32)], {"min": -1.0, "max": 1.0}, reference=reference(-1, 1))
    for dtype in (I32, I64):
        p.case(
            f"{np.dtype(dtype).name}_whole_bounds",
            [p.normal(8, dtype=dtype)],
            {"min": -3.0, "max": 4.0},
            reference=reference(-3, 4),
        )
        p.case(
            f"{np.dtype(dtype).name}_fraction_bounds",
            [p.normal(8, dtype=dtype)],
            {"min": -2.5, "max": 3.5},
            reference=reference(-2, 3),
            note="bounds of integers: ceiling of min, floor of max",
        )
    p.case("uint8", [p.normal(8, dtype=U8)], {"min": 2.0, "max": 7.0}, reference=reference(2, 7))
    p.case("dynamic", [p.normal(2, 3)], {"min": -0.5, "max": 0.5}, shapes={0: [-1, 3]}, reference=reference(-0.5, 0.5))


@pack("Elu-opset1")
def elu(p: Pack) -> None:
    def reference(alpha):
        return in_f64(lambda x: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x))

    for alpha in (1.0, 0.5, 2.0):
        p.case(f"alpha_{alpha}", [p.normal(3, 4, scale=2)], {"alpha": alpha}, reference=reference(alpha))
    for name, shape in SHAPES.items():
        p.case(f"f32_{name}", [p.normal(*shape)], {"alpha": 1.0}, reference=reference(1.0))
    p.case("f16", [p.normal(7, dtype=F16)], {"alpha": 1.0}, reference=reference(1.0))
    p.case("dynamic", [p.normal(2, 3)], {"alpha": 1.0}, shapes={0: "..."}, reference=reference(1.0))


@pack("HardSigmoid-opset1")
def hard_sigmoid(p: Pack) -> None:
    reference = in_f64(lambda x, a, b: np.maximum(0, np.minimum(1, a * x + b)))
    for dtype in (F32, F16):
        alpha, beta = np.array(0.2, dtype), np.array(0.5, dtype)
        for name, shape in SHAPES.items():
            p.case(
                f"{np.dtype(dtype).name}_{name}",
                [p.normal(*shape, dtype=dtype, scale=3), alpha, beta],
                constant=(1, 2),
                reference=reference,
            )
    p.case(
        "dynamic",
        [p.normal(2, 3), np.array(0.3, F32), np.array(0.4, F32)],
        constant=(1, 2),
        shapes={0: [-1, -1]},
        reference=reference,
    )
    p.case("parameters", [p.normal(2, 3), np.array(0.3, F32), np.array(0.4, F32)], reference=reference)


@pack("Selu-opset1")
def selu(p: Pack) -> None:
    reference = in_f64(lambda x, alpha, scale: scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))))
    scalars = [np.array(1.67326, F32), np.array(1.0507, F32)]
    for name, shape in SHAPES.items():
        p.case(f"f32_{name}", [p.normal(*shape), *scalars], constant=(1, 2), reference=reference)
    p.case(
        "one_element",
        [p.normal(2, 3), np.array([1.5], F32), np.array([0.9], F32)],
        constant=(1, 2),
        reference=reference,
    )


@pack("Swish-opset4")
def swish(p: Pack) -> None:
    reference = in_f64(lambda x, beta=1.0: x * sigmoid(beta * x))
    for name, shape in SHAPES.items():
        p.case(f"f32_{name}", [p.normal(*shape, scale=2)], reference=reference)
        if name in ("rank0", "rank2", "rank4"):
            p.case(f"beta_{name}", [p.normal(*shape, scale=2), np.array(1.7, F32)], constant=(1,), reference=reference)
    p.case("f16", [p.normal(7, dtype=F16)], reference=reference)
    p.case("beta_parameter", [p.normal(2, 3), np.array(0.5, F32)], reference=reference)
    p.case("beta_zero", [p.normal(2, 3), np.array(0.0, F32)], constant=(1,), reference=reference)
    p.case("dynamic", [p.normal(2, 3)], shapes={0: [-1, (3, 5)]}, reference=reference)


@pack("PReLU-opset1")
def prelu(p: Pack) -> None:
    def per_channel(x, slope):
        if slope.ndim == 1 and slope.size > 1 and x.ndim > 1:
            slope = slope.reshape([1, -1] + [1] * (x.ndim - 2))
        return np.where(x < 0, x * slope, x)

    reference = in_f64(per_channel)
    shapes = {
        "scalar": ((2, 3, 4), ()),
        "one": ((2, 3, 4), (1,)),
        "per_channel": ((2, 3, 4, 2), (3,)),
        "per_channel_rank2": ((4, 3), (3,)),
        "rank1": ((5,), (5,)),
        "numpy_broadcast": ((2, 3, 4), (3, 1)),
        "full": ((2, 3), (2, 3)),
        "rank5": ((1, 3, 2, 2, 2), (3,)),
        "ambiguous": ((1, 4, 4, 4), (4,)),
        "zero_sized": ((0, 3), (3,)),
    }
    for name, (data, slope) in shapes.items():
        p.case(f"f32_{name}", [p.normal(*data), p.normal(*slope)], constant=(1,), reference=reference)
    p.case("f16", [p.normal(2, 3, 4, dtype=F16), p.normal(3, dtype=F16)], constant=(1,), reference=reference)
    p.case("slope_parameter", [p.normal(2, 3, 4), p.normal(3)], reference=reference)
    p.case("dynamic", [p.normal(2, 3, 4), p.normal(3)], constant=(1,), shapes={0: [-1, 3, -1]}, reference=reference)


# f64 function, types, values of the second operand
ALL = (F32, F16, I32, I64, U8, I8)
ARITHMETIC = {
    "Add-opset1": (np.add, ALL),
    "Subtract-opset1": (np.subtract, ALL),
    "Multiply-opset1": (np.multiply, ALL),
    "Divide-opset1": (None, (F32, F16, I32, I64)),
    "Maximum-opset1": (np.maximum, ALL),
    "Minimum-opset1": (np.minimum, ALL),
    "Mod-opset1": (np.fmod, (F32, F16, I32, I64)),
    "FloorMod-opset1": (np.mod, (F32, F16, I32, I64)),
    "Power-opset1": (np.power, (F32, F16)),
    "SquaredDifference-opset1": (lambda a, b: (a - b) * (a - b), (F32, F16, I32, I64)),
}
COMPARISONS = {
    "Equal-opset1": np.equal,
    "NotEqual-opset1": np.not_equal,
    "Greater-opset1": np.greater,
    "GreaterEqual-opset1": np.greater_equal,
    "Less-opset1": np.less,
    "LessEqual-opset1": np.less_equal,
}
LOGIC = {
    "LogicalAnd-opset1": np.logical_and,
    "LogicalOr-opset1": np.logical_or,
    "LogicalXor-opset2": np.logical_xor,
    "Xor-opset1": np.logical_xor,
}
PAIRS = {
    "rank0": ((), ()),
    "rank1": ((5,), (5,)),
    "scalar_right": ((2, 3), ()),
    "scalar_left": ((), (2, 3)),
    "trailing": ((2, 3, 4), (4,)),
    "both_ways": ((2, 1, 4), (3, 1)),
    "channel": ((1, 3, 2, 2), (1, 3, 1, 1)),
    "rank5": ((2, 1, 2, 1, 3), (1, 2, 1, 2, 3)),
    "vector_tail": ((35,), (35,)),
    "zero_sized": ((2, 0, 3), (1, 3)),
    "zero_meets_one": ((0, 3), (1, 1)),
}
PDPD = {
    "axis1": ((2, 3, 4), (3,), 1),
    "axis_default": ((2, 3, 4), (3, 4), -1),
    "axis0": ((2, 3, 4), (2, 3), 0),
}


def pdpd(function, axis):
    def reference(a, b):
        first = a.ndim - b.ndim if axis == -1 else axis
        shape = [1] * first + list(b.shape)
        return function(a, b.reshape(shape + [1] * (a.ndim - len(shape))))

    return reference


def broadcast_cases(p: Pack, function, dtype, left, right) -> None:
    """Every way of broadcasting, for one element type."""
    for name, (a, b) in PAIRS.items():
        p.case(f"numpy_{name}", [left(a, dtype), right(b, dtype)], {"auto_broadcast": "numpy"}, reference=function)
    p.case("none", [left((2, 3), dtype), right((2, 3), dtype)], {"auto_broadcast": "none"}, reference=function)
    p.case("constant_right", [left((2, 3), dtype), right((3,), dtype)], constant=(1,), reference=function)
    p.case("constant_left", [left((2, 1), dtype), right((2, 3), dtype)], constant=(0,), reference=function)
    p.case("dynamic", [left((2, 3), dtype), right((1, 3), dtype)], shapes={0: [-1, -1], 1: [-1, 3]}, reference=function)
    p.case(
        "dynamic_one_meets_two",
        [left((1, 3), dtype), right((2, 1), dtype)],
        shapes={0: [-1, 3], 1: [-1, -1]},
        reference=function,
    )
    p.case("interval", [left((2, 3), dtype), right((3,), dtype)], shapes={0: [(1, 4), (2, 5)]}, reference=function)
    p.case("unranked", [left((2, 3), dtype), right((3,), dtype)], shapes={0: "...", 1: "..."}, reference=function)


def same_type(function):
    """Integers in their own type, floats in f64 rounded once."""

    def reference(a, b):
        with np.errstate(all="ignore"):
            if a.dtype.kind == "f":
                return in_f64(function)(a, b)
            return np.asarray(function(a, b)).astype(a.dtype)

    return reference


@pack(*ARITHMETIC)
def arithmetic(p: Pack) -> None:
    function, types = ARITHMETIC[f"{p.kind}-{p.version}"]
    if p.kind == "Divide":
        function = lambda a, b: a // b if a.dtype.kind in "iu" else a / b  # noqa: E731
    reference = same_type(function)
    nonzero = p.kind in ("Divide", "Mod", "FloorMod")

    def left(shape, dtype):
        if p.kind == "Power":
            return p.positive(*shape, dtype=dtype)
        return p.normal(*shape, dtype=dtype, scale=3)

    def right(shape, dtype):
        value = p.normal(*shape, dtype=dtype, scale=2)
        if nonzero:
            value = np.where(np.abs(value) < 0.25, value + 1, value).astype(dtype)
        return value

    broadcast_cases(p, reference, F32, left, right)
    for dtype in types[1:]:
        a, b = left((3, 4), dtype), right((4,), dtype)
        p.case(np.dtype(dtype).name, [a, b], reference=reference)
    for name, (a_shape, b_shape, axis) in PDPD.items():
        a, b = left(a_shape, F32), right(b_shape, F32)
        attributes = {"auto_broadcast": "pdpd", "auto_broadcast.auto_broadcast_axis": axis}
        p.case(f"pdpd_{name}", [a, b], attributes, reference=pdpd(reference, axis))
    extremes = np.array([0.0, -0.0, np.inf, -np.inf, 1e-38, 3e38, -3e38, 1.0], F32)
    grid = [np.repeat(extremes, 8), np.tile(extremes, 8)]
    with np.errstate(all="ignore"):
        bound = ~np.isnan(reference(*grid))
    if p.kind not in ("Mod", "FloorMod"):
        p.case(
            "extremes",
            grid,
            reference=reference,
            binding=bound,
            note="each pair of 0, -0, infinities, tiny, huge and 1",
        )
    if p.kind in ("Maximum", "Minimum", "Add", "Multiply"):
        a, b = np.array([np.nan, 1, 2, np.nan], F32), np.array([1, np.nan, 3, np.nan], F32)
        p.case(
            "nan", [a, b], reference=reference, binding=~(np.isnan(a) | np.isnan(b)), note="elements without NaN bind"
        )
    if p.kind in ("Add", "Subtract", "Multiply"):
        for dtype in (U8, I8, I32):
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            a, b = np.array([low, high, 1, high], dtype), np.array([1, 1, high, high], dtype)
            p.case(f"{np.dtype(dtype).name}_wraps", [a, b], reference=reference, note="integer overflow wraps")
        p.case("uint16", [p.normal(4, dtype=np.uint16), p.normal(4, dtype=np.uint16)], reference=reference)
        p.case(
            "float64",
            [p.normal(4, dtype=np.float64), p.normal(4, dtype=np.float64)],
            reference=reference,
            tolerance={"rtol": 1e-5, "atol": 1e-6},
        )
        big = np.array([2**40, -(2**40), 2**53 + 1], I64)
        p.case("int64_large", [big, np.array([3, 5, 7], I64)], reference=reference, oracles=("evaluate",))
    signs = [np.array([7, -7, 7, -7, 6, -6], I32), np.array([3, 3, -3, -3, 3, -3], I32)]
    if nonzero:
        p.case("int32_signs", signs, reference=reference)
        p.case("f32_signs", [s.astype(F32) for s in signs], reference=reference)
    if p.kind == "Divide":
        p.case(
            "int32_truncates",
            signs,
            {"m_pythondiv": False},
            reference=lambda a, b: np.trunc(a / b).astype(I32),
            note="m_pythondiv false truncates toward zero",
        )
        p.case(
            "f32_by_zero",
            [np.array([1, -1, 0], F32), np.zeros(3, F32)],
            reference=reference,
            binding=np.array([True, True, False]),
        )
    if p.kind == "Power":
        p.case(
            "whole_exponents",
            [np.array([-2, -2, -2, 3, 0, 0], F32), np.array([2, 3, -1, -2, 0, 2], F32)],
            reference=reference,
        )
        p.case("int32", [np.array([-3, 2, 5, 7], I32), np.array([3, 10, 0, 1], I32)], reference=reference)
        p.case("square_constant", [p.normal(5), np.array(2, F32)], constant=(1,), reference=reference)
        p.case("root_constant", [p.positive(5), np.array(0.5, F32)], constant=(1,), reference=reference)


@pack(*COMPARISONS)
def comparison(p: Pack) -> None:
    function = COMPARISONS[f"{p.kind}-{p.version}"]

    def side(shape, dtype):
        return np.asarray(p.random.integers(0, 3, shape)).astype(dtype)

    broadcast_cases(p, function, F32, side, side)
    for dtype in (F16, I32, I64, U8):
        p.case(np.dtype(dtype).name, [side((3, 4), dtype), side((4,), dtype)], reference=function)
    booleans = [p.normal(8, dtype=np.bool_), p.normal(8, dtype=np.bool_)]
    if p.kind in ("Equal", "NotEqual"):
        p.case("boolean", booleans, reference=function)
    for name, (a, b, axis) in PDPD.items():
        p.case(
            f"pdpd_{name}",
            [side(a, F32), side(b, F32)],
            {"auto_broadcast": "pdpd", "auto_broadcast.auto_broadcast_axis": axis},
            reference=pdpd(function, axis),
            example=True,
            oracles=(),
            note="from the specification's broadcasting rules; OpenVINO cannot run this",
        )
    extremes = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, np.nan], F32)
    grid = [np.repeat(extremes, 6), np.tile(extremes, 6)]
    p.case(
        "extremes",
        grid,
        reference=function,
        binding=~(np.isnan(grid[0]) | np.isnan(grid[1])),
        note="pairs without NaN bind",
    )
    big = np.array([2**40, 2**40 + 1, -(2**40), 5], I64)
    p.case(
        "int64_large", [big, np.array([2**40, 2**40, 2**40, 2**32 + 5], I64)], reference=function, oracles=("evaluate",)
    )


@pack(*LOGIC)
def logic(p: Pack) -> None:
    function = LOGIC[f"{p.kind}-{p.version}"]

    def side(shape, dtype):
        return p.normal(*shape, dtype=dtype)

    broadcast_cases(p, function, np.bool_, side, side)
    p.case("truth_table", [np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)], reference=function)


@pack("LogicalNot-opset1")
def logical_not(p: Pack) -> None:
    for name, shape in SHAPES.items():
        p.case(name, [p.normal(*shape, dtype=np.bool_)], reference=np.logical_not)
    p.case("dynamic", [p.normal(2, 3, dtype=np.bool_)], shapes={0: [-1, -1]}, reference=np.logical_not)


@pack("Select-opset1")
def select(p: Pack) -> None:
    shapes = {
        "same": ((2, 3), (2, 3), (2, 3)),
        "scalar_condition": ((), (2, 3), (2, 3)),
        "scalar_values": ((2, 3), (), ()),
        "all_ways": ((2, 1, 1), (1, 3, 1), (1, 1, 4)),
        "then_grows": ((3,), (3,), (2, 3)),
        "rank0": ((), (), ()),
        "rank5": ((1, 2, 1, 2, 1), (2, 1, 2, 2, 3), (3,)),
        "zero_sized": ((0, 3), (1, 3), (3,)),
    }
    for name, (c, t, e) in shapes.items():
        p.case(
            f"numpy_{name}",
            [p.normal(*c, dtype=np.bool_), p.normal(*t), p.normal(*e)],
            {"auto_broadcast": "numpy"},
            reference=np.where,
        )
    for dtype in (F16, I32, I64, U8, np.bool_):
        p.case(
            np.dtype(dtype).name,
            [p.normal(3, 4, dtype=np.bool_), p.normal(4, dtype=dtype), p.normal(3, 4, dtype=dtype)],
            reference=np.where,
        )
    p.case(
        "none",
        [p.normal(2, 3, dtype=np.bool_), p.normal(2, 3), p.normal(2, 3)],
        {"auto_broadcast": "none"},
        reference=np.where,
    )
    p.case(
        "dynamic",
        [p.normal(2, 3, dtype=np.bool_), p.normal(1, 3), p.normal(2, 1)],
        shapes={0: [-1, -1], 1: [-1, 3], 2: [-1, -1]},
        reference=np.where,
    )
    p.case(
        "nan_not_chosen",
        [np.array([1, 0], bool), np.array([1, np.nan], F32), np.array([np.nan, 2], F32)],
        reference=np.where,
    )


@pack("FakeQuantize-opset1")
def fake_quantize(p: Pack) -> None:
    def reference(levels):
        def quantize(x, il, ih, ol, oh):
            inside = np.rint((x - il) / (ih - il) * (levels - 1)) / (levels - 1) * (oh - ol) + ol
            low, high = np.minimum(il, ih), np.maximum(il, ih)
            return np.where(
                x <= low,
                np.broadcast_to(ol, inside.shape),
                np.where(x > high, np.broadcast_to(oh, inside.shape), inside),
            )

        return in_f64(quantize)

    def limits(*values):
        return [np.asarray(v, F32) for v in values]

    tolerance = {"rtol": 1e-4, "atol": 1e-4}
    for levels in (2, 16, 255, 256):
        p.case(
            f"levels_{levels}",
            [p.normal(3, 4, scale=2), *limits(-2, 2, -1, 1)],
            {"levels": levels},
            constant=(1, 2, 3, 4),
            reference=reference(levels),
            tolerance=tolerance,
        )
    per_channel = [
        p.random.uniform(-3, -1, (1, 3, 1, 1)),
        p.random.uniform(1, 3, (1, 3, 1, 1)),
        p.random.uniform(-3, -1, (1, 3, 1, 1)),
        p.random.uniform(1, 3, (1, 3, 1, 1)),
    ]
    p.case(
        "per_channel",
        [p.normal(2, 3, 4, 4, scale=2), *limits(*per_channel)],
        {"levels": 256},
        constant=(1, 2, 3, 4),
        reference=reference(256),
        tolerance=tolerance,
    )
    p.case(
        "per_channel_input_only",
        [p.normal(2, 3, 2, 2, scale=2), *limits(per_channel[0], per_channel[1], 0, 255)],
        {"levels": 256},
        constant=(1, 2, 3, 4),
        reference=reference(256),
        tolerance=tolerance,
    )
    p.case(
        "outside",
        [np.array([-100, -2, -1.999, 1.999, 2, 100], F32), *limits(-2, 2, -1, 1)],
        {"levels": 16},
        constant=(1, 2, 3, 4),
        reference=reference(16),
        tolerance=tolerance,
    )
    p.case(
        "positive_range",
        [p.positive(20), *limits(0, 2.55, 0, 2.55)],
        {"levels": 256},
        constant=(1, 2, 3, 4),
        reference=reference(256),
        tolerance=tolerance,
    )
    p.case(
        "inverted_output",
        [p.normal(20), *limits(-2, 2, 1, -1)],
        {"levels": 16},
        constant=(1, 2, 3, 4),
        reference=reference(16),
        tolerance=tolerance,
    )
    p.case(
        "parameters",
        [p.normal(3, 4, scale=2), *limits([-2], [2], [-1], [1])],
        {"levels": 16},
        reference=reference(16),
        tolerance=tolerance,
    )
    p.case(
        "rank1",
        [p.normal(7, scale=2), *limits(-2, 2, -1, 1)],
        {"levels": 16},
        constant=(1, 2, 3, 4),
        reference=reference(16),
        tolerance=tolerance,
    )
    p.case(
        "zero_sized",
        [p.normal(0, 4), *limits(-2, 2, -1, 1)],
        {"levels": 16},
        constant=(1, 2, 3, 4),
        reference=reference(16),
        tolerance=tolerance,
    )
    p.case(
        "dynamic",
        [p.normal(2, 3, 2, 2, scale=2), *limits(*per_channel)],
        {"levels": 256},
        shapes={0: [-1, 3, -1, -1]},
        constant=(1, 2, 3, 4),
        reference=reference(256),
        tolerance=tolerance,
    )
