//! `pollux lab` as a user runs it, with windows of tenths of a second: nothing is judged of the figures, only
//! that they are there and mean what they say.
//!
//! | file | subject |
//! |---|---|
//! | `runs` | experiments that start other programs; progress, interrupts |
//! | `herd` | every source of a herd with every way of waiting, on a real kernel |
//! | `servers` | servers of users as arms; installed programs on other mechanisms |
//! | `baselines` | the baseline servers as a client sees them |
//! | `forms` | the bare server in each form as a client sees it, and as an arm |
//! | `pages` | the pages of lab and load as a browser lays them out |

mod baselines;
mod forms;
mod herd;
mod pages;
mod runs;
mod servers;

use std::process::{Command, Output};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::available_parallelism;

/// Runs of the lab that are under way.
static UNDER_WAY: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// Runs a command of the lab to its end. As many measure at once as there are processors, however many tests run: with
/// fewer than one each, servers and generators keep to no time.
pub(crate) fn measure(command: &mut Command) -> Output {
    let (count, ended) = &UNDER_WAY;
    let most = available_parallelism().map_or(1, usize::from);
    let is_full = |count: &mut usize| *count >= most;
    let waits = ended.wait_while(count.lock().unwrap_or_else(PoisonError::into_inner), is_full);
    *waits.unwrap_or_else(PoisonError::into_inner) += 1;
    let output = command.output();
    *count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    ended.notify_one();
    output.expect("the program starts")
}
