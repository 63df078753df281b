//! Entities that a document declares itself: `<!ENTITY NAME "text">` and `<!ENTITY NAME SYSTEM "file">`, put in for each
//! `&NAME;` before the document is read.
//!
//! Configurations have them for what several servers, or several configurations, share. Lines stay where they are: a
//! text of several lines is put in as one.

use std::collections::BTreeMap;

use super::document::Broken;

/// Most bytes that a document may become; what is longer was made to be.
const BYTES_MAX: usize = 1 << 22;
/// Deepest nesting of entities in entities.
const DEPTH_MAX: usize = 8;
/// Most entities that are put in.
const PUT_MAX: usize = 100_000;
/// Most files that entities name.
const FILES_MAX: usize = 64;

/// Reads the file that an entity names, or says why not.
pub(super) type ReadFile<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// How an entity is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Declared<'t> {
    Text(&'t str),
    File(&'t str),
    /// By a public name.
    Other,
}

/// The document with the texts of its entities.
pub(super) fn expanded(text: &str, read_file: &ReadFile<'_>) -> Result<String, Broken> {
    let Some((head, body)) = split_document_type(text) else { return Ok(text.to_owned()) };
    let declared = declared(head);
    let named = declared.iter().filter_map(|(name, entity)| match entity {
        Declared::File(file) => Some((*name, *file)),
        Declared::Text(_) | Declared::Other => None,
    });
    let read = |(name, file)| {
        let text = read_file(file).map_err(|why| format!("&{name}; is the file {file}: {why}"));
        (name, text.map(without_declaration))
    };
    // What can't be read is a mistake only where it is put in.
    let files: BTreeMap<&str, Result<String, String>> = named.take(FILES_MAX).map(read).collect();
    let mut entities = BTreeMap::new();
    for (name, entity) in &declared {
        let file = files.get(name);
        let content = match (*entity, file) {
            (Declared::Text(text), _) => Ok(text),
            (Declared::File(_), Some(Ok(text))) => Ok(text.as_str()),
            (Declared::File(_), Some(Err(why))) => Err(why.clone()),
            (Declared::File(_), None) => Err(format!(
                "&{name}; is a file after {FILES_MAX} others, which are the most that are read"
            )),
            (Declared::Other, _) => Err(format!(
                "&{name}; is declared by a public name; expected <!ENTITY {name} \"text\"> or <!ENTITY {name} SYSTEM \"file\">"
            )),
        };
        entities.insert(*name, content);
    }
    let mut expansion =
        Expansion { entities, line: 1 + head.matches('\n').count(), put: 0, out: head.to_owned() };
    expansion.markup(body)?;
    Ok(expansion.out)
}

/// The content of a file that is put in, without the `<?xml … ?>` that it may begin with.
fn without_declaration(text: String) -> String {
    match text.strip_prefix("<?xml").and_then(|rest| rest.split_once("?>")) {
        Some((_, behind)) => behind.to_owned(),
        None => text,
    }
}

/// The text up to the end of `<!DOCTYPE … [ … ]>`, and what follows; none without an internal subset.
fn split_document_type(text: &str) -> Option<(&str, &str)> {
    let begin = outside_comments(text)
        .find_map(|(at, part)| part.find("<!DOCTYPE").map(|within| at + within))?;
    let subset = begin + text[begin..].find(['[', '>'])?;
    if text[subset..].starts_with('>') {
        return None;
    }
    let mut quote = None;
    let mut is_closed = false;
    for (at, sign) in text[subset..].char_indices() {
        match (quote, sign) {
            (Some(open), _) if sign == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(sign),
            (None, ']') => is_closed = true,
            (None, '>') if is_closed => return Some(text.split_at(subset + at + 1)),
            (None, _) => {}
        }
    }
    None
}

/// The parts of a text between comments, with their places.
fn outside_comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let begin = rest.find("<!--").unwrap_or(rest.len());
        let part = (at, &rest[..begin]);
        let end = rest[begin..].find("-->").map_or(rest.len(), |end| begin + end + 3);
        at += end;
        Some(part)
    })
}

/// The entities that a document type declares; of one that is declared twice the first counts (XML 1.0, section 4.2).
fn declared(head: &str) -> BTreeMap<&str, Declared<'_>> {
    let mut entities = BTreeMap::new();
    for (_, part) in outside_comments(head) {
        for declaration in part.split("<!ENTITY").skip(1) {
            let declaration = declaration.trim_start();
            let Some((name, rest)) = declaration.split_once(char::is_whitespace) else { continue };
            let rest = rest.trim_start();
            let file = rest.strip_prefix("SYSTEM").map(str::trim_start);
            let entity = match (literal(rest), file.and_then(literal)) {
                (Some(text), _) => Declared::Text(text),
                (None, Some(file)) => Declared::File(file),
                (None, None) => Declared::Other,
            };
            entities.entry(name).or_insert(entity);
        }
    }
    entities
}

/// What stands in quotes at the begin of a text.
fn literal(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|sign| matches!(sign, '"' | '\''))?;
    text[1..].split(quote).next()
}

struct Expansion<'t> {
    /// What each stands for, or why it can't be put in.
    entities: BTreeMap<&'t str, Result<&'t str, String>>,
    line: usize,
    /// Entities that were put in.
    put: usize,
    out: String,
}

impl<'t> Expansion<'t> {
    /// Takes over the document behind its type: comments and CDATA as they are.
    fn markup(&mut self, text: &'t str) -> Result<(), Broken> {
        let mut rest = text;
        while let Some(begin) = rest.find("<!") {
            let (before, raw) = rest.split_at(begin);
            let end = if raw.starts_with("<!--") {
                raw.find("-->").map_or(raw.len(), |end| end + 3)
            } else if raw.starts_with("<![CDATA[") {
                raw.find("]]>").map_or(raw.len(), |end| end + 3)
            } else {
                "<!".len()
            };
            self.text(before, 0)?;
            self.put(&raw[..end], 0)?;
            rest = &raw[end..];
        }
        self.text(rest, 0)
    }

    /// Takes over a text with its entities, itself in so many of them.
    fn text(&mut self, text: &'t str, depth: usize) -> Result<(), Broken> {
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('&') {
            self.put(before, depth)?;
            let name = behind.split(';').next().filter(|name| name.len() < behind.len());
            let entity = name.and_then(|name| Some((name, self.entities.get(name)?)));
            let broken = |what: String| Broken { line: self.line, what };
            rest = match entity {
                // One of XML itself, or none: the reader of the document says so.
                None => {
                    self.put("&", depth)?;
                    behind
                }
                Some((_, Err(why))) => return Err(broken(why.clone())),
                Some((name, Ok(_))) if depth == DEPTH_MAX => {
                    return Err(broken(format!(
                        "&{name}; stands in more than {DEPTH_MAX} entities"
                    )));
                }
                Some(_) if self.put == PUT_MAX => {
                    return Err(broken(format!("more than {PUT_MAX} entities are to be put in")));
                }
                Some((name, Ok(inner))) => {
                    let inner: &'t str = inner;
                    self.put += 1;
                    self.text(inner, depth + 1)?;
                    &behind[name.len() + 1..]
                }
            };
        }
        self.put(rest, depth)
    }

    fn put(&mut self, text: &str, depth: usize) -> Result<(), Broken> {
        if self.out.len() + text.len() > BYTES_MAX {
            let what = format!("with its entities the document has more than {BYTES_MAX} bytes");
            return Err(Broken { line: self.line, what });
        }
        if depth == 0 {
            self.line += text.matches('\n').count();
            self.out.push_str(text);
        } else {
            self.out.extend(text.chars().map(|sign| if sign == '\n' { ' ' } else { sign }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(subset: &str, body: &str) -> Result<String, Broken> {
        let text = format!("<?xml version=\"1.0\"?>\n<!DOCTYPE endurox [\n{subset}\n]>\n{body}");
        let head = text.len() - body.len();
        let read_file = |name: &str| match name {
            "servers.xml" => Ok("<?xml version='1.0'?>\n<min>&least;</min>\n".to_owned()),
            _ => Err("it is not there".to_owned()),
        };
        expanded(&text, &read_file).map(|all| all[head..].to_owned())
    }

    #[test]
    fn texts_and_elements_are_put_in_and_lines_stay() {
        let subset = "<!ENTITY common \"<max>3</max>\n<min>&least;</min>\">\n<!-- <!ENTITY least \"9\"> -->\n\
                      <!ENTITY least '2'><!ENTITY least '7'><!ENTITY % other \"x\">";
        let body = "<a b=\"&least;\">&common;\n<!-- &common; --><![CDATA[&least;]]>&amp; &#65; &none; & ;</a>";
        let all = of(subset, body).expect("sound");
        let expected = "<a b=\"2\"><max>3</max> <min>2</min>\n<!-- &common; --><![CDATA[&least;]]>&amp; &#65; &none; & ;</a>";
        assert_eq!(all, expected);
        for same in
            ["<a>&x;</a>", "<!DOCTYPE a>\n<a/>", "<!DOCTYPE a SYSTEM \"x\">", "<!DOCTYPE a [", ""]
        {
            let none = |_: &str| panic!("no entity names a file");
            assert_eq!(expanded(same, &none).as_deref(), Ok(same));
        }
    }

    #[test]
    fn what_grows_without_end_and_what_stands_elsewhere_is_refused_with_its_line() {
        let endless =
            of("<!ENTITY a '&b;'><!ENTITY b '&a;'>", "<x>\n&a;</x>").expect_err("endless");
        assert_eq!(endless.line, 6);
        assert!(endless.what.contains("more than 8 entities"), "{endless:?}");
        let mut subset = format!("<!ENTITY e0 '{}'>", "x".repeat(100));
        for level in 1..8 {
            let text = format!("&e{};", level - 1).repeat(10);
            subset.push_str(&format!("<!ENTITY e{level} '{text}'>"));
        }
        let large = of(&subset, "<x>&e7;</x>").expect_err("a gigabyte");
        assert!(large.what.contains("4194304 bytes"), "{large:?}");
        let other = of("<!ENTITY f PUBLIC 'x' 'y'>", "<x>&f;</x>").expect_err("another name");
        assert!(other.what.contains("expected <!ENTITY f \"text\">"), "{other:?}");
    }

    #[test]
    fn files_are_put_in_and_those_that_are_missing_are_named_where_they_are_used() {
        let subset =
            "<!ENTITY f SYSTEM 'servers.xml'><!ENTITY least \"2\"><!ENTITY g SYSTEM\n\"none.xml\">";
        assert_eq!(of(subset, "<a>&f;</a>").as_deref(), Ok("<a> <min>2</min> </a>"));
        let missing = of(subset, "<a>\n&g;</a>").expect_err("it is missing");
        assert_eq!(missing.line, 7);
        assert_eq!(missing.what, "&g; is the file none.xml: it is not there");
        let many: String = (0..=FILES_MAX)
            .map(|number| format!("<!ENTITY f{number:02} SYSTEM 'servers.xml'>"))
            .collect();
        let last = of(&many, "<a>&f64;</a>").expect_err("too many");
        assert!(last.what.contains("a file after 64 others"), "{last:?}");
    }
}
