//! # Range
//! The numbers from `start` to `stop`, without it, in steps.
//!
//! Specification: `generation/range-1`, `generation/range-4`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | start | any numeric type | scalar |
//! | in 1 | stop | any numeric type; that of `start` in version 1 | scalar |
//! | in 2 | step | any numeric type; that of `start` in version 1 | scalar; not 0 |
//! | out 0 | | `output_type`; that of `start` in version 1 | [max(ceil((stop - start) / step), 0)] |
//!
//! Version 4 adds `output_type`. For integer output all inputs are rounded towards zero first. Integers are computed
//! exactly and floating-point numbers in f64, as `start + i * step`, each rounded once. Beyond the specification: the
//! inputs may be tensors of one element.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, INFINITE, PartialShape, Shape, TensorView, Value, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::common::value::value_divide;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Range.
pub static RANGE: OpDef = OpDef {
    type_name: "Range",
    category: Category::Generation,
    versions: &[OpVersion::new(1, (1, 3), (3, 3), (1, 1)), OpVersion::new(4, (4, 16), (3, 3), (1, 1))],
    attributes: RangeAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of Range.
    pub struct RangeAttributes {
        /// The element type of the output.
        output_type: ElementType = "output_type", required true, since 4;
    }
}

/// A Range layer.
#[derive(Debug)]
pub struct Range {
    /// The attributes.
    pub attributes: RangeAttributes,
    class_version: u8,
}

/// Start, stop and step.
#[derive(Debug, Clone, Copy)]
enum Numbers {
    Integer([i128; 3]),
    Float([f64; 3]),
}

impl Operation for Range {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        for port in 0..3 {
            context.require_class(port, ElementClass::Numeric)?;
            context.require_one_element(port)?;
        }
        let element_type = match self.class_version {
            1 => context.require_same_type(&[0, 1, 2])?,
            _ => self.attributes.output_type,
        };
        let length = match (context.constant(0), context.constant(1), context.constant(2)) {
            (Some(start), Some(stop), Some(step)) if element_type.is_known() => {
                let aligned = [start.aligned()?, stop.aligned()?, step.aligned()?];
                Dim::fixed(numbers(element_type, [aligned[0].view(), aligned[1].view(), aligned[2].view()])?.length()?)
            }
            _ => length_of_bounds(context)?,
        };
        context.set_output(0, element_type, PartialShape::from_dims([length]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let element_type = match self.class_version {
            1 => context.input(0)?.element_type(),
            _ => self.attributes.output_type,
        };
        let numbers = numbers(element_type, [context.input(0)?, context.input(1)?, context.input(2)?])?;
        let shape = Shape::from([numbers.length()?]);
        let mut output = context.output(0, &shape)?;
        dispatch!(element_type, T in [numeric] => {
            let target = output.slice_mut::<T>()?;
            match numbers {
                Numbers::Integer([mut next, _, step]) => {
                    for target in target {
                        *target = T::from_i128(next);
                        next += step;
                    }
                }
                Numbers::Float([start, _, step]) => {
                    for (i, target) in target.iter_mut().enumerate() {
                        *target = T::from_f64(start + step * i as f64);
                    }
                }
            }
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

impl Numbers {
    /// The number of elements.
    fn length(self) -> OpResult<usize> {
        let length = match self {
            Numbers::Integer([_, _, 0]) | Numbers::Float([_, _, 0.0]) => {
                return Err(OpError::value(Blame::Input(2), "the step is 0"));
            }
            Numbers::Integer([start, stop, step]) => {
                let (span, step) = if step > 0 { (stop - start, step) } else { (start - stop, -step) };
                usize::try_from((span + step - 1).div_euclid(step).max(0)).ok()
            }
            Numbers::Float([start, stop, step]) => {
                let length = ((stop - start) / step).ceil();
                (length.is_finite() && length < INFINITE as f64).then_some(length.max(0.0) as usize)
            }
        };
        length.filter(|length| *length < INFINITE as usize).ok_or_else(|| {
            let message = match self {
                Numbers::Integer([start, stop, step]) => format!("from {start} to {stop} in steps of {step}"),
                Numbers::Float([start, stop, step]) => format!("from {start} to {stop} in steps of {step}"),
            };
            OpError::value(Blame::Node, format!("the number of elements {message} is not a finite size"))
        })
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let class_version = context.class_version;
    let attributes = RangeAttributes::read(context.attributes);
    let given = context.attributes.text("output_type").is_some();
    if class_version >= 4 && given && !(attributes.output_type.is_integer() || attributes.output_type.is_float()) {
        let message = format!("`output_type` is {}, which must be a numeric type", attributes.output_type);
        context.attributes.report(OpError::attribute("output_type", message));
    }
    Arc::new(Range { attributes, class_version })
}

/// Reads the inputs as the output's element type wants them.
fn numbers(element_type: ElementType, inputs: [TensorView<'_>; 3]) -> OpResult<Numbers> {
    let mut integers = [0i128; 3];
    let mut floats = [0f64; 3];
    for (port, input) in inputs.into_iter().enumerate() {
        dispatch!(input.element_type(), T in [numeric] => {
            let [value] = input.slice::<T>()? else {
                let message = format!("one element is expected, not {}", input.elements());
                return Err(OpError::shape(Blame::Input(port), message));
            };
            floats[port] = Number::to_f64(*value);
            if !floats[port].is_finite() {
                return Err(OpError::value(Blame::Input(port), format!("{value:?} is not a finite number")));
            }
            integers[port] = value.to_i128();
        } else { return Err(unsupported(input.element_type())) });
    }
    if !element_type.is_integer() {
        return Ok(Numbers::Float(floats));
    }
    let limit = i128::from(u64::MAX);
    if let Some(port) = integers.iter().position(|v| *v < -limit || *v > limit) {
        return Err(OpError::value(Blame::Input(port), format!("{} is beyond 64 bits", floats[port])));
    }
    Ok(Numbers::Integer(integers))
}

/// The length that bounds of integer inputs allow.
fn length_of_bounds(context: &InferContext<'_>) -> OpResult<Dim> {
    let bound = |port: usize| {
        let bounds = context.bounds(port)?;
        bounds.values.first().copied()
    };
    if bound(2).is_some_and(|step| step.get() == Some(0)) {
        return Err(OpError::value(Blame::Input(2), "the step is 0"));
    }
    let (Some(start), Some(stop), Some(step)) = (bound(0), bound(1), bound(2)) else {
        return Ok(Dim::DYNAMIC);
    };
    let Some(step) = step.get() else { return Ok(Dim::DYNAMIC) };
    let (span, step) = if step > 0 { (stop - start, step) } else { (start - stop, step.saturating_neg()) };
    Ok(value_divide(span + Value::known(step - 1), Value::known(step), true).to_dim())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::f16;
    use pretty_assertions::assert_eq;

    fn version_4(output_type: &str) -> Case {
        Case::new("Range", "opset4").attribute("output_type", output_type)
    }

    #[test]
    fn examples_of_the_specification() {
        let up = [tensor(&[2i32], []), tensor(&[23i32], []), tensor(&[3i32], [])];
        let down = [tensor(&[23i32], []), tensor(&[2i32], []), tensor(&[-3i32], [])];
        for case in [Case::new("Range", "opset1"), version_4("i32")] {
            assert_eq!(case.run(&up).unwrap()[0], tensor(&[2i32, 5, 8, 11, 14, 17, 20], [7]));
            assert_eq!(case.run(&down).unwrap()[0], tensor(&[23i32, 20, 17, 14, 11, 8, 5], [7]));
        }
        let floats = [tensor(&[1f32], []), tensor(&[2.5f32], []), tensor(&[0.5f32], [])];
        assert_eq!(version_4("f32").run(&floats).unwrap()[0], tensor(&[1f32, 1.5, 2.0], [3]));
    }

    #[test]
    fn inputs_are_truncated_for_integers() {
        let inputs = [tensor(&[1.9f32], []), tensor(&[7.9f64], []), tensor(&[2.5f32], [1])];
        assert_eq!(version_4("i64").run(&inputs).unwrap()[0], tensor(&[1i64, 3, 5], [3]));
        let inputs = [tensor(&[5i32], []), tensor(&[1.0f32], []), tensor(&[-1.5f32], [])];
        let halves = [f16::from_f32(5.0), f16::from_f32(3.5), f16::from_f32(2.0)];
        assert_eq!(version_4("f16").run(&inputs).unwrap()[0], tensor(&halves, [3]));
    }

    #[test]
    fn nothing_and_too_much() {
        let range = |start: i64, stop: i64, step: i64| {
            version_4("i64").run(&[tensor(&[start], []), tensor(&[stop], []), tensor(&[step], [])])
        };
        assert_eq!(range(5, 2, 1).unwrap()[0], tensor::<i64>(&[], [0]));
        assert_eq!(range(0, 1, 0).unwrap_err().to_string(), "input 2: the step is 0");
        assert!(range(i64::MIN, i64::MAX, 1).is_err());
        let nan = [tensor(&[0f32], []), tensor(&[f32::NAN], []), tensor(&[1f32], [])];
        assert_eq!(version_4("f32").run(&nan).unwrap_err().to_string(), "input 1: NaN is not a finite number");
    }

    #[test]
    fn bounds_give_the_length() {
        let case = version_4("i64");
        assert_eq!(case.infer(&["i64[]=0", "i64[]=3..9", "i64[]=2"]), ["i64[2..5]"]);
        assert_eq!(case.infer(&["i64[]=0", "i64[]=3..", "i64[]=1"]), ["i64[3..]"]);
        assert_eq!(case.infer(&["i64[]=0", "i64[]", "i64[]=1"]), ["i64[?]"]);
        assert_eq!(case.infer(&["i64[]=0", "i64[]=-5..4", "i64[]=1"]), ["i64[..4]"]);
        assert!(Case::new("Range", "opset1").infer_error(&["i64[]", "f32[]", "i64[]"]).contains("differs from i64"));
        assert!(case.infer_error(&["i64[2]", "i64[]", "i64[]"]).contains("must be a scalar"));
    }

    #[test]
    fn inference_is_monotone() {
        version_4("i64").assert_monotone(&["i64[]=2", "i64[]=23", "i64[]=3"]);
        version_4("i64").assert_monotone(&["i64[]=23", "i64[]=2", "i64[]=-3"]);
    }
}
