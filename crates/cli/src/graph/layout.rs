//! A layered layout of a graph without cycles: ranks from top to bottom, few crossings, straight chains.
//!
//! Time and memory are linear in nodes and edges but for sorting within ranks: edges over many ranks get no place of
//! their own in each of them, as the method of Sugiyama, Tagawa and Toda (1981) has it, but in the first few only.

/// The distance between ranks.
const RANK_GAP: f32 = 36.0;

/// The distance between boxes of a rank.
const GAP: f32 = 24.0;

/// The width that an edge takes in a rank that it passes.
const LANE: f32 = 14.0;

/// An edge over more ranks than these is drawn in one curve, so that long edges do not multiply.
const MAX_LANES: usize = 12;

/// Rounds of ordering the ranks by their neighbours.
const ORDER_ROUNDS: usize = 8;

/// Rounds of moving boxes to their neighbours.
const PLACE_ROUNDS: usize = 8;

/// The width and height of a box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    pub width: f32,
    pub height: f32,
}

/// A point; y grows downwards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub x: f32,
    pub y: f32,
}

/// Where everything is.
#[derive(Debug, Default)]
pub struct Layout {
    /// The left upper corners of the boxes.
    pub corners: Vec<Point>,
    /// For each edge the points that it passes, from the lower side of the first box to the upper side of the second.
    pub routes: Vec<Vec<Point>>,
    /// The size of the whole.
    pub width: f32,
    /// The size of the whole.
    pub height: f32,
}

/// A box, or the place of an edge in a rank that it passes.
struct Cell {
    rank: usize,
    width: f32,
    above: Vec<u32>,
    below: Vec<u32>,
    /// The middle.
    x: f32,
}

/// Lays out boxes of the given sizes. Edges go from a lower index to a higher one; others are drawn, but do not count.
pub fn lay_out(sizes: &[Size], edges: &[(usize, usize)]) -> Layout {
    if sizes.is_empty() {
        return Layout::default();
    }
    let ranks = ranks(sizes.len(), edges);
    let (mut cells, lanes) = cells(sizes, edges, &ranks);
    let mut rows = rows(&cells);
    order(&mut cells, &mut rows);
    place(&mut cells, &rows);
    finish(sizes, edges, &cells, &lanes, rows.len())
}

/// The rank of each node: below all its predecessors, and as near above its successors as that allows where it has no
/// predecessor, so that inputs of late layers do not pile up at the top.
fn ranks(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut sorted: Vec<(usize, usize)> = edges.iter().copied().filter(|(from, to)| from < to).collect();
    sorted.sort_unstable();
    let mut ranks = vec![0; count];
    let mut has_predecessor = vec![false; count];
    for (from, to) in &sorted {
        ranks[*to] = ranks[*to].max(ranks[*from] + 1);
        has_predecessor[*to] = true;
    }
    let mut nearest = vec![usize::MAX; count];
    for (from, to) in &sorted {
        nearest[*from] = nearest[*from].min(ranks[*to]);
    }
    for node in 0..count {
        if !has_predecessor[node] && nearest[node] != usize::MAX {
            ranks[node] = nearest[node].saturating_sub(1);
        }
    }
    ranks
}

/// Boxes and lanes with their neighbours, and the lanes of each edge.
fn cells(sizes: &[Size], edges: &[(usize, usize)], ranks: &[usize]) -> (Vec<Cell>, Vec<Vec<u32>>) {
    let cell = |rank, width| Cell { rank, width, above: Vec::new(), below: Vec::new(), x: 0.0 };
    let mut cells: Vec<Cell> = sizes.iter().zip(ranks).map(|(size, rank)| cell(*rank, size.width)).collect();
    let mut lanes = Vec::with_capacity(edges.len());
    for (from, to) in edges {
        let mut passed = Vec::new();
        let span = ranks[*to].saturating_sub(ranks[*from]);
        let mut last = *from;
        if (2..=MAX_LANES).contains(&span) {
            for rank in ranks[*from] + 1..ranks[*to] {
                let lane = cells.len();
                cells.push(cell(rank, LANE));
                join(&mut cells, last, lane);
                passed.push(lane as u32);
                last = lane;
            }
        }
        if span > 0 {
            join(&mut cells, last, *to);
        }
        lanes.push(passed);
    }
    (cells, lanes)
}

fn join(cells: &mut [Cell], upper: usize, lower: usize) {
    cells[upper].below.push(lower as u32);
    cells[lower].above.push(upper as u32);
}

/// The cells of each rank, in the order in which a walk from the top finds them: neighbours in the graph are neighbours
/// in the rank.
fn rows(cells: &[Cell]) -> Vec<Vec<u32>> {
    let count = cells.iter().map(|cell| cell.rank + 1).max().unwrap_or(0);
    let mut rows = vec![Vec::new(); count];
    let mut is_seen = vec![false; cells.len()];
    for start in 0..cells.len() {
        let mut stack = vec![start as u32];
        while let Some(cell) = stack.pop() {
            let index = cell as usize;
            if std::mem::replace(&mut is_seen[index], true) {
                continue;
            }
            rows[cells[index].rank].push(cell);
            stack.extend(cells[index].below.iter().rev());
        }
    }
    rows
}

/// Orders each rank by the means of its neighbours' places, downwards and upwards in turn.
fn order(cells: &mut [Cell], rows: &mut [Vec<u32>]) {
    for row in rows.iter() {
        number(cells, row);
    }
    for round in 0..ORDER_ROUNDS {
        let is_down = round % 2 == 0;
        let sweep: Vec<usize> = if is_down { (0..rows.len()).collect() } else { (0..rows.len()).rev().collect() };
        for index in sweep {
            let row = &mut rows[index];
            let mut keyed: Vec<(f32, u32)> = row
                .iter()
                .map(|cell| {
                    let cell_of = &cells[*cell as usize];
                    let near = if is_down { &cell_of.above } else { &cell_of.below };
                    (mean(cells, near).unwrap_or(cell_of.x), *cell)
                })
                .collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (place, (_, cell)) in row.iter_mut().zip(keyed) {
                *place = cell;
            }
            number(cells, row);
        }
    }
}

/// Spreads the places of a rank over 0 to 1, so that ranks of different lengths compare.
fn number(cells: &mut [Cell], row: &[u32]) {
    let count = row.len() as f32;
    for (place, cell) in row.iter().enumerate() {
        cells[*cell as usize].x = (place as f32 + 0.5) / count;
    }
}

fn mean(cells: &[Cell], of: &[u32]) -> Option<f32> {
    let sum: f32 = of.iter().map(|cell| cells[*cell as usize].x).sum();
    (!of.is_empty()).then(|| sum / of.len() as f32)
}

/// Moves the cells of each rank to the middle of their neighbours, as near as order and widths allow.
fn place(cells: &mut [Cell], rows: &[Vec<u32>]) {
    for row in rows {
        let wishes = vec![0.0; row.len()];
        settle(cells, row, &wishes);
    }
    for round in 0..PLACE_ROUNDS {
        let is_last = round + 1 == PLACE_ROUNDS;
        let is_down = round % 2 == 0;
        let sweep: Vec<usize> = if is_down { (0..rows.len()).collect() } else { (0..rows.len()).rev().collect() };
        for index in sweep {
            let row = &rows[index];
            let wishes: Vec<f32> = row
                .iter()
                .map(|cell| {
                    let cell = &cells[*cell as usize];
                    let (above, below) = (mean(cells, &cell.above), mean(cells, &cell.below));
                    let wish = match (is_last, is_down) {
                        (true, _) => above.zip(below).map(|(a, b)| (a + b) / 2.0).or(above).or(below),
                        (false, true) => above,
                        (false, false) => below,
                    };
                    wish.unwrap_or(cell.x)
                })
                .collect();
            settle(cells, row, &wishes);
        }
    }
}

/// The places in order, each far enough from the one before, that are nearest to the wishes in the sense of least
/// squares: neighbours that wish for places too near to each other form a block, which lies at the mean of its wishes.
fn settle(cells: &mut [Cell], row: &[u32], wishes: &[f32]) {
    struct Block {
        first: usize,
        sum: f32,
        count: f32,
    }
    let mut offsets = Vec::with_capacity(row.len());
    let mut offset = 0.0;
    let mut earlier: Option<f32> = None;
    for cell in row {
        let half = cells[*cell as usize].width / 2.0;
        offset += earlier.map_or(0.0, |earlier| earlier + GAP + half);
        earlier = Some(half);
        offsets.push(offset);
    }
    let mut blocks: Vec<Block> = Vec::new();
    for (index, wish) in wishes.iter().enumerate() {
        let mut block = Block { first: index, sum: wish - offsets[index], count: 1.0 };
        while let Some(before) = blocks.pop_if(|before| before.sum / before.count > block.sum / block.count) {
            block = Block { first: before.first, sum: before.sum + block.sum, count: before.count + block.count };
        }
        blocks.push(block);
    }
    for (index, block) in blocks.iter().enumerate() {
        let end = blocks.get(index + 1).map_or(row.len(), |next| next.first);
        for place in block.first..end {
            cells[row[place] as usize].x = offsets[place] + block.sum / block.count;
        }
    }
}

/// Heights, routes and the size of the whole.
fn finish(sizes: &[Size], edges: &[(usize, usize)], cells: &[Cell], lanes: &[Vec<u32>], rows: usize) -> Layout {
    let mut heights = vec![0f32; rows];
    for (size, cell) in sizes.iter().zip(cells) {
        heights[cell.rank] = heights[cell.rank].max(size.height);
    }
    let mut tops = Vec::with_capacity(rows);
    let mut height = 0.0;
    for row in &heights {
        tops.push(height);
        height += row + RANK_GAP;
    }
    let left = cells.iter().map(|cell| cell.x - cell.width / 2.0).fold(f32::INFINITY, f32::min);
    let right = cells.iter().map(|cell| cell.x + cell.width / 2.0).fold(f32::NEG_INFINITY, f32::max);
    let corner = |(size, cell): (&Size, &Cell)| Point { x: cell.x - size.width / 2.0 - left, y: tops[cell.rank] };
    let corners: Vec<Point> = sizes.iter().zip(cells).map(corner).collect();
    let route = |((from, to), lanes): (&(usize, usize), &Vec<u32>)| {
        let mut points = vec![Point { x: cells[*from].x - left, y: corners[*from].y + sizes[*from].height }];
        for lane in lanes {
            let cell = &cells[*lane as usize];
            let x = cell.x - left;
            points.push(Point { x, y: tops[cell.rank] });
            points.push(Point { x, y: tops[cell.rank] + heights[cell.rank] });
        }
        points.push(Point { x: cells[*to].x - left, y: corners[*to].y });
        points
    };
    let routes = edges.iter().zip(lanes).map(route).collect();
    Layout { corners, routes, width: right - left, height: height - RANK_GAP }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    const BOX: Size = Size { width: 100.0, height: 40.0 };

    fn rank_of(layout: &Layout, node: usize) -> f32 {
        layout.corners[node].y
    }

    fn overlaps(sizes: &[Size], layout: &Layout) -> bool {
        let boxes: Vec<_> = sizes.iter().zip(&layout.corners).collect();
        boxes.iter().enumerate().any(|(index, (a, p))| {
            boxes[..index].iter().any(|(b, q)| {
                let is_apart_x = p.x + a.width <= q.x + 0.01 || q.x + b.width <= p.x + 0.01;
                let is_apart_y = p.y + a.height <= q.y + 0.01 || q.y + b.height <= p.y + 0.01;
                !is_apart_x && !is_apart_y
            })
        })
    }

    #[test]
    fn nothing_has_a_layout() {
        let layout = lay_out(&[], &[]);
        assert_eq!((layout.corners.len(), layout.width), (0, 0.0));
    }

    #[test]
    fn a_chain_is_straight() {
        let layout = lay_out(&[BOX; 5], &[(0, 1), (1, 2), (2, 3), (3, 4)]);
        assert!(layout.corners.iter().all(|corner| corner.x == layout.corners[0].x));
        assert!(layout.corners.windows(2).all(|pair| pair[0].y + BOX.height < pair[1].y));
    }

    #[test]
    fn a_residual_connection_passes_beside_the_boxes() {
        let layout = lay_out(&[BOX; 4], &[(0, 1), (1, 2), (2, 3), (0, 3)]);
        assert!(!overlaps(&[BOX; 4], &layout));
        let passes = &layout.routes[3];
        assert_eq!(passes.len(), 6);
        for point in &passes[1..5] {
            let is_beside = |corner: &Point| point.x <= corner.x || point.x >= corner.x + BOX.width;
            assert!(layout.corners[1..3].iter().all(is_beside));
        }
    }

    #[test]
    fn inputs_stand_near_their_readers() {
        let layout = lay_out(&[BOX; 5], &[(0, 1), (1, 2), (2, 4), (3, 4)]);
        assert_eq!(rank_of(&layout, 3), rank_of(&layout, 2));
    }

    #[test]
    fn crossings_that_need_not_be_are_not() {
        // Two chains whose ends are numbered the other way round.
        let layout = lay_out(&[BOX; 4], &[(0, 3), (1, 2)]);
        let x = |node: usize| layout.corners[node].x;
        assert_eq!(x(0) < x(1), x(3) < x(2));
    }

    #[test]
    fn edges_against_the_order_are_drawn() {
        let layout = lay_out(&[BOX; 2], &[(0, 1), (1, 0), (0, 0)]);
        assert_eq!(layout.routes.len(), 3);
    }

    #[test]
    fn boxes_do_not_overlap_and_time_is_linear() {
        // A model of many blocks: a branch of three ways each, a sum, and one value that all blocks read.
        let (mut sizes, mut edges) = (vec![BOX], Vec::new());
        for block in 0..9000 {
            let (from, first) = (block * 5, block * 5 + 1);
            edges.extend([(from, first), (from, first + 1), (from, first + 2), (0, first + 3)]);
            edges.extend([(first, first + 3), (first + 1, first + 3), (first + 2, first + 3), (first + 3, first + 4)]);
            sizes.extend([BOX, Size { width: 60.0, height: 20.0 }, BOX, BOX, BOX]);
        }
        let start = std::time::Instant::now();
        let layout = lay_out(&sizes, &edges);
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
        assert!(!overlaps(&sizes[..500], &layout));
        // Lanes stay few: a long edge has two points.
        assert!(layout.routes.iter().map(Vec::len).sum::<usize>() < 4 * edges.len());
    }
}
