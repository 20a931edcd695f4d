//! # NormalizeL2
//! Every element divided by the L2 norm of its slice along some axes.
//!
//! Specification: `normalization/normalize-l2-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | in 1 | axes | any integer type | scalar or 1D; in [-rank, rank - 1] |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Without axes every element is a slice of its own.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::axes::{infer_axes, read_axes};
use crate::common::elementwise::infer_unary;
use crate::common::normalization::map_slices;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of NormalizeL2.
pub static NORMALIZE_L2: OpDef = OpDef {
    type_name: "NormalizeL2",
    category: Category::Normalization,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: NormalizeL2Attributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// How `eps` joins the sum of squares.
    pub enum NormalizeEpsMode {
        /// It is added.
        #[default]
        Add = "add",
        /// The larger of both is taken.
        Max = "max",
    }
}

crate::attributes! {
    /// Attributes of NormalizeL2.
    pub struct NormalizeL2Attributes {
        /// What keeps the divisor away from 0.
        eps: f64 = "eps", required true;
        /// How `eps` joins the sum of squares.
        eps_mode: NormalizeEpsMode = "eps_mode", required true;
    }
}

/// A NormalizeL2 layer.
#[derive(Debug)]
pub struct NormalizeL2 {
    /// The attributes.
    pub attributes: NormalizeL2Attributes,
}

impl Operation for NormalizeL2 {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Float)?;
        infer_axes(context, 1)?;
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let axes = read_axes(context, 1)?;
        let NormalizeL2Attributes { eps, eps_mode } = self.attributes;
        map_slices(context, &axes, |elements, _| {
            let mut squares = 0.0;
            elements(&mut |x| squares += x * x);
            let divisor = match eps_mode {
                NormalizeEpsMode::Add => squares + eps,
                NormalizeEpsMode::Max if squares < eps => eps,
                NormalizeEpsMode::Max => squares,
            };
            let divisor = divisor.sqrt();
            move |x| x / divisor
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = NormalizeL2Attributes::read(context.attributes);
    if attributes.eps < 0.0 || attributes.eps.is_nan() {
        let message = format!("`eps` is {}, which must not be negative", attributes.eps);
        context.attributes.report(OpError::attribute("eps", message));
    }
    Arc::new(NormalizeL2 { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(mode: &str, eps: &str) -> Case {
        Case::new("NormalizeL2", "opset1").attribute("eps", eps).attribute("eps_mode", mode)
    }

    #[test]
    fn examples_of_the_specification() {
        assert_eq!(case("add", "1e-8").infer(&["f32[6,12,10,24]", "i64[1]=1"]), ["f32[6,12,10,24]"]);
        assert_eq!(case("add", "1e-8").infer(&["f32[6,12,10,24]", "i64[3]=1,2,3"]), ["f32[6,12,10,24]"]);
    }

    #[test]
    fn both_modes() {
        let inputs = [tensor(&[3f32, 4.0, 0.0, 0.0], [2, 2]), tensor(&[-1i64], [1])];
        let added = case("add", "11").run(&inputs).unwrap();
        assert_eq!(added[0], tensor(&[0.5f32, 0.6666667, 0.0, 0.0], [2, 2]));
        let larger = case("max", "4").run(&inputs).unwrap();
        assert_eq!(larger[0], tensor(&[0.6f32, 0.8, 0.0, 0.0], [2, 2]));
    }

    #[test]
    fn without_axes_every_element_is_alone() {
        let inputs = [tensor(&[3f32, -4.0], [2]), tensor::<i32>(&[], [0])];
        assert_eq!(case("max", "1e-9").run(&inputs).unwrap()[0], tensor(&[1f32, -1.0], [2]));
    }
}
