//! Mathematics and rules that families of operations share.

pub mod accumulate;
pub mod bitwise;
pub mod broadcast;
pub mod comparison;
pub mod convolution;
pub mod elementwise;
pub mod interpolation;
pub mod iteration;
pub mod logical;
pub mod memory;
pub mod number;
pub mod pooling;
pub mod unary;
pub mod value;
pub mod window;
pub(crate) mod axes;
pub(crate) mod accumulate;
pub(crate) mod bitwise;
pub(crate) mod broadcast;
pub(crate) mod comparison;
pub(crate) mod elementwise;
pub(crate) mod iteration;
pub(crate) mod logical;
pub(crate) mod memory;
pub(crate) mod number;
pub(crate) mod reduction;
pub(crate) mod pooling;
pub(crate) mod unary;
pub(crate) mod value;
pub(crate) mod movement;
pub(crate) mod number;

pub(crate) mod slicing;
pub mod recurrent;
pub mod window;
