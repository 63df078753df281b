//! `pollux load` as a user starts it, against `pollux serve` in a process of its own.
//!
//! | file | what it holds the command to |
//! |---|---|
//! | `outputs` | every form of a result can be read by those that it is for |
//! | `shapes` | numbers, weights, crowds, sockets and bodies arrive at the server as asked |
//! | `endings` | exit codes, signals, findings that nobody can miss |
//! | `refusals` | wrong input is refused at once, and says what would be right |
//! | `lists` | requests from a file and from patterns |
//! | `sessions` | cookies, certificates of clients, other addresses than the URL's |
//! | `results` | results are compared and added up |
//! | `scraped` | how far a run is, for Prometheus |
//! | `search` | the search for the capacity |
//! | `standstill` | servers that stand still or never answer: seconds, exit codes, whose fault |
//! | `told` | what a run that failed says |
//! | `figures` | rates, quantiles and memory are what must come out |
//!
//! `run` starts servers and the command, `nginx` one to compare with, `responder` is a server with known delays. Only
//! `figures` looks at times, with bounds that a busy machine keeps.

mod endings;
mod figures;
mod lists;
mod nginx;
mod outputs;
mod refusals;
mod responder;
mod results;
mod run;
mod scraped;
mod search;
mod sessions;
mod shapes;
mod standstill;
mod told;
