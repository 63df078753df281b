//! An ndrxconfig.xml of a UBBCONFIG, the configuration of Tuxedo.
//!
//! `pollux pool convert` prints it. What has no counterpart is a warning where the pool behaves in another way, and a
//! note where nothing is lost, each with its line; mistakes are errors, all of them at once. The result is read again
//! before it is handed out, so that it is one that a pool takes. Nothing is started, and no file is read but `ENVFILE`.
//!
//! `document` is the file as sections and parameters with lines, `keywords` what becomes of those that become nothing,
//! `command_line` the options of a server, `environment_file` variables, `xml` the result.

mod command_line;
mod document;
mod environment_file;
mod keywords;
#[cfg(test)]
mod tests;
mod xml;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::Path;

use crate::config::{ConfigError, Diagnostic, IDS_END_MAX, PoolConfig};
use crate::priority::Priority;
use crate::queue::Prefix;
use command_line::CommandLine;
use document::{Entry, Section};
use environment_file::FILE_BYTES_MAX;
use keywords::Fate;

pub use xml::quoted;

/// Most lines that one remark names beside its own.
const LINES_MAX: usize = 8;
/// Seconds of a unit where `SCANUNIT` says nothing.
const SCAN_UNIT_S: u32 = 10;
/// Ids of a group that gives way to another: its number times this, and the number of the server.
const GROUP_IDS: u32 = 1000;
/// Most copies of one server, and the highest id, as Tuxedo has them.
const ID_MAX: u32 = 30_000;
/// Longest pause that units are multiplied to.
const SECONDS_MAX: u32 = 86_400;

/// What a UBBCONFIG becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The ndrxconfig.xml.
    pub xml: String,
    /// What a shell is given before the pool is started: variables, and the folder to start in.
    pub environment: String,
    /// `<server>` elements in it.
    pub servers: usize,
    /// Where the pool behaves in another way, in the order of the file.
    pub warnings: Vec<Diagnostic>,
    /// What is left out without a loss.
    pub notes: Vec<Diagnostic>,
}

/// One `<server>`.
#[derive(Clone, Debug)]
struct Server {
    program: String,
    first_id: u32,
    min: u32,
    max: u32,
    is_restarted: bool,
    system: Vec<String>,
    application: Vec<String>,
    variables: Vec<(String, String)>,
}

/// What the document is written of.
#[derive(Clone, Debug, Default)]
struct Converted {
    sanity_s: Option<u32>,
    /// Variables that the pool is started with.
    environment: Vec<(String, String)>,
    /// Variables that values take from there: empty where they are not set, as in Tuxedo.
    taken: BTreeSet<String>,
    /// Folders of programs.
    folders: Vec<String>,
    /// The folder that it is started in.
    folder: Option<String>,
    /// Variables of all servers.
    variables: Vec<(String, String)>,
    servers: Vec<Server>,
    /// Services that have one of their own.
    priorities: Vec<(String, Priority)>,
}

/// Reads `text`, called `file` in messages, for the machine with this `LMID`, without one for the master. `read`
/// gives the text of an `ENVFILE`.
///
/// # Errors
/// Everything that is wrong with it, with lines.
pub fn convert(
    file: &str,
    text: &str,
    machine: Option<&str>,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<Conversion, ConfigError> {
    let failed = |mistakes| ConfigError { mistakes, warnings: Vec::new() };
    let sections = document::read(file, text).map_err(failed)?;
    let mut work = Work {
        file,
        read,
        sections: &sections,
        mistakes: Vec::new(),
        remarks: BTreeMap::new(),
        converted: Converted::default(),
    };
    work.keywords();
    work.resources();
    work.servers_of(machine);
    let Work { mut mistakes, remarks, converted, .. } = work;
    let (warnings, notes) = diagnostics(file, remarks);
    if mistakes.is_empty() {
        let xml = xml::document(&converted, file);
        match check(&xml) {
            Ok(()) => {
                let servers = converted.servers.len();
                let environment = xml::commands(&converted).join("\n") + "\n";
                return Ok(Conversion { xml, environment, servers, warnings, notes });
            }
            Err(why) => mistakes.push(Diagnostic::new(
                file,
                0,
                &format!("what it becomes is refused: {why}"),
            )),
        }
    }
    mistakes.sort_by_key(|mistake| mistake.line);
    Err(ConfigError { mistakes, warnings })
}

/// The text of a file of this machine, up to a bound.
///
/// # Errors
/// Those of the file, and that it is too long or not UTF-8.
pub fn read_file(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    // Old files have comments in other alphabets.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a pool takes the document.
fn check(xml: &str) -> Result<(), String> {
    // Names are known where the pool is started.
    let ids = IDS_END_MAX.to_string();
    let lookup =
        |name: &str| Some(if name == "NDRX_SRVMAX" { ids.clone() } else { "x".to_owned() });
    let read = PoolConfig::from_text("", xml, &lookup);
    read.map(drop).map_err(|error| error.mistakes[0].message.clone())
}

/// A remark: whether something is lost, of what it is, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Remark {
    is_loss: bool,
    what: String,
    why: String,
}

struct Work<'a> {
    file: &'a str,
    read: &'a dyn Fn(&Path) -> io::Result<String>,
    sections: &'a [Section],
    mistakes: Vec<Diagnostic>,
    /// Each remark with its lines.
    remarks: BTreeMap<Remark, BTreeSet<usize>>,
    converted: Converted,
}

impl<'a> Work<'a> {
    fn of(&self, section: &str) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let sections = self.sections;
        let section = section.to_owned();
        sections.iter().filter(move |one| one.name == section).flat_map(|one| &one.entries)
    }

    /// Remarks on sections and keywords that become nothing.
    fn keywords(&mut self) {
        for section in self.sections {
            if let Some(why) = keywords::section(&section.name) {
                for entry in &section.entries {
                    self.loss(entry.line, format!("*{} {}", section.name, entry.name), why);
                }
                continue;
            }
            for parameter in &section.written {
                let what = format!("{} of *{}", parameter.keyword, section.name);
                match keywords::fate(&section.name, parameter) {
                    Fate::Used => {}
                    Fate::NotNeeded(why) => self.remark(false, parameter.line, what, why),
                    // What opens a database has its password.
                    Fate::NotHere(why) if parameter.keyword.ends_with("INFO") => {
                        self.loss(parameter.line, what, why);
                    }
                    Fate::NotHere(why) => {
                        let value = shown(&parameter.value);
                        let what = format!("{}={value} of *{}", parameter.keyword, section.name);
                        self.loss(parameter.line, what, why);
                    }
                }
            }
        }
        for entry in self.of("SERVICES") {
            if let Some(routing) = entry.parameter("ROUTING") {
                let what = format!("ROUTING={} of service {}", routing.value, entry.name);
                self.loss(routing.line, what, "any worker that offers it takes its requests");
            }
            let usual = u32::from(Priority::USUAL.number());
            let number = self.number(entry, "PRIO", 1, 100).unwrap_or(usual);
            if let Some(priority) = Priority::new(number.into()).filter(|_| number != usual)
                && !self.converted.priorities.iter().any(|(name, _)| *name == entry.name)
            {
                self.converted.priorities.push((entry.name.clone(), priority));
            }
        }
    }

    /// What the pool as a whole has.
    fn resources(&mut self) {
        let Some(entry) = self.of("RESOURCES").next() else {
            self.mistake(0, "there is no section *RESOURCES");
            return;
        };
        let prefix = match (entry.value("DOMAINID"), entry.value("IPCKEY")) {
            (Some(domain), _) => format!("/{domain}"),
            (None, Some(key)) => format!("/ubb-{key}"),
            (None, None) => "/ubb".to_owned(),
        };
        let plain: String = prefix
            .chars()
            .map(|letter| if letter.is_ascii_graphic() && letter != ',' { letter } else { '-' })
            .collect();
        let plain = format!("/{}", plain[1..].replace('/', "-"));
        match Prefix::new(&plain) {
            Ok(_) => self.converted.environment.push(("NDRX_QPREFIX".to_owned(), plain)),
            Err(why) => self.mistake(entry.line, format!("DOMAINID: {why}")),
        }
        self.number(entry, "IPCKEY", 0, u32::MAX);
        let unit_ms = self.scan_unit(entry);
        self.converted.sanity_s = unit_ms.map(|unit| unit.div_ceil(1000));
        if let Some(units) = self.number(entry, "BLOCKTIME", 0, SECONDS_MAX / SCAN_UNIT_S) {
            let wait_ms = units * unit_ms.unwrap_or(SCAN_UNIT_S * 1000);
            let seconds = wait_ms.div_ceil(1000);
            if !wait_ms.is_multiple_of(1000) {
                let line = entry.parameter("BLOCKTIME").map_or(entry.line, |found| found.line);
                let what = format!("BLOCKTIME={units}, which is {wait_ms} ms");
                let why = format!("a call waits for whole seconds: {seconds}");
                self.loss(line, what, &why);
            }
            if seconds > 0 {
                self.converted.environment.push(("NDRX_TOUT".to_owned(), seconds.to_string()));
            }
        }
        self.permissions(entry);
    }

    /// Milliseconds of the unit of times: seconds, or `MS` behind the number.
    fn scan_unit(&mut self, entry: &Entry) -> Option<u32> {
        let found = entry.parameter("SCANUNIT")?;
        let value = found.value.trim().to_ascii_uppercase();
        let unit_ms = match value.strip_suffix("MS") {
            Some(digits) => number(digits).filter(|unit| (1..=30_000).contains(unit)),
            None => number(&value).filter(|unit| (1..=60).contains(unit)).map(|unit| unit * 1000),
        };
        if unit_ms.is_none() {
            let value = shown(&found.value);
            let what =
                format!("SCANUNIT={value}: expected seconds from 1 to 60, or 1MS to 30000MS");
            self.mistake(found.line, what);
        }
        unit_ms
    }

    /// `PERM`, in the pool or a machine: whether others than the pool's user may call.
    fn permissions(&mut self, entry: &Entry) {
        let Some(found) = entry.parameter("PERM") else { return };
        let Ok(mode) = u32::from_str_radix(found.value.trim(), 8) else {
            let what =
                format!("PERM={}: expected an octal number such as 0660", shown(&found.value));
            return self.mistake(found.line, what);
        };
        if mode & 0o077 != 0 {
            let group = entry.value("GID").unwrap_or("NAME");
            let what = format!("PERM={}", found.value);
            let why = format!(
                "the pool's user may call; <appconfig group=\"{group}\"> lets the members of a group call"
            );
            self.loss(found.line, what, &why);
        }
    }

    /// The servers of one machine.
    fn servers_of(&mut self, asked: Option<&str>) {
        let Some((machine, is_alone)) = self.machine(asked) else { return };
        let lmid = machine.value("LMID").unwrap_or_default();
        if self.sections.iter().any(|one| one.name == "MACHINES") {
            self.of_machine(machine);
        }
        let groups = self.groups();
        let mut order: Vec<&Entry> = self.of("SERVERS").collect();
        // Those with a number come first, in the order of the numbers.
        order.sort_by_key(|entry| {
            entry
                .value("SEQUENCE")
                .and_then(|number| number.parse::<u32>().ok())
                .unwrap_or(u32::MAX)
        });
        let mut wanted: Vec<(Server, &Entry, u32)> = Vec::new();
        let mut elsewhere: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for entry in order {
            if let Some(who) = keywords::system_server(&entry.name) {
                self.loss(entry.line, format!("server {} is left out", entry.name), who);
                continue;
            }
            let group = match entry.value("SRVGRP") {
                None => {
                    self.mistake(entry.line, format!("{} has no SRVGRP", entry.name));
                    continue;
                }
                Some(name) => groups.get(name).copied(),
            };
            let Some(group) = group else {
                let name = entry.value("SRVGRP").unwrap_or_default();
                self.mistake(
                    entry.line,
                    format!("{}: there is no group {name} in *GROUPS", entry.name),
                );
                continue;
            };
            let site = group
                .value("LMID")
                .unwrap_or_default()
                .split(',')
                .next()
                .unwrap_or_default()
                .trim();
            if !is_alone && site != lmid {
                elsewhere.entry(site.to_owned()).or_default().insert(entry.line);
                continue;
            }
            let number = group.value("GRPNO").and_then(|number| number.parse().ok()).unwrap_or(1);
            if let Some(server) = self.server(entry, group) {
                wanted.push((server, entry, number));
            }
        }
        for (site, lines) in elsewhere {
            let why = format!(
                "they are not in this pool: --machine {site} converts them for a pool of their own, and the two call each \
                 other by tpbridge over a NATS broker"
            );
            for line in lines {
                self.loss(line, format!("servers of machine {site}"), &why);
            }
        }
        self.give_ids(wanted);
    }

    /// The machine that is meant, and whether there is one alone.
    fn machine(&mut self, asked: Option<&str>) -> Option<(&'a Entry, bool)> {
        let machines: Vec<&Entry> = self.of("MACHINES").collect();
        let of_name = |lmid: &str| {
            machines
                .iter()
                .find(|one| one.value("LMID").is_some_and(|known| known == lmid))
                .copied()
        };
        let known: Vec<&str> = machines.iter().filter_map(|one| one.value("LMID")).collect();
        let master = self.of("RESOURCES").next().and_then(|all| {
            let found = all.parameter("MASTER")?;
            Some((found.line, found.value.split(',').next().unwrap_or_default().trim().to_owned()))
        });
        let found = match (asked, &master) {
            (Some(lmid), _) => {
                let found = of_name(lmid);
                if found.is_none() {
                    let known = known.join(", ");
                    self.mistake(0, format!("{lmid} is not a machine; *MACHINES has {known}"));
                }
                found
            }
            (None, Some((line, lmid))) => {
                let found = of_name(lmid);
                if found.is_none() && !machines.is_empty() {
                    let known = known.join(", ");
                    self.mistake(
                        *line,
                        format!("MASTER {lmid} is not an LMID of *MACHINES, which has {known}"),
                    );
                }
                found
            }
            (None, None) => machines.first().copied(),
        };
        if machines.is_empty() {
            self.mistake(0, "*MACHINES has none: NAME LMID=SITE1 APPDIR=\"/folder\"");
        }
        let found = found?;
        if machines.len() > 1 {
            for other in machines.iter().filter(|one| **one != found) {
                let lmid = other.value("LMID").unwrap_or_default();
                let what = format!("machine {} ({lmid})", other.name);
                let why = format!(
                    "a pool has one machine; --machine {lmid} makes the configuration of this one"
                );
                self.loss(other.line, what, &why);
            }
        }
        Some((found, machines.len() == 1))
    }

    /// What the servers of a machine have in common.
    fn of_machine(&mut self, machine: &Entry) {
        self.permissions(machine);
        let folder = machine.parameter("APPDIR").filter(|found| !found.value.is_empty());
        if let Some(open) = folder.filter(|found| found.value.starts_with('<')) {
            let what = format!("APPDIR={} of *MACHINES", shown(&open.value));
            let why = "it is to be filled in: the folder of the programs, which is put in PATH";
            self.loss(open.line, what, why);
        } else if let Some(folder) = folder.map(|found| found.value.as_str()) {
            // Several stand with a colon between them; programs are started in the first.
            let mut folders = folder.split(':').map(str::to_owned);
            self.converted.folder = folders.next();
            self.converted.folders = folder.split(':').map(str::to_owned).collect();
        }
        if let Some(prefix) = machine.value("ULOGPFX") {
            self.converted.environment.push(("ULOGPFX".to_owned(), prefix.to_owned()));
        }
        self.converted.variables = self.variables(machine);
    }

    fn groups(&mut self) -> BTreeMap<&'a str, &'a Entry> {
        let known: BTreeSet<&str> =
            self.of("MACHINES").filter_map(|machine| machine.value("LMID")).collect();
        let mut groups = BTreeMap::new();
        for group in self.of("GROUPS") {
            self.number(group, "GRPNO", 1, ID_MAX);
            let sites = group.value("LMID").unwrap_or_default();
            for (at, site) in sites.split(',').map(str::trim).enumerate() {
                if !known.contains(site) {
                    let what =
                        format!("group {}: LMID={site} is not a machine of *MACHINES", group.name);
                    self.mistake(group.line, what);
                } else if at > 0 {
                    let what = format!("LMID={sites} of group {}", group.name);
                    self.loss(group.line, what, "a group does not move to another machine");
                }
            }
            groups.insert(group.name.as_str(), group);
        }
        groups
    }

    /// One server, with the id that it wants.
    fn server(&mut self, entry: &Entry, group: &Entry) -> Option<Server> {
        let program = match entry.name.rsplit_once('/') {
            None => entry.name.clone(),
            Some((folder, program)) => {
                let folder = folder.to_owned();
                if !self.converted.folders.contains(&folder) {
                    self.converted.folders.push(folder);
                }
                program.to_owned()
            }
        };
        if program.is_empty() || program.contains(',') {
            self.mistake(entry.line, format!("the name `{}` is not that of a program", entry.name));
            return None;
        }
        if entry.parameter("SRVID").is_none() {
            self.mistake(entry.line, format!("{program} has no SRVID"));
        }
        let first_id = self.number(entry, "SRVID", 1, ID_MAX)?;
        let min = self.number(entry, "MIN", 0, ID_MAX).unwrap_or(1);
        let max = self.number(entry, "MAX", 1, ID_MAX).unwrap_or_else(|| min.max(1));
        if min > max {
            self.mistake(entry.line, format!("{program}: MIN={min} is above MAX={max}"));
            return None;
        }
        self.number(entry, "SEQUENCE", 1, u32::MAX);
        let options = entry.parameter("CLOPT");
        let line = options.map_or(entry.line, |found| found.line);
        let options = match CommandLine::read(options.map_or("-A", |found| &found.value)) {
            Ok(options) => options,
            Err(why) => {
                self.mistake(line, format!("CLOPT of {program}: {why}"));
                return None;
            }
        };
        for why in &options.remarks {
            self.loss(line, format!("CLOPT of {program}"), why);
        }
        for word in options.system.iter().chain(&options.program).filter(|word| word.contains("${"))
        {
            self.loss(
                line,
                format!("{word} in CLOPT of {program}"),
                "a variable of the environment is put in",
            );
        }
        let is_restarted = self.restarts(entry);
        let mut variables = self.variables(group);
        for (name, value) in self.variables(entry) {
            variables.retain(|(known, _)| *known != name);
            variables.push((name, value));
        }
        let CommandLine { system, program: application, .. } = options;
        Some(Server { program, first_id, min, max, is_restarted, system, application, variables })
    }

    /// Whether one that ended is started again.
    fn restarts(&mut self, entry: &Entry) -> bool {
        let Some(found) = entry.parameter("RESTART") else { return false };
        if !found.value.eq_ignore_ascii_case("Y") {
            if !found.value.eq_ignore_ascii_case("N") {
                let what = format!("RESTART={}: expected Y or N", shown(&found.value));
                self.mistake(found.line, what);
            }
            return false;
        }
        match self.number(entry, "MAXGEN", 1, 256) {
            None | Some(1) => {
                let why = "it is restarted here; in Tuxedo MAXGEN=1, which is the default, allows no restart";
                self.loss(found.line, "RESTART=Y with MAXGEN=1".to_owned(), why);
            }
            Some(most) => {
                let line = entry.parameter("MAXGEN").map_or(entry.line, |found| found.line);
                let why = "the number of restarts has no limit: pauses grow up to <restart_max>";
                self.loss(line, format!("MAXGEN={most}"), why);
            }
        }
        true
    }

    /// The variables of an `ENVFILE`.
    fn variables(&mut self, entry: &Entry) -> Vec<(String, String)> {
        let Some(found) = entry.parameter("ENVFILE").filter(|found| !found.value.is_empty()) else {
            return Vec::new();
        };
        let folder = Path::new(self.file).parent().unwrap_or(Path::new(""));
        let path = folder.join(&found.value);
        let text = match (self.read)(&path) {
            Ok(text) => text,
            Err(error) => {
                let why = format!(
                    "it cannot be read ({error}): write its variables as <envs><env name=\"NAME\">value</env></envs>"
                );
                self.loss(found.line, format!("ENVFILE={}", found.value), &why);
                return Vec::new();
            }
        };
        let (variables, passed_over) = environment_file::read(&text);
        let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (line, why) in passed_over {
            reasons.entry(why).or_default().push(line.to_string());
        }
        for (why, lines) in reasons {
            let lines = shown(&lines.join(", "));
            self.loss(found.line, format!("line {lines} of ENVFILE={}", found.value), &why);
        }
        for (name, value) in &variables {
            // Values are nobody's business: passwords stand there.
            let names = environment_file::names_in(value);
            if !names.is_empty() {
                let shown = names.join(" and ");
                let why = format!(
                    "it takes {shown} from the environment in which the pool is started, where it may be empty"
                );
                self.loss(found.line, format!("{name} of ENVFILE={}", found.value), &why);
                let of_shell = names.into_iter().filter(|name| environment_file::is_name(name));
                self.converted.taken.extend(of_shell.map(str::to_owned));
            }
        }
        variables
    }

    /// Ids are those of the file where they are unique, as they are in a group there and in a pool here.
    fn give_ids(&mut self, wanted: Vec<(Server, &'a Entry, u32)>) {
        let mut taken: Vec<(u32, u32)> = Vec::new();
        let is_free = |taken: &[(u32, u32)], first: u32, len: u32| {
            taken.iter().all(|(start, end)| first >= *end || first + len <= *start)
        };
        let mut first_ids = vec![None; wanted.len()];
        for (at, (server, ..)) in wanted.iter().enumerate() {
            if is_free(&taken, server.first_id, server.max) {
                taken.push((server.first_id, server.first_id + server.max));
                first_ids[at] = Some(server.first_id);
            }
        }
        for (at, (mut server, entry, group)) in wanted.into_iter().enumerate() {
            let asked = server.first_id;
            server.first_id = first_ids[at].unwrap_or_else(|| {
                let of_group = group.min(ID_MAX) * GROUP_IDS + asked;
                let behind = taken.iter().map(|(_, end)| *end).max().unwrap_or(1);
                let is_id = of_group + server.max <= IDS_END_MAX;
                let is_free = is_id && is_free(&taken, of_group, server.max);
                let first = if is_free { of_group } else { behind };
                taken.push((first, first + server.max));
                let why = format!(
                    "it is another server's, and ids are unique in a pool; its own is {first}"
                );
                let program = &server.program;
                self.loss(entry.line, format!("SRVID={asked} of {program}"), &why);
                first
            });
            self.converted.servers.push(server);
        }
        let end = taken.iter().map(|(_, end)| *end).max().unwrap_or(0);
        if end > crate::config::IDS_END {
            self.converted.environment.push(("NDRX_SRVMAX".to_owned(), end.to_string()));
        }
    }

    /// The number of a keyword; one beyond the bounds is a mistake.
    fn number(&mut self, entry: &Entry, keyword: &str, least: u32, most: u32) -> Option<u32> {
        let found = entry.parameter(keyword)?;
        let number = number(&found.value).filter(|number| (least..=most).contains(number));
        if number.is_none() {
            let value = shown(&found.value);
            let what = if value.starts_with('<') {
                format!("{keyword}: {value} is to be filled in")
            } else {
                format!("{keyword}={value}: expected a whole number from {least} to {most}")
            };
            self.mistake(found.line, what);
        }
        number
    }

    fn loss(&mut self, line: usize, what: String, why: &str) {
        self.remark(true, line, what, why);
    }

    fn remark(&mut self, is_loss: bool, line: usize, what: String, why: &str) {
        let remark = Remark { is_loss, what, why: why.to_owned() };
        self.remarks.entry(remark).or_default().insert(line);
    }

    fn mistake(&mut self, line: usize, message: impl AsRef<str>) {
        let mistake = Diagnostic::new(self.file, line, message.as_ref());
        if !self.mistakes.contains(&mistake) {
            self.mistakes.push(mistake);
        }
    }
}

/// Keys are hexadecimal now and then.
fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A value in a message, not longer than a line takes.
fn shown(value: &str) -> String {
    const CHARS_MAX: usize = 40;
    if value.chars().count() <= CHARS_MAX {
        return value.to_owned();
    }
    value.chars().take(CHARS_MAX).chain(['…']).collect()
}

/// Warnings and notes, a line for each thing at the first place where it stood.
fn diagnostics(
    file: &str,
    remarks: BTreeMap<Remark, BTreeSet<usize>>,
) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
    let mut warnings = Vec::new();
    let mut notes = Vec::new();
    for (Remark { is_loss, what, why }, lines) in remarks {
        let mut lines = lines.into_iter();
        let first = lines.next().unwrap_or(0);
        let others: Vec<String> =
            lines.by_ref().take(LINES_MAX).map(|line| line.to_string()).collect();
        let also = match (others.as_slice(), lines.count()) {
            ([], _) => String::new(),
            (others, 0) => format!(" (also in line {})", others.join(", ")),
            (others, more) => format!(" (also in line {} and {more} more)", others.join(", ")),
        };
        let found = Diagnostic::new(file, first, &format!("{what}{also}: {why}"));
        if is_loss { warnings.push(found) } else { notes.push(found) }
    }
    for list in [&mut warnings, &mut notes] {
        list.sort_by_key(|found| found.line);
    }
    (warnings, notes)
}
