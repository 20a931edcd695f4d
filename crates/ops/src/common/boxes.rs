//! Boxes: sizes that inputs share, decoding, overlap and suppression.
//!
//! A box is given by its corners x1, y1, x2, y2. `extra` is what its width has beyond the difference of its coordinates:
//! 1 where coordinates count pixels, 0 where they are places. All is computed in f32.

use std::cmp::Ordering;

use ovir_tensor::Dim;

use crate::{Blame, InferContext, OpError, OpResult};

/// x1, y1, x2, y2.
pub(crate) type Corners = [f32; 4];

/// `log(1000 / 16)`: the largest logarithm of the growth of an anchor.
pub(crate) const MAX_GROWTH: f32 = 4.135_166_6;

/// What a chosen box does to those behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suppression {
    /// How many boxes are chosen at most.
    pub most: usize,
    /// The overlap above which a box is left out.
    pub threshold: f32,
    /// Below 1, what every choice multiplies the threshold with as long as it is above 0.5.
    pub eta: f32,
}

/// A dimension that several inputs have in common, each given by port and axis.
///
/// # Errors
/// A shape mismatch that names both shapes and both sizes of `what`.
pub(crate) fn common_dim(context: &InferContext<'_>, places: &[(usize, usize)], what: &str) -> OpResult<Dim> {
    let mut known = Dim::DYNAMIC;
    for (i, &(port, axis)) in places.iter().enumerate() {
        let dim = context.shape(port).dim(axis);
        for &(other, other_axis) in &places[..i] {
            let other_dim = context.shape(other).dim(other_axis);
            if !dim.compatible(other_dim) {
                let (shape, other_shape) = (context.shape(port), context.shape(other));
                let message =
                    format!("shape {shape} has {dim} {what}, but shape {other_shape} of input {other} has {other_dim}");
                return Err(OpError::shape(Blame::Input(port), message));
            }
        }
        known = if i == 0 { dim } else { known.merge(dim).unwrap_or(known) };
    }
    Ok(known)
}

/// Checks the size of the last axis of input `port`, which has rank `axis + 1` where its rank is known.
///
/// # Errors
/// A shape mismatch that names the shape and the size.
pub(crate) fn require_last(context: &InferContext<'_>, port: usize, axis: usize, size: usize) -> OpResult {
    context.require_rank(port, axis + 1..=axis + 1)?;
    let shape = context.shape(port);
    if shape.dim(axis).contains(size) {
        return Ok(());
    }
    Err(OpError::shape(Blame::Input(port), format!("the last dimension of shape {shape} must be {size}")))
}

/// The box that deltas of centre and logarithms of sizes mean beside an anchor. Logarithms are cut to `most`.
pub(crate) fn refine(anchor: Corners, deltas: [f32; 4], extra: f32, most: f32) -> Corners {
    let (width, height) = (anchor[2] - anchor[0] + extra, anchor[3] - anchor[1] + extra);
    let x = deltas[0] * width + (anchor[0] + 0.5 * width);
    let y = deltas[1] * height + (anchor[1] + 0.5 * height);
    // A comparison with NaN is false, so NaN passes.
    let growth = |delta: f32| libm::expf(if delta > most { most } else { delta });
    let (half_width, half_height) = (0.5 * (growth(deltas[2]) * width), 0.5 * (growth(deltas[3]) * height));
    [x - half_width, y - half_height, x + half_width - extra, y + half_height - extra]
}

/// Intersection over union; boxes that do not touch have none.
pub(crate) fn overlap(a: &Corners, b: &Corners, extra: f32) -> f32 {
    let (width, height) = (a[2].min(b[2]) - a[0].max(b[0]), a[3].min(b[3]) - a[1].max(b[1]));
    if !(width >= 0.0 && height >= 0.0) {
        return 0.0;
    }
    let area = |c: &Corners| (c[2] - c[0] + extra) * (c[3] - c[1] + extra);
    let common = (width + extra) * (height + extra);
    common / (area(a) + area(b) - common)
}

/// The boxes that are chosen from `order`, best first.
pub(crate) fn suppress(order: &[usize], rule: Suppression, overlap: impl Fn(usize, usize) -> f32) -> Vec<usize> {
    let mut threshold = rule.threshold;
    let mut chosen: Vec<usize> = Vec::new();
    for &candidate in order {
        if chosen.len() >= rule.most {
            break;
        }
        if chosen.iter().rev().any(|other| overlap(candidate, *other) > threshold) {
            continue;
        }
        chosen.push(candidate);
        if rule.eta < 1.0 && threshold > 0.5 {
            threshold *= rule.eta;
        }
    }
    chosen
}

/// The order of scores, greatest first; both zeros are equal.
pub(crate) fn descending(a: f32, b: f32) -> Ordering {
    (b + 0.0).total_cmp(&(a + 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn overlaps_count_pixels_or_places() {
        let (a, b) = ([0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 2.0, 1.0]);
        assert_eq!(overlap(&a, &b, 0.0), 0.0);
        assert_eq!(overlap(&a, &b, 1.0), 2.0 / 6.0);
        assert_eq!(overlap(&a, &[1.5, 0.0, 2.0, 1.0], 1.0), 0.0);
    }

    #[test]
    fn refined_anchors() {
        assert_eq!(refine([0.0, 0.0, 4.0, 2.0], [0.0; 4], 0.0, 1.0), [0.0, 0.0, 4.0, 2.0]);
        assert_eq!(refine([0.0, 0.0, 3.0, 1.0], [0.25, 0.5, 0.0, 0.0], 1.0, 1.0), [1.0, 1.0, 4.0, 2.0]);
        assert_eq!(refine([0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 9.0, 9.0], 0.0, 0.0), [0.0, 0.0, 2.0, 2.0]);
        assert!(refine([0.0, 0.0, 2.0, 2.0], [0.0, 0.0, f32::NAN, 0.0], 0.0, 1.0)[0].is_nan());
        assert_eq!(MAX_GROWTH, (1000.0f64 / 16.0).ln() as f32);
    }

    #[test]
    fn thresholds_that_adapt() {
        let overlaps = |a: usize, b: usize| if a.abs_diff(b) == 1 { 0.7 } else { 0.0 };
        let rule = Suppression { most: 9, threshold: 0.8, eta: 1.0 };
        assert_eq!(suppress(&[0, 1, 2], rule, overlaps), [0, 1, 2]);
        assert_eq!(suppress(&[0, 1, 2], Suppression { eta: 0.8, ..rule }, overlaps), [0, 2]);
        assert_eq!(suppress(&[2, 1, 0], Suppression { most: 1, ..rule }, overlaps), [2]);
    }
}
