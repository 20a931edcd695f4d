//! Ordered rewriting passes over validated models.

use ovir_graph::Validated;

/// Which passes run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether any pass runs.
    pub enabled: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { enabled: true }
    }
}

/// Runs all passes in their order.
pub fn optimize(model: Validated, _options: &Options) -> Validated {
    model
}
