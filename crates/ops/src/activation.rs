//! Activation functions.

use crate::OpDef;

pub mod exp;
pub mod hsigmoid;
pub mod hswish;
pub mod mish;
pub mod relu;
pub mod sigmoid;
pub mod softplus;
pub mod softsign;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &exp::EXP,
    &hsigmoid::HSIGMOID,
    &hswish::HSWISH,
    &mish::MISH,
    &relu::RELU,
    &sigmoid::SIGMOID,
    &softplus::SOFTPLUS,
    &softsign::SOFTSIGN,
];
