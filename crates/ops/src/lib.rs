//! Operations of OpenVINO IR: attributes, shape inference and reference evaluation, one file each, and their registry.
//!
//! This crate knows no XML, no files, no threads, and no operation knows its neighbours.

mod attribute;
mod body;
pub mod codes;
pub mod common;
mod definition;
mod environment;
mod error;
mod evaluate;
mod guarded;
mod infer;
mod registry;
mod specified;
mod spread;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub mod activation;
pub mod arithmetic;
pub mod bitwise;
pub mod comparison;
pub mod condition;
pub mod convolution;
pub mod detection;
pub mod fused;
pub mod generation;
pub mod image;
pub mod infrastructure;
pub mod logical;
pub mod matrix;
pub mod movement;
pub mod normalization;
pub mod pooling;
pub mod quantization;
pub mod reduction;
pub mod rows;
pub mod sequence;
pub mod shape;
pub mod signals;
pub mod sort;
pub mod sparse;
pub mod r#type;

pub use attribute::{
    AttributeDef, AttributeKind, AttributeReader, AttributeValue, PartialShapeAttribute, RawAttribute,
};
pub use body::{BackEdge, Body, BodyPorts, InputMap, OutputMap, Slicing, SpecialPorts};
pub use definition::{BuildContext, Category, Effects, OpDef, OpVersion, Operation};
pub use environment::{Environment, Limits, RandomStream};
pub use error::{Blame, OpError, OpResult};
pub use evaluate::{EvaluateContext, OutputSlot, OutputSlots, Outputs};
pub use guarded::Guarded;
pub use infer::{InferContext, ReadValues, SymbolSource, ValueFacts, integers_of_view};
pub use registry::{Registry, Resolution};
pub use specified::{SPECIFIED, Specified};
