//! What passes say about their work.

use ovir_graph::Node;

/// What one pass did to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassReport {
    /// The name of the pass.
    pub name: &'static str,
    /// The layers before it.
    pub layers_before: usize,
    /// The layers after it.
    pub layers_after: usize,
    /// What it did, and what it looked at and left alone, in the order of the layers.
    pub notes: Vec<Note>,
}

/// One thing that a pass did or declined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The friendly name of the layer.
    pub friendly_name: String,
    /// The type of the layer.
    pub type_name: String,
    /// Whether the pass changed the layer.
    pub is_applied: bool,
    /// What was done, or why nothing was.
    pub text: String,
}

/// Collects notes for whoever asked for them.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    notes: Option<Vec<Note>>,
}

impl Trace {
    /// A trace that keeps what it is told, or nothing.
    pub fn new(is_wanted: bool) -> Trace {
        Trace { notes: is_wanted.then(Vec::new) }
    }

    /// The pass changed a layer.
    pub fn applied(&mut self, node: &Node, text: impl FnOnce() -> String) {
        self.note(node, true, text);
    }

    /// The pass looked at a layer and left it alone.
    pub fn declined(&mut self, node: &Node, text: impl FnOnce() -> String) {
        self.note(node, false, text);
    }

    /// Takes the notes out.
    pub fn take(&mut self) -> Vec<Note> {
        self.notes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn note(&mut self, node: &Node, is_applied: bool, text: impl FnOnce() -> String) {
        if let Some(notes) = &mut self.notes {
            let (friendly_name, type_name) = (node.friendly_name.clone(), node.type_name.to_string());
            notes.push(Note { friendly_name, type_name, is_applied, text: text() });
        }
    }
}

/// A layer in the words of a note.
pub(crate) fn named(node: &Node) -> String {
    format!("{} \"{}\"", node.type_name, node.friendly_name)
}

/// Layers in the words of a note.
pub(crate) fn all_named<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> String {
    let names: Vec<String> = nodes.into_iter().map(named).collect();
    names.join(", ")
}
