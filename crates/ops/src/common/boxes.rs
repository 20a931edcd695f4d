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

/// Corners that touch all others.
pub(crate) const EVERYWHERE: Corners = [f32::NEG_INFINITY, f32::NEG_INFINITY, f32::INFINITY, f32::INFINITY];

/// Boxes of a [`Crowd`] that are held against another one together.
const GROUP: usize = 16;

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

/// Boxes that were chosen, held against a further one many at a time: most of them lie elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    len: usize,
    /// Left, top, right and bottom sides, and areas. Boxes that are not there yet touch nothing.
    groups: Vec<Group>,
}

/// Some boxes by their left, top, right and bottom sides and their areas.
type Group = [[f32; GROUP]; 5];

/// What stands for a box that is not there.
const NOWHERE: [f32; 5] = [f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, 1.0];

impl Crowd {
    /// Adds a box; one whose corners may be anything touches all others.
    pub(crate) fn push(&mut self, corners: Corners) {
        if self.len.is_multiple_of(GROUP) {
            self.groups.push(NOWHERE.map(|value| [value; GROUP]));
        }
        if let Some(group) = self.groups.last_mut() {
            for (values, value) in group.iter_mut().zip(corners.into_iter().chain([area(&corners)])) {
                values[self.len % GROUP] = value;
            }
        }
        self.len += 1;
    }

    /// Whether one of the boxes that touch this one, by their numbers, is what is looked for. A box with NaN touches none.
    pub(crate) fn any_touching(&self, corners: &Corners, is_it: impl Fn(usize) -> bool) -> bool {
        self.groups.iter().enumerate().rev().any(|(number, group)| {
            touches(group, corners) && (number * GROUP..self.len.min((number + 1) * GROUP)).rev().any(&is_it)
        })
    }
}

impl Crowd {
    /// Whether a box and one of these have an intersection over union above a threshold of at least 0. Boxes that do not
    /// touch and those without an area have none.
    pub(crate) fn any_over(&self, corners: &Corners, threshold: f32) -> bool {
        let any = |group: &&Group| may_overlap(group, corners, threshold);
        self.groups.iter().rev().filter(any).any(|group| overlaps(group, corners, threshold))
    }
}

/// The area of a box.
fn area(corners: &Corners) -> f32 {
    (corners[3] - corners[1]) * (corners[2] - corners[0])
}

/// Whether the overlap of a box and one of a group may be above a threshold of at least 0: without divisions, which take
/// most of the time, and for a little more than what rounding may add. Where a side is NaN it may.
fn may_overlap([left, top, right, bottom, areas]: &Group, corners: &Corners, threshold: f32) -> bool {
    // With NaN they are the second one.
    let less = |a: f32, b: f32| if a < b { a } else { b };
    let greater = |a: f32, b: f32| if a > b { a } else { b };
    // A common part is below its part of the joined area, which is the sum of both less the common part, if it is below so much of
    // the sum. The least normal numbers are less than what is taken away.
    let factor = threshold * (1.0 - 1e-5);
    let of_sum = factor / (1.0 + factor);
    let own = area(corners) * of_sum - 1e-37;
    let mut any = false;
    for lane in 0..GROUP {
        let height = less(corners[3], bottom[lane]) - greater(corners[1], top[lane]);
        let width = less(corners[2], right[lane]) - greater(corners[0], left[lane]);
        // Where one of them is at least 0, boxes that do not touch have no common part above 0.
        let is_below = greater(0.0, height) * width < areas[lane] * of_sum + own;
        any |= !is_below;
    }
    any
}

/// Whether the overlap of a box and one of a group is above a threshold of at least 0.
fn overlaps([left, top, right, bottom, areas]: &Group, corners: &Corners, threshold: f32) -> bool {
    let area = area(corners);
    let mut any = false;
    for lane in 0..GROUP {
        // Without branches, so that it becomes a few vector instructions.
        let height = corners[3].min(bottom[lane]) - corners[1].max(top[lane]);
        let width = corners[2].min(right[lane]) - corners[0].max(left[lane]);
        let other = areas[lane];
        let common = height * width;
        let has_none = (height <= 0.0) | (width <= 0.0) | (area <= 0.0) | (other <= 0.0);
        any |= !has_none & (common / (area + other - common) > threshold);
    }
    any
}

/// Whether a box touches one of a group.
fn touches([left, top, right, bottom, _]: &Group, corners: &Corners) -> bool {
    let mut any = false;
    for lane in 0..GROUP {
        // Without branches, so that it becomes a few vector instructions.
        any |= (left[lane] <= corners[2])
            & (top[lane] <= corners[3])
            & (right[lane] >= corners[0])
            & (bottom[lane] >= corners[1]);
    }
    any
}

/// The boxes that are chosen from `order`, best first. Those whose sides do not touch overlap by nothing; NaN is no overlap.
pub(crate) fn suppress(
    order: &[usize],
    rule: Suppression,
    sides: impl Fn(usize) -> Corners,
    overlap: impl Fn(usize, usize) -> f32,
) -> Vec<usize> {
    let mut threshold = rule.threshold;
    let mut chosen: Vec<usize> = Vec::new();
    let mut crowd = Crowd::default();
    for &candidate in order {
        if chosen.len() >= rule.most {
            break;
        }
        // Below zero, boxes that do not touch suppress each other.
        let sides = if threshold < 0.0 { EVERYWHERE } else { sides(candidate) };
        if crowd.any_touching(&sides, |other| overlap(candidate, chosen[other]) > threshold) {
            continue;
        }
        chosen.push(candidate);
        crowd.push(sides);
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
        let corners = |i: usize| [i as f32, 0.0, i as f32 + 1.5, 1.0];
        let overlaps = |a: usize, b: usize| if a.abs_diff(b) == 1 { 0.7 } else { 0.0 };
        let rule = Suppression { most: 9, threshold: 0.8, eta: 1.0 };
        assert_eq!(suppress(&[0, 1, 2], rule, corners, overlaps), [0, 1, 2]);
        assert_eq!(suppress(&[0, 1, 2], Suppression { eta: 0.8, ..rule }, corners, overlaps), [0, 2]);
        assert_eq!(suppress(&[2, 1, 0], Suppression { most: 1, ..rule }, corners, overlaps), [2]);
    }

    #[test]
    fn only_boxes_that_touch_are_asked() {
        let mut random = 7u32;
        let mut number = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 20) as f32 / 100.0
        };
        let mut boxes: Vec<Corners> = (0..200)
            .map(|_| {
                let (x, y) = (number(), number());
                [x, y, x + number() / 4.0, y + number() / 4.0]
            })
            .collect();
        boxes[20][1] = f32::NAN;
        boxes[21] = [f32::NAN; 4];
        boxes[22] = [5.0, 5.0, 2.0, 2.0];
        boxes[23] = EVERYWHERE;
        let order: Vec<usize> = (0..boxes.len()).collect();
        for (extra, threshold) in [(0.0, 0.0), (0.0, 0.3), (1.0, 0.1), (0.0, -0.5), (1.0, f32::NAN)] {
            let mut expected: Vec<usize> = Vec::new();
            for i in &order {
                if !expected.iter().any(|j| overlap(&boxes[*i], &boxes[*j], extra) > threshold) {
                    expected.push(*i);
                }
            }
            let rule = Suppression { most: usize::MAX, threshold, eta: 1.0 };
            let chosen = suppress(&order, rule, |i| boxes[i], |a, b| overlap(&boxes[a], &boxes[b], extra));
            assert_eq!(chosen, expected, "{extra} {threshold}");
        }
    }
}
