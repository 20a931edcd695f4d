//! Movements of few elements, which have their places when the model is compiled.

use ovir_tensor::{ElementType, Tensor};
use pretty_assertions::assert_eq;

use super::text::{Text, Value};

type Movement = fn(&mut Text, Value, &str) -> Value;

fn gather(text: &mut Text, x: Value, precision: &str, indices: &[i64]) -> Value {
    let (indices, axis) = (text.integers(indices), text.integers(&[1]));
    text.layer("Gather", "batch_dims=\"0\"", &[x, indices, axis], precision)
}

fn concat(text: &mut Text, parts: &[Value], axis: i64, precision: &str) -> Value {
    text.layer("Concat", &format!("axis=\"{axis}\""), parts, precision)
}

fn pad(text: &mut Text, x: Value, mode: &str, precision: &str) -> Value {
    let (begin, end) = (text.integers(&[0, 2, 1]), text.integers(&[1, 0, 2]));
    text.layer("Pad", &format!("pad_mode=\"{mode}\""), &[x, begin, end], precision)
}

/// Split and VariadicSplit, and a Concat of the parts the other way round.
fn parts(text: &mut Text, x: Value, axis: i64, precision: &str) -> Value {
    let along = text.constant("i64", &[], &axis.to_le_bytes());
    let Value(id, first) = match axis {
        1 => text.layer_of("Split", "num_splits=\"2\"", &[x, along], precision, 2),
        _ => {
            let lengths = text.integers(&[1, -1]);
            text.layer_of("VariadicSplit", "", &[x, along, lengths], precision, 2)
        }
    };
    concat(text, &[Value(id, first + 1), Value(id, first)], axis, precision)
}

const MOVEMENTS: [(&str, Movement); 13] = [
    ("Gather", |text, x, precision| gather(text, x, precision, &[3, 0, -1, 2])),
    ("Gather with zeros", |text, x, precision| gather(text, x, precision, &[3, 4, -5])),
    ("Transpose", |text, x, precision| {
        let order = text.integers(&[2, 0, 1]);
        text.layer("Transpose", "", &[x, order], precision)
    }),
    ("Slice", |text, x, precision| {
        let given = [[-1, 1], [-100, 9], [-2, 1], [1, 2]].map(|values| text.integers(&values));
        text.layer("Slice", "", &[&[x][..], &given].concat(), precision)
    }),
    ("Tile", |text, x, precision| {
        let repeats = text.integers(&[1, 2, 1]);
        text.layer("Tile", "", &[x, repeats], precision)
    }),
    ("Broadcast", |text, x, precision| {
        let (first, axis) = (text.integers(&[0]), text.integers(&[2]));
        let column = text.layer("Gather", "batch_dims=\"0\"", &[x, first, axis], precision);
        let shape = text.integers(&[2, 1, 4, 5]);
        text.layer("Broadcast", "mode=\"bidirectional\"", &[column, shape], precision)
    }),
    ("DepthToSpace", |text, x, precision| {
        text.layer("DepthToSpace", "mode=\"blocks_first\" block_size=\"2\"", &[x], precision)
    }),
    ("Pad with the edge", |text, x, precision| pad(text, x, "edge", precision)),
    ("Pad with a mirror", |text, x, precision| pad(text, x, "reflect", precision)),
    ("Pad with zeros", |text, x, precision| pad(text, x, "constant", precision)),
    ("parts of rows", |text, x, precision| parts(text, x, 0, precision)),
    ("parts of planes", |text, x, precision| parts(text, x, 1, precision)),
    ("parts of lines", |text, x, precision| parts(text, x, 2, precision)),
];

/// The elements of an inference are those of the layers one by one, whether there are few or many of them and whether their
/// number is known.
#[test]
fn movements_of_few_elements() {
    let types =
        [(ElementType::U8, "U8"), (ElementType::F16, "FP16"), (ElementType::F32, "FP32"), (ElementType::I64, "I64")];
    let shapes = [("2,4,3", [2, 4, 3]), ("2,4,6", [2, 4, 6]), ("3,4,50", [3, 4, 50]), ("?,4,6", [2, 4, 6])];
    for (name, movement) in MOVEMENTS {
        for ((element_type, precision), (declared, shape)) in
            types.iter().flat_map(|t| shapes.iter().map(move |s| (t, s)))
        {
            let mut text = Text::default();
            let x = text.parameter(&element_type.to_string(), declared);
            let end = movement(&mut text, x, precision);
            text.layer("Result", "", &[end], "");
            let width = element_type.byte_width().unwrap();
            let bytes: Vec<u8> =
                (0..shape.iter().product::<usize>() * width).map(|i| (i * 37 % 113) as u8 + 1).collect();
            let inputs = [Tensor::from_bytes(*element_type, *shape, &bytes).unwrap()];
            let (expected, (actual, entries)) = (text.unoptimised(&inputs), text.run(&inputs, false));
            let what = format!("{name} of {element_type}[{declared}]");
            assert_eq!((expected.shape(), expected.bytes()), (actual.shape(), actual.bytes()), "{what}");
            assert!(entries.iter().all(|entry| entry.is_kernel), "{what} ran by its reference");
        }
    }
}

/// Constants that are joined to data are not taken for places, whatever their numbers are.
#[test]
fn few_elements_among_constants() {
    for place in 0..2 {
        let mut text = Text::default();
        let x = text.parameter("i64", "1");
        let constants = text.integers(&[1, 2048, 1, 2]);
        let parts = if place == 0 { [x, constants] } else { [constants, x] };
        let end = concat(&mut text, &parts, 0, "I64");
        text.layer("Result", "", &[end], "");
        let inputs = [Tensor::from_slice(&[7i64], [1]).unwrap()];
        let (actual, entries) = text.run(&inputs, false);
        assert_eq!(text.unoptimised(&inputs).bytes(), actual.bytes());
        assert!(entries.iter().all(|entry| entry.is_kernel));
    }
}
