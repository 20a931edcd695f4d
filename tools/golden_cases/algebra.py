"""Matrix products, attention, normalisations, reductions, softmax."""

from __future__ import annotations

import numpy as np

from golden_pack import Pack, pack

F32, F16, I32, I64, U8 = np.float32, np.float16, np.int32, np.int64, np.uint8

SUMS = {"rtol": 1e-4, "atol": 5e-5}
HALF_SUMS = {"rtol": 4e-3, "atol": 8e-3}


def exact(function):
    """A reference that computes floats in f64 and rounds once."""

    def reference(*arrays):
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        with np.errstate(all="ignore"):
            return np.asarray(function(*wide)).astype(arrays[0].dtype)

    return reference


def matmul(transpose_a: bool, transpose_b: bool):
    """The specification: a 1-D operand is unsqueezed (a to [1, n], b to [n, 1],
    its transposition ignored), and its axis is removed from the result."""

    def reference(a, b):
        left = np.swapaxes(a, -1, -2) if transpose_a and a.ndim > 1 else a
        right = np.swapaxes(b, -1, -2) if transpose_b and b.ndim > 1 else b
        return np.matmul(left, right)

    return exact(reference)


@pack("MatMul-opset1")
def matrix_product(p: Pack) -> None:
    shapes = {
        "rank2": ((3, 4), (4, 5)),
        "row": ((1, 7), (7, 9)),
        "column": ((6, 1), (1, 5)),
        "wide": ((5, 33), (33, 18)),
        "tall": ((37, 3), (3, 2)),
        "rank3": ((2, 3, 4), (2, 4, 5)),
        "batch_broadcast": ((2, 1, 3, 4), (3, 4, 2)),
        "batch_one": ((1, 3, 4), (4, 2)),
        "rank5": ((2, 1, 1, 2, 3), (1, 2, 1, 3, 2)),
        "vector_vector": ((5,), (5,)),
        "vector_matrix": ((4,), (4, 3)),
        "matrix_vector": ((3, 4), (4,)),
        "vector_batch": ((4,), (2, 4, 3)),
        "batch_vector": ((2, 3, 4), (4,)),
        "zero_rows": ((0, 4), (4, 3)),
        "zero_inner": ((2, 0), (0, 3)),
    }
    for name, (a, b) in shapes.items():
        p.case(
            f"f32_{name}",
            [p.normal(*a), p.normal(*b)],
            {"transpose_a": False, "transpose_b": False},
            reference=matmul(False, False),
            tolerance=SUMS,
        )
    for ta in (False, True):
        for tb in (False, True):
            a, b = ((4, 3) if ta else (3, 4)), ((5, 4) if tb else (4, 5))
            attributes = {"transpose_a": ta, "transpose_b": tb}
            name = f"transpose_{'a' if ta else ''}{'b' if tb else ''}" if ta or tb else "plain"
            p.case(f"{name}_rank2", [p.normal(*a), p.normal(*b)], attributes, reference=matmul(ta, tb), tolerance=SUMS)
            p.case(
                f"{name}_rank4",
                [p.normal(2, 3, *a), p.normal(2, 3, *b)],
                attributes,
                reference=matmul(ta, tb),
                tolerance=SUMS,
            )
            p.case(
                f"{name}_constant_b",
                [p.normal(2, *a), p.normal(*b)],
                attributes,
                constant=(1,),
                reference=matmul(ta, tb),
                tolerance=SUMS,
            )
    p.case(
        "transpose_vector_ignored",
        [p.normal(4), p.normal(3, 4)],
        {"transpose_a": True, "transpose_b": True},
        reference=matmul(True, True),
        tolerance=SUMS,
    )
    p.case(
        "constant_a", [p.normal(3, 4), p.normal(4, 5)], constant=(0,), reference=matmul(False, False), tolerance=SUMS
    )
    p.case(
        "f16",
        [p.normal(3, 4, dtype=F16), p.normal(4, 5, dtype=F16)],
        reference=matmul(False, False),
        tolerance=HALF_SUMS,
    )
    for dtype in (I32, I64):
        p.case(
            np.dtype(dtype).name,
            [p.normal(3, 4, dtype=dtype), p.normal(4, 5, dtype=dtype)],
            reference=matmul(False, False),
        )
    p.case(
        "dynamic",
        [p.normal(2, 3, 4), p.normal(4, 5)],
        constant=(1,),
        shapes={0: [-1, -1, 4]},
        reference=matmul(False, False),
        tolerance=SUMS,
    )
    p.case(
        "dynamic_both",
        [p.normal(2, 3, 4), p.normal(2, 4, 5)],
        shapes={0: [-1, -1, -1], 1: [-1, -1, -1]},
        reference=matmul(False, False),
        tolerance=SUMS,
    )
    p.case(
        "interval",
        [p.normal(3, 4), p.normal(4, 5)],
        shapes={0: [(1, 8), 4], 1: [(2, 6), -1]},
        reference=matmul(False, False),
        tolerance=SUMS,
    )
    p.case(
        "unranked", [p.normal(3, 4), p.normal(4, 5)], shapes={0: "..."}, reference=matmul(False, False), tolerance=SUMS
    )


def attention(causal: bool):
    """The specification of ScaledDotProductAttention-13."""

    def reference(query, key, value, mask=None, scale=None, sink=None):
        factor = 1 / np.sqrt(query.shape[-1]) if scale is None else np.float64(scale.reshape(-1)[0])
        bias = 0.0
        length, source = query.shape[-2], key.shape[-2]
        if causal:
            bias = np.where(np.tril(np.ones((length, source), bool)), 0.0, -np.inf)
        elif mask is not None:
            bias = np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else mask
        scores = np.matmul(query, np.swapaxes(key, -1, -2)) * factor + bias
        if sink is not None:
            scores = np.concatenate([scores, np.broadcast_to(sink, (*scores.shape[:-1], 1))], -1)
        return np.matmul(softmax(scores, -1)[..., :source], value)

    return exact(reference)


def softmax(x, axis):
    if not x.size:
        return x
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    return shifted / shifted.sum(axis=axis, keepdims=True)


@pack("ScaledDotProductAttention-opset13")
def scaled_dot_product_attention(p: Pack) -> None:
    def qkv(*lead, length=4, source=5, width=8, out=8, dtype=F32):
        return [
            p.normal(*lead, length, width, dtype=dtype),
            p.normal(*lead, source, width, dtype=dtype),
            p.normal(*lead, source, out, dtype=dtype),
        ]

    no, yes = {"causal": False}, {"causal": True}
    p.case("plain_rank4", qkv(1, 2), no, reference=attention(False), tolerance=SUMS)
    p.case("plain_rank3", qkv(2), no, reference=attention(False), tolerance=SUMS)
    p.case("batch", qkv(2, 3), no, reference=attention(False), tolerance=SUMS)
    p.case("value_width", qkv(1, 2, out=6), no, reference=attention(False), tolerance=SUMS)
    p.case("causal_square", qkv(1, 2, length=5), yes, reference=attention(True), tolerance=SUMS)
    p.case("causal_wide", qkv(1, 2, length=3, source=6), yes, reference=attention(True), tolerance=SUMS)
    p.case("causal_tall", qkv(1, 2, length=6, source=3), yes, reference=attention(True), tolerance=SUMS)
    p.case("one_query", qkv(1, 2, length=1, source=9), no, reference=attention(False), tolerance=SUMS)
    masks = {"4d": (1, 2, 4, 5), "2d": (4, 5), "heads_one": (2, 1, 4, 5), "row": (1, 1, 1, 5)}
    for name, shape in masks.items():
        lead = (2, 2) if shape[0] == 2 else (1, 2)
        p.case(f"mask_{name}", [*qkv(*lead), p.normal(*shape)], no, reference=attention(False), tolerance=SUMS)
    seen = np.tril(np.ones((4, 5), bool), 1)
    p.case("mask_boolean", [*qkv(1, 2), seen], no, reference=attention(False), tolerance=SUMS)
    p.case(
        "mask_minus_infinity",
        [*qkv(1, 2), np.where(seen, 0, -np.inf).astype(F32)],
        no,
        reference=attention(False),
        tolerance=SUMS,
    )
    p.case(
        "scale",
        [*qkv(1, 2), p.normal(4, 5), np.array(0.37, F32)],
        no,
        constant=(4,),
        reference=attention(False),
        tolerance=SUMS,
    )
    p.case(
        "scale_one_element",
        [*qkv(1, 2), p.normal(4, 5), np.array([0.5], F32)],
        no,
        constant=(4,),
        reference=attention(False),
        tolerance=SUMS,
    )
    p.case("f16", qkv(1, 2, dtype=F16), no, reference=attention(False), tolerance=HALF_SUMS)
    p.case(
        "dynamic",
        qkv(1, 2),
        no,
        shapes={0: [-1, 2, -1, 8], 1: [-1, 2, -1, 8], 2: [-1, 2, -1, 8]},
        reference=attention(False),
        tolerance=SUMS,
    )


@pack("SoftMax-opset1", "SoftMax-opset8", "LogSoftmax-opset5")
def soft_max(p: Pack) -> None:
    log = p.kind == "LogSoftmax"

    def reference(axis):
        return exact(lambda x: np.log(softmax(x, axis)) if log else softmax(x, axis))

    axes = [0, 1, 2, 3] if p.version == "opset1" else [0, 1, 2, 3, -1, -2, -4]
    for axis in axes:
        p.case(f"rank4_axis_{axis}", [p.normal(2, 3, 4, 5, scale=2)], {"axis": axis}, reference=reference(axis))
    for name, shape in {
        "rank1": (7,),
        "rank2": (3, 5),
        "rank3": (2, 3, 4),
        "rank5": (1, 2, 3, 2, 2),
        "vector_tail": (2, 67),
    }.items():
        axis = len(shape) - 1
        p.case(name, [p.normal(*shape, scale=2)], {"axis": axis}, reference=reference(axis))
    p.case("one_element", [p.normal(3, 1)], {"axis": 1}, reference=reference(1))
    p.case("zero_sized", [p.normal(0, 4)], {"axis": 1}, reference=reference(1))
    p.case("large", [np.array([[1000, 1001, 999], [-1000, -1001, -999]], F32)], {"axis": 1}, reference=reference(1))
    p.case("spread", [np.array([[0, -200, 5]], F32)], {"axis": 1}, reference=reference(1))
    if not log:
        p.case("minus_infinity", [np.array([[0, -np.inf, 1]], F32)], {"axis": 1}, reference=reference(1))
    p.case("f16", [p.normal(3, 5, dtype=F16)], {"axis": 1}, reference=reference(1))
    p.case("dynamic", [p.normal(3, 5)], {"axis": 1}, shapes={0: [-1, -1]}, reference=reference(1))
    p.case("interval", [p.normal(3, 5)], {"axis": 0}, shapes={0: [(1, 4), 5]}, reference=reference(0))


REDUCTIONS = {
    "ReduceSum-opset1": np.sum,
    "ReduceMean-opset1": np.mean,
    "ReduceMax-opset1": np.max,
    "ReduceMin-opset1": np.min,
    "ReduceProd-opset1": np.prod,
    "ReduceL1-opset4": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2-opset4": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceLogicalAnd-opset1": np.all,
    "ReduceLogicalOr-opset1": np.any,
}


@pack(*REDUCTIONS)
def reduction(p: Pack) -> None:
    function = REDUCTIONS[f"{p.kind}-{p.version}"]
    logical = "Logical" in p.kind

    def reference(keep):
        def reduce(x, axes):
            chosen = tuple(int(a) % max(x.ndim, 1) for a in np.atleast_1d(axes))
            if x.dtype.kind in "iu":
                return function(x, axis=chosen, keepdims=keep).astype(x.dtype)
            return function(x, axis=chosen, keepdims=keep)

        return exact(reduce)

    def data(*shape, dtype=F32):
        if logical:
            return p.random.random(shape) < (0.8 if "And" in p.kind else 0.2)
        if p.kind == "ReduceProd":
            return (
                p.positive(*shape).astype(dtype)
                if np.dtype(dtype).kind == "f"
                else p.random.integers(1, 4, shape).astype(dtype)
            )
        return p.normal(*shape, dtype=dtype)

    axes_of = {
        "rank1": ((5,), [0]),
        "rank2_rows": ((3, 4), [0]),
        "rank2_columns": ((3, 4), [1]),
        "rank3_middle": ((2, 3, 4), [1]),
        "rank3_outer": ((2, 3, 4), [0, 2]),
        "rank4_spatial": ((2, 3, 4, 5), [2, 3]),
        "rank4_unordered": ((2, 3, 4, 5), [3, 1]),
        "rank4_negative": ((2, 3, 4, 5), [-1]),
        "rank5": ((2, 1, 3, 2, 2), [1, 3, 4]),
        "all": ((2, 3, 4), [0, 1, 2]),
        "vector_tail": ((3, 35), [1]),
        "no_axes": ((2, 3), []),
    }
    for name, (shape, axes) in axes_of.items():
        for keep in (False, True):
            p.case(
                f"{name}_{'keep' if keep else 'drop'}",
                [data(*shape), np.array(axes, I64)],
                {"keep_dims": keep},
                constant=(1,),
                reference=reference(keep),
                tolerance=None if logical else SUMS,
            )
    p.case(
        "scalar_axis", [data(2, 3), np.array(1, I64)], {"keep_dims": False}, constant=(1,), reference=reference(False)
    )
    p.case(
        "axes_i32", [data(2, 3), np.array([0], I32)], {"keep_dims": False}, constant=(1,), reference=reference(False)
    )
    p.case("axes_parameter", [data(2, 3, 4), np.array([1], I64)], {"keep_dims": True}, reference=reference(True))
    p.case(
        "dynamic",
        [data(2, 3, 4), np.array([1, 2], I64)],
        {"keep_dims": False},
        constant=(1,),
        shapes={0: [-1, -1, -1]},
        reference=reference(False),
    )
    p.case(
        "interval",
        [data(2, 3, 4), np.array([0], I64)],
        {"keep_dims": True},
        constant=(1,),
        shapes={0: [(1, 4), 3, (2, 5)]},
        reference=reference(True),
    )
    p.case("zero_kept", [data(0, 3), np.array([1], I64)], {"keep_dims": True}, constant=(1,), reference=reference(True))
    if p.kind in ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2") or logical:
        p.case(
            "zero_reduced",
            [data(0, 3), np.array([0], I64)],
            {"keep_dims": False},
            constant=(1,),
            reference=reference(False),
            note="the neutral element",
        )
    if logical:
        return
    p.case(
        "f16",
        [data(3, 4, dtype=F16), np.array([1], I64)],
        {"keep_dims": False},
        constant=(1,),
        reference=reference(False),
        tolerance=HALF_SUMS,
    )
    if p.kind not in ("ReduceMean", "ReduceL2"):
        for dtype in (I32, I64):
            p.case(
                np.dtype(dtype).name,
                [data(3, 4, dtype=dtype), np.array([1], I64)],
                {"keep_dims": False},
                constant=(1,),
                reference=reference(False),
            )
    if p.kind == "ReduceMean":
        p.case(
            "int32_exact",
            [np.array([[1, 2, 6], [3, 3, 3]], I32), np.array([1], I64)],
            {"keep_dims": False},
            constant=(1,),
            reference=reference(False),
        )


@pack("MVN-opset2")
def mvn_old(p: Pack) -> None:
    for shape in ((2, 3, 4, 5), (1, 2, 3, 2, 2), (2, 3, 4)):
        for across in (False, True):
            for variance in (False, True):
                axes = tuple(range(1 if across else 2, len(shape)))

                def reference(x, axes=axes, variance=variance):
                    centred = x - x.mean(axis=axes, keepdims=True)
                    if not variance:
                        return centred
                    return centred / (np.sqrt((centred**2).mean(axis=axes, keepdims=True)) + 1e-9)

                name = f"rank{len(shape)}_{'across' if across else 'within'}_{'variance' if variance else 'mean'}"
                attributes = {"across_channels": across, "normalize_variance": variance, "eps": 1e-9}
                p.case(name, [p.normal(*shape) + 1], attributes, reference=exact(reference), tolerance=SUMS)
    attributes = {"across_channels": False, "normalize_variance": True, "eps": 1e-5}

    def plain(x):
        centred = x - x.mean(axis=(2, 3), keepdims=True)
        return centred / (np.sqrt((centred**2).mean(axis=(2, 3), keepdims=True)) + 1e-5)

    p.case(
        "dynamic",
        [p.normal(1, 2, 3, 4)],
        attributes,
        shapes={0: [-1, 2, -1, -1]},
        reference=exact(plain),
        tolerance=SUMS,
    )
    p.case("f16", [p.normal(1, 2, 3, 4, dtype=F16)], attributes, reference=exact(plain), tolerance=HALF_SUMS)


@pack("MVN-opset6")
def mvn(p: Pack) -> None:
    def reference(variance, inside, epsilon):
        def normalise(x, axes):
            chosen = tuple(int(a) % x.ndim for a in axes)
            centred = x - x.mean(axis=chosen, keepdims=True)
            if not variance:
                return centred
            spread = (centred**2).mean(axis=chosen, keepdims=True)
            return centred / (np.sqrt(spread + epsilon) if inside else np.sqrt(spread) + epsilon)

        return exact(normalise)

    axes_of = {
        "rank1": ((6,), [0]),
        "rank2": ((3, 8), [1]),
        "layer_norm": ((2, 3, 16), [-1]),
        "spatial": ((2, 3, 4, 5), [2, 3]),
        "all_but_batch": ((2, 3, 4, 2), [1, 2, 3]),
        "unordered": ((2, 3, 4), [2, 0]),
        "middle": ((2, 3, 4), [1]),
        "rank5": ((1, 2, 3, 2, 2), [2, 3, 4]),
        "vector_tail": ((2, 37), [-1]),
    }
    for name, (shape, axes) in axes_of.items():
        for mode in ("inside_sqrt", "outside_sqrt"):
            attributes = {"eps": 1e-3, "normalize_variance": True, "eps_mode": mode}
            p.case(
                f"{name}_{mode}",
                [p.normal(*shape) + 2, np.array(axes, I64)],
                attributes,
                constant=(1,),
                reference=reference(True, mode == "inside_sqrt", 1e-3),
                tolerance=SUMS,
            )
    p.case(
        "mean_only",
        [p.normal(2, 3, 4), np.array([1, 2], I64)],
        {"eps": 1e-3, "normalize_variance": False, "eps_mode": "inside_sqrt"},
        constant=(1,),
        reference=reference(False, True, 0),
        tolerance=SUMS,
    )
    attributes = {"eps": 1e-5, "normalize_variance": True, "eps_mode": "inside_sqrt"}
    p.case(
        "f16",
        [p.normal(3, 8, dtype=F16), np.array([-1], I64)],
        attributes,
        constant=(1,),
        reference=reference(True, True, 1e-5),
        tolerance=HALF_SUMS,
    )
    p.case(
        "constant_row",
        [np.full((2, 5), 3, F32), np.array([1], I32)],
        attributes,
        constant=(1,),
        reference=reference(True, True, 1e-5),
        tolerance=SUMS,
    )
    p.case(
        "dynamic",
        [p.normal(2, 3, 8), np.array([-1], I64)],
        attributes,
        constant=(1,),
        shapes={0: [-1, -1, 8]},
        reference=reference(True, True, 1e-5),
        tolerance=SUMS,
    )
    p.case(
        "zero_batch",
        [p.normal(0, 8), np.array([1], I64)],
        attributes,
        constant=(1,),
        reference=reference(True, True, 1e-5),
    )


@pack("LRN-opset1")
def local_response(p: Pack) -> None:
    def reference(alpha, beta, bias, size):
        def normalise(x, axes):
            total = x * x
            before = (size - 1) // 2
            for axis in (int(a) % x.ndim for a in axes):
                widths = [(0, 0)] * x.ndim
                widths[axis] = (before, size - 1 - before)
                padded = np.pad(total, widths)
                total = sum(np.take(padded, range(k, k + x.shape[axis]), axis) for k in range(size))
            return x / (bias + alpha / size ** len(axes) * total) ** beta

        return exact(normalise)

    cases = {
        "channels": ((2, 6, 3, 3), [1], 0.5, 0.75, 1.0, 5),
        "spatial": ((1, 2, 5, 6), [2, 3], 0.5, 0.75, 1.0, 3),
        "size_one": ((1, 4, 2, 2), [1], 0.1, 0.5, 2.0, 1),
        "size_over_channels": ((1, 3, 2, 2), [1], 1.0, 0.75, 1.0, 7),
        "alexnet": ((1, 8, 3, 3), [1], 1e-4, 0.75, 1.0, 5),
        "rank3": ((2, 6, 3), [1], 0.5, 0.75, 1.0, 3),
        "rank5": ((1, 4, 2, 2, 2), [1], 0.5, 0.75, 1.0, 3),
        "rank2": ((2, 7), [1], 0.5, 0.75, 1.0, 3),
    }
    for name, (shape, axes, alpha, beta, bias, size) in cases.items():
        attributes = {"alpha": alpha, "beta": beta, "bias": bias, "size": size}
        p.case(
            name,
            [p.normal(*shape, scale=2), np.array(axes, I64)],
            attributes,
            constant=(1,),
            reference=reference(alpha, beta, bias, size),
        )
    attributes = {"alpha": 0.5, "beta": 0.75, "bias": 1.0, "size": 3}
    p.case(
        "dynamic",
        [p.normal(1, 4, 3, 3), np.array([1], I64)],
        attributes,
        constant=(1,),
        shapes={0: [-1, 4, -1, -1]},
        reference=reference(0.5, 0.75, 1.0, 3),
    )
    p.case(
        "f16",
        [p.normal(1, 4, 3, 3, dtype=F16), np.array([1], I64)],
        attributes,
        constant=(1,),
        reference=reference(0.5, 0.75, 1.0, 3),
    )


@pack("BatchNormInference-opset1", "BatchNormInference-opset5")
def batch_norm(p: Pack) -> None:
    old = p.version == "opset1"

    def arrange(data, gamma, beta, mean, variance):
        return [gamma, beta, data, mean, variance] if old else [data, gamma, beta, mean, variance]

    def reference(epsilon):
        def normalise(*inputs):
            gamma, beta, data, mean, variance = inputs if old else (inputs[1], inputs[2], inputs[0], *inputs[3:])
            shape = [1, -1] + [1] * (data.ndim - 2)
            scale = gamma / np.sqrt(variance + epsilon)
            return data * scale.reshape(shape) + (beta - mean * scale).reshape(shape)

        return exact(normalise)

    data_at = 2 if old else 0
    for shape in ((2, 3), (2, 3, 4), (2, 3, 4, 2), (1, 3, 2, 2, 2), (1, 17, 3, 3)):
        channels = shape[1]
        inputs = arrange(
            p.normal(*shape), p.normal(channels), p.normal(channels), p.normal(channels), p.positive(channels)
        )
        p.case(
            f"rank{len(shape)}_channels{channels}",
            inputs,
            {"epsilon": 1e-3},
            constant=[i for i in range(5) if i != data_at],
            reference=reference(1e-3),
            tolerance=SUMS,
        )
    inputs = arrange(p.normal(2, 3, 4, 4), p.normal(3), p.normal(3), p.normal(3), p.positive(3))
    fixed = [i for i in range(5) if i != data_at]
    p.case("parameters", inputs, {"epsilon": 1e-5}, reference=reference(1e-5), tolerance=SUMS)
    p.case(
        "dynamic",
        inputs,
        {"epsilon": 1e-5},
        constant=fixed,
        shapes={data_at: [-1, 3, -1, -1]},
        reference=reference(1e-5),
        tolerance=SUMS,
    )
    p.case(
        "f16",
        [i.astype(F16) for i in inputs],
        {"epsilon": 1e-3},
        constant=fixed,
        reference=reference(1e-3),
        tolerance=HALF_SUMS,
    )
    p.case(
        "tiny_variance",
        arrange(p.normal(1, 2, 2), p.normal(2), p.normal(2), p.normal(2), np.zeros(2, F32)),
        {"epsilon": 1e-2},
        constant=fixed,
        reference=reference(1e-2),
        tolerance=SUMS,
    )


@pack("NormalizeL2-opset1")
def normalize_l2(p: Pack) -> None:
    def reference(epsilon, mode):
        def normalise(x, axes):
            if not len(axes):
                total = x * x
            else:
                total = (x * x).sum(axis=tuple(int(a) % x.ndim for a in axes), keepdims=True)
            return x / np.sqrt(total + epsilon if mode == "add" else np.maximum(total, epsilon))

        return exact(normalise)

    for mode in ("add", "max"):
        for name, shape, axes in (
            ("channel", (2, 3, 4, 4), [1]),
            ("last", (3, 8), [1]),
            ("spatial", (1, 2, 3, 3), [1, 2, 3]),
            ("rank1", (6,), [0]),
            ("no_axes", (2, 3), []),
        ):
            p.case(
                f"{name}_{mode}",
                [p.normal(*shape), np.array(axes, I64)],
                {"eps": 1e-3, "eps_mode": mode},
                constant=(1,),
                reference=reference(1e-3, mode),
            )
        p.case(
            f"zeros_{mode}",
            [np.zeros((2, 3), F32), np.array([1], I64)],
            {"eps": 1e-3, "eps_mode": mode},
            constant=(1,),
            reference=reference(1e-3, mode),
        )
    p.case(
        "dynamic",
        [p.normal(2, 3), np.array([1], I64)],
        {"eps": 1e-3, "eps_mode": "max"},
        constant=(1,),
        shapes={0: [-1, -1]},
        reference=reference(1e-3, "max"),
    )


@pack("CumSum-opset3")
def cumulative_sum(p: Pack) -> None:
    def reference(exclusive, reverse):
        def total(x, axis):
            axis = int(axis)
            y = np.flip(x, axis) if reverse else x
            y = np.cumsum(y, axis, dtype=x.dtype) - (y if exclusive else 0)
            return np.flip(y, axis) if reverse else y

        return exact(total)

    for exclusive in (False, True):
        for reverse in (False, True):
            name = f"{'exclusive' if exclusive else 'inclusive'}_{'reverse' if reverse else 'forward'}"
            for axis in (0, 1, -1):
                p.case(
                    f"{name}_axis_{axis}",
                    [p.normal(2, 3, 4), np.array(axis, I64)],
                    {"exclusive": exclusive, "reverse": reverse},
                    constant=(1,),
                    reference=reference(exclusive, reverse),
                )
    p.case("int32", [p.normal(2, 5, dtype=I32), np.array(1, I32)], constant=(1,), reference=reference(False, False))
    p.case("int64", [p.normal(2, 5, dtype=I64), np.array(1, I32)], constant=(1,), reference=reference(False, False))
    p.case("axis_parameter", [p.normal(2, 5), np.array(0, I64)], reference=reference(False, False))
    p.case(
        "dynamic",
        [p.normal(2, 5), np.array(1, I64)],
        constant=(1,),
        shapes={0: [-1, -1]},
        reference=reference(False, False),
    )
    p.case("zero_sized", [p.normal(0, 3), np.array(1, I64)], constant=(1,), reference=reference(False, False))
