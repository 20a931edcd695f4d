//! Replacing chains of layers by fused layers.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::common::convolution::ConvolutionAttributes;
use ovir_ops::convolution::{convolution::Convolution, group_convolution::GroupConvolution};
use ovir_ops::fused::{Fused, Stage, StageInput};
use ovir_ops::movement::transpose::Transpose;
use ovir_ops::{OpVersion, Operation};
use ovir_tensor::{Dim, ElementType, SmallVec, Tensor};

/// Which layers read each value, and which values depend on constants only.
pub(crate) struct Uses {
    readers: HashMap<Source, Vec<NodeId>>,
    is_constant: Vec<bool>,
}

impl Uses {
    /// The readers of all values of a model.
    pub fn new(model: &Model) -> Uses {
        let mut readers: HashMap<Source, Vec<NodeId>> = HashMap::new();
        for (id, node) in model.iter() {
            for source in &node.inputs {
                readers.entry(*source).or_default().push(id);
            }
        }
        Uses { readers, is_constant: model.constant_layers() }
    }

    /// Whether a layer depends on constants only.
    pub fn is_constant(&self, node: NodeId) -> bool {
        self.is_constant[node.index()]
    }

    /// Whether a value is a constant of one element, which a fused layer may keep as a number.
    pub fn is_single(&self, validated: &Validated, source: Source) -> bool {
        let shape = validated.inference().get(source).shape.to_shape();
        self.is_constant(source.node) && shape.is_some_and(|shape| shape.elements() == 1)
    }

    /// Whether some layer reads the first output of `node`, and only layers of the group do.
    pub fn all_readers_in(&self, node: NodeId, group: &[NodeId]) -> bool {
        let readers = self.readers.get(&Source { node, port: 0 });
        readers.is_some_and(|readers| readers.iter().all(|reader| group.contains(reader)))
    }

    /// The layers that read the first output of `node`, once for each input that does.
    pub fn of(&self, node: NodeId) -> &[NodeId] {
        self.of_value(Source { node, port: 0 })
    }

    /// The layers that read a value, once for each input that does.
    pub fn of_value(&self, value: Source) -> &[NodeId] {
        self.readers.get(&value).map_or(&[], Vec::as_slice)
    }

    /// The only layer that reads the first output of `node`, if there is just one that reads it once.
    pub fn only_reader(&self, node: NodeId) -> Option<NodeId> {
        match self.of(node) {
            [reader] => Some(*reader),
            _ => None,
        }
    }
}

/// Replaces each chain (layers in order, each the only reader of the one before) by one fused layer, which takes the
/// place and the name of its last layer.
pub(crate) fn fuse(model: &Model, chains: &[Vec<NodeId>]) -> Model {
    let mut changed = model.clone();
    let mut removed: HashSet<NodeId> = HashSet::new();
    for chain in chains {
        let Some((last, inner)) = chain.split_last() else { continue };
        changed.nodes[last.index()] = fused_node(model, chain);
        removed.extend(inner);
    }
    remove(&mut changed, &removed);
    changed
}

fn fused_node(model: &Model, chain: &[NodeId]) -> Node {
    let mut outside: Vec<Source> = Vec::new();
    let mut stages = Vec::with_capacity(chain.len());
    for id in chain {
        let node = model.node(*id);
        let inputs = node.inputs.iter().map(|source| {
            if let Some(stage) = chain.iter().position(|member| *member == source.node) {
                return StageInput::Stage(stage);
            }
            let port = outside.iter().position(|s| s == source).unwrap_or_else(|| {
                outside.push(*source);
                outside.len() - 1
            });
            StageInput::Outside(port)
        });
        let inputs = inputs.collect();
        let (friendly_name, type_name) = (node.friendly_name.clone(), node.type_name.to_string());
        stages.push(Stage { friendly_name, type_name, operation: node.operation.clone(), inputs });
    }
    let last = chain.last().map(|id| model.node(*id).clone());
    let mut node =
        last.unwrap_or_else(|| Node::new("", "Fused", FUSED, Arc::new(Fused { stages: Vec::new() }), Vec::new(), 1));
    become_fused(&mut node, stages);
    node.inputs = outside;
    node
}

const FUSED: OpVersion = OpVersion::new(1, (1, 1), (0, usize::MAX), (1, 1));

/// Makes a layer one of these stages.
pub(crate) fn become_fused(node: &mut Node, stages: Vec<Stage>) {
    node.type_name = Cow::Borrowed("Fused");
    node.opset = Cow::Borrowed("ovir");
    node.version = FUSED;
    node.operation = Arc::new(Fused { stages });
}

/// The attributes of a Convolution or a GroupConvolution.
pub(crate) fn convolution_attributes(node: &Node) -> Option<&ConvolutionAttributes> {
    let plain = node.operation.downcast_ref::<Convolution>().map(|plain| &plain.attributes);
    plain.or_else(|| Some(&node.operation.downcast_ref::<GroupConvolution>()?.attributes))
}

/// A Convolution, or a GroupConvolution if the layer is one, with other attributes.
pub(crate) fn convolution_with(node: &Node, attributes: ConvolutionAttributes) -> Arc<dyn Operation> {
    match node.operation.downcast_ref::<GroupConvolution>() {
        Some(_) => Arc::new(GroupConvolution { attributes }),
        None => Arc::new(Convolution { attributes }),
    }
}

/// The values of a Const of floats, which may be stored as halves.
pub(crate) fn constant(validated: &Validated, source: Source) -> Option<Vec<f32>> {
    let tensor = stored(validated, source)?;
    let is_exact = matches!(tensor.element_type(), ElementType::F32 | ElementType::F16 | ElementType::Bf16);
    is_exact.then(|| tensor.numbers())?.map(|values| values.into_iter().map(|value| value as f32).collect())
}

/// The value of a constant of f32 with one element, which may be stored as another type.
pub(crate) fn single_value(validated: &Validated, uses: &Uses, source: Source) -> Option<f32> {
    let is_f32 = validated.inference().get(source).element_type == ElementType::F32;
    (is_f32 && uses.is_single(validated, source)).then_some(())?;
    stored(validated, source)?.numbers()?.first().map(|value| *value as f32)
}

/// The tensor of a Const, with or without a Convert behind it.
pub(crate) fn stored(validated: &Validated, source: Source) -> Option<&Tensor> {
    let model = validated.model();
    let node = model.node(source.node);
    if node.is("Convert") { model.node(node.inputs.first()?.node) } else { node }.tensor()
}

/// The order of a Transpose that names all axes; `None` for other layers and for orders that are computed.
pub(crate) fn transpose_order(validated: &Validated, node: &Node) -> Option<SmallVec<[i64; 8]>> {
    let order = node.inputs.get(1).filter(|_| node.is("Transpose"))?;
    validated.inference().get(*order).integers().filter(|order| !order.is_empty())
}

/// A Transpose.
pub(crate) fn transpose(name: String, data: Source, order: Source) -> Node {
    Node::new(name, "Transpose", TRANSPOSE, Arc::new(Transpose), vec![data, order], 1)
}

const TRANSPOSE: OpVersion = OpVersion::new(1, (1, 16), (2, 2), (1, 1));

/// Whether a Transpose with the order `after` brings the axes of one with the order `before` back to their places.
pub(crate) fn is_undone(before: &[i64], after: &[i64]) -> bool {
    let at = |axis: i64| usize::try_from(axis).ok().and_then(|axis| before.get(axis));
    before.len() == after.len() && after.iter().zip(0..).all(|(axis, place)| at(*axis) == Some(&place))
}

/// Whether the operands of a layer are aligned at their last axes, as those of most layers are.
pub(crate) fn aligns_last_axes(node: &Node) -> bool {
    node.operation.attributes().iter().all(|(name, value)| *name != "auto_broadcast" || value != "pdpd")
}

/// Whether a value is repeated along axes of another one, if at all, and never the other way round.
pub(crate) fn is_repeated(validated: &Validated, source: Source, whole: Source) -> bool {
    let shape = |source| validated.inference().get(source).shape.dims();
    let (Some(dims), Some(of_whole)) = (shape(source), shape(whole)) else { return false };
    let fits = |(dim, of_whole): (&Dim, &Dim)| dim.get() == Some(1) || dim.is_same(*of_whole);
    dims.len() <= of_whole.len() && dims.iter().rev().zip(of_whole.iter().rev()).all(fits)
}

/// Whether two values certainly have the same shape.
pub(crate) fn have_same_shape(validated: &Validated, one: Source, other: Source) -> bool {
    let shape = |source| validated.inference().get(source).shape.dims();
    let (Some(a), Some(b)) = (shape(one), shape(other)) else { return false };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same(*b))
}

/// Layers that are put behind those of a model, which is to be sorted then.
pub(crate) struct Added {
    first: usize,
    new: Vec<Node>,
}

impl Added {
    /// None yet.
    pub fn new(model: &Model) -> Added {
        Added { first: model.nodes.len(), new: Vec::new() }
    }

    /// Adds a layer, and gives its first output.
    pub fn add(&mut self, node: Node) -> Source {
        self.new.push(node);
        Source { node: NodeId((self.first + self.new.len()) as u32 - 1), port: 0 }
    }

    /// Adds a constant of integers along one axis; `None` if it cannot be made.
    pub fn integers(&mut self, name: String, values: &[i64]) -> Option<Source> {
        Some(self.add(Node::constant(name, Tensor::from_slice(values, [values.len()]).ok()?)))
    }

    /// Puts the layers behind those of the model, and `last` in the place of the layer `id`, with its outputs.
    pub fn put(self, model: &mut Model, id: NodeId, mut last: Node) {
        let old = &model.nodes[id.index()];
        last.outputs.clone_from(&old.outputs);
        last.location.clone_from(&old.location);
        if let Some(location) = &mut last.location {
            // Its ports declare what the old layer reads.
            (location.inputs, location.outputs) = Default::default();
        }
        model.nodes[id.index()] = last;
        self.append(model);
    }

    /// Puts the layers behind those of the model.
    pub fn append(self, model: &mut Model) {
        model.nodes.extend(self.new);
    }
}

/// Removes those of some layers, which stand in the order of a model, that nobody reads any more but others of them.
pub(crate) fn remove_unread(model: &mut Model, mut layers: Vec<NodeId>) {
    let mut readers: HashMap<NodeId, usize> = HashMap::new();
    for source in model.nodes.iter().flat_map(|node| &node.inputs) {
        *readers.entry(source.node).or_default() += 1;
    }
    // Readers come before what they read.
    layers.sort_unstable_by(|a, b| b.cmp(a));
    layers.dedup();
    let mut removed = HashSet::new();
    for id in layers {
        if readers.get(&id).copied().unwrap_or(0) == 0 {
            for source in &model.node(id).inputs {
                readers.entry(source.node).and_modify(|count| *count -= 1);
            }
            removed.insert(id);
        }
    }
    remove(model, &removed);
}

/// Removes layers that nobody reads any more.
pub(crate) fn remove(model: &mut Model, removed: &HashSet<NodeId>) {
    if removed.is_empty() {
        return;
    }
    let mut position = vec![NodeId(0); model.nodes.len()];
    let mut next = 0u32;
    for (index, place) in position.iter_mut().enumerate() {
        *place = NodeId(next);
        next += u32::from(!removed.contains(&NodeId(index as u32)));
    }
    let mut index = 0u32;
    model.nodes.retain(|_| {
        index += 1;
        !removed.contains(&NodeId(index - 1))
    });
    for source in model.nodes.iter_mut().flat_map(|n| n.inputs.iter_mut()) {
        source.node = position[source.node.index()];
    }
    for id in model.parameters.iter_mut().chain(&mut model.results) {
        *id = position[id.index()];
    }
    for body in model.nodes.iter_mut().flat_map(|n| n.bodies.iter_mut()) {
        debug_assert!(body.nodes.iter().all(|n| n.inputs.iter().all(|s| s.node.index() < body.nodes.len())));
    }
}
