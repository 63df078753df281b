//! `CLOPT`: the options of a server as Tuxedo has them, in the words of `<sysopt>` and `<appopt>`.

use crate::config::split_words;

/// What a `CLOPT` becomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// For the runtime: `<sysopt>`.
    pub(super) system: Vec<String>,
    /// For the program: `<appopt>`.
    pub(super) program: Vec<String>,
    /// What is another way here, or not here.
    pub(super) remarks: Vec<String>,
}

impl CommandLine {
    /// Reads a value of `CLOPT`.
    ///
    /// # Errors
    /// Which quote is not closed, which option has no value.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut line = Self::default();
        let mut words = split_words(text)?.into_iter();
        let mut services = Vec::new();
        let mut offers_all = false;
        while let Some(word) = words.next() {
            if word == "--" {
                line.program = words.collect();
                break;
            }
            let Some(letter) = word.strip_prefix('-').and_then(|rest| rest.chars().next()) else {
                line.remark(format!("`{word}` before -- is not an option, and left out"));
                continue;
            };
            let attached = word[1 + letter.len_utf8()..].to_owned();
            let mut value = || match attached.as_str() {
                "" => words.next().ok_or_else(|| format!("-{letter} has no value")),
                _ => Ok(attached.clone()),
            };
            match letter {
                'A' => offers_all = true,
                's' => services.push(value()?),
                'e' | 'o' => {
                    let file = value()?;
                    line.system.extend([format!("-{letter}"), file]);
                }
                'r' => line.system.push("-r".to_owned()),
                'n' => {
                    let priority = value()?;
                    line.remark(format!(
                        "-n {priority}: a process has the priority of the manager; start the pool by nice(1)"
                    ));
                }
                'l' => {
                    let how = value()?;
                    line.remark(format!("-l {how}: programs are not locked in memory"));
                }
                'p' => line.remark(format!(
                    "-p{attached}: copies are not started by the length of a queue: MIN of them run, those up to MAX are \
                     started by `pollux pool start --id`"
                )),
                // It is so without them.
                'P' | 'h' | 'v' | 'H' | 't' => {}
                _ => line.remark(format!("the option {word} is not known here, and left out")),
            }
        }
        line.offer(&services, offers_all);
        Ok(line)
    }

    /// The services of `-s`, and whether the others are offered too.
    fn offer(&mut self, services: &[String], offers_all: bool) {
        let mut kept = Vec::new();
        for list in services {
            if let Some(file) = list.strip_prefix('@') {
                self.remark(format!("-s @{file}: write the services of that file behind -s"));
                continue;
            }
            match list.split_once(':') {
                None => kept.extend(list.split(',').map(str::to_owned)),
                Some((names, function)) => {
                    let names = names.replace(',', "/");
                    if names.is_empty() {
                        self.remark(format!("-s :{function}: functions are found without it"));
                    } else {
                        self.system.extend(["-s".to_owned(), format!("{names}:{function}")]);
                    }
                }
            }
        }
        kept.retain(|name| !name.is_empty());
        if offers_all {
            return;
        }
        // What tpsvrinit offers is offered all the same.
        self.system.push("-B".to_owned());
        if !kept.is_empty() {
            self.system.extend(["-s".to_owned(), kept.join(",")]);
        }
    }

    fn remark(&mut self, text: String) {
        self.remarks.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> CommandLine {
        CommandLine::read(text).expect("sound")
    }

    fn system(text: &str) -> String {
        read(text).system.join(" ")
    }

    #[test]
    fn options_become_those_of_the_runtime_and_of_the_program() {
        let line = read("-A -e /log/tlr.err -o/log/tlr.out -r -- -T 'a b'");
        assert_eq!(line.system, ["-e", "/log/tlr.err", "-o", "/log/tlr.out", "-r"]);
        assert_eq!(line.program, ["-T", "a b"]);
        assert_eq!(line.remarks, [""; 0]);
        assert_eq!(read("-A").system, [""; 0]);
        assert!(CommandLine::read("-A -e").is_err_and(|why| why == "-e has no value"));
    }

    #[test]
    fn services_are_those_that_the_options_name() {
        assert_eq!(system("-A -s DEPOSIT,PAY:TRANSFER"), "-s DEPOSIT/PAY:TRANSFER");
        assert_eq!(system("-s A,B -s C"), "-B -s A,B,C");
        assert_eq!(system("-s X:f"), "-s X:f -B");
        assert_eq!(system("-r"), "-r -B");
        assert_eq!(read("-s A").remarks, [""; 0]);
    }

    #[test]
    fn options_that_mean_something_else_here_are_not_passed_on() {
        let line = read("-A -n 10 -p1,30:2,5 -l t -t -P stray -Q");
        assert_eq!(line.system, [""; 0]);
        let said = line.remarks.join("\n");
        for part in
            ["-n 10: ", "-p1,30:2,5: copies", "-l t: ", "`stray` before --", "-Q is not known"]
        {
            assert!(said.contains(part), "{part} in {said}");
        }
        assert!(!said.contains("option -t"), "{said}");
    }
}
