//! Writes contractions of many tensors as contractions of two at a time, and sums what stands in one tensor alone beforehand.
//!
//! Taken together, `bnd,bde,bn->bne` multiplies three numbers for each of all places of `bnde`; two at a time it is a batch
//! of matrix products and one product of elements.

use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::OpVersion;
use ovir_ops::common::reduction::ReductionAttributes;
use ovir_ops::matrix::einsum::{Einsum, EinsumAttributes, Label, Subscript};
use ovir_ops::reduction::reduce_sum::ReduceSum;
use ovir_tensor::ElementType;

use crate::chain::Added;
use crate::trace::Trace;

const EINSUM: OpVersion = OpVersion::new(7, (7, 16), (1, usize::MAX), (1, 1));
const REDUCE_SUM: OpVersion = OpVersion::new(1, (1, 16), (2, 2), (1, 1));

/// The most tensors whose pairs are looked at.
const MOST: usize = 16;

/// What stands for a size that is not known where ways are compared.
const GUESS: f64 = 64.0;

/// Splits all such contractions; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let mut changed = model.clone();
    let mut has_changed = false;
    for (id, node) in model.iter() {
        let Some(einsum) = node.operation.downcast_ref::<Einsum>() else { continue };
        let is_f32 = |source: &Source| validated.inference().get(*source).element_type == ElementType::F32;
        if !node.inputs.iter().all(is_f32) {
            trace.declined(node, || "is not one of f32".to_owned());
            continue;
        }
        if einsum.inputs.len() > MOST {
            trace.declined(node, || format!("contracts more than {MOST} tensors"));
            continue;
        }
        let sizes = Sizes::new(validated, node, einsum);
        let lonely = (0..einsum.inputs.len()).any(|input| !lonely(einsum, input).is_empty());
        if einsum.inputs.len() <= 2 && !lonely {
            trace.declined(node, || "contracts no more than two tensors, neither of which is summed alone".to_owned());
            continue;
        }
        if split(&mut changed, id, einsum, &sizes).is_some() {
            trace.applied(node, || "contracts two tensors at a time".to_owned());
            has_changed = true;
        }
    }
    (has_changed && changed.sort()).then_some(changed)
}

/// The places of the letters of an input that stand nowhere else.
fn lonely(einsum: &Einsum, input: usize) -> Vec<usize> {
    let labels = &einsum.inputs[input].0;
    let is_elsewhere = |label: &Label| {
        let others = einsum.inputs.iter().enumerate().filter(|(other, _)| *other != input).map(|(_, labels)| labels);
        others.chain([&einsum.output]).any(|labels| labels.0.contains(label))
            || labels.iter().filter(|other| *other == label).count() > 1
    };
    let is_lonely = |(_, label): &(usize, &Label)| **label != Label::Ellipsis && !is_elsewhere(label);
    labels.iter().enumerate().filter(is_lonely).map(|(place, _)| place).collect()
}

/// The sizes of labels.
struct Sizes(Vec<(Label, f64)>);

impl Sizes {
    fn new(validated: &Validated, node: &Node, einsum: &Einsum) -> Sizes {
        let mut sizes: Vec<(Label, f64)> = Vec::new();
        for (source, labels) in node.inputs.iter().zip(&einsum.inputs) {
            let dims = validated.inference().get(*source).shape.dims();
            for (place, label) in labels.0.iter().enumerate() {
                // Behind an ellipsis, places do not tell dimensions.
                let is_told = !labels.0[..=place].contains(&Label::Ellipsis);
                let dim = dims.filter(|_| is_told).and_then(|dims| dims.get(place)?.get());
                let size = dim.map_or(GUESS, |size| size as f64);
                match sizes.iter_mut().find(|(other, _)| other == label) {
                    Some((_, known)) => *known = known.max(size),
                    None => sizes.push((*label, size)),
                }
            }
        }
        Sizes(sizes)
    }

    /// The elements of a tensor with these labels.
    fn elements(&self, labels: &[Label]) -> f64 {
        let size = |label: &Label| self.0.iter().find(|(other, _)| other == label).map_or(GUESS, |(_, size)| *size);
        labels.iter().map(size).product()
    }
}

/// Puts a contraction of at most two tensors in the place of one of many; `None` if it cannot be written.
fn split(changed: &mut Model, id: NodeId, einsum: &Einsum, sizes: &Sizes) -> Option<()> {
    let old = changed.nodes[id.index()].clone();
    let name = &old.friendly_name;
    let mut added = Added::new(changed);
    let mut operands: Vec<(Source, Subscript)> = Vec::new();
    for (input, (source, labels)) in old.inputs.iter().zip(&einsum.inputs).enumerate() {
        let (places, mut source, mut labels) = (lonely(einsum, input), *source, labels.clone());
        if !places.is_empty() {
            // Counted from the end, where an ellipsis comes first.
            let from_end = |place: &usize| match labels.0[..*place].contains(&Label::Ellipsis) {
                true => *place as i64 - labels.0.len() as i64,
                false => *place as i64,
            };
            let axes: Vec<i64> = places.iter().map(from_end).collect();
            let axes = added.integers(format!("{name}/axes{input}"), &axes)?;
            let attributes = ReductionAttributes { keep_dims: false };
            let (sum, inputs) = (Arc::new(ReduceSum { attributes }), vec![source, axes]);
            source = added.add(Node::new(format!("{name}/sum{input}"), "ReduceSum", REDUCE_SUM, sum, inputs, 1));
            let mut place = 0..;
            labels.0.retain(|_| !place.next().is_some_and(|place| places.contains(&place)));
        }
        operands.push((source, labels));
    }
    while operands.len() > 2 {
        let (a, b) = best_pair(&operands, &einsum.output, sizes)?;
        let labels = joined(&operands, &einsum.output, a, b);
        // The later one first, so that the place of the other one stays.
        let (second, of_second) = operands.remove(b);
        let (first, of_first) = operands.remove(a);
        let part = format!("{name}/part{}", operands.len());
        let node = contraction(part, vec![first, second], vec![of_first, of_second], labels.clone());
        operands.push((added.add(node), labels));
    }
    let (inputs, labels) = operands.into_iter().unzip();
    let last = contraction(name.clone(), inputs, labels, einsum.output.clone());
    added.put(changed, id, last);
    Some(())
}

/// The two operands whose contraction leaves the least, counted without what they were; of several the first ones.
fn best_pair(operands: &[(Source, Subscript)], output: &Subscript, sizes: &Sizes) -> Option<(usize, usize)> {
    let pairs = (0..operands.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
    let growth = |(a, b): &(usize, usize)| {
        let [left, right] = [*a, *b].map(|operand| sizes.elements(&operands[operand].1.0));
        sizes.elements(&joined(operands, output, *a, *b).0) - left - right
    };
    pairs.min_by(|one, other| growth(one).total_cmp(&growth(other)))
}

/// The labels of the contraction of two operands: what others or the output need, first what both have.
fn joined(operands: &[(Source, Subscript)], output: &Subscript, a: usize, b: usize) -> Subscript {
    let others =
        || operands.iter().enumerate().filter(|(other, _)| *other != a && *other != b).map(|(_, (_, labels))| labels);
    let is_needed = |label: &Label| others().chain([output]).any(|labels| labels.0.contains(label));
    let (left, right) = (&operands[a].1.0, &operands[b].1.0);
    let mut labels: Vec<Label> = Vec::new();
    let both = left.iter().filter(|label| right.contains(label));
    for label in both.chain(left).chain(right) {
        if is_needed(label) && !labels.contains(label) {
            labels.push(*label);
        }
    }
    Subscript(labels)
}

/// A contraction.
fn contraction(name: String, sources: Vec<Source>, inputs: Vec<Subscript>, output: Subscript) -> Node {
    let text = |labels: &Subscript| {
        let letter = |label: &Label| match label {
            Label::Letter(letter) => char::from(*letter).to_string(),
            Label::Ellipsis => "...".to_owned(),
        };
        labels.0.iter().map(letter).collect::<String>()
    };
    let equation = format!("{}->{}", inputs.iter().map(text).collect::<Vec<String>>().join(","), text(&output));
    let einsum = Einsum { attributes: EinsumAttributes { equation }, inputs, output };
    Node::new(name, "Einsum", EINSUM, Arc::new(einsum), sources, 1)
}
