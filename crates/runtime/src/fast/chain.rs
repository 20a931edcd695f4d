//! Fused elementwise layers, f32, plain and on blocks of channels.

use ovir_graph::Node;
use ovir_kernels::chain::{
    Chain, ChainGeometry, ChainInput, ChainOutput, ChainStep, MOST_INPUTS, Operand, SHORT_LINE, run_chain,
};
use ovir_kernels::elementwise::{BinaryOp, CompareOp};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_bytes;
use ovir_kernels::quantized::{Dequantizer, Quantizer};
use ovir_kernels::unary::UnaryOp;
use ovir_ops::activation::{clamp::Clamp, prelu::Prelu};
use ovir_ops::bitwise::bitwise_not::BitwiseNot;
use ovir_ops::codes::{Decode, Encode, Levels};
use ovir_ops::condition::select::Select;
use ovir_ops::fused::{Fused, Stage, StageInput};
use ovir_ops::logical::logical_not::LogicalNot;
use ovir_ops::r#type::convert::Convert;
use ovir_ops::{Blame, OpError, OpResult, Operation, ValueFacts};
use ovir_tensor::{ElementType, Shape, SmallVec, Tensor};

use super::blocked::Side;
use super::parts::{floats, kernel_error, unary_op};
use super::quantized::{dequantizer_of, quantizer_of};
use super::recode::{ChainInputs, Recode};
use super::settled::Settled;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct ChainKernel {
    isa: Isa,
    chain: Chain,
    /// The layer's inputs that the chain reads, and how they lie.
    inputs: Vec<(usize, Side)>,
    /// The values of inputs that are constants of one element a channel, on blocks.
    constants: Vec<Option<Vec<f32>>>,
    /// What inputs that are codes stand for.
    decoded: Vec<Option<Dequantizer>>,
    /// How the result becomes codes, if it does.
    encoded: Option<Quantizer>,
    /// The way from codes to codes that is short.
    recode: Option<Recode>,
    is_blocked: bool,
    settled: Settled<ChainGeometry>,
}

/// Whether a layer is a group of elementwise layers.
pub(crate) fn is_chain(node: &Node) -> bool {
    let fused = node.operation.downcast_ref::<Fused>();
    fused.is_some_and(|fused| functions(&fused.stages).is_some())
}

/// The stages that are functions: all but the Decodes and Converts of what comes from outside and an Encode or a Convert at
/// the end.
pub(super) fn functions(stages: &[Stage]) -> Option<impl Iterator<Item = (usize, &Stage)>> {
    let is_decode = |stage: &Stage| {
        let is_first = stage.operation.downcast_ref::<Decode>().is_some() || converts(stage, ElementType::F32);
        is_first && matches!(stage.inputs[..], [StageInput::Outside(_)])
    };
    let (last, inner) = stages.split_last()?;
    let is_encode = last.operation.downcast_ref::<Encode>().is_some() || is_truncation(last, inner);
    let fits = |stage: &Stage| is_decode(stage) || function(stage).is_some();
    (inner.iter().all(fits) && (is_encode || fits(last))).then_some(())?;
    let count = stages.len() - usize::from(is_encode);
    Some(stages[..count].iter().enumerate().filter(move |(_, stage)| !is_decode(stage)))
}

/// Whether a stage is a Convert to a type.
fn converts(stage: &Stage, to: ElementType) -> bool {
    let convert = stage.operation.downcast_ref::<Convert>();
    convert.is_some_and(|convert| convert.attributes.destination_type == to)
}

/// Whether the last stage makes bytes of values that the stage in front of it keeps within theirs.
fn is_truncation(last: &Stage, inner: &[Stage]) -> bool {
    let clamp = inner.last().and_then(|stage| stage.operation.downcast_ref::<Clamp>());
    let is_within = clamp.is_some_and(|clamp| clamp.attributes.min >= 0.0 && clamp.attributes.max <= 255.0);
    is_within && converts(last, ElementType::U8) && last.inputs[..] == [StageInput::Stage(inner.len() - 1)]
}

/// A function whose parameters are not known yet.
enum Function {
    Unary,
    Binary(BinaryOp),
    /// Truth values are 0 and 1 within a chain.
    Compare(CompareOp),
    /// Whether a value is not zero.
    Truth,
    /// Whether it is zero.
    Not,
    Select,
}

fn function(stage: &Stage) -> Option<Function> {
    // Whoever makes a stage of a PReLU has seen that its slope lies along the channels.
    if stage.operation.downcast_ref::<Prelu>().is_some() {
        return Some(Function::Binary(BinaryOp::PRelu));
    }
    if let Some(op) = super::binary::numpy_function(&*stage.operation) {
        return Some(Function::Binary(op));
    }
    if let Some((op, _)) = super::binary::comparison(&*stage.operation) {
        return Some(Function::Compare(op));
    }
    if stage.operation.downcast_ref::<Select>().is_some() {
        return Some(Function::Select);
    }
    if stage.operation.downcast_ref::<LogicalNot>().is_some() || stage.operation.downcast_ref::<BitwiseNot>().is_some()
    {
        return Some(Function::Not);
    }
    if converts(stage, ElementType::F32) {
        return Some(Function::Truth);
    }
    let parameters = vec![1.0; stage.inputs.len().saturating_sub(1)];
    one_value(&*stage.operation, &parameters).map(|_| Function::Unary)
}

/// The function of one value that an operation is. A FakeQuantize of whole tensors is one within a group, whose members
/// have the shape of their values.
fn one_value(operation: &dyn Operation, parameters: &[f32]) -> Option<UnaryOp> {
    super::fake_quantize::function(operation, parameters).or_else(|| unary_op(operation, parameters))
}

/// Claims groups of elementwise layers.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = context.node.operation.clone();
    let single = |_| Stage {
        friendly_name: context.node.friendly_name.clone(),
        type_name: context.node.type_name.to_string(),
        operation: operation.clone(),
        inputs: (0..context.inputs.len()).map(StageInput::Outside).collect(),
    };
    // A lone function of two values is a chain too on blocks, because chains spread channels over positions, and where lines
    // are short, because chains join them.
    let is_lone = context.is_blocked || (spreads_short_lines(context) && !is_prelu(context.node));
    let is_decode = operation.downcast_ref::<Decode>().is_some();
    let lone = (is_lone && context.inputs.len() == 2 || is_decode).then_some(()).map(single);
    let stages = match (operation.downcast_ref::<Fused>(), &lone) {
        (Some(fused), _) if is_chain(context.node) => &fused.stages[..],
        (None, Some(stage)) if is_decode || matches!(function(stage), Some(Function::Binary(_))) => {
            std::slice::from_ref(stage)
        }
        _ => return None,
    };
    let coding = Coding::of(stages, context)?;
    let mut singles: SmallVec<[Option<f32>; 8]> = SmallVec::new();
    for (port, facts) in context.inputs.iter().enumerate() {
        let is_code = coding.decoded.get(port).is_some_and(Option::is_some);
        let is_byte = matches!(facts.element_type, ElementType::U8 | ElementType::Boolean);
        (if is_code { is_byte } else { facts.element_type == ElementType::F32 }).then_some(())?;
        let is_single = !is_code && facts.shape.to_shape().is_some_and(|shape| shape.elements() == 1);
        let constant = if is_single { (context.constant)(port) } else { None };
        singles.push(constant.and_then(|tensor| floats(&tensor)?.first().copied()));
    }
    let ports: Vec<usize> = (0..singles.len()).filter(|port| singles[*port].is_none()).collect();
    // Codes of channels are numbers that are scaled and shifted by constants, which follow the other inputs.
    let of_channels: Vec<(usize, &Levels)> = coding
        .channels
        .iter()
        .filter_map(|(port, levels)| Some((ports.iter().position(|p| p == port)?, *levels)))
        .collect();
    let mut steps = steps(stages, &singles, &ports, &of_channels)?;
    if coding.truncates {
        // The codes of integers are these.
        steps.push(ChainStep::Unary(UnaryOp::Floor, Operand::Step(steps.len().checked_sub(1)?)));
    }
    let first_constant = ports.len();
    let mut packed_inputs: SmallVec<[usize; 2]> = (0..singles.len()).filter(|port| singles[*port].is_some()).collect();
    let (mut inputs, mut constants, mut decoded) = (Vec::new(), Vec::new(), Vec::new());
    for port in ports {
        decoded.push(coding.decoded.get(port).copied()?);
        let (side, values) = side(context, port)?;
        if values.is_some() {
            packed_inputs.push(port);
        }
        inputs.push((port, side));
        constants.push(values);
    }
    let is_blocked = context.is_blocked;
    for (place, levels) in of_channels {
        let side = if is_blocked { Side::Channels } else { Side::PlainChannels };
        let last = f32::from(levels.last);
        let scale: Vec<f32> = levels.low.iter().zip(&*levels.high).map(|(low, high)| (high - low) / last).collect();
        for values in [scale, levels.low.to_vec()] {
            let count = values.len();
            inputs.push((inputs[place].0, side));
            constants.push(Some(side.padded(values, count)));
            decoded.push(None);
        }
    }
    merge_factors(&mut steps, first_constant, &mut constants);
    let (isa, encoded) = (isa::detect(), coding.encoded);
    let of_chain = ChainInputs { sides: &inputs, constants: &constants, decoded: &decoded };
    let recode = if is_blocked { Recode::of(&steps, &of_chain, encoded) } else { None };
    let chain = Chain::new(inputs.len(), steps).ok().filter(|_| inputs.len() <= MOST_INPUTS)?;
    let settled = Settled::new(context, context.inputs.len(), |shapes| {
        geometry(&inputs, &constants, is_blocked, shapes.inputs, shapes.outputs.first()?)
    });
    let kernel = ChainKernel { isa, chain, inputs, constants, decoded, encoded, recode, is_blocked, settled };
    Some(Claim { kernel: Box::new(kernel), packed_inputs })
}

/// Whether a layer is a PReLU.
pub(crate) fn is_prelu(node: &Node) -> bool {
    node.operation.downcast_ref::<Prelu>().is_some()
}

/// Whether a layer of two inputs spreads one of them over short lines of the other, such as the three channels of images
/// that have them last. Chains join such lines.
fn spreads_short_lines(context: &ClaimContext<'_>) -> bool {
    let ([a, b], Some(output)) = (context.inputs, context.outputs.first()) else { return false };
    let last = output.shape.dims().and_then(|dims| dims.last()?.get());
    let is_single = |facts: &ValueFacts| facts.shape.to_shape().is_some_and(|shape| shape.elements() == 1);
    last.is_some_and(|size| (2..=SHORT_LINE).contains(&size)) && a.shape != b.shape && !is_single(a) && !is_single(b)
}

/// How an input lies, and its values if they are kept by the kernel.
fn side(context: &mut ClaimContext<'_>, port: usize) -> Option<(Side, Option<Vec<f32>>)> {
    if !context.is_blocked {
        return Some((Side::Plain, None));
    }
    let output = context.outputs.first()?;
    let constant: Option<Tensor> = (context.constant)(port);
    let facts = context.inputs.get(port)?;
    let channels = output.shape.dims()?.get(1)?.get()?;
    let rank = output.shape.rank()?;
    let side = if port == 1 && is_prelu(context.node) {
        Side::of_slope(facts, constant.is_some(), rank, channels)?
    } else {
        Side::of(facts, constant.is_some(), rank, channels)?
    };
    let values = match constant {
        Some(tensor) => Some(side.padded(floats(&tensor)?, channels)),
        None => None,
    };
    Some((side, values))
}

/// What the inputs and the result of a chain have to do with codes.
struct Coding<'a> {
    /// What the codes of each input of the layer stand for, if it has any.
    decoded: Vec<Option<Dequantizer>>,
    /// The levels of inputs whose channels have levels of their own.
    channels: Vec<(usize, &'a Levels)>,
    /// How the result becomes codes, if it does.
    encoded: Option<Quantizer>,
    /// Whether the codes are the result without its fraction.
    truncates: bool,
}

/// Codes as they are.
const NUMBERS: Dequantizer = Dequantizer { low: 0.0, high: 1.0, steps: 1.0 };

/// Integers as they are.
const BYTES: Quantizer = Quantizer { low: 0.0, high: 255.0, steps: 255.0 };

impl<'a> Coding<'a> {
    /// `None` if an input has codes of several levels, or the result those of channels. Truth values are bytes outside of a
    /// chain.
    fn of(stages: &'a [Stage], context: &ClaimContext<'_>) -> Option<Coding<'a>> {
        let is_truth = |facts: &ValueFacts| facts.element_type == ElementType::Boolean;
        let mut decoded: Vec<_> = context.inputs.iter().map(|facts| is_truth(facts).then_some(NUMBERS)).collect();
        let mut channels = Vec::new();
        for stage in stages {
            let [StageInput::Outside(port)] = &stage.inputs[..] else { continue };
            let found = match stage.operation.downcast_ref::<Decode>() {
                Some(decode) => {
                    let found = dequantizer_of(&decode.levels);
                    if found.is_none() {
                        channels.iter().all(|(known, _)| known != port).then_some(())?;
                        channels.push((*port, &decode.levels));
                    }
                    found
                }
                None if converts(stage, ElementType::F32) => None,
                None => continue,
            };
            let (found, known) = (found.unwrap_or(NUMBERS), decoded.get_mut(*port)?);
            (*known.get_or_insert(found) == found).then_some(())?;
        }
        let (last, inner) = stages.split_last()?;
        let truncates = is_truncation(last, inner);
        let encoded = match last.operation.downcast_ref::<Encode>() {
            Some(encode) => Some(quantizer_of(&encode.levels)?),
            None => (truncates || context.outputs.first().is_some_and(is_truth)).then_some(BYTES),
        };
        Some(Coding { decoded, channels, encoded, truncates })
    }
}

/// The steps of a chain whose inputs at `ports` are spread over it; the others are numbers. Behind the ports come what the
/// codes of channels, which are at these places, are multiplied with, and what is added.
pub(super) fn steps(
    stages: &[Stage],
    singles: &[Option<f32>],
    ports: &[usize],
    of_channels: &[(usize, &Levels)],
) -> Option<Vec<ChainStep>> {
    let mut steps = Vec::with_capacity(stages.len() + 2 * of_channels.len());
    let mut values: Vec<Operand> = (0..ports.len()).map(Operand::Input).collect();
    for (index, (place, _)) in of_channels.iter().enumerate() {
        let constant = ports.len() + 2 * index;
        steps.push(ChainStep::Binary(BinaryOp::Mul, Operand::Input(*place), Operand::Input(constant)));
        let scaled = Operand::Step(steps.len() - 1);
        steps.push(ChainStep::Binary(BinaryOp::Add, scaled, Operand::Input(constant + 1)));
        values[*place] = Operand::Step(steps.len() - 1);
    }
    let outside = |port: &usize| match singles.get(*port)? {
        Some(value) => Some(Operand::Constant(*value)),
        None => values.get(ports.iter().position(|p| p == port)?).copied(),
    };
    // What each stage gives: codes from outside are values where they are read.
    let mut given: Vec<Option<Operand>> = stages
        .iter()
        .map(|stage| match &stage.inputs[..] {
            [StageInput::Outside(port)] if stage.operation.downcast_ref::<Decode>().is_some() => outside(port),
            [StageInput::Outside(port)] if converts(stage, ElementType::F32) => outside(port),
            _ => None,
        })
        .collect();
    for (place, stage) in functions(stages)? {
        let operand = |input: &StageInput| match input {
            StageInput::Stage(place) => *given.get(*place)?,
            StageInput::Outside(port) => outside(port),
        };
        steps.push(step(stage, &operand)?);
        given[place] = Some(Operand::Step(steps.len() - 1));
    }
    if steps.is_empty() {
        // Codes become codes of other levels.
        let first = given.iter().flatten().next()?;
        steps.push(ChainStep::Unary(UnaryOp::Identity, *first));
    }
    Some(steps)
}

/// Lets what codes of channels are multiplied with, and what is added, take in the constants of channels that follow: the two
/// become the product and the sum of both.
fn merge_factors(steps: &mut Vec<ChainStep>, first: usize, constants: &mut [Option<Vec<f32>>]) {
    // Each pair of steps at the beginning has a pair of constants.
    for pair in (first..constants.len()).step_by(2).map(|constant| constant - first) {
        let value = Operand::Step(pair + 1);
        while let Some((at, op, other)) = only_factor(steps, value, constants) {
            let Some(Some(factor)) = constants.get(other).cloned() else { return };
            let mut join = |constant: usize| {
                if let Some(Some(values)) = constants.get_mut(constant) {
                    let both = values.iter_mut().zip(&factor);
                    both.for_each(
                        |(value, factor)| if op == BinaryOp::Mul { *value *= factor } else { *value += factor },
                    );
                }
            };
            join(first + pair + 1);
            if op == BinaryOp::Mul {
                join(first + pair);
            }
            steps.remove(at);
            let shifted = |operand: &mut Operand| match operand {
                Operand::Step(step) if *step == at => *operand = value,
                Operand::Step(step) if *step > at => *step -= 1,
                _ => {}
            };
            steps.iter_mut().flat_map(ChainStep::operands_mut).for_each(shifted);
        }
    }
}

/// The step that multiplies a value with a constant of channels, or adds one, if it is the only one that reads the value and
/// not the last one: its place, function and constant.
fn only_factor(
    steps: &[ChainStep],
    value: Operand,
    constants: &[Option<Vec<f32>>],
) -> Option<(usize, BinaryOp, usize)> {
    let reads = |step: &ChainStep| step.operands().contains(&value);
    let mut readers = steps.iter().enumerate().filter(|(_, step)| reads(step));
    let ((at, step), None) = (readers.next()?, readers.next()) else { return None };
    match step {
        ChainStep::Binary(op @ (BinaryOp::Mul | BinaryOp::Add), a, b) if at + 1 < steps.len() => {
            let other = if *a == value { b } else { a };
            match other {
                Operand::Input(input) if constants.get(*input)?.as_ref()?.len() > 1 => Some((at, *op, *input)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn step(stage: &Stage, operand: &dyn Fn(&StageInput) -> Option<Operand>) -> Option<ChainStep> {
    match (function(stage)?, &stage.inputs[..]) {
        (Function::Binary(op), [a, b]) => Some(simplified(op, operand(a)?, operand(b)?)),
        (Function::Compare(op), [a, b]) => Some(ChainStep::Compare(op, operand(a)?, operand(b)?)),
        (Function::Truth, [a]) => Some(ChainStep::Compare(CompareOp::NotEqual, operand(a)?, Operand::Constant(0.0))),
        (Function::Not, [a]) => Some(ChainStep::Compare(CompareOp::Equal, operand(a)?, Operand::Constant(0.0))),
        (Function::Select, [condition, yes, no]) => {
            Some(ChainStep::Select(operand(condition)?, operand(yes)?, operand(no)?))
        }
        (Function::Unary, [a, parameters @ ..]) => {
            let value = |input: &StageInput| match operand(input) {
                Some(Operand::Constant(value)) => Some(value),
                _ => None,
            };
            let parameters: Option<Vec<f32>> = parameters.iter().map(value).collect();
            Some(ChainStep::Unary(one_value(&*stage.operation, &parameters?)?, operand(a)?))
        }
        _ => None,
    }
}

/// A power with a constant exponent is a function of one value.
fn simplified(op: BinaryOp, a: Operand, b: Operand) -> ChainStep {
    match (op, b) {
        (BinaryOp::Power, Operand::Constant(exponent)) => ChainStep::Unary(UnaryOp::Power { exponent }, a),
        _ => ChainStep::Binary(op, a, b),
    }
}

/// The geometry of a chain over inputs of these shapes, which lie at the sides that it reads.
fn geometry(
    sides: &[(usize, Side)],
    constants: &[Option<Vec<f32>>],
    is_blocked: bool,
    inputs: &[&Shape],
    output: &Shape,
) -> Option<ChainGeometry> {
    let rank = output.rank();
    let mut shapes: SmallVec<[Shape; MOST_INPUTS]> = SmallVec::new();
    for (place, (port, side)) in sides.iter().enumerate() {
        let values = constants.get(place)?.as_ref().map_or(0, Vec::len);
        shapes.push(side.shape(inputs.get(*port)?, rank, values));
    }
    let mut views = [&[][..]; MOST_INPUTS];
    for (view, shape) in views.iter_mut().zip(&shapes) {
        *view = &shape[..];
    }
    let views = views.get(..shapes.len())?;
    let output = if is_blocked { Side::Blocked.shape(output, rank, 0) } else { output.clone() };
    ChainGeometry::new(&output, views).ok()
}

impl ChainKernel {
    fn geometry(&self, inputs: &[&Shape], output: &Shape) -> Option<ChainGeometry> {
        geometry(&self.inputs, &self.constants, self.is_blocked, inputs, output)
    }
}

impl Kernel for ChainKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.outputs.first().is_some_and(|output| self.geometry(shapes.inputs, output).is_some())
    }

    fn in_place_inputs(&self, shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        let is_output = |port: usize| shapes.inputs.get(port) == shapes.outputs.first();
        let is_value = |side: Side| matches!(side, Side::Plain | Side::Blocked);
        let inputs =
            self.inputs.iter().zip(&self.decoded).filter(|(_, decoded)| decoded.is_none() && self.encoded.is_none());
        inputs
            .map(|(input, _)| *input)
            .filter(|(port, side)| is_value(*side) && is_output(*port))
            .map(|(port, _)| port)
            .collect()
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        self.recode.as_ref().map_or(0, |recode| recode.scratch_bytes(shapes))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let elements = shapes.outputs.first().map_or(0, |s| s.elements());
        if self.recode.as_ref().is_some_and(|recode| recode.accepts(shapes)) {
            return nanoseconds_for_bytes(elements.saturating_mul(2));
        }
        nanoseconds_for_bytes(elements.saturating_mul(12)).max(elements as u64 * self.chain.picoseconds() / 1000)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        if let Some(recode) = self.recode.as_ref().filter(|recode| recode.fits(&io)) {
            return recode.run(io);
        }
        let [output] = io.outputs else { return Ok(()) };
        let misfit = || OpError::shape(Blame::Input(0), "the kernel does not fit the data");
        let geometry = match self.settled.get(io.inputs) {
            Some(geometry) => geometry,
            None => {
                let shapes: SmallVec<[&Shape; MOST_INPUTS]> = io.inputs.iter().map(|input| input.shape()).collect();
                &self.geometry(&shapes, output.shape()).ok_or_else(misfit)?
            }
        };
        let mut slices: SmallVec<[ChainInput<'_>; MOST_INPUTS]> = SmallVec::new();
        let mut in_place = None;
        for (place, (port, _)) in self.inputs.iter().enumerate() {
            slices.push(match (&self.constants[place], self.decoded[place]) {
                _ if io.in_place == Some(*port) => {
                    in_place = Some(place);
                    ChainInput::Values(&[])
                }
                (Some(values), _) => ChainInput::Values(values),
                (None, Some(dequantizer)) => ChainInput::Codes(io.inputs[*port].slice::<u8>()?, dequantizer),
                (None, None) => ChainInput::Values(io.inputs[*port].slice::<f32>()?),
            });
        }
        let target = match self.encoded {
            Some(quantizer) => ChainOutput::Codes(output.slice_mut::<u8>()?, quantizer),
            None => ChainOutput::Values(output.slice_mut::<f32>()?),
        };
        run_chain(self.isa, &self.chain, geometry, &slices, in_place, target).map_err(kernel_error)
    }
}
