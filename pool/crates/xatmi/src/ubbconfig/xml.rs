//! The ndrxconfig.xml of what was read: servers in their order, and in a comment what stands in no file.

use super::{Converted, Server};

/// The document.
pub(super) fn document(converted: &Converted, from: &str) -> String {
    let mut text = String::from("<?xml version=\"1.0\"?>\n<!--\n");
    text += &format!("    From {}.", in_comment(from));
    let commands: Vec<String> = commands(converted).iter().map(|line| in_comment(line)).collect();
    text += " Before the pool is started:\n\n";
    for command in commands {
        text += &format!("    {command}\n");
    }
    text += "-->\n<endurox>\n";
    if let Some(seconds) = converted.sanity_s {
        text += &format!("    <appconfig>\n        <sanity>{seconds}</sanity>\n    </appconfig>\n");
    }
    if !converted.variables.is_empty() {
        text += "    <defaults>\n";
        text += &variables(&converted.variables, "        ");
        text += "    </defaults>\n";
    }
    text += "    <servers>\n";
    for server in &converted.servers {
        text += &element(server);
    }
    text += "    </servers>\n";
    if !converted.priorities.is_empty() {
        text += "    <services>\n";
        for (name, priority) in &converted.priorities {
            let name = escaped(name);
            let number = priority.number();
            text += &format!("        <service svcnm=\"{name}\" prio=\"{number}\"/>\n");
        }
        text += "    </services>\n";
    }
    text + "</endurox>\n"
}

/// What a shell is given before the pool is started.
pub(super) fn commands(converted: &Converted) -> Vec<String> {
    let mut commands = Vec::new();
    for (name, value) in &converted.environment {
        commands.push(format!("export {name}={}", quoted(value)));
    }
    if !converted.folders.is_empty() {
        let folders: Vec<String> = converted.folders.iter().map(|folder| quoted(folder)).collect();
        commands.push(format!("export PATH={}:$PATH", folders.join(":")));
    }
    for name in converted.taken.iter().filter(|name| *name != "PATH") {
        commands.push(format!("export {name}=\"${{{name}-}}\""));
    }
    if let Some(folder) = &converted.folder {
        commands.push(format!("cd {}", quoted(folder)));
    }
    commands
}

fn element(server: &Server) -> String {
    let mut text = String::new();
    text += &format!("        <server name=\"{}\">\n", escaped(&server.program));
    let mut line = |name: &str, value: &str| {
        text += &format!("            <{name}>{}</{name}>\n", escaped(value));
    };
    line("srvid", &server.first_id.to_string());
    line("min", &server.min.to_string());
    line("max", &server.max.to_string());
    line("respawn", if server.is_restarted { "Y" } else { "N" });
    for (name, words) in [("sysopt", &server.system), ("appopt", &server.application)] {
        if !words.is_empty() {
            line(name, &option_words(words));
        }
    }
    if !server.variables.is_empty() {
        text += &variables(&server.variables, "            ");
    }
    text + "        </server>\n"
}

fn variables(variables: &[(String, String)], indent: &str) -> String {
    let mut text = format!("{indent}<envs>\n");
    for (name, value) in variables {
        text += &format!("{indent}    <env name=\"{}\">{}</env>\n", escaped(name), escaped(value));
    }
    text + &format!("{indent}</envs>\n")
}

/// Words as `<sysopt>` and `<appopt>` have them.
fn option_words(words: &[String]) -> String {
    let word = |word: &String| {
        let is_plain = !word.is_empty()
            && !word.contains(|letter: char| {
                letter.is_whitespace() || matches!(letter, '"' | '\'' | '\\')
            });
        if is_plain {
            word.clone()
        } else {
            format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
        }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A word of a shell.
#[must_use]
pub fn quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:,@%".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Two dashes end nothing but a comment; a backslash between them is nothing to a shell.
fn in_comment(text: &str) -> String {
    text.replace("--", "-\\-").replace("--", "-\\-")
}

fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_as_they_were() {
        let words = ["-x", "a b", "", "it's", "\"q\"", "\\", "c:\\d"].map(str::to_owned);
        let text = option_words(&words);
        assert_eq!(crate::config::split_words(&text).as_deref(), Ok(words.as_slice()), "{text}");
        assert_eq!(quoted("/opt/a"), "/opt/a");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert!(!in_comment("a---b").contains("--"));
    }
}
