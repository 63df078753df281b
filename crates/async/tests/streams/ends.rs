//! How streams end, and what holds them back.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use pollux_async::{Limits, Runtime, Stream};
use pollux_engine::{CloseCause, Counter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{bytes, drivers, everywhere, everywhere_within, joined, listen, peer};

#[test]
fn a_peer_that_ended_its_output_still_gets_an_answer() {
    everywhere(|handle| async move {
        let listener = listen(&handle);
        let mut peer = peer(&listener);
        let thread = std::thread::spawn(move || {
            peer.write_all(b"question")?;
            peer.shutdown(Shutdown::Write)?;
            let mut answer = Vec::new();
            peer.read_to_end(&mut answer)?;
            Ok::<_, io::Error>(answer)
        });
        let mut stream = listener.accept().await?;
        let mut question = String::new();
        stream.read_to_string(&mut question).await?;
        assert_eq!(question, "question");
        let answer = bytes(500_000, 3);
        stream.write_all(&answer).await?;
        stream.shutdown().await?;
        let refused = stream.write(b"more").await.expect_err("the output was ended");
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
        drop(stream);
        assert!(joined(thread).await? == answer);
        Ok(())
    });
}

#[test]
fn input_comes_after_the_output_was_ended() {
    everywhere(|handle| async move {
        let listener = listen(&handle);
        let mut peer = peer(&listener);
        let mut stream = listener.accept().await?;
        stream.shutdown().await?;
        let thread = std::thread::spawn(move || {
            // Only when the end was seen.
            assert_eq!(peer.read_to_end(&mut Vec::new())?, 0);
            peer.write_all(b"late")
        });
        let mut late = String::new();
        stream.read_to_string(&mut late).await?;
        assert_eq!(late, "late");
        joined(thread).await
    });
}

#[test]
fn a_dropped_stream_sends_what_was_written_whatever_the_peer_says_meanwhile() {
    everywhere(|handle| async move {
        let listener = listen(&handle);
        let mut peer = peer(&listener);
        let mut stream = listener.accept().await?;
        let sent = bytes(1 << 20, 9);
        // Unread input, which would make the kernel reset the connection on a plain close.
        peer.write_all(b"never read")?;
        let expected = sent.clone();
        let thread = std::thread::spawn(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got)?;
            assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
            Ok(())
        });
        stream.write_all(&sent).await?;
        drop(stream);
        joined(thread).await
    });
}

#[test]
fn a_dropped_stream_whose_input_was_read_is_closed_without_waiting_for_its_peer() {
    // The peer ends only when it sees the stream's end, and the limits would have it wait for hours.
    let limits = Limits { linger_time: Duration::from_secs(10_000), ..Limits::default() };
    for driver in drivers() {
        let mut runtime = Runtime::open(driver, limits.clone()).expect("it was just opened");
        let handle = runtime.handle();
        let counters = runtime.counters();
        let played = runtime.block_on(async {
            let listener = listen(&handle);
            let mut peer = peer(&listener);
            peer.write_all(b"question")?;
            let mut stream = listener.accept().await?;
            stream.read_exact(&mut [0; 8]).await?;
            stream.write_all(b"answer").await?;
            stream.shutdown().await?;
            drop(stream);
            let begun = Instant::now();
            while counters.closed(CloseCause::Session) == 0 {
                assert!(begun.elapsed() < crate::DEADLINE, "{driver}: it lingers");
                yield_once().await;
            }
            let mut answer = String::new();
            peer.read_to_string(&mut answer)?;
            assert_eq!(answer, "answer");
            Ok::<_, io::Error>(())
        });
        played.expect("it turns").expect("no error");
    }
}

#[test]
fn the_end_of_a_runtime_sends_what_was_written_to_dropped_streams() {
    for driver in drivers() {
        let mut runtime = Runtime::open(driver, Limits::default()).expect("it was just opened");
        let handle = runtime.handle();
        let written = runtime.block_on(async {
            let listener = listen(&handle);
            let peer = peer(&listener);
            let mut stream = listener.accept().await?;
            stream.write_all(&bytes(50_000, 1)).await?;
            Ok::<_, io::Error>(peer)
        });
        let mut peer = written.expect("it turns").expect("accepted");
        drop(runtime);
        let mut got = Vec::new();
        peer.read_to_end(&mut got).expect("no reset");
        assert!(got == bytes(50_000, 1), "{driver}: {} bytes", got.len());
    }
}

#[test]
fn a_reset_stream_is_an_error_to_the_peer_and_a_peers_reset_one_to_the_stream() {
    everywhere(|handle| async move {
        let listener = listen(&handle);
        let mut one = peer(&listener);
        listener.accept().await?.reset();
        let thread = std::thread::spawn(move || one.read_exact(&mut [0]).map_err(|e| e.kind()));
        assert_eq!(joined(thread).await, Err(ErrorKind::ConnectionReset));

        let other = peer(&listener);
        let mut stream = listener.accept().await?;
        close_resets(&other);
        drop(other);
        let refused = stream.read(&mut [0; 8]).await.expect_err("reset");
        assert_eq!(refused.kind(), ErrorKind::ConnectionReset);
        let refused = stream.write_all(&bytes(1000, 0)).await.expect_err("reset");
        assert_eq!(refused.kind(), ErrorKind::ConnectionReset);
        Ok(())
    });
}

/// A close of the socket will be a reset.
fn close_resets(socket: &std::net::TcpStream) {
    rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).expect("set");
}

#[test]
fn writes_to_a_peer_that_reads_nothing_wait_and_fail_in_time() {
    let limits = Limits { write_timeout: Duration::from_millis(400), ..Limits::default() };
    everywhere_within(&limits, |handle| async move {
        let listener = listen(&handle);
        let peer = peer(&listener);
        let mut stream = listener.accept().await?;
        let piece = bytes(10_000, 0);
        let mut written = 0;
        let error = loop {
            match stream.write(&piece).await {
                Ok(len) => written += len,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        // What both sockets hold, at most 6 MiB each by default, and the stream's own buffer.
        assert!(written < 16 << 20, "{written} bytes were taken");
        drop(peer);
        Ok(())
    });
}

#[test]
fn a_stream_that_is_read_slowly_holds_little_input() {
    const LEN: usize = 6 << 20;
    // What a loop may have received for a session that stopped reading, beside the stream's buffer.
    const RECEIVED_MAX: usize = 2 << 20;
    for driver in drivers() {
        let mut runtime = Runtime::open(driver, Limits::default()).expect("it was just opened");
        let handle = runtime.handle();
        let counters = runtime.counters();
        let played = runtime.block_on(async {
            let listener = listen(&handle);
            let mut peer = peer(&listener);
            let thread = std::thread::spawn(move || peer.write_all(&bytes(LEN, 5)));
            let mut stream = listener.accept().await?;
            let mut got = Vec::new();
            let mut piece = vec![0; 20_000];
            loop {
                let read = stream.read(&mut piece).await?;
                if read == 0 {
                    break;
                }
                got.extend_from_slice(&piece[..read]);
                let held = counters.value(Counter::BytesIn) as usize - got.len();
                assert!(held <= Stream::BUFFER_BYTES + RECEIVED_MAX, "{driver}: {held} bytes");
                // The loop turns, and may receive, before each read.
                handle.sleep(Duration::ZERO).await;
                yield_once().await;
            }
            joined(thread).await?;
            assert!(got == bytes(LEN, 5), "{driver}");
            Ok::<_, io::Error>(())
        });
        played.expect("it turns").expect("no error");
    }
}

async fn yield_once() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

#[test]
fn a_refused_connect_says_so_and_one_that_is_given_up_is_no_more() {
    everywhere(|handle| async move {
        let listener = listen(&handle);
        let address = listener.address().clone();
        drop(listener);
        let begun = Instant::now();
        // The listener is closed in the next turn; the connect may still meet it in this one.
        let refused = loop {
            match Stream::connect(&handle, address.clone()).await {
                Ok(stream) => stream.reset(),
                Err(error) => break error,
            }
            assert!(begun.elapsed() < crate::DEADLINE, "it still listens");
        };
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");

        let listener = listen(&handle);
        let connect = Stream::connect(&handle, listener.address().clone());
        drop(connect);
        let mut connect = Box::pin(Stream::connect(&handle, listener.address().clone()));
        let polled = futures_util::poll!(&mut connect);
        assert!(polled.is_pending(), "{polled:?}");
        drop(connect);
        // It is over when its connection is: nothing is left to accept, or it ends at once.
        let last = Stream::connect(&handle, listener.address().clone()).await?;
        let mut ended = 0;
        loop {
            let mut stream = listener.accept().await?;
            let at_end = handle.timeout(Duration::from_millis(100), stream.read(&mut [0; 1])).await;
            match at_end {
                Ok(_) => ended += 1,
                Err(_) => break,
            }
        }
        assert!(ended <= 1, "{ended}");
        drop(last);
        Ok(())
    });
}

#[test]
fn no_more_connections_are_accepted_than_may_be_open() {
    let limits = Limits { connections_max: 3, ..Limits::default() };
    everywhere_within(&limits, |handle| async move {
        let listener = listen(&handle);
        let peers: Vec<_> = (0..5).map(|_| peer(&listener)).collect();
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(listener.accept().await?);
        }
        let mut fourth = Box::pin(listener.accept());
        for _ in 0..50 {
            yield_once().await;
            assert!(futures_util::poll!(&mut fourth).is_pending(), "a fourth was accepted");
        }
        open.pop().expect("three").reset();
        let fourth = fourth.await?;
        drop((fourth, open, peers));
        Ok(())
    });
}
