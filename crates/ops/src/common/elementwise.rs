//! Operations that work element by element.

use ovir_tensor::{Bounds, ElementClass, ElementType, Shape, SmallVec, Value, dispatch};

use super::broadcast::{BroadcastAttributes, broadcast_shapes, broadcast_strides, for_each_offset};
use super::number::Number;
use crate::{Blame, EvaluateContext, InferContext, OpError, OpResult};

/// The mathematics of an operation of one input.
#[derive(Clone, Copy)]
pub(crate) struct Unary<'f> {
    /// On floating-point types: computed in f64, rounded once.
    pub float: &'f dyn Fn(f64) -> f64,
    /// On integers, where the operation has them: computed exactly, taken modulo the width.
    pub integer: Option<&'f dyn Fn(i128) -> i128>,
}

/// The mathematics of an operation of two inputs of one element type.
#[derive(Clone, Copy)]
pub(crate) struct Binary<'f> {
    /// On floating-point types: computed in f64, rounded once. For +, -, *, / and square root this equals computing
    /// in f32 directly, because f64 has more than twice its precision.
    pub float: Option<&'f dyn Fn(f64, f64) -> f64>,
    /// On integers: computed exactly, taken modulo the width; `None` where the result does not exist (x / 0).
    pub integer: Option<&'f dyn Fn(i128, i128) -> Option<i128>>,
    /// On booleans.
    pub boolean: Option<&'f dyn Fn(bool, bool) -> bool>,
}

/// The mathematics of a comparison.
#[derive(Clone, Copy)]
pub(crate) struct Comparison {
    /// On floating-point types.
    pub float: fn(&f64, &f64) -> bool,
    /// On integers and booleans.
    pub integer: fn(&i128, &i128) -> bool,
}

/// One input, one output of the same type and shape.
pub(crate) fn infer_unary(context: &mut InferContext<'_>, class: ElementClass) -> OpResult {
    let element_type = context.require_class(0, class)?;
    let shape = context.shape(0).clone();
    context.set_output(0, element_type, shape);
    Ok(())
}

/// Applies a function to every element.
pub(crate) fn evaluate_unary(context: &mut EvaluateContext<'_>, function: Unary<'_>) -> OpResult {
    let input = context.input(0)?;
    let element_type = input.element_type();
    let mut output = context.output(0, input.shape())?;
    dispatch!(element_type, T in [numeric] => {
        let (source, target) = (input.slice::<T>()?, output.slice_mut::<T>()?);
        if <T as Number>::IS_FLOAT {
            for (t, s) in target.iter_mut().zip(source) {
                *t = T::from_f64((function.float)(Number::to_f64(*s)));
            }
            return Ok(());
        }
        let Some(integer) = function.integer else { return Err(unsupported(element_type)) };
        for (t, s) in target.iter_mut().zip(source) {
            *t = T::from_i128(integer(s.to_i128()));
        }
        Ok(())
    } else { Err(unsupported(element_type)) })
}

/// Two inputs of one type, broadcast; the output has the same type, or `result` where it is given.
pub(crate) fn infer_binary(
    context: &mut InferContext<'_>,
    attributes: &BroadcastAttributes,
    class: ElementClass,
    result: Option<ElementType>,
) -> OpResult {
    context.require_class(0, class)?;
    context.require_class(1, class)?;
    let element_type = context.require_same_type(&[0, 1])?;
    let shape = attributes.infer(context, (0, 1))?;
    context.set_output(0, result.unwrap_or(element_type), shape);
    Ok(())
}

/// Follows small integer values through an operation of two inputs.
pub(crate) fn propagate_binary(
    context: &mut InferContext<'_>,
    attributes: &BroadcastAttributes,
    function: impl Fn(Value, Value) -> Value,
) {
    let (Some(a), Some(b)) = (context.bounds(0), context.bounds(1)) else {
        return;
    };
    let second = attributes.aligned_second(&a.shape, &b.shape);
    let Some(shape) = broadcast_shapes(&a.shape, &second) else {
        return;
    };
    if shape.elements() > ovir_tensor::MAX_BOUNDS_ELEMENTS {
        return;
    }
    let (left, right) = (broadcast_strides(&a.shape, &shape), broadcast_strides(&second, &shape));
    let mut values: SmallVec<[Value; 8]> = SmallVec::new();
    for_each_offset(&shape, [&left, &right], |[i, j]| values.push(function(a.values[i], b.values[j])));
    context.set_bounds(0, Bounds { shape, values });
}

/// Applies a function to every pair of elements.
pub(crate) fn evaluate_binary(
    context: &mut EvaluateContext<'_>,
    attributes: &BroadcastAttributes,
    function: Binary<'_>,
) -> OpResult {
    let (a, b) = (context.input(0)?, context.input(1)?);
    let element_type = a.element_type();
    let pairs = Pairs::new(attributes, a.shape(), b.shape())?;
    let mut output = context.output(0, &pairs.shape)?;
    if element_type == ElementType::Boolean {
        let Some(boolean) = function.boolean else {
            return Err(unsupported(element_type));
        };
        let (x, y, target) = (a.slice::<u8>()?, b.slice::<u8>()?, output.slice_mut::<u8>()?);
        pairs.visit(|k, i, j| {
            target[k] = u8::from(boolean(x[i] != 0, y[j] != 0));
            Ok(())
        })?;
        return Ok(());
    }
    dispatch!(element_type, T in [numeric] => {
        let (x, y, target) = (a.slice::<T>()?, b.slice::<T>()?, output.slice_mut::<T>()?);
        if <T as Number>::IS_FLOAT {
            let Some(float) = function.float else { return Err(unsupported(element_type)) };
            return pairs.visit(|k, i, j| {
                target[k] = T::from_f64(float(Number::to_f64(x[i]), Number::to_f64(y[j])));
                Ok(())
            });
        }
        let Some(integer) = function.integer else { return Err(unsupported(element_type)) };
        pairs.visit(|k, i, j| {
            let value = integer(x[i].to_i128(), y[j].to_i128()).ok_or_else(|| {
                OpError::value(Blame::Input(1), format!("element {j} is {:?}: division by zero has no integer result", y[j]))
            })?;
            target[k] = T::from_i128(value);
            Ok(())
        })
    } else { Err(unsupported(element_type)) })
}

/// Compares every pair of elements.
pub(crate) fn evaluate_comparison(
    context: &mut EvaluateContext<'_>,
    attributes: &BroadcastAttributes,
    function: Comparison,
) -> OpResult {
    let (a, b) = (context.input(0)?, context.input(1)?);
    let element_type = a.element_type();
    let pairs = Pairs::new(attributes, a.shape(), b.shape())?;
    let mut output = context.output(0, &pairs.shape)?;
    let target = output.slice_mut::<u8>()?;
    if let (Some(x), Some(y)) = (a.strings(), b.strings()) {
        // Strings are ordered by their bytes, which is the order of their code points.
        return pairs.visit(|k, i, j| {
            target[k] = u8::from((function.integer)(&(x[i].cmp(&y[j]) as i128), &0));
            Ok(())
        });
    }
    dispatch!(element_type, T in [native] => {
        let (x, y) = (a.slice::<T>()?, b.slice::<T>()?);
        pairs.visit(|k, i, j| {
            target[k] = u8::from(if <T as Number>::IS_FLOAT {
                (function.float)(&Number::to_f64(x[i]), &Number::to_f64(y[j]))
            } else {
                (function.integer)(&x[i].to_i128(), &y[j].to_i128())
            });
            Ok(())
        })
    } else { Err(unsupported(element_type)) })
}

/// The error of an element type that the reference does not compute.
pub(crate) fn unsupported(element_type: ElementType) -> OpError {
    OpError::unsupported(format!("element type {element_type} is not supported by this operation"))
}

/// The pairs of elements that broadcasting brings together.
struct Pairs {
    shape: Shape,
    left: SmallVec<[usize; 8]>,
    right: SmallVec<[usize; 8]>,
}

impl Pairs {
    fn new(attributes: &BroadcastAttributes, a: &Shape, b: &Shape) -> OpResult<Pairs> {
        let b_aligned = attributes.aligned_second(a, b);
        let shape = broadcast_shapes(a, &b_aligned).ok_or_else(|| {
            OpError::shape(Blame::Input(1), format!("shape {b} cannot be broadcast with shape {a} of input 0"))
        })?;
        let (left, right) = (broadcast_strides(a, &shape), broadcast_strides(&b_aligned, &shape));
        Ok(Pairs { shape, left, right })
    }

    fn visit(&self, mut each: impl FnMut(usize, usize, usize) -> OpResult) -> OpResult {
        let mut position = 0;
        let mut result = Ok(());
        for_each_offset(&self.shape, [&self.left, &self.right], |[i, j]| {
            if result.is_ok() {
                result = each(position, i, j);
            }
            position += 1;
        });
        result
    }
}
