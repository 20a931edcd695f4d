//! Folds what scales the channels of a convolution into its filters: BatchNormInference, GroupConvolution with one
//! weight a channel, and Multiply by constants, also behind a bias. Every other one of the first two becomes a Multiply
//! and perhaps an Add, which fuse with what is around them.
//!
//! Models that were not converted for inference, but read and saved as they are, have these layers; the filters are
//! multiplied once, when they are packed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::OpVersion;
use ovir_ops::arithmetic::{add::Add, multiply::Multiply};
use ovir_ops::common::broadcast::BroadcastAttributes;
use ovir_ops::convolution::group_convolution::GroupConvolution;
use ovir_ops::normalization::batch_norm_inference::BatchNormInference;
use ovir_tensor::{ElementType, Shape, Tensor};

use crate::chain::{Uses, constant};
use crate::trace::{Trace, named};

/// Version 1 of functions of two values.
const VERSION: OpVersion = OpVersion::new(1, (1, 16), (2, 2), (1, 1));

/// What a layer does to each channel: `x * scale + shift`.
struct Affine {
    /// The layer.
    node: NodeId,
    /// The value that it takes.
    input: Source,
    /// The rank of the value.
    rank: usize,
    scale: Vec<f32>,
    shift: Vec<f32>,
}

/// A convolution whose filters take a scale.
struct Fold {
    convolution: NodeId,
    /// The shape of a scale that is multiplied with the filters.
    scale_shape: Shape,
}

/// What is added between a convolution and the layer that scales it.
struct Bias {
    /// The Add.
    sum: NodeId,
    /// What it adds to each channel.
    values: Vec<f32>,
}

/// Folds all such layers; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut affine: HashMap<NodeId, (Affine, Option<Fold>)> = HashMap::new();
    let mut absorbed: HashSet<NodeId> = HashSet::new();
    for (id, node) in model.iter().filter(|(id, _)| !uses.is_constant(*id)) {
        let Some(mut found) = affine_of(validated, &uses, id) else { continue };
        let is_product = node.is("Multiply");
        match convolution_before(validated, &uses, &found, &absorbed) {
            Ok((fold, bias)) => {
                trace.applied(node, || format!("goes into the filters of {}", named(model.node(fold.convolution))));
                absorbed.insert(fold.convolution);
                if let Some(Bias { sum, values }) = bias {
                    absorbed.insert(sum);
                    let shifts = found.shift.iter_mut().zip(&found.scale);
                    shifts.zip(values).for_each(|((shift, scale), bias)| *shift += scale * bias);
                }
                affine.insert(id, (found, Some(fold)));
            }
            Err(reason) if is_product => trace.declined(node, || reason.to_owned()),
            Err(_) => {
                trace.applied(node, || "becomes a Multiply and perhaps an Add".to_owned());
                affine.insert(id, (found, None));
            }
        }
    }
    if affine.is_empty() {
        return None;
    }
    Rewriter::new(model).rewrite(&affine, &absorbed)
}

/// What a layer does to each channel, if it is a BatchNormInference, a GroupConvolution with one weight a channel, or a
/// Multiply by a constant.
fn affine_of(validated: &Validated, uses: &Uses, id: NodeId) -> Option<Affine> {
    let node = validated.model().node(id);
    let facts = validated.inference().outputs(id).first()?;
    let dims = facts.shape.dims().filter(|_| facts.element_type == ElementType::F32)?;
    let (rank, channels) = (dims.len(), dims.get(1)?.get()?);
    if let Some(norm) = node.operation.downcast_ref::<BatchNormInference>() {
        let (data, ports) = norm.ports;
        let values = |port: usize| constant(validated, *node.inputs.get(port)?).filter(|v| v.len() == channels);
        let [gamma, beta, mean, variance] =
            [values(ports[0])?, values(ports[1])?, values(ports[2])?, values(ports[3])?];
        let deviation = |variance: &f32| (f64::from(*variance) + norm.attributes.epsilon).sqrt();
        let scale: Vec<f64> = gamma.iter().zip(&variance).map(|(g, v)| f64::from(*g) / deviation(v)).collect();
        let shift = beta.iter().zip(&mean).zip(&scale).map(|((b, m), s)| (f64::from(*b) - f64::from(*m) * s) as f32);
        let (input, shift) = (*node.inputs.get(data)?, shift.collect());
        return Some(Affine { node: id, input, rank, scale: scale.iter().map(|s| *s as f32).collect(), shift });
    }
    if let Some(convolution) = node.operation.downcast_ref::<GroupConvolution>() {
        let [input, filters] = node.inputs[..] else { return None };
        let shape = validated.inference().get(filters).shape.to_shape()?;
        let has_factors = shape.first() == Some(&channels) && shape.iter().skip(1).all(|size| *size == 1);
        let scale = constant(validated, filters).filter(|_| has_factors && convolution.attributes.is_neutral())?;
        return Some(Affine { node: id, input, rank, shift: vec![0.0; channels], scale });
    }
    let (input, factor) = constant_operand(node, uses).filter(|_| node.is("Multiply"))?;
    let scale = channel_values(validated, factor, input, channels)?;
    Some(Affine { node: id, input, rank, shift: vec![0.0; channels], scale })
}

/// The computed and the constant operand of a sum or a product.
pub(crate) fn constant_operand(node: &Node, uses: &Uses) -> Option<(Source, Source)> {
    let [a, b] = node.inputs[..] else { return None };
    match (uses.is_constant(a.node), uses.is_constant(b.node)) {
        (false, true) => Some((a, b)),
        (true, false) => Some((b, a)),
        _ => None,
    }
}

/// The values that a constant has for each channel of `data`, whose shape it does not change.
pub(crate) fn channel_values(validated: &Validated, factor: Source, data: Source, channels: usize) -> Option<Vec<f32>> {
    let inference = validated.inference();
    let (rank, shape) = (inference.get(data).shape.rank()?, inference.get(factor).shape.to_shape()?);
    let values = constant(validated, factor)?;
    let fits = shape.rank() <= rank
        && shape.iter().rev().enumerate().all(|(axis, size)| *size == 1 || (axis + 2 == rank && *size == channels));
    match values[..] {
        [value] if fits => Some(vec![value; channels]),
        _ => Some(values).filter(|values| fits && values.len() == channels),
    }
}

/// The convolution whose value the layer alone scales, and the bias between them.
fn convolution_before(
    validated: &Validated,
    uses: &Uses,
    affine: &Affine,
    absorbed: &HashSet<NodeId>,
) -> Result<(Fold, Option<Bias>), &'static str> {
    let model = validated.model();
    let mut at = affine.input.node;
    let mut reader = affine.node;
    let mut found = None;
    if let Some((value, bias)) = constant_operand(model.node(at), uses).filter(|_| model.node(at).is("Add")) {
        let values = channel_values(validated, bias, value, affine.scale.len());
        let values =
            values.filter(|_| uses.only_reader(at) == Some(reader)).ok_or("reads a sum that is no bias of its own")?;
        found = Some(Bias { sum: at, values });
        (reader, at) = (at, value.node);
    }
    let node = model.node(at);
    let is_convolution = matches!(&*node.type_name, "Convolution" | "GroupConvolution" | "ConvolutionBackpropData");
    if !is_convolution || absorbed.contains(&at) {
        return Err("reads no convolution");
    }
    if uses.only_reader(at) != Some(reader) {
        return Err("is not the only reader of the convolution");
    }
    let filters = *node.inputs.get(1).ok_or("reads no convolution")?;
    if constant_len(validated, filters).is_none() {
        return Err("scales a convolution whose filters are computed or quantised");
    }
    let shape = validated.inference().get(filters).shape.to_shape().unwrap_or_default();
    let mut scale_shape: Shape = shape.iter().map(|_| 1).collect();
    let axes: &[usize] = match &*node.type_name {
        "Convolution" => &[0],
        "GroupConvolution" => &[0, 1],
        _ => &[1],
    };
    for axis in axes {
        scale_shape[*axis] = *shape.get(*axis).ok_or("reads no convolution")?;
    }
    match scale_shape.elements() == affine.scale.len() {
        true => Ok((Fold { convolution: at, scale_shape }, found)),
        false => Err("does not have a factor for each channel of the convolution"),
    }
}

/// The elements of a constant that is stored as floats.
pub(crate) fn constant_len(validated: &Validated, source: Source) -> Option<usize> {
    let model = validated.model();
    let node = model.node(source.node);
    let stored = if node.is("Convert") { model.node(node.inputs.first()?.node) } else { node };
    stored.tensor().filter(|tensor| tensor.element_type().is_float()).map(Tensor::elements)
}

/// The model while it is written anew.
struct Rewriter<'m> {
    model: &'m Model,
    nodes: Vec<Node>,
    /// For each old value, the new one.
    places: Vec<NodeId>,
}

impl<'m> Rewriter<'m> {
    fn new(model: &'m Model) -> Rewriter<'m> {
        Rewriter { model, nodes: Vec::with_capacity(model.nodes.len()), places: Vec::with_capacity(model.nodes.len()) }
    }

    fn rewrite(
        mut self,
        affine: &HashMap<NodeId, (Affine, Option<Fold>)>,
        absorbed: &HashSet<NodeId>,
    ) -> Option<Model> {
        for (id, node) in self.model.iter() {
            let place = match affine.get(&id) {
                Some((affine, fold)) => self.replace(node, affine, fold.as_ref())?,
                // It comes where the layer is that scales it.
                None if absorbed.contains(&id) => NodeId(0),
                None => {
                    let mut node = node.clone();
                    node.inputs = node.inputs.iter().map(|source| self.placed(*source)).collect();
                    self.push(node)
                }
            };
            self.places.push(place);
        }
        let mut changed = Model { nodes: self.nodes, ..self.model.clone() };
        for id in changed.parameters.iter_mut().chain(&mut changed.results) {
            *id = self.places[id.index()];
        }
        Some(changed)
    }

    /// Puts a scaled convolution, or a product, and a sum in the place of a layer.
    fn replace(&mut self, node: &Node, affine: &Affine, fold: Option<&Fold>) -> Option<NodeId> {
        let name = &node.friendly_name;
        let has_shift = affine.shift.iter().any(|shift| *shift != 0.0);
        let mut last = match fold {
            Some(Fold { convolution, scale_shape }) => {
                let mut scaled = self.model.node(*convolution).clone();
                let scale = self.constant(&format!("{name}/scale"), &affine.scale, scale_shape.clone())?;
                let filters = self.placed(scaled.inputs[1]);
                let product = multiply(&format!("{name}/filters"), vec![filters, scale]);
                let filters = self.push(product);
                for (port, source) in scaled.inputs.iter_mut().enumerate() {
                    *source = if port == 1 { Source { node: filters, port: 0 } } else { self.placed(*source) };
                }
                scaled
            }
            None => {
                let scale = self.constant(&format!("{name}/scale"), &affine.scale, along_channels(affine))?;
                multiply(&format!("{name}/scaled"), vec![self.placed(affine.input), scale])
            }
        };
        if has_shift {
            let value = self.push(last);
            let shift = self.constant(&format!("{name}/shift"), &affine.shift, along_channels(affine))?;
            last = add(name, vec![Source { node: value, port: 0 }, shift]);
        }
        last.friendly_name.clone_from(name);
        last.outputs.clone_from(&node.outputs);
        last.location.clone_from(&node.location);
        Some(self.push(last))
    }

    fn constant(&mut self, name: &str, values: &[f32], shape: Shape) -> Option<Source> {
        let tensor = Tensor::from_slice(values, shape).ok()?;
        Some(Source { node: self.push(Node::constant(name, tensor)), port: 0 })
    }

    fn placed(&self, source: Source) -> Source {
        Source { node: self.places[source.node.index()], port: source.port }
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }
}

/// The shape of one value a channel beside data of the layer's rank.
fn along_channels(affine: &Affine) -> Shape {
    (0..affine.rank).map(|axis| if axis == 1 { affine.scale.len() } else { 1 }).collect()
}

pub(crate) fn multiply(name: &str, inputs: Vec<Source>) -> Node {
    Node::new(name, "Multiply", VERSION, Arc::new(Multiply { attributes: BroadcastAttributes::default() }), inputs, 1)
}

pub(crate) fn add(name: &str, inputs: Vec<Source>) -> Node {
    Node::new(name, "Add", VERSION, Arc::new(Add { attributes: BroadcastAttributes::default() }), inputs, 1)
}
