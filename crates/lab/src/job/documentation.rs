//! `docs/job-file.md`, made from the table of keys and the experiments.

use super::Job;
use super::builtin::{Builtin, list};
use crate::axis::Axes;
use crate::experiments;

/// What `docs/job-file.md` has below its introduction.
pub(crate) fn documentation_page() -> String {
    let mut page = pollux_settings::reference::<Job>();
    page += "\n## Experiments\n\n| name | what it is | what an external program prints |\n|---|---|---|\n";
    for experiment in experiments::ALL {
        let metric = experiment.metric(&Axes::defaults(experiment.axes), false);
        page += &format!("| `{experiment}` | {} | {metric} |\n", experiment.about);
    }
    page += "\n## Built-in jobs\n\n| name | what it measures |\n|---|---|\n";
    for Builtin { name, about, .. } in list() {
        page += &format!("| [`{name}`](../jobs/{name}.toml) | {about} |\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_the_one_of_the_tables() {
        let page = documentation_page();
        pollux_settings::kept("job-file.md", "settings", &page).expect("the table's page");
    }
}
