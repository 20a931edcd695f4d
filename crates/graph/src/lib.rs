//! The layer graph: building it from a document, ordering, validation and reshaping.
//!
//! A [`Model`] is what a file says; a [`Validated`] model is one whose every shape, type and edge was checked. Only the
//! latter can be planned and run. This crate knows no kernels and no threads.

mod blockers;
mod build;
mod declarations;
mod inference;
mod locate;
mod model;
mod order;
mod reshape;
mod save;
mod validate;
mod values;

pub use blockers::{Blocker, Effect, HardCoded, blockers};
pub use build::{BuildOptions, Built, build};
pub use inference::{Given, Inference, Reuse, body_facts, infer_layer, infer_model, infer_model_into, known_tensor};
pub use locate::diagnose;
pub use model::{DeclaredPort, Location, Model, Node, NodeId, Output, PortLocation, Preprocessing, Source, Unresolved};
pub use order::topological;
pub use reshape::{ReshapeError, reshape};
pub use save::to_document;
pub use validate::{Validated, Validation, validate, validate_within};
pub use values::{check_values, unknown_without_weights};
