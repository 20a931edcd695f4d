//! # ScatterNDUpdate
//! A copy of the data in which blocks that rows of coordinates address are updated.
//!
//! Specification: `movement/scatter-nd-update-3` (written `opset4`), `movement/scatter-nd-update-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | rank at least 1 |
//! | in 1 | indices | i32, i64 | `[..., k]` with `k` at most the rank of `data` |
//! | in 2 | updates | that of `data` | `indices[:-1] + data[k:]`; one element of any shape where that is a scalar |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Version 15 added `reduction`. Coordinates lie in `[-size, size - 1]` of their axis, negative ones count from the
//! end. `k = 0` updates the whole tensor once for each row (OpenVINO's CPU plugin ignores such updates). Updates are
//! applied in row-major order; reductions compute as those of ScatterElementsUpdate, and on booleans sub is XOR. All
//! indices are checked before anything is written.

use std::ops::Range;
use std::sync::Arc;

use ovir_tensor::{ElementClass, PartialShape, SmallVec, TensorView};

use crate::common::index::{IndexRange, Indices, known_indices};
use crate::common::scatter::{Combine, Places, Reduction, evaluate_scatter, propagate_scatter, wrong_ports};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attribute_enum! {
    /// How an update meets the value that is there.
    pub enum ScatterNdReduction {
        /// It replaces it.
        #[default]
        None = "none",
        /// The sum.
        Sum = "sum",
        /// The difference: the value less the update.
        Sub = "sub",
        /// The product.
        Prod = "prod",
        /// The smaller one.
        Min = "min",
        /// The larger one.
        Max = "max",
    }
}

crate::attributes! {
    /// The attributes of ScatterNDUpdate.
    pub struct ScatterNdUpdateAttributes {
        /// How updates are combined.
        reduction: ScatterNdReduction = "reduction", default "none", since 15;
    }
}

/// The definition of ScatterNDUpdate.
pub static SCATTER_ND_UPDATE: OpDef = OpDef {
    type_name: "ScatterNDUpdate",
    category: Category::Movement,
    versions: &[OpVersion::new(3, (4, 14), (3, 3), (1, 1)), OpVersion::new(15, (15, 16), (3, 3), (1, 1))],
    attributes: ScatterNdUpdateAttributes::DEFINITIONS,
    build,
};

/// A ScatterNDUpdate layer.
#[derive(Debug)]
pub struct ScatterNdUpdate {
    /// The class version.
    pub class_version: u8,
    /// The attributes.
    pub attributes: ScatterNdUpdateAttributes,
}

impl Operation for ScatterNdUpdate {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_same_type(&[0, 2])?;
        context.require_class(1, ElementClass::Index)?;
        let (data, indices, updates) = (context.shape(0), context.shape(1), context.shape(2));
        check_shapes(data, indices, updates)?;
        context.set_output(0, element_type, data.clone());
        let Some(known) = known_indices(context, 1) else { return Ok(()) };
        let depth = known.shape().last().copied().unwrap_or(0);
        known.check_possible(IndexRange::Wrapping, |position| {
            let axis = position % depth.max(1);
            (axis, data.dim(axis))
        })?;
        if let Some(shape) = data.to_shape() {
            let places = Places::Blocks { indices: known, data: &shape, depth };
            propagate_scatter(context, &places, self.reduction());
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let places = locate(&[context.input(0)?, context.input(1)?, context.input(2)?])?;
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
    let [data, indices, updates] = *inputs else { return Err(wrong_ports(inputs.len(), 3)) };
    let data = data.shape();
    let indices = Indices::new(indices, 1)?;
    let updates = PartialShape::from(updates.shape());
    check_shapes(&PartialShape::from(data), &PartialShape::from(indices.shape()), &updates)?;
    let depth = indices.shape().last().copied().unwrap_or(0);
    indices.check(IndexRange::Wrapping, |position| {
        let axis = position % depth.max(1);
        (axis, data[axis])
    })?;
    Ok(Places::Blocks { indices, data, depth })
}

impl ScatterNdUpdate {
    fn reduction(&self) -> Reduction {
        let combine = match self.attributes.reduction {
            ScatterNdReduction::None => Combine::Replace,
            ScatterNdReduction::Sum => Combine::Sum,
            ScatterNdReduction::Sub => Combine::Sub,
            ScatterNdReduction::Prod => Combine::Prod,
            ScatterNdReduction::Min => Combine::Min,
            ScatterNdReduction::Max => Combine::Max,
        };
        Reduction { combine, use_init: true }
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ScatterNdUpdateAttributes::read(context.attributes);
    Arc::new(ScatterNdUpdate { class_version: context.class_version, attributes })
}

fn check_shapes(data: &PartialShape, indices: &PartialShape, updates: &PartialShape) -> OpResult {
    for (port, shape) in [(0, data), (1, indices)] {
        if shape.rank() == Some(0) {
            return Err(OpError::shape(Blame::Input(port), "shape [] has rank 0; it must be at least 1"));
        }
    }
    let (Some(data_dims), Some(index_dims)) = (data.dims(), indices.dims()) else { return Ok(()) };
    let Some((depth, rows)) = index_dims.split_last() else { return Ok(()) };
    if depth.min() > data_dims.len() as i64 {
        let message =
            format!("shape {indices} has {depth} coordinates a row; data {data} has only {} axes", data_dims.len());
        return Err(OpError::shape(Blame::Input(1), message));
    }
    let (Some(depth), Some(update_dims)) = (depth.get(), updates.dims()) else { return Ok(()) };
    let expected: SmallVec<[_; 8]> = rows.iter().chain(&data_dims[depth..]).copied().collect();
    let fits = if expected.is_empty() {
        updates.elements().contains(1)
    } else {
        expected.len() == update_dims.len() && expected.iter().zip(update_dims).all(|(a, b)| a.compatible(*b))
    };
    if fits {
        return Ok(());
    }
    let expected = PartialShape::from_dims(expected);
    let message = format!("shape {updates} must be {expected} for data {data} and indices {indices}");
    let error = OpError::shape(Blame::Input(2), message);
    Err(if expected.rank() == Some(0) { error.note("one element of any shape will do") } else { error })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use ovir_tensor::{NativeElement, bf16};
    use pretty_assertions::assert_eq;

    fn case(reduction: &str) -> Case {
        Case::new("ScatterNDUpdate", "opset15").attribute("reduction", reduction)
    }

    fn vector<T: NativeElement>(reduction: &str, data: &[T], indices: &[i64], updates: &[T]) -> Vec<T> {
        let inputs =
            [tensor(data, [data.len()]), tensor(indices, [indices.len(), 1]), tensor(updates, [updates.len()])];
        case(reduction).run(&inputs).unwrap()[0].slice::<T>().unwrap().to_vec()
    }

    #[test]
    fn examples_of_the_specification() {
        let indices = [4, 3, 1, 7, -2, -4];
        let output = vector("none", &[1, 2, 3, 4, 5, 6, 7, 8], &indices, &[9, 10, 11, 12, 13, 14]);
        assert_eq!(output, [1, 11, 3, 10, 14, 6, 13, 12]);
        let (data, indices, updates) = ([1f32, 2.0, 3.0, 4.0], [0, 2, -3, -3, 0], [10f32, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(vector("none", &data, &indices, &updates), [50.0, 40.0, 20.0, 4.0]);
        assert_eq!(vector("sum", &data, &indices, &updates), [61.0, 72.0, 23.0, 4.0]);
        assert_eq!(vector("sub", &data, &indices, &updates), [-59.0, -68.0, -17.0, 4.0]);
        assert_eq!(vector("prod", &data, &indices, &updates), [500.0, 2400.0, 60.0, 4.0]);
        let shapes = case("none").infer(&["f32[1000,256,10,15]", "i64[25,125,3]", "f32[25,125,15]"]);
        assert_eq!(shapes, ["f32[1000,256,10,15]"]);
    }

    #[test]
    fn slices_and_whole_tensors() {
        let data = tensor(&[0u8; 6], [3, 2]);
        let rows = [data.clone(), tensor(&[2i32, 0], [2, 1]), tensor(&[1u8, 2, 3, 4], [2, 2])];
        assert_eq!(case("none").run(&rows).unwrap()[0], tensor(&[3u8, 4, 0, 0, 1, 2], [3, 2]));
        let whole = [data.clone(), tensor::<i64>(&[], [2, 0]), tensor(&[1u8; 12], [2, 3, 2])];
        assert_eq!(case("sum").run(&whole).unwrap()[0], tensor(&[2u8; 6], [3, 2]));
        let cells = [data, tensor(&[0i64, -1, 2, 0], [2, 2]), tensor(&[7u8, 8], [2])];
        assert_eq!(case("none").run(&cells).unwrap()[0], tensor(&[0u8, 7, 0, 0, 8, 0], [3, 2]));
    }

    #[test]
    fn one_scalar_slot() {
        let run = |updates: &str| case("none").infer(&["f32[3,4]", "i64[2]", updates]);
        assert_eq!([run("f32[]"), run("f32[1]"), run("f32[1,1]")].concat(), ["f32[3,4]"; 3]);
        assert_eq!(
            case("none").infer_error(&["f32[3,4]", "i64[2]", "f32[3]"]),
            "input 2: shape [3] must be [] for data [3,4] and indices [2]"
        );
        let inputs = [tensor(&[0f32; 4], [2, 2]), tensor(&[1i64, 0], [2]), tensor(&[5f32], [1])];
        assert_eq!(case("none").run(&inputs).unwrap()[0], tensor(&[0f32, 0.0, 5.0, 0.0], [2, 2]));
    }

    #[test]
    fn reductions_in_their_own_width() {
        assert_eq!(vector("sum", &[bf16::from_f32(256.0)], &[0; 4], &[bf16::ONE; 4]), [bf16::from_f32(260.0)]);
        assert_eq!(vector("prod", &[i64::MAX], &[0], &[2]), [-2]);
        assert_eq!(vector("sub", &[0u8], &[0], &[1]), [255]);
        assert!(vector("max", &[1f32], &[0], &[f32::NAN])[0].is_nan());
        let inputs = [booleans(&[false], [1]), tensor(&[0i64, 0], [2, 1]), booleans(&[true, true], [2])];
        assert_eq!(case("sub").run(&inputs).unwrap()[0], booleans(&[false], [1]));
    }

    #[test]
    fn violations() {
        assert_eq!(
            case("none").infer_error(&["f32[3,4]", "i64[1,3]", "f32[1]"]),
            "input 1: shape [1,3] has 3 coordinates a row; data [3,4] has only 2 axes"
        );
        assert_eq!(
            case("none").infer_error(&["f32[3,4]", "i64[5,1]", "f32[5,3]"]),
            "input 2: shape [5,3] must be [5,4] for data [3,4] and indices [5,1]"
        );
        assert_eq!(
            case("none").infer_error(&["f32[3,4]", "i16[5,1]", "f32[5,4]"]),
            "input 1: element type i16 must be i32 or i64"
        );
        assert_eq!(
            case("none").infer_error(&["f32[]", "i64[1]", "f32[]"]),
            "input 0: shape [] has rank 0; it must be at least 1"
        );
        assert_eq!(
            case("none").infer_error(&["f32[3,4]", "i64[1,2]=0,5", "f32[1]"]),
            "input 1: index 5 at position [0,1] is out of range of axis 1 of size 4: it must be in [-4, 3]"
        );
        assert_eq!(case("mean").attribute_errors(3).len(), 1);
        assert_eq!(case("none").infer(&["f32[?,4]", "i64[?,?]", "f32[...]"]), ["f32[?,4]"]);
        assert_eq!(case("none").infer(&["f32[...]", "i64[?,3]", "f32[2]"]), ["f32[...]"]);
    }

    #[test]
    fn values_pass_through_shape_subgraphs() {
        let infer =
            |reduction: &str| case(reduction).infer(&["i64[3]=5..7,4,2..9", "i64[1,1]=1", "i64[1]=10"]).remove(0);
        assert_eq!(infer("none"), "i64[3]=5..7,10,2..9");
        assert_eq!(infer("sum"), "i64[3]=5..7,14,2..9");
        assert_eq!(infer("prod"), "i64[3]=5..7,40,2..9");
    }
}
