//! The common configuration: files of NDRX_CCONFIG, which hold what else stands in the environment, and the settings
//! of logs.
//!
//! An environment that `xadmin provision` made names no more than such a file; NDRX_CONFIG, NDRX_QPREFIX and all
//! others stand in it. The C library and `pollux-pool` read it when they are loaded. Nothing here changes the
//! environment of the process.
//!
//! ```text
//! [@global]
//! NDRX_QPREFIX=/app1
//! NDRX_CONFIG=${NDRX_APPHOME}/conf/ndrxconfig.xml
//! [@global/RM1]                  ; beside those above where NDRX_CCTAG has RM1
//! FIELDTBLS=rm1.fd
//! [@debug]
//! * = tp=4 file=
//! banksv = file=${NDRX_ULOG}/banksv.log
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use regex::bytes::RegexBuilder;

/// The variables that name files or folders of files; of what stands in several the later one counts.
pub const VARIABLES: [&str; 6] = [
    "NDRX_CCONFIG5",
    "NDRX_CCONFIG4",
    "NDRX_CCONFIG3",
    "NDRX_CCONFIG2",
    "NDRX_CCONFIG1",
    "NDRX_CCONFIG",
];
/// The variable with the tags of subsections that count, with `/` between.
pub const TAG_VARIABLE: &str = "NDRX_CCTAG";
/// The variable with a file of log settings, which counts where there is no `[@debug]`.
pub const DEBUG_VARIABLE: &str = "NDRX_DEBUG_CONF";
/// The variable with the name of a worker's program in the configuration.
pub const NAME_VARIABLE: &str = "NDRX_SVPROCNAME";

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most files of a folder.
const FILES_MAX: usize = 256;
/// The sections that are read, with those below them.
const SECTIONS: [&str; 2] = ["@global", "@debug"];
/// Of a folder, files with these endings are read.
const ENDINGS: [&str; 4] = ["ini", "cfg", "conf", "config"];

/// What files of the common configuration say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommonConfig {
    /// Sections by name, without brackets; their entries in the order of the files.
    sections: BTreeMap<String, Vec<(String, String)>>,
    tags: Vec<String>,
}

impl CommonConfig {
    /// Reads the files that the environment names, which `variable` knows; `None` where it names none.
    ///
    /// # Errors
    /// In words, with file and line.
    pub fn of_environment(
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let named = |name| variable(name).filter(|path| !path.is_empty());
        let paths: Vec<_> =
            VARIABLES.into_iter().filter_map(|name| Some((name, named(name)?))).collect();
        if paths.is_empty() {
            return Ok(None);
        }
        let mut config = Self::default();
        for (name, path) in paths {
            let failed = |error: io::Error| format!("{name}={path}: {error}");
            for file in files_of(Path::new(&path)).map_err(failed)? {
                let text = text_of(&file).map_err(|why| format!("{}: {why}", file.display()))?;
                config.add(&file, &text)?;
            }
        }
        let own = config.sections.get("@global");
        let own = own.and_then(|all| all.iter().rev().find(|(name, _)| name == TAG_VARIABLE));
        let tags = variable(TAG_VARIABLE).or_else(|| own.map(|(_, tags)| tags.clone()));
        let tags = tags.unwrap_or_default();
        let tags = tags.split('/').map(str::trim).filter(|tag| !tag.is_empty());
        config.tags = tags.map(str::to_owned).collect();
        Ok(Some(config))
    }

    /// Takes in a file: comments begin with `;` or `#`, the rest are `[SECTION]` and `NAME=VALUE`. Sections of other
    /// programs may hold what they like.
    fn add(&mut self, file: &Path, text: &str) -> Result<(), String> {
        let mut section = None;
        for (number, line) in text.lines().enumerate() {
            let wrong = |what: &str| format!("{}:{}: {what}", file.display(), number + 1);
            let line = without_comment(line);
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                let name = name.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
                let name = name.ok_or_else(|| wrong("expected [SECTION]"))?;
                let is_read = SECTIONS.contains(&name.split('/').next().unwrap_or_default());
                let entries = is_read.then(|| self.sections.entry(name.to_owned()).or_default());
                section = Some(entries);
                continue;
            }
            let Some(entries) = section.as_mut() else {
                return Err(wrong(
                    "it stands in no section; expected [@global] or another one before it",
                ));
            };
            if let Some(entries) = entries {
                let (name, value) = line
                    .split_once('=')
                    .ok_or_else(|| wrong("expected NAME=VALUE, [SECTION] or a comment"))?;
                entries.push((name.trim().to_owned(), value.trim().to_owned()));
            }
        }
        Ok(())
    }

    /// Entries of a section, then those of its subsections that the tags name.
    fn section(&self, name: &str) -> impl Iterator<Item = &(String, String)> {
        let tagged = self.tags.iter().map(move |tag| format!("{name}/{tag}"));
        let names: Vec<String> = std::iter::once(name.to_owned()).chain(tagged).collect();
        names.into_iter().filter_map(|name| self.sections.get(&name)).flatten()
    }

    /// The environment variables of `[@global]`. `${NAME}` in them is another one of them, wherever it stands, else one
    /// of the environment, else nothing.
    #[must_use]
    pub fn variables(&self, variable: &dyn Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        // The second round knows what stands further below.
        for _ in 0..2 {
            for (name, text) in self.section("@global") {
                let known = |other: &str| {
                    // PATH=${PATH}:… adds to that of the environment.
                    let own = values.get(other).filter(|_| other != name).cloned();
                    own.or_else(|| variable(other))
                };
                let value = substituted(text, &known);
                values.insert(name.clone(), value);
            }
        }
        values
    }

    /// What `[@debug]` says of the log of a program: words NAME=VALUE, those for all programs first. `None` where there
    /// is no such section.
    #[must_use]
    pub fn debug_words(
        &self,
        program: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Option<String> {
        let lines: Vec<_> = self.section("@debug").collect();
        let lines: Vec<_> =
            lines.iter().map(|(name, words)| (name.as_str(), words.as_str())).collect();
        self.sections.contains_key("@debug").then(|| words_for(program, &lines, variable))
    }
}

/// The same of the file of NDRX_DEBUG_CONF: lines with a program's name, or `*`, and words.
///
/// # Errors
/// In words, why the file can't be read.
pub fn debug_words_of_file(
    file: &Path,
    program: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let text = text_of(file).map_err(|why| format!("{}: {why}", file.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let lines: Vec<_> = lines.filter_map(|line| line.split_once(char::is_whitespace)).collect();
    Ok(words_for(program, &lines, variable))
}

/// Words of lines for all programs, then of those for one: a later one counts. A server is one by its name in the
/// configuration. For a program without a line, the lines that `rebins` of those for all names are tried: the first one whose
/// `match` fits counts.
fn words_for(
    program: &str,
    lines: &[(&str, &str)],
    variable: &dyn Fn(&str) -> Option<String>,
) -> String {
    let of_server = variable(NAME_VARIABLE).filter(|name| !name.is_empty());
    let program = of_server.as_deref().unwrap_or(program);
    let of = |wanted: &str| -> Vec<String> {
        let own = lines.iter().filter(|(name, _)| *name == wanted);
        own.map(|(_, words)| substituted(words, variable)).collect()
    };
    let of_all = lines.iter().filter(|(name, _)| name.starts_with('*'));
    let mut words: Vec<String> = of_all.map(|(_, words)| substituted(words, variable)).collect();
    let mut of_one = of(program);
    if of_one.is_empty() {
        let names: Vec<String> =
            words.iter().filter_map(|words| value_in(words, "rebins")).collect();
        let mut tried = names.iter().flat_map(|names| names.split(',')).map(|name| of(name.trim()));
        of_one =
            tried.find(|words| words.iter().any(|words| fits(words, program))).unwrap_or_default();
    }
    words.append(&mut of_one);
    words.join(" ")
}

/// Whether the regular expression of a line, if it has one, fits a program; one that is broken fits none.
fn fits(words: &str, program: &str) -> bool {
    let pattern = value_in(words, "match").unwrap_or_default();
    let pattern = RegexBuilder::new(&pattern).unicode(false).build();
    pattern
        .is_ok_and(|pattern| !pattern.as_str().is_empty() && pattern.is_match(program.as_bytes()))
}

/// The value of a word NAME=VALUE, which may stand in quotes and have blanks then.
fn value_in(words: &str, name: &str) -> Option<String> {
    let mut rest = words;
    loop {
        rest = rest.trim_start();
        let (word, behind) = rest.split_once('=')?;
        let (value, behind) =
            match behind.chars().next().filter(|first| matches!(first, '"' | '\'')) {
                Some(quote) => behind[1..].split_once(quote).unwrap_or((&behind[1..], "")),
                None => behind.split_at(behind.find(char::is_whitespace).unwrap_or(behind.len())),
            };
        if word == name {
            return Some(value.to_owned());
        }
        rest = behind;
    }
}

/// A line without its comment and blanks around it. A comment behind something begins with a blank and `;`.
fn without_comment(line: &str) -> &str {
    let line = line.trim();
    if line.starts_with([';', '#']) {
        return "";
    }
    let end = line
        .match_indices(';')
        .map(|(at, _)| at)
        .find(|at| line[..*at].ends_with(char::is_whitespace));
    line[..end.unwrap_or(line.len())].trim_end()
}

/// A text with `${NAME}` as what `known` says of it, and nothing for what it does not know.
fn substituted(text: &str, known: &dyn Fn(&str) -> Option<String>) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        let Some((name, behind)) = behind.split_once('}') else { break };
        done.push_str(before);
        done.push_str(&known(name).unwrap_or_default());
        rest = behind;
    }
    done + rest
}

/// The file, or those of the folder, in the order of their names.
fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ENDINGS.contains(&ending) && file.is_file() {
            files.push(file);
        }
        if files.len() > FILES_MAX {
            let more = format!("more than {FILES_MAX} files of the common configuration");
            return Err(io::Error::other(more));
        }
    }
    files.sort();
    Ok(files)
}

fn text_of(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = fs::File::open(file)
        .and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment of these variables alone.
    fn of(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> + use<> {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        move |wanted| pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
    }

    const APP: &str = "; of provision\n[@global]\nNDRX_QPREFIX=/app1 ; a comment\n\
        NDRX_CONFIG=${NDRX_CONF}/ndrxconfig.xml\nNDRX_CONF = ${NDRX_APPHOME}/conf\n\
        PATH=${PATH}:${NDRX_APPHOME}/bin\nEMPTY=${NOWHERE}\n# another\n[@global/RM1]\nFIELDTBLS=rm1.fd\n\
        NDRX_QPREFIX=/rm1\n[@debug]\n*= ndrx=5 tp=3 lines=1 file=\nbanksv=file=${NDRX_APPHOME}/log/banksv.log tp=5\n\
        [elsewhere]\nX=1\nwords of another program\n";

    #[test]
    fn a_file_holds_the_environment_and_the_settings_of_logs() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("app.ini");
        fs::write(&file, APP).expect("written");
        let file = file.to_str().expect("text");
        let pairs = [("NDRX_CCONFIG", file), ("NDRX_APPHOME", "/opt/app"), ("PATH", "/bin")];
        let environment = of(&pairs);
        let config = CommonConfig::of_environment(&environment).expect("sound").expect("there");
        let variables = config.variables(&environment);
        let value = |name: &str| variables.get(name).map(String::as_str);
        assert_eq!(value("NDRX_QPREFIX"), Some("/app1"));
        assert_eq!(value("NDRX_CONFIG"), Some("/opt/app/conf/ndrxconfig.xml"), "from below");
        assert_eq!(value("PATH"), Some("/bin:/opt/app/bin"), "added once");
        assert_eq!((value("EMPTY"), value("X"), value("FIELDTBLS")), (Some(""), None, None));
        let words = |program: &str| config.debug_words(program, &environment).expect("a section");
        assert_eq!(words("bankcl"), "ndrx=5 tp=3 lines=1 file=");
        let own = "ndrx=5 tp=3 lines=1 file= file=/opt/app/log/banksv.log tp=5";
        assert_eq!(words("banksv"), own);

        let tagged = of(&[&pairs[..], &[("NDRX_CCTAG", "RM0/RM1")]].concat());
        let config = CommonConfig::of_environment(&tagged).expect("sound").expect("there");
        let variables = config.variables(&tagged);
        assert_eq!(variables.get("NDRX_QPREFIX").map(String::as_str), Some("/rm1"));
        assert_eq!(variables.get("FIELDTBLS").map(String::as_str), Some("rm1.fd"));
        assert_eq!(CommonConfig::of_environment(&of(&[])), Ok(None));
    }

    #[test]
    fn of_several_files_the_closest_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::create_dir(path("common")).expect("made");
        for (name, text) in [
            ("common/b.ini", "[@global]\nA=b\nB=b\n"),
            ("common/a.conf", "[@global]\nA=a\nB=a\nC=a\n"),
            ("common/notes.txt", "no configuration"),
            ("app.ini", "[@global]\nA=app\n"),
        ] {
            fs::write(path(name), text).expect("written");
        }
        let app = path("app.ini");
        let common = path("common");
        let environment = of(&[("NDRX_CCONFIG", &app), ("NDRX_CCONFIG1", &common)]);
        let config = CommonConfig::of_environment(&environment).expect("sound").expect("there");
        let values: Vec<_> = config.variables(&environment).into_values().collect();
        assert_eq!(values, ["app", "b", "a"]);
        assert_eq!(config.debug_words("x", &environment), None);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("app.ini");
        let path = file.display().to_string();
        let said = |text: &str| {
            fs::write(&file, text).expect("written");
            CommonConfig::of_environment(&of(&[("NDRX_CCONFIG", &path)])).expect_err("wrong")
        };
        assert_eq!(
            said("A=1\n"),
            format!(
                "{path}:1: it stands in no section; expected [@global] or another one before it"
            )
        );
        assert_eq!(said("[@global\n"), format!("{path}:1: expected [SECTION]"));
        let expected = format!("{path}:3: expected NAME=VALUE, [SECTION] or a comment");
        assert_eq!(said("[@global]\n\nword\n"), expected);
        let none = CommonConfig::of_environment(&of(&[("NDRX_CCONFIG", "/no/such.ini")]));
        let none = none.expect_err("not there");
        assert!(none.starts_with("NDRX_CCONFIG=/no/such.ini: No such file"), "{none}");
    }

    #[test]
    fn a_line_of_logs_is_found_by_the_name_of_the_server_and_by_an_expression() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("app.ini");
        let text = "[@debug]\n*= tp=0 rebins=\"one, two,three\" file=\none=match=\"^bank .*|^a+$\" tp=1\n\
                    two=tp=2 match=.*cl$\nthree=match=( tp=3\nbanksv=tp=4\nhello=tp=\"5\"\n";
        fs::write(&file, text).expect("written");
        let path = file.display().to_string();
        let words = |program: &str, server: &str| {
            let environment = of(&[("NDRX_CCONFIG", &path), ("NDRX_SVPROCNAME", server)]);
            let config = CommonConfig::of_environment(&environment).expect("sound").expect("there");
            let words = config.debug_words(program, &environment).expect("a section");
            value_in(&words.replace("tp=0", ""), "tp")
        };
        for (program, server, level) in [
            ("aaa", "", Some("1")),
            ("bank two", "", Some("1")),
            ("bankcl", "", Some("2")),
            ("banksv", "", Some("4")),
            ("banksv", "hello", Some("5")),
            ("banksv", "othercl", Some("2")),
            ("banksv", "two", Some("2")),
            ("other", "", None),
        ] {
            assert_eq!(words(program, server).as_deref(), level, "{program} {server}");
        }
    }

    #[test]
    fn the_file_of_logs_has_a_line_for_each_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("debug.conf");
        fs::write(
            &file,
            "# all\n* ndrx=5 tp=2 file=\n\nbankcl\t\ttp=4 file=${LOG}/CL\nother tp=1\nword\n",
        )
        .expect("written");
        let environment = of(&[("LOG", "/log")]);
        let words = |program| debug_words_of_file(&file, program, &environment).expect("there");
        assert_eq!(
            words("bankcl").split_whitespace().collect::<Vec<_>>(),
            ["ndrx=5", "tp=2", "file=", "tp=4", "file=/log/CL"]
        );
        assert_eq!(words("nobody"), "ndrx=5 tp=2 file=");
        let missing = debug_words_of_file(Path::new("/no/such.conf"), "x", &environment);
        assert!(missing.expect_err("not there").starts_with("/no/such.conf: No such file"));
    }
}
