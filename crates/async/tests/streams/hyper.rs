//! hyper's server and client, as they are, on these streams.

use std::convert::Infallible;
use std::io::{self, Read, Write};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use pollux_async::{Handle, ListenAddress, Listener, Stream};

use crate::{bytes, everywhere, joined, listen, peer};

/// A server that sends each body back as it comes.
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

/// Sends `requests` bodies over one connection and compares what comes back.
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
