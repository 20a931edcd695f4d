//! Fuses elementwise layers among themselves, so that what lies between them never goes through memory.
//!
//! A group has one layer whose value leaves it; all others are read inside only and have its shape. Constants and values
//! of other shapes that broadcast come from outside. Where codes come from outside, a Decode is part of the group, and an
//! Encode may be its last layer. Comparisons of f32, what is made of their truth, and Select of f32 belong to groups too.

use std::collections::HashSet;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::activation::clamp::Clamp;
use ovir_ops::codes::{Decode, Encode};
use ovir_ops::r#type::convert::Convert;
use ovir_tensor::{Dim, ElementType, PartialShape};

use crate::chain::{Uses, fuse};
use crate::trace::{Trace, all_named};

/// Functions of one value; further inputs are constants.
const UNARY: &[&str] = &[
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceiling",
    "Clamp",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "ErfInv",
    "Exp",
    "FakeQuantize",
    "Floor",
    "Gelu",
    "HSigmoid",
    "HSwish",
    "HardSigmoid",
    "Log",
    "Mish",
    "Negative",
    "ReLU",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "SoftPlus",
    "SoftSign",
    "Sqrt",
    "Swish",
    "Tan",
    "Tanh",
];

/// Functions of two values that broadcast as numpy does.
const BINARY: &[&str] = &["Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum", "Power", "SquaredDifference"];

/// Those of them that only groups of this pass have.
const REMAINDERS: &[&str] = &["Mod", "FloorMod"];

/// Comparisons of two values.
const COMPARISONS: &[&str] = &["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"];

/// Functions of two truth values.
const TRUTHS: &[&str] = &["LogicalAnd", "LogicalOr", "LogicalXor", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"];

/// Functions of one truth value.
const NEGATIONS: &[&str] = &["LogicalNot", "BitwiseNot"];

/// The most layers of a group.
const MOST_LAYERS: usize = 24;

/// The most layers of a group over few elements, whose constants do not count as values from outside: what a layer takes
/// there is the way to it.
const MOST_SMALL_LAYERS: usize = 64;

/// The most elements of such a group.
pub const FEW_ELEMENTS: usize = 512;

/// The most values that a group takes from outside.
const MOST_INPUTS: usize = 12;

/// The most values of codes of channels that a group takes from outside.
const MOST_OF_CHANNELS: usize = 2;

/// The most layers of a group whose values are alive at once.
const MOST_ALIVE: usize = 6;

/// Fuses all groups; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut is_candidate = vec![false; model.nodes.len()];
    for (id, node) in model.iter() {
        is_candidate[id.index()] =
            is_elementwise(validated, &uses, id, node) || is_logical(validated, &is_candidate, node);
    }
    let mut taken: HashSet<NodeId> = HashSet::new();
    let mut groups = Vec::new();
    for index in (0..model.nodes.len()).rev() {
        let id = NodeId(index as u32);
        if !is_candidate[index] || taken.contains(&id) {
            continue;
        }
        let group = group_of(validated, &uses, &is_candidate, id, &taken);
        let node = model.node(id);
        let gives_values = |id: &NodeId| {
            validated.inference().outputs(*id).first().is_none_or(|facts| facts.element_type != ElementType::Boolean)
        };
        if group.len() > 1 && !group.iter().any(gives_values) {
            trace.declined(node, || "truth values alone are faster as bytes, layer by layer".to_owned());
        } else if group.len() > 1 {
            let others = group.iter().filter(|member| **member != id).map(|member| model.node(*member));
            trace.applied(node, || format!("takes {}", all_named(others)));
            taken.extend(&group);
            groups.push(group);
        } else {
            trace.declined(node, || "no elementwise layer of its shape is read by it alone".to_owned());
        }
    }
    (!groups.is_empty()).then(|| fuse(model, &groups))
}

/// The layers that end in `last`, in topological order.
fn group_of(
    validated: &Validated,
    uses: &Uses,
    is_candidate: &[bool],
    last: NodeId,
    taken: &HashSet<NodeId>,
) -> Vec<NodeId> {
    let model = validated.model();
    let mut group = vec![last];
    let mut at = 0;
    // Later layers are looked at first, so that all readers of a layer have been seen before it.
    while at < group.len() {
        group[at..].sort_unstable_by(|a, b| b.cmp(a));
        let node = model.node(group[at]);
        at += 1;
        for source in value_inputs(validated, node) {
            let id = source.node;
            let fits = is_candidate[id.index()]
                && !taken.contains(&id)
                && !group.contains(&id)
                && uses.all_readers_in(id, &group)
                && is_same_shape(validated, id, last);
            if fits {
                group.push(id);
                if !is_small(validated, uses, last, &group) {
                    group.pop();
                }
            }
        }
    }
    group.sort_unstable();
    group
}

/// Whether a group with the layer `last` has few layers, takes few values from outside, few of them codes of channels, and
/// keeps few alive.
fn is_small(validated: &Validated, uses: &Uses, last: NodeId, group: &[NodeId]) -> bool {
    let model = validated.model();
    let has_channels = |id: &&NodeId| {
        let decode = model.node(**id).operation.downcast_ref::<Decode>();
        decode.is_some_and(|decode| decode.levels.whole().is_none())
    };
    let channels = group.iter().filter(has_channels).count();
    let mut sorted = group.to_vec();
    sorted.sort_unstable();
    let mut outside: Vec<Source> = Vec::new();
    let mut is_alive = vec![false; sorted.len()];
    let (mut alive, mut most) = (0, 0);
    for (place, id) in sorted.iter().enumerate().rev() {
        alive -= usize::from(std::mem::take(&mut is_alive[place]));
        for source in &model.node(*id).inputs {
            if let Ok(inside) = sorted.binary_search(&source.node) {
                alive += usize::from(!std::mem::replace(&mut is_alive[inside], true));
            } else if !uses.is_single(validated, *source) || !is_f32(validated, *source) {
                // Single numbers are kept with the steps.
                outside.push(*source);
            }
        }
        most = most.max(alive);
    }
    outside.sort_unstable();
    outside.dedup();
    let mut layers = MOST_LAYERS;
    if has_few_elements(validated, uses, last, &outside) {
        layers = MOST_SMALL_LAYERS;
        outside.retain(|source| !uses.is_constant(source.node));
    }
    group.len() <= layers && channels <= MOST_OF_CHANNELS && outside.len() <= MOST_INPUTS && most <= MOST_ALIVE
}

/// Whether the values of a group are few and those from outside as many, or constants; none that enters or leaves is an
/// integer, a code or a truth value.
fn has_few_elements(validated: &Validated, uses: &Uses, last: NodeId, outside: &[Source]) -> bool {
    let elements_of = |shape: &PartialShape| shape.to_shape().map(|shape| shape.elements());
    let elements = shape(validated, last).and_then(elements_of);
    let is_few = elements.is_some_and(|elements| (1..=FEW_ELEMENTS).contains(&elements));
    let is_whole = |source: &Source| {
        is_f32(validated, *source)
            && (uses.is_constant(source.node) || elements_of(&validated.inference().get(*source).shape) == elements)
    };
    let gives_f32 = is_f32(validated, Source { node: last, port: 0 });
    is_few && gives_f32 && outside.iter().all(is_whole)
}

/// The inputs that may come from inside a group: parameters of functions of one value may not.
fn value_inputs<'a>(validated: &Validated, node: &'a Node) -> &'a [Source] {
    let reads_bytes = |source: &Source| validated.inference().get(*source).element_type == ElementType::U8;
    let count = match &*node.type_name {
        _ if node.inputs.first().is_some_and(reads_bytes) => 0,
        "Select" => 3,
        _ if is_of_two(node) => 2,
        _ => 1,
    };
    node.inputs.get(..count).unwrap_or(&[])
}

fn is_elementwise(validated: &Validated, uses: &Uses, id: NodeId, node: &Node) -> bool {
    let known = shape(validated, id).is_some_and(|shape| shape.rank().is_some());
    if node.operation.downcast_ref::<Decode>().is_some() {
        return known;
    }
    if node.operation.downcast_ref::<Convert>().is_some() {
        return known && converts_bytes(validated, uses, node);
    }
    if let Some(encode) = node.operation.downcast_ref::<Encode>() {
        return known && encode.levels.whole().is_some();
    }
    let has_constant_parameters = || node.inputs.iter().skip(1).all(|source| uses.is_single(validated, *source));
    let is_function = UNARY.contains(&&*node.type_name)
        && has_constant_parameters()
        && (!node.is("FakeQuantize") || broadcasts(node))
        || is_of_two(node) && broadcasts(node)
        || is_broadcast_prelu(validated, uses, node);
    let depends_on_data = node.inputs.iter().any(|source| !uses.is_constant(source.node));
    known && is_function && depends_on_data && node.inputs.iter().all(|source| is_f32(validated, *source))
}

/// Whether a layer broadcasts as numpy does.
fn broadcasts(node: &Node) -> bool {
    node.operation.attributes().iter().any(|(name, text)| *name == "auto_broadcast" && text == "numpy")
}

/// Whether a layer makes something of truth values that other candidates give, or chooses of f32. Other functions of truth
/// values stay in bytes, which are faster.
fn is_logical(validated: &Validated, is_candidate: &[bool], node: &Node) -> bool {
    let type_of = |source: &Source| validated.inference().get(*source).element_type;
    let of_group = |source: &Source| type_of(source) == ElementType::Boolean && is_candidate[source.node.index()];
    let has_shape = |source: &Source| validated.inference().get(*source).shape.rank().is_some();
    let all_have_shapes = || node.inputs.iter().all(has_shape);
    match (&*node.type_name, &node.inputs[..]) {
        ("Select", [_, yes, _]) => type_of(yes) == ElementType::F32 && broadcasts(node) && all_have_shapes(),
        (name, [truth]) => NEGATIONS.contains(&name) && of_group(truth),
        (name, [a, b]) => {
            TRUTHS.contains(&name) && (of_group(a) || of_group(b)) && broadcasts(node) && all_have_shapes()
        }
        _ => false,
    }
}

/// Whether a layer is a function of two values or of two truth values.
fn is_of_two(node: &Node) -> bool {
    [BINARY, REMAINDERS, COMPARISONS, TRUTHS].iter().any(|names| names.contains(&&*node.type_name))
}

/// Whether a layer is a Convert to f32.
fn is_to_f32(node: &Node) -> bool {
    let convert = node.operation.downcast_ref::<Convert>();
    convert.is_some_and(|convert| convert.attributes.destination_type == ElementType::F32)
}

/// Whether a layer makes values of bytes or of truth values, or bytes of values that a Clamp in front of it, which it alone
/// reads, keeps within theirs.
fn converts_bytes(validated: &Validated, uses: &Uses, node: &Node) -> bool {
    let [data] = node.inputs[..] else { return false };
    let (from, to_f32) = (validated.inference().get(data).element_type, is_to_f32(node));
    let to_u8 =
        node.operation.downcast_ref::<Convert>().is_some_and(|c| c.attributes.destination_type == ElementType::U8);
    let is_within = |clamp: &Clamp| clamp.attributes.min >= 0.0 && clamp.attributes.max <= 255.0;
    let producer = || validated.model().node(data.node).operation.downcast_ref::<Clamp>();
    matches!(from, ElementType::U8 | ElementType::Boolean) && to_f32 && !uses.is_constant(data.node)
        || from == ElementType::F32 && to_u8 && producer().is_some_and(is_within) && uses.of(data.node).len() == 1
}

/// Whether a layer is a PReLU whose slope is a constant that surely broadcasts to the data as numpy does; a slope of one axis
/// may be that of channels instead, and one that does not fit is an error of its own layer.
fn is_broadcast_prelu(validated: &Validated, uses: &Uses, node: &Node) -> bool {
    let [data, slope] = node.inputs[..] else { return false };
    if !node.is("PReLU") || !uses.is_constant(slope.node) {
        return false;
    }
    let dims = |source| validated.inference().get(source).shape.dims();
    let (Some(data), Some(dims)) = (dims(data), dims(slope)) else { return false };
    let fits = |(size, of): (&Dim, &Dim)| size.get() == Some(1) || size.is_same(*of);
    let is_broadcast =
        dims.len() >= 2 && dims.len() <= data.len() && dims.iter().rev().zip(data.iter().rev()).all(fits);
    is_broadcast || uses.is_single(validated, slope) && dims.len() < 2
}

/// Whether a layer is a function of single values.
pub(crate) fn is_function(node: &Node) -> bool {
    UNARY.contains(&&*node.type_name) || BINARY.contains(&&*node.type_name)
}

fn shape(validated: &Validated, id: NodeId) -> Option<&PartialShape> {
    validated.inference().outputs(id).first().map(|facts| &facts.shape)
}

fn is_f32(validated: &Validated, source: Source) -> bool {
    validated.inference().get(source).element_type == ElementType::F32
}

fn is_same_shape(validated: &Validated, a: NodeId, b: NodeId) -> bool {
    let (Some(a), Some(b)) = (shape(validated, a), shape(validated, b)) else { return false };
    match (a.dims(), b.dims()) {
        (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.is_same(*y)),
        _ => false,
    }
}
