//! [tract](https://github.com/sonos/tract), optimised for the shapes of the inputs.

use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::prelude::*;

use crate::{Engine, Fallible, Input, Values, in_order};

pub(crate) struct Tract {
    plan: Arc<TypedRunnableModel>,
    inputs: TVec<TValue>,
}

impl Tract {
    pub(crate) fn new(path: &str, inputs: &[Input], threads: usize) -> Fallible<Tract> {
        if threads > 1 {
            set_default_executor(Executor::multithread(threads));
        }
        let mut model = tract_onnx::onnx().model_for_path(path)?;
        let outlets = model.input_outlets()?.to_vec();
        let names: Vec<String> = outlets.iter().map(|outlet| model.node(outlet.node).name.clone()).collect();
        let tensors: Vec<Tensor> = in_order(&names, inputs)?.into_iter().map(tensor).collect();
        for (index, tensor) in tensors.iter().enumerate() {
            model.set_input_fact(index, TypedFact::dt_shape(tensor.datum_type(), tensor.shape()).into())?;
        }
        let plan = model.into_optimized()?.into_runnable()?;
        Ok(Tract { plan, inputs: tensors.into_iter().map(Tensor::into_tvalue).collect() })
    }
}

impl Engine for Tract {
    fn infer(&mut self) -> Fallible<()> {
        self.plan.run(self.inputs.clone())?;
        Ok(())
    }
}

fn tensor(values: Values) -> Tensor {
    match values {
        Values::F32(array) => array.into_tensor(),
        Values::I32(array) => array.into_tensor(),
        Values::I64(array) => array.into_tensor(),
        Values::U8(array) => array.into_tensor(),
        Values::Bool(array) => array.into_tensor(),
    }
}
