//! The command line of Felix. All of it is in the library; this is only its process.

use std::process::ExitCode;

use felixctl::exit::Exit;
use felixctl::surroundings::Surroundings;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let exit = match runtime {
        Ok(runtime) => {
            let args = std::env::args_os().collect();
            let exit = runtime.block_on(felixctl::run(args, Surroundings::read()));
            // A read of standard input cannot be cancelled; it must not hold up the end.
            runtime.shutdown_background();
            exit
        }
        Err(error) => {
            eprintln!("error: the process cannot start: {error}");
            Exit::Failed
        }
    };
    exit.into()
}
