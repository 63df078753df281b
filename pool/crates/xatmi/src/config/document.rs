//! XML as a small tree that knows its lines.
//!
//! The reader of configurations walks it; their meaning is not known here. Comments, declarations and
//! processing instructions are ignored with their content.

use quick_xml::Reader;
use quick_xml::escape::{resolve_predefined_entity, unescape};
use quick_xml::events::{BytesStart, Event};

/// Deepest nesting; a configuration needs five.
const DEPTH_MAX: usize = 32;

/// One element with everything inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Element {
    /// Name of the tag.
    pub(super) name: String,
    /// Line of the start tag, counted from 1.
    pub(super) line: usize,
    /// Attributes in order, values unescaped.
    pub(super) attributes: Vec<(String, String)>,
    /// The text directly inside, without white space around it.
    pub(super) text: String,
    /// The elements directly inside, in order.
    pub(super) children: Vec<Element>,
}

/// A syntax error: its line, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) line: usize,
    pub(super) what: String,
}

impl Element {
    /// Reads a whole document.
    pub(super) fn parse(text: &str) -> Result<Self, Broken> {
        let mut reader = Reader::from_str(text);
        let mut open: Vec<Self> = Vec::new();
        let mut root = None;
        let mut lines = Lines::of(text);
        loop {
            let event = reader.read_event();
            let line = lines.at(reader.buffer_position());
            let broken = |what: String| Broken { line, what };
            let event = event.map_err(|error| Broken {
                line: Lines::of(text).at(reader.error_position()),
                what: error.to_string(),
            })?;
            match event {
                Event::Start(tag) => {
                    if open.len() >= DEPTH_MAX {
                        return Err(broken(format!("elements nest deeper than {DEPTH_MAX}")));
                    }
                    open.push(Self::begin(&tag, line).map_err(broken)?);
                }
                Event::Empty(tag) => {
                    let element = Self::begin(&tag, line).map_err(broken)?;
                    close(element, &mut open, &mut root).map_err(broken)?;
                }
                // The reader has checked that start and end tags match.
                Event::End(_) => {
                    let element = open.pop().ok_or_else(|| broken("an end tag alone".into()))?;
                    close(element, &mut open, &mut root).map_err(broken)?;
                }
                Event::Text(text) => append(&mut open, &text),
                Event::CData(text) => append(&mut open, &text),
                Event::GeneralRef(entity) => {
                    append(&mut open, &resolved(&entity).map_err(broken)?);
                }
                // Its entities were put in before.
                Event::DocType(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
                Event::Eof => return end(&open, root, line),
            }
        }
    }

    /// The value of an attribute.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    fn begin(tag: &BytesStart<'_>, end_line: usize) -> Result<Self, String> {
        let name = tag.name().into_inner().to_owned();
        let mut attributes = Vec::new();
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| format!("in <{name}>: {error}"))?;
            let value = unescape(&attribute.value).map_err(|error| format!("<{name}>: {error}"))?;
            attributes.push((attribute.key.into_inner().to_owned(), value.into_owned()));
        }
        // The position is behind the tag, which may go over several lines.
        let line = end_line - tag.matches('\n').count();
        Ok(Self { name, line, attributes, ..Self::default() })
    }
}

/// Puts a finished element into its parent, or at the top.
fn close(
    mut element: Element,
    open: &mut [Element],
    root: &mut Option<Element>,
) -> Result<(), String> {
    element.text = element.text.trim().to_owned();
    match (open.last_mut(), &root) {
        (Some(parent), _) => parent.children.push(element),
        (None, None) => *root = Some(element),
        (None, Some(first)) => {
            return Err(format!("<{}> follows the end of <{}>", element.name, first.name));
        }
    }
    Ok(())
}

fn append(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

fn resolved(entity: &quick_xml::events::BytesRef<'_>) -> Result<String, String> {
    if let Some(letter) = entity.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(letter.to_string());
    }
    let name: &str = entity;
    let known = resolve_predefined_entity(name).map(str::to_owned);
    known.ok_or_else(|| format!("&{name}; is not known; write &amp; for &"))
}

fn end(open: &[Element], root: Option<Element>, line: usize) -> Result<Element, Broken> {
    match (open.last(), root) {
        (Some(element), _) => {
            let what = format!("<{}> of line {} is not closed", element.name, element.line);
            Err(Broken { line, what })
        }
        (None, Some(root)) => Ok(root),
        (None, None) => Err(Broken { line, what: "there is no element in this file".to_owned() }),
    }
}

/// Counts lines up to positions that grow, each byte once.
struct Lines<'a> {
    rest: &'a [u8],
    position: usize,
    line: usize,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        Self { rest: text.as_bytes(), position: 0, line: 1 }
    }

    fn at(&mut self, position: u64) -> usize {
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        let len = position.saturating_sub(self.position).min(self.rest.len());
        let (passed, rest) = self.rest.split_at(len);
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        (self.rest, self.position) = (rest, self.position + len);
        self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_know_their_lines_and_comments_may_hold_broken_tags() {
        let text = "<?xml version=\"1.0\"?>\n<a>\n <!-- <b>1<b> -->\n <c\n  d='&lt;x'>1 &amp; 2</c>\n <e/></a>";
        let root = Element::parse(text).expect("well formed");
        assert_eq!((root.name.as_str(), root.line), ("a", 2));
        let c = &root.children[0];
        assert_eq!((c.name.as_str(), c.line, c.text.as_str()), ("c", 4, "1 & 2"));
        assert_eq!(c.attribute("d"), Some("<x"));
        assert_eq!((root.children[1].name.as_str(), root.children[1].line), ("e", 6));
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let line = |text: &str| Element::parse(text).expect_err("broken").line;
        assert_eq!(line("<a>\n<b>\n</a>"), 3);
        assert_eq!(line("<a>\n"), 2);
        assert_eq!(line("<a/>\n<b/>"), 2);
        assert_eq!(line(""), 1);
        assert_eq!(line("<a>\n&what;</a>"), 2);
    }

    #[test]
    fn noise_is_an_error_and_no_panic() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let pieces = ["<", ">", "/", "a", "=\"", "'", "&", ";", "<!--", "-->", "<a>", "]]>", "\n"];
        for _ in 0..2000 {
            let mut text = String::from("<a>");
            for _ in 0..30 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                text.push_str(pieces[(random % pieces.len() as u64) as usize]);
            }
            if let Err(broken) = Element::parse(&text) {
                assert!((1..=text.lines().count() + 1).contains(&broken.line), "{text:?}");
            }
        }
    }

    #[test]
    fn nesting_has_a_bound() {
        let text = "<a>".repeat(1000);
        let broken = Element::parse(&text).expect_err("too deep");
        assert!(broken.what.contains("32"), "{broken:?}");
    }
}
