//! What holds for all bytes in front of a connection that are to be a head of the PROXY protocol.
//!
//! The fuzz target and the corpus test call it. It panics when something does not hold.
#![cfg_attr(fuzzing, no_main)]

use pollux_http::{ProxyHeader, ProxyVersion};

/// Reads the input in pieces and as a whole, and writes what was found anew.
pub(crate) fn holds(data: &[u8]) {
    let whole = ProxyHeader::parse(data);
    for cut in 0..data.len() {
        match ProxyHeader::parse(&data[..cut]) {
            Ok(None) => {}
            // Once there is a verdict, more bytes change nothing.
            verdict => return assert_eq!(verdict, whole, "{cut} of {data:?}"),
        }
    }
    assert!(whole != Ok(None) || data.len() < ProxyHeader::LEN_BYTES_MAX, "it waits for ever");
    let Ok(Some((header, len))) = whole else { return };
    assert_eq!(len, data.len(), "there was a verdict before");
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let mut written = Vec::new();
        header.write(version, &mut written);
        let Ok(Some((again, len))) = ProxyHeader::parse(&written) else { panic!("{written:?}") };
        assert_eq!(len, written.len());
        match (header, again) {
            (ProxyHeader::Own, ProxyHeader::Own) => {}
            (
                ProxyHeader::Of { source, destination },
                ProxyHeader::Of { source: from, destination: to },
            ) => {
                let plain = |at: std::net::SocketAddr| (at.ip().to_canonical(), at.port());
                assert_eq!(plain(source), plain(from));
                assert_eq!(plain(destination), plain(to));
            }
            _ => panic!("{header:?} became {again:?}"),
        }
    }
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| holds(data));
