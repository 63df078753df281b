//! The same server on a loop of pollux or on tokio's own runtime, to compare what a request costs.
//!
//! ```text
//! cargo bench -p pollux-async --bench beside_tokio -- hyper|fixed epoll-et|uring|…|tokio PORT
//! cargo bench -p pollux-async --bench beside_tokio --no-run       # prints where the program is
//!
//! pollux lab run http --only keep-alive --connections 64 --baseline tokio
//!     --arm 'tokio=beside_tokio hyper tokio {port}' --arm 'uring=beside_tokio hyper uring {port}'
//! ```
//!
//! `hyper` is hyper's server with a small page; `fixed` answers each read with the same bytes and
//! parses nothing: the work of an echo server. tokio runs on one thread (`current_thread`, local
//! tasks), as a loop of pollux does. Figures are in `runs/2026-11-25-async.txt` and
//! `runs/2026-11-25-async-connections.txt`.

use std::convert::Infallible;
use std::error::Error;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use pollux_async::{Driver, Limits, Listener, Runtime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const PAGE: &[u8] = &[b'x'; 128];

#[derive(Clone, Copy)]
enum Work {
    Hyper,
    Fixed,
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, work: Work) {
    // The peer's end, orderly or not, is the end of either.
    match work {
        Work::Hyper => {
            let http = hyper::server::conn::http1::Builder::new();
            let _ = http.serve_connection(TokioIo::new(stream), service_fn(page)).await;
        }
        Work::Fixed => {
            let _ = answer_each_read(stream).await;
        }
    }
}

async fn page(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(PAGE))))
}

async fn answer_each_read(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", PAGE.len()).into_bytes();
    answer.extend_from_slice(PAGE);
    let mut request = [0; 4096];
    while stream.read(&mut request).await? > 0 {
        stream.write_all(&answer).await?;
    }
    Ok(())
}

fn on_pollux(driver: Driver, work: Work, port: u16) -> Result<(), Box<dyn Error>> {
    let mut runtime = Runtime::open(driver, Limits::default())?;
    let handle = runtime.handle();
    runtime.block_on(async {
        let listener = Listener::bind(&handle, &format!("127.0.0.1:{port}").parse()?, false)?;
        loop {
            handle.spawn(serve(listener.accept().await?, work))?;
        }
    })?
}

fn on_tokio(work: Work, port: u16) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            // As the loops of pollux have it.
            stream.set_nodelay(true)?;
            tokio::task::spawn_local(serve(stream, work));
        }
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` adds a flag of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [work, runtime, port] = &words[..] else {
        return Err("expected: hyper|fixed MECHANISM|tokio PORT".into());
    };
    let work = match &**work {
        "hyper" => Work::Hyper,
        "fixed" => Work::Fixed,
        other => return Err(format!("{other}: expected hyper or fixed").into()),
    };
    let port = port.parse()?;
    match &**runtime {
        "tokio" => on_tokio(work, port),
        mechanism => on_pollux(mechanism.parse()?, work, port),
    }
}
