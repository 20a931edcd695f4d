//! Operations of users, whose panics become errors of their layers.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ovir_tensor::TensorView;

use crate::{BodyPorts, BuildContext, Effects, EvaluateContext, InferContext, OpDef, OpError, OpResult, Operation};

/// An operation whose panics are caught.
#[derive(Debug, Clone)]
pub struct Guarded {
    /// The operation.
    pub operation: Arc<dyn Operation>,
}

impl Guarded {
    /// The instance that a definition makes; `None` if that panics, which is reported to the reader of the attributes.
    pub fn build(definition: &OpDef, context: &mut BuildContext<'_, '_>) -> Option<Arc<dyn Operation>> {
        match guard("build", || Ok((definition.build)(context))) {
            Ok(operation) => Some(Arc::new(Guarded { operation })),
            Err(error) => {
                context.attributes.report(error);
                None
            }
        }
    }
}

impl Operation for Guarded {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        guard("infer", || self.operation.infer(context))
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        guard("evaluate", || self.operation.evaluate(context))
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.operation.attributes()
    }

    fn effects(&self) -> Effects {
        self.operation.effects()
    }

    fn in_place_input(&self) -> Option<usize> {
        self.operation.in_place_input()
    }

    fn overwritten(&self, inputs: &[TensorView<'_>], ranges: &mut Vec<Range<usize>>) -> OpResult<bool> {
        guard("overwritten", || self.operation.overwritten(inputs, ranges))
    }

    fn is_reshape(&self) -> bool {
        self.operation.is_reshape()
    }

    fn takes_packed(&self) -> bool {
        self.operation.takes_packed()
    }

    fn bodies(&self) -> &[BodyPorts] {
        self.operation.bodies()
    }

    fn variable_id(&self) -> Option<&str> {
        self.operation.variable_id()
    }
}

/// Runs a method of an operation. What a panic leaves behind are outputs that nobody reads.
fn guard<T>(method: &str, run: impl FnOnce() -> OpResult<T>) -> OpResult<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        Err(OpError::unsupported(format!("the operation's own `{method}` panicked: {}", message_of(&*panic))))
    })
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say why")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SymbolSource, ValueFacts};

    #[derive(Debug)]
    struct Panicking;

    impl Operation for Panicking {
        fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
            assert_eq!(context.input_count(), 1, "one input is needed");
            Ok(())
        }

        fn evaluate(&self, _context: &mut EvaluateContext<'_>) -> OpResult {
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_an_error() {
        let guarded = Guarded { operation: Arc::new(Panicking) };
        let (mut problems, mut symbols) = (Vec::new(), SymbolSource::default());
        let mut outputs = [ValueFacts::default()];
        let mut context = InferContext::new(&[], &mut outputs, &mut problems, &mut symbols, &[]);
        let error = guarded.infer(&mut context).unwrap_err();
        assert!(error.to_string().contains("`infer` panicked: assertion"), "{error}");
        assert!(error.to_string().contains("one input is needed"), "{error}");
    }
}
