//! What an operation says is wrong.

use std::borrow::Cow;
use std::fmt;

use ovir_diagnostics::Code;
use ovir_tensor::TensorError;

/// The part of a layer that a finding is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blame {
    /// The layer as a whole.
    Node,
    /// An input port, counted from 0.
    Input(usize),
    /// An output port, counted from 0.
    Output(usize),
    /// An attribute.
    Attribute(Cow<'static, str>),
}

impl Blame {
    /// The attribute `name`.
    pub fn attribute(name: &'static str) -> Blame {
        Blame::Attribute(Cow::Borrowed(name))
    }
}

/// A violated rule: what is wrong, of which part, and what to do about it. The graph adds the layer and the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpError(Box<Problem>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    code: Code,
    blame: Blame,
    message: String,
    notes: Vec<String>,
    help: Option<String>,
}

/// The result of inference and evaluation.
pub type OpResult<T = ()> = Result<T, OpError>;

impl OpError {
    /// A violation with any code.
    pub fn new(code: Code, blame: Blame, message: impl Into<String>) -> OpError {
        OpError(Box::new(Problem { code, blame, message: message.into(), notes: Vec::new(), help: None }))
    }

    /// Ranks or dimensions that do not fit.
    pub fn shape(blame: Blame, message: impl Into<String>) -> OpError {
        OpError::new(Code::ShapeMismatch, blame, message)
    }

    /// Element types that do not fit.
    pub fn element_type(blame: Blame, message: impl Into<String>) -> OpError {
        OpError::new(Code::TypeMismatch, blame, message)
    }

    /// A value of an input that is not allowed.
    pub fn value(blame: Blame, message: impl Into<String>) -> OpError {
        OpError::new(Code::InvalidValue, blame, message)
    }

    /// An index that addresses nothing.
    pub fn index(blame: Blame, message: impl Into<String>) -> OpError {
        OpError::new(Code::IndexOutOfRange, blame, message)
    }

    /// An attribute value that is not allowed.
    pub fn attribute(name: &'static str, message: impl Into<String>) -> OpError {
        OpError::new(Code::InvalidAttribute, Blame::attribute(name), message)
    }

    /// An element type, or a combination of attributes, that this implementation cannot compute.
    pub fn unsupported(message: impl Into<String>) -> OpError {
        OpError::new(Code::NotImplemented, Blame::Node, message)
    }

    /// Adds a fact.
    pub fn note(mut self, text: impl Into<String>) -> OpError {
        self.0.notes.push(text.into());
        self
    }

    /// Adds what to change.
    pub fn help(mut self, text: impl Into<String>) -> OpError {
        self.0.help = Some(text.into());
        self
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The part of the layer.
    pub fn blame(&self) -> &Blame {
        &self.0.blame
    }

    /// The sentence.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Further facts.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }

    /// What to change.
    pub fn help_text(&self) -> Option<&str> {
        self.0.help.as_deref()
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.blame() {
            Blame::Node => {}
            Blame::Input(port) => write!(f, "input {port}: ")?,
            Blame::Output(port) => write!(f, "output {port}: ")?,
            Blame::Attribute(name) => write!(f, "attribute `{name}`: ")?,
        }
        f.write_str(self.message())
    }
}

impl std::error::Error for OpError {}

impl From<TensorError> for OpError {
    fn from(error: TensorError) -> OpError {
        let code = match error {
            TensorError::TooLarge { .. } | TensorError::OutOfMemory { .. } => Code::LimitExceeded,
            TensorError::WrongElementType { .. } => Code::TypeMismatch,
            _ => Code::ShapeMismatch,
        };
        OpError::new(code, Blame::Node, error.to_string())
    }
}
