//! The file of a scene: what is set, what the client does, and what came of it.
//!
//! | line | means |
//! |---|---|
//! | `# TEXT` | what the scene shows |
//! | `only: serve`, `only: proxy` | it is for one program |
//! | `both: SETTING`, `serve: SETTING`, `proxy: SETTING` | a line of the settings' file; `serve` replies with 2 bytes unless one says otherwise |
//! | `tls` | clients have to speak TLS |
//! | `backend: BYTES` | its answer to each request, read whole; `silent`, `missing`, `early BYTES` (without the body), `cuts BYTES` (and closes, when `backend-closes` says so) |
//! | `> BYTES` | the client sends; lines that follow each other are one send |
//! | `< BYTES` | it waits for these |
//! | `backend-closes` | the backend that cuts closes |
//! | `half-close`, `reset`, `drain` | it ends its output, or breaks the connection; the server drains |
//! | `== serve`, `== proxy` | from here on: what came of it, until the connection ended |
//!
//! Bytes are as in a string of Rust (`\r \n \t \\ \xHH`), and `\{TEXT*7}` is TEXT seven times.

use std::fmt::Write as _;

/// One of the two programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    Serve,
    Proxy,
}

impl Program {
    const ALL: [Self; 2] = [Self::Serve, Self::Proxy];

    const fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Proxy => "proxy",
        }
    }
}

/// What the client, or who ends the server, does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Send(Vec<u8>),
    Await(Vec<u8>),
    HalfClose,
    Reset,
    Drain,
    BackendCloses,
}

/// What the backend does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Script {
    Answers(Vec<u8>),
    /// Answers before the body of the request.
    Early(Vec<u8>),
    /// Answers so much, and closes once the scene says so.
    Cuts(Vec<u8>),
    /// Reads and never answers.
    Silent,
    /// Nothing listens.
    Missing,
}

/// A file of a scene, without its results.
#[derive(Debug)]
pub(crate) struct Scene {
    /// The text in front of the results.
    text: String,
    only: Option<Program>,
    settings: Vec<(Option<Program>, String)>,
    pub(crate) has_tls: bool,
    pub(crate) backend: Script,
    pub(crate) steps: Vec<Step>,
}

impl Scene {
    /// # Errors
    /// The line that is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let end = text.find("\n== ").map_or(text.len(), |at| at + 1);
        let text = text[..end].trim_end().to_owned() + "\n";
        let backend = Script::Answers(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec());
        let mut scene = Self {
            only: None,
            settings: Vec::new(),
            has_tls: false,
            backend,
            steps: Vec::new(),
            text,
        };
        let mut is_sending = false;
        for line in scene.text.clone().lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let was_sending = std::mem::replace(&mut is_sending, word == ">");
            let program = |name: &str| Program::ALL.into_iter().find(|each| each.name() == name);
            match word {
                "#" | "" => {}
                "only:" => scene.only = Some(program(rest).ok_or_else(|| line.to_owned())?),
                "both:" => scene.settings.push((None, rest.to_owned())),
                "serve:" | "proxy:" => {
                    scene.settings.push((program(word.trim_end_matches(':')), rest.to_owned()));
                }
                "tls" => scene.has_tls = true,
                "backend:" => scene.backend = script(rest)?,
                ">" => match scene.steps.last_mut() {
                    Some(Step::Send(bytes)) if was_sending => bytes.extend(bytes_of(rest)?),
                    _ => scene.steps.push(Step::Send(bytes_of(rest)?)),
                },
                "<" => scene.steps.push(Step::Await(bytes_of(rest)?)),
                "half-close" => scene.steps.push(Step::HalfClose),
                "reset" => scene.steps.push(Step::Reset),
                "backend-closes" => scene.steps.push(Step::BackendCloses),
                "drain" => scene.steps.push(Step::Drain),
                _ => return Err(format!("{line:?} is not a line of a scene")),
            }
        }
        Ok(scene)
    }

    /// The file's text, with what `play` says of each program.
    pub(crate) fn with_results(&self, play: impl Fn(Program) -> String) -> String {
        let mut text = self.text.clone();
        for program in Program::ALL {
            if self.only.is_none_or(|only| only == program) {
                write!(text, "\n== {}\n{}", program.name(), play(program)).expect("a String");
            }
        }
        text
    }

    pub(crate) fn settings(&self, program: Program) -> impl Iterator<Item = &str> {
        let of = move |whose: &Option<Program>| whose.is_none_or(|whose| whose == program);
        self.settings.iter().filter(move |(whose, _)| of(whose)).map(|(_, line)| line.as_str())
    }

    /// Whether it says something of this setting.
    pub(crate) fn sets(&self, program: Program, key: &str) -> bool {
        self.settings(program).any(|line| line.split_once(" =").is_some_and(|(own, _)| own == key))
    }
}

fn script(text: &str) -> Result<Script, String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    Ok(match word {
        "silent" => Script::Silent,
        "missing" => Script::Missing,
        "early" => Script::Early(bytes_of(rest)?),
        "cuts" => Script::Cuts(bytes_of(rest)?),
        _ => Script::Answers(bytes_of(text)?),
    })
}

/// The bytes that a line stands for.
fn bytes_of(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let wrong = || format!("{text:?}: what stands behind a backslash");
        let kind = rest.chars().next().ok_or_else(wrong)?;
        rest = &rest[kind.len_utf8()..];
        match kind {
            'r' => bytes.push(b'\r'),
            'n' => bytes.push(b'\n'),
            't' => bytes.push(b'\t'),
            '\\' => bytes.push(b'\\'),
            'x' => {
                let digits = rest.get(..2).ok_or_else(wrong)?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
                rest = &rest[2..];
            }
            '{' => {
                let (inner, behind) = rest.split_once('}').ok_or_else(wrong)?;
                let (part, times) = inner.rsplit_once('*').ok_or_else(wrong)?;
                let times = times.parse().map_err(|_| wrong())?;
                bytes.extend(part.as_bytes().repeat(times));
                rest = behind;
            }
            _ => return Err(wrong()),
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

/// Bytes as lines of text; those of dates masked.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let line = line.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'");
        match ["Date: ", "Last-Modified: "].iter().find(|name| line.starts_with(**name)) {
            Some(name) => format!("{name}DATE\\r\\n\n"),
            None => line + "\n",
        }
    });
    lines.collect()
}

/// A line of a log without its moments, durations and the digits of its ports.
pub(crate) fn masked(line: &str) -> String {
    without_moments(&without_runs(line))
}

/// A character that stands more than 64 times in a row: `\{a*9000}`.
fn without_runs(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let behind = rest.trim_start_matches(c);
        let len = (rest.len() - behind.len()) / c.len_utf8();
        if len > 64 {
            write!(out, "\\{{{c}*{len}}}").expect("a String");
        } else {
            out.extend(std::iter::repeat_n(c, len));
        }
        rest = behind;
    }
    out
}

fn without_moments(line: &str) -> String {
    if let Some(rest) = line.strip_prefix("{\"time\":\"") {
        let rest = &rest[rest.find('"').expect("the end of a string")..];
        let mut out = "{\"time\":\"TIME".to_owned();
        let mut parts = rest.split("_us\":");
        out.push_str(parts.next().unwrap_or_default());
        for part in parts {
            out.push_str("_us\":N");
            out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
        }
        return out;
    }
    if let Some((peer, rest)) = line.split_once(" - - [") {
        let (_, rest) = rest.split_once(']').expect("the end of a moment");
        return format!("{peer} - - [TIME]{}", without_times(rest));
    }
    match line.split_once(' ') {
        Some((moment, rest)) if moment.ends_with('Z') => format!("TIME {rest}"),
        _ => line.to_owned(),
    }
}

/// The end of a line in the common form: the word with three slashes has durations.
fn without_times(rest: &str) -> String {
    let word = |word: &str| match word.matches('/').count() {
        3 => word
            .split('/')
            .map(|time| if time == "-" { "-" } else { "N" })
            .collect::<Vec<_>>()
            .join("/"),
        _ => word.to_owned(),
    };
    rest.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_each_time_is_masked_and_nothing_else() {
        for (line, expected) in [
            (
                r#"{"time":"2026-11-27T01:00:00Z","queued_us":12,"tries":1}"#,
                r#"{"time":"TIME","queued_us":N,"tries":1}"#,
            ),
            (
                "::1 - - [27/Nov/2026:01:00:00 +0000] \"GET / HTTP/1.1\" 200 2 B 1/2/-/45 ok",
                "::1 - - [TIME] \"GET / HTTP/1.1\" 200 2 B N/N/-/N ok",
            ),
            ("2026-11-27T01:00:00Z pollux serve: debug: x 5", "TIME pollux serve: debug: x 5"),
        ] {
            assert_eq!(masked(line), expected);
        }
        assert_eq!(shown(b"A\r\nDate: Sun\r\n\"\xff"), "A\\r\\n\nDate: DATE\\r\\n\n\"\\xff\n");
    }

    #[test]
    fn a_scene_is_read_as_it_is_written() {
        let scene =
            Scene::parse("# x\nproxy: a = 1\n> a\\r\n> \\{bc*2}\\x00\n< d\n> e\n\n== serve\nold\n")
                .expect("a scene");
        let send = |bytes: &[u8]| Step::Send(bytes.to_vec());
        assert_eq!(scene.steps, [send(b"a\rbcbc\0"), Step::Await(b"d".to_vec()), send(b"e")]);
        assert!(scene.sets(Program::Proxy, "a") && !scene.sets(Program::Serve, "a"));
        assert!(Scene::parse("what").is_err() && Scene::parse("> \\q").is_err());
    }
}
