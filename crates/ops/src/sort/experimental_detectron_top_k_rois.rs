//! # ExperimentalDetectronTopKROIs
//! The regions of the highest probabilities, best first.
//!
//! Specification: `sort/experimental-detectron-top-krois-6`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | rois | f16 bf16 f32 f64 | `[regions, 4]` |
//! | in 1 | probabilities | that of `rois` | `[regions]` |
//! | out 0 | | that of `rois` | `[max_rois, 4]` |
//!
//! Of equal probabilities the first region comes first. Where there are fewer regions than `max_rois`, zeros follow; the
//! specification leaves open what stands there.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, dispatch};

use crate::common::boxes::{common_dim, require_last};
use crate::common::elementwise::unsupported;
use crate::common::memory::widened_view;
use crate::common::ranges::check_integer;
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of ExperimentalDetectronTopKROIs.
pub static EXPERIMENTAL_DETECTRON_TOP_K_ROIS: OpDef = OpDef {
    type_name: "ExperimentalDetectronTopKROIs",
    category: Category::Sort,
    versions: &[OpVersion::new(6, (6, 16), (2, 2), (1, 1))],
    attributes: ExperimentalDetectronTopKROIsAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of ExperimentalDetectronTopKROIs.
    pub struct ExperimentalDetectronTopKROIsAttributes {
        /// The number of regions of the output.
        max_rois: i64 = "max_rois", default "0";
    }
}

/// An ExperimentalDetectronTopKROIs layer.
#[derive(Debug)]
pub struct ExperimentalDetectronTopKROIs {
    /// The attributes.
    pub attributes: ExperimentalDetectronTopKROIsAttributes,
}

impl Operation for ExperimentalDetectronTopKROIs {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let element_type = context.require_same_type(&[0, 1])?;
        require_last(context, 0, 1, 4)?;
        context.require_rank(1, 1..=1)?;
        common_dim(context, &[(0, 0), (1, 0)], "regions")?;
        let rows = Dim::fixed(self.attributes.max_rois.max(0) as usize);
        context.set_output(0, element_type, PartialShape::from_dims([rows, Dim::fixed(4)]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (rois, probabilities) = (context.input(0)?, widened_view(context.input(1)?)?);
        let shape = Shape::from([self.attributes.max_rois as usize, 4]);
        let mut order: Vec<usize> = (0..probabilities.len()).collect();
        // Zero is added because both zeros are equal probabilities; of equal ones the first comes first.
        let best_first =
            |a: &usize, b: &usize| (probabilities[*b] + 0.0).total_cmp(&(probabilities[*a] + 0.0)).then(a.cmp(b));
        if shape[0] < order.len() {
            order.select_nth_unstable_by(shape[0], best_first);
            order.truncate(shape[0]);
        }
        order.sort_unstable_by(best_first);
        let mut target = context.output(0, &shape)?;
        target.bytes_mut().fill(0);
        let element_type = rois.element_type();
        dispatch!(element_type, T in [float] => {
            let rois = rois.slice::<T>()?;
            for (row, index) in target.slice_mut::<T>()?.chunks_exact_mut(4).zip(order) {
                row.copy_from_slice(&rois[index * 4..][..4]);
            }
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(6)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ExperimentalDetectronTopKROIsAttributes::read(context.attributes);
    check_integer(context.attributes, "max_rois", attributes.max_rois, 0..=MAX_WINDOW_NUMBER);
    Arc::new(ExperimentalDetectronTopKROIs { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(max_rois: &str) -> Case {
        Case::new("ExperimentalDetectronTopKROIs", "opset6").attribute("max_rois", max_rois)
    }

    #[test]
    fn the_best_come_first() {
        let rois: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let inputs = [tensor(&rois, [3, 4]), tensor(&[0.5f32, 0.25, 0.5], [3])];
        assert_eq!(case("2").run(&inputs).unwrap()[0], tensor(&[0f32, 1.0, 2.0, 3.0, 8.0, 9.0, 10.0, 11.0], [2, 4]));
        let padded = [0f32, 1.0, 2.0, 3.0, 8.0, 9.0, 10.0, 11.0, 4.0, 5.0, 6.0, 7.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(case("4").run(&inputs).unwrap()[0], tensor(&padded, [4, 4]));
        assert_eq!(case("0").run(&inputs).unwrap()[0], tensor::<f32>(&[], [0, 4]));
    }

    #[test]
    fn the_example_of_the_specification() {
        assert_eq!(case("1000").infer(&["f32[5000,4]", "f32[5000]"]), ["f32[1000,4]"]);
        case("1000").assert_monotone(&["f16[5000,4]", "f16[5000]"]);
    }

    #[test]
    fn old_files_name_no_opset() {
        for version in ["experimental", "extension"] {
            let case = Case::new("ExperimentalDetectronTopKROIs", version).attribute("max_rois", "3");
            assert_eq!(case.infer(&["f32[?,4]", "f32[?]"]), ["f32[3,4]"]);
        }
    }

    #[test]
    fn violations_are_named() {
        assert_eq!(
            case("1").infer_error(&["f32[7,4]", "f32[8]"]),
            "input 1: shape [8] has 8 regions, but shape [7,4] of input 0 has 7"
        );
        assert_eq!(
            case("-1").attribute_errors(2),
            ["attribute `max_rois`: `max_rois` -1 is out of range [0, 2147483647]"]
        );
    }
}
