//! Mathematics and rules that families of operations share.

pub(crate) mod broadcast;
pub(crate) mod elementwise;
pub(crate) mod index;
pub(crate) mod movement;
pub(crate) mod number;
pub(crate) mod scatter;

pub(crate) mod slicing;
