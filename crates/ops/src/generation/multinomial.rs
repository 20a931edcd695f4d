//! # Multinomial
//! Classes drawn by their probabilities.
//!
//! Specification: `generation/multinomial-13`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | probs | any floating-point type | `[batch, classes]`; not negative, with a positive sum, or their logarithms |
//! | in 1 | num_samples | i32, i64 | one element |
//! | out 0 | | `convert_type` | `[batch, num_samples]` |
//!
//! The specification leaves the generator open. As in OpenVINO's CPU plugin it is MT19937 started anew for each inference
//! from both seeds (as `std::seed_seq`), numbers are divided by 2^32, and sums are made in f32. Two seeds of 0 ask for
//! classes that cannot be foretold; they get those of a seed that follows from the layer's friendly name and from the seed
//! of the request.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, PartialShape, Shape, Value};

use crate::common::memory::{filled, widened_view};
use crate::common::random::Mersenne;
use crate::condition::non_zero::check_index_type;
use crate::{
    Blame, BuildContext, Category, Effects, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion,
    Operation,
};

/// Classes that are looked at together.
const BLOCK: usize = 32;

/// The definition of Multinomial.
pub static MULTINOMIAL: OpDef = OpDef {
    type_name: "Multinomial",
    category: Category::Generation,
    versions: &[OpVersion::new(13, (13, 16), (2, 2), (1, 1))],
    attributes: MultinomialAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of Multinomial.
    pub struct MultinomialAttributes {
        /// The element type of the output: i32 or i64.
        convert_type: ElementType = "convert_type", required true;
        /// Whether a class may be drawn again.
        with_replacement: bool = "with_replacement", required true;
        /// Whether the input holds logarithms of probabilities.
        log_probs: bool = "log_probs", required true;
        /// The seed of all operations.
        global_seed: u64 = "global_seed", default "0";
        /// The seed of this operation.
        op_seed: u64 = "op_seed", default "0";
    }
}

/// A Multinomial layer.
#[derive(Debug)]
pub struct Multinomial {
    /// The attributes.
    pub attributes: MultinomialAttributes,
}

impl Operation for Multinomial {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        context.require_class(1, ElementClass::Index)?;
        context.require_rank(0, 2..=2)?;
        context.require_one_element(1)?;
        let probs = context.shape(0);
        let dim = |axis| if probs.rank().is_some() { probs.dim(axis) } else { Dim::DYNAMIC };
        let (batch, classes) = (dim(0), dim(1));
        let samples = context.bounds(1).and_then(|b| b.values.first().copied()).unwrap_or(Value::UNKNOWN);
        if samples.max < 0 {
            return Err(negative(samples.max));
        }
        let samples = samples.to_dim();
        if !self.attributes.with_replacement && samples.min() > classes.max() {
            return Err(too_many(samples, classes));
        }
        context.set_output(0, self.attributes.convert_type, PartialShape::from_dims([batch, samples]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let probs = context.input(0)?;
        let &[batch, classes] = &probs.shape()[..] else {
            return Err(OpError::shape(Blame::Input(0), format!("shape {} must be [batch, classes]", probs.shape())));
        };
        let samples = context.integer(1)?;
        let samples = usize::try_from(samples).map_err(|_| negative(samples))?;
        if !self.attributes.with_replacement && samples > classes {
            return Err(too_many(Dim::fixed(samples), Dim::fixed(classes)));
        }
        let values = widened_view(probs)?;
        let shape = Shape::from([batch, samples]);
        let mut generator = self.generator(context.environment().random.seed);
        let mut draw_all = |write: &mut dyn FnMut(usize, usize)| -> OpResult {
            if samples == 0 {
                return Ok(());
            }
            let mut drawn = filled::<bool>(classes)?;
            for row in 0..batch {
                let mut sums = self.cumulated(&values[row * classes..][..classes], row)?;
                drawn.fill(false);
                for sample in 0..samples {
                    let class = choose(&sums, &drawn, generator.next_one() as f32 / 4_294_967_296.0)
                        .ok_or_else(|| exhausted(row, sample))?;
                    if !self.attributes.with_replacement {
                        drawn[class] = true;
                        take_out(&mut sums, class);
                    }
                    write(row * samples + sample, class);
                }
            }
            Ok(())
        };
        match self.attributes.convert_type {
            ElementType::I32 => {
                let target = context.output_slice::<i32>(0, &shape)?;
                draw_all(&mut |position, class| target[position] = class as i32)
            }
            _ => {
                let target = context.output_slice::<i64>(0, &shape)?;
                draw_all(&mut |position, class| target[position] = class as i64)
            }
        }
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(13)
    }

    fn effects(&self) -> Effects {
        Effects::Random
    }
}

impl Multinomial {
    fn generator(&self, seed: u64) -> Mersenne {
        match (self.attributes.global_seed, self.attributes.op_seed) {
            (0, 0) => Mersenne::of_sequence(&[seed]),
            (global, op) => Mersenne::of_sequence(&[global, op]),
        }
    }

    /// The sums of the probabilities of a row up to each class, divided by the whole sum.
    fn cumulated(&self, values: &[f64], row: usize) -> OpResult<Vec<f32>> {
        let mut sums = filled::<f32>(values.len())?;
        let mut sum = 0f32;
        for (class, (target, value)) in sums.iter_mut().zip(values).enumerate() {
            let value = *value as f32;
            let probability = if self.attributes.log_probs { value.exp() } else { value };
            if !(probability >= 0.0 && probability.is_finite()) {
                let rule = if self.attributes.log_probs {
                    "its exponential must be finite"
                } else {
                    "it must be finite and not negative"
                };
                let message = format!("the probability of class {class} in row {row} is {value}; {rule}");
                return Err(OpError::value(Blame::Input(0), message));
            }
            sum += probability;
            *target = sum;
        }
        if !(sum > 0.0 && sum.is_finite()) {
            let message = format!("the probabilities of row {row} have the sum {sum}; it must be positive and finite");
            return Err(OpError::value(Blame::Input(0), message));
        }
        sums.iter_mut().for_each(|value| *value /= sum);
        Ok(sums)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let mut attributes = MultinomialAttributes::read(context.attributes);
    if context.attributes.text("convert_type").is_some() {
        check_index_type("convert_type", &mut attributes.convert_type, context);
    }
    Arc::new(Multinomial { attributes })
}

/// The first class whose sum reaches `number`. Where rounding leaves none, the last class that has a share.
fn choose(sums: &[f32], drawn: &[bool], number: f32) -> Option<usize> {
    let share = |class: usize| sums[class] - if class > 0 { sums[class - 1] } else { 0.0 };
    let reaches = |sums: &[f32], drawn: &[bool]| {
        sums.iter().zip(drawn).fold(false, |any, (sum, drawn)| any | ((number <= *sum) & !*drawn))
    };
    // Looking at a block at once takes vectors.
    let blocks = sums.chunks(BLOCK).zip(drawn.chunks(BLOCK));
    let block = blocks.take_while(|(sums, drawn)| !reaches(sums, drawn)).count();
    (block * BLOCK..sums.len())
        .find(|class| number <= sums[*class] && !drawn[*class])
        .or_else(|| (0..sums.len()).rev().find(|class| !drawn[*class] && share(*class) > 0.0))
}

/// Takes the share of a class out of the sums, and divides them by what remains.
fn take_out(sums: &mut [f32], class: usize) {
    let share = sums[class] - if class > 0 { sums[class - 1] } else { 0.0 };
    let rest = 1.0 - share;
    let (before, after) = sums.split_at_mut(class);
    before.iter_mut().for_each(|sum| *sum /= rest);
    after.iter_mut().for_each(|sum| *sum = (*sum - share) / rest);
}

fn negative(samples: i64) -> OpError {
    OpError::value(Blame::Input(1), format!("the number of samples is {samples}; it must be at least 0"))
}

fn too_many(samples: Dim, classes: Dim) -> OpError {
    let message = format!("{samples} samples cannot be drawn from {classes} classes without replacement");
    OpError::value(Blame::Input(1), message)
}

fn exhausted(row: usize, sample: usize) -> OpError {
    let message = format!("after {sample} samples no class of row {row} with a positive probability is left");
    OpError::value(Blame::Input(0), message)
}

#[cfg(test)]
mod tests {
    use super::{choose, take_out};
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(replacement: &str, logs: &str) -> Case {
        Case::new("Multinomial", "opset13")
            .attribute("convert_type", "i32")
            .attribute("with_replacement", replacement)
            .attribute("log_probs", logs)
            .attribute("global_seed", "1")
            .attribute("op_seed", "2")
    }

    #[test]
    fn examples_1_and_3_of_the_specification() {
        let none = [false; 3];
        let classes: Vec<_> = [0.2, 0.4, 0.6, 0.8, 1.0].map(|x| choose(&[0.1, 0.6, 1.0], &none, x)).into();
        assert_eq!(classes, [1, 1, 1, 2, 2].map(Some));
        let mut sums = [0.1, 0.6, 1.0];
        assert_eq!(choose(&sums, &none, 0.3), Some(1));
        take_out(&mut sums, 1);
        assert_eq!(sums.map(|s| (s * 100.0).round()), [20.0, 20.0, 100.0]);
        assert_eq!(choose(&sums, &[false, true, false], 0.3), Some(2));
    }

    #[test]
    fn blocks_of_classes() {
        let sums: Vec<f32> = (1..=100).map(|i| i as f32 / 100.0).collect();
        let mut drawn = [false; 100];
        for class in [0, 31, 32, 63, 64, 98, 99] {
            assert_eq!(choose(&sums, &drawn, sums[class]), Some(class));
        }
        drawn[40..].fill(true);
        assert_eq!(choose(&sums, &drawn, 0.405), Some(39));
        drawn.fill(true);
        assert_eq!(choose(&sums, &drawn, 0.1), None);
    }

    #[test]
    fn classes_are_those_of_openvino() {
        // What OpenVINO 2026.4.1 draws with these seeds, in every inference.
        let probabilities = tensor(&[0.1f32, 0.5, 0.4, 0.3, 0.3, 0.4], [2, 3]);
        let inputs = [probabilities, tensor(&[3i64], [])];
        assert_eq!(case("true", "false").run(&inputs).unwrap()[0], tensor(&[2, 2, 1, 0, 1, 0], [2, 3]));
        assert_eq!(case("false", "false").run(&inputs).unwrap()[0], tensor(&[2, 1, 0, 0, 1, 2], [2, 3]));
    }

    #[test]
    fn logarithms_are_probabilities() {
        let probabilities = [0.1f32, 0.5, 0.4];
        let plain = [tensor(&probabilities, [1, 3]), tensor(&[9i32], [1])];
        let logs = [tensor(&probabilities.map(|p| p.ln() + 1.0), [1, 3]), tensor(&[9i32], [1])];
        assert_eq!(case("true", "true").run(&logs).unwrap(), case("true", "false").run(&plain).unwrap());
    }

    #[test]
    fn without_replacement_no_class_comes_twice() {
        let probabilities: Vec<f32> = (0..50).map(|i| 1.0 / (1.0 + i as f32)).collect();
        let inputs = [tensor(&probabilities, [1, 50]), tensor(&[50i64], [1])];
        let mut classes = case("false", "false").run(&inputs).unwrap()[0].slice::<i32>().unwrap().to_vec();
        classes.sort_unstable();
        assert_eq!(classes, (0..50).collect::<Vec<i32>>());
    }

    #[test]
    fn values_are_checked() {
        let error = |probabilities: [f32; 2], samples: i32| {
            let inputs = [tensor(&probabilities, [1, 2]), tensor(&[samples], [])];
            case("false", "false").run(&inputs).unwrap_err().to_string()
        };
        assert!(error([0.5, -0.5], 1).contains("class 1 in row 0 is -0.5; it must be finite and not negative"));
        assert!(error([0.5, f32::NAN], 1).contains("is NaN"));
        assert!(error([0.0, 0.0], 1).contains("have the sum 0; it must be positive"));
        assert!(error([1.0, 0.0], 2).contains("after 1 samples no class of row 0"));
        assert!(error([1.0, 1.0], 3).contains("3 samples cannot be drawn from 2 classes"));
        assert!(error([1.0, 1.0], -1).contains("at least 0"));
    }

    #[test]
    fn types_and_shapes_are_checked() {
        let plain = || case("true", "false");
        assert_eq!(plain().infer(&["f16[?,3]", "i64[1]=5"]), ["i32[?,5]"]);
        assert_eq!(plain().infer(&["f32[2,3]", "i32[]=2..7"]), ["i32[2,2..7]"]);
        assert!(plain().infer_error(&["f32[3]", "i64[]"]).contains("rank 1"));
        assert!(plain().infer_error(&["i32[2,3]", "i64[]"]).contains("floating-point"));
        assert!(plain().infer_error(&["f32[2,3]", "f32[]"]).contains("i32 or i64"));
        let mistyped = Case::new("Multinomial", "opset13").attribute("convert_type", "f32");
        assert_eq!(mistyped.attribute_errors(2).len(), 3);
        plain().assert_monotone(&["f32[2,3]", "i64[]=2"]);
    }
}
