//! Poolings of blocked codes: the greatest of each window, and averages, whose sums are those of integers.

use super::QuantizedOutput;
use super::codes::{Dequantizer, store_codes};
use super::finish::{Decoding, DirectLanes};
use crate::blocked::{BLOCK, PoolingKind, volumes};
use crate::error::KernelError;
use crate::isa::Isa;
use crate::pooling::{PoolingGeometry, for_each_line, max_lanes};
use crate::simd::{Kernel, Simd, dispatch};

/// The most codes of a window that are averaged: their sum is an i32.
pub const MOST_AVERAGED: u64 = i32::MAX as u64 / 255;

/// The most codes whose sum has sixteen bits.
const MOST_SHORT: u64 = u16::MAX as u64 / 255;

/// Columns of the input that are folded together, and how far the windows of a position may reach among them.
const SPAN: usize = 64;
const REACH: usize = SPAN / 2;

/// Writes the greatest code of each window of blocked codes of so many channels an image; the planes of the geometry are those
/// of all images. A window that has none gets 0.
///
/// # Errors
/// A slice has the wrong length, the channels do not divide the planes, a kernel, stride or dilation is zero, or sizes
/// overflow.
pub fn blocked_max_codes(
    isa: Isa,
    channels: usize,
    geometry: &PoolingGeometry,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), KernelError> {
    let planes = volumes(channels, geometry)?;
    geometry.positions()?;
    if !is_short(geometry) {
        return max_lanes::<BLOCK>(planes, geometry, input, output);
    }
    let work = (output.len() as u64).saturating_mul(geometry.taps()) / (8 * BLOCK as u64);
    for_each_line([planes, BLOCK], geometry, input, output, work, |input, at, output| {
        dispatch(isa, Greatest { geometry, at, input, output });
    })
}

/// Writes the average of each window of blocked codes, otherwise as [`blocked_max_codes`]: the sum of what the codes stand for
/// over the number of positions that the kind counts, as values or as codes of levels of whole tensors. A code may be the one
/// beside where a value lies within a few units in the last place of the border of two.
///
/// # Errors
/// As for [`blocked_max_codes`]; the kind is no average, the levels are those of channels, or a window has more than
/// [`MOST_AVERAGED`] positions.
pub fn blocked_average_codes(
    isa: Isa,
    kind: PoolingKind,
    channels: usize,
    geometry: &PoolingGeometry,
    from: &Dequantizer,
    input: &[u8],
    output: QuantizedOutput<'_>,
) -> Result<(), KernelError> {
    let planes = [volumes(channels, geometry)?, BLOCK];
    geometry.positions()?;
    if kind == PoolingKind::Max || geometry.taps() > MOST_AVERAGED {
        return Err(KernelError::invalid("kernel", "has no average, or too many positions for the sum of their codes"));
    }
    let counts_padding = kind == PoolingKind::AverageWithPadding;
    let from = Decoding::new(from);
    let work = |outputs: usize| (outputs as u64).saturating_mul(geometry.taps()) / (8 * BLOCK as u64);
    match output {
        QuantizedOutput::Values(values) => {
            let work = work(values.len());
            for_each_line(planes, geometry, input, values, work, |input, at, output| {
                let output = Averages::Values(output);
                dispatch(isa, Average { geometry, at, counts_padding, from, input, output });
            })
        }
        QuantizedOutput::Codes(codes, encodings) => {
            encodings.check(1)?;
            let everything = (f32::NEG_INFINITY, f32::INFINITY);
            let direct = encodings.lanes(0).direct(&[1.0; BLOCK], &[0.0; BLOCK], everything);
            let work = work(codes.len());
            for_each_line(planes, geometry, input, codes, work, |input, at, output| {
                let output = Averages::Codes(output, &direct);
                dispatch(isa, Average { geometry, at, counts_padding, from, input, output });
            })
        }
    }
}

/// Whether the windows of neighbouring positions lie in a few columns, and the sum of the codes of one has sixteen bits.
fn is_short(geometry: &PoolingGeometry) -> bool {
    let reach = (geometry.kernel[2] - 1).saturating_mul(geometry.dilation[2]);
    reach < REACH && geometry.stride[2] < REACH && geometry.taps() <= MOST_SHORT
}

/// What codes are folded to, one after the other, from [`Default`] on.
trait Fold: Copy + Default {
    fn of(code: u8) -> Self;
    fn with(self, other: Self) -> Self;
}

/// The greatest.
impl Fold for u8 {
    #[inline(always)]
    fn of(code: u8) -> Self {
        code
    }

    #[inline(always)]
    fn with(self, other: Self) -> Self {
        self.max(other)
    }
}

/// The sum of at most [`MOST_SHORT`].
impl Fold for u16 {
    #[inline(always)]
    fn of(code: u8) -> Self {
        u16::from(code)
    }

    #[inline(always)]
    fn with(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

/// Folds the windows of a line: those of the rows of the windows first, then those of their columns. `write` gets each
/// position and what its window is folded to.
#[inline(always)]
fn fold_line<F: Fold>(g: &PoolingGeometry, at: [usize; 2], input: &[u8], mut write: impl FnMut(usize, &[F; BLOCK])) {
    let [depths, rows] = [0, 1].map(|axis| g.window(axis, at[axis]));
    let (stride, reach) = (g.stride[2], (g.kernel[2] - 1) * g.dilation[2]);
    let tile = (SPAN - reach - 1) / stride + 1;
    let mut columns = [[F::default(); BLOCK]; SPAN];
    let mut begin = 0;
    while begin < g.output[2] {
        let end = g.output[2].min(begin + tile);
        let first = begin * stride;
        let span = (end - begin - 1) * stride + reach + 1;
        // The padding adds nothing.
        let (from, inside) = g.columns(first, span);
        columns[..span].fill([F::default(); BLOCK]);
        for kz in depths.0..depths.1 {
            for ky in rows.0..rows.1 {
                let row = (g.place(0, at[0], kz) * g.input[1] + g.place(1, at[1], ky)) * g.input[2];
                let row = &input[row * BLOCK..][..g.input[2] * BLOCK];
                // A tile may lie in the padding as a whole.
                let Some(row) = row.get(inside.start * BLOCK..inside.end * BLOCK) else { continue };
                for (folded, code) in columns[from..].as_flattened_mut().iter_mut().zip(row) {
                    *folded = folded.with(F::of(*code));
                }
            }
        }
        for x in begin..end {
            let mut folded = [F::default(); BLOCK];
            let taps = &columns[(x - begin) * stride..][..reach + 1];
            let mut join = |tap: &[F; BLOCK]| {
                for (folded, lane) in folded.iter_mut().zip(tap) {
                    *folded = folded.with(*lane);
                }
            };
            match g.dilation[2] {
                1 => taps.iter().for_each(&mut join),
                dilation => taps.iter().step_by(dilation).for_each(&mut join),
            }
            write(x, &folded);
        }
        begin = end;
    }
}

/// A line of the greatest codes.
struct Greatest<'a> {
    geometry: &'a PoolingGeometry,
    /// The plane and the line in it.
    at: [usize; 2],
    input: &'a [u8],
    output: &'a mut [u8],
}

impl Kernel for Greatest<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _s: S) {
        let output = self.output.as_chunks_mut::<BLOCK>().0;
        fold_line::<u8>(self.geometry, self.at, self.input, |x, greatest| output[x] = *greatest);
    }
}

/// Where averages go.
enum Averages<'a> {
    Values(&'a mut [f32]),
    Codes(&'a mut [u8], &'a DirectLanes<BLOCK>),
}

/// A line of averages.
struct Average<'a> {
    geometry: &'a PoolingGeometry,
    /// The plane and the line in it.
    at: [usize; 2],
    /// Whether positions in the padding are counted.
    counts_padding: bool,
    from: Decoding,
    input: &'a [u8],
    output: Averages<'a>,
}

impl Kernel for Average<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (g, at, input) = (self.geometry, self.at, self.input);
        let windows = [0, 1].map(|axis| g.window(axis, at[axis]));
        let kernel = g.kernel[2];
        let (inside, of_inside) = (g.inside(2), self.mean(windows, (0, kernel, kernel)));
        if is_short(g) {
            fold_line::<u16>(g, at, input, |x, sums| {
                let mean = if inside.contains(&x) { of_inside } else { self.mean(windows, g.window(2, x)) };
                // SAFETY: the block has the sums of each of its vectors.
                self.write(s, x, mean, |part| unsafe { s.load_u16(sums.as_ptr().add(part).cast()) });
            });
            return;
        }
        for x in 0..g.output[2] {
            let columns = g.window(2, x);
            let mut sums = [0u32; BLOCK];
            for kz in windows[0].0..windows[0].1 {
                for ky in windows[1].0..windows[1].1 {
                    let row = (g.place(0, at[0], kz) * g.input[1] + g.place(1, at[1], ky)) * g.input[2];
                    for kx in columns.0..columns.1 {
                        let codes = &input[(row + g.place(2, x, kx)) * BLOCK..][..BLOCK];
                        for (sum, code) in sums.iter_mut().zip(codes) {
                            *sum += u32::from(*code);
                        }
                    }
                }
            }
            let mean = self.mean(windows, columns);
            // SAFETY: the block has the sums of each of its vectors, which are those of an i32.
            self.write(s, x, mean, |part| s.bits(unsafe { s.load(sums.as_ptr().add(part).cast()) }));
        }
    }
}

impl Average<'_> {
    /// What makes averages of the sums of the codes of a window.
    #[inline(always)]
    fn mean(&self, [depths, rows]: [(usize, usize, usize); 2], columns: (usize, usize, usize)) -> Decoding {
        let terms = (depths.1 - depths.0) * (rows.1 - rows.0) * (columns.1 - columns.0);
        let counted = if self.counts_padding { depths.2 * rows.2 * columns.2 } else { terms };
        self.from.of_sums(terms, counted)
    }

    /// Writes the averages of a position, of which `sums` gives the sums from a lane on.
    #[inline(always)]
    fn write<S: Simd>(&mut self, s: S, x: usize, mean: Decoding, sums: impl Fn(usize) -> S::I) {
        for part in (0..BLOCK).step_by(S::LANES) {
            let value = mean.values(s, s.from_i(sums(part)));
            match &mut self.output {
                Averages::Values(output) => {
                    let output = &mut output[x * BLOCK + part..][..S::LANES];
                    // SAFETY: the slice has a vector.
                    unsafe { s.store(output.as_mut_ptr(), value) };
                }
                Averages::Codes(output, direct) => {
                    let output = &mut output[x * BLOCK + part..][..S::LANES];
                    let codes = direct.at(s, part).codes(s, value);
                    // SAFETY: the slice has the codes of a vector.
                    unsafe { store_codes(s, output.as_mut_ptr(), codes, S::LANES) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::blocked_len;
    use crate::quantized::Encodings;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    const FROM: Dequantizer = Dequantizer { low: -0.5, high: 2.0, steps: 255.0 };

    /// Windows of all sizes: some lie in the padding in part, some cover the whole plane.
    fn geometries(random: &mut Random) -> Vec<PoolingGeometry> {
        let mut found = Vec::new();
        while found.len() < 60 {
            let mut three = |low: usize, high: usize| {
                [random.between(low, 2), random.between(low, high), random.between(low, high)]
            };
            let (mut input, kernel, stride, dilation) = (three(1, 12), three(1, 4), three(1, 3), three(1, 2));
            let (pad_begin, pad_end) = (three(0, 2), three(0, 2));
            if random.between(0, 1) == 0 {
                input[2] = random.between(4, 150);
            }
            let whole = PoolingGeometry::of_planes(38, input);
            let reach = [0, 1, 2].map(|axis| (kernel[axis] - 1) * dilation[axis]);
            let span =
                [0, 1, 2].map(|axis| (input[axis] + pad_begin[axis] + pad_end[axis]).checked_sub(reach[axis] + 1));
            let [Some(z), Some(y), Some(x)] = span else { continue };
            let output = [z / stride[0] + 1, y / stride[1] + 1, x / stride[2] + 1];
            let other = PoolingGeometry { planes: 38, input, output, kernel, stride, dilation, pad_begin, pad_end };
            // No window lies in the padding as a whole.
            let is_seen = |axis: usize| {
                (0..output[axis]).all(|at| {
                    let (first, end, _) = other.window(axis, at);
                    first < end
                })
            };
            found.push(if random.between(0, 3) == 0 || !(0..3).all(is_seen) { whole } else { other });
        }
        found
    }

    /// The codes of the window of an output position, of which `code` gives those of a plane.
    fn window(g: &PoolingGeometry, at: [usize; 3], code: impl Fn(usize) -> u8) -> Vec<u8> {
        let windows = [0, 1, 2].map(|axis| g.window(axis, at[axis]));
        let mut codes = Vec::new();
        for kz in windows[0].0..windows[0].1 {
            for ky in windows[1].0..windows[1].1 {
                for kx in windows[2].0..windows[2].1 {
                    let place = [(0, kz), (1, ky), (2, kx)].map(|(axis, tap)| g.place(axis, at[axis], tap));
                    codes.push(code((place[0] * g.input[1] + place[1]) * g.input[2] + place[2]));
                }
            }
        }
        codes
    }

    /// The window of an element of the output, which is given with its place in the plane.
    fn window_of(g: &PoolingGeometry, codes: &[u8], index: usize) -> ([usize; 3], Vec<u8>) {
        let (volume, positions) = (g.input.iter().product::<usize>(), g.output.iter().product::<usize>());
        let (plane, at, lane) = (index / BLOCK / positions, index / BLOCK % positions, index % BLOCK);
        let at = [at / g.output[2] / g.output[1], at / g.output[2] % g.output[1], at % g.output[2]];
        (at, window(g, at, |position| codes[(plane * volume + position) * BLOCK + lane]))
    }

    /// Every tier gives the greatest code of each window, of large ones too.
    #[test]
    fn greatest_codes() {
        let mut random = Random::new(12);
        let geometries = geometries(&mut random);
        assert!(geometries.iter().any(is_short) && !geometries.iter().all(is_short));
        for g in geometries {
            let (volume, positions) = (g.input.iter().product::<usize>(), g.output.iter().product::<usize>());
            let codes: Vec<u8> = (0..blocked_len(2, 19, volume)).map(|_| random.between(0, 255) as u8).collect();
            let len = blocked_len(2, 19, positions);
            let expected: Vec<u8> =
                (0..len).map(|index| window_of(&g, &codes, index).1.into_iter().max().unwrap()).collect();
            for isa in Isa::available() {
                let mut greatest = vec![9; len];
                blocked_max_codes(isa, 19, &g, &codes, &mut greatest).unwrap();
                assert_eq!(greatest, expected, "{isa} {g:?}");
            }
        }
    }

    /// Every tier and number of threads gives the averages, as values and as codes.
    #[test]
    fn averages_are_those_of_the_values() {
        let mut random = Random::new(11);
        for g in geometries(&mut random) {
            let (volume, positions) = (g.input.iter().product::<usize>(), g.output.iter().product::<usize>());
            let codes: Vec<u8> = (0..blocked_len(2, 19, volume)).map(|_| random.between(0, 255) as u8).collect();
            let len = blocked_len(2, 19, positions);
            let to = Encodings::new(&[-0.25], &[1.5], 255.0).unwrap();
            for kind in [PoolingKind::Average, PoolingKind::AverageWithPadding] {
                let mut of_one_thread: (Vec<u32>, Vec<u8>) = Default::default();
                for (isa, threads) in Isa::available().flat_map(|isa| [(isa, 1), (isa, 2)]) {
                    let (mut values, mut made) = (vec![0.0; len], vec![0; len]);
                    let run = |output: QuantizedOutput<'_>| {
                        in_pool(threads, || blocked_average_codes(isa, kind, 19, &g, &FROM, &codes, output)).unwrap();
                    };
                    run(QuantizedOutput::Values(&mut values));
                    run(QuantizedOutput::Codes(&mut made, &to));
                    for (index, (value, code)) in values.iter().zip(&made).enumerate() {
                        let (at, codes) = window_of(&g, &codes, index);
                        let counted = match kind {
                            PoolingKind::Average => codes.len(),
                            _ => (0..3).map(|axis| g.window(axis, at[axis]).2).product(),
                        };
                        let sum: f64 = codes.iter().map(|code| f64::from(*code) / 255.0 * 2.5 - 0.5).sum();
                        let expected = sum / counted as f64;
                        assert!((f64::from(*value) - expected).abs() < 1e-6, "{isa} {g:?}: {value} is not {expected}");
                        let expected = (expected.clamp(-0.25, 1.5) + 0.25) / 1.75 * 255.0;
                        assert!((f64::from(*code) - expected).abs() < 0.501, "{isa} {g:?}: {code} is not {expected}");
                    }
                    let all = (values.iter().map(|value| value.to_bits()).collect(), made);
                    if threads == 1 {
                        of_one_thread = all;
                    } else {
                        assert_eq!(of_one_thread, all, "{isa} {g:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn arguments_that_do_not_fit() {
        let g = PoolingGeometry::of_planes(16, [1, 2, 2]);
        let channels = Encodings::new(&[0.0; 16], &[1.0; 16], 255.0).unwrap();
        let whole = Encodings::new(&[0.0], &[1.0], 255.0).unwrap();
        for isa in Isa::available() {
            let run = |kind, channels, g: &PoolingGeometry, input: &[u8], len, to| {
                let mut output = vec![0; len];
                blocked_average_codes(isa, kind, channels, g, &FROM, input, QuantizedOutput::Codes(&mut output, to))
            };
            let average = PoolingKind::Average;
            assert!(run(average, 16, &g, &[7; 64], 16, &whole).is_ok());
            assert!(run(PoolingKind::Max, 16, &g, &[7; 64], 16, &whole).is_err());
            assert!(run(average, 16, &g, &[7; 64], 16, &channels).is_err());
            assert!(run(average, 16, &g, &[7; 63], 16, &whole).is_err());
            assert!(run(average, 16, &g, &[7; 64], 15, &whole).is_err());
            assert!(run(average, 5, &g, &[7; 64], 16, &whole).is_err());
            let many = PoolingGeometry { kernel: [1, 1 << 12, 1 << 12], ..g };
            assert!(run(average, 16, &many, &[7; 64], 16, &whole).is_err());
            let none = PoolingGeometry { stride: [1, 0, 1], ..g };
            assert!(run(average, 16, &none, &[7; 64], 16, &whole).is_err());
            let mut output = vec![0; 15];
            assert!(blocked_max_codes(isa, 16, &g, &[7; 64], &mut output).is_err());
            assert!(blocked_max_codes(isa, 16, &none, &[7; 64], &mut [0; 16]).is_err());
        }
    }
}
