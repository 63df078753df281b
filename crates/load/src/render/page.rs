//! Lines for a terminal: cut or wrapped at its width, in colour or without.
//!
//! The table writes through it. No control character of an outcome reaches the terminal.

use pollux_report::terminal::{self, Style, printable};

use super::facts::Grid;

/// Below this nothing could be read; the lines are then as wide as this.
const WIDTH_MIN: usize = 40;
/// Between columns.
const GAP: &str = "  ";
/// The first column gives way to the figures, down to this.
const NAME_MIN: usize = 20;

/// A text that is being written.
pub(super) struct Page {
    out: String,
    width: usize,
    colour: bool,
}

impl Page {
    pub(super) fn new(width_chars: usize, colour: bool) -> Self {
        Self { out: String::new(), width: width_chars.max(WIDTH_MIN), colour }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    /// Columns of a line.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn gap(&mut self) {
        self.out.push('\n');
    }

    /// One line of pieces, cut at the width.
    pub(super) fn line(&mut self, pieces: &[(&str, Style)]) {
        self.out.push_str(&terminal::line(pieces.iter().copied(), self.width, self.colour));
    }

    /// Words over as many lines as they need, after a label that is as wide as `indent`.
    pub(super) fn paragraph(&mut self, label: (&str, Style), text: (&str, Style), indent: usize) {
        let mut label = (format!("{:<indent$}", label.0), label.1);
        let room = self.width.saturating_sub(indent).max(1);
        for line in wrap(&printable(text.0), room) {
            self.line(&[(&label.0, label.1), (&line, text.1)]);
            label.0 = " ".repeat(indent);
        }
    }

    /// Rows under headings. What does not fit is wrapped column by column into a further block.
    pub(super) fn grid(&mut self, grid: &Grid) {
        let widths = grid.widths();
        let figures: usize = widths[1..].iter().map(|width| GAP.len() + width).sum();
        let name =
            widths[0].min(self.width.saturating_sub(figures).max(NAME_MIN.min(self.width / 2)));
        let mut from = 1;
        while from < widths.len() {
            let mut to = from;
            let mut used = name;
            while to < widths.len() && (to == from || used + GAP.len() + widths[to] <= self.width) {
                used += GAP.len() + widths[to];
                to += 1;
            }
            let headings: Vec<_> = grid.headings.iter().map(|text| bare(text)).collect();
            self.row(&headings, name, &widths, from..to, Style::Dim);
            for row in &grid.rows {
                let cells: Vec<_> = row.iter().map(String::as_str).collect();
                self.row(&cells, name, &widths, from..to, Style::Plain);
            }
            from = to;
        }
    }

    fn row(
        &mut self,
        cells: &[&str],
        name: usize,
        widths: &[usize],
        columns: std::ops::Range<usize>,
        style: Style,
    ) {
        let mut line = format!("{:<name$}", cut_front(&printable(cells[0]), name));
        for column in columns {
            line.push_str(GAP);
            line.push_str(&format!("{:>width$}", printable(cells[column]), width = widths[column]));
        }
        self.line(&[(&line, style)]);
    }
}

impl Grid {
    /// Widest cell of each column.
    fn widths(&self) -> Vec<usize> {
        let of = |(column, heading): (usize, &&str)| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([bare(heading).chars().count()]).max().unwrap_or(0)
        };
        self.headings.iter().enumerate().map(of).collect()
    }
}

fn bare(heading: &str) -> &str {
    heading.strip_prefix('#').unwrap_or(heading)
}

/// Lines of at most `room` characters, broken between words where there is a gap.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The end of the text, where names that begin alike differ.
fn cut_front(text: &str, room: usize) -> String {
    let count = text.chars().count();
    if count <= room || room == 0 {
        return text.chars().take(room).collect();
    }
    ['…'].into_iter().chain(text.chars().skip(count + 1 - room)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_at_the_front() {
        assert_eq!((cut_front("abcdef", 4), cut_front("abcd", 4)), ("…def".into(), "abcd".into()));
    }

    #[test]
    fn a_paragraph_keeps_its_label_and_its_indent() {
        let mut page = Page::new(40, false);
        let text = "the quick brown fox jumps over the lazy dog";
        page.paragraph(("label", Style::Dim), (text, Style::Plain), 8);
        assert_eq!(page.finish(), "label   the quick brown fox jumps over\n        the lazy dog\n");
    }

    #[test]
    fn columns_that_do_not_fit_make_a_further_block() {
        let mut page = Page::new(40, false);
        let headings = vec!["name", "#first", "#second"];
        let row = vec!["n".to_owned(), "1".repeat(20), "2".repeat(20)];
        page.grid(&Grid { headings, rows: vec![row] });
        let text = page.finish();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.lines().nth(3).is_some_and(|line| line.starts_with("n     2222")), "{text}");
    }
}
