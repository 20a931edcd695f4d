//! Fuses what stands around a product or a convolution of i32 with a constant, as quantised ONNX models have them: in front
//! of it the Converts of codes and the Subtract of their zero, behind it the Convert of the sums.
//!
//! `u8 → Convert → Subtract(Convert(zero)) → MatMul → Convert → f32`, where the Subtract is optional. Kernels then read the
//! codes as they are, multiply bytes and write what the sums are as f32. Layers that read the same difference each take the
//! codes; what nobody reads any more is removed.

use std::ops::RangeInclusive;
use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::arithmetic::subtract::Subtract;
use ovir_ops::convolution::{convolution::Convolution, group_convolution::GroupConvolution};
use ovir_ops::fused::{Stage, StageInput};
use ovir_ops::matrix::matmul::MatMul;
use ovir_ops::r#type::convert::Convert;
use ovir_tensor::{ElementType, Shape};

use crate::chain::{Uses, become_fused, remove_unread};
use crate::split_quantizers::{MOST_BYTE_TERMS, MOST_CODE_TAPS, channels_read, is_byte_group};
use crate::trace::{Trace, all_named};

/// The largest magnitude of a constant, which is a byte without its zero.
const LARGEST: u32 = 255;

/// The most terms of a sum whose constants are as large.
const MOST_LARGE_TERMS: usize = i32::MAX as usize / (255 * 255);

/// Fuses all such layers; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut replaced: Vec<NodeId> = Vec::new();
    for (id, node) in model.iter() {
        let Some(data) = data_of(validated, &uses, id, node) else { continue };
        let Some(behind) = uses.only_reader(id).filter(|reader| converts(validated, *reader, ElementType::F32)) else {
            trace.declined(node, || "its sums are read as integers".to_owned());
            continue;
        };
        if let Err(why) = fits(validated, node) {
            trace.declined(node, || why.to_owned());
            continue;
        }
        trace.applied(node, || {
            let others = data.layers.iter().chain([&behind]).map(|other| model.node(*other));
            format!("takes {}", all_named(others))
        });
        changed.nodes[behind.index()] = fuse(model, id, &data, behind);
        replaced.push(id);
        replaced.extend(data.layers);
    }
    (!replaced.is_empty()).then(|| {
        remove_unread(&mut changed, replaced);
        changed
    })
}

/// The codes that a layer multiplies.
struct Data {
    codes: Source,
    /// The code that stands for zero, one element.
    zero: Option<Source>,
    /// The layers that make integers of both, in order.
    layers: Vec<NodeId>,
}

/// The codes that a product or a convolution of i32 with a constant multiplies.
fn data_of(validated: &Validated, uses: &Uses, id: NodeId, node: &Node) -> Option<Data> {
    let (model, inference) = (validated.model(), validated.inference());
    let operation = &node.operation;
    let is_root = operation.downcast_ref::<MatMul>().is_some()
        || operation.downcast_ref::<Convolution>().is_some()
        || operation.downcast_ref::<GroupConvolution>().is_some();
    let [data, weights] = node.inputs[..] else { return None };
    let is_i32 = inference.get(Source { node: id, port: 0 }).element_type == ElementType::I32;
    (is_root && is_i32 && uses.is_constant(weights.node) && !uses.is_constant(data.node)).then_some(())?;
    let codes_of = |source: Source| {
        let codes = *model.node(source.node).inputs.first()?;
        let are_bytes = inference.get(codes).element_type == ElementType::U8;
        (are_bytes && converts(validated, source.node, ElementType::I32)).then_some(codes)
    };
    if let Some(codes) = codes_of(data) {
        return Some(Data { codes, zero: None, layers: vec![data.node] });
    }
    let difference = model.node(data.node);
    let [from, zero] = difference.inputs[..] else { return None };
    difference.operation.downcast_ref::<Subtract>()?;
    let rank = |source: Source| inference.get(source).shape.rank();
    let is_single = inference.get(zero).shape.to_shape().is_some_and(|shape| shape.elements() == 1);
    (is_single && rank(zero)? <= rank(from)?).then_some(())?;
    let data =
        Data { codes: codes_of(from)?, zero: Some(codes_of(zero)?), layers: vec![from.node, zero.node, data.node] };
    Some(data)
}

/// Whether a layer is a Convert to a type.
fn converts(validated: &Validated, id: NodeId, to: ElementType) -> bool {
    let convert = validated.model().node(id).operation.downcast_ref::<Convert>();
    convert.is_some_and(|convert| convert.attributes.destination_type == to)
}

/// Whether bytes hold the constant of a layer, and i32 its sums, for any size of its data; else why not.
fn fits(validated: &Validated, node: &Node) -> Result<(), &'static str> {
    let (Some(data), Some(weights)) = (node.inputs.first(), node.inputs.get(1)) else {
        return Err("it has no constant");
    };
    let inference = validated.inference();
    let Some(shape) = inference.get(*weights).shape.to_shape() else { return Err("its constant has no known shape") };
    let rank = inference.get(*data).shape.rank();
    let terms = if let Some(product) = node.operation.downcast_ref::<MatMul>() {
        let Some((batch, matrix)) = shape.rank().checked_sub(2).map(|at| shape.split_at(at)) else {
            return Err("its constant is a vector");
        };
        if product.attributes.transpose_a || batch.iter().any(|size| *size != 1) || rank.is_none_or(|rank| rank < 2) {
            return Err("it is not the product of rows with one matrix");
        }
        matrix[usize::from(product.attributes.transpose_b)]
    } else if node.operation.downcast_ref::<GroupConvolution>().is_some() {
        let taps = shape.get(3..).map_or(0, |taps| taps.iter().product());
        let is_depthwise = matches!(shape[..], [_, 1, 1, _] | [_, 1, 1, _, _]) && taps <= MOST_CODE_TAPS;
        if !(4..=6).contains(&shape.rank()) || !is_depthwise && !is_byte_group(shape[1], shape[2]) {
            return Err("its groups are not those of blocks");
        }
        if is_depthwise { taps } else { channels_read(shape[1], shape[2]).saturating_mul(taps) }
    } else {
        if !(3..=5).contains(&shape.rank()) {
            return Err("its constant is no filter");
        }
        shape[1..].iter().product()
    };
    let Some(range) = range_of(validated, *weights, &shape).filter(|_| shape.elements() > 0) else {
        return Err("bytes do not hold its constant");
    };
    let are_signed_bytes = *range.start() >= i32::from(i8::MIN) && *range.end() <= i32::from(i8::MAX);
    if terms > if are_signed_bytes { MOST_BYTE_TERMS } else { MOST_LARGE_TERMS } {
        return Err("i32 does not surely hold its sums");
    }
    Ok(())
}

/// Where the elements of a constant lie, if bytes hold them but for an integer that is the same for all.
fn range_of(validated: &Validated, source: Source, shape: &Shape) -> Option<RangeInclusive<i32>> {
    let (model, inference) = (validated.model(), validated.inference());
    let node = model.node(source.node);
    if let Some(tensor) = node.tensor() {
        let aligned = tensor.aligned().ok()?;
        let values = aligned.slice::<i32>().ok()?;
        let (low, high) = values.iter().fold((i32::MAX, i32::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        let fits = high.abs_diff(low) <= LARGEST && high.unsigned_abs().max(low.unsigned_abs()) <= LARGEST;
        return fits.then_some(low..=high);
    }
    let of_bytes = |source: Source| {
        let from = inference.get(*model.node(source.node).inputs.first()?).element_type;
        converts(validated, source.node, ElementType::I32).then_some(())?;
        match from {
            ElementType::I8 => Some(-128..=127),
            ElementType::U8 => Some(0..=255),
            _ => None,
        }
    };
    if node.operation.downcast_ref::<Subtract>().is_some() {
        let [from, zero] = node.inputs[..] else { return None };
        let [of_from, of_zero] = [inference.get(from).shape.to_shape()?, inference.get(zero).shape.to_shape()?];
        let (all, zero) = (of_bytes(from)?, of_bytes(zero)?);
        // Both are of one type, so that the difference of two is not larger than the range of one.
        return (of_from == *shape && of_zero.elements() == 1 && all == zero).then_some(-255..=255);
    }
    of_bytes(source)
}

/// The Convert `behind` a root as a layer that takes codes.
fn fuse(model: &Model, root: NodeId, data: &Data, behind: NodeId) -> Node {
    let stage = |id: NodeId, inputs: Vec<StageInput>| {
        let node = model.node(id);
        Stage {
            friendly_name: node.friendly_name.clone(),
            type_name: node.type_name.to_string(),
            operation: Arc::clone(&node.operation),
            inputs,
        }
    };
    let mut stages = Vec::with_capacity(data.layers.len() + 2);
    let mut outside = vec![data.codes];
    for (place, id) in data.layers.iter().enumerate() {
        stages.push(stage(
            *id,
            match place {
                2 => vec![StageInput::Stage(0), StageInput::Stage(1)],
                _ => vec![StageInput::Outside(place)],
            },
        ));
    }
    outside.extend(data.zero);
    outside.extend(model.node(root).inputs.get(1));
    let (last, weights) = (stages.len() - 1, outside.len() - 1);
    stages.push(stage(root, vec![StageInput::Stage(last), StageInput::Outside(weights)]));
    stages.push(stage(behind, vec![StageInput::Stage(last + 1)]));
    let mut node = model.node(behind).clone();
    become_fused(&mut node, stages);
    node.inputs = outside;
    node
}
