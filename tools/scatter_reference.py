"""The scatter operations, written from their specifications with numpy.

Plain loops in the element type: integers wrap, halves are accumulated in f32 and
rounded once, NaN propagates, the last of several updates stays. Every index is
checked before anything is written: `IndexError` names the first that is out of
range.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def scatter_update(data, indices, updates, axis):
    """ScatterUpdate-3."""
    axis %= data.ndim
    _check(indices, lambda _: (axis, data.shape[axis]), wraps=False)
    result = data.copy()
    rank = indices.ndim
    for position in np.ndindex(*indices.shape):
        target = (slice(None),) * axis + (int(indices[position]),)
        result[target] = updates[(slice(None),) * axis + position]
    assert rank + data.ndim - 1 == updates.ndim
    return result


def scatter_elements_update(data, indices, updates, axis, reduction="none", use_init_val=True):
    """ScatterElementsUpdate-3 and -12."""
    axis %= data.ndim
    _check(indices, lambda _: (axis, data.shape[axis]), wraps=True)

    def places():
        for position in np.ndindex(*indices.shape):
            index = int(indices[position])
            index += data.shape[axis] if index < 0 else 0
            yield position[:axis] + (index,) + position[axis + 1 :], updates[position]

    return _apply(data, places(), reduction, use_init_val)


def scatter_nd_update(data, indices, updates, reduction="none"):
    """ScatterNDUpdate-3 and -15."""
    depth = indices.shape[-1]
    _check(indices, lambda position: (position[-1], data.shape[position[-1]]), wraps=True)
    slot = data.shape[depth:]
    updates = updates.reshape(indices.shape[:-1] + slot)

    def places():
        for row in np.ndindex(*indices.shape[:-1]):
            start = tuple(int(i) % size for i, size in zip(indices[row], data.shape))
            for inner in np.ndindex(*slot):
                yield start + inner, updates[row + inner]

    return _apply(data, places(), reduction, True)


def slice_scatter(data, updates, start, stop, step, axes):
    """SliceScatter-15."""
    result = data.copy()
    slices = [slice(None)] * data.ndim
    for a, b, c, axis in zip(start, stop, step, axes):
        slices[axis] = clamped(int(a), int(b), int(c), data.shape[axis])
    result[tuple(slices)] = updates
    return result


def clamped(start, stop, step, size):
    """The slice of an axis of `size`; bounds beyond its ends mean the ends."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    clamp = lambda v: min(max(v + size if v < 0 else v, low), high)
    start, stop = clamp(start), clamp(stop)
    return slice(start, None if step < 0 and stop < 0 else stop, step)


def _check(indices, axis_of, wraps):
    for position in np.ndindex(*indices.shape):
        index, (axis, size) = int(indices[position]), axis_of(position)
        if not (-size if wraps else 0) <= index < size:
            raise IndexError(f"index {index} at position {list(position)} of axis {axis} of size {size}")


def _apply(data, places, reduction, use_init_val):
    is_half = data.dtype in HALVES
    result = data.copy()
    sums, counts = {}, {}
    for place, update in places:
        if reduction == "none":
            result[place] = update
            continue
        update = np.float32(update) if is_half else update
        if place not in sums:
            counts[place] = 0
            if use_init_val:
                sums[place] = np.float32(data[place]) if is_half else data[place]
                counts[place] = 1
        sums[place] = _combine(sums[place], update, reduction) if counts[place] else update
        counts[place] += 1
    for place, value in sums.items():
        result[place] = _mean(value, counts[place]) if reduction == "mean" else value
    return result


def _combine(a, b, reduction):
    with np.errstate(all="ignore"):
        if isinstance(a, (bool, np.bool_)):
            logic = {"sum": a | b, "max": a | b, "prod": a & b, "min": a & b, "sub": a ^ b}
            return logic[reduction]
        if reduction in ("sum", "mean"):
            return a + b
        if reduction == "sub":
            return a - b
        if reduction == "prod":
            return a * b
        return np.minimum(a, b) if reduction == "min" else np.maximum(a, b)


def _mean(value, count):
    if np.issubdtype(type(value), np.integer):
        return type(value)(int(value) // count)
    return value / type(value)(count)
