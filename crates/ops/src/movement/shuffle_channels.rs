//! # ShuffleChannels
//! The channels of a tensor interleaved group by group.
//!
//! Specification: `movement/shuffle-channels-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | rank at least 1, `axis` divisible by `group` |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use ovir_tensor::{Dim, INFINITE, Shape};

use crate::common::movement::{View, evaluate_view};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// The attributes of ShuffleChannels.
    pub struct ShuffleChannelsAttributes {
        /// The axis of the channels; negative counts from the end.
        axis: i64 = "axis", default "1";
        /// The number of groups.
        group: i64 = "group", default "1";
    }
}

/// The definition of ShuffleChannels.
pub static SHUFFLE_CHANNELS: OpDef = OpDef {
    type_name: "ShuffleChannels",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: ShuffleChannelsAttributes::DEFINITIONS,
    build,
};

/// A ShuffleChannels layer.
#[derive(Debug)]
pub struct ShuffleChannels {
    /// The attributes.
    pub attributes: ShuffleChannelsAttributes,
}

impl Operation for ShuffleChannels {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let (element_type, shape) = (context.element_type(0), context.shape(0));
        if let Some(rank) = shape.rank() {
            let axis = normalize_axis(self.attributes.axis, rank, Blame::attribute("axis"))?;
            self.check(shape.dim(axis))?;
        }
        context.set_output(0, element_type, shape.clone());
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shape = context.input(0)?.shape();
        let axis = normalize_axis(self.attributes.axis, shape.rank(), Blame::attribute("axis"))?;
        self.check(Dim::fixed(shape[axis]))?;
        evaluate_view(context, 0, &self.view(shape, axis))
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

impl ShuffleChannels {
    fn check(&self, channels: Dim) -> OpResult {
        let group = self.attributes.group;
        let most = if channels.max() == INFINITE { INFINITE } else { channels.max() / group };
        if channels.div_ceil(group).min() <= most {
            return Ok(());
        }
        Err(OpError::attribute("group", format!("{channels} channels cannot be divided into {group} groups")))
    }

    /// The output as its elements lie in the data, for shapes that fit.
    pub fn view(&self, shape: &Shape, axis: usize) -> View {
        let group = self.attributes.group as usize;
        let outer: usize = shape[..axis].iter().product();
        let inner: usize = shape[axis + 1..].iter().product();
        View::permuted(shape.clone(), &[outer, group, shape[axis] / group, inner], &[0, 2, 1, 3])
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let mut attributes = ShuffleChannelsAttributes::read(context.attributes);
    if attributes.group <= 0 {
        let message = format!("{} must be positive", attributes.group);
        context.attributes.report(OpError::attribute("group", message));
        attributes.group = 1;
    }
    Arc::new(ShuffleChannels { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn interleaves_groups() {
        let case = Case::new("ShuffleChannels", "opset1").attribute("group", "3");
        let data = tensor(&(0..12).collect::<Vec<i32>>(), [1, 6, 2]);
        let output = case.run(&[data]).unwrap();
        assert_eq!(output[0], tensor(&[0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11], [1, 6, 2]));
        assert_eq!(case.infer(&["f32[?,?]"]), ["f32[?,?]"]);
        assert_eq!(case.infer_error(&["f32[1,4]"]), "attribute `group`: 4 channels cannot be divided into 3 groups");
        assert_eq!(
            case.infer_error(&["f32[4]"]),
            "attribute `axis`: axis 1 is out of range [-1, 0] for a tensor of rank 1"
        );
    }
}
