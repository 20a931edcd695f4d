//! Non-maximum suppression by batch and class: what NonMaxSuppression and NMSRotated share.
//!
//! Inputs: boxes `[batches, boxes, n]`, scores `[batches, classes, boxes]`, the most boxes of a class, the thresholds of
//! overlap and score, and sigma of Soft-NMS. Outputs: `[selected, 3]` of batch, class and box, the same with scores, and
//! the number of selected boxes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use ovir_tensor::{Bounds, Dim, ElementClass, ElementType, PartialShape, Shape, SmallVec, Value};

use super::boxes::{Corners, Crowd, EVERYWHERE, common_dim};
use super::memory::{widened_view, write_rounded};
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

/// A box that may be selected.
#[derive(Debug, Clone, Copy)]
struct Candidate<B> {
    shape: B,
    score: f32,
    index: usize,
    /// The number of selected boxes that it was compared with.
    compared: usize,
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
/// `corners` a box overlaps nothing.
///
/// # Errors
/// When memory cannot be had.
pub(crate) fn select<B: Copy>(
    context: &mut EvaluateContext<'_>,
    size: usize,
    shape: impl Fn(&[f64]) -> B,
    corners: impl Fn(&B) -> Corners,
    overlap: impl Fn(&B, &B) -> f32,
) -> OpResult<Vec<Selected>> {
    let (boxes_shape, scores_shape) = (context.input(0)?.shape(), context.input(1)?.shape());
    let (batches, count, classes) = (boxes_shape[0], boxes_shape[1], scores_shape[1]);
    let (boxes, scores) = (widened_view(context.input(0)?)?, widened_view(context.input(1)?)?);
    let rule = Rule::new(context)?;
    let mut selected = Vec::new();
    for batch in 0..batches {
        let shapes: Vec<B> = boxes[batch * count * size..][..count * size].chunks_exact(size).map(&shape).collect();
        for class in 0..classes {
            let scores = &scores[(batch * classes + class) * count..][..count];
            let of_class = select_of_class(&shapes, scores, &rule, &corners, &overlap);
            selected.extend(of_class.iter().map(|c| Selected { batch, class, index: c.index, score: c.score }));
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

/// The chosen boxes of one class of one batch, best first.
fn select_of_class<B: Copy>(
    shapes: &[B],
    scores: &[f64],
    rule: &Rule,
    corners: impl Fn(&B) -> Corners,
    overlap: impl Fn(&B, &B) -> f32,
) -> Vec<Candidate<B>> {
    let mut queue: BinaryHeap<Candidate<B>> = shapes
        .iter()
        .zip(scores)
        .enumerate()
        .filter(|(_, (_, score))| **score as f32 > rule.score)
        .map(|(index, (shape, score))| Candidate { shape: *shape, score: *score as f32, index, compared: 0 })
        .collect();
    let mut selected: Vec<Candidate<B>> = Vec::new();
    let mut crowd = Crowd::default();
    let is_soft = rule.sigma > 0.0;
    while selected.len() < rule.most {
        let Some(mut next) = queue.pop() else { break };
        if !is_soft {
            // Below zero, boxes that do not touch suppress each other.
            let sides = if rule.overlap < 0.0 { EVERYWHERE } else { corners(&next.shape) };
            let is_over = |other: usize| overlap(&next.shape, &selected[other].shape) > rule.overlap;
            if !crowd.any_touching(&sides, is_over) {
                selected.push(next);
                crowd.push(sides);
            }
            continue;
        }
        let before = next.score;
        for other in selected[next.compared..].iter().rev() {
            let overlap = overlap(&next.shape, &other.shape);
            next.score *= (-0.5 / rule.sigma * overlap * overlap).exp();
            if next.score <= rule.score {
                break;
            }
        }
        next.compared = selected.len();
        if next.score <= rule.score {
            continue;
        }
        match next.score == before {
            true => selected.push(next),
            false => queue.push(next),
        }
    }
    selected
}

impl<B> PartialEq for Candidate<B> {
    fn eq(&self, other: &Candidate<B>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<B> Eq for Candidate<B> {}

impl<B> PartialOrd for Candidate<B> {
    fn partial_cmp(&self, other: &Candidate<B>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<B> Ord for Candidate<B> {
    /// By score; of equal scores the lower index is the greater.
    fn cmp(&self, other: &Candidate<B>) -> Ordering {
        self.score.total_cmp(&other.score).then(other.index.cmp(&self.index))
    }
}
