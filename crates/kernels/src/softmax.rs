//! Softmax and its logarithm over one axis.

use crate::band;
use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::math::{exp_of_negative, log};
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, MOST_LANES, Simd, dispatch};

/// Elements a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

/// Writes the softmax of `input`, seen as `[outer, axis, inner]`, over its middle axis; with `logarithm` the natural
/// logarithm of it.
///
/// # Errors
/// A slice does not have `outer * axis * inner` elements.
pub fn softmax(
    isa: Isa,
    logarithm: bool,
    [outer, axis, inner]: [usize; 3],
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let len = product("input", &[outer, axis, inner])?;
    check_exact("input", input.len(), len)?;
    check_exact("output", output.len(), len)?;
    // SAFETY: the lengths were checked.
    unsafe { run(isa, logarithm, [outer, axis, inner], input.as_ptr(), output) };
    Ok(())
}

/// [`softmax`] in place.
///
/// # Errors
/// The slice does not have `outer * axis * inner` elements.
pub fn softmax_in_place(
    isa: Isa,
    logarithm: bool,
    [outer, axis, inner]: [usize; 3],
    data: &mut [f32],
) -> Result<(), KernelError> {
    check_exact("data", data.len(), product("data", &[outer, axis, inner])?)?;
    let pointer = data.as_ptr();
    // SAFETY: the length was checked; every element is read before its place is written.
    unsafe { run(isa, logarithm, [outer, axis, inner], pointer, data) };
    Ok(())
}

/// # Safety
/// `input` has as many values as `output`; they are equal or do not overlap.
unsafe fn run(isa: Isa, logarithm: bool, sizes: [usize; 3], input: *const f32, output: &mut [f32]) {
    // Elements that are alone on their axis are neighbours, wherever they lie.
    let [outer, axis, inner] = if sizes[1] == 1 { [1, 1, output.len()] } else { sizes };
    if output.is_empty() {
        return;
    }
    if outer == 1 && inner == 1 {
        dispatch(isa, Rows { logarithm, rows: 1, axis, input, output: output.as_mut_ptr() });
        return;
    }
    let work = output.len() as u64;
    let wide = if inner == 1 { 1 } else { band::positions(axis) };
    let bands = inner.div_ceil(wide);
    let from = SharedConst(input);
    let shared = SharedMut::new(output);
    parallel_for(outer * bands, CHUNK.div_ceil(axis * wide.min(inner)), work, |range| {
        let input = from.get();
        if inner == 1 {
            let first = range.start * axis;
            // SAFETY: so many rows lie in both slices, and chunks are disjoint.
            let (input, output) = unsafe { (input.add(first), shared.pointer().add(first)) };
            dispatch(isa, Rows { logarithm, rows: range.len(), axis, input, output });
            return;
        }
        for index in range {
            let (row, first) = (index / bands, index % bands * wide);
            let offset = row * axis * inner + first;
            let columns = wide.min(inner - first);
            // SAFETY: the offset lies in both slices, and bands are disjoint.
            unsafe {
                let (input, output) = (input.add(offset), shared.pointer().add(offset));
                if columns <= band::NARROW {
                    dispatch(isa, Columns::<{ band::NARROW }> { logarithm, axis, inner, columns, input, output });
                } else {
                    dispatch(isa, Columns::<{ band::MOST }> { logarithm, axis, inner, columns, input, output });
                }
            }
        }
    });
}

/// A pointer that chunks read through.
struct SharedConst(*const f32);
// SAFETY: chunks read disjoint parts, each of which only its own chunk may overwrite.
unsafe impl Sync for SharedConst {}

impl SharedConst {
    fn get(&self) -> *const f32 {
        self.0
    }
}

/// The product, zero where it is no normal number: products of such values take many times as long, and masks that are added
/// before a softmax leave some of them in every row.
#[inline(always)]
fn scaled<S: Simd>(s: S, value: S::F, factor: S::F) -> S::F {
    let product = s.mul(value, factor);
    s.select(s.lt(product, s.splat(f32::MIN_POSITIVE)), s.splat(0.0), product)
}

/// Contiguous rows, one behind the other.
struct Rows {
    logarithm: bool,
    rows: usize,
    axis: usize,
    input: *const f32,
    output: *mut f32,
}

impl Kernel for Rows {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let line = |row: usize| Row {
            logarithm: self.logarithm,
            axis: self.axis,
            input: self.input.wrapping_add(row * self.axis),
            output: self.output.wrapping_add(row * self.axis),
        };
        for row in 0..self.rows {
            // SAFETY: so many rows lie in both.
            unsafe { if self.axis <= S::LANES { line(row).in_registers(s) } else { line(row).through_memory(s) } }
        }
    }
}

/// A contiguous row.
struct Row {
    logarithm: bool,
    axis: usize,
    input: *const f32,
    output: *mut f32,
}

impl Row {
    /// The first lanes from a place of the row on, minus infinity in the others.
    ///
    /// # Safety
    /// So many values, at most those of a vector, lie there.
    #[inline(always)]
    unsafe fn first_lanes<S: Simd>(&self, s: S, place: usize, count: usize) -> S::F {
        // SAFETY: by the caller.
        s.add(unsafe { s.load_partial(self.input.add(place), count) }, s.lowest_behind(count))
    }

    /// A row that is no longer than a vector.
    ///
    /// # Safety
    /// The row is readable and writable.
    #[inline(always)]
    unsafe fn in_registers<S: Simd>(self, s: S) {
        // SAFETY: by the caller.
        let values = unsafe { self.first_lanes(s, 0, self.axis) };
        let moved = s.sub(values, s.splat(s.reduce_max(values)));
        let power = exp_of_negative(s, moved);
        let sum = s.reduce_add(power);
        let result =
            if self.logarithm { s.sub(moved, log(s, s.splat(sum))) } else { scaled(s, power, s.splat(1.0 / sum)) };
        // SAFETY: by the caller.
        unsafe { s.store_partial(self.output, result, self.axis) };
    }

    /// A longer row.
    ///
    /// # Safety
    /// The row is readable and writable, and longer than a vector.
    #[inline(always)]
    unsafe fn through_memory<S: Simd>(self, s: S) {
        let whole = self.axis - self.axis % S::LANES;
        let rest = self.axis - whole;
        // SAFETY: every access stays within the row's `axis` values.
        unsafe {
            let last = self.first_lanes(s, whole, rest);
            let mut greatest = last;
            let mut index = 0;
            while index < whole {
                greatest = s.max(greatest, s.load(self.input.add(index)));
                index += S::LANES;
            }
            // A row of minus infinities has no softmax: the difference below is NaN, as in numpy.
            let shift = s.splat(s.reduce_max(greatest));
            let last = s.sub(last, shift);
            let last_power = exp_of_negative(s, last);
            let mut sums = last_power;
            let mut index = 0;
            while index < whole {
                let moved = s.sub(s.load(self.input.add(index)), shift);
                let power = exp_of_negative(s, moved);
                s.store(self.output.add(index), if self.logarithm { moved } else { power });
                sums = s.add(sums, power);
                index += S::LANES;
            }
            let sum = s.reduce_add(sums);
            let factor = if self.logarithm { log(s, s.splat(sum)) } else { s.splat(1.0 / sum) };
            let finish = |value: S::F| if self.logarithm { s.sub(value, factor) } else { scaled(s, value, factor) };
            let mut index = 0;
            while index < whole {
                let value = s.load(self.output.add(index));
                s.store(self.output.add(index), finish(value));
                index += S::LANES;
            }
            if rest > 0 {
                let last = if self.logarithm { last } else { last_power };
                s.store_partial(self.output.add(whole), finish(last), rest);
            }
        }
    }
}

/// Up to `MOST` neighbouring columns of a strided axis.
struct Columns<const MOST: usize> {
    logarithm: bool,
    axis: usize,
    inner: usize,
    columns: usize,
    input: *const f32,
    output: *mut f32,
}

impl<const MOST: usize> Kernel for Columns<MOST> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Columns { logarithm, axis, inner, columns, input, output } = self;
        if 2 * inner <= S::LANES {
            // SAFETY: the columns are all of their row, and `inner` values lie in each row of the axis.
            unsafe { FewColumns { logarithm, len: axis * inner, inner, input, output }.run_in(s) };
            return;
        }
        let (mut tops, mut sums) = ([f32::NEG_INFINITY; MOST], [0.0; MOST]);
        let (tops, sums) = (&mut tops[..columns], &mut sums[..columns]);
        let (tops, sums) = (tops.as_mut_ptr(), sums.as_mut_ptr());
        // SAFETY: `columns` values lie in every row of the axis, and in both arrays.
        unsafe {
            for row in 0..axis {
                let from = input.add(row * inner);
                for column in (0..columns).step_by(S::LANES) {
                    let count = columns - column;
                    let top = s.max(s.load_first(tops.add(column), count), s.load_first(from.add(column), count));
                    s.store_first(tops.add(column), top, count);
                }
            }
            for row in 0..axis {
                let (from, to) = (input.add(row * inner), output.add(row * inner));
                for column in (0..columns).step_by(S::LANES) {
                    let count = columns - column;
                    let moved = s.sub(s.load_first(from.add(column), count), s.load_first(tops.add(column), count));
                    let power = exp_of_negative(s, moved);
                    s.store_first(to.add(column), if logarithm { moved } else { power }, count);
                    s.store_first(sums.add(column), s.add(s.load_first(sums.add(column), count), power), count);
                }
            }
            for column in (0..columns).step_by(S::LANES) {
                let count = columns - column;
                let sum = s.load_first(sums.add(column), count);
                let factor = if logarithm { log(s, sum) } else { s.div(s.splat(1.0), sum) };
                s.store_first(sums.add(column), factor, count);
            }
            for row in 0..axis {
                let to = output.add(row * inner);
                for column in (0..columns).step_by(S::LANES) {
                    let count = columns - column;
                    let (value, factor) = (s.load_first(to.add(column), count), s.load_first(sums.add(column), count));
                    let value = if logarithm { s.sub(value, factor) } else { scaled(s, value, factor) };
                    s.store_first(to.add(column), value, count);
                }
            }
        }
    }
}

/// A strided axis of so few columns that a vector holds several rows.
struct FewColumns {
    logarithm: bool,
    /// The elements of all rows.
    len: usize,
    inner: usize,
    input: *const f32,
    output: *mut f32,
}

impl FewColumns {
    /// # Safety
    /// `len` values, a multiple of `inner`, are readable and writable, and two rows fit into a vector.
    #[inline(always)]
    unsafe fn run_in<S: Simd>(self, s: S) {
        let FewColumns { logarithm, len, inner, input, output } = self;
        // Each lane belongs to one column; lanes behind the last whole row of a vector belong to none.
        let width = S::LANES / inner * inner;
        let mut tops = s.splat(f32::NEG_INFINITY);
        for place in (0..len).step_by(width) {
            let count = width.min(len - place);
            // SAFETY: the place lies before the end of the values.
            let values = unsafe { first_of(s, input, place, count, len) };
            tops = s.max(tops, s.add(values, s.lowest_behind(count)));
        }
        let tops = joined(s, tops, inner, f32::NEG_INFINITY, f32::max);
        let mut sums = s.splat(0.0);
        for place in (0..len).step_by(width) {
            let count = width.min(len - place);
            // SAFETY: the place lies before the end of the values.
            let values = unsafe { first_of(s, input, place, count, len) };
            let moved = s.sub(values, tops);
            let power = exp_of_negative(s, s.add(moved, s.lowest_behind(count)));
            // SAFETY: as above.
            unsafe { s.store_partial(output.add(place), if logarithm { moved } else { power }, count) };
            sums = s.add(sums, power);
        }
        let sums = joined(s, sums, inner, 0.0, |a, b| a + b);
        let factor = if logarithm { log(s, sums) } else { s.div(s.splat(1.0), sums) };
        for place in (0..len).step_by(width) {
            let count = width.min(len - place);
            // SAFETY: as above.
            let value = unsafe { first_of(s, output, place, count, len) };
            let value = if logarithm { s.sub(value, factor) } else { scaled(s, value, factor) };
            // SAFETY: as above.
            unsafe { s.store_partial(output.add(place), value, count) };
        }
    }
}

/// `count` values from a place on, and others behind them.
///
/// # Safety
/// `len` values are readable, and so many lie from the place on.
#[inline(always)]
unsafe fn first_of<S: Simd>(s: S, values: *const f32, place: usize, count: usize, len: usize) -> S::F {
    let readable = if place + S::LANES <= len { S::LANES } else { count };
    // SAFETY: by the caller.
    unsafe { s.load_first(values.add(place), readable) }
}

/// What all lanes of a column hold together, in each of them; lanes behind the last whole row of columns hold nothing.
#[inline(always)]
fn joined<S: Simd>(s: S, values: S::F, columns: usize, neutral: f32, join: impl Fn(f32, f32) -> f32) -> S::F {
    let mut lanes = [neutral; MOST_LANES];
    let width = S::LANES / columns * columns;
    // SAFETY: the array has the lanes of any vector.
    unsafe { s.store(lanes.as_mut_ptr(), values) };
    let mut of_columns = [neutral; MOST_LANES];
    for row in lanes[..width].chunks_exact(columns) {
        for (sum, value) in of_columns.iter_mut().zip(row) {
            *sum = join(*sum, *value);
        }
    }
    for row in lanes[..width].chunks_exact_mut(columns) {
        row.copy_from_slice(&of_columns[..columns]);
    }
    // SAFETY: as above.
    unsafe { s.load(lanes.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, in_pool};
    use pretty_assertions::assert_eq;

    #[test]
    fn agrees_with_the_definition() {
        let mut random = Random::new(1);
        for sizes in [
            [1, 1, 1],
            [3, 5, 1],
            [2, 37, 1],
            [2, 3, 21],
            [1, 40, 33],
            [7, 1000, 1],
            [0, 3, 2],
            [2, 16, 4],
            [5, 8, 1],
            [4, 16, 1],
            [3, 9, 1],
            [2, 48, 1],
            [2, 9, 1030],
            [3, 1, 3],
            [4, 17, 3],
            [2, 40, 5],
            [3, 100, 7],
            [2, 33, 2],
            [5, 21, 8],
        ] {
            let [outer, axis, inner] = sizes;
            let input: Vec<f32> = random.values(outer * axis * inner).iter().map(|x| x * 30.0).collect();
            for (isa, logarithm) in Isa::available().flat_map(|isa| [(isa, false), (isa, true)]) {
                let mut output = vec![f32::NAN; input.len()];
                softmax(isa, logarithm, sizes, &input, &mut output).unwrap();
                let mut expected = vec![0.0; input.len()];
                for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
                    let at = |a: usize| (o * axis + a) * inner + i;
                    let top = (0..axis).map(|a| input[at(a)]).fold(f32::NEG_INFINITY, f32::max);
                    let sum: f64 = (0..axis).map(|a| f64::from(input[at(a)] - top).exp()).sum();
                    for a in 0..axis {
                        let x = f64::from(input[at(a)] - top);
                        expected[at(a)] = if logarithm { x - sum.ln() } else { x.exp() / sum };
                    }
                }
                assert_close(&output, &expected, 4, "softmax");
                let mut data = input.clone();
                softmax_in_place(isa, logarithm, sizes, &mut data).unwrap();
                assert_eq!(data, output);
            }
        }
    }

    /// Probabilities that are no normal numbers are zero, along any axis.
    #[test]
    fn vanishing_probabilities_are_zero() {
        let lines = [0.0, 0.0, -86.5, -87.0, -88.0, -95.0, -104.0, -1e30].map(|x: f32| [x; 12]);
        for isa in Isa::available() {
            for inner in [1, 3, 12] {
                let input: Vec<f32> = lines.iter().flat_map(|line| line[..inner].to_vec()).collect();
                let mut output = vec![f32::NAN; input.len()];
                softmax(isa, false, [1, 8, inner], &input, &mut output).unwrap();
                assert_eq!(output[..inner], [0.5; 12][..inner]);
                assert!(output[2 * inner] > 0.0 && output[2 * inner..].iter().all(|x| *x == 0.0 || x.is_normal()));
                assert!(output[3 * inner..].iter().all(|x| *x < 1e-37), "{output:?}");
            }
        }
    }

    #[test]
    fn special_values_and_threads() {
        for isa in Isa::available() {
            let mut output = [0.0; 3];
            softmax(isa, false, [1, 3, 1], &[f32::NEG_INFINITY, 0.0, 0.0], &mut output).unwrap();
            assert_eq!(output, [0.0, 0.5, 0.5]);
            softmax(isa, false, [1, 3, 1], &[0.0, f32::NAN, 0.0], &mut output).unwrap();
            assert!(output.iter().all(|value| value.is_nan()));
            let input = Random::new(2).values(300 * 257);
            let run = || {
                let mut output = vec![0.0; input.len()];
                softmax(isa, false, [300, 257, 1], &input, &mut output).unwrap();
                output
            };
            assert_eq!(run(), in_pool(2, run));
        }
        assert!(softmax(Isa::portable(), false, [2, 2, 1], &[0.0; 4], &mut [0.0; 3]).is_err());
    }
}
