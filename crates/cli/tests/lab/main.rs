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
