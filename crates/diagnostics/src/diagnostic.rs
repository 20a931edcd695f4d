//! One finding in an IR file.

use std::fmt;

use serde::Serialize;

use crate::Code;

/// A range of bytes in the XML text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize)]
pub struct Span {
    /// The offset of the first byte.
    pub start: u32,
    /// The offset after the last byte.
    pub end: u32,
}

impl Span {
    /// The range `start..end`; offsets beyond 4 GiB are clamped.
    pub fn new(start: usize, end: usize) -> Span {
        let clamp = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Span { start: clamp(start), end: clamp(end.max(start)) }
    }

    /// The range as indices into the text.
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Said for information: what could not be checked, and why.
    Note,
    /// Wrong, but with one plain meaning; the model still runs.
    Warning,
    /// The file cannot mean what it says, cannot run, or means something only by a silent guess.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// A span with words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What is there; may be empty.
    pub text: String,
}

/// The layer a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct LayerReference {
    /// Its friendly name.
    pub name: String,
    /// Its `id` in the XML.
    pub id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Its `version` attribute.
    pub version: String,
}

impl fmt::Display for LayerReference {
    /// `layer "conv1" (id 12, Convolution opset1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layer \"{}\" (id {}, {}", self.name, self.id, self.type_name)?;
        match self.version.as_str() {
            "" => f.write_str(")"),
            version => write!(f, " {version})"),
        }
    }
}

/// One finding: what is wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The stable code.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence with the values that disagree.
    pub message: String,
    /// Where it is; `None` only if the finding has no place in the file.
    pub primary: Option<Label>,
    /// Other places that matter: the producer of a port, the first of two duplicates.
    pub secondary: Vec<Label>,
    /// The layer it is about.
    pub layer: Option<LayerReference>,
    /// Further facts.
    pub notes: Vec<String>,
    /// What to change.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A finding with the severity that its code usually has.
    pub fn new(code: Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: code.card().severity,
            message: message.into(),
            primary: None,
            secondary: Vec::new(),
            layer: None,
            notes: Vec::new(),
            help: None,
        }
    }

    /// Adds the place.
    pub fn at(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.primary = Some(Label { span, text: text.into() });
        self
    }

    /// Adds another place that matters.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    /// Adds the layer.
    pub fn in_layer(mut self, layer: LayerReference) -> Diagnostic {
        self.layer = Some(layer);
        self
    }

    /// Adds a fact.
    pub fn note(mut self, text: impl Into<String>) -> Diagnostic {
        self.notes.push(text.into());
        self
    }

    /// Adds what to change.
    pub fn help(mut self, text: impl Into<String>) -> Diagnostic {
        self.help = Some(text.into());
        self
    }

    /// Whether the severity is [`Severity::Error`].
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}
