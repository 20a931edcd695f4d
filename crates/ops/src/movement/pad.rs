//! # Pad
//! A tensor with elements added, or taken away, at the ends of its axes.
//!
//! Specification: `movement/pad-1`, `movement/pad-12`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | in 1 | pads_begin | any integer type | `[rank]` |
//! | in 2 | pads_end | any integer type | `[rank]` |
//! | in 3 | pad_value (optional) | that of `data` | scalar |
//! | out 0 | | that of `data` | `max(0, pads_begin + size + pads_end)` an axis |
//!
//! Version 12 added negative pads, which crop. New elements are made from the data before it is cropped.

use std::sync::Arc;

use ovir_tensor::{Bounds, Dim, ElementClass, INFINITE, MAX_BOUNDS_ELEMENTS, PartialShape, Shape, SmallVec, Value};

use crate::common::movement::{AxisMap, Cell, dispatch_cell, exact_shape};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attribute_enum! {
    /// Where new elements come from.
    pub enum PadMode {
        /// From `pad_value`, or zero.
        #[default]
        Constant = "constant",
        /// From the nearest element of the data.
        Edge = "edge",
        /// From the data mirrored at its outermost element.
        Reflect = "reflect",
        /// From the data mirrored beyond its outermost element.
        Symmetric = "symmetric",
    }
}

crate::attributes! {
    /// The attributes of Pad.
    pub struct PadAttributes {
        /// Where new elements come from.
        pad_mode: PadMode = "pad_mode", required true;
    }
}

/// The definition of Pad.
pub static PAD: OpDef = OpDef {
    type_name: "Pad",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 11), (3, 4), (1, 1)), OpVersion::new(12, (12, 16), (3, 4), (1, 1))],
    attributes: PadAttributes::DEFINITIONS,
    build,
};

/// A Pad layer.
#[derive(Debug)]
pub struct Pad {
    /// The class version.
    pub class_version: u8,
    /// The attributes.
    pub attributes: PadAttributes,
}

impl Operation for Pad {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let mut element_type = context.element_type(0);
        if context.input_count() > 3 && self.attributes.pad_mode == PadMode::Constant {
            element_type = context.require_same_type(&[0, 3])?;
            context.require_one_element(3)?;
        }
        let mut rank = context.shape(0).rank();
        for port in 1..=2 {
            context.require_class(port, ElementClass::Integer)?;
            context.require_rank(port, 1..=1)?;
            if let Some(count) = context.shape(port).dim(0).get() {
                if rank.is_some_and(|rank| rank != count) {
                    let message = format!("{count} pads are given for a tensor of rank {}", rank.unwrap_or(0));
                    return Err(OpError::shape(Blame::Input(port), message));
                }
                rank = Some(count);
            }
        }
        let Some(rank) = rank.filter(|rank| *rank <= ovir_tensor::MAX_RANK) else {
            context.set_output(0, element_type, PartialShape::DYNAMIC);
            return Ok(());
        };
        let mut output: SmallVec<[Dim; 8]> = SmallVec::new();
        for axis in 0..rank {
            let pad = |port| context.bounds(port).and_then(|b| b.values.get(axis)).copied().unwrap_or(Value::UNKNOWN);
            let (begin, end) = (pad(1), pad(2));
            let dim = context.shape(0).dim(axis);
            self.check(begin, dim, axis, 1)?;
            self.check(end, dim, axis, 2)?;
            output.push(self.padded(dim, begin, end));
        }
        context.set_output(0, element_type, PartialShape::from_dims(output));
        self.propagate(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let (begin, end) = (context.integers(1)?, context.integers(2)?);
        let mode = self.attributes.pad_mode;
        let value = match context.input_count() > 3 && mode == PadMode::Constant {
            true => Some(context.input(3)?),
            false => None,
        };
        let shape = self.exact_shape(data.shape(), &begin, &end)?;
        let mut output = context.output(0, &shape)?;
        dispatch_cell!(data.element_type(), C => {
            let fill = value.and_then(|v| C::source(&v).first().cloned()).unwrap_or_default();
            self.copy(C::source(&data), data.shape(), C::target(&mut output), &shape, &begin, &fill);
            Ok(())
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

impl Pad {
    fn check(&self, pad: Value, dim: Dim, axis: usize, port: usize) -> OpResult {
        if self.class_version < 12 && pad.max < 0 {
            let message = format!("the pad {pad:?} of axis {axis} is negative; cropping needs version 12");
            return Err(OpError::value(Blame::Input(port), message));
        }
        let limit = match self.attributes.pad_mode {
            PadMode::Constant => return Ok(()),
            PadMode::Edge if dim.max() > 0 => return Ok(()),
            PadMode::Edge => 0,
            PadMode::Reflect => dim.max().saturating_sub(1),
            PadMode::Symmetric => dim.max(),
        };
        if pad.min <= limit.max(0) {
            return Ok(());
        }
        let mode = self.attributes.pad_mode;
        let message = format!(
            "the pad {pad:?} of axis {axis} is more than the {} elements that the size {dim} allows in mode {mode:?}",
            limit.max(0)
        );
        Err(OpError::value(Blame::Input(port), message))
    }

    fn padded(&self, dim: Dim, begin: Value, end: Value) -> Dim {
        let clip = |v: Value| if self.class_version < 12 { Value::interval(v.min.max(0), v.max) } else { v };
        let pads = clip(begin) + clip(end);
        if let Some(pads) = pads.get() {
            return dim.offset(pads);
        }
        let low = if pads.min == i64::MIN { 0 } else { dim.min().saturating_add(pads.min) };
        let open = dim.max() == INFINITE || pads.max == i64::MAX;
        Dim::interval(low, if open { INFINITE } else { dim.max().saturating_add(pads.max) })
    }

    fn exact_shape(&self, data: &Shape, begin: &[i64], end: &[i64]) -> OpResult<Shape> {
        for (port, pads) in [(1, begin), (2, end)] {
            if pads.len() != data.rank() {
                let message = format!("{} pads are given for a tensor of rank {}", pads.len(), data.rank());
                return Err(OpError::shape(Blame::Input(port), message));
            }
        }
        let mut output: SmallVec<[Dim; 8]> = SmallVec::new();
        for (axis, size) in data.iter().enumerate() {
            let (dim, begin, end) = (Dim::fixed(*size), Value::known(begin[axis]), Value::known(end[axis]));
            self.check(begin, dim, axis, 1)?;
            self.check(end, dim, axis, 2)?;
            output.push(self.padded(dim, begin, end));
        }
        exact_shape(&PartialShape::from_dims(output))
    }

    fn copy<T: Clone>(&self, data: &[T], input: &Shape, target: &mut [T], output: &Shape, begin: &[i64], fill: &T) {
        let source = |axis: usize, position: usize| {
            self.source((position as i64).saturating_sub(begin[axis]), input[axis] as i64)
        };
        AxisMap { shape: output, strides: &input.strides(), source: &source }.copy(data, target, fill);
    }

    /// The element of the data for a position that counts from its first element.
    fn source(&self, position: i64, size: i64) -> Option<usize> {
        let inside = (0..size).contains(&position);
        let mapped = match self.attributes.pad_mode {
            _ if inside => position,
            PadMode::Constant => return None,
            PadMode::Edge => position.clamp(0, (size - 1).max(0)),
            PadMode::Reflect if position < 0 => position.saturating_neg(),
            PadMode::Reflect => (2 * (size - 1)).saturating_sub(position),
            PadMode::Symmetric if position < 0 => -(position + 1),
            PadMode::Symmetric => (2 * size - 1).saturating_sub(position),
        };
        // Cropping one end and padding the other can reach beyond the mirror.
        (0 <= mapped && mapped < size).then_some(mapped as usize)
    }

    fn propagate(&self, context: &mut InferContext<'_>) -> OpResult {
        let (Some(data), Some(begin), Some(end)) = (context.bounds(0), context.integers(1), context.integers(2)) else {
            return Ok(());
        };
        let fill = match (context.input_count() > 3, context.bounds(3)) {
            (true, Some(bounds)) => bounds.values.first().copied().unwrap_or(Value::UNKNOWN),
            (true, None) => Value::UNKNOWN,
            (false, _) => Value::known(0),
        };
        let shape = self.exact_shape(&data.shape, &begin, &end)?;
        if shape.elements() > MAX_BOUNDS_ELEMENTS {
            return Ok(());
        }
        let mut values: SmallVec<[Value; 8]> = SmallVec::from_elem(Value::UNKNOWN, shape.elements());
        self.copy(&data.values, &data.shape, &mut values, &shape, &begin, &fill);
        context.set_bounds(0, Bounds { shape, values });
        Ok(())
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = PadAttributes::read(context.attributes);
    Arc::new(Pad { class_version: context.class_version, attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn run(mode: &str, begin: [i64; 2], end: [i64; 2]) -> (Vec<usize>, Vec<i32>) {
        let data = tensor(&(1..=12).collect::<Vec<i32>>(), [3, 4]);
        let inputs = [data, tensor(&begin, [2]), tensor(&end, [2])];
        let output = Case::new("Pad", "opset12").attribute("pad_mode", mode).run(&inputs).unwrap().remove(0);
        (output.shape().to_vec(), output.slice::<i32>().unwrap().to_vec())
    }

    #[test]
    fn positive_pads_of_the_specification() {
        let output = |mode| run(mode, [0, 1], [2, 3]).1;
        assert_eq!(output("constant")[..16], [0, 1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 0, 0, 0]);
        assert_eq!(output("edge")[24..32], [9, 9, 10, 11, 12, 12, 12, 12]);
        assert_eq!(output("reflect")[..8], [2, 1, 2, 3, 4, 3, 2, 1]);
        assert_eq!(output("reflect")[24..32], [6, 5, 6, 7, 8, 7, 6, 5]);
        assert_eq!(output("symmetric")[..8], [1, 1, 2, 3, 4, 4, 3, 2]);
        assert_eq!(output("symmetric")[24..32], [9, 9, 10, 11, 12, 12, 11, 10]);
    }

    #[test]
    fn negative_and_mixed_pads_of_the_specification() {
        for mode in ["constant", "edge", "reflect", "symmetric"] {
            assert_eq!(run(mode, [-1, -1], [-1, -1]), (vec![1, 2], vec![6, 7]));
        }
        let output = |mode| run(mode, [2, -1], [-1, 3]).1;
        assert_eq!(output("constant")[12..], [2, 3, 4, 0, 0, 0, 6, 7, 8, 0, 0, 0]);
        assert_eq!(output("edge")[6..], [2, 3, 4, 4, 4, 4, 2, 3, 4, 4, 4, 4, 6, 7, 8, 8, 8, 8]);
        assert_eq!(output("reflect")[..12], [10, 11, 12, 11, 10, 9, 6, 7, 8, 7, 6, 5]);
        assert_eq!(output("symmetric")[..12], [6, 7, 8, 8, 7, 6, 2, 3, 4, 4, 3, 2]);
    }

    #[test]
    fn shapes_and_values() {
        let case = |mode: &str| Case::new("Pad", "opset12").attribute("pad_mode", mode);
        assert_eq!(case("constant").infer(&["f32[?,3]", "i64[2]=0,-2", "i64[2]=0,4", "f32[]"]), ["f32[?,5]"]);
        assert_eq!(case("constant").infer(&["f32[2..4,3]", "i64[2]=1,1", "i64[2]"]), ["f32[?,?]"]);
        assert_eq!(case("constant").infer(&["f32[...]", "i64[2]", "i64[2]"]), ["f32[?,?]"]);
        assert_eq!(case("constant").infer(&["i64[1]=3..5", "i64[1]=1", "i64[1]=0", "i64[]=7"]), ["i64[2]=7,3..5"]);
        assert_eq!(case("constant").infer(&["f32[3]", "i64[1]=-9", "i64[1]=1"]), ["f32[0]"]);
        assert_eq!(
            case("reflect").infer_error(&["f32[3]", "i64[1]=3", "i64[1]=0"]),
            "input 1: the pad 3 of axis 0 is more than the 2 elements that the size 3 allows in mode Reflect"
        );
        let old = Case::new("Pad", "opset1").attribute("pad_mode", "constant");
        assert_eq!(
            old.infer_error(&["f32[3]", "i64[1]=-1", "i64[1]=0"]),
            "input 1: the pad -1 of axis 0 is negative; cropping needs version 12"
        );
        assert_eq!(
            case("edge").infer_error(&["f32[3]", "i64[2]", "i64[2]"]),
            "input 1: 2 pads are given for a tensor of rank 1"
        );
    }

    #[test]
    fn a_given_value() {
        let inputs = [tensor(&[1f32], [1]), tensor(&[1i32], [1]), tensor(&[1i32], [1]), tensor(&[15f32], [])];
        let output = Case::new("Pad", "opset1").attribute("pad_mode", "constant").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[15f32, 1.0, 15.0], [3]));
    }
}
