//! # Broadcast
//! A tensor repeated to fill a given shape.
//!
//! Specification: `movement/broadcast-1`, `movement/broadcast-3`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | in 1 | target_shape | any integer type | `[output rank]` |
//! | in 2 | axes_mapping (mode `explicit`) | any integer type | `[rank of data]` |
//! | out 0 | | that of `data` | `target_shape`; in mode `bidirectional` broadcast with `data` |
//!
//! Version 3 added mode `bidirectional`. `axes_mapping` is ascending; it is ignored in the other modes.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec, TensorView, Value};

use crate::common::broadcast::numpy_mismatch;
use crate::common::movement::{Strided, View, evaluate_view, exact_shape, propagate_view};
use crate::infer::{integers_at, normalize_axis};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attribute_enum! {
    /// How the axes of the data are mapped to those of the output.
    pub enum BroadcastMode {
        /// By NumPy's rule, from the data to the target shape.
        #[default]
        Numpy = "numpy",
        /// As `axes_mapping` says; version 1 is also written as `none`.
        Explicit = "explicit" | "none",
        /// By NumPy's rule, both ways.
        Bidirectional = "bidirectional",
    }
}

crate::attributes! {
    /// The attributes of Broadcast.
    pub struct BroadcastOpAttributes {
        /// The rule.
        mode: BroadcastMode = "mode", default "numpy";
    }
}

/// The definition of Broadcast.
pub static BROADCAST: OpDef = OpDef {
    type_name: "Broadcast",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 2), (2, 3), (1, 1)), OpVersion::new(3, (3, 16), (2, 3), (1, 1))],
    attributes: BroadcastOpAttributes::DEFINITIONS,
    build,
};

/// A Broadcast layer.
#[derive(Debug)]
pub struct Broadcast {
    /// The class version.
    pub class_version: u8,
    /// The attributes.
    pub attributes: BroadcastOpAttributes,
}

impl Broadcast {
    /// Whether an input maps the axes of the data to those of the output.
    pub fn is_explicit(&self) -> bool {
        self.attributes.mode == BroadcastMode::Explicit
    }
}

impl Operation for Broadcast {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        context.require_class(1, ElementClass::Integer)?;
        context.require_rank(1, 1..=1)?;
        let is_explicit = self.attributes.mode == BroadcastMode::Explicit;
        let mut mapping = None;
        if is_explicit {
            context.input(2)?;
            context.require_class(2, ElementClass::Integer)?;
            context.require_rank(2, 1..=1)?;
            mapping = context.integers(2);
        }
        let target = target_shape(context)?;
        let data = context.shape(0);
        let shape = match self.attributes.mode {
            BroadcastMode::Bidirectional => {
                data.broadcast(&target).map_err(|(i, j)| numpy_mismatch(data, &target, i, j, (0, 1)))?
            }
            _ => self.one_way(data, &target, mapping.as_deref())?,
        };
        let known = shape.to_shape();
        context.set_output(0, element_type, shape);
        if let (Some(shape), Some(input)) = (known, context.shape(0).to_shape())
            && (!is_explicit || mapping.is_some())
        {
            propagate_view(context, 0, &self.view(&input, shape, mapping.as_deref())?);
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let mapping = if self.is_explicit() { Some(context.integers(2)?) } else { None };
        let view = self.broadcast(context.input(0)?.shape(), context.integers(1)?, mapping.as_deref())?;
        evaluate_view(context, 0, &view)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

impl Broadcast {
    /// The output as its elements lie in data of shape `input`. `parameters` are the target shape and, where
    /// [`Broadcast::is_explicit`], the axes.
    ///
    /// # Errors
    /// Parameters that are no integers, or that do not fit the data.
    pub fn view_of(&self, input: &Shape, parameters: &[TensorView<'_>]) -> OpResult<View> {
        let mapping = if self.is_explicit() { Some(integers_at(parameters, 1)?) } else { None };
        self.broadcast(input, integers_at(parameters, 0)?, mapping.as_deref())
    }

    fn broadcast(&self, input: &Shape, target: SmallVec<[i64; 8]>, mapping: Option<&[i64]>) -> OpResult<View> {
        let data = PartialShape::from(input);
        let target = PartialShape::from_dims(dims_of(target.into_iter().map(Value::known))?);
        let shape = match self.attributes.mode {
            BroadcastMode::Bidirectional => {
                data.broadcast(&target).map_err(|(i, j)| numpy_mismatch(&data, &target, i, j, (0, 1)))?
            }
            _ => self.one_way(&data, &target, mapping)?,
        };
        self.view(input, exact_shape(&shape)?, mapping)
    }

    /// The output shape where the data is broadcast to the target, not the other way round.
    fn one_way(&self, data: &PartialShape, target: &PartialShape, mapping: Option<&[i64]>) -> OpResult<PartialShape> {
        let (Some(from), Some(to)) = (data.dims(), target.dims()) else { return Ok(target.clone()) };
        let is_explicit = self.attributes.mode == BroadcastMode::Explicit;
        if is_explicit && mapping.is_none() {
            return Ok(target.clone());
        }
        if from.len() > to.len() {
            let message = format!("the target shape {target} has fewer axes than shape {data} of input 0");
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let mut output: SmallVec<[Dim; 8]> = SmallVec::from_slice(to);
        for (i, axis) in mapped_axes(from.len(), to.len(), mapping)?.into_iter().enumerate() {
            let (dim, wanted) = (from[i], to[axis]);
            if dim.contains(1) {
                continue;
            }
            output[axis] = wanted.merge(dim).ok_or_else(|| {
                let message = format!(
                    "shape {data} cannot be broadcast to {target}: {dim} at axis {i} meets {wanted} at axis {axis}"
                );
                OpError::shape(Blame::Input(0), message)
            })?;
        }
        for (i, axis) in mapped_axes(from.len(), to.len(), mapping)?.into_iter().enumerate() {
            if from[i].get() == Some(0) && !to[axis].contains(0) {
                let message = format!("shape {data} cannot be broadcast to {target}: 0 at axis {i} stays 0");
                return Err(OpError::shape(Blame::Input(0), message));
            }
        }
        Ok(PartialShape::from_dims(output))
    }

    fn view(&self, input: &Shape, shape: Shape, mapping: Option<&[i64]>) -> OpResult<View> {
        let dense = Strided::dense(input);
        let mut strides: SmallVec<[isize; 8]> = SmallVec::from_elem(0, shape.rank());
        for (i, axis) in mapped_axes(input.rank(), shape.rank(), mapping)?.into_iter().enumerate() {
            if input[i] == shape[axis] {
                strides[axis] = dense.strides[i];
            } else if input[i] != 1 {
                let message = format!("shape {input} cannot be broadcast to {shape}");
                return Err(OpError::shape(Blame::Input(0), message));
            }
        }
        Ok(View { walk: SmallVec::from_slice(&shape), shape, from: Strided { offset: 0, strides } })
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = BroadcastOpAttributes::read(context.attributes);
    if context.class_version < 3 && attributes.mode == BroadcastMode::Bidirectional {
        let message = "`mode=\"bidirectional\"` is not allowed before version 3: it must be numpy or explicit";
        context.attributes.report(OpError::attribute("mode", message));
    }
    Arc::new(Broadcast { class_version: context.class_version, attributes })
}

fn target_shape(context: &InferContext<'_>) -> OpResult<PartialShape> {
    if let Some(bounds) = context.bounds(1) {
        return Ok(PartialShape::from_dims(dims_of(bounds.values.iter().copied())?));
    }
    match context.shape(1).dim(0).get() {
        Some(rank) if rank <= ovir_tensor::MAX_RANK => Ok(PartialShape::of_rank(rank)),
        _ => Ok(PartialShape::DYNAMIC),
    }
}

fn dims_of(values: impl Iterator<Item = Value>) -> OpResult<SmallVec<[Dim; 8]>> {
    let dim = |(i, value): (usize, Value)| match value.max < 0 {
        true => {
            let message = format!("element {i} is {value:?}; a size must not be negative");
            Err(OpError::value(Blame::Input(1), message))
        }
        false => Ok(value.to_dim()),
    };
    values.enumerate().map(dim).collect()
}

/// The axis of the output for each axis of the data.
fn mapped_axes(rank: usize, output_rank: usize, mapping: Option<&[i64]>) -> OpResult<SmallVec<[usize; 8]>> {
    let Some(mapping) = mapping else {
        let shift = output_rank.saturating_sub(rank);
        return Ok((0..rank).map(|i| i + shift).collect());
    };
    if mapping.len() != rank {
        let message = format!("{} axes are mapped; input 0 has rank {rank}", mapping.len());
        return Err(OpError::shape(Blame::Input(2), message));
    }
    let mut axes: SmallVec<[usize; 8]> = SmallVec::new();
    for axis in mapping {
        let position = normalize_axis(*axis, output_rank, Blame::Input(2))?;
        if axes.last().is_some_and(|last| *last >= position) {
            return Err(OpError::value(Blame::Input(2), format!("axes {mapping:?} must be ascending")));
        }
        axes.push(position);
    }
    Ok(axes)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(mode: &str) -> Case {
        Case::new("Broadcast", "opset3").attribute("mode", mode)
    }

    #[test]
    fn examples_of_the_specification() {
        assert_eq!(case("numpy").infer(&["f32[16,1,1]", "i64[4]=1,16,50,50"]), ["f32[1,16,50,50]"]);
        assert_eq!(case("explicit").infer(&["f32[16]", "i64[4]=1,16,50,50", "i64[1]=1"]), ["f32[1,16,50,50]"]);
        assert_eq!(case("explicit").infer(&["f32[50,50]", "i64[4]=1,50,50,16", "i64[2]=1,2"]), ["f32[1,50,50,16]"]);
        assert_eq!(case("bidirectional").infer(&["f32[16,1,1]", "i64[4]=1,1,50,50"]), ["f32[1,16,50,50]"]);
    }

    #[test]
    fn repeats() {
        let column = tensor(&[1u8, 2], [2, 1]);
        let output = case("numpy").run(&[column.clone(), tensor(&[2i64, 2, 2], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[1u8, 1, 2, 2, 1, 1, 2, 2], [2, 2, 2]));
        let output = case("explicit").run(&[tensor(&[1u8, 2], [2]), tensor(&[2i32, 2], [2]), tensor(&[0i32], [1])]);
        assert_eq!(output.unwrap()[0], tensor(&[1u8, 1, 2, 2], [2, 2]));
        let output = case("bidirectional").run(&[column, tensor(&[1i64, 3], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[1u8, 1, 1, 2, 2, 2], [2, 3]));
        let output = case("numpy").run(&[tensor(&[1u8], []), tensor(&[0i64], [1])]).unwrap();
        assert_eq!(output[0].shape().to_vec(), [0]);
    }

    #[test]
    fn shapes_and_values() {
        assert_eq!(case("numpy").infer(&["f32[?,4]", "i64[3]=2,3..5,.."]), ["f32[2,3..5,4]"]);
        assert_eq!(case("numpy").infer(&["i64[1]=3..5", "i64[1]=2"]), ["i64[2]=3..5,3..5"]);
        assert_eq!(case("numpy").infer(&["f32[2]", "i64[3]"]), ["f32[?,?,2]"]);
        assert_eq!(
            case("numpy").infer_error(&["f32[3,1]", "i64[2]=2,5"]),
            "input 0: shape [3,1] cannot be broadcast to [2,5]: 3 at axis 0 meets 2 at axis 0"
        );
        assert_eq!(
            case("explicit").infer_error(&["f32[3,1]", "i64[3]=2,3,1", "i64[2]=2,1"]),
            "input 2: axes [2, 1] must be ascending"
        );
    }
}
