//! Chains between codes that do no more than scale and shift channels, and perhaps add the values of other codes: values of
//! levels become codes of others.

use ovir_kernels::blocked::BLOCK;
use ovir_kernels::chain::{ChainStep, Operand};
use ovir_kernels::elementwise::BinaryOp;
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::quantized::{Dequantizer, Encodings, Quantizer, Recoding, recode};
use ovir_kernels::unary::UnaryOp;
use ovir_ops::OpResult;
use ovir_tensor::{Shape, SmallVec};

use super::blocked::{Side, misfit};
use super::parts::{kernel_error, scratch_f32};
use super::{StepIo, StepShapes};
use crate::layout::sizes;

/// What values are multiplied with, or what is added to them.
enum Factor {
    /// One number.
    Number(f32),
    /// One number for each channel, filled up to blocks.
    Channels(Vec<f32>),
    /// An input of one element for each channel and image, on blocks.
    Input(usize),
}

/// Another way to compute a chain on blocks, from codes to codes.
pub(super) struct Recode {
    isa: Isa,
    data_port: usize,
    from: Dequantizer,
    factors: Vec<(BinaryOp, Factor)>,
    /// The port of codes whose values are added then, and what they stand for.
    added: Option<(usize, Dequantizer)>,
    limits: (f32, f32),
    to: Encodings,
}

/// What is known of the inputs of a chain.
pub(super) struct ChainInputs<'a> {
    /// The layer's inputs that it reads, and how they lie.
    pub sides: &'a [(usize, Side)],
    /// The values of those that are constants of channels.
    pub constants: &'a [Option<Vec<f32>>],
    /// What those that are codes stand for.
    pub decoded: &'a [Option<Dequantizer>],
}

impl Recode {
    /// That of a chain on blocks whose results become codes, if all that it does to its codes is to multiply and to add
    /// what is the same for all positions of a channel, and then to add the values of other codes, within limits at the end.
    pub fn of(steps: &[ChainStep], inputs: &ChainInputs<'_>, encoded: Option<Quantizer>) -> Option<Recode> {
        let Quantizer { low, high, steps: last } = encoded?;
        let to = Encodings::new(&[low], &[high], last).ok()?;
        let coded: SmallVec<[usize; 2]> =
            (0..inputs.decoded.len()).filter(|place| inputs.decoded[*place].is_some()).collect();
        let (data, other, Walked { factors, limits }) = match coded[..] {
            [data] => (data, None, walk(steps, inputs, data, None)?),
            [a, b] => [(a, b), (b, a)]
                .into_iter()
                .find_map(|(data, other)| Some((data, Some(other), walk(steps, inputs, data, Some(other))?)))?,
            _ => return None,
        };
        let codes = |place: usize| match inputs.sides.get(place)? {
            (port, Side::Blocked) => Some((*port, inputs.decoded[place]?)),
            _ => None,
        };
        let (data_port, from) = codes(data)?;
        let added = match other {
            Some(other) => Some(codes(other)?),
            None => None,
        };
        Some(Recode { isa: isa::detect(), data_port, from, factors, added, limits, to })
    }

    /// Images, channels and positions.
    fn sizes(&self, shapes: &[&Shape], output: &Shape) -> Option<[usize; 3]> {
        let [batch, channels, positions] = sizes(output)?;
        let fits = |(_, factor): &(BinaryOp, Factor)| match factor {
            Factor::Number(_) => true,
            Factor::Channels(values) => values.len() == channels.next_multiple_of(BLOCK),
            Factor::Input(port) => {
                shapes.get(*port).and_then(|shape| sizes(shape)).is_some_and(|[images, own, places]| {
                    (images == batch || images == 1) && own == channels && places == 1
                })
            }
        };
        let is_whole = |port: usize| shapes.get(port).is_some_and(|shape| *shape == output);
        let are_whole = is_whole(self.data_port) && self.added.is_none_or(|(port, _)| is_whole(port));
        (are_whole && self.factors.iter().all(fits)).then_some([batch, channels, positions])
    }
}

/// What happens to the values of codes before others are added, and the limits of the result.
struct Walked {
    factors: Vec<(BinaryOp, Factor)>,
    limits: (f32, f32),
}

/// What the steps of a chain do to the codes of one input, to which they add the values of those of another, if there is one.
fn walk(steps: &[ChainStep], inputs: &ChainInputs<'_>, data: usize, other: Option<usize>) -> Option<Walked> {
    let (mut value, mut factors, mut limits) = (Operand::Input(data), Vec::new(), (f32::NEG_INFINITY, f32::INFINITY));
    let mut to_be_added = other.map(Operand::Input);
    for (place, step) in steps.iter().enumerate() {
        let is_last = place + 1 == steps.len();
        match *step {
            ChainStep::Unary(UnaryOp::Identity, a) if a == value => {}
            ChainStep::Unary(UnaryOp::Relu, a) if a == value && is_last => limits.0 = 0.0,
            ChainStep::Unary(UnaryOp::Clamp { min, max }, a) if a == value && is_last => limits = (min, max),
            ChainStep::Binary(op @ (BinaryOp::Mul | BinaryOp::Add), a, b) if (a == value) != (b == value) => {
                let operand = if a == value { b } else { a };
                if op == BinaryOp::Add && to_be_added == Some(operand) {
                    to_be_added = None;
                } else {
                    // What is added is not scaled.
                    (other.is_none() || to_be_added.is_some()).then_some(())?;
                    factors.push((op, Factor::of(operand, inputs)?));
                }
            }
            _ => return None,
        }
        value = Operand::Step(place);
    }
    to_be_added.is_none().then_some(Walked { factors, limits })
}

impl Factor {
    fn of(operand: Operand, inputs: &ChainInputs<'_>) -> Option<Factor> {
        let place = match operand {
            Operand::Constant(value) => return Some(Factor::Number(value)),
            Operand::Input(place) => place,
            Operand::Step(_) => return None,
        };
        let (port, side) = *inputs.sides.get(place)?;
        match (side, inputs.constants.get(place)?) {
            (Side::Channels, Some(values)) => Some(Factor::Channels(values.clone())),
            (Side::Scalar, Some(values)) => Some(Factor::Number(*values.first()?)),
            (Side::Blocked, None) => Some(Factor::Input(port)),
            _ => None,
        }
    }
}

impl Recode {
    /// Whether it computes these shapes.
    pub fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.outputs.first().is_some_and(|output| self.sizes(shapes.inputs, output).is_some())
    }

    /// The scratch that it needs for these shapes.
    pub fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let sizes = shapes.outputs.first().and_then(|output| self.sizes(shapes.inputs, output));
        sizes.map_or(0, |[batch, channels, _]| 2 * batch * channels.next_multiple_of(BLOCK) * size_of::<f32>())
    }

    /// Whether it computes the shapes of a step.
    pub fn fits(&self, io: &StepIo<'_, '_>) -> bool {
        let shapes: SmallVec<[&Shape; 8]> = io.inputs.iter().map(|input| input.shape()).collect();
        io.outputs.first().is_some_and(|output| self.sizes(&shapes, output.shape()).is_some())
    }

    /// Computes shapes that it accepts.
    pub fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let shapes: SmallVec<[&Shape; 8]> = io.inputs.iter().map(|input| input.shape()).collect();
        let all = self.sizes(&shapes, output.shape()).ok_or_else(misfit)?;
        let [batch, channels, _] = all;
        let lanes = channels.next_multiple_of(BLOCK);
        let scratch = scratch_f32(io.scratch);
        let (scales, shifts) = scratch.split_at_mut_checked(batch * lanes).ok_or_else(misfit)?;
        let shifts = shifts.get_mut(..batch * lanes).ok_or_else(misfit)?;
        scales.fill(1.0);
        shifts.fill(0.0);
        for (op, factor) in &self.factors {
            let (number, values) = match factor {
                Factor::Number(number) => (*number, &[][..]),
                Factor::Channels(values) => (0.0, &values[..]),
                Factor::Input(port) => (0.0, io.inputs[*port].slice::<f32>()?),
            };
            for (place, (scale, shift)) in scales.iter_mut().zip(shifts.iter_mut()).enumerate() {
                let factor = if values.is_empty() { number } else { values[place % values.len()] };
                if *op == BinaryOp::Mul {
                    (*scale, *shift) = (*scale * factor, *shift * factor);
                } else {
                    *shift += factor;
                }
            }
        }
        let added = match self.added {
            Some((port, of_added)) => Some((io.inputs[port].slice::<u8>()?, of_added)),
            None => None,
        };
        let recoding = Recoding { from: self.from, scales, shifts, added, limits: self.limits, to: &self.to };
        let codes = io.inputs[self.data_port].slice::<u8>()?;
        recode(self.isa, all, &recoding, codes, output.slice_mut::<u8>()?).map_err(kernel_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    /// The ports of the codes that are scaled, and of those that are added, for a chain of two inputs of codes and one of
    /// channels.
    fn ports(steps: &[ChainStep]) -> Option<(usize, Option<usize>)> {
        let sides = [(5, Side::Blocked), (6, Side::Blocked), (7, Side::Channels)];
        let codes = Some(Dequantizer { low: 0.0, high: 1.0, steps: 255.0 });
        let inputs = ChainInputs {
            sides: &sides,
            constants: &[None, None, Some(vec![2.0; BLOCK])],
            decoded: &[codes, codes, None],
        };
        let found = Recode::of(steps, &inputs, Some(Quantizer { low: 0.0, high: 1.0, steps: 255.0 }))?;
        Some((found.data_port, found.added.map(|(port, _)| port)))
    }

    #[test]
    fn sums_of_two_codes_of_which_one_is_scaled() {
        use ChainStep::{Binary, Unary};
        let [a, b, channels] = [0, 1, 2].map(Operand::Input);
        let [first, second] = [0, 1].map(Operand::Step);
        let sum = Binary(BinaryOp::Add, a, b);
        assert_eq!(ports(&[sum]), Some((5, Some(6))));
        assert_eq!(ports(&[sum, Unary(UnaryOp::Relu, first)]), Some((5, Some(6))));
        let scaled = |codes| Binary(BinaryOp::Mul, codes, channels);
        assert_eq!(ports(&[scaled(a), Binary(BinaryOp::Add, b, first)]), Some((5, Some(6))));
        assert_eq!(ports(&[scaled(b), Binary(BinaryOp::Add, a, first)]), Some((6, Some(5))));
        // The sum is scaled, the codes are multiplied, both are scaled, or one of them is not read.
        assert_eq!(ports(&[sum, Binary(BinaryOp::Mul, first, channels)]), None);
        assert_eq!(ports(&[Binary(BinaryOp::Mul, a, b)]), None);
        assert_eq!(ports(&[scaled(a), scaled(b), Binary(BinaryOp::Add, first, second)]), None);
        assert_eq!(ports(&[scaled(a)]), None);
    }
}
