//! Arithmetic.

use crate::OpDef;

pub mod abs;
pub mod acos;
pub mod acosh;
pub mod add;
pub mod asin;
pub mod asinh;
pub mod atan;
pub mod atanh;
pub mod ceiling;
pub mod cos;
pub mod cosh;
pub mod cum_sum;
pub mod divide;
pub mod erf;
pub mod erf_inv;
pub mod floor;
pub mod floor_mod;
pub mod log;
pub mod maximum;
pub mod minimum;
pub mod modulo;
pub mod multiply;
pub mod negative;
pub mod power;
pub mod round;
pub mod segment_max;
pub mod sign;
pub mod sin;
pub mod sinh;
pub mod sqrt;
pub mod squared_difference;
pub mod subtract;
pub mod tan;
pub mod tanh;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &abs::ABS,
    &acos::ACOS,
    &acosh::ACOSH,
    &add::ADD,
    &asin::ASIN,
    &asinh::ASINH,
    &atan::ATAN,
    &atanh::ATANH,
    &ceiling::CEILING,
    &cos::COS,
    &cosh::COSH,
    &cum_sum::CUM_SUM,
    &divide::DIVIDE,
    &erf::ERF,
    &erf_inv::ERF_INV,
    &floor::FLOOR,
    &floor_mod::FLOOR_MOD,
    &log::LOG,
    &maximum::MAXIMUM,
    &minimum::MINIMUM,
    &modulo::MOD,
    &multiply::MULTIPLY,
    &negative::NEGATIVE,
    &power::POWER,
    &round::ROUND,
    &segment_max::SEGMENT_MAX,
    &sign::SIGN,
    &sin::SIN,
    &sinh::SINH,
    &sqrt::SQRT,
    &squared_difference::SQUARED_DIFFERENCE,
    &subtract::SUBTRACT,
    &tan::TAN,
    &tanh::TANH,
];
