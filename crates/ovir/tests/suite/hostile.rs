//! Scatters of anything, anywhere: they succeed or fail, and a failure changes nothing.

use ovir::scatter::{Operand, onnx, openvino, torch};
use ovir::{ElementType, Shape, Tensor};
use pretty_assertions::assert_eq;
use proptest::prelude::*;

/// A generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, count: usize) -> usize {
        self.next() as usize % count
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn shape(&mut self) -> Shape {
        let rank = self.pick(&[0, 1, 1, 2, 2, 3, 5, 8]);
        (0..rank).map(|_| self.pick(&[0, 1, 2, 2, 3, 4])).collect()
    }

    /// A shape that often fits.
    fn near(&mut self, shape: &Shape) -> Shape {
        match self.below(4) {
            0 => self.shape(),
            1 => shape.clone(),
            _ => shape.iter().map(|size| if self.below(4) == 0 { self.below(4) } else { *size }).collect(),
        }
    }

    fn tensor(&mut self, element_type: ElementType, shape: &Shape) -> Tensor {
        let mut tensor = Tensor::zeros(element_type, shape.clone()).unwrap();
        let random = self.next() as u8;
        tensor
            .bytes_mut()
            .unwrap()
            .iter_mut()
            .enumerate()
            .for_each(|(i, byte)| *byte = random.wrapping_mul(i as u8) & 1);
        tensor
    }

    fn indices(&mut self, shape: &Shape) -> Tensor {
        const HOSTILE: [i64; 8] = [i64::MIN, i64::MAX, 1 << 32, (1 << 32) + 1, -1 << 31, 4, -5, 1 << 62];
        let clean = self.below(3) > 0;
        let values: Vec<i64> = (0..shape.elements())
            .map(|_| if clean || self.below(4) > 0 { self.below(6) as i64 - 3 } else { self.pick(&HOSTILE) })
            .collect();
        match self.below(6) {
            0 => Tensor::from_slice(&values.iter().map(|v| *v as i32).collect::<Vec<_>>(), shape.clone()),
            1 => Tensor::from_slice(&values.iter().map(|v| *v as u8).collect::<Vec<_>>(), shape.clone()),
            2 => Tensor::from_slice(&values.iter().map(|v| *v as u64).collect::<Vec<_>>(), shape.clone()),
            _ => Tensor::from_slice(&values, shape.clone()),
        }
        .unwrap()
    }
}

const TYPES: [ElementType; 8] = [
    ElementType::F32,
    ElementType::F16,
    ElementType::Boolean,
    ElementType::I64,
    ElementType::U8,
    ElementType::F64,
    ElementType::I4,
    ElementType::F8e4m3,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn copies_have_the_shape_of_the_data(seed in 1u64..) {
        let mut random = Random(seed);
        let shape = random.shape();
        let element_type = random.pick(&TYPES);
        let data = random.tensor(element_type, &shape);
        let picked = random.near(&shape);
        let index = random.indices(&picked);
        let near = random.near(&picked);
        let updates = random.tensor(element_type, &near);
        let axis = random.pick(&[0, 1, -1, 2, -2, 7, i64::MIN, i64::MAX]);
        let elements = [
            openvino::ScatterElementsReduction::None,
            openvino::ScatterElementsReduction::Sum,
            openvino::ScatterElementsReduction::Mean,
            openvino::ScatterElementsReduction::Max,
        ];
        let blocks =
            [openvino::ScatterNdReduction::None, openvino::ScatterNdReduction::Sub, openvino::ScatterNdReduction::Prod];
        let (opset, reduction) = (random.pick(&[9, 11, 13, 16, 18, 99]), random.pick(&[None, Some("add"), Some("max")]));
        let results = [
            openvino::scatter_update(&data, &index, &updates, axis),
            openvino::scatter_elements_update(&data, &index, &updates, axis, random.pick(&elements), seed % 2 == 0),
            openvino::scatter_nd_update(&data, &index, &updates, random.pick(&blocks)),
            onnx::scatter_elements(opset, &data, &index, &updates, axis, reduction),
            onnx::scatter_nd(opset, &data, &index, &updates, reduction),
        ];
        for output in results.into_iter().flatten() {
            prop_assert_eq!(output.shape(), &shape);
            prop_assert_eq!(output.element_type(), element_type);
        }
    }

    #[test]
    fn failures_change_nothing(seed in 1u64..) {
        let mut random = Random(seed);
        let shape = random.shape();
        let element_type = random.pick(&TYPES);
        let mut target = random.tensor(element_type, &shape);
        let before = Tensor::from_bytes(element_type, shape.clone(), target.bytes()).unwrap();
        let (picked, near) = (random.near(&shape), random.near(&shape));
        let vector = Shape::from([random.below(4)]);
        let which = if random.below(2) == 0 { &picked } else { &vector };
        let index = random.indices(which);
        let source = random.tensor(element_type, &near);
        let dim = random.pick(&[0, 1, -1, 2, -2, 7, i64::MIN, i64::MAX]);
        let reduce = random.pick(&["sum", "prod", "mean", "amax", "amin", "add"]);
        let outcome = match seed % 7 {
            0 => torch::scatter_(&mut target, dim, &index, &source, random.pick(&[None, Some("add"), Some("max")])),
            1 => torch::scatter_value_(&mut target, dim, &index, random.pick(&[1.0, -1.0, f64::NAN, 1e300]), None),
            2 => torch::scatter_add_(&mut target, dim, &index, &source),
            3 => torch::scatter_reduce_(&mut target, dim, &index, &source, reduce, random.below(2) == 0),
            4 => torch::index_add_(&mut target, dim, &index, &source, random.pick(&[1.0, 2.0, 0.5])),
            5 => torch::index_copy_(&mut target, dim, &index, &source),
            _ => {
                let other = random.indices(&vector);
                let mask = random.tensor(ElementType::Boolean, &vector);
                let any: [Option<&dyn Operand>; 4] = [Some(&index), Some(&other), Some(&mask), None];
                let picked = [random.pick(&any), random.pick(&any), random.pick(&any)];
                torch::index_put_(&mut target, &picked[..random.below(4)], &source, random.below(2) == 0)
            }
        };
        prop_assert_eq!(target.shape(), &shape);
        if outcome.is_err() {
            assert_eq!(target, before);
        }
    }
}
