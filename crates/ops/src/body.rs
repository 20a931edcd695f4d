//! The seam between control flow and the graphs inside it.
//!
//! If, Loop and TensorIterator own the meaning of their port maps; `graph` and `runtime` implement [`Body`] for the
//! nested graph, which the operations see through their contexts.

use ovir_tensor::Tensor;

use crate::{Environment, OpResult, ValueFacts};

/// A nested graph: parameters in, results out.
pub trait Body {
    /// The facts that the body declares for parameter `index`.
    fn parameter(&self, index: usize) -> ValueFacts;

    /// The number of results.
    fn result_count(&self) -> usize;

    /// Infers the facts of the results from those of the parameters. What is wrong inside the body is reported by the
    /// implementation with the place inside the body.
    ///
    /// # Errors
    /// When the body cannot be inferred at all.
    fn infer(&self, parameters: &[ValueFacts]) -> OpResult<Vec<ValueFacts>>;

    /// Runs the body once.
    ///
    /// # Errors
    /// What went wrong inside, naming the layer of the body.
    fn run(&self, parameters: &[Tensor], environment: &mut Environment) -> OpResult<Vec<Tensor>>;
}

/// How a port is cut into iterations, or put together from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slicing {
    /// The axis.
    pub axis: i64,
    /// The first position; negative counts from the end.
    pub start: i64,
    /// The last position (inclusive); negative counts from the end.
    pub end: i64,
    /// The step from iteration to iteration; negative goes backwards.
    pub stride: i64,
    /// How many positions an iteration takes.
    pub part_size: i64,
}

/// One entry of the `input` part of a port map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputMap {
    /// The input of the layer, counted from 0 (IR writes port ids; the graph translates).
    pub external: usize,
    /// The parameter of the body, counted from 0.
    pub parameter: usize,
    /// The cut, if the input is cut into iterations.
    pub slicing: Option<Slicing>,
}

/// One entry of the `output` part of a port map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputMap {
    /// The output of the layer, counted from 0.
    pub external: usize,
    /// The result of the body, counted from 0.
    pub result: usize,
    /// How the iterations are put together; without it, the last one counts.
    pub slicing: Option<Slicing>,
}

/// A value that goes from the end of an iteration to the beginning of the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackEdge {
    /// The result of the body that gives the value.
    pub result: usize,
    /// The parameter of the body that takes it.
    pub parameter: usize,
}

/// The ports of a Loop body that have a purpose of their own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpecialPorts {
    /// The parameter that takes the number of the iteration.
    pub current_iteration: Option<usize>,
    /// The result that says whether another iteration follows.
    pub execution_condition: Option<usize>,
}

/// The port map of one body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyPorts {
    /// Parameters of the body, counted.
    pub parameter_count: usize,
    /// Results of the body, counted.
    pub result_count: usize,
    /// What goes in.
    pub inputs: Vec<InputMap>,
    /// What comes out.
    pub outputs: Vec<OutputMap>,
    /// What goes around.
    pub back_edges: Vec<BackEdge>,
    /// The ports with a purpose.
    pub special: SpecialPorts,
}
