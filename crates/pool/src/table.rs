//! Columns for the terminal: as wide as their widest cell, numbers to the right.

/// A column: its heading, and whether its cells stand to the right.
pub(crate) struct Column {
    heading: &'static str,
    is_number: bool,
}

/// A column of words.
pub(crate) const fn words(heading: &'static str) -> Column {
    Column { heading, is_number: false }
}

/// A column of numbers.
pub(crate) const fn number(heading: &'static str) -> Column {
    Column { heading, is_number: true }
}

/// The table as text. Each row has a cell for each column.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let width = |index: usize| {
        let cells = rows.iter().map(|row: &Vec<String>| row[index].chars().count());
        cells.chain([columns[index].heading.len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: &[String]| {
        let mut text = String::new();
        for ((cell, column), width) in cells.iter().zip(columns).zip(&widths) {
            let pad = " ".repeat(width - cell.chars().count());
            let (before, after) = if column.is_number { (&*pad, "") } else { ("", &*pad) };
            text += &format!("{before}{cell}{after}  ");
        }
        format!("{}\n", text.trim_end())
    };
    let headings: Vec<String> = columns.iter().map(|column| column.heading.to_owned()).collect();
    let mut text = line(&headings);
    for row in rows {
        text += &line(row);
    }
    text
}

/// Nanoseconds as milliseconds with three digits behind the point.
pub(crate) fn milliseconds(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

/// Seconds in the largest units that say it: `47s`, `12m03s`, `3h05m`, `2d04h`.
pub(crate) fn time(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [vec!["a".to_owned(), "1".to_owned()], vec!["bcdef".to_owned(), "22".to_owned()]];
        let text = table(&[words("NAME"), number("N")], &rows);
        assert_eq!(text, "NAME    N\na       1\nbcdef  22\n");
    }

    #[test]
    fn times_have_two_units() {
        let texts = [0, 59, 60, 723, 3599, 3600, 11_100, 86_399, 187_200].map(time);
        let wanted =
            ["0s", "59s", "1m00s", "12m03s", "59m59s", "1h00m", "3h05m", "23h59m", "2d04h"];
        assert_eq!(texts, wanted);
        assert_eq!(milliseconds(1_234_567), "1.235");
    }
}
