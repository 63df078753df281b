//! Lines for a terminal: cut at its width, in colour or without.
//!
//! No control character of a result reaches the terminal.

/// Below this nothing could be read; the lines are then as wide as this.
const WIDTH_MIN: usize = 40;
/// Between columns.
pub const GAP: &str = "  ";
/// Names longer than this are cut.
pub const NAME_MAX: usize = 20;

/// How a text looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As it is.
    Plain,
    /// What is read first.
    Bold,
    /// What explains.
    Dim,
    /// Better.
    Good,
    /// Worse, or wrong.
    Bad,
    /// Not decided, or to be looked at.
    Open,
}

impl Style {
    /// Select Graphic Rendition code (ECMA-48).
    fn code(self) -> Option<u8> {
        match self {
            Self::Plain => None,
            Self::Bold => Some(1),
            Self::Dim => Some(2),
            Self::Good => Some(32),
            Self::Bad => Some(31),
            Self::Open => Some(33),
        }
    }
}

/// A piece of a line. Figures stand at the right of their column.
pub struct Piece {
    /// The words.
    pub text: String,
    style: Style,
    is_figure: bool,
}

impl Piece {
    /// Words.
    #[must_use]
    pub fn new(text: &str, style: Style) -> Self {
        Self { text: printable(text), style, is_figure: false }
    }

    /// A figure.
    #[must_use]
    pub fn figure(text: &str, style: Style) -> Self {
        Self { is_figure: true, ..Self::new(text, style) }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
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

    /// The lines.
    #[must_use]
    pub fn finish(self) -> String {
        self.out
    }

    fn line(&mut self, pieces: &[Piece]) {
        let pieces = pieces.iter().map(|piece| (&*piece.text, piece.style));
        self.out.push_str(&line(pieces, self.width, self.colour));
    }

    /// Words in one line.
    pub fn words(&mut self, text: &str, style: Style) {
        self.line(&[Piece::new(text, style)]);
    }

    /// Words over as many lines as they need, all but the first indented.
    pub fn paragraph(&mut self, text: &str, style: Style, indent: usize) {
        let mut line = String::new();
        for word in printable(text).split_whitespace() {
            let is_full = line.chars().count() + 1 + word.chars().count() > self.width;
            if is_full && !line.trim().is_empty() {
                self.words(&line, style);
                line = " ".repeat(indent);
            } else if !line.trim().is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.words(&line, style);
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.out.push('\n');
    }

    /// A name, cut only where lines have an end.
    #[must_use]
    pub fn name(&self, text: &str) -> String {
        if self.width == usize::MAX { text.to_owned() } else { cut(text, NAME_MAX) }
    }

    /// Where rows would be cut: moves the words of one of their columns into `below`.
    pub fn take_column(&self, column: usize, rows: &mut [Vec<Piece>], below: &mut [Vec<String>]) {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest =
            |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.width())).max();
        let width: usize = (0..columns).filter_map(widest).map(|width| width + GAP.len()).sum();
        if width.saturating_sub(GAP.len()) > self.width {
            for (row, below) in rows.iter_mut().zip(below) {
                below.push(row.remove(column).text);
            }
        }
    }

    /// Rows with aligned columns.
    pub fn grid(&mut self, rows: Vec<Vec<Piece>>) {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest =
            |column: usize| rows.iter().filter_map(|row| row.get(column)).map(Piece::width).max();
        let widths: Vec<_> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
        for row in rows {
            let mut line = Vec::new();
            for (mut piece, width) in row.into_iter().zip(&widths) {
                piece.text = match piece.is_figure {
                    true => format!("{:>width$}{GAP}", piece.text),
                    false => format!("{:<width$}{GAP}", piece.text),
                };
                line.push(piece);
            }
            if let Some(last) = line.last_mut() {
                last.text.truncate(last.text.trim_end().len());
            }
            self.line(&line);
        }
    }
}

/// One line of pieces with its end, cut at `width_chars`.
#[must_use]
pub fn line<'a>(
    pieces: impl IntoIterator<Item = (&'a str, Style)>,
    width_chars: usize,
    colour: bool,
) -> String {
    let mut left = width_chars;
    let mut line = String::new();
    for (text, style) in pieces {
        let text = cut(&printable(text), left);
        left -= text.chars().count();
        match style.code().filter(|_| colour && !text.trim().is_empty()) {
            Some(code) => line.push_str(&format!("\u{1b}[{code}m{text}\u{1b}[0m")),
            None => line.push_str(&text),
        }
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

/// The text without control characters, which a terminal would obey.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The text, cut with an ellipsis where it is longer than the room.
#[must_use]
pub fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room || room == 0 {
        return text.chars().take(room).collect();
    }
    text.chars().take(room - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_its_width_and_obeys_no_control_character() {
        assert_eq!((cut("abcdef", 4), cut("abcd", 4)), ("abc…".into(), "abcd".into()));
        let pieces = [("ab\u{1b}", Style::Good), ("  ", Style::Dim), ("cdef  ", Style::Plain)];
        assert_eq!(line(pieces, usize::MAX, false), "ab\u{fffd}  cdef\n");
        assert_eq!(line(pieces, 8, true), "\u{1b}[32mab\u{fffd}\u{1b}[0m  cd…\n");
    }
}
