//! The laboratory: experiments, statistics, records and reports.
//!
//! ```text
//!  job file, flags ──► job ──► plan ──► run ──► record ──► judge ──► report, compare_records
//!                             (limits,   │                (stats)    (pure functions
//!                              budget)   │ a fresh process for          of the record)
//!                                        │ each arm, which reads a `Task`: child
//!                                        ▼
//!               costs, in turns:  `pollux lab subject`, all arms alive:
//!                                 orders on stdin ─► Experiment::start ─► Subject ─► figures on stdout
//!               rates, in runs:   `pollux lab measure`: Experiment::measure ─► intervals, result
//! ```
//!
//! | module | one job |
//! |---|---|
//! | `job` | TOML and flags into a `Job`; every mistake with file, line, key and what is expected |
//! | `error` | what can go wrong |
//! | `arm`, `axis` | what is compared, and the values of a point: read once, the same types in job, plan and child |
//! | `hosts` | where servers listen, and how agents on other hosts are reached that make a load |
//! | `form` | the words of a bare server's form, and which of them exclude each other |
//! | `experiments` | what an experiment is (a table of facts, and answers about points), and the one list of them |
//! | `plan` | points × arms, what is left out and why, forecast, cuts to the budget |
//! | `run` | a first look at servers of the user, loads before sets, sets of arms that take turns; blocks of runs in random order, gates around them, external commands |
//! | `warm_up` | a load of one arm until a unit of work costs it no less than before; called by `child` |
//! | `child` | the measuring process: reads its task, does turns or one run |
//! | `subject` | what takes turns: the `Subject`, and the messages between its process and the runner |
//! | `measure` | a run of one arm by itself: window, intervals, counters, profile |
//! | `experiments/http` | the child whose workload is a server: starts, observes and ends it, and loads it itself in turns, or has a generator do that in a run of its own; CPU time of the server's whole process tree |
//! | `experiments/proxy` | the same with a proxy between the load and a server of the lab, which is outside the measured tree; all code is that of `http` |
//! | `experiments/poller` | checks of one behaviour each: calls of a proxy under a counted load (`http/counted_calls.rs`), or the engine's parts in the measuring process |
//! | `experiments/preload` | an installed program, as it is and by `pollux run` on other mechanisms: web servers under the load of `http`, stores under one of its own |
//! | `experiments/herd` | the child whose workload is workers on one event source and their callers, which receive orders and descriptors over a socket; or a program that has workers and callers itself: a service pool (`herd/pool.rs`), or one in C (`raw.c`, the baseline) |
//! | `baselines` | servers that parse nothing, on bare system calls, to compare others with; on its own |
//! | `judge` | the statistics applied to a record: rows, why, trust, answers |
//! | `published` | what documents published, as TOML, put beside a record: `stats::agree` says whether direction and shape come back |
//! | `gate` | the last line of a run that ends with another exit code than 0: which row, by how much, and the bound |
//! | `record`, `store` | the result file and its folder |
//! | `scratch` | the private folder of a run, which goes with it |
//! | `report`, `compare_records` | HTML, Markdown, terminal; two records side by side |
//!
//! Data goes one way: the modules do not use each other in a circle (a test in `xtask/src/circles.rs`).
//!
//! Decisions that shaped it:
//!
//! - **An experiment is a file or folder behind one trait** (`experiments/mod.rs`): axes, arms with the systems
//!   that it brings, needs, metric, words, its section of reports as data, and how an arm is started. Plan,
//!   runner, judge, report and doctor know none by its name; adding one is a file or folder and a line in a list.
//! - **The unit of measurement is a fresh process.** Events within a run are not independent samples. Only a user's server
//!   that takes long to load is kept for several sets.
//! - **Costs are compared in interleaved turns**, all arms alive at the same time; `docs/how-we-measure.md`.
//! - **A block holds every arm once, in random order, and the baseline twice.** The second copy shows
//!   the noise of the machine; no effect smaller than it is called a difference.
//! - **Where arms took turns, the second copy is a control**: its interval must hold 1, and no other row
//!   has to leave a band. A row is decided when its interval, after the correction for all rows, leaves 1
//!   (a small difference where it stays within the minimum effect), or lies within the minimum effect. A
//!   disturbed set counts as any other, for both sides of each round's ratio were disturbed alike.
//! - **Where no verdict decides, the answer says "likely" or names the bound** (`judge/answer.rs`), from
//!   the arms' own intervals; it is never called a verdict.
//! - **Nothing is counted while time is measured**: where arms take turns, the processes of the first set are counted when its
//!   rounds are over; where they do not, counting is a pass of its own. Timing requests inside servers is always one.
//! - **A mistake can be an axis**: `reply = "split"` is run beside the right way, on the same server, and
//!   its points are judged by their rate.
//! - **More blocks, or sets, are decided by the width of the interval**, never by its place, except that an
//!   effect three half-widths from none is measured no closer.
//! - **A metric knows which way it gets better.** In turns every experiment measures a cost, in runs
//!   `streams`, `pipes` and `herd` measure rates; verdicts, answers, charts and `compare_records` ask it, and
//!   say "less" of a cost.
//! - **A server is judged by its CPU time for each request**, because on few CPUs its rate is that of
//!   the load generator; see `docs/how-we-measure.md`.
//! - **Ways of waiting are arms too**: `herd` has no poller to ask, because what it compares is
//!   one watched descriptor in many processes; see `docs/findings.md`.
//! - **Whole systems are arms like any other.** The service pool of `pool/crates/xatmi` stands beside
//!   bare queues in `herd`, the lab's own and those of a baseline in C, so that what it costs is a ratio
//!   within the same blocks. Other people's are servers with configurations that the lab writes, C
//!   libraries under a small program that it builds, mio and polling as dependencies. These two are pinned,
//!   because they are measured and nothing stands on them. `polling` comes through `crates/peer-polling`, where the promise that its registration asks
//!   for is kept by construction.
//! - **Nothing draws while something is measured**: progress is drawn between runs.
//! - **A source is tried with known work before it is believed**: an unprivileged perf counter that
//!   reads 0 is `n/a`, not 0.
#![forbid(unsafe_code)]

pub mod arm;
pub mod axis;
pub mod baselines;
pub mod child;
pub mod compare_records;
pub mod error;
pub mod experiments;
mod form;
pub mod gate;
pub mod hosts;
pub mod job;
pub mod judge;
pub mod measure;
pub mod plan;
mod published;
pub mod record;
pub mod report;
pub mod run;
mod scratch;
pub mod store;
pub mod subject;
mod warm_up;
