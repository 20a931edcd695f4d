"""The scatter family. The references are written from the specifications; for
duplicate indices without reduction the last update in row-major order wins."""

from __future__ import annotations

import numpy as np

from golden_pack import Pack, pack

F32, F16, I32, I64, U8, I8 = np.float32, np.float16, np.int32, np.int64, np.uint8, np.int8


def scatter_update(data, indices, updates, axis):
    axis = int(np.reshape(axis, -1)[0]) % data.ndim
    result = np.moveaxis(data.copy(), axis, 0)
    moved = np.moveaxis(updates, list(range(axis, axis + indices.ndim)), list(range(indices.ndim)))
    for position in np.ndindex(*indices.shape):
        result[int(indices[position])] = moved[position]
    return np.moveaxis(result, 0, axis)


@pack("ScatterUpdate-opset3")
def update(p: Pack) -> None:
    data = np.array([[-1, 1, -1, 3, 4], [-1, 6, -1, 8, 9], [-1, 11, 1, 13, 14]], F32)
    expected = np.array([[1, 1, 1, 3, 4], [1, 6, 1, 8, 9], [1, 11, 2, 13, 14]], F32)
    p.case(
        "specification_example_2",
        [data, np.array([0, 2], I64), np.array([[1, 1], [1, 1], [1, 2]], F32), np.array([1], I64)],
        constant=(3,),
        reference=expected,
        example=True,
    )

    def add(name, shape, indices, axis, dtype=F32, kind=I64, **facts):
        indices = np.array(indices, kind)
        at = axis % len(shape)
        updates = p.normal(*shape[:at], *indices.shape, *shape[at + 1 :], dtype=dtype)
        p.case(
            name,
            [p.normal(*shape, dtype=dtype), indices, updates, np.array(axis, I64)],
            reference=scatter_update,
            constant=(3,),
            **facts,
        )

    add("axis0", (5, 3), [4, 0, 2], 0)
    add("axis1", (3, 5), [4, 0], 1)
    add("axis_negative", (2, 3, 4), [3, 1], -1)
    add("axis_middle", (2, 5, 3), [1, 4], 1)
    add("rank1", (6,), [5, 0], 0)
    add("rank5", (1, 2, 3, 2, 2), [2, 0], 2)
    add("matrix_indices", (5, 2), [[0, 3], [1, 4]], 0)
    add("matrix_indices_axis1", (2, 6, 3), [[0], [5]], 1, example=True, note="Model.evaluate takes wrong slices here")
    add("scalar_index", (4, 3), 2, 0, example=True, note="0-D indices; the CPU plugin refuses them")
    add("scalar_index_axis1", (4, 3), 1, 1, example=True)
    add("empty_indices", (4, 3), np.zeros(0), 0)
    add("indices_i32", (4, 3), [1, 0], 0, kind=I32)
    for dtype in (F16, I32, I64, U8, I8, np.bool_):
        add(np.dtype(dtype).name, (4, 3), [3, 1], 0, dtype=dtype)
    add("dynamic", (4, 3), [3, 1], 0, shapes={0: [-1, 3], 1: [-1], 2: [-1, 3]})
    p.case(
        "duplicates",
        [p.normal(4, 2), np.array([1, 1, 3], I64), p.normal(3, 2), np.array(0, I64)],
        constant=(3,),
        reference=scatter_update,
        example=True,
        note="duplicates are undefined in the specification; the last in row-major order wins",
    )
    p.case(
        "constant_indices",
        [p.normal(4, 2), np.array([2, 0], I64), p.normal(2, 2), np.array(0, I64)],
        constant=(1, 3),
        reference=scatter_update,
    )
    p.case(
        "axis_parameter",
        [p.normal(4, 2), np.array([2, 0], I64), p.normal(2, 2), np.array([0], I64)],
        reference=scatter_update,
    )
    p.case(
        "int64_large",
        [np.array([2**40, 1, 2], I64), np.array([1], I64), np.array([-(2**50)], I64), np.array(0, I64)],
        constant=(3,),
        reference=scatter_update,
        example=True,
    )


REDUCE = {
    "sum": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "prod": lambda a, b: a * b,
    "min": np.minimum,
    "max": np.maximum,
}
BOOLEAN = {
    "sum": np.logical_or,
    "max": np.logical_or,
    "prod": np.logical_and,
    "min": np.logical_and,
    "sub": np.logical_xor,
}


def combine(kind, dtype):
    if dtype == np.bool_:
        return BOOLEAN[kind]
    return REDUCE[kind]


def scatter_elements(reduction="none", use_init=True):
    def apply(data, indices, updates, axis):
        axis = int(np.reshape(axis, -1)[0]) % data.ndim
        wide = np.float32 if data.dtype == F16 else data.dtype
        result, touched = data.astype(wide), np.zeros(data.shape, np.int64)
        with np.errstate(all="ignore"):
            for position in np.ndindex(*indices.shape):
                target = list(position)
                target[axis] = int(indices[position]) % data.shape[axis]
                target = tuple(target)
                value = updates[position].astype(wide)
                first = not use_init and not touched[target]
                if reduction == "none" or first:
                    result[target] = value
                else:
                    result[target] = combine("sum" if reduction == "mean" else reduction, data.dtype)(
                        result[target], value
                    )
                touched[target] += 1
            if reduction == "mean":
                count = touched + (1 if use_init else 0)
                count[touched == 0] = 1
                result = result // count if data.dtype.kind in "iu" else result / count
        return result.astype(data.dtype)

    return apply


@pack("ScatterElementsUpdate-opset3", "ScatterElementsUpdate-opset12")
def elements(p: Pack) -> None:
    new = p.version == "opset12"

    def attributes(reduction="none", init=True):
        return {"reduction": reduction, "use_init_val": init} if new else {}

    def add(name, shape, index_shape, axis, dtype=F32, kind=I64, reduction="none", init=True, unique=True, **facts):
        at = axis % len(shape)
        if unique:
            order = np.argsort(
                p.random.random([shape[i] if i == at else n for i, n in enumerate(index_shape)]), axis=at
            )
            indices = np.take(order, range(index_shape[at]), at)
        else:
            indices = p.random.integers(0, shape[at], index_shape)
        inputs = [
            p.normal(*shape, dtype=dtype),
            indices.astype(kind),
            p.normal(*index_shape, dtype=dtype),
            np.array(axis, I64),
        ]
        p.case(
            name,
            inputs,
            attributes(reduction, init),
            constant=(3,),
            reference=scatter_elements(reduction, init),
            **facts,
        )

    add("axis0", (4, 3), (2, 3), 0)
    add("axis1", (3, 5), (3, 2), 1)
    add("axis_negative", (2, 3, 4), (2, 3, 2), -1)
    add("smaller_indices", (4, 5), (2, 3), 0)
    add("rank1", (6,), (4,), 0)
    add("rank3_middle", (2, 4, 3), (2, 2, 3), 1)
    add("rank5", (1, 2, 3, 2, 2), (1, 2, 2, 2, 2), 2)
    add("indices_i32", (4, 3), (2, 3), 0, kind=I32)
    for dtype in (F16, I32, I64, U8, np.bool_):
        add(np.dtype(dtype).name, (4, 3), (2, 3), 0, dtype=dtype)
    add(
        "duplicates",
        (3, 2),
        (5, 2),
        0,
        unique=False,
        example=True,
        note="undefined in the specification; the last in row-major order wins",
    )
    add("dynamic", (4, 3), (2, 3), 0, shapes={0: [-1, -1], 1: [-1, -1], 2: [-1, -1]})
    p.case(
        "empty_indices",
        [p.normal(4, 3), np.zeros((0, 3), I64), p.normal(0, 3), np.array(0, I64)],
        attributes(),
        constant=(3,),
        reference=scatter_elements(),
    )
    p.case(
        "negative_indices",
        [p.normal(4), np.array([-1, -4], I64), p.normal(2), np.array(0, I64)],
        attributes(),
        constant=(3,),
        reference=scatter_elements(),
        note="" if new else "the specification says exception; every implementation since 2023 wraps",
    )
    p.case(
        "axis_parameter",
        [p.normal(4, 3), np.array([[1, 0, 2]], I64), p.normal(1, 3), np.array([0], I64)],
        attributes(),
        reference=scatter_elements(),
    )
    p.case(
        "int64_large",
        [np.array([2**40, 1, 2], I64), np.array([1], I64), np.array([-(2**50)], I64), np.array(0, I64)],
        attributes(),
        constant=(3,),
        reference=scatter_elements(),
        example=True,
    )
    if not new:
        return
    examples(p)
    for reduction in ("sum", "prod", "min", "max", "mean"):
        for init in (True, False):
            tag = f"{reduction}_{'init' if init else 'no_init'}"
            add(f"{tag}_f32", (3, 4), (5, 4), 0, reduction=reduction, init=init, unique=False, example=True)
            add(f"{tag}_int32", (3, 4), (5, 4), 0, I32, reduction=reduction, init=init, unique=False, example=True)
            add(f"{tag}_axis1", (3, 4), (3, 6), 1, reduction=reduction, init=init, unique=False, example=True)
        add(f"{reduction}_f16", (3, 4), (5, 4), 0, F16, reduction=reduction, unique=False, example=True)
        add(f"{reduction}_int64", (3, 4), (5, 4), 0, I64, reduction=reduction, unique=False, example=True)
        add(f"{reduction}_uint8", (3, 4), (4, 4), 0, U8, reduction=reduction, unique=False, example=True)
        if reduction != "mean":
            add(f"{reduction}_boolean", (3, 4), (4, 4), 0, np.bool_, reduction=reduction, unique=False, example=True)
    minus = np.array([-np.inf, np.inf], F32)
    for reduction in ("min", "max"):
        p.case(
            f"{reduction}_no_init_infinities",
            [np.zeros(3, F32), np.array([0, 1], I64), minus, np.array(0, I64)],
            attributes(reduction, False),
            constant=(3,),
            reference=np.array([-np.inf, np.inf, 0], F32),
            example=True,
            note="the first update replaces the value",
        )
    p.case(
        "mean_floors",
        [np.array([0, 0], I32), np.array([0, 1, 1], I64), np.array([-1, -1, -2], I32), np.array(0, I64)],
        attributes("mean", True),
        constant=(3,),
        reference=np.array([-1, -1], I32),
        example=True,
        note="rounded towards negative infinity",
    )


def examples(p: Pack) -> None:
    """The numbered examples of ScatterElementsUpdate-12."""
    row = np.array([2, 3, 4, 6], F32)
    updates = np.array([10, 20, 30, 40, 70, 60], F32)
    axis0, axis1 = np.array([0], I64), np.array([1], I64)
    p.case(
        "specification_example_1",
        [row, np.array([1, 0, 0, -2, -1, 2], I64), updates, axis0],
        {"reduction": "sum", "use_init_val": True},
        constant=(3,),
        reference=np.array([52, 13, 104, 76], F32),
        example=True,
    )
    p.case(
        "specification_example_2",
        [row, np.array([1, 0, 0, 2, 3, 2], I64), updates, axis0],
        {"reduction": "sum", "use_init_val": False},
        constant=(3,),
        reference=np.array([50, 10, 100, 70], F32),
        example=True,
    )
    block = np.array([[11, 12], [13, 14]], I32)
    grid = {
        3: ("none", 0, [[1, 2], [0, 3]], [[0, 11, 12, 0], [13, 0, 0, 14], [0, 0, 0, 0]]),
        4: ("sum", 1, [[1, 1], [0, 3]], [[1, 24, 1, 1], [14, 1, 1, 15], [1, 1, 1, 1]]),
        5: ("prod", 2, [[1, 1], [0, 3]], [[2, 264, 2, 2], [26, 2, 2, 28], [2, 2, 2, 2]]),
    }
    for number, (reduction, fill, indices, expected) in grid.items():
        p.case(
            f"specification_example_{number}",
            [np.full((3, 4), fill, I32), np.array(indices, I64), block, axis1],
            {"reduction": reduction, "use_init_val": True},
            constant=(3,),
            reference=np.array(expected, I32),
            example=True,
        )


def scatter_nd(reduction="none"):
    def apply(data, indices, updates):
        depth = indices.shape[-1]
        wide = np.float32 if data.dtype == F16 else data.dtype
        result = data.astype(wide)
        rows = indices.reshape(int(np.prod(indices.shape[:-1])), depth)
        values = updates.reshape(len(rows), *data.shape[depth:]).astype(wide)
        with np.errstate(all="ignore"):
            for row, value in zip(rows, values):
                target = tuple(int(i) for i in row)
                result[target] = value if reduction == "none" else combine(reduction, data.dtype)(result[target], value)
        return result.astype(data.dtype)

    return apply


@pack("ScatterNDUpdate-opset4", "ScatterNDUpdate-opset15")
def nd_update(p: Pack) -> None:
    new = p.version == "opset15"

    def add(name, shape, indices, dtype=F32, kind=I64, reduction="none", **facts):
        indices = np.array(indices, kind)
        updates = p.normal(*indices.shape[:-1], *shape[indices.shape[-1] :], dtype=dtype)
        p.case(
            name,
            [p.normal(*shape, dtype=dtype), indices, updates],
            {"reduction": reduction} if new else {},
            reference=scatter_nd(reduction),
            **facts,
        )

    add("rank1", (8,), [[4], [3], [1], [7]])
    add("elements", (3, 4), [[0, 1], [2, 3]])
    add("rows", (4, 3), [[2], [0]])
    add("planes", (4, 2, 3), [[0], [2]])
    add("deep", (2, 3, 4), [[0, 1, 2], [1, 2, 3]])
    add("index_matrix", (4, 5), [[[0, 1], [1, 1]], [[3, 4], [2, 2]]])
    add("rank5", (1, 2, 2, 2, 2), [[0, 1], [0, 0]])
    add("negative", (3, 4), [[-1, 0], [0, -4]])
    add("indices_i32", (3, 4), [[0, 1], [2, 3]], kind=I32)
    add("constant_indices", (3, 4), [[0, 1], [2, 3]], constant=(1,))
    add(
        "whole_tensor",
        (2, 3),
        np.zeros((1, 0)),
        example=True,
        note="k = 0: updates the whole tensor; the CPU plugin ignores it",
    )
    add("scalar_slot", (3,), [2], example=True, note="one index of rank 1: a 0-D update")
    for dtype in (F16, I32, I64, U8, np.bool_):
        add(np.dtype(dtype).name, (3, 4), [[0, 1], [2, 3]], dtype)
    add("dynamic", (3, 4), [[0, 1], [2, 3]], shapes={0: [-1, -1], 1: [-1, 2], 2: [-1]})
    add(
        "duplicates",
        (4,),
        [[1], [1], [2]],
        example=True,
        note="undefined in the specification; the last in row-major order wins",
    )
    p.case(
        "no_indices",
        [p.normal(3, 4), np.zeros((0, 2), I64), np.zeros(0, F32)],
        {"reduction": "none"} if new else {},
        reference=scatter_nd(),
    )
    if not new:
        return
    for reduction in ("sum", "sub", "prod", "min", "max"):
        for dtype in (F32, I32, I64, F16):
            add(
                f"{reduction}_{np.dtype(dtype).name}",
                (4, 2),
                [[1], [3], [1], [1]],
                dtype,
                reduction=reduction,
                example=True,
            )
        add(f"{reduction}_elements", (3, 4), [[0, 1], [2, 3], [0, 1]], reduction=reduction, example=True)
        add(f"{reduction}_boolean", (4, 2), [[1], [3], [1], [1]], np.bool_, reduction=reduction, example=True)
