//! The headers compile alone and in any order, without a warning, for each standard of C and C++.

use crate::toolchain::Toolchain;

const HEADERS: [&str; 3] = ["atmi.h", "ubf.h", "fml32.h"];

/// Each header alone, each pair in both orders, and one twice.
fn sources() -> Vec<String> {
    let mut sources = Vec::new();
    for one in HEADERS {
        sources.push(format!("#include <{one}>\n"));
        for other in HEADERS {
            sources.push(format!("#include <{one}>\n#include <{other}>\n"));
        }
    }
    sources
}

fn compile_all(toolchain: &Toolchain, language: &str, standards: &[&str]) {
    let path = toolchain.path("headers.c");
    for source in sources() {
        std::fs::write(&path, format!("{source}extern int not_empty;\n")).expect("written");
        for standard in standards {
            let flags = ["-Wall", "-Wextra", "-Wpedantic", "-Wwrite-strings", "-Werror"];
            let output = toolchain.run(
                &[&["-x", language, standard, "-fsyntax-only", "headers.c"][..], &flags].concat(),
            );
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{standard}: {source}{said}");
        }
    }
}

#[test]
fn c_takes_them_in_any_order_without_a_warning() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    compile_all(&gcc, "c", &["-std=c99", "-std=c11", "-std=c17"]);
}

#[test]
fn cpp_takes_them_in_any_order_without_a_warning() {
    let Some(gpp) = Toolchain::of("g++") else { return };
    compile_all(&gpp, "c++", &["-std=c++11", "-std=c++17"]);
}

#[test]
fn every_function_of_the_headers_is_in_the_library() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    let declared = HEADERS.iter().flat_map(|name| {
        let text = std::fs::read_to_string(gcc.path("include").join(name)).expect("a header");
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.into_iter().filter_map(|line| function(&line))
    });
    let provided_by_the_program = ["tpsvrinit", "tpsvrdone"];
    let names: Vec<_> =
        declared.filter(|name| !provided_by_the_program.contains(&name.as_str())).collect();
    assert!(names.len() > 50, "{names:?}");
    let uses: String = names.iter().map(|name| format!("  (void (*)(void)){name},\n")).collect();
    let source = format!(
        "#include <atmi.h>\n#include <ubf.h>\nvoid (*all[])(void) = {{\n{uses}}};\n\
         int main(void) {{ return all[0] == 0; }}\n"
    );
    std::fs::write(gcc.path("all.c"), source).expect("written");
    let output = gcc.run(&["-w", "-o", "all", "all.c", "-Llib", "-lpollux_xatmi"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The name of the function that a line declares.
fn function(line: &str) -> Option<String> {
    let declaration = line.strip_prefix("extern ").filter(|rest| !rest.starts_with('"'))?;
    let before = declaration.split('(').next()?;
    Some(before.rsplit([' ', '*']).next()?.to_owned())
}

#[test]
fn libraries_of_other_makers_link_lines_are_there() {
    let Some(gcc) = Toolchain::of("gcc") else { return };
    std::fs::write(
        gcc.path("server.c"),
        "#include <atmi.h>\nint tpsvrinit(int argc, char **argv)\n\
         { (void)argc; (void)argv; return tpunadvertise(\"X\"); }\n",
    )
    .expect("written");
    let libraries = "-Llib -latmisrv -latmi -lubf -lnstd -lrt -ldl -lm";
    let mut arguments = vec!["-o", "server", "server.c"];
    arguments.extend(libraries.split(' '));
    let output = gcc.run(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(
        gcc.path("client.c"),
        "#include <atmi.h>\nint main(void) { return tpterm(); }\n",
    )
    .expect("written");
    let arguments = ["-o", "client", "client.c", "-Llib", "-latmiclt", "-latmi", "-lubf", "-lnstd"];
    let output = gcc.run(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
