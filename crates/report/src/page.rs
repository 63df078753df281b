//! The page around a report: one file for a browser, with its style and, where asked for, its script.
//!
//! The page loads nothing: its own content policy forbids the browser every request. Without
//! JavaScript it is complete.

use askama::Template;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// A page as one HTML file, in UTF-8. The same parts give the same bytes.
#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    title: &'a str,
    style: &'a str,
    body: &'a str,
    data: &'a str,
    script: Option<&'a str>,
}

/// A page that is read: `title` is text, `body` is markup.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    write(&Page { title, style: STYLE, body, data: "", script: None })
}

/// A page whose tables can be sorted and whose theme can be switched; `data` is markup behind the
/// body, such as the result as JSON.
#[must_use]
pub fn page_with_script(title: &str, body: &str, data: &str) -> String {
    write(&Page { title, style: STYLE, body, data, script: Some(SCRIPT) })
}

fn write(page: &Page<'_>) -> String {
    page.render().expect("a template that is checked when it is compiled, into memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_forbids_every_request_and_script_where_it_has_none() {
        let read = page("<b> & \"c\"", "<p>body</p>");
        assert!(!read.contains("<script") && !read.contains("script-src"), "{read}");
        assert!(!read.contains("<b>") && read.contains("<p>body</p>"), "{read}");
        let scripted = page_with_script("t", "", "<i>data</i>");
        assert!(scripted.contains("script-src 'unsafe-inline'") && scripted.contains("<i>data"));
        for page in [read, scripted] {
            assert!(page.starts_with("<!DOCTYPE html>\n") && page.contains("default-src 'none'"));
            for load in ["http://", "https://", "src=", "@import", "url(", "<link"] {
                assert!(!page.contains(load), "{load}");
            }
        }
    }
}
