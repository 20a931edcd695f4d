//! A layer as its parts: the operation at its root, and what a fused layer does to the result.

use ovir_graph::Node;
use ovir_kernels::KernelError;
use ovir_kernels::epilogue::{Activation, Channelwise};
use ovir_kernels::unary::UnaryOp;
use ovir_ops::activation::{
    clamp::Clamp, elu::Elu, exp::Exp, gelu::Gelu, hard_sigmoid::HardSigmoid, hsigmoid::HSigmoid, hswish::HSwish,
    mish::Mish, prelu::Prelu, relu::Relu, selu::Selu, sigmoid::Sigmoid, softplus::SoftPlus, softsign::SoftSign,
    swish::Swish,
};
use ovir_ops::arithmetic::round::{Round, RoundMode};
use ovir_ops::codes::{Decode, Encode, Levels};
use ovir_ops::fused::{Fused, Stage, StageInput};
use ovir_ops::{Blame, OpError, Operation};
use ovir_tensor::{ElementType, Tensor};

use super::ClaimContext;

/// A layer taken apart.
pub(crate) struct Parts<'a> {
    /// The operation at the root.
    pub root: &'a dyn Operation,
    /// The layer's inputs that the root reads.
    pub inputs: Vec<usize>,
    /// The input that holds the bias.
    pub bias: Option<usize>,
    /// The input that is added elementwise.
    pub residual: Option<usize>,
    /// The activation and its inputs beyond the first.
    pub activation: Option<(&'a dyn Operation, Vec<usize>)>,
}

/// What is done to a result before it is stored, with constants at hand.
#[derive(Debug, Default)]
pub(crate) struct EpilogueParts {
    /// One value a channel.
    pub bias: Option<Vec<f32>>,
    /// The input that is added elementwise.
    pub residual: Option<usize>,
    /// The activation.
    pub activation: ActivationPart,
}

/// An activation with its constants.
#[derive(Debug, Default, Clone)]
pub(crate) enum ActivationPart {
    /// None.
    #[default]
    None,
    /// An elementwise function.
    Unary(UnaryOp),
    /// A slope a channel for negative values.
    Slopes(Vec<f32>),
}

impl ActivationPart {
    /// As the kernels take it. `by_row` says whether a channel is a row or a column of the result.
    pub fn view(&self, by_row: bool) -> Activation<'_> {
        match self {
            ActivationPart::None => Activation::None,
            ActivationPart::Unary(op) => Activation::Unary(*op),
            ActivationPart::Slopes(slopes) if by_row => Activation::PRelu(Channelwise::PerRow(slopes)),
            ActivationPart::Slopes(slopes) => Activation::PRelu(Channelwise::PerColumn(slopes)),
        }
    }
}

/// A layer that reads or writes codes, taken apart: its parts without what has to do with codes, and that.
pub(crate) struct QuantizedParts<'a> {
    /// The root, whose first input is that of the layer's first stage, with bias, residual and activation.
    pub parts: Parts<'a>,
    /// What the data are.
    pub data: QuantizedData<'a>,
    /// The levels of a FakeQuantize in front of the residual, from values and to values.
    pub inner: Option<[&'a Levels; 2]>,
    /// What the codes of the residual stand for, if it has any.
    pub residual: Option<&'a Levels>,
    /// How the result becomes codes, if it does.
    pub output: Option<&'a Levels>,
}

/// The data of a layer.
pub(crate) enum QuantizedData<'a> {
    /// Values that are taken as they are.
    Values,
    /// Values that become codes, and what the codes stand for.
    Encoded([&'a Levels; 2]),
    /// Codes, and what they stand for.
    Codes(&'a Levels),
}

impl<'a> QuantizedParts<'a> {
    /// The parts of a layer with an Encode or a Decode.
    pub fn of(node: &'a Node) -> Option<QuantizedParts<'a>> {
        let stages = &node.operation.downcast_ref::<Fused>()?.stages;
        let (first, data) = match &stages[..] {
            [encode, decode, ..] if let (Some(from), Some(to)) = (encoded(encode), decoded(decode)) => {
                (2, QuantizedData::Encoded([from, to]))
            }
            [decode, ..] if let Some(levels) = decoded(decode) => (1, QuantizedData::Codes(levels)),
            _ => (0, QuantizedData::Values),
        };
        let rest = stages.get(first + 1..)?;
        let inner = rest.windows(2).find_map(|pair| Some([encoded(&pair[0])?, decoded(&pair[1])?]));
        let is_outside = |stage: &&Stage| matches!(stage.inputs[..], [StageInput::Outside(_)]);
        let residual = rest.iter().filter(is_outside).find_map(decoded);
        let output = stages.last().and_then(encoded).filter(|_| !rest.is_empty());
        let has_codes = first > 0 || output.is_some();
        let parts = Parts::of_stages(node.operation.downcast_ref::<Fused>().filter(|_| has_codes)?, first)?;
        Some(QuantizedParts { parts, data, inner, residual, output })
    }
}

fn encoded(stage: &Stage) -> Option<&Levels> {
    stage.operation.downcast_ref::<Encode>().map(|encode| &encode.levels)
}

fn decoded(stage: &Stage) -> Option<&Levels> {
    stage.operation.downcast_ref::<Decode>().map(|decode| &decode.levels)
}

impl<'a> Parts<'a> {
    /// The parts of a layer of values; `None` for a fused layer of another form.
    pub fn of(node: &'a Node) -> Option<Parts<'a>> {
        let Some(fused) = node.operation.downcast_ref::<Fused>() else {
            let inputs = (0..node.inputs.len()).collect();
            return Some(Parts { root: &*node.operation, inputs, bias: None, residual: None, activation: None });
        };
        let has_codes = fused.stages.iter().any(|stage| encoded(stage).or(decoded(stage)).is_some());
        if has_codes { None } else { Parts::of_stages(fused, 0) }
    }

    fn of_stages(fused: &'a Fused, first: usize) -> Option<Parts<'a>> {
        let (root, rest) = fused.stages.get(first..)?.split_first()?;
        let outside = |input: &StageInput| match input {
            StageInput::Outside(port) => Some(*port),
            StageInput::Stage(_) => None,
        };
        // What stands in front of the root has one input.
        let through = |input: &StageInput| {
            let mut input = *input;
            for _ in 0..=first {
                match input {
                    StageInput::Outside(port) => return Some(port),
                    StageInput::Stage(stage) => input = *fused.stages.get(stage)?.inputs.first()?,
                }
            }
            None
        };
        let inputs: Option<Vec<usize>> = root.inputs.iter().map(through).collect();
        let mut parts = Parts { root: &*root.operation, inputs: inputs?, bias: None, residual: None, activation: None };
        let mut takes_bias = true;
        for stage in rest {
            let ports: Vec<usize> = stage.inputs.iter().filter_map(outside).collect();
            match &*stage.type_name {
                "Add" => {}
                "Decode" => continue,
                "Encode" => {
                    takes_bias = false;
                    continue;
                }
                _ => {
                    parts.activation = Some((&*stage.operation, ports));
                    continue;
                }
            }
            let Some(port) = ports.first().copied() else {
                parts.residual = Some(stage.inputs.iter().find_map(|input| of_decode(fused, input))?);
                continue;
            };
            // The pass that made the layer puts the bias, a constant, before anything else.
            if takes_bias && parts.bias.is_none() && parts.residual.is_none() && !fused.is_residual(port) {
                parts.bias = Some(port);
            } else {
                parts.residual = Some(port);
            }
        }
        Some(parts)
    }

    /// The epilogue of a result with `channels` channels; `None` if something in it is not constant, or of another form.
    pub fn epilogue(&self, context: &mut ClaimContext<'_>, channels: usize) -> Option<EpilogueParts> {
        let mut bias = None;
        let mut residual = self.residual;
        if let Some(port) = self.bias {
            match (context.constant)(port) {
                Some(tensor) => bias = Some(per_channel(&tensor, channels)?),
                None if residual.is_none() => residual = Some(port),
                None => return None,
            }
        }
        let activation = match &self.activation {
            None => ActivationPart::None,
            Some((operation, ports)) => activation(*operation, ports, context, channels)?,
        };
        Some(EpilogueParts { bias, residual, activation })
    }

    /// The inputs of the layer that an epilogue has taken in: they are not read when the layer runs.
    pub fn packed_ports(&self, epilogue: &EpilogueParts) -> Vec<usize> {
        let bias = self.bias.filter(|_| epilogue.bias.is_some());
        bias.into_iter().chain(self.activation.iter().flat_map(|(_, ports)| ports.iter().copied())).collect()
    }
}

/// The function that an elementwise operation computes, with constant parameters from the layer's inputs at `ports`.
fn activation(
    operation: &dyn Operation,
    ports: &[usize],
    context: &mut ClaimContext<'_>,
    channels: usize,
) -> Option<ActivationPart> {
    if operation.downcast_ref::<Prelu>().is_some() {
        let slopes = floats(&(context.constant)(*ports.first()?)?)?;
        return Some(match slopes.as_slice() {
            [slope] => ActivationPart::Unary(UnaryOp::LeakyRelu { slope: *slope }),
            _ if slopes.len() == channels => ActivationPart::Slopes(slopes),
            _ => return None,
        });
    }
    let mut parameters = Vec::with_capacity(ports.len());
    for port in ports {
        parameters.push(*floats(&(context.constant)(*port)?)?.first()?);
    }
    unary_op(operation, &parameters).map(ActivationPart::Unary)
}

/// The function of an elementwise operation whose inputs beyond the first are the given numbers.
pub(crate) fn unary_op(operation: &dyn Operation, parameters: &[f32]) -> Option<UnaryOp> {
    let attribute = |name: &str| {
        let attributes = operation.attributes();
        attributes.into_iter().find(|(n, _)| *n == name).map(|(_, text)| text)
    };
    let is = |found: bool, op: UnaryOp| found.then_some(op);
    if let Some(clamp) = operation.downcast_ref::<Clamp>() {
        return Some(UnaryOp::Clamp { min: clamp.attributes.min as f32, max: clamp.attributes.max as f32 });
    }
    if let Some(elu) = operation.downcast_ref::<Elu>() {
        return Some(UnaryOp::Elu { alpha: elu.attributes.alpha as f32 });
    }
    if operation.downcast_ref::<Gelu>().is_some() {
        let is_tanh = attribute("approximation_mode").is_some_and(|mode| mode.eq_ignore_ascii_case("tanh"));
        return Some(if is_tanh { UnaryOp::GeluTanh } else { UnaryOp::GeluErf });
    }
    if operation.downcast_ref::<HardSigmoid>().is_some() {
        let (alpha, beta) = (*parameters.first()?, *parameters.get(1)?);
        return Some(UnaryOp::HardSigmoid { alpha, beta });
    }
    if operation.downcast_ref::<Swish>().is_some() {
        return Some(UnaryOp::Swish { beta: parameters.first().copied().unwrap_or(1.0) });
    }
    if operation.downcast_ref::<Selu>().is_some() {
        let (alpha, lambda) = (*parameters.first()?, *parameters.get(1)?);
        return Some(UnaryOp::Selu { alpha, lambda });
    }
    if let Some(round) = operation.downcast_ref::<Round>() {
        return Some(match round.attributes.mode {
            RoundMode::HalfToEven => UnaryOp::RoundHalfEven,
            RoundMode::HalfAwayFromZero => UnaryOp::RoundHalfAway,
        });
    }
    is(operation.downcast_ref::<Relu>().is_some(), UnaryOp::Relu)
        .or_else(|| is(operation.downcast_ref::<Sigmoid>().is_some(), UnaryOp::Sigmoid))
        .or_else(|| is(operation.downcast_ref::<Exp>().is_some(), UnaryOp::Exp))
        .or_else(|| is(operation.downcast_ref::<HSwish>().is_some(), UnaryOp::HSwish))
        .or_else(|| is(operation.downcast_ref::<HSigmoid>().is_some(), UnaryOp::HSigmoid))
        .or_else(|| is(operation.downcast_ref::<Mish>().is_some(), UnaryOp::Mish))
        .or_else(|| is(operation.downcast_ref::<SoftPlus>().is_some(), UnaryOp::Softplus))
        .or_else(|| is(operation.downcast_ref::<SoftSign>().is_some(), UnaryOp::SoftSign))
        .or_else(|| simple_arithmetic(operation))
}

/// Functions of the category arithmetic.
fn simple_arithmetic(operation: &dyn Operation) -> Option<UnaryOp> {
    use ovir_ops::arithmetic::{
        abs::Abs, acos::Acos, acosh::Acosh, asin::Asin, asinh::Asinh, atan::Atan, atanh::Atanh, ceiling::Ceiling,
        cos::Cos, cosh::Cosh, erf::Erf, erf_inv::ErfInv, floor::Floor, log::Log, negative::Negative, sign::Sign,
        sin::Sin, sinh::Sinh, sqrt::Sqrt, tan::Tan, tanh::Tanh,
    };
    let table: [(bool, UnaryOp); 21] = [
        (operation.downcast_ref::<Tanh>().is_some(), UnaryOp::Tanh),
        (operation.downcast_ref::<Sqrt>().is_some(), UnaryOp::Sqrt),
        (operation.downcast_ref::<Erf>().is_some(), UnaryOp::Erf),
        (operation.downcast_ref::<Log>().is_some(), UnaryOp::Log),
        (operation.downcast_ref::<Abs>().is_some(), UnaryOp::Abs),
        (operation.downcast_ref::<Negative>().is_some(), UnaryOp::Neg),
        (operation.downcast_ref::<Floor>().is_some(), UnaryOp::Floor),
        (operation.downcast_ref::<Ceiling>().is_some(), UnaryOp::Ceil),
        (operation.downcast_ref::<Sin>().is_some(), UnaryOp::Sin),
        (operation.downcast_ref::<Cos>().is_some(), UnaryOp::Cos),
        (operation.downcast_ref::<Tan>().is_some(), UnaryOp::Tan),
        (operation.downcast_ref::<Asin>().is_some(), UnaryOp::Asin),
        (operation.downcast_ref::<Acos>().is_some(), UnaryOp::Acos),
        (operation.downcast_ref::<Atan>().is_some(), UnaryOp::Atan),
        (operation.downcast_ref::<Sinh>().is_some(), UnaryOp::Sinh),
        (operation.downcast_ref::<Cosh>().is_some(), UnaryOp::Cosh),
        (operation.downcast_ref::<Asinh>().is_some(), UnaryOp::Asinh),
        (operation.downcast_ref::<Acosh>().is_some(), UnaryOp::Acosh),
        (operation.downcast_ref::<Atanh>().is_some(), UnaryOp::Atanh),
        (operation.downcast_ref::<ErfInv>().is_some(), UnaryOp::ErfInv),
        (operation.downcast_ref::<Sign>().is_some(), UnaryOp::Sign),
    ];
    table.into_iter().find(|(found, _)| *found).map(|(_, op)| op)
}

/// The values of an f32 tensor.
pub(crate) fn floats(tensor: &Tensor) -> Option<Vec<f32>> {
    if tensor.element_type() != ElementType::F32 {
        return None;
    }
    Some(tensor.aligned().ok()?.slice::<f32>().ok()?.to_vec())
}

/// The layer's input that a stage decodes.
fn of_decode(fused: &Fused, input: &StageInput) -> Option<usize> {
    let StageInput::Stage(at) = input else { return None };
    let stage = fused.stages.get(*at)?;
    stage.operation.downcast_ref::<Decode>()?;
    match stage.inputs.first()? {
        StageInput::Outside(port) => Some(*port),
        StageInput::Stage(_) => None,
    }
}

fn per_channel(tensor: &Tensor, channels: usize) -> Option<Vec<f32>> {
    let values = floats(tensor)?;
    match values.len() {
        1 => Some(vec![values[0]; channels]),
        n if n == channels => Some(values),
        _ => None,
    }
}

/// The error of a kernel whose arguments do not fit: a defect of the claim, which its tests must find.
pub(crate) fn kernel_error(error: KernelError) -> OpError {
    OpError::shape(Blame::Node, error.to_string())
}

/// Scratch as f32; it is 64-byte aligned, so nothing is lost.
pub(crate) fn scratch_f32(scratch: &mut [u8]) -> &mut [f32] {
    ovir_tensor::cast_mut(scratch)
}
