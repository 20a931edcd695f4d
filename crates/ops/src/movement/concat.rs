//! # Concat
//! Tensors joined along one axis.
//!
//! Specification: `movement/concat-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0.. | data | any, all the same | all the same except along `axis` |
//! | out 0 | | that of the inputs | the sum of the sizes along `axis` |

use std::sync::Arc;

use ovir_tensor::{Bounds, Dim, INFINITE, MAX_BOUNDS_ELEMENTS, PartialShape, Shape, SmallVec, Value};

use crate::common::movement::{Cell, Strided, copy_strided, dispatch_cell};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// The attributes of Concat.
    pub struct ConcatAttributes {
        /// The axis along which the inputs are joined; negative counts from the end.
        axis: i64 = "axis", required true;
    }
}

/// The definition of Concat.
pub static CONCAT: OpDef = OpDef {
    type_name: "Concat",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 16), (1, usize::MAX), (1, 1))],
    attributes: ConcatAttributes::DEFINITIONS,
    build,
};

/// A Concat layer.
#[derive(Debug)]
pub struct Concat {
    /// The attributes.
    pub attributes: ConcatAttributes,
}

impl Operation for Concat {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let ports: SmallVec<[usize; 8]> = (0..context.input_count()).collect();
        let element_type = context.require_same_type(&ports)?;
        let shape = self.output_shape(context)?;
        let known = shape.to_shape();
        context.set_output(0, element_type, shape);
        if let Some(shape) = known {
            self.propagate(context, shape)?;
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let first = context.input(0)?;
        let axis = normalize_axis(self.attributes.axis, first.shape().rank(), Blame::attribute("axis"))?;
        let mut shape = first.shape().clone();
        for port in 1..context.input_count() {
            let part = context.input(port)?.shape();
            let fits = |(i, (a, b)): (usize, (&usize, &usize))| i == axis || a == b;
            if part.rank() != shape.rank() || !part.iter().zip(shape.iter()).enumerate().all(fits) {
                let message = format!("shape {part} differs from shape {} of input 0 off axis {axis}", first.shape());
                return Err(OpError::shape(Blame::Input(port), message));
            }
            shape[axis] = shape[axis].saturating_add(part[axis]);
        }
        let inputs: SmallVec<[_; 8]> =
            (0..context.input_count()).map(|port| context.input(port)).collect::<OpResult<_>>()?;
        let mut output = context.output(0, &shape)?;
        dispatch_cell!(first.element_type(), C => {
            let target = C::target(&mut output);
            let mut to = Strided::dense(&shape);
            for input in &inputs {
                let part = input.shape();
                copy_strided(part, C::source(input), &Strided::dense(part), target, &to);
                to.offset += part[axis] * to.strides[axis] as usize;
            }
            Ok(())
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

impl Concat {
    fn output_shape(&self, context: &InferContext<'_>) -> OpResult<PartialShape> {
        let ranked = (0..context.input_count()).find_map(|port| Some((port, context.shape(port).dims()?)));
        let Some((first, dims)) = ranked else { return Ok(PartialShape::DYNAMIC) };
        let axis = normalize_axis(self.attributes.axis, dims.len(), Blame::attribute("axis"))?;
        let mut output: SmallVec<[Dim; 8]> = SmallVec::from_slice(dims);
        // Inputs of unknown rank have some size along the axis.
        let unranked = (0..context.input_count()).any(|port| context.shape(port).dims().is_none());
        for port in first + 1..context.input_count() {
            let shape = context.shape(port);
            let Some(part) = shape.dims() else { continue };
            if part.len() != dims.len() {
                let message = format!(
                    "shape {shape} must have rank {} like {} of input {first}",
                    dims.len(),
                    context.shape(first)
                );
                return Err(OpError::shape(Blame::Input(port), message));
            }
            for (i, dim) in part.iter().enumerate() {
                output[i] = if i == axis {
                    output[i] + *dim
                } else {
                    output[i].merge(*dim).ok_or_else(|| mismatch(context, port, i, axis))?
                };
            }
        }
        if unranked {
            output[axis] = Dim::interval(output[axis].min(), INFINITE);
        }
        Ok(PartialShape::from_dims(output))
    }

    fn propagate(&self, context: &mut InferContext<'_>, shape: Shape) -> OpResult {
        let count = context.input_count();
        let elements = shape.elements();
        if elements > MAX_BOUNDS_ELEMENTS || !(0..count).any(|port| context.bounds(port).is_some()) {
            return Ok(());
        }
        let axis = normalize_axis(self.attributes.axis, shape.rank(), Blame::attribute("axis"))?;
        let mut values: SmallVec<[Value; 8]> = SmallVec::from_elem(Value::UNKNOWN, elements);
        let mut to = Strided::dense(&shape);
        for port in 0..count {
            let Some(part) = context.shape(port).to_shape() else { return Ok(()) };
            if let Some(bounds) = context.bounds(port) {
                copy_strided(&part, &bounds.values, &Strided::dense(&part), &mut values, &to);
            }
            to.offset += part[axis] * to.strides[axis] as usize;
        }
        context.set_bounds(0, Bounds { shape, values });
        Ok(())
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Concat { attributes: ConcatAttributes::read(context.attributes) })
}

fn mismatch(context: &InferContext<'_>, port: usize, i: usize, axis: usize) -> OpError {
    let shape = context.shape(port);
    let other = (0..port).find(|p| !context.shape(*p).dim(i).compatible(shape.dim(i))).unwrap_or(0);
    let message = format!(
        "shape {shape} must equal shape {} of input {other} except along axis {axis}: {} meets {} at axis {i}",
        context.shape(other),
        shape.dim(i),
        context.shape(other).dim(i)
    );
    OpError::shape(Blame::Input(port), message)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(axis: &str) -> Case {
        Case::new("Concat", "opset1").attribute("axis", axis)
    }

    #[test]
    fn joins_along_an_axis() {
        let (a, b) = (tensor(&[1f32, 2.0, 3.0, 4.0], [2, 2]), tensor(&[5f32, 6.0], [2, 1]));
        let output = case("-1").run(&[a.clone(), b]).unwrap();
        assert_eq!(output[0], tensor(&[1f32, 2.0, 5.0, 3.0, 4.0, 6.0], [2, 3]));
        let output = case("0").run(&[a.clone(), tensor::<f32>(&[], [0, 2]), a]).unwrap();
        assert_eq!(output[0].shape().to_vec(), [4, 2]);
    }

    #[test]
    fn shapes_and_values() {
        assert_eq!(case("1").infer(&["f32[1,8,50]", "f32[?,12,?]", "f32[1,4..5,50]"]), ["f32[1,24..25,50]"]);
        assert_eq!(case("1").infer(&["f32[2,3]", "f32[...]"]), ["f32[2,3..]"]);
        assert_eq!(case("0").infer(&["i64[1]=2", "i64[1]=3..7", "i64[1]"]), ["i64[3]=2,3..7,.."]);
        assert_eq!(
            case("1").infer_error(&["f32[2,3]", "f32[...]", "f32[4,3]"]),
            "input 2: shape [4,3] must equal shape [2,3] of input 0 except along axis 1: 4 meets 2 at axis 0"
        );
        assert_eq!(
            case("2").infer_error(&["f32[2,3]", "f32[2,3]"]),
            "attribute `axis`: axis 2 is out of range [-2, 1] for a tensor of rank 2"
        );
        assert_eq!(
            case("0").infer_error(&["f32[2,3]", "f32[2]"]),
            "input 1: shape [2] must have rank 2 like [2,3] of input 0"
        );
    }
}
