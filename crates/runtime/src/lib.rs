//! Plans, memory, schedules, inference requests, states and profiles.
//!
//! A [`Compiled`] model is what every request shares: steps, packed constants, the pool of threads. A [`Request`] has
//! the memory of one inference: an arena for intermediate tensors, outputs, variables. Per signature of input shapes an
//! instance holds shapes and places; everything else is done once.

mod body;
mod compile;
mod decompression;
mod eager;
mod error;
mod fast;
mod initialisers;
mod instance;
mod layout;
mod plan;
mod pool;
mod precision;
mod request;
mod scatter;
mod spare;
mod step;
mod variable;

pub use compile::{CompileOptions, Compiled};
pub use error::RunError;
pub use instance::Helpers;
pub use plan::{Plan, PlanAction, PlanPlace, PlanStep, PlanValue};
pub use pool::available_threads;
pub use precision::InferencePrecision;
pub use request::{Observer, Profile, ProfileEntry, Request};
pub use scatter::run_scatter;
pub use variable::VariableInfo;
