//! `ENVFILE`: lines `NAME=VALUE`, as the variables of `<envs>`.
//!
//! `$NAME` and `${NAME}` are what an earlier line gave, else what the environment of the pool has when it is started;
//! `\\$` is the sign itself. Files that a shell reads too (`NAME=VALUE; export NAME`) are taken as the shell takes them.

/// Most bytes of a file that is read.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Most bytes of the values of a file together: what a program may be started with, and what a value that names others
/// several times may grow to.
const VALUES_BYTES_MAX: usize = 1 << 20;

/// The variables of a file in their order, and what was passed over: lines with reasons.
pub(super) type Variables = (Vec<(String, String)>, Vec<(usize, String)>);

/// Reads the text of a file.
pub(super) fn read(text: &str) -> Variables {
    let mut variables: Vec<(String, String)> = Vec::new();
    let mut passed_over = Vec::new();
    let mut room = VALUES_BYTES_MAX;
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let exported = content.strip_prefix("export ");
        let content = exported.unwrap_or(content);
        let Some((name, value)) = content.split_once('=') else {
            // All of the file is exported.
            if exported.is_some_and(are_names) {
                continue;
            }
            // Not the line itself: it may hold what nobody else is to read.
            passed_over.push((line, "it is not NAME=VALUE".to_owned()));
            continue;
        };
        let name = name.trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            passed_over.push((line, format!("`{name}` is not the name of a variable")));
            continue;
        }
        let whole = value.trim();
        let value = without_export(whole);
        if value.len() < whole.len() {
            passed_over.push((line, "what stands behind `;` is for a shell".to_owned()));
        }
        let quoted =
            ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
        let Some(value) = expanded(quoted.unwrap_or(value), &variables, room) else {
            let why = format!("with it the values have more than {VALUES_BYTES_MAX} bytes");
            passed_over.push((line, why));
            continue;
        };
        room -= value.len();
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_owned(), value));
    }
    (variables, passed_over)
}

/// Names of variables with blanks between them.
fn are_names(text: &str) -> bool {
    text.trim_end_matches(';').split_whitespace().all(is_name)
}

/// Whether a shell takes it as the name of a variable.
pub(super) fn is_name(word: &str) -> bool {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    word.chars().all(is_of_name)
        && !word.starts_with(|first: char| first.is_ascii_digit())
        && !word.is_empty()
}

/// The value without `; export NAME` and `;` at its end.
fn without_export(value: &str) -> &str {
    let mut value = value;
    while let Some((before, last)) = value.rsplit_once(';') {
        let last = last.trim();
        let is_for_a_shell = last.is_empty() || last.strip_prefix("export ").is_some_and(are_names);
        if !is_for_a_shell {
            break;
        }
        value = before.trim_end();
    }
    value
}

/// The names of variables that a value takes from the environment of the start.
pub(super) fn names_in(value: &str) -> Vec<&str> {
    let names = value.split("${").skip(1).filter_map(|part| part.split_once('}'));
    names.map(|(name, _)| name).collect()
}

/// The value with the variables above it, others as `${NAME}`; none where it is longer than `most` bytes.
fn expanded(value: &str, variables: &[(String, String)], most: usize) -> Option<String> {
    let mut done = String::new();
    let mut rest = value;
    while let Some((before, behind)) = rest.split_once('$') {
        if done.len() > most {
            return None;
        }
        if let Some(before) = before.strip_suffix('\\') {
            done.push_str(before);
            done.push('$');
            rest = behind;
            continue;
        }
        done.push_str(before);
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let (name, after) = match behind.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(found) => found,
            None => {
                behind.split_at(behind.find(|letter| !is_of_name(letter)).unwrap_or(behind.len()))
            }
        };
        if name.is_empty() {
            done.push('$');
            rest = behind;
            continue;
        }
        match variables.iter().find(|(known, _)| known == name) {
            Some((_, value)) => done.push_str(value),
            None => done.push_str(&format!("${{{name}}}")),
        }
        rest = after;
    }
    done.push_str(rest);
    (done.len() <= most).then_some(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_take_what_stands_above_them_and_leave_the_rest_to_the_start() {
        let text = "# one\nAPP=/opt/bank\nFLDTBLDIR32=$APP/fld:${TUXDIR}/fld\nexport A=\"x y\"\n\nwrong\n a b=1\n\
                    APP=${APP}/2\nPRICE=5$ $\nE=\n";
        let (variables, passed_over) = read(text);
        let pairs: Vec<_> =
            variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = [
            "FLDTBLDIR32=/opt/bank/fld:${TUXDIR}/fld",
            "A=x y",
            "APP=/opt/bank/2",
            "PRICE=5$ $",
            "E=",
        ];
        assert_eq!(pairs, expected);
        let lines: Vec<_> = passed_over.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [6, 7]);
    }

    #[test]
    fn a_file_for_a_shell_gives_the_values_that_the_shell_has() {
        let text = "HOME_OF_APP=/opt/app; export HOME_OF_APP\nexport HOME_OF_APP\nexport A B;\nLIBS=$HOME_OF_APP/lib:$LIBS;\n\
                    OPTIONS=\"-C a -C b;c\"; export OPTIONS;\nLIST=a;b\nPRICE=5\\$A\nexport x y=1\n";
        let (variables, passed_over) = read(text);
        let pairs: Vec<_> =
            variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = [
            "HOME_OF_APP=/opt/app",
            "LIBS=/opt/app/lib:${LIBS}",
            "OPTIONS=-C a -C b;c",
            "LIST=a;b",
            "PRICE=5$A",
        ];
        assert_eq!(pairs, expected);
        let lines: Vec<_> = passed_over.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 4, 5, 8]);
        assert_eq!(passed_over[0].1, "what stands behind `;` is for a shell");
    }

    #[test]
    fn values_that_name_others_do_not_grow_without_end() {
        let doubled = "A=$A$A\n".repeat(60);
        let (variables, passed_over) = read(&format!("A=xy\n{doubled}B=1\n"));
        let len: usize = variables.iter().map(|(_, value)| value.len()).sum();
        assert!(len <= VALUES_BYTES_MAX, "{len}");
        assert_eq!(variables.last(), Some(&("B".to_owned(), "1".to_owned())));
        let (line, why) = &passed_over[0];
        assert!(
            *line > 15 && why == "with it the values have more than 1048576 bytes",
            "{line}: {why}"
        );
    }

    #[test]
    fn what_is_passed_over_is_not_shown() {
        let (_, passed_over) = read("SECRET: hunter2\n");
        assert_eq!(passed_over, [(1, "it is not NAME=VALUE".to_owned())]);
        assert_eq!(names_in("a${TUXDIR}/b:${HOME}x${"), ["TUXDIR", "HOME"]);
    }
}
