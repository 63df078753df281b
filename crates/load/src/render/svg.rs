//! The small part of SVG that the charts need, with nothing but classes for looks.
//!
//! Every mark can carry a `<title>`, so that a pointer or a screen reader gets its figure without
//! script. The page's style sheet colours the classes, light or dark; no colour is named here.

use std::fmt::Write as _;

use super::markup::escape;

/// A place on the paper, from the left and from the top.
pub(super) type At = (f64, f64);

/// A drawing that is being written.
pub(super) struct Svg(String);

impl Svg {
    /// Starts a drawing; `key` is unique on the page, title and description are for those who
    /// cannot see it.
    pub(super) fn new(key: &str, size: At, title: &str, description: &str) -> Self {
        Self(format!(
            "<svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-labelledby=\"{key}-t {key}-d\">\
             <title id=\"{key}-t\">{}</title><desc id=\"{key}-d\">{}</desc>\n",
            size.0,
            size.1,
            escape(title),
            escape(description)
        ))
    }

    /// Words. Classes `mid` and `end` set the anchor.
    pub(super) fn text(&mut self, (x, y): At, class: &str, words: &str) {
        let words = escape(words);
        let _ =
            writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{words}</text>");
    }

    /// A straight line.
    pub(super) fn line(&mut self, (x1, y1): At, (x2, y2): At, class: &str) {
        let _ = writeln!(
            self.0,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    /// A box from its upper left corner, with words for the pointer where there are any.
    pub(super) fn rect(&mut self, (x, y): At, size: At, class: &str, tip: &str) {
        let (width, height) = (size.0.max(0.0), size.1.max(0.0));
        let _ = write!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             class=\"{class}\""
        );
        self.end_mark(tip, "rect");
    }

    /// A line through the points.
    pub(super) fn path(&mut self, points: &[At], class: &str) {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
        }
        let _ = writeln!(self.0, "<path d=\"{path}\" class=\"{class}\"/>");
    }

    /// A dot with words for the pointer.
    pub(super) fn dot(&mut self, (x, y): At, radius: f64, class: &str, tip: &str) {
        let _ =
            write!(self.0, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\"");
        self.end_mark(tip, "circle");
    }

    /// The drawing's markup.
    pub(super) fn finish(self) -> String {
        self.0 + "</svg>\n"
    }

    fn end_mark(&mut self, tip: &str, element: &str) {
        let _ = match tip {
            "" => writeln!(self.0, "/>"),
            tip => writeln!(self.0, "><title>{}</title></{element}>", escape(tip)),
        };
    }
}

/// Heights for labels that would like to stand at `wanted`, at least `pitch` apart and at most
/// at `lowest`; the answer has the order of the input.
pub(super) fn spread(wanted: &[f64], pitch: f64, lowest: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut placed = wanted.to_vec();
    for pair in order.windows(2) {
        placed[pair[1]] = placed[pair[1]].max(placed[pair[0]] + pitch);
    }
    // What was pushed off the paper comes back and pushes the others up.
    let mut floor = lowest;
    for index in order.into_iter().rev() {
        placed[index] = placed[index].min(floor);
        floor = placed[index] - pitch;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_apart_and_on_the_paper() {
        assert_eq!(spread(&[80.0, 10.0, 40.0], 15.0, 100.0), [80.0, 10.0, 40.0]);
        assert_eq!(spread(&[50.0, 50.0, 52.0], 15.0, 100.0), [50.0, 65.0, 80.0]);
        assert_eq!(spread(&[95.0, 99.0], 15.0, 100.0), [85.0, 100.0]);
    }

    #[test]
    fn a_mark_tells_its_figure_without_script() {
        let mut svg = Svg::new("k", (10.0, 10.0), "a < b", "");
        svg.dot((1.0, 2.0), 3.0, "mark", "p99: 4 ms");
        let drawing = svg.finish();
        assert!(drawing.contains("<title id=\"k-t\">a &lt; b</title>"), "{drawing}");
        assert!(drawing.contains("class=\"mark\"><title>p99: 4 ms</title></circle>"), "{drawing}");
    }
}
