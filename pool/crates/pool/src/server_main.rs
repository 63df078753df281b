//! The services that a C server offers from the start, and the `main` that says so.
//!
//! It never looks for the functions: the linker reports a name that is missing.

use std::fmt::Write as _;
use std::fs;

use pollux_xatmi::queue::ServiceName;
use pollux_xatmi::slots::SERVICES_MAX;

/// One service, or only a function when `name` is empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServiceSpec {
    name: String,
    function: String,
}

impl ServiceSpec {
    /// Reads all lists: `A,B`, `A,B:FUNCTION`, `:FUNCTION`, `@FILE`.
    pub(crate) fn read_all(lists: &[String]) -> Result<Vec<Self>, String> {
        let mut specs = Vec::new();
        for list in lists {
            match list.strip_prefix('@') {
                None => read_list(list, &mut specs)?,
                Some(path) => {
                    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
                    for (index, line) in text.lines().enumerate() {
                        let line = line.split('#').next().unwrap_or_default().trim();
                        if !line.is_empty() {
                            read_list(line, &mut specs)
                                .map_err(|error| format!("{path}:{}: {error}", index + 1))?;
                        }
                    }
                }
            }
        }
        let services = specs.iter().filter(|spec| !spec.name.is_empty()).count();
        if services > SERVICES_MAX {
            return Err(format!("{services} services: a server offers {SERVICES_MAX} at most"));
        }
        Ok(specs)
    }
}

fn read_list(list: &str, specs: &mut Vec<ServiceSpec>) -> Result<(), String> {
    let (names, function) = match list.split_once(':') {
        Some((names, function)) => (names, Some(function.trim())),
        None => (list, None),
    };
    if names.trim().is_empty() && function.is_none() {
        return Err("an empty list of services: A,B or A,B:FUNCTION".to_owned());
    }
    for name in names.split(',').map(str::trim) {
        let function = function.unwrap_or(name);
        if !is_identifier(function) {
            return Err(format!("{function:?} in {list:?} is not a name of a C function"));
        }
        let is_only_linked = name.is_empty() && names.trim().is_empty();
        if !is_only_linked && !is_service_name(name) {
            return Err(format!(
                "{name:?} in {list:?} is not a name of a service: 1 to {} letters, digits and signs, \
                 without comma, slash, colon, quote, backslash and @, and no dot in front",
                ServiceName::LEN_BYTES_MAX
            ));
        }
        if !name.is_empty() && specs.iter().any(|known| known.name == name) {
            return Err(format!("{name} is listed twice"));
        }
        specs.push(ServiceSpec { name: name.to_owned(), function: function.to_owned() });
    }
    Ok(())
}

fn is_identifier(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

fn is_service_name(name: &str) -> bool {
    // A colon would be read as that of the function, the others end a text of C.
    let is_text_of_c = !name.contains([':', '"', '\\']);
    is_text_of_c && ServiceName::new(name).is_some_and(|name| !name.is_reserved())
}

/// The C source of `main` with the table of services.
pub(crate) fn main_source(specs: &[ServiceSpec]) -> String {
    let mut functions: Vec<_> = specs.iter().map(|spec| spec.function.as_str()).collect();
    functions.sort_unstable();
    functions.dedup();
    let mut source = String::from(
        "/* Made by pollux pool build-server. */\n#include <stddef.h>\n\n#include <atmi.h>\n\n\
         #pragma weak tpsvrinit\n#pragma weak tpsvrdone\n#pragma weak tpsvrthrinit\n\
         #pragma weak tpsvrthrdone\n\n",
    );
    for function in functions {
        writeln!(source, "extern void {function}(TPSVCINFO *);").expect("text grows");
    }
    source.push_str("\nstatic const struct pollux_service services[] = {\n");
    for ServiceSpec { name, function } in specs {
        writeln!(source, "    {{\"{name}\", {function}, \"{function}\"}},").expect("text grows");
    }
    source.push_str(
        "    {NULL, NULL, NULL},\n};\n\nint main(int argc, char **argv) {\n    \
         pollux_server_thread_functions(tpsvrthrinit, tpsvrthrdone);\n    \
         return pollux_server_main(argc, argv, tpsvrinit, tpsvrdone, services);\n}\n",
    );
    source
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lists: &[&str]) -> Result<Vec<(String, String)>, String> {
        let lists: Vec<_> = lists.iter().map(|&list| list.to_owned()).collect();
        let specs = ServiceSpec::read_all(&lists)?;
        Ok(specs.into_iter().map(|spec| (spec.name, spec.function)).collect())
    }

    fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(name, function)| ((*name).to_owned(), (*function).to_owned())).collect()
    }

    #[test]
    fn lists_files_and_functions_are_read() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(&file, "# services\nCREDIT : book\n\nDEBIT\n").expect("written");
        let at = format!("@{}", file.path().display());
        let expected = pairs(&[
            ("A", "A"),
            ("B.v2", "f"),
            ("C", "f"),
            ("", "g"),
            ("CREDIT", "book"),
            ("DEBIT", "DEBIT"),
        ]);
        assert_eq!(read(&["A", "B.v2, C:f", ":g", &at]), Ok(expected));
    }

    #[test]
    fn what_is_not_a_name_is_refused_with_its_list() {
        for (list, part) in [
            ("", "empty list"),
            ("A,,B", "not a name of a C function"),
            ("A,,B:f", "not a name of a service"),
            ("A:f g", "\"f g\""),
            ("1A", "not a name of a C function"),
            ("a\"b:f", "not a name of a service"),
            ("@/nowhere/at/all", "No such file"),
            (".hidden:f", "no dot in front"),
            ("A@B:f", "and @"),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDE", "1 to 30"),
        ] {
            let error = read(&[list]).expect_err(list);
            assert!(error.contains(part), "{list}: {error}");
        }
        assert_eq!(read(&["A", "A:f"]), Err("A is listed twice".to_owned()));
        let names =
            |count: usize| (0..count).map(|n| format!("S{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(read(&[&names(48), ":g"]).map(|specs| specs.len()), Ok(49));
        let error = read(&[&names(49)]).expect_err("one more than a server offers");
        assert_eq!(error, "49 services: a server offers 48 at most");
    }

    #[test]
    fn main_declares_each_function_once() {
        let specs = ServiceSpec::read_all(&["A,B:f".to_owned(), ":g".to_owned()]).expect("read");
        let source = main_source(&specs);
        assert_eq!(source.matches("extern void f(").count(), 1);
        assert!(source.contains("{\"A\", f, \"f\"}") && source.contains("{\"\", g, \"g\"}"));
    }
}
