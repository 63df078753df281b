//! A table as data: for a page, for the summary of a CI step, for a terminal.
//!
//! A report fills one and chooses the form last, so that all forms say the same.
//! [`Page::table`](crate::terminal::Page::table) writes it to a terminal.

use askama::Template;

use crate::markup;
use crate::markup::{escape, scroll};
use crate::number::NA;

/// How a text is to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    #[default]
    Plain,
    /// What is read first.
    Bold,
    Dim,
    /// Not known.
    Missing,
    Good,
    /// Worse, or wrong.
    Bad,
    /// Not decided, or to be looked at.
    Open,
    /// No difference.
    Same,
}

impl Tone {
    /// The class of the style sheet.
    pub(crate) const fn class(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::Bold => None,
            Self::Dim => Some("dim"),
            Self::Missing => Some("na"),
            Self::Good => Some("good"),
            Self::Bad => Some("bad"),
            Self::Open => Some("open"),
            Self::Same => Some("same"),
        }
    }
}

/// What stands in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Words,
    Code,
    Figure,
    /// Markup of a drawing; only a page has it.
    Drawn,
}

/// One cell of a [`Table`].
#[derive(Clone, Debug)]
pub struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
    content: Content,
    is_wide: bool,
    part: Option<&'static str>,
    title: Option<String>,
    sort_key: Option<f64>,
}

impl Cell {
    fn new(text: &str, content: Content) -> Self {
        let text = text.to_owned();
        let tone = Tone::Plain;
        Self { text, tone, content, is_wide: false, part: None, title: None, sort_key: None }
    }

    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::new(text, Content::Words)
    }

    /// Words of a fixed width, such as a command.
    #[must_use]
    pub fn code(text: &str) -> Self {
        Self::new(text, Content::Code)
    }

    /// A figure as shown, and the number that the table is sorted by.
    #[must_use]
    pub fn number(shown: &str, value: f64) -> Self {
        let sort_key = Some(value).filter(|value| value.is_finite());
        Self { sort_key, ..Self::figure(shown) }
    }

    /// A figure as shown, in a table that is not sorted.
    #[must_use]
    pub fn figure(shown: &str) -> Self {
        Self::new(shown, Content::Figure)
    }

    /// A whole number that is read as it is counted.
    #[must_use]
    pub fn count(count: impl Into<u64>) -> Self {
        let count = count.into();
        Self::number(&crate::number::count(count), count as f64)
    }

    /// A figure that may be missing: then the word and the reason.
    #[must_use]
    pub fn number_or(
        value: Option<f64>,
        show: impl FnOnce(f64) -> String,
        word: &str,
        reason: &str,
    ) -> Self {
        value.map_or_else(|| Self::missing(word, reason), |value| Self::number(&show(value), value))
    }

    /// A greyed word in place of a figure, with the reason.
    #[must_use]
    pub fn missing(word: &str, reason: &str) -> Self {
        Self::figure(word).tone(Tone::Missing).title(reason)
    }

    /// A stretch of a plot that is drawn row by row, and the number that the table is sorted by.
    #[must_use]
    pub fn drawn(svg: &str, sort_key: Option<f64>) -> Self {
        Self { sort_key, part: Some("plot"), ..Self::new(svg, Content::Drawn) }
    }

    /// The same cell in a tone.
    #[must_use]
    pub fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    /// The same cell with room for a sentence.
    #[must_use]
    pub fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    /// The same cell as a part of a plot, by the class that the style sheet has for it.
    #[must_use]
    pub fn part(self, class: &'static str) -> Self {
        Self { part: Some(class), ..self }
    }

    /// The same cell with words for the pointer.
    #[must_use]
    pub fn title(self, title: &str) -> Self {
        Self { title: Some(title.to_owned()).filter(|title| !title.is_empty()), ..self }
    }

    /// Whether nothing is known or said.
    fn is_blank(&self) -> bool {
        matches!(self.text.as_str(), "" | NA | "–")
    }

    fn class(&self) -> Option<String> {
        let figure = (self.content == Content::Figure).then_some("num");
        let wide = self.is_wide.then_some("wide");
        let classes: Vec<&str> =
            [self.part, figure, wide, self.tone.class()].into_iter().flatten().collect();
        (!classes.is_empty()).then(|| classes.join(" "))
    }

    fn markdown(&self) -> String {
        match self.content {
            Content::Figure => self.text.clone(),
            Content::Words | Content::Code => markup::escape_markdown(&self.text),
            Content::Drawn => String::new(),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Heading {
    pub(crate) words: String,
    /// What it means, for the pointer.
    hint: Option<&'static str>,
    pub(crate) is_figure: bool,
    /// Whether on a narrow terminal its cells stand below their rows.
    pub(crate) gives_way: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Body {
    pub(crate) group: Option<String>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// A table whose columns all have a value somewhere.
pub(crate) struct Filled {
    pub(crate) table: Table,
    /// What was left out, and why: a line for each reason.
    left_out: Vec<String>,
}

/// Rows under headings, in groups where they have some. A column without a value in any row is left out of every form;
/// where its cells have a reason, page and summary say so below. One made by [`Table::with_empty_columns`] keeps them.
#[derive(Template)]
#[template(path = "table.html")]
pub struct Table {
    pub(crate) headings: Vec<Heading>,
    pub(crate) bodies: Vec<Body>,
    is_plot: bool,
    keeps_empty: bool,
}

impl Table {
    /// Starts a table. A heading that begins with `#` stands over figures; the cells of one that begins
    /// with `?` give way on a narrow terminal.
    #[must_use]
    pub fn new<H: AsRef<str>>(headings: impl IntoIterator<Item = H>) -> Self {
        let heading = |heading: H| {
            let words = heading.as_ref();
            let is_figure = words.starts_with('#');
            let gives_way = words.starts_with('?');
            let words = words.trim_start_matches(['#', '?']).to_owned();
            Heading { words, hint: None, is_figure, gives_way }
        };
        let headings = headings.into_iter().map(heading).collect();
        Self { headings, bodies: Vec::new(), is_plot: false, keeps_empty: false }
    }

    /// Starts one whose third column draws: it is as wide as the page and breaks its rows in two
    /// where that is narrow.
    #[must_use]
    pub fn plot(headings: &[&str; 5]) -> Self {
        Self { is_plot: true, ..Self::new(headings) }
    }

    /// The same with all its columns, also those without a value: they were asked for.
    #[must_use]
    pub fn with_empty_columns(self) -> Self {
        Self { keeps_empty: true, ..self }
    }

    /// The same with what its headings mean, for the pointer; nothing where `meaning` has nothing to say.
    #[must_use]
    pub fn hinted(mut self, meaning: impl Fn(&str) -> &'static str) -> Self {
        for heading in &mut self.headings {
            heading.hint = Some(meaning(&heading.words)).filter(|meaning| !meaning.is_empty());
        }
        self
    }

    /// Starts a group of rows under a line of its own.
    pub fn group(&mut self, label: &str) {
        self.bodies.push(Body { group: Some(label.to_owned()), rows: Vec::new() });
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not a cell for each heading.
    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        let cells = cells.into();
        assert_eq!(cells.len(), self.headings.len(), "a row has a cell for each heading");
        if self.bodies.is_empty() {
            self.bodies.push(Body::default());
        }
        self.bodies.last_mut().expect("there is one").rows.push(cells);
    }

    /// Whether it has no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bodies.iter().all(|body| body.rows.is_empty())
    }

    /// Its markup; unless it is a plot it scrolls inside its own box when the window is narrow.
    ///
    /// # Panics
    /// Never by its content: the template is checked when it is compiled.
    #[must_use]
    pub fn html(&self) -> String {
        let markup = |table: &Self| table.render().expect("into memory") + "\n";
        if self.is_plot {
            return markup(self);
        }
        let Filled { table, left_out } = self.filled();
        let lines = left_out.iter();
        let lines: String =
            lines.map(|line| format!("<p class=\"left-out\">{}</p>\n", escape(line))).collect();
        scroll("table", &markup(&table)) + &lines
    }

    /// The table without the columns in which no row has a value.
    pub(crate) fn filled(&self) -> Filled {
        let rows = || self.bodies.iter().flat_map(|body| &body.rows);
        let has_value = |column: usize| rows().any(|row| !row[column].is_blank());
        let keeps_all = self.keeps_empty || self.is_empty();
        let is_kept = |column: &usize| *column == 0 || keeps_all || has_value(*column);
        let (kept, empty): (Vec<usize>, Vec<usize>) = (0..self.headings.len()).partition(is_kept);
        let pick = |row: &Vec<Cell>| kept.iter().map(|column| row[*column].clone()).collect();
        let of_body = |body: &Body| Body {
            group: body.group.clone(),
            rows: body.rows.iter().map(pick).collect(),
        };
        let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
        for column in empty {
            let Some(reason) = rows().find_map(|row| row[column].title.as_deref()) else {
                continue;
            };
            let heading = self.headings[column].words.as_str();
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, headings)) => headings.push(heading),
                None => reasons.push((reason.to_owned(), vec![heading])),
            }
        }
        let line = |(reason, headings): &(String, Vec<&str>)| {
            format!("Left out, as no row has a value: {}: {reason}", headings.join(", "))
        };
        Filled {
            left_out: reasons.iter().map(line).collect(),
            table: Self {
                headings: kept.iter().map(|column| self.headings[*column].clone()).collect(),
                bodies: self.bodies.iter().map(of_body).collect(),
                is_plot: self.is_plot,
                keeps_empty: self.keeps_empty,
            },
        }
    }

    /// It in GitHub-flavoured Markdown: a table for each group, then why figures are missing.
    #[must_use]
    pub fn markdown(&self) -> String {
        let Filled { table, left_out } = self.filled();
        let left_out = left_out.iter().map(|line| markup::escape_markdown(line) + "\n\n");
        table.as_markdown() + &left_out.collect::<String>()
    }

    fn as_markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let words = self.headings.iter().map(|heading| markup::escape_markdown(&heading.words));
        let rules = self.headings.iter().map(|h| if h.is_figure { "--:|" } else { ":--|" });
        let head = line(words.collect()) + "|" + &rules.collect::<String>() + "\n";
        let mut out = String::new();
        for Body { group, rows } in &self.bodies {
            let group = group.iter().filter(|group| !group.is_empty());
            out.extend(group.map(|group| format!("**{}**\n\n", markup::escape_markdown(group))));
            out += &head;
            out.extend(rows.iter().map(|row| line(row.iter().map(Cell::markdown).collect())));
            out.push('\n');
        }
        let mut reasons: Vec<&str> = Vec::new();
        let cells = self.bodies.iter().flat_map(|body| body.rows.iter().flatten());
        for reason in cells.filter(|cell| cell.text == NA).filter_map(|cell| cell.title.as_deref())
        {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        out.extend(reasons.iter().map(|why| format!("{NA}: {}\n\n", markup::escape_markdown(why))));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(["a", "#b"]);
        table.group("first");
        table.row([Cell::text("x|y"), Cell::missing("n/a", "why \"so\"")]);
        table.group("second");
        table.row([Cell::code("<i>").tone(Tone::Good).wide(), Cell::count(18_000u64)]);
        table
    }

    #[test]
    fn a_page_has_each_group_in_a_body_and_no_text_becomes_markup() {
        let html = sample().html();
        assert_eq!(html.matches("<tbody>").count(), 2, "{html}");
        for part in [
            "<th scope=\"col\">a</th><th scope=\"col\" class=\"num\">b</th>",
            "<tr class=\"group\"><th scope=\"colgroup\" colspan=\"2\">first</th></tr>",
            "<td class=\"num na\" title=\"why &quot;so&quot;\">n/a</td>",
            "<td class=\"wide good\"><code>&lt;i&gt;</code></td>",
            "<td class=\"num\" data-sort=\"18000\">18,000</td>",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        let mut plot = Table::plot(&["", "", "", "", ""]);
        plot.row([(); 5].map(|()| Cell::drawn("<svg/>", None)));
        assert!(plot.html().starts_with("<table class=\"rows\">"), "it does not scroll");
        assert!(plot.html().contains("<td class=\"plot\"><svg/></td>"));
    }

    #[test]
    fn a_column_without_a_value_in_any_row_is_left_out_with_its_reason() {
        let mut table = Table::new(["arm", "#cycles", "#p50", "note", "#rate", "#misses"]);
        for (arm, rate) in [("a", "3"), ("b", "n/a")] {
            let missing = || Cell::missing("n/a", "no counters");
            let p50 = Cell::missing("n/a", "not part of these runs");
            let rate = Cell::missing(rate, "once");
            table.row([Cell::text(arm), missing(), p50, Cell::text(""), rate, missing()]);
        }
        let html = table.html();
        assert!(
            html.contains(
                "<th scope=\"col\">arm</th><th scope=\"col\" class=\"num\">rate</th></tr>"
            ),
            "{html}"
        );
        let lines = [
            "Left out, as no row has a value: cycles, misses: no counters",
            "Left out, as no row has a value: p50: not part of these runs",
        ];
        assert!(
            lines.iter().all(|line| html.contains(&format!("<p class=\"left-out\">{line}</p>"))),
            "{html}"
        );
        assert_eq!(
            table.markdown(),
            format!(
                "| arm | rate |\n|:--|--:|\n| a | 3 |\n| b | n/a |\n\nn/a: once\n\n{}\n\n{}\n\n",
                lines[0], lines[1]
            )
        );
        let mut page = crate::terminal::Page::new(80, false);
        page.table(&table);
        assert_eq!(page.finish(), "arm  rate\na       3\nb     n/a\n");
    }

    #[test]
    fn a_summary_has_a_table_for_each_group_and_says_why_a_figure_is_missing() {
        assert_eq!(
            sample().markdown(),
            "**first**\n\n| a | b |\n|:--|--:|\n| x\\|y | n/a |\n\n\
             **second**\n\n| a | b |\n|:--|--:|\n| &lt;i&gt; | 18,000 |\n\nn/a: why \"so\"\n\n"
        );
    }
}
