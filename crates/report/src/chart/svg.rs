//! The small part of SVG that the charts need, with nothing but classes for looks.
//!
//! Why by hand and not by a plotting library: every mark here carries a class (so that the page's
//! style sheet colours it, light or dark), a `<title>` (so that a pointer or a screen reader gets
//! the figure without script) and a series number (so that a series can be switched off). The
//! library that was considered, plotters, writes colours into each element, has no groups and no titles,
//! and would have left only the arithmetic of the axes. This file never decides on a colour.

use std::fmt::Write as _;

use crate::markup::escape;

/// Markers in the order in which the arms use them; seven, so that with eight colours no pair of
/// colour and marker comes twice before the 57th arm.
const MARKERS: [Marker; 7] = [
    Marker::Disc,
    Marker::Square,
    Marker::Up,
    Marker::Diamond,
    Marker::Down,
    Marker::Ring,
    Marker::Cross,
];

/// A place on the paper, from the left and from the top.
pub type At = (f64, f64);

/// The form of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A filled circle.
    Disc,
    /// A filled square.
    Square,
    /// A triangle on its base.
    Up,
    /// A square on its corner.
    Diamond,
    /// A triangle on its tip.
    Down,
    /// An open circle.
    Ring,
    Cross,
}

impl Marker {
    /// The marker of the arm at this place.
    #[must_use]
    pub fn of(place: usize) -> Self {
        MARKERS[place % MARKERS.len()]
    }

    fn path(self, (x, y): At, r: f64) -> String {
        let circle = || {
            format!("M{:.1} {y:.1}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z", x - r, d = 2.0 * r)
        };
        let polygon = |corners: &[At]| {
            let points: Vec<_> = corners.iter().map(|(dx, dy)| (x + dx * r, y + dy * r)).collect();
            polyline(&points) + "Z"
        };
        match self {
            Self::Disc | Self::Ring => circle(),
            Self::Square => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            Self::Up => polygon(&[(0.0, -1.2), (1.15, 0.9), (-1.15, 0.9)]),
            Self::Diamond => polygon(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            Self::Down => polygon(&[(0.0, 1.2), (1.15, -0.9), (-1.15, -0.9)]),
            Self::Cross => {
                format!("M{:.1} {:.1}l{d} {d}m0 -{d}l-{d} {d}", x - r, y - r, d = 2.0 * r)
            }
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Ring => "mark ring",
            Self::Cross => "mark cross",
            _ => "mark",
        }
    }
}

/// A drawing that is being written.
#[derive(Debug)]
pub struct Svg(String);

impl Svg {
    /// Starts a drawing; `key` is unique on the page, title and description are for screen
    /// readers.
    #[must_use]
    pub fn new(key: &str, size: At, title: &str, description: &str) -> Self {
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
    pub fn text(&mut self, (x, y): At, class: &str, words: &str) {
        let words = escape(words);
        let _ =
            writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{words}</text>");
    }

    /// A straight line.
    pub fn line(&mut self, from: At, to: At, class: &str) {
        let x1 = from.0;
        let y1 = from.1;
        let x2 = to.0;
        let y2 = to.1;
        let _ = writeln!(
            self.0,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    /// A box from its upper left corner, with words for the pointer where there are any.
    pub fn rect(&mut self, (x, y): At, size: At, class: &str, tip: &str) {
        let width = size.0.max(0.0);
        let height = size.1.max(0.0);
        let _ = write!(
            self.0,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\""
        );
        self.end_mark(tip, "rect");
    }

    /// A path from SVG's own path words.
    pub fn path(&mut self, path: &str, class: &str) {
        let _ = writeln!(self.0, "<path d=\"{path}\" class=\"{class}\"/>");
    }

    /// A marker with words for the pointer.
    pub fn mark(&mut self, marker: Marker, at: At, radius: f64, tip: &str) {
        let _ =
            write!(self.0, "<path d=\"{}\" class=\"{}\"", marker.path(at, radius), marker.class());
        self.end_mark(tip, "path");
    }

    /// A dot of a class, with words for the pointer.
    pub fn dot(&mut self, (x, y): At, radius: f64, class: &str, tip: &str) {
        let _ =
            write!(self.0, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" class=\"{class}\"");
        self.end_mark(tip, "circle");
    }

    /// Starts a group; what belongs to an arm carries the arm's place, by which it is switched.
    pub fn open(&mut self, class: &str, series: Option<usize>) {
        let _ = match series {
            Some(place) => writeln!(self.0, "<g class=\"{class}\" data-series=\"{place}\">"),
            None => writeln!(self.0, "<g class=\"{class}\">"),
        };
    }

    /// Ends a group.
    pub fn close(&mut self) {
        self.0.push_str("</g>\n");
    }

    /// The drawing's markup.
    #[must_use]
    pub fn finish(self) -> String {
        self.0 + "</svg>\n"
    }

    fn end_mark(&mut self, tip: &str, element: &str) {
        let _ = match tip {
            "" => writeln!(self.0, "/>"),
            tip => writeln!(self.0, "><title>{}</title></{element}>", escape(tip)),
        };
    }
}

/// Path words for a line through the points.
#[must_use]
pub fn polyline(points: &[At]) -> String {
    let mut out = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let _ = write!(out, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    out
}

/// About the width of a text in a sans-serif face; on the wide side, as room is cheap.
#[must_use]
pub fn text_width(text: &str, size: f64) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '|' | '!' | '\'' | ' ' => 0.34,
            'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' => 0.42,
            'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.95,
            'A'..='Z' => 0.72,
            _ if c.is_ascii() => 0.63,
            _ => 0.8,
        })
        .sum();
    em * size
}

/// The same for a heavy face, which is wider.
#[must_use]
pub fn bold_text_width(text: &str, size: f64) -> f64 {
    text_width(text, size) * 1.15
}

/// The text, cut with an ellipsis where it would be wider than the room.
#[must_use]
pub fn fit(text: &str, size: f64, room: f64) -> String {
    if text_width(text, size) <= room {
        return text.to_owned();
    }
    let mut cut = String::new();
    for character in text.chars() {
        if text_width(&cut, size) + size * 1.6 > room {
            break;
        }
        cut.push(character);
    }
    cut.trim_end().to_owned() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_its_figure_without_script() {
        let mut svg = Svg::new("k", (10.0, 10.0), "a < b", "");
        svg.dot((1.0, 2.0), 3.0, "mark", "p99: 4 ms");
        let drawing = svg.finish();
        assert!(drawing.contains("<title id=\"k-t\">a &lt; b</title>"), "{drawing}");
        assert!(drawing.contains("class=\"mark\"><title>p99: 4 ms</title></circle>"), "{drawing}");
    }
}
