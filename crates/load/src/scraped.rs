//! A page of metrics for a scraper of Prometheus, offered by threads of its own: what runs a load shows it the page, and never
//! waits for its readers.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a scraper may take to ask and to read.
const SCRAPE_TIME_MAX: Duration = Duration::from_secs(2);
/// Scrapers that are answered at the same time.
const THREADS: usize = 4;
/// The head of a request.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// A socket that scrapers may ask; nobody answers yet.
#[derive(Debug)]
pub struct ScrapeListener(TcpListener);

/// The page that is offered, as it was last.
#[derive(Clone, Default, Debug)]
pub struct ScrapedPage(Arc<Mutex<String>>);

impl ScrapeListener {
    /// Listens there.
    ///
    /// # Errors
    /// That of the kernel.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).map(Self)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// That of the kernel.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers from now on, to the end of the process.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn serve(self) -> io::Result<ScrapedPage> {
        let page = ScrapedPage::default();
        for _ in 0..THREADS {
            let listener = self.0.try_clone()?;
            let offered = Arc::clone(&page.0);
            let serve = move || {
                for client in listener.incoming() {
                    // One that went away, or took too long, asks again.
                    let _ = client.and_then(|client| answer(client, &offered, SCRAPE_TIME_MAX));
                }
            };
            std::thread::Builder::new().name("load-metrics".to_owned()).spawn(serve)?;
        }
        Ok(page)
    }
}

impl ScrapedPage {
    /// Offers this page from now on.
    pub fn show(&self, page: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = page;
    }
}

fn answer(mut client: TcpStream, page: &Mutex<String>, patience: Duration) -> io::Result<()> {
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
        match client.read(&mut part) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => head.extend_from_slice(&part[..len]),
            // What is stopped and continues, as job control does it, has lost no client.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
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
    fn the_page_that_was_shown_last_is_given() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = ScrapeListener::bind(any).expect("a port");
        let address = listener.address().expect("bound");
        let page = listener.serve().expect("threads");
        page.show("first".to_owned());
        page.show("last".to_owned());
        for (path, says) in [("/metrics", "200 OK"), ("/x", "404 Not Found")] {
            let mut client = TcpStream::connect(address).expect("it listens");
            client.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).expect("sent");
            let mut said = String::new();
            client.read_to_string(&mut said).expect("an answer");
            assert!(said.contains(says), "{said}");
            assert_eq!(said.ends_with("\r\n\r\nlast"), path == "/metrics", "{said}");
        }
    }

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
