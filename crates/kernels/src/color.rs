//! Images of luma and halved chroma as red, green and blue.

use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Pixels that are computed together.
const TILE: usize = 64;

/// Pixels that a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

/// An element type of images.
pub trait Sample: Copy + Default + Send + Sync + 'static {
    /// The value as f32, which is exact.
    fn widen(self) -> f32;
    /// The value between 0 and 255, for bytes the nearest, halves to even.
    fn of(value: f32) -> Self;
}

impl Sample for u8 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from(self)
    }
    #[inline(always)]
    fn of(value: f32) -> u8 {
        // From 2^23 on f32 holds integers only, so that the sum rounds.
        const INTEGERS: f32 = (1 << 23) as f32;
        (value.clamp(0.0, 255.0) + INTEGERS).to_bits() as u8
    }
}

impl Sample for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
    #[inline(always)]
    fn of(value: f32) -> f32 {
        // NaN stays.
        value.clamp(0.0, 255.0)
    }
}

/// The planes of one image of luma and chroma.
#[derive(Debug, Clone, Copy)]
pub struct YuvPlanes<'a, T> {
    /// The luma of each pixel.
    pub y: &'a [T],
    /// The first chroma value of each block of two by two pixels.
    pub u: &'a [T],
    /// The second one.
    pub v: &'a [T],
    /// The distance from the chroma of a block to that of the next.
    pub step: usize,
}

/// Writes `[height, width, 3]`: red, green and blue, or in the other order if `is_bgr`.
///
/// # Errors
/// Height or width is odd, or a slice does not fit.
pub fn yuv_to_rgb<T: Sample>(
    isa: Isa,
    [height, width]: [usize; 2],
    planes: YuvPlanes<'_, T>,
    is_bgr: bool,
    output: &mut [T],
) -> Result<(), KernelError> {
    if !height.is_multiple_of(2) || !width.is_multiple_of(2) {
        return Err(KernelError::invalid("height", "and width must be even"));
    }
    check_exact("output", output.len(), product("output", &[height, width, 3])?)?;
    if output.is_empty() {
        return Ok(());
    }
    let blocks = height / 2 * (width / 2);
    check_len("y", planes.y.len(), height * width)?;
    let chroma = product("u", &[blocks - 1, planes.step])? + 1;
    check_len("u", planes.u.len(), chroma)?;
    check_len("v", planes.v.len(), chroma)?;
    let work = output.len() as u64 / 2;
    let shared = SharedMut::new(output);
    parallel_for(height, CHUNK.div_ceil(width), work, |rows| {
        for row in rows {
            // SAFETY: rows are disjoint.
            let line = unsafe { shared.slice(row * width * 3..(row + 1) * width * 3) };
            let first = row / 2 * (width / 2) * planes.step;
            let (y, u, v) = (&planes.y[row * width..][..width], &planes.u[first..], &planes.v[first..]);
            dispatch(isa, Line { planes: YuvPlanes { y, u, v, step: planes.step }, is_bgr, line });
        }
    });
    Ok(())
}

struct Line<'a, T> {
    planes: YuvPlanes<'a, T>,
    is_bgr: bool,
    line: &'a mut [T],
}

impl<T: Sample> Kernel for Line<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let YuvPlanes { y, u, v, step } = self.planes;
        let (whole, rest) = y.as_chunks::<TILE>();
        let (tiles, last) = self.line.as_chunks_mut::<{ 3 * TILE }>();
        for (tile, (y, pixels)) in whole.iter().zip(tiles).enumerate() {
            let first = tile * (TILE / 2) * step;
            let chroma = [chroma(&u[first..], step, TILE / 2), chroma(&v[first..], step, TILE / 2)];
            convert(y, &chroma, self.is_bgr, pixels);
        }
        if !rest.is_empty() {
            let first = whole.len() * (TILE / 2) * step;
            let chroma = [chroma(&u[first..], step, rest.len() / 2), chroma(&v[first..], step, rest.len() / 2)];
            let (mut y, mut pixels) = ([T::default(); TILE], [T::default(); 3 * TILE]);
            y[..rest.len()].copy_from_slice(rest);
            convert(&y, &chroma, self.is_bgr, &mut pixels);
            last.copy_from_slice(&pixels[..last.len()]);
        }
    }
}

/// So many chroma values that lie `step` apart, less 128, for two pixels each.
#[inline(always)]
fn chroma<T: Sample>(values: &[T], step: usize, count: usize) -> [f32; TILE] {
    let mut dense = [T::default(); TILE / 2];
    // Loops of a fixed length become vectors without a tail; the last value of a plane of pairs has no second one behind it.
    match (step, values.first_chunk::<TILE>(), values.first_chunk::<{ TILE / 2 }>()) {
        (2, Some(pairs), _) if count == TILE / 2 => {
            for at in 0..TILE / 2 {
                dense[at] = pairs[2 * at];
            }
        }
        (1, _, Some(values)) if count == TILE / 2 => dense = *values,
        _ => {
            for (target, value) in dense[..count].iter_mut().zip(values.iter().step_by(step.max(1))) {
                *target = *value;
            }
        }
    }
    let mut doubled = [0.0; TILE];
    for at in 0..TILE / 2 {
        let value = dense[at].widen() - 128.0;
        (doubled[2 * at], doubled[2 * at + 1]) = (value, value);
    }
    doubled
}

/// Writes the pixels of a tile.
#[inline(always)]
fn convert<T: Sample>(y: &[T; TILE], [us, vs]: &[[f32; TILE]; 2], is_bgr: bool, pixels: &mut [T; 3 * TILE]) {
    let (mut luma, mut colors) = ([0.0f32; TILE], [[T::default(); TILE]; 3]);
    let [red, green, blue] = &mut colors;
    for at in 0..TILE {
        luma[at] = 1.164 * (y[at].widen() - 16.0);
    }
    for at in 0..TILE {
        red[at] = T::of(luma[at] + 1.596 * vs[at]);
    }
    for at in 0..TILE {
        green[at] = T::of(luma[at] - 0.391 * us[at] - 0.813 * vs[at]);
    }
    for at in 0..TILE {
        blue[at] = T::of(luma[at] + 2.018 * us[at]);
    }
    let (left, right) = if is_bgr { (blue, red) } else { (red, blue) };
    for at in 0..TILE {
        pixels[3 * at] = left[at];
        pixels[3 * at + 1] = green[at];
        pixels[3 * at + 2] = right[at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    #[test]
    fn images_of_bytes() {
        let mut random = Random::new(9);
        for (height, width) in [(2, 2), (4, 66), (6, 130), (200, 90)] {
            let mut bytes = |count: usize| (0..count).map(|_| random.next() as u8).collect::<Vec<_>>();
            let (y, pairs) = (bytes(height * width), bytes(height * width / 2));
            let planar: [Vec<u8>; 2] = [0, 1].map(|part| pairs.iter().skip(part).step_by(2).copied().collect());
            let mut expected = Vec::new();
            for (place, y) in y.iter().enumerate() {
                let block = place / width / 2 * (width / 2) + place % width / 2;
                let (u, v) = (f32::from(pairs[2 * block]) - 128.0, f32::from(pairs[2 * block + 1]) - 128.0);
                let luma = 1.164 * (f32::from(*y) - 16.0);
                let rgb = [luma + 1.596 * v, luma - 0.391 * u - 0.813 * v, luma + 2.018 * u];
                expected.extend(rgb.map(|value| value.clamp(0.0, 255.0).round_ties_even() as u8));
            }
            for isa in Isa::available() {
                let run = |planes, is_bgr| {
                    let mut output = vec![0; height * width * 3];
                    yuv_to_rgb(isa, [height, width], planes, is_bgr, &mut output).unwrap();
                    output
                };
                let interleaved = YuvPlanes { y: &y, u: &pairs, v: &pairs[1..], step: 2 };
                assert_eq!(run(interleaved, false), expected);
                assert_eq!(in_pool(2, || run(interleaved, false)), expected);
                let planar = YuvPlanes { y: &y[..], u: &planar[0], v: &planar[1], step: 1 };
                let turned: Vec<u8> = expected.as_chunks::<3>().0.iter().flat_map(|[r, g, b]| [*b, *g, *r]).collect();
                assert_eq!(run(planar, true), turned);
            }
        }
    }

    #[test]
    fn floats_are_not_rounded_and_slices_are_checked() {
        let planes = YuvPlanes { y: &[16.0f32, 100.5, f32::NAN, 300.0], u: &[128.0], v: &[128.0], step: 2 };
        let mut output = [9.0; 12];
        yuv_to_rgb(Isa::portable(), [2, 2], planes, false, &mut output).unwrap();
        assert_eq!(output[..3], [0.0; 3]);
        assert!((output[3] - 98.358).abs() < 1e-4 && output[6].is_nan());
        assert_eq!(output[9..], [255.0; 3]);
        assert!(yuv_to_rgb(Isa::portable(), [2, 2], planes, false, &mut output[1..]).is_err());
        assert!(yuv_to_rgb(Isa::portable(), [1, 4], planes, false, &mut output).is_err());
        assert!(yuv_to_rgb(Isa::portable(), [2, 2], YuvPlanes { u: &[], ..planes }, false, &mut output).is_err());
    }
}
