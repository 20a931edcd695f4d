//! Topological order, close to the order of the file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Orders `count` nodes so that every producer stands before its consumers; among the free ones the smallest index goes
/// first. `producers[i]` are the nodes that node `i` reads.
///
/// # Errors
/// The nodes that lie on cycles or depend on one.
pub fn topological(producers: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let count = producers.len();
    // Most files are in this order already.
    if producers.iter().enumerate().all(|(node, sources)| sources.iter().all(|source| *source < node)) {
        return Ok((0..count).collect());
    }
    let mut waiting: Vec<usize> = producers.iter().map(Vec::len).collect();
    let mut consumers: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (node, sources) in producers.iter().enumerate() {
        for &source in sources {
            consumers[source].push(node);
        }
    }
    let mut free: BinaryHeap<Reverse<usize>> = (0..count).filter(|i| waiting[*i] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(node)) = free.pop() {
        order.push(node);
        for &consumer in &consumers[node] {
            waiting[consumer] -= 1;
            if waiting[consumer] == 0 {
                free.push(Reverse(consumer));
            }
        }
    }
    if order.len() == count {
        return Ok(order);
    }
    Err((0..count).filter(|i| waiting[*i] > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn producers_stand_first_and_cycles_are_named() {
        assert_eq!(topological(&[vec![2], vec![], vec![1]]), Ok(vec![1, 2, 0]));
        assert_eq!(topological(&[vec![1], vec![0], vec![]]), Err(vec![0, 1]));
    }
}
