//! What the normalisations share: softmax, mean and variance of slices.

use ovir_tensor::dispatch;

use super::axes::Slices;
use super::elementwise::unsupported;
use super::number::Number;
use crate::{EvaluateContext, OpResult};

/// Visits the elements of a slice, each time it is called.
pub(crate) type Elements<'e> = &'e mut dyn FnMut(&mut dyn FnMut(f64));

/// Applies a function to the slices of a floating-point input: it is given an accessor of the slice's elements and
/// returns the function that maps each of them, both in f64. Every result is rounded once.
pub(crate) fn map_slices<F: Fn(f64) -> f64>(
    context: &mut EvaluateContext<'_>,
    axes: &[usize],
    prepare: impl Fn(Elements<'_>, usize) -> F,
) -> OpResult {
    let input = context.input(0)?;
    let slices = Slices::new(input.shape(), axes);
    let length = slices.length();
    let element_type = input.element_type();
    let mut output = context.output(0, input.shape())?;
    if length == 0 {
        return Ok(());
    }
    dispatch!(element_type, T in [float] => {
        let (source, target) = (input.slice::<T>()?, output.slice_mut::<T>()?);
        slices.for_each(|start| {
            let mut elements = |visit: &mut dyn FnMut(f64)| {
                slices.for_each_element(start, |i| visit(Number::to_f64(source[i])));
            };
            let map = prepare(&mut elements, length);
            slices.for_each_element(start, |i| target[i] = T::from_f64(map(Number::to_f64(source[i]))));
        });
        Ok(())
    } else { Err(unsupported(element_type)) })
}

/// The largest element of a slice and the sum of the exponentials of all elements less the largest.
pub(crate) fn softmax_terms(elements: Elements<'_>) -> (f64, f64) {
    let mut largest = f64::NEG_INFINITY;
    elements(&mut |x| largest = if x > largest || x.is_nan() { x } else { largest });
    let mut sum = 0.0;
    elements(&mut |x| sum += (x - largest).exp());
    (largest, sum)
}

/// The mean and the variance (of the whole, not of a sample) of the elements of a slice.
pub(crate) fn mean_and_variance(elements: Elements<'_>, length: usize) -> (f64, f64) {
    let count = length as f64;
    let mut sum = 0.0;
    elements(&mut |x| sum += x);
    let mean = sum / count;
    let mut squares = 0.0;
    elements(&mut |x| squares += (x - mean) * (x - mean));
    (mean, squares / count)
}
