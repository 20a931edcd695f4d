//! Rotary position embedding: the halves of every row turned by angles whose cosines and sines are given.

use crate::error::{KernelError, check_exact, check_len, product, span};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Elements a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

/// Where rows are. The result is dense, `[images, heads, rows, 2 * half]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotaryGeometry {
    /// Images, heads and rows of the result.
    pub sizes: [usize; 3],
    /// Half of the elements of a row.
    pub half: usize,
    /// The distances of images, heads and rows of the data, in elements. Elements of a row lie side by side.
    pub data_strides: [usize; 3],
    /// Those of the cosines; 0 repeats.
    pub cosine_strides: [usize; 3],
    /// Those of the sines; 0 repeats.
    pub sine_strides: [usize; 3],
}

impl RotaryGeometry {
    fn check(&self, data: usize, cosines: usize, sines: usize, output: usize) -> Result<(), KernelError> {
        let [images, heads, rows] = self.sizes;
        let columns = product("half", &[2, self.half])?;
        check_exact("output", output, product("output", &[images, heads, rows, columns])?)?;
        let slices = [
            ("data", data, self.data_strides),
            ("cosines", cosines, self.cosine_strides),
            ("sines", sines, self.sine_strides),
        ];
        for (name, len, [image, head, row]) in slices {
            check_len(name, len, span(name, &[(images, image), (heads, head), (rows, row), (columns, 1)])?)?;
        }
        Ok(())
    }
}

/// Turns all rows: `x * cosine + turned(x) * sine`, where `turned` has the second half, negated, in front of the first one.
/// The products and their sum are rounded one by one.
///
/// # Errors
/// A slice does not fit the geometry.
pub fn rotate(
    isa: Isa,
    geometry: &RotaryGeometry,
    data: &[f32],
    cosines: &[f32],
    sines: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    geometry.check(data.len(), cosines.len(), sines.len(), output.len())?;
    if output.is_empty() {
        return Ok(());
    }
    let [images, heads, rows] = geometry.sizes;
    let columns = 2 * geometry.half;
    let work = output.len() as u64;
    let shared = SharedMut::new(output);
    parallel_for(images * heads * rows, CHUNK.div_ceil(columns), work, |range| {
        for index in range {
            let place = [index / rows / heads, index / rows % heads, index % rows];
            let row = |values, strides: [usize; 3]| -> &[f32] {
                let start: usize = place.iter().zip(strides).map(|(at, stride)| at * stride).sum();
                let values: &[f32] = values;
                &values[start..start + columns]
            };
            dispatch(
                isa,
                Row {
                    data: row(data, geometry.data_strides),
                    cosines: row(cosines, geometry.cosine_strides),
                    sines: row(sines, geometry.sine_strides),
                    // SAFETY: rows of the result are disjoint.
                    output: unsafe { shared.slice(index * columns..(index + 1) * columns) },
                },
            );
        }
    });
    Ok(())
}

/// One row; all slices have the same even length.
struct Row<'a> {
    data: &'a [f32],
    cosines: &'a [f32],
    sines: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for Row<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let half = self.output.len() / 2;
        let (data, cosines, sines) = (self.data.as_ptr(), self.cosines.as_ptr(), self.sines.as_ptr());
        let output = self.output.as_mut_ptr();
        let mut index = 0;
        while index < half {
            let count = (half - index).min(S::LANES);
            // SAFETY: `count` elements from `index` on lie in either half of every slice.
            unsafe {
                let first = s.load_first(data.add(index), count);
                let second = s.load_first(data.add(half + index), count);
                let turned = s.mul(second, s.load_first(sines.add(index), count));
                let value = s.sub(s.mul(first, s.load_first(cosines.add(index), count)), turned);
                s.store_first(output.add(index), value, count);
                let turned = s.mul(first, s.load_first(sines.add(half + index), count));
                let value = s.add(s.mul(second, s.load_first(cosines.add(half + index), count)), turned);
                s.store_first(output.add(half + index), value, count);
            }
            index += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn rows_are_turned_on_every_tier() {
        let mut random = Random::new(5);
        for (sizes, half) in [([1, 1, 1], 1), ([2, 3, 5], 4), ([1, 4, 3], 16), ([3, 2, 2], 19), ([1, 7, 41], 64)] {
            let [images, heads, rows] = sizes;
            let columns = 2 * half;
            let data = random.values(images * heads * rows * columns);
            let (cosines, sines) = (random.values(rows * columns), random.values(images * rows * columns));
            // Heads of the data lie side by side; cosines are those of all images.
            let geometry = RotaryGeometry {
                sizes,
                half,
                data_strides: [rows * heads * columns, columns, heads * columns],
                cosine_strides: [0, 0, columns],
                sine_strides: [rows * columns, 0, columns],
            };
            let mut expected = vec![0.0; data.len()];
            for (index, value) in expected.iter_mut().enumerate() {
                let (column, row) = (index % columns, index / columns % rows);
                let (head, image) = (index / columns / rows % heads, index / columns / rows / heads);
                let at = |column: usize| data[((image * rows + row) * heads + head) * columns + column];
                let turned = if column < half { -at(column + half) } else { at(column - half) };
                let sine = sines[(image * rows + row) * columns + column];
                *value = at(column) * cosines[row * columns + column] + turned * sine;
            }
            for isa in Isa::available() {
                let mut output = vec![f32::NAN; data.len()];
                rotate(isa, &geometry, &data, &cosines, &sines, &mut output).unwrap();
                assert_eq!(output, expected, "{isa:?} {sizes:?} {half}");
            }
        }
    }

    #[test]
    fn slices_must_fit() {
        let geometry = RotaryGeometry {
            sizes: [2, 1, 3],
            half: 2,
            data_strides: [12, 12, 4],
            cosine_strides: [0, 0, 4],
            sine_strides: [0, 0, 4],
        };
        let run = |data: usize, cosines: usize, sines: usize, output: usize| {
            let [data, cosines, sines] = [data, cosines, sines].map(|len| vec![1.0; len]);
            rotate(Isa::portable(), &geometry, &data, &cosines, &sines, &mut vec![0.0; output]).map_err(|e| e.argument)
        };
        assert_eq!(run(24, 12, 12, 24), Ok(()));
        assert_eq!(run(23, 12, 12, 24), Err("data"));
        assert_eq!(run(24, 11, 12, 24), Err("cosines"));
        assert_eq!(run(24, 12, 11, 24), Err("sines"));
        assert_eq!(run(24, 12, 12, 25), Err("output"));
        let huge = RotaryGeometry { data_strides: [usize::MAX, 0, 0], ..geometry };
        assert!(rotate(Isa::portable(), &huge, &[0.0; 24], &[0.0; 12], &[0.0; 12], &mut [0.0; 24]).is_err());
    }
}
