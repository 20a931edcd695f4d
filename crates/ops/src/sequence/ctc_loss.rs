//! # CTCLoss
//! How unlikely sequences of labels are, summed over all their alignments with a sequence of logits.
//!
//! Specification: `sequence/ctc-loss-4`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | logits | any floating-point type | `[N, T, C]` |
//! | in 1 | logit_length | i32, i64 | `[N]`; at most T |
//! | in 2 | labels | i32, i64 | `[N, T]`; classes but for the blank |
//! | in 3 | label_length | that of `logit_length` | `[N]`; at most `logit_length` |
//! | in 4 | blank_index | that of `labels` | one element; C - 1 if absent |
//! | out 0 | | that of `logits` | `[N]` |
//!
//! Computed in f64 on logarithms, rounded once. Labels that no path spells cost infinity, labels that are empty the path of blanks.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape};

use crate::common::index::Indices;
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of CTCLoss.
pub static CTC_LOSS: OpDef = OpDef {
    type_name: "CTCLoss",
    category: Category::Sequence,
    versions: &[OpVersion::new(4, (4, 16), (4, 5), (1, 1))],
    attributes: CtcLossAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of CTCLoss.
    pub struct CtcLossAttributes {
        /// Whether equal neighbours among the labels are one label.
        preprocess_collapse_repeated: bool = "preprocess_collapse_repeated", default "false";
        /// Whether equal neighbours in a path are one label.
        ctc_merge_repeated: bool = "ctc_merge_repeated", default "true";
        /// Whether each label counts where it stands first only.
        unique: bool = "unique", default "false";
    }
}

/// A CTCLoss layer.
#[derive(Debug)]
pub struct CtcLoss {
    /// The attributes.
    pub attributes: CtcLossAttributes,
}

impl Operation for CtcLoss {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Float)?;
        for port in 1..context.input_count() {
            context.require_class(port, ElementClass::Index)?;
        }
        context.require_same_type(&[1, 3])?;
        for (port, rank) in [3, 1, 2, 1].into_iter().enumerate() {
            context.require_rank(port, rank..=rank)?;
        }
        if context.input_count() > 4 {
            context.require_same_type(&[2, 4])?;
            context.require_one_element(4)?;
        }
        let batch = merged(context, 0, "the batch", &[0, 1, 2, 3])?;
        merged(context, 1, "the length", &[0, 2])?;
        context.set_output(0, element_type, PartialShape::from_dims([batch]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let logits = context.input(0)?;
        let &[batch, steps, classes] = &logits.shape()[..] else {
            return Err(OpError::shape(Blame::Input(0), format!("shape {} must be [N, T, C]", logits.shape())));
        };
        let (labels, lengths) = (Indices::new(context.input(2)?, 2)?, Lengths::new(context, [batch, steps])?);
        let blank = blank_index(context, classes)?;
        let values = widened_view(logits)?;
        let mut losses = filled::<f64>(batch)?;
        for (n, loss) in losses.iter_mut().enumerate() {
            let (logit_length, label_length) = lengths.of(n)?;
            let target = self.target(&labels, n * steps..n * steps + label_length, blank, classes)?;
            let logits = &values[n * steps * classes..][..logit_length * classes];
            *loss = 0.0 - self.likelihood(&log_softmax(logits, classes)?, classes, &target, blank)?;
        }
        write_rounded(context.output(0, &Shape::from([batch]))?, &losses)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(4)
    }
}

impl CtcLoss {
    /// The labels that a path must spell.
    fn target(
        &self,
        labels: &Indices<'_>,
        range: std::ops::Range<usize>,
        blank: usize,
        classes: usize,
    ) -> OpResult<Vec<usize>> {
        let mut target: Vec<usize> = Vec::new();
        let mut seen = if self.attributes.unique { filled::<bool>(classes)? } else { Vec::new() };
        let mut previous = None;
        for position in range {
            let label = labels.get(position);
            let label = usize::try_from(label).ok().filter(|l| *l < classes && *l != blank).ok_or_else(|| {
                let message = format!(
                    "label {label} at row-major position {position} must be in [0, {}] and not the blank, {blank}",
                    classes.saturating_sub(1)
                );
                OpError::value(Blame::Input(2), message)
            })?;
            let is_repeated = previous.replace(label) == Some(label);
            let is_known = self.attributes.unique && std::mem::replace(&mut seen[label], true);
            let is_collapsed = is_repeated && self.attributes.preprocess_collapse_repeated;
            if !is_known && !is_collapsed {
                target.push(label);
            }
        }
        Ok(target)
    }

    /// The logarithm of the summed probabilities of all paths that spell `target`.
    fn likelihood(&self, logits: &[f64], classes: usize, target: &[usize], blank: usize) -> OpResult<f64> {
        // Where repetitions merge, a state is a label or the blank before or after one; otherwise it is the number of
        // labels spelt so far, each by one step.
        let merge = self.attributes.ctc_merge_repeated;
        let states = if merge { 2 * target.len() + 1 } else { target.len() + 1 };
        let mut paths = filled::<f64>(states)?;
        paths.fill(f64::NEG_INFINITY);
        paths[0] = 0.0;
        for step in logits.chunks_exact(classes) {
            for state in (0..states).rev() {
                let before =
                    |distance: usize| if distance <= state { paths[state - distance] } else { f64::NEG_INFINITY };
                paths[state] = if !merge {
                    let spelt = if state > 0 { before(1) + step[target[state - 1]] } else { f64::NEG_INFINITY };
                    log_sum(before(0) + step[blank], spelt)
                } else if state % 2 == 0 {
                    log_sum(before(0), before(1)) + step[blank]
                } else {
                    let label = target[state / 2];
                    let skips = state > 1 && target[state / 2 - 1] != label;
                    let skipped = if skips { before(2) } else { f64::NEG_INFINITY };
                    log_sum(log_sum(before(0), before(1)), skipped) + step[label]
                };
            }
        }
        let last = paths[states - 1];
        Ok(if merge && states > 1 { log_sum(last, paths[states - 2]) } else { last })
    }
}

/// How long each sequence is.
struct Lengths<'a> {
    logits: Indices<'a>,
    labels: Indices<'a>,
    steps: usize,
}

impl<'a> Lengths<'a> {
    fn new(context: &EvaluateContext<'a>, [batch, steps]: [usize; 2]) -> OpResult<Lengths<'a>> {
        for (port, expected) in [(1, Shape::from([batch])), (2, Shape::from([batch, steps])), (3, Shape::from([batch]))]
        {
            let shape = context.input(port)?.shape();
            if *shape != expected {
                return Err(OpError::shape(Blame::Input(port), format!("shape {shape} must be {expected}")));
            }
        }
        let (logits, labels) = (Indices::new(context.input(1)?, 1)?, Indices::new(context.input(3)?, 3)?);
        Ok(Lengths { logits, labels, steps })
    }

    /// The numbers of logits and of labels of a sequence.
    fn of(&self, sequence: usize) -> OpResult<(usize, usize)> {
        let length = |indices: &Indices<'_>, port: usize, most: usize| {
            let length = indices.get(sequence);
            usize::try_from(length).ok().filter(|length| *length <= most).ok_or_else(|| {
                let message = format!("length {length} of sequence {sequence} must be in [0, {most}]");
                OpError::value(Blame::Input(port), message)
            })
        };
        let logits = length(&self.logits, 1, self.steps)?;
        Ok((logits, length(&self.labels, 3, logits)?))
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(CtcLoss { attributes: CtcLossAttributes::read(context.attributes) })
}

/// The size of an axis that several inputs have in common.
fn merged(context: &InferContext<'_>, axis: usize, name: &str, ports: &[usize]) -> OpResult<Dim> {
    let mut merged = Dim::DYNAMIC;
    for &port in ports {
        let shape = context.shape(port);
        let dim = if shape.rank().is_some() { shape.dim(axis) } else { Dim::DYNAMIC };
        merged = merged.merge(dim).ok_or_else(|| {
            let message = format!("shape {shape} makes {name} {dim}, the inputs before it {merged}");
            OpError::shape(Blame::Input(port), message)
        })?;
    }
    Ok(merged)
}

fn blank_index(context: &EvaluateContext<'_>, classes: usize) -> OpResult<usize> {
    if classes == 0 {
        return Err(OpError::shape(Blame::Input(0), "there must be at least one class, for the blank"));
    }
    if context.input_count() < 5 {
        return Ok(classes - 1);
    }
    let index = context.integer(4)?;
    usize::try_from(index).ok().filter(|index| *index < classes).ok_or_else(|| {
        OpError::value(Blame::Input(4), format!("the blank is {index}; it must be in [0, {}]", classes - 1))
    })
}

/// The logarithms of the probabilities of every step.
fn log_softmax(logits: &[f64], classes: usize) -> OpResult<Vec<f64>> {
    let mut result = filled::<f64>(logits.len())?;
    for (step, target) in logits.chunks_exact(classes).zip(result.chunks_exact_mut(classes)) {
        let largest = step.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = step.iter().map(|x| (x - largest).exp()).sum();
        let norm = largest + sum.ln();
        step.iter().zip(target).for_each(|(x, t)| *t = x - norm);
    }
    Ok(result)
}

/// `ln(exp(a) + exp(b))`.
fn log_sum(a: f64, b: f64) -> f64 {
    let (larger, smaller) = if a >= b { (a, b) } else { (b, a) };
    if smaller == f64::NEG_INFINITY { larger } else { larger + (smaller - larger).exp().ln_1p() }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("CTCLoss", "opset4")
    }

    /// The loss of one sequence of equally likely classes of which the last is the blank.
    fn loss(case: &Case, classes: usize, steps: usize, labels: &[i32]) -> f64 {
        let mut padded = labels.to_vec();
        padded.resize(steps, 0);
        let inputs = [
            tensor(&vec![0.5f64; steps * classes], [1, steps, classes]),
            tensor(&[steps as i32], [1]),
            tensor(&padded, [1, steps]),
            tensor(&[labels.len() as i32], [1]),
        ];
        case.run(&inputs).unwrap()[0].slice::<f64>().unwrap()[0]
    }

    fn assert_paths(case: &Case, classes: usize, steps: usize, labels: &[i32], paths: f64) {
        let expected = -(paths / (classes as f64).powi(steps as i32)).ln();
        let actual = loss(case, classes, steps, labels);
        assert!((actual - expected).abs() < 1e-12 || actual == expected, "{labels:?}: {actual}, not {expected}");
    }

    #[test]
    fn example_of_the_specification() {
        assert_eq!(case().infer(&["f32[8,20,128]", "i32[8]", "i32[8,20]", "i32[8]", "i32[]"]), ["f32[8]"]);
    }

    #[test]
    fn paths_are_counted() {
        // Of one label in three steps: a--, -a-, --a, aa-, -aa, aaa.
        assert_paths(&case(), 3, 3, &[0], 6.0);
        assert_paths(&case(), 3, 3, &[], 1.0);
        // ab-, a-b, -ab, aab, abb; equal labels need a blank between them.
        assert_paths(&case(), 3, 3, &[0, 1], 5.0);
        assert_paths(&case(), 3, 3, &[0, 0], 1.0);
        assert_eq!(loss(&case(), 3, 2, &[0, 0]), f64::INFINITY);
        let each = case().attribute("ctc_merge_repeated", "false");
        assert_paths(&each, 3, 3, &[0], 3.0);
        assert_paths(&each, 3, 3, &[0, 0], 3.0);
        let collapsed = case().attribute("preprocess_collapse_repeated", "true");
        assert_paths(&collapsed, 3, 3, &[0, 0], 6.0);
        let unique = case().attribute("unique", "true");
        assert_paths(&unique, 4, 3, &[0, 1, 0], 5.0);
    }

    #[test]
    fn values_are_checked() {
        let run = |lengths: [i64; 2], label: i64, blank: i64| {
            let inputs = [
                tensor(&[0f32; 6], [1, 2, 3]),
                tensor(&[lengths[0]], [1]),
                tensor(&[label, 0], [1, 2]),
                tensor(&[lengths[1]], [1]),
                tensor(&[blank], []),
            ];
            case().run(&inputs).unwrap_err().to_string()
        };
        assert_eq!(run([3, 1], 0, 2), "input 1: length 3 of sequence 0 must be in [0, 2]");
        assert_eq!(run([1, 2], 0, 2), "input 3: length 2 of sequence 0 must be in [0, 1]");
        assert!(run([2, 1], 3, 2).contains("label 3 at row-major position 0 must be in [0, 2]"));
        assert!(run([2, 1], 1, 1).contains("not the blank, 1"));
        assert_eq!(run([2, 1], 0, 3), "input 4: the blank is 3; it must be in [0, 2]");
    }

    #[test]
    fn types_and_shapes_are_checked() {
        let fails = |inputs: &[&str], text: &str| {
            let error = case().infer_error(inputs);
            assert!(error.contains(text), "{error}");
        };
        fails(&["f32[8,20,5]", "i32[7]", "i32[8,20]", "i32[8]"], "makes the batch 7");
        fails(&["f32[8,20,5]", "i32[8]", "i32[8,19]", "i32[8]"], "makes the length 19");
        fails(&["f32[8,20]", "i32[8]", "i32[8,20]", "i32[8]"], "rank 2");
        fails(&["f32[8,20,5]", "i32[8]", "i32[8,20]", "i64[8]"], "differs");
        fails(&["f32[8,20,5]", "i32[8]", "i32[8,20]", "i32[8]", "i64[]"], "differs");
        fails(&["i32[8,20,5]", "i32[8]", "i32[8,20]", "i32[8]"], "floating-point");
        case().assert_monotone(&["f16[8,20,5]", "i64[8]", "i32[8,20]", "i64[8]", "i32[]"]);
    }
}
