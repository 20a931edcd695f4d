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
        let boxes = self.boxes(choice);
        let is_large = |b: &Proposed| {
            let c = b.corners;
            choice.least.0 <= c[3] - c[1] + choice.extra && choice.least.1 <= c[2] - c[0] + choice.extra
        };
        let mut order: Vec<usize> = (0..boxes.len()).collect();
        if choice.small_boxes == SmallBoxes::BeforeRanking {
            order.retain(|i| is_large(&boxes[*i]));
        }
        order.sort_by(|a, b| descending(boxes[*a].score, boxes[*b].score));
        order.truncate(choice.ranked);
        order.retain(|i| is_large(&boxes[*i]));
        let chosen = suppress(&order, choice.suppression, |a, b| {
            overlap(&boxes[a].corners, &boxes[b].corners, choice.overlap_extra)
        });
        chosen.iter().map(|i| boxes[*i]).collect()
    }

    /// All refined boxes, cut to the image, cell by cell.
    fn boxes(&self, choice: &Choice) -> Vec<Proposed> {
        let per_cell = self.scores.len() / self.cells.max(1);
        let limits = [choice.image.1, choice.image.0, choice.image.1, choice.image.0];
        // Comparisons with NaN are false, so NaN passes and is no large box.
        let cut = |value: f32, limit: f32| if value > limit { limit.max(0.0) } else { clip_below(value) };
        let refined = self.anchors.chunks_exact(4).enumerate().map(|(i, anchor)| {
            let (cell, k) = (i / per_cell, i % per_cell);
            let anchor = [0, 1, 2, 3].map(|j: usize| anchor[j] as f32);
            let deltas = [0, 1, 2, 3].map(|j| self.deltas[(k * 4 + j) * self.cells + cell] as f32);
            let corners = refine(anchor, deltas, choice.extra, MAX_GROWTH);
            let corners = [0, 1, 2, 3].map(|j: usize| cut(corners[j], limits[j] - choice.extra));
            Proposed { corners, score: self.scores[k * self.cells + cell] as f32 }
        });
        refined.collect()
    }
}

/// The value, or 0 if it is negative.
pub(crate) fn clip_below(value: f32) -> f32 {
    if value < 0.0 { 0.0 } else { value }
}
