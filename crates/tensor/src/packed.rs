//! Storage-only element types: packed layouts and the values of their codes.
//!
//! A *code* is the bits of one element as an unsigned number. Layouts, as in IR files: u1 puts the first element in the
//! top bit of its byte; u2, u4, i4, nf4 and f4e2m1 fill the low bits first; u3 puts 8 elements in three bytes (two bytes
//! of low bit pairs and one of high bits, first element at the top); u6 puts 4 elements in three bytes (two bytes of low
//! nibbles and one of high bit pairs, first element at the top). f8e4m3, f8e5m2 and f8e8m0 take a byte each.
//!
//! The floating-point formats are those of the OCP specifications *8-bit Floating Point* 1.0 and *Microscaling Formats*
//! 1.0 (f8e4m3 is E4M3 without infinities); nf4 is the table of the QLoRA paper.

use crate::{AlignedBuffer, ElementType, Tensor, TensorError};

/// The values of the sixteen nf4 codes.
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// The values of the positive f4e2m1 codes.
const F4E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The element type that holds every value of a storage-only type: u8 for u1 to u6, i8 for i4, f32 for nf4 and the
/// 4- and 8-bit floats. `None` for all other types.
pub const fn unpacked_type(element_type: ElementType) -> Option<ElementType> {
    match element_type {
        ElementType::U1 | ElementType::U2 | ElementType::U3 | ElementType::U4 | ElementType::U6 => {
            Some(ElementType::U8)
        }
        ElementType::I4 => Some(ElementType::I8),
        ElementType::Nf4 | ElementType::F4e2m1 | ElementType::F8e4m3 | ElementType::F8e5m2 | ElementType::F8e8m0 => {
            Some(ElementType::F32)
        }
        _ => None,
    }
}

/// Spreads packed elements into one code a byte. `codes` says how many elements there are.
///
/// # Errors
/// [`TensorError::WrongElementType`] if the type is not storage-only, [`TensorError::SizeMismatch`] if `bytes` does not
/// hold as many elements.
pub fn unpack_codes(element_type: ElementType, bytes: &[u8], codes: &mut [u8]) -> Result<(), TensorError> {
    check(element_type, codes.len(), bytes.len())?;
    match element_type {
        ElementType::U1 => {
            for (index, code) in codes.iter_mut().enumerate() {
                *code = bytes[index / 8] >> (7 - index % 8) & 1;
            }
        }
        ElementType::U2 => {
            for (index, code) in codes.iter_mut().enumerate() {
                *code = bytes[index / 4] >> (2 * (index % 4)) & 3;
            }
        }
        ElementType::U3 => {
            for (group, codes) in bytes.chunks_exact(3).zip(codes.chunks_mut(8)) {
                for (index, code) in codes.iter_mut().enumerate() {
                    let low = group[index / 4] >> (6 - 2 * (index % 4)) & 3;
                    *code = low | (group[2] >> (7 - index) & 1) << 2;
                }
            }
        }
        ElementType::U6 => {
            for (group, codes) in bytes.chunks_exact(3).zip(codes.chunks_mut(4)) {
                for (index, code) in codes.iter_mut().enumerate() {
                    let low = group[index / 2] >> (4 - 4 * (index % 2)) & 15;
                    *code = low | (group[2] >> (6 - 2 * index) & 3) << 4;
                }
            }
        }
        ElementType::U4 | ElementType::I4 | ElementType::Nf4 | ElementType::F4e2m1 => {
            for (byte, codes) in bytes.iter().zip(codes.chunks_mut(2)) {
                codes[0] = byte & 15;
                if let Some(second) = codes.get_mut(1) {
                    *second = byte >> 4;
                }
            }
        }
        _ => codes.copy_from_slice(bytes),
    }
    Ok(())
}

/// Packs one code a byte; bits of a code beyond its type are ignored, and unused bits of the last byte are 0.
///
/// # Errors
/// As [`unpack_codes`].
pub fn pack_codes(element_type: ElementType, codes: &[u8], bytes: &mut [u8]) -> Result<(), TensorError> {
    check(element_type, codes.len(), bytes.len())?;
    if element_type.byte_width().is_some() {
        bytes.copy_from_slice(codes);
        return Ok(());
    }
    bytes.fill(0);
    match element_type {
        ElementType::U1 => {
            for (index, code) in codes.iter().enumerate() {
                bytes[index / 8] |= (code & 1) << (7 - index % 8);
            }
        }
        ElementType::U2 => {
            for (index, code) in codes.iter().enumerate() {
                bytes[index / 4] |= (code & 3) << (2 * (index % 4));
            }
        }
        ElementType::U3 => {
            for (group, codes) in bytes.chunks_exact_mut(3).zip(codes.chunks(8)) {
                for (index, code) in codes.iter().enumerate() {
                    group[index / 4] |= (code & 3) << (6 - 2 * (index % 4));
                    group[2] |= (code >> 2 & 1) << (7 - index);
                }
            }
        }
        ElementType::U6 => {
            for (group, codes) in bytes.chunks_exact_mut(3).zip(codes.chunks(4)) {
                for (index, code) in codes.iter().enumerate() {
                    group[index / 2] |= (code & 15) << (4 - 4 * (index % 2));
                    group[2] |= (code >> 4 & 3) << (6 - 2 * index);
                }
            }
        }
        _ => {
            for (byte, codes) in bytes.iter_mut().zip(codes.chunks(2)) {
                *byte = (codes[0] & 15) | codes.get(1).map_or(0, |code| code << 4);
            }
        }
    }
    Ok(())
}

/// The number that a code of a storage-only type stands for; bits beyond the type are ignored. NaN for other types.
pub fn decode(element_type: ElementType, code: u8) -> f32 {
    match element_type {
        ElementType::U1 => f32::from(code & 1),
        ElementType::U2 => f32::from(code & 3),
        ElementType::U3 => f32::from(code & 7),
        ElementType::U4 => f32::from(code & 15),
        ElementType::U6 => f32::from(code & 63),
        ElementType::I4 => f32::from(sign_extend_4(code)),
        ElementType::Nf4 => NF4[usize::from(code & 15)],
        ElementType::F4e2m1 => {
            let value = F4E2M1[usize::from(code & 7)];
            if code & 8 == 0 { value } else { -value }
        }
        ElementType::F8e4m3 => decode_f8e4m3(code),
        ElementType::F8e5m2 => half::f16::from_bits(u16::from(code) << 8).to_f32(),
        ElementType::F8e8m0 => decode_f8e8m0(code),
        _ => f32::NAN,
    }
}

/// The code of the value of a storage-only type that is nearest to `value`, ties to the even code. For f8e4m3 and f8e5m2 the
/// value is rounded to f16 before, as conversions in OpenVINO do.
///
/// Where the value is beyond the type: f8e4m3 and f8e5m2 become NaN and infinity, f4e2m1 and nf4 the largest value of
/// its sign, f8e8m0 its largest value or, for all that is not positive, its smallest. NaN becomes the largest value in
/// f4e2m1 and the smallest in nf4, which have no NaN. The integer types truncate and keep the low bits, as conversions
/// in OpenVINO do; NaN is 0 there. The result is 0 for other types.
pub fn encode(element_type: ElementType, value: f32) -> u8 {
    match element_type {
        ElementType::U1 => low_bits(value, 1),
        ElementType::U2 => low_bits(value, 3),
        ElementType::U3 => low_bits(value, 7),
        ElementType::U4 | ElementType::I4 => low_bits(value, 15),
        ElementType::U6 => low_bits(value, 63),
        ElementType::Nf4 => encode_nf4(value),
        ElementType::F4e2m1 => sign(value) >> 4 | encode_small_float(value, 1, 1).min(7),
        ElementType::F8e4m3 => sign(value) | encode_small_float(through_half(value), 3, 7).min(0x7f),
        ElementType::F8e5m2 => {
            let code = if value.is_nan() { 0x7e } else { encode_small_float(through_half(value), 2, 15).min(0x7c) };
            sign(value) | code
        }
        ElementType::F8e8m0 => encode_f8e8m0(value),
        _ => 0,
    }
}

/// The tensor in its [`unpacked_type`].
///
/// # Errors
/// [`TensorError::WrongElementType`] if the type is not storage-only, and [`TensorError::OutOfMemory`].
pub fn unpack(tensor: &Tensor) -> Result<Tensor, TensorError> {
    let element_type = tensor.element_type();
    let target = unpacked_type(element_type)
        .ok_or(TensorError::WrongElementType { expected: ElementType::U8, actual: element_type })?;
    let mut codes = AlignedBuffer::zeroed(tensor.elements())?;
    unpack_codes(element_type, tensor.bytes(), &mut codes)?;
    if element_type == ElementType::I4 {
        for code in codes.iter_mut() {
            *code = sign_extend_4(*code).to_ne_bytes()[0];
        }
    }
    if target != ElementType::F32 {
        return Tensor::from_buffer(target, tensor.shape().clone(), codes);
    }
    let mut result = Tensor::zeros(ElementType::F32, tensor.shape().clone())?;
    for (value, code) in result.slice_mut::<f32>()?.iter_mut().zip(codes.iter()) {
        *value = decode(element_type, *code);
    }
    Ok(result)
}

/// The tensor in a storage-only type. u8, i8 and boolean give their low bits to integer types; f32 is rounded as by
/// [`encode`].
///
/// # Errors
/// [`TensorError::WrongElementType`] for other types, and [`TensorError::OutOfMemory`].
pub fn pack(tensor: &Tensor, element_type: ElementType) -> Result<Tensor, TensorError> {
    let wrong = TensorError::WrongElementType { expected: element_type, actual: tensor.element_type() };
    let Some(unpacked) = unpacked_type(element_type) else { return Err(wrong) };
    let mut packed = Tensor::zeros(element_type, tensor.shape().clone())?;
    match tensor.element_type() {
        ElementType::F32 => {
            let mut codes = AlignedBuffer::zeroed(tensor.elements())?;
            for (code, value) in codes.iter_mut().zip(tensor.aligned()?.slice::<f32>()?) {
                *code = encode(element_type, *value);
            }
            pack_codes(element_type, &codes, packed.bytes_mut()?)?;
        }
        ElementType::U8 | ElementType::I8 | ElementType::Boolean if unpacked != ElementType::F32 => {
            pack_codes(element_type, tensor.bytes(), packed.bytes_mut()?)?;
        }
        _ => return Err(wrong),
    }
    Ok(packed)
}

fn check(element_type: ElementType, elements: usize, bytes: usize) -> Result<(), TensorError> {
    if unpacked_type(element_type).is_none() {
        return Err(TensorError::WrongElementType { expected: ElementType::U8, actual: element_type });
    }
    match element_type.storage_bytes(elements) {
        Some(expected) if expected == bytes => Ok(()),
        expected => Err(TensorError::SizeMismatch {
            element_type,
            shape: [elements].into(),
            expected: expected.unwrap_or(usize::MAX),
            actual: bytes,
        }),
    }
}

fn sign_extend_4(code: u8) -> i8 {
    ((code << 4) as i8) >> 4
}

fn decode_f8e4m3(code: u8) -> f32 {
    let (exponent, fraction) = (u32::from(code >> 3 & 15), u32::from(code & 7));
    let magnitude = match (exponent, fraction) {
        (15, 7) => f32::NAN,
        (0, _) => fraction as f32 / 512.0,
        _ => f32::from_bits((exponent + 120) << 23 | fraction << 20),
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

fn decode_f8e8m0(code: u8) -> f32 {
    match code {
        0xff => f32::NAN,
        // 2 to the power -127 is subnormal in f32.
        0 => f32::from_bits(1 << 22),
        _ => f32::from_bits(u32::from(code) << 23),
    }
}

fn through_half(value: f32) -> f32 {
    half::f16::from_f32(value).to_f32()
}

fn sign(value: f32) -> u8 {
    if value.is_sign_negative() { 0x80 } else { 0 }
}

fn low_bits(value: f32, mask: u8) -> u8 {
    // Beyond i64 the low bits of any integral f32 are 0.
    if value.is_nan() || value.abs() >= 9.2e18 {
        return 0;
    }
    (value as i64).to_le_bytes()[0] & mask
}

/// The code of the magnitude of `value` in a format of at most 7 bits without sign, as if its exponents went on upwards
/// without end; 0xff where even that overflows, and for NaN.
fn encode_small_float(value: f32, fraction_bits: i32, bias: i32) -> u8 {
    let magnitude = f64::from(value.abs());
    if !magnitude.is_finite() {
        return 0xff;
    }
    let exponent = (((magnitude.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(1 - bias);
    // Exact, because it only changes the exponent of an f64 that came from an f32.
    let steps = (magnitude * 2f64.powi(fraction_bits - exponent)).round_ties_even();
    let code = f64::from((exponent + bias - 1) << fraction_bits) + steps;
    code.min(255.0) as u8
}

fn encode_nf4(value: f32) -> u8 {
    // A value on the border between two codes goes to the lower one. NaN is above no border.
    NF4.windows(2).filter(|pair| value > (pair[0] + pair[1]) / 2.0).count() as u8
}

fn encode_f8e8m0(value: f32) -> u8 {
    if value.is_nan() {
        return 0xff;
    }
    if value <= 0.0 {
        return 0;
    }
    let (exponent, fraction) = (value.to_bits() >> 23, value.to_bits() & 0x7f_ffff);
    if exponent == 0 {
        return u8::from(fraction > 0x60_0000);
    }
    let is_up = fraction > 0x40_0000 || fraction == 0x40_0000 && exponent % 2 == 1;
    (exponent + u32::from(is_up)).min(0xfe) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;
    use pretty_assertions::assert_eq;

    const PACKED: [ElementType; 11] = [
        ElementType::U1,
        ElementType::U2,
        ElementType::U3,
        ElementType::U4,
        ElementType::U6,
        ElementType::I4,
        ElementType::Nf4,
        ElementType::F4e2m1,
        ElementType::F8e4m3,
        ElementType::F8e5m2,
        ElementType::F8e8m0,
    ];

    fn codes_of(element_type: ElementType, bytes: &[u8], elements: usize) -> Vec<u8> {
        let mut codes = vec![0; elements];
        unpack_codes(element_type, bytes, &mut codes).unwrap();
        codes
    }

    /// What OpenVINO 2026.4.1 unpacks from the same bytes.
    #[test]
    fn layouts_are_those_of_openvino() {
        let bytes = [217, 163, 130, 69, 78, 10];
        assert_eq!(codes_of(ElementType::U3, &bytes, 16), [7, 1, 2, 1, 2, 2, 4, 3, 1, 0, 1, 1, 5, 0, 7, 2]);
        assert_eq!(codes_of(ElementType::U6, &bytes, 8), [45, 9, 10, 35, 4, 5, 36, 46]);
        assert_eq!(codes_of(ElementType::U1, &[0b1010_0001, 0b1000_0000], 9), [1, 0, 1, 0, 0, 0, 0, 1, 1]);
        assert_eq!(codes_of(ElementType::U2, &[0b1110_0100, 2], 5), [0, 1, 2, 3, 2]);
        assert_eq!(codes_of(ElementType::U4, &[0x21, 3], 3), [1, 2, 3]);
        assert_eq!(codes_of(ElementType::I4, &[0x8f], 2), [15, 8]);
    }

    #[test]
    fn every_pattern_of_codes_packs_and_unpacks() {
        let mut state = 1u64;
        for element_type in PACKED {
            for elements in 0..40 {
                let codes: Vec<u8> = (0..elements)
                    .map(|_| {
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        (state >> 40) as u8 & (0xffu16 >> (8 - element_type.bits())) as u8
                    })
                    .collect();
                let mut bytes = vec![0xaa; element_type.storage_bytes(elements).unwrap()];
                pack_codes(element_type, &codes, &mut bytes).unwrap();
                assert_eq!(codes_of(element_type, &bytes, elements), codes, "{element_type}");
            }
        }
    }

    #[test]
    fn every_code_encodes_back() {
        for element_type in PACKED {
            let count = 1u16 << element_type.bits();
            for code in 0..count {
                let code = code as u8;
                let value = decode(element_type, code);
                let is_nan_twin = value.is_nan() && element_type == ElementType::F8e5m2;
                if is_nan_twin {
                    assert!(decode(element_type, encode(element_type, value)).is_nan());
                } else {
                    assert_eq!(encode(element_type, value), code, "{element_type} {code}");
                }
            }
        }
    }

    /// Rounding checked against the definition: the nearest value, and the even code on a tie.
    #[test]
    fn encoding_is_nearest_even() {
        for (element_type, largest) in
            [(ElementType::F8e4m3, 0x7eu8), (ElementType::F8e5m2, 0x7b), (ElementType::F4e2m1, 7)]
        {
            for code in 0..largest {
                let (low, high) = (decode(element_type, code), decode(element_type, code + 1));
                let middle = (low + high) / 2.0;
                let even = if code % 2 == 0 { code } else { code + 1 };
                let sign_bit = 1u8 << (element_type.bits() - 1);
                // Eight bits are rounded through f16, whose neighbours are the nearest that differ.
                let step = |by: i16| f16::from_bits(f16::from_f32(middle).to_bits().wrapping_add_signed(by)).to_f32();
                let (below, above) = match element_type {
                    ElementType::F4e2m1 => (middle.next_down(), middle.next_up()),
                    _ => (step(-1), step(1)),
                };
                assert_eq!(encode(element_type, middle), even, "{element_type} {middle}");
                assert_eq!(encode(element_type, below), code, "{element_type} {middle}");
                assert_eq!(encode(element_type, above), code + 1, "{element_type} {middle}");
                assert_eq!(encode(element_type, -middle), even | sign_bit, "{element_type} {middle}");
            }
        }
    }

    /// What OpenVINO 2026.4.1 makes of values at and beyond the limits of the types.
    #[test]
    fn limits_are_those_of_openvino() {
        let table: &[(ElementType, f32, u8)] = &[
            (ElementType::F8e4m3, 464.0, 0x7e),
            (ElementType::F8e4m3, 465.0, 0x7f),
            (ElementType::F8e4m3, f32::INFINITY, 0x7f),
            (ElementType::F8e4m3, f32::NEG_INFINITY, 0xff),
            (ElementType::F8e4m3, 1e-30, 0),
            (ElementType::F8e5m2, 61440.0, 0x7c),
            (ElementType::F8e5m2, 61408.0, 0x7b),
            (ElementType::F8e5m2, -1e9, 0xfc),
            (ElementType::F4e2m1, 1e9, 7),
            (ElementType::F4e2m1, f32::NEG_INFINITY, 15),
            (ElementType::F4e2m1, f32::NAN, 7),
            (ElementType::Nf4, f32::NAN, 0),
            (ElementType::Nf4, f32::INFINITY, 15),
            (ElementType::F8e8m0, 0.0, 0),
            (ElementType::F8e8m0, -1e9, 0),
            (ElementType::F8e8m0, f32::INFINITY, 0xfe),
            (ElementType::F8e8m0, 3.4e38, 0xfe),
            (ElementType::F8e8m0, 1.5, 0x80),
            (ElementType::F8e8m0, 3.0, 0x80),
            (ElementType::F8e8m0, 2.999_9, 0x80),
            (ElementType::F8e8m0, 3.000_1, 0x81),
            (ElementType::F8e8m0, 8.816_208e-39, 0),
            (ElementType::F8e8m0, 9.403_954e-39, 1),
            // Rounded to f16 first, both are ties.
            (ElementType::F8e4m3, 0.656_250_66, 0x32),
            (ElementType::F8e5m2, 61_439.0, 0x7c),
            (ElementType::F4e2m1, 2.500_002_4, 5),
            (ElementType::U4, -1.0, 15),
            (ElementType::U4, 15.5, 15),
            (ElementType::U4, 16.0, 0),
            (ElementType::I4, -9.0, 7),
            (ElementType::U6, 300.0, 44),
            (ElementType::U1, 0.9, 0),
        ];
        for (element_type, value, code) in table {
            assert_eq!(encode(*element_type, *value), *code, "{element_type} {value}");
        }
    }

    #[test]
    fn tensors_unpack_and_pack() {
        let tensor = Tensor::from_bytes(ElementType::I4, [3], &[0x8f, 0x07]).unwrap();
        let unpacked = unpack(&tensor).unwrap();
        assert_eq!(unpacked.slice::<i8>().unwrap(), [-1, -8, 7]);
        assert_eq!(pack(&unpacked, ElementType::I4).unwrap(), tensor);
        let floats = Tensor::from_slice(&[0.5f32, -6.0, 100.0], [3]).unwrap();
        let packed = pack(&floats, ElementType::F4e2m1).unwrap();
        assert_eq!(unpack(&packed).unwrap().slice::<f32>().unwrap(), [0.5, -6.0, 6.0]);
        assert!(unpack(&floats).is_err());
        assert!(pack(&unpacked, ElementType::Nf4).is_err());
        assert!(pack(&floats, ElementType::F16).is_err());
        assert!(unpack_codes(ElementType::U4, &[0], &mut [0; 3]).is_err());
    }
}
