"""Cases beyond the tables for image formats, strings, sparse rows, segments, groups and narrow floats: ranks, sizes of 0, limits."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
from golden_pack import Pack, further, make_model, make_parameter

from golden_cases.breadth import ranks

F32, I64, I32, U8 = np.float32, np.int64, np.int32, np.uint8

EXTENTS = {
    "interval": lambda rank: [(0, 9)] * rank,
    "dynamic": lambda rank: [-1] * rank,
    "unranked": lambda _: "...",
}
"""Shapes of a rank of which less is known."""


@further("ErfInv-opset17")
def inverse_error_function(p: Pack) -> None:
    from scipy.special import erfinv

    def values(shape):
        return [p.random.uniform(-0.9, 0.9, shape).astype(F32)]

    ranks(p, (0, 3, 4, 5), values, zero=True, reference=lambda x: erfinv(x.astype(np.float64)).astype(F32))
    special = np.array([0, 1, -1, 1.5, np.nan, np.inf], F32)
    p.case("special", [special], reference=np.array([0, np.inf, -np.inf, np.nan, np.nan, np.nan], F32), example=True)


@further("FakeConvert-opset13")
def fake_convert(p: Pack) -> None:
    for kind in ("f8e4m3", "f8e5m2"):
        attributes = {"destination_type": kind}
        ranks_of = [
            p.normal(*shape, scale=4) for shape in ((), (5,), (2, 1, 3), (1, 2, 2, 3), (2, 1, 2, 1, 2), (2, 0, 3))
        ]
        for data in ranks_of:
            name = "zero" if data.size == 0 else f"rank{data.ndim}"
            p.case(f"{kind}_{name}", [data, np.array(1.25, F32)], attributes, constant=(1,))
        limits = np.array([447, 449, 464, 480, 57344, 6e4, 1e6, -1e6, 0.0039, 0.0078, 17, 18, 19, 1.0625], F32)
        p.case(f"{kind}_limits", [limits, np.ones(1, F32)], attributes, constant=(1,))
        # Model.evaluate rounds products of bf16 to bf16; these are exact.
        exact = [np.array([1, 1.0625, 19, -3.5], ml_dtypes.bfloat16), np.array(2, ml_dtypes.bfloat16)]
        expected = np.array([1, 1, 20, -3.5], ml_dtypes.bfloat16)
        p.case(f"{kind}_bf16", exact, attributes, constant=(1,), reference=expected, example=True)


@further("Inverse-opset14")
def inverse(p: Pack) -> None:
    for name, shape in {"rank5": (1, 2, 1, 2, 2), "no_matrix": (0, 3, 3), "no_row": (2, 0, 0)}.items():
        data = (p.normal(*shape) * 0.3 + 2 * np.eye(shape[-1])).astype(F32)
        p.case(name, [data], {"adjoint": False}, reference=lambda x: np.linalg.inv(x.astype(np.float64)).astype(F32))
    p.case("pivots", [np.array([[0, 2, 1], [1, 0, 0], [0, 0, 3]], F32)], {"adjoint": False}, reference=np.linalg.inv)


@further("GroupedMatMul-opset17")
def grouped_matmul(p: Pack) -> None:
    def routed(a, b, offsets):
        parts = [a[int(s) : int(e)] @ w.T for s, e, w in zip([0, *offsets[:-1]], offsets, b)]
        return np.concatenate(parts).astype(a.dtype)

    def batched(a, b):
        return (a @ np.swapaxes(b, -1, -2)).astype(a.dtype)

    for dtype in (np.float16, np.float64, np.int8, np.int16, I32, I64, U8, np.uint16, np.uint32, np.uint64):
        small = (
            {"example": True, "tolerance": {"rtol": 1e-2, "atol": 1e-2}} if dtype == np.float16 else {"example": True}
        )
        name = np.dtype(dtype).name
        p.case(
            f"routed_{name}_data",
            [p.normal(4, 3, dtype=dtype), p.normal(2, 5, 3, dtype=dtype), np.array([1, 4])],
            reference=routed,
            **small,
        )
        p.case(
            f"batched_{name}",
            [p.normal(2, 2, 3, dtype=dtype), p.normal(2, 4, 3, dtype=dtype)],
            reference=batched,
            **small,
        )
    for extent, shapes in EXTENTS.items():
        inputs = [p.normal(4, 3), p.normal(2, 5, 3), np.array([1, 4])]
        p.case(extent, inputs, shapes={0: shapes(2), 1: shapes(3)}, reference=routed, example=True)
    bfloat16 = [p.normal(2, 2, 3).astype(ml_dtypes.bfloat16), p.normal(2, 4, 3).astype(ml_dtypes.bfloat16)]
    exact = batched(*(a.astype(F32) for a in bfloat16)).astype(ml_dtypes.bfloat16)
    p.case("batched_bf16", bfloat16, reference=exact, example=True, tolerance={"rtol": 2e-2, "atol": 1e-2})
    p.case("no_rows", [p.normal(0, 3), p.normal(2, 4, 3), np.array([0, 0])], reference=routed, example=True)
    p.case("no_depth", [p.normal(2, 0), p.normal(1, 4, 0), np.array([2])], reference=routed, example=True)


@further("SegmentMax-opset16")
def segment_max(p: Pack) -> None:
    def reference(x, ids, count=None):
        total = int(count) if count is not None else int(ids.max(initial=-1)) + 1
        parts = [x[ids == s].max(0) if (ids == s).any() else np.zeros(x.shape[1:], x.dtype) for s in range(total)]
        return np.array(parts, x.dtype).reshape(total, *x.shape[1:])

    for rank in (3, 4, 5):
        shape = (4, 2, 1, 3, 2)[:rank]
        p.case(
            f"rank{rank}",
            [p.normal(*shape), np.array([0, 0, 2, 2])],
            {"fill_mode": "zero"},
            constant=(1,),
            reference=reference,
        )
    halves = p.normal(4, 2).astype(np.float16)
    lowest = np.full((1, 2), np.finfo(np.float16).min)
    p.case(
        "lowest_of_f16",
        [halves, np.array([0, 0, 2, 2])],
        {"fill_mode": "lowest"},
        constant=(1,),
        reference=lambda x, ids: np.concatenate([x[:2].max(0)[None], lowest, x[2:].max(0)[None]]).astype(x.dtype),
        example=True,
        note="the lowest number of f16, not of the f32 that the plugin computes in",
    )
    p.case(
        "fewer",
        [p.normal(4, 2), np.array([0, 1, 2, 3]), np.array(2)],
        {"fill_mode": "zero"},
        constant=(1, 2),
        reference=reference,
    )
    p.case(
        "none",
        [p.normal(0, 2), np.zeros(0, I64)],
        {"fill_mode": "zero"},
        reference=reference,
        example=True,
    )
    p.case("run_time_ids", [p.normal(4, 2), np.array([0, 1, 1, 4])], {"fill_mode": "zero"}, reference=reference)


@further("SparseFillEmptyRows-opset16")
def sparse_fill(p: Pack) -> None:
    def reference(values, dense, places, default):
        rows = [[] for _ in range(int(dense[0]))]
        for value, (row, column) in zip(values, places):
            rows[int(row)].append((int(column), value))
        entries = [
            (r, c, v) for r, row in enumerate(rows) for c, v in (sorted(row, key=lambda e: e[0]) or [(0, default)])
        ]
        indices = np.array([e[:2] for e in entries], places.dtype).reshape(-1, 2)
        return [indices, np.array([e[2] for e in entries], values.dtype), np.array([not row for row in rows], np.bool_)]

    unsorted = [
        np.array([1, 2, 3, 4], F32),
        np.array([4, 5]),
        np.array([[2, 1], [0, 3], [0, 1], [2, 0]]),
        np.array(9, F32),
    ]
    p.case("unsorted", unsorted, reference=reference)
    p.case("constants", unsorted, constant=(1, 2, 3), reference=reference)
    p.case(
        "no_rows", [np.zeros(0, F32), np.array([0, 5]), np.zeros((0, 2), I64), np.array(9, F32)], reference=reference
    )
    p.case(
        "full",
        [np.array([1, 2], F32), np.array([2, 2]), np.array([[0, 0], [1, 1]]), np.array(9, F32)],
        reference=reference,
    )
    p.case(
        "twice",
        [np.array([1, 2, 3], F32), np.array([2, 2]), np.array([[0, 1], [0, 1], [0, 0]]), np.array(9, F32)],
        reference=reference,
    )


@further("CTCLoss-opset4")
def ctc_loss(p: Pack) -> None:
    labels = np.array([[1, 2, 2, 0, 0], [2, 1, 0, 0, 0], [1, 0, 0, 0, 0]], I32)
    lengths = [np.array([5, 4, 3], I32), labels, np.array([3, 2, 1], I32)]
    attributes = {"preprocess_collapse_repeated": False, "ctc_merge_repeated": True, "unique": False}
    logits = p.normal(3, 5, 4)
    p.case("first_is_blank", [logits, *[a for a in lengths], np.array(0, I32)], attributes)
    labels = np.where(labels == 3, 0, labels)
    p.case("last_is_blank", [logits, lengths[0], labels, lengths[2]], attributes)

    def reference(logits, steps, labels, sizes, blank):
        """All paths with the specification's defaults: repetitions merge, labels stay as they are."""
        losses = []
        for x, length, label, size in zip(logits.astype(np.float64), steps, labels, sizes):
            target, total = [int(v) for v in label[: int(size)]], 0.0
            p_of = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
            for path in itertools.product(range(x.shape[-1]), repeat=int(length)):
                merged = [c for i, c in enumerate(path) if not i or c != path[i - 1]]
                if [c for c in merged if c != int(blank)] == target:
                    total += np.prod(p_of[np.arange(int(length)), path])
            losses.append(-np.log(total))
        return np.array(losses, F32)

    note = "ctc_merge_repeated is true where it is absent"
    inputs = [logits, lengths[0], labels, lengths[2], np.array(3, I32)]
    p.case("absent", inputs, attributes, strip=tuple(attributes), reference=reference, example=True, note=note)


@further("RGBtoNV12-opset17", "BGRtoNV12-opset17")
def to_nv12(p: Pack) -> None:
    """Chroma is the mean over a block, and luma that of each pixel."""

    def reference(image):
        x = image.astype(np.float64)
        r, g, b = np.moveaxis(x if p.kind.startswith("RGB") else x[..., ::-1], -1, 0)
        yuv = [0.257 * r + 0.504 * g + 0.098 * b + 16, -0.148 * r - 0.291 * g + 0.439 * b + 128]
        y, u, v = (np.clip(c, 0, 255) for c in (*yuv, 0.439 * r - 0.368 * g - 0.071 * b + 128))
        n, h, w = y.shape
        mean = [c.reshape(n, h // 2, 2, w // 2, 2).mean((2, 4)) for c in (u, v)]
        dtype = F32 if image.dtype.kind == "V" else image.dtype
        return [y[..., None].astype(dtype), np.stack(mean, -1).astype(dtype)]

    image = p.random.uniform(0, 255, (2, 4, 6, 3)).astype(F32)
    loose = {"rtol": 1e-3, "atol": 0.05}
    two = {"single_plane": False}
    p.case("blocks", [image], two, reference=reference, example=True, tolerance=loose)
    for extent, shapes in EXTENTS.items():
        p.case(extent, [image], two, shapes={0: shapes(4)}, reference=reference, example=True, tolerance=loose)

    def stacked(image):
        luma, chroma = reference(image)
        n, h, w, _ = luma.shape
        return np.concatenate([luma, chroma.reshape(n, h // 2, w, 1)], 1).astype(image.dtype)

    for dtype, atol in ((np.float16, 0.2), (np.float64, 1e-6), (ml_dtypes.bfloat16, 1.1)):
        tolerance = {"rtol": 0.0, "atol": atol}
        name, data = np.dtype(dtype).name, image.astype(dtype)
        p.case(name, [data], {"single_plane": True}, reference=stacked, example=True, tolerance=tolerance)
    p.case(
        "default",
        [image],
        {"single_plane": True},
        strip=("single_plane",),
        reference=stacked,
        example=True,
        tolerance=loose,
    )


@further("StringTensorPack-opset15")
def string_pack(p: Pack) -> None:
    symbols = np.frombuffer(b"IntelOpenVINO", U8).copy()

    def pack(begins, ends, symbols):
        data = symbols.tobytes()
        strings = [data[b:e].decode() for b, e in zip(begins.ravel(), ends.ravel())]
        return np.array(strings, dtype=np.str_).reshape(begins.shape)

    for rank, shape in {0: (), 3: (2, 1, 2), 4: (1, 2, 1, 2), 5: (1, 2, 1, 2, 1)}.items():
        begins = p.random.integers(0, 6, shape).astype(I64)
        p.case(f"rank{rank}", [begins, begins + 4, symbols], reference=pack)
    p.case("overlap", [np.array([5, 0, 2]), np.array([13, 5, 7]), symbols], reference=pack)
    p.case("constant", [np.array([0, 5]), np.array([5, 13]), symbols], constant=(0, 1), reference=pack)
    for extent, shapes in EXTENTS.items():
        inputs = [np.array([0, 5]), np.array([5, 13]), symbols]
        extents = {0: shapes(1), 1: shapes(1)}
        p.case(extent, inputs, shapes=extents, reference=pack, example=True)


@further("StringTensorUnpack-opset15")
def string_unpack(p: Pack) -> None:
    def unpack(strings):
        encoded = [str(text).encode() for text in np.ravel(strings)]
        ends = np.cumsum([len(e) for e in encoded]).astype(I32)
        begins = np.array([e - len(t) for e, t in zip(ends, encoded)], I32)
        symbols = np.frombuffer(b"".join(encoded), U8).copy()
        return [begins.reshape(np.shape(strings)), ends.reshape(np.shape(strings)), symbols]

    strings = np.array(["a", "", "\u00e4\u00f6", "long string of its own memory"])
    for name, shape in {"rank3": (2, 1, 2), "rank4": (1, 2, 1, 2), "rank5": (1, 2, 1, 2, 1)}.items():
        p.case(name, [strings.reshape(shape)], reference=unpack)
    for extent, shapes in EXTENTS.items():
        p.case(extent, [strings], shapes={0: shapes(1)}, reference=unpack, example=True)


SMALL_FLOATS = {
    "f4e2m1": ml_dtypes.float4_e2m1fn,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
}
SMALL_INTEGERS = {"u1": 1, "u2": 2, "u4": 4, "i4": 4}


def _small(values: np.ndarray, kind: str) -> np.ndarray:
    """What becomes of f32 numbers that go through a storage type: integers keep their low bits, 8-bit floats go through f16."""
    if kind in SMALL_FLOATS:
        halves = values.astype(np.float16).astype(F32) if kind in ("f8e4m3", "f8e5m2") else values
        return halves.astype(SMALL_FLOATS[kind]).astype(F32)
    bits = SMALL_INTEGERS[kind]
    low = values.astype(I64) & ((1 << bits) - 1)
    return (np.where(low >= 8, low - 16, low) if kind == "i4" else low).astype(F32)


@further("Convert-opset1")
def storage_types(p: Pack) -> None:
    """Numbers through the types that nothing is computed in, and the values of their codes."""
    import openvino
    from openvino import op, opset13

    whole = np.array([0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 100, 255, 1.5, 2.9, 0.9], F32)
    ties = np.array(
        [0.65625, 0.6562506, 0.71875, 2.5, 2.5000024, 3.5, 0.25, 0.75, 1.25, 17, 18, 19, 0.0029, 447, 449], F32
    )
    signed = np.concatenate([ties, -ties, whole, -whole])
    for kind in (*SMALL_FLOATS, *SMALL_INTEGERS):
        values = np.abs(signed) if kind == "f8e8m0" else whole if kind.startswith("u") else signed

        def through(kind=kind, size=values.size):
            x = make_parameter(F32, [size], "x0")
            return make_model([opset13.convert(opset13.convert(x, kind), "f32")], [x])

        # ml_dtypes rounds ties of f8e8m0 up, OpenVINO to the even code.
        reference = None if kind == "f8e8m0" else [{"y0": _small(values, kind)}]
        p.model(f"through_{kind}", through, [{"x0": values}], reference=reference)
    for kind in (*SMALL_FLOATS, *SMALL_INTEGERS, "nf4"):
        bits = SMALL_INTEGERS.get(kind, 4 if kind in ("f4e2m1", "nf4") else 8)
        codes = np.arange(1 << bits).astype(U8)
        codes = np.resize(codes, max(len(codes), 8))

        def decoded(kind=kind, codes=codes, bits=bits):
            tensor = openvino.Tensor(getattr(openvino.Type, kind), openvino.Shape([len(codes)]))
            packed = codes if bits == 8 else np.packbits(codes) if bits == 1 else _packed(codes, bits)
            tensor.data.view(np.uint8).ravel()[:] = packed
            x = make_parameter(F32, [1], "x0")
            return make_model([opset13.add(opset13.convert(op.Constant(tensor), "f32"), x)], [x])

        if kind in SMALL_FLOATS:
            numbers = codes.view(SMALL_FLOATS[kind]) if bits == 8 else codes.astype(np.uint8).view(SMALL_FLOATS[kind])
            reference = [{"y0": numbers.astype(F32)}]
        elif kind == "nf4":
            reference = None
        else:
            reference = [{"y0": _small(codes.astype(F32), kind)}]
        p.model(f"codes_of_{kind}", decoded, [{"x0": np.zeros(1, F32)}], reference=reference)
    for kind in ("u1", "u2", "u3", "u4", "u6", "i4", "nf4", "f4e2m1"):

        def partial(kind=kind):
            tensor = openvino.Tensor(getattr(openvino.Type, kind), openvino.Shape([13]))
            content = np.random.default_rng(13).bytes(tensor.byte_size)
            tensor.data.view(np.uint8).ravel()[:] = np.frombuffer(content, U8)
            x = make_parameter(F32, [1], "x0")
            return make_model([opset13.add(opset13.convert(op.Constant(tensor), "f32"), x)], [x])

        p.model(f"partial_bytes_of_{kind}", partial, [{"x0": np.zeros(1, F32)}], note="13 elements, which fill no byte")
    for kind, most in {"u3": 7, "u6": 63, "nf4": 1}.items():

        def through(kind=kind):
            x = make_parameter(F32, [16], "x0")
            return make_model([opset13.convert(opset13.convert(x, kind), "f32")], [x])

        values = np.linspace(-1, 1, 16).astype(F32) if kind == "nf4" else np.arange(16).astype(F32) % (most + 1)
        p.model(f"through_{kind}", through, [{"x0": values}])


def _packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of 2 or 4 bits in bytes, the first in the low bits."""
    parts = codes.reshape(-1, 8 // bits)
    return sum(parts[:, i].astype(np.uint16) << (bits * i) for i in range(8 // bits)).astype(U8)
