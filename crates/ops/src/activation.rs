//! Activation functions.

use crate::OpDef;

pub mod clamp;
pub mod elu;
pub mod exp;
pub mod gelu;
pub mod hard_sigmoid;
pub mod hsigmoid;
pub mod hswish;
pub mod identity;
pub mod log_softmax;
pub mod mish;
pub mod prelu;
pub mod relu;
pub mod selu;
pub mod sigmoid;
pub mod softmax;
pub mod softplus;
pub mod softsign;
pub mod swish;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &clamp::CLAMP,
    &elu::ELU,
    &exp::EXP,
    &gelu::GELU,
    &hard_sigmoid::HARD_SIGMOID,
    &hsigmoid::HSIGMOID,
    &hswish::HSWISH,
    &identity::IDENTITY,
    &log_softmax::LOG_SOFTMAX,
    &mish::MISH,
    &prelu::PRELU,
    &relu::RELU,
    &selu::SELU,
    &sigmoid::SIGMOID,
    &softmax::SOFTMAX,
    &softplus::SOFTPLUS,
    &softsign::SOFTSIGN,
    &swish::SWISH,
];
