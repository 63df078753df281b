//! Lines for a terminal: cut at its width, in colour or without.
//!
//! No control character of a result reaches the terminal.

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
