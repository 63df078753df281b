//! A relay of TCP connections in thirty lines: each client gets a connection of its own, on any mechanism.
//!
//! ```text
//! cargo run -p pollux-async --example relay -- uring 127.0.0.1:7000 127.0.0.1:80
//! ```
#![expect(clippy::print_stdout, reason = "a program that talks to a person")]

use std::error::Error;

use pollux_async::{Limits, ListenAddress, Listener, Runtime, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mechanism, at, to] = &words[..] else { return Err("expected: MECHANISM AT TO".into()) };
    let mut runtime = Runtime::open(mechanism.parse()?, Limits::default())?;
    let (handle, to): (_, ListenAddress) = (runtime.handle(), to.parse()?);
    runtime.block_on(async {
        let listener = Listener::bind(&handle, &at.parse()?, false)?;
        println!("{} to {to}", listener.address());
        loop {
            let mut client = listener.accept().await?;
            let connecting = handle.clone();
            let to = to.clone();
            handle.spawn(async move {
                let mut server = Stream::connect(&connecting, to).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            })?;
        }
    })?
}
