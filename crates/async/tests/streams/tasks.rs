//! Tasks, timers, sources, and wakes from other threads.

use std::cell::Cell;
use std::io;
use std::net::UdpSocket;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pollux_async::{JoinError, Limits, Runtime, Source, SpawnError, Stream};
use tokio::io::AsyncReadExt;

use crate::{drivers, everywhere, joined, listen};

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
            let peer = crate::peer(&listener);
            let mut kept = listener.accept().await.expect("accepted");
            let bad = handle.spawn(async { panic!("as the test wants it") as () });
            let outcome = bad.expect("few tasks").await;
            assert_eq!(outcome, Err(JoinError::Panicked("as the test wants it".to_owned())));
            // The connections of other tasks are as they were.
            io::Write::write_all(&mut &peer, b"still here").expect("it is open");
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
        let (handle, dropped) = (runtime.handle(), Rc::new(Cell::new(0)));
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
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for time_ms in [30, 10, 20, 0] {
            let (timers, order) = (handle.clone(), Rc::clone(&order));
            tasks.push(handle.spawn(async move {
                let (begun, time) = (Instant::now(), Duration::from_millis(time_ms));
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
        let (source, peer) = (Source::new(&handle, socket), UdpSocket::bind("127.0.0.1:0")?);
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
