//! # ScatterElementsUpdate
//! A copy of the data in which single elements are updated, along one axis.
//!
//! Specification: `movement/scatter-elements-update-3`, `movement/scatter-elements-update-12`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | rank at least 1 |
//! | in 1 | indices | any integer type | rank of `data`; off the axis not larger than `data` |
//! | in 2 | updates | that of `data` | that of `indices` |
//! | in 3 | axis | any integer type | scalar or `[1]` |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Version 12 added `reduction` and `use_init_val`. Indices lie in `[-size, size - 1]`, negative ones count from the
//! end, in version 3 too (its specification calls them an error, but every OpenVINO since 2023 wraps them). Updates
//! are applied in row-major order. Without `use_init_val` the first update replaces the value and untouched elements
//! keep the data. Integers wrap, their mean is rounded down; f16 and bf16 are accumulated in f32 and rounded once; NaN
//! propagates through minimum and maximum; on booleans sum and max are OR, prod and min AND, and there is no mean. All
//! indices are checked before anything is written.

use std::ops::Range;
use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType, PartialShape, TensorView};

use crate::common::index::{IndexRange, Indices, known_indices};
use crate::common::movement::{known_axis, require_axis};
use crate::common::scatter::{
    Combine, Places, Reduction, evaluate_scatter, propagate_scatter, single_integer, wrong_ports,
};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attribute_enum! {
    /// How an update meets the value that is there.
    pub enum ScatterElementsReduction {
        /// It replaces it.
        #[default]
        None = "none",
        /// The sum.
        Sum = "sum",
        /// The product.
        Prod = "prod",
        /// The smaller one.
        Min = "min",
        /// The larger one.
        Max = "max",
        /// The mean of all that meet at one place.
        Mean = "mean",
    }
}

crate::attributes! {
    /// The attributes of ScatterElementsUpdate.
    pub struct ScatterElementsUpdateAttributes {
        /// How updates are combined.
        reduction: ScatterElementsReduction = "reduction", default "none", since 12;
        /// Whether the data takes part in the reduction.
        use_init_val: bool = "use_init_val", default "true", since 12;
    }
}

/// The definition of ScatterElementsUpdate.
pub static SCATTER_ELEMENTS_UPDATE: OpDef = OpDef {
    type_name: "ScatterElementsUpdate",
    category: Category::Movement,
    versions: &[OpVersion::new(3, (3, 11), (4, 4), (1, 1)), OpVersion::new(12, (12, 16), (4, 4), (1, 1))],
    attributes: ScatterElementsUpdateAttributes::DEFINITIONS,
    build,
};

/// A ScatterElementsUpdate layer.
#[derive(Debug)]
pub struct ScatterElementsUpdate {
    /// The class version.
    pub class_version: u8,
    /// The attributes.
    pub attributes: ScatterElementsUpdateAttributes,
}

impl Operation for ScatterElementsUpdate {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_same_type(&[0, 2])?;
        context.require_class(1, ElementClass::Integer)?;
        require_axis(context, 3)?;
        if element_type == ElementType::Boolean && self.attributes.reduction == ScatterElementsReduction::Mean {
            let message = "`reduction=\"mean\"` is not defined for element type boolean of input 0";
            return Err(OpError::attribute("reduction", message));
        }
        let (data, indices, updates) = (context.shape(0), context.shape(1), context.shape(2));
        let axis = match data.rank().or(indices.rank()).or(updates.rank()) {
            Some(rank) => known_axis(context, 3, rank)?,
            None => None,
        };
        check_shapes(data, indices, updates, axis)?;
        context.set_output(0, element_type, data.clone());
        let (Some(axis), Some(known)) = (axis, known_indices(context, 1)) else { return Ok(()) };
        known.check_possible(IndexRange::Wrapping, |_| (axis, data.dim(axis)))?;
        if let Some(shape) = data.to_shape() {
            let places = Places::Elements { indices: known, data: &shape, axis };
            propagate_scatter(context, &places, self.reduction());
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let places = locate(&[context.input(0)?, context.input(1)?, context.input(2)?, context.input(3)?])?;
        evaluate_scatter(context, &places, self.reduction())
    }

    fn overwritten(&self, inputs: &[TensorView<'_>], ranges: &mut Vec<Range<usize>>) -> OpResult<bool> {
        Ok(locate(inputs)?.overwritten(inputs, ranges))
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }

    fn in_place_input(&self) -> Option<usize> {
        Some(0)
    }
}

/// Where the updates go, after every check.
fn locate<'a>(inputs: &[TensorView<'a>]) -> OpResult<Places<'a>> {
    let [data, indices, updates, axis] = *inputs else { return Err(wrong_ports(inputs.len(), 4)) };
    let data = data.shape();
    let indices = Indices::new(indices, 1)?;
    let axis = normalize_axis(single_integer(axis, 3)?, data.rank(), Blame::Input(3))?;
    let updates = PartialShape::from(updates.shape());
    check_shapes(&PartialShape::from(data), &PartialShape::from(indices.shape()), &updates, Some(axis))?;
    indices.check(IndexRange::Wrapping, |_| (axis, data[axis]))?;
    Ok(Places::Elements { indices, data, axis })
}

impl ScatterElementsUpdate {
    fn reduction(&self) -> Reduction {
        let combine = match self.attributes.reduction {
            ScatterElementsReduction::None => return Reduction::NONE,
            ScatterElementsReduction::Sum => Combine::Sum,
            ScatterElementsReduction::Prod => Combine::Prod,
            ScatterElementsReduction::Min => Combine::Min,
            ScatterElementsReduction::Max => Combine::Max,
            ScatterElementsReduction::Mean => Combine::Mean,
        };
        Reduction { combine, use_init: self.attributes.use_init_val }
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ScatterElementsUpdateAttributes::read(context.attributes);
    Arc::new(ScatterElementsUpdate { class_version: context.class_version, attributes })
}

fn check_shapes(data: &PartialShape, indices: &PartialShape, updates: &PartialShape, axis: Option<usize>) -> OpResult {
    if data.rank() == Some(0) {
        return Err(OpError::shape(Blame::Input(0), "shape [] has rank 0; a scalar has no axis to scatter along"));
    }
    for (port, shape) in [(1, indices), (2, updates)] {
        if let (Some(rank), Some(other)) = (data.rank(), shape.rank())
            && rank != other
        {
            let message = format!("shape {shape} has rank {other}; it must be {rank} like {data} of input 0");
            return Err(OpError::shape(Blame::Input(port), message));
        }
    }
    let Some(shape) = indices.merge(updates) else {
        let message = format!("shape {updates} must equal shape {indices} of the indices");
        return Err(OpError::shape(Blame::Input(2), message));
    };
    let (Some(data_dims), Some(dims), Some(axis)) = (data.dims(), shape.dims(), axis) else { return Ok(()) };
    for (i, (dim, limit)) in dims.iter().zip(data_dims).enumerate() {
        if i != axis && dim.min() > limit.max() {
            let message = format!(
                "shape {indices} exceeds shape {data} of input 0 off axis {axis}: {dim} is more than {limit} at axis {i}"
            );
            return Err(OpError::shape(Blame::Input(1), message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use ovir_tensor::{NativeElement, Tensor, bf16, f16};
    use pretty_assertions::assert_eq;

    fn case(reduction: &str, use_init_val: &str) -> Case {
        Case::new("ScatterElementsUpdate", "opset12")
            .attribute("reduction", reduction)
            .attribute("use_init_val", use_init_val)
    }

    fn vector<T: NativeElement>(reduction: &str, init: &str, data: &[T], indices: &[i64], updates: &[T]) -> Vec<T> {
        let inputs = [
            tensor(data, [data.len()]),
            tensor(indices, [indices.len()]),
            tensor(updates, [updates.len()]),
            tensor(&[0i64], [1]),
        ];
        case(reduction, init).run(&inputs).unwrap()[0].slice::<T>().unwrap().to_vec()
    }

    #[test]
    fn examples_of_the_specification() {
        let (data, indices) = ([2, 3, 4, 6], [1, 0, 0, -2, -1, 2]);
        let updates = [10, 20, 30, 40, 70, 60];
        assert_eq!(vector("sum", "true", &data, &indices, &updates), [52, 13, 104, 76]);
        assert_eq!(vector("sum", "false", &data, &indices, &updates), [50, 10, 100, 70]);
        assert_eq!(vector("none", "true", &data, &indices, &updates), [30, 10, 60, 70]);
    }

    #[test]
    fn two_dimensions_and_smaller_updates() {
        let data = tensor(&[0f32; 9], [3, 3]);
        let indices = tensor(&[1i32, 0, 2, 0, 2, 1], [2, 3]);
        let updates = tensor(&[1f32, 1.1, 1.2, 2.0, 2.1, 2.2], [2, 3]);
        let output = case("none", "true").run(&[data.clone(), indices, updates, tensor(&[0i64], [])]).unwrap();
        assert_eq!(output[0], tensor(&[2f32, 1.1, 0.0, 1.0, 0.0, 2.2, 0.0, 2.1, 1.2], [3, 3]));
        let indices = tensor(&[1u16, 1, 1, 0], [1, 4]);
        let updates = tensor(&[1f32, 2.0, 3.0, 4.0], [1, 4]);
        let output = case("sum", "true").run(&[data, indices, updates, tensor(&[1i64], [])]).unwrap();
        assert_eq!(output[0].slice::<f32>().unwrap()[..3], [4.0, 6.0, 0.0]);
    }

    #[test]
    fn every_reduction() {
        assert_eq!(vector("prod", "true", &[2i32, 3], &[0, 0], &[5, 7]), [70, 3]);
        assert_eq!(vector("prod", "false", &[2i32, 3], &[0, 0], &[5, 7]), [35, 3]);
        assert_eq!(vector("min", "true", &[2u8, 3], &[0, 1], &[5, 1]), [2, 1]);
        assert_eq!(vector("max", "false", &[9u64, 3], &[0, 0], &[5, 1]), [5, 3]);
        assert_eq!(vector("mean", "true", &[1f64, 3.0], &[0, 0], &[2.0, 6.0]), [3.0, 3.0]);
    }

    #[test]
    fn integer_means_round_down_after_wrapping() {
        assert_eq!(vector("mean", "true", &[0i32], &[0], &[-1]), [-1]);
        assert_eq!(vector("mean", "false", &[0i32], &[0, 0], &[-1, -2]), [-2]);
        assert_eq!(vector("mean", "false", &[0i8], &[0, 0, 0], &[100, 100, 100]), [14]);
        assert_eq!(vector("sum", "true", &[u64::MAX], &[0], &[2]), [1]);
    }

    #[test]
    fn wide_types_are_not_narrowed() {
        assert_eq!(vector("sum", "true", &[1i64 << 40], &[0], &[1]), [(1i64 << 40) + 1]);
        assert_eq!(vector("sum", "true", &[1f64 / 3.0], &[0], &[1.0]), [1.0 + 1.0 / 3.0]);
    }

    #[test]
    fn halves_round_once() {
        let ones = [f16::ONE; 4];
        assert_eq!(vector("sum", "true", &[f16::from_f32(2048.0)], &[0; 4], &ones), [f16::from_f32(2052.0)]);
        let ones = [bf16::ONE; 4];
        assert_eq!(vector("sum", "true", &[bf16::from_f32(256.0)], &[0; 4], &ones), [bf16::from_f32(260.0)]);
        let large = [f16::from_f32(60000.0); 2];
        assert_eq!(vector("mean", "false", &[f16::ZERO], &[0, 0], &large), [f16::from_f32(60000.0)]);
        assert_eq!(vector("max", "false", &[f16::ONE, f16::ONE], &[1], &[f16::NEG_INFINITY])[1], f16::NEG_INFINITY);
    }

    #[test]
    fn nan_and_infinity() {
        assert!(vector("max", "true", &[f32::NAN], &[0], &[1.0])[0].is_nan());
        assert!(vector("min", "true", &[1f32], &[0], &[f32::NAN])[0].is_nan());
        assert_eq!(vector("max", "false", &[1f32], &[0], &[f32::NEG_INFINITY]), [f32::NEG_INFINITY]);
    }

    #[test]
    fn booleans_have_logic() {
        let run = |reduction: &str, data: bool, update: bool| {
            let inputs = [booleans(&[data], [1]), tensor(&[0i64], [1]), booleans(&[update], [1]), tensor(&[0i64], [1])];
            case(reduction, "true").run(&inputs).unwrap()[0].slice::<u8>().unwrap()[0] != 0
        };
        assert_eq!([run("sum", true, true), run("max", false, true), run("sum", false, false)], [true, true, false]);
        assert_eq!([run("prod", true, false), run("min", true, true)], [false, true]);
        assert_eq!(
            case("mean", "true").infer_error(&["boolean[1]", "i64[1]", "boolean[1]", "i64[]"]),
            "attribute `reduction`: `reduction=\"mean\"` is not defined for element type boolean of input 0"
        );
    }

    #[test]
    fn violations() {
        let case = case("none", "true");
        let error = |inputs: [&str; 4]| case.infer_error(&inputs);
        assert_eq!(
            error(["f32[2,3]", "i64[3,3]", "f32[3,3]", "i64[]=1"]),
            "input 1: shape [3,3] exceeds shape [2,3] of input 0 off axis 1: 3 is more than 2 at axis 0"
        );
        assert_eq!(
            error(["f32[2,3]", "i64[1..2,2]", "f32[3,2]", "i64[]=1"]),
            "input 2: shape [3,2] must equal shape [1..2,2] of the indices"
        );
        assert_eq!(
            error(["f32[2,3]", "i64[2]", "f32[2,2]", "i64[]=1"]),
            "input 1: shape [2] has rank 1; it must be 2 like [2,3] of input 0"
        );
        assert_eq!(
            error(["f32[]", "i64[]", "f32[]", "i64[]"]),
            "input 0: shape [] has rank 0; a scalar has no axis to scatter along"
        );
        assert_eq!(
            error(["f32[3]", "boolean[1]", "f32[1]", "i64[]"]),
            "input 1: element type boolean must be an integer type"
        );
        assert_eq!(
            error(["f32[3]", "i64[1]", "f32[1]", "i64[2]"]),
            "input 3: shape [2] must be a scalar or a tensor of one element"
        );
        assert_eq!(
            error(["f32[3]", "i64[1]=-4", "f32[1]", "i64[]=0"]),
            "input 1: index -4 at position [0] is out of range of axis 0 of size 3: it must be in [-3, 2]"
        );
        let inputs: [Tensor; 4] =
            [tensor(&[0f32; 6], [2, 3]), tensor(&[0i64, 3], [1, 2]), tensor(&[1f32; 2], [1, 2]), tensor(&[1i64], [])];
        assert_eq!(
            case.run(&inputs).unwrap_err().to_string(),
            "input 1: index 3 at position [0,1] is out of range of axis 1 of size 3: it must be in [-3, 2]"
        );
        let wrong = Case::new("ScatterElementsUpdate", "opset12").attribute("use_init_val", "maybe");
        assert_eq!(wrong.attribute_errors(4).len(), 1);
    }

    #[test]
    fn version_3_wraps_negative_indices() {
        let inputs = [tensor(&[1, 2, 3], [3]), tensor(&[-1i64], [1]), tensor(&[9], [1]), tensor(&[0i64], [])];
        assert_eq!(Case::new("ScatterElementsUpdate", "opset3").run(&inputs).unwrap()[0], tensor(&[1, 2, 9], [3]));
    }

    #[test]
    fn values_pass_through_shape_subgraphs() {
        let infer = |reduction: &str, init: &str| {
            case(reduction, init).infer(&["i64[3]=5..7,4,2..9", "i64[2]=1,1", "i64[2]=10,1..3", "i64[]=0"]).remove(0)
        };
        assert_eq!(infer("none", "true"), "i64[3]=5..7,1..3,2..9");
        assert_eq!(infer("sum", "true"), "i64[3]=5..7,15..17,2..9");
        assert_eq!(infer("sum", "false"), "i64[3]=5..7,11..13,2..9");
        assert_eq!(infer("mean", "true"), "i64[3]=5..7,5,2..9");
        assert_eq!(infer("max", "true"), "i64[3]=5..7,10,2..9");
    }

    #[test]
    fn empty_updates_change_nothing() {
        let data = tensor(&[1f32, 2.0], [2]);
        let inputs = [data.clone(), tensor::<i64>(&[], [0]), tensor::<f32>(&[], [0]), tensor(&[0i64], [])];
        assert_eq!(case("mean", "false").run(&inputs).unwrap()[0], data);
    }
}
