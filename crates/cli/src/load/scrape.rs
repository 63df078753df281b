//! How far a run is, for Prometheus while it runs. A few threads answer, each one scraper after the other, and sleep
//! otherwise.

use crate::output::{self, Failure};
use pollux_load::{Progress, render};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a scraper may take to ask and to read.
const PATIENCE: Duration = Duration::from_secs(2);
/// Scrapers that are answered at the same time.
const THREADS: usize = 4;
/// The head of a request.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// The page that is offered, as it was last.
#[derive(Clone, Default)]
pub(super) struct Scraped(Option<Arc<Mutex<String>>>);

impl Scraped {
    /// Listens there, if anywhere, to the end of the process.
    pub(crate) fn offer(address: Option<SocketAddr>) -> Result<Self, Failure> {
        let Some(address) = address else { return Ok(Self(None)) };
        let failed = |error| {
            let what = format!("--prometheus: {address} can't be listened on: {error}");
            Failure::failed(what)
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let page = Arc::<Mutex<String>>::default();
        for _ in 0..THREADS {
            let (listener, offered) = (listener.try_clone().map_err(failed)?, Arc::clone(&page));
            let serve = move || {
                for client in listener.incoming() {
                    // One that went away, or took too long, asks again.
                    let _ = client.and_then(|client| answer(client, &offered, PATIENCE));
                }
            };
            let thread = std::thread::Builder::new().name("load-metrics".to_owned());
            thread.spawn(serve).map_err(failed)?;
        }
        output::remark(&format!("pollux load: metrics at http://{address}/metrics"));
        Ok(Self(Some(page)))
    }

    /// Offers how far the run is now.
    pub(crate) fn show(&self, progress: &Progress) {
        if let Some(page) = &self.0 {
            *page.lock().unwrap_or_else(PoisonError::into_inner) = render::prometheus(progress);
        }
    }
}

fn answer(mut client: TcpStream, page: &Mutex<String>, patience: Duration) -> std::io::Result<()> {
    let end = Instant::now() + patience;
    client.set_write_timeout(Some(patience))?;
    let mut head = Vec::new();
    while !head.windows(4).any(|part| part == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() >= HEAD_BYTES_MAX {
            return Err(ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        let mut part = [0; 1024];
        let len = client.read(&mut part)?;
        if len == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..len]);
    }
    let mut words = head.split(|byte| *byte == b' ');
    let is_get = matches!(words.next(), Some(b"GET" | b"HEAD"));
    let has_body = !head.starts_with(b"HEAD");
    let is_here = matches!(words.next(), Some(b"/metrics" | b"/"));
    let page = page.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (status, body) = match (is_get, is_here) {
        (false, _) => ("405 Method Not Allowed", "expected GET\n".to_owned()),
        (true, false) => ("404 Not Found", "expected /metrics\n".to_owned()),
        (true, true) => ("200 OK", page),
    };
    let length = body.len();
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes())?;
    if has_body { client.write_all(body.as_bytes()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_that_says_nothing_is_not_waited_for_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut silent =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let accept = || listener.accept().expect("a client").0;
        let patience = Duration::from_millis(20);
        let page = Mutex::default();
        answer(accept(), &page, patience).expect_err("nothing was asked");
        assert_eq!(silent.read(&mut [0; 9]).expect("an end"), 0);
        // One that sends half of it, and continues for ever, byte by byte.
        silent = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let served = accept();
        std::thread::scope(|scope| {
            scope.spawn(|| while silent.write_all(b"x").is_ok() {});
            answer(served, &page, patience).expect_err("no end of the head");
        });
    }
}
