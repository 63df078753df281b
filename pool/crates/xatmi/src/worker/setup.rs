//! The start of a worker: its environment, the descriptors that it inherits, its command line.
//!
//! Read once, when the process starts. Tests and programs that start workers in another way fill
//! [`Setup`] in themselves.

use std::env;
use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};

use pollux_sys::process;

use super::output::GivenOutput;
use crate::config::{OPTIONS_VARIABLE, split_words};
use crate::environment::Environment;
use crate::error::{Code, Error};
use crate::memory::WorkerMemory;
use crate::queue::ServiceName;
use crate::slots::Slots;

/// The variable with the numbers of the link, of the slots and of the worker's slot.
pub const LINK_VARIABLE: &str = "POLLUX_POOL_LINK";
/// The variable for the workers that a message wakes: `one` or `all`.
pub const WAKE_VARIABLE: &str = "POLLUX_POOL_WAKE";

/// The variable with the numbers of the files of the pool's memory (records, claims, exchange) and of the
/// worker in it, where requests are there.
pub const MEMORY_VARIABLE: &str = "POLLUX_POOL_MEMORY";

/// Options with a value that mean nothing to a worker: the manager opened the files (`-e`, `-o`)
/// and knows the key; the others are features that are not here.
const TAKEN_WITH_VALUE: &[char] = &['e', 'o', 'k'];
const UNKNOWN_WITH_VALUE: &[char] = &['g', 'G', 'R', 'D', 'h'];
/// Options without a value and without effect.
const TAKEN_ALONE: &[char] = &['r'];

/// The workers that a message wakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wake {
    /// One of the workers that wait (EPOLLEXCLUSIVE).
    #[default]
    One,
    /// All of them: a thundering herd, for measurements.
    All,
}

/// The things that a worker is started with.
#[derive(Debug)]
pub struct Setup {
    /// Its end of the link to the manager.
    pub link: OwnedFd,
    /// The slots of the pool.
    pub slots: Slots,
    /// Its own among them.
    pub slot: usize,
    /// The workers that a message wakes.
    pub wake: Wake,
    /// The memory that requests are in, and the number of the worker in it; none where queues are used.
    pub(crate) memory: Option<(WorkerMemory, usize)>,
    /// The files that the manager gave for its output.
    pub(crate) output: GivenOutput,
    /// The pool's prefix, for the names of queues.
    pub environment: Environment,
}

impl Setup {
    /// Takes what the manager left to this process.
    ///
    /// # Errors
    /// TPESYSTEM where it was not started by a manager, or what was left can't be used.
    pub fn of_process() -> Result<Self, Error> {
        let environment =
            Environment::of_process().map_err(|bad| Error::new(Code::Invalid, bad.to_string()))?;
        let link = env::var(LINK_VARIABLE).map_err(|_| {
            let detail = format!(
                "{LINK_VARIABLE} is not in the environment: a server is not started by hand, \
                 start it with `pollux pool start`"
            );
            Error::new(Code::System, detail)
        })?;
        let numbers = Numbers::parse(&link)?;
        let wake = env::var(WAKE_VARIABLE).unwrap_or_default();
        let slots = Slots::from_fd(descriptor(numbers.slots)?)
            .map_err(|source| unusable("the memory of the slots", source))?;
        let wake = wake_named(&wake)?;
        let memory = env::var(MEMORY_VARIABLE).ok().map(|text| memory(&text)).transpose()?;
        let link = descriptor(numbers.link)?;
        let output = GivenOutput::of_process();
        Ok(Self { link, slots, slot: numbers.slot, wake, memory, output, environment })
    }
}

/// The arguments of a worker: `given`, or those that the manager left in the environment for the program that a
/// command line (`<cmdline>`) starts without any.
#[must_use]
pub fn arguments_or_left(given: Vec<OsString>) -> Vec<OsString> {
    let left = env::var(OPTIONS_VARIABLE).ok().filter(|_| given.len() <= 1);
    let words = left.and_then(|text| split_words(&text).ok()).unwrap_or_default();
    given.into_iter().chain(words.into_iter().map(OsString::from)).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Numbers {
    link: RawFd,
    slots: RawFd,
    slot: usize,
}

impl Numbers {
    fn parse(text: &str) -> Result<Self, Error> {
        let mut parts = text.split(',');
        let mut next = || parts.next().and_then(|part| part.parse::<u32>().ok());
        let numbers = (next(), next(), next());
        match (numbers, parts.next()) {
            ((Some(link), Some(slots), Some(slot)), None) => Ok(Self {
                link: link.cast_signed(),
                slots: slots.cast_signed(),
                slot: slot as usize,
            }),
            _ => {
                let text = text.escape_debug();
                let detail = format!("{LINK_VARIABLE}=`{text}`: give LINK_FD,SLOTS_FD,SLOT");
                Err(Error::new(Code::System, detail))
            }
        }
    }
}

fn memory(text: &str) -> Result<(WorkerMemory, usize), Error> {
    let numbers: Option<Vec<u32>> = text.split(',').map(|number| number.parse().ok()).collect();
    let Some([records, claims, exchange, number]) = numbers.as_deref() else {
        let text = text.escape_debug();
        let detail =
            format!("{MEMORY_VARIABLE}=`{text}`: give RECORDS_FD,CLAIMS_FD,EXCHANGE_FD,WORKER");
        return Err(Error::new(Code::System, detail));
    };
    let file = |number: &u32| descriptor(number.cast_signed());
    let memory = WorkerMemory::from_files([file(records)?, file(claims)?, file(exchange)?]);
    let number = *number as usize;
    Ok((memory.map_err(|source| unusable("the memory of the pool", source))?, number))
}

fn wake_named(name: &str) -> Result<Wake, Error> {
    match name {
        "" | "one" => Ok(Wake::One),
        "all" => Ok(Wake::All),
        other => {
            let other = other.escape_debug();
            Err(Error::new(Code::Invalid, format!("{WAKE_VARIABLE}=`{other}`: give one or all")))
        }
    }
}

fn descriptor(number: RawFd) -> Result<OwnedFd, Error> {
    process::duplicate_inherited(number)
        .map_err(|source| unusable("an inherited descriptor", source))
}

fn unusable(what: &str, source: std::io::Error) -> Error {
    let detail = format!("{what} named by {LINK_VARIABLE} can't be used");
    Error::caused(Code::System, detail, source)
}

/// The command line: `-k KEY -i SRVID <sysopt> -- <appopt>`.
///
/// A configuration may have options in `sysopt` that have no effect here; they are ignored with a notice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// `-i`: the server's number.
    pub srvid: u32,
    /// `-N`: offer only what `-s` names.
    pub is_without_services: bool,
    /// `-B`: of the services that the program was built with, offer only what `-s` names.
    pub is_without_built_in: bool,
    /// `-s`: further names of services, and names to be kept under `-N`.
    pub aliases: Vec<Alias>,
    /// `-n`: services that are not to be offered.
    pub masked: Vec<String>,
    /// `-x`: functions whose buffers are converted, for those who run them.
    pub conversions: Vec<(String, Conversion)>,
    /// The arguments behind `--`.
    pub application: Vec<OsString>,
    /// Messages about options that have no effect.
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

/// What a function gets in place of what its caller sent; its reply goes the other way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conversion {
    JsonToUbf,
    UbfToJson,
}

impl Options {
    /// Reads the arguments behind the program's name.
    ///
    /// # Errors
    /// The message when `-i` is missing or not a number.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut arguments = arguments.into_iter().peekable();
        let mut options = Self::default();
        let mut srvid = None;
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                options.application = arguments.collect();
                break;
            }
            let text = argument.to_string_lossy().into_owned();
            let Some(letter) = text.strip_prefix('-').and_then(|rest| rest.chars().next()) else {
                options.notices.push(format!("argument `{text}` before -- is ignored"));
                continue;
            };
            let attached = text[1 + letter.len_utf8()..].to_owned();
            let mut value = || {
                if attached.is_empty() {
                    arguments
                        .next_if(|next| next != "--")
                        .map(|next| next.to_string_lossy().into_owned())
                        .unwrap_or_default()
                } else {
                    attached.clone()
                }
            };
            match letter {
                'i' => srvid = Some(value()),
                'N' => options.is_without_services = true,
                'B' => options.is_without_built_in = true,
                's' => options.alias(&value()),
                'S' => options.alias_of_function(&value()),
                'n' => options.masked.push(value()),
                'x' => options.convert(&value()),
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
    pub fn keeps(&self, name: &str, is_built_in: bool) -> bool {
        let is_named = |alias: &Alias| {
            alias.service.as_ref().is_none_or(|service| service == name)
                && alias.names.iter().any(|known| known == name)
        };
        let is_left_out = self.is_without_services || (self.is_without_built_in && is_built_in);
        let is_kept = !is_left_out || self.aliases.iter().any(is_named);
        is_kept && !self.is_masked(name)
    }

    /// Whether `-n` takes a service away, wherever its name is from.
    #[must_use]
    pub fn is_masked(&self, name: &str) -> bool {
        self.masked.iter().any(|masked| masked == name)
    }

    /// `NAME/NAME:FUNCTION`, or `NAME/NAME` of functions with these names.
    fn alias_of_function(&mut self, value: &str) {
        if value.contains(':') {
            return self.alias(value);
        }
        for name in value.split(['/', ',']) {
            self.alias(&format!("{name}:{name}"));
        }
    }

    /// `FUNCTION,FUNCTION:JSON2UBF` or the same with `UBF2JSON`.
    fn convert(&mut self, value: &str) {
        let Some((names, mode)) = value.split_once(':') else {
            let notice = format!("option -x {value}: give FUNCTION:JSON2UBF or FUNCTION:UBF2JSON");
            return self.notices.push(notice);
        };
        let conversion = match mode {
            "JSON2UBF" => Conversion::JsonToUbf,
            "UBF2JSON" => Conversion::UbfToJson,
            _ => {
                let notice =
                    format!("option -x {value}: `{mode}` is neither JSON2UBF nor UBF2JSON");
                return self.notices.push(notice);
            }
        };
        let names = names.split(',').filter(|name| !name.is_empty());
        self.conversions.extend(names.map(|name| (name.to_owned(), conversion)));
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
                None => self.notices.push(format!("option -s {value}: `{name}` is not a service")),
            }
        }
        self.aliases.push(alias);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers_and_nothing_else() {
        let numbers = Numbers { link: 5, slots: 6, slot: 249 };
        assert_eq!(Numbers::parse("5,6,249").expect("good"), numbers);
        for bad in ["", "5,6", "5,6,7,8", "-1,6,7", "a,b,c"] {
            let said = Numbers::parse(bad).expect_err(bad).to_string();
            assert!(said.contains("give LINK_FD,SLOTS_FD,SLOT"), "{said}");
        }
    }

    #[test]
    fn the_switch_of_the_experiment_is_one_or_all() {
        assert_eq!(wake_named("").expect("the default"), Wake::One);
        assert_eq!(wake_named("all").expect("good"), Wake::All);
        assert!(wake_named("some").is_err());
    }

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_line_of_the_seed_is_read() {
        let options = parse("-k 0myWI -i 17 -e /opt/app1/log/BANKSV -r -- -x 1").expect("good");
        assert_eq!(options.srvid, 17);
        assert_eq!(options.application, ["-x", "1"]);
        assert!(options.notices.is_empty(), "{:?}", options.notices);
        assert!(options.keeps("BALANCE", true));
    }

    #[test]
    fn services_are_renamed_masked_and_left_out() {
        let options = parse("-i1 -sB2/B3:BALANCE -n DEBIT").expect("good");
        let alias =
            Alias { names: vec!["B2".into(), "B3".into()], service: Some("BALANCE".into()) };
        assert_eq!(options.aliases, [alias]);
        assert!(options.keeps("BALANCE", true) && !options.keeps("DEBIT", true));
        let options = parse("-i 1 -N -s CREDIT,DEBIT -s X:BALANCE").expect("good");
        assert!(
            options.keeps("DEBIT", true)
                && options.keeps("CREDIT", true)
                && !options.keeps("BALANCE", true)
        );
    }

    #[test]
    fn functions_have_names_of_services() {
        let options = parse("-i 1 -N -SNEW/NEW2:some -nNEW -S X,Y").expect("good");
        let of = |names: &[&str], service: &str| Alias {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            service: Some(service.to_owned()),
        };
        assert_eq!(
            options.aliases,
            [of(&["NEW", "NEW2"], "some"), of(&["X"], "X"), of(&["Y"], "Y")]
        );
        assert!(options.is_masked("NEW") && !options.is_masked("NEW2"));
        assert!(options.keeps("X", true) && !options.keeps("some", true));
        assert!(options.notices.is_empty(), "{:?}", options.notices);
        let options = parse("-i 1 -B -sKEPT").expect("good");
        assert!(options.keeps("ADDED", false) && !options.keeps("BUILT", true));
        assert!(options.keeps("KEPT", true));
    }

    #[test]
    fn conversions_are_those_of_functions() {
        let options = parse("-i 1 -xONE,TWO:JSON2UBF -x THREE:UBF2JSON").expect("good");
        let json = Conversion::JsonToUbf;
        let ubf = Conversion::UbfToJson;
        let expected = [("ONE", json), ("TWO", json), ("THREE", ubf)];
        assert_eq!(options.conversions, expected.map(|(name, what)| (name.to_owned(), what)));
        assert!(options.notices.is_empty(), "{:?}", options.notices);
        let options = parse("-i 1 -x JSON2UBF -xONE:JSON2VIEW").expect("good");
        assert_eq!((options.conversions.len(), options.notices.len()), (0, 2));
    }

    #[test]
    fn unknown_options_are_named_and_ignored() {
        let options = parse("-i 3 -V -x BUF2FML:SVC stray -Q -s a,,b -- y").expect("it is read");
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
