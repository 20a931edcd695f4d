//! Edges: which output feeds which input, and the order that follows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use ovir_diagnostics::{Code, Diagnostic, Span};
use ovir_ir::{Body, Edge, Layer, Located, Port};

use crate::order::topological;

/// Layers with more ports than this get an index of them.
const MANY_PORTS: usize = 16;

/// The most names and places of a cycle that are shown.
const MAX_SHOWN: usize = 8;

/// The producer of an input: layer and output port as positions in the file, and the edge.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) layer: usize,
    pub(super) port: usize,
    pub(super) span: Span,
}

/// The producers of all inputs of all layers.
pub(super) struct Links {
    all: Vec<Option<Link>>,
    /// Where the inputs of each layer begin, and the end.
    first: Vec<usize>,
}

/// The layers of a body, connected.
pub(super) struct Edges {
    /// For each input port of each layer, its producer.
    pub(super) links: Links,
    /// The layers in topological order.
    pub(super) order: Vec<usize>,
}

/// Where a layer id leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Layer(usize),
    /// Several layers have the id, so that nobody knows which one an edge means; this is the first of them.
    Ambiguous(usize),
}

/// Where the layer ids of a body lead.
struct LayerIds {
    /// By id, for those that are not much larger than the number of layers, as nearly all are.
    small: Vec<Option<Target>>,
    large: HashMap<u64, Target>,
}

struct Connector<'d> {
    body: &'d Body<'d>,
    ids: LayerIds,
    /// The ports of layers that have many.
    ports: HashMap<(usize, bool), HashMap<u64, usize>>,
    /// Layers that have the id of another one, or several ports with the same id.
    ambiguous: HashSet<usize>,
    /// Whether layers share an id, so that the ids of others are missing.
    has_shared_ids: bool,
    /// Input ports for which an edge was there that could not be used.
    excused: HashSet<(usize, usize)>,
    /// Edges to a number that a port would have by its place, but has not: by layer, side and place.
    misnumbered: BTreeMap<(usize, bool, usize), Vec<Edge>>,
    /// Layers to which an edge leads whose port nobody knows.
    unclear: HashSet<usize>,
    /// The most findings that are of use.
    findings: usize,
    diagnostics: &'d mut Vec<Diagnostic>,
}

/// Follows the edges of a body, and reports ids that are not unique, edges that lead nowhere or meet, inputs without
/// producer, and cycles.
pub(super) fn connect<'d>(body: &'d Body<'d>, findings: usize, diagnostics: &'d mut Vec<Diagnostic>) -> Edges {
    let mut connector = Connector {
        body,
        ids: LayerIds::of(body.layers.len()),
        ports: HashMap::new(),
        ambiguous: HashSet::new(),
        has_shared_ids: false,
        excused: HashSet::new(),
        misnumbered: BTreeMap::new(),
        unclear: HashSet::new(),
        findings,
        diagnostics,
    };
    connector.layer_ids();
    let mut links = Links::of(body);
    for edge in &body.edges {
        connector.follow(edge, &mut links);
    }
    connector.report_misnumbered(&links);
    let order = connector.order(&mut links);
    connector.missing_edges(&links);
    Edges { links, order }
}

impl Links {
    fn of(body: &Body<'_>) -> Links {
        let mut first = Vec::with_capacity(body.layers.len() + 1);
        first.push(0);
        let mut count = 0;
        first.extend(body.layers.iter().map(|layer| {
            count += layer.inputs.len();
            count
        }));
        Links { all: vec![None; count], first }
    }

    /// The producers of the inputs of a layer.
    pub(super) fn get(&self, layer: usize) -> &[Option<Link>] {
        &self.all[self.first[layer]..self.first[layer + 1]]
    }

    fn get_mut(&mut self, layer: usize) -> &mut [Option<Link>] {
        &mut self.all[self.first[layer]..self.first[layer + 1]]
    }

    /// The producers of each layer.
    fn iter(&self) -> impl Iterator<Item = &[Option<Link>]> {
        self.first.windows(2).map(|range| &self.all[range[0]..range[1]])
    }

    fn producers(&self) -> Vec<Vec<usize>> {
        self.iter().map(|inputs| inputs.iter().flatten().map(|link| link.layer).collect()).collect()
    }
}

impl LayerIds {
    fn of(layers: usize) -> LayerIds {
        LayerIds { small: vec![None; 2 * layers], large: HashMap::new() }
    }

    fn get(&self, id: u64) -> Option<Target> {
        match usize::try_from(id).ok().and_then(|id| self.small.get(id)) {
            Some(target) => *target,
            None => self.large.get(&id).copied(),
        }
    }

    fn set(&mut self, id: u64, target: Target) {
        match usize::try_from(id).ok().and_then(|id| self.small.get_mut(id)) {
            Some(place) => *place = Some(target),
            None => drop(self.large.insert(id, target)),
        }
    }
}

impl Connector<'_> {
    /// Whether there are more findings than anybody reads.
    fn is_full(&self) -> bool {
        self.diagnostics.len() > self.findings
    }

    fn layer_ids(&mut self) {
        for (index, layer) in self.body.layers.iter().enumerate() {
            self.port_ids(index, layer);
            let Some(Target::Layer(first) | Target::Ambiguous(first)) = self.ids.get(layer.id.value) else {
                self.ids.set(layer.id.value, Target::Layer(index));
                continue;
            };
            self.ids.set(layer.id.value, Target::Ambiguous(first));
            self.ambiguous.extend([first, index]);
            self.has_shared_ids = true;
            if self.is_full() {
                continue;
            }
            let message = format!("two layers have the id {}", layer.id_text);
            self.diagnostics.push(
                Diagnostic::new(Code::DuplicateLayerId, message)
                    .in_layer(layer.reference())
                    .at(layer.id.span, "second use")
                    .also(self.body.layers[first].id.span, "first use")
                    .help("give every layer its own id, and let the edges follow"),
            );
        }
    }

    fn port_ids(&mut self, index: usize, layer: &Layer<'_>) {
        for (is_output, ports) in [(false, &layer.inputs), (true, &layer.outputs)] {
            if ports.len() <= MANY_PORTS {
                for (at, port) in ports.iter().enumerate() {
                    if let Some(first) = ports[..at].iter().find(|p| p.id.value == port.id.value) {
                        self.duplicate_port(index, layer, first, port);
                    }
                }
                continue;
            }
            let mut known: HashMap<u64, usize> = HashMap::with_capacity(ports.len());
            for (at, port) in ports.iter().enumerate() {
                match known.get(&port.id.value) {
                    Some(first) => self.duplicate_port(index, layer, &ports[*first], port),
                    None => drop(known.insert(port.id.value, at)),
                }
            }
            self.ports.insert((index, is_output), known);
        }
    }

    fn duplicate_port(&mut self, index: usize, layer: &Layer<'_>, first: &Port<'_>, second: &Port<'_>) {
        self.ambiguous.insert(index);
        if self.is_full() {
            return;
        }
        let message = format!("{} has two ports with the id {}", layer.reference(), second.id.value);
        self.diagnostics.push(
            Diagnostic::new(Code::DuplicatePortId, message)
                .in_layer(layer.reference())
                .at(second.id.span, "second use")
                .also(first.id.span, "first use"),
        );
    }

    fn follow(&mut self, edge: &Edge, links: &mut Links) {
        let from = self.layer(edge.from_layer, "from", edge);
        let to = self.layer(edge.to_layer, "to", edge);
        let output = match from {
            Some(Target::Layer(layer)) => self.port(layer, true, edge.from_port, edge),
            _ => None,
        };
        let Some(Target::Layer(consumer)) = to else { return };
        let Some(input) = self.port(consumer, false, edge.to_port, edge) else { return };
        let (Some(Target::Layer(producer)), Some(output)) = (from, output) else {
            // The edge was meant for this port, so the port does not lack one.
            self.excused.insert((consumer, input));
            return;
        };
        if let Some(first) = links.get(consumer)[input] {
            let reference = self.body.layers[consumer].reference();
            if self.ambiguous.contains(&consumer) || self.is_full() {
                return;
            }
            let message = format!("two edges end at input port {} of {reference}", edge.to_port.value);
            let is_same = first.layer == producer && first.port == output;
            self.diagnostics.push(
                Diagnostic::new(Code::DuplicateEdge, message)
                    .in_layer(reference)
                    .at(edge.span, "second edge")
                    .also(first.span, "first edge")
                    .help(if is_same { "remove one of them" } else { "remove one of them; an input has one producer" }),
            );
            return;
        }
        links.get_mut(consumer)[input] = Some(Link { layer: producer, port: output, span: edge.span });
    }

    fn layer(&mut self, id: Located<u64>, end: &str, edge: &Edge) -> Option<Target> {
        let found = self.ids.get(id.value);
        if found.is_none() && !self.body.is_incomplete && !self.has_shared_ids && !self.is_full() {
            let message = format!("an edge goes {end} layer {}, which does not exist", id.value);
            let diagnostic = Diagnostic::new(Code::DanglingEdge, message).at(id.span, "no layer has this id");
            let other = if end == "from" { (edge.to_layer, "ends at") } else { (edge.from_layer, "starts at") };
            self.diagnostics.push(match self.ids.get(other.0.value) {
                Some(Target::Layer(index)) => {
                    diagnostic.note(format!("the edge {} {}", other.1, self.body.layers[index].reference()))
                }
                _ => diagnostic,
            });
        }
        found
    }

    fn port(&mut self, index: usize, is_output: bool, id: Located<u64>, edge: &Edge) -> Option<usize> {
        let layer = &self.body.layers[index];
        let ports = if is_output { &layer.outputs } else { &layer.inputs };
        let found = match self.ports.get(&(index, is_output)) {
            Some(known) => known.get(&id.value).copied(),
            None => ports.iter().position(|port| port.id.value == id.value),
        };
        let is_excused = layer.is_incomplete || self.body.is_incomplete || self.ambiguous.contains(&index);
        if found.is_none() && !is_excused {
            // Ports are numbered through: inputs first, then outputs.
            let before = if is_output { layer.inputs.len() } else { 0 };
            let place = usize::try_from(id.value).ok().and_then(|id| id.checked_sub(before));
            match place.filter(|place| *place < ports.len()) {
                Some(place) => self.misnumbered.entry((index, is_output, place)).or_default().push(*edge),
                None => self.no_port(layer, is_output, id, edge),
            }
        }
        found
    }

    /// Reports the edges that name a port by its place: if none names it by its own number, that number is wrong.
    fn report_misnumbered(&mut self, links: &Links) {
        let read: HashSet<(usize, usize)> = match self.misnumbered.is_empty() {
            true => HashSet::new(),
            false => links.all.iter().flatten().map(|link| (link.layer, link.port)).collect(),
        };
        for ((index, is_output, place), edges) in std::mem::take(&mut self.misnumbered) {
            let layer: &Layer<'_> = &self.body.layers[index];
            let is_used = if is_output { read.contains(&(index, place)) } else { links.get(index)[place].is_some() };
            let end = |edge: &Edge| if is_output { edge.from_port } else { edge.to_port };
            let Some(named) = edges.first().map(end).filter(|_| !is_used) else {
                edges.iter().for_each(|edge| self.no_port(layer, is_output, end(edge), edge));
                continue;
            };
            let (kind, port) =
                if is_output { ("output", &layer.outputs[place]) } else { ("input", &layer.inputs[place]) };
            let reference = layer.reference();
            let own = port.id.value;
            let message =
                format!("{reference}: no edge names {kind} port {own}, and there is no {kind} port {}", named.value);
            let mut diagnostic = Diagnostic::new(Code::DanglingEdge, message).in_layer(reference);
            diagnostic = diagnostic.at(port.id.span, format!("is this port {}?", named.value));
            for id in edges.iter().take(MAX_SHOWN).map(end) {
                diagnostic = diagnostic.also(id.span, format!("an edge to port {}", id.value));
            }
            self.diagnostics
                .push(diagnostic.help("ports are numbered through, inputs first; edges name these numbers"));
            if !is_output {
                self.excused.insert((index, place));
            }
        }
    }

    fn no_port(&mut self, layer: &Layer<'_>, is_output: bool, id: Located<u64>, edge: &Edge) {
        // The ports that such an edge may have been meant for are not reported as well.
        if let Some(Target::Layer(index)) = self.ids.get(edge.to_layer.value).filter(|_| !is_output) {
            self.unclear.insert(index);
        }
        if self.is_full() {
            return;
        }
        let (kind, ports) = if is_output { ("output", &layer.outputs) } else { ("input", &layer.inputs) };
        let known: Vec<String> = ports.iter().take(MAX_SHOWN).map(|p| p.id.value.to_string()).collect();
        let reference = layer.reference();
        let message = format!("the edge names {kind} port {} of {reference}, which does not exist", id.value);
        let more = if ports.len() > MAX_SHOWN { ", ..." } else { "" };
        let note = match known.is_empty() {
            true => format!("the layer has no {kind} ports"),
            false => format!("the layer has the {kind} ports {}{more}", known.join(", ")),
        };
        self.diagnostics.push(
            Diagnostic::new(Code::DanglingEdge, message)
                .in_layer(reference)
                .at(id.span, "no such port")
                .also(layer.span, "the layer")
                .note(note),
        );
    }

    fn missing_edges(&mut self, links: &Links) {
        if self.body.is_incomplete {
            return;
        }
        for (index, layer) in self.body.layers.iter().enumerate() {
            for (at, port) in layer.inputs.iter().enumerate() {
                let is_excused = self.has_shared_ids
                    || self.ambiguous.contains(&index)
                    || self.unclear.contains(&index)
                    || self.excused.contains(&(index, at));
                if links.get(index)[at].is_some() || is_excused {
                    continue;
                }
                if self.is_full() {
                    return;
                }
                let message = format!("{}: input port {} has no producer", layer.reference(), port.id.value);
                self.diagnostics.push(
                    Diagnostic::new(Code::MissingEdge, message)
                        .in_layer(layer.reference())
                        .at(port.span, "no edge ends here")
                        .help("add an edge that ends at this port, or remove the port"),
                );
            }
        }
    }

    /// The order in which layers are built. Edges on cycles are reported, once for each tangle of cycles, and taken out
    /// of `links`.
    fn order(&mut self, links: &mut Links) -> Vec<usize> {
        let is_before =
            |(index, inputs): (usize, &[Option<Link>])| inputs.iter().flatten().all(|link| link.layer < index);
        if links.iter().enumerate().all(is_before) {
            return (0..self.body.layers.len()).collect();
        }
        let before = links.producers();
        if let Ok(order) = topological(&before) {
            return order;
        }
        let tangle_of = tangles(&before);
        let mut members: HashMap<usize, Vec<usize>> = HashMap::new();
        for (layer, tangle) in tangle_of.iter().enumerate() {
            members.entry(*tangle).or_default().push(layer);
        }
        let mut cycles: Vec<Vec<usize>> =
            members.into_values().filter(|m| m.len() > 1 || before[m[0]].contains(&m[0])).collect();
        cycles.sort();
        for cycle in cycles {
            self.cycle(&cycle, &tangle_of, links);
        }
        // Without the edges inside of tangles there is an order.
        topological(&links.producers()).unwrap_or_else(|_| (0..self.body.layers.len()).collect())
    }

    fn cycle(&mut self, cycle: &[usize], tangle_of: &[usize], links: &mut Links) {
        let layers = &self.body.layers;
        let names: Vec<String> =
            cycle.iter().take(MAX_SHOWN).map(|i| format!("\"{}\"", layers[*i].name.as_str())).collect();
        let more = if cycle.len() > MAX_SHOWN { ", ..." } else { "" };
        let first = &layers[cycle[0]];
        let message = match cycle.len() {
            1 => format!("{} reads its own output", first.reference()),
            count => format!("{count} layers form a cycle: {}{more}", names.join(", ")),
        };
        let mut diagnostic = Diagnostic::new(Code::Cycle, message).in_layer(first.reference());
        diagnostic = diagnostic.at(first.span, "depends on its own result");
        for consumer in cycle {
            for (port, link) in links.get_mut(*consumer).iter_mut().enumerate() {
                let Some(Link { layer, span, .. }) = *link else { continue };
                if tangle_of[layer] != tangle_of[*consumer] {
                    continue;
                }
                if diagnostic.secondary.len() < MAX_SHOWN {
                    let (from, to) = (layers[layer].name.as_str(), layers[*consumer].name.as_str());
                    diagnostic = diagnostic.also(span, format!("from \"{from}\" to \"{to}\""));
                }
                self.excused.insert((*consumer, port));
                *link = None;
            }
        }
        self.diagnostics.push(diagnostic.help("remove or redirect one of these edges"));
    }
}

/// The strongly connected component of each layer, by its smallest member (Kosaraju's algorithm, without recursion).
fn tangles(producers: &[Vec<usize>]) -> Vec<usize> {
    let count = producers.len();
    let mut consumers: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (node, sources) in producers.iter().enumerate() {
        for source in sources {
            consumers[*source].push(node);
        }
    }
    let mut finished = Vec::with_capacity(count);
    let mut is_seen = vec![false; count];
    for start in 0..count {
        walk(start, producers, &mut is_seen, |node| finished.push(node));
    }
    let mut tangle_of = vec![usize::MAX; count];
    is_seen.fill(false);
    for start in finished.into_iter().rev() {
        let mut members = BinaryHeap::new();
        walk(start, &consumers, &mut is_seen, |node| members.push(Reverse(node)));
        let Some(Reverse(smallest)) = members.peek().copied() else { continue };
        for Reverse(member) in members {
            tangle_of[member] = smallest;
        }
    }
    tangle_of
}

/// Visits what can be reached from `start` and was not seen; `leave` is called when all behind a node has been visited.
fn walk(start: usize, next: &[Vec<usize>], is_seen: &mut [bool], mut leave: impl FnMut(usize)) {
    if std::mem::replace(&mut is_seen[start], true) {
        return;
    }
    let mut path = vec![(start, 0)];
    while let Some((node, position)) = path.last_mut() {
        let Some(successor) = next[*node].get(*position).copied() else {
            leave(*node);
            path.pop();
            continue;
        };
        *position += 1;
        if !std::mem::replace(&mut is_seen[successor], true) {
            path.push((successor, 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn tangles_are_found() {
        // 0 -> 1 -> 2 -> 1, 3 -> 3, 4 alone.
        assert_eq!(tangles(&[vec![], vec![0, 2], vec![1], vec![3], vec![2]]), [0, 1, 1, 3, 4]);
    }
}
