//! Non-maximum suppression by batch and class: what NonMaxSuppression and NMSRotated share.
//!
//! Inputs: boxes `[batches, boxes, n]`, scores `[batches, classes, boxes]`, the most boxes of a class, the thresholds of
//! overlap and score, and sigma of Soft-NMS. Outputs: `[selected, 3]` of batch, class and box, the same with scores, and
//! the number of selected boxes.

use std::collections::BinaryHeap;

use ovir_tensor::{Bounds, Dim, ElementClass, ElementType, PartialShape, Shape, SmallVec, Value};

use super::boxes::{Corners, Crowd, EVERYWHERE, common_dim};
use super::memory::{narrowed_view, widened_view, write_rounded};
use crate::{Blame, EvaluateContext, InferContext, OpError, OpResult};

/// The numbers that decide.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// The most boxes of a class.
    pub most: usize,
    overlap: f32,
    score: f32,
    sigma: f32,
}

/// A selected box.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selected {
    batch: usize,
    class: usize,
    index: usize,
    score: f32,
}

/// Boxes of a class that may be selected, best first: of equal scores the first box.
#[derive(Debug, Default)]
struct Candidates {
    /// A key for each, of which the greatest is the best: the score in the high half, the box in the low one.
    keys: BinaryHeap<u64>,
    /// How many selected boxes each box was compared with, where scores soften.
    compared: Vec<usize>,
}

/// Checks types and shapes of the inputs, whose boxes have `size` numbers.
///
/// # Errors
/// The rule that they violate.
pub(crate) fn check(context: &InferContext<'_>, size: usize) -> OpResult {
    for (port, class) in [(0, ElementClass::Float), (1, ElementClass::Float), (2, ElementClass::Integer)] {
        context.require_class(port, class)?;
    }
    context.require_same_type(&[0, 1])?;
    context.require_rank(0, 3..=3)?;
    context.require_rank(1, 3..=3)?;
    for port in 2..context.input_count() {
        context.require_one_element(port)?;
        if port > 2 {
            context.require_class(port, ElementClass::Float)?;
        }
    }
    let boxes = context.shape(0);
    if !boxes.dim(2).contains(size) {
        return Err(OpError::shape(Blame::Input(0), format!("the last dimension of shape {boxes} must be {size}")));
    }
    common_dim(context, &[(0, 0), (1, 0)], "batches")?;
    common_dim(context, &[(0, 1), (1, 2)], "boxes")?;
    Ok(())
}

/// The number of boxes of a batch.
pub(crate) fn box_count(context: &InferContext<'_>) -> Dim {
    let (boxes, scores) = (context.shape(0).dim(1), context.shape(1).dim(2));
    boxes.merge(scores).unwrap_or(boxes)
}

/// The most boxes of a class, as far as known; none where the input is absent.
pub(crate) fn most_of_class(context: &InferContext<'_>) -> Dim {
    let given = context.bounds(2).and_then(|b| b.values.first().copied());
    match (context.input_count() > 2, given) {
        (false, _) => Dim::fixed(0),
        (true, Some(value)) => value.to_dim(),
        (true, None) => Dim::DYNAMIC,
    }
}

/// The smaller of two sizes.
pub(crate) fn smaller(a: Dim, b: Dim) -> Dim {
    Dim::interval(a.min().min(b.min()), a.max().min(b.max()))
}

/// The most boxes of all batches and classes.
pub(crate) fn most_rows(context: &InferContext<'_>) -> Dim {
    let (boxes, scores) = (context.shape(0), context.shape(1));
    let batches = boxes.dim(0).merge(scores.dim(0)).unwrap_or(boxes.dim(0));
    smaller(box_count(context), most_of_class(context)) * batches * scores.dim(1)
}

/// Says the three outputs, as long as there are selected boxes. Scores have the type of the threshold of overlap.
pub(crate) fn set_outputs(context: &mut InferContext<'_>, output_type: ElementType) {
    let rows = context.new_dim(0, most_rows(context).max());
    let score_type = if context.input_count() > 3 { context.element_type(3) } else { ElementType::F32 };
    let shape = PartialShape::from_dims([rows, Dim::fixed(3)]);
    context.set_output(0, output_type, shape.clone());
    context.set_output(1, score_type, shape);
    context.set_output(2, output_type, PartialShape::from([1]));
    let count = Value { min: rows.min(), max: rows.max(), symbol: rows.symbol() };
    context.set_bounds(2, Bounds::vector([count]));
}

impl Rule {
    /// The numbers that the inputs give; 0 where they are absent.
    ///
    /// # Errors
    /// When an input has another number of elements than one.
    pub(crate) fn new(context: &EvaluateContext<'_>) -> OpResult<Rule> {
        let most = match context.input_count() {
            0..3 => 0,
            _ => usize::try_from(context.integer(2)?).unwrap_or(0),
        };
        Ok(Rule { most, overlap: number(context, 3)?, score: number(context, 4)?, sigma: number(context, 5)? })
    }
}

/// The selected boxes, batch by batch and class by class, best first. `shape` reads a box of `size` numbers; outside of its
/// `corners` a box overlaps nothing. If it is `upright`, its overlap is that of [`Crowd::any_over`].
///
/// # Errors
/// When memory cannot be had.
pub(crate) fn select<B: Copy>(
    context: &mut EvaluateContext<'_>,
    (size, upright): (usize, bool),
    shape: impl Fn(&[f32]) -> B,
    corners: impl Fn(&B) -> Corners,
    overlap: impl Fn(&B, &B) -> f32,
) -> OpResult<Vec<Selected>> {
    let (boxes_shape, scores_shape) = (context.input(0)?.shape(), context.input(1)?.shape());
    let (batches, count, classes) = (boxes_shape[0], boxes_shape[1], scores_shape[1]);
    if u32::try_from(count).is_err() {
        return Err(OpError::shape(Blame::Input(0), format!("{count} boxes are too many")));
    }
    let (boxes, scores) = (narrowed_view(context.input(0)?)?, narrowed_view(context.input(1)?)?);
    let rule = Rule::new(context)?;
    let mut selected = Vec::new();
    let mut candidates = Candidates::default();
    for batch in 0..batches {
        let shapes: Vec<B> = boxes[batch * count * size..][..count * size].chunks_exact(size).map(&shape).collect();
        for class in 0..classes {
            let scores = &scores[(batch * classes + class) * count..][..count];
            candidates.fill(scores, &rule);
            let of_class = select_of_class(&mut candidates, (&shapes, upright), &rule, &corners, &overlap);
            selected.extend(of_class.iter().map(|&(index, score)| Selected { batch, class, index, score }));
            context.environment().poll()?;
        }
    }
    Ok(selected)
}

/// Sorts across batches and classes. Of equal scores the lower batch, class and box stay in front.
pub(crate) fn sort_by_score(selected: &mut [Selected]) {
    let key = |s: &Selected| (s.batch, s.class, s.index);
    selected.sort_by(|a, b| b.score.total_cmp(&a.score).then(key(a).cmp(&key(b))));
}

/// Writes so many rows: surplus boxes are cut off, missing ones are -1.
///
/// # Errors
/// When memory cannot be had.
pub(crate) fn write(context: &mut EvaluateContext<'_>, selected: &[Selected], rows: usize) -> OpResult {
    let taken = &selected[..rows.min(selected.len())];
    let shape = Shape::from([rows, 3]);
    let mut indices: SmallVec<[f64; 8]> = SmallVec::new();
    indices.extend(taken.iter().flat_map(|s| [s.batch as f64, s.class as f64, s.index as f64]));
    let target = context.output(0, &shape)?;
    indices.resize(target.elements(), -1.0);
    write_rounded(target, &indices)?;
    if context.output_count() > 1 {
        let scores: Vec<f64> =
            taken.iter().flat_map(|s| [s.batch as f64, s.class as f64, f64::from(s.score)]).collect();
        write_rounded(context.output(1, &shape)?, &scores)?;
    }
    if context.output_count() > 2 {
        write_rounded(context.output(2, &Shape::from([1]))?, &[taken.len() as f64])?;
    }
    Ok(())
}

fn number(context: &EvaluateContext<'_>, port: usize) -> OpResult<f32> {
    if port >= context.input_count() {
        return Ok(0.0);
    }
    Ok(widened_view(context.input(port)?)?.first().map_or(0.0, |v| *v as f32))
}

/// A number that grows as the score does.
fn rising(score: f32) -> u32 {
    let bits = score.to_bits();
    bits ^ (((bits as i32 >> 31) as u32) | 0x8000_0000)
}

impl Candidates {
    /// Takes the boxes whose scores are above the threshold.
    fn fill(&mut self, scores: &[f32], rule: &Rule) {
        let mut keys = std::mem::take(&mut self.keys).into_vec();
        keys.clear();
        keys.resize(scores.len(), 0);
        let mut count = 0;
        for (index, score) in scores.iter().enumerate() {
            // Without a branch, which nobody could foresee.
            keys[count] = Self::key(*score, index);
            count += usize::from(*score > rule.score);
        }
        keys.truncate(count);
        self.keys = keys.into();
        self.compared.clear();
        if rule.sigma > 0.0 {
            self.compared.resize(scores.len(), 0);
        }
    }

    fn key(score: f32, index: usize) -> u64 {
        (u64::from(rising(score)) << 32) | u64::from(!(index as u32))
    }

    fn push(&mut self, index: usize, score: f32) {
        self.keys.push(Self::key(score, index));
    }

    /// Takes the best one and its score.
    fn pop(&mut self) -> Option<(usize, f32)> {
        let key = self.keys.pop()?;
        let rising = (key >> 32) as u32;
        // What `rising` did, undone: numbers without a sign have the highest bit set now.
        let bits = rising ^ (((!rising as i32 >> 31) as u32) | 0x8000_0000);
        Some((!(key as u32) as usize, f32::from_bits(bits)))
    }
}

/// The chosen boxes of one class of one batch and their scores, best first.
fn select_of_class<B>(
    candidates: &mut Candidates,
    (shapes, upright): (&[B], bool),
    rule: &Rule,
    corners: impl Fn(&B) -> Corners,
    overlap: impl Fn(&B, &B) -> f32,
) -> Vec<(usize, f32)> {
    let mut selected: Vec<(usize, f32)> = Vec::new();
    let mut crowd = Crowd::default();
    let is_soft = rule.sigma > 0.0;
    let steepness = -0.5 / rule.sigma;
    while selected.len() < rule.most {
        let Some((index, before)) = candidates.pop() else { break };
        let shape = &shapes[index];
        if !is_soft {
            // Below zero, boxes that do not touch suppress each other.
            let sides = if rule.overlap < 0.0 { EVERYWHERE } else { corners(shape) };
            let is_over = |other: usize| overlap(shape, &shapes[selected[other].0]) > rule.overlap;
            let is_left_out = match upright && rule.overlap >= 0.0 {
                true => crowd.any_over(&sides, rule.overlap),
                false => crowd.any_touching(&sides, is_over),
            };
            if !is_left_out {
                selected.push((index, before));
                crowd.push(sides);
            }
            continue;
        }
        let mut score = before;
        for (other, _) in selected[candidates.compared[index]..].iter().rev() {
            let overlap = overlap(shape, &shapes[*other]);
            // The factor of no overlap is 1, and most boxes have none.
            if overlap != 0.0 || steepness.is_infinite() {
                score *= (steepness * overlap * overlap).exp();
            }
            if score <= rule.score {
                break;
            }
        }
        candidates.compared[index] = selected.len();
        if score <= rule.score {
            continue;
        }
        match score.total_cmp(&before).is_eq() {
            true => selected.push((index, score)),
            false => candidates.push(index, score),
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn candidates_come_by_score_and_then_by_box() {
        let scores = [0.5f32, -0.0, 2.0, f32::NAN, 0.5, -3.0, f32::INFINITY, 0.0, 1e-45, -1e-45, f32::MAX];
        let rule = Rule { most: 9, overlap: 0.5, score: -3.5, sigma: 0.5 };
        let mut expected: Vec<usize> = (0..scores.len()).filter(|i| scores[*i] > rule.score).collect();
        expected.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        let mut candidates = Candidates::default();
        for _ in 0..2 {
            candidates.fill(&scores, &rule);
            candidates.push(3, f32::NAN);
            assert_eq!(candidates.pop().map(|(index, score)| (index, score.is_nan())), Some((3, true)));
            let mut order = Vec::new();
            while let Some((index, score)) = candidates.pop() {
                assert_eq!(score.to_bits(), scores[index].to_bits());
                order.push(index);
            }
            assert_eq!(order, expected);
        }
    }
}
