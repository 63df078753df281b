//! A server that counts every request that it has read.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Threads of it end with their connections.
pub(crate) struct Counting {
    address: SocketAddr,
    /// When each request came.
    came: Arc<Mutex<Vec<Instant>>>,
}

impl Counting {
    pub(crate) fn start() -> Self {
        Self::answer_on(TcpListener::bind("127.0.0.1:0").expect("a port is free"))
    }

    pub(crate) fn answer_on(listener: TcpListener) -> Self {
        Self::answer_so_many(listener, u64::MAX)
    }

    /// One that answers so many requests of each connection.
    pub(crate) fn start_silent_after(answers: u64) -> Self {
        Self::answer_so_many(TcpListener::bind("127.0.0.1:0").expect("a port is free"), answers)
    }

    fn answer_so_many(listener: TcpListener, answers: u64) -> Self {
        let address = listener.local_addr().expect("it is bound");
        let came = Arc::<Mutex<Vec<Instant>>>::default();
        let counted = Arc::clone(&came);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || answer(client, answers, &counted));
            }
        });
        Self { address, came }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// How many requests came so far.
    pub(crate) fn requests(&self) -> u64 {
        self.came.lock().expect("no thread panics with it").len() as u64
    }

    /// When those came that came after the first `before`, in their order.
    pub(crate) fn came_after(&self, before: u64) -> Vec<Instant> {
        let mut came =
            self.came.lock().expect("no thread panics with it")[before as usize..].to_vec();
        came.sort_unstable();
        came
    }
}

fn answer(mut client: TcpStream, mut answers: u64, came: &Mutex<Vec<Instant>>) {
    let mut unread = Vec::new();
    let mut part = [0; 16 * 1024];
    loop {
        while let Some(end) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            unread.drain(..end + 4);
            came.lock().expect("no thread panics with it").push(Instant::now());
            let Some(left) = answers.checked_sub(1) else { continue };
            answers = left;
            if client.write_all(ANSWER).is_err() {
                return;
            }
        }
        match client.read(&mut part) {
            Ok(0) => return,
            Ok(len) => unread.extend_from_slice(&part[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
