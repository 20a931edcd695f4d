//! Mathematics and rules that families of operations share.

pub(crate) mod accumulate;
pub(crate) mod broadcast;
pub mod convolution;
pub(crate) mod elementwise;
pub mod embedding;
pub(crate) mod fourier;
pub mod interpolation;
pub(crate) mod memory;
pub(crate) mod number;
pub(crate) mod pooling;
pub mod recurrent;
pub mod window;
