//! A UBBCONFIG as sections, entries and parameters that know their lines.
//!
//! The meaning of a keyword is not known here. An entry begins with a word behind which no `=` stands, wherever the
//! line ends; in `*RESOURCES` a keyword and its value follow each other. `#` begins a comment where a word may begin.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::config::Diagnostic;

/// Most mistakes that are kept of one file.
const MISTAKES_MAX: usize = 50;

/// Sections whose entries have no name: a keyword and its value.
const WITHOUT_NAMES: &str = "RESOURCES";

/// `KEYWORD=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    /// In capitals.
    pub(super) keyword: String,
    pub(super) value: String,
    pub(super) line: usize,
}

/// A name with its parameters; of `*RESOURCES` one without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) parameters: Vec<Parameter>,
    /// Those of the last `DEFAULT:` above it.
    defaults: Rc<Vec<Parameter>>,
}

/// `*NAME` and what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    /// In capitals, without the asterisk.
    pub(super) name: String,
    pub(super) entries: Vec<Entry>,
    /// All parameters as they were written, those of `DEFAULT:` once.
    pub(super) written: Vec<Parameter>,
}

impl Entry {
    /// The parameter of this keyword, the entry's own or that of the defaults.
    pub(super) fn parameter(&self, keyword: &str) -> Option<&Parameter> {
        let named = |one: &&Parameter| one.keyword == keyword;
        // Of one that stands twice the last counts.
        self.parameters.iter().rfind(named).or_else(|| self.defaults.iter().rfind(named))
    }

    /// Its value, if it has one.
    pub(super) fn value(&self, keyword: &str) -> Option<&str> {
        self.parameter(keyword).map(|found| found.value.as_str()).filter(|value| !value.is_empty())
    }
}

/// Reads a whole file.
pub(super) fn read(file: &str, text: &str) -> Result<Vec<Section>, Vec<Diagnostic>> {
    if text.trim_start().starts_with('<') {
        let what =
            "this is XML; expected a UBBCONFIG, which has sections such as *RESOURCES and *SERVERS";
        return Err(vec![Diagnostic::new(file, 1, what)]);
    }
    let mut mistakes = Vec::new();
    let mut reading = Reading { file, tokens: tokens(file, text, &mut mistakes), mistakes };
    let sections = reading.sections();
    if sections.is_empty() && reading.mistakes.is_empty() {
        let what = "there is no section in this file; expected a UBBCONFIG, which has *RESOURCES and *SERVERS";
        reading.mistake(1, what);
    }
    if reading.mistakes.is_empty() { Ok(sections) } else { Err(reading.mistakes) }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Section(String),
    Word(String),
    Equals,
}

struct Reading<'a> {
    file: &'a str,
    tokens: VecDeque<(usize, Token)>,
    mistakes: Vec<Diagnostic>,
}

impl Reading<'_> {
    fn sections(&mut self) -> Vec<Section> {
        let mut sections = Vec::new();
        while let Some((line, token)) = self.tokens.pop_front() {
            let Token::Section(name) = token else {
                self.mistake(line, "a section such as *RESOURCES is expected before this");
                self.skip_to_section();
                continue;
            };
            let mut section = Section { name, entries: Vec::new(), written: Vec::new() };
            if section.name == WITHOUT_NAMES {
                self.resources(&mut section);
            } else {
                self.entries(&mut section);
            }
            sections.push(section);
        }
        sections
    }

    /// Keywords, each with a value behind it.
    fn resources(&mut self, section: &mut Section) {
        let mut parameters = Vec::new();
        while let Some((line, keyword)) = self.word() {
            let is_behind_equals = self.is_equals();
            match self.value(line, is_behind_equals) {
                Some(value) => {
                    parameters.push(Parameter { keyword: keyword.to_uppercase(), value, line });
                }
                None => {
                    self.mistake(line, format!("{keyword} has no value"));
                    self.skip_line(line);
                }
            }
            // A value of several words is none: the rest is not a keyword.
            if let Some((same, Token::Word(more))) = self.tokens.front().cloned()
                && same == line
            {
                let is_open = parameters.last().is_some_and(|last| last.value.starts_with('<'));
                let what = if is_open {
                    format!("{keyword}: what stands in < > is to be filled in")
                } else {
                    format!("`{more}` follows the value of {keyword}; one value is expected")
                };
                self.mistake(line, what);
                self.skip_line(line);
            }
        }
        let line = parameters.first().map_or(0, |first| first.line);
        section.written.clone_from(&parameters);
        let defaults = Rc::default();
        section.entries.push(Entry { name: String::new(), line, parameters, defaults });
    }

    /// Names, each with parameters.
    fn entries(&mut self, section: &mut Section) {
        let mut defaults: Rc<Vec<Parameter>> = Rc::default();
        while let Some((line, name)) = self.word() {
            if self.is_equals() {
                self.mistake(line, format!("{name}= stands before any name of *{}", section.name));
                self.skip_line(line);
                continue;
            }
            let parameters = self.parameters();
            section.written.extend(parameters.iter().cloned());
            if name.trim_end_matches(':').eq_ignore_ascii_case("DEFAULT") {
                defaults = Rc::new(parameters);
            } else {
                let defaults = Rc::clone(&defaults);
                section.entries.push(Entry { name, line, parameters, defaults });
            }
        }
    }

    /// All `KEYWORD=VALUE` up to the next name.
    fn parameters(&mut self) -> Vec<Parameter> {
        let mut parameters = Vec::new();
        while let [Some((_, Token::Word(_))), Some((_, Token::Equals))] =
            [self.tokens.front(), self.tokens.get(1)]
        {
            let Some((line, keyword)) = self.word() else { break };
            self.is_equals();
            // An empty one stands as "".
            if let Some(value) = self.value(line, true) {
                parameters.push(Parameter { keyword: keyword.to_uppercase(), value, line });
            } else {
                self.mistake(line, format!("{keyword}= has no value"));
            }
        }
        parameters
    }

    /// The next word, unless a section begins or the file ends; signs that stand alone are mistakes.
    fn word(&mut self) -> Option<(usize, String)> {
        loop {
            match self.tokens.front()? {
                (_, Token::Section(_)) => return None,
                (line, Token::Equals) => {
                    let line = *line;
                    self.tokens.pop_front();
                    self.mistake(line, "= stands alone; expected KEYWORD=VALUE");
                }
                (_, Token::Word(_)) => {
                    let Some((line, Token::Word(word))) = self.tokens.pop_front() else {
                        return None;
                    };
                    return Some((line, word));
                }
            }
        }
    }

    fn is_equals(&mut self) -> bool {
        let is_next = matches!(self.tokens.front(), Some((_, Token::Equals)));
        if is_next {
            self.tokens.pop_front();
        }
        is_next
    }

    /// A value, which is a list where a comma ends or begins a word. It stands in the line of its keyword, or, behind
    /// `=`, in a later one.
    fn value(&mut self, line: usize, is_behind_equals: bool) -> Option<String> {
        let (next, Token::Word(_)) = self.tokens.front()? else { return None };
        let is_keyword = matches!(self.tokens.get(1), Some((_, Token::Equals)));
        if *next > line && (is_keyword || !is_behind_equals) {
            return None;
        }
        let (mut at, mut value) = self.word()?;
        loop {
            let joined = match self.tokens.front() {
                Some((_, Token::Word(_))) if value.ends_with(',') => true,
                Some((next, Token::Word(word))) => *next == at && word.starts_with(','),
                _ => false,
            };
            if !joined {
                return Some(value);
            }
            let (next, word) = self.word()?;
            at = next;
            value.push_str(&word);
        }
    }

    fn skip_line(&mut self, line: usize) {
        while self.tokens.front().is_some_and(|(next, _)| *next == line) {
            self.tokens.pop_front();
        }
    }

    fn skip_to_section(&mut self) {
        while self.tokens.front().is_some_and(|(_, token)| !matches!(token, Token::Section(_))) {
            self.tokens.pop_front();
        }
    }

    fn mistake(&mut self, line: usize, message: impl AsRef<str>) {
        mistake(&mut self.mistakes, self.file, line, message.as_ref());
    }
}

fn mistake(mistakes: &mut Vec<Diagnostic>, file: &str, line: usize, message: &str) {
    if mistakes.len() < MISTAKES_MAX {
        mistakes.push(Diagnostic::new(file, line, message));
    }
}

/// The words of a file with their lines.
fn tokens(file: &str, text: &str, mistakes: &mut Vec<Diagnostic>) -> VecDeque<(usize, Token)> {
    let mut tokens = VecDeque::new();
    let mut line = 1;
    let mut is_line_begun = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' => {
                line += 1;
                is_line_begun = false;
                continue;
            }
            _ if letter.is_whitespace() => continue,
            '#' => {
                while letters.next_if(|next| *next != '\n').is_some() {}
                continue;
            }
            '=' => tokens.push_back((line, Token::Equals)),
            '"' => {
                let begin = line;
                let mut word = String::new();
                loop {
                    match letters.next() {
                        Some('"') => break,
                        Some('\\') if letters.next_if_eq(&'"').is_some() => word.push('"'),
                        Some('\\') if letters.next_if_eq(&'\\').is_some() => word.push('\\'),
                        Some('\\') if letters.next_if_eq(&'\n').is_some() => line += 1,
                        Some(next) if next != '\n' => word.push(next),
                        ended => {
                            line += usize::from(ended.is_some());
                            let what = "a quote \" is not closed in its line; a backslash at the end of a line \
                                        continues it";
                            mistake(mistakes, file, begin, what);
                            break;
                        }
                    }
                }
                tokens.push_back((begin, Token::Word(word)));
            }
            '*' if !is_line_begun => {
                let mut name = String::new();
                while let Some(next) = letters.next_if(|next| !next.is_whitespace()) {
                    name.extend(next.to_uppercase());
                }
                tokens.push_back((line, Token::Section(name)));
            }
            _ => {
                let mut word = String::from(letter);
                let continues = |next: &char| !next.is_whitespace() && !matches!(next, '=' | '"');
                while let Some(next) = letters.next_if(continues) {
                    word.push(next);
                }
                tokens.push_back((line, Token::Word(word)));
            }
        }
        is_line_begun = true;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections(text: &str) -> Vec<Section> {
        read("ubb", text).expect("sound")
    }

    fn mistakes(text: &str) -> Vec<String> {
        read("ubb", text).expect_err("wrong").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_keywords_values_and_defaults_are_distinguished_wherever_lines_end() {
        let text = "# one\n*RESOURCES\nIPCKEY 52617 # two\nMASTER\tSITE1, SITE2\nOPTIONS = LAN,MIGRATE\n\n*SERVERS\n\
                    DEFAULT: RESTART=Y CLOPT = \"-A\"\nTLR SRVGRP=BANKB1\n  SRVID = 1\n\tCLOPT=\"-A -r -- -t \\\"a b\\\" \\\n-x\"\n\
                    \"AUDIT\"\nDEFAULT:\nLAST SRVGRP=none\n";
        let found = sections(text);
        let [resources, servers] = found.as_slice() else { panic!("{found:?}") };
        let all = &resources.entries[0];
        assert_eq!(all.value("IPCKEY"), Some("52617"));
        assert_eq!(all.value("MASTER"), Some("SITE1,SITE2"));
        assert_eq!(all.value("OPTIONS"), Some("LAN,MIGRATE"));
        let [teller, audit, last] = servers.entries.as_slice() else { panic!("{servers:?}") };
        assert_eq!((teller.name.as_str(), teller.line), ("TLR", 9));
        assert_eq!(teller.value("CLOPT"), Some("-A -r -- -t \"a b\" -x"));
        assert_eq!(teller.parameter("SRVID").map(|id| id.line), Some(10));
        assert_eq!(
            (audit.name.as_str(), audit.line, audit.value("CLOPT")),
            ("AUDIT", 13, Some("-A"))
        );
        // A new line of defaults takes the place of the one before.
        assert_eq!((last.value("CLOPT"), last.value("SRVGRP")), (None, Some("none")));
        assert_eq!(servers.written.len(), 6);
    }

    #[test]
    fn a_backslash_within_quotes_stands_for_the_letter_behind_it() {
        let text = r#"*SERVERS
A CLOPT="-A -- -c \"HELLO \\\"WORLD\" \\ \x"
"#;
        let found = sections(text);
        let clopt = found[0].entries[0].value("CLOPT");
        assert_eq!(clopt, Some(r#"-A -- -c "HELLO \"WORLD" \ \x"#));
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line() {
        let of = |text: &str| mistakes(text).join("\n");
        assert!(of("<endurox/>").starts_with("ubb:1: this is XML"));
        assert!(of("hello\n").contains("ubb:1: a section such as *RESOURCES is expected"));
        assert!(of("").contains("there is no section"));
        let said = of("*RESOURCES\nIPCKEY 1 with a key\nMASTER\n*SERVERS\nSRVID=1\nA B=\n= C\n");
        let lines: Vec<_> = said.lines().collect();
        assert!(lines[0].contains("ubb:2: `with` follows the value of IPCKEY"), "{said}");
        assert!(lines[1].contains("ubb:3: MASTER has no value"), "{said}");
        let open = of("*RESOURCES\nIPCKEY <Replace with a key>\n");
        assert_eq!(open, "ubb:2: IPCKEY: what stands in < > is to be filled in");
        assert!(lines[2].contains("ubb:5: SRVID= stands before any name of *SERVERS"), "{said}");
        assert!(of("*SERVERS\nA CLOPT=\"-A\nB\n").contains("ubb:2: a quote \" is not closed"));
    }

    #[test]
    fn noise_is_a_mistake_and_no_panic() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let pieces = [
            "*",
            "RESOURCES",
            "\n",
            "=",
            "\"",
            "\\",
            ",",
            "#",
            " ",
            "A",
            "DEFAULT:",
            "\u{e4}",
            "\t",
        ];
        for _ in 0..3000 {
            let mut text = String::from("*SERVERS\n");
            for _ in 0..30 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                text.push_str(pieces[(random % pieces.len() as u64) as usize]);
            }
            if let Err(found) = read("ubb", &text) {
                assert!(!found.is_empty() && found.len() <= MISTAKES_MAX, "{text:?}");
            }
        }
    }
}
