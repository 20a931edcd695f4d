//! Helpers for the tests of operations.
//!
//! ```ignore
//! let case = Case::new("Gather", "opset8").attribute("batch_dims", "1");
//! assert_eq!(case.infer(&["f32[2,?]", "i64[2,3]", "i64[]=1"]), ["f32[2,3]"]);
//! let outputs = case.run(&[data, indices, axis])?;
//! ```

use std::sync::Arc;

use ovir_tensor::{Bounds, Dim, ElementType, NativeElement, PartialShape, Shape, SmallVec, Tensor, TensorView, Value};

use crate::{
    AttributeReader, BuildContext, Environment, EvaluateContext, InferContext, OpError, OpResult, Operation,
    OutputSlot, OutputSlots, RawAttribute, Registry, Resolution, SymbolSource, ValueFacts,
};

/// One operation with attributes, to infer and run.
pub struct Case {
    type_name: String,
    opset: String,
    attributes: Vec<(String, String)>,
    outputs: usize,
}

/// Ways to know less of a value.
const WIDENINGS: [fn(&ValueFacts) -> ValueFacts; 6] = [
    |facts| ValueFacts::new(facts.element_type, facts.shape.clone()),
    |facts| with_dims(facts, |dim| Dim::interval(dim.min() - 1, dim.max().saturating_add(2))),
    |facts| with_dims(facts, |dim| Dim::interval(dim.min(), dim.max().saturating_add(1))),
    |facts| with_dims(facts, |_| Dim::DYNAMIC),
    |facts| ValueFacts::new(facts.element_type, PartialShape::DYNAMIC),
    |facts| {
        let wider = |v: &Value| Value::interval(v.min.saturating_sub(1), v.max.saturating_add(2));
        let bounds = facts.bounds.as_ref().map(|bounds| {
            Arc::new(Bounds { shape: bounds.shape.clone(), values: bounds.values.iter().map(wider).collect() })
        });
        ValueFacts { bounds, constant: None, ..facts.clone() }
    },
];

/// A tensor of elements.
pub fn tensor<T: NativeElement>(values: &[T], shape: impl Into<Shape>) -> Tensor {
    Tensor::from_slice(values, shape).unwrap_or_else(|e| fail(&e.to_string()))
}

/// A boolean tensor.
pub fn booleans(values: &[bool], shape: impl Into<Shape>) -> Tensor {
    Tensor::from_booleans(values, shape).unwrap_or_else(|e| fail(&e.to_string()))
}

/// Reads `f32[2,?]`, `i64[3]=1,2,3` (known integers), `i64[]=1` and `i64[2]=1..5,7` (bounds).
pub fn facts(text: &str) -> ValueFacts {
    let (head, values) = text.split_once('=').map_or((text, None), |(h, v)| (h, Some(v)));
    let bracket = head.find('[').unwrap_or_else(|| fail(text));
    let element_type: ElementType = head[..bracket].parse().unwrap_or_else(|_| fail(text));
    let shape: PartialShape = head[bracket..].parse().unwrap_or_else(|_| fail(text));
    let Some(values) = values else {
        return ValueFacts::new(element_type, shape);
    };
    let values: SmallVec<[Value; 8]> = values
        .split(',')
        .filter(|v| !v.is_empty())
        .map(|v| match v.split_once("..") {
            Some((a, b)) => Value::interval(number(a, i64::MIN), number(b, i64::MAX)),
            None => Value::known(number(v, 0)),
        })
        .collect();
    let bounds = Bounds { shape: shape.to_shape().unwrap_or_else(|| fail(text)), values };
    if let Some(known) = bounds.known() {
        return ValueFacts::of_constant(integers(element_type, &known, bounds.shape));
    }
    ValueFacts { element_type, shape, bounds: Some(Arc::new(bounds)), constant: None }
}

impl Case {
    /// An operation of a type, taken from an opset.
    pub fn new(type_name: &str, opset: &str) -> Case {
        Case { type_name: type_name.into(), opset: opset.into(), attributes: Vec::new(), outputs: 1 }
    }

    /// Adds an attribute.
    pub fn attribute(mut self, name: &str, value: &str) -> Case {
        self.attributes.push((name.into(), value.into()));
        self
    }

    /// Says how many outputs the layer has; 1 otherwise.
    pub fn outputs(mut self, count: usize) -> Case {
        self.outputs = count;
        self
    }

    /// The instance; attributes that are wrong are an error.
    pub fn build(&self, inputs: usize) -> OpResult<Arc<dyn Operation>> {
        let (operation, problems) = self.build_with_problems(inputs);
        match problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(operation),
        }
    }

    /// What is wrong with the attributes.
    pub fn attribute_errors(&self, inputs: usize) -> Vec<String> {
        self.build_with_problems(inputs).1.iter().map(ToString::to_string).collect()
    }

    /// Element types and shapes of the outputs, as `f32[2,?]`; known or bounded integers follow as `=1,2..5`.
    pub fn infer(&self, inputs: &[&str]) -> Vec<String> {
        let inputs: Vec<ValueFacts> = inputs.iter().map(|t| facts(t)).collect();
        match self.infer_facts(&inputs) {
            Ok(outputs) => outputs.iter().map(show).collect(),
            Err(error) => fail(&error.to_string()),
        }
    }

    /// The first violation that inference finds.
    pub fn infer_error(&self, inputs: &[&str]) -> String {
        let inputs: Vec<ValueFacts> = inputs.iter().map(|t| facts(t)).collect();
        match self.infer_facts(&inputs) {
            Ok(outputs) => fail(&format!("no error, but {:?}", outputs.iter().map(show).collect::<Vec<_>>())),
            Err(error) => error.to_string(),
        }
    }

    /// The facts of the outputs.
    pub fn infer_facts(&self, inputs: &[ValueFacts]) -> OpResult<Vec<ValueFacts>> {
        infer(&*self.build(inputs.len())?, inputs, self.outputs)
    }

    /// Infers with the tensors known, checks that inference without their values is wider, evaluates, and checks that
    /// the outputs are what inference promised.
    pub fn run(&self, inputs: &[Tensor]) -> OpResult<Vec<Tensor>> {
        let operation = self.build(inputs.len())?;
        let exact: Vec<ValueFacts> = inputs.iter().map(|t| ValueFacts::of_constant(t.clone())).collect();
        let promised = infer(&*operation, &exact, self.outputs)?;
        let wider: Vec<ValueFacts> = exact.iter().map(|f| ValueFacts::new(f.element_type, f.shape.clone())).collect();
        if let Ok(wide) = infer(&*operation, &wider, self.outputs) {
            for (w, p) in wide.iter().zip(&promised) {
                assert!(w.shape.includes(&p.shape), "infer(exact) {} is not within infer(wider) {}", p.shape, w.shape);
            }
        }
        let outputs = evaluate(&*operation, inputs, &promised)?;
        for (output, promise) in outputs.iter().zip(&promised) {
            assert!(promise.shape.contains(output.shape()), "{output:?} where {} was promised", promise.shape);
            assert_eq!(promise.element_type, output.element_type());
            if let (Some(bounds), Some(values)) = (&promise.bounds, crate::infer::integers_of(output)) {
                let holds = bounds.values.iter().zip(&values).all(|(b, v)| b.min <= *v && *v <= b.max);
                assert!(holds, "{values:?} outside of {:?}", bounds.values);
            }
        }
        Ok(outputs)
    }

    /// Checks that inference is monotone at `inputs`: with dimensions as intervals or unknown, without a rank, and
    /// without values, for each input alone and for all together, it succeeds and its outputs include the exact ones.
    pub fn assert_monotone(&self, inputs: &[&str]) {
        let exact: Vec<ValueFacts> = inputs.iter().map(|t| facts(t)).collect();
        let promised = self.infer_facts(&exact).unwrap_or_else(|e| fail(&format!("{inputs:?}: {e}")));
        let everything = (1usize << exact.len()) - 1;
        let subsets = (0..exact.len()).map(|i| 1usize << i).chain([everything]);
        for (subset, widen) in subsets.flat_map(|subset| WIDENINGS.iter().map(move |widen| (subset, widen))) {
            let widened: Vec<ValueFacts> = exact
                .iter()
                .enumerate()
                .map(|(i, f)| if subset >> i & 1 == 1 { widen(f) } else { f.clone() })
                .collect();
            let shown: Vec<String> = widened.iter().map(show).collect();
            let outputs = self.infer_facts(&widened).unwrap_or_else(|e| fail(&format!("{shown:?}: {e}")));
            for (wide, narrow) in outputs.iter().zip(&promised) {
                assert!(
                    wide.shape.includes(&narrow.shape),
                    "{shown:?}: {} does not include {}",
                    wide.shape,
                    narrow.shape
                );
                let (Some(wide), Some(narrow)) = (&wide.bounds, &narrow.bounds) else { continue };
                let holds = wide.values.iter().zip(&narrow.values).all(|(w, n)| w.min <= n.min && n.max <= w.max);
                assert!(holds, "{shown:?}: {:?} does not include {:?}", wide.values, narrow.values);
            }
        }
    }

    fn build_with_problems(&self, inputs: usize) -> (Arc<dyn Operation>, Vec<OpError>) {
        let raw: Vec<RawAttribute<'_>> =
            self.attributes.iter().map(|(name, value)| RawAttribute { name, value }).collect();
        let resolution = Registry::default().resolve(&self.type_name, &self.opset);
        let Resolution::BuiltIn(definition, version) = resolution else { fail(&format!("{resolution:?}")) };
        let mut reader = AttributeReader::new(&raw, version.class_version);
        let operation = (definition.build)(&mut BuildContext {
            attributes: &mut reader,
            class_version: version.class_version,
            input_count: inputs,
            output_count: self.outputs,
            bodies: Vec::new(),
        });
        (operation, reader.finish())
    }
}

fn infer(operation: &dyn Operation, inputs: &[ValueFacts], outputs: usize) -> OpResult<Vec<ValueFacts>> {
    let inputs: Vec<&ValueFacts> = inputs.iter().collect();
    let mut facts = vec![ValueFacts::default(); outputs];
    let (mut problems, mut symbols) = (Vec::new(), SymbolSource::default());
    operation.infer(&mut InferContext::new(&inputs, &mut facts, &mut problems, &mut symbols, &[]))?;
    match problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(facts),
    }
}

/// Evaluates into given buffers where the shape is known, and lets the operation have memory otherwise.
fn evaluate(operation: &dyn Operation, inputs: &[Tensor], promised: &[ValueFacts]) -> OpResult<Vec<Tensor>> {
    let views: Vec<TensorView<'_>> = inputs.iter().map(Tensor::view).collect();
    let mut given: Vec<Option<Tensor>> = promised
        .iter()
        .map(|p| p.shape.to_shape().map(|shape| Tensor::zeros(p.element_type, shape)).transpose())
        .collect::<Result<_, _>>()?;
    let mut slots = Vec::new();
    for (tensor, promise) in given.iter_mut().zip(promised) {
        slots.push(match tensor {
            Some(tensor) => OutputSlot::Given(tensor.view_mut()?),
            None => OutputSlot::Needed(promise.element_type),
        });
    }
    let mut environment = Environment::unlimited();
    let mut outputs = OutputSlots(&mut slots);
    EvaluateContext::new(&views, &mut outputs, &[], &mut environment, false).run(operation)?;
    let produced: Vec<Option<Tensor>> = slots
        .into_iter()
        .map(|slot| match slot {
            OutputSlot::Produced(tensor) => Some(tensor),
            _ => None,
        })
        .collect();
    let missing = || OpError::shape(crate::Blame::Node, "an output was not produced");
    given.into_iter().zip(produced).map(|(g, p)| p.or(g).ok_or_else(missing)).collect()
}

fn with_dims(facts: &ValueFacts, widen: impl Fn(Dim) -> Dim) -> ValueFacts {
    let shape = facts
        .shape
        .dims()
        .map_or(PartialShape::DYNAMIC, |dims| PartialShape::from_dims(dims.iter().map(|dim| widen(*dim))));
    ValueFacts::new(facts.element_type, shape)
}

fn show(facts: &ValueFacts) -> String {
    let values = facts.bounds.as_ref().map_or(String::new(), |bounds| {
        let values: Vec<String> = bounds
            .values
            .iter()
            .map(|v| match (v.get(), v.min, v.max) {
                (Some(known), ..) => known.to_string(),
                (None, i64::MIN, i64::MAX) => "..".to_owned(),
                (None, i64::MIN, max) => format!("..{max}"),
                (None, min, i64::MAX) => format!("{min}.."),
                (None, min, max) => format!("{min}..{max}"),
            })
            .collect();
        format!("={}", values.join(","))
    });
    format!("{}{}{values}", facts.element_type, facts.shape)
}

fn integers(element_type: ElementType, values: &[i64], shape: Shape) -> Tensor {
    let bytes: Vec<u8> =
        values.iter().flat_map(|v| v.to_le_bytes()[..element_type.byte_width().unwrap_or(8)].to_vec()).collect();
    Tensor::from_bytes(element_type, shape, &bytes).unwrap_or_else(|e| fail(&e.to_string()))
}

fn number(text: &str, empty: i64) -> i64 {
    if text.is_empty() { empty } else { text.parse().unwrap_or_else(|_| fail(text)) }
}

#[allow(clippy::panic)]
fn fail(message: &str) -> ! {
    panic!("{message}")
}
