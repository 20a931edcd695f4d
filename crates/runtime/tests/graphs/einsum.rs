//! Contractions of data with a constant, which become products.

use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, compare};

fn values(shape: &[usize], seed: usize) -> Vec<f32> {
    (0..shape.iter().product()).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0).collect()
}

fn dims(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<String>>().join(",")
}

/// The types of the layers that ran for data of a shape and a constant of another, compared with the contraction as it stands.
fn ran(equation: &str, declared: &str, data: &[usize], constant: &[usize], is_first: bool) -> Vec<String> {
    let mut text = Text::default();
    let x = text.parameter("f32", declared);
    let of_constant = values(constant, 3);
    let weights = text.floats(constant, |i| of_constant[i]);
    let inputs = if is_first { [weights, x] } else { [x, weights] };
    let end = text.layer("Einsum", &format!("equation=\"{equation}\""), &inputs, "FP32");
    text.layer("Result", "", &[end], "");
    let given = [Tensor::from_slice(&values(data, 5), data).unwrap()];
    let (actual, entries) = text.run(&given, false);
    compare(&text.unoptimised(&given), &actual, &format!("{equation} {data:?} {constant:?}"));
    entries.iter().map(|entry| entry.type_name.to_string()).collect()
}

#[test]
fn contractions_with_constants_are_products() {
    for (equation, data, constant, is_first) in [
        ("ibh,hnd->ibnd", &[5, 2, 12][..], &[12, 3, 4][..], false),
        ("bij,jk->bik", &[2, 3, 7], &[7, 5], false),
        ("bij,kj->bik", &[2, 3, 7], &[5, 7], false),
        ("abnd,ndh->abh", &[2, 3, 4, 5], &[4, 5, 6], false),
        ("bnd,hnd->bh", &[2, 4, 5], &[6, 4, 5], false),
        ("bnd,dhn->bh", &[2, 4, 5], &[5, 6, 4], false),
        ("bi,jik->bjk", &[3, 4], &[5, 4, 6], false),
        ("hd,bnh->bnd", &[2, 3, 6], &[6, 4], true),
        ("i,ij->j", &[6], &[6, 4], false),
    ] {
        let mut open: Vec<String> = data.iter().map(usize::to_string).collect();
        // A size that stays need not be known.
        let stays = equation.split("->").nth(1).is_some_and(|output| output.starts_with('b'));
        if stays {
            open[0] = "?".to_owned();
        }
        let kinds = ran(equation, &open.join(","), data, constant, is_first);
        assert!(kinds.iter().any(|kind| kind == "MatMul" || kind == "Fused"), "{equation} {kinds:?}");
        assert!(!kinds.iter().any(|kind| kind == "Einsum" || kind == "Transpose"), "{equation} {kinds:?}");
    }
}

#[test]
fn other_contractions_stay() {
    for (equation, data, constant) in [
        ("bij,bjk->bik", &[2, 3, 7][..], &[2, 7, 5][..]),
        ("bij,jk->bki", &[2, 3, 7], &[7, 5]),
        ("bij,jk->bi", &[2, 3, 7], &[7, 5]),
        ("bij,jk->bik", &[2, 3, 7], &[1, 5]),
        ("bii,ik->bk", &[2, 3, 3], &[3, 5]),
        ("...j,jk->...k", &[2, 3, 7], &[7, 5]),
        ("ij,jk->ij", &[2, 3], &[3, 1]),
    ] {
        let kinds = ran(equation, &dims(data), data, constant, false);
        assert_eq!(kinds.iter().filter(|kind| *kind == "Einsum").count(), 1, "{equation} {kinds:?}");
    }
}
