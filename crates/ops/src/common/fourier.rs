//! Discrete Fourier transforms along one axis, and the rules of axes and sizes that they share.

use std::f64::consts::PI;

use ovir_tensor::{Dim, ElementClass, INFINITE, SmallVec, Value};

use super::memory::filled;
use crate::infer::normalize_axis;
use crate::{Blame, EvaluateContext, InferContext, OpError, OpResult};

/// A complex number: real and imaginary part.
pub(crate) type Complex = (f64, f64);

/// Transforms of one length, with their tables.
pub(crate) struct Fourier {
    length: usize,
    /// The chirp of Bluestein's algorithm and the spectrum of its mirror image; empty for powers of two.
    chirp: Vec<Complex>,
    spectrum: Vec<Complex>,
}

impl Fourier {
    /// Transforms of `length`.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub(crate) fn new(length: usize) -> OpResult<Fourier> {
        let mut fourier = Fourier { length, chirp: Vec::new(), spectrum: Vec::new() };
        if length < 2 || length.is_power_of_two() {
            return Ok(fourier);
        }
        let padded = length.saturating_mul(2).checked_next_power_of_two().unwrap_or(usize::MAX);
        fourier.chirp = filled(length)?;
        fourier.spectrum = filled(padded)?;
        for k in 0..length {
            let square = (k as u128 * k as u128 % (2 * length as u128)) as f64;
            let (sin, cos) = (PI * square / length as f64).sin_cos();
            fourier.chirp[k] = (cos, -sin);
            fourier.spectrum[k] = (cos, sin);
            fourier.spectrum[(padded - k) % padded] = (cos, sin);
        }
        radix_2(&mut fourier.spectrum);
        Ok(fourier)
    }

    /// The transform of `line` in place; the inverse is scaled by one over the length.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub(crate) fn run(&self, line: &mut [Complex], inverse: bool) -> OpResult {
        if inverse {
            line.iter_mut().for_each(|v| v.1 = -v.1);
        }
        if self.chirp.is_empty() {
            radix_2(line);
        } else {
            self.bluestein(line)?;
        }
        if inverse {
            let scale = 1.0 / self.length as f64;
            line.iter_mut().for_each(|v| *v = (v.0 * scale, -v.1 * scale));
        }
        Ok(())
    }

    fn bluestein(&self, line: &mut [Complex]) -> OpResult {
        let mut work = filled::<Complex>(self.spectrum.len())?;
        for ((w, v), c) in work.iter_mut().zip(line.iter()).zip(&self.chirp) {
            *w = multiply(*v, *c);
        }
        radix_2(&mut work);
        for (w, s) in work.iter_mut().zip(&self.spectrum) {
            let product = multiply(*w, *s);
            // The conjugate turns the next transform into the inverse one.
            *w = (product.0, -product.1);
        }
        radix_2(&mut work);
        let scale = 1.0 / work.len() as f64;
        for ((v, w), c) in line.iter_mut().zip(&work).zip(&self.chirp) {
            *v = multiply((w.0 * scale, -w.1 * scale), *c);
        }
        Ok(())
    }
}

/// Transforms every line of `values` along `axis`, cut or filled with zeros to `size`; `shape` becomes that of the
/// result.
///
/// # Errors
/// When memory cannot be had.
pub(crate) fn transform_axis(
    values: &[Complex],
    shape: &mut [usize],
    axis: usize,
    size: usize,
    inverse: bool,
) -> OpResult<Vec<Complex>> {
    let before = shape[axis];
    let inner: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    shape[axis] = size;
    let mut result = filled::<Complex>(outer.saturating_mul(size).saturating_mul(inner))?;
    let (fourier, mut line) = (Fourier::new(size)?, filled::<Complex>(size)?);
    for o in 0..outer {
        for i in 0..inner {
            for (k, value) in line.iter_mut().enumerate() {
                *value = if k < before { values[(o * before + k) * inner + i] } else { (0.0, 0.0) };
            }
            fourier.run(&mut line, inverse)?;
            for (k, value) in line.iter().enumerate() {
                result[(o * size + k) * inner + i] = *value;
            }
        }
    }
    Ok(result)
}

/// The pairs of a tensor whose last dimension holds real and imaginary parts.
///
/// # Errors
/// When memory cannot be had.
pub(crate) fn complex_of(values: &[f64]) -> OpResult<Vec<Complex>> {
    let mut pairs = filled::<Complex>(values.len() / 2)?;
    for (pair, value) in pairs.iter_mut().zip(values.chunks_exact(2)) {
        *pair = (value[0], value[1]);
    }
    Ok(pairs)
}

/// Checks the inputs `axes` and `signal_size`, and gives the axes if they are known.
///
/// # Errors
/// Axes out of range or given twice, and sizes that do not match them.
pub(crate) fn infer_axes(context: &InferContext<'_>, rank: usize) -> OpResult<Option<SmallVec<[usize; 8]>>> {
    for port in 1..context.input_count() {
        context.require_class(port, ElementClass::Index)?;
        context.require_rank(port, 1..=1)?;
    }
    if context.input_count() > 2 {
        let (axes, sizes) = (context.shape(1), context.shape(2));
        if !axes.dim(0).compatible(sizes.dim(0)) {
            let message = format!("shape {sizes} has {} sizes for {} axes", sizes.dim(0), axes.dim(0));
            return Err(OpError::shape(Blame::Input(2), message));
        }
    }
    context.integers(1).map(|axes| resolve_axes(&axes, rank)).transpose()
}

/// The axes counted from the front.
///
/// # Errors
/// Axes out of range or given twice.
pub(crate) fn resolve_axes(axes: &[i64], rank: usize) -> OpResult<SmallVec<[usize; 8]>> {
    let mut resolved: SmallVec<[usize; 8]> = SmallVec::new();
    for axis in axes {
        let index = normalize_axis(*axis, rank, Blame::Input(1))?;
        if resolved.contains(&index) {
            return Err(OpError::value(Blame::Input(1), format!("axis {axis} appears twice")));
        }
        resolved.push(index);
    }
    Ok(resolved)
}

/// The size that the signal has along the axis at position `item` of `axes`; `None` where it is the data's own.
///
/// # Errors
/// A size below 1 other than -1.
pub(crate) fn signal_size(context: &InferContext<'_>, item: usize) -> OpResult<SignalSize> {
    if context.input_count() < 3 {
        return Ok(SignalSize::Own);
    }
    let value = context.bounds(2).and_then(|b| b.values.get(item).copied()).unwrap_or(Value::UNKNOWN);
    match value.get() {
        Some(-1) => Ok(SignalSize::Own),
        _ if value.max < 1 && value.max != -1 => Err(wrong_size(item, value.max)),
        _ if value.min > 0 => Ok(SignalSize::Given(value.to_dim())),
        _ => Ok(SignalSize::Given(Dim::interval(0, INFINITE))),
    }
}

/// A signal size that inference sees.
pub(crate) enum SignalSize {
    /// That of the data.
    Own,
    /// Another one.
    Given(Dim),
}

/// The sizes of the input `signal_size`, `None` where they are the data's own.
///
/// # Errors
/// A size below 1 other than -1, or another number of sizes than axes.
pub(crate) fn signal_sizes(context: &EvaluateContext<'_>, axes: usize) -> OpResult<SmallVec<[Option<usize>; 8]>> {
    if context.input_count() < 3 {
        return Ok(SmallVec::from_elem(None, axes));
    }
    let sizes = context.integers(2)?;
    if sizes.len() != axes {
        return Err(OpError::shape(Blame::Input(2), format!("{} sizes are given for {axes} axes", sizes.len())));
    }
    let read = |(i, size): (usize, &i64)| match *size {
        -1 => Ok(None),
        size if size < 1 => Err(wrong_size(i, size)),
        size => Ok(Some(usize::try_from(size).unwrap_or(usize::MAX))),
    };
    sizes.iter().enumerate().map(read).collect()
}

fn wrong_size(item: usize, size: i64) -> OpError {
    let message = format!("signal size {size} at position {item} must be positive, or -1 for that of the data");
    OpError::value(Blame::Input(2), message)
}

fn multiply(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// The transform of a power of two, in place.
fn radix_2(line: &mut [Complex]) {
    let length = line.len();
    if length < 2 {
        return;
    }
    let shift = length.leading_zeros() + 1;
    for i in 0..length {
        let mirrored = i.reverse_bits() >> shift;
        if mirrored > i {
            line.swap(i, mirrored);
        }
    }
    let mut half = 1;
    while half < length {
        let roots: Vec<Complex> = (0..half)
            .map(|k| {
                let (sin, cos) = (PI * k as f64 / half as f64).sin_cos();
                (cos, -sin)
            })
            .collect();
        for block in line.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for ((a, b), root) in low.iter_mut().zip(high).zip(&roots) {
                let product = multiply(*b, *root);
                (*a, *b) = ((a.0 + product.0, a.1 + product.1), (a.0 - product.0, a.1 - product.1));
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_agrees_with_the_definition() {
        for length in 1..40usize {
            let line: Vec<Complex> = (0..length).map(|k| ((k as f64 * 0.7).sin(), (k as f64 * 1.3).cos())).collect();
            let mut fast = line.clone();
            let fourier = Fourier::new(length).unwrap();
            fourier.run(&mut fast, false).unwrap();
            for (k, value) in fast.iter().enumerate() {
                let mut sum = (0.0, 0.0);
                for (j, x) in line.iter().enumerate() {
                    let (sin, cos) = (-2.0 * PI * (j * k % length) as f64 / length as f64).sin_cos();
                    let term = multiply(*x, (cos, sin));
                    sum = (sum.0 + term.0, sum.1 + term.1);
                }
                assert!((sum.0 - value.0).abs() < 1e-11 && (sum.1 - value.1).abs() < 1e-11, "{length}");
            }
            fourier.run(&mut fast, true).unwrap();
            for (a, b) in fast.iter().zip(&line) {
                assert!((a.0 - b.0).abs() < 1e-12 && (a.1 - b.1).abs() < 1e-12);
            }
        }
    }
}
