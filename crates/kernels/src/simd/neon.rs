//! The NEON tier: four lanes of aarch64's baseline.

use super::Simd;
use std::arch::aarch64::*;
use std::arch::asm;

/// The tier of every aarch64, which therefore needs no proof.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

/// The bytes of a table's first entry, one for each byte of a lane.
const ENTRY_BYTES: u32 = u32::from_le_bytes([0, 1, 2, 3]);

macro_rules! operations {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty { $body:expr })*) => {
        $(#[inline(always)]
        fn $name(self, $($argument: $type),*) -> $result {
            // SAFETY: every aarch64 has the instructions.
            unsafe { $body }
        })*
    };
}

impl Simd for Neon {
    const LANES: usize = 4;
    const FUSED: bool = true;
    // Of 32 registers, 24 hold sums and two the right operand; the rest keeps several left values on their way.
    const TILE_ROWS: usize = 12;
    type F = float32x4_t;
    type I = int32x4_t;
    type M = uint32x4_t;
    type D = [float64x2_t; 2];

    #[inline(always)]
    unsafe fn load(self, pointer: *const f32) -> float32x4_t {
        // SAFETY: the caller's promise, and every aarch64 has the instructions.
        unsafe { vld1q_f32(pointer) }
    }
    #[inline(always)]
    unsafe fn store(self, pointer: *mut f32, value: float32x4_t) {
        // SAFETY: the caller's promise, and every aarch64 has the instructions.
        unsafe { vst1q_f32(pointer, value) }
    }
    #[inline(always)]
    unsafe fn load_partial(self, pointer: *const f32, count: usize) -> float32x4_t {
        // SAFETY: no more than `count` values are read, as the caller promises, and every aarch64 has the instructions.
        unsafe {
            let (zero, zeros) = (vdup_n_f32(0.0), vdupq_n_f32(0.0));
            match count {
                0 => zeros,
                1 => vld1q_lane_f32::<0>(pointer, zeros),
                2 => vcombine_f32(vld1_f32(pointer), zero),
                3 => vcombine_f32(vld1_f32(pointer), vld1_lane_f32::<0>(pointer.add(2), zero)),
                _ => vld1q_f32(pointer),
            }
        }
    }
    #[inline(always)]
    unsafe fn store_partial(self, pointer: *mut f32, value: float32x4_t, count: usize) {
        // SAFETY: no more than `count` values are written, as the caller promises, and every aarch64 has the instructions.
        unsafe {
            match count {
                0 => {}
                1 => vst1q_lane_f32::<0>(pointer, value),
                2 => vst1_f32(pointer, vget_low_f32(value)),
                3 => {
                    vst1_f32(pointer, vget_low_f32(value));
                    vst1q_lane_f32::<2>(pointer.add(2), value);
                }
                _ => vst1q_f32(pointer, value),
            }
        }
    }
    #[inline(always)]
    unsafe fn load_even(self, pointer: *const f32) -> float32x4_t {
        // The second vector begins at an odd place, so that it ends with the last value that is asked for.
        // SAFETY: the caller's promise, and every aarch64 has the instructions.
        unsafe {
            let (first, second) = (vld1q_f32(pointer), vld1q_f32(pointer.add(3)));
            vcombine_f32(vget_low_f32(vuzp1q_f32(first, first)), vget_low_f32(vuzp2q_f32(second, second)))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(self, pointer: *const u8) -> int32x4_t {
        // SAFETY: the caller's promise, and every aarch64 has the instructions.
        unsafe {
            let bytes = vcreate_u8(u64::from(pointer.cast::<u32>().read_unaligned()));
            vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))))
        }
    }
    #[inline(always)]
    unsafe fn load_u16(self, pointer: *const u8) -> int32x4_t {
        // SAFETY: the caller's promise, and every aarch64 has the instructions.
        unsafe { vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(pointer)))) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, pointer: *const u8) -> float32x4_t {
        // SAFETY: the caller's promise, and every aarch64 has the instructions; the one that is written out computes a
        // register from another.
        unsafe {
            let halves = vld1_u8(pointer);
            let values: float32x4_t;
            asm!(
                "fcvtl {values:v}.4s, {halves:v}.4h",
                values = lateout(vreg) values,
                halves = in(vreg) halves,
                options(pure, nomem, nostack, preserves_flags)
            );
            values
        }
    }
    #[inline(always)]
    unsafe fn store_u8(self, pointer: *mut u8, value: int32x4_t) {
        // SAFETY: the caller's promise, and every aarch64 has the instructions.
        unsafe {
            let words = vmovn_u32(vreinterpretq_u32_s32(value));
            let bytes = vreinterpret_u32_u8(vmovn_u16(vcombine_u16(words, words)));
            pointer.cast::<u32>().write_unaligned(vget_lane_u32::<0>(bytes));
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, pointer: *mut u8, value: float32x4_t) {
        // SAFETY: the caller's promise, and every aarch64 has the instructions; the one that is written out computes a
        // register from another. It rounds to the nearest, halves to even, which is the mode that Rust assumes everywhere.
        unsafe {
            let halves: uint8x8_t;
            asm!(
                "fcvtn {halves:v}.4h, {value:v}.4s",
                halves = lateout(vreg) halves,
                value = in(vreg) value,
                options(pure, nomem, nostack, preserves_flags)
            );
            vst1_u8(pointer, halves);
        }
    }
    #[inline(always)]
    fn lookup(self, table: &[f32; 16], index: int32x4_t) -> float32x4_t {
        // SAFETY: the table has 64 bytes, and every aarch64 has the instructions.
        unsafe {
            let bytes = vld1q_u8_x4(table.as_ptr().cast());
            let entry = vandq_u32(vreinterpretq_u32_s32(index), vdupq_n_u32(15));
            // Each byte of a lane takes its own of the entry, which begins at four times the index.
            let places = vmlaq_u32(vdupq_n_u32(ENTRY_BYTES), entry, vdupq_n_u32(0x0404_0404));
            vreinterpretq_f32_u8(vqtbl4q_u8(bytes, vreinterpretq_u8_u32(places)))
        }
    }
    #[inline(always)]
    fn shl<const BITS: u32>(self, a: int32x4_t) -> int32x4_t {
        // SAFETY: every aarch64 has the instructions.
        unsafe { vshlq_s32(a, vdupq_n_s32(BITS as i32)) }
    }
    #[inline(always)]
    fn shr<const BITS: u32>(self, a: int32x4_t) -> int32x4_t {
        // SAFETY: every aarch64 has the instructions. Negative counts shift to the right.
        unsafe { vshlq_s32(a, vdupq_n_s32(-(BITS as i32))) }
    }

    operations! {
        splat(value: f32) -> float32x4_t { vdupq_n_f32(value) }
        splat_i(value: i32) -> int32x4_t { vdupq_n_s32(value) }
        add(a: float32x4_t, b: float32x4_t) -> float32x4_t { vaddq_f32(a, b) }
        sub(a: float32x4_t, b: float32x4_t) -> float32x4_t { vsubq_f32(a, b) }
        mul(a: float32x4_t, b: float32x4_t) -> float32x4_t { vmulq_f32(a, b) }
        div(a: float32x4_t, b: float32x4_t) -> float32x4_t { vdivq_f32(a, b) }
        fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t { vfmaq_f32(c, a, b) }
        // The instructions for extremes give NaN where either operand is.
        max(a: float32x4_t, b: float32x4_t) -> float32x4_t { vbslq_f32(vcgtq_f32(a, b), a, b) }
        min(a: float32x4_t, b: float32x4_t) -> float32x4_t { vbslq_f32(vcltq_f32(a, b), a, b) }
        sqrt(a: float32x4_t) -> float32x4_t { vsqrtq_f32(a) }
        round(a: float32x4_t) -> float32x4_t { vrndnq_f32(a) }
        floor(a: float32x4_t) -> float32x4_t { vrndmq_f32(a) }
        ceil(a: float32x4_t) -> float32x4_t { vrndpq_f32(a) }
        trunc(a: float32x4_t) -> float32x4_t { vrndq_f32(a) }
        lt(a: float32x4_t, b: float32x4_t) -> uint32x4_t { vcltq_f32(a, b) }
        le(a: float32x4_t, b: float32x4_t) -> uint32x4_t { vcleq_f32(a, b) }
        eq(a: float32x4_t, b: float32x4_t) -> uint32x4_t { vceqq_f32(a, b) }
        is_nan(a: float32x4_t) -> uint32x4_t { vmvnq_u32(vceqq_f32(a, a)) }
        select(mask: uint32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t { vbslq_f32(mask, a, b) }
        any(mask: uint32x4_t) -> bool { vmaxvq_u32(mask) != 0 }
        to_i(a: float32x4_t) -> int32x4_t { vcvtnq_s32_f32(a) }
        from_i(a: int32x4_t) -> float32x4_t { vcvtq_f32_s32(a) }
        bits(a: float32x4_t) -> int32x4_t { vreinterpretq_s32_f32(a) }
        from_bits(a: int32x4_t) -> float32x4_t { vreinterpretq_f32_s32(a) }
        add_i(a: int32x4_t, b: int32x4_t) -> int32x4_t { vaddq_s32(a, b) }
        sub_i(a: int32x4_t, b: int32x4_t) -> int32x4_t { vsubq_s32(a, b) }
        mul_i(a: int32x4_t, b: int32x4_t) -> int32x4_t { vmulq_s32(a, b) }
        and_i(a: int32x4_t, b: int32x4_t) -> int32x4_t { vandq_s32(a, b) }
        or_i(a: int32x4_t, b: int32x4_t) -> int32x4_t { vorrq_s32(a, b) }
        xor_i(a: int32x4_t, b: int32x4_t) -> int32x4_t { veorq_s32(a, b) }
        eq_i(a: int32x4_t, b: int32x4_t) -> uint32x4_t { vceqq_s32(a, b) }
        splat_d(value: f64) -> [float64x2_t; 2] { [vdupq_n_f64(value); 2] }
        widen(a: float32x4_t) -> [float64x2_t; 2] { [vcvt_f64_f32(vget_low_f32(a)), vcvt_high_f64_f32(a)] }
        narrow(a: [float64x2_t; 2]) -> float32x4_t { vcvt_high_f32_f64(vcvt_f32_f64(a[0]), a[1]) }
        add_d(a: [float64x2_t; 2], b: [float64x2_t; 2]) -> [float64x2_t; 2] { [vaddq_f64(a[0], b[0]), vaddq_f64(a[1], b[1])] }
        mul_d(a: [float64x2_t; 2], b: [float64x2_t; 2]) -> [float64x2_t; 2] { [vmulq_f64(a[0], b[0]), vmulq_f64(a[1], b[1])] }
        div_d(a: [float64x2_t; 2], b: [float64x2_t; 2]) -> [float64x2_t; 2] { [vdivq_f64(a[0], b[0]), vdivq_f64(a[1], b[1])] }
        reduce_add(a: float32x4_t) -> f32 { vpadds_f32(vadd_f32(vget_low_f32(a), vget_high_f32(a))) }
        reduce_max(a: float32x4_t) -> f32 { vmaxnmvq_f32(a) }
    }
}
