//! Streams, tasks, timers and other programs' futures on every loop.
//!
//! A driver that this machine forbids is skipped with the reason; with `POLLUX_FORBID_SKIP` set that
//! is a failure.
#![expect(clippy::print_stdout, reason = "a skipped driver is named")]

mod ends;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::rc::Rc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use pollux_async::{
    Driver, Handle, JoinError, Limits, ListenAddress, Listener, Runtime, Source, SpawnError, Stream,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// The drivers that this machine has: one that is missing is named, or fails the test.
fn drivers() -> impl Iterator<Item = Driver> {
    Driver::ALL.into_iter().filter(|driver| match Runtime::open(*driver, Limits::default()) {
        Ok(_) => true,
        Err(reason) => {
            assert!(std::env::var_os("POLLUX_FORBID_SKIP").is_none(), "{driver}: {reason}");
            println!("{driver} is skipped: {reason}");
            false
        }
    })
}

/// Plays a scene on every driver, within the deadline.
fn everywhere<F: Future<Output = io::Result<()>>>(scene: impl Fn(Handle) -> F) {
    everywhere_within(&Limits::default(), scene);
}

fn everywhere_within<F: Future<Output = io::Result<()>>>(
    limits: &Limits,
    scene: impl Fn(Handle) -> F,
) {
    for driver in drivers() {
        let mut runtime = Runtime::open(driver, limits.clone()).expect("it was just opened");
        let handle = runtime.handle();
        let played = runtime.block_on(handle.timeout(DEADLINE, scene(handle.clone())));
        match played.expect("the loop turns") {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("{driver}: {error}"),
            Err(_) => panic!("{driver}: not done within {DEADLINE:?}"),
        }
        assert_eq!(handle.panicked_tasks(), 0, "{driver}");
    }
}

fn listen(handle: &Handle) -> Listener {
    let any = "127.0.0.1:0".parse().expect("an address");
    Listener::bind(handle, &any, false).expect("a port is left")
}

/// A blocking peer of a listener.
fn peer(listener: &Listener) -> TcpStream {
    let ListenAddress::Tcp(address) = listener.address() else { panic!("TCP") };
    let peer = TcpStream::connect(address).expect("it listens");
    peer.set_read_timeout(Some(DEADLINE)).expect("set");
    peer.set_write_timeout(Some(DEADLINE)).expect("set");
    peer
}

/// Bytes that differ enough to show which are missing.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|number| ((number * 31 + number / 251 + seed) % 256) as u8).collect()
}

/// Writes `sent` and reads as much, at the same time, in threads of its own.
fn exchange(mut peer: TcpStream, sent: Vec<u8>) -> std::thread::JoinHandle<io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut writing = peer.try_clone()?;
        let len = sent.len();
        let writer = std::thread::spawn(move || writing.write_all(&sent));
        let mut got = vec![0; len];
        peer.read_exact(&mut got)?;
        writer.join().expect("it does not panic")?;
        Ok(got)
    })
}

/// The end of a thread, without blocking the loop.
async fn joined<T: Send + 'static>(thread: std::thread::JoinHandle<T>) -> T {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let ended = thread.join();
        assert!(sender.send(ended).is_ok(), "the scene ended before its thread");
    });
    receiver.await.expect("it sends").expect("the thread does not panic")
}

/// Accepts for ever and sends back what comes, each connection in a task of its own.
fn echo(handle: &Handle, listener: Listener) {
    let spawner = handle.clone();
    let accepting = async move {
        loop {
            let stream = listener.accept().await.expect("descriptors are left");
            let serving = async move {
                let (mut input, mut output) = tokio::io::split(stream);
                tokio::io::copy(&mut input, &mut output).await?;
                output.shutdown().await
            };
            drop(spawner.spawn(serving).expect("few tasks"));
        }
    };
    drop(handle.spawn(accepting).expect("few tasks"));
}

#[test]
fn two_hundred_connections_get_back_what_they_sent() {
    const CONNECTIONS: usize = 200;
    everywhere(|handle| async move {
        let listener = listen(&handle);
        let address = listener.address().clone();
        echo(&handle, listener);
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS {
            let spawner = handle.clone();
            let address = address.clone();
            let client = async move {
                let mut stream = Stream::connect(&spawner, address).await?;
                for round in 0..5 {
                    let sent = bytes(1 + number * 7, round);
                    stream.write_all(&sent).await?;
                    let mut got = vec![0; sent.len()];
                    stream.read_exact(&mut got).await?;
                    assert!(got == sent, "connection {number}, round {round}");
                }
                stream.shutdown().await?;
                assert_eq!(stream.read(&mut [0; 8]).await?, 0, "the end");
                Ok::<(), io::Error>(())
            };
            clients.push(handle.spawn(client)?);
        }
        for client in clients {
            client.await.map_err(io::Error::other)??;
        }
        Ok(())
    });
}

#[test]
fn large_bodies_pass_while_both_sides_send() {
    const LEN: usize = 2 << 20;
    everywhere(|handle| async move {
        let listener = listen(&handle);
        let peers: Vec<_> = (0..3).map(|_| peer(&listener)).collect();
        echo(&handle, listener);
        let exchanges: Vec<_> =
            peers.into_iter().enumerate().map(|(n, peer)| exchange(peer, bytes(LEN, n))).collect();
        for (number, exchange) in exchanges.into_iter().enumerate() {
            assert!(joined(exchange).await? == bytes(LEN, number), "peer {number}");
        }
        Ok(())
    });
}

#[test]
fn the_traits_of_futures_move_the_same_bytes() {
    everywhere(|handle| async move {
        let listener = listen(&handle);
        let address = listener.address().clone();
        echo(&handle, listener);
        let stream = Stream::connect(&handle, address).await?;
        let (mut input, mut output) = futures_util::AsyncReadExt::split(stream);
        let sent = bytes(300_000, 0);
        let writing = async {
            futures_util::AsyncWriteExt::write_all(&mut output, &sent).await?;
            futures_util::AsyncWriteExt::close(&mut output).await
        };
        let mut got = Vec::new();
        let reading = futures_util::AsyncReadExt::read_to_end(&mut input, &mut got);
        let (written, read) = futures_util::future::join(writing, reading).await;
        written?;
        assert_eq!(read?, sent.len());
        assert!(got == sent);
        Ok(())
    });
}

/// A server of hyper's, as it is, that sends each body back as it comes.
fn serve(handle: &Handle, listener: Listener) {
    let spawner = handle.clone();
    let accepting = async move {
        loop {
            let stream = listener.accept().await.expect("descriptors are left");
            let service = service_fn(|request: Request<Incoming>| async move {
                Ok::<_, Infallible>(Response::new(request.into_body()))
            });
            let serving = async move {
                // A client may end its output behind its last request.
                let mut http = hyper::server::conn::http1::Builder::new();
                http.half_close(true).serve_connection(TokioIo::new(stream), service).await
            };
            drop(spawner.spawn(serving).expect("few tasks"));
        }
    };
    drop(handle.spawn(accepting).expect("few tasks"));
}

/// Sends `requests` bodies over one connection of hyper's client and compares what comes back.
async fn ask(
    handle: Handle,
    address: ListenAddress,
    requests: usize,
    len: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let stream = Stream::connect(&handle, address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driving = handle.spawn(connection)?;
    for number in 0..requests {
        let body = Bytes::from(bytes(len, number));
        let request = Request::post("/").header("host", "test").body(Full::new(body.clone()))?;
        let response = sender.send_request(request).await?;
        assert_eq!(response.status(), 200);
        let echoed = response.into_body().collect().await?.to_bytes();
        assert!(echoed == body, "{} of {} bytes", echoed.len(), body.len());
    }
    drop(sender);
    driving.await??;
    Ok(())
}

#[test]
fn many_connections_and_requests() {
    everywhere(|handle| async move {
        let listener = listen(&handle);
        let address = listener.address().clone();
        serve(&handle, listener);
        let mut clients = Vec::new();
        for number in 0..100 {
            let asking = ask(handle.clone(), address.clone(), 10, 10 * number);
            clients.push(handle.spawn(async move { asking.await.map_err(|e| e.to_string()) })?);
        }
        for client in clients {
            client.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        }
        Ok(())
    });
}

#[test]
fn large_bodies_in_both_directions() {
    everywhere(|handle| async move {
        let listener = listen(&handle);
        let address = listener.address().clone();
        serve(&handle, listener);
        let mut clients = Vec::new();
        for _ in 0..3 {
            let asking = ask(handle.clone(), address.clone(), 2, 1 << 20);
            clients.push(handle.spawn(async move { asking.await.map_err(|e| e.to_string()) })?);
        }
        for client in clients {
            client.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        }
        Ok(())
    });
}

#[test]
fn a_request_in_pieces_and_two_at_once_and_a_peer_that_ends() {
    everywhere(|handle| async move {
        let listener = listen(&handle);
        let mut peer = peer(&listener);
        serve(&handle, listener);
        let thread = std::thread::spawn(move || {
            for piece in
                [&b"POST / HTTP/1.1\r\nho"[..], b"st: x\r\ncontent-length: 3\r", b"\n\r\na"]
            {
                peer.write_all(piece)?;
            }
            peer.write_all(b"bcPOST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nde")?;
            peer.shutdown(std::net::Shutdown::Write)?;
            let mut answers = String::new();
            peer.read_to_string(&mut answers)?;
            Ok::<_, io::Error>(answers)
        });
        let answers = joined(thread).await?;
        let bodies: Vec<_> = answers
            .split("HTTP/1.1 200 OK")
            .filter_map(|one| one.split("\r\n\r\n").nth(1))
            .collect();
        assert_eq!(bodies, ["abc", "de"], "{answers}");
        Ok(())
    });
}

#[test]
fn wakes_of_other_threads_all_arrive() {
    const THREADS: u64 = 4;
    const MESSAGES: u64 = 5_000;
    everywhere(|handle| async move {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(16);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    for number in 0..MESSAGES {
                        sender.blocking_send(number).expect("it is received");
                    }
                })
            })
            .collect();
        drop(sender);
        let summing = async move {
            let mut sum = 0;
            while let Some(number) = receiver.recv().await {
                sum += number;
            }
            sum
        };
        let sum = handle.spawn(summing)?.await.map_err(io::Error::other)?;
        assert_eq!(sum, THREADS * MESSAGES * (MESSAGES - 1) / 2);
        for thread in threads {
            joined(thread).await;
        }
        Ok(())
    });
}

#[test]
fn other_threads_start_tasks_until_the_runtime_has_ended() {
    for driver in drivers() {
        let mut runtime = Runtime::open(driver, Limits::default()).expect("it was just opened");
        let remote = runtime.remote();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let spawning = std::thread::spawn(move || {
            for number in 0..100 {
                let sender = sender.clone();
                let task = remote.spawn(move |handle| {
                    let handle = handle.clone();
                    async move {
                        handle.sleep(Duration::from_millis(number % 7)).await;
                        sender.send(number).expect("it is received");
                    }
                });
                task.expect("the runtime is there");
            }
            remote
        });
        let mut numbers = runtime
            .block_on(async {
                let mut numbers = Vec::new();
                while let Some(number) = receiver.recv().await {
                    numbers.push(number);
                }
                numbers
            })
            .expect("it turns");
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..100), "{driver}");
        let remote = spawning.join().expect("it does not panic");
        drop(runtime);
        assert_eq!(remote.spawn(|_| async {}), Err(SpawnError::Ended), "{driver}");
    }
}

#[test]
fn a_panic_ends_its_task_alone_and_is_counted() {
    for driver in drivers() {
        let mut runtime = Runtime::open(driver, Limits::default()).expect("it was just opened");
        let handle = runtime.handle();
        let outcome = runtime.block_on(async {
            let listener = listen(&handle);
            let peer = peer(&listener);
            let mut kept = listener.accept().await.expect("accepted");
            let bad = handle.spawn(async { panic!("as the test wants it") as () });
            let outcome = bad.expect("few tasks").await;
            assert_eq!(outcome, Err(JoinError::Panicked("as the test wants it".to_owned())));
            // The connections of other tasks are as they were.
            Write::write_all(&mut &peer, b"still here").expect("it is open");
            let mut received = [0; 10];
            kept.read_exact(&mut received).await.map(|_| received)
        });
        assert_eq!(&outcome.expect("it turns").expect("read"), b"still here", "{driver}");
        assert_eq!(handle.panicked_tasks(), 1, "{driver}");
    }
}

#[test]
fn an_aborted_task_is_dropped_and_so_are_all_at_the_end() {
    struct Counted(Rc<Cell<u32>>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    for driver in drivers() {
        let mut runtime = Runtime::open(driver, Limits::default()).expect("it was just opened");
        let handle = runtime.handle();
        let dropped = Rc::new(Cell::new(0));
        let rest = |dropped: &Rc<Cell<u32>>| {
            let counted = Counted(Rc::clone(dropped));
            async move {
                std::future::pending::<()>().await;
                drop(counted);
            }
        };
        let ended = runtime.block_on(async {
            let task = handle.spawn(rest(&dropped))?;
            let other = handle.spawn(rest(&dropped))?;
            assert!(!task.is_finished());
            task.abort();
            assert_eq!(dropped.get(), 1, "at once, as it does not run");
            assert!(matches!(task.await, Err(JoinError::Aborted)));
            drop(other);
            Ok::<(), SpawnError>(())
        });
        ended.expect("it turns").expect("few tasks");
        assert_eq!(dropped.get(), 1, "{driver}: a task continues without its handle");
        drop(runtime);
        assert_eq!(dropped.get(), 2, "{driver}");
        assert_eq!(handle.spawn(async {}).err(), Some(SpawnError::Ended), "{driver}");
    }
}

#[test]
fn sleeps_end_in_their_order_and_never_early() {
    everywhere(|handle| async move {
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for time_ms in [30, 10, 20, 0] {
            let timers = handle.clone();
            let order = Rc::clone(&order);
            tasks.push(handle.spawn(async move {
                let begun = Instant::now();
                let time = Duration::from_millis(time_ms);
                timers.sleep(time).await;
                assert!(begun.elapsed() >= time, "{:?} of {time:?}", begun.elapsed());
                order.borrow_mut().push(time_ms);
            })?);
        }
        for task in tasks {
            task.await.map_err(io::Error::other)?;
        }
        assert_eq!(*order.borrow(), [0, 10, 20, 30]);

        let never = std::future::pending::<()>();
        handle.timeout(Duration::from_millis(5), never).await.expect_err("it never ends");
        assert_eq!(handle.timeout(Duration::from_secs(60), async { 7 }).await, Ok(7));
        Ok(())
    });
}

#[test]
fn a_datagram_socket_is_watched_again_after_it_was_left_alone() {
    everywhere(|handle| async move {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        let source = Source::new(&handle, socket);
        let peer = UdpSocket::bind("127.0.0.1:0")?;
        peer.connect(source.get_ref().local_addr()?)?;
        for round in 0..5_u8 {
            let mut datagram = [0; 10];
            let mut receiving = Box::pin(source.when_readable(|socket| socket.recv(&mut datagram)));
            // Watched from here on.
            assert!(futures_util::poll!(&mut receiving).is_pending());
            peer.send(&[round; 3])?;
            assert_eq!(receiving.await?, 3);
            assert_eq!(datagram[..3], [round; 3]);
            // It becomes readable while no task waits: the loop leaves it alone then.
            peer.send(&[round; 4])?;
            handle.sleep(Duration::from_millis(2)).await;
            let mut datagram = [0; 10];
            assert_eq!(source.when_readable(|socket| socket.recv(&mut datagram)).await?, 4);
        }
        let file = std::fs::File::open("/proc/self/exe")?;
        let file = Source::new(&handle, file);
        let blocks = |_: &std::fs::File| Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let refused = file.when_readable(blocks).await.expect_err("not watched");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
        Ok(())
    });
}

#[test]
fn a_socket_that_is_not_a_stream_fails_the_first_read() {
    everywhere(|handle| async move {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let mut stream = Stream::adopt(&handle, socket.into());
        let refused = stream.read(&mut [0; 8]).await.expect_err("refused");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
        Ok(())
    });
}
