//! Local response normalisation over boxes of any axes.

use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::Isa;
use crate::normalization::ResponsePower;
use crate::parallel::{SharedMut, parallel_chunks_mut, parallel_for};
use crate::simd::{Kernel, MOST_LANES, Simd, dispatch};

/// Elements a parallel chunk covers.
const CHUNK: usize = 1 << 13;

/// The most axes of a box.
const MOST_AXES: usize = 8;

/// Neighbours along an axis lie in lines of their own where these are at least so long, else in one row.
const LINE: usize = MOST_LANES;

/// Elements of a row that are summed together, with their neighbours to both sides.
const ROW: usize = 4096;

/// A box around every element of a dense tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boxes {
    /// Blocks that follow each other, none of which sees another.
    blocks: usize,
    /// Elements of a block.
    block: usize,
    /// Size and stride of the axes of the box, the outermost first.
    axes: [(usize, usize); MOST_AXES],
    rank: usize,
    /// How far the box reaches to both sides along each axis.
    reach: usize,
}

impl Boxes {
    /// Boxes that reach so far along the axes of `shape` that are `chosen`.
    ///
    /// # Errors
    /// No axis is chosen, more than eight are, or the number of elements overflows.
    pub fn new(shape: &[usize], chosen: &[bool], reach: usize) -> Result<Boxes, KernelError> {
        let len = product("shape", shape)?;
        let mut boxes = Boxes { blocks: 1, block: len, axes: [(1, 1); MOST_AXES], rank: 0, reach };
        let mut stride = len;
        for (size, chosen) in shape.iter().zip(chosen).filter(|_| len > 0) {
            stride /= size;
            if *chosen {
                let place = boxes.axes.get_mut(boxes.rank);
                *place.ok_or(KernelError::invalid("chosen", "the box has too many axes"))? = (*size, stride);
                boxes.rank += 1;
            } else if boxes.rank == 0 {
                boxes.blocks *= size;
                boxes.block = stride;
            }
        }
        if boxes.rank == 0 && len > 0 {
            return Err(KernelError::invalid("chosen", "the box has no axis"));
        }
        Ok(boxes)
    }

    /// Elements of scratch that [`local_response_of_boxes`] takes.
    #[must_use]
    pub fn scratch_len(&self) -> usize {
        if self.rank > 1 { self.blocks * self.block } else { 0 }
    }
}

/// Writes `x / (bias + scale * sum of squares in the box around x)^beta` for each element of `input`. A sum over a box is
/// one along each axis after the other, the innermost first; nothing lies beyond the borders of the tensor.
///
/// # Errors
/// A slice does not fit the tensor, or scratch is too short.
pub fn local_response_of_boxes(
    isa: Isa,
    boxes: &Boxes,
    [scale, beta, bias]: [f32; 3],
    input: &[f32],
    output: &mut [f32],
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let block = boxes.block;
    let len = boxes.blocks * block;
    check_exact("input", input.len(), len)?;
    check_exact("output", output.len(), len)?;
    check_len("scratch", scratch.len(), boxes.scratch_len())?;
    if len == 0 {
        return Ok(());
    }
    let axes = &boxes.axes[..boxes.rank];
    let power = ResponsePower { factor: scale, beta, bias };
    let (output, scratch) = (SharedMut::new(output), SharedMut::new(scratch));
    parallel_for(boxes.blocks, CHUNK.div_ceil(block), work_nanoseconds(axes, boxes.reach, len), |range| {
        for range in range.map(|index| index * block..(index + 1) * block) {
            let input = &input[range.clone()];
            let scratch_range = if axes.len() > 1 { range.clone() } else { 0..0 };
            // SAFETY: blocks are disjoint, and lie in scratch where it is taken.
            let (output, scratch) = unsafe { (output.slice(range), scratch.slice(scratch_range)) };
            for (number, axis) in axes.iter().rev().enumerate() {
                let left = axes.len() - 1 - number;
                // What follows each other writes to one and to the other in turns, the last one to the output.
                let (source, target) = match left % 2 {
                    0 => (&*scratch, &mut *output),
                    _ => (&*output, &mut *scratch),
                };
                let source = if number == 0 { input } else { source };
                let pass = Pass { source, axis: *axis, reach: boxes.reach, squares: number == 0 };
                pass.run(isa, (left == 0).then_some((power, input)), target);
            }
        }
    });
    Ok(())
}

/// The time that the sums along some axes take for so many elements.
fn work_nanoseconds(axes: &[(usize, usize)], reach: usize, len: usize) -> u64 {
    let terms: u64 = axes.iter().map(|(size, _)| reach.saturating_mul(2).min(*size) as u64).sum();
    (len as u64).saturating_mul(8 + terms) / 16
}

/// Sums along one axis.
struct Pass<'a> {
    source: &'a [f32],
    /// Size and stride of the axis.
    axis: (usize, usize),
    reach: usize,
    /// Whether the squares are summed.
    squares: bool,
}

impl Pass<'_> {
    /// Writes the sums, or the response to them of the values in `finish`.
    fn run(&self, isa: Isa, finish: Option<(ResponsePower, &[f32])>, target: &mut [f32]) {
        let (size, inner) = self.axis;
        let chunk = if inner < LINE { CHUNK.next_multiple_of(size * inner) } else { CHUNK };
        let work = work_nanoseconds(&[self.axis], self.reach, target.len());
        parallel_chunks_mut(target, chunk, work, |index, target| {
            let first = index * chunk;
            let finish = finish.map(|(power, values)| (power, &values[first..][..target.len()]));
            dispatch(isa, Chunk { pass: self, finish, first, target });
        });
    }
}

/// Some elements of the result of a pass: whole rows where neighbours lie in rows.
struct Chunk<'a> {
    pass: &'a Pass<'a>,
    finish: Option<(ResponsePower, &'a [f32])>,
    first: usize,
    target: &'a mut [f32],
}

impl Kernel for Chunk<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Chunk { pass: Pass { source, axis: (size, inner), reach, squares }, finish, first, target } = self;
        let (size, inner, reach) = (*size, *inner, (*reach).min(*size - 1));
        if inner < LINE {
            rows(s, &source[first..][..target.len()], [size * inner, inner, reach], *squares, finish, target);
            return;
        }
        let mut done = 0;
        while done < target.len() {
            // Up to the end of the line.
            let (line, column) = ((first + done) / inner, (first + done) % inner);
            let width = (inner - column).min(target.len() - done);
            let at = line % size;
            let around = at.saturating_sub(reach)..(at + reach + 1).min(size);
            let lines = &source[(line - at + around.start) * inner + column..];
            let window = Window { lines, stride: inner, count: around.len(), squares: *squares };
            let finish = finish.map(|(power, values)| (power, &values[done..][..width]));
            window.run(s, finish, &mut target[done..][..width]);
            done += width;
        }
    }
}

/// Sums of neighbours that lie in rows of `row` elements, `inner` elements apart.
#[inline(always)]
fn rows<S: Simd>(
    s: S,
    source: &[f32],
    [row, inner, reach]: [usize; 3],
    squares: bool,
    finish: Option<(ResponsePower, &[f32])>,
    target: &mut [f32],
) {
    let side = reach * inner;
    let most = ROW.saturating_sub(2 * side);
    let mut buffer = [0.0; ROW];
    for (start, target) in (0..).step_by(row).zip(target.chunks_exact_mut(row)) {
        let source = &source[start..][..row];
        // Few elements with many neighbours, for which copies are not worth while: one sum after the other.
        if most < ROW / 2 {
            for (at, sum) in target.iter_mut().enumerate() {
                let around = at - side.min(at / inner * inner)..row.min(at + side + 1);
                let terms = source[around].iter().step_by(inner);
                *sum = terms.map(|value| if squares { value * value } else { *value }).sum();
            }
            if let Some((power, values)) = finish {
                for (sums, values) in target.chunks_mut(S::LANES).zip(values[start..].chunks(S::LANES)) {
                    let count = sums.len();
                    // SAFETY: there are so many sums, and at least as many values.
                    unsafe {
                        let power = power.of(s, s.load_partial(sums.as_ptr(), count));
                        let value = s.mul(s.load_partial(values.as_ptr(), count), power);
                        s.store_partial(sums.as_mut_ptr(), value, count);
                    }
                }
            }
            continue;
        }
        for first in (0..row).step_by(most) {
            let end = row.min(first + most);
            // The elements with their neighbours, and zeros beyond the borders.
            let (from, to) = (first.saturating_sub(side), row.min(end + side));
            let before = side + from - first;
            buffer[..before].fill(0.0);
            let (values, after) = buffer[before..2 * side + end - first].split_at_mut(to - from);
            after.fill(0.0);
            for (value, source) in values.iter_mut().zip(&source[from..to]) {
                *value = if squares { source * source } else { *source };
            }
            let window = Window { lines: &buffer, stride: inner, count: 2 * reach + 1, squares: false };
            let finish = finish.map(|(power, values)| (power, &values[start + first..][..end - first]));
            window.run(s, finish, &mut target[first..end]);
        }
    }
}

/// Sums of values that lie `stride` apart, so many for each.
struct Window<'a> {
    lines: &'a [f32],
    stride: usize,
    count: usize,
    squares: bool,
}

impl Window<'_> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, finish: Option<(ResponsePower, &[f32])>, target: &mut [f32]) {
        let Window { lines, stride, count, squares } = *self;
        let width = target.len();
        let lines = &lines[..count.saturating_sub(1) * stride + width];
        for at in (0..width).step_by(S::LANES) {
            let lanes = width - at;
            let mut sum = s.splat(0.0);
            for line in 0..count {
                // SAFETY: the slice ends with the last line's values for all sums; those of other lines lie before it.
                let value = unsafe { s.load_first(lines.as_ptr().add(line * stride + at), lanes) };
                sum = if squares { s.fma(value, value, sum) } else { s.add(sum, value) };
            }
            if let Some((power, values)) = finish {
                let values = &values[at..width];
                // SAFETY: so many values are left.
                sum = s.mul(unsafe { s.load_first(values.as_ptr(), lanes) }, power.of(s, sum));
            }
            // SAFETY: so many sums are left.
            unsafe { s.store_first(target.as_mut_ptr().add(at), sum, lanes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, in_pool};
    use pretty_assertions::assert_eq;

    /// The definition.
    fn expected(shape: &[usize], chosen: &[bool], reach: usize, factors: [f32; 3], input: &[f32]) -> Vec<f64> {
        let place = |mut index: usize| -> Vec<usize> {
            let mut place = vec![0; shape.len()];
            for (place, size) in place.iter_mut().zip(shape).rev() {
                (*place, index) = (index % size, index / size);
            }
            place
        };
        let places: Vec<Vec<usize>> = (0..input.len()).map(place).collect();
        let is_near = |a: &[usize], b: &[usize]| {
            a.iter().zip(b).zip(chosen).all(|((a, b), chosen)| a.abs_diff(*b) <= if *chosen { reach } else { 0 })
        };
        let [scale, beta, bias] = factors.map(f64::from);
        let respond = |(value, at): (&f32, &Vec<usize>)| {
            let near = places.iter().zip(input).filter(|(place, _)| is_near(place, at));
            let sum: f64 = near.map(|(_, value)| f64::from(*value).powi(2)).sum();
            f64::from(*value) / (bias + scale * sum).powf(beta)
        };
        input.iter().zip(&places).map(respond).collect()
    }

    #[test]
    fn boxes_agree_with_the_definition() {
        let mut random = Random::new(31);
        let shapes: [&[usize]; 9] = [
            &[1],
            &[70],
            &[3, 40],
            &[5, 6, 7],
            &[2, 3, 9, 17],
            &[1, 4, 20, 33],
            &[3, 2, 50, 3],
            &[2, 3, 4, 5, 6],
            &[2, 0, 3],
        ];
        for shape in shapes {
            for _ in 0..6 {
                let mut chosen: Vec<bool> = shape.iter().map(|_| random.between(0, 1) == 1).collect();
                let certain = random.between(0, shape.len() - 1);
                chosen[certain] = true;
                let (reach, beta) = (random.between(0, 4) * random.between(0, 3), [0.75, 0.6][random.between(0, 1)]);
                let factors = [0.3, beta, 1.5];
                let input = random.values(shape.iter().product());
                let expected = expected(shape, &chosen, reach, factors, &input);
                let boxes = Boxes::new(shape, &chosen, reach).unwrap();
                for isa in Isa::available() {
                    let run = || {
                        let (mut output, mut scratch) = (vec![9.0; input.len()], vec![9.0; boxes.scratch_len()]);
                        local_response_of_boxes(isa, &boxes, factors, &input, &mut output, &mut scratch).unwrap();
                        output
                    };
                    let output = run();
                    assert_close(&output, &expected, 4, "response");
                    assert_eq!(in_pool(3, run), output);
                }
            }
        }
    }

    #[test]
    fn long_rows_and_wide_boxes() {
        let mut random = Random::new(32);
        for (shape, chosen, reach) in [
            ([2, 5000, 1], [false, true, false], 3),
            ([1, 9000, 1], [false, true, false], 700),
            ([1, 3000, 1], [false, true, false], usize::MAX),
            ([1, 1500, 3], [false, true, false], 900),
            ([3, 2, 9000], [true, false, false], 1),
            ([40, 30, 64], [false, true, true], 2),
        ] {
            let input = random.values(shape.iter().product());
            let boxes = Boxes::new(&shape, &chosen, reach).unwrap();
            let factors = [0.25, 0.75, 1.0];
            let run = |isa: Isa| {
                let (mut output, mut scratch) = (vec![9.0; input.len()], vec![9.0; boxes.scratch_len()]);
                local_response_of_boxes(isa, &boxes, factors, &input, &mut output, &mut scratch).unwrap();
                output
            };
            // Sums along each axis by running totals.
            let mut sums: Vec<f64> = input.iter().map(|value| f64::from(*value).powi(2)).collect();
            for axis in (0..3).filter(|axis| chosen[*axis]) {
                let (size, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
                let mut total = sums.clone();
                for index in (0..sums.len()).filter(|index| index / inner % size > 0) {
                    total[index] += total[index - inner];
                }
                for (index, sum) in sums.iter_mut().enumerate() {
                    let at = index / inner % size;
                    let (first, last) = (at.saturating_sub(reach), at.saturating_add(reach).min(size - 1));
                    let upper = total[index + (last - at) * inner];
                    *sum = if first == 0 { upper } else { upper - total[index - (at - first + 1) * inner] };
                }
            }
            let expected: Vec<f64> =
                input.iter().zip(&sums).map(|(value, sum)| f64::from(*value) / (1.0 + 0.25 * sum).powf(0.75)).collect();
            for isa in Isa::available() {
                let output = run(isa);
                assert_close(&output, &expected, 100, "response");
                assert_eq!(in_pool(2, || run(isa)), output);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(Boxes::new(&[2, 3], &[false, false], 1).is_err());
        assert!(Boxes::new(&[2; 9], &[true; 9], 1).is_err());
        let boxes = Boxes::new(&[2, 3], &[true, true], 1).unwrap();
        let run = |input: usize, output: usize, scratch: usize| {
            let (mut output, mut scratch) = (vec![0.0; output], vec![0.0; scratch]);
            local_response_of_boxes(Isa::portable(), &boxes, [1.0; 3], &vec![0.0; input], &mut output, &mut scratch)
        };
        assert!(run(6, 6, 6).is_ok());
        assert!(run(5, 6, 6).is_err() && run(6, 5, 6).is_err() && run(6, 6, 5).is_err());
    }
}
