//! The media types of files, by the extensions of their names.

/// Extensions in lower case with their types, sorted.
const TYPES: &[(&str, &str)] = &[
    ("aac", "audio/aac"),
    ("avif", "image/avif"),
    ("bin", "application/octet-stream"),
    ("bmp", "image/bmp"),
    ("br", "application/x-brotli"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("m4a", "audio/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpeg", "video/mpeg"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("rss", "application/rss+xml"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// Longest extension of the table.
const EXTENSION_BYTES_MAX: usize = 11;
/// Of all other files.
const UNKNOWN: &str = "application/octet-stream";

/// The content type of a file called so; the name may be a whole path.
///
/// A table of what the web serves, read by a binary search; what is not in it is
/// `application/octet-stream`, which no browser runs.
#[must_use]
pub(crate) fn content_type(path: &[u8]) -> &'static str {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let dot = name.iter().rposition(|byte| *byte == b'.');
    let Some(extension) = dot.map(|dot| &name[dot + 1..]) else { return UNKNOWN };
    let mut lower = [0_u8; EXTENSION_BYTES_MAX];
    let Some(lower) = lower.get_mut(..extension.len()) else { return UNKNOWN };
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    let found = TYPES.binary_search_by(|(known, _)| known.as_bytes().cmp(lower));
    found.map_or(UNKNOWN, |index| TYPES[index].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_fits() {
        assert!(TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(TYPES.iter().all(|(extension, _)| extension.len() <= EXTENSION_BYTES_MAX));
        for (extension, media) in TYPES {
            assert_eq!(content_type(format!("a/b.c/x.{extension}").as_bytes()), *media);
        }
    }

    #[test]
    fn only_the_last_extension_of_the_last_segment_counts() {
        assert_eq!(content_type(b"x.HTML"), "text/html; charset=utf-8");
        for unknown in ["", "html", "a.html/b", "x.", "x.html5", "x.averyverylongextension", "ä.ü"]
        {
            assert_eq!(content_type(unknown.as_bytes()), "application/octet-stream", "{unknown}");
        }
    }
}
