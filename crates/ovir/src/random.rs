//! Random inputs, the same for the same seed on every machine.

use ovir_tensor::{ElementType, Tensor, bf16, f16};

use crate::{Error, Port};

/// The generator SplitMix64 (Steele, Lea and Flood, 2014).
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number in `0..1` with 24 bits, exact in f32.
    fn fraction(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}

/// A seed for one input of one inference.
pub fn mix(seed: u64, inference: u64, input: u64) -> u64 {
    let mut generator = Generator(seed ^ inference.rotate_left(32) ^ input.rotate_left(16));
    generator.next()
}

/// A random tensor for an input: floating-point numbers in `0..1`, u8 and i8 anywhere in `0..128`, wider integers 0 or
/// 1, which are good indices and masks for almost every model.
///
/// # Errors
/// When the shape is not known, for strings, and when memory cannot be had.
pub fn fill(port: &Port, seed: u64) -> Result<Tensor, Error> {
    let Port { name, element_type, shape, .. } = port;
    let Some(sizes) = shape.to_shape() else {
        return Err(Error::Usage(format!(
            "input \"{name}\" has the shape {shape}; random values need a static shape, give one with --shape"
        )));
    };
    let mut generator = Generator(seed);
    // Fails for absurd sizes before a list of values is made.
    let mut tensor = match element_type {
        ElementType::String | ElementType::Dynamic => {
            return Err(Error::Usage(format!(
                "input \"{name}\" of {element_type} cannot be filled with random values"
            )));
        }
        _ => Tensor::zeros(*element_type, sizes)?,
    };
    match element_type {
        ElementType::F32 => tensor.slice_mut::<f32>()?.fill_with(|| generator.fraction()),
        ElementType::F64 => tensor.slice_mut::<f64>()?.fill_with(|| f64::from(generator.fraction())),
        ElementType::F16 => tensor.slice_mut::<f16>()?.fill_with(|| f16::from_f32(generator.fraction())),
        ElementType::Bf16 => tensor.slice_mut::<bf16>()?.fill_with(|| bf16::from_f32(generator.fraction())),
        ElementType::I16 => tensor.slice_mut::<i16>()?.fill_with(|| (generator.next() >> 63) as i16),
        ElementType::U16 => tensor.slice_mut::<u16>()?.fill_with(|| (generator.next() >> 63) as u16),
        ElementType::I32 => tensor.slice_mut::<i32>()?.fill_with(|| (generator.next() >> 63) as i32),
        ElementType::U32 => tensor.slice_mut::<u32>()?.fill_with(|| (generator.next() >> 63) as u32),
        ElementType::I64 => tensor.slice_mut::<i64>()?.fill_with(|| (generator.next() >> 63) as i64),
        ElementType::U64 => tensor.slice_mut::<u64>()?.fill_with(|| generator.next() >> 63),
        ElementType::Boolean => tensor.bytes_mut()?.fill_with(|| (generator.next() >> 63) as u8),
        // Bytes below 128 are numbers in u8, i8 and the 8-bit floats, and codes in the packed types.
        _ => tensor.bytes_mut()?.fill_with(|| (generator.next() >> 57) as u8),
    }
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn port(element_type: ElementType, shape: &str) -> Port {
        let shape = shape.parse().unwrap();
        Port { name: "x".to_owned(), names: Vec::new(), element_type, shape, layout: None }
    }

    #[test]
    fn values_repeat_and_lie_in_range() {
        let tensor = fill(&port(ElementType::F32, "1000"), 7).unwrap();
        assert_eq!(tensor, fill(&port(ElementType::F32, "1000"), 7).unwrap());
        let values = tensor.slice::<f32>().unwrap();
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
        let mean = values.iter().sum::<f32>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
        let tensor = fill(&port(ElementType::I64, "100"), mix(7, 0, 0)).unwrap();
        let ones = tensor.slice::<i64>().unwrap().iter().filter(|v| **v == 1).count();
        assert!((20..80).contains(&ones), "{ones}");
    }

    #[test]
    fn unknown_shapes_are_refused() {
        assert!(fill(&port(ElementType::F32, "?"), 7).is_err());
        assert!(fill(&port(ElementType::String, "2"), 7).is_err());
        assert!(fill(&port(ElementType::F32, "9223372036854775806,9"), 7).is_err());
    }
}
