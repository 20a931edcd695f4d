//! The memory of dead values, for those that come after them.

use ovir_tensor::{ElementType, Shape, Tensor, TensorError};

/// Smaller tensors are not worth keeping: the allocator has such memory at hand.
const SMALLEST: usize = 1 << 10;

/// A tensor is not used for one that needs less than this part of its memory.
const MOST_WASTE: usize = 4;

/// Tensors that nobody reads any more. In a steady state every value finds the memory that it had before, so that nothing
/// is allocated, cleared and given back. What is not used for a whole inference goes.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    /// Tensors that nobody shares, with the inference in which they were given.
    tensors: Vec<(Tensor, u64)>,
    inference: u64,
}

impl Spare {
    /// A tensor whose bytes hold anything, in memory that is there where some fits.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] or [`TensorError::OutOfMemory`] when the memory cannot be had.
    pub fn tensor(&mut self, element_type: ElementType, shape: &Shape) -> Result<Tensor, TensorError> {
        let bytes = shape.checked_elements().and_then(|elements| element_type.storage_bytes(elements));
        let Some(bytes) = bytes.filter(|bytes| *bytes >= SMALLEST) else {
            return Tensor::zeros(element_type, shape.clone());
        };
        let fits = |capacity: usize| capacity >= bytes && capacity / MOST_WASTE <= bytes;
        let found = (0..self.tensors.len())
            .filter_map(|index| Some((self.tensors[index].0.own_capacity()?, index)))
            .filter(|(capacity, _)| fits(*capacity))
            .min();
        let mut tensor = found.map(|(_, index)| self.tensors.swap_remove(index).0);
        if tensor.is_none() && element_type != ElementType::String {
            // A value that grows step by step finds room for some steps.
            let roomy = Shape::from([bytes.saturating_add(bytes / 8)]);
            tensor = Some(Tensor::zeros(ElementType::U8, roomy)?);
        }
        Tensor::prepare(&mut tensor, element_type, shape)?;
        tensor.map_or_else(|| Tensor::zeros(element_type, shape.clone()), Ok)
    }

    /// A tensor that has exactly so many bytes of memory, if there is one: that of a value whose size is known only when it has been
    /// computed, from the inference before.
    pub fn reserve(&mut self, capacity: usize) -> Option<Tensor> {
        let is_it = |(tensor, _): &(Tensor, u64)| tensor.own_capacity() == Some(capacity);
        let found = self.tensors.iter().position(is_it)?;
        Some(self.tensors.swap_remove(found).0)
    }

    /// The bytes of memory by which a tensor is found again with [`Spare::reserve`]; 0 if it is small, or needs little of it.
    pub fn capacity_to_reserve(tensor: &Tensor) -> usize {
        let used = tensor.bytes().len();
        tensor.own_capacity().filter(|capacity| *capacity >= SMALLEST && capacity / MOST_WASTE <= used).unwrap_or(0)
    }

    /// Keeps the memory of a tensor that nobody else has.
    pub fn give(&mut self, tensor: Tensor) {
        if tensor.own_capacity().is_some_and(|capacity| capacity >= SMALLEST) {
            self.tensors.push((tensor, self.inference));
        }
    }

    /// An inference has ended.
    pub fn end_inference(&mut self) {
        let inference = self.inference;
        self.tensors.retain(|(_, given)| *given == inference);
        self.inference += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn memory_is_found_again() {
        let mut spare = Spare::default();
        let shape = Shape::from([64, 64]);
        let tensor = spare.tensor(ElementType::F32, &shape).unwrap();
        let (address, _) = tensor.identity();
        let shared = tensor.clone();
        spare.give(tensor);
        assert!(spare.tensors.is_empty(), "a tensor that is shared stays with its owner");
        spare.give(shared);
        let capacity = Spare::capacity_to_reserve(&spare.tensors[0].0);
        assert!(spare.reserve(capacity + 1).is_none());
        let reserved = spare.reserve(capacity).unwrap();
        assert_eq!(reserved.identity().0, address);
        spare.give(reserved);
        let larger = spare.tensor(ElementType::F32, &Shape::from([64, 65])).unwrap();
        assert_eq!((larger.identity().0, larger.shape()), (address, &Shape::from([64, 65])));
        spare.give(larger);
        let small = spare.tensor(ElementType::I8, &Shape::from([1100])).unwrap();
        assert!(small.identity().0 != address, "most of the memory would lie idle");
        spare.end_inference();
        spare.end_inference();
        assert!(spare.tensors.is_empty());
    }
}
