//! The first screen: the question, the answers, and whether to believe them.

use pollux_report::markup::{escape, strip};

use crate::record::{Answer, Record};
use crate::report::{number, words};

/// Facts of the environment that stand under the title, by name.
const SUBTITLE_FACTS: [&str; 3] = ["kernel", "cpu", "memory"];

/// Title, subtitle, badge, and a warning when the run did not go to its end.
pub(crate) fn title(record: &Record) -> String {
    let (badge, class) = words::badge(&record.trust);
    let ending = words::ending(record)
        .map_or_else(String::new, |words| format!("<p class=\"warning\">{}</p>\n", escape(&words)));
    format!(
        "<header><div><h1>{}</h1><p class=\"subtitle\">{}</p></div>\
         <p class=\"corner\"><span class=\"badge {class}\">{badge}</span>\
         <button type=\"button\" id=\"theme\" class=\"js\" title=\"light or dark\" aria-label=\"light or dark\">◐</button></p>\
         </header>\n{ending}",
        escape(&record.job.question),
        subtitle(record),
    )
}

fn subtitle(record: &Record) -> String {
    let mut parts =
        vec!["pollux lab".to_owned(), format!("job <code>{}</code>", escape(&record.job.name))];
    for name in SUBTITLE_FACTS {
        parts.extend(record.fact(name).map(|value| escape(value)));
    }
    parts.push(format!("{} blocks, {}", record.trust.blocks, number::duration(record.duration_s)));
    parts.push(escape(&number::date(&record.started)));
    parts.join(" · ")
}

/// A card for each kind of load.
pub(crate) fn answers(answers: &[Answer]) -> String {
    let card = |answer: &Answer| {
        format!(
            "<div class=\"answer\"><p class=\"load\">{}</p><p class=\"choice\">{}</p><p>{}</p></div>",
            escape(&answer.load),
            escape(&answer.choice),
            escape(&answer.reason)
        )
    };
    match answers {
        [] => "<p class=\"warning\">No answer: nothing was decided in this run.</p>\n".to_owned(),
        _ => format!(
            "<div class=\"answers\">{}</div>\n",
            answers.iter().map(card).collect::<String>()
        ),
    }
}

/// Whether to believe it, in one strip.
pub(crate) fn trust(record: &Record) -> String {
    strip(words::trust(&record.trust))
}
