//! Writing a `.bin`.

use std::collections::HashMap;
use std::io::{self, Write};

use ovir_tensor::Tensor;
use sha2::{Digest, Sha256};

use crate::strings::pack_strings;

/// Constants start at multiples of this, so that a mapped file can be read with aligned loads.
const ALIGNMENT: u64 = 64;

/// Appends constants to a weights file. Constants with the same bytes share one place.
#[derive(Debug)]
pub struct WeightsWriter<W> {
    output: W,
    position: u64,
    /// The places of the constants so far, by the digest of their bytes.
    places: HashMap<[u8; 32], ConstantPlace>,
}

/// Where a constant lies: the attributes `offset` and `size` of its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConstantPlace {
    /// The offset of its first byte.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
}

impl<W: Write> WeightsWriter<W> {
    /// Starts an empty weights file.
    pub fn new(output: W) -> WeightsWriter<W> {
        WeightsWriter { output, position: 0, places: HashMap::new() }
    }

    /// Appends a constant, unless its bytes are there already. As in OpenVINO's files a constant without elements takes
    /// one byte.
    ///
    /// # Errors
    /// What writing says, and strings of 2 GiB or more.
    pub fn add(&mut self, constant: &Tensor) -> io::Result<ConstantPlace> {
        let packed;
        let bytes = match constant.strings() {
            Some(strings) => {
                packed = pack_strings(strings).ok_or_else(|| io::Error::other("a string constant is too large"))?;
                packed.as_slice()
            }
            None if constant.bytes().is_empty() => &[0],
            None => constant.bytes(),
        };
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        if let Some(place) = self.places.get(&digest) {
            return Ok(*place);
        }
        let offset = self.position.next_multiple_of(ALIGNMENT);
        let padding = usize::try_from(offset - self.position).unwrap_or(0);
        self.output.write_all(&vec![0; padding])?;
        self.output.write_all(bytes)?;
        let size = u64::try_from(bytes.len()).map_err(io::Error::other)?;
        self.position = offset + size;
        let place = ConstantPlace { offset, size };
        self.places.insert(digest, place);
        Ok(place)
    }

    /// The bytes written so far.
    pub fn size(&self) -> u64 {
        self.position
    }

    /// Ends the file and returns the output, for example to [`commit`](crate::AtomicFile::commit) it.
    ///
    /// # Errors
    /// What writing says.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Weights;
    use ovir_tensor::{ElementType, Shape};
    use pretty_assertions::assert_eq;

    #[test]
    fn constants_read_back() {
        let constants = [
            Tensor::from_slice(&[1.0f32, 2.0], [2]).unwrap(),
            Tensor::from_strings(vec!["a".to_owned(), String::new()], [2]).unwrap(),
            Tensor::zeros(ElementType::I64, [0, 2]).unwrap(),
            Tensor::from_bytes(ElementType::U4, [3], &[0x21, 3]).unwrap(),
            Tensor::from_slice(&[1.0f32, 2.0], [2, 1]).unwrap(),
        ];
        let mut writer = WeightsWriter::new(Vec::new());
        let places: Vec<ConstantPlace> = constants.iter().map(|c| writer.add(c).unwrap()).collect();
        assert_eq!(places.iter().map(|p| p.offset).collect::<Vec<_>>(), [0, 64, 128, 192, 0]);
        assert_eq!(places[2].size, 1);
        assert_eq!(writer.size(), 194);
        let weights = Weights::from_bytes(writer.finish().unwrap());
        for (constant, place) in constants.iter().zip(places) {
            let shape: &Shape = constant.shape();
            let read = weights.constant(constant.element_type(), shape, place.offset, place.size).unwrap();
            assert_eq!(&read, constant);
        }
    }
}
