//! # ReadValue
//! The value of a variable, which lives from inference to inference.
//!
//! Specification: `infrastructure/read-value-3`, `infrastructure/read-value-6`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | initial value (optional in -6) | any | any |
//! | out 0 | | the variable's | the variable's |
//!
//! -3: the variable has type and shape of the initial value. -6: type and shape of the variable are attributes, and the
//! initial value may be left out (the variable then starts as zeros, dimensions without a bound as 0).

use std::sync::Arc;

use ovir_tensor::{ElementType, PartialShape};

use crate::rows::rows_first;
use crate::{
    Blame, BuildContext, Category, Effects, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion,
    Operation, PartialShapeAttribute,
};

crate::attributes! {
    /// Attributes of ReadValue and Assign.
    pub struct VariableAttributes {
        /// The name of the variable, unique in the model.
        variable_id: String = "variable_id", required true;
        /// The element type of the variable.
        variable_type: ElementType = "variable_type", required true, since 6;
        /// The shape of the variable.
        variable_shape: PartialShapeAttribute = "variable_shape", required true, since 6;
    }
}

/// The definition of ReadValue.
pub static READ_VALUE: OpDef = OpDef {
    type_name: "ReadValue",
    category: Category::Infrastructure,
    versions: &[OpVersion::new(3, (3, 5), (1, 1), (1, 1)), OpVersion::new(6, (6, 16), (0, 1), (1, 1))],
    attributes: VariableAttributes::DEFINITIONS,
    build,
};

/// A ReadValue layer.
#[derive(Debug)]
pub struct ReadValue {
    /// The variable.
    pub attributes: VariableAttributes,
    /// 3 or 6.
    pub class_version: u8,
    /// Whether the variable has its rows first in memory, as [`crate::rows`] says, which optimisation decides. The shape of the
    /// attributes is then that of the memory, while an initial value has its rows where they are usually.
    pub is_rows_first: bool,
}

impl Operation for ReadValue {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        if self.class_version < 6 {
            let (element_type, shape) = (context.element_type(0), context.shape(0).clone());
            context.set_output(0, element_type, shape);
            return Ok(());
        }
        let (mut variable_type, shape) = (self.attributes.variable_type, &self.attributes.variable_shape.0);
        if context.input_count() > 0 {
            let initial = context.input(0)?;
            if initial.element_type.merge(variable_type).is_none() {
                let message =
                    format!("element type {} differs from variable_type {variable_type}", initial.element_type);
                context.report(OpError::element_type(Blame::Input(0), message));
            }
            // A variable of no declared type, as exporters write what a decoder keeps of an encoder, has its initialiser's.
            variable_type = initial.element_type.merge(variable_type).unwrap_or(variable_type);
            let moved = self.is_rows_first.then(|| rows_first(&initial.shape));
            if !moved.as_ref().unwrap_or(&initial.shape).compatible(shape) {
                let message = format!("shape {} does not fit variable_shape {shape}", initial.shape);
                context.report(OpError::shape(Blame::Input(0), message));
            }
        }
        context.set_output(0, variable_type, shape.clone());
        Ok(())
    }

    fn evaluate(&self, _context: &mut EvaluateContext<'_>) -> OpResult {
        Err(OpError::unsupported("a variable lives in an inference request"))
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }

    fn effects(&self) -> Effects {
        Effects::State
    }

    fn variable_id(&self) -> Option<&str> {
        Some(&self.attributes.variable_id)
    }
}

impl ReadValue {
    /// Type and shape that the variable is declared with; `None` for -3, where the initial value says it.
    pub fn declared(&self) -> Option<(ElementType, &PartialShape)> {
        (self.class_version >= 6).then_some((self.attributes.variable_type, &self.attributes.variable_shape.0))
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = VariableAttributes::read(context.attributes);
    Arc::new(ReadValue { attributes, class_version: context.class_version, is_rows_first: false })
}

#[cfg(test)]
mod tests {
    use crate::testing::Case;
    use pretty_assertions::assert_eq;

    #[test]
    fn variables_of_no_declared_type_have_the_one_of_their_initialiser() {
        let case =
            Case::new("ReadValue", "opset6").attribute("variable_id", "encoded").attribute("variable_shape", "...");
        let undeclared = case.attribute("variable_type", "dynamic");
        assert_eq!(undeclared.infer(&["f32[?,4,?,16]"]), ["f32[...]"]);
    }
}
