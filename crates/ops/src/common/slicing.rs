//! Slices as in Python: `start:stop:step` along one axis.

use ovir_tensor::{Dim, INFINITE, SmallVec, Value};

/// From here on a bound means "to the end": exporters write the largest i32 for it whatever the index type.
const OPEN_END: i64 = i32::MAX as i64;

/// A stand-in for the size of a dimension that has no bound; far above any size, and safe to compute with.
const HUGE: i64 = i64::MAX / 4;

/// Lengths above this came from a dimension without a bound.
const UNBOUNDED: i64 = 1 << 48;

/// The positions that a slice selects from a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Selection {
    /// The first position.
    pub first: usize,
    /// The distance from each position to the next; 0 when there is none.
    pub step: isize,
    /// How many positions there are.
    pub count: usize,
}

/// The positions that `start:stop:step` selects from a dimension of `size`. `step` must not be 0.
pub(crate) fn select(size: usize, start: i64, stop: i64, step: i64) -> Selection {
    let size = i64::try_from(size).unwrap_or(HUGE);
    let count = length(size, start, stop, step);
    if count <= 0 {
        return Selection { first: 0, step: 0, count: 0 };
    }
    let first = clamp(size, start, step > 0).max(0) as usize;
    // The step matters only where there are two positions, and then it is smaller than the dimension.
    Selection { first, step: if count > 1 { step as isize } else { 0 }, count: count as usize }
}

/// The sizes that a slice of `dim` may have.
pub(crate) fn slice_dim(dim: Dim, start: Value, stop: Value, step: Value) -> Dim {
    let (start, stop) = (open_end(start), open_end(stop));
    if let Some(kept) = kept_dim(dim, start, stop, step) {
        return kept;
    }
    if step.min <= 0 && step.max >= 0 {
        return Dim::interval(0, dim.max());
    }
    let forward = step.min > 0;
    let (near, far) = if forward { (step.min, step.max) } else { (step.max, step.min) };
    let (mut low, mut high) = (i64::MAX, 0);
    for (s_min, s_max) in pieces(start) {
        for (e_min, e_max) in pieces(stop) {
            let (long, short) = ((s_min, e_max), (s_max, e_min));
            let (long, short) = if forward { (long, short) } else { (short, long) };
            high = high.max(extremes(dim, long, near).1);
            low = low.min(extremes(dim, short, far).0);
        }
    }
    Dim::interval(low, if high > UNBOUNDED { INFINITE } else { high })
}

/// The dimension whose identity survives: all of `dim`, or exactly as much as `stop` says.
fn kept_dim(dim: Dim, start: Value, stop: Value, step: Value) -> Option<Dim> {
    let below_all = |value: Value| value.max <= -OPEN_END || (dim.max() < INFINITE && value.max < -dim.max());
    let above_all = |value: Value| value.min >= OPEN_END || value.min >= dim.max();
    match step.get()? {
        1 if start.get() == Some(0) || below_all(start) => {
            let is_dim = stop.symbol.is_some() && stop.symbol == dim.symbol();
            if is_dim || above_all(stop) {
                return Some(dim);
            }
            (stop.min >= 0 && stop.max <= dim.min()).then(|| stop.to_dim())
        }
        -1 if (start.get() == Some(-1) || above_all(start)) && below_all(stop) => Some(dim),
        _ => None,
    }
}

fn open_end(value: Value) -> Value {
    if value.min >= OPEN_END {
        return Value::known(i64::MAX);
    }
    if value.max <= -OPEN_END {
        return Value::known(i64::MIN);
    }
    value
}

/// A bound counts from the start or, when negative, from the end; within each piece the length is monotone in it.
fn pieces(value: Value) -> SmallVec<[(i64, i64); 2]> {
    if value.min < 0 && value.max >= 0 {
        return SmallVec::from_buf([(value.min, -1), (0, value.max)]);
    }
    SmallVec::from_slice(&[(value.min, value.max)])
}

/// The smallest and largest length over all sizes of `dim`: the length is piecewise linear in the size, so its
/// extremes lie at the ends and where a bound starts or stops being clamped.
fn extremes(dim: Dim, (start, stop): (i64, i64), step: i64) -> (i64, i64) {
    let top = dim.max().min(HUGE);
    let at = |size: i64| length(size.clamp(dim.min().min(top), top), start, stop, step).max(0);
    let (mut low, mut high) = (at(0), at(0));
    let turns = [start, stop].into_iter().flat_map(|v| {
        let mirrored = 0i64.saturating_sub(v);
        [v.saturating_sub(1), v, v.saturating_add(1), mirrored.saturating_sub(1), mirrored, mirrored.saturating_add(1)]
    });
    for size in turns.chain([HUGE]) {
        let value = at(size);
        (low, high) = (low.min(value), high.max(value));
    }
    (low, high)
}

fn clamp(size: i64, bound: i64, forward: bool) -> i64 {
    let (lowest, highest) = if forward { (0, size) } else { (-1, size - 1) };
    let position = if bound < 0 { bound.saturating_add(size) } else { bound };
    position.clamp(lowest, highest)
}

fn length(size: i64, start: i64, stop: i64, step: i64) -> i64 {
    let (start, stop) = (clamp(size, start, step > 0), clamp(size, stop, step > 0));
    let distance = if step > 0 { stop - start } else { start - stop };
    if distance <= 0 {
        return 0;
    }
    (distance as u64).div_ceil(step.unsigned_abs().max(1)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn selects_as_python_does() {
        let some = |first, step, count| Selection { first, step, count };
        assert_eq!(select(10, 1, 8, 2), some(1, 2, 4));
        assert_eq!(select(10, 9, -11, -1), some(9, -1, 10));
        assert_eq!(select(10, 9, -10, -1), some(9, -1, 9));
        assert_eq!(select(10, 100, -100, -1), some(9, -1, 10));
        assert_eq!(select(10, -100, 100, 1), some(0, 1, 10));
        assert_eq!(select(0, 0, i64::MAX, 1), some(0, 0, 0));
        assert_eq!(select(5, i64::MAX, i64::MIN, i64::MIN), some(4, 0, 1));
    }

    #[test]
    fn intervals_hold_every_length() {
        let values = [-7, -3, -2, -1, 0, 1, 2, 4, 7];
        let intervals: Vec<Value> = (0..values.len())
            .flat_map(|i| (i..values.len()).step_by(2).map(move |j| Value::interval(values[i], values[j])))
            .collect();
        for dim in [Dim::interval(0, 5), Dim::interval(3, 3), Dim::interval(2, 8)] {
            for start in &intervals {
                for stop in &intervals {
                    for step in [-3, -1, 1, 2] {
                        let promised = slice_dim(dim, *start, *stop, Value::known(step));
                        for size in dim.min()..=dim.max() {
                            for a in start.min..=start.max {
                                for b in stop.min..=stop.max {
                                    let count = select(size as usize, a, b, step).count;
                                    assert!(promised.contains(count), "{size} [{a}:{b}:{step}] {count} {promised}");
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn open_ends_keep_the_dim() {
        let (all, one) = (Value::known(i64::from(i32::MAX)), Value::known(1));
        assert_eq!(slice_dim(Dim::DYNAMIC, Value::known(0), all, one), Dim::DYNAMIC);
        assert_eq!(slice_dim(Dim::interval(2, 9), Value::known(0), Value::known(-1), one), Dim::interval(1, 8));
        assert_eq!(slice_dim(Dim::interval(2, INFINITE), Value::known(1), all, one), Dim::interval(1, INFINITE));
        assert_eq!(slice_dim(Dim::DYNAMIC, Value::known(-1), all, one), Dim::interval(0, 1));
        assert_eq!(slice_dim(Dim::DYNAMIC, Value::known(-1), Value::known(i64::MIN), Value::known(-1)), Dim::DYNAMIC);
    }
}
