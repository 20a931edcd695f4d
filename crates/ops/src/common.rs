//! Mathematics and rules that families of operations share.

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
