//! The keys under which outputs are written to files.

use std::collections::HashSet;

use ovir_graph::Model as Graph;

/// The keys of all outputs of a graph, each different: the name of the output, with `#k` where `k` earlier outputs have
/// the same name.
pub(crate) fn output_keys(graph: &Graph) -> Vec<String> {
    unique((0..graph.results.len()).map(|index| graph.output_name(index)))
}

fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut taken = HashSet::new();
    let names: Vec<String> = names.collect();
    // A suffix must not make the name that another output has by itself.
    let own: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut keys = Vec::with_capacity(names.len());
    for name in &names {
        let mut key = name.clone();
        let mut earlier = 0usize;
        while !taken.insert(key.clone()) {
            earlier += 1;
            key = format!("{name}#{earlier}");
            while own.contains(key.as_str()) {
                earlier += 1;
                key = format!("{name}#{earlier}");
            }
        }
        keys.push(key);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn keys_differ() {
        let keys = |names: &[&str]| unique(names.iter().map(|n| (*n).to_owned()));
        assert_eq!(keys(&["a", "b", "a", "a"]), ["a", "b", "a#1", "a#2"]);
        assert_eq!(keys(&["a", "a", "a#1"]), ["a", "a#2", "a#1"]);
    }
}
