//! The portable tier: four-lane arrays that the compiler maps to the target's baseline vectors.

use super::Simd;

/// The tier that needs no proof.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// Four f32 lanes.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub(crate) struct F([f32; 4]);

/// Four i32 lanes.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub(crate) struct I(pub(crate) [i32; 4]);

macro_rules! map {
    ($a:expr, |$x:ident| $body:expr) => {{
        let a = $a;
        [0, 1, 2, 3].map(|lane: usize| {
            let $x = a[lane];
            $body
        })
    }};
    ($a:expr, $b:expr, |$x:ident, $y:ident| $body:expr) => {{
        let (a, b) = ($a, $b);
        [0, 1, 2, 3].map(|lane: usize| {
            let ($x, $y) = (a[lane], b[lane]);
            $body
        })
    }};
}

macro_rules! operations {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty { $body:expr })*) => {
        $(#[inline(always)]
        fn $name(self, $($argument: $type),*) -> $result {
            $body
        })*
    };
}

impl Simd for Portable {
    const LANES: usize = 4;
    const FUSED: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));
    const TILE_ROWS: usize = 4;
    type F = F;
    type I = I;
    type M = [bool; 4];
    type D = [f64; 4];

    #[inline(always)]
    unsafe fn load(self, pointer: *const f32) -> F {
        // SAFETY: the caller promises four readable values.
        F(unsafe { pointer.cast::<[f32; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, pointer: *mut f32, value: F) {
        // SAFETY: the caller promises four writable places.
        unsafe { pointer.cast::<[f32; 4]>().write_unaligned(value.0) }
    }
    #[inline(always)]
    unsafe fn load_partial(self, pointer: *const f32, count: usize) -> F {
        let mut lanes = [0.0; 4];
        for lane in 0..count.min(4) {
            // SAFETY: the caller promises `count` readable values.
            lanes[lane] = unsafe { pointer.add(lane).read() };
        }
        F(lanes)
    }
    #[inline(always)]
    unsafe fn store_partial(self, pointer: *mut f32, value: F, count: usize) {
        for lane in 0..count.min(4) {
            // SAFETY: the caller promises `count` writable places.
            unsafe { pointer.add(lane).write(value.0[lane]) };
        }
    }
    #[inline(always)]
    unsafe fn load_even(self, pointer: *const f32) -> F {
        // SAFETY: the caller promises seven readable values.
        let values = unsafe { pointer.cast::<[f32; 7]>().read_unaligned() };
        F([values[0], values[2], values[4], values[6]])
    }
    #[inline(always)]
    unsafe fn load_u8(self, pointer: *const u8) -> I {
        // SAFETY: the caller promises four readable bytes.
        I(unsafe { pointer.cast::<[u8; 4]>().read_unaligned() }.map(i32::from))
    }
    #[inline(always)]
    unsafe fn load_u16(self, pointer: *const u8) -> I {
        // SAFETY: the caller promises eight readable bytes.
        I(unsafe { pointer.cast::<[[u8; 2]; 4]>().read_unaligned() }.map(|pair| i32::from(u16::from_le_bytes(pair))))
    }
    #[inline(always)]
    unsafe fn load_f16(self, pointer: *const u8) -> F {
        // SAFETY: the caller promises eight readable bytes.
        F(unsafe { pointer.cast::<[[u8; 2]; 4]>().read_unaligned() }
            .map(|pair| half::f16::from_le_bytes(pair).to_f32()))
    }
    #[inline(always)]
    unsafe fn store_u8(self, pointer: *mut u8, value: I) {
        // SAFETY: the caller's promise.
        unsafe { pointer.cast::<[u8; 4]>().write_unaligned(value.0.map(|lane| lane as u8)) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, pointer: *mut u8, value: F) {
        // SAFETY: the caller promises eight writable bytes.
        unsafe { pointer.cast::<[[u8; 2]; 4]>().write_unaligned(value.0.map(|x| half::f16::from_f32(x).to_le_bytes())) }
    }
    #[inline(always)]
    fn lookup(self, table: &[f32; 16], index: I) -> F {
        F(index.0.map(|entry| table[(entry & 15) as usize]))
    }
    #[inline(always)]
    fn shl<const BITS: u32>(self, a: I) -> I {
        I(map!(a.0, |x| x << BITS))
    }
    #[inline(always)]
    fn shr<const BITS: u32>(self, a: I) -> I {
        I(map!(a.0, |x| x >> BITS))
    }

    operations! {
        splat(value: f32) -> F { F([value; 4]) }
        splat_i(value: i32) -> I { I([value; 4]) }
        add(a: F, b: F) -> F { F(map!(a.0, b.0, |x, y| x + y)) }
        sub(a: F, b: F) -> F { F(map!(a.0, b.0, |x, y| x - y)) }
        mul(a: F, b: F) -> F { F(map!(a.0, b.0, |x, y| x * y)) }
        div(a: F, b: F) -> F { F(map!(a.0, b.0, |x, y| x / y)) }
        fma(a: F, b: F, c: F) -> F { F([0, 1, 2, 3].map(|lane: usize| multiply_add(a.0[lane], b.0[lane], c.0[lane]))) }
        max(a: F, b: F) -> F { F(map!(a.0, b.0, |x, y| if x > y { x } else { y })) }
        min(a: F, b: F) -> F { F(map!(a.0, b.0, |x, y| if x < y { x } else { y })) }
        sqrt(a: F) -> F { F(map!(a.0, |x| x.sqrt())) }
        round(a: F) -> F { F(map!(a.0, |x| x.round_ties_even())) }
        floor(a: F) -> F { F(map!(a.0, |x| x.floor())) }
        ceil(a: F) -> F { F(map!(a.0, |x| x.ceil())) }
        trunc(a: F) -> F { F(map!(a.0, |x| x.trunc())) }
        lt(a: F, b: F) -> [bool; 4] { map!(a.0, b.0, |x, y| x < y) }
        le(a: F, b: F) -> [bool; 4] { map!(a.0, b.0, |x, y| x <= y) }
        eq(a: F, b: F) -> [bool; 4] { map!(a.0, b.0, |x, y| x == y) }
        is_nan(a: F) -> [bool; 4] { map!(a.0, |x| x.is_nan()) }
        select(mask: [bool; 4], a: F, b: F) -> F {
            F([0, 1, 2, 3].map(|lane: usize| if mask[lane] { a.0[lane] } else { b.0[lane] }))
        }
        any(mask: [bool; 4]) -> bool { mask[0] | mask[1] | mask[2] | mask[3] }
        to_i(a: F) -> I { I(map!(a.0, |x| x.round_ties_even() as i32)) }
        from_i(a: I) -> F { F(map!(a.0, |x| x as f32)) }
        bits(a: F) -> I { I(map!(a.0, |x| x.to_bits() as i32)) }
        from_bits(a: I) -> F { F(map!(a.0, |x| f32::from_bits(x as u32))) }
        add_i(a: I, b: I) -> I { I(map!(a.0, b.0, |x, y| x.wrapping_add(y))) }
        sub_i(a: I, b: I) -> I { I(map!(a.0, b.0, |x, y| x.wrapping_sub(y))) }
        mul_i(a: I, b: I) -> I { I(map!(a.0, b.0, |x, y| x.wrapping_mul(y))) }
        and_i(a: I, b: I) -> I { I(map!(a.0, b.0, |x, y| x & y)) }
        or_i(a: I, b: I) -> I { I(map!(a.0, b.0, |x, y| x | y)) }
        xor_i(a: I, b: I) -> I { I(map!(a.0, b.0, |x, y| x ^ y)) }
        eq_i(a: I, b: I) -> [bool; 4] { map!(a.0, b.0, |x, y| x == y) }
        splat_d(value: f64) -> [f64; 4] { [value; 4] }
        widen(a: F) -> [f64; 4] { map!(a.0, |x| f64::from(x)) }
        narrow(a: [f64; 4]) -> F { F(map!(a, |x| x as f32)) }
        add_d(a: [f64; 4], b: [f64; 4]) -> [f64; 4] { map!(a, b, |x, y| x + y) }
        mul_d(a: [f64; 4], b: [f64; 4]) -> [f64; 4] { map!(a, b, |x, y| x * y) }
        div_d(a: [f64; 4], b: [f64; 4]) -> [f64; 4] { map!(a, b, |x, y| x / y) }
        reduce_add(a: F) -> f32 { (a.0[0] + a.0[2]) + (a.0[1] + a.0[3]) }
        reduce_max(a: F) -> f32 { a.0[0].max(a.0[1]).max(a.0[2].max(a.0[3])) }
    }
}

/// Fused where the target has the instruction; the library call that emulates it would be far slower than two
/// roundings.
#[inline(always)]
fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    if Portable::FUSED { a.mul_add(b, c) } else { a * b + c }
}
