//! # IDFT
//! The inverse of the discrete Fourier transform of complex numbers along some axes.
//!
//! Specification: `signals/idft-7`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[..., 2]`: real and imaginary parts last |
//! | in 1 | axes | i32, i64 | one item an axis; negative ones count from the last axis before the parts |
//! | in 2 | signal_size (optional) | i32, i64 | one size an axis; -1 keeps that of the data |
//! | out 0 | | that of `data` | that of `data` with the signal sizes |
//!
//! The data are cut, or filled with zeros at the end, to the signal size first. The result is divided by the sizes.

use std::sync::Arc;

use crate::signals::dft::{evaluate_complex, infer_complex};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of IDFT.
pub static IDFT: OpDef = OpDef {
    type_name: "IDFT",
    category: Category::Signals,
    versions: &[OpVersion::new(7, (7, 16), (2, 3), (1, 1))],
    attributes: &[],
    build,
};

/// An IDFT layer.
#[derive(Debug)]
pub struct Idft;

impl Operation for Idft {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_complex(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_complex(context, true)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Idft)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn shapes_follow_the_signal_sizes() {
        let case = Case::new("IDFT", "opset7");
        assert_eq!(case.infer(&["f32[1,320,320,2]", "i64[2]=1,2"]), ["f32[1,320,320,2]"]);
        assert_eq!(case.infer(&["f32[1,320,320,2]", "i64[2]=2,1", "i64[2]=512,-1"]), ["f32[1,320,512,2]"]);
        assert_eq!(case.infer(&["f32[1,320,320,2]", "i64[2]", "i64[2]"]), ["f32[?,?,?,2]"]);
        assert_eq!(
            case.infer_error(&["f32[4,2]", "i64[1]=1"]),
            "input 1: axis 1 is out of range [-1, 0] for a tensor of rank 1"
        );
    }

    #[test]
    fn cuts_and_fills() {
        let case = Case::new("IDFT", "opset7");
        let data = tensor(&[1f32, 0.0, 2.0, 0.0, 3.0, 0.0], [3, 2]);
        let run = |size: i64| case.run(&[data.clone(), tensor(&[0i64], [1]), tensor(&[size], [1])]).unwrap().remove(0);
        let scale = |n: f32| 1.0 / n;
        assert_eq!(run(2).slice::<f32>().unwrap(), [3.0 * scale(2.0), 0.0, -scale(2.0), 0.0]);
        let filled = run(4).slice::<f32>().unwrap().to_vec();
        assert_eq!(filled[..2], [6.0 * scale(4.0), 0.0]);
        assert_eq!(filled[4..6], [2.0 * scale(4.0), 0.0]);
    }
}
