//! The calling side over real queues, with threads in the place of the manager and of workers.

mod calls;
mod queues;
mod support;
