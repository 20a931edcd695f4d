//! Looking for functions that are written with several layers.

use ovir_graph::{Model, Node, NodeId, Source, Validated};

use crate::chain::{Uses, aligns_last_axes, remove_unread, single_value};

/// A model as passes read it that look for such functions.
pub(crate) struct Finder<'a> {
    /// The model and what is known of its values.
    pub validated: &'a Validated,
    /// Who reads its values.
    pub uses: Uses,
}

impl<'a> Finder<'a> {
    /// A finder for a model.
    pub fn new(validated: &'a Validated) -> Finder<'a> {
        Finder { validated, uses: Uses::new(validated.model()) }
    }

    /// A layer.
    pub fn node(&self, id: NodeId) -> &'a Node {
        self.validated.model().node(id)
    }

    /// The value of a constant of one element.
    pub fn number(&self, source: Source) -> Option<f32> {
        single_value(self.validated, &self.uses, source)
    }

    /// Whether a layer reads another one, and nothing else does.
    pub fn is_only(&self, id: NodeId, reader: NodeId) -> bool {
        self.uses.only_reader(id) == Some(reader)
    }

    /// The two inputs of a layer of a type.
    pub fn pair(&self, id: NodeId, type_name: &str) -> Option<[Source; 2]> {
        let node = self.node(id);
        let [a, b] = node.inputs[..] else { return None };
        (node.is(type_name) && aligns_last_axes(node)).then_some([a, b])
    }

    /// The other input of a layer of a type that reads a value.
    pub fn other(&self, id: NodeId, type_name: &str, value: Source) -> Option<Source> {
        let [a, b] = self.pair(id, type_name)?;
        if a == value { Some(b) } else { (b == value).then_some(a) }
    }

    /// The layer that alone reads another one, if it is of a type, and its other input.
    pub fn operand(&self, id: NodeId, type_name: &str) -> Option<(NodeId, Source)> {
        let reader = self.uses.only_reader(id)?;
        Some((reader, self.other(reader, type_name, first(id))?))
    }

    /// The value that a layer adds a number to or multiplies by one, and the number.
    pub fn with_number(&self, id: NodeId, type_name: &str) -> Option<(Source, f32)> {
        let [a, b] = self.pair(id, type_name)?;
        self.number(b).map(|number| (a, number)).or_else(|| self.number(a).map(|number| (b, number)))
    }

    /// What a layer squares.
    pub fn squared(&self, id: NodeId) -> Option<Source> {
        let multiplied = self.pair(id, "Multiply").filter(|[a, b]| a == b);
        let raised = || self.pair(id, "Power").filter(|[_, exponent]| self.number(*exponent) == Some(2.0));
        multiplied.or_else(raised).map(|[value, _]| value)
    }
}

/// The first output of a layer.
pub(crate) fn first(node: NodeId) -> Source {
    Source { node, port: 0 }
}

/// A model to which layers were added instead of `replaced` ones, which go if nobody reads them; `None` if there are none, or
/// the layers cannot be ordered.
pub(crate) fn without(mut changed: Model, replaced: Vec<NodeId>) -> Option<Model> {
    if replaced.is_empty() {
        return None;
    }
    remove_unread(&mut changed, replaced);
    changed.sort().then_some(changed)
}
