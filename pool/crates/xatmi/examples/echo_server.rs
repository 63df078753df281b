//! A server of a service pool: `ECHO` sends back what it gets, `SHOUT` in capitals.
//!
//! Named in a pool's configuration as `<server name="echo_server">` and started with
//! `pollux pool start`; called by any client of the pool.

use std::env;

use pollux_xatmi::buffer::Buffer;
use pollux_xatmi::error::Error;
use pollux_xatmi::worker::{Done, Incoming, Registry, Worker};

fn main() -> Result<(), Error> {
    let worker = Worker::from_environment()?;
    let registry = worker.registry();
    worker.run(env::args_os(), |_| offer(&registry).map_err(|error| error.to_string()), || {})?;
    Ok(())
}

fn offer(registry: &Registry) -> Result<(), Error> {
    registry.advertise("ECHO", "echo", |request| Done::success(request.buffer))?;
    registry.advertise("SHOUT", "shout", shout)
}

fn shout(request: Incoming) -> Done {
    let Some(mut buffer) = request.buffer else { return Done::failure(None::<Buffer>) };
    buffer.as_bytes_mut()[..request.len_bytes].make_ascii_uppercase();
    Done::success(buffer)
}
