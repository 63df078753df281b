//! hyper's server on any mechanism, until Ctrl-C.
//!
//! ```text
//! cargo run -p pollux-async --example hello -- [MECHANISM]      epoll-et, uring, poll, …
//! ```
#![expect(clippy::print_stdout, reason = "a program that talks to a person")]

use std::convert::Infallible;
use std::error::Error;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use pollux_async::{Driver, Limits, Listener, Runtime, Signal, Signals, Source};

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"hello\n"))))
}

fn main() -> Result<(), Box<dyn Error>> {
    let driver = std::env::args().nth(1).map_or(Ok(Driver::default()), |name| name.parse())?;
    let mut runtime = Runtime::open(driver, Limits::default())?;
    let handle = runtime.handle();
    let listener = Listener::bind(&handle, &"127.0.0.1:0".parse()?, false)?;
    println!("http://{}/", listener.address());

    let spawner = handle.clone();
    let accepting = handle.spawn(async move {
        loop {
            let stream = TokioIo::new(listener.accept().await?);
            spawner.spawn(async move {
                let http = hyper::server::conn::http1::Builder::new();
                if let Err(error) = http.serve_connection(stream, service_fn(hello)).await {
                    println!("{error}");
                }
            })?;
        }
        #[expect(unreachable_code, reason = "it says what the errors are")]
        Ok::<(), std::io::Error>(())
    })?;

    let signals = Source::new(&handle, Signals::catch(&[Signal::Interrupt, Signal::Terminate])?);
    let ending = signals.when_readable(|signals| {
        signals.take().ok_or_else(|| std::io::ErrorKind::WouldBlock.into())
    });
    let signal = runtime.block_on(ending)??;
    println!("{}: ending", signal.name());
    accepting.abort();
    Ok(())
}
