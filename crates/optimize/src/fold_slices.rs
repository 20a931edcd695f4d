//! Folds Slices into the padding of the convolutions before them.
//!
//! Causal convolutions are written as ones that are padded at both ends of their axis, and a Slice that takes the surplus at
//! one end away. Without that padding nothing is computed in vain, and nothing is copied.

use std::collections::HashSet;
use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::Operation;
use ovir_ops::common::convolution::ConvolutionAttributes;
use ovir_ops::common::window::AutoPad;
use ovir_tensor::Dim;

use crate::chain::{Uses, convolution_attributes, convolution_with, remove};
use crate::trace::{Trace, named};

/// Layers between the convolution and the Slice that work element by element, if their other operand is the same along the
/// axes that are cut.
const BETWEEN: &[&str] = &["Add", "Multiply", "ReLU", "Subtract"];

/// Folds all such Slices; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut removed: HashSet<NodeId> = HashSet::new();
    for (id, node) in model.iter().filter(|(_, node)| node.is("Slice")) {
        let folded = match fold(validated, &uses, id) {
            Ok(folded) => folded,
            Err(reason) => {
                trace.declined(node, || reason.to_owned());
                continue;
            }
        };
        trace.applied(node, || format!("goes into the pads of {}", named(model.node(folded.convolution))));
        changed.nodes[folded.convolution.index()].operation = folded.operation;
        for layer in folded.chain {
            if let Some(location) = &mut changed.nodes[layer.index()].location {
                // Its ports declare what was not cut.
                location.outputs.clear();
                location.inputs.clear();
            }
        }
        for reader in uses.of(id) {
            for source in changed.nodes[reader.index()].inputs.iter_mut().filter(|source| source.node == id) {
                *source = folded.last;
            }
        }
        removed.insert(id);
    }
    if removed.is_empty() {
        return None;
    }
    remove(&mut changed, &removed);
    Some(changed)
}

/// A Slice that goes into a convolution.
struct Folded {
    convolution: NodeId,
    /// The convolution without the padding that the Slice takes away.
    operation: Arc<dyn Operation>,
    /// The layers from the convolution to the one that the Slice reads.
    chain: Vec<NodeId>,
    /// What the Slice reads.
    last: Source,
}

/// The convolution that a Slice goes into, or why it does not.
fn fold(validated: &Validated, uses: &Uses, id: NodeId) -> Result<Folded, &'static str> {
    let model = validated.model();
    let node = model.node(id);
    if uses.of(id).iter().any(|reader| model.node(*reader).is("Result")) {
        return Err("is an output of the model");
    }
    let last = *node.inputs.first().ok_or("has no data")?;
    let dims = validated.inference().get(last).shape.dims().ok_or("takes a part of an unknown rank")?;
    let cuts =
        cuts(validated, node, dims).ok_or("takes a part whose ends are not known, or not every element of it")?;
    let mut chain = Vec::new();
    let mut source = last;
    loop {
        if source.port != 0 || uses.only_reader(source.node).is_none() {
            return Err("does not alone read a convolution");
        }
        chain.push(source.node);
        let layer = model.node(source.node);
        if layer.is("Convolution") || layer.is("GroupConvolution") {
            break;
        }
        if !BETWEEN.contains(&&*layer.type_name) {
            return Err("does not read a convolution");
        }
        let is_other = |source: &Source| uses.is_constant(source.node) && is_same_along(validated, *source, &cuts);
        source = match layer.inputs[..] {
            [data] => data,
            [data, other] if is_other(&other) => data,
            [other, data] if is_other(&other) => data,
            _ => return Err("reads a layer that is not the same along the axes it cuts"),
        };
    }
    let convolution = source.node;
    let layer = model.node(convolution);
    let attributes = convolution_attributes(layer).ok_or("does not read a convolution")?;
    let operation = convolution_with(layer, narrowed(validated, layer, attributes, &cuts)?);
    Ok(Folded { convolution, operation, chain, last })
}

/// How many elements a Slice takes away before and after each axis.
fn cuts(validated: &Validated, node: &Node, dims: &[Dim]) -> Option<Vec<[i64; 2]>> {
    let integers = |port: usize| validated.inference().get(*node.inputs.get(port)?).integers();
    let (starts, stops, steps) = (integers(1)?, integers(2)?, integers(3)?);
    let axes = match node.inputs.len() {
        5 => integers(4)?,
        _ => (0..starts.len() as i64).collect(),
    };
    let mut cuts = vec![[0, 0]; dims.len()];
    for (((start, stop), step), axis) in starts.iter().zip(&stops).zip(&steps).zip(&axes) {
        let axis = usize::try_from(if *axis < 0 { *axis + dims.len() as i64 } else { *axis }).ok()?;
        let size = dims.get(axis)?.get().and_then(|size| i64::try_from(size).ok());
        let begin = match (*start, size) {
            (0.., _) => *start,
            (_, Some(size)) => (*start + size).max(0),
            _ => return None,
        };
        let end = match (*stop, size) {
            (stop, _) if stop >= i64::from(i32::MAX) => 0,
            (stop @ ..0, _) => stop.checked_neg()?,
            (stop, Some(size)) => (size - stop).max(0),
            _ => return None,
        };
        // What is cut at both ends of an axis shorter than that is another matter.
        let fits = *step == 1 && begin < 1 << 20 && end < 1 << 20 && size.is_none_or(|size| begin + end < size);
        cuts[axis] = fits.then_some([begin, end])?;
    }
    Some(cuts)
}

/// Whether an operand is the same along all axes that are cut, of which the last ones are its own.
fn is_same_along(validated: &Validated, source: Source, cuts: &[[i64; 2]]) -> bool {
    let Some(dims) = validated.inference().get(source).shape.dims() else { return false };
    let pairs = dims.iter().rev().zip(cuts.iter().rev());
    dims.len() <= cuts.len() && pairs.into_iter().all(|(dim, cut)| *cut == [0, 0] || dim.get() == Some(1))
}

/// A convolution without the padding at whose place everything is cut away.
fn narrowed(
    validated: &Validated,
    layer: &Node,
    attributes: &ConvolutionAttributes,
    cuts: &[[i64; 2]],
) -> Result<ConvolutionAttributes, &'static str> {
    let ([[0, 0], [0, 0], spatial @ ..], AutoPad::Explicit) = (cuts, attributes.auto_pad) else {
        return Err("cuts more than the spatial axes of a convolution that states its pads");
    };
    let shape = |port: usize| validated.inference().get(layer.inputs[port]).shape.dims();
    let (data, filter) = (shape(0).ok_or("data of unknown rank")?, shape(1).ok_or("a filter of unknown rank")?);
    let kernel = &filter[filter.len() - spatial.len().min(filter.len())..];
    let mut narrowed = attributes.clone();
    for (axis, [begin, end]) in spatial.iter().enumerate().filter(|(_, cut)| **cut != [0, 0]) {
        let (Some(stride), Some(dilation)) = (attributes.strides.get(axis), attributes.dilations.get(axis)) else {
            return Err("cuts more axes than the convolution has");
        };
        let (Some(before), Some(after)) = (narrowed.pads_begin.get_mut(axis), narrowed.pads_end.get_mut(axis)) else {
            return Err("cuts what is no padding");
        };
        *before = before.saturating_sub(begin.saturating_mul(*stride));
        *after = after.saturating_sub(end.saturating_mul(*stride));
        let taps = kernel.get(axis).and_then(|dim| dim.get()).ok_or("has a filter of unknown size")? as i64;
        // An axis of unknown size may be shorter than what is cut of it, unless the padding that stays makes up for the taps.
        let is_enough = data.get(axis + 2).is_some_and(|dim| dim.get().is_some())
            || before.saturating_add(*after) >= dilation.saturating_mul(taps - 1);
        if *before < 0 || *after < 0 || !is_enough {
            return Err("cuts more than the padding");
        }
    }
    Ok(narrowed)
}
