//! Widening runs of stored codes to f32.

use half::{bf16, f16};

use crate::error::{KernelError, check_len};
use crate::gemm::Codes;

/// `target[i] = (code[first + i] - zero) * scale`.
///
/// # Errors
/// There are not that many codes.
pub fn widen(codes: Codes<'_>, first: usize, zero: f32, scale: f32, target: &mut [f32]) -> Result<(), KernelError> {
    let end = first.saturating_add(target.len());
    check_len("codes", codes.bytes().len(), end.saturating_mul(codes.bits()).div_ceil(8))?;
    let value = |plain: f32| (plain - zero) * scale;
    let nibble = |bytes: &[u8], index: usize| (bytes[index / 2] >> (index % 2 * 4)) & 15;
    match codes {
        Codes::U4(bytes) => {
            for (place, index) in target.iter_mut().zip(first..) {
                *place = value(f32::from(nibble(bytes, index)));
            }
        }
        Codes::I4(bytes) => {
            for (place, index) in target.iter_mut().zip(first..) {
                *place = value(f32::from(i16::from(nibble(bytes, index) ^ 8) - 8));
            }
        }
        Codes::Table(bytes, table) => {
            for (place, index) in target.iter_mut().zip(first..) {
                *place = value(table[usize::from(nibble(bytes, index))]);
            }
        }
        Codes::U8(bytes) => {
            for (place, code) in target.iter_mut().zip(&bytes[first..end]) {
                *place = value(f32::from(*code));
            }
        }
        Codes::I8(bytes) => {
            for (place, code) in target.iter_mut().zip(&bytes[first..end]) {
                *place = value(f32::from(*code as i8));
            }
        }
        Codes::F16(bytes) => {
            for (place, code) in target.iter_mut().zip(bytes[2 * first..2 * end].chunks_exact(2)) {
                *place = value(f16::from_le_bytes([code[0], code[1]]).to_f32());
            }
        }
        Codes::Bf16(bytes) => {
            for (place, code) in target.iter_mut().zip(bytes[2 * first..2 * end].chunks_exact(2)) {
                *place = value(bf16::from_le_bytes([code[0], code[1]]).to_f32());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn every_form() {
        let table: [f32; 16] = std::array::from_fn(|index| index as f32 / 4.0);
        let run = |codes: Codes<'_>, first: usize| {
            let mut target = [f32::NAN; 3];
            widen(codes, first, 1.0, 2.0, &mut target).unwrap();
            target
        };
        assert_eq!(run(Codes::U4(&[0x21, 0xf3]), 1), [2.0, 4.0, 28.0]);
        assert_eq!(run(Codes::I4(&[0x21, 0x87]), 1), [2.0, 12.0, -18.0]);
        assert_eq!(run(Codes::Table(&[0x21, 0xf3], &table), 1), [-1.0, -0.5, 5.5]);
        assert_eq!(run(Codes::U8(&[9, 1, 2, 255]), 1), [0.0, 2.0, 508.0]);
        assert_eq!(run(Codes::I8(&[9, 1, 2, 255]), 1), [0.0, 2.0, -4.0]);
        let halves: Vec<u8> = [9.0, 0.5, 1.0, -2.0].iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
        assert_eq!(run(Codes::F16(&halves), 1), [-1.0, 0.0, -6.0]);
        let halves: Vec<u8> = [9.0, 0.5, 1.0, -2.0].iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
        assert_eq!(run(Codes::Bf16(&halves), 1), [-1.0, 0.0, -6.0]);
    }

    #[test]
    fn too_few_codes_are_an_error() {
        assert!(widen(Codes::U8(&[1, 2]), 0, 0.0, 1.0, &mut [0.0; 3]).is_err());
        assert!(widen(Codes::U4(&[1]), 1, 0.0, 1.0, &mut [0.0; 2]).is_err());
        assert!(widen(Codes::F16(&[1, 2, 3, 4]), usize::MAX, 0.0, 1.0, &mut [0.0; 2]).is_err());
    }
}
