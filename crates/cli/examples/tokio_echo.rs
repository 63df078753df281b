//! A server on tokio that sends every line back, for the tests of `pollux run`: `tokio_echo PORT`.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Bytes of a read.
const PIECE: usize = 4096;

#[tokio::main(worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok());
    let port: u16 = port.ok_or_else(|| std::io::Error::other("usage: tokio_echo PORT"))?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (client, _) = listener.accept().await?;
        tokio::spawn(echo(client));
    }
}

async fn echo(mut client: TcpStream) -> std::io::Result<()> {
    let mut piece = [0; PIECE];
    loop {
        match client.read(&mut piece).await? {
            0 => return Ok(()),
            len => client.write_all(&piece[..len]).await?,
        }
    }
}
