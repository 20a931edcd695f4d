//! Stores weights that a FakeQuantize rounds as what they are then: codes of one signed byte, and scales.
//!
//! Exporters that do not compress what they quantise write the weights as they were, in f32, in halves or as bytes, and a
//! FakeQuantize behind them. What computes in bytes looks for codes.

use std::ops::Range;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::common::broadcast::AutoBroadcast;
use ovir_ops::quantization::fake_quantize::{FakeQuantize, quantize_f32};
use ovir_tensor::dispatch::FromElement;
use ovir_tensor::{ElementType, Shape, Tensor, dispatch};

use crate::chain::{Added, Uses, constant, remove_unread, stored};
use crate::count_booleans::conversion;
use crate::fold_scales::multiply;
use crate::split_quantizers::is_usual;
use crate::trace::Trace;

/// The layers whose weights are their second input.
const READERS: &[&str] =
    &["Convolution", "ConvolutionBackpropData", "GroupConvolution", "GroupConvolutionBackpropData", "MatMul"];

/// Stores all such weights; `None` if there are none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut replaced: Vec<NodeId> = Vec::new();
    for (id, node) in model.iter() {
        let Some(operation) = node.operation.downcast_ref::<FakeQuantize>() else { continue };
        let Some(last) = last_layer(model, &uses, id) else { continue };
        let shape = validated.inference().get(Source { node: last, port: 0 }).shape.to_shape();
        let coded = match Coded::of(validated, node, operation, shape) {
            Ok(coded) => coded,
            Err(reason) => {
                trace.declined(node, || reason.to_owned());
                continue;
            }
        };
        trace.applied(node, || "is stored as codes of a signed byte, and scales".to_owned());
        let mut added = Added::new(&changed);
        let name = |part: &str| format!("{}/{part}", node.friendly_name);
        let codes = added.add(Node::constant(name("codes"), coded.codes));
        let values = added.add(conversion(&name("values"), codes, ElementType::F32));
        let scales = added.add(Node::constant(name("scales"), coded.scales));
        added.put(&mut changed, last, multiply(&model.node(last).friendly_name, vec![values, scales]));
        replaced.extend((id != last).then_some(id));
        for input in &node.inputs {
            replaced.push(input.node);
            replaced.extend(model.node(input.node).inputs.iter().map(|source| source.node));
        }
    }
    if replaced.is_empty() {
        return None;
    }
    remove_unread(&mut changed, replaced);
    changed.sort().then_some(changed)
}

/// The layer whose value is the weights of others: a FakeQuantize of a constant, or the Reshape behind it.
fn last_layer(model: &Model, uses: &Uses, id: NodeId) -> Option<NodeId> {
    uses.is_constant(id).then_some(())?;
    let are_weights = |id: NodeId| {
        let value = Source { node: id, port: 0 };
        let is_weights = |reader: &Node| {
            READERS.iter().any(|name| reader.is(name))
                && reader.inputs.iter().enumerate().all(|(port, source)| (*source == value) == (port == 1))
        };
        let readers = uses.of(id);
        !readers.is_empty() && readers.iter().all(|reader| is_weights(model.node(*reader)))
    };
    if are_weights(id) {
        return Some(id);
    }
    let next = uses.only_reader(id)?;
    (model.node(next).operation.is_reshape() && are_weights(next)).then_some(next)
}

/// Weights as codes.
struct Coded {
    /// Signed bytes.
    codes: Tensor,
    /// One scale, or one for each index of some axes side by side.
    scales: Tensor,
}

impl Coded {
    /// The codes of what a FakeQuantize makes of a constant, in this shape; or why there are none.
    fn of(
        validated: &Validated,
        node: &Node,
        operation: &FakeQuantize,
        shape: Option<Shape>,
    ) -> Result<Coded, &'static str> {
        const COMPUTED: &str = "its data are computed, or no f32";
        let steps = operation.levels.checked_sub(1).and_then(|steps| u8::try_from(steps).ok());
        let steps = steps.filter(|steps| *steps > 0).ok_or("it has more than 256 levels")?;
        let data = *node.inputs.first().ok_or(COMPUTED)?;
        let facts = validated.inference().get(data);
        let is_f32 = facts.element_type == ElementType::F32;
        let data_shape = facts.shape.to_shape().ok_or(COMPUTED)?;
        let is_numpy = operation.broadcast.auto_broadcast == AutoBroadcast::Numpy;
        let limits = is_numpy.then(|| Limits::of(validated, node, &data_shape));
        let limits =
            limits.flatten().ok_or("its limits are no constants of the whole tensor or of axes side by side")?;
        let shape = shape.ok_or(COMPUTED)?;
        let scale_shape = limits.scale_shape(&data_shape, &shape).ok_or("it is reshaped across its limits")?;
        let [from_low, from_high, low, high] = &limits.values;
        let are_usual = from_low.iter().zip(from_high).all(|(low, high)| is_usual(*low, *high));
        are_usual.then_some(()).ok_or("its limits are not in order")?;
        let zeros = limits.zeros(steps).ok_or("zero is no level of it, or its codes are no signed bytes")?;
        let scales: Vec<f32> = low.iter().zip(high).map(|(low, high)| (high - low) / f32::from(steps)).collect();
        // What is no number has no code.
        let code = |(index, value): (usize, f32)| {
            let channel = index / limits.inner % zeros.len();
            let numbers = [value, from_low[channel], from_high[channel], 0.0, f32::from(steps)];
            let code = quantize_f32(numbers, f32::from(steps)).round();
            (!code.is_nan()).then(|| (code as i32 - zeros[channel]) as i8)
        };
        let tensor = stored(validated, data).filter(|_| is_f32).ok_or(COMPUTED)?;
        let aligned = tensor.aligned().map_err(|_| COMPUTED)?;
        let codes: Option<Vec<i8>> = dispatch!(aligned.element_type(), T in [native] => {
            let values = aligned.slice::<T>().map_err(|_| COMPUTED)?;
            values.iter().map(|value| f32::from_element(*value)).enumerate().map(code).collect()
        } else { return Err(COMPUTED) });
        let codes = codes.ok_or("some of its data are no numbers")?;
        tensor.release();
        let codes = Tensor::from_slice(&codes, shape).map_err(|_| COMPUTED)?;
        let scales = Tensor::from_slice(&scales, scale_shape).map_err(|_| COMPUTED)?;
        Ok(Coded { codes, scales })
    }
}

/// The limits of a FakeQuantize, one of each kind or one for each index of some axes side by side.
struct Limits {
    /// Of the input, low and high, and of the output.
    values: [Vec<f32>; 4],
    /// The axes of the data.
    axes: Range<usize>,
    /// The elements of the data that follow one another with the same limits.
    inner: usize,
}

impl Limits {
    fn of(validated: &Validated, node: &Node, data: &Shape) -> Option<Limits> {
        // From the first axis along which some limit differs to the last.
        let mut axes = data.rank()..0;
        let mut limit = |port: usize| {
            let source = *node.inputs.get(port)?;
            let shape = validated.inference().get(source).shape.to_shape()?;
            let skipped = data.rank().checked_sub(shape.rank())?;
            for (place, _) in shape.iter().enumerate().filter(|(_, size)| **size != 1) {
                axes = axes.start.min(place + skipped)..axes.end.max(place + skipped + 1);
            }
            constant(validated, source).filter(|values| values.iter().all(|value| value.is_finite()))
        };
        let values = [limit(1)?, limit(2)?, limit(3)?, limit(4)?];
        let axes = axes.start.min(axes.end)..axes.end;
        let count: usize = data[axes.clone()].iter().product();
        // One for each index, or one.
        let are_whole = values.iter().all(|values| values.len() == 1 || values.len() == count);
        let spread = |values: Vec<f32>| if values.len() == 1 { vec![values[0]; count] } else { values };
        let inner = data[axes.end..].iter().product();
        (count > 0 && are_whole).then(|| Limits { values: values.map(spread), axes, inner })
    }

    /// The code of zero of each, of so many steps, if these are integers and all codes less them are signed bytes.
    fn zeros(&self, steps: u8) -> Option<Vec<i32>> {
        let [.., low, high] = &self.values;
        let zero = |(low, high): (&f32, &f32)| {
            let zero = -f64::from(*low) / (f64::from(*high) - f64::from(*low)) * f64::from(steps);
            let rounded = zero.round();
            let is_level = low < high && (zero - rounded).abs() < 1e-3;
            (is_level && rounded <= 128.0 && f64::from(steps) - rounded <= 127.0).then_some(rounded as i32)
        };
        low.iter().zip(high).map(zero).collect()
    }

    /// The shape in which scales broadcast to the data in another shape.
    fn scale_shape(&self, data: &Shape, shape: &Shape) -> Option<Shape> {
        (!shape.contains(&0)).then_some(())?;
        if self.values[0].len() == 1 {
            return Some(Shape::default());
        }
        if data == shape {
            let size = |(axis, size): (usize, &usize)| if self.axes.contains(&axis) { *size } else { 1 };
            return Some(shape.iter().enumerate().map(size).collect());
        }
        // The first axes become other first axes of as many indices.
        (self.axes.start == 0).then_some(())?;
        let (mut left, mut sizes) = (self.values[0].len(), Vec::with_capacity(shape.rank()));
        for size in shape.iter().copied() {
            let size = if left == 1 { 1 } else { size };
            left.is_multiple_of(size).then(|| left /= size)?;
            sizes.push(size);
        }
        (left == 1).then(|| Shape::from(&sizes[..]))
    }
}
