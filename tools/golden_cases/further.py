"""Less common operations that numpy can check: bits, sorting, signals, sparse
sums, rearrangement, predicates."""

from __future__ import annotations

import itertools

import numpy as np

from golden_cases.algebra import exact
from golden_cases.elementwise import PAIRS, in_f64
from golden_pack import Pack, make_model, make_node, make_parameter, pack

F32, F16, I32, I64, U8, I8 = np.float32, np.float16, np.int32, np.int64, np.uint8, np.int8
SUMS = {"rtol": 1e-4, "atol": 5e-5}


def ints(*values, dtype=I64):
    return np.array(values, dtype)


BITWISE = {
    "BitwiseAnd-opset13": np.bitwise_and,
    "BitwiseOr-opset13": np.bitwise_or,
    "BitwiseXor-opset13": np.bitwise_xor,
    "BitwiseLeftShift-opset15": np.left_shift,
    "BitwiseRightShift-opset15": np.right_shift,
}


@pack(*BITWISE)
def bitwise(p: Pack) -> None:
    function = BITWISE[f"{p.kind}-{p.version}"]
    shift = "Shift" in p.kind

    def pair(a, b, dtype):
        left = p.random.integers(0, 100, a).astype(dtype)
        right = p.random.integers(0, 5 if shift else 100, b).astype(dtype)
        return [np.asarray(left), np.asarray(right)]

    for name, (a, b) in PAIRS.items():
        p.case(f"numpy_{name}", pair(a, b, I32), {"auto_broadcast": "numpy"}, reference=function)
    for dtype in (U8, I8, I64, np.int16, np.uint16):
        p.case(np.dtype(dtype).name, pair((3, 4), (4,), dtype), reference=function)
    if not shift:
        p.case("boolean", [p.normal(8, dtype=np.bool_), p.normal(8, dtype=np.bool_)], reference=function)
    p.case("negative", [ints(-1, -8, 5, -100, dtype=I32), ints(1, 2, 3, 1, dtype=I32)], reference=function)
    p.case("none", pair((2, 3), (2, 3), I32), {"auto_broadcast": "none"}, reference=function)
    p.case("dynamic", pair((2, 3), (1, 3), I32), shapes={0: [-1, -1], 1: [-1, 3]}, reference=function)


@pack("BitwiseNot-opset13")
def bitwise_not(p: Pack) -> None:
    for dtype in (U8, I8, I32, I64, np.bool_):
        p.case(np.dtype(dtype).name, [p.normal(7, dtype=dtype)], reference=np.bitwise_not)
    p.case("rank0", [np.array(5, I32)], reference=np.bitwise_not)
    p.case("dynamic", [p.normal(2, 3, dtype=I32)], shapes={0: [-1, -1]}, reference=np.bitwise_not)


@pack("IsNaN-opset10", "IsFinite-opset10", "IsInf-opset10")
def predicates(p: Pack) -> None:
    values = np.array([0, 1, -np.inf, np.inf, np.nan, -3e38, 1e-40], F32)
    if p.kind != "IsInf":
        function = np.isnan if p.kind == "IsNaN" else np.isfinite
        for name, data in (
            ("values", values),
            ("rank2", values[:6].reshape(2, 3)),
            ("rank0", np.array(np.nan, F32)),
            ("zero_sized", np.zeros((0, 2), F32)),
            ("f16", values.astype(F16)),
        ):
            p.case(name, [data], reference=function, example=name == "values")
        p.case("dynamic", [values[:6]], shapes={0: [-1]}, reference=function)
        return
    for negative, positive in itertools.product((True, False), repeat=2):
        attributes = {"detect_negative": negative, "detect_positive": positive}

        def reference(x, negative=negative, positive=positive):
            return (negative & np.isneginf(x)) | (positive & np.isposinf(x))

        p.case(f"negative_{negative}_positive_{positive}", [values], attributes, reference=reference)
        p.case(f"rank2_{negative}_{positive}", [values[:6].reshape(2, 3)], attributes, reference=reference)


@pack("ErfInv-opset17")
def inverse_error_function(p: Pack) -> None:
    p.case("plain", [p.random.uniform(-0.95, 0.95, 9).astype(F32)])
    p.case("rank2", [p.random.uniform(-0.95, 0.95, (2, 3)).astype(F32)])


@pack("Bucketize-opset3")
def bucketize(p: Pack) -> None:
    for right in (True, False):
        for kind, dtype in (("i32", I32), ("i64", I64)):

            def reference(x, buckets, right=right, dtype=dtype):
                return np.searchsorted(buckets, x, side="left" if right else "right").astype(dtype)

            attributes = {"output_type": kind, "with_right_bound": right}
            p.case(
                f"{kind}_right_{right}",
                [p.random.integers(-1, 8, (3, 4)).astype(F32), np.array([0, 2, 4, 5], F32)],
                attributes,
                constant=(1,),
                reference=reference,
            )
            p.case(
                f"{kind}_right_{right}_int",
                [p.random.integers(-1, 8, (6,)).astype(I32), ints(0, 2, 4, dtype=I32)],
                attributes,
                reference=reference,
            )
        p.case(
            f"no_buckets_{right}",
            [p.normal(4), np.zeros(0, F32)],
            {"output_type": "i64", "with_right_bound": right},
            constant=(1,),
            reference=np.zeros(4, I64),
        )


@pack("SearchSorted-opset15")
def search_sorted(p: Pack) -> None:
    for right in (True, False):
        side = "right" if right else "left"
        for kind, dtype in (("i32", I32), ("i64", I64)):
            row = np.array([0, 1, 1, 3, 5, 8], F32)
            values = p.random.integers(-1, 10, (2, 4)).astype(F32)
            p.case(
                f"row_{kind}_{right}",
                [row, values],
                {"right_mode": right, "output_type": kind},
                reference=lambda s, v, side=side, dtype=dtype: np.searchsorted(s, v, side).astype(dtype),
            )
            rows = np.sort(p.random.integers(0, 9, (2, 5)), 1).astype(F32)
            p.case(
                f"rows_{kind}_{right}",
                [rows, values],
                {"right_mode": right, "output_type": kind},
                reference=lambda s, v, side=side, dtype=dtype: np.stack(
                    [np.searchsorted(a, b, side) for a, b in zip(s, v)]
                ).astype(dtype),
            )


@pack("Roll-opset7")
def roll(p: Pack) -> None:
    def reference(x, shift, axes):
        return np.roll(x, tuple(int(s) for s in np.atleast_1d(shift)), tuple(int(a) for a in np.atleast_1d(axes)))

    for name, shape, shift, axes in (
        ("one", (5,), [2], [0]),
        ("two", (3, 4), [1, -1], [0, 1]),
        ("same_axis_twice", (5,), [1, 3], [0, 0]),
        ("negative_axis", (2, 3, 4), [5], [-1]),
        ("rank4", (1, 2, 4, 4), [1, 2], [2, 3]),
        ("far", (5,), [-13], [0]),
        ("zero_sized", (0, 3), [1], [1]),
    ):
        p.case(
            name, [p.normal(*shape), np.array(shift, I64), np.array(axes, I64)], constant=(1, 2), reference=reference
        )
    p.case("scalar_shift", [p.normal(3, 4), np.array(1, I64), np.array([1], I64)], constant=(1, 2), reference=reference)
    for dtype in (F16, I32, I64, U8):
        p.case(
            np.dtype(dtype).name, [p.normal(3, 4, dtype=dtype), ints(1), ints(1)], constant=(1, 2), reference=reference
        )
    p.case("dynamic", [p.normal(3, 4), ints(1), ints(1)], constant=(1, 2), shapes={0: [-1, -1]}, reference=reference)


@pack("Reverse-opset1")
def reverse(p: Pack) -> None:
    for axes in ([0], [1], [0, 2], []):
        p.case(
            "index_" + "_".join(map(str, axes)),
            [p.normal(2, 3, 4), np.array(axes, I64)],
            {"mode": "index"},
            constant=(1,),
            reference=lambda x, a: np.flip(x, tuple(int(i) for i in a)) if len(a) else x,
        )
    p.case(
        "mask",
        [p.normal(2, 3, 4), np.array([True, False, True])],
        {"mode": "mask"},
        constant=(1,),
        reference=lambda x, a: x[::-1, :, ::-1],
    )


@pack("ReverseSequence-opset1")
def reverse_sequence(p: Pack) -> None:
    def reference(batch, seq):
        def apply(x, lengths):
            result = x.copy()
            b, s = batch % x.ndim, seq % x.ndim
            moved, source = np.moveaxis(result, (b, s), (0, 1)), np.moveaxis(x, (b, s), (0, 1))
            for i, n in enumerate(lengths):
                moved[i, : int(n)] = source[i, : int(n)][::-1]
            return result

        return apply

    for batch, seq, shape, lengths in (
        (0, 1, (2, 4, 3), [3, 4]),
        (1, 0, (5, 2), [1, 5]),
        (0, 2, (2, 3, 4), [2, 3]),
        (-2, -1, (3, 4), [4, 2, 1]),
    ):
        for kind in (I32, I64):
            p.case(
                f"batch_{batch}_seq_{seq}_{np.dtype(kind).name}",
                [p.normal(*shape), np.array(lengths, kind)],
                {"batch_axis": batch, "seq_axis": seq},
                constant=(1,),
                reference=reference(batch, seq),
            )
    p.case(
        "dynamic",
        [p.normal(2, 4), ints(3, 4)],
        {"batch_axis": 0, "seq_axis": 1},
        constant=(1,),
        shapes={0: [-1, -1]},
        reference=reference(0, 1),
    )


@pack("BatchToSpace-opset2", "SpaceToBatch-opset2")
def batch_space(p: Pack) -> None:
    def space_to_batch(x, block, begin, end):
        y = np.pad(x, list(zip(map(int, begin), map(int, end))))
        n, *rest = y.shape
        blocks = [int(b) for b in block[1:]]
        split = y.reshape(n, *[v for s, b in zip(rest, blocks) for v in (s // b, b)])
        k = len(rest)
        order = [2 + 2 * i for i in range(k)] + [0] + [1 + 2 * i for i in range(k)]
        return split.transpose(order).reshape(-1, *[s // b for s, b in zip(rest, blocks)])

    def batch_to_space(x, block, begin, end):
        n, *rest = x.shape
        blocks = [int(b) for b in block[1:]]
        split = x.reshape(*blocks, n // int(np.prod(blocks)), *rest)
        k = len(rest)
        order = [k] + [v for i in range(k) for v in (k + 1 + i, i)]
        y = split.transpose(order).reshape(n // int(np.prod(blocks)), *[s * b for s, b in zip(rest, blocks)])
        return y[tuple(slice(int(b), s - int(e)) for b, e, s in zip(begin, end, y.shape))]

    if p.kind == "SpaceToBatch":
        function = space_to_batch
        cases = {
            "rank4": ((1, 2, 4, 6), (1, 1, 2, 3), (0,) * 4, (0,) * 4),
            "pads": ((2, 1, 3, 5), (1, 1, 2, 2), (0, 0, 1, 0), (0, 0, 0, 1)),
            "rank3": ((1, 4, 3), (1, 2, 1), (0,) * 3, (0,) * 3),
            "rank2": ((2, 6), (1, 3), (0, 0), (0, 0)),
            "rank5": ((1, 1, 2, 2, 4), (1, 1, 1, 2, 2), (0,) * 5, (0,) * 5),
        }
    else:
        function = batch_to_space
        cases = {
            "rank4": ((6, 2, 2, 2), (1, 1, 2, 3), (0,) * 4, (0,) * 4),
            "crops": ((4, 1, 3, 3), (1, 1, 2, 2), (0, 0, 1, 0), (0, 0, 0, 1)),
            "rank3": ((2, 2, 3), (1, 2, 1), (0,) * 3, (0,) * 3),
            "rank2": ((6, 2), (1, 3), (0, 0), (0, 0)),
            "rank5": ((4, 1, 2, 1, 2), (1, 1, 1, 2, 2), (0,) * 5, (0,) * 5),
        }
    for name, (shape, block, begin, end) in cases.items():
        p.case(
            name,
            [p.normal(*shape), *(np.array(v, I64) for v in (block, begin, end))],
            constant=(1, 2, 3),
            reference=function,
        )
    shape, block, begin, end = cases["rank4"]
    p.case(
        "dynamic",
        [p.normal(*shape), *(np.array(v, I64) for v in (block, begin, end))],
        constant=(1, 2, 3),
        shapes={0: [-1] * 4},
        reference=function,
    )
    p.case(
        "int32",
        [p.normal(*shape, dtype=I32), *(np.array(v, I64) for v in (block, begin, end))],
        constant=(1, 2, 3),
        reference=function,
    )


@pack("Einsum-opset7")
def einsum(p: Pack) -> None:
    cases = {
        "matrix": ("ab,bc->ac", (2, 3), (3, 4)),
        "implicit": ("ij,jk", (2, 3), (3, 4)),
        "transpose": ("ij->ji", (2, 3)),
        "trace_free_sum": ("ij->i", (2, 3)),
        "total": ("ij->", (2, 3)),
        "batch": ("bij,bjk->bik", (2, 3, 4), (2, 4, 2)),
        "outer": ("i,j->ij", (3,), (4,)),
        "dot": ("i,i->", (5,), (5,)),
        "diagonal": ("ii->i", (3, 3)),
        "three": ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),
        "ellipsis": ("a...,b...->ab...", (2, 3), (4, 3)),
        "attention": ("bhqd,bhkd->bhqk", (1, 2, 3, 4), (1, 2, 5, 4)),
        "capitals": ("Aa,aB->BA", (2, 3), (3, 2)),
        "shared_inside": ("binh,tnh->bnit", (1, 3, 2, 4), (5, 2, 4)),
    }
    for name, (equation, *shapes) in cases.items():
        p.case(
            name,
            [p.normal(*s) for s in shapes],
            {"equation": equation},
            reference=in_f64(lambda *a, e=equation: np.einsum(e, *a)),
            tolerance=SUMS,
        )
    p.case(
        "dynamic",
        [p.normal(2, 3), p.normal(3, 4)],
        {"equation": "ab,bc->ac"},
        shapes={0: [-1, -1], 1: [-1, -1]},
        reference=in_f64(lambda a, b: a @ b),
        tolerance=SUMS,
    )


@pack("Eye-opset9")
def eye(p: Pack) -> None:
    for kind, dtype in (("f32", F32), ("i32", I32), ("i64", I64), ("u8", U8), ("f16", F16)):
        for rows, columns, shift in ((3, 3, 0), (2, 4, 1), (4, 2, -1), (3, 3, 7)):
            p.case(
                f"{kind}_{rows}_{columns}_{shift}",
                [np.array(v, I32) for v in (rows, columns, shift)],
                {"output_type": kind},
                constant=(0, 1, 2),
                reference=np.eye(rows, columns, shift).astype(dtype),
            )
    p.case(
        "batch",
        [np.array(2, I32), np.array(3, I32), np.array(0, I32), ints(2, 2, dtype=I32)],
        {"output_type": "f32"},
        constant=(0, 1, 2, 3),
        reference=np.broadcast_to(np.eye(2, 3, dtype=F32), (2, 2, 2, 3)),
    )
    for kind in ("i16", "u16", "u32", "u64"):
        dtype = np.dtype(("uint" if kind[0] == "u" else "int") + kind[1:])
        sizes = [np.array(v, I32) for v in (2, 3, 1)]
        identity = np.eye(2, 3, 1, dtype=dtype)
        p.case(kind, sizes, {"output_type": kind}, constant=(0, 1, 2), reference=identity, example=True)
    p.case(
        "no_rows",
        [np.array(v, I32) for v in (0, 3, 0)],
        {"output_type": "f32"},
        constant=(0, 1, 2),
        reference=np.zeros((0, 3), F32),
        example=True,
    )


@pack("GroupNormalization-opset12")
def group_normalization(p: Pack) -> None:
    def reference(groups, epsilon):
        def apply(x, scale, bias):
            split = x.reshape(x.shape[0], groups, -1)
            centred = split - split.mean(2, keepdims=True)
            normal = (centred / np.sqrt((centred**2).mean(2, keepdims=True) + epsilon)).reshape(x.shape)
            shape = [1, -1] + [1] * (x.ndim - 2)
            return normal * scale.reshape(shape) + bias.reshape(shape)

        return in_f64(apply)

    for shape, groups in (((2, 4, 3, 3), 2), ((1, 6, 5), 3), ((2, 4), 2), ((1, 4, 2, 2, 2), 1), ((1, 4, 3, 3), 4)):
        p.case(
            f"rank{len(shape)}_groups{groups}",
            [p.normal(*shape) + 1, p.normal(shape[1]), p.normal(shape[1])],
            {"num_groups": groups, "epsilon": 1e-4},
            constant=(1, 2),
            reference=reference(groups, 1e-4),
            tolerance=SUMS,
        )
    p.case(
        "dynamic",
        [p.normal(2, 4, 3, 3), p.normal(4), p.normal(4)],
        {"num_groups": 2, "epsilon": 1e-3},
        shapes={0: [-1, 4, -1, -1]},
        reference=reference(2, 1e-3),
        tolerance=SUMS,
    )


@pack("GRN-opset1")
def global_response(p: Pack) -> None:
    for shape in ((2, 3), (2, 3, 4), (1, 3, 4, 4)):
        for bias in (1.0, 0.01):
            p.case(
                f"rank{len(shape)}_{bias}",
                [p.normal(*shape)],
                {"bias": bias},
                reference=in_f64(lambda x, b=bias: x / np.sqrt((x * x).sum(1, keepdims=True) + b)),
            )


@pack("AdaptiveAvgPool-opset8", "AdaptiveMaxPool-opset8")
def adaptive(p: Pack) -> None:
    average = p.kind == "AdaptiveAvgPool"

    def reference(kind):
        def apply(x, target):
            sizes = [int(t) for t in target]
            spatial = x.shape[2:]
            values = np.zeros((*x.shape[:2], *sizes))
            index = np.zeros(values.shape, kind)
            for position in itertools.product(*map(range, sizes)):
                cut = tuple(slice(p_ * n // t, -(-(p_ + 1) * n // t)) for p_, n, t in zip(position, spatial, sizes))
                window = x[(slice(None), slice(None), *cut)].astype(np.float64).reshape(*x.shape[:2], -1)
                flat = np.arange(int(np.prod(spatial))).reshape(spatial)[cut].ravel()
                at = (slice(None), slice(None), *position)
                values[at] = window.mean(2) if average else window.max(2)
                index[at] = flat[window.argmax(2)]
            return values.astype(x.dtype) if average else [values.astype(x.dtype), index]

        return apply

    for kind, dtype in (("i64", I64),) if average else (("i64", I64), ("i32", I32)):
        attributes = {} if average else {"index_element_type": kind}
        for shape, target in (
            ((2, 3, 7), (3,)),
            ((1, 2, 7, 5), (3, 2)),
            ((1, 2, 4, 4), (1, 1)),
            ((1, 2, 4, 4), (4, 4)),
            ((1, 1, 4, 3, 5), (2, 2, 3)),
            ((1, 1, 3, 3), (5, 4)),
        ):
            p.case(
                f"rank{len(shape)}_to_{'x'.join(map(str, target))}_{kind}",
                [p.distinct(*shape), np.array(target, I64)],
                attributes,
                constant=(1,),
                reference=reference(dtype),
                example=kind == "i64" and not average,
            )


def bag(rows, weights, reduction):
    if not len(rows):
        return np.zeros(rows.shape[1:])
    if weights is not None:
        rows = rows * weights.reshape(-1, *[1] * (rows.ndim - 1))
    return rows.mean(0) if reduction == "mean" else rows.sum(0)


@pack("EmbeddingBagOffsets-opset15", "EmbeddingBagOffsetsSum-opset3")
def embedding_offsets(p: Pack) -> None:
    new = p.version == "opset15"

    def reference(reduction):
        def apply(table, indices, offsets, default=None, weights=None):
            ends = [*offsets[1:], len(indices)]
            result = []
            for begin, end in zip(offsets, ends):
                chosen = indices[int(begin) : int(end)]
                if not len(chosen):
                    fallback = (
                        table[int(default)] if default is not None and int(default) >= 0 else np.zeros(table.shape[1:])
                    )
                    result.append(fallback)
                    continue
                result.append(
                    bag(table[chosen], None if weights is None else weights[int(begin) : int(end)], reduction)
                )
            return np.stack(result)

        return exact(apply)

    for reduction in ("sum", "mean") if new else ("sum",):
        attributes = {"reduction": reduction} if new else {}
        for kind in (I32, I64):
            indices, offsets = ints(0, 2, 3, 4, 1, dtype=kind), ints(0, 2, 2, 4, dtype=kind)
            name = f"{reduction}_{np.dtype(kind).name}"
            p.case(
                f"{name}_default",
                [p.normal(5, 3), indices, offsets, np.array(1, kind)],
                attributes,
                constant=(3,),
                reference=reference(reduction),
            )
            p.case(
                f"{name}_plain",
                [p.normal(5, 2), indices, ints(0, 2, 4, dtype=kind)],
                attributes,
                reference=reference(reduction),
            )
        if reduction == "sum":
            p.case(
                "sum_weights",
                [p.normal(5, 2), ints(0, 2, 3, 4), ints(0, 2, 2), np.array(0, I64), p.normal(4)],
                attributes,
                constant=(3,),
                reference=reference("sum"),
            )


@pack("EmbeddingBagPacked-opset15", "EmbeddingBagPackedSum-opset3")
def embedding_packed(p: Pack) -> None:
    new = p.version == "opset15"

    def reference(reduction):
        def apply(table, indices, weights=None):
            return np.stack(
                [bag(table[row], None if weights is None else weights[i], reduction) for i, row in enumerate(indices)]
            )

        return exact(apply)

    for reduction in ("sum", "mean") if new else ("sum",):
        attributes = {"reduction": reduction} if new else {}
        for kind in (I32, I64):
            p.case(
                f"{reduction}_{np.dtype(kind).name}",
                [p.normal(5, 3), np.array([[0, 2], [1, 2], [3, 4]], kind)],
                attributes,
                reference=reference(reduction),
            )
        if reduction == "sum":
            p.case(
                "sum_weights",
                [p.normal(5, 2), np.array([[0, 2], [1, 2], [3, 4]], I64), p.normal(3, 2)],
                attributes,
                reference=reference("sum"),
            )


@pack("EmbeddingSegmentsSum-opset3")
def embedding_segments(p: Pack) -> None:
    def reference(table, indices, segments, count, default=None, weights=None):
        result = []
        for s in range(int(count)):
            chosen = segments == s
            if chosen.any():
                result.append(bag(table[indices[chosen]], None if weights is None else weights[chosen], "sum"))
            else:
                result.append(
                    table[int(default)] if default is not None and int(default) >= 0 else np.zeros(table.shape[1:])
                )
        return np.stack(result)

    for kind in (I32, I64):
        base = [p.normal(5, 2), ints(0, 2, 3, 4, dtype=kind), ints(0, 0, 2, 2, dtype=kind), np.array(3, kind)]
        name = np.dtype(kind).name
        p.case(f"{name}_plain", base, constant=(3,), reference=exact(reference))
        p.case(f"{name}_default", [*base, np.array(1, kind)], constant=(3, 4), reference=exact(reference))
        p.case(f"{name}_weights", [*base, np.array(0, kind), p.normal(4)], constant=(3, 4), reference=exact(reference))


@pack("GatherTree-opset1")
def gather_tree(p: Pack) -> None:
    steps = np.array([[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]], [[-1, -1, -1]]], F32)
    parents = np.array([[[0, 0, 0]], [[0, 1, 1]], [[2, 1, 2]], [[-1, -1, -1]]], F32)
    expected = np.array([[[2, 2, 2]], [[6, 5, 6]], [[7, 8, 9]], [[10, 10, 10]]], F32)
    p.case(
        "known",
        [steps, parents, np.array([3], F32), np.array(10, F32)],
        reference=expected,
        example=True,
        note="the beam search example that TensorFlow's operation documents",
    )
    p.case(
        "int32",
        [steps.astype(I32), parents.astype(I32), ints(3, dtype=I32), np.array(10, I32)],
        reference=expected.astype(I32),
    )


def to_complex(x):
    return x[..., 0] + 1j * x[..., 1]


def to_pairs(x):
    return np.stack([x.real, x.imag], -1)


@pack("DFT-opset7", "IDFT-opset7", "RDFT-opset9", "IRDFT-opset9")
def fourier(p: Pack) -> None:
    def reference(x, axes, size=None):
        axes = [int(a) for a in axes]
        sizes = None if size is None else [int(s) for s in size]
        wide = x.astype(np.float64)
        if p.kind == "RDFT":
            axes = [a % x.ndim for a in axes]
            full = [x.shape[a] if sizes is None or sizes[i] == -1 else sizes[i] for i, a in enumerate(axes)]
            return to_pairs(np.fft.rfftn(wide, full, axes)).astype(x.dtype)
        rank = x.ndim - 1
        axes = [a % rank for a in axes]
        if p.kind == "IRDFT":
            full = [x.shape[a] if sizes is None or sizes[i] == -1 else sizes[i] for i, a in enumerate(axes)]
            if sizes is None or sizes[-1] == -1:
                full[-1] = 2 * (x.shape[axes[-1]] - 1)
            return np.fft.irfftn(to_complex(wide), full, axes).astype(x.dtype)
        full = [x.shape[a] if sizes is None or sizes[i] == -1 else sizes[i] for i, a in enumerate(axes)]
        function = np.fft.fftn if p.kind == "DFT" else np.fft.ifftn
        return to_pairs(function(to_complex(wide), full, axes)).astype(x.dtype)

    def data(*shape):
        if p.kind == "RDFT":
            return p.normal(*shape)
        if p.kind == "IRDFT":
            # Half spectra of real signals: IRDFT of anything else depends on which half is read.
            return to_pairs(np.fft.rfftn(p.normal(*shape[:-1], 2 * (shape[-1] - 1)), axes=(-1,))).astype(F32)
        return p.normal(*shape, 2)

    for name, shape, axes in (
        ("rank1", (8,), [0]),
        ("odd", (3, 7), [1]),
        ("two_axes", (2, 4, 6), [1, 2]),
        ("negative_axis", (2, 5), [-1]),
        ("prime", (11,), [0]),
    ):
        if p.kind == "IRDFT" and len(axes) > 1:
            continue
        p.case(
            name,
            [data(*shape), np.array(axes, I64)],
            constant=(1,),
            reference=reference,
            tolerance={"rtol": 1e-4, "atol": 1e-4},
        )
    for name, shape, axes, size in (
        ("cut", (2, 8), [1], [5]),
        ("grown", (2, 5), [1], [8]),
        ("kept", (2, 6), [1], [-1]),
    ):
        p.case(
            name,
            [data(*shape), np.array(axes, I64), np.array(size, I64)],
            constant=(1, 2),
            reference=reference,
            tolerance={"rtol": 1e-4, "atol": 1e-4},
            example=name == "grown",
        )
    p.case(
        "dynamic",
        [data(2, 6), np.array([1], I64)],
        constant=(1,),
        shapes={0: [-1] * (2 if p.kind == "RDFT" else 3)} if p.kind == "RDFT" else {0: [-1, -1, 2]},
        reference=reference,
        tolerance={"rtol": 1e-4, "atol": 1e-4},
    )


@pack("Inverse-opset14")
def inverse(p: Pack) -> None:
    def matrix(*lead, n):
        return (p.normal(*lead, n, n) * 0.3 + np.eye(n) * 2).astype(F32)

    def adjoint(x):
        return np.linalg.inv(np.swapaxes(x, -1, -2))

    for n, lead in ((1, ()), (2, ()), (4, ()), (3, (2,)), (2, (2, 3))):
        p.case(
            f"n{n}_lead{len(lead)}",
            [matrix(*lead, n=n)],
            {"adjoint": False},
            reference=in_f64(np.linalg.inv),
            tolerance=SUMS,
        )
        if n > 1:
            p.case(
                f"adjoint_n{n}_lead{len(lead)}",
                [matrix(*lead, n=n)],
                {"adjoint": True},
                reference=in_f64(adjoint),
                tolerance={"rtol": 1e-3, "atol": 1e-3},
            )


@pack("OneHot-opset16")
def one_hot(p: Pack) -> None:
    for mode in ("ignore_negative", "normalize"):
        for axis in (0, 1, -1):
            indices = ints(0, 3, 1, -1)

            def reference(i, depth, on, off, axis=axis, mode=mode):
                i = np.where(i < 0, i + int(depth), i) if mode == "normalize" else i
                return np.moveaxis(np.where(i[..., None] == np.arange(int(depth)), on, off).astype(on.dtype), -1, axis)

            p.case(
                f"{mode}_{axis}",
                [indices, np.array(4, I64), np.array(1, F32), np.array(0, F32)],
                {"axis": axis, "negative_indices_mode": mode},
                constant=(1, 2, 3),
                reference=reference,
            )


@pack("SliceScatter-opset15")
def slice_scatter(p: Pack) -> None:
    def reference(x, updates, start, stop, step, axes=None):
        index = [slice(None)] * x.ndim
        for i, (a, b, c) in enumerate(zip(start, stop, step)):
            axis = int(axes[i]) if axes is not None else i
            stop_at = None if c < 0 and b < -x.shape[axis] else int(b)
            index[axis] = slice(int(a), stop_at, int(c))
        result = x.copy()
        result[tuple(index)] = updates
        return result

    cases = {
        "rank1": ((5,), (2,), (1,), (3,), (1,), None),
        "axis1": ((3, 5), (3, 2), (1,), (3,), (1,), (1,)),
        "step": ((6,), (3,), (0,), (6,), (2,), None),
        "reverse": ((5,), (5,), (-1,), (-100,), (-1,), (0,)),
        "two_axes": ((4, 5), (2, 3), (1, 1), (3, 4), (1, 1), None),
        "negative_axis": ((3, 5), (3, 2), (-3,), (-1,), (1,), (-1,)),
    }
    for name, (shape, update, start, stop, step, axes) in cases.items():
        inputs = [
            p.normal(*shape),
            p.normal(*update),
            *(np.array(v, I64) for v in (start, stop, step, axes) if v is not None),
        ]
        p.case(name, inputs, constant=range(2, 6), reference=reference)
    p.case(
        "int32",
        [p.normal(5, dtype=I32), p.normal(2, dtype=I32), ints(1), ints(3), ints(1)],
        constant=(2, 3, 4),
        reference=reference,
    )


@pack("SegmentMax-opset16")
def segment_max(p: Pack) -> None:
    for mode in ("zero", "lowest"):
        empty = 0.0 if mode == "zero" else np.finfo(F32).min

        def reference(x, segments, count=None, empty=empty):
            total = int(count) if count is not None else int(segments.max()) + 1
            return np.stack(
                [
                    x[segments == s].max(0) if (segments == s).any() else np.full(x.shape[1:], empty, x.dtype)
                    for s in range(total)
                ]
            ).astype(x.dtype)

        p.case(
            f"{mode}_gap",
            [p.normal(5, 2), ints(0, 0, 2, 2, 3)],
            {"fill_mode": mode},
            constant=(1,),
            reference=reference,
        )
        p.case(
            f"{mode}_count",
            [p.normal(4, 3), ints(0, 1, 1, 3), np.array(6, I64)],
            {"fill_mode": mode},
            constant=(1, 2),
            reference=reference,
        )
        p.case(
            f"{mode}_rank1", [p.normal(4), ints(0, 1, 1, 3)], {"fill_mode": mode}, constant=(1,), reference=reference
        )


@pack("Unique-opset10")
def unique(p: Pack) -> None:
    data = np.array([3, 1, 3, 2, 1, 1], F32)
    for kind in ("i32", "i64"):
        dtype = I32 if kind == "i32" else I64

        def reference(x, axis=None, dtype=dtype):
            values, first, back, counts = np.unique(x, True, True, True, axis=None if axis is None else int(axis))
            return [values, first.astype(dtype), back.reshape(-1).astype(dtype), counts.astype(dtype)]

        attributes = {"sorted": True, "index_element_type": kind, "count_element_type": kind}
        p.case(f"sorted_flat_{kind}", [data], attributes, reference=reference)
        p.case(f"sorted_matrix_{kind}", [data.reshape(2, 3)], attributes, reference=reference)
        p.case(
            f"sorted_axis0_{kind}",
            [np.array([[1, 2], [0, 5], [1, 2]], F32), np.array(0, I64)],
            attributes,
            constant=(1,),
            reference=reference,
        )
        p.case(
            f"unsorted_{kind}",
            [data],
            {**attributes, "sorted": False},
            reference=[
                np.array([3, 1, 2], F32),
                np.array([0, 1, 3], dtype),
                np.array([0, 1, 0, 2, 1, 1], dtype),
                np.array([2, 3, 1], dtype),
            ],
        )
    p.case("int32", [data.astype(I32)], {"sorted": True}, reference=lambda x: reference(x, None, I64))


@pack("ExtractImagePatches-opset3")
def extract_patches(p: Pack) -> None:
    for pad in ("valid", "same_upper", "same_lower"):
        for sizes, strides, rates in (([3, 3], [2, 2], [1, 1]), ([2, 3], [1, 2], [2, 1]), ([1, 1], [3, 3], [1, 1])):
            p.case(
                f"{pad}_{sizes[0]}x{sizes[1]}",
                [p.normal(1, 2, 7, 8)],
                {"sizes": sizes, "strides": strides, "rates": rates, "auto_pad": pad},
            )


@pack("Col2Im-opset15")
def col2im(p: Pack) -> None:
    def reference(attributes):
        def apply(x, output, kernel):
            (h, w), (kh, kw) = map(int, output), map(int, kernel)
            (sy, sx), (dy, dx) = attributes["strides"], attributes["dilations"]
            (ty, tx), (by, bx) = attributes["pads_begin"], attributes["pads_end"]
            lead = x.shape[:-2]
            channels = x.shape[-2] // (kh * kw)
            rows = (h + ty + by - dy * (kh - 1) - 1) // sy + 1
            columns = (w + tx + bx - dx * (kw - 1) - 1) // sx + 1
            blocks = x.reshape(*lead, channels, kh, kw, rows, columns)
            padded = np.zeros((*lead, channels, h + ty + by, w + tx + bx))
            for i, j, r, c in itertools.product(range(kh), range(kw), range(rows), range(columns)):
                padded[..., r * sy + i * dy, c * sx + j * dx] += blocks[..., i, j, r, c]
            return padded[..., ty : ty + h, tx : tx + w]

        return in_f64(apply)

    def add(name, lead, channels, output, kernel, strides=(1, 1), dilations=(1, 1), begin=(0, 0), end=(0, 0)):
        attributes = {
            "strides": list(strides),
            "dilations": list(dilations),
            "pads_begin": list(begin),
            "pads_end": list(end),
        }
        counts = [
            (o + b + e - d * (k - 1) - 1) // s + 1
            for o, k, s, d, b, e in zip(output, kernel, strides, dilations, begin, end)
        ]
        data = p.normal(*lead, channels * int(np.prod(kernel)), int(np.prod(counts)))
        p.case(
            name,
            [data, np.array(output, I64), np.array(kernel, I64)],
            attributes,
            constant=(1, 2),
            reference=reference(attributes),
            tolerance=SUMS,
        )

    add("plain", (1,), 2, (5, 5), (2, 2))
    add("no_batch", (), 3, (4, 4), (3, 3))
    add("strides", (2,), 2, (6, 6), (2, 2), (2, 2))
    add("dilations", (1,), 1, (6, 7), (2, 2), dilations=(2, 3))
    add("pads", (1,), 2, (5, 5), (3, 3), begin=(1, 1), end=(1, 1))


@pack("GroupedMatMul-opset17")
def grouped_matmul(p: Pack) -> None:
    """OpenVINO 2026.4.1 infers shapes for weights [groups, N, K] but cannot
    compute the operation; the values follow from its formula."""

    def batched(a, b):
        return a @ np.swapaxes(b, -1, -2)

    def routed(a, b, offsets):
        begins = [0, *offsets[:-1]]
        return np.concatenate([a[int(s) : int(e)] @ w.T for s, e, w in zip(begins, offsets, b)])

    note = "weights are [groups, N, K]"
    p.case(
        "batched",
        [p.normal(2, 3, 4), p.normal(2, 5, 4)],
        reference=exact(batched),
        example=True,
        note=note,
        tolerance=SUMS,
    )
    for kind in (I32, I64):
        p.case(
            f"routed_{np.dtype(kind).name}",
            [p.normal(10, 4), p.normal(3, 5, 4), ints(3, 8, 10, dtype=kind)],
            reference=exact(routed),
            example=True,
            note=note,
            tolerance=SUMS,
        )
    p.case(
        "empty_group",
        [p.normal(4, 3), p.normal(3, 2, 3), ints(2, 2, 4)],
        reference=exact(routed),
        example=True,
        note=note,
        tolerance=SUMS,
    )


@pack("ConvertPromoteTypes-opset14")
def promote(p: Pack) -> None:
    base = {"promote_unsafe": False, "pytorch_scalar_promotion": False, "u64_integer_promotion_target": "f32"}
    pairs = (
        (F32, F32, F32),
        (I32, I64, I64),
        (F16, F32, F32),
        (I8, np.int16, np.int16),
        (np.bool_, I32, I32),
        (np.bool_, F32, F32),
    )
    unsafe = ((I32, F32, F32), (I64, F16, F16))
    for a, b, common in (*pairs, *unsafe):
        attributes = {**base, "promote_unsafe": (a, b, common) in unsafe}
        p.case(
            f"{np.dtype(a).name}_{np.dtype(b).name}",
            [p.normal(3, dtype=a), p.normal(3, dtype=b)],
            attributes,
            reference=lambda x, y, t=common: [x.astype(t), y.astype(t)],
        )


@pack("Parameter-opset1", "Result-opset1")
def passes_through(p: Pack) -> None:
    """An input that is an output: every element type that npz can hold."""
    for dtype in (F32, F16, np.float64, I8, np.int16, I32, I64, U8, np.uint16, np.uint32, np.uint64, np.bool_):
        values = p.normal(2, 3, dtype=dtype)

        def build(values=values):
            import openvino
            from openvino import opset13

            node = make_parameter(values.dtype, list(values.shape), "x0")
            node.output(0).tensor.set_names({"x0", "y0"})
            return openvino.Model([opset13.result(node)], [node], "golden")

        p.model(
            np.dtype(dtype).name,
            build,
            [{"x0": values}],
            reference=[{"x0": values}],
            note="one tensor name serves input and output",
        )
    values = p.normal(3)

    def two_results():
        x = make_parameter(F32, [-1], "x0")
        a = make_node("Add", "opset1", [x, np.array(1, F32)])
        b = make_node("Multiply", "opset1", [a, np.array(2, F32)])
        return make_model([a, b], [x])

    p.model(
        "two_results",
        two_results,
        [{"x0": values}],
        reference=[{"y0": values + np.float32(1), "y1": (values + np.float32(1)) * np.float32(2)}],
    )


def packed(strings):
    """Begins, ends and symbols of strings in UTF-8."""
    encoded = [text.encode() for text in np.ravel(strings)]
    ends = np.cumsum([len(e) for e in encoded]).astype(I32)
    begins = np.concatenate([[0], ends[:-1]]).astype(I32)
    symbols = np.frombuffer(b"".join(encoded), U8).copy()
    return begins.reshape(np.shape(strings)), ends.reshape(np.shape(strings)), symbols


STRINGS = {
    "plain": np.array(["Intel", "Open", "VINO"]),
    "matrix": np.array([["a", "bc"], ["def", "g"]]),
    "utf8": np.array(["Gr\u00fc\u00dfe", "\u4f60\u597d", "x"]),
    "with_empty": np.array(["", "ab", ""]),
}


@pack("StringTensorPack-opset15")
def string_pack(p: Pack) -> None:
    for name, strings in STRINGS.items():
        for kind in (I32, I64):
            begins, ends, symbols = packed(strings)
            p.case(
                f"{name}_{np.dtype(kind).name}",
                [begins.astype(kind), ends.astype(kind), symbols],
                constant=(),
                reference=strings,
                example=True,
            )


@pack("StringTensorUnpack-opset15")
def string_unpack(p: Pack) -> None:
    for name, strings in STRINGS.items():
        p.case(name, [strings], reference=lambda s: list(packed(s)), example=True)
