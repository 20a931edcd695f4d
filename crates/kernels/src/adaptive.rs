//! Pooling of f32 planes over as many parts as are asked for: part `i` of `n` along an axis of size `x` is
//! `floor(i * x / n)` to `ceil((i + 1) * x / n)`, so that neighbours may share elements.

use std::ops::Range;

use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Columns whose rows are taken together.
const PIECE: usize = 256;

/// Input elements that a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

/// Planes and their sizes `[depth, height, width]`; leading axes that the data lack have size 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveGeometry {
    /// Images times channels.
    pub planes: usize,
    /// The size of a plane.
    pub input: [usize; 3],
    /// The parts along each axis.
    pub output: [usize; 3],
}

impl AdaptiveGeometry {
    fn part(&self, axis: usize, index: usize) -> Range<usize> {
        let (size, parts) = (self.input[axis], self.output[axis]);
        index * size / parts..((index + 1) * size).div_ceil(parts)
    }

    /// The elements of a plane of the input and of the output.
    fn check(&self, input: usize, output: usize) -> Result<[usize; 2], KernelError> {
        if self.input.iter().chain(&self.output).any(|size| *size >= 1 << 31) {
            return Err(KernelError::invalid("input", "sizes overflow"));
        }
        let sizes = [product("input", &self.input)?, product("output", &self.output)?];
        check_exact("input", input, product("input", &[self.planes, sizes[0]])?)?;
        check_exact("output", output, product("output", &[self.planes, sizes[1]])?)?;
        if output > 0 && sizes[0] == 0 {
            return Err(KernelError::invalid("input", "parts of nothing"));
        }
        Ok(sizes)
    }
}

/// An integer that says where an element lies.
pub trait Position: Copy + Send + Sync + 'static {
    /// The position.
    fn of(position: usize) -> Self;
}

impl Position for i32 {
    #[inline(always)]
    fn of(position: usize) -> i32 {
        position as i32
    }
}

impl Position for i64 {
    #[inline(always)]
    fn of(position: usize) -> i64 {
        position as i64
    }
}

/// The means of all parts, summed in f64.
///
/// # Errors
/// A slice has the wrong length, or there are parts of nothing.
pub fn adaptive_mean(
    isa: Isa,
    geometry: &AdaptiveGeometry,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let [plane, _] = geometry.check(input.len(), output.len())?;
    let target = SharedMut::new(output);
    for_each_line(geometry, input, |index, [z, y], range| {
        // SAFETY: lines are disjoint.
        let output = unsafe { target.slice(range) };
        dispatch(isa, Means { geometry, input: &input[index * plane..][..plane], z, y, output });
    });
    Ok(())
}

/// The greatest element of each part and where in its plane it lies: of equal ones the first, and NaN wins over numbers.
/// `positions` may be empty, where nobody asks for them.
///
/// # Errors
/// As of [`adaptive_mean`].
pub fn adaptive_max<P: Position>(
    isa: Isa,
    geometry: &AdaptiveGeometry,
    input: &[f32],
    output: &mut [f32],
    positions: &mut [P],
) -> Result<(), KernelError> {
    let [plane, _] = geometry.check(input.len(), output.len())?;
    let asks = !positions.is_empty();
    if asks {
        check_exact("positions", positions.len(), output.len())?;
    }
    let (target, places) = (SharedMut::new(output), SharedMut::new(positions));
    for_each_line(geometry, input, |index, [z, y], range| {
        let placed = if asks { range.clone() } else { 0..0 };
        // SAFETY: lines are disjoint.
        let (output, positions) = unsafe { (target.slice(range), places.slice(placed)) };
        dispatch(isa, Greatest { geometry, input: &input[index * plane..][..plane], z, y, output, positions });
    });
    Ok(())
}

/// Calls for each line of the output with the plane, the depth and the height, and the elements of the line.
fn for_each_line(geometry: &AdaptiveGeometry, input: &[f32], write: impl Fn(usize, [usize; 2], Range<usize>) + Sync) {
    let [deep, high, wide] = geometry.output;
    let lines = geometry.planes * deep * high;
    if lines * wide == 0 {
        return;
    }
    let work = input.len() as u64 / 2;
    parallel_for(lines, CHUNK.div_ceil(input.len().div_ceil(lines).max(wide)), work, |range| {
        for line in range {
            write(line / (deep * high), [line / high % deep, line % high], line * wide..(line + 1) * wide);
        }
    });
}

/// Calls for the parts of a line in groups that lie in one piece of columns, and for those of a longer part piece by piece:
/// with the parts, the columns, and whether they begin and end what is asked for.
#[inline(always)]
fn for_each_piece(geometry: &AdaptiveGeometry, mut take: impl FnMut(Range<usize>, Range<usize>, bool, bool)) {
    let parts = geometry.output[2];
    let mut first = 0;
    while first < parts {
        let begin = geometry.part(2, first).start;
        let mut end = first + 1;
        while end < parts && geometry.part(2, end).end - begin <= PIECE {
            end += 1;
        }
        let columns = begin..geometry.part(2, end - 1).end;
        for start in columns.clone().step_by(PIECE) {
            let piece = start..columns.end.min(start + PIECE);
            take(first..end, piece.clone(), start == columns.start, piece.end == columns.end);
        }
        first = end;
    }
}

/// A line of means.
struct Means<'a> {
    geometry: &'a AdaptiveGeometry,
    input: &'a [f32],
    z: usize,
    y: usize,
    output: &'a mut [f32],
}

impl Kernel for Means<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Means { geometry: g, input, z, y, output } = self;
        let (depths, rows) = (g.part(0, z), g.part(1, y));
        let mut sums = [0.0f64; PIECE];
        let mut total = 0.0;
        for_each_piece(g, |parts, columns, begins, ends| {
            let sums = &mut sums[..columns.len()];
            sums.fill(0.0);
            for z in depths.clone() {
                let row = |y: usize| &input[(z * g.input[1] + y) * g.input[2]..][..g.input[2]][columns.clone()];
                let mut y = rows.start;
                // Several rows at once, so that sums are read and written less often.
                while y + 4 <= rows.end {
                    let (a, b, c, d) = (row(y), row(y + 1), row(y + 2), row(y + 3));
                    for ((((sum, a), b), c), d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                        *sum = *sum + f64::from(*a) + f64::from(*b) + f64::from(*c) + f64::from(*d);
                    }
                    y += 4;
                }
                for y in y..rows.end {
                    for (sum, value) in sums.iter_mut().zip(row(y)) {
                        *sum += f64::from(*value);
                    }
                }
            }
            for x in parts {
                let part = g.part(2, x);
                let inside = part.start.max(columns.start) - columns.start..part.end.min(columns.end) - columns.start;
                total = sums[inside].iter().fold(if begins { 0.0 } else { total }, |total, sum| total + sum);
                if ends {
                    output[x] = (total / (depths.len() * rows.len() * part.len()) as f64) as f32;
                }
            }
        });
    }
}

/// A line of greatest elements.
struct Greatest<'a, P> {
    geometry: &'a AdaptiveGeometry,
    input: &'a [f32],
    z: usize,
    y: usize,
    output: &'a mut [f32],
    positions: &'a mut [P],
}

impl<P: Position> Kernel for Greatest<'_, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Greatest { geometry: g, input, z, y, output, positions } = self;
        let (depths, rows) = (g.part(0, z), g.part(1, y));
        let (mut values, mut lines) = ([0.0f32; PIECE], [0u32; PIECE]);
        let mut best = (0.0f32, usize::MAX);
        for_each_piece(g, |parts, columns, begins, ends| {
            let (values, lines) = (&mut values[..columns.len()], &mut lines[..columns.len()]);
            let mut line = 0u32;
            for z in depths.clone() {
                for y in rows.clone() {
                    let row = &input[(z * g.input[1] + y) * g.input[2]..][..g.input[2]][columns.clone()];
                    if line == 0 {
                        values.copy_from_slice(row);
                        lines.fill(0);
                    } else {
                        for ((best, place), value) in values.iter_mut().zip(&mut *lines).zip(row) {
                            // Without branches, so that it becomes a few vector instructions.
                            let takes = (*value > *best) | (value.is_nan() & !best.is_nan());
                            *best = if takes { *value } else { *best };
                            *place = if takes { line } else { *place };
                        }
                    }
                    line += 1;
                }
            }
            for x in parts {
                let part = g.part(2, x);
                if begins {
                    best = (0.0, usize::MAX);
                }
                for column in part.start.max(columns.start)..part.end.min(columns.end) {
                    let (value, line) = (values[column - columns.start], lines[column - columns.start] as usize);
                    let (z, y) = (depths.start + line / rows.len(), rows.start + line % rows.len());
                    let position = (z * g.input[1] + y) * g.input[2] + column;
                    let is_equal = value == best.0 || value.is_nan() && best.0.is_nan();
                    let is_greater = value > best.0 || value.is_nan() && !best.0.is_nan();
                    if best.1 == usize::MAX || is_greater || is_equal && position < best.1 {
                        best = (value, position);
                    }
                }
                if ends {
                    output[x] = best.0;
                    if let Some(target) = positions.get_mut(x) {
                        *target = P::of(best.1);
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    #[test]
    fn any_sizes() {
        let mut random = Random::new(17);
        for round in 0..80 {
            let wide = if round % 4 == 0 { 900 } else { 40 };
            let g = AdaptiveGeometry {
                planes: random.between(1, 3),
                input: [random.between(1, 4), random.between(1, 9), random.between(1, wide)],
                output: [random.between(1, 5), random.between(1, 5), random.between(1, 12)],
            };
            let [from, to] = [g.input, g.output].map(|sizes| sizes.iter().product::<usize>());
            let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
            let input: Vec<f32> = (0..g.planes * from)
                .map(|_| match (round % 3, random.between(0, 40)) {
                    (0, which @ 0..5) => special[which],
                    // Few values, so that many are equal.
                    (1, which) => (which / 10) as f32,
                    _ => random.value(),
                })
                .collect();
            let (mut means, mut greatest, mut places) = (Vec::new(), Vec::new(), Vec::new());
            for index in 0..g.planes * to {
                let plane = &input[index / to * from..][..from];
                let at = index % to;
                let at = [at / (g.output[1] * g.output[2]), at / g.output[2] % g.output[1], at % g.output[2]];
                let part = |axis: usize| g.part(axis, at[axis]);
                let (mut sum, mut count, mut best) = (0.0, 0.0, None::<(f32, usize)>);
                for (z, y, x) in part(0).flat_map(|z| part(1).flat_map(move |y| part(2).map(move |x| (z, y, x)))) {
                    let place = (z * g.input[1] + y) * g.input[2] + x;
                    let value = plane[place];
                    (sum, count) = (sum + f64::from(value), count + 1.0);
                    best = match best {
                        Some((b, _)) if !(value > b || value.is_nan() && !b.is_nan()) => best,
                        _ => Some((value, place)),
                    };
                }
                means.push((sum / count) as f32);
                greatest.push(best.unwrap().0);
                places.push(best.unwrap().1 as i64);
            }
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            for isa in Isa::available() {
                let run = || {
                    let (mut mean, mut max) = (vec![9.0; means.len()], vec![9.0; means.len()]);
                    let (mut position, mut short) = (vec![-7i64; means.len()], vec![-7i32; means.len()]);
                    adaptive_mean(isa, &g, &input, &mut mean).unwrap();
                    adaptive_max(isa, &g, &input, &mut max, &mut short).unwrap();
                    assert!(short.iter().zip(&places).all(|(a, b)| i64::from(*a) == *b));
                    adaptive_max::<i64>(isa, &g, &input, &mut max, &mut []).unwrap();
                    adaptive_max(isa, &g, &input, &mut max, &mut position).unwrap();
                    (mean, max, position)
                };
                let (mean, max, position) = run();
                let is_close = |(a, b): (&f32, &f32)| {
                    a == b || (a - b).abs() <= 1e-6 * b.abs().max(1e-3) || a.is_nan() && b.is_nan()
                };
                assert!(mean.iter().zip(&means).all(is_close), "{g:?}");
                assert_eq!(bits(&max), bits(&greatest), "{g:?}");
                assert_eq!(position, places, "{g:?}");
                let (again, ..) = in_pool(2, run);
                assert_eq!(bits(&again), bits(&mean));
            }
        }
    }

    #[test]
    fn slices_are_checked() {
        let g = AdaptiveGeometry { planes: 1, input: [1, 2, 2], output: [1, 1, 1] };
        let isa = Isa::portable();
        assert!(adaptive_mean(isa, &g, &[1.0; 3], &mut [0.0]).is_err());
        assert!(adaptive_mean(isa, &g, &[1.0; 4], &mut []).is_err());
        assert!(adaptive_max(isa, &g, &[1.0; 4], &mut [0.0], &mut [0i32; 2]).is_err());
        assert!(adaptive_mean(isa, &AdaptiveGeometry { input: [1, 0, 2], ..g }, &[], &mut [0.0]).is_err());
        assert!(adaptive_mean(isa, &AdaptiveGeometry { planes: 0, ..g }, &[], &mut []).is_ok());
    }
}
