//! `felix-bench OPERATION TIMES`: does one operation a number of times; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, times] = arguments.as_slice() else {
        return usage();
    };
    let operation = felix_bench::OPERATIONS
        .iter()
        .find(|(known, _)| known == name);
    let (Some((_, run)), Ok(times)) = (operation, times.parse()) else {
        return usage();
    };
    println!("{}", run(times));
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    let names: Vec<&str> = felix_bench::OPERATIONS
        .iter()
        .map(|(name, _)| *name)
        .collect();
    eprintln!("usage: felix-bench {} TIMES", names.join("|"));
    ExitCode::from(2)
}
