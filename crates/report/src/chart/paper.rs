//! Charts with two axes: scales, from a value to a place on the paper, and the paper with its grid, ticks, lines and
//! the names of lines.
//!
//! All charts use a [`Scale`] for each axis, linear or logarithmic, always with a domain that is not empty. Those of
//! a [`Canvas`] are the caller's, made for its [`width`](Canvas::width) and [`height`](Canvas::height).

use super::svg::{At, Marker, Svg, bold_text_width, fit, polyline, text_width};
use super::{LETTERS, SMALL};

/// Lines of labels are this far apart.
const PITCH: f64 = 15.0;
/// From the end of the paper to the names of lines.
const LEAD: f64 = 22.0;
/// Lines of a legend, from the top.
const LEGEND_LINES: [f64; 2] = [14.0, 30.0];

/// A linear or logarithmic axis.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    domain: (f64, f64),
    paper: (f64, f64),
    is_log: bool,
}

impl Scale {
    /// From the domain to the paper. A domain without width gets some.
    #[must_use]
    pub fn linear(domain: (f64, f64), paper: (f64, f64)) -> Self {
        let (low, high) = domain;
        let domain = if high > low { domain } else { (low - 0.5, low + 0.5) };
        Self { domain, paper, is_log: false }
    }

    /// The same for a domain above zero, on which equal ratios are equal lengths.
    ///
    /// # Panics
    /// If the domain reaches to zero or below: the caller has to look first.
    #[must_use]
    pub fn log(domain: (f64, f64), paper: (f64, f64)) -> Self {
        let (low, high) = domain;
        assert!(low > 0.0, "a logarithmic axis starts above zero, not at {low}");
        let domain = if high > low { domain } else { (low / 2.0, low * 2.0) };
        Self { domain, paper, is_log: true }
    }

    /// Where a value stands; values outside the domain stand at its ends.
    #[must_use]
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = self.domain;
        let value = value.clamp(low, high);
        let part = if self.is_log {
            (value / low).ln() / (high / low).ln()
        } else {
            (value - low) / (high - low)
        };
        self.paper.0 + part * (self.paper.1 - self.paper.0)
    }

    /// Round values within the domain, at most about `wanted`.
    #[must_use]
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        if self.is_log { self.log_ticks(wanted) } else { self.linear_ticks(wanted) }
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<f64> {
        let (low, high) = self.domain;
        let rough = (high - low) / wanted.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let nice = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|nice| nice * power >= rough);
        let step = nice.unwrap_or(10.0) * power;
        let first = (low / step).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        (first..=last).map(|index| index as f64 * step).collect()
    }

    fn log_ticks(&self, wanted: usize) -> Vec<f64> {
        let (low, high) = self.domain;
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let mut found = Vec::new();
        // From many lines to few; the first set that fits is taken.
        for within in [&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0][..], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]] {
            let values =
                decades.clone().flat_map(|p| within.iter().map(move |w| w * 10f64.powi(p)));
            found = values.filter(|v| (low * 0.9999..=high * 1.0001).contains(v)).collect();
            if found.len() <= wanted {
                return found;
            }
        }
        let stride = found.len().div_ceil(wanted.max(1));
        found.into_iter().step_by(stride).collect()
    }
}

/// What a chart has around its paper.
#[derive(Clone, Copy, Debug)]
pub struct Edges {
    /// For the values.
    pub left: f64,
    /// For the names of lines, or half of the last word below.
    pub right: f64,
    /// For what is said over it.
    pub top: f64,
    /// For the axis below and what it is.
    pub foot: f64,
}

/// A chart that is being drawn.
#[derive(Debug)]
pub struct Canvas {
    pub svg: Svg,
    size: At,
    edges: Edges,
}

/// What a line has at those of its points that say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    None,
    Each(Marker),
    /// A mark under the pointer only: many would hide the line.
    Pointer,
}

/// A point of a line.
#[derive(Clone, Debug)]
pub struct Vertex {
    /// Where it is.
    pub at: At,
    /// Lower and upper end of its band, where it has one.
    pub band: Option<(f64, f64)>,
    /// Words for the pointer; without any it has no mark.
    pub tip: String,
}

/// A line of a chart, cut where there are gaps.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    /// The class that gives it its colour.
    pub class: String,
    /// The number by which it is switched, where it can be.
    pub series: Option<usize>,
    /// What it has at its points.
    pub marks: Marks,
    /// Its pieces, from the left.
    pub pieces: Vec<Vec<Vertex>>,
}

impl Canvas {
    /// An empty one; `key` is unique on the page, `title` and `about` are for screen readers.
    #[must_use]
    pub fn new(key: &str, (title, about): (&str, &str), size: At, edges: Edges) -> Self {
        Self { svg: Svg::new(key, size, title, about), size, edges }
    }

    /// Room at the right for the names of lines, which are cut at `most`.
    #[must_use]
    pub fn room_for<'a>(names: impl IntoIterator<Item = &'a str>, most: f64) -> f64 {
        let widest =
            names.into_iter().map(|name| bold_text_width(name, LETTERS)).fold(0.0, f64::max);
        widest.min(most) + LEAD
    }

    /// The least height of the paper on which the names of so many lines fit.
    #[must_use]
    pub fn height_for(lines: usize) -> f64 {
        lines as f64 * PITCH
    }

    /// From its left to its right.
    #[must_use]
    pub const fn width(&self) -> (f64, f64) {
        (self.edges.left, self.size.0 - self.edges.right)
    }

    /// From its bottom to its top, as values rise.
    #[must_use]
    pub const fn height(&self) -> (f64, f64) {
        (self.size.1 - self.edges.foot, self.edges.top)
    }

    /// Grid lines with their values at the left.
    pub fn values(&mut self, y: &Scale, ticks: &[f64], show: impl Fn(f64) -> String) {
        self.svg.grid(y, ticks, self.width(), "", show);
    }

    /// Ticks below with their words: of the last always, of others where they leave each other room.
    pub fn below(&mut self, x: &Scale, ticks: &[(f64, String)]) {
        let (bottom, _) = self.height();
        let half = |words: &str| text_width(words, LETTERS) / 2.0 + 3.0;
        let last = ticks.last().map_or(f64::INFINITY, |(value, words)| x.at(*value) - half(words));
        let mut free_from = f64::NEG_INFINITY;
        for (index, (value, words)) in ticks.iter().enumerate() {
            let at = x.at(*value);
            let is_last = index + 1 == ticks.len();
            self.svg.line((at, bottom), (at, bottom + 4.0), "tick");
            if is_last || (at - half(words) >= free_from && at + half(words) <= last) {
                self.svg.text((at, bottom + 18.0), "dim mid", words);
                free_from = at + half(words);
            }
        }
    }

    /// What the axis below is.
    pub fn caption(&mut self, words: &str) {
        let (left, right) = self.width();
        let words = fit(words, LETTERS, right - left);
        self.svg.text((f64::midpoint(left, right), self.size.1 - 8.0), "dim mid", &words);
    }

    /// The lines with their names at their ends, none on another; a name is cut at `most`.
    pub fn lines(&mut self, lines: &[Line], most: f64) {
        let ((bottom, top), (_, right)) = (self.height(), self.width());
        let ends: Vec<(&Line, At)> =
            lines.iter().filter_map(|line| Some((line, line.pieces.last()?.last()?.at))).collect();
        let wanted: Vec<f64> = ends.iter().map(|(_, end)| end.1).collect();
        for ((line, end), place) in ends.iter().zip(spread(&wanted, PITCH, (top + 2.0, bottom))) {
            self.open(line);
            let between = (right + 8.0, end.1 + (place - end.1) * 0.5);
            let lead = [(end.0 + 6.0, end.1), between, (right + LEAD - 5.0, place)];
            self.svg.path(&polyline(&lead), "lead");
            let name = fit(&line.name, LETTERS, most);
            self.svg.text((right + LEAD, place + 4.0), "end-label", &name);
            self.svg.close();
        }
    }

    /// The lines with their names over the paper.
    pub fn lines_with_legend(&mut self, lines: &[Line]) {
        let mut places = self.legend(lines.iter().map(|line| line.name.as_str())).into_iter();
        for line in lines {
            self.open(line);
            let place = places.next().expect("a place for each");
            self.svg.text(place, "name", &line.name);
            self.svg.close();
        }
    }

    /// Places for names over the paper, in the next line where one does not fit.
    #[must_use]
    pub fn legend<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<At> {
        let (start, right) = self.width();
        let mut left = start;
        let mut line = 0;
        let place = |name: &str| {
            let width = bold_text_width(name, LETTERS) + 18.0;
            if left + width > right && line + 1 < LEGEND_LINES.len() {
                (left, line) = (start, line + 1);
            }
            left += width;
            (left - width, LEGEND_LINES[line])
        };
        names.map(place).collect()
    }

    /// Opens the group of a line and draws it.
    fn open(&mut self, line: &Line) {
        self.svg.open(&format!("series {}", line.class), line.series);
        for piece in &line.pieces {
            let end = |of: fn((f64, f64)) -> f64| {
                piece.iter().filter_map(move |v| Some((v.at.0, of(v.band?))))
            };
            let outline: Vec<At> = end(|band| band.1).chain(end(|band| band.0).rev()).collect();
            if !outline.is_empty() {
                self.svg.path(&(polyline(&outline) + "Z"), "area");
            }
            let points: Vec<At> = piece.iter().map(|vertex| vertex.at).collect();
            self.svg.path(&polyline(&points), "line");
        }
        let with_tips = line.pieces.iter().flatten().filter(|vertex| !vertex.tip.is_empty());
        for Vertex { at, tip, .. } in with_tips {
            match line.marks {
                Marks::None => {}
                Marks::Each(marker) => self.svg.mark(marker, *at, 3.5, tip),
                Marks::Pointer => self.svg.dot(*at, 3.0, "hit", tip),
            }
        }
    }

    /// The chart's markup.
    #[must_use]
    pub fn finish(self) -> String {
        self.svg.finish()
    }
}

impl Svg {
    /// Horizontal lines between two places with the values of `y` at their left; `class` is one for
    /// the words.
    pub fn grid(
        &mut self,
        y: &Scale,
        ticks: &[f64],
        (left, right): (f64, f64),
        class: &str,
        show: impl Fn(f64) -> String,
    ) {
        for tick in ticks {
            let at = y.at(*tick);
            self.line((left, at), (right, at), "grid");
            self.text((left - 8.0, at + 4.0), format!("dim end {class}").trim_end(), &show(*tick));
        }
    }

    /// Small words over a paper that begins at `at`.
    pub fn about(&mut self, at: At, words: &str) {
        self.text((at.0, at.1 - SMALL / 2.0), "dim small", words);
    }
}

/// Places for labels that would like to stand at `wanted`, at least `pitch` apart, in `room`.
///
/// The sum of the squared moves is the smallest possible, and the order of the labels is the
/// order of the wishes (equal wishes keep theirs). The answer has the order of the input.
///
/// # Panics
/// If the room cannot hold them all.
#[must_use]
fn spread(wanted: &[f64], pitch: f64, room: (f64, f64)) -> Vec<f64> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let last_offset = pitch * (wanted.len() - 1) as f64;
    assert!(
        room.0 + last_offset <= room.1 + 1e-6,
        "the room is too low for {} labels",
        wanted.len()
    );
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));

    // With each wish shifted by its place times the pitch, "apart" becomes "not descending", and
    // pooling neighbours that descend into their mean is the least-squares answer.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (place, index) in order.iter().enumerate() {
        let mut pool = (wanted[*index] - place as f64 * pitch, 1);
        while let Some(before) = pools.pop_if(|before| before.0 > pool.0) {
            let members = before.1 + pool.1;
            pool =
                ((before.0 * before.1 as f64 + pool.0 * pool.1 as f64) / members as f64, members);
        }
        pools.push(pool);
    }
    let shifted = pools.into_iter().flat_map(|(mean, members)| std::iter::repeat_n(mean, members));
    let mut placed = vec![0.0; wanted.len()];
    for ((place, index), mean) in order.into_iter().enumerate().zip(shifted) {
        placed[index] = mean.clamp(room.0, room.1 - last_offset) + place as f64 * pitch;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_with_room_stay_where_they_are() {
        assert_eq!(spread(&[80.0, 10.0, 40.0], 15.0, (0.0, 100.0)), [80.0, 10.0, 40.0]);
        assert!(spread(&[], 15.0, (0.0, 100.0)).is_empty());
    }

    #[test]
    fn labels_that_touch_share_the_move() {
        assert_eq!(spread(&[50.0, 50.0], 10.0, (0.0, 100.0)), [45.0, 55.0]);
    }

    #[test]
    fn any_wishes_end_apart_and_inside() {
        for seed in 0..200u64 {
            let wish = |i: u64| ((seed * 7919 + i * 104_729) % 1000) as f64 / 10.0;
            let wanted: Vec<f64> = (0..7).map(wish).collect();
            let mut placed = spread(&wanted, 14.0, (0.0, 100.0));
            placed.sort_by(f64::total_cmp);
            assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= 14.0 - 1e-6), "{placed:?}");
            assert!(placed[0] >= -1e-6 && placed[6] <= 100.0 + 1e-6, "{placed:?}");
        }
    }

    #[test]
    fn places_and_lines_of_a_linear_axis() {
        let scale = Scale::linear((0.0, 200.0), (100.0, 0.0));
        assert_eq!((scale.at(0.0), scale.at(50.0), scale.at(900.0)), (100.0, 75.0, 0.0));
        assert_eq!(scale.ticks(4), [0.0, 50.0, 100.0, 150.0, 200.0]);
        assert!(Scale::linear((3.0, 3.0), (0.0, 1.0)).at(3.0).is_finite());
    }

    #[test]
    fn equal_ratios_are_equal_lengths_on_a_log_axis() {
        let scale = Scale::log((0.1, 10.0), (0.0, 100.0));
        assert!((scale.at(1.0) - 50.0).abs() < 1e-9);
        assert_eq!(scale.ticks(3), [0.1, 1.0, 10.0]);
        assert!(Scale::log((1e-6, 1e9), (0.0, 1.0)).ticks(6).len() <= 6);
    }
}
