"""Operations that move elements, tell shapes, or make tensors from few values."""

from __future__ import annotations

import itertools

import numpy as np

from golden_pack import Pack, make_constant, make_model, make_node, make_parameter, pack

F32, F16, I32, I64, U8, I8 = np.float32, np.float16, np.int32, np.int64, np.uint8, np.int8
TYPES = (F16, I32, I64, U8, np.bool_)


def ints(*values, dtype=I64):
    return np.array(values, dtype)


def each_type(p: Pack, make) -> None:
    """One case an element type: make(dtype) gives (inputs, attributes, reference)."""
    for dtype in TYPES:
        inputs, attributes, reference, constant = make(dtype)
        p.case(np.dtype(dtype).name, inputs, attributes, constant=constant, reference=reference)


@pack("Reshape-opset1")
def reshape(p: Pack) -> None:
    def reference(special):
        def apply(x, target):
            dims = [x.shape[i] if special and d == 0 else int(d) for i, d in enumerate(target)]
            if -1 in dims:
                rest = int(np.prod([d for d in dims if d != -1]))
                dims[dims.index(-1)] = x.size // rest if rest else 0
            return x.reshape(dims)

        return apply

    cases = {
        "flat": ((2, 3, 4), (24,), False),
        "minus_one": ((2, 3, 4), (-1, 6), False),
        "minus_one_middle": ((2, 3, 4), (4, -1, 2), False),
        "to_scalar": ((1, 1), (), False),
        "from_scalar": ((), (1, 1), False),
        "special_zero": ((2, 3, 4), (0, -1), True),
        "special_zero_keeps": ((2, 3, 4), (0, 0, 2, 2), True),
        "special_zero_at_zero": ((0, 3), (0, 3), True),
        "plain_zero": ((0, 3), (0, 5), False),
        "rank5": ((2, 3, 4), (1, 2, 3, 2, 2), False),
    }
    for name, (shape, target, special) in cases.items():
        p.case(
            name,
            [p.normal(*shape), np.array(target, I64)],
            {"special_zero": special},
            constant=(1,),
            reference=reference(special),
        )
    p.case(
        "target_i32",
        [p.normal(2, 3), ints(3, 2, dtype=I32)],
        {"special_zero": False},
        constant=(1,),
        reference=reference(False),
    )
    p.case("target_parameter", [p.normal(2, 3), ints(3, -1)], {"special_zero": True}, reference=reference(True))
    p.case(
        "dynamic",
        [p.normal(2, 3, 4), ints(0, -1)],
        {"special_zero": True},
        constant=(1,),
        shapes={0: [-1, -1, 4]},
        reference=reference(True),
    )
    p.case(
        "interval",
        [p.normal(2, 3, 4), ints(-1, 4)],
        {"special_zero": False},
        constant=(1,),
        shapes={0: [(1, 3), 3, 4]},
        reference=reference(False),
    )
    each_type(p, lambda t: ([p.normal(2, 3, dtype=t), ints(3, 2)], {"special_zero": False}, reference(False), (1,)))
    data = p.normal(2, 3, 4)

    def shape_subgraph():
        x = make_parameter(F32, [-1, 3, -1], "x0")
        shape = make_node("ShapeOf", "opset3", [x], {"output_type": "i64"})
        batch = make_node("Gather", "opset8", [shape, ints(0), np.array(0, I64)])
        target = make_node("Concat", "opset1", [batch, ints(-1)], {"axis": 0})
        return make_model([make_node("Reshape", "opset1", [x, target], {"special_zero": False})], [x])

    p.model(
        "shape_subgraph",
        shape_subgraph,
        [{"x0": data}],
        reference=[{"y0": data.reshape(2, 12)}],
        note="ShapeOf, Gather, Concat, Reshape",
    )


@pack("Transpose-opset1")
def transpose(p: Pack) -> None:
    def reference(x, order):
        return np.transpose(x, [int(i) for i in order] if len(order) else None)

    for order in itertools.permutations(range(3)):
        p.case(
            "rank3_" + "".join(map(str, order)),
            [p.normal(2, 3, 4), np.array(order, I64)],
            constant=(1,),
            reference=reference,
        )
    for order in ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (3, 2, 1, 0), (1, 0, 2, 3)):
        p.case(
            "rank4_" + "".join(map(str, order)),
            [p.normal(2, 3, 4, 5), np.array(order, I64)],
            constant=(1,),
            reference=reference,
        )
    p.case("rank5", [p.normal(2, 1, 3, 2, 2), ints(4, 0, 2, 1, 3)], constant=(1,), reference=reference)
    p.case("rank1", [p.normal(4), ints(0)], constant=(1,), reference=reference)
    p.case(
        "empty_order",
        [p.normal(2, 3, 4), np.zeros(0, I64)],
        constant=(1,),
        reference=reference,
        note="an empty order reverses the axes",
    )
    p.case("order_i32", [p.normal(2, 3), ints(1, 0, dtype=I32)], constant=(1,), reference=reference)
    p.case("order_parameter", [p.normal(2, 3, 4), ints(2, 0, 1)], reference=reference)
    p.case("zero_sized", [p.normal(0, 3, 2), ints(2, 1, 0)], constant=(1,), reference=reference)
    p.case("dynamic", [p.normal(2, 3, 4), ints(1, 2, 0)], constant=(1,), shapes={0: [-1, -1, 4]}, reference=reference)
    p.case("large", [p.normal(17, 33), ints(1, 0)], constant=(1,), reference=reference)
    each_type(p, lambda t: ([p.normal(2, 3, 4, dtype=t), ints(2, 0, 1)], {}, reference, (1,)))


@pack("Concat-opset1")
def concat(p: Pack) -> None:
    def reference(axis):
        return lambda *parts: np.concatenate(parts, axis)

    for axis in (0, 1, 2, -1, -3):
        shapes = []
        for size in (2, 1, 3):
            shape = [2, 3, 4]
            shape[axis] = size
            shapes.append(shape)
        p.case(f"axis_{axis}", [p.normal(*s) for s in shapes], {"axis": axis}, reference=reference(axis))
    p.case("one_input", [p.normal(2, 3)], {"axis": 0}, reference=reference(0))
    p.case("rank1", [p.normal(2), p.normal(3)], {"axis": 0}, reference=reference(0))
    p.case("rank5", [p.normal(1, 2, 1, 2, 2), p.normal(1, 3, 1, 2, 2)], {"axis": 1}, reference=reference(1))
    p.case("with_zero_sized", [p.normal(2, 0), p.normal(2, 3)], {"axis": 1}, reference=reference(1))
    p.case("all_zero_sized", [p.normal(0, 3), p.normal(0, 3)], {"axis": 0}, reference=reference(0))
    p.case(
        "constants_between",
        [p.normal(1, 2), p.normal(1, 3), p.normal(1, 1)],
        {"axis": 1},
        constant=(1,),
        reference=reference(1),
    )
    p.case(
        "dynamic",
        [p.normal(2, 3), p.normal(4, 3)],
        {"axis": 0},
        shapes={0: [-1, 3], 1: [-1, -1]},
        reference=reference(0),
    )
    p.case(
        "interval",
        [p.normal(2, 3), p.normal(2, 5)],
        {"axis": 1},
        shapes={0: [2, (1, 4)], 1: [(1, 3), (2, 6)]},
        reference=reference(1),
    )
    each_type(p, lambda t: ([p.normal(2, 1, dtype=t), p.normal(2, 3, dtype=t)], {"axis": 1}, reference(1), ()))


@pack("Split-opset1")
def split(p: Pack) -> None:
    def reference(count):
        return lambda x, axis: np.split(x, count, int(axis))

    for axis, count in ((0, 2), (1, 3), (2, 2), (-1, 4), (-3, 2)):
        p.case(
            f"axis_{axis}_{count}",
            [p.normal(2, 3, 4), np.array(axis, I64)],
            {"num_splits": count},
            constant=(1,),
            reference=reference(count),
        )
    p.case("one_part", [p.normal(2, 3), np.array(0, I64)], {"num_splits": 1}, constant=(1,), reference=reference(1))
    p.case("axis_i32", [p.normal(4, 3), np.array(0, I32)], {"num_splits": 2}, constant=(1,), reference=reference(2))
    p.case("axis_parameter", [p.normal(4, 2), np.array(1, I64)], {"num_splits": 2}, reference=reference(2))
    p.case("zero_sized", [p.normal(0, 4), np.array(1, I64)], {"num_splits": 2}, constant=(1,), reference=reference(2))
    p.case(
        "dynamic",
        [p.normal(4, 3), np.array(0, I64)],
        {"num_splits": 2},
        constant=(1,),
        shapes={0: [-1, -1]},
        reference=reference(2),
    )
    p.case(
        "second_part_only",
        [p.normal(2, 4), np.array(1, I64)],
        {"num_splits": 2},
        constant=(1,),
        outputs=[1],
        reference=lambda x, a: x[:, 2:],
    )
    each_type(p, lambda t: ([p.normal(2, 4, dtype=t), np.array(1, I64)], {"num_splits": 2}, reference(2), (1,)))


@pack("VariadicSplit-opset1")
def variadic_split(p: Pack) -> None:
    def reference(x, axis, lengths):
        axis, sizes = int(axis.reshape(-1)[0]), [int(n) for n in lengths]
        if -1 in sizes:
            sizes[sizes.index(-1)] = x.shape[axis] - sum(n for n in sizes if n != -1)
        return np.split(x, np.cumsum(sizes)[:-1], axis)

    for axis, sizes in (
        (0, (1, 1)),
        (1, (1, 2)),
        (2, (2, 1, 1)),
        (-1, (3, 1)),
        (1, (-1, 1)),
        (2, (1, -1, 1)),
        (1, (3,)),
        (1, (0, 3)),
    ):
        name = f"axis_{axis}_" + "_".join(map(str, sizes))
        p.case(
            name, [p.normal(2, 3, 4), np.array(axis, I64), np.array(sizes, I64)], constant=(1, 2), reference=reference
        )
    p.case(
        "lengths_i32", [p.normal(2, 3), np.array(1, I32), ints(2, 1, dtype=I32)], constant=(1, 2), reference=reference
    )
    p.case("axis_one_element", [p.normal(2, 3), ints(1), ints(2, 1)], constant=(1, 2), reference=reference)
    p.case(
        "dynamic",
        [p.normal(5, 3), np.array(0, I64), ints(2, -1)],
        constant=(1, 2),
        shapes={0: [-1, 3]},
        reference=reference,
    )
    p.case("zero_sized", [p.normal(0, 3), np.array(1, I64), ints(2, 1)], constant=(1, 2), reference=reference)
    each_type(p, lambda t: ([p.normal(2, 4, dtype=t), np.array(1, I64), ints(3, 1)], {}, reference, (1, 2)))


def gather_reference(batch_dims=0):
    def apply(data, indices, axis):
        axis = int(axis.reshape(-1)[0])
        axis += data.ndim if axis < 0 else 0
        batch = batch_dims + (indices.ndim if batch_dims < 0 else 0)
        if not batch:
            return np.take(data, indices, axis)
        result = [
            apply_batch(d, i, axis - batch)
            for d, i in zip(data.reshape(-1, *data.shape[batch:]), indices.reshape(-1, *indices.shape[batch:]))
        ]
        return np.stack(result).reshape(*data.shape[:batch], *result[0].shape)

    def apply_batch(data, indices, axis):
        return np.take(data, indices, axis)

    return apply


@pack("Gather-opset1", "Gather-opset7", "Gather-opset8")
def gather(p: Pack) -> None:
    reference = gather_reference()
    zero, one = np.array(0, I64), np.array(1, I64)
    cases = {
        "vector": ((5,), ints(0, 3, 3, 1), zero),
        "scalar_index": ((4, 3), np.array(2, I64), zero),
        "scalar_index_axis1": ((4, 3), np.array(2, I64), one),
        "axis0": ((4, 3), ints(1, 3), zero),
        "axis1": ((4, 3), ints(2, 0, 1), one),
        "axis_middle": ((2, 4, 3), ints(3, 0), one),
        "axis_negative": ((2, 4, 3), ints(2, 0), np.array(-1, I64)),
        "matrix_indices": ((4, 3), np.array([[0, 3], [1, 1]], I64), zero),
        "matrix_indices_axis1": ((2, 4, 3), np.array([[0, 3, 1]], I64), one),
        "rank5": ((1, 2, 3, 2, 2), ints(2, 0), np.array(2, I64)),
        "embedding": ((20, 8), np.array([[3, 19, 0], [7, 7, 2]], I64), zero),
    }
    for name, (shape, indices, axis) in cases.items():
        p.case(name, [p.normal(*shape), indices, axis], constant=(2,), reference=reference)
        if name in ("axis0", "scalar_index", "embedding"):
            p.case(f"{name}_constant", [p.normal(*shape), indices, axis], constant=(1, 2), reference=reference)
    p.case("indices_i32", [p.normal(4, 3), ints(1, 0, dtype=I32), np.array(0, I32)], constant=(2,), reference=reference)
    p.case("axis_one_element", [p.normal(4, 3), ints(1, 0), ints(1)], constant=(2,), reference=reference)
    p.case(
        "zero_indices",
        [p.normal(4, 3), np.zeros(0, I64), zero],
        constant=(2,),
        reference=reference,
        example=True,
        oracles=("evaluate",),
        note="the CPU plugin dies of a division by zero here",
    )
    p.case(
        "dynamic", [p.normal(4, 3), ints(1, 0), zero], constant=(2,), shapes={0: [-1, -1], 1: [-1]}, reference=reference
    )
    p.case(
        "interval",
        [p.normal(4, 3), ints(1, 0), one],
        constant=(2,),
        shapes={0: [(2, 6), 3], 1: [(1, 4)]},
        reference=reference,
    )
    each_type(p, lambda t: ([p.normal(4, 3, dtype=t), ints(1, 3), zero], {}, reference, (2,)))
    if p.version == "opset1":
        return
    for batch, axis, data, shape in (
        (1, 1, (2, 4), (2, 3)),
        (1, 1, (2, 4, 3), (2, 2)),
        (1, 2, (2, 4, 3), (2, 2)),
        (2, 2, (2, 2, 5), (2, 2, 3)),
        (1, 1, (2, 4), (2,)),
        (-1, 1, (2, 4), (2, 3)),
    ):
        indices = p.random.integers(0, data[axis], shape).astype(I64)
        name = f"batch_{batch}_axis_{axis}_rank{len(data)}_{len(shape)}"
        p.case(
            name,
            [p.normal(*data), indices, np.array(axis, I64)],
            {"batch_dims": batch},
            constant=(2,),
            reference=gather_reference(batch),
        )
    if p.version == "opset8":
        p.case("negative_indices", [p.normal(5, 2), ints(-1, 0, -5), zero], constant=(2,), reference=reference)
        p.case("negative_indices_axis1", [p.normal(2, 5), ints(-2, 4), one], constant=(1, 2), reference=reference)


@pack("GatherElements-opset6")
def gather_elements(p: Pack) -> None:
    def reference(axis):
        return lambda data, indices: np.take_along_axis(
            data[tuple(slice(0, indices.shape[i]) if i != axis % data.ndim else slice(None) for i in range(data.ndim))],
            indices % data.shape[axis],
            axis,
        )

    for axis, data, shape in (
        (0, (3, 4), (2, 4)),
        (1, (3, 4), (3, 6)),
        (-1, (3, 4), (3, 2)),
        (1, (2, 3, 4), (2, 5, 4)),
        (0, (5,), (7,)),
        (2, (1, 2, 3, 2, 2), (1, 2, 1, 2, 2)),
    ):
        indices = p.random.integers(0, data[axis], shape)
        for dtype in (I32, I64):
            p.case(
                f"axis_{axis}_rank{len(data)}_{np.dtype(dtype).name}",
                [p.normal(*data), indices.astype(dtype)],
                {"axis": axis},
                reference=reference(axis),
            )
    p.case(
        "negative_indices",
        [p.normal(3, 4), np.array([[-1, 0], [1, -4], [2, 2]], I64)],
        {"axis": 1},
        reference=reference(1),
    )
    p.case(
        "dynamic",
        [p.normal(3, 4), np.array([[1, 0], [1, 3], [2, 2]], I64)],
        {"axis": 1},
        shapes={0: [-1, -1], 1: [-1, -1]},
        reference=reference(1),
    )
    each_type(
        p, lambda t: ([p.normal(3, 4, dtype=t), np.array([[1, 0], [1, 3], [2, 2]], I64)], {"axis": 1}, reference(1), ())
    )
    p.case("zero_sized", [p.normal(3, 4), np.zeros((3, 0), I64)], {"axis": 1}, reference=reference(1))


@pack("GatherND-opset5", "GatherND-opset8")
def gather_nd(p: Pack) -> None:
    def reference(batch):
        def gather_one(data, indices):
            depth = indices.shape[-1]
            flat = indices.reshape(-1, depth)
            picked = [data[tuple(int(i) for i in row)] for row in flat]
            return np.array(picked, data.dtype).reshape((*indices.shape[:-1], *data.shape[depth:]))

        def apply(data, indices):
            if not batch:
                return gather_one(data, indices)
            lead = data.shape[:batch]
            parts = [
                gather_one(d, i)
                for d, i in zip(data.reshape(-1, *data.shape[batch:]), indices.reshape(-1, *indices.shape[batch:]))
            ]
            if p.version == "opset5":
                # Version 5 merges the batch dimensions of the output into one.
                return np.stack(parts).reshape(int(np.prod(lead)), *parts[0].shape)
            return np.stack(parts).reshape(*lead, *parts[0].shape)

        return apply

    cases = {
        "elements": ((2, 3), np.array([[0, 2], [1, 0]], I64), 0),
        "rows": ((4, 3), np.array([[3], [0], [3]], I64), 0),
        "slices": ((2, 3, 4), np.array([[[0], [1]]], I64), 0),
        "deep": ((2, 3, 4), np.array([[0, 1, 2], [1, 2, 3]], I64), 0),
        "one": ((2, 3), ints(1, 1), 0),
        "batch1": ((2, 3, 4), np.array([[1], [0]], I64), 1),
        "batch1_matrix": ((2, 3, 4), np.array([[[1], [2]], [[0], [0]]], I64), 1),
        "batch2": ((2, 2, 3), np.array([[[1], [0]], [[2], [2]]], I64), 2),
        "batch2_deep": ((2, 2, 3, 2), np.array([[[[1, 0]], [[0, 1]]], [[[2, 1]], [[2, 0]]]], I64), 2),
        "rank5": ((1, 2, 2, 2, 3), np.array([[0, 1], [0, 0]], I64), 0),
    }
    for name, (shape, indices, batch) in cases.items():
        p.case(name, [p.normal(*shape), indices], {"batch_dims": batch}, reference=reference(batch))
    p.case("indices_i32", [p.normal(2, 3), np.array([[0, 2]], I32)], {"batch_dims": 0}, reference=reference(0))
    p.case(
        "constant_indices",
        [p.normal(2, 3), np.array([[0, 2]], I64)],
        {"batch_dims": 0},
        constant=(1,),
        reference=reference(0),
    )
    p.case(
        "dynamic",
        [p.normal(2, 3), np.array([[0, 2], [1, 1]], I64)],
        {"batch_dims": 0},
        shapes={0: [-1, -1], 1: [-1, 2]},
        reference=reference(0),
    )
    if p.version == "opset8":
        p.case(
            "negative_indices",
            [p.normal(2, 3), np.array([[-1, -3], [0, -1]], I64)],
            {"batch_dims": 0},
            reference=reference(0),
        )
    each_type(
        p, lambda t: ([p.normal(2, 3, dtype=t), np.array([[0, 2], [1, 0]], I64)], {"batch_dims": 0}, reference(0), ())
    )


@pack("Squeeze-opset1", "Squeeze-opset15")
def squeeze(p: Pack) -> None:
    def reference(x, axes=None):
        if axes is None:
            return np.squeeze(x)
        chosen = {int(a) % x.ndim for a in np.atleast_1d(axes)}
        return x.reshape([d for i, d in enumerate(x.shape) if not (i in chosen and d == 1)])

    for name, shape, axes in (
        ("one", (1, 3), [0]),
        ("two", (1, 3, 1, 2), [0, 2]),
        ("unordered", (1, 3, 1, 2), [2, 0]),
        ("negative", (2, 3, 1), [-1]),
        ("to_scalar", (1,), [0]),
        ("rank5", (1, 2, 1, 3, 1), [0, 4]),
    ):
        p.case(name, [p.normal(*shape), np.array(axes, I64)], constant=(1,), reference=reference)
    p.case("scalar_axis", [p.normal(2, 1, 3), np.array(1, I64)], constant=(1,), reference=reference)
    p.case("axes_i32", [p.normal(2, 1, 3), ints(1, dtype=I32)], constant=(1,), reference=reference)
    p.case("no_axes_input", [p.normal(1, 3, 1, 2)], reference=reference)
    p.case("dynamic", [p.normal(1, 3), ints(0)], constant=(1,), shapes={0: [1, -1]}, reference=reference)
    p.case("zero_sized", [p.normal(1, 0, 2), ints(0)], constant=(1,), reference=reference)
    each_type(p, lambda t: ([p.normal(1, 3, dtype=t), ints(0)], {}, reference, (1,)))
    if p.version == "opset1":
        p.case(
            "axis_not_one",
            [p.normal(2, 1), ints(0, 1)],
            constant=(1,),
            reference=reference,
            note="an axis that is not 1 stays",
        )
        return
    p.case(
        "skip_axis_not_one", [p.normal(2, 1), ints(0, 1)], {"allow_axis_skip": True}, constant=(1,), reference=reference
    )
    p.case(
        "skip_dynamic",
        [p.normal(2, 1), ints(0)],
        {"allow_axis_skip": True},
        constant=(1,),
        shapes={0: [-1, 1]},
        reference=reference,
    )


@pack("Unsqueeze-opset1")
def unsqueeze(p: Pack) -> None:
    def reference(x, axes):
        rank = x.ndim + np.size(axes)
        return np.expand_dims(x, tuple(int(a) % rank for a in np.atleast_1d(axes)))

    for name, shape, axes in (
        ("front", (2, 3), [0]),
        ("end", (2, 3), [2]),
        ("negative", (2, 3), [-1]),
        ("two", (2, 3), [0, 3]),
        ("unordered", (2, 3), [3, 0]),
        ("mixed_signs", (2, 3), [-4, 2]),
        ("scalar_data", (), [0]),
        ("three", (2,), [0, 1, 3]),
    ):
        p.case(name, [p.normal(*shape), np.array(axes, I64)], constant=(1,), reference=reference)
    p.case("scalar_axis", [p.normal(2, 3), np.array(1, I64)], constant=(1,), reference=reference)
    p.case("axes_i32", [p.normal(2, 3), ints(1, dtype=I32)], constant=(1,), reference=reference)
    p.case("dynamic", [p.normal(2, 3), ints(1)], constant=(1,), shapes={0: [-1, -1]}, reference=reference)
    p.case("zero_sized", [p.normal(0, 2), ints(0)], constant=(1,), reference=reference)
    each_type(p, lambda t: ([p.normal(3, dtype=t), ints(0)], {}, reference, (1,)))


@pack("StridedSlice-opset1")
def strided_slice(p: Pack) -> None:
    def masks(begin=(), end=(), new=(), shrink=(), ellipsis=()):
        return {
            "begin_mask": list(begin),
            "end_mask": list(end),
            "new_axis_mask": list(new),
            "shrink_axis_mask": list(shrink),
            "ellipsis_mask": list(ellipsis),
        }

    x = (3, 4, 5)
    # name: shape, begin, end, strides, masks, numpy index
    cases = {
        "plain": (x, (0, 1, 2), (2, 3, 5), (1, 1, 1), masks((0, 0, 0), (0, 0, 0)), np.s_[0:2, 1:3, 2:5]),
        "strides": (x, (0, 0, 0), (3, 4, 5), (2, 3, 2), masks((0, 0, 0), (0, 0, 0)), np.s_[0:3:2, 0:4:3, 0:5:2]),
        "negative_strides": (
            x,
            (2, 3, 4),
            (0, 0, 0),
            (-1, -2, -3),
            masks((0, 0, 0), (0, 0, 0)),
            np.s_[2:0:-1, 3:0:-2, 4:0:-3],
        ),
        "negative_bounds": (
            x,
            (-2, -3, -4),
            (-1, -1, -1),
            (1, 1, 1),
            masks((0, 0, 0), (0, 0, 0)),
            np.s_[-2:-1, -3:-1, -4:-1],
        ),
        "masked_begin": (x, (1, 1, 1), (2, 3, 4), (1, 1, 1), masks((1, 0, 1), (0, 0, 0)), np.s_[:2, 1:3, :4]),
        "masked_end": (x, (1, 1, 1), (2, 3, 4), (1, 1, 1), masks((0, 0, 0), (1, 0, 1)), np.s_[1:, 1:3, 1:]),
        "masked_reverse": (x, (0, 0, 0), (0, 0, 0), (-1, 1, -1), masks((1, 1, 1), (1, 1, 1)), np.s_[::-1, :, ::-1]),
        "out_of_range": (
            x,
            (-10, 0, 2),
            (10, 10, 10),
            (1, 1, 1),
            masks((0, 0, 0), (0, 0, 0)),
            np.s_[-10:10, 0:10, 2:10],
        ),
        "empty_result": (x, (2, 0, 0), (1, 4, 5), (1, 1, 1), masks((0, 0, 0), (0, 0, 0)), np.s_[2:1, 0:4, 0:5]),
        "fewer_than_rank": (x, (1,), (3,), (1,), masks((0,), (0,)), np.s_[1:3]),
        "new_axis": (
            x,
            (0, 1, 0),
            (0, 3, 4),
            (1, 1, 1),
            masks((0, 0, 0), (0, 0, 0), (1, 0, 0)),
            np.s_[np.newaxis, 1:3, 0:4],
        ),
        "shrink": (x, (1, 0, 2), (2, 4, 3), (1, 1, 1), masks((0, 0, 0), (0, 0, 0), (), (1, 0, 1)), np.s_[1, 0:4, 2]),
        "shrink_negative": (x, (-1, 0), (0, 4), (1, 1), masks((0, 0), (0, 0), (), (1, 0)), np.s_[-1, 0:4]),
        "ellipsis_front": (x, (0, 1), (0, 3), (1, 1), masks((0, 0), (0, 0), (), (), (1, 0)), np.s_[..., 1:3]),
        "ellipsis_middle": (
            (2, 3, 4, 5),
            (1, 0, 2),
            (2, 0, 4),
            (1, 1, 1),
            masks((0, 0, 0), (0, 0, 0), (), (), (0, 1, 0)),
            np.s_[1:2, ..., 2:4],
        ),
        "ellipsis_shrink": (
            (2, 3, 4),
            (0, 1),
            (0, 2),
            (1, 1),
            masks((0, 0), (0, 0), (), (0, 1), (1, 0)),
            np.s_[..., 1],
        ),
        "rank1": ((7,), (1,), (6,), (2,), masks((0,), (0,)), np.s_[1:6:2]),
        "rank5": (
            (2, 2, 3, 2, 2),
            (0, 0, 1, 0, 0),
            (2, 1, 3, 2, 2),
            (1, 1, 1, 1, 1),
            masks((0,) * 5, (0,) * 5),
            np.s_[:, 0:1, 1:3],
        ),
        "zero_sized": ((0, 4), (0, 1), (0, 3), (1, 1), masks((1, 0), (1, 0)), np.s_[:, 1:3]),
        "to_scalar": ((3,), (1,), (2,), (1,), masks((0,), (0,), (), (1,)), np.s_[1]),
    }
    for name, (shape, begin, end, strides, attributes, index) in cases.items():
        data = p.normal(*shape)
        p.case(
            name,
            [data, np.array(begin, I64), np.array(end, I64), np.array(strides, I64)],
            attributes,
            constant=(1, 2, 3),
            reference=data[index],
        )
    data = p.normal(*x)
    attributes = masks((0, 0), (0, 0))
    p.case("no_strides_input", [data, ints(0, 1), ints(2, 3)], attributes, constant=(1, 2), reference=data[0:2, 1:3])
    p.case(
        "bounds_i32",
        [data, ints(0, 1, dtype=I32), ints(2, 3, dtype=I32), ints(1, 1, dtype=I32)],
        attributes,
        constant=(1, 2, 3),
        reference=data[0:2, 1:3],
    )
    p.case(
        "bounds_parameters",
        [data, ints(0, 1), ints(2, 3), ints(1, 1)],
        attributes,
        constant=(3,),
        reference=data[0:2, 1:3],
    )
    p.case(
        "dynamic",
        [data, ints(0, 1), ints(2, 3), ints(1, 1)],
        attributes,
        constant=(1, 2, 3),
        shapes={0: [-1, -1, 5]},
        reference=data[0:2, 1:3],
    )
    p.case(
        "interval",
        [data, ints(0, 1), ints(2, 3), ints(1, 1)],
        attributes,
        constant=(1, 2, 3),
        shapes={0: [(1, 5), 4, 5]},
        reference=data[0:2, 1:3],
    )
    each_type(
        p,
        lambda t: (
            [p.normal(4, 5, dtype=t), ints(1, 0), ints(3, 5), ints(1, 2)],
            masks((0, 0), (0, 0)),
            lambda x, *_: x[1:3, 0:5:2],
            (1, 2, 3),
        ),
    )


@pack("Slice-opset8")
def slice_(p: Pack) -> None:
    def reference(x, start, stop, step, axes=None):
        index = [slice(None)] * x.ndim
        for i, (a, b, c) in enumerate(zip(start, stop, step)):
            axis = int(axes[i]) if axes is not None else i
            stop_at = int(b)
            if c < 0 and stop_at < -x.shape[axis]:
                stop_at = None
            index[axis] = slice(int(a), stop_at, int(c))
        return x[tuple(index)]

    x = (3, 4, 5)
    cases = {
        "all_axes": (x, (0, 1, 2), (2, 3, 5), (1, 1, 1), None),
        "one_axis": (x, (1,), (3,), (1,), (1,)),
        "axis_negative": (x, (1,), (3,), (1,), (-1,)),
        "axes_unordered": (x, (1, 0), (5, 2), (2, 1), (2, 0)),
        "negative_bounds": (x, (-3,), (-1,), (1,), (2,)),
        "reverse": (x, (-1,), (-100,), (-1,), (1,)),
        "reverse_part": (x, (3,), (0,), (-2,), (2,)),
        "stop_beyond": (x, (2,), (2**31 - 1,), (1,), (2,)),
        "start_before": (x, (-100,), (2,), (1,), (0,)),
        "empty_result": (x, (3,), (1,), (1,), (1,)),
        "rank1": ((7,), (1,), (6,), (2,), (0,)),
        "rank5": ((2, 2, 3, 2, 2), (1, 0), (3, 1), (1, 1), (2, 4)),
        "zero_sized": ((0, 4), (1,), (3,), (1,), (1,)),
    }
    for name, (shape, start, stop, step, axes) in cases.items():
        inputs = [p.normal(*shape), *(np.array(v, I64) for v in (start, stop, step, axes) if v is not None)]
        p.case(name, inputs, constant=(1, 2, 3, 4), reference=reference)
    p.case(
        "stop_largest_i64",
        [p.normal(3, 4), ints(1), ints(2**63 - 1), ints(1), ints(1)],
        constant=(1, 2, 3, 4),
        reference=reference,
    )
    p.case(
        "bounds_i32",
        [p.normal(*x), *(ints(v, dtype=I32) for v in (1, 3, 1, 2))],
        constant=(1, 2, 3, 4),
        reference=reference,
    )
    p.case("bounds_parameters", [p.normal(*x), ints(1), ints(3), ints(1), ints(2)], constant=(4,), reference=reference)
    p.case(
        "dynamic",
        [p.normal(*x), ints(1), ints(3), ints(1), ints(2)],
        constant=(1, 2, 3, 4),
        shapes={0: [-1, 4, -1]},
        reference=reference,
    )
    p.case(
        "interval",
        [p.normal(*x), ints(-2), ints(2**31 - 1), ints(1), ints(2)],
        constant=(1, 2, 3, 4),
        shapes={0: [3, 4, (2, 9)]},
        reference=reference,
    )
    each_type(p, lambda t: ([p.normal(4, 5, dtype=t), ints(1), ints(4), ints(2), ints(1)], {}, reference, (1, 2, 3, 4)))


@pack("Pad-opset1", "Pad-opset12")
def pad(p: Pack) -> None:
    modes = {"constant": "constant", "edge": "edge", "reflect": "reflect", "symmetric": "symmetric"}

    def reference(mode):
        def apply(x, begin, end, value=None):
            widths = [(int(a), int(b)) for a, b in zip(begin, end)]
            crop = tuple(slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(widths, x.shape))
            grown = [(max(0, a), max(0, b)) for a, b in widths]
            extra = {"constant_values": 0 if value is None else value.item()} if mode == "constant" else {}
            if mode == "constant":
                return np.pad(x[crop], grown, mode=mode, **extra)
            grown = np.pad(x, grown, mode=mode)
            return grown[tuple(slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(widths, grown.shape))]

        return apply

    cases = {
        "rank1": ((5,), (2,), (1,)),
        "rank2": ((3, 4), (1, 2), (2, 1)),
        "rank4_spatial": ((1, 2, 3, 4), (0, 0, 1, 2), (0, 0, 2, 1)),
        "rank4_all": ((2, 2, 3, 3), (1, 1, 1, 1), (1, 1, 1, 1)),
        "rank5": ((1, 2, 2, 3, 2), (0, 0, 1, 0, 1), (0, 0, 0, 1, 1)),
        "nothing": ((2, 3), (0, 0), (0, 0)),
    }
    for mode in modes:
        for name, (shape, begin, end) in cases.items():
            if mode == "reflect" and name in ("rank4_all",):
                begin = end = (1, 1, 1, 1)
            p.case(
                f"{mode}_{name}",
                [p.normal(*shape), np.array(begin, I64), np.array(end, I64)],
                {"pad_mode": mode},
                constant=(1, 2),
                reference=reference(mode),
            )
        for dtype in (F16, I32, I64, U8):
            p.case(
                f"{mode}_{np.dtype(dtype).name}",
                [p.normal(3, 4, dtype=dtype), ints(1, 2), ints(2, 1)],
                {"pad_mode": mode},
                constant=(1, 2),
                reference=reference(mode),
            )
        p.case(
            f"{mode}_dynamic",
            [p.normal(3, 4), ints(1, 2), ints(2, 1)],
            {"pad_mode": mode},
            constant=(1, 2),
            shapes={0: [-1, -1]},
            reference=reference(mode),
        )
    for value in (3.5, -np.inf):
        p.case(
            f"value_{value}",
            [p.normal(2, 3), ints(1, 0), ints(0, 2), np.array(value, F32)],
            {"pad_mode": "constant"},
            constant=(1, 2, 3),
            reference=reference("constant"),
        )
    p.case(
        "value_parameter",
        [p.normal(2, 3), ints(1, 0), ints(0, 2), np.array(7, F32)],
        {"pad_mode": "constant"},
        constant=(1, 2),
        reference=reference("constant"),
    )
    p.case(
        "pads_parameters",
        [p.normal(2, 3), ints(1, 0), ints(0, 2), np.array(7, F32)],
        {"pad_mode": "constant"},
        constant=(3,),
        reference=reference("constant"),
    )
    p.case(
        "pads_i32",
        [p.normal(2, 3), ints(1, 0, dtype=I32), ints(0, 2, dtype=I32)],
        {"pad_mode": "constant"},
        constant=(1, 2),
        reference=reference("constant"),
    )
    p.case(
        "zero_sized",
        [p.normal(0, 3), ints(1, 0), ints(1, 1)],
        {"pad_mode": "constant"},
        constant=(1, 2),
        reference=reference("constant"),
    )
    if p.version == "opset12":
        for mode in modes:
            p.case(
                f"{mode}_crop",
                [p.normal(4, 5), ints(-1, 1), ints(1, -2)],
                {"pad_mode": mode},
                constant=(1, 2),
                reference=reference(mode),
                note="negative pads crop",
            )


@pack("Tile-opset1")
def tile(p: Pack) -> None:
    for name, shape, repeats in (
        ("rank1", (3,), (2,)),
        ("rank2", (2, 3), (2, 1)),
        ("both", (2, 3), (3, 2)),
        ("fewer_repeats", (2, 1, 3), (2,)),
        ("more_repeats", (3,), (2, 2)),
        ("ones", (2, 3), (1, 1)),
        ("rank5", (1, 2, 1, 1, 2), (2, 1, 3, 1, 2)),
        ("zero_repeats", (2, 3), (0, 1)),
        ("zero_sized", (0, 3), (2, 2)),
        ("scalar", (), (3,)),
    ):
        p.case(name, [p.normal(*shape), np.array(repeats, I64)], constant=(1,), reference=np.tile)
    p.case("repeats_i32", [p.normal(2, 3), ints(2, 2, dtype=I32)], constant=(1,), reference=np.tile)
    p.case("repeats_parameter", [p.normal(2, 3), ints(2, 2)], reference=np.tile)
    p.case("dynamic", [p.normal(2, 3), ints(2, 1)], constant=(1,), shapes={0: [-1, 3]}, reference=np.tile)
    each_type(p, lambda t: ([p.normal(2, 3, dtype=t), ints(1, 2)], {}, np.tile, (1,)))


@pack("Broadcast-opset1", "Broadcast-opset3")
def broadcast(p: Pack) -> None:
    def numpy_mode(x, target, *_):
        return np.broadcast_to(x, [int(d) for d in target])

    def explicit(x, target, axes):
        shape = [1] * len(target)
        for i, axis in enumerate(axes):
            shape[int(axis)] = x.shape[i]
        return np.broadcast_to(x.reshape(shape), [int(d) for d in target])

    cases = {
        "scalar": ((), (2, 3)),
        "row": ((3,), (2, 3)),
        "column": ((2, 1), (2, 3)),
        "lead": ((3, 1), (2, 3, 4)),
        "same": ((2, 3), (2, 3)),
        "rank5": ((2, 1, 3), (1, 2, 2, 2, 3)),
        "to_zero": ((1, 3), (0, 3)),
        "rank0": ((), ()),
    }
    for name, (shape, target) in cases.items():
        p.case(
            f"numpy_{name}",
            [p.normal(*shape), np.array(target, I64)],
            {"mode": "numpy"},
            constant=(1,),
            reference=numpy_mode,
        )
    for name, shape, target, axes in (
        ("front", (2,), (2, 3), (0,)),
        ("middle", (3,), (2, 3, 4), (1,)),
        ("two", (2, 4), (2, 3, 4), (0, 2)),
        ("one_grows", (1, 4), (2, 3, 4), (0, 2)),
    ):
        p.case(
            f"explicit_{name}",
            [p.normal(*shape), np.array(target, I64), np.array(axes, I64)],
            {"mode": "explicit"},
            constant=(1, 2),
            reference=explicit,
        )
    for dtype in TYPES:
        p.case(
            np.dtype(dtype).name,
            [p.normal(3, dtype=dtype), ints(2, 3)],
            {"mode": "numpy"},
            constant=(1,),
            reference=numpy_mode,
        )
    p.case("target_i32", [p.normal(3), ints(2, 3, dtype=I32)], {"mode": "numpy"}, constant=(1,), reference=numpy_mode)
    p.case("target_parameter", [p.normal(3), ints(2, 3)], {"mode": "numpy"}, reference=numpy_mode)
    p.case(
        "dynamic",
        [p.normal(1, 3), ints(2, 3)],
        {"mode": "numpy"},
        constant=(1,),
        shapes={0: [-1, 3]},
        reference=numpy_mode,
    )
    if p.version == "opset1":
        return
    for name, shape, target, result in (
        ("both_ways", (2, 1, 3), (4, 1), (2, 4, 3)),
        ("lower_rank", (2, 3), (3,), (2, 3)),
        ("grows", (3,), (2, 1), (2, 3)),
        ("ones", (2, 3), (1, 1, 1), (1, 2, 3)),
    ):
        p.case(
            f"bidirectional_{name}",
            [p.normal(*shape), np.array(target, I64)],
            {"mode": "bidirectional"},
            constant=(1,),
            reference=lambda x, t, result=result: np.broadcast_to(x, result),
        )
    p.case(
        "bidirectional_dynamic",
        [p.normal(2, 1), ints(1, 3)],
        {"mode": "bidirectional"},
        constant=(1,),
        shapes={0: [-1, -1]},
        reference=lambda x, t: np.broadcast_to(x, (2, 3)),
    )


@pack("ShapeOf-opset1", "ShapeOf-opset3")
def shape_of(p: Pack) -> None:
    kinds = ("i64", "i32") if p.version == "opset3" else (None,)
    for kind in kinds:
        attributes = {"output_type": kind} if kind else {}
        dtype = I32 if kind == "i32" else I64
        for name, shape in {"rank0": (), "rank1": (5,), "rank3": (2, 0, 4), "rank5": (1, 2, 3, 4, 5)}.items():
            p.case(f"{kind or 'i64'}_{name}", [p.normal(*shape)], attributes, reference=np.array(shape, dtype))
        p.case(
            f"{kind or 'i64'}_dynamic",
            [p.normal(2, 3)],
            attributes,
            shapes={0: [-1, (1, 4)]},
            reference=np.array((2, 3), dtype),
        )
        for element in (I32, U8, np.bool_):
            p.case(
                f"{kind or 'i64'}_of_{np.dtype(element).name}",
                [p.normal(2, 3, dtype=element)],
                attributes,
                reference=np.array((2, 3), dtype),
            )


@pack("Range-opset1", "Range-opset4")
def range_(p: Pack) -> None:
    old = p.version == "opset1"

    def attributes(dtype):
        name = np.dtype(dtype).name.replace("int", "i").replace("float", "f")
        return {} if old else {"output_type": name}

    cases = {
        "up": (0, 5, 1),
        "step": (2, 17, 3),
        "down": (5, -4, -2),
        "empty": (3, 3, 1),
        "wrong_way": (3, 1, 1),
        "negative": (-5, 0, 2),
    }
    for dtype in (I32, I64, F32):
        for name, (start, stop, step) in cases.items():
            inputs = [np.array(v, dtype) for v in (start, stop, step)]
            expected = np.arange(start, stop, step).astype(dtype)
            p.case(f"{np.dtype(dtype).name}_{name}", inputs, attributes(dtype), constant=(0, 1, 2), reference=expected)
    p.case(
        "fractions",
        [np.array(v, F32) for v in (1, 2.2, 0.25)],
        attributes(F32),
        constant=(0, 1, 2),
        reference=np.array([1, 1.25, 1.5, 1.75, 2.0], F32),
    )
    p.case(
        "parameters",
        [np.array(v, I64) for v in (1, 7, 2)],
        attributes(I64),
        reference=np.array([1, 3, 5], I64),
        example=True,
        note="the values follow from the specification's formula",
    )
    if not old:
        p.case(
            "mixed_types",
            [np.array(1, F32), np.array(4, I64), np.array(1, I32)],
            {"output_type": "i64"},
            constant=(0, 1, 2),
            reference=np.array([1, 2, 3], I64),
        )
        p.case(
            "float_to_i32",
            [np.array(1.9, F32), np.array(5.5, F32), np.array(1.2, F32)],
            {"output_type": "i32"},
            constant=(0, 1, 2),
            note="as Model.evaluate decides",
        )


@pack("NonZero-opset3")
def non_zero(p: Pack) -> None:
    for kind, dtype in (("i64", I64), ("i32", I32)):
        for name, shape in {"rank1": (7,), "rank2": (3, 4), "rank3": (2, 3, 2), "rank4": (1, 2, 2, 3)}.items():
            data = np.where(p.random.random(shape) < 0.5, 0, p.normal(*shape)).astype(F32)
            p.case(
                f"{kind}_{name}", [data], {"output_type": kind}, reference=lambda x, d=dtype: np.array(np.nonzero(x), d)
            )
        p.case(f"{kind}_none", [np.zeros((2, 3), F32)], {"output_type": kind}, reference=np.zeros((2, 0), dtype))
        for element in (I32, U8, np.bool_):
            data = (p.random.random((3, 4)) < 0.5).astype(element)
            p.case(
                f"{kind}_{np.dtype(element).name}",
                [data],
                {"output_type": kind},
                reference=lambda x, d=dtype: np.array(np.nonzero(x), d),
            )
    p.case(
        "dynamic",
        [np.array([[0, 1], [2, 0]], F32)],
        {"output_type": "i64"},
        shapes={0: [-1, -1]},
        reference=np.array([[0, 1], [1, 0]], I64),
    )
    p.case(
        "negative_zero_and_nan",
        [np.array([-0.0, np.nan, np.inf, 0.0], F32)],
        {"output_type": "i64"},
        reference=np.array([[1, 2]], I64),
        example=True,
        note="-0 is zero, NaN is not",
    )


@pack("TopK-opset1", "TopK-opset3", "TopK-opset11")
def top_k(p: Pack) -> None:
    def reference(axis, mode, sort, kind):
        def apply(x, k):
            moved = np.moveaxis(x, axis, -1)
            key = moved if mode == "min" else -moved.astype(np.float64)
            order = np.argsort(key, axis=-1, kind="stable")[..., : int(k)]
            if sort == "index":
                order = np.sort(order, axis=-1)
            values = np.take_along_axis(moved, order, -1)
            index = np.moveaxis(order, -1, axis).astype(kind)
            return [np.moveaxis(values, -1, axis), index]

        return apply

    for mode in ("max", "min"):
        for sort in ("value", "index"):
            for axis, shape, k in ((0, (5,), 3), (1, (3, 6), 2), (-1, (2, 3, 7), 4), (1, (2, 5, 3), 5), (0, (6, 2), 1)):
                attributes = {"axis": axis, "mode": mode, "sort": sort}
                if p.version != "opset1":
                    attributes["index_element_type"] = "i32"
                p.case(
                    f"{mode}_{sort}_axis_{axis}_rank{len(shape)}",
                    [p.distinct(*shape), np.array(k, I64)],
                    attributes,
                    constant=(1,),
                    reference=reference(axis, mode, sort, I32),
                )
    base = {"axis": 1, "mode": "max", "sort": "value"}
    if p.version != "opset1":
        base["index_element_type"] = "i64"
        p.case(
            "index_i64",
            [p.distinct(3, 5), np.array(2, I64)],
            base,
            constant=(1,),
            reference=reference(1, "max", "value", I64),
        )
        base["index_element_type"] = "i32"
        p.case("k_parameter", [p.distinct(3, 5), np.array(2, I64)], base, reference=reference(1, "max", "value", I32))
    for dtype in (F16, I32, I64, U8):
        data = p.distinct(3, 5) + 7
        p.case(
            np.dtype(dtype).name,
            [data.astype(dtype), np.array(2, I64)],
            base,
            constant=(1,),
            reference=reference(1, "max", "value", I32),
        )
    p.case(
        "k_i32", [p.distinct(3, 5), np.array(2, I32)], base, constant=(1,), reference=reference(1, "max", "value", I32)
    )
    p.case(
        "dynamic",
        [p.distinct(3, 5), np.array(2, I64)],
        base,
        constant=(1,),
        shapes={0: [-1, -1]},
        reference=reference(1, "max", "value", I32),
    )
    p.case(
        "long_row",
        [p.distinct(2, 70), np.array(9, I64)],
        base,
        constant=(1,),
        reference=reference(1, "max", "value", I32),
    )
    p.case(
        "infinities",
        [np.array([[-np.inf, 1, np.inf, 0]], F32), np.array(4, I64)],
        base,
        constant=(1,),
        reference=reference(1, "max", "value", I32),
    )
    p.case(
        "values_only",
        [p.distinct(3, 5), np.array(2, I64)],
        base,
        constant=(1,),
        outputs=[0],
        reference=lambda x, k: np.sort(x, 1)[:, ::-1][:, :2],
    )
    p.case(
        "none_sort_all",
        [p.distinct(2, 4), np.array(1, I64)],
        {**base, "sort": "none"},
        constant=(1,),
        reference=reference(1, "max", "value", I32),
        note="k = 1: the order is no question",
    )
    if p.version == "opset11":
        ties = np.array([[3, 1, 3, 2, 3, 1], [0, 0, 0, 0, 0, 0]], F32)
        for mode in ("max", "min"):
            attributes = {**base, "mode": mode, "stable": True}
            p.case(
                f"stable_{mode}",
                [ties, np.array(4, I64)],
                attributes,
                constant=(1,),
                reference=reference(1, mode, "value", I32),
            )


@pack("ShuffleChannels-opset1")
def shuffle_channels(p: Pack) -> None:
    def reference(axis, group):
        def apply(x):
            at = axis % x.ndim
            shape = x.shape
            split = x.reshape(*shape[:at], group, shape[at] // group, *shape[at + 1 :])
            return np.swapaxes(split, at, at + 1).reshape(shape)

        return apply

    for axis, group, shape in (
        (1, 3, (2, 6, 2, 2)),
        (1, 2, (1, 6, 3, 3)),
        (-1, 2, (2, 3, 4)),
        (0, 2, (4, 3)),
        (1, 1, (1, 4, 2)),
        (2, 5, (1, 2, 5, 2, 1)),
    ):
        p.case(
            f"axis_{axis}_group_{group}_rank{len(shape)}",
            [p.normal(*shape)],
            {"axis": axis, "group": group},
            reference=reference(axis, group),
        )
    for dtype in (F16, I32, U8):
        p.case(
            np.dtype(dtype).name, [p.normal(1, 4, 2, dtype=dtype)], {"axis": 1, "group": 2}, reference=reference(1, 2)
        )
    p.case(
        "dynamic",
        [p.normal(2, 6, 2, 2)],
        {"axis": 1, "group": 3},
        shapes={0: [-1, 6, -1, -1]},
        reference=reference(1, 3),
    )


@pack("DepthToSpace-opset1", "SpaceToDepth-opset1")
def depth_to_space(p: Pack) -> None:
    def reference(block, mode):
        def spread(x):
            n, c, *spatial = x.shape
            k = len(spatial)
            d = c // block**k
            if mode == "blocks_first":
                y = x.reshape(n, *[block] * k, d, *spatial)
                order = [0, k + 1]
                for i in range(k):
                    order += [k + 2 + i, 1 + i]
            else:
                y = x.reshape(n, d, *[block] * k, *spatial)
                order = [0, 1]
                for i in range(k):
                    order += [k + 2 + i, 2 + i]
            return y.transpose(order).reshape(n, d, *[s * block for s in spatial])

        def gather(x):
            n, c, *spatial = x.shape
            k = len(spatial)
            y = x.reshape(n, c, *[v for s in spatial for v in (s // block, block)])
            blocks = [3 + 2 * i for i in range(k)]
            rest = [2 + 2 * i for i in range(k)]
            order = [0, *blocks, 1, *rest] if mode == "blocks_first" else [0, 1, *blocks, *rest]
            return y.transpose(order).reshape(n, c * block**k, *[s // block for s in spatial])

        return spread if p.kind == "DepthToSpace" else gather

    for mode in ("blocks_first", "depth_first"):
        for block, deep, wide in (
            (2, (1, 8, 2, 3), (1, 2, 4, 6)),
            (3, (2, 9, 2, 1), (2, 1, 6, 3)),
            (2, (1, 8, 2, 2, 2), (1, 1, 4, 4, 4)),
            (2, (2, 4, 3), (2, 2, 6)),
            (1, (1, 3, 2, 2), (1, 3, 2, 2)),
        ):
            shape = deep if p.kind == "DepthToSpace" else wide
            p.case(
                f"{mode}_{block}_rank{len(shape)}",
                [p.normal(*shape)],
                {"block_size": block, "mode": mode},
                reference=reference(block, mode),
            )
        shape = (1, 8, 2, 3) if p.kind == "DepthToSpace" else (1, 2, 4, 6)
        p.case(
            f"{mode}_dynamic",
            [p.normal(*shape)],
            {"block_size": 2, "mode": mode},
            shapes={0: [-1, shape[1], -1, -1]},
            reference=reference(2, mode),
        )
        p.case(
            f"{mode}_uint8", [p.normal(*shape, dtype=U8)], {"block_size": 2, "mode": mode}, reference=reference(2, mode)
        )


@pack("Identity-opset16")
def identity(p: Pack) -> None:
    for name, shape in {"rank0": (), "rank2": (2, 3), "rank5": (1, 2, 1, 2, 2), "zero_sized": (0, 2)}.items():
        p.case(name, [p.normal(*shape)], reference=lambda x: x)
    for dtype in TYPES:
        p.case(np.dtype(dtype).name, [p.normal(3, dtype=dtype)], reference=lambda x: x)


@pack("OneHot-opset1")
def one_hot(p: Pack) -> None:
    def reference(axis):
        def apply(indices, depth, on, off):
            hot = np.expand_dims(indices, -1) == np.arange(int(depth))
            return np.moveaxis(np.where(hot, on, off).astype(on.dtype), -1, axis)

        return apply

    for axis in (0, 1, -1):
        for kind in (I32, I64):
            p.case(
                f"axis_{axis}_{np.dtype(kind).name}",
                [np.array([0, 3, 1], kind), np.array(4, I64), np.array(1, F32), np.array(0, F32)],
                {"axis": axis},
                constant=(1, 2, 3),
                reference=reference(axis),
            )
    p.case(
        "rank2",
        [np.array([[0, 2], [1, 1]], I64), np.array(3, I64), np.array(5, F32), np.array(-1, F32)],
        {"axis": 1},
        constant=(1, 2, 3),
        reference=reference(1),
    )
    p.case(
        "outside",
        [np.array([0, 7, 2], I64), np.array(3, I64), np.array(1, I32), np.array(0, I32)],
        {"axis": -1},
        constant=(1, 2, 3),
        reference=reference(-1),
    )
    p.case(
        "scalar",
        [np.array(2, I64), np.array(3, I64), np.array(True), np.array(False)],
        {"axis": 0},
        constant=(1, 2, 3),
        reference=reference(0),
    )
    p.case(
        "dynamic",
        [np.array([0, 3, 1], I64), np.array(4, I64), np.array(1, F32), np.array(0, F32)],
        {"axis": 1},
        constant=(1, 2, 3),
        shapes={0: [-1]},
        reference=reference(1),
    )


CONVERSIONS = (F32, F16, np.float64, I32, I64, U8, I8, np.int16, np.uint16, np.uint32, np.uint64, np.bool_)


@pack("Convert-opset1")
def convert(p: Pack) -> None:
    """Values that every pair of types can hold, and the roundings that the
    specification and C++ agree on: floats truncate, f32 to f16 rounds to even."""
    for source in CONVERSIONS:
        for target in CONVERSIONS:
            values = np.array([0, 1, 2, 5, 100], source) if source != np.bool_ else np.array([1, 0, 1], bool)
            name = (
                np.dtype(target)
                .name.replace("uint", "u")
                .replace("int", "i")
                .replace("float", "f")
                .replace("bool", "boolean")
            )
            p.case(
                f"{np.dtype(source).name}_to_{np.dtype(target).name}",
                [values],
                {"destination_type": name},
                reference=lambda x, t=target: x.astype(t),
            )
    fractions = np.array([0.4, 0.5, 0.9, 1.5, 2.999], F32)
    p.case(
        "truncates",
        [np.concatenate([fractions, -fractions])],
        {"destination_type": "i32"},
        reference=lambda x: x.astype(I32),
    )
    p.case(
        "truncates_i64",
        [np.concatenate([fractions, -fractions])],
        {"destination_type": "i64"},
        reference=lambda x: x.astype(I64),
    )
    p.case(
        "float_to_boolean",
        [np.array([0.0, -0.0, 0.3, -2.0, 5.0], F32)],
        {"destination_type": "boolean"},
        reference=lambda x: x != 0,
    )
    p.case("int_to_boolean", [np.array([0, -1, 256], I32)], {"destination_type": "boolean"}, reference=lambda x: x != 0)
    p.case(
        "f16_ties",
        [np.array([2049, 2051, 4098, 1e-8, 65504, 6e-8], F32)],
        {"destination_type": "f16"},
        reference=lambda x: x.astype(F16),
    )
    p.case("rank0", [np.array(3.7, F32)], {"destination_type": "i32"}, reference=np.array(3, I32))
    p.case("zero_sized", [np.zeros((0, 2), F32)], {"destination_type": "i32"}, reference=np.zeros((0, 2), I32))
    p.case(
        "dynamic",
        [p.normal(2, 3, dtype=I32)],
        {"destination_type": "f32"},
        shapes={0: [-1, -1]},
        reference=lambda x: x.astype(F32),
    )
    values = np.array([1.0, 1.00390625, 1.01171875, 3.14159, -2.7e10, 1e-3], F32)
    bits = values.view(np.uint32)
    rounded = (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).view(F32)

    def through_bf16():
        x = make_parameter(F32, [6], "x0")
        narrow = make_node("Convert", "opset1", [x], {"destination_type": "bf16"})
        return make_model([make_node("Convert", "opset1", [narrow], {"destination_type": "f32"})], [x])

    p.model(
        "through_bf16",
        through_bf16,
        [{"x0": values}],
        reference=[{"y0": rounded}],
        example=True,
        tolerance={"rtol": 0.0, "atol": 0.0},
        note="round to nearest even",
    )


@pack("ConvertLike-opset1")
def convert_like(p: Pack) -> None:
    for source in (F32, I32, U8, np.bool_):
        for target in (F32, F16, I32, I64, np.bool_):
            values = np.array([0, 1, 2, 5], source)
            p.case(
                f"{np.dtype(source).name}_to_{np.dtype(target).name}",
                [values, np.zeros(2, target)],
                constant=(1,),
                reference=lambda x, t: x.astype(t.dtype),
            )


@pack("Const-opset1")
def constant(p: Pack) -> None:
    """Every element type a constant can be stored in, widened by Convert."""
    for dtype in CONVERSIONS:
        for name, shape in {"rank0": (), "rank2": (2, 3), "rank5": (1, 2, 1, 2, 1)}.items():
            values = p.normal(*shape, dtype=dtype)

            def build(values=values):
                return make_model([make_constant(values)], [])

            p.model(
                f"{np.dtype(dtype).name}_{name}",
                build,
                [{}],
                reference=[{"y0": values}],
                tolerance=None if np.dtype(dtype).kind == "f" else {"rtol": 0.0, "atol": 0.0},
            )
    values = np.zeros((0, 3), F32)
    p.model("zero_sized", lambda: make_model([make_constant(values)], []), [{}], reference=[{"y0": values}])
    packed = {
        "u4": np.array([1, 15, 7, 0, 9], U8),
        "i4": np.array([1, -8, 7, 0, -1], I8),
        "u1": np.array([1, 0, 0, 1, 1, 1, 0, 1, 1, 0], U8),
        "u2": np.array([1, 3, 2, 0, 1], U8),
        "u3": np.array([1, 7, 2, 0, 5, 6, 3, 4], U8),
        "u6": np.array([1, 63, 2, 33], U8),
    }
    for kind, values in packed.items():

        def build_packed(kind=kind, values=values):
            import openvino
            from openvino import op

            node = op.Constant(getattr(openvino.Type, kind), openvino.Shape(values.shape), [int(v) for v in values])
            return make_model([make_node("Convert", "opset1", [node], {"destination_type": "i32"})], [])

        p.model(
            f"{kind}_converted",
            build_packed,
            [{}],
            reference=[{"y0": values.astype(I32)}],
            note="packed elements, widened by Convert",
        )
    for kind in ("bf16", "f8e4m3", "f8e5m2", "nf4", "f4e2m1", "f8e8m0"):
        values = [0.5, 1.0, 2.0, 4.0] if kind == "f8e8m0" else [0.0, 0.5, -0.5, 1.0, -1.0]

        def build_float(kind=kind, values=values):
            import openvino
            from openvino import op

            node = op.Constant(getattr(openvino.Type, kind), openvino.Shape([len(values)]), values)
            return make_model([make_node("Convert", "opset1", [node], {"destination_type": "f32"})], [])

        p.model(f"{kind}_converted", build_float, [{}], note="narrow floats, widened by Convert")
