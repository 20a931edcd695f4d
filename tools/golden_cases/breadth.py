"""Cases for what the tables by kind of operation left out: ranks, sizes of 0, numbers of inputs, absent attributes.

What a variation of another case cannot give stands here; the rest is `golden_grid.py`'s.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from golden_cases.algebra import attention
from golden_cases.control import add, multiply, read, scalar, write
from golden_pack import Pack, element_type, further, make_constant, make_model, make_node, make_parameter

F32, I64, I32 = np.float32, np.int64, np.int32

BY_RANK = {0: (), 1: (5,), 2: (2, 3), 3: (2, 1, 3), 4: (1, 2, 2, 3), 5: (2, 1, 2, 1, 2)}
ZERO = (2, 0, 3)


def integers(*values: int, dtype=I64) -> np.ndarray:
    return np.array(values, dtype)


def ranks(p: Pack, wanted, inputs, attributes=None, *, zero: bool = False, **facts) -> None:
    """A case for each rank, of what `inputs` makes of a shape, and one with a size of 0."""
    shapes = {f"rank{r}": BY_RANK[r] for r in wanted}
    if zero:
        shapes["zero"] = ZERO
    for name, shape in shapes.items():
        p.case(f"breadth_{name}", inputs(shape), attributes, **facts)


@further("BitwiseNot-opset13")
def bitwise_not(p: Pack) -> None:
    ranks(p, (3, 4, 5), lambda s: [p.normal(*s, dtype=I32)], zero=True, reference=np.invert)


@further("IsFinite-opset10", "IsInf-opset10", "IsNaN-opset10")
def classes_of_floats(p: Pack) -> None:
    function = {"IsFinite": np.isfinite, "IsInf": np.isinf, "IsNaN": np.isnan}[p.kind]
    special = np.array([1, np.nan, np.inf, -np.inf, 0], F32)
    ranks(p, (0, 3, 4, 5), lambda s: [p.random.choice(special, s).astype(F32)], zero=True, reference=function)


@further("Identity-opset16")
def identity(p: Pack) -> None:
    ranks(p, (3, 4), lambda s: [p.normal(*s)], reference=lambda x: x)


@further("Convert-opset1")
def convert(p: Pack) -> None:
    attributes = {"destination_type": "i32"}
    ranks(p, (3, 4, 5), lambda s: [p.normal(*s, scale=9)], attributes, reference=lambda x: np.trunc(x).astype(I32))


@further("ConvertLike-opset1")
def convert_like(p: Pack) -> None:
    like = integers(1, 2, dtype=I32)
    reference = lambda x, _: np.trunc(x).astype(I32)
    ranks(p, (0, 2, 3, 4, 5), lambda s: [p.normal(*s, scale=9), like], zero=True, reference=reference)


@further("Broadcast-opset1", "Broadcast-opset3")
def broadcast(p: Pack) -> None:
    for rank, shape in ((4, (1, 2, 1, 3)), (5, (1, 2, 1, 1, 3))):
        target = tuple(d if d > 1 else 2 for d in shape)
        inputs = [p.normal(*shape), integers(*target), integers(0)]
        names = {"mode": "numpy"}
        last = inputs if p.version == "opset1" else inputs[:2]
        p.case(f"breadth_rank{rank}", last, names, constant=(1, 2), reference=lambda x, t, *_: np.broadcast_to(x, t))
    axes = integers(1, 2)
    spread = lambda x, t, _: np.broadcast_to(x.reshape(1, *x.shape, 1), t)
    inputs = [p.normal(2, 3), integers(2, 2, 3, 2), axes]
    # OpenVINO writes `none` for it in version 1.
    patch = {"mode": "explicit"}
    p.case("breadth_explicit", inputs, patch, constant=(1, 2), patch=patch, reference=spread)


@further("Broadcast-opset1")
def broadcast_default_mode(p: Pack) -> None:
    inputs = [p.normal(2, 1), integers(2, 3)]
    reference = lambda x, t: np.broadcast_to(x, t)
    attributes = {"mode": "numpy"}
    p.case(
        "breadth_default_mode", inputs, attributes, constant=(1,), strip=("mode",), reference=reference, example=True
    )


@further("Bucketize-opset3")
def bucketize(p: Pack) -> None:
    buckets = np.array([0, 1, 2, 4], F32)
    attributes = {"output_type": "i64", "with_right_bound": True}
    reference = lambda x, b: np.digitize(x, b, right=True).astype(I64)
    inputs = lambda s: [p.normal(*s), buckets]
    ranks(p, (0, 3, 4, 5), inputs, attributes, constant=(1,), zero=True, reference=reference)


@further("Concat-opset1")
def concat(p: Pack) -> None:
    inputs = [p.normal(1, 2, 2, 3), p.normal(1, 1, 2, 3), p.normal(1, 3, 2, 3)]
    p.case("breadth_rank4", inputs, {"axis": 1}, reference=lambda *x: np.concatenate(x, 1))


@further("CumSum-opset3")
def cum_sum(p: Pack) -> None:
    inputs = lambda s: [p.normal(*s), integers(-1)[0]]
    ranks(p, (1, 4, 5), inputs, constant=(1,), reference=lambda x, _: np.cumsum(x, -1, dtype=F32))


@further("FakeQuantize-opset1")
def fake_quantize(p: Pack) -> None:
    bounds = [np.array(v, F32) for v in (-1, 1, -2, 2)]

    def reference(x, low, high, out_low, out_high):
        steps = np.rint((np.clip(x, low, high) - low) / (high - low) * 15)
        return (steps / 15 * (out_high - out_low) + out_low).astype(F32)

    attributes = {"levels": 16, "auto_broadcast": "numpy"}
    inputs = lambda s: [p.normal(*s), *bounds]
    ranks(p, (0, 3, 5), inputs, attributes, constant=(1, 2, 3, 4), zero=True, reference=reference)


@further("FakeQuantize-opset1")
def fake_quantize_without_broadcast(p: Pack) -> None:
    low, high = np.full((2, 3), -1, F32), np.full((2, 3), 1, F32)
    attributes = {"levels": 16, "auto_broadcast": "none"}
    p.case("breadth_none", [p.normal(2, 3), low, high, low, high], attributes, constant=(1, 2, 3, 4))


@further("Gather-opset1", "Gather-opset7", "Gather-opset8")
def gather(p: Pack) -> None:
    inputs = [p.normal(2, 3, 2, 2), integers(2, 0), integers(1)[0]]
    p.case("breadth_rank4", inputs, constant=(2,), reference=lambda x, i, a: np.take(x, i, int(a)))


@further("GatherElements-opset6")
def gather_elements(p: Pack) -> None:
    index = p.random.integers(0, 2, (1, 2, 3, 3)).astype(I64)
    inputs = [p.normal(1, 2, 2, 3), index]
    p.case("breadth_rank4", inputs, {"axis": 2}, reference=lambda x, i: np.take_along_axis(x, i, 2))


@further("GatherND-opset5", "GatherND-opset8")
def gather_nd(p: Pack) -> None:
    p.case("breadth_rank1", [p.normal(5), integers(3, 0).reshape(2, 1)], reference=lambda x, i: x[i[:, 0]])
    none = np.zeros((0, 2), I64)
    p.case("breadth_zero", [p.normal(2, 3, 4), none], reference=lambda x, _: np.zeros((0, 4), F32))


@further("LRN-opset1")
def lrn(p: Pack) -> None:
    def reference(axis):
        def across(x, _):
            size = 3
            padded = np.pad(
                np.square(x.astype(np.float64)), [(1, 1) if a == axis % x.ndim else (0, 0) for a in range(x.ndim)]
            )
            windows = np.lib.stride_tricks.sliding_window_view(padded, size, axis % x.ndim)
            return (x / (1.0 + 0.01 / size * windows.sum(-1)) ** 0.75).astype(F32)

        return across

    attributes = {"alpha": 0.01, "beta": 0.75, "bias": 1.0, "size": 3}
    p.case("breadth_rank1", [p.normal(5), integers(0)], attributes, constant=(1,), reference=reference(0), example=True)
    inputs = [p.normal(2, 4, 2, 2), integers(-3)]
    p.case("breadth_negative", inputs, attributes, constant=(1,), reference=reference(-3), example=True)
    inputs = [p.normal(0, 4, 2, 2), integers(1)]
    p.case("breadth_zero", inputs, attributes, constant=(1,), reference=lambda x, _: x)


@further("MVN-opset2")
def mvn(p: Pack) -> None:
    attributes = {"across_channels": False, "normalize_variance": True, "eps": 1e-5}
    p.case("breadth_zero", [p.normal(0, 3, 4)], attributes, reference=lambda x: x)


@further("NonZero-opset3")
def non_zero(p: Pack) -> None:
    reference = lambda x: np.array(np.nonzero(x)).astype(I64)
    attributes = {"output_type": "i64"}
    p.case("breadth_rank5", [p.normal(2, 1, 2, 1, 3, dtype=I32)], attributes, reference=reference)
    p.case("breadth_zero", [p.normal(*ZERO)], attributes, reference=reference)


@further("NormalizeL2-opset1")
def normalize_l2(p: Pack) -> None:
    def reference(x, axes):
        return (x / np.sqrt(np.square(x.astype(np.float64)).sum(tuple(axes), keepdims=True) + 1e-6)).astype(F32)

    attributes = {"eps": 1e-6, "eps_mode": "add"}
    for rank in (3, 5):
        inputs = [p.normal(*BY_RANK[rank]), integers(-1)]
        p.case(f"breadth_rank{rank}", inputs, attributes, constant=(1,), reference=reference, example=True)
    inputs = [p.normal(*ZERO), integers(2)]
    p.case("breadth_zero", inputs, attributes, constant=(1,), reference=lambda x, _: x, example=True)


@further("OneHot-opset1", "OneHot-opset16")
def one_hot(p: Pack) -> None:
    def reference(axis):
        def place(x, depth, on, off):
            hot = x[..., None] == np.arange(int(depth))
            return np.moveaxis(np.where(hot, on, off), -1, axis).astype(on.dtype)

        return place

    tail = [np.array(3, I64), np.array(2.5, F32), np.array(-1, F32)]
    for rank in (0, 2, 3, 4):
        inputs = [p.random.integers(0, 3, BY_RANK[rank]).astype(I64), *tail]
        p.case(f"breadth_rank{rank}", inputs, {"axis": -1}, constant=(1, 2, 3), reference=reference(-1))
    inputs = [np.zeros(ZERO, I64), *tail]
    p.case("breadth_zero", inputs, {"axis": 0}, constant=(1, 2, 3), reference=reference(0))


@further("PReLU-opset1")
def prelu(p: Pack) -> None:
    inputs = [np.array(-2, F32), np.array(0.5, F32)]
    p.case("breadth_rank0", inputs, constant=(1,), reference=lambda x, s: x * s)


@further("Pad-opset1", "Pad-opset12")
def pad(p: Pack) -> None:
    inputs = [p.normal(2, 1, 3), integers(1, 0, 2), integers(0, 2, 1), np.array(0.5, F32)]
    reference = lambda x, b, e, v: np.pad(x, list(zip(b, e)), constant_values=v)
    p.case("breadth_rank3", inputs, {"pad_mode": "constant"}, constant=(1, 2, 3), reference=reference)
    inputs = [np.array(2, F32), integers(), integers(), np.array(0.5, F32)]
    p.case("breadth_rank0", inputs, {"pad_mode": "constant"}, constant=(1, 2, 3), reference=lambda x, *_: x)


REDUCTIONS = {
    "L1": lambda x: np.abs(x),
    "L2": lambda x: np.abs(x),
    "LogicalAnd": lambda x: x,
    "LogicalOr": lambda x: x,
    "Max": lambda x: x,
    "Mean": lambda x: x,
    "Min": lambda x: x,
    "Prod": lambda x: x,
    "Sum": lambda x: x,
}


@further(*(f"Reduce{name}-opset{4 if name in ('L1', 'L2') else 1}" for name in REDUCTIONS))
def reductions(p: Pack) -> None:
    dtype = np.bool_ if "Logical" in p.kind else F32
    scalar = np.array(True) if dtype == np.bool_ else np.array(-2.5, F32)
    reference = REDUCTIONS[p.kind.removeprefix("Reduce")]
    p.case(
        "breadth_rank0", [scalar, integers()], {"keep_dims": False}, constant=(1,), reference=lambda x, _: reference(x)
    )


@further("Reshape-opset1")
def reshape(p: Pack) -> None:
    for rank, target in ((1, (-1, 1)), (4, (2, -1)), (5, (4, 0, -1))):
        shape = BY_RANK[rank]
        whole = tuple(shape[i] if d == 0 else d for i, d in enumerate(target))
        inputs = [p.normal(*shape), integers(*target)]
        reference = lambda x, _, whole=whole: x.reshape(whole)
        p.case(f"breadth_rank{rank}", inputs, {"special_zero": True}, constant=(1,), reference=reference)


@further("Result-opset1")
def result(p: Pack) -> None:
    """What a Result takes: ranks, types, open shapes."""
    declared = {"interval": [(1, 4), (2, 5)], "dynamic": [-1, -1], "unranked": "..."}
    cases = {f"rank{r}": (F32, BY_RANK[r]) for r in (0, 3, 4, 5)}
    cases |= {"zero": (F32, ZERO), "bf16": (ml_dtypes.bfloat16, (2, 3))}
    cases |= {name: (F32, (2, 3)) for name in declared}
    for name, (dtype, shape) in cases.items():
        value, wide = p.normal(*shape, dtype=dtype), declared.get(name, list(shape))

        def build(dtype=dtype, wide=wide):
            x = make_parameter(dtype, wide, "x0")
            return make_model([x], [x])

        p.model(f"breadth_{name}", build, [{"x0": value}], reference=[{"y0": value}], example=True)


@further("Reverse-opset1")
def reverse(p: Pack) -> None:
    for rank in (1, 2, 4, 5):
        inputs = [p.normal(*BY_RANK[rank]), integers(rank - 1)]
        p.case(
            f"breadth_rank{rank}",
            inputs,
            {"mode": "index"},
            constant=(1,),
            reference=lambda x, a: np.flip(x, int(a[0])),
        )


@further("ReverseSequence-opset1")
def reverse_sequence(p: Pack) -> None:
    def reference(x, lengths):
        y = x.copy()
        for b, n in enumerate(lengths):
            y[b, : int(n)] = x[b, : int(n)][::-1]
        return y

    for name, shape in {"rank4": (2, 3, 2, 1), "rank5": (2, 4, 1, 2, 1), "zero": (2, 3, 0)}.items():
        inputs = [p.normal(*shape), integers(3, 1)]
        p.case(f"breadth_{name}", inputs, {"batch_axis": 0, "seq_axis": 1}, reference=reference)


@further("ReverseSequence-opset1")
def reverse_sequence_defaults(p: Pack) -> None:
    attributes = {"batch_axis": 0, "seq_axis": 1}
    p.case("breadth_default_axes", [p.normal(2, 3, 2), integers(3, 1)], attributes, strip=tuple(attributes))


@further("Roll-opset7")
def roll(p: Pack) -> None:
    inputs = [p.normal(2, 1, 3, 1, 2), integers(1, -2), integers(2, -1)]
    p.case("breadth_rank5", inputs, constant=(1, 2), reference=lambda x, s, a: np.roll(x, tuple(s), tuple(a)))


@further("ScaledDotProductAttention-opset13")
def scaled_dot_product_attention(p: Pack) -> None:
    shape = (2, 1, 2, 3, 4)
    p.case("breadth_rank5", [p.normal(*shape), p.normal(*shape), p.normal(*shape)], {"causal": True})
    for name, sink in {"heads": (1, 2, 1, 1), "one": (1, 1, 1, 1), "batch": (2, 2, 1, 1)}.items():
        inputs = [p.normal(2, 2, 3, 4), p.normal(2, 2, 5, 4), p.normal(2, 2, 5, 4), p.normal(1, 1, 3, 5)]
        inputs += [np.array(0.4, F32), p.normal(*sink)]
        reference = attention(False)
        p.case(f"breadth_sink_{name}", inputs, {"causal": False}, constant=(4,), reference=reference, example=True)


@further("ScatterElementsUpdate-opset3", "ScatterElementsUpdate-opset12")
def scatter_elements(p: Pack) -> None:
    def reference(x, i, u, a):
        y = x.copy()
        np.put_along_axis(y, i, u, int(a))
        return y

    index = np.argsort(p.random.random((1, 2, 3, 2)), axis=2)[:, :, :2].astype(I64)
    inputs = [p.normal(1, 2, 3, 2), index, p.normal(1, 2, 2, 2), np.array(2, I64)]
    p.case("breadth_rank4", inputs, constant=(3,), reference=reference)


@further("ScatterElementsUpdate-opset12")
def scatter_elements_defaults(p: Pack) -> None:
    inputs = [p.normal(4), integers(3, 0), p.normal(2), np.array(0, I64)]

    def reference(x, i, u, _):
        y = x.copy()
        y[i] = u
        return y

    attributes = {"reduction": "none", "use_init_val": True}
    p.case("breadth_defaults", inputs, attributes, constant=(3,), strip=tuple(attributes), reference=reference)


@further("ScatterNDUpdate-opset4", "ScatterNDUpdate-opset15")
def scatter_nd(p: Pack) -> None:
    def reference(x, i, u):
        y = x.copy()
        y[tuple(i.T)] = u
        return y

    inputs = [p.normal(2, 3, 2, 2), integers(1, 2, 0, 0).reshape(2, 2), p.normal(2, 2, 2)]
    p.case("breadth_rank4", inputs, reference=reference)


@further("ScatterUpdate-opset3")
def scatter_update(p: Pack) -> None:
    def reference(x, i, u, _):
        y = x.copy()
        y[:, i] = u
        return y

    inputs = [p.normal(2, 3, 1, 2), integers(2, 0), p.normal(2, 2, 1, 2), np.array(1, I64)]
    p.case("breadth_rank4", inputs, constant=(3,), reference=reference)


@further("SearchSorted-opset15")
def search_sorted(p: Pack) -> None:
    for rank in (3, 4, 5):
        shape = BY_RANK[rank]
        values = np.sort(p.normal(*shape[:-1], 4), -1)
        p.case(f"breadth_rank{rank}", [values, p.normal(*shape)], {"right_mode": True})
    p.case("breadth_zero", [np.sort(p.normal(2, 4), -1), p.normal(2, 0)], {"right_mode": False})


@further("Select-opset1")
def select(p: Pack) -> None:
    inputs = [p.normal(1, 2, 2, 3, dtype=np.bool_), p.normal(1, 2, 2, 3), p.normal(2, 1, 3)]
    p.case("breadth_rank4", inputs, reference=np.where)


@further("ShapeOf-opset1", "ShapeOf-opset3")
def shape_of(p: Pack) -> None:
    reference = lambda x: np.array(x.shape, I64)
    attributes = {} if p.version == "opset1" else {"output_type": "i64"}
    p.case("breadth_rank4", [p.normal(1, 2, 2, 3)], attributes, reference=reference)
    if attributes:
        inputs = [p.normal(1, 2, 2, 3)]
        p.case("breadth_default", inputs, attributes, strip=("output_type",), reference=reference, example=True)


@further("ShuffleChannels-opset1")
def shuffle_channels(p: Pack) -> None:
    def reference(axis, group):
        def shuffle(x):
            whole = x.reshape(*x.shape[:axis], group, x.shape[axis] // group, *x.shape[axis + 1 :])
            return np.swapaxes(whole, axis, axis + 1).reshape(x.shape)

        return shuffle

    p.case("breadth_rank1", [p.normal(6)], {"axis": 0, "group": 3}, reference=reference(0, 3), example=True)
    plain = {"axis": 1, "group": 1}
    p.case("breadth_defaults", [p.normal(2, 4)], plain, strip=("axis", "group"), reference=lambda x: x)
    zero = {"axis": 1, "group": 2}
    p.case("breadth_zero", [p.normal(0, 4, 2)], zero, reference=lambda x: x, example=True)


@further("Slice-opset8")
def slice_(p: Pack) -> None:
    inputs = [p.normal(2, 3, 4, 2), integers(0, 2), integers(2, 0), integers(1, -1)]
    inputs.append(integers(0, 1))
    reference = lambda x, *_: x[0:2, 2:0:-1]
    p.case("breadth_four_inputs", inputs, constant=(1, 2, 3, 4), drop=1, reference=reference, example=True)


@further("SliceScatter-opset15")
def slice_scatter(p: Pack) -> None:
    def reference(x, u, *_):
        y = x.copy()
        y[..., 1:2] = u
        return y

    for rank in (3, 4, 5):
        shape = BY_RANK[rank]
        inputs = [p.normal(*shape), p.normal(*shape[:-1], 1), integers(1), integers(2), integers(1), integers(-1)]
        p.case(f"breadth_rank{rank}", inputs, constant=(2, 3, 4, 5), reference=reference)
    inputs = [p.normal(2, 3), p.normal(0, 3), integers(1), integers(1), integers(1), integers(0)]
    p.case("breadth_zero", inputs, constant=(2, 3, 4, 5), reference=lambda x, *_: x)


@further("SoftMax-opset1")
def softmax(p: Pack) -> None:
    def reference(x):
        powers = np.exp(x - x.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    p.case(
        "breadth_default_axis",
        [p.normal(2, 4, 3)],
        {"axis": 1},
        strip=("axis",),
        reference=reference,
        example=True,
        note="the axis is 1 where it is not given",
    )


@further("Split-opset1")
def split(p: Pack) -> None:
    for rank, shape, axis in ((1, (4,), 0), (4, (1, 4, 2, 2), 1), (5, (1, 2, 1, 2, 4), -1)):
        inputs = [p.normal(*shape), np.array(axis, I64)]
        reference = lambda x, a: np.split(x, 2, int(a))
        p.case(f"breadth_rank{rank}", inputs, {"num_splits": 2}, constant=(1,), reference=reference)


@further("VariadicSplit-opset1")
def variadic_split(p: Pack) -> None:
    for rank, shape, axis in ((1, (4,), 0), (4, (1, 4, 2, 2), 1), (5, (1, 2, 1, 2, 4), -1)):
        inputs = [p.normal(*shape), np.array(axis, I64), integers(3, 1)]
        reference = lambda x, a, _: np.split(x, [3], int(a))
        p.case(f"breadth_rank{rank}", inputs, constant=(1, 2), reference=reference)


@further("Squeeze-opset1", "Squeeze-opset15")
def squeeze(p: Pack) -> None:
    p.case("breadth_rank0", [np.array(2, F32)], reference=lambda x: x)


@further("Transpose-opset1")
def transpose(p: Pack) -> None:
    p.case("breadth_rank0", [np.array(2, F32), integers()], constant=(1,), reference=lambda x, _: x)


@further("Unsqueeze-opset1")
def unsqueeze(p: Pack) -> None:
    for rank in (3, 4):
        inputs = [p.normal(*BY_RANK[rank]), integers(1, -1)]
        p.case(f"breadth_rank{rank}", inputs, constant=(1,), reference=lambda x, _: x[:, None, ..., None])


@further("StridedSlice-opset1")
def strided_slice(p: Pack) -> None:
    attributes = {
        "begin_mask": [0, 0],
        "end_mask": [0, 1],
        "new_axis_mask": [],
        "shrink_axis_mask": [],
        "ellipsis_mask": [],
    }
    inputs = [p.normal(3, 4, 2), integers(1, 2), integers(3, 0)]
    inputs.append(integers(1, 1))
    reference = lambda x, *_: x[1:3, 2:]
    p.case("breadth_three_inputs", inputs, attributes, constant=(1, 2, 3), drop=1, reference=reference, example=True)


@further("Tile-opset1")
def tile(p: Pack) -> None:
    inputs = [p.normal(1, 2, 1, 3), integers(2, 1, 2)]
    p.case("breadth_rank4", inputs, constant=(1,), reference=lambda x, r: np.tile(x, tuple(r)))


@further("TopK-opset1", "TopK-opset3", "TopK-opset11")
def top_k(p: Pack) -> None:
    def reference(x, k):
        order = np.argsort(-x, -1, kind="stable")[..., : int(k)]
        return np.take_along_axis(x, order, -1), order.astype(I32)

    attributes = {"axis": -1, "mode": "max", "sort": "value", "index_element_type": "i32"}
    for rank in (4, 5):
        shape = (*BY_RANK[rank][:-1], 4)
        p.case(
            f"breadth_rank{rank}",
            [p.distinct(*shape), np.array(2, I64)],
            attributes,
            constant=(1,),
            reference=reference,
        )
    inputs = [p.normal(0, 4), np.array(2, I64)]
    p.case("breadth_zero", inputs, attributes, constant=(1,), reference=reference, example=True)


@further("Unique-opset10")
def unique(p: Pack) -> None:
    shapes = {"rank0": (), "rank3": (2, 1, 3), "rank4": (1, 2, 2, 3), "rank5": (2, 1, 2, 1, 2)}
    for name, shape in shapes.items():
        p.case(f"breadth_{name}", [p.normal(*shape, dtype=I32)], {"sorted": True})
    nothing = [np.zeros(0, I32), np.zeros(0, I64), np.zeros(0, I64), np.zeros(0, I64)]
    p.case("breadth_zero", [np.zeros((0, 3), I32)], {"sorted": True}, reference=nothing, example=True)
    inputs = [integers(1, 2, 1, 3, 4, 3, dtype=I32).reshape(2, 3), integers(-1)]
    p.case("breadth_negative_axis", inputs, {"sorted": True}, constant=(1,))


@further("BatchNormInference-opset1")
def batch_norm(p: Pack) -> None:
    def reference(gamma, beta, data, mean, variance):
        gamma, beta, mean, variance = (v.reshape(1, -1, *[1] * (data.ndim - 2)) for v in (gamma, beta, mean, variance))
        return ((data - mean) / np.sqrt(variance + 1e-3) * gamma + beta).astype(F32)

    for shape in ((2, 3), (2, 3, 4), (1, 3, 2, 2), (1, 3, 2, 1, 2)):
        inputs = [p.normal(3), p.normal(3), p.normal(*shape), p.normal(3), p.positive(3)]
        p.case(f"breadth_rank{len(shape)}", inputs, {"epsilon": 1e-3}, constant=(0, 1, 3, 4), reference=reference)


@further("NonMaxSuppression-opset5", "NonMaxSuppression-opset9")
def non_max_suppression(p: Pack) -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], F32)
    scores = np.array([[[0.9, 0.75, 0.6]]], F32)
    attributes = {"output_type": "i32"}
    nothing = [np.zeros((0, 3), I32), np.zeros((0, 3), F32), np.zeros(1, I32)]
    p.case(
        "breadth_inputs_2",
        [boxes, scores],
        attributes,
        reference=nothing,
        example=True,
        note="no box is selected where there is no limit",
    )
    rows = [np.array([[0, 0, 0], [0, 0, 2]], I32), np.array([[0, 0, 0.9], [0, 0, 0.6]], F32), np.array([2], I32)]
    tail = [np.array(2, I64), np.array(0.5, F32), np.array(0.5, F32)]
    for count in (4, 5):
        inputs = [boxes, scores, *tail[: count - 2]]
        constant = tuple(range(2, count))
        p.case(f"breadth_inputs_{count}", inputs, attributes, constant=constant, reference=rows, example=True)


@further("MaxPool-opset8", "MaxPool-opset14")
def max_pool_defaults(p: Pack) -> None:
    """Without dilations, and with indices counted from an axis given from the end."""
    attributes = {
        "kernel": [2],
        "strides": [1],
        "dilations": [1],
        "pads_begin": [0],
        "pads_end": [0],
        "auto_pad": "explicit",
        "rounding_type": "floor",
        "index_element_type": "i64",
        "axis": 0,
    }
    values = p.distinct(1, 2, 5)

    def reference(first):
        def pool(x):
            windows = np.lib.stride_tricks.sliding_window_view(x, 2, -1)
            places = windows.argmax(-1) + np.arange(4)
            rows = np.arange(2).reshape(1, 2, 1) * 5
            return windows.max(-1), places + (rows if first == 0 else 0)

        return pool

    names = ("dilations", "auto_pad", "rounding_type", "index_element_type", "axis")
    p.case("breadth_defaults", [values], attributes, strip=names, reference=reference(0), example=True)
    last = {**attributes, "axis": 2}
    p.case("breadth_negative_axis", [values], last, patch={"axis": "-1"}, reference=reference(2), example=True)


@further("DetectionOutput-opset1", "DetectionOutput-opset8")
def detection_output(p: Pack) -> None:
    """Priors in pixels, and auxiliary scores and boxes."""
    attributes = {
        "background_label_id": 0,
        "top_k": -1,
        "variance_encoded_in_target": False,
        "keep_top_k": [5],
        "code_type": "caffe.PriorBoxParameter.CENTER_SIZE",
        "share_location": True,
        "nms_threshold": 0.5,
        "confidence_threshold": 0.1,
        "clip_after_nms": False,
        "clip_before_nms": False,
        "decrease_label_id": False,
        "normalized": False,
        "input_height": 32,
        "input_width": 32,
        "objectness_score": 0.3,
    }
    if p.version == "opset1":
        attributes["num_classes"] = 3
    priors = 4
    corners = np.sort(p.random.uniform(0, 32, (priors, 2, 2)), 1).reshape(priors, 4)
    pixels = np.concatenate([np.zeros((priors, 1)), corners], 1).reshape(1, 1, -1)
    variances = np.full((1, 1, priors * 5), 0.1)
    proposals = np.concatenate([pixels, variances], 1).astype(F32)
    logits, scores = p.normal(1, priors * 4, scale=0.3), p.positive(1, priors * 3) / 3
    own = [logits, scores.astype(F32), proposals]
    p.case("breadth_pixels", own, attributes)
    fractions = {**attributes, "normalized": True}
    corners = (corners / 32).reshape(1, 1, -1)
    proposals = np.concatenate([corners, np.full_like(corners, 0.1)], 1).astype(F32)
    further_inputs = [p.positive(1, priors * 2) / 3, p.normal(1, priors * 4, scale=0.2)]
    p.case("breadth_auxiliary", [logits, scores.astype(F32), proposals, *further_inputs], fractions)


@further("LSTMCell-opset1")
def lstm_cell(p: Pack) -> None:
    """Orders of the gates, and the input gate coupled to the forget gate; the CPU plugin reads neither attribute."""
    size = 3

    def reference(order, coupled):
        def cell(x, hidden, state, w, r, b):
            sums = x @ w.T + hidden @ r.T + b
            gate = {name: sums[:, k * size : (k + 1) * size] for k, name in enumerate(order)}
            sigmoid = {name: 1 / (1 + np.exp(-gate[name])) for name in "fio"}
            enter = 1 - sigmoid["f"] if coupled else sigmoid["i"]
            new = sigmoid["f"] * state + enter * np.tanh(gate["c"])
            return (sigmoid["o"] * np.tanh(new)).astype(F32), new.astype(F32)

        return cell

    shapes = [(2, 2), (2, size), (2, size), (4 * size, 2), (4 * size, size), (4 * size,)]
    for order in ("fico", "icof", "ifco", "ifoc", "iofc"):
        for coupled in (False, True):
            if coupled and order != "fico":
                continue
            p.case(
                f"breadth_{order}{'_coupled' if coupled else ''}",
                [p.normal(*shape, scale=0.5) for shape in shapes],
                {"hidden_size": size, "weights_format": order, "input_forget": coupled},
                constant=(3, 4, 5),
                reference=reference(order, coupled),
                example=True,
            )


@further("RegionYolo-opset1")
def region_yolo(p: Pack) -> None:
    attributes = {"anchors": [1.0, 2.0], "axis": 1, "coords": 4, "classes": 2, "end_axis": 3, "num": 1, "mask": [0]}
    attributes["do_softmax"] = True

    def reference(x):
        def sigmoid(v):
            return 1 / (1 + np.exp(-v))

        powers = np.exp(x[:, 5:] - x[:, 5:].max(1, keepdims=True))
        classes = powers / powers.sum(1, keepdims=True)
        parts = [sigmoid(x[:, :2]), x[:, 2:4], sigmoid(x[:, 4:5]), classes]
        return np.concatenate(parts, 1).reshape(1, -1).astype(F32)

    p.case(
        "breadth_default_softmax",
        [p.normal(1, 7, 2, 2)],
        attributes,
        strip=("do_softmax",),
        reference=reference,
        example=True,
        note="softmax is done unless the IR says otherwise",
    )


STATES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "boolean": np.bool_,
}


@further("ReadValue-opset3", "ReadValue-opset6", "Assign-opset3", "Assign-opset6")
def states(p: Pack) -> None:
    """A variable that keeps the previous input: every type, every rank, a size of 0."""
    shapes = {f"rank{r}": BY_RANK[r] for r in range(6)} | {"zero": ZERO}
    cases = {f"type_{name}": (dtype, (2, 3)) for name, dtype in STATES.items()}
    cases |= {name: (F32, shape) for name, shape in shapes.items()}
    for name, (dtype, shape) in cases.items():
        values = [np.asarray(p.normal(*shape, dtype=dtype)) for _ in range(3)]
        initial = np.asarray(p.normal(*shape, dtype=dtype))
        expected = [initial, *values[:-1]]
        p.model(
            f"breadth_{name}",
            lambda dtype=dtype, shape=shape, initial=initial: _previous_input(p.version, dtype, shape, initial),
            [{"x0": value} for value in values],
            reference=[{"y0": value} for value in expected],
            example=True,
        )


@further("ReadValue-opset3", "ReadValue-opset6", "Assign-opset3", "Assign-opset6")
def grown_states(p: Pack) -> None:
    """A variable of interval, open and unknown shape, which has the shape of its initial value and then grows."""
    # Version 3 selects between the old and the new value, so that their shapes cannot differ.
    first, *values = [p.normal(rows, 3) for rows in ((1, 2, 4, 1) if p.version == "opset6" else (2, 2, 2, 2))]
    expected = [first, *values[:-1]]
    for extent, shape in {"interval": [(1, 5), 3], "dynamic": [-1, -1], "unranked": "..."}.items():
        p.model(
            f"breadth_{extent}",
            lambda shape=shape: _previous_input(p.version, F32, shape, None),
            [{"x0": value, "x1": first} for value in values],
            reference=[{"y0": value} for value in expected],
            example=True,
        )


@further("ReadValue-opset6", "Assign-opset6")
def chained_states(p: Pack) -> None:
    """An initialiser reads another variable: exporters keep what an encoder gave, and keys that are made of it."""

    def build():
        x = make_parameter(F32, [2, 3], "x0")
        kept = read(p.version, x, "kept", [2, 3])
        keys = read(p.version, add(kept, scalar(1)), "keys", [2, 3])
        sinks = [write(p.version, kept, "kept"), write(p.version, add(keys, kept), "keys")]
        return make_model([multiply(keys, scalar(1))], [x], sinks)

    values = [p.normal(2, 3) for _ in range(3)]
    expected = [values[0] + np.float32(1)]
    for _ in range(2):
        expected.append(expected[-1] + values[0])
    steps, reference = [{"x0": v} for v in values], [{"y0": v} for v in expected]
    p.model("breadth_chained", build, steps, reference=reference, example=True)


def _previous_input(version: str, dtype, shape, initial):
    from openvino import PartialShape, opset3, opset6

    shape = shape if isinstance(shape, str) else list(shape)
    x = make_parameter(dtype, shape, "x0")
    start = make_parameter(dtype, shape, "x1") if initial is None else make_constant(initial)
    given = [x, start] if initial is None else [x]
    if version == "opset3":
        read = opset3.read_value(start, "v")
        # Version 3 finds its variable among the producers of the value.
        new = make_node("Select", "opset1", [make_constant(np.array(False)), read, x], {"auto_broadcast": "numpy"})
        write = opset3.assign(new, "v")
    else:
        kind = element_type(dtype)
        read = opset6.read_value(start, "v", kind, PartialShape(shape))
        write = opset6.assign(x, "v")
    copied = make_node("Concat", "opset1", [read], {"axis": 0}) if shape else read
    return make_model([copied], given, [write])


@further("TensorIterator-opset1")
def tensor_iterator(p: Pack) -> None:
    """Slices of every type and rank, put together again in the order of a Concat with what does not vary."""
    types = {**STATES, "f32": F32}
    cases = {f"type_{name}": (dtype, (3, 2)) for name, dtype in types.items()}
    cases |= {f"rank{r}": (F32, (3, *BY_RANK[r][1:])) for r in range(1, 6)}
    cases |= {name: (F32, (3, 2)) for name in ("interval", "dynamic", "unranked")}
    cases |= {"zero": (F32, (3, 0))}
    declared = {"interval": [(1, 4), (2, 5)], "dynamic": [-1, -1], "unranked": "..."}
    for name, (dtype, shape) in cases.items():
        wide = declared.get(name, list(shape))
        value, tail = p.normal(*shape, dtype=dtype), p.normal(1, *shape[1:], dtype=dtype)
        expected = np.concatenate([np.concatenate([value[k : k + 1], tail]) for k in range(shape[0])])
        p.model(
            f"breadth_{name}",
            lambda dtype=dtype, wide=wide, part=(1, *shape[1:]): _slices(dtype, wide, list(part)),
            [{"x0": value, "x1": tail}],
            reference=[{"y0": expected}],
            example=True,
        )


def _slices(dtype, shape, part):
    import openvino
    from openvino import opset1

    is_open = shape == "..." or -1 in shape or any(isinstance(d, tuple) for d in shape)
    inner_part = [1, *([-1] * (len(part) - 1))] if is_open else part
    x, tail = make_parameter(dtype, shape, "x0"), make_parameter(dtype, part, "x1")
    bx, bt = make_parameter(dtype, inner_part, "x"), make_parameter(dtype, part, "t")
    inner = openvino.Model([make_node("Concat", "opset1", [bx, bt], {"axis": 0})], [bx, bt], "body")
    node = opset1.tensor_iterator()
    node.set_body(inner)
    node.set_sliced_input(bx, x.output(0), 0, 1, 1, -1, 0)
    node.set_invariant_input(bt, tail.output(0))
    result = inner.results[0].output(0)
    return make_model([node.get_concatenated_slices(result, 0, 1, 2, -1, 0)], [x, tail])


@further("If-opset8", "Loop-opset5")
def conditions(p: Pack) -> None:
    """Conditions and trip counts as scalars and as one element, of either index type."""
    for rank, shape in ((0, ()), (1, (1,))):
        for dtype in (I32, I64):
            x, flag = p.normal(2, 3), np.full(shape, True)
            build, steps = (_if_model, {"x0": flag, "x1": x}) if p.kind == "If" else (_loop_model, None)
            if steps is None:
                steps = {"x0": np.full(shape, 3, dtype), "x1": flag, "x2": x}
            expected = x + x if p.kind == "If" else x * np.float32(8)
            name = f"breadth_rank{rank}_{np.dtype(dtype).name}"
            p.model(name, lambda build=build, s=steps: build(s), [steps], reference=[{"y0": expected}])
    x = p.normal(2, 3)
    build, steps = _if_model, {"x0": np.array(True), "x1": x}
    if p.kind == "Loop":
        build, steps = _loop_model, {"x0": np.array(3, I64), "x1": np.array(True), "x2": x}
    expected = x + x if p.kind == "If" else x * np.float32(8)
    for extent, shape in {"dynamic": [-1, -1], "unranked": "..."}.items():
        model = lambda shape=shape: build(steps, shape, shape)
        p.model(f"breadth_{extent}", model, [steps], reference=[{"y0": expected}])


def _if_model(steps, shape=((1, 4), -1), inner_shape=(-1, -1)):
    import openvino
    from openvino import opset8

    condition = make_parameter(np.bool_, list(steps["x0"].shape), "x0")
    x = make_parameter(F32, shape, "x1")
    bodies, inside = [], []
    for _ in range(2):
        inside.append(make_parameter(F32, inner_shape, "b"))
        kind = "Add" if not bodies else "Multiply"
        bodies.append(openvino.Model([make_node(kind, "opset1", [inside[-1], inside[-1]])], [inside[-1]], "body"))
    node = opset8.if_op(condition)
    node.set_then_body(bodies[0])
    node.set_else_body(bodies[1])
    node.set_input(x.output(0), *inside)
    return make_model([node.set_output(bodies[0].results[0], bodies[1].results[0])], [condition, x])


def _loop_model(steps, shape=((1, 4), -1), inner_shape=(-1, -1)):
    import openvino
    from openvino import opset5

    count = make_parameter(steps["x0"].dtype, list(steps["x0"].shape), "x0")
    flag = make_parameter(np.bool_, list(steps["x1"].shape), "x1")
    x = make_parameter(F32, shape, "x2")
    bx = make_parameter(F32, inner_shape, "b")
    go_on = make_constant(np.array(True))
    inner = openvino.Model([make_node("Add", "opset1", [bx, bx]), go_on], [bx], "body")
    node = opset5.loop(count, flag)
    node.set_function(inner)
    node.set_special_body_ports([-1, 1])
    node.set_merged_input(bx, x.output(0), inner.results[0].output(0))
    return make_model([node.get_iter_value(inner.results[0].output(0), -1)], [count, flag, x])


@further("DepthToSpace-opset1", "SpaceToDepth-opset1")
def depth_and_space(p: Pack) -> None:
    shape, result = ((0, 4, 2, 2), (0, 1, 4, 4)) if p.kind == "DepthToSpace" else ((0, 1, 4, 4), (0, 4, 2, 2))
    attributes = {"mode": "blocks_first", "block_size": 2}
    p.case("breadth_zero", [np.zeros(shape, F32)], attributes, reference=np.zeros(result, F32), example=True)


@further("BatchToSpace-opset2", "SpaceToBatch-opset2")
def batch_and_space(p: Pack) -> None:
    shape, result = ((0, 1, 2), (0, 2, 2)) if p.kind == "BatchToSpace" else ((0, 2, 2), (0, 1, 2))
    tail = [integers(1, 2, 1), integers(0, 0, 0), integers(0, 0, 0)]
    expected = np.zeros(result, F32)
    p.case("breadth_zero", [np.zeros(shape, F32), *tail], constant=(1, 2, 3), reference=expected, example=True)


@further("Einsum-opset7")
def einsum(p: Pack) -> None:
    cases = {
        "rank5": ("abcde->ae", [(2, 1, 2, 1, 3)]),
        "rank0": (",->", [(), ()]),
        "zero": ("ab,bc->ac", [(2, 0), (0, 3)]),
    }
    for name, (equation, shapes) in cases.items():
        reference = lambda *x, equation=equation: np.einsum(equation, *x)
        p.case(
            f"breadth_{name}", [p.normal(*s) for s in shapes], {"equation": equation}, reference=reference, example=True
        )


@further("Interpolate-opset1")
def interpolate(p: Pack) -> None:
    for rank, shape in ((3, (1, 2, 3)), (5, (1, 1, 2, 2, 3))):
        axes = list(range(2, rank))
        target = integers(*(2 * d for d in shape[2:]))
        attributes = {"axes": axes, "mode": "nearest", "align_corners": False, "antialias": False}
        attributes |= {"pads_begin": [0], "pads_end": [0]}
        p.case(f"breadth_rank{rank}", [p.normal(*shape), target], attributes, constant=(1,))


@further("NonZero-opset3", "MVN-opset2")
def scalars_and_matrices(p: Pack) -> None:
    if p.kind == "NonZero":
        expected = np.zeros((0, 1), I64)
        attributes = {"output_type": "i64"}
        p.case("breadth_rank0", [np.array(2, F32)], attributes, reference=expected, example=True)
        matrix = np.array([[0, 2, 0], [1, 0, 3]], F32)
        reference = lambda x: np.array(np.nonzero(x)).astype(I64)
        p.case("breadth_default", [matrix], attributes, strip=("output_type",), reference=reference, example=True)
    else:
        attributes = {"across_channels": True, "normalize_variance": False, "eps": 1e-5}
        reference = lambda x: x - x.mean(1, keepdims=True)
        p.case("breadth_rank2", [p.normal(3, 4)], attributes, reference=reference, example=True)


@further("PSROIPooling-opset1")
def psroi_pooling(p: Pack) -> None:
    """Small enough for the grid to vary."""
    rois = np.array([[0, 0, 0, 2, 2]], F32)
    attributes = {"output_dim": 1, "group_size": 2, "spatial_scale": 1.0, "mode": "average"}
    attributes |= {"spatial_bins_x": 1, "spatial_bins_y": 1}
    p.case("breadth_small", [p.normal(1, 4, 4, 4), rois], attributes)


@further("AdaptiveMaxPool-opset8")
def adaptive_max_pool(p: Pack) -> None:
    """The smallest case is what the grid varies: its indices are of the type that OpenVINO's plugin computes."""
    p.case("breadth_i32", [p.distinct(1, 2, 4), integers(3)], {"index_element_type": "i32"}, constant=(1,))
    data = p.distinct(1, 2, 4)
    windows = [data[..., 0:2], data[..., 1:3], data[..., 2:4]]
    values = np.stack([w.max(-1) for w in windows], -1)
    places = np.stack([w.argmax(-1) + start for start, w in enumerate(windows)], -1)
    attributes = {"index_element_type": "i64"}
    p.case(
        "breadth_defaults",
        [data, integers(3)],
        attributes,
        constant=(1,),
        strip=tuple(attributes),
        reference=[values, places.astype(I64)],
        example=True,
    )


@further("IsNaN-opset10", "IsInf-opset10", "IsFinite-opset10")
def finite_numbers(p: Pack) -> None:
    """Without special values, so that the grid may vary the case."""
    value = p.kind == "IsFinite"
    p.case("breadth_plain", [p.normal(2, 3)], reference=lambda x: np.full(x.shape, value))


@further("Mod-opset1")
def mod(p: Pack) -> None:
    attributes = {"auto_broadcast": "pdpd", "auto_broadcast.auto_broadcast_axis": 1}
    inputs = [p.normal(2, 3, 4), p.positive(3)]
    reference = lambda a, b: np.fmod(a, b[:, None])
    p.case("breadth_pdpd", inputs, attributes, reference=reference, example=True)


@further("Bucketize-opset3")
def bucketize_defaults(p: Pack) -> None:
    attributes = {"output_type": "i64", "with_right_bound": True}
    inputs = [np.array([1, 2, 2.5, 9, -1], F32), np.array([0, 1, 2, 4], F32)]
    reference = lambda x, b: np.digitize(x, b, right=True).astype(I64)
    p.case(
        "breadth_defaults",
        inputs,
        attributes,
        constant=(1,),
        strip=tuple(attributes),
        reference=reference,
        example=True,
    )


@further("DFT-opset7", "IDFT-opset7", "RDFT-opset9", "IRDFT-opset9")
def fourier(p: Pack) -> None:
    def complex_of(x):
        return x[..., 0] + 1j * x[..., 1]

    def parts_of(z):
        return np.stack([z.real, z.imag], -1).astype(F32)

    transforms = {
        "DFT": lambda x, axes: parts_of(np.fft.fftn(complex_of(x), axes=tuple(axes))),
        "IDFT": lambda x, axes: parts_of(np.fft.ifftn(complex_of(x), axes=tuple(axes))),
        "RDFT": lambda x, axes: parts_of(np.fft.rfftn(x, axes=tuple(axes))),
        "IRDFT": lambda x, axes: np.fft.irfftn(complex_of(x), axes=tuple(axes)).astype(F32),
    }
    for rank in (4, 5):
        shape = (1, 2, 2, 3, 2)[5 - rank :]
        inputs = [p.normal(*shape), integers(0, rank - 2)]
        p.case(f"breadth_rank{rank}", inputs, constant=(1,), reference=transforms[p.kind], example=True)
    if p.kind == "RDFT":
        # The grid varies the smallest case, and OpenVINO grows no signal.
        inputs = [p.normal(2, 3), integers(1), integers(2)]
        p.case("breadth_cut", inputs, constant=(1, 2), reference=lambda x, axes, sizes: parts_of(np.fft.rfft(x, 2)))


@further("Divide-opset1")
def divide(p: Pack) -> None:
    for dtype in (np.int8, np.int16):
        inputs = [p.normal(3, 4, dtype=dtype), np.array([2, -3, 4, 5], dtype)]
        note = "quotients of integers are rounded down"
        reference = lambda a, b: a // b
        p.case(f"breadth_{np.dtype(dtype).name}", inputs, reference=reference, example=True, note=note)


@further("GroupConvolutionBackpropData-opset1")
def group_convolution_backwards(p: Pack) -> None:
    """Each element of the data spreads the filter of its group."""

    def reference(x, filters):
        y = np.zeros((1, 2, 3, 3, 3), np.float64)
        for d, h, w in np.ndindex(2, 2, 2):
            for g in range(2):
                y[0, g, d : d + 2, h : h + 2, w : w + 2] += x[0, g, d, h, w] * filters[g, 0, 0]
        return y.astype(F32)

    attributes = {"strides": [1, 1, 1], "dilations": [1, 1, 1], "pads_begin": [0, 0, 0], "pads_end": [0, 0, 0]}
    attributes |= {"auto_pad": "explicit", "output_padding": [0, 0, 0]}
    inputs = [p.normal(1, 2, 2, 2, 2), p.normal(2, 1, 1, 2, 2, 2)]
    p.case("breadth_rank5", inputs, attributes, constant=(1,), reference=reference, example=True)


@further("PSROIPooling-opset1")
def psroi_pooling_defaults(p: Pack) -> None:
    """The mean of each bin of the map that belongs to it."""
    attributes = {"output_dim": 1, "group_size": 2, "spatial_scale": 1.0, "mode": "average"}
    attributes |= {"spatial_bins_x": 1, "spatial_bins_y": 1}

    def reference(x, _):
        bins = [x[0, 2 * i + j, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean() for i in range(2) for j in range(2)]
        return np.array(bins, F32).reshape(1, 1, 2, 2)

    inputs = [p.normal(1, 4, 4, 4), np.array([[0, 0, 0, 3, 3]], F32)]
    strip = ("mode", "spatial_bins_x", "spatial_bins_y")
    p.case("breadth_defaults", inputs, attributes, strip=strip, reference=reference, example=True)


@further("AvgPool-opset16")
def avg_pool_defaults(p: Pack) -> None:
    attributes = {"kernel": [2], "strides": [2], "pads_begin": [0], "pads_end": [0], "exclude-pad": True}
    attributes |= {"auto_pad": "explicit", "rounding_type": "floor", "dilations": [1]}
    reference = lambda x: (x[..., 0:4:2] + x[..., 1:4:2]) / 2
    strip = ("auto_pad", "rounding_type", "dilations")
    p.case("breadth_defaults", [p.normal(1, 2, 5)], attributes, strip=strip, reference=reference, example=True)


@further("ReduceL2-opset4")
def exact_norms(p: Pack) -> None:
    """Integers whose norms are integers, in every type."""
    reference = lambda x, _: np.full(2, 5, x.dtype)
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        inputs = [np.array([[3, 4, 0], [0, 3, 4]], dtype), np.array([1], dtype)]
        name = f"breadth_{np.dtype(dtype).name}"
        p.case(name, inputs, {"keep_dims": False}, constant=(1,), reference=reference, example=True)


@further("AvgPool-opset1", "AvgPool-opset14", "AvgPool-opset16")
def exact_windows(p: Pack) -> None:
    """Integers whose means are integers, in every type."""
    attributes = {"kernel": [2], "strides": [2], "pads_begin": [0], "pads_end": [0], "exclude-pad": True}
    attributes |= {"auto_pad": "explicit", "rounding_type": "floor"}
    if p.version == "opset16":
        attributes["dilations"] = [1]
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        x, expected = np.array([[[2, 4, 6, 8]]], dtype), np.array([[[3, 7]]], dtype)
        p.case(f"breadth_{np.dtype(dtype).name}", [x], attributes, reference=expected, example=True)


@further("AdaptiveAvgPool-opset8", "GridSample-opset9")
def exact_means(p: Pack) -> None:
    """Integers whose means are integers, in every type."""
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        name = f"breadth_{np.dtype(dtype).name}"
        x = np.array([[[2, 4, 6, 8]]], dtype)
        if p.kind == "AdaptiveAvgPool":
            expected = np.array([[[3, 7]]], dtype)
            p.case(name, [x, np.array([2], dtype)], constant=(1,), reference=expected, example=True)
            continue
        grid = np.array([[[[-1, 0], [1, 0], [0, 0]]]], F32)
        expected = np.array([[[[2, 8, 5]]]], dtype)
        p.case(name, [x[:, :, None], grid], {"align_corners": True}, reference=expected, example=True)
