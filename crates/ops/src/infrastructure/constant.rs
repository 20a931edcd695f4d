//! # Const
//! A tensor that is part of the model.
//!
//! Specification: `infrastructure/constant-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | out 0 | | `element_type` | `shape` |
//!
//! The bytes lie in the weights file from `offset` on; whoever reads the file gives the tensor to the instance.

use std::sync::Arc;

use ovir_tensor::{ElementType, PartialShape, Shape, Tensor};

use crate::{
    AttributeValue, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion,
    Operation, ValueFacts,
};

crate::attributes! {
    /// Attributes of Const.
    pub struct ConstAttributes {
        /// The element type.
        element_type: ElementType = "element_type", required true;
        /// The shape.
        shape: Shape = "shape", required true;
        /// Where the bytes begin in the weights file.
        offset: u64 = "offset", required true;
        /// How many bytes there are; a tensor without elements is written with size 1.
        size: u64 = "size", required true;
    }
}

/// The definition of Const.
pub static CONST: OpDef = OpDef {
    type_name: "Const",
    category: Category::Infrastructure,
    versions: &[OpVersion::new(1, (1, 16), (0, 0), (1, 1))],
    attributes: ConstAttributes::DEFINITIONS,
    build,
};

/// A Const layer.
#[derive(Debug, Clone)]
pub struct Const {
    /// What the file says.
    pub attributes: ConstAttributes,
    /// The tensor; `None` as long as weights are not there.
    pub tensor: Option<Tensor>,
}

impl Const {
    /// A constant made from a tensor.
    pub fn of(tensor: Tensor) -> Const {
        let attributes = ConstAttributes {
            element_type: tensor.element_type(),
            shape: tensor.shape().clone(),
            offset: 0,
            size: tensor.bytes().len() as u64,
        };
        Const { attributes, tensor: Some(tensor) }
    }
}

impl Operation for Const {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        match &self.tensor {
            Some(tensor) => context.set_facts(0, ValueFacts::of_constant(tensor.clone())),
            None => {
                context.set_output(0, self.attributes.element_type, PartialShape::from(&self.attributes.shape));
            }
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let missing = || OpError::unsupported("the weights of this constant are missing");
        context.set_output(0, self.tensor.clone().ok_or_else(missing)?)
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut written = self.attributes.print(1);
        if let Some((_, text)) = written.iter_mut().find(|(name, _)| *name == "shape") {
            *text = self.attributes.shape.print().unwrap_or_default();
        }
        written
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Const { attributes: ConstAttributes::read(context.attributes), tensor: None })
}
