//! [rten](https://github.com/robertknight/rten), with packed weights.

use std::sync::Arc;

use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value};
use tract_onnx::tract_hir::internal::tract_ndarray::ArrayD;

use crate::{Engine, Fallible, Input, Values, in_order};

pub(crate) struct Rten {
    model: Model,
    inputs: Vec<(NodeId, Value)>,
    options: RunOptions,
}

impl Rten {
    pub(crate) fn new(path: &str, inputs: &[Input], threads: usize) -> Fallible<Rten> {
        let model = ModelOptions::with_all_ops().prepack_weights(true).load_file(path)?;
        let names = model.input_ids().iter().map(|id| {
            let name = model.node_info(*id).and_then(|info| info.name().map(str::to_owned));
            name.unwrap_or_default()
        });
        let names: Vec<String> = names.collect();
        let values = in_order(&names, inputs)?.into_iter().map(value).collect::<Fallible<Vec<Value>>>()?;
        let inputs = model.input_ids().iter().copied().zip(values).collect();
        let pool = Arc::new(ThreadPool::with_num_threads(threads));
        Ok(Rten { model, inputs, options: RunOptions::default().with_thread_pool(Some(pool)) })
    }
}

impl Engine for Rten {
    fn infer(&mut self) -> Fallible<()> {
        let inputs = self.inputs.iter().map(|(id, value)| (*id, value.as_view().into())).collect();
        self.model.run(inputs, self.model.output_ids(), Some(self.options.clone()))?;
        Ok(())
    }
}

/// rten computes 64-bit integers and booleans in 32 bits.
fn value(values: Values) -> Fallible<Value> {
    fn made<T>(array: ArrayD<T>, make: impl Fn(&[usize], Vec<T>) -> Fallible<Value>) -> Fallible<Value> {
        let shape = array.shape().to_vec();
        make(&shape, array.into_raw_vec_and_offset().0)
    }
    match values {
        Values::F32(array) => made(array, |shape, values| Ok(Value::from_shape(shape, values)?)),
        Values::I32(array) => made(array, |shape, values| Ok(Value::from_shape(shape, values)?)),
        Values::U8(array) => made(array, |shape, values| Ok(Value::from_shape(shape, values)?)),
        Values::I64(array) => {
            let narrow = array.iter().map(|value| i32::try_from(*value)).collect::<Result<Vec<i32>, _>>()?;
            Ok(Value::from_shape(array.shape(), narrow)?)
        }
        Values::Bool(array) => {
            let narrow: Vec<i32> = array.iter().map(|value| i32::from(*value)).collect();
            Ok(Value::from_shape(array.shape(), narrow)?)
        }
    }
}
