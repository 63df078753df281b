//! HPACK (RFC 7541): field blocks to fields and back.
//!
//! | part | one job |
//! |---|---|
//! | `integer` | numbers with a prefix |
//! | `huffman` | the code for strings, both ways |
//! | `tables` | the static table; the dynamic one in a buffer that stays small |
//! | `decode` | a block to fields |
//! | `encode` | fields to a block, so that what repeats takes one byte |

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod huffman;
pub(crate) mod integer;
pub(crate) mod tables;

pub use encode::path_block;

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use serde_json::Value;

    use crate::h2::hpack::decode::{Decoder, Strings};
    use crate::h2::hpack::encode::Encoder;
    use crate::h2::output::Output;

    type Fields = Vec<(Vec<u8>, Vec<u8>)>;

    fn decode(decoder: &mut Decoder, block: &[u8]) -> Fields {
        let mut fields = Vec::new();
        let decoded = decoder.decode(block, &mut Strings::default(), |field| {
            fields.push((field.name.to_vec(), field.value.to_vec()));
        });
        decoded.expect("a story is sound");
        fields
    }

    fn files(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("the folder of the stories") {
            let path = entry.expect("readable").path();
            match path.extension() {
                _ if path.is_dir() => files(&path, into),
                Some(extension) if extension == "json" => into.push(path),
                _ => {}
            }
        }
    }

    /// The stories of http2jp/hpack-test-case: each one is a connection, written by another encoder.
    #[test]
    #[ignore = "give it the folder of the stories in POLLUX_HPACK_STORIES"]
    fn stories_are_read_and_written_again() {
        let folder = std::env::var_os("POLLUX_HPACK_STORIES").expect("a folder");
        let mut stories = Vec::new();
        files(Path::new(&folder), &mut stories);
        assert!(stories.len() >= 30, "{} stories", stories.len());
        for path in stories {
            let text = std::fs::read(&path).expect("readable");
            let story: Value = serde_json::from_slice(&text).expect("JSON");
            let mut theirs = Decoder::default();
            let mut own = Decoder::default();
            let mut encoder = Encoder::default();
            for case in story["cases"].as_array().expect("cases") {
                let mut expected = Vec::new();
                for field in case["headers"].as_array().expect("fields") {
                    let field = field.as_object().expect("a field").iter();
                    expected.extend(field.map(|(name, value)| {
                        let value = value.as_str().expect("text");
                        (name.as_bytes().to_vec(), value.as_bytes().to_vec())
                    }));
                }
                let digits = case["wire"].as_str().expect("hex").as_bytes();
                let pair = |pair: &[u8]| {
                    str::from_utf8(pair).ok().map(|pair| u8::from_str_radix(pair, 16))
                };
                let wire: Vec<u8> = digits
                    .chunks(2)
                    .map(|digits| pair(digits).expect("text").expect("hex"))
                    .collect();
                assert_eq!(
                    decode(&mut theirs, &wire),
                    expected,
                    "{} {}",
                    path.display(),
                    case["seqno"]
                );

                let mut room = vec![0; 1 << 16];
                let mut out = Output::new(&mut room);
                encoder.begin(&mut out);
                for (name, value) in &expected {
                    encoder.field(&mut out, name, value);
                }
                assert_eq!(decode(&mut own, out.bytes()), expected, "{}", path.display());
            }
        }
    }
}
