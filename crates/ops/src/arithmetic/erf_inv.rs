//! # ErfInv
//! The inverse of the Gauss error function, element by element.
//!
//! Specification: `arithmetic/erfinv-17`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | out 0 | | that of `data` | that of `data` |
//!
//! 1 gives infinity, -1 its negative, and what lies beyond them NaN. OpenVINO's CPU plugin computes an approximation whose
//! relative error is 2e-3 close to 1; here every value is exact but for the last digits of f64.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::infer_unary;
use crate::common::unary::evaluate_float;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// Numerators and denominators, highest power first, of Wichura's approximation of the normal quantile (*Algorithm AS 241*,
/// Applied Statistics 37, 1988): in the middle, and in the tails up to and beyond the distance 5.
const MIDDLE: [[f64; 8]; 2] = [
    [
        2_509.080_928_730_122_7,
        33_430.575_583_588_13,
        67_265.770_927_008_7,
        45_921.953_931_549_87,
        13_731.693_765_509_46,
        1_971.590_950_306_551_3,
        133.141_667_891_784_38,
        3.387_132_872_796_366_5,
    ],
    [
        5_226.495_278_852_854,
        28_729.085_735_721_943,
        39_307.895_800_092_71,
        21_213.794_301_586_597,
        5_394.196_021_424_751,
        687.187_007_492_057_9,
        42.313_330_701_600_91,
        1.0,
    ],
];
const TAIL: [[f64; 8]; 2] = [
    [
        7.745_450_142_783_414e-4,
        2.272_384_498_926_918_4e-2,
        0.241_780_725_177_450_6,
        1.270_458_252_452_368_4,
        3.647_848_324_763_204_5,
        5.769_497_221_460_691,
        4.630_337_846_156_546,
        1.423_437_110_749_683_5,
    ],
    [
        1.050_750_071_644_416_9e-9,
        5.475_938_084_995_345e-4,
        1.519_866_656_361_645_7e-2,
        0.148_103_976_427_480_08,
        0.689_767_334_985_1,
        1.676_384_830_183_803_8,
        2.053_191_626_637_759,
        1.0,
    ],
];
const FAR: [[f64; 8]; 2] = [
    [
        2.010_334_399_292_288_1e-7,
        2.711_555_568_743_487_6e-5,
        1.242_660_947_388_078_4e-3,
        2.653_218_952_657_612_3e-2,
        0.296_560_571_828_504_87,
        1.784_826_539_917_291_3,
        5.463_784_911_164_114,
        6.657_904_643_501_103,
    ],
    [
        2.044_263_103_389_939_8e-15,
        1.421_511_758_316_446e-7,
        1.846_318_317_510_054_8e-5,
        7.868_691_311_456_133e-4,
        1.487_536_129_085_061_5e-2,
        0.136_929_880_922_735_8,
        0.599_832_206_555_888,
        1.0,
    ],
];

/// The definition of ErfInv.
pub static ERF_INV: OpDef = OpDef {
    type_name: "ErfInv",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(17, (17, 17), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// An ErfInv layer.
#[derive(Debug)]
pub struct ErfInv;

impl Operation for ErfInv {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Float)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_float(context, &erf_inv)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(ErfInv)
}

/// The number whose error function is `x`: the normal quantile of `(1 + x) / 2`, divided by the root of 2.
fn erf_inv(x: f64) -> f64 {
    let magnitude = x.abs();
    if magnitude >= 1.0 {
        return if magnitude == 1.0 { f64::INFINITY.copysign(x) } else { f64::NAN };
    }
    if magnitude <= 0.85 {
        let quantile = x / 2.0 * ratio(&MIDDLE, 0.180_625 - x * x / 4.0);
        return quantile / std::f64::consts::SQRT_2;
    }
    let distance = (-libm::log((1.0 - magnitude) / 2.0)).sqrt();
    let quantile = if distance <= 5.0 { ratio(&TAIL, distance - 1.6) } else { ratio(&FAR, distance - 5.0) };
    (quantile / std::f64::consts::SQRT_2).copysign(x)
}

fn ratio([numerator, denominator]: &[[f64; 8]; 2], x: f64) -> f64 {
    let value = |coefficients: &[f64; 8]| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    value(numerator) / value(denominator)
}

#[cfg(test)]
mod tests {
    use super::erf_inv;
    use crate::testing::{Case, tensor};
    use ovir_tensor::f16;
    use pretty_assertions::assert_eq;

    #[test]
    fn the_error_function_is_undone() {
        for i in -9_999..10_000 {
            let x = f64::from(i) / 10_000.0;
            let back = libm::erf(erf_inv(x));
            assert!((back - x).abs() <= 4e-16 * (1.0 + x.abs()), "{x}: {back}");
        }
        // In the far tail the complement is what can be compared.
        for exponent in 8..16 {
            let x = 1.0 - 10f64.powi(-exponent);
            let (complement, back) = (1.0 - x, libm::erfc(erf_inv(x)));
            assert!((back / complement - 1.0).abs() < 1e-13, "{x}: {back}");
        }
    }

    #[test]
    fn the_special_cases_of_the_specification() {
        let case = Case::new("ErfInv", "opset17");
        let output = case.run(&[tensor(&[0f32, -0.0, 1.0, -1.0, 0.5], [5])]).unwrap();
        let expected = [0f32, -0.0, f32::INFINITY, f32::NEG_INFINITY, 0.476_936_28];
        assert_eq!(output[0], tensor(&expected, [5]));
        let output = case.run(&[tensor(&[1.5f64, -2.0, f64::NAN], [3])]).unwrap();
        assert!(output[0].slice::<f64>().unwrap().iter().all(|v| v.is_nan()));
        let output = case.run(&[tensor(&[f16::from_f32(0.5)], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[f16::from_f32(0.476_936_28)], [1]));
    }

    #[test]
    fn types_and_shapes() {
        let case = Case::new("ErfInv", "opset17");
        assert_eq!(case.infer(&["f32[256,?]"]), ["f32[256,?]"]);
        assert!(case.infer_error(&["i32[2]"]).contains("floating-point"));
    }
}
