//! The simulated kernel: beside the real epoll, by scripts and by random operations; and what only it has.

mod against_epoll;
mod lockstep;
mod random_operations;
mod world;
