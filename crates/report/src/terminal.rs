//! Lines for a terminal: cut or wrapped at its width, in colour or without.
//!
//! No control character of a result reaches the terminal. What goes into a pipe or a file has no width
//! and no colour, and nothing of it is cut. Tables are laid out by comfy-table.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, CellAlignment, Color, ContentArrangement};

use crate::table::{Body, Cell, Table, Tone};

/// Below this nothing could be read; the lines are then as wide as this.
const WIDTH_MIN: usize = 40;
/// Between columns.
pub const GAP: &str = "  ";
/// The first column gives way to the others, down to this.
const NAME_MIN: usize = 20;
/// How far what gave way is indented below its row.
const BELOW: usize = 4;

impl Tone {
    /// Its number in the palette of 256, of which the first are the terminal's own.
    const fn colour(self) -> Option<Color> {
        match self {
            Self::Plain | Self::Bold | Self::Dim | Self::Missing | Self::Same => None,
            Self::Good => Some(Color::DarkGreen),
            Self::Bad => Some(Color::DarkRed),
            Self::Open => Some(Color::DarkYellow),
        }
    }

    const fn attribute(self) -> Option<Attribute> {
        match self {
            Self::Bold => Some(Attribute::Bold),
            Self::Dim | Self::Missing => Some(Attribute::Dim),
            _ => None,
        }
    }

    /// Select Graphic Rendition codes (ECMA-48), those of tables.
    const fn codes(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::Same => None,
            Self::Bold => Some("1"),
            Self::Dim | Self::Missing => Some("2"),
            Self::Good => Some("38;5;2"),
            Self::Bad => Some("38;5;1"),
            Self::Open => Some("38;5;3"),
        }
    }
}

/// Lines of at most a width, with colours for a terminal or without.
pub struct Page {
    out: String,
    width: usize,
    colour: bool,
}

impl Page {
    /// An empty page. A pipe or a file has no width: `usize::MAX` keeps every line whole.
    #[must_use]
    pub fn new(width_chars: usize, colour: bool) -> Self {
        Self { out: String::new(), width: width_chars.max(WIDTH_MIN), colour }
    }

    /// Columns of a line.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    #[must_use]
    pub fn finish(self) -> String {
        self.out
    }

    /// One line of pieces.
    pub fn line(&mut self, pieces: &[(&str, Tone)]) {
        self.out.push_str(&line(pieces.iter().copied(), self.width, self.colour));
    }

    /// Words in one line.
    pub fn words(&mut self, text: &str, tone: Tone) {
        self.line(&[(text, tone)]);
    }

    /// Words over as many lines as they need, all but the first indented.
    pub fn paragraph(&mut self, text: &str, tone: Tone, indent: usize) {
        for line in wrap(&printable(text), self.width, self.width.saturating_sub(indent)) {
            let before = " ".repeat(if line.is_rest { indent } else { 0 });
            self.line(&[(&before, Tone::Plain), (&line.text, tone)]);
        }
    }

    /// Words over as many lines as they need, behind a label that is as wide as `indent`.
    pub fn labelled(&mut self, label: (&str, Tone), text: (&str, Tone), indent: usize) {
        let room = self.width.saturating_sub(indent).max(1);
        let mut before = (format!("{:<indent$}", label.0), label.1);
        for line in wrap(&printable(text.0), room, room) {
            self.line(&[(&before.0, before.1), (&line.text, text.1)]);
            before.0 = " ".repeat(indent);
        }
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.out.push('\n');
    }

    /// A table, each of its groups under a line of its own.
    ///
    /// Where it is too wide, columns that give way stand below their rows, the last of them first;
    /// what is still too wide goes into further blocks, each with the first column.
    pub fn table(&mut self, table: &Table) {
        let table = &table.filled().table;
        for body in &table.bodies {
            if let Some(group) = &body.group {
                self.words(group, Tone::Bold);
            }
            self.body(table, body);
        }
    }

    fn body(&mut self, table: &Table, body: &Body) {
        let all: Vec<usize> = (0..table.headings.len()).collect();
        let widths = self.laid_out(table, body, &all, usize::MAX).column_max_content_widths();
        let widths: Vec<usize> = widths.into_iter().map(usize::from).collect();
        let of = |columns: &[usize]| -> usize {
            columns.iter().map(|column| widths[*column] + GAP.len()).sum::<usize>() - GAP.len()
        };
        let mut kept = all;
        let mut below = Vec::new();
        // Names give way first, then columns.
        while of(&kept) - widths[0].saturating_sub(NAME_MIN) > self.width
            && let Some(at) = kept.iter().rposition(|column| table.headings[*column].gives_way)
        {
            below.insert(0, kept.remove(at));
        }
        let figures = of(&kept) - widths[0];
        let name = self.width.saturating_sub(figures).max(NAME_MIN).min(widths[0]);
        let mut rest = &kept[1..];
        loop {
            let fits = (1..=rest.len())
                .rev()
                .find(|count| of(&rest[..*count]) + GAP.len() + name <= self.width || *count == 1);
            let (block, after) = rest.split_at(fits.unwrap_or(0));
            let block: Vec<usize> = kept[..1].iter().chain(block).copied().collect();
            for line in self.laid_out(table, body, &block, name).lines() {
                self.out.push_str(line.trim_end());
                self.out.push('\n');
            }
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        for row in body.rows.iter().filter(|_| !below.is_empty()) {
            let cells = below.iter().map(|at| (&*table.headings[*at].words, &*row[*at].text));
            // What a figure is, its heading says.
            let words = cells.filter(|(_, text)| !text.is_empty()).map(|(heading, text)| {
                if below.len() > 1 { format!("{heading} {text}") } else { text.to_owned() }
            });
            let words: Vec<String> = words.collect();
            if !words.is_empty() {
                self.paragraph(&format!("{}: {}", row[0].text, words.join("; ")), Tone::Dim, BELOW);
            }
        }
    }

    /// Some columns of a body, ready to be written; the first is cut at `name`.
    fn laid_out(
        &self,
        table: &Table,
        body: &Body,
        columns: &[usize],
        name: usize,
    ) -> comfy_table::Table {
        let mut out = comfy_table::Table::new();
        out.load_style(NOTHING);
        if self.colour {
            out.enforce_styling().style_text_only();
        } else {
            out.force_no_tty();
        }
        let cell = |column: usize, text: &str, tone: Tone| {
            let is_figure = table.headings[column].is_figure;
            let side = if is_figure { CellAlignment::Right } else { CellAlignment::Left };
            let text = cut_front(&printable(text), if column == 0 { name } else { usize::MAX });
            let mut cell = comfy_table::Cell::new(text).set_alignment(side);
            if let Some(colour) = tone.colour() {
                cell = cell.fg(colour);
            }
            tone.attribute().map(|attribute| cell.clone().add_attribute(attribute)).unwrap_or(cell)
        };
        let headings = columns.iter().map(|at| cell(*at, &table.headings[*at].words, Tone::Dim));
        out.set_header(headings);
        let shown = |row: &[Cell]| -> comfy_table::Row {
            let cells = columns.iter().map(|at| cell(*at, &row[*at].text, row[*at].tone));
            let mut row = comfy_table::Row::from(cells);
            row.max_height(1);
            row
        };
        out.add_rows(body.rows.iter().map(|row| shown(row)));
        for (at, column) in out.column_iter_mut().enumerate() {
            let is_last = at + 1 == columns.len();
            column.set_padding((0, if is_last { 0 } else { GAP.len() as u16 }));
        }
        if let Ok(width) = u16::try_from(self.width) {
            out.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
        }
        out
    }
}

/// One line of pieces with its end, cut at `width_chars`.
#[must_use]
pub fn line<'a>(
    pieces: impl IntoIterator<Item = (&'a str, Tone)>,
    width_chars: usize,
    colour: bool,
) -> String {
    let mut left = width_chars;
    let mut line = String::new();
    for (text, tone) in pieces {
        let text = cut(&printable(text), left);
        left -= text.chars().count();
        match tone.codes().filter(|_| colour && !text.trim().is_empty()) {
            Some(codes) => line.push_str(&format!("\u{1b}[{codes}m{text}\u{1b}[0m")),
            None => line.push_str(&text),
        }
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

/// A line of a longer text.
struct Wrapped {
    text: String,
    /// Whether it is not the first one.
    is_rest: bool,
}

/// Lines broken between words where there is a gap: the first of at most `first` characters, the
/// others of `rest`. One word that is longer stays whole.
fn wrap(text: &str, first: usize, rest: usize) -> Vec<Wrapped> {
    let mut lines = vec![Wrapped { text: String::new(), is_rest: false }];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always one");
        let room = if line.is_rest { rest } else { first };
        let is_full = line.text.chars().count() + 1 + word.chars().count() > room;
        if line.text.is_empty() {
            line.text.push_str(word);
        } else if is_full {
            lines.push(Wrapped { text: word.to_owned(), is_rest: true });
        } else {
            line.text.push(' ');
            line.text.push_str(word);
        }
    }
    lines
}

/// The text without control characters, which a terminal would obey.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A bar of so many columns, in steps of an eighth; what is there at all is seen.
#[must_use]
pub fn bar(columns: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (columns * 8.0).ceil() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// The text, cut with an ellipsis where it is longer than the room.
#[must_use]
pub fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room || room == 0 {
        return text.chars().take(room).collect();
    }
    text.chars().take(room - 1).chain(['…']).collect()
}

/// The end of the text, where names that begin alike differ.
fn cut_front(text: &str, room: usize) -> String {
    let count = text.chars().count();
    if count <= room {
        return text.to_owned();
    }
    ['…'].into_iter().chain(text.chars().skip(count + 1 - room)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_its_width_and_obeys_no_control_character() {
        assert_eq!((cut("abcdef", 4), cut("abcd", 4)), ("abc…".into(), "abcd".into()));
        assert_eq!([cut_front("abcdef", 4), cut_front("abcd", 4)], ["…def", "abcd"]);
        let pieces = [("ab\u{1b}", Tone::Good), ("  ", Tone::Dim), ("cdef  ", Tone::Plain)];
        assert_eq!(line(pieces, usize::MAX, false), "ab\u{fffd}  cdef\n");
        assert_eq!(line(pieces, 8, true), "\u{1b}[38;5;2mab\u{fffd}\u{1b}[0m  cd…\n");
    }

    #[test]
    fn a_paragraph_keeps_its_label_and_its_indent() {
        let text = "the quick brown fox jumps over the lazy dog";
        let mut page = Page::new(40, false);
        page.labelled(("label", Tone::Dim), (text, Tone::Plain), 8);
        page.paragraph(text, Tone::Plain, 2);
        assert_eq!(
            page.finish(),
            "label   the quick brown fox jumps over\n        the lazy dog\n\
             the quick brown fox jumps over the lazy\n  dog\n"
        );
    }

    fn table(notes: &str) -> Table {
        let mut table = Table::new(["name", "#first", "#second", "?why"]);
        let figures = ["1", "2"].map(|digit| Cell::figure(&digit.repeat(20)));
        let [first, second] = figures;
        table.row([Cell::text("n").tone(Tone::Good), first, second, Cell::text(notes)]);
        table
    }

    #[test]
    fn what_does_not_fit_stands_below_or_in_a_further_block_and_nothing_is_lost() {
        let mut page = Page::new(40, false);
        page.table(&table("because it is so"));
        let text = page.finish();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[3].starts_with("n     2222") && lines[3].ends_with("22"), "{text}");
        assert_eq!(lines[4], "n: because it is so");
        let mut page = Page::new(usize::MAX, false);
        page.table(&table("because it is so"));
        let whole = page.finish();
        assert_eq!(whole.lines().count(), 2, "{whole}");
        assert!(whole.lines().all(|line| line.trim_end() == line), "{whole}");
        assert!(!whole.contains('\u{1b}') && !whole.contains('…'), "{whole}");
        let mut page = Page::new(usize::MAX, true);
        page.table(&table(""));
        assert!(page.finish().contains("\u{1b}[38;5;2mn"));
    }

    #[test]
    fn figures_that_stand_below_have_their_unit() {
        let mut two = Table::new(["arm", "?µs/request (95% CI)", "#ratio", "?why"]);
        let ratio = "1.234 [1.200, 1.256] and more";
        two.row([
            Cell::text("mynginx"),
            Cell::text("12.7 ± 1 %"),
            Cell::figure(ratio),
            Cell::text("7.04 sys/ev"),
        ]);
        let mut page = Page::new(45, false);
        page.table(&two);
        let text = page.finish();
        let below = text.split_once("mynginx: ").expect("a line below").1;
        let below = below.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(below, "µs/request (95% CI) 12.7 ± 1 %; why 7.04 sys/ev", "{text}");
    }
}
