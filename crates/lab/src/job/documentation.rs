//! `docs/job-file.md`, made from the table of keys and the experiments.

use super::Job;
use super::builtin::{Builtin, list};
use crate::axis::Axes;
use crate::experiments;
use crate::stats::Direction;

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
flag of `pollux lab run` overrides the file, in all experiments. An unknown key is a mistake, never
ignored; all mistakes of flags and file are reported at once.

`arms` is one list of everything that is compared. Names of the lab stand for what an experiment has of
that name: `epoll` is a poller, in `herd` a way of waiting. `all`, `mechanisms` (drivers of pollux, ways
of waiting) and `others` (bare loops in C, servers, libraries, pools) stand for all that it has. A table
is an arm of your own, of one of four forms, and so is its flag:

| in a job file | as a flag | what it is |
|---|---|---|
| `{ name = \"mine\", server = \"./mine --listen {address}\" }` | `--arm 'mine=./mine --listen {address}'` | a server that the lab starts, in `http` and `proxy`; `{port}` or `{address}` stands for where it has to listen, `{cpus}` for its CPU, `{root}` for a folder with a body of `reply_bytes`, names of axes for their values; of a proxy `{backend}` for the server behind it ([your own server](own-server.md)) |
| `{ name = \"live\", pid = 1234, address = \"127.0.0.1:80\" }` | `--arm live=pid:1234@127.0.0.1:80` | a server that runs already, in `http` and `proxy` |
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
    let mut page = format!("{HEAD}{}", pollux_settings::reference::<Job>());
    page += "\n## Experiments\n\n| name | what it is | what an external program prints |\n|---|---|---|\n";
    for experiment in experiments::ALL {
        let metric = experiment.metric(&Axes::defaults(experiment.axes()), false);
        let better = match metric.direction {
            Direction::HigherIsBetter => "more",
            Direction::LowerIsBetter => "less",
        };
        let figure = format!("{} in {}, {better} is better", metric.name, metric.unit);
        page += &format!("| `{experiment}` | {} | {figure} |\n", experiment.about());
    }
    page += "\n## Built-in jobs\n\n| name | what it measures |\n|---|---|\n";
    for Builtin { name, about, .. } in list() {
        page += &format!("| [`{name}`](../jobs/{name}.toml) | {about} |\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_the_one_of_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/job-file.md");
        pollux_settings::kept(path.as_ref(), &documentation_page()).expect("the table's page");
    }
}
