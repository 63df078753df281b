//! Chromium without a window: lays a page out and prints it.

use pollux_testing::has;
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;
use tempfile::TempDir;

const MEASURE: &str = include_str!("measure.js");
/// A computer and a phone.
const WIDTHS_PX: [u32; 2] = [1280, 400];

/// A browser with a profile of its own.
pub(crate) struct Browser {
    program: PathBuf,
    folder: TempDir,
}

/// What was found of a page.
pub(crate) struct Laid {
    /// One line for each fault.
    pub(crate) found: Vec<String>,
    /// Texts in charts that were measured, at all widths.
    pub(crate) texts: usize,
    /// Verdicts that were measured, at all widths.
    pub(crate) verdicts: usize,
}

#[derive(Deserialize)]
struct Measured {
    found: Vec<String>,
    counted: Counted,
}

#[derive(Deserialize)]
struct Counted {
    texts: usize,
    verdicts: usize,
}

/// The browser, where there is one.
pub(crate) fn find() -> Option<Browser> {
    let program = has("chromium").then(|| pollux_doctor::host::programs::find("chromium"))??;
    Some(Browser { program, folder: tempfile::tempdir().expect("a folder") })
}

impl Browser {
    /// Lays `page` out at each width and measures it.
    pub(crate) fn lay_out(&self, page: &str) -> Laid {
        // The page's own policy would hold for the frames too, and forbids nothing that is asked.
        let page = json(page).replace("</", "<\\/").replace("<!--", "<\\u0021--");
        let script = MEASURE.replace("(PAGE, WIDTHS)", &format!("({page}, {WIDTHS_PX:?})"));
        let outer = format!(
            "<!DOCTYPE html><meta charset=\"utf-8\"><body><pre id=\"found\"></pre><script>{script}</script>"
        );
        let file = self.folder.path().join("outer.html");
        std::fs::write(&file, outer).expect("a file");
        let document = self.run(&["--dump-dom", &format!("file://{}", file.display())]);
        let start =
            document.find("<pre id=\"found\">").expect("the list") + "<pre id=\"found\">".len();
        let end = start + document[start..].find("</pre>").expect("its end");
        let list = document[start..end].replace("&lt;", "<").replace("&gt;", ">");
        let list = list.replace("&nbsp;", "\u{a0}").replace("&amp;", "&");
        let Measured { found, counted } =
            serde_json::from_str(&list).unwrap_or_else(|error| panic!("{error}: {list}"));
        Laid { found, texts: counted.texts, verdicts: counted.verdicts }
    }

    /// The text of `page` as it is printed.
    pub(crate) fn print(&self, page: &str) -> String {
        let file = self.folder.path().join("page.html");
        let pdf = self.folder.path().join("page.pdf");
        std::fs::write(&file, page).expect("a file");
        self.run(&[
            &format!("--print-to-pdf={}", pdf.display()),
            "--no-pdf-header-footer",
            &format!("file://{}", file.display()),
        ]);
        let text = Command::new("pdftotext").arg("-layout").arg(&pdf).arg("-").output();
        let text = text.expect("pdftotext starts");
        assert!(text.status.success(), "{}", String::from_utf8_lossy(&text.stderr));
        String::from_utf8(text.stdout).expect("text")
    }

    fn run(&self, words: &[&str]) -> String {
        let output = Command::new(&self.program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .arg(format!("--user-data-dir={}", self.folder.path().join("profile").display()))
            .args(words)
            .output()
            .expect("the browser starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }
}

fn json(text: &str) -> String {
    serde_json::to_string(text).expect("text")
}
