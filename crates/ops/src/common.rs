//! Mathematics and rules that families of operations share.

pub mod accumulate;
pub mod axes;
pub mod bitwise;
pub mod broadcast;
pub mod comparison;
pub mod conversion;
pub mod convolution;
pub mod elementwise;
pub mod index;
pub mod interpolation;
pub mod iteration;
pub mod logical;
pub mod memory;
pub mod movement;
pub mod normalization;
pub mod number;
pub mod pooling;
pub mod recurrent;
pub mod reduction;
pub mod scatter;
pub mod slicing;
pub mod unary;
pub mod value;
pub mod window;
