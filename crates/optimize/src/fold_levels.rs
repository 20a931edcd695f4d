//! Folds what scales and shifts the data of a FakeQuantize by one number each into the limits of its input.
//!
//! The convolution in front, with its activation, then writes codes. Networks with learnt affine layers behind their
//! activations, such as PP-LCNet, have such layers by the dozen.

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::arithmetic::{add::Add, multiply::Multiply};
use ovir_ops::common::broadcast::AutoBroadcast;
use ovir_ops::quantization::fake_quantize::FakeQuantize;
use ovir_tensor::{ElementType, Tensor};

use crate::chain::{Added, Uses, single_value};
use crate::finder::without;
use crate::trace::{Trace, all_named};

/// The most layers that are folded into one.
const MOST_LAYERS: usize = 8;

/// Folds all such layers; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut folded: Vec<NodeId> = Vec::new();
    for (id, node) in model.iter() {
        let Some(operation) = node.operation.downcast_ref::<FakeQuantize>() else { continue };
        let Some(affine) = Affine::of(validated, &uses, node) else { continue };
        let is_numpy = operation.broadcast.auto_broadcast == AutoBroadcast::Numpy;
        let Some([low, high]) = affine.limits(validated, node).filter(|_| is_numpy) else {
            trace.declined(node, || "has limits that are computed, or too near to each other then".to_owned());
            continue;
        };
        trace.applied(node, || format!("takes {}", all_named(affine.layers.iter().map(|id| model.node(*id)))));
        let mut added = Added::new(&changed);
        let constant = |name: &str, tensor| Node::constant(format!("{}/{name}", node.friendly_name), tensor);
        let mut last = node.clone();
        last.inputs[0] = affine.data;
        last.inputs[1] = added.add(constant("input_low", low));
        last.inputs[2] = added.add(constant("input_high", high));
        added.put(&mut changed, id, last);
        folded.extend(affine.layers);
    }
    without(changed, folded)
}

/// What is done to the data of a FakeQuantize: `data * scale + shift`.
struct Affine {
    data: Source,
    scale: f64,
    shift: f64,
    /// The layers that do it, which nobody needs any more then.
    layers: Vec<NodeId>,
}

impl Affine {
    /// That of the layers in front of a FakeQuantize which only such layers read; `None` if there is none.
    fn of(validated: &Validated, uses: &Uses, node: &Node) -> Option<Affine> {
        let (model, inference) = (validated.model(), validated.inference());
        let mut affine = Affine { data: *node.inputs.first()?, scale: 1.0, shift: 0.0, layers: Vec::new() };
        let shape = &inference.get(affine.data).shape;
        while affine.layers.len() < MOST_LAYERS {
            let (id, layer) = (affine.data.node, model.node(affine.data.node));
            let [a, b] = layer.inputs[..] else { break };
            let (value, number) = match (single_value(validated, uses, a), single_value(validated, uses, b)) {
                (None, Some(number)) => (a, f64::from(number)),
                (Some(number), None) => (b, f64::from(number)),
                _ => break,
            };
            let facts = inference.get(value);
            if facts.element_type != ElementType::F32 || facts.shape != *shape {
                break;
            }
            let is_read_by_others = match affine.layers.last() {
                Some(reader) => uses.only_reader(id) != Some(*reader),
                None => uses.of(id).iter().any(|reader| {
                    let node = model.node(*reader);
                    node.operation.downcast_ref::<FakeQuantize>().is_none() || node.inputs[1..].contains(&affine.data)
                }),
            };
            if is_read_by_others {
                break;
            }
            if layer.operation.downcast_ref::<Add>().is_some() {
                affine.shift += affine.scale * number;
            } else if layer.operation.downcast_ref::<Multiply>().is_some() {
                affine.scale *= number;
            } else {
                break;
            }
            affine.layers.push(id);
            affine.data = value;
        }
        (!affine.layers.is_empty()).then_some(affine)
    }

    /// The limits of the data that become those of a FakeQuantize, if they are constants that lie as far apart.
    fn limits(&self, validated: &Validated, node: &Node) -> Option<[Tensor; 2]> {
        let of_data = |value: &f32| ((f64::from(*value) - self.shift) / self.scale) as f32;
        let limit = |port: usize| {
            let tensor = validated.model().node(node.inputs.get(port)?.node).tensor()?;
            let aligned = tensor.aligned().ok()?;
            let values = aligned.slice::<f32>().ok()?;
            Some((values.to_vec(), values.iter().map(of_data).collect::<Vec<f32>>(), tensor.shape().clone()))
        };
        let ((low, new_low, low_shape), (high, new_high, high_shape)) = (limit(1)?, limit(2)?);
        let are_finite = self.scale > 0.0 && new_low.iter().chain(&new_high).all(|value| value.is_finite());
        // Widths that are lost in rounding, or change by more than it, are those of data far from zero.
        let is_kept = |((low, high), (new_low, new_high)): ((&f32, &f32), (&f32, &f32))| {
            let (before, after) = (f64::from(*high) - f64::from(*low), f64::from(*new_high) - f64::from(*new_low));
            (after * self.scale - before).abs() <= before.abs() * 1e-6
        };
        let widths =
            low.iter().cycle().zip(high.iter().cycle()).zip(new_low.iter().cycle().zip(new_high.iter().cycle()));
        let is_usual = are_finite && widths.take(low.len().max(high.len())).all(is_kept);
        let tensor = |values: &[f32], shape| Tensor::from_slice(values, shape).ok();
        is_usual.then(|| Some([tensor(&new_low, low_shape)?, tensor(&new_high, high_shape)?]))?
    }
}
