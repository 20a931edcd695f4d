//! # SegmentMax
//! The maximum of each run of slices of a tensor.
//!
//! Specification: `arithmetic/segment-max-16`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | rank 1 or more |
//! | in 1 | segment_ids | i32, i64 | 1D, as many as `data` has slices; ascending from 0 on |
//! | in 2 | num_segments | i32, i64 | one element; the last id + 1 if absent |
//! | out 0 | | that of `data` | `[num_segments, ...]` |
//!
//! Segments from `num_segments` on are left out. A segment without slices is 0, or the lowest finite number of the type. A maximum over NaN
//! is NaN (OpenVINO passes over it).

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, Shape, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::index::{Indices, known_indices};
use crate::common::number::Number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of SegmentMax.
pub static SEGMENT_MAX: OpDef = OpDef {
    type_name: "SegmentMax",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(16, (16, 16), (2, 3), (1, 1))],
    attributes: SegmentMaxAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// What a segment without slices is.
    pub enum FillMode {
        /// Zeros.
        #[default]
        Zero = "ZERO",
        /// The lowest finite number of the type.
        Lowest = "LOWEST",
    }
}

crate::attributes! {
    /// Attributes of SegmentMax.
    pub struct SegmentMaxAttributes {
        /// What a segment without slices is.
        fill_mode: FillMode = "fill_mode", required true;
    }
}

/// A SegmentMax layer.
#[derive(Debug)]
pub struct SegmentMax {
    /// The attributes.
    pub attributes: SegmentMaxAttributes,
}

impl Operation for SegmentMax {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Numeric)?;
        context.require_class(1, ElementClass::Index)?;
        context.require_rank(0, 1..=usize::MAX)?;
        context.require_rank(1, 1..=1)?;
        let (data, ids) = (context.shape(0), context.shape(1));
        if data.rank().is_some() && ids.rank().is_some() && !data.dim(0).compatible(ids.dim(0)) {
            let message = format!("{} segment ids are given for the {} slices of input 0", ids.dim(0), data.dim(0));
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let known = known_indices(context, 1);
        let last = known.map(|ids| check_ids(&ids)).transpose()?;
        let segments = match (context.input_count() > 2, last) {
            (true, _) => self.given_segments(context)?,
            (false, Some(segments)) => Dim::fixed(segments),
            (false, None) => context.new_dim(0, i64::MAX),
        };
        let mut shape = context.shape(0).clone();
        if let Some([first, ..]) = shape.dims_mut().map(|dims| dims.as_mut_slice()) {
            *first = segments;
        }
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let ids = Indices::new(context.input(1)?, 1)?;
        let slices = data.shape().first().copied().unwrap_or(0);
        if ids.len() != slices {
            let message = format!("{} segment ids are given for the {slices} slices of input 0", ids.len());
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let present = check_ids(&ids)?;
        let segments = if context.input_count() > 2 { segments_of(context.integer(2)?)? } else { present };
        let mut shape: Shape = data.shape().clone();
        if let Some(first) = shape.first_mut() {
            *first = segments;
        }
        let element_type = data.element_type();
        let mut output = context.output(0, &shape)?;
        dispatch!(element_type, T in [numeric] => {
            let (values, target) = (data.slice::<T>()?, output.slice_mut::<T>()?);
            target.fill(match self.attributes.fill_mode {
                FillMode::Zero => T::from_i128(0),
                FillMode::Lowest => T::LOWEST,
            });
            let size = values.len().checked_div(slices).unwrap_or(0);
            for (slice, values) in values.chunks_exact(size.max(1)).enumerate().take(slices) {
                let id = ids.get(slice) as usize;
                if id >= segments {
                    break;
                }
                let is_first = slice == 0 || ids.get(slice - 1) as usize != id;
                for (target, value) in target[id * size..][..size].iter_mut().zip(values) {
                    // NaN, which is not even comparable with itself, stays where it is and replaces what is no NaN.
                    let is_larger = match value.partial_cmp(target) {
                        Some(order) => order.is_gt(),
                        None => (*target).partial_cmp(target).is_some(),
                    };
                    if is_first || is_larger {
                        *target = *value;
                    }
                }
            }
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(16)
    }
}

impl SegmentMax {
    fn given_segments(&self, context: &InferContext<'_>) -> OpResult<Dim> {
        context.require_class(2, ElementClass::Index)?;
        context.require_one_element(2)?;
        match context.bounds(2).and_then(|bounds| bounds.values.first().copied()) {
            Some(value) => segments_of(value.max).map(|_| value.to_dim()),
            None => Ok(Dim::DYNAMIC),
        }
    }
}

/// The lowest finite number of a type.
trait Lowest {
    const LOWEST: Self;
}

macro_rules! lowest {
    ($($rust:ty),*) => {
        $(impl Lowest for $rust {
            const LOWEST: $rust = <$rust>::MIN;
        })*
    };
}
lowest!(u8, u16, u32, u64, i8, i16, i32, i64, ovir_tensor::f16, ovir_tensor::bf16, f32, f64);

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(SegmentMax { attributes: SegmentMaxAttributes::read(context.attributes) })
}

/// The number of segments that the ids name.
///
/// # Errors
/// When an id is negative or below the one before it.
fn check_ids(ids: &Indices<'_>) -> OpResult<usize> {
    let mut previous = 0;
    for position in 0..ids.len() {
        let id = ids.get(position);
        if id < previous {
            let rule = if id < 0 { "must not be negative" } else { "must not be below the one before it" };
            let message = format!("segment id {id} at position {position} {rule}");
            return Err(OpError::value(Blame::Input(1), message));
        }
        previous = id;
    }
    let segments = if ids.len() == 0 { 0 } else { previous + 1 };
    usize::try_from(segments)
        .map_err(|_| OpError::value(Blame::Input(1), format!("segment id {previous} is too large")))
}

fn segments_of(number: i64) -> OpResult<usize> {
    usize::try_from(number).map_err(|_| {
        OpError::value(Blame::Input(2), format!("the number of segments is {number}; it must be at least 0"))
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(mode: &str) -> Case {
        Case::new("SegmentMax", "opset16").attribute("fill_mode", mode)
    }

    #[test]
    fn examples_of_the_specification() {
        assert_eq!(case("ZERO").infer(&["f32[5]", "i32[5]=0,0,2,3,3", "i64[]=2"]), ["f32[2]"]);
        assert_eq!(case("ZERO").infer(&["f32[5]", "i32[5]=0,0,2,3,3", "i64[]=8"]), ["f32[8]"]);
        assert_eq!(case("LOWEST").infer(&["i32[3,4]", "i64[3]=0,1,1"]), ["i32[2,4]"]);
        let data = tensor(&[1f32, 5.0, -2.0, 4.0, 3.0], [5]);
        let ids = tensor(&[0i32, 0, 2, 3, 3], [5]);
        let two = case("zero").run(&[data.clone(), ids.clone(), tensor(&[2i64], [])]).unwrap();
        assert_eq!(two[0], tensor(&[5f32, 0.0], [2]));
        let six = case("LOWEST").run(&[data, ids, tensor(&[6i64], [])]).unwrap();
        assert_eq!(six[0], tensor(&[5f32, f32::MIN, -2.0, 4.0, f32::MIN, f32::MIN], [6]));
    }

    #[test]
    fn slices_are_compared_element_by_element() {
        let data = tensor(&[1i8, -9, -5, 7, 2, 0], [3, 2]);
        let output = case("LOWEST").run(&[data, tensor(&[1i64, 1, 2], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[-128i8, -128, 1, 7, 2, 0], [3, 2]));
        let data = tensor(&[f32::NAN, 1.0, 2.0, f32::NAN, f32::NEG_INFINITY], [5]);
        let output = case("ZERO").run(&[data, tensor(&[0i64, 0, 1, 1, 2], [5])]).unwrap();
        let values = output[0].slice::<f32>().unwrap();
        assert!(values[0].is_nan() && values[1].is_nan() && values[2] == f32::NEG_INFINITY);
        let none = case("ZERO").run(&[tensor::<f32>(&[], [0, 2]), tensor::<i64>(&[], [0])]).unwrap();
        assert_eq!(none[0], tensor::<f32>(&[], [0, 2]));
        let hollow = case("ZERO").run(&[tensor::<f32>(&[], [2, 0]), tensor(&[0i64, 1], [2])]).unwrap();
        assert_eq!(hollow[0], tensor::<f32>(&[], [2, 0]));
    }

    #[test]
    fn ids_and_numbers_are_checked() {
        assert!(case("ZERO").infer_error(&["f32[3]", "i64[2]"]).contains("2 segment ids are given for the 3 slices"));
        assert!(case("ZERO").infer_error(&["f32[2]", "i64[2]=1,0"]).contains("must not be below the one before it"));
        assert!(case("ZERO").infer_error(&["f32[2]", "i64[2]=-1,0"]).contains("must not be negative"));
        assert!(case("ZERO").infer_error(&["f32[2]", "i64[2]", "i64[]=-1"]).contains("at least 0"));
        assert!(case("ZERO").infer_error(&["f32[]", "i64[2]"]).contains("rank 0"));
        assert!(case("ZERO").infer_error(&["boolean[2]", "i64[2]"]).contains("numeric"));
        assert_eq!(case("ONE").attribute_errors(2).len(), 1);
        case("ZERO").assert_monotone(&["f32[5,2]", "i32[5]=0,0,2,3,3", "i64[]=2"]);
        case("ZERO").assert_monotone(&["f32[5,2]", "i32[5]=0,0,2,3,3"]);
    }
}
