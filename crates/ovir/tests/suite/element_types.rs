//! Every element type through constants, movement, results, saved models and npz files.

use std::io::Cursor;

use ovir::tensor::npz::{NpzWriter, read_npz};
use ovir::tensor::packed::pack_codes;
use ovir::{CompileOptions, Core, ElementType, Shape, Tensor};
use pretty_assertions::assert_eq;

/// Joins a parameter `[3, 5]` and a constant `[3, 2]`, swaps the axes and takes rows 6 and 0.
fn model(element_type: ElementType, weights: &[Vec<u8>; 4]) -> (String, Vec<u8>) {
    let mut bin = Vec::new();
    let mut places = Vec::new();
    for bytes in weights {
        bin.resize(bin.len().next_multiple_of(64), 0);
        places.push((bin.len(), bytes.len()));
        bin.extend_from_slice(bytes);
    }
    let constant = |id: usize, kind: &str, shape: &str, place: (usize, usize)| {
        let dims: String = shape.split(',').filter(|d| !d.is_empty()).map(|d| format!("<dim>{d}</dim>")).collect();
        format!(
            "<layer id=\"{id}\" name=\"c{id}\" type=\"Const\" version=\"opset1\"><data element_type=\"{kind}\" \
             shape=\"{shape}\" offset=\"{}\" size=\"{}\"/><output><port id=\"0\" precision=\"{}\">{dims}</port></output></layer>",
            place.0,
            place.1,
            kind.parse::<ElementType>().unwrap().precision_name()
        )
    };
    let precision = element_type.precision_name();
    let layer = |id: usize, kind: &str, version: &str, data: &str, inputs: usize| {
        let ports: String = (0..inputs).map(|port| format!("<port id=\"{port}\"/>")).collect();
        format!(
            "<layer id=\"{id}\" name=\"n{id}\" type=\"{kind}\" version=\"{version}\">{data}<input>{ports}</input>\
             <output><port id=\"9\" precision=\"{precision}\" names=\"y{id}\"/></output></layer>"
        )
    };
    let layers = [
        format!(
            "<layer id=\"0\" name=\"x\" type=\"Parameter\" version=\"opset1\"><data shape=\"3,5\" element_type=\"{element_type}\"/>\
             <output><port id=\"0\" precision=\"{precision}\" names=\"x\"><dim>3</dim><dim>5</dim></port></output></layer>"
        ),
        constant(1, element_type.name(), "3,2", places[0]),
        layer(2, "Concat", "opset1", "<data axis=\"1\"/>", 2),
        constant(3, "i64", "2", places[1]),
        layer(4, "Transpose", "opset1", "", 2),
        constant(5, "i64", "2", places[2]),
        constant(6, "i64", "", places[3]),
        layer(7, "Gather", "opset8", "<data batch_dims=\"0\"/>", 3),
        "<layer id=\"8\" name=\"r\" type=\"Result\" version=\"opset1\"><input><port id=\"0\"/></input></layer>"
            .to_owned(),
    ];
    let edges: String = [
        (0, 0, 2, 0),
        (1, 0, 2, 1),
        (2, 9, 4, 0),
        (3, 0, 4, 1),
        (4, 9, 7, 0),
        (5, 0, 7, 1),
        (6, 0, 7, 2),
        (7, 9, 8, 0),
    ]
    .iter()
    .map(|(a, p, b, q)| format!("<edge from-layer=\"{a}\" from-port=\"{p}\" to-layer=\"{b}\" to-port=\"{q}\"/>"))
    .collect();
    let xml =
        format!("<net name=\"m\" version=\"11\"><layers>{}</layers><edges>{edges}</edges></net>", layers.concat());
    (xml, bin)
}

fn integers(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A tensor whose elements are the numbers, as bits.
fn tensor(element_type: ElementType, numbers: &[u8], shape: [usize; 2]) -> Tensor {
    let shape = Shape::from_slice(&shape);
    if element_type == ElementType::String {
        return Tensor::from_strings(numbers.iter().map(|n| "ä".repeat(usize::from(*n))).collect(), shape).unwrap();
    }
    if let Some(width) = element_type.byte_width() {
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| std::iter::repeat_n(*n, width)).collect();
        return Tensor::from_bytes(element_type, shape, &bytes).unwrap();
    }
    let mut tensor = Tensor::zeros(element_type, shape).unwrap();
    pack_codes(element_type, numbers, tensor.bytes_mut().unwrap()).unwrap();
    tensor
}

fn stored(tensor: &Tensor) -> Vec<u8> {
    let Some(strings) = tensor.strings() else { return tensor.bytes().to_vec() };
    let mut bytes = (strings.len() as u32).to_le_bytes().to_vec();
    let mut end = 0u32;
    bytes.extend(end.to_le_bytes());
    for string in strings {
        end += string.len() as u32;
        bytes.extend(end.to_le_bytes());
    }
    bytes.extend(strings.concat().into_bytes());
    bytes
}

#[test]
fn every_element_type_is_moved_to_the_bit() {
    let core = Core::new();
    for element_type in ElementType::ALL {
        let most = match element_type {
            ElementType::Boolean => 2,
            ElementType::String => 7,
            _ => 1 << element_type.bits().min(7),
        };
        let numbers: Vec<u8> = (0..21u8).map(|i| (i * 5 + i / 4) % most).collect();
        // Rows of seven: five of the parameter, two of the constant.
        let part = |columns: std::ops::Range<usize>| -> Vec<u8> {
            numbers.chunks(7).flat_map(|row| row[columns.clone()].to_vec()).collect()
        };
        let given = tensor(element_type, &part(0..5), [3, 5]);
        let constant = tensor(element_type, &part(5..7), [3, 2]);
        let expected = tensor(element_type, &[part(6..7), part(0..1)].concat(), [2, 3]);
        let (xml, bin) =
            model(element_type, &[stored(&constant), integers(&[1, 0]), integers(&[6, 0]), integers(&[0])]);
        let model = core.read_model_from_memory(xml.as_bytes(), bin).unwrap_or_else(|e| panic!("{element_type}: {e}"));
        let folder = std::env::temp_dir().join(format!("ovir-types-{}-{element_type}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        model.save(folder.join("m.xml")).unwrap_or_else(|e| panic!("{element_type}: {e}"));
        let saved = core.read_model(folder.join("m.xml")).unwrap_or_else(|e| panic!("{element_type}: {e}"));
        for model in [model, saved] {
            let mut request = core.compile_model(&model, &CompileOptions::default()).unwrap().create_infer_request();
            request.set_tensor("x", through_npz(&given)).unwrap();
            request.infer().unwrap_or_else(|e| panic!("{element_type}: {e}"));
            assert_eq!(through_npz(&request.tensor("y7").unwrap()), expected, "{element_type}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

fn through_npz(tensor: &Tensor) -> Tensor {
    let mut file = Cursor::new(Vec::new());
    let mut writer = NpzWriter::new(&mut file);
    writer.add("x", tensor).unwrap();
    writer.finish().unwrap();
    let element_type = tensor.element_type();
    let mut arrays = read_npz(Cursor::new(file.into_inner()), |_| Some(element_type)).unwrap();
    arrays.remove(0).1
}
