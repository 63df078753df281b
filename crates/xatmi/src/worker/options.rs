//! The command line of a worker: `-k KEY -i SRVID <sysopt> -- <appopt>`.
//!
//! Read once at the start. What a configuration may write into `sysopt` goes beyond what has a
//! meaning here; such options are passed over with a notice and never stop a server.

use std::ffi::OsString;

use crate::queue::ServiceName;

/// What the command line asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `-i`: the server's number.
    pub srvid: u32,
    /// `-N`: offer only what `-s` names.
    pub is_without_services: bool,
    /// `-s`: further names of services, and names to be kept under `-N`.
    pub aliases: Vec<Alias>,
    /// `-n`: services that are not to be offered.
    pub masked: Vec<String>,
    /// What follows `--`.
    pub application: Vec<OsString>,
    /// What could not be understood, in words.
    pub notices: Vec<String>,
}

/// `-s NEW[/NEW2]:OLD`: what `OLD` does is offered as `NEW` and `NEW2` too. Without `:OLD` the
/// names are those that `-N` keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alias {
    /// The names in front.
    pub names: Vec<String>,
    /// The service behind the colon.
    pub service: Option<String>,
}

/// Options with a value that mean nothing to a worker: the manager opened the files (`-e`, `-o`)
/// and knows the key; the others are features that are not here.
const TAKEN_WITH_VALUE: &[char] = &['e', 'o', 'k'];
const UNKNOWN_WITH_VALUE: &[char] = &['S', 'x', 'g', 'G', 'R', 'D', 'h'];
/// Options without a value and without effect.
const TAKEN_ALONE: &[char] = &['r'];

impl Options {
    /// Reads the arguments behind the program's name.
    ///
    /// # Errors
    /// When `-i` is missing or is no number; in words.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut arguments = arguments.into_iter().peekable();
        let (mut options, mut srvid) = (Self::default(), None);
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                options.application = arguments.collect();
                break;
            }
            let text = argument.to_string_lossy().into_owned();
            let Some(letter) = text.strip_prefix('-').and_then(|rest| rest.chars().next()) else {
                options.notices.push(format!("argument `{text}` before -- is passed over"));
                continue;
            };
            let attached = text[1 + letter.len_utf8()..].to_owned();
            let mut value = || match attached.is_empty() {
                false => attached.clone(),
                true => arguments
                    .next_if(|next| next != "--")
                    .map(|next| next.to_string_lossy().into_owned())
                    .unwrap_or_default(),
            };
            match letter {
                'i' => srvid = Some(value()),
                'N' => options.is_without_services = true,
                's' => options.alias(&value()),
                'n' => options.masked.push(value()),
                taken if TAKEN_WITH_VALUE.contains(&taken) => drop(value()),
                taken if TAKEN_ALONE.contains(&taken) => {}
                unknown => {
                    let has_value = UNKNOWN_WITH_VALUE.contains(&unknown);
                    let value = if has_value { value() } else { attached.clone() };
                    options.notices.push(format!("option -{unknown} {value} has no effect here"));
                }
            }
        }
        let srvid = srvid.ok_or("option -i SRVID is missing: start it with `pollux pool start`")?;
        let wrong = |_| format!("option -i {srvid}: give the server's number");
        options.srvid = srvid.trim().parse().map_err(wrong)?;
        Ok(options)
    }

    /// Whether a service that the program offers under `name` is to be offered.
    #[must_use]
    pub fn keeps(&self, name: &str) -> bool {
        let is_named = |alias: &Alias| {
            alias.service.is_none() && alias.names.iter().any(|known| known == name)
        };
        let is_kept = !self.is_without_services || self.aliases.iter().any(is_named);
        is_kept && !self.masked.iter().any(|masked| masked == name)
    }

    fn alias(&mut self, value: &str) {
        let (names, service) = match value.split_once(':') {
            Some((names, service)) => (names, Some(service.to_owned())),
            None => (value, None),
        };
        let mut alias = Alias { names: Vec::new(), service };
        for name in names.split(['/', ',']) {
            match ServiceName::new(name) {
                Some(name) => alias.names.push(name.as_str().to_owned()),
                None => self.notices.push(format!("option -s {value}: `{name}` is no service")),
            }
        }
        self.aliases.push(alias);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_line_of_the_seed_is_read() {
        let options = parse("-k 0myWI -i 17 -e /opt/app1/log/BANKSV -r -- -x 1").expect("good");
        assert_eq!(options.srvid, 17);
        assert_eq!(options.application, ["-x", "1"]);
        assert!(options.notices.is_empty(), "{:?}", options.notices);
        assert!(options.keeps("BALANCE"));
    }

    #[test]
    fn services_are_renamed_masked_and_left_out() {
        let options = parse("-i1 -sB2/B3:BALANCE -n DEBIT").expect("good");
        let alias =
            Alias { names: vec!["B2".into(), "B3".into()], service: Some("BALANCE".into()) };
        assert_eq!(options.aliases, [alias]);
        assert!(options.keeps("BALANCE") && !options.keeps("DEBIT"));
        let options = parse("-i 1 -N -s CREDIT,DEBIT -s X:BALANCE").expect("good");
        assert!(options.keeps("DEBIT") && options.keeps("CREDIT") && !options.keeps("BALANCE"));
    }

    #[test]
    fn what_is_unknown_is_named_and_passed_over() {
        let options = parse("-i 3 -B -x BUF2FML:SVC stray -Q -s a,,b -- y").expect("it goes on");
        assert_eq!(options.srvid, 3);
        assert_eq!(options.notices.len(), 5, "{:?}", options.notices);
        assert_eq!(options.application, ["y"]);
    }

    #[test]
    fn a_number_must_be_there() {
        assert!(parse("-r").expect_err("no -i").contains("pollux pool start"));
        assert!(parse("-i -- x").expect_err("no value").contains("give the server's number"));
        assert!(parse("-i one").expect_err("no number").contains("-i one"));
    }
}
