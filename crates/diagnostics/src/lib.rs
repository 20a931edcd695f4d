//! Spans, stable codes, severities and renderers of ovir's diagnostics.
//!
//! A [`Diagnostic`] is data: a stable [`Code`], a message in words that tell what to mend, labels on spans of the XML,
//! notes and help. Renderers turn lists of them into text for people, JSON, SARIF, GitHub annotations and JUnit.
//! This crate knows nothing of operations.

mod codes;
mod diagnostic;
mod github;
mod human;
mod json;
mod junit;
mod nearest;
mod report;
mod sarif;
mod source;

pub use codes::{CODES, Code, CodeCard};
pub use diagnostic::{Diagnostic, Label, LayerReference, Severity, Span};
pub use github::render_github;
pub use human::render_human;
pub use json::render_json;
pub use junit::render_junit;
pub use nearest::{nearest, nearest_all};
pub use report::{Report, Summary};
pub use sarif::render_sarif;
pub use source::{Position, SourceText};
