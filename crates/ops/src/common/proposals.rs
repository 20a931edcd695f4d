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
        if choice.small_boxes == SmallBoxes::BeforeRanking {
            order.retain(|(score, i)| is_large(&self.refined(choice, *i, *score)));
        }
        let ahead = |a: &(f32, usize), b: &(f32, usize)| descending(a.0, b.0).then(a.1.cmp(&b.1));
        if choice.ranked < order.len() {
            order.select_nth_unstable_by(choice.ranked, ahead);
            order.truncate(choice.ranked);
        }
        order.sort_unstable_by(ahead);
        let boxes = order.iter().map(|(score, i)| self.refined(choice, *i, *score));
        let boxes: Vec<Proposed> = boxes.filter(is_large).collect();
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
