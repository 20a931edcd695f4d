//! # MVN
//! Mean-variance normalisation: slices along some axes get mean 0 and, if asked for, variance 1.
//!
//! Specification: `normalization/mvn-1`, `normalization/mvn-6`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | in 1 | axes (version 6) | i32, i64 | 1D; in [-rank, rank - 1] |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Version 1 has the axes as an attribute: `reduction_axes`, or `across_channels`, which means all axes but the first,
//! or all but the first two. Where both are given, as OpenVINO writes them, `reduction_axes` counts. Version 6 adds
//! `eps_mode`; version 1 adds `eps` inside of the square root.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::axes::{Axes, infer_axes, normalize_axes, read_axes};
use crate::common::elementwise::infer_unary;
use crate::common::normalization::{map_slices, mean_and_variance};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of MVN.
pub static MVN: OpDef = OpDef {
    type_name: "MVN",
    category: Category::Normalization,
    versions: &[OpVersion::new(1, (1, 5), (1, 1), (1, 1)), OpVersion::new(6, (6, 16), (2, 2), (1, 1))],
    attributes: MvnAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// Where `eps` is added.
    pub enum EpsMode {
        /// To the variance.
        #[default]
        InsideSqrt = "inside_sqrt",
        /// To the square root of the variance.
        OutsideSqrt = "outside_sqrt",
    }
}

crate::attributes! {
    /// Attributes of MVN.
    pub struct MvnAttributes {
        /// What keeps the divisor away from 0.
        eps: f64 = "eps", required true;
        /// Whether the result is divided by the standard deviation.
        normalize_variance: bool = "normalize_variance", required true;
        /// Whether the mean is taken over channels too.
        across_channels: bool = "across_channels", default "true", until 1;
        /// The axes along which mean and variance are taken.
        reduction_axes: Option<Vec<i64>> = "reduction_axes", until 1;
        /// Where `eps` is added.
        eps_mode: EpsMode = "eps_mode", required true, since 6;
    }
}

/// An MVN layer.
#[derive(Debug)]
pub struct Mvn {
    /// The attributes.
    pub attributes: MvnAttributes,
    class_version: u8,
}

impl Operation for Mvn {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Float)?;
        if self.class_version >= 6 {
            context.require_class(1, ElementClass::Index)?;
            infer_axes(context, 1)?;
        } else if let Some(rank) = context.shape(0).rank() {
            self.axes_of_attributes(rank)?;
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let axes = match self.class_version {
            6.. => read_axes(context, 1)?,
            _ => self.axes_of_attributes(context.input(0)?.shape().rank())?,
        };
        let MvnAttributes { eps, normalize_variance, eps_mode, .. } = self.attributes;
        map_slices(context, &axes, |elements, length| {
            let (mean, variance) = mean_and_variance(elements, length);
            let divisor = match (normalize_variance, eps_mode) {
                (false, _) => 1.0,
                (true, EpsMode::InsideSqrt) => (variance + eps).sqrt(),
                (true, EpsMode::OutsideSqrt) => variance.sqrt() + eps,
            };
            move |x| (x - mean) / divisor
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

impl Mvn {
    /// A layer of version 6: its axes are an input.
    #[must_use]
    pub fn of_axes(eps: f64) -> Mvn {
        let attributes = MvnAttributes { eps, normalize_variance: true, ..MvnAttributes::default() };
        Mvn { attributes, class_version: 6 }
    }

    /// The axes that the attributes of version 1 mean for a tensor of `rank`.
    ///
    /// # Errors
    /// When `reduction_axes` is out of range.
    pub fn axes_of_attributes(&self, rank: usize) -> OpResult<Axes> {
        match self.attributes.reduction_axes.as_deref() {
            Some([]) | None => Ok((if self.attributes.across_channels { 1 } else { 2 }..rank).collect()),
            Some(axes) => normalize_axes(axes, rank, Blame::attribute("reduction_axes")),
        }
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let class_version = context.class_version;
    let attributes = MvnAttributes::read(context.attributes);
    if attributes.eps < 0.0 || attributes.eps.is_nan() {
        let message = format!("`eps` is {}, which must not be negative", attributes.eps);
        context.attributes.report(OpError::attribute("eps", message));
    }
    Arc::new(Mvn { attributes, class_version })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn version_1() -> Case {
        Case::new("MVN", "opset2").attribute("eps", "0").attribute("normalize_variance", "true")
    }

    #[test]
    fn examples_of_version_1() {
        let across = version_1().attribute("across_channels", "true");
        assert_eq!(across.infer(&["f32[6,12,10,24]"]), ["f32[6,12,10,24]"]);
        let axes = version_1().attribute("reduction_axes", "2,3");
        assert_eq!(axes.infer(&["f32[6,12,10,24]"]), ["f32[6,12,10,24]"]);
        assert!(axes.infer_error(&["f32[6,12,10]"]).contains("axis 3 is out of range"));
    }

    #[test]
    fn axes_of_version_1() {
        let data = tensor(&[1f32, 3.0, 11.0, 13.0], [1, 2, 2]);
        let apart = version_1().attribute("across_channels", "false").run(std::slice::from_ref(&data)).unwrap();
        assert_eq!(apart[0], tensor(&[-1f32, 1.0, -1.0, 1.0], [1, 2, 2]));
        let both = version_1().attribute("across_channels", "true").attribute("reduction_axes", "1");
        assert_eq!(both.run(&[data]).unwrap()[0], tensor(&[-1f32, -1.0, 1.0, 1.0], [1, 2, 2]));
    }

    #[test]
    fn eps_inside_and_outside() {
        let case = Case::new("MVN", "opset6").attribute("eps", "1").attribute("normalize_variance", "true");
        let inputs = [tensor(&[-1f64, 1.0], [2]), tensor(&[-1i64], [1])];
        let outside = case.attribute("eps_mode", "OUTSIDE_SQRT").run(&inputs).unwrap();
        assert_eq!(outside[0], tensor(&[-0.5f64, 0.5], [2]));
        let case = Case::new("MVN", "opset6").attribute("eps", "3").attribute("normalize_variance", "true");
        let inside = case.attribute("eps_mode", "inside_sqrt").run(&inputs).unwrap();
        assert_eq!(inside[0], tensor(&[-0.5f64, 0.5], [2]));
    }

    #[test]
    fn the_variance_can_be_left() {
        let case = Case::new("MVN", "opset6").attribute("eps", "1").attribute("normalize_variance", "false");
        let case = case.attribute("eps_mode", "inside_sqrt");
        let output = case.run(&[tensor(&[1f32, 5.0], [2]), tensor(&[0i32], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[-2f32, 2.0], [2]));
    }

    #[test]
    fn inference_is_monotone() {
        let case = Case::new("MVN", "opset6").attribute("eps", "1").attribute("normalize_variance", "true");
        case.attribute("eps_mode", "inside_sqrt").assert_monotone(&["f32[2,3,4]", "i64[2]=1,-1"]);
        version_1().attribute("reduction_axes", "1,-1").assert_monotone(&["f32[2,3,4]"]);
    }
}
