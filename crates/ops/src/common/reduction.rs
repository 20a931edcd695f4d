//! What the reductions share: axes, shapes, folding.

use ovir_tensor::{
    Bounds, Dim, ElementClass, ElementType, MAX_BOUNDS_ELEMENTS, PartialShape, SmallVec, Value, dispatch,
};

use super::axes::{Slices, infer_axes, read_axes, reduced_shape};
use super::elementwise::unsupported;
use super::number::Number;
use crate::{EvaluateContext, InferContext, OpResult};

crate::attributes! {
    /// Attributes of the reductions.
    pub struct ReductionAttributes {
        /// Whether reduced dimensions remain with size 1.
        keep_dims: bool = "keep_dims", default "false";
    }
}

/// The mathematics of a reduction: elements are folded, then the result is finished with the number of elements.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    /// Where the fold starts; also the result for no elements, saturated to the element type.
    pub initial: f64,
    /// The fold of floating-point elements, computed in f64.
    pub float: fn(f64, f64) -> f64,
    /// The fold of integers, taken modulo the width.
    pub integer: fn(i128, i128) -> i128,
    /// The last step on floating-point types.
    pub finish_float: fn(f64, usize) -> f64,
    /// The last step on integers.
    pub finish_integer: fn(i128, usize) -> i128,
}

/// Checks the inputs and gives the shape of the output.
pub(crate) fn infer_reduction(
    context: &mut InferContext<'_>,
    attributes: &ReductionAttributes,
    class: ElementClass,
) -> OpResult {
    let element_type = context.require_class(0, class)?;
    let axes = infer_axes(context, 1)?;
    let shape = context.shape(0);
    let output = match (shape.dims(), axes) {
        (Some(dims), Some(axes)) => {
            let keep = |(axis, dim): (usize, &Dim)| match (axes.contains(&axis), attributes.keep_dims) {
                (false, _) => Some(*dim),
                (true, true) => Some(Dim::fixed(1)),
                (true, false) => None,
            };
            PartialShape::from_dims(dims.iter().enumerate().filter_map(keep))
        }
        (Some(dims), None) => shape_with_unknown_axes(context, dims, attributes.keep_dims),
        (None, _) => match context.shape(1).elements().get() {
            Some(0) => shape.clone(),
            _ => PartialShape::DYNAMIC,
        },
    };
    context.set_output(0, element_type, output);
    Ok(())
}

/// Follows small integer values through a reduction.
pub(crate) fn propagate_reduction(
    context: &mut InferContext<'_>,
    attributes: &ReductionAttributes,
    initial: Value,
    fold: impl Fn(Value, Value) -> Value,
) {
    let (Some(bounds), Ok(Some(axes))) = (context.bounds(0), infer_axes(context, 1)) else {
        return;
    };
    let shape = reduced_shape(&bounds.shape, &axes, attributes.keep_dims);
    let slices = Slices::new(&bounds.shape, &axes);
    if slices.length() == 0 || shape.elements() > MAX_BOUNDS_ELEMENTS {
        return;
    }
    let mut values: SmallVec<[Value; 8]> = SmallVec::new();
    slices.for_each(|start| {
        let mut state = initial;
        slices.for_each_element(start, |offset| state = fold(state, bounds.values[offset]));
        values.push(state);
    });
    context.set_bounds(0, Bounds { shape, values });
}

/// Reduces.
pub(crate) fn evaluate_reduction(
    context: &mut EvaluateContext<'_>,
    attributes: &ReductionAttributes,
    reduction: Reduction,
) -> OpResult {
    let input = context.input(0)?;
    let axes = read_axes(context, 1)?;
    let slices = Slices::new(input.shape(), &axes);
    let shape = reduced_shape(input.shape(), &axes, attributes.keep_dims);
    let element_type = input.element_type();
    let mut output = context.output(0, &shape)?;
    let length = slices.length();
    dispatch!(element_type, T in [numeric] => {
        let (source, target) = (input.slice::<T>()?, output.slice_mut::<T>()?);
        if length == 0 {
            target.fill(T::from_f64(reduction.initial));
            return Ok(());
        }
        let mut targets = target.iter_mut();
        slices.for_each(|start| {
            let Some(result) = targets.next() else { return };
            if <T as Number>::IS_FLOAT {
                let mut state = reduction.initial;
                slices.for_each_element(start, |i| state = (reduction.float)(state, Number::to_f64(source[i])));
                *result = T::from_f64((reduction.finish_float)(state, length));
            } else {
                let mut state = reduction.initial as i128;
                slices.for_each_element(start, |i| state = (reduction.integer)(state, source[i].to_i128()));
                *result = T::from_i128((reduction.finish_integer)(state, length));
            }
        });
        Ok(())
    } else { Err(unsupported(element_type)) })
}

/// Reduces booleans.
pub(crate) fn evaluate_logical_reduction(
    context: &mut EvaluateContext<'_>,
    attributes: &ReductionAttributes,
    initial: bool,
    fold: fn(bool, bool) -> bool,
) -> OpResult {
    let input = context.input(0)?;
    let axes = read_axes(context, 1)?;
    let slices = Slices::new(input.shape(), &axes);
    let shape = reduced_shape(input.shape(), &axes, attributes.keep_dims);
    if input.element_type() != ElementType::Boolean {
        return Err(unsupported(input.element_type()));
    }
    let source = input.slice::<u8>()?;
    let target = context.output_slice::<u8>(0, &shape)?;
    let mut targets = target.iter_mut();
    slices.for_each(|start| {
        let mut state = initial;
        slices.for_each_element(start, |i| state = fold(state, source[i] != 0));
        if let Some(result) = targets.next() {
            *result = u8::from(state);
        }
    });
    Ok(())
}

/// What is known of the output when the axes are not known: their number may be.
fn shape_with_unknown_axes(context: &InferContext<'_>, dims: &[Dim], keep_dims: bool) -> PartialShape {
    let count = context.shape(1).elements().get();
    match (count, keep_dims) {
        (Some(0), _) => context.shape(0).clone(),
        (_, true) => PartialShape::from_dims(dims.iter().map(|dim| dim.union(Dim::fixed(1)))),
        (Some(1), false) if !dims.is_empty() => {
            PartialShape::from_dims(dims.windows(2).map(|pair| pair[0].union(pair[1])))
        }
        _ => PartialShape::DYNAMIC,
    }
}
