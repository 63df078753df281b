//! An echo server, with the traits of tokio and of futures.

use std::io;

use pollux_async::{Handle, Listener, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{bytes, everywhere, exchange, joined, listen, peer};

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
            let (spawner, address) = (handle.clone(), address.clone());
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
