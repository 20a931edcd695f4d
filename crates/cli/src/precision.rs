//! The precision of arithmetic, as several verbs take it.

use ovir::{CompileOptions, InferencePrecision};

/// The precision of products, convolutions and attention.
#[derive(Debug, Clone, clap::Args)]
pub struct PrecisionArguments {
    /// The precision of products, convolutions and attention [default: f32]: f32, or bf16, which rounds their
    /// operands and is faster where the processor has instructions for it.
    #[arg(long = "infer_precision", value_name = "PRECISION", visible_alias = "infer-precision")]
    infer_precision: Option<InferencePrecision>,
    /// Quantises so many neighbouring values together, as they come, in products with constants of four or eight bits
    /// [default: 0, which leaves them in f32].
    #[arg(
        long = "dynamic_quantization_group_size",
        value_name = "VALUES",
        visible_alias = "dynamic-quantization-group-size"
    )]
    dynamic_quantization_group_size: Option<usize>,
}

impl PrecisionArguments {
    /// Options with this precision.
    pub fn options(&self) -> CompileOptions {
        CompileOptions {
            inference_precision: self.infer_precision.unwrap_or_default(),
            dynamic_quantization_group_size: self.dynamic_quantization_group_size.unwrap_or(0),
            ..CompileOptions::default()
        }
    }
}
