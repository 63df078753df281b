//! `docs/job-file.md`, made from the key table and the axes.
//!
//! A test holds the file and the tables together; `POLLUX_BLESS=1 cargo test` rewrites it.

use std::fmt::Write as _;

use crate::axis::{Axes, Axis};
use crate::experiments::{self, Experiment};
use crate::stats::Direction;

use super::builtin::list;
use super::keys::{KEYS, Key, Section};

const HEAD: &str = "\
# The job file

A job file tells `pollux lab run` what to measure, on which arms and how often. It is TOML: one
`[global]` section and a `[[job]]` section for each experiment. This page is made from the table that
the program checks files against.

```toml
schema = 2

[global]
blocks = 12
runtime = \"2s\"

[[job]]
experiment = \"streams\"
transport = [\"pipe\", \"tcp\"]   # a list is an axis: a point for each value
arms = [
    \"epoll\", \"epoll-et\",
    { name = \"epoll_bench\", command = \"epoll_bench -n 2000\", pattern = 'Avg: ([0-9.]+) evts/sec' },
]
```

Durations are written `\"500ms\"`, `\"2s\"`, `\"1m30s\"`; shares `\"3%\"` or `0.03`. The run settings
`arms`, `baseline`, `ramp_time`, `runtime` and `interval` in a `[[job]]` override those in `[global]`. A
flag of `pollux lab run` is called like its key, with `-` for `_`, and overrides the file. An unknown
key is a mistake, never ignored; all mistakes of a file are reported at once.

`arms` is one list of everything that is compared. Names of the lab stand for what an experiment has of
that name: `epoll` is a poller, in `herd` a way of waiting. `all`, `mechanisms` (drivers of pollux, ways
of waiting) and `others` (bare loops in C, servers, libraries, pools) stand for all that it has. A table
is an arm of your own, of one of four forms, and so is its flag:

| in a job file | as a flag | what it is |
|---|---|---|
| `{ name = \"mine\", server = \"./mine --listen {address}\" }` | `--arm 'mine=./mine --listen {address}'` | a server that the lab starts, in `http`; `{port}` or `{address}` stands for where it has to listen, `{cpus}` for its CPU, `{root}` for a folder with a body of `reply_bytes`, names of axes for their values ([your own server](own-server.md)) |
| `{ name = \"live\", pid = 1234, address = \"127.0.0.1:80\" }` | `--arm live=pid:1234@127.0.0.1:80` | a server that runs already, in `http` |
| `{ name = \"old\", pollux = \"PATH\", driver = \"uring\" }` | `--arm old=pollux:PATH@uring` | another build of pollux, on epoll where no driver is named; in the job `version` `--arm old=PATH` is one too |
| `{ name = \"bench\", command = \"bench -n {nfds}\", pattern = '([0-9]+)' }` | `--arm 'bench=bench -n {nfds}' --arm-pattern '([0-9]+)'` | a program that runs from start to end and prints its figure |

Where `--arm` is given, the arms are those of the flags and no others: `--arm all --arm 'mine=...'` keeps
what the experiment has.

Where a default does not fit what was given, the default gives way: `max_blocks` follows `blocks`
and the other way round, `interval` shrinks to `runtime`, and without `epoll` the first arm is the
baseline. Two given values that contradict each other are a mistake.
";

/// The text of `docs/job-file.md`.
#[must_use]
pub fn documentation_page() -> String {
    let mut page = HEAD.to_owned();
    for section in Section::ALL {
        let title = if section == Section::Arm { "A table in `arms`" } else { section.title() };
        heading(&mut page, title);
        row(&mut page, ["key", "accepts", "default", "what it sets", "example"]);
        rule(&mut page);
        for key in KEYS.iter().filter(|key| key.sections.contains(&section)) {
            key_row(&mut page, key);
        }
    }
    for experiment in experiments::ALL {
        heading(&mut page, &format!("Axes of `{experiment}`"));
        writeln!(
            page,
            "{}. A list of values makes a point for each.{}\n",
            capitalised(experiment.about()),
            figure(experiment)
        )
        .expect("a String takes any text");
        row(&mut page, ["key", "accepts", "default", "what it sets", "original option"]);
        rule(&mut page);
        experiment.axes().iter().for_each(|axis| axis_row(&mut page, axis));
    }
    heading(&mut page, "Built-in jobs");
    row(&mut page, ["name", "what it measures"]);
    page.push_str("|---|---|\n");
    for builtin in list() {
        let link = format!("[`{0}`](../jobs/{0}.toml)", builtin.name);
        row(&mut page, [link.as_str(), builtin.about]);
    }
    page
}

/// What an external program has to print there.
fn figure(experiment: &dyn Experiment) -> String {
    let metric = experiment.metric(&Axes::defaults(experiment.axes()), false);
    let better = match metric.direction {
        Direction::HigherIsBetter => "more",
        Direction::LowerIsBetter => "less",
    };
    format!(" An external program prints {} in {}; {better} is better.", metric.name, metric.unit)
}

fn key_row(page: &mut String, key: &Key) {
    let default = key.default.map_or_else(String::new, |default| format!("`{default}`: "));
    let accepts = key.kind.accepts();
    let cells = [
        format!("`{}`", key.name),
        accepts,
        format!("{default}{}", key.reason),
        key.about.to_owned(),
        format!("`{}`", key.example),
    ];
    row(page, cells.each_ref().map(String::as_str));
}

fn axis_row(page: &mut String, axis: &Axis) {
    let original = axis.original.map_or_else(String::new, |option| format!("`{option}`"));
    let cells = [
        format!("`{}`", axis.name),
        axis.accepts(),
        format!("`{}`", axis.default.join(", ")),
        axis.about.to_owned(),
        original,
    ];
    row(page, cells.each_ref().map(String::as_str));
}

fn heading(page: &mut String, title: &str) {
    let code = if title.starts_with('[') { format!("`{title}`") } else { title.to_owned() };
    writeln!(page, "\n## {}\n", capitalised(&code)).expect("a String takes any text");
}

fn capitalised(title: &str) -> String {
    let mut chars = title.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn row<const N: usize>(page: &mut String, cells: [&str; N]) {
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    writeln!(page, "| {} |", cells.join(" | ")).expect("a String takes any text");
}

fn rule(page: &mut String) {
    page.push_str("|---|---|---|---|---|\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_the_one_of_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/job-file.md");
        if std::env::var_os("POLLUX_BLESS").is_some() {
            std::fs::write(path, documentation_page()).expect("docs/ is writable");
        }
        let kept = std::fs::read_to_string(path).expect("docs/job-file.md is in the repository");
        assert!(
            kept == documentation_page(),
            "docs/job-file.md is old; POLLUX_BLESS=1 cargo test rewrites it"
        );
    }
}
