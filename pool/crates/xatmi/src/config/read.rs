//! From the tree of elements to a configuration: defaults, overrides, units, bounds.
//!
//! All mistakes are collected, and warnings beside them; an unknown element is a warning and is ignored.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::document::Element;
use super::entities::{ReadFile, expanded};
use super::system_servers::passed_over;
use super::{
    ConfigError, Diagnostic, Entry, ID_VARIABLE, NAME_VARIABLE, OPTIONS_VARIABLE, Policy,
    PoolConfig, Settings, Spinning, redirections,
};
use crate::common_config::TAG_VARIABLE;
use crate::environment::{Group, Transport};
use crate::priority::Priority;
use crate::queue::ServiceName;

/// Most cycles or seconds that a value may have: a day of seconds.
const COUNT_MAX: i64 = 86_400;

/// The highest number of a signal.
const SIGNAL_MAX: i32 = 64;

/// Most warnings that are kept: each goes to the terminal and into the log.
const WARNINGS_MAX: usize = 100;

/// Elements of `<appconfig>`.
const APP_NAMES: &str = "sanity, brrefresh, restart_min, restart_step, restart_max, \
     restart_to_check, gather_pq_stats";
/// Elements of `<server>`.
const SERVER_NAMES: &str = "srvid, min, max, autokill, respawn, start_max, pingtime, ping_max, \
     end_max, killtime, killseq, sleep_after, rssmax, vszmax, reloadonchange, fullpath, cmdline, \
     exportsvcs, sysopt, appopt, envs, cctag";
/// Elements of `<defaults>`.
const DEFAULT_NAMES: &str = "min, max, autokill, respawn, start_max, pingtime, ping_max, \
     end_max, killtime, killseq, sleep_after, rssmax, vszmax, reloadonchange, exportsvcs, envs, \
     cctag";
/// Elements of Enduro/X that are not used here. Nearly every configuration of it has some, so one warning names them all.
const NOT_USED: [&str; 13] = [
    "checkpm",
    "rqaddrttl",
    "ddrreload",
    "respawncheck",
    "protected",
    "isprot",
    "blacklistsvcs",
    "srvstartwait",
    "srvstopwait",
    "mindispatchthreads",
    "maxdispatchthreads",
    "threadstacksize",
    "procgrp_lp",
];
/// Elements that may stand several times; of the others the last one counts.
const REPEATED_NAMES: [&str; 5] = ["server", "env", "envs", "usegroup", "exportsvcs"];

/// Reads `text`, the content of `file`; `read_file` reads those that its entities name.
pub(super) fn read(
    file: &str,
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    read_file: &ReadFile<'_>,
) -> Result<PoolConfig, ConfigError> {
    if let Some(line) = ubbconfig_line(text) {
        let what = format!(
            "this is a UBBCONFIG of Tuxedo; expected an ndrxconfig.xml: `pollux pool convert {file} > ndrxconfig.xml` makes \
             one of it"
        );
        return Err(ConfigError::one(file, line, what));
    }
    let root = expanded(text, read_file)
        .and_then(|text| Element::parse(&text))
        .map_err(|broken| ConfigError::one(file, broken.line, format!("XML: {}", broken.what)))?;
    let mut reading = Reading {
        file,
        lookup,
        ids_end: super::IDS_END,
        exports: Vec::new(),
        groups: Vec::new(),
        mistakes: Vec::new(),
        warnings: Vec::new(),
        is_passing_over: false,
        not_used: BTreeMap::new(),
    };
    match super::ids_end(lookup) {
        Ok(end) => reading.ids_end = end,
        Err(why) => reading.mistake_at(0, why),
    }
    let mut config = reading.root(&root);
    reading.warn_of_not_used();
    for (line, why) in super::id_mistakes(&config.entries, reading.ids_end) {
        reading.mistake_at(line, why);
    }
    if reading.mistakes.is_empty() {
        config.exported_services = reading.exports;
        config.warnings = reading.warnings;
        Ok(config)
    } else {
        reading.mistakes.sort_by_key(|mistake| mistake.line);
        Err(ConfigError { mistakes: reading.mistakes, warnings: reading.warnings })
    }
}

/// The line of the first section of a UBBCONFIG, if the text is one.
fn ubbconfig_line(text: &str) -> Option<usize> {
    const SECTIONS: [&str; 7] =
        ["*RESOURCES", "*MACHINES", "*GROUPS", "*SERVERS", "*SERVICES", "*NETWORK", "*ROUTING"];
    let is_section = |line: &str| {
        SECTIONS
            .iter()
            .any(|name| line.get(..name.len()).is_some_and(|n| n.eq_ignore_ascii_case(name)))
    };
    let first = text.trim_start().starts_with('<');
    text.lines().position(is_section).filter(|_| !first).map(|at| at + 1)
}

/// The numbers of copies, which defaults and servers both give.
#[derive(Clone)]
struct Defaults {
    min: u32,
    max: u32,
    policy: Policy,
    variables: Vec<(String, String)>,
    /// Names of variables that are taken away.
    cleared: Vec<String>,
}

/// What elements of an `<envs>` do: a variable with its value, or without one when it is taken away.
type Changes = Vec<(String, Option<String>)>;

struct Reading<'a> {
    file: &'a str,
    lookup: &'a dyn Fn(&str) -> Option<String>,
    ids_end: u32,
    exports: Vec<String>,
    /// `<envs group="NAME">`: what `<usegroup>` stands for.
    groups: Vec<(String, Changes)>,
    mistakes: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    /// A server of Enduro/X was there.
    is_passing_over: bool,
    /// Elements that are not used here, with the first line and the number of each.
    not_used: BTreeMap<&'static str, (usize, usize)>,
}

impl Reading<'_> {
    fn root(&mut self, root: &Element) -> PoolConfig {
        let mut config = PoolConfig {
            file: PathBuf::from(self.file),
            settings: Settings::default(),
            entries: Vec::new(),
            exported_services: Vec::new(),
            priorities: Vec::new(),
            warnings: Vec::new(),
        };
        if root.name != "endurox" && root.name != "pollux" {
            self.warn(root, format!("<{}> stands where <endurox> is usual", root.name));
        }
        let policy = Policy::default();
        let mut defaults =
            Defaults { min: 1, max: 2, policy, variables: Vec::new(), cleared: Vec::new() };
        // Defaults count for the servers behind them; where none stand in front of the first server, for all.
        let place = |name: &str| root.children.iter().position(|part| part.name == name);
        let is_in_order = place("defaults") < place("servers");
        if !is_in_order {
            for part in root.children.iter().filter(|part| part.name == "defaults") {
                self.defaults(part, &mut defaults);
            }
        }
        for part in &root.children {
            match part.name.as_str() {
                "appconfig" => self.app(part, &mut config.settings),
                "defaults" if is_in_order => self.defaults(part, &mut defaults),
                "defaults" => {}
                "servers" => self.servers(part, &defaults, &mut config.entries),
                "services" => self.services(part, &mut config.priorities),
                _ => self.unknown(part, "appconfig, defaults, servers, services"),
            }
        }
        if config.entries.is_empty() && self.mistakes.is_empty() && !self.is_passing_over {
            // A reload may bring some.
            self.warn(
                root,
                "no <server name=\"PROGRAM\"> in <servers>: nothing runs until a reload finds one",
            );
        }
        config
    }

    fn app(&mut self, part: &Element, settings: &mut Settings) {
        self.warn_of_repeats(part);
        for (name, value) in &part.attributes {
            match name.as_str() {
                "transport" => match Transport::named(value) {
                    Some(transport) => settings.transport = Some(transport),
                    None => self.mistake(
                        part,
                        format!("transport=\"{value}\" of <appconfig>: expected memory or queues"),
                    ),
                },
                "spin" => match Spinning::named(value) {
                    Some(spin) => settings.spin = spin,
                    None => self.mistake(
                        part,
                        format!("spin=\"{value}\" of <appconfig>: expected auto or always"),
                    ),
                },
                "group" => match Group::of_machine(value) {
                    Ok(group) => settings.group = Some(group),
                    Err(why) => {
                        self.mistake(part, format!("group=\"{value}\" of <appconfig>: {why}"));
                    }
                },
                _ => self.warn(
                    part,
                    format!(
                        "the attribute {name} of <appconfig> is unknown and ignored; expected transport, \
                         spin or group"
                    ),
                ),
            }
        }
        for one in &part.children {
            match one.name.as_str() {
                "sanity" => self.count(one, 1, "seconds", &mut settings.sanity),
                "brrefresh" => self.count(one, 0, "cycles", &mut settings.bridge_refresh_cycles),
                "restart_min" => self.count(one, 0, "cycles", &mut settings.restart_min_cycles),
                "restart_step" => self.count(one, 0, "cycles", &mut settings.restart_step_cycles),
                "restart_max" => self.count(one, 0, "cycles", &mut settings.restart_max_cycles),
                "restart_to_check" => self.count(one, 0, "seconds", &mut settings.learning),
                "gather_pq_stats" => self.flag(one, &mut settings.gathers_queue_depths),
                _ => self.unknown(one, APP_NAMES),
            }
        }
        if settings.restart_min_cycles > settings.restart_max_cycles {
            let min = settings.restart_min_cycles;
            let max = settings.restart_max_cycles;
            self.warn(part, format!("restart_min {min} is above restart_max {max}, which wins"));
        }
    }

    fn defaults(&mut self, part: &Element, defaults: &mut Defaults) {
        self.warn_of_repeats(part);
        for one in &part.children {
            if !self.common(one, defaults) {
                self.unknown(one, DEFAULT_NAMES);
            }
        }
    }

    fn servers(&mut self, part: &Element, defaults: &Defaults, entries: &mut Vec<Entry>) {
        for one in &part.children {
            if one.name == "server" {
                entries.extend(self.server(one, defaults.clone()));
            } else {
                self.unknown(one, "server");
            }
        }
    }

    /// The services whose priority is another one than the usual; `<defaults prio>` counts for those behind it.
    fn services(&mut self, part: &Element, priorities: &mut Vec<(String, u8)>) {
        let mut usual = Priority::USUAL;
        for one in &part.children {
            let is_service = one.name == "service";
            if !is_service && one.name != "defaults" {
                self.unknown(one, "service, defaults");
                continue;
            }
            let mut name = None;
            let mut priority = usual;
            for (attribute, value) in &one.attributes {
                match attribute.as_str() {
                    "svcnm" if is_service => name = self.service_name(one, value),
                    "prio" => priority = self.priority(one, value).unwrap_or(usual),
                    "routing" | "autotran" | "trantime" => self.warn(
                        one,
                        format!("the attribute {attribute} of <{}> is not used here", one.name),
                    ),
                    _ => self.warn(
                        one,
                        format!(
                            "the attribute {attribute} of <{}> is unknown and ignored; expected svcnm, prio",
                            one.name
                        ),
                    ),
                }
            }
            match name {
                Some(name) if priorities.iter().any(|(known, _)| *known == name) => {
                    self.mistake(one, format!("the service {name} is there already"));
                }
                Some(name) if priority != Priority::USUAL => {
                    priorities.push((name, priority.number()));
                }
                Some(_) => {}
                None if is_service && one.attribute("svcnm").is_none() => {
                    self.mistake(
                        one,
                        "<service> without a name; expected <service svcnm=\"NAME\"/>",
                    );
                }
                None => usual = priority,
            }
        }
    }

    fn service_name(&mut self, one: &Element, name: &str) -> Option<String> {
        let is_name = ServiceName::new(name).is_some();
        if !is_name {
            self.mistake(one, format!("svcnm=\"{name}\": expected the name of a service"));
        }
        is_name.then(|| name.to_owned())
    }

    fn priority(&mut self, one: &Element, text: &str) -> Option<Priority> {
        let priority = text.trim().parse().ok().and_then(Priority::new);
        if priority.is_none() {
            self.mistake(one, format!("prio=\"{text}\": expected a whole number from 1 to 100"));
        }
        priority
    }

    fn server(&mut self, part: &Element, mut own: Defaults) -> Option<Entry> {
        self.warn_of_repeats(part);
        let mut id = None;
        let mut full_path = None;
        let mut command_line = None;
        let mut system_options = Vec::new();
        let mut program_options = Vec::new();
        for one in &part.children {
            match one.name.as_str() {
                "srvid" => {
                    let number = self.number(one, 1, i64::from(self.ids_end) - 1, "");
                    id = Some(number.map(|number| u32::try_from(number).expect("bounded")));
                }
                "sysopt" => system_options = self.words(one),
                "appopt" => program_options = self.words(one),
                "fullpath" => full_path = Some(PathBuf::from(self.text(one))),
                "cmdline" => command_line = self.command_line(one),
                _ if self.common(one, &mut own) => {}
                _ => self.unknown(one, SERVER_NAMES),
            }
        }
        for (name, _) in part.attributes.iter().filter(|(name, _)| name != "name") {
            self.warn(
                part,
                format!("the attribute {name} of <server> is unknown and ignored; expected name"),
            );
        }
        let program = self.program(part)?;
        // As on a command line, what follows is the program's. `--` in front of <appopt> stays: programs count words.
        if let Some(at) = system_options.iter().position(|word| word == "--") {
            let behind = system_options.split_off(at).into_iter().skip(1);
            let between = (program != "tpbridge").then(|| "--".to_owned());
            program_options.splice(0..0, behind.chain(between));
        }
        if let Some(who) = passed_over(&program, &program_options) {
            self.warn(part, format!("<server name=\"{program}\"> is passed over: {who}"));
            self.is_passing_over = true;
            return None;
        }
        if id.is_none() {
            self.mistake(part, format!("{program} has no <srvid>: the id of its first copy"));
        }
        // A wrong one was reported.
        let first_id = id??;
        if own.min > own.max {
            let min = own.min;
            let max = own.max;
            self.mistake(part, format!("{program}: min {min} is above max {max}; raise <max>"));
        }
        let output = redirections(&system_options);
        let Defaults { min, max, policy, variables, cleared } = own;
        let line = part.line;
        Some(Entry {
            program,
            full_path: full_path.filter(|path| !path.as_os_str().is_empty()),
            command_line,
            first_id,
            min,
            max,
            policy,
            system_options,
            program_options,
            output,
            variables,
            cleared,
            line,
        })
    }

    /// Reads an element that `<defaults>` and `<server>` have in common; whether `one` is such.
    fn common(&mut self, one: &Element, into: &mut Defaults) -> bool {
        let policy = &mut into.policy;
        match one.name.as_str() {
            "min" => self.count(one, 0, "copies", &mut into.min),
            "max" => self.count(one, 1, "copies", &mut into.max),
            "autokill" => self.flag(one, &mut policy.kills),
            "respawn" => self.flag(one, &mut policy.respawns),
            "start_max" => self.limit(one, &mut policy.start_max_cycles),
            "pingtime" => self.limit(one, &mut policy.ping_cycles),
            "ping_max" => self.limit(one, &mut policy.ping_max_cycles),
            "end_max" => self.limit(one, &mut policy.end_max_cycles),
            "killtime" => self.count(one, 1, "cycles", &mut policy.kill_cycles),
            "killseq" => self.signals(one, &mut policy.kill_sequence),
            "sleep_after" => self.count(one, 0, "seconds", &mut policy.pause_after),
            "rssmax" => self.bytes(one, &mut policy.rss_max_bytes),
            "vszmax" => self.bytes(one, &mut policy.vsz_max_bytes),
            "reloadonchange" => self.flag(one, &mut policy.restarts_on_change),
            "exportsvcs" => self.exports(one),
            "envs" => self.variables(one, into),
            "cctag" => {
                let tag = self.text(one);
                into.change((TAG_VARIABLE.to_owned(), Some(tag)));
            }
            "env" if one.text.is_empty() => {}
            "env" => self.warn(
                one,
                "<env> with a file is not read; write <envs><env name=\"X\">value</env></envs>",
            ),
            _ => return false,
        }
        true
    }

    fn exports(&mut self, one: &Element) {
        let text = self.text(one);
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if ServiceName::new(name).is_none() {
                let expected = "expected 1 to 30 printable characters without / and blanks";
                self.warn(one, format!("\"{name}\" is not a name of a service; {expected}"));
            } else if !self.exports.iter().any(|known| known == name) {
                self.exports.push(name.to_owned());
            }
        }
    }

    /// `<envs>`: of a server, or a group, which does nothing by itself.
    fn variables(&mut self, part: &Element, into: &mut Defaults) {
        let mut changes = Vec::new();
        for one in &part.children {
            match (one.name.as_str(), one.attribute("name")) {
                ("env", Some(name)) if !name.is_empty() && !name.contains('=') => {
                    let is_cleared = one.attribute("unset").is_some_and(is_yes);
                    let value = (!is_cleared).then(|| self.text_for_copies(one));
                    changes.push((name.to_owned(), value));
                }
                ("env", _) => self
                    .mistake(one, "<env> without a name; expected <env name=\"NAME\">value</env>"),
                ("usegroup", _) => {
                    let name = self.text(one);
                    match self.groups.iter().find(|(known, _)| *known == name) {
                        Some((_, of_group)) => changes.extend(of_group.iter().cloned()),
                        None => self.mistake(
                            one,
                            format!("there is no group \"{name}\" above; expected the name of an <envs group=\"NAME\"> in <defaults>"),
                        ),
                    }
                }
                _ => self.unknown(one, "env, usegroup"),
            }
        }
        match part.attribute("group") {
            Some(name) => {
                self.groups.retain(|(known, _)| known != name);
                self.groups.push((name.to_owned(), changes));
            }
            None => changes.into_iter().for_each(|change| into.change(change)),
        }
    }

    fn program(&mut self, part: &Element) -> Option<String> {
        let name = part.attribute("name").unwrap_or_default().to_owned();
        let name = match substitute(&name, self.lookup) {
            Ok(name) => name,
            Err(why) => {
                self.mistake(part, why);
                return None;
            }
        };
        if name.is_empty() {
            self.mistake(part, "<server> without a name; expected <server name=\"PROGRAM\">");
            return None;
        }
        if name.contains(['/', ',']) {
            let why = "has / or , in it; give the bare name, its folder belongs into PATH";
            self.mistake(part, format!("the server name \"{name}\" {why}"));
            return None;
        }
        Some(name)
    }

    /// A whole number from `least` on.
    fn count<T: FromCount>(&mut self, one: &Element, least: i64, unit: &str, into: &mut T) {
        if let Some(number) = self.number(one, least, COUNT_MAX, unit) {
            *into = T::from_count(u32::try_from(number).expect("within the bounds"));
        }
    }

    /// A limit in cycles, switched off by zero and less.
    fn limit(&mut self, one: &Element, into: &mut Option<u32>) {
        if let Some(number) = self.number(one, -COUNT_MAX, COUNT_MAX, "cycles") {
            *into = u32::try_from(number).ok().filter(|number| *number > 0);
        }
    }

    fn number(&mut self, one: &Element, least: i64, most: i64, unit: &str) -> Option<i64> {
        let text = self.text(one);
        let number = i64::from_str(&text).ok().filter(|n| (least..=most).contains(n));
        if number.is_none() {
            let unit = if unit.is_empty() { String::new() } else { format!(" of {unit}") };
            let name = &one.name;
            let expected = format!("expected a whole number{unit} from {least} to {most}");
            self.mistake(one, format!("<{name}>{text}</{name}>: {expected}"));
        }
        number
    }

    /// Numbers of signals, with commas.
    fn signals(&mut self, one: &Element, into: &mut Vec<i32>) {
        let text = self.text(one);
        let number = |word: &str| word.trim().parse().ok().filter(|n| (1..=SIGNAL_MAX).contains(n));
        match text.split(',').map(number).collect::<Option<Vec<i32>>>() {
            Some(signals) => *into = signals,
            None => {
                let expected =
                    format!("expected numbers of signals from 1 to {SIGNAL_MAX}, with commas");
                self.mistake(one, format!("<killseq>{text}</killseq>: {expected}"));
            }
        }
    }

    /// A number of bytes with K, M, G or T behind it; -1 is none.
    fn bytes(&mut self, one: &Element, into: &mut Option<u64>) {
        let text = self.text(one);
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "" => Some(0),
            "K" => Some(10),
            "M" => Some(20),
            "G" => Some(30),
            "T" => Some(40),
            _ => None,
        };
        let number = digits.parse::<i64>().ok().filter(|number| *number >= -1);
        let bytes = number.zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
        match bytes {
            Some(bytes) => *into = u64::try_from(bytes).ok(),
            None => {
                let name = &one.name;
                let expected = "expected bytes, with K, M, G or T behind the number, or -1";
                self.mistake(one, format!("<{name}>{text}</{name}>: {expected}"));
            }
        }
    }

    /// The command of a copy, whose options, name and id are filled in at its start.
    fn command_line(&mut self, one: &Element) -> Option<String> {
        let lookup = self.lookup;
        let text = self.text_by(one, &|name| match name {
            ID_VARIABLE | NAME_VARIABLE | OPTIONS_VARIABLE => Some(format!("${{{name}}}")),
            other => lookup(other),
        });
        match split(&text) {
            Ok(words) => (!words.is_empty()).then_some(text),
            Err(why) => {
                self.mistake(one, format!("<cmdline>: {why}"));
                None
            }
        }
    }

    fn flag(&mut self, one: &Element, into: &mut bool) {
        let text = self.text(one);
        match text.as_str() {
            "Y" | "y" | "1" => *into = true,
            "N" | "n" | "0" => *into = false,
            number if number.parse::<u32>().is_ok() => {
                let name = &one.name;
                self.warn(
                    one,
                    format!("<{name}>{number}</{name}> counts as Y; expected Y, N, 1 or 0"),
                );
                *into = true;
            }
            _ => {
                let name = &one.name;
                self.mistake(one, format!("<{name}>{text}</{name}>: expected Y, N, 1 or 0"));
            }
        }
    }

    fn words(&mut self, one: &Element) -> Vec<String> {
        let text = self.text_for_copies(one);
        split(&text).unwrap_or_else(|why| {
            self.mistake(one, format!("<{}>: {why}", one.name));
            Vec::new()
        })
    }

    fn text(&mut self, one: &Element) -> String {
        self.text_by(one, self.lookup)
    }

    /// The same, in which a copy's own id stays to be filled in by [`Entry::of_copy`].
    fn text_for_copies(&mut self, one: &Element) -> String {
        let lookup = self.lookup;
        self.text_by(one, &|name| match name {
            ID_VARIABLE => Some(format!("${{{ID_VARIABLE}}}")),
            other => lookup(other),
        })
    }

    fn text_by(&mut self, one: &Element, lookup: &dyn Fn(&str) -> Option<String>) -> String {
        for child in &one.children {
            self.unknown(child, "text alone");
        }
        substitute(&one.text, lookup).unwrap_or_else(|why| {
            self.mistake(one, format!("<{}>: {why}", one.name));
            String::new()
        })
    }

    /// Elements that have one value and stand more than once.
    fn warn_of_repeats(&mut self, part: &Element) {
        let mut lines = BTreeMap::new();
        for one in &part.children {
            let name = one.name.as_str();
            let earlier = lines.insert(name, one.line);
            if let Some(line) = earlier.filter(|_| !REPEATED_NAMES.contains(&name)) {
                let counts = "the last one counts";
                self.warn(one, format!("<{name}> is in line {line} already; {counts}"));
            }
        }
    }

    fn unknown(&mut self, one: &Element, known: &str) {
        if let Some(name) = NOT_USED.into_iter().find(|name| *name == one.name) {
            let (_, count) = self.not_used.entry(name).or_insert((one.line, 0));
            *count += 1;
            return;
        }
        self.warn(one, format!("<{}> is unknown here and ignored; expected {known}", one.name));
    }

    fn warn_of_not_used(&mut self) {
        let Some(line) = self.not_used.values().map(|(line, _)| *line).min() else { return };
        let each: Vec<String> = std::mem::take(&mut self.not_used)
            .into_iter()
            .map(|(name, (line, count))| match count {
                1 => format!("<{name}> (line {line})"),
                _ => format!("<{name}> (from line {line}, {count} times)"),
            })
            .collect();
        self.warn_at(line, format!("of Enduro/X, and not used here: {}", each.join(", ")));
    }

    fn warn(&mut self, one: &Element, message: impl AsRef<str>) {
        self.warn_at(one.line, message);
    }

    fn warn_at(&mut self, line: usize, message: impl AsRef<str>) {
        match self.warnings.len() {
            0..WARNINGS_MAX => {
                self.warnings.push(Diagnostic::new(self.file, line, message.as_ref()));
            }
            WARNINGS_MAX => {
                let more = "there are more warnings; they are not shown";
                self.warnings.push(Diagnostic::new(self.file, line, more));
            }
            _ => {}
        }
    }

    fn mistake(&mut self, one: &Element, message: impl AsRef<str>) {
        self.mistake_at(one.line, message);
    }

    fn mistake_at(&mut self, line: usize, message: impl AsRef<str>) {
        self.mistakes.push(Diagnostic::new(self.file, line, message.as_ref()));
    }
}

impl Defaults {
    /// Gives a variable a value, in place of the one that it had, or takes it away.
    fn change(&mut self, (name, value): (String, Option<String>)) {
        self.variables.retain(|(known, _)| *known != name);
        self.cleared.retain(|known| *known != name);
        match value {
            Some(value) => self.variables.push((name, value)),
            None => self.cleared.push(name),
        }
    }
}

fn is_yes(word: &str) -> bool {
    word.eq_ignore_ascii_case("y")
}

/// The unit of a whole number.
trait FromCount {
    fn from_count(count: u32) -> Self;
}

impl FromCount for u32 {
    fn from_count(count: u32) -> Self {
        count
    }
}

impl FromCount for Duration {
    fn from_count(count: u32) -> Self {
        Self::from_secs(u64::from(count))
    }
}

/// Splits an option string at blanks. Text in single or double quotes is one word without them. A backslash takes
/// the next character as it is; in single quotes only that of a quote.
///
/// # Errors
/// Which quote is not closed.
pub(crate) fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some('\''), '\\') if letters.next_if_eq(&'\'').is_some() => {
                word.get_or_insert_default().push('\'');
            }
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let Some(next) = letters.next() else {
                    return Err("a backslash is at the end".to_owned());
                };
                word.get_or_insert_default().push(next);
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if let Some(open) = quote {
        return Err(format!("a quote {open} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

/// Replaces each `${NAME}` by what `lookup` knows of it. `$` without a brace stays as it is.
///
/// # Errors
/// Which name is unknown, or that a brace is not closed.
fn substitute(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let before = &rest[..start];
        let behind = &rest[start + 2..];
        let Some(end) = behind.find('}') else {
            return Err(format!("\"{}\" has no closing brace", &rest[start..]));
        };
        let name = &behind[..end];
        let Some(value) = lookup(name) else {
            return Err(format!("${{{name}}} is not set in the environment"));
        };
        done.push_str(before);
        done.push_str(&value);
        rest = &behind[end + 1..];
    }
    done.push_str(rest);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_blanks_and_vanish() {
        let words = |text| split(text).expect("whole");
        assert_eq!(words("-e /log/A -r"), ["-e", "/log/A", "-r"]);
        assert_eq!(words("  -a 'b c'\"d\\\" e\" f\\ g '' "), ["-a", "b cd\" e", "f g", ""]);
        assert_eq!(words(""), [""; 0]);
        assert!(split("-e 'x").is_err_and(|why| why.contains("quote '")));
        assert!(split("x\\").is_err());
    }

    #[test]
    fn names_are_replaced_or_reported() {
        let lookup = |name: &str| (name == "HOME").then(|| "/h".to_owned());
        assert_eq!(substitute("a ${HOME}/${HOME} $x", &lookup), Ok("a /h//h $x".to_owned()));
        assert!(substitute("${NONE}", &lookup).is_err_and(|why| why.contains("${NONE}")));
        assert!(substitute("${HOME", &lookup).is_err());
    }
}
