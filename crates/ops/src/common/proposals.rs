//! Proposals of a region proposal network: anchors in every cell of a feature map, refined, ranked and suppressed.

use super::boxes::{Corners, MAX_GROWTH, Suppression, descending, overlap, refine, suppress};

/// What one image offers: every anchor of every cell, its deltas and its score.
pub(crate) struct Anchors<'a> {
    /// `[H, W, anchors, 4]`.
    pub anchors: &'a [f64],
    /// `[anchors * 4, H, W]`.
    pub deltas: &'a [f64],
    /// `[anchors, H, W]`.
    pub scores: &'a [f64],
    /// `H * W`.
    pub cells: usize,
}

/// Which proposals count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    /// Height and width of the image.
    pub image: (f32, f32),
    /// The smallest height and width of a box.
    pub least: (f32, f32),
    /// What a width has beyond the difference of its coordinates.
    pub extra: f32,
    /// The same for overlaps.
    pub overlap_extra: f32,
    /// How many proposals are ranked.
    pub ranked: usize,
    /// When small boxes are left out.
    pub small_boxes: SmallBoxes,
    /// How proposals suppress each other.
    pub suppression: Suppression,
}

/// When boxes below the smallest size are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SmallBoxes {
    /// Before ranking, so that they take nobody's place.
    BeforeRanking,
    /// After ranking.
    AfterRanking,
}

/// A proposed box with its score.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proposed {
    /// The box.
    pub corners: Corners,
    /// The score.
    pub score: f32,
}

impl Anchors<'_> {
    /// The chosen boxes, best first. Of equal scores the first cell and anchor wins.
    pub(crate) fn choose(&self, choice: &Choice) -> Vec<Proposed> {
        let is_large = |b: &Proposed| {
            let c = b.corners;
            choice.least.0 <= c[3] - c[1] + choice.extra && choice.least.1 <= c[2] - c[0] + choice.extra
        };
        let per_cell = self.scores.len() / self.cells.max(1);
        let score = |i: usize| self.scores[i % per_cell * self.cells + i / per_cell] as f32;
        let mut order: Vec<(f32, usize)> = (0..self.scores.len()).map(|i| (score(i), i)).collect();
        let ahead = |a: &(f32, usize), b: &(f32, usize)| descending(a.0, b.0).then(a.1.cmp(&b.1));
        // The best ones are refined first, since most of the others never are.
        let (mut boxes, mut rest) = (Vec::new(), &mut order[..]);
        while boxes.len() < choice.ranked && !rest.is_empty() {
            let count = match choice.small_boxes {
                SmallBoxes::AfterRanking => choice.ranked,
                SmallBoxes::BeforeRanking => (choice.ranked - boxes.len()).max(rest.len() / 4),
            };
            let count = count.min(rest.len());
            if count < rest.len() {
                rest.select_nth_unstable_by(count, ahead);
            }
            let (best, others) = rest.split_at_mut(count);
            best.sort_unstable_by(ahead);
            boxes.extend(best.iter().map(|(score, i)| self.refined(choice, *i, *score)).filter(is_large));
            rest = if choice.small_boxes == SmallBoxes::AfterRanking { &mut [] } else { others };
        }
        boxes.truncate(choice.ranked);
        let all: Vec<usize> = (0..boxes.len()).collect();
        let corners = |i: usize| boxes[i].corners;
        let overlaps = |a: usize, b: usize| overlap(&corners(a), &corners(b), choice.overlap_extra);
        suppress(&all, choice.suppression, corners, overlaps).into_iter().map(|i| boxes[i]).collect()
    }

    /// An anchor's refined box, cut to the image. Anchors are counted cell by cell.
    fn refined(&self, choice: &Choice, i: usize, score: f32) -> Proposed {
        let per_cell = self.scores.len() / self.cells.max(1);
        let (cell, k) = (i / per_cell, i % per_cell);
        let limits = [choice.image.1, choice.image.0, choice.image.1, choice.image.0];
        // Comparisons with NaN are false, so NaN passes and is no large box.
        let cut = |value: f32, limit: f32| if value > limit { limit.max(0.0) } else { clip_below(value) };
        let anchor = [0, 1, 2, 3].map(|j| self.anchors[i * 4 + j] as f32);
        let deltas = [0, 1, 2, 3].map(|j| self.deltas[(k * 4 + j) * self.cells + cell] as f32);
        let corners = refine(anchor, deltas, choice.extra, MAX_GROWTH);
        let corners = [0, 1, 2, 3].map(|j: usize| cut(corners[j], limits[j] - choice.extra));
        Proposed { corners, score }
    }
}

/// The value, or 0 if it is negative.
pub(crate) fn clip_below(value: f32) -> f32 {
    if value < 0.0 { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn the_best_are_those_of_all_boxes_in_order() {
        let (cells, per_cell) = (37, 3);
        let count = cells * per_cell;
        let mut random = 3u32;
        let mut number = |most: f64| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(random >> 16) / 65536.0 * most
        };
        let anchors: Vec<f64> = (0..count)
            .flat_map(|_| {
                let (x, y) = (number(80.0), number(60.0));
                [x, y, x + number(30.0), y + number(30.0)]
            })
            .collect();
        let deltas: Vec<f64> = (0..count * 4).map(|_| number(1.0) - 0.5).collect();
        // Some scores are equal.
        let scores: Vec<f64> = (0..count).map(|_| number(20.0).floor()).collect();
        let offered = Anchors { anchors: &anchors, deltas: &deltas, scores: &scores, cells };
        for (small_boxes, ranked, least) in [SmallBoxes::BeforeRanking, SmallBoxes::AfterRanking]
            .into_iter()
            .flat_map(|small| [0, 1, 7, 40, 1000].map(|ranked| (small, ranked)))
            .flat_map(|(small, ranked)| [0.0, 12.0, 900.0].map(|least| (small, ranked, least)))
        {
            let choice = Choice {
                image: (60.0, 80.0),
                least: (least, least / 2.0),
                extra: 1.0,
                overlap_extra: 1.0,
                ranked,
                small_boxes,
                suppression: Suppression { most: 30, threshold: 0.4, eta: 1.0 },
            };
            let score = |i: usize| scores[i % per_cell * cells + i / per_cell] as f32;
            let is_large = |corners: &Corners| {
                least <= corners[3] - corners[1] + 1.0 && least / 2.0 <= corners[2] - corners[0] + 1.0
            };
            let refined = |i: &usize| offered.refined(&choice, *i, score(*i)).corners;
            let mut order: Vec<usize> = (0..count).collect();
            if small_boxes == SmallBoxes::BeforeRanking {
                order.retain(|i| is_large(&refined(i)));
            }
            order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
            order.truncate(ranked);
            order.retain(|i| is_large(&refined(i)));
            let mut expected: Vec<(Corners, f32)> = Vec::new();
            for i in &order {
                let corners = refined(i);
                if expected.len() < 30 && expected.iter().all(|(other, _)| overlap(&corners, other, 1.0) <= 0.4) {
                    expected.push((corners, score(*i)));
                }
            }
            let chosen: Vec<(Corners, f32)> = offered.choose(&choice).iter().map(|b| (b.corners, b.score)).collect();
            assert_eq!(chosen, expected, "{small_boxes:?} {ranked} {least}");
        }
    }
}
