//! Mathematics and rules that families of operations share.

pub mod accumulate;
pub mod axes;
pub mod bitwise;
pub mod broadcast;
pub mod comparison;
pub mod convolution;
pub mod elementwise;
pub mod interpolation;
pub mod iteration;
pub mod logical;
pub mod memory;
pub mod movement;
pub mod number;
pub mod pooling;
pub mod recurrent;
pub mod reduction;
pub mod scatter;
pub mod slicing;
pub mod unary;
pub mod value;
pub mod window;
pub(crate) mod broadcast;
pub(crate) mod elementwise;
pub(crate) mod index;
pub(crate) mod movement;
pub(crate) mod number;
pub(crate) mod scatter;

pub(crate) mod slicing;
