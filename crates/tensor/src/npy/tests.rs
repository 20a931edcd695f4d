use super::*;
use pretty_assertions::assert_eq;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/fixtures/", $name, ".npy"))
    };
}

fn read(bytes: &[u8]) -> Tensor {
    read_npy(bytes, None).unwrap()
}

fn written(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_npy(tensor, &mut bytes).unwrap();
    bytes
}

/// A file with a header and elements of our own.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
}

fn error(header: &str, data: &[u8]) -> String {
    read_npy(&file(header, data), None).unwrap_err().to_string()
}

#[test]
fn reads_what_numpy_wrote() {
    assert_eq!(read(fixture!("f32")).slice::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(read(fixture!("f32")).shape(), &Shape::from([2, 3]));
    assert_eq!(read(fixture!("f32_fortran")), read(fixture!("f32")));
    assert_eq!(read(fixture!("f32_big")), read(fixture!("f32")));
    assert_eq!(read(fixture!("i64_scalar")), Tensor::scalar(-7i64).unwrap());
    assert_eq!(read(fixture!("bool")), Tensor::from_booleans(&[true, false, true], [3]).unwrap());
    assert_eq!(read(fixture!("empty")), Tensor::zeros(ElementType::I32, [0, 3]).unwrap());
    let expected = ["a", "", "wörld", "日本", "𝄞", " x "];
    assert_eq!(read(fixture!("unicode")).strings().unwrap(), expected);
    assert_eq!(read(fixture!("unicode_big_fortran")).strings().unwrap(), ["a", "wörld", "𝄞", "", "日本", " x "]);
    assert_eq!(read(fixture!("bytes")).strings().unwrap(), ["abc", "d"]);
    let cube: Vec<i16> = (0..24).collect();
    assert_eq!(read(fixture!("i16_cube_fortran")).slice::<i16>().unwrap(), cube);
}

#[test]
fn reads_what_ml_dtypes_wrote() {
    let bf16 = read(fixture!("bf16"));
    assert_eq!(bf16.element_type(), ElementType::Bf16);
    assert_eq!(bf16.slice::<half::bf16>().unwrap(), [1.0, -2.5].map(half::bf16::from_f32));
    let f8 = |hint| read_npy(fixture!("f8e4m3"), hint);
    assert_eq!(f8(Some(ElementType::F8e4m3)).unwrap().bytes(), [0x38, 0xc2]);
    assert_eq!(f8(Some(ElementType::F8e8m0)).unwrap().element_type(), ElementType::F8e8m0);
    assert!(f8(None).is_err());
    assert!(f8(Some(ElementType::F32)).is_err());
    assert_eq!(read(fixture!("f8e5m2")).element_type(), ElementType::F8e5m2);
    let int4 = read_npy(fixture!("int4"), Some(ElementType::I4)).unwrap();
    assert_eq!((int4.element_type(), int4.bytes()), (ElementType::I4, &[0x71, 0x08][..]));
}

#[test]
fn writes_what_numpy_writes() {
    for bytes in
        [&fixture!("f32")[..], fixture!("i64_scalar"), fixture!("bool"), fixture!("empty"), fixture!("unicode")]
    {
        assert_eq!(written(&read(bytes)), bytes);
    }
}

#[test]
fn every_element_type_reads_back() {
    for element_type in ElementType::ALL {
        let mut tensor = Tensor::zeros(element_type, [2, 5]).unwrap();
        if let Some(strings) = tensor.strings_mut() {
            strings[3] = "é\0x".to_owned();
        } else {
            let is_boolean = element_type == ElementType::Boolean;
            for (index, byte) in tensor.bytes_mut().unwrap().iter_mut().enumerate() {
                *byte = if is_boolean { index as u8 % 2 } else { (index as u8).wrapping_mul(37) };
            }
            // The bits beyond the last element are not kept.
            let unused = element_type.storage_bytes(10).unwrap() * 8 - 10 * element_type.bits();
            if unused > 0 {
                let mut codes = vec![1; 10];
                codes[4] = 0;
                pack_codes(element_type, &codes, tensor.bytes_mut().unwrap()).unwrap();
            }
        }
        assert_eq!(read_npy(&written(&tensor), Some(element_type)).unwrap(), tensor, "{element_type}");
    }
    let int4 = Tensor::from_bytes(ElementType::I4, [2], &[0x8f]).unwrap();
    assert_eq!(read(&written(&int4)).slice::<i8>().unwrap(), [-1, -8]);
}

#[test]
fn headers_may_be_written_otherwise() {
    let header = " { \"shape\" : ( 2L , ) , 'descr':'u1' , \"fortran_order\":False}  \n";
    assert_eq!(read(&file(header, &[1, 2, 99])).bytes(), [1, 2]);
    let version_2 =
        [MAGIC, &[2, 0], &70u32.to_le_bytes(), format!("{:70}", header.trim()).as_bytes(), &[1, 2]].concat();
    assert_eq!(read(&version_2).bytes(), [1, 2]);
    let strings = read(&file("{'descr': '<U0', 'fortran_order': False, 'shape': (3,)}", b""));
    assert_eq!(strings.strings().unwrap(), ["", "", ""]);
    let booleans = read(&file("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", &[7, 0]));
    assert_eq!(booleans.bytes(), [1, 0]);
}

#[test]
fn damage_is_told() {
    assert!(read_npy(b"", None).is_err());
    assert!(read_npy(b"\x93NUMPY\x01", None).is_err());
    assert!(read_npy(b"\x93NUMPY\x09\x00\x00\x00", None).is_err());
    assert!(read_npy(b"\x93NUMPY\x02\x00\xff\xff\xff\xff", None).is_err());
    let table = [
        ("", "the header should have `{` where it has ``"),
        ("{'descr': '<f4'}", "the header lacks one of descr, fortran_order and shape"),
        ("{'descr': '|O'}", "the NumPy type `|O` is not one of an element type"),
        ("{'descr': '<c8'}", "the NumPy type `<c8` is not one of an element type"),
        ("{'descr': 'é4'}", "the NumPy type `é4` is not one of an element type"),
        (
            "{'descr': [('a', '<f4')]}",
            "the header should have a string (structured types are not read) where it has `[('a', '<f4')]}`",
        ),
        ("{'fortran_order': 1}", "the header should have True or False where it has `1}`"),
        ("{'shape': (1, -2)}", "the header should have a dimension where it has ` -2)}`"),
        ("{'x': 1}", "the header has an unknown key `x`"),
    ];
    for (header, expected) in table {
        assert_eq!(error(header, b"").replace("`-2", "` -2"), expected, "{header}");
    }
    let short = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}";
    assert_eq!(error(short, &[0; 7]), "the file holds 7 bytes of elements, too few for the shape [2]");
    let huge = "{'descr': '<f8', 'fortran_order': True, 'shape': (4611686018427387904, 8)}";
    assert!(error(huge, &[0; 7]).contains("too few"));
    let huge = "{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000,)}";
    assert_eq!(error(huge, b""), "the array has more than 65536 empty strings");
    let surrogate = "{'descr': '<U1', 'fortran_order': False, 'shape': (1,)}";
    assert_eq!(error(surrogate, &[0, 0xd8, 0, 0]), "string 0 is not valid Unicode");
    let rank = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({})}}", "1, ".repeat(40));
    assert_eq!(error(&rank, &[0; 4]), "the array has more than 32 dimensions");
}

#[test]
fn random_damage_never_panics() {
    let mut state = 3u64;
    for original in [&fixture!("f32_fortran")[..], fixture!("unicode"), fixture!("int4")] {
        for _ in 0..3000 {
            let mut bytes = original.to_vec();
            for _ in 0..3 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let position = (state >> 33) as usize % bytes.len();
                bytes[position] = b"(),:'9<U\0\xff"[(state >> 20) as usize % 10];
            }
            let _ = read_npy(&bytes, Some(ElementType::I4));
        }
    }
}
