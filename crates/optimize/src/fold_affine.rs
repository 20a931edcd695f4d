//! Folds what scales and shifts the channels of a convolution's data into its filters and its bias.
//!
//! Such layers are what batch normalisation behind an activation leaves. A shift does not pass zeros that are padded, which
//! it would have to shift too.

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::common::window::AutoPad;
use ovir_ops::convolution::convolution::Convolution;
use ovir_tensor::{ElementType, Shape, Tensor};

use crate::chain::{Added, Uses, constant};
use crate::fold_scales::{add, channel_values, constant_len, constant_operand, multiply};
use crate::trace::Trace;

/// Folds all such layers; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut has_changed = false;
    for (id, node) in model.iter() {
        let Some(convolution) = node.operation.downcast_ref::<Convolution>() else { continue };
        let folded = match Folded::of(validated, &uses, id, convolution) {
            Ok(folded) => folded,
            Err(reason) => {
                trace.declined(node, || reason.to_owned());
                continue;
            }
        };
        if folded.put(validated, &uses, &mut changed, id).is_some() {
            trace.applied(node, || "takes what scales and shifts its data into its filters and its bias".to_owned());
            has_changed = true;
        }
    }
    (has_changed && changed.sort()).then_some(changed)
}

/// What is done to the channels of a convolution's data: `x * scale + shift`.
struct Folded {
    data: Source,
    scale: Vec<f64>,
    shift: Vec<f64>,
}

impl Folded {
    fn of(validated: &Validated, uses: &Uses, id: NodeId, convolution: &Convolution) -> Result<Folded, &'static str> {
        let model = validated.model();
        let [mut data, filters] = model.node(id).inputs[..] else { return Err("has no filters") };
        let facts = validated.inference().get(data);
        let channels = facts.shape.dims().and_then(|dims| dims.get(1)?.get());
        let channels = channels.filter(|_| facts.element_type == ElementType::F32).ok_or("is not one of f32")?;
        if constant_len(validated, filters).is_none() {
            return Err("has filters that are computed or quantised");
        }
        let attributes = &convolution.attributes;
        let has_no_pads = match attributes.auto_pad {
            AutoPad::Valid => true,
            AutoPad::Explicit => attributes.pads_begin.iter().chain(&attributes.pads_end).all(|pad| *pad == 0),
            _ => false,
        };
        let mut folded = Folded { data, scale: vec![1.0; channels], shift: vec![0.0; channels] };
        loop {
            let layer = model.node(data.node);
            let is_read_once = data.port == 0 && uses.only_reader(data.node).is_some();
            let Some((value, other)) = constant_operand(layer, uses).filter(|_| is_read_once) else { break };
            let Some(values) = channel_values(validated, other, value, channels) else { break };
            match &*layer.type_name {
                "Add" if has_no_pads => {
                    let sums = folded.shift.iter_mut().zip(&folded.scale).zip(values);
                    sums.for_each(|((shift, scale), value)| *shift += scale * f64::from(value));
                }
                "Multiply" => folded.scale.iter_mut().zip(values).for_each(|(scale, value)| *scale *= f64::from(value)),
                _ => break,
            }
            data = value;
        }
        if data == folded.data {
            return Err("reads nothing that scales or shifts channels");
        }
        if model.node(data.node).type_name.contains("Convolution") {
            return Err("reads a convolution that takes the scale and the shift itself");
        }
        if folded.scale.iter().chain(&folded.shift).any(|value| !(*value as f32).is_finite()) {
            return Err("reads what is scaled beyond all numbers");
        }
        folded.data = data;
        Ok(folded)
    }

    /// Puts a convolution of the data as it is in the place of one; `None` if it cannot be written.
    fn put(&self, validated: &Validated, uses: &Uses, changed: &mut Model, id: NodeId) -> Option<()> {
        let old = changed.node(id).clone();
        let name = &old.friendly_name;
        let (filters, channels) = (old.inputs[1], self.scale.len());
        let shape = validated.inference().get(filters).shape.to_shape()?;
        let (outputs, taps) = (*shape.first()?, shape.iter().skip(2).product::<usize>().max(1));
        let mut added = Added::new(changed);
        let along =
            |count: usize| -> Shape { (0..shape.rank()).map(|axis| if axis == 1 { count } else { 1 }).collect() };
        let fixed = |name: String, values: &[f64]| {
            let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
            Some(Node::constant(name, Tensor::from_slice(&values, along(values.len())).ok()?))
        };
        let mut last = old.clone();
        last.inputs[0] = self.data;
        if self.scale.iter().any(|scale| *scale != 1.0) {
            let scale = added.add(fixed(format!("{name}/scale"), &self.scale)?);
            last.inputs[1] = added.add(multiply(&format!("{name}/filters"), vec![filters, scale]));
        }
        let mut bias = None;
        if self.shift.iter().any(|shift| *shift != 0.0) {
            let weights = constant(validated, filters).filter(|weights| weights.len() == outputs * channels * taps)?;
            let of_output = |weights: &[f32]| {
                let sums = weights.chunks_exact(taps).map(|taps| taps.iter().map(|tap| f64::from(*tap)).sum::<f64>());
                sums.zip(&self.shift).map(|(sum, shift)| sum * shift).sum::<f64>()
            };
            let values: Vec<f64> = weights.chunks_exact(channels * taps).map(of_output).collect();
            // A bias that is there already takes the shift.
            let reader = uses.only_reader(id).filter(|reader| changed.node(*reader).is("Add"));
            let own = reader.and_then(|reader| {
                let (value, other) = constant_operand(validated.model().node(reader), uses)?;
                Some((reader, other, channel_values(validated, other, value, outputs)?))
            });
            bias = Some(match own {
                Some((reader, other, own)) => {
                    let sums: Vec<f64> = values.iter().zip(own).map(|(a, b)| a + f64::from(b)).collect();
                    let sums = added.add(fixed(format!("{name}/bias"), &sums)?);
                    Bias::Own(reader, other, sums)
                }
                None => Bias::New(added.add(fixed(format!("{name}/bias"), &values)?)),
            });
        }
        match bias {
            Some(Bias::New(bias)) => {
                last.friendly_name = format!("{name}/product");
                last.outputs = vec![ovir_graph::Output::default()];
                last = add(name, vec![added.add(last), bias]);
            }
            Some(Bias::Own(reader, other, sums)) => {
                let inputs = &mut changed.nodes[reader.index()].inputs;
                inputs.iter_mut().filter(|source| **source == other).for_each(|source| *source = sums);
            }
            None => {}
        }
        added.put(changed, id, last);
        Some(())
    }
}

/// Where the shift of the result goes.
enum Bias {
    /// Into an Add of its own.
    New(Source),
    /// Into that Add, whose constant is replaced.
    Own(NodeId, Source, Source),
}
