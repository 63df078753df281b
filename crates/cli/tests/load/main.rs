//! `pollux load` as a user starts it, against `pollux serve` in a process of its own.
//!
//! | file | what it holds the command to |
//! |---|---|
//! | `outputs` | every form of a result can be read by those that it is for, Prometheus among them |
//! | `endings` | exit codes, signals, findings that nobody can miss, the reasons of a failure, wrong input |
//! | `lists` | requests, weights, crowds, sockets and bodies arrive at the server as asked, from files and patterns |
//! | `sessions` | cookies, certificates of clients, other addresses than the URL's |
//! | `results` | results are compared and added up; the search for the capacity |
//! | `standstill` | servers that stand still or never answer: seconds, exit codes, whose fault |
//! | `figures` | rates, quantiles and memory are what must come out |
//!
//! `run` starts servers, nginx and the command. Only `figures` looks at times, with bounds that a busy machine
//! keeps.

mod endings;
mod figures;
mod lists;
mod outputs;
mod results;
mod run;
mod sessions;
mod standstill;
