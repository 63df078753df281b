//! A file of views: its lines as views with their places in memory, and the header of C that it becomes.
//!
//! `viewc` and programs read the same lines: what a compiled file has behind the null value is passed over. The first
//! mistake is the error.

use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU8;

use super::{
    MEMBER_NAME_BYTES_MAX, Mapping, Member, MemberType, Null, VIEW_BYTES_MAX, VIEW_NAME_BYTES_MAX,
    View, ViewError,
};

/// Longest file that is read: ten thousands of members.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Values in an array: what a count of 16 bits tells.
const COUNT_MAX: usize = i16::MAX as usize;
/// Bytes of a text: what a length of 16 bits tells.
const SIZE_MAX: usize = u16::MAX as usize;

/// The views of one file.
#[derive(Debug)]
pub struct ViewFile {
    pub path: PathBuf,
    pub views: Vec<View>,
    /// Its text, which a compiled file repeats.
    text: String,
    /// Lines that are copied to the header.
    copied: Vec<String>,
}

impl ViewFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ViewError::Unreadable`], [`ViewError::Syntax`].
    pub fn open(path: &Path) -> Result<Self, ViewError> {
        let failed =
            |what: String| ViewError::Unreadable { what: format!("{}: {what}", path.display()) };
        let file =
            fs::File::open(path).map_err(|error| failed(format!("cannot be read: {error}")))?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| failed(format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(failed(format!(
                "it has more than {FILE_BYTES_MAX} bytes, too many for views"
            )));
        }
        let text = String::from_utf8(bytes).map_err(|_| {
            failed("it is not text: files that another maker's viewc compiled are compiled again by viewc".to_owned())
        })?;
        Self::parse(path, &text)
    }

    /// Reads the text of a file; `path` is for errors.
    ///
    /// # Errors
    /// [`ViewError::Syntax`] with the first line that is wrong.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ViewError> {
        let (mut views, mut copied): (Vec<View>, Vec<String>) = (Vec::new(), Vec::new());
        let mut open: Option<(View, usize)> = None;
        let wrong = |line: usize, what: String| ViewError::Syntax {
            file: path.display().to_string(),
            line,
            what,
        };
        let mut last = 0;
        for (index, line) in text.lines().enumerate() {
            last = index + 1;
            let at_line = |what: String| wrong(index + 1, what);
            if let Some(rest) = line.strip_prefix('$') {
                copied.push(rest.to_owned());
                continue;
            }
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let first = line.split_whitespace().next().unwrap_or_default();
            match (&mut open, first) {
                (None, "VIEW") => {
                    let name = view_name(line).map_err(at_line)?;
                    if views.iter().any(|view| view.name == name) {
                        return Err(at_line(format!("the view {name} stands above already")));
                    }
                    let view = View { name, members: Vec::new(), size: 0 };
                    open = Some((view, 1));
                }
                (None, word) => {
                    return Err(at_line(format!("'{word}': expected VIEW and a name")));
                }
                (Some((view, _)), "VIEW") => {
                    return Err(at_line(format!(
                        "VIEW within the view {}: expected END before it",
                        view.name
                    )));
                }
                (Some(_), "END") => {
                    let (mut view, align) = open.take().expect("it is open");
                    if view.members.is_empty() {
                        return Err(at_line(format!("the view {} has no member", view.name)));
                    }
                    view.size = view.size.next_multiple_of(align);
                    views.push(view);
                }
                (Some((view, align)), _) => {
                    let member = member(line).map_err(at_line)?;
                    place(view, align, member).map_err(at_line)?;
                }
            }
        }
        if let Some((view, _)) = open {
            return Err(wrong(last, format!("the view {} has no END", view.name)));
        }
        if views.is_empty() {
            return Err(wrong(last.max(1), "no view: expected VIEW and a name".to_owned()));
        }
        Ok(Self { path: path.to_owned(), views, text: text.to_owned(), copied })
    }

    /// The compiled file: the same lines, and the sizes that they come to here.
    #[must_use]
    pub fn compiled(&self) -> String {
        let mut out = String::from("# Compiled by viewc of pollux: change the source.\n");
        for view in &self.views {
            writeln!(out, "# {} has {} bytes", view.name, view.size).expect("memory");
        }
        out.push_str(&self.text);
        if !self.text.ends_with('\n') {
            out.push('\n');
        }
        out
    }
}

fn view_name(line: &str) -> Result<String, String> {
    let mut words = line.split_whitespace().skip(1);
    let name = words.next().ok_or("VIEW without a name")?;
    if let Some(more) = words.next() {
        return Err(format!("'{more}' behind the name of the view: expected one word"));
    }
    if !is_identifier(name) || name.len() > VIEW_NAME_BYTES_MAX {
        return Err(format!(
            "'{name}' is not a name of a view: expected letters, digits and _, at most {VIEW_NAME_BYTES_MAX}, \
             without a digit in front"
        ));
    }
    Ok(name.to_owned())
}

/// A member without its place.
fn member(line: &str) -> Result<Member, String> {
    let mut rest = line;
    let mut word = |what: &str| {
        let text = rest.trim_start();
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let (word, behind) = text.split_at(end);
        rest = behind;
        if word.is_empty() {
            Err(format!("no {what}: expected type, cname, fbname, count, flag, size, null"))
        } else {
            Ok(word)
        }
    };
    let type_name = word("type")?;
    let name = word("cname")?;
    let field = word("fbname")?;
    let count = word("count")?;
    let flags = word("flag")?;
    let size = word("size")?;
    let null = first_null(rest)?;
    let member_type = MemberType::named(type_name).ok_or_else(|| {
        let names = MemberType::ALL.map(|(name, _)| name).join(", ");
        format!("'{type_name}' is not a type of a member: expected {names}")
    })?;
    if !is_identifier(name) || name.len() > MEMBER_NAME_BYTES_MAX {
        return Err(format!("'{name}' is not a name of a member of a struct"));
    }
    let within = |text: &str, what: &str, most: usize| {
        let number = text.parse::<usize>().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| format!("{what} '{text}' of {name}: expected a number of 1 to {most}"))
    };
    let count = within(count, "count", COUNT_MAX)?;
    let size = match (member_type.layout().0, size) {
        (Some(own), "-") => own,
        (Some(_), size) => {
            return Err(format!("size {size} of {name}: a {type_name} has its own, expected -"));
        }
        (None, size) => within(size, "size", SIZE_MAX)?,
    };
    let flags = Flags::read(name, flags)?;
    if flags.has_len && member_type.layout().0.is_some() {
        return Err(format!(
            "flag 'L' of {name}: a {type_name} has no length of its own, expected it for string and carray alone"
        ));
    }
    let null = null_value(member_type, name, size, null)?;
    Ok(Member {
        name: name.to_owned(),
        member_type,
        field: Some(field).filter(|field| *field != "-").map(str::to_owned),
        count,
        size,
        null,
        is_filled: flags.is_filled,
        mapping: AtomicU8::new(flags.mapping as u8),
        at: 0,
        // Their places are known with that of the member.
        count_at: flags.has_count.then_some(0),
        len_at: flags.has_len.then_some(0),
    })
}

struct Flags {
    mapping: Mapping,
    has_count: bool,
    has_len: bool,
    is_filled: bool,
}

impl Flags {
    fn read(name: &str, text: &str) -> Result<Self, String> {
        let letters = if text == "-" { "" } else { text };
        if let Some(wrong) = letters.chars().find(|letter| !"CFLNPS".contains(*letter)) {
            return Err(format!(
                "flag '{wrong}' of {name}: expected some of C, F, L, N, P, S, or -"
            ));
        }
        let has = |letter| letters.contains(letter);
        let mapping = match (has('N'), has('S'), has('F')) {
            (true, ..) => Mapping::Off,
            (_, true, false) => Mapping::ToStruct,
            (_, false, true) => Mapping::ToFields,
            _ => Mapping::Both,
        };
        Ok(Self { mapping, has_count: has('C'), has_len: has('L'), is_filled: has('P') })
    }
}

/// What the last column says.
enum NullText {
    Default,
    Never,
    Bytes(Vec<u8>),
}

fn first_null(rest: &str) -> Result<NullText, String> {
    let text = rest.trim_start();
    let quote = text.chars().next().filter(|first| matches!(first, '\'' | '"'));
    let Some(quote) = quote else {
        let word = text.split_whitespace().next().unwrap_or("-");
        return Ok(match word {
            "-" => NullText::Default,
            "NONE" => NullText::Never,
            word => NullText::Bytes(unescaped(word)),
        });
    };
    let inner = &text[1..];
    let mut is_escaped = false;
    for (at, letter) in inner.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if letter == '\\' {
            is_escaped = true;
        } else if letter == quote {
            return Ok(NullText::Bytes(unescaped(&inner[..at])));
        }
    }
    Err(format!("the null value {text} has no {quote} at its end"))
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_escape = byte == b'\\';
        out.push(match (is_escape, if is_escape { bytes.next() } else { None }) {
            (true, Some(b'0')) => 0,
            (true, Some(b'n')) => b'\n',
            (true, Some(b't')) => b'\t',
            (true, Some(b'r')) => b'\r',
            (true, Some(b'f')) => 0x0c,
            (true, Some(b'v')) => 0x0b,
            (true, Some(b'b')) => 0x08,
            (true, Some(other)) => other,
            _ => byte,
        });
    }
    out
}

fn null_value(
    member_type: MemberType,
    name: &str,
    size: usize,
    text: NullText,
) -> Result<Option<Null>, String> {
    let bytes = match text {
        NullText::Never => return Ok(None),
        NullText::Default => Vec::new(),
        NullText::Bytes(bytes) => bytes,
    };
    let number = String::from_utf8_lossy(&bytes).into_owned();
    let wrong = |what: String| format!("the null value of {name} is {what}");
    Ok(Some(match member_type {
        MemberType::Short | MemberType::Int | MemberType::Long => {
            let (least, most) = match member_type {
                MemberType::Short => (i64::from(i16::MIN), i64::from(i16::MAX)),
                MemberType::Int => (i64::from(i32::MIN), i64::from(i32::MAX)),
                _ => (i64::MIN, i64::MAX),
            };
            let read = if number.is_empty() { Some(0) } else { number.parse::<i64>().ok() };
            let within = read.filter(|value| (least..=most).contains(value));
            Null::Whole(within.ok_or_else(|| {
                wrong(format!("'{number}': expected a whole number of {least} to {most}"))
            })?)
        }
        MemberType::Float | MemberType::Double => {
            let read = if number.is_empty() { Some(0.0) } else { number.parse::<f64>().ok() };
            Null::Floating(read.ok_or_else(|| wrong(format!("'{number}': expected a number")))?)
        }
        MemberType::Char if bytes.len() > 1 => {
            return Err(wrong(format!("'{number}': expected one character")));
        }
        MemberType::String if bytes.len() >= size => {
            let len = bytes.len();
            return Err(wrong(format!("longer, with its NUL, than the member: {len} and {size}")));
        }
        MemberType::Carray if bytes.len() > size => {
            let len = bytes.len();
            return Err(wrong(format!("longer than the member: {len} and {size}")));
        }
        MemberType::Char | MemberType::String | MemberType::Carray => Null::Bytes(bytes),
    }))
}

fn is_identifier(name: &str) -> bool {
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_word && !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// Puts a member behind those that there are: its count, its lengths, its values.
fn place(view: &mut View, align: &mut usize, mut member: Member) -> Result<(), String> {
    let mut take = |bytes: usize, multiple: usize| {
        let at = view.size.next_multiple_of(multiple);
        view.size = at + bytes;
        *align = multiple.max(*align);
        at
    };
    if member.count_at.is_some() {
        member.count_at = Some(take(2, 2));
    }
    if member.len_at.is_some() {
        member.len_at = Some(take(2 * member.count, 2));
    }
    member.at = take(member.count * member.size, member.member_type.layout().1);
    if view.size > VIEW_BYTES_MAX {
        return Err(format!("the view {} has more than {VIEW_BYTES_MAX} bytes", view.name));
    }
    if view.members.iter().any(|other| other.name == member.name) {
        return Err(format!("the member {} stands above already", member.name));
    }
    view.members.push(member);
    Ok(())
}

/// A header with a struct for each view. `guard` is the name of the file, such as `customer.h`.
#[must_use]
pub fn c_header(file: &ViewFile, name: &str) -> String {
    let guard: String = name
        .chars()
        .map(
            |letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' },
        )
        .collect();
    let mut out = format!(
        "/* Views. Written by viewc of pollux: change the source. */\n#ifndef VIEW_{guard}\n#define VIEW_{guard}\n"
    );
    for line in &file.copied {
        writeln!(out, "{line}").expect("memory");
    }
    for view in &file.views {
        writeln!(out, "\nstruct {} {{", view.name).expect("memory");
        for member in &view.members {
            let Member { name, count, size, .. } = member;
            if member.count_at.is_some() {
                writeln!(out, "  short C_{name};").expect("memory");
            }
            let array = if *count > 1 { format!("[{count}]") } else { String::new() };
            if member.len_at.is_some() {
                writeln!(out, "  unsigned short L_{name}{array};").expect("memory");
            }
            let (word, room) = match member.member_type {
                MemberType::String | MemberType::Carray => ("char", format!("[{size}]")),
                MemberType::Short => ("short", String::new()),
                MemberType::Int => ("int", String::new()),
                MemberType::Long => ("long", String::new()),
                MemberType::Char => ("char", String::new()),
                MemberType::Float => ("float", String::new()),
                MemberType::Double => ("double", String::new()),
            };
            writeln!(out, "  {word} {name}{array}{room};").expect("memory");
        }
        out.push_str("};\n");
    }
    out.push_str("\n#endif\n");
    out
}
