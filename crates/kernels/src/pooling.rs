//! Pooling of f32, and of codes, over plain `[N, C, D, H, W]` data. For blocked data see [`crate::blocked`].

pub use crate::blocked::PoolingKind;
use crate::blocked::window;
use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::reduce::{ReduceOp, reduce};
use crate::simd::{Kernel, Simd, dispatch};
use std::ops::Range;

/// Output elements a parallel chunk covers at least.
const CHUNK: usize = 1 << 12;

/// A pooling over up to three spatial axes `[depth, height, width]`; leading axes that the data lack have size 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolingGeometry {
    /// Planes: images times channels.
    pub planes: usize,
    /// The size of the input.
    pub input: [usize; 3],
    /// The size of the output, whichever way it was rounded.
    pub output: [usize; 3],
    /// The window.
    pub kernel: [usize; 3],
    /// Steps between windows.
    pub stride: [usize; 3],
    /// Steps inside a window.
    pub dilation: [usize; 3],
    /// Padding before each axis.
    pub pad_begin: [usize; 3],
    /// Padding after each axis.
    pub pad_end: [usize; 3],
}

impl PoolingGeometry {
    /// The positions of a plane of the input and of the output.
    ///
    /// # Errors
    /// A kernel, stride or dilation is zero, or sizes overflow.
    pub(crate) fn positions(&self) -> Result<[usize; 2], KernelError> {
        let Self { kernel, stride, dilation, pad_begin, pad_end, .. } = *self;
        for axis in 0..3 {
            if kernel[axis] == 0 || stride[axis] == 0 || dilation[axis] == 0 {
                return Err(KernelError::invalid("kernel", "kernel, stride or dilation is zero"));
            }
            let sizes = [kernel, stride, dilation, pad_begin, pad_end, self.input, self.output];
            if sizes.iter().any(|sizes| sizes[axis] >= 1 << 30) {
                return Err(KernelError::invalid("kernel", "sizes overflow"));
            }
        }
        Ok([product("input", &self.input)?, product("output", &self.output)?])
    }

    /// The taps of an output position along an axis that lie inside the input, from the first to the one past the last, and the
    /// number that lie inside the padded input.
    #[inline(always)]
    pub(crate) fn window(&self, axis: usize, output: usize) -> (usize, usize, usize) {
        window(
            output * self.stride[axis],
            self.kernel[axis],
            self.dilation[axis],
            self.pad_begin[axis],
            self.input[axis],
            self.pad_end[axis],
        )
    }

    /// The output positions along an axis whose windows lie inside the input.
    pub(crate) fn inside(&self, axis: usize) -> Range<usize> {
        let (stride, pad) = (self.stride[axis], self.pad_begin[axis]);
        let reach = (self.kernel[axis] - 1).saturating_mul(self.dilation[axis]);
        let first = pad.div_ceil(stride).min(self.output[axis]);
        let end = (self.input[axis] + pad).checked_sub(reach).map_or(0, |starts| starts.div_ceil(stride));
        first..end.clamp(first, self.output[axis])
    }

    /// Where a tap of an output position lies along an axis, if it lies inside the input.
    #[inline(always)]
    pub(crate) fn place(&self, axis: usize, output: usize, tap: usize) -> usize {
        output * self.stride[axis] + tap * self.dilation[axis] - self.pad_begin[axis]
    }

    /// The elements of a window.
    #[must_use]
    pub fn taps(&self) -> u64 {
        self.kernel.iter().fold(1u64, |total, &size| total.saturating_mul(size as u64))
    }
}

/// Pools every plane.
///
/// # Errors
/// A slice has the wrong length, a kernel, stride or dilation is zero, or sizes overflow.
pub fn pooling(
    isa: Isa,
    kind: PoolingKind,
    geometry: &PoolingGeometry,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let work = (output.len() as u64).saturating_mul(geometry.taps()) / 4;
    for_each_line([geometry.planes, 1], geometry, input, output, work, |input, [z, y], output| {
        dispatch(isa, Line { kind, geometry, z, y, input, output });
    })
}

/// Has each line of an output of so many planes, with so many lanes side by side, written: `write` gets the plane of the
/// input, the depth and the height of the line, and the line.
///
/// # Errors
/// A slice has the wrong length, a kernel, stride or dilation is zero, or sizes overflow.
pub(crate) fn for_each_line<T: Send + Sync>(
    [planes, lanes]: [usize; 2],
    geometry: &PoolingGeometry,
    input: &[T],
    output: &mut [T],
    work: u64,
    write: impl Fn(&[T], [usize; 2], &mut [T]) + Sync,
) -> Result<(), KernelError> {
    let [plane, positions] = geometry.positions()?;
    check_exact("input", input.len(), product("input", &[planes, plane, lanes])?)?;
    check_exact("output", output.len(), product("output", &[planes, positions, lanes])?)?;
    if output.is_empty() {
        return Ok(());
    }
    let shared = SharedMut::new(output);
    let (lines, line) = (geometry.output[0] * geometry.output[1], geometry.output[2] * lanes);
    parallel_for(planes * lines, CHUNK.div_ceil(line), work, |range| {
        for index in range {
            let (plane_index, at) = (index / lines, index % lines);
            // SAFETY: lines are disjoint and within the output.
            let output = unsafe { shared.slice(index * line..(index + 1) * line) };
            let input = &input[plane_index * plane * lanes..][..plane * lanes];
            write(input, [at / geometry.output[1], at % geometry.output[1]], output);
        }
    });
    Ok(())
}

/// The greatest code of each window of every plane; 0 where a window has none.
///
/// # Errors
/// As for [`pooling`].
pub fn max_codes(geometry: &PoolingGeometry, input: &[u8], output: &mut [u8]) -> Result<(), KernelError> {
    max_lanes::<1>(geometry.planes, geometry, input, output)
}

/// The greatest codes of each window, lane by lane.
///
/// # Errors
/// As for [`pooling`].
pub(crate) fn max_lanes<const LANES: usize>(
    planes: usize,
    geometry: &PoolingGeometry,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), KernelError> {
    let work = (output.len() as u64).saturating_mul(geometry.taps()) / (4 * LANES as u64);
    for_each_line([planes, LANES], geometry, input, output, work, |input, [z, y], output| {
        let (depths, rows, inside) = (geometry.window(0, z), geometry.window(1, y), geometry.inside(2));
        output.fill(0);
        for (kz, ky) in (depths.0..depths.1).flat_map(|kz| (rows.0..rows.1).map(move |ky| (kz, ky))) {
            let row = (geometry.place(0, z, kz) * geometry.input[1] + geometry.place(1, y, ky)) * geometry.input[2];
            let row = &input.as_chunks::<LANES>().0[row..][..geometry.input[2]];
            let output = output.as_chunks_mut::<LANES>().0;
            for x in (0..inside.start).chain(inside.end..output.len()) {
                let columns = geometry.window(2, x);
                for kx in columns.0..columns.1 {
                    raise(&mut output[x], &row[geometry.place(2, x, kx)]);
                }
            }
            for x in inside.clone() {
                let (mut lanes, taps) = (output[x], &row[geometry.place(2, x, 0)..]);
                for codes in taps.iter().step_by(geometry.dilation[2]).take(geometry.kernel[2]) {
                    raise(&mut lanes, codes);
                }
                output[x] = lanes;
            }
        }
    })
}

/// Keeps the greater code in each lane.
#[inline(always)]
fn raise<const LANES: usize>(greatest: &mut [u8; LANES], codes: &[u8; LANES]) {
    for lane in 0..LANES {
        greatest[lane] = greatest[lane].max(codes[lane]);
    }
}

/// The mean (or the greatest value) of each of `planes` planes of `positions` elements.
///
/// # Errors
/// A slice has the wrong length.
pub fn global_pooling(
    isa: Isa,
    kind: PoolingKind,
    planes: usize,
    positions: usize,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let op = if kind == PoolingKind::Max { ReduceOp::Max } else { ReduceOp::Mean };
    reduce(isa, op, [planes, positions, 1], input, output)
}

struct Line<'a> {
    kind: PoolingKind,
    geometry: &'a PoolingGeometry,
    z: usize,
    y: usize,
    input: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for Line<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (wide, stride) = (self.geometry.output[2], self.geometry.stride[2]);
        let inside = self.geometry.inside(2);
        let mut x = 0;
        while x < wide {
            let count = if inside.contains(&x) { (inside.end - x).min(S::LANES) } else { 1 };
            let columns = self.geometry.window(2, x);
            let value = match (stride, count) {
                (1, _) => self.columns::<S, 1>(s, x, count, columns),
                (2, _) => self.columns::<S, 2>(s, x, count, columns),
                _ => self.columns::<S, 0>(s, x, count, columns),
            };
            // SAFETY: columns `x..x + count` lie in the line.
            unsafe { s.store_partial(self.output.as_ptr().cast_mut().add(x), value, count) };
            x += count;
        }
    }
}

impl Line<'_> {
    /// The results of `count` neighbouring columns that share the tap range of the width. `STRIDE` is the step between
    /// windows where it is known, else 0.
    #[inline(always)]
    fn columns<S: Simd, const STRIDE: usize>(
        &self,
        s: S,
        x: usize,
        count: usize,
        columns: (usize, usize, usize),
    ) -> S::F {
        let geometry = self.geometry;
        let max = self.kind == PoolingKind::Max;
        let stride = if STRIDE == 0 { geometry.stride[2] } else { STRIDE };
        let (planes, rows) = (self.geometry.window(0, self.z), self.geometry.window(1, self.y));
        let mut sum = s.splat(if max { f32::NEG_INFINITY } else { 0.0 });
        for kz in planes.0..planes.1 {
            for ky in rows.0..rows.1 {
                let line = (geometry.place(0, self.z, kz) * geometry.input[1] + geometry.place(1, self.y, ky))
                    * geometry.input[2];
                for kx in columns.0..columns.1 {
                    let start = line + geometry.place(2, x, kx);
                    let values = &self.input[start..start + (count - 1) * stride + 1];
                    // SAFETY: the slice holds `count` values that lie `stride` apart.
                    let value = unsafe {
                        if STRIDE == 1 {
                            s.load_partial(values.as_ptr(), count)
                        } else {
                            let mut lanes = [0.0f32; 16];
                            for (lane, value) in lanes.iter_mut().zip(values.iter().step_by(stride)) {
                                *lane = *value;
                            }
                            s.load(lanes.as_ptr())
                        }
                    };
                    sum = if max { s.select(s.is_nan(value), value, s.max(value, sum)) } else { s.add(sum, value) };
                }
            }
        }
        if max {
            return sum;
        }
        let counted = match self.kind {
            PoolingKind::AverageWithPadding => planes.2 * rows.2 * columns.2,
            _ => (planes.1 - planes.0) * (rows.1 - rows.0) * (columns.1 - columns.0),
        };
        s.div(sum, s.splat(counted as f32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_geometry(seed: u64) {
            let mut random = Random::new(seed);
            let mut triple = |low: usize, high: usize| [random.between(low, high.min(3)), random.between(low, high), random.between(low, high * 3)];
            let (input, kernel, stride, dilation) = (triple(1, 9), triple(1, 3), triple(1, 2), triple(1, 2));
            let (pad_begin, pad_end, output) = (triple(0, 1), triple(0, 1), triple(1, 8));
            let g = PoolingGeometry { planes: 2, input, output, kernel, stride, dilation, pad_begin, pad_end };
            let volume = |sizes: [usize; 3]| sizes.iter().product::<usize>();
            let unfold = |i: usize, s: [usize; 3]| [i / (s[1] * s[2]), i / s[2] % s[1], i % s[2]];
            let values = random.values(2 * volume(input));
            for kind in [PoolingKind::Max, PoolingKind::Average, PoolingKind::AverageWithPadding] {
                let expected: Vec<f64> = (0..2 * volume(output)).map(|index| {
                    let at = unfold(index % volume(output), output);
                    let (mut max, mut sum, mut inside, mut padded) = (f64::NEG_INFINITY, 0.0, 0, 0);
                    for tap in 0..volume(kernel) {
                        let taps = unfold(tap, kernel);
                        let from = [0, 1, 2].map(|a| at[a] * stride[a] + taps[a] * dilation[a]);
                        let place = [0, 1, 2].map(|a| from[a].checked_sub(pad_begin[a]).filter(|&x| x < input[a]));
                        padded += usize::from((0..3).all(|a| from[a] < pad_begin[a] + input[a] + pad_end[a]));
                        if let [Some(z), Some(y), Some(x)] = place {
                            let plane = index / volume(output) * volume(input);
                            let value = f64::from(values[plane + (z * input[1] + y) * input[2] + x]);
                            (max, sum, inside) = (max.max(value), sum + value, inside + 1);
                        }
                    }
                    match kind {
                        PoolingKind::Max if inside == 0 => -1e30,
                        PoolingKind::Max => max,
                        PoolingKind::Average => sum / f64::from(inside),
                        PoolingKind::AverageWithPadding => sum / padded as f64,
                    }
                }).collect();
                for isa in Isa::available() {
                    let mut result = vec![0.0; expected.len()];
                    pooling(isa, kind, &g, &values, &mut result).unwrap();
                    let result: Vec<f32> = result.iter().map(|&x| if x.is_infinite() { -1e30 } else { x }).collect();
                    assert_close(&result, &expected, 27, &format!("{isa} {kind:?} {g:?}"));
                }
            }
        }
    }

    #[test]
    fn whole_planes() {
        let values = Random::new(1).values(6 * 49);
        let mut output = [0.0; 6];
        global_pooling(crate::isa::detect(), PoolingKind::Average, 6, 49, &values, &mut output).unwrap();
        let expected: Vec<f64> =
            values.chunks(49).map(|plane| plane.iter().map(|&x| f64::from(x)).sum::<f64>() / 49.0).collect();
        assert_close(&output, &expected, 49, "mean");
    }
}
