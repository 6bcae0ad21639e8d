//! What kind of machine a figure was measured on. A figure without this is hearsay.

use std::fs;

use serde::{Deserialize, Serialize};

/// The facts printed beside every measurement.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Machine {
    /// Processor, as it calls itself.
    pub cpu_model: String,
    /// Processors this process may use.
    pub cpus: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Tasks that wanted to run during the last minute, this process included.
    pub load_1m: f64,
    /// Whether the compiler optimised this program. A figure of a debug build means nothing.
    pub optimised: bool,
    /// Version of this program.
    pub felixctl: String,
}

impl Machine {
    /// Looks at this machine. What cannot be found out is empty or zero.
    #[must_use]
    pub fn look() -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        Self {
            cpu_model: cpu_model(&read("/proc/cpuinfo")),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_1m: load(&read("/proc/loadavg")),
            optimised: !cfg!(debug_assertions),
            felixctl: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let build = if self.optimised {
            "release"
        } else {
            "DEBUG BUILD"
        };
        format!(
            "{}, {} cpus, {}, linux {}, load {:.2}, felixctl {} ({build})",
            if self.cpu_model.is_empty() {
                "unknown cpu"
            } else {
                &self.cpu_model
            },
            self.cpus,
            crate::parse::show_size(self.memory_bytes),
            self.kernel,
            self.load_1m,
            self.felixctl,
        )
    }
}

fn cpu_model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':'))
        .map_or("", |it| it.1)
        .trim()
        .to_owned()
}

fn memory_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

fn load(loadavg: &str) -> f64 {
    loadavg
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_are_read_from_what_linux_says() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\n"),
            "AMD EPYC"
        );
        assert_eq!(
            memory_bytes("MemTotal:  24000 kB\nMemFree: 1 kB\n"),
            24_576_000
        );
        assert!((load("0.52 0.58 0.59 1/389 12345\n") - 0.52).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_found_out_is_empty() {
        assert_eq!(cpu_model(""), "");
        assert_eq!(memory_bytes("x"), 0);
        assert_eq!(load(""), 0.0);
    }
}
