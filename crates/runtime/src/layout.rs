//! Layouts of values: which ones lie in blocks of channels, and the reorders between the two.
//!
//! Convolutions run fastest where sixteen channels of a position lie side by side (`[N, ceil(C / 16), H, W, 16]`, volumes
//! with a depth). A convolution that can do so asks for it; layers that do not care carry it along; everything else sees plain values.
//! A region is blocked only if that gains more than the reorders at its borders cost. The shape of a value is the same
//! in either layout.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ovir_graph::{Inference, Model, Node, NodeId, Source};
use ovir_kernels::blocked::{BLOCK, blocked_len, codes_from_plain, codes_to_plain, from_plain, to_plain};
use ovir_ops::{Blame, EvaluateContext, InferContext, OpError, OpResult, OpVersion, Operation};
use ovir_tensor::{Dim, ElementType, PartialShape, Shape, SmallVec, Tensor, TensorView, TensorViewMut};

use crate::fast::blocked::{Candidate, candidate};

/// What unknown dimensions are taken for when costs are weighed.
const NOMINAL_SIZE: usize = 32;

/// Nanoseconds a byte takes through a reorder: it is read and written, with strides.
const NANOSECONDS_PER_BYTE: f64 = 0.08;

/// How the elements of a value lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Layout {
    /// Row-major.
    #[default]
    Plain,
    /// Channels, which are axis 1, in blocks of sixteen.
    Blocked,
}

/// A model with its reorders.
pub(crate) struct Lowered {
    /// The model.
    pub model: Model,
    /// The layout of every value, in the order of layers and ports.
    pub layouts: Vec<Layout>,
}

/// Moves a value into another layout.
#[derive(Debug)]
pub(crate) struct Reorder {
    /// The layout of the output.
    pub to: Layout,
    /// The channels of the value, where the layer that reads it knows more than its shape tells, and that layer.
    pub channels: Option<(usize, String)>,
}

impl Operation for Reorder {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let facts = context.input(0)?.clone();
        let mut shape = facts.shape;
        if let (Some((channels, reader)), Some(dims)) = (&self.channels, shape.dims()) {
            if !dims.get(1).is_some_and(|dim| dim.contains(*channels)) {
                let message = format!("shape {shape} does not have the {channels} channels that {reader} takes");
                return Err(OpError::shape(Blame::Input(0), message));
            }
            let known = |(axis, dim): (usize, &Dim)| if axis == 1 { Dim::fixed(*channels) } else { *dim };
            shape = PartialShape::from_dims(dims.iter().enumerate().map(known));
        }
        context.set_output(0, facts.element_type, shape);
        Ok(())
    }

    /// Layouts are below the view of an operation, whose values are all plain.
    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let tensor = context.input(0)?.to_tensor()?;
        context.set_output(0, tensor)
    }
}

impl Layout {
    /// The elements that a value of a shape takes in memory.
    pub fn elements(self, shape: &Shape) -> usize {
        match self {
            Layout::Plain => shape.elements(),
            Layout::Blocked => sizes(shape).map_or(0, |[n, c, positions]| blocked_len(n, c, positions)),
        }
    }
}

/// A shape as images, channels and positions.
pub(crate) fn sizes(shape: &Shape) -> Option<[usize; 3]> {
    let (batch, channels) = (*shape.first()?, *shape.get(1)?);
    Some([batch, channels, shape.get(2..)?.iter().product()])
}

/// The shape that the memory of a value has.
pub(crate) fn physical_shape(layout: Layout, shape: &Shape) -> Shape {
    if layout == Layout::Plain {
        return shape.clone();
    }
    let mut physical = shape.clone();
    if let Some(channels) = physical.get_mut(1) {
        *channels = channels.div_ceil(BLOCK);
    }
    physical.push(BLOCK);
    physical
}

/// The plain form of a blocked tensor whose memory has its physical shape.
///
/// # Errors
/// When memory cannot be had.
pub(crate) fn plain_tensor(blocked: &TensorView<'_>, shape: &Shape) -> Result<Tensor, OpError> {
    let mut tensor = Tensor::zeros(blocked.element_type(), shape.clone())?;
    write_plain(sizes(shape).unwrap_or_default(), blocked, &mut tensor.view_mut()?)?;
    Ok(tensor)
}

/// Writes the blocked form of a plain tensor.
///
/// # Errors
/// When the target does not have its size.
pub(crate) fn block(plain: &Tensor, target: &mut TensorViewMut<'_>) -> Result<(), OpError> {
    write_blocked(sizes(plain.shape()).unwrap_or_default(), &plain.view(), target)
}

/// Writes the blocked form of a plain value, f32 or codes of one byte, of so many images, channels and positions.
///
/// # Errors
/// When sizes do not fit.
pub(crate) fn write_blocked(
    [batch, channels, positions]: [usize; 3],
    plain: &TensorView<'_>,
    target: &mut TensorViewMut<'_>,
) -> Result<(), OpError> {
    match plain.element_type() {
        ElementType::U8 => codes_from_plain(batch, channels, positions, plain.slice()?, target.slice_mut()?),
        _ => from_plain(batch, channels, positions, plain.slice()?, target.slice_mut()?),
    }
    .map_err(crate::fast::kernel_error)
}

/// Writes the plain form of a blocked value, f32 or codes of one byte, of so many images, channels and positions.
///
/// # Errors
/// When sizes do not fit.
pub(crate) fn write_plain(
    [batch, channels, positions]: [usize; 3],
    blocked: &TensorView<'_>,
    target: &mut TensorViewMut<'_>,
) -> Result<(), OpError> {
    match blocked.element_type() {
        ElementType::U8 => codes_to_plain(batch, channels, positions, blocked.slice()?, target.slice_mut()?),
        _ => to_plain(batch, channels, positions, blocked.slice()?, target.slice_mut()?),
    }
    .map_err(crate::fast::kernel_error)
}

/// Chooses layouts and inserts reorders; `None` if every value stays plain.
pub(crate) fn lower(model: &Model, inference: &Inference, is_static: &[bool]) -> Option<Lowered> {
    let mut chosen = candidates(model, inference, is_static);
    drop_losing_followers(model, inference, &mut chosen);
    drop_losing_regions(model, inference, &mut chosen);
    chosen.iter().any(Option::is_some).then(|| insert_reorders(model, inference, &chosen))
}

/// The layers that are to run on blocks: those that gain by it, and those behind them that carry the layout along.
fn candidates(model: &Model, inference: &Inference, is_static: &[bool]) -> Vec<Option<Candidate>> {
    let mut chosen: Vec<Option<Candidate>> = Vec::with_capacity(model.nodes.len());
    for (id, node) in model.iter() {
        let reads_blocks = node.inputs.first().is_some_and(|source| is_blocked(&chosen, *source));
        let found =
            if is_static[id.index()] { None } else { candidate_of(node, id, inference, is_static, reads_blocks) };
        let is_carried = |candidate: &Candidate| {
            let ports = candidate.inputs.iter().zip(&node.inputs).filter(|(layout, _)| **layout == Layout::Blocked);
            ports.into_iter().any(|(_, source)| is_blocked(&chosen, *source))
        };
        let found = found.filter(|candidate| candidate.gain > 0.0 || is_carried(candidate));
        chosen.push(found);
    }
    let mut is_wanted = vec![false; model.nodes.len()];
    for (index, node) in model.nodes.iter().enumerate().rev() {
        chosen[index].take_if(|candidate| candidate.is_for_readers && !is_wanted[index]);
        let layouts = chosen[index].iter().flat_map(|candidate| &candidate.inputs);
        for (source, _) in node.inputs.iter().zip(layouts).filter(|(_, layout)| **layout == Layout::Blocked) {
            is_wanted[source.node.index()] = true;
        }
    }
    chosen
}

fn candidate_of(
    node: &Node,
    id: NodeId,
    inference: &Inference,
    is_static: &[bool],
    reads_blocks: bool,
) -> Option<Candidate> {
    let inputs: SmallVec<[_; 8]> = node.inputs.iter().map(|source| inference.get(*source)).collect();
    let is_constant = |port: usize| node.inputs.get(port).is_some_and(|source| is_static[source.node.index()]);
    candidate(node, &inputs, inference.outputs(id), &is_constant, reads_blocks)
}

fn is_blocked(chosen: &[Option<Candidate>], source: Source) -> bool {
    let found = chosen.get(source.node.index()).and_then(Option::as_ref);
    found.is_some_and(|candidate| candidate.output == Layout::Blocked)
}

fn wanted(chosen: &[Option<Candidate>], node: NodeId, port: usize) -> Layout {
    let candidate = chosen.get(node.index()).and_then(Option::as_ref);
    candidate.and_then(|candidate| candidate.inputs.get(port)).copied().unwrap_or_default()
}

/// A layer that gains nothing by blocks, and for which more elements must be reordered on blocks than without them, stays
/// plain: such as one of many that read one value on blocks beside a plain value of their own. Lanes without a channel are
/// moved in vain, so that what stands behind the last convolution stays plain if it has few channels.
fn drop_losing_followers(model: &Model, inference: &Inference, chosen: &mut [Option<Candidate>]) {
    // How many ports want a value plain, and how many on blocks.
    let mut readers: HashMap<Source, [usize; 2]> = HashMap::new();
    let place = |layout: Layout| usize::from(layout == Layout::Blocked);
    for (id, node) in model.iter() {
        for (port, source) in node.inputs.iter().enumerate() {
            readers.entry(*source).or_default()[place(wanted(chosen, id, port))] += 1;
        }
    }
    let elements = |source: Source| nominal_elements(&inference.get(source).shape);
    let lanes = |source: Source| elements(source) * lanes_per_channel(&inference.get(source).shape);
    for (index, node) in model.nodes.iter().enumerate().rev() {
        let id = NodeId(index as u32);
        if !chosen[index].as_ref().is_some_and(|found| found.gain <= 0.0 && found.output == Layout::Blocked) {
            continue;
        }
        let wants: SmallVec<[Layout; 8]> = (0..node.inputs.len()).map(|port| wanted(chosen, id, port)).collect();
        let is_read_as = |source: Source, layout: Layout| {
            let own = node.inputs.iter().zip(&wants).filter(|(input, wants)| **input == source && **wants == layout);
            readers.get(&source).is_some_and(|ports| ports[place(layout)] > own.count())
        };
        let (mut on_blocks, mut plain) = (0.0, 0.0);
        for (port, source) in node.inputs.iter().enumerate() {
            if wants[port] == Layout::Plain || node.inputs[..port].contains(source) {
                continue;
            }
            on_blocks += lanes(*source) - elements(*source);
            if !is_blocked(chosen, *source) && !is_read_as(*source, Layout::Blocked) {
                on_blocks += lanes(*source);
            } else if is_blocked(chosen, *source) && !is_read_as(*source, Layout::Plain) {
                plain += lanes(*source);
            }
        }
        if on_blocks == 0.0 {
            continue;
        }
        for port in 0..node.outputs.len() {
            let output = Source { node: id, port: port as u32 };
            on_blocks += lanes(output) - elements(output);
            on_blocks += if is_read_as(output, Layout::Plain) { lanes(output) } else { 0.0 };
            plain += if is_read_as(output, Layout::Blocked) { lanes(output) } else { 0.0 };
        }
        if plain < on_blocks {
            chosen[index] = None;
            for (source, _) in node.inputs.iter().zip(wants).filter(|(_, wants)| *wants == Layout::Blocked) {
                let ports = readers.entry(*source).or_default();
                *ports = [ports[0] + 1, ports[1].saturating_sub(1)];
            }
        }
    }
}

/// Connected layers are one region; a region whose reorders cost more than it gains stays plain.
fn drop_losing_regions(model: &Model, inference: &Inference, chosen: &mut [Option<Candidate>]) {
    let mut region: Vec<usize> = (0..model.nodes.len()).collect();
    let mut gains: Vec<f64> = chosen.iter().map(|c| c.as_ref().map_or(0.0, |c| c.gain)).collect();
    let mut reordered: HashSet<(Source, Layout)> = HashSet::new();
    for (id, node) in model.iter() {
        for (port, source) in node.inputs.iter().enumerate() {
            let (has, wants) = (is_blocked(chosen, *source), wanted(chosen, id, port) == Layout::Blocked);
            if has && wants {
                let (a, b) = (root(&mut region, source.node.index()), root(&mut region, id.index()));
                region[a.max(b)] = a.min(b);
            } else if has != wants {
                let to = if wants { Layout::Blocked } else { Layout::Plain };
                if reordered.insert((*source, to)) {
                    let owner = if wants { id.index() } else { source.node.index() };
                    gains[owner] -= NANOSECONDS_PER_BYTE * 4.0 * nominal_elements(&inference.get(*source).shape);
                }
            }
        }
    }
    let mut total = vec![0.0; model.nodes.len()];
    for (index, gain) in gains.iter().enumerate() {
        total[root(&mut region, index)] += gain;
    }
    for (index, candidate) in chosen.iter_mut().enumerate() {
        if total[root(&mut region, index)] <= 0.0 {
            *candidate = None;
        }
    }
}

fn root(region: &mut [usize], of: usize) -> usize {
    let mut at = of;
    while region[at] != at {
        region[at] = region[region[at]];
        at = region[at];
    }
    at
}

/// The elements of a value, with unknown sizes taken for usual ones.
pub(crate) fn nominal_elements(shape: &PartialShape) -> f64 {
    let Some(dims) = shape.dims() else { return 0.0 };
    let size = |(axis, dim): (usize, &Dim)| match dim.get() {
        Some(size) => size as f64,
        None if axis == 0 => 1.0,
        None => NOMINAL_SIZE as f64,
    };
    dims.iter().enumerate().map(size).product()
}

/// The lanes that blocks have for each channel.
fn lanes_per_channel(shape: &PartialShape) -> f64 {
    let channels = shape.dims().filter(|dims| dims.len() > 2).and_then(|dims| dims[1].get()).filter(|count| *count > 0);
    channels.map_or(1.0, |channels| channels.next_multiple_of(BLOCK) as f64 / channels as f64)
}

fn insert_reorders(model: &Model, inference: &Inference, chosen: &[Option<Candidate>]) -> Lowered {
    let mut nodes: Vec<Node> = Vec::with_capacity(model.nodes.len());
    let mut layouts = Vec::new();
    let mut position: Vec<NodeId> = Vec::with_capacity(model.nodes.len());
    let mut reordered: HashMap<Source, Source> = HashMap::new();
    for (id, node) in model.iter() {
        let mut copy = node.clone();
        for (port, source) in node.inputs.iter().enumerate() {
            let (has, wants) = (is_blocked(chosen, *source), wanted(chosen, id, port) == Layout::Blocked);
            let here = Source { node: position[source.node.index()], port: source.port };
            copy.inputs[port] = if has == wants {
                here
            } else {
                let to = if wants { Layout::Blocked } else { Layout::Plain };
                let channels = chosen[id.index()].as_ref().filter(|_| wants).and_then(|candidate| candidate.channels);
                let is_known = inference
                    .get(*source)
                    .shape
                    .dims()
                    .is_some_and(|dims| dims.get(1).is_some_and(|dim| dim.get().is_some()));
                let channels = channels.filter(|_| !is_known).map(|channels| (channels, node.reference().to_string()));
                *reordered.entry(*source).or_insert_with(|| {
                    nodes.push(reorder(model, *source, here, Reorder { to, channels }));
                    layouts.push(to);
                    Source { node: NodeId(nodes.len() as u32 - 1), port: 0 }
                })
            };
        }
        position.push(NodeId(nodes.len() as u32));
        let output = chosen[id.index()].as_ref().map_or(Layout::Plain, |candidate| candidate.output);
        layouts.extend(node.outputs.iter().map(|_| output));
        nodes.push(copy);
    }
    let mut lowered = Model { nodes, ..model.clone() };
    for id in lowered.parameters.iter_mut().chain(&mut lowered.results) {
        *id = position[id.index()];
    }
    Lowered { model: lowered, layouts }
}

/// A reorder stands in for the value, under the same names.
fn reorder(model: &Model, old: Source, source: Source, operation: Reorder) -> Node {
    let producer = model.node(old.node);
    let name = producer.value_name(old.port as usize);
    let version = OpVersion::new(1, (1, 16), (1, 1), (1, 1));
    let mut node = Node::new(name, "Reorder", version, Arc::new(operation), vec![source], 1);
    node.outputs = producer.outputs.get(old.port as usize).cloned().into_iter().collect();
    node
}
