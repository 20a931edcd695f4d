//! Mathematics and rules that families of operations share.

pub(crate) mod broadcast;
pub(crate) mod elementwise;
pub(crate) mod iteration;
pub(crate) mod number;
