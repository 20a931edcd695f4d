//! Infrastructure: parameters, results, constants, states and loops.

use crate::OpDef;

pub mod assign;
pub mod constant;
pub mod r#loop;
pub mod parameter;
pub mod read_value;
pub mod result;
pub mod tensor_iterator;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &assign::ASSIGN,
    &constant::CONST,
    &parameter::PARAMETER,
    &r#loop::LOOP,
    &read_value::READ_VALUE,
    &result::RESULT,
    &tensor_iterator::TENSOR_ITERATOR,
];
