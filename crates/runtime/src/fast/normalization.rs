//! Normalisations of f32: mean and variance, root mean square, L2, groups, batches, and local responses.

use ovir_graph::Node;
use ovir_kernels::blocked::{
    GroupMeanVariance, MeanVariance, blocked_channel_normalization, blocked_group_normalization, blocked_mean_variance,
    blocked_mean_variance_scratch_len,
};
use ovir_kernels::chain::{ChainInput, ChainOutput};
use ovir_kernels::elementwise::{BinaryOp, BroadcastGeometry, binary, binary_in_place};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::local_response::{Boxes, local_response_of_boxes};
use ovir_kernels::movement::StridedCopy;
use ovir_kernels::normalization::{
    Affine, Normalization, local_response_normalization, normalization_nanoseconds, normalize,
};
use ovir_kernels::quantized::{Dequantizer, Quantizer, dequantize, quantize};
use ovir_kernels::unary::{UnaryOp, unary_f32_in_place};
use ovir_ops::codes::{Decode, Encode};
use ovir_ops::fused::{Fused, Stage};
use ovir_ops::normalization::{
    batch_norm_inference::BatchNormInference,
    group_normalization::GroupNormalization,
    lrn::{Lrn, LrnAttributes},
    mvn::{EpsMode, Mvn},
    normalize_l2::{NormalizeEpsMode, NormalizeL2},
};
use ovir_ops::reduction::reduce_mean::ReduceMean;
use ovir_ops::{Blame, OpError, OpResult, Operation, ValueFacts};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::layout::{around_all, axis_of, chosen};
use super::parts::{floats, kernel_error, scratch_f32, unary_op};
use super::quantized::{dequantizer_of, quantizer_of};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};
use crate::layout::sizes;

/// Which axes a row consists of.
enum Axes {
    List(SmallVec<[i64; 8]>),
    From(usize),
}

/// Rows along axes that lie side by side, normalised one by one.
struct RowKernel {
    isa: Isa,
    axes: Axes,
    subtract_mean: bool,
    divide: bool,
    epsilon: f64,
    epsilon_inside: bool,
    /// Whether the sum of the squares counts, not their mean.
    is_sum: bool,
    /// The input that is multiplied afterwards, of one element for each position of a row.
    scale: Option<usize>,
    /// The input that is added last.
    bias: Option<usize>,
}

/// Mean and variance of channels in blocks.
struct BlockedRowKernel {
    isa: Isa,
    normalization: MeanVariance,
}

/// Mean and variance of the channels of each position in blocks, with the scale and the bias behind it.
struct BlockedChannelKernel {
    rows: RowKernel,
}

/// GroupNormalization, perhaps of values that are given by codes, with a function behind it and codes of the results.
struct GroupKernel {
    isa: Isa,
    groups: usize,
    epsilon: f32,
    decoded: Option<Dequantizer>,
    after: Option<UnaryOp>,
    encoded: Option<Quantizer>,
}

/// GroupNormalization of blocks of channels.
struct BlockedGroupKernel {
    group: GroupKernel,
}

/// BatchNormInference with constant parameters.
struct BatchKernel {
    isa: Isa,
    port: usize,
    scale: Vec<f32>,
    shift: Vec<f32>,
}

/// LRN over any axes.
struct BoxResponseKernel {
    isa: Isa,
    axes: SmallVec<[i64; 8]>,
    size: usize,
    alpha: f64,
    beta: f32,
    bias: f32,
}

/// LRN across channels.
struct LocalResponseKernel {
    isa: Isa,
    size: usize,
    alpha: f32,
    beta: f32,
    bias: f32,
}

/// Claims f32 normalisations.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let none = SmallVec::new();
    let operation = context.node.operation.clone();
    if let Some(kernel) = group_kernel(context) {
        return Some(Claim { kernel: Box::new(kernel), packed_inputs: none });
    }
    if context.inputs.first()?.element_type != ElementType::F32 {
        return None;
    }
    if let Some(kernel) = rows_and_affine(context) {
        return Some(Claim { kernel: Box::new(kernel), packed_inputs: none });
    }
    let isa = isa::detect();
    if let Some(lrn) = operation.downcast_ref::<Lrn>() {
        let LrnAttributes { alpha, beta, bias, size } = lrn.attributes;
        let axes = context.inputs.get(1)?.integers()?;
        let (beta, bias) = (beta as f32, bias as f32);
        let size = usize::try_from(size).ok().filter(|size| (1..1 << 20).contains(size))?;
        let kernel: Box<dyn Kernel> = match axes[..] {
            [] => return None,
            [1] if size % 2 == 1 => Box::new(LocalResponseKernel { isa, size, alpha: alpha as f32, beta, bias }),
            _ => Box::new(BoxResponseKernel { isa, axes, size, alpha, beta, bias }),
        };
        return Some(Claim { kernel, packed_inputs: none });
    }
    batch(context)
}

/// Whether a layer normalises mean and variance of each channel over all positions.
pub(crate) fn is_of_channels(node: &Node, inputs: &[&ValueFacts]) -> bool {
    let (Some(kernel), Some(rank)) =
        (rows(&*node.operation, inputs), inputs.first().and_then(|data| data.shape.rank()))
    else {
        return false;
    };
    let is_whole = match &kernel.axes {
        Axes::From(first) => *first == 2,
        Axes::List(axes) => {
            let holds = |axis: usize| axes.iter().any(|given| axis_of(*given, rank) == Some(axis));
            !holds(0) && !holds(1) && (2..rank).all(holds) && axes.iter().all(|axis| axis_of(*axis, rank).is_some())
        }
    };
    kernel.subtract_mean && !kernel.is_sum && is_whole
}

/// The kernel of a normalisation of rows, with the scale and the bias behind it if it was fused with them.
fn rows_and_affine(context: &mut ClaimContext<'_>) -> Option<RowKernel> {
    let operation = context.node.operation.clone();
    match operation.downcast_ref::<Fused>() {
        Some(fused) => of_stages(&fused.stages, context),
        None => rows(&*operation, context.inputs),
    }
}

/// Whether a layer normalises mean and variance of the channels of each position, which may be multiplied by values of the
/// channels and summed with such then.
pub(crate) fn is_of_positions(node: &Node, inputs: &[&ValueFacts]) -> bool {
    let (mvn, axes) = match node.operation.downcast_ref::<Fused>().map(|fused| &fused.stages[..]) {
        Some([first, ..]) => (&first.operation, first.outside(1)),
        Some([]) => return false,
        None => (&node.operation, Some(1)),
    };
    let (Some(data), Some(axes)) = (inputs.first(), axes.and_then(|port| inputs.get(port))) else { return false };
    let is_channel = |axis: i64| data.shape.rank().is_some_and(|rank| axis_of(axis, rank) == Some(1));
    mvn.downcast_ref::<Mvn>().is_some() && axes.integers().is_some_and(|axes| axes.len() == 1 && is_channel(axes[0]))
}

/// The stages of a layer that normalises groups of channels.
struct GroupStages<'a> {
    group: &'a GroupNormalization,
    decode: Option<&'a Decode>,
    after: Option<&'a Stage>,
    encode: Option<&'a Encode>,
}

/// Those of a layer, if it is such a one.
fn group_stages(node: &Node) -> Option<GroupStages<'_>> {
    let group = |operation: &'_ dyn Operation| operation.downcast_ref::<GroupNormalization>().is_some();
    let Some(fused) = node.operation.downcast_ref::<Fused>() else {
        let group = node.operation.downcast_ref::<GroupNormalization>()?;
        return Some(GroupStages { group, decode: None, after: None, encode: None });
    };
    let place = fused.stages.iter().position(|stage| group(&*stage.operation))?;
    let (before, [own, behind @ ..]) = fused.stages.split_at(place) else { return None };
    let decode = match before {
        [] => None,
        [decode] => Some(decode.operation.downcast_ref::<Decode>()?),
        _ => return None,
    };
    let encode = behind.last().and_then(|stage| stage.operation.downcast_ref::<Encode>());
    let after = match &behind[..behind.len() - usize::from(encode.is_some())] {
        [] => None,
        [after] => Some(after),
        _ => return None,
    };
    Some(GroupStages { group: own.operation.downcast_ref::<GroupNormalization>()?, decode, after, encode })
}

/// Whether a layer normalises groups of channels.
pub(crate) fn is_of_groups(node: &Node) -> bool {
    group_stages(node).is_some()
}

/// The kernel of a GroupNormalization on plain data.
fn group_kernel(context: &mut ClaimContext<'_>) -> Option<GroupKernel> {
    let node = context.node;
    let GroupStages { group, decode, after, encode } = group_stages(node)?;
    let wanted = if decode.is_some() { ElementType::U8 } else { ElementType::F32 };
    let is_f32 = |facts: &&ValueFacts| facts.element_type == ElementType::F32;
    (context.inputs.first()?.element_type == wanted && context.inputs[1..].iter().all(is_f32)).then_some(())?;
    let groups = usize::try_from(group.attributes.num_groups).ok().filter(|groups| *groups > 0)?;
    let after = match after {
        Some(stage) => {
            let mut parameter = |place: usize| floats(&(context.constant)(stage.outside(place)?)?)?.first().copied();
            let parameters: Option<SmallVec<[f32; 4]>> = (1..stage.inputs.len()).map(&mut parameter).collect();
            Some(unary_op(&*stage.operation, &parameters?)?)
        }
        None => None,
    };
    let decoded = match decode {
        Some(decode) => Some(dequantizer_of(&decode.levels)?),
        None => None,
    };
    let encoded = match encode {
        Some(encode) => Some(quantizer_of(&encode.levels)?),
        None => None,
    };
    Some(GroupKernel { isa: isa::detect(), groups, epsilon: group.attributes.epsilon as f32, decoded, after, encoded })
}

/// Claims normalisations of channels, of groups of them and of those of each position, that lie in blocks.
pub(crate) fn claim_blocked(context: &mut ClaimContext<'_>) -> Option<Claim> {
    if is_of_positions(context.node, context.inputs) {
        let kernel = BlockedChannelKernel { rows: rows_and_affine(context)? };
        return Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() });
    }
    if let Some(group) = group_kernel(context) {
        return Some(Claim { kernel: Box::new(BlockedGroupKernel { group }), packed_inputs: SmallVec::new() });
    }
    let RowKernel { isa, divide, epsilon, epsilon_inside, .. } =
        rows(&*context.node.operation, context.inputs).filter(|_| is_of_channels(context.node, context.inputs))?;
    let normalization = MeanVariance { divide, epsilon: epsilon as f32, epsilon_inside };
    Some(Claim { kernel: Box::new(BlockedRowKernel { isa, normalization }), packed_inputs: SmallVec::new() })
}

fn rows(operation: &dyn Operation, inputs: &[&ValueFacts]) -> Option<RowKernel> {
    let isa = isa::detect();
    let given = || inputs.get(1)?.integers().map(Axes::List);
    if let Some(mvn) = operation.downcast_ref::<Mvn>() {
        let attributes = &mvn.attributes;
        let axes = match (inputs.len(), attributes.reduction_axes.as_deref()) {
            (1, Some([]) | None) => Axes::From(if attributes.across_channels { 1 } else { 2 }),
            (1, Some(axes)) => Axes::List(SmallVec::from_slice(axes)),
            _ => given()?,
        };
        let epsilon_inside = matches!(attributes.eps_mode, EpsMode::InsideSqrt);
        return Some(RowKernel {
            isa,
            axes,
            subtract_mean: true,
            divide: attributes.normalize_variance,
            epsilon: attributes.eps,
            epsilon_inside,
            is_sum: false,
            scale: None,
            bias: None,
        });
    }
    let attributes = &operation.downcast_ref::<NormalizeL2>()?.attributes;
    if !matches!(attributes.eps_mode, NormalizeEpsMode::Add) {
        return None;
    }
    let axes = given()?;
    let epsilon = attributes.eps;
    Some(RowKernel { epsilon, is_sum: true, ..RowKernel::root_mean_square(axes) })
}

/// A normalisation of rows with the scale and the bias behind it.
fn of_stages(stages: &[Stage], context: &mut ClaimContext<'_>) -> Option<RowKernel> {
    let first = stages.first()?;
    let (mut kernel, len) = if first.type_name == "MVN" {
        let facts = |place: usize| first.outside(place).and_then(|port| context.inputs.get(port).copied());
        (rows(&*first.operation, &[facts(0)?, facts(1)?])?, 1)
    } else {
        root_mean_square(stages, context)?
    };
    for stage in &stages[len..] {
        let port = stage.outside(0).or_else(|| stage.outside(1))?;
        match &*stage.type_name {
            "Multiply" => kernel.scale = Some(port),
            "Add" => kernel.bias = Some(port),
            _ => return None,
        }
    }
    Some(kernel)
}

/// The stages that divide by the root of the mean square, and their number. The last one of them reads the data again.
fn root_mean_square(stages: &[Stage], context: &mut ClaimContext<'_>) -> Option<(RowKernel, usize)> {
    let [square, mean, sum, rest @ ..] = stages else { return None };
    mean.operation.downcast_ref::<ReduceMean>()?;
    let axes = context.inputs.get(mean.outside(1)?)?.integers().map(Axes::List)?;
    let epsilon = (context.constant)(sum.outside(0).or_else(|| sum.outside(1))?)?;
    let [epsilon] = floats(&epsilon)?[..] else { return None };
    let data = square.outside(0)?;
    let reads_data = |stage: &Stage| [stage.outside(0), stage.outside(1)].contains(&Some(data));
    let last = rest.iter().position(reads_data)?;
    Some((RowKernel { epsilon: f64::from(epsilon), ..RowKernel::root_mean_square(axes) }, last + 4))
}

fn batch(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = context.node.operation.clone();
    let batch = operation.downcast_ref::<BatchNormInference>()?;
    let (port, ports) = batch.ports;
    let mut values: [Vec<f32>; 4] = Default::default();
    for (values, port) in values.iter_mut().zip(ports) {
        *values = floats(&(context.constant)(port)?)?;
    }
    let [gamma, beta, mean, variance] = values;
    let epsilon = batch.attributes.epsilon;
    let factor = |c: usize| f64::from(gamma[c]) / (f64::from(variance[c]) + epsilon).sqrt();
    let channels = gamma.len();
    if [&beta, &mean, &variance].iter().any(|v| v.len() != channels) {
        return None;
    }
    let scale = (0..channels).map(|c| factor(c) as f32).collect();
    let shift = (0..channels).map(|c| (f64::from(beta[c]) - f64::from(mean[c]) * factor(c)) as f32).collect();
    let kernel = BatchKernel { isa: isa::detect(), port, scale, shift };
    let is_f32 = context.inputs.get(port)?.element_type == ElementType::F32;
    is_f32.then(|| Claim { kernel: Box::new(kernel), packed_inputs: ports.into_iter().collect() })
}

fn misfit() -> OpError {
    OpError::shape(Blame::Input(0), "the kernel does not fit the data")
}

impl RowKernel {
    fn root_mean_square(axes: Axes) -> RowKernel {
        RowKernel {
            isa: isa::detect(),
            axes,
            subtract_mean: false,
            divide: true,
            epsilon: 0.0,
            epsilon_inside: true,
            is_sum: false,
            scale: None,
            bias: None,
        }
    }

    /// What lies before the axes, in them and behind them, if they lie side by side.
    fn sizes(&self, shape: &Shape) -> Option<[usize; 3]> {
        match &self.axes {
            Axes::From(first) => {
                let product = |sizes: &[usize]| sizes.iter().product::<usize>();
                Some([product(shape.get(..*first)?), product(shape.get(*first..)?), 1])
            }
            Axes::List(axes) => {
                axes.iter().all(|axis| axis_of(*axis, shape.rank()).is_some()).then_some(())?;
                around_all(shape, axes)
            }
        }
    }
}

/// Rows whose elements do not lie side by side: how they are brought together and back.
struct Scattered {
    sizes: [usize; 3],
    gather: StridedCopy,
    scatter: StridedCopy,
}

impl Scattered {
    /// The bytes of the rows.
    fn bytes(&self) -> usize {
        self.gather.count().saturating_mul(size_of::<f32>())
    }
}

impl RowKernel {
    /// The rows of axes that do not lie side by side.
    fn scattered(&self, shape: &Shape) -> Option<Scattered> {
        let (Axes::List(axes), None, None) = (&self.axes, self.scale, self.bias) else { return None };
        let chosen = chosen(shape.rank(), axes)?;
        let mut order: SmallVec<[usize; 8]> = (0..shape.rank()).collect();
        order.sort_by_key(|axis| chosen[*axis]);
        let turned: SmallVec<[usize; 8]> = order.iter().map(|axis| shape[*axis]).collect();
        let kept = chosen.iter().filter(|chosen| !**chosen).count();
        let product = |sizes: &[usize]| sizes.iter().product::<usize>();
        let sizes = [product(&turned[..kept]), product(&turned[kept..]), 1];
        let mut back: SmallVec<[usize; 8]> = SmallVec::from_elem(0, order.len());
        order.iter().enumerate().for_each(|(place, axis)| back[*axis] = place);
        let gather = StridedCopy::transpose(shape, &order).ok()?;
        let scatter = StridedCopy::transpose(&turned, &back).ok()?;
        sizes.iter().all(|size| *size > 0).then_some(Scattered { sizes, gather, scatter })
    }
}

impl Kernel for RowKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let Some(data) = shapes.inputs.first() else { return false };
        let Some(sizes) = self.sizes(data) else { return self.scattered(data).is_some() };
        let is_row = |port: &usize| shapes.inputs.get(*port).is_some_and(|shape| shape.elements() == sizes[1]);
        sizes.iter().all(|size| *size > 0) && self.scale.iter().chain(&self.bias).all(is_row)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let Some(data) = shapes.inputs.first() else { return 0 };
        let sizes = self.sizes(data).or_else(|| self.scattered(data).map(|scattered| scattered.sizes));
        sizes.map_or(0, normalization_nanoseconds)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let scattered =
            shapes.inputs.first().filter(|data| self.sizes(data).is_none()).map(|data| self.scattered(data));
        scattered.flatten().map_or(0, |scattered| scattered.bytes().saturating_mul(2))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let sizes = self.sizes(data.shape());
        let scattered = if sizes.is_none() { self.scattered(data.shape()) } else { None };
        let sizes = sizes.or(scattered.as_ref().map(|scattered| scattered.sizes)).ok_or_else(misfit)?;
        let affine = |port: Option<usize>| match port {
            Some(port) => io.inputs[port].slice::<f32>().map(Affine::PerElement),
            None => Ok(Affine::None),
        };
        let normalization = Normalization {
            subtract_mean: self.subtract_mean,
            divide: self.divide,
            of_sum: self.is_sum,
            epsilon: self.epsilon as f32,
            epsilon_inside: self.epsilon_inside,
            scale: affine(self.scale)?,
            bias: affine(self.bias)?,
        };
        if let Some(scattered) = scattered {
            let missing = || OpError::shape(Blame::Node, "the scratch is too short");
            let (before, after) = io.scratch.split_at_mut_checked(scattered.bytes()).ok_or_else(missing)?;
            let after = after.get_mut(..scattered.bytes()).ok_or_else(missing)?;
            scattered.gather.run(size_of::<f32>(), data.bytes(), before).map_err(kernel_error)?;
            let (rows, target) = (scratch_f32(before), scratch_f32(after));
            normalize(self.isa, sizes, &normalization, rows, target).map_err(kernel_error)?;
            return scattered.scatter.run(size_of::<f32>(), after, output.bytes_mut()).map_err(kernel_error);
        }
        let target = output.slice_mut::<f32>()?;
        normalize(self.isa, sizes, &normalization, data.slice::<f32>()?, target).map_err(kernel_error)
    }
}

/// The scratch of a normalisation on blocks.
fn blocked_scratch_bytes(shapes: &StepShapes<'_>) -> usize {
    let sizes = shapes.inputs.first().and_then(|shape| sizes(shape));
    sizes.map_or(0, |[batch, channels, positions]| {
        blocked_mean_variance_scratch_len(batch, channels, positions).saturating_mul(size_of::<f32>())
    })
}

impl Kernel for BlockedRowKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.inputs.first().is_some_and(|shape| shape.elements() > 0)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        blocked_scratch_bytes(shapes)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64 / 3).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let sizes = sizes(data.shape()).ok_or_else(misfit)?;
        let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        blocked_mean_variance(self.isa, sizes, &self.normalization, values, target, scratch_f32(io.scratch))
            .map_err(kernel_error)
    }
}

impl Kernel for BlockedChannelKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let Some(data) = shapes.inputs.first() else { return false };
        let is_of_channels =
            |port: &usize| shapes.inputs.get(*port).map(|shape| shape.elements()) == data.get(1).copied();
        data.elements() > 0 && self.rows.scale.iter().chain(&self.rows.bias).all(is_of_channels)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.rows.work_nanoseconds(shapes)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let RowKernel { isa, divide, epsilon, epsilon_inside, .. } = self.rows;
        let normalization = MeanVariance { divide, epsilon: epsilon as f32, epsilon_inside };
        let data = &io.inputs[0];
        let sizes = sizes(data.shape()).ok_or_else(misfit)?;
        let values = |port: Option<usize>| port.map(|port| io.inputs[port].slice::<f32>()).transpose();
        let affine = [values(self.rows.scale)?, values(self.rows.bias)?];
        let (data, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        blocked_channel_normalization(isa, sizes, &normalization, affine, data, target).map_err(kernel_error)
    }
}

impl GroupKernel {
    fn sizes(&self, shape: &Shape) -> Option<(usize, usize)> {
        let [batch, channels, spatial @ ..] = &shape[..] else { return None };
        let rows = batch.checked_mul(self.groups)?;
        let in_group = channels.checked_div(self.groups).filter(|count| count * self.groups == *channels)?;
        let columns = spatial.iter().product::<usize>().checked_mul(in_group)?;
        (rows > 0 && columns > 0).then_some((rows, columns))
    }
}

impl Kernel for GroupKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let [data, scale, bias, ..] = shapes.inputs else { return false };
        let channels = data.get(1).copied().unwrap_or(0);
        self.sizes(data).is_some() && scale.elements() == channels && bias.elements() == channels
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let copies = usize::from(self.decoded.is_some()) + usize::from(self.encoded.is_some());
        let elements = shapes.outputs.first().map_or(0, |shape| shape.elements());
        elements.saturating_mul(copies * size_of::<f32>())
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64 / 3).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let (rows, columns) = self.sizes(data.shape()).ok_or_else(misfit)?;
        let normalization = Normalization {
            subtract_mean: true,
            divide: true,
            of_sum: false,
            epsilon: self.epsilon,
            epsilon_inside: true,
            scale: Affine::PerChannel { values: io.inputs[1].slice::<f32>()?, groups: self.groups },
            bias: Affine::PerChannel { values: io.inputs[2].slice::<f32>()?, groups: self.groups },
        };
        let sizes = [rows, columns, 1];
        let missing = || OpError::shape(Blame::Node, "the scratch is too short");
        let elements = data.elements();
        let mut scratch = scratch_f32(io.scratch);
        let values = match &self.decoded {
            Some(dequantizer) => {
                let (values, rest) = scratch.split_at_mut_checked(elements).ok_or_else(missing)?;
                scratch = rest;
                dequantize(self.isa, dequantizer, data.slice::<u8>()?, values).map_err(kernel_error)?;
                &*values
            }
            None => data.slice::<f32>()?,
        };
        let run = |target: &mut [f32]| {
            normalize(self.isa, sizes, &normalization, values, target).map_err(kernel_error)?;
            if let Some(after) = self.after {
                unary_f32_in_place(self.isa, after, target);
            }
            Ok(())
        };
        let Some(quantizer) = &self.encoded else { return run(output.slice_mut::<f32>()?) };
        let target = scratch.get_mut(..elements).ok_or_else(missing)?;
        run(target)?;
        quantize(self.isa, quantizer, target, output.slice_mut::<u8>()?).map_err(kernel_error)
    }
}

impl Kernel for BlockedGroupKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.group.accepts(shapes) && shapes.inputs.first().is_some_and(|shape| shape.elements() > 0)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        blocked_scratch_bytes(shapes)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.group.work_nanoseconds(shapes)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let GroupKernel { isa, groups, epsilon, decoded, after, encoded } = self.group;
        let (scale, bias) = (io.inputs[1].slice::<f32>()?, io.inputs[2].slice::<f32>()?);
        let (data, sizes) = (&io.inputs[0], sizes(io.inputs[0].shape()).ok_or_else(misfit)?);
        let normalization = GroupMeanVariance { groups, epsilon, scale, bias, after };
        let values = match decoded {
            Some(dequantizer) => ChainInput::Codes(data.slice::<u8>()?, dequantizer),
            None => ChainInput::Values(data.slice::<f32>()?),
        };
        let target = match encoded {
            Some(quantizer) => ChainOutput::Codes(output.slice_mut::<u8>()?, quantizer),
            None => ChainOutput::Values(output.slice_mut::<f32>()?),
        };
        blocked_group_normalization(isa, sizes, &normalization, values, target, scratch_f32(io.scratch))
            .map_err(kernel_error)
    }
}

impl BatchKernel {
    fn sizes(&self, shape: &Shape) -> Option<[usize; 3]> {
        let [batch, channels, spatial @ ..] = &shape[..] else { return None };
        (*channels == self.scale.len()).then(|| [*batch, *channels, spatial.iter().product()])
    }
}

impl Kernel for BatchKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.inputs.get(self.port).is_some_and(|shape| self.sizes(shape).is_some())
    }

    fn in_place_inputs(&self, _shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        SmallVec::from_slice(&[self.port])
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let sizes = self.sizes(output.shape()).ok_or_else(misfit)?;
        let geometry = BroadcastGeometry::new(&sizes, &[sizes[1], 1]).map_err(kernel_error)?;
        let target = output.slice_mut::<f32>()?;
        match io.in_place {
            Some(_) => binary_in_place(self.isa, BinaryOp::Mul, &geometry, target, &self.scale, true),
            None => {
                let data = io.inputs[self.port].slice::<f32>()?;
                binary(self.isa, BinaryOp::Mul, &geometry, data, &self.scale, target)
            }
        }
        .map_err(kernel_error)?;
        binary_in_place(self.isa, BinaryOp::Add, &geometry, target, &self.shift, true).map_err(kernel_error)
    }
}

impl BoxResponseKernel {
    fn boxes(&self, shape: &Shape) -> Option<Boxes> {
        Boxes::new(shape, &chosen(shape.rank(), &self.axes)?, self.size / 2).ok()
    }
}

impl Kernel for BoxResponseKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.inputs.first().is_some_and(|shape| self.boxes(shape).is_some())
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let boxes = shapes.inputs.first().and_then(|shape| self.boxes(shape));
        boxes.map_or(0, |boxes| boxes.scratch_len().saturating_mul(4))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, ..], [output]) = (io.inputs, io.outputs) else { return Ok(()) };
        let boxes = self.boxes(data.shape()).ok_or_else(misfit)?;
        let axes = chosen(data.shape().rank(), &self.axes).ok_or_else(misfit)?;
        let places = (self.size as f64).powi(axes.iter().filter(|chosen| **chosen).count() as i32);
        let factors = [(self.alpha / places) as f32, self.beta, self.bias];
        let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        local_response_of_boxes(self.isa, &boxes, factors, values, target, scratch_f32(io.scratch))
            .map_err(kernel_error)
    }
}

impl LocalResponseKernel {
    fn sizes(shape: &Shape) -> Option<[usize; 3]> {
        let [batch, channels, spatial @ ..] = &shape[..] else { return None };
        Some([*batch, *channels, spatial.iter().product()])
    }
}

impl Kernel for LocalResponseKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.inputs.first().is_some_and(|shape| Self::sizes(shape).is_some() && shape.elements() > 0)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64 * 8).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let sizes = Self::sizes(data.shape()).ok_or_else(misfit)?;
        let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        let Self { isa, size, alpha, beta, bias } = *self;
        local_response_normalization(isa, sizes, size, alpha, beta, bias, values, target).map_err(kernel_error)
    }
}
