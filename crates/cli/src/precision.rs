//! The precision of arithmetic, as several verbs take it.

use ovir::InferencePrecision;

/// The precision of products and convolutions.
#[derive(Debug, Clone, clap::Args)]
pub struct PrecisionArguments {
    /// The precision of products and convolutions [default: f32]: f32, or bf16, which rounds their operands and is faster
    /// where the processor has instructions for it.
    #[arg(long = "infer_precision", value_name = "PRECISION", visible_alias = "infer-precision")]
    infer_precision: Option<InferencePrecision>,
}

impl PrecisionArguments {
    /// The precision.
    pub fn get(&self) -> InferencePrecision {
        self.infer_precision.unwrap_or_default()
    }
}
