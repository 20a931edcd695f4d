//! Folds Pads with zeros into the convolutions that read them.
//!
//! Converters of TensorFlow and TFLite write asymmetric padding as a Pad before a convolution. The kernels clip the taps
//! of a window instead of copying the data into a larger tensor.

use std::collections::HashSet;
use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Validated};
use ovir_ops::Operation;
use ovir_ops::common::convolution::ConvolutionAttributes;
use ovir_ops::common::window::AutoPad;
use ovir_ops::movement::pad::{Pad, PadMode};
use ovir_tensor::ElementType;

use crate::chain::{Uses, convolution_attributes, convolution_with, remove};
use crate::trace::{Trace, all_named, named};

/// Folds all such Pads; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut removed: HashSet<NodeId> = HashSet::new();
    for (id, node) in model.iter() {
        if !node.is("Pad") {
            continue;
        }
        let Some(pads) = spatial_pads(validated, node) else {
            trace.declined(node, || "adds something else than zeros around the spatial axes of f32".to_owned());
            continue;
        };
        let readers = uses.of(id);
        let widen = |reader: &NodeId| widen(model.node(*reader), id, &pads).ok_or(*reader);
        let widened: Vec<Arc<dyn Operation>> = match readers.iter().map(widen).collect() {
            Ok(widened) => widened,
            Err(reader) => {
                let reader = model.node(reader);
                trace.declined(node, || format!("{} is no convolution that can take its pads", named(reader)));
                continue;
            }
        };
        let Some(source) = node.inputs.first().filter(|_| !widened.is_empty()) else { continue };
        trace.applied(node, || format!("its pads go into {}", all_named(readers.iter().map(|id| model.node(*id)))));
        for (reader, operation) in readers.iter().zip(widened) {
            let reader = &mut changed.nodes[reader.index()];
            reader.operation = operation;
            reader.inputs[0] = *source;
        }
        removed.insert(id);
    }
    if removed.is_empty() {
        return None;
    }
    remove(&mut changed, &removed);
    Some(changed)
}

/// The pads before and after the spatial axes of a layer that adds zeros around them and nothing else.
fn spatial_pads(validated: &Validated, node: &Node) -> Option<[Vec<i64>; 2]> {
    let pad = node.operation.downcast_ref::<Pad>()?;
    let facts = |port: usize| node.inputs.get(port).map(|source| validated.inference().get(*source));
    if pad.attributes.pad_mode != PadMode::Constant || facts(0)?.element_type != ElementType::F32 {
        return None;
    }
    let is_zero = match node.inputs.get(3) {
        None => true,
        Some(source) => {
            let tensor = validated.model().node(source.node).tensor()?.aligned().ok()?;
            matches!(tensor.slice::<f32>(), Ok([value]) if *value == 0.0)
        }
    };
    let (begin, end) = (facts(1)?.integers()?, facts(2)?.integers()?);
    let outer = |pads: &[i64]| pads.get(..2).is_some_and(|pads| pads == [0, 0]);
    let fits =
        is_zero && outer(&begin) && outer(&end) && begin.iter().chain(&end).all(|pad| (0..1 << 20).contains(pad));
    fits.then(|| [begin[2..].to_vec(), end[2..].to_vec()])
}

/// The convolution `node` with further pads, if it is one, reads the layer as data only, and states its pads.
fn widen(node: &Node, data: NodeId, pads: &[Vec<i64>; 2]) -> Option<Arc<dyn Operation>> {
    let is_data = |(port, source): (usize, &ovir_graph::Source)| (source.node == data) == (port == 0);
    node.inputs.iter().enumerate().all(is_data).then_some(())?;
    Some(convolution_with(node, widened(convolution_attributes(node)?, pads)?))
}

fn widened(attributes: &ConvolutionAttributes, [begin, end]: &[Vec<i64>; 2]) -> Option<ConvolutionAttributes> {
    let sums = |own: &[i64], more: &[i64]| match attributes.auto_pad {
        AutoPad::Valid => Some(more.to_vec()),
        // An empty list stands for zeros.
        AutoPad::Explicit if own.is_empty() => Some(more.to_vec()),
        AutoPad::Explicit if own.len() == more.len() => Some(own.iter().zip(more).map(|(a, b)| a + b).collect()),
        _ => None,
    };
    let (pads_begin, pads_end) = (sums(&attributes.pads_begin, begin)?, sums(&attributes.pads_end, end)?);
    Some(ConvolutionAttributes { pads_begin, pads_end, auto_pad: AutoPad::Explicit, ..attributes.clone() })
}
