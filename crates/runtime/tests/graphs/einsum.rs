//! Contractions, which become products of matrices or of elements where they can.

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
fn contractions_with_many_constants_are_batches_of_products() {
    for (equation, data, constant, is_first) in [
        ("btd,edf->betf", &[2, 7, 12][..], &[3, 12, 20][..], false),
        ("betf,efd->betd", &[2, 3, 7, 20], &[3, 20, 12], false),
        ("bij,bjk->bik", &[2, 3, 7], &[2, 7, 5], false),
        ("gfe,tgf->gte", &[4, 8, 6], &[4, 8, 6], true),
        ("tgf,gfe->gte", &[5, 4, 8], &[4, 8, 6], false),
    ] {
        let data = if is_first { &[5, 4, 8][..] } else { data };
        let declared: Vec<String> = data.iter().map(usize::to_string).collect();
        let kinds = ran(equation, &declared.join(","), data, constant, is_first);
        assert!(kinds.iter().any(|kind| kind == "MatMul"), "{equation} {kinds:?}");
        assert!(!kinds.iter().any(|kind| kind == "Einsum"), "{equation} {kinds:?}");
    }
}

#[test]
fn other_contractions_stay() {
    for (equation, data, constant) in [
        ("bij,jk->bki", &[2, 3, 7][..], &[7, 5][..]),
        ("bij,jk->bi", &[2, 3, 7], &[7, 5]),
        ("bij,jk->bik", &[2, 3, 7], &[1, 5]),
        ("bii,ik->bk", &[2, 3, 3], &[3, 5]),
        ("...j,jk->...k", &[2, 3, 7], &[7, 5]),
    ] {
        let kinds = ran(equation, &dims(data), data, constant, false);
        assert_eq!(kinds.iter().filter(|kind| *kind == "Einsum").count(), 1, "{equation} {kinds:?}");
    }
}

/// The types of the layers that ran for tensors of these shapes, compared with the contraction as it stands.
fn ran_of_many(equation: &str, shapes: &[&[usize]], is_open: bool) -> Vec<String> {
    let mut text = Text::default();
    let declared = |shape: &&[usize]| if is_open { vec!["?"; shape.len()].join(",") } else { dims(shape) };
    let inputs: Vec<_> = shapes.iter().map(|shape| text.parameter("f32", &declared(shape))).collect();
    let end = text.layer("Einsum", &format!("equation=\"{equation}\""), &inputs, "FP32");
    text.layer("Result", "", &[end], "");
    let given: Vec<Tensor> =
        shapes.iter().enumerate().map(|(i, shape)| Tensor::from_slice(&values(shape, i), *shape).unwrap()).collect();
    let (actual, entries) = text.run(&given, false);
    compare(&text.unoptimised(&given), &actual, &format!("{equation} {shapes:?}"));
    entries.iter().map(|entry| entry.type_name.to_string()).collect()
}

#[test]
fn contractions_of_many_go_two_at_a_time() {
    for is_open in [false, true] {
        let kinds = ran_of_many("bhnd,bhde,bhn->bhne", &[&[2, 3, 5, 4], &[2, 3, 4, 6], &[2, 3, 5]], is_open);
        assert_eq!(kinds.iter().filter(|kind| *kind == "Einsum").count(), 1, "{kinds:?}");
        assert!(kinds.iter().any(|kind| kind == "Multiply"), "{kinds:?}");
        ran_of_many("ab,bc,cd,de->ae", &[&[2, 3], &[3, 4], &[4, 5], &[5, 6]], is_open);
        ran_of_many("...ab,bc,...c->...a", &[&[7, 2, 3], &[3, 4], &[1, 4]], is_open);
        ran_of_many("aab,bc,ca->bc", &[&[3, 3, 2], &[2, 4], &[4, 3]], is_open);
        ran_of_many("a,b,c->cab", &[&[2], &[1], &[4]], is_open);
    }
}

/// Results that lie as those of the transposed product do.
#[test]
fn contractions_with_turned_results() {
    for (equation, shapes) in [
        ("bhij,hg->bgij", [&[2, 4, 5, 9][..], &[4, 3][..]]),
        ("bhij,hg->bgij", [&[1, 8, 7, 3], &[8, 8]]),
        ("hg,bhij->bgij", [&[4, 2], &[2, 4, 5, 9]]),
        ("bij,bkj->bki", [&[2, 3, 7], &[2, 5, 7]]),
        ("bji,bjk->bki", [&[2, 3, 19], &[2, 3, 4]]),
        ("ij,j->i", [&[5, 7], &[7]]),
    ] {
        for is_open in [false, true] {
            ran_of_many(equation, &shapes, is_open);
        }
    }
}

#[test]
fn what_stands_in_one_tensor_alone_is_summed_before() {
    for (equation, shapes) in [
        ("abc->ca", &[&[2, 3, 4][..]][..]),
        ("abc->", &[&[2, 3, 4]]),
        ("a...bc->b...", &[&[2, 3, 4, 5]]),
        ("abc,bd->bd", &[&[2, 3, 4], &[3, 5]]),
        ("aabc,bd->d", &[&[2, 2, 3, 4], &[3, 5]]),
        ("...ab,c...->ac", &[&[2, 3, 4], &[5, 1]]),
    ] {
        for is_open in [false, true] {
            let kinds = ran_of_many(equation, shapes, is_open);
            assert!(kinds.iter().any(|kind| kind == "ReduceSum"), "{equation} {kinds:?}");
        }
    }
}

#[test]
fn contractions_that_sum_nothing_are_products_of_elements() {
    for (equation, shapes) in [
        ("i,j->ij", &[&[5][..], &[7][..]][..]),
        ("bhn,bhnd->bhnd", &[&[2, 3, 4], &[2, 3, 4, 5]]),
        ("ab,ca->bca", &[&[2, 3], &[4, 2]]),
        ("ab,ab->ba", &[&[2, 1], &[1, 3]]),
        (",a->a", &[&[], &[3]]),
    ] {
        for is_open in [false, true] {
            let kinds = ran_of_many(equation, shapes, is_open);
            assert!(kinds.iter().any(|kind| kind == "Multiply"), "{equation} {kinds:?}");
            assert!(!kinds.iter().any(|kind| kind == "Einsum"), "{equation} {kinds:?}");
        }
    }
}
