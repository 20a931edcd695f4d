//! The precision of arithmetic.

use std::str::FromStr;

use ovir_tensor::ElementType;

/// The precision in which products, convolutions and attention of f32 compute: OpenVINO's `INFERENCE_PRECISION_HINT`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InferencePrecision {
    /// Everything in f32.
    #[default]
    F32,
    /// Products with constants, convolutions and ScaledDotProductAttention of more than four queries with at most 256
    /// columns round both operands of what they multiply to bf16 and sum in f32, where the processor has instructions for
    /// it; everything else, and everything on other processors, is computed in f32. Numbers that are no normal ones count as
    /// zeros in such sums. Compressed weights of eight bits and less are computed as ever.
    Bf16,
}

impl FromStr for InferencePrecision {
    type Err = String;

    /// Reads every spelling of the element types `f32` and `bf16`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(ElementType::F32) => Ok(InferencePrecision::F32),
            Ok(ElementType::Bf16) => Ok(InferencePrecision::Bf16),
            Ok(other) => Err(format!("{other} is no precision of arithmetic; there are f32 and bf16")),
            Err(_) => Err(format!("`{text}` is no precision; there are f32 and bf16")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn precisions_are_read_in_all_spellings() {
        for text in ["bf16", "BF16", "bfloat16"] {
            assert_eq!(text.parse(), Ok(InferencePrecision::Bf16), "{text}");
        }
        for text in ["f32", "FP32", "float32"] {
            assert_eq!(text.parse(), Ok(InferencePrecision::F32), "{text}");
        }
        let refused = |text: &str| text.parse::<InferencePrecision>().unwrap_err();
        assert_eq!(refused("FP16"), "f16 is no precision of arithmetic; there are f32 and bf16");
        assert_eq!(refused("best"), "`best` is no precision; there are f32 and bf16");
    }
}
